"""Values that are nested in dicts and tuples, by their paths."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["map_named_leaves", "named_leaves"]


def named_leaves(structure: Any) -> Iterator[tuple[str, Any]]:
    """Yields the leaves with their paths. A list is a leaf, as in `tf.data`.

    >>> list(named_leaves({"observation": {"x": [1], "y": (2, 3)}}))
    [('observation/x', [1]), ('observation/y/0', 2), ('observation/y/1', 3)]
    """
    if not isinstance(structure, Mapping | tuple):
        yield "", structure
        return
    for key, child in structure.items() if isinstance(structure, Mapping) else enumerate(structure):
        for path, leaf in named_leaves(child):
            yield f"{key}/{path}" if path else str(key), leaf


def map_named_leaves(function: Callable[[str, Any], Any], structure: Any, path: str = "") -> Any:
    """Replaces the leaves by what a function makes of their paths and of them.

    >>> map_named_leaves(lambda path, leaf: (path, leaf), {"x": {"y": 1}})
    {'x': {'y': ('x/y', 1)}}
    """

    def of_child(key: Any, child: Any) -> Any:
        return map_named_leaves(function, child, f"{path}/{key}" if path else str(key))

    if isinstance(structure, Mapping):
        return {key: of_child(key, child) for key, child in structure.items()}
    if isinstance(structure, tuple):
        children = itertools.starmap(of_child, enumerate(structure))
        return type(structure)(*children) if hasattr(structure, "_fields") else tuple(children)
    return function(path, structure)
