/** The page of downloads: their progress and files. */
import { remove, useResource, useReturn } from "../api.js";
import { Button, Chip, Empty, LoadedContent, PageHeader, Progress, Time } from "../components.js";
import { confirm, toast, toastError } from "../components.js";
import { formatBytes, formatPercent, plural } from "../format.js";
import { html, useEffect } from "../html.js";
import { address } from "../router.js";

/** @import { ExportRecord } from "../api_types.js" */

/** @type {Record<string, [string, any]>} */
const EXPORT_STATES = {
  queued: ["Waiting", "plain"],
  running: ["Running", "accent"],
  done: ["Ready", "good"],
  failed: ["Failed", "bad"],
  cancelled: ["Cancelled", "plain"],
};

export default function Downloads() {
  const exports = useResource("/api/exports");
  useReturn(exports.reload);
  const formats = useResource("/api/formats");
  const all = exports.data?.exports ?? [];
  const isAnyUnderWay = all.some(isUnderWay);
  useEffect(() => {
    if (!isAnyUnderWay || exports.isLoading) return undefined;
    const timer = setTimeout(() => exports.reload(), 1000);
    return () => clearTimeout(timer);
  }, [exports.data, exports.error, exports.isLoading]);
  const titles = Object.fromEntries(
    (formats.data?.formats ?? []).map((format) => [format.name, format.title]),
  );
  const drop = async (/** @type {ExportRecord} */ download) => {
    const isRunning = isUnderWay(download);
    if (!isRunning && download.state === "done") {
      const agreed = await confirm({
        title: "Remove this download?",
        body: "This deletes the file from the server. The episodes are kept.",
        action: "Remove",
        danger: true,
      });
      if (!agreed) return;
    }
    try {
      await remove(address("api", "exports", download.id));
      await exports.reload();
      toast(isRunning ? "Download cancelled." : "Download removed.");
    } catch (error) {
      toastError(error);
    }
  };
  return html`
    <${PageHeader} title="Downloads" subtitle="The server prepares downloads. You can leave this page." />
    <${LoadedContent} resource=${exports}>
      ${() =>
        all.length
          ? html`<ul class="downloads">
            ${all.map(
              (download) => html`<${Download} key=${download.id} download=${download} titles=${titles}
                onDrop=${() => drop(download)} />`,
            )}
          </ul>`
          : html`<${Empty} icon="download" title="No downloads yet"
            action=${html`<${Button} kind="primary" href="/episodes">Go to the episodes<//>`}>
            Select episodes in the table, then choose <strong>Download</strong>.
          <//>`}
    <//>
  `;
}

/** @param {ExportRecord} download */
function isUnderWay(download) {
  return download.state === "queued" || download.state === "running";
}

/** @param {{download: ExportRecord, titles: Record<string, string>, onDrop: () => void}} props */
function Download({ download, titles, onDrop }) {
  const { request } = download;
  const [state, tone] = EXPORT_STATES[download.state] ?? [download.state, "plain"];
  const isRunning = isUnderWay(download);
  const name = request.name || "Download";
  return html`<li class="panel download">
    <div>
      <h2>
        ${name} <${Chip} tone=${tone}>
          ${state}${download.state === "running" ? ` · ${formatPercent(download.progress)}` : ""}
        <//>
      </h2>
      <p class="note">
        ${[
          titles[request.format] ?? request.format,
          request.episodes && plural(request.episodes.length, "episode"),
          download.num_bytes > 0 && formatBytes(download.num_bytes),
        ]
          .filter(Boolean)
          .join(" · ")}
        ${" · "}<${Time} seconds=${download.created} />
      </p>
      ${download.error && html`<p class="error">${download.error}</p>`}
    </div>
    <div class="actions">
      ${download.state === "done" &&
      html`<${Button} kind="primary" icon="download" href=${address("api", "exports", download.id, "file")} download
        aria-label="Download the file of ${name}">Download<//>`}
      <${Button} kind=${isRunning ? "plain" : "quiet"} icon=${isRunning ? "stop" : "trash"} onClick=${onDrop}
        aria-label="${isRunning ? "Cancel" : "Remove"} ${name}">${isRunning ? "Cancel" : "Remove"}<//>
    </div>
    ${isRunning &&
    html`<${Progress} value=${download.state === "queued" ? null : download.progress} label="Progress of ${name}" />`}
  </li>`;
}
