/** The editor of an environment of a study, with a test of the environment. */
import { post, useResource } from "./api.js";
import {
  Button,
  CheckField,
  Controls,
  Field,
  Icon,
  IconButton,
  KeyField,
  Menu,
  Notice,
  NumberField,
  Segments,
  SelectField,
  TextArea,
  TextField,
} from "./components.js";
import { classes, html, useEffect, useId, useLayoutEffect, useRef, useState } from "./html.js";

/** @import { Families, GetAnswer, Option, Trial } from "./answers.js" */
/** @import { Environment } from "./api_types.js" */

/**
 * A new environment with default values.
 * @param {Families | null} families
 * @returns {Environment}
 */
export function newEnvironment(families) {
  const family = Object.keys(families ?? {}).find((name) => families?.[name].identifiers?.length) ?? "";
  return {
    id: "",
    name: "",
    family,
    options: {},
    instructions: "",
    mode: "async",
    fps: 15,
    max_episode_steps: null,
    seed: null,
    interpreter: "",
    keys: {},
    video: {},
    quota: null,
  };
}

/**
 * Checks an environment; returns errors by the names of fields.
 * @param {Environment} environment
 * @param {Families | null} families
 * @returns {Record<string, string>}
 */
export function checkEnvironment(environment, families) {
  /** @type {Record<string, string>} */
  const errors = {};
  const family = families?.[environment.family];
  if (!environment.name.trim()) errors.name = "An environment needs a name.";
  if (!environment.family) errors.family = "Choose a family.";
  const { id } = environment.options;
  // Another interpreter may have other environments.
  if (!id) errors.id = "Choose an environment.";
  else if (family?.identifiers && !environment.interpreter && !family.identifiers.includes(id))
    errors.id = `${family.title} has no ${id} on this server.`;
  if (environment.mode === "async" && !(environment.fps > 0 && environment.fps <= 120)) errors.fps = "From 0.1 to 120.";
  const isCount = (/** @type {number | null} */ value, /** @type {number} */ min) =>
    value === null || (Number.isInteger(value) && value >= min && value < 2 ** 31);
  if (!isCount(environment.max_episode_steps, 1)) errors.max_episode_steps = "A whole number, at least 1.";
  if (!isCount(environment.seed, 0)) errors.seed = "A whole number, from 0 to 2147483647.";
  if (!isCount(environment.quota, 1)) errors.quota = "A whole number, at least 1.";
  const isVideo = (/** @type {any} */ encoding) => ["h264", "av1", "lossless"].includes(encoding);
  if (!(environment.video instanceof Object && Object.values(environment.video).every(isVideo)))
    errors.video = "Expected h264, av1 or lossless for each field.";
  for (const option of family?.options ?? []) {
    const value = environment.options[option.name];
    if (value === undefined || value === null) continue;
    if (typeof value === "number" && !Number.isFinite(value))
      errors[`options.${option.name}`] = "This is not a number.";
    else if (option.kind === "integer" && !Number.isInteger(value))
      errors[`options.${option.name}`] = "A whole number.";
  }
  return errors;
}

/**
 * @param {{environment: Environment, families: GetAnswer<"/api/families"> | null, errors?: Record<string, string>,
 *   isFirst: boolean, isLast: boolean,
 *   onChange: (environment: Environment) => void, onMove: (step: number) => void, onDuplicate: () => void,
 *   onRemove: () => void}} props
 */
export function EnvironmentEditor({
  environment,
  families,
  errors = {},
  isFirst,
  isLast,
  onChange,
  onMove,
  onDuplicate,
  onRemove,
}) {
  // Each interpreter has its own environments.
  const ownFamilies = useResource(environment.interpreter ? "/api/families" : null, {
    interpreter: environment.interpreter,
  });
  const all = (environment.interpreter ? ownFamilies.data : families)?.families ?? {};
  const family = all[environment.family];
  const identifiers = family?.identifiers ?? [];
  const isWrong = Object.keys(errors).length > 0;
  const [isOpen, setIsOpen] = useState(!environment.id);
  const list = useId();
  const set = (/** @type {string} */ name) => (/** @type {any} */ value) => onChange({ ...environment, [name]: value });
  const setOption = (/** @type {string} */ name, /** @type {any} */ value) => {
    const options = { ...environment.options };
    if (value === undefined) delete options[name];
    else options[name] = value;
    onChange({ ...environment, options });
  };
  const choose = (/** @type {string} */ id) => {
    const wasNamed = environment.name && environment.name !== plainName(environment.options.id);
    onChange({
      ...environment,
      name: wasNamed || !identifiers.includes(id) ? environment.name : plainName(id),
      options: { ...environment.options, id },
    });
  };
  useEffect(() => {
    if (isWrong) setIsOpen(true);
  }, [isWrong]);
  // A layout effect runs before people can choose another family.
  useLayoutEffect(() => {
    if (!environment.family && families) onChange({ ...environment, family: newEnvironment(all).family });
  }, [families]);
  const isLoading = environment.interpreter ? ownFamilies.isLoading : !families;
  const interpreters = families?.interpreters ?? [""];
  /** @type {[string, string][]} */
  const choices = Object.entries(all).map(([name, candidate]) => [
    name,
    candidate.identifiers ? candidate.title : `${candidate.title} (not installed)`,
  ]);
  if (environment.family && !family) choices.push([environment.family, environment.family]);

  return html`<details class=${classes("panel environment", isWrong && "wrong-part")} open=${isOpen}
    onToggle=${(/** @type {any} */ event) => setIsOpen(event.currentTarget.open)}>
    <summary>
      <${Icon} name="right" size=${16} />
      <span class="grow">
        ${environment.name || "New environment"}
        <small>${[family?.title, environment.options.id].filter(Boolean).join(" · ")}</small>
      </span>
    </summary>
    <div class="environment-menu">
      <${Menu} label="More for ${environment.name || "this environment"}" items=${[
        { label: "Duplicate", icon: "copy", do: onDuplicate },
        !isFirst && { label: "Move up", icon: "up", do: () => onMove(-1) },
        !isLast && { label: "Move down", icon: "down", do: () => onMove(1) },
        { label: "Remove", icon: "trash", danger: true, do: onRemove },
      ]} />
    </div>
    <div class="environment-body">
      <div class="fields">
        <${SelectField} label="Family" value=${environment.family} error=${errors.family} disabled=${isLoading}
          hint=${isLoading && html`<span class="spinner" aria-hidden="true"></span> Loading installed environments…`}
          onChange=${(/** @type {string} */ name) => onChange({ ...environment, family: name, options: {} })}
          choices=${environment.family ? choices : [["", "Choose…"], ...choices]} />
        <${Field} label="Environment" error=${errors.id}>
          ${(/** @type {any} */ attributes) => html`<input ...${attributes} list=${list}
            value=${environment.options.id ?? ""} placeholder=${identifiers.length ? "Type to search" : ""}
            spellcheck=${false}
            autocomplete="off"
            onInput=${(/** @type {any} */ event) => choose(event.target.value)} />
          <datalist id=${list}>
            ${identifiers.map((id) => html`<option key=${id} value=${id}></option>`)}
          </datalist>`}
        <//>
        <${TextField} label="Name" hint="Shown to players." value=${environment.name} onChange=${set("name")}
          error=${errors.name} maxlength="200" />
        ${interpreters.length > 1 &&
        html`<${SelectField} label="Python" value=${environment.interpreter} onChange=${set("interpreter")}
          hint="The interpreter that runs the environment."
          choices=${interpreters.map((/** @type {string} */ name) => [name, name || "The server's own"])} />`}
      </div>
      ${ownFamilies.error && html`<${Notice} tone="bad">${ownFamilies.error.message}<//>`}
      ${family?.error &&
      html`<${Notice} tone="odd">
        ${family.error}${family.requires && html` It needs <code>${family.requires}</code>.`}
      <//>`}
      ${family?.options.length > 0 &&
      html`<div>
        <h3>Options of ${family.title}</h3>
        <div class="fields">
          ${family.options.map(
            (option) => html`<${OptionField} key=${option.name} option=${option}
              value=${environment.options[option.name]} error=${errors[`options.${option.name}`]}
              onChange=${(/** @type {any} */ value) => setOption(option.name, value)} />`,
          )}
        </div>
      </div>`}
      <div>
        <h3>Steps and episodes</h3>
        <div class="fields">
          <${Segments} label="Steps" value=${environment.mode} onChange=${set("mode")} choices=${[
            { value: "async", label: "At a fixed rate" },
            { value: "sync", label: "On each key press" },
          ]} />
          ${environment.mode === "async" &&
          html`<${NumberField} label="Steps per second" value=${environment.fps}
            onChange=${(/** @type {any} */ value) => set("fps")(value ?? Number.NaN)} error=${errors.fps} />`}
          <${NumberField} label="Longest episode" optional unit="steps" value=${environment.max_episode_steps}
            onChange=${set("max_episode_steps")} error=${errors.max_episode_steps} placeholder="No limit" />
          <${NumberField} label="Seed" optional value=${environment.seed} onChange=${set("seed")} error=${errors.seed}
            placeholder="Random" hint="For each player's first episode. Each later episode adds 1." />
          <${NumberField} label="Episodes of all people" optional value=${environment.quota} onChange=${set("quota")}
            error=${errors.quota} placeholder="Any number" hint="Completed episodes of this environment." />
        </div>
      </div>
      <${JsonField} label="Cameras as video"
        value=${Object.keys(environment.video).length ? environment.video : undefined}
        placeholder=${'{"observation": "h264"}'}
        error=${errors.video} onChange=${(/** @type {any} */ value) => set("video")(value ?? {})}
        hint="Fields of the observation to record as video: h264, av1 or lossless." />
      <${TextArea} label="Instructions" optional hint="Shown after the study's instructions." rows="2"
        value=${environment.instructions} onChange=${set("instructions")} maxlength="20000" />
      <${KeyTable} keys=${environment.keys} onChange=${set("keys")} />
      <${EnvironmentTest} environment=${environment} isReady=${Boolean(environment.family && environment.options.id)} />
    </div>
  </details>`;
}

/** @param {string | undefined} id */
function plainName(id) {
  // In an identifier with a version, as in Gymnasium, the text before a slash is a namespace.
  return (id ?? "")
    .replace(/^.*\/(?=.*-v\d+$)/, "")
    .replace(/-v\d+$/, "")
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .replaceAll("_", " ")
    .slice(0, 200);
}

/** @param {string} name */
function optionTitle(name) {
  const words = name.replace(/^(has|is)_/, "").replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

/**
 * The field of an option, by its type; default values are not stored.
 * @param {{option: Option, value: any, error?: string, onChange: (value: any) => void}} props
 */
function OptionField({ option, value, error, onChange }) {
  const field = { label: optionTitle(option.name), hint: option.help || undefined, error };
  const isJson = option.default !== null && typeof option.default === "object";
  const change = (/** @type {any} */ next) =>
    onChange(JSON.stringify(next) === JSON.stringify(option.default) ? undefined : next);
  const current = value === undefined ? option.default : value;
  if (isJson)
    return html`<${JsonField} ...${field} value=${value} placeholder=${JSON.stringify(option.default)}
      onChange=${onChange} />`;
  if (option.kind === "flag") return html`<${CheckField} ...${field} checked=${Boolean(current)} onChange=${change} />`;
  if (option.kind === "choice") {
    const values = option.choices ?? [];
    const names = values.map(String);
    return html`<${SelectField} ...${field} value=${String(current)}
      onChange=${(/** @type {string} */ name) => change(values[names.indexOf(name)])} choices=${names} />`;
  }
  if (option.kind === "integer" || option.kind === "number") {
    return html`<${NumberField} ...${field} value=${value ?? null}
      placeholder=${option.default === null ? "By default" : String(option.default)}
      onChange=${(/** @type {number | null} */ next) => onChange(next === null ? undefined : next)} />`;
  }
  return html`<${TextField} ...${field} value=${value ?? ""} placeholder=${option.default || "By default"}
    onChange=${(/** @type {string} */ next) => onChange(next === "" ? undefined : next)} />`;
}

/**
 * A field for a value in JSON; undefined if the field is empty.
 * @param {{label: string, value: any, hint?: string, placeholder?: string, error?: string,
 *   onChange: (value: any) => void}} props
 */
function JsonField({ label, hint, value, placeholder, error, onChange }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value));
  const [problem, setProblem] = useState("");
  const change = (/** @type {string} */ next) => {
    setText(next);
    setProblem("");
    if (!next.trim()) {
      onChange(undefined);
      return;
    }
    try {
      onChange(JSON.parse(next));
    } catch {
      setProblem('Write it as JSON, such as {"gravity": -5}.');
    }
  };
  return html`<${TextField} label=${label} value=${text} placeholder=${placeholder} error=${problem || error}
    hint="${hint ?? ""} Written as JSON." onChange=${change} spellcheck=${false} class="json" />`;
}

/** @param {{keys: Record<string, any>, onChange: (keys: Record<string, any>) => void}} props */
function KeyTable({ keys, onChange }) {
  const last = useRef(0);
  const [rows, setRows] = useState(() =>
    Object.entries(keys).map(([code, action], index) => ({
      row: -index - 1,
      code,
      text: typeof action === "string" ? action : JSON.stringify(action),
    })),
  );
  const update = (/** @type {typeof rows} */ next) => {
    setRows(next);
    onChange(
      Object.fromEntries(
        next.filter((entry) => entry.code && entry.text.trim()).map((entry) => [entry.code, parseAction(entry.text)]),
      ),
    );
  };
  const change = (/** @type {number} */ row, /** @type {any} */ changes) =>
    update(rows.map((entry) => (entry.row === row ? { ...entry, ...changes } : entry)));
  const add = () => {
    last.current += 1;
    setRows([...rows, { row: last.current, code: "", text: "" }]);
  };
  return html`<div>
    <div class="spread">
      <div>
        <h3>Custom keys</h3>
        <p class="hint">
          Actions of keys, in place of the defaults. An action is a number, a list of numbers, or an action name that
          the test below shows; <code>null</code> disables the key.
        </p>
      </div>
      <${Button} size="small" icon="add" onClick=${add}>Add key<//>
    </div>
    ${rows.length > 0 &&
    html`<ul class="key-rows">
      ${rows.map(
        (entry) => html`<li key=${entry.row}>
          <${KeyField} label="Key" value=${entry.code}
            onChange=${(/** @type {string} */ code) => change(entry.row, { code })} />
          <${TextField} label="Action" value=${entry.text}
            onChange=${(/** @type {string} */ text) => change(entry.row, { text })} spellcheck=${false} />
          <${IconButton} icon="trash" label="Remove this key"
            onClick=${() => update(rows.filter((other) => other.row !== entry.row))} />
        </li>`,
      )}
    </ul>`}
  </div>`;
}

/** @param {string} text */
function parseAction(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text.trim();
  }
}

/** @type {Trial} */
const FAILED_TRIAL = { ok: false, error: "", controls: [], cameras: [], picture: null };

/** @param {{environment: Environment, isReady: boolean}} props */
function EnvironmentTest({ environment, isReady }) {
  const [state, setState] = useState(
    /** @type {{isBusy: boolean, result: Trial | null, of: Environment | null}} */ ({
      isBusy: false,
      result: null,
      of: null,
    }),
  );
  const test = async () => {
    setState({ isBusy: true, result: null, of: environment });
    try {
      const tested = { ...environment, name: environment.name.trim() || "Test" };
      setState({
        isBusy: false,
        result: await post("/api/environments/test", { environment: tested }),
        of: environment,
      });
    } catch (error) {
      setState({
        isBusy: false,
        result: { ...FAILED_TRIAL, error: error instanceof Error ? error.message : String(error) },
        of: environment,
      });
    }
  };
  const { isBusy, result } = state;
  return html`<div class="trial">
    <div class="row">
      <${Button} icon="test" busy=${isBusy} disabled=${!isReady} onClick=${test}>Test<//>
      <p class="hint grow" role="status">
        ${isBusy
          ? "Creating the environment…"
          : result && state.of !== environment
            ? "You have changed it since this test."
            : result?.ok
              ? "It works. Players see this picture and these keys."
              : "Creates the environment on the server, and shows its picture and keys."}
      </p>
    </div>
    ${result &&
    !result.ok &&
    html`<${Notice} tone="bad"><strong>The environment failed.</strong> <span class="pre">${result.error}</span><//>`}
    ${result?.ok &&
    html`<div class="test-result">
      ${result.picture
        ? html`<img src=${result.picture} alt="The first picture of ${environment.name}" />`
        : html`<p class="quiet">The environment has no picture.</p>`}
      <div class="stack">
        <${Controls} controls=${result.controls} />
        ${result.cameras.length > 1 && html`<p class="note">Cameras: ${result.cameras.join(", ")}</p>`}
      </div>
    </div>`}
  </div>`;
}
