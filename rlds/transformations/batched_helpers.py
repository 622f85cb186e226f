"""Applies a function to batches of steps."""

from collections.abc import Callable
from typing import Any

from rlds.transformations import _layouts, flexible_batch

__all__ = ["batched_map"]


def batched_map(
    steps: _layouts.Steps,
    map_fn: Callable[..., Any],
    size: int = flexible_batch.BATCH_AUTO_TUNE,
    shift: int | None = None,
    stride: int = 1,
    *,
    num_parallel_calls: int | None = None,
) -> _layouts.Steps:
    """Applies a function to windows of steps, and splits the results into steps.

    Args:
      steps: the steps of one episode, in either layout.
      map_fn: takes a window of steps, a structure of tensors with a leading time axis, and
        returns another structure, which may have another length.
      size: number of steps in a window, see `batch`; the last windows may be shorter.
      shift: distance between the starts of two windows; None and 0 mean `size`.
      stride: distance between two steps of a window.
      num_parallel_calls: the number of windows to process at the same time, in their order;
        `tf.data.AUTOTUNE` selects it, None means one after the other.

    Returns:
      The results of all windows, one after the other, in the layout of the steps.

    Raises:
      ValueError: if size, shift or stride are out of range.

    >>> import tensorflow as tf
    >>> steps = tf.data.Dataset.range(5)
    >>> [int(step) for step in batched_map(steps, lambda window: window[::-1], size=2)]
    [1, 0, 3, 2, 4]
    >>> batched_map([0, 1, 2, 3, 4], lambda window: window[::-1], size=2).numpy().tolist()
    [1, 0, 3, 2, 4]
    """
    if _layouts.is_nested(steps):
        windows = flexible_batch.batch(steps, size, shift, stride)
        return _layouts.unbatch(windows.map(map_fn, num_parallel_calls=num_parallel_calls))
    batch = _layouts.as_batch(steps, "batched_map")
    windows = flexible_batch.windows_of_batch(batch, size, shift, stride)
    results = windows.map(map_fn, num_parallel_calls=num_parallel_calls)
    step_spec = _layouts.spec_without_time(results.element_spec)
    return _layouts.join_batches(results.rebatch(_layouts.ALL_STEPS), step_spec)
