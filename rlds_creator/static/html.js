/**
 * Preact, its hooks, and templates that need no build step.
 *
 * Text reaches the page only as text nodes and attributes: no function parses HTML.
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
 * Joins the names of classes, without empty names.
 * @param {...(string | false | null | undefined)} names
 */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
