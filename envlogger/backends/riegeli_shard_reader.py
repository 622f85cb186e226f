"""Reads the files of a dataset in Riegeli format; see `riegeli_layout` for what they are."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from etils import epath
from google.protobuf.message import DecodeError, Message

import riegeli
from envlogger.backends import riegeli_layout as layout
from envlogger.converters import codec
from envlogger.errors import DamagedDataError, StorageError
from envlogger.proto.storage_pb2 import Data, Datum

__all__ = ["RecordFile", "Shard", "load_shards", "parse", "read_metadata"]

M = TypeVar("M", bound=Message)


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """The index of a shard.

    Attributes:
      directory: Where its files are.
      step_offsets: The positions of its steps, int64 [num_steps].
      episode_starts: The number of the first step of each of its episodes, int64 [num_episodes].
      metadata_offsets: The positions of the metadata of its episodes or -1, int64 [num_episodes].
    """

    directory: epath.Path
    step_offsets: np.ndarray
    episode_starts: np.ndarray
    metadata_offsets: np.ndarray


def read_metadata(directory: epath.Path) -> Data:
    """Reads what is stored about the whole dataset.

    Raises:
      StorageError: There is no such file, or it cannot be read.
      DamagedDataError: It is damaged.
      riegeli.UnimplementedError: It is written in a way that cannot be read yet.
    """
    path = directory / layout.METADATA_FILE
    if not path.exists():
        raise StorageError(f"{directory} holds no recording of EnvLogger: it has no {path.name}")
    records = _read_all(path)
    if len(records) != 1:
        raise DamagedDataError(f"{path} is damaged: it has {len(records)} records instead of 1")
    with _naming(path):
        return parse(Data, records[0])


def load_shards(directory: epath.Path) -> list[Shard]:
    """Reads the indices of all shards, in their order.

    Raises:
      StorageError: A file cannot be read.
      DamagedDataError: An index is damaged.
      riegeli.UnimplementedError: It is written in a way that cannot be read yet.
    """
    shards = sorted(
        path for path in directory.iterdir() if (path / layout.STEP_OFFSETS_FILE).exists()
    )
    return [_load_shard(path) for path in shards]


def _load_shard(directory: epath.Path) -> Shard:
    offsets_path = directory / layout.STEP_OFFSETS_FILE
    index_path = directory / layout.EPISODE_INDEX_FILE
    step_offsets = _read_arrays(offsets_path, ())
    if len(step_offsets) == 0:  # Nothing was flushed; the other files may not even be there.
        rows = np.empty((0, 2), np.int64)
    else:
        rows = _read_arrays(index_path, (2,))
    # A recorder that is killed in a flush may leave episodes whose steps have no offsets yet.
    rows = rows[rows[:, 0] < len(step_offsets)]
    starts = rows[:, 0]
    if np.any(np.diff(step_offsets) <= 0):
        raise DamagedDataError(f"{offsets_path} is damaged: the offsets do not increase")
    if np.any(np.diff(starts) <= 0) or np.any(starts < 0):
        raise DamagedDataError(f"{index_path} is damaged: the starts of episodes do not increase")
    return Shard(directory, step_offsets, starts, rows[:, 1])


def _read_arrays(path: epath.Path, row_shape: tuple[int, ...]) -> np.ndarray:
    """The int64 arrays `[n, *row_shape]` that a file has, as one array."""
    arrays = [np.empty((0, *row_shape), np.int64)]
    for record in _read_all(path):
        with _naming(path):
            array = codec.decode_datum(parse(Datum, record))
        if (
            not isinstance(array, np.ndarray)
            or array.dtype != np.int64
            or array.ndim != len(row_shape) + 1
            or array.shape[1:] != row_shape
        ):
            raise DamagedDataError(f"{path} is damaged: a record is not an array of positions")
        arrays.append(array)
    return np.concatenate(arrays)


def _read_all(path: epath.Path) -> list[bytes]:
    try:
        with riegeli.RecordReader(path) as reader:
            return list(reader.read_records())
    except OSError as e:
        raise StorageError(f"cannot read {path}: {e}") from e
    except riegeli.InvalidArgumentError as e:
        raise DamagedDataError(f"{path} is damaged: {e}") from e


def parse(message_type: type[M], record: bytes) -> M:
    """Parses a record.

    Raises:
      DamagedDataError: It is none of this type.
    """
    try:
        return message_type.FromString(record)
    except DecodeError as e:
        raise DamagedDataError(f"a record is not a {message_type.DESCRIPTOR.full_name}: {e}") from e


@contextlib.contextmanager
def _naming(path: epath.Path) -> Iterator[None]:
    try:
        yield
    except DamagedDataError as e:
        raise DamagedDataError(f"{path} is damaged: {e}") from e


class RecordFile:
    """An open file whose records are read by their positions, fastest in the order of the file.

    Raises:
      OSError: It cannot be opened.
    """

    def __init__(self, path: epath.Path) -> None:
        self._reader = riegeli.RecordReader(path)

    def read(self, position: int) -> bytes:
        """Reads the record at a numeric position.

        Raises:
          DamagedDataError: There is none, or it is damaged.
          OSError: It cannot be read.
          riegeli.UnimplementedError: It is written in a way that cannot be read yet.
        """
        reader = self._reader
        try:
            if reader.pos.numeric != position:
                reader.seek_numeric(position)
            record = reader.read_record()
        except riegeli.InvalidArgumentError as e:
            raise DamagedDataError(str(e)) from e
        if record is None:
            raise DamagedDataError("the file ends before it")
        if reader.last_pos.numeric != position:
            raise DamagedDataError("no record begins there")
        return record

    def close(self) -> None:
        """Closes the file."""
        # That the file is damaged or cut off was said where a record of that part was asked for.
        with contextlib.suppress(riegeli.RiegeliError):
            self._reader.close()
