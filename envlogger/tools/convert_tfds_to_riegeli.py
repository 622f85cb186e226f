r"""Converts an RLDS dataset of TFDS to a recording that `envlogger.Reader` reads.

python -m envlogger.tools.convert_tfds_to_riegeli --tfds_dir=<dataset> --output_dir=<new directory>

Episodes are recorded in dm_env order: a reward and a discount belong to the step of the observation
that the environment returned with them. The placeholders of the last step are dropped, and an
episode of a single step has only an observation. Further fields of the steps become custom data;
further fields of the episodes become metadata of the episodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tensorflow_datasets as tfds
import tree
from absl import app, flags
from dm_env import specs
from etils import epath
from typing_extensions import override

from envlogger.environment_logger import EnvLogger

__all__ = [
    "EpisodeMetadataHolder",
    "ReplayEnvironment",
    "convert_episode_to_dmenv",
    "convert_tf_dataset_to_riegeli",
    "main",
]

_TFDS_DIR = flags.DEFINE_string("tfds_dir", None, "Directory of the dataset, with its version.")
_TFDS_NAME = flags.DEFINE_string("tfds_name", None, "Name of the dataset, as for `tfds.load`.")
_SPLIT = flags.DEFINE_string("split", "train", "Split of the dataset.")
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Directory of the recording; created if missing."
)
_MAX_EPISODE_STEPS = flags.DEFINE_integer(
    "max_episode_steps", 10000, "Number of steps of an episode to read at a time."
)

_REQUIRED_FIELDS = ("observation", "action", "reward", "discount", "is_terminal")
_STANDARD_FIELDS = (*_REQUIRED_FIELDS, "is_first", "is_last")


class ReplayEnvironment(dm_env.Environment):  # type: ignore[misc]  # dm_env is untyped.
    """An environment that replays a recorded episode and ignores the actions.

    Args:
      observation_spec: The spec of the observations.
      reward_spec: The spec of the rewards.
      discount_spec: The spec of the discounts.
      action_spec: The spec of the actions.
    """

    def __init__(
        self, observation_spec: Any, reward_spec: Any, discount_spec: Any, action_spec: Any
    ) -> None:
        self._observation_spec = observation_spec
        self._reward_spec = reward_spec
        self._discount_spec = discount_spec
        self._action_spec = action_spec
        self._timesteps: Sequence[dm_env.TimeStep] = []
        self._custom_data: Sequence[Any] = []
        self._index = 0

    def set_episode(self, timesteps: Sequence[dm_env.TimeStep], custom_data: Sequence[Any]) -> None:
        """Sets the episode to play after the next `reset`."""
        self._timesteps = timesteps
        self._custom_data = custom_data

    def reset(self) -> dm_env.TimeStep:
        """Returns the first timestep of the episode.

        Raises:
          ValueError: No episode is set.
        """
        self._index = -1
        return self.step(None)

    def step(self, action: Any) -> dm_env.TimeStep:
        """Returns the next timestep of the episode.

        Raises:
          ValueError: The episode is over, or none is set.
        """
        if self._index + 1 >= len(self._timesteps):
            raise ValueError("there are no more timesteps to play; call set_episode and reset")
        self._index += 1
        return self._timesteps[self._index]

    def get_custom_data(self) -> Any:
        """Returns the custom data of the last returned timestep."""
        return self._custom_data[self._index] if self._custom_data else {}

    @override
    def observation_spec(self) -> Any:
        return self._observation_spec

    @override
    def reward_spec(self) -> Any:
        return self._reward_spec

    @override
    def discount_spec(self) -> Any:
        return self._discount_spec

    @override
    def action_spec(self) -> Any:
        return self._action_spec


@dataclasses.dataclass
class EpisodeMetadataHolder:
    """Holds the metadata of the running episode."""

    episode_metadata: dict[str, Any] | None = None

    def get_episode_metadata(
        self, timestep: dm_env.TimeStep, action: Any, env: dm_env.Environment
    ) -> dict[str, Any] | None:
        """Returns the metadata of the episode; the `episode_fn` of the recorder."""
        return self.episode_metadata


def convert_episode_to_dmenv(
    steps: Mapping[str, Any],
) -> tuple[list[dm_env.TimeStep], list[Any], list[dict[str, Any]]]:
    """Converts an RLDS episode to dm_env order.

    Args:
      steps: The steps as columns: (nested) arrays `[num_steps, ...]`.

    Returns:
      The timesteps, the actions between them (one less), and the custom data of each timestep.

    Raises:
      ValueError: A field is missing.

    >>> columns = dict(observation=[5, 6], action=[1, 0], reward=[2.0, 0.0], discount=[1.0, 0.0])
    >>> columns |= dict(is_terminal=[False, True], stage=[7, 8])
    >>> timesteps, actions, custom_data = convert_episode_to_dmenv(
    ...     {name: np.array(column) for name, column in columns.items()}
    ... )
    >>> timesteps[1].observation.item(), timesteps[1].reward.item(), actions[0].item()
    (6, 2.0, 1)
    >>> custom_data[1]["stage"].item()
    8
    """
    missing = [name for name in _REQUIRED_FIELDS if name not in steps]
    if missing:
        raise ValueError(f"the steps lack {missing}, they have {list(steps)}; add these to convert")
    num_steps = len(steps["is_terminal"])
    timesteps = [_create_timestep(steps, i, num_steps) for i in range(num_steps)]
    actions = [_take_row(steps["action"], i) for i in range(num_steps - 1)]
    custom_data = {name: column for name, column in steps.items() if name not in _STANDARD_FIELDS}
    return timesteps, actions, [_take_row(custom_data, i) for i in range(num_steps)]


def _create_timestep(steps: Mapping[str, Any], step_index: int, num_steps: int) -> dm_env.TimeStep:
    observation = _take_row(steps["observation"], step_index)
    if step_index == 0:
        return dm_env.restart(observation)
    reward, discount = (_take_row(steps[name], step_index - 1) for name in ("reward", "discount"))
    is_end = step_index == num_steps - 1
    if is_end and steps["is_terminal"][step_index]:
        zeros = tree.map_structure(lambda value: np.zeros_like(value)[()], discount)
        return dm_env.TimeStep(dm_env.StepType.LAST, reward, zeros, observation)
    # Some writers do not mark the last step of a truncated episode.
    is_last = is_end and ("is_last" not in steps or steps["is_last"][step_index])
    step_type = dm_env.StepType.LAST if is_last else dm_env.StepType.MID
    return dm_env.TimeStep(step_type, reward, discount, observation)


def _take_row(columns: Any, index: int) -> Any:
    return tree.map_structure(lambda column: column[index], columns)


def convert_tf_dataset_to_riegeli(
    episodes_dataset: Any,
    output_dir: str,
    max_episode_steps: int = 10000,
    *,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Records the episodes of an RLDS dataset.

    Args:
      episodes_dataset: A `tf.data.Dataset` of episodes, with nested `steps`.
      output_dir: The directory of the recording; created if missing.
      max_episode_steps: The number of steps of an episode to read at a time. Longer episodes are
        recorded completely, too.
      metadata: The metadata of the dataset.

    Raises:
      ValueError: There is no episode, an episode has no steps, or the steps lack a field.
      EnvLoggerError: A value cannot be stored, or the directory cannot be written to.
    """
    env: ReplayEnvironment | None = None
    logger: EnvLogger | None = None
    holder = EpisodeMetadataHolder()
    try:
        for episode_index, episode in enumerate(episodes_dataset):
            steps = _read_columns(episode["steps"], max_episode_steps, f"episode {episode_index}")
            timesteps, actions, custom_data = convert_episode_to_dmenv(steps)
            if env is None or logger is None:
                env = _create_environment(steps)
                epath.Path(output_dir).mkdir(parents=True, exist_ok=True)
                logger = EnvLogger(
                    env,
                    step_fn=lambda timestep, action, env: env.get_custom_data(),
                    episode_fn=holder.get_episode_metadata,
                    metadata=dict(metadata or {}),
                    data_directory=output_dir,
                )
            fields = {name: value for name, value in episode.items() if name != "steps"}
            holder.episode_metadata = tree.map_structure(lambda tensor: tensor.numpy(), fields)
            env.set_episode(timesteps, custom_data)
            logger.reset()
            for action in actions:
                logger.step(action)
    finally:
        if logger is not None:
            logger.close()
    if logger is None:
        raise ValueError("the dataset has no episodes, so there is nothing to record")


def _read_columns(steps: Any, max_steps: int, episode: str) -> dict[str, Any]:
    batches = list(steps.batch(max_steps).as_numpy_iterator())
    if not batches:
        raise ValueError(f"{episode} has no steps, so it cannot be recorded; filter it")
    columns: dict[str, Any] = tree.map_structure(lambda *chunks: np.concatenate(chunks), *batches)
    return columns


def _create_environment(steps: Mapping[str, Any]) -> ReplayEnvironment:
    def get_spec(column: np.ndarray) -> specs.Array:
        if column.dtype == object:
            return specs.StringArray(column.shape[1:], string_type=bytes)
        return specs.Array(column.shape[1:], column.dtype)

    fields = ("observation", "reward", "discount", "action")
    return ReplayEnvironment(*(tree.map_structure(get_spec, steps[name]) for name in fields))


def main(argv: Sequence[str]) -> None:
    """Runs the program."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {argv[1:]}")
    if not _OUTPUT_DIR.value:
        raise app.UsageError("--output_dir is missing: where to record to")
    metadata = None
    if _TFDS_DIR.value:
        builder = tfds.builder_from_directory(_TFDS_DIR.value)
        metadata = builder.info.metadata
        dataset = builder.as_dataset(split=_SPLIT.value)
    elif _TFDS_NAME.value:
        dataset = tfds.load(_TFDS_NAME.value, split=_SPLIT.value)
    else:
        raise ValueError("--tfds_dir and --tfds_name are missing: which dataset to convert")
    convert_tf_dataset_to_riegeli(
        dataset, _OUTPUT_DIR.value, _MAX_EPISODE_STEPS.value, metadata=metadata
    )


if __name__ == "__main__":
    app.run(main)
