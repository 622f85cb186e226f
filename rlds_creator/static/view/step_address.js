/** The step in the address of the page. */
import { toast, toastError } from "../components.js";
import { useEffect, useRef } from "../html.js";
import { setQuery } from "../router.js";

/** @import { Playback } from "./playback.js" */

/**
 * Keeps the step in the address, and follows it when somebody goes back.
 * @param {Playback} playback
 * @param {string | undefined} t
 */
export function useStepInAddress({ step, isPlaying, seek }, t) {
  const written = useRef(t);
  useEffect(() => {
    if (isPlaying) return undefined;
    // Browsers refuse pages that change their address all the time.
    const timer = setTimeout(() => {
      const next = step === 0 && written.current === undefined ? undefined : String(step);
      if (next === written.current) return;
      written.current = next;
      setQuery({ t: next, step: null });
    }, 250);
    return () => clearTimeout(timer);
  }, [step, isPlaying]);
  useEffect(() => {
    // The page may be drawn later than its address changes: what it says now counts.
    const now = new URLSearchParams(location.search).get("t") ?? undefined;
    if (now === written.current) return;
    written.current = now;
    seek(Number(now ?? 0));
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
