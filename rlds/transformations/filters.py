"""Filters of episodes and of their steps.

The functions for episodes make predicates: pass what they return to `Dataset.filter`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from rlds import metadata, rlds_types
from rlds.transformations import _episodes, _layouts, _sections, nested_ops, returns

__all__ = ["drop_idle_steps", "has_length", "has_return", "is_successful", "is_usable", "subsample"]

EpisodePredicate: TypeAlias = Callable[[rlds_types.Episode], tf.Tensor]


def has_length(minimum: int = 1, maximum: int | None = None) -> EpisodePredicate:
    """Makes a predicate: the episode has this many steps.

    Args:
      minimum: the least number of steps.
      maximum: the largest number of steps, if there is one.

    Raises:
      ValueError: if no length can be in the range.

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
    """Makes a predicate: the sum of the rewards of the episode is in this range.

    Args:
      minimum: the least return, if there is one.
      maximum: the largest return, if there is one.
      gamma: see `episode_return`.

    Raises:
      ValueError: if no return can be in the range.

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
                "Filter by one of those that `episode_return` returns."
            )
        return _is_in_range(total, minimum, maximum)

    return predicate


def is_successful(field: str = "success") -> EpisodePredicate:
    """Makes a predicate of success: of the episode, or of any of its steps.

    Args:
      field: a field of the episode or, if it has none of that name, of its steps. It holds
        booleans, or numbers of which those above 0 mean success.

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
    """Leaves out steps in which the agent did nothing.

    A step is idle if all elements of its action are within `tolerance` of zero, or, for actions
    that are positions, of the action before. The first and the last step of an episode stay, so
    its flags stay right. What idle steps were rewarded with is lost.

    Args:
      data: steps in either layout, an episode, or a dataset of episodes.
      tolerance: the largest absolute value that counts as nothing.
      min_run: the least number of consecutive idle steps to leave out.
      unchanged: whether to compare with the action before instead of with zero.
      field: the action, a tensor of numbers or a nest of these.
      final_observation_known: whether the action of the last step is a placeholder, which
        does not count. The field of that name decides where an episode has it.

    Returns:
      The other steps, in their layout.

    Raises:
      KeyError: if there is no such field.
      TypeError: if the field has anything but numeric tensors.
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

    def of_section(section: _sections.Section, is_final_known: Any) -> Any:
        actions = tf.nest.flatten(section.steps[field])
        is_idle = tf.reduce_all([_is_idle(each, tolerance, unchanged) for each in actions], 0)
        step_indices = tf.range(section.num_steps, dtype=tf.int64)
        is_last = section.is_end & tf.equal(step_indices, section.num_steps - 1)
        is_idle &= ~(is_last & is_final_known)
        is_first = tf.equal(section.offset + step_indices, 0)
        if unchanged:
            is_idle &= ~is_first
        is_kept = is_first | is_last | ~_is_in_run(is_idle, min_run)
        chosen = tf.boolean_mask(section.indices, is_kept[section.start : section.stop])
        return tf.nest.map_structure(lambda leaf: tf.gather(leaf, chosen), section.steps)

    def of_steps(steps: _layouts.Steps, is_final_known: Any) -> _layouts.Steps:
        return _sections.map_sections(
            steps,
            lambda section: of_section(section, is_final_known),
            before=min_run,
            after=min_run,
            caller=caller,
        )

    return _episodes.over_steps(data, of_steps, final_observation_known)


def subsample(
    data: _episodes.EpisodesOrSteps, *, stride: int = 1, limit: int | None = None, seed: Any = None
) -> _episodes.EpisodesOrSteps:
    """Leaves out steps of each episode: all but every `stride`-th, and those beyond a limit.

    What remains are single steps, in their order. The flags stay what they are, so there may be
    no step left that is the last.

    Args:
      data: steps in either layout, or a dataset of episodes.
      stride: distance between two steps that stay; the first one stays.
      limit: the largest number of steps of an episode that stay.
      seed: None to let the first `limit` steps stay. An integer to let random ones stay, each
        as likely as the others. Which ones depends on the seed and the place of the episode in
        the dataset; a nested episode is held in memory as a whole.

    Returns:
      The steps that stay, in their layout.

    Raises:
      ValueError: if a number is out of range, or there is a seed but no limit.

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
        raise ValueError(f"{caller}: a seed chooses which steps stay, but there is no limit.")
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
        chosen = tf.sort(order[:limit])
        return tf.nest.map_structure(lambda leaf: tf.gather(leaf, chosen), strided)

    def of_steps(steps: _layouts.Steps, index: Any) -> _layouts.Steps:
        if _layouts.is_nested(steps) and seed is None:
            strided = steps if stride == 1 else steps.shard(stride, 0)
            return strided if limit is None else strided.take(limit)
        return _episodes.map_as_one_batch(
            steps, lambda batch: choose(batch, index), caller, keeps_length=False
        )

    return _episodes.over_steps_by_index(data, of_steps)


def _check_range(caller: str, minimum: float | None, maximum: float | None) -> None:
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError(f"{caller}: nothing is at least {minimum} and at most {maximum}.")


def _check_episode(caller: str, episode: Any) -> None:
    if not _episodes.is_episode(episode):
        got = sorted(map(str, episode)) if isinstance(episode, Mapping) else type(episode)
        raise KeyError(
            f"{caller}: an episode needs the field {rlds_types.STEPS!r}, this has {got}."
        )


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
    """Whether each action is (or changes by) less than the tolerance."""
    values = tf.cast(actions, tf.float64)
    if unchanged:
        before = tf.concat([values[:1], values[:-1]], 0)
        values -= before
    is_small = tf.abs(values) <= tolerance
    return tf.reduce_all(is_small, axis=list(range(1, is_small.shape.rank)))


def _is_in_run(is_idle: tf.Tensor, min_run: int) -> tf.Tensor:
    """Whether each step is in a run of at least `min_run` idle steps."""
    if min_run == 1:
        return is_idle

    def sums(counts: tf.Tensor) -> tf.Tensor:
        """The sums of all `min_run` neighbours."""
        total = tf.pad(tf.cumsum(counts), [[1, 0]])
        return total[min_run:] - total[:-min_run]

    # A step is in a run if one of the windows that cover it has only idle steps.
    counts = tf.pad(tf.cast(is_idle, tf.int64), [[min_run - 1, min_run - 1]])
    is_full = tf.equal(sums(counts), min_run)
    return sums(tf.cast(is_full, tf.int64)) > 0
