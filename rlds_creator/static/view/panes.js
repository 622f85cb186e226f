/** Panes whose sizes people choose, and what else a page remembers in this browser. */
import { html, useRef, useState } from "../html.js";

/** By how many pixels a key moves a divider. */
const FAR = 24;

/**
 * State that is there again when the page is opened the next time.
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
      // A browser that may keep nothing shows it as long as the page is open.
    }
  };
  return [value, store];
}

/**
 * The edge between two panes, which is dragged, or moved with the arrow keys.
 * @param {{label: string, size: number, least: number, most: number, onSize: (size: number) => void,
 *   isFlat?: boolean, isAfter?: boolean}} props
 *   The size is that of the pane before it, or after it if `isAfter`. `isFlat`: the panes are one above the other.
 */
export function Divider({ label, size, least, most, onSize, isFlat = false, isAfter = false }) {
  const grip = useRef(/** @type {{at: number, size: number} | null} */ (null));
  const sign = isAfter ? -1 : 1;
  const set = (/** @type {number} */ to) => onSize(Math.round(Math.min(Math.max(to, least), most)));
  const at = (/** @type {PointerEvent} */ event) => (isFlat ? event.clientY : event.clientX);
  const press = (/** @type {KeyboardEvent} */ event) => {
    const [less, more] = isFlat ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"];
    if (event.code !== less && event.code !== more) return;
    event.preventDefault();
    set(size + (event.code === more ? FAR : -FAR) * sign);
  };
  return html`<div class=${`divider${isFlat ? " is-flat" : ""}`} role="separator" tabindex="0" aria-label=${label}
    title="Drag to change the size"
    aria-orientation=${isFlat ? "horizontal" : "vertical"} aria-valuenow=${size} aria-valuemin=${least}
    aria-valuemax=${most}
    onKeyDown=${press}
    onPointerDown=${(/** @type {any} */ event) => {
      event.preventDefault();
      event.target.setPointerCapture(event.pointerId);
      grip.current = { at: at(event), size };
    }}
    onPointerMove=${(/** @type {PointerEvent} */ event) =>
      grip.current && set(grip.current.size + (at(event) - grip.current.at) * sign)}
    onLostPointerCapture=${() => (grip.current = null)}></div>`;
}
