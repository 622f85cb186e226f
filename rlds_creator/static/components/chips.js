/** Chips: short words in boxes, and the states of episodes and studies. */
import { classes, html } from "../html.js";
import { Icon } from "../icons.js";

/**
 * A short word in a box.
 * @param {{tone?: "plain" | "good" | "odd" | "bad" | "accent", icon?: string, onRemove?: () => void,
 *   removeLabel?: string, title?: string, children?: any}} props
 */
export function Chip({ tone = "plain", icon, onRemove, removeLabel = "Remove", title, children }) {
  return html`<span class=${classes("chip", tone)} title=${title}>
    ${icon && html`<${Icon} name=${icon} size=${13} />`}<span>${children}</span>
    ${onRemove &&
    html`<button type="button" aria-label=${removeLabel} onClick=${onRemove}>
      <${Icon} name="close" size=${12} />
    </button>`}
  </span>`;
}

/** @type {Record<string, [string, any, string]>} */
export const EPISODE_STATES = {
  playing: ["Playing", "accent", "The episode is running."],
  ended: ["Unconfirmed", "odd", "The player has not kept or discarded it yet."],
  completed: ["Completed", "good", "Kept as complete."],
  cancelled: ["Cancelled", "plain", "Kept as incomplete."],
  rejected: ["Rejected", "plain", "Discarded as a mistake."],
  abandoned: ["Abandoned", "odd", "The player left, or the server stopped."],
  failed: ["Failed", "bad", "The environment failed."],
};

/** @type {Record<string, [string, any, string]>} */
export const STUDY_STATES = {
  draft: ["Draft", "odd", "Participants cannot see it yet."],
  enabled: ["Enabled", "good", "Participants can play it."],
  disabled: ["Disabled", "plain", "Participants can no longer play it."],
};

/** @param {{state: string, of?: Record<string, [string, any, string]>}} props */
export function StateChip({ state, of = EPISODE_STATES }) {
  const [label, tone, title] = of[state] ?? [state, "plain", ""];
  return html`<${Chip} tone=${tone} title=${title}>${label}<//>`;
}
