"""Tables of a feed: the steps of a dataset in any format as rows, the source of samples."""

from __future__ import annotations

import copy
import functools
import glob
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

import rlds
import tfds_files
from rlds.feeds.mapped import MappedStorage
from rlds.feeds.samples import Offsets, Samples, Segments, Steps, Transitions, Windows
from rlds.feeds.storage import (
    CachedStorage,
    Lengths,
    Progress,
    ReadOptions,
    Rows,
    Storage,
    hash_of,
    row_bytes,
    row_shape,
)
from rlds.feeds.views import ViewStorage, WithColumn, check_alike, join_metadata
from rlds.sources import reading
from rlds.sources.arrays import as_indices, paths_of
from rlds.sources.episodes import Episodes
from rlds.sources.joined_source import ALL, JoinedSource
from rlds.sources.opening import format_of
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import (
    SourceEpisode,
    SourceError,
    files_of,
    step_aliases,
    with_random_access,
)
from rlds.sources.text_tables import RenumberedSource
from rlds.sources.view import View
from rlds.statistics import Statistics, compute_statistics
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import concat_ranges
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below, leaves_at, lookup, nest, root_of, suggest_fields
from rlds_ecosystem.progress import show_progress
from tfds_files.features import leaves_of

__all__ = ["Table", "open", "several"]

_DEFAULT_CACHE_BYTES, _DEFAULT_DISK_BYTES = 512 << 20, 32 << 30
_MAX_SHOWN_NAMES = 4
# The approximate bytes in a block of episodes.
_BLOCK_BYTES = 4 << 20


def open(
    path: str | os.PathLike[str] | Episodes | Sequence[str | os.PathLike[str] | Episodes],
    split: str | None = None,
    *,
    fields: str | Iterable[str] | None = None,
    where: str | None = None,
    format: str | None = None,
    jpeg: Literal["accurate", "tf"] = "accurate",
    threads: int | None = None,
    cache_bytes: int = _DEFAULT_CACHE_BYTES,
    disk_bytes: int = _DEFAULT_DISK_BYTES,
    verify: bool = False,
    decode_images: bool = True,
    progress: bool | None = None,
    **options: Any,
) -> Table:
    """Opens the steps of a dataset for training, whatever format it is in.

    TFRecord files of a TFDS dataset are read in place: an index, which is built at the first
    opening, has the location of each value, for random access to steps. Other formats are read by
    whole episodes; `rlds.feeds.materialise` copies them to a dataset that is read in place.

    Args:
      path: A path for `rlds.sources.open`, or the episodes that it returns. A list, or a pattern
        such as `data/*/1.0.0`, opens several datasets with the same fields as one table.
      split: The split, or a slice such as `train[:90%]`; needed if there are several.
      fields: Paths of the step fields to read; all by default.
      where: The episodes to open, as a condition in SQL over the table of episodes, such as
        `"steps > 50 and success"`; see `rlds.sources.Episodes.where`.
      format: The name of the format, if it cannot be recognized.
      jpeg: "accurate" for the pixels that most libraries decode; "tf" for the pixels of TensorFlow
        with its fast, approximate transform.
      threads: The number of threads that decode images, in addition to the thread of the batches.
        If None, the number of processors, up to 8; 0 on one processor, and in workers.
      cache_bytes: The memory limit for episodes that are read as a whole, in bytes.
      disk_bytes: The disk quota of all processes of this machine for cached blocks of remote
        files, in `$RLDS_CACHE_DIR`, or `~/.cache/rlds`.
      verify: True to check the checksum of every record before the first batch; False to skip the
        check of files that are read in place.
      decode_images: Whether to decode image files to arrays; otherwise their rows are the bytes of
        the files.
      progress: Whether to show the progress of a new index; if None, on a terminal.
      **options: Options of the format.

    Raises:
      FileNotFoundError: The path does not exist.
      KeyError: There is no such split, or no such field.
      SourceError: The data is damaged; the message has the location.
      ValueError: An option or `where` is invalid, or `where` holds for no episode.

    >>> import tempfile
    >>> import envlogger
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> table = open(directory, fields=["observation", "action"])
    >>> table
    Table(1 episodes, 10 steps: observation, action)
    >>> table.read(0, 2, 5)["action"]
    array([1, 1, 1])
    """
    paths = several(path)
    options |= {"where": where, "format": format, "progress": progress}
    datasets = [_episodes(dataset, split, **options) for dataset in paths or [path]]
    byte_limits = cache_bytes // len(datasets), disk_bytes // len(datasets)
    read_options = ReadOptions(jpeg, threads, *byte_limits, decode_images)
    field_paths = None if fields is None else paths_of(fields)
    episodes = datasets[0] if paths is None else _join(datasets, field_paths)
    if not (sys.stderr.isatty() if progress is None else progress):
        return _open(episodes, field_paths, read_options, verify)
    with show_progress(True) as bars:
        bar = bars.add_task("index", total=None)

        def show(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=total or None)

        return _open(episodes, field_paths, read_options, verify, show)


def _episodes(
    path: Any,
    split: str | None,
    *,
    where: str | None,
    format: str | None,
    progress: bool | None,
    **options: Any,
) -> Episodes:
    """Opens the episodes of one dataset with encoded image files."""
    if isinstance(path, Episodes):
        episodes = path if where is None else path.where(where, progress=progress)
    else:
        if format is None and "layout" not in options:
            format = format_of(path)
        if format == "tfds":
            options = {**options, "decode_images": False}
        episodes = open_episodes(path, split, format=format, where=where, **options)
    source = reading.with_image_files(episodes.source)
    if source is episodes.source:
        return episodes
    return Episodes(source, episodes.split, format=episodes.format)


def _join(datasets: Sequence[Episodes], paths: Sequence[str] | None) -> Episodes:
    """Joins the episodes of several datasets to one dataset."""
    fields = [_selected_fields(dataset, paths) for dataset in datasets]
    check_alike(fields)
    metadata, new_codes = join_metadata(datasets, fields[0])
    renumbered = [
        Episodes(RenumberedSource(with_random_access(dataset.source), codes), dataset.split)
        if codes
        else dataset
        for dataset, codes in zip(datasets, new_codes)
    ]
    info = datasets[0].source.source_info.replace(metadata=metadata)
    return Episodes(JoinedSource(renumbered, source_info=info), ALL, format=datasets[0].format)


def several(path: Any) -> list[Any] | None:
    """Returns the datasets of a list or of a glob pattern; None for a single dataset."""
    if isinstance(path, str | os.PathLike):
        name = os.fspath(path)
        if not glob.has_magic(name) or stores.as_path(name).exists():
            return None
        matches = sorted(glob.glob(name)) if stores.is_local(name) else _glob_files(name)
        if not matches:
            raise FileNotFoundError(f"no file or folder matches {name!r}")
        return matches
    if isinstance(path, Episodes):
        return None
    if not path:
        raise ValueError("got an empty list, expected datasets")
    return list(path)


def _glob_files(pattern: str) -> list[str]:
    """Returns the paths in an object store that match a glob pattern."""
    names = pattern.split("/")
    begin = next(index for index, name in enumerate(names) if glob.has_magic(name))
    folder = stores.as_path("/".join(names[:begin]))
    return sorted(os.fspath(path) for path in folder.glob("/".join(names[begin:])))


def _open(
    episodes: Episodes,
    fields: Sequence[str] | None,
    options: ReadOptions,
    verify: bool = False,
    progress: Progress | None = None,
) -> Table:
    readable_fields = _readable_fields(episodes, options)
    paths = [*readable_fields] if fields is None else [*_selected_fields(episodes, fields)]
    with reading.unchanged(episodes.source):
        storage = _storage(episodes, readable_fields, options, verify, progress)
    return Table(episodes, storage, paths, options)


def _selected_fields(episodes: Episodes, fields: Sequence[str] | None) -> dict[str, Field]:
    """Returns the selected step fields, by their paths."""
    steps = _step_fields(episodes)
    if fields is None:
        return {path: field for path, field in steps.items() if isinstance(field, Field)}
    paths = [path for path, _ in leaves_at(nest(steps), fields, step_aliases(episodes.source))]
    for path in paths:
        if not isinstance(steps[path], Field):
            raise KeyError(f"field {path!r} is {steps[path]}, which a batch cannot hold")
    return {path: steps[path] for path in paths}


def _readable_fields(episodes: Episodes, options: ReadOptions) -> dict[str, Field]:
    """Returns the step fields, by their paths; image files that are not decoded are bytes."""
    plain_fields = _selected_fields(episodes, None)
    if options.decode_images:
        return plain_fields
    return {path: Field(bytes) if field.encoding else field for path, field in plain_fields.items()}


def _step_fields(episodes: Episodes) -> dict[str, Any]:
    """Returns the step fields, by their paths; for TFDS in the order of its features."""
    fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
    if (examples := episodes.source.capabilities.examples) is not None:
        steps = examples.folder.features[rlds.STEPS]
        assert isinstance(steps, tfds_files.Dataset)
        order = {leaf.name: index for index, leaf in enumerate(leaves_of(steps.feature))}
        paths = sorted(fields, key=lambda path: order.get(path, len(order)))
        fields = {path: fields[path] for path in paths}
    return fields


def _storage(
    episodes: Episodes,
    fields: Mapping[str, Field],
    options: ReadOptions,
    verify: bool = False,
    progress: Progress | None = None,
) -> Storage:
    """Opens the storage of steps: read in place if possible, otherwise by whole episodes."""
    source = episodes.source
    if isinstance(source, View) and source.is_by_rows:

        def open_base(base: Episodes, paths: Collection[str]) -> Storage:
            base_fields = _readable_fields(base, options)
            base_fields = {path: field for path, field in base_fields.items() if path in paths}
            return _storage(base, base_fields, options, verify, progress)

        def cached_storage(lengths: Lengths) -> Storage:
            return CachedStorage(episodes, fields, options, lengths)

        return ViewStorage(episodes, fields, open_base, cached_storage, options.threads)
    why = "this is not a TFDS dataset in TFRecord files"
    if source.capabilities.examples is not None:
        try:
            return MappedStorage(episodes, fields, options, verify=verify, progress=progress)
        except tfds_files.UnsupportedFileError as error:
            why = str(error)
        except tfds_files.DamagedFileError as error:
            raise SourceError(str(error), file=files_of(source)) from error
    return CachedStorage(episodes, fields, options, why_cached=why, progress=progress)


class Table:
    """The steps of all episodes of a split: a row for each step, a column for each field.

    `rlds.feeds.open` returns a table. Tables can be pickled; each process opens its own files.

    Attributes:
      episodes: The episodes of the split, including episodes that `filter_episodes` excludes.
      storage: The storage of the steps.
      fields: The selected fields of a step, by their paths.
      options: Reading options.
    """

    def __init__(
        self,
        episodes: Episodes,
        storage: Storage,
        fields: Iterable[str],
        options: ReadOptions,
        selection: np.ndarray | None = None,
    ) -> None:
        self.episodes, self.storage, self.options = episodes, storage, options
        self.fields = {path: storage.fields[path] for path in fields}
        # The indices of the kept episodes; None keeps all episodes.
        self._selection = selection

    @functools.cached_property
    def summaries(self) -> Lengths:
        """The numbers of steps and transitions of each episode."""
        summaries = self.storage.summaries
        return summaries if self._selection is None else summaries.take(self._selection)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "summaries"}

    def _with(self, **changes: Any) -> Table:
        """Returns a copy of the table with other attributes."""
        other = copy.copy(self)  # The copy has no cached results.
        vars(other).update(changes)
        return other

    def __repr__(self) -> str:
        size = f"{self.num_episodes} episodes, {self.num_steps} steps"
        return f"Table({size}: {list_names(list(self.fields))})"

    @property
    def cache_bytes(self) -> int:
        """The memory limit of the cache for episodes that are read as a whole, in bytes."""
        return self.options.cache_bytes

    @property
    def episode_indices(self) -> np.ndarray:
        """The index of each episode in `episodes`, int64."""
        if self._selection is None:
            return np.arange(len(self.storage.summaries.num_steps))
        return self._selection

    def _map_episodes(self, episodes: np.ndarray) -> np.ndarray:
        """Returns the indices of episodes in the storage."""
        return episodes if self._selection is None else self._selection[episodes]

    @property
    def source(self) -> Any:
        """The source of `episodes`, with all episodes in one split."""
        episodes = self.episodes
        return JoinedSource([episodes]) if episodes.has_random_access else episodes.source

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return len(self.summaries.num_steps)

    @property
    def num_steps(self) -> int:
        """The number of steps in all episodes."""
        return int(self.summaries.num_steps.sum())

    @property
    def spec(self) -> dict[str, Any]:
        """The selected fields of a step, nested in dicts."""
        return nest(self.fields)

    def read(
        self,
        episode: int,
        start: int | None = None,
        stop: int | None = None,
        fields: str | Iterable[str] | None = None,
    ) -> dict[str, Any]:
        """Reads consecutive steps of an episode.

        Args:
          episode: The index of the episode; a negative index counts from the end.
          start: The first step; the first step of the episode by default.
          stop: The step after the last one; a negative index counts from the end.
          fields: Paths of fields; the fields of the table by default.

        Returns:
          The fields, nested in dicts: arrays with a leading axis for the steps.

        Raises:
          IndexError: The index is out of range.
          KeyError: There is no such field.
          SourceError: The steps cannot be read; the message has the location.
        """
        if not -self.num_episodes <= episode < self.num_episodes:
            raise IndexError(f"no episode {episode}: there are {self.num_episodes}")
        step_range = range(int(self.summaries.num_steps[episode]))[start:stop]
        steps = np.arange(step_range.start, max(step_range.start, step_range.stop), dtype=np.int64)
        paths = list(self.fields) if fields is None else self.paths_at(fields)
        episodes = np.full(len(steps), episode % self.num_episodes, np.int64)
        return nest(self.take(episodes, steps, paths))

    def take(
        self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Returns the values of fields in some rows, see `Storage.rows`, by their paths."""
        try:
            rows = self.rows(episodes, steps, paths)
            return {path: rows.take(path) for path in paths}
        finally:
            self.check(episodes)

    def rows(self, episodes: np.ndarray, steps: np.ndarray, paths: Sequence[str]) -> Rows:
        """Returns rows of fields, see `Storage.rows`; call `check` after taking values."""
        return self.storage.rows(self._map_episodes(episodes), steps, paths)

    def read_ahead(
        self,
        episodes: np.ndarray,
        first_steps: np.ndarray,
        last_steps: np.ndarray,
        paths: Sequence[str],
    ) -> None:
        """Prefetches steps: see `Storage.read_ahead`."""
        self.storage.read_ahead(self._map_episodes(episodes), first_steps, last_steps, paths)

    def check(self, episodes: np.ndarray) -> None:
        """Checks the files of episodes after values were taken or failed: see `Storage.check`."""
        self.storage.check(self._map_episodes(episodes))

    def select(self, fields: str | Iterable[str]) -> Table:
        """Returns the table with other fields of the same steps."""
        stored_fields = self.storage.fields
        return self._with(fields={path: stored_fields[path] for path in self.paths_at(fields)})

    def paths_at(self, fields: str | Iterable[str]) -> list[str]:
        """Returns the paths of stored fields, at and below some paths.

        Raises:
          KeyError: There is no field at a path; the message has similar names.
        """
        aliases = step_aliases(self.episodes.source)
        return [path for path, _ in leaves_at(nest(self.storage.fields), fields, aliases)]

    def unknown_field(self, path: str) -> KeyError:
        """Returns the error of an unknown field path."""
        aliases = step_aliases(self.episodes.source)
        return KeyError(f"no field {path!r}; {suggest_fields(path, self.fields, aliases)}")

    def with_column(self, path: str, values: Sequence[Any] | np.ndarray) -> Table:
        """Returns the table with an additional in-memory field: advantages, returns, values.

        Args:
          path: The path of the field.
          values: The value of each step, with a leading axis of length `num_steps`, in the order of
            the episodes and of their steps.

        Raises:
          ValueError: The field exists, or the number of values differs from the number of steps.
        """
        column = np.asarray(values)
        if column.shape[:1] != (self.num_steps,):
            raise ValueError(f"values: got the shape {column.shape} for {self.num_steps} steps")
        if any(is_below(path, other) or is_below(other, path) for other in self.storage.fields):
            raise ValueError(f"the table already has a field {path!r}")
        lengths = self.storage.summaries.num_steps
        indices = self.episode_indices
        row_offsets = np.full(len(lengths), -1, np.int64)
        row_offsets[indices] = np.cumsum(lengths[indices]) - lengths[indices]
        view = WithColumn(self.source, path, column, row_offsets)
        new_field = {path: Field(column.dtype, column.shape[1:])}
        storage = ViewStorage.over(view, {**self.storage.fields, **new_field}, self.storage)
        return self._with(storage=storage, fields={**self.fields, **new_field})

    def column(self, name: str) -> np.ndarray:
        """Returns a field of all episodes, for `Samples.weighted`.

        Args:
          name: An episode field, such as `success`; or a step field, such as
            `language_instruction`, whose first value is used.

        Raises:
          KeyError: There is no such field.
        """
        if name in self.storage.fields:
            indices = np.flatnonzero(self.summaries.num_steps)
            if len(indices) < self.num_episodes:
                raise ValueError(f"{name}: some episodes have no steps; use filter_episodes")
            return self.take(indices, np.zeros_like(indices), [name])[name]
        column = self.metadata_column(name)
        if column is not None:
            return column
        columns: dict[str, np.ndarray | None] = {}
        episodes = [_Episode(self, index, columns) for index in self.episode_indices.tolist()]
        return np.array([episode.metadata[name] for episode in episodes])

    def source_episode(self, episode: int) -> SourceEpisode:
        """Reads an episode as a `SourceEpisode`."""
        index = episode if self._selection is None else int(self._selection[episode])
        return self.episodes.episode(index)

    def metadata_column(self, name: str) -> np.ndarray | None:
        """Returns an episode field of all episodes; None if they must be read one by one."""
        column = self.storage.metadata_column(name)
        return column if column is None or self._selection is None else column[self._selection]

    def filter_episodes(
        self, keep: Callable[[SourceEpisode], Any] | Sequence[int] | np.ndarray
    ) -> Table:
        """Returns the table of some of the episodes.

        Args:
          keep: The indices of the episodes to keep, a mask, or a function of an episode (with the
            attributes of `rlds.sources.SourceEpisode`: `metadata`, `steps`, `total_reward`). The
            function reads only the attributes that it uses.

        Raises:
          IndexError: An index is out of range.
          TypeError: The indices are not integers.
          ValueError: The length of the mask is not the number of episodes.
        """
        if callable(keep):
            columns: dict[str, np.ndarray | None] = {}
            episodes: Iterable[Any] = (
                _Episode(self, n, columns) for n in self.episode_indices.tolist()
            )
            keep = np.array([bool(keep(episode)) for episode in episodes], bool)
        selection = np.asarray(keep)
        if selection.dtype == bool:
            if selection.shape != (self.num_episodes,):
                raise ValueError(
                    f"keep: got a mask of shape {selection.shape} for {self.num_episodes} episodes"
                )
            selection = np.flatnonzero(selection)
        return self._with(_selection=self.episode_indices[as_indices(selection)])

    def compute_statistics(
        self,
        fields: str | Iterable[str] | None = None,
        *,
        masks: Mapping[str, Any] | None = None,
        include_last_action: bool | None = None,
        quantiles: Sequence[float] = (0.01, 0.99),
    ) -> Statistics:
        """Computes the statistics of fields, for `Samples.normalize`; reads all steps once.

        Args:
          fields: Paths of fields; by default, the numeric fields of observation, action and reward.
          masks: Masks of the elements to normalize, by field; all by default.
          include_last_action: Whether to include the action of the last step of each episode. If
            None, it is included if the episode has no final observation.
          quantiles: The quantiles to compute, from 0 to 1.

        Raises:
          KeyError: There is no such field.
          TypeError: A field is not numeric.
          ValueError: There are no episodes, or a mask does not fit.
        """
        if fields is None:
            roots = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD)
            fields = [
                path
                for path, field in self.fields.items()
                if root_of(path) in roots
                and row_shape(field) is not None
                and not self.storage.is_image(path)
            ]
        paths = self.paths_at(fields)
        return compute_statistics(
            self.whole_episodes(paths),
            paths,
            masks=masks,
            include_last_action=include_last_action,
            quantiles=quantiles,
        )

    def blocks(self, paths: Sequence[str]) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Yields blocks of consecutive episodes: their indices, and fields of all their steps.

        A block has about 4 MB, and at least one episode.
        """
        lengths = self.summaries.num_steps
        fields = [self.storage.fields[path] for path in paths]
        # Values of unknown size count as a whole block.
        size_of_step = 1 + sum(row_bytes(field, _BLOCK_BYTES) for field in fields)
        blocks = (np.cumsum(lengths) - 1) // max(_BLOCK_BYTES // size_of_step, 1)
        bounds = np.flatnonzero(np.diff(blocks)) + 1
        for block in np.split(np.arange(len(lengths)), bounds) if len(lengths) else ():
            episodes = np.repeat(block, lengths[block])
            yield block, self.take(episodes, concat_ranges(lengths[block]), paths)

    def whole_episodes(self, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yields all episodes with some fields, for `rlds.statistics`."""
        for block, columns in self.blocks(paths):
            begin = 0
            for index, length in zip(block.tolist(), self.summaries.num_steps[block].tolist()):
                steps = {path: column[begin : begin + length] for path, column in columns.items()}
                steps[rlds.IS_LAST] = np.arange(length) == length - 1
                is_final_known = bool(self.summaries.final_observation_known[index])
                yield {rlds.STEPS: nest(steps), rlds.FINAL_OBSERVATION_KNOWN: is_final_known}
                begin += length

    def steps(self, *, only_real: bool = False) -> Samples:
        """Returns every step as a sample.

        Args:
          only_real: Whether to exclude the final observations of episodes: steps whose actions are
            placeholders.
        """
        return Steps(self, only_real)

    def transitions(self, n: int = 1, gamma: float = 1.0) -> Samples:
        """Returns a sample for each transition, of one step (SARS) or of up to `n` steps.

        The fields and values equal the result of `rlds.transformations.transitions`, which
        documents the ends of episodes.

        Args:
          n: The number of steps to look ahead.
          gamma: The discount of every step, in addition to stored discounts.

        Raises:
          KeyError: There is no `observation`, or neither `is_terminal` nor `discount`.
          TypeError: A reward or a discount is not numeric.
          ValueError: `n` is not positive, `gamma` not in [0, 1], or no discount fits a reward.
        """
        if not any(root_of(path) == rlds.OBSERVATION for path in self.fields):
            raise self.unknown_field(rlds.OBSERVATION)
        return Transitions(self, n, gamma)

    def windows(
        self,
        *lengths: int,
        history: int = 1,
        horizon: int = 1,
        history_fields: str | Iterable[str] = (rlds.OBSERVATION,),
        horizon_fields: str | Iterable[str] = (rlds.ACTION,),
        padding: str = "edge",
        only_real: bool = False,
    ) -> Samples:
        """Returns a sample for each step: its past observations and its future actions.

        The fields, the masks and the values equal the result of `rlds.transformations.windows`.

        Args:
          *lengths: Not allowed: pass `history` and `horizon`.
          history: The number of past steps, including the current one.
          horizon: The number of future steps, including the current one.
          history_fields: The fields with a history, as an axis after the first, oldest first.
          horizon_fields: The fields with a horizon, as an axis after the first.
          padding: The values before the first step and after the last action: "edge" repeats the
            closest one, "zeros" are zeros.
          only_real: Whether to exclude the window of a final observation, which has no action.

        Raises:
          KeyError: A field is missing.
          TypeError: A length has no name.
          ValueError: A length is not positive, or the padding is unknown.
        """
        if lengths:
            n = lengths[0]
            raise TypeError(
                f"windows({n!r}): pass history={n!r} for observations up to each step, "
                f"horizon={n!r} for actions from it on, or call segments({n!r}) for runs of steps"
            )
        return Windows(self, history, horizon, history_fields, horizon_fields, padding, only_real)

    def offsets(
        self,
        offsets: Mapping[str, Iterable[int]],
        *,
        padding: str = "edge",
        only_real: bool = False,
    ) -> Samples:
        """Returns a sample for each step: values of fields at distances from it.

        Args:
          offsets: The step offsets of a field, or of all fields below a path, such as
            `{"observation": [-4, -2, 0], "action": range(0, 16, 2)}`: an axis after the first, in
            this order. Other fields have the value of the step. LeRobot's `delta_timestamps`
            divides these offsets by the frame rate.
          padding: The values before the first step and after the last one (for an action, a reward
            or a discount, after the last action): "edge" repeats the closest value, "zeros" are
            zeros. The field `<path>_is_pad` is true for padding.
          only_real: Whether to exclude the final observation, which has no action.

        Raises:
          KeyError: A field is missing.
          TypeError: An offset is not an integer.
          ValueError: There are no offsets of a field, or the padding is unknown.
        """
        return Offsets(self, offsets, padding, only_real)

    def segments(
        self, length: int, *, shift: int | None = None, drop_remainder: bool = True
    ) -> Samples:
        """Returns a sample for each run of consecutive steps, as inputs of recurrent networks.

        The runs equal the result of `rlds.transformations.batch`.

        Args:
          length: The number of steps in a run.
          shift: The distance between the starts of runs, in steps; `length` by default.
          drop_remainder: True to drop shorter runs at the end of an episode; False to pad shorter
            runs with zeros. The field `pad_mask`, of shape `[length]`, is true for real steps.

        Raises:
          ValueError: An argument is not positive.
        """
        return Segments(self, length, length if shift is None else shift, drop_remainder)

    def fingerprint(self) -> str:
        """Returns a hash of the selected contents, and of the decoding options."""
        selection = "all" if self._selection is None else hash_of(self._selection.tobytes())
        jpeg = self.options.jpeg if any(field.encoding for field in self.fields.values()) else ""
        # Logs do not preserve the order of fields in addition to the steps.
        return hash_of(self.storage.fingerprint(), selection, sorted(self.fields), jpeg)


class _Episode:
    """A lazy `SourceEpisode`: a field is read when it is first used."""

    def __init__(self, table: Table, index: int, columns: dict[str, np.ndarray | None]) -> None:
        self._table, self._index, self._columns = table, index, columns

    @functools.cached_property
    def _source_episode(self) -> SourceEpisode:
        return self._table.episodes.episode(self._index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source_episode, name)

    def __len__(self) -> int:
        return len(self._source_episode)

    def __getitem__(self, name: str) -> Any:
        return self._source_episode[name]

    @functools.cached_property
    def metadata(self) -> _Metadata:
        return _Metadata(self)


class _Metadata(Mapping[str, Any]):
    """The metadata of an episode: if possible, a field is read for all episodes at once."""

    def __init__(self, episode: _Episode) -> None:
        self._episode = episode

    def __getitem__(self, name: str) -> Any:
        episode = self._episode
        if name not in episode._columns:
            episode._columns[name] = episode._table.storage.metadata_column(name)
        column = episode._columns[name]
        return lookup(self._read, name) if column is None else column[episode._index]

    @functools.cached_property
    def _read(self) -> Mapping[str, Any]:
        return self._episode._table.episodes.peek(self._episode._index).metadata

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def list_names(names: Sequence[str]) -> str:
    """Returns the first names, and the number of further names.

    >>> list_names(["a", "b", "c", "d", "e", "f"])
    'a, b, c, d and 2 more'
    """
    ellipsis = f" and {len(names) - _MAX_SHOWN_NAMES} more" if len(names) > _MAX_SHOWN_NAMES else ""
    return f"{', '.join(names[:_MAX_SHOWN_NAMES])}{ellipsis}"
