"""Filters of episodes and of their steps.

The functions for episodes create predicates, for `Dataset.filter`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from rlds import metadata, rlds_types
from rlds.transformations import _episodes, _layouts, _sections, nested_ops, returns

__all__ = ["drop_idle_steps", "has_length", "has_return", "is_successful", "is_usable", "subsample"]

EpisodePredicate: TypeAlias = Callable[[rlds_types.Episode], tf.Tensor]


def has_length(minimum: int = 1, maximum: int | None = None) -> EpisodePredicate:
    """Creates a predicate: the number of steps of the episode is in a range.

    Args:
      minimum: the minimum number of steps.
      maximum: the maximum number of steps; unlimited if None.

    Raises:
      ValueError: if the range is empty.

    >>> steps = [{"reward": [0.0] * n} for n in (1, 2, 3)]
    >>> spec = {"steps": {"reward": tf.TensorSpec([None])}}
    >>> episodes = tf.data.Dataset.from_generator(
    ...     lambda: ({"steps": s} for s in steps), output_signature=spec)
    >>> [len(e["steps"]["reward"]) for e in episodes.filter(has_length(2))]
    [2, 3]
    """
    _check_range("has_length", minimum, maximum)
    if minimum < 0:
        raise ValueError(f"has_length: minimum must not be negative, got {minimum}.")

    @_layouts.in_graph
    def predicate(episode: rlds_types.Episode) -> tf.Tensor:
        _check_episode("has_length", episode)
        return _is_in_range(nested_ops.episode_length(episode[rlds_types.STEPS]), minimum, maximum)

    return predicate


def has_return(
    minimum: float | None = None, maximum: float | None = None, *, gamma: float = 1.0
) -> EpisodePredicate:
    """Creates a predicate: the sum of the rewards of the episode is in a range.

    Args:
      minimum: the minimum return; unlimited if None.
      maximum: the maximum return; unlimited if None.
      gamma: see `episode_return`.

    Raises:
      ValueError: if the range is empty.

    >>> episodes = tf.data.Dataset.from_tensor_slices(
    ...     {"steps": {"reward": [[0.0, 0.0], [1.0, 0.0]]}, "id": [1, 2]})
    >>> [int(episode["id"]) for episode in episodes.filter(has_return(minimum=0.5))]
    [2]
    """
    _check_range("has_return", minimum, maximum)

    @_layouts.in_graph
    def predicate(episode: rlds_types.Episode) -> tf.Tensor:
        _check_episode("has_return", episode)
        total = returns.episode_return(episode, gamma=gamma)
        if tf.nest.is_nested(total) or total.shape.rank:
            raise TypeError(
                f"has_return: field 'reward' must be a number, got several in a step: {total}. "
                "Filter by one of the values that `episode_return` returns."
            )
        return _is_in_range(total, minimum, maximum)

    return predicate


def is_successful(field: str = "success") -> EpisodePredicate:
    """Creates a predicate: the episode, or any of its steps, is successful.

    Args:
      field: a field of the episode or, if there is no such field, of its steps: booleans, or
        numbers, which mean success above 0.

    >>> episodes = tf.data.Dataset.from_tensor_slices(
    ...     {"steps": {"reward": [[0.0], [1.0]]}, "success": [True, False]})
    >>> len(list(episodes.filter(is_successful())))
    1
    """

    @_layouts.in_graph
    def predicate(episode: rlds_types.Episode) -> tf.Tensor:
        _check_episode("is_successful", episode)
        if field in episode:
            return tf.reduce_any(_as_bool(episode[field], field))
        steps = episode[rlds_types.STEPS]
        step_spec = _episodes.spec_of_step(episode, "is_successful")
        if not isinstance(step_spec, Mapping) or field not in step_spec:
            raise KeyError(
                f"is_successful: neither the episode, with {sorted(episode)}, nor its steps, with "
                f"{sorted(step_spec)}, have a field {field!r}."
            )
        if not _layouts.is_nested(steps):
            return tf.reduce_any(_as_bool(steps[field], field))
        return steps.map(lambda step: tf.reduce_any(_as_bool(step[field], field))).reduce(
            False, tf.logical_or
        )

    return predicate


@_layouts.in_graph
def is_usable(episode: rlds_types.Episode) -> tf.Tensor:
    """Predicate: the episode is not marked as invalid, by `rlds.metadata.INVALID`.

    Episodes without that mark are usable.

    >>> episodes = tf.data.Dataset.from_tensor_slices(
    ...     {"steps": {"reward": [[0.0], [1.0]]}, "invalid": [True, False]})
    >>> len(list(episodes.filter(is_usable)))
    1
    """
    _check_episode("is_usable", episode)
    if metadata.INVALID not in episode:
        return tf.constant(True)
    return tf.logical_not(_as_bool(episode[metadata.INVALID], metadata.INVALID))


def drop_idle_steps(
    data: _episodes.EpisodesOrSteps,
    *,
    tolerance: float = 1e-3,
    min_run: int = 1,
    unchanged: bool = False,
    field: str = rlds_types.ACTION,
    final_observation_known: Any = True,
) -> _episodes.EpisodesOrSteps:
    """Drops idle steps, in which the agent does not act.

    A step is idle if all elements of its action are within `tolerance` of zero, or, for actions
    that are positions, of the previous action. The first and the last step of an episode are kept,
    so its flags are correct. The rewards of idle steps are lost.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes.
      tolerance: the maximum absolute value of an idle action.
      min_run: the minimum number of consecutive idle steps to drop.
      unchanged: whether to compare with the previous action instead of with zero.
      field: the action, a tensor of numbers or a nest of these.
      final_observation_known: whether the action of the last step is a placeholder, which
        does not count. An episode's field of this name has precedence.

    Returns:
      The remaining steps, in their layout.

    Raises:
      KeyError: if there is no such field.
      TypeError: if the field has other values than numeric tensors.
      ValueError: if `min_run` is not positive or `tolerance` is negative.

    >>> steps = drop_idle_steps({"action": [1.0, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0]}, min_run=2)
    >>> steps["action"].numpy().tolist()
    [1.0, 0.0, 2.0, 3.0, 0.0]
    """
    caller = "drop_idle_steps"
    _layouts.check_positive(caller, min_run=min_run)
    if tolerance < 0:
        raise ValueError(f"{caller}: tolerance must not be negative, got {tolerance}.")
    _episodes.check_numeric(_episodes.spec_of_step(data, caller), field, caller)

    def transform_section(section: _sections.Section, is_final_known: Any) -> Any:
        actions = tf.nest.flatten(section.steps[field])
        is_idle = tf.reduce_all([_is_idle(action, tolerance, unchanged) for action in actions], 0)
        step_indices = tf.range(section.num_steps, dtype=tf.int64)
        is_last = section.is_end & tf.equal(step_indices, section.num_steps - 1)
        is_idle &= ~(is_last & is_final_known)
        is_first = tf.equal(section.offset + step_indices, 0)
        if unchanged:
            is_idle &= ~is_first
        is_kept = is_first | is_last | ~_is_in_run(is_idle, min_run)
        kept = tf.boolean_mask(section.indices, is_kept[section.start : section.stop])
        return tf.nest.map_structure(lambda leaf: tf.gather(leaf, kept), section.steps)

    def transform_steps(steps: _layouts.Steps, is_final_known: Any) -> _layouts.Steps:
        return _sections.map_sections(
            steps,
            lambda section: transform_section(section, is_final_known),
            before=min_run,
            after=min_run,
            caller=caller,
        )

    return _episodes.over_steps(data, transform_steps, final_observation_known)


def subsample(
    data: _episodes.EpisodesOrSteps, *, stride: int = 1, limit: int | None = None, seed: Any = None
) -> _episodes.EpisodesOrSteps:
    """Keeps every `stride`-th step of each episode, up to a limit.

    The kept steps stay in their order. The flags are unchanged, so `is_last` may be false in all
    kept steps.

    Args:
      data: steps in either layout, or a dataset of episodes.
      stride: distance between two kept steps; the first step is kept.
      limit: the maximum number of kept steps of an episode.
      seed: None keeps the first `limit` steps. An integer keeps random steps, all equally likely,
        by the seed and the index of the episode in the dataset; a nested episode is held in memory
        as a whole.

    Returns:
      The kept steps, in their layout.

    Raises:
      ValueError: if an argument is out of range, or there is a seed but no limit.

    >>> subsample({"reward": [0, 1, 2, 3, 4]}, stride=2)["reward"].numpy().tolist()
    [0, 2, 4]
    >>> len(subsample({"reward": [0, 1, 2, 3, 4]}, limit=3, seed=0)["reward"])
    3
    """
    caller = "subsample"
    _layouts.check_positive(caller, stride=stride)
    if limit is not None and limit < 0:
        raise ValueError(f"{caller}: limit must not be negative, got {limit}.")
    if seed is not None and limit is None:
        raise ValueError(f"{caller}: a seed draws the kept steps up to a limit; pass a limit.")
    _episodes.spec_of_step(data, caller)

    def choose(batch: Any, index: Any) -> Any:
        strided = tf.nest.map_structure(lambda leaf: leaf[::stride], batch)
        if seed is None:
            return tf.nest.map_structure(lambda leaf: leaf[:limit], strided)
        stateless_seed = tf.stack([tf.cast(seed, tf.int64), tf.cast(index, tf.int64)])
        order = tf.argsort(
            tf.random.stateless_uniform(
                _layouts.num_steps(strided)[tf.newaxis], stateless_seed, dtype=tf.float64
            )
        )
        kept_indices = tf.sort(order[:limit])
        return tf.nest.map_structure(lambda leaf: tf.gather(leaf, kept_indices), strided)

    def transform_steps(steps: _layouts.Steps, index: Any) -> _layouts.Steps:
        if _layouts.is_nested(steps) and seed is None:
            strided = steps if stride == 1 else steps.shard(stride, 0)
            return strided if limit is None else strided.take(limit)
        return _episodes.map_as_one_batch(
            steps, lambda batch: choose(batch, index), caller, keeps_length=False
        )

    return _episodes.over_steps_by_index(data, transform_steps)


def _check_range(caller: str, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError(f"{caller}: the range from {minimum} to {maximum} is empty.")


def _check_episode(caller: str, episode: Any) -> None:
    if not _episodes.is_episode(episode):
        actual = sorted(map(str, episode)) if isinstance(episode, Mapping) else type(episode)
        raise KeyError(f"{caller}: an episode needs the field {rlds_types.STEPS!r}, got {actual}.")


def _is_in_range(value: tf.Tensor, minimum: float | None, maximum: float | None) -> tf.Tensor:
    is_inside = tf.constant(True)
    if minimum is not None:
        is_inside &= value >= minimum
    if maximum is not None:
        is_inside &= value <= maximum
    return is_inside


def _as_bool(value: Any, field: str) -> tf.Tensor:
    value = tf.convert_to_tensor(value)
    if value.dtype == tf.string:
        raise TypeError(f"field {field!r} must be boolean or a number, got {value.dtype.name}.")
    return value if value.dtype.is_bool else value > 0


def _is_idle(actions: tf.Tensor, tolerance: float, unchanged: bool) -> tf.Tensor:
    """Returns a mask of the actions that are within the tolerance, or change by less."""
    values = tf.cast(actions, tf.float64)
    if unchanged:
        values -= tf.concat([values[:1], values[:-1]], 0)
    is_small = tf.abs(values) <= tolerance
    return tf.reduce_all(is_small, axis=list(range(1, is_small.shape.rank)))


def _is_in_run(is_idle: tf.Tensor, min_run: int) -> tf.Tensor:
    """Returns a mask of the steps in runs of at least `min_run` idle steps."""
    if min_run == 1:
        return is_idle

    def window_sums(counts: tf.Tensor) -> tf.Tensor:
        """Returns the sums of all windows of `min_run` neighbours."""
        total = tf.pad(tf.cumsum(counts), [[1, 0]])
        return total[min_run:] - total[:-min_run]

    # A step is in a run if a window that covers the step has only idle steps.
    counts = tf.pad(tf.cast(is_idle, tf.int64), [[min_run - 1, min_run - 1]])
    is_full = tf.equal(window_sums(counts), min_run)
    return window_sums(tf.cast(is_full, tf.int64)) > 0
