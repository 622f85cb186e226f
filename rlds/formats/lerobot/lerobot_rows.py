"""Episodes that came from LeRobot: the same rows and packets, in files of the current layout."""

from __future__ import annotations

import base64
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
    dataset_files,
)
from rlds.formats.lerobot.feature_statistics import Statistics, of_column
from rlds.formats.lerobot.layout import Info
from rlds.formats.lerobot.source import EXTRA_FILES, IMAGE_FILE, ROW, STATS
from rlds.formats.lerobot.tables import column_array, data_schema, image_array
from rlds.formats.tfds.source import FolderSource
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import Export, Placement
from rlds.sources.source import SourceEpisode, files_of
from rlds.sources.texts import as_text
from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds.video.container import Clip
from rlds_ecosystem import import_extra
from rlds_ecosystem.nests import leaves_at

__all__ = ["LeRobotRows", "Original", "order_of"]

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
            elif root == VIDEO:
                camera = rest.rpartition("/")[0]
                place = f"videos/{videos.get(camera, camera)}"
            elif path in (ROW, STATS):
                place = "meta/episodes"
            elif root == EXTRA_FILES:
                place = path
            if place:
                yield Placement(path, place, "exact")


class LeRobotRows:
    """Writes the rows of a dataset, or of some of its episodes, in the current layout.

    Args:
      original: What is known of it.
      version: The version to write; if None, "v3.0" if it was that, or "v2.1".
      split: The name of the split.
      sizes: How large files become: `Settings` has the names.
    """

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

    @property
    def unchecked(self) -> set[str]:
        """Fields that name places, hold a file, or are made by options of the source."""
        files = {path for path in self._original.spec if path.startswith(f"{VIDEO}/")}
        ends = {f"{rlds.STEPS}/{name}" for name in (rlds.IS_TERMINAL, rlds.DISCOUNT)}
        return {"key", "truncated", ROW, STATS, *files, *ends}

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


@functools.cache
def decoded_schema(text: str) -> Any:
    """Returns the schema that `encoded_schema` returned a text for."""
    arrow = import_extra("pyarrow")
    return import_extra("pyarrow.ipc").read_schema(arrow.py_buffer(base64.b64decode(text)))


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
