/** The records that the server and the pages exchange. Written by tools/api_types.py. */

/** The acknowledgement of a picture, and of all earlier pictures. */
export interface Ack {
  op: "ack";
  frame: number;
}

/** The assignment of environments: choice, random, round robin, or the least played one. */
export type Assignment = "balanced" | "choice" | "random" | "round_robin";

/** The consent of a person to a study. */
export interface Consent {
  text: string;
  created: number;
}

/** A page of the consents to a study, the newest first, and their total number. */
export interface ConsentPage {
  consents: PersonConsent[];
  total: number;
}

/** A press of a button of the page. */
export interface ControlPress {
  op: "control";
  do: "confirm" | "end" | "pause" | "resume" | "retry" | "success";
  value?: "cancelled" | "completed" | "rejected" | boolean | null;
}

/** The progress of a study: numbers of episodes, and the consent of a person. */
export interface Counts {
  num_episodes: number;
  num_completed: number;
  mine: number;
  agreed: number | null;
}

/** An environment of a study. */
export interface Environment {
  id: string;
  name: string;
  family: string;
  options: Record<string, any>;
  instructions: string;
  mode: Mode;
  fps: number;
  max_episode_steps: number | null;
  seed: number | null;
  interpreter: string;
  keys: Record<string, any>;
  video: Record<string, "av1" | "h264" | "lossless">;
  quota: number | null;
}

/** The statistics of an environment of a study. */
export interface EnvironmentStatistics {
  id: string;
  name: string;
  episodes: number;
  completed: number;
  success: number;
  steps: number;
  mean_reward: number | null;
}

/** An episode of a player; its steps are in a log of its own. */
export interface EpisodeRecord {
  id: string;
  study: string;
  environment: string;
  session: string;
  person: string;
  number: number;
  state: EpisodeState;
  reason: string;
  success: boolean | null;
  num_steps: number;
  total_reward: number;
  started: number;
  seconds: number;
  notes: string;
  version: number;
  is_practice: boolean;
  labels: string[];
  error: string;
}

/** The state of an episode. */
export type EpisodeState = "abandoned" | "cancelled" | "completed" | "ended" | "failed" | "playing" | "rejected";

/** An input event of a person; see `rlds_creator.environments.playable.Inputs`. */
export interface Event {
  t: number;
  name: string;
  value: number;
  key?: string;
}

/** A download: requested, running or finished. */
export interface ExportRecord {
  id: string;
  person: string;
  request: Record<string, any>;
  state: ExportState;
  progress: number;
  num_bytes: number;
  error: string;
  created: number;
}

/** A request for an export: the selection of episodes, the format and its options. */
export interface ExportRequest {
  episodes?: string[] | null;
  filter?: Record<string, any> | null;
  format?: string;
  name?: string;
  keep_internal?: boolean;
  end_at?: string[];
  options?: string[];
  practice?: boolean;
}

/** The progress of an export. */
export type ExportState = "cancelled" | "done" | "failed" | "queued" | "running";

/** The first message of a page. */
export interface Hello {
  op: "hello";
  protocol: number;
}

/** Input events, in order. */
export interface Input {
  op: "input";
  seq: number;
  events: Event[];
}

/** An invite: a link with which people join. Only the link has its token. */
export interface Invite {
  id: string;
  role: Role;
  name: string;
  creator: string;
  created: number;
  expires: number;
  uses_left: number;
  study: string;
}

/** The value of a label, of an episode or of a range of steps. */
export interface LabelValue {
  layer: string;
  type: "choice" | "flag" | "number" | "text";
  value: boolean | number | string;
  first?: number | null;
  last?: number | null;
}

/** The timing of an environment: a step for each input, or steps in real time. */
export type Mode = "async" | "sync";

/** A person. */
export interface Person {
  id: string;
  name: string;
  role: Role;
  created: number;
  is_disabled: boolean;
  study: string;
}

/** A consent to a study, with the person who gave it. */
export interface PersonConsent {
  text: string;
  created: number;
  id: string;
  person: string;
  name: string;
}

/** The statistics of a person in a study. */
export interface PersonStatistics {
  person: string;
  name: string;
  episodes: number;
  completed: number;
  seconds: number;
}

/** The role of a person, with its permissions; see `rlds_creator.server.permissions`. */
export type Role = "annotator" | "owner" | "participant" | "viewer";

/** Changed settings; None leaves a setting unchanged. */
export interface SettingsChange {
  op: "set";
  fps?: number | null;
  quality?: "draft" | "high" | "low" | "medium" | null;
  camera?: number | null;
  controller?: string | null;
}

/** A label on a page. */
export interface ShownLabel {
  layer: string;
  type: "choice" | "flag" | "number" | "text";
  value: boolean | number | string;
  first: number | null;
  last: number | null;
  id: string;
  author: string;
  created: number;
  is_mine: boolean;
  may_remove: boolean;
  decides: boolean | null;
}

/** A layer of labels on a page, see `rlds.labels.Layer`. */
export interface ShownLayer {
  name: string;
  type: "choice" | "flag" | "number" | "text";
  choices: string[];
  keys: string[];
  whole: boolean;
  doc: string;
  title: string;
}

/** A study: the environments, instructions and quotas of a data collection. */
export interface Study {
  id: string;
  name: string;
  description: string;
  instructions: string;
  state: StudyState;
  environments: Environment[];
  assignment: Assignment;
  quota: number | null;
  total_quota: number | null;
  practice: number;
  consent: string;
  labels: StudyTag[];
  creator: string;
  created: number;
  version: number;
}

/** The state of a study. Participants can play only in ENABLED studies. */
export type StudyState = "disabled" | "draft" | "enabled";

/** The statistics of a study, by environment and by person. */
export interface StudyStatistics {
  environments: EnvironmentStatistics[];
  people: PersonStatistics[];
}

/** A tag that annotators of a study use. */
export interface StudyTag {
  name: string;
  key: string;
  description: string;
}
