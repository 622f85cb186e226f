/** The pages of opened datasets, and of their episodes. */
import { formatQuery, useResource } from "../api.js";
import { Chip, Empty, LoadedContent, Notice, PageHeader, Pager, Segments, Table } from "../components.js";
import { formatCount, plural } from "../format.js";
import { Fragment, html, useEffect } from "../html.js";
import { address, navigate, setQuery } from "../router.js";
import { meansSuccess, formatCell, columnTitle } from "../view/columns.js";
import { textOf, labelTone } from "../view/labels.js";
import { GoTo, Thumbnail, WhereBox, isNumbered, useColumns, useListing } from "../view/list.js";
import { useStored } from "../view/panes.js";

/** @import { Dataset, DatasetEpisode, EpisodeColumn, Listing } from "../answers.js" */
/** @import { LabelValue } from "../view/labels.js" */

const PAGE_SIZE = 50;
/** The number of pictures of an episode in the table. */
const NUM_FRAMES = 5;
/** The steps of a label of the whole episode. */
const EPISODE = { first: null, last: null };

/** @param {{params: Record<string, string>, query: Record<string, string>}} props */
export default function DatasetsPage({ params, query }) {
  const datasets = useResource("/api/datasets");
  return html`<${LoadedContent} resource=${datasets} label="Opening data…">
    ${(/** @type {{datasets: Dataset[]}} */ { datasets: all }) => {
      if (!params.d && all.length === 1) return html`<${OnlyDataset} dataset=${all[0]} query=${query} />`;
      if (!params.d) return html`<${Shelf} datasets=${all} />`;
      const dataset = all.find(({ id }) => id === params.d);
      if (!dataset)
        return html`<${Empty} icon="search" title="Dataset not found">
          <code>rlds view</code> did not open this dataset.
        <//>`;
      return html`<${Dataset} dataset=${dataset} query=${query} isOnly=${all.length === 1} />`;
    }}
  <//>`;
}

/**
 * Opens the first episode of the only dataset; on the page of datasets, shows its table.
 * @param {{dataset: Dataset, query: any}} props
 */
function OnlyDataset({ dataset, query }) {
  const split = dataset.splits.find(({ episodes }) => episodes !== 0);
  const isFirst = location.pathname === "/" && split !== undefined && !dataset.error;
  useEffect(() => {
    if (isFirst) void navigate(address("datasets", dataset.id, split.name, "0"), { replace: true });
  }, []);
  return isFirst ? null : html`<${Dataset} dataset=${dataset} query=${query} isOnly />`;
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
      ? html`<${Empty} icon="dataset" title="No data">
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
  const path = split === undefined ? null : `/api${address("datasets", dataset.id, split)}`;
  const [chosen, setChosen] = useStored(`columns:${dataset.id}`, /** @type {string[]} */ ([]));
  const { where = "", sort = "" } = query;
  const listing = useListing(path, { offset, limit: PAGE_SIZE, where, sort, columns: chosen });
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
    ${split === undefined
      ? !dataset.error &&
        html`<${Empty} icon="episodes" title="There are no episodes">This dataset has no splits.<//>`
      : html`<${Episodes} key=${path} dataset=${dataset} split=${split} listing=${listing} offset=${offset}
        where=${where} sort=${sort} chosen=${chosen} onChosen=${setChosen} />`}
  <//>`;
}

/** @param {string} text */
function firstLines(text) {
  const line = (text ?? "").trim().split(/\n\s*\n/)[0];
  return line.length > 400 ? `${line.slice(0, 400)}…` : line;
}

/**
 * The table of the episodes of a split, with filter and order.
 * @param {{dataset: Dataset, split: string, listing: ReturnType<typeof useListing>, offset: number,
 *   where: string, sort: string, chosen: string[], onChosen: (names: string[]) => void}} props
 */
function Episodes({ dataset, split, listing, offset, where, sort, chosen, onChosen }) {
  const { shown, error, isLoading } = listing;
  const info = useColumns(`/api${address("datasets", dataset.id, split)}`, shown);
  const names = shown?.columns ?? [];
  const pageOf = (/** @type {number | string} */ index) =>
    address("datasets", dataset.id, split, String(index)) + formatQuery({ where, sort });
  const box = html`<${WhereBox} where=${where} listing=${listing} info=${info} shown=${names} onShown=${onChosen}
    isWide onChange=${(/** @type {string} */ next) => setQuery({ where: next, offset: null })} />`;
  if (!shown)
    return html`<${Fragment}>
      ${box}
      ${(!error || !where) &&
      html`<${LoadedContent} resource=${listing} label="Loading episodes…">${() => null}<//>`}
    <//>`;
  const { episodes, total } = shown;
  return html`<${Fragment}>
    ${box} ${error && !where && html`<${Notice} tone="bad">${error.message}<//>`}
    ${episodes.length === 0
      ? html`<${Empty} icon="episodes" title="No episodes">
        ${offset > 0
          ? "The list ends before this page."
          : where
            ? "No episode fulfils the condition."
            : "This split is empty."}
      <//>`
      : html`<${Table} caption="Episodes" rows=${episodes} isBusy=${isLoading && shown.is_complete} sort=${sort}
        columns=${tableColumns(dataset, split, shown, info, chosen.length > 0, pageOf)}
        rowKey=${(/** @type {DatasetEpisode} */ { index }) => String(index)}
        onSort=${(/** @type {string} */ next) => setQuery({ sort: next === "index" ? null : next, offset: null })} />`}
    <div class="table-end">
      ${(total ?? Infinity) > 1 &&
      isNumbered(shown) &&
      html`<${GoTo} total=${where ? null : total} addressOf=${pageOf} />`}
      <${Pager} offset=${offset} limit=${PAGE_SIZE}
        total=${total ?? offset + episodes.length + (episodes.length === PAGE_SIZE ? 1 : 0)} noun="episodes"
        onChange=${(/** @type {number} */ to) => setQuery({ offset: to || null })} />
    </div>
  <//>`;
}

/**
 * @param {Dataset} dataset
 * @param {string} split
 * @param {Listing} listing
 * @param {ReturnType<typeof useColumns>} info
 * @param {boolean} isChosen Whether a person chose the columns; columns without any value are left out otherwise.
 * @param {(index: number) => string} pageOf
 */
function tableColumns(dataset, split, { id, columns: names, episodes }, { columns, layers }, isChosen, pageOf) {
  const read = episodes.filter(({ values }) => values !== null);
  const shown = names.filter(
    (name) =>
      isChosen || name === "steps" || read.some(({ values }) => values?.[name] !== null && values?.[name] !== ""),
  );
  const base = (/** @type {DatasetEpisode} */ { index, error }) =>
    error ? "" : `/api${address("datasets", id ?? dataset.id, split, String(index), "view")}`;
  return [
    {
      name: "index",
      title: "Episode",
      sortable: true,
      narrow: /** @type {const} */ ("title"),
      cell: (/** @type {DatasetEpisode} */ row) => html`<a class="film" href=${pageOf(row.index)}>
        <span>Episode ${String(row.number)}</span><${Thumbnail} base=${base(row)} frames=${NUM_FRAMES} />
      </a>`,
    },
    ...(names.length > 0 ? shown : ["steps"]).map((name) => {
      const column = columns.find((column) => column.name === name);
      const isText = column?.kind === "text";
      return {
        name,
        title: columnTitle(name, columns),
        sortable: names.length > 0,
        isNumber: !isText && column?.kind !== "flag",
        cell: (/** @type {DatasetEpisode} */ row) => html`<${Cell} row=${row} name=${name} column=${column} />`,
      };
    }),
    ...(read.some(({ labels }) => labels.length > 0)
      ? [
          {
            name: "labels",
            title: "Labels",
            sortable: true,
            cell: (/** @type {DatasetEpisode} */ { labels }) => html`<span class="chips">
              ${labels.map(({ layer, value, disagree }) => {
                const title = layers[layer] || layer;
                /** @type {LabelValue} */
                const label = { layer, title, type: typeof value === "boolean" ? "flag" : "choice", value, ...EPISODE };
                return html`<${Chip} key=${layer} tone=${disagree ? "odd" : labelTone(label)}>
                  ${disagree ? `${title}: disagreement` : value === null ? `${title}: in steps` : textOf(label)}
                <//>`;
              })}
            </span>`,
          },
        ]
      : []),
  ];
}

/** @param {{row: DatasetEpisode, name: string, column?: EpisodeColumn}} props */
function Cell({ row, name, column }) {
  const value = row.values === null && name === "steps" ? row.num_steps : row.values?.[name];
  if (row.error && name === "steps") return html`<span class="dataset-error" title=${row.error}>damaged</span>`;
  if (row.values === null && (value ?? null) === null) return html`<span class="quiet" title="Not read yet">…</span>`;
  if (typeof value === "boolean" && meansSuccess(name))
    return html`<${Chip} tone=${value ? "good" : "bad"}>${value ? "yes" : "no"}<//>`;
  const text = formatCell(column, value);
  const rank = row.ranks?.[name];
  if (typeof rank === "number")
    return html`<span class="rank" style=${{ "--rank": rank }}
      title=${`Above ${Math.round(100 * rank)} % of the other episodes of its task`}>${text}</span>`;
  return column?.kind === "text" ? html`<span class="cell-text" title=${text}>${text}</span>` : text;
}
