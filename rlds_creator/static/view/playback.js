/** The playback of an episode: by hand, or at the recorded pace. */
import { useCallback, useEffect, useMemo, useRef, useState } from "../html.js";

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];
/** Steps per second of data without a rate. */
export const DEFAULT_RATE = 15;
/** The maximum duration of a step in seconds, as players may pause to think. */
const MAX_STEP_TIME = 1;
/** The maximum time between two frames of the page in seconds; longer pauses are skipped. */
const MAX_TICK_TIME = 0.25;

/**
 * The time at which each step begins, in seconds.
 * @param {number} numSteps
 * @param {number | null} fps
 * @param {number[] | null} times
 * @returns {Float64Array}
 */
export function stepTimes(numSteps, fps, times) {
  const startTimes = new Float64Array(numSteps);
  const fixed = 1 / (fps && fps > 0 ? fps : DEFAULT_RATE);
  for (let step = 1; step < numSteps; step++) {
    const duration = times ? Math.min(Math.max(times[step] - times[step - 1], 0), MAX_STEP_TIME) : fixed;
    startTimes[step] = startTimes[step - 1] + duration;
  }
  return startTimes;
}

/**
 * The step at a time.
 * @param {Float64Array} startTimes
 * @param {number} time
 */
export function stepAt(startTimes, time) {
  let low = 0;
  let high = startTimes.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (startTimes[middle] <= time) low = middle;
    else high = middle - 1;
  }
  return low;
}

/**
 * @typedef {object} Playback
 * @property {number} step
 * @property {boolean} isPlaying
 * @property {boolean} isWaiting Whether the playback waits for pictures.
 * @property {number} speed
 * @property {Float64Array} startTimes The time at which each step begins, in seconds.
 * @property {() => number} latestStep Returns the step, which may be newer than the rendered `step`.
 * @property {(step: number) => void} seek
 * @property {() => void} toggle
 * @property {() => void} pause
 * @property {(speed: number) => void} setSpeed
 */

/**
 * @param {object} options
 * @param {number} options.numSteps
 * @param {Float64Array} options.startTimes
 * @param {number} options.first The first shown step.
 * @param {(step: number) => boolean} options.isReady Returns whether a step is loaded.
 * @returns {Playback}
 */
export function usePlayback({ numSteps, startTimes, first, isReady }) {
  const last = Math.max(numSteps - 1, 0);
  const clamp = useCallback((/** @type {number} */ step) => Math.min(Math.max(Math.round(step) || 0, 0), last), [last]);
  const [step, setStep] = useState(() => clamp(first));
  const [isPlaying, setIsPlaying] = useState(false);
  const [isWaiting, setIsWaiting] = useState(false);
  const [speed, setSpeed] = useState(1);
  const latest = useRef(/** @type {any} */ ({}));
  latest.current = { step, speed, isReady };
  const go = useCallback((/** @type {number} */ to) => {
    latest.current.step = to;
    setStep(to);
  }, []);

  useEffect(() => {
    if (!isPlaying) return undefined;
    let time = startTimes[latest.current.step] ?? 0;
    let lastTick = performance.now();
    let shown = latest.current.step;
    let waitedSince = 0;
    let frame = 0;
    const tick = (/** @type {number} */ now) => {
      frame = requestAnimationFrame(tick);
      // A person has moved to another step.
      if (latest.current.step !== shown) {
        shown = latest.current.step;
        time = startTimes[shown];
      }
      const next = Math.min(
        time + Math.min(Math.max(now - lastTick, 0) / 1000, MAX_TICK_TIME) * latest.current.speed,
        startTimes[last],
      );
      lastTick = now;
      const target = stepAt(startTimes, next);
      if (target !== shown && !latest.current.isReady(target)) {
        waitedSince ||= now;
        if (now - waitedSince > 300) setIsWaiting(true);
        return;
      }
      if (waitedSince) {
        waitedSince = 0;
        setIsWaiting(false);
      }
      time = next;
      if (target !== shown) {
        shown = target;
        go(target);
      }
      if (shown >= last) setIsPlaying(false);
    };
    frame = requestAnimationFrame(tick);
    return () => {
      cancelAnimationFrame(frame);
      setIsWaiting(false);
    };
  }, [isPlaying, startTimes, last]);

  const latestStep = useCallback(() => latest.current.step, []);
  const seek = useCallback((/** @type {number} */ to) => go(clamp(to)), [clamp]);
  const pause = useCallback(() => setIsPlaying(false), []);
  const toggle = useCallback(() => {
    if (last === 0) return;
    // At the end, the playback starts again.
    if (!isPlaying && latest.current.step >= last) go(0);
    setIsPlaying(!isPlaying);
  }, [isPlaying, last]);
  return useMemo(
    () => ({ step: clamp(step), isPlaying, isWaiting, speed, startTimes, latestStep, seek, toggle, pause, setSpeed }),
    [step, isPlaying, isWaiting, speed, startTimes, seek, toggle, pause, clamp],
  );
}

/** Whether the focused element got the focus from a mouse or a finger, not from the keyboard. */
let isClicked = false;
addEventListener("pointerdown", () => (isClicked = true), true);
addEventListener(
  "keydown",
  ({ code }) => {
    if (code === "Tab") isClicked = false;
  },
  true,
);

/**
 * Returns whether a key is meant for the page, not for one of its fields.
 * @param {KeyboardEvent} event
 */
export function isPageKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return false;
  if (document.querySelector("dialog[open], .menu-list")) return false;
  const active = document.activeElement;
  if (active instanceof HTMLTextAreaElement || active instanceof HTMLSelectElement) return false;
  const isChoice = active instanceof HTMLInputElement && (active.type === "radio" || active.type === "checkbox");
  if (active instanceof HTMLInputElement && !isChoice) return active.type === "range";
  if (isChoice || (active instanceof HTMLButtonElement && (event.code === "Space" || event.code === "Enter"))) {
    if (!isClicked) return false;
    // An element that has the focus because of a click does not get the key.
    active.blur();
  }
  return true;
}

/**
 * Handles a key of the playback.
 * @param {KeyboardEvent} event
 * @param {Playback} playback
 * @param {number} numSteps
 * @returns {boolean} Whether the key has a function.
 */
export function playbackKey(event, playback, numSteps) {
  const distance = event.shiftKey ? 10 : 1;
  const { speed } = playback;
  const step = playback.latestStep();
  switch (event.code) {
    case "Space":
      playback.toggle();
      return true;
    case "ArrowLeft":
      playback.pause();
      playback.seek(step - distance);
      return true;
    case "ArrowRight":
      playback.pause();
      playback.seek(step + distance);
      return true;
    case "Home":
      playback.seek(0);
      return true;
    case "End":
      playback.seek(numSteps - 1);
      return true;
    case "ArrowUp":
    case "ArrowDown": {
      const index = SPEEDS.indexOf(speed) + (event.code === "ArrowUp" ? 1 : -1);
      playback.setSpeed(SPEEDS[Math.min(Math.max(index, 0), SPEEDS.length - 1)]);
      return true;
    }
    default:
      return false;
  }
}
