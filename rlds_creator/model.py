"""The data model: studies and their environments, people, episodes, tags.

The store, the server and the pages share these types; the pages get them as JSON, with these names.
The server assigns identifiers, which nobody can guess. Times are seconds since 1970.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec

from rlds_creator.identifiers import PATTERN

__all__ = [
    "Assignment",
    "Consent",
    "Environment",
    "EpisodeRecord",
    "EpisodeState",
    "ExportRecord",
    "ExportState",
    "LabelRow",
    "Mode",
    "Person",
    "Role",
    "Study",
    "StudyState",
    "StudyTag",
    "prepare",
]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=20_000)]
Identifier = Annotated[str, msgspec.Meta(pattern=rf"^{PATTERN}\Z")]
# The identifier of a new record; empty until the record is stored.
NewIdentifier = Annotated[str, msgspec.Meta(pattern=rf"^({PATTERN})?\Z")]


class Role(enum.StrEnum):
    """The role of a person, with its permissions; see `rlds_creator.server.permissions`."""

    OWNER = "owner"
    ANNOTATOR = "annotator"
    PARTICIPANT = "participant"
    VIEWER = "viewer"


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person.

    Attributes:
      id: Assigned by the server.
      name: The name that other people see.
      role: The role of the person.
      created: The time at which the person joined.
      is_disabled: Whether the person has no permissions any more; all episodes and labels stay.
      study: The only study that a participant sees, from their invite; "" for all.
    """

    id: Identifier
    name: Name
    role: Role
    created: float
    is_disabled: bool = False
    study: NewIdentifier = ""


class Mode(enum.StrEnum):
    """The timing of an environment: a step for each input, or steps in real time."""

    SYNC = "sync"
    ASYNC = "async"


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment of a study.

    Attributes:
      id: Assigned by the server when the study is saved; edits keep it.
      name: The name that players see.
      family: The name of the family in `rlds_creator.environments` that creates it.
      options: The arguments of the family, in the types of JSON.
      instructions: The text next to the picture, as plain text.
      mode: A step for each input, or steps in real time.
      fps: Steps per second in real time.
      max_episode_steps: The number of steps after which an episode is truncated.
      seed: The seed of the first episode of each player; later episodes add 1; None draws a seed.
      interpreter: The name of a Python in the settings of the server; "" for the server's own.
      keys: Actions of keys, by their physical codes, instead of those of the family.
      video: The video encoding of fields of the observation, by field; see
        `envlogger.Video.from_name`.
      quota: The maximum number of completed episodes of all people; None for no limit.
    """

    id: NewIdentifier = ""
    name: Name
    family: Name
    options: dict[str, Any] = {}
    instructions: Text = ""
    mode: Mode = Mode.SYNC
    fps: Annotated[float, msgspec.Meta(gt=0, le=120)] = 15.0
    max_episode_steps: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    interpreter: Annotated[str, msgspec.Meta(max_length=64)] = ""
    keys: dict[str, Any] = {}
    video: dict[str, Literal["h264", "av1", "lossless"]] = {}
    quota: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Assignment(enum.StrEnum):
    """The assignment of environments: choice, random, round robin, or the least played one."""

    CHOICE = "choice"
    RANDOM = "random"
    ROUND_ROBIN = "round_robin"
    BALANCED = "balanced"


class StudyState(enum.StrEnum):
    """The state of a study. Participants can play only in ENABLED studies."""

    DRAFT = "draft"
    ENABLED = "enabled"
    DISABLED = "disabled"


class StudyTag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag that annotators of a study use.

    Attributes:
      name: The name; the field in the data is `tag:<name>`.
      key: The physical code of its shortcut key; "" for none.
      description: When to use it.
    """

    name: Name
    key: Annotated[str, msgspec.Meta(max_length=32)] = ""
    description: Text = ""


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """A study: the environments, instructions and quotas of a data collection.

    Attributes:
      id: Assigned by the server.
      name: The name that everybody sees.
      description: The text for the people who run the study.
      instructions: The text for players, as plain text.
      state: The state of the study; participants play enabled studies only.
      environments: The environments to play.
      assignment: The assignment of environments to episodes.
      quota: The maximum number of completed episodes per person; None for no limit.
      total_quota: The maximum number of completed episodes of all people; None for no limit.
      practice: The number of practice episodes of each person at first, which are not data.
      consent: The text that people agree to before their first episode; "" for none.
      labels: The tags of the annotators.
      creator: The identifier of the person who created the study.
      created: The time of the creation.
      version: The number of edits. An edit names the version that it changes, and is refused if a
        later version exists.
    """

    id: NewIdentifier = ""
    name: Name
    description: Text = ""
    instructions: Text = ""
    state: StudyState = StudyState.DRAFT
    environments: Annotated[tuple[Environment, ...], msgspec.Meta(max_length=100)] = ()
    assignment: Assignment = Assignment.CHOICE
    quota: Annotated[int, msgspec.Meta(ge=1)] | None = None
    total_quota: Annotated[int, msgspec.Meta(ge=1)] | None = None
    practice: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    consent: Text = ""
    labels: Annotated[tuple[StudyTag, ...], msgspec.Meta(max_length=200)] = ()
    creator: str = ""
    created: float = 0.0
    version: int = 0


class EpisodeState(enum.StrEnum):
    """The state of an episode.

    PLAYING: it is running. ENDED: the verdict of the player is missing. COMPLETED: good data.
    CANCELLED: not good, but of possible use. REJECTED: a mistake. ABANDONED: the player left, or
    the server stopped. FAILED: the environment raised an error.
    """

    PLAYING = "playing"
    ENDED = "ended"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    ABANDONED = "abandoned"
    FAILED = "failed"


class EpisodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An episode of a player; its steps are in a log of its own.

    Attributes:
      id: Assigned by the worker; also the name of the directory of its log.
      study: The identifier of the study.
      environment: The identifier of the environment in the study.
      session: The identifier of the session: one visit to the page.
      person: The identifier of the player.
      number: The index of the episode in the session.
      state: The state of the episode.
      reason: The reason of the end: "terminated", "truncated", "user", "expired", "failed",
        "stopped" if the server was killed, or "".
      success: The success in the judgment of the player; None if unknown.
      num_steps: The number of steps, including the reset.
      total_reward: The sum of the rewards.
      started: The time of the first step.
      seconds: The duration in seconds.
      notes: The notes of annotators.
      version: The number of edits of the notes.
      is_practice: Whether the episode was practice, which is excluded from the data.
      labels: The names of all tags of the episode and of its steps, sorted.
      error: The error message of a FAILED episode.
    """

    id: Identifier
    study: Identifier
    environment: Identifier
    session: Identifier
    person: Identifier
    number: int
    state: EpisodeState
    reason: str = ""
    success: bool | None = None
    num_steps: int = 0
    total_reward: float = 0.0
    started: float = 0.0
    seconds: float = 0.0
    notes: Text = ""
    version: int = 0
    is_practice: bool = False
    labels: tuple[str, ...] = ()
    error: str = ""


class LabelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the labels of an episode, see `rlds_creator.labelling` and `rlds.labels`.

    Attributes:
      id: Assigned by the server.
      layer: The name of a tag; or "verdict", "success", "note".
      type: The type of the value.
      value: The value; None in a retraction.
      begin: The first step; None for the episode as a whole.
      end: The step after the last one.
      annotator: The identifier of a person; in files, their pseudonym.
      at: The time at which the label was set.
      tool: The page with which the label was set.
      retracts: The identifier of the label that this row retracts.
    """

    id: Identifier
    layer: Name
    type: Literal["flag", "choice", "text"]
    value: bool | Text | None = True
    begin: Annotated[int, msgspec.Meta(ge=0)] | None = None
    end: Annotated[int, msgspec.Meta(ge=1)] | None = None
    annotator: str = ""
    at: float = 0.0
    tool: str = ""
    retracts: Identifier | None = None

    @property
    def target(self) -> tuple[Any, ...]:
        """The key of a label: of the rows with the same key, only the last one is valid."""
        return self.annotator, self.type, self.layer, self.begin, self.end


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """The consent of a person to a study.

    Attributes:
      text: The text that the person agreed to.
      created: The time of the agreement.
    """

    text: Text
    created: float


class ExportState(enum.StrEnum):
    """The progress of an export."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ExportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A download: requested, running or finished.

    Attributes:
      id: Assigned by the server.
      person: The person who requested the download.
      request: The request, see `rlds_creator.exporting.jobs.ExportRequest`, in the types of JSON.
      state: The state of the export.
      progress: The completed fraction, from 0 to 1.
      num_bytes: The size of the ZIP file; 0 until the export is done.
      error: The error message.
      created: The time of the request.
    """

    id: Identifier
    person: str
    request: dict[str, Any]
    state: ExportState = ExportState.QUEUED
    progress: float = 0.0
    num_bytes: int = 0
    error: str = ""
    created: float = 0.0


def prepare(*classes: type[msgspec.Struct]) -> None:
    """Makes msgspec inspect the fields of classes and of the classes nested in them.

    Otherwise msgspec does so when the first record is read; if two threads do that at the same
    time, the process crashes. Call it next to the definition of records that threads read.
    """
    for record_class in classes:
        msgspec.json.Decoder(record_class)


prepare(Person, Study, EpisodeRecord, LabelRow, Consent, ExportRecord)
