"""Writers of the files of LeRobot datasets, episode by episode: versions 3.0 and 2.1."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from typing_extensions import override

from rlds.formats.lerobot import layout
from rlds.formats.lerobot.feature_statistics import (
    FeatureTotals,
    QuantileSelection,
    Statistics,
    replace_statistics,
    statistics_by_column,
)
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.tables import (
    TableFiles,
    flatten_column,
    is_numeric,
    name_items,
    table_bytes,
    tasks_table,
    to_arrow,
)
from rlds.sources.text_tables import TextTable, renumber
from rlds.sources.writing import Workers, map_serially
from rlds.video.container import Clip, Span, VideoWriter, span_of
from rlds_ecosystem import import_extra

__all__ = [
    "DATASET_FILES",
    "PATHS",
    "DatasetFiles",
    "DatasetState",
    "EpisodeBatch",
    "Frames",
    "NewEpisode",
    "Version",
    "check_is_below",
    "write_below",
    "write_json",
]

Version: TypeAlias = Literal["v3.0", "v2.1"]
Frames: TypeAlias = Clip | Span

# The default size limits of files in LeRobot, in MB.
_DEFAULT_SIZES_MB = {"data_files_size_in_mb": 100, "video_files_size_in_mb": 200}
# Entries of `info.json` in one version only.
_ONE_VERSION_ENTRIES = {"total_videos", "total_chunks", *_DEFAULT_SIZES_MB}
PATHS: Mapping[Version, tuple[str, str]] = {
    "v3.0": (
        "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    ),
    "v2.1": (
        "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    ),
}
"""LeRobot's templates of the names of data files and of videos."""

# The number of table rows that are written together, and of data rows that are read together.
_EPISODES_PER_WRITE, _ROWS_PER_READ = 100, 8192
_MEGABYTE = 1 << 20
# The time tolerance of frames in LeRobot, in seconds.
_TIME_TOLERANCE_S = 1e-4


@dataclasses.dataclass(frozen=True)
class DatasetState:
    """The state of a dataset to which episodes are appended, in new files (3.0).

    Attributes:
      num_episodes: The number of episodes.
      num_rows: The number of rows.
      num_files: The number of files of each kind, or more.
      tasks: The texts of the tasks, in order.
      total: The statistics of the features.
      info: The content of `info.json`.
    """

    num_episodes: int = 0
    num_rows: int = 0
    num_files: int = 0
    tasks: Sequence[str] = ()
    total: FeatureTotals = dataclasses.field(default_factory=FeatureTotals)
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class NewEpisode:
    """A new episode of a dataset.

    Attributes:
      columns: The columns of the features, as NumPy or Arrow arrays. The indices of rows, episodes
        and tasks, and missing time stamps are added on writing.
      tasks: The text of the task of each row.
      statistics: The statistics of the features.
      clips: The frames of the video features: clips, or spans of video files.
      cells: Further cells of the table of episodes.
      task_indices: Further columns with indices of tasks, which are renumbered.
      task_texts: The texts of tasks by these indices.
      values: The numeric columns among the Arrow columns, as NumPy arrays.
      extras: The contents of additional files, by name.
      is_staged: True if the episode comes from a staged dataset.
    """

    columns: Mapping[str, Any]
    tasks: Sequence[str]
    statistics: Mapping[str, Statistics]
    clips: Mapping[str, Frames]
    cells: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    task_indices: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    task_texts: TextTable = dataclasses.field(default_factory=dict)
    values: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    extras: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    is_staged: bool = False


@dataclasses.dataclass(frozen=True)
class EpisodeBatch:
    """Consecutive episodes of a staged dataset, which are copied unchanged (3.0).

    Attributes:
      table: The data rows.
      entries: The rows of the table of episodes.
      task_texts: The texts of tasks by their indices in the staged dataset.
      extras: The contents of the additional files of each episode, by name.
    """

    table: Any
    entries: Any
    task_texts: TextTable
    extras: Sequence[Mapping[str, bytes]]


class DatasetFiles(abc.ABC):
    """The writer of the files of a LeRobot dataset; a context manager.

    Args:
      directory: The existing folder of the dataset.
      info: The entries of `info.json`, including `features` and `fps`. Counts are added.
      schema: The schema of the rows.
      split: The name of the split.
      tasks: The texts of the first tasks, in order.
      episode_schema: The types of further columns of the table of episodes (3.0), or None.
      initial: The state of the existing dataset, whose files are in another folder.
      keeps_clips: True to keep a clip with more frames than rows in its own file (3.0).
      is_part: True for staged data of a conversion: its table also has the sizes of episodes.
      has_tables: False to return the rows of the table of episodes by `table_rows`.
      workers: See `Export`.
    """

    def __init__(
        self,
        directory: Path,
        info: Mapping[str, Any],
        schema: Any,
        split: str,
        tasks: Sequence[str] = (),
        episode_schema: Any = None,
        initial: DatasetState | None = None,
        keeps_clips: bool = False,
        is_part: bool = False,
        has_tables: bool = True,
        workers: Workers = map_serially,
    ) -> None:
        initial = initial or DatasetState()
        self._directory, self._schema, self._split = directory, schema, split
        self._info: dict[str, Any] = {"chunks_size": 1000, **_DEFAULT_SIZES_MB, **info}
        self._episode_schema = episode_schema
        self._data_path, self._video_path = PATHS[self.version]
        self._cameras = [n for n, entry in info["features"].items() if entry["dtype"] == "video"]
        self._fps = float(info["fps"])
        self._texts: list[str] = []  # Texts of tasks. Existing tasks keep their indices.
        self._tasks: dict[str, int] = {}
        for text in [*initial.tasks, *tasks]:
            self._tasks.setdefault(text, len(self._texts))
            self._texts.append(text)
        self._num_episodes, self._num_rows = initial.num_episodes, initial.num_rows
        self._first_file, self._total = initial.num_files, copy.deepcopy(initial.total)
        self._keeps_clips, self._workers = keeps_clips, workers
        self._is_part, self._has_tables = is_part, has_tables
        # Pending rows of the table of episodes.
        self._rows: list[dict[str, Any]] = []
        self._statistics: list[Mapping[str, Statistics]] = []
        self._stack = contextlib.ExitStack()
        (directory / layout.INFO).parent.mkdir(exist_ok=True)

    def __enter__(self) -> DatasetFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, rows: NewEpisode) -> None:
        """Writes an episode."""
        arrow = import_extra("pyarrow")
        num_rows = len(rows.tasks)
        frames = np.arange(num_rows)
        number_columns: dict[str, np.ndarray] = {
            "episode_index": np.full(num_rows, self._num_episodes),
            "index": self._num_rows + frames,
            "task_index": np.array([self._task(text) for text in rows.tasks]),
            **self._renumber_tasks(rows),
        }
        if "timestamp" not in rows.columns:
            number_columns["timestamp"] = (frames / self._fps).astype(np.float32)
            number_columns["frame_index"] = frames
        schema, arrays = self._schema, []
        columns, values = {**rows.columns, **number_columns}, dict(rows.values)
        for field in schema:
            column = columns[field.name]
            if isinstance(column, np.ndarray):
                values |= {field.name: column} if column.dtype != object else {}
                column = to_arrow(column, field.type)
            arrays.append(column)
        table = arrow.table(arrays, schema=schema)
        statistics = {**rows.statistics, **statistics_by_column(number_columns)}
        entry = {
            "episode_index": self._num_episodes,
            "tasks": list(dict.fromkeys(rows.tasks)),
            "length": num_rows,
            **rows.cells,
        }
        self._write(table, entry, dataclasses.replace(rows, statistics=statistics, values=values))
        self._rows.append(entry)
        self._statistics.append(statistics)
        if self._has_tables and len(self._rows) == _EPISODES_PER_WRITE:
            self._write_episodes()
        self._write_extras(rows.extras)
        self._num_episodes += 1
        self._num_rows += num_rows

    def _write_extras(self, extras: Mapping[str, bytes], index: int = 0) -> None:
        """Writes extra files of the next episode, or of a later episode."""
        episode_index = self._num_episodes + index
        folder = self._directory / layout.EXTRAS.format(episode_index=episode_index)
        for name, data in extras.items():
            write_below(folder, name, data)

    def _task(self, text: str) -> int:
        """Returns the index of a task; adds new tasks."""
        if text not in self._tasks:
            self._tasks[text] = len(self._texts)
            self._texts.append(text)
        return self._tasks[text]

    def _renumber_tasks(self, rows: NewEpisode) -> dict[str, np.ndarray]:
        """Returns the columns of task indices that change in the new dataset."""
        columns = {
            name: self._to_new_indices(name, indices, rows.task_texts)
            for name, indices in rows.task_indices.items()
        }
        old = rows.task_indices
        return {n: new for n, new in columns.items() if not np.array_equal(new, old[n])}

    def _to_new_indices(self, name: str, indices: np.ndarray, texts: TextTable) -> np.ndarray:
        """Converts a column of task indices to the indices in the new dataset."""
        used_indices = np.unique(indices).tolist()
        try:
            return renumber(indices, {n: self._task(texts[n]) for n in used_indices if n in texts})
        except ValueError as error:
            raise ValueError(
                f"episode {self._num_episodes}, {name}: {error}. If these are not task "
                "numbers, pass task_columns=[] (-O task_columns=[])"
            ) from error

    def finish(self, features: Mapping[str, Mapping[str, Any]]) -> DatasetState:
        """Completes the files; returns the new state of the dataset.

        Args:
          features: Changes to the entries of `info.json`, by feature.
        """
        self._write_episodes()
        self._finish()
        fps, raw = self._fps, self._info
        splits = {self._split: f"0:{self._num_episodes}"}
        if raw.get("total_episodes") == self._num_episodes:
            splits = raw.get("splits", splits)
        info = {
            "codebase_version": self.version,
            "robot_type": raw.get("robot_type"),
            "total_episodes": self._num_episodes,
            "total_frames": self._num_rows,
            "total_tasks": len(self._texts),
            "chunks_size": raw["chunks_size"],
            "fps": int(fps) if fps == int(fps) else fps,
            "splits": splits,
            **self._version_entries(),
            "data_path": self._data_path,
            "video_path": self._video_path if self._cameras else None,
            "features": {
                name: {**old, **features.get(name, {})} for name, old in raw["features"].items()
            },
        }
        info |= {name: raw[name] for name in raw if name not in {*info, *_ONE_VERSION_ENTRIES}}
        write_json(self._directory / layout.INFO, info)
        return DatasetState(
            self._num_episodes,
            self._num_rows,
            self._first_file + 1,  # A recorder appends one episode at a time.
            list(self._texts),
            self._total,
            json.loads((self._directory / layout.INFO).read_text()),
        )

    @property
    @abc.abstractmethod
    def version(self) -> Version:
        """The version of the format."""

    @property
    def tasks(self) -> Sequence[str]:
        """The texts of the tasks so far, in order."""
        return self._texts

    @abc.abstractmethod
    def planners(self) -> Mapping[str, Any]:
        """Returns the planners that assign staged episodes to files.

        The method `plan` of a planner gets the sizes of an episode, and returns True if the episode
        begins a file. Version 3.0 has a planner for each video feature, by name, whose method
        `add` writes frames, and a planner for data files, by the name "".
        """

    def add_stored(self, episodes: EpisodeBatch, task_columns: Sequence[str]) -> None:
        """Writes staged episodes (3.0).

        Args:
          episodes: The episodes.
          task_columns: See `task_indices` of `NewEpisode`.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def table_rows(self) -> Any:
        """Returns the table rows of the added episodes, for `add_table_rows`."""

    def add_table_rows(
        self,
        table_rows: Sequence[Any],
        frames: Mapping[str, Sequence[Any]],
        lengths: Sequence[int],
        tasks: Sequence[str],
    ) -> None:
        """Adds the table rows of episodes that other processes wrote.

        Args:
          table_rows: The results of the method `table_rows`, in the order of the files.
          frames: The frames of each episode by feature, as `add` of the planner returned them.
          lengths: The number of rows of each episode.
          tasks: The texts of all tasks.
        """
        self._add_table_rows(table_rows, frames, np.array(lengths))
        self._num_episodes, self._num_rows = len(lengths), sum(lengths)
        self._texts = [*tasks]

    @abc.abstractmethod
    def _add_table_rows(
        self, table_rows: Sequence[Any], frames: Mapping[str, Sequence[Any]], lengths: np.ndarray
    ) -> None:
        """Adds the table rows of episodes; see `add_table_rows`."""

    @abc.abstractmethod
    def _write(self, table: Any, entry: dict[str, Any], rows: NewEpisode) -> None:
        """Writes the table of the next episode, and its clips; adds their location to `entry`."""

    @abc.abstractmethod
    def _write_episodes(self) -> None:
        """Writes the table rows of the added episodes."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Completes all files except `info.json`."""

    @abc.abstractmethod
    def _version_entries(self) -> dict[str, Any]:
        """Returns the entries of `info.json` that are specific to the version."""


class _Files30(DatasetFiles):
    """The writer of version 3.0: files of many episodes, and Parquet tables."""

    version: Version = "v3.0"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        start, info = (self._directory, self._first_file), self._info
        max_megabytes, per_chunk = info["data_files_size_in_mb"], info["chunks_size"]
        self._data, self._episodes = (
            TableFiles(
                *start, template, max_megabytes_per_file=max_megabytes, files_per_chunk=per_chunk
            )
            for template in (self._data_path, layout.EPISODES)
        )
        self._videos = {
            name: _VideoFilesWriter(*start, name, info, keeps_clips=self._keeps_clips)
            for name in self._cameras
        }
        self._num_files = 0  # The number of data files of other processes.
        self._copied_tables: list[Any] = []  # Tables of the copied episodes.
        close_videos = [videos.close for videos in self._videos.values()]
        for close in (self._data.close, self._episodes.close, *close_videos):
            self._stack.callback(close)

    def _write(self, table: Any, entry: dict[str, Any], rows: NewEpisode) -> None:
        self._total.add(rows.statistics, rows.values)
        size = table_bytes(table)
        entry["data/chunk_index"], entry["data/file_index"] = self._data.add(table, size)
        entry["dataset_from_index"] = self._num_rows
        entry["dataset_to_index"] = self._num_rows + table.num_rows
        for name, files in self._videos.items() if rows.clips else ():
            num_rows, clip = table.num_rows, rows.clips[name]
            chunk, file, start = files.add(clip, num_rows, is_staged=rows.is_staged)
            end = start + num_rows / self._fps
            entry |= dict(zip(layout.video_columns(name), (chunk, file, start, end)))
            if self._is_part:
                entry[layout.video_bytes(name)] = files.last_size
        if self._is_part:
            entry[layout.DATA_BYTES] = size

    def _write_episodes(self) -> None:
        if self._rows:
            self._write_table(self._table())

    def _table(self) -> Any:
        """Returns the pending rows of the table of episodes, without their locations in files."""
        arrow = import_extra("pyarrow")
        rows, self._rows = self._rows, []
        names = dict.fromkeys(name for row in rows for name in row)
        columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
        for name, kind in self._declared_types(names).items():
            columns[name] = arrow.array(columns[name], kind)
        columns |= _statistics_columns(self._statistics)
        self._statistics = []
        return arrow.table(columns)

    def _write_table(self, table: Any) -> None:
        for name, index in zip(("chunk", "file"), self._episodes.file_for(table_bytes(table))):
            table = table.append_column(f"meta/episodes/{name}_index", [np.full(len(table), index)])
        self._episodes.add(table, table_bytes(table))

    def planners(self) -> Mapping[str, Any]:
        return {"": self._data, **self._videos}

    @override
    def add_stored(self, batch: EpisodeBatch, task_columns: Sequence[str]) -> None:
        arrow, episodes = import_extra("pyarrow"), batch.entries
        columns = dict(zip(batch.table.column_names, batch.table.columns))
        numeric_names = [field.name for field in self._schema if is_numeric(field.type)]
        values = {name: flatten_column(columns[name]) for name in numeric_names}
        lengths, sizes = (flatten_column(episodes[name]) for name in ("length", layout.DATA_BYTES))
        number_columns = {
            "episode_index": np.repeat(self._num_episodes + np.arange(len(episodes)), lengths),
            "index": self._num_rows + np.arange(len(batch.table)),
        }
        for name in ("task_index", *task_columns):
            number_columns[name] = self._to_new_indices(name, values[name], batch.task_texts)
        for name, column in number_columns.items():
            if not np.array_equal(column, values[name]):
                episodes = replace_statistics(episodes, name, values[name], column)
                columns[name] = to_arrow(column, self._schema.field(name).type)
        table = arrow.table([columns[name] for name in self._schema.names], schema=self._schema)
        self._total.add_table_quantiles(episodes, values | number_columns)
        location = self._data.add_several(table, lengths.tolist(), sizes.tolist())
        self._copied_tables.append(self._place_rows(episodes, lengths, *location))
        for index, extras in enumerate(batch.extras):
            self._write_extras(extras, index)
        self._num_episodes += len(episodes)
        self._num_rows += len(table)

    def _place_rows(self, episodes: Any, lengths: np.ndarray, chunk: int, file: int) -> Any:
        """Returns the next rows of the table of episodes, with the locations of their data."""
        arrow, num_episodes = import_extra("pyarrow"), len(episodes)
        names = [*layout.user_cells(dict.fromkeys(episodes.column_names))]
        end_rows = self._num_rows + np.cumsum(lengths)
        columns = {
            "episode_index": self._num_episodes + np.arange(num_episodes),
            **{name: episodes[name] for name in ("tasks", "length", *names)},
            "data/chunk_index": np.full(num_episodes, chunk),
            "data/file_index": np.full(num_episodes, file),
            "dataset_from_index": end_rows - lengths,
            "dataset_to_index": end_rows,
            **{name: episodes[name] for name in episodes.column_names if name.startswith("stats/")},
        }
        table = arrow.table(columns)
        types = {field.name: name_items(field.type) for field in table.schema}
        return table.cast(arrow.schema({**types, **self._declared_types(columns)}))

    def _declared_types(self, names: Collection[str]) -> dict[str, Any]:
        """Returns the types of columns of the table of episodes, from the schema."""
        types = {field.name: field.type for field in self._episode_schema or ()}
        return {
            name: types[name]
            for name in names
            if name in types and not name.startswith(layout.EPISODE_GROUPS)
        }

    def table_rows(self) -> Any:
        self._stack.close()
        arrow = import_extra("pyarrow")
        return arrow.concat_tables(self._copied_tables, promote_options="default"), self._total

    def _add_table_rows(
        self, table_rows: Sequence[Any], frames: Mapping[str, Sequence[Any]], lengths: np.ndarray
    ) -> None:
        arrow = import_extra("pyarrow")
        table = arrow.concat_tables([item for item, _ in table_rows], promote_options="default")
        for _, total in table_rows:
            self._total.merge_rows(total)
        statistics = [name for name in table.column_names if name.startswith("stats/")]
        self._total.add_table(table.select(statistics))
        episodes = table.drop_columns(statistics)
        for name in self._videos:
            chunks, files, start_times = map(np.array, zip(*frames[name]))
            cells = chunks, files, start_times, start_times + lengths / self._fps
            for column, values in zip(layout.video_columns(name), cells):
                episodes = episodes.append_column(column, [values])
        for name in statistics:
            episodes = episodes.append_column(name, table[name])
        for start in range(0, len(episodes), _EPISODES_PER_WRITE):
            self._write_table(episodes.slice(start, _EPISODES_PER_WRITE).combine_chunks())
        self._num_files = len(table_rows)

    def _finish(self) -> None:
        self._stack.close()
        if not self._first_file:  # Otherwise the existing rows are in other files.
            self._select_quantiles()
        parquet = import_extra("pyarrow.parquet")
        parquet.write_table(tasks_table(self._texts), self._directory / layout.TASKS)
        write_json(self._directory / layout.STATS, _as_json(self._total.features))

    def _select_quantiles(self) -> None:
        """Computes exact quantiles of all rows, for sketches with an error."""
        selections = self._total.selections()
        select = _QuantileReader(
            self._directory, self._info["chunks_size"], copy.deepcopy(selections)
        )
        num_files = self._num_files or self._data.num_files
        for _, selections_of_file in self._workers(select, range(num_files) if selections else ()):
            for name, selection in selections_of_file.items():
                selections[name].merge(selection)
        self._total.select(selections)

    def _version_entries(self) -> dict[str, Any]:
        return {name: self._info[name] for name in _DEFAULT_SIZES_MB}


@dataclasses.dataclass(frozen=True)
class _QuantileReader:
    """The task of a worker: a second pass over a data file for exact quantiles."""

    directory: Path
    files_per_chunk: int
    selections: Mapping[str, QuantileSelection]

    def __call__(self, file_index: int) -> Mapping[str, QuantileSelection]:
        chunk, file = divmod(file_index, self.files_per_chunk)
        path = self.directory / PATHS["v3.0"][0].format(chunk_index=chunk, file_index=file)
        rows, selections = ParquetRows(path, [*self.selections]), copy.deepcopy(self.selections)
        for start in range(0, rows.num_rows, _ROWS_PER_READ):
            table = rows.read(start, min(start + _ROWS_PER_READ, rows.num_rows))
            for name, selection in selections.items():
                selection.add(flatten_column(table[name]))
        return selections


class _VideoFilesWriter:
    """The writer of clips to the video files of a feature (3.0).

    Args:
      directory: The folder of the dataset.
      first: The index of the first file.
      name: The name of the feature.
      info: The entries of `info.json`.
      keeps_clips: See `DatasetFiles`.

    Attributes:
      last_size: The size of the last added clip, in bytes.
    """

    def __init__(
        self,
        directory: Path,
        first: int,
        name: str,
        info: Mapping[str, Any],
        *,
        keeps_clips: bool = False,
    ) -> None:
        self._directory, self._name, self._keeps_clips = directory, name, keeps_clips
        self._max_bytes = info["video_files_size_in_mb"] * _MEGABYTE
        self._per_chunk, self._fps = info["chunks_size"], float(info["fps"])
        self._writer: VideoWriter | None = None
        self._num_files, self._size, self.last_size = first, 0, 0
        self._last_span: tuple[Span, int] | None = None
        self._planned: tuple[Callable[[], Span], int] | None = None

    def _starts_file(self, span: Span, num_rows: int) -> bool:
        """Returns True if frames need a new file, because they cannot follow the last frames."""
        if (
            (last := self._last_span) is None
            or self._needs_own_file(span, num_rows)
            or self._needs_own_file(*last)
        ):
            return True
        # LeRobot locates a frame by the number of earlier frames.
        is_uneven = abs(last[0].seconds - len(last[0].packets) / self._fps) > _TIME_TOLERANCE_S
        return is_uneven or not span.video.info.can_follow(last[0].video.info)

    def _needs_own_file(self, span: Span, num_rows: int) -> bool:
        info = span.video.info
        has_more = self._keeps_clips and info.num_frames != num_rows
        return span.is_file and (has_more or info.has_audio)

    def plan(self, size: int, num_rows: int, frames: Callable[[], Span], follow: bool) -> bool:
        """Plans the file of staged frames; returns True if they begin a file.

        Args:
          size: The size of the frames in bytes.
          num_rows: The number of rows of their episode.
          frames: A function that returns the frames.
          follow: True if they follow the last planned frames in a staged file.
        """
        is_new_file = self._size + size >= self._max_bytes
        if not follow:
            self._last_span = self._planned and (self._planned[0](), self._planned[1])
            is_new_file |= self._starts_file(frames(), num_rows)
        self._planned = frames, num_rows
        self._size = size + (0 if is_new_file else self._size)
        return is_new_file

    def add(
        self, clip: Frames, num_rows: int, *, is_staged: bool = False
    ) -> tuple[int, int, float]:
        """Writes a clip; returns its chunk, its file, and the time of its first frame.

        Args:
          clip: The clip.
          num_rows: The number of rows of its episode.
          is_staged: True if the clip is in a staged dataset.
        """
        span = clip if isinstance(clip, Span) else clip.span
        # A file that is at least half full is copied unchanged.
        is_full = not span.packets.start and 2 * span.video.size >= self._max_bytes
        is_next = self._starts_file(span, num_rows) or (is_full and not is_staged)
        if is_next or self._size + span.size >= self._max_bytes:
            self.close()
            self._num_files += 1
        self._last_span, self.last_size = (span, num_rows), span.size
        self._size += self.last_size
        chunk, file = divmod(self._num_files - 1, self._per_chunk)
        if self._writer is None:
            path = self._directory / PATHS["v3.0"][1].format(
                video_key=self._name, chunk_index=chunk, file_index=file
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            if self._needs_own_file(span, num_rows):
                return chunk, file, span.copy_file(path)
            self._writer = VideoWriter(path)
        return chunk, file, self._writer.add(span)

    def close(self) -> None:
        """Completes the file."""
        if self._writer is not None:
            self._writer.close()
        self._writer, self._size = None, 0


class _Files21(DatasetFiles):
    """The writer of version 2.1: a file for each episode, and tables in JSON Lines."""

    version: Version = "v2.1"

    def _write(self, table: Any, entry: dict[str, Any], rows: NewEpisode) -> None:
        parquet = import_extra("pyarrow.parquet")
        parquet.write_table(table, self._path(self._data_path), compression="snappy")
        for name in self._cameras:
            self._write_video(rows.clips[name], self._path(self._video_path, name), name)

    def _write_episodes(self) -> None:
        for entry, statistics in zip(self._rows, self._statistics):
            stats = {"episode_index": entry["episode_index"], "stats": _as_json(statistics)}
            _add_line(self._directory / layout.EPISODES_JSONL, entry)
            _add_line(self._directory / layout.EPISODES_STATS, stats)
        self._rows, self._statistics = [], []

    def planners(self) -> Mapping[str, Any]:
        return {"": _EpisodeBatches()}

    def table_rows(self) -> Any:
        return self._rows, self._statistics

    def _add_table_rows(
        self, table_rows: Sequence[Any], frames: Mapping[str, Sequence[Any]], lengths: np.ndarray
    ) -> None:
        for self._rows, self._statistics in table_rows:
            self._write_episodes()

    def _path(self, template: str, video: str = "") -> Path:
        index = self._num_episodes
        chunk = index // self._info["chunks_size"]
        path = self._directory / template.format(
            episode_chunk=chunk, episode_index=index, video_key=video
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _write_video(self, clip: Frames, path: Path, name: str) -> None:
        span = span_of(clip)
        assert span.is_file  # Frames are copied only from files of the same version.
        if (start := span.copy_file(path) * self._fps) > 0.5:
            raise ValueError(
                f"{path.name}, {name}: the episode begins with frame {start:.0f} of its clip, "
                "after the last keyframe. Only version 3.0 can hold that; export to it"
            )

    def _finish(self) -> None:
        for index, text in enumerate(self._texts):
            _add_line(self._directory / layout.TASKS_JSONL, {"task_index": index, "task": text})

    def _version_entries(self) -> dict[str, Any]:
        return {
            "total_videos": self._num_episodes * len(self._cameras),
            "total_chunks": -(-self._num_episodes // self._info["chunks_size"]),
        }


class _EpisodeBatches:
    """A planner of batches of episodes (2.1); a worker writes a batch per call."""

    def __init__(self) -> None:
        self._count = 0

    def plan(self, *_: Any) -> bool:
        self._count += 1
        return self._count % _EPISODES_PER_WRITE == 1


DATASET_FILES: Mapping[Version, type[DatasetFiles]] = {"v3.0": _Files30, "v2.1": _Files21}
"""The writers of datasets, by version."""


def write_below(folder: Path, name: str, data: bytes) -> None:
    """Writes a file of the dataset.

    Raises:
      ValueError: The untrusted name refers to a file outside the folder.
    """
    check_is_below(name)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def check_is_below(name: str) -> None:
    """Checks that an untrusted path of a file stays below the dataset.

    Raises:
      ValueError: The path leaves the dataset.
    """
    if not name or ".." in name.split("/") or name.startswith("/") or {"\\", "\0", ":"} & {*name}:
        raise ValueError(f"{name!r} is not the name of a file below the dataset")


def _add_line(path: Path, value: Any) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(value, ensure_ascii=False) + "\n")


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file in the format of LeRobot."""
    text = json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def _as_json(statistics: Mapping[str, Statistics]) -> dict[str, Any]:
    return {
        name: {kind: value.tolist() for kind, value in kinds.items()}
        for name, kinds in statistics.items()
    }


def _statistics_columns(episodes: Sequence[Mapping[str, Statistics]]) -> dict[str, Any]:
    """Returns the columns of statistics of the table of episodes (3.0)."""
    kinds = dict.fromkeys((name, kind) for item in episodes for name in item for kind in item[name])
    columns: dict[str, Any] = {}
    for name, kind in kinds:
        values = [item.get(name, {}).get(kind) for item in episodes]
        columns[f"stats/{name}/{kind}"] = [v if v is None else v.tolist() for v in values]
    return columns
