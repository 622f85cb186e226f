/** The list of episodes next to the shown episode, and its filter. */
import { useResource } from "../api.js";
import { Button, LoadError, IconButton, Loading, SelectField, StateChip, TextField, Time } from "../components.js";
import { formatCount, formatNumber, plural } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { address, navigate } from "../router.js";
import { ColumnsDialog, commonConditions, toggleCondition } from "./columns.js";
import { useAnnotator } from "./labels.js";

/** @import { DatasetEpisode, EpisodeColumn, EpisodeSummary, ListedEpisode, Listing } from "../answers.js" */
/** @import { Resource } from "../api.js" */

const LIMIT = 50;

/**
 * A thumbnail of an episode, or a filmstrip; empty without pictures.
 * @param {{base: string, frames?: number}} props `base` is the address of the data.
 */
export function Thumbnail({ base, frames = 1 }) {
  const [missing, setMissing] = useState("");
  const address = `${base}/thumbnail${frames > 1 ? `?frames=${frames}` : ""}`;
  const kind = frames > 1 ? "filmstrip" : "thumbnail";
  if (missing === address || !base) return html`<span class=${kind}></span>`;
  return html`<img class=${kind} loading="lazy" decoding="async" alt="" src=${address}
    onError=${() => setMissing(address)} />`;
}

/**
 * A page of the episodes of a dataset, reloaded until the server has read all episodes. While the server builds a
 * table for another condition or order, the previous episodes stay.
 * @param {string | null} path
 * @param {Record<string, any>} [query]
 * @returns {Resource<Listing> & {shown: Listing | null}}
 */
export function useListing(path, query) {
  const listing = /** @type {Resource<Listing>} */ (useResource(path, query));
  const { data, error, reload } = listing;
  const last = useRef(/** @type {{path: string | null, data: Listing} | null} */ (null));
  if (data && !data.making) last.current = { path, data };
  const isIncomplete = data !== null && !error && (data.making !== undefined || data.is_complete === false);
  useEffect(() => {
    if (!isIncomplete) return undefined;
    const timer = setTimeout(reload, 500);
    return () => clearTimeout(timer);
  }, [data, isIncomplete, reload]);
  return { ...listing, shown: last.current?.path === path ? last.current.data : null };
}

/** Returns whether the indices of episodes are stored indices. @param {Listing} listing */
export const isNumbered = ({ episodes }) => episodes.every(({ index, number }) => index === number);

/**
 * A field that goes to an episode by its index.
 * @param {{total: number | null, addressOf: (index: string) => string}} props
 */
export function GoTo({ total, addressOf }) {
  return html`<form class="go-to" onSubmit=${(/** @type {any} */ event) => {
    event.preventDefault();
    const field = event.target.elements[0];
    const index = Math.min(Number(field.value), (total ?? Infinity) - 1);
    if (field.value.trim() !== "" && index >= 0) void navigate(addressOf(String(Math.floor(index))));
  }}>
    <label>Go to episode <input type="number" inputmode="numeric" min="0" step="1"
      max=${total === null ? undefined : Math.max(total - 1, 0)} /></label>
  </form>`;
}

/**
 * Queues of labelling, as conditions and titles.
 * @param {Record<string, string>} layers Titles by names.
 * @param {string} by
 * @returns {[string, string][]}
 */
export const labelQueues = (layers, by) =>
  Object.entries(layers).flatMap(([name, title]) => [
    [`label."${name}.n" = 0`, `${title}: unlabelled`],
    [`not list_contains(label."${name}.by", '${by.replaceAll("'", "''")}')`, `${title}: not by ${by || "me"}`],
    [`label."${name}.disagree"`, `${title}: disagreement`],
  ]);

/**
 * The columns of a split, and the layers of its labels; reloaded when the layers or the listing change.
 * @param {string} path The address of the split.
 * @param {Listing | null} listing
 */
export function useColumns(path, listing) {
  const resource = useResource(`${path}/columns`);
  const isComplete = listing?.is_complete;
  useEffect(() => {
    if (isComplete) void resource.reload();
    addEventListener("layers", resource.reload);
    return () => removeEventListener("layers", resource.reload);
  }, [resource.reload, isComplete]);
  return {
    columns: /** @type {EpisodeColumn[]} */ (resource.data?.columns ?? []),
    layers: /** @type {Record<string, string>} */ (resource.data?.layers ?? {}),
  };
}

/**
 * A field for a condition, with common conditions, and the progress of the table of episodes.
 * @param {{where: string, listing: Resource<Listing>, onChange: (where: string) => void,
 *   info: {columns: EpisodeColumn[], layers: Record<string, string>}, isWide?: boolean,
 *   shown?: string[], onShown?: (names: string[]) => void}} props
 *   `shown` has the names of the visible columns.
 */
export function WhereBox({ where, listing, onChange, info, isWide = false, shown, onShown }) {
  const { data, error } = listing;
  const { columns, layers } = info;
  const [text, setText] = useState(where);
  const [isChoosing, setIsChoosing] = useState(false);
  useEffect(() => setText(where), [where]);
  const { done = 0, total = null } = data?.making ?? {};
  const count = `${formatCount(done)}${total === null ? "" : ` of ${formatCount(total)}`}`;
  const { by = "" } = useAnnotator();
  const queues = labelQueues(layers, by);
  const custom = /** @type {[string, string][]} */ (
    where && !queues.some(([condition]) => condition === where) ? [[where, "Custom condition"]] : []
  );
  const common = commonConditions(columns);
  return html`<form class=${isWide ? "where is-wide" : "where"} role="search"
    onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      onChange(text.trim());
    }}>
    ${queues.length > 0 &&
    html`<${SelectField} label="Queue" value=${where} onChange=${onChange}
      choices=${[["", "All episodes"], ...custom, ...queues]} />`}
    <${TextField} label="Episodes where"
      placeholder=${common.find(([, text]) => text.startsWith("steps"))?.[1] ?? "steps > 50"} spellcheck="false"
      maxlength="2000" title="A condition in SQL over the table of episodes" value=${text} onChange=${setText}
      error=${where && error?.message.replace(/^where: (['"]).*?\1: /, "")} />
    <${Button} type="submit" icon="filter" aria-label="Filter" title="Filter" />
    ${where && html`<${IconButton} icon="close" label="Show all episodes" onClick=${() => onChange("")} />`}
    ${columns.length > 0 &&
    html`<${Button} aria-haspopup="dialog" title="Columns that conditions can name"
      onClick=${() => setIsChoosing(true)}>Columns<//>`}
    ${isWide &&
    common.length > 0 &&
    html`<div class="chips where-chips" role="group" aria-label="Common conditions">
      ${common.map(
        ([title, condition]) => html`<button key=${condition} type="button" class="picture-choice" title=${condition}
          aria-pressed=${String(where.split(" and ").includes(condition))}
          onClick=${() => onChange(toggleCondition(where, condition))}>${title}</button>`,
      )}
    </div>`}
    ${data?.making && !error && html`<${Loading} label=${`Reading all episodes once: ${count}`} />`}
    ${isChoosing &&
    html`<${ColumnsDialog} columns=${columns} shown=${shown} onShown=${onShown} onClose=${() => setIsChoosing(false)}
      onCondition=${(/** @type {string} */ condition) => {
        setText(toggleCondition(text.trim(), condition));
        setIsChoosing(false);
      }} />`}
  </form>`;
}

/**
 * The address and the rows of a list of recorded episodes, or of a dataset.
 * @param {Record<string, string>} params The parameters of the address of an episode.
 * @param {string} search
 * @param {string} [id] The current id of the dataset; it changes with each edit, so that caches are not used.
 */
function listSource({ episode, d, split, i }, search, id = d) {
  if (episode !== undefined)
    return {
      path: "/api/episodes",
      row: (/** @type {ListedEpisode} */ listed) => ({
        isHere: listed.id === episode,
        href: address("replay", listed.id) + search,
        base: listed.state === "playing" ? "" : `/api${address("episodes", listed.id, "view")}`,
        title: html`<${Time} seconds=${listed.started} />`,
        details: html`${plural(Math.max(0, listed.num_steps - 1), "step")} <${StateChip} state=${listed.state} />`,
      }),
    };
  return {
    path: `/api${address("datasets", d, split)}`,
    row: (/** @type {DatasetEpisode} */ { index, number, num_steps: count, values, error }) => ({
      isHere: String(index) === i,
      href: address("datasets", d, split, String(index)) + search,
      base: error ? "" : `/api${address("datasets", id, split, String(index), "view")}`,
      title: `Episode ${number}`,
      details: error
        ? "damaged"
        : [count !== null && plural(count, "step"), values?.return && `return ${formatNumber(values.return)}`]
            .filter(Boolean)
            .join(", "),
    }),
  };
}

/**
 * The list of episodes that contains the shown episode.
 * @param {{params: Record<string, string>, filter: Record<string, string>,
 *   summary: EpisodeSummary | null, isFailed: boolean, onWhere: (where: string) => void}} props
 *   `isFailed`: the episode cannot be opened.
 */
export function EpisodeList({ params, filter, summary, isFailed, onWhere }) {
  const isDataset = params.episode === undefined;
  const pairs = new URLSearchParams(filter).toString();
  const [shown, setShown] = useState(/** @type {{offset: number, query: Record<string, any>} | null} */ (null));
  useEffect(() => {
    if (summary || isFailed)
      setShown({
        offset: Math.floor((summary?.place ?? 0) / LIMIT) * LIMIT,
        query: isDataset ? filter : (summary?.listed ?? filter),
      });
  }, [summary, isFailed]);
  const { path } = listSource(params, "");
  const listing = useListing(shown && path, { ...shown?.query, offset: shown?.offset, limit: LIMIT });
  const { data, error, isLoading } = listing;
  const current = listing.shown ?? data;
  const { row } = listSource(params, pairs && `?${pairs}`, current?.id);
  useEffect(() => {
    // A verdict changes the row of the episode.
    const change = (/** @type {any} */ { detail }) => {
      if (data?.episodes && !isDataset)
        listing.set({
          ...data,
          episodes: data.episodes.map((/** @type {any} */ episode) => (episode.id === detail.id ? detail : episode)),
        });
    };
    addEventListener("episode", change);
    return () => removeEventListener("episode", change);
  }, [data]);
  const here = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => here.current?.scrollIntoView({ block: "nearest" }), [params.episode ?? params.i, data]);
  const rows = /** @type {any[]} */ (current?.episodes ?? []).map(/** @type {any} */ (row));
  const total = current?.total ?? null;
  const offset = shown?.offset ?? 0;
  const turn = (/** @type {number} */ by) => shown && setShown({ ...shown, offset: Math.max(0, offset + by) });
  return html`<nav class="episode-list panel" aria-label="Episodes">
    ${isDataset &&
    html`<${ListFilter} path=${path} where=${filter.where ?? ""} listing=${listing} onChange=${onWhere} />`}
    ${error && !filter.where && html`<${LoadError} error=${error} />`}
    ${!data && isLoading && html`<${Loading} label="Loading episodes…" />`}
    <ul aria-busy=${isLoading ? "true" : undefined}>
      ${rows.map(
        (/** @type {any} */ { isHere, href, base, title, details }) => html`<li key=${href}>
          <a href=${href} ref=${isHere ? here : undefined} aria-current=${isHere ? "page" : undefined}>
            <${Thumbnail} base=${base} /><span><strong>${title}</strong><small class="quiet">${details}</small></span>
          </a>
        </li>`,
      )}
    </ul>
    ${current &&
    html`<footer class="quiet">
      <span role="status">${total === null ? "" : plural(total, "episode")}</span>
      ${(offset > 0 || (total ?? Infinity) > LIMIT) &&
      html`<${IconButton} icon="left" size="small" label="Previous episodes" disabled=${offset === 0}
        onClick=${() => turn(-LIMIT)} />
      <${IconButton} icon="right" size="small" label="Next episodes"
        disabled=${rows.length < LIMIT || offset + LIMIT >= (total ?? Infinity)} onClick=${() => turn(LIMIT)} />`}
      ${isDataset &&
      (offset > 0 || (total ?? Infinity) > LIMIT) &&
      isNumbered(current) &&
      html`<${GoTo} total=${pairs ? null : total}
        addressOf=${(/** @type {string} */ index) => address("datasets", params.d, params.split, index)} />`}
    </footer>`}
  </nav>`;
}

/** @param {{path: string, where: string, listing: any, onChange: (where: string) => void}} props */
function ListFilter({ path, where, listing, onChange }) {
  const info = useColumns(path, listing.shown);
  return html`<${WhereBox} where=${where} listing=${listing} onChange=${onChange} info=${info} />`;
}
