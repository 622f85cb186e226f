/** Dialogs. */
import { Fragment, classes, html, useId, useLayoutEffect, useRef } from "../html.js";
import { IconButton } from "./button.js";

/**
 * A modal dialog. Escape, a click outside and the close button close it.
 * @param {{title: any, onClose: () => void, actions?: any, size?: "small" | "wide", class?: string,
 *   isFixed?: boolean, onSubmit?: () => void, children?: any}} props `isFixed`: only its own buttons
 *   close it. With `onSubmit` it is a form.
 */
export function Dialog({ title, onClose, actions, size, class: extra, isFixed = false, onSubmit, children }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useLayoutEffect(() => {
    const dialog = box.current;
    if (!dialog) return undefined;
    dialog.showModal();
    const first =
      dialog.querySelector("[autofocus]") ??
      dialog.querySelector(".dialog-body :is(input, select, textarea):not([disabled])");
    if (first instanceof HTMLElement) first.focus();
    return () => dialog.close();
  }, []);
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!isFixed) onClose();
  };
  const press = (/** @type {MouseEvent} */ event) => {
    if (event.target === box.current && !isFixed) onClose();
  };
  const closed = () => {
    // Browsers close the dialog on a second Escape without a `cancel` event.
    if (!box.current?.isConnected || box.current.open) return;
    if (isFixed) box.current.showModal();
    else onClose();
  };
  const content = html`<${Fragment}>
    <div class="dialog-header">
      <h2 id=${id}>${title}</h2>
      ${!isFixed && html`<${IconButton} icon="close" label="Close" onClick=${onClose} />`}
    </div>
    <div class="dialog-body">${children}</div>
    ${actions && html`<div class="dialog-footer">${actions}</div>`}
  <//>`;
  return html`<dialog ref=${box} class=${classes("dialog", size, extra)} aria-labelledby=${id} onCancel=${cancel}
    onClose=${closed} onMouseDown=${press}>
    ${onSubmit
      ? html`<form
        class="dialog-inside"
        novalidate
        onSubmit=${(/** @type {Event} */ event) => {
          event.preventDefault();
          onSubmit();
        }}
      >
        ${content}
      </form>`
      : html`<div class="dialog-inside">${content}</div>`}
  </dialog>`;
}
