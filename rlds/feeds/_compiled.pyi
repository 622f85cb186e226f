"""Types of the compiled functions, which are documented in `rlds.feeds._pure`."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

class Buffers:
    def __init__(self, buffers: Sequence[npt.NDArray[np.uint8]]) -> None: ...
    def __len__(self) -> int: ...
    def gather(
        self,
        buffer_ids: npt.NDArray[np.int32],
        offsets: npt.NDArray[np.int64],
        width: int,
        out: npt.NDArray[np.uint8],
    ) -> None: ...
    def gather_steps(
        self,
        buffer_ids: npt.NDArray[np.int32],
        begins: npt.NDArray[np.int64],
        episodes: npt.NDArray[np.int64],
        steps: npt.NDArray[np.int64],
        stride: int,
        width: int,
        out: npt.NDArray[np.uint8],
    ) -> None: ...

def hash_many(
    values: npt.NDArray[np.int64] | npt.NDArray[np.uint64], key: int
) -> npt.NDArray[np.uint64]: ...
def locate(
    samples: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]: ...
def permute(positions: npt.NDArray[np.int64], size: int, key: int) -> npt.NDArray[np.int64]: ...
def unpermute(positions: npt.NDArray[np.int64], size: int, key: int) -> npt.NDArray[np.int64]: ...
