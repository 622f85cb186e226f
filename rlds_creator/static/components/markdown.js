/** A subset of Markdown, without HTML: all other markup stays text. */
import { html } from "../html.js";

/** Bold, italics and links. A star next to a space, as in 2 * 3, is no markup. */
const INLINE = /\*\*(\S(?:.*?\S)?)\*\*|\*(\S(?:.*?[^\s*])?)\*|\[([^\][]+)\]\((https?:\/\/[^\s()]+)\)/;
const LIST_ITEM = /^\s*(?:[-*]|(\d+)[.)])\s+/;

/** @param {{text: string}} props */
export function Markdown({ text }) {
  return html`<div class="markdown">
    ${text
      .split(/\n\s*\n/)
      .flatMap(parseBlocks)
      .map(({ ordered, lines }, index) =>
        ordered === null
          ? html`<p key=${index} class="pre">${inline(lines.join("\n"))}</p>`
          : html`<${ordered ? "ol" : "ul"} key=${index}>
            ${lines.map((line, item) => html`<li key=${item}>${inline(line)}</li>`)}
          <//>`,
      )}
  </div>`;
}

/**
 * Splits lines without empty lines between them into paragraphs and lists.
 * @param {string} text
 * @returns {{ordered: boolean | null, lines: string[]}[]}
 */
function parseBlocks(text) {
  /** @type {{ordered: boolean | null, lines: string[]}[]} */
  const blocks = [];
  for (const line of text.split("\n").filter((it) => it.trim())) {
    const item = LIST_ITEM.exec(line);
    const ordered = item && item[1] !== undefined;
    const last = blocks.at(-1);
    const isContinued = last && !item && last.ordered !== null && /^\s/.test(line);
    if (isContinued) last.lines.push(`${last.lines.pop()} ${line.trim()}`);
    else if (last?.ordered === ordered) last.lines.push(line.replace(LIST_ITEM, ""));
    else blocks.push({ ordered, lines: [line.replace(LIST_ITEM, "")] });
  }
  return blocks;
}

/**
 * @param {string} text
 * @returns {any[]}
 */
function inline(text) {
  const match = INLINE.exec(text);
  if (!match) return text ? [text] : [];
  const [markup, bold, italics, title, href] = match;
  const element = bold
    ? html`<strong>${inline(bold)}</strong>`
    : italics
      ? html`<em>${inline(italics)}</em>`
      : html`<a href=${href} target="_blank" rel="noopener noreferrer">${title}</a>`;
  return [text.slice(0, match.index), element, ...inline(text.slice(match.index + markup.length))];
}
