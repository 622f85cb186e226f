/** Inputs that are held, and elements of the page that press inputs. */
import { splitInputs } from "../format.js";
import { useEffect, useState } from "../html.js";

/** @import { Player } from "./player.js" */

export const PAD = /^(Button|Axis)\d/;

export const SPACE_AXIS = /^Space\d/;

export const POINTER = /^Pointer/;
/** One direction of an axis has a name of its own. */
const DIRECTION = /^(.+\d)([+-])$/;

/** Returns the held inputs, and renders the component again when they change. @param {Player} player */
export function useHeldInputs(player) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const renderAgain = () => redraw((count) => count + 1);
    player.inputs.listeners.add(renderAgain);
    return () => void player.inputs.listeners.delete(renderAgain);
  }, [player]);
  return player.inputs.held;
}

/**
 * Returns whether an input is held, or an axis in a direction.
 * @param {Map<string, number>} held
 * @param {string} name
 */
export function isActive(held, name) {
  const [, axis, sign] = DIRECTION.exec(name) ?? [];
  return axis ? (held.get(axis) ?? 0) * (sign === "-" ? -1 : 1) > 0.5 : held.has(name);
}

/**
 * The attributes of an element that presses inputs: with a mouse, a pen, or any number of fingers.
 * @param {Player} player
 * @param {string} input Inputs that are pressed together are joined by "+".
 */
export function pressHandlers(player, input) {
  /** @param {PointerEvent} event @param {number} value */
  const change = (event, value) =>
    player.inputs.change(splitInputs(input).map((name) => ({ t: event.timeStamp, name, value })));
  return {
    tabindex: -1,
    onPointerDown: (/** @type {PointerEvent} */ event) => {
      event.preventDefault();
      player.stage.focus({ preventScroll: true });
      const state = player.state?.state;
      if (state === "ready" || state === "paused") player.resume();
      if (state === "ready" && !player.isAsync) return;
      /** @type {Element} */ (event.currentTarget).setPointerCapture(event.pointerId);
      change(event, 1);
    },
    onPointerUp: (/** @type {PointerEvent} */ event) => change(event, 0),
    onPointerCancel: (/** @type {PointerEvent} */ event) => change(event, 0),
    onLostPointerCapture: (/** @type {PointerEvent} */ event) => change(event, 0),
    onContextMenu: (/** @type {Event} */ event) => event.preventDefault(),
  };
}
