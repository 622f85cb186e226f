/** Pictures of a step; the previous picture stays until the next one is loaded. */
import { Icon } from "../components.js";
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { drawPicture } from "../play/canvas.js";
import { shortName } from "./pictures.js";

/**
 * The number of columns in which pictures are largest.
 * @param {number} count
 * @param {number} width
 * @param {number} height
 * @param {number} aspect The width of a picture divided by its height.
 */
export function bestColumns(count, width, height, aspect) {
  const sizes = Array.from({ length: count }, (_, index) =>
    Math.min(width / (index + 1) / aspect, height / Math.ceil(count / (index + 1))),
  );
  return Math.max(sizes.indexOf(Math.max(...sizes)) + 1, 1);
}

/**
 * Pictures side by side, as large as possible.
 * @param {{data: import("./episode.js").EpisodeData, step: number, paths: string[]}} props
 */
export function Pictures({ data, step, paths }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [aspect, setAspect] = useState(4 / 3);
  const [columns, setColumns] = useState(1);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const fit = () => setColumns(bestColumns(paths.length, element.clientWidth, element.clientHeight, aspect));
    const observer = new ResizeObserver(fit);
    observer.observe(element);
    fit();
    return () => observer.disconnect();
  }, [paths.length, aspect]);
  return html`<div class="pictures" ref=${box} data-count=${Math.min(paths.length, 4)}
    style=${{ "--columns": columns }}>
    ${paths.map(
      (path) => html`<${Picture} key=${path} data=${data} step=${step} path=${path}
        name=${paths.length > 1 ? shortName(path, paths) : null} onAspect=${setAspect} />`,
    )}
  </div>`;
}

/**
 * @param {{data: import("./episode.js").EpisodeData, step: number, path: string, name: string | null,
 *   onAspect: (aspect: number) => void}} props
 */
function Picture({ data, step, path, name, onAspect }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [problem, setProblem] = useState("");
  const [isDrawn, setIsDrawn] = useState(false);
  // A layout effect shows a cached picture together with the values of its step.
  useLayoutEffect(() => {
    let isCurrent = true;
    const entry = data.picture(step, path);
    const show = () => {
      if (!isCurrent) return;
      setProblem(entry.error?.message ?? "");
      if (!entry.bitmap || !canvas.current) return;
      drawPicture(canvas.current, entry.bitmap);
      canvas.current.dataset.step = String(step);
      setIsDrawn(true);
      onAspect(entry.bitmap.width / entry.bitmap.height);
    };
    if (entry.isDone) show();
    else void entry.done.then(show);
    return () => {
      isCurrent = false;
    };
  }, [data, step, path]);
  return html`<figure class="picture">
    ${name && html`<figcaption title=${path}>${name}</figcaption>`}
    <canvas ref=${canvas} width="16" height="9" role="img" aria-label=${`${path}, step ${step}`}
      hidden=${!isDrawn}></canvas>
    ${problem && html`<p class="picture-problem" role="status"><${Icon} name="error" size=${16} /> ${problem}</p>`}
    ${!isDrawn && !problem && html`<p class="picture-problem"><span class="spinner" aria-hidden="true"></span></p>`}
  </figure>`;
}
