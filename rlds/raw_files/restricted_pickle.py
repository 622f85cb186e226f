"""Safe reads of pickles of plain data. `pickle` itself runs any code that a pickle names.

A pickle names functions and classes to call. This reader allows the functions of a table only,
which check their arguments and have no side effects. A pickle can change only arrays, dtypes and
records that it has created. A malicious pickle may still exhaust memory: read them in a
container with a limit.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np

__all__ = ["Record", "RestrictedPickleError", "loads"]

# The limit of values, counting each reference to a shared value: a number for each byte, and a
# constant for the values that all steps of a small pickle share.
_SHARED_VALUES, _VALUES_PER_BYTE = 1 << 18, 4


class RestrictedPickleError(pickle.UnpicklingError):
    """A pickle has forbidden content, or is damaged."""


@dataclasses.dataclass
class Record:
    """The class, arguments and state of an object in a pickle, which is not constructed.

    Attributes:
      name: The class, with its module.
      arguments: The arguments of the constructor.
      state: The state to set after construction, mostly attributes; None if there is none.
    """

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


def loads(data: bytes, names: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """Returns the content of a pickle, if it is plain data.

    Allowed are numbers, strings, bytes, dicts, lists, tuples and sets; NumPy arrays, scalars and
    dtypes of numbers, strings and allowed objects, from NumPy 1 or 2.

    Args:
      data: The bytes of the pickle.
      names: Replacements for further functions and classes that the pickle may name, by
        `module.name`. These functions must check their arguments, and have no side effects.

    Raises:
      RestrictedPickleError: The pickle names another function or class, which the message states;
        an object contains itself, or has too many nested references; or the pickle is damaged.

    >>> loads(pickle.dumps({"x": np.arange(3)}))
    {'x': array([0, 1, 2])}
    >>> loads(pickle.dumps(print))
    Traceback (most recent call last):
      ...
    rlds.raw_files.restricted_pickle.RestrictedPickleError: the pickle names builtins.print, \
which is not plain data; it may be malicious
    """
    try:
        content = _Unpickler(data, {**_ALLOWED_NAMES, **(names or {})}).load()
        if _count(content, {}) > _SHARED_VALUES + _VALUES_PER_BYTE * len(data):
            _refuse("an object contains itself, or has too many references")
        return content
    except (RestrictedPickleError, MemoryError):
        raise
    except Exception as error:  # Damage raises any exception.
        message = f"the pickle is damaged: {type(error).__name__}: {str(error)[:200]}"
        raise RestrictedPickleError(message) from error


class _Unpickler(pickle._Unpickler):
    """Python's pure unpickler, in which each instruction can be replaced."""

    dispatch: ClassVar[Any] = dict(pickle._Unpickler.dispatch)
    # Attributes that the base class does not declare.
    stack: list[Any]
    read: Callable[[int], bytes]
    append: Callable[[Any], None]

    def __init__(self, data: bytes, names: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__(io.BytesIO(data))
        self._names, self._size = names, len(data)

    def find_class(self, module: str, name: str) -> Any:
        module = {"__builtin__": "builtins", "copy_reg": "copyreg"}.get(module, module)
        allowed = self._names.get(f"{module.replace('numpy.core', 'numpy._core')}.{name}")
        if allowed is None:
            _refuse(
                f"the pickle names {module:.100}.{name:.100}, which is not plain data; it may be "
                "malicious"
            )
        return allowed

    def load_build(self) -> None:
        """Sets the state of an object, which must be an array, a dtype or a record."""
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is Record:
            target.state = state
        elif isinstance(target, np.dtype):
            _set_byte_order(target, state)
        elif type(target) is np.ndarray and not target.size:
            _, shape, dtype, _, data = state
            _check_values(shape, dtype, data)
            target.__setstate__(state)
        else:
            _refuse(f"the pickle changes an object of the type {type(target).__name__}")

    dispatch[pickle.BUILD[0]] = load_build
    # The original instruction would call `__new__` of a replacement, which is no class.
    dispatch[pickle.NEWOBJ[0]] = pickle._Unpickler.dispatch[pickle.REDUCE[0]]

    def load_bytearray8(self) -> None:
        """Reads bytes of a declared length, for which Python reserves memory first."""
        if (length := int.from_bytes(self.read(8), "little")) > self._size:
            _refuse(f"{length:,} bytes are declared, but the pickle has {self._size:,}")
        self.append(bytearray(self.read(length)))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
    # Opcodes that plain data does not need.
    for _unused in (pickle.NEWOBJ_EX, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER):
        del dispatch[_unused[0]]


def _with_checks(
    load: Callable[[Any], None], kind: type | None, position: int, keys: slice | None
) -> Any:
    """Returns an instruction that creates or changes a container, with checks.

    Args:
      load: The instruction of Python.
      kind: The built-in type of the container to change; None to create a container.
      position: The index of the container on the stack; -1 below the mark.
      keys: The items on the stack that become keys.
    """

    def load_checked(unpickler: Any) -> None:
        # If the items follow a mark on the stack, the container is the value before the mark.
        stack = unpickler.metastack[-1] if position == -1 else unpickler.stack
        if kind is not None and type(stack[position]) is not kind:
            _refuse(f"the pickle changes an object of the type {type(stack[position]).__name__}")
        if keys is not None:
            _check_keys(unpickler.stack[keys])
        load(unpickler)

    return load_checked


_ALL_VALUES, _KEYS_ONLY, _KEY_BEFORE_VALUE = slice(None), slice(None, None, 2), slice(-2, -1)
for _opcode, _kind, _position, _keys in (
    (pickle.APPEND, list, -2, None),
    (pickle.APPENDS, list, -1, None),
    (pickle.SETITEM, dict, -3, _KEY_BEFORE_VALUE),
    (pickle.SETITEMS, dict, -1, _KEYS_ONLY),
    (pickle.ADDITEMS, set, -1, _ALL_VALUES),
    (pickle.DICT, None, -1, _KEYS_ONLY),
    (pickle.FROZENSET, None, -1, _ALL_VALUES),
):
    _load = _Unpickler.dispatch[_opcode[0]]
    _Unpickler.dispatch[_opcode[0]] = _with_checks(_load, _kind, _position, _keys)


def _check_keys(keys: Any) -> Any:
    """Checks that keys have types for which an attacker cannot choose equal hashes."""
    for key in keys:
        is_number = isinstance(key, int | float) and abs(key) < 1 << 60
        if not (key is None or isinstance(key, str | bytes) or is_number):
            _refuse(f"a key of the type {type(key).__name__}, expected a text or a number")
    return keys


def _refuse(message: str) -> NoReturn:
    raise RestrictedPickleError(message)


def _count(value: Any, counts: dict[int, float]) -> float:
    """Counts the values in a nested value; infinite if it contains itself."""
    if id(value) in counts:
        return counts[id(value)]
    children: Any = value if isinstance(value, list | tuple | set | frozenset) else ()
    if isinstance(value, dict):
        children = (*value, *value.values())
    elif isinstance(value, Record):
        children = (value.arguments, value.state)
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        children = value.ravel().tolist()
    if not children:
        return 1
    counts[id(value)] = math.inf  # A value that contains itself stays infinite.
    counts[id(value)] = 1 + sum(_count(child, counts) for child in children)
    return counts[id(value)]


# --- Allowed functions. NumPy itself trusts a pickle that declares a wrong size of its data.


def _create_dtype(name: Any, *unused: Any) -> np.dtype[Any]:
    del unused
    if not isinstance(name, str) or not re.fullmatch(r"[biufc]\d{1,2}|[SU]\d{1,6}|O8?", name):
        _refuse(f"the dtype {name!r:.100} is not allowed")
    return np.dtype(name, copy=True)


def _set_byte_order(dtype: np.dtype[Any], state: Any) -> None:
    _, order, *described = state
    if described[:3] != [None, None, None] or order not in ("<", ">", "|", "="):
        _refuse("dtypes with fields are not allowed")
    untyped_dtype: Any = dtype
    version, _, *other_state = untyped_dtype.__reduce__()[2]
    untyped_dtype.__setstate__((version, order, *other_state))


def _check_values(shape: Any, dtype: Any, data: Any) -> None:
    if not isinstance(dtype, np.dtype) or type(shape) is not tuple or min(shape, default=0) < 0:
        _refuse("the pickle of an array is damaged")
    size = math.prod(shape)
    if dtype.hasobject:
        is_fitting = isinstance(data, list) and len(data) == size
    else:  # Empty strings take no bytes.
        is_fitting = isinstance(data, bytes) and len(data) == size * dtype.itemsize
        is_fitting = is_fitting and size <= max(len(data), 1)
    if not is_fitting:
        _refuse(f"the data of an array of {dtype} does not fit its shape")
    _check_truth(dtype, data)


def _check_truth(dtype: np.dtype[Any], data: Any) -> None:
    """Checks that booleans are stored as 0 or 1, as NumPy requires."""
    if dtype.kind == "b" and max(data, default=0) > 1:
        _refuse("an array of bools has other values than 0 and 1")


def _create_scalar(dtype: Any, data: Any) -> Any:
    _check_values((), dtype, data)
    return np.ndarray((), dtype, data)[()]


def _create_array(data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> np.ndarray:
    # The buffer of an array of objects holds addresses.
    if not isinstance(dtype, np.dtype) or type(data) not in (bytes, bytearray):
        _refuse("the pickle of an array is damaged")
    _check_truth(dtype, data)
    array = np.frombuffer(data, dtype).copy()
    if order == "K":  # NumPy 2.3 writes K for non-contiguous arrays.
        return array.reshape(shape).transpose(axes)
    return array.reshape(shape, order=order)


def _create_bytes(data: Any) -> bytes:
    if type(data) is not bytes:  # `bytes(n)` would create n zeros.
        _refuse("the pickle creates a bytearray, but not of bytes")
    return data


def _encode(text: Any, encoding: Any) -> bytes:
    """Returns the bytes that a pickle for Python 2 stores as latin1 text."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        _refuse(f"the pickle encodes text as {encoding!r:.100}, expected latin1")
    return text.encode("latin1")


_ALLOWED_NAMES: Mapping[str, Callable[..., Any]] = {
    "_codecs.encode": _encode,
    "builtins.bytearray": lambda data=b"", *encoding: bytearray(
        _encode(data, *encoding) if encoding else _create_bytes(data)
    ),
    "builtins.bytes": lambda: b"",  # `bytes(n)` would create n zeros.
    "builtins.complex": complex,
    "builtins.frozenset": lambda items=(): frozenset(_check_keys(items)),
    "builtins.set": lambda items=(): set(_check_keys(items)),
    "collections.OrderedDict": lambda: {},
    "numpy.dtype": _create_dtype,
    "numpy.ndarray": lambda: None,  # Pickles name the class without calling it.
    # An array is empty until its state is set.
    "numpy._core.multiarray._reconstruct": lambda *unused: np.zeros(0, np.uint8),
    "numpy._core.multiarray.scalar": _create_scalar,
    "numpy._core.numeric._frombuffer": _create_array,
}
