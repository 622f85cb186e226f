/** Labelled controls of forms. */
import { classes, html, useEffect, useId, useLayoutEffect, useRef, useState } from "../html.js";
import { Icon } from "../icons.js";

/**
 * A labelled control. `children` renders the control with the attributes that link it to the label.
 * @param {{label: any, hint?: any, error?: string, optional?: boolean, class?: string,
 *   children: (attributes: any) => any}} props
 */
export function Field({ label, hint, error, optional = false, class: extra, children }) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  return html`<div class=${classes("field", error && "wrong", extra)}>
    <label for=${id}>${label}${optional && html`<span class="optional">optional</span>`}</label>
    ${children({ id, "aria-describedby": described || undefined, "aria-invalid": error ? "true" : undefined })}
    ${hint && html`<p class="hint" id="${id}-hint">${hint}</p>`}
    ${error && html`<p class="error" id="${id}-error"><${Icon} name="error" size=${14} /> ${error}</p>`}
  </div>`;
}

/**
 * Renders a control in a field.
 * @param {any} props The properties of `Field` and of the control.
 * @param {(attributes: any) => any} control
 */
function inField({ label, hint, error, optional, class: extra, ...rest }, control) {
  return html`<${Field} label=${label} hint=${hint} error=${error} optional=${optional} class=${extra}>
    ${(/** @type {any} */ attributes) => control({ ...attributes, ...rest })}
  <//>`;
}

/** Returns an event handler that passes on the text of a control. @param {(value: string) => void} onChange */
const valueHandler = (onChange) => (/** @type {any} */ event) => onChange(event.target.value);

/**
 * A field of one line.
 * @param {{value: string, onChange: (value: string) => void, autofocus?: boolean, [attribute: string]: any}} props
 */
export function TextField({ value, onChange, autofocus = false, ...rest }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useLayoutEffect(() => {
    // Browsers ignore the attribute if another element has the focus.
    if (autofocus) input.current?.focus();
  }, []);
  return inField(
    rest,
    (attributes) => html`<input type="text" ref=${input} autocomplete="off" ...${attributes}
      value=${value} onInput=${valueHandler(onChange)} />`,
  );
}

/**
 * A field for a number; empty is null.
 * @param {{value: number | null, onChange: (value: number | null) => void, [attribute: string]: any}} props
 */
export function NumberField({ value, onChange, unit, ...rest }) {
  const [text, setText] = useState(value === null || value === undefined ? "" : String(value));
  const parsed = text.trim() === "" ? null : Number(text);
  useEffect(() => {
    if ((value ?? null) !== parsed && !(Number.isNaN(parsed) && Number.isNaN(value)))
      setText(value === null || value === undefined ? "" : String(value));
  }, [value]);
  const change = (/** @type {any} */ event) => {
    setText(event.target.value);
    const next = event.target.value.trim();
    onChange(next === "" ? null : Number(next));
  };
  return inField(
    rest,
    (attributes) => html`<span class="with-unit">
      <input type="text" inputmode="decimal" autocomplete="off" class="number" ...${attributes} value=${text}
        onInput=${change} />
      ${unit && html`<span class="unit">${unit}</span>`}
    </span>`,
  );
}

/**
 * A field of several lines that grows with its text.
 * @param {{value: string, onChange: (value: string) => void, rows?: number, [attribute: string]: any}} props
 */
export function TextArea({ value, onChange, rows = 3, ...rest }) {
  return inField(
    rest,
    (attributes) => html`<textarea rows=${rows} ...${attributes} value=${value}
      onInput=${valueHandler(onChange)}></textarea>`,
  );
}

/**
 * A choice from a list.
 * @param {{value: string, onChange: (value: string) => void, choices: (string | [string, string])[],
 *   [attribute: string]: any}} props
 */
export function SelectField({ value, onChange, choices, ...rest }) {
  return inField(
    rest,
    (attributes) => html`<span class="select">
      <select ...${attributes} value=${value} onChange=${valueHandler(onChange)}>
        ${choices.map((choice) => {
          const [name, title] = Array.isArray(choice) ? choice : [choice, choice];
          return html`<option key=${name} value=${name} selected=${name === value}>${title}</option>`;
        })}
      </select>
      <${Icon} name="down" size=${16} />
    </span>`,
  );
}

/**
 * A checkbox.
 * @param {{label: any, hint?: any, checked: boolean, onChange: (checked: boolean) => void,
 *   [attribute: string]: any}} props
 */
export function CheckField({ label, hint, checked, onChange, ...rest }) {
  const id = useId();
  return html`<div class="check-field">
    <input type="checkbox" id=${id} aria-describedby=${hint ? `${id}-hint` : undefined} ...${rest} checked=${checked}
      onChange=${(/** @type {any} */ event) => onChange(event.target.checked)} />
    <div>
      <label for=${id}>${label}</label>
      ${hint && html`<p class="hint" id="${id}-hint">${hint}</p>`}
    </div>
  </div>`;
}

/**
 * Radio buttons side by side.
 * @param {{label: string, value: string, onChange: (value: string) => void,
 *   choices: {value: string, label?: any, icon?: string, title?: string}[], hideLabel?: boolean}} props
 */
export function Segments({ label, value, onChange, choices, hideLabel = false }) {
  const name = useId();
  return html`<fieldset class="segments">
    <legend class=${hideLabel ? "visually-hidden" : undefined}>${label}</legend>
    <div>
      ${choices.map(
        (choice) => html`<label key=${choice.value} title=${choice.title}>
          <input type="radio" name=${name} value=${choice.value} checked=${choice.value === value}
            aria-label=${choice.title}
            onChange=${() => onChange(choice.value)} />
          <span>${choice.icon && html`<${Icon} name=${choice.icon} size=${16} />`}${choice.label}</span>
        </label>`,
      )}
    </div>
  </fieldset>`;
}
