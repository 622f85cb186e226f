/** Menus. */
import { Fragment, html, useEffect, useId, useRef, useState } from "../html.js";
import { Icon } from "../icons.js";
import { Button } from "./button.js";

/**
 * A button that opens a list of actions.
 * @param {{label: string, icon?: string, kind?: string, isIconOnly?: boolean,
 *   items: ({label: string, icon?: string, do?: () => void, href?: string, danger?: boolean, disabled?: boolean} |
 *     null | false)[]}} props
 */
export function Menu({ label, icon = "more", kind = "quiet", isIconOnly = true, items }) {
  const [isOpen, setIsOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    if (!isOpen) return undefined;
    const list = box.current?.querySelector(".menu-list");
    // The list is aligned with the right edge of the button if it fits into the window.
    if (list) list.classList.toggle("to-the-right", list.getBoundingClientRect().left < 4);
    const first = list?.querySelector("a, button:not([disabled])");
    if (first instanceof HTMLElement) first.focus();
    const close = (/** @type {Event} */ event) => {
      if (event.target instanceof Node && box.current?.contains(event.target)) return;
      setIsOpen(false);
    };
    document.addEventListener("pointerdown", close);
    document.addEventListener("focusin", close);
    return () => {
      document.removeEventListener("pointerdown", close);
      document.removeEventListener("focusin", close);
    };
  }, [isOpen]);
  const focusButton = () => /** @type {HTMLElement | null} */ (box.current?.querySelector("button") ?? null)?.focus();
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (!isOpen) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      setIsOpen(false);
      focusButton();
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = /** @type {HTMLElement[]} */ ([
      ...(box.current?.querySelectorAll(".menu-list :is(a, button:not([disabled]))") ?? []),
    ]);
    const current = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    all[(current + step + all.length) % all.length]?.focus();
  };
  return html`<div class="menu" ref=${box} onKeyDown=${press}>
    <${Button} kind=${kind} icon=${icon} aria-haspopup="menu" aria-expanded=${String(isOpen)}
      aria-controls=${isOpen ? id : undefined}
      aria-label=${isIconOnly ? label : undefined} title=${isIconOnly ? label : undefined}
      onClick=${() => setIsOpen(!isOpen)}>
      ${isIconOnly ? null : label}
    <//>
    ${isOpen &&
    html`<div class="menu-list" id=${id} role="menu" aria-label=${label}>
      ${items.filter(Boolean).map((/** @type {any} */ item) => {
        const content = html`<${Fragment}>
          ${item.icon && html`<${Icon} name=${item.icon} size=${16} />`}<span>${item.label}</span>
        <//>`;
        const choose = () => {
          setIsOpen(false);
          focusButton();
          item.do?.();
        };
        const extra = { role: "menuitem", class: item.danger ? "danger" : undefined, onClick: choose };
        return item.href
          ? html`<a key=${item.label} href=${item.href} ...${extra}>${content}</a>`
          : html`<button key=${item.label} type="button" disabled=${item.disabled} ...${extra}>${content}</button>`;
      })}
    </div>`}
  </div>`;
}
