"""Statistics of the fields of a `tf.data` dataset, computed in one pass."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from rlds import rlds_types
from rlds.statistics import (
    FieldStatistics,
    FieldType,
    Statistics,
    StatisticsPass,
    are_valid,
    choose_fields,
    warn_of_last_actions,
)
from rlds.transformations import _episodes, _layouts, flexible_batch
from rlds.transformations._step_function import StepFunction
from rlds.transformations.dataset_stats import check_fields, spread_mask

__all__ = ["FieldStatistics", "Statistics", "compute_statistics"]

_FUNCTION = "compute_statistics"


def compute_statistics(
    episodes: tf.data.Dataset,
    fields: Sequence[str] | Callable[..., tuple[Any, Any]] | None = None,
    *,
    quantiles: Sequence[float] = (0.01, 0.99),
    ddof: int = 0,
    masks: Mapping[str, Any] | None = None,
    include_last_action: bool | None = None,
    optimization_batch_size: int = flexible_batch.BATCH_AUTO_TUNE,
) -> Statistics:
    """Computes statistics of the fields of a dataset, in one pass and in constant memory.

    All statistics except for quantiles are float64 and do not depend on the batch size. Quantiles
    are exact up to 8191 values. For n values, the result for a quantile q is an exact quantile q',
    and abs(q - q') < log2(n / 8192) / 16384 + 0.0002: 0.1 % for n = 10^7. Quantiles take 1/3 of the
    time, and 8192 + 4096 * log2(n / 8192) values of memory per element of the fields;
    `quantiles=()` disables them.

    Args:
      episodes: episodes with steps in either layout. The steps need `is_first` and `is_last`.
      fields: names of fields ("action", "observation/state"), with all nested fields. Action,
        reward and discount do not count in a final observation, where they are placeholders.
        Another choice is a function as in `mean_and_std`, such as `sar_fields_mask`, which gets
        `is_last` as False in an episode without a final observation. If None, observation, action
        and reward, without texts and images.
      quantiles: the quantiles to compute, from 0 to 1.
      ddof: the divisor of the variance is n - ddof. 0 as in Octo and OpenVLA; `mean_and_std`
        has 1.
      masks: masks of the elements to normalize, by field; all by default.
      include_last_action: whether action, reward and discount of the last step count in all
        episodes, as in Octo and OpenVLA. If True, `num_transitions` is the number of steps, which
        `balance_weights` of these projects needs. If None, they count if `final_observation_known`
        is false; a `UserWarning` reports episodes without this field whose last action is not zero,
        as in data without final observations.
      optimization_batch_size: the number of steps to process at once, see `map_steps`.

    Returns:
      The statistics. NaN values emit a `RuntimeWarning`, and the statistics of their element are
      NaN.

    Raises:
      KeyError: if a field is missing.
      TypeError: if a field is not numeric.
      ValueError: if a quantile or a mask is invalid.

    >>> steps = {"action": [[1.0, 3.0, 0.0]], "is_first": [[True, False, False]],
    ...          "is_last": [[False, False, True]]}
    >>> episodes = tf.data.Dataset.from_tensor_slices({"steps": steps})
    >>> statistics = compute_statistics(episodes, ["action"], quantiles=[0.25])
    >>> action = statistics["action"]
    >>> float(action.mean), float(action.std), float(action.max), float(action.quantiles[0.25])
    (2.0, 1.0, 3.0, 1.5)
    >>> statistics.num_transitions, statistics.num_trajectories
    (2, 1)
    """
    step_spec = _layouts.spec_of_nested_steps(episodes, _FUNCTION)
    flags = [rlds_types.IS_FIRST, rlds_types.IS_LAST]
    _layouts.check_fields(step_spec, flags, _FUNCTION)
    size = flexible_batch.get_batch_size(episodes, optimization_batch_size)
    if optimization_batch_size == flexible_batch.BATCH_AUTO_TUNE:
        # The cost per batch is larger in NumPy than in TensorFlow.
        size *= 4
    select = _select_fields(fields, step_spec, size)

    @_layouts.in_graph
    def prepare(batch: Any) -> Any:
        data, valid = select(batch)
        return data, valid, batch[rlds_types.IS_FIRST], batch[rlds_types.IS_LAST]

    are_marked = callable(fields) or rlds_types.FINAL_OBSERVATION_KNOWN in episodes.element_spec
    marked = _clear_is_last(episodes, in_all=bool(include_last_action))
    if callable(fields) or _layouts.have_nested_steps(episodes, _FUNCTION):
        batches = _layouts.batches_of_steps(marked, max(1, size), _FUNCTION)
        batches = batches.map(prepare, num_parallel_calls=tf.data.AUTOTUNE)
    else:
        # Other fields are not copied into batches.
        prepared = marked.map(
            _layouts.in_graph(lambda episode: prepare(episode[rlds_types.STEPS])),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        batches = prepared.rebatch(max(1, size))
    batches = batches.prefetch(2)
    shapes = _read_shapes(batches.element_spec[0])
    statistics_pass = StatisticsPass(shapes, quantiles=quantiles, ddof=ddof, masks=masks)
    for data, valid, is_first, is_last in batches.as_numpy_iterator():
        is_unmarked = is_last & (not are_marked)
        statistics_pass.add(data, valid, is_last, is_unmarked, int(np.count_nonzero(is_first)))
    statistics = statistics_pass.result()
    if include_last_action is None:
        warn_of_last_actions(statistics)
    return statistics


def _clear_is_last(episodes: tf.data.Dataset, *, in_all: bool) -> tf.data.Dataset:
    """Clears `is_last` where the last step has a real action, or in all episodes."""
    if not in_all and rlds_types.FINAL_OBSERVATION_KNOWN not in episodes.element_spec:
        return episodes

    def clear(steps: _layouts.Steps, is_known: tf.Tensor) -> _layouts.Steps:
        def clear_step(step: rlds_types.Step) -> rlds_types.Step:
            is_placeholder = is_known & (not in_all)
            return {**step, rlds_types.IS_LAST: step[rlds_types.IS_LAST] & is_placeholder}

        return steps.map(clear_step) if _layouts.is_nested(steps) else clear_step(steps)

    return _episodes.over_steps(episodes, clear)


def _select_fields(fields: Any, spec: Any, size: int) -> Callable[[Any], tuple[Any, Any]]:
    """Returns a function of a batch that returns its values and validity masks, by path.

    Values without a mask are valid.
    """
    if callable(fields):
        function = StepFunction(fields, spec, vectorize=size > 1)
        check_fields(function.output_spec, _FUNCTION)

        def apply(batch: Any) -> tuple[Any, Any]:
            data, mask = function.apply(batch)
            masks = tree.flatten(spread_mask(mask, data))
            named = {name or "data": leaf for name, leaf in _layouts.named_leaves(data)}
            return named, dict(zip(named, masks))

        return apply

    types = {name: type_of(leaf) for name, leaf in _layouts.named_leaves(spec)}
    names = choose_fields(fields, types)

    def choose(batch: Any) -> tuple[Any, Any]:
        leaves = dict(_layouts.named_leaves(batch))
        return {name: leaves[name] for name in names}, are_valid(names, batch[rlds_types.IS_LAST])

    return choose


def type_of(leaf: Any) -> FieldType:
    """Returns the type of a field, from the spec of a step."""
    is_tensor = isinstance(leaf, tf.TensorSpec)
    is_numeric = is_tensor and leaf.dtype != tf.string and not leaf.dtype.is_complex
    is_image = is_tensor and leaf.dtype == tf.uint8 and (leaf.shape.rank or 0) >= 3
    return FieldType(is_numeric, is_image, str(leaf))


def _read_shapes(spec: Mapping[str, tf.TensorSpec]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the fields, from the spec of batches."""
    shapes = {name: leaf.shape[1:] for name, leaf in spec.items()}
    for name, shape in shapes.items():
        if not shape.is_fully_defined():
            raise ValueError(
                f"{_FUNCTION}: field {name!r} has the shape {shape}, expected a fully defined "
                "shape. Omit the field, or give it a shape."
            )
    return {name: tuple(shape) for name, shape in shapes.items()}
