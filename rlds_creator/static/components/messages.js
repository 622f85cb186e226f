/** Questions and messages above all pages. */
import { Fragment, classes, html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { Icon } from "../icons.js";
import { Button, IconButton } from "./button.js";
import { Dialog } from "./dialog.js";
import { TextField } from "./fields.js";

/**
 * @typedef {{title: string, body?: any, action?: string, cancel?: string, danger?: boolean, phrase?: string}} Question
 * @typedef {{id: number, message: any, kind: string, action?: {label: string, do: () => void}, seconds: number}} Toast
 */

/** @type {{question: (Question & {answer: (yes: boolean) => void}) | null, toasts: Toast[], words: string}} */
let above = { question: null, toasts: [], words: "" };

/** @type {((now: typeof above) => void) | null} */
let showAbove = null;

let lastToast = 0;

/** @param {Partial<typeof above>} changes */
function changeAbove(changes) {
  above = { ...above, ...changes };
  showAbove?.(above);
}

/**
 * Asks before something is done.
 * @param {Question} question `phrase` has to be typed first, for what destroys much.
 * @returns {Promise<boolean>}
 */
export function confirm(question) {
  above.question?.answer(false);
  return new Promise((resolve) => {
    const answer = (/** @type {boolean} */ yes) => {
      changeAbove({ question: null });
      resolve(yes);
    };
    changeAbove({ question: { ...question, answer } });
  });
}

/**
 * Says something that need not be answered.
 * @param {any} message
 * @param {{kind?: "plain" | "good" | "bad", action?: {label: string, do: () => void}, seconds?: number}} [options]
 *   `action` is a button beside it, such as "Undo".
 */
export function toast(message, { kind = "plain", action, seconds = kind === "bad" || action ? 9 : 4 } = {}) {
  lastToast += 1;
  changeAbove({ toasts: [...above.toasts.slice(-1), { id: lastToast, message, kind, action, seconds }] });
}

/**
 * Says an error that came up while something was done.
 * @param {unknown} error
 */
export function toastError(error) {
  toast(error instanceof Error ? error.message : String(error), { kind: "bad" });
}

/**
 * Says something to screen readers only.
 * @param {string} words
 */
export function announce(words) {
  changeAbove({ words: above.words === words ? `${words}\u00a0` : words });
}

/** Where `confirm`, `toast` and `announce` appear. The shell has one. */
export function Above() {
  const [now, setNow] = useState(above);
  useLayoutEffect(() => {
    showAbove = setNow;
    setNow(above);
    return () => {
      showAbove = null;
    };
  }, []);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    // In the top layer, above dialogs that are open.
    if (!box.current?.showPopover) return;
    if (box.current.matches(":popover-open")) box.current.hidePopover();
    if (now.toasts.length) box.current.showPopover();
  }, [now.toasts.length, now.question]);
  const drop = (/** @type {number} */ id) => changeAbove({ toasts: above.toasts.filter((one) => one.id !== id) });
  return html`<${Fragment}>
    ${now.question && html`<${Confirmation} key=${now.question.title} question=${now.question} />`}
    <div class="toasts" ref=${box} popover="manual" role="status" aria-live="polite">
      ${now.toasts.map((one) => html`<${ToastBox} key=${one.id} toast=${one} onDone=${() => drop(one.id)} />`)}
    </div>
    <div class="visually-hidden" role="status" aria-live="polite">${now.words}</div>
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
