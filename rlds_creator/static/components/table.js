/** Tables and their pagination. */
import { formatCount } from "../format.js";
import { classes, html, useRef } from "../html.js";
import { Icon } from "../icons.js";
import { IconButton } from "./button.js";

/**
 * @template [T=any]
 * @typedef {object} Column
 * @property {string} name The name, by which the server sorts if `sortable`.
 * @property {string} title
 * @property {(row: T) => any} cell
 * @property {boolean} [sortable]
 * @property {boolean} [isNumber]
 * @property {"title" | "hidden"} [narrow] On a phone: above the other columns without its name, or hidden.
 */

/**
 * A table; on a phone, each row is a card.
 * @param {{caption: string, columns: Column[], rows: any[], rowKey?: (row: any) => string, sort?: string,
 *   onSort?: (sort: string) => void, isBusy?: boolean, rowName?: (row: any) => string,
 *   selection?: {has: (key: string) => boolean, size?: number},
 *   onSelect?: (keys: string[], isSelected: boolean) => void,
 *   rowClass?: (row: any) => string | undefined}} props
 *   `sort` is the name of a column, with "-" in front for the largest first.
 */
export function Table({
  caption,
  columns,
  rows,
  rowKey = (row) => row.id,
  sort,
  onSort,
  isBusy,
  rowName,
  selection,
  onSelect,
  rowClass,
}) {
  const last = useRef(/** @type {number | null} */ (null));
  const keys = rows.map(rowKey);
  const numSelected = selection ? keys.filter((key) => selection.has(key)).length : 0;
  const select = (/** @type {number} */ index, /** @type {MouseEvent} */ event) => {
    const isSelected = /** @type {HTMLInputElement} */ (event.target).checked;
    const from = event.shiftKey && last.current !== null && last.current < keys.length ? last.current : index;
    last.current = index;
    onSelect?.(keys.slice(Math.min(from, index), Math.max(from, index) + 1), isSelected);
  };
  const mark = (/** @type {HTMLInputElement | null} */ box) => {
    if (box) box.indeterminate = numSelected > 0 && numSelected < keys.length;
  };
  return html`<div class=${classes("table-frame", isBusy && "busy")} role="group" aria-label=${caption} tabindex="0">
    <table role="table" aria-busy=${isBusy ? "true" : undefined}>
      <caption class="visually-hidden">${caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          ${selection &&
          html`<th role="columnheader" scope="col" class="tick">
            <input type="checkbox" aria-label="Select all rows of this page" ref=${mark}
              checked=${numSelected > 0 && numSelected === keys.length}
              onChange=${(/** @type {any} */ event) => onSelect?.(keys, event.target.checked)} />
          </th>`}
          ${columns.map((column) => {
            const order = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : undefined;
            const next =
              order === "descending"
                ? column.name
                : order === "ascending"
                  ? `-${column.name}`
                  : column.isNumber
                    ? `-${column.name}`
                    : column.name;
            return html`<th key=${column.name} role="columnheader" scope="col"
              class=${classes(column.isNumber && "number", column.narrow && `narrow-${column.narrow}`)}
              aria-sort=${order}>
              ${column.sortable && onSort
                ? html`<button type="button" class="sort" onClick=${() => onSort(next)}>
                  ${column.title}<${Icon} name=${order === "ascending" ? "up" : "down"} size=${14} />
                </button>`
                : column.title || html`<span class="visually-hidden">Actions</span>`}
            </th>`;
          })}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(
          (row, index) => html`<tr key=${keys[index]} role="row"
            class=${classes(selection?.has(keys[index]) && "selected", rowClass?.(row))}>
            ${selection &&
            html`<td role="cell" class="tick">
              <input type="checkbox" aria-label="Select ${rowName?.(row) ?? "this row"}"
                checked=${selection.has(keys[index])}
                onClick=${(/** @type {MouseEvent} */ event) => select(index, event)} />
            </td>`}
            ${columns.map(
              (column) => html`<td key=${column.name} role="cell" data-label=${column.title || undefined}
                class=${classes(
                  column.isNumber && "number",
                  !column.title && "row-actions",
                  column.narrow && `narrow-${column.narrow}`,
                )}>
                ${column.cell(row)}
              </td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * The pagination of a table.
 * @param {{offset: number, limit: number, total: number, onChange: (offset: number) => void, noun?: string}} props
 */
export function Pager({ offset, limit, total, onChange, noun = "rows" }) {
  if (total <= limit && offset === 0) return null;
  const last = Math.max(0, Math.floor((total - 1) / limit) * limit);
  return html`<nav class="pager" aria-label="Pages">
    <span>
      ${formatCount(total ? offset + 1 : 0)}–
      ${formatCount(Math.min(offset + limit, total))} of ${formatCount(total)} ${noun}
    </span>
    <${IconButton} icon="left" label="Previous page" kind="plain" disabled=${offset <= 0}
      onClick=${() => onChange(Math.max(0, offset - limit))} />
    <${IconButton} icon="right" label="Next page" kind="plain" disabled=${offset >= last}
      onClick=${() => onChange(Math.min(last, offset + limit))} />
  </nav>`;
}
