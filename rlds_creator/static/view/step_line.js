/** The rewards, flags and labels of a step, as text. */
import { Chip } from "../components.js";
import { formatNumber } from "../format.js";
import { html, useMemo } from "../html.js";
import { runningTotal } from "./curves.js";
import { textOf } from "./labels.js";
import { useValues } from "./values.js";

/** @import { EpisodeSummary } from "../answers.js" */
/** @import { EpisodeData } from "./episode.js" */
/** @import { useLabels } from "./labels.js" */

/**
 * The rewards, flags and labels of a step as text, also for screen readers.
 * @param {{data: EpisodeData, summary: EpisodeSummary, step: number, isPlaying: boolean,
 *   store: ReturnType<typeof useLabels>}} props
 */
export function StepLine({ data, summary, step, isPlaying, store }) {
  const totals = useMemo(() => runningTotal(summary.rewards), [summary]);
  const reward = summary.rewards[step];
  const { values, shownStep } = useValues(data, step);
  const isActive = (/** @type {string} */ path) => shownStep === step && values?.[path] === true;
  const flags = summary.fields
    .filter(({ path, kind }) => kind === "flag" && !path.includes("/") && isActive(path))
    .map(({ path }) => path.replace(/^is_|^tag:/, ""));
  if (isActive("is_last") && values?.is_terminal === false && !flags.includes("truncated")) flags.push("truncated");
  const labels = store.labels.filter(({ first, last }) => first !== null && step >= first && step <= (last ?? first));
  return html`<p class="step-line" aria-live=${isPlaying ? "off" : "polite"}>
    ${summary.rewards.some((value) => value !== null) &&
    html`<span>Reward <strong>${formatNumber(reward)}</strong></span>
    <span>
      Total <strong>${formatNumber(totals[step])}</strong> <span class="quiet">of ${formatNumber(totals.at(-1))}</span>
    </span>`}
    ${flags.map((name) => html`<${Chip} key=${name} tone="accent">${name}<//>`)}
    ${labels.map(
      (label) => html`<span class="step-tag" key=${label.id}>
        <span class="dot" style=${{ "--color": `var(${store.colorOf(label)})` }}></span>${textOf(label)}
      </span>`,
    )}
  </p>`;
}

/**
 * The text of the task, from the step if steps have it.
 * @param {{data: EpisodeData, summary: EpisodeSummary, step: number}} props
 */
export function Instruction({ data, summary: { instruction, instruction_path: path }, step }) {
  const { values } = useValues(data, step);
  const text = (path && values?.[path]) || instruction;
  return text && html`<p class="instruction"><span class="quiet">Task</span> ${text}</p>`;
}
