"""Reader of the files of an EnvLogger dataset; see `layout`.

Damaged records are skipped and reported.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import math
import os
from collections.abc import Iterator
from typing import BinaryIO, TypeVar

import numpy as np
from etils import epath
from google.protobuf.message import DecodeError, Message

import riegeli
from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.episode_rule import parse_kind
from envlogger.damage import Damage
from envlogger.errors import DamagedDataError, StorageError
from envlogger.proto.storage_pb2 import Data, Datum
from rlds_ecosystem.files import stores

__all__ = ["Shard", "list_directories", "load_shards", "parse", "read_metadata", "scan_records"]

M = TypeVar("M", bound=Message)

_ADVICE = "envlogger.recover repairs the recording if possible"


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """The index of a shard, up to the first damaged entry.

    Attributes:
      directory: The directory of the shard.
      step_offsets: The positions of the steps, int64 [num_steps].
      episode_starts: The index of the first step of each episode, int64 [num_episodes].
      metadata_offsets: The position of the metadata of each episode or -1, int64 [num_episodes].
      all_rows: The rows of the episode index, including episodes without steps in `step_offsets`,
        int64 [n, 2].
      steps_size: The size of the file of steps.
      covers_episodes: Whether the index is sure to hold the episodes of all its steps.
      indexed_end: The index of the step after the last episode; None if unknown.
      damage: The damage of the index files.
    """

    directory: epath.Path
    step_offsets: np.ndarray
    episode_starts: np.ndarray
    metadata_offsets: np.ndarray
    all_rows: np.ndarray
    steps_size: int
    covers_episodes: bool
    indexed_end: int | None
    damage: tuple[Damage, ...] = ()

    @functools.cached_property
    def episodes_end(self) -> int:
        """The index of the step after the last episode.

        EnvLogger up to 1.3 assigns all steps at the end of a shard to its last episode, even if a
        crash prevented the indexing of further episodes. If the end is unknown, the steps are read
        to detect the begin of another episode.

        Raises:
          OSError: The steps cannot be read.
        """
        if self.indexed_end is not None:
            return self.indexed_end
        start = int(self.episode_starts[-1])
        step_indices = {int(p): i for i, p in enumerate(self.step_offsets[start:], start)}
        is_after_last = False
        path = self.directory / layout.STEPS_FILE
        for item in scan_records(path, int(self.step_offsets[start])):
            if isinstance(item, riegeli.SkippedRegion):
                continue
            position, record = item
            step_index = step_indices.get(position)
            if step_index is None:
                break
            kind = parse_kind(record)
            if step_index > start and kind.begins_episode(is_after_last):
                return step_index
            is_after_last = kind.is_last
        return len(self.step_offsets)


def read_metadata(directory: epath.Path) -> Data:
    """Reads the metadata of the dataset.

    Raises:
      StorageError: The file is missing, or cannot be read.
      DamagedDataError: The file is damaged.
      riegeli.UnimplementedError: The file uses an unsupported feature of Riegeli.
    """
    path = directory / layout.METADATA_FILE
    content = _read_file(os.fspath(path))
    if content is None:
        raise StorageError(f"{directory} holds no recording of EnvLogger: it has no {path.name}")
    try:
        records, problem = _read_records(content)
        if problem:
            raise DamagedDataError(f"{problem}; {_ADVICE}")
        if len(records) != 1:
            raise DamagedDataError(f"it has {len(records)} records instead of 1; {_ADVICE}")
        return parse(Data, records[0])
    except DamagedDataError as e:
        raise DamagedDataError(f"{path} is damaged: {e}") from e


def list_directories(directory: epath.Path) -> list[epath.Path]:
    """Returns all subdirectories in the order of shards, including other directories."""
    try:
        return [directory / item.name for item in stores.list_directory(directory) if item.is_dir]
    except FileNotFoundError:
        if stores.is_local(directory):
            raise
        return []  # Stores have no empty directories.
    except OSError as e:
        raise StorageError(f"cannot read {directory}: {e}") from e


def load_shards(directory: epath.Path) -> list[Shard]:
    """Reads the index of each shard, in order, up to the first damaged entry.

    Raises:
      StorageError: A file cannot be read.
      riegeli.UnimplementedError: A file uses an unsupported feature of Riegeli.
    """
    shards = stores.in_parallel(_load_shard, list_directories(directory), directory)
    return [shard for shard in shards if shard is not None]


def _load_shard(directory: epath.Path) -> Shard | None:
    base = os.fspath(directory)  # Joining epath paths takes longer than reading a small file.
    steps_path = f"{base}/{layout.STEPS_FILE}"
    offsets_path = f"{base}/{layout.STEP_OFFSETS_FILE}"
    index_path = f"{base}/{layout.EPISODE_INDEX_FILE}"
    steps_size = _get_size(steps_path)
    content = _read_file(offsets_path)
    if content is None and not steps_size:
        return None

    damage = []

    def report(path: str, problem: str, num_steps: int | None = None) -> None:
        damage.append(Damage(path, problem, num_steps, advice=_ADVICE))

    if content is None:
        report(offsets_path, "is missing")
    offsets, last_offsets, problem = _read_arrays(content or b"", ())
    if problem is None and not _is_increasing(offsets):
        problem = "the offsets do not increase"
        offsets = _cut_increasing(offsets)
    if problem:
        report(offsets_path, f"is damaged: {problem}")
    is_cut = problem is not None
    if len(offsets) and offsets[-1] >= (steps_size or 0):
        num_steps = int(np.searchsorted(offsets, steps_size or 0))
        problem = "is missing" if steps_size is None else "was cut off"
        report(steps_path, problem, len(offsets) - num_steps)
        offsets = offsets[:num_steps]
        is_cut = True

    # Before the first flush, the other files may be missing.
    content = _read_file(index_path) if content or steps_size else b""
    rows, _, problem = _read_arrays(content or b"", (2,))
    if problem is None and not _is_increasing(rows[:, 0]):
        problem = "the starts of episodes do not increase"
        rows = rows[: len(_cut_increasing(rows[:, 0]))]
    if content is None and len(offsets):
        report(index_path, "is missing")
    elif problem:
        report(index_path, f"is damaged: {problem}")

    # A recorder that is killed in a flush may leave episodes whose steps have no offsets yet.
    num_episodes = int(np.searchsorted(rows[:, 0], len(offsets)))
    covers_episodes = last_offsets is not None and 0 < last_offsets.num_episodes == num_episodes
    indexed_end = None
    if num_episodes == 0:
        indexed_end = 0
    elif covers_episodes:
        indexed_end = len(offsets)
    if is_cut and num_episodes:
        indexed_end = len(offsets)
        if num_episodes == len(rows) or rows[num_episodes, 0] > len(offsets):
            num_episodes -= 1  # Steps of the last episode may be lost.
            indexed_end = int(rows[num_episodes, 0])
    return Shard(
        directory=directory,
        step_offsets=offsets,
        episode_starts=rows[:num_episodes, 0],
        metadata_offsets=rows[:num_episodes, 1],
        all_rows=rows,
        steps_size=steps_size or 0,
        covers_episodes=covers_episodes,
        indexed_end=indexed_end,
        damage=tuple(damage),
    )


def _get_size(path: str) -> int | None:
    """Returns the size of a file; None if it does not exist."""
    with _file_errors(path):
        is_local = stores.is_local(path)
        return os.path.getsize(path) if is_local else stores.as_path(path).stat().length
    return None


def _read_file(path: str) -> bytes | None:
    """Returns the bytes of a file; None if it does not exist."""
    with _file_errors(path):
        if not stores.is_local(path):
            return bytes(stores.as_path(path).read_bytes())
        with open(path, "rb", buffering=0) as file:
            return file.read()
    return None


@contextlib.contextmanager
def _file_errors(path: str) -> Iterator[None]:
    """Ignores a missing file; adds the path to other errors."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as e:
        raise StorageError(f"cannot read {path}: {e}") from e


def _read_records(content: bytes) -> tuple[list[bytes], str | None]:
    """Returns the records of a file up to the first damaged record, and the error message."""
    with contextlib.suppress(riegeli.InvalidArgumentError):
        return riegeli.decode_file(content), None
    records: list[bytes] = []
    try:
        with riegeli.RecordReader(io.BytesIO(content)) as reader:
            records.extend(reader.read_records())
    except riegeli.InvalidArgumentError as e:
        return records, str(e).replace("<BytesIO>", "it")
    return records, None


def _read_arrays(
    content: bytes, row_shape: tuple[int, ...]
) -> tuple[np.ndarray, Datum | None, str | None]:
    """Returns the concatenated int64 arrays of a file, the last record, and an error message.

    The arrays have the shape `[n, *row_shape]`.
    """
    arrays = []
    datum = None
    records, problem = _read_records(content) if content else ([], None)
    for record in records:
        try:
            datum = parse(Datum, record)
            shape = [dim.size for dim in datum.shape.dim]
            values = np.array(list(datum.values.int64_values), np.int64)
            if tuple(shape[1:]) != row_shape or values.size != math.prod(shape) or not shape:
                raise DamagedDataError("a record is not an array of positions")
        except DamagedDataError as e:
            problem = str(e)
            break
        arrays.append(values.reshape(shape))
    if len(arrays) == 1:
        return arrays[0], datum, problem
    return np.concatenate([np.empty((0, *row_shape), np.int64), *arrays]), datum, problem


def _is_increasing(values: np.ndarray) -> bool:
    return len(values) == 0 or bool(values[0] >= 0 and (values[1:] > values[:-1]).all())


def _cut_increasing(values: np.ndarray) -> np.ndarray:
    """Returns the values before the first value that is negative or not increasing."""
    return values[: int(np.argmin(np.diff(values, prepend=-1) > 0))]


def scan_records(
    file: epath.Path | BinaryIO, begin: int = 0
) -> Iterator[tuple[int, bytes] | riegeli.SkippedRegion]:
    """Yields the records of a file with their positions, and the damaged regions between them.

    Args:
      file: The file.
      begin: The numeric position of the first record to read.

    Raises:
      OSError: The file cannot be opened or read.
    """
    regions: list[riegeli.SkippedRegion] = []
    with riegeli.RecordReader(file, recovery=regions.append) as reader:
        if begin:
            reader.seek_numeric(begin)
        while (record := reader.read_record()) is not None:
            yield from regions
            regions.clear()
            yield reader.last_pos.numeric, record
    yield from regions


def parse(message_type: type[M], record: bytes) -> M:
    """Parses a record.

    Raises:
      DamagedDataError: The record is not a message of this type.
    """
    try:
        return message_type.FromString(record)
    except DecodeError as e:
        raise DamagedDataError(f"a record is not a {message_type.DESCRIPTOR.full_name}: {e}") from e
