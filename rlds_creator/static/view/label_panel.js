/** The panel of labels of an episode, with buttons to add labels. */
import { Button, Icon, Panel, Segments, TextField } from "../components.js";
import { formatTime, keyName } from "../format.js";
import { Fragment, classes, html, useState } from "../html.js";
import { LayerDialog } from "./label_dialogs.js";
import { isSame, formatPlace, moveRangeEnd, textOf, titleOf } from "./labels.js";

/** @import { Key, Label, Layer, Range, Scope, useLabels } from "./labels.js" */

/**
 * @param {{store: ReturnType<typeof useLabels>, step: number, numSteps: number, scope: Scope,
 *   setScope: (scope: Scope) => void, range: Range | null, setRange: (range: Range | null) => void,
 *   apply: (layer: Layer, value: any) => void, entry: Layer | null, setEntry: (layer: Layer | null) => void,
 *   onEntry: (value: any) => void, by?: string, onName: () => void, onSeek: (step: number) => void}} props
 */
export function Labels({
  store,
  step,
  numSteps,
  scope,
  setScope,
  range,
  setRange,
  apply,
  entry,
  setEntry,
  onEntry,
  by,
  onName,
  onSeek,
}) {
  const { labels, layers, keys, colorOf, error, may_label: canLabel, adds: addedKind } = store;
  const [isCreating, setIsCreating] = useState(false);
  const name = addedKind === "layer" ? "label" : "tag";
  const sorted = [...labels].sort(
    (a, b) => (a.first ?? -1) - (b.first ?? -1) || (a.last ?? 0) - (b.last ?? 0) || a.layer.localeCompare(b.layer),
  );
  const target =
    scope === "episode" ? "the whole episode" : scope === "range" && range ? formatPlace(range) : `step ${step}`;
  const setEnd = (/** @type {"first" | "last"} */ end) => setRange(moveRangeEnd(range, end, step));
  const people = new Set(labels.map(({ author }) => author));
  const isOverruled = (/** @type {Label} */ label) =>
    label.decides === false &&
    !labels.some((other) => other.layer === label.layer && other.decides && other.value === label.value);
  const button = (/** @type {Key} */ { layer, value, code }, /** @type {string} */ title) => {
    const label = { layer: layer.name, type: layer.type, value };
    const isSet =
      layer.whole &&
      labels.some(
        (other) =>
          isSame(other, { ...label, first: null, last: null }) &&
          other.value === value &&
          other.decides !== false &&
          (other.is_mine || addedKind === "tag"),
      );
    return html`<button key=${`${layer.name} ${value}`} type="button" class="label-button"
      aria-pressed=${layer.whole && value !== undefined ? String(isSet) : undefined}
      title=${[layer.doc, code && `Key: ${keyName(code)}`].filter(Boolean).join(" · ") || undefined}
      onClick=${(/** @type {MouseEvent} */ event) => {
        if (value === undefined) setEntry(layer);
        else apply(layer, value === true ? !(event.shiftKey && addedKind === "layer") : value);
      }}>
      <span class="dot" style=${{ "--color": `var(${colorOf({ ...label, first: null, last: null })})` }}></span>${title}
      ${code && html`<kbd>${keyName(code)}</kbd>`}
    </button>`;
  };
  const keysOf = (/** @type {Layer} */ layer) => keys.filter((key) => key.layer === layer);
  const plainLayers = layers.filter(({ choices }) => choices.length === 0);
  return html`<${Panel} title=${addedKind === "tag" ? "Verdict and tags" : "Labels"} class="tags"
    actions=${canLabel &&
    addedKind === "layer" &&
    html`<${Fragment}>
      <${Button} kind="quiet" size="small" onClick=${onName} title="Change the annotator">
        ${by ? `Annotator: ${by}` : "Enter your name"}
      <//>
      <${Button} kind="quiet" size="small" icon="add" onClick=${() => setIsCreating(true)}>Layer<//>
    <//>`}>
    ${(error || store.why_not) && html`<p class="hint">${error?.message ?? store.why_not}</p>`}
    ${canLabel &&
    html`<${Fragment}>
      ${layers
      .filter(({ choices, whole: isEpisodeWide }) => choices.length > 0 && isEpisodeWide)
      .map((layer) => html`<${ChoiceRow} key=${layer.name} layer=${layer} keys=${keysOf(layer)} button=${button} />`)}
      ${(addedKind === "tag" || layers.some((layer) => !layer.whole)) &&
      html`<div class="tag-target">
        <${Segments} label=${name} hideLabel=${true} value=${scope} onChange=${setScope}
          choices=${[
            { value: "step", label: "This step" },
            { value: "range", label: "Range" },
            { value: "episode", label: "Episode" },
          ]} />
        ${scope === "range" &&
        html`<div class="tag-range">
          <${Button} size="small" onClick=${() => setEnd("first")} title="Begin the range at this step: I">
            ${range ? `From ${range.first}` : "Begin here"} <kbd>I</kbd>
          <//>
          <${Button} size="small" onClick=${() => setEnd("last")} title="End the range at this step: O">
            ${range ? `To ${range.last}` : "End here"} <kbd>O</kbd>
          <//>
        </div>`}
      </div>`}
      ${layers
      .filter(({ choices, whole: isEpisodeWide }) => choices.length > 0 && !isEpisodeWide)
      .map((layer) => html`<${ChoiceRow} key=${layer.name} layer=${layer} keys=${keysOf(layer)} button=${button} />`)}
      <div class="labels" role="group" aria-label=${`Mark ${target}`}>
        ${plainLayers.map((layer) => button(keysOf(layer)[0], layer.title || layer.name))}
        ${addedKind === "tag" &&
        html`<${OtherTag}
          names=${[...new Set(labels.filter(({ type }) => type === "flag").map(({ layer }) => layer))].filter(
            (tag) => !layers.some((layer) => layer.name === tag),
          )}
          hasTags=${plainLayers.length > 0} apply=${apply} />`}
      </div>
      ${entry && html`<${Entry} key=${entry.name} layer=${entry} onValue=${onEntry} onClose=${() => setEntry(null)} />`}
      ${layers.length === 0 &&
      html`<p class="hint">
        ${addedKind &&
        "A layer is a kind of label for episodes or steps, such as quality, phase or failure."}
      </p>`}
    <//>`}
    ${labels.some(isOverruled) && html`<p class="hint" role="status">Annotators disagree. The last label counts.</p>`}
    ${sorted.length === 0
      ? layers.length > 0 &&
        html`<p class="hint">${canLabel ? `No ${name}s yet. A new one marks ${target}.` : `No ${name}s.`}</p>`
      : html`<ul class="tag-list">
        ${sorted.map((label) => {
          const { id, first, author, created } = label;
          const isHere = first === null || (step >= first && step <= (label.last ?? first));
          return html`<li key=${id} class=${classes(isHere && "is-here")}
            title=${[author, created > 0 && formatTime(created)].filter(Boolean).join(", ")}>
            <span class="dot" style=${{ "--color": `var(${colorOf(label)})` }}></span>
            <span class="tag-name">
              ${textOf(label)}
              ${(first === null || people.size > 1) &&
              html`<small class="quiet">
                ${[author, first === null && created > 0 && formatTime(created), isOverruled(label) && "overruled"]
                .filter(Boolean)
                .join(", ")}
              </small>`}
            </span>
            ${first === null
              ? html`<span class="tag-place quiet">whole episode</span>`
              : html`<button type="button" class="tag-place" title="Go to this step"
                onClick=${() => onSeek(Math.min(first, numSteps - 1))}>${formatPlace(label)}</button>`}
            ${label.may_remove &&
            html`<button type="button" class="tag-remove" aria-label=${`Remove ${textOf(label)}, ${formatPlace(label)}`}
              title="Remove"
              onClick=${() => store.removeLabel(label)}><${Icon} name="close" size=${14} /></button>`}
          </li>`;
        })}
      </ul>`}
    ${isCreating &&
    html`<${LayerDialog} taken=${layers.map(({ name }) => name)} onCreate=${store.declare}
      onClose=${() => setIsCreating(false)} />`}
  <//>`;
}

/** The last change, with a button to undo it. @param {{last: ReturnType<typeof useLabels>["last"]}} props */
export function LastChange({ last }) {
  return html`<span class=${classes("tag-last", last?.isBad && "is-bad")} role="status">
    ${last && html`<span title=${last.text}>${last.text}</span>`}
    ${last?.undo &&
    html`<${Button} kind="quiet" size="small" icon="undo" title="Undo: Ctrl Z" onClick=${last.undo}>Undo<//>`}
  </span>`;
}

/** The choices of a layer. @param {{layer: Layer, keys: Key[], button: (key: Key, title: string) => any}} props */
function ChoiceRow({ layer, keys, button }) {
  const name = layer.title || layer.name;
  return html`<div class="labels" role="group" aria-label=${name} title=${layer.doc || undefined}>
    <span class="layer-name">${name}</span>${keys.map((key) => button(key, titleOf(key.value)))}
  </div>`;
}

/**
 * A tag that the study does not name.
 * @param {{names: string[], hasTags: boolean, apply: (layer: Layer, value: any) => void}} props
 */
function OtherTag({ names, hasTags, apply }) {
  const [typed, setTyped] = useState("");
  return html`<form class="label-new" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    if (typed.trim()) apply({ name: typed.trim(), type: "flag", choices: [], keys: [], whole: false, doc: "" }, true);
    setTyped("");
  }}>
    <input type="text" maxlength="200" list="tag-labels" placeholder=${hasTags ? "Other tag" : "New tag"}
      aria-label="Another tag" value=${typed} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} />
    <datalist id="tag-labels">${names.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>
    ${typed.trim() && html`<${Button} type="submit" size="small" icon="add" aria-label="Add this tag" />`}
  </form>`;
}

/** A field for a text or a number. @param {{layer: Layer, onValue: (value: any) => void, onClose: () => void}} props */
function Entry({ layer, onValue, onClose }) {
  const [text, setText] = useState("");
  const isNumber = layer.type === "number";
  const value = isNumber ? Number(text) : text.trim();
  const isRight = text.trim() !== "" && (!isNumber || Number.isFinite(value));
  return html`<form class="label-entry" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isRight) return;
    onValue(value);
    onClose();
  }}>
    <${TextField} label=${layer.title || layer.name} hint=${layer.doc} inputmode=${isNumber ? "decimal" : undefined}
      maxlength="20000" value=${text} onChange=${setText} autofocus=${true}
      error=${text.trim() && !isRight ? "Expected a number." : ""}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.code === "Escape" && onClose()} />
    <${Button} type="submit" size="small" disabled=${!isRight}>Add<//>
  </form>`;
}
