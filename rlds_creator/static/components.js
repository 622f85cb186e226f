/** The pieces that pages are made of. */
import { ApiError } from "./api.js";
import { formatCount, formatTime, inputsOf, keyName } from "./format.js";
import { Fragment, classes, html, useEffect, useId, useLayoutEffect, useRef, useState } from "./html.js";
import { Icon } from "./icons.js";
import { productOf, useMe } from "./session.js";

export { Icon } from "./icons.js";

// Buttons

/**
 * A button, or a link that looks like one if it has an `href`.
 * @param {{kind?: "primary" | "plain" | "danger" | "quiet", size?: "small" | "large", icon?: string,
 *   busy?: boolean, class?: string, children?: any, [attribute: string]: any}} props
 */
export function Button({ kind = "plain", size, icon, busy = false, class: extra, children, ...rest }) {
  const inside = html`<${Fragment}>
    ${busy ? html`<span class="spinner" aria-hidden="true"></span>` : icon && html`<${Icon} name=${icon} />`}
    ${children && html`<span>${children}</span>`}
  <//>`;
  const name = classes("button", kind, size, !children && "square", extra);
  if (rest.href !== undefined && !rest.disabled) return html`<a class=${name} ...${rest}>${inside}</a>`;
  const { href: _, ...attributes } = rest;
  return html`<button
    type="button"
    ...${attributes}
    class=${name}
    disabled=${attributes.disabled}
    aria-busy=${busy ? "true" : undefined}
    onClick=${busy ? undefined : attributes.onClick}
  >
    ${inside}
  </button>`;
}

/**
 * A button that shows an icon only.
 * @param {{icon: string, label: string, [attribute: string]: any}} props
 */
export function IconButton({ icon, label, kind = "quiet", ...rest }) {
  return html`<${Button} kind=${kind} icon=${icon} aria-label=${label} title=${label} ...${rest} />`;
}

/**
 * Copies a text.
 * @param {{text: string, kind?: string}} props
 */
export function CopyButton({ text, kind = "plain" }) {
  const [isDone, setIsDone] = useState(false);
  useEffect(() => {
    if (!isDone) return undefined;
    const timer = setTimeout(() => setIsDone(false), 2000);
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setIsDone(true);
      announce("Copied");
    } catch {
      toast("The browser does not allow copying here. Select the text and copy it yourself.", { kind: "bad" });
    }
  };
  return html`<${Button} kind=${kind} icon=${isDone ? "check" : "copy"} onClick=${copy}>${isDone ? "Copied" : "Copy"}<//>`;
}

// Fields

/**
 * A labelled control. `children` is called with the attributes that tie the control to its label.
 * @param {{label: any, hint?: any, error?: string, optional?: boolean, class?: string, children: (attributes: any) => any}} props
 */
export function Field({ label, hint, error, optional = false, class: extra, children }) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  return html`<div class=${classes("field", error && "wrong", extra)}>
    <label for=${id}>${label}${optional && html`<span class="optional">optional</span>`}</label>
    ${children({ id, "aria-describedby": described || undefined, "aria-invalid": error ? "true" : undefined })}
    ${hint && html`<p class="hint" id="${id}-hint">${hint}</p>`}
    ${error && html`<p class="error" id="${id}-error"><${Icon} name="error" size=${14} /> ${error}</p>`}
  </div>`;
}

/**
 * A control in its field.
 * @param {any} props Those of `Field`, and of the control.
 * @param {(attributes: any) => any} control
 */
function inField({ label, hint, error, optional, class: extra, ...rest }, control) {
  return html`<${Field} label=${label} hint=${hint} error=${error} optional=${optional} class=${extra}>
    ${(/** @type {any} */ attributes) => control({ ...attributes, ...rest })}
  <//>`;
}

/** What gives the text of a control. @param {(value: string) => void} onChange */
const giving = (onChange) => (/** @type {any} */ event) => onChange(event.target.value);

/**
 * A field of one line.
 * @param {{value: string, onChange: (value: string) => void, autofocus?: boolean, [attribute: string]: any}} props
 */
export function TextField({ value, onChange, autofocus = false, ...rest }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useLayoutEffect(() => {
    // Browsers heed the attribute only if nothing has the focus yet. What is typed next is meant for it.
    if (autofocus) input.current?.focus();
  }, []);
  return inField(rest, (attributes) => html`<input type="text" ref=${input} autocomplete="off" ...${attributes} value=${value} onInput=${giving(onChange)} />`);
}

/**
 * A field for a number; empty is null.
 * @param {{value: number | null, onChange: (value: number | null) => void, [attribute: string]: any}} props
 */
export function NumberField({ value, onChange, unit, ...rest }) {
  const [text, setText] = useState(value === null || value === undefined ? "" : String(value));
  const parsed = text.trim() === "" ? null : Number(text);
  useEffect(() => {
    if ((value ?? null) !== parsed && !(Number.isNaN(parsed) && Number.isNaN(value))) setText(value === null || value === undefined ? "" : String(value));
  }, [value]);
  const change = (/** @type {any} */ event) => {
    setText(event.target.value);
    const next = event.target.value.trim();
    onChange(next === "" ? null : Number(next));
  };
  return inField(rest, (attributes) => html`<span class="with-unit">
    <input type="text" inputmode="decimal" autocomplete="off" class="number" ...${attributes} value=${text} onInput=${change} />
    ${unit && html`<span class="unit">${unit}</span>`}
  </span>`);
}

/**
 * A field of several lines, as high as its text.
 * @param {{value: string, onChange: (value: string) => void, rows?: number, [attribute: string]: any}} props
 */
export function TextArea({ value, onChange, rows = 3, ...rest }) {
  return inField(rest, (attributes) => html`<textarea rows=${rows} ...${attributes} value=${value} onInput=${giving(onChange)}></textarea>`);
}

/**
 * A choice from a list.
 * @param {{value: string, onChange: (value: string) => void, choices: (string | [string, string])[], [attribute: string]: any}} props
 */
export function SelectField({ value, onChange, choices, ...rest }) {
  return inField(rest, (attributes) => html`<span class="select">
    <select ...${attributes} value=${value} onChange=${giving(onChange)}>
      ${choices.map((choice) => {
        const [name, title] = Array.isArray(choice) ? choice : [choice, choice];
        return html`<option key=${name} value=${name} selected=${name === value}>${title}</option>`;
      })}
    </select>
    <${Icon} name="down" size=${16} />
  </span>`);
}

/**
 * A box to tick.
 * @param {{label: any, hint?: any, checked: boolean, onChange: (checked: boolean) => void, [attribute: string]: any}} props
 */
export function CheckField({ label, hint, checked, onChange, ...rest }) {
  const id = useId();
  return html`<div class="check-field">
    <input type="checkbox" id=${id} aria-describedby=${hint ? `${id}-hint` : undefined} ...${rest} checked=${checked}
      onChange=${(/** @type {any} */ event) => onChange(event.target.checked)} />
    <div>
      <label for=${id}>${label}</label>
      ${hint && html`<p class="hint" id="${id}-hint">${hint}</p>`}
    </div>
  </div>`;
}

/**
 * A few choices side by side, one of which holds.
 * @param {{label: string, value: string, onChange: (value: string) => void,
 *   choices: {value: string, label?: any, icon?: string, title?: string}[], hideLabel?: boolean}} props
 */
export function Segments({ label, value, onChange, choices, hideLabel = false }) {
  const name = useId();
  return html`<fieldset class="segments">
    <legend class=${hideLabel ? "visually-hidden" : undefined}>${label}</legend>
    <div>
      ${choices.map(
        (choice) => html`<label key=${choice.value} title=${choice.title}>
          <input type="radio" name=${name} value=${choice.value} checked=${choice.value === value} aria-label=${choice.title}
            onChange=${() => onChange(choice.value)} />
          <span>${choice.icon && html`<${Icon} name=${choice.icon} size=${16} />`}${choice.label}</span>
        </label>`,
      )}
    </div>
  </fieldset>`;
}

// Dialogs

/**
 * A dialog that keeps the rest of the page out of reach. Escape, a click beside it and its cross close it.
 * @param {{title: any, onClose: () => void, actions?: any, size?: "small" | "wide", class?: string,
 *   isFixed?: boolean, onSubmit?: () => void, children?: any}} props `isFixed`: only its buttons
 *   close it. With `onSubmit` it is a form.
 */
export function Dialog({ title, onClose, actions, size, class: extra, isFixed = false, onSubmit, children }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useLayoutEffect(() => {
    const dialog = box.current;
    if (!dialog) return undefined;
    dialog.showModal();
    const first = dialog.querySelector("[autofocus]") ?? dialog.querySelector(".dialog-body :is(input, select, textarea):not([disabled])");
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
    // Browsers close it themselves at a second Escape.
    if (!box.current?.isConnected || box.current.open) return;
    if (isFixed) box.current.showModal();
    else onClose();
  };
  const inside = html`<${Fragment}>
    <div class="dialog-header">
      <h2 id=${id}>${title}</h2>
      ${!isFixed && html`<${IconButton} icon="close" label="Close" onClick=${onClose} />`}
    </div>
    <div class="dialog-body">${children}</div>
    ${actions && html`<div class="dialog-footer">${actions}</div>`}
  <//>`;
  return html`<dialog ref=${box} class=${classes("dialog", size, extra)} aria-labelledby=${id} onCancel=${cancel} onClose=${closed} onMouseDown=${press}>
    ${onSubmit
      ? html`<form
          class="dialog-inside"
          novalidate
          onSubmit=${(/** @type {Event} */ event) => {
            event.preventDefault();
            onSubmit();
          }}
        >
          ${inside}
        </form>`
      : html`<div class="dialog-inside">${inside}</div>`}
  </dialog>`;
}

// What is asked and said above all pages

/** @typedef {{title: string, body?: any, action?: string, cancel?: string, danger?: boolean, phrase?: string}} Question */
/** @typedef {{id: number, message: any, kind: string, action?: {label: string, do: () => void}, seconds: number}} Toast */

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
      <${Button} onClick=${() => question.answer(false)} autofocus=${!question.phrase}>${question.cancel ?? "Cancel"}<//>
      <${Button} type="submit" kind=${question.danger ? "danger" : "primary"} disabled=${!isReady}>${question.action ?? "Continue"}<//>
    <//>`}
  >
    ${question.body && html`<div class="prose">${question.body}</div>`}
    ${question.phrase &&
    html`<${TextField} label=${html`Type <strong>${question.phrase}</strong> to confirm`} value=${typed} onChange=${setTyped} autofocus />`}
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
  return html`<div class=${classes("toast", toast.kind)} onMouseEnter=${() => setIsHeld(true)} onMouseLeave=${() => setIsHeld(false)}
    onFocusIn=${() => setIsHeld(true)} onFocusOut=${() => setIsHeld(false)}>
    ${icon && html`<${Icon} name=${icon} />`}
    <span>${toast.message}</span>
    ${toast.action &&
    html`<${Button} kind="quiet" size="small" onClick=${() => { onDone(); toast.action?.do(); }}>${toast.action.label}<//>`}
    <${IconButton} icon="close" label="Dismiss" size="small" onClick=${onDone} />
  </div>`;
}

// Menus

/**
 * A button that opens a list of things to do.
 * @param {{label: string, icon?: string, kind?: string, isIconOnly?: boolean,
 *   items: ({label: string, icon?: string, do?: () => void, href?: string, danger?: boolean, disabled?: boolean} | null | false)[]}} props
 */
export function Menu({ label, icon = "more", kind = "quiet", isIconOnly = true, items }) {
  const [isOpen, setIsOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    if (!isOpen) return undefined;
    const list = box.current?.querySelector(".menu-list");
    // It hangs from the right end of its button, unless that takes it out of the window.
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
    const all = /** @type {HTMLElement[]} */ ([...(box.current?.querySelectorAll(".menu-list :is(a, button:not([disabled]))") ?? [])]);
    const now = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    all[(now + step + all.length) % all.length]?.focus();
  };
  return html`<div class="menu" ref=${box} onKeyDown=${press}>
    <${Button} kind=${kind} icon=${icon} aria-haspopup="menu" aria-expanded=${String(isOpen)} aria-controls=${isOpen ? id : undefined}
      aria-label=${isIconOnly ? label : undefined} title=${isIconOnly ? label : undefined} onClick=${() => setIsOpen(!isOpen)}>
      ${isIconOnly ? null : label}
    <//>
    ${isOpen &&
    html`<div class="menu-list" id=${id} role="menu" aria-label=${label}>
      ${items.filter(Boolean).map((/** @type {any} */ item) => {
        const inside = html`<${Fragment}>${item.icon && html`<${Icon} name=${item.icon} size=${16} />`}<span>${item.label}</span><//>`;
        const choose = () => {
          setIsOpen(false);
          focusButton();
          item.do?.();
        };
        const attributes = { role: "menuitem", class: item.danger ? "danger" : undefined, onClick: choose };
        return item.href
          ? html`<a key=${item.label} href=${item.href} ...${attributes}>${inside}</a>`
          : html`<button key=${item.label} type="button" disabled=${item.disabled} ...${attributes}>${inside}</button>`;
      })}
    </div>`}
  </div>`;
}

// Chips

/**
 * A short word in a box.
 * @param {{tone?: "plain" | "good" | "odd" | "bad" | "accent", icon?: string, onRemove?: () => void, removeLabel?: string, title?: string, children?: any}} props
 */
export function Chip({ tone = "plain", icon, onRemove, removeLabel = "Remove", title, children }) {
  return html`<span class=${classes("chip", tone)} title=${title}>
    ${icon && html`<${Icon} name=${icon} size=${13} />`}<span>${children}</span>
    ${onRemove && html`<button type="button" aria-label=${removeLabel} onClick=${onRemove}><${Icon} name="close" size=${12} /></button>`}
  </span>`;
}

/** @type {Record<string, [string, any, string]>} */
export const EPISODE_STATES = {
  playing: ["Playing", "accent", "It goes on."],
  ended: ["Unconfirmed", "odd", "The player has not said yet what it is worth."],
  completed: ["Completed", "good", "The player kept it."],
  cancelled: ["Cancelled", "plain", "Not good, but kept."],
  rejected: ["Rejected", "plain", "A mistake, says the player."],
  abandoned: ["Abandoned", "odd", "The player left, or the server stopped."],
  failed: ["Failed", "bad", "The environment broke."],
};

/** @type {Record<string, [string, any, string]>} */
export const STUDY_STATES = {
  draft: ["Draft", "odd", "Participants cannot see it yet."],
  enabled: ["Enabled", "good", "Participants can play it."],
  disabled: ["Disabled", "plain", "Participants cannot play it any more."],
};

/** @param {{state: string, of?: Record<string, [string, any, string]>}} props */
export function StateChip({ state, of = EPISODE_STATES }) {
  const [label, tone, title] = of[state] ?? [state, "plain", ""];
  return html`<${Chip} tone=${tone} title=${title}>${label}<//>`;
}

/**
 * A key, as it looks on the keyboard.
 * @param {{code: string}} props Several that are held together are joined by "+".
 */
export function KeyCap({ code }) {
  return html`<span class="keys">
    ${inputsOf(code).map((one, index) => html`${index > 0 && html`<span class="plus">+</span>`}<kbd>${keyName(one)}</kbd>`)}
  </span>`;
}

/**
 * What keys and other inputs do.
 * @param {{controls: {inputs: string[], does: string}[]}} props
 */
export function Controls({ controls }) {
  return html`<dl class="controls">
    ${controls.map(
      (control, index) => html`<div key=${index}>
        <dt>${control.inputs.map((one, place) => html`${place > 0 && html`<span class="or"> or </span>`}<${KeyCap} code=${one} />`)}</dt>
        <dd>${control.does}</dd>
      </div>`,
    )}
  </dl>`;
}

/** @param {{seconds: number}} props Since 1970. */
export function Time({ seconds }) {
  const date = new Date(seconds * 1000);
  return html`<time datetime=${date.toISOString()} title=${date.toLocaleString()}>${formatTime(seconds)}</time>`;
}

/**
 * How far something is.
 * @param {{value: number | null, label: string}} props From 0 to 1; null if unknown.
 */
export function Progress({ value, label }) {
  return html`<progress class="progress" max="1" value=${value ?? undefined} aria-label=${label}></progress>`;
}

// States of pages and parts

/** Something is on its way. It shows after a moment, so that what is fast does not flicker. */
export function Loading({ label = "Loading…" }) {
  return html`<div class="loading" role="status"><span class="spinner" aria-hidden="true"></span> ${label}</div>`;
}

/**
 * There is nothing.
 * @param {{icon?: string, title: string, children?: any, action?: any, tone?: string, isPage?: boolean}} props
 *   `isPage`: it takes the place of a whole page, with its head.
 */
export function Empty({ icon = "info", title, children, action, tone, isPage = false }) {
  return html`<div class=${classes("empty", tone)}>
    <span class="empty-icon"><${Icon} name=${icon} size=${28} /></span>
    <${isPage ? "h1" : "h2"} class="empty-title">${title}<//>
    ${children && html`<div class="prose">${children}</div>`} ${action && html`<div class="actions">${action}</div>`}
  </div>`;
}

/**
 * Something could not be read.
 * @param {{error: Error, onRetry?: () => void, isPage?: boolean}} props
 */
export function Failed({ error, onRetry, isPage }) {
  const status = error instanceof ApiError ? error.status : -1;
  if (status === 401) {
    return html`<${Empty} isPage=${isPage} icon="lock" title="Please enter first">Open the invite link that you got, then come back to this page.<//>`;
  }
  if (status === 403) return html`<${Empty} isPage=${isPage} icon="lock" title="You may not see this">${error.message}<//>`;
  if (status === 404) {
    return html`<${Empty} isPage=${isPage} icon="search" title="Not found" action=${html`<${Button} href="/">Go to the start<//>`}>${error.message}<//>`;
  }
  const retry = onRetry && html`<${Button} icon="reload" onClick=${onRetry}>Try again<//>`;
  return html`<div role="alert">
    <${Empty} isPage=${isPage} icon="error" tone="bad" title="This did not load" action=${retry}>${error.message}<//>
  </div>`;
}

/**
 * What was read with `useResource`: its data, or why they are not there.
 * @param {{resource: import("./api.js").Resource, label?: string, isPage?: boolean, children: (data: any) => any}} props
 *   `isPage`: the page has no head until the data are there.
 */
export function Loaded({ resource, label, isPage, children }) {
  if (resource.data === null) {
    if (resource.error) return html`<${Failed} error=${resource.error} onRetry=${resource.reload} isPage=${isPage} />`;
    return html`<${Loading} label=${label} />`;
  }
  const retry = html`<${Button} size="small" onClick=${resource.reload}>Try again<//>`;
  return html`<${Fragment}>
    ${resource.error && html`<${Notice} tone="bad" action=${retry}>${resource.error.message}<//>`} ${children(resource.data)}
  <//>`;
}

/**
 * A remark above the content.
 * @param {{tone?: "plain" | "odd" | "bad" | "good", action?: any, children?: any}} props
 */
export function Notice({ tone = "plain", action, children }) {
  return html`<div class=${classes("notice", tone)} role=${tone === "bad" ? "alert" : undefined}>
    <${Icon} name=${{ bad: "error", odd: "error", good: "check", plain: "info" }[tone]} />
    <div class="prose">${children}</div>
    ${action}
  </div>`;
}

// Frames of pages

/**
 * The head of a page; also names the window.
 * @param {{title: string, subtitle?: any, back?: {href: string, label: string}, chips?: any, actions?: any}} props
 */
export function PageHeader({ title, subtitle, back, chips, actions }) {
  useTitle(title);
  return html`<header class="page-header">
    <div>
      ${back && html`<a class="back" href=${back.href}><${Icon} name="back" size=${15} /><span>${back.label}</span></a>`}
      <h1 tabindex="-1">${title}${chips && html` <span class="title-chips">${chips}</span>`}</h1>
      ${subtitle && html`<p class="subtitle">${subtitle}</p>`}
    </div>
    ${actions && html`<div class="actions">${actions}</div>`}
  </header>`;
}

let isFirstPage = true;

/** @param {string} title Of the window; screen readers hear it when one goes to another page. */
export function useTitle(title) {
  const product = productOf(useMe());
  useEffect(() => {
    document.title = title ? `${title} · ${product}` : product;
    if (!isFirstPage) announce(title);
    isFirstPage = false;
  }, [title]);
}

/**
 * A part of a page.
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

// Tables

/**
 * @typedef {object} Column
 * @property {string} name Also what the server sorts by, if `sortable`.
 * @property {string} title
 * @property {(row: any) => any} cell
 * @property {boolean} [sortable]
 * @property {boolean} [isNumber]
 * @property {"title" | "hidden"} [narrow] On a phone: above the others without its name, or not at all.
 */

/**
 * A table; on a phone, each row is a card.
 * @param {{caption: string, columns: Column[], rows: any[], rowKey?: (row: any) => string, sort?: string,
 *   onSort?: (sort: string) => void, isBusy?: boolean, rowName?: (row: any) => string,
 *   selection?: {has: (key: string) => boolean, size?: number}, onSelect?: (keys: string[], isSelected: boolean) => void,
 *   rowClass?: (row: any) => string | undefined}} props
 *   `sort` is the name of a column, with "-" in front for the largest first.
 */
export function Table({ caption, columns, rows, rowKey = (row) => row.id, sort, onSort, isBusy, rowName, selection, onSelect, rowClass }) {
  const last = useRef(/** @type {number | null} */ (null));
  const keys = rows.map(rowKey);
  const numSelected = selection ? keys.filter((key) => selection.has(key)).length : 0;
  const select = (/** @type {number} */ index, /** @type {MouseEvent} */ event) => {
    const isSelected = /** @type {HTMLInputElement} */ (event.target).checked;
    const from = event.shiftKey && last.current !== null && last.current < keys.length ? last.current : index;
    last.current = index;
    onSelect?.(keys.slice(Math.min(from, index), Math.max(from, index) + 1), isSelected);
  };
  const mark = (/** @type {HTMLInputElement | null} */ box) => {
    if (box) box.indeterminate = numSelected > 0 && numSelected < keys.length;
  };
  return html`<div class=${classes("table-frame", isBusy && "busy")} role="group" aria-label=${caption} tabindex="0">
    <table role="table" aria-busy=${isBusy ? "true" : undefined}>
      <caption class="visually-hidden">${caption}</caption>
      <thead role="rowgroup">
        <tr role="row">
          ${selection &&
          html`<th role="columnheader" scope="col" class="tick">
            <input type="checkbox" aria-label="Select all rows of this page" ref=${mark} checked=${numSelected > 0 && numSelected === keys.length}
              onChange=${(/** @type {any} */ event) => onSelect?.(keys, event.target.checked)} />
          </th>`}
          ${columns.map((column) => {
            const order = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : undefined;
            const next = order === "descending" ? column.name : order === "ascending" ? `-${column.name}` : column.isNumber ? `-${column.name}` : column.name;
            return html`<th key=${column.name} role="columnheader" scope="col" class=${classes(column.isNumber && "number", column.narrow && `narrow-${column.narrow}`)} aria-sort=${order}>
              ${column.sortable && onSort
                ? html`<button type="button" class="sort" onClick=${() => onSort(next)}>
                    ${column.title}<${Icon} name=${order === "ascending" ? "up" : "down"} size=${14} />
                  </button>`
                : column.title || html`<span class="visually-hidden">Actions</span>`}
            </th>`;
          })}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(
          (row, index) => html`<tr key=${keys[index]} role="row" class=${classes(selection?.has(keys[index]) && "selected", rowClass?.(row))}>
            ${selection &&
            html`<td role="cell" class="tick">
              <input type="checkbox" aria-label="Select ${rowName?.(row) ?? "this row"}" checked=${selection.has(keys[index])}
                onClick=${(/** @type {MouseEvent} */ event) => select(index, event)} />
            </td>`}
            ${columns.map(
              (column) => html`<td key=${column.name} role="cell" data-label=${column.title || undefined}
                class=${classes(column.isNumber && "number", !column.title && "row-actions", column.narrow && `narrow-${column.narrow}`)}>
                ${column.cell(row)}
              </td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * Goes through the pages of a table.
 * @param {{offset: number, limit: number, total: number, onChange: (offset: number) => void, noun?: string}} props
 */
export function Pager({ offset, limit, total, onChange, noun = "rows" }) {
  if (total <= limit && offset === 0) return null;
  const last = Math.max(0, Math.floor((total - 1) / limit) * limit);
  return html`<nav class="pager" aria-label="Pages">
    <span>${formatCount(total ? offset + 1 : 0)}–${formatCount(Math.min(offset + limit, total))} of ${formatCount(total)} ${noun}</span>
    <${IconButton} icon="left" label="Previous page" kind="plain" disabled=${offset <= 0} onClick=${() => onChange(Math.max(0, offset - limit))} />
    <${IconButton} icon="right" label="Next page" kind="plain" disabled=${offset >= last} onClick=${() => onChange(Math.min(last, offset + limit))} />
  </nav>`;
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
