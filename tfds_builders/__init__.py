"""Builders that turn recorded or downloaded data into RLDS datasets, written by TFDS.

Importing this package registers its builders with TensorFlow Datasets, for `tfds.load`.
TensorFlow is loaded when something is converted, not before.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

from rlds_ecosystem.lazy import lazy_package as _lazy_package
from tfds_builders import formats, published
from tfds_builders.builder import SourceBuilder, convert
from tfds_builders.formats import *
from tfds_builders.logs import EnvLoggerSource, build_from_logs
from tfds_builders.published import *

if TYPE_CHECKING:
    from tfds_builders.statistics import dataset_statistics
    from tfds_builders.streaming import episodes_from_logs, episodes_from_source

__all__ = [
    "EnvLoggerSource",
    "SourceBuilder",
    "build_from_logs",
    "convert",
    "dataset_statistics",
    "episodes_from_logs",
    "episodes_from_source",
]
__all__ += formats.__all__
__all__ += published.__all__

__version__: str

# What needs TensorFlow is imported when it is used.
_HOMES = {
    "tfds_builders.statistics": ["dataset_statistics"],
    "tfds_builders.streaming": ["episodes_from_logs", "episodes_from_source"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
