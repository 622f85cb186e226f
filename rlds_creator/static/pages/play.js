/** The page of a play: picture, keys, instructions, progress and settings. */
import { Button, Chip, Icon, Markdown, announce, toast, useTitle } from "../components.js";
import { formatNumber } from "../format.js";
import { classes, html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { Commands } from "../play/commands.js";
import { Cover, coverText } from "../play/cover.js";
import { KeyMap } from "../play/key_map.js";
import { Numbers, StageHud } from "../play/numbers.js";
import { Player, RETRY_HOLD } from "../play/player.js";
import { Settings } from "../play/settings.js";
import { TouchPad } from "../play/touch_pad.js";
import { Verdict } from "../play/verdict.js";
import { navigate } from "../router.js";

/** @import { Play } from "../answers.js" */

const HAS_TOUCH = navigator.maxTouchPoints > 0;

/** @param {{params: {study: string, environment?: string}}} props */
export default function PlayPage({ params }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const stage = useRef(/** @type {HTMLElement | null} */ (null));
  const [player, setPlayer] = useState(/** @type {Player | null} */ (null));
  const [, redraw] = useState(0);
  const { study, environment = null } = params;

  useEffect(() => {
    if (!canvas.current || !stage.current) return undefined;
    const newPlayer = new Player({ canvas: canvas.current, stage: stage.current, study, environment });
    newPlayer.listeners.add(() => redraw((count) => count + 1));
    newPlayer.onEvent = (event, episode) => {
      if (event === "discarded") toast("Discarded. The next episode is ready.");
      else if (episode.state === "rejected") toast("Discarded.");
      else
        toast("Saved.", {
          kind: "good",
          action: { label: "Watch", do: () => void navigate(`/replay/${episode.id}`) },
          seconds: 5,
        });
    };
    setPlayer(newPlayer);
    void newPlayer.start();
    stage.current.focus({ preventScroll: true });
    const leaveFullscreen = () => {
      // The browser handles the Escape that leaves the full screen; it means a pause as well.
      if (!document.fullscreenElement && newPlayer.isRunning && newPlayer.isAsync) newPlayer.do("pause");
    };
    document.addEventListener("fullscreenchange", leaveFullscreen);
    return () => {
      document.removeEventListener("fullscreenchange", leaveFullscreen);
      newPlayer.close();
    };
  }, [study, environment]);

  const hello = player?.hello;
  const state = player?.state?.state ?? "new";
  const title = hello?.environment?.name ?? "Play";
  useTitle(title);
  /** Returns the focus to the game after a click. @param {{detail: number}} event */
  const focusBack = (event) => {
    if (event.detail > 0) stage.current?.focus({ preventScroll: true });
  };
  const words = player ? coverText(player) : null;
  useEffect(() => {
    if (words) announce([words.title, words.text].filter(Boolean).join(" "));
  }, [words?.title]);

  return html`<div class=${classes("play", HAS_TOUCH && "has-touch")} data-connection=${player?.connection}
    data-state=${state}>
    <header class="play-head">
      <a class="back" href=${`/studies/${encodeURIComponent(study)}`}>
        <${Icon} name="back" size=${15} /><span>${hello?.study?.name ?? "Study"}</span>
      </a>
      <h1 tabindex="-1">${title}</h1>
      ${player?.isPractice && html`<${Chip} tone="odd">Practice: this episode is not data<//>`}
    </header>
    <div class="play-main">
      <div
        class=${classes("stage", words && "is-covered")}
        ref=${stage}
        tabindex="0"
        role="application"
        aria-label=${`${title}: keys go to the game while this has the focus. Escape pauses.`}
        onClick=${() => {
          stage.current?.focus({ preventScroll: true });
          if (player?.connection === "open" && (state === "ready" || state === "paused")) player.resume();
        }}
      >
        <canvas ref=${canvas} width="16" height="9" aria-label="What the environment shows"></canvas>
        ${player && html`<${StageHud} player=${player} />`}
        ${words && player && html`<${Cover} words=${words} player=${player} study=${study} />`}
        ${player?.retrySince != null &&
        html`<div class="retry-hold" role="status">
          <span class="retry-bar" style=${{ animationDuration: `${RETRY_HOLD}ms` }}></span>
          Keep holding to discard this episode
        </div>`}
        ${player?.slow && !words && html`<${Slow} player=${player} onDone=${focusBack} />`}
        ${player?.isStalled &&
        html`<div class="stage-note" role="status">
          <span class="spinner" aria-hidden="true"></span> Waiting for the environment…
        </div>`}
      </div>
      ${player && html`<${Commands} player=${player} state=${state} onClick=${focusBack} />`}
      ${player?.offer && HAS_TOUCH && html`<${TouchPad} player=${player} offer=${player.offer} />`}
      ${player?.problem &&
      player.connection === "open" &&
      html`<p class="play-problem" role="alert"><${Icon} name="error" size=${16} /> ${player.problem}</p>`}
    </div>
    <aside class="play-side" aria-label="About the game">
      ${player && html`<${Numbers} player=${player} />`}
      ${player?.offer && html`<${KeyMap} player=${player} offer=${player.offer} />`}
      <${Instructions} study=${hello?.study} environment=${hello?.environment} />
      ${player?.offer && html`<${Settings} player=${player} offer=${player.offer} onDone=${focusBack} />`}
    </aside>
    ${player?.offer && state === "ended" && player.connection === "open" && html`<${Verdict} player=${player} />`}
  </div>`;
}

/** @param {Partial<Pick<Play, "study" | "environment">>} props */
function Instructions({ study, environment }) {
  const texts = [study?.instructions, environment?.instructions].filter(Boolean);
  const [isOpen, setIsOpen] = useState(false);
  const [isLong, setIsLong] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    if (box.current && !isOpen) setIsLong(box.current.scrollHeight > box.current.clientHeight + 1);
  }, [texts.join(), isOpen]);
  if (texts.length === 0) return null;
  return html`<section class="side-part" aria-labelledby="instructions-title">
    <h2 id="instructions-title">What to do</h2>
    <div class=${classes("instructions", isOpen && "open", isLong && "long")} id="instructions" ref=${box}>
      ${texts.map((text, index) => html`<${Markdown} key=${index} text=${text} />`)}
    </div>
    ${isLong &&
    html`<${Button} kind="quiet" size="small" aria-expanded=${String(isOpen)} aria-controls="instructions"
      onClick=${() => setIsOpen(!isOpen)}>${isOpen ? "Less" : "More"}<//>`}
  </section>`;
}

/** A note on a slow environment. @param {{player: Player, onDone: (event: any) => void}} props */
function Slow({ player, onDone }) {
  const stop = (/** @type {Event} */ event) => event.stopPropagation();
  const draft = (/** @type {MouseEvent} */ event) => {
    player.set({ quality: "draft" });
    onDone(event);
  };
  return html`<div class="stage-note is-slow" role="status" onClick=${stop}>
    This runs at ${formatNumber(player.slow?.rate)} of ${formatNumber(player.slow?.fps)} steps/s.
    ${player.hasDraft
      ? html`<${Button} size="small" onClick=${draft}>Use draft quality<//>`
      : " A lower pace feels smoother."}
  </div>`;
}
