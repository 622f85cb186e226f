/** The answers of the server at each address, in the records of `api_types.d.ts`. */
import type {
  Consent,
  ConsentPage,
  Counts,
  Environment,
  EpisodeRecord,
  ExportRecord,
  Invite,
  Person,
  SettingsChange,
  ShownLabel,
  ShownLayer,
  Study,
  StudyStatistics,
} from "./api_types.js";

export interface Me {
  person: Person | null;
  /** The permissions: "play", "see", "tag", "delete", "export", "manage" and "people". */
  may: string[];
  mode: "create" | "view";
  single_user: boolean;
  version: string;
  /** The default annotator in the pages of `rlds view`. */
  by?: string;
}

/** An argument of a family of environments. */
export interface Option {
  name: string;
  kind: "choice" | "flag" | "integer" | "json" | "number" | "text";
  default: any;
  choices: any[] | null;
  help: string;
}

/** A family of environments; `identifiers` is null if there is an `error`. */
export interface Family {
  title: string;
  requires: string;
  identifiers: string[] | null;
  options: Option[];
  error: string;
}

export type Families = Record<string, Family>;

/** Inputs with the same effect. */
export interface Binding {
  inputs: string[];
  does: string;
}

/** The first picture of an environment, or the error of its test. */
export interface Trial {
  ok: boolean;
  error: string;
  controls: Binding[];
  cameras: string[];
  picture: string | null;
}

/** A study in the list of all. */
export type ListedStudy = Study & Counts;

/** An episode with the names of its study, environment and person, and the permissions of the reader. */
export interface ListedEpisode extends EpisodeRecord {
  study_name: string;
  environment_name: string;
  person_name: string;
  may: string[];
}

export interface Format {
  name: string;
  title: string;
  installed: boolean;
  requires: string;
}

export interface Dataset {
  id: string;
  name: string;
  format: string;
  description: any;
  splits: { name: string; episodes: number | null }[];
  error?: string;
}

/** A row of a dataset's list; null for a value that is unknown so far. */
export interface DatasetEpisode {
  index: number;
  /** The stored index, which differs from the index if only some episodes were opened. */
  number: number;
  num_steps: number | null;
  /** Cells by the names of columns. */
  values: Record<string, any> | null;
  /** The share of the other episodes of its task with a lower score, by the names of columns of scores. */
  ranks?: Record<string, number | null>;
  labels: { layer: string; value: any; disagree: boolean }[];
  error?: string;
}

/** A column of the table of episodes. */
export interface EpisodeColumn {
  /** The name of the column in conditions. */
  name: string;
  title: string;
  kind: "number" | "flag" | "text";
  /** The smallest and the largest number, or frequent values, of the episodes that were read. */
  examples: any[];
}

/** Episodes of a dataset, or the progress of the table that a condition needs. */
export interface Listing {
  /** The current version of the dataset, which changes with each edit. */
  id: string;
  /** Columns of the values of episodes. */
  columns: string[];
  /** Whether all values are complete, unless the condition or the order changes. */
  is_complete: boolean;
  episodes: DatasetEpisode[];
  total: number | null;
  making?: { done: number; total: number | null };
}

export interface Field {
  path: string;
  kind: "picture" | "number" | "vector" | "array" | "text" | "flag";
  dtype: string;
  shape: (number | null)[];
  names: string[];
  unit?: string;
  doc?: string;
  scaled?: [number, number];
}

export interface EpisodeSummary {
  title: string;
  /** The address of the data; null for the address of the summary. */
  base: string | null;
  num_steps: number;
  fps: number | null;
  fields: Field[];
  rewards: (number | null)[];
  is_complete: boolean;
  times: number[] | null;
  metadata: Record<string, any>;
  shown: string | null;
  /** The text of the task, and the field of steps with the text. */
  instruction: string | null;
  instruction_path: string | null;
  previous: string | null;
  next: string | null;
  place: number | null;
  listed?: Record<string, any>;
}

export interface Series {
  names: string[];
  series: (number | null)[][];
  steps: number[];
}

export interface EpisodeLabels {
  layers: ShownLayer[];
  labels: ShownLabel[];
  adds: "layer" | "tag";
  may_label: boolean;
  why_not: string;
}

/** A started play: its study and environment. */
export interface Play {
  play: string;
  study: Pick<Study, "id" | "name" | "instructions">;
  environment: Environment;
}

/** The first message of a play. */
export interface Welcome extends Play {
  op: "hello";
  person: Person;
}

/** The controls and settings of the environment. */
export interface Offer {
  op: "ready";
  controls: Binding[];
  cameras: string[];
  qualities: NonNullable<SettingsChange["quality"]>[];
  fps: number;
  mode: "async" | "sync";
  size: [number, number];
  has_pointer: boolean;
}

/** The current episode. */
export interface Played
  extends Pick<EpisodeRecord,
    "id" | "number" | "reason" | "success" | "num_steps" | "total_reward" | "started" | "seconds"> {
  seed: number | null;
}

export interface PlayState {
  op: "state";
  state: "new" | "ready" | "running" | "paused" | "ended" | "closed";
  why: string;
  episode: Played | null;
  fps: number;
  quality: NonNullable<SettingsChange["quality"]>;
  camera: number;
}

/** A message of the server during a play. */
export type Message =
  | Welcome
  | Offer
  | PlayState
  | { op: "episode"; episode: EpisodeRecord }
  | { op: "error"; code: string; message: string; fatal: boolean };

/** Addresses and the answers to GET; the first one that matches counts. */
type Gets = [
  ["/api/me", Me],
  ["/api/families", { interpreters: string[]; families: Families }],
  ["/api/studies", { studies: ListedStudy[] }],
  [`/api/studies/${string}/statistics`, StudyStatistics],
  [`/api/studies/${string}/consents`, ConsentPage],
  [`/api/studies/${string}`, Study],
  ["/api/episodes", { episodes: ListedEpisode[]; total: number }],
  [`/api/episodes/${string}`, ListedEpisode],
  ["/api/formats", { formats: Format[] }],
  ["/api/exports", { exports: ExportRecord[] }],
  ["/api/people", { people: Person[]; invites: Invite[] }],
  ["/api/datasets", { datasets: Dataset[] }],
  [`/api/datasets/${string}/columns`, { columns: EpisodeColumn[]; layers: Record<string, string> }],
  [`/api/datasets/${string}`, Listing],
];

/** Addresses and the answers to POST and PUT. */
type Changes = [
  ["/api/studies", Study],
  [`/api/studies/${string}/consent`, Consent],
  [`/api/studies/${string}`, Study],
  ["/api/plays", Play],
  ["/api/environments/test", Trial],
  ["/api/episodes/delete", { deleted: number }],
  [`/api/episodes/${string}/notes`, EpisodeRecord],
  ["/api/enter", { person: Person | null }],
  ["/api/invites", { id: string; link: string }],
];

type Find<Path, Table> = Table extends [[infer Address, infer Answer], ...infer Rest]
  ? Path extends Address
    ? Answer
    : Find<Path, Rest>
  : any;

export type GetAnswer<Path extends string> = Find<Path, Gets>;
export type ChangeAnswer<Path extends string> = Find<Path, Changes>;

/** An address that consists of segments. */
export type Address<Parts extends readonly string[]> = Parts extends readonly [
  infer First extends string,
  ...infer Rest extends string[],
]
  ? `/${First}${Address<Rest>}`
  : "";
