"""The contenders of `bench_feeds` that are not `rlds.feeds`: what people do today.

Each takes the data and yields batches without end: of `numbers` 256 transitions (observation,
action, reward, discount, next observation), of `cameras` 64 windows (two frames of two cameras, 16
actions, masks). Names and values are those of `feed_data.transitions_at` and `windows_at`.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import feed_data
import numpy as np
from feed_data import GAMMA, HISTORY, HORIZON, IMAGES, Columns, Data

Batches = Iterator[Any]


def batch_size(data: Data) -> int:
    """How many samples are in a batch."""
    return 64 if data.has_images else 256


# --- Arrays --------------------------------------------------------------------------------------


def discounted(columns: Columns) -> Columns:
    """The same columns with the discounts of transitions, for indexing."""
    terminal = np.append(columns["is_terminal"][1:], False)
    discount = np.where(terminal, np.float32(0), columns["discount"] * np.float32(GAMMA))
    return {**columns, "discount": discount}


def _samples_at(data: Data, columns: Columns, at: np.ndarray) -> Columns:
    if data.has_images:
        return feed_data.windows_at(columns, at, data.steps)
    return feed_data.transitions_at(columns, at)


def in_ram(data: Data, size: int | None = None) -> Batches:
    """All steps in memory, images as pixels, and NumPy's `take`: the limit."""
    size = size or batch_size(data)
    columns = discounted(data.columns())
    starts, rng = feed_data.starts(data), np.random.default_rng(0)
    while True:
        order = rng.permutation(starts)
        for first in range(0, len(order) - size + 1, size):
            yield _samples_at(data, columns, order[first : first + size])


class Samples:
    """A map-style dataset of PyTorch: each sample of mapped arrays by its number."""

    def __init__(self, data: Data) -> None:
        columns = data.columns("r")
        self._data, self._columns = data, discounted(columns)
        self._starts = feed_data.starts(data)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> Columns:
        at, columns = int(self._starts[number]), self._columns
        if not self._data.has_images:
            return {
                "observation": np.array(columns["observation"][at]),
                "action": np.array(columns["action"][at]),
                "reward": columns["reward"][at],
                "discount": columns["discount"][at],
                "next_observation": np.array(columns["observation"][at + 1]),
            }
        return window(columns, at - at % self._data.steps, at, self._data.steps)


class ManySamples(Samples):
    """The same, with the samples of a batch at once."""

    def __getitems__(self, numbers: list[int]) -> Columns:
        return _samples_at(self._data, self._columns, self._starts[numbers])


def window(columns: Columns, begin: int, at: int, steps: int) -> Columns:
    """A window at a step of an episode that begins at another one."""
    past = np.arange(at - HISTORY + 1, at + 1)
    future = np.arange(at, at + HORIZON)
    last = begin + steps - 2
    return {
        **{name: columns[name][np.maximum(past, begin)] for name in (*IMAGES, "state")},
        "action": columns["action"][np.minimum(future, last)],
        "reward": columns["reward"][at],
        "timestep_pad_mask": past >= begin,
        "action_pad_mask": future <= last,
    }


def _as_they_are(samples: Any) -> Any:
    import torch

    return {name: torch.from_numpy(values) for name, values in samples.items()}


def _loader(dataset: Any, data: Data, workers: int, *, collate: Any = None) -> Batches:
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(0)
    loader = DataLoader(
        dataset,
        batch_size(data),
        shuffle=hasattr(dataset, "__len__"),
        num_workers=workers,
        drop_last=True,
        collate_fn=collate,
        persistent_workers=workers > 0,
    )
    while True:
        yield from loader


def memmap(data: Data, workers: int = 0, *, at_once: bool = False) -> Batches:
    """Mapped `.npy` files in a DataLoader."""
    if at_once:
        return _loader(ManySamples(data), data, workers, collate=_as_they_are)
    return _loader(Samples(data), data, workers)


# --- Hugging Face --------------------------------------------------------------------------------


class Rows:
    """Rows of a table of Hugging Face, as LeRobot reads them: other steps by column."""

    def __init__(self, data: Data) -> None:
        import datasets
        import torch

        def to_torch(rows: dict[str, list[Any]]) -> dict[str, Any]:
            arrays = {name: map(np.asarray, v) for name, v in rows.items() if name in IMAGES}
            return {
                name: [torch.as_tensor(value) for value in arrays.get(name, values)]
                for name, values in rows.items()
            }

        table = datasets.load_from_disk(str(data.path("arrow") / "saved"))
        table.set_transform(to_torch)
        self._others = table.select_columns([n for n in table.column_names if n not in IMAGES])
        self._table, self._data = table, data
        self._starts = feed_data.starts(data)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, number: int) -> Columns:
        import torch

        at = int(self._starts[number])
        if not self._data.has_images:
            now, following = self._table[at], self._table[at + 1]
            discount = 0.0 if following["is_terminal"] else now["discount"] * GAMMA
            return {
                "observation": now["observation"],
                "action": now["action"],
                "reward": now["reward"],
                "discount": torch.as_tensor(discount, dtype=torch.float32),
                "next_observation": following["observation"],
            }
        begin, last = at - at % self._data.steps, at - at % self._data.steps + self._data.steps - 2
        past = range(at - HISTORY + 1, at + 1)
        future = range(at, at + HORIZON)
        frames = self._table[[max(place, begin) for place in past]]
        actions = self._others[[min(place, last) for place in future]]
        return {
            **{name: torch.stack(frames[name]) for name in (*IMAGES, "state")},
            "action": torch.stack(actions["action"]),
            "reward": frames["reward"][-1],
            "timestep_pad_mask": torch.tensor([place >= begin for place in past]),
            "action_pad_mask": torch.tensor([place <= last for place in future]),
        }


def rows(data: Data, workers: int = 0) -> Batches:
    """Rows of a table of Hugging Face in a DataLoader."""
    return _loader(Rows(data), data, workers)


# --- TFDS and tf.data ----------------------------------------------------------------------------


class Episodes:
    """`tfds.as_data_source`: a step of an episode is decoded when it is asked for."""

    def __init__(self, data: Data) -> None:
        import tensorflow_datasets as tfds

        self._data = data
        builder = tfds.builder_from_directory(str(data.path("array_record")))
        self._source = builder.as_data_source(split="train")

    def __len__(self) -> int:
        return self._data.episodes * (self._data.steps - 1)

    def __getitem__(self, number: int) -> Columns:
        episode, at = divmod(number, self._data.steps - 1)
        steps = self._source[episode]["steps"]
        now = steps[at]
        if not self._data.has_images:
            following = steps[at + 1]
            discount = 0 if following["is_terminal"] else now["discount"] * np.float32(GAMMA)
            return {
                "observation": now["observation"],
                "action": now["action"],
                "reward": now["reward"],
                "discount": np.float32(discount),
                "next_observation": following["observation"],
            }
        past = range(at - HISTORY + 1, at + 1)
        future = range(at, at + HORIZON)
        last = self._data.steps - 2
        found = {place: steps[place] for place in {*past, *future} if 0 <= place <= last}
        frames = [found[max(place, 0)]["observation"] for place in past]
        return {
            **{name: np.stack([frame[name] for frame in frames]) for name in (*IMAGES, "state")},
            "action": np.stack([found[min(place, last)]["action"] for place in future]),
            "reward": now["reward"],
            "timestep_pad_mask": np.array([place >= 0 for place in past]),
            "action_pad_mask": np.array([place <= last for place in future]),
        }


def as_data_source(data: Data, workers: int = 0) -> Batches:
    """`tfds.as_data_source` in a DataLoader."""
    return _loader(Episodes(data), data, workers)


def _openvla(data: Data) -> Any:
    """The pipeline of OpenVLA and Octo: samples of episodes go to a buffer, then are decoded."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    def transitions(steps: Any) -> Any:
        after = tf.where(steps["is_terminal"][1:], 0.0, steps["discount"][:-1] * GAMMA)
        now = {name: steps[name][:-1] for name in ("observation", "action", "reward")}
        return {**now, "discount": after, "next_observation": steps["observation"][1:]}

    def windows(steps: Any) -> Any:
        places = tf.range(tf.shape(steps["action"])[0] - 1)[:, tf.newaxis]
        past, future = places + tf.range(1 - HISTORY, 1), places + tf.range(HORIZON)
        last = tf.shape(steps["action"])[0] - 2
        observation = {
            name: tf.gather(steps["observation"][name], tf.maximum(past, 0))
            for name in (*IMAGES, "state")
        }
        return {
            **observation,
            "action": tf.gather(steps["action"], tf.minimum(future, last)),
            "reward": steps["reward"][:-1],
            "timestep_pad_mask": past >= 0,
            "action_pad_mask": future <= last,
        }

    def decode(sample: Any) -> Any:
        frames = {
            name: tf.map_fn(
                lambda file: tf.io.decode_image(file, expand_animations=False),
                sample[name],
                fn_output_signature=tf.TensorSpec(feed_data.IMAGE_SHAPE, tf.uint8),
            )
            for name in IMAGES
        }
        return {**sample, **frames}

    builder = tfds.builder_from_directory(str(data.path("tfrecord")))
    episodes = builder.as_dataset(
        split="train",
        decoders={"steps": tfds.decode.SkipDecoding()},
        shuffle_files=True,
        read_config=tfds.ReadConfig(try_autocache=False),
    )
    chunked = episodes.map(
        lambda episode: (windows if data.has_images else transitions)(episode["steps"]),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    samples = chunked.repeat().flat_map(tf.data.Dataset.from_tensor_slices)
    samples = samples.shuffle(4_000 if data.has_images else 50_000)
    if data.has_images:
        samples = samples.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return samples


def openvla(data: Data) -> Batches:
    """That pipeline, and its samples into a DataLoader one by one."""
    from torch.utils.data import IterableDataset

    class Wrapped(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return _openvla(data).prefetch(1).as_numpy_iterator()

    return _loader(Wrapped(), data, 0)


def openvla_batched(data: Data) -> Batches:
    """That pipeline, batched by tf.data."""
    return _openvla(data).batch(batch_size(data)).prefetch(1).as_numpy_iterator()


def _episodes(data: Data) -> Any:
    from rlds.tfds import load

    return load(str(data.path("tfrecord")))


def by_tf_data(data: Data) -> Batches:
    """This project on TensorFlow: `rlds.tfds.load` and `rlds.transformations`."""
    from rlds.transformations.sampling import shuffle_steps
    from rlds.transformations.transition_ops import transitions
    from rlds.transformations.window_ops import windows

    def flat(batch: Any) -> Columns:
        return {**batch, **batch["observation"]}

    if data.has_images:
        # The last step of an episode has no action: no window of the others starts there.
        chunks = windows(
            _episodes(data),
            history=HISTORY,
            horizon=HORIZON,
        ).map(_without_last)
    else:
        chunks = transitions(_episodes(data), gamma=GAMMA)
    size = batch_size(data)
    batches = shuffle_steps(chunks, batch_size=size, seed=0, drop_remainder=True)
    stream = itertools.chain.from_iterable(batches.as_numpy_iterator() for _ in itertools.count())
    return map(flat, stream) if data.has_images else stream


def _without_last(episode: Any) -> Any:
    import tensorflow as tf

    steps = tf.nest.map_structure(lambda column: column[:-1], episode["steps"])
    return {**episode, "steps": steps}


# --- Grain ---------------------------------------------------------------------------------------


def _grain(source: Sequence[Any], workers: int, size: int | None) -> Batches:
    import grain.python as grain

    samples = grain.MapDataset.source(source).shuffle(seed=0).repeat()
    if size:
        samples = samples.batch(size, drop_remainder=True)
    batches = samples.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    if workers:
        from absl import flags

        flags.FLAGS.mark_as_parsed()
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return iter(batches)


def grain_samples(data: Data, workers: int = 0) -> Batches:
    """Grain, sample by sample of arrays in memory."""
    return _grain(Samples(data), workers, batch_size(data))


class _Batches:
    """Whole batches, in a random order."""

    def __init__(self, data: Data) -> None:
        self._data, self._size = data, batch_size(data)
        self._columns = discounted(data.columns())
        self._order = np.random.default_rng(0).permutation(feed_data.starts(data))

    def __len__(self) -> int:
        return len(self._order) // self._size

    def __getitem__(self, number: int) -> Columns:
        at = self._order[number * self._size : (number + 1) * self._size]
        return _samples_at(self._data, self._columns, at)


def grain_batches(data: Data, workers: int = 0) -> Batches:
    """Grain, whose elements are whole batches of arrays in memory."""
    return _grain(_Batches(data), workers, None)


# --- Video ---------------------------------------------------------------------------------------


class Film:
    """A film that is kept open."""

    def __init__(self, path: str) -> None:
        import av

        self._container = av.open(path)
        self._stream = self._container.streams.video[0]
        self._stream.thread_type = "NONE"

    def frames(self, first: int, last: int) -> list[np.ndarray]:
        """Some of its images."""
        time_base, rate = self._stream.time_base, self._stream.average_rate
        times = [int(place / rate / time_base) for place in range(first, last + 1)]
        self._container.seek(times[0], stream=self._stream)
        found: list[np.ndarray] = []
        for frame in self._container.decode(self._stream):
            if frame.pts >= times[0]:
                found.append(frame.to_ndarray(format="rgb24"))
            if len(found) == len(times):
                break
        return found


def films(data: Data) -> Batches:
    """Windows whose frames are in a film for each camera and episode; all are kept open."""
    folder = data.path("video")
    open_film = functools.lru_cache(None)(lambda name: Film(str(folder / name)))
    columns = {name: np.load(data.path("npy") / f"{name}.npy") for name in ("state", "action")}
    columns["reward"] = np.load(data.path("npy") / "reward.npy")
    rng, size = np.random.default_rng(0), batch_size(data)
    starts = feed_data.starts(data)
    starts = starts[starts < feed_data.FILMED * data.steps]
    while True:
        order = rng.permutation(starts)
        for first in range(0, len(order) - size + 1, size):
            samples = []
            for at in order[first : first + size].tolist():
                episode, place = divmod(at, data.steps)
                sample = {}
                for name in IMAGES:
                    film = open_film(f"{episode}-{name}.mp4")
                    frames = film.frames(max(place - HISTORY + 1, 0), place)
                    sample[name] = np.stack([frames[0]] * (HISTORY - len(frames)) + frames)
                numbers = {**columns, **dict.fromkeys(IMAGES, columns["state"])}
                samples.append({**window(numbers, at - place, at, data.steps), **sample})
            yield {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}


# --- Whole episodes, in their order --------------------------------------------------------------


def load_in_order(data: Data) -> Batches:
    """`rlds.tfds.load`, whole episodes."""
    while True:
        for episode in _episodes(data).as_numpy_iterator():
            yield episode["steps"]


def nested_in_order(data: Data) -> Batches:
    """Nested steps of TFDS, one by one."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(data.path("tfrecord")))
    config = tfds.ReadConfig(try_autocache=False)
    episodes = builder.as_dataset(split="train", read_config=config)
    while True:
        for episode in tfds.as_numpy(episodes):
            rewards = [step["reward"] for step in episode["steps"]]
            yield {"reward": rewards}


def log_in_order(data: Data) -> Batches:
    """`Reader.columns` of a log, whole episodes."""
    import envlogger

    with envlogger.Reader(str(data.path("log"))) as reader:
        while True:
            for number in range(len(reader.episodes)):
                yield reader.columns(number, rlds=True)
