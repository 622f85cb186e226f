"""Nested dicts and tuples: leaves and their paths, such as `observations/camera`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from rlds_ecosystem.model.names import suggest_names

__all__ = [
    "Paths",
    "conflicts",
    "has",
    "is_below",
    "join_path",
    "leaves_at",
    "lookup",
    "map_named_leaves",
    "named_leaves",
    "nest",
    "put",
    "root_of",
    "suggest_fields",
]


def conflicts(paths: Mapping[str, Any], path: str) -> bool:
    """True if a path cannot be added, as a field above or below exists."""
    if path in paths:
        return False
    return has(paths, path) or any(parent in paths for parent in _parent_paths(path))


V = TypeVar("V")

_MAX_DEPTH = 50


class Paths(dict[str, V]):
    """A dict by paths with an index for `has` and `conflicts`, for many paths."""

    def __init__(self, paths: Mapping[str, V] | None = None) -> None:
        super().__init__()
        self.parents: set[str] = set()
        for path, value in (paths or {}).items():
            self[path] = value

    def __setitem__(self, path: str, value: V) -> None:
        super().__setitem__(path, value)
        self.parents.update(_parent_paths(path))

    def __reduce__(self) -> Any:  # pickle would set items before attributes.
        return type(self), (dict(self),)


def _parent_paths(path: str) -> Iterator[str]:
    """Yields the parents of a path, the top one first."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def join_path(path: str, key: Any) -> str:
    """Returns the path of a key below a path."""
    return f"{path}/{key}" if path else str(key)


def root_of(path: str) -> str:
    """Returns the first component of a path: the top-level field."""
    return path.partition("/")[0]


def has(paths: Mapping[str, Any], path: str) -> bool:
    """True if a value is at a path or below it."""
    if isinstance(paths, Paths):
        return path in paths or path in paths.parents
    return path in paths or any(child.startswith(f"{path}/") for child in paths)


def nest(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested dicts by the components of paths."""
    if "/" not in "".join(columns):
        return dict(columns)
    nested: dict[str, Any] = {}
    for path, value in columns.items():
        put(nested, path, value)
    return nested


def put(nested: dict[str, Any], path: str | Sequence[str], value: Any) -> None:
    """Puts a value at a path in nested dicts, which are created as needed.

    Raises:
      ValueError: The path is too deep for recursive functions.
    """
    *parents, name = path.split("/") if isinstance(path, str) else path
    if len(parents) > _MAX_DEPTH:
        raise ValueError(
            f"{'/'.join([*parents, name])!r:.100} has more than {_MAX_DEPTH} components"
        )
    for parent in parents:
        nested = nested.setdefault(parent, {})
    nested[name] = value


def lookup(nested: Any, path: str) -> Any:
    """Returns the value at a path of nested dicts.

    >>> lookup({"arm": {"gripper/width": 1}}, "arm/gripper/width")
    1
    """
    while path:
        name, _, path = path.partition("/")
        while path and name not in nested:  # A name may contain slashes.
            component, _, path = path.partition("/")
            name = f"{name}/{component}"
        nested = nested[name]
    return nested


def leaves_at(
    nested: Mapping[str, Any],
    paths: str | Iterable[str] | None,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[str, Any]]:
    """Yields the leaves at and below one or several paths; all leaves for None.

    Args:
      nested: Nested dicts.
      paths: The paths.
      aliases: Paths by alternative names, for the error.

    Raises:
      KeyError: A path does not exist; the message has the existing paths.

    >>> dict(leaves_at({"a": {"b": 1, "c": 2}, "d": 3}, ["a"]))
    {'a/b': 1, 'a/c': 2}
    """
    if paths is None:
        yield from named_leaves(nested)
        return
    leaves = dict(named_leaves(nested))
    for path in [paths] if isinstance(paths, str) else paths:
        matches = {path: leaves[path]} if path in leaves else {}
        matches = matches or {name: leaf for name, leaf in leaves.items() if is_below(name, path)}
        if not matches and path:
            raise KeyError(f"no field {path!r}; {suggest_fields(path, leaves, aliases)}")
        yield from matches.items()


def suggest_fields(
    path: str, fields: Iterable[str], aliases: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Returns the end of an error about an unknown field; see `names.suggest_names`.

    Args:
      path: The unknown field.
      fields: The paths of all fields.
      aliases: Paths of fields and of groups of fields by alternative names.
    """
    fields = dict.fromkeys(fields)
    groups = {group: group for field in fields for group in _parent_paths(field)}
    existing = {name: aliases[name] for name in aliases if aliases[name] in {**groups, **fields}}
    return suggest_names(path, fields, {**groups, **existing})


def is_below(name: str, path: str) -> bool:
    """True if a path equals another path or is below it; all paths are below the empty one."""
    return not path or name == path or name.startswith(f"{path}/")


def named_leaves(structure: Any) -> Iterator[tuple[str, Any]]:
    """Yields the leaves with their paths. A list is a leaf, as in `tf.data`.

    >>> list(named_leaves({"observation": {"x": [1], "y": (2, 3)}}))
    [('observation/x', [1]), ('observation/y/0', 2), ('observation/y/1', 3)]
    """
    if not _is_inner(type(structure)):  # type: ignore[arg-type]
        return iter([("", structure)])
    leaves: list[tuple[str, Any]] = []
    _add_leaves(structure, "", leaves)
    return iter(leaves)


def _add_leaves(structure: Any, parent: str, leaves: list[tuple[str, Any]]) -> None:
    for key, child in structure.items() if isinstance(structure, Mapping) else enumerate(structure):
        if _is_inner(type(child)):  # type: ignore[arg-type]
            _add_leaves(child, f"{parent}{key}/", leaves)
        else:
            leaves.append((f"{parent}{key}", child))


@functools.lru_cache(256)  # `issubclass` of an abstract class is slow.
def _is_inner(kind: type) -> bool:
    return issubclass(kind, Mapping | tuple)


def map_named_leaves(function: Callable[[str, Any], Any], structure: Any, path: str = "") -> Any:
    """Replaces each leaf by a function of its path and value.

    >>> map_named_leaves(lambda path, leaf: (path, leaf), {"x": {"y": 1}})
    {'x': {'y': ('x/y', 1)}}
    """

    def map_child(key: Any, child: Any) -> Any:
        return map_named_leaves(function, child, join_path(path, key))

    if isinstance(structure, Mapping):
        return {key: map_child(key, child) for key, child in structure.items()}
    if isinstance(structure, tuple):
        children = itertools.starmap(map_child, enumerate(structure))
        return type(structure)(*children) if hasattr(structure, "_fields") else tuple(children)
    return function(path, structure)
