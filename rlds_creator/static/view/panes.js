/** Resizable panes, and state that this browser remembers. */
import { html, useRef, useState } from "../html.js";

/** The distance by which a key moves a divider, in pixels. */
const KEY_PIXELS = 24;

/**
 * State in the local storage, which outlives the page.
 * @template T
 * @param {string} name
 * @param {T} initial
 * @returns {[T, (next: T) => void]}
 */
export function useStored(name, initial) {
  const key = `rlds:${name}`;
  const [value, setValue] = useState(() => {
    try {
      return /** @type {T} */ (JSON.parse(localStorage.getItem(key) ?? "null") ?? initial);
    } catch {
      return initial;
    }
  });
  const store = (/** @type {T} */ next) => {
    setValue(next);
    try {
      localStorage.setItem(key, JSON.stringify(next));
    } catch {
      // Storage is blocked: the value lasts until the page is closed.
    }
  };
  return [value, store];
}

/**
 * The edge between two panes, which is dragged, or moved with the arrow keys.
 * @param {{label: string, size: number, min: number, max: number, onSize: (size: number) => void,
 *   isFlat?: boolean, isAfter?: boolean}} props
 *   `size` is the size of the pane before the divider, or after it if `isAfter`. `isFlat`: the panes are stacked.
 */
export function Divider({ label, size, min, max, onSize, isFlat = false, isAfter = false }) {
  const grip = useRef(/** @type {{start: number, size: number} | null} */ (null));
  const sign = isAfter ? -1 : 1;
  const set = (/** @type {number} */ to) => onSize(Math.round(Math.min(Math.max(to, min), max)));
  const position = (/** @type {PointerEvent} */ event) => (isFlat ? event.clientY : event.clientX);
  const press = (/** @type {KeyboardEvent} */ event) => {
    const [less, more] = isFlat ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"];
    if (event.code !== less && event.code !== more) return;
    event.preventDefault();
    set(size + (event.code === more ? KEY_PIXELS : -KEY_PIXELS) * sign);
  };
  return html`<div class=${`divider${isFlat ? " is-flat" : ""}`} role="separator" tabindex="0" aria-label=${label}
    title="Drag to change the size"
    aria-orientation=${isFlat ? "horizontal" : "vertical"} aria-valuenow=${size} aria-valuemin=${min}
    aria-valuemax=${max}
    onKeyDown=${press}
    onPointerDown=${(/** @type {any} */ event) => {
      event.preventDefault();
      event.target.setPointerCapture(event.pointerId);
      grip.current = { start: position(event), size };
    }}
    onPointerMove=${(/** @type {PointerEvent} */ event) =>
      grip.current && set(grip.current.size + (position(event) - grip.current.start) * sign)}
    onLostPointerCapture=${() => (grip.current = null)}></div>`;
}
