/** Labels of an episode, of its steps and of ranges of steps. */
import { get, post, put, formatQuery, remove } from "../api.js";
import { COLORS } from "../chart.js";
import { EPISODE_STATES } from "../components.js";
import { useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { useMe } from "../session.js";
import { useStored } from "./panes.js";

/** @import { ShownLabel, ShownLayer } from "../api_types.js" */
/** @import { EpisodeLabels } from "../answers.js" */

/**
 * @typedef {Omit<ShownLayer, "title"> & {title?: string}} Layer
 * @typedef {ShownLayer["type"]} Type
 * @typedef {Pick<ShownLabel, "layer" | "type" | "first" | "last"> & {value: any, title?: string}} LabelValue
 * @typedef {ShownLabel & {title?: string}} Label
 * @typedef {{layer: Layer, value: any, code: string}} Key The label of a key; an undefined value has to be typed.
 * @typedef {{first: number, last: number}} Range
 * @typedef {"step" | "range" | "episode"} Scope
 */

/** The keys for layers without keys, in order of preference. */
const FREE_KEYS = [..."123456789"]
  .map((digit) => `Digit${digit}`)
  .concat([..."QWERTYUASDFGHJKLZXCMP"].map((letter) => `Key${letter}`));

/** @param {{first: number | null, last: number | null}} label */
export function formatPlace({ first, last }) {
  if (first === null) return "whole episode";
  return first === last || last === null ? `step ${first}` : `steps ${first}–${last}`;
}

/** @param {any} value */
export const titleOf = (value) => EPISODE_STATES[value]?.[0] ?? String(value);

/** @param {LabelValue} label */
export function textOf({ layer, title, type, value }) {
  const name = title || layer;
  if (type === "flag") return value ? name : `not ${name}`;
  return `${name}: ${titleOf(value)}`;
}

const GOOD_WORDS = /^(good|success|succeeded|successful|completed|accepted|correct|ok|pass|passed|yes)$/i;
const BAD_WORDS = /^(bad|failure|failed|fail|rejected|wrong|no|unusable|broken)$/i;

/** The tone of a label. @param {LabelValue} label @returns {"good" | "bad" | "plain"} */
export function labelTone({ layer, type, value }) {
  const word = type === "flag" ? layer : String(value);
  const isGood = GOOD_WORDS.test(word);
  if (!isGood && !BAD_WORDS.test(word)) return "plain";
  return isGood === (type !== "flag" || value) ? "good" : "bad";
}

/** The key of the colour of a label. @param {{layer: string, type: Type, value: any}} label */
const colorKey = ({ layer, type, value }) => (type === "choice" ? `${layer}: ${value}` : layer);

/** @param {LabelValue} label @param {LabelValue} other */
export const isSame = (label, other) =>
  label.layer === other.layer && label.type === other.type && label.first === other.first && label.last === other.last;

/**
 * Assigns keys to layers.
 * @param {Layer[]} layers
 * @returns {Key[]}
 */
export function assignKeys(layers) {
  const keys = layers.flatMap((layer) =>
    (layer.choices.length > 0 ? layer.choices : [layer.type === "flag" ? true : undefined]).map((value, index) => ({
      layer,
      value,
      code: layer.keys[index] ?? "",
    })),
  );
  const taken = new Set(keys.map(({ code }) => code));
  const free = FREE_KEYS.filter((code) => !taken.has(code));
  return keys.map((key) => ({ ...key, code: key.code || (free.shift() ?? "") }));
}

/** The name of the annotator, from this browser or from the command line. */
export function useAnnotator() {
  const me = useMe();
  const [name, setName] = useStored("annotator", "");
  return { by: me.mode === "view" ? name || me.by || "" : undefined, setName };
}

/**
 * The labels of an episode, and functions that change them.
 * @param {string} base The address of the data of the episode.
 * @param {string | undefined} by The name of the annotator, for servers without accounts.
 * @param {() => void} [onChange]
 */
export function useLabels(base, by, onChange) {
  const [state, setState] = useState(
    /** @type {Omit<EpisodeLabels, "adds"> & {adds: EpisodeLabels["adds"] | ""}} */ ({
      layers: [],
      labels: [],
      adds: "",
      may_label: false,
      why_not: "",
    }),
  );
  const isLoaded = state.adds !== "";
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  /** The last change, with a function that undoes it. */
  const [last, setLast] = useState(/** @type {{text: string, isBad?: boolean, undo?: () => void} | null} */ (null));
  const undos = useRef(/** @type {(() => void)[]} */ ([]));
  // People press keys fast, so changes run one after the other, each on the latest state.
  const latest = useRef({
    state,
    previous: Promise.resolve(),
    waiting: /** @type {((state: EpisodeLabels, keys: Key[]) => void)[]} */ ([]),
  });
  const show = (/** @type {typeof state} */ next) => {
    latest.current.state = next;
    setState(next);
  };
  const path = (/** @type {string} */ end) => `${base}/${end}${formatQuery({ by })}`;
  const reload = useCallback(async () => {
    const { waiting } = latest.current;
    try {
      /** @type {EpisodeLabels} */
      const next = await get(path("labels"));
      show(next);
      setError(null);
      for (const change of waiting.splice(0)) change(next, assignKeys(next.layers));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
      const text = "The labels did not load: press the keys again.";
      if (waiting.splice(0).length > 0) setLast({ text, isBad: true });
    }
  }, [base, by]);
  /**
   * Postpones a change until the labels are loaded, also if the page shows another episode by then.
   * @param {(state: EpisodeLabels, keys: Key[]) => void} change
   */
  const postpone = (change) => void latest.current.waiting.push(change);
  useEffect(() => {
    void reload();
    // Other people may label the same episode.
    const look = () => void (document.hidden || reload());
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [reload]);

  /**
   * Runs a change, and shows it as the last change.
   * @param {string} text
   * @param {() => Promise<(() => Promise<any>) | null>} change Returns the function that undoes the
   *   change; null if nothing changed.
   * @param {boolean} [isFinal] Whether the change cannot be undone.
   */
  const run = (text, change, isFinal = false) => {
    latest.current.previous = latest.current.previous.then(async () => {
      try {
        const revert = await change();
        const undoOnce = () => {
          const index = undos.current.indexOf(undoOnce);
          if (index < 0) return;
          undos.current.splice(index, 1);
          run(`Undone: ${text}`, async () => revert && (await revert()), true);
        };
        if (revert && !isFinal) undos.current.push(undoOnce);
        setLast({
          text: revert || isFinal ? text : `${text}: already set`,
          undo: revert && !isFinal ? undoOnce : undefined,
        });
        onChange?.();
      } catch (problem) {
        setLast({ text: /** @type {Error} */ (problem).message, isBad: true });
      }
      await reload();
    });
  };
  const send = (/** @type {LabelValue} */ { layer, type, value, first, last: end }) =>
    post(path("labels"), { layer, type, value, first, last: end });
  const add = (/** @type {LabelValue} */ label) =>
    run(`“${textOf(label)}”, ${formatPlace(label)}`, async () => {
      const { labels, adds: addedKind } = latest.current.state;
      // All people share a tag; other labels exist once for each person.
      const old = labels.find((it) => isSame(it, label) && it.decides !== false && (it.is_mine || addedKind === "tag"));
      if (old?.is_mine && old.value === label.value) return null;
      const created = await send(label);
      return () => (old ? send(old) : remove(path(`labels/${created.id}`)));
    });
  const removeLabel = (/** @type {Label} */ label) =>
    run(`Removed “${textOf(label)}”, ${formatPlace(label)}`, async () => {
      await remove(path(`labels/${label.id}`));
      return () => post(path(`labels/${label.id}`));
    });
  const declare = async (/** @type {Layer} */ layer) => {
    show(await put(path("layers"), layer));
    dispatchEvent(new Event("layers"));
  };
  const undo = () => undos.current.at(-1)?.();

  const keys = useMemo(() => assignKeys(state.layers), [state.layers]);
  const colors = useMemo(() => {
    const names = [
      ...keys.map(({ layer, value }) => colorKey({ layer: layer.name, type: layer.type, value })),
      ...state.labels.map(colorKey).sort(),
    ];
    return new Map([...new Set(names)].map((name, index) => [name, COLORS[(index + 1) % COLORS.length]]));
  }, [keys, state.labels]);
  const colorOf = (/** @type {LabelValue} */ label) => {
    const tone = labelTone(label);
    // Verdicts that are neither good nor bad are grey.
    if (tone === "plain" && EPISODE_STATES[label.value]) return "--quiet";
    return tone === "plain" ? (colors.get(colorKey(label)) ?? COLORS[1]) : `--${tone}`;
  };
  const labels = useMemo(() => {
    const titles = new Map(state.layers.map(({ name, title }) => [name, title]));
    return state.labels.map((label) => ({ ...label, title: titles.get(label.layer) }));
  }, [state]);
  return { ...state, labels, isLoaded, postpone, keys, colorOf, error, last, add, removeLabel, declare, undo };
}

/**
 * Moves an end of a range; an end that passes the other end moves both.
 * @param {Range | null} range
 * @param {"first" | "last"} end
 * @param {number} step
 * @returns {Range}
 */
export function moveRangeEnd(range, end, step) {
  const { first, last } = range ?? { first: step, last: step };
  return end === "first" ? { first: step, last: Math.max(last, step) } : { first: Math.min(first, step), last: step };
}
