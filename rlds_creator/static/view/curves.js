/** Curves over the steps: rewards and fields. */
import { COLORS, Chart } from "../chart.js";
import { IconButton, Loading } from "../components.js";
import { formatCount } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";

/** @import { Outline, Series } from "../answers.js" */
/** @import { EpisodeData } from "./episode.js" */
/**
 * What all charts of a page share.
 * @typedef {Omit<Parameters<typeof Chart>[0], "label" | "steps" | "curves">} Shared
 */

const MOST_CURVES = 12;

/** @param {(number | null)[]} rewards */
export function runningTotal(rewards) {
  let total = 0;
  return rewards.map((reward) => (total += reward ?? 0));
}

/** @param {{outline: Outline} & Shared} props */
export function RewardChart({ outline, ...rest }) {
  const steps = useMemo(() => outline.rewards.map((_, index) => index), [outline]);
  const curves = useMemo(
    () => [
      { name: "reward", values: outline.rewards, color: "--fill", shape: /** @type {const} */ ("bars") },
      { name: "sum of rewards", values: runningTotal(outline.rewards), color: "--second", isRight: true },
    ],
    [outline],
  );
  return html`<section class="chart-part">
    <header>
      <h2>Rewards</h2><${Legend} curves=${curves} />
      <span class="hint chart-hint">Click: go there. Drag: ${rest.onSelect ? "range" : "zoom"}. Wheel: zoom.</span>
    </header>
    <${Chart} label="Rewards over the steps" steps=${steps} curves=${curves} ...${rest} />
  </section>`;
}

/** Where ranges are chosen when there are no rewards. @param {Shared} shared */
export function StepsChart(shared) {
  const steps = useMemo(() => [0, Math.max(shared.numSteps - 1, 1)], [shared.numSteps]);
  const curves = useMemo(() => [{ name: "", values: [null, null] }], []);
  return html`<section class="chart-part"><header><h2>Steps</h2></header>
    <${Chart} label="The steps" steps=${steps} curves=${curves} ...${shared} />
  </section>`;
}

/** @param {{curves: {name: string, color?: string}[]}} props */
export function Legend({ curves }) {
  return html`<span class="legend">
    ${curves.map(
      ({ name, color = COLORS[0] }) => html`<span key=${name}>
        <span class="dot" style=${{ "--color": `var(${color})` }}></span>${name}
      </span>`,
    )}
  </span>`;
}

/** @param {{data: EpisodeData, path: string, onClose: () => void} & Shared} props */
export function FieldChart({ data, path, onClose, ...rest }) {
  const [series, setSeries] = useState(/** @type {Series | null} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    data.series(path).then(setSeries, (/** @type {Error} */ error) => setProblem(error.message));
  }, [data, path]);
  const curves = useMemo(
    () =>
      series?.series.slice(0, MOST_CURVES).map((values, index) => ({
        name: String(series.names[index] ?? index),
        values,
        color: COLORS[index % COLORS.length],
        shape: series.steps.length <= 400 ? "steps" : "line",
      })),
    [series],
  );
  return html`<section class="chart-part">
    <header>
      <h2>${path}</h2>
      ${curves && curves.length > 1 && html`<${Legend} curves=${curves} />`}
      ${series &&
      series.series.length > MOST_CURVES &&
      html`<span class="hint">the first ${MOST_CURVES} of ${formatCount(series.series.length)}</span>`}
      <span class="grow"></span>
      <${IconButton} icon="close" size="small" label=${`Remove the curve of ${path}`} onClick=${onClose} />
    </header>
    ${problem
      ? html`<p class="hint">${problem}</p>`
      : curves
        ? html`<${Chart} label=${`${path} over the steps`} steps=${series?.steps} curves=${curves} ...${rest} />`
        : html`<${Loading} />`}
  </section>`;
}
