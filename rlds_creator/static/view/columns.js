/** The columns of the table of episodes, and conditions on them. */
import { Button, Dialog } from "../components.js";
import { formatDuration, formatNumber } from "../format.js";
import { html, useState } from "../html.js";

/** @import { EpisodeColumn } from "../answers.js" */

const KIND_NAMES = { number: "number", flag: "yes or no", text: "text" };
const MAX_TASKS = 4;
const MAX_LETTERS = 32;

/** @param {EpisodeColumn} column */
const isSuccess = ({ kind, name }) => kind === "flag" && /success/i.test(name) && !/\.(min|n"?)$/.test(name);
/** Returns whether a column is a statistic: statistics of flags are numbers. @param {EpisodeColumn} column */
const isStatistic = ({ name }) => /\.(min|max)$/.test(name) && !name.startsWith("label.");
/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

/** The title of a column. @param {string} name @param {EpisodeColumn[]} columns */
export function columnTitle(name, columns) {
  const title = columns.find((column) => column.name === name)?.title ?? name;
  if (title === "instruction") return "Task";
  return /^(steps|duration|return|success)$/.test(title) ? title[0].toUpperCase() + title.slice(1) : title;
}

/** The text of a cell. @param {EpisodeColumn | undefined} column @param {any} value @returns {string} */
export function formatCell(column, value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (column?.name === "duration" && typeof value === "number") return formatDuration(value);
  return typeof value === "number" ? formatNumber(value) : String(value);
}

/** @param {string} name */
export const meansSuccess = (name) => isSuccess({ name, kind: "flag", title: name, examples: [] });

/**
 * Common conditions on the available columns.
 * @param {EpisodeColumn[]} columns
 * @returns {[string, string][]} Titles and conditions.
 */
export function commonConditions(columns) {
  /** @type {[string, string][]} */
  const conditions = [];
  const success = columns.find(isSuccess);
  if (success) {
    const { name } = success;
    conditions.push(["Success", isStatistic(success) ? `${name} = 1` : name]);
    conditions.push(["Failure", isStatistic(success) ? `${name} = 0` : `not ${name}`]);
  }
  for (const { name, examples } of columns) {
    const [low, high] = examples;
    if (name === "truncated" && examples.includes(true)) conditions.push(["Truncated", name]);
    if (name === "steps" && high > low + 1) {
      const middle = Math.round((low + high) / 2);
      conditions.push([`More than ${middle} steps`, `steps > ${middle}`]);
    }
    if (name === "return" && high > low) {
      const middle = Number(((low + high) / 2).toPrecision(3));
      conditions.push([`Return above ${formatNumber(middle)}`, `"return" > ${middle}`]);
    }
    if (name === "instruction" && examples.length > 1 && examples.length <= MAX_TASKS)
      for (const task of examples)
        conditions.push([
          task.length > MAX_LETTERS ? `${task.slice(0, MAX_LETTERS)}…` : task,
          `instruction = ${quoted(task)}`,
        ]);
  }
  return conditions;
}

/** Adds a clause to a condition, or removes it. @param {string} where @param {string} clause */
export function toggleCondition(where, clause) {
  const clauses = where.split(" and ").map((it) => it.trim());
  if (clauses.includes(clause)) return clauses.filter((it) => it !== clause).join(" and ");
  if (!where) return clause;
  return `${/\bor\b/i.test(where) ? `(${where})` : where} and ${clause}`;
}

/** An example of a condition on a column. @param {EpisodeColumn} column */
function exampleCondition({ kind, name, examples }) {
  if (kind === "flag") return isStatistic({ kind, name, title: "", examples }) ? `${name} = 1` : name;
  if (kind === "text") return `${name} = ${quoted(String(examples[0] ?? ""))}`;
  return `${name} > ${examples.length > 1 ? Number(((examples[0] + examples[1]) / 2).toPrecision(3)) : 0}`;
}

/**
 * The dialog of columns, with their types and examples: the visible columns, and conditions on them.
 * @param {{columns: EpisodeColumn[], shown?: string[], onShown?: (names: string[]) => void,
 *   onCondition: (condition: string) => void, onClose: () => void}} props
 */
export function ColumnsDialog({ columns, shown = [], onShown, onCondition, onClose }) {
  const [ticked, setTicked] = useState(shown);
  const [search, setSearch] = useState("");
  const matching = columns.filter(({ title }) => title.toLowerCase().includes(search.trim().toLowerCase()));
  const toggle = (/** @type {string} */ name) => {
    const next = ticked.includes(name) ? ticked.filter((other) => other !== name) : [...ticked, name];
    setTicked(next);
    onShown?.(next);
  };
  return html`<${Dialog} title="Columns" size="wide" onClose=${onClose}
    actions=${html`<${Button} kind="primary" onClick=${onClose}>Done<//>`}>
    <p class="hint">
      ${onShown && "Tick a column to see it in the table. "}“Filter” adds a condition of the column.
      Ranges and examples are of the episodes that were read.
    </p>
    <label class="columns-search"><span class="visually-hidden">Search columns</span>
      <input type="search" placeholder="Search columns" value=${search}
        onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} />
    </label>
    <ul class="columns-list">
      ${matching.map((column) => {
        const { name, kind, examples } = column;
        const words = examples.map((example) => formatCell(column, example)).join(kind === "number" ? " to " : ", ");
        return html`<li key=${name}>
          <label>
            ${onShown &&
            html`<input type="checkbox" checked=${ticked.includes(name)} onChange=${() => toggle(name)} />`}
            <span>
              <strong>${columnTitle(name, columns)}</strong> <code>${name}</code>
              <small class="quiet">${KIND_NAMES[kind]}${words && `: ${words}`}</small>
            </span>
          </label>
          <${Button} size="small" icon="filter" aria-label=${`Filter by ${name}`}
            onClick=${() => onCondition(exampleCondition(column))}>Filter<//>
        </li>`;
      })}
    </ul>
    ${matching.length === 0 && html`<p class="hint">No column has this name.</p>`}
  <//>`;
}
