/** Confirmations, notifications, and announcements to screen readers. */
import { Fragment, classes, html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { Icon } from "../icons.js";
import { Button, IconButton } from "./button.js";
import { Dialog } from "./dialog.js";
import { TextField } from "./fields.js";

/**
 * @typedef {{title: string, body?: any, action?: string, cancel?: string, danger?: boolean, phrase?: string}} Question
 * @typedef {{id: number, message: any, kind: string, action?: {label: string, do: () => void}, seconds: number}} Toast
 */

/** @type {{question: (Question & {answer: (yes: boolean) => void}) | null, toasts: Toast[], announced: string}} */
let messages = { question: null, toasts: [], announced: "" };

/** @type {((state: typeof messages) => void) | null} */
let showMessages = null;

let lastToast = 0;

/** @param {Partial<typeof messages>} changes */
function changeMessages(changes) {
  messages = { ...messages, ...changes };
  showMessages?.(messages);
}

/**
 * Asks for a confirmation.
 * @param {Question} question People have to type the `phrase` to confirm large deletions.
 * @returns {Promise<boolean>}
 */
export function confirm(question) {
  messages.question?.answer(false);
  return new Promise((resolve) => {
    const answer = (/** @type {boolean} */ yes) => {
      changeMessages({ question: null });
      resolve(yes);
    };
    changeMessages({ question: { ...question, answer } });
  });
}

/**
 * Shows a notification.
 * @param {any} message
 * @param {{kind?: "plain" | "good" | "bad", action?: {label: string, do: () => void}, seconds?: number}} [options]
 *   `action` is a button of the notification, such as "Undo".
 */
export function toast(message, { kind = "plain", action, seconds = kind === "bad" || action ? 9 : 4 } = {}) {
  lastToast += 1;
  changeMessages({ toasts: [...messages.toasts.slice(-1), { id: lastToast, message, kind, action, seconds }] });
}

/**
 * Shows an error of an action.
 * @param {unknown} error
 */
export function toastError(error) {
  toast(error instanceof Error ? error.message : String(error), { kind: "bad" });
}

/**
 * Announces a text to screen readers.
 * @param {string} text
 */
export function announce(text) {
  changeMessages({ announced: messages.announced === text ? `${text}\u00a0` : text });
}

/** The component that shows the messages of `confirm`, `toast` and `announce`, in the shell. */
export function MessageLayer() {
  const [state, setState] = useState(messages);
  useLayoutEffect(() => {
    showMessages = setState;
    setState(messages);
    return () => {
      showMessages = null;
    };
  }, []);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    // The top layer is in front of open dialogs.
    if (!box.current?.showPopover) return;
    if (box.current.matches(":popover-open")) box.current.hidePopover();
    if (state.toasts.length) box.current.showPopover();
  }, [state.toasts.length, state.question]);
  const drop = (/** @type {number} */ id) =>
    changeMessages({ toasts: messages.toasts.filter((toast) => toast.id !== id) });
  return html`<${Fragment}>
    ${state.question && html`<${Confirmation} key=${state.question.title} question=${state.question} />`}
    <div class="toasts" ref=${box} popover="manual" role="status" aria-live="polite">
      ${state.toasts.map((item) => html`<${ToastBox} key=${item.id} toast=${item} onDone=${() => drop(item.id)} />`)}
    </div>
    <div class="visually-hidden" role="status" aria-live="polite">${state.announced}</div>
  <//>`;
}

/** @param {{question: Question & {answer: (yes: boolean) => void}}} props */
function Confirmation({ question }) {
  const [typed, setTyped] = useState("");
  const isReady = !question.phrase || typed.trim() === question.phrase;
  return html`<${Dialog}
    title=${question.title}
    size="small"
    onClose=${() => question.answer(false)}
    onSubmit=${() => isReady && question.answer(true)}
    actions=${html`<${Fragment}>
      <${Button} onClick=${() => question.answer(false)} autofocus=${!question.phrase}>
        ${question.cancel ?? "Cancel"}
      <//>
      <${Button} type="submit" kind=${question.danger ? "danger" : "primary"} disabled=${!isReady}>
        ${question.action ?? "Continue"}
      <//>
    <//>`}
  >
    ${question.body && html`<div class="prose">${question.body}</div>`}
    ${question.phrase &&
    html`<${TextField} label=${html`Type <strong>${question.phrase}</strong> to confirm`} value=${typed}
      onChange=${setTyped} autofocus />`}
  <//>`;
}

/** @param {{toast: Toast, onDone: () => void}} props */
function ToastBox({ toast, onDone }) {
  const [isHeld, setIsHeld] = useState(false);
  useEffect(() => {
    if (isHeld) return undefined;
    const timer = setTimeout(onDone, toast.seconds * 1000);
    return () => clearTimeout(timer);
  }, [isHeld]);
  const icon = { good: "check", bad: "error" }[toast.kind];
  return html`<div class=${classes("toast", toast.kind)} onMouseEnter=${() => setIsHeld(true)}
    onMouseLeave=${() => setIsHeld(false)}
    onFocusIn=${() => setIsHeld(true)} onFocusOut=${() => setIsHeld(false)}>
    ${icon && html`<${Icon} name=${icon} />`}
    <span>${toast.message}</span>
    ${toast.action &&
    html`<${Button} kind="quiet" size="small" onClick=${() => {
      onDone();
      toast.action?.do();
    }}>
      ${toast.action.label}
    <//>`}
    <${IconButton} icon="close" label="Dismiss" size="small" onClick=${onDone} />
  </div>`;
}
