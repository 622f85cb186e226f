"""How fast datasets of Open X-Embodiment are copied: beside the importer of TFDS.

    python benchmarks/bench_oxe_copy.py [--episodes N] [--steps N] [--rounds N] [--json]

The dataset is generated: actions in parts, a state, an instruction, JPEG files of 256 x 320 pixels.
`rlds_folder` copies the examples as they are. The importers of `tensorflow_datasets.robotics.rtx`
decode and encode each image; they run as TFDS runs them, with Beam, and once more their function
and the writer of TFDS alone, without Beam. What is in the copies is compared.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rounds
import tensorflow as tf
import tensorflow_datasets as tfds
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.table import Table
from tensorflow_datasets.robotics import dataset_importer_builder

import tfds_files
from tfds_builders import RldsFolder

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

import raw_oxe

SIZE = (256, 320)
GOAL = 10.0
OURS, BY_TFDS, BY_HAND = "rlds_folder", "importer of TFDS, with Beam", "the same, without Beam"


def copy_by_us(raw: str, data_dir: str) -> Path:
    """Copies the examples."""
    builder = RldsFolder(path=raw, data_dir=data_dir)
    builder.download_and_prepare()
    return Path(builder.data_path)


def copy_by_tfds(raw: str, data_dir: str) -> Path:
    """Does what `tfds.builder("fractal20220817_data").download_and_prepare()` does."""

    class Fractal(dataset_importer_builder.DatasetImporterBuilder, skip_registration=True):
        """The importer, for another place."""

        name = "fractal"

        def get_description(self) -> str:
            return "A copy."

        def get_citation(self) -> str:
            return ""

        def get_homepage(self) -> str:
            return ""

        def get_relative_dataset_location(self) -> str:
            return ""

        def get_dataset_location(self) -> str:
            return raw

    builder = Fractal(data_dir=data_dir)
    config = tfds.download.DownloadConfig(
        beam_runner="DirectRunner", beam_options=PipelineOptions(flags=[]), try_download_gcs=False
    )
    builder.download_and_prepare(download_config=config)
    return Path(builder.data_path)


def copy_by_hand(raw: str, data_dir: str) -> Path:
    """Decodes and encodes with the functions of TFDS, and nothing around them."""
    stored = tfds.builder_from_directory(raw)
    features = stored.info.features
    identity = tfds.core.dataset_info.DatasetIdentity(
        name="fractal", version=tfds.core.Version("0.1.0"), data_dir=data_dir, module_name=""
    )
    info = tfds.core.DatasetInfo(builder=identity, features=features)
    writer = tfds.core.SequentialWriter(info, 1000)
    writer.initialize_splits(["train"])
    episodes = stored.as_dataset(
        split="train",
        read_config=tfds.ReadConfig(add_tfds_id=True, try_autocache=False),
        decoders={"steps": tfds.decode.SkipDecoding()},
    )
    for episode in episodes:
        converted = dataset_importer_builder._dataset_importer_converter_fn(
            episode, decode_fn=features["steps"].feature.decode_example, keys_to_strip=[]
        )
        for _, example in converted:
            writer.add_examples({"train": [example]})
    writer.close_all()
    return Path(data_dir)


def contents(directory: Path) -> list[Mapping[str, Any]]:
    """The episodes, with images as the files they are, in an order of their own."""
    episodes = list(tfds_files.open_folder(directory, decode_images=False)["train"])
    return sorted(episodes, key=lambda e: e["steps"]["action"]["world_vector"].tobytes())


def check(raw: str, copies: Mapping[str, Path]) -> float:
    """Compares the copies with what was copied; returns how much their images grew or shrank.

    Raises:
      AssertionError: A copy has other numbers, or ours has other images.
    """
    originals = contents(Path(raw))
    for name, directory in copies.items():
        found = contents(directory)
        for one, other in zip(originals, found, strict=True):
            for part, column in one["steps"]["action"].items():
                assert (column == other["steps"]["action"][part]).all(), (name, part)
    images = [
        [file for e in episodes for file in e["steps"]["observation"]["image"]]
        for episodes in (originals, contents(copies[OURS]), contents(copies[BY_HAND]))
    ]
    assert images[0] == images[1], "the copy has other images"
    return sum(map(len, images[2])) / sum(map(len, images[0]))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    arguments = parser.parse_args()
    tf.config.set_visible_devices([], "GPU")
    tfds.disable_progress_bar()
    with tempfile.TemporaryDirectory() as parent:
        lengths = (arguments.steps,) * arguments.episodes
        made = raw_oxe.fractal(f"{parent}/made", lengths=lengths, size=SIZE)
        # TFDS's importer wants files that are numbered as TFDS numbers them, which a copy has.
        raw = str(copy_by_us(made, f"{parent}/raw"))
        copies: dict[str, Path] = {}

        def job(name: str, copy: Any) -> Any:
            def run() -> None:
                shutil.rmtree(f"{parent}/{name}", ignore_errors=True)
                Path(parent, name).mkdir()
                copies[name] = copy(raw, f"{parent}/{name}")

            return run

        contenders = {OURS: copy_by_us, BY_TFDS: copy_by_tfds, BY_HAND: copy_by_hand}
        times = rounds.take_turns(
            {name: job(name, copy) for name, copy in contenders.items()}, arguments.rounds
        )
        growth = check(raw, copies)
    if arguments.json:
        rounds.report("oxe_copy", times)
        return
    table = Table(title=f"{arguments.episodes} episodes of {arguments.steps} steps")
    for column in ("copied by", "processor time", "elapsed", "ratio"):
        table.add_column(column)
    medians = rounds.medians(times)
    for name, (cpu, wall) in medians.items():
        ratio = cpu / medians[OURS][0]
        table.add_row(name, f"{cpu:.2f} s", f"{wall:.2f} s", f"{ratio:.1f}")
    Console().print(table)
    ratio = medians[BY_TFDS][0] / medians[OURS][0]
    print(f"goal: {GOAL:g} times less processor time than the importer; found {ratio:.1f}")
    print(f"JPEG files compressed again have {growth:.2f} of their size; ours are the same files")


if __name__ == "__main__":
    main()
