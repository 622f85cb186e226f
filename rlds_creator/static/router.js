/** Addresses: which page is shown, and how one goes to another without loading anew. */
import { useEffect, useState } from "./html.js";

/** @import { Address } from "./answers.js" */

/**
 * @typedef {{pattern: string, page: string, styles?: string[], immersive?: boolean, isBroad?: boolean}} Route
 *   `page` names a module of the folder `pages`; `styles` are loaded before it is shown.
 *   `immersive` pages have the whole width, and no navigation on a phone.
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
  const parts = path.split("/").filter(Boolean);
  const query = Object.fromEntries(new URLSearchParams(search));
  for (const route of routes) {
    const names = route.pattern.split("/").filter(Boolean);
    if (names.length !== parts.length) continue;
    /** @type {Record<string, string>} */
    const params = {};
    const fits = names.every((name, index) => {
      if (!name.startsWith(":")) return name === parts[index];
      try {
        params[name.slice(1)] = decodeURIComponent(parts[index]);
      } catch {
        return false;
      }
      return true;
    });
    if (fits) return { route, params, query };
  }
  return null;
}

/**
 * Goes to an address of this server.
 * @param {string} address
 * @param {{replace?: boolean}} [options] `replace` leaves no way back to the address before.
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
  announce();
}

/**
 * Changes the query of the address, without leaving the page and without a way back.
 * @param {Record<string, string | number | null | undefined>} changes null removes a name.
 */
export function setQuery(changes) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, String(value));
  }
  history.replaceState({ position }, "", url);
  announce();
}

/**
 * Writes an address from its parts, each of which may hold any character.
 * @template {string[]} const P
 * @param {P} parts
 * @returns {Address<P>}
 */
export function address(...parts) {
  return /** @type {Address<P>} */ ("/" + parts.map(encodeURIComponent).join("/"));
}

/** The address that is shown; a component that calls it follows it. */
export function useAddress() {
  const read = () => ({ path: location.pathname, search: location.search });
  const [now, setNow] = useState(read);
  useEffect(() => {
    const listen = () => setNow(read());
    listeners.add(listen);
    listen();
    return () => void listeners.delete(listen);
  }, []);
  return now;
}

/**
 * Asks before the page is left while there is something to lose.
 * @param {boolean} isDirty
 * @param {() => Promise<boolean>} ask Whether to leave.
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

/** Lifts what `useGuard` set up, for a page that leaves after it has saved. */
export function liftGuard() {
  guard = null;
}

function announce() {
  for (const listen of [...listeners]) listen();
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
  announce();
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
