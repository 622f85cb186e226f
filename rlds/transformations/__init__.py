"""Transformations of datasets of steps and of episodes.

Every function takes an episode's steps in either layout, nested (a `tf.data.Dataset` of steps) or
batched (one dict of tensors with a leading time axis), and returns the same values in this layout.
The same holds for the `steps` of a dataset of episodes.
"""

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
