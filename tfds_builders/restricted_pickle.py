"""Reads pickles of plain data. Pickles of strangers may run any code when `pickle` reads them.

The names in a pickle are not looked up in modules. A table has a function of this module for each
that is allowed, which checks what it gets before it makes an object; NumPy itself would believe a
pickle that lies about the size of its data. Any other name is refused before something is called.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import Any, NoReturn

import dm_env
import numpy as np
from dm_env import specs

from envlogger.step_data import StepData

__all__ = ["RestrictedPickleError", "loads"]

_MAX_DEPTH = 100
# What the pickle of plain data does without: objects that are not in the pickle, classes by numbers
# of a registry, and how the first versions of Python made instances.
_REFUSED_OPCODES = {"PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "INST", "OBJ"}
_REFUSED_OPCODES |= {"NEXT_BUFFER", "READONLY_BUFFER"}
_MEMOIZING_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}


class RestrictedPickleError(pickle.UnpicklingError):
    """A pickle holds what is not allowed, or is damaged."""


def loads(data: bytes) -> Any:
    """Returns what a pickle holds, if that is plain data.

    Allowed are numbers, strings, bytes, dicts, lists, tuples and sets; NumPy arrays, scalars and
    dtypes of numbers, strings and allowed objects, from NumPy 1 or 2; specs and timesteps of
    dm_env; the steps of EnvLogger and of RLDS Creator.

    Arrays are as large as their data in the pickle, and no memory is reserved for what a pickle
    only speaks of. Not bounded are: the size of the pickle itself; what a caller makes of lists
    that are in the pickle once and are referred to many times; the time that it takes to hash
    tuples of such tuples.

    Args:
      data: The bytes of the pickle.

    Raises:
      RestrictedPickleError: The pickle names something else; says what. It is nested too deeply, or
        an object contains itself. Or it is damaged.

    >>> loads(pickle.dumps({"x": np.arange(3)}))
    {'x': array([0, 1, 2])}
    >>> loads(pickle.dumps(print))
    Traceback (most recent call last):
      ...
    tfds_builders.restricted_pickle.RestrictedPickleError: the pickle names builtins.print, which \
is no plain data; it may come from somebody who means harm
    """
    try:
        _check_opcodes(data)
        return _Finisher().finish(_Unpickler(io.BytesIO(data)).load())
    except RestrictedPickleError:
        raise
    except Exception as error:  # Damage shows itself in any way.
        raise RestrictedPickleError(
            f"the pickle is damaged: {type(error).__name__}: {error}"
        ) from error


def _check_opcodes(data: bytes) -> None:
    """Looks over a pickle without reading it."""
    for number, (opcode, argument, position) in enumerate(pickletools.genops(data)):
        if opcode.name in _REFUSED_OPCODES:
            _refuse(f"byte {position}: the opcode {opcode.name} is not used for plain data")
        # Python reserves memory for all objects up to this number.
        if opcode.name in _MEMOIZING_OPCODES and int(argument or 0) > number:
            _refuse(f"byte {position}: there are fewer than {argument} objects before")


def _refuse(what: str) -> NoReturn:
    raise RestrictedPickleError(what)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((_MODULES.get(module, module), name))
        if found is None:
            _refuse(
                f"the pickle names {module}.{name}, which is no plain data; it may come from "
                "somebody who means harm"
            )
        return found


class _Function:
    """A function that a pickle may call, but not change: pickles can set attributes.

    Args:
      function: The function.
      stands_for: What an environment spec gets for it.
    """

    __slots__ = ("_function", "stands_for")

    def __init__(self, function: Callable[..., Any], stands_for: type | None = None) -> None:
        self._function = function
        self.stands_for = stands_for

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        _refuse("the pickle changes a function")


# --- Objects that are made in several steps, and finished in the end.


class _Dtype:
    """A dtype in the making: first its name is known, then its byte order."""

    __hash__ = None  # type: ignore[assignment]  # It stands for something else.

    def __init__(self, name: Any, *unused: Any) -> None:
        del unused
        if not isinstance(name, str) or not re.fullmatch(r"[biufc]\d+|[SU]\d{1,9}|O8?", name):
            _refuse(f"the dtype {name!r:.100} is not allowed")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        _, order, subarray, names, fields, *_ = state
        if (subarray, names, fields) != (None, None, None):
            _refuse(f"dtypes with fields are not allowed: {state!r:.100}")
        if order in ("<", ">"):
            dtype = self.dtype.newbyteorder(order)
            self.dtype = dtype.newbyteorder("=") if dtype.isnative else dtype


class _Array:
    """An array in the making: first it is empty."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *unused: Any) -> None:
        del unused
        self.array = np.zeros(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, data = state
        self.array = _make_array(data, dtype, shape, "F" if is_fortran else "C")


def _make_array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(dtype, _Dtype) or order not in ("C", "F"):
        _refuse("the pickle of an array is damaged")
    if not isinstance(shape, tuple) or any(type(size) is not int or size < 0 for size in shape):
        _refuse(f"{shape!r:.100} is not the shape of an array")
    size = math.prod(shape)
    if dtype.dtype == object:
        if not isinstance(data, list) or len(data) != size:
            _refuse(f"an array of {size} objects comes with other data")
        array = np.empty(size, object)
        array[:] = data
        return array.reshape(shape, order=order)
    is_fitting = isinstance(data, bytes | bytearray) and len(data) == size * dtype.dtype.itemsize
    if not is_fitting or size > max(len(data), 1):  # Empty strings take no bytes.
        _refuse(f"an array of {dtype.dtype} of shape {shape!r:.100} comes with other data")
    return np.ndarray(shape, dtype.dtype, data, order=order).copy(order="K")


class _Sealed(type):
    def __setstate__(cls, state: Any) -> None:
        _refuse("the pickle changes a class")


class _TimeStep(tuple[Any, ...], metaclass=_Sealed):
    """A timestep in the making. Python wants a class here, and pickles can change classes."""

    __slots__ = ()

    def __new__(cls, *fields: Any) -> _TimeStep:
        return super().__new__(cls, fields)


class _StepData(tuple[Any, ...], metaclass=_Sealed):
    """A step in the making."""

    __slots__ = ()

    def __new__(cls, *fields: Any) -> _StepData:
        return super().__new__(cls, fields)


_FINISHED = {tuple: tuple, _TimeStep: dm_env.TimeStep._make, _StepData: StepData._make}


class _Finisher:
    """Puts what was in the making into its place, everything once."""

    def __init__(self) -> None:
        self._finished: dict[int, Any] = {}
        self._begun: set[int] = set()

    def finish(self, value: Any) -> Any:
        if isinstance(value, _Dtype):
            return value.dtype
        if isinstance(value, _Function | type):
            _refuse("the pickle holds a function or a class")
        if not isinstance(value, list | tuple | dict | _Array):
            return value
        if isinstance(value, _Array) and value.array.dtype != object:
            return value.array
        key = id(value)
        if key not in self._finished:
            if key in self._begun:
                _refuse("an object contains itself")
            if len(self._begun) == _MAX_DEPTH:
                _refuse(f"objects in objects, more than {_MAX_DEPTH} deep")
            self._begun.add(key)
            self._finished[key] = self._finish_children(value)
            self._begun.remove(key)
        return self._finished[key]

    def _finish_children(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.finish(key): self.finish(child) for key, child in value.items()}
        if isinstance(value, _Array):
            array = np.empty(value.array.size, object)
            array[:] = [self.finish(child) for child in value.array.flat]
            return array.reshape(value.array.shape)
        children = [self.finish(child) for child in value]
        return children if isinstance(value, list) else _FINISHED[type(value)](children)


# --- What a pickle may call.


def _scalar(dtype: Any, data: Any) -> Any:
    return _make_array(data, dtype, (1,), "C")[0]


def _spec(cls: Any) -> _Function:
    def make(*arguments: Any) -> Any:
        return cls(
            *(
                argument.stands_for
                if isinstance(argument, _Function)
                else _Finisher().finish(argument)
                for argument in arguments
            )
        )

    return _Function(make)


def _bytes(*arguments: Any) -> bytes:
    if arguments:  # A number stands for as many zeros.
        _refuse("the pickle makes bytes of something else")
    return b""


def _bytearray(*arguments: Any) -> bytearray:
    if arguments and not isinstance(arguments[0], bytes | str):
        _refuse("the pickle makes a bytearray of something else")
    return bytearray(*arguments)


def _encode(text: Any, encoding: Any) -> bytes:
    """How bytes are written for Python 2."""
    if encoding != "latin1":
        _refuse(f"the pickle encodes something as {encoding!r:.100}")
    return bytes(text.encode("latin1"))


def _reconstructor(cls: Any, base: Any, state: Any) -> Any:
    """How tuples with names are written for Python 2."""
    if cls not in (_TimeStep, _StepData) or base is not tuple:
        _refuse("the pickle makes an instance in a way that is not used for plain data")
    return cls(*state)


def _step_type_of_name(step_type: Any, name: Any) -> dm_env.StepType:
    """How the first releases of Python 3.11 write the members of an enumeration."""
    if step_type is not _STEP_TYPE or name not in dm_env.StepType.__members__:
        _refuse("the pickle gets an attribute of something else than a type of steps")
    return dm_env.StepType[name]


def _only_named(*unused: Any) -> NoReturn:
    _refuse("the pickle calls what is only named for plain data")


_STEP_TYPE = _Function(dm_env.StepType)
# The names that Python 2 knows.
_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_ALLOWED: dict[tuple[str, str], Any] = {
    ("builtins", "bytearray"): _Function(_bytearray),
    ("builtins", "bytes"): _Function(_bytes, stands_for=bytes),
    ("builtins", "complex"): _Function(complex),
    ("builtins", "frozenset"): _Function(frozenset),
    ("builtins", "getattr"): _Function(_step_type_of_name),
    ("builtins", "set"): _Function(set),
    ("builtins", "str"): _Function(_only_named, stands_for=str),
    ("builtins", "tuple"): tuple,
    ("builtins", "unicode"): _Function(_only_named, stands_for=str),
    ("_codecs", "encode"): _Function(_encode),
    ("collections", "OrderedDict"): _Function(lambda: {}),
    ("copyreg", "_reconstructor"): _Function(_reconstructor),
    ("dm_env._environment", "StepType"): _STEP_TYPE,
    ("dm_env._environment", "TimeStep"): _TimeStep,
    ("envlogger.step_data", "StepData"): _StepData,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Function(_only_named),
    ("rlds_creator.episode_storage", "StepData"): _StepData,
}
for _name in ("Array", "BoundedArray", "DiscreteArray", "StringArray"):
    _ALLOWED["dm_env.specs", _name] = _spec(getattr(specs, _name))
for _core in ("numpy.core", "numpy._core"):  # NumPy 1 and NumPy 2.
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _Function(_Array)
    _ALLOWED[f"{_core}.multiarray", "scalar"] = _Function(_scalar)
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _Function(_make_array)
