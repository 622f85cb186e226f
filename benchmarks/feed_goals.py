"""What else `bench_feeds` measures of `rlds.feeds`: memory, start, index, order, state, pixels.

Each function measures one thing in a process of its own, and returns what it found in lines.
"""

import functools
import gc
import json
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import feed_data
import feed_ours
import numpy as np
import processes
from feed_data import Data


class Line(NamedTuple):
    """A line of the table of goals.

    Attributes:
      goal: Its number and what it is about.
      found: What was measured.
      least: What it has to be at least, if anything.
      most: What it may be at most, if anything.
      unit: Of all these.
    """

    goal: str
    found: float
    least: float | None = None
    most: float | None = None
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it is within the bounds."""
        return (self.least is None or self.found >= self.least) and (
            self.most is None or self.found <= self.most
        )


class Measured(NamedTuple):
    """What is measured with: the data of both kinds, and a folder for more."""

    numbers: Data
    cameras: Data
    folder: Path


def _cpu(job: Callable[[], Any], repeats: int = 1) -> float:
    """The least processor time of a job, in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        job()
        times.append(time.process_time() - begin)
    return min(times)


def decoding(measured: Measured) -> Iterator[Line]:
    """How much of the time of windows is not that of decoding, which runs in turn with it."""
    from simplejpeg import decode_jpeg

    import tfds_files

    data = measured.cameras
    feed = feed_ours.feed(data, shuffle="global")
    folder = tfds_files.open_folder(data.path("tfrecord"), decode_images=False)
    observations = [episode["steps"]["observation"] for episode in folder["train"]]
    files = np.concatenate([seen[name] for name in feed_data.IMAGES for seen in observations])
    rows = feed.batch_size * feed_data.HISTORY * len(feed_data.IMAGES)
    rng = np.random.default_rng(0)
    images = np.empty((rows, *feed_data.IMAGE_SHAPE), np.uint8)

    def decode() -> None:
        for row, number in enumerate(rng.integers(len(files), size=rows).tolist()):
            decode_jpeg(files[number], buffer=images[row])

    batches = feed.iterate(prefetch=False)
    next(batches), decode()
    ours, alone = [], []
    for _ in range(30):
        ours.append(_cpu(lambda: next(batches)))
        alone.append(_cpu(decode))
    share = 1 - np.median(np.array(alone) / np.array(ours))
    yield Line("2: all but decoding, of the time of a window", share * 100, most=7, unit="%")


def memory(measured: Measured) -> Iterator[Line]:
    """What is kept in memory, and whether it grows."""
    from rlds.feeds.order import Shuffled

    tracemalloc.start()
    order = Shuffled(20_000_000, seed=0)
    order.numbers(3, np.arange(256))
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Line("3: the order of a sample", size / 20_000_000, most=0.001, unit="bytes")

    samples = feed_ours.samples(measured.cameras)
    imported = processes.memory("Pss_Anon")
    feed = feed_ours.feed(measured.cameras, shuffle="global")
    epoch = len(samples) // feed.batch_size
    batches = feed.iterate(prefetch=False)  # How many are in advance would be left to chance.
    after = []
    for _ in range(3):
        for _ in range(max(epoch, 40)):
            next(batches)
        after.append(processes.memory("Pss_Anon"))
    yield Line("3: windows, beside mapped files and imports", after[-1] - imported, None, 100, "MB")
    yield Line("3: growth in the third epoch", after[2] - after[1], None, 5, "MB")


def start(measured: Measured) -> Iterator[Line]:
    """The first batch of 100,000 short episodes, with an index and without one."""
    data = _many(measured)
    if not data.path("tfrecord").exists():
        _write_many(data)
    shutil.rmtree(data.path("tfrecord") / ".feeds", ignore_errors=True)
    begin = processes.cpu_time()
    feed_ours.feed(data, shuffle="global")[0]
    yield Line("4: index of 100,000 episodes, made", processes.cpu_time() - begin, None, 30, "s")


def _many(measured: Measured) -> Data:
    return Data(measured.folder, "many", 100_000, 10)


def _write_many(data: Data) -> None:
    """Writes the episodes in a hundred shards, which are copies of one."""
    from tfds_files import Dataset, DatasetWriter, Features, Tensor

    directory = data.path("tfrecord")
    small = Data(directory, "numbers", data.episodes // 100, data.steps)
    floats = {"observation": (17,), "action": (6,), "reward": (), "discount": ()}
    step: Any = {
        name: Tensor(shape=shape, dtype=np.dtype(np.float32)) for name, shape in floats.items()
    }
    step |= dict.fromkeys(("is_first", "is_last", "is_terminal"), Tensor(dtype=np.dtype(bool)))
    features = Features(features={"steps": Dataset(feature=Features(features=step))})
    with DatasetWriter(
        directory, features, "many", max_examples_per_shard=small.episodes
    ) as writer:
        for episode in small.each_episode():
            writer.add({"steps": episode})
    (shard,) = directory.glob("*.tfrecord-*")
    info = json.loads((directory / "dataset_info.json").read_text())
    (split,) = info["splits"]
    split["shardLengths"] = [str(small.episodes)] * 100
    split["numBytes"] = str(int(split["numBytes"]) * 100)
    split["filepathTemplate"] = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    for number in range(100):
        shutil.copy(shard, directory / f"many-train.tfrecord-{number:05}-of-00100")
    shard.unlink()
    (directory / "dataset_info.json").write_text(json.dumps(info))


def restart(measured: Measured) -> Iterator[Line]:
    """The first batch where there is an index: Python and imports included."""
    feed_ours.feed(_many(measured), shuffle="global")[0]
    yield Line("4: first batch of 100,000 episodes, indexed", processes.cpu_time(), None, 0.3, "s")


def index(measured: Measured) -> Iterator[Line]:
    """How fast shards are indexed, and how large the indexes are."""
    import tfds_files
    from tfds_files import index_shard

    def index_all(shards: list[Path], features: Any) -> None:
        for shard in shards:
            index_shard(shard, features)

    for data in (measured.numbers, measured.cameras):
        shards = _shards(data)
        size = sum(shard.stat().st_size for shard in shards)
        features = tfds_files.open_folder(data.path("tfrecord")).features
        seconds = _cpu(functools.partial(index_all, shards, features), 9)
        yield Line(f"5: index of {data.name}", size / seconds / 1e9, least=3, unit="GB/s")
        files = sum(file.stat().st_size for file in data.path("tfrecord/.feeds").iterdir())
        yield Line(f"5: index of {data.name}, of the data", files / size * 100, None, 0.1, "%")


def _shards(data: Data) -> list[Path]:
    return sorted(data.path("tfrecord").glob("*.tfrecord-*"))


def resume(measured: Measured) -> Iterator[Line]:
    """How large a state is, how long it takes to go on, and whether the batches are the same."""
    feed = feed_ours.feed(measured.numbers, shuffle="global", remainder="carry")
    batches = iter(feed)
    for _ in range(777):
        next(batches)
    state = json.dumps(batches.state_dict())
    expected = [next(batches) for _ in range(3)]
    yield Line("6: a state as JSON", len(state), None, 200, "bytes")
    again = feed_ours.feed(measured.numbers, shuffle="global")
    seconds = _cpu(lambda: next(again.iterate(json.loads(state), prefetch=False)))
    yield Line("6: to go on from a state", seconds * 1e3, None, 10, "ms")
    resumed = again.iterate(json.loads(state))
    same = all(_same(batch, next(resumed)) for batch in expected)
    world = [
        feed_ours.feed(measured.numbers, shuffle="global", rank=rank, world=4).iterate(
            json.loads(state)
        )
        for rank in range(4)
    ]
    for batch in expected:
        parts = [next(rank) for rank in world]
        dealt = {name: np.stack([part[name] for part in parts], 1) for name in batch}
        dealt = {name: rows.reshape(-1, *rows.shape[2:]) for name, rows in dealt.items()}
        same = same and _same(batch, dealt)
    for workers in (0, 1, 2):
        loader = iter(again.torch(start=json.loads(state), num_workers=workers))
        same = same and all(_same(batch, next(loader)) for batch in expected)
    yield Line("6: the same batches for 4 ranks, and 0 to 2 workers", float(same), least=1)


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(column, np.asarray(other[name])) for name, column in one.items())


def order(measured: Measured) -> Iterator[Line]:
    """What an index of the order takes, and whether it is random."""
    from rlds.feeds import _core, _pure
    from rlds.feeds.permutation import Permutation, key_of

    del measured
    positions = np.arange(4096)
    for name, core, most in (("compiled", _core, 20), ("NumPy", _pure, 110)):
        if name == "compiled" and core.permute is _pure.permute:
            continue
        seconds = _cpu(functools.partial(_permute, core.permute, positions), 5)
        ns = seconds / 20 / len(positions) * 1e9
        yield Line(f"7: an index of the order, {name}", ns, None, most, "ns")
    # How often each part of the numbers comes to each part of the positions.
    size, cells, rounds = 1 << 16, 64, 200
    expected = size / cells**2
    places = np.arange(size) // (size // cells)
    chi = []
    for seed in range(rounds):
        found = Permutation(size, key_of(seed, 0))[np.arange(size)] // (size // cells)
        counts = np.bincount(places * cells + found, minlength=cells**2)
        # Rows and columns have fixed sums, so less of the counts is free.
        chi.append(((counts - expected) ** 2 / expected).sum() / (cells - 1) ** 2)
    deviations = (np.mean(chi) - 1) / np.sqrt(2 / (cells - 1) ** 2 / rounds)
    yield Line("7: chi square of positions, from 1", abs(float(deviations)), None, 3, "sigma")


def _permute(permute: Callable[..., Any], positions: np.ndarray) -> None:
    for key in range(20):
        permute(positions, 20_000_000, key)


def mixing(measured: Measured) -> Iterator[Line]:
    """How many episodes are in a batch of segments, and in one of tf.data's buffer of that size."""
    from rlds.feeds.order import Segmented

    data = measured.numbers
    steps = data.steps - 1
    length, window = 50, 160
    segments = Segmented(np.full(data.episodes, steps), 0, length, window)
    places = np.arange(segments.size // 256 * 256)
    numbers = segments.numbers(0, places).reshape(-1, 256) // steps
    ours = np.mean([len(np.unique(batch)) for batch in numbers])
    yield Line("10: episodes in a batch, segments", float(ours))
    # As `Dataset.shuffle` draws: one of the buffer, which the next element replaces.
    rng = np.random.default_rng(0)
    source = np.concatenate([np.arange(steps) + steps * e for e in rng.permutation(data.episodes)])
    buffer, drawn = source[: length * window].copy(), []
    for element in source[length * window :].tolist():
        place = int(rng.integers(len(buffer)))
        drawn.append(buffer[place])
        buffer[place] = element
    if len(drawn) < 256:
        return
    whole = np.array(drawn)[: len(drawn) // 256 * 256].reshape(-1, 256) // steps
    theirs = np.mean([len(np.unique(batch)) for batch in whole])
    yield Line("10: episodes in a batch, to those of tf.data's buffer", ours / theirs, least=2)


def reading(measured: Measured) -> Iterator[Line]:
    """How many bytes are read of cold files by segments, for each byte that is needed."""
    data = measured.cameras
    feed = feed_ours.feed(data, shuffle="segments")
    files = list(data.path("tfrecord").glob("*.tfrecord-*"))
    needed = sum(file.stat().st_size for file in files)
    del feed
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    begin = _read_from_disk()
    feed = feed_ours.feed(data, shuffle="segments", epochs=1)
    for _ in feed:
        pass
    yield Line(
        "10: bytes read of the disk per byte of the files",
        (_read_from_disk() - begin) / needed,
        most=1.3,
    )


def _read_from_disk() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise OSError("/proc/self/io has no read_bytes")


def pixels(measured: Measured) -> Iterator[Line]:
    """By how much pixels differ from those of TensorFlow, and of Pillow."""
    import tensorflow as tf

    import rlds.feeds

    data = measured.cameras
    files = data.episode(0)["observation"]["image"]
    theirs = {
        "tf": np.stack([tf.io.decode_jpeg(file).numpy() for file in files]),
        "accurate": feed_data.decoded(files),
    }
    for jpeg, expected in theirs.items():
        table = rlds.feeds.open(data.path("tfrecord"), "train", jpeg=jpeg)
        images = table.read(0, fields=["observation/image"])["observation"]["image"]
        worst = np.abs(images.astype(int) - expected).max()
        yield Line(f"11: pixels with jpeg={jpeg!r} differ at most by", float(worst), most=0)


GOALS = (decoding, memory, start, restart, index, resume, order, mixing, reading, pixels)
