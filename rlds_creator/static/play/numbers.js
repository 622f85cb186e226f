/** The step, the reward and the time of an episode during the game. */
import { formatCount, formatNumber } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Action } from "./action.js";

/** @import { Player } from "./player.js" */

const HUD_INTERVAL = 100;

/**
 * Renders a component again after pictures, at a limited rate.
 * @param {Player} player
 */
function useFrames(player) {
  const [, redraw] = useState(0);
  useEffect(() => {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const draw = () => {
      timer = undefined;
      redraw((count) => count + 1);
    };
    const scheduleRedraw = () => {
      timer ??= setTimeout(draw, HUD_INTERVAL);
    };
    player.frameListeners.add(scheduleRedraw);
    const clock = setInterval(() => player.isRunning && scheduleRedraw(), 1000);
    return () => {
      player.frameListeners.delete(scheduleRedraw);
      clearTimeout(timer);
      clearInterval(clock);
    };
  }, [player]);
}

/** @param {number} seconds */
const clockText = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

/** The display over the picture in full screen. @param {{player: Player}} props */
export function StageHud({ player }) {
  useFrames(player);
  const { frame } = player;
  return html`<div class="stage-hud" aria-hidden="true">
    <span>step ${formatCount(frame?.step ?? 0)}</span><span>total ${formatNumber(frame?.totalReward ?? 0)}</span>
    <span>${clockText(player.seconds)}</span>
  </div>`;
}

/** @param {{player: Player}} props */
export function Numbers({ player }) {
  useFrames(player);
  const { frame, latency, episodeNumber } = player;
  const rewards = frame?.isFirst ? "–" : formatNumber(frame?.reward);
  return html`<section class="side-part numbers" aria-label="Progress">
    <dl class="numbers-grid">
      <div><dt>Step</dt><dd>${formatCount(frame?.step ?? 0)}</dd></div>
      <div><dt>Reward</dt><dd>${rewards}</dd></div>
      <div><dt>Total</dt><dd>${formatNumber(frame?.totalReward ?? 0)}</dd></div>
      <div><dt>Time</dt><dd>${clockText(player.seconds)}</dd></div>
    </dl>
    <${Action} action=${frame?.action ?? null} />
    <p class="measured">
      <span>${episodeNumber !== null && `Episode ${formatCount(episodeNumber + 1)}`}</span>
      ${player.isAsync && html`<span title="Images drawn per second">${player.rate.toFixed(0)} fps</span>`}
      ${latency !== null &&
      html`<span title="From a press to the image that shows it">${latency.toFixed(0)} ms</span>`}
    </p>
  </section>`;
}
