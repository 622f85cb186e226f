/** The values of a step, field by field. */
import { Icon } from "../components.js";
import { formatNumber, keyName } from "../format.js";
import { Fragment, classes, html, useEffect, useMemo, useRef, useState } from "../html.js";

/** @import { Field } from "../answers.js" */
/** @typedef {import("./episode.js").EpisodeData} EpisodeData */

const MAX_SHOWN_VALUES = 64;
const GROUP_ORDER = ["action", "reward", "discount", "keys", "inputs", "observation"];
/** Flags, which are shown in one row. */
const FLAGS = ["is_first", "is_last", "is_terminal"];

/**
 * The values of a step. During a request, the values of the last shown step, which is `shownStep`.
 * @param {EpisodeData} data
 * @param {number} step
 */
export function useValues(data, step) {
  const [shown, setShown] = useState(/** @type {{values: Record<string, any>, step: number} | null} */ (null));
  const [problem, setProblem] = useState("");
  const request = useRef({ data, step, isBusy: false });
  useEffect(() => {
    Object.assign(request.current, { data, step });
    const read = async () => {
      if (request.current.isBusy) return;
      request.current.isBusy = true;
      // During playback, one request runs at a time; steps in between are skipped.
      for (let readStep = -1, source = data; readStep !== request.current.step || source !== request.current.data; ) {
        ({ data: source, step: readStep } = request.current);
        try {
          const values = await source.values(readStep).done;
          if (!source.isClosed) {
            setShown({ values, step: readStep });
            setProblem("");
          }
        } catch (error) {
          setProblem(/** @type {Error} */ (error).message);
        }
      }
      request.current.isBusy = false;
    };
    void read();
  }, [data, step]);
  // Cached values appear together with the step.
  const values = data.steps.get(String(step))?.values;
  return values
    ? { values, shownStep: step, problem: "" }
    : { values: shown?.values ?? null, shownStep: shown?.step ?? step, problem };
}

/**
 * @param {{data: EpisodeData, fields: Field[], step: number, plotted: string[], onPlot: (path: string) => void}} props
 */
export function Values({ data, fields, step, plotted, onPlot }) {
  const { values, shownStep, problem } = useValues(data, step);
  const [filter, setFilter] = useState("");
  const groups = useMemo(() => groupFields(fields), [fields]);
  const search = filter.trim().toLowerCase();
  return html`<section class="panel values" aria-labelledby="values-title">
    <header>
      <h2 id="values-title">
        Values ${shownStep !== step && html`<small class="quiet">of step ${String(shownStep)}</small>`}
      </h2>
      ${fields.length > 8 &&
      html`<label class="values-filter"><span class="visually-hidden">Show fields named</span>
        <input type="search" placeholder="Filter" value=${filter}
          onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} />
      </label>`}
    </header>
    ${problem && html`<p class="hint" role="status">${problem}</p>`}
    ${values &&
    groups.map(({ name, members }) => {
      const shown = members.filter(({ path }) => path.toLowerCase().includes(search));
      if (shown.length === 0) return null;
      if (name === "flags")
        return html`<div class="value-group flags" key=${name}>
          ${shown.map(
            ({ path }) => html`<span key=${path} class=${values[path] ? "is-on" : ""}>
              ${path}: ${values[path] ? "yes" : "no"}
            </span>`,
          )}
        </div>`;
      return html`<div class="value-group" key=${name}>
        ${shown.map(
          (field) => html`<${ValueRow} key=${field.path} field=${field} value=${values[field.path]}
            name=${data.actionName(field.path, values[field.path])} isPlotted=${plotted.includes(field.path)}
            onPlot=${onPlot} />`,
        )}
      </div>`;
    })}
  </section>`;
}

/** @param {Field[]} fields */
function groupFields(fields) {
  /** @type {Map<string, Field[]>} */
  const groups = new Map();
  for (const field of fields) {
    const root = field.path.split("/")[0];
    const name = FLAGS.includes(root) ? "flags" : GROUP_ORDER.includes(root) ? root : "others";
    groups.set(name, [...(groups.get(name) ?? []), field]);
  }
  return [...groups].map(([name, members]) => ({ name, members })).sort((a, b) => rank(a.name) - rank(b.name));
}

/** @param {string} name */
function rank(name) {
  const index = GROUP_ORDER.indexOf(name);
  return index >= 0 ? index : name === "others" ? GROUP_ORDER.length : GROUP_ORDER.length + 1;
}

/** @param {{field: Field, value: any, name?: string, isPlotted: boolean, onPlot: (path: string) => void}} props */
function ValueRow({ field, value, name, isPlotted, onPlot }) {
  const canPlot =
    (field.kind === "number" || field.kind === "vector" || field.kind === "flag") && field.path !== "reward";
  const typeText = [
    field.dtype,
    field.shape.length > 0 && `[${field.shape.map((side) => side ?? "?").join(" × ")}]`,
    field.unit,
  ]
    .filter(Boolean)
    .join(" ");
  return html`<div class="value">
    <div class="value-head">
      <span class="value-name" title=${field.doc || field.path}>${field.path}</span>
      <span class="value-type">${typeText}</span>
      ${canPlot &&
      html`<button type="button" class="plot-button" aria-pressed=${String(isPlotted)}
        title=${isPlotted ? "Hide the curve" : "Show the curve"}
        aria-label=${`Curve of ${field.path}`} onClick=${() => onPlot(field.path)}>
        <${Icon} name="chart" size=${15} />
      </button>`}
    </div>
    ${name !== undefined
      ? html`<div class="value-plain">${formatNumber(value)} <span class="quiet">${name}</span></div>`
      : html`<${Value} value=${value} field=${field} />`}
  </div>`;
}

/** @param {{value: any, field?: Field}} props */
function Value({ value, field }) {
  if (field?.path === "keys") return html`<${HeldKeys} held=${value} />`;
  if (field?.path === "inputs") return html`<${Inputs} inputs=${value} />`;
  if (value === null || value === undefined) return html`<div class="value-plain quiet">–</div>`;
  if (field?.kind === "picture") {
    const { bytes, shape, dtype, type } = value;
    return html`<div class="value-plain quiet">
      ${bytes !== undefined
        ? `${type || "file"}, ${bytes.toLocaleString("en")} bytes`
        : `${shape?.join(" × ")} ${dtype}`}
      ${field.scaled && `, shown from ${formatNumber(field.scaled[0])} to ${formatNumber(field.scaled[1])}`}
    </div>`;
  }
  if (field?.path === "time" && value > 1e9)
    return html`<div class="value-plain">
      ${new Date(value * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" })}
    </div>`;
  if (typeof value === "number") return html`<div class="value-plain">${formatNumber(value)}</div>`;
  if (typeof value === "boolean") return html`<div class="value-plain">${value ? "yes" : "no"}</div>`;
  if (typeof value === "string")
    return html`<div class="value-plain pre">${field?.kind === "number" ? formatNumber(value) : value || "“”"}</div>`;
  if (
    Array.isArray(value) &&
    value.every((element) => ["number", "string", "boolean"].includes(typeof element))
  )
    return html`<${Vector} values=${value} names=${field?.names ?? []} />`;
  if (value.shape && Array.isArray(value.first))
    return html`<${Fragment}>
      <div class="value-plain quiet">from ${formatNumber(value.minimum)} to ${formatNumber(value.maximum)}</div>
      <${Vector} values=${value.first} names=${field?.names ?? []} isCut=${true} />
    <//>`;
  return html`<pre class="json">${pretty(value)}</pre>`;
}

/**
 * Formats a value as JSON, with short and flat values on one line.
 * @param {any} value
 * @param {string} [indent]
 * @returns {string}
 */
export function pretty(value, indent = "") {
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const isList = Array.isArray(value);
  const items = isList
    ? value.map((item) => pretty(item, `${indent}  `))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${pretty(item, `${indent}  `)}`);
  const [open, close] = isList ? "[]" : "{}";
  const line = `${open}${items.join(", ")}${close}`;
  if (line.length + indent.length <= 40 || (isList && !line.includes("{") && !line.includes("[", 1))) return line;
  return `${open}\n${items.map((item) => `${indent}  ${item}`).join(",\n")}\n${indent}${close}`;
}

/** @param {{values: any[], names: string[], isCut?: boolean}} props */
function Vector({ values, names, isCut = false }) {
  const shown = values.slice(0, MAX_SHOWN_VALUES);
  const size = Math.max(...shown.map((item) => (typeof item === "number" ? Math.abs(item) : 0)), 1e-9);
  return html`<ol class=${classes("vector", names.length > 0 && "is-named")} start="0">
    ${shown.map(
      (item, index) => html`<li key=${index} title=${names[index] ?? index}>
        <span class="vector-name">${names[index] ?? index}</span>
        <span class="vector-value">
          ${typeof item === "boolean" ? (item ? "yes" : "no") : typeof item === "number" ? formatNumber(item) : item}
        </span>
        ${typeof item === "number" &&
        html`<span class=${classes("spark", item < 0 && "negative")}
          style=${{ "--part": Math.abs(item) / size }}></span>`}
      </li>`,
    )}
    ${(isCut || values.length > shown.length) && html`<li class="vector-more">…</li>`}
  </ol>`;
}

/** The held keys of an action. @param {{held: any}} props */
function HeldKeys({ held }) {
  const entries = held && typeof held === "object" ? Object.entries(held) : [];
  if (entries.length === 0) return html`<div class="value-plain quiet">no keys held</div>`;
  return html`<div class="value-plain held">
    ${entries.map(
      ([name, value]) => html`<span key=${name}>
        <kbd>${keyName(name)}</kbd>
        ${value !== 1 && html` <span class="quiet">${formatNumber(/** @type {number} */ (value))}</span>`}
      </span>`,
    )}
  </div>`;
}

/** The input events between two steps. @param {{inputs: any}} props */
function Inputs({ inputs }) {
  if (!Array.isArray(inputs) || inputs.length === 0) return html`<div class="value-plain quiet">no events</div>`;
  const start = inputs[0][0];
  return html`<ol class="events">
    ${inputs.slice(0, MAX_SHOWN_VALUES).map(
      ([time, name, value], index) => html`<li key=${index}>
        <span class="quiet">+${(time - start).toFixed(0)} ms</span>
        ${name === "*"
          ? html`<span>all released</span>`
          : html`<span>
            <kbd>${keyName(name)}</kbd> ${value === 1 ? "down" : value === 0 ? "up" : formatNumber(value)}
          </span>`}
      </li>`,
    )}
  </ol>`;
}
