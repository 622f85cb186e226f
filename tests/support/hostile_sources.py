"""Tests of sources with maliciously damaged raw data.

`FORMATS` has small raw data in every format. An input is one of them, mutated by a seed
(`mutated`): bytes flipped, files cut, pieces spliced, names exchanged, values of HDF5 and JSON
replaced and nested. Its source reads all of it (`outcome`); allowed are episodes, damaged episodes,
a `SourceError` and a `FileNotFoundError`. The suite tries a few inputs, and those of earlier
failures; `make fuzz` tries many (`try_many`), in processes with little memory.
"""

import contextlib
import faulthandler
import functools
import gzip
import io
import json
import mmap
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import google_crc32c
import h5py
import hostile_records
import numpy as np
import raw_agibot
import raw_aloha
import raw_bags
import raw_calvin
import raw_d3rlpy
import raw_d4rl
import raw_d4rl_pybullet
import raw_droid
import raw_imitation
import raw_layout
import raw_lerobot
import raw_maniskill
import raw_npz
import raw_ogbench
import raw_robomimic
import raw_robomind
import raw_sb3
import raw_webdataset
import raw_zarr
from file_watch import Watch

import envlogger
import riegeli
import rlds.sources
import tfds_builders
from envlogger.testing.catch_env import Catch
from rlds.formats.minari.hdf5_files import hdf5_writer
from rlds.formats.minari.spaces import Spaces, box
from rlds.formats.minari.storage import RawEpisode, StoredColumn
from rlds.formats.minari.tables import write_table
from rlds.formats.tfds.encoding import EpisodeEncoder
from rlds.formats.tfds.features import features_of
from rlds.sources import reading
from rlds.sources.registry import formats
from rlds.sources.source import AnySource, DamagedEpisode, SourceError
from rlds_ecosystem.model.fields import Field
from tfds_files import ExampleEncoder

# The contents of a directory: bytes by the paths of the files.
Files = dict[str, bytes]

MAX_SECONDS = 30
MAX_BYTES = 2 << 30


class Raw(NamedTuple):
    """A format of raw data.

    Attributes:
      write: Writes a few episodes to an empty directory.
      format: Its name.
      path: The path of the data in the directory.
      options: The options of the source; for `rlds.sources.open`, see `OPTIONS`.
    """

    write: Callable[[Path], Any]
    format: str
    path: str = ""
    options: Mapping[str, Any] = MappingProxyType({})

    def source(self, directory: Path) -> AnySource:
        """Makes the source of the data in a directory."""
        path = directory / self.path
        if self.format == "envlogger" and self.path:
            path = hostile_records.extracted_log(path)
        return formats()[self.format].source(path, **self.options)


# --- The formats ---------------------------------------------------------------------------------


def _d4rl(directory: Path, **options: Any) -> None:
    arrays = {
        **raw_d4rl.transitions((4, 5, 3), 3, 2),
        "terminals": raw_d4rl.flags(12, 3),
        "timeouts": raw_d4rl.flags(12, 8),
        **raw_d4rl.state(12, qpos=2),
        "metadata/algorithm": np.bytes_("SAC"),
        "metadata/policy/fc0/weight": np.ones((2, 3), np.float32),
    }
    with h5py.File(raw_d4rl.write(directory / "hopper.hdf5", arrays, **options), "a") as file:
        file.attrs["made by"] = "somebody"
        file["rewards"].attrs["unit"] = np.float32(1)


def _minari(directory: Path, *, data_format: str) -> None:
    data = directory / "toy-v0" / "data"
    data.mkdir(parents=True)
    spaces = {
        "observation_space": {
            "type": "Dict",
            "subspaces": {"x": box(np.dtype("f4"), (3,)), "text": {"type": "Text"}},
        },
        "action_space": {"type": "Tuple", "subspaces": [{"type": "Discrete", "n": 3}]},
    }
    parsed = Spaces()
    for group in ("observation", "action"):
        parsed.add(spaces[f"{group}_space"], f"{group}s")
    rng = np.random.default_rng(0)
    table_writer = functools.partial(write_table, data, parsed, data_format)
    is_hdf5 = data_format == "hdf5"
    with hdf5_writer(data) if is_hdf5 else contextlib.nullcontext(table_writer) as write:
        for index, steps in enumerate((2, 3)):
            flags = np.zeros(steps, bool)
            columns = {
                "observations/x": rng.random((steps + 1, 3), np.float32),
                "observations/text": np.array(["a", "ü", "", "dd"][: steps + 1], object),
                "actions/_index_0": np.arange(steps),
                "rewards": rng.random(steps),
                "terminations": flags,
                "truncations": ~flags,
                "infos/state/qpos": rng.random((steps + 1, 2)),
            }
            attributes = {"id": index, "total_steps": steps, "seed": 7, "options/x": "y"}
            fields = {path: Field(it.dtype, it.shape[1:]) for path, it in columns.items()}
            fields["observations/text"] = Field(str)
            write(
                index,
                RawEpisode(
                    {path: StoredColumn(fields[path], it) for path, it in columns.items()},
                    attributes,
                ),
            )
    metadata = {"total_episodes": 2, "total_steps": 5, "data_format": data_format}
    spaces = {name: json.dumps(space) for name, space in spaces.items()}
    (data / "metadata.json").write_text(json.dumps({**metadata, **spaces, "author": "Somebody"}))


def _logs(directory: Path) -> None:
    with envlogger.EnvLogger(
        Catch(),
        data_directory=os.fspath(directory),
        metadata={"agent": {"name": "x", "sizes": [1, 2]}},
        step_fn=lambda timestep, action, env: {"caught": np.float32(1), "note": "text"},
        episode_fn=lambda timestep, action, env: {"seed": 3} if timestep.last() else None,
    ) as env:
        for _ in range(2):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(1)


def _folder(directory: Path, *, file_format: str) -> None:
    source = rlds.sources.open(directory / "hopper.hdf5").source
    with contextlib.redirect_stdout(io.StringIO()):
        builder = tfds_builders.convert(
            source, name="toy", data_dir=directory / "made", file_format=file_format, progress=False
        )
    for file in Path(builder.data_path).iterdir():
        if file.is_file():
            shutil.copy(file, directory)
    shutil.rmtree(directory / "made")
    (directory / "hopper.hdf5").unlink()


def _write_folder(directory: Path, *, file_format: str) -> None:
    _d4rl(directory)
    _folder(directory, file_format=file_format)


def _exported(directory: Path, *, format: str, name: str, **options: Any) -> None:
    """Writes an export of data that the format cannot store without a sidecar."""
    _d4rl(directory)
    raw = directory / "hopper.hdf5"
    rlds.sources.export(raw, format, directory / name, verify=False, **options)
    raw.unlink()


def _zarr(directory: Path) -> None:
    raw_zarr.write_umi(directory / "a.zarr", lengths=(2, 3))
    for file in (directory / "a.zarr").iterdir():
        file.rename(directory / file.name)
    (directory / "a.zarr").rmdir()


# The formats of exports with a sidecar: the name of the dataset, and options.
EXPORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "minari": ("toy-v0", {}),
    "lerobot": ("data", {"fps": 10.0}),
    "webdataset": ("data", {}),
    "zarr": ("data", {}),
    "maniskill": ("data", {}),
    "d3rlpy": ("data.h5", {}),
    "robomimic": ("data.hdf5", {}),
    "mcap": ("data", {}),
}
FORMATS: dict[str, Raw] = {
    "d4rl": Raw(_d4rl, "d4rl", "hopper.hdf5"),
    "d4rl_plain": Raw(
        functools.partial(_d4rl, compression=None),
        *("d4rl", "hopper.hdf5", {"boundary": ["flags", "length"], "length": 3}),
    ),
    "d4rl_pybullet": Raw(
        lambda path: raw_d4rl_pybullet.write_pybullet(path / "a.hdf5", (3, 4), cut=True),
        *("d4rl_pybullet", "a.hdf5"),
    ),
    **{
        f"minari_{data_format}": Raw(
            functools.partial(_minari, data_format=data_format), "minari", "toy-v0"
        )
        for data_format in ("hdf5", "arrow", "parquet")
    },
    "aloha": Raw(
        lambda path: raw_aloha.write_folder(path, {0: 3, 1: 2}, images="padded", mobile=True),
        "aloha",
    ),
    "mcap": Raw(
        lambda path: raw_bags.write_mcap(path / "a.mcap", raw_bags.sample()),
        *("mcap", "", {"bag_config": raw_bags.CONFIG}),
    ),
    "rosbag_ros1": Raw(
        lambda path: raw_bags.write_ros1(path / "a.bag", raw_bags.sample(ros1=True), "lz4"),
        *("rosbag", "", {"bag_config": raw_bags.CONFIG}),
    ),
    "rosbag_sqlite": Raw(
        lambda path: raw_bags.write_ros2(path / "bag", raw_bags.sample()),
        *("rosbag", "bag", {"bag_config": raw_bags.CONFIG}),
    ),
    "calvin": Raw(lambda path: raw_calvin.write(path, splits=("training",)), "calvin"),
    "lerobot": Raw(
        lambda path: raw_lerobot.write_v3(path, codecs={raw_lerobot.TOP: "h264"}), "lerobot"
    ),
    "lerobot_2": Raw(raw_lerobot.write_v2, "lerobot"),
    "webdataset": Raw(raw_webdataset.write_episodes, "webdataset"),
    "zarr": Raw(_zarr, "zarr"),
    **{
        f"robomimic_{name}": Raw(
            lambda path, write=write: write(path / "demos.hdf5"), "robomimic", opened
        )
        for name, write, opened in (
            ("all", raw_robomimic.robomimic, "demos.hdf5"),
            ("isaac_lab", raw_robomimic.isaac_lab, ""),
        )
    },
    "ogbench": Raw(
        lambda path: np.savez_compressed(path / "cube-play-v0.npz", **raw_ogbench.arrays()),
        "ogbench",
    ),
    "maniskill": Raw(
        lambda path: raw_maniskill.write(path / "t.h5", {0: 2, 1: 3}, entries=[1, 0, 3]),
        "maniskill",
    ),
    "droid": Raw(lambda path: raw_droid.write_folder(path, (3, 2)), "droid"),
    "agibot": Raw(raw_agibot.write_sound, "agibot"),
    "robomind": Raw(
        lambda path: raw_robomind.write_folder(path, {"train/1": 3, "train/2": 2}, text="ü"),
        "robomind",
    ),
    "d3rlpy": Raw(lambda path: raw_d3rlpy.write(path / "a.h5"), "d3rlpy", "a.h5"),
    "imitation": Raw(raw_imitation.write, "imitation"),
    "sb3": Raw(lambda path: raw_sb3.write(path / "a.pkl"), "sb3", "a.pkl"),
    "layout": Raw(raw_layout.write, "layout"),
    "npz": Raw(lambda path: raw_npz.write_folder(path, raw_npz.sample()), "npz"),
    "logs": Raw(_logs, "envlogger"),
    **{
        f"exported_{format}": Raw(
            functools.partial(_exported, format=format, name=name, **options), format, name
        )
        for format, (name, options) in EXPORTS.items()
    },
    **{
        f"folder_{file_format}": Raw(
            functools.partial(_write_folder, file_format=file_format), "tfds"
        )
        for file_format in ("tfrecord", "array_record", "parquet")
    },
    **{name: Raw(*raw_args) for name, raw_args in hostile_records.FORMATS.items()},
}


# The path to open in the directory, and the format.
OPENED = {name: (raw.path, raw.format) for name, raw in FORMATS.items()}
# Formats that `rlds.sources.open` detects, and its options.
NAMES = [name for name in FORMATS if not name.startswith(("logs_", "exported_"))]
OPTIONS = {
    name: {"camera_shape": (2, 3, 3)} for name in ("rlu_locomotion", "rlu_locomotion_windows")
}


def write_raw(name: str, directory: Path) -> Path:
    """Writes raw data of a format; returns the path to open."""
    directory.mkdir(exist_ok=True)
    FORMATS[name].write(directory)
    return directory / FORMATS[name].path


def open_raw(name: str, directory: Path) -> rlds.sources.Episodes:
    """Writes raw data of a format, and opens it."""
    return rlds.sources.open(write_raw(name, directory), "all", **OPTIONS.get(name, {}))


def write_all(root: Path) -> None:
    """Writes intact data of every format, each in its own directory."""
    for name in NAMES:
        for path, data in files_of(name).items():
            file = root / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


@functools.cache
def files_of(name: str) -> Mapping[str, bytes]:
    """Returns the intact files of a format."""
    with tempfile.TemporaryDirectory() as directory:
        FORMATS[name].write(Path(directory))
        return {
            os.fspath(path.relative_to(directory)): path.read_bytes()
            for path in sorted(Path(directory).rglob("*"))
            if path.is_file() and ".rlds" not in path.parts  # Not the caches.
        }


# --- Mutations -----------------------------------------------------------------------------------

_LIMITS = (0, 1, 2, 7, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40)
_LIMITS += (2**63 - 1, 2**63, 2**64 - 1)


def flip(content: bytes, rng: random.Random) -> bytes:
    """Changes a few bytes, or overwrites some with a limit of integers."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        # Headers are at the beginning, or at the end.
        end = rng.choice((len(changed), min(len(changed), 200)))
        offset = rng.randrange(end)
        offset = rng.choice((offset, offset, len(changed) - 1 - offset))
        kind = rng.randrange(4)
        if kind == 0:
            changed[offset] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[offset] = rng.choice((0, 255, rng.randrange(256)))
        else:
            size = rng.choice((1, 2, 4, 8))
            limit = rng.choice(_LIMITS) % 256**size
            order = rng.choice(("little", "big"))
            changed[offset : offset + size] = limit.to_bytes(size, order)[: len(changed) - offset]
    return bytes(changed)


def cut(content: bytes, rng: random.Random) -> bytes:
    """Removes a piece, most often the end."""
    begin = rng.randrange(len(content) + 1)
    end = rng.choice((len(content), min(len(content), begin + rng.choice((1, 8, 100)))))
    return content[:begin] + content[end:]


def splice(content: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """Puts a piece of another file, or of the same, somewhere."""
    other = other or content
    begin = rng.randrange(len(other) + 1)
    piece = other[begin : begin + rng.choice((1, 4, 8, 64, 512, 4096))]
    offset = rng.randrange(len(content) + 1)
    return content[:offset] + piece + content[offset + rng.choice((0, len(piece))) :]


_BYTES = (flip, flip, cut, splice)


def _odd_value(rng: random.Random, valid: Any = None) -> Any:
    """Returns an unexpected value of JSON."""
    deep: Any = []
    for _ in range(rng.choice((3, 70, 3000)) if rng.randrange(10) == 0 else 1):
        deep = [deep] if rng.randrange(2) else {"x": deep}
    return rng.choice(
        (
            *(None, True, -1, 0, 1, 10**9, 2**63, 10**400, 1.5, float("nan"), float("inf")),
            *("", "x", "\udcff", "../../secret", os.fspath(canary()), "float99", "a/b", "\x00"),
            *([], {}, [1, "a", None], {"": 1}, {"type": "Box"}, deep, [valid], {"x": valid}, valid),
            *([0] * 3, [2**40, 2**40], [-1], "1" * 5000),
        )
    )


def mutate_json(value: Any, rng: random.Random) -> Any:
    """Replaces, removes or adds a value somewhere in a nest."""
    if isinstance(value, dict) and value and rng.randrange(6):
        name = rng.choice(sorted(value))
        kind = rng.randrange(8)
        if kind == 0:
            return {key: child for key, child in value.items() if key != name}
        if kind == 1:
            return {**value, rng.choice(("", "x", "a/b", name + name)): value[name]}
        return {**value, name: mutate_json(value[name], rng)}
    if isinstance(value, list) and value and rng.randrange(6):
        index = rng.randrange(len(value))
        return [*value[:index], mutate_json(value[index], rng), *value[index + 1 :]]
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.randrange(6):  # JSON in JSON.
        with contextlib.suppress(ValueError):
            return json.dumps(mutate_json(json.loads(value), rng))
    return _odd_value(rng, value)


def _json(content: bytes, rng: random.Random) -> bytes:
    return json.dumps(mutate_json(json.loads(content), rng)).encode()


def _hdf5(content: bytes, rng: random.Random) -> bytes:
    """Changes objects, links and attributes of a file of HDF5."""
    memory = io.BytesIO(content)
    with h5py.File(memory, "a") as file, contextlib.suppress(*_H5PY_ERRORS):
        for _ in range(rng.choice((1, 1, 2))):
            _change_hdf5(file, rng)
    return memory.getvalue()


# Raised by impossible mutations.
_H5PY_ERRORS = (OSError, KeyError, ValueError, TypeError, RuntimeError)


def _change_hdf5(file: Any, rng: random.Random) -> None:
    paths: list[str] = []
    file.visit(paths.append)
    path = rng.choice(paths)
    kind = rng.randrange(9)
    group = file[path] if isinstance(file[path], h5py.Group) else file[path].parent
    name = rng.choice((path.rpartition("/")[2], "x", *map(str, group)))
    if kind <= 4 and name in group:
        old = group[name]
        old_shape, old_dtype = getattr(old, "shape", (3,)), getattr(old, "dtype", np.dtype("f4"))
        if rng.randrange(2):
            group.move(name, f"{name} before")
        else:
            del group[name]
    else:
        old_shape, old_dtype = (12,), np.dtype("f4")
    if kind == 0:
        _link_hdf5(group, name, rng)
    elif kind == 1:
        nested = group.create_group(name)
        for depth in range(rng.choice((0, 1, 40))):
            inner = nested.create_group("g")
            nested["again"] = inner if depth % 2 else nested
            nested = inner
        nested[name] = np.zeros(old_shape or ())
    elif kind in (2, 3):
        _create_hdf5(group, name, old_shape, old_dtype, rng)
    elif kind == 4:
        group[name] = np.dtype("f4")
    else:
        item = file[path]
        attribute = rng.choice((*item.attrs, "id", "total_steps", "seed", "options/x/y", "odd"))
        value = rng.choice(
            (
                *(-1, 2**63, 1.5, "text", b"\xff", h5py.Empty("f4"), [1, 2], np.zeros((2, 0))),
                *(item.ref, np.array([item.ref] * 2, h5py.ref_dtype), "x" * 60_000),
                *(
                    np.array(["a", "b"], object),
                    np.complex64(1),
                    np.float16(1),
                    np.zeros(3, "i1,f4"),
                ),
            )
        )
        del item.attrs[attribute]
        item.attrs[attribute] = value


def _link_hdf5(group: Any, name: str, rng: random.Random) -> None:
    elsewhere = os.fspath(canary())
    kind = rng.randrange(6)
    if kind == 0:
        group[name] = h5py.SoftLink(rng.choice(("/", "/nowhere", f"/{name}", "..", "")))
    elif kind == 1:
        group[name] = h5py.ExternalLink(elsewhere, rng.choice(("/", "/rewards")))
    elif kind == 2:
        group[name] = rng.choice((group, group.file["/"], *group.values()))
    elif kind == 3:
        group.create_dataset(name, (12,), "f4", external=[(elsewhere, 0, 48)])
    else:
        layout = h5py.VirtualLayout((12,), "f4")
        layout[...] = h5py.VirtualSource(rng.choice((".", elsewhere)), "rewards", (12,))
        group.create_virtual_dataset(name, layout)


def _create_hdf5(group: Any, name: str, shape: Any, dtype: Any, rng: random.Random) -> None:
    shape = tuple(shape or ())
    shape = rng.choice(
        (
            *(shape, (), (0,), (1,), (12,), shape[:-1], (*shape, 0), (*shape, 1), (*shape, 2)),
            *((2**40,), (*shape[:1], 2**40), (12, 2**31), tuple(2**20 for _ in shape)),
        )
    )
    dtypes = (
        *(dtype, "f2", "f4", "f8", ">f8", "i1", "u8", "c16", "S5", "S1", bool, "i4,f4", "(2,3)f4"),
        *(h5py.string_dtype(), h5py.string_dtype("ascii"), h5py.vlen_dtype("u1"), h5py.ref_dtype),
        *(h5py.enum_dtype({"a": 1, "b": 7}), h5py.regionref_dtype, "V7"),
    )
    if rng.randrange(8) == 0:
        group[name] = h5py.Empty("f4")
        return
    chunks = tuple(max(1, min(size, 4)) for size in shape) or None
    is_large = np.prod(shape, dtype=float) > 1e4
    dataset = group.create_dataset(
        name,
        shape,
        rng.choice(dtypes),
        chunks=chunks if is_large or (chunks and rng.randrange(2)) else None,
        maxshape=tuple(None for _ in shape) if chunks and is_large else None,
        fillvalue=rng.choice((None, None, 1)) if not is_large else None,
    )
    if not is_large and shape and dataset.dtype.kind in "fiu":
        dataset[...] = rng.choice((0, 1, 2, 100))


def _crc(data: bytes) -> int:
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_tfrecords(content: bytes) -> list[bytes]:
    """Returns the records of an intact file."""
    records, offset = [], 0
    while offset < len(content):
        (length,) = struct.unpack_from("<Q", content, offset)
        records.append(content[offset + 12 : offset + 12 + length])
        offset += length + 16
    return records


def write_tfrecords(records: list[bytes]) -> bytes:
    """Returns a file with these records."""
    pieces = []
    for record in records:
        header = struct.pack("<Q", len(record))
        pieces += [header, struct.pack("<I", _crc(header)), record, struct.pack("<I", _crc(record))]
    return b"".join(pieces)


def _read_riegeli(content: bytes) -> list[bytes]:
    with riegeli.RecordReader(io.BytesIO(content)) as reader:
        return list(reader.read_records())


def _write_riegeli(records: list[bytes]) -> bytes:
    memory = io.BytesIO()
    writer = riegeli.RecordWriter(memory, close=False, options="uncompressed")
    with writer:
        writer.write_records(records)
    return memory.getvalue()


def _in_records(
    read: Callable[[bytes], list[bytes]], write: Callable[[list[bytes]], bytes]
) -> Callable[[bytes, random.Random], bytes]:
    """Returns a mutation of the records of a file, which writes valid checksums."""

    def mutate(content: bytes, rng: random.Random) -> bytes:
        records = read(content)
        if not records:
            return content
        index = rng.randrange(len(records))
        kind = rng.randrange(8)
        if kind == 0:
            del records[index]
        elif kind == 1:
            records.insert(index, rng.choice(records))
        else:
            records[index] = rng.choice(_BYTES)(records[index], rng)
        return write(records)

    return mutate


def _change(content: bytes, rng: random.Random) -> bytes:
    return rng.choice(_BYTES)(content, rng)


def _in_gzip(content: bytes, rng: random.Random) -> bytes:
    return gzip.compress(rng.choice(_BYTES)(gzip.decompress(content), rng), 1)


# Mutations of the structure of files, by the endings of their names.
STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".hdf5": _hdf5,
    **dict.fromkeys((".json", ".zarray", ".zattrs"), _json),
    ".h5": _hdf5,
    ".riegeli": _in_records(_read_riegeli, _write_riegeli),
    **{
        end: functools.partial(mutate, change=_change)
        for end, mutate in hostile_records.MUTATIONS.items()
    },
    ".gz": _in_gzip,
}


def _structured(name: str) -> Callable[[bytes, random.Random], bytes] | None:
    if "tfrecord" in name:
        return _in_records(read_tfrecords, write_tfrecords)
    return next((mutate for end, mutate in STRUCTURED.items() if name.endswith(end)), None)


# Stands for a named pipe: a reader that opens it waits forever.
PIPE = b"a pipe"
_ODD_NAMES = ("x", "data", "-1", "0", "episode_9", "é\udcff", "a b", "%s", "." * 20, "n" * 200)


def rename(files: Files, rng: random.Random) -> Files:
    """Renames, exchanges, removes or moves a file, or replaces it by a pipe."""
    name, other = rng.choice(sorted(files)), rng.choice(sorted(files))
    kind = rng.randrange(5)
    changed = dict(files)
    if kind == 4:
        changed[name] = PIPE
    elif kind == 0:
        changed[name], changed[other] = files[other], files[name]
    elif kind == 1:
        del changed[name]
    else:
        directory = name.rpartition("/")[0]
        target = rng.choice((directory, directory.rpartition("/")[0], name))
        content = changed.pop(name)
        changed[f"{target}/{rng.choice(_ODD_NAMES)}".lstrip("/")] = content
    return changed


def mutated(name: str, seed: int) -> Files:
    """Returns an input: the files of a format with mutations."""
    rng = random.Random(f"{name} {seed}")
    files = dict(files_of(name))
    for _ in range(rng.choice((1, 1, 1, 2))):
        if not files:
            break
        if rng.randrange(12) == 0:
            files = rename(files, rng)
            continue
        chosen = rng.choice(sorted(files))
        structured = _structured(chosen)
        content = files[chosen]
        if structured is not None and rng.randrange(2):
            with contextlib.suppress(Exception):  # A first mutation may have broken the structure.
                files[chosen] = structured(content, rng)
        else:
            mutate = rng.choice(_BYTES)
            if mutate is splice:
                files[chosen] = splice(content, rng, files[rng.choice(sorted(files))])
            else:
                files[chosen] = mutate(content, rng)
    return files


# --- Outcomes -------------------------------------------------------------------------------------


@functools.cache
def scratch() -> Path:
    """A directory for inputs, in memory if possible."""
    shm = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="hostile-", dir=shm if os.access(shm, os.W_OK) else None))


@functools.cache
def canary() -> Path:
    """A file that no source may read."""
    path = scratch() / "canary.hdf5"
    with h5py.File(path, "w") as file:
        file["rewards"] = np.zeros(12, np.float32)
    return path


class _OpenedFiles:
    """The files that this process opens through Python after `start`.

    Threads that earlier tests have left are ignored.
    """

    def __init__(self) -> None:
        self.paths: list[str] | None = None
        self._other_threads: set[int | None] = set()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self.paths is None or threading.get_ident() in self._other_threads:
            return
        if isinstance(arguments[0], str | bytes):
            # rmtree opens subdirectories by names relative to a descriptor.
            if sys._getframe(1).f_globals.get("__name__") == "shutil":
                return
            self.paths.append(os.fsdecode(arguments[0]))

    def start(self) -> None:
        """Begins the list of paths."""
        self._other_threads = {thread.ident for thread in threading.enumerate()} - {
            threading.get_ident()
        }
        self.paths = []


_opened_files = functools.cache(_OpenedFiles)
# Modules are loaded late, and libraries look up the processors.
_HARMLESS = (sys.prefix, sys.base_prefix, os.fspath(Path(__file__).parents[2]), "/proc/", "/sys/")
# Temporary copies for readers; entries of editable installations in `sys.path`.
_HARMLESS += (os.path.join(tempfile.gettempdir(), "rlds-"), "__editable__.")


def pack(files: Files, archive: Path) -> None:
    """Stores an input, to try it again."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path, content in files.items():
            file.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)


def unpack(archive: Path) -> Files:
    """Returns a stored input."""
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name) for name in file.namelist()}


def write(files: Files, directory: Path) -> None:
    """Writes files to a directory, except those with impossible names."""
    for path, content in files.items():
        with contextlib.suppress(OSError, ValueError):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            if content == PIPE:
                os.mkfifo(directory / path)
            else:
                (directory / path).write_bytes(content)


def read_all(source: AnySource) -> Counter[str]:
    """Reads everything of a source, and encodes its episodes as examples."""
    counts: Counter[str] = Counter()
    with reading.errors_of(source):
        examples = source.capabilities.examples
        features = features_of(source) if examples is None else examples.folder.features
        encoder = EpisodeEncoder(
            ExampleEncoder(features), source.source_info.finite_fields, checks=examples is None
        )
        json.dumps([dict(source.source_info.metadata), dict(source.source_info.options)])
        source.inputs()
        parts = [(split, part) for split in source.splits for part in reading.parts(source, split)]
        for split in source.splits:
            reading.count(source, split)
            if (totals := source.capabilities.totals) is not None:
                totals(split)
    for split, part in parts:
        for episode in reading.episodes(source, split, part):
            if isinstance(episode, DamagedEpisode):
                counts["damaged"] += 1
                if episode.ends_part:
                    break
            else:
                try:
                    encoder.encode(episode)
                except (SourceError, ValueError):
                    counts["not encoded"] += 1
            counts["episodes"] += 1
    return counts


def _keeps_hdf5_busy(content: bytes) -> bool:
    """Whether a heap in a file has an object of size 0, which HDF5 1.14 and 2.0 read forever."""
    for heap in re.finditer(b"GCOL", content):
        offset = heap.start() + 16
        end = heap.start() + int.from_bytes(content[offset - 8 : offset], "little")
        while offset + 16 <= min(end, len(content)):
            object_id, size = struct.unpack_from("<H6xQ", content, offset)
            step = (16 + (size + 7 & ~7) if object_id else size) & 2**64 - 1
            if not step:
                return True
            offset += step
    return False


def outcome(name: str, files: Files) -> str:
    """Returns the outcome of an input: "read", "damaged", "refused", or "missing".

    It is "endless" without a try if HDF5 would read the input forever. The guide to datasets
    warns of these.

    Raises:
      AssertionError: The source read a foreign file.
      Exception: Any other error of the source: a finding.
    """
    if any(map(_keeps_hdf5_busy, files.values())):
        return "endless"
    directory = Path(tempfile.mkdtemp(dir=scratch()))
    watch, opened = Watch(canary()), _opened_files()
    try:
        write(files, directory)
        opened.start()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                counts = read_all(FORMATS[name].source(directory))
            result = "damaged" if counts["damaged"] or counts["not encoded"] else "read"
        except SourceError:
            result = "refused"
        except FileNotFoundError:
            result = "missing"
        paths, opened.paths = opened.paths, None
        assert not watch.was_opened(), "another file was read"
        own = (os.fspath(directory), *_HARMLESS)
        foreign_paths = [path for path in paths if not path.startswith(own)]
        assert not foreign_paths, f"other files were opened: {foreign_paths}"
        return result
    finally:
        opened.paths = None
        watch.close()
        shutil.rmtree(directory, ignore_errors=True)


# --- Many inputs ----------------------------------------------------------------------------------


class _SharedSeed:
    """The seed of the current input of a process, shared with the process that watches it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    def put(self, seed: int) -> None:
        struct.pack_into("<q", self._memory, 0, seed)

    def get(self) -> int:
        return int(struct.unpack_from("<q", self._memory)[0])


def _work(name: str, begin: int, end: int, shared: _SharedSeed, log: Path) -> None:
    """Tries inputs in this process, until one kills it, or the last one."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, used + MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # The process that watches logs the reason.
    for seed in range(begin, end):
        shared.put(seed)
        try:
            outcome(name, mutated(name, seed))
        except BaseException as error:
            words = " ".join(str(error).split())[:300]
            lines = traceback.format_exception(error, limit=-8)
            with log.open("a", errors="backslashreplace") as file:
                file.write(f"{name} {seed}: {type(error).__name__}: {words!a}\n")
                file.writelines("    " + line.replace("\n", "\n    ").rstrip(" ") for line in lines)
    shared.put(end)


def try_many(name: str, begin: int, end: int, log: Path) -> None:
    """Tries inputs in processes of their own; logs the findings."""
    while begin < end:
        shared = _SharedSeed()
        shared.put(begin)
        pid = os.fork()
        if not pid:
            try:
                _work(name, begin, end, shared, log)
            finally:
                os._exit(0)
        reason = _wait(pid, shared)
        begin = shared.get()
        if begin < end:
            with log.open("a") as file:
                file.write(f"{name} {begin}: {reason}\n")
            begin += 1


def _wait(pid: int, shared: _SharedSeed) -> str:
    """Waits for a process that tries inputs, and kills it if it hangs; returns the reason."""
    seen, since = shared.get(), time.monotonic()
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return f"ended by the signal {os.waitstatus_to_exitcode(status)}"
        if shared.get() != seen:
            seen, since = shared.get(), time.monotonic()
        elif time.monotonic() - since > MAX_SECONDS:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"more than {MAX_SECONDS} s"
        time.sleep(0.02)
