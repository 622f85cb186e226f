/** Going through the steps of an episode: by hand, or at the pace at which it was played. */
import { useCallback, useEffect, useMemo, useRef, useState } from "../html.js";

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];
/** Steps in a second where nothing states a rate. */
export const DEFAULT_RATE = 15;
/** Where the player thought for longer, it goes on after so many seconds. */
const LONGEST_STEP = 1;
/** What took longer than that between two pictures of the page was no playing. */
const LONGEST_TICK = 0.25;

/**
 * When each step begins, in seconds.
 * @param {number} numSteps
 * @param {number | null} fps
 * @param {number[] | null} times
 * @returns {Float64Array}
 */
export function beginnings(numSteps, fps, times) {
  const begins = new Float64Array(numSteps);
  const fixed = 1 / (fps && fps > 0 ? fps : DEFAULT_RATE);
  for (let step = 1; step < numSteps; step++) {
    const took = times ? Math.min(Math.max(times[step] - times[step - 1], 0), LONGEST_STEP) : fixed;
    begins[step] = begins[step - 1] + took;
  }
  return begins;
}

/**
 * The step that is shown at a time.
 * @param {Float64Array} begins
 * @param {number} time
 */
export function stepAt(begins, time) {
  let low = 0;
  let high = begins.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (begins[middle] <= time) low = middle;
    else high = middle - 1;
  }
  return low;
}

/**
 * @typedef {object} Playback
 * @property {number} step
 * @property {boolean} isPlaying
 * @property {boolean} isWaiting For pictures.
 * @property {number} speed
 * @property {Float64Array} begins When each step begins, in seconds.
 * @property {() => number} at The step, also when the page is not drawn again yet after keys that follow fast.
 * @property {(step: number) => void} seek
 * @property {() => void} toggle
 * @property {() => void} pause
 * @property {(speed: number) => void} setSpeed
 */

/**
 * @param {object} options
 * @param {number} options.numSteps
 * @param {Float64Array} options.begins
 * @param {number} options.first The step to begin at.
 * @param {(step: number) => boolean} options.isReady Whether a step can be shown now.
 * @returns {Playback}
 */
export function usePlayback({ numSteps, begins, first, isReady }) {
  const last = Math.max(numSteps - 1, 0);
  const clamp = useCallback((/** @type {number} */ step) => Math.min(Math.max(Math.round(step) || 0, 0), last), [last]);
  const [step, setStep] = useState(() => clamp(first));
  const [isPlaying, setIsPlaying] = useState(false);
  const [isWaiting, setIsWaiting] = useState(false);
  const [speed, setSpeed] = useState(1);
  const now = useRef(/** @type {any} */ ({}));
  now.current = { step, speed, isReady };
  const go = useCallback((/** @type {number} */ to) => {
    now.current.step = to;
    setStep(to);
  }, []);

  useEffect(() => {
    if (!isPlaying) return undefined;
    let time = begins[now.current.step] ?? 0;
    let before = performance.now();
    let shown = now.current.step;
    let waitedSince = 0;
    let frame = 0;
    const tick = (/** @type {number} */ at) => {
      frame = requestAnimationFrame(tick);
      // Somebody went to another step in between.
      if (now.current.step !== shown) {
        shown = now.current.step;
        time = begins[shown];
      }
      const next = Math.min(
        time + Math.min(Math.max(at - before, 0) / 1000, LONGEST_TICK) * now.current.speed,
        begins[last],
      );
      before = at;
      const target = stepAt(begins, next);
      if (target !== shown && !now.current.isReady(target)) {
        waitedSince ||= at;
        if (at - waitedSince > 300) setIsWaiting(true);
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
  }, [isPlaying, begins, last]);

  const at = useCallback(() => now.current.step, []);
  const seek = useCallback((/** @type {number} */ to) => go(clamp(to)), [clamp]);
  const pause = useCallback(() => setIsPlaying(false), []);
  const toggle = useCallback(() => {
    if (last === 0) return;
    // At the end, it begins anew.
    if (!isPlaying && now.current.step >= last) go(0);
    setIsPlaying(!isPlaying);
  }, [isPlaying, last]);
  return useMemo(
    () => ({ step: clamp(step), isPlaying, isWaiting, speed, begins, at, seek, toggle, pause, setSpeed }),
    [step, isPlaying, isWaiting, speed, begins, seek, toggle, pause, clamp],
  );
}

/** Whether what has the focus got it from a mouse or a finger, and not from the keyboard. */
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
 * Whether a key is meant for the page, and not for a field of it.
 * @param {KeyboardEvent} event
 */
export function isForPage(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return false;
  if (document.querySelector("dialog[open], .menu-list")) return false;
  const active = document.activeElement;
  if (active instanceof HTMLTextAreaElement || active instanceof HTMLSelectElement) return false;
  const isChoice = active instanceof HTMLInputElement && (active.type === "radio" || active.type === "checkbox");
  if (active instanceof HTMLInputElement && !isChoice) return active.type === "range";
  if (isChoice || (active instanceof HTMLButtonElement && (event.code === "Space" || event.code === "Enter"))) {
    if (!isClicked) return false;
    // It has the focus because it was clicked: nobody means to press it again.
    active.blur();
  }
  return true;
}

/**
 * The keys that go through an episode.
 * @param {KeyboardEvent} event
 * @param {Playback} playback
 * @param {number} numSteps
 * @returns {boolean} Whether it was one.
 */
export function playKey(event, playback, numSteps) {
  const far = event.shiftKey ? 10 : 1;
  const { speed } = playback;
  const step = playback.at();
  switch (event.code) {
    case "Space":
      playback.toggle();
      return true;
    case "ArrowLeft":
      playback.pause();
      playback.seek(step - far);
      return true;
    case "ArrowRight":
      playback.pause();
      playback.seek(step + far);
      return true;
    case "Home":
      playback.seek(0);
      return true;
    case "End":
      playback.seek(numSteps - 1);
      return true;
    case "ArrowUp":
    case "ArrowDown": {
      const place = SPEEDS.indexOf(speed) + (event.code === "ArrowUp" ? 1 : -1);
      playback.setSpeed(SPEEDS[Math.min(Math.max(place, 0), SPEEDS.length - 1)]);
      return true;
    }
    default:
      return false;
  }
}
