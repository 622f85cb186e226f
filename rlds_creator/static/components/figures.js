/** Times, progress bars, and figures. */
import { formatTime } from "../format.js";
import { html } from "../html.js";

/** @param {{seconds: number}} props `seconds` counts from 1970. */
export function Time({ seconds }) {
  const date = new Date(seconds * 1000);
  return html`<time datetime=${date.toISOString()} title=${date.toLocaleString()}>${formatTime(seconds)}</time>`;
}

/**
 * A progress bar.
 * @param {{value: number | null, label: string}} props `value` is from 0 to 1; null if unknown.
 */
export function Progress({ value, label }) {
  return html`<progress class="progress" max="1" value=${value ?? undefined} aria-label=${label}></progress>`;
}

/**
 * A number with its name.
 * @param {{label: string, value: any, note?: any}} props
 */
export function Figure({ label, value, note }) {
  return html`<div class="figure">
    <dt>${label}</dt>
    <dd>${value}${note && html`<small>${note}</small>`}</dd>
  </div>`;
}
