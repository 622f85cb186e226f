"""Transitions: a step, its reward, and the next observation."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _episodes, _layouts, _sections

__all__ = ["transitions"]

_FUNCTION = "transitions"
_NEXT_OBSERVATION = "next_observation"
_NEXT_IS_LAST = "next_is_last"
_NEXT_IS_TERMINAL = "next_is_terminal"


def transitions(
    data: _episodes.EpisodesOrSteps,
    *,
    n: int = 1,
    gamma: float = 1.0,
    final_observation_known: Any = True,
) -> _episodes.EpisodesOrSteps:
    """Builds the transitions of each episode, of one step (SARS) or of up to `n` steps.

    A transition spans `n` steps from its step, or fewer steps up to the final observation. A
    transition has all fields of its step, with these changes:

    * `reward` is the sum of the rewards of these steps, each multiplied by `gamma` and the stored
      discount of every preceding step.
    * `discount` is the factor of the value of `next_observation`: the product of `gamma` and the
      stored discount over all steps of the transition. The discount is 0 if the next observation is
      terminal; truncation does not change the discount.
    * `next_observation` is the observation at the end of the transition.
    * `next_is_terminal` is true for a terminal state, and `next_is_last` for the last observation
      of the episode. These flags replace `is_last` and `is_terminal`.

    Rewards and discounts may be nested or arrays, by agent or objective. The rules then hold for
    each reward and discount. A discount applies to the reward with the same path and to all nested
    rewards, so a single discount applies to all rewards. For other discounts, `n` must be 1.

    So an episode of T + 1 steps has T transitions; the last step, whose action is a placeholder,
    has none. Without a final observation, the last step has a valid action and reward, but no next
    observation for bootstrapping. The transition of a terminal last step is kept: the discount is
    0, and `next_observation` is zeros. The transition of another last step is dropped, and the
    preceding transitions end at the observation of the last step.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes. Steps need the field
        `observation`, and `is_terminal` or `discount`; `reward` and `action` are optional, a
        missing `discount` counts as 1.
      n: the number of steps to look ahead.
      gamma: the discount of every step, in addition to stored discounts.
      final_observation_known: whether the last step is the observation after the last
        transition. An episode's field of this name has precedence.

    Returns:
      The data with transitions instead of steps. Floating point rewards and discounts keep their
      dtype; other dtypes become float32.

    Raises:
      KeyError: if a field is missing.
      TypeError: if a reward or a discount is not a numeric tensor.
      ValueError: if `n` is not positive, `gamma` not in [0, 1], or no discount fits a reward.

    >>> steps = {"observation": [0, 1, 2, 3], "action": [5, 6, 7, 0],
    ...          "reward": [1.0, 2.0, 4.0, 0.0], "is_terminal": [False, False, False, True]}
    >>> two_steps = transitions(steps, n=2, gamma=0.5)
    >>> for name in ("action", "reward", "discount", "next_observation"):
    ...     print(name, two_steps[name].numpy().tolist())
    action [5, 6, 7]
    reward [2.0, 4.0, 4.0]
    discount [0.25, 0.0, 0.0]
    next_observation [2, 3, 3]
    """
    _layouts.check_positive(_FUNCTION, n=n)
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"{_FUNCTION}: gamma must be between 0 and 1, got {gamma}.")
    spec = _episodes.spec_of_step(data, _FUNCTION)
    _check(spec)
    # The reward of a single step is not discounted.
    discount_of = _episodes.discounts_of(spec, _FUNCTION) if n > 1 else {}

    def transform_steps(steps: _layouts.Steps, is_final_known: Any) -> _layouts.Steps:
        # A section has `n + 1` further steps, so it includes the last step of the episode if a
        # transition of the section ends there.
        result = _sections.map_sections(
            steps,
            lambda section: _transform_section(section, n, gamma, is_final_known, discount_of),
            before=0,
            after=n + 1,
            caller=_FUNCTION,
        )
        if not _layouts.is_nested(steps):
            return result
        cardinality = steps.cardinality()
        shorter = tf.where(cardinality > 0, cardinality - 1, cardinality)
        unknown = tf.constant(tf.data.experimental.UNKNOWN_CARDINALITY, tf.int64)
        return _layouts.with_cardinality(result, tf.where(is_final_known, shorter, unknown))

    return _episodes.over_steps(data, transform_steps, final_observation_known)


def _check(spec: Any) -> None:
    _layouts.check_fields(spec, [rlds_types.OBSERVATION], _FUNCTION)
    if rlds_types.IS_TERMINAL not in spec and rlds_types.DISCOUNT not in spec:
        raise KeyError(
            f"{_FUNCTION}: the steps have neither {rlds_types.IS_TERMINAL!r} nor "
            f"{rlds_types.DISCOUNT!r}, only {sorted(spec)}; without one, terminated and "
            "truncated episodes look alike."
        )
    added = [_NEXT_OBSERVATION, _NEXT_IS_LAST, _NEXT_IS_TERMINAL]
    _layouts.check_new_fields(spec, added, _FUNCTION)
    for name in {rlds_types.REWARD, rlds_types.DISCOUNT} & spec.keys():
        _episodes.check_numeric(spec, name, _FUNCTION)


def _transform_section(
    section: _sections.Section,
    n: int,
    gamma: float,
    is_final_known: Any,
    discount_of: Mapping[str, str],
) -> Any:
    section = _append_terminal_observation(section, is_final_known)
    steps, num_steps, start = section.steps, section.num_steps, section.start
    # The last step is the final observation, which has no transition.
    if section.is_end is True and isinstance(num_steps, int):
        stop = max(num_steps - 1, 0)
    else:
        stop = tf.where(section.is_end, tf.maximum(num_steps - 1, start), section.stop)
    next_indices = tf.minimum(tf.range(start, stop, dtype=tf.int64) + n, num_steps - 1)

    def take_current(leaf: tf.Tensor) -> tf.Tensor:
        return leaf[start:stop]

    def take_next(leaf: tf.Tensor) -> tf.Tensor:
        return leaf[start + 1 : stop + 1] if n == 1 else tf.gather(leaf, next_indices)

    next_is_terminal = take_next(_is_terminal(steps))
    replaced = (rlds_types.IS_LAST, rlds_types.IS_TERMINAL)
    result = {name: field for name, field in steps.items() if name not in replaced}
    result = tf.nest.map_structure(take_current, result)

    rewards, discounts = _pad_columns(steps, n, gamma)
    totals = {path: column[start:stop] for path, column in rewards.items()}
    products = {path: column[start:stop] for path, column in discounts.items()}
    for ahead in range(1, n):
        window = slice(start + ahead, stop + ahead)
        for path, column in rewards.items():
            totals[path] += column[window] * _episodes.match_rank(
                column, products[discount_of[path]]
            )
        for path, column in discounts.items():
            products[path] *= column[window]
    for path, column in discounts.items():
        products[path] *= _episodes.match_rank(column, tf.cast(~next_is_terminal, tf.float64))

    result.setdefault(rlds_types.DISCOUNT, tf.zeros([], tf.float32))
    for name, columns in ((rlds_types.REWARD, totals), (rlds_types.DISCOUNT, products)):
        if columns:
            leaves = zip(columns.values(), tf.nest.flatten(result[name]))
            floats = [tf.cast(values, _episodes.float_dtype(stored)) for values, stored in leaves]
            result[name] = tf.nest.pack_sequence_as(result[name], floats)
    result[_NEXT_OBSERVATION] = tf.nest.map_structure(take_next, steps[rlds_types.OBSERVATION])
    result[_NEXT_IS_LAST] = tf.equal(next_indices, num_steps - 1) & section.is_end
    result[_NEXT_IS_TERMINAL] = next_is_terminal
    return result


def _pad_columns(
    steps: Any, n: int, gamma: float
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Returns rewards and discounts in float64 by path, padded after the last transition.

    Padding of rewards is 0 and of discounts 1, which changes no sum and no product.
    """

    def column(values: tf.Tensor, filler: float) -> tf.Tensor:
        values = tf.cast(values, tf.float64)
        paddings = [[0, n], *([0, 0] for _ in values.shape[1:])]
        return tf.pad(values[:-1], paddings, constant_values=tf.constant(filler, tf.float64))

    rewards = _episodes.leaves_of(steps, rlds_types.REWARD)
    discounts = _episodes.leaves_of(steps, rlds_types.DISCOUNT)
    discounts = discounts or {rlds_types.DISCOUNT: tf.ones(_layouts.num_steps(steps)[tf.newaxis])}
    return (
        {path: column(values, 0.0) for path, values in rewards.items()},
        {path: column(tf.cast(v, tf.float64) * gamma, 1.0) for path, v in discounts.items()},
    )


def _is_terminal(steps: Any) -> tf.Tensor:
    """Returns a mask of terminal observations: by their flag, or by the preceding discount."""
    if rlds_types.IS_TERMINAL in steps:
        return steps[rlds_types.IS_TERMINAL]
    is_zero = _are_zero(steps)
    return tf.concat([tf.zeros_like(is_zero[:1]), is_zero[:-1]], 0)


def _are_zero(steps: Any) -> tf.Tensor:
    """Returns a mask of the steps whose discounts are all zero."""
    are_zero = [tf.equal(leaf, 0) for leaf in tf.nest.flatten(steps[rlds_types.DISCOUNT])]
    return tf.reduce_all(
        [tf.reduce_all(is_zero, axis=list(range(1, is_zero.shape.rank))) for is_zero in are_zero], 0
    )


def _append_terminal_observation(section: _sections.Section, is_final_known: Any) -> Any:
    """Appends zeros as terminal observation to an episode without a final observation."""
    if tf.get_static_value(is_final_known) is not None and is_final_known:
        return section
    steps = section.steps
    if rlds_types.IS_TERMINAL in steps:
        ends_terminal = tf.reduce_any(steps[rlds_types.IS_TERMINAL][-1:])
    else:
        ends_terminal = tf.reduce_any(_are_zero(steps)[-1:])
    is_missing = ends_terminal & section.is_end & tf.logical_not(is_final_known)
    count = tf.cast(is_missing, tf.int64)
    steps = tf.nest.map_structure(lambda leaf: _append_zeros(leaf, count), steps)
    if rlds_types.IS_TERMINAL in steps:
        is_appended = tf.range(_layouts.num_steps(steps)) >= section.num_steps
        steps[rlds_types.IS_TERMINAL] = tf.where(
            is_missing, is_appended, steps[rlds_types.IS_TERMINAL]
        )
    return dataclasses.replace(section, steps=steps)


def _append_zeros(leaf: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    return tf.concat([leaf, tf.zeros_like(tf.repeat(leaf[-1:], count, axis=0))], 0)
