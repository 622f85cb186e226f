/**
 * Preact, its hooks, and templates that need no build step.
 *
 * Text only ever reaches the page as text nodes and attributes: nothing here parses HTML.
 */
import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export {
  useCallback,
  useContext,
  useEffect,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "./vendor/hooks.js";
export { Component, Fragment, createContext, h, render } from "./vendor/preact.js";

export const html = htm.bind(h);

/**
 * Joins the names of classes, without empty ones.
 * @param {...(string | false | null | undefined)} names
 */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
