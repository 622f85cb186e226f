/** The connection of a player, which reconnects after network failures. */

const PROTOCOL = 1;
/** The time for which the server keeps a play without a page, in milliseconds. */
const GRACE_PERIOD = 60_000;
const MIN_RETRY_WAIT = 250;
const MAX_RETRY_WAIT = 4_000;
/** The time after which opening is tried again, in milliseconds. */
const OPEN_TIMEOUT = 10_000;

/** @import { Message } from "../answers.js" */

/**
 * @typedef {object} Listener
 * @property {(message: Message) => void} onMessage Called for each message of the server.
 * @property {(message: ArrayBuffer) => void} onFrame Called for each message with a picture.
 * @property {(state: "connecting" | "open" | "reconnecting" | "gone", reason: string) => void} onState
 *   `gone` is final: the reason is that of "bye", or "lost" after the server was away for too long.
 */

export class PlaySocket {
  /**
   * @param {string} path The path of the play.
   * @param {Listener} listener
   */
  constructor(path, listener) {
    this.url = new URL(path, location.href);
    this.url.protocol = this.url.protocol.replace("http", "ws");
    this.listener = listener;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.tries = 0;
    /** The time at which the connection was lost; null while it is open. @type {number | null} */
    this.lostAt = null;
    this.hasBeenOpen = false;
    this.isDone = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.goOnline = () => this.#open();
    this.goOffline = () => this.#retry();
  }

  open() {
    addEventListener("online", this.goOnline);
    addEventListener("offline", this.goOffline);
    this.lostAt = performance.now();
    this.listener.onState("connecting", "");
    this.#open();
  }

  /** Closes the connection for good. */
  close() {
    this.isDone = true;
    clearTimeout(this.timer);
    removeEventListener("online", this.goOnline);
    removeEventListener("offline", this.goOffline);
    this.#drop();
  }

  /**
   * Sends a message; without a connection, it is lost.
   * @param {object} message
   * @returns {boolean} Whether it was sent.
   */
  send(message) {
    if (!this.socket || this.socket.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  /** Replaces a connection that is dead, although no event has reported it. */
  reconnect() {
    this.#retry();
  }

  #open() {
    if (this.isDone || (this.socket && this.lostAt === null)) return;
    this.#drop();
    clearTimeout(this.timer);
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.timer = setTimeout(() => this.#retry(), OPEN_TIMEOUT);
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
    socket.onclose = () => this.#retry();
  }

  #retry() {
    if (this.isDone) return;
    this.#drop();
    clearTimeout(this.timer);
    this.lostAt ??= performance.now();
    if (performance.now() - this.lostAt > GRACE_PERIOD) {
      this.#end("lost");
      return;
    }
    // Waits are random, so that the players of a restarted server reconnect at different times.
    const wait = Math.min(MIN_RETRY_WAIT * 2 ** this.tries, MAX_RETRY_WAIT) * (0.75 + 0.5 * Math.random());
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
