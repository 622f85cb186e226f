"""Recordings on the disk: a log of one episode each, with its annotations."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

import msgspec
import numpy as np
from etils import epath

import envlogger
import riegeli
from envlogger.backends.riegeli_files.layout import METADATA_FILE
from rlds.raw_files.untrusted import SourceError, check_is_file
from rlds_creator.labelling import NOTE, convert_verdicts, current_labels, label_row
from rlds_creator.model import Consent, EpisodeState, LabelRow
from rlds_creator.recorded import ENVIRONMENT, ENVIRONMENT_ID
from rlds_creator.worker.recording import total
from rlds_ecosystem.model.errors import DamagedDataError, EnvLoggerError

__all__ = [
    "ANNOTATIONS_FILE",
    "DELETED_FILE",
    "Annotations",
    "ExportError",
    "Named",
    "RecordedEpisode",
    "find_recordings",
    "is_recording",
]

ANNOTATIONS_FILE = "annotations.json"
# In the directory of an episode that is being deleted, which a server that was killed may leave.
DELETED_FILE = "deleted"

# Much more than people can write about an episode.
_MAX_BYTES = 1 << 26

_SPECS = ("observation", "action", "reward", "discount")

_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Step = Annotated[int, msgspec.Meta(ge=0)]


class ExportError(ValueError):
    """An export cannot be made.

    The message names episodes by their identifiers and holds no paths, so pages may show it.

    Attributes:
      details: The details for those who run the server, such as a traceback; "" if there is
        nothing more.
    """

    def __init__(self, message: str, *, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class EarlierTag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag in the annotations that earlier releases wrote."""

    label: _Label
    first: _Step | None = None
    last: _Step | None = None
    author: str = ""
    created: float = 0.0


class EarlierVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict in the annotations that earlier releases wrote."""

    state: EpisodeState
    success: bool | None = None
    author: str = ""
    created: float = 0.0


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A study or an environment, as far as an export needs it."""

    id: str = ""
    name: str = ""


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """The annotations of an episode by the server and by people: `annotations.json`.

    Attributes:
      state: Its state; None if unknown.
      reason: The reason of its end.
      success: The success, as the player judged it.
      notes: The notes of annotators.
      labels: The rows of its labels, with those that hold no more.
      tags: Tags that an earlier release wrote.
      verdicts: Verdicts that an earlier release wrote.
      study: The study of the episode.
      environment: The environment of the episode.
      is_practice: Whether it is practice, and no data.
      consent: The consent of the player before it; None without.
    """

    state: EpisodeState | None = None
    reason: str = ""
    success: bool | None = None
    notes: str = ""
    labels: tuple[LabelRow, ...] = ()
    tags: tuple[EarlierTag, ...] = ()
    verdicts: tuple[EarlierVerdict, ...] = ()
    study: Named = Named()
    environment: Named = Named()
    is_practice: bool = False
    consent: Consent | None = None

    def rows(self, player: str = "") -> list[LabelRow]:
        """Returns the rows of labels, of earlier releases as well.

        Args:
          player: Whom earlier releases call the player.
        """
        rows = [*self.labels, *convert_verdicts(self.verdicts, player)]
        if self.notes and not self.labels:
            rows.append(label_row(NOTE, self.notes))
        for tag in self.tags:
            last = tag.first if tag.last is None else tag.last
            end = None if last is None else last + 1
            if end is None or end > (tag.first or 0):
                where = {"begin": tag.first, "end": end}
                origin = {"annotator": tag.author, "at": tag.created}
                rows.append(label_row(tag.label, True, **where, **origin))
        return rows

    def tags_that_hold(self) -> list[LabelRow]:
        """Returns the tags that hold, in the order in which they were set."""
        return [row for row in current_labels(self.rows()) if row.type == "flag"]

    def tags_of_episode(self) -> list[str]:
        """Returns the tags of the episode as a whole, in the order in which they were set."""
        return [*dict.fromkeys(tag.layer for tag in self.tags_that_hold() if tag.begin is None)]

    @classmethod
    def read(cls, directory: str | os.PathLike[str]) -> Self:
        """Reads the annotations of the episode in a directory; empty ones if there are none.

        Raises:
          ExportError: They cannot be read.
        """
        path = epath.Path(directory) / ANNOTATIONS_FILE
        try:
            if not path.exists():
                return cls()
            check_is_file(path)
            if path.stat().length > _MAX_BYTES:
                raise ValueError(f"larger than {_MAX_BYTES >> 20} MB")
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, ValueError) as error:
            problem = error.what if isinstance(error, SourceError) else str(error)
            raise ExportError(
                f"{ANNOTATIONS_FILE} of episode {_name_of(directory)} cannot be read: {problem}"
            ) from error


@dataclasses.dataclass
class RecordedEpisode:
    """A recorded episode: its metadata, without its steps.

    Attributes:
      directory: The directory of its log.
      annotations: Its annotations.
      metadata: The recorded metadata of the episode.
      specs: The specs of the environment, by name.
      num_steps: The number of recorded steps.
    """

    directory: str
    annotations: Annotations
    metadata: Mapping[str, Any]
    specs: Mapping[str, Any]
    num_steps: int

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Self:
        """Reads all but the steps.

        Raises:
          ExportError: It cannot be read, or it is no log of one episode.
        """
        annotations = Annotations.read(directory)
        with _errors_of(directory), envlogger.Reader(directory) as reader:
            if damage := reader.damage():  # Else steps might be left out without a word.
                raise DamagedDataError("; ".join(map(str, damage)))
            lengths = [len(episode) for episode in reader.episodes]
            if len(lengths) != 1:
                raise ExportError(
                    f"the log of episode {_name_of(directory)} holds {len(lengths)} episodes, "
                    "expected 1"
                )
            metadata = reader.episode_metadata()[0]
            return cls(
                directory=os.fspath(directory),
                annotations=annotations,
                metadata=metadata if isinstance(metadata, dict) else {},
                specs={name: getattr(reader, f"{name}_spec")() for name in _SPECS},
                num_steps=lengths[0],
            )

    @property
    def name(self) -> str:
        """The name of its directory, which is its identifier."""
        return _name_of(self.directory)

    @property
    def environment(self) -> str:
        """The name of the environment; its identifier if it has none."""
        if self.annotations.environment.name:
            return self.annotations.environment.name
        try:
            recorded = json.loads(self.metadata[ENVIRONMENT])["name"]
        except (KeyError, TypeError, ValueError):
            recorded = self.metadata.get(ENVIRONMENT_ID, "")
        return str(recorded)

    @property
    def started(self) -> float:
        """When it began, in seconds since 1970; 0 if that was not recorded."""
        started = self.metadata.get("started")
        return float(started) if isinstance(started, int | float | np.number) else 0.0

    def tagged_steps(self) -> dict[str, np.ndarray]:
        """Returns for each label on steps whether each of them has it."""
        flags: dict[str, np.ndarray] = {}
        for tag in self.annotations.tags_that_hold():
            if tag.begin is not None:
                column = flags.setdefault(tag.layer, np.zeros(self.num_steps, np.bool_))
                column[tag.begin : tag.end] = True
        return {label: column for label, column in flags.items() if column.any()}

    def total_reward(self, num_steps: int) -> float:
        """Returns the sum of the rewards of the first steps.

        Raises:
          ExportError: One of them cannot be read.
        """
        with _errors_of(self.directory), envlogger.Reader(self.directory) as reader:
            return sum(total(reader.episodes[0][row].timestep.reward) for row in range(num_steps))


def find_recordings(path: str | os.PathLike[str]) -> list[str]:
    """Returns the directories of the recorded episodes, sorted by name.

    Args:
      path: The data directory of `rlds create`, its directory `episodes`, or that of one episode.

    Raises:
      FileNotFoundError: There is no such directory, or no episode in it.
    """
    directory = epath.Path(path)
    if not directory.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)!r} is not a folder.")
    if is_recording(directory):
        return [os.fspath(directory)]
    if (directory / "episodes").is_dir():
        directory = directory / "episodes"
    recordings = sorted(os.fspath(child) for child in directory.iterdir() if is_recording(child))
    if not recordings:
        raise FileNotFoundError(f"{os.fspath(path)!r} holds no recorded episodes.")
    return recordings


def is_recording(directory: str | os.PathLike[str]) -> bool:
    """True if a directory holds a recorded episode that is not deleted."""
    return os.path.exists(os.path.join(directory, METADATA_FILE)) and not os.path.exists(
        os.path.join(directory, DELETED_FILE)
    )


@contextlib.contextmanager
def _errors_of(directory: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (EnvLoggerError, riegeli.RiegeliError, OSError) as error:
        raise ExportError(
            f"the log of episode {_name_of(directory)} is damaged or unreadable. "
            "Repair it with `rlds recover`.",
            details=str(error),
        ) from error


def _name_of(directory: str | os.PathLike[str]) -> str:
    return os.path.basename(os.path.abspath(directory))
