"""Digests of values; needs only NumPy, independently of readers."""

import hashlib
from itertools import pairwise

import numpy as np


def describe(value):
    """The dtype, shape and SHA-256 of each array in dicts and lists."""
    if isinstance(value, dict):
        return {name: describe(child) for name, child in value.items()}
    if isinstance(value, list):
        return [describe(child) for child in value]
    if hasattr(value, "row_splits"):  # A ragged tensor.
        ends = np.asarray(value.row_splits)
        return [describe(value.values[begin:end]) for begin, end in pairwise(ends)]
    array = np.asarray(value, object if isinstance(value, bytes | str) else None)
    if array.dtype == object:
        data = repr([bytes(item) for item in array.flat]).encode()
    else:
        data = np.ascontiguousarray(array).tobytes()
    name = "string" if array.dtype == object else array.dtype.name
    return [name, list(array.shape), hashlib.sha256(data).hexdigest()]
