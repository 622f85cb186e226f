"""Trajectory transforms of a feed: tables whose episodes a function computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
from typing_extensions import override

from rlds.feeds.storage import (
    CachedStorage,
    EpisodeCache,
    Lengths,
    Rows,
    Storage,
    _CachedRows,
    hash_of,
    row_bytes,
)
from rlds.feeds.table import Table
from rlds.sources.source import SourceError, files_of
from rlds.sources.texts import as_utf8
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import named_leaves, nest

__all__ = ["Trajectory", "map_episodes"]

Trajectory: TypeAlias = dict[str, Any]
"""The columns of an episode: arrays with a leading axis for the steps, nested in dicts."""

# The prefix of a marker, which stands for an image in a function: its step and field.
_MARKER = b"\0rlds image "
_IMAGE_RANK = 2
_DEFAULT_VALUE_BYTES = 64
_METADATA_FIELD = "traj_metadata"


def map_episodes(
    table: Table, function: Callable[[Trajectory], Mapping[str, Any]], *, version: str = ""
) -> Table:
    """Returns a table with the results of a function of each episode.

    The function takes all columns of an episode and returns new ones, as the standardize functions
    of Octo and OpenVLA. The function may add, drop and rename fields, change values, and drop,
    select or repeat steps; all returned columns need the same length. Texts are `bytes` in arrays
    of `object`. Images are markers in arrays of `object`: the function can move and repeat them,
    but not read their pixels, which are decoded for batches only.

    At first, the function is called once for each episode, to compute the new lengths.

    Args:
      table: The episodes.
      function: A function of a nested dict of arrays, which it may change, that returns a new one.
      version: The version of the function: feeds reject states of another version.

    Raises:
      ValueError: The function failed, or did not return a trajectory; the message has the location.

    >>> import envlogger, tempfile, rlds.feeds
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> table = rlds.feeds.open(directory)
    >>> short = map_episodes(table, lambda steps: {"twice": 2 * steps["action"][:3]})
    >>> short, short.read(0)["twice"]
    (Table(1 episodes, 3 steps: twice), array([2, 2, 2]))
    """
    storage = _TrajectoryStorage(table, function, version)
    return Table(table.episodes, storage, storage.fields, table.options, table._selection)


class _TrajectoryStorage(CachedStorage):
    """A storage of the results of a function of each episode, with the same episode indices."""

    def __init__(
        self,
        table: Table,
        function: Callable[[Trajectory], Mapping[str, Any]],
        version: str,
        summaries: Lengths | None = None,
    ) -> None:
        self.table, self.function, self.version = table, function, version
        self._base: Storage = table.storage
        # Images and other large fields stay in the base storage; the function moves their steps.
        self._images = [
            path
            for path, field in table.storage.fields.items()
            if not field.is_text
            and (table.storage.is_image(path) or len(field.shape) > _IMAGE_RANK)
        ]
        self._inputs = [path for path in table.storage.fields if path not in self._images]
        self._base_of: dict[str, str] = {}
        self.fields: dict[str, Field] = {}
        self.decoders = {}
        self.episodes, self.source = table.episodes, table.episodes.source
        self.cache = EpisodeCache(cast(Any, self), table.cache_bytes)
        self.why_cached = "a function computes them from whole episodes"
        self.num_files, self.is_remote = table.storage.num_files, table.storage.is_remote
        self.summaries = self._compute_lengths() if summaries is None else summaries
        if summaries is not None:
            lengths = summaries.num_steps
            for episode in np.flatnonzero(lengths)[:1].tolist():
                self._apply(episode, self._input_columns(episode))

    @override
    def __reduce__(self) -> Any:  # The table checks its own fingerprint.
        return _TrajectoryStorage, (self.table, self.function, self.version, self.summaries)

    def _compute_lengths(self) -> Lengths:
        """Computes every episode once, and returns the lengths of the results."""
        base_lengths, indices = self._base.summaries, self.table.episode_indices
        lengths = np.zeros_like(base_lengths.num_steps)
        for positions, columns in self.table.select(self._inputs).blocks(self._inputs):
            end = 0
            for position in positions.tolist():
                begin, end = end, end + int(self.table.summaries.num_steps[position])
                episode = int(indices[position])
                result = self._apply(episode, {p: c[begin:end] for p, c in columns.items()})
                lengths[episode] = len(next(iter(result.values()), ()))
        if not self.fields:
            raise ValueError(f"{self._name} returned no step for any episode")
        is_whole = lengths == base_lengths.num_steps
        transitions = np.where(is_whole, base_lengths.num_transitions, np.maximum(lengths - 1, 0))
        return Lengths(lengths, transitions, base_lengths.final_observation_known & is_whole)

    @property
    def _name(self) -> str:
        fallback = self.version or type(self.function).__name__
        return str(getattr(self.function, "__qualname__", fallback))

    def _input_columns(self, episode: int) -> dict[str, np.ndarray]:
        steps = np.arange(int(self._base.summaries.num_steps[episode]))
        episodes = np.full_like(steps, episode)
        try:
            rows = self._base.rows(episodes, steps, self._inputs)
            return {path: rows.take(path) for path in self._inputs}
        finally:
            self._base.check(episodes[:1])

    def columns(
        self, episode: int, paths: list[str], *, decode_images: bool = False
    ) -> dict[str, Any]:
        """Returns columns of an episode, for the cache; for images, their step indices."""
        del decode_images
        result = self._apply(episode, self._input_columns(episode))
        return nest({path: result[path] for path in paths})

    def _apply(self, episode: int, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the result of the function for an episode, as columns by path."""
        length = int(self._base.summaries.num_steps[episode])
        for path in self._images:
            markers = [_MARKER + f"{step} {path}".encode() for step in range(length)]
            columns[path] = as_utf8(markers)
        try:
            returned = self.function(nest(columns))
            leaves = {
                path: _as_column(value)
                for path, value in named_leaves(returned)
                if path.partition("/")[0] != _METADATA_FIELD
            }
            lengths = {len(column): path for path, column in leaves.items()}
            if len(lengths) > 1:
                sizes = [f"{path} has {length} steps" for length, path in lengths.items()]
                raise ValueError(f"columns differ in length: {', '.join(sizes)}")
            return {path: self._check_column(path, column) for path, column in leaves.items()}
        except SourceError:
            raise
        except Exception as error:
            location = f"{files_of(self.source, 1)}, episode {episode}"
            raise ValueError(f"{location}: {self._name:.80}: {error!r}") from error

    def _check_column(self, path: str, column: np.ndarray) -> np.ndarray:
        """Checks the field of a column; returns the cached form, with step indices of images."""
        if not len(column):
            return column
        field, source = Field(column.dtype, column.shape[1:]), None
        if column.dtype == object:
            field = Field(bytes)
            if column[0].startswith(_MARKER):
                steps, names = zip(*(marker[len(_MARKER) :].split(b" ", 1) for marker in column))
                if len(set(names)) > 1:
                    raise ValueError(f"{path}: mixes the images of several fields, {set(names)}")
                source = names[0].decode()
                field, column = self._base.fields[source], np.array(steps, np.int64)
        first_field = self.fields.setdefault(path, field)
        if source is not None and self._base_of.setdefault(path, source) != source:
            raise ValueError(
                f"{path}: from {source} here, but from {self._base_of[path]} in an earlier episode"
            )
        if first_field != field:
            raise ValueError(f"{path} is {field} here, but {first_field} in an earlier episode")
        return column

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Any) -> Rows:
        return _TrajectoryRows(self, episodes, steps, paths)

    @override
    def read_ahead(
        self, episodes: np.ndarray, first_steps: np.ndarray, last_steps: np.ndarray, paths: Any
    ) -> None:
        max_steps = self._base.summaries.num_steps[episodes] - 1  # A function may move steps.
        images = [self._base_of[path] for path in paths if path in self._base_of]
        ranges = np.minimum(first_steps, max_steps), np.minimum(last_steps, max_steps)
        self._base.read_ahead(episodes, *ranges, images)

    @override
    def check(self, episodes: np.ndarray) -> None:
        self._base.check(episodes)

    @override
    def metadata_column(self, name: str) -> np.ndarray | None:
        return self._base.metadata_column(name)

    @override
    def is_random(self, path: str) -> bool:
        """True if an image is read from the base, or the computed columns fit into the cache."""
        if path in self._base_of:
            return self._base.is_random(self._base_of[path])
        computed = [field for path, field in self.fields.items() if path not in self._base_of]
        width = sum(row_bytes(field, _DEFAULT_VALUE_BYTES) for field in computed)
        return width * int(self.summaries.num_steps.sum()) <= self.cache.max_bytes

    @override
    def is_image(self, path: str) -> bool:
        return path in self._base_of and self._base.is_image(self._base_of[path])

    @override
    def bytes_of_step(self, path: str) -> float:
        return self._base.bytes_of_step(self._base_of.get(path, next(iter(self._inputs))))

    @override
    def fingerprint(self) -> str:
        length_bytes = self.summaries.num_steps.tobytes()
        return hash_of(self._base.fingerprint(), self._name, self.version, length_bytes)


class _TrajectoryRows(_CachedRows):
    _storage: _TrajectoryStorage

    def take(self, path: str) -> np.ndarray:
        source = self._storage._base_of.get(path)
        if source is None:
            return super().take(path)
        columns = [self._column(index, path) for index in range(len(self._columns))]
        step_offsets = np.cumsum([0, *map(len, columns)])
        steps = np.concatenate([*columns, np.zeros(0, np.int64)])
        steps = steps[step_offsets[self._cached_indices] + self._steps]
        return self._storage._base.rows(self._episodes, steps, [source]).take(source)


def _as_column(value: Any) -> np.ndarray:
    """Returns a column of NumPy or TensorFlow as a NumPy array, with texts as `bytes`."""
    column = np.asarray(value)
    if not column.ndim:
        raise ValueError(f"{value!r} has no time axis")
    if column.dtype.kind in "SUO":
        return as_utf8(column)
    return np.ascontiguousarray(column)
