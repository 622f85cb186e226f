"""Episodes that came from LeRobot: the same rows and packets, in files of the current layout."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlds
from rlds.formats.lerobot import layout
from rlds.formats.lerobot.columns import column_of
from rlds.formats.lerobot.dataset_files import Rows, Settings, Version, dataset_files
from rlds.formats.lerobot.feature_statistics import Statistics, of_column
from rlds.formats.lerobot.layout import Info
from rlds.formats.lerobot.small_files import decoded_schema
from rlds.formats.lerobot.source import EXTRA_FILES, IMAGE_FILE, ROW
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

__all__ = ["LeRobotRows", "came_from_lerobot", "order_of"]

# Columns that number what is written.
_NUMBERS = ("episode_index", "index", "task_index")
# What info.json says in one version, and not in the other.
_OF_VERSIONS = {
    *("total_videos", "total_chunks"),
    *("data_files_size_in_mb", "video_files_size_in_mb"),
}


class LeRobotRows:
    """Writes the rows of a dataset, or of some of its episodes, in the current layout.

    Args:
      episodes: The episodes, see `came_from_lerobot`.
      version: The version to write; if None, that which it was.
      sizes: How large files become: `Settings` has the names.

    Attributes:
      paths: The paths of features in a step, by name.

    Raises:
      SourceError: The metadata is not what LeRobot's source says.
      ValueError: The version cannot hold the rows.
    """

    def __init__(
        self, episodes: Episodes, version: Version | None, sizes: Mapping[str, int]
    ) -> None:
        said = episodes.metadata[layout.METADATA_KEY]
        self._spec = dict(leaves_at(episodes.spec, None))
        with source_errors(f"metadata of {files_of(episodes.source, 1)}"):
            self.paths: Mapping[str, str] = said["fields"]
            self._files: Mapping[str, Mapping[str, str]] = said["files"]
            for name in self._files:
                _check_is_below(name)
            schemas = said["schemas"]
            self._schema = decoded_schema(schemas["data"])
            self._info = Info.from_json(said["info"], is_v3=schemas["episodes"] is not None)
            self._task_path = layout.task_path(self.paths)
            tasks = sorted(said["tasks"], key=lambda row: row["task_index"])
            raw, fps = self._info.raw, self._info.fps
            features = raw["features"] | {
                name: said
                for name, said in layout.DEFAULT_COLUMNS.items()
                if name not in raw["features"]
            }
            self._settings = Settings(
                features,
                _readable_by_all(self._schema, features),
                fps,
                raw.get("robot_type"),
                episodes.split,
                [str(row["task"]) for row in tasks],
                chunks_size=raw.get("chunks_size", 1000),
                others={name: value for name, value in raw.items() if name not in _OF_VERSIONS},
                episode_schema=schemas["episodes"] and decoded_schema(schemas["episodes"]),
                **sizes,
            )
        self._version: Version = version or ("v3.0" if self._info.is_v3 else "v2.1")
        if self._version == "v2.1" and fps != int(fps):
            raise ValueError(f"fps: {fps}, but readers of version 2.1 take whole numbers only")

    @property
    def unchecked(self) -> set[str]:
        """Fields that name places, hold a file, or are made by options of the source."""
        files = {path for path in self._spec if path.startswith(f"{VIDEO}/")}
        ends = {f"{rlds.STEPS}/{name}" for name in (rlds.IS_TERMINAL, rlds.DISCOUNT)}
        return {"key", "truncated", ROW, *files, *ends}

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        places = {self._task_path: layout.TASK}
        for name in self._schema.names:
            places |= {self.paths[name]: name, f"{IMAGE_FILE}/{self.paths[name]}": name}
        places = {f"{rlds.STEPS}/{path}": place for path, place in places.items()}
        for name in self._info.videos:
            for part in (CLIP, FIRST):
                places[f"{VIDEO}/{self.paths[name]}/{part}"] = f"videos/{name}"
        places |= {path: path for path in self._spec if path.startswith(f"{EXTRA_FILES}/")}
        places[ROW] = "meta/episodes"
        numbers = {f"{rlds.STEPS}/{self.paths[name]}" for name in _NUMBERS}
        return [
            Placement(path, places[path], "renumbered", "counted anew")
            if path in numbers
            else Placement(path, places[path], "exact")
            for path in self._spec
            if path in places
        ]

    def write(self, path: Path, export: Export) -> None:
        """Writes the episodes of an export."""
        path.mkdir(parents=True)
        with dataset_files(self._version, path, self._settings) as files:
            for index, episode in enumerate(export.each()):
                files.add(self._rows(episode))
                folder = path / layout.EXTRAS.format(episode_index=index)
                for name, data in dict(leaves_at(episode.metadata, None)).items():
                    if name.startswith(f"{EXTRA_FILES}/") and data:
                        _write_file(folder, name.removeprefix(f"{EXTRA_FILES}/"), bytes(data))
            files.finish({})
        for name, content in self._files.items():
            if name != layout.STATS or self._version == "v2.1":  # Those of 3.0 are computed.
                data = content.get("text", "").encode() or base64.b64decode(content["base64"])
                _write_file(path, name, data)

    def _rows(self, episode: SourceEpisode) -> Rows:
        steps = dict(leaves_at(episode.steps, None))
        about = dict(leaves_at(episode.metadata, None))
        tasks = [""] * episode.num_steps
        if self._task_path in steps:
            tasks = [as_text(value) for value in steps[self._task_path]]
        clips = {}
        for name in self._info.videos:
            camera = f"{VIDEO}/{self.paths[name]}"
            data, first = bytes(about[f"{camera}/{CLIP}"]), int(about[f"{camera}/{FIRST}"])
            clips[name] = Clip(data, first, episode.num_steps)
        said: dict[str, Any] = json.loads(as_text(about[ROW]))
        others = {
            name: value
            for name, value in said.items()
            if name not in layout.EPISODE_COLUMNS and not name.startswith(layout.EPISODE_GROUPS)
        }
        arrays = {field.name: self._array(field, steps) for field in self._schema}
        return Rows(arrays, tasks, self._statistics(said, steps), clips, others)

    def _array(self, field: Any, steps: Mapping[str, np.ndarray]) -> Any:
        """A column, as it was in the data files."""
        arrow = import_extra("pyarrow")
        path = self.paths[field.name]
        kind = column_of(field, self._info.features.get(field.name)).kind
        if kind == "numbers":
            return column_array(steps[path], field.type)
        if kind == "image":
            names = map(as_text, steps[f"{IMAGE_FILE}/{path}"])
            return image_array(steps[path].tolist(), [name or None for name in names])
        if kind == "bytes":
            return arrow.array(steps[path].tolist(), field.type)
        texts = [as_text(value) for value in steps[path]]
        values = [json.loads(text) for text in texts] if kind == "json" else texts
        return arrow.array(values, field.type)

    def _statistics(
        self, said: Mapping[str, Any], steps: Mapping[str, np.ndarray]
    ) -> dict[str, Statistics]:
        """Those that the episode came with; without any, those of its numbers."""
        found: dict[str, Statistics] = {}
        for key, value in said.items():
            if key.startswith("stats/") and value is not None:
                name, _, kind = key.removeprefix("stats/").rpartition("/")
                dtype = np.int64 if kind == "count" else np.float64
                found.setdefault(name, {})[kind] = np.asarray(value, dtype)
        columns = {name: steps[self.paths[name]] for name in self._schema.names}
        numbers = {name: column for name, column in columns.items() if column.dtype != object}
        return found or {name: of_column(column) for name, column in numbers.items()}


def came_from_lerobot(episodes: Episodes) -> bool:
    """Whether episodes have all of the fields that LeRobot's source gives, with clips as packets.

    Raises:
      SourceError: The metadata is not what the source says.
    """
    said = episodes.metadata.get(layout.METADATA_KEY)
    spec = dict(leaves_at(episodes.spec, None))
    if not isinstance(said, Mapping) or ROW not in spec:
        return False
    needed, frames = set(), set()
    with source_errors(f"metadata of {files_of(episodes.source, 1)}"):
        features = said["info"]["features"]
        for name, path in said["fields"].items():
            if features.get(name, {}).get("dtype") == "video":
                needed.add(f"{VIDEO}/{path}/{CLIP}")
                frames.add(f"{VIDEO}/{path}/{FRAMES}")
            else:
                needed.add(f"{rlds.STEPS}/{path}")
    return needed <= spec.keys() and not frames & spec.keys()


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


def _write_file(folder: Path, name: str, data: bytes) -> None:
    _check_is_below(name)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def _check_is_below(name: str) -> None:
    """Checks that a file of the dataset cannot be elsewhere: others may have made the metadata.

    Raises:
      ValueError: It can be.
    """
    if not name or ".." in name.split("/") or name.startswith("/") or {"\\", "\0", ":"} & {*name}:
        raise ValueError(f"a file of the dataset cannot be {name!r}")
