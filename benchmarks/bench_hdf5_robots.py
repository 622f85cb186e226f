"""How fast recordings of ALOHA with compressed images become a dataset.

    python benchmarks/bench_hdf5_robots.py [--rounds N] [--episodes E] [--length L] [--json]

Files have four cameras of 480 x 640 pixels, as padded JPEG files. In rounds, `rlds_aloha` converts
them, whose images stay the same files, and a builder of TFDS as people write it for their data: it
decodes the images, and TFDS encodes them as JPEG again. What ours leaves is read back and compared,
which is part of its time.
"""

import argparse
import functools
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import PIL.Image
import rounds

CAMERAS = ("cam_high", "cam_left_wrist", "cam_low", "cam_right_wrist")


def write(directory: Path, episodes: int, length: int) -> None:
    """Writes recordings of smooth scenes with some noise."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[0:480, 0:640]
    for number in range(episodes):
        with h5py.File(directory / f"episode_{number}.hdf5", "w") as file:
            file.attrs.update(sim=False, compress=True)
            for name in ("observations/qpos", "observations/qvel", "action"):
                file[name] = rng.normal(size=(length, 14)).astype(np.float32)
            for camera in CAMERAS:
                files = []
                for step in range(length):
                    scene = np.stack([rows + step, columns, rows + columns - step], -1) // 4 % 256
                    frame = scene + rng.integers(0, 12, (480, 640, 1))
                    stream = io.BytesIO()
                    image = PIL.Image.fromarray(frame.clip(0, 255).astype(np.uint8))
                    image.save(stream, "jpeg", quality=50)
                    files.append(stream.getvalue())
                padded = np.zeros((length, max(map(len, files))), np.uint8)
                for row, data in zip(padded, files):
                    row[: len(data)] = np.frombuffer(data, np.uint8)
                file.create_dataset(f"observations/images/{camera}", data=padded)


def by_us(raw: Path, data_dir: Path) -> None:
    """Converts with ours."""
    import tfds_builders

    source = tfds_builders.AlohaSource(raw)
    tfds_builders.convert(source, name="aloha", data_dir=data_dir, progress=False)


def by_decoding(raw: Path, data_dir: Path) -> None:
    """Converts with a builder of TFDS that decodes."""
    _decoding_builder(raw)(data_dir=data_dir).download_and_prepare()


@functools.cache
def _decoding_builder(raw: Path) -> Any:
    import tensorflow_datasets as tfds

    image = tfds.features.Image(shape=(480, 640, 3), dtype=np.uint8, encoding_format="jpeg")
    joints = tfds.features.Tensor(shape=(14,), dtype=np.float32)
    observation = {"qpos": joints, "qvel": joints, **dict.fromkeys(CAMERAS, image)}
    flags = dict.fromkeys(("is_first", "is_last", "is_terminal"), np.bool_)
    step = {"observation": observation, "action": joints, **flags}

    class Decoded(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            features = tfds.features.FeaturesDict({"steps": tfds.features.Dataset(step)})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Iterator[Any]:
            for path in sorted(raw.iterdir()):
                with h5py.File(path) as file:
                    arrays = {name: file[f"observations/{name}"][:] for name in ("qpos", "qvel")}
                    images = {name: file[f"observations/images/{name}"][:] for name in CAMERAS}
                    actions = file["action"][:]
                last = len(actions) - 1
                steps = [
                    {
                        "observation": {
                            **{name: values[row] for name, values in arrays.items()},
                            **{
                                name: np.asarray(PIL.Image.open(io.BytesIO(files[row].tobytes())))
                                for name, files in images.items()
                            },
                        },
                        "action": action,
                        "is_first": row == 0,
                        "is_last": row == last,
                        "is_terminal": False,
                    }
                    for row, action in enumerate(actions)
                ]
                yield path.stem, {"steps": steps}

    return Decoded


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        raw, made = Path(directory) / "raw", Path(directory) / "made"
        raw.mkdir()
        write(raw, arguments.episodes, arguments.length)

        def job(convert: Callable[[Path, Path], None]) -> None:
            shutil.rmtree(made, ignore_errors=True)
            convert(raw, made)

        contenders = {"rlds_aloha": lambda: job(by_us), "decoding": lambda: job(by_decoding)}
        times = rounds.take_turns(contenders, arguments.rounds)
    if arguments.json:
        rounds.report("aloha", times)
        return
    medians = rounds.medians(times)
    frames = arguments.episodes * arguments.length * len(CAMERAS)
    for name, (cpu, wall) in medians.items():
        print(f"{name:12} {cpu:7.2f} s CPU {wall:7.2f} s elapsed {frames / cpu:9,.0f} images/s")
    print(f"decoding takes {medians['decoding'][0] / medians['rlds_aloha'][0]:.1f} times as long")


if __name__ == "__main__":
    main()
