"""Where things are kept that can be made again, if not beside the data."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder(kind: str, of: str) -> Path | None:
    """Returns the folder for what is made of some data; it need not exist.

    It is in `RLDS_CACHE_DIR`, or else in the folder `rlds` of `XDG_CACHE_HOME`.

    Args:
      kind: What is kept in it.
      of: What names the data: the real path of a folder, say.

    Returns:
      The folder; None for users who have no home.
    """
    cache = os.environ.get("RLDS_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "rlds"
    )
    key = hashlib.sha256(os.fsencode(of)).hexdigest()[:32]
    place = Path(os.path.expanduser(cache), kind, key)
    return None if place.parts[0] == "~" else place
