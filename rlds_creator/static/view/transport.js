/** The slider of an episode, and the buttons that play it. */
import { IconButton } from "../components.js";
import { formatCount, formatNumber } from "../format.js";
import { html } from "../html.js";
import { useStored } from "./panes.js";
import { DEFAULT_RATE, SPEEDS } from "./playback.js";

/** @import { EpisodeSummary } from "../answers.js" */

/**
 * @typedef {object} Rate
 * @property {number | null} fps Steps per second; null if steps have times.
 * @property {"stated" | "set" | "assumed"} by The origin of the rate: the data, the person, or a default.
 * @property {(fps: number) => void} set
 */

/**
 * The rate of an episode. For a dataset without a rate, this browser remembers the rate that a person sets.
 * @param {string} base The address of the data of the episode.
 * @param {EpisodeSummary} summary
 * @returns {Rate}
 */
export function useRate(base, { fps, times }) {
  const [own, set] = useStored(`rate:${base.split("/").slice(0, 4).join("/")}`, 0);
  if (fps || times) return { fps, by: "stated", set };
  return own > 0 ? { fps: own, by: "set", set } : { fps: DEFAULT_RATE, by: "assumed", set };
}

/** @param {number} seconds */
export function formatClock(seconds) {
  const tenths = Math.floor(seconds * 10 + 1e-6); // Sums of fractions may be slightly too small.
  const fullSeconds = Math.floor(tenths / 10);
  return `${Math.floor(fullSeconds / 60)}:${String(fullSeconds % 60).padStart(2, "0")}.${tenths % 10}`;
}

/**
 * @param {{playback: import("./playback.js").Playback, rate: Rate, numSteps: number, line?: any, children?: any}} props
 */
export function Transport({ playback, rate, numSteps, line, children }) {
  const { step, isPlaying, isWaiting, speed, startTimes, seek, toggle, pause, setSpeed } = playback;
  const last = Math.max(numSteps - 1, 0);
  const go = (/** @type {number} */ to) => {
    pause();
    seek(to);
  };
  const time = startTimes[step] ?? 0;
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
        <${IconButton} icon="left" label="Previous step: ←" onClick=${() => go(step - 1)} disabled=${step === 0} />
        <${IconButton} icon=${isPlaying ? "pause" : "play"} kind="primary"
          label=${isPlaying ? "Pause: Space" : "Play: Space"} onClick=${toggle} disabled=${last === 0}
          aria-busy=${isWaiting ? "true" : undefined} />
        <${IconButton} icon="right" label="Next step: →" onClick=${() => go(step + 1)} disabled=${step === last} />
      </div>
      <span class="transport-step">
        <span class="visually-hidden">Step </span>
        <input class="step-field" type="text" inputmode="numeric" aria-label="Go to step" value=${String(step)}
          style=${{ "--digits": String(last).length }}
          onChange=${(/** @type {any} */ event) => {
            const requested = Number(event.target.value);
            if (Number.isFinite(requested)) go(requested);
            event.target.value = String(Math.min(Math.max(Math.round(requested) || 0, 0), last));
          }}
          onKeyDown=${(/** @type {any} */ event) => event.key === "Enter" && event.target.blur()}
        /><span class="quiet"> / ${formatCount(last)}</span>
      </span>
      <span class="transport-time quiet"
        title=${rate.by === "stated"
          ? rate.fps
            ? `${formatNumber(rate.fps)} steps/s`
            : "Recorded times"
          : undefined}>
        ${formatClock(time)} / ${formatClock(startTimes[last] ?? 0)}
      </span>
      ${rate.by !== "stated" && html`<${RateField} rate=${rate} />`}
      ${isWaiting && html`<span class="quiet" role="status">Loading…</span>`}
      ${line}
      <label class="speed"><span class="visually-hidden">Speed</span>
        <select value=${String(speed)} onChange=${(/** @type {any} */ event) => setSpeed(Number(event.target.value))}>
          ${SPEEDS.map(
            (it) => html`<option key=${it} value=${String(it)} selected=${it === speed}>${it}×</option>`,
          )}
        </select>
      </label>
      ${children}
    </div>
  </div>`;
}

/** A field for the rate of data that states no rate. @param {{rate: Rate}} props */
function RateField({ rate }) {
  return html`<label class="rate quiet"
    title="The data has no rate. This browser remembers your value for the dataset.">
    <input class="step-field" type="text" inputmode="decimal" aria-label="Steps per second" value=${String(rate.fps)}
      onChange=${(/** @type {any} */ event) => {
        const fps = Number(event.target.value);
        if (fps >= 0.01 && fps <= 10_000) rate.set(fps);
        else event.target.value = String(rate.fps);
      }}
      onKeyDown=${(/** @type {any} */ event) => event.key === "Enter" && event.target.blur()}
    /> steps/s ${rate.by === "set" ? "set by you" : "assumed"}
  </label>`;
}
