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
from rlds_creator.worker.recording import sum_reward
from rlds_ecosystem.model.errors import DamagedDataError, EnvLoggerError

__all__ = [
    "ANNOTATIONS_FILE",
    "DELETED_FILE",
    "Annotations",
    "ExportError",
    "RecordedEpisode",
    "Reference",
    "find_recordings",
    "is_recording",
]

ANNOTATIONS_FILE = "annotations.json"
# The file that marks the directory of an episode that is being deleted.
DELETED_FILE = "deleted"

# The maximum size of annotations in bytes; the annotations of a person are far smaller.
_MAX_ANNOTATIONS_BYTES = 1 << 26

_FIELDS_WITH_SPEC = ("observation", "action", "reward", "discount")

_Label = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Step = Annotated[int, msgspec.Meta(ge=0)]


class ExportError(ValueError):
    """The export failed.

    The message names episodes by their identifiers and has no paths, so pages may show it.

    Attributes:
      details: The details for the log of the server, such as a traceback; "" for none.
    """

    def __init__(self, message: str, *, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class EarlierTag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag in the annotations of earlier releases."""

    label: _Label
    first: _Step | None = None
    last: _Step | None = None
    author: str = ""
    created: float = 0.0


class EarlierVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict in the annotations of earlier releases."""

    state: EpisodeState
    success: bool | None = None
    author: str = ""
    created: float = 0.0


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A reference to a study or an environment: its identifier and name."""

    id: str = ""
    name: str = ""


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """The annotations of an episode by the server and by people: `annotations.json`.

    Attributes:
      state: The state of the episode; None if unknown.
      reason: The reason of the end of the episode.
      success: The success in the judgment of the player.
      notes: The notes of annotators.
      labels: All rows of the labels, including retracted labels.
      tags: The tags written by an earlier release.
      verdicts: The verdicts written by an earlier release.
      study: The study of the episode.
      environment: The environment of the episode.
      is_practice: Whether the episode is practice, which is not data.
      consent: The consent of the player before the episode; None if there is none.
    """

    state: EpisodeState | None = None
    reason: str = ""
    success: bool | None = None
    notes: str = ""
    labels: tuple[LabelRow, ...] = ()
    tags: tuple[EarlierTag, ...] = ()
    verdicts: tuple[EarlierVerdict, ...] = ()
    study: Reference = Reference()
    environment: Reference = Reference()
    is_practice: bool = False
    consent: Consent | None = None

    def rows(self, player: str = "") -> list[LabelRow]:
        """Returns the rows of labels, also those of earlier releases.

        Args:
          player: The author of the player's verdict in earlier releases.
        """
        rows = [*self.labels, *convert_verdicts(self.verdicts, player)]
        if self.notes and not self.labels:
            rows.append(label_row(NOTE, self.notes))
        for tag in self.tags:
            last_step = tag.first if tag.last is None else tag.last
            end = None if last_step is None else last_step + 1
            if end is None or end > (tag.first or 0):
                steps = {"begin": tag.first, "end": end}
                origin = {"annotator": tag.author, "at": tag.created}
                rows.append(label_row(tag.label, True, **steps, **origin))
        return rows

    def current_tags(self) -> list[LabelRow]:
        """Returns the current tags, in the order in which they were set."""
        return [row for row in current_labels(self.rows()) if row.type == "flag"]

    def episode_tags(self) -> list[str]:
        """Returns the tags of the episode, not of steps, in the order in which they were set."""
        return [*dict.fromkeys(tag.layer for tag in self.current_tags() if tag.begin is None)]

    @classmethod
    def read(cls, directory: str | os.PathLike[str]) -> Self:
        """Reads the annotations in the directory of an episode; empty if the file is missing.

        Raises:
          ExportError: The annotations cannot be read.
        """
        path = epath.Path(directory) / ANNOTATIONS_FILE
        try:
            if not path.exists():
                return cls()
            check_is_file(path)
            if path.stat().length > _MAX_ANNOTATIONS_BYTES:
                raise ValueError(f"larger than {_MAX_ANNOTATIONS_BYTES >> 20} MB")
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, ValueError) as error:
            problem = error.problem if isinstance(error, SourceError) else str(error)
            file = f"{ANNOTATIONS_FILE} of episode {_episode_name(directory)}"
            raise ExportError(f"{file} cannot be read: {problem}") from error


@dataclasses.dataclass
class RecordedEpisode:
    """A recorded episode: its metadata, without its steps.

    Attributes:
      directory: The directory of the log.
      annotations: The annotations of the episode.
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
        """Reads an episode without its steps.

        Raises:
          ExportError: The log cannot be read, or does not have exactly one episode.
        """
        annotations = Annotations.read(directory)
        with _convert_errors(directory), envlogger.Reader(directory) as reader:
            if damage := reader.damage():  # Readers skip damaged steps silently.
                raise DamagedDataError("; ".join(map(str, damage)))
            lengths = [len(episode) for episode in reader.episodes]
            if len(lengths) != 1:
                raise ExportError(
                    f"the log of episode {_episode_name(directory)} holds {len(lengths)} episodes, "
                    "expected 1"
                )
            metadata = reader.episode_metadata()[0]
            return cls(
                directory=os.fspath(directory),
                annotations=annotations,
                metadata=metadata if isinstance(metadata, dict) else {},
                specs={name: getattr(reader, f"{name}_spec")() for name in _FIELDS_WITH_SPEC},
                num_steps=lengths[0],
            )

    @property
    def name(self) -> str:
        """The name of the directory, which is the identifier of the episode."""
        return _episode_name(self.directory)

    @property
    def environment(self) -> str:
        """The name of the environment; its identifier if it has none."""
        if self.annotations.environment.name:
            return self.annotations.environment.name
        try:
            name = json.loads(self.metadata[ENVIRONMENT])["name"]
        except (KeyError, TypeError, ValueError):
            name = self.metadata.get(ENVIRONMENT_ID, "")
        return str(name)

    @property
    def started(self) -> float:
        """The time of the start of the episode, in seconds since 1970; 0 if not recorded."""
        started = self.metadata.get("started")
        return float(started) if isinstance(started, int | float | np.number) else 0.0

    def tagged_steps(self) -> dict[str, np.ndarray]:
        """Returns a mask of the steps for each tag of steps."""
        masks: dict[str, np.ndarray] = {}
        for tag in self.annotations.current_tags():
            if tag.begin is not None:
                mask = masks.setdefault(tag.layer, np.zeros(self.num_steps, np.bool_))
                mask[tag.begin : tag.end] = True
        return {label: mask for label, mask in masks.items() if mask.any()}

    def total_reward(self, num_steps: int) -> float:
        """Returns the sum of the rewards of the first steps.

        Raises:
          ExportError: A step cannot be read.
        """
        with _convert_errors(self.directory), envlogger.Reader(self.directory) as reader:
            steps = reader.episodes[0]
            return sum(sum_reward(steps[index].timestep.reward) for index in range(num_steps))


def find_recordings(path: str | os.PathLike[str]) -> list[str]:
    """Returns the directories of the recorded episodes, sorted by name.

    Args:
      path: The directory of `rlds create`, the `episodes` in it, or the directory of an episode.

    Raises:
      FileNotFoundError: The directory does not exist, or has no episode.
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
def _convert_errors(directory: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (EnvLoggerError, riegeli.RiegeliError, OSError) as error:
        raise ExportError(
            f"the log of episode {_episode_name(directory)} is damaged or unreadable. "
            "Repair it with `rlds recover`.",
            details=str(error),
        ) from error


def _episode_name(directory: str | os.PathLike[str]) -> str:
    return os.path.basename(os.path.abspath(directory))
