"""Applies patterns to episodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _layouts, structured_writer
from rlds.transformations.pattern_dataset import Patterns, is_one_bool

__all__ = ["pattern_map", "pattern_map_from_transform", "step_spec"]


def step_spec(episodes_dataset: tf.data.Dataset) -> Any:
    """Returns the spec of one step.

    Args:
      episodes_dataset: a dataset of episodes, whose steps are in either layout.

    Raises:
      KeyError: if the elements have no field 'steps'.

    >>> episodes = tf.data.Dataset.from_tensors({"steps": {"action": [1, 2, 3]}})
    >>> step_spec(episodes)
    {'action': TensorSpec(shape=(), dtype=tf.int32, name=None)}
    """
    return _layouts.spec_of_nested_steps(episodes_dataset, "step_spec")


def pattern_map(
    episodes_dataset: tf.data.Dataset,
    configs: Sequence[structured_writer.Config],
    respect_episode_boundaries: bool = True,
    *,
    end_at_episode_boundary: bool = False,
    batch_size: int | None = None,
) -> tf.data.Dataset:
    """Applies patterns to the steps of episodes.

    At each step, a config has an output if all its referenced steps exist and its conditions hold;
    outputs are in the order of the configs. At the end of an episode, the remaining configs are
    applied again, with `Condition.is_end_episode`.

    Args:
      episodes_dataset: a dataset of episodes, whose steps are in either layout. Steps must have the
        field 'is_last', which marks the ends of episodes.
      configs: the configs of the outputs, from `structured_writer.create_config`.
      respect_episode_boundaries: whether an output has steps of one episode only.
      end_at_episode_boundary: whether each element of the dataset ends an episode, even if
        `is_last` of its last step is false.
      batch_size: the number of outputs in a batch, the last of which may be smaller; None for
        single outputs. Batching the outputs later is slower, in particular for batched steps.

    Returns:
      A dataset of outputs, for steps in either layout. The spec is the result of
      `structured_writer.infer_signature`, where lists become tuples. Other fields of the episodes
      are dropped.

    Raises:
      KeyError: if there are no steps, or they have no field 'is_last'.
      TypeError: if a referenced field is not a dense tensor.
      ValueError: if the configs do not match each other or the steps, if the field of a condition
        is not one number, or if 'is_last' is not one bool.

    >>> steps = {"x": [1, 2, 3, 4], "is_last": [False, False, False, True]}
    >>> episodes = tf.data.Dataset.from_tensors({"steps": steps})
    >>> pattern = structured_writer.pattern_from_transform(
    ...     step_spec(episodes), lambda step: step["x"][-2:])
    >>> every_other = structured_writer.Condition.steps_since_applied() >= 2
    >>> config = structured_writer.create_config(pattern, "table", [every_other])
    >>> [window.numpy().tolist() for window in pattern_map(episodes, [config])]
    [[1, 2], [3, 4]]
    """
    spec = step_spec(episodes_dataset)
    if not isinstance(spec, Mapping) or rlds_types.IS_LAST not in spec:
        names = sorted(map(str, spec)) if isinstance(spec, Mapping) else spec
        raise KeyError(
            f"pattern_map: the steps have no field {rlds_types.IS_LAST!r}, which marks the ends of "
            f"episodes. They have {names}."
        )
    if not is_one_bool(spec[rlds_types.IS_LAST]):
        raise ValueError(
            f"pattern_map: the field {rlds_types.IS_LAST!r} must be one bool per step, but it is "
            f"{spec[rlds_types.IS_LAST]}."
        )
    _layouts.check_positive("pattern_map", batch_size=batch_size)
    patterns = Patterns(configs, spec, respect_episode_boundaries)
    chunks = patterns.chunks_of_episodes(
        episodes_dataset, rlds_types.IS_LAST, end_at_episode_boundary
    )
    return patterns.outputs(chunks, batch_size)


def pattern_map_from_transform(
    episodes_dataset: tf.data.Dataset,
    transform_fn: Callable[[structured_writer.ReferenceStep], structured_writer.Pattern],
    conditions: Sequence[structured_writer.Condition] | None = None,
    respect_episode_boundaries: bool = True,
    *,
    end_at_episode_boundary: bool = False,
    batch_size: int | None = None,
) -> tf.data.Dataset:
    """Applies the pattern of a function to the steps of episodes.

    Args:
      episodes_dataset: as in `pattern_map`.
      transform_fn: takes a reference step and returns any structure of references. Each field of
        the step is indexed like the sequence of its values so far (`[-1]`, `[-3:]`).
      conditions: the conditions of an output, which must all hold.
      respect_episode_boundaries: as in `pattern_map`.
      end_at_episode_boundary: as in `pattern_map`.
      batch_size: as in `pattern_map`.

    Returns:
      A dataset of outputs, as in `pattern_map`.

    Raises:
      KeyError: as in `pattern_map`.
      TypeError: as in `pattern_map`; and if a field in the pattern is not indexed.
      ValueError: as in `pattern_map`; and if an index refers to no step.

    >>> steps = {"x": [1, 2, 3], "is_last": [False, False, True]}
    >>> episodes = tf.data.Dataset.from_tensors({"steps": steps})
    >>> pairs = pattern_map_from_transform(episodes, lambda step: (step["x"][-2], step["x"][-1]))
    >>> [(int(x), int(next_x)) for x, next_x in pairs]
    [(1, 2), (2, 3)]
    """
    pattern = structured_writer.pattern_from_transform(step_spec(episodes_dataset), transform_fn)
    config = structured_writer.create_config(pattern, "transition", conditions or ())
    return pattern_map(
        episodes_dataset,
        [config],
        respect_episode_boundaries,
        end_at_episode_boundary=end_at_episode_boundary,
        batch_size=batch_size,
    )
