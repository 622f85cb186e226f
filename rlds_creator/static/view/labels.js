/** Labels of an episode, of its steps and of ranges of them. */
import { get, post, put, queryOf, remove } from "../api.js";
import { COLORS } from "../chart.js";
import { EPISODE_STATES, Button, Dialog, Icon, KeyField, Panel, Segments, TextField } from "../components.js";
import { formatTime, keyName, layerName } from "../format.js";
import { Fragment, classes, html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { useMe } from "../session.js";
import { useStored } from "./panes.js";

/** @import { ShownLabel, ShownLayer } from "../api_types.js" */
/** @import { EpisodeLabels } from "../answers.js" */

/**
 * @typedef {Omit<ShownLayer, "title"> & {title?: string}} Layer
 * @typedef {ShownLayer["type"]} Type
 * @typedef {Pick<ShownLabel, "layer" | "type" | "first" | "last"> & {value: any, title?: string}} Said
 * @typedef {ShownLabel & {title?: string}} Label
 * @typedef {{layer: Layer, value: any, code: string}} Key What a key says; it asks for the value if that is undefined.
 * @typedef {{first: number, last: number}} Range
 * @typedef {"step" | "range" | "episode"} Scope
 */

/** Keys of layers that have none, in the order in which they are given; and those that do something else. */
const FREE = [..."123456789"]
  .map((digit) => `Digit${digit}`)
  .concat([..."QWERTYUASDFGHJKLZXCMP"].map((letter) => `Key${letter}`));

/** @param {{first: number | null, last: number | null}} label */
export function placeOf({ first, last }) {
  if (first === null) return "whole episode";
  return first === last || last === null ? `step ${first}` : `steps ${first}–${last}`;
}

/** @param {any} value */
const titleOf = (value) => EPISODE_STATES[value]?.[0] ?? String(value);

/** @param {Said} label */
export function textOf({ layer, title, type, value }) {
  const name = title || layer;
  if (type === "flag") return value ? name : `not ${name}`;
  return `${name}: ${titleOf(value)}`;
}

/** What has a colour of its own. @param {{layer: string, type: Type, value: any}} label */
const colorKey = ({ layer, type, value }) => (type === "choice" ? `${layer}: ${value}` : layer);

/** @param {Said} one @param {Said} other */
const isSame = (one, other) =>
  one.layer === other.layer && one.type === other.type && one.first === other.first && one.last === other.last;

/**
 * What the keys say.
 * @param {Layer[]} layers
 * @returns {Key[]}
 */
export function keysOf(layers) {
  const keys = layers.flatMap((layer) =>
    (layer.choices.length > 0 ? layer.choices : [layer.type === "flag" ? true : undefined]).map((value, place) => ({
      layer,
      value,
      code: layer.keys[place] ?? "",
    })),
  );
  const taken = new Set(keys.map(({ code }) => code));
  const free = FREE.filter((code) => !taken.has(code));
  return keys.map((key) => ({ ...key, code: key.code || (free.shift() ?? "") }));
}

/** What who labels is called: what was said in this browser, or on the command line. */
export function useAnnotator() {
  const me = useMe();
  const [name, setName] = useStored("annotator", "");
  return { by: me.mode === "view" ? name || me.by || "" : undefined, setName };
}

/**
 * The labels of an episode, and what changes them.
 * @param {string} base Where the data of the episode are.
 * @param {string | undefined} by Who labels, if the server does not know.
 * @param {() => void} [onChange]
 */
export function useLabels(base, by, onChange) {
  const [state, setState] = useState(
    /** @type {Omit<EpisodeLabels, "adds"> & {adds: EpisodeLabels["adds"] | ""}} */ ({
      layers: [],
      labels: [],
      adds: "",
      may_label: false,
      why_not: "",
    }),
  );
  const isLoaded = state.adds !== "";
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  /** What was changed last, and what takes it back. */
  const [last, setLast] = useState(/** @type {{words: string, isBad?: boolean, undo?: () => void} | null} */ (null));
  const undos = useRef(/** @type {(() => void)[]} */ ([]));
  // Keys may follow fast: one change is made after the other, each of what is there then.
  const now = useRef({
    state,
    before: Promise.resolve(),
    held: /** @type {((state: EpisodeLabels, keys: Key[]) => void)[]} */ ([]),
  });
  const show = (/** @type {typeof state} */ next) => {
    now.current.state = next;
    setState(next);
  };
  const path = (/** @type {string} */ end) => `${base}/${end}${queryOf({ by })}`;
  const reload = useCallback(async () => {
    const held = now.current.held;
    try {
      /** @type {EpisodeLabels} */
      const next = await get(path("labels"));
      show(next);
      setError(null);
      for (const change of held.splice(0)) change(next, keysOf(next.layers));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
      if (held.splice(0).length > 0) setLast({ words: "The labels did not load: press the keys again.", isBad: true });
    }
  }, [base, by]);
  /**
   * Does something with the labels when they come, also if the page shows another episode by then.
   * @param {(state: EpisodeLabels, keys: Key[]) => void} change
   */
  const hold = (change) => void now.current.held.push(change);
  useEffect(() => {
    void reload();
    // Others may be at work on the same episode.
    const look = () => void (document.hidden || reload());
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [reload]);

  /**
   * Does something, and says so.
   * @param {string} words
   * @param {() => Promise<(() => Promise<any>) | null>} change Returns what takes it back; null if there was nothing
   *   to do.
   * @param {boolean} [isLast] Whether that cannot be taken back.
   */
  const doing = (words, change, isLast = false) => {
    now.current.before = now.current.before.then(async () => {
      try {
        const back = await change();
        const once = () => {
          const place = undos.current.indexOf(once);
          if (place < 0) return;
          undos.current.splice(place, 1);
          doing(`Undone: ${words}`, async () => back && (await back()), true);
        };
        if (back && !isLast) undos.current.push(once);
        setLast({
          words: back || isLast ? words : `${words}: it is there already`,
          undo: back && !isLast ? once : undefined,
        });
        onChange?.();
      } catch (problem) {
        setLast({ words: /** @type {Error} */ (problem).message, isBad: true });
      }
      await reload();
    });
  };
  const say = (/** @type {Said} */ { layer, type, value, first, last: end }) =>
    post(path("labels"), { layer, type, value, first, last: end });
  const add = (/** @type {Said} */ said) =>
    doing(`“${textOf(said)}”, ${placeOf(said)}`, async () => {
      const { labels, adds } = now.current.state;
      // Of tags there is one for all people; of other labels, one for each of them.
      const old = labels.find((one) => isSame(one, said) && one.decides !== false && (one.is_mine || adds === "tag"));
      if (old?.is_mine && old.value === said.value) return null;
      const made = await say(said);
      return () => (old ? say(old) : remove(path(`labels/${made.id}`)));
    });
  const take = (/** @type {Label} */ label) =>
    doing(`Removed “${textOf(label)}”, ${placeOf(label)}`, async () => {
      await remove(path(`labels/${label.id}`));
      return () => post(path(`labels/${label.id}`));
    });
  const declare = async (/** @type {Layer} */ layer) => {
    show(await put(path("layers"), layer));
    dispatchEvent(new Event("layers"));
  };
  const undo = () => undos.current.at(-1)?.();

  const keys = useMemo(() => keysOf(state.layers), [state.layers]);
  const colors = useMemo(() => {
    const names = [
      ...keys.map(({ layer, value }) => colorKey({ layer: layer.name, type: layer.type, value })),
      ...state.labels.map(colorKey).sort(),
    ];
    return new Map([...new Set(names)].map((name, index) => [name, COLORS[(index + 1) % COLORS.length]]));
  }, [keys, state.labels]);
  const colorOf = (/** @type {Said} */ label) => colors.get(colorKey(label)) ?? COLORS[1];
  const labels = useMemo(() => {
    const titles = new Map(state.layers.map(({ name, title }) => [name, title]));
    return state.labels.map((label) => ({ ...label, title: titles.get(label.layer) }));
  }, [state]);
  return { ...state, labels, isLoaded, hold, keys, colorOf, error, last, add, take, declare, undo };
}

/**
 * @param {{store: ReturnType<typeof useLabels>, step: number, numSteps: number, scope: Scope,
 *   setScope: (scope: Scope) => void, range: Range | null, setRange: (range: Range | null) => void,
 *   apply: (layer: Layer, value: any) => void, entry: Layer | null, setEntry: (layer: Layer | null) => void,
 *   onEntry: (value: any) => void, by?: string, onName: () => void, onSeek: (step: number) => void}} props
 */
export function Labels({
  store,
  step,
  numSteps,
  scope,
  setScope,
  range,
  setRange,
  apply,
  entry,
  setEntry,
  onEntry,
  by,
  onName,
  onSeek,
}) {
  const { labels, layers, keys, colorOf, error, may_label: canLabel, adds } = store;
  const [isMaking, setIsMaking] = useState(false);
  const name = adds === "layer" ? "label" : "tag";
  const sorted = [...labels].sort(
    (a, b) => (a.first ?? -1) - (b.first ?? -1) || (a.last ?? 0) - (b.last ?? 0) || a.layer.localeCompare(b.layer),
  );
  const target =
    scope === "episode" ? "the whole episode" : scope === "range" && range ? placeOf(range) : `step ${step}`;
  const setEnd = (/** @type {"first" | "last"} */ end) => setRange(rangeWith(range, end, step));
  const people = new Set(labels.map(({ author }) => author));
  const isOverruled = (/** @type {Label} */ one) =>
    one.decides === false &&
    !labels.some((other) => other.layer === one.layer && other.decides && other.value === one.value);
  const button = (/** @type {Key} */ { layer, value, code }, /** @type {string} */ title) => {
    const said = { layer: layer.name, type: layer.type, value };
    const isSaid =
      layer.whole &&
      labels.some(
        (one) =>
          isSame(one, { ...said, first: null, last: null }) &&
          one.value === value &&
          one.decides !== false &&
          (one.is_mine || adds === "tag"),
      );
    return html`<button key=${`${layer.name} ${value}`} type="button" class="label-button"
      aria-pressed=${layer.whole && value !== undefined ? String(isSaid) : undefined}
      title=${[layer.doc, code && `Key: ${keyName(code)}`].filter(Boolean).join(" · ") || undefined}
      onClick=${(/** @type {MouseEvent} */ event) => {
        if (value === undefined) setEntry(layer);
        else apply(layer, value === true ? !(event.shiftKey && adds === "layer") : value);
      }}>
      <span class="dot" style=${{ "--color": `var(${colorOf({ ...said, first: null, last: null })})` }}></span>${title}
      ${code && html`<kbd>${keyName(code)}</kbd>`}
    </button>`;
  };
  const of = (/** @type {Layer} */ layer) => keys.filter((key) => key.layer === layer);
  const plain = layers.filter(({ choices }) => choices.length === 0);
  return html`<${Panel} title=${adds === "tag" ? "Verdict and tags" : "Labels"} class="tags"
    actions=${canLabel &&
    adds === "layer" &&
    html`<${Fragment}>
      <${Button} kind="quiet" size="small" onClick=${onName} title="Change who labels">
        ${by ? `by ${by}` : "Who are you?"}
      <//>
      <${Button} kind="quiet" size="small" icon="add" onClick=${() => setIsMaking(true)}>Layer<//>
    <//>`}>
    ${(error || store.why_not) && html`<p class="hint">${error?.message ?? store.why_not}</p>`}
    ${canLabel &&
    html`<${Fragment}>
      ${layers
      .filter(({ choices, whole }) => choices.length > 0 && whole)
      .map((layer) => html`<${ChoiceRow} key=${layer.name} layer=${layer} keys=${of(layer)} button=${button} />`)}
      ${(adds === "tag" || layers.some(({ whole }) => !whole)) &&
      html`<div class="tag-target">
        <${Segments} label=${name} hideLabel=${true} value=${scope} onChange=${setScope}
          choices=${[
            { value: "step", label: "This step" },
            { value: "range", label: "Range" },
            { value: "episode", label: "Episode" },
          ]} />
        ${scope === "range" &&
        html`<div class="tag-range">
          <${Button} size="small" onClick=${() => setEnd("first")} title="Begin the range at this step: I">
            ${range ? `From ${range.first}` : "Begin here"} <kbd>I</kbd>
          <//>
          <${Button} size="small" onClick=${() => setEnd("last")} title="End the range at this step: O">
            ${range ? `to ${range.last}` : "End here"} <kbd>O</kbd>
          <//>
        </div>`}
      </div>`}
      ${layers
      .filter(({ choices, whole }) => choices.length > 0 && !whole)
      .map((layer) => html`<${ChoiceRow} key=${layer.name} layer=${layer} keys=${of(layer)} button=${button} />`)}
      <div class="labels" role="group" aria-label=${`Mark ${target}`}>
        ${plain.map((layer) => button(of(layer)[0], layer.title || layer.name))}
        ${adds === "tag" &&
        html`<${OtherTag}
          names=${[...new Set(labels.filter(({ type }) => type === "flag").map(({ layer }) => layer))].filter(
            (one) => !layers.some(({ name: known }) => known === one),
          )}
          hasTags=${plain.length > 0} apply=${apply} />`}
      </div>
      ${entry && html`<${Entry} key=${entry.name} layer=${entry} onValue=${onEntry} onClose=${() => setEntry(null)} />`}
      ${layers.length === 0 &&
      html`<p class="hint">
        ${adds &&
        "A layer is what you say of episodes or of steps: whether it is good, which phase it is, what went wrong."}
      </p>`}
    <//>`}
    ${labels.some(isOverruled) && html`<p class="hint" role="status">People differ. The last word decides.</p>`}
    ${sorted.length === 0
      ? layers.length > 0 &&
        html`<p class="hint">${canLabel ? `No ${name}s yet. The next one marks ${target}.` : `No ${name}s.`}</p>`
      : html`<ul class="tag-list">
        ${sorted.map((label) => {
          const { id, first, author, created } = label;
          const isHere = first === null || (step >= first && step <= (label.last ?? first));
          return html`<li key=${id} class=${classes(isHere && "is-here")}
            title=${[author, created > 0 && formatTime(created)].filter(Boolean).join(", ")}>
            <span class="dot" style=${{ "--color": `var(${colorOf(label)})` }}></span>
            <span class="tag-name">
              ${textOf(label)}
              ${(first === null || people.size > 1) &&
              html`<small class="quiet">
                ${[author, first === null && created > 0 && formatTime(created), isOverruled(label) && "overruled"]
                .filter(Boolean)
                .join(", ")}
              </small>`}
            </span>
            ${first === null
              ? html`<span class="tag-place quiet">whole episode</span>`
              : html`<button type="button" class="tag-place" title="Go there"
                onClick=${() => onSeek(Math.min(first, numSteps - 1))}>${placeOf(label)}</button>`}
            ${label.may_remove &&
            html`<button type="button" class="tag-remove" aria-label=${`Remove ${textOf(label)}, ${placeOf(label)}`}
              title="Remove"
              onClick=${() => store.take(label)}><${Icon} name="close" size=${14} /></button>`}
          </li>`;
        })}
      </ul>`}
    ${isMaking &&
    html`<${LayerDialog} taken=${layers.map(({ name }) => name)} onMade=${store.declare}
      onClose=${() => setIsMaking(false)} />`}
  <//>`;
}

/** What was changed last. @param {{last: ReturnType<typeof useLabels>["last"]}} props */
export function LastChange({ last }) {
  return html`<span class=${classes("tag-last", last?.isBad && "is-bad")} role="status">
    ${last && html`<span title=${last.words}>${last.words}</span>`}
    ${last?.undo &&
    html`<${Button} kind="quiet" size="small" icon="undo" title="Undo: Ctrl Z" onClick=${last.undo}>Undo<//>`}
  </span>`;
}

/** The choices of a layer. @param {{layer: Layer, keys: Key[], button: (key: Key, title: string) => any}} props */
function ChoiceRow({ layer, keys, button }) {
  const name = layer.title || layer.name;
  return html`<div class="labels" role="group" aria-label=${name} title=${layer.doc || undefined}>
    <span class="layer-name">${name}</span>${keys.map((key) => button(key, titleOf(key.value)))}
  </div>`;
}

/**
 * A tag that the study does not name.
 * @param {{names: string[], hasTags: boolean, apply: (layer: Layer, value: any) => void}} props
 */
function OtherTag({ names, hasTags, apply }) {
  const [typed, setTyped] = useState("");
  return html`<form class="label-new" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    if (typed.trim()) apply({ name: typed.trim(), type: "flag", choices: [], keys: [], whole: false, doc: "" }, true);
    setTyped("");
  }}>
    <input type="text" maxlength="200" list="tag-labels" placeholder=${hasTags ? "Other tag" : "New tag"}
      aria-label="Another tag" value=${typed} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} />
    <datalist id="tag-labels">${names.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>
    ${typed.trim() && html`<${Button} type="submit" size="small" icon="add" aria-label="Add this tag" />`}
  </form>`;
}

/** A field for a text or a number. @param {{layer: Layer, onValue: (value: any) => void, onClose: () => void}} props */
function Entry({ layer, onValue, onClose }) {
  const [text, setText] = useState("");
  const isNumber = layer.type === "number";
  const value = isNumber ? Number(text) : text.trim();
  const isRight = text.trim() !== "" && (!isNumber || Number.isFinite(value));
  return html`<form class="label-entry" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isRight) return;
    onValue(value);
    onClose();
  }}>
    <${TextField} label=${layer.title || layer.name} hint=${layer.doc} inputmode=${isNumber ? "decimal" : undefined}
      maxlength="20000" value=${text} onChange=${setText} autofocus=${true}
      error=${text.trim() && !isRight ? "Expected a number." : ""}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.code === "Escape" && onClose()} />
    <${Button} type="submit" size="small" disabled=${!isRight}>Add<//>
  </form>`;
}

/** Asks who labels. @param {{name: string, onName: (name: string) => void, onClose: () => void}} props */
export function NameDialog({ name, onName, onClose }) {
  const [text, setText] = useState(name);
  const save = () => {
    if (!text.trim()) return;
    onName(text.trim());
    onClose();
  };
  return html`<${Dialog} title="Who labels?" size="small" onClose=${onClose} onSubmit=${save}
    actions=${html`<${Button} type="submit" kind="primary" disabled=${!text.trim()}>Save<//>`}>
    <${TextField} label="Your name" hint="It stands beside what you say. This browser remembers it." maxlength="200"
      value=${text} onChange=${setText} autofocus=${true} />
  <//>`;
}

/** Makes a layer. @param {{taken: string[], onMade: (layer: Layer) => Promise<void>, onClose: () => void}} props */
function LayerDialog({ taken, onMade, onClose }) {
  const [layer, setLayer] = useState({ title: "", doc: "", keys: /** @type {string[]} */ ([]) });
  const [type, setType] = useState(/** @type {Type} */ ("choice"));
  const [of, setOf] = useState("episode");
  const [text, setText] = useState("good, bad");
  const [error, setError] = useState("");
  const choices =
    type === "choice"
      ? [
          ...new Set(
            text
              .split(",")
              .map((one) => one.trim())
              .filter(Boolean),
          ),
        ]
      : [];
  const set = (/** @type {string} */ name) => (/** @type {any} */ value) =>
    setLayer((old) => ({ ...old, [name]: value }));
  const setKey = (/** @type {number} */ place) => (/** @type {string} */ code) =>
    set("keys")(named.map((_, index) => (index === place ? code : (layer.keys[index] ?? ""))));
  const named = choices.length > 0 ? choices : [""];
  const title = layer.title.trim();
  const name = title && layerName(title);
  const isTaken = taken.includes(name);
  const save = async () => {
    try {
      await onMade({
        ...layer,
        name,
        title: title === name ? "" : title,
        type,
        whole: of === "episode",
        choices,
        keys: named.map((_, index) => layer.keys[index] ?? ""),
      });
      onClose();
    } catch (problem) {
      setError(/** @type {Error} */ (problem).message);
    }
  };
  return html`<${Dialog} title="New layer" onClose=${onClose} onSubmit=${() => void save()} class="layer-dialog"
    actions=${html`<${Button} type="submit" kind="primary"
      disabled=${!title || isTaken || (type === "choice" && choices.length === 0)}>Make layer<//>`}>
    <${TextField} label="Name" value=${layer.title} onChange=${set("title")}
      error=${isTaken ? `There is a layer “${name}”.` : error}
      hint=${name && name !== title ? `In files and conditions: ${name}` : ""} maxlength="200" placeholder="quality"
      autofocus=${true} />
    <${Segments} label="What is said" value=${type} onChange=${setType}
      choices=${["choice", "flag", "text", "number"].map((value) => ({ value, label: value }))} />
    <${Segments} label="Of what" value=${of} onChange=${setOf}
      choices=${[{ value: "episode", label: "The whole episode" }, { value: "steps", label: "Steps and ranges" }]} />
    ${type === "choice" &&
    html`<${TextField} label="Choices, with commas between them" value=${text} onChange=${setText} maxlength="2000" />`}
    <div class="layer-keys">
      ${named.map(
        (choice, place) => html`<${KeyField} key=${place} label=${choice ? `Key of “${choice}”` : "Key"}
          value=${layer.keys[place] ?? ""} onChange=${setKey(place)} />`,
      )}
    </div>
    <${TextField} label="When to use it" optional=${true} value=${layer.doc} onChange=${set("doc")} maxlength="20000" />
  <//>`;
}

/**
 * A range with another end; the end that is passed comes along.
 * @param {Range | null} range
 * @param {"first" | "last"} end
 * @param {number} step
 * @returns {Range}
 */
export function rangeWith(range, end, step) {
  const { first, last } = range ?? { first: step, last: step };
  return end === "first" ? { first: step, last: Math.max(last, step) } : { first: Math.min(first, step), last: step };
}
