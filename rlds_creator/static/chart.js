/** Curves over the steps of an episode, in the colours of the theme. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import uPlot from "./vendor/uplot.js";

/** @import { Axis } from "./vendor/uplot.js" */

/**
 * @typedef {object} Curve
 * @property {string} name
 * @property {(number | null)[]} values One for each of the steps.
 * @property {string} [color] A token, such as "--second".
 * @property {"line" | "steps" | "bars"} [shape]
 * @property {number} [dash] Of `DASHES`.
 * @property {boolean} [isRight] Whether its scale is on the right.
 *
 * @typedef {{first: number, last: number, color: string, isFaint?: boolean}} Band A range of steps.
 */

/** The colours of curves and tags, in their order. */
export const COLORS = ["--fill", "--second", "--third", "--fourth", "--fifth", "--sixth"];
/** Dashes of curves: of one color, there is one of each. */
const DASHES = [undefined, [5, 4], [1.5, 3]];
/** Bars would be thinner than a pixel. */
const MOST_BARS = 600;
const CLICK_SIZE = 4;
/** @type {ReadonlySet<number>} */
const NONE = new Set();

/**
 * The colour that a token stands for now.
 * @param {string} token
 * @param {number} [opacity]
 */
function colorOf(token, opacity = 1) {
  probe ??= document.createElement("span");
  if (!probe.isConnected) {
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `color-mix(in srgb, var(${token}) ${100 * opacity}%, transparent)`;
  return getComputedStyle(probe).color;
}
/** @type {HTMLElement | undefined} */
let probe;

/** Calls back when the theme changes. @param {() => void} callback */
function onThemeChange(callback) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(callback);
  observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  dark.addEventListener("change", callback);
  return () => {
    observer.disconnect();
    dark.removeEventListener("change", callback);
  };
}

/** @param {number | null} value */
const short = (value) =>
  value === null
    ? ""
    : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
      ? value.toExponential(1)
      : String(+value.toPrecision(4));

/** @typedef {[number, number] | null} Zoom The steps that are shown; null for all. */

/**
 * A part of the steps, moved to where there are any.
 * @param {number} from
 * @param {number} to
 * @param {number} last The last step.
 * @returns {Zoom}
 */
function partOf(from, to, last) {
  const size = Math.max(to - from, 4);
  if (size >= last) return null;
  const begin = Math.min(Math.max(from, 0), last - size);
  return [begin, begin + size];
}

/**
 * Which steps the charts of a page show, all of them the same; the current one stays among them.
 * @param {number} step
 * @param {number} numSteps
 */
export function useZoom(step, numSteps) {
  const [zoom, setZoom] = useState(/** @type {Zoom} */ (null));
  const last = Math.max(numSteps - 1, 1);
  useEffect(() => {
    setZoom((old) => {
      if (!old || (step >= old[0] - 0.5 && step <= old[1] + 0.5)) return old;
      const half = (old[1] - old[0]) / 2;
      return partOf(step - half, step + half, last);
    });
  }, [step]);
  /** @param {string} code Of a key. @returns {boolean} Whether it was one that zooms. */
  const zoomKey = (code) => {
    const factor = { Equal: 0.5, NumpadAdd: 0.5, Minus: 2, NumpadSubtract: 2, Digit0: Infinity, Numpad0: Infinity }[
      code
    ];
    if (factor === undefined) return false;
    const half = (((zoom?.[1] ?? last) - (zoom?.[0] ?? 0)) / 2) * factor;
    setZoom(partOf(step - half, step + half, last));
    return true;
  };
  return { zoom, onZoom: setZoom, zoomKey };
}

/**
 * A chart. A click goes to a step; dragging chooses a range, or zooms if there is nothing to choose it
 * for. The wheel zooms; with Shift, it and the mouse move what is shown. A double click shows all.
 * @param {{label: string, steps: number[], curves: Curve[], step: number, numSteps: number, zoom: Zoom,
 *   onZoom: (zoom: Zoom) => void, bands?: Band[], onSeek: (step: number) => void,
 *   onSelect?: (first: number, last: number) => void, hidden?: ReadonlySet<number>, hasOwnScales?: boolean,
 *   onHover?: (index: number | null) => void}} props
 *   `hidden` are the numbers of curves. With `hasOwnScales`, each curve has the whole height. `onHover` gets the
 *   place in the steps that the mouse is at, in this chart or in another one of the page.
 */
export function Chart({
  label,
  steps,
  curves,
  step,
  numSteps,
  zoom,
  onZoom,
  bands = [],
  onSeek,
  onSelect,
  hidden = NONE,
  hasOwnScales = false,
  onHover,
}) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const marker = useRef(/** @type {HTMLElement | null} */ (null));
  // What the chart calls has the newest properties, without being made anew.
  const now = useRef({ step, bands, onSeek, onSelect, numSteps, zoom, onZoom, onHover });
  now.current = { step, bands, onSeek, onSelect, numSteps, zoom, onZoom, onHover };

  const placeMarker = () => {
    if (!plot.current || !marker.current) return;
    const { width } = plot.current.over.getBoundingClientRect();
    const x = plot.current.valToPos(now.current.step, "x");
    marker.current.style.transform = `translateX(${x}px)`;
    marker.current.hidden = !(x >= -1 && x <= width + 1);
  };

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    // A bar says how much by its length: it begins at 0.
    const hasBars = curves.some(({ shape }) => shape === "bars");
    const hasRight = curves.some(({ isRight }) => isRight);
    const axis = (/** @type {Axis} */ more) => ({
      stroke: () => colorOf("--quiet"),
      grid: { stroke: () => colorOf("--line"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
      gap: 4,
      ...more,
    });
    const values = (/** @type {uPlot} */ _, /** @type {number[]} */ ticks) =>
      ticks.map((tick) => (hasOwnScales ? "" : short(tick)));
    const right = curves.find(({ isRight }) => isRight)?.color;
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height: element.clientHeight || 120,
        padding: [8, hasRight ? 0 : 12, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          points: { show: false },
          drag: { x: true, y: false, setScale: false, dist: CLICK_SIZE },
          bind: { dblclick: () => null },
          sync: {
            key: "steps",
            scales: ["x", null],
            filters: { pub: (/** @type {string} */ type) => type === "mousemove" || type === "mouseleave" },
          },
        },
        scales: {
          x: {
            time: false,
            range: (_, min, max) => now.current.zoom ?? [Math.min(min ?? 0, 0) || 0, Math.max(max ?? 0, 1)],
          },
          y: {
            range: hasBars ? (u, min, max) => padded(u, Math.min(min ?? 0, 0), Math.max(max ?? 0, 0)) : padded,
          },
          right: { range: padded },
          ...Object.fromEntries(curves.map((_, index) => [`own${index}`, { range: padded }])),
        },
        axes: [
          axis({
            size: 26,
            space: 70,
            values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? String(tick) : "")),
          }),
          axis({ size: 52, space: 30, values }),
          ...(hasRight
            ? [
                axis({
                  scale: "right",
                  side: 1,
                  size: 52,
                  space: 30,
                  values,
                  grid: { show: false },
                  stroke: () => colorOf(right ?? "--quiet"),
                }),
              ]
            : []),
        ],
        series: [
          {},
          ...curves.map(({ name, color = COLORS[0], shape = "line", isRight, dash = 0 }, index) => ({
            label: name,
            show: !hidden.has(index),
            scale: hasOwnScales ? `own${index}` : isRight ? "right" : "y",
            stroke: () => colorOf(color),
            fill: shape === "bars" && steps.length <= MOST_BARS ? () => colorOf(color, 0.55) : undefined,
            width: shape === "bars" && steps.length <= MOST_BARS ? 0 : 1.5,
            paths:
              shape === "bars" && steps.length <= MOST_BARS
                ? uPlot.paths.bars({ size: [0.8, 24], align: 0 })
                : shape === "steps"
                  ? uPlot.paths.stepped({ align: 1 })
                  : undefined,
            dash: DASHES[dash],
            points: { show: false },
          })),
        ],
        hooks: {
          drawAxes: [
            (u) => {
              for (const { first, last, color, isFaint } of now.current.bands) {
                const from = u.valToPos(first - 0.5, "x", true);
                const to = u.valToPos(last + 0.5, "x", true);
                const least = 2 * devicePixelRatio;
                const left = Math.max(u.bbox.left, Math.min(from, (from + to - least) / 2));
                const right = Math.min(u.bbox.left + u.bbox.width, Math.max(to, (from + to + least) / 2));
                if (right <= left) continue;
                u.ctx.fillStyle = colorOf(color, isFaint ? 0.16 : 0.24);
                u.ctx.fillRect(left, u.bbox.top, right - left, u.bbox.height);
                u.ctx.fillStyle = colorOf(color);
                if (!isFaint) u.ctx.fillRect(left, u.bbox.top, right - left, 3 * devicePixelRatio);
              }
            },
          ],
          draw: [placeMarker],
          setCursor: [({ cursor }) => now.current.onHover?.(cursor.idx ?? null)],
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (width <= CLICK_SIZE) return;
              const { numSteps, onSelect, onZoom } = now.current;
              const place = (/** @type {number} */ x) =>
                Math.min(Math.max(Math.round(u.posToVal(x, "x")), 0), numSteps - 1);
              if (onSelect) onSelect(place(left), place(left + width));
              else onZoom(partOf(place(left), place(left + width), numSteps - 1));
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      [steps, ...curves.map(({ values }) => values)],
      element,
    );
    plot.current = made;
    marker.current = document.createElement("div");
    marker.current.className = "chart-marker";
    made.over.append(marker.current);
    placeMarker();

    let pressedAt = 0;
    const press = (/** @type {MouseEvent} */ event) => {
      pressedAt = event.clientX;
    };
    // A hand that moves a little means a click all the same, which there is none of then.
    const release = (/** @type {MouseEvent} */ event) => {
      if (event.button !== 0 || event.shiftKey || Math.abs(event.clientX - pressedAt) > CLICK_SIZE) return;
      const x = event.clientX - made.over.getBoundingClientRect().left;
      now.current.onSeek(Math.min(Math.max(Math.round(made.posToVal(x, "x")), 0), now.current.numSteps - 1));
    };
    /** Shows other steps. @param {number} from @param {number} to */
    const show = (from, to) => now.current.onZoom(partOf(from, to, now.current.numSteps - 1));
    const turn = (/** @type {WheelEvent} */ event) => {
      // Where the page scrolls, it zooms as on maps: with Ctrl, or two fingers on a pad.
      if (!event.ctrlKey && document.documentElement.scrollHeight > innerHeight) return;
      event.preventDefault();
      const { min, max } = made.scales.x;
      const { left, width } = made.over.getBoundingClientRect();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = ((event.deltaX || event.deltaY) / width) * (max - min);
        show(min + by, max + by);
        return;
      }
      const at = made.posToVal(event.clientX - left, "x");
      const factor = Math.exp(event.deltaY * (event.ctrlKey ? 0.004 : 0.002));
      show(at - (at - min) * factor, at + (max - at) * factor);
    };
    const pan = (/** @type {MouseEvent} */ event) => {
      if (!event.shiftKey && event.button !== 1) return;
      event.preventDefault();
      event.stopPropagation();
      const { min, max } = made.scales.x;
      const { width } = made.over.getBoundingClientRect();
      const move = (/** @type {MouseEvent} */ { clientX }) => {
        const by = ((event.clientX - clientX) / width) * (max - min);
        show(min + by, max + by);
      };
      addEventListener("mousemove", move);
      addEventListener("mouseup", () => removeEventListener("mousemove", move), { once: true });
    };
    const reset = () => now.current.onZoom(null);
    element.addEventListener("mousedown", pan, true);
    made.over.addEventListener("mousedown", press);
    made.over.addEventListener("mouseup", release);
    made.over.addEventListener("dblclick", reset);
    made.over.addEventListener("wheel", turn, { passive: false });
    const observer = new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = element;
      if (width > 0 && (width !== made.width || height !== made.height)) made.setSize({ width, height });
    });
    observer.observe(element);
    const unwatch = onThemeChange(() => made.redraw(false, true));
    return () => {
      observer.disconnect();
      unwatch();
      element.removeEventListener("mousedown", pan, true);
      made.destroy();
      plot.current = marker.current = null;
    };
  }, [steps, curves, hasOwnScales]);

  useLayoutEffect(() => {
    curves.forEach((_, index) => {
      const isShown = !hidden.has(index);
      if (plot.current?.series[index + 1]?.show !== isShown) plot.current?.setSeries(index + 1, { show: isShown });
    });
  }, [hidden, curves]);
  useLayoutEffect(() => {
    const [min, max] = zoom ?? [steps[0] ?? 0, steps.at(-1) ?? 1];
    plot.current?.setScale("x", { min, max });
  }, [zoom?.[0], zoom?.[1]]);
  useLayoutEffect(placeMarker, [step]);
  useEffect(() => plot.current?.redraw(false, true), [JSON.stringify(bands)]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${label}></div>`;
}

/**
 * A scale with some room, also where all values are the same.
 * @param {uPlot} _
 * @param {number | null} min
 * @param {number | null} max
 * @returns {[number, number]}
 */
function padded(_, min, max) {
  if (min === null || max === null || (min === 0 && max === 0)) return [0, 1];
  const room = (max - min) * 0.06 || Math.abs(max) * 0.1 || 1;
  // It does not go past 0 for the sake of room alone.
  return [min >= 0 ? Math.max(min - room, 0) : min - room, max <= 0 ? Math.min(max + room, 0) : max + room];
}
