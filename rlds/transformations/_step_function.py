"""Runs a user's function of one step over a whole batch of steps."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tree

from rlds.transformations import _layouts


class StepFunction:
    """A function of one step, traced once.

    The function may use Python control flow on the values of the step and may edit the step in
    place.

    Args:
      function: takes a step, or its members if a step is a tuple (as in `Dataset.map`).
      step_spec: the spec of one step.
      vectorize: False to call the function step by step even where one call of vectorized
        operations for the whole batch would do.

    Attributes:
      output_spec: the spec of what the function returns for one step.
      is_vectorized: whether a batch is one call of vectorized operations.
    """

    def __init__(
        self, function: Callable[..., Any], step_spec: Any, *, vectorize: bool = True
    ) -> None:
        def run(step: Any) -> Any:
            copy = tree.map_structure(lambda leaf: leaf, step)
            result = function(*copy) if type(copy) is tuple else function(copy)
            if isinstance(result, list) and all(map(tf.is_tensor, result)):
                result = tuple(result)  # as Dataset.map does
            return _layouts.as_tensors(result)

        # A tf.function, because it understands Python control flow, which vectorized_map does not.
        self._traced = tf.function(run)
        concrete = self._traced.get_concrete_function(step_spec)
        self.output_spec = tf.nest.map_structure(
            tf.type_spec_from_value, concrete.structured_outputs
        )
        self.is_vectorized = (
            vectorize and _layouts.is_static(self.output_spec) and _has_static_shapes(concrete)
        )

    def over(self, batch: Any) -> Any:
        """Calls the function on each step of the batch and stacks the results."""
        if self.is_vectorized:
            return tf.vectorized_map(self._traced, batch)
        return tf.map_fn(self._traced, batch, fn_output_signature=self.output_spec)


def _has_static_shapes(concrete: Any) -> bool:
    """Whether no value in the function has a shape that depends on the data.

    Vectorized operations would have to stack such values, which then differ in shape from step to
    step (`tf.boolean_mask` is the usual case). They may hide inside the branches of a condition,
    so the functions called by the function are searched too.
    """
    graph = concrete.graph.as_graph_def(add_shapes=True)
    nodes = [*graph.node, *(node for called in graph.library.function for node in called.node_def)]
    shapes = (shape for node in nodes for shape in node.attr["_output_shapes"].list.shape)
    return not any(shape.unknown_rank or any(dim.size < 0 for dim in shape.dim) for shape in shapes)
