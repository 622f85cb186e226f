"""Parts of a conversion: groups of episodes, each written by one worker, and their records."""

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
from rlds.sources.source import AnySource, Origin, SourceError, SourceInfo
from rlds.sources.view import View
from rlds_ecosystem.files.whole_files import write_atomically
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at

__all__ = [
    "NotComparable",
    "PartEpisode",
    "StreamPart",
    "WrittenPart",
    "decoded_size",
    "decoded_sizes",
    "fingerprint",
    "input_keys",
    "read_part",
    "split_into_parts",
    "stream_parts",
]

# The arguments of a `SourceError` in the record of a part.
_ERROR_FIELDS = ("problem", "file", "episode", "row", "field")
# Limits of a part: episodes (fewer if sizes are unknown) and bytes. A killed worker loses its part.
_MAX_EPISODES, _MAX_UNKNOWN_EPISODES, _MAX_BYTES = 256, 32, 256 << 20
# The assumed compression ratio of images and compressed files.
_COMPRESSION_RATIO = 8


class StreamPart(NamedTuple):
    """A part of a stream, which one reader reads from its beginning to its end.

    Attributes:
      split: The split; empty for all episodes.
      name: The name of the part in `rlds.sources.reading.parts`.
    """

    split: str
    name: str

    def select(self, episodes: Episodes) -> Episodes:
        """Selects the episodes of this part of the stream."""
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
      index: The index of the episode in the export.
      digest: The checksum of the values in the source; 0 if not computed.
      origin: The location of the episode in the files of the source.
    """

    index: int
    digest: int
    origin: Origin


@dataclasses.dataclass(frozen=True)
class WrittenPart:
    """The record of a written part of a conversion.

    Attributes:
      episodes: The records of the episodes, in the order of the part.
      left_out: The errors of the unreadable episodes, by index.
    """

    episodes: Sequence[PartEpisode]
    left_out: Mapping[int, SourceError]

    def write(self, path: Path) -> None:
        """Writes the record, which marks the part as complete."""
        episodes = [[e.index, e.digest, *dataclasses.astuple(e.origin)] for e in self.episodes]
        errors = [
            [index, *(getattr(error, name) for name in _ERROR_FIELDS)]
            for index, error in self.left_out.items()
        ]
        write_atomically(path, json.dumps({"episodes": episodes, "left_out": errors}).encode())


def read_part(path: Path) -> WrittenPart | None:
    """Reads the record of a part; None if the part is incomplete."""
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    episodes = [
        PartEpisode(index, digest, Origin(file, begin, end))
        for index, digest, file, begin, end in record["episodes"]
    ]
    left_out = record["left_out"]
    errors = {index: SourceError(**dict(zip(_ERROR_FIELDS, it))) for index, *it in left_out}
    return WrittenPart(episodes, errors)


def decoded_sizes(episodes: Episodes) -> np.ndarray | None:
    """Estimates the decoded bytes of each episode, int64 of shape `[episodes]`; None if unknown.

    The estimate uses the lengths and the shapes of fields; without lengths, the sizes of the files.
    """
    if (lengths := episodes.lengths()) is not None:
        return lengths.num_steps * _step_bytes(episodes)
    num_episodes, size = len(episodes), decoded_size(episodes.source)
    return np.full(num_episodes, size // max(num_episodes, 1)) if size else None


def decoded_size(source: AnySource) -> int:
    """Estimates the decoded bytes of the files of a source; 0 if unknown."""
    try:
        return sum(map(os.path.getsize, source.inputs())) * _COMPRESSION_RATIO
    except OSError:  # The files are not on this machine.
        return 0


def split_into_parts(indices: Sequence[int], sizes: np.ndarray | None) -> list[list[int]]:
    """Groups episodes into parts of about equal size, independent of the number of workers.

    Args:
      indices: The episodes, in the order of writing.
      sizes: The decoded bytes of each episode, see `decoded_sizes`.
    """
    max_episodes = _MAX_UNKNOWN_EPISODES if sizes is None else _MAX_EPISODES
    weights = np.full(len(indices), 1 / max_episodes)
    if sizes is not None:
        weights = np.maximum(weights, sizes[np.asarray(indices, np.int64)] / _MAX_BYTES)
    cumulative_weights = np.cumsum(weights)
    total = cumulative_weights[-1] if len(cumulative_weights) else 0
    # Parts of about equal size keep all workers busy to the end.
    parts = np.floor((cumulative_weights - weights / 2) * (math.ceil(total) / max(total, 1)))
    bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(indices)]
    return [[*indices[begin:end]] for begin, end in itertools.pairwise(bounds) if begin < end]


def stream_parts(episodes: Episodes) -> list[StreamPart]:
    """Returns the parts of a stream; a single part if the split is a slice."""
    source, splits = episodes.source, episodes.split.split("+")
    if not {*splits} <= {*source.splits}:
        return [StreamPart("", "")]
    return [StreamPart(split, name) for split in splits for name in reading.parts(source, split)]


def _step_bytes(episodes: Episodes) -> int:
    fields = [field for _, field in leaves_at(episodes.spec, None) if isinstance(field, Field)]
    return sum(math.prod(n or 1 for n in f.shape) * f.column_dtype.itemsize for f in fields)


def fingerprint(*values: Any) -> str:
    """Returns a digest of values; equal values have the same digest in any process.

    Args:
      *values: Sources, views, options, in the types of JSON or of NumPy.

    Raises:
      NotComparable: A value cannot be compared, such as a function.
    """
    content = json.dumps([rlds_ecosystem.version(), *map(_as_comparable, values)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def input_keys(source: AnySource) -> Sequence[str]:
    """Returns cache keys that change with the files of a source; none if it has no files."""
    try:
        return [key_of(base) for base in reading.roots(source)]
    except FileNotFoundError:
        return ()


def _as_comparable(value: Any) -> Any:
    """Converts a value to JSON types that identify it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, View):
        names = [name for name in vars(value) if not _is_cached(value, name)]
        state = {name: getattr(value, name) for name in names}
        return [kind, _as_comparable(state)]
    if isinstance(value, AnySource):
        if not (files := input_keys(value)):
            raise NotComparable(f"{kind} has no files")
        return [kind, *files]
    if isinstance(value, Episodes):
        return [kind, _as_comparable([value.source, value.split])]
    if isinstance(value, np.ndarray | np.generic | bytes):
        array = np.asarray(value)
        if array.dtype != object:
            return [str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()]
        return [kind, _as_comparable(array.tolist())]
    if isinstance(value, Mapping):
        return [[_as_comparable(name), _as_comparable(item)] for name, item in value.items()]
    if isinstance(value, Sequence):
        return [_as_comparable(item) for item in value]
    if isinstance(value, Collection):  # Sorts sets, which have no order.
        return sorted(json.dumps(_as_comparable(item), sort_keys=True) for item in value)
    if isinstance(value, np.dtype | type):
        return str(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        if isinstance(value, SourceInfo):  # The options are in the states of the views.
            names.remove("options")
        return [kind, {name: _as_comparable(getattr(value, name)) for name in names}]
    raise NotComparable(f"{kind} is not comparable")


def _is_cached(view: View, name: str) -> bool:
    """True if an attribute of a view is a cached result."""
    return name in vars(type(view)) and hasattr(vars(type(view))[name], "attrname")
