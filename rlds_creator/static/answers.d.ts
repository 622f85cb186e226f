/** What the server answers at each of its addresses, in the records of `api_types.d.ts`. */
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
  /** Of "play", "see", "tag", "delete", "export", "manage" and "people". */
  may: string[];
  mode: "create" | "view";
  single_user: boolean;
  version: string;
  /** Who labels in the pages of `rlds view`, unless they say something else. */
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

/** A kind of environments; `identifiers` is null where `error` says why there are none. */
export interface Family {
  title: string;
  requires: string;
  identifiers: string[] | null;
  options: Option[];
  error: string;
}

export type Families = Record<string, Family>;

/** Inputs, each of which does the same. */
export interface Binding {
  inputs: string[];
  does: string;
}

/** The first picture of an environment, or what is wrong with it. */
export interface Trial {
  ok: boolean;
  error: string;
  controls: Binding[];
  cameras: string[];
  picture: string | null;
}

/** A study in the list of all. */
export type ListedStudy = Study & Counts;

/** An episode with the names of what it is of, and what who asks may do with it. */
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

/** A row of a dataset's list; null is what is not known yet. */
export interface DatasetEpisode {
  index: number;
  /** The stored number: another one than the index if only some episodes were opened. */
  number: number;
  num_steps: number | null;
  /** Cells by the names of columns. */
  values: Record<string, any> | null;
  /** Which part of the others of its task have a lower score, by the names of columns of scores. */
  ranks?: Record<string, number | null>;
  labels: { layer: string; value: any; disagree: boolean }[];
  error?: string;
}

/** A column of the table of episodes. */
export interface EpisodeColumn {
  /** Its name in conditions. */
  name: string;
  title: string;
  kind: "number" | "flag" | "text";
  /** The smallest and the largest number, or frequent values, of the episodes that were read. */
  examples: any[];
}

/** Episodes of a dataset, or how far the table is that a condition needs. */
export interface Listing {
  /** The dataset as it is now; another one after an edit. */
  id: string;
  /** Columns of the values of episodes. */
  columns: string[];
  /** Whether no more values come without another condition or order. */
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

export interface Outline {
  title: string;
  /** The address of the data; null for that of the outline. */
  base: string | null;
  num_steps: number;
  fps: number | null;
  fields: Field[];
  rewards: (number | null)[];
  is_complete: boolean;
  times: number[] | null;
  metadata: Record<string, any>;
  shown: string | null;
  /** The text of the task, and the field of the steps that has it. */
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

/** What is played: the answer that begins it, and what the socket says first. */
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

/** What the environment offers. */
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

/** The episode that is played. */
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

/** What the server says while somebody plays. */
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

export type Got<Path extends string> = Find<Path, Gets>;
export type Changed<Path extends string> = Find<Path, Changes>;

/** An address from its parts. */
export type Address<Parts extends readonly string[]> = Parts extends readonly [
  infer First extends string,
  ...infer Rest extends string[],
]
  ? `/${First}${Address<Rest>}`
  : "";
