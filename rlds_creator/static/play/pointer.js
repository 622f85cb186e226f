/**
 * Mouse, pen and finger on the picture: `PointerX` and `PointerY` as fractions of its size, `Pointer0` to `Pointer2`
 * for buttons.
 */

/** @typedef {import("./inputs.js").Inputs} Inputs */

const MAX_BUTTONS = 3;

/**
 * Converts a point of the page to a position in a picture that is fitted into a box.
 * @param {{x: number, y: number}} point
 * @param {{left: number, top: number, width: number, height: number}} box
 * @param {{width: number, height: number}} picture
 * @returns {{x: number, y: number, isInside: boolean}} Fractions of the size of the picture, from 0 to 1.
 */
export function placeInPicture(point, box, picture) {
  const scale = Math.min(box.width / picture.width, box.height / picture.height);
  const width = picture.width * scale;
  const height = picture.height * scale;
  const x = (point.x - box.left - (box.width - width) / 2) / width;
  const y = (point.y - box.top - (box.height - height) / 2) / height;
  const clamp = (/** @type {number} */ value) => Math.round(Math.min(Math.max(value, 0), 1) * 1e4) / 1e4;
  return { x: clamp(x), y: clamp(y), isInside: x >= 0 && x <= 1 && y >= 0 && y <= 1 };
}

/**
 * Sends the events of a pointer on a canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {Inputs} inputs
 * @param {() => boolean} isListening Whether inputs are for the game.
 * @returns {() => void} Stops listening.
 */
export function listenToPointer(canvas, inputs, isListening) {
  /** @type {PointerEvent | null} */
  let lastMove = null;
  let frame = 0;

  /** @param {PointerEvent} event */
  const place = (event) =>
    placeInPicture({ x: event.clientX, y: event.clientY }, canvas.getBoundingClientRect(), canvas);
  /** @param {PointerEvent} event @param {{x: number, y: number}} point */
  const positions = (event, point) => [
    { t: event.timeStamp, name: "PointerX", value: point.x },
    { t: event.timeStamp, name: "PointerY", value: point.y },
  ];
  /** @param {PointerEvent} event */
  const buttons = (event) =>
    Array.from({ length: MAX_BUTTONS }, (_, index) => {
      // The bits of `buttons` have the right button before the middle one.
      const bit = [1, 4, 2][index];
      return { t: event.timeStamp, name: `Pointer${index}`, value: event.buttons & bit ? 1 : 0 };
    });

  const flush = () => {
    frame = 0;
    if (lastMove && isListening()) inputs.change(positions(lastMove, place(lastMove)));
    lastMove = null;
  };
  /** @param {PointerEvent} event */
  const move = (event) => {
    if (!event.isPrimary) return;
    // A mouse may report a thousand moves per second: one for each frame of the page is enough.
    lastMove = event;
    frame ||= requestAnimationFrame(flush);
  };
  /** @param {PointerEvent} event */
  const press = (event) => {
    if (!event.isPrimary || !isListening()) return;
    const point = place(event);
    if (!point.isInside) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    inputs.change([...positions(event, point), ...buttons(event)]);
  };
  /** @param {PointerEvent} event */
  const release = (event) => {
    if (!event.isPrimary) return;
    const isGone = event.type === "pointercancel" || (event.pointerType !== "mouse" && event.buttons === 0);
    inputs.change([
      ...buttons(event),
      ...(isGone ? ["PointerX", "PointerY"].map((name) => ({ t: event.timeStamp, name, value: 0 })) : []),
    ]);
  };
  /** @param {PointerEvent} event */
  const leave = (event) => {
    lastMove = null;
    if (event.isPrimary && event.buttons === 0) {
      inputs.change(["PointerX", "PointerY"].map((name) => ({ t: event.timeStamp, name, value: 0 })));
    }
  };
  const prevent = (/** @type {Event} */ event) => event.preventDefault();

  const handlers = /** @type {[string, (event: any) => void][]} */ ([
    ["pointermove", move],
    ["pointerdown", press],
    ["pointerup", release],
    ["pointercancel", release],
    ["pointerleave", leave],
    ["contextmenu", prevent],
  ]);
  for (const [type, handler] of handlers) canvas.addEventListener(type, handler);
  return () => {
    cancelAnimationFrame(frame);
    for (const [type, handler] of handlers) canvas.removeEventListener(type, handler);
  };
}
