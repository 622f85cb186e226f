/** Headings and panels of pages. */
import { classes, html, useEffect, useId } from "../html.js";
import { Icon } from "../icons.js";
import { productName, useMe } from "../session.js";
import { announce } from "./messages.js";

/**
 * The heading of a page, which also sets the title of the window.
 * @param {{title: string, subtitle?: any, back?: {href: string, label: string}, chips?: any, actions?: any}} props
 */
export function PageHeader({ title, subtitle, back, chips, actions }) {
  useTitle(title);
  return html`<header class="page-header">
    <div>
      ${back &&
      html`<a class="back" href=${back.href}><${Icon} name="back" size=${15} /><span>${back.label}</span></a>`}
      <h1 tabindex="-1">${title}${chips && html` <span class="title-chips">${chips}</span>`}</h1>
      ${subtitle && html`<p class="subtitle">${subtitle}</p>`}
    </div>
    ${actions && html`<div class="actions">${actions}</div>`}
  </header>`;
}

let isFirstPage = true;

/** @param {string} title The title of the window, which is announced to screen readers for each new page. */
export function useTitle(title) {
  const product = productName(useMe());
  useEffect(() => {
    document.title = title ? `${title} · ${product}` : product;
    if (!isFirstPage) announce(title);
    isFirstPage = false;
  }, [title]);
}

/**
 * A section of a page.
 * @param {{title?: any, hint?: any, actions?: any, class?: string, children?: any}} props
 */
export function Panel({ title, hint, actions, class: extra, children }) {
  const id = useId();
  return html`<section class=${classes("panel", extra)} aria-labelledby=${title ? id : undefined}>
    ${(title || actions) &&
    html`<header>
      <div>
        ${title && html`<h2 id=${id}>${title}</h2>`}${hint && html`<p class="hint">${hint}</p>`}
      </div>
      ${actions && html`<div class="actions">${actions}</div>`}
    </header>`}
    ${children}
  </section>`;
}
