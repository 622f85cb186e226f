/** The touch pad: buttons of the keys of the game, for touch screens. */
import { keyName } from "../format.js";
import { classes, html, useMemo } from "../html.js";
import { PAD, POINTER, SPACE_AXIS, pressHandlers, useHeldInputs } from "./pressing.js";

/** @import { Offer } from "../answers.js" */
/** @import { Player } from "./player.js" */

const ARROWS = ["ArrowUp", "ArrowLeft", "ArrowDown", "ArrowRight"];

/** The styles show the buttons only with a coarse pointer. @param {{player: Player, offer: Offer}} props */
export function TouchPad({ player, offer }) {
  const held = useHeldInputs(player);
  const singles = useMemo(() => {
    const isKey = (/** @type {string} */ input) =>
      !input.includes("+") && !PAD.test(input) && !SPACE_AXIS.test(input) && !POINTER.test(input);
    return offer.controls
      .map(({ inputs, does }) => ({ inputs: inputs.filter(isKey), does }))
      .filter(({ inputs }) => inputs.length > 0);
  }, [offer]);
  /** @param {string} arrow */
  const findControl = (arrow) => singles.find(({ inputs }) => inputs.includes(arrow));
  const hasArrows = ARROWS.some(findControl);
  const buttons = singles.filter(({ inputs }) => !inputs.some((input) => ARROWS.includes(input)));
  if (singles.length === 0) return null;
  // Without up and down, the buttons left and right are below the two thumbs.
  const isWide = hasArrows && !findControl("ArrowUp") && !findControl("ArrowDown");
  return html`<div class=${classes("touchpad", isWide && "is-wide")} aria-hidden="true">
    ${hasArrows &&
    html`<div class="cross">
      ${ARROWS.filter(findControl).map(
        (arrow) => html`<button key=${arrow} type="button"
          class=${classes("touch", arrow, held.has(arrow) && "is-held")} title=${findControl(arrow)?.does}
          ...${pressHandlers(player, arrow)}>
          ${keyName(arrow)}
        </button>`,
      )}
    </div>`}
    <div class="touches">
      ${buttons.map(
        ({ inputs, does }) => html`<button key=${inputs[0]} type="button"
          class=${classes("touch", held.has(inputs[0]) && "is-held")} ...${pressHandlers(player, inputs[0])}>
          ${does}
        </button>`,
      )}
    </div>
  </div>`;
}
