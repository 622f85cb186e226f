/** Requests to the server, in JSON, with errors for people. */
import { useCallback, useEffect, useRef, useState } from "./html.js";

/** @import { ChangeAnswer, GetAnswer } from "./answers.js" */

/** An error of the server or of the connection. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 if there was no answer.
   * @param {string} code
   * @param {string} message The text for people.
   * @param {any} [body] The answer of the server, which has details for some codes.
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
 * @returns {Promise<any>} The answer; null if it is empty.
 */
export async function call(method, path, { body, query, signal } = {}) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path + formatQuery(query), {
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
 * @returns {Promise<GetAnswer<P>>}
 */
export const get = (path, query, signal) => call("GET", path, { query, signal });
/** @template {string} P @param {P} path @param {unknown} [body] @returns {Promise<ChangeAnswer<P>>} */
export const post = (path, body = {}) => call("POST", path, { body });
/** @template {string} P @param {P} path @param {unknown} body @returns {Promise<ChangeAnswer<P>>} */
export const put = (path, body) => call("PUT", path, { body });
/** @param {string} path @param {unknown} body */
export const patch = (path, body) => call("PATCH", path, { body });
/** @param {string} path */
export const remove = (path) => call("DELETE", path);

/**
 * Formats a query without empty values; lists repeat their name.
 * @param {Record<string, any>} [query]
 */
export function formatQuery(query) {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== null && item !== undefined && item !== "") pairs.append(name, String(item));
    }
  }
  const text = pairs.toString();
  return text ? `?${text}` : "";
}

/**
 * Calls a function when somebody returns to the page from another tab, such as to reload data.
 * @param {() => void} callback
 */
export function useReturn(callback) {
  useEffect(() => {
    const callWhenVisible = () => {
      if (document.visibilityState === "visible") callback();
    };
    document.addEventListener("visibilitychange", callWhenVisible);
    return () => document.removeEventListener("visibilitychange", callWhenVisible);
  }, [callback]);
}

/**
 * @template T
 * @typedef {object} Resource
 * @property {T | null} data The last answer of the server; null before the first one.
 * @property {Error | null} error
 * @property {boolean} isLoading
 * @property {() => Promise<void>} reload
 * @property {(data: T) => void} set Replaces the data, after a change that the server confirmed.
 */

/**
 * Reads data from the server, again when the address changes. During a reload, the old data stay.
 * @template {string} P
 * @param {P | null} path If null, nothing is read.
 * @param {Record<string, any>} [query]
 * @returns {Resource<GetAnswer<P>>}
 */
export function useResource(path, query) {
  const address = path === null ? null : path + formatQuery(query);
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
