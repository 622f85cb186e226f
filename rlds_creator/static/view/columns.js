/** The columns of the table of episodes: what they are, and conditions of them. */
import { Button, Dialog } from "../components.js";
import { formatDuration, formatNumber } from "../format.js";
import { html, useState } from "../html.js";

/** @import { EpisodeColumn } from "../answers.js" */

const KINDS = { number: "number", flag: "yes or no", text: "text" };
const MOST_TASKS = 4;
const MOST_LETTERS = 32;

/** @param {EpisodeColumn} column */
const isSuccess = ({ kind, name }) => kind === "flag" && /success/i.test(name) && !/\.(min|n"?)$/.test(name);
/** Statistics of flags are numbers in conditions. @param {EpisodeColumn} column */
const isStatistic = ({ name }) => /\.(min|max)$/.test(name) && !name.startsWith("label.");
/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

/** What a column is called. @param {string} name @param {EpisodeColumn[]} columns */
export function titleOf(name, columns) {
  const title = columns.find((one) => one.name === name)?.title ?? name;
  if (title === "instruction") return "Task";
  return /^(steps|duration|return|success)$/.test(title) ? title[0].toUpperCase() + title.slice(1) : title;
}

/** A cell of a column, as text. @param {EpisodeColumn | undefined} column @param {any} value @returns {string} */
export function textOfCell(column, value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (column?.name === "duration" && typeof value === "number") return formatDuration(value);
  return typeof value === "number" ? formatNumber(value) : String(value);
}

/** @param {string} name */
export const meansSuccess = (name) => isSuccess({ name, kind: "flag", title: name, examples: [] });

/**
 * Conditions that people often want, of the columns that there are.
 * @param {EpisodeColumn[]} columns
 * @returns {[string, string][]} Titles and conditions.
 */
export function commonConditions(columns) {
  /** @type {[string, string][]} */
  const found = [];
  const success = columns.find(isSuccess);
  if (success) {
    const { name } = success;
    found.push(["Success", isStatistic(success) ? `${name} = 1` : name]);
    found.push(["Failure", isStatistic(success) ? `${name} = 0` : `not ${name}`]);
  }
  for (const { name, examples } of columns) {
    const [low, high] = examples;
    if (name === "truncated" && examples.includes(true)) found.push(["Truncated", name]);
    if (name === "steps" && high > low + 1) {
      const middle = Math.round((low + high) / 2);
      found.push([`More than ${middle} steps`, `steps > ${middle}`]);
    }
    if (name === "return" && high > low) {
      const middle = Number(((low + high) / 2).toPrecision(3));
      found.push([`Return above ${formatNumber(middle)}`, `"return" > ${middle}`]);
    }
    if (name === "instruction" && examples.length > 1 && examples.length <= MOST_TASKS)
      for (const task of examples)
        found.push([
          task.length > MOST_LETTERS ? `${task.slice(0, MOST_LETTERS)}…` : task,
          `instruction = ${quoted(task)}`,
        ]);
  }
  return found;
}

/** A condition with another one, or without it if it has it. @param {string} where @param {string} one */
export function toggled(where, one) {
  const parts = where.split(" and ").map((part) => part.trim());
  if (parts.includes(one)) return parts.filter((part) => part !== one).join(" and ");
  if (!where) return one;
  return `${/\bor\b/i.test(where) ? `(${where})` : where} and ${one}`;
}

/** What a condition of a column begins with. @param {EpisodeColumn} column */
function beginningOf({ kind, name, examples }) {
  if (kind === "flag") return isStatistic({ kind, name, title: "", examples }) ? `${name} = 1` : name;
  if (kind === "text") return `${name} = ${quoted(String(examples[0] ?? ""))}`;
  return `${name} > ${examples.length > 1 ? Number(((examples[0] + examples[1]) / 2).toPrecision(3)) : 0}`;
}

/**
 * All columns with their types and examples: which of them the table shows, and conditions of them.
 * @param {{columns: EpisodeColumn[], shown?: string[], onShown?: (names: string[]) => void,
 *   onCondition: (condition: string) => void, onClose: () => void}} props
 */
export function ColumnsDialog({ columns, shown = [], onShown, onCondition, onClose }) {
  const [ticked, setTicked] = useState(shown);
  const [wanted, setWanted] = useState("");
  const found = columns.filter(({ title }) => title.toLowerCase().includes(wanted.trim().toLowerCase()));
  const toggle = (/** @type {string} */ name) => {
    const next = ticked.includes(name) ? ticked.filter((one) => one !== name) : [...ticked, name];
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
      <input type="search" placeholder="Search columns" value=${wanted}
        onInput=${(/** @type {any} */ event) => setWanted(event.target.value)} />
    </label>
    <ul class="columns-list">
      ${found.map((column) => {
        const { name, kind, examples } = column;
        const words = examples.map((one) => textOfCell(column, one)).join(kind === "number" ? " to " : ", ");
        return html`<li key=${name}>
          <label>
            ${onShown &&
            html`<input type="checkbox" checked=${ticked.includes(name)} onChange=${() => toggle(name)} />`}
            <span>
              <strong>${titleOf(name, columns)}</strong> <code>${name}</code>
              <small class="quiet">${KINDS[kind]}${words && `: ${words}`}</small>
            </span>
          </label>
          <${Button} size="small" icon="filter" aria-label=${`Filter by ${name}`}
            onClick=${() => onCondition(beginningOf(column))}>Filter<//>
        </li>`;
      })}
    </ul>
    ${found.length === 0 && html`<p class="hint">No column has this name.</p>`}
  <//>`;
}
