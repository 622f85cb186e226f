/** Datasets that were opened to be looked at, and their episodes. */
import { queryOf, useResource } from "../api.js";
import { Chip, Empty, Loaded, Notice, PageHeader, Pager, Segments, Table } from "../components.js";
import { formatCount, formatNumber, plural } from "../format.js";
import { Fragment, html } from "../html.js";
import { address, setQuery } from "../router.js";
import { Thumbnail, WhereBox } from "../view/list.js";

/** @import { Dataset, DatasetEpisode, Listing } from "../answers.js" */

const LIMIT = 50;

/** @param {{params: Record<string, string>, query: Record<string, string>}} props */
export default function DatasetsPage({ params, query }) {
  const datasets = useResource("/api/datasets");
  return html`<${Loaded} resource=${datasets} label="The data is opened…">
    ${(/** @type {{datasets: Dataset[]}} */ { datasets: all }) => {
      if (!params.d) return html`<${Shelf} datasets=${all} />`;
      const dataset = all.find(({ id }) => id === params.d);
      if (!dataset)
        return html`<${Empty} icon="search" title="There is no such dataset">
          It is not one of those that were opened.
        <//>`;
      return html`<${Dataset} dataset=${dataset} query=${query} isOnly=${all.length === 1} />`;
    }}
  <//>`;
}

/** @param {Dataset} dataset */
function numEpisodes({ splits }) {
  return splits.reduce(
    (sum, { episodes }) => (sum === null || episodes === null ? null : sum + episodes),
    /** @type {number | null} */ (0),
  );
}

/** @param {{datasets: Dataset[]}} props */
function Shelf({ datasets }) {
  return html`<${Fragment}>
    <${PageHeader} title="Datasets" />
    ${datasets.length === 0
      ? html`<${Empty} icon="dataset" title="There is no data here">
        Start <code>rlds view</code> with the path of a dataset, a log, or a folder of them.
      <//>`
      : html`<ul class="cards">
        ${datasets.map((dataset) => {
          const count = numEpisodes(dataset);
          return html`<li key=${dataset.id} class="panel dataset-card">
            <h2>
              ${dataset.error ? dataset.name : html`<a href=${address("datasets", dataset.id)}>${dataset.name}</a>`}
            </h2>
            <div class="chips">
              <${Chip}>${dataset.format}<//>
              ${count !== null && !dataset.error && html`<${Chip}>${plural(count, "episode")}<//>`}
            </div>
            ${dataset.error
              ? html`<p class="dataset-error">${dataset.error}</p>`
              : dataset.description && html`<p class="quiet dataset-description">${dataset.description}</p>`}
          </li>`;
        })}
      </ul>`}
  <//>`;
}

/** @param {{dataset: Dataset, query: Record<string, string>, isOnly: boolean}} props */
function Dataset({ dataset, query, isOnly }) {
  const names = dataset.splits.map(({ name }) => name);
  const split = names.includes(query.split) ? query.split : names[0];
  const offset = Math.max(0, Math.floor(Number(query.offset ?? 0)) || 0);
  const listing = useResource(split === undefined ? null : `/api${address("datasets", dataset.id, split)}`, {
    offset,
    limit: LIMIT,
    where: query.where,
  });
  return html`<${Fragment}>
    <${PageHeader} title=${dataset.name} back=${isOnly ? undefined : { href: "/datasets", label: "Datasets" }}
      chips=${html`<${Chip}>${dataset.format}<//>`} subtitle=${firstLines(dataset.description)} />
    ${dataset.error && html`<${Notice} tone="bad">${dataset.error}<//>`}
    ${names.length > 1 &&
    html`<div class="splits">
      <${Segments} label="Split" hideLabel=${true} value=${split}
        onChange=${(/** @type {string} */ name) => setQuery({ split: name, offset: null })}
        choices=${dataset.splits.map(({ name, episodes }) => ({
          value: name,
          label: `${name}${episodes === null ? "" : ` · ${formatCount(episodes)}`}`,
        }))} />
    </div>`}
    ${split !== undefined &&
    html`<${WhereBox} path=${`/api${address("datasets", dataset.id, split)}`} where=${query.where ?? ""}
      listing=${listing}
      onChange=${(/** @type {string} */ where) => setQuery({ where, offset: null })} />`}
    ${query.where && (listing.error || listing.data?.making)
      ? null
      : split === undefined && !dataset.error
        ? html`<${Empty} icon="episodes" title="There are no episodes">This dataset has no splits.<//>`
        : html`<${Loaded} resource=${listing} label="The episodes are listed…">
          ${(/** @type {Listing} */ { episodes, total }) =>
            html`<${Episodes} dataset=${dataset} split=${split} episodes=${episodes} total=${total} offset=${offset}
              where=${query.where} isBusy=${listing.isLoading} />`}
        <//>`}
  <//>`;
}

/** @param {string} text */
function firstLines(text) {
  const line = (text ?? "").trim().split(/\n\s*\n/)[0];
  return line.length > 400 ? `${line.slice(0, 400)}…` : line;
}

/**
 * @param {{dataset: Dataset, split: string, episodes: DatasetEpisode[], total: number | null,
 *   offset: number, where?: string, isBusy: boolean}} props
 */
function Episodes({ dataset, split, episodes, total, offset, where, isBusy }) {
  const longest = Math.max(1, ...episodes.map(({ num_steps: count }) => count ?? 0));
  const hasRewards = episodes.some(({ total_reward: reward }) => reward !== null && reward !== undefined);
  if (episodes.length === 0)
    return html`<${Empty} icon="episodes" title="There are no episodes">
      ${offset > 0 ? "There are none so far on." : where ? "The condition holds for none." : "This split is empty."}
    <//>`;
  const columns = [
    {
      name: "index",
      title: "Episode",
      narrow: /** @type {const} */ ("title"),
      cell: (/** @type {DatasetEpisode} */ { index, error }) => html`<a class="with-thumbnail"
        href=${address("datasets", dataset.id, split, String(index)) + queryOf({ where })}>
        <${Thumbnail} base=${error ? "" : `/api${address("datasets", dataset.id, split, String(index), "view")}`} />
        Episode ${formatCount(index)}
      </a>`,
    },
    {
      name: "num_steps",
      title: "Steps",
      isNumber: true,
      cell: (/** @type {DatasetEpisode} */ { num_steps: count, error }) =>
        error
          ? html`<span class="dataset-error"
            title=${error}>damaged</span>`
          : count === null || count === undefined
            ? "–"
            : formatCount(count),
    },
    {
      name: "length",
      title: "Length",
      narrow: /** @type {const} */ ("hidden"),
      cell: (/** @type {DatasetEpisode} */ { num_steps: count }) => html`<span class="length">
        <span style=${{ "--part": (count ?? 0) / longest }}></span>
      </span>`,
    },
    ...(hasRewards
      ? [
          {
            name: "reward",
            title: "Total reward",
            isNumber: true,
            cell: (/** @type {DatasetEpisode} */ { total_reward: reward }) => formatNumber(reward),
          },
        ]
      : []),
  ];
  return html`<${Fragment}>
    <${Table} caption="Episodes" columns=${columns} rows=${episodes}
      rowKey=${(/** @type {DatasetEpisode} */ { index }) => String(index)} isBusy=${isBusy} />
    <${Pager} offset=${offset} limit=${LIMIT}
      total=${total ?? offset + episodes.length + (episodes.length === LIMIT ? 1 : 0)} noun="episodes"
      onChange=${(/** @type {number} */ to) => setQuery({ offset: to || null })} />
  <//>`;
}
