/** Buttons for fingers. */
import { keyName } from "../format.js";
import { classes, html, useMemo } from "../html.js";
import { PAD, POINTER, SPACE_AXIS, pressing, useHeld } from "./pressing.js";

/** @import { Offer } from "../answers.js" */
/** @import { Player } from "./player.js" */

const ARROWS = ["ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight"];

/** Buttons for fingers; they show where the pointer is one. @param {{player: Player, offer: Offer}} props */
export function TouchPad({ player, offer }) {
  const held = useHeld(player);
  const singles = useMemo(() => {
    const isKey = (/** @type {string} */ input) =>
      !input.includes("+") && !PAD.test(input) && !SPACE_AXIS.test(input) && !POINTER.test(input);
    return offer.controls
      .map(({ inputs, does }) => ({ inputs: inputs.filter(isKey), does }))
      .filter(({ inputs }) => inputs.length > 0);
  }, [offer]);
  /** @param {string} arrow */
  const arrowOf = (arrow) => singles.find(({ inputs }) => inputs.includes(arrow));
  const hasArrows = ARROWS.some(arrowOf);
  const others = singles.filter(({ inputs }) => !inputs.some((input) => ARROWS.includes(input)));
  if (singles.length === 0) return null;
  // Left and right alone are for two thumbs.
  const isWide = hasArrows && !arrowOf("ArrowUp") && !arrowOf("ArrowDown");
  return html`<div class=${classes("touchpad", isWide && "is-wide")} aria-hidden="true">
    ${hasArrows &&
    html`<div class="cross">
      ${ARROWS.filter(arrowOf).map(
        (arrow) => html`<button key=${arrow} type="button"
          class=${classes("touch", arrow, held.has(arrow) && "is-held")} title=${arrowOf(arrow)?.does}
          ...${pressing(player, arrow)}>
          ${keyName(arrow)}
        </button>`,
      )}
    </div>`}
    <div class="touches">
      ${others.map(
        ({ inputs, does }) => html`<button key=${inputs[0]} type="button"
          class=${classes("touch", held.has(inputs[0]) && "is-held")} ...${pressing(player, inputs[0])}>
          ${does}
        </button>`,
      )}
    </div>
  </div>`;
}
