"""The files of LeRobot datasets, and their contents: versions 2.0, 2.1 and 3.0.

    meta/info.json               features, counts, templates of file names
    meta/stats.json              statistics of all features; not in 2.1, may be missing in 3.0
    data/...parquet              the rows; a file per episode (2.x), or per many episodes (3.0)
    videos/...mp4                the frames of video features, in files per episode or episodes
    meta/tasks.jsonl             2.x: the texts of tasks, by `task_index`
    meta/episodes.jsonl          2.x: a line for each episode
    meta/episodes_stats.jsonl    2.1: the statistics of each episode
    meta/tasks.parquet           3.0: the texts of tasks; the text is an index of pandas
    meta/episodes/...parquet     3.0: a row for each episode, with its statistics
    meta/rlds.json               the digest of the sidecar; LeRobot warns of new keys in info.json
    .rlds/...                    the sidecar, which LeRobot ignores

A feature becomes a field of steps, with slashes instead of dots in its name (`step_paths`):
`observation.images.top` is `observation/images/top`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import rlds
from rlds.raw_files.untrusted import SourceError
from rlds.video.fields import PER_METRE, depths_of_codes
from rlds_ecosystem.model.fields import DepthCodes, Field
from rlds_ecosystem.model.nests import is_below

__all__ = [
    "DATA_BYTES",
    "DEFAULT_COLUMNS",
    "DIGEST",
    "EPISODES",
    "EPISODES_FOLDER",
    "EPISODES_JSONL",
    "EPISODES_STATS",
    "EPISODE_COLUMNS",
    "EPISODE_GROUPS",
    "EXTRAS",
    "IMAGE_NAMES",
    "INDEX_COLUMNS",
    "INFO",
    "LANGUAGE_INSTRUCTION",
    "LEGACY_SIDECAR",
    "METADATA_KEY",
    "STATS",
    "TABLE",
    "TASK",
    "TASKS",
    "TASKS_JSONL",
    "Info",
    "LeRobotFeature",
    "depth_info",
    "episode_key",
    "step_paths",
    "task_path",
    "user_cells",
    "video_bytes",
    "video_columns",
]

INFO = "meta/info.json"
STATS = "meta/stats.json"
TASKS = "meta/tasks.parquet"
TASKS_JSONL = "meta/tasks.jsonl"
EPISODES_FOLDER = "meta/episodes"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_JSONL = "meta/episodes.jsonl"
EPISODES_STATS = "meta/episodes_stats.jsonl"
EXTRAS = "extras/episode_{episode_index}"
# The path of the sidecar of earlier releases, and the name of the task in sidecars.
LEGACY_SIDECAR, TASK = "meta/rlds", "task"
DIGEST = "meta/rlds.json"


# The metadata key for the content of the tables of a dataset.
METADATA_KEY = "lerobot"
# The name of the text of a task.
LANGUAGE_INSTRUCTION = "language_instruction"

# The key of a feature of `info.json` for the table of texts that its numbers refer to.
TABLE = "table"

# The columns of every data file. `info.json` lists them among the features.
DEFAULT_COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "frame_index": {"dtype": "int64", "shape": [1], "names": None},
    "episode_index": {"dtype": "int64", "shape": [1], "names": None},
    "index": {"dtype": "int64", "shape": [1], "names": None},
    "task_index": {"dtype": "int64", "shape": [1], "names": None},
}

# The names of the dimensions of images.
IMAGE_NAMES = ["height", "width", "channels"]

# Columns of row, episode and task indices, which are renumbered.
INDEX_COLUMNS = ("episode_index", "index", "task_index")

# The column of staged datasets with the size of the rows of an episode, in bytes.
DATA_BYTES = "data/bytes"
# The columns of the table of episodes, and the prefixes of further columns.
EPISODE_COLUMNS = ("episode_index", "tasks", "length", "dataset_from_index", "dataset_to_index")
EPISODE_GROUPS = ("data/", "meta/episodes/", "stats/", "videos/")

_REWARD = "next.reward"
# The quantisation of depths to 12 bits in the `info` of a video, for `DepthCodes`.
_DEPTH_CODE_KEYS = ("video.depth_min", "video.depth_max", "video.shift", "video.use_log")
_CAMERAS_PREFIX = f"{rlds.OBSERVATION}/images/"
_TEMPLATE_FIELDS = ("episode_chunk", "episode_index", "chunk_index", "file_index")
_PLACEHOLDER = re.compile(rf"\{{(video_key|({'|'.join(_TEMPLATE_FIELDS)})(:0?[0-9]{{1,2}}d)?)\}}")
_CHANNELS_NAME = re.compile(r"channels?|rgb|c", re.IGNORECASE)
_MAX_DIMS = 5


@dataclasses.dataclass(frozen=True)
class LeRobotFeature:
    """An entry of `features` in `info.json`.

    Attributes:
      name: The name of the feature.
      dtype: A dtype of NumPy, or `string`, `image`, `video`, `language`.
      shape: The shape of a value. Scalars have `(1,)`.
      raw: The complete entry, including `names`, and `info` of a video.
      unit: The unit of depths, or None.
      codes: The quantisation of depths in a video, or None.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: Mapping[str, Any]
    unit: str | None = None
    codes: DepthCodes | None = None

    @classmethod
    def from_json(cls, name: str, raw: Any) -> LeRobotFeature:
        """Reads an entry of `features`.

        Raises:
          ValueError: The entry is invalid.
        """
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise ValueError(f"a feature cannot have the name {name!r}")
        if not isinstance(raw, Mapping) or not isinstance(raw.get("dtype"), str):
            raise ValueError(f"{raw!r:.100}, expected an object with a dtype and a shape")
        shape = raw.get("shape")
        if (
            not isinstance(shape, Sequence)
            or isinstance(shape, str)
            or not all(_is_number(size, int) and 0 <= size < 1 << 31 for size in shape)
            or len(shape) > _MAX_DIMS
        ):
            raise ValueError(f"{shape!r:.100}, expected a shape")
        return cls(name, raw["dtype"], tuple(shape), raw, *_read_depth(raw))

    @property
    def is_video(self) -> bool:
        """True if the feature has frames in mp4 files, and no column."""
        return self.dtype == "video"

    @property
    def element_names(self) -> tuple[str, ...] | None:
        """The names of the elements along the last dimension, such as names of joints."""
        names = _flatten_names(self.raw.get("names"))
        is_vector = self.shape and len(names) == self.shape[-1] == math.prod(self.shape)
        return tuple(names) if is_vector else None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image or a frame, in this order.

        Raises:
          ValueError: The feature has no image shape.
        """
        shape = self.shape if len(self.shape) == 3 else (*self.shape, 1)
        if len(shape) != 3:
            raise ValueError(f"shape {self.shape}, expected height, width and channels")
        names = _flatten_names(self.raw.get("names"))
        channel_axes = [axis for axis, name in enumerate(names) if _CHANNELS_NAME.fullmatch(name)]
        if len(names) == 3 and len(channel_axes) == 1:
            channels = channel_axes[0]
        else:
            axes = [axis for axis in (2, 0) if shape[axis] in (1, 3, 4)]
            channels = axes[0] if axes else 2
        height, width = (size for axis, size in enumerate(shape) if axis != channels)
        return height, width, shape[channels]


@dataclasses.dataclass(frozen=True)
class Info:
    """The content of `info.json`.

    Attributes:
      raw: The complete content.
      is_v3: True for version 3.0, False for 2.0 and 2.1.
      features: The features by name, including videos.
      fps: The rows per second.
      data_path: The template of the names of data files.
      video_path: The template of the names of videos; None without videos.
      chunks_size: The number of episodes (2.x) or files (3.0) in a chunk.
    """

    raw: Mapping[str, Any]
    is_v3: bool
    features: Mapping[str, LeRobotFeature]
    fps: float
    data_path: str
    video_path: str | None
    chunks_size: int

    @classmethod
    def from_json(cls, raw: Any, file: Any = INFO, *, is_v3: bool | None = None) -> Info:
        """Reads the content of the file.

        Args:
          raw: The content.
          file: The name of the file in errors.
          is_v3: True if the files have version 3.0; by default, from `codebase_version`.

        Raises:
          SourceError: An entry is invalid.
        """
        if not isinstance(raw, Mapping):
            raise SourceError("expected a JSON object", file=file)
        major = _major_version(raw.get("codebase_version"), file)
        is_v3 = major >= 3 if is_v3 is None else is_v3
        features = {}
        entries = raw.get("features")
        if not isinstance(entries, Mapping):
            raise SourceError(f"{entries!r:.100}, expected an object", file=file, field="features")
        for name, entry in entries.items():
            try:
                features[name] = LeRobotFeature.from_json(name, entry)
            except ValueError as error:
                raise SourceError(str(error), file=file, field=f"features/{name}") from error
        fps: Any = raw.get("fps")
        if not _is_number(fps) or not 0 < fps <= sys.float_info.max:
            raise SourceError(f"{fps!r:.100}, expected a number", file=file, field="fps")
        chunks_size: Any = raw.get("chunks_size", 1000)
        if not _is_number(chunks_size, int) or chunks_size < 1:
            raise SourceError(
                f"{chunks_size!r:.100}, expected a number", file=file, field="chunks_size"
            )
        data_path = _template(raw.get("data_path"), file, "data_path")
        if not (is_v3 or "{episode_index" in data_path):
            problem = f"{data_path!r:.200}, expected {{episode_index}}: each episode has a file"
            raise SourceError(problem, file=file, field="data_path")
        has_video = any(feature.is_video for feature in features.values())
        return cls(
            raw,
            is_v3,
            features,
            float(fps),
            data_path,
            _template(raw.get("video_path"), file, "video_path") if has_video else None,
            chunks_size,
        )

    @property
    def depths(self) -> dict[str, np.ndarray | None]:
        """The lookup tables of depths, by video feature; None for video without depth codes."""
        return {
            name: depths_of_codes(feature.codes, feature.unit)
            for name, feature in self.features.items()
            if feature.is_video
        }

    @property
    def videos(self) -> list[str]:
        """The names of the video features."""
        return [name for name, feature in self.features.items() if feature.is_video]

    def data_file(self, episode: int, chunk: int = 0, file: int = 0) -> str:
        """Returns the path of the file with the rows of an episode; 3.0 needs chunk and file."""
        return self._fill(self.data_path, episode, chunk, file)

    def video_file(self, episode: int, video: str, chunk: int = 0, file: int = 0) -> str:
        """Returns the path of the file with the frames of a feature in an episode."""
        assert self.video_path is not None
        return self._fill(self.video_path, episode, chunk, file, video)

    def _fill(self, template: str, episode: int, chunk: int, file: int, video: str = "") -> str:
        return template.format(
            episode_chunk=episode // self.chunks_size,
            episode_index=episode,
            chunk_index=chunk,
            file_index=file,
            video_key=video,
        )


def depth_info(field: Field) -> dict[str, Any]:
    """Returns the entries for depths in `info` of a feature: unit and quantisation.

    Args:
      field: The field of images, or of a clip.
    """
    info: dict[str, Any] = {}
    if field.codes or not field.is_text:  # LeRobot treats all depths in video as codes.
        info["is_depth_map"] = True
    if field.unit in PER_METRE:
        info["depth_unit"] = field.unit
    if (codes := field.codes) is not None:
        info |= dict(zip(_DEPTH_CODE_KEYS, (codes.low, codes.high, codes.shift, codes.is_log)))
    return info


def video_columns(video: str) -> tuple[str, str, str, str]:
    """Returns the columns of the episode table with the location of the frames of a feature."""
    chunk, file, start, end = (
        f"videos/{video}/{name}"
        for name in ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
    )
    return chunk, file, start, end


def video_bytes(video: str) -> str:
    """Returns the column of staged datasets with the size of the frames of a feature."""
    return f"videos/{video}/bytes"


def episode_key(index: int) -> str:
    """Returns the key of an episode.

    >>> episode_key(12)
    'episode_000012'
    """
    return f"episode_{index:06d}"


def user_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the cells of columns that users added to the table of episodes.

    Args:
      row: The complete row of an episode.
    """
    return {
        name: value
        for name, value in row.items()
        if name not in EPISODE_COLUMNS and not name.startswith(EPISODE_GROUPS)
    }


def step_paths(names: Iterable[str], *, flat_cameras: bool = False) -> dict[str, str]:
    """Returns the paths of features in steps, by name.

    Dots become slashes, but not after a name that is a feature itself. `next.reward` becomes
    `reward`, and `actions.` becomes `action/` unless there is another action. Names of step flags
    are moved below `lerobot/`. With `flat_cameras`, `observation/images/<name>` becomes
    `observation/<name>` if there is no such field.

    >>> step_paths(["observation.state", "observation.state.raw", "actions.arm", "next.reward"])
    {'observation.state': 'observation/state', 'observation.state.raw': 'observation/state.raw', \
'actions.arm': 'action/arm', 'next.reward': 'reward'}
    """
    names = list(names)
    all_names = {*names}
    paths = {name: _split_name(name, all_names) for name in names}
    used_roots = {path.partition("/")[0] for path in paths.values()}
    if rlds.REWARD not in used_roots and _REWARD in paths:
        paths[_REWARD] = rlds.REWARD
    if rlds.ACTION not in used_roots:
        for name, path in paths.items():
            if path.startswith("actions/") or path == "actions":
                paths[name] = rlds.ACTION + path.removeprefix("actions")
    cameras = [name for name, path in paths.items() if path.startswith(_CAMERAS_PREFIX)]
    for name in cameras if flat_cameras else ():
        flat = f"{rlds.OBSERVATION}/{paths[name].removeprefix(_CAMERAS_PREFIX)}"
        other_paths = (path for path in paths.values() if path != paths[name])
        if not any(is_below(other, flat) or is_below(flat, other) for other in other_paths):
            paths[name] = flat
    for name, path in paths.items():
        if path.partition("/")[0] in rlds.STEP_FLAGS:
            paths[name] = f"lerobot/{path}"
    return paths


def task_path(paths: Mapping[str, str]) -> str:
    """Returns the path of the text of the task in steps.

    Args:
      paths: The paths of the features.
    """
    used_roots = {path.partition("/")[0] for path in paths.values()}
    unused = [name for name in (LANGUAGE_INSTRUCTION, "task") if name not in used_roots]
    return unused[0] if unused else f"lerobot/{LANGUAGE_INSTRUCTION}"


def _split_name(name: str, all_names: set[str]) -> str:
    """Replaces dots of a name by slashes, up to the first prefix that is a feature name."""
    segments = name.split(".")
    if not all(segments):
        return name
    for depth in range(1, len(segments)):
        if ".".join(segments[:depth]) in all_names:
            return "/".join([*segments[: depth - 1], ".".join(segments[depth - 1 :])])
    return "/".join(segments)


def _read_depth(raw: Mapping[str, Any]) -> tuple[str | None, DepthCodes | None]:
    """Returns the unit of the depths of a feature, and their quantisation in a video.

    Raises:
      ValueError: The entries are incomplete, or contradict each other.
    """
    info = raw.get("info")
    info = info if isinstance(info, Mapping) else {}
    codes: dict[str, Any] = {name: info.get(name) for name in _DEPTH_CODE_KEYS}
    unit = info.get("depth_unit")
    if unit not in (None, *PER_METRE):
        raise ValueError(f"depth_unit: {unit!r:.100}, expected one of {[*PER_METRE]}")
    if raw["dtype"] != "video" or not any(value is not None for value in codes.values()):
        return unit, None
    *limits, is_log = codes.values()
    is_depth = info.get("is_depth_map") or info.get("video.is_depth_map")
    if not is_depth or not all(map(_is_number, limits)) or not isinstance(is_log, bool):
        codes["is_depth_map"] = is_depth
        expected = "numbers, use_log as a bool, and is_depth_map as true"
        raise ValueError(f"{codes!r:.200}, expected {expected}")
    low, high, shift = map(float, limits)
    return unit or "m", DepthCodes(low, high, shift, is_log)


def _flatten_names(names: Any, depth: int = 0) -> list[str]:
    """Returns the texts in nested lists and objects, in order."""
    if isinstance(names, str):
        return [names]
    if depth > _MAX_DIMS:
        return []
    children = names.values() if isinstance(names, Mapping) else names
    if not isinstance(children, Iterable):
        return []
    if isinstance(names, Mapping) and all(type(position) is int for position in names.values()):
        return sorted(names, key=names.__getitem__)
    return [text for child in children for text in _flatten_names(child, depth + 1)]


def _major_version(version: Any, file: Any) -> int:
    match = re.match(r"v?([0-9]{1,3})(\.|$)", version) if isinstance(version, str) else None
    if match is None or int(match[1]) < 2:
        raise SourceError(
            f"{version!r:.100}, expected v2.0, v2.1 or v3.0; LeRobot converts older datasets",
            file=file,
            field="codebase_version",
        )
    return int(match[1])


def _template(template: Any, file: Any, field: str) -> str:
    """Returns a template of file names, after a check of its possible results."""
    fixed = _PLACEHOLDER.sub("", template) if isinstance(template, str) else "/"
    if {"{", "}", "\\", "\0", ":"} & {*fixed} or fixed.startswith("/") or ".." in fixed.split("/"):
        raise SourceError(
            f"{template!r:.200}, expected a path template below the dataset, with the fields "
            f"{', '.join(_TEMPLATE_FIELDS)}, video_key",
            file=file,
            field=field,
        )
    return str(template)


def _is_number(value: Any, kind: Any = int | float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
