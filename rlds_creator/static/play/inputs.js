/**
 * The inputs of all devices of a player, which are sent to the server.
 *
 * Each device calls `change`. Simultaneous changes are one message with a number; each picture reports the number of
 * the last message that the environment has applied.
 */

/** The name of an event that releases all inputs. */
export const ALL_INPUTS = "*";
const MAX_EVENTS = 100;

/** @typedef {{t: number, name: string, value: number, key?: string}} InputEvent */

export class Inputs {
  /** @param {(message: {op: "input", seq: number, events: InputEvent[]}) => boolean} send Returns true if sent. */
  constructor(send) {
    this.send = send;
    /** The values of inputs that differ from 0. @type {Map<string, number>} */
    this.held = new Map();
    /** The number of the last message. */
    this.seq = 0;
    /** The times of presses without a visible effect so far, by message number. @type {Map<number, number>} */
    this.sent = new Map();
    /** @type {Set<() => void>} */
    this.listeners = new Set();
  }

  /**
   * Sends events, without those that do not change a value.
   * @param {InputEvent[]} events
   */
  change(events) {
    const changed = events.filter(({ name, value }) => (this.held.get(name) ?? 0) !== value);
    if (changed.length === 0) return;
    for (const { name, value } of changed) {
      if (value === 0) this.held.delete(name);
      else this.held.set(name, value);
    }
    this.#send(changed);
  }

  /**
   * Releases all inputs.
   * @param {number} [t]
   */
  releaseAll(t = performance.now()) {
    if (this.held.size > 0) this.begin(t);
  }

  /**
   * Releases all inputs, also those of an earlier connection.
   * @param {number} [t]
   */
  begin(t = performance.now()) {
    this.held.clear();
    this.sent.clear();
    this.#send([{ t, name: ALL_INPUTS, value: 0 }]);
  }

  /**
   * Measures the time from a press to the first picture that shows its effect.
   * @param {number} appliedInput The number of the last applied message, of the picture.
   * @returns {number | null} Milliseconds; null if the picture shows no new press.
   */
  latencyAt(appliedInput) {
    // After a reload of the page, the worker goes on counting.
    this.seq = Math.max(this.seq, appliedInput);
    /** @type {number | null} */
    let newest = null;
    for (const [seq, time] of this.sent) {
      if (seq > appliedInput) break;
      newest = time;
      this.sent.delete(seq);
    }
    return newest === null ? null : performance.now() - newest;
  }

  /** @param {InputEvent[]} events */
  #send(events) {
    for (let begin = 0; begin < events.length; begin += MAX_EVENTS) {
      this.seq += 1;
      const batch = events.slice(begin, begin + MAX_EVENTS);
      const press = batch.find(({ value }) => value !== 0);
      if (this.send({ op: "input", seq: this.seq, events: batch }) && press) this.sent.set(this.seq, press.t);
    }
    for (const listener of this.listeners) listener();
  }
}
