/** An episode, step by step: pictures, rewards, values, and its labels. */
import { formatQuery, useResource } from "../api.js";
import { useZoom } from "../chart.js";
import {
  Button,
  Chip,
  LoadError,
  Icon,
  IconButton,
  Loading,
  StateChip,
  Time,
  toast,
  toastError,
  useTitle,
} from "../components.js";
import { formatDuration } from "../format.js";
import { Fragment, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { address, navigate, setQuery } from "../router.js";
import { useMe } from "../session.js";
import { FieldChart, RewardChart, StepsChart } from "../view/curves.js";
import { NameDialog } from "../view/label_dialogs.js";
import { Labels, LastChange } from "../view/label_panel.js";
import { moveRangeEnd, useAnnotator, useLabels } from "../view/labels.js";
import { EpisodeList } from "../view/list.js";
import { Metadata } from "../view/metadata.js";
import { Notes } from "../view/notes.js";
import { useEpisode } from "../view/opening.js";
import { Divider, useStored } from "../view/panes.js";
import { Pictures } from "../view/picture.js";
import { PictureChooser, usePictures, usePrefetch } from "../view/pictures.js";
import { stepTimes, isPageKey, playbackKey, usePlayback } from "../view/playback.js";
import { Shortcuts } from "../view/shortcuts.js";
import { copyLink, useStepInAddress } from "../view/step_address.js";
import { Instruction, StepLine } from "../view/step_line.js";
import { useTarget } from "../view/target.js";
import { Transport, useRate } from "../view/transport.js";
import { Values } from "../view/values.js";

/** @import { EpisodeSummary } from "../answers.js" */
/** @import { EpisodeData } from "../view/episode.js" */
/** @import { Key, Layer, LabelValue } from "../view/labels.js" */

/** The default height of a plot with its heading, and of the rest of the window, in pixels. */
const PLOT_HEIGHT = 226;
const OTHER_HEIGHT = 560;

/** @param {{params: Record<string, string>, query: Record<string, string>}} props */
export default function ReplayPage({ params, query }) {
  const base = params.episode
    ? `/api/episodes/${encodeURIComponent(params.episode)}/view`
    : `${address("api", "datasets", params.d, params.split, params.i)}/view`;
  const { t: _, step: __, ...filter } = query;
  const { data, summary, error, reload } = useEpisode(base, filter);
  const [width, setWidth] = useStored("pane:list", Math.round(Math.min(230, 0.18 * innerWidth)));
  return html`<div class="workplace" style=${{ "--list": `${width}px` }}>
    <${EpisodeList} params=${params} filter=${filter} summary=${summary}
      isFailed=${Boolean(error)} onWhere=${(/** @type {string} */ where) => setQuery({ where })} />
    <${Divider} label="Width of the list" size=${width} min=${150} max=${600} onSize=${setWidth} />
    ${error
      ? html`<${LoadError} error=${error} onRetry=${reload} />`
      : !data || !summary
        ? html`<${Loading} label="Opening the episode…" />`
        : summary.num_steps === 0
          ? html`<${LoadError} error=${new Error("This episode has no steps.")} />`
          : params.episode
            ? html`<${Recorded} key=${base} id=${params.episode} data=${data} summary=${summary} query=${query} />`
            : html`<${Replay} key=${base} data=${data} summary=${summary} query=${query}
              back=${{
                href: address("datasets", params.d) + formatQuery({ split: params.split, where: query.where }),
                label: "Episodes",
              }} />`}
  </div>`;
}

/**
 * An episode that was recorded with this server.
 * @param {{id: string, data: EpisodeData, summary: EpisodeSummary, query: Record<string, string>}} props
 */
function Recorded({ id, data, summary, query }) {
  const me = useMe();
  const episode = useResource(`/api/episodes/${encodeURIComponent(id)}`);
  const row = episode.data;
  useEffect(() => {
    if (row) dispatchEvent(new CustomEvent("episode", { detail: row }));
  }, [row]);
  const canTag = row?.may ? row.may.includes("tag") : me.can("tag");
  const chips =
    row &&
    html`<${Fragment}>
      <${StateChip} state=${row.state} />
      ${row.success !== null &&
      row.success !== undefined &&
      html`<${Chip} tone=${row.success ? "good" : "bad"}>${row.success ? "it worked" : "it failed"}<//>`}
    <//>`;
  const subtitle =
    row &&
    html`<${Fragment}>
      ${[row.study_name, row.environment_name, row.person_name].filter(Boolean).join(" · ")}
      ${row.started > 0 && html`${" · "}<${Time} seconds=${row.started} />`}
      ${row.seconds > 0 && ` · ${formatDuration(row.seconds)}`}
    <//>`;
  return html`<${Replay} data=${data} summary=${summary} query=${query} back=${{ href: "/episodes", label: "Episodes" }}
    title=${row?.environment_name ? `${row.environment_name}, episode ${row.number + 1}` : undefined}
    chips=${chips} subtitle=${subtitle} onLabel=${episode.reload}
    notes=${row &&
    html`<${Notes} key=${id} episode=${row} canEdit=${canTag} onSaved=${(/** @type {any} */ saved) => {
      episode.set({ ...row, ...saved });
      toast("Notes saved.", { kind: "good" });
    }} />`}
    problem=${row?.error} />`;
}

/**
 * @param {{data: EpisodeData, summary: EpisodeSummary, query: Record<string, string>, title?: string, chips?: any,
 *   back: {href: string, label: string}, subtitle?: any, onLabel?: () => void, notes?: any, problem?: string}} props
 */
function Replay({
  data,
  summary,
  query,
  back,
  title = summary.title || "Episode",
  chips,
  subtitle,
  onLabel,
  notes,
  problem,
}) {
  const numSteps = summary.num_steps;
  const rate = useRate(data.page, summary);
  const startTimes = useMemo(() => stepTimes(numSteps, rate.fps, summary.times), [summary, rate.fps]);
  const pictures = usePictures(summary);
  const playback = usePlayback({
    numSteps,
    startTimes,
    first: Number(query.t ?? query.step ?? 0),
    isReady: (step) => data.isReady(step, pictures.chosen),
  });
  const { step, isPlaying, seek } = playback;
  const { zoom, onZoom, zoomKey } = useZoom(step, numSteps);
  usePrefetch(data, pictures.chosen, playback, numSteps);
  useStepInAddress(playback, query.t);
  useTitle(title);

  const { by, setName } = useAnnotator();
  const store = useLabels(data.base, by, onLabel);
  const canLabel = store.may_label;
  /** The layer of a text or a number that is being typed, with its step. */
  const [entry, setEntry] = useState(/** @type {{layer: Layer, step: number} | null} */ (null));
  const [isAsking, setIsAsking] = useState(false);
  const [showsKeys, setShowsKeys] = useState(false);
  const { scope, range, setScope, setRange, target } = useTarget();
  /** The label that waits for the name of the annotator. */
  const unsigned = useRef(/** @type {LabelValue | null} */ (null));
  const sign = () => {
    if (unsigned.current) store.add(unsigned.current);
    unsigned.current = null;
  };
  useEffect(() => {
    if (by !== "") sign();
  }, [by]);
  const apply = (/** @type {Layer} */ layer, /** @type {any} */ value, step = playback.latestStep()) => {
    const { name, title, type, whole: isEpisodeWide } = layer;
    const { scope, range } = target.current;
    const isRange = scope === "range" && range !== null;
    const [first, last] =
      isEpisodeWide || scope === "episode" ? [null, null] : isRange ? [range.first, range.last] : [step, step];
    unsigned.current = { layer: name, title, type, value, first, last };
    if (by === "") setIsAsking(true);
    else sign();
    // The next label applies to the step again, because people do not expect the range to stay.
    if (scope === "range" && !isEpisodeWide) setRange(null);
  };

  /**
   * Handles a key for labels; returns whether it has a function.
   * @param {{code: string, shiftKey: boolean, repeat: boolean}} event
   * @param {number} step
   * @param {{may_label: boolean, adds: string}} state
   * @param {Key[]} keys
   */
  const labelKey = ({ code, shiftKey, repeat }, step, { may_label: mayLabel, adds: addedKind }, keys) => {
    const key = repeat ? undefined : keys.find((it) => it.code === code);
    const isNot = shiftKey && key?.value === true && addedKind === "layer";
    if (mayLabel && key && (!shiftKey || isNot)) {
      if (key.value === undefined) setEntry({ layer: key.layer, step });
      else apply(key.layer, key.value !== true ? key.value : !isNot, step);
    } else if (mayLabel && code === "KeyI") setRange(moveRangeEnd(target.current.range, "first", step));
    else if (mayLabel && code === "KeyO") setRange(moveRangeEnd(target.current.range, "last", step));
    else return false;
    return true;
  };

  // A layout effect runs before the next key, so that fast keys apply to the new episode.
  useLayoutEffect(() => {
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      if (
        canLabel &&
        (event.ctrlKey || event.metaKey) &&
        event.code === "KeyZ" &&
        !(document.activeElement instanceof HTMLTextAreaElement || document.activeElement instanceof HTMLInputElement)
      ) {
        event.preventDefault();
        store.undo();
        return;
      }
      if (!isPageKey(event)) return;
      const step = playback.latestStep();
      if (event.key === "?") setShowsKeys(true);
      else if (
        labelKey(event, step, store, store.keys) ||
        playbackKey(event, playback, numSteps) ||
        zoomKey(event.code)
      ) {
        // One of the functions has handled the key.
      } else if (event.code === "Escape" && (target.current.range || target.current.scope !== "step")) setRange(null);
      else if (event.code === "KeyV") void save();
      else if (event.code === "KeyN" && summary.next) void navigate(summary.next);
      else if (event.code === "KeyB" && summary.previous) void navigate(summary.previous);
      else if (!store.isLoaded && /^(Key|Digit)/.test(event.code))
        store.postpone((state, keys) => labelKey(event, step, state, keys));
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });

  const bands = useMemo(() => {
    const labelled = store.labels
      .filter(({ first }) => first !== null)
      .map((label) => ({
        first: Number(label.first),
        last: label.last ?? Number(label.first),
        color: store.colorOf(label),
      }));
    return range && scope === "range" ? [...labelled, { ...range, color: "--accent", isFaint: true }] : labelled;
  }, [store.labels, store.keys, range, scope]);
  const select =
    canLabel && (store.adds === "tag" || store.layers.length > 0)
      ? (/** @type {number} */ first, /** @type {number} */ last) => setRange({ first, last })
      : undefined;

  const hasRewards = useMemo(() => summary.rewards.some((reward) => reward !== null), [summary]);
  const numbers = useMemo(
    () => summary.fields.filter(({ kind }) => ["number", "vector", "flag"].includes(kind)).map(({ path }) => path),
    [summary],
  );
  const [stored, setPlotted] = useStored(`curves:${numbers}`, hasRewards ? [] : numbers.slice(0, 1));
  const plotted = stored.filter((path) => numbers.includes(path));
  const togglePlot = (/** @type {string} */ path) =>
    setPlotted(plotted.includes(path) ? plotted.filter((other) => other !== path) : [...plotted, path]);
  const charts = { step, numSteps, bands, zoom, onZoom, onSeek: seek, onSelect: select };
  const numPlots = plotted.length + (hasRewards || select ? 1 : 0);
  const [chosenHeight, setHeight] = useStored("pane:curves", 0);
  const height = chosenHeight || Math.min(numPlots * PLOT_HEIGHT, Math.max(PLOT_HEIGHT, innerHeight - OTHER_HEIGHT));
  const [width, setWidth] = useStored("pane:side", Math.round(Math.min(340, 0.285 * innerWidth)));
  const [isSaving, setIsSaving] = useState(false);
  const save = async () => {
    if (isSaving || pictures.chosen.length === 0) return;
    setIsSaving(true);
    try {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await data.video(pictures.chosen, rate.by === "stated" ? null : rate.fps));
      link.download = `${title.replaceAll(/[^\p{L}\p{N}]+/gu, "_")}.mp4`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      if (rate.by === "assumed") toast(`The data has no rate. The video has ${rate.fps} steps/s.`);
    } catch (problem) {
      toastError(problem);
    }
    setIsSaving(false);
  };

  return html`<div class="replay" data-step=${step} style=${{ "--side": `${width}px`, "--curves": `${height}px` }}>
    <header class="replay-head">
      <div class="grow">
        <a class="back" href=${back.href}><${Icon} name="back" size=${15} /> ${back.label}</a>
        <h1 tabindex="-1">${title} ${chips && html`<span class="title-chips">${chips}</span>`}</h1>
        ${subtitle && html`<p class="quiet">${subtitle}</p>`}
      </div>
      <div class="actions">
        ${summary.previous &&
        html`<${Button} icon="previous" href=${summary.previous} title="Previous episode: B"
          aria-label="Previous episode" />`}
        ${summary.next &&
        html`<${Button} icon="next" href=${summary.next} title="Next episode: N" aria-label="Next episode" />`}
        <${Button} icon="compare" href=${`/compare?left=${encodeURIComponent(location.pathname)}`}>Compare<//>
        <${Button} onClick=${() => setShowsKeys(true)} title="Keyboard shortcuts: ?" aria-label="Keys"><kbd>?</kbd><//>
        <${IconButton} icon="link" kind="plain" label="Copy the link to this step" onClick=${() => copyLink(step)} />
      </div>
      ${problem && html`<p class="replay-problem"><${Icon} name="error" size=${16} /> ${problem}</p>`}
    </header>
    <div class="replay-main">
      <div class="viewer">
        <${Instruction} data=${data} summary=${summary} step=${step} />
        <${PictureChooser} ...${pictures} />
        ${pictures.chosen.length > 0 && html`<${Pictures} data=${data} step=${step} paths=${pictures.chosen} />`}
        <${Transport} playback=${playback} rate=${rate} numSteps=${numSteps}
          line=${html`<${LastChange} last=${store.last} />`}>
          ${pictures.chosen.length > 0 &&
          html`<${Button} size="small" icon="download" busy=${isSaving} onClick=${save}
            title="Save a video of the visible pictures, side by side: V">Video<//>`}
        <//>
        <${StepLine} data=${data} summary=${summary} step=${step} isPlaying=${isPlaying} store=${store} />
      </div>
      <${Divider} label="Height of the curves" isFlat=${true} isAfter=${true} size=${height} min=${150} max=${700}
        onSize=${setHeight} />
      <div class="charts">
        ${hasRewards && html`<${RewardChart} summary=${summary} ...${charts} />`}
        ${!hasRewards && select && html`<${StepsChart} ...${charts} />`}
        ${plotted.map(
          (path) =>
            html`<${FieldChart} key=${path} data=${data} path=${path} ...${charts}
              onClose=${() => togglePlot(path)} />`,
        )}
      </div>
    </div>
    <${Divider} label="Width of the values" isAfter=${true} size=${width} min=${220} max=${800} onSize=${setWidth} />
    <aside class="replay-side" aria-label="About this episode">
      <${Labels} store=${store} step=${step} numSteps=${numSteps} scope=${scope} setScope=${setScope} range=${range}
        setRange=${setRange} apply=${apply}
        entry=${entry?.layer ?? null}
        setEntry=${(/** @type {Layer | null} */ layer) => setEntry(layer && { layer, step: playback.latestStep() })}
        onEntry=${(/** @type {any} */ value) => entry && apply(entry.layer, value, entry.step)} by=${by}
        onName=${() => {
          unsigned.current = null;
          setIsAsking(true);
        }} onSeek=${seek} />
      ${notes}
      <${Values} data=${data} fields=${summary.fields} step=${step} plotted=${plotted} onPlot=${togglePlot} />
      <${Metadata} metadata=${summary.metadata} />
    </aside>
    ${isAsking && html`<${NameDialog} name=${by ?? ""} onName=${setName} onClose=${() => setIsAsking(false)} />`}
    ${showsKeys && html`<${Shortcuts} store=${store} onClose=${() => setShowsKeys(false)} />`}
  </div>`;
}
