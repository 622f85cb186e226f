"""Datasets in any format as a `LeRobotDataset`, for scripts that train with LeRobot.

    from rlds.feeds.compat.lerobot import LeRobotDataset, LeRobotDatasetMetadata

Facts about LeRobot are those of `lerobot` 0.6.1. What is different:

* `repo_id` or `root` is a dataset here, or in an object store, in any format; nothing is downloaded
  from a hub. Several are one dataset: `repo_id` takes a list.
* The fields of other formats have their paths as names, with dots: "observation.image". The reward
  is "next.reward". The last step of an episode is left out if it has no action.
* A batch of items is read at once.
* `meta.stats` are computed when somebody looks at them; those of images, of some frames.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

import rlds
from rlds.feeds.table import open as open_table
from rlds.robotics.registry import find_meaning
from rlds.sources.standardized import name_of
from rlds.sources.text_tables import TASKS, TextTable, table_in
from rlds.sources.texts import as_text
from rlds.statistics import FieldStatistics
from rlds.video.fields import PER_METRE
from rlds_ecosystem import import_extra
from rlds_ecosystem.fields import Field

__all__ = ["LeRobotDataset", "LeRobotDatasetMetadata", "statistics_of"]

_Dataset: Any = object
with contextlib.suppress(ImportError):  # Without PyTorch, there is no DataLoader that asks for it.
    _Dataset = importlib.import_module("torch.utils.data").Dataset

_REWARD, _TIMESTAMP = "next.reward", "timestamp"
_TASK, _TASK_INDEX = "language_instruction", "task_index"
_SCALARS = {
    _TIMESTAMP: "float32",
    **dict.fromkeys(("frame_index", "episode_index", "index", _TASK_INDEX), "int64"),
}
_LEFT_OUT = (rlds.IS_FIRST, rlds.IS_LAST, rlds.IS_TERMINAL, rlds.DISCOUNT, _TASK)
_QUANTITIES, _QUANTILES = ("min", "max", "mean", "std"), (0.01, 0.1, 0.5, 0.9, 0.99)
_MOST_FRAMES = 64
_BLOCK = 4096


class _Episodes(dict[Any, Any]):
    """The table of episodes: columns by their names, and rows by their numbers."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(key)
        return {name: column[key] for name, column in self.items()}

    def __len__(self) -> int:
        return len(self["length"])


class LeRobotDatasetMetadata:
    """What is known of a dataset.

    Args:
      repo_id: The dataset, or several; unless there is a root.
      root: The dataset.
      revision: None: there are no revisions.
      fps: How many steps a second has, if the dataset does not say.
      **options: Those of `rlds.feeds.open`, such as `split`.

    Attributes:
      table: The steps.
      features: The dtype and the shape of each feature, by its name.
      episodes: For each episode `dataset_from_index`, `dataset_to_index`, `length` and `tasks`.
      tasks: The tasks, by their numbers.
      depth_output_unit: The unit of the statistics of depths, "m" or "mm"; as stored if None.
    """

    has_language_columns = False
    depth_output_unit: str | None = None

    def __init__(
        self,
        repo_id: Any,
        root: Any = None,
        revision: str | None = None,
        *,
        fps: float | None = None,
        **options: Any,
    ) -> None:
        if revision is not None:
            raise NotImplementedError("revision: a dataset has the files that are there")
        options.pop("force_cache_sync", None)
        self.repo_id, self.root = repo_id, root
        self.table = open_table(repo_id if root is None else root, **{"video": "frames", **options})
        episodes = self.table.episodes
        source = getattr(episodes, "source", None)
        said = getattr(episodes, "metadata", {}).get("lerobot", {}).get("info", {})
        meaning = find_meaning(name_of(source)) if source is not None else None
        self._fps = fps or said.get("fps") or (meaning and meaning.control_hz)
        self.robot_type = said.get("robot_type") or (meaning and meaning.robot)
        self.paths = self._paths(said.get("features"))
        videos, declared = set(getattr(source, "cameras", ())), said.get("features", {})
        self.features = {
            name: {**self._feature(path, videos), **declared.get(name, {})}
            for name, path in self.paths.items()
        }
        for feature in self.features.values():
            feature["shape"] = tuple(feature["shape"])
        for name, dtype in _SCALARS.items():
            self.features[name] = {"dtype": dtype, "shape": (1,), "names": None}
        self._ends = np.cumsum(self.table.steps(only_real=True).counts())

    def _paths(self, declared: Mapping[str, Any] | None) -> dict[str, str]:
        """The fields, by the names of their features."""
        found = {}
        for path in self.table.fields:
            name = _REWARD if path == rlds.REWARD else path.replace("/", ".")
            if (
                path not in _LEFT_OUT
                and name not in _SCALARS
                and (not declared or name in declared)
            ):
                found[name] = path
        return found

    def _feature(self, path: str, videos: set[str]) -> dict[str, Any]:
        field, kind = self.table.fields[path], ""
        is_deep = field.dtype == np.uint16 and field.shape[-1:] == (1,)
        is_array = len(field.shape) == 3 and (field.dtype == np.uint8 or is_deep)
        if self.table.storage.is_image(path) or is_array:
            kind = "video" if path in videos else "image"
        kind = kind or ("string" if field.is_text else np.dtype(field.column_dtype).name)
        names = list(field.names) if field.names else None
        if kind in ("video", "image"):
            names = ["height", "width", "channels"]
        return {"dtype": kind, "shape": tuple(field.shape) or (1,), "names": names}

    @property
    def fps(self) -> Any:
        """How many steps a second has.

        Raises:
          ValueError: The dataset does not say.
        """
        if self._fps is None:
            raise ValueError(f"{self.repo_id}: the dataset does not say its rate: pass fps=...")
        return self._fps

    @property
    def image_keys(self) -> list[str]:
        """The features that are images, each a file."""
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
        """Returns pixels as LeRobot scales them: depths in their unit, others from 0 to 1."""
        dtype = np.result_type(images, np.float32)
        pixels, unit = images.astype(dtype), self._field(key).unit
        if key not in self.depth_keys:
            return pixels / np.float32(255)
        wanted = self.depth_output_unit
        if unit in PER_METRE and wanted in PER_METRE:
            pixels *= np.float32(PER_METRE[wanted] / PER_METRE[unit])
        if wanted == "mm" and self.features[key]["dtype"] == "video":
            np.rint(pixels, out=pixels)  # As LeRobot has it.
        return pixels

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the features."""
        return {key: feature["shape"] for key, feature in self.features.items()}

    @property
    def total_episodes(self) -> int:
        """How many episodes there are."""
        return self.table.num_episodes

    @property
    def total_frames(self) -> int:
        """How many steps there are that have an action."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @functools.cached_property
    def _tasks(self) -> tuple[dict[int, str], np.ndarray]:
        """The tasks, by their numbers, and the number of the task of each step."""
        fields = [path for path in (_TASK, _TASK_INDEX) if path in self.table.storage.fields]
        if _TASK not in fields:
            return {0: ""}, np.zeros(self.total_frames, np.int64)
        steps = self.table.select(fields).steps(only_real=True)
        known = dict(self.table_of_tasks)
        texts = {text: number for number, text in reversed(known.items())}
        numbers = []
        for begin in range(0, len(steps), _BLOCK):
            batch = steps.batch(range(begin, min(begin + _BLOCK, len(steps))))
            for row, text in enumerate(map(as_text, batch[_TASK])):
                if text not in texts:
                    stored = int(batch[_TASK_INDEX][row]) if _TASK_INDEX in fields else len(known)
                    # Several datasets have several tasks of one number.
                    texts[text] = max(known) + 1 if stored in known else stored
                    known[texts[text]] = text
                numbers.append(texts[text])
        return known, np.array(numbers, np.int64)

    @property
    def table_of_tasks(self) -> TextTable:
        """The tasks by the numbers that columns have, if that is known of the dataset."""
        return table_in(getattr(self.table.episodes, "metadata", {}), TASKS)

    @property
    def tasks(self) -> dict[int, str]:
        """The tasks, by their numbers."""
        return self._tasks[0]

    @property
    def task_of_steps(self) -> np.ndarray:
        """The number of the task of each step."""
        return self._tasks[1]

    @property
    def total_tasks(self) -> int:
        """How many tasks there are."""
        return len(self.tasks)

    @functools.cached_property
    def episodes(self) -> _Episodes:
        """The table of episodes."""
        begins = [0, *self._ends.tolist()[:-1]]
        tasks = [
            [self.tasks[number] for number in dict.fromkeys(self.task_of_steps[begin:end].tolist())]
            for begin, end in zip(begins, self._ends.tolist())
        ]
        return _Episodes(
            {
                "episode_index": list(range(len(begins))),
                "tasks": tasks,
                "length": np.diff([0, *self._ends]).tolist(),
                "dataset_from_index": begins,
                "dataset_to_index": self._ends.tolist(),
            }
        )

    @functools.cached_property
    def stats(self) -> dict[str, dict[str, np.ndarray]]:
        """The statistics of the features that are numbers, by their names."""
        cameras, others = self.camera_keys, ("image", "video", "string", "bool")
        numbers = [name for name in self.paths if self.features[name]["dtype"] not in others]
        paths = [self.paths[name] for name in numbers]
        computed = self.table.compute_statistics(paths, quantiles=_QUANTILES)
        found = {}
        for name in numbers:
            field, shape = computed[self.paths[name]], self.features[name]["shape"]
            found[name] = {k: np.reshape(v, shape) for k, v in statistics_of(field).items()}
            found[name]["count"] = np.array([int(np.max(field.count))])
        size = min(self.total_frames, _MOST_FRAMES)
        steps = self.table.select([self.paths[name] for name in cameras]).steps(only_real=True)
        some = np.linspace(0, self.total_frames - 1, size).astype(np.int64)
        seen = steps.batch_columns(some) if cameras else {}
        for name in cameras:
            frames = [image.reshape(-1, image.shape[-1]) for image in seen[self.paths[name]]]
            pixels = self.pixels(name, np.concatenate(frames).astype(np.float64))
            values = {key: getattr(pixels, key)(axis=0) for key in _QUANTITIES}
            quantiles = np.quantile(pixels, _QUANTILES, axis=0)
            values |= {_name_of(q): value for q, value in zip(_QUANTILES, quantiles)}
            found[name] = {key: value.reshape(-1, 1, 1) for key, value in values.items()}
            found[name]["count"] = np.array([size])
        return found


class LeRobotDataset(_Dataset):  # type: ignore[misc]
    """The steps of a dataset as items: dicts of tensors, with the text of the "task".

    Args:
      repo_id: The dataset, or several; unless there is a root.
      root: The dataset.
      episodes: The numbers of the episodes to have; all by default.
      episode_filter: Takes a row of `meta.episodes`, and says whether to have the episode.
      image_transforms: Changes the images of each camera.
      delta_timestamps: For features, how many seconds from the step to have their values.
      tolerance_s: How far these may be from a step.
      revision: None: there are no revisions.
      force_cache_sync: Not needed: nothing is downloaded.
      download_videos: Not needed.
      video_backend: Not needed: PyAV decodes.
      return_uint8: Whether videos are uint8, and not float32 from 0 to 1.
      depth_output_unit: The unit of depths, "m" or "mm", if their own is known.
      **options: Those of `LeRobotDatasetMetadata`.

    Attributes:
      meta: What is known of the dataset.
      features: The dtype and the shape of each feature, by its name.
      episodes: The numbers of the episodes; None for all.
      num_episodes: How many these are.
      num_frames: How many items there are.

    Raises:
      KeyError: There is no such feature.
      ValueError: A time is not that of a step, or the rate is not known.
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
        *,
        depth_output_unit: Literal["m", "mm"] = "mm",
        **options: Any,
    ) -> None:
        del force_cache_sync, download_videos, video_backend
        if depth_output_unit not in PER_METRE:
            raise ValueError(f"depth_output_unit: got {depth_output_unit!r}, expected 'm' or 'mm'")
        self.meta = LeRobotDatasetMetadata(repo_id, root, revision, **options)
        self.meta.depth_output_unit = depth_output_unit
        self.repo_id, self.root = repo_id, root
        if episode_filter is not None:
            known = range(self.meta.total_episodes) if episodes is None else episodes
            episodes = [n for n in known if episode_filter(self.meta.episodes[n])]
        self.episodes = None if episodes is None else list(episodes)
        self.image_transforms, self._return_uint8 = image_transforms, return_uint8
        self.delta_timestamps = delta_timestamps
        offsets = {self._path(key): self._steps(key, tolerance_s) for key in delta_timestamps or ()}
        paths, table = self.meta.paths, self.meta.table
        stored = [path for path in [_TIMESTAMP, _TASK] if path in table.storage.fields]
        table = table.select([*paths.values(), *stored])
        chosen = np.arange(table.num_episodes) if episodes is None else np.array(self.episodes)
        self._numbers = chosen.astype(np.int64)
        self._samples = table.filter_episodes(self._numbers).offsets(offsets, only_real=True)
        self.features, self.num_episodes = self.meta.features, len(self._numbers)
        self.num_frames = len(self._samples)

    def _path(self, key: str) -> str:
        if key not in self.meta.paths:
            raise KeyError(f"no feature {key!r}; there are {', '.join(self.meta.paths)}")
        return self.meta.paths[key]

    def _steps(self, key: str, tolerance: float) -> list[int]:
        """The numbers of steps that times are."""
        assert self.delta_timestamps is not None
        times, fps = self.delta_timestamps[key], self.meta.fps
        far = [time for time in times if abs(time * fps - round(time * fps)) / fps > tolerance]
        if far:
            raise ValueError(f"delta_timestamps of {key}: {far} are no multiples of 1/{fps} s")
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
        numbers = np.array([int(index) for index in indices], np.int64)
        columns = self._samples.batch_columns(numbers)
        places, steps = self._samples.locate(numbers)
        episodes = self._numbers[places]
        index = (self.meta._ends - np.diff([0, *self.meta._ends]))[episodes] + steps
        found: dict[str, Any] = {}
        for key, path in self.meta.paths.items():
            is_video = self.meta.features[key]["dtype"] == "video"
            found[key] = self._tensors(key, columns[path], is_video)
            if f"{path}_is_pad" in columns:
                found[f"{key}_is_pad"] = torch.from_numpy(columns[f"{path}_is_pad"])
        numbers_of = {"frame_index": steps, "episode_index": episodes, "index": index}
        numbers_of[_TASK_INDEX] = self.meta.task_of_steps[index]
        found |= {key: torch.from_numpy(np.asarray(value)) for key, value in numbers_of.items()}
        times = columns.get(_TIMESTAMP)
        if times is None:
            times = steps / np.float32(self.meta._fps or 1)
        found[_TIMESTAMP] = torch.from_numpy(np.asarray(times, np.float32))
        found["task"] = [as_text(text) for text in columns.get(_TASK, [b""] * len(numbers))]
        return [{key: value[row] for key, value in found.items()} for row in range(len(numbers))]

    def _tensors(self, key: str, column: np.ndarray, is_video: bool) -> Any:
        torch = import_extra("torch")
        if column.dtype == object and self.meta.features[key]["dtype"] == "string":
            return [as_text(text) for text in column]
        if key not in self.meta.camera_keys:
            kinds = {"f": np.float32, "i": np.int64, "u": np.int64}
            return torch.from_numpy(column.astype(kinds.get(column.dtype.kind, column.dtype)))
        made = []
        for image in column:
            # Integers are moved in a fraction of the time that floats take.
            image = np.ascontiguousarray(np.moveaxis(image, -1, -3))
            if not (is_video and self._return_uint8) or key in self.meta.depth_keys:
                image = self.meta.pixels(key, image)
            pixels = torch.from_numpy(image)
            if is_video and len(pixels.shape) == 4 and len(pixels) == 1:  # As LeRobot has it.
                pixels = pixels[0]
            made.append(pixels if self.image_transforms is None else self.image_transforms(pixels))
        return made

    @property
    def fps(self) -> Any:
        """How many steps a second has."""
        return self.meta.fps

    @property
    def absolute_to_relative_idx(self) -> dict[int, int] | None:
        """The number of each item, by that among all episodes; None if these are all."""
        if self.episodes is None:
            return None
        of = self.meta.episodes
        ranges = [(of["dataset_from_index"][n], of["dataset_to_index"][n]) for n in self.episodes]
        places = [place for begin, end in ranges for place in range(begin, end)]
        return {place: number for number, place in enumerate(places)}


def statistics_of(field: FieldStatistics) -> dict[str, np.ndarray]:
    """Returns the statistics of a field, by the names that LeRobot and GR00T have for them."""
    found = {name: getattr(field, name) for name in _QUANTITIES}
    return found | {_name_of(q): value for q, value in field.quantiles.items()}


def _name_of(q: float) -> str:
    """The name of a quantile, such as `q01`."""
    return f"q{round(100 * q):02}"
