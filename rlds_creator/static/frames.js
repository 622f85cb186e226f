/** Decodes the messages with pictures of a play; the format is in `rlds_creator/frames.py`. */

const FORMAT_VERSION = 1;
const HEADER_BYTES = 36;
const MEDIA_TYPES = /** @type {Record<number, string>} */ ({ 1: "image/jpeg", 2: "image/webp", 3: "image/png" });

/**
 * @typedef {object} Frame A picture of a step.
 * @property {number} number The index of the frame since the start of the worker.
 * @property {number} step The step of the episode.
 * @property {Blob} picture An image file.
 * @property {any} action The action that led to the step; null for the first step.
 * @property {number} reward
 * @property {number} totalReward
 * @property {number} appliedInput The number of the last input before the frame.
 * @property {number} time The time in seconds since 1970.
 * @property {boolean} isFirst
 * @property {boolean} isLast
 * @property {boolean} isRedrawn Whether an earlier frame has shown the step.
 */

/**
 * Decodes a message.
 * @param {ArrayBuffer} message
 * @returns {Frame}
 * @throws {RangeError} The message is invalid.
 */
export function decodeFrame(message) {
  const view = new DataView(message);
  const type = message.byteLength < HEADER_BYTES ? undefined : MEDIA_TYPES[view.getUint8(1)];
  if (type === undefined || view.getUint8(0) !== FORMAT_VERSION) throw new RangeError("this is no message of a frame");
  const end = HEADER_BYTES + view.getUint16(32, true);
  if (end > message.byteLength) throw new RangeError("this message of a frame is cut short");
  const flags = view.getUint16(2, true);
  return {
    number: view.getUint32(4, true),
    step: view.getUint32(8, true),
    picture: new Blob([new Uint8Array(message, end)], { type }),
    action: parseAction(new TextDecoder().decode(new Uint8Array(message, HEADER_BYTES, end - HEADER_BYTES))),
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
 * Parses an action, whose text may be cut at 65,535 bytes.
 * @param {string} text
 */
function parseAction(text) {
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
