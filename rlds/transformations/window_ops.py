"""Windows around each step: past observations, and future actions."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _episodes, _layouts, _sections

__all__ = ["windows"]

_CALLER = "windows"
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
    """Gives each step its past observations and its future actions (an action chunk).

    The history of a step are the values of the last `history` steps up to its own, the horizon
    those of the next `horizon` steps from its own on. Both are padded where the episode has no
    such steps, so there are as many windows as steps. Two masks are true where a value is real:

    * `timestep_pad_mask`, of shape [history], for the fields in `history_fields`;
    * `action_pad_mask`, of shape [horizon], for the fields in `horizon_fields`. The placeholder
      in the last step counts as padding. So an episode whose final observation is known ends with
      a window without any real action: `action_pad_mask[0]` says whether there is one.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes. In all steps of an
        episode the fields must have the same shape.
      history: the number of past steps, including the present one.
      horizon: the number of future steps, including the present one.
      history_fields: the fields that get a history, as a new leading axis, oldest first.
      horizon_fields: the fields that get a horizon, as a new leading axis.
      padding: "edge" repeats the first real value (history) or the last one (horizon), "zeros"
        takes zeros.
      final_observation_known: whether the last step is only an observation, and its action a
        placeholder. The field of that name decides where an episode has it.

    Returns:
      The windows in place of the steps, with all their fields.

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
    _layouts.check_positive(_CALLER, history=history, horizon=horizon)
    if padding not in _PADDINGS:
        raise ValueError(f"{_CALLER}: padding must be one of {_PADDINGS}, got {padding!r}.")
    twice = sorted(set(history_fields) & set(horizon_fields))
    if twice:
        raise ValueError(f"{_CALLER}: {twice} are history and horizon fields at once.")
    spec = _episodes.spec_of_step(data, _CALLER)
    _layouts.check_fields(spec, [*history_fields, *horizon_fields], _CALLER)
    _layouts.check_new_fields(spec, [_TIMESTEP_PAD_MASK, _ACTION_PAD_MASK], _CALLER)

    def of_section(section: _sections.Section, is_final_known: Any) -> Any:
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

    def of_steps(steps: _layouts.Steps, is_final_known: Any) -> _layouts.Steps:
        # One more step than the horizon, so that a section knows whether the horizon includes the
        # last step of the episode, a placeholder. And the step before, because the last step
        # repeats the action of that step.
        result = _sections.map_sections(
            steps,
            lambda section: of_section(section, is_final_known),
            before=max(history - 1, 1),
            after=horizon,
            caller=_CALLER,
            expansion=history + horizon,
        )
        if not _layouts.is_nested(steps):
            return result
        return _layouts.with_cardinality(result, steps.cardinality())

    return _episodes.over_steps(data, of_steps, final_observation_known)


def _gather(field: Any, step_indices: tf.Tensor, mask: tf.Tensor, padding: str) -> Any:
    """The values of a field at step indices, which have one row per step."""

    def of_leaf(leaf: tf.Tensor) -> tf.Tensor:
        values = tf.gather(leaf, step_indices)
        if padding == "edge":
            return values
        return tf.where(_episodes.with_rank_of(values, mask), values, tf.zeros_like(values))

    return tf.nest.map_structure(of_leaf, field)
