"""Small shards of WebDataset, with the oddities of real ones."""

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def npy(array: Any) -> bytes:
    """The bytes of a `.npy` file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: Any) -> bytes:
    """The bytes of an `.npz` file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def image(seed: int, kind: str = "png") -> bytes:
    """The bytes of an image."""
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 6, 3), np.uint8)
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def write(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    """Writes a tar file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def episode(key: str, length: int, *, seed: int = 0) -> list[tuple[str, bytes]]:
    """The members of a sample with a whole episode."""
    rng = np.random.default_rng(seed)
    arrays = {
        "action": rng.random((length, 2), np.float32),
        "observation/joints": rng.random(length),
    }
    return [
        (f"{key}.steps.npz", npz(**arrays)),
        *((f"{key}.wrist.{row:06d}.png", image(row)) for row in range(length)),
        (f"{key}.meta.json", json.dumps({"seed": seed}).encode()),
        (f"{key}.state.npy", npy(rng.random((length, 3)))),
        (f"{key}.goal.npy", npy(np.arange(4))),
        (f"{key}.robot.cls", b"7"),
        (f"{key}.code.pyd", b"a pickle"),
    ]


def write_episodes(directory: Path) -> Path:
    """Two shards with four episodes; returns the folder."""
    ignored_files = [("dir.v1/README", b"has no ending"), ("__meta__/x.json", b"{}")]
    first = [*episode("dir.v1/ep1", 3, seed=1), *ignored_files, *episode("dir.v1/ep2", 2, seed=2)]
    again = [*episode("dir.v1/ep1", 4, seed=3), *episode("last", 1, seed=4)]
    write(directory / "a-000000.tar", first)
    write(directory / "a-000001.tar", again)
    return directory


def write_steps(directory: Path) -> Path:
    """A shard whose samples are steps."""
    members = [
        (f"{run}/{row:04d}.{field}", data)
        for run, length in (("run.v2/a", 3), ("run.v2/b", 2))
        for row in range(5, 5 + length)
        for field, data in (
            ("JPG", image(row, "jpeg")),
            ("action.npy", npy(np.full(2, row, np.float32))),
            ("reward.npy", npy(np.float64(row))),
            ("is_terminal.npy", npy(row == 4 + length)),
            ("instruction.txt", f"step {row} ü".encode()),
        )
    ]
    write(directory / "steps.tar", members)
    return directory
