"""How fast raw data becomes a dataset, and in how much memory, beside the builders of TFDS.

    python benchmarks/bench_builders.py [--rounds N] [--only CASE ...] [--rows ROWS] [--steps STEPS]
        [--frames FRAMES] [--episodes EPISODES] [--envlogger-python PATH] [--gigabytes GB] [--json]

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import builder_cases as cases
import numpy as np
import rounds

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
LOG_LENGTH = 1000
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

    for name in tfds_builders.__all__:  # Some are loaded when they are needed.
        getattr(tfds_builders, name)
    del tf, tfds
    with tempfile.TemporaryDirectory() as data_dir:
        cpu, seconds = rounds.timed(lambda: JOBS[job](raw, data_dir))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "megabytes": peak}))


def run(job: str, raw: str) -> dict[str, float]:
    """Runs a job in a process of its own."""
    command = [sys.executable, __file__, "--job", job, "--raw", raw]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{job} failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


@dataclass(frozen=True)
class Rows:
    """What is compared: rows with the seconds, cpu and megabytes of each round."""

    title: str
    rows: Mapping[str, list[dict[str, float]]]
    work: float
    unit: str

    @classmethod
    def of_times(
        cls, title: str, times: Mapping[str, list[rounds.Times]], work: float, unit: str
    ) -> "Rows":
        """Rows of contenders that took turns."""
        rows = {
            name: [{"seconds": wall, "cpu": cpu} for cpu, wall in found]
            for name, found in times.items()
        }
        return cls(title, rows, work, unit)

    def report(self) -> None:
        """Prints the rows with processor times as a line of JSON."""
        times = {
            name: [(one["cpu"], one["seconds"]) for one in found]
            for name, found in self.rows.items()
            if "cpu" in found[0]
        }
        rounds.report(self.title, times)

    def show(self) -> None:
        """Prints a table of the medians, and of the highest memory; ratios are to the first row."""
        from rich.console import Console
        from rich.table import Table

        heads = ("seconds", "ratio", "cpu s", "cpu ratio", "peak MB")
        table = Table("", f"thousand {self.unit}/s", *heads, title=self.title)
        first: dict[str, float] = {}
        for name, found in self.rows.items():
            row = {key: statistics.median(one[key] for one in found) for key in found[0]}
            first = first or row
            seconds, cpu = row["seconds"], row.get("cpu")
            memory = max((one["megabytes"] for one in found if "megabytes" in one), default=None)
            cells = [
                f"{self.work / seconds / 1e3:,.1f}",
                f"{seconds:.2f}",
                f"{seconds / first['seconds']:.2f}",
            ]
            cells += ["", ""] if cpu is None else [f"{cpu:.2f}", f"{cpu / first['cpu']:.2f}"]
            table.add_row(name, *cells, "" if memory is None else f"{memory:,.0f}")
        Console(width=120).print(table)


def measure(
    jobs: Mapping[str, str], raw: str, num_rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Runs jobs in turn; returns what each took, by the name of its row."""
    runs: dict[str, list[dict[str, float]]] = {row: [] for row in jobs.values()}
    for _ in range(num_rounds):
        for job, row in jobs.items():
            runs[row].append(run(job, raw))
    return runs


def bench_d4rl(rows: int, num_rounds: int) -> Iterator[Rows]:
    """D4RL: a file of many rows."""
    sys.path.insert(0, str(SUPPORT))
    from raw_d4rl import write_mujoco_like

    jobs = {"d4rl_by_us": "tfds_builders", "d4rl_by_tfds": "TFDS d4rl_mujoco_halfcheetah"}
    with tempfile.TemporaryDirectory() as directory:
        raw = str(write_mujoco_like(Path(directory, "halfcheetah_medium.hdf5"), rows=rows))
        yield Rows(f"D4RL, {rows:,} rows", measure(jobs, raw, num_rounds), rows, "rows")


def bench_logs(num_episodes: int, num_rounds: int, envlogger_python: str | None) -> Iterator[Rows]:
    """Recordings of EnvLogger."""
    by_tfds, reading = "TFDS rlds_base, this reader", "reading alone, this reader, step by step"
    jobs = {"logs_by_us": "tfds_builders", "logs_by_tfds": by_tfds, "read_logs": reading}
    with tempfile.TemporaryDirectory() as directory:
        cases.record(directory, (17,), [LOG_LENGTH + 1] * num_episodes)
        found = measure(jobs, directory, num_rounds)
        if envlogger_python:
            command = [envlogger_python, "-c", READ_LOGS, directory]
            times = [
                # Elsewhere, as in this directory there is another `envlogger`.
                float(
                    subprocess.run(command, cwd=directory, capture_output=True, check=True).stdout
                )
                for _ in range(num_rounds)
            ]
            found["reading alone, EnvLogger 1.2, step by step"] = [
                {"seconds": seconds} for seconds in times
            ]
            found["TFDS rlds_base, EnvLogger 1.2 (computed)"] = [
                {"seconds": one["seconds"] - ours["seconds"] + seconds}
                for one, ours, seconds in zip(found[by_tfds], found[reading], times)
            ]
    steps = num_episodes * (LOG_LENGTH + 1)
    yield Rows(f"Logs, {steps:,} steps of 17 + 6 floats", found, steps, "steps")


def bench_streaming(steps: int, frames: int, num_rounds: int) -> Iterator[Rows]:
    """Logs, read without a conversion."""
    for shape, lengths in (
        ((17,), cases.lengths_of_logs(steps)),
        ((84, 84, 3), [64] * max(frames // 64, 1)),
    ):
        with tempfile.TemporaryDirectory() as logs, tempfile.TemporaryDirectory() as data_dir:
            cases.record(logs, shape, lengths)
            times = rounds.take_turns(cases.readers_of_logs(logs, data_dir), num_rounds)
        title = f"Streaming, {len(lengths)} episodes, {sum(lengths):,} steps of {shape}"
        yield Rows.of_times(title, times, sum(lengths), "steps")


def bench_jobs(
    title: str,
    write: Callable[[str, int], None],
    size: int,
    jobs: Mapping[str, str],
    num_rounds: int,
    unit: str = "steps",
) -> Iterator[Rows]:
    """Writes raw data of a size, and runs jobs on it, by the name of the job and of its row."""
    with tempfile.TemporaryDirectory() as directory:
        # Elsewhere: the peak memory of a process is counted from that of its parent on.
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(directory, size))
        writer.start()
        writer.join()
        if writer.exitcode:
            raise RuntimeError(f"{title}: the raw data was not written")
        found = measure(jobs, directory, num_rounds)
    yield Rows(f"{title}, {size:,} {unit}", found, size, unit)


def bench_minari_readers(steps: int, num_rounds: int) -> Iterator[Rows]:
    """Minari datasets, read episode by episode."""
    for length in (500, 10):
        with tempfile.TemporaryDirectory() as directory:
            cases.write_minari(directory, steps, length)
            times = rounds.take_turns(cases.readers_of_minari(directory), num_rounds)
        title = f"Reading Minari, HDF5, episodes of {length} steps"
        yield Rows.of_times(title, times, steps, "steps")


def bench_columns(steps: int, num_rounds: int) -> Iterator[Rows]:
    """Columns of any format, and of the reader that knows but one."""
    with tempfile.TemporaryDirectory() as directory:
        for name, readers in cases.readers_of_columns(steps, directory).items():
            times = rounds.take_turns(readers, num_rounds)
            yield Rows.of_times(f"Columns, {name}", times, steps, "steps")


def bench_large(gigabytes: float) -> Iterator[Rows]:
    """Memory."""
    found = measure({"large_by_us": "tfds_builders"}, str(gigabytes), 1)
    steps = gigabytes * 1e9 / float(np.prod(FRAME))
    yield Rows(f"{gigabytes:g} GB of frames {FRAME}", found, steps, "steps")


def compare(arguments: argparse.Namespace) -> Iterator[Rows]:
    """Runs what is asked for."""
    only, num_rounds, steps = arguments.only, arguments.rounds, arguments.steps
    if "d4rl" in only:
        yield from bench_d4rl(arguments.rows, num_rounds)
    if "logs" in only:
        yield from bench_logs(steps // LOG_LENGTH, num_rounds, arguments.envlogger_python)
    if "streaming" in only:
        yield from bench_streaming(steps, arguments.frames, num_rounds)
    if "minari" in only:
        jobs = {
            "minari_by_us": "tfds_builders",
            "minari_read_by_us": "MinariSource, reading alone",
            "minari_by_minari": "Minari, reading alone",
        }
        yield from bench_jobs("Minari, HDF5", cases.write_minari, steps, jobs, num_rounds)
    if "minari" in only or "minari readers" in only:
        yield from bench_minari_readers(steps, num_rounds)
    if "columns" in only:
        yield from bench_columns(steps, num_rounds)
    if "rlu" in only:
        jobs = {"rlu_by_us": "tfds_builders", "rlu_by_tfds": "TFDS rlu_rwrl"}
        yield from bench_jobs("RWRL", cases.write_rwrl, steps, jobs, num_rounds)
    if "tiny" in only:
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
            yield from bench_jobs(title, write, arguments.episodes, jobs, num_rounds, "episodes")
    if "dqn" in only:
        jobs = {
            "dqn_by_us": "tfds_builders",
            "dqn_read_by_us": "AtariDqnReplaySource, with PNG",
            "dqn_files": "gzip and np.load alone",
        }
        yield from bench_jobs(
            "Atari DQN Replay", cases.write_dqn, arguments.frames, jobs, num_rounds
        )
    if "large" in only:
        yield from bench_large(arguments.gigabytes)


def main() -> None:
    """Compares, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    usual = ["d4rl", "logs", "streaming", "minari", "columns", "rlu", "tiny", "dqn"]
    parser.add_argument(
        "--only", nargs="+", default=usual, choices=[*usual, "minari readers", "large"]
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=8_000)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--envlogger-python")
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--raw", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        run_here(arguments.job, arguments.raw)
        return
    for rows in compare(arguments):
        if arguments.json:
            rows.report()
        else:
            rows.show()


if __name__ == "__main__":
    main()
