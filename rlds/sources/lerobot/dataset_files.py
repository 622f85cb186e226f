"""Writes the files of a LeRobot dataset, episode by episode: version 3.0 or 2.1."""

from __future__ import annotations

import abc
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from rlds.sources.lerobot import layout
from rlds.sources.lerobot.feature_statistics import Statistics, Total, of_column
from rlds.sources.lerobot.tables import TableFiles, column_array, data_schema, tasks_table
from rlds_ecosystem import import_extra

__all__ = ["DatasetFiles", "Settings", "Version", "dataset_files"]

Version: TypeAlias = Literal["v3.0", "v2.1"]

# The names of files, as LeRobot gives them.
_DATA_30 = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_DATA_21 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
# How many rows of the table of episodes are written together.
_EPISODES_AT_ONCE = 100


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is said of a dataset as a whole.

    Attributes:
      features: What `info.json` says of the features, without those that all datasets have.
      fps: How many rows there are in a second.
      robot_type: What robot it is, if that is known.
      split: The name of the split.
      data_files_size_in_mb: How large files of rows become.
      video_files_size_in_mb: How large videos become.
      chunks_size: How many files (3.0), or episodes (2.1), a folder has.
    """

    features: Mapping[str, Mapping[str, Any]]
    fps: float
    robot_type: str | None
    split: str
    data_files_size_in_mb: int
    video_files_size_in_mb: int
    chunks_size: int = 1000


class DatasetFiles(abc.ABC):
    """The files of a dataset that is being written.

    Args:
      directory: The folder of the dataset, which exists.
      settings: What is said of it.
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory, self._settings = directory, settings
        self._features = {**settings.features, **layout.DEFAULT_COLUMNS}
        self._schema = data_schema(self._features)
        self._tasks: dict[str, int] = {}
        self._num_episodes = self._num_rows = 0
        (directory / layout.INFO).parent.mkdir(exist_ok=True)

    def add(
        self,
        columns: Mapping[str, Any],
        tasks: Sequence[str],
        statistics: Mapping[str, Statistics],
    ) -> None:
        """Writes an episode.

        Args:
          columns: The columns of the features, as they are in tables.
          tasks: The text of the task of each row.
          statistics: Those of the features.
        """
        num_rows, begin = len(tasks), self._num_rows
        frames = np.arange(num_rows)
        texts = list(dict.fromkeys(tasks))
        for text in texts:
            self._tasks.setdefault(text, len(self._tasks))
        always: dict[str, np.ndarray] = {
            "timestamp": (frames / self._settings.fps).astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(num_rows, self._num_episodes),
            "index": begin + frames,
            "task_index": np.array([self._tasks[text] for text in tasks]),
        }
        arrays = dict(columns)
        for name, column in always.items():
            arrays[name] = column_array(column, self._schema.field(name).type)
        arrow = import_extra("pyarrow")
        table = arrow.table([arrays[name] for name in self._schema.names], schema=self._schema)
        found = {**statistics, **{name: of_column(column) for name, column in always.items()}}
        self._write(table, texts, found)
        self._num_episodes += 1
        self._num_rows += num_rows

    def finish(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Completes the files.

        Args:
          shapes: The shapes of features that were not known before.
        """
        self._finish()
        features = {
            name: {**feature, "shape": list(shapes.get(name, feature["shape"]))}
            for name, feature in self._features.items()
        }
        fps = self._settings.fps
        info = {
            "codebase_version": self.version,
            "robot_type": self._settings.robot_type,
            "total_episodes": self._num_episodes,
            "total_frames": self._num_rows,
            "total_tasks": len(self._tasks),
            "chunks_size": self._settings.chunks_size,
            "fps": int(fps) if fps == int(fps) else fps,
            "splits": {self._settings.split: f"0:{self._num_episodes}"},
            **self._said(),
            "features": features,
        }
        _write_json(self._directory / layout.INFO, info)

    @property
    @abc.abstractmethod
    def version(self) -> Version:
        """The version of the format."""

    @abc.abstractmethod
    def _write(
        self, table: Any, tasks: Sequence[str], statistics: Mapping[str, Statistics]
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
        self._total = Total()
        self._rows: list[dict[str, Any]] = []

    def _write(
        self, table: Any, tasks: Sequence[str], statistics: Mapping[str, Statistics]
    ) -> None:
        chunk, file = self._data.add(table)
        self._total.add(statistics)
        numbers = {
            f"stats/{feature}/{name}": value.tolist()
            for feature, found in statistics.items()
            for name, value in found.items()
        }
        row = {
            "episode_index": self._num_episodes,
            "tasks": list(tasks),
            "length": table.num_rows,
            "data/chunk_index": chunk,
            "data/file_index": file,
            "dataset_from_index": self._num_rows,
            "dataset_to_index": self._num_rows + table.num_rows,
            **numbers,
        }
        self._rows.append(row)
        if len(self._rows) == _EPISODES_AT_ONCE:
            self._write_episodes()

    def _write_episodes(self) -> None:
        if self._rows:
            arrow = import_extra("pyarrow")
            columns = {name: [row[name] for row in self._rows] for name in self._rows[0]}
            chunk, file = self._episodes.place(len(self._rows))
            columns["meta/episodes/chunk_index"] = [chunk] * len(self._rows)
            columns["meta/episodes/file_index"] = [file] * len(self._rows)
            self._episodes.add(arrow.table(columns))
            self._rows = []

    def _finish(self) -> None:
        self._write_episodes()
        self._data.close()
        self._episodes.close()
        parquet = import_extra("pyarrow.parquet")
        parquet.write_table(tasks_table(list(self._tasks)), self._directory / layout.TASKS)
        _write_json(self._directory / layout.STATS, _as_json(self._total.features))

    def _said(self) -> dict[str, Any]:
        return {
            "data_files_size_in_mb": self._settings.data_files_size_in_mb,
            "video_files_size_in_mb": self._settings.video_files_size_in_mb,
            "data_path": _DATA_30,
            "video_path": None,
        }


class _Files21(DatasetFiles):
    """A file for each episode, and lines of JSON."""

    version: Version = "v2.1"

    def _write(
        self, table: Any, tasks: Sequence[str], statistics: Mapping[str, Statistics]
    ) -> None:
        parquet = import_extra("pyarrow.parquet")
        index = self._num_episodes
        name = _DATA_21.format(
            episode_chunk=index // self._settings.chunks_size, episode_index=index
        )
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path, compression="snappy")
        row = {"episode_index": index, "tasks": list(tasks), "length": table.num_rows}
        self._add_line(layout.EPISODES_JSONL, row)
        found = {"episode_index": index, "stats": _as_json(statistics)}
        self._add_line(layout.EPISODES_STATS, found)

    def _add_line(self, name: str, value: Any) -> None:
        with open(self._directory / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(value, ensure_ascii=False) + "\n")

    def _finish(self) -> None:
        for text, index in self._tasks.items():
            self._add_line(layout.TASKS_JSONL, {"task_index": index, "task": text})

    def _said(self) -> dict[str, Any]:
        return {
            "total_videos": 0,
            "total_chunks": -(-self._num_episodes // self._settings.chunks_size),
            "data_path": _DATA_21,
            "video_path": None,
        }


def dataset_files(version: Version, directory: Path, settings: Settings) -> DatasetFiles:
    """Returns the files of a dataset to be written."""
    return (_Files30 if version == "v3.0" else _Files21)(directory, settings)


def _as_json(statistics: Mapping[str, Statistics]) -> dict[str, Any]:
    return {
        name: {kind: value.tolist() for kind, value in found.items()}
        for name, found in statistics.items()
    }


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
