"""How fast records are written and read, beside Google's C++ if it is there.

    python benchmarks/bench_riegeli.py [--envlogger-python PATH]

The records are steps like those that EnvLogger stores. Beside `riegeli` runs ArrayRecord, whose
files are Riegeli/records files, if it is installed: with the same options, and about as many
records in a chunk. PATH is a Python in which the published `envlogger` (1.2) is installed: its
writer takes protos and its reader gives back bytes, so here protos are written too. Each round
measures all contenders one after the other, EnvLogger in a process of its own; the tables show the
medians of the rounds. All of it runs on one processor where that can be set, because ArrayRecord
would take more.
"""

import argparse
import json
import os
import pickle
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHUNK_SIZE = 1_000_000
OPTIONS = ("transpose,brotli:6", "transpose,zstd:3", "transpose,uncompressed", "zstd:3")
OPTIONS_OF_ENVLOGGER = ("transpose,brotli:6", "zstd:3")

# Seconds of each job; bytes on disk under "size".
Measured = dict[str, float]


def seconds(job: Callable[[], Any]) -> float:
    """How long a job takes."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def measure_riegeli(records: list[bytes], options: str, directory: Path) -> Measured:
    """Ours."""
    import riegeli
    from envlogger.proto.storage_pb2 import Data
    from riegeli._core import highway_hash64

    path = directory / "riegeli"
    path_of_protos = directory / "riegeli_protos"
    protos = [Data.FromString(record) for record in records]

    def write() -> None:
        with riegeli.RecordWriter(path, options=f"{options},chunk_size:{CHUNK_SIZE}") as writer:
            for record in records:
                writer.write_record(record)

    def write_protos() -> None:
        with riegeli.RecordWriter(
            path_of_protos, options=f"{options},chunk_size:{CHUNK_SIZE}"
        ) as writer:
            for proto in protos:
                writer.write_message(proto)

    def read() -> None:
        with riegeli.RecordReader(path) as reader:
            while reader.read_record() is not None:
                pass

    def read_all() -> None:
        with riegeli.RecordReader(path) as reader:
            assert len(list(reader.read_records())) == len(records)

    measured = {
        "write": seconds(write),
        "write protos": seconds(write_protos),
        "read": seconds(read),
        "read all": seconds(read_all),
    }
    data = path.read_bytes()
    return {**measured, "hash": seconds(lambda: highway_hash64(data)), "size": len(data)}


def measure_array_record(records: list[bytes], options: str, directory: Path) -> Measured:
    """ArrayRecord's C++."""
    from array_record.python import array_record_module

    path = str(directory / "array_record")
    group_size = max(1, CHUNK_SIZE // (sum(map(len, records)) // len(records) + 8))
    options = options.replace("transpose", "transpose:true")
    options = f"{options},group_size:{group_size},max_parallelism:1"

    def write() -> None:
        writer = array_record_module.ArrayRecordWriter(path, options)
        for record in records:
            writer.write(record)
        writer.close()

    def open_reader() -> Any:
        return array_record_module.ArrayRecordReader(
            path, "readahead_buffer_size:0,max_parallelism:0"
        )

    def read() -> None:
        reader = open_reader()
        for _ in range(reader.num_records()):
            reader.read()
        reader.close()

    def read_all() -> None:
        reader = open_reader()
        assert len(reader.read_all()) == len(records)
        reader.close()

    measured = {"write": seconds(write), "read": seconds(read), "read all": seconds(read_all)}
    return {**measured, "size": Path(path).stat().st_size}


def measure_envlogger(records: list[bytes], options: str, directory: Path) -> Measured:
    """EnvLogger's C++; runs in a Python that has the published package."""
    from envlogger.backends.python import riegeli_dataset_reader, riegeli_dataset_writer
    from envlogger.proto import storage_pb2

    protos = [storage_pb2.Data.FromString(record) for record in records]
    options = f"{options},chunk_size:{CHUNK_SIZE}"

    def write() -> None:
        writer = riegeli_dataset_writer.RiegeliDatasetWriter()
        writer.init(str(directory), storage_pb2.Data(), len(records), options)
        for index, proto in enumerate(protos):
            writer.add_step(proto, index == 0)
        writer.close()

    def read() -> None:
        reader = riegeli_dataset_reader.RiegeliDatasetReader()
        reader.init(str(directory))
        for index in range(reader.num_steps):
            reader.serialized_step(index)
        reader.close()

    measured = {"write protos": seconds(write), "read": seconds(read)}
    (steps,) = directory.glob("*/steps.riegeli")
    return {**measured, "size": steps.stat().st_size}


def measure_envlogger_in_subprocess(
    python: str, records: list[bytes], options: str, directory: Path
) -> Measured:
    """Runs `measure_envlogger` in another Python."""
    with open(directory / "records", "wb") as file:
        pickle.dump(records, file)
    data_directory = Path(tempfile.mkdtemp(dir=directory))
    command = [python, __file__, "--measure", str(directory / "records"), str(data_directory)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, options], capture_output=True, text=True, check=True, env=environment
    )
    measured: Measured = json.loads(done.stdout.splitlines()[-1])
    return measured


def make_steps(total: int) -> dict[str, list[bytes]]:
    """Serialized steps of three environments, about `total` bytes of each."""
    import dm_env
    import numpy as np

    from envlogger.converters import codec
    from envlogger.step_data import StepData

    rng = np.random.default_rng(0)

    def step(observation: Any) -> bytes:
        timestep = dm_env.TimeStep(dm_env.StepType.MID, float(rng.random()), 1.0, observation)
        action = rng.random(6, np.float32)
        return codec.encode(StepData(timestep, action, None)).SerializeToString()

    def walk(size: int) -> Callable[[int], Any]:
        return lambda _: (rng.standard_normal(size) / 8).round(3).astype(np.float32)

    def image(index: int) -> Any:
        rows, columns = np.mgrid[:224, :224]
        scene = np.stack([rows + index, columns - index, (rows * columns) >> 8], axis=-1)
        return (scene + rng.integers(0, 4, scene.shape)).astype(np.uint8)

    makers: dict[str, tuple[int, Callable[[int], Any]]] = {
        "200 B": (200, walk(17)),
        "4 kB": (4_200, walk(1000)),
        "150 kB": (150_700, image),
    }
    return {
        name: [step(observe(index)) for index in range(total // size)]
        for name, (size, observe) in makers.items()
    }


def has_array_record() -> bool:
    """Whether ArrayRecord is installed."""
    try:
        from array_record.python import array_record_module  # noqa: F401
    except ImportError:
        return False
    return True


def measure(
    records: list[bytes], options: str, envlogger_python: str | None
) -> dict[str, Measured]:
    """One round of all contenders."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        measured = {"riegeli": measure_riegeli(records, options, directory)}
        if has_array_record():
            measured["array_record"] = measure_array_record(records, options, directory)
        if envlogger_python and options in OPTIONS_OF_ENVLOGGER:
            measured["envlogger"] = measure_envlogger_in_subprocess(
                envlogger_python, records, options, directory
            )
        return measured


# For each kind of records and options the rounds, each with all contenders.
Results = dict[tuple[str, str], list[dict[str, Measured]]]

PEERS = ("array_record", "envlogger")


def median(rounds: list[dict[str, Measured]], contender: str, job: str) -> float | None:
    """The median over the rounds; None if the contender does not do this job."""
    values = [r[contender][job] for r in rounds if job in r.get(contender, {})]
    return statistics.median(values) if values else None


def print_speeds(results: Results, num_bytes: dict[str, int]) -> None:
    """Prints how many bytes of records pass in a second."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title="MB of records per second", caption="ratio: riegeli is so many times as fast"
    )
    for column in ("record", "options", "job"):
        table.add_column(column, no_wrap=True)
    for column in ("riegeli", "array_record", "ratio", "envlogger", "ratio"):
        table.add_column(column, justify="right")
    for (name, options), rounds in results.items():
        for job in ("write", "write protos", "read", "read all", "hash"):
            ours = median(rounds, "riegeli", job)
            assert ours is not None
            row = [name, options, job, f"{num_bytes[name] / ours / 1e6:,.0f}"]
            for peer in PEERS:
                theirs = median(rounds, peer, job)
                if theirs is None:
                    row += ["", ""]
                else:
                    row += [f"{num_bytes[name] / theirs / 1e6:,.0f}", f"{theirs / ours:.2f}"]
            table.add_row(*row, end_section=job == "hash")
    Console(width=max(100, Console().width)).print(table)


def print_sizes(results: Results) -> None:
    """Prints how many bytes the files have."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Bytes on disk")
    for column in ("record", "options"):
        table.add_column(column, no_wrap=True)
    for contender in ("riegeli", *PEERS):
        table.add_column(contender, justify="right")
    for (name, options), rounds in results.items():
        sizes = [median(rounds, contender, "size") for contender in ("riegeli", *PEERS)]
        table.add_row(name, options, *(f"{size:,.0f}" if size else "" for size in sizes))
    Console().print(table)


def main() -> None:
    """Measures, and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envlogger-python", metavar="PATH", help="a Python with envlogger 1.2")
    parser.add_argument("--megabytes", type=float, default=8, help="of records of each size")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:  # In the Python of EnvLogger.
        records, directory, options = arguments.measure
        with open(records, "rb") as file:
            print(json.dumps(measure_envlogger(pickle.load(file), options, Path(directory))))
        return

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    steps = make_steps(int(arguments.megabytes * 1e6))
    results: Results = {}
    for _ in range(arguments.rounds):
        for name, records in steps.items():
            for options in OPTIONS:
                measured = measure(records, options, arguments.envlogger_python)
                results.setdefault((name, options), []).append(measured)
    print_speeds(results, {name: sum(map(len, records)) for name, records in steps.items()})
    print_sizes(results)


if __name__ == "__main__":
    main()
