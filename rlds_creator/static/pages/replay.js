/** An episode, step by step: pictures, rewards, values, and its labels. */
import { queryOf, useResource } from "../api.js";
import { COLORS, Chart, useZoom } from "../chart.js";
import { Button, Chip, Dialog, Failed, Icon, IconButton, Loading, StateChip, Time, toast, toastError, useTitle } from "../components.js";
import { formatCount, formatDuration, formatNumber, keyName } from "../format.js";
import { Fragment, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { address, navigate, setQuery } from "../router.js";
import { useMe } from "../session.js";
import { EpisodeData } from "../view/episode.js";
import { Labels, LastChange, NameDialog, rangeWith, textOf, useAnnotator, useLabels } from "../view/labels.js";
import { EpisodeList } from "../view/list.js";
import { Notes } from "../view/notes.js";
import { Divider, useStored } from "../view/panes.js";
import { Pictures } from "../view/picture.js";
import { beginnings, isForPage, playKey, usePlayback } from "../view/playback.js";
import { Transport, useRate } from "../view/transport.js";
import { Values, pretty, useValues } from "../view/values.js";

/** @typedef {import("../view/episode.js").Outline} Outline */

/** How many pictures are asked for before they are needed. */
const AHEAD = 10;
const MOST_CURVES = 12;
/** So many cameras are shown at first. */
const MOST_PICTURES = 9;

/** @param {{params: Record<string, string>, query: Record<string, string>}} props */
export default function ReplayPage({ params, query }) {
  const base = params.episode
    ? `/api/episodes/${encodeURIComponent(params.episode)}/view`
    : `/api/datasets/${encodeURIComponent(params.d)}/${encodeURIComponent(params.split)}/${encodeURIComponent(params.i)}/view`;
  const { t: _, ...filter } = query;
  const { data, outline, error, reload } = useEpisode(base, filter);
  const [width, setWidth] = useStored("pane:list", 230);
  return html`<div class="workplace" style=${{ "--list": `${width}px` }}>
    <${EpisodeList} params=${params} filter=${filter} outline=${outline} onWhere=${(/** @type {string} */ where) => setQuery({ where })} />
    <${Divider} label="Width of the list" size=${width} least=${150} most=${600} onSize=${setWidth} />
    ${error
      ? html`<${Failed} error=${error} onRetry=${reload} />`
      : !data || !outline
        ? html`<${Loading} label="The episode is opened…" />`
        : outline.num_steps === 0
          ? html`<${Failed} error=${new Error("This episode has no steps.")} />`
          : params.episode
            ? html`<${Recorded} key=${base} id=${params.episode} data=${data} outline=${outline} query=${query} />`
            : html`<${Replay} key=${base} data=${data} outline=${outline} query=${query} back=${{ href: address("datasets", params.d) + queryOf({ split: params.split, where: query.where }), label: "Episodes" }} />`}
  </div>`;
}

/**
 * Opens an episode.
 * @param {string | null} base
 * @param {Record<string, string>} [filter] Of the list in which it is one.
 */
export function useEpisode(base, filter) {
  const [state, setState] = useState(/** @type {{data: EpisodeData | null, outline: Outline | null, error: Error | null}} */ ({ data: null, outline: null, error: null }));
  const [tries, setTries] = useState(0);
  useEffect(() => {
    setState({ data: null, outline: null, error: null });
    if (base === null) return undefined;
    const controller = new AbortController();
    const data = new EpisodeData(base, filter);
    /** The rewards of a long episode come in parts. @param {Outline} outline */
    const show = (outline) => {
      setState({ data, outline, error: null });
      if (outline.is_complete === false) data.load(controller.signal, 3).then(show, () => {});
    };
    data.load(controller.signal).then(show, (error) => controller.signal.aborted || setState({ data: null, outline: null, error }));
    return () => {
      controller.abort();
      data.close();
    };
  }, [base, tries, JSON.stringify(filter)]);
  // What is said now is not meant for the episode before.
  const isOther = state.data !== null && state.data.page !== base;
  return { ...state, ...(isOther && { data: null, outline: null }), reload: () => setTries(tries + 1) };
}

/**
 * Which pictures are shown, and which are there.
 * @param {Outline} outline
 */
export function usePictures(outline) {
  const paths = useMemo(() => outline.fields.filter(({ kind }) => kind === "picture").map(({ path }) => path), [outline]);
  const [chosen, setChosen] = useStored(`pictures:${paths}`, outline.shown ? [outline.shown] : paths.slice(0, MOST_PICTURES));
  const toggle = (/** @type {string} */ path) => {
    const next = paths.filter((one) => (one === path) !== chosen.includes(one));
    if (next.length > 0) setChosen(next);
  };
  return { paths, chosen, toggle };
}

/**
 * Asks for the pictures that come next.
 * @param {EpisodeData} data
 * @param {string[]} paths
 * @param {import("../view/playback.js").Playback} playback
 * @param {number} numSteps
 */
export function usePrefetch(data, paths, playback, numSteps) {
  const { step, isPlaying, speed } = playback;
  useEffect(() => {
    const stride = isPlaying ? Math.max(1, Math.round(speed)) : 1;
    const ahead = isPlaying ? Math.min(AHEAD, Math.max(2, Math.floor(data.pictures.most / (2 * paths.length)))) : 2;
    for (let place = 1; place <= ahead; place++) {
      const next = step + place * stride;
      if (next < numSteps) for (const path of paths) data.picture(next, path);
    }
  }, [data, paths, step, isPlaying, speed, numSteps]);
}

/** Pictures to choose from. @param {{paths: string[], chosen: string[], toggle: (path: string) => void}} props */
export function PictureChooser({ paths, chosen, toggle }) {
  if (paths.length < 2) return null;
  return html`<div class="picture-chooser" role="group" aria-label="Pictures">
    ${paths.map(
      (path) => html`<button key=${path} type="button" class="picture-choice" aria-pressed=${String(chosen.includes(path))} onClick=${() => toggle(path)}>${shortName(path, paths)}</button>`,
    )}
  </div>`;
}

/** @param {string} path @param {string[]} paths */
function shortName(path, paths) {
  const name = path.split("/").at(-1) ?? path;
  return paths.filter((one) => one.split("/").at(-1) === name).length === 1 ? name : path;
}

/** An episode that was recorded here. @param {{id: string, data: EpisodeData, outline: Outline, query: Record<string, string>}} props */
function Recorded({ id, data, outline, query }) {
  const me = useMe();
  const episode = useResource(`/api/episodes/${encodeURIComponent(id)}`);
  const row = episode.data;
  useEffect(() => {
    if (row) dispatchEvent(new CustomEvent("episode", { detail: row }));
  }, [row]);
  const canTag = row?.may ? row.may.includes("tag") : me.can("tag");
  const chips = row && html`<${Fragment}>
    <${StateChip} state=${row.state} />
    ${row.success !== null && row.success !== undefined && html`<${Chip} tone=${row.success ? "good" : "bad"}>${row.success ? "it worked" : "it failed"}<//>`}
  <//>`;
  const subtitle = row && html`<${Fragment}>
    ${[row.study_name, row.environment_name, row.person_name].filter(Boolean).join(" · ")}${row.started > 0 && html`${" · "}<${Time} seconds=${row.started} />`}
    ${row.seconds > 0 && ` · ${formatDuration(row.seconds)}`}
  <//>`;
  return html`<${Replay} data=${data} outline=${outline} query=${query} back=${{ href: "/episodes", label: "Episodes" }}
    title=${row?.environment_name ? `${row.environment_name}, episode ${row.number + 1}` : undefined}
    chips=${chips} subtitle=${subtitle} onLabel=${episode.reload}
    notes=${row && html`<${Notes} key=${id} episode=${row} canEdit=${canTag} onSaved=${(/** @type {any} */ saved) => {
      episode.set({ ...row, ...saved });
      toast("Notes saved.", { kind: "good" });
    }} />`}
    problem=${row?.error} />`;
}

/**
 * @param {{data: EpisodeData, outline: Outline, query: Record<string, string>, back: {href: string, label: string}, title?: string,
 *   chips?: any, subtitle?: any, onLabel?: () => void, notes?: any, problem?: string}} props
 */
function Replay({ data, outline, query, back, title = outline.title || "Episode", chips, subtitle, onLabel, notes, problem }) {
  const numSteps = outline.num_steps;
  const rate = useRate(data.page, outline);
  const begins = useMemo(() => beginnings(numSteps, rate.fps, outline.times), [outline, rate.fps]);
  const pictures = usePictures(outline);
  const playback = usePlayback({ numSteps, begins, first: Number(query.t ?? 0), isReady: (step) => data.isReady(step, pictures.chosen) });
  const { step, isPlaying, seek } = playback;
  const { zoom, onZoom, zoomKey } = useZoom(step, numSteps);
  usePrefetch(data, pictures.chosen, playback, numSteps);
  useStepInAddress(playback, query.t);
  useTitle(title);

  const { by, setName } = useAnnotator();
  const store = useLabels(data.base, by, onLabel);
  const canLabel = store.may_label;
  /** A text or a number that is typed, with the step that it is of. */
  const [entry, setEntry] = useState(/** @type {{layer: import("../view/labels.js").Layer, step: number} | null} */ (null));
  const [isAsking, setIsAsking] = useState(false);
  const [showsKeys, setShowsKeys] = useState(false);
  const { scope, range, setScope, setRange, target } = useTarget();
  /** The label that waits for the name of who labels. */
  const unsigned = useRef(/** @type {import("../view/labels.js").Said | null} */ (null));
  const sign = () => {
    if (unsigned.current) store.add(unsigned.current);
    unsigned.current = null;
  };
  useEffect(() => {
    if (by !== "") sign();
  }, [by]);
  const apply = (/** @type {import("../view/labels.js").Layer} */ { name, title, type, whole }, /** @type {any} */ value, step = playback.at()) => {
    const { scope, range } = target.current;
    const isRange = scope === "range" && range !== null;
    const [first, last] = whole || scope === "episode" ? [null, null] : isRange ? [range.first, range.last] : [step, step];
    unsigned.current = { layer: name, title, type, value, first, last };
    if (by === "") setIsAsking(true);
    else sign();
    // The next one is for the step again: a range that stays is one that surprises.
    if (scope === "range" && !whole) setRange(null);
  };

  /**
   * Does what a key does with labels; whether it does anything.
   * @param {{code: string, shiftKey: boolean, repeat: boolean}} event
   * @param {number} step
   * @param {{may_label: boolean, adds: string}} state
   * @param {import("../view/labels.js").Key[]} keys
   */
  const labelKey = ({ code, shiftKey, repeat }, step, { may_label: may, adds }, keys) => {
    const key = repeat ? undefined : keys.find((one) => one.code === code);
    const isNot = shiftKey && key?.value === true && adds === "layer";
    if (may && key && (!shiftKey || isNot)) {
      if (key.value === undefined) setEntry({ layer: key.layer, step });
      else apply(key.layer, key.value !== true ? key.value : !isNot, step);
    } else if (may && code === "KeyI") setRange(rangeWith(target.current.range, "first", step));
    else if (may && code === "KeyO") setRange(rangeWith(target.current.range, "last", step));
    else return false;
    return true;
  };

  // A key that comes as soon as an episode is shown is for that one.
  useLayoutEffect(() => {
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      if (canLabel && (event.ctrlKey || event.metaKey) && event.code === "KeyZ" && !(document.activeElement instanceof HTMLTextAreaElement || document.activeElement instanceof HTMLInputElement)) {
        event.preventDefault();
        store.undo();
        return;
      }
      if (!isForPage(event)) return;
      const step = playback.at();
      if (event.key === "?") setShowsKeys(true);
      else if (labelKey(event, step, store, store.keys) || playKey(event, playback, numSteps) || zoomKey(event.code)) {
        // Done.
      } else if (event.code === "Escape" && (target.current.range || target.current.scope !== "step")) setRange(null);
      else if (event.code === "KeyV") void save();
      else if (event.code === "KeyN" && outline.next) void navigate(outline.next);
      else if (event.code === "KeyB" && outline.previous) void navigate(outline.previous);
      else if (!store.isLoaded && /^(Key|Digit)/.test(event.code)) store.hold((state, keys) => labelKey(event, step, state, keys));
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });

  const bands = useMemo(() => {
    const labelled = store.labels.filter(({ first }) => first !== null).map((label) => ({ first: Number(label.first), last: label.last ?? Number(label.first), color: store.colorOf(label) }));
    return range && scope === "range" ? [...labelled, { ...range, color: "--accent", isFaint: true }] : labelled;
  }, [store.labels, store.keys, range, scope]);
  const select = canLabel && (store.adds === "tag" || store.layers.length > 0) ? (/** @type {number} */ first, /** @type {number} */ last) => setRange({ first, last }) : undefined;

  const hasRewards = useMemo(() => outline.rewards.some((reward) => reward !== null), [outline]);
  const numbers = useMemo(() => outline.fields.filter(({ kind }) => ["number", "vector", "flag"].includes(kind)).map(({ path }) => path), [outline]);
  const [stored, setPlotted] = useStored(`curves:${numbers}`, hasRewards ? [] : numbers.slice(0, 1));
  const plotted = stored.filter((path) => numbers.includes(path));
  const togglePlot = (/** @type {string} */ path) => setPlotted(plotted.includes(path) ? plotted.filter((one) => one !== path) : [...plotted, path]);
  const charts = { step, numSteps, bands, zoom, onZoom, onSeek: seek, onSelect: select };
  const [height, setHeight] = useStored("pane:curves", 250);
  const [width, setWidth] = useStored("pane:side", 340);
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
      if (rate.by === "assumed") toast(`The data states no rate: the video has ${rate.fps} steps/s.`);
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
        ${outline.previous && html`<${Button} icon="previous" href=${outline.previous} title="The episode before: B" aria-label="The episode before" />`}
        ${outline.next && html`<${Button} icon="next" href=${outline.next} title="The next episode: N" aria-label="The next episode" />`}
        <${Button} icon="compare" href=${`/compare?left=${encodeURIComponent(location.pathname)}`}>Compare<//>
        <${Button} onClick=${() => setShowsKeys(true)} title="What the keys do: ?" aria-label="Keys"><kbd>?</kbd><//>
        <${IconButton} icon="link" kind="plain" label="Copy the link to this step" onClick=${() => copyLink(step)} />
      </div>
      ${problem && html`<p class="replay-problem"><${Icon} name="error" size=${16} /> ${problem}</p>`}
    </header>
    <div class="replay-main">
      <div class="viewer">
        <${PictureChooser} ...${pictures} />
        ${pictures.chosen.length > 0 && html`<${Pictures} data=${data} step=${step} paths=${pictures.chosen} />`}
        <${Transport} playback=${playback} rate=${rate} numSteps=${numSteps} line=${html`<${LastChange} last=${store.last} />`}>
          ${pictures.chosen.length > 0 && html`<${Button} size="small" icon="download" busy=${isSaving} onClick=${save} title="Save a video of the pictures that are shown, side by side: V">Video<//>`}
        <//>
        <${StepLine} data=${data} outline=${outline} step=${step} isPlaying=${isPlaying} store=${store} />
      </div>
      <${Divider} label="Height of the curves" isFlat=${true} isAfter=${true} size=${height} least=${100} most=${700} onSize=${setHeight} />
      <div class="charts">
        ${hasRewards && html`<${RewardChart} outline=${outline} ...${charts} />`}
        ${!hasRewards && select && html`<${StepsChart} ...${charts} />`}
        ${plotted.map((path) => html`<${FieldChart} key=${path} data=${data} path=${path} ...${charts} onClose=${() => togglePlot(path)} />`)}
      </div>
    </div>
    <${Divider} label="Width of the values" isAfter=${true} size=${width} least=${220} most=${800} onSize=${setWidth} />
    <aside class="replay-side" aria-label="About this episode">
      <${Labels} store=${store} step=${step} numSteps=${numSteps} scope=${scope} setScope=${setScope} range=${range} setRange=${setRange} apply=${apply}
        entry=${entry?.layer ?? null} setEntry=${(/** @type {import("../view/labels.js").Layer | null} */ layer) => setEntry(layer && { layer, step: playback.at() })}
        onEntry=${(/** @type {any} */ value) => entry && apply(entry.layer, value, entry.step)} by=${by} onName=${() => { unsigned.current = null; setIsAsking(true); }} onSeek=${seek} />
      ${notes}
      <${Values} data=${data} fields=${outline.fields} step=${step} plotted=${plotted} onPlot=${togglePlot} />
      <${Metadata} metadata=${outline.metadata} />
    </aside>
    ${isAsking && html`<${NameDialog} name=${by ?? ""} onName=${setName} onClose=${() => setIsAsking(false)} />`}
    ${showsKeys && html`<${Shortcuts} store=${store} onClose=${() => setShowsKeys(false)} />`}
  </div>`;
}

/** What a tag goes to. `target` has it also when the page is not drawn again yet after keys that follow fast. */
function useTarget() {
  const [state, setState] = useState({
    scope: /** @type {import("../view/labels.js").Scope} */ ("step"),
    range: /** @type {import("../view/labels.js").Range | null} */ (null),
  });
  const target = useRef(state);
  const change = (/** @type {typeof state} */ next) => {
    target.current = next;
    setState(next);
  };
  return {
    ...state,
    target,
    setScope: (/** @type {typeof state.scope} */ scope) => change({ ...target.current, scope }),
    setRange: (/** @type {typeof state.range} */ range) => change({ scope: range ? "range" : "step", range }),
  };
}

/**
 * The rewards, flags and labels of a step in words, for those who do not see the chart.
 * @param {{data: EpisodeData, outline: Outline, step: number, isPlaying: boolean, store: ReturnType<typeof useLabels>}} props
 */
function StepLine({ data, outline, step, isPlaying, store }) {
  const totals = useMemo(() => runningTotal(outline.rewards), [outline]);
  const reward = outline.rewards[step];
  const { values } = useValues(data, step);
  const isOn = (/** @type {string} */ path) => values?.[path] === true;
  const flags = outline.fields.filter(({ path, kind }) => kind === "flag" && !path.includes("/") && isOn(path)).map(({ path }) => path.replace(/^is_|^tag:/, ""));
  if (isOn("is_last") && values?.is_terminal === false && !flags.includes("truncated")) flags.push("truncated");
  const labels = store.labels.filter(({ first, last }) => first !== null && step >= first && step <= (last ?? first));
  return html`<p class="step-line" aria-live=${isPlaying ? "off" : "polite"}>
    ${outline.rewards.some((one) => one !== null) &&
    html`<span>Reward <strong>${formatNumber(reward)}</strong></span>
      <span>So far <strong>${formatNumber(totals[step])}</strong> <span class="quiet">of ${formatNumber(totals.at(-1))}</span></span>`}
    ${flags.map((name) => html`<${Chip} key=${name} tone="accent">${name}<//>`)}
    ${labels.map((label) => html`<span class="step-tag" key=${label.id}><span class="dot" style=${{ "--color": `var(${store.colorOf(label)})` }}></span>${textOf(label)}</span>`)}
  </p>`;
}

/** @param {(number | null)[]} rewards */
export function runningTotal(rewards) {
  let total = 0;
  return rewards.map((reward) => (total += reward ?? 0));
}

/** @param {any} props */
function RewardChart({ outline, ...rest }) {
  const steps = useMemo(() => outline.rewards.map((_, index) => index), [outline]);
  const curves = useMemo(
    () => [
      { name: "reward", values: outline.rewards, color: "--fill", shape: /** @type {const} */ ("bars") },
      { name: "sum of rewards", values: runningTotal(outline.rewards), color: "--second", isRight: true },
    ],
    [outline],
  );
  return html`<section class="chart-part">
    <header><h2>Rewards</h2><${Legend} curves=${curves} /><span class="hint chart-hint">Click: go there. Drag: ${rest.onSelect ? "range" : "zoom"}. Wheel: zoom.</span></header>
    <${Chart} label="Rewards over the steps" steps=${steps} curves=${curves} ...${rest} />
  </section>`;
}

/** Where ranges are chosen when there are no rewards. @param {any} props */
function StepsChart(rest) {
  const steps = useMemo(() => [0, Math.max(rest.numSteps - 1, 1)], [rest.numSteps]);
  const curves = useMemo(() => [{ name: "", values: [null, null] }], []);
  return html`<section class="chart-part"><header><h2>Steps</h2></header>
    <${Chart} label="The steps" steps=${steps} curves=${curves} ...${rest} />
  </section>`;
}

/** @param {{curves: {name: string, color?: string}[]}} props */
export function Legend({ curves }) {
  return html`<span class="legend">${curves.map(({ name, color = COLORS[0] }) => html`<span key=${name}><span class="dot" style=${{ "--color": `var(${color})` }}></span>${name}</span>`)}</span>`;
}

/** @param {any} props */
function FieldChart({ data, path, onClose, ...rest }) {
  const [series, setSeries] = useState(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  useEffect(() => {
    data.series(path).then(setSeries, (/** @type {Error} */ error) => setProblem(error.message));
  }, [data, path]);
  const curves = useMemo(
    () =>
      series?.series.slice(0, MOST_CURVES).map((/** @type {any} */ values, /** @type {number} */ index) => ({
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
      ${series && series.series.length > MOST_CURVES && html`<span class="hint">the first ${MOST_CURVES} of ${formatCount(series.series.length)}</span>`}
      <span class="grow"></span>
      <${IconButton} icon="close" size="small" label=${`Remove the curve of ${path}`} onClick=${onClose} />
    </header>
    ${problem ? html`<p class="hint">${problem}</p>` : curves ? html`<${Chart} label=${`${path} over the steps`} steps=${series.steps} curves=${curves} ...${rest} />` : html`<${Loading} />`}
  </section>`;
}

/** @param {{metadata: Record<string, any>}} props */
function Metadata({ metadata }) {
  const entries = Object.entries(metadata ?? {});
  if (entries.length === 0) return null;
  return html`<details class="panel metadata">
    <summary><h2>Metadata</h2></summary>
    <dl>
      ${entries.map(
        ([name, value]) => html`<div key=${name}>
          <dt>${name}</dt>
          <dd>${value !== null && typeof value === "object" ? html`<pre class="json">${pretty(value)}</pre>` : typeof value === "number" ? String(value) : String(value ?? "–")}</dd>
        </div>`,
      )}
    </dl>
  </details>`;
}

/** What the keys do. @param {{store: ReturnType<typeof useLabels>, onClose: () => void}} props */
function Shortcuts({ store, onClose }) {
  const keys = [
    ["Space", "play, pause"],
    ["← →", "one step"],
    ["Shift ← →", "ten steps"],
    ["↑ ↓", "faster, slower"],
    ["Home End", "first, last step"],
    ["B N", "episode before, next"],
    ["+ - 0", "zoom the curves, all"],
    ["V", "save a video"],
    ...(store.may_label ? [["I O", "begin, end a range"], ["Esc", "no range"], ["Ctrl Z", "undo"]] : []),
  ];
  const says = store.keys.filter(({ code }) => code && store.may_label).map(({ layer, value, code }) => {
    const text = value === undefined ? `${layer.title || layer.name}…` : textOf({ layer: layer.name, title: layer.title, type: layer.type, value, first: null, last: null });
    return [keyName(code), layer.doc ? `${text}: ${layer.doc}` : text];
  });
  if (store.adds === "layer" && store.keys.some(({ value }) => value === true)) says.push(["Shift", "with the key of a flag: not so"]);
  const list = (/** @type {string[][]} */ all, /** @type {boolean} */ isWhole) => html`<dl>${all.map(([names, does]) => html`<div key=${`${names} ${does}`}><dt>${(isWhole ? [names] : names.split(" ")).map((name) => html`<kbd key=${name}>${name}</kbd>`)}</dt><dd>${does}</dd></div>`)}</dl>`;
  return html`<${Dialog} title="Keys" class="shortcuts" onClose=${onClose}>
    ${says.length > 0 && html`<h3>Labels</h3>${list(says, true)}`}
    <h3>The episode</h3>${list(keys, false)}
  <//>`;
}

/**
 * Keeps the step in the address, and follows it when somebody goes back.
 * @param {import("../view/playback.js").Playback} playback
 * @param {string | undefined} t
 */
function useStepInAddress({ step, isPlaying, seek }, t) {
  const written = useRef(t);
  useEffect(() => {
    if (isPlaying) return undefined;
    // Browsers refuse pages that change their address all the time.
    const timer = setTimeout(() => {
      const next = step === 0 && written.current === undefined ? undefined : String(step);
      if (next === written.current) return;
      written.current = next;
      setQuery({ t: next });
    }, 250);
    return () => clearTimeout(timer);
  }, [step, isPlaying]);
  useEffect(() => {
    // The page may be drawn later than its address changes: what it says now counts.
    const now = new URLSearchParams(location.search).get("t") ?? undefined;
    if (now === written.current) return;
    written.current = now;
    seek(Number(now ?? 0));
  }, [t]);
}

/** @param {number} step */
async function copyLink(step) {
  const url = new URL(location.href);
  url.searchParams.set("t", String(step));
  try {
    await navigator.clipboard.writeText(url.href);
    toast(`The link to step ${step} is copied.`, { kind: "good" });
  } catch {
    toastError(new Error("The browser does not allow copying here. The address of the page is the link."));
  }
}
