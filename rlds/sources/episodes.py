"""The episodes of a split, by index, in any format."""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import rlds
import tfds_files
from rlds.sources import reading
from rlds.sources.episode_fields import EPISODE_FIELDS
from rlds.sources.source import (
    ALL_ROWS,
    AnySource,
    DamagedEpisode,
    EpisodeSummary,
    Lengths,
    Source,
    SourceEpisode,
    SourceError,
    files_of,
    step_aliases,
    with_random_access,
)
from rlds.sources.view import SelectedSource, trace
from rlds_ecosystem.files.forking import reset_in_forks
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import (
    Field,
    MismatchError,
    as_fields,
    fields_text,
    match_columns,
)
from rlds_ecosystem.model.nests import leaves_at, put
from tfds_files.splits import ranges_of

if TYPE_CHECKING:
    from rlds.sources.episode_table import EpisodeTable, Progress

__all__ = ["Episodes", "as_values"]


class Episodes(Sequence[SourceEpisode]):
    """The episodes of a split of a source.

    With random access (`has_random_access`), any episode can be read at any time. In other sources,
    the first access to an episode reads all episodes before it, and `len` reads all; later accesses
    start at the recorded location.

    Args:
      source: The source.
      split: The name of a split, or a split expression of TFDS, see `tfds_files.splits`.
      format: The name of the format.
      declared: Metadata of the dataset, in addition to metadata of the source.

    Attributes:
      source: The source.
      split: The name of the split, or the split expression.
      format: The name of the format; empty if it has none.

    Raises:
      KeyError: There is no such split; the message lists the splits.
      ValueError: The split expression is invalid.

    >>> import tempfile
    >>> import envlogger
    >>> from envlogger.testing.catch_env import Catch
    >>> from rlds.formats.logs.source import EnvLoggerSource
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> episodes = Episodes(EnvLoggerSource(directory))
    >>> episodes[0].num_steps, float(episodes[0].steps["reward"].sum())
    (10, -1.0)
    """

    def __init__(
        self,
        source: AnySource,
        split: str = "train",
        *,
        format: str = "",
        declared: Mapping[str, Any] | None = None,
    ) -> None:
        self.source, self.split, self.format = source, split, format
        self._declared = dict(declared or {})
        self._is_full_split = split in source.splits
        self._stream_splits: Mapping[str, _StreamSplit] = {}
        if not isinstance(source, Source):
            self._stream_splits = {
                name: _StreamSplit(source, name) for name in _find_splits(source, split)
            }
        if not self._is_full_split:
            _ = self.ranges  # Raises an error if the split expression is invalid.
        with reading.errors_of(source):
            flags = {name: Field(np.bool_) for name in source.fields.flags}
            self._steps = {**as_fields(source.fields.steps), **flags}
        self._leaves = dict(leaves_at(self._steps, None))

    def __repr__(self) -> str:
        name = self.format or type(self.source).__name__
        count = reading.count(self.source, self.split) if self._is_full_split else len(self)
        size_text = "" if count is None else f", {count} episodes"
        return f"Episodes({name}, {files_of(self.source, 1)}, split {self.split!r}{size_text})"

    @property
    def has_random_access(self) -> bool:
        """True if any episode can be read without reading the earlier ones."""
        return isinstance(self.source, Source)

    @property
    def splits(self) -> Sequence[str]:
        """The names of all splits of the source."""
        return self.source.splits

    @functools.cached_property
    def ranges(self) -> Sequence[tuple[str, int, int]]:
        """The ranges of the episodes: split, first episode, end."""
        if self._is_full_split:
            return [(self.split, 0, self._count(self.split))]
        return _split_ranges(self.source, self.split, self._count)

    @functools.cached_property
    def _stops(self) -> list[int]:
        """The end of each range, as an index of these episodes."""
        return list(itertools.accumulate(end - start for _, start, end in self.ranges))

    def _count(self, split: str) -> int:
        if isinstance(self.source, Source):
            return self.source.num_episodes(split)
        return self._stream_splits[split].count()

    def locate(self, index: int) -> tuple[str, int]:
        """Returns the split of an episode, and its index in that split."""
        if self._is_full_split:
            return self.split, index
        position = bisect.bisect_right(self._stops, index)
        split, _, end = self.ranges[position]
        return split, end - (self._stops[position] - index)

    def stored_index(self, index: int) -> int:
        """Returns the index of an episode in its stored split, before any selection.

        If the episodes come from several splits or datasets, returns `index`, which is unique.

        Args:
          index: The index of the episode; negative indices count from the end.
        """
        index = index if index >= 0 else len(self) + index
        split, split_index = self.locate(index)
        if not isinstance(self.source, Source):
            return split_index
        return index if self._is_joined else trace(self.source, split, split_index)[0].index

    @functools.cached_property
    def _is_joined(self) -> bool:
        """Whether the episodes come from several splits or datasets."""
        splits = {split for split, *_ in self.ranges}
        return len(splits) > 1 or len(reading.roots(self.source)) > 1

    def _read(
        self, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        split, split_index = self.locate(index)
        if isinstance(self.source, Source):
            return reading.read(self.source, split, split_index, fields, rows)
        episode = self._stream_splits[split].read(split_index)
        return episode if rows == ALL_ROWS else reading.cut(episode, rows)

    @property
    def spec(self) -> dict[str, Any]:
        """The fields of an episode, with the fields of its steps under `steps`."""
        with reading.errors_of(self.source):
            fields = as_fields(self.source.fields.episode)
        return {rlds.STEPS: self._steps, **EPISODE_FIELDS, **fields}

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the dataset, in the types of JSON."""
        with reading.errors_of(self.source):
            return {**self.source.source_info.metadata, **self._declared}

    def set_counts(self, counts: Mapping[str, int]) -> None:
        """Sets the numbers of episodes in splits of a stream, which saves counting them."""
        for split, count in counts.items():
            self._stream_splits[split].num_episodes = count

    def __len__(self) -> int:
        return self._stops[-1]

    def has(self, index: int) -> bool:
        """Returns True if an index has an episode; reads a stream no further than this index."""
        if self._is_full_split and self._stream_splits:
            return self._stream_splits[self.split].has(index)
        return index < len(self)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.episode(row) for row in range(*index.indices(len(self)))]
        return self.episode(index)

    def __iter__(self) -> Iterator[SourceEpisode]:
        if isinstance(self.source, Source):
            return map(self._read, range(len(self)))
        ranges = [(self.split, 0, None)] if self._is_full_split else self.ranges
        by_range = (
            itertools.islice(_stream_episodes(self.source, split), start, end)
            for split, start, end in ranges
        )
        return map(_raise_if_damaged, itertools.chain.from_iterable(by_range))

    def episode(self, index: int) -> SourceEpisode:
        """Reads an episode.

        Args:
          index: The index of the episode; negative indices count from the end.

        Returns:
          The episode in its stored form: image files are not decoded. `columns` decodes them.

        Raises:
          IndexError: There is no such episode.
          SourceError: The episode is damaged; the message has the location.
        """
        return self._read(self._normalized_index(index))

    def peek(self, index: int) -> SourceEpisode:
        """Reads an episode, possibly without the fields of its steps other than flags (faster).

        Args:
          index: The index of the episode; negative indices count from the end.

        Raises:
          IndexError: There is no such episode.
          SourceError: The episode is damaged; the message has the location.
        """
        fields = self.source.fields
        flags = [f"{rlds.STEPS}/{name}" for name in fields.flags]
        return self._read(self._normalized_index(index), [*flags, *fields.episode_paths()])

    def columns(
        self,
        index: int,
        fields: Iterable[str] | None = None,
        start: int | None = None,
        stop: int | None = None,
        *,
        decode_images: bool = True,
    ) -> dict[str, Any]:
        """Reads all or some steps of an episode as arrays with a leading axis for time.

        Args:
          index: The index of the episode; negative indices count from the end.
          fields: The fields, such as `["action", "observation/camera"]`; all by default.
          start: The first step; the first of the episode by default.
          stop: The step after the last one; negative numbers count from the end.
          decode_images: True to decode image files to arrays; False for their bytes, if available.

        Returns:
          Columns, nested like the fields. Images are arrays of shape `[time, height, width,
          channels]`, uint8 unless the spec differs. Images of different sizes are an object array.

        Raises:
          IndexError: There is no such episode.
          KeyError: There is no such field; the message lists the fields.
          SourceError: The episode is damaged; the message has the location.
        """
        index = self._normalized_index(index)
        aliases = {} if fields is None else step_aliases(self.source)
        requested_fields = dict(leaves_at(self._steps, fields, aliases))
        names, rows = [f"{rlds.STEPS}/{path}" for path in requested_fields], ALL_ROWS
        if start is not None and stop is not None and 0 <= start <= stop:
            rows, start, stop = slice(start, stop), None, None
        steps = dict(leaves_at(self._read(index, names, rows).steps, None))
        columns: dict[str, Any] = {}
        try:
            for path, field in requested_fields.items():
                column = steps.get(path)
                values = None if column is None else column[start:stop]
                put(columns, path, as_values(values, field, decode_images))
        except ValueError as error:
            problem = error.problem if isinstance(error, MismatchError) else str(error)
            file = files_of(self.source)
            raise SourceError(problem, file=file, episode=index, field=path) from error
        return columns

    def summaries(self) -> Iterator[EpisodeSummary]:
        """Yields the summary (steps, transitions) of each episode; reads as little as possible.

        Raises:
          SourceError: An episode is damaged; the message has the location.
        """
        if not isinstance(self.source, Source):
            return (episode.summary for episode in self)
        locations = map(self.locate, range(len(self)))
        return (reading.summary(self.source, *location) for location in locations)

    def lengths(self) -> Lengths | None:
        """Returns the lengths of all episodes; None if unknown without reading them."""
        lengths_of_ranges = []
        if not isinstance(self.source, Source):
            return None
        for split, start, end in self.ranges:
            lengths = reading.lengths(self.source, split)
            if lengths is None:
                return None
            lengths_of_ranges.append(lengths.take(slice(start, end)))
        return Lengths.concatenate(lengths_of_ranges)

    def table(self, *, progress: Progress = None, jobs: int | None = None) -> EpisodeTable:
        """Returns the table of the episodes: a row for each episode.

        Its columns are `split`, `index` (in the split), `key`, `steps`, `transitions`, `return`,
        `terminal`, `truncated`, `complete`, `duration` (seconds, if the data has a rate or times),
        `instruction`, `bytes` (of the steps, without clips), `digest` (of the steps, see
        `rlds.sources.digests`) and `error` (of damaged episodes); episode fields with numbers,
        flags or short texts; and for each numeric field of steps the statistics `min`, `max` and
        `mean`, without NaN and placeholders. Other NaN and missing values are null.

        The first call reads all episodes once. The table is stored with the data in `.rlds`, or in
        the cache, until the files change.

        Args:
          progress: True for a progress bar, None for a progress bar on a terminal only. A callback
            gets the number of done episodes and of all episodes (None if unknown).
          jobs: The largest number of processes that read episodes; one for each processor if None.

        Raises:
          ImportError: pyarrow is not installed.
          OSError: No folder for the table is writable.
        """
        from rlds.sources.episode_table import EpisodeTable, table_file

        with reading.unchanged(self.source):
            tables = [
                table_file(self.source, split, range(start, end), progress=progress, jobs=jobs)
                for split, start, end in self.ranges
            ]
        return EpisodeTable(tables)

    def where(self, condition: str, *, progress: bool | None = None) -> Episodes:
        """Returns the episodes that fulfil a condition.

        Args:
          condition: An expression of SQL over the columns of the `table`, such as
            `"steps > 50 and success and instruction like '%red%'"`, or `"reward.max > 1"`.
          progress: True for a progress bar of the table; if None, on a terminal.

        Raises:
          ImportError: DuckDB or pyarrow is not installed.
          TypeError: The source has no random access.
          ValueError: The condition is not valid, or has an unknown column; the message lists the
            columns.
        """
        return self._select_indices(self.table(progress=progress).where(condition), condition)

    def select(self, indices: Iterable[int]) -> Episodes:
        """Selects episodes by their indices, in the given order.

        Args:
          indices: The indices of the episodes.

        Raises:
          IndexError: There is no such episode.
          TypeError: The episodes cannot be read in any order.
        """
        return self._select_indices(indices)

    def through(self, view: Callable[..., Source], *arguments: Any) -> Episodes:
        """Returns the same episodes of a view of the source.

        Args:
          view: The class of the view.
          *arguments: The arguments of the class after the source.

        Raises:
          TypeError: The source has no random access.
        """
        source = view(with_random_access(self.source), *arguments)
        return Episodes(source, self.split, format=self.format, declared=self._declared)

    def _select_indices(self, indices: Iterable[int], condition: str | None = None) -> Episodes:
        source = with_random_access(self.source)
        if not (isinstance(indices, np.ndarray) and indices.dtype.kind in "iu"):
            indices = np.fromiter(map(self._normalized_index, indices), np.int64)
        total = len(self)
        rows = np.where(indices < 0, indices + total, indices)
        for invalid in indices[(rows < 0) | (rows >= total)][:1]:
            self._normalized_index(invalid)
        splits, _, stops = zip(*self.ranges)
        ranges = np.searchsorted(self._stops, rows, side="right")
        rows, names = rows + np.subtract(stops, self._stops)[ranges], np.array(splits)[ranges]
        by_split = {split: rows[names == split] for split in dict.fromkeys(splits)}
        source = SelectedSource(source, by_split, condition)
        return Episodes(source, "+".join(by_split), format=self.format)

    def __reduce__(self) -> Any:
        # Caches and open files are not pickled.
        reopen = functools.partial(Episodes, format=self.format, declared=self._declared)
        return reopen, (self.source, self.split)

    def _normalized_index(self, index: Any) -> int:
        try:
            row = operator.index(index)
        except TypeError:
            raise TypeError(
                f"an episode has a number as its index, got {index!r}. Open a split with "
                "rlds.sources.open(path, split); read fields with episodes.columns(0, [name])"
            ) from None
        if row < 0:
            row += len(self)
        if row < 0 or not self.has(row):
            raise IndexError(f"split {self.split!r} has {len(self)} episodes, got index {index}")
        return row

    def explain(self) -> str:
        """Describes the episodes: the format, the files, the splits, the fields."""
        source = self.source
        name, info = self.format or type(source).__name__, source.source_info
        lines = [f"{name}: {info.description}".rstrip(": "), f"files: {files_of(source)}"]
        for split in source.splits:
            count = reading.count(source, split)
            size_text = "not counted yet" if count is None else f"{count} episodes"
            lines.append(f"split {split!r}: {size_text}")
        if not self.has_random_access:
            lines.append("Episodes are read in their order; this format has no index.")
        lines += ["fields of an episode:", *_describe_fields(self.spec, "  ")]
        return "\n".join(lines)


def as_values(column: Any, field: Any, decode_images: bool = True) -> Any:
    """Returns a column in the type of its field, with images as arrays if requested.

    Args:
      column: The values of a field; None for no values.
      field: The field.
      decode_images: True to decode image files to arrays.

    Raises:
      ValueError: The column does not match the field, or an image is damaged.
    """
    if isinstance(column, tfds_files.RaggedColumn):
        is_fixed = isinstance(field, Field) and None not in field.shape
        return _as_rectangular(column, field.shape) if is_fixed else column
    if _fits_field(column, field):
        return column
    if _is_ragged(column, field):
        return objects(as_values(value[np.newaxis], field, decode_images)[0] for value in column)
    values = match_columns(column, field, rows=0 if column is None else len(column), where="")
    has_files = isinstance(field, Field) and field.encoding and values.dtype == object
    if not (decode_images and has_files):
        return values
    feature = tfds_files.Image(
        shape=field.shape, dtype=field.column_dtype, encoding_format=field.encoding
    )
    return tfds_files.stack([tfds_files.decode_image(data, feature) for data in values])


def _as_rectangular(column: tfds_files.RaggedColumn, shape: Sequence[int]) -> np.ndarray:
    """Converts a ragged column to an array; the lengths must equal the declared shape."""
    values: Any = column
    for size in shape:
        if isinstance(values, tfds_files.RaggedColumn):
            if wrong := set(values.lengths.tolist()) - {size}:
                raise ValueError(f"a sequence of {min(wrong)} elements, expected {size}")
            values = values.values
    return np.asarray(values).reshape(len(column), *shape)


def _fits_field(column: Any, field: Any) -> bool:
    """True if a column already has the declared dtype and shape: a fast path."""
    return (
        isinstance(column, np.ndarray)
        and isinstance(field, Field)
        and column.dtype == field.dtype
        and column.shape[1:] == field.shape
    )


def _is_ragged(column: Any, field: Any) -> bool:
    """True if a column holds arrays of different sizes, and its field allows them."""
    return (
        isinstance(column, np.ndarray)
        and column.dtype == object
        and isinstance(field, Field)
        and None in field.shape
        and all(isinstance(value, np.ndarray) for value in column)
    )


def _describe_fields(fields: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, field in fields.items():
        if isinstance(field, Mapping):
            yield f"{indent}{name}:"
            yield from _describe_fields(field, f"{indent}  ")
            continue
        notes = [fields_text(field)]
        if isinstance(field, Field):
            notes += [f"{field.encoding} files"] if field.encoding else []
            notes += field.meanings
            notes += [field.doc] if field.doc else []
        yield f"{indent}{name}: {'; '.join(notes)}"


class _StreamSplit:
    """Indexed access to a split of a stream; records the location of each episode on reading.

    Attributes:
      num_episodes: The number of episodes; None before they are counted.
    """

    num_episodes: int | None = None

    def __init__(self, source: AnySource, split: str) -> None:
        self._source, self._split = source, split
        # The location of each read episode: its part, and the key of the preceding episode.
        self._locations: list[tuple[str, str | None]] = []
        self._iterator = self._walk()
        self._next: SourceEpisode | DamagedEpisode | None = None
        self._is_exhausted = False
        self._lock = threading.Lock()  # Several iterators may read the stream.
        reset_in_forks(self)

    def _reset(self) -> None:
        self._lock, self._next = threading.Lock(), None
        if not self._is_exhausted:  # The open files belong to the parent process.
            self._locations, self._iterator = [], self._walk()

    def _walk(self) -> Iterator[SourceEpisode | DamagedEpisode]:
        """Yields the episodes of all parts, and records the location of each."""
        for part in reading.parts(self._source, self._split):
            previous_key = None
            for episode in reading.episodes(self._source, self._split, part):
                self._locations.append((part, previous_key))
                previous_key = episode.key
                yield episode

    def _has(self, index: int) -> bool:
        while index >= len(self._locations):
            self._next = next(self._iterator, None)
            if self._next is None:
                self._is_exhausted = True
                return False
        return True

    def has(self, index: int) -> bool:
        if self.num_episodes is not None:
            return index < self.num_episodes
        with self._lock:
            return self._has(index)

    def count(self) -> int:
        if self.num_episodes is not None:
            return self.num_episodes
        with self._lock:
            while self._has(len(self._locations)):
                pass
        return len(self._locations)

    def read(self, index: int) -> SourceEpisode:
        with self._lock:
            if not self._has(index):
                raise IndexError(index)
            episode = self._next if index == len(self._locations) - 1 else None
        if episode is None:
            part, previous_key = self._locations[index]
            episode = next(reading.episodes(self._source, self._split, part, previous_key))
        return _raise_if_damaged(episode)


def _stream_episodes(source: AnySource, split: str) -> Iterator[SourceEpisode | DamagedEpisode]:
    for part in reading.parts(source, split):
        yield from reading.episodes(source, split, part)


def _raise_if_damaged(episode: SourceEpisode | DamagedEpisode) -> SourceEpisode:
    if isinstance(episode, DamagedEpisode):
        raise episode.error
    return episode


def _find_splits(source: AnySource, expression: str) -> list[str]:
    """Returns the splits in a split expression; to count a split may require reading it."""
    return [split for split in source.splits if split in expression or "all" in expression]


def _split_ranges(
    source: AnySource, expression: str, count: Callable[[str], int]
) -> list[tuple[str, int, int]]:
    """Resolves a split expression to ranges: split, begin, end."""
    splits, shards = (
        _find_splits(source, expression),
        source.capabilities.shards or (lambda split: ()),
    )
    lengths = {split: shards(split) or [count(split)] for split in splits}
    try:
        if re.search(r"\dshard[:\]]", expression) and not all(map(shards, splits)):
            raise ValueError(f"{expression!r}: there are no shards")
        ranges = ranges_of(expression, lengths)
    except KeyError:
        problem = f"no split {expression!r}, only {list(source.splits)} in {files_of(source, 1)}"
        raise KeyError(problem) from None
    except ValueError as error:
        raise ValueError(f"{files_of(source)}: {error}") from None
    return [(split, start, max(start, end)) for split, start, end in ranges]
