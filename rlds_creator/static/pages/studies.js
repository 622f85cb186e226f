/** The list of studies. */
import { useResource, useReturn } from "../api.js";
import { Button, Empty, LoadedContent, Markdown, PageHeader, STUDY_STATES, StateChip } from "../components.js";
import { formatCount, plural } from "../format.js";
import { html } from "../html.js";
import { address } from "../router.js";
import { useMe } from "../session.js";

/** @import { ListedStudy } from "../answers.js" */

export default function Studies() {
  const me = useMe();
  const studies = useResource("/api/studies");
  useReturn(studies.reload);
  const create = me.can("manage") && html`<${Button} kind="primary" icon="add" href="/studies/new">New study<//>`;
  return html`
    <${PageHeader} title="Studies" actions=${studies.data?.studies.length ? create : null} />
    <${LoadedContent} resource=${studies}>
      ${(/** @type {{studies: ListedStudy[]}} */ data) =>
        data.studies.length
          ? html`<ul class="cards">
            ${data.studies.map((study) => html`<${Card} key=${study.id} study=${study} />`)}
          </ul>`
          : me.can("manage")
            ? html`<${Empty} icon="studies" title="No study yet" action=${create}>
              A study has instructions and one or more environments. Create one, try it yourself, then enable it for
              others.
            <//>`
            : html`<${Empty} icon="studies" title="Nothing to play yet">
              Studies appear here when they are enabled.
            <//>`}
    <//>
  `;
}

/** @param {{study: ListedStudy}} props */
function Card({ study }) {
  const me = useMe();
  const canPlay = me.can("play") && study.environments.length > 0 && (study.state === "enabled" || me.can("manage"));
  const left = study.quota === null ? null : Math.max(0, study.quota - study.mine);
  return html`<li class="panel study-card">
    <header>
      <h2 class="clamp"><a href=${address("studies", study.id)} title=${study.name}>${study.name}</a></h2>
      ${me.can("see") && html`<${StateChip} state=${study.state} of=${STUDY_STATES} />`}
    </header>
    ${(study.instructions || study.description) &&
    html`<div class="study-text"><${Markdown} text=${study.instructions || study.description} /></div>`}
    <p class="study-meta">
      <span>${plural(study.environments.length, "environment")}</span>
      <span title="${formatCount(study.num_episodes)} including incomplete ones">
        ${plural(study.num_completed, "completed episode")}
      </span>
      ${left !== null &&
      me.can("play") &&
      html`<strong>${left === 0 ? "You have played all" : `${plural(left, "episode")} left for you`}</strong>`}
    </p>
    ${canPlay &&
    html`<div class="actions">
      <${Button} icon="play" kind=${me.can("manage") ? "plain" : "primary"} disabled=${left === 0}
        href=${study.consent && !study.agreed ? address("studies", study.id) : address("play", study.id)}
        aria-label="Play ${study.name}">Play<//>
    </div>`}
  </li>`;
}
