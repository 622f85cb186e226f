/** A picture of a step, drawn when it is there; until then, the one before it stays. */
import { Icon } from "../components.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { drawPicture } from "../play/canvas.js";

/**
 * @param {{data: import("./episode.js").EpisodeData, step: number, path: string, isAlone?: boolean}} props
 */
export function Picture({ data, step, path, isAlone = true }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [problem, setProblem] = useState("");
  const [isThere, setIsThere] = useState(false);
  useEffect(() => {
    let isCurrent = true;
    const entry = data.picture(step, path);
    const show = () => {
      if (!isCurrent) return;
      setProblem(entry.error?.message ?? "");
      if (!entry.bitmap || !canvas.current) return;
      drawPicture(canvas.current, entry.bitmap);
      canvas.current.dataset.step = String(step);
      setIsThere(true);
    };
    if (entry.isDone) show();
    else void entry.done.then(show);
    return () => {
      isCurrent = false;
    };
  }, [data, step, path]);
  return html`<figure class="picture">
    <canvas ref=${canvas} width="16" height="9" role="img" aria-label=${`${path}, step ${step}`} hidden=${!isThere}></canvas>
    ${problem && html`<p class="picture-problem" role="status"><${Icon} name="error" size=${16} /> ${problem}</p>`}
    ${!isThere && !problem && html`<p class="picture-problem"><span class="spinner" aria-hidden="true"></span></p>`}
    ${!isAlone && html`<figcaption>${path}</figcaption>`}
  </figure>`;
}
