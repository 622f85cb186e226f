/**
 * The keyboard: keys by their place, so that neither Shift nor the layout leaves one stuck.
 *
 * A key that is held sends one event, not many; all are released when the page loses the focus, since
 * nobody says then when they go up.
 */

import { inputsOf } from "../format.js";

/** @typedef {import("./inputs.js").Inputs} Inputs */

const MODIFIERS = /^(Control|Alt|Meta|OS|AltGraph)/;
/** What pages scroll or move the focus with: a game that has the focus takes them. */
const PAGE_KEYS = /^(Arrow|Page|Home|End|Space|Backspace|Quote|Slash)/;
/** What belongs to the browser unless the environment says that it uses it. */
const BROWSER_KEYS =
  /^(F\d+|Tab|ContextMenu|PrintScreen|CapsLock|NumLock|ScrollLock|Pause|Browser|Media|Audio|Launch|Power|Sleep|WakeUp)/;

/** What a player can do besides playing, and the keys for it, the most wanted first. */
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
 * Gives each command the keys that the environment leaves. Escape always pauses.
 * @param {{inputs: string[]}[]} controls What the environment uses.
 * @returns {Map<string, Command>} Codes of keys, and what they do.
 */
export function reserveKeys(controls) {
  const used = new Set(controls.flatMap(({ inputs }) => inputs.flatMap(inputsOf)));
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
   * @param {(code: string, isDown: boolean) => boolean} options.reserved Does what a reserved key does;
   *   false if it is none.
   * @param {() => boolean} options.isListening Whether keys are for the game.
   * @param {() => void} [options.onLost] The page lost the focus, or was hidden.
   */
  constructor({ inputs, isUsed, reserved, isListening, onLost = () => {} }) {
    this.inputs = inputs;
    this.isUsed = isUsed;
    this.reserved = reserved;
    this.isListening = isListening;
    this.onLost = onLost;
    /** The keys that are down. @type {Set<string>} */
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
    // Systems keep back the releases of keys that are down together with Meta.
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
   * @returns {() => void} Ends it.
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
   * Whether a key is part of a shortcut of the browser, such as Ctrl+R.
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

/** What the keys of the player print, by code, where the browser tells. */
export async function readLayout() {
  try {
    // Only some browsers have it, and only on secure pages.
    const keyboard = /** @type {any} */ (navigator).keyboard;
    return /** @type {Map<string, string>} */ (await keyboard.getLayoutMap());
  } catch {
    return new Map();
  }
}
