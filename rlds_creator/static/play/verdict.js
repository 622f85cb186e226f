/** The dialog after an episode: keep or discard it, and whether it worked. */
import { Button, Dialog, Icon, Segments } from "../components.js";
import { formatCount, formatDuration, formatNumber } from "../format.js";
import { Fragment, html, useCallback, useLayoutEffect } from "../html.js";

/** @import { Player } from "./player.js" */

const REASONS = /** @type {Record<string, string>} */ ({
  terminated: "The game is over.",
  truncated: "The episode has reached its maximum length.",
  user: "You ended it.",
  failed: "The environment failed. The steps before are recorded.",
});

/** @param {{player: Player}} props */
export function Verdict({ player }) {
  const { state } = player;
  const episode = state?.episode;
  const success = episode?.success ?? null;
  const setSuccess = useCallback(
    (/** @type {boolean | null} */ value) => player.control("success", { value }),
    [player],
  );
  const answers = /** @type {Record<string, () => void>} */ ({
    Enter: () => player.confirm("completed"),
    NumpadEnter: () => player.confirm("completed"),
    Backspace: () => player.confirm("rejected"),
    Delete: () => player.confirm("rejected"),
    KeyK: () => player.confirm("cancelled"),
    Equal: () => setSuccess(success === true ? null : true),
    NumpadAdd: () => setSuccess(success === true ? null : true),
    Minus: () => setSuccess(success === false ? null : false),
    NumpadSubtract: () => setSuccess(success === false ? null : false),
  });
  useLayoutEffect(() => {
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const isOnButton = document.activeElement instanceof HTMLButtonElement;
      const answer = event.code === "Enter" && isOnButton ? undefined : answers[event.code];
      // Keys that were meant for the game just before its end are ignored.
      if (event.repeat || !player.isQuiet) {
        if (event.code !== "Tab") event.preventDefault();
      } else if (answer) {
        event.preventDefault();
        answer();
      }
    };
    addEventListener("keydown", press, true);
    return () => removeEventListener("keydown", press, true);
  });
  const hasPad = player.controller !== "";
  return html`<${Dialog}
    title="Keep this episode?"
    class="verdict"
    isFixed=${true}
    onClose=${() => {}}
    actions=${html`<${Fragment}>
      <${Button} kind="quiet" class="throw-away" icon="trash" onClick=${answers.Delete} title="Backspace">
        Discard ${hasPad && html`<kbd>B</kbd>`}
      <//>
      <span class="grow"></span>
      <${Button} onClick=${answers.KeyK} title="K">Keep as incomplete ${hasPad && html`<kbd>X</kbd>`}<//>
      <${Button} kind="primary" icon="check" onClick=${answers.Enter} title="Enter">
        Keep as complete ${hasPad && html`<kbd>A</kbd>`}
      <//>
    <//>`}
  >
    <div class="verdict-summary" tabindex="-1" autofocus>
      <p>${REASONS[state?.why ?? ""] ?? ""}</p>
      <dl class="numbers-grid">
        <div><dt>Steps</dt><dd>${formatCount(Math.max(0, (episode?.num_steps ?? 1) - 1))}</dd></div>
        <div><dt>Return</dt><dd>${formatNumber(episode?.total_reward ?? 0)}</dd></div>
        <div><dt>Time</dt><dd>${formatDuration(episode?.seconds ?? 0)}</dd></div>
      </dl>
    </div>
    <${Segments}
      label="Did it work?"
      value=${success === null ? "" : String(success)}
      onChange=${(/** @type {string} */ value) => setSuccess(value === "" ? null : value === "true")}
      choices=${[
        { value: "true", label: html`It worked <kbd>=</kbd>` },
        { value: "false", label: html`It failed <kbd>−</kbd>` },
        { value: "", label: "No answer" },
      ]}
    />
    <p class="hint verdict-keys"><kbd>Enter</kbd> complete <kbd>K</kbd> incomplete <kbd>⌫</kbd> discard</p>
    ${player.problem &&
    html`<p class="play-problem" role="alert"><${Icon} name="error" size=${16} /> ${player.problem}</p>`}
  <//>`;
}
