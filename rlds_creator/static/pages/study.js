/** The page of a study: instructions, environments to play, and progress. */
import { call, post, useResource } from "../api.js";
import {
  Button,
  Chip,
  Empty,
  Figure,
  LoadedContent,
  Markdown,
  Menu,
  Notice,
  PageHeader,
  Pager,
  Panel,
  STUDY_STATES,
  StateChip,
  Table,
  Time,
  confirm,
  toast,
  toastError,
} from "../components.js";
import { formatCount, formatDate, formatDuration, formatNumber, formatPercent, plural } from "../format.js";
import { Fragment, html, useState } from "../html.js";
import { InviteDialog } from "../invite_dialog.js";
import { address, navigate } from "../router.js";
import { useMe } from "../session.js";

/** @import { ListedStudy } from "../answers.js" */
/** @import { ConsentPage, Environment, EnvironmentStatistics, PersonConsent } from "../api_types.js" */
/** @import { PersonStatistics, StudyStatistics } from "../api_types.js" */
/** @import { Study as StudyRecord } from "../api_types.js" */

// The number of consents on a page of the server.
const CONSENTS_PER_PAGE = 50;

/** @type {Record<string, string>} */
export const ASSIGNMENTS = {
  choice: "Players choose which environment they play.",
  random: "The environment of each episode is chosen at random.",
  round_robin: "The environments alternate from episode to episode.",
  balanced: "Each episode uses the environment that you have played least.",
};

/** @param {{params: Record<string, string>}} props */
export default function StudyPage({ params }) {
  const study = useResource(address("api", "studies", params.id));
  const all = useResource("/api/studies");
  // The list is requested, because only the list has the numbers of episodes.
  const counts = all.data?.studies.find((study) => study.id === params.id) ?? {};
  const reload = () => Promise.all([study.reload(), all.reload()]);
  return html`<${LoadedContent} resource=${study} isPage>
    ${(/** @type {StudyRecord} */ data) => html`<${Study} study=${{ ...counts, ...data }} reload=${reload} />`}
  <//>`;
}

/** @param {{study: ListedStudy, reload: () => Promise<unknown>}} props */
function Study({ study, reload }) {
  const me = useMe();
  const [isBusy, setIsBusy] = useState(false);
  const [isInviting, setIsInviting] = useState(false);
  const canManage = me.can("manage");
  const sees = me.can("see");
  const setState = async (/** @type {string} */ state) => {
    setIsBusy(true);
    try {
      await post(address("api", "studies", study.id, "state"), { state });
      await reload();
      toast(state === "enabled" ? "Participants can play it now." : "Participants can no longer play it.", {
        kind: "good",
      });
    } catch (error) {
      toastError(error);
    }
    setIsBusy(false);
  };
  const erase = async () => {
    if (!(await confirmDeletion(study))) return;
    try {
      await call("DELETE", address("api", "studies", study.id));
      toast(`${study.name} was deleted.`, { kind: "good" });
      void navigate("/", { replace: true });
    } catch (error) {
      toastError(error);
    }
  };
  const actions = html`<${Fragment}>
    ${sees || me.can("play")
      ? html`<${Button} icon="episodes" href="/episodes?study=${encodeURIComponent(study.id)}">Episodes<//>`
      : null}
    ${me.can("people") &&
    !me.single_user &&
    html`<${Button} icon="link" onClick=${() => setIsInviting(true)}>Invite…<//>`}
    ${canManage &&
    html`<${Fragment}>
      <${Button} icon="edit" href=${address("studies", study.id, "edit")}>Edit<//>
      ${study.state === "enabled"
        ? html`<${Button} icon="pause" busy=${isBusy} onClick=${() => setState("disabled")}>Disable<//>`
        : html`<${Button} kind="primary" icon="check" busy=${isBusy} disabled=${!study.environments.length}
          onClick=${() => setState("enabled")}>Enable<//>`}
      <${Menu} label="More" items=${[{ label: "Delete study…", icon: "trash", danger: true, do: erase }]} />
    <//>`}
  <//>`;
  return html`
    <${PageHeader} title=${study.name} back=${{ href: "/", label: "Studies" }} actions=${actions}
      chips=${sees && html`<${StateChip} state=${study.state} of=${STUDY_STATES} />`}
      subtitle=${sees && `Created ${formatDate(study.created)}`} />
    ${canManage &&
    study.state === "draft" &&
    html`<${Notice} tone="odd">
      This is a draft, which participants cannot see. Play it once yourself, then enable it.
    <//>`}
    <div class="split">
      <div>
        <${Panel} title="Instructions">
          ${study.instructions
            ? html`<${Markdown} text=${study.instructions} />`
            : html`<p class="quiet">This study has no instructions.</p>`}
        <//>
        ${study.consent && me.can("play") && html`<${Consent} study=${study} reload=${reload} />`}
        <${Play} study=${study} />
      </div>
      <div>
        <${Panel} title="Progress">
          <dl class="figures">
            <${Figure} label="Completed" value=${formatCount(study.num_completed ?? 0)}
              note=${study.total_quota && `of ${formatCount(study.total_quota)}`} />
            <${Figure} label="Recorded" value=${formatCount(study.num_episodes ?? 0)} />
            ${me.can("play") &&
            !me.single_user &&
            html`<${Figure} label="By you" value=${formatCount(study.mine ?? 0)}
              note=${study.quota && `of ${formatCount(study.quota)}`} />`}
          </dl>
          ${study.labels.length > 0 &&
          html`<div class="study-labels">
            <h3>Tags</h3>
            <p class="chips">
              ${study.labels.map(
                (label) =>
                  html`<${Chip} key=${label.name} title=${label.description}>${label.name}<//>`,
              )}
            </p>
          </div>`}
        <//>
        ${study.description &&
        html`<${Panel} title="Description" hint="Not shown to players.">
          <${Markdown} text=${study.description} />
        <//>`}
      </div>
    </div>
    ${sees && html`<${Statistics} study=${study} />`}
    ${isInviting && html`<${InviteDialog} study=${study.id} onClose=${() => setIsInviting(false)} />`}
  `;
}

/**
 * Asks for a confirmation to delete a study with all its episodes.
 * @param {{name: string, num_episodes: number}} study
 */
export function confirmDeletion(study) {
  return confirm({
    title: `Delete ${study.name}?`,
    body: study.num_episodes
      ? `${plural(study.num_episodes, "recorded episode")} will be deleted too, with tags and notes. ` +
        "This cannot be undone."
      : "It has no episodes. This cannot be undone.",
    action: "Delete study",
    danger: true,
    phrase: study.num_episodes ? study.name.trim() : undefined,
  });
}

/** The consent before the first episode. @param {{study: ListedStudy, reload: () => Promise<unknown>}} props */
function Consent({ study, reload }) {
  const [isBusy, setIsBusy] = useState(false);
  const agree = async () => {
    setIsBusy(true);
    try {
      await post(address("api", "studies", study.id, "consent"), { text: study.consent });
    } catch (error) {
      toastError(error);
    }
    await reload();
    setIsBusy(false);
  };
  return html`<${Panel} title="Consent"
    hint=${study.agreed ? `You agreed on ${formatDate(study.agreed)}.` : "Please read this before you play."}>
    <div class="stack">
      <${Markdown} text=${study.consent} />
      ${!study.agreed && html`<${Button} kind="primary" icon="check" busy=${isBusy} onClick=${agree}>I agree<//>`}
    </div>
  <//>`;
}

/** @param {{study: ListedStudy}} props */
function Play({ study }) {
  const me = useMe();
  if (!me.can("play")) return null;
  if (!study.environments.length) {
    const add = html`<${Button} icon="add" href=${address("studies", study.id, "edit")}>Add one<//>`;
    return html`<${Panel} title="Play">
      <${Empty} icon="play" title="No environment yet" action=${me.can("manage") && add}>
        Add an environment to play this study.
      <//>
    <//>`;
  }
  const isClosed = study.state !== "enabled" && !me.can("manage");
  const isReached = (/** @type {number | null} */ quota, /** @type {number | undefined} */ count) =>
    quota !== null && quota !== undefined && (count ?? 0) >= quota;
  const isDone = isReached(study.quota, study.mine);
  const isFull = isReached(study.total_quota, study.num_completed);
  const needsConsent = Boolean(study.consent && !study.agreed);
  const isOff = isClosed || isDone || isFull || needsConsent;
  const isAssigned = study.environments.length > 1 && study.assignment !== "choice";
  // Owners can try any environment of a study.
  const canChoose = !isAssigned || me.can("manage");
  const practice =
    study.practice > 0 && `Your first ${plural(study.practice, "episode is", "episodes are")} practice, and not data.`;
  const choice = study.environments.length > 1 && ASSIGNMENTS[study.assignment];
  const hint = isDone
    ? "You have played all your episodes. Thank you!"
    : isFull
      ? "This study has all its episodes. Thank you!"
      : needsConsent
        ? "Agree to the consent text above to play."
        : [choice, practice].filter(Boolean).join(" ");
  return html`<${Panel} title="Play" hint=${hint}
    actions=${isAssigned &&
    html`<${Button} kind="primary" icon="play" disabled=${isOff} href=${address("play", study.id)}>Play<//>`}>
    <ul class="play-list">
      ${study.environments.map(
        (environment) => html`<li key=${environment.id}>
          <div class="grow">
            <h3>${environment.name}</h3>
            <p class="note">
              ${rate(environment)}
              ${environment.max_episode_steps ? `, at most ${plural(environment.max_episode_steps, "step")}` : ""}
            </p>
          </div>
          ${canChoose &&
          html`<${Button} icon="play" kind=${isAssigned ? "plain" : "primary"} disabled=${isOff}
            aria-label="Play ${environment.name}" href=${address("play", study.id, environment.id)}>
            ${isAssigned ? "Try" : "Play"}
          <//>`}
        </li>`,
      )}
    </ul>
  <//>`;
}

/** @param {Environment} environment */
function rate(environment) {
  return environment.mode === "async"
    ? `${formatNumber(environment.fps)} steps per second`
    : "Steps when you press a key";
}

/** @param {{study: ListedStudy}} props */
function Statistics({ study }) {
  const me = useMe();
  const statistics = useResource(address("api", "studies", study.id, "statistics"));
  return html`<div class="statistics">
    <${LoadedContent} resource=${statistics}>
      ${(/** @type {StudyStatistics} */ data) => html`<${Fragment}>
        <${Breakdown} title="By environment" empty="No episodes yet." rows=${data.environments} columns=${[
          column("Environment", (/** @type {EnvironmentStatistics} */ row) => row.name),
          ...EPISODE_COLUMNS,
          number("Successes", (/** @type {EnvironmentStatistics} */ row) => html`${formatCount(row.success)}
            ${row.completed > 0 && html` <span class="quiet">(${formatPercent(row.success / row.completed)})</span>`}`),
          number("Steps", (/** @type {EnvironmentStatistics} */ row) => formatCount(row.steps)),
          number("Mean reward", (/** @type {EnvironmentStatistics} */ row) => formatNumber(row.mean_reward)),
        ]} />
        ${!me.single_user &&
        html`<${Breakdown} title="By person" empty="Nobody has played yet." rows=${data.people} columns=${[
          column("Person", (/** @type {PersonStatistics} */ row) => html`<a
            href="/episodes?study=${encodeURIComponent(study.id)}&person=${encodeURIComponent(row.person)}">
            ${row.name}
          </a>`),
          ...EPISODE_COLUMNS,
          number("Time played", (/** @type {PersonStatistics} */ row) => formatDuration(row.seconds)),
        ]} />`}
      <//>`}
    <//>
    <${Consents} key=${study.agreed} study=${study} />
  </div>`;
}

/** @param {{study: ListedStudy}} props */
function Consents({ study }) {
  const [offset, setOffset] = useState(0);
  const consents = useResource(address("api", "studies", study.id, "consents"), { offset });
  if (!study.consent && !consents.data?.total) return null;
  return html`<${LoadedContent} resource=${consents}>
    ${(/** @type {ConsentPage} */ data) => html`<${Breakdown} title="Consents" empty="Nobody has agreed yet."
      rows=${data.consents} columns=${[
        column("Person", (/** @type {PersonConsent} */ row) => row.name),
        column("Agreed", (/** @type {PersonConsent} */ row) => html`<${Time} seconds=${row.created} />`),
        column("Text", (/** @type {PersonConsent} */ row) => html`<details>
          <summary>${row.text === study.consent ? "Current text" : "Earlier text"}</summary>
          <${Markdown} text=${row.text} />
        </details>`),
      ]}>
      <${Pager} offset=${offset} limit=${CONSENTS_PER_PAGE} total=${data.total} noun="consents" onChange=${setOffset} />
    <//>`}
  <//>`;
}

/** @param {string} title @param {(row: any) => any} cell */
const column = (title, cell) => ({ name: title, title, cell });
/** @param {string} title @param {(row: any) => any} cell */
const number = (title, cell) => ({ ...column(title, cell), isNumber: true });
const EPISODE_COLUMNS = [
  number("Episodes", (/** @type {PersonStatistics} */ row) => formatCount(row.episodes)),
  number("Completed", (/** @type {PersonStatistics} */ row) => formatCount(row.completed)),
];

/**
 * A table of a study; the first column names the rows.
 * @param {{title: string, empty: string, rows: any[], columns: ReturnType<typeof column>[], children?: any}} props
 */
function Breakdown({ title, empty, rows, columns: [first, ...others], children }) {
  return html`<${Panel} title=${title}>
    ${rows.length
      ? html`<${Table} caption=${title} rows=${rows} rowKey=${(/** @type {any} */ row) => row.id ?? row.person}
        columns=${[{ ...first, narrow: "title" }, ...others]} />`
      : html`<p class="quiet">${empty}</p>`}
    ${children}
  <//>`;
}
