/** The data of an episode from the server: summary, steps and pictures, with caches. */
import { ApiError, get, formatQuery } from "../api.js";

/** @import { EpisodeSummary, Series } from "../answers.js" */


/** The maximum memory of decoded pictures, in bytes. */
const MAX_PICTURE_BYTES = 96 << 20;
const MAX_CACHED_STEPS = 400;
/** The maximum side of a picture in pixels; the server shrinks larger pictures. */
const MAX_PICTURE_SIDE = 1024;


/**
 * Converts the address of the page of an episode to the address of its data.
 * @param {string} address The address of the page: `/replay/...` or `/datasets/...`.
 * @returns {string | null} null for other pages.
 */
export function viewAddress(address) {
  let path = address.trim();
  try {
    path = new URL(path, location.origin).pathname;
  } catch {
    return null;
  }
  const segments = path.split("/").filter(Boolean);
  if (segments.length === 2 && segments[0] === "replay") return `/api/episodes/${segments[1]}/view`;
  if (segments.length === 4 && segments[0] === "datasets") return `/api${path.replace(/\/$/, "")}/view`;
  return null;
}

/** @template T A cache of the most recently used entries. */
class LruCache {
  /** @param {number} limit */
  constructor(limit) {
    this.limit = limit;
    /** @type {Map<string, T>} */
    this.entries = new Map();
  }

  /** @param {string} key */
  get(key) {
    const entry = this.entries.get(key);
    if (entry !== undefined) {
      this.entries.delete(key);
      this.entries.set(key, entry);
    }
    return entry;
  }

  /** @param {string} key @param {T} entry @param {(entry: T) => void} [drop] */
  set(key, entry, drop = () => {}) {
    this.entries.set(key, entry);
    for (const [oldest, old] of this.entries) {
      if (this.entries.size <= this.limit) break;
      this.entries.delete(oldest);
      drop(old);
    }
  }
}

export class EpisodeData {
  /**
   * @param {string} base The address of the data.
   * @param {Record<string, string>} [filter] The filter of the list of episodes.
   */
  constructor(base, filter = {}) {
    this.page = base;
    // The summary replaces the address by the address of this version of the data, which fails after an edit.
    this.base = base;
    this.filter = filter;
    /** @type {EpisodeSummary | null} */
    this.summary = null;
    /** @type {LruCache<{values?: Record<string, any>, isDone: boolean, done: Promise<Record<string, any>>}>} */
    this.steps = new LruCache(MAX_CACHED_STEPS);
    /**
     * Decoded pictures, or errors.
     * @type {LruCache<{bitmap?: ImageBitmap, error?: Error, isDone: boolean, done: Promise<void>}>}
     */
    this.pictures = new LruCache(48);
    this.isClosed = false;
  }

  /**
   * @param {AbortSignal} signal
   * @param {number} [wait] The time in seconds in which the server may read more rewards.
   */
  async load(signal, wait) {
    this.summary = await get(this.base, { ...this.filter, wait }, signal);
    this.base = this.summary?.base ?? this.base;
    return /** @type {EpisodeSummary} */ (this.summary);
  }

  /** Requests the values of a step, unless they are cached. @param {number} step */
  values(step) {
    const key = String(step);
    const cached = this.steps.get(key);
    if (cached) return cached;
    const done = get(`${this.base}/steps/${step}`).then((answer) => answer.values);
    /** @type {{values?: Record<string, any>, isDone: boolean, done: typeof done}} */
    const entry = { isDone: false, done };
    done.then(
      (values) => Object.assign(entry, { values, isDone: true }),
      (error) => {
        entry.isDone = true;
        // After a network error, the step is requested again a second later, not for each picture.
        if (error instanceof ApiError && error.status === 0) setTimeout(() => this.steps.entries.delete(key), 1000);
      },
    );
    this.steps.set(key, entry);
    return entry;
  }

  /** @param {string} path @returns {Promise<Series>} */
  series(path) {
    return get(`${this.base}/series/${encodePath(path)}`);
  }

  /**
   * The name of a discrete action.
   * @param {string} path
   * @param {any} value
   * @returns {string | undefined}
   */
  actionName(path, value) {
    return path === "action" ? this.summary?.metadata["rlds_creator:details"]?.actions?.[value] : undefined;
  }

  /** @param {number} step @param {string} path */
  pictureAddress(step, path) {
    const field = this.summary?.fields.find((it) => it.path === path);
    const isLarge = Math.max(...(field?.shape ?? []).map((side) => side ?? 0), 0) > MAX_PICTURE_SIDE;
    return `${this.base}/pictures/${step}/${encodePath(path)}${isLarge ? `?side=${MAX_PICTURE_SIDE}` : ""}`;
  }

  /**
   * Requests a picture, unless it is cached.
   * @param {number} step
   * @param {string} path
   */
  picture(step, path) {
    const key = `${step} ${path}`;
    let entry = this.pictures.get(key);
    if (!entry) {
      /** @type {{bitmap?: ImageBitmap, error?: Error, isDone: boolean, done: Promise<void>}} */
      const request = { isDone: false, done: Promise.resolve() };
      request.done = this.#read(step, path).then(
        (bitmap) => {
          request.bitmap = bitmap;
          request.isDone = true;
          this.pictures.limit = Math.min(
            600,
            Math.max(24, Math.floor(MAX_PICTURE_BYTES / (4 * bitmap.width * bitmap.height))),
          );
          if (this.isClosed) bitmap.close();
        },
        (error) => {
          request.error = error;
          request.isDone = true;
          // Network errors are retried at the next request.
          if (error instanceof ApiError && error.status === 0) this.pictures.entries.delete(key);
        },
      );
      this.pictures.set(key, request, (old) => old.bitmap?.close());
      entry = request;
    }
    return entry;
  }

  /** Returns whether the values and pictures of a step are cached. @param {number} step @param {string[]} paths */
  isReady(step, paths) {
    return this.values(step).isDone && paths.every((path) => this.picture(step, path).isDone);
  }

  close() {
    this.isClosed = true;
    for (const { bitmap } of this.pictures.entries.values()) bitmap?.close();
    this.pictures.entries.clear();
  }

  /**
   * Requests a video of pictures, side by side.
   * @param {string[]} paths
   * @param {number | null} rate Steps per second; null for the rate of the data.
   */
  video(paths, rate) {
    return fetchFile(`${this.base}/video${formatQuery({ path: paths, rate })}`);
  }

  /** @param {number} step @param {string} path */
  async #read(step, path) {
    return createImageBitmap(await fetchFile(this.pictureAddress(step, path)));
  }
}

/** @param {string} address */
async function fetchFile(address) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(address, { credentials: "same-origin" });
  } catch {
    throw new ApiError(0, "offline", "The server does not answer.");
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => null);
    throw new ApiError(response.status, "failed", answer?.error?.message ?? "There is no picture.");
  }
  return response.blob();
}

/** @param {string} path The path of a field. */
const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");
