"""The data of `bench_feeds`, in all the forms that its contenders read.

`numbers` are episodes of 17 + 6 floats, `cameras` episodes with two cameras, whose images of 128 x
128 pixels are JPEG files: smooth textures that move, with the noise of a sensor. The reward of a
step is its number in the dataset, so the RAM contender knows what belongs into a sample.
"""

import dataclasses
import functools
import io
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

IMAGES = ("image", "wrist_image")
IMAGE_SHAPE = (128, 128, 3)
GAMMA = 0.99
HISTORY, HORIZON = 2, 16
FILMED = 8  # Episodes that are films, too.

Columns = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Data:
    """One of the datasets, on the disk.

    Attributes:
      directory: Where all forms of it are, by their names: tfrecord,
        array_record, log, npy, arrow, video.
      name: `numbers` or `cameras`.
      episodes: How many episodes there are.
      steps: How many steps each of them has.
    """

    directory: Path
    name: str
    episodes: int
    steps: int

    @property
    def has_images(self) -> bool:
        """Whether there are cameras."""
        return self.name == "cameras"

    def path(self, form: str) -> Path:
        """Where the data is in a form."""
        return self.directory / self.name / form

    def columns(self, mmap_mode: Any = None) -> Columns:
        """All steps of all episodes, one after the other: images as TensorFlow does not see them.

        Args:
          mmap_mode: See `numpy.load`.
        """
        return {path.stem: np.load(path, mmap_mode) for path in self.path("npy").glob("*.npy")}

    def episode(self, number: int) -> Columns:
        """Makes an episode; images are JPEG files."""
        rng = np.random.default_rng([number, self.episodes])
        floats = functools.partial(rng.standard_normal, dtype=np.float32)
        place = np.arange(self.steps)
        is_last = place == self.steps - 1
        reward = (number * self.steps + place).astype(np.float32)
        discount = np.ones(self.steps, np.float32)
        is_terminal = is_last & (number % 2 == 0)
        discount[-2] -= is_terminal[-1]
        action = floats((self.steps, 7 if self.has_images else 6))
        for column in (action, reward, discount):
            column[-1] = 0
        observation: Any = floats((self.steps, 17))
        if self.has_images:
            observation = {name: _film(rng, self.steps) for name in IMAGES}
            observation["state"] = floats((self.steps, 8))
        flags = {"is_first": place == 0, "is_last": is_last, "is_terminal": is_terminal}
        return {
            "observation": observation,
            "action": action,
            "reward": reward,
            "discount": discount,
            **flags,
        }

    def each_episode(self) -> Iterator[Columns]:
        """Makes all episodes."""
        return map(self.episode, range(self.episodes))


def numbers(directory: Path, *, quick: bool) -> Data:
    """The data of floats."""
    return Data(directory, "numbers", *((40, 250) if quick else (200, 1000)))


def cameras(directory: Path, *, quick: bool) -> Data:
    """The data with images."""
    return Data(directory, "cameras", *((8, 50) if quick else (60, 200)))


def _film(rng: np.random.Generator, steps: int) -> np.ndarray:
    from PIL import Image

    size = IMAGE_SHAPE[0]
    coarse = Image.fromarray(rng.integers(40, 216, (10, 10, 3), np.uint8))
    texture = np.asarray(coarse.resize((2 * size, 2 * size), Image.Resampling.BICUBIC), np.int16)
    speed = rng.integers(1, 4, 2)
    files = []
    for step in range(steps):
        row, column = (step * speed) % size
        noise = rng.integers(-15, 16, IMAGE_SHAPE, np.int8)
        frame = np.clip(texture[row : row + size, column : column + size] + noise, 0, 255)
        file = io.BytesIO()
        Image.fromarray(frame.astype(np.uint8)).save(file, "JPEG", quality=95, subsampling="4:2:0")
        files.append(file.getvalue())
    return np.array(files, object)


def decoded(files: list[bytes]) -> np.ndarray:
    """Decodes JPEG files, to the exact pixels."""
    from PIL import Image

    return np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])


# --- Forms ---------------------------------------------------------------------------------------


def make(data: Data) -> None:
    """Writes the forms that are missing, but for those whose packages are."""
    forms: dict[str, Callable[[Data, Path], None]] = {
        "tfrecord": functools.partial(_write_tfds, file_format="tfrecord"),
        "array_record": functools.partial(_write_tfds, file_format="array_record"),
        "npy": _write_npy,
        "arrow": _write_arrow,
    }
    if data.has_images:
        forms["video"] = _write_films
    else:
        forms["log"] = _write_log
        forms["materialised"] = _materialise
    for form, write in forms.items():
        path, done = data.path(form), data.path(f"{form}.done")
        if done.exists():
            continue
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        try:
            write(data, path)
        except ImportError as error:
            print(f"{data.name} in the form {form} is left out: {error}", file=sys.stderr)
        else:
            done.touch()


def _write_tfds(data: Data, path: Path, file_format: str) -> None:
    from tfds_files import Dataset, DatasetWriter, Features, Image, Tensor

    def floats(*shape: int) -> Tensor:
        return Tensor(shape=shape, dtype=np.dtype(np.float32))

    flag = Tensor(dtype=np.dtype(bool))
    observation: Any = floats(17)
    if data.has_images:
        image = Image(shape=IMAGE_SHAPE, dtype=np.dtype(np.uint8), encoding_format="jpeg")
        observation = Features(features={**dict.fromkeys(IMAGES, image), "state": floats(8)})
    step = {"observation": observation, "action": floats(7 if data.has_images else 6)}
    step |= dict.fromkeys(("reward", "discount"), floats())
    step |= dict.fromkeys(("is_first", "is_last", "is_terminal"), flag)
    features = Features(features={"steps": Dataset(feature=Features(features=step))})
    writer = DatasetWriter(
        path, features, data.name, file_format=file_format, max_examples_per_shard=100
    )
    with writer:
        for episode in data.each_episode():
            writer.add({"steps": episode})


def _write_npy(data: Data, path: Path) -> None:
    for number, episode in enumerate(data.each_episode()):
        observation = episode["observation"]
        if data.has_images:
            images = {name: decoded(observation[name]) for name in IMAGES}
            episode = {**episode, **images, "state": observation["state"]}
            del episode["observation"]
        for name, column in episode.items():
            file = path / f"{name}.npy"
            if number == 0:
                shape = (data.episodes * data.steps, *column.shape[1:])
                np.lib.format.open_memmap(file, "w+", column.dtype, shape)
            rows = np.lib.format.open_memmap(file, "r+")
            rows[number * data.steps : (number + 1) * data.steps] = column


def _write_arrow(data: Data, path: Path) -> None:
    import datasets

    def steps() -> Iterator[dict[str, Any]]:
        for number, episode in enumerate(data.each_episode()):
            columns = dict(episode)
            if data.has_images:
                columns |= columns.pop("observation")
                for name in IMAGES:
                    columns[name] = [{"bytes": file, "path": None} for file in columns[name]]
            for place in range(data.steps):
                row = {name: column[place] for name, column in columns.items()}
                yield {**row, "episode_index": number, "frame_index": place}

    sizes = {"action": 7, "state": 8} if data.has_images else {"action": 6, "observation": 17}
    kinds: Any = {
        name: datasets.Sequence(datasets.Value("float32"), length=length)
        for name, length in sizes.items()
    }
    kinds |= dict.fromkeys(("reward", "discount"), datasets.Value("float32"))
    kinds |= dict.fromkeys(("is_first", "is_last", "is_terminal"), datasets.Value("bool"))
    kinds |= dict.fromkeys(("episode_index", "frame_index"), datasets.Value("int64"))
    if data.has_images:
        kinds |= dict.fromkeys(IMAGES, datasets.Image())
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_generator(
        steps, features=datasets.Features(kinds), cache_dir=str(path / "cache")
    )
    made.save_to_disk(str(path / "saved"))
    shutil.rmtree(path / "cache")


def _write_log(data: Data, path: Path) -> None:
    import dm_env
    from dm_env import specs

    import envlogger
    from envlogger.converters import spec_codec

    shapes = {"observation": (17,), "action": (6,), "reward": (), "discount": ()}
    encoded = {
        f"{name}_spec": spec_codec.encode(specs.Array(shape, np.float32))
        for name, shape in shapes.items()
    }
    with envlogger.RiegeliBackendWriter(
        str(path), data.episodes, metadata={"environment_specs": encoded}
    ) as writer:
        for episode in data.each_episode():
            action, nothing = episode["action"], np.zeros(6, np.float32)
            for step, observation in enumerate(episode["observation"]):
                kind = dm_env.StepType.MID
                reward = discount = None
                if step == 0:
                    kind = dm_env.StepType.FIRST
                else:
                    reward, discount = episode["reward"][step - 1], episode["discount"][step - 1]
                    if step == data.steps - 1:
                        kind = dm_env.StepType.LAST
                timestep = dm_env.TimeStep(kind, reward, discount, observation)
                taken = action[step - 1] if step else nothing
                writer.record_step(envlogger.StepData(timestep, taken), step == 0)


def _materialise(data: Data, path: Path) -> None:
    from rlds.feeds.materialising import materialise

    materialise(data.path("log"), path)


def _write_films(data: Data, path: Path) -> None:
    import av

    for number, episode in enumerate(map(data.episode, range(min(data.episodes, FILMED)))):
        for name in IMAGES:
            with av.open(str(path / f"{number}-{name}.mp4"), "w") as file:
                # Every second image stands for itself, as in the films of LeRobot.
                stream = file.add_stream("libx264", rate=10, options={"g": "2", "crf": "23"})
                stream.height, stream.width = IMAGE_SHAPE[:2]
                stream.pix_fmt = "yuv420p"
                for image in decoded(episode["observation"][name]):
                    file.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
                file.mux(stream.encode())


# --- What belongs into a batch -------------------------------------------------------------------


def transitions_at(columns: Columns, at: np.ndarray) -> Columns:
    """Batches of transitions that start at these steps, by indexing arrays: the limit."""
    following = at + 1
    return {
        "observation": columns["observation"].take(at, axis=0),
        "action": columns["action"].take(at, axis=0),
        "reward": columns["reward"].take(at),
        "discount": columns["discount"].take(at),
        "next_observation": columns["observation"].take(following, axis=0),
        "next_is_last": columns["is_last"].take(following),
        "next_is_terminal": columns["is_terminal"].take(following),
    }


def windows_at(columns: Columns, at: np.ndarray, steps: int) -> Columns:
    """Batches of windows at these steps, by indexing arrays: frames need no decoding."""
    place = at % steps
    past = np.arange(1 - HISTORY, 1)
    past_mask = place[:, np.newaxis] + past >= 0
    past = (at - place)[:, np.newaxis] + np.maximum(place[:, np.newaxis] + past, 0)
    future = place[:, np.newaxis] + np.arange(HORIZON)
    future_mask = future < steps - 1
    future = (at - place)[:, np.newaxis] + np.minimum(future, steps - 2)
    return {
        **{name: columns[name].take(past, axis=0) for name in (*IMAGES, "state")},
        "action": columns["action"].take(future, axis=0),
        "reward": columns["reward"].take(at),
        "timestep_pad_mask": past_mask,
        "action_pad_mask": future_mask,
    }


def starts(data: Data) -> np.ndarray:
    """The steps at which samples start; the last of an episode starts none here."""
    every = np.arange(data.episodes * data.steps)
    return every[every % data.steps < data.steps - 1]


def check(data: Data, columns: Columns, batch: Any, *, without: Collection[str] = ()) -> int:
    """Compares a batch of any contender with the arrays, sample by sample.

    Args:
      data: What it was made of.
      columns: See `Data.columns`, with `discount` that of transitions.
      batch: Its fields by name; those of `observation` may be in a dict of their own.
      without: Fields that need not be equal.

    Returns:
      By how much pixels differ at most.

    Raises:
      AssertionError: Another value differs, or by more than the kinds of JPEG decoders do.
    """
    batch = dict(batch)
    if isinstance(batch.get("observation"), dict):
        batch |= batch.pop("observation")
    found = {name: np.asarray(values) for name, values in batch.items()}
    at = found["reward"].astype(np.int64)
    expected = (
        windows_at(columns, at, data.steps) if data.has_images else transitions_at(columns, at)
    )
    worst = 0
    flags = {"next_is_last", "next_is_terminal"} - found.keys()  # The peers need none.
    for name, values in expected.items():
        if name in without or name in flags:
            continue
        got = found[name]
        assert got.dtype == values.dtype, f"{name}: {got.dtype}, expected {values.dtype}"
        assert got.shape == values.shape, f"{name}: {got.shape}, expected {values.shape}"
        if name in IMAGES:
            differences = np.abs(got.astype(np.int16) - values)
            worst = max(worst, int(differences.max(initial=0)))
            assert worst <= 16, f"{name}: pixels differ by {worst}"
            assert differences.mean() < 2, (
                f"{name}: pixels differ by {differences.mean()} on average"
            )
        else:
            assert np.array_equal(got, values), f"{name} differs"
    return worst
