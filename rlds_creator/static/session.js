/** Who is there, and what they may do. */
import { createContext, useContext } from "./html.js";

/** @import { Me } from "./answers.js" */

/** @typedef {Me & {can: (what: string) => boolean, reload: () => Promise<void>}} Known */

export const MeContext = createContext(/** @type {Known | null} */ (null));

/**
 * What these pages are called.
 * @param {{mode: string} | null} me
 */
export function productOf(me) {
  return me?.mode === "view" ? "RLDS View" : "RLDS Creator";
}

/**
 * Who is there.
 * @returns {Known}
 */
export function useMe() {
  return /** @type {Known} */ (useContext(MeContext));
}
