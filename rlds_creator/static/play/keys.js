/**
 * The keyboard: keys by their physical code, so that neither Shift nor the layout leaves a key stuck.
 *
 * A held key sends one event. All keys are released when the page loses the focus, because browsers would not report
 * the release.
 */

import { splitInputs } from "../format.js";

/** @typedef {import("./inputs.js").Inputs} Inputs */

const MODIFIERS = /^(Control|Alt|Meta|OS|AltGraph)/;
/** Keys that scroll the page or move the focus; a focused game takes them. */
const PAGE_KEYS = /^(Arrow|Page|Home|End|Space|Backspace|Quote|Slash)/;
/** Keys of the browser, unless the environment uses them. */
const BROWSER_KEYS =
  /^(F\d+|Tab|ContextMenu|PrintScreen|CapsLock|NumLock|ScrollLock|Pause|Browser|Media|Audio|Launch|Power|Sleep|WakeUp)/;

/** The commands of a player, and their keys in order of preference. */
export const COMMANDS = /** @type {const} */ ({
  pause: { codes: ["Escape", "KeyP"], does: "pause", isForAll: true },
  end: { codes: ["Enter", "End"], does: "end", isForAll: true },
  retry: { codes: ["Backspace", "Delete"], does: "try again (hold)", isForAll: false },
  success: { codes: ["Equal", "NumpadAdd", "F9"], does: "it worked", isForAll: false },
  failure: { codes: ["Minus", "NumpadSubtract", "F10"], does: "it failed", isForAll: false },
  camera: { codes: ["KeyC", "F2"], does: "next camera", isForAll: false },
  fullscreen: { codes: ["KeyF", "F4"], does: "full screen", isForAll: false },
});

/** @typedef {keyof typeof COMMANDS} Command */

/**
 * Assigns keys that the environment does not use to commands. Escape always pauses.
 * @param {{inputs: string[]}[]} controls The controls of the environment.
 * @returns {Map<string, Command>} The commands by the codes of keys.
 */
export function reserveKeys(controls) {
  const used = new Set(controls.flatMap(({ inputs }) => inputs.flatMap(splitInputs)));
  used.delete("Escape");
  /** @type {Map<string, Command>} */
  const reserved = new Map();
  for (const [command, { codes, isForAll }] of Object.entries(COMMANDS)) {
    const free = codes.filter((code) => !used.has(code));
    for (const code of isForAll ? free : free.slice(0, 1)) reserved.set(code, /** @type {Command} */ (command));
  }
  return reserved;
}

export class Keys {
  /**
   * @param {object} options
   * @param {Inputs} options.inputs
   * @param {(code: string) => boolean} options.isUsed Whether the environment uses a key.
   * @param {(code: string, isDown: boolean) => boolean} options.reserved Handles a reserved key; returns false for
   *   other keys.
   * @param {() => boolean} options.isListening Whether keys are for the game.
   * @param {() => void} [options.onLost] Called when the page loses the focus or is hidden.
   */
  constructor({ inputs, isUsed, reserved, isListening, onLost = () => {} }) {
    this.inputs = inputs;
    this.isUsed = isUsed;
    this.reserved = reserved;
    this.isListening = isListening;
    this.onLost = onLost;
    /** The held keys. @type {Set<string>} */
    this.down = new Set();
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const { code } = event;
    if (event.isComposing || code === "" || !this.isListening()) return;
    if (this.#isForBrowser(event)) return;
    if (this.down.has(code) || event.repeat) {
      event.preventDefault();
      return;
    }
    if (this.reserved(code, true)) {
      this.down.add(code);
      event.preventDefault();
      return;
    }
    if (BROWSER_KEYS.test(code) && !this.isUsed(code)) return;
    if (this.isUsed(code) || PAGE_KEYS.test(code)) event.preventDefault();
    this.down.add(code);
    this.inputs.change([{ t: event.timeStamp, name: code, value: 1, key: event.key.slice(0, 32) }]);
  }

  /** @param {KeyboardEvent} event */
  release(event) {
    const { code } = event;
    // Operating systems do not report the release of keys that are held together with Meta.
    if (code.startsWith("Meta") || code.startsWith("OS")) this.releaseAll(event.timeStamp);
    if (!this.down.delete(code)) return;
    if (this.reserved(code, false)) return;
    this.inputs.change([{ t: event.timeStamp, name: code, value: 0, key: event.key.slice(0, 32) }]);
  }

  /** @param {number} [t] */
  releaseAll(t) {
    for (const code of this.down) this.reserved(code, false);
    this.down.clear();
    this.inputs.releaseAll(t);
  }

  /**
   * Listens to a window.
   * @param {Window} target
   * @returns {() => void} Stops listening.
   */
  listen(target) {
    const press = (/** @type {KeyboardEvent} */ event) => this.press(event);
    const release = (/** @type {KeyboardEvent} */ event) => this.release(event);
    const lose = (/** @type {Event} */ event) => {
      this.releaseAll(event.timeStamp);
      this.onLost();
    };
    const hide = (/** @type {Event} */ event) => {
      if (target.document.hidden) lose(event);
    };
    target.addEventListener("keydown", press);
    target.addEventListener("keyup", release);
    target.addEventListener("blur", lose);
    target.addEventListener("pagehide", lose);
    target.document.addEventListener("visibilitychange", hide);
    return () => {
      target.removeEventListener("keydown", press);
      target.removeEventListener("keyup", release);
      target.removeEventListener("blur", lose);
      target.removeEventListener("pagehide", lose);
      target.document.removeEventListener("visibilitychange", hide);
      this.releaseAll();
    };
  }

  /**
   * Returns whether a key belongs to a shortcut of the browser, such as Ctrl+R.
   * @param {KeyboardEvent} event
   */
  #isForBrowser(event) {
    if (event.metaKey || event.code.startsWith("Meta") || event.code.startsWith("OS")) return true;
    if (MODIFIERS.test(event.code)) return !this.isUsed(event.code);
    if (event.ctrlKey) return !(this.isUsed("ControlLeft") || this.isUsed("ControlRight"));
    if (event.altKey) return !(this.isUsed("AltLeft") || this.isUsed("AltRight"));
    return false;
  }
}

/** Returns the labels of the keys by code; empty if the browser does not tell. */
export async function readLayout() {
  try {
    // Only some browsers have the keyboard map, and only on secure pages.
    const keyboard = /** @type {any} */ (navigator).keyboard;
    return /** @type {Map<string, string>} */ (await keyboard.getLayoutMap());
  } catch {
    return new Map();
  }
}
