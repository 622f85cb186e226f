/** Dialogs for the name of the annotator, and for a new layer. */
import { Button, Dialog, KeyField, Segments, TextField } from "../components.js";
import { layerName } from "../format.js";
import { html, useState } from "../html.js";

/** @import { Layer, Type } from "./labels.js" */

/** The dialog for the name. @param {{name: string, onName: (name: string) => void, onClose: () => void}} props */
export function NameDialog({ name, onName, onClose }) {
  const [text, setText] = useState(name);
  const save = () => {
    if (!text.trim()) return;
    onName(text.trim());
    onClose();
  };
  return html`<${Dialog} title="Your name" size="small" onClose=${onClose} onSubmit=${save}
    actions=${html`<${Button} type="submit" kind="primary" disabled=${!text.trim()}>Save<//>`}>
    <${TextField} label="Your name" hint="It is shown next to your labels. This browser remembers it." maxlength="200"
      value=${text} onChange=${setText} autofocus=${true} />
  <//>`;
}

/** Creates a layer. @param {{taken: string[], onCreate: (layer: Layer) => Promise<void>, onClose: () => void}} props */
export function LayerDialog({ taken, onCreate, onClose }) {
  const [layer, setLayer] = useState({ title: "", doc: "", keys: /** @type {string[]} */ ([]) });
  const [type, setType] = useState(/** @type {Type} */ ("choice"));
  const [target, setTarget] = useState("episode");
  const [text, setText] = useState("good, bad");
  const [error, setError] = useState("");
  const choices =
    type === "choice"
      ? [
          ...new Set(
            text
              .split(",")
              .map((choice) => choice.trim())
              .filter(Boolean),
          ),
        ]
      : [];
  const set = (/** @type {string} */ name) => (/** @type {any} */ value) =>
    setLayer((old) => ({ ...old, [name]: value }));
  const setKey = (/** @type {number} */ position) => (/** @type {string} */ code) =>
    set("keys")(keyLabels.map((_, index) => (index === position ? code : (layer.keys[index] ?? ""))));
  const keyLabels = choices.length > 0 ? choices : [""];
  const title = layer.title.trim();
  const name = title && layerName(title);
  const isTaken = taken.includes(name);
  const save = async () => {
    try {
      await onCreate({
        ...layer,
        name,
        title: title === name ? "" : title,
        type,
        whole: target === "episode",
        choices,
        keys: keyLabels.map((_, index) => layer.keys[index] ?? ""),
      });
      onClose();
    } catch (problem) {
      setError(/** @type {Error} */ (problem).message);
    }
  };
  return html`<${Dialog} title="New layer" onClose=${onClose} onSubmit=${() => void save()} class="layer-dialog"
    actions=${html`<${Button} type="submit" kind="primary"
      disabled=${!title || isTaken || (type === "choice" && choices.length === 0)}>Create layer<//>`}>
    <${TextField} label="Name" value=${layer.title} onChange=${set("title")}
      error=${isTaken ? `The layer “${name}” already exists.` : error}
      hint=${name && name !== title ? `In files and conditions: ${name}` : ""} maxlength="200" placeholder="quality"
      autofocus=${true} />
    <${Segments} label="Type" value=${type} onChange=${setType}
      choices=${["choice", "flag", "text", "number"].map((value) => ({ value, label: value }))} />
    <${Segments} label="Applies to" value=${target} onChange=${setTarget}
      choices=${[{ value: "episode", label: "Whole episode" }, { value: "steps", label: "Steps and ranges" }]} />
    ${type === "choice" &&
    html`<${TextField} label="Choices, separated by commas" value=${text} onChange=${setText} maxlength="2000" />`}
    <div class="layer-keys">
      ${keyLabels.map(
        (choice, index) => html`<${KeyField} key=${index} label=${choice ? `Key of “${choice}”` : "Key"}
          value=${layer.keys[index] ?? ""} onChange=${setKey(index)} />`,
      )}
    </div>
    <${TextField} label="When to use it" optional=${true} value=${layer.doc} onChange=${set("doc")} maxlength="20000" />
  <//>`;
}
