"""Formats without HDF5 for `hostile_sources`: pickles, archives, RL Unplugged, replay buffers.

The mutations here look into files: at the instructions of a pickle, the fields of an example, the
members of an archive. They keep checksums and lengths valid, so that the damage reaches deep code.
"""

import gzip
import io
import pickle
import pickletools
import random
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import raw_atari_dqn_replay
import raw_rlds_creator
import raw_rlu
import tensorflow as tf
from etils import epath

import envlogger
from envlogger.testing.catch_env import Catch
from rlds.formats.google_creator import pickles
from rlds.raw_files import restricted_pickle
from rlds.raw_files.archives import extract

# Changes bytes of any format.
Change = Callable[[bytes, random.Random], bytes]

# --- The formats ---------------------------------------------------------------------------------

_SHAPE = (6, 4)
_EPISODES = [
    raw_rlds_creator.make_episode(0, 3, placed=2, tags=("good",), notes="slow"),
    raw_rlds_creator.make_episode(1, 2, end="truncation"),
    raw_rlds_creator.make_episode(2, 2, end="nothing", old_metadata=True),
]
_PRODUCTS: dict[str, Callable[[], list[Any]]] = {
    "atari": lambda: raw_rlu.atari_episodes((3, 2), _SHAPE),
    "atari_transitions": lambda: raw_rlu.atari_transitions((3, 2), _SHAPE),
    "bsuite": raw_rlu.bsuite_windows,
    "control_suite": raw_rlu.control_suite_episodes,
    "control_suite_windows": raw_rlu.control_suite_windows,
    "dmlab": lambda: raw_rlu.dmlab_episodes(2, 3, shape=_SHAPE),
    "locomotion": lambda: raw_rlu.locomotion_episodes(camera=(2, 3, 3)),
    "locomotion_windows": lambda: raw_rlu.locomotion_windows(camera=(2, 3, 3)),
    "rwrl": raw_rlu.rwrl_episodes,
}


def _replay(directory: Path) -> None:
    played = [
        raw_atari_dqn_replay.episode(steps, terminal=steps % 2 == 0, seed=steps)
        for steps in (4, 3, 6, 2)
    ]
    rows = raw_atari_dqn_replay.record(played)
    raw_atari_dqn_replay.write_run(directory / "Pong" / "1", rows, capacity=16)


def _log_files(directory: Path) -> list[Path]:
    log = directory / "log"
    log.mkdir()
    with envlogger.EnvLogger(Catch(), data_directory=str(log)) as env:
        timestep = env.reset()
        while not timestep.last():
            timestep = env.step(1)
    return sorted(path for path in log.rglob("*") if path.is_file())


def _tar_of_log(directory: Path) -> None:
    with tarfile.open(directory / "log.tar.gz", "w:gz") as archive:
        for file in _log_files(directory):
            archive.add(file, file.relative_to(directory))
            file.unlink()


def _zip_of_log(directory: Path) -> None:
    with zipfile.ZipFile(directory / "log.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in _log_files(directory):
            archive.write(file, file.relative_to(directory))
            file.unlink()


def extracted_log(path: Path) -> epath.Path:
    """Extracts the log of an archive; returns its directory."""
    archive = epath.Path(path)
    if not archive.exists():
        raise FileNotFoundError(path)
    return extract(archive, archive.parent / "extracted")


# For each format: its writer, its name, the path to open in the directory, the options.
_CAMERAS = {name: {"camera_shape": (2, 3, 3)} for name in ("locomotion", "locomotion_windows")}
FORMATS: dict[str, tuple[Any, ...]] = {
    "creator": (
        lambda path: raw_rlds_creator.write_directory(path, _EPISODES),
        *("rlds_creator", "", {"truncate_at_tag": "placed"}),
    ),
    "creator_zip": (
        lambda path: raw_rlds_creator.write_zip(path / "download.zip", _EPISODES),
        *("rlds_creator", "download.zip"),
    ),
    "dqn_replay": (_replay, "atari_dqn_replay"),
    "logs_tar": (_tar_of_log, "envlogger", "log.tar.gz"),
    "logs_zip": (_zip_of_log, "envlogger", "log.zip"),
    **{
        f"rlu_{name}": (
            lambda path, make=make: raw_rlu.write_files(path, "run_1", make(), compression=""),
            *(f"rlu_{name}", "", _CAMERAS.get(name, {})),
        )
        for name, make in _PRODUCTS.items()
    },
}

# --- Mutations -----------------------------------------------------------------------------------

_ALLOWED = {**restricted_pickle._ALLOWED_NAMES, **pickles.NAMES}
_INSTRUCTIONS = [
    *(bytes([code]) for code in b"]}()Nt.a2sueld0Rb\x81\x85\x86\x87\x88\x8f\x90\x91\x92\x93\x94"),
    *(b"K\1", b"I-5\n", b"G\x7f\xf8" + bytes(6), b"X\1\0\0\0a", b"C\2ab", b"h\0", b"h\5", b"q\0"),
    *(b"\x8a\x09" + bytes(8) + b"\1", b"K\1\x85", b"K\0K\2\x86", b"J\xff\xff\xff\x7f\x85"),
    *(b"X\4\0\0\0U9\0\0", b"X\3\0\0\0\xed\xa0\x80", b"(K\0NNNt", b"2\x86" * 40, b"]2a"),
    *("c{}\n{}\n".format(*name.rsplit(".", 1)).encode() for name in _ALLOWED),
]


def _instructions(content: bytes) -> list[bytes]:
    begins = [position for _, _, position in pickletools.genops(content)]
    return [content[begin:end] for begin, end in zip(begins, [*begins[1:], len(content)])]


def _pickle(content: bytes, rng: random.Random, change: Change) -> bytes:
    """Changes instructions or values of a pickle."""
    if rng.randrange(3) == 0:
        return pickle.dumps(_with_odd_value(restricted_pickle.loads(content, _ALLOWED), rng), 4)
    # Frames count bytes, which change.
    program = [instruction for instruction in _instructions(content) if instruction[:1] != b"\x95"]
    for _ in range(rng.choice((1, 1, 2, 5))):
        index = rng.randrange(len(program))
        kind = rng.randrange(5)
        if kind == 0:
            program[index : index + rng.choice((1, 2, 10))] = []
        elif kind == 1:
            begin = rng.randrange(len(program))
            program[index:index] = program[begin : begin + rng.choice((1, 3, 20))]
        elif kind == 2:
            program[index] = change(program[index], rng)
        else:
            program[index : index + rng.randrange(2)] = [rng.choice(_INSTRUCTIONS)]
        program = program or [b"."]
    return b"".join(program)


_ODD = (
    *(None, True, -1, 2**70, 10**400, 1.5, float("nan"), "", "\ud800", "x" * 3000, b"\xff\xd8"),
    *([], {}, (), [1, "a"], {"a": {1}}, {1: 2, "b": 3}, frozenset([3]), 1j, np.float32(1)),
    *(np.zeros(0), np.zeros((2, 0, 3)), np.array("x"), np.array(["a", None], object)),
    *(np.zeros(3, ">u2"), np.zeros(2, "S3"), np.array([np.zeros(2), {}], object), np.float16(1)),
)


def _with_odd_value(value: Any, rng: random.Random) -> Any:
    """Returns the nest with an odd value somewhere."""
    if rng.randrange(8) == 0:
        return rng.choice(_ODD)
    if isinstance(value, dict) and value:
        name = rng.choice(sorted(value, key=str))
        if rng.randrange(8) == 0:
            return {rng.choice((key, "a/b", 7)): child for key, child in value.items()}
        return {**value, name: _with_odd_value(value[name], rng)}
    if isinstance(value, list | tuple) and value:
        index = rng.randrange(len(value))
        items = [*value[:index], _with_odd_value(value[index], rng), *value[index + 1 :]]
        if rng.randrange(10) == 0:
            del items[index]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") and items[3:] else tuple(items)
    return rng.choice(_ODD)


def _zip(content: bytes, rng: random.Random, change: Change) -> bytes:
    """Changes the members of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    index = rng.randrange(len(members))
    name, data = members[index]
    mutation = next((mutate for end, mutate in MUTATIONS.items() if name.endswith(end)), None)
    kind = rng.randrange(6)
    if kind == 0:
        members[index] = (rng.choice((*_ODD_NAMES, members[0][0] + "/x")), data)
    elif kind == 1:
        members.insert(index, rng.choice(members))
    elif kind == 2:
        del members[index]
    elif mutation is not None and kind < 5:
        members[index] = (name, mutation(data, rng, change))
    else:
        members[index] = (name, change(data, rng))
    memory = io.BytesIO()
    method = rng.choice((*[zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED] * 5, zipfile.ZIP_LZMA))
    odd_member = rng.choice((None, None, members[0][0])) if members else None
    with (
        zipfile.ZipFile(memory, "w", method) as archive,
        warnings.catch_warnings(action="ignore"),  # About duplicate names.
    ):
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = archive.compression
            if name == odd_member:
                info.external_attr = rng.choice((0o120777, 0o40755, 0o10644)) << 16
            archive.writestr(info, data)
    return memory.getvalue()


_ODD_NAMES = ("", ".", "/etc/x", "../x", "a/../../x", "a\\b", "\0", "é\udcff", "n" * 300, "x/" * 99)


def _tar(content: bytes, rng: random.Random, change: Change) -> bytes:
    """Changes the members of a tar archive; the checksums of their headers stay valid."""
    unpacked = gzip.decompress(content)
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        members = [(info, archive.extractfile(info).read()) for info in archive]
    if rng.randrange(4) == 0:
        return gzip.compress(change(unpacked, rng), 1)
    index = rng.randrange(len(members))
    info, data = members[index]
    kind = rng.randrange(6)
    if kind == 0:
        info.name = rng.choice((*_ODD_NAMES, members[0][0].name, members[0][0].name + "/x"))
    elif kind == 1:
        info.type = rng.choice([bytes([code]) for code in b"0123456789ABDKLMNSVXgx\0\xff"])
        info.linkname = rng.choice(("/etc/passwd", "../..", members[0][0].name))
    elif kind == 2:
        members.insert(rng.randrange(len(members)), members[index])
    elif kind == 3:
        key = rng.choice(("path", "size", "linkpath", "GNU.sparse.map", "hdrcharset", "x"))
        info.pax_headers = {key: rng.choice(("-1", "7", "1" * 30, "../x", "x" * 3000, ""))}
    else:
        data = change(data, rng)
    memory = io.BytesIO()
    with tarfile.open(
        fileobj=memory, mode="w", format=rng.choice((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    ) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    written = bytearray(memory.getvalue())
    if rng.randrange(4) == 0:  # A header with another size, and its checksum.
        size = rng.choice((b"-0000000001\0", b"77777777777\0", b"\x80" + b"\xff" * 11, b"x" * 12))
        written[124:136] = size
        written[148:156] = b" " * 8
        written[148:156] = f"{sum(written[:512]):06o}\0 ".encode()
    return gzip.compress(bytes(written), 1)


def _npy(content: bytes, rng: random.Random, change: Change) -> bytes:
    """Changes the header or the data of an array."""
    length = 10 + int.from_bytes(content[8:10], "little")
    header, data = content[10:length], content[length:]
    kind = rng.randrange(4)
    if kind == 0:
        data = change(data, rng)
    elif kind == 1:
        header = change(header, rng)
    else:
        odd = rng.choice(("(-3,)", "(10**12,)", "(1000000000000,)", "(16, 0, 5)", "(True,)", "()"))
        shape = rng.choice((odd, "(16,)", "(16, 7, 5)"))
        dtype = rng.choice(("|O", "|u1", ">i8", "<f2", "|V4", "<M8[s]", "S5", "i4,f4", "|S9999999"))
        header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    head = np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little")
    return head + header + data


def _gzipped_npy(content: bytes, rng: random.Random, change: Change) -> bytes:
    return gzip.compress(_npy(gzip.decompress(content), rng, change), 1)


def _example(record: bytes, rng: random.Random, change: Change) -> bytes:
    """Changes the fields of an example."""
    example = tf.train.Example.FromString(record)
    features = example.features.feature
    name = rng.choice(sorted(features))
    feature = features[name]
    kind = rng.randrange(7)
    values = getattr(feature, feature.WhichOneof("kind")).value
    if kind == 0:
        del features[name]
    elif kind == 1:
        features[rng.choice(("", "x", "a/b", f"{name}/x", "step_type"))].CopyFrom(feature)
    elif kind == 2:
        features[name].CopyFrom(features[rng.choice(sorted(features))])
    elif kind == 3:
        del values[rng.randrange(len(values) + 1) :]
    elif kind == 4:
        values.extend(list(values) * rng.choice((1, 3)))
    elif not values:
        feature.Clear()
    else:
        index = rng.randrange(len(values))
        if isinstance(values[index], bytes):
            values[index] = change(values[index], rng)
        elif isinstance(values[index], float):
            values[index] = rng.choice((0.0, -1.0, 0.5, float("nan"), float("inf"), 3e38, 2.0))
        else:
            values[index] = rng.choice((0, 1, 2, -1, 2**31, 2**63 - 1, -(2**63)))
    return example.SerializeToString(deterministic=True)


def _tfrecords(content: bytes, rng: random.Random, change: Change) -> bytes:
    import hostile_sources  # It imports this module.

    records = hostile_sources.read_tfrecords(content)
    for _ in range(rng.choice((1, 1, 3))):
        index = rng.randrange(len(records))
        records[index] = _example(records[index], rng, change) if rng.randrange(8) else b""
    if rng.randrange(10) == 0:
        rng.shuffle(records)
    return hostile_sources.write_tfrecords(records)


# Mutations by the endings of file names.
MUTATIONS: dict[str, Callable[[bytes, random.Random, Change], bytes]] = {
    ".pkl": _pickle,
    ".zip": _zip,
    ".npz": _zip,
    ".npy": _npy,
    ".tar.gz": _tar,
    **{f"_ckpt.{index}.gz": _gzipped_npy for index in range(3)},
    **{f"-0000{index}-of-00002": _tfrecords for index in range(2)},
}
