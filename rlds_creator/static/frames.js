/** The message with which a picture travels to the page; `rlds_creator/frames.py` has the table. */

const VERSION = 1;
const HEADER_BYTES = 36;
const MEDIA_TYPES = /** @type {Record<number, string>} */ ({ 1: "image/jpeg", 2: "image/webp", 3: "image/png" });

/**
 * @typedef {object} Frame A picture of a step.
 * @property {number} number Which frame, counted from the start of the worker.
 * @property {number} step Which step of the episode it shows.
 * @property {Blob} picture An image file.
 * @property {any} action The action that led to the step; null for the first one.
 * @property {number} reward
 * @property {number} totalReward
 * @property {number} appliedInput The number of the last input that had come when it was made.
 * @property {number} time In seconds since 1970.
 * @property {boolean} isFirst
 * @property {boolean} isLast
 * @property {boolean} isRedrawn Whether it shows a step again.
 */

/**
 * Reads a message.
 * @param {ArrayBuffer} message
 * @returns {Frame}
 * @throws {RangeError} It is none.
 */
export function decodeFrame(message) {
  const view = new DataView(message);
  const type = message.byteLength < HEADER_BYTES ? undefined : MEDIA_TYPES[view.getUint8(1)];
  if (type === undefined || view.getUint8(0) !== VERSION) throw new RangeError("this is no message of a frame");
  const end = HEADER_BYTES + view.getUint16(32, true);
  if (end > message.byteLength) throw new RangeError("this message of a frame is cut short");
  const flags = view.getUint16(2, true);
  return {
    number: view.getUint32(4, true),
    step: view.getUint32(8, true),
    picture: new Blob([new Uint8Array(message, end)], { type }),
    action: actionOf(new TextDecoder().decode(new Uint8Array(message, HEADER_BYTES, end - HEADER_BYTES))),
    reward: view.getFloat32(16, true),
    totalReward: view.getFloat32(20, true),
    appliedInput: view.getUint32(12, true),
    time: view.getFloat64(24, true),
    isFirst: (flags & 1) !== 0,
    isLast: (flags & 2) !== 0,
    isRedrawn: (flags & 4) !== 0,
  };
}

/**
 * The action of a text, which may have been cut at 65,535 bytes.
 * @param {string} text
 */
function actionOf(text) {
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
