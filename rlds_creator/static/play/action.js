/** The last action, as text or as bars. */
import { formatNumber } from "../format.js";
import { html } from "../html.js";

const MAX_BARS = 24;

/** @param {{action: any}} props */
export function Action({ action }) {
  const rows = flatten(action).slice(0, MAX_BARS);
  const size = Math.max(1, ...rows.map(({ value }) => (typeof value === "number" ? Math.abs(value) : 0)));
  const isVector = rows.length > 1;
  return html`<div class="action">
    <p class="action-title">Action</p>
    ${!isVector &&
    html`<p class="action-value">${action === null ? "–" : rows[0] ? formatValue(rows[0].value) : "–"}</p>`}
    ${isVector &&
    html`<ol class="bars">
      ${rows.map(
        ({ name, value }) => html`<li key=${name}>
          <span class="bar-name">${name}</span>
          ${typeof value === "number" &&
          html`<span class="track">
            <span class=${value < 0 ? "negative" : ""} style=${{ "--part": Math.abs(value) / size }}></span>
          </span>`}
          <span class="bar-value">${formatValue(value)}</span>
        </li>`,
      )}
    </ol>`}
  </div>`;
}

/** @param {any} value */
const formatValue = (value) => (typeof value === "number" ? formatNumber(value) : String(value));

/**
 * Flattens a nested action to named values.
 * @param {any} action
 * @param {string} [name]
 * @returns {{name: string, value: any}[]}
 */
function flatten(action, name = "") {
  if (action === null || action === undefined) return [];
  // A vector as NumPy formats it.
  if (typeof action === "string" && /^\[[-+.\de\s]+\]$/.test(action))
    return flatten(action.slice(1, -1).trim().split(/\s+/).map(Number), name);
  if (typeof action !== "object") return [{ name, value: action }];
  return Object.entries(action).flatMap(([key, value]) => flatten(value, name ? `${name}/${key}` : key));
}
