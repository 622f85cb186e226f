/**
 * Gamepads and SpaceMice.
 *
 * A stick at rest is rarely exactly at 0, and a held stick trembles: values near the centre count as 0, and other
 * values are sent only after a visible change.
 */

/** @typedef {import("./inputs.js").Inputs} Inputs */

const AXIS_STEPS = 40;
const BUTTON_STEPS = 20;
/** A stick leaves the centre above the larger value, and returns below the smaller value, as in workers. */
const DEAD_ZONE = 0.1;
const RELEASE_ZONE = 0.08;
/** The fraction of a step by which a value has to cross the middle between two steps. */
const HYSTERESIS = 0.15;
/** The maximum value that a SpaceMouse reports. */
const SPACE_MOUSE_MAX = 350;
const SPACE_MOUSE_VENDORS = [0x256f, 0x046d];
const SPACE_MOUSE_NAME = /space\s?(mouse|navigator|pilot|explorer|ball)|3dconnexion|vendor:? ?256f|^256f-/i;

/**
 * Rounds the value of an axis to steps, with a dead zone and hysteresis.
 * @param {number} raw From -1 to 1.
 * @param {number} previous The previous result.
 */
export function quantiseAxis(raw, previous) {
  const size = Math.min(Math.abs(raw), 1);
  if (!(size >= (previous === 0 ? DEAD_ZONE : RELEASE_ZONE))) return 0;
  return roundToStep(Math.sign(raw) * Math.max(size, DEAD_ZONE), previous, AXIS_STEPS);
}

/**
 * Rounds the value of a button or a trigger to steps.
 * @param {number} raw From 0 to 1.
 * @param {number} previous The previous result.
 */
export function quantiseButton(raw, previous) {
  if (!(raw > 0.05)) return 0;
  return roundToStep(Math.min(raw, 1), previous, BUTTON_STEPS);
}

/** @param {number} value @param {number} previous @param {number} steps */
function roundToStep(value, previous, steps) {
  if (Math.abs(value * steps - previous * steps) <= 0.5 + HYSTERESIS && Math.abs(value) < 1) return previous;
  return Math.round(value * steps) / steps || 0;
}

/** @param {string} id The name of a device in the browser. */
export const isSpaceMouse = (id) => SPACE_MOUSE_NAME.test(id);

/**
 * Converts the state of a gamepad to inputs.
 * @param {{id: string, axes: readonly number[], buttons: readonly {value: number}[]}} pad
 * @param {(name: string) => number} previous The previous values of the inputs.
 * @returns {[string, number][]}
 */
export function readPad(pad, previous) {
  const prefix = isSpaceMouse(pad.id) ? "Space" : "Axis";
  /** @type {[string, number][]} */
  const values = [];
  pad.axes.forEach((raw, index) => {
    const name = `${prefix}${index}`;
    if (prefix === "Axis" || index < 6) values.push([name, quantiseAxis(raw, previous(name))]);
  });
  pad.buttons.forEach(({ value }, index) => {
    const name = `Button${index}`;
    values.push([name, quantiseButton(value, previous(name))]);
  });
  return values;
}

/**
 * Converts a report of a SpaceMouse to axes from -1 to 1, and buttons.
 * @param {number} reportId 1 for translation, 2 for rotation, 3 for buttons.
 * @param {DataView} data
 * @returns {[string, number][]}
 */
export function readSpaceReport(reportId, data) {
  /** @type {[string, number][]} */
  const values = [];
  if (reportId === 1 || reportId === 2) {
    // Newer devices send all six axes in report 1, older devices three.
    const count = Math.min(Math.floor(data.byteLength / 2), reportId === 1 ? 6 : 3);
    for (let index = 0; index < count; index++) {
      const raw = data.getInt16(2 * index, true) / SPACE_MOUSE_MAX;
      values.push([`Space${index + 3 * (reportId - 1)}`, Math.max(-1, Math.min(raw, 1))]);
    }
  } else if (reportId === 3 && data.byteLength > 0) {
    for (let index = 0; index < Math.min(8 * data.byteLength, 32); index++) {
      values.push([`Button${index}`, (data.getUint8(index >> 3) >> (index & 7)) & 1]);
    }
  }
  return values;
}

export class Gamepads {
  /**
   * @param {object} options
   * @param {Inputs} options.inputs
   * @param {() => boolean} options.isListening Whether inputs are for the game.
   * @param {(name: string) => boolean} [options.onPress] Called for a pressed button; true hides it from the game.
   * @param {(controller: string) => void} [options.onController] Called with the name of a new device; "" without one.
   */
  constructor({ inputs, isListening, onPress = () => false, onController = () => {} }) {
    this.inputs = inputs;
    this.isListening = isListening;
    this.onPress = onPress;
    this.onController = onController;
    this.controller = "";
    /** The last values, by name. @type {Map<string, number>} */
    this.values = new Map();
    /** Pressed buttons that the game does not get. @type {Set<string>} */
    this.kept = new Set();
    this.frame = 0;
  }

  /** Reads the gamepads once. */
  poll() {
    const pads = navigator.getGamepads?.() ?? [];
    const pad =
      [...pads].find((pad) => pad?.connected && (pad.id === this.controller || this.controller === "")) ??
      [...pads].find((pad) => pad?.connected);
    if (!pad) {
      if (this.controller !== "" && !this.device) this.#disconnect();
      return;
    }
    if (pad.id !== this.controller) {
      this.#disconnect();
      this.controller = pad.id;
      this.onController(pad.id);
    }
    this.#apply(readPad(pad, (name) => this.values.get(name) ?? 0));
  }

  /**
   * Reads the gamepads whenever the page is drawn.
   * @returns {() => void} Stops listening.
   */
  listen() {
    const read = () => {
      this.poll();
      this.frame = requestAnimationFrame(read);
    };
    read();
    return () => {
      cancelAnimationFrame(this.frame);
      this.#disconnect();
      void this.device?.close();
    };
  }

  /** Whether the browser supports a SpaceMouse that is no gamepad. */
  static get hasSpaceMouse() {
    return "hid" in navigator;
  }

  /** Asks the player to choose a SpaceMouse in a dialog of the browser. */
  async connectSpaceMouse() {
    const hid = /** @type {any} */ (navigator).hid;
    // Multi-axis controllers of the vendors of SpaceMice.
    const filters = SPACE_MOUSE_VENDORS.map((vendorId) => ({ vendorId, usagePage: 1, usage: 8 }));
    const [device] = await hid.requestDevice({ filters });
    if (!device) return;
    if (!device.opened) await device.open();
    this.#disconnect();
    this.device = device;
    this.controller = device.productName || "SpaceMouse";
    this.onController(this.controller);
    device.addEventListener("inputreport", (/** @type {any} */ { reportId, data }) => {
      const values = readSpaceReport(reportId, data);
      this.#apply(
        values.map(([name, raw]) => {
          const previous = this.values.get(name) ?? 0;
          return [name, name.startsWith("Space") ? quantiseAxis(raw, previous) : raw];
        }),
      );
    });
    hid.addEventListener("disconnect", (/** @type {any} */ event) => {
      if (event.device === device) this.#disconnect();
    });
  }

  /** @param {[string, number][]} values */
  #apply(values) {
    const t = performance.now();
    const isListening = this.isListening();
    const changed = [];
    for (const [name, value] of values) {
      const before = this.values.get(name) ?? 0;
      this.values.set(name, value);
      if (name.startsWith("Button")) {
        if (before === 0 && value !== 0 && this.onPress(name)) this.kept.add(name);
        if (this.kept.has(name)) {
          if (value === 0) this.kept.delete(name);
          continue;
        }
      }
      // A stick that is held when the game begins counts from that moment on.
      if (isListening || value === 0) changed.push({ t, name, value });
    }
    this.inputs.change(changed);
  }

  /** Releases all inputs of a device that is gone. */
  #disconnect() {
    const t = performance.now();
    this.inputs.change([...this.values.keys()].map((name) => ({ t, name, value: 0 })));
    this.values.clear();
    this.kept.clear();
    this.device = undefined;
    if (this.controller !== "") this.onController("");
    this.controller = "";
  }
}
