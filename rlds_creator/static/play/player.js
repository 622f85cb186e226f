/** A play of an environment: connection, picture, devices, and what the page shows of them. */
import { ApiError, post } from "../api.js";
import { inputsOf } from "../format.js";
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

/** How long the key that discards an episode has to be held, in milliseconds. */
export const RETRY_HOLD = 700;
/** How long after the end of an episode keys that were meant for it do not answer the dialog. */
const QUIET_TIME = 500;
/** Over what time frames are counted, in milliseconds. */
const RATE_WINDOW = 2000;
/** Over what time an environment has to make less than this part of its steps for the page to say so. */
const SLOW_WINDOW = 4000;
const SLOW_PART = 0.7;
/** An environment that steps at its own rate and shows nothing for so long is stuck. */
const STALL = 3000;
/** How long the server may take to say that it is there, and how often it is asked. */
const PROBE_TIMEOUT = 3000;
const PROBE_INTERVAL = 6000;

export class Player {
  /**
   * @param {object} options
   * @param {HTMLCanvasElement} options.canvas
   * @param {HTMLElement} options.stage What has the focus while one plays.
   * @param {string} options.study
   * @param {string | null} options.environment null has the server choose.
   */
  constructor({ canvas, stage, study, environment }) {
    this.canvas = canvas;
    this.stage = stage;
    this.study = study;
    this.environment = environment;

    /** @type {"opening" | "connecting" | "open" | "reconnecting" | "gone"} */
    this.connection = "opening";
    /** Why the connection is gone for good: a reason of the server, "lost", or "refused". */
    this.reason = "";
    /** What the server refused. @type {ApiError | null} */
    this.refusal = null;
    /** What the server said at the beginning: study, environment, person. @type {Welcome | null} */
    this.hello = null;
    /** What the environment offers: controls, cameras, qualities. @type {Offer | null} */
    this.offer = null;
    /** The state that the worker said last. @type {PlayState | null} */
    this.state = null;
    /** What is kept of the last episode. @type {{value: EpisodeState, episode?: Played | null} | null} */
    this.kept = null;
    /** What went wrong, for the player. */
    this.problem = "";
    /** Whether it is paused because the window lost the focus. */
    this.isAway = false;
    this.isStalled = false;
    /** Whether the episode is practice, as far as the server has said. */
    this.isPractice = false;
    /** How many steps per second there are and should be; null if there are enough. */
    this.slow = /** @type {{rate: number, fps: number} | null} */ (null);
    /** Since when the pace is measured, and from which step on. @type {{at: number, step: number} | null} */
    this.measured = null;
    /** Which episode of the visit it is, from 0 on; null if that is not known. @type {number | null} */
    this.episodeNumber = null;
    this.controller = "";
    /** Since when the key that discards is held; null if it is not. @type {number | null} */
    this.retrySince = null;
    /** The keys that the environment leaves, and what they do. @type {Map<string, Command>} */
    this.reserved = new Map();

    /** The last picture that was drawn. @type {Frame | null} */
    this.frame = null;
    /** When the last pictures were drawn. @type {number[]} */
    this.drawnAt = [];
    /** The last times from a press to its picture. @type {number[]} */
    this.latencies = [];
    this.stateAt = 0;
    this.endedAt = 0;
    this.probedAt = 0;

    /** Is called when something changed that is not a picture. @type {Set<() => void>} */
    this.listeners = new Set();
    /** Is called after each picture. @type {Set<() => void>} */
    this.frameListeners = new Set();
    /** Is called with what happened once: "saved", "discarded". @type {(what: string, detail: any) => void} */
    this.onEvent = () => {};

    /** @type {PlaySocket | null} */
    this.socket = null;
    this.inputs = new Inputs((message) => this.socket?.send(message) ?? false);
    /** @type {Screen<Frame>} */
    this.screen = new Screen(canvas, (frame) => this.#drawn(frame));
    this.keys = new Keys({
      inputs: this.inputs,
      isUsed: (code) => this.used.has(code),
      reserved: (code, isDown) => this.#reserved(code, isDown),
      isListening: () => this.#hasFocus(),
      onLost: () => this.#away(),
    });
    this.pads = new Gamepads({
      inputs: this.inputs,
      isListening: () => this.isRunning,
      onPress: (name) => this.#padPress(name),
      onController: (controller) => {
        this.controller = controller;
        // An episode that began with a pad keeps its name, also when the pad is pulled out.
        if (controller) this.set({ controller: controller.slice(0, 200) });
        this.#changed();
      },
    });
    /** The inputs that the environment uses. @type {Set<string>} */
    this.used = new Set();
    /** @type {(() => void)[]} */
    this.endings = [];
    this.isClosed = false;
  }

  get isRunning() {
    return this.connection === "open" && this.state?.state === "running";
  }

  get isAsync() {
    return this.offer?.mode === "async";
  }

  /** Whether answers to the dialog at the end count already. */
  get isQuiet() {
    return performance.now() - this.endedAt > QUIET_TIME && this.inputs.held.size === 0;
  }

  /** Pictures per second, as measured here. */
  get rate() {
    const now = performance.now();
    this.drawnAt = this.drawnAt.filter((time) => now - time < RATE_WINDOW);
    return this.drawnAt.length / (RATE_WINDOW / 1000);
  }

  /** Whether there is a quality that is drawn faster than the one that is shown. */
  get hasDraft() {
    return Boolean(this.offer?.qualities.includes("draft")) && this.state?.quality !== "draft";
  }

  /** The median of the last times from a press to its picture, in milliseconds. */
  get latency() {
    if (this.latencies.length === 0) return null;
    const sorted = [...this.latencies].sort((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 2)];
  }

  /** How long the episode was played, in seconds. */
  get seconds() {
    const told = this.state?.episode?.seconds ?? 0;
    return this.isRunning ? told + (performance.now() - this.stateAt) / 1000 : told;
  }

  /** Goes on with what the player is in the middle of, or begins to play. */
  async start() {
    this.endings.push(this.keys.listen(window), this.pads.listen());
    const watch = setInterval(() => this.#watch(), 500);
    this.endings.push(() => clearInterval(watch));
    await this.#begin();
  }

  /** Begins anew after the play is gone, or takes it back from another tab. */
  async restart() {
    this.socket?.close();
    this.state = this.hello = this.offer = this.kept = this.episodeNumber = null;
    this.problem = "";
    await this.#begin();
  }

  close() {
    this.isClosed = true;
    for (const end of this.endings) end();
    this.screen.close();
    this.socket?.close();
  }

  /** @param {ControlPress["do"]} what @param {Pick<ControlPress, "value">} [more] */
  control(what, more = {}) {
    this.problem = "";
    return this.socket?.send({ op: "control", do: what, ...more }) ?? false;
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
   * Does what a key, a button of the page or of a gamepad asks for.
   * @param {Command} command
   */
  do(command) {
    const state = this.state?.state;
    const isOn = state === "running" || state === "paused";
    if (command === "pause") {
      if (state === "running") this.control("pause");
      else if (state === "ready" || state === "paused") this.resume();
    } else if (command === "end") {
      if (isOn) this.control("end");
    } else if (command === "retry") {
      if (isOn || state === "ended") {
        this.control("retry");
        this.onEvent("discarded", this.state?.episode);
      }
    } else if (command === "success" || command === "failure") {
      if (!isOn) return;
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
    // Some phones have no full screen for anything but videos.
    if (document.fullscreenElement) void document.exitFullscreen();
    else void this.stage.requestFullscreen?.().catch(() => {});
    this.stage.focus({ preventScroll: true });
  }

  async #begin() {
    this.connection = "opening";
    this.refusal = null;
    this.#changed();
    try {
      const { play } = await post("/api/plays", { study: this.study, environment: this.environment });
      if (this.isClosed) return;
      this.#connect(play);
    } catch (error) {
      if (this.isClosed) return;
      this.connection = "gone";
      this.reason = "refused";
      this.refusal = error instanceof ApiError ? error : new ApiError(0, "failed", String(error));
      this.#changed();
    }
  }

  /** @param {string} play */
  #connect(play) {
    this.socket?.close();
    const socket = new PlaySocket(`/api/plays/${encodeURIComponent(play)}`, {
      onMessage: (message) => this.#take(message),
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
        this.#changed();
      },
    });
    this.socket = socket;
    socket.open();
  }

  /** @param {Message} message */
  #take(message) {
    switch (message.op) {
      case "hello":
        // The next episode may be of another environment.
        if (this.hello && this.hello.environment.id !== message.environment.id) this.offer = this.frame = null;
        this.hello = message;
        break;
      case "ready":
        this.offer = message;
        this.used = new Set(message.controls.flatMap(({ inputs }) => inputs.flatMap(inputsOf)));
        this.reserved = reserveKeys(message.controls);
        if (message.cameras.length < 2) this.#unreserve("camera");
        if (!document.fullscreenEnabled) this.#unreserve("fullscreen");
        if (message.has_pointer && !this.hasPointer) {
          this.hasPointer = true;
          this.endings.push(listenToPointer(this.canvas, this.inputs, () => this.isRunning));
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
    this.#changed();
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
    // Before the first step there is no episode yet that could say its number.
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
    // Of the first picture of all it is known which episode it begins.
    if (frame.number === 1) this.episodeNumber ??= 0;
    this.screen.show(frame);
  }

  /** @param {Frame} frame */
  #drawn(frame) {
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
      this.#changed();
    }
    // For tests, and for whoever looks at the page from outside.
    const { dataset } = this.canvas;
    dataset.step = String(frame.step);
    dataset.frame = String(frame.number);
    dataset.input = String(frame.appliedInput);
    if (latency !== null) dataset.latency = latency.toFixed(2);
    for (const listen of this.frameListeners) listen();
  }

  /** Says when an environment that should step does not, and finds out whether the network is to blame. */
  #watch() {
    const now = performance.now();
    this.#measure(now);
    const last = Math.max(this.stateAt, this.drawnAt.at(-1) ?? 0);
    const isStalled = this.isRunning && this.isAsync && now - last > STALL + 3000 / (this.state?.fps || 1);
    if (isStalled !== this.isStalled) {
      this.isStalled = isStalled;
      this.#changed();
    }
    const [oldest] = this.inputs.sent.values();
    const isUnanswered = this.isRunning && oldest !== undefined && now - oldest > STALL;
    if ((isStalled || isUnanswered) && now - this.probedAt > PROBE_INTERVAL) void this.#probe();
  }

  /** Finds out whether the environment makes as many steps as it should. @param {number} now */
  #measure(now) {
    if (!this.isRunning || !this.isAsync || !this.frame || document.hidden) {
      this.measured = null;
      return;
    }
    this.measured ??= { at: now, step: this.frame.step };
    const seconds = (now - this.measured.at) / 1000;
    if (seconds * 1000 < SLOW_WINDOW) return;
    const fps = this.state?.fps ?? this.offer?.fps ?? 0;
    const rate = (this.frame.step - this.measured.step) / seconds;
    this.slow = rate < SLOW_PART * fps ? { rate: Math.round(rate), fps } : null;
    this.measured = null;
    this.#changed();
  }

  /** Opens the connection anew if the server does not answer: browsers notice a dead one after minutes. */
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

  #away() {
    this.stopRetry();
    if (!this.isRunning || !this.isAsync) return;
    this.control("pause");
    this.isAway = true;
  }

  /**
   * Does what a key does that is not for the environment, unless it only begins the episode.
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
      const begins = command === "end" && (this.state?.state === "ready" || this.state?.state === "paused");
      if (isDown) this.do(begins && code === "Enter" ? "pause" : command);
      return true;
    }
    if (!isDown) return this.starters.delete(code);
    if (this.connection !== "open" || (this.state?.state !== "ready" && this.state?.state !== "paused")) return false;
    if (!STARTS.test(code)) return false;
    this.resume();
    // Where each press is a step, that which begins is none. Else it may be held from then on.
    if (this.isAsync) return false;
    this.starters.add(code);
    return true;
  }

  /** Keys that began an episode and are not up yet. @type {Set<string>} */
  starters = new Set();

  startRetry() {
    if (this.retrySince !== null || !["running", "paused"].includes(this.state?.state ?? "")) return;
    this.retrySince = performance.now();
    this.retryTimer = setTimeout(() => {
      this.stopRetry();
      this.do("retry");
    }, RETRY_HOLD);
    this.#changed();
  }

  stopRetry() {
    if (this.retrySince === null) return;
    clearTimeout(this.retryTimer);
    this.retrySince = null;
    this.#changed();
  }

  /**
   * A button of a gamepad may begin, pause, and answer the dialog.
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
    for (const [code, what] of this.reserved) if (what === command) this.reserved.delete(code);
  }

  #changed() {
    if (this.isClosed) return;
    for (const listen of this.listeners) listen();
  }
}

/** Keys that a player may press to begin. */
const STARTS =
  /^(Key|Digit|Arrow|Space|Numpad|Enter|Comma|Period|Slash|Semicolon|Quote|Bracket|Backslash|Shift|Page|Home|End)/;
