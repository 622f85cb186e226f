"""Small replay buffers, as Diffusion Policy and UMI write them, with the library zarr."""

from pathlib import Path
from typing import Any

import numpy as np
import zarr
from imagecodecs.numcodecs import Jpeg2k, Jpegxl, register_codecs
from numcodecs import Blosc, Zlib

register_codecs(verbose=False)

Arrays = dict[str, np.ndarray]

DEFAULT = Blosc("lz4", clevel=5, shuffle=Blosc.NOSHUFFLE)
DISK = Blosc("zstd", clevel=5, shuffle=Blosc.BITSHUFFLE)
LENGTHS = (4, 2, 6)
POSES = ("robot0_demo_start_pose", "robot0_demo_end_pose")


def pusht(lengths: tuple[int, ...] = LENGTHS, *, aborted: int = 0, seed: int = 0) -> Arrays:
    """Arrays of PushT, without `episode_ends`; some rows belong to no episode."""
    rows = sum(lengths) + aborted
    rng = np.random.default_rng(seed)
    return {
        "img": rng.integers(0, 256, (rows, 6, 8, 3)).astype("f4"),
        "state": rng.random((rows, 5), np.float32),
        "action": rng.random((rows, 2), np.float32),
        "keypoint": rng.random((rows, 9, 2), np.float32),
        "n_contacts": rng.integers(0, 3, (rows, 1)).astype("f4"),
        "timestamp": np.arange(rows) / 10,
        "stage": rng.integers(0, 2, rows),
    }


def umi(lengths: tuple[int, ...] = LENGTHS, *, seed: int = 0) -> Arrays:
    """Arrays of UMI: images, constant poses, and no action."""
    rows = sum(lengths)
    rng = np.random.default_rng(seed)
    poses = {name: np.repeat(rng.random((len(lengths), 6)), lengths, 0) for name in POSES}
    ramp = np.arange(16 * 24 * 3).reshape(16, 24, 3)
    return {
        "camera0_rgb": np.stack([(ramp + 9 * row) % 256 for row in range(rows)]).astype("u1"),
        "robot0_eef_pos": rng.random((rows, 3), np.float32),
        "robot0_eef_rot_axis_angle": rng.random((rows, 3), np.float32),
        "robot0_gripper_width": rng.random((rows, 1), np.float32),
        **poses,
    }


def write(
    path: Path,
    arrays: Arrays,
    lengths: tuple[int, ...] = LENGTHS,
    *,
    compressors: dict[str, Any] | None = None,
    chunks: dict[str, tuple[int, ...]] | None = None,
    meta: Arrays | None = None,
    write_empty_chunks: bool = True,
) -> Path:
    """Writes a folder, or an archive if the name of the path ends in `.zip`.

    All chunks are written, as by Zarr 2, or only those with other values than 0, as by Zarr 3.
    """
    is_archive = path.suffix == ".zip"
    store: Any = zarr.storage.ZipStore(path, mode="w") if is_archive else path
    attributes = {"made by": "somebody"}
    root = zarr.open_group(store, mode="w", zarr_format=2, attributes=attributes)
    data = root.create_group("data")
    root.create_group("meta")
    for name, values in arrays.items():
        default = (5, *values.shape[1:])
        array = data.create_array(
            name,
            shape=values.shape,
            chunks=(chunks or {}).get(name, default),
            dtype=values.dtype,
            compressors=(compressors or {}).get(name, DEFAULT),
            attributes={"frame": "world"} if name == "action" else {},
            config={"write_empty_chunks": write_empty_chunks},
        )
        array[:] = values
    meta_arrays = {"episode_ends": np.cumsum(lengths), **(meta or {})}
    for name, values in meta_arrays.items():
        array = root["meta"].create_array(
            name, shape=values.shape, dtype=values.dtype, chunks=values.shape, compressors=None
        )
        array[...] = values
    if is_archive:
        store.close()
    return path


def write_pusht(path: Path, **options: Any) -> Path:
    """A buffer of PushT, with several codecs and shapes of chunks."""
    aborted = options.pop("aborted", 0)
    return write(
        path,
        pusht(aborted=aborted),
        compressors={"img": DISK, "keypoint": Zlib(3), "stage": None},
        chunks={"img": (1, 6, 8, 3), "keypoint": (5, 4, 2), "state": (100, 5)},
        meta={"rate": np.array(10.0), "seeds": np.array([7, 8, 9]), "joints": np.arange(4.0)},
        **options,
    )


def write_umi(path: Path, *, codec: Any = None, lengths: tuple[int, ...] = LENGTHS) -> Path:
    """A buffer of UMI: each frame is a file."""
    if codec is None:
        codec = Jpegxl(level=90, lossless=False)
    return write(
        path,
        umi(lengths),
        lengths,
        compressors={"camera0_rgb": codec},
        chunks={"camera0_rgb": (1, 16, 24, 3)},
    )


def jpeg2k() -> Any:
    """The codec of images of Diffusion Policy."""
    return Jpeg2k(level=50)


def read_all(path: Path) -> dict[str, np.ndarray]:
    """All arrays, as zarr reads them."""
    store: Any = zarr.storage.ZipStore(path, mode="r") if path.suffix == ".zip" else path
    root = zarr.open_group(store, mode="r", zarr_format=2)
    members = root.members(max_depth=None)
    return {name: array[...] for name, array in members if isinstance(array, zarr.Array)}
