"""What is known by its path, such as `observations/camera`, and nested dicts of the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["at", "excludes", "has", "nest", "put"]


def excludes(paths: Mapping[str, Any], path: str) -> bool:
    """Whether there is something above or below a path, so that nothing can be at it."""
    if path in paths:
        return False
    return has(paths, path) or any(path.startswith(f"{other}/") for other in paths)


def has(paths: Mapping[str, Any], path: str) -> bool:
    """Whether there is something at a path, or below it."""
    return path in paths or any(other.startswith(f"{path}/") for other in paths)


def nest(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested dicts, by the parts of paths."""
    nested: dict[str, Any] = {}
    for path, value in columns.items():
        put(nested, path, value)
    return nested


def put(nested: dict[str, Any], path: str | Sequence[str], value: Any) -> None:
    """Puts a value to where its path says, in nested dicts that are made as needed."""
    *parents, name = path.split("/") if isinstance(path, str) else path
    for parent in parents:
        nested = nested.setdefault(parent, {})
    nested[name] = value


def at(nested: Any, path: str) -> Any:
    """Returns what is at a path of nested dicts."""
    for name in path.split("/"):
        nested = nested[name]
    return nested
