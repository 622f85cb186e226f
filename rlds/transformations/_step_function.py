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
    """A function of one step, with a cached trace.

    The function may use Python control flow on the values of the step and may modify the step.

    Args:
      function: takes a step, or its members if a step is a tuple (as in `Dataset.map`).
      step_spec: the spec of one step.
      vectorize: False to call the function step by step, without vectorized operations.

    Attributes:
      output_spec: the spec of the result for one step.
      is_vectorized: whether a batch is one call of vectorized operations.
    """

    def __init__(
        self, function: Callable[..., Any], step_spec: Any, *, vectorize: bool = True
    ) -> None:
        def run(step: Any) -> Any:
            copy = tree.map_structure(lambda leaf: leaf, step)
            result = function(*copy) if type(copy) is tuple else function(copy)
            if isinstance(result, list) and all(map(tf.is_tensor, result)):
                result = tuple(result)  # `Dataset.map` also converts lists to tuples.
            return _layouts.as_tensors(result)

        self._traced_apply: Any = None
        # A tf.function supports Python control flow, unlike vectorized_map.
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

    def apply(self, batch: Any) -> Any:
        """Calls the function on each step of the batch and stacks the results."""
        if tf.executing_eagerly():
            if self._traced_apply is None:
                # A concrete function, because TensorFlow warns of functions with many traces.
                spec = tf.nest.map_structure(_with_any_length, batch)
                self._traced_apply = tf.function(self._apply).get_concrete_function(spec)
            return self._traced_apply(batch)
        return self._apply(batch)

    def _apply(self, batch: Any) -> Any:
        if self.is_vectorized:
            # `Dataset.map` instantiates a function for each episode; a call of another function
            # takes longer than the same operations inline.
            function = self._inline if self._is_plain else self._traced
            if self._is_elementwise:
                return function(batch)

            def apply_at(index: tf.Tensor) -> Any:
                return function(tf.nest.map_structure(lambda leaf: tf.gather(leaf, index), batch))

            # Maps indices, because a map of the batch would add four operations for each field to
            # check that all lengths are equal.
            return tf.vectorized_map(apply_at, tf.range(_layouts.num_steps(batch)))
        return tf.map_fn(self._traced, batch, fn_output_signature=self.output_spec)

    def _inline(self, step: Any) -> Any:
        """Copies the operations of the function into the graph of the caller."""
        graph = self._concrete.graph
        leaves = dict(zip([leaf.name for leaf in graph.inputs], tf.nest.flatten(step)))
        names = [leaf.name for leaf in graph.outputs]
        results = tf.graph_util.import_graph_def(graph.as_graph_def(), leaves, names, name="")
        return tf.nest.pack_sequence_as(self._concrete.structured_outputs, results)


def _is_plain(concrete: Any) -> bool:
    """Returns True if the function has only operations on its arguments, without side effects."""
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
    """Returns True if the function gives the same result for a single step and a batch of steps.

    This holds if the values of the step pass through elementwise operations only, without
    broadcasting to more axes, which would be confused with the axis of the steps.
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
    """Returns True if `tf.vectorized_map` is correct for the function and any number of steps.

    `tf.vectorized_map` stacks the intermediate values of all steps, so their shapes must not depend
    on the data (as with `tf.boolean_mask`). For a single step, a `tf.squeeze` of all axes would
    remove the axis of the steps. Branches of a condition may have these calls, so called functions
    are searched too.
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
# than the traced function itself. So the functions of recent calls are cached.
_MAX_CACHED_FUNCTIONS: Final = 16
_cache: collections.OrderedDict[Hashable, StepFunction] = collections.OrderedDict()


def step_function(
    function: Callable[..., Any], step_spec: Any, *, vectorize: bool = True
) -> StepFunction:
    """Returns a new `StepFunction`, or outside of graphs an equivalent one from the cache.

    A cache by the identity of the function, as in `tf.function`, would be simpler. However, a loop
    may create a new lambda for each call, so that every call would trace: `map_steps` of an episode
    of 200 steps takes 50 ms of processor time instead of 1.3 ms. A function with changed globals or
    closure would also continue with the old values.
    """
    if not tf.executing_eagerly():
        return StepFunction(function, step_spec, vectorize=vectorize)
    leaves = tuple(tf.nest.flatten(step_spec))
    try:
        structure = repr(tf.nest.map_structure(lambda _: None, step_spec))
        key = (_content_key(function, ()), structure, leaves, vectorize)
    except _UncacheableError:
        return StepFunction(function, step_spec, vectorize=vectorize)
    cached = _cache.pop(key, None) or StepFunction(function, step_spec, vectorize=vectorize)
    _cache[key] = cached  # The most recent comes last.
    if len(_cache) > _MAX_CACHED_FUNCTIONS:
        _cache.popitem(last=False)
    return cached


class _UncacheableError(Exception):
    """A function depends on a value that may change unnoticed."""


# The maximum size of an array to compare by its bytes: a mean or a scale, not a dataset.
_MAX_ARRAY_SIZE_IN_BYTES: Final = 1 << 16

_PLAIN_TYPES: Final = (type(None), type(...), bool, int, str, bytes, complex, tf.DType)


def _content_key(value: Any, enclosing: tuple[Any, ...]) -> Hashable:
    """Returns a cache key: values with equal keys are interchangeable in a function.

    The key of a function has its code, and the contents of all outer values that the code reads.
    """
    if any(value is outer for outer in enclosing):
        raise _UncacheableError  # A recursive structure.
    enclosing = (*enclosing, value)
    if isinstance(value, float):
        return (float, repr(value))
    if type(value) in _PLAIN_TYPES:
        return (type(value), value)
    if isinstance(value, tf.Variable):
        raise _UncacheableError  # A variable may change before the call.
    if tf.is_tensor(value) and hasattr(value, "numpy"):
        return ("tensor", _content_key(value.numpy(), enclosing))
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject or value.nbytes > _MAX_ARRAY_SIZE_IN_BYTES:
            raise _UncacheableError
        return (type(value), value.dtype.str, value.shape, value.tobytes())
    if type(value) in (tuple, list):
        return (type(value), *(_content_key(member, enclosing) for member in value))
    if type(value) is dict:
        return (
            dict,
            *((_content_key(k, enclosing), _content_key(v, enclosing)) for k, v in value.items()),
        )
    if isinstance(value, types.ModuleType) and _is_constant(value.__name__):
        return (types.ModuleType, value.__name__)
    if isinstance(value, types.BuiltinFunctionType | type) and _is_constant(value.__module__):
        return (type(value), value.__module__, value.__qualname__)
    if isinstance(value, types.FunctionType):
        return _function_key(value, enclosing)
    raise _UncacheableError


# Modules whose names do not change while a program runs.
_CONSTANT_MODULES: Final = frozenset({"builtins", "math", "numpy", "rlds", "tensorflow", "tree"})


def _is_constant(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in _CONSTANT_MODULES


def _function_key(function: types.FunctionType, enclosing: tuple[Any, ...]) -> Hashable:
    code = function.__code__
    if _is_constant(function.__module__) and not function.__closure__:
        return (types.FunctionType, code)
    names = _find_names(code)
    if "random" in names:
        raise _UncacheableError  # Each trace draws other random numbers.
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError as error:
        raise _UncacheableError from error  # A variable is not assigned yet.
    values = {name: function.__globals__[name] for name in names if name in function.__globals__}
    outer_values = (cells, function.__defaults__, function.__kwdefaults__, values)
    return (types.FunctionType, code, _content_key(outer_values, enclosing))


def _find_names(code: types.CodeType) -> set[str]:
    """Returns the global names (and attributes) that the code and its inner functions read."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _find_names(constant)
    return names
