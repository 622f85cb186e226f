"""Digests and differences of the values of episodes, independent of their format.

Equal episodes have equal digests, for read-back checks, labels and the search for duplicates.
`rlds.auditing` checks whether values are plausible.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

import tfds_files
from rlds.sources.source import SourceEpisode
from rlds.sources.view import flat
from rlds_ecosystem.model.nests import leaves_at
from tfds_files.columns import RaggedColumn, stack

__all__ = [
    "COMPARED_ATTRIBUTES",
    "as_array",
    "difference",
    "differences",
    "digest_of",
    "digest_of_columns",
    "iter_content",
    "text_of",
]

COMPARED_ATTRIBUTES = ("key", "truncated", "complete", "final_observation_known")
"""The compared attributes of an episode, in addition to its fields."""

_DIGEST_BYTES = 16
# Copying fewer bytes is faster than creating a view of them.
_MAX_COPIED_BYTES = 4096


def digest_of(steps: Mapping[str, Any]) -> bytes:
    """Returns a digest of the steps of an episode: their names, dtypes, shapes and values.

    Episodes with equal steps have equal digests, independent of keys, formats and metadata. Image
    files are hashed undecoded: read the steps from a source `with_image_files()`.

    Args:
      steps: The columns of the steps of a `SourceEpisode`.

    Returns:
      16 bytes, of BLAKE2b.

    >>> digest_of({"reward": np.zeros(2)}).hex()
    'a80dd2d69f837bb612e5f2267142aeee'
    """
    return digest_of_columns(dict(leaves_at(steps, None)))


def digest_of_columns(columns: Mapping[str, Any]) -> bytes:
    """Returns the digest of steps, see `digest_of`, from columns by the paths of their fields."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for data in iter_content(columns):
        digest.update(data)
    return digest.digest()


def iter_content(fields: Mapping[str, Any]) -> Iterator[Any]:
    """Yields bytes to hash: equal bytes for equal values of fields.

    Text equals its UTF-8 bytes.

    Args:
      fields: Values or columns, by the paths of their fields.
    """
    for path in sorted(fields):
        values = fields[path]
        if type(values) is not np.ndarray:
            values = as_array(values)
        header = _field_bytes(path, values.dtype) + _shape_bytes(values.shape)
        if values.dtype.kind in "USO":
            yield header
            for value in map(text_of, values.reshape(-1).tolist()):
                value = value if isinstance(value, bytes) else repr(value).encode()
                yield b"%d " % len(value)
                yield value
        elif values.nbytes > _MAX_COPIED_BYTES and values.flags.c_contiguous:
            yield header
            yield values.data
        else:
            yield header + values.tobytes()


@functools.lru_cache(4096)
def _field_bytes(path: str, dtype: np.dtype) -> bytes:
    return f"{path} {'texts' if dtype.kind in 'USO' else dtype.str} ".encode()


@functools.lru_cache(4096)
def _shape_bytes(shape: tuple[int, ...]) -> bytes:
    return str(shape).encode()


def text_of(value: Any) -> Any:
    """Converts an element of an object array to a comparable value: text to bytes."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    return value.encode() if isinstance(value, str) else value


def as_array(column: Any) -> np.ndarray:
    """Returns a column as an array; rows of different lengths become an array of arrays.

    >>> as_array(RaggedColumn(np.array([1, 2, 3]), np.array([1, 2])))
    array([array([1]), array([2, 3])], dtype=object)
    """
    if not isinstance(column, RaggedColumn):
        return np.asarray(column)
    return stack([as_array(column[row]) for row in range(len(column))])


def differences(
    episode: SourceEpisode, other: SourceEpisode, skipped: Collection[str] = ()
) -> Iterator[str]:
    """Yields the differences of two episodes, bit by bit.

    Args:
      episode: An episode.
      other: The other episode.
      skipped: The paths of fields that may differ, such as `steps/action`.
    """
    for name in COMPARED_ATTRIBUTES:
        fact, other_fact = getattr(episode, name), getattr(other, name)
        if name not in skipped and fact != other_fact:
            yield f"{name}: {fact!r} became {other_fact!r}"
    columns, other_columns = (flat(each.steps, each.metadata) for each in (episode, other))
    for path in (columns.keys() | other_columns.keys()) - {*skipped}:
        if path not in columns or path not in other_columns:
            yield f"{path}: {'missing' if path not in other_columns else 'new'}"
        elif (change := difference(columns[path], other_columns[path])) is not None:
            yield f"{path}: {change}"


def difference(one: Any, other: Any) -> str | None:
    """Describes the difference of two values or columns of a field; None if they are equal.

    Image files equal arrays of their pixels, and texts their UTF-8 bytes.
    """
    one, other = as_array(one), as_array(other)
    if (one.dtype.kind == "O") != (other.dtype.kind == "O"):  # Images as files, and as arrays.
        one, other = _decode_images(one, other), _decode_images(other, one)
    if one.dtype.kind in "USO" and other.dtype.kind in "USO":
        if one.shape != other.shape:
            return f"shape {one.shape} became {other.shape}"
        pairs = zip(one.reshape(-1).tolist(), other.reshape(-1).tolist())
        differing = (row for row, (a, b) in enumerate(pairs) if text_of(a) != text_of(b))
        row = next(differing, None)
        return None if row is None else f"value {row} differs"
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{one.dtype} of shape {one.shape} became {other.dtype} of shape {other.shape}"
    if one.tobytes() != other.tobytes():
        return "values differ"
    return None


def _decode_images(images: np.ndarray, reference: np.ndarray) -> np.ndarray:
    if images.dtype.kind != "O" or not all(isinstance(image, bytes) for image in images.flat):
        return images
    feature = tfds_files.Image(shape=(None, None, reference.shape[-1]), dtype=reference.dtype)
    return stack([tfds_files.decode_image(image, feature) for image in images])
