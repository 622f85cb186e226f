/** The choice of visible pictures, and prefetching. */
import { html, useEffect, useMemo } from "../html.js";
import { useStored } from "./panes.js";

/** @import { EpisodeSummary } from "../answers.js" */
/** @import { EpisodeData } from "./episode.js" */
/** @import { Playback } from "./playback.js" */

/** The number of prefetched steps. */
const PREFETCHED_STEPS = 10;
/** The frame rate of browsers; a faster playback skips steps. */
const BROWSER_FRAME_RATE = 60;
/** The maximum number of pictures that are visible by default. */
const MAX_PICTURES = 9;

/**
 * The available and the chosen pictures.
 * @param {EpisodeSummary} summary
 */
export function usePictures(summary) {
  const paths = useMemo(
    () => summary.fields.filter(({ kind }) => kind === "picture").map(({ path }) => path),
    [summary],
  );
  const [chosen, setChosen] = useStored(
    `pictures:${paths}`,
    summary.shown ? [summary.shown] : paths.slice(0, MAX_PICTURES),
  );
  const toggle = (/** @type {string} */ path) => {
    const next = paths.filter((other) => (other === path) !== chosen.includes(other));
    if (next.length > 0) setChosen(next);
  };
  return { paths, chosen, toggle };
}

/**
 * Prefetches the values and pictures of the next steps.
 * @param {EpisodeData} data
 * @param {string[]} paths
 * @param {Playback} playback
 * @param {number} numSteps
 */
export function usePrefetch(data, paths, playback, numSteps) {
  const { step, isPlaying, speed, startTimes } = playback;
  const rate = (speed * (startTimes.length - 1)) / (startTimes.at(-1) || 1);
  useEffect(() => {
    const stride = isPlaying ? Math.max(1, Math.round(rate / BROWSER_FRAME_RATE)) : 1;
    const room = paths.length > 0 ? Math.floor(data.pictures.limit / (2 * paths.length)) : PREFETCHED_STEPS;
    const ahead = isPlaying ? Math.min(PREFETCHED_STEPS, Math.max(2, room)) : 2;
    for (let offset = 1; offset <= ahead; offset++) {
      const next = step + offset * stride;
      if (next >= numSteps) break;
      data.values(next);
      for (const path of paths) data.picture(next, path);
    }
  }, [data, paths, step, isPlaying, rate, numSteps]);
}

/** Buttons that choose pictures. @param {{paths: string[], chosen: string[], toggle: (path: string) => void}} props */
export function PictureChooser({ paths, chosen, toggle }) {
  if (paths.length < 2) return null;
  return html`<div class="picture-chooser" role="group" aria-label="Pictures">
    ${paths.map(
      (path) => html`<button key=${path} type="button" class="picture-choice"
        aria-pressed=${String(chosen.includes(path))} onClick=${() => toggle(path)}>${shortName(path, paths)}</button>`,
    )}
  </div>`;
}

/** The shortest unique name of a picture. @param {string} path @param {string[]} paths */
export function shortName(path, paths) {
  const name = path.split("/").at(-1) ?? path;
  return paths.filter((other) => other.split("/").at(-1) === name).length === 1 ? name : path;
}
