"""Hindsight relabelling: each step gets a later observation of its episode as its goal."""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rlds import rlds_types
from rlds.transformations import _episodes, _layouts
from rlds.transformations._step_function import StepFunction

__all__ = ["relabel_goals"]

_FUNCTION = "relabel_goals"
_GOAL_FIELD = "goal"
_DISTANCE_FIELD = "goal_distance"
_STRATEGIES = ("uniform", "last", "geometric")


def relabel_goals(
    data: _episodes.EpisodesOrSteps,
    *,
    seed: Any,
    strategy: str = "uniform",
    max_distance: int | None = None,
    gamma: float = 0.99,
    get_goal: Callable[[Any], Any] | None = None,
    reward_fn: Callable[[rlds_types.Step], Any] | None = None,
) -> _episodes.EpisodesOrSteps:
    """Relabels the goal of each step with a later observation of its episode.

    With L - i steps from step i to the last one, the goal of step i is the observation of step
    i + d, where the distance d is

    * "uniform": one of 1, ..., L - i, all equally likely;
    * "last": L - i, which is the final observation;
    * "geometric": one of 1, ..., L - i with a probability proportional to `gamma` ** d.

    The goal of the last step is its own observation.

    The goals depend only on `seed` and, in a dataset of episodes, on the index of the episode. Each
    pass over the result therefore has the same goals; relabel `episodes.repeat()` for other goals
    in every epoch.

    Args:
      data: steps in either layout, or a dataset of episodes.
      seed: an integer, which may be a tensor.
      strategy: "uniform", "last" or "geometric".
      max_distance: the maximum distance of a goal, also for the strategy "last".
      gamma: the parameter of the geometric distribution.
      get_goal: takes the batched observations of an episode and returns the goals with the same
        time axis. The default goal is the whole observation.
      reward_fn: takes a step with its goal and returns the new reward.

    Returns:
      The steps, in their layout, with the new fields `goal` and `goal_distance` (int64), and
      with a new `reward` if there is a `reward_fn`. A nested episode is held in memory as a
      whole, because its goals may be at any step.

    Raises:
      KeyError: if there is no observation.
      ValueError: if the strategy is unknown, or an argument is out of range.

    >>> steps = {"observation": [0, 1, 2, 3], "action": [5, 6, 7, 0]}
    >>> def is_reached(step):
    ...     return tf.cast(step["goal_distance"] == 1, tf.float32)
    >>> steps = relabel_goals(steps, strategy="last", seed=0, reward_fn=is_reached)
    >>> steps["goal"].numpy().tolist(), steps["reward"].numpy().tolist()
    ([3, 3, 3, 3], [0.0, 0.0, 1.0, 0.0])
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"{_FUNCTION}: strategy must be one of {_STRATEGIES}, got {strategy!r}.")
    _layouts.check_positive(_FUNCTION, max_distance=max_distance)
    if not 0.0 < gamma < 1.0:
        raise ValueError(f"{_FUNCTION}: gamma must lie between 0 and 1, got {gamma}.")
    spec = _episodes.spec_of_step(data, _FUNCTION)
    _layouts.check_fields(spec, [rlds_types.OBSERVATION], _FUNCTION)
    _layouts.check_new_fields(spec, [_GOAL_FIELD, _DISTANCE_FIELD], _FUNCTION)

    def relabel(steps: Any, index: Any) -> Any:
        num_steps = _layouts.num_steps(steps)
        step_indices = tf.range(num_steps)
        max_distances = num_steps - 1 - step_indices
        if max_distance is not None:
            max_distances = tf.minimum(max_distances, max_distance)
        stateless_seed = tf.stack([tf.cast(seed, tf.int64), tf.cast(index, tf.int64)])
        distance = _draw(max_distances, strategy, gamma, stateless_seed)
        observation = steps[rlds_types.OBSERVATION]
        candidates = observation if get_goal is None else get_goal(observation)
        result = dict(steps)
        result[_GOAL_FIELD] = tf.nest.map_structure(
            lambda leaf: tf.gather(leaf, step_indices + distance), candidates
        )
        result[_DISTANCE_FIELD] = distance
        if reward_fn is not None:
            function = StepFunction(reward_fn, _layouts.spec_of_steps(result))
            result[rlds_types.REWARD] = function.apply(result)
        return result

    def transform_steps(steps: _layouts.Steps, index: Any) -> _layouts.Steps:
        return _episodes.map_as_one_batch(
            steps, lambda batch: relabel(batch, index), _FUNCTION, keeps_length=True
        )

    return _episodes.over_steps_by_index(data, transform_steps)


def _draw(max_distances: tf.Tensor, strategy: str, gamma: float, seed: tf.Tensor) -> tf.Tensor:
    """Draws a distance from 1 to the maximum for each step; 0 if the maximum is 0."""
    if strategy == "last":
        return max_distances
    uniform = tf.random.stateless_uniform(tf.shape(max_distances), seed, dtype=tf.float64)
    limits = tf.cast(max_distances, tf.float64)
    if strategy == "uniform":
        distance = uniform * limits
    else:
        # The inverse of the distribution function (1 - gamma^d) / (1 - gamma^limit).
        log_gamma = math.log(gamma)
        distance = tf.math.log1p(uniform * tf.math.expm1(limits * log_gamma)) / log_gamma
    # Rounding may exceed the limit, the last step.
    return tf.minimum(1 + tf.cast(tf.floor(distance), tf.int64), max_distances)
