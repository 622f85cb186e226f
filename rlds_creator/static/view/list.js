/** The episodes beside the one that is shown, and the condition that chooses them. */
import { useResource } from "../api.js";
import { Button, Failed, IconButton, Loading, SelectField, StateChip, TextField, Time } from "../components.js";
import { formatCount, formatNumber, plural } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { address } from "../router.js";
import { useAnnotator } from "./labels.js";

/** @import { DatasetEpisode, ListedEpisode, Listing, Outline } from "../answers.js" */
/** @import { Resource } from "../api.js" */

const LIMIT = 50;

/**
 * A small picture of an episode; nothing if it has none.
 * @param {{base: string}} props `base` is where its data are.
 */
export function Thumbnail({ base }) {
  const [isMissing, setIsMissing] = useState(false);
  if (isMissing || !base) return html`<span class="thumbnail"></span>`;
  return html`<img class="thumbnail" loading="lazy" decoding="async" alt="" src=${`${base}/thumbnail`}
    onError=${() => setIsMissing(true)} />`;
}

/**
 * Conditions that choose what is still to be labelled.
 * @param {Record<string, string>} layers Titles by names.
 * @param {string} by
 * @returns {[string, string][]}
 */
export const queuesOf = (layers, by) =>
  Object.entries(layers).flatMap(([name, title]) => [
    [`label."${name}.n" = 0`, `${title}: unlabelled`],
    [`not list_contains(label."${name}.by", '${by.replaceAll("'", "''")}')`, `${title}: not by ${by || "me"}`],
    [`label."${name}.disagree"`, `${title}: disagreement`],
  ]);

/**
 * A field for a condition in SQL; while the table of episodes is made for it, how far that is.
 * @param {{path: string, where: string, listing: Resource<Listing>,
 *   onChange: (where: string) => void}} props `path` is where the split is.
 */
export function WhereBox({ path, where, listing, onChange }) {
  const { data, error, reload } = listing;
  const [text, setText] = useState(where);
  useEffect(() => setText(where), [where]);
  useEffect(() => {
    if (!data?.making) return;
    const timer = setTimeout(reload, 500);
    return () => clearTimeout(timer);
  }, [data, reload]);
  const { done = 0, total = null } = data?.making ?? {};
  const count = `${formatCount(done)}${total === null ? "" : ` of ${formatCount(total)}`}`;
  const { by = "" } = useAnnotator();
  const layers = useResource(`${path}/layers`);
  useEffect(() => {
    addEventListener("layers", layers.reload);
    return () => removeEventListener("layers", layers.reload);
  }, [layers.reload]);
  const queues = queuesOf(layers.data?.layers ?? {}, by);
  const own = /** @type {[string, string][]} */ (
    where && !queues.some(([one]) => one === where) ? [[where, "As below"]] : []
  );
  return html`<form class="where" role="search" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    onChange(text.trim());
  }}>
    ${queues.length > 0 &&
    html`<${SelectField} label="Queue" value=${where} onChange=${onChange}
      choices=${[["", "All episodes"], ...own, ...queues]} />`}
    <${TextField} label="Episodes where" placeholder="steps > 50 and success" spellcheck="false" maxlength="2000"
      title="A condition in SQL over the table of episodes" value=${text} onChange=${setText}
      error=${where && error?.message} />
    <${Button} type="submit" icon="filter" aria-label="Filter" title="Filter" />
    ${where && html`<${IconButton} icon="close" label="Show all episodes" onClick=${() => onChange("")} />`}
    ${where &&
    data?.making &&
    !error &&
    html`<${Loading} label=${`The table of episodes is made: ${count} are read`} />`}
  </form>`;
}

/**
 * The rows of a dataset, and of what was recorded here.
 * @param {Record<string, string>} params Of the address of an episode.
 * @param {string} search
 */
function rowsOf({ episode, d, split, i }, search) {
  if (episode !== undefined)
    return {
      path: "/api/episodes",
      row: (/** @type {ListedEpisode} */ one) => ({
        isHere: one.id === episode,
        href: address("replay", one.id) + search,
        base: one.state === "playing" ? "" : `/api${address("episodes", one.id, "view")}`,
        title: html`<${Time} seconds=${one.started} />`,
        about: html`${plural(Math.max(0, one.num_steps - 1), "step")} <${StateChip} state=${one.state} />`,
      }),
    };
  return {
    path: `/api${address("datasets", d, split)}`,
    row: (/** @type {DatasetEpisode} */ { index, num_steps: count, total_reward: reward, error }) => ({
      isHere: String(index) === i,
      href: address("datasets", d, split, String(index)) + search,
      base: error ? "" : `/api${address("datasets", d, split, String(index), "view")}`,
      title: `Episode ${formatCount(index)}`,
      about: error
        ? "damaged"
        : [count !== null && plural(count, "step"), typeof reward === "number" && `reward ${formatNumber(reward)}`]
            .filter(Boolean)
            .join(", "),
    }),
  };
}

/**
 * The list in which an episode is one.
 * @param {{params: Record<string, string>, filter: Record<string, string>,
 *   outline: Outline | null, onWhere: (where: string) => void}} props
 */
export function EpisodeList({ params, filter, outline, onWhere }) {
  const isDataset = params.episode === undefined;
  const pairs = new URLSearchParams(filter).toString();
  const [shown, setShown] = useState(/** @type {{offset: number, query: Record<string, any>} | null} */ (null));
  useEffect(() => {
    if (outline)
      setShown({
        offset: Math.floor((outline.place ?? 0) / LIMIT) * LIMIT,
        query: isDataset ? filter : (outline.listed ?? filter),
      });
  }, [outline]);
  const { path, row } = rowsOf(params, pairs && `?${pairs}`);
  const listing = useResource(shown && path, { ...shown?.query, offset: shown?.offset, limit: LIMIT });
  const { data, error, isLoading } = listing;
  useEffect(() => {
    // A verdict changes how the episode is listed.
    const change = (/** @type {any} */ { detail }) => {
      if (data?.episodes && !isDataset)
        listing.set({
          ...data,
          episodes: data.episodes.map((/** @type {any} */ one) => (one.id === detail.id ? detail : one)),
        });
    };
    addEventListener("episode", change);
    return () => removeEventListener("episode", change);
  }, [data]);
  const here = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => here.current?.scrollIntoView({ block: "nearest" }), [params.episode ?? params.i, data]);
  const rows = (error ? [] : (data?.episodes ?? [])).map(row);
  const total = data?.total ?? null;
  const offset = shown?.offset ?? 0;
  const turn = (/** @type {number} */ by) => shown && setShown({ ...shown, offset: Math.max(0, offset + by) });
  return html`<nav class="episode-list panel" aria-label="Episodes">
    ${isDataset &&
    html`<${WhereBox} path=${path} where=${filter.where ?? ""} listing=${listing} onChange=${onWhere} />`}
    ${error && !filter.where && html`<${Failed} error=${error} />`}
    ${!data && isLoading && html`<${Loading} label="The episodes are listed…" />`}
    <ul aria-busy=${isLoading ? "true" : undefined}>
      ${rows.map(
        (/** @type {any} */ { isHere, href, base, title, about }) => html`<li key=${href}>
          <a href=${href} ref=${isHere ? here : undefined} aria-current=${isHere ? "page" : undefined}>
            <${Thumbnail} base=${base} /><span><strong>${title}</strong><small class="quiet">${about}</small></span>
          </a>
        </li>`,
      )}
    </ul>
    ${data &&
    !data.making &&
    !error &&
    html`<footer class="quiet">
      <span role="status">${total === null ? "" : plural(total, "episode")}</span>
      ${(offset > 0 || (total ?? Infinity) > LIMIT) &&
      html`<${IconButton} icon="left" size="small" label="Episodes before these" disabled=${offset === 0}
        onClick=${() => turn(-LIMIT)} />
      <${IconButton} icon="right" size="small" label="Episodes after these"
        disabled=${rows.length < LIMIT || offset + LIMIT >= (total ?? Infinity)} onClick=${() => turn(LIMIT)} />`}
    </footer>`}
  </nav>`;
}
