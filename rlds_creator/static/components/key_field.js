/** A field for a key, by its physical code. */
import { Field } from "./fields.js";
import { keyName } from "../format.js";
import { html } from "../html.js";

/**
 * @param {{label: string, value: string, onChange: (code: string) => void}} props
 */
export function KeyField({ label, value, onChange }) {
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.code === "Tab" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.code === "Escape") return;
    event.preventDefault();
    if (event.code === "Backspace" || event.code === "Delete") onChange("");
    else if (!/^(Shift|Control|Alt|Meta)/.test(event.code)) onChange(event.code);
  };
  return html`<${Field} label=${label}>
    ${(/** @type {any} */ attributes) => html`<input class="key-field" ...${attributes} readonly
      placeholder="Press a key" value=${value ? keyName(value) : ""} onKeyDown=${press}
      title="Click here, then press a key. Backspace clears it." />`}
  <//>`;
}
