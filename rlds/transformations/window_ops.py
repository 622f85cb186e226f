"""Windows around each step: past observations, and future actions."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _episodes, _layouts, _sections

__all__ = ["windows"]

_FUNCTION = "windows"
_TIMESTEP_PAD_MASK = "timestep_pad_mask"
_ACTION_PAD_MASK = "action_pad_mask"
_PADDINGS = ("edge", "zeros")


def windows(
    data: _episodes.EpisodesOrSteps,
    *,
    history: int = 1,
    horizon: int = 1,
    history_fields: Sequence[str] = (rlds_types.OBSERVATION,),
    horizon_fields: Sequence[str] = (rlds_types.ACTION,),
    padding: str = "edge",
    final_observation_known: Any = True,
) -> _episodes.EpisodesOrSteps:
    """Adds past observations and future actions (an action chunk) to each step.

    The history of a step has the values of the last `history` steps, the horizon has the values of
    the next `horizon` steps, including the step. Windows are padded beyond the episode, so each
    step has a window. Two masks are false for padding:

    * `timestep_pad_mask`, of shape [history], for the fields in `history_fields`;
    * `action_pad_mask`, of shape [horizon], for the fields in `horizon_fields`. The placeholder
      of a final observation counts as padding. The window of a final observation therefore has no
      real action, and `action_pad_mask[0]` is false.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes. In all steps of an
        episode the fields must have the same shape.
      history: the number of past steps, including the current step.
      horizon: the number of future steps, including the current step.
      history_fields: the fields that get a history, as a new leading axis, oldest first.
      horizon_fields: the fields that get a horizon, as a new leading axis.
      padding: "edge" repeats the first value of the episode (history) or the last real action
        (horizon), "zeros" takes zeros.
      final_observation_known: whether the last step is only an observation, and its action a
        placeholder. An episode's field of this name has precedence.

    Returns:
      The data with windows instead of steps, and with all fields of the steps.

    Raises:
      KeyError: if a field is missing.
      ValueError: if a length is not positive, a field is named twice, or the padding is unknown.

    >>> steps = {"observation": [0, 1, 2, 3], "action": [5, 6, 7, 0]}
    >>> chunks = windows(steps, history=2, horizon=2)
    >>> for name in ("observation", "timestep_pad_mask", "action", "action_pad_mask"):
    ...     print(name, chunks[name].numpy().tolist())  # doctest: +NORMALIZE_WHITESPACE
    observation [[0, 0], [0, 1], [1, 2], [2, 3]]
    timestep_pad_mask [[False, True], [True, True], [True, True], [True, True]]
    action [[5, 6], [6, 7], [7, 7], [7, 7]]
    action_pad_mask [[True, True], [True, True], [True, False], [False, False]]
    """
    _layouts.check_positive(_FUNCTION, history=history, horizon=horizon)
    if padding not in _PADDINGS:
        raise ValueError(f"{_FUNCTION}: padding must be one of {_PADDINGS}, got {padding!r}.")
    twice = sorted(set(history_fields) & set(horizon_fields))
    if twice:
        raise ValueError(f"{_FUNCTION}: {twice} are history and horizon fields at once.")
    spec = _episodes.spec_of_step(data, _FUNCTION)
    _layouts.check_fields(spec, [*history_fields, *horizon_fields], _FUNCTION)
    _layouts.check_new_fields(spec, [_TIMESTEP_PAD_MASK, _ACTION_PAD_MASK], _FUNCTION)

    def transform_section(section: _sections.Section, is_final_known: Any) -> Any:
        steps = section.steps
        result = {
            name: tf.nest.map_structure(lambda leaf: leaf[section.start : section.stop], field)
            for name, field in steps.items()
            if name not in history_fields and name not in horizon_fields
        }
        step_indices = section.indices[:, tf.newaxis]
        if history_fields:
            past = step_indices + tf.range(1 - history, 1, dtype=tf.int64)
            mask = result[_TIMESTEP_PAD_MASK] = past >= 0
            for name in history_fields:
                result[name] = _gather(steps[name], tf.maximum(past, 0), mask, padding)
        if horizon_fields:
            future = step_indices + tf.range(horizon, dtype=tf.int64)
            is_placeholder = tf.cast(is_final_known, tf.bool) & section.is_end
            num_real = section.num_steps - tf.cast(is_placeholder, tf.int64)
            mask = result[_ACTION_PAD_MASK] = future < num_real
            last_real = tf.maximum(num_real - 1, 0)
            for name in horizon_fields:
                result[name] = _gather(steps[name], tf.minimum(future, last_real), mask, padding)
        return result

    def transform_steps(steps: _layouts.Steps, is_final_known: Any) -> _layouts.Steps:
        # A section includes one step after the horizon, which may be the placeholder of the last
        # step, and one step before, because the last step repeats its action.
        result = _sections.map_sections(
            steps,
            lambda section: transform_section(section, is_final_known),
            before=max(history - 1, 1),
            after=horizon,
            caller=_FUNCTION,
            expansion=history + horizon,
        )
        if not _layouts.is_nested(steps):
            return result
        return _layouts.with_cardinality(result, steps.cardinality())

    return _episodes.over_steps(data, transform_steps, final_observation_known)


def _gather(field: Any, step_indices: tf.Tensor, mask: tf.Tensor, padding: str) -> Any:
    """Gathers the values of a field at step indices, with one row per step."""

    def gather(leaf: tf.Tensor) -> tf.Tensor:
        values = tf.gather(leaf, step_indices)
        if padding == "edge":
            return values
        return tf.where(_episodes.match_rank(values, mask), values, tf.zeros_like(values))

    return tf.nest.map_structure(gather, field)
