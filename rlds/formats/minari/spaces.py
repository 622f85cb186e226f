"""Parsing of Gymnasium's spaces in Minari's JSON.

Values have paths, such as `observations/camera`. The elements of a `Tuple` have the names of
Minari's HDF5 files: `_index_0`, `_index_1`, ....
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlds_ecosystem.model.fields import Field

__all__ = ["LeafSpace", "Spaces", "box", "is_like_images", "tuple_name"]

# The smallest height and width at which Minari treats a uint8 Box as images.
_MIN_IMAGE_SIDE = 32
_PIXEL_BOUNDS = {"low": 0, "high": 255}


@dataclasses.dataclass(frozen=True)
class LeafSpace:
    """A leaf of the tree of spaces.

    Attributes:
      kind: The name of the space, such as "Box".
      field: The type of its values.
      is_image: True if Minari treats the values as images, and may store them as JPEG.
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
    def jpeg_field(self) -> Field:
        """The field of images in JPEG files; grey images have one channel."""
        height, width, *channels = self.shape
        return Field(np.uint8, (height, width, *(channels or [1])), encoding="jpeg")


class Spaces:
    """The spaces of observations and actions, with nested spaces.

    Attributes:
      leaves: The spaces of values, by path.
      tuples: The paths of the `Tuple` spaces.

    >>> spaces = Spaces()
    >>> spaces.add('{"type": "Tuple", "subspaces": [{"type": "Discrete", "n": 2}]}', "x")
    >>> {path: str(leaf.field) for path, leaf in spaces.leaves.items()}
    {'x/_index_0': 'int64 of shape ()'}
    """

    def __init__(self) -> None:
        self.leaves: dict[str, LeafSpace] = {}
        self.tuples: set[str] = set()

    def add(self, space: str | Mapping[str, Any], path: str) -> None:
        """Adds a space, with nested spaces.

        Args:
          space: The space in JSON.
          path: The path of the space.

        Raises:
          ValueError: Minari does not write this kind of space, or a key is missing.
        """
        try:
            self._add(json.loads(space) if isinstance(space, str) else space, path)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: not a Minari space ({error!r}): {space!s:.200}") from error

    def _add(self, space: Mapping[str, Any], path: str) -> None:
        kind = space["type"]
        if kind not in ("Dict", "Tuple"):
            self.leaves[path] = dataclasses.replace(_leaf(kind, space, path), space=space)
            return
        subspaces = space["subspaces"]
        if kind == "Tuple":
            subspaces = {tuple_name(index): child for index, child in enumerate(subspaces)}
            self.tuples.add(path)
        for name, child in subspaces.items():
            if "/" in name or not name:
                raise ValueError(f"{path}: {name!r} is not a valid field name")
            self._add(child, f"{path}/{name}")


def tuple_name(index: int | str) -> str:
    """Returns the name of an element of a `Tuple`."""
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


def _leaf(kind: str, space: Mapping[str, Any], path: str) -> LeafSpace:
    if kind == "Box":
        field = Field(np.dtype(space["dtype"]), tuple(space["shape"]))
        is_image = is_like_images(field) and all(
            bool(np.all(np.asarray(space[bound]) == end)) for bound, end in _PIXEL_BOUNDS.items()
        )
        return LeafSpace(kind, field, is_image)
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


def is_like_images(field: Field) -> bool:
    """Returns True if Minari treats values as images, in a `Box` with the bounds of uint8."""
    shape = field.shape
    if field.column_dtype != np.uint8 or len(shape) not in (2, 3) or None in shape:
        return False
    return min(size or 0 for size in shape[:2]) >= _MIN_IMAGE_SIDE
