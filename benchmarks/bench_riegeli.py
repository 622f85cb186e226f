"""How fast records are written and read, beside Google's C++ if it is there.

    python benchmarks/bench_riegeli.py [--envlogger-python PATH] [--calls | --memory]

The records are steps like those that EnvLogger stores. Beside `riegeli` runs ArrayRecord, whose
files are Riegeli/records files, if it is installed: with the same options, and about as many
records in a chunk. PATH is a Python in which the published `envlogger` (1.2) is installed: its
writer takes protos and its reader gives back bytes, so here protos are written too. Each round
measures all contenders one after the other, EnvLogger in a process of its own; the tables show the
medians of the rounds. All of it runs on one processor where that can be set, because ArrayRecord
would take more.

With `--calls` it shows instead how long a call that writes a record takes. There, all processors
may be used; where a thread compresses, the caller is busy with something else between two calls,
for three times as long as compressing a record took without the thread. With
`--memory` it shows how much memory reading a large file takes.
"""

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHUNK_SIZE = 1_000_000
OPTIONS = ("transpose,brotli:6", "transpose,zstd:3", "transpose,uncompressed", "zstd:3")
OPTIONS_OF_ENVLOGGER = ("transpose,brotli:6", "zstd:3")

OPTIONS_OF_CALLS = f"transpose,brotli:6,chunk_size:{CHUNK_SIZE}"

SIZE_OF_LARGE_FILE = 2_000_000_000

# Seconds of each job, or call; bytes on disk under "size".
Measured = dict[str, float]


def seconds(job: Callable[[], Any]) -> float:
    """How much processor time a job takes, in all threads: the machine may have other work."""
    start = time.process_time()
    job()
    return time.process_time() - start


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


def time_calls(write: Callable[[Any], Any], records: list[Any], pause: float) -> Measured:
    """How long each call takes, in a thread that is busy in between, as with an environment."""
    durations = []
    for record in records:
        resume = time.perf_counter() + pause
        while time.perf_counter() < resume:
            pass
        start = time.perf_counter()
        write(record)
        durations.append(time.perf_counter() - start)
    durations.sort()
    return {
        "p50": statistics.median(durations),
        "p99": durations[int(0.99 * len(durations))],
        "mean": statistics.mean(durations),
    }


def with_and_without_threads(time_calls_with: Callable[[str, float], Measured]) -> Measured:
    """Calls that compress, and calls that leave it to a thread, which has time enough for it."""
    without = time_calls_with(f"{OPTIONS_OF_CALLS},parallelism:0", 0)
    threads = time_calls_with(f"{OPTIONS_OF_CALLS},parallelism:1", 3 * without["mean"])
    return {
        **{f"0 {which}": time for which, time in without.items()},
        **{f"1 {which}": time for which, time in threads.items()},
    }


def time_calls_of_riegeli(records: list[bytes], directory: Path) -> Measured:
    """Ours."""
    import riegeli

    def time_calls_with(options: str, pause: float) -> Measured:
        with riegeli.RecordWriter(directory / "riegeli", options=options) as writer:
            return time_calls(writer.write_record, records, pause)

    return with_and_without_threads(time_calls_with)


def time_calls_of_envlogger(records: list[bytes], options: str, directory: Path) -> Measured:
    """EnvLogger's C++; runs in a Python that has the published package."""
    from envlogger.backends.python import riegeli_dataset_writer
    from envlogger.proto import storage_pb2

    del options  # Those of `OPTIONS_OF_CALLS`.
    protos = [storage_pb2.Data.FromString(record) for record in records]

    def time_calls_with(options: str, pause: float) -> Measured:
        writer = riegeli_dataset_writer.RiegeliDatasetWriter()
        writer.init(tempfile.mkdtemp(dir=directory), storage_pb2.Data(), len(records), options)
        is_first = iter([True])
        measured = time_calls(
            lambda proto: writer.add_step(proto, next(is_first, False)), protos, pause
        )
        writer.close()
        return measured

    return with_and_without_threads(time_calls_with)


JOBS_OF_ENVLOGGER = {"speed": measure_envlogger, "calls": time_calls_of_envlogger}


def measure_envlogger_in_subprocess(
    python: str, records: list[bytes], options: str, directory: Path, job: str
) -> Measured:
    """Runs a job of EnvLogger in another Python."""
    with open(directory / "records", "wb") as file:
        pickle.dump(records, file)
    data_directory = Path(tempfile.mkdtemp(dir=directory))
    command = [python, __file__, "--measure", str(directory / "records"), str(data_directory)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, options, job], capture_output=True, text=True, check=True, env=environment
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
                envlogger_python, records, options, directory, "speed"
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
        title="MB of records per second of processor time",
        caption="ratio: riegeli is so many times as fast",
    )
    for column in ("record", "options", "job"):
        table.add_column(column, no_wrap=True)
    for column in ("riegeli", "array_record", "ratio", "envlogger", "ratio"):
        table.add_column(column, justify="right")
    for (name, options), rounds in results.items():
        for job in ("write", "write protos", "read", "read all", "hash"):
            ours = median(rounds, "riegeli", job)
            assert ours is not None
            what = job
            if job == "hash":
                reading = median(rounds, "riegeli", "read")
                assert reading is not None
                what = f"hash: {ours / reading:.1%} of read"
            row = [name, options, what, f"{num_bytes[name] / ours / 1e6:,.0f}"]
            for peer in PEERS:
                theirs = median(rounds, peer, job)
                if theirs is None:
                    row += ["", ""]
                else:
                    row += [f"{num_bytes[name] / theirs / 1e6:,.0f}", f"{theirs / ours:.2f}"]
            table.add_row(*row, end_section=job == "hash")
    Console(width=max(112, Console().width)).print(table)


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


def compare_calls(records: list[bytes], envlogger_python: str | None) -> None:
    """Prints how long calls that write a record take, with and without background compression."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Milliseconds of a call that writes a record", caption=OPTIONS_OF_CALLS)
    for column in ("writer", "parallelism"):
        table.add_column(column)
    for column in ("p50", "p99", "mean"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        measured = {"riegeli": time_calls_of_riegeli(records, directory)}
        if envlogger_python:
            measured["envlogger"] = measure_envlogger_in_subprocess(
                envlogger_python, records, OPTIONS_OF_CALLS, directory, "calls"
            )
    for writer, times in measured.items():
        for parallelism in "01":
            row = (
                f"{1e3 * times[f'{parallelism} {which}']:.3f}" for which in ("p50", "p99", "mean")
            )
            table.add_row(writer, parallelism, *row)
    Console().print(table)


def peak_memory() -> float:
    """The most memory that this process has taken so far, in MB."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1e3


def growth_of_reading(path: str, how: str) -> float:
    """By how many MB reading a file makes the peak memory of this process grow."""
    import riegeli

    before = peak_memory()
    with riegeli.RecordReader(path) as reader:
        if how == "read_record":
            while reader.read_record() is not None:
                pass
        else:
            for _ in reader.read_records():
                pass
    return peak_memory() - before


def compare_memory(records: list[bytes]) -> None:
    """Prints how much memory reading a large file takes."""
    from rich.console import Console
    from rich.table import Table

    import riegeli

    table = Table(title="MB of memory, at the peak, to read a file")
    for column in ("options", "GB", "read_record", "read_records"):
        table.add_column(column, justify="left" if column == "options" else "right")
    for options in ("zstd:3", "transpose,zstd:3"):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "large"
            with riegeli.RecordWriter(path, options=f"{options},parallelism:2") as writer:
                while writer.estimated_size() < SIZE_OF_LARGE_FILE:
                    writer.write_records(records)
            row = [options, f"{path.stat().st_size / 1e9:.2f}"]
            for how in ("read_record", "read_records"):
                command = [sys.executable, __file__, "--measure-memory", str(path), how]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                row.append(f"{float(done.stdout):.0f}")
            table.add_row(*row)
    Console().print(table)


def main() -> None:
    """Measures, and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envlogger-python", metavar="PATH", help="a Python with envlogger 1.2")
    parser.add_argument("--megabytes", type=float, default=8, help="of records of each size")
    parser.add_argument("--rounds", type=int, default=5)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--calls", action="store_true", help="measure calls that write")
    what.add_argument("--memory", action="store_true", help="measure memory for reading")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--measure-memory", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:  # In the Python of EnvLogger.
        records, directory, options, job = arguments.measure
        with open(records, "rb") as file:
            measured = JOBS_OF_ENVLOGGER[job](pickle.load(file), options, Path(directory))
        print(json.dumps(measured))
        return
    if arguments.measure_memory:  # In a process that does nothing else.
        print(growth_of_reading(*arguments.measure_memory))
        return
    if arguments.calls:
        compare_calls(make_steps(16_000_000)["150 kB"], arguments.envlogger_python)
        return
    if arguments.memory:
        compare_memory(make_steps(16_000_000)["150 kB"])
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
