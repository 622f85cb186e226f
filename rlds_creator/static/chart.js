/** Curves over the steps of an episode, in the colours of the theme. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import uPlot from "./vendor/uplot.js";

/** @import { Axis } from "./vendor/uplot.js" */

/**
 * @typedef {object} Curve
 * @property {string} name
 * @property {(number | null)[]} values The values, one for each step.
 * @property {string} [color] The name of a CSS variable, such as "--second".
 * @property {"line" | "steps" | "bars"} [shape]
 * @property {number} [dash] The index of the pattern in `DASHES`.
 * @property {boolean} [isRight] Whether the scale is on the right.
 *
 * @typedef {{first: number, last: number, color: string, isFaint?: boolean}} Band A range of steps.
 */

/** The colours of curves and tags, in order. */
export const COLORS = ["--fill", "--second", "--third", "--fourth", "--fifth", "--sixth"];
/** The dash patterns that distinguish curves of the same colour. */
const DASHES = [undefined, [5, 4], [1.5, 3]];
/** More bars would be thinner than a pixel. */
const MAX_BARS = 600;
const CLICK_SIZE = 4;
/** @type {ReadonlySet<number>} */
const EMPTY_SET = new Set();

/**
 * Resolves a CSS variable to a colour of the current theme.
 * @param {string} variable
 * @param {number} [opacity]
 */
function resolveColor(variable, opacity = 1) {
  probe ??= document.createElement("span");
  if (!probe.isConnected) {
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `color-mix(in srgb, var(${variable}) ${100 * opacity}%, transparent)`;
  return getComputedStyle(probe).color;
}
/** @type {HTMLElement | undefined} */
let probe;

/** Calls a function when the theme changes. @param {() => void} callback */
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
const tickText = (value) =>
  value === null
    ? ""
    : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
      ? value.toExponential(1)
      : String(+value.toPrecision(4));

/** @typedef {[number, number] | null} Zoom The range of visible steps; null for all. */

/**
 * Moves a range of steps into the episode.
 * @param {number} from
 * @param {number} to
 * @param {number} last The last step.
 * @returns {Zoom}
 */
function clampRange(from, to, last) {
  const size = Math.max(to - from, 4);
  if (size >= last) return null;
  const begin = Math.min(Math.max(from, 0), last - size);
  return [begin, begin + size];
}

/**
 * The range of steps that all charts of a page show; the current step stays in it.
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
      return clampRange(step - half, step + half, last);
    });
  }, [step]);
  /** Zooms with a key. @param {string} code @returns {boolean} Whether the key zooms. */
  const zoomKey = (code) => {
    const factor = { Equal: 0.5, NumpadAdd: 0.5, Minus: 2, NumpadSubtract: 2, Digit0: Infinity, Numpad0: Infinity }[
      code
    ];
    if (factor === undefined) return false;
    const half = (((zoom?.[1] ?? last) - (zoom?.[0] ?? 0)) / 2) * factor;
    setZoom(clampRange(step - half, step + half, last));
    return true;
  };
  return { zoom, onZoom: setZoom, zoomKey };
}

/**
 * A chart. A click goes to a step; dragging selects a range, or zooms without `onSelect`. The wheel zooms; with
 * Shift, the wheel and the mouse pan. A double click shows all steps.
 * @param {{label: string, steps: number[], curves: Curve[], step: number, numSteps: number, zoom: Zoom,
 *   onZoom: (zoom: Zoom) => void, bands?: Band[], onSeek: (step: number) => void,
 *   onSelect?: (first: number, last: number) => void, hidden?: ReadonlySet<number>, hasOwnScales?: boolean,
 *   onHover?: (index: number | null) => void}} props
 *   `hidden` has the indices of curves. With `hasOwnScales`, each curve fills the height. `onHover` gets the index of
 *   the step under the mouse, in this chart or in another chart of the page.
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
  hidden = EMPTY_SET,
  hasOwnScales = false,
  onHover,
}) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const marker = useRef(/** @type {HTMLElement | null} */ (null));
  // Callbacks of the chart read the newest properties from here, so that the chart is not created again.
  const latest = useRef({ step, bands, onSeek, onSelect, numSteps, zoom, onZoom, onHover });
  latest.current = { step, bands, onSeek, onSelect, numSteps, zoom, onZoom, onHover };

  const placeMarker = () => {
    if (!plot.current || !marker.current) return;
    const { width } = plot.current.over.getBoundingClientRect();
    const x = plot.current.valToPos(latest.current.step, "x");
    marker.current.style.transform = `translateX(${x}px)`;
    marker.current.hidden = !(x >= -1 && x <= width + 1);
  };

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    // The length of a bar shows the value, so bars begin at 0.
    const hasBars = curves.some(({ shape }) => shape === "bars");
    const hasRight = curves.some(({ isRight }) => isRight);
    const axis = (/** @type {Axis} */ more) => ({
      stroke: () => resolveColor("--quiet"),
      grid: { stroke: () => resolveColor("--line"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
      gap: 4,
      ...more,
    });
    const values = (/** @type {uPlot} */ _, /** @type {number[]} */ ticks) =>
      ticks.map((tick) => (hasOwnScales ? "" : tickText(tick)));
    const right = curves.find(({ isRight }) => isRight)?.color;
    const chart = new uPlot(
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
            range: (_, min, max) => latest.current.zoom ?? [Math.min(min ?? 0, 0) || 0, Math.max(max ?? 0, 1)],
          },
          y: {
            range: hasBars ? (u, min, max) => withMargin(u, Math.min(min ?? 0, 0), Math.max(max ?? 0, 0)) : withMargin,
          },
          right: { range: withMargin },
          ...Object.fromEntries(curves.map((_, index) => [`own${index}`, { range: withMargin }])),
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
                  stroke: () => resolveColor(right ?? "--quiet"),
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
            stroke: () => resolveColor(color),
            fill: shape === "bars" && steps.length <= MAX_BARS ? () => resolveColor(color, 0.55) : undefined,
            width: shape === "bars" && steps.length <= MAX_BARS ? 0 : 1.5,
            paths:
              shape === "bars" && steps.length <= MAX_BARS
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
              for (const { first, last, color, isFaint } of latest.current.bands) {
                const from = u.valToPos(first - 0.5, "x", true);
                const to = u.valToPos(last + 0.5, "x", true);
                const minWidth = 2 * devicePixelRatio;
                const left = Math.max(u.bbox.left, Math.min(from, (from + to - minWidth) / 2));
                const right = Math.min(u.bbox.left + u.bbox.width, Math.max(to, (from + to + minWidth) / 2));
                if (right <= left) continue;
                u.ctx.fillStyle = resolveColor(color, isFaint ? 0.16 : 0.24);
                u.ctx.fillRect(left, u.bbox.top, right - left, u.bbox.height);
                u.ctx.fillStyle = resolveColor(color);
                if (!isFaint) u.ctx.fillRect(left, u.bbox.top, right - left, 3 * devicePixelRatio);
              }
            },
          ],
          draw: [placeMarker],
          setCursor: [({ cursor }) => latest.current.onHover?.(cursor.idx ?? null)],
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (width <= CLICK_SIZE) return;
              const { numSteps, onSelect, onZoom } = latest.current;
              const stepAt = (/** @type {number} */ x) =>
                Math.min(Math.max(Math.round(u.posToVal(x, "x")), 0), numSteps - 1);
              if (onSelect) onSelect(stepAt(left), stepAt(left + width));
              else onZoom(clampRange(stepAt(left), stepAt(left + width), numSteps - 1));
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      [steps, ...curves.map(({ values }) => values)],
      element,
    );
    plot.current = chart;
    marker.current = document.createElement("div");
    marker.current.className = "chart-marker";
    chart.over.append(marker.current);
    placeMarker();

    let pressedAt = 0;
    const press = (/** @type {MouseEvent} */ event) => {
      pressedAt = event.clientX;
    };
    // A press that moves a little counts as a click, too; the browser reports no click then.
    const release = (/** @type {MouseEvent} */ event) => {
      if (event.button !== 0 || event.shiftKey || Math.abs(event.clientX - pressedAt) > CLICK_SIZE) return;
      const x = event.clientX - chart.over.getBoundingClientRect().left;
      latest.current.onSeek(Math.min(Math.max(Math.round(chart.posToVal(x, "x")), 0), latest.current.numSteps - 1));
    };
    /** Shows a range of steps. @param {number} from @param {number} to */
    const show = (from, to) => latest.current.onZoom(clampRange(from, to, latest.current.numSteps - 1));
    const wheel = (/** @type {WheelEvent} */ event) => {
      // On a page that scrolls, zooming needs Ctrl, or two fingers on a touchpad.
      if (!event.ctrlKey && document.documentElement.scrollHeight > innerHeight) return;
      event.preventDefault();
      const { min, max } = chart.scales.x;
      const { left, width } = chart.over.getBoundingClientRect();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const by = ((event.deltaX || event.deltaY) / width) * (max - min);
        show(min + by, max + by);
        return;
      }
      const center = chart.posToVal(event.clientX - left, "x");
      const factor = Math.exp(event.deltaY * (event.ctrlKey ? 0.004 : 0.002));
      show(center - (center - min) * factor, center + (max - center) * factor);
    };
    const pan = (/** @type {MouseEvent} */ event) => {
      if (!event.shiftKey && event.button !== 1) return;
      event.preventDefault();
      event.stopPropagation();
      const { min, max } = chart.scales.x;
      const { width } = chart.over.getBoundingClientRect();
      const move = (/** @type {MouseEvent} */ { clientX }) => {
        const by = ((event.clientX - clientX) / width) * (max - min);
        show(min + by, max + by);
      };
      addEventListener("mousemove", move);
      addEventListener("mouseup", () => removeEventListener("mousemove", move), { once: true });
    };
    const reset = () => latest.current.onZoom(null);
    element.addEventListener("mousedown", pan, true);
    chart.over.addEventListener("mousedown", press);
    chart.over.addEventListener("mouseup", release);
    chart.over.addEventListener("dblclick", reset);
    chart.over.addEventListener("wheel", wheel, { passive: false });
    const observer = new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = element;
      if (width > 0 && (width !== chart.width || height !== chart.height)) chart.setSize({ width, height });
    });
    observer.observe(element);
    const unwatch = onThemeChange(() => chart.redraw(false, true));
    return () => {
      observer.disconnect();
      unwatch();
      element.removeEventListener("mousedown", pan, true);
      chart.destroy();
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
 * Adds a margin to the range of a scale, also if all values are equal.
 * @param {uPlot} _
 * @param {number | null} min
 * @param {number | null} max
 * @returns {[number, number]}
 */
function withMargin(_, min, max) {
  if (min === null || max === null || (min === 0 && max === 0)) return [0, 1];
  const margin = (max - min) * 0.06 || Math.abs(max) * 0.1 || 1;
  // The margin does not extend the range across 0.
  return [min >= 0 ? Math.max(min - margin, 0) : min - margin, max <= 0 ? Math.min(max + margin, 0) : max + margin];
}
