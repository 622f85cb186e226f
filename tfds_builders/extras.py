"""Libraries that only some sources need, and the extra of this package that brings each."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["import_extra"]

_EXTRA_OF = {
    "apache_beam": "beam",
    "array_record": "array_record",
    "h5py": "hdf5",
    "minari": "minari",
    "pyarrow": "parquet",
}


def import_extra(module: str) -> Any:
    """Returns a module that not every installation has.

    Args:
      module: Its name, such as "h5py" or "pyarrow.parquet".

    Raises:
      ImportError: It is not installed; says how to install it.
    """
    library = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ImportError(
            f"{library} is needed for this: pip install 'rlds[{_EXTRA_OF[library]}]'", name=library
        ) from error
