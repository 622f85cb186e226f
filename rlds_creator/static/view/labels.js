/** Labels of an episode, of its steps and of ranges of them: what there is, and what changes it. */
import { get, post, put, queryOf, remove } from "../api.js";
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
 * @typedef {{layer: Layer, value: any, code: string}} Key What a key says; it asks for the value if that is undefined.
 * @typedef {{first: number, last: number}} Range
 * @typedef {"step" | "range" | "episode"} Scope
 */

/** Keys of layers that have none, in the order in which they are given; and those that do something else. */
const FREE = [..."123456789"]
  .map((digit) => `Digit${digit}`)
  .concat([..."QWERTYUASDFGHJKLZXCMP"].map((letter) => `Key${letter}`));

/** @param {{first: number | null, last: number | null}} label */
export function placeOf({ first, last }) {
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

const GOOD = /^(good|success|succeeded|successful|completed|accepted|correct|ok|pass|passed|yes)$/i;
const BAD = /^(bad|failure|failed|fail|rejected|wrong|no|unusable|broken)$/i;

/** Whether a label is good or bad news. @param {LabelValue} label @returns {"good" | "bad" | "plain"} */
export function toneOf({ layer, type, value }) {
  const word = type === "flag" ? layer : String(value);
  const isGood = GOOD.test(word);
  if (!isGood && !BAD.test(word)) return "plain";
  return isGood === (type !== "flag" || value) ? "good" : "bad";
}

/** What has a colour of its own. @param {{layer: string, type: Type, value: any}} label */
const colorKey = ({ layer, type, value }) => (type === "choice" ? `${layer}: ${value}` : layer);

/** @param {LabelValue} one @param {LabelValue} other */
export const isSame = (one, other) =>
  one.layer === other.layer && one.type === other.type && one.first === other.first && one.last === other.last;

/**
 * What the keys say.
 * @param {Layer[]} layers
 * @returns {Key[]}
 */
export function keysOf(layers) {
  const keys = layers.flatMap((layer) =>
    (layer.choices.length > 0 ? layer.choices : [layer.type === "flag" ? true : undefined]).map((value, place) => ({
      layer,
      value,
      code: layer.keys[place] ?? "",
    })),
  );
  const taken = new Set(keys.map(({ code }) => code));
  const free = FREE.filter((code) => !taken.has(code));
  return keys.map((key) => ({ ...key, code: key.code || (free.shift() ?? "") }));
}

/** What who labels is called: what was said in this browser, or on the command line. */
export function useAnnotator() {
  const me = useMe();
  const [name, setName] = useStored("annotator", "");
  return { by: me.mode === "view" ? name || me.by || "" : undefined, setName };
}

/**
 * The labels of an episode, and what changes them.
 * @param {string} base Where the data of the episode are.
 * @param {string | undefined} by Who labels, if the server does not know.
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
  /** What was changed last, and what takes it back. */
  const [last, setLast] = useState(/** @type {{words: string, isBad?: boolean, undo?: () => void} | null} */ (null));
  const undos = useRef(/** @type {(() => void)[]} */ ([]));
  // Keys may follow fast: one change is made after the other, each of what is there then.
  const now = useRef({
    state,
    before: Promise.resolve(),
    held: /** @type {((state: EpisodeLabels, keys: Key[]) => void)[]} */ ([]),
  });
  const show = (/** @type {typeof state} */ next) => {
    now.current.state = next;
    setState(next);
  };
  const path = (/** @type {string} */ end) => `${base}/${end}${queryOf({ by })}`;
  const reload = useCallback(async () => {
    const held = now.current.held;
    try {
      /** @type {EpisodeLabels} */
      const next = await get(path("labels"));
      show(next);
      setError(null);
      for (const change of held.splice(0)) change(next, keysOf(next.layers));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
      if (held.splice(0).length > 0) setLast({ words: "The labels did not load: press the keys again.", isBad: true });
    }
  }, [base, by]);
  /**
   * Does something with the labels when they come, also if the page shows another episode by then.
   * @param {(state: EpisodeLabels, keys: Key[]) => void} change
   */
  const hold = (change) => void now.current.held.push(change);
  useEffect(() => {
    void reload();
    // Others may be at work on the same episode.
    const look = () => void (document.hidden || reload());
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [reload]);

  /**
   * Does something, and says so.
   * @param {string} words
   * @param {() => Promise<(() => Promise<any>) | null>} change Returns what takes it back; null if there was nothing
   *   to do.
   * @param {boolean} [isLast] Whether that cannot be taken back.
   */
  const doing = (words, change, isLast = false) => {
    now.current.before = now.current.before.then(async () => {
      try {
        const back = await change();
        const once = () => {
          const place = undos.current.indexOf(once);
          if (place < 0) return;
          undos.current.splice(place, 1);
          doing(`Undone: ${words}`, async () => back && (await back()), true);
        };
        if (back && !isLast) undos.current.push(once);
        setLast({
          words: back || isLast ? words : `${words}: already set`,
          undo: back && !isLast ? once : undefined,
        });
        onChange?.();
      } catch (problem) {
        setLast({ words: /** @type {Error} */ (problem).message, isBad: true });
      }
      await reload();
    });
  };
  const say = (/** @type {LabelValue} */ { layer, type, value, first, last: end }) =>
    post(path("labels"), { layer, type, value, first, last: end });
  const add = (/** @type {LabelValue} */ said) =>
    doing(`“${textOf(said)}”, ${placeOf(said)}`, async () => {
      const { labels, adds } = now.current.state;
      // Of tags there is one for all people; of other labels, one for each of them.
      const old = labels.find((one) => isSame(one, said) && one.decides !== false && (one.is_mine || adds === "tag"));
      if (old?.is_mine && old.value === said.value) return null;
      const made = await say(said);
      return () => (old ? say(old) : remove(path(`labels/${made.id}`)));
    });
  const take = (/** @type {Label} */ label) =>
    doing(`Removed “${textOf(label)}”, ${placeOf(label)}`, async () => {
      await remove(path(`labels/${label.id}`));
      return () => post(path(`labels/${label.id}`));
    });
  const declare = async (/** @type {Layer} */ layer) => {
    show(await put(path("layers"), layer));
    dispatchEvent(new Event("layers"));
  };
  const undo = () => undos.current.at(-1)?.();

  const keys = useMemo(() => keysOf(state.layers), [state.layers]);
  const colors = useMemo(() => {
    const names = [
      ...keys.map(({ layer, value }) => colorKey({ layer: layer.name, type: layer.type, value })),
      ...state.labels.map(colorKey).sort(),
    ];
    return new Map([...new Set(names)].map((name, index) => [name, COLORS[(index + 1) % COLORS.length]]));
  }, [keys, state.labels]);
  const colorOf = (/** @type {LabelValue} */ label) => {
    const tone = toneOf(label);
    // A verdict between good and bad has the color of neither.
    if (tone === "plain" && EPISODE_STATES[label.value]) return "--quiet";
    return tone === "plain" ? (colors.get(colorKey(label)) ?? COLORS[1]) : `--${tone}`;
  };
  const labels = useMemo(() => {
    const titles = new Map(state.layers.map(({ name, title }) => [name, title]));
    return state.labels.map((label) => ({ ...label, title: titles.get(label.layer) }));
  }, [state]);
  return { ...state, labels, isLoaded, hold, keys, colorOf, error, last, add, take, declare, undo };
}

/**
 * A range with another end; the end that is passed comes along.
 * @param {Range | null} range
 * @param {"first" | "last"} end
 * @param {number} step
 * @returns {Range}
 */
export function rangeWith(range, end, step) {
  const { first, last } = range ?? { first: step, last: step };
  return end === "first" ? { first: step, last: Math.max(last, step) } : { first: Math.min(first, step), last: step };
}
