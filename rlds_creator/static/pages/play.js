/** A person plays: the picture, the keys and what they do, and how it goes. */
import { Button, Dialog, Icon, Segments, announce, toast, useTitle } from "../components.js";
import { formatCount, formatDuration, formatNumber, inputsOf, keyName } from "../format.js";
import { Fragment, classes, html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { Gamepads } from "../play/gamepad.js";
import { COMMANDS, readLayout } from "../play/keys.js";
import { Player, RETRY_HOLD } from "../play/player.js";
import { navigate } from "../router.js";

/** @typedef {import("../play/keys.js").Command} Command */

const HUD_INTERVAL = 100;
const MAX_BARS = 24;
const HAS_TOUCH = navigator.maxTouchPoints > 0;
/** Whether there is no keyboard, as far as browsers say. */
const IS_TOUCH = matchMedia("(pointer: coarse)").matches;
const QUALITIES = /** @type {Record<string, string>} */ ({ draft: "Draft: fastest to draw", low: "Low", medium: "Medium", high: "High" });

/** @param {{params: {study: string, environment?: string}}} props */
export default function PlayPage({ params }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const stage = useRef(/** @type {HTMLElement | null} */ (null));
  const [player, setPlayer] = useState(/** @type {Player | null} */ (null));
  const [, redraw] = useState(0);
  const { study, environment = null } = params;

  useEffect(() => {
    if (!canvas.current || !stage.current) return undefined;
    const made = new Player({ canvas: canvas.current, stage: stage.current, study, environment });
    made.listeners.add(() => redraw((count) => count + 1));
    made.onEvent = (what, episode) => {
      if (what === "discarded") toast("Thrown away. The next one is ready.");
      else if (episode.state === "rejected") toast("Thrown away.");
      else
        toast("Saved.", { kind: "good", action: { label: "Watch it", do: () => void navigate(`/replay/${episode.id}`) }, seconds: 5 });
    };
    setPlayer(made);
    void made.start();
    stage.current.focus({ preventScroll: true });
    const leaveFullscreen = () => {
      // The browser takes the Escape that leaves the full screen: the player meant a pause as well.
      if (!document.fullscreenElement && made.isRunning && made.isAsync) made.do("pause");
    };
    document.addEventListener("fullscreenchange", leaveFullscreen);
    return () => {
      document.removeEventListener("fullscreenchange", leaveFullscreen);
      made.close();
    };
  }, [study, environment]);

  const hello = player?.hello;
  const state = player?.state?.state ?? "new";
  const title = hello?.environment?.name ?? "Play";
  useTitle(title);
  /** After a click, keys are for the game again. @param {MouseEvent} event */
  const focusBack = (event) => {
    if (event.detail > 0) stage.current?.focus({ preventScroll: true });
  };
  const words = player ? wordsOf(player) : null;
  useEffect(() => {
    if (words) announce([words.title, words.text].filter(Boolean).join(" "));
  }, [words?.title]);

  return html`<div class=${classes("play", HAS_TOUCH && "has-touch")} data-connection=${player?.connection} data-state=${state}>
    <header class="play-head">
      <a class="back" href=${`/studies/${encodeURIComponent(study)}`}><${Icon} name="back" size=${15} /><span>${hello?.study?.name ?? "Study"}</span></a>
      <h1 tabindex="-1">${title}</h1>
    </header>
    <div class="play-main">
      <div
        class=${classes("stage", words && "is-covered")}
        ref=${stage}
        tabindex="0"
        role="application"
        aria-label=${`${title}: keys go to the game while this has the focus. Escape pauses.`}
        onClick=${() => {
          stage.current?.focus({ preventScroll: true });
          if (player?.connection === "open" && (state === "ready" || state === "paused")) player.resume();
        }}
      >
        <canvas ref=${canvas} width="16" height="9" aria-label="What the environment shows"></canvas>
        ${player && html`<${StageHud} player=${player} />`}
        ${words && player && html`<${Cover} words=${words} player=${player} study=${study} />`}
        ${player?.retrySince != null &&
        html`<div class="retry-hold" role="status">
          <span class="retry-bar" style=${{ animationDuration: `${RETRY_HOLD}ms` }}></span>
          Keep it held to throw this episode away
        </div>`}
        ${player?.isStalled && html`<div class="stage-note" role="status"><span class="spinner" aria-hidden="true"></span> Waiting for the environment…</div>`}
      </div>
      ${player && html`<${Commands} player=${player} state=${state} onClick=${focusBack} />`}
      ${player?.offer && HAS_TOUCH && html`<${TouchPad} player=${player} />`}
      ${player?.problem &&
      player.connection === "open" &&
      html`<p class="play-problem" role="alert"><${Icon} name="error" size=${16} /> ${player.problem}</p>`}
    </div>
    <aside class="play-side" aria-label="About the game">
      ${player && html`<${Numbers} player=${player} />`}
      <${Instructions} study=${hello?.study} environment=${hello?.environment} />
      ${player?.offer && html`<${KeyMap} player=${player} />`}
      ${player?.offer && html`<${Settings} player=${player} onDone=${focusBack} />`}
    </aside>
    ${player?.offer && state === "ended" && player.connection === "open" && html`<${Verdict} player=${player} />`}
  </div>`;
}

/**
 * What is said in front of the picture; null while one plays.
 * @param {Player} player
 * @returns {{title: string, text?: any, icon?: string, isBusy?: boolean, isStart?: boolean, actions?: ("again" | "back" | "here")[]} | null}
 */
function wordsOf(player) {
  const { connection, reason, refusal, state } = player;
  if (connection === "opening" || connection === "connecting") return { title: "Connecting…", isBusy: true };
  if (connection === "reconnecting")
    return { title: "The connection is lost", text: "Trying to get it back. The game waits for you, at the same step.", isBusy: true };
  if (connection === "gone") {
    if (reason === "quota" || refusal?.code === "quota")
      return { title: "All done, thank you!", text: "You have played all the episodes that this study asks for.", icon: "check", actions: ["back"] };
    if (reason === "replaced")
      return { title: "You play in another tab", text: "A game is open in one tab at a time.", icon: "copy", actions: ["here", "back"] };
    if (reason === "refused") return { title: "This cannot be played now", text: refusal?.message, icon: "error", actions: ["again", "back"] };
    if (reason === "expired")
      return { title: "You were away for a while", text: "The steps until then are kept.", icon: "pause", actions: ["again", "back"] };
    if (reason === "failed")
      return { title: "The environment broke", text: player.problem || "The steps until then are kept.", icon: "error", actions: ["again", "back"] };
    if (reason === "lost")
      return { title: "The server does not answer", text: "The steps that you saw are kept. Is the server running, and are you online?", icon: "error", actions: ["again", "back"] };
    return { title: "This game was closed", text: player.problem || "The steps until then are kept.", icon: "info", actions: ["again", "back"] };
  }
  if (!state || !player.offer) return { title: "The environment starts…", text: player.problem, isBusy: true };
  if (state.state === "ready") return { title: IS_TOUCH ? "Tap to start" : "Press a key to start", text: startHint(player), icon: "play", isStart: true };
  if (state.state === "paused") return { title: pauseTitle(player), text: IS_TOUCH ? "Tap to go on." : "Press a key to go on.", icon: "pause", isStart: true };
  return null;
}

/** @param {Player} player */
function pauseTitle({ state, isAway }) {
  if (isAway) return "Paused while you were elsewhere";
  if (state.why === "idle") return "Paused: nothing happened for a while";
  if (state.why === "network") return "Paused: the connection was away";
  return "Paused";
}

/** @param {Player} player */
function startHint({ isAsync, controller }) {
  const pace = isAsync ? "It runs at its own pace." : "Each press is one step.";
  return `${IS_TOUCH ? "" : `Or click here${controller ? ", or press a button of the gamepad" : ""}. `}${pace}`;
}

/** @param {{words: NonNullable<ReturnType<typeof wordsOf>>, player: Player, study: string}} props */
function Cover({ words, player, study }) {
  const stop = (/** @type {Event} */ event) => event.stopPropagation();
  return html`<div class=${classes("cover", words.isStart && "is-start")}>
    <div class="cover-inside">
      ${words.isBusy ? html`<span class="spinner large" aria-hidden="true"></span>` : words.icon && html`<span class="cover-icon"><${Icon} name=${words.icon} size=${30} /></span>`}
      <p class="cover-title">${words.title}</p>
      ${words.text && html`<p class="cover-text">${words.text}</p>`}
      ${words.actions &&
      html`<div class="actions" onClick=${stop}>
        ${words.actions.includes("here") && html`<${Button} kind="primary" onClick=${() => player.restart()}>Play here<//>`}
        ${words.actions.includes("again") && html`<${Button} kind="primary" icon="reload" onClick=${() => player.restart()}>Start again<//>`}
        ${words.actions.includes("back") && html`<${Button} href=${`/studies/${encodeURIComponent(study)}`}>To the study<//>`}
      </div>`}
    </div>
  </div>`;
}

/**
 * Draws a part of the page again after pictures, not more often than people can read.
 * @param {Player} player
 */
function useFrames(player) {
  const [, redraw] = useState(0);
  useEffect(() => {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const draw = () => {
      timer = undefined;
      redraw((count) => count + 1);
    };
    const listen = () => {
      timer ??= setTimeout(draw, HUD_INTERVAL);
    };
    player.frameListeners.add(listen);
    const clock = setInterval(() => player.isRunning && listen(), 1000);
    return () => {
      player.frameListeners.delete(listen);
      clearTimeout(timer);
      clearInterval(clock);
    };
  }, [player]);
}

/** @param {number} seconds */
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

/** Over the picture in full screen, where nothing else is seen. @param {{player: Player}} props */
function StageHud({ player }) {
  useFrames(player);
  const { frame } = player;
  return html`<div class="stage-hud" aria-hidden="true">
    <span>step ${formatCount(frame?.step ?? 0)}</span><span>total ${formatNumber(frame?.totalReward ?? 0)}</span><span>${clock(player.seconds)}</span>
  </div>`;
}

/** @param {{player: Player}} props */
function Numbers({ player }) {
  useFrames(player);
  const { frame, latency, episodeNumber } = player;
  const rewards = frame?.isFirst ? "–" : formatNumber(frame?.reward);
  return html`<section class="side-part numbers" aria-label="How it goes">
    <dl class="numbers-grid">
      <div><dt>Step</dt><dd>${formatCount(frame?.step ?? 0)}</dd></div>
      <div><dt>Reward</dt><dd>${rewards}</dd></div>
      <div><dt>Total</dt><dd>${formatNumber(frame?.totalReward ?? 0)}</dd></div>
      <div><dt>Time</dt><dd>${clock(player.seconds)}</dd></div>
    </dl>
    <${Action} action=${frame?.action ?? null} />
    <p class="measured">
      <span>${episodeNumber !== null && `Episode ${formatCount(episodeNumber + 1)}`}</span>
      ${player.isAsync && html`<span title="Pictures drawn per second">${player.rate.toFixed(0)} fps</span>`}
      ${latency !== null && html`<span title="From a press to the picture that shows it">${latency.toFixed(0)} ms</span>`}
    </p>
  </section>`;
}

/** What the environment did last. @param {{action: any}} props */
function Action({ action }) {
  const rows = flatten(action).slice(0, MAX_BARS);
  const size = Math.max(1, ...rows.map(({ value }) => (typeof value === "number" ? Math.abs(value) : 0)));
  const isVector = rows.length > 1;
  return html`<div class="action">
    <p class="action-title">Action</p>
    ${!isVector && html`<p class="action-value">${action === null ? "–" : rows[0] ? formatValue(rows[0].value) : "–"}</p>`}
    ${isVector &&
    html`<ol class="bars">
      ${rows.map(
        ({ name, value }) => html`<li key=${name}>
          <span class="bar-name">${name}</span>
          ${typeof value === "number" && html`<span class="track"><span class=${value < 0 ? "negative" : ""} style=${{ "--part": Math.abs(value) / size }}></span></span>`}
          <span class="bar-value">${formatValue(value)}</span>
        </li>`,
      )}
    </ol>`}
  </div>`;
}

/** @param {any} value */
const formatValue = (value) => (typeof value === "number" ? formatNumber(value) : String(value));

/**
 * The numbers of an action, whatever its form.
 * @param {any} action
 * @param {string} [name]
 * @returns {{name: string, value: any}[]}
 */
function flatten(action, name = "") {
  if (action === null || action === undefined) return [];
  // As NumPy writes a vector.
  if (typeof action === "string" && /^\[[-+.\de\s]+\]$/.test(action)) return flatten(action.slice(1, -1).trim().split(/\s+/).map(Number), name);
  if (typeof action !== "object") return [{ name, value: action }];
  return Object.entries(action).flatMap(([key, value]) => flatten(value, name ? `${name}/${key}` : key));
}

/** @param {{player: Player, state: string, onClick: (event: MouseEvent) => void}} props */
function Commands({ player, state, onClick }) {
  const isOn = player.connection === "open" && (state === "running" || state === "paused");
  const isReady = player.connection === "open" && state === "ready";
  /** @param {Command} command */
  const keysOf = (command) => [...player.reserved].filter(([, what]) => what === command).map(([code]) => keyName(code)).join(" or ");
  /** @param {Command} command @param {string} icon @param {string} label @param {boolean} isPossible @param {string} [kind] */
  const command = (command, icon, label, isPossible, kind = "plain") => html`<${Button}
    kind=${kind} icon=${icon} disabled=${!isPossible}
    title=${[COMMANDS[command].does, keysOf(command)].filter(Boolean).join(": ")}
    onClick=${(/** @type {MouseEvent} */ event) => {
      player.do(command);
      onClick(event);
    }}>${label}<//>`;
  const goes = state === "running";
  return html`<div class="commands" role="toolbar" aria-label="Game">
    ${command("pause", goes ? "pause" : "play", goes ? "Pause" : state === "paused" ? "Go on" : "Start", isOn || isReady, goes ? "plain" : "primary")}
    ${command("end", "stop", "End", isOn)}
    ${command("retry", "undo", "Try again", isOn)}
    <span class="commands-gap"></span>
    ${command("success", "check", "It worked", isOn)}
    ${command("failure", "close", "It failed", isOn)}
    <span class="commands-gap grow"></span>
    ${document.fullscreenEnabled && command("fullscreen", "fullscreen", "Full screen", true, "quiet")}
  </div>`;
}

/** Which inputs are held. @param {Player} player */
function useHeld(player) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listen = () => redraw((count) => count + 1);
    player.inputs.listeners.add(listen);
    return () => void player.inputs.listeners.delete(listen);
  }, [player]);
  return player.inputs.held;
}

/**
 * What makes an element press inputs: with a mouse, a pen, or any number of fingers.
 * @param {Player} player
 * @param {string} input Several that are pressed together are joined by "+".
 */
function pressing(player, input) {
  /** @param {PointerEvent} event @param {number} value */
  const change = (event, value) =>
    player.inputs.change(inputsOf(input).map((name) => ({ t: event.timeStamp, name, value })));
  return {
    tabindex: -1,
    onPointerDown: (/** @type {PointerEvent} */ event) => {
      event.preventDefault();
      player.stage.focus({ preventScroll: true });
      const state = player.state?.state;
      if (state === "ready" || state === "paused") player.resume();
      if (state === "ready" && !player.isAsync) return;
      /** @type {Element} */ (event.currentTarget).setPointerCapture(event.pointerId);
      change(event, 1);
    },
    onPointerUp: (/** @type {PointerEvent} */ event) => change(event, 0),
    onPointerCancel: (/** @type {PointerEvent} */ event) => change(event, 0),
    onLostPointerCapture: (/** @type {PointerEvent} */ event) => change(event, 0),
    onContextMenu: (/** @type {Event} */ event) => event.preventDefault(),
  };
}

const PAD = /^(Button|Axis)\d/;
const SPACE_AXIS = /^Space\d/;
const POINTER = /^Pointer/;

/** @typedef {{inputs: string[], does: string}} Control */

/** One direction of an axis has a name of its own. */
const DIRECTION = /^(.+\d)([+-])$/;

/**
 * Whether an input is held, or a direction of it.
 * @param {Map<string, number>} held
 * @param {string} name
 */
function isOn(held, name) {
  const [, axis, sign] = DIRECTION.exec(name) ?? [];
  return axis ? (held.get(axis) ?? 0) * (sign === "-" ? -1 : 1) > 0.5 : held.has(name);
}

/**
 * Controls without those that go without saying: what each of their keys does, done together.
 * @param {Control[]} controls
 */
function withoutSums(controls) {
  const alone = new Map(controls.flatMap(({ inputs, does }) => inputs.filter((input) => inputsOf(input).length === 1).map((input) => [input, does])));
  const words = (/** @type {string[]} */ texts) => texts.flatMap((text) => text.split(", ")).sort().join();
  return controls.filter(({ inputs, does }) => !inputs.every((input) => {
    const parts = inputsOf(input);
    return parts.length > 1 && parts.every((part) => alone.has(part)) && words(parts.map((part) => alone.get(part) ?? "")) === words([does]);
  }));
}

/** @param {{player: Player}} props */
function KeyMap({ player }) {
  const held = useHeld(player);
  const [layout, setLayout] = useState(/** @type {Map<string, string>} */ (new Map()));
  useEffect(() => {
    readLayout().then(setLayout);
  }, []);
  const hasPad = player.controller !== "";
  /** @param {string} input */
  const isShown = (input) => (!PAD.test(input) && !SPACE_AXIS.test(input)) || hasPad;
  /** @param {string} code */
  const print = (code) => {
    const printed = layout.get(code)?.trim().toUpperCase();
    return printed || keyName(code);
  };
  /** @param {string} input */
  const isHeld = (input) => inputsOf(input).every((name) => isOn(held, name));
  const controls = useMemo(() => withoutSums(player.offer.controls), [player.offer]).filter(({ inputs }) => inputs.some(isShown));
  /** @type {Map<string, string[]>} */
  const commands = new Map();
  for (const [code, command] of player.reserved) commands.set(command, [...(commands.get(command) ?? []), code]);
  return html`<section class="side-part" aria-labelledby="keys-title">
    <h2 id="keys-title">Keys</h2>
    <dl class="keymap">
      ${controls.map((/** @type {any} */ { inputs, does }, /** @type {number} */ index) => {
        const shown = inputs.filter(isShown);
        return html`<div key=${index} class=${shown.some(isHeld) ? "is-held" : ""}>
          <dt>
            ${shown.map((/** @type {string} */ input) =>
              POINTER.test(input) || PAD.test(input) || SPACE_AXIS.test(input)
                ? html`<span key=${input} class=${classes("key", isHeld(input) && "is-held")}>${keyName(input)}</span>`
                : html`<button key=${input} type="button" class=${classes("key", isHeld(input) && "is-held")} data-input=${input} ...${pressing(player, input)}>
                    ${inputsOf(input).map(print).join(" + ")}
                  </button>`,
            )}
          </dt>
          <dd>${does}</dd>
        </div>`;
      })}
    </dl>
    <dl class="keymap quiet-keys">
      ${[...commands].map(
        ([command, codes]) => html`<div key=${command}>
          <dt>${codes.map((code) => html`<span key=${code} class="key">${print(code)}</span>`)}</dt>
          <dd>${COMMANDS[/** @type {Command} */ (command)].does}</dd>
        </div>`,
      )}
    </dl>
  </section>`;
}

const ARROWS = ["ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight"];

/** Buttons for fingers; they show where the pointer is one. @param {{player: Player}} props */
function TouchPad({ player }) {
  const held = useHeld(player);
  const singles = useMemo(() => {
    const isKey = (/** @type {string} */ input) => !input.includes("+") && !PAD.test(input) && !SPACE_AXIS.test(input) && !POINTER.test(input);
    return player.offer.controls
      .map((/** @type {any} */ { inputs, does }) => ({ inputs: inputs.filter(isKey), does }))
      .filter((/** @type {any} */ { inputs }) => inputs.length > 0);
  }, [player.offer]);
  /** @param {string} arrow */
  const arrowOf = (arrow) => singles.find((/** @type {any} */ { inputs }) => inputs.includes(arrow));
  const hasArrows = ARROWS.some(arrowOf);
  const others = singles.filter((/** @type {any} */ { inputs }) => !inputs.some((/** @type {string} */ input) => ARROWS.includes(input)));
  if (singles.length === 0) return null;
  // Left and right alone are for two thumbs.
  const isWide = hasArrows && !arrowOf("ArrowUp") && !arrowOf("ArrowDown");
  return html`<div class=${classes("touchpad", isWide && "is-wide")} aria-hidden="true">
    ${hasArrows &&
    html`<div class="cross">
      ${ARROWS.filter(arrowOf).map(
        (arrow) => html`<button key=${arrow} type="button" class=${classes("touch", arrow, held.has(arrow) && "is-held")} title=${arrowOf(arrow).does} ...${pressing(player, arrow)}>
          ${keyName(arrow)}
        </button>`,
      )}
    </div>`}
    <div class="touches">
      ${others.map(
        (/** @type {any} */ { inputs, does }) => html`<button key=${inputs[0]} type="button" class=${classes("touch", held.has(inputs[0]) && "is-held")} ...${pressing(player, inputs[0])}>
          ${does}
        </button>`,
      )}
    </div>
  </div>`;
}

/** @param {{player: Player, onDone: (event: any) => void}} props */
function Settings({ player, onDone }) {
  const { offer, state } = player;
  const [fps, setFps] = useState(/** @type {number | null} */ (null));
  const told = state?.fps ?? offer.fps;
  useEffect(() => setFps(null), [told]);
  const shownFps = fps ?? told;
  const qualities = /** @type {string[]} */ (offer.qualities ?? []);
  const quality = Math.max(0, qualities.indexOf(state?.quality ?? "medium"));
  const cameras = /** @type {string[]} */ (offer.cameras ?? []);
  const camera = state?.camera ?? 0;
  const back = () => onDone({ detail: 1 });
  return html`<section class="side-part settings" aria-labelledby="settings-title">
    <h2 id="settings-title">Picture and pace</h2>
    ${player.isAsync &&
    html`<label class="slider">
      <span>Pace</span><span class="quiet">${formatNumber(shownFps)} steps/s</span>
      <input type="range" aria-label="Pace" aria-valuetext="${formatNumber(shownFps)} steps per second" min="1" max=${Math.max(60, Math.ceil(offer.fps))} step="1" value=${shownFps}
        onInput=${(/** @type {any} */ event) => {
          setFps(Number(event.target.value));
          player.set({ fps: Number(event.target.value) });
        }}
        onPointerUp=${back} />
    </label>`}
    ${qualities.length > 1 &&
    html`<label class="slider">
      <span>Picture quality</span><span class="quiet">${QUALITIES[qualities[quality]] ?? qualities[quality]}</span>
      <input type="range" aria-label="Picture quality" min="0" max=${qualities.length - 1} step="1" value=${quality} aria-valuetext=${QUALITIES[qualities[quality]] ?? qualities[quality]}
        onInput=${(/** @type {any} */ event) => player.set({ quality: qualities[Number(event.target.value)] })}
        onPointerUp=${back} />
    </label>`}
    ${cameras.length > 1 &&
    html`<fieldset class="cameras">
      <legend>Camera</legend>
      <div class="row">
        ${cameras.map(
          (name, index) => html`<button key=${index} type="button" class="camera" aria-pressed=${String(index === camera)}
            onClick=${(/** @type {MouseEvent} */ event) => {
              player.set({ camera: index });
              onDone(event);
            }}>${name}</button>`,
        )}
      </div>
    </fieldset>`}
    <p class="hint">None of these changes what is recorded as the observation.</p>
    <div class="devices">
      ${player.controller
        ? html`<p><${Icon} name="gamepad" size=${16} /> ${player.controller}</p>`
        : html`<p class="hint">To use a gamepad, connect it and press one of its buttons.</p>`}
      ${Gamepads.hasSpaceMouse &&
      player.used.has("Space0") &&
      html`<${Button} size="small" onClick=${() => player.pads.connectSpaceMouse().catch((/** @type {Error} */ error) => toast(error.message, { kind: "bad" }))}>
        Connect a SpaceMouse
      <//>`}
    </div>
  </section>`;
}

/** @param {{study: any, environment: any}} props */
function Instructions({ study, environment }) {
  const texts = [study?.instructions, environment?.instructions].filter(Boolean);
  if (texts.length === 0) return null;
  return html`<section class="side-part" aria-labelledby="instructions-title">
    <h2 id="instructions-title">What to do</h2>
    ${texts.map((text) => html`<p class="pre">${text}</p>`)}
  </section>`;
}

const REASONS = /** @type {Record<string, string>} */ ({
  terminated: "The game is over.",
  truncated: "The episode has as many steps as it may have.",
  user: "You ended it.",
  failed: "The environment broke. What came before is recorded.",
});

/** Asks what an episode is worth. @param {{player: Player}} props */
function Verdict({ player }) {
  const { state } = player;
  const episode = state.episode;
  const success = episode?.success ?? null;
  const setSuccess = useCallback((/** @type {boolean | null} */ value) => player.control("success", { value }), [player]);
  const answers = /** @type {Record<string, () => void>} */ ({
    Enter: () => player.confirm("completed"),
    NumpadEnter: () => player.confirm("completed"),
    Backspace: () => player.confirm("rejected"),
    Delete: () => player.confirm("rejected"),
    KeyK: () => player.confirm("cancelled"),
    Equal: () => setSuccess(success === true ? null : true),
    NumpadAdd: () => setSuccess(success === true ? null : true),
    Minus: () => setSuccess(success === false ? null : false),
    NumpadSubtract: () => setSuccess(success === false ? null : false),
  });
  useLayoutEffect(() => {
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const isOnButton = document.activeElement instanceof HTMLButtonElement;
      const answer = event.code === "Enter" && isOnButton ? undefined : answers[event.code];
      // Keys that were meant for the game just before its end answer nothing.
      if (event.repeat || !player.isQuiet) {
        if (event.code !== "Tab") event.preventDefault();
      } else if (answer) {
        event.preventDefault();
        answer();
      }
    };
    addEventListener("keydown", press, true);
    return () => removeEventListener("keydown", press, true);
  });
  const hasPad = player.controller !== "";
  return html`<${Dialog}
    title="Keep this episode?"
    class="verdict"
    isFixed=${true}
    onClose=${() => {}}
    actions=${html`<${Fragment}>
      <${Button} kind="quiet" class="throw-away" icon="trash" onClick=${answers.Delete} title="Backspace">Throw away ${hasPad && html`<kbd>B</kbd>`}<//>
      <span class="grow"></span>
      <${Button} onClick=${answers.KeyK} title="K">Keep as incomplete ${hasPad && html`<kbd>X</kbd>`}<//>
      <${Button} kind="primary" icon="check" onClick=${answers.Enter} title="Enter">Good ${hasPad && html`<kbd>A</kbd>`}<//>
    <//>`}
  >
    <div class="verdict-summary" tabindex="-1" autofocus>
      <p>${REASONS[state.why] ?? ""}</p>
      <dl class="numbers-grid">
        <div><dt>Steps</dt><dd>${formatCount(Math.max(0, (episode?.num_steps ?? 1) - 1))}</dd></div>
        <div><dt>Total reward</dt><dd>${formatNumber(episode?.total_reward ?? 0)}</dd></div>
        <div><dt>Time</dt><dd>${formatDuration(episode?.seconds ?? 0)}</dd></div>
      </dl>
    </div>
    <${Segments}
      label="Did it work?"
      value=${success === null ? "" : String(success)}
      onChange=${(/** @type {string} */ value) => setSuccess(value === "" ? null : value === "true")}
      choices=${[
        { value: "true", label: html`It worked <kbd>=</kbd>` },
        { value: "false", label: html`It failed <kbd>−</kbd>` },
        { value: "", label: "Not said" },
      ]}
    />
    <p class="hint verdict-keys"><kbd>Enter</kbd> good <kbd>K</kbd> keep as incomplete <kbd>⌫</kbd> throw away</p>
    ${player.problem && html`<p class="play-problem" role="alert"><${Icon} name="error" size=${16} /> ${player.problem}</p>`}
  <//>`;
}
