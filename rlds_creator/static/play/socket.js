/** The connection of a player: comes back by itself after the network was away. */

const PROTOCOL = 1;
/** How long the server keeps a play whose page is away, in milliseconds. */
const GRACE = 60_000;
const FIRST_WAIT = 250;
const LONGEST_WAIT = 4_000;
/** How long opening may take before it is tried anew. */
const OPEN_TIMEOUT = 10_000;

/** @import { Message } from "../answers.js" */

/**
 * @typedef {object} Listener
 * @property {(message: Message) => void} onMessage What the server says.
 * @property {(message: ArrayBuffer) => void} onFrame A picture came.
 * @property {(state: "connecting" | "open" | "reconnecting" | "gone", reason: string) => void} onState
 *   `gone` is the end: "bye" and its reason, or "lost" after the server was away for too long.
 */

export class PlaySocket {
  /**
   * @param {string} path Of the play.
   * @param {Listener} listener
   */
  constructor(path, listener) {
    this.url = new URL(path, location.href);
    this.url.protocol = this.url.protocol.replace("http", "ws");
    this.listener = listener;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.tries = 0;
    /** When the connection was lost; null while there is one. @type {number | null} */
    this.lostAt = null;
    this.hasBeenOpen = false;
    this.isDone = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.goOnline = () => this.#open();
    this.goOffline = () => this.#lose();
  }

  open() {
    addEventListener("online", this.goOnline);
    addEventListener("offline", this.goOffline);
    this.lostAt = performance.now();
    this.listener.onState("connecting", "");
    this.#open();
  }

  /** Ends it, from this side. */
  close() {
    this.isDone = true;
    clearTimeout(this.timer);
    removeEventListener("online", this.goOnline);
    removeEventListener("offline", this.goOffline);
    this.#drop();
  }

  /**
   * Sends a message; what is sent while there is no connection is lost.
   * @param {object} message
   * @returns {boolean} Whether it left.
   */
  send(message) {
    if (!this.socket || this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  /** Opens the connection anew: it is known to be dead, though it does not say so. */
  reconnect() {
    this.#lose();
  }

  #open() {
    if (this.isDone || (this.socket && this.lostAt === null)) return;
    this.#drop();
    clearTimeout(this.timer);
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.timer = setTimeout(() => this.#lose(), OPEN_TIMEOUT);
    socket.onopen = () => {
      clearTimeout(this.timer);
      this.tries = 0;
      this.lostAt = null;
      this.hasBeenOpen = true;
      this.send({ op: "hello", protocol: PROTOCOL });
      this.listener.onState("open", "");
    };
    socket.onmessage = ({ data }) => {
      if (typeof data !== "string") {
        this.listener.onFrame(data);
        return;
      }
      const message = JSON.parse(data);
      if (message.op === "bye") this.#end(message.reason);
      else this.listener.onMessage(message);
    };
    socket.onclose = () => this.#lose();
  }

  #lose() {
    if (this.isDone) return;
    this.#drop();
    clearTimeout(this.timer);
    this.lostAt ??= performance.now();
    if (performance.now() - this.lostAt > GRACE) {
      this.#end("lost");
      return;
    }
    // Players who lost the same server do not all come back at the same moment.
    const wait = Math.min(FIRST_WAIT * 2 ** this.tries, LONGEST_WAIT) * (0.75 + 0.5 * Math.random());
    this.tries += 1;
    this.listener.onState(this.hasBeenOpen ? "reconnecting" : "connecting", "");
    this.timer = setTimeout(() => this.#open(), wait);
  }

  /** @param {string} reason */
  #end(reason) {
    this.close();
    this.listener.onState("gone", reason);
  }

  #drop() {
    if (!this.socket) return;
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket.close();
    this.socket = null;
  }
}
