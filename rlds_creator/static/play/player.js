/** A play of an environment: connection, picture, devices, and the state that the page shows. */
import { ApiError, post } from "../api.js";
import { splitInputs } from "../format.js";
import { decodeFrame } from "../frames.js";
import { Screen } from "./canvas.js";
import { Gamepads } from "./gamepad.js";
import { Inputs } from "./inputs.js";
import { Keys, reserveKeys } from "./keys.js";
import { listenToPointer } from "./pointer.js";
import { PlaySocket } from "./socket.js";

/** @import { ControlPress, EpisodeState, SettingsChange } from "../api_types.js" */
/** @import { Message, Offer, PlayState, Played, Welcome } from "../answers.js" */
/** @import { Frame } from "../frames.js" */
/** @import { Command } from "./keys.js" */

/** The time for which the key that discards an episode has to be held, in milliseconds. */
export const RETRY_HOLD = 700;
/** The time after an episode in which the dialog ignores keys that were meant for the game, in milliseconds. */
const QUIET_TIME = 500;
/** The time over which frames are counted, in milliseconds. */
const RATE_WINDOW = 2000;
/** The time over which slowness is judged, in milliseconds. */
const SLOW_WINDOW = 4000;
const SLOW_SHARE = 0.7; // Below this share of the requested steps per second, an environment is slow.
/** The time without a picture after which an asynchronous environment is stuck, in milliseconds. */
const STALL_TIME = 3000;
/** The timeout and the interval of requests that probe the server, in milliseconds. */
const PROBE_TIMEOUT = 3000;
const PROBE_INTERVAL = 6000;

export class Player {
  /**
   * @param {object} options
   * @param {HTMLCanvasElement} options.canvas
   * @param {HTMLElement} options.stage The element with the focus during the game.
   * @param {string} options.study
   * @param {string | null} options.environment If null, the server chooses.
   */
  constructor({ canvas, stage, study, environment }) {
    this.canvas = canvas;
    this.stage = stage;
    this.study = study;
    this.environment = environment;

    /** @type {"opening" | "connecting" | "open" | "reconnecting" | "gone"} */
    this.connection = "opening";
    /** The reason why the connection is gone: a reason of the server, "lost", or "refused". */
    this.reason = "";
    /** The error if the server refuses the play. @type {ApiError | null} */
    this.refusal = null;
    /** The first message of the server: study, environment, person. @type {Welcome | null} */
    this.hello = null;
    /** The controls, cameras and qualities of the environment. @type {Offer | null} */
    this.offer = null;
    /** The last state of the worker. @type {PlayState | null} */
    this.state = null;
    /** The answer of the dialog until it is confirmed. @type {{value: EpisodeState, episode?: Played | null} | null} */
    this.kept = null;
    /** The text of the last error. */
    this.problem = "";
    /** Whether the game is paused because the window lost the focus. */
    this.isAway = false;
    this.isStalled = false;
    /** Whether the server has marked the episode as practice. */
    this.isPractice = false;
    /** The actual and the expected steps per second of a slow environment; null if it is fast enough. */
    this.slow = /** @type {{rate: number, fps: number} | null} */ (null);
    /** The time and the step at which the measurement of the pace began. @type {{time: number, step: number} | null} */
    this.measured = null;
    /** The index of the episode in the visit; null if unknown. @type {number | null} */
    this.episodeNumber = null;
    this.controller = "";
    /** The time since which the key that discards is held; null if it is not held. @type {number | null} */
    this.retrySince = null;
    /** The commands of keys that the environment does not use. @type {Map<string, Command>} */
    this.reserved = new Map();

    /** The last drawn picture. @type {Frame | null} */
    this.frame = null;
    /** The times at which the last pictures were drawn. @type {number[]} */
    this.drawnAt = [];
    /** The last times from a press to its picture. @type {number[]} */
    this.latencies = [];
    this.stateAt = 0;
    this.endedAt = 0;
    this.probedAt = 0;

    /** Called when the state changes, but not for pictures. @type {Set<() => void>} */
    this.listeners = new Set();
    /** Called after each picture. @type {Set<() => void>} */
    this.frameListeners = new Set();
    /** Called for events: "saved", "discarded". @type {(event: string, detail: any) => void} */
    this.onEvent = () => {};

    /** @type {PlaySocket | null} */
    this.socket = null;
    this.inputs = new Inputs((message) => this.socket?.send(message) ?? false);
    /** @type {Screen<Frame>} */
    this.screen = new Screen(canvas, (frame) => this.#onDrawn(frame));
    this.keys = new Keys({
      inputs: this.inputs,
      isUsed: (code) => this.used.has(code),
      reserved: (code, isDown) => this.#reserved(code, isDown),
      isListening: () => this.#hasFocus(),
      onLost: () => this.#pauseAway(),
    });
    this.pads = new Gamepads({
      inputs: this.inputs,
      isListening: () => this.isRunning,
      onPress: (name) => this.#padPress(name),
      onController: (controller) => {
        this.controller = controller;
        // The episode keeps the name of an unplugged pad.
        if (controller) this.set({ controller: controller.slice(0, 200) });
        this.#notify();
      },
    });
    /** The inputs that the environment uses. @type {Set<string>} */
    this.used = new Set();
    /** @type {(() => void)[]} */
    this.cleanups = [];
    this.isClosed = false;
  }

  get isRunning() {
    return this.connection === "open" && this.state?.state === "running";
  }

  get isAsync() {
    return this.offer?.mode === "async";
  }

  /** Whether the dialog after an episode accepts answers. */
  get isQuiet() {
    return performance.now() - this.endedAt > QUIET_TIME && this.inputs.held.size === 0;
  }

  /** The measured rate of pictures per second. */
  get rate() {
    const now = performance.now();
    this.drawnAt = this.drawnAt.filter((time) => now - time < RATE_WINDOW);
    return this.drawnAt.length / (RATE_WINDOW / 1000);
  }

  /** Whether the environment supports a draft quality that is not chosen. */
  get hasDraft() {
    return Boolean(this.offer?.qualities.includes("draft")) && this.state?.quality !== "draft";
  }

  /** The median of the last times from a press to its picture, in milliseconds. */
  get latency() {
    if (this.latencies.length === 0) return null;
    const sorted = [...this.latencies].sort((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 2)];
  }

  /** The duration of the episode in seconds. */
  get seconds() {
    const reported = this.state?.episode?.seconds ?? 0;
    return this.isRunning ? reported + (performance.now() - this.stateAt) / 1000 : reported;
  }

  /** Starts or continues the play. */
  async start() {
    this.cleanups.push(this.keys.listen(window), this.pads.listen());
    const watch = setInterval(() => this.#watch(), 500);
    this.cleanups.push(() => clearInterval(watch));
    await this.#begin();
  }

  /** Starts a new play after the old one is gone, or takes it back from another tab. */
  async restart() {
    this.socket?.close();
    this.state = this.hello = this.offer = this.kept = this.episodeNumber = null;
    this.problem = "";
    await this.#begin();
  }

  close() {
    this.isClosed = true;
    for (const cleanUp of this.cleanups) cleanUp();
    this.screen.close();
    this.socket?.close();
  }

  /** @param {ControlPress["do"]} action @param {Pick<ControlPress, "value">} [details] */
  control(action, details = {}) {
    this.problem = "";
    return this.socket?.send({ op: "control", do: action, ...details }) ?? false;
  }

  /** @param {Omit<SettingsChange, "op">} settings */
  set(settings) {
    this.socket?.send({ op: "set", ...settings });
  }

  /** Begins an episode, or goes on. */
  resume() {
    this.isAway = false;
    this.control("resume");
  }

  /** @param {"completed" | "cancelled" | "rejected"} value */
  confirm(value) {
    this.kept = { value, episode: this.state?.episode };
    this.control("confirm", { value });
  }

  /**
   * Runs the command of a key, of a button of the page or of a gamepad.
   * @param {Command} command
   */
  do(command) {
    const state = this.state?.state;
    const isActive = state === "running" || state === "paused";
    if (command === "pause") {
      if (state === "running") this.control("pause");
      else if (state === "ready" || state === "paused") this.resume();
    } else if (command === "end") {
      if (isActive) this.control("end");
    } else if (command === "retry") {
      if (isActive || state === "ended") {
        this.control("retry");
        this.onEvent("discarded", this.state?.episode);
      }
    } else if (command === "success" || command === "failure") {
      if (!isActive) return;
      this.control("success", { value: command === "success" });
      this.control("end");
    } else if (command === "camera") {
      const count = this.offer?.cameras?.length ?? 0;
      if (count > 1) this.set({ camera: ((this.state?.camera ?? 0) + 1) % count });
    } else if (command === "fullscreen") {
      this.toggleFullscreen();
    }
  }

  toggleFullscreen() {
    // Some phones support full screen only for videos.
    if (document.fullscreenElement) void document.exitFullscreen();
    else void this.stage.requestFullscreen?.().catch(() => {});
    this.stage.focus({ preventScroll: true });
  }

  async #begin() {
    this.connection = "opening";
    this.refusal = null;
    this.#notify();
    try {
      const { play } = await post("/api/plays", { study: this.study, environment: this.environment });
      if (this.isClosed) return;
      this.#connect(play);
    } catch (error) {
      if (this.isClosed) return;
      this.connection = "gone";
      this.reason = "refused";
      this.refusal = error instanceof ApiError ? error : new ApiError(0, "failed", String(error));
      this.#notify();
    }
  }

  /** @param {string} play */
  #connect(play) {
    this.socket?.close();
    const socket = new PlaySocket(`/api/plays/${encodeURIComponent(play)}`, {
      onMessage: (message) => this.#handle(message),
      onFrame: (message) => this.#show(message),
      onState: (state, reason) => {
        if (this.socket !== socket) return;
        this.connection = state;
        this.reason = reason;
        if (state === "open") {
          this.inputs.begin();
          if (this.controller) this.set({ controller: this.controller.slice(0, 200) });
        } else {
          this.keys.releaseAll();
        }
        this.#notify();
      },
    });
    this.socket = socket;
    socket.open();
  }

  /** @param {Message} message */
  #handle(message) {
    switch (message.op) {
      case "hello":
        // The next episode may use another environment.
        if (this.hello && this.hello.environment.id !== message.environment.id) this.offer = this.frame = null;
        this.hello = message;
        break;
      case "ready":
        this.offer = message;
        this.used = new Set(message.controls.flatMap(({ inputs }) => inputs.flatMap(splitInputs)));
        this.reserved = reserveKeys(message.controls);
        if (message.cameras.length < 2) this.#unreserve("camera");
        if (!document.fullscreenEnabled) this.#unreserve("fullscreen");
        if (message.has_pointer && !this.hasPointer) {
          this.hasPointer = true;
          this.cleanups.push(listenToPointer(this.canvas, this.inputs, () => this.isRunning));
        }
        break;
      case "state":
        this.#enter(message);
        break;
      case "episode":
        this.isPractice = message.episode.is_practice;
        if (this.kept && message.episode.id === this.kept.episode?.id && message.episode.state === this.kept.value) {
          this.onEvent("saved", message.episode);
          this.kept = null;
        }
        break;
      case "error":
        this.problem = message.message;
        break;
    }
    this.#notify();
  }

  /** @param {PlayState} state */
  #enter(state) {
    const before = this.state?.state;
    if (before !== state.state || this.state?.fps !== state.fps || this.state.quality !== state.quality) {
      this.measured = this.slow = null;
    }
    if (state.state === "ready") this.isPractice = false;
    this.state = state;
    this.stateAt = performance.now();
    // Before the first step, the state has no episode with its number.
    if (state.episode) this.episodeNumber = state.episode.number;
    else if (state.state === "ready" && before !== undefined && before !== "ready" && this.episodeNumber !== null)
      this.episodeNumber += 1;
    if (state.state !== "paused") this.isAway = false;
    if (state.state === before) return;
    this.isStalled = false;
    if (state.state === "ended") {
      this.endedAt = performance.now();
      this.keys.releaseAll();
      if (document.fullscreenElement) void document.exitFullscreen();
    }
    if (before === "ended") this.stage.focus({ preventScroll: true });
  }

  /** @param {ArrayBuffer} message */
  #show(message) {
    const frame = decodeFrame(message);
    // The first picture of a worker begins its first episode.
    if (frame.number === 1) this.episodeNumber ??= 0;
    this.screen.show(frame);
  }

  /** @param {Frame} frame */
  #onDrawn(frame) {
    this.socket?.send({ op: "ack", frame: frame.number });
    const latency = this.inputs.latencyAt(frame.appliedInput);
    const now = performance.now();
    this.drawnAt.push(now);
    if (latency !== null) {
      this.latencies.push(latency);
      if (this.latencies.length > 31) this.latencies.shift();
    }
    this.frame = frame;
    if (this.isStalled) {
      this.isStalled = false;
      this.#notify();
    }
    // Tests and other programs read the step from the page.
    const { dataset } = this.canvas;
    dataset.step = String(frame.step);
    dataset.frame = String(frame.number);
    dataset.input = String(frame.appliedInput);
    if (latency !== null) dataset.latency = latency.toFixed(2);
    for (const listener of this.frameListeners) listener();
  }

  /** Detects an environment that stalls, and probes the server. */
  #watch() {
    const now = performance.now();
    this.#measure(now);
    const last = Math.max(this.stateAt, this.drawnAt.at(-1) ?? 0);
    const isStalled = this.isRunning && this.isAsync && now - last > STALL_TIME + 3000 / (this.state?.fps || 1);
    if (isStalled !== this.isStalled) {
      this.isStalled = isStalled;
      this.#notify();
    }
    const [oldest] = this.inputs.sent.values();
    const isUnanswered = this.isRunning && oldest !== undefined && now - oldest > STALL_TIME;
    if ((isStalled || isUnanswered) && now - this.probedAt > PROBE_INTERVAL) void this.#probe();
  }

  /** Compares the pace of the environment with the expected pace. @param {number} now */
  #measure(now) {
    if (!this.isRunning || !this.isAsync || !this.frame || document.hidden) {
      this.measured = null;
      return;
    }
    this.measured ??= { time: now, step: this.frame.step };
    const seconds = (now - this.measured.time) / 1000;
    if (seconds * 1000 < SLOW_WINDOW) return;
    const fps = this.state?.fps ?? this.offer?.fps ?? 0;
    const rate = (this.frame.step - this.measured.step) / seconds;
    this.slow = rate < SLOW_SHARE * fps ? { rate: Math.round(rate), fps } : null;
    this.measured = null;
    this.#notify();
  }

  /** Reconnects if the server does not answer, as browsers detect a dead connection after minutes. */
  async #probe() {
    this.probedAt = performance.now();
    try {
      await fetch("/api/me", { cache: "no-store", signal: AbortSignal.timeout(PROBE_TIMEOUT) });
    } catch {
      if (!this.isClosed) this.socket?.reconnect();
    }
  }

  /** Whether keys are for the game: no field, slider or dialog has the focus. */
  #hasFocus() {
    if (document.querySelector("dialog[open]")) return false;
    const active = document.activeElement;
    return (
      active === null ||
      active === document.body ||
      active === this.stage ||
      active === this.canvas ||
      active.tagName === "MAIN" ||
      active.tagName === "H1"
    );
  }

  #pauseAway() {
    this.stopRetry();
    if (!this.isRunning || !this.isAsync) return;
    this.control("pause");
    this.isAway = true;
  }

  /**
   * Handles a key that is not for the environment; returns whether the key had a function.
   * @param {string} code
   * @param {boolean} isDown
   */
  #reserved(code, isDown) {
    const command = this.reserved.get(code);
    if (command === "retry") {
      if (isDown) this.startRetry();
      else this.stopRetry();
      return true;
    }
    if (command !== undefined) {
      const isStart = command === "end" && (this.state?.state === "ready" || this.state?.state === "paused");
      if (isDown) this.do(isStart && code === "Enter" ? "pause" : command);
      return true;
    }
    if (!isDown) return this.starters.delete(code);
    if (this.connection !== "open" || (this.state?.state !== "ready" && this.state?.state !== "paused")) return false;
    if (!START_KEYS.test(code)) return false;
    this.resume();
    // A press that starts a synchronous episode is no step; an asynchronous episode gets the held key.
    if (this.isAsync) return false;
    this.starters.add(code);
    return true;
  }

  /** Held keys that started an episode. @type {Set<string>} */
  starters = new Set();

  startRetry() {
    if (this.retrySince !== null || !["running", "paused"].includes(this.state?.state ?? "")) return;
    this.retrySince = performance.now();
    this.retryTimer = setTimeout(() => {
      this.stopRetry();
      this.do("retry");
    }, RETRY_HOLD);
    this.#notify();
  }

  stopRetry() {
    if (this.retrySince === null) return;
    clearTimeout(this.retryTimer);
    this.retrySince = null;
    this.#notify();
  }

  /**
   * Handles a button of a gamepad: start, pause, answers of the dialog.
   * @param {string} name
   */
  #padPress(name) {
    const state = this.state?.state;
    if (name === "Button9" && !this.used.has(name) && state !== "ended") {
      this.do("pause");
      return true;
    }
    if (state === "ready" || state === "paused") {
      this.resume();
      return true;
    }
    if (state === "ended") {
      const value = /** @type {const} */ ({ Button0: "completed", Button2: "cancelled", Button1: "rejected" })[name];
      if (value && this.isQuiet) this.confirm(value);
      return true;
    }
    return false;
  }

  /** @param {Command} command */
  #unreserve(command) {
    for (const [code, reserved] of this.reserved) if (reserved === command) this.reserved.delete(code);
  }

  #notify() {
    if (this.isClosed) return;
    for (const listener of this.listeners) listener();
  }
}

/** Keys that start an episode. */
const START_KEYS =
  /^(Key|Digit|Arrow|Space|Numpad|Enter|Comma|Period|Slash|Semicolon|Quote|Bracket|Backslash|Shift|Page|Home|End)/;
