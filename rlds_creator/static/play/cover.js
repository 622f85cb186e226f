/** The cover of the picture: messages while nobody plays, such as pauses and errors. */
import { Button, Icon } from "../components.js";
import { classes, html } from "../html.js";

/** @import { Player } from "./player.js" */

/** Whether the main pointer is a finger, which suggests that there is no keyboard. */
const IS_TOUCH = matchMedia("(pointer: coarse)").matches;

/**
 * The message in front of the picture; null during the game.
 * @param {Player} player
 * @returns {{title: string, text?: any, icon?: string, isBusy?: boolean, isStart?: boolean,
 *   actions?: ("again" | "back" | "here")[]} | null}
 */
export function coverText(player) {
  const { connection, reason, refusal, state } = player;
  if (connection === "opening" || connection === "connecting") return { title: "Connecting…", isBusy: true };
  if (connection === "reconnecting")
    return {
      title: "Connection lost",
      text: "Reconnecting. The game waits at the same step.",
      isBusy: true,
    };
  if (connection === "gone") {
    if (reason === "quota" || refusal?.code === "quota")
      return {
        title: "All done, thank you!",
        text: refusal?.message ?? "You have played all episodes that are needed from you.",
        icon: "check",
        actions: ["back"],
      };
    if (reason === "replaced")
      return {
        title: "You are playing in another tab",
        text: "A game can be open in only one tab.",
        icon: "copy",
        actions: ["here", "back"],
      };
    if (refusal?.code === "consent")
      return { title: "Your consent is needed", text: refusal.message, icon: "info", actions: ["back"] };
    if (reason === "refused")
      return { title: "You cannot play now", text: refusal?.message, icon: "error", actions: ["again", "back"] };
    if (reason === "expired")
      return {
        title: "The game has ended",
        text: "It was paused for too long, or the server restarted. The steps so far are kept.",
        icon: "pause",
        actions: ["again", "back"],
      };
    if (reason === "failed")
      return {
        title: "The environment failed",
        text: player.problem || "The steps so far are kept.",
        icon: "error",
        actions: ["again", "back"],
      };
    if (reason === "lost")
      return {
        title: "The server does not answer",
        text: "The steps so far are kept. Is the server running, and are you online?",
        icon: "error",
        actions: ["again", "back"],
      };
    return {
      title: "This game was closed",
      text: player.problem || "The steps so far are kept.",
      icon: "info",
      actions: ["again", "back"],
    };
  }
  if (!state || !player.offer) return { title: "Starting the environment…", text: player.problem, isBusy: true };
  if (state.state === "ready")
    return {
      title: IS_TOUCH ? "Tap to start" : "Press a key to start",
      text: startHint(player),
      icon: "play",
      isStart: true,
    };
  if (state.state === "paused")
    return {
      title: pauseTitle(player),
      text: IS_TOUCH ? "Tap to continue." : "Press a key to continue.",
      icon: "pause",
      isStart: true,
    };
  return null;
}

/** @param {Player} player */
function pauseTitle({ state, isAway }) {
  if (isAway) return "Paused while you were in another window";
  if (state?.why === "idle") return "Paused: no input for a while";
  if (state?.why === "network") return "Paused: the connection was lost";
  return "Paused";
}

/** @param {Player} player */
function startHint({ isAsync, controller }) {
  const pace = isAsync ? "Steps run at a fixed rate." : "Each press is one step.";
  return `${IS_TOUCH ? "" : `Or click here${controller ? ", or press a button of the gamepad" : ""}. `}${pace}`;
}

/** @param {{words: NonNullable<ReturnType<typeof coverText>>, player: Player, study: string}} props */
export function Cover({ words, player, study }) {
  const stop = (/** @type {Event} */ event) => event.stopPropagation();
  return html`<div class=${classes("cover", words.isStart && "is-start")}>
    <div class="cover-inside">
      ${words.isBusy
        ? html`<span class="spinner large" aria-hidden="true"></span>`
        : words.icon &&
          html`<span class="cover-icon"><${Icon} name=${words.icon} size=${30} /></span>`}
      <p class="cover-title">${words.title}</p>
      ${words.text && html`<p class="cover-text">${words.text}</p>`}
      ${words.actions &&
      html`<div class="actions" onClick=${stop}>
        ${words.actions.includes("here") &&
        html`<${Button} kind="primary" onClick=${() => player.restart()}>Play here<//>`}
        ${words.actions.includes("again") &&
        html`<${Button} kind="primary" icon="reload" onClick=${() => player.restart()}>Start again<//>`}
        ${words.actions.includes("back") &&
        html`<${Button} href=${`/studies/${encodeURIComponent(study)}`}>To the study<//>`}
      </div>`}
    </div>
  </div>`;
}
