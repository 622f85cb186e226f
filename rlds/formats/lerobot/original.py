"""Episodes that came from LeRobot: the tables and the videos that they were in, again."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlds
from rlds.formats.lerobot import layout
from rlds.formats.lerobot.columns import column_of
from rlds.formats.lerobot.dataset_files import (
    DatasetFiles,
    Settings,
    Version,
    add_line,
    dataset_files,
    write_json,
)
from rlds.formats.lerobot.feature_statistics import Statistics, of_column
from rlds.formats.lerobot.layout import EpisodeRow, Info
from rlds.formats.lerobot.source import EXTRA_FILES, IMAGE_FILE, ROW, SKELETON, STATS
from rlds.formats.lerobot.tables import column_array, data_schema, image_array
from rlds.formats.lerobot.video_files import SpooledClips
from rlds.formats.tfds.source import FolderSource
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import Export, Placement
from rlds.sources.source import SourceEpisode, SourceError, files_of
from rlds.sources.texts import as_text
from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds.video.container import Clip, join_clips
from rlds_ecosystem import import_extra
from rlds_ecosystem.nests import leaves_at

__all__ = ["Original", "SameFiles", "SameRows", "is_whole", "order_of"]

# How many rows of the table of episodes are written together.
_ROWS_AT_ONCE = 100
# Columns that number what is written.
_NUMBERS = ("episode_index", "index", "task_index")
# What info.json says in one version, and not in the other.
_OF_VERSIONS = {
    *("total_videos", "total_chunks"),
    *("data_files_size_in_mb", "video_files_size_in_mb"),
}


@dataclasses.dataclass(frozen=True)
class Original:
    """What is known of the dataset that episodes came from.

    Attributes:
      said: What the metadata says: `info`, `tasks`, `schemas`, `files` and `fields`.
      info: `info.json`.
      schema: The schema of the data files.
      task_path: The path of the text of the task.
      spec: The fields of an episode by path, those of a step below `steps`.
    """

    said: Mapping[str, Any]
    info: Info
    schema: Any
    task_path: str
    spec: Mapping[str, Any]

    @classmethod
    def of(cls, episodes: Episodes) -> Original | None:
        """Returns it, if the episodes have all of the fields that they were read with.

        Raises:
          SourceError: The metadata is not what the source says.
        """
        said = episodes.metadata.get(layout.METADATA_KEY)
        spec = dict(leaves_at(episodes.spec, None))
        if not isinstance(said, Mapping) or ROW not in spec:
            return None
        with source_errors(f"metadata of {files_of(episodes.source, 1)}"):
            schema, paths = decoded_schema(said["schemas"]["data"]), said["fields"]
            info = Info.from_json(said["info"], is_v3=said["schemas"]["episodes"] is not None)
            found = cls(said, info, schema, layout.task_path(paths), spec)
            expected = {f"{rlds.STEPS}/{paths[name]}" for name in schema.names}
            expected |= {f"{VIDEO}/{paths[name]}/{CLIP}" for name in info.videos}
            others = {f"{VIDEO}/{paths[name]}/{FRAMES}" for name in info.videos}
            for name in said["files"]:
                _check_is_below(name)
        return found if expected <= spec.keys() and not others & spec.keys() else None

    @property
    def version(self) -> str:
        """The version of the files."""
        return "v3.0" if self.info.is_v3 else str(self.info.raw["codebase_version"])

    def path(self, name: str) -> str:
        """The path of a feature in a step."""
        return str(self.said["fields"][name])

    @property
    def tasks(self) -> list[str]:
        """The texts of the tasks, by their indices."""
        rows = sorted(self.said["tasks"], key=lambda row: row["task_index"])
        return [str(row["task"]) for row in rows]

    def arrays(self, episode: SourceEpisode) -> dict[str, Any]:
        """Returns the columns of an episode, as they were in the tables."""
        steps = dict(leaves_at(episode.steps, None))
        return {
            field.name: self._array(field, steps[self.path(field.name)], steps)
            for field in self.schema
        }

    def _array(self, field: Any, column: np.ndarray, steps: Mapping[str, np.ndarray]) -> Any:
        arrow = import_extra("pyarrow")
        kind = column_of(field, self.info.features.get(field.name)).kind
        if kind == "numbers":
            return column_array(column, field.type)
        if kind == "image":
            paths = map(as_text, steps[f"{IMAGE_FILE}/{self.path(field.name)}"])
            return image_array(column.tolist(), [path or None for path in paths])
        if kind == "bytes":
            return arrow.array(column.tolist(), field.type)
        texts = [as_text(value) for value in column]
        if kind == "json":
            return arrow.array([json.loads(text) for text in texts], field.type)
        return arrow.array(texts, field.type)

    def row(self, episode: SourceEpisode) -> dict[str, Any]:
        """Returns what the tables said of an episode."""
        found: dict[str, Any] = json.loads(as_text(_at(episode, ROW)))
        return found

    def others(self, episode: SourceEpisode) -> dict[str, Any]:
        """Returns what the tables said of an episode that LeRobot itself has no name for."""
        row = self.row(episode)
        return {
            name: value
            for name, value in row.items()
            if name not in layout.EPISODE_COLUMNS and not name.startswith(layout.EPISODE_GROUPS)
        }

    def statistics_line(self, episode: SourceEpisode) -> dict[str, Any] | None:
        """Returns the line of an episode in episodes_stats.jsonl, if there was one."""
        text = as_text(_at(episode, STATS)) if STATS in self.spec else ""
        return json.loads(text) if text else None

    def clip(self, episode: SourceEpisode, name: str, length: int) -> Clip:
        """Returns the frames of an episode."""
        place = f"{VIDEO}/{self.path(name)}"
        first = int(_at(episode, f"{place}/{FIRST}"))
        return Clip(bytes(_at(episode, f"{place}/{CLIP}")), first, length)

    def skeleton(self, episode: SourceEpisode, name: str) -> bytes:
        """Returns what a video file has beside packets, with its first episode."""
        place = f"{SKELETON}/{self.path(name)}"
        return bytes(_at(episode, place)) if place in self.spec else b""

    def write_beside(self, path: Path, episode: SourceEpisode, index: int) -> None:
        """Writes the files of an episode that are no tables and no videos."""
        for place in self.spec:
            if place.startswith(f"{EXTRA_FILES}/") and (data := bytes(_at(episode, place))):
                name = place.removeprefix(f"{EXTRA_FILES}/")
                _check_is_below(name)
                file = path / layout.EXTRAS.format(episode_index=index) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)

    def write_files(self, path: Path, *, without: Sequence[str] = ()) -> None:
        """Writes the small files that are none of an episode."""
        for name, content in self.said["files"].items():
            if name not in without:
                file = path / name
                file.parent.mkdir(parents=True, exist_ok=True)
                data = content.get("text", "").encode() or base64.b64decode(content["base64"])
                file.write_bytes(data)

    def placements(self) -> Iterator[Placement]:
        """Yields where the fields are."""
        names = {self.path(name): name for name in self.schema.names}
        videos = {self.path(name): name for name in self.info.videos}
        for path in self.spec:
            root, _, rest = path.partition("/")
            place = ""
            if root == rlds.STEPS:
                place = names.get(rest.removeprefix(f"{IMAGE_FILE}/"), "")
                place = layout.TASK if rest == self.task_path else place
            elif root in (VIDEO, SKELETON):
                camera = rest.rpartition("/")[0] if root == VIDEO else rest
                place = f"videos/{videos.get(camera, camera)}"
            elif path in (ROW, STATS):
                place = "meta/episodes"
            elif root == EXTRA_FILES:
                place = path
            if place:
                yield Placement(path, place, "exact")


class SameFiles:
    """Writes a dataset as it was: the same rows, tables and videos, in the same files.

    Args:
      original: What is known of it.
    """

    is_exact = True

    def __init__(self, original: Original) -> None:
        self._original = original

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        return list(self._original.placements())

    def write(self, path: Path, export: Export) -> None:
        """Writes the episodes of an export."""
        original = self._original
        (path / "meta").mkdir(parents=True)
        write_json(path / layout.INFO, original.info.raw)
        original.write_files(path)
        videos = {name: _Video(path, original, name) for name in original.info.videos}
        schema = original.said["schemas"]["episodes"]
        rows = _Tables(path, original.schema)
        about = _Tables(path, schema and decoded_schema(schema))
        with contextlib.ExitStack() as stack:
            stack.enter_context(rows)
            stack.enter_context(about)
            for video in videos.values():
                stack.callback(video.clips.clear)
            for episode in export.each():
                raw = original.row(episode)
                row = EpisodeRow.from_json(raw, original.info.videos, is_v3=original.info.is_v3)
                if row.length != episode.num_steps:
                    what = f"it has {episode.num_steps} steps, but had {row.length}"
                    raise SourceError(what, file=path.name, episode=episode.key)
                rows.add(original.info.data_file(row), original.arrays(episode))
                if original.info.is_v3:
                    about.add_row(_place_of(raw), raw)
                else:
                    add_line(path / layout.EPISODES_JSONL, raw)
                if (line := original.statistics_line(episode)) is not None:
                    add_line(path / layout.EPISODES_STATS, line)
                for video in videos.values():
                    video.add(row, episode)
                original.write_beside(path, episode, row.index)
            for video in videos.values():
                video.close()
        _write_tasks(path, original)


class SameRows:
    """Writes the rows of a dataset in another version, or some of its episodes.

    Args:
      original: What is known of it.
      version: The version to write; if None, "v3.0" if it was that, or "v2.1".
      split: The name of the split.
      sizes: How large files become: `Settings` has the names.
    """

    is_exact = False  # Rows, episodes and tasks have other numbers.

    def __init__(
        self, original: Original, version: Version | None, split: str, sizes: Mapping[str, int]
    ) -> None:
        version = version or ("v3.0" if original.info.is_v3 else "v2.1")
        self._original, self._version = original, version
        raw, schema = original.info.raw, original.said["schemas"]["episodes"]
        self._features = {**dict(raw["features"])}
        for name, said in layout.DEFAULT_COLUMNS.items():
            self._features.setdefault(name, said)
        chunks_size = raw.get("chunks_size", 1000)
        self._settings = Settings(
            self._features,
            _readable_by_all(original.schema, self._features),
            original.info.fps,
            raw.get("robot_type"),
            split,
            original.tasks,
            chunks_size=chunks_size,
            data_files_size_in_mb=sizes["data_files_size_in_mb"],
            video_files_size_in_mb=sizes["video_files_size_in_mb"],
            others={name: value for name, value in raw.items() if name not in _OF_VERSIONS},
            episode_schema=schema and decoded_schema(schema),
        )
        if version == "v2.1" and original.info.fps != int(original.info.fps):
            raise ValueError(
                f"fps: {original.info.fps}, but readers of version 2.1 take whole numbers only"
            )

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        original = self._original
        numbers = {f"{rlds.STEPS}/{original.path(name)}" for name in _NUMBERS}
        found = []
        for place in original.placements():
            if place.field in numbers:
                place = dataclasses.replace(place, how="renumbered", why="counted anew")
            found.append(place)
        return found

    def write(self, path: Path, export: Export) -> None:
        """Writes the episodes of an export."""
        original = self._original
        path.mkdir(parents=True)
        with dataset_files(self._version, path, self._settings) as files:
            self._write_episodes(path, files, export)
            files.finish({})
        # Those of all rows are written by `files`.
        original.write_files(path, without=[layout.STATS] if self._version == "v3.0" else [])

    def _write_episodes(self, path: Path, files: DatasetFiles, export: Export) -> None:
        original = self._original
        for index, episode in enumerate(export.each()):
            arrays = original.arrays(episode)
            steps = dict(leaves_at(episode.steps, None))
            if original.task_path in steps:
                tasks = [as_text(value) for value in steps[original.task_path]]
            else:
                tasks = [""] * episode.num_steps
            clips = {
                name: original.clip(episode, name, episode.num_steps)
                for name in original.info.videos
            }
            statistics, others = self._statistics(episode, steps), original.others(episode)
            files.add(arrays, tasks, statistics, clips, others)
            original.write_beside(path, episode, index)

    def _statistics(
        self, episode: SourceEpisode, steps: Mapping[str, np.ndarray]
    ) -> dict[str, Statistics]:
        """Those that the episode came with; without any, those of its numbers."""
        original = self._original
        line = original.statistics_line(episode)
        if line is not None:
            return {name: _as_arrays(found) for name, found in line["stats"].items()}
        stated: dict[str, dict[str, Any]] = {}
        for key, value in original.row(episode).items():
            if key.startswith("stats/") and value is not None:
                name, _, kind = key.removeprefix("stats/").rpartition("/")
                stated.setdefault(name, {})[kind] = value
        if stated:
            return {name: _as_arrays(found) for name, found in stated.items()}
        columns = {name: steps[original.path(name)] for name in original.schema.names}
        return {
            name: of_column(column) for name, column in columns.items() if column.dtype != object
        }


class _Tables:
    """Parquet files with rows in the order in which they come; closes the last one.

    Args:
      directory: The folder that their names begin in.
      schema: That of all of them.
    """

    def __init__(self, directory: Path, schema: Any) -> None:
        self._directory, self._schema = directory, schema
        self._name = ""
        self._writer: Any = None
        self._rows: list[Mapping[str, Any]] = []

    def add(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Adds rows to a file, as a group."""
        self._go_to(name)
        arrow = import_extra("pyarrow")
        table = arrow.table([arrays[column] for column in self._schema.names], schema=self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def add_row(self, name: str, row: Mapping[str, Any]) -> None:
        """Adds a row to a file; some rows are a group."""
        self._go_to(name)
        self._rows.append(row)
        if len(self._rows) == _ROWS_AT_ONCE:
            self._write_rows()

    def _write_rows(self) -> None:
        if self._rows:
            table = import_extra("pyarrow").Table.from_pylist(self._rows, self._schema)
            self._writer.write_table(table)
            self._rows = []

    def _go_to(self, name: str) -> None:
        if name == self._name:
            return
        self._close()
        file = self._directory / name
        if file.exists():
            raise ValueError(f"{name}: its episodes do not follow each other")
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet = import_extra("pyarrow.parquet")
        self._writer = parquet.ParquetWriter(file, self._schema, compression="snappy")
        self._name = name

    def _close(self) -> None:
        if self._writer is not None:
            self._write_rows()
            self._writer.close()

    def __enter__(self) -> _Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


class _Video:
    """The files of a video feature."""

    def __init__(self, directory: Path, original: Original, name: str) -> None:
        self._directory, self._original, self._name = directory, original, name
        self._path = ""
        self.clips = SpooledClips()
        self._skeleton = b""

    def add(self, row: EpisodeRow, episode: SourceEpisode) -> None:
        """Adds the frames of an episode."""
        path = self._original.info.video_file(row, self._name)
        if path != self._path:
            self.close()
            if (self._directory / path).exists():
                raise ValueError(f"{path}: its episodes do not follow each other")
            self._path = path
        self.clips.append(self._original.clip(episode, self._name, row.length))
        self._skeleton = self._skeleton or self._original.skeleton(episode, self._name)

    def close(self) -> None:
        """Writes the file."""
        if len(self.clips):
            file = self._directory / self._path
            file.parent.mkdir(parents=True, exist_ok=True)
            join_clips(self.clips, file, self._skeleton or None)
        self.clips.clear()
        self._skeleton = b""


def _place_of(row: Mapping[str, Any]) -> str:
    """The file that a row of the table of episodes was in."""
    names = ("chunk_index", "file_index")
    return layout.EPISODES.format(**{name: row.get(f"meta/episodes/{name}") or 0 for name in names})


def order_of(episodes: Episodes) -> list[int] | None:
    """Returns the indices of episodes in the order that they had; None if they still have it.

    A dataset of TFDS has them in another one.
    """
    if not isinstance(episodes.source, FolderSource):
        return None
    indices = []
    for index in range(len(episodes)):
        split, number = episodes.place(index)
        found = episodes.source.folder[split].example(number, [ROW])
        row = json.loads(as_text(dict(leaves_at(found, None))[ROW]))
        indices.append(row["episode_index"])
    return sorted(range(len(indices)), key=indices.__getitem__)


def is_whole(episodes: Episodes, original: Original) -> bool:
    """Whether episodes are all that the dataset had."""
    splits = episodes.splits
    is_all = episodes.split == "all" or [episodes.split] == list(splits)
    total = original.info.raw.get("total_episodes")
    return is_all and (not episodes.has_random_access or total in (None, len(episodes)))


@functools.cache
def decoded_schema(text: str) -> Any:
    """Returns the schema that `encoded_schema` returned a text for."""
    arrow = import_extra("pyarrow")
    return import_extra("pyarrow.ipc").read_schema(arrow.py_buffer(base64.b64decode(text)))


def _write_tasks(path: Path, original: Original) -> None:
    arrow, parquet = import_extra("pyarrow"), import_extra("pyarrow.parquet")
    rows, schema = original.said["tasks"], original.said["schemas"]["tasks"]
    if schema is not None:
        table = arrow.Table.from_pylist(rows, decoded_schema(schema))
        parquet.write_table(table, path / layout.TASKS)
        return
    for row in rows:
        add_line(path / layout.TASKS_JSONL, row)


def _readable_by_all(schema: Any, features: Mapping[str, Mapping[str, Any]]) -> Any:
    """A schema whose metadata readers of all versions know."""
    known = (schema.metadata or {}).get(b"huggingface")
    if known is None:
        plain = {name: features[name] for name in schema.names if name in features}
        known = data_schema(plain).metadata[b"huggingface"]
    said = json.dumps(_as_sequences(json.loads(known)))
    return schema.with_metadata({**(schema.metadata or {}), b"huggingface": said.encode()})


def _as_sequences(said: Any) -> Any:
    if isinstance(said, list):
        return [_as_sequences(value) for value in said]
    if not isinstance(said, dict):
        return said
    return {
        name: "Sequence" if (name, value) == ("_type", "List") else _as_sequences(value)
        for name, value in said.items()
    }


def _as_arrays(found: Mapping[str, Any]) -> Statistics:
    return {
        name: np.asarray(value, np.int64 if name == "count" else np.float64)
        for name, value in found.items()
    }


def _check_is_below(name: str) -> None:
    """Checks that a file of the dataset cannot be elsewhere: others may have made the metadata.

    Raises:
      ValueError: It can be.
    """
    if not name or ".." in name.split("/") or name.startswith("/") or {"\\", "\0", ":"} & {*name}:
        raise ValueError(f"a file of the dataset cannot be {name!r}")


def _at(episode: SourceEpisode, path: str) -> Any:
    return dict(leaves_at(episode.metadata, None))[path]
