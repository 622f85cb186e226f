/** The target of a new label: the step, a range or the episode. */
import { useRef, useState } from "../html.js";

/** @import { Range, Scope } from "./labels.js" */

/** The target of a new label. The ref `target` may be newer than the rendered state. */
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
