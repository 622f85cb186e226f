"""Absorbing states, which replace terminal states and never end."""

from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _episodes, _layouts, _sections, nested_ops

__all__ = ["add_absorbing_states"]

_FUNCTION = "add_absorbing_states"
_INDICATOR = "absorbing"


def add_absorbing_states(
    data: _episodes.EpisodesOrSteps,
    *,
    indicator: bool = True,
    keep_observation: bool = False,
    discount: float = 1.0,
    final_observation_known: Any = True,
) -> _episodes.EpisodesOrSteps:
    """Replaces terminal states by absorbing states.

    Imitation learning that learns a reward is biased if it cannot learn the value of a terminal
    state. The terminal step therefore becomes an absorbing state, which a further step repeats: the
    episode has a transition into the absorbing state, and a transition from this state to itself.
    Truncated episodes only get the indicator.

    In an absorbing state, observation, action and reward are zero, and `is_terminal` is false. The
    transitions into it and within it have the discount `discount`, because the episode continues;
    `is_last` is true on the added step, where the episode is truncated.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes. Steps need
        `observation`, `is_last` and `is_terminal`.
      indicator: whether to mark absorbing states in the observation, by 1 (0 in other states): as
        an additional element of a vector, or as the field `absorbing` (float32) of a dict.
      keep_observation: whether the absorbing state has the observation of the terminal step
        instead of zeros.
      discount: the discount of the transitions into and within the absorbing state.
      final_observation_known: whether the last step is the observation after the last
        transition; an episode's field of this name has precedence. If false, the terminal step
        keeps its observation and action, and two absorbing steps follow it.

    Returns:
      The data with absorbing states. `final_observation_known` becomes true in terminal episodes.

    Raises:
      KeyError: if a field is missing.
      ValueError: if the observation cannot hold the indicator.

    >>> steps = {"observation": [[1.0], [2.0], [3.0]], "action": [5, 6, 0],
    ...          "is_last": [False, False, True], "is_terminal": [False, False, True]}
    >>> steps = add_absorbing_states(steps)
    >>> steps["observation"].numpy().tolist()
    [[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    >>> steps["action"].numpy().tolist(), steps["is_last"].numpy().tolist()
    ([5, 6, 0, 0], [False, False, False, True])
    """
    spec = _episodes.spec_of_step(data, _FUNCTION)
    needed = [rlds_types.OBSERVATION, rlds_types.IS_LAST, rlds_types.IS_TERMINAL]
    _layouts.check_fields(spec, needed, _FUNCTION)
    if indicator:
        _check_indicator(spec[rlds_types.OBSERVATION])

    def transform_section(section: _sections.Section, is_final_known: Any) -> Any:
        is_known = tf.cast(is_final_known, tf.bool)
        ends_terminal = section.is_end & tf.reduce_any(section.steps[rlds_types.IS_TERMINAL][-1:])
        num_added = tf.where(ends_terminal, tf.where(is_known, 1, 2), 0)
        step_indices = tf.range(section.start, section.stop + tf.cast(num_added, tf.int64))
        sources = tf.minimum(step_indices, section.num_steps - 1)
        steps = tf.nest.map_structure(lambda leaf: tf.gather(leaf, sources), section.steps)

        first_absorbing = section.num_steps - tf.cast(is_known, tf.int64)
        is_absorbing = ends_terminal & (step_indices >= first_absorbing)
        is_added = ends_terminal & (step_indices >= section.num_steps)
        is_final = is_added & tf.equal(step_indices, step_indices[-1:])
        has_discount = ends_terminal & (step_indices >= first_absorbing - 1) & ~is_final
        if not keep_observation:
            observation = steps[rlds_types.OBSERVATION]
            steps[rlds_types.OBSERVATION] = _zeros_where(is_absorbing, observation)
        for name in (rlds_types.ACTION, rlds_types.REWARD, rlds_types.DISCOUNT):
            if name in steps:
                steps[name] = _zeros_where(is_absorbing, steps[name])
        if rlds_types.DISCOUNT in steps:

            def set_discount(discounts: tf.Tensor) -> tf.Tensor:
                mask = _episodes.match_rank(discounts, has_discount)
                return tf.where(mask, tf.cast(discount, discounts.dtype), discounts)

            discounts = steps[rlds_types.DISCOUNT]
            steps[rlds_types.DISCOUNT] = tf.nest.map_structure(set_discount, discounts)
        if rlds_types.IS_FIRST in steps:
            steps[rlds_types.IS_FIRST] &= ~is_added
        steps[rlds_types.IS_LAST] = (steps[rlds_types.IS_LAST] & ~ends_terminal) | is_final
        steps[rlds_types.IS_TERMINAL] &= ~ends_terminal
        if indicator:
            observation = steps[rlds_types.OBSERVATION]
            steps[rlds_types.OBSERVATION] = _with_indicator(observation, is_absorbing)
        return steps

    def transform_steps(steps: _layouts.Steps, is_final_known: Any) -> _layouts.Steps:
        # The last two steps depend on the end of the episode.
        return _sections.map_sections(
            steps,
            lambda section: transform_section(section, is_final_known),
            before=0,
            after=2,
            caller=_FUNCTION,
        )

    @_layouts.in_graph
    def transform_episode(episode: rlds_types.Episode) -> rlds_types.Episode:
        result: rlds_types.Episode
        result = _episodes.over_steps(episode, transform_steps, final_observation_known)
        if rlds_types.FINAL_OBSERVATION_KNOWN in episode:
            is_known = tf.cast(episode[rlds_types.FINAL_OBSERVATION_KNOWN], tf.bool)
            is_known |= _ends_terminal(episode[rlds_types.STEPS])
            result[rlds_types.FINAL_OBSERVATION_KNOWN] = is_known
        return result

    if _layouts.are_episodes(data):
        return data.map(transform_episode, num_parallel_calls=_episodes.parallelism(data))
    if _episodes.is_episode(data):
        return transform_episode(data)
    return transform_steps(data, final_observation_known)


def _ends_terminal(steps: _layouts.Steps) -> tf.Tensor:
    if not _layouts.is_nested(steps):
        return tf.reduce_any(steps[rlds_types.IS_TERMINAL][-1:])
    _, last_step = nested_ops.last_step(steps)
    return last_step[rlds_types.IS_TERMINAL]


def _check_indicator(spec: Any) -> None:
    if isinstance(spec, dict):
        if _INDICATOR in spec:
            raise ValueError(f"{_FUNCTION}: the observation already has a field {_INDICATOR!r}.")
    elif not (
        isinstance(spec, tf.TensorSpec)
        and spec.shape.rank == 1
        and (spec.dtype.is_floating or spec.dtype.is_integer)
    ):
        raise ValueError(
            f"{_FUNCTION}: an indicator can be added to an observation that is a vector of numbers "
            f"or a dict, got {spec}. Pass indicator=False, or put the observation in a dict."
        )


def _with_indicator(observation: Any, is_absorbing: tf.Tensor) -> Any:
    if isinstance(observation, dict):
        return {**observation, _INDICATOR: tf.cast(is_absorbing, tf.float32)}
    bit = tf.cast(is_absorbing, observation.dtype)[:, tf.newaxis]
    return tf.concat([observation, bit], axis=1)


def _zeros_where(mask: tf.Tensor, field: Any) -> Any:
    return tf.nest.map_structure(
        lambda leaf: tf.where(_episodes.match_rank(leaf, mask), tf.zeros_like(leaf), leaf), field
    )
