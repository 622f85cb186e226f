/** The buttons below the picture. */
import { Button } from "../components.js";
import { keyName } from "../format.js";
import { html } from "../html.js";
import { COMMANDS } from "./keys.js";

/** @import { Command } from "./keys.js" */
/** @import { Player } from "./player.js" */

/** @param {{player: Player, state: string, onClick: (event: MouseEvent) => void}} props */
export function Commands({ player, state, onClick }) {
  const isActive = player.connection === "open" && (state === "running" || state === "paused");
  const isReady = player.connection === "open" && state === "ready";
  /** @param {Command} command */
  const keyNames = (command) =>
    [...player.reserved]
      .filter(([, reserved]) => reserved === command)
      .map(([code]) => keyName(code))
      .join(" or ");
  /**
   * @param {Command} command
   * @param {string} icon
   * @param {string} label
   * @param {boolean} isPossible
   * @param {string} [kind]
   */
  const command = (command, icon, label, isPossible, kind = "plain") => html`<${Button}
    kind=${kind} icon=${icon} disabled=${!isPossible}
    title=${[COMMANDS[command].does, keyNames(command)].filter(Boolean).join(": ")}
    onClick=${(/** @type {MouseEvent} */ event) => {
      player.do(command);
      onClick(event);
    }}>${label}<//>`;
  const isRunning = state === "running";
  return html`<div class="commands" role="toolbar" aria-label="Game">
    ${command(
      "pause",
      isRunning ? "pause" : "play",
      isRunning ? "Pause" : state === "paused" ? "Continue" : "Start",
      isActive || isReady,
      isRunning ? "plain" : "primary",
    )}
    ${command("end", "stop", "End", isActive)}
    ${command("retry", "undo", "Try again", isActive)}
    <span class="commands-gap"></span>
    ${command("success", "check", "It worked", isActive)}
    ${command("failure", "close", "It failed", isActive)}
    <span class="commands-gap grow"></span>
    ${document.fullscreenEnabled && command("fullscreen", "fullscreen", "Full screen", true, "quiet")}
  </div>`;
}
