/** Two episodes side by side, with one slider. */
import { COLORS, useZoom } from "../chart.js";
import { Button, LoadError, IconButton, Loading, PageHeader, Segments } from "../components.js";
import { formatCount, formatNumber } from "../format.js";
import { classes, html, useEffect, useMemo, useState } from "../html.js";
import { setQuery } from "../router.js";
import { viewAddress } from "../view/episode.js";
import { Plot, runningTotal } from "../view/curves.js";
import { useEpisode } from "../view/opening.js";
import { Pictures } from "../view/picture.js";
import { PictureChooser, usePictures, usePrefetch } from "../view/pictures.js";
import { stepTimes, isPageKey, playbackKey, usePlayback } from "../view/playback.js";
import { Transport, useRate } from "../view/transport.js";
import { useValues } from "../view/values.js";

/** @import { EpisodeSummary } from "../answers.js" */
/** @import { EpisodeData } from "../view/episode.js" */

/** @typedef {"left" | "right"} Side */
/** @typedef {"start" | "end"} Alignment */

const SIDES = /** @type {Side[]} */ (["left", "right"]);
const TITLES = { left: "Left", right: "Right" };

/** @param {{query: Record<string, string>}} props */
export default function ComparePage({ query }) {
  const bases = SIDES.map((side) => (query[side] ? viewAddress(query[side]) : null));
  const left = useEpisode(bases[0]);
  const right = useEpisode(bases[1]);
  const isReady = left.summary && right.summary && left.data && right.data;
  return html`<div class="compare">
    <${PageHeader}
      title="Compare episodes"
      actions=${bases[0] &&
      bases[1] &&
      html`<${Button} icon="reload" onClick=${() => setQuery({ left: query.right, right: query.left })}>Swap<//>`}
    />
    ${isReady
      ? html`<${Pair} key=${bases.join(" ")} left=${left} right=${right} addresses=${[query.left, query.right]}
        first=${Number(query.t ?? 0)} />`
      : html`<div class="sides">
        ${SIDES.map((side, index) => {
          const { error, reload, summary } = index === 0 ? left : right;
          return html`<section key=${side} class="panel side" aria-label=${TITLES[side]}>
            ${bases[index] === null
              ? html`<${Chooser} side=${side} address=${query[side] ?? ""} />`
              : error
                ? html`<${LoadError} error=${error} onRetry=${reload} />
                <${Chooser} side=${side} address=${query[side]} />`
                : summary
                  ? html`<h2>${summary.title}</h2>
                  <p class="hint">Steps 0 to ${formatCount(summary.num_steps - 1)}</p>`
                  : html`<${Loading} />`}
          </section>`;
        })}
      </div>`}
  </div>`;
}

/** Asks for an episode. @param {{side: Side, address: string}} props */
function Chooser({ side, address }) {
  const [text, setText] = useState(address);
  const isWrong = text.trim() !== "" && viewAddress(text) === null;
  return html`<form
    class="chooser"
    onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      if (!isWrong && text.trim()) setQuery({ [side]: new URL(text.trim(), location.origin).pathname });
    }}
  >
    <h2>${TITLES[side]} episode</h2>
    <p class="hint">Open an episode in another tab, and paste its address here.</p>
    <div class="row">
      <input class="grow" type="text" placeholder="/replay/… or /datasets/…"
        aria-label=${`Address of the ${side} episode`} aria-invalid=${isWrong ? "true" : undefined} value=${text}
        onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
      <${Button} type="submit" kind="primary" disabled=${isWrong || !text.trim()}>Show<//>
    </div>
    ${isWrong && html`<p class="hint" role="status">This is not the address of an episode.</p>`}
  </form>`;
}

/** @typedef {{data: EpisodeData, summary: EpisodeSummary}} Opened */

/** @param {{left: Opened, right: Opened, addresses: string[], first: number}} props */
function Pair({ left, right, addresses, first }) {
  const summaries = [left.summary, right.summary];
  const episodes = [left.data, right.data];
  const lengths = summaries.map(({ num_steps: count }) => count);
  const numSteps = Math.max(...lengths);
  const [alignment, setAlignment] = useState(/** @type {Alignment} */ ("start"));
  const offsets = lengths.map((length) => (alignment === "end" ? numSteps - length : 0));
  const longest = lengths[0] >= lengths[1] ? 0 : 1;
  const rate = useRate(episodes[longest].page, summaries[longest]);
  const startTimes = useMemo(
    () => stepTimes(numSteps, rate.fps, summaries[longest].times),
    [left.summary, right.summary, rate.fps],
  );
  const pictures = [usePictures(left.summary), usePictures(right.summary)];
  /** @param {number} step @param {number} index */
  const ownStep = (step, index) => Math.min(Math.max(step - offsets[index], 0), lengths[index] - 1);
  const playback = usePlayback({
    numSteps,
    startTimes,
    first,
    isReady: (step) => episodes.every((data, index) => data.isReady(ownStep(step, index), pictures[index].chosen)),
  });
  const { step, seek } = playback;
  const { zoom, onZoom } = useZoom(step, numSteps);
  const steps = [ownStep(step, 0), ownStep(step, 1)];
  usePrefetch(left.data, pictures[0].chosen, { ...playback, step: steps[0] }, lengths[0]);
  usePrefetch(right.data, pictures[1].chosen, { ...playback, step: steps[1] }, lengths[1]);
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      if (isPageKey(event) && playbackKey(event, playback, numSteps)) event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });

  const allSteps = useMemo(() => Array.from({ length: numSteps }, (_, index) => index), [numSteps]);
  const curves = useMemo(
    () =>
      summaries.map((summary, index) => {
        const totals = runningTotal(summary.rewards);
        return {
          name: `${TITLES[SIDES[index]].toLowerCase()}: sum of rewards`,
          values: allSteps.map((it) => totals[it - offsets[index]] ?? null),
          color: COLORS[index],
        };
      }),
    [left.summary, right.summary, alignment],
  );
  const hasRewards = summaries.some(({ rewards }) =>
    rewards.some((reward) => reward !== null),
  );

  return html`<div class="pair" data-step=${step}>
    <div class="sides">
      ${SIDES.map((side, index) => {
        const summary = summaries[index];
        const isOver = step < offsets[index] || step - offsets[index] > lengths[index] - 1;
        return html`<section key=${side} class=${`panel side${isOver ? " is-over" : ""}`} aria-label=${TITLES[side]}>
          <header>
            <h2><a href=${addresses[index]}>${summary.title || `${TITLES[side]} episode`}</a></h2>
            <div class="actions">
              ${summary.previous &&
              html`<${IconButton} icon="previous" size="small" label="Previous episode"
                onClick=${() => setQuery({ [side]: summary.previous })} />`}
              ${summary.next &&
              html`<${IconButton} icon="next" size="small" label="Next episode"
                onClick=${() => setQuery({ [side]: summary.next })} />`}
              <${IconButton} icon="close" size="small" label="Choose another episode"
                onClick=${() => setQuery({ [side]: null })} />
            </div>
          </header>
          <${PictureChooser} ...${pictures[index]} />
          <${Pictures} data=${episodes[index]} step=${steps[index]} paths=${pictures[index].chosen} />
          <p class="step-line">
            <span>
              Step <strong>${formatCount(steps[index])}</strong>
              ${" "}<span class="quiet">/ ${formatCount(lengths[index] - 1)}</span>
            </span>
            <span>Reward <strong>${formatNumber(summary.rewards[steps[index]])}</strong></span>
            ${isOver && html`<span class="quiet">${step < offsets[index] ? "not started" : "ended"}</span>`}
          </p>
          <${CurrentAction} data=${episodes[index]} step=${steps[index]} />
        </section>`;
      })}
    </div>
    <div class="panel pair-controls">
      <${Transport} playback=${playback} rate=${rate} numSteps=${numSteps}>
        ${lengths[0] !== lengths[1] &&
        html`<${Segments} label="Align" hideLabel=${true} value=${alignment} onChange=${setAlignment}
          choices=${[{ value: "start", label: "Same start" }, { value: "end", label: "Same end" }]} />`}
      <//>
      ${hasRewards &&
      html`<${Plot} class="chart-part plain" label="Sums of rewards of both episodes" steps=${allSteps}
        curves=${curves} step=${step} numSteps=${numSteps} zoom=${zoom} onZoom=${onZoom} onSeek=${seek} />`}
    </div>
  </div>`;
}

/** @param {{data: EpisodeData, step: number}} props */
function CurrentAction({ data, step }) {
  const { values, shownStep } = useValues(data, step);
  const actions = Object.entries(values ?? {}).filter(([path]) => path === "action" || path.startsWith("action/"));
  if (actions.length === 0) return null;
  return html`<dl class=${classes("compare-action", shownStep !== step && "is-old")}>
    ${actions.map(
      ([path, value]) => html`<div key=${path}>
        <dt>${path}</dt><dd>${show(value)} <span class="quiet">${data.actionName(path, value)}</span></dd>
      </div>`,
    )}
  </dl>`;
}

/** @param {any} value @returns {string} */
function show(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return formatNumber(value);
  if (Array.isArray(value)) return value.slice(0, 16).map(show).join("  ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
