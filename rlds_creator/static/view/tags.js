/** Tags of an episode, of its steps and of ranges of them; and its notes. */
import { ApiError, get, post, put, remove } from "../api.js";
import { COLORS } from "../chart.js";
import { Button, Icon, Panel, Segments, confirm, toastError } from "../components.js";
import { keyName } from "../format.js";
import { Fragment, classes, html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { useGuard } from "../router.js";

/**
 * @typedef {{id: string, episode: string, label: string, first: number | null, last: number | null, author: string, created: number}} Tag
 * @typedef {{name: string, key: string, description: string}} Label
 * @typedef {{first: number, last: number}} Range
 * @typedef {"step" | "range" | "episode"} Scope
 */

/** @param {{first: number | null, last: number | null}} tag */
export function placeOf({ first, last }) {
  if (first === null) return "whole episode";
  return first === last || last === null ? `step ${first}` : `steps ${first}–${last}`;
}

/**
 * The tags of an episode, and what changes them.
 * @param {string} episode
 */
export function useTags(episode) {
  const [tags, setTags] = useState(/** @type {Tag[]} */ ([]));
  const [labels, setLabels] = useState(/** @type {Label[]} */ ([]));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  /** What was changed last, and what takes it back. */
  const [last, setLast] = useState(/** @type {{words: string, undo: (() => void) | null} | null} */ (null));
  const undos = useRef(/** @type {(() => Promise<void>)[]} */ ([]));
  const reload = useCallback(async () => {
    try {
      const answer = await get(`/api/episodes/${episode}/tags`);
      setTags(answer.tags);
      setLabels(answer.labels);
      setError(null);
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
    }
  }, [episode]);
  useEffect(() => {
    void reload();
    // Others may be at work on the same episode.
    const look = () => void (document.hidden || reload());
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [reload]);

  const drop = (/** @type {string} */ id) => setTags((old) => old.filter((tag) => tag.id !== id));
  const insert = (/** @type {Tag} */ tag) => setTags((old) => [...old.filter(({ id }) => id !== tag.id), tag]);

  /** @param {() => Promise<void>} undo @param {string} words */
  const offerUndo = (undo, words) => {
    const once = async () => {
      const place = undos.current.indexOf(once);
      if (place < 0) return;
      undos.current.splice(place, 1);
      setLast(null);
      try {
        await undo();
      } catch (problem) {
        toastError(problem);
        void reload();
      }
    };
    undos.current.push(once);
    setLast({ words, undo: () => void once() });
  };

  const add = async (/** @type {string} */ label, /** @type {number | null} */ first, /** @type {number | null} */ last) => {
    if (tags.some((tag) => tag.label === label && tag.first === first && tag.last === last)) {
      setLast({ words: `“${label}” is there already, ${placeOf({ first, last })}`, undo: null });
      return;
    }
    try {
      const tag = await post(`/api/episodes/${episode}/tags`, { label, first, last });
      insert(tag);
      offerUndo(async () => {
        await remove(`/api/tags/${tag.id}`);
        drop(tag.id);
      }, `“${label}”, ${placeOf(tag)}`);
    } catch (problem) {
      toastError(problem);
    }
  };
  const take = async (/** @type {Tag} */ tag) => {
    try {
      await remove(`/api/tags/${tag.id}`);
      drop(tag.id);
      offerUndo(async () => insert((await post(`/api/tags/${tag.id}/restore`)) ?? tag), `Removed “${tag.label}”, ${placeOf(tag)}`);
    } catch (problem) {
      toastError(problem);
      // Somebody else may have removed it.
      void reload();
    }
  };
  const undo = () => undos.current.at(-1)?.();

  /** The colours of all labels, those of the study first. */
  const colors = useMemo(() => {
    const names = [...new Set([...labels.map(({ name }) => name), ...tags.map(({ label }) => label).sort()])];
    return new Map(names.map((name, index) => [name, COLORS[(index + 1) % COLORS.length]]));
  }, [labels, tags]);
  return { tags, labels, colors, error, last, add, take, undo, reload };
}

/**
 * @param {{store: ReturnType<typeof useTags>, step: number, numSteps: number, scope: Scope, setScope: (scope: Scope) => void,
 *   range: Range | null, setRange: (range: Range | null) => void, apply: (label: string) => void, canTag: boolean, onSeek: (step: number) => void}} props
 */
export function Tags({ store, step, numSteps, scope, setScope, range, setRange, apply, canTag, onSeek }) {
  const { tags, labels, colors, error, last } = store;
  const [typed, setTyped] = useState("");
  const known = useMemo(() => new Set(labels.map(({ name }) => name)), [labels]);
  const sorted = [...tags].sort((a, b) => (a.first ?? -1) - (b.first ?? -1) || (a.last ?? 0) - (b.last ?? 0) || a.label.localeCompare(b.label));
  const target = scope === "episode" ? "the whole episode" : scope === "range" && range ? placeOf(range) : `step ${step}`;
  const setEnd = (/** @type {"first" | "last"} */ end) => setRange(rangeWith(range, end, step));
  return html`<${Panel} title="Tags" class="tags">
    ${error && html`<p class="hint">${error.message}</p>`}
    ${canTag &&
    html`<${Fragment}>
      <div class="tag-target">
        <${Segments} label="Tag" hideLabel=${true} value=${scope} onChange=${setScope}
          choices=${[
            { value: "step", label: "This step" },
            { value: "range", label: "Range" },
            { value: "episode", label: "Episode" },
          ]} />
        ${scope === "range" &&
        html`<div class="tag-range">
          <${Button} size="small" onClick=${() => setEnd("first")} title="Begin the range at this step: I">${range ? `From ${range.first}` : "Begin here"} <kbd>I</kbd><//>
          <${Button} size="small" onClick=${() => setEnd("last")} title="End the range at this step: O">${range ? `to ${range.last}` : "End here"} <kbd>O</kbd><//>
        </div>`}
      </div>
      <div class="labels" role="group" aria-label=${`Tag ${target}`}>
        ${labels.map(
          ({ name, key, description }) => html`<button key=${name} type="button" class="label-button" title=${[description, key && `Key: ${keyName(key)}`].filter(Boolean).join(" · ") || undefined} onClick=${() => apply(name)}>
            <span class="dot" style=${{ "--color": `var(${colors.get(name)})` }}></span>${name}${key && html`<kbd>${keyName(key)}</kbd>`}
          </button>`,
        )}
        <form class="label-new" onSubmit=${(/** @type {Event} */ event) => {
          event.preventDefault();
          if (typed.trim()) apply(typed.trim());
          setTyped("");
        }}>
          <input type="text" maxlength="200" list="tag-labels" placeholder=${labels.length ? "Other tag" : "New tag"} aria-label="Another tag" value=${typed} onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} />
          <datalist id="tag-labels">${[...colors.keys()].filter((name) => !known.has(name)).map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>
          ${typed.trim() && html`<${Button} type="submit" size="small" icon="add" aria-label="Add this tag" />`}
        </form>
      </div>
      <p class="tag-last hint" role="status">${last && html`<span>${last.words}</span>`}${last?.undo && html`<${Button} kind="quiet" size="small" icon="undo" onClick=${last.undo}>Undo<//>`}</p>
    <//>`}
    ${sorted.length === 0
      ? html`<p class="hint">${canTag ? `No tags yet. The next one marks ${target}.` : "No tags."}</p>`
      : html`<ul class="tag-list">
          ${sorted.map((tag) => {
            const isHere = tag.first === null || (step >= tag.first && step <= (tag.last ?? tag.first));
            return html`<li key=${tag.id} class=${classes(isHere && "is-here")}>
              <span class="dot" style=${{ "--color": `var(${colors.get(tag.label)})` }}></span>
              <span class="tag-name">${tag.label}</span>
              ${tag.first === null
                ? html`<span class="tag-place quiet">whole episode</span>`
                : html`<button type="button" class="tag-place" title="Go there" onClick=${() => onSeek(Math.min(tag.first ?? 0, numSteps - 1))}>${placeOf(tag)}</button>`}
              ${canTag && html`<button type="button" class="tag-remove" aria-label=${`Remove ${tag.label}, ${placeOf(tag)}`} title="Remove" onClick=${() => store.take(tag)}><${Icon} name="close" size=${14} /></button>`}
            </li>`;
          })}
        </ul>`}
  <//>`;
}

/**
 * A range with another end; the end that is passed comes along.
 * @param {Range | null} range
 * @param {"first" | "last"} end
 * @param {number} step
 * @returns {Range}
 */
export function rangeWith(range, end, step) {
  const { first, last } = range ?? { first: step, last: step };
  return end === "first" ? { first: step, last: Math.max(last, step) } : { first: Math.min(first, step), last: step };
}

/**
 * Notes, which others may change at the same time.
 * @param {{episode: any, canEdit: boolean, onSaved: (episode: any) => void}} props
 */
export function Notes({ episode, canEdit, onSaved }) {
  const [text, setText] = useState(episode.notes);
  const [theirs, setTheirs] = useState(/** @type {any} */ (null));
  const [isBusy, setIsBusy] = useState(false);
  const isDirty = text !== episode.notes;
  useGuard(isDirty, () =>
    confirm({ title: "Leave without saving the notes?", body: "What you wrote is lost then.", action: "Leave", danger: true }),
  );
  /** @param {string} notes @param {number} version */
  const save = async (notes, version) => {
    setIsBusy(true);
    try {
      const saved = await put(`/api/episodes/${episode.id}/notes`, { notes, version });
      setTheirs(null);
      setText(saved.notes);
      onSaved(saved);
    } catch (error) {
      if (error instanceof ApiError && error.status === 409 && error.body?.current) setTheirs(error.body.current);
      else toastError(error);
    }
    setIsBusy(false);
  };
  if (!canEdit) return episode.notes ? html`<${Panel} title="Notes"><p class="pre">${episode.notes}</p><//>` : null;
  return html`<${Panel} title="Notes" class="notes" actions=${isDirty && !theirs && html`<${Button} size="small" kind="primary" busy=${isBusy} onClick=${() => save(text, episode.version)} title="Ctrl+Enter">Save<//>`}>
    <textarea aria-label="Notes" rows="3" maxlength="20000" placeholder="What others should know about this episode" value=${text}
      onInput=${(/** @type {any} */ event) => setText(event.target.value)}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (isDirty && !theirs && (event.ctrlKey || event.metaKey) && (event.code === "Enter" || event.code === "KeyS")) {
          event.preventDefault();
          void save(text, episode.version);
        }
      }}></textarea>
    ${theirs &&
    html`<div class="conflict" role="alert">
      <p><strong>Somebody else saved these notes in the meantime:</strong></p>
      <blockquote class="pre">${theirs.notes || "(empty)"}</blockquote>
      <div class="actions">
        <${Button} size="small" busy=${isBusy} onClick=${() => save([theirs.notes, text].filter(Boolean).join("\n\n"), theirs.version)}>Keep both<//>
        <${Button} size="small" busy=${isBusy} onClick=${() => save(text, theirs.version)}>Keep mine<//>
        <${Button} size="small" onClick=${() => {
          setText(theirs.notes);
          onSaved(theirs);
          setTheirs(null);
        }}>Take theirs<//>
      </div>
    </div>`}
  <//>`;
}

