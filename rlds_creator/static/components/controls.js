/** Keys and other inputs, with their effects. */
import { splitInputs, keyName } from "../format.js";
import { html } from "../html.js";

/**
 * A key as a keycap.
 * @param {{code: string}} props Keys that are held together are joined by "+".
 */
export function KeyCap({ code }) {
  return html`<span class="keys">
    ${splitInputs(code).map(
      (input, index) => html`${index > 0 && html`<span class="plus">+</span>`}<kbd>${keyName(input)}</kbd>`,
    )}
  </span>`;
}

/**
 * A list of inputs and their effects.
 * @param {{controls: {inputs: string[], does: string}[]}} props
 */
export function Controls({ controls }) {
  return html`<dl class="controls">
    ${controls.map(
      (control, index) => html`<div key=${index}>
        <dt>
          ${control.inputs.map(
            (code, order) => html`${order > 0 && html`<span class="or"> or </span>`}<${KeyCap} code=${code} />`,
          )}
        </dt>
        <dd>${control.does}</dd>
      </div>`,
    )}
  </dl>`;
}
