"""Contenders that make a dataset in another format, by one process or by several.

Ours compare what they wrote with what they read. Peers are lerobot's own writer, and TFDS on Beam.
"""

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from worker import Work

TARGETS = ("tfds", "lerobot", "robomimic", "zarr", "envlogger")
WORKERS = (1, 2, 4, 8, 16, 32, 64)
NAMES = {"robomimic": "made.h5"}  # Names of exports that are files.
OPTIONS: Mapping[str, Mapping[str, Any]] = {"lerobot": {"fps": 30}}
WARM = 600  # So many episodes are written before anything is measured.
FPS = 30
# What a process does that converts a few episodes.
FEW = """import sys; sys.path.append(sys.argv[1])
from pathlib import Path
import conversion_jobs, generated
from rlds.conversion import parts
parts._MAX_EPISODES = 32
source = generated.GeneratedSource(int(sys.argv[3]), knows_lengths=False)
conversion_jobs.make(source, sys.argv[2], Path(sys.argv[4]), int(sys.argv[5]))"""


# --- Data ----------------------------------------------------------------------------------------


def write_small_files(folder: Path, size: int) -> None:
    """Writes small episodes to `.npz` files, one each."""
    import generated

    source = generated.GeneratedSource(size)
    for index in range(size):
        steps = source.read("train", index).steps
        columns = {"observation/state": steps["observation"]["state"]}
        ends = {name: steps[name][:-1] for name in ("action", "reward")}
        np.savez(folder / f"{index:06}.npz", **columns, **ends, terminated=True)


def write_frames(folder: Path, size: int) -> None:
    """Writes the dataset with cameras of `feed_data` as pixels, for readers without TFDS."""
    import feed_data

    for index, episode in enumerate(feed_data.Data(folder, "cameras", size).episodes()):
        columns = feed_data.flat(episode)
        seen = {f"observation/images/{name}": columns[name] for name in feed_data.IMAGES}
        state, action = columns["state"], columns["action"]
        np.savez(folder / f"{index:06}", **seen, action=action, **{"observation/state": state})


# --- Conversions ---------------------------------------------------------------------------------


def make(source: Any, to: str, folder: Path, jobs: int, **options: Any) -> None:
    """Converts: directly if `jobs` is 1 (except for TFDS), in this process if it is -1."""
    from rlds.conversion import staging
    from rlds.conversion.exporting import prepare, write_export

    if to == "tfds":
        import tfds_builders

        tfds_builders.convert(source, name="made", data_dir=folder, progress=False, jobs=abs(jobs))
        return
    export = prepare(source, to, **{**OPTIONS.get(to, {}), **options})
    target, all_is_small = (
        folder / NAMES.get(to, "made"),
        mock.patch.object(staging, "_MAX_SERIAL_BYTES", 1 << 60),
    )
    with all_is_small if jobs == 1 else contextlib.nullcontext():
        write_export(export, target, jobs=None if jobs == 1 else abs(jobs))


def convert(
    data: Path,
    size: int,
    *,
    to: str,
    jobs: int = 1,
    file: str = "",
    source_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Work:
    """Converts, with as many processes as there are cores if `jobs` is 0."""
    import rlds.sources
    from rlds_ecosystem.files.processes import default_jobs

    def work(folder: Path) -> int:
        source = rlds.sources.open(data / file, **(source_options or {})).source
        make(source, to, folder, jobs or default_jobs(), **options)
        return size

    return work


def convert_by_lerobot(
    data: Path, size: int, *, codec: str = "", processes: int = 0, threads: int = 0
) -> Work:
    """Has lerobot's writer add the frames of files, and encode them as they come.

    With processes and threads these write the frames as PNG files first, as any4lerobot has it.
    """
    from lerobot.configs.video import RGBEncoderConfig
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    files = sorted(data.glob("*.npz"))
    encoder: Any = {"preset": "superfast", "crf": 23} if codec == "h264" else {}
    options: dict[str, Any] = {"streaming_encoding": not processes, "encoder_queue_maxsize": 1000}
    options |= {"image_writer_processes": processes, "image_writer_threads": threads}
    if codec:
        options["rgb_encoder"] = RGBEncoderConfig(vcodec=codec, **encoder)

    def work(folder: Path) -> int:
        dataset = None
        for file in files:
            columns = {name.replace("/", "."): values for name, values in np.load(file).items()}
            length = len(columns["action"])
            vectors = {name: each for name, each in columns.items() if np.ndim(each) > 1}
            dataset = dataset or LeRobotDataset.create(
                "a/b", FPS, _features(vectors), root=folder / "made", **options
            )
            for row in range(length):
                dataset.add_frame(
                    {name: each[row] for name, each in vectors.items()} | {"task": "move"}
                )
            dataset.save_episode()
        assert dataset is not None
        dataset.finalize()
        return size

    return work


def _features(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the `features` argument of lerobot for columns."""
    names = ["height", "width", "channels"]
    return {
        name: {"dtype": "video", "shape": column.shape[1:], "names": names}
        if column.ndim == 4
        else {"dtype": "float32", "shape": column.shape[1:], "names": None}
        for name, column in columns.items()
    }


def convert_by_beam(data: Path, size: int) -> Work:
    """Has a builder of TFDS read files on Beam, by as many processes as there are cores."""
    import apache_beam as beam
    import tensorflow_datasets as tfds
    from apache_beam.options.pipeline_options import PipelineOptions

    tfds.disable_progress_bar()
    os.environ["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parent}"  # Of its processes.
    flags = [f"--direct_num_workers={os.cpu_count()}", "--direct_running_mode=multi_processing"]
    scalar = tfds.features.Scalar(np.float32)
    step = {
        "observation": {"state": tfds.features.Tensor(shape=(8,), dtype=np.float32)},
        "action": tfds.features.Tensor(shape=(7,), dtype=np.float32),
        **dict.fromkeys(("reward", "discount"), scalar),
        **dict.fromkeys(("is_first", "is_last", "is_terminal"), tfds.features.Scalar(np.bool_)),
    }

    class Files(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[misc,call-arg]
        VERSION = tfds.core.Version("1.0.0")
        name = "files"

        def _info(self) -> tfds.core.DatasetInfo:
            features = tfds.features.FeaturesDict({"steps": tfds.features.Dataset(step)})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
            files = sorted(map(str, data.glob("*.npz")))
            return {"train": beam.Create(files) | beam.Map(read_for_tfds)}

        def _generate_examples(self) -> Any:
            raise NotImplementedError

    def work(folder: Path) -> int:
        config = tfds.download.DownloadConfig(
            beam_runner="DirectRunner", beam_options=PipelineOptions(flags)
        )
        builder = Files(data_dir=folder)
        builder.download_and_prepare(download_config=config)
        assert builder.info.splits["train"].num_examples == size
        return size

    return work


def read_for_tfds(file: str) -> tuple[str, dict[str, Any]]:
    """Returns the example of a file, with the flags and the placeholders of RLDS."""
    columns, name = np.load(file), Path(file).name
    length = len(columns["action"]) + 1
    step = np.arange(length)
    rows = {
        "action": np.pad(columns["action"], ((0, 1), (0, 0))),
        "reward": np.pad(columns["reward"], (0, 1)),
        "discount": (step < length - 2).astype(np.float32),
        "is_first": step == 0,
        "is_last": step == length - 1,
        "is_terminal": step == length - 1,
    }
    seen = columns["observation/state"]
    steps = [
        {"observation": {"state": seen[row]}, **{key: each[row] for key, each in rows.items()}}
        for row in range(length)
    ]
    return name, {"steps": steps}


# --- Start and growth ----------------------------------------------------------------------------


def start(data: Path, size: int, *, to: str) -> Work:
    """Converts a few episodes, in new processes; says what a job and each worker cost at least."""

    def cpu_of(folder: Path, num_episodes: int, jobs: int) -> float:
        arguments = [str(Path(__file__).parent), to, str(num_episodes), str(folder), str(jobs)]
        folder.mkdir()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", FEW, *arguments], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def work(folder: Path) -> tuple[int, dict[str, float]]:
        one = cpu_of(folder / "one", 2, 1)
        # Two tasks of 32 episodes: one for each worker, or two for this process.
        several, here = (cpu_of(folder / f"{jobs}", 64, jobs) for jobs in (2, -1))
        return size, {"s (one part)": one, "s (each worker)": (several - here) / 2}

    return work


def grow(data: Path, size: int, *, to: str) -> Work:
    """Writes generated episodes, and measures the tasks of workers.

    Returns the times of the phases of a conversion, its memory and disk space, and the speedup by
    more workers, simulated from the times of the tasks.
    """
    import generated

    from rlds_ecosystem.files import processes

    real, sizes = processes._run_in_this_process, iter([min(size, WARM)])

    def work(folder: Path) -> tuple[int, dict[str, float]]:
        tasks: dict[str, list[float]] = {}
        watch = _Disk(folder)

        def run_here(work: Any, *arguments: Any) -> Any:
            watch.look()
            begin = time.process_time()
            result = real(work, *arguments)
            tasks.setdefault(type(work).__name__, []).append(time.process_time() - begin)
            return result

        num_episodes, begin = next(sizes, size), time.process_time()
        with mock.patch.object(processes, "_run_in_this_process", run_here):
            make(generated.GeneratedSource(num_episodes), to, folder, -1)
        total = time.process_time() - begin - watch.seconds
        phases = Counter[str]()
        for name, each in tasks.items():
            phases[_PHASES.get(name, "files")] += sum(each)
        alone = total - sum(phases.values())
        metrics = {f"s ({name})": phases[name] for name in (*_PHASES.values(), "files")}
        for workers in WORKERS:
            elapsed = alone + sum(_makespan(each, workers) for each in tasks.values())
            metrics[f"times ({workers} workers)"] = total / elapsed
        return num_episodes, {**metrics, "s (alone)": alone, "times (disk)": watch.ratio()}

    return work


# What the work of a task is called.
_PHASES = {"_PartWriter": "parts", "ReadBack": "read back"}


def _makespan(tasks: Sequence[float], workers: int) -> float:
    """Returns the makespan of tasks in their order, each done by the next free worker."""
    free = [0.0] * workers
    for seconds in tasks:
        first = free.index(min(free))
        free[first] += seconds
    return max(free)


class _Disk:
    """The peak disk usage of a folder, measured in no more than a hundredth of the time."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._peak, self._next, self.seconds = folder, 0, 0.0, 0.0

    def look(self) -> None:
        """Looks, unless it did a moment ago."""
        begin = time.process_time()
        if begin >= self._next:
            self._peak = max(self._peak, self._size())
            took = time.process_time() - begin
            self._next, self.seconds = begin + 100 * took, self.seconds + took

    def ratio(self) -> float:
        """Returns how many times as much there was as there is now."""
        return max(1.0, self._peak / self._size())

    def _size(self) -> int:
        walked = os.walk(self._folder)
        return sum(
            os.path.getsize(os.path.join(folder, name))
            for folder, _, names in walked
            for name in names
        )
