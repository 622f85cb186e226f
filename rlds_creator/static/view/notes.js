/** The notes on an episode. */
import { ApiError, put } from "../api.js";
import { Button, Panel, confirm, toastError } from "../components.js";
import { html, useState } from "../html.js";
import { useGuard } from "../router.js";

/** @import { EpisodeRecord } from "../api_types.js" */

/**
 * Notes, which other people may change at the same time.
 * @param {{episode: EpisodeRecord, canEdit: boolean, onSaved: (episode: EpisodeRecord) => void}} props
 */
export function Notes({ episode, canEdit, onSaved }) {
  const [text, setText] = useState(episode.notes);
  const [theirs, setTheirs] = useState(/** @type {EpisodeRecord | null} */ (null));
  const [isBusy, setIsBusy] = useState(false);
  const isDirty = text !== episode.notes;
  useGuard(isDirty, () =>
    confirm({
      title: "Leave without saving the notes?",
      body: "Your text will be lost.",
      action: "Leave",
      danger: true,
    }),
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
  return html`<${Panel} title="Notes" class="notes"
    actions=${isDirty &&
    !theirs &&
    html`<${Button} size="small" kind="primary" busy=${isBusy} onClick=${() => save(text, episode.version)}
      title="Ctrl+Enter">Save<//>`}>
    <textarea aria-label="Notes" rows="3" maxlength="20000" placeholder="What others should know about this episode"
      value=${text}
      onInput=${(/** @type {any} */ event) => setText(event.target.value)}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (
          isDirty &&
          !theirs &&
          (event.ctrlKey || event.metaKey) &&
          (event.code === "Enter" || event.code === "KeyS")
        ) {
          event.preventDefault();
          void save(text, episode.version);
        }
      }}></textarea>
    ${theirs &&
    html`<div class="conflict" role="alert">
      <p><strong>Somebody else saved these notes in the meantime:</strong></p>
      <blockquote class="pre">${theirs.notes || "(empty)"}</blockquote>
      <div class="actions">
        <${Button} size="small" busy=${isBusy}
          onClick=${() => save([theirs.notes, text].filter(Boolean).join("\n\n"), theirs.version)}>Keep both<//>
        <${Button} size="small" busy=${isBusy} onClick=${() => save(text, theirs.version)}>Keep mine<//>
        <${Button} size="small" onClick=${() => {
          setText(theirs.notes);
          onSaved(theirs);
          setTheirs(null);
        }}>Use theirs<//>
      </div>
    </div>`}
  <//>`;
}
