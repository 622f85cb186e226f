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
            vectorize and _layouts.is_static(self.output_spec) and _vectorizes(concrete)
        )

    def over(self, batch: Any) -> Any:
        """Calls the function on each step of the batch and stacks the results."""
        if tf.executing_eagerly():
            # By its concrete function, because TensorFlow warns of functions that are traced
            # for each call, and this one is not made to be called again.
            return tf.function(self._over).get_concrete_function(batch)(batch)
        return self._over(batch)

    def _over(self, batch: Any) -> Any:
        if self.is_vectorized:
            return tf.vectorized_map(self._traced, batch)
        return tf.map_fn(self._traced, batch, fn_output_signature=self.output_spec)


def _vectorizes(concrete: Any) -> bool:
    """Whether `tf.vectorized_map` gets the function right, for any number of steps.

    It stacks the intermediate values of all steps, so their shapes must not depend on the data
    (as with `tf.boolean_mask`). And it takes a `tf.squeeze` of all axes to mean the axis of the
    steps too, when there is one step. Either may hide inside the branches of a condition, so the
    functions called by the function are searched too.
    """
    graph = concrete.graph.as_graph_def(add_shapes=True)
    called = (node for function in graph.library.function for node in function.node_def)
    for node in (*graph.node, *called):
        for shape in node.attr["_output_shapes"].list.shape:
            if shape.unknown_rank or any(dim.size < 0 for dim in shape.dim):
                return False
        if node.op == "Squeeze" and not node.attr["squeeze_dims"].list.i:
            return False
    return True
