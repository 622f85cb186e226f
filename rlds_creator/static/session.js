/** Who is there, and what they may do. */
import { createContext, useContext } from "./html.js";

/**
 * @typedef {object} Me What GET /api/me says.
 * @property {{id: string, name: string, role: string} | null} person
 * @property {string[]} may Of "play", "see", "tag", "delete", "export", "manage" and "people".
 * @property {"create" | "view"} mode
 * @property {boolean} single_user
 * @property {string} version
 * @property {string} [by] Who labels in the pages of `rlds view`, unless they say something else.
 */

/** @type {any} */
export const MeContext = createContext(null);

/**
 * What these pages are called.
 * @param {{mode: string} | null} me
 */
export function productOf(me) {
  return me?.mode === "view" ? "RLDS View" : "RLDS Creator";
}

/**
 * Who is there.
 * @returns {Me & {can: (what: string) => boolean, reload: () => Promise<void>}}
 */
export function useMe() {
  return useContext(MeContext);
}
