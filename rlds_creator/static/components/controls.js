/** Keys and other inputs, with what they do. */
import { inputsOf, keyName } from "../format.js";
import { html } from "../html.js";

/**
 * A key, as it looks on the keyboard.
 * @param {{code: string}} props Several that are held together are joined by "+".
 */
export function KeyCap({ code }) {
  return html`<span class="keys">
    ${inputsOf(code).map(
      (one, index) => html`${index > 0 && html`<span class="plus">+</span>`}<kbd>${keyName(one)}</kbd>`,
    )}
  </span>`;
}

/**
 * What keys and other inputs do.
 * @param {{controls: {inputs: string[], does: string}[]}} props
 */
export function Controls({ controls }) {
  return html`<dl class="controls">
    ${controls.map(
      (control, index) => html`<div key=${index}>
        <dt>
          ${control.inputs.map(
            (one, place) => html`${place > 0 && html`<span class="or"> or </span>`}<${KeyCap} code=${one} />`,
          )}
        </dt>
        <dd>${control.does}</dd>
      </div>`,
    )}
  </dl>`;
}
