"""Returns: sums of rewards over an episode, and from each step to the end of the episode."""

from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _episodes, _layouts

__all__ = ["episode_return", "returns_to_go"]


def episode_return(
    data: Any,
    *,
    gamma: float = 1.0,
    stored_discounts: bool = False,
    final_observation_known: Any = True,
) -> Any:
    """Sums the rewards of an episode.

    The reward of the last step is a placeholder and not counted. Without a final observation, it is
    the reward of the last transition, and counted.

    Args:
      data: an episode, or its steps, in either layout.
      gamma: the discount of every step, 1 for a plain sum.
      stored_discounts: whether to multiply with the field `discount` too.
      final_observation_known: whether the last step is the observation after the last
        transition. An episode's field of this name has precedence.

    Returns:
      The sum, computed in float64, in the dtype of the reward if it is floating, otherwise float32.
      0 without steps. If rewards are nested, by agent or objective, the sums have the same nesting.

    Raises:
      KeyError: if a field is missing.
      TypeError: if a reward is not a numeric tensor.
      ValueError: if `gamma` is not in [0, 1], or no stored discount fits a reward, see
        `transitions`.

    >>> float(episode_return({"reward": [1.0, 2.0, 0.0]}))
    3.0
    >>> episode = {"steps": {"reward": [1.0, 2.0, 4.0]}, "final_observation_known": False}
    >>> float(episode_return(episode, gamma=0.5))
    3.0
    """
    caller = "episode_return"
    if _layouts.are_episodes(data):
        raise TypeError(
            f"{caller}: expected one episode, got a dataset of episodes. Map it: "
            "`episodes.map(episode_return)`."
        )
    _check(data, gamma, stored_discounts, caller)
    steps = data
    if _episodes.is_episode(data):
        steps = data[rlds_types.STEPS]
        final_observation_known = _episodes.is_final_known(data, final_observation_known)
    columns = _columns(steps, stored_discounts, caller)

    if _layouts.is_nested(columns):
        columns = _layouts.join_batches(_layouts.as_one_batch(columns), columns.element_spec)
    to_go = _to_go(columns, gamma, final_observation_known)
    # Without steps the sum is zero, in the shape of the reward.
    return tf.nest.map_structure(lambda sums: tf.reduce_sum(sums[:1], 0), to_go)


def returns_to_go(
    data: _episodes.EpisodesOrSteps,
    *,
    gamma: float = 1.0,
    stored_discounts: bool = False,
    field: str = "return_to_go",
    final_observation_known: Any = True,
) -> _episodes.EpisodesOrSteps:
    """Adds to each step the sum of the rewards up to the end of the episode.

    The sum of a step is its reward plus `gamma` times the sum of the next step. The sum of the last
    step is 0, because its reward is a placeholder, or its reward if there is no final observation.
    Rewards after the end of a truncated episode count as 0.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes. Nested steps are read
        twice, first for their rewards.
      gamma: the discount of every step.
      stored_discounts: whether to multiply with the field `discount` too.
      field: the name of the new field.
      final_observation_known: see `episode_return`.

    Returns:
      The steps with the new field, in the dtype of `episode_return`.

    Raises:
      KeyError: if a field is missing.
      TypeError: if a reward is not a numeric tensor.
      ValueError: if `gamma` is not in [0, 1], no stored discount fits a reward, or the steps have
        the new field already.

    >>> steps = returns_to_go({"reward": [1.0, 2.0, 4.0, 0.0]}, gamma=0.5)
    >>> steps["return_to_go"].numpy().tolist()
    [3.0, 4.0, 4.0, 0.0]
    """
    caller = "returns_to_go"
    spec = _check(data, gamma, stored_discounts, caller)
    _layouts.check_new_fields(spec, [field], caller)

    def transform_steps(steps: _layouts.Steps, is_final_known: Any) -> _layouts.Steps:
        columns = _columns(steps, stored_discounts, caller)
        if not _layouts.is_nested(steps):
            batch = _layouts.as_batch(steps, caller)
            return {**batch, field: _to_go(columns, gamma, is_final_known)}
        to_go = _episodes.map_as_one_batch(
            columns, lambda batch: _to_go(batch, gamma, is_final_known), caller, keeps_length=True
        )
        return tf.data.Dataset.zip((steps, to_go)).map(lambda step, value: {**step, field: value})

    return _episodes.over_steps(data, transform_steps, final_observation_known)


def _check(data: Any, gamma: float, stored_discounts: bool, caller: str) -> Any:
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"{caller}: gamma must be between 0 and 1, got {gamma}.")
    spec = _episodes.spec_of_step(data, caller)
    _episodes.check_numeric(spec, rlds_types.REWARD, caller)
    if stored_discounts:
        _episodes.check_numeric(spec, rlds_types.DISCOUNT, caller)
        _episodes.discounts_of(spec, caller)
    return spec


def _columns(steps: _layouts.Steps, stored_discounts: bool, caller: str) -> _layouts.Steps:
    """Returns the rewards and discounts, which fit into memory for episodes of any length."""
    names = [rlds_types.REWARD, *([rlds_types.DISCOUNT] if stored_discounts else [])]
    if _layouts.is_nested(steps):
        return steps.map(lambda step: {name: step[name] for name in names})
    return _layouts.as_batch({name: steps[name] for name in names}, caller)


def _to_go(columns: Any, gamma: float, is_final_known: Any) -> Any:
    """Returns the discounted sums of the rewards from each step on, nested as the rewards are."""
    discounts = _episodes.leaves_of(columns, rlds_types.DISCOUNT)
    discount_of = _episodes.discounts_of(columns, "returns")
    sums = [
        _sum(reward, discounts.get(discount_of[path]), gamma, is_final_known)
        for path, reward in _episodes.leaves_of(columns, rlds_types.REWARD).items()
    ]
    return tf.nest.pack_sequence_as(columns[rlds_types.REWARD], sums)


def _sum(
    reward: tf.Tensor, discount: tf.Tensor | None, gamma: float, is_final_known: Any
) -> tf.Tensor:
    num_steps = _layouts.num_steps(reward)
    is_placeholder = tf.equal(tf.range(num_steps), num_steps - 1) & is_final_known
    is_placeholder = _episodes.match_rank(reward, is_placeholder)
    sums = tf.where(is_placeholder, tf.zeros([], tf.float64), tf.cast(reward, tf.float64))
    if gamma == 1.0 and discount is None:
        sums = tf.cumsum(sums, reverse=True)
    else:
        factors = tf.fill(num_steps[tf.newaxis], tf.constant(gamma, tf.float64))
        if discount is not None:
            discount = tf.cast(discount, tf.float64)
            factors = _episodes.match_rank(discount, factors) * discount
        sums = _sum_discounted(sums, _episodes.match_rank(sums, factors), num_steps)
    return tf.cast(sums, _episodes.float_dtype(reward))


def _sum_discounted(rewards: tf.Tensor, factors: tf.Tensor, num_steps: tf.Tensor) -> tf.Tensor:
    """Solves sums[i] = rewards[i] + factors[i] * sums[i + 1], in log2(num_steps) passes.

    Each pass doubles the number of steps that the sums and the factors cover.
    """

    def later(values: tf.Tensor, distance: tf.Tensor) -> tf.Tensor:
        later_values = values[distance:]
        return tf.concat([later_values, tf.zeros_like(values[:distance])], 0)

    def double(distance: tf.Tensor, sums: tf.Tensor, factors: tf.Tensor) -> Any:
        sums += factors * later(sums, distance)
        return 2 * distance, sums, factors * later(factors, distance)

    _, sums, _ = tf.while_loop(
        lambda distance, *_: distance < num_steps,
        double,
        (tf.constant(1, tf.int64), rewards, factors),
        shape_invariants=(tf.TensorShape([]), rewards.shape, factors.shape),
    )
    return sums
