"""Patterns: the steps of a training example, and the conditions of its output.

The names equal `reverb.structured_writer`, so patterns for reverb work here, without reverb.
A *reference step* has the structure of a step; indexing its fields gives references:
`step["action"][-1]` is the action of the newest step, and `step["action"][-3:]` are the last three
actions, oldest first. A *pattern* is any structure of references; a *config* is a pattern with the
conditions of an output.

References, conditions and configs of reverb itself are accepted too, and recognized by their
fields.
"""

import collections
import dataclasses
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import tensorflow as tf
import tree

from rlds.transformations import _layouts

__all__ = [
    "Condition",
    "Config",
    "Pattern",
    "PatternNode",
    "ReferenceStep",
    "create_config",
    "create_reference_step",
    "infer_signature",
    "pattern_from_transform",
    "unpack_pattern",
]

Pattern: TypeAlias = Any
"""A structure with a `PatternNode` as each leaf."""

ReferenceStep: TypeAlias = Any
"""The structure of a step, where indexing a leaf gives a `PatternNode`."""

OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_INT64_RANGE = range(-(2**63), 2**63)


@dataclasses.dataclass(frozen=True)
class PatternNode:
    """A reference to one value of a field, or to a window of its values.

    Attributes:
      flat_source_index: the index of the field, in the order of `tree.flatten` of a step.
      start: first step of the window, counted back from the newest, which is -1; None for a
        single value.
      stop: the step after the window; None or 0 if the window ends with the newest step; for a
        single value, its step.
      step: distance between two steps of the window; None means 1.
      field: path of the field, such as 'observation/image'; empty if unknown.

    Raises:
      ValueError: if the reference contains no step, or future steps.
    """

    flat_source_index: int
    start: int | None
    stop: int | None
    step: int | None = None
    field: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.is_window:
            valid = self.stop is not None and self.stop < 0
        elif self.step is not None and self.step <= 0:
            valid = False
        else:
            valid = (self.stop or 0) <= 0 and len(self.positions) > 0
        if not valid:
            raise ValueError(
                f"Bad reference {self}: steps are counted back from the newest, which is -1. Take "
                "one step as in [-1] or [-2], or a window as in [-3:], [-3:-1] or [-5::2]."
            )

    def __str__(self) -> str:
        name = self.field or f"field number {self.flat_source_index}"
        if not self.is_window:
            return f"{name}[{self.stop}]"
        stride = "" if self.step is None else f":{self.step}"
        return f"{name}[{self.start}:{'' if self.stop is None else self.stop}{stride}]"

    @property
    def is_window(self) -> bool:
        """Whether the values are stacked on a new leading axis, oldest first."""
        return self.start is not None

    @property
    def positions(self) -> range:
        """The steps, oldest first, counted back from the newest, which is -1."""
        if self.start is None:
            assert self.stop is not None
            return range(self.stop, self.stop + 1)
        return range(self.start, self.stop or 0, self.step or 1)


@dataclasses.dataclass(frozen=True)
class _Reference:
    """A leaf of a reference step."""

    flat_source_index: int
    field: str

    def __getitem__(self, key: Any) -> PatternNode:
        if isinstance(key, slice):
            if key.start is None:
                raise ValueError(
                    f"Bad reference {self.field}[:{'' if key.stop is None else key.stop}]: there "
                    "are no windows from the start of an episode, whose length would vary. Pass "
                    "the first step, as in [-3:] or [-3:-1]."
                )
            start, stop, step = key.start, key.stop, key.step
        else:
            start, stop, step = None, key, None
        try:
            start, stop, step = (
                bound if bound is None else operator.index(bound) for bound in (start, stop, step)
            )
        except TypeError as error:
            raise ValueError(
                f"Bad reference {self.field}[{key!r}]: the index of a step is an int or a slice of "
                "ints. (Does the pattern expect a nested field?)"
            ) from error
        return PatternNode(self.flat_source_index, start, stop, step, self.field)


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition on the newest step for the output of a config.

    The static methods return quantities of the newest step. Comparing a quantity, or its remainder,
    with a number gives a condition. The remainder has the sign of the quantity, as in C.

    >>> Condition.step_index() >= 2
    Condition(step_index >= 2)
    >>> Condition.data({"observation": {"x": None}})["observation"]["x"] % 2 != 0
    Condition(data('observation/x') % 2 != 0)

    Attributes:
      quantity: compared value: 'step_index', 'steps_since_applied', 'is_end_episode' or 'data'.
      comparison: one of `== != < <= > >=`.
      value: the value to compare with.
      modulo: the divisor, if the remainder is compared; None otherwise.
      flat_source_index: of 'data', the index of the field.
      field: of 'data', the path of the field; empty if unknown.
      is_from_reverb: whether the condition is from reverb, which stores `x > 1` as `x >= 2`: equal
        for whole numbers only.

    Raises:
      ValueError: if a remainder is compared by `==` or `!=` with an impossible negative number.
        Comparisons with other impossible remainders, such as `% 3 == 3`, emit a warning.
    """

    quantity: str
    comparison: str
    value: int | float
    modulo: int | None = None
    flat_source_index: int = -1
    field: str = dataclasses.field(default="", compare=False)
    is_from_reverb: bool = False

    def __post_init__(self) -> None:
        if self.modulo is None:
            return
        is_data = self.quantity == "data"
        if (-self.modulo if is_data else -1) < self.value < self.modulo:
            return
        bounds = (
            f"more than -{self.modulo} and less than {self.modulo}"
            if is_data
            else f"from 0 to {self.modulo - 1}, because {self.quantity} is never negative"
        )
        holds = "always" if OPERATORS[self.comparison](0, self.value) else "never"
        message = f"'{self}' {holds} holds: the remainder is {bounds}."
        if self.value < 0 and self.comparison in ("==", "!="):
            raise ValueError(message)  # Reverb would end the process.
        warnings.warn(message, stacklevel=5)  # The warning shows the comparison.

    @staticmethod
    def step_index() -> "_Quantity":
        """Returns the index of the newest step in its episode, from 0."""
        return _Quantity("step_index")

    @staticmethod
    def steps_since_applied() -> "_Quantity":
        """Returns the number of steps since the last output of the config.

        Before the first output, the number of all steps. The end of an episode does not reset it.
        """
        return _Quantity("steps_since_applied")

    @staticmethod
    def is_end_episode() -> "Condition":
        """Returns a condition that holds at the last step of each episode."""
        return Condition("is_end_episode", "==", 1)

    @staticmethod
    def data(step_structure: Any) -> Any:
        """Returns quantities to compare in conditions: the values of fields in the newest step.

        Args:
          step_structure: the structure of a step, for instance its spec.

        Returns:
          The same structure with a quantity to compare at each leaf. The field must hold one number
          or bool per step.
        """
        names = [name for name, _ in _layouts.named_leaves(step_structure)]
        quantities = [_Quantity("data", index, name) for index, name in enumerate(names)]
        return tree.unflatten_as(step_structure, quantities)

    def __bool__(self) -> bool:
        raise TypeError(
            f"'{self}' has no truth value without steps. To combine conditions, "
            "pass a list: all of them must hold."
        )

    def __repr__(self) -> str:
        return f"Condition({self})"

    def __str__(self) -> str:
        operand = self.quantity
        if operand == "data":
            operand = f"data({self.field or self.flat_source_index!r})"
        remainder = "" if self.modulo is None else f" % {self.modulo}"
        return f"{operand}{remainder} {self.comparison} {self.value}"


@dataclasses.dataclass(frozen=True, eq=False)
class _Quantity:
    """The left side of a condition."""

    name: str
    flat_source_index: int = -1
    field: str = ""
    modulo: int | None = None

    def __mod__(self, modulo: int) -> "_Quantity":
        if self.modulo is not None:
            raise ValueError(f"A condition has one modulo; there are {self.modulo} and {modulo}.")
        if operator.index(modulo) not in _INT64_RANGE or modulo < 1:
            raise ValueError(f"The modulo of a condition must be positive, got {modulo}.")
        return dataclasses.replace(self, modulo=operator.index(modulo))

    def _compare(self, comparison: str, value: Any) -> Condition:
        try:
            value = float(value) if isinstance(value, float) else operator.index(value)
        except TypeError as error:
            raise TypeError(
                f"A condition compares with a number, got {value!r} ({type(value).__name__})."
            ) from error
        if isinstance(value, int) and value not in _INT64_RANGE:
            raise ValueError(f"A condition compares with 64-bit integers, got {value}.")
        return Condition(
            self.name, comparison, value, self.modulo, self.flat_source_index, self.field
        )

    def __eq__(self, value: Any) -> Condition:  # type: ignore[override]
        return self._compare("==", value)

    def __ne__(self, value: Any) -> Condition:  # type: ignore[override]
        return self._compare("!=", value)

    def __lt__(self, value: Any) -> Condition:
        return self._compare("<", value)

    def __le__(self, value: Any) -> Condition:
        return self._compare("<=", value)

    def __gt__(self, value: Any) -> Condition:
        return self._compare(">", value)

    def __ge__(self, value: Any) -> Condition:
        return self._compare(">=", value)


@dataclasses.dataclass(frozen=True)
class Config:
    """A pattern, and the conditions of its output.

    Attributes:
      flat: the references of the pattern, in the order of `tree.flatten`.
      pattern_structure: the structure of the pattern, with None at the leaves.
      table: a name, equal in all configs that are used together; otherwise ignored.
      conditions: the conditions of an output, which must all hold.
      priority: ignored.
    """

    flat: tuple[PatternNode, ...]
    pattern_structure: Any
    table: str
    conditions: tuple[Condition, ...] = ()
    priority: Any = None


def create_reference_step(step_structure: Any) -> ReferenceStep:
    """Returns a reference step: the structure of a step, with leaves to index.

    Args:
      step_structure: the structure of a step, for instance its spec.

    >>> step = create_reference_step({"action": None, "observation": {"x": None}})
    >>> print(step["action"][-1], step["observation"]["x"][-3:])
    action[-1] observation/x[-3:]
    """
    names = [name for name, _ in _layouts.named_leaves(step_structure)]
    references = [_Reference(index, name) for index, name in enumerate(names)]
    return tree.unflatten_as(step_structure, references)


def pattern_from_transform(
    step_structure: Any, transform: Callable[[ReferenceStep], Pattern]
) -> Pattern:
    """Calls a function with a reference step, and returns its pattern.

    Args:
      step_structure: the structure of a step, for instance its spec.
      transform: takes a reference step and returns any structure of references.
    """
    return transform(create_reference_step(step_structure))


def create_config(
    pattern: Pattern, table: str, conditions: Sequence[Condition] = (), priority: Any = None
) -> Config:
    """Creates a config from a pattern and the conditions of its output.

    Args:
      pattern: any structure of references.
      table: a name, equal in all configs that are used together.
      conditions: the conditions of an output, which must all hold.
      priority: stored, but ignored.

    Raises:
      TypeError: if a leaf of the pattern is not a reference (such as a field without an index), or
        a condition is not a `Condition` (such as a quantity without a comparison).
      ValueError: if the pattern has no references.
    """
    nodes = [_as_node(leaf, name) for name, leaf in _layouts.named_leaves(pattern)]
    if not nodes:
        raise ValueError(f"create_config: there are no references in the pattern {pattern!r}.")
    converted = (_as_condition(condition) for condition in conditions)
    return Config(
        flat=tuple(nodes),
        pattern_structure=tree.map_structure(lambda _: None, pattern),
        table=table,
        conditions=tuple(condition for condition in converted if condition is not None),
        priority=priority,
    )


def unpack_pattern(config: Config) -> Pattern:
    """Returns the pattern of a config."""
    config = as_config(config)
    return tree.unflatten_as(config.pattern_structure, config.flat)


def infer_signature(configs: Sequence[Config], step_spec: Any) -> Any:
    """Returns the spec of the outputs.

    Args:
      configs: configs that are used together.
      step_spec: the spec of a step.

    Returns:
      The structure of the patterns, with a `tf.TensorSpec` at each leaf. The first dimension is
      None if it differs between the configs.

    Raises:
      TypeError: if a referenced field is not a dense tensor.
      ValueError: if there are no configs, if they do not match the steps, or if they differ in
        structure, table, dtypes, ranks, or in dimensions other than the first.

    >>> spec = {"action": tf.TensorSpec([2], tf.float32)}
    >>> pattern = pattern_from_transform(spec, lambda step: step["action"][-5::2])
    >>> infer_signature([create_config(pattern, "table")], spec).shape.as_list()
    [3, 2]
    """
    configs = [as_config(config) for config in configs]
    if not configs:
        raise ValueError("At least one config is needed, got none.")
    if any(config.pattern_structure != configs[0].pattern_structure for config in configs):
        structures = "; ".join(str(config.pattern_structure) for config in configs)
        raise ValueError(f"All configs must have the same structure, got: {structures}.")
    tables = sorted({config.table for config in configs})
    if len(tables) > 1:
        raise ValueError(f"All configs must have the same table, got: {', '.join(tables)}.")
    names = [name for name, _ in _layouts.named_leaves(configs[0].pattern_structure)]
    flat = [
        _merge_specs(name, [_find_spec(config.flat[i], step_spec) for config in configs])
        for i, name in enumerate(names)
    ]
    return tree.unflatten_as(configs[0].pattern_structure, flat)


def source_spec(source: PatternNode | Condition, step_spec: Any) -> tf.TensorSpec:
    """Returns the spec of the field of a reference or condition; checks its name.

    Raises:
      TypeError: if the field is not a dense tensor.
      ValueError: if there is no such field, or if it has another name.
    """
    fields = dict(enumerate(_layouts.named_leaves(step_spec)))
    name, spec = fields.get(source.flat_source_index, ("", None))
    if spec is None or source.field not in ("", name):
        raise ValueError(
            f"'{source}' is for other steps, where it has the field index "
            f"{source.flat_source_index}. These steps have the fields "
            f"{[name for name, _ in fields.values()]}."
        )
    if not isinstance(spec, tf.TensorSpec):
        raise TypeError(f"'{source}': field {name!r} is not a dense tensor but {spec}.")
    return spec


def _find_spec(node: PatternNode, step_spec: Any) -> tf.TensorSpec:
    spec = source_spec(node, step_spec)
    if not node.is_window:
        return spec
    return tf.TensorSpec(tf.TensorShape([len(node.positions)]).concatenate(spec.shape), spec.dtype)


def _merge_specs(name: str, specs: Sequence[tf.TensorSpec]) -> tf.TensorSpec:
    """Returns the common spec of the outputs of all configs at one leaf."""
    dtypes = [spec.dtype for spec in specs]
    if len(set(dtypes)) > 1:
        raise ValueError(f"The configs differ in the dtype of {name!r}: {dtypes}.")
    shapes = [spec.shape for spec in specs]
    if all(shape == shapes[0] for shape in shapes):
        return tf.TensorSpec(shapes[0], dtypes[0], name)
    if any(shape.rank != shapes[0].rank or shape[1:] != shapes[0][1:] for shape in shapes):
        raise ValueError(
            f"The configs differ in the shape of {name!r}, and not only in its first dimension: "
            f"{shapes}."
        )
    return tf.TensorSpec([None, *shapes[0][1:]], dtypes[0], name)


def as_config(config: Any) -> Config:
    """Converts a config of reverb; a config of this package is returned unchanged."""
    if isinstance(config, Config):
        return config
    if not all(hasattr(config, name) for name in ("flat", "pattern_structure", "conditions")):
        raise TypeError(f"Expected a config, as from create_config, got a {type(config).__name__}.")
    pattern = tree.unflatten_as(_decode_structure(config.pattern_structure), list(config.flat))
    return create_config(pattern, config.table, config.conditions, config.priority)


def _as_node(leaf: Any, name: str) -> PatternNode:
    if isinstance(leaf, PatternNode):
        return leaf
    if not all(hasattr(leaf, field) for field in ("flat_source_index", "HasField")):
        item = f"field {leaf.field!r} without an index" if isinstance(leaf, _Reference) else leaf
        raise TypeError(
            f"create_config: a pattern consists of references such as step['action'][-1], but "
            f"{name!r} is {item}."
        )
    start, stop, step = (
        getattr(leaf, name) if leaf.HasField(name) else None for name in ("start", "stop", "step")
    )
    return PatternNode(leaf.flat_source_index, start, stop, step)


def _as_condition(condition: Any) -> Condition | None:
    """Converts a condition of reverb; returns None for a condition on the length of the buffer.

    Reverb adds conditions on the length to all configs. Here a config has no output before the
    steps of its references exist.
    """
    if isinstance(condition, Condition):
        return condition
    if isinstance(condition, _Quantity) or not hasattr(condition, "WhichOneof"):
        raise TypeError(
            "create_config: a condition is a comparison such as Condition.step_index() >= 2, "
            f"got {condition!r}."
        )
    quantity, comparison = condition.WhichOneof("left"), condition.WhichOneof("cmp")
    if quantity == "buffer_length":
        return None
    modulo = None
    if comparison == "mod_eq":
        modulo, value = condition.mod_eq.mod, condition.mod_eq.eq
    else:
        value = getattr(condition, comparison)
    if comparison == "ge":
        operation = "<" if condition.inverse else ">="
    else:
        operation = "!=" if condition.inverse else "=="
    is_data = quantity == "flat_source_index"
    return Condition(
        quantity="data" if is_data else quantity,
        comparison=operation,
        value=value,
        modulo=modulo,
        flat_source_index=condition.flat_source_index if is_data else -1,
        is_from_reverb=True,
    )


def _decode_structure(proto: Any) -> Any:
    """Decodes the structure of a pattern, which reverb stores as a `tensorflow.StructuredValue`."""
    kind = proto.WhichOneof("kind")
    if kind == "none_value":
        return None
    value = getattr(proto, kind)
    match kind:
        case "dict_value":
            return {key: _decode_structure(item) for key, item in value.fields.items()}
        case "list_value":
            return [_decode_structure(item) for item in value.values]
        case "tuple_value":
            return tuple(_decode_structure(item) for item in value.values)
        case "named_tuple_value":
            names = [pair.key for pair in value.values]
            members = [_decode_structure(pair.value) for pair in value.values]
            return collections.namedtuple(value.name, names)(*members)
    raise TypeError(f"A pattern cannot hold a {kind}.")
