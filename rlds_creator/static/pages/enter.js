/** The page of an invitation link. The token is in the fragment, which browsers do not send. */
import { post } from "../api.js";
import { Button, Empty, Notice, TextField, useTitle } from "../components.js";
import { html, useState } from "../html.js";
import { address, navigate } from "../router.js";
import { useMe } from "../session.js";

// The token is removed from the address at once, so that nobody copies or sees it by accident.
let token = "";

export default function Enter() {
  const me = useMe();
  const [name, setName] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState("");
  useTitle("Enter");
  if (location.hash.length > 1) {
    token = decodeURIComponent(location.hash.slice(1));
    history.replaceState(history.state, "", location.pathname);
  }
  if (!token) {
    return html`<${Empty} isPage icon="link" title="This link is incomplete"
      action=${me.person && html`<${Button} href="/">Go to the studies<//>`}>
      An invitation link ends with # and a long code. Copy the whole link.
    <//>`;
  }
  const enter = async () => {
    if (!name.trim()) {
      setError("Please enter your name.");
      return;
    }
    setIsBusy(true);
    setError("");
    try {
      const { person } = await post("/api/enter", { token, name: name.trim() });
      token = "";
      // Stores the name of the annotator for the pages of `rlds view`.
      localStorage.setItem("rlds:annotator", JSON.stringify(name.trim()));
      await me.reload();
      void navigate(person?.study ? address("studies", person.study) : "/", { replace: true });
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem));
      setIsBusy(false);
    }
  };
  return html`<div class="enter">
    ${me.person &&
    html`<${Notice} tone="odd">
      This browser is logged in as ${me.person.name}. If you enter, it logs in as a new person.
    <//>`}
    <section class="panel">
      <h1>Welcome</h1>
      <p class="quiet">
        ${me.mode === "view"
          ? "You are invited to view data. Enter your name."
          : "You are invited to RLDS Creator. Enter your name."}
      </p>
      <form
        novalidate
        onSubmit=${(/** @type {Event} */ event) => {
          event.preventDefault();
          void enter();
        }}
      >
        <${TextField} label="Your name"
          hint=${me.mode === "view"
            ? "It is shown next to your labels."
            : "The owners of the studies see it. It can be a pseudonym."}
          value=${name} onChange=${setName}
          error=${error} maxlength="200" autocomplete="nickname" autofocus />
        <${Button} type="submit" kind="primary" size="large" busy=${isBusy}>Enter<//>
      </form>
    </section>
  </div>`;
}
