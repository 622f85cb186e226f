/** The dialog that creates an invitation link. */
import { post, useResource } from "./api.js";
import { Button, CopyButton, Dialog, Field, NumberField, SelectField, TextField, toastError } from "./components.js";
import { formatCount } from "./format.js";
import { Fragment, html, useRef, useState } from "./html.js";

/** @type {[string, string, string][]} */
export const ROLES = [
  ["owner", "Owner", "Has all permissions: creates studies, invites people, deletes any episode."],
  ["annotator", "Annotator", "Plays; sees, tags and downloads all episodes."],
  ["participant", "Participant", "Plays enabled studies, and sees only their own episodes."],
  ["viewer", "Viewer", "Sees all studies and episodes, and downloads them; does not play."],
];
export const ROLE_CHOICES = ROLES.map(([name, title]) => [name, title]);

/** @param {string} role */
export function roleName(role) {
  return ROLES.find(([name]) => name === role)?.[1] ?? role;
}

/** @param {{study?: string, onClose: () => void, onDone?: () => void}} props `study` is preselected. */
export function InviteDialog({ study: first = "", onClose, onDone }) {
  const [role, setRole] = useState("participant");
  const [study, setStudy] = useState(first);
  const studies = useResource("/api/studies");
  const [name, setName] = useState("");
  const [uses, setUses] = useState(/** @type {number | null} */ (1));
  const [days, setDays] = useState(/** @type {number | null} */ (7));
  const [link, setLink] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [isChecked, setIsChecked] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const wrong = (/** @type {number | null} */ value, /** @type {number} */ most) =>
    Number.isInteger(value) && Number(value) >= 1 && Number(value) <= most
      ? undefined
      : `A whole number from 1 to ${formatCount(most)}.`;
  const errors = { uses: wrong(uses, 10_000), days: wrong(days, 3650) };
  const isForOne = role === "participant" && study !== "";
  const ask = async () => {
    setIsChecked(true);
    if (errors.uses || errors.days) return;
    setIsBusy(true);
    try {
      const invite = await post("/api/invites", { role, name: name.trim(), uses, days, study: isForOne ? study : "" });
      setLink(new URL(invite.link, location.href).href);
      onDone?.();
      setTimeout(() => field.current?.select());
    } catch (error) {
      toastError(error);
    }
    setIsBusy(false);
  };
  if (link) {
    return html`<${Dialog} title="Send this link" onClose=${onClose}
      actions=${html`<${Button} kind="primary" onClick=${onClose}>Done<//>`}>
      <p>Anyone with this link can enter as ${roleName(role).toLowerCase()}. It is shown only once: copy it now.</p>
      <${Field} label="Invitation link">
        ${(/** @type {any} */ attributes) => html`<span class="secret">
          <input ref=${field} readonly ...${attributes} value=${link}
            onFocus=${(/** @type {any} */ event) => event.target.select()} />
          <${CopyButton} text=${link} kind="primary" />
        </span>`}
      <//>
    <//>`;
  }
  return html`<${Dialog} title="Invite people" onClose=${onClose} onSubmit=${ask}
    actions=${html`<${Fragment}>
      <${Button} onClick=${onClose}>Cancel<//>
      <${Button} type="submit" kind="primary" icon="link" busy=${isBusy}>Create link<//>
    <//>`}>
    <${SelectField} label="Role" value=${role} onChange=${setRole} choices=${ROLE_CHOICES}
      hint=${ROLES.find(([value]) => value === role)?.[2]} />
    ${role === "participant" &&
    html`<${SelectField} label="Study" value=${study} onChange=${setStudy}
      hint=${study ? "The link opens this study. No other study is listed." : undefined}
      choices=${[["", "All enabled studies"], ...(studies.data?.studies ?? []).map((it) => [it.id, it.name])]} />`}
    <${TextField} label="For" optional hint="A note that you see in the list of links." placeholder="Tuesday's class"
      value=${name} onChange=${setName} maxlength="200" />
    <div class="fields">
      <${NumberField} label="Number of people" value=${uses} onChange=${setUses}
        error=${isChecked ? errors.uses : undefined} />
      <${NumberField} label="Valid for" unit="days" value=${days} onChange=${setDays}
        error=${isChecked ? errors.days : undefined} />
    </div>
  <//>`;
}
