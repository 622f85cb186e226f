"""Riegeli/records: files of byte strings, compressed, checksummed, seekable.

Names, arguments and defaults are the same as in Google's `riegeli` package.
"""

from riegeli._core import IMPLEMENTATION as IMPLEMENTATION
from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
