/** One study: what to do, where to play, and how it goes. */
import { call, post, useResource } from "../api.js";
import {
  Button,
  Chip,
  Empty,
  Figure,
  Loaded,
  Markdown,
  Menu,
  Notice,
  PageHeader,
  Panel,
  STUDY_STATES,
  StateChip,
  Table,
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
/** @import { Environment, EnvironmentStatistics, PersonStatistics, Statistics } from "../api_types.js" */
/** @import { Study as StudyRecord } from "../api_types.js" */

/** @type {Record<string, string>} */
export const ASSIGNMENTS = {
  choice: "Players choose which environment they play.",
  random: "The environment of each episode is chosen at random.",
  round_robin: "The environments alternate from episode to episode.",
  balanced: "Each episode is of the environment that you have played least.",
};

/** @param {{params: Record<string, string>}} props */
export default function StudyPage({ params }) {
  const study = useResource(address("api", "studies", params.id));
  const all = useResource("/api/studies");
  // Only the list has how many episodes there are.
  const counts = all.data?.studies.find((one) => one.id === params.id) ?? {};
  const reload = () => Promise.all([study.reload(), all.reload()]);
  return html`<${Loaded} resource=${study} isPage>
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
 * Asks whether a study is to be deleted, with all that was recorded for it.
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

/** What people agree to before they play. @param {{study: ListedStudy, reload: () => Promise<unknown>}} props */
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
  const isReached = (/** @type {number | null} */ quota, /** @type {number | undefined} */ number) =>
    quota !== null && quota !== undefined && (number ?? 0) >= quota;
  const isDone = isReached(study.quota, study.mine);
  const isFull = isReached(study.total_quota, study.num_completed);
  const needsConsent = Boolean(study.consent && !study.agreed);
  const isOff = isClosed || isDone || isFull || needsConsent;
  const isAssigned = study.environments.length > 1 && study.assignment !== "choice";
  // Those who run a study try any of its environments.
  const canChoose = !isAssigned || me.can("manage");
  const practice =
    study.practice > 0 && `Your first ${plural(study.practice, "episode is", "episodes are")} practice, and not data.`;
  const choice = study.environments.length > 1 && ASSIGNMENTS[study.assignment];
  const hint = isDone
    ? "You have played all your episodes. Thank you!"
    : isFull
      ? "This study has all its episodes. Thank you!"
      : needsConsent
        ? "You can play when you have agreed above."
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
    <${Loaded} resource=${statistics}>
      ${(/** @type {Statistics} */ data) => html`<${Fragment}>
        <${Panel} title="By environment">
          ${data.environments.length
            ? html`<${Table} caption="Episodes by environment" rows=${data.environments} columns=${[
              {
                name: "name",
                title: "Environment",
                narrow: "title",
                cell: (/** @type {EnvironmentStatistics} */ row) => row.name,
              },
              {
                name: "episodes",
                title: "Episodes",
                isNumber: true,
                cell: (/** @type {EnvironmentStatistics} */ row) => formatCount(row.episodes),
              },
              {
                name: "completed",
                title: "Completed",
                isNumber: true,
                cell: (/** @type {EnvironmentStatistics} */ row) => formatCount(row.completed),
              },
              {
                name: "success",
                title: "Successes",
                isNumber: true,
                cell: (/** @type {EnvironmentStatistics} */ row) => html`${formatCount(row.success)}
                ${row.completed > 0 &&
                html` <span class="quiet">(${formatPercent(row.success / row.completed)})</span>`}`,
              },
              {
                name: "steps",
                title: "Steps",
                isNumber: true,
                cell: (/** @type {EnvironmentStatistics} */ row) => formatCount(row.steps),
              },
              {
                name: "mean_reward",
                title: "Mean reward",
                isNumber: true,
                cell: (/** @type {EnvironmentStatistics} */ row) => formatNumber(row.mean_reward),
              },
            ]} />`
            : html`<p class="quiet">No episodes yet.</p>`}
        <//>
        ${!me.single_user &&
        html`<${Panel} title="By person">
          ${data.people.length
            ? html`<${Table} caption="Episodes by person" rows=${data.people}
              rowKey=${(/** @type {PersonStatistics} */ row) => row.person} columns=${[
                {
                  name: "name",
                  title: "Person",
                  narrow: "title",
                  cell: (/** @type {PersonStatistics} */ row) => html`<a
                    href="/episodes?study=${encodeURIComponent(study.id)}&person=${encodeURIComponent(row.person)}">
                    ${row.name}
                  </a>`,
                },
                {
                  name: "episodes",
                  title: "Episodes",
                  isNumber: true,
                  cell: (/** @type {PersonStatistics} */ row) => formatCount(row.episodes),
                },
                {
                  name: "completed",
                  title: "Completed",
                  isNumber: true,
                  cell: (/** @type {PersonStatistics} */ row) => formatCount(row.completed),
                },
                {
                  name: "seconds",
                  title: "Time played",
                  isNumber: true,
                  cell: (/** @type {PersonStatistics} */ row) => formatDuration(row.seconds),
                },
              ]} />`
            : html`<p class="quiet">Nobody has played yet.</p>`}
        <//>`}
      <//>`}
    <//>
  </div>`;
}
