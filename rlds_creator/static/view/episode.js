/** An episode as the server gives it: outline, steps and pictures, each kept for a while. */
import { ApiError, get, queryOf } from "../api.js";

/** @import { Outline, Series } from "../answers.js" */


/** How much memory decoded pictures may take. */
const PICTURE_BYTES = 96 << 20;
const MOST_STEPS = 400;
/** Larger pictures are made smaller by the server: nobody has more room for them. */
const MOST_SIDE = 1024;


/**
 * Where the data of the page of an episode are.
 * @param {string} address Of the page: `/replay/...` or `/datasets/...`.
 * @returns {string | null} null if it is no such page.
 */
export function baseOf(address) {
  let path = address.trim();
  try {
    path = new URL(path, location.origin).pathname;
  } catch {
    return null;
  }
  const parts = path.split("/").filter(Boolean);
  if (parts.length === 2 && parts[0] === "replay") return `/api/episodes/${parts[1]}/view`;
  if (parts.length === 4 && parts[0] === "datasets") return `/api${path.replace(/\/$/, "")}/view`;
  return null;
}

/** @template T Keeps what was asked for last. */
class Kept {
  /** @param {number} most */
  constructor(most) {
    this.most = most;
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
      if (this.entries.size <= this.most) break;
      this.entries.delete(oldest);
      drop(old);
    }
  }
}

export class EpisodeData {
  /**
   * @param {string} base Where its data are.
   * @param {Record<string, string>} [filter] Of the list in which it is one.
   */
  constructor(base, filter = {}) {
    this.page = base;
    // The outline names the address of the same data, which leads to an error after an edit.
    this.base = base;
    this.filter = filter;
    /** @type {Outline | null} */
    this.outline = null;
    /** @type {Kept<{values?: Record<string, any>, isDone: boolean, done: Promise<Record<string, any>>}>} */
    this.steps = new Kept(MOST_STEPS);
    /**
     * Decoded pictures, or what went wrong.
     * @type {Kept<{bitmap?: ImageBitmap, error?: Error, isDone: boolean, done: Promise<void>}>}
     */
    this.pictures = new Kept(48);
    this.isClosed = false;
  }

  /**
   * @param {AbortSignal} signal
   * @param {number} [wait] How many seconds the server may take to read more of the rewards.
   */
  async load(signal, wait) {
    this.outline = await get(this.base, { ...this.filter, wait }, signal);
    this.base = this.outline?.base ?? this.base;
    return /** @type {Outline} */ (this.outline);
  }

  /** The values of a step, which may still be on their way. @param {number} step */
  values(step) {
    const key = String(step);
    const kept = this.steps.get(key);
    if (kept) return kept;
    const done = get(`${this.base}/steps/${step}`).then((answer) => answer.values);
    /** @type {{values?: Record<string, any>, isDone: boolean, done: typeof done}} */
    const made = { isDone: false, done };
    done.then(
      (values) => Object.assign(made, { values, isDone: true }),
      (error) => {
        made.isDone = true;
        // What failed for the network is asked for again, but not for each picture of the page.
        if (error instanceof ApiError && error.status === 0) setTimeout(() => this.steps.entries.delete(key), 1000);
      },
    );
    this.steps.set(key, made);
    return made;
  }

  /** @param {string} path @returns {Promise<Series>} */
  series(path) {
    return get(`${this.base}/series/${encodePath(path)}`);
  }

  /**
   * What an action is called that is one of several.
   * @param {string} path
   * @param {any} value
   * @returns {string | undefined}
   */
  nameOf(path, value) {
    return path === "action" ? this.outline?.metadata["rlds_creator:details"]?.actions?.[value] : undefined;
  }

  /** @param {number} step @param {string} path */
  pictureAddress(step, path) {
    const field = this.outline?.fields.find((one) => one.path === path);
    const isLarge = Math.max(...(field?.shape ?? []).map((side) => side ?? 0), 0) > MOST_SIDE;
    return `${this.base}/pictures/${step}/${encodePath(path)}${isLarge ? `?side=${MOST_SIDE}` : ""}`;
  }

  /**
   * A picture, which may still be on its way.
   * @param {number} step
   * @param {string} path
   */
  picture(step, path) {
    const key = `${step} ${path}`;
    let entry = this.pictures.get(key);
    if (!entry) {
      /** @type {{bitmap?: ImageBitmap, error?: Error, isDone: boolean, done: Promise<void>}} */
      const made = { isDone: false, done: Promise.resolve() };
      made.done = this.#read(step, path).then(
        (bitmap) => {
          made.bitmap = bitmap;
          made.isDone = true;
          this.pictures.most = Math.min(
            600,
            Math.max(24, Math.floor(PICTURE_BYTES / (4 * bitmap.width * bitmap.height))),
          );
          if (this.isClosed) bitmap.close();
        },
        (error) => {
          made.error = error;
          made.isDone = true;
          // What failed for the network is asked for again when it is needed.
          if (error instanceof ApiError && error.status === 0) this.pictures.entries.delete(key);
        },
      );
      this.pictures.set(key, made, (old) => old.bitmap?.close());
      entry = made;
    }
    return entry;
  }

  /** Whether a step can be shown with its values and pictures. @param {number} step @param {string[]} paths */
  isReady(step, paths) {
    return this.values(step).isDone && paths.every((path) => this.picture(step, path).isDone);
  }

  close() {
    this.isClosed = true;
    for (const { bitmap } of this.pictures.entries.values()) bitmap?.close();
    this.pictures.entries.clear();
  }

  /**
   * A video of pictures, side by side.
   * @param {string[]} paths
   * @param {number | null} rate Steps in a second; null for that of the data.
   */
  video(paths, rate) {
    return fileOf(`${this.base}/video${queryOf({ path: paths, rate })}`);
  }

  /** @param {number} step @param {string} path */
  async #read(step, path) {
    return createImageBitmap(await fileOf(this.pictureAddress(step, path)));
  }
}

/** @param {string} address */
async function fileOf(address) {
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

/** @param {string} path Of a field. */
const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");
