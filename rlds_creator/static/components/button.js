/** Buttons, and links that look like buttons. */
import { Fragment, classes, html } from "../html.js";
import { Icon } from "../icons.js";

/**
 * A button, or a link that looks like one if it has an `href`.
 * @param {{kind?: "primary" | "plain" | "danger" | "quiet", size?: "small" | "large", icon?: string,
 *   busy?: boolean, class?: string, children?: any, [attribute: string]: any}} props
 */
export function Button({ kind = "plain", size, icon, busy = false, class: extra, children, ...rest }) {
  const content = html`<${Fragment}>
    ${busy ? html`<span class="spinner" aria-hidden="true"></span>` : icon && html`<${Icon} name=${icon} />`}
    ${children && html`<span>${children}</span>`}
  <//>`;
  const name = classes("button", kind, size, !children && "square", extra);
  if (rest.href !== undefined && !rest.disabled) return html`<a class=${name} ...${rest}>${content}</a>`;
  const { href: _, ...attributes } = rest;
  return html`<button
    type="button"
    ...${attributes}
    class=${name}
    disabled=${attributes.disabled}
    aria-busy=${busy ? "true" : undefined}
    onClick=${busy ? undefined : attributes.onClick}
  >
    ${content}
  </button>`;
}

/**
 * A button that shows an icon only.
 * @param {{icon: string, label: string, [attribute: string]: any}} props
 */
export function IconButton({ icon, label, kind = "quiet", ...rest }) {
  return html`<${Button} kind=${kind} icon=${icon} aria-label=${label} title=${label} ...${rest} />`;
}
