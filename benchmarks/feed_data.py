"""The data of `feed_jobs`, in all the forms that its contenders read, and what belongs in a batch.

`numbers` are episodes of 17 + 6 floats, `cameras` episodes with two cameras, whose images of 128 x
128 pixels are JPEG files: smooth textures that move, with the noise of a sensor. The reward of a
step is its number in the dataset, so that anyone can tell what belongs in a sample.
"""

import functools
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

IMAGES = ("image", "wrist_image")
IMAGE_SHAPE = (128, 128, 3)
LENGTHS = {"numbers": 1000, "cameras": 200}
BATCH_SIZES = {"numbers": 256, "cameras": 64}
GAMMA = 0.99
HISTORY, HORIZON = 2, 16

Columns = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """One of the datasets.

    Attributes:
      folder: Where it is, in one of the forms.
      kind: `numbers` or `cameras`.
      size: How many steps all of its episodes have.
    """

    folder: Path
    kind: str
    size: int

    @property
    def has_images(self) -> bool:
        """Whether there are cameras."""
        return self.kind == "cameras"

    @property
    def length(self) -> int:
        """The steps of an episode."""
        return LENGTHS[self.kind]

    @property
    def batch_size(self) -> int:
        """The number of samples in a batch."""
        return BATCH_SIZES[self.kind]

    @property
    def starts(self) -> np.ndarray:
        """The steps at which samples start; the last of an episode starts none."""
        every = np.arange(self.size)
        return every[every % self.length < self.length - 1]

    def episodes(self) -> Iterator[Columns]:
        """Makes all episodes."""
        return map(self.episode, range(self.size // self.length))

    def episode(self, index: int) -> Columns:
        """Makes an episode; images are JPEG files."""
        rng, length = np.random.default_rng([index, self.size]), self.length
        floats = functools.partial(rng.standard_normal, dtype=np.float32)
        step = np.arange(length)
        is_last = step == length - 1
        is_terminal = is_last & (index % 2 == 0)
        action = floats((length, 7 if self.has_images else 6))
        reward = (index * length + step).astype(np.float32)
        discount = np.ones(length, np.float32)
        discount[-2] -= is_terminal[-1]
        for column in (action, reward, discount):
            column[-1] = 0
        observation: Any = floats((length, 17))
        if self.has_images:
            observation = {name: _film(rng, length) for name in IMAGES}
            observation["state"] = floats((length, 8))
        values = {"observation": observation, "action": action, "reward": reward}
        flags = {"is_first": step == 0, "is_last": is_last, "is_terminal": is_terminal}
        return {**values, "discount": discount, **flags}


def _film(rng: np.random.Generator, length: int) -> np.ndarray:
    from PIL import Image

    size = IMAGE_SHAPE[0]
    coarse = Image.fromarray(rng.integers(40, 216, (10, 10, 3), np.uint8))
    texture = np.asarray(coarse.resize((2 * size, 2 * size), Image.Resampling.BICUBIC), np.int16)
    speed = rng.integers(1, 4, 2)
    files = []
    for step in range(length):
        row, column = (step * speed) % size
        noise = rng.integers(-15, 16, IMAGE_SHAPE, np.int8)
        frame = np.clip(texture[row : row + size, column : column + size] + noise, 0, 255)
        file = io.BytesIO()
        Image.fromarray(frame.astype(np.uint8)).save(file, "JPEG", quality=95, subsampling="4:2:0")
        files.append(file.getvalue())
    return np.array(files, object)


def decoded(files: Any) -> np.ndarray:
    """Decodes JPEG files, to the exact pixels."""
    from PIL import Image

    return np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])


def flat(episode: Columns) -> Columns:
    """Returns the columns of an episode as samples have them: images are pixels."""
    observation = episode["observation"]
    if not isinstance(observation, dict):
        return episode
    pixels = {name: decoded(observation[name]) for name in IMAGES}
    other_columns = {name: column for name, column in episode.items() if name != "observation"}
    return {**other_columns, **pixels, "state": observation["state"]}


# --- Forms ---------------------------------------------------------------------------------------


def write_tfds(folder: Path, size: int, *, kind: str, file_format: str = "tfrecord") -> None:
    """Writes a dataset of TFDS."""
    from tfds_files import Dataset, Features, Image, Tensor, append_to

    def floats(*shape: int) -> Tensor:
        return Tensor(shape=shape, dtype=np.dtype(np.float32))

    data = Data(folder, kind, size)
    observation: Any = floats(17)
    if data.has_images:
        image = Image(shape=IMAGE_SHAPE, dtype=np.dtype(np.uint8), encoding_format="jpeg")
        observation = Features(features={**dict.fromkeys(IMAGES, image), "state": floats(8)})
    step = {"observation": observation, "action": floats(7 if data.has_images else 6)}
    step |= dict.fromkeys(("reward", "discount"), floats())
    flags = dict.fromkeys(("is_first", "is_last", "is_terminal"), Tensor(dtype=np.dtype(bool)))
    steps = Dataset(feature=Features(features={**step, **flags}))
    features = Features(features={"steps": steps})
    with append_to(
        folder, features, kind, file_format=file_format, max_examples_per_shard=100
    ) as writer:
        for episode in data.episodes():
            writer.add({"steps": episode})


def write_npy(folder: Path, size: int, *, kind: str) -> None:
    """Writes a file of NumPy for each field, with all steps one after the other."""
    data = Data(folder, kind, size)
    for index, episode in enumerate(data.episodes()):
        for name, column in flat(episode).items():
            file = folder / f"{name}.npy"
            if index == 0:
                np.lib.format.open_memmap(file, "w+", column.dtype, (size, *column.shape[1:]))
            rows = np.lib.format.open_memmap(file, "r+")
            rows[index * data.length : (index + 1) * data.length] = column


def write_rows(folder: Path, size: int, *, kind: str) -> None:
    """Writes a table of Hugging Face with a row for each step, as LeRobot does."""
    import datasets

    data = Data(folder, kind, size)

    def steps() -> Iterator[dict[str, Any]]:
        for episode in data.episodes():
            columns = dict(episode)
            if data.has_images:
                columns |= columns.pop("observation")
                for name in IMAGES:
                    columns[name] = [{"bytes": file, "path": None} for file in columns[name]]
            for step in range(data.length):
                yield {name: column[step] for name, column in columns.items()}

    sizes = {"action": 7, "state": 8} if data.has_images else {"action": 6, "observation": 17}
    float32 = datasets.Value("float32")
    kinds: Any = {name: datasets.Sequence(float32, length=length) for name, length in sizes.items()}
    kinds |= dict.fromkeys(("reward", "discount"), float32)
    kinds |= dict.fromkeys(("is_first", "is_last", "is_terminal"), datasets.Value("bool"))
    kinds |= dict.fromkeys(IMAGES, datasets.Image()) if data.has_images else {}
    datasets.disable_progress_bars()
    cache = folder / "cache"
    table = datasets.Dataset.from_generator(
        steps, features=datasets.Features(kinds), cache_dir=str(cache)
    )
    table.save_to_disk(str(folder / "saved"))
    shutil.rmtree(cache)


# --- What belongs in a batch ---------------------------------------------------------------------


def discounted(columns: Columns) -> Columns:
    """Returns the columns with the discounts of transitions."""
    terminal = np.append(columns["is_terminal"][1:], False)
    discount = np.where(terminal, np.float32(0), columns["discount"] * np.float32(GAMMA))
    return {**columns, "discount": discount}


def samples_at(data: Data, columns: Columns, starts: np.ndarray) -> Columns:
    """Returns a batch of the samples that start at some steps, by indexing arrays.

    That is transitions of numbers, or windows of cameras: two frames, 16 actions, and masks.
    """
    if not data.has_images:
        return {
            "observation": columns["observation"].take(starts, axis=0),
            "action": columns["action"].take(starts, axis=0),
            "reward": columns["reward"].take(starts),
            "discount": columns["discount"].take(starts),
            "next_observation": columns["observation"].take(starts + 1, axis=0),
        }
    step = (starts % data.length)[:, np.newaxis]
    begin = starts[:, np.newaxis] - step
    past, future = step + np.arange(1 - HISTORY, 1), step + np.arange(HORIZON)
    seen = begin + np.maximum(past, 0)
    return {
        **{name: columns[name].take(seen, axis=0) for name in (*IMAGES, "state")},
        "action": columns["action"].take(begin + np.minimum(future, data.length - 2), axis=0),
        "reward": columns["reward"].take(starts),
        "timestep_pad_mask": past >= 0,
        "action_pad_mask": future < data.length - 1,
    }


def check(data: Data, batch: Any) -> None:
    """Compares the first samples of a batch with the expected samples.

    Args:
      data: The data of the batch.
      batch: The fields by name; fields of `observation` may be in a nested dict.

    Raises:
      AssertionError: A value differs.
    """
    batch = dict(batch)
    if isinstance(batch.get("observation"), dict):
        batch |= batch.pop("observation")
    for sample, reward in enumerate(np.asarray(batch["reward"])[:3].astype(int)):
        episode, step = divmod(int(reward), data.length)
        columns = discounted(flat(data.episode(episode)))
        for name, values in samples_at(data, columns, np.array([step])).items():
            actual, expected = np.asarray(batch[name])[sample], values[0]
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), name
            if name in IMAGES:
                difference = np.abs(actual.astype(np.int16) - expected)
                assert difference.mean() < 2, f"{name}: pixels differ"  # As those of decoders do.
            else:
                assert np.array_equal(actual, expected), f"{name} differs"
