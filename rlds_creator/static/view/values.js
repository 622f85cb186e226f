/** The values of a step, field by field. */
import { Icon } from "../components.js";
import { formatNumber, keyName } from "../format.js";
import { Fragment, classes, html, useEffect, useMemo, useRef, useState } from "../html.js";

/** @import { Field } from "../answers.js" */
/** @typedef {import("./episode.js").EpisodeData} EpisodeData */

const MOST_SHOWN = 64;
const ORDER = ["action", "reward", "discount", "keys", "inputs", "observation"];
/** Whether the page shows them elsewhere, or nobody reads them. */
const FLAGS = ["is_first", "is_last", "is_terminal"];

/**
 * The values of a step; until they have come, those of the step that was shown last, `at`.
 * @param {EpisodeData} data
 * @param {number} step
 */
export function useValues(data, step) {
  const [shown, setShown] = useState(/** @type {{values: Record<string, any>, step: number} | null} */ (null));
  const [problem, setProblem] = useState("");
  const wanted = useRef({ data, step, isBusy: false });
  useEffect(() => {
    Object.assign(wanted.current, { data, step });
    const read = async () => {
      if (wanted.current.isBusy) return;
      wanted.current.isBusy = true;
      // While one plays, only as many steps are asked for as come.
      for (let at = -1, of = data; at !== wanted.current.step || of !== wanted.current.data; ) {
        ({ data: of, step: at } = wanted.current);
        try {
          const values = await of.values(at).done;
          if (!of.isClosed) {
            setShown({ values, step: at });
            setProblem("");
          }
        } catch (error) {
          setProblem(/** @type {Error} */ (error).message);
        }
      }
      wanted.current.isBusy = false;
    };
    void read();
  }, [data, step]);
  // What is there already is drawn together with the step.
  const values = data.steps.get(String(step))?.values;
  return values
    ? { values, at: step, problem: "" }
    : { values: shown?.values ?? null, at: shown?.step ?? step, problem };
}

/**
 * @param {{data: EpisodeData, fields: Field[], step: number, plotted: string[], onPlot: (path: string) => void}} props
 */
export function Values({ data, fields, step, plotted, onPlot }) {
  const { values, at, problem } = useValues(data, step);
  const [filter, setFilter] = useState("");
  const groups = useMemo(() => groupsOf(fields), [fields]);
  const wanted = filter.trim().toLowerCase();
  return html`<section class="panel values" aria-labelledby="values-title">
    <header>
      <h2 id="values-title">Values ${at !== step && html`<small class="quiet">of step ${String(at)}</small>`}</h2>
      ${fields.length > 8 &&
      html`<label class="values-filter"><span class="visually-hidden">Show fields named</span>
        <input type="search" placeholder="Filter" value=${filter}
          onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} />
      </label>`}
    </header>
    ${problem && html`<p class="hint" role="status">${problem}</p>`}
    ${values &&
    groups.map(({ name, members }) => {
      const shown = members.filter(({ path }) => path.toLowerCase().includes(wanted));
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
            name=${data.nameOf(field.path, values[field.path])} isPlotted=${plotted.includes(field.path)}
            onPlot=${onPlot} />`,
        )}
      </div>`;
    })}
  </section>`;
}

/** @param {Field[]} fields */
function groupsOf(fields) {
  /** @type {Map<string, Field[]>} */
  const groups = new Map();
  for (const field of fields) {
    const root = field.path.split("/")[0];
    const name = FLAGS.includes(root) ? "flags" : ORDER.includes(root) ? root : "others";
    groups.set(name, [...(groups.get(name) ?? []), field]);
  }
  return [...groups].map(([name, members]) => ({ name, members })).sort((a, b) => rank(a.name) - rank(b.name));
}

/** @param {string} name */
function rank(name) {
  const place = ORDER.indexOf(name);
  return place >= 0 ? place : name === "others" ? ORDER.length : ORDER.length + 1;
}

/** @param {{field: Field, value: any, name?: string, isPlotted: boolean, onPlot: (path: string) => void}} props */
function ValueRow({ field, value, name, isPlotted, onPlot }) {
  const canPlot =
    (field.kind === "number" || field.kind === "vector" || field.kind === "flag") && field.path !== "reward";
  const about = [
    field.dtype,
    field.shape.length > 0 && `[${field.shape.map((side) => side ?? "?").join(" × ")}]`,
    field.unit,
  ]
    .filter(Boolean)
    .join(" ");
  return html`<div class="value">
    <div class="value-head">
      <span class="value-name" title=${field.doc || field.path}>${field.path}</span>
      <span class="value-type">${about}</span>
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
  if (field?.path === "keys") return html`<${Held} held=${value} />`;
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
    value.every((one) => typeof one === "number" || typeof one === "string" || typeof one === "boolean")
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
 * JSON in lines: what is flat is in one.
 * @param {any} value
 * @param {string} [indent]
 * @returns {string}
 */
export function pretty(value, indent = "") {
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((one) => pretty(one, `${indent}  `))
    : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pretty(one, `${indent}  `)}`);
  const [open, close] = isList ? "[]" : "{}";
  const line = `${open}${parts.join(", ")}${close}`;
  if (line.length + indent.length <= 40 || (isList && !line.includes("{") && !line.includes("[", 1))) return line;
  return `${open}\n${parts.map((part) => `${indent}  ${part}`).join(",\n")}\n${indent}${close}`;
}

/** @param {{values: any[], names: string[], isCut?: boolean}} props */
function Vector({ values, names, isCut = false }) {
  const shown = values.slice(0, MOST_SHOWN);
  const size = Math.max(...shown.map((one) => (typeof one === "number" ? Math.abs(one) : 0)), 1e-9);
  return html`<ol class=${classes("vector", names.length > 0 && "is-named")} start="0">
    ${shown.map(
      (one, index) => html`<li key=${index} title=${names[index] ?? index}>
        <span class="vector-name">${names[index] ?? index}</span>
        <span class="vector-value">
          ${typeof one === "boolean" ? (one ? "yes" : "no") : typeof one === "number" ? formatNumber(one) : one}
        </span>
        ${typeof one === "number" &&
        html`<span class=${classes("spark", one < 0 && "negative")}
          style=${{ "--part": Math.abs(one) / size }}></span>`}
      </li>`,
    )}
    ${(isCut || values.length > shown.length) && html`<li class="vector-more">…</li>`}
  </ol>`;
}

/** Keys that made an action. @param {{held: any}} props */
function Held({ held }) {
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

/** Events between two steps, as the page of the player sent them. @param {{inputs: any}} props */
function Inputs({ inputs }) {
  if (!Array.isArray(inputs) || inputs.length === 0) return html`<div class="value-plain quiet">no events</div>`;
  const start = inputs[0][0];
  return html`<ol class="events">
    ${inputs.slice(0, MOST_SHOWN).map(
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
