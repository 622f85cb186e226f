"""Contenders that write and read records: `riegeli`, and the C++ of ArrayRecord and EnvLogger 1.2.

Their files are Riegeli/records files, with the same options and chunks of about a megabyte.
"""

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from worker import Work

CHUNK_SIZE = 1_000_000
RECORDS = "records"


def write_records(folder: Path, size: int, *, kind: str) -> None:
    """Makes steps as EnvLogger stores them, of 17 floats or of a noisy image, as data for all."""
    import dm_env

    from envlogger.converters import codec
    from envlogger.step_data import StepData

    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:224, :224]

    def observe(index: int) -> Any:
        if kind == "floats":
            return (rng.standard_normal(17) / 8).round(3).astype(np.float32)
        scene = np.stack([rows + index, columns - index, (rows * columns) >> 8], axis=-1)
        return (scene + rng.integers(0, 4, scene.shape)).astype(np.uint8)

    def step(index: int) -> bytes:
        timestep = dm_env.TimeStep(dm_env.StepType.MID, float(rng.random()), 1.0, observe(index))
        data = StepData(timestep, rng.random(6, np.float32), None)
        return codec.encode(data).SerializeToString()

    (folder / RECORDS).write_bytes(pickle.dumps([step(index) for index in range(size)]))


def _records(data: Path) -> list[bytes]:
    records: list[bytes] = pickle.loads((data / RECORDS).read_bytes())
    return records


def _on_one_processor() -> None:
    if hasattr(os, "sched_setaffinity"):  # The C++ starts a thread for each.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


# --- riegeli -------------------------------------------------------------------------------------


def write(data: Path, size: int, *, options: str) -> Work:
    """Writes with `riegeli`."""
    import riegeli

    records, options = _records(data), f"{options},chunk_size:{CHUNK_SIZE}"

    def work(folder: Path) -> int:
        with riegeli.RecordWriter(folder / "file", options=options) as writer:
            for record in records:
                writer.write_record(record)
        return len(records)

    return work


def read(data: Path, size: int, *, options: str) -> Work:
    """Reads with `riegeli`."""
    import riegeli

    folder = Path(tempfile.mkdtemp())
    write(data, size, options=options)(folder)

    def work(_: Path) -> int:
        count = 0
        with riegeli.RecordReader(folder / "file") as reader:
            while reader.read_record() is not None:
                count += 1
        return count

    return work


# --- ArrayRecord ---------------------------------------------------------------------------------


def write_array_record(data: Path, size: int, *, options: str) -> Work:
    """Writes with ArrayRecord."""
    from array_record.python import array_record_module

    _on_one_processor()
    records = _records(data)
    group_size = max(1, CHUNK_SIZE // (sum(map(len, records)) // len(records) + 8))
    options = options.replace("transpose", "transpose:true")
    options = f"{options},group_size:{group_size},max_parallelism:1"

    def work(folder: Path) -> int:
        writer = array_record_module.ArrayRecordWriter(str(folder / "file"), options)
        for record in records:
            writer.write(record)
        writer.close()
        return len(records)

    return work


def read_array_record(data: Path, size: int, *, options: str) -> Work:
    """Reads with ArrayRecord."""
    from array_record.python import array_record_module

    folder = Path(tempfile.mkdtemp())
    write_array_record(data, size, options=options)(folder)
    reading = "readahead_buffer_size:0,max_parallelism:0"

    def work(_: Path) -> int:
        reader = array_record_module.ArrayRecordReader(str(folder / "file"), reading)
        count = reader.num_records()
        for _ in range(count):
            reader.read()
        reader.close()
        return int(count)

    return work


# --- EnvLogger 1.2, in its Python ----------------------------------------------------------------


def write_envlogger(data: Path, size: int, *, options: str) -> Work:
    """Writes with the writer of EnvLogger, which takes messages."""
    from envlogger.backends.python import riegeli_dataset_writer
    from envlogger.proto import storage_pb2

    _on_one_processor()
    messages = [storage_pb2.Data.FromString(record) for record in _records(data)]
    options = f"{options},chunk_size:{CHUNK_SIZE}"

    def work(folder: Path) -> int:
        writer = riegeli_dataset_writer.RiegeliDatasetWriter()
        writer.init(str(folder), storage_pb2.Data(), len(messages), options)
        for index, message in enumerate(messages):
            writer.add_step(message, index == 0)
        writer.close()
        return len(messages)

    return work


def read_envlogger(data: Path, size: int, *, options: str) -> Work:
    """Reads with the reader of EnvLogger."""
    from envlogger.backends.python import riegeli_dataset_reader

    folder = Path(tempfile.mkdtemp())
    write_envlogger(data, size, options=options)(folder)

    def work(_: Path) -> int:
        reader = riegeli_dataset_reader.RiegeliDatasetReader()
        reader.init(str(folder))
        count = reader.num_steps
        for index in range(count):
            reader.serialized_step(index)
        reader.close()
        return int(count)

    return work
