"""Gymnasium's spaces as Minari writes them down, in JSON: what the values below each are like.

Values are known by their paths, such as `observations/camera`. A part of a `Tuple` has the name
that Minari gives it in HDF5 files: `_index_0`, `_index_1`, ....
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rlds_ecosystem.model.fields import Field

__all__ = ["SMALLEST_IMAGE", "LeafSpace", "Spaces", "box", "merged", "parse_space", "tuple_name"]

# Minari takes a Box of uint8 for images only from this height and width on.
SMALLEST_IMAGE = 32


@dataclasses.dataclass(frozen=True)
class LeafSpace:
    """A space that has no others below it.

    Attributes:
      kind: The name of the space, such as "Box".
      field: What its values are.
      is_image: Whether Minari takes the values for images, and may keep them as JPEG.
      space: The space in JSON.
    """

    kind: str
    field: Field
    is_image: bool = False
    space: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(size or 0 for size in self.field.shape)

    @property
    def jpeg(self) -> Field:
        """The field of images that are kept as JPEG: grey ones have a channel, too."""
        height, width, *channels = self.shape
        return Field(np.uint8, (height, width, *(channels or [1])), encoding="jpeg")


@dataclasses.dataclass(frozen=True)
class Spaces:
    """The spaces below one.

    Attributes:
      leaves: Those that hold values, by their paths.
      tuples: The paths of those that are a `Tuple`.
    """

    leaves: Mapping[str, LeafSpace]
    tuples: frozenset[str] = frozenset()


def parse_space(space: str | Mapping[str, Any], path: str) -> Spaces:
    """Returns what is below a space.

    Args:
      space: The space in JSON.
      path: Its path.

    Raises:
      ValueError: It is none of the spaces that Minari writes, or lacks a field.

    >>> spaces = parse_space('{"type": "Tuple", "subspaces": [{"type": "Discrete", "n": 2}]}', "x")
    >>> {path: str(leaf.field) for path, leaf in spaces.leaves.items()}
    {'x/_index_0': 'int64 of shape ()'}
    """
    try:
        parsed = json.loads(space) if isinstance(space, str) else space
        return _parse(parsed, path)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not a space of Minari ({error!r}): {str(space)[:200]}"
        ) from error


def merged(spaces: Iterable[Spaces]) -> Spaces:
    """Returns what is below any of several spaces."""
    leaves: dict[str, LeafSpace] = {}
    tuples: frozenset[str] = frozenset()
    for space in spaces:
        leaves.update(space.leaves)
        tuples |= space.tuples
    return Spaces(leaves, tuples)


def tuple_name(index: int | str) -> str:
    """Returns the name of a part of a `Tuple`."""
    return f"_index_{index}"


def box(dtype: np.dtype, shape: tuple[int, ...]) -> dict[str, Any]:
    """Returns a `Box`, in the types of JSON, that holds all values of a dtype and shape.

    >>> box(np.dtype(np.int8), (2,))
    {'type': 'Box', 'dtype': 'int8', 'shape': [2], 'low': [-128, -128], 'high': [127, 127]}
    """
    low: Any
    high: Any
    if dtype == np.bool_:
        low, high = False, True
    elif dtype.kind == "f":
        low, high = -math.inf, math.inf
    else:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return {
        "type": "Box",
        "dtype": dtype.name,
        "shape": list(shape),
        "low": np.full(shape, low, dtype).tolist(),
        "high": np.full(shape, high, dtype).tolist(),
    }


def _parse(space: Mapping[str, Any], path: str) -> Spaces:
    kind = space["type"]
    if kind in ("Dict", "Tuple"):
        subspaces = space["subspaces"]
        if kind == "Tuple":
            subspaces = {tuple_name(index): child for index, child in enumerate(subspaces)}
        for name in subspaces:
            if "/" in name or not name:
                raise ValueError(f"{path}: {name!r} is not a valid field name")
        tuples = frozenset([path] if kind == "Tuple" else [])
        children = [_parse(child, f"{path}/{name}") for name, child in subspaces.items()]
        return merged([Spaces({}, tuples), *children])
    return Spaces({path: dataclasses.replace(_leaf(kind, space, path), space=space)})


def _leaf(kind: str, space: Mapping[str, Any], path: str) -> LeafSpace:
    if kind == "Box":
        dtype, shape = np.dtype(space["dtype"]), tuple(space["shape"])
        return LeafSpace(kind, Field(dtype, shape), _is_image(space, dtype, shape))
    if kind == "Discrete":
        return LeafSpace(kind, Field(space.get("dtype", "int64")))
    if kind == "MultiDiscrete":
        return LeafSpace(kind, Field(space["dtype"], np.shape(space["nvec"])))
    if kind == "MultiBinary":
        size = space["n"]
        return LeafSpace(kind, Field(np.int8, (size,) if isinstance(size, int) else tuple(size)))
    if kind == "Text":
        return LeafSpace(kind, Field(str))
    raise ValueError(f"{path}: {kind!r} is not a space that Minari writes")


def _is_image(space: Mapping[str, Any], dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    return (
        dtype == np.uint8
        and len(shape) in (2, 3)
        and min(shape[:2]) >= SMALLEST_IMAGE
        and bool(np.all(np.asarray(space["low"]) == 0))
        and bool(np.all(np.asarray(space["high"]) == 255))
    )
