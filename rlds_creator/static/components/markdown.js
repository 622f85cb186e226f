/** Text that people format with a little Markdown; never HTML: what it does not know stays text. */
import { html } from "../html.js";

/** Bold, italics, and a link; a star beside a space, as in 2 * 3, is one. */
const INLINE = /\*\*(\S(?:.*?\S)?)\*\*|\*(\S(?:.*?[^\s*])?)\*|\[([^\][]+)\]\((https?:\/\/[^\s()]+)\)/;
const ITEM = /^\s*(?:[-*]|(\d+)[.)])\s+/;

/** @param {{text: string}} props */
export function Markdown({ text }) {
  return html`<div class="markdown">
    ${text
      .split(/\n\s*\n/)
      .flatMap(blocksOf)
      .map(({ ordered, lines }, index) =>
        ordered === null
          ? html`<p key=${index} class="pre">${inline(lines.join("\n"))}</p>`
          : html`<${ordered ? "ol" : "ul"} key=${index}>
            ${lines.map((line, place) => html`<li key=${place}>${inline(line)}</li>`)}
          <//>`,
      )}
  </div>`;
}

/**
 * The paragraphs and lists of lines without an empty one between them.
 * @param {string} text
 * @returns {{ordered: boolean | null, lines: string[]}[]}
 */
function blocksOf(text) {
  /** @type {{ordered: boolean | null, lines: string[]}[]} */
  const blocks = [];
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const item = ITEM.exec(line);
    const ordered = item && item[1] !== undefined;
    const last = blocks.at(-1);
    const goesOn = last && !item && last.ordered !== null && /^\s/.test(line);
    if (goesOn) last.lines.push(`${last.lines.pop()} ${line.trim()}`);
    else if (last?.ordered === ordered) last.lines.push(line.replace(ITEM, ""));
    else blocks.push({ ordered, lines: [line.replace(ITEM, "")] });
  }
  return blocks;
}

/**
 * @param {string} text
 * @returns {any[]}
 */
function inline(text) {
  const found = INLINE.exec(text);
  if (!found) return text ? [text] : [];
  const [whole, bold, italics, title, href] = found;
  const part = bold
    ? html`<strong>${inline(bold)}</strong>`
    : italics
      ? html`<em>${inline(italics)}</em>`
      : html`<a href=${href} target="_blank" rel="noopener noreferrer">${title}</a>`;
  return [text.slice(0, found.index), part, ...inline(text.slice(found.index + whole.length))];
}
