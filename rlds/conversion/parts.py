"""Parts of a new dataset: the episodes of each, and notes about them."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rlds_ecosystem
from rlds.sources import reading
from rlds.sources.episode_table import key_of
from rlds.sources.episodes import Episodes
from rlds.sources.source import (
    About,
    AnySource,
    Origin,
    SourceError,
)
from rlds.sources.view import View
from rlds_ecosystem.files.whole_files import write_at_once
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at

__all__ = [
    "NotComparable",
    "PartEpisode",
    "StreamPart",
    "WrittenPart",
    "cut",
    "cut_stream",
    "decoded_size",
    "files_read_by",
    "identity_of",
    "read_part",
    "sizes_of",
]

# Arguments of `SourceError` that parts keep, as errors are raised again from them.
_ERROR = ("what", "file", "episode", "row", "field")
# The largest size of a part, the most that a kill costs a worker; smaller if sizes are unknown.
_EPISODES, _EPISODES_OF_UNKNOWN_SIZE, _BYTES = 256, 32, 256 << 20
# The ratio of values to their files, which hold images or are compressed.
_DECODED = 8


class StreamPart(NamedTuple):
    """A part of a stream, which one reader reads from its beginning to its end.

    Attributes:
      split: The split; empty for all episodes.
      name: Its name in `rlds.sources.reading.parts`.
    """

    split: str
    name: str

    def episodes_of(self, episodes: Episodes) -> Episodes:
        """Returns its episodes, of all."""
        if not self.split:
            return episodes
        source = copy.copy(episodes.source)
        source.parts = lambda split: [self.name]  # type: ignore[attr-defined]
        return Episodes(source, self.split, format=episodes.format)


class NotComparable(TypeError):
    """Options that cannot be compared, such as functions."""


@dataclasses.dataclass(frozen=True)
class PartEpisode:
    """The record of an episode in a part.

    Attributes:
      index: The number of the episode among those that are written.
      digest: The digest of its values, as read from the source; 0 if none is needed.
      origin: Its location in the files of the source.
    """

    index: int
    digest: int
    origin: Origin


@dataclasses.dataclass(frozen=True)
class WrittenPart:
    """A part that is written.

    Attributes:
      episodes: Its episodes, in the order in which it has them.
      left_out: The errors of the episodes that could not be read, by their numbers.
    """

    episodes: Sequence[PartEpisode]
    left_out: Mapping[int, SourceError]

    def write(self, path: Path) -> None:
        """Writes it; it is there from then on."""
        episodes = [
            [each.index, each.digest, *dataclasses.astuple(each.origin)] for each in self.episodes
        ]
        errors = [
            [index, *(getattr(error, name) for name in _ERROR)]
            for index, error in self.left_out.items()
        ]
        write_at_once(path, json.dumps({"episodes": episodes, "left_out": errors}).encode())


def read_part(path: Path) -> WrittenPart | None:
    """Returns the notes of a part; None if it is not completely written."""
    try:
        notes = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    episodes = [
        PartEpisode(index, digest, Origin(file, begin, end))
        for index, digest, file, begin, end in notes["episodes"]
    ]
    errors = {index: SourceError(**dict(zip(_ERROR, each))) for index, *each in notes["left_out"]}
    return WrittenPart(episodes, errors)


def sizes_of(episodes: Episodes) -> np.ndarray | None:
    """Returns about how many bytes the episodes have, decoded; None if that is unknown.

    It is what their lengths and the shapes of their fields say, or the sizes of their files: int64
    of shape `[episodes]`.
    """
    if (lengths := episodes.lengths()) is not None:
        return lengths.num_steps * _bytes_of_step(episodes)
    num_episodes, size = len(episodes), decoded_size(episodes.source)
    return np.full(num_episodes, size // max(num_episodes, 1)) if size else None


def decoded_size(source: AnySource) -> int:
    """Returns about how many bytes the values in files have; 0 if that is unknown."""
    try:
        return sum(map(os.path.getsize, source.inputs())) * _DECODED
    except OSError:  # The files are not on this machine.
        return 0


def cut(indices: Sequence[int], of: np.ndarray | None) -> list[list[int]]:
    """Cuts episodes into parts; the result does not depend on the worker.

    Args:
      indices: The episodes, in the order in which they are written.
      of: The decoded size of each episode, from `sizes_of`.
    """
    max_episodes = _EPISODES_OF_UNKNOWN_SIZE if of is None else _EPISODES
    weights = np.full(len(indices), 1 / max_episodes)
    if of is not None:
        weights = np.maximum(weights, of[np.asarray(indices, np.int64)] / _BYTES)
    ends = np.cumsum(weights)
    total = ends[-1] if len(ends) else 0
    # Parts of about equal size keep all workers busy to the end.
    numbers = np.floor((ends - weights / 2) * (math.ceil(total) / max(total, 1)))
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(indices)]
    return [[*indices[begin:end]] for begin, end in itertools.pairwise(bounds) if begin < end]


def cut_stream(episodes: Episodes) -> list[StreamPart]:
    """Cuts episodes that are read in order only: into the parts of their stream, or not at all."""
    source, splits = episodes.source, episodes.split.split("+")
    if not {*splits} <= {*source.splits}:
        return [StreamPart("", "")]
    return [StreamPart(split, name) for split in splits for name in reading.parts(source, split)]


def _bytes_of_step(episodes: Episodes) -> int:
    fields = [field for _, field in leaves_at(episodes.spec, None) if isinstance(field, Field)]
    return sum(
        math.prod(n or 1 for n in field.shape) * field.column_dtype.itemsize for field in fields
    )


def identity_of(*values: Any) -> str:
    """Returns a digest that others have only if they are the same, in any process.

    Args:
      *values: Sources, views, options, in the types of JSON or of NumPy.

    Raises:
      NotComparable: A value has no such digest, such as a function.
    """
    content = json.dumps([rlds_ecosystem.version(), *map(_comparable, values)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def files_read_by(source: AnySource) -> Sequence[str]:
    """Returns keys that change with the files of a source; none if it has no files."""
    try:
        return [key_of(base) for base in reading.bases(source)]
    except FileNotFoundError:
        return ()


def _comparable(value: Any) -> Any:
    """A value in the types of JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, View):
        state = {name: it for name, it in vars(value).items() if not _is_cached(value, name)}
        return [kind, _comparable(state)]
    if isinstance(value, AnySource):
        if not (files := files_read_by(value)):
            raise NotComparable(f"{kind} has no files")
        return [kind, *files]
    if isinstance(value, Episodes):
        return [kind, _comparable([value.source, value.split])]
    if isinstance(value, np.ndarray | np.generic | bytes):
        array = np.asarray(value)
        if array.dtype != object:
            return [str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()]
        return [kind, _comparable(array.tolist())]
    if isinstance(value, Mapping):
        return [[_comparable(name), _comparable(each)] for name, each in value.items()]
    if isinstance(value, Sequence):
        return [_comparable(each) for each in value]
    if isinstance(value, Collection):  # Sets have no order.
        return sorted(json.dumps(_comparable(each), sort_keys=True) for each in value)
    if isinstance(value, np.dtype | type):
        return str(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        if isinstance(value, About):  # Each view has its own; its state is compared.
            names.remove("options")
        return [kind, {name: _comparable(getattr(value, name)) for name in names}]
    raise NotComparable(f"{kind} is not comparable")


def _is_cached(view: View, name: str) -> bool:
    """True if an attribute of a view is a cached result."""
    return name in vars(type(view)) and hasattr(vars(type(view))[name], "attrname")
