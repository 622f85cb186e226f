/** The keys of the game, which show if they are held. */
import { splitInputs, keyName } from "../format.js";
import { classes, html, useEffect, useMemo, useState } from "../html.js";
import { COMMANDS, readLayout } from "./keys.js";
import { PAD, POINTER, SPACE_AXIS, isActive, pressHandlers, useHeldInputs } from "./pressing.js";

/** @import { Binding, Offer } from "../answers.js" */
/** @import { Command } from "./keys.js" */
/** @import { Player } from "./player.js" */

/**
 * Leaves out combinations of inputs whose effect is the sum of the effects of the single inputs.
 * @param {Binding[]} controls
 */
function withoutCombinations(controls) {
  const singles = new Map(
    controls.flatMap(({ inputs, does }) =>
      inputs.filter((input) => splitInputs(input).length === 1).map((input) => [input, does]),
    ),
  );
  const words = (/** @type {string[]} */ texts) =>
    texts
      .flatMap((text) => text.split(", "))
      .sort()
      .join();
  return controls.filter(
    ({ inputs, does }) =>
      !inputs.every((input) => {
        const members = splitInputs(input);
        return (
          members.length > 1 &&
          members.every((member) => singles.has(member)) &&
          words(members.map((member) => singles.get(member) ?? "")) === words([does])
        );
      }),
  );
}

/** @param {{player: Player, offer: Offer}} props */
export function KeyMap({ player, offer }) {
  const held = useHeldInputs(player);
  const [layout, setLayout] = useState(/** @type {Map<string, string>} */ (new Map()));
  useEffect(() => {
    readLayout().then(setLayout);
  }, []);
  const hasPad = player.controller !== "";
  /** @param {string} input */
  const isShown = (input) => (!PAD.test(input) && !SPACE_AXIS.test(input)) || hasPad;
  /** @param {string} code */
  const keyLabel = (code) => {
    const label = layout.get(code)?.trim().toUpperCase();
    return label || keyName(code);
  };
  /** @param {string} input */
  const isHeld = (input) => splitInputs(input).every((name) => isActive(held, name));
  const controls = useMemo(() => withoutCombinations(offer.controls), [offer]).filter(({ inputs }) =>
    inputs.some(isShown),
  );
  /** @type {Map<string, string[]>} */
  const commands = new Map();
  for (const [code, command] of player.reserved) commands.set(command, [...(commands.get(command) ?? []), code]);
  return html`<section class="side-part" aria-labelledby="keys-title">
    <h2 id="keys-title">Keys</h2>
    <dl class="keymap">
      ${controls.map(({ inputs, does }, index) => {
        const shown = inputs.filter(isShown);
        return html`<div key=${index} class=${shown.some(isHeld) ? "is-held" : ""}>
          <dt>
            ${shown.map((input) =>
              POINTER.test(input) || PAD.test(input) || SPACE_AXIS.test(input)
                ? html`<span key=${input} class=${classes("key", isHeld(input) && "is-held")}>${keyName(input)}</span>`
                : html`<button key=${input} type="button" class=${classes("key", isHeld(input) && "is-held")}
                  data-input=${input} ...${pressHandlers(player, input)}>
                  ${splitInputs(input).map(keyLabel).join(" + ")}
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
          <dt>${codes.map((code) => html`<span key=${code} class="key">${keyLabel(code)}</span>`)}</dt>
          <dd>${COMMANDS[/** @type {Command} */ (command)].does}</dd>
        </div>`,
      )}
    </dl>
  </section>`;
}
