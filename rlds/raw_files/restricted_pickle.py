"""Reads pickles of plain data. Pickles of strangers may run any code when `pickle` reads them.

A pickle is a program. Here it runs without any effect: each of its instructions only adds to a tree
of nodes, in which a name, a call, a dict or a set is no more than a note of what was asked for. So
while the program runs there is nothing that it could call, change or fill with colliding keys. The
finished tree is then checked, and built from its leaves up; a table has a function of this module
for each name that is allowed, which checks what it gets. NumPy itself would believe a pickle that
lies about the size of its data.
"""

from __future__ import annotations

import math
import operator
import pickle
import pickletools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, NoReturn

import dm_env
import numpy as np
from dm_env import specs

from envlogger.step_data import StepData

__all__ = ["Record", "RestrictedPickleError", "loads"]

_MAX_DEPTH = 100
# What a walk through everything may meet, where what is shared counts at each of its places:
# values, and bytes in them. Each is a multiple of the size of the pickle, and a constant for frames
# and specs that all steps of a small pickle share.
_FREE_VALUES, _VALUES_PER_BYTE = 1 << 18, 4
_FREE_BYTES, _BYTES_PER_BYTE = 1 << 30, 16
# Both are counted in one number, as this is done for every value.
_VALUE = 1 << 64
# The hashes of strings and bytes are random. Those of numbers and tuples are not, and keys with
# equal hashes take quadratic time; those of honest pickles are equal by chance.
_MAX_EQUAL_HASHES = 16
# What a spec may describe, in values, even if the pickle is smaller.
_FREE_SPEC_SIZE = 1 << 20


class RestrictedPickleError(pickle.UnpicklingError):
    """A pickle holds what is not allowed, or is damaged."""


class Record(NamedTuple):
    """What a pickle says of an object that is not made.

    Attributes:
      name: Its class, with the module.
      arguments: What it would be made from.
      state: What it would be given then, mostly its attributes; None if nothing.
    """

    name: str
    arguments: tuple[Any, ...]
    state: Any


def loads(data: bytes, *, records: Collection[str] = ()) -> Any:
    """Returns what a pickle holds, if that is plain data.

    Allowed are numbers, strings, bytes, dicts, lists, tuples and sets; NumPy arrays, scalars and
    dtypes of numbers, strings and allowed objects, from NumPy 1 or 2; specs and timesteps of
    dm_env; the steps of EnvLogger and of RLDS Creator.

    The pickle has no effect but its result, and time and memory are bounded by its size: arrays are
    as large as their data in it, keys that all have the same hash are refused, and so is an object
    that refers to others so often that a walk through it would not end.

    Args:
      data: The bytes of the pickle.
      records: Classes, with their modules, whose objects become a `Record` each.

    Raises:
      RestrictedPickleError: The pickle names something else; says what. It is nested too deeply, an
        object contains itself, or the result would be too large. Or the pickle is damaged.

    >>> loads(pickle.dumps({"x": np.arange(3)}))
    {'x': array([0, 1, 2])}
    >>> loads(pickle.dumps(print))
    Traceback (most recent call last):
      ...
    rlds.raw_files.restricted_pickle.RestrictedPickleError: the pickle names builtins.print, \
which is no plain data; it may come from somebody who means harm
    """
    try:
        # Subnormals and NaN of damaged data are no reason for warnings.
        with np.errstate(all="ignore"):
            return _Builder(len(data)).build(_Program(records).run(data))
    except (RestrictedPickleError, MemoryError):
        raise
    except Exception as error:  # Damage shows itself in any way.
        raise RestrictedPickleError(
            f"the pickle is damaged: {type(error).__name__}: {_short(error)}"
        ) from error


def _refuse(what: str) -> NoReturn:
    raise RestrictedPickleError(what)


def _short(value: Any) -> str:
    """Returns some words for what a pickle holds; its `repr` may be of any length."""
    if isinstance(value, Exception):
        return str(value)[:200]
    if isinstance(value, str | bytes):
        return repr(value[:100])
    if type(value) is int and abs(value) < 1 << 64:
        return str(value)
    if isinstance(value, tuple) and all(type(item) is int for item in value[:9]):
        return str(value) if len(value) <= 8 and all(map(_is_size, map(abs, value))) else "tuple"
    return type(value).__name__.strip("_")


# --- The nodes of the tree. Lists and tuples stand for themselves, as do numbers and strings.


class _Name:
    """Something that the pickle names.

    Args:
      make: Makes a value from the arguments of a call.
      make_of_state: Makes it from the arguments and from the state that it is given later.
      stands_for: The type that is named.
      takes_names: Whether names are among the arguments. All others would be given out with them.
      is_spec: Whether it is a spec, which mostly begin with a shape.
    """

    __slots__ = ("is_spec", "make", "make_of_state", "stands_for", "takes_names")

    def __init__(
        self,
        make: Callable[..., Any],
        make_of_state: Callable[..., Any] | None = None,
        stands_for: type | None = None,
        takes_names: bool = False,
        is_spec: bool = False,
    ) -> None:
        self.make, self.make_of_state, self.stands_for = make, make_of_state, stands_for
        self.takes_names, self.is_spec = takes_names, is_spec


class _Call:
    """A call of what is named, and the state that the result is given."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: _Name, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments, self.state = name, arguments, _NO_STATE


class _Pairs:
    """A dict, as its keys and values in turn."""

    __slots__ = ("items",)

    def __init__(self, items: list[Any] | None = None) -> None:
        self.items = items or []


class _Set:
    """A set, or a frozen one, as its elements."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: type, items: list[Any]) -> None:
        self.kind, self.items = kind, items


_NO_STATE = object()

# --- The program.

_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": _Pairs,
    "EMPTY_SET": lambda: _Set(set, []),
}
_PUSHED = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
_PUSHED |= {"BINBYTES", "BINBYTES8", "SHORT_BINBYTES", "UNICODE", "BINUNICODE", "BINUNICODE8"}
_PUSHED |= {"SHORT_BINUNICODE", "STRING"}
_OF_MARK: dict[str, Callable[[list[Any]], Any]] = {
    "LIST": lambda items: items,
    "TUPLE": tuple,
    "DICT": lambda items: _Pairs(_even(items)),
    "FROZENSET": lambda items: _Set(frozenset, items),
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_EXTENDING = {"APPENDS": list, "ADDITEMS": _Set, "SETITEMS": _Pairs}


def _even(items: list[Any]) -> list[Any]:
    if len(items) % 2:
        _refuse("the pickle is damaged: a key without a value")
    return items


class _Program:
    """Runs the instructions of a pickle.

    Args:
      records: See `loads`.
    """

    def __init__(self, records: Collection[str] = ()) -> None:
        self._records = records
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []  # The stacks below the marks.
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """Returns the tree that the pickle describes."""
        push = self._push
        opcode: Any
        argument: Any
        for number, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            name: str = opcode.name
            if name in _PUSHED:
                push(argument)
            elif name in _CONSTANTS:
                push(_CONSTANTS[name]())
            elif name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
                index = len(self._memo) if argument is None else argument
                if index > number:  # Python would reserve memory for all before it.
                    _refuse(f"byte {position}: there are fewer than {index} objects before")
                self._memo[index] = self._stack[-1]
            elif name in ("GET", "BINGET", "LONG_BINGET"):
                push(self._memo[argument])
            elif name in _OF_MARK:
                self._replace_mark(_OF_MARK[name])
            elif name in _TUPLES:
                items = [self._stack.pop() for _ in range(_TUPLES[name])]
                push(tuple(reversed(items)))
            elif name in _EXTENDING:
                items = self._pop_mark()
                self._extend(_EXTENDING[name], items)
            elif name != "STOP":
                instruction = getattr(self, f"_do_{name.lower()}", None)
                if instruction is None:  # Objects outside the pickle, numbers of a registry, ...
                    _refuse(f"byte {position}: the opcode {name} is not used for plain data")
                instruction(argument)
        return self._stack.pop()  # STOP is the last one always.

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._outer.pop()
        return items

    def _replace_mark(self, make: Callable[[list[Any]], Any]) -> None:
        items = self._pop_mark()
        self._push(make(items))

    def _extend(self, kind: Any, items: list[Any]) -> None:
        target: Any = self._stack[-1]
        if type(target) is not kind or (kind is _Set and target.kind is frozenset):
            _refuse(f"the pickle changes an object of the type {_short(target)}")
        if kind is list:
            target.extend(items)
        else:
            target.items.extend(_even(items) if kind is _Pairs else items)

    def _do_proto(self, version: int) -> None:
        if version > pickle.HIGHEST_PROTOCOL:
            _refuse(f"the pickle is damaged: it has the protocol {version}")

    def _do_frame(self, size: int) -> None:
        """Frames are for readers of streams."""

    def _do_mark(self, _: None) -> None:
        self._outer.append(self._stack)
        self._stack = []

    def _do_pop(self, _: None) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _do_pop_mark(self, _: None) -> None:
        self._pop_mark()

    def _do_dup(self, _: None) -> None:
        self._push(self._stack[-1])

    def _do_append(self, _: None) -> None:
        self._extend(list, [self._stack.pop()])

    def _do_setitem(self, _: None) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._extend(_Pairs, [key, value])

    def _do_binstring(self, text: str) -> None:
        self._push(str(text.encode("latin1"), "ascii"))  # As Python does.

    _do_short_binstring = _do_binstring

    def _do_bytearray8(self, data: bytearray) -> None:
        self._push(bytearray(data))

    def _do_global(self, names: str) -> None:
        self._push_name(*names.split(" ", 1))

    def _do_stack_global(self, _: None) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if type(name) is not str or type(module) is not str:
            _refuse("the pickle is damaged: a name that is no string")
        self._push_name(module, name)

    def _push_name(self, module: str, name: str) -> None:
        found = _ALLOWED.get((_MODULES.get(module, module), name))
        if f"{module}.{name}" in self._records:
            found = _record(f"{module}.{name}")
        if found is None:
            _refuse(
                f"the pickle names {module:.100}.{name:.100}, which is no plain data; it may come "
                "from somebody who means harm"
            )
        self._push(found)

    def _do_reduce(self, _: None) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        if type(name) is not _Name or type(arguments) is not tuple:
            _refuse("the pickle calls what is no function")
        self._push(_call(name, arguments))

    _do_newobj = _do_reduce

    def _do_newobj_ex(self, _: None) -> None:
        keywords = self._stack.pop()
        if type(keywords) is not _Pairs or keywords.items:
            _refuse("the pickle names arguments, which is not used for plain data")
        self._do_reduce(None)

    def _do_build(self, _: None) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if type(target) is not _Call or target.state is not _NO_STATE:
            _refuse(f"the pickle changes an object of the type {_short(target)}")
        if target.name.make_of_state is None:
            _refuse("the pickle changes what it cannot have made")
        target.state = state


def _call(name: _Name, arguments: tuple[Any, ...]) -> Any:
    """What a call stands for: some are how old protocols write what others have an opcode for."""
    if name is _ORDERED_DICT and not arguments:
        return _Pairs()
    if name is _SET or name is _FROZENSET:
        if len(arguments) > 1 or any(type(items) is not list for items in arguments):
            _refuse("the pickle makes a set of something else than a list")
        return _Set(name.stands_for or set, *arguments or [[]])
    return _Call(name, arguments)


# --- What the tree stands for.

_LEAVES = frozenset({type(None), bool, int, float, str, bytes, bytearray})
_SIZED = frozenset({str, bytes, bytearray})


class _Builder:
    """Builds what a tree stands for, each node once.

    Args:
      size: The size of the pickle, which bounds that of the result.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._most_values = _FREE_VALUES + _VALUES_PER_BYTE * size
        self._most_bytes = _FREE_BYTES + _BYTES_PER_BYTE * size
        self._hashed = 0
        self._built: dict[int, tuple[Any, int]] = {}
        self._begun: set[int] = set()

    def build(self, node: Any) -> Any:
        """Returns the value of a node."""
        return self._build(node)[0]

    def _build(self, node: Any) -> tuple[Any, int]:
        """Returns the value of a node, and its weight: what a walk through it meets."""
        kind = type(node)
        if kind in _LEAVES:
            size = len(node) if kind in _SIZED else node.bit_length() >> 3 if kind is int else 0
            return node, _VALUE + size
        if kind is _Name:
            _refuse("the pickle holds a function or a class")
        key = id(node)
        if key not in self._built:
            if key in self._begun:
                _refuse("an object contains itself")
            if len(self._begun) == _MAX_DEPTH:
                _refuse(f"objects in objects, more than {_MAX_DEPTH} deep")
            self._begun.add(key)
            self._built[key] = self._build_call(node) if kind is _Call else self._build_items(node)
            self._begun.remove(key)
        return self._built[key]

    def _build_items(self, node: Any) -> tuple[Any, int]:
        built = list(map(self._build, node if isinstance(node, list | tuple) else node.items))
        values = [value for value, _ in built]
        weight = self._sum([weight for _, weight in built])
        if isinstance(node, list):
            return values, weight
        if isinstance(node, tuple):
            return tuple(values), weight
        if isinstance(node, _Set):
            self._check_hashes(values, weight)
            return node.kind(values), weight
        keys = values[::2]
        self._check_hashes(keys, self._sum([weight for _, weight in built[::2]]))
        return dict(zip(keys, values[1::2])), weight

    def _build_call(self, node: _Call) -> tuple[Any, int]:
        takes_names = node.name.takes_names
        built = [
            (argument, _VALUE) if takes_names and type(argument) is _Name else self._build(argument)
            for argument in node.arguments
        ]
        make = node.name.make
        if node.state is not _NO_STATE and node.name.make_of_state is not None:
            built.append(self._build(node.state))
            make = node.name.make_of_state
        values: list[Any] = [value for value, _ in built]
        if node.name.is_spec and values and _is_shape(values[0]):
            self._check_spec_size(values[0])
        value = make(*values)
        if isinstance(value, np.dtype) and value.itemsize > self._size:
            _refuse(f"the dtype {value} is larger than the pickle")
        return value, self._sum([weight for _, weight in built])

    def _check_spec_size(self, shape: tuple[int, ...]) -> None:
        """What has a spec is in the pickle, with a byte for each value at least."""
        most = max(self._size, _FREE_SPEC_SIZE)
        if math.prod(shape) > most:
            _refuse(f"a spec of shape {shape}, expected {most} values at most")

    def _sum(self, weights: list[int]) -> int:
        weight = _VALUE + sum(weights)
        num_values, num_bytes = weight >> 64, weight & (_VALUE - 1)
        if num_values > self._most_values or num_bytes > self._most_bytes:
            _refuse(
                "what is in it once is referred to so often that it would be "
                f"{num_values:,} values of {num_bytes:,} bytes; a pickle of {self._size:,} bytes "
                f"is trusted with {self._most_values:,} of {self._most_bytes:,}"
            )
        return weight

    def _check_hashes(self, keys: list[Any], weight: int) -> None:
        """Checks what is hashed; Python does not remember the hash of a tuple."""
        self._hashed = self._sum([self._hashed, weight])
        hashes = sorted(hash(key) for key in keys if type(key) not in _SIZED)
        if any(map(operator.eq, hashes, hashes[_MAX_EQUAL_HASHES:])):
            _refuse(f"more than {_MAX_EQUAL_HASHES} keys of a dict or a set have the same hash")


# --- What a pickle may call.


def _dtype(name: Any, *unused: Any) -> np.dtype[Any]:
    del unused
    if not isinstance(name, str) or not re.fullmatch(r"[biufc]\d{1,2}|[SU]\d{1,9}|O8?", name):
        _refuse(f"the dtype {_short(name)} is not allowed")
    return np.dtype(name)


def _dtype_of_state(name: Any, *more: Any) -> np.dtype[Any]:
    """A dtype is given its byte order later."""
    dtype, state = _dtype(name), more[-1]
    _, order, subarray, names, fields, *_ = state
    if (subarray, names, fields) != (None, None, None):
        _refuse(f"dtypes with fields are not allowed: {_short(state)}")
    if order not in ("<", ">"):
        return dtype
    dtype = dtype.newbyteorder(order)
    return dtype.newbyteorder("=") if dtype.isnative else dtype


def _array(kind: Any, *unused: Any) -> np.ndarray:
    """An array is empty first."""
    del unused
    if kind is not _NDARRAY:
        _refuse("the pickle makes an array of another class")
    return np.zeros(0, np.uint8)


def _array_of_state(kind: Any, *more: Any) -> np.ndarray:
    _array(kind)
    _, shape, dtype, is_fortran, data = more[-1]
    return _make_array(data, dtype, shape, "F" if is_fortran else "C")


def _make_array(data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> np.ndarray:
    if not isinstance(dtype, np.dtype) or order not in ("C", "F", "K"):
        _refuse("the pickle of an array is damaged")
    if not _is_shape(shape):
        _refuse(f"{_short(shape)} is not the shape of an array")
    is_fortran = order == "F" and not dtype.hasobject  # NumPy lists objects in one order always.
    array = _make_flat(data, dtype, shape).reshape(shape, order="F" if is_fortran else "C")
    if order == "K":  # How NumPy 2.3 writes what is in neither order.
        array = array.transpose(None if axes is None else tuple(map(operator.index, axes)))
    return array


def _make_flat(data: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    size = math.prod(shape)
    if dtype.hasobject:
        if not isinstance(data, list) or len(data) != size:
            _refuse(f"an array of {size} objects comes with other data")
        return np.fromiter(data, object, size)
    is_fitting = isinstance(data, bytes | bytearray) and len(data) == size * dtype.itemsize
    if not is_fitting or size > max(len(data), 1):  # Empty strings take no bytes.
        _refuse(f"an array of {dtype} of shape {_short(shape)} comes with other data")
    array = np.ndarray((size,), dtype, data).copy()
    if dtype.kind == "b":  # NumPy counts on 0 and 1.
        return np.not_equal(array.view(np.uint8), 0)
    if dtype.kind == "U":
        characters = np.frombuffer(data, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if (characters > 0x10FFFF).any():
            _refuse(f"an array of {dtype} comes with what are no characters")
    return array


def _scalar(dtype: Any, data: Any) -> Any:
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        _refuse("the pickle of a scalar is damaged")
    return _make_array(data, dtype, (1,), "C")[0]


def _spec(cls: type[specs.Array], *kinds: str) -> _Name:
    def make(*arguments: Any) -> specs.Array:
        values = [
            argument.stands_for if type(argument) is _Name else argument for argument in arguments
        ]
        for kind, value in zip(kinds, values, strict=True):
            if not _IS_FIT[kind](value):
                _refuse(f"the {kind} of a spec {cls.__name__} is {_short(value)}")
        return cls(*values)

    return _Name(make, takes_names="type of strings" in kinds, is_spec=True)


def _record(name: str) -> _Name:
    return _Name(
        lambda *arguments: Record(name, arguments, None),
        lambda *more: Record(name, more[:-1], more[-1]),
    )


def _is_shape(value: Any) -> bool:
    return type(value) is tuple and len(value) <= 64 and all(map(_is_size, value))


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


_IS_FIT: dict[str, Callable[[Any], bool]] = {
    "shape": _is_shape,
    "dtype": lambda value: isinstance(value, np.dtype),
    "bound": lambda value: isinstance(value, np.ndarray) and value.dtype.kind in "biuf",
    "number of values": lambda value: isinstance(value, int | np.integer),
    "type of strings": lambda value: value is str or value is bytes,
    "name": lambda value: isinstance(value, str | None),
}


def _bytes(*arguments: Any) -> bytes:
    if arguments:  # A number stands for as many zeros.
        _refuse("the pickle makes bytes of something else")
    return b""


def _bytearray(*arguments: Any) -> bytearray:
    if arguments and not isinstance(arguments[0], bytes | str):
        _refuse("the pickle makes a bytearray of something else")
    if len(arguments) > 1 and arguments[1] != "latin-1":
        _refuse(f"the pickle encodes something as {_short(arguments[1])}")
    return bytearray(*arguments)


def _encode(text: Any, encoding: Any) -> bytes:
    """How bytes are written for Python 2."""
    if type(text) is not str or encoding != "latin1":
        _refuse(f"the pickle encodes something as {_short(encoding)}")
    return text.encode("latin1")


def _complex(*parts: Any) -> complex:
    if not all(isinstance(part, int | float) for part in parts):
        _refuse("the pickle makes a complex number of something else")
    return complex(*parts)


def _reconstructor(cls: Any, base: Any, state: Any) -> Any:
    """How tuples with names are written for Python 2."""
    if cls not in (_TIME_STEP, _STEP_DATA) or base is not _TUPLE or type(state) is not tuple:
        _refuse("the pickle makes an instance in a way that is not used for plain data")
    return cls.make(*state)


def _step_type_of_name(step_type: Any, name: Any) -> dm_env.StepType:
    """How the first releases of Python 3.11 write the members of an enumeration."""
    if step_type is not _STEP_TYPE or type(name) is not str or name not in _STEP_TYPES:
        _refuse("the pickle gets an attribute of something else than a type of steps")
    return _STEP_TYPES[name]


def _only_named(*unused: Any) -> NoReturn:
    _refuse("the pickle calls what is only named for plain data")


_STEP_TYPES: Mapping[str, dm_env.StepType] = dict(dm_env.StepType.__members__)
_STEP_TYPE = _Name(lambda number: dm_env.StepType(operator.index(number)))
_TIME_STEP = _Name(lambda *fields: dm_env.TimeStep._make(fields))
_STEP_DATA = _Name(lambda *fields: StepData._make(fields))
_NDARRAY, _TUPLE = _Name(_only_named), _Name(_only_named)
# These are not called: see _call.
_ORDERED_DICT = _Name(_only_named)
_SET, _FROZENSET = _Name(_only_named, stands_for=set), _Name(_only_named, stands_for=frozenset)
# The names that Python 2 knows.
_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_ALLOWED: dict[tuple[str, str], _Name] = {
    ("builtins", "bytearray"): _Name(_bytearray),
    ("builtins", "bytes"): _Name(_bytes, stands_for=bytes),
    ("builtins", "complex"): _Name(_complex),
    ("builtins", "frozenset"): _FROZENSET,
    ("builtins", "getattr"): _Name(_step_type_of_name, takes_names=True),
    ("builtins", "set"): _SET,
    ("builtins", "str"): _Name(_only_named, stands_for=str),
    ("builtins", "tuple"): _TUPLE,
    ("builtins", "unicode"): _Name(_only_named, stands_for=str),
    ("_codecs", "encode"): _Name(_encode),
    ("collections", "OrderedDict"): _ORDERED_DICT,
    ("copyreg", "_reconstructor"): _Name(_reconstructor, takes_names=True),
    ("dm_env._environment", "StepType"): _STEP_TYPE,
    ("dm_env._environment", "TimeStep"): _TIME_STEP,
    ("envlogger.step_data", "StepData"): _STEP_DATA,
    ("numpy", "dtype"): _Name(_dtype, _dtype_of_state),
    ("numpy", "ndarray"): _NDARRAY,
    ("rlds_creator.episode_storage", "StepData"): _STEP_DATA,
    ("dm_env.specs", "Array"): _spec(specs.Array, "shape", "dtype", "name"),
    ("dm_env.specs", "BoundedArray"): _spec(
        specs.BoundedArray, "shape", "dtype", "bound", "bound", "name"
    ),
    ("dm_env.specs", "DiscreteArray"): _spec(
        specs.DiscreteArray, "number of values", "dtype", "name"
    ),
    ("dm_env.specs", "StringArray"): _spec(specs.StringArray, "shape", "type of strings", "name"),
}
for _core in ("numpy.core", "numpy._core"):  # NumPy 1 and NumPy 2.
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _Name(
        _array, _array_of_state, takes_names=True
    )
    _ALLOWED[f"{_core}.multiarray", "scalar"] = _Name(_scalar)
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _Name(_make_array)
