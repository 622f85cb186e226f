/** Icons: strokes on a grid of 24, in the colour of the text. */
import { html } from "./html.js";

/** @type {Record<string, string>} */
const PATHS = {
  add: "M12 5v14M5 12h14",
  back: "M19 12H5M11 18l-6-6 6-6",
  chart: "M4 19V5M4 19h16M7.5 15l4-5 3.5 3L20 7",
  check: "M5 12.5l4.5 4.5L19 7.5",
  close: "M6 6l12 12M18 6L6 18",
  compare: "M4 5h6v14H4zM14 5h6v14h-6z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  dataset:
    "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3z" +
    "M4 6v6c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12v6c0 1.7 3.6 3 8 3s8-1.3 8-3v-6",
  down: "M6 9l6 6 6-6",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M4 20l1-4L16.5 4.5a2.1 2.1 0 0 1 3 3L8 19l-4 1zM14 7l3 3",
  episodes: "M3 5h18v14H3zM3 9.5h18M8 5v4.5M16 5v4.5M10.5 12.2v4l3.4-2z",
  error: "M12 3l9.5 17h-19zM12 10v4.5M12 17.4v.1",
  filter: "M4 6h16M7 12h10M10 18h4",
  fullscreen: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  gamepad:
    "M7 7h10a5 5 0 0 1 5 5v3a3 3 0 0 1-5.4 1.8L15.5 15h-7l-1.1 1.8A3 3 0 0 1 2 15v-3a5 5 0 0 1 5-5z" +
    "M7 10v3M5.5 11.5h3M15.5 10.5v.1M18 12.5v.1",
  info: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v5.5M12 7.6v.1",
  left: "M15 6l-6 6 6 6",
  light:
    "M12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM12 2v2M12 20v2M2 12h2M20 12h2" +
    "M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  link:
    "M10 14a4.5 4.5 0 0 0 6.4 0l3-3a4.5 4.5 0 0 0-6.4-6.4l-1 1" +
    "M14 10a4.5 4.5 0 0 0-6.4 0l-3 3a4.5 4.5 0 0 0 6.4 6.4l1-1",
  lock: "M5 11h14v10H5zM8 11V8a4 4 0 0 1 8 0v3",
  more:
    "M5 12a.8.8 0 1 0 1.6 0 .8.8 0 1 0-1.6 0M11.2 12a.8.8 0 1 0 1.6 0 .8.8 0 1 0-1.6 0" +
    "M17.4 12a.8.8 0 1 0 1.6 0 .8.8 0 1 0-1.6 0",
  next: "M6 5l9 7-9 7zM18 5v14",
  pause: "M8 5v14M16 5v14",
  people:
    "M9 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM2.5 20c0-3.6 2.9-6 6.5-6s6.5 2.4 6.5 6" +
    "M16 5a3.5 3.5 0 0 1 0 6.6M18 14.4c2.1.8 3.5 2.8 3.5 5.6",
  play: "M8 5.2v13.6L19 12z",
  previous: "M18 5l-9 7 9 7zM6 5v14",
  reload: "M20 5v5h-5M4 19v-5h5M19.4 10A8 8 0 0 0 5.6 7M4.6 14a8 8 0 0 0 13.8 3",
  right: "M9 6l6 6-6 6",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16.2 16.2L21 21",
  settings:
    "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z" +
    "M9 14.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z",
  stop: "M6 6h12v12H6z",
  studies: "M6 4h12v17H6zM9 3h6v3H9zM9 11h6M9 15h4",
  system: "M3 5h18v11H3zM9 20h6M12 16v4",
  tag: "M4 4h7.5L21 13.5 13.5 21 4 11.5zM8 8v.01",
  test: "M9 3h6M10 3v6L4.5 18.5A1.7 1.7 0 0 0 6 21h12a1.7 1.7 0 0 0 1.5-2.5L14 9V3M7.5 15h9",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14M10 11v6M14 11v6",
  undo: "M8 5L3.5 9.5 8 14M4 9.5h10a6 6 0 0 1 0 12h-3",
  up: "M6 15l6-6 6 6",
};

/**
 * An icon; screen readers skip it.
 * @param {{name: string, size?: number}} props
 */
export function Icon({ name, size = 18 }) {
  return html`<svg class="icon" viewBox="0 0 24 24" width=${size} height=${size} aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} />
  </svg>`;
}
