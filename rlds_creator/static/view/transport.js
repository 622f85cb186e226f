/** The slider of an episode, and the buttons that play it. */
import { IconButton } from "../components.js";
import { formatCount } from "../format.js";
import { html } from "../html.js";
import { SPEEDS } from "./playback.js";

/** @param {number} seconds */
export function clockOf(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}.${Math.floor((seconds - whole) * 10)}`;
}

/**
 * @param {{playback: import("./playback.js").Playback, numSteps: number, line?: any, children?: any}} props
 */
export function Transport({ playback, numSteps, line, children }) {
  const { step, isPlaying, isWaiting, speed, begins, seek, toggle, pause, setSpeed } = playback;
  const last = Math.max(numSteps - 1, 0);
  const go = (/** @type {number} */ to) => {
    pause();
    seek(to);
  };
  const time = begins[step] ?? 0;
  return html`<div class="transport">
    <input
      class="scrubber"
      type="range"
      min="0"
      max=${last}
      step="1"
      value=${step}
      aria-label="Step"
      aria-valuetext=${`Step ${step} of ${last}`}
      onInput=${(/** @type {any} */ event) => go(Number(event.target.value))}
    />
    <div class="transport-row">
      <div class="transport-buttons">
        <${IconButton} icon="left" label="One step back: ←" onClick=${() => go(step - 1)} disabled=${step === 0} />
        <${IconButton} icon=${isPlaying ? "pause" : "play"} kind="primary" label=${isPlaying ? "Pause: Space" : "Play: Space"} onClick=${toggle} disabled=${last === 0} aria-busy=${isWaiting ? "true" : undefined} />
        <${IconButton} icon="right" label="One step on: →" onClick=${() => go(step + 1)} disabled=${step === last} />
      </div>
      <span class="transport-step">
        <span class="visually-hidden">Step </span><input class="step-field" type="text" inputmode="numeric" aria-label="Go to step" value=${String(step)} style=${{ "--digits": String(last).length }}
          onChange=${(/** @type {any} */ event) => {
            const wanted = Number(event.target.value);
            if (Number.isFinite(wanted)) go(wanted);
            event.target.value = String(Math.min(Math.max(Math.round(wanted) || 0, 0), last));
          }}
          onKeyDown=${(/** @type {any} */ event) => event.key === "Enter" && event.target.blur()}
        /><span class="quiet"> / ${formatCount(last)}</span>
      </span>
      <span class="transport-time quiet">${clockOf(time)} / ${clockOf(begins[last] ?? 0)}</span>
      ${isWaiting && html`<span class="quiet" role="status">Loading…</span>`}
      ${line}
      <label class="speed"><span class="visually-hidden">Speed</span>
        <select value=${String(speed)} onChange=${(/** @type {any} */ event) => setSpeed(Number(event.target.value))}>
          ${SPEEDS.map((one) => html`<option key=${one} value=${String(one)} selected=${one === speed}>${one}×</option>`)}
        </select>
      </label>
      ${children}
    </div>
  </div>`;
}
