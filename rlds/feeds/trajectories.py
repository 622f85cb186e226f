"""Tables whose episodes a function computes from the episodes of another table."""

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

# A placeholder for an image that a function only moves: its field and its step.
_MARK = b"\0rlds image "
_IMAGE_RANK = 2
_UNKNOWN_BYTES = 64
_METADATA = "traj_metadata"


def map_episodes(
    table: Table, function: Callable[[Trajectory], Mapping[str, Any]], *, version: str = ""
) -> Table:
    """Returns a table with the results of a function of each episode.

    The function takes all columns of an episode and returns others, as the standardize functions
    of Octo and OpenVLA do. It may add, drop and rename fields, change values, and drop, choose or
    repeat steps; all columns that it returns need the same length. Texts are `bytes` in arrays of
    `object`. So are images: each is a name that stands for it, so that images are read when a
    batch needs them, as before. So the function can move images, but not see them.

    The function is called once for each episode at first, to know how long the new ones are.

    Args:
      table: The episodes.
      function: Takes a nested dict of arrays, which it may change, and returns one.
      version: The version of the function, for the states of feeds: after the
        function was changed, a state of before is no longer taken if you change this, too.

    Raises:
      ValueError: The function failed, or what it returned is no trajectory; says where.

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
    return Table(table.episodes, storage, storage.fields, table.options, table._chosen)


class _TrajectoryStorage(CachedStorage):
    """The results of a function of each episode of a table, by the same episode numbers."""

    def __init__(
        self,
        table: Table,
        function: Callable[[Trajectory], Mapping[str, Any]],
        version: str,
        outlines: Lengths | None = None,
    ) -> None:
        self.table, self.function, self.version = table, function, version
        self._base: Storage = table.storage
        # Images and other encoded fields stay in the base; the function moves their steps.
        self._moved = [
            path
            for path, field in table.storage.fields.items()
            if not field.is_text
            and (table.storage.is_image(path) or len(field.shape) > _IMAGE_RANK)
        ]
        self._given = [path for path in table.storage.fields if path not in self._moved]
        self._made_of: dict[str, str] = {}
        self.fields: dict[str, Field] = {}
        self.decoders = {}
        self.episodes, self.source = table.episodes, table.episodes.source
        self.cache = EpisodeCache(cast(Any, self), table.cache_bytes)
        self.why_cached = "a function makes them from whole episodes"
        self.num_files, self.is_remote = table.storage.num_files, table.storage.is_remote
        self.outlines = self._counted() if outlines is None else outlines
        if outlines is not None:
            lengths = outlines.num_steps
            for number in np.flatnonzero(lengths)[:1].tolist():
                self._apply(number, self._columns_given(number))

    @override
    def __reduce__(self) -> Any:  # The table looks at its own fingerprint.
        return _TrajectoryStorage, (self.table, self.function, self.version, self.outlines)

    def _counted(self) -> Lengths:
        """Computes all episodes once to get their lengths."""
        before, episode_numbers = self._base.outlines, self.table.numbers
        lengths = np.zeros_like(before.num_steps)
        for positions, columns in self.table.select(self._given).blocks(self._given):
            end = 0
            for position in positions.tolist():
                begin, end = end, end + int(self.table.outlines.num_steps[position])
                episode_number = int(episode_numbers[position])
                result = self._apply(episode_number, {p: c[begin:end] for p, c in columns.items()})
                lengths[episode_number] = len(next(iter(result.values()), ()))
        if not self.fields:
            raise ValueError(f"{self._name} returned no step for any episode")
        is_whole = lengths == before.num_steps
        transitions = np.where(is_whole, before.num_transitions, np.maximum(lengths - 1, 0))
        return Lengths(lengths, transitions, before.final_observation_known & is_whole)

    @property
    def _name(self) -> str:
        of_type = self.version or type(self.function).__name__
        return str(getattr(self.function, "__qualname__", of_type))

    def _columns_given(self, episode_number: int) -> dict[str, np.ndarray]:
        steps = np.arange(int(self._base.outlines.num_steps[episode_number]))
        episodes = np.full_like(steps, episode_number)
        try:
            rows = self._base.rows(episodes, steps, self._given)
            return {path: rows.take(path) for path in self._given}
        finally:
            self._base.check(episodes[:1])

    def columns(
        self, number: int, paths: list[str], *, decode_images: bool = False
    ) -> dict[str, Any]:
        """Returns columns of an episode, for the cache; images as the numbers of their steps."""
        del decode_images
        result = self._apply(number, self._columns_given(number))
        return nest({path: result[path] for path in paths})

    def _apply(self, episode_number: int, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The columns that the function returns for an episode."""
        length = int(self._base.outlines.num_steps[episode_number])
        for path in self._moved:
            marks = [_MARK + f"{step} {path}".encode() for step in range(length)]
            columns[path] = as_utf8(marks)
        try:
            returned = self.function(nest(columns))
            leaves = {
                path: _plain(value)
                for path, value in named_leaves(returned)
                if path.partition("/")[0] != _METADATA
            }
            lengths = {len(column): path for path, column in leaves.items()}
            if len(lengths) > 1:
                sizes = [f"{path} has {length} steps" for length, path in lengths.items()]
                raise ValueError(f"columns differ in length: {', '.join(sizes)}")
            return {path: self._checked(path, column) for path, column in leaves.items()}
        except SourceError:
            raise
        except Exception as error:
            where = f"{files_of(self.source, 1)}, episode {episode_number}"
            raise ValueError(f"{where}: {self._name:.80}: {error!r}") from error

    def _checked(self, path: str, column: np.ndarray) -> np.ndarray:
        """A column in cached form: images as step numbers; the field must not vary by episode."""
        if not len(column):
            return column
        field, of = Field(column.dtype, column.shape[1:]), None
        if column.dtype == object:
            field = Field(bytes)
            if column[0].startswith(_MARK):
                steps, names = zip(*(mark[len(_MARK) :].split(b" ", 1) for mark in column))
                if len(set(names)) > 1:
                    raise ValueError(f"{path}: one image field is made from several, {set(names)}")
                of = names[0].decode()
                field, column = self._base.fields[of], np.array(steps, np.int64)
        first_field = self.fields.setdefault(path, field)
        if of is not None and self._made_of.setdefault(path, of) != of:
            raise ValueError(
                f"{path}: made from {of} here, but from {self._made_of[path]} in an earlier episode"
            )
        if first_field != field:
            raise ValueError(f"{path} is {field} here, but {first_field} in an earlier episode")
        return column

    @override
    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Any) -> Rows:
        return _TrajectoryRows(self, episodes, steps, paths)

    @override
    def read_ahead(
        self, episodes: np.ndarray, firsts: np.ndarray, lasts: np.ndarray, paths: Any
    ) -> None:
        ends = self._base.outlines.num_steps[episodes] - 1  # A function may move steps.
        images = [self._made_of[path] for path in paths if path in self._made_of]
        self._base.read_ahead(episodes, np.minimum(firsts, ends), np.minimum(lasts, ends), images)

    @override
    def check(self, episodes: np.ndarray) -> None:
        self._base.check(episodes)

    @override
    def metadata_column(self, name: str) -> np.ndarray | None:
        return self._base.metadata_column(name)

    @override
    def is_random(self, path: str) -> bool:
        """True if an image is read from the base, or the computed columns fit into the cache."""
        if path in self._made_of:
            return self._base.is_random(self._made_of[path])
        computed = [field for path, field in self.fields.items() if path not in self._made_of]
        width = sum(row_bytes(field, _UNKNOWN_BYTES) for field in computed)
        return width * int(self.outlines.num_steps.sum()) <= self.cache.max_bytes

    @override
    def is_image(self, path: str) -> bool:
        return path in self._made_of and self._base.is_image(self._made_of[path])

    @override
    def bytes_of_step(self, path: str) -> float:
        return self._base.bytes_of_step(self._made_of.get(path, next(iter(self._given))))

    @override
    def fingerprint(self) -> str:
        length_bytes = self.outlines.num_steps.tobytes()
        return hash_of(self._base.fingerprint(), self._name, self.version, length_bytes)


class _TrajectoryRows(_CachedRows):
    _storage: _TrajectoryStorage

    def take(self, path: str) -> np.ndarray:
        source = self._storage._made_of.get(path)
        if source is None:
            return super().take(path)
        columns = [self._column(index, path) for index in range(len(self._columns))]
        begins = np.cumsum([0, *map(len, columns)])
        steps = np.concatenate([*columns, np.zeros(0, np.int64)])
        steps = steps[begins[self._column_indices] + self._steps]
        return self._storage._base.rows(self._episodes, steps, [source]).take(source)


def _plain(value: Any) -> np.ndarray:
    """A column as NumPy has it, with texts as `bytes`: also where TensorFlow made it."""
    column = np.asarray(value)
    if not column.ndim:
        raise ValueError(f"{value!r} has no time axis")
    if column.dtype.kind in "SUO":
        return as_utf8(column)
    return np.ascontiguousarray(column)
