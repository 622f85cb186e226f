"""Application of functions to the steps of datasets of episodes, of episodes, or of steps."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from rlds import alignment, rlds_types
from rlds.transformations import _layouts

# A dataset of episodes, an episode, or the steps of an episode, all in either layout.
EpisodesOrSteps: TypeAlias = Any


def is_episode(data: EpisodesOrSteps) -> bool:
    """Returns whether data is an episode: a dict with the field `steps`."""
    return isinstance(data, Mapping) and rlds_types.STEPS in data


def is_final_known(episode: Mapping[str, Any], default: Any = True) -> Any:
    """Returns whether the last step of the episode is the observation after the last transition."""
    return episode.get(rlds_types.FINAL_OBSERVATION_KNOWN, default)


def over_steps(
    data: EpisodesOrSteps,
    function: Callable[[_layouts.Steps, Any], _layouts.Steps],
    final_observation_known: Any = True,
) -> EpisodesOrSteps:
    """Applies a function to the steps of a dataset of episodes, of an episode, or to steps.

    Args:
      data: episodes, an episode, or steps.
      function: takes the steps of an episode, and a flag that is true for a final observation.
      final_observation_known: the default for episodes without this field.
    """

    @_layouts.in_graph
    def replace(episode: Mapping[str, Any]) -> dict[str, Any]:
        is_known = is_final_known(episode, final_observation_known)
        return {**episode, rlds_types.STEPS: function(episode[rlds_types.STEPS], is_known)}

    if _layouts.are_episodes(data):
        return data.map(replace, num_parallel_calls=parallelism(data))
    if is_episode(data):
        return replace(data)
    return function(data, final_observation_known)


def over_steps_by_index(
    data: EpisodesOrSteps, function: Callable[[_layouts.Steps, Any], _layouts.Steps]
) -> EpisodesOrSteps:
    """Like `over_steps`, but the function takes the index of the episode in the dataset."""
    if not _layouts.are_episodes(data):
        return over_steps(data, lambda steps, _: function(steps, 0))

    @_layouts.in_graph
    def replace(index: tf.Tensor, episode: Mapping[str, Any]) -> dict[str, Any]:
        return {**episode, rlds_types.STEPS: function(episode[rlds_types.STEPS], index)}

    return data.enumerate().map(replace, num_parallel_calls=parallelism(data))


def parallelism(episodes: tf.data.Dataset) -> int | None:
    """Returns `num_parallel_calls` for a map of episodes: None if their steps are nested.

    For batched steps the map does the work. For nested steps the work is done later, when the
    datasets of steps are read.
    """
    are_nested = isinstance(episodes.element_spec[rlds_types.STEPS], tf.data.DatasetSpec)
    return None if are_nested else tf.data.AUTOTUNE


def spec_of_step(data: EpisodesOrSteps, caller: str) -> Any:
    """Returns the spec of one step."""
    if _layouts.are_episodes(data):
        return _layouts.spec_of_nested_steps(data, caller)
    steps = data[rlds_types.STEPS] if is_episode(data) else data
    if not _layouts.is_nested(steps):
        steps = _layouts.as_batch(steps, caller)
    return _layouts.spec_of_steps(steps)


def map_as_one_batch(
    steps: _layouts.Steps, function: Callable[[Any], Any], caller: str, *, keeps_length: bool
) -> _layouts.Steps:
    """Applies a function to all steps of an episode as one batch, in either layout."""
    if not _layouts.is_nested(steps):
        return function(_layouts.as_batch(steps, caller))

    @_layouts.in_graph
    def slices(batch: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(function(batch))

    result = _layouts.as_one_batch(steps).flat_map(slices)
    return _layouts.with_cardinality(result, steps.cardinality()) if keeps_length else result


def check_numeric(spec: Any, name: str, caller: str) -> None:
    """Checks that all leaves of a field of the step are tensors of real numbers or booleans."""
    _layouts.check_fields(spec, [name], caller)
    for path, leaf in _layouts.named_leaves({name: spec[name]}):
        is_tensor = isinstance(leaf, tf.TensorSpec)
        if not is_tensor or leaf.dtype == tf.string or leaf.dtype.is_complex:
            raise TypeError(f"{caller}: field {path!r} must be a numeric tensor, got {leaf}.")


def leaves_of(steps: Any, *names: str) -> dict[str, Any]:
    """Returns the tensors, or specs, of the fields that exist, by their paths."""
    return dict(_layouts.named_leaves({name: steps[name] for name in names if name in steps}))


def discounts_of(spec: Any, caller: str) -> dict[str, str]:
    """Returns the path of the discount of each reward, by the path of the reward."""
    shapes = [
        {path: leaf.shape.as_list() for path, leaf in leaves_of(spec, name).items()}
        for name in (rlds_types.REWARD, rlds_types.DISCOUNT)
    ]
    try:
        return alignment.discounts_of(shapes[0], shapes[1] or {rlds_types.DISCOUNT: ()})
    except ValueError as error:
        raise ValueError(f"{caller}: {error}") from None


def float_dtype(values: tf.Tensor) -> tf.DType:
    """Returns the dtype of results that are computed from values."""
    return values.dtype if values.dtype.is_floating else tf.float32


def match_rank(values: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Appends axes to factors of steps, so that they broadcast to the values of steps."""
    missing = values.shape.rank - factors.shape.rank
    return factors[(..., *[tf.newaxis] * missing)] if missing > 0 else factors
