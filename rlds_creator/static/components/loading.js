/** Placeholders for data: loading indicators and errors. */
import { ApiError } from "../api.js";
import { Fragment, html } from "../html.js";
import { Button } from "./button.js";
import { Empty, Notice } from "./notice.js";

/** @import { Resource } from "../api.js" */

/** A loading indicator. It appears after a moment, so that fast answers do not flicker. */
export function Loading({ label = "Loading…" }) {
  return html`<div class="loading" role="status"><span class="spinner" aria-hidden="true"></span> ${label}</div>`;
}

/**
 * The error of a failed request.
 * @param {{error: Error, onRetry?: () => void, isPage?: boolean}} props
 */
export function LoadError({ error, onRetry, isPage }) {
  const status = error instanceof ApiError ? error.status : -1;
  if (status === 401) {
    return html`<${Empty} isPage=${isPage} icon="lock" title="Please enter first">
      Open your invitation link, then come back to this page.
    <//>`;
  }
  if (status === 403)
    return html`<${Empty} isPage=${isPage} icon="lock" title="No access">
      ${error.message}
    <//>`;
  if (status === 404) {
    return html`<${Empty} isPage=${isPage} icon="search" title="Not found"
      action=${html`<${Button} href="/">Go to the start page<//>`}>${error.message}<//>`;
  }
  const retry = onRetry && html`<${Button} icon="reload" onClick=${onRetry}>Try again<//>`;
  return html`<div role="alert">
    <${Empty} isPage=${isPage} icon="error" tone="bad" title="Loading failed" action=${retry}>${error.message}<//>
  </div>`;
}

/**
 * The content of a resource of `useResource`, or its loading indicator or error.
 * @template T
 * @param {{resource: Resource<T>, label?: string, isPage?: boolean,
 *   children: (data: T) => any}} props
 *   `isPage`: the page has no heading before the data arrive.
 */
export function LoadedContent({ resource, label, isPage, children }) {
  if (resource.data === null) {
    const { error, reload } = resource;
    if (error) return html`<${LoadError} error=${error} onRetry=${reload} isPage=${isPage} />`;
    return html`<${Loading} label=${label} />`;
  }
  const retry = html`<${Button} size="small" onClick=${resource.reload}>Try again<//>`;
  return html`<${Fragment}>
    ${resource.error && html`<${Notice} tone="bad" action=${retry}>${resource.error.message}<//>`}
    ${children(resource.data)}
  <//>`;
}
