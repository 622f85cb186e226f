"""Former names of `rlds.sources.sidecar`, while formats move to it."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from rlds.sources.sidecar import (
    SIDECAR_BYTES as ASIDE_BYTES,
)
from rlds.sources.sidecar import (
    SIDECAR_ENDS as ASIDE_ENDS,
)
from rlds.sources.sidecar import (
    SIDECAR_TEXT as ASIDE_TEXT,
)
from rlds.sources.sidecar import Sidecar as Aside
from rlds.sources.sidecar import SidecarWriter as AsideWriter
from rlds.sources.sidecar import StoredSidecar as KeptAside
from rlds.sources.sidecar import as_array

__all__ = [
    "ASIDE_BYTES",
    "ASIDE_ENDS",
    "ASIDE_TEXT",
    "Aside",
    "AsideFolder",
    "AsideRows",
    "AsideWriter",
    "KeptAside",
    "as_array",
]


class AsideFolder(KeptAside):
    """A sidecar in a folder."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        found = KeptAside.in_folder(directory)
        if found is None:
            raise FileNotFoundError(f"{os.fspath(directory)!r} has no sidecar")
        vars(self).update(vars(found))

    @staticmethod
    def exists(directory: str | os.PathLike[str]) -> bool:
        """Whether there is one."""
        return KeptAside.in_folder(directory) is not None


def AsideRows(  # noqa: N802
    place: str | os.PathLike[str],
    text: np.ndarray,
    ends: np.ndarray,
    rows: Callable[[int, int], np.ndarray],
) -> KeptAside:
    """Returns a sidecar in arrays."""
    return KeptAside.in_arrays(place, text, ends, rows)
