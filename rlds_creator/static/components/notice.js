/** Notices above the content, and messages in place of missing content. */
import { classes, html } from "../html.js";
import { Icon } from "../icons.js";

/**
 * A notice above the content.
 * @param {{tone?: "plain" | "odd" | "bad" | "good", action?: any, children?: any}} props
 */
export function Notice({ tone = "plain", action, children }) {
  return html`<div class=${classes("notice", tone)} role=${tone === "bad" ? "alert" : undefined}>
    <${Icon} name=${{ bad: "error", odd: "error", good: "check", plain: "info" }[tone]} />
    <div class="prose">${children}</div>
    ${action}
  </div>`;
}

/**
 * A message instead of missing content.
 * @param {{icon?: string, title: string, children?: any, action?: any, tone?: string, isPage?: boolean}} props
 *   `isPage`: the message replaces a page with its heading.
 */
export function Empty({ icon = "info", title, children, action, tone, isPage = false }) {
  return html`<div class=${classes("empty", tone)}>
    <span class="empty-icon"><${Icon} name=${icon} size=${28} /></span>
    <${isPage ? "h1" : "h2"} class="empty-title">${title}<//>
    ${children && html`<div class="prose">${children}</div>`} ${action && html`<div class="actions">${action}</div>`}
  </div>`;
}
