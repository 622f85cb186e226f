"""Builders that turn recorded or downloaded data into RLDS datasets, written by TFDS.

Importing this package registers its builders with TensorFlow Datasets, for `tfds.load`.
The first conversion loads TensorFlow.
"""

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

from rlds_ecosystem.lazy import lazy_package as _lazy_package
from tfds_builders import formats, published
from tfds_builders.formats import *
from tfds_builders.published import *

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
__all__ += formats.__all__
__all__ += published.__all__
