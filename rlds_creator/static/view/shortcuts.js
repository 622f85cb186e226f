/** The dialog of keyboard shortcuts. */
import { Dialog } from "../components.js";
import { keyName } from "../format.js";
import { html } from "../html.js";
import { textOf } from "./labels.js";

/** @import { useLabels } from "./labels.js" */

/** @param {{store: ReturnType<typeof useLabels>, onClose: () => void}} props */
export function Shortcuts({ store, onClose }) {
  const keys = [
    ["Space", "play, pause"],
    ["← →", "one step"],
    ["Shift ← →", "ten steps"],
    ["↑ ↓", "faster, slower"],
    ["Home End", "first, last step"],
    ["B N", "previous, next episode"],
    ["+ - 0", "zoom the curves, show all"],
    ["V", "save a video"],
    ...(store.may_label
      ? [
          ["I O", "begin, end a range"],
          ["Esc", "clear the range"],
          ["Ctrl Z", "undo"],
        ]
      : []),
  ];
  const labelKeys = store.keys
    .filter(({ code }) => code && store.may_label)
    .map(({ layer, value, code }) => {
      const text =
        value === undefined
          ? `${layer.title || layer.name}…`
          : textOf({ layer: layer.name, title: layer.title, type: layer.type, value, first: null, last: null });
      return [keyName(code), layer.doc ? `${text}: ${layer.doc}` : text];
    });
  if (store.adds === "layer" && store.keys.some(({ value }) => value === true))
    labelKeys.push(["Shift", "with the key of a flag: set it to no"]);
  const list = (/** @type {string[][]} */ all, /** @type {boolean} */ isWhole) => html`<dl>
    ${all.map(
      ([names, does]) => html`<div key=${`${names} ${does}`}>
        <dt>${(isWhole ? [names] : names.split(" ")).map((name) => html`<kbd key=${name}>${name}</kbd>`)}</dt>
        <dd>${does}</dd>
      </div>`,
    )}
  </dl>`;
  return html`<${Dialog} title="Keys" class="shortcuts" onClose=${onClose}>
    ${labelKeys.length > 0 && html`<h3>Labels</h3>${list(labelKeys, true)}`}
    <h3>The episode</h3>${list(keys, false)}
  <//>`;
}
