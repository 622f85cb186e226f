/** The page of recorded episodes: filter, sort, select, delete, download. */
import { get, post, useResource, useReturn } from "../api.js";
import {
  Button,
  Chip,
  EPISODE_STATES,
  Empty,
  Field,
  IconButton,
  LoadedContent,
  PageHeader,
  Pager,
  SelectField,
  StateChip,
  Table,
  Time,
  confirm,
  toast,
  toastError,
} from "../components.js";
import { DownloadDialog } from "../download_dialog.js";
import { formatCount, formatDuration, formatNumber, plural } from "../format.js";
import { Fragment, classes, html, useMemo, useState } from "../html.js";
import { address, setQuery } from "../router.js";
import { useMe } from "../session.js";
import { Thumbnail } from "../view/list.js";

/** @import { ListedEpisode, ListedStudy } from "../answers.js" */
/** @import { Column } from "../components/table.js" */

const PAGE_SIZE = 50;
const FILTERS = "study environment person state label queue success is_practice since until".split(" ");
const NO_FILTER = Object.fromEntries(FILTERS.map((name) => [name, null]));

/** @param {{query: Record<string, string>}} props */
export default function Episodes({ query }) {
  const me = useMe();
  const seesOthers = me.can("see") && !me.single_user;
  const filter = useMemo(
    () => Object.fromEntries(FILTERS.filter((name) => query[name]).map((name) => [name, query[name]])),
    [JSON.stringify(query)],
  );
  const sort = query.sort ?? "-started";
  const offset = Math.max(0, Number(query.offset) || 0);
  const episodes = useResource("/api/episodes", { ...datesToSeconds(filter), sort, offset, limit: PAGE_SIZE });
  const studies = useResource("/api/studies");
  useReturn(episodes.reload);
  const [selected, setSelected] = useState(/** @type {Map<string, ListedEpisode>} */ (new Map()));
  const [isDownloading, setIsDownloading] = useState(false);
  const [isBusy, setIsBusy] = useState(false);
  const rows = episodes.data?.episodes ?? [];
  const total = episodes.data?.total ?? 0;

  const change = (/** @type {Record<string, any>} */ changes) => setQuery({ offset: null, ...changes });
  const select = (/** @type {string[]} */ ids, /** @type {boolean} */ isSelected) => {
    const next = new Map(selected);
    for (const id of ids) {
      const row = rows.find((row) => row.id === id);
      if (!isSelected) next.delete(id);
      else if (row) next.set(id, row);
    }
    setSelected(next);
  };
  const selectAll = async () => {
    setIsBusy(true);
    try {
      const next = new Map(selected);
      for (let from = 0; from < total; ) {
        const page = await get("/api/episodes", { ...datesToSeconds(filter), sort, offset: from, limit: 1000 });
        if (!page.episodes.length) break;
        for (const episode of page.episodes) next.set(episode.id, episode);
        from += page.episodes.length;
      }
      setSelected(next);
    } catch (error) {
      toastError(error);
    }
    setIsBusy(false);
  };
  const erase = async (/** @type {ListedEpisode[]} */ episodesToDelete) => {
    const allowed = episodesToDelete.filter((episode) => episode.may.includes("delete"));
    if (!allowed.length) {
      toast("You may not delete these episodes.", { kind: "bad" });
      return;
    }
    const numKept = episodesToDelete.length - allowed.length;
    const agreed = await confirm({
      title: `Delete ${plural(allowed.length, "episode")}?`,
      body:
        "This deletes the recordings, with their tags and notes. It cannot be undone." +
        (numKept ? ` ${formatCount(numKept)} of the selected episodes are kept, because you may not delete them.` : ""),
      action: allowed.length === 1 ? "Delete episode" : "Delete episodes",
      danger: true,
    });
    if (!agreed) return;
    setIsBusy(true);
    try {
      let deleted = 0;
      for (let from = 0; from < allowed.length; from += 1000) {
        deleted += (
          await post("/api/episodes/delete", { ids: allowed.slice(from, from + 1000).map((episode) => episode.id) })
        ).deleted;
      }
      toast(`${plural(deleted, "episode")} deleted.`, { kind: "good" });
      const next = new Map(selected);
      for (const episode of allowed) next.delete(episode.id);
      setSelected(next);
      if (offset >= total - deleted && offset > 0) change({});
      await episodes.reload();
    } catch (error) {
      toastError(error);
    }
    setIsBusy(false);
  };

  const selection = [...selected.values()];
  // The pages of episodes get the filter and the order of this list.
  const pairs = Object.entries({ ...datesToSeconds(filter), sort }).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)]],
  );
  const isFiltered = Object.keys(filter).length > 0;
  const isPageSelected = rows.length > 0 && rows.every((row) => selected.has(row.id));
  return html`
    <${PageHeader} title="Episodes"
      subtitle=${episodes.data
        ? `${plural(total, "episode")}${isFiltered ? ` ${total === 1 ? "matches" : "match"} the filters` : ""}`
        : "\u00a0"}
      actions=${html`<${IconButton} icon="reload" label="Reload" onClick=${episodes.reload} />`} />
    <${Filters} filter=${filter} studies=${studies.data?.studies ?? []} onChange=${change} seesOthers=${seesOthers} />
    ${selected.size > 0 &&
    html`<div class="selection-bar" role="region" aria-label="Selected episodes">
      <span aria-live="polite">${formatCount(selected.size)} selected</span>
      ${isPageSelected &&
      total > rows.length &&
      selected.size < total &&
      html`<${Button} kind="quiet" size="small" busy=${isBusy} onClick=${selectAll}>
        Select all ${formatCount(total)}
      <//>`}
      <${Button} kind="quiet" size="small" onClick=${() => setSelected(new Map())}>Select none<//>
      ${selected.size === 2 && html`<${Button} size="small" icon="compare" href=${compareUrl(selection)}>Compare<//>`}
      ${me.can("export") &&
      html`<${Button} size="small" icon="download" onClick=${() => setIsDownloading(true)}>Download…<//>`}
      <${Button} size="small" kind="danger" icon="trash" busy=${isBusy} onClick=${() => erase(selection)}>Delete…<//>
    </div>`}
    <${LoadedContent} resource=${episodes}>
      ${() =>
        rows.length
          ? html`<${Fragment}>
            <${Table} caption="Episodes" rows=${rows}
              columns=${columns(erase, seesOthers, query.sort || isFiltered ? `?${new URLSearchParams(pairs)}` : "")}
              sort=${sort}
              onSort=${(/** @type {string} */ next) => change({ sort: next === "-started" ? null : next })}
              isBusy=${episodes.isLoading} selection=${selected} onSelect=${select}
              rowName=${(/** @type {ListedEpisode} */ row) =>
                `the episode of ${row.person_name}, ${new Date(row.started * 1000).toLocaleString()}`} />
            <${Pager} offset=${offset} limit=${PAGE_SIZE} total=${total} noun="episodes"
              onChange=${(/** @type {number} */ next) => {
                setQuery({ offset: next || null });
                scrollTo({ top: 0 });
              }} />
          <//>`
          : isFiltered
            ? html`<${Empty} icon="filter" title="No episode matches"
              action=${html`<${Button} onClick=${() => change(NO_FILTER)}>Clear the filters<//>`}>
              No episode that you may see matches all filters.
            <//>`
            : html`<${Empty} icon="episodes" title="No episode yet"
              action=${me.can("play") && html`<${Button} kind="primary" href="/">Go to the studies<//>`}>
              Episodes appear here from their first step on.
            <//>`}
    <//>
    ${isDownloading &&
    html`<${DownloadDialog} episodes=${selection} studies=${studies.data?.studies ?? []}
      onClose=${() => setIsDownloading(false)} />`}
  `;
}

/** @param {ListedEpisode[]} pair */
function compareUrl([left, right]) {
  const query = new URLSearchParams({ left: address("replay", left.id), right: address("replay", right.id) });
  return `/compare?${query}`;
}

/**
 * @param {(episodes: ListedEpisode[]) => void} erase
 * @param {boolean} seesOthers
 * @param {string} search
 */
function columns(erase, seesOthers, search) {
  /** @type {(Column<ListedEpisode> | false)[]} */
  const all = [
    {
      name: "started",
      title: "Started",
      sortable: true,
      narrow: "title",
      cell: (row) => html`<a class="nowrap with-thumbnail" href=${address("replay", row.id) + search}>
        <${Thumbnail} base=${row.state === "playing" ? "" : `/api${address("episodes", row.id, "view")}`} />
        <${Time} seconds=${row.started} />
      </a>`,
    },
    {
      name: "study",
      title: "Study",
      cell: (row) => html`<span class="clamp" title=${row.study_name}>
        ${row.study_name}
      </span>
      <small class="clamp quiet" title=${row.environment_name}>${row.environment_name}</small>`,
    },
    seesOthers && { name: "person", title: "Player", sortable: true, cell: (row) => row.person_name },
    { name: "state", title: "State", sortable: true, cell: (row) => html`<${StateChip} state=${row.state} />
      ${row.is_practice && html` <${Chip}>Practice<//>`}` },
    {
      name: "success",
      title: "Success",
      sortable: true,
      cell: (row) =>
        row.success === null
          ? html`<span class="quiet"
            aria-label="No answer">
            –
          </span>`
          : row.success
            ? html`<${Chip} tone="good" icon="check">Yes<//>`
            : html`<${Chip} icon="close">No<//>`,
    },
    {
      name: "num_steps",
      title: "Steps",
      sortable: true,
      isNumber: true,
      cell: (row) => formatCount(Math.max(0, row.num_steps - 1)),
    },
    {
      name: "total_reward",
      title: "Reward",
      sortable: true,
      isNumber: true,
      cell: (row) => formatNumber(row.total_reward),
    },
    { name: "seconds", title: "Duration", sortable: true, isNumber: true, cell: (row) => formatDuration(row.seconds) },
    {
      name: "labels",
      title: "Tags",
      cell: (row) =>
        row.labels.length
          ? html`<span class="chips">
            ${row.labels.map((/** @type {string} */ label) => html`<${Chip} key=${label}>${label}<//>`)}
          </span>`
          : null,
    },
    {
      name: "actions",
      title: "",
      cell: (row) => html`<div>
        <${IconButton} size="small" icon="play" label="Replay" href=${address("replay", row.id) + search} />
        ${row.may.includes("delete") &&
        html`<${IconButton} size="small" icon="trash" label="Delete…" onClick=${() => erase([row])} />`}
      </div>`,
    },
  ];
  return all.filter((column) => column !== false);
}

/**
 * Converts days to seconds: from the first second of one day to the last second of the other.
 * @param {Record<string, string>} filter
 */
function datesToSeconds({ since, until, ...rest }) {
  const day = (/** @type {string} */ text, /** @type {number} */ later) => {
    const [year, month, date] = text.split("-").map(Number);
    const time = new Date(year, month - 1, date + later).getTime() / 1000;
    return Number.isFinite(time) ? time : undefined;
  };
  return { ...rest, since: since && day(since, 0), until: until && day(until, 1) };
}

/**
 * @param {{filter: Record<string, string>, studies: ListedStudy[], seesOthers: boolean,
 *   onChange: (changes: Record<string, string | null>) => void}} props
 */
function Filters({ filter, studies, seesOthers, onChange }) {
  const me = useMe();
  const [isOpen, setIsOpen] = useState(false);
  const people = useResource(me.can("people") ? "/api/people" : null);
  const study = studies.find((study) => study.id === filter.study);
  /** @type {[string, string][]} */
  const labels = [
    ...new Set((study ? [study] : studies).flatMap((study) => study.labels.map((label) => label.name))),
  ].map((name) => [name, name]);
  if (filter.label && !labels.some(([name]) => name === filter.label)) labels.push([filter.label, filter.label]);
  const set = (/** @type {string} */ name) => (/** @type {string} */ value) => onChange({ [name]: value || null });
  const count = Object.keys(filter).length;
  return html`<div class=${classes("filters", isOpen && "open")} role="search" aria-label="Filters">
    <${Button} class="filters-toggle" icon="filter" aria-expanded=${String(isOpen)} onClick=${() => setIsOpen(!isOpen)}>
      Filters${count > 0 && ` (${count})`}
    <//>
    <${SelectField} label="Study" value=${filter.study ?? ""}
      onChange=${(/** @type {string} */ value) => onChange({ study: value || null, environment: null })}
      choices=${[["", "All studies"], ...studies.map((study) => [study.id, study.name])]} />
    ${study &&
    study.environments.length > 1 &&
    html`<${SelectField} label="Environment" value=${filter.environment ?? ""} onChange=${set("environment")}
      choices=${[
        ["", "All environments"],
        ...study.environments.map((environment) => [environment.id, environment.name]),
      ]} />`}
    ${seesOthers &&
    people.data &&
    html`<${SelectField} label="Player" value=${filter.person ?? ""} onChange=${set("person")}
      choices=${[["", "Everybody"], ...people.data.people.map((person) => [person.id, person.name])]} />`}
    <${SelectField} label="State" value=${filter.state ?? ""} onChange=${set("state")}
      choices=${[["", "All states"], ...Object.entries(EPISODE_STATES).map(([name, [title]]) => [name, title])]} />
    <${SelectField} label="Success" value=${filter.success ?? ""} onChange=${set("success")}
      choices=${[["", "Any"], ["true", "Yes"], ["false", "No"]]} />
    ${(filter.is_practice || studies.some((study) => study.practice > 0)) &&
    html`<${SelectField} label="Practice" value=${filter.is_practice ?? ""} onChange=${set("is_practice")}
      choices=${[["", "With practice"], ["false", "Without practice"], ["true", "Only practice"]]} />`}
    ${labels.length > 0 &&
    html`<${SelectField} label="Tag" value=${filter.label ?? ""} onChange=${set("label")}
      choices=${[["", "Any"], ...labels]} />`}
    <${SelectField} label="To do" value=${filter.queue ?? ""} onChange=${set("queue")}
      choices=${[
        ["", "All episodes"],
        ["unlabelled", filter.label ? "Without this tag" : "Without tags"],
        ["unreviewed", "Not reviewed"],
        ["disagreement", "Verdicts differ"],
      ]} />
    <${Field} label="From">
      ${(/** @type {any} */ attributes) =>
        html`<input type="date" ...${attributes} value=${filter.since ?? ""} max=${filter.until}
          onChange=${(/** @type {any} */ event) => set("since")(event.target.value)} />`}
    <//>
    <${Field} label="To">
      ${(/** @type {any} */ attributes) =>
        html`<input type="date" ...${attributes} value=${filter.until ?? ""} min=${filter.since}
          onChange=${(/** @type {any} */ event) => set("until")(event.target.value)} />`}
    <//>
    ${filter.person &&
    !people.data &&
    html`<${Chip} tone="accent" onRemove=${() => onChange({ person: null })} removeLabel="Show all players">
      One player
    <//>`}
    ${count > 0 && html`<${Button} kind="quiet" icon="close" onClick=${() => onChange(NO_FILTER)}>Clear filters<//>`}
  </div>`;
}
