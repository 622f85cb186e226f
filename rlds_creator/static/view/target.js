/** What a tag goes to. */
import { useRef, useState } from "../html.js";

/** @import { Range, Scope } from "./labels.js" */

/** What a tag goes to. `target` has it also when the page is not drawn again yet after keys that follow fast. */
export function useTarget() {
  const [state, setState] = useState({
    scope: /** @type {Scope} */ ("step"),
    range: /** @type {Range | null} */ (null),
  });
  const target = useRef(state);
  const change = (/** @type {typeof state} */ next) => {
    target.current = next;
    setState(next);
  };
  return {
    ...state,
    target,
    setScope: (/** @type {typeof state.scope} */ scope) => change({ ...target.current, scope }),
    setRange: (/** @type {typeof state.range} */ range) => change({ scope: range ? "range" : "step", range }),
  };
}
