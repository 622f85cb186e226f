/** The pictures of an episode that are shown, and those that come next. */
import { html, useEffect, useMemo } from "../html.js";
import { useStored } from "./panes.js";

/** @import { Outline } from "../answers.js" */
/** @import { EpisodeData } from "./episode.js" */
/** @import { Playback } from "./playback.js" */

/** How many steps are asked for before they are needed. */
const AHEAD = 10;
/** How often a browser draws in a second: faster than that, steps are left out. */
const DRAWN = 60;
/** So many cameras are shown at first. */
const MOST_PICTURES = 9;

/**
 * Which pictures are shown, and which are there.
 * @param {Outline} outline
 */
export function usePictures(outline) {
  const paths = useMemo(
    () => outline.fields.filter(({ kind }) => kind === "picture").map(({ path }) => path),
    [outline],
  );
  const [chosen, setChosen] = useStored(
    `pictures:${paths}`,
    outline.shown ? [outline.shown] : paths.slice(0, MOST_PICTURES),
  );
  const toggle = (/** @type {string} */ path) => {
    const next = paths.filter((one) => (one === path) !== chosen.includes(one));
    if (next.length > 0) setChosen(next);
  };
  return { paths, chosen, toggle };
}

/**
 * Asks for the values and pictures that come next.
 * @param {EpisodeData} data
 * @param {string[]} paths
 * @param {Playback} playback
 * @param {number} numSteps
 */
export function usePrefetch(data, paths, playback, numSteps) {
  const { step, isPlaying, speed, begins } = playback;
  const rate = (speed * (begins.length - 1)) / (begins.at(-1) || 1);
  useEffect(() => {
    const stride = isPlaying ? Math.max(1, Math.round(rate / DRAWN)) : 1;
    const room = paths.length > 0 ? Math.floor(data.pictures.most / (2 * paths.length)) : AHEAD;
    const ahead = isPlaying ? Math.min(AHEAD, Math.max(2, room)) : 2;
    for (let place = 1; place <= ahead; place++) {
      const next = step + place * stride;
      if (next >= numSteps) break;
      data.values(next);
      for (const path of paths) data.picture(next, path);
    }
  }, [data, paths, step, isPlaying, rate, numSteps]);
}

/** Pictures to choose from. @param {{paths: string[], chosen: string[], toggle: (path: string) => void}} props */
export function PictureChooser({ paths, chosen, toggle }) {
  if (paths.length < 2) return null;
  return html`<div class="picture-chooser" role="group" aria-label="Pictures">
    ${paths.map(
      (path) => html`<button key=${path} type="button" class="picture-choice"
        aria-pressed=${String(chosen.includes(path))} onClick=${() => toggle(path)}>${shortName(path, paths)}</button>`,
    )}
  </div>`;
}

/** What a picture is called among others. @param {string} path @param {string[]} paths */
export function shortName(path, paths) {
  const name = path.split("/").at(-1) ?? path;
  return paths.filter((one) => one.split("/").at(-1) === name).length === 1 ? name : path;
}
