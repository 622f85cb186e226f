"""The data model: studies and their environments, people, episodes, tags.

These are the types in which the store, the server and the pages speak of things; the pages get them
as JSON, with these names. Identifiers are made by the server: nobody can guess them. Times are
seconds since 1970.
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
      id: Made by the server.
      name: Shown to others.
      role: Their role.
      created: When they came.
      is_disabled: Whether they may do nothing any more; what they did stays.
      study: The study that a participant entered for, the only one that they see; "" for all.
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
      id: Made by the server when the study is saved; stays when the study is edited.
      name: Shown to players.
      family: The name of the entry point that makes it, see `rlds_creator.environments`.
      options: The arguments of the family, in the types of JSON.
      instructions: Shown beside the picture, as plain text.
      mode: Step for each input, or in real time.
      fps: Steps per second in real time.
      max_episode_steps: The number of steps after which an episode is truncated.
      seed: Of the first episode of each player; the later ones follow. None draws one.
      interpreter: The Python that runs it: a name in the settings of the server; "" for its own.
      keys: Actions of keys, by their physical codes, in place of those of the family.
      video: The video encoding of fields of the observation, by field; see
        `envlogger.Video.called`.
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
    """Whether participants can play: not before it is enabled, nor while it is disabled."""

    DRAFT = "draft"
    ENABLED = "enabled"
    DISABLED = "disabled"


class StudyTag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag that annotators of a study use.

    Attributes:
      name: Its name; the field in the data is `tag:<name>`.
      key: Its shortcut, the physical code of a key; "" for none.
      description: When to use it.
    """

    name: Name
    key: Annotated[str, msgspec.Meta(max_length=32)] = ""
    description: Text = ""


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """A study: the environments, instructions and quotas of a data collection.

    Attributes:
      id: Made by the server.
      name: Shown to all.
      description: For those who run it.
      instructions: For those who play, as plain text.
      state: Whether it can be played.
      environments: The environments to play.
      assignment: The assignment of environments to episodes.
      quota: The maximum number of completed episodes per person; None for no limit.
      total_quota: The maximum number of completed episodes of all people; None for no limit.
      practice: The number of practice episodes of a person at first, which are no data.
      consent: The text that people agree to before their first episode; "" for none.
      labels: The tags that its annotators use.
      creator: The identifier of the person who made it.
      created: The time of its creation.
      version: Counts the edits. An edit says which version it is of, and is refused if there is a
        later one.
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

    PLAYING while it goes on, ENDED until the player has said what it is worth. COMPLETED ones are
    good, CANCELLED ones are not but may be of use, REJECTED ones were a mistake. ABANDONED ones
    were left by the player, or cut short when the server stopped; of FAILED ones the environment
    broke.
    """

    PLAYING = "playing"
    ENDED = "ended"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    ABANDONED = "abandoned"
    FAILED = "failed"


class EpisodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that was played; its steps are in a log of its own.

    Attributes:
      id: Made by the worker; also the name of the directory of its log.
      study: The identifier of the study.
      environment: The identifier of the environment in the study.
      session: The identifier of the visit.
      person: The identifier of the player.
      number: Its number in the visit, from 0 on.
      state: Its state.
      reason: Why it ended: "terminated", "truncated", "user", "expired", "failed", "stopped" if the
        server was killed, or "".
      success: The success, as the player judges it; None if unknown.
      num_steps: The number of its steps, with the one of the reset.
      total_reward: The sum of the rewards.
      started: When its first step was recorded.
      seconds: Its duration.
      notes: The notes of annotators.
      version: Counts the edits of the notes.
      is_practice: Whether it is practice, and no data.
      labels: The names of all tags that it has, in order; of the episode, and of steps.
      error: The error message, for FAILED ones.
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
    """A row of labels of an episode, as `rlds.labels` has them; see `rlds_creator.labelling`.

    Attributes:
      id: Made by the server.
      layer: The tag of a flag; or "verdict", "success", "note".
      type: The type of the value.
      value: The value; None in a retraction.
      begin: The first step; None for the episode as a whole.
      end: The step after the last one.
      annotator: The identifier of a person; in files, their pseudonym.
      at: When.
      tool: With what.
      retracts: The label that this row takes back.
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
      text: The text that they agreed to.
      created: When.
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
    """A download that is made, or was.

    Attributes:
      id: Made by the server.
      person: Who asked for it.
      request: The request, see `rlds_creator.exporting.jobs.ExportRequest`, in the types of JSON.
      state: Its progress.
      progress: From 0 to 1.
      num_bytes: The size of the ZIP file, when it is done.
      error: The error message.
      created: When it was requested.
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
    """Has msgspec look at the fields of classes, and of those in them.

    Otherwise it does so when the first record is read, and the process crashes if two threads are
    the first. Call it where records are defined that threads read.
    """
    for each in classes:
        msgspec.json.Decoder(each)


prepare(Person, Study, EpisodeRecord, LabelRow, Consent, ExportRecord)
