/** Client-side routing: matching of addresses, navigation, and guards of unsaved changes. */
import { useEffect, useState } from "./html.js";

/** @import { Address } from "./answers.js" */

/**
 * @typedef {{pattern: string, page: string, styles?: string[], immersive?: boolean, isBroad?: boolean}} Route
 *   `page` names a module of the folder `pages`; `styles` are loaded before it is shown.
 *   `immersive` pages have the full width, and no navigation on a phone.
 * @typedef {{route: Route, params: Record<string, string>, query: Record<string, string>}} Match
 */

/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {(() => Promise<boolean>) | null} */
let guard = null;
let position = Number(history.state?.position ?? 0);
let isGoingBack = false;

if (history.state?.position === undefined) history.replaceState({ position }, "");

/**
 * Finds the route of an address.
 * @param {Route[]} routes
 * @param {string} path
 * @param {string} search
 * @returns {Match | null}
 */
export function match(routes, path, search) {
  const segments = path.split("/").filter(Boolean);
  const query = Object.fromEntries(new URLSearchParams(search));
  for (const route of routes) {
    const names = route.pattern.split("/").filter(Boolean);
    if (names.length !== segments.length) continue;
    /** @type {Record<string, string>} */
    const params = {};
    const isMatch = names.every((name, index) => {
      if (!name.startsWith(":")) return name === segments[index];
      try {
        params[name.slice(1)] = decodeURIComponent(segments[index]);
      } catch {
        return false;
      }
      return true;
    });
    if (isMatch) return { route, params, query };
  }
  return null;
}

/**
 * Goes to an address of this server.
 * @param {string} address
 * @param {{replace?: boolean}} [options] `replace` replaces the current entry of the history.
 */
export async function navigate(address, { replace = false } = {}) {
  if (guard && !(await guard())) return;
  guard = null;
  if (replace) {
    history.replaceState({ position }, "", address);
  } else {
    position += 1;
    history.pushState({ position }, "", address);
  }
  scrollTo(0, 0);
  notify();
}

/**
 * Changes the query of the address on the same page, without a new entry of the history.
 * @param {Record<string, string | number | null | undefined>} changes null removes a name.
 */
export function setQuery(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  history.replaceState({ position }, "", url);
  notify();
}

/**
 * Joins segments to an address; a segment may hold any character.
 * @template {string[]} const P
 * @param {P} segments
 * @returns {Address<P>}
 */
export function address(...segments) {
  return /** @type {Address<P>} */ ("/" + segments.map(encodeURIComponent).join("/"));
}

/** Returns the current address, and renders the component again when it changes. */
export function useAddress() {
  const read = () => ({ path: location.pathname, search: location.search });
  const [current, setCurrent] = useState(read);
  useEffect(() => {
    const update = () => setCurrent(read());
    listeners.add(update);
    update();
    return () => void listeners.delete(update);
  }, []);
  return current;
}

/**
 * Asks before people leave a page with unsaved changes.
 * @param {boolean} isDirty
 * @param {() => Promise<boolean>} ask Returns whether to leave.
 */
export function useGuard(isDirty, ask) {
  useEffect(() => {
    if (!isDirty) return undefined;
    guard = ask;
    const warn = (/** @type {BeforeUnloadEvent} */ event) => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => {
      if (guard === ask) guard = null;
      removeEventListener("beforeunload", warn);
    };
  });
}

/** Removes the guard of `useGuard`, for a page that leaves after it has saved. */
export function removeGuard() {
  guard = null;
}

function notify() {
  for (const listener of [...listeners]) listener();
}

addEventListener("popstate", async (event) => {
  const to = Number(event.state?.position ?? 0);
  if (isGoingBack) {
    isGoingBack = false;
    return;
  }
  if (guard) {
    const ask = guard;
    isGoingBack = true;
    history.go(position - to || 1);
    if (!(await ask())) return;
    guard = null;
    history.go(to - position || -1);
    return;
  }
  position = to;
  notify();
});

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.origin !== location.origin) return;
  if (link.target || link.hasAttribute("download") || link.getAttribute("href")?.startsWith("#")) return;
  if (/^\/(api|static)\//.test(link.pathname)) return;
  event.preventDefault();
  void navigate(link.pathname + link.search + link.hash);
});
