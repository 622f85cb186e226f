"""Runs a user's function of one step over a whole batch of steps."""

import collections
import types
from collections.abc import Callable, Hashable
from typing import Any, Final

import numpy as np
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

        self._traced_over: Any = None
        # A tf.function, because it understands Python control flow, which vectorized_map does not.
        self._traced = tf.function(run)
        concrete = self._traced.get_concrete_function(step_spec)
        self._concrete = concrete
        self._is_plain = _is_plain(concrete)
        self.output_spec = tf.nest.map_structure(
            tf.type_spec_from_value, concrete.structured_outputs
        )
        self.is_vectorized = (
            vectorize and _layouts.is_static(self.output_spec) and _vectorizes(concrete)
        )
        self._is_elementwise = self.is_vectorized and self._is_plain and _is_elementwise(concrete)

    def __call__(self, step: Any) -> Any:
        """Calls the function on one step."""
        return self._traced(step)

    def over(self, batch: Any) -> Any:
        """Calls the function on each step of the batch and stacks the results."""
        if tf.executing_eagerly():
            if self._traced_over is None:
                # By its concrete function, because TensorFlow warns of functions that are traced
                # for each call.
                spec = tf.nest.map_structure(_with_any_length, batch)
                self._traced_over = tf.function(self._over).get_concrete_function(spec)
            return self._traced_over(batch)
        return self._over(batch)

    def _over(self, batch: Any) -> Any:
        if self.is_vectorized:
            # `Dataset.map` instantiates a function for each episode; a call of another function
            # takes longer than the same operations inline.
            function = self._copied if self._is_plain else self._traced
            if self._is_elementwise:
                return function(batch)

            def result_of(index: tf.Tensor) -> Any:
                return function(tf.nest.map_structure(lambda leaf: tf.gather(leaf, index), batch))

            # Maps indices instead of the batch, which would need four more operations for each
            # field to check that all lengths are equal.
            return tf.vectorized_map(result_of, tf.range(_layouts.num_steps(batch)))
        return tf.map_fn(self._traced, batch, fn_output_signature=self.output_spec)

    def _copied(self, step: Any) -> Any:
        """A copy of the operations of the function in the graph of the caller."""
        graph = self._concrete.graph
        leaves = dict(zip([leaf.name for leaf in graph.inputs], tf.nest.flatten(step)))
        names = [leaf.name for leaf in graph.outputs]
        results = tf.graph_util.import_graph_def(graph.as_graph_def(), leaves, names, name="")
        return tf.nest.pack_sequence_as(self._concrete.structured_outputs, results)


def _is_plain(concrete: Any) -> bool:
    """Whether the function has only operations on its arguments, without side effects."""
    graph = concrete.graph
    return (
        not concrete.captured_inputs
        and not graph.as_graph_def().library.function
        and not any(op.op_def.is_stateful for op in graph.get_operations())
    )


_ELEMENTWISE: Final = frozenset(
    """
    Abs Add AddV2 Cast Ceil Cos DivNoNan Equal Exp Expm1 Floor FloorDiv FloorMod Greater
    GreaterEqual Identity IsFinite IsInf IsNan Less LessEqual Log Log1p LogicalAnd LogicalNot
    LogicalOr Maximum Minimum Mul Neg NotEqual Pow RealDiv Reciprocal Relu Round Rsqrt SelectV2
    Sigmoid Sign Sin Sqrt Square SquaredDifference StopGradient Sub Tanh
    """.split()  # noqa: SIM905 (a list has a line for each)
)


def _is_elementwise(concrete: Any) -> bool:
    """Whether the function gives the same result for a step alone and for a step in a batch.

    This holds if the values of the step pass through elementwise operations only, and none is
    broadcast to more axes, one of which would be confused with the axis of the steps.
    """
    varying = {tensor.ref() for tensor in concrete.graph.inputs}
    for op in concrete.graph.get_operations():
        operands = [tensor for tensor in op.inputs if tensor.ref() in varying]
        if operands:
            ranks = {tensor.shape.rank for tensor in (*operands, *op.outputs)}
            if op.type not in _ELEMENTWISE or len(ranks) > 1:
                return False
            varying.update(tensor.ref() for tensor in op.outputs)
    return all(tensor.ref() in varying for tensor in concrete.graph.outputs)


def _vectorizes(concrete: Any) -> bool:
    """Whether `tf.vectorized_map` computes the function correctly for any number of steps.

    It stacks the intermediate values of all steps, so their shapes must not depend on the data
    (as with `tf.boolean_mask`). With a single step, it lets a `tf.squeeze` of all axes remove the
    axis of the steps. Both cases may occur in the branches of a condition, so called functions are
    searched too.
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


def _with_any_length(leaf: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype)


# Eager calls with batched steps come once per episode, and tracing takes a hundred times longer
# than the traced function itself. So the functions of the last few calls are cached.
_MAX_CACHED: Final = 16
_cache: collections.OrderedDict[Hashable, StepFunction] = collections.OrderedDict()


def step_function(
    function: Callable[..., Any], step_spec: Any, *, vectorize: bool = True
) -> StepFunction:
    """Returns a new `StepFunction`, or outside of graphs an equivalent one from the cache.

    A cache by the identity of the function, as in `tf.function`, would be simpler. But loops often
    make a lambda in each call, and then every call would trace: `map_steps` of an episode of
    200 steps takes 50 ms of processor time instead of 1.3 ms. And a function whose globals or
    closure have changed would continue with the old values.
    """
    if not tf.executing_eagerly():
        return StepFunction(function, step_spec, vectorize=vectorize)
    leaves = tuple(tf.nest.flatten(step_spec))
    try:
        structure = repr(tf.nest.map_structure(lambda _: None, step_spec))
        key = (_meaning(function, ()), structure, leaves, vectorize)
    except _CannotTellError:
        return StepFunction(function, step_spec, vectorize=vectorize)
    cached = _cache.pop(key, None) or StepFunction(function, step_spec, vectorize=vectorize)
    _cache[key] = cached  # the latest comes last
    if len(_cache) > _MAX_CACHED:
        _cache.popitem(last=False)
    return cached


class _CannotTellError(Exception):
    """A function depends on something that may change unnoticed."""


# The largest array that is compared by its bytes: a mean or a scale, not a dataset.
_MAX_ARRAY_SIZE_IN_BYTES: Final = 1 << 16

_PLAIN_TYPES: Final = (type(None), type(...), bool, int, str, bytes, complex, tf.DType)


def _meaning(value: Any, inside: tuple[Any, ...]) -> Hashable:
    """A cache key; values with equal keys give a function that reads them the same behaviour.

    For a function: its code and everything that the code reads from outside, by content.
    """
    if any(value is outer for outer in inside):
        raise _CannotTellError  # recursive
    inside = (*inside, value)
    if isinstance(value, float):
        return (float, repr(value))
    if type(value) in _PLAIN_TYPES:
        return (type(value), value)
    if isinstance(value, tf.Variable):
        raise _CannotTellError  # it is read when the function runs, and may change until then
    if tf.is_tensor(value) and hasattr(value, "numpy"):
        return ("tensor", _meaning(value.numpy(), inside))
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject or value.nbytes > _MAX_ARRAY_SIZE_IN_BYTES:
            raise _CannotTellError
        return (type(value), value.dtype.str, value.shape, value.tobytes())
    if type(value) in (tuple, list):
        return (type(value), *(_meaning(member, inside) for member in value))
    if type(value) is dict:
        return (dict, *((_meaning(k, inside), _meaning(v, inside)) for k, v in value.items()))
    if isinstance(value, types.ModuleType) and _is_known(value.__name__):
        return (types.ModuleType, value.__name__)
    if isinstance(value, types.BuiltinFunctionType | type) and _is_known(value.__module__):
        return (type(value), value.__module__, value.__qualname__)
    if isinstance(value, types.FunctionType):
        return _meaning_of_function(value, inside)
    raise _CannotTellError


# Modules whose names keep their meaning while a program runs.
_KNOWN_MODULES: Final = frozenset({"builtins", "math", "numpy", "rlds", "tensorflow", "tree"})


def _is_known(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in _KNOWN_MODULES


def _meaning_of_function(function: types.FunctionType, inside: tuple[Any, ...]) -> Hashable:
    code = function.__code__
    if _is_known(function.__module__) and not function.__closure__:
        return (types.FunctionType, code)
    names = _names_read(code)
    if "random" in names:
        raise _CannotTellError  # each trace draws other random numbers
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError as error:
        raise _CannotTellError from error  # not yet assigned
    read = {name: function.__globals__[name] for name in names if name in function.__globals__}
    outside = (cells, function.__defaults__, function.__kwdefaults__, read)
    return (types.FunctionType, code, _meaning(outside, inside))


def _names_read(code: types.CodeType) -> set[str]:
    """The global names (and attributes) that the code and the functions inside it read."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_read(constant)
    return names
