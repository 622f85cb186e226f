"""Datasets in any format as a `LeRobotDataset`, for LeRobot training scripts.

    from rlds.feeds.compat.lerobot import LeRobotDataset, LeRobotDatasetMetadata

The reference is `lerobot` 0.6.1. Differences:

* `repo_id` or `root` is a local or remote dataset in any format; nothing is downloaded from a hub.
  A list of `repo_id` becomes one dataset, like a `MultiLeRobotDataset`.
* The fields of other formats have their paths as names, with dots: "observation.image". The reward
  is "next.reward". The last step of an episode is excluded if it has no action.
* A batch of items is read at once.
* `meta.stats` has the statistics of `meta/stats.json`. Missing statistics are computed on first
  use; for images, from some frames.
* Datasets are only read. Arguments for writing and downloading are ignored.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import rlds
from rlds.feeds.compat.loading import class_of
from rlds.feeds.table import open as open_table
from rlds.feeds.table import several
from rlds.raw_files.untrusted import source_errors
from rlds.robotics.registry import find_meaning
from rlds.sources import reading
from rlds.sources.encoded_frames import with_video
from rlds.sources.episodes import Episodes
from rlds.sources.opening import format_of, only_split
from rlds.sources.options import options_of
from rlds.sources.rates import rate_in
from rlds.sources.reading import open_source
from rlds.sources.registry import formats
from rlds.sources.standardization import name_of
from rlds.sources.text_tables import TASKS, TextTable, table_in
from rlds.sources.texts import as_text
from rlds.statistics import FieldStatistics
from rlds.video.fields import PER_METRE
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import lookup

__all__ = ["LeRobotDataset", "LeRobotDatasetMetadata", "StreamingLeRobotDataset", "statistics_of"]

# Without PyTorch, the base class is `object`.
_Dataset: Any = class_of("torch.utils.data", "Dataset")
_IterableDataset: Any = class_of("torch.utils.data", "IterableDataset")

_REWARD, _TIMESTAMP = "next.reward", "timestamp"
_TASK, _TASK_INDEX = "language_instruction", "task_index"
_SCALAR_DTYPES = {
    _TIMESTAMP: "float32",
    **dict.fromkeys(("frame_index", "episode_index", "index", _TASK_INDEX), "int64"),
}
_EXCLUDED_FIELDS = (rlds.IS_FIRST, rlds.IS_LAST, rlds.IS_TERMINAL, rlds.DISCOUNT, _TASK)
_STATISTIC_NAMES, _QUANTILES = ("min", "max", "mean", "std"), (0.01, 0.1, 0.5, 0.9, 0.99)
_MAX_SAMPLED_FRAMES = 64
_ITEMS_PER_READ = 16  # The number of items that a stream reads at once.
_STATS_FILE, _ROW = "meta/stats.json", "lerobot/row"
# Entries of info.json that the metadata has as attributes.
_INFO_SETTINGS = (
    *("data_path", "video_path", "chunks_size"),
    *("data_files_size_in_mb", "video_files_size_in_mb"),
)


class _Info(dict[str, Any]):
    """The entries of info.json, as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class _Episodes(Sequence[Any]):
    """The episode table of LeRobot metadata: columns by name, and rows by index."""

    def __init__(
        self, columns: Mapping[str, list[Any]], read: Callable[[int], Mapping[str, Any]]
    ) -> None:
        self._columns, self._read = dict(columns), read
        self._rows: dict[int, dict[str, Any]] = {}

    @functools.cached_property
    def _all_columns(self) -> dict[str, list[Any]]:
        rows = list(self)
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names} | self._columns

    @property
    def column_names(self) -> list[str]:
        return list(self._all_columns)

    def to_pandas(self) -> Any:
        return importlib.import_module("pandas").DataFrame(self._all_columns)

    def __len__(self) -> int:
        return len(self._columns["length"])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._columns[key] if key in self._columns else self._all_columns[key]
        if isinstance(key, slice):
            return {name: column[key] for name, column in self._all_columns.items()}
        index = range(len(self))[key]
        if index not in self._rows:  # Some scripts request the row of each item.
            column_values = {name: column[index] for name, column in self._columns.items()}
            self._rows[index] = {**self._read(index), **column_values}
        return dict(self._rows[index])


def _as_lerobot(path: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Opens a LeRobot dataset as LeRobot does; returns it with the unused options.

    Original names and values, which exports keep in addition, are not used.
    """
    unused = dict(options)
    if not isinstance(path, str | os.PathLike) or format_of(path) != "lerobot":
        return path, unused
    kind = formats()["lerobot"].load()
    source_options = {name: unused.pop(name) for name in options_of(kind).keys() & unused.keys()}
    source = with_video(open_source(kind, path, **source_options))
    split = only_split(source, unused.pop("split", None))
    return Episodes(source, split, format="lerobot"), unused


def _open_table(root: Any, options: Mapping[str, Any]) -> Any:
    paths = several(root)
    opened = [_as_lerobot(path, options) for path in ([root] if paths is None else paths)]
    episodes, unused = [episodes for episodes, _ in opened], opened[0][1]
    return open_table(episodes[0] if paths is None else episodes, **unused)


def _resolve_root(repo_id: Any, root: Any, revision: str | None, repo_type: str, token: Any) -> Any:
    """Returns the root, or the path of the ID, which may be in LeRobot's folder of datasets.

    Raises:
      ValueError: An argument requests other files.
    """
    if repo_type != "dataset":
        raise ValueError(f"repo_type={repo_type!r}: expected 'dataset'; pass the URL as root")
    path = repo_id if root is None else root
    if not isinstance(path, str | os.PathLike):
        return path
    if os.fspath(path).startswith("hf:") and (revision is not None or isinstance(token, str)):
        raise ValueError(
            f"{path}: revision and token are not supported for a URL: write the revision "
            "into the URL, hf://datasets/NAME@REVISION, and the token into HF_TOKEN"
        )
    caches = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    home = Path(os.environ.get("HF_LEROBOT_HOME") or caches / "lerobot").expanduser() / path
    exists = root is not None or not stores.is_local(path) or stores.as_path(path).exists()
    return path if exists or not home.exists() else home


class LeRobotDatasetMetadata:
    """The metadata of a dataset in the form of LeRobot.

    Args:
      repo_id: The dataset, or a list of datasets, if `root` is None.
      root: The dataset.
      revision: Ignored: local files are used unchanged, as in LeRobot.
      force_cache_sync: Ignored: nothing is downloaded.
      metadata_buffer_size: Ignored: nothing is written.
      repo_type: "dataset".
      token: Ignored.
      fps: The frame rate, if the dataset has none. Without a frame rate, each `timestamp` is NaN.
      **options: Options of `rlds.feeds.open`, such as `split`.

    Attributes:
      table: The steps.
      features: The dtype and the shape of each feature, by its name.
      root: The folder of the dataset; None for several datasets.
      depth_output_unit: The unit of the statistics of depths, "m" or "mm"; the stored unit if None.

    Raises:
      FileNotFoundError: There is no such dataset.
      TypeError: There is no such argument.
      ValueError: An argument requests other than local files.
    """

    has_language_columns = False
    depth_output_unit: str | None = None

    def __init__(
        self,
        repo_id: Any,
        root: Any = None,
        revision: str | None = None,
        force_cache_sync: bool = False,
        metadata_buffer_size: int = 10,
        *,
        repo_type: Literal["dataset", "bucket"] = "dataset",
        token: str | bool | None = None,
        fps: float | None = None,
        **options: Any,
    ) -> None:
        del force_cache_sync, metadata_buffer_size
        self.repo_id, self.repo_type, self.revision = repo_id, repo_type, revision
        path = _resolve_root(repo_id, root, revision, repo_type, token)
        self.root = stores.as_path(path) if isinstance(path, str | os.PathLike) else None
        try:
            self.table = _open_table(path, {"video": "frames", **options})
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error}\nA name is a path, or a folder in HF_LEROBOT_HOME; nothing is "
                "downloaded: pass root='hf://datasets/NAME', or download it with `hf download`"
            ) from error
        episodes = self.table.episodes
        source = getattr(episodes, "source", None)
        metadata = getattr(episodes, "metadata", {})
        self._is_lerobot = isinstance(episodes, Episodes) and episodes.format == "lerobot"
        self._stored_info = info = metadata.get("lerobot", {}).get("info", {})
        for name in _INFO_SETTINGS:
            setattr(self, name, info.get(name))
        meaning = find_meaning(name_of(source)) if source is not None else None
        self._fps = fps or info.get("fps") or rate_in(metadata) or (meaning and meaning.control_hz)
        self.robot_type = info.get("robot_type") or (meaning and meaning.robot)
        self.paths = self._paths(info.get("features"))
        videos, features = set(getattr(source, "cameras", ())), info.get("features", {})
        self.features = {
            name: {**self._describe_feature(path, videos), **features.get(name, {})}
            for name, path in self.paths.items()
        }
        for feature in self.features.values():
            feature["shape"] = tuple(feature["shape"])
        for name, dtype in _SCALAR_DTYPES.items():
            self.features[name] = {"dtype": dtype, "shape": (1,), "names": None}
        lengths = self.table.steps(only_real=True).counts()
        self._episode_ends = np.cumsum(lengths)
        self._episode_starts = self._episode_ends - lengths

    def _paths(self, features: Mapping[str, Any] | None) -> dict[str, str]:
        """Returns the fields, by the names of their features."""
        paths = {}
        for path in self.table.fields:
            name = _REWARD if path == rlds.REWARD else path.replace("/", ".")
            if (
                path not in _EXCLUDED_FIELDS
                and name not in _SCALAR_DTYPES
                and (not features or name in features)
            ):
                paths[name] = path
        return paths

    def _describe_feature(self, path: str, videos: set[str]) -> dict[str, Any]:
        field, kind = self.table.fields[path], ""
        is_depth = field.dtype == np.uint16 and field.shape[-1:] == (1,)
        is_array = len(field.shape) == 3 and (field.dtype == np.uint8 or is_depth)
        if self.table.storage.is_image(path) or is_array:
            kind = "video" if path in videos else "image"
        kind = kind or ("string" if field.is_text else np.dtype(field.column_dtype).name)
        names = list(field.names) if field.names else None
        if kind in ("video", "image"):
            names = ["height", "width", "channels"]
        return {"dtype": kind, "shape": tuple(field.shape) or (1,), "names": names}

    @property
    def fps(self) -> Any:
        """The frame rate, in steps per second.

        Raises:
          ValueError: The dataset has no frame rate.
        """
        if self._fps is None:
            raise ValueError(f"{self.repo_id}: the dataset states no frame rate: pass fps=...")
        return self._fps

    @property
    def image_keys(self) -> list[str]:
        """The features that are single images."""
        return [key for key, feature in self.features.items() if feature["dtype"] == "image"]

    @property
    def video_keys(self) -> list[str]:
        """The features that are videos."""
        return [key for key, feature in self.features.items() if feature["dtype"] == "video"]

    @property
    def camera_keys(self) -> list[str]:
        """The features that are images or videos."""
        return [key for key in self.features if key in {*self.image_keys, *self.video_keys}]

    @property
    def depth_keys(self) -> list[str]:
        """The features that are images or videos of depths."""
        return [key for key in self.camera_keys if self._field(key).dtype != np.uint8]

    def _field(self, key: str) -> Field:
        return self.table.fields[self.paths[key]]

    def pixels(self, key: str, images: np.ndarray) -> np.ndarray:
        """Returns pixels scaled as in LeRobot: depths in their unit, colours from 0 to 1."""
        dtype = np.result_type(images, np.float32)
        pixels = images.astype(dtype)
        if key not in self.depth_keys:
            return pixels / np.float32(255)
        if (factor := self._find_depth_factor(key)) != 1:
            pixels *= np.float32(factor)
        if self.depth_output_unit == "mm" and self.features[key]["dtype"] == "video":
            np.rint(pixels, out=pixels)  # LeRobot rounds millimetres.
        return pixels

    def _find_depth_factor(self, key: str) -> float:
        """Returns the factor from stored depths to the output unit; 1 if a unit is unknown."""
        unit, output_unit = self._field(key).unit, self.depth_output_unit
        if unit in PER_METRE and output_unit in PER_METRE:
            return PER_METRE[output_unit] / PER_METRE[unit]
        return 1.0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the features."""
        return {key: feature["shape"] for key, feature in self.features.items()}

    @property
    def names(self) -> dict[str, Any]:
        """The names of the elements of the features."""
        return {key: feature["names"] for key, feature in self.features.items()}

    @functools.cached_property
    def info(self) -> _Info:
        """The entries of info.json, as items and as attributes."""
        entries = {"codebase_version": "v3.0", **self._stored_info, "features": self.features}
        for name in ("robot_type", "total_episodes", "total_frames", "total_tasks"):
            entries[name] = getattr(self, name)
        return _Info(entries, fps=self._fps)

    @property
    def total_episodes(self) -> int:
        """The number of episodes."""
        return self.table.num_episodes

    @property
    def total_frames(self) -> int:
        """The number of steps with an action."""
        return int(self._episode_ends[-1]) if len(self._episode_ends) else 0

    @functools.cached_property
    def _tasks(self) -> tuple[dict[int, str], np.ndarray]:
        """The task texts by index, and the task index of each step."""
        fields = [path for path in (_TASK, _TASK_INDEX) if path in self.table.storage.fields]
        if _TASK not in fields:
            return {0: ""}, np.zeros(self.total_frames, np.int64)
        steps = self.table.select(fields).steps(only_real=True)
        tasks = dict(self.table_of_tasks)
        task_indices = {text: index for index, text in reversed(tasks.items())}
        columns, step_tasks = steps.batch_columns(np.arange(len(steps))), []
        for row, text in enumerate(map(as_text, columns[_TASK])):
            if text not in task_indices:
                task_index = int(columns[_TASK_INDEX][row]) if _TASK_INDEX in fields else len(tasks)
                # Joined datasets may use an index for different tasks.
                task_indices[text] = max(tasks) + 1 if task_index in tasks else task_index
                tasks[task_indices[text]] = text
            step_tasks.append(task_indices[text])
        return tasks, np.array(step_tasks, np.int64)

    @property
    def table_of_tasks(self) -> TextTable:
        """The stored table of task texts by index; empty if there is none."""
        return table_in(getattr(self.table.episodes, "metadata", {}), TASKS)

    @property
    def task_texts(self) -> dict[int, str]:
        """The tasks, by their indices."""
        return self._tasks[0]

    @functools.cached_property
    def tasks(self) -> Any:
        """The tasks as a table of pandas: an index `task`, and a column `task_index`."""
        pandas = importlib.import_module("pandas")
        index = pandas.Index(list(self.task_texts.values()), name="task", dtype=object)
        return pandas.DataFrame({_TASK_INDEX: list(self.task_texts)}, index=index)

    def get_task_index(self, task: str) -> int | None:
        """Returns the index of a task; None if there is no such task."""
        return next((n for n, text in self.task_texts.items() if text == task), None)

    @property
    def task_of_steps(self) -> np.ndarray:
        """The task index of each step."""
        return self._tasks[1]

    @property
    def total_tasks(self) -> int:
        """The number of tasks."""
        return len(self.task_texts)

    @functools.cached_property
    def episodes(self) -> _Episodes:
        """The table of episodes."""
        starts, ends = self._episode_starts.tolist(), self._episode_ends.tolist()
        tasks = [self.task_of_steps[start:end].tolist() for start, end in zip(starts, ends)]
        columns = {
            "episode_index": list(range(len(starts))),
            "tasks": [[self.task_texts[n] for n in dict.fromkeys(indices)] for indices in tasks],
            "length": (self._episode_ends - self._episode_starts).tolist(),
            "dataset_from_index": starts,
            "dataset_to_index": ends,
        }
        return _Episodes(columns, self._row)

    def _row(self, episode: int) -> dict[str, Any]:
        """Returns the metadata of an episode of a LeRobot dataset, without its statistics."""
        if not self._is_lerobot:
            return {}
        row = json.loads(as_text(lookup(self.table.episodes.peek(episode).metadata, _ROW))).items()
        return {name: value for name, value in row if not name.startswith("stats/")}

    def filter_episodes(
        self, predicate: Callable[[Any], bool], candidates: Sequence[int] | None = None
    ) -> list[int]:
        """Returns the indices of the episodes whose rows meet a condition, in order.

        Args:
          predicate: A function of a row of `episodes`.
          candidates: The indices of the episodes to check; all by default.
        """
        episodes = range(self.total_episodes) if candidates is None else sorted({*candidates})
        return [episode for episode in episodes if predicate(self.episodes[episode])]

    def get_data_file_path(self, ep_index: int) -> Path:
        """Returns the file with the rows of an episode, below the root."""
        return self._file_of(ep_index, "data_path", "data")

    def get_video_file_path(self, ep_index: int, vid_key: str) -> Path:
        """Returns the file with the frames of a feature in an episode, below the root."""
        return self._file_of(ep_index, "video_path", f"videos/{vid_key}", video_key=vid_key)

    def _file_of(self, episode: int, pattern: str, columns: str, **names: str) -> Path:
        row = self.episodes[episode]
        names |= {f"{n}_index": row[f"{columns}/{n}_index"] for n in ("chunk", "file")}
        return Path(self.info[pattern].format(**names))

    @functools.cached_property
    def stats(self) -> dict[str, dict[str, np.ndarray]]:
        """The statistics of the features by name, from the dataset or computed."""
        stats = self._read_stats()
        return {**stats, **self._compute_stats([n for n in self.paths if n not in stats])}

    def _read_stats(self) -> dict[str, dict[str, np.ndarray]]:
        """Reads the stored statistics of a LeRobot dataset; none for some of its episodes."""
        if self.root is None or not self._is_lerobot:
            return {}
        source = self.table.episodes.source
        num_stored = sum(reading.count(source, split) or 0 for split in source.splits)
        file = self.root / _STATS_FILE
        if num_stored != self.total_episodes or not file.exists():
            return {}
        stats = {}
        with source_errors(file):
            for name, values in json.loads(file.read_text()).items():
                stats[name] = {k: np.atleast_1d(np.array(v)) for k, v in values.items()}
        for name in self.depth_keys:
            for key in stats.get(name, {}).keys() - {"count"}:
                stats[name][key] = stats[name][key] * self._find_depth_factor(name)
        return stats

    def _compute_stats(self, names: Sequence[str]) -> dict[str, dict[str, np.ndarray]]:
        cameras = [name for name in self.camera_keys if name in names]
        other_dtypes = ("image", "video", "string")
        numeric = [name for name in names if self.features[name]["dtype"] not in other_dtypes]
        paths = [self.paths[name] for name in numeric]
        computed = self.table.compute_statistics(paths, quantiles=_QUANTILES)
        stats = {}
        for name in numeric:
            field, shape = computed[self.paths[name]], self.features[name]["shape"]
            stats[name] = {k: np.reshape(v, shape) for k, v in statistics_of(field).items()}
            stats[name]["count"] = np.array([int(np.max(field.count))])
        size = min(self.total_frames, _MAX_SAMPLED_FRAMES)
        steps = self.table.select([self.paths[name] for name in cameras]).steps(only_real=True)
        sample_indices = np.linspace(0, self.total_frames - 1, size).astype(np.int64)
        samples = steps.batch_columns(sample_indices) if cameras else {}
        for name in cameras:
            frames = [image.reshape(-1, image.shape[-1]) for image in samples[self.paths[name]]]
            pixels = self.pixels(name, np.concatenate(frames).astype(np.float64))
            values = {key: getattr(pixels, key)(axis=0) for key in _STATISTIC_NAMES}
            quantiles = np.quantile(pixels, _QUANTILES, axis=0)
            values |= {_quantile_name(q): value for q, value in zip(_QUANTILES, quantiles)}
            stats[name] = {key: value.reshape(-1, 1, 1) for key, value in values.items()}
            stats[name]["count"] = np.array([size])
        return stats


class LeRobotDataset(_Dataset):  # type: ignore[misc]
    """The steps of a dataset as items: dicts of tensors, with the text of the "task".

    Args:
      repo_id: The dataset, or a list of datasets, if `root` is None.
      root: The dataset.
      episodes: The indices of the episodes to use, in the order of the dataset; all by default.
      episode_filter: A function of a row of `meta.episodes`, true to keep the episode.
      image_transforms: A function of the images of each camera, except for depth images.
      delta_timestamps: The time offsets of the values of features from the step, in seconds.
      tolerance_s: The maximum distance of a time offset from a step, in seconds.
      revision: Ignored, see `LeRobotDatasetMetadata`.
      force_cache_sync: Ignored: nothing is downloaded.
      download_videos: Ignored.
      video_backend: Ignored: PyAV is used.
      return_uint8: Whether videos are uint8, and not float32 from 0 to 1.
      depth_output_unit: The unit of depths, "m" or "mm", if the stored unit is given.
      batch_encoding_size: Ignored: nothing is written.
      rgb_encoder: Ignored.
      depth_encoder: Ignored.
      encoder_threads: Ignored.
      streaming_encoding: Ignored.
      encoder_queue_maxsize: Ignored.
      token: Ignored.
      **options: Options of `LeRobotDatasetMetadata`.

    Attributes:
      meta: The metadata of the dataset.
      features: The dtype and the shape of each feature, by its name.
      episodes: The indices of the episodes; None for all.
      num_episodes: The number of episodes in use.
      num_frames: The number of items.

    Raises:
      KeyError: There is no such feature.
      ValueError: A time offset matches no step, the frame rate is unknown, or there are no such
        episodes.
    """

    def __init__(
        self,
        repo_id: Any,
        root: Any = None,
        episodes: Sequence[int] | None = None,
        episode_filter: Callable[[dict[str, Any]], bool] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        download_videos: bool = True,
        video_backend: str | None = None,
        return_uint8: bool = False,
        depth_output_unit: Literal["m", "mm"] = "mm",
        batch_encoding_size: int = 1,
        rgb_encoder: Any = None,
        depth_encoder: Any = None,
        encoder_threads: int | None = None,
        streaming_encoding: bool = False,
        encoder_queue_maxsize: int = 30,
        *,
        token: str | bool | None = None,
        **options: Any,
    ) -> None:
        del force_cache_sync, download_videos, video_backend, batch_encoding_size, rgb_encoder
        del depth_encoder, encoder_threads, streaming_encoding, encoder_queue_maxsize
        if depth_output_unit not in PER_METRE:
            raise ValueError(f"depth_output_unit: got {depth_output_unit!r}, expected 'm' or 'mm'")
        self.meta = LeRobotDatasetMetadata(repo_id, root, revision, token=token, **options)
        self.depth_output_unit = self.meta.depth_output_unit = depth_output_unit
        self.repo_id, self.root, self.revision = repo_id, self.meta.root, revision
        if episode_filter is not None:
            episodes = self.meta.filter_episodes(episode_filter, episodes)
            if not episodes:
                raise ValueError("episode_filter leaves no episode")
        self.episodes = None if episodes is None else list(episodes)
        absent = {*(self.episodes or ())} - {*range(self.meta.total_episodes)}
        if absent:
            raise ValueError(f"no episodes {sorted(absent)}: there are {self.meta.total_episodes}")
        self._return_uint8 = return_uint8
        self.set_image_transforms(image_transforms)
        self.delta_timestamps, self.tolerance_s = delta_timestamps, tolerance_s
        offsets = {
            self._path(key): self._steps_at(key, tolerance_s) for key in delta_timestamps or ()
        }
        paths, table = self.meta.paths, self.meta.table
        self._stored = [path for path in [_TIMESTAMP, _TASK] if path in table.storage.fields]
        table = table.select([*paths.values(), *self._stored])
        indices = range(table.num_episodes) if self.episodes is None else self.episodes
        self._episode_indices = np.unique(np.array(indices, np.int64))
        self._samples = table.filter_episodes(self._episode_indices).offsets(
            offsets, only_real=True
        )
        self.features = self.meta.features
        self.num_episodes = len(indices)
        self.num_frames = len(self._samples)

    def set_image_transforms(self, image_transforms: Callable[[Any], Any] | None) -> None:
        """Replaces the function that changes images.

        Raises:
          TypeError: The argument is not a function.
        """
        if image_transforms is not None and not callable(image_transforms):
            raise TypeError("image_transforms must be callable or None.")
        self.image_transforms = image_transforms

    def clear_image_transforms(self) -> None:
        """Removes the function that changes images."""
        self.image_transforms = None

    @functools.cached_property
    def hf_dataset(self) -> Any:
        """The features of all items as a `datasets.Dataset`, without images and videos."""
        names = [name for name in self.meta.paths if name not in self.meta.camera_keys]
        paths = [self.meta.paths[name] for name in names]
        table = self.meta.table.select([*paths, *self._stored])
        steps = table.filter_episodes(self._episode_indices).steps(only_real=True)
        rows = np.arange(len(steps))
        columns = steps.batch_columns(rows)
        items: dict[str, Any] = {name: columns[path] for name, path in zip(names, paths)}
        items |= self._index_columns(steps, rows, columns)
        for name, column in items.items():
            shape = self.features[name]["shape"]
            if column.dtype == object:
                items[name] = [as_text(text) for text in column]
            else:  # A feature of shape (1,) is a number, not a list.
                items[name] = list(column.reshape(len(column), *(() if shape == (1,) else shape)))
        dataset = importlib.import_module("datasets").Dataset.from_dict(items)
        dataset.set_transform(_to_tensors)
        return dataset

    def get_raw_item(self, idx: int) -> dict[str, Any]:
        """Returns the features of one step, without images and videos."""
        return dict(self.hf_dataset[idx])

    def select_columns(self, column_names: str | list[str]) -> Any:
        """Returns some columns of `hf_dataset`."""
        return self.hf_dataset.select_columns(column_names)

    def _path(self, key: str) -> str:
        if key not in self.meta.paths:
            raise KeyError(f"no feature {key!r}; {suggest_names(key, self.meta.paths)}")
        return self.meta.paths[key]

    def _steps_at(self, key: str, tolerance: float) -> list[int]:
        """Returns the time offsets of a feature as step offsets."""
        assert self.delta_timestamps is not None
        times, fps = self.delta_timestamps[key], self.meta.fps
        invalid = [time for time in times if abs(time * fps - round(time * fps)) / fps > tolerance]
        if invalid:
            raise ValueError(f"delta_timestamps of {key}: {invalid} are not multiples of 1/{fps} s")
        return [round(time * fps) for time in times]

    def __len__(self) -> int:
        return self.num_frames

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return self.__getitems__(range(len(self))[idx])
        return self.__getitems__([range(len(self))[idx]])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Returns several items, which are read at once."""
        torch = import_extra("torch")
        rows = np.array([int(index) for index in indices], np.int64)
        columns = self._samples.batch_columns(rows)
        batch: dict[str, Any] = {}
        for key, path in self.meta.paths.items():
            is_video = self.meta.features[key]["dtype"] == "video"
            batch[key] = self._tensors(key, columns[path], is_video)
            if f"{path}_is_pad" in columns:
                batch[f"{key}_is_pad"] = torch.from_numpy(columns[f"{path}_is_pad"])
        scalars = self._index_columns(self._samples, rows, columns)
        batch |= {key: torch.from_numpy(np.asarray(value)) for key, value in scalars.items()}
        batch["task"] = [as_text(text) for text in columns.get(_TASK, [b""] * len(rows))]
        return [{key: value[row] for key, value in batch.items()} for row in range(len(rows))]

    def _index_columns(
        self, samples: Any, indices: np.ndarray, columns: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Returns the time and the indices of each step, by LeRobot column."""
        positions, steps = samples.locate(indices)
        episodes = self._episode_indices[positions]
        index = self.meta._episode_starts[episodes] + steps
        times = columns.get(_TIMESTAMP)
        if times is None:
            times = steps / np.float32(self.meta._fps or np.nan)
        return {
            _TIMESTAMP: np.asarray(times, np.float32),
            "frame_index": steps,
            "episode_index": episodes,
            "index": index,
            _TASK_INDEX: self.meta.task_of_steps[index],
        }

    def _tensors(self, key: str, column: np.ndarray, is_video: bool) -> Any:
        torch = import_extra("torch")
        if column.dtype == object and self.meta.features[key]["dtype"] == "string":
            return [as_text(text) for text in column]
        if key not in self.meta.camera_keys:
            kinds = {"f": np.float32, "i": np.int64, "u": np.int64}
            return torch.from_numpy(column.astype(kinds.get(column.dtype.kind, column.dtype)))
        tensors, is_depth = [], key in self.meta.depth_keys
        transform = None if is_depth else self.image_transforms
        for image in column:
            # Transposing integers is much faster than transposing floats.
            image = np.ascontiguousarray(np.moveaxis(image, -1, -3))
            if is_depth or not (is_video and self._return_uint8):
                image = self.meta.pixels(key, image)
            pixels = torch.from_numpy(image)
            if is_video and len(pixels.shape) == 4 and len(pixels) == 1:  # LeRobot drops the axis.
                pixels = pixels[0]
            tensors.append(pixels if transform is None else transform(pixels))
        return tensors

    @property
    def fps(self) -> Any:
        """The frame rate, in steps per second."""
        return self.meta.fps

    @property
    def absolute_to_relative_idx(self) -> dict[int, int] | None:
        """The index of each item by its index in the dataset; None if all episodes are in use."""
        if self.episodes is None:
            return None
        episodes = self._episode_indices
        ranges = zip(self.meta._episode_starts[episodes], self.meta._episode_ends[episodes])
        frame_indices = [frame for start, end in ranges for frame in range(start, end)]
        return {frame: item for item, frame in enumerate(frame_indices)}


class StreamingLeRobotDataset(LeRobotDataset, _IterableDataset):  # type: ignore[misc]
    """The items of a `LeRobotDataset` in random order, split among the workers of a `DataLoader`.

    The seed shuffles all items, without a buffer. Workers that a `DataLoader` starts for each epoch
    repeat the first order: pass `persistent_workers=True`. Steps before and after an episode are
    padded with the first and the last step, as in `LeRobotDataset`.

    Args:
      repo_id: As in `LeRobotDataset`.
      root: As in `LeRobotDataset`.
      episodes: As in `LeRobotDataset`.
      image_transforms: As in `LeRobotDataset`.
      delta_timestamps: As in `LeRobotDataset`.
      tolerance_s: As in `LeRobotDataset`.
      revision: As in `LeRobotDataset`.
      force_cache_sync: Ignored.
      streaming: Ignored: an item reads only the needed data.
      buffer_size: Ignored.
      max_num_shards: Ignored.
      seed: The seed of the order.
      rng: The random generator of the order, instead of the seed.
      shuffle: Whether each epoch has another order.
      return_uint8: As in `LeRobotDataset`.
      depth_output_unit: As in `LeRobotDataset`.
      repo_type: "dataset".
      token: Ignored.
      **options: Options of `LeRobotDataset`.

    Attributes:
      meta: The metadata of the dataset.
    """

    def __init__(
        self,
        repo_id: Any,
        root: Any = None,
        episodes: Sequence[int] | None = None,
        image_transforms: Callable[[Any], Any] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = 1e-4,
        revision: str | None = None,
        force_cache_sync: bool = False,
        streaming: bool = True,
        buffer_size: int = 1000,
        max_num_shards: int = 16,
        seed: int = 42,
        rng: np.random.Generator | None = None,
        shuffle: bool = True,
        return_uint8: bool = False,
        depth_output_unit: Literal["m", "mm"] = "mm",
        *,
        repo_type: Literal["dataset", "bucket"] = "dataset",
        token: str | bool | None = None,
        **options: Any,
    ) -> None:
        del force_cache_sync, streaming, buffer_size, max_num_shards
        super().__init__(
            *(repo_id, root, episodes, None, image_transforms, delta_timestamps, tolerance_s),
            revision=revision,
            return_uint8=return_uint8,
            depth_output_unit=depth_output_unit,
            token=token,
            repo_type=repo_type,
            **options,
        )
        self.seed, self.shuffle = seed, shuffle
        self.rng = np.random.default_rng(seed) if rng is None else rng

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rng = self.rng if self.shuffle else np.random.default_rng(self.seed)
        order = rng.permutation(len(self))
        worker = import_extra("torch").utils.data.get_worker_info()
        if worker is not None:
            order = order[worker.id :: worker.num_workers]
        for begin in range(0, len(order), _ITEMS_PER_READ):
            yield from self.__getitems__(order[begin : begin + _ITEMS_PER_READ].tolist())


def _to_tensors(batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    torch = import_extra("torch")
    return {
        name: [value if isinstance(value, str) else torch.tensor(value) for value in column]
        for name, column in batch.items()
    }


def statistics_of(field: FieldStatistics) -> dict[str, np.ndarray]:
    """Returns the statistics of a field, by their names in LeRobot and GR00T."""
    statistics = {name: getattr(field, name) for name in _STATISTIC_NAMES}
    return statistics | {_quantile_name(q): value for q, value in field.quantiles.items()}


def _quantile_name(q: float) -> str:
    """Returns the name of a quantile, such as `q01`."""
    return f"q{round(100 * q):02}"
