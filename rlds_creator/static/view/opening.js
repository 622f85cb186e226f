/** The data of an episode as a hook. */
import { useEffect, useState } from "../html.js";
import { EpisodeData } from "./episode.js";

/** @import { EpisodeSummary } from "../answers.js" */

/**
 * Opens an episode.
 * @param {string | null} base
 * @param {Record<string, string>} [filter] The filter of the list of episodes.
 */
export function useEpisode(base, filter) {
  const [state, setState] = useState(
    /** @type {{data: EpisodeData | null, summary: EpisodeSummary | null, error: Error | null}} */ ({
      data: null,
      summary: null,
      error: null,
    }),
  );
  const [tries, setTries] = useState(0);
  useEffect(() => {
    setState({ data: null, summary: null, error: null });
    if (base === null) return undefined;
    const controller = new AbortController();
    const data = new EpisodeData(base, filter);
    /** Requests more rewards of a long episode until all are loaded. @param {EpisodeSummary} summary */
    const show = (summary) => {
      setState({ data, summary, error: null });
      if (summary.is_complete === false) data.load(controller.signal, 3).then(show, () => {});
    };
    data
      .load(controller.signal)
      .then(show, (error) => controller.signal.aborted || setState({ data: null, summary: null, error }));
    return () => {
      controller.abort();
      data.close();
    };
  }, [base, tries, JSON.stringify(filter)]);
  // After a change of the address, the state of the previous episode remains for a moment.
  const isOther = state.data !== null && state.data.page !== base;
  return { ...state, ...(isOther && { data: null, summary: null }), reload: () => setTries(tries + 1) };
}
