/** A button that copies text. */
import { html, useEffect, useState } from "../html.js";
import { Button } from "./button.js";
import { announce, toast } from "./messages.js";

/**
 * A button that copies a text to the clipboard.
 * @param {{text: string, kind?: string}} props
 */
export function CopyButton({ text, kind = "plain" }) {
  const [isDone, setIsDone] = useState(false);
  useEffect(() => {
    if (!isDone) return undefined;
    const timer = setTimeout(() => setIsDone(false), 2000);
    return () => clearTimeout(timer);
  }, [isDone]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setIsDone(true);
      announce("Copied");
    } catch {
      toast("The browser blocks copying here. Select the text and copy it.", { kind: "bad" });
    }
  };
  return html`<${Button} kind=${kind} icon=${isDone ? "check" : "copy"} onClick=${copy}>
    ${isDone ? "Copied" : "Copy"}
  <//>`;
}
