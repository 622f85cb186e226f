"""LeRobot 3.0 to RLDS: video that stays packets, against frames that are decoded and become PNG.

    python benchmarks/bench_lerobot.py [--episodes N] [--frames N] [--rounds N] [--json]

Both sides read the same dataset, made here: N episodes (12) of N frames (100), 480 x 640 in H.264
with a keyframe in every other frame, as LeRobot encodes, several in a file, and states and actions.
Both write a dataset of TFDS. The other side is what converters do that go through TFDS: they decode
each frame, and give it to a builder with an image feature. It keeps less: states, actions, tasks.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rounds import medians, report, take_turns

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import raw_lerobot as raw

SIZE = (480, 640)
TOP = raw.TOP


def scene(video, index, length):
    """A camera that moves over a picture with some noise."""
    rng = np.random.default_rng(index)
    coarse = rng.integers(0, 220, (SIZE[0] // 40 + 4, SIZE[1] // 40 + 4, 3)).astype(np.float32)
    for axis in (0, 1):
        coarse = np.repeat(coarse, 40, axis)
        kernel = np.ones(40) / 40
        coarse = np.apply_along_axis(np.convolve, axis, coarse, kernel, "same")
    noise = rng.integers(0, 6, coarse.shape)
    wide = (coarse + noise).astype(np.uint8)
    return np.stack(
        [wide[t % 100 : t % 100 + SIZE[0], t % 80 : t % 80 + SIZE[1]] for t in range(length)]
    )


def write_dataset(path, episodes, frames):
    """Writes the dataset."""
    raw.frames = scene
    raw.CODECS["as LeRobot"] = ("libx264", "yuv420p", {"g": "2", "bf": "0", "crf": "23"})
    raw.VIDEOS = {
        TOP: {**raw.VIDEOS[TOP], "shape": [*SIZE, 3], "names": ["height", "width", "channels"]}
    }
    features = {name: raw.FEATURES[name] for name in raw.FEATURES if name != raw.IMAGE}
    files = np.array_split(np.arange(episodes), max(episodes // 6, 1))
    raw.write_v3(
        path,
        lengths=[frames] * episodes,
        files=[group.tolist() for group in files],
        features=features,
        codecs={TOP: "as LeRobot"},
    )


def with_packets(path, directory):
    """Converts it with this library."""
    import tfds_builders
    from rlds.formats.lerobot.source import LeRobotSource

    tfds_builders.convert(LeRobotSource(path), name="packets", data_dir=directory, progress=False)


def decoded(path, directory):
    """Converts it frame by frame."""
    import tensorflow_datasets as tfds

    with tfds.core.registered.skip_registration():

        class Decoded(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version("1.0.0")

            def _info(self):
                features = {
                    "observation": {
                        "top": tfds.features.Image(
                            shape=(*SIZE, 3), dtype=np.uint8, encoding_format="png"
                        ),
                        "state": tfds.features.Tensor(shape=(3,), dtype=np.float32),
                    },
                    "action": tfds.features.Tensor(shape=(3,), dtype=np.float32),
                    "language_instruction": tfds.features.Text(),
                    "reward": np.float32,
                    "discount": np.float32,
                    **dict.fromkeys(("is_first", "is_last", "is_terminal"), np.bool_),
                }
                steps = tfds.features.FeaturesDict({"steps": tfds.features.Dataset(features)})
                return tfds.core.DatasetInfo(builder=self, features=steps)

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                rows = pq.read_table(path / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
                for row in rows:
                    file = f"chunk-000/file-{row['data/file_index']:03d}"
                    table = pq.read_table(path / f"data/{file}.parquet")
                    index = table["episode_index"].to_numpy()
                    yield (
                        row["episode_index"],
                        {
                            "steps": self._steps(
                                row, file, table.filter(index == row["episode_index"])
                            )
                        },
                    )

            def _steps(self, row, file, table):
                columns = {
                    name: table[name].to_pylist() for name in ("action", raw.STATE, "next.reward")
                }
                images = frames_of(
                    path / f"videos/{TOP}/{file}.mp4",
                    row[f"videos/{TOP}/from_timestamp"],
                    row["length"],
                )
                for step, image in enumerate(images):
                    yield {
                        "observation": {
                            "top": image,
                            "state": np.array(columns[raw.STATE][step], "f4"),
                        },
                        "action": np.array(columns["action"][step], "f4"),
                        "language_instruction": row["tasks"][0],
                        "reward": columns["next.reward"][step],
                        "discount": 1.0,
                        "is_first": step == 0,
                        "is_last": step == row["length"] - 1,
                        "is_terminal": step == row["length"] - 1,
                    }

    Decoded(data_dir=directory).download_and_prepare()


def frames_of(file, begin, length):
    """Decodes the frames of an episode, beginning with the keyframe before it."""
    with av.open(file) as container:
        stream = container.streams.video[0]
        container.seek(round(begin / stream.time_base), stream=stream)
        found = 0
        for frame in container.decode(stream):
            if frame.time < begin - 0.5 / raw.FPS:
                continue
            yield frame.to_ndarray(format="rgb24")
            found += 1
            if found == length:
                return


def size_of(directory):
    """The bytes of all files."""
    return sum(file.stat().st_size for file in Path(directory).rglob("*") if file.is_file())


def main():
    """Runs both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=12)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, sizes = Path(folder) / "source", {}
        write_dataset(source, arguments.episodes, arguments.frames)

        small = Path(folder) / "small"
        write_dataset(small, 2, 2)

        def contender(convert):
            def job(path=source):
                with tempfile.TemporaryDirectory(dir=folder) as directory:
                    convert(path, directory)
                    sizes[convert.__name__] = size_of(directory)

            job(small)  # Loads TensorFlow.
            return job

        contenders = {"packets": contender(with_packets), "PNG": contender(decoded)}
        times = take_turns(contenders, arguments.rounds, warm_up=False)
        if arguments.json:
            report("LeRobot 3.0 to RLDS", times)
            return
        found, total = medians(times), size_of(source)
        table = Table(title=f"LeRobot 3.0 to RLDS, {total / 1e6:.0f} MB")
        for name in ("", "CPU (s)", "elapsed (s)", "written / read"):
            table.add_column(name)
        for (name, (cpu, wall)), size in zip(found.items(), sizes.values()):
            table.add_row(name, f"{cpu:.2f}", f"{wall:.2f}", f"{size / total:.2f}")
        console = Console()
        console.print(table)
        console.print(f"packets: {found['PNG'][0] / found['packets'][0]:.0f} times as fast")


if __name__ == "__main__":
    main()
