/** The settings of a play: image quality, pace, camera and devices. */
import { Button, Icon, toast } from "../components.js";
import { formatNumber } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Gamepads } from "./gamepad.js";

/** @import { Offer } from "../answers.js" */
/** @import { Player } from "./player.js" */

const QUALITIES = /** @type {Record<string, string>} */ ({
  draft: "Draft: fastest to draw",
  low: "Low",
  medium: "Medium",
  high: "High",
});

/** @param {{player: Player, offer: Offer, onDone: (event: {detail: number}) => void}} props */
export function Settings({ player, offer, onDone }) {
  const { state } = player;
  const [fps, setFps] = useState(/** @type {number | null} */ (null));
  const currentFps = state?.fps ?? offer.fps;
  useEffect(() => setFps(null), [currentFps]);
  const shownFps = fps ?? currentFps;
  const qualities = offer.qualities ?? [];
  const quality = Math.max(0, qualities.indexOf(state?.quality ?? "medium"));
  const cameras = offer.cameras ?? [];
  const camera = state?.camera ?? 0;
  const back = () => onDone({ detail: 1 });
  return html`<section class="side-part settings" aria-labelledby="settings-title">
    <h2 id="settings-title">Image and speed</h2>
    ${player.isAsync &&
    html`<label class="slider">
      <span>Pace</span><span class="quiet">${formatNumber(shownFps)} steps/s</span>
      <input type="range" aria-label="Pace" aria-valuetext="${formatNumber(shownFps)} steps per second" min="1"
        max=${Math.max(60, Math.ceil(offer.fps))} step="1" value=${shownFps}
        onInput=${(/** @type {any} */ event) => {
          setFps(Number(event.target.value));
          player.set({ fps: Number(event.target.value) });
        }}
        onPointerUp=${back} />
    </label>`}
    ${qualities.length > 1 &&
    html`<label class="slider">
      <span>Image quality</span><span class="quiet">${QUALITIES[qualities[quality]] ?? qualities[quality]}</span>
      <input type="range" aria-label="Image quality" min="0" max=${qualities.length - 1} step="1" value=${quality}
        aria-valuetext=${QUALITIES[qualities[quality]] ?? qualities[quality]}
        onInput=${(/** @type {any} */ event) => player.set({ quality: qualities[Number(event.target.value)] })}
        onPointerUp=${back} />
    </label>`}
    ${cameras.length > 1 &&
    html`<fieldset class="cameras">
      <legend>Camera</legend>
      <div class="row">
        ${cameras.map(
          (name, index) => html`<button key=${index} type="button" class="camera"
            aria-pressed=${String(index === camera)}
            onClick=${(/** @type {MouseEvent} */ event) => {
              player.set({ camera: index });
              onDone(event);
            }}>${name}</button>`,
        )}
      </div>
    </fieldset>`}
    <p class="hint">These settings do not change the recorded observations.</p>
    <div class="devices">
      ${player.controller
        ? html`<p><${Icon} name="gamepad" size=${16} /> ${player.controller}</p>`
        : html`<p class="hint">To use a gamepad, connect it and press one of its buttons.</p>`}
      ${Gamepads.hasSpaceMouse &&
      player.used.has("Space0") &&
      html`<${Button} size="small"
        onClick=${() =>
          player.pads.connectSpaceMouse().catch((/** @type {Error} */ error) => toast(error.message, { kind: "bad" }))}>
        Connect a SpaceMouse
      <//>`}
    </div>
  </section>`;
}
