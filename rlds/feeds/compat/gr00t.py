"""Datasets in any format as a `ShardedDataset` of GR00T.

    from rlds.feeds.compat.gr00t import ShardedSingleStepDataset

The reference is `NVIDIA/Isaac-GR00T`, 2026: for the same seed, a shard has the same steps.
Differences: only the frames of a shard are decoded, statistics are computed if `stats.json` has no
quantiles, and all versions of LeRobot are read. For another format, pass `modality`, the content of
`modality.json`. Subtasks as instructions ("sub_task") are not supported.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from rlds.feeds.compat.lerobot import LeRobotDatasetMetadata
from rlds.feeds.compat.loading import class_of
from rlds.raw_files.untrusted import source_errors
from rlds.sources.texts import as_text
from rlds_ecosystem.model.names import suggest_names

__all__ = ["ShardedSingleStepDataset", "StepData"]

_STATE, _ACTION, _VIDEO, _LANGUAGE = "state", "action", "video", "language"
_ORIGINAL_KEY = "original_key"
_DEFAULT_NAMES = {_STATE: "observation.state", _ACTION: "action"}
_TASK, _ANNOTATION = "task", "annotation."
_QUANTILES = {"q01", "q99"}

# The base class of GR00T, if it is installed.
_Base: Any = class_of("gr00t.data.interfaces", "ShardedDataset")


@dataclasses.dataclass
class StepData:
    """A step for a GR00T processor; replaces `VLAStepData` if `gr00t` is not installed.

    Attributes:
      images: The frames of each camera.
      states: The state vectors by modality key, float32 of shape `[steps, elements]`.
      actions: The action vectors, in the same form.
      text: The instruction.
      embodiment: The tag of the robot.
    """

    images: dict[str, list[np.ndarray]]
    states: dict[str, np.ndarray]
    actions: dict[str, np.ndarray]
    text: str | None = None
    embodiment: Any = None


class ShardedSingleStepDataset(_Base):  # type: ignore[misc]
    """A GR00T dataset of steps in shards; each shard has steps of many episodes.

    Args:
      dataset_path: The dataset.
      embodiment_tag: The tag of the robot.
      modality_configs: The keys (`modality_keys`) and step offsets (`delta_indices`) of "video",
        "state", "action" and "language".
      video_backend: Ignored: PyAV is used.
      video_backend_kwargs: Ignored.
      shard_size: The approximate number of steps in a shard.
      episode_sampling_rate: The fraction of an episode in one chunk of a shard.
      seed: The seed of the assignment of steps to shards.
      allow_padding: Whether to pad with the first and the last step beyond an episode.
      modality: The content of `meta/modality.json`, if the file is missing.
      **options: Options of `LeRobotDatasetMetadata`, such as `split`.

    Attributes:
      processor: Converts a step to an item; see `set_processor`.
      action_horizon: The number of steps from the first to the last action of an item.
      episode_loader: The episodes by index, as tables of pandas.
      sharded_episodes: The episodes of each shard, with their steps.
      shard_lengths: The numbers of steps of the shards.

    Raises:
      KeyError: The dataset lacks a modality key.
    """

    def __init__(
        self,
        dataset_path: Any,
        embodiment_tag: Any,
        modality_configs: Mapping[str, Any],
        video_backend: str = "torchcodec",
        video_backend_kwargs: Mapping[str, Any] | None = None,
        shard_size: int = 2**10,
        episode_sampling_rate: float = 0.1,
        seed: int = 42,
        allow_padding: bool = False,
        *,
        modality: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.video_backend, self.video_backend_kwargs = video_backend, video_backend_kwargs
        self.shard_size, self.episode_sampling_rate = shard_size, episode_sampling_rate
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.dataset_path, self.embodiment_tag = dataset_path, embodiment_tag
        self.modality_configs, self.allow_padding = modality_configs, allow_padding
        self.processor: Callable[[list[dict[str, Any]]], Any] | None = None
        self._folder = epath.Path(dataset_path) / "meta"
        if modality is None and (self._folder / "modality.json").exists():
            modality = _read_json(self._folder / "modality.json")
        self._modality = modality or {}
        self._meta = LeRobotDatasetMetadata(dataset_path, **options)
        self._columns = {
            (kind, key): self._locate_column(kind, key)
            for kind, config in modality_configs.items()
            for key in config.modality_keys
        }
        deltas = modality_configs[_ACTION].delta_indices
        self.action_horizon = max(deltas) - min(deltas) + 1
        self.episode_loader = _EpisodeLoader(self)
        self.shard_dataset()

    def _locate_column(self, kind: str, key: str) -> tuple[str, slice]:
        """Returns the field of a modality key, and its elements; no field for a task text."""
        if kind == _LANGUAGE and key == _TASK:
            return "", slice(None)
        name = key.removeprefix(_ANNOTATION)
        group = _ANNOTATION.rstrip(".") if kind == _LANGUAGE else kind
        if name not in self._modality.get(group, {}):
            hint = suggest_names(name, self._modality.get(group, {}))
            raise KeyError(f"{self._folder}/modality.json: no {group} {name!r}; {hint}")
        entry = self._modality[group][name]
        default_features = {_VIDEO: f"observation.images.{key}", _LANGUAGE: f"{_ANNOTATION}{name}"}
        original = entry.get(_ORIGINAL_KEY, _DEFAULT_NAMES.get(kind, default_features.get(kind)))
        is_of_task = original not in self._meta.paths and original != default_features[_LANGUAGE]
        if original == "task_index" or (kind == _LANGUAGE and is_of_task):
            return "", slice(None)
        if original not in self._meta.paths:
            hint = suggest_names(original, self._meta.paths)
            raise KeyError(f"{self.dataset_path}: no feature {original!r}; {hint}")
        return self._meta.paths[original], slice(entry.get("start"), entry.get("end"))

    def get_effective_episode_length(self, episode_index: int) -> int:
        """Returns the number of steps of an episode with a full action chunk."""
        length = self.episode_loader.get_episode_length(episode_index)
        return max(0, length + 1 - self.action_horizon)

    def shard_dataset(self) -> None:
        """Assigns the steps to shards."""
        rng, num_pieces = self.rng, int(1 / self.episode_sampling_rate)
        episodes = range(len(self.episode_loader))
        lengths = np.array([self.get_effective_episode_length(n) for n in episodes], np.int64)
        order = rng.permutation(len(lengths))
        if not lengths.sum():
            raise ValueError(f"{self.dataset_path}: no episode has {self.action_horizon} steps")
        self.shard_lengths = np.zeros(-(-int(lengths.sum()) // self.shard_size), int)
        self.sharded_episodes: list[list[tuple[int, np.ndarray]]] = [[] for _ in self.shard_lengths]
        for episode in order.tolist():
            steps = np.arange(lengths[episode])
            rng.shuffle(steps)
            for piece in range(num_pieces):
                shard = int(np.argmin(self.shard_lengths))
                self.sharded_episodes[shard].append((episode, steps[piece::num_pieces]))
                self.shard_lengths[shard] += len(steps[piece::num_pieces])

    def set_processor(self, processor: Callable[[list[dict[str, Any]]], Any]) -> None:
        """Sets the processor, which converts steps to items."""
        self.processor = processor

    def __len__(self) -> int:
        return len(self.shard_lengths)

    def get_shard_length(self, idx: int) -> int:
        """Returns the number of steps of a shard."""
        return int(self.shard_lengths[idx])

    def get_shard(self, idx: int) -> list[Any]:
        """Returns the items of a shard, which are read at once."""
        pieces = self.sharded_episodes[idx]
        episodes = np.repeat([e for e, _ in pieces], [len(steps) for _, steps in pieces])
        steps = np.concatenate([steps for _, steps in pieces])
        values = self._read(episodes.astype(np.int64), steps.astype(np.int64))
        return [self._process(values, row) for row in range(len(steps))]

    def get_datapoint(self, episode_data: Any, step_index: int) -> Any:
        """Returns the item of a step.

        Args:
          episode_data: The episode from `episode_loader`, or its index, which reads only the needed
            rows.
          step_index: The step.
        """
        if isinstance(episode_data, int | np.integer):
            values = self._read(np.array([episode_data]), np.array([step_index]))
        else:
            values = self._slice_episode(episode_data, step_index)
        return self._process(values, 0)

    def _slice_episode(self, episode: Any, step: int) -> dict[tuple[str, str], Any]:
        """Returns the values at a step of a loaded episode, in the form of `_read`."""
        values: dict[tuple[str, str], Any] = {}
        for kind, key in self._columns:
            offset_steps = step + np.array(self.modality_configs[kind].delta_indices)
            clipped = self._clip_steps(kind, key, offset_steps, episode.index.max())
            rows = episode[f"{kind}.{key}"].loc[clipped].tolist()
            value = np.vstack(rows).astype(np.float32) if kind in _DEFAULT_NAMES else rows
            values[kind, key] = [value[0] if kind == _LANGUAGE else value]
        return values

    def _clip_steps(self, kind: str, key: str, steps: np.ndarray, last_steps: Any) -> np.ndarray:
        """Clips steps to an episode.

        Raises:
          IndexError: A step lies outside the episode, and padding is not allowed.
        """
        clipped = steps.clip(0, last_steps)
        if not self.allow_padding and (clipped != steps).any():
            raise IndexError(f"{kind} {key}: steps beyond the episode; pass allow_padding=True")
        return clipped

    def _read(
        self, episodes: np.ndarray, steps: np.ndarray, deltas: Sequence[int] | None = None
    ) -> dict[tuple[str, str], Any]:
        """Returns the values by modality and key, with an axis for steps and one for offsets."""
        last_steps = np.array(self._meta.episodes["length"])[episodes][:, np.newaxis] - 1
        episode_starts = np.array(self._meta.episodes["dataset_from_index"])[episodes]
        values: dict[tuple[str, str], Any] = {}
        for (kind, key), (path, elements) in self._columns.items():
            distances = self.modality_configs[kind].delta_indices if deltas is None else deltas
            offset_steps = steps[:, np.newaxis] + np.array(distances)
            clipped = self._clip_steps(kind, key, offset_steps, last_steps)
            if not path:
                rows = zip(episodes, episode_starts + steps)
                values[kind, key] = [self._text(episode, row, key) for episode, row in rows]
                continue
            row_episodes = np.repeat(episodes, offset_steps.shape[1])
            column = self._meta.table.take(row_episodes, clipped.reshape(-1), [path])[path]
            column = column.reshape(*offset_steps.shape, *column.shape[1:])
            if kind in _DEFAULT_NAMES:
                column = column.reshape(*offset_steps.shape, -1)[..., elements].astype(np.float32)
            is_text = kind == _LANGUAGE
            values[kind, key] = self._texts(path, column[:, 0].ravel()) if is_text else column
        return values

    def _texts(self, path: str, column: np.ndarray) -> list[str]:
        """Returns texts, or the task texts of task indices."""
        if self._meta.table.fields[path].is_text:
            return [as_text(text) for text in column.tolist()]
        tasks = self._meta.table_of_tasks
        try:
            return [tasks[index] for index in column.tolist()]
        except KeyError as error:
            raise KeyError(
                f"{self.dataset_path}: {path}: the table of tasks has no number {error}, only "
                f"{sorted(tasks)[:10]}. Correct the column, or the table of tasks"
            ) from None

    def _text(self, episode: int, row: int, key: str) -> str:
        if key == _TASK:
            return str(random.choice(self._meta.episodes["tasks"][episode]))
        return self._meta.task_texts[int(self._meta.task_of_steps[row])]

    def _process(self, values: Mapping[tuple[str, str], Any], row: int) -> Any:
        if self.processor is None:
            raise ValueError("no processor is set: call set_processor first")
        inputs: dict[str, dict[str, Any]] = {}
        for (kind, key), column in values.items():
            value = list(column[row]) if kind == _VIDEO else column[row]
            inputs.setdefault(kind, {})[key] = value
        text = next(iter(inputs.get(_LANGUAGE, {}).values()), None)
        content = class_of("gr00t.data.types", "VLAStepData", StepData)(
            images=inputs.get(_VIDEO, {}),
            states=inputs.get(_STATE, {}),
            actions=inputs.get(_ACTION, {}),
            text=text,
            embodiment=self.embodiment_tag,
        )
        return self.processor([{"type": "episode_step", "content": content}])

    def get_dataset_statistics(self) -> dict[str, Any]:
        """Returns the statistics of the state and action vectors."""
        vectors = {key: column for key, column in self._columns.items() if key[0] in _DEFAULT_NAMES}
        names = {path: name for name, path in self._meta.paths.items()}
        file_stats = self._meta._read_stats().items()
        stats = {name: values for name, values in file_stats if values.keys() >= _QUANTILES}
        absent = {names[path] for path, _ in vectors.values()} - stats.keys()
        stats |= self._meta._compute_stats(sorted(absent))
        statistics: dict[str, Any] = {}
        for (kind, key), (path, elements) in vectors.items():
            values = {name: v for name, v in stats[names[path]].items() if name != "count"}
            plain = {name: np.ravel(value)[elements].tolist() for name, value in values.items()}
            statistics.setdefault(kind, {})[key] = plain
        for name in (f"relative_stats_{self.action_horizon}.json", "relative_stats.json"):
            if (self._folder / name).exists():
                statistics["relative_action"] = _read_json(self._folder / name)
                break
        return statistics

    def get_initial_actions(self) -> Sequence[Any]:
        """Returns the initial actions of a policy, if the dataset has them."""
        path = self._folder / "initial_actions.npz"
        if not path.exists():
            return []
        actions: Sequence[Any] = importlib.import_module(
            "gr00t.utils.initial_actions"
        ).load_initial_actions(path)
        return actions


class _EpisodeLoader:
    """The episodes of a GR00T dataset as pandas tables, with a column for each modality key."""

    def __init__(self, dataset: ShardedSingleStepDataset) -> None:
        self._dataset = dataset
        self.episode_lengths: list[int] = list(dataset._meta.episodes["length"])
        self.get_dataset_statistics = dataset.get_dataset_statistics
        self.get_initial_actions = dataset.get_initial_actions

    def __len__(self) -> int:
        return len(self.episode_lengths)

    def get_episode_length(self, idx: int) -> int:
        """Returns the number of steps of an episode."""
        return self.episode_lengths[idx]

    def __getitem__(self, idx: int) -> Any:
        episode = range(len(self))[idx]
        steps = np.arange(self.episode_lengths[episode])
        values = self._dataset._read(np.full(len(steps), episode), steps, deltas=[0])
        columns = {
            f"{kind}.{key}": list(column) if kind == _LANGUAGE else [row[0] for row in column]
            for (kind, key), column in values.items()
        }
        return importlib.import_module("pandas").DataFrame(columns)


def _read_json(path: epath.Path) -> Any:
    with source_errors(path):
        return json.loads(path.read_text())
