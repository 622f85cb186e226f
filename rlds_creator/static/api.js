/** Calls of the server: JSON both ways, and errors that people can read. */
import { useCallback, useEffect, useRef, useState } from "./html.js";

/** @import { Changed, Got } from "./answers.js" */

/** What the server refused, or why it could not be asked. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 if there was no answer.
   * @param {string} code
   * @param {string} message For people.
   * @param {any} [body] What the server said, for codes that come with more.
   */
  constructor(status, code, message, body) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.body = body;
  }
}

const MESSAGES = {
  401: "Please enter with your invitation link.",
  403: "You do not have permission to do this.",
  404: "Not found. It may have been deleted.",
  413: "The request is too large.",
  429: "Too many requests. Wait a moment, then try again.",
  503: "The server is busy. Try again in a moment.",
};

/**
 * Calls the server.
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, query?: Record<string, any>, signal?: AbortSignal}} [options]
 * @returns {Promise<any>} What it answers, null if that is empty.
 */
export async function call(method, path, { body, query, signal } = {}) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path + queryOf(query), {
      method,
      signal,
      credentials: "same-origin",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "offline", "The server does not answer. Is it running, and are you online?");
  }
  const text = await response.text();
  /** @type {any} */
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new ApiError(response.status, "garbled", "The server sent an invalid answer.");
  }
  if (response.ok) return answer;
  const { code = "failed", message = "" } = answer?.error ?? {};
  const fallback =
    /** @type {Record<number, string>} */ (MESSAGES)[response.status] ??
    `The request failed (status ${response.status}).`;
  const error = new ApiError(response.status, code, message || fallback, answer);
  if (error.status === 401) dispatchEvent(new CustomEvent("signed-out"));
  throw error;
}

/**
 * @template {string} P
 * @param {P} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Got<P>>}
 */
export const get = (path, query, signal) => call("GET", path, { query, signal });
/** @template {string} P @param {P} path @param {unknown} [body] @returns {Promise<Changed<P>>} */
export const post = (path, body = {}) => call("POST", path, { body });
/** @template {string} P @param {P} path @param {unknown} body @returns {Promise<Changed<P>>} */
export const put = (path, body) => call("PUT", path, { body });
/** @param {string} path @param {unknown} body */
export const patch = (path, body) => call("PATCH", path, { body });
/** @param {string} path */
export const remove = (path) => call("DELETE", path);

/**
 * Writes a query, without the names that have no value; lists repeat their name.
 * @param {Record<string, any>} [query]
 */
export function queryOf(query) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") pairs.append(name, String(one));
    }
  }
  const text = pairs.toString();
  return text ? `?${text}` : "";
}

/**
 * Calls back when somebody comes back to the page from other tabs, such as to read anew what others
 * may have changed.
 * @param {() => void} callback
 */
export function useReturn(callback) {
  useEffect(() => {
    const listen = () => {
      if (document.visibilityState === "visible") callback();
    };
    document.addEventListener("visibilitychange", listen);
    return () => document.removeEventListener("visibilitychange", listen);
  }, [callback]);
}

/**
 * @template T
 * @typedef {object} Resource
 * @property {T | null} data What the server said last; null before.
 * @property {Error | null} error
 * @property {boolean} isLoading
 * @property {() => Promise<void>} reload
 * @property {(data: T) => void} set Replaces the data, after a change that the server confirmed.
 */

/**
 * Reads something from the server, again when its address changes. While it is read again, the old
 * data stay.
 * @template {string} P
 * @param {P | null} path null reads nothing.
 * @param {Record<string, any>} [query]
 * @returns {Resource<Got<P>>}
 */
export function useResource(path, query) {
  const address = path === null ? null : path + queryOf(query);
  const [state, setState] = useState({
    path,
    data: /** @type {any} */ (null),
    error: /** @type {any} */ (null),
    isLoading: address !== null,
  });
  const abort = useRef(/** @type {AbortController | null} */ (null));
  const reload = useCallback(async () => {
    abort.current?.abort();
    if (address === null) return;
    const controller = new AbortController();
    abort.current = controller;
    setState((old) => ({ ...(old.path === path ? old : { path, data: null, error: null }), isLoading: true }));
    try {
      const data = await get(address, undefined, controller.signal);
      if (!controller.signal.aborted) setState({ path, data, error: null, isLoading: false });
    } catch (error) {
      if (controller.signal.aborted) return;
      setState((old) => ({ path, data: old.data, error, isLoading: false }));
    }
  }, [address]);
  useEffect(() => {
    void reload();
    return () => abort.current?.abort();
  }, [reload]);
  const set = useCallback((/** @type {any} */ data) => setState((old) => ({ ...old, data, error: null })), []);
  return { data: state.path === path ? state.data : null, error: state.error, isLoading: state.isLoading, reload, set };
}
