/** The dialog for a download: format, name and options. */
import { post, useResource } from "./api.js";
import { Button, CheckField, Dialog, Loading, Notice, SelectField, TextField } from "./components.js";
import { plural } from "./format.js";
import { Fragment, html, useState } from "./html.js";
import { navigate } from "./router.js";

/** @import { ListedEpisode, ListedStudy } from "./answers.js" */

/**
 * @param {{episodes: ListedEpisode[], studies: ListedStudy[], onClose: () => void}} props
 */
export function DownloadDialog({ episodes: selected, studies, onClose }) {
  const finished = selected.filter((episode) => episode.state !== "playing");
  const numPlaying = selected.length - finished.length;
  const numPractice = finished.filter((episode) => episode.is_practice).length;
  const [practice, setPractice] = useState(false);
  const episodes = finished.filter((episode) => practice || !episode.is_practice);
  const formats = useResource("/api/formats");
  const [format, setFormat] = useState("");
  const [name, setName] = useState(defaultName(finished));
  const [keepInternal, setKeepInternal] = useState(false);
  const [options, setOptions] = useState("");
  const [endAt, setEndAt] = useState(/** @type {string[]} */ ([]));
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState("");
  const [nameError, setNameError] = useState("");
  const all = formats.data?.formats ?? [];
  const formatName = format || all.find((candidate) => candidate.installed)?.name;
  const missing = all.find((candidate) => candidate.name === formatName && !candidate.installed);
  const hasOptions = formatName !== undefined && !["log", "tfds"].includes(formatName);
  const studyIds = new Set(episodes.map((episode) => episode.study));
  const labels = [
    ...new Set([
      ...studies
        .filter((study) => studyIds.has(study.id))
        .flatMap((study) => study.labels.map((label) => label.name)),
      ...episodes.flatMap((episode) => episode.labels),
    ]),
  ].sort();
  const groups = [...Map.groupBy(episodes, (episode) => `${episode.study} ${episode.environment}`).values()];
  const [isSplit, setIsSplit] = useState(groups.length > 1);
  const numIncomplete = episodes.filter((episode) => episode.state !== "completed").length;

  const ask = async () => {
    if (!/^[A-Za-z][A-Za-z0-9_]{0,99}$/.test(name)) {
      setNameError("Use letters, digits and underscores, with a letter first.");
      return;
    }
    setNameError("");
    setError("");
    setIsBusy(true);
    try {
      for (const group of isSplit ? groups : [episodes]) {
        await post("/api/exports", {
          episodes: group.map((episode) => episode.id),
          filter: null,
          format: formatName,
          name: isSplit ? `${name.slice(0, 60)}_${plainName(group[0].environment_name)}` : name,
          keep_internal: keepInternal,
          end_at: endAt,
          practice,
          options: hasOptions ? options.split(/\s+/).filter(Boolean) : [],
        });
      }
      onClose();
      void navigate("/downloads");
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem));
      setIsBusy(false);
    }
  };

  return html`<${Dialog} title="Download ${plural(episodes.length, "episode")}" onClose=${onClose} onSubmit=${ask}
    actions=${html`<${Fragment}>
      <${Button} onClick=${onClose}>Cancel<//>
      <${Button} type="submit" kind="primary" icon="download" busy=${isBusy}
        disabled=${!formatName || Boolean(missing) || !episodes.length}>
        Prepare download
      <//>
    <//>`}>
    ${error && html`<${Notice} tone="bad">${error}<//>`}
    ${numPlaying > 0 &&
    html`<${Notice}>
      ${plural(numPlaying, "selected episode is", "selected episodes are")} left out: they are still being played.
    <//>`}
    ${numPractice > 0 &&
    html`<${CheckField} label="Include ${plural(numPractice, "practice episode")}" checked=${practice}
      onChange=${setPractice} />`}
    ${numIncomplete > 0 &&
    html`<${Notice} tone="odd">
      ${numIncomplete === episodes.length
        ? "None of them was completed."
        : `${plural(numIncomplete, "of them was", "of them were")} not completed.`}
    <//>`}
    ${groups.length > 1 &&
    html`<${CheckField} label="One download for each of the ${groups.length} environments" checked=${isSplit}
      onChange=${setIsSplit}
      hint="In one download, all environments must have the same observations and actions." />`}
    ${formats.error
      ? html`<${Notice} tone="bad" action=${html`<${Button} size="small" onClick=${formats.reload}>Try again<//>`}>
        ${formats.error.message}
      <//>`
      : formats.data
        ? html`<${SelectField} label="Format" value=${formatName} onChange=${setFormat}
          hint=${missing && `Not installed on the server. There, run ${missing.requires}.`}
          choices=${all.map((item) => [item.name, item.installed ? item.title : `${item.title} (not installed)`])} />
        ${hasOptions &&
        html`<${TextField} label="Options of the format" optional spellcheck=${false} value=${options}
          onChange=${setOptions} placeholder="NAME=VALUE"
          hint=${formatName === "lerobot"
            ? "LeRobot needs the frame rate, such as fps=15."
            : "As of rlds convert -T, separated by spaces."} />`}`
        : html`<${Loading} />`}
    <${TextField} label="Name" hint="For the dataset and the file." value=${name} onChange=${setName}
      error=${nameError} maxlength="100" spellcheck=${false} />
    ${labels.length > 0 &&
    html`<fieldset class="choice-list">
      <legend>End episodes at the first step tagged</legend>
      <div class="row">
        ${labels.map(
          (label) => html`<${CheckField} key=${label} label=${label} checked=${endAt.includes(label)}
            onChange=${(/** @type {boolean} */ isTicked) =>
              setEndAt(isTicked ? [...endAt, label] : endAt.filter((other) => other !== label))} />`,
        )}
      </div>
    </fieldset>`}
    <${CheckField} label="Include internal data of the tool" checked=${keepInternal}
      onChange=${setKeepInternal}
      hint=${`The shown pictures, keys, input events, times, and notes. Without them, an episode holds what an agent \
would have recorded, and its tags.`} />
  <//>`;
}

/** @param {ListedEpisode[]} episodes */
function defaultName(episodes) {
  const names = new Set(episodes.map((episode) => episode.study_name));
  const [first] = names;
  return (names.size === 1 && plainName(first).replace(/^[_0-9]+/, "")) || "episodes";
}

/** @param {string} name */
function plainName(name) {
  return name
    .normalize("NFKD")
    .replace(/[^A-Za-z0-9]+/g, "_")
    .replace(/^_+|_+$/g, "")
    .toLowerCase()
    .slice(0, 30);
}
