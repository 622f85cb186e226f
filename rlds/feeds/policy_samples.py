"""Base classes of the samples for Octo, OpenVLA and openpi."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from rlds import normalization
from rlds.feeds.permutation import key_of, uniform_of
from rlds.feeds.resizing import resize
from rlds.feeds.roles import ACTION, STATE, Roles, as_vector
from rlds.feeds.samples import Columns, SampleRows, Samples
from rlds.feeds.statistics_files import PROPRIO
from rlds.feeds.storage import hash_of
from rlds.feeds.table import Table
from rlds.sources import arrays
from rlds.sources.texts import as_utf8
from rlds.statistics import FieldStatistics, Statistics

__all__ = ["NormalizedPolicySamples", "PolicySamples", "Size"]

Size: TypeAlias = tuple[int, int]
"""The height and the width of an image."""


@dataclasses.dataclass(eq=False, repr=False)
class PolicySamples(Samples):
    """A sample for each step, with the keys that the training code of a policy expects.

    Args:
      table: The steps.
      roles: The fields of the policy's inputs and outputs.
      image_size: The new height and width of images, for all cameras or by camera. Missing cameras
        have black images of this size.
      include_last_action: Whether to include the last step of each episode, as these projects do.
        If False, final observations are excluded.
      draw_seed: The seed of the random choice among several fields of a role, see `Roles`.

    Raises:
      KeyError: There is no such field, or there are no statistics of the action or the state.
      ValueError: An argument is out of range, or statistics have vectors of another length.
    """

    table: Table
    roles: Roles
    _: dataclasses.KW_ONLY
    image_size: Size | Mapping[str, Size] | None = None
    include_last_action: bool = True
    draw_seed: int = 0

    def __post_init__(self) -> None:
        for path in self.roles.fields:
            if path not in self.table.storage.fields:
                raise self.table.unknown_field(path)
        for name in ("window_size", "action_horizon", "max_goal_distance"):
            value = getattr(self, name, None)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        self.table = self.table.select(self.roles.fields)
        _ = self.spec  # Raises if roles do not fit the fields.

    @override
    def describe(self) -> str:
        arguments = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Statistics):
                value = hash_of(value.to_json())
            if field.name != "table" and (field.name, value) != ("revise", None):
                arguments.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    @override
    def counts(self) -> np.ndarray:
        summaries = self.table.summaries
        return summaries.num_steps if self.include_last_action else summaries.num_real_steps()

    def _images(
        self, columns: Mapping[Any, np.ndarray], steps: np.ndarray
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields the resized images of each camera; images of missing cameras are black."""
        for camera, path in self.roles.images.items():
            size = self.image_size
            size = size.get(camera) if isinstance(size, Mapping) else size
            if path is None:
                yield camera, np.zeros((*steps.shape, *(size or (1, 1)), 3), np.uint8)
            elif size is None:
                yield camera, columns[path]
            elif columns[path].dtype == object:  # The images differ in size.
                images = np.zeros((*steps.shape, *size, 3), np.uint8)
                for index in np.ndindex(steps.shape):
                    images[index] = resize(columns[path][index], size)
                yield camera, images
            else:
                yield camera, resize(columns[path], size)

    def _instructions(self, batch: SampleRows) -> Iterator[np.ndarray]:
        """Yields the instructions in UTF-8, if the dataset has an instruction field."""
        if self.roles.language is not None:
            columns = self._choose_fields(batch, [self.roles.language])
            yield from map(as_utf8, columns.values())

    def _choose_fields(self, batch: SampleRows, fields: Sequence[Any]) -> dict[Any, np.ndarray]:
        """Returns fields, see `_take`; of several fields of a role, draws one for each row."""
        _, episodes, steps, epoch = batch
        single_paths = [path for path in fields if isinstance(path, str)]
        columns: dict[Any, np.ndarray] = {**self._take(episodes, steps, single_paths)}
        for paths in fields:
            if isinstance(paths, str):
                continue
            uniform = uniform_of(episodes, key_of("field", self.draw_seed, epoch, *paths))
            choices = (uniform * len(paths)).astype(np.int64)
            for index, path in enumerate(paths):
                rows = np.flatnonzero(choices == index)
                if len(rows) or (paths not in columns and index == len(paths) - 1):
                    values = self._take(episodes[rows], steps[rows], [path])[path]
                    if paths not in columns:
                        columns[paths] = arrays.empty((len(steps), *values.shape[1:]), values.dtype)
                    columns[paths][rows] = values
        return columns

    def keep_episodes(self, keep: Callable[[Columns], Any]) -> np.ndarray:
        """Returns a mask of the episodes to keep, by their actions, state and instructions.

        Args:
          keep: A function of the fields of an episode's samples by path, without images.
        """
        without_images = copy.copy(self)
        without_images.roles = dataclasses.replace(self.roles, images={})
        sample_ends = np.cumsum(self.counts())
        mask = np.zeros(len(sample_ends), np.bool_)
        for episode, (begin, end) in enumerate(itertools.pairwise([0, *sample_ends.tolist()])):
            if end > begin:
                mask[episode] = bool(keep(without_images.batch_columns(np.arange(begin, end))))
        return mask


@dataclasses.dataclass(eq=False, repr=False)
class NormalizedPolicySamples(PolicySamples):
    """Samples with normalized actions and states: the base class for Octo and OpenVLA.

    Args:
      dataset_name: The name of the dataset in the samples.
      window_size: The number of observations in a sample.
      statistics: Statistics that normalize the action and the state, see `Roles.statistics_of`;
        None for no normalization.
      kind: "normal", "bounds" or "bounds_q99"; see `rlds.normalization.normalize`.
      goal_seed: The seed of goals, which are drawn from the following steps; None for no goals.
      revise: A function of the values, the normalized values and the statistics of a field, which
        returns corrected normalized values; None for no correction.
    """

    dataset_name: str
    _: dataclasses.KW_ONLY
    window_size: int = 1
    statistics: Statistics | None = None
    kind: str = "normal"
    goal_seed: int | None = None
    revise: Callable[[np.ndarray, np.ndarray, FieldStatistics], np.ndarray] | None = None

    def _vector(
        self, paths: Sequence[str | None], columns: Columns, steps: np.ndarray, role: str
    ) -> np.ndarray:
        """Returns the fields of a role as a normalized vector of float32."""
        vector = as_vector(paths, columns, steps.shape).astype(np.float32)
        if self.statistics is None:
            return vector
        field = self.statistics[role]
        normalization.check_shape(vector.shape, field, f"the {role}", type(self).__name__)
        normalized: np.ndarray = normalization.normalize(vector, field, kind=self.kind)
        return normalized if self.revise is None else self.revise(vector, normalized, field)

    def _actions(self, episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
        columns = self._take(episodes, steps, self.roles.action)
        return self._vector(self.roles.action, columns, steps, ACTION)

    def _observation(self, batch: SampleRows, prefix: str) -> Columns:
        """Returns the images, the state and the time of steps, and their padding masks."""
        images, state, steps = self.roles.images, self.roles.state, batch.steps
        fields = [path for path in (*images.values(), *state) if path is not None]
        values = self._choose_fields(batch, fields)
        columns = {f"image_{camera}": image for camera, image in self._images(values, steps)}
        if state:
            columns[PROPRIO] = self._vector(state, values, steps, STATE)
        columns["timestep"] = steps.astype(np.int32)
        absent = {f"image_{camera}" for camera, path in images.items() if path is None}
        masks = {
            f"{prefix}/pad_mask_dict/{name}": np.full(steps.shape, name not in absent)
            for name in columns
        }
        return {f"{prefix}/{name}": column for name, column in columns.items()} | masks

    def _task(self, batch: SampleRows, goals: np.ndarray | None) -> Columns:
        """Returns the task: the instruction and the goal images, with padding masks."""
        task = {}
        for texts in self._instructions(batch):
            task["task/language_instruction"] = texts
            has_text = np.array([len(text) > 0 for text in texts], np.bool_)
            task["task/pad_mask_dict/language_instruction"] = has_text
        if goals is None:
            return task
        return task | self._observation(batch._replace(steps=goals), "task")

    def _sample_goals(
        self, batch: SampleRows, low: np.ndarray, high: np.ndarray
    ) -> np.ndarray | None:
        """Draws goal steps in [low, high) uniformly; None without goals."""
        if self.goal_seed is None:
            return None
        uniform = uniform_of(batch.indices, key_of("goals", self.goal_seed, batch.epoch))
        return low + (uniform * (high - low)).astype(np.int64)

    def _names(self, count: int) -> np.ndarray:
        """Returns the name of the dataset for each sample."""
        names = np.empty(count, object)
        names[:] = self.dataset_name.encode()
        return names
