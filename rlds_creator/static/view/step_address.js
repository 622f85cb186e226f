/** The step in the address of the page. */
import { toast, toastError } from "../components.js";
import { useEffect, useRef } from "../html.js";
import { setQuery } from "../router.js";

/** @import { Playback } from "./playback.js" */

/**
 * Writes the step to the address, and reads it when somebody goes back in the history.
 * @param {Playback} playback
 * @param {string | undefined} t
 */
export function useStepInAddress({ step, isPlaying, seek }, t) {
  const written = useRef(t);
  useEffect(() => {
    if (isPlaying) return undefined;
    // Browsers limit the rate of changes of the address.
    const timer = setTimeout(() => {
      const next = step === 0 && written.current === undefined ? undefined : String(step);
      if (next === written.current) return;
      written.current = next;
      setQuery({ t: next, step: null });
    }, 250);
    return () => clearTimeout(timer);
  }, [step, isPlaying]);
  useEffect(() => {
    // The address may have changed since the page was rendered.
    const current = new URLSearchParams(location.search).get("t") ?? undefined;
    if (current === written.current) return;
    written.current = current;
    seek(Number(current ?? 0));
  }, [t]);
}

/** @param {number} step */
export async function copyLink(step) {
  const url = new URL(location.href);
  url.searchParams.set("t", String(step));
  try {
    await navigator.clipboard.writeText(url.href);
    toast(`Copied the link to step ${step}.`, { kind: "good" });
  } catch {
    toastError(new Error("The browser blocks copying here. Copy the address of this page instead."));
  }
}
