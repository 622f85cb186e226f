"""All that a file of HDF5 holds, to compare it with another."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np


def dump(path: Path) -> list[Any]:
    """Returns the output of a plain look at all there is in a file."""
    found: list[Any] = []

    def visit(name: str, item: Any) -> None:
        attributes = {
            key: (item.attrs.get_id(key).dtype, np.asarray(item.attrs[key]).tolist())
            for key in item.attrs
            if not isinstance(item.attrs[key], h5py.Empty)
        }
        array: tuple[Any, ...] = ()
        if isinstance(item, h5py.Dataset):
            values = None if item.shape is None else item[()]
            if h5py.check_vlen_dtype(item.dtype) == np.uint8:
                values = np.array([row.tobytes() for row in values], object)
            values = values.tolist() if hasattr(values, "tolist") else values
            options = item.chunks, item.compression, item.compression_opts, item.shuffle
            array = item.dtype, item.shape, item.maxshape, values, options
        found.append((name, attributes, list(item.attrs), array))

    with h5py.File(path) as file:
        visit("/", file)
        file.visititems(visit)
    return found
