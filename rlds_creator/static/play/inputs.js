/**
 * What a player does, with all devices, on its way to the server.
 *
 * Each device calls `change`; what changed in one go leaves as one message, with a number by which a
 * picture says later that the environment had it.
 */

/** The name, with value 0, that releases everything. */
export const EVERYTHING = "*";
const MAX_EVENTS = 100;

/** @typedef {{t: number, name: string, value: number, key?: string}} InputEvent */

export class Inputs {
  /** @param {(message: {op: "input", seq: number, events: InputEvent[]}) => boolean} send Whether it left. */
  constructor(send) {
    this.send = send;
    /** The inputs that are away from 0. @type {Map<string, number>} */
    this.held = new Map();
    /** The number of the last message. */
    this.seq = 0;
    /** When presses left whose effect was not seen yet, by the number of their message. @type {Map<number, number>} */
    this.sent = new Map();
    /** @type {Set<() => void>} */
    this.listeners = new Set();
  }

  /**
   * Sends what changed; what already has its value is left out.
   * @param {InputEvent[]} events
   */
  change(events) {
    const changed = events.filter(({ name, value }) => (this.held.get(name) ?? 0) !== value);
    if (changed.length === 0) return;
    for (const { name, value } of changed) {
      if (value === 0) this.held.delete(name);
      else this.held.set(name, value);
    }
    this.#leave(changed);
  }

  /**
   * Releases everything.
   * @param {number} [t]
   */
  releaseAll(t = performance.now()) {
    if (this.held.size > 0) this.begin(t);
  }

  /**
   * Releases everything, also what an earlier connection left held.
   * @param {number} [t]
   */
  begin(t = performance.now()) {
    this.held.clear();
    this.sent.clear();
    this.#leave([{ t, name: EVERYTHING, value: 0 }]);
  }

  /**
   * Says how long it took from a press to the first picture that shows what came of it.
   * @param {number} appliedInput The number that came with the picture.
   * @returns {number | null} In milliseconds; null if it shows no new press.
   */
  latencyAt(appliedInput) {
    // The page may have been loaded anew while the worker went on counting.
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
  #leave(events) {
    for (let at = 0; at < events.length; at += MAX_EVENTS) {
      this.seq += 1;
      const batch = events.slice(at, at + MAX_EVENTS);
      const press = batch.find(({ value }) => value !== 0);
      if (this.send({ op: "input", seq: this.seq, events: batch }) && press) this.sent.set(this.seq, press.t);
    }
    for (const listen of this.listeners) listen();
  }
}
