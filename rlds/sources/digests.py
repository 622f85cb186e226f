"""Digests of what episodes hold, whatever format they are stored in."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rlds_ecosystem.model.nests import leaves_at
from tfds_files.columns import RaggedColumn, stack

__all__ = ["as_array", "content_of", "digest_of", "digest_of_columns", "text_of"]

_SIZE = 16
# To copy so few bytes takes less time than to make a view of them.
_FEW_BYTES = 4096


def digest_of(steps: Mapping[str, Any]) -> bytes:
    """Returns a digest of the steps of an episode: their names, dtypes, shapes and values.

    Episodes of equal steps have equal digests, whatever they are called, whatever format they are
    in, and whatever is said of them as a whole. Images that are files count as files: take the
    steps from a source `with_image_files()`.

    Args:
      steps: The columns of the steps, as a `SourceEpisode` has them.

    Returns:
      16 bytes, of BLAKE2b.

    >>> digest_of({"reward": np.zeros(2)}).hex()
    'a80dd2d69f837bb612e5f2267142aeee'
    """
    return digest_of_columns(dict(leaves_at(steps, None)))


def digest_of_columns(columns: Mapping[str, Any]) -> bytes:
    """Returns the digest of steps, see `digest_of`, by the columns at the paths of their fields."""
    found = hashlib.blake2b(digest_size=_SIZE)
    for part in content_of(columns):
        found.update(part)
    return found.digest()


def content_of(fields: Mapping[str, Any]) -> Iterator[Any]:
    """Yields bytes that are the same for equal values of fields, and for no others.

    Text and its UTF-8 are equal.

    Args:
      fields: Values or columns, by the paths of their fields.
    """
    for path in sorted(fields):
        values = fields[path]
        if type(values) is not np.ndarray:
            values = as_array(values)
        head = _head(path, values.dtype) + _shape(values.shape)
        if values.dtype.kind in "USO":
            yield head
            for value in map(text_of, values.reshape(-1).tolist()):
                value = value if isinstance(value, bytes) else repr(value).encode()
                yield b"%d " % len(value)
                yield value
        elif values.nbytes > _FEW_BYTES and values.flags.c_contiguous:
            yield head
            yield values.data
        else:
            yield head + values.tobytes()


@functools.lru_cache(4096)
def _head(path: str, dtype: np.dtype) -> bytes:
    return f"{path} {'texts' if dtype.kind in 'USO' else dtype.str} ".encode()


@functools.lru_cache(4096)
def _shape(shape: tuple[int, ...]) -> bytes:
    return str(shape).encode()


def text_of(value: Any) -> Any:
    """Returns what two values of an array of objects are compared by."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    return value.encode() if isinstance(value, str) else value


def as_array(column: Any) -> np.ndarray:
    """Returns a column as an array; as one of arrays, if its rows are of several lengths.

    >>> as_array(RaggedColumn(np.array([1, 2, 3]), np.array([1, 2])))
    array([array([1]), array([2, 3])], dtype=object)
    """
    if not isinstance(column, RaggedColumn):
        return np.asarray(column)
    return stack([as_array(column[row]) for row in range(len(column))])
