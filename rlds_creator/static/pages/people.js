/** The page of people: their roles, and invitation links. */
import { patch, remove, useResource, useReturn } from "../api.js";
import {
  Button,
  Chip,
  Empty,
  Icon,
  IconButton,
  LoadedContent,
  PageHeader,
  Panel,
  Table,
  Time,
  confirm,
  toast,
  toastError,
} from "../components.js";
import { formatCount } from "../format.js";
import { Fragment, html, useState } from "../html.js";
import { InviteDialog, ROLE_CHOICES, roleName } from "../invite_dialog.js";
import { useMe } from "../session.js";

/** @import { Invite, Person, Role } from "../api_types.js" */

export default function People() {
  const me = useMe();
  const people = useResource(me.can("people") ? "/api/people" : null);
  useReturn(people.reload);
  const [isInviting, setIsInviting] = useState(false);
  if (!me.can("people"))
    return html`<${Empty} isPage icon="lock" title="No access">
      Only owners manage people.
    <//>`;
  const change = async (/** @type {Person} */ person, /** @type {{role?: Role, is_disabled?: boolean}} */ changes) => {
    try {
      await patch(`/api/people/${encodeURIComponent(person.id)}`, changes);
      toast(
        changes.role
          ? `${person.name} is ${roleName(changes.role).toLowerCase()} now.`
          : changes.is_disabled
            ? `${person.name} is blocked.`
            : `${person.name} is no longer blocked.`,
        { kind: "good" },
      );
    } catch (error) {
      toastError(error);
    }
    await people.reload();
  };
  const disable = async (/** @type {Person} */ person) => {
    const agreed = await confirm({
      title: `Block ${person.name}?`,
      body: "They have no access until you unblock them. Their episodes are kept.",
      action: "Block",
      danger: true,
    });
    if (agreed) await change(person, { is_disabled: true });
  };
  const revoke = async (/** @type {Invite} */ invite) => {
    const agreed = await confirm({
      title: "Revoke this invitation link?",
      body: "Nobody can enter with it anymore. People who have entered keep their access.",
      action: "Revoke",
      danger: true,
    });
    if (!agreed) return;
    try {
      await remove(`/api/invites/${encodeURIComponent(invite.id)}`);
      await people.reload();
    } catch (error) {
      toastError(error);
    }
  };
  return html`
    <${PageHeader} title="People"
      actions=${html`<${Button} kind="primary" icon="link" onClick=${() => setIsInviting(true)}>Invite…<//>`} />
    <${LoadedContent} resource=${people}>
      ${(/** @type {{people: Person[], invites: Invite[]}} */ data) => html`<${Fragment}>
        <${Table} caption="People" rows=${data.people}
          rowClass=${(/** @type {Person} */ row) => (row.is_disabled ? "off" : undefined)} columns=${[
            {
              name: "name",
              title: "Name",
              narrow: "title",
              cell: (/** @type {Person} */ row) => html`${row.name}${" "}
              ${row.id === me.person?.id && html`<${Chip} tone="accent">You<//>`}
              ${row.is_disabled && html`<${Chip} tone="bad">Blocked<//>`}`,
            },
            {
              name: "role",
              title: "Role",
              cell: (/** @type {Person} */ row) =>
                row.id === me.person?.id
                  ? roleName(row.role)
                  : html`<span class="select role-select">
                    <select aria-label="Role of ${row.name}" value=${row.role}
                      onChange=${(/** @type {any} */ event) => change(row, { role: event.target.value })}>
                      ${ROLE_CHOICES.map(
                        ([name, title]) =>
                          html`<option key=${name} value=${name} selected=${name === row.role}>${title}</option>`,
                      )}
                    </select>
                    <${Icon} name="down" size=${16} />
                  </span>`,
            },
            {
              name: "created",
              title: "Since",
              cell: (/** @type {Person} */ row) => html`<${Time} seconds=${row.created} />`,
            },
            {
              name: "actions",
              title: "",
              cell: (/** @type {Person} */ row) =>
                row.id !== me.person?.id &&
                html`<div>
                  ${row.is_disabled
                    ? html`<${Button} size="small" kind="quiet" onClick=${() => change(row, { is_disabled: false })}
                      aria-label="Unblock ${row.name}">Unblock<//>`
                    : html`<${Button} size="small" kind="quiet" onClick=${() => disable(row)}
                      aria-label="Block ${row.name}">Block…<//>`}
                </div>`,
            },
          ]} />
        <${Panel} title="Open invitations" hint="A link is shown only once, when you create it.">
          ${data.invites.length
            ? html`<${Table} caption="Open invitations" rows=${data.invites} columns=${[
              {
                name: "name",
                title: "For",
                narrow: "title",
                cell: (/** @type {Invite} */ row) => row.name || "Anyone",
              },
              { name: "role", title: "Role", cell: (/** @type {Invite} */ row) => roleName(row.role) },
              {
                name: "uses_left",
                title: "Uses left",
                isNumber: true,
                cell: (/** @type {Invite} */ row) => formatCount(row.uses_left),
              },
              {
                name: "expires",
                title: "Until",
                cell: (/** @type {Invite} */ row) => html`<${Time} seconds=${row.expires} />`,
              },
              {
                name: "actions",
                title: "",
                cell: (/** @type {Invite} */ row) => html`<div>
                  <${IconButton} size="small" icon="trash" label="Revoke the invitation for ${row.name || "anyone"}"
                    onClick=${() => revoke(row)} />
                </div>`,
              },
            ]} />`
            : html`<p class="quiet">There are no open invitations.</p>`}
        <//>
      <//>`}
    <//>
    ${isInviting && html`<${InviteDialog} onClose=${() => setIsInviting(false)} onDone=${people.reload} />`}
  `;
}
