/** The metadata of an episode. */
import { html } from "../html.js";
import { pretty } from "./values.js";

/** @param {{metadata: Record<string, any>}} props */
export function Metadata({ metadata }) {
  const entries = Object.entries(metadata ?? {});
  if (entries.length === 0) return null;
  return html`<details class="panel metadata">
    <summary><h2>Metadata</h2></summary>
    <dl>
      ${entries.map(
        ([name, value]) => html`<div key=${name}>
          <dt>${name}</dt>
          <dd>
            ${value !== null && typeof value === "object"
              ? html`<pre class="json">${pretty(value)}</pre>`
              : typeof value === "number"
                ? String(value)
                : String(value ?? "–")}
          </dd>
        </div>`,
      )}
    </dl>
  </details>`;
}
