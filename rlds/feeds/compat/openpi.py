"""Drop-in replacement of openpi's DROID datasets, for JAX and PyTorch, without TensorFlow.

    from rlds.feeds.compat.openpi import DroidActionSpace, DroidRldsDataset, RLDSDataset
    import rlds.feeds.compat.openpi as lerobot_dataset

The reference is the repository `Physical-Intelligence/openpi`, June 2026. Differences:

* Samples are shuffled over the whole dataset by a seed, and an epoch has each sample once; without
  `shuffle`, in the order of the dataset.
* `len` is the number of samples. In openpi, it is always 20,000,000.
* Each process of JAX or torchrun gets different samples; `state_dict` resumes exactly.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import override

from rlds.feeds.compat import lerobot
from rlds.feeds.compat.chains import Chain, Resumable
from rlds.feeds.compat.lerobot import LeRobotDataset
from rlds.feeds.compat.loading import open_all, split_indices
from rlds.feeds.mixture import Mixture
from rlds.feeds.openpi import OpenpiSamples
from rlds.feeds.roles import Roles
from rlds.feeds.samples import Batch, Columns, SampleRows, Samples
from rlds.feeds.table import Table
from rlds.feeds.trajectories import Trajectory, map_episodes
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episodes import Episodes
from rlds.sources.source import Source
from rlds.sources.texts import as_text
from rlds_ecosystem.model.nests import leaves_at

__all__ = [
    "DroidActionSpace",
    "DroidRldsDataset",
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "RLDSDataset",
]

_EXTERIOR_CAMERAS = ("observation/exterior_image_1_left", "observation/exterior_image_2_left")
_INSTRUCTION_FIELDS = ("language_instruction", "language_instruction_2", "language_instruction_3")
_FOLDER_FIELD, _FILE_FIELD = "episode_metadata/recording_folderpath", "episode_metadata/file_path"
_SUCCESS_WORD = "success"


class DroidActionSpace(enum.Enum):
    """The action space: joint positions as targets, or joint velocities."""

    JOINT_POSITION = enum.auto()
    JOINT_VELOCITY = enum.auto()


@dataclasses.dataclass
class RLDSDataset:
    """A dataset in a mixture of DROID datasets.

    Attributes:
      name: The folder of the dataset.
      version: The subfolder of its version; empty if there is none.
      weight: The weight of the samples.
      filter_dict_path: A JSON file with the ranges of steps to keep, such as
        `[[0, 100], [200, 300]]`, by `"<recording_folderpath>--<file_path>"`.
    """

    name: str
    version: str
    weight: float
    filter_dict_path: str | None = None


class LeRobotDatasetMetadata(lerobot.LeRobotDatasetMetadata):
    """The metadata as in LeRobot 0.1, which openpi uses."""

    @functools.cached_property
    @override
    def tasks(self) -> dict[int, str]:
        """The texts of the tasks, by task index."""
        return self.task_texts


class DroidRldsDataset(Resumable):
    """An endless dataset of batches of DROID samples.

    A batch has `actions`, `observation` (`image`, `wrist_image`, `joint_position`,
    `gripper_position`), `prompt` and `step_id`. For each episode and epoch, a random camera of two
    and a random instruction of three are used.

    Args:
      data_dir: The folder of the datasets.
      batch_size: The number of samples in a batch of each process.
      datasets: The datasets, `RLDSDataset` of this module or of openpi, with weights that sum to 1.
      shuffle: Whether to shuffle.
      action_chunk_size: The number of actions in a sample.
      action_space: The action space.
      max_loaded_steps_per_episode: Ignored, as in openpi.
      shuffle_buffer_size: Ignored: there is no buffer.
      num_parallel_reads: Ignored.
      num_parallel_calls: Ignored.
      seed: The seed of all random choices.
      standardize_fn: A function that converts trajectories of another dataset to the fields of
        DROID: see `rlds.feeds.map_episodes`. Missing cameras and instructions are not drawn.

    Raises:
      KeyError: A field is missing.
      ValueError: The weights do not sum to 1, or no samples are left.
    """

    def __init__(
        self,
        data_dir: Any,
        batch_size: int,
        datasets: Sequence[Any],
        *,
        shuffle: bool = True,
        action_chunk_size: int = 16,
        action_space: Any = DroidActionSpace.JOINT_POSITION,
        max_loaded_steps_per_episode: int = 100,
        shuffle_buffer_size: int = 250_000,
        num_parallel_reads: int = -1,
        num_parallel_calls: int = -1,
        seed: int = 0,
        standardize_fn: Callable[[Trajectory], Any] | None = None,
    ) -> None:
        del max_loaded_steps_per_episode, shuffle_buffer_size
        del num_parallel_reads, num_parallel_calls
        weights = [float(dataset.weight) for dataset in datasets]
        if not math.isclose(sum(weights), 1.0):
            raise ValueError(f"the weights of the datasets sum to {sum(weights)}, expected 1")
        self.batch_size, self.shuffle = batch_size, shuffle
        is_position = action_space.name == DroidActionSpace.JOINT_POSITION.name
        action = f"action_dict/joint_{'position' if is_position else 'velocity'}"
        all_samples: list[Samples] = [
            _samples(
                open_all(epath.Path(data_dir) / dataset.name / (dataset.version or "")),
                dataset.filter_dict_path,
                action,
                action_chunk_size,
                seed,
                standardize_fn,
            )
            for dataset in datasets
        ]
        self._length = sum(map(len, all_samples))
        samples = all_samples[0] if len(all_samples) == 1 else Mixture(all_samples, weights)
        self.dataset = Chain(samples, {}, seed=seed, is_flat=True, is_shuffled=shuffle)
        self.dataset = self.dataset.repeat().batch(batch_size)

    def __iter__(self) -> Iterator[Batch]:
        return self.iterate()

    def __len__(self) -> int:
        return self._length


class _DroidSamples(OpenpiSamples):
    """Samples of DROID with step IDs."""

    names: Sequence[str] = ()

    @override
    def columns(self, batch: SampleRows) -> Columns:
        columns = super().columns(batch)
        steps = zip(batch.episodes.tolist(), batch.steps.tolist())
        columns["step_id"] = np.empty(len(batch.steps), object)
        columns["step_id"][:] = [f"{self.names[e]}--{step}".encode() for e, step in steps]
        return columns


def _samples(
    table: Table,
    filter_dict_path: Any,
    action: str,
    horizon: int,
    seed: int,
    standardize: Callable[[Trajectory], Any] | None,
) -> Samples:
    """Returns the samples of the successful episodes that the filter keeps."""
    indices = split_indices(table.episodes, True, has_validation=False)
    names = np.array([source_key(table.episodes, n) for n in range(table.num_episodes)], object)
    if _FILE_FIELD in dict(leaves_at(table.episodes.spec, None)):
        folders, files = ([*map(as_text, table.column(f))] for f in (_FOLDER_FIELD, _FILE_FIELD))
        indices = indices[[_SUCCESS_WORD in files[index] for index in indices.tolist()]]
        names[:] = [f"{folder}--{file}" for folder, file in zip(folders, files)]
    if standardize is not None:
        table = map_episodes(table, standardize, version=repr(standardize).partition(" at ")[0])
    fields = table.storage.fields
    cameras = [path for path in _EXTERIOR_CAMERAS if path in fields] or _EXTERIOR_CAMERAS[:1]
    roles = Roles(
        {"image": cameras, "wrist_image": "observation/wrist_image_left"},
        ("observation/joint_position", "observation/gripper_position"),
        (action, "action_dict/gripper_position"),
        [path for path in _INSTRUCTION_FIELDS if path in fields] or _INSTRUCTION_FIELDS[0],
    )
    table = table.filter_episodes(indices)
    samples = _DroidSamples(table, roles, action_horizon=horizon, draw_seed=seed)
    samples.names = names[indices]
    if filter_dict_path is None:
        return samples
    with source_errors(filter_dict_path):
        ranges = json.loads(epath.Path(filter_dict_path).read_text())
    counts = samples.counts()
    is_kept = np.zeros(len(samples), np.bool_)
    for name, begin, count in zip(samples.names, np.cumsum(counts) - counts, counts):
        for first_step, end in ranges.get(name, ()):
            is_kept[begin + first_step : begin + min(end, count)] = True
    return samples.choose(np.flatnonzero(is_kept))


def source_key(episodes: Episodes, index: int) -> str:
    """Returns the default key of an episode."""
    source, location = episodes.source, episodes.locate(index)
    return source.key(*location) if isinstance(source, Source) else str(index)
