"""Functions of each step and its neighbours, over episodes of any length.

Batched steps are one section. Nested steps are read in several sections of a few thousand steps;
steps at the end of a section that lack a neighbour are carried over to the next section.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from rlds.transformations import _layouts, shape_ops

# An integer, or a tensor if its value is unknown before the graph runs.
Index: TypeAlias = Any

# Target size of the results of a section of nested steps: large enough to amortize the cost of
# graph calls (about 0.2 ms) over small steps, and small against the data itself.
_SECTION_SIZE_IN_BYTES = 1_000_000
# The target number of steps in a section if their size is unknown.
_SECTION_SIZE_OF_UNKNOWN_STEPS = 32


@dataclasses.dataclass(frozen=True)
class Section:
    """Consecutive steps of an episode.

    Attributes:
      steps: the steps, batched.
      start: the index in `steps` of the first step with a result.
      stop: the index after the last step with a result. Steps outside are neighbours.
      offset: the index in the episode of the first step of the section.
      is_end: whether the last step of the section is the last one of the episode.
    """

    steps: Any
    start: Index
    stop: Index
    offset: Index
    is_end: Any

    @property
    def num_steps(self) -> Index:
        """The number of steps, including neighbours."""
        static = _layouts.static_num_steps(self.steps)
        return _layouts.num_steps(self.steps) if static is None else static

    @property
    def indices(self) -> tf.Tensor:
        """The indices in `steps` of the steps with a result."""
        return tf.range(self.start, self.stop, dtype=tf.int64)


def map_sections(
    steps: _layouts.Steps,
    function: Callable[[Section], Any],
    *,
    before: int,
    after: int,
    caller: str,
    expansion: int = 1,
) -> _layouts.Steps:
    """Applies a function to the sections of an episode and joins the results.

    Args:
      steps: the steps, in either layout.
      function: takes a section and returns any number of batched results.
      before: the number of earlier steps that each step needs (the first steps have fewer).
      after: the number of later steps that each step needs (the last steps have fewer). A section
        has results for its last `after` steps if `is_end` is true.
      caller: the public function, for messages.
      expansion: the size of a result, in steps.

    Returns:
      The results, in the layout of the steps. Nested results have an unknown cardinality.
    """
    if not _layouts.is_nested(steps):
        batch = _layouts.as_batch(steps, caller)
        static = _layouts.static_num_steps(batch)
        num_steps = _layouts.num_steps(batch) if static is None else static
        return function(Section(batch, start=0, stop=num_steps, offset=0, is_end=True))

    spec = steps.element_spec
    chunks = _layouts.batch_elements(steps, _chunk_size(spec, expansion))
    empty = _layouts.no_steps(spec)
    is_static = _layouts.is_static(spec)

    @_layouts.in_graph
    def advance(state: Any, element: Any) -> tuple[Any, Any]:
        leftover, start, offset = state
        chunk, is_end = element
        section_steps = _join(leftover, chunk, is_static)
        num_steps = _layouts.num_steps(section_steps)
        stop = tf.where(is_end, num_steps, tf.maximum(num_steps - after, start))
        results = function(Section(section_steps, start, stop, offset, is_end))
        carry_start = tf.maximum(stop - before, 0)
        next_carried = tf.nest.map_structure(lambda leaf: leaf[carry_start:], section_steps)
        return (next_carried, stop - carry_start, offset + carry_start), results

    zero = tf.constant(0, tf.int64)
    sections = _layouts.with_end(chunks, empty)
    return _layouts.unbatch(sections.scan((empty, zero, zero), advance))


def _chunk_size(spec: Any, expansion: int) -> int:
    if not _layouts.is_static(spec):
        return _SECTION_SIZE_OF_UNKNOWN_STEPS
    size = max(1, shape_ops.size_from_spec(spec)) * max(1, expansion)
    return max(1, _SECTION_SIZE_IN_BYTES // size)


def _join(first: Any, second: Any, is_static: bool) -> Any:
    """Concatenates batches; an empty batch fits steps of any shape."""

    def concat() -> Any:
        return tf.nest.map_structure(lambda *leaves: tf.concat(leaves, 0), first, second)

    if is_static:
        return concat()
    return tf.cond(
        tf.equal(_layouts.num_steps(first), 0),
        lambda: second,
        lambda: tf.cond(tf.equal(_layouts.num_steps(second), 0), lambda: first, concat),
    )
