/** Formatting of numbers, times and keys. */

const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const DAY_AND_MONTH = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const INTEGER = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** @param {number} value */
export function formatCount(value) {
  return INTEGER.format(value);
}

/**
 * A count with its noun.
 * @param {number} value
 * @param {string} singular
 * @param {string} [many]
 */
export function plural(value, singular, many = `${singular}s`) {
  return `${formatCount(value)} ${value === 1 ? singular : many}`;
}

/**
 * Formats a measured number with about three significant digits.
 * @param {number | string | null | undefined} value
 */
export function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value.replace("Infinity", "∞");
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "∞");
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return INTEGER.format(value).replace("-", "−");
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-3 ? value.toExponential(2) : value.toFixed(size >= 100 ? 1 : size >= 1 ? 2 : 3);
  return text.replaceAll("-", "−");
}

/**
 * Formats a duration.
 * @param {number} seconds
 */
export function formatDuration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const rounded = Math.round(seconds);
  if (rounded < 60) return `${rounded} s`;
  const minutes = Math.floor(rounded / 60);
  if (minutes < 60) return `${minutes} min ${String(rounded % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/**
 * Formats a point in time: the clock for today, and the date for other days.
 * @param {number} seconds Since 1970.
 */
export function formatTime(seconds) {
  const date = new Date(seconds * 1000);
  const now = new Date();
  if (date.toDateString() === now.toDateString()) return `Today, ${CLOCK.format(date)}`;
  const day = date.getFullYear() === now.getFullYear() ? DAY_AND_MONTH : DATE;
  return `${day.format(date)}, ${CLOCK.format(date)}`;
}

/** @param {number} seconds Since 1970. */
export function formatDate(seconds) {
  return DATE.format(new Date(seconds * 1000));
}

/** @param {number} value */
export function formatBytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** @param {number | null | undefined} fraction The fraction, from 0 to 1. */
export function formatPercent(fraction) {
  return fraction === null || fraction === undefined ? "–" : `${Math.round(fraction * 100)} %`;
}

/** @type {Record<string, string>} */
const KEY_NAMES = {
  ArrowLeft: "←",
  ArrowRight: "→",
  ArrowUp: "↑",
  ArrowDown: "↓",
  Escape: "Esc",
  Space: "Space",
  Enter: "Enter",
  Backspace: "⌫",
  Delete: "Del",
  Tab: "Tab",
  ShiftLeft: "Shift",
  ShiftRight: "Right Shift",
  ControlLeft: "Ctrl",
  ControlRight: "Right Ctrl",
  AltLeft: "Alt",
  AltRight: "Right Alt",
  Minus: "-",
  Equal: "=",
  Comma: ",",
  Period: ".",
  Slash: "/",
  Semicolon: ";",
  Quote: "'",
  Backquote: "`",
  BracketLeft: "[",
  BracketRight: "]",
  Backslash: "\\",
  PageUp: "Page ↑",
  PageDown: "Page ↓",
  Button0: "Pad A",
  Button1: "Pad B",
  Button2: "Pad X",
  Button3: "Pad Y",
  Button12: "Pad ↑",
  Button13: "Pad ↓",
  Button14: "Pad ←",
  Button15: "Pad →",
  "Axis0-": "Stick ←",
  "Axis0+": "Stick →",
  "Axis1-": "Stick ↑",
  "Axis1+": "Stick ↓",
  "Axis2-": "Stick 2 ←",
  "Axis2+": "Stick 2 →",
  "Axis3-": "Stick 2 ↑",
  "Axis3+": "Stick 2 ↓",
  PointerX: "Pointer ↔",
  PointerY: "Pointer ↕",
  Pointer0: "Click",
};

/**
 * Splits a combination such as `ArrowUp+Space` into inputs; the name of an axis may end with a sign.
 * @param {string} combination
 */
export function splitInputs(combination) {
  return combination.match(/(?:Axis\d+|Space\d)[+-]?|[^+]+/g) ?? [];
}

/**
 * The label of a key, or the name of another input.
 * @param {string} code The physical code of the key, or `Button0`, `Axis1`, …
 */
export function keyName(code) {
  if (KEY_NAMES[code]) return KEY_NAMES[code];
  const match = /^(Key|Digit|Numpad|Button|Axis|Space|Pointer)(.+)$/.exec(code);
  if (!match) return code;
  const [, kind, suffix] = match;
  if (kind === "Key" || kind === "Digit") return suffix;
  /** @type {Record<string, string>} */
  const names = { Numpad: "Num ", Button: "Button ", Axis: "Axis ", Space: "SpaceMouse ", Pointer: "Pointer " };
  return names[kind] + suffix;
}

/**
 * The name of a layer of labels in files and conditions: letters of any script, digits and `_`.
 * @param {string} title
 */
export function layerName(title) {
  const lower = title.normalize("NFKC").toLowerCase().normalize("NFKC");
  const name = lower.replaceAll(/[^\p{ID_Continue}]+|_+/gu, "_").replaceAll(/^_|_$/g, "");
  const identifier = /^\p{ID_Start}/u.test(name) ? name : `layer_${name}`.replace(/_$/, "");
  return [...identifier].slice(0, 48).join("").replace(/_$/, "");
}
