"""Writes the files of a LeRobot dataset, episode by episode: version 3.0 or 2.1."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from rlds.formats.lerobot import layout
from rlds.formats.lerobot.feature_statistics import Statistics, Total, of_column
from rlds.formats.lerobot.tables import TableFiles, column_array, tasks_table
from rlds.formats.lerobot.video_files import VideoFiles
from rlds.video.container import Clip, JoinedClip, join_clips
from rlds_ecosystem import import_extra

__all__ = ["DatasetFiles", "Settings", "Version", "add_line", "dataset_files", "write_json"]

Version: TypeAlias = Literal["v3.0", "v2.1"]

# The names of files, as LeRobot gives them.
_DATA_30 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_DATA_21 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_VIDEO_30 = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_VIDEO_21 = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
# How many rows of the table of episodes are written together.
_EPISODES_AT_ONCE = 100


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is said of a dataset as a whole.

    Attributes:
      features: What `info.json` says of the features, of videos and of those that all datasets
        have, too.
      schema: The schema of the rows.
      fps: How many rows there are in a second.
      robot_type: What robot it is, if that is known.
      split: The name of the split.
      tasks: The texts of tasks, as far as they are known, in order.
      data_files_size_in_mb: How large files of rows become.
      video_files_size_in_mb: How large videos become; with 0, each clip is one, byte by byte.
      chunks_size: How many files (3.0), or episodes (2.1), a folder has.
      others: What else `info.json` says.
      episode_schema: The types of further columns of the table of episodes (3.0), if known.
    """

    features: Mapping[str, Mapping[str, Any]]
    schema: Any
    fps: float
    robot_type: str | None
    split: str
    tasks: Sequence[str] = ()
    data_files_size_in_mb: float = 100
    video_files_size_in_mb: float = 200
    chunks_size: int = 1000
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    episode_schema: Any = None

    @property
    def videos(self) -> list[str]:
        """The names of the video features."""
        return [name for name, said in self.features.items() if said["dtype"] == "video"]


class DatasetFiles(abc.ABC):
    """The files of a dataset that is being written; as a context manager, it closes them.

    Args:
      directory: The folder of the dataset, which exists.
      settings: What is said of it.
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory, self._settings = directory, settings
        self._tasks = {text: index for index, text in enumerate(settings.tasks)}
        self._num_episodes = self._num_rows = 0
        self._stack = contextlib.ExitStack()
        (directory / layout.INFO).parent.mkdir(exist_ok=True)

    def __enter__(self) -> DatasetFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(
        self,
        columns: Mapping[str, Any],
        tasks: Sequence[str],
        statistics: Mapping[str, Statistics],
        clips: Mapping[str, Clip],
        others: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes an episode.

        Args:
          columns: The columns of the features, as they are in tables. Those that number rows,
            episodes and tasks are made here; so are times, if there are none.
          tasks: The text of the task of each row.
          statistics: Those of the features.
          clips: The frames of the video features.
          others: What else the table of episodes says of it.
        """
        arrow = import_extra("pyarrow")
        num_rows = len(tasks)
        frames = np.arange(num_rows)
        texts = list(dict.fromkeys(tasks))
        for text in texts:
            self._tasks.setdefault(text, len(self._tasks))
        made: dict[str, np.ndarray] = {
            "episode_index": np.full(num_rows, self._num_episodes),
            "index": self._num_rows + frames,
            "task_index": np.array([self._tasks[text] for text in tasks]),
        }
        if "timestamp" not in columns:
            made["timestamp"] = (frames / self._settings.fps).astype(np.float32)
            made["frame_index"] = frames
        schema = self._settings.schema
        arrays = dict(columns)
        for name in made.keys() & {*schema.names}:
            arrays[name] = column_array(made[name], schema.field(name).type)
        table = arrow.table([arrays[name] for name in schema.names], schema=schema)
        found = {**statistics, **{name: of_column(column) for name, column in made.items()}}
        self._write(table, texts, found, clips, others or {})
        self._num_episodes += 1
        self._num_rows += num_rows

    def finish(self, features: Mapping[str, Mapping[str, Any]]) -> None:
        """Completes the files.

        Args:
          features: What is known of features by now, by name.
        """
        self._finish()
        fps, others = self._settings.fps, self._settings.others
        splits = {self._settings.split: f"0:{self._num_episodes}"}
        if "splits" in others and others.get("total_episodes") == self._num_episodes:
            splits = others["splits"]
        info = {
            **others,
            "codebase_version": self.version,
            "robot_type": self._settings.robot_type,
            "total_episodes": self._num_episodes,
            "total_frames": self._num_rows,
            "total_tasks": len(self._tasks),
            "chunks_size": self._settings.chunks_size,
            "fps": int(fps) if fps == int(fps) else fps,
            "splits": splits,
            **self._said(),
            "features": {
                name: {**said, **features.get(name, {})}
                for name, said in self._settings.features.items()
            },
        }
        write_json(self._directory / layout.INFO, info)

    @property
    @abc.abstractmethod
    def version(self) -> Version:
        """The version of the format."""

    @abc.abstractmethod
    def _write(
        self,
        table: Any,
        tasks: Sequence[str],
        statistics: Mapping[str, Statistics],
        clips: Mapping[str, Clip],
        others: Mapping[str, Any],
    ) -> None:
        """Writes the next episode."""

    @abc.abstractmethod
    def _finish(self) -> None:
        """Completes all files but `info.json`."""

    @abc.abstractmethod
    def _said(self) -> dict[str, Any]:
        """Returns what only this version says in `info.json`."""


class _Files30(DatasetFiles):
    """Many episodes in a file, and tables of all else."""

    version: Version = "v3.0"

    def __init__(self, directory: Path, settings: Settings) -> None:
        super().__init__(directory, settings)
        most, per_chunk = settings.data_files_size_in_mb, settings.chunks_size
        self._data, self._episodes = (
            TableFiles(directory, template, most_megabytes=most, files_per_chunk=per_chunk)
            for template in (_DATA_30, layout.EPISODES)
        )
        self._videos = {
            name: VideoFiles(
                directory,
                _VIDEO_30,
                name,
                most_megabytes=settings.video_files_size_in_mb,
                files_per_chunk=per_chunk,
            )
            for name in settings.videos
        }
        for tables in (self._data, self._episodes):
            self._stack.callback(tables.close)
        for files in self._videos.values():
            self._stack.callback(files.clips.clear)
        self._total = Total()
        self._rows: list[dict[str, Any]] = []
        self._ready = 0  # How many of the first of them have videos that are complete.

    def _write(
        self,
        table: Any,
        tasks: Sequence[str],
        statistics: Mapping[str, Statistics],
        clips: Mapping[str, Clip],
        others: Mapping[str, Any],
    ) -> None:
        chunk, file = self._data.add(table)
        self._total.add(statistics)
        row: dict[str, Any] = {
            **others,
            "episode_index": self._num_episodes,
            "tasks": list(tasks),
            "length": table.num_rows,
            "data/chunk_index": chunk,
            "data/file_index": file,
            "dataset_from_index": self._num_rows,
            "dataset_to_index": self._num_rows + table.num_rows,
        }
        for name in self._videos:
            row |= dict.fromkeys(layout.video_columns(name))
        for feature, found in statistics.items():
            row |= {f"stats/{feature}/{name}": value.tolist() for name, value in found.items()}
        self._rows.append(row)
        for name, files in self._videos.items():
            files.add(clips[name], functools.partial(self._place_frames, row, name))
        self._write_episodes(_EPISODES_AT_ONCE)

    def _place_frames(
        self, row: dict[str, Any], name: str, chunk: int, file: int, place: JoinedClip
    ) -> None:
        end = place.begin_time + (place.end - place.begin) / self._settings.fps
        row |= dict(zip(layout.video_columns(name), (chunk, file, place.begin_time, end)))

    def _write_episodes(self, at_least: int) -> None:
        """Writes rows whose videos are complete, if there are so many."""
        marks = [layout.video_columns(name)[0] for name in self._videos]
        while self._ready < len(self._rows) and None not in map(self._rows[self._ready].get, marks):
            self._ready += 1
        if self._ready < at_least:
            return
        number, self._ready = self._ready, 0
        arrow = import_extra("pyarrow")
        rows, self._rows = self._rows[:number], self._rows[number:]
        names = dict.fromkeys(name for row in rows for name in row)
        columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
        for field in self._settings.episode_schema or ():
            if field.name in names and not field.name.startswith(layout.EPISODE_GROUPS):
                columns[field.name] = arrow.array(columns[field.name], field.type)
        chunk, file = self._episodes.place(number)
        columns["meta/episodes/chunk_index"] = [chunk] * number
        columns["meta/episodes/file_index"] = [file] * number
        self._episodes.add(arrow.table(columns))

    def _finish(self) -> None:
        for files in self._videos.values():
            files.close()
        self._write_episodes(1)
        self._data.close()
        self._episodes.close()
        parquet = import_extra("pyarrow.parquet")
        parquet.write_table(tasks_table(list(self._tasks)), self._directory / layout.TASKS)
        write_json(self._directory / layout.STATS, _as_json(self._total.features))

    def _said(self) -> dict[str, Any]:
        return {
            "data_files_size_in_mb": self._settings.data_files_size_in_mb,
            "video_files_size_in_mb": self._settings.video_files_size_in_mb or 200,
            "data_path": _DATA_30,
            "video_path": _VIDEO_30 if self._videos else None,
        }


class _Files21(DatasetFiles):
    """A file for each episode, and lines of JSON."""

    version: Version = "v2.1"

    def _write(
        self,
        table: Any,
        tasks: Sequence[str],
        statistics: Mapping[str, Statistics],
        clips: Mapping[str, Clip],
        others: Mapping[str, Any],
    ) -> None:
        parquet = import_extra("pyarrow.parquet")
        parquet.write_table(table, self._path(_DATA_21), compression="snappy")
        for name in self._settings.videos:
            self._write_video(clips[name], self._path(_VIDEO_21, name), name)
        row = {"episode_index": self._num_episodes, "tasks": list(tasks), "length": table.num_rows}
        row |= others
        add_line(self._directory / layout.EPISODES_JSONL, row)
        found = {"episode_index": self._num_episodes, "stats": _as_json(statistics)}
        add_line(self._directory / layout.EPISODES_STATS, found)

    def _path(self, template: str, video: str = "") -> Path:
        index = self._num_episodes
        chunk = index // self._settings.chunks_size
        path = self._directory / template.format(
            episode_chunk=chunk, episode_index=index, video_key=video
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _write_video(self, clip: Clip, path: Path, name: str) -> None:
        [place] = join_clips([clip], path)
        if place.begin_time * self._settings.fps > 0.5:
            raise ValueError(
                f"{path.name}, {name}: its frames begin with number {place.begin} of the clip, as "
                "there is no other keyframe before; version 3.0 has a place for that, 2.1 has not"
            )

    def _finish(self) -> None:
        for text, index in self._tasks.items():
            add_line(self._directory / layout.TASKS_JSONL, {"task_index": index, "task": text})

    def _said(self) -> dict[str, Any]:
        return {
            "total_videos": self._num_episodes * len(self._settings.videos),
            "total_chunks": -(-self._num_episodes // self._settings.chunks_size),
            "data_path": _DATA_21,
            "video_path": _VIDEO_21 if self._settings.videos else None,
        }


def dataset_files(version: Version, directory: Path, settings: Settings) -> DatasetFiles:
    """Returns the files of a dataset to be written."""
    return (_Files30 if version == "v3.0" else _Files21)(directory, settings)


def add_line(path: Path, value: Any) -> None:
    """Adds a line of JSON to a file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(value, ensure_ascii=False) + "\n")


def write_json(path: Path, value: Any) -> None:
    """Writes a file of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")


def _as_json(statistics: Mapping[str, Statistics]) -> dict[str, Any]:
    return {
        name: {kind: value.tolist() for kind, value in found.items()}
        for name, found in statistics.items()
    }
