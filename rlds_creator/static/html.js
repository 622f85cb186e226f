/**
 * What pages are written with: Preact, its hooks, and templates that need no build.
 *
 * Text only ever reaches the page as text nodes and attributes: nothing here parses HTML. The types
 * are those that editors and `tsc --checkJs` need; the libraries come without any.
 */
import * as hooks from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import * as preact from "./vendor/preact.js";

export { Fragment, createContext, h, render } from "./vendor/preact.js";

/** @type {(strings: TemplateStringsArray, ...values: unknown[]) => any} */
export const html = htm.bind(preact.h);

/** @type {new (props: any) => {props: any, state: any, setState: (changes: any) => void}} */
export const Component = /** @type {any} */ (preact.Component);

/** @type {<T>(initial: T | (() => T)) => [T, (next: T | ((old: T) => T)) => void]} */
export const useState = hooks.useState;
/** @type {<S, A>(reducer: (state: S, action: A) => S, initial: S) => [S, (action: A) => void]} */
/** @type {<T>(initial: T) => {current: T}} */
export const useRef = hooks.useRef;
/** @type {(effect: () => void | (() => void), inputs?: unknown[]) => void} */
export const useEffect = hooks.useEffect;
/** @type {(effect: () => void | (() => void), inputs?: unknown[]) => void} */
export const useLayoutEffect = hooks.useLayoutEffect;
/** @type {<T>(make: () => T, inputs: unknown[]) => T} */
export const useMemo = hooks.useMemo;
/** @type {<F extends Function>(callback: F, inputs: unknown[]) => F} */
export const useCallback = hooks.useCallback;
/** @type {(context: any) => any} */
export const useContext = hooks.useContext;
/** @type {() => string} */
export const useId = hooks.useId;

/**
 * Joins the names of classes, without those that are off.
 * @param {...(string | false | null | undefined)} names
 */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
