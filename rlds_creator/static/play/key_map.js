/** The keys of the game, and which of them are held. */
import { inputsOf, keyName } from "../format.js";
import { classes, html, useEffect, useMemo, useState } from "../html.js";
import { COMMANDS, readLayout } from "./keys.js";
import { PAD, POINTER, SPACE_AXIS, isOn, pressing, useHeld } from "./pressing.js";

/** @import { Binding, Offer } from "../answers.js" */
/** @import { Command } from "./keys.js" */
/** @import { Player } from "./player.js" */

/**
 * Controls without those that go without saying: what each of their keys does, done together.
 * @param {Binding[]} controls
 */
function withoutSums(controls) {
  const alone = new Map(
    controls.flatMap(({ inputs, does }) =>
      inputs.filter((input) => inputsOf(input).length === 1).map((input) => [input, does]),
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
        const parts = inputsOf(input);
        return (
          parts.length > 1 &&
          parts.every((part) => alone.has(part)) &&
          words(parts.map((part) => alone.get(part) ?? "")) === words([does])
        );
      }),
  );
}

/** @param {{player: Player, offer: Offer}} props */
export function KeyMap({ player, offer }) {
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
  const controls = useMemo(() => withoutSums(offer.controls), [offer]).filter(({ inputs }) =>
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
                  data-input=${input} ...${pressing(player, input)}>
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
