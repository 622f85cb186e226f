/**
 * Gamepads and SpaceMice.
 *
 * A stick at rest is never quite at 0, and one that is held trembles: values near the middle count
 * as 0, the others are sent when they have changed by a visible amount.
 */

/** @typedef {import("./inputs.js").Inputs} Inputs */

const AXIS_STEPS = 40;
const BUTTON_STEPS = 20;
/** A stick leaves the middle above the larger, and is back there below the smaller; workers take the same. */
const DEAD_ZONE = 0.1;
const DEAD_ZONE_BACK = 0.08;
/** How much of a step a value has to go beyond the middle between two to count as the next. */
const HYSTERESIS = 0.15;
/** What a SpaceMouse reports when it is pushed to its end. */
const SPACE_FULL = 350;
const SPACE_VENDORS = [0x256f, 0x046d];
const SPACE_NAME = /space\s?(mouse|navigator|pilot|explorer|ball)|3dconnexion|vendor:? ?256f|^256f-/i;

/**
 * The value of an axis, in steps, without what is due to the device.
 * @param {number} raw From -1 to 1.
 * @param {number} previous The value that it had.
 */
export function quantiseAxis(raw, previous) {
  const size = Math.min(Math.abs(raw), 1);
  if (!(size >= (previous === 0 ? DEAD_ZONE : DEAD_ZONE_BACK))) return 0;
  return toStep(Math.sign(raw) * Math.max(size, DEAD_ZONE), previous, AXIS_STEPS);
}

/**
 * The value of a button or a trigger, in steps.
 * @param {number} raw From 0 to 1.
 * @param {number} previous The value that it had.
 */
export function quantiseButton(raw, previous) {
  if (!(raw > 0.05)) return 0;
  return toStep(Math.min(raw, 1), previous, BUTTON_STEPS);
}

/** @param {number} value @param {number} previous @param {number} steps */
function toStep(value, previous, steps) {
  if (Math.abs(value * steps - previous * steps) <= 0.5 + HYSTERESIS && Math.abs(value) < 1) return previous;
  return Math.round(value * steps) / steps || 0;
}

/** @param {string} id What the browser calls a device. */
export const isSpaceMouse = (id) => SPACE_NAME.test(id);

/**
 * What a gamepad says, as inputs.
 * @param {{id: string, axes: readonly number[], buttons: readonly {value: number}[]}} pad
 * @param {(name: string) => number} previous The values that the inputs had.
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
 * What a report of a SpaceMouse says, as axes from -1 to 1 and buttons.
 * @param {number} reportId 1 moves, 2 turns, 3 says which buttons are down.
 * @param {DataView} data
 * @returns {[string, number][]}
 */
export function readSpaceReport(reportId, data) {
  /** @type {[string, number][]} */
  const values = [];
  if (reportId === 1 || reportId === 2) {
    // Newer devices send all six axes in report 1.
    const count = Math.min(Math.floor(data.byteLength / 2), reportId === 1 ? 6 : 3);
    for (let index = 0; index < count; index++) {
      const raw = data.getInt16(2 * index, true) / SPACE_FULL;
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
   * @param {(name: string) => boolean} [options.onPress] A button went down; true keeps it from the game.
   * @param {(controller: string) => void} [options.onController] Another device is there; "" if none is.
   */
  constructor({ inputs, isListening, onPress = () => false, onController = () => {} }) {
    this.inputs = inputs;
    this.isListening = isListening;
    this.onPress = onPress;
    this.onController = onController;
    this.controller = "";
    /** The values of the last look, by name. @type {Map<string, number>} */
    this.values = new Map();
    /** Buttons that went down for something else than the game. @type {Set<string>} */
    this.kept = new Set();
    this.frame = 0;
  }

  /** Looks at the pads once. */
  poll() {
    const pads = navigator.getGamepads?.() ?? [];
    const pad =
      [...pads].find((one) => one?.connected && (one.id === this.controller || this.controller === "")) ??
      [...pads].find((one) => one?.connected);
    if (!pad) {
      if (this.controller !== "" && !this.device) this.#lose();
      return;
    }
    if (pad.id !== this.controller) {
      this.#lose();
      this.controller = pad.id;
      this.onController(pad.id);
    }
    this.#take(readPad(pad, (name) => this.values.get(name) ?? 0));
  }

  /**
   * Looks at the pads each time that the page is drawn.
   * @returns {() => void} Ends it.
   */
  listen() {
    const look = () => {
      this.poll();
      this.frame = requestAnimationFrame(look);
    };
    look();
    return () => {
      cancelAnimationFrame(this.frame);
      this.#lose();
      void this.device?.close();
    };
  }

  /** Whether the browser can reach a SpaceMouse that is no gamepad for it. */
  static get hasSpaceMouse() {
    return "hid" in navigator;
  }

  /** Asks the player for a SpaceMouse; the browser shows those that there are. */
  async connectSpaceMouse() {
    const hid = /** @type {any} */ (navigator).hid;
    // Multi-axis controllers of the vendors that make them.
    const filters = SPACE_VENDORS.map((vendorId) => ({ vendorId, usagePage: 1, usage: 8 }));
    const [device] = await hid.requestDevice({ filters });
    if (!device) return;
    if (!device.opened) await device.open();
    this.#lose();
    this.device = device;
    this.controller = device.productName || "SpaceMouse";
    this.onController(this.controller);
    device.addEventListener("inputreport", (/** @type {any} */ { reportId, data }) => {
      const values = readSpaceReport(reportId, data);
      this.#take(
        values.map(([name, raw]) => {
          const previous = this.values.get(name) ?? 0;
          return [name, name.startsWith("Space") ? quantiseAxis(raw, previous) : raw];
        }),
      );
    });
    hid.addEventListener("disconnect", (/** @type {any} */ event) => {
      if (event.device === device) this.#lose();
    });
  }

  /** @param {[string, number][]} values */
  #take(values) {
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
      // A stick that is held since before the game began counts from then on.
      if (isListening || value === 0) changed.push({ t, name, value });
    }
    this.inputs.change(changed);
  }

  /** Nobody says any more what the device does. */
  #lose() {
    const t = performance.now();
    this.inputs.change([...this.values.keys()].map((name) => ({ t, name, value: 0 })));
    this.values.clear();
    this.kept.clear();
    this.device = undefined;
    if (this.controller !== "") this.onController("");
    this.controller = "";
  }
}
