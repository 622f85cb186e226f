"""How fast raw data becomes a dataset, and in how much memory, beside the builders of TFDS.

    python benchmarks/bench_builders.py [--rounds N] [--only CASE ...] [--rows ROWS] [--steps STEPS]
        [--frames FRAMES] [--episodes EPISODES] [--envlogger-python PATH] [--gigabytes GB]

d4rl: a D4RL file of a million rows, by `tfds_builders` and by the builder of TFDS for HalfCheetah.
logs: a recording of EnvLogger, by `tfds_builders` and by `rlds_base` of TFDS. TFDS reads with the
`envlogger` of this repository, step by step, as with the published one. With PATH, a Python that
has the published EnvLogger 1.2, it is also measured how long that takes to read the same logs; the
last row of the table has the time of TFDS with that reader in the place of this one.
streaming: logs as a dataset without a conversion, beside a loop over the same logs, and the dataset
that they are converted to. STEPS steps of floats, and FRAMES of images.
minari: an HDF5 dataset of STEPS steps, by `tfds_builders`; Minari only reads it. Reading alone, in
turn with Minari, of episodes of 500 steps and of 10.
columns: a log, a TFDS folder and a Minari dataset of STEPS steps, opened by `rlds.sources.open` and
read as columns, in turn with the reader of each format.
tiny: EPISODES windows (Control Suite) and transitions (Atari) of RL Unplugged, each an episode
of its own, by `tfds_builders` with and without verification, and by a builder of TFDS that is given
the same episodes.
rlu: files of RWRL with STEPS steps, by `tfds_builders` and by the builder of TFDS.
dqn: FRAMES frames of Atari DQN Replay, by `tfds_builders`, and what it takes to decompress them.
large: a source of many gigabytes, for the memory only. It needs twice as much space on the disk,
and is left out unless it is named.

Each job runs in a process of its own, which reports its time without imports, and its peak memory;
but for those that only read, which take turns in one. Beside the time there is that of the
processor, which is more telling on a busy machine.
Verification (reading back) is included in the time of `tfds_builders`; TFDS does none.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import builder_cases as cases
import numpy as np

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
LOG_EPISODES, LOG_LENGTH = 100, 1000
FRAME = (84, 84, 4)

READ_LOGS = """
import sys, time
import envlogger
start = time.perf_counter()
count = 0
with envlogger.Reader(sys.argv[1]) as reader:
    for episode in reader.episodes:
        for step in episode:
            count += 1
print(time.perf_counter() - start)
"""


def d4rl_by_us(raw: str, data_dir: str) -> int:
    """Converts a D4RL file with `tfds_builders`."""
    from tfds_builders import D4rlSource, convert

    builder = convert(D4rlSource(raw), name="d4rl", data_dir=data_dir, progress=False)
    return builder.info.metadata["conversion"]["splits"]["train"]["transitions"]


def d4rl_by_tfds(raw: str, data_dir: str) -> int:
    """Converts a D4RL file with the builder of TFDS, which needs to know where it is."""
    import tensorflow_datasets as tfds

    builder = tfds.builder("d4rl_mujoco_halfcheetah/v0-medium", data_dir=data_dir)
    download = tfds.download.DownloadManager
    with mock.patch.object(download, "download_and_extract", return_value={"file_path": raw}):
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(try_download_gcs=False)
        )
    return builder.info.splits["train"].num_examples


def logs_by_us(raw: str, data_dir: str) -> int:
    """Converts logs with `tfds_builders`."""
    import tfds_builders

    builder = tfds_builders.build_from_logs(raw, name="logs", data_dir=data_dir)
    return builder.info.splits["train"].num_examples


def logs_by_tfds(raw: str, data_dir: str) -> int:
    """Converts logs with `rlds_base`."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.rlds import rlds_base

    class Logs(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "logs"

        def _info(self) -> tfds.core.DatasetInfo:
            config = rlds_base.DatasetConfig(
                name="logs",
                observation_info=tfds.features.Tensor(shape=(17,), dtype=np.float32),
                action_info=tfds.features.Tensor(shape=(6,), dtype=np.float32),
                reward_info=np.float32,
                discount_info=np.float32,
            )
            return rlds_base.build_info(config, self)

        def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
            return {"train": rlds_base.generate_examples(Path(raw))}

        def _generate_examples(self) -> Iterator[Any]:
            raise NotImplementedError

    builder = Logs(data_dir=data_dir)
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )
    return builder.info.splits["train"].num_examples


def read_logs(raw: str, data_dir: str) -> int:
    """Reads logs step by step with the reader of this repository."""
    del data_dir
    import envlogger

    with envlogger.Reader(raw) as reader:
        return sum(1 for episode in reader.episodes for _ in episode)


def large_by_us(raw: str, data_dir: str) -> int:
    """Converts a source of `raw` gigabytes, which makes up its frames."""
    from etils import epath

    from tfds_builders import Origin, RandomAccessSource, SourceEpisode, convert, from_sars

    length = 500

    class Frames(RandomAccessSource):
        def step_fields(self) -> Mapping[str, Any]:
            import tensorflow_datasets as tfds

            frame = tfds.features.Tensor(shape=FRAME, dtype=np.uint8, encoding="bytes")
            return {"observation": frame, "action": np.int32, "reward": np.float32} | {
                "discount": np.float32
            }

        def inputs(self) -> list[epath.Path]:
            return []

        def num_episodes(self, split: str) -> int:
            return int(float(raw) * 1e9 / (length * np.prod(FRAME)))

        def key(self, split: str, index: int) -> str:
            return str(index)

        def read(self, split: str, index: int) -> SourceEpisode:
            frames = np.random.default_rng(index).integers(0, 256, (length, *FRAME), np.uint8)
            steps = from_sars(
                observation=frames,
                action=np.zeros(length - 1, np.int32),
                reward=np.zeros(length - 1, np.float32),
                terminal=False,
            )
            return SourceEpisode(str(index), steps, Origin("made up", 0, length), truncated=True)

    builder = convert(Frames(), name="large", data_dir=data_dir, progress=False)
    return builder.info.splits["train"].num_examples


JOBS: dict[str, Callable[[str, str], int]] = {
    job.__name__: job
    for job in (
        *(d4rl_by_us, d4rl_by_tfds, logs_by_us, logs_by_tfds, read_logs, large_by_us),
        *(cases.minari_by_us, cases.minari_read_by_us, cases.minari_by_minari),
        *(cases.tiny_by_us, cases.tiny_unverified, cases.tiny_read_by_us, cases.tiny_by_tfds),
        *(cases.rlu_by_us, cases.rlu_by_tfds),
        *(cases.dqn_by_us, cases.dqn_read_by_us, cases.dqn_files),
    )
}


def run_here(job: str, raw: str) -> None:
    """Runs a job in this process, and prints its time and peak memory."""
    import tensorflow as tf  # Not part of the time.
    import tensorflow_datasets as tfds

    import tfds_builders

    del tf, tfds, tfds_builders
    with tempfile.TemporaryDirectory() as data_dir:
        start, start_cpu = time.perf_counter(), time.process_time()
        JOBS[job](raw, data_dir)
        seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "megabytes": peak}))


def run(job: str, raw: str) -> dict[str, float]:
    """Runs a job in a process of its own."""
    command = [sys.executable, __file__, "--job", job, "--raw", raw]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(jobs: list[str], raw: str, rounds: int) -> dict[str, dict[str, float]]:
    """Runs jobs in turn; returns the medians of the times, and the highest memory."""
    runs: dict[str, list[dict[str, float]]] = {job: [] for job in jobs}
    for _ in range(rounds):
        for job in jobs:
            runs[job].append(run(job, raw))
    return {
        job: {
            "seconds": statistics.median(one["seconds"] for one in found),
            "cpu": statistics.median(one["cpu"] for one in found),
            "megabytes": max(one["megabytes"] for one in found),
        }
        for job, found in runs.items()
    }


def show(title: str, rows: Mapping[str, Mapping[str, float]], work: float, unit: str) -> None:
    """Prints a table; the ratios are to the first row."""
    from rich.console import Console
    from rich.table import Table

    heads = ("seconds", "ratio", "cpu s", "cpu ratio", "peak MB")
    table = Table("", f"thousand {unit}/s", *heads, title=title)
    first = next(iter(rows.values()))
    for name, row in rows.items():
        seconds, cpu, memory = row["seconds"], row.get("cpu"), row.get("megabytes")
        cells = [
            f"{work / seconds / 1e3:,.1f}",
            f"{seconds:.2f}",
            f"{seconds / first['seconds']:.2f}",
        ]
        cells += ["", ""] if cpu is None else [f"{cpu:.2f}", f"{cpu / first['cpu']:.2f}"]
        table.add_row(name, *cells, "" if memory is None else f"{memory:,.0f}")
    Console(width=120).print(table)


def bench_d4rl(rows: int, rounds: int) -> None:
    """D4RL: a file of many rows."""
    sys.path.insert(0, str(SUPPORT))
    from raw_d4rl import write_mujoco_like

    with tempfile.TemporaryDirectory() as directory:
        raw = str(write_mujoco_like(Path(directory, "halfcheetah_medium.hdf5"), rows=rows))
        found = measure(["d4rl_by_us", "d4rl_by_tfds"], raw, rounds)
    names = {"d4rl_by_us": "tfds_builders", "d4rl_by_tfds": "TFDS d4rl_mujoco_halfcheetah"}
    show(
        f"D4RL, {rows:,} rows",
        {names[job]: one for job, one in found.items()},
        rows,
        "rows",
    )


def bench_logs(rounds: int, envlogger_python: str | None) -> None:
    """Recordings of EnvLogger."""
    with tempfile.TemporaryDirectory() as directory:
        cases.record(directory, (17,), [LOG_LENGTH + 1] * LOG_EPISODES)
        found = measure(["logs_by_us", "logs_by_tfds", "read_logs"], directory, rounds)
        table = {
            "tfds_builders": found["logs_by_us"],
            "TFDS rlds_base, this reader": found["logs_by_tfds"],
            "reading alone, this reader, step by step": found["read_logs"],
        }
        if envlogger_python:
            command = [envlogger_python, "-c", READ_LOGS, directory]
            times = [
                # Elsewhere, as in this directory there is another `envlogger`.
                float(
                    subprocess.run(command, cwd=directory, capture_output=True, check=True).stdout
                )
                for _ in range(rounds)
            ]
            reading = statistics.median(times)
            table["reading alone, EnvLogger 1.2, step by step"] = {"seconds": reading}
            by_tfds = found["logs_by_tfds"]["seconds"] - found["read_logs"]["seconds"]
            table["TFDS rlds_base, EnvLogger 1.2 (computed)"] = {"seconds": by_tfds + reading}
    steps = LOG_EPISODES * (LOG_LENGTH + 1)
    show(f"Logs, {steps:,} steps of 17 + 6 floats", table, steps, "steps")


def bench_streaming(steps: int, frames: int, rounds: int) -> None:
    """Logs, read without a conversion."""
    for shape, lengths in (
        ((17,), cases.lengths_of_logs(steps)),
        ((84, 84, 3), [64] * max(frames // 64, 1)),
    ):
        with tempfile.TemporaryDirectory() as logs, tempfile.TemporaryDirectory() as data_dir:
            cases.record(logs, shape, lengths)
            found = cases.medians(cases.readers_of_logs(logs, data_dir), rounds)
        title = f"Streaming, {len(lengths)} episodes, {sum(lengths):,} steps of {shape}"
        show(title, found, sum(lengths), "steps")


def bench_jobs(
    title: str,
    write: Callable[[str, int], None],
    size: int,
    jobs: Mapping[str, str],
    rounds: int,
    unit: str = "steps",
) -> None:
    """Writes raw data of a size, and runs jobs on it, by the name of the job and of its row."""
    with tempfile.TemporaryDirectory() as directory:
        # Elsewhere: the peak memory of a process is counted from that of its parent on.
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(directory, size))
        writer.start()
        writer.join()
        if writer.exitcode:
            raise RuntimeError(f"{title}: the raw data was not written")
        found = measure(list(jobs), directory, rounds)
    rows = {jobs[job]: one for job, one in found.items()}
    show(f"{title}, {size:,} {unit}", rows, size, unit)


def bench_minari_readers(steps: int, rounds: int) -> None:
    """Minari datasets, read episode by episode."""
    for length in (500, 10):
        with tempfile.TemporaryDirectory() as directory:
            cases.write_minari(directory, steps, length)
            found = cases.medians(cases.readers_of_minari(directory), rounds)
        show(f"Reading Minari, HDF5, episodes of {length} steps", found, steps, "steps")


def bench_columns(steps: int, rounds: int) -> None:
    """Columns of any format, and of the reader that knows but one."""
    with tempfile.TemporaryDirectory() as directory:
        for name, readers in cases.readers_of_columns(steps, directory).items():
            show(f"Columns, {name}", cases.medians(readers, rounds), steps, "steps")


def bench_large(gigabytes: float) -> None:
    """Memory."""
    found = measure(["large_by_us"], str(gigabytes), 1)["large_by_us"]
    steps = gigabytes * 1e9 / float(np.prod(FRAME))
    show(
        f"{gigabytes:g} GB of frames {FRAME}",
        {"tfds_builders": found},
        steps,
        "steps",
    )


def main() -> None:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    usual = ["d4rl", "logs", "streaming", "minari", "columns", "rlu", "tiny", "dqn"]
    parser.add_argument("--only", nargs="+", default=usual, choices=[*usual, "large"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=8_000)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--envlogger-python")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--raw", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        run_here(arguments.job, arguments.raw)
        return
    if "d4rl" in arguments.only:
        bench_d4rl(arguments.rows, arguments.rounds)
    if "logs" in arguments.only:
        bench_logs(arguments.rounds, arguments.envlogger_python)
    if "streaming" in arguments.only:
        bench_streaming(arguments.steps, arguments.frames, arguments.rounds)
    if "minari" in arguments.only:
        jobs = {
            "minari_by_us": "tfds_builders",
            "minari_read_by_us": "MinariSource, reading alone",
            "minari_by_minari": "Minari, reading alone",
        }
        bench_jobs("Minari, HDF5", cases.write_minari, arguments.steps, jobs, arguments.rounds)
        bench_minari_readers(arguments.steps, arguments.rounds)
    if "columns" in arguments.only:
        bench_columns(arguments.steps, arguments.rounds)
    if "rlu" in arguments.only:
        jobs = {"rlu_by_us": "tfds_builders", "rlu_by_tfds": "TFDS rlu_rwrl"}
        bench_jobs("RWRL", cases.write_rwrl, arguments.steps, jobs, arguments.rounds)
    if "tiny" in arguments.only:
        jobs = {
            "tiny_by_us": "tfds_builders",
            "tiny_unverified": "tfds_builders, not verified",
            "tiny_read_by_us": "the source, reading alone",
            "tiny_by_tfds": "TFDS, given the same episodes",
        }
        for title, write in (
            ("Windows of the Control Suite", cases.write_windows),
            ("Transitions of Atari", cases.write_transitions),
        ):
            bench_jobs(title, write, arguments.episodes, jobs, arguments.rounds, "episodes")
    if "dqn" in arguments.only:
        jobs = {
            "dqn_by_us": "tfds_builders",
            "dqn_read_by_us": "AtariDqnReplaySource, with PNG",
            "dqn_files": "gzip and np.load alone",
        }
        bench_jobs("Atari DQN Replay", cases.write_dqn, arguments.frames, jobs, arguments.rounds)
    if "large" in arguments.only:
        bench_large(arguments.gigabytes)


if __name__ == "__main__":
    main()
