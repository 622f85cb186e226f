/** Opens episodes. */
import { useEffect, useState } from "../html.js";
import { EpisodeData } from "./episode.js";

/** @import { Outline } from "../answers.js" */

/**
 * Opens an episode.
 * @param {string | null} base
 * @param {Record<string, string>} [filter] Of the list in which it is one.
 */
export function useEpisode(base, filter) {
  const [state, setState] = useState(
    /** @type {{data: EpisodeData | null, outline: Outline | null, error: Error | null}} */ ({
      data: null,
      outline: null,
      error: null,
    }),
  );
  const [tries, setTries] = useState(0);
  useEffect(() => {
    setState({ data: null, outline: null, error: null });
    if (base === null) return undefined;
    const controller = new AbortController();
    const data = new EpisodeData(base, filter);
    /** The rewards of a long episode come in parts. @param {Outline} outline */
    const show = (outline) => {
      setState({ data, outline, error: null });
      if (outline.is_complete === false) data.load(controller.signal, 3).then(show, () => {});
    };
    data
      .load(controller.signal)
      .then(show, (error) => controller.signal.aborted || setState({ data: null, outline: null, error }));
    return () => {
      controller.abort();
      data.close();
    };
  }, [base, tries, JSON.stringify(filter)]);
  // What is said now is not meant for the episode before.
  const isOther = state.data !== null && state.data.page !== base;
  return { ...state, ...(isOther && { data: null, outline: null }), reload: () => setTries(tries + 1) };
}
