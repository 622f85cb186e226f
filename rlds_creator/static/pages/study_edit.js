/** The page that creates or edits a study. */
import { ApiError, call, post, put, useResource } from "../api.js";
import {
  Button,
  Empty,
  IconButton,
  KeyField,
  LoadedContent,
  Notice,
  NumberField,
  PageHeader,
  Panel,
  SelectField,
  TextArea,
  TextField,
  confirm,
  toast,
  toastError,
} from "../components.js";
import { EnvironmentEditor, checkEnvironment, newEnvironment } from "../environment_editor.js";
import { plural } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { address, removeGuard, navigate, useGuard } from "../router.js";
import { useMe } from "../session.js";
import { confirmDeletion } from "./study.js";

/** @import { Families } from "../answers.js" */
/** @import { Environment, Study, StudyTag } from "../api_types.js" */

/** @type {Study} */
const NEW_STUDY = {
  id: "",
  name: "",
  description: "",
  instructions: "",
  state: "draft",
  environments: [],
  assignment: "choice",
  quota: null,
  total_quota: null,
  practice: 0,
  consent: "",
  labels: [],
  creator: "",
  created: 0,
  version: 0,
};

/** @param {{params: Record<string, string>}} props */
export default function StudyEditPage({ params }) {
  const me = useMe();
  const study = useResource(params.id ? address("api", "studies", params.id) : null);
  const all = useResource(params.id ? "/api/studies" : null);
  if (!me.can("manage"))
    return html`<${Empty} isPage icon="lock" title="No access">
      Only owners edit studies.
    <//>`;
  if (!params.id) return html`<${Editor} study=${NEW_STUDY} numEpisodes=${0} />`;
  return html`<${LoadedContent} resource=${study} isPage>
    ${(/** @type {Study} */ data) =>
      html`<${Editor} key=${data.version} study=${editableFields(data)}
        numEpisodes=${all.data?.studies.find((study) => study.id === params.id)?.num_episodes ?? 0} />`}
  <//>`;
}

/**
 * Returns the fields of a study without the numbers of episodes.
 * @param {Study} data
 * @returns {Study}
 */
function editableFields(data) {
  const names = /** @type {(keyof Study)[]} */ (Object.keys(NEW_STUDY));
  return /** @type {any} */ (Object.fromEntries(names.map((name) => [name, data[name]])));
}

let lastKey = 0;

/**
 * Adds a key to a row of an edited list, because new rows have no identifiers.
 * @template T
 * @param {T} value
 */
function withKey(value) {
  lastKey += 1;
  return { key: lastKey, value };
}

/** @param {{study: Study, numEpisodes: number}} props */
function Editor({ study, numEpisodes }) {
  const families = useResource("/api/families");
  const [saved, setSaved] = useState(study);
  const [draft, setDraft] = useState(study);
  const [environments, setEnvironments] = useState(() => study.environments.map(withKey));
  const [labels, setLabels] = useState(() => study.labels.map(withKey));
  const [isBusy, setIsBusy] = useState(false);
  const [isChecked, setIsChecked] = useState(false);
  const current = useMemo(
    () => ({
      ...draft,
      environments: environments.map((item) => item.value),
      labels: labels
        .map((item) => item.value)
        .filter((label) => label.name.trim() || label.key || label.description),
    }),
    [draft, environments, labels],
  );
  const isDirty = JSON.stringify(current) !== JSON.stringify(saved);
  useGuard(isDirty, () =>
    confirm({
      title: "Leave without saving?",
      body: "Your changes will be lost.",
      action: "Leave",
      cancel: "Stay",
      danger: true,
    }),
  );
  const available = families.data?.families ?? null;
  const errors = checkStudy(current, available);
  const shown = isChecked ? errors : NO_ERRORS;
  const set = (/** @type {string} */ name) => (/** @type {any} */ value) =>
    setDraft((old) => ({ ...old, [name]: value }));

  const save = async (/** @type {Study} */ study) => {
    setIsChecked(true);
    if (errors.count) {
      toast(`${plural(errors.count, "field needs", "fields need")} your attention.`, { kind: "bad", seconds: 4 });
      setTimeout(() => {
        const wrong = document.querySelector(".wrong :is(input, select, textarea), .wrong > summary");
        wrong?.scrollIntoView({ block: "center" });
        if (wrong instanceof HTMLElement) wrong.focus();
      });
      return;
    }
    setIsBusy(true);
    try {
      const path = address("api", "studies", study.id);
      const { id } = study.id ? await put(path, study) : await post("/api/studies", study);
      setSaved(current);
      removeGuard();
      toast(study.id ? "Saved." : "Study created. Play it once, then enable it.", { kind: "good" });
      void navigate(address("studies", id), { replace: true });
    } catch (error) {
      setIsBusy(false);
      const serverStudy = error instanceof ApiError && error.status === 409 && error.body?.current;
      if (serverStudy) await resolveConflict(serverStudy);
      else toastError(error);
    }
  };
  const resolveConflict = async (/** @type {Study} */ serverStudy) => {
    const isConfirmed = await confirm({
      title: "Somebody else has saved this study",
      body:
        "If you save now, you overwrite their changes. " +
        "To compare first, cancel, and open the study in another tab.",
      action: "Save mine",
      danger: true,
    });
    if (isConfirmed) await save({ ...current, version: serverStudy.version });
  };
  const erase = async () => {
    if (!(await confirmDeletion({ ...saved, num_episodes: numEpisodes }))) return;
    try {
      await call("DELETE", address("api", "studies", saved.id));
      removeGuard();
      toast(`${saved.name} was deleted.`, { kind: "good" });
      void navigate("/", { replace: true });
    } catch (error) {
      toastError(error);
    }
  };

  const back = saved.id ? address("studies", saved.id) : "/";
  return html`
    <${PageHeader} title=${saved.id ? `Edit ${saved.name}` : "New study"}
      back=${{ href: back, label: saved.id ? saved.name : "Studies" }}
      actions=${saved.id && html`<${Button} kind="danger" icon="trash" onClick=${erase}>Delete…<//>`} />
    <form class="study-form" novalidate onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      void save(current);
    }}>
      <${Panel} title="General">
        <div class="fields">
          <${TextField} class="full" label="Name" value=${draft.name} onChange=${set("name")} error=${shown.name}
            maxlength="200" autofocus=${!saved.id} />
          <${TextArea} class="full" label="Instructions" optional
            hint="Shown to players. **bold**, *italics*, - lists and [links](address) work." value=${draft.instructions}
            onChange=${set("instructions")}
            maxlength="20000" rows="4" />
          <${TextArea} class="full" label="Description" optional hint="Not shown to players."
            value=${draft.description} onChange=${set("description")} maxlength="20000" rows="2" />
          <${TextArea} class="full" label="Consent" optional
            hint="People agree to this text before their first episode, and again when you change it."
            value=${draft.consent} onChange=${set("consent")} maxlength="20000" rows="2" />
        </div>
      <//>

      <section class="form-part" aria-labelledby="environments-title">
        <header class="spread">
          <div>
            <h2 id="environments-title">Environments</h2>
            <p class="hint">Recorded episodes keep their environment when you edit it.</p>
          </div>
          <${Button} icon="add" onClick=${() => setEnvironments([...environments, withKey(newEnvironment(available))])}>
            Add environment
          <//>
        </header>
        ${families.error &&
        html`<${Notice} tone="bad" action=${html`<${Button} size="small" onClick=${families.reload}>Try again<//>`}>
          The list of environments did not load: ${families.error.message}
        <//>`}
        ${environments.length === 0 &&
        html`<div class="panel">
          <${Empty} icon="play" title="No environment yet"
            action=${html`<${Button} kind="primary" icon="add"
              onClick=${() => setEnvironments([withKey(newEnvironment(available))])}>
              Add environment
            <//>`}>
            A study needs at least one environment.
          <//>
        </div>`}
        ${environments.map(
          (item, index) => html`<${EnvironmentEditor}
            key=${item.key}
            environment=${item.value}
            families=${families.data}
            errors=${shown.environments[index]}
            isFirst=${index === 0}
            isLast=${index === environments.length - 1}
            onChange=${(/** @type {Environment} */ value) =>
              setEnvironments((old) =>
                old.map((other) => (other.key === item.key ? { ...other, value } : other)),
              )}
            onMove=${(/** @type {number} */ step) => setEnvironments(moveItem(environments, index, step))}
            onDuplicate=${() =>
              setEnvironments([
                ...environments.slice(0, index + 1),
                withKey({ ...item.value, id: "", name: `${item.value.name} (copy)`.slice(0, 200) }),
                ...environments.slice(index + 1),
              ])}
            onRemove=${async () => {
              const agreed =
                !item.value.id ||
                (await confirm({
                  title: `Remove ${item.value.name}?`,
                  body: "After you save, nobody can play it. Its recorded episodes are kept.",
                  action: "Remove",
                  danger: true,
                }));
              if (agreed) setEnvironments((old) => old.filter((other) => other.key !== item.key));
            }}
          />`,
        )}
      </section>

      <${Panel} title="Assignment">
        <div class="fields">
          <${SelectField} label="Environment of an episode" value=${draft.assignment} onChange=${set("assignment")}
            disabled=${environments.length < 2}
            hint=${environments.length < 2 ? "For studies with several environments." : undefined}
            choices=${[["choice", "Players choose"], ["random", "At random"], ["round_robin", "In turn"],
              ["balanced", "Least played first"]]} />
          <${NumberField} label="Episodes per person" optional value=${draft.quota} onChange=${set("quota")}
            error=${shown.quota} placeholder="Any number" hint="Maximum number of completed episodes." />
          <${NumberField} label="Episodes of all people" optional value=${draft.total_quota}
            onChange=${set("total_quota")} error=${shown.total_quota} placeholder="Any number"
            hint="The study closes at this number of completed episodes." />
          <${NumberField} label="Practice episodes" optional value=${draft.practice || null} placeholder="None"
            onChange=${(/** @type {number | null} */ value) => set("practice")(value ?? 0)} error=${shown.practice}
            hint="The first episodes of each person; they are not data." />
        </div>
      <//>

      <${Panel} title="Tags"
        hint="Labels for annotators, and their keys. In data, the tag “crash” becomes the field “tag:crash”."
        actions=${html`<${Button} icon="add"
          onClick=${() => setLabels([...labels, withKey({ name: "", key: "", description: "" })])}>Add tag<//>`}>
        ${labels.length === 0
          ? html`<p class="quiet">No tags yet. Annotators can still add their own.</p>`
          : html`<ul class="labels">
            ${labels.map((item, index) => {
              const change = (/** @type {string} */ name) => (/** @type {any} */ value) =>
                setLabels((old) =>
                  old.map((other) =>
                    other.key === item.key ? { ...other, value: { ...other.value, [name]: value } } : other,
                  ),
                );
              return html`<li key=${item.key}>
                <${TextField} label="Tag" value=${item.value.name} onChange=${change("name")}
                  error=${shown.labels[index]} maxlength="200" autofocus=${!item.value.name} />
                <${KeyField} label="Key" value=${item.value.key} onChange=${change("key")} />
                <${TextField} label="When to use it" value=${item.value.description} onChange=${change("description")}
                  maxlength="20000" />
                <${IconButton} icon="trash" label="Remove the tag ${item.value.name}"
                  onClick=${() => setLabels(labels.filter((other) => other.key !== item.key))} />
              </li>`;
            })}
          </ul>`}
      <//>

      <div class="save-bar">
        <span class="grow" role="status">${isDirty ? "You have unsaved changes." : ""}</span>
        <${Button} href=${back}>Cancel<//>
        <${Button} type="submit" kind="primary" busy=${isBusy} disabled=${!isDirty}>
          ${saved.id ? "Save changes" : "Create study"}
        <//>
      </div>
    </form>
  `;
}

/**
 * @type {{name?: string, quota?: string, total_quota?: string, practice?: string,
 *   environments: Record<string, string>[], labels: (string | undefined)[],
 *   count: number}}
 */
const NO_ERRORS = { environments: [], labels: [], count: 0 };

/**
 * Checks a study before it is sent to the server.
 * @param {Study} study
 * @param {Families | null} families
 */
function checkStudy(study, families) {
  const name = study.name.trim() ? undefined : "A study needs a name.";
  const numberError = (/** @type {number | null} */ value) =>
    value === null || (Number.isInteger(value) && value >= 1) ? undefined : "A whole number, at least 1.";
  const [quota, total_quota] = [study.quota, study.total_quota].map(numberError);
  const practice =
    Number.isInteger(study.practice) && study.practice >= 0 && study.practice <= 1000
      ? undefined
      : "A whole number, at most 1,000.";
  const environments = study.environments.map((environment) => checkEnvironment(environment, families));
  const labels = study.labels.map((label, index) => {
    if (!label.name.trim()) return "A tag needs a name.";
    const isTwice = study.labels.some(
      (other, otherIndex) => otherIndex < index && other.name.trim() === label.name.trim(),
    );
    return isTwice ? "This tag already exists." : undefined;
  });
  const all = [name, quota, total_quota, practice, ...labels, ...environments.flatMap((it) => Object.values(it))];
  return { name, quota, total_quota, practice, environments, labels, count: all.filter(Boolean).length };
}

/**
 * @template T
 * @param {T[]} list
 * @param {number} index
 * @param {number} step
 */
function moveItem(list, index, step) {
  const next = [...list];
  const [item] = next.splice(index, 1);
  next.splice(index + step, 0, item);
  return next;
}
