/** The current person and their permissions. */
import { createContext, useContext } from "./html.js";

/** @import { Me } from "./answers.js" */

/** @typedef {Me & {can: (action: string) => boolean, reload: () => Promise<void>}} CurrentUser */

export const MeContext = createContext(/** @type {CurrentUser | null} */ (null));

/**
 * The name of the product.
 * @param {{mode: string} | null} me
 */
export function productName(me) {
  return me?.mode === "view" ? "RLDS View" : "RLDS Creator";
}

/**
 * Returns the current person and their permissions.
 * @returns {CurrentUser}
 */
export function useMe() {
  return /** @type {CurrentUser} */ (useContext(MeContext));
}
