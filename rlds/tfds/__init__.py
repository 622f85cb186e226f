"""RLDS datasets in TFDS: features for your data, a writer of episodes, and a fast reader."""

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
