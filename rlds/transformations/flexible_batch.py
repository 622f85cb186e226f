"""Windows over steps, and the number of steps to process at once."""

import dataclasses
import operator
from typing import Any, Final

import numpy as np
import tensorflow as tf

from rlds.transformations import _layouts, shape_ops

__all__ = ["BATCH_AUTO_TUNE", "DEFAULT_BATCH_SIZE_IN_BYTES", "batch", "get_batch_size"]

BATCH_AUTO_TUNE: Final = -1
"""Requests a batch size that depends on the size of a step."""

DEFAULT_BATCH_SIZE_IN_BYTES: Final = 200_000
"""The target size of an automatic batch, in bytes of steps."""

# Bytes of windows that `batch` prepares at once: large enough to amortize the cost of graph calls
# (about 0.2 ms) over small steps, and small against the data itself.
_CHUNK_SIZE_IN_BYTES = 1_000_000


def get_batch_size(dataset: Any, optimization_batch_size: int = BATCH_AUTO_TUNE) -> int:
    """Returns the number of steps to process at once.

    Args:
      dataset: a dataset of episodes or of any elements, or batched steps.
      optimization_batch_size: the batch size, or `BATCH_AUTO_TUNE`.

    Returns:
      `optimization_batch_size`; for `BATCH_AUTO_TUNE`, the number of steps that fit into
      `DEFAULT_BATCH_SIZE_IN_BYTES`: at least one, and one if the size of a step is unknown.

    Raises:
      ValueError: if `optimization_batch_size` is negative and not `BATCH_AUTO_TUNE`.

    >>> steps = tf.data.Dataset.from_tensors({"observation": tf.zeros([100], tf.float32)})
    >>> get_batch_size(steps), get_batch_size(steps, 7)
    (500, 7)
    """
    if optimization_batch_size == BATCH_AUTO_TUNE:
        step_size = max(1, shape_ops.size_from_spec(_spec_of_step(dataset)))
        return max(1, DEFAULT_BATCH_SIZE_IN_BYTES // step_size)
    if optimization_batch_size < 0:
        raise ValueError(
            f"The batch size must not be negative, got {optimization_batch_size}; "
            f"BATCH_AUTO_TUNE ({BATCH_AUTO_TUNE}) selects a batch size."
        )
    return optimization_batch_size


def _spec_of_step(dataset: Any) -> Any:
    if not _layouts.is_nested(dataset):
        return _layouts.spec_of_steps(_layouts.as_batch(dataset, "get_batch_size"))
    if _layouts.are_episodes(dataset):
        return _layouts.spec_of_nested_steps(dataset, "get_batch_size")
    return dataset.element_spec


def batch(
    dataset: Any,
    size: int = BATCH_AUTO_TUNE,
    shift: int | None = None,
    stride: int = 1,
    drop_remainder: bool = False,
) -> Any:
    """Builds windows of `size` elements, whose starts are `shift` elements apart.

    Windows start at elements 0, `shift`, 2 * `shift` and so on, up to the last element, and take
    every `stride`-th element from there. The last windows may therefore be shorter than `size`;
    `drop_remainder` drops them.

    Args:
      dataset: a `tf.data.Dataset` of any elements, or batched steps.
      size: number of elements in a window; the default selects it from the size of an element.
      shift: distance between the starts of two windows; None and 0 mean `size`.
      stride: distance between two elements of a window.
      drop_remainder: whether to drop the windows that are shorter than `size`.

    Returns:
      A dataset of windows: each is an element with a new leading axis, of static length `size` if
      `drop_remainder`. The cardinality of the result is exact if the input has one. For
      batched steps, tensors of shape `[number of windows, size, ...]`.

    Raises:
      ValueError: if size, shift or stride are out of range, or if the steps are batched and a
        window would be shorter (inside a graph, an `InvalidArgumentError` when it runs).

    >>> ds = tf.data.Dataset.from_tensor_slices([1, 2, 3, 4])
    >>> def windows(**arguments):
    ...     return [window.numpy().tolist() for window in batch(ds, **arguments)]
    >>> windows(size=2, shift=1)
    [[1, 2], [2, 3], [3, 4], [4]]
    >>> windows(size=2, shift=1, drop_remainder=True)
    [[1, 2], [2, 3], [3, 4]]
    >>> windows(size=2, shift=1, stride=2)
    [[1, 3], [2, 4], [3], [4]]
    >>> windows(size=3)
    [[1, 2, 3], [4]]
    >>> transitions = batch({"observation": [1, 2, 3]}, size=2, shift=1, drop_remainder=True)
    >>> transitions["observation"].numpy().tolist()
    [[1, 2], [2, 3]]
    """
    size = get_batch_size(dataset, operator.index(size))
    window = _Window(size=size, shift=operator.index(shift or size), stride=operator.index(stride))
    if not _layouts.is_nested(dataset):
        return _cut_batch(_layouts.as_batch(dataset, "batch"), window, drop_remainder)
    if window.shift == size and window.stride == 1:
        return _layouts.batch_elements(dataset, size, drop_remainder)
    if _layouts.is_static(dataset.element_spec):
        windows = _cut_chunks(dataset, window, drop_remainder)
    else:
        windows = _cut_one_by_one(dataset, window, drop_remainder)
    return _layouts.with_cardinality(windows, window.cardinality(dataset, drop_remainder))


def windows_of_batch(
    steps: Any, size: int = BATCH_AUTO_TUNE, shift: int | None = None, stride: int = 1
) -> tf.data.Dataset:
    """Returns a dataset of all windows of batched steps, including shorter ones; see `batch`."""
    size = get_batch_size(steps, operator.index(size))
    window = _Window(size=size, shift=operator.index(shift or size), stride=operator.index(stride))

    def window_from(start: tf.Tensor) -> Any:
        rows = slice(start, start + window.span, window.stride)
        return tf.nest.map_structure(lambda leaf: leaf[rows], steps)

    return tf.data.Dataset.range(0, _layouts.num_steps(steps), window.shift).map(window_from)


@dataclasses.dataclass(frozen=True)
class _Window:
    """Sliding windows: their size, shift and stride."""

    size: int
    shift: int
    stride: int

    def __post_init__(self) -> None:
        _layouts.check_positive("batch", **dataclasses.asdict(self))

    @property
    def span(self) -> int:
        """The number of elements from the first to the last one of a full window."""
        return (self.size - 1) * self.stride + 1

    def count(self, num_elements: tf.Tensor, drop_remainder: bool) -> tf.Tensor:
        """Returns the number of windows of a sequence of `num_elements` elements."""
        length = self.span if drop_remainder else 1
        count = tf.maximum(num_elements + (self.shift - length), 0)
        return count if self.shift == 1 else count // self.shift

    def cardinality(self, dataset: tf.data.Dataset, drop_remainder: bool) -> tf.Tensor:
        """Returns the number of windows of a dataset; infinite or unknown if its cardinality is."""
        starts = dataset.skip(self.span - 1) if drop_remainder else dataset
        return (starts if self.shift == 1 else starts.window(self.shift)).cardinality()

    def distance(self, count: tf.Tensor) -> tf.Tensor:
        """Returns the number of elements between the starts of windows that are `count` apart."""
        return count if self.shift == 1 else count * self.shift

    def gather(self, elements: Any, first: tf.Tensor | int, end: tf.Tensor) -> Any:
        """Stacks the full windows that start at or after element `first` and before `end`."""
        starts = tf.range(first, end, self.shift, dtype=tf.int64)
        rows = tf.expand_dims(starts, 1) + self.stride * np.arange(self.size)
        return tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), elements)


def _cut_batch(steps: Any, window: _Window, drop_remainder: bool) -> Any:
    """Returns the full windows of batched steps, gathered at once."""
    num_steps = _layouts.num_steps(steps)
    count = window.count(num_steps, drop_remainder=True)
    if drop_remainder:
        return window.gather(steps, 0, window.distance(count))
    message = (
        "batch: the last windows would be shorter, which a tensor cannot hold "
        f"({window}). Pass drop_remainder=True, or use the nested layout: a tf.data.Dataset of "
        "steps."
    )
    length = _layouts.static_num_steps(steps)
    if length and range(0, length, window.shift)[-1] + window.span > length:
        raise ValueError(f"{message} There are {length} steps.")
    all_full = tf.debugging.assert_equal(
        count, window.count(num_steps, drop_remainder=False), message=message
    )
    with tf.control_dependencies([all_full]):
        return window.gather(steps, 0, window.distance(tf.identity(count)))


def _cut_chunks(dataset: tf.data.Dataset, window: _Window, drop_remainder: bool) -> tf.data.Dataset:
    """Reads elements in chunks and gathers all windows of a chunk at once.

    The elements that later windows need are carried over from chunk to chunk.
    """
    overlap = -(-window.size // window.shift)
    bytes_per_element = max(1, shape_ops.size_from_spec(dataset.element_spec) * overlap)
    chunks = _layouts.batch_elements(dataset, max(1, _CHUNK_SIZE_IN_BYTES // bytes_per_element))
    empty = _layouts.no_steps(dataset.element_spec)
    # The carried-over elements, and the distance to the start of the next window.
    begin = (empty, tf.constant(0, tf.int64))
    has_gaps = window.shift > window.span  # The next window may start after the chunk.

    def advance(state: Any, chunk: Any) -> tuple[Any, Any]:
        """Returns the state after the chunk and the full windows that end in it.

        Each operation here takes about 0.5 ms at the start of each iterator.
        """
        remaining, first = state
        elements = tf.nest.map_structure(lambda *leaves: tf.concat(leaves, 0), remaining, chunk)
        num_elements = _layouts.num_steps(elements)
        if not has_gaps:
            end = window.distance(window.count(num_elements, drop_remainder=True))
            windows, next_first, carry_start = window.gather(elements, 0, end), first, end
        else:
            count = window.count(num_elements - first, drop_remainder=True)
            end = first + window.distance(count)
            windows = window.gather(elements, first, end)
            next_first = tf.maximum(end - num_elements, 0)
            carry_start = tf.minimum(end, num_elements)
        carried_rows = tf.range(carry_start, num_elements)
        next_carried = tf.nest.map_structure(lambda leaf: tf.gather(leaf, carried_rows), elements)
        return (next_carried, next_first), windows

    if drop_remainder:
        return _layouts.unbatch(chunks.scan(begin, _layouts.in_graph(advance)))

    # An empty chunk marks the end of the input. The elements carried over to this chunk start with
    # the first short window.
    marked = _layouts.with_end(chunks, empty)

    def advance_to_end(state: Any, element: Any) -> tuple[Any, Any]:
        chunk, is_end = element
        state, windows = advance(state, chunk)
        remaining, _ = state
        num_leftover = tf.where(is_end, _layouts.num_steps(remaining), 0)
        leftover = tf.nest.map_structure(lambda leaf: leaf[:num_leftover], remaining)
        return state, (windows, leftover)

    def full_then_short(windows: Any, leftover: Any) -> tf.data.Dataset:
        starts = tf.data.Dataset.range(0, _layouts.num_steps(leftover), window.shift)
        short = starts.map(
            lambda start: tf.nest.map_structure(lambda leaf: leaf[start :: window.stride], leftover)
        )
        return tf.data.Dataset.from_tensor_slices(windows).concatenate(short)

    return marked.scan(begin, _layouts.in_graph(advance_to_end)).flat_map(
        _layouts.in_graph(full_then_short)
    )


def _cut_one_by_one(
    dataset: tf.data.Dataset, window: _Window, drop_remainder: bool
) -> tf.data.Dataset:
    """Builds windows one by one, which is slow, but supports any elements.

    Elements may differ in shape from window to window, or be datasets themselves.
    """

    def join(*components: Any) -> tf.data.Dataset:
        is_tuple = type(dataset.element_spec) is tuple
        elements = tf.data.Dataset.zip(components if is_tuple else components[0])
        return elements.batch(window.size, drop_remainder=drop_remainder)

    windows = dataset.window(
        window.size, shift=window.shift, stride=window.stride, drop_remainder=drop_remainder
    )
    return windows.flat_map(join)
