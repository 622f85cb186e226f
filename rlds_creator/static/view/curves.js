/** Curves over the steps: rewards and fields. */
import { COLORS, Chart } from "../chart.js";
import { IconButton, Loading } from "../components.js";
import { formatCount, formatNumber } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";

/** @import { EpisodeSummary, Series } from "../answers.js" */
/** @import { EpisodeData } from "./episode.js" */
/**
 * The properties that all charts of a page share.
 * @typedef {Omit<Parameters<typeof Chart>[0], "label" | "steps" | "curves">} Shared
 */

const MAX_CURVES = 18;

/** @param {(number | null)[]} rewards */
export function runningTotal(rewards) {
  let total = 0;
  return rewards.map((reward) => (total += reward ?? 0));
}

/** @typedef {import("../chart.js").Curve} Curve */

/** The maximum ratio of the ranges of curves that share a scale. */
const MAX_SCALE_RATIO = 20;

/** Returns whether the ranges of curves are too different for a shared scale. @param {Curve[]} curves */
export function isUneven(curves) {
  const sizes = curves.flatMap(({ values }) => {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    return high > low ? [high - low] : [];
  });
  return Math.max(...sizes) > MAX_SCALE_RATIO * Math.min(...sizes);
}

/**
 * A chart with a legend: the values of the curves under the mouse, or in the current step. A click in the legend
 * hides a curve.
 * @param {{title?: string, unit?: string, steps: number[], curves: Curve[], label: string, note?: any, children?: any,
 *   class?: string} & Shared} props
 */
export function Plot({ title, unit, steps, curves, note, children, class: extra = "chart-part", ...rest }) {
  const [hidden, setHidden] = useState(/** @type {ReadonlySet<number>} */ (new Set()));
  const [hovered, setHovered] = useState(/** @type {number | null} */ (null));
  const hasAxes = curves.some(({ isRight }) => isRight);
  const uneven = useMemo(() => !hasAxes && isUneven(curves), [curves]);
  const [choice, setChoice] = useState(/** @type {boolean | null} */ (null));
  const hasOwnScales = choice ?? uneven;
  const row = hovered ?? Math.max(steps.findLastIndex((step) => step <= rest.step), 0);
  const toggle = (/** @type {number} */ index) => {
    const next = new Set(hidden);
    if (!next.delete(index)) next.add(index);
    setHidden(next);
  };
  return html`<section class=${extra}>
    <header>
      ${title && html`<h2>${title}${unit && html` <span class="value-type">${unit}</span>`}</h2>`}
      <span class="legend" role="group" aria-label="Curves">
        ${curves.map(
          ({ name, color = COLORS[0], dash = 0, values }, index) => html`<button key=${index} type="button"
            aria-pressed=${String(!hidden.has(index))}
            title=${hidden.has(index) ? "Show this curve" : "Hide this curve"}
            onClick=${() => toggle(index)}>
            <span class=${["dot", "dot is-dashed", "dot is-dotted"][dash]}
              style=${{ "--color": `var(${color})` }}></span>${name}
            <span class="legend-value">${formatNumber(values[row])}</span>
          </button>`,
        )}
      </span>
      ${hovered !== null && html`<span class="hint">step ${String(steps[row])}</span>`}
      <span class="grow"></span>
      ${note && html`<span class="hint chart-hint">${note}</span>`}
      ${!hasAxes &&
      curves.length > 1 &&
      html`<button type="button" class="picture-choice" aria-pressed=${String(hasOwnScales)}
        title="Each curve fills the height, whatever its size" onClick=${() => setChoice(!hasOwnScales)}>
        Own scales
      </button>`}
      ${children}
    </header>
    <${Chart} steps=${steps} curves=${curves} hidden=${hidden} hasOwnScales=${hasOwnScales} onHover=${setHovered}
      ...${rest} />
  </section>`;
}

/** @param {{summary: EpisodeSummary} & Shared} props */
export function RewardChart({ summary, ...rest }) {
  const steps = useMemo(() => summary.rewards.map((_, index) => index), [summary]);
  const curves = useMemo(
    () => [
      { name: "reward", values: summary.rewards, color: "--fill", shape: /** @type {const} */ ("bars") },
      { name: "sum of rewards", values: runningTotal(summary.rewards), color: "--second", isRight: true },
    ],
    [summary],
  );
  return html`<${Plot} title="Rewards" label="Rewards over the steps" steps=${steps} curves=${curves} ...${rest}
    note=${`Click: go there. Drag: ${rest.onSelect ? "range" : "zoom"}. Wheel: zoom.`} />`;
}

/** A chart without curves, to select ranges of steps if there are no rewards. @param {Shared} shared */
export function StepsChart(shared) {
  const steps = useMemo(() => [0, Math.max(shared.numSteps - 1, 1)], [shared.numSteps]);
  const curves = useMemo(() => [{ name: "", values: [null, null] }], []);
  return html`<section class="chart-part"><header><h2>Steps</h2></header>
    <${Chart} label="The steps" steps=${steps} curves=${curves} ...${shared} />
  </section>`;
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
      series?.series.slice(0, MAX_CURVES).map((values, index) => ({
        name: String(series.names[index] ?? index),
        values,
        color: COLORS[index % COLORS.length],
        dash: Math.floor(index / COLORS.length),
        shape: /** @type {"steps" | "line"} */ (series.steps.length <= 400 ? "steps" : "line"),
      })),
    [series],
  );
  const close = html`<${IconButton} icon="close" size="small" label=${`Remove the curve of ${path}`}
    onClick=${onClose} />`;
  if (!series || !curves)
    return html`<section class="chart-part">
      <header><h2>${path}</h2><span class="grow"></span>${close}</header>
      ${problem ? html`<p class="hint">${problem}</p>` : html`<${Loading} />`}
    </section>`;
  const cut = series.series.length > MAX_CURVES && `the first ${MAX_CURVES} of ${formatCount(series.series.length)}`;
  return html`<${Plot} title=${path} unit=${data.summary?.fields.find((field) => field.path === path)?.unit}
    label=${`${path} over the steps`} steps=${series.steps} curves=${curves} note=${cut} ...${rest}>
    ${close}
  <//>`;
}
