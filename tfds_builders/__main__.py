"""`python -m tfds_builders`: converts raw data to an RLDS dataset from the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import tensorflow_datasets as tfds
from rich.console import Console

import tfds_builders
from envlogger.errors import EnvLoggerError
from rlds.validation import InvalidDatasetError
from tfds_builders.builder import CONVERSION, SourceBuilder

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Converts what the command line names; returns the exit code.

    Args:
      arguments: The command line without the name of the program; that of the process if None.
        What is not known here is passed on to the pipeline, if a runner is named.
    """
    parser = _parser()
    options, others = parser.parse_known_args(arguments)
    if others and options.runner is None:
        parser.error(f"unknown arguments: {' '.join(others)} (options of Beam need --runner)")
    console = Console(stderr=True)
    dataset, _, config = options.dataset.partition("/")
    builder_cls = builders().get(dataset)
    if builder_cls is None:
        parser.error(f"no dataset {dataset!r}; there are: {', '.join(builders())}")
    try:
        builder = builder_cls(
            path=options.path,
            config=config or None,
            data_dir=options.data_dir,
            file_format=options.file_format,
            shuffle=options.shuffle,
            skip_damaged=options.skip_damaged,
            verify=options.verify,
        )
        if builder.data_path.exists():
            console.print(f"{builder.data_path} exists, and is left as it is.", soft_wrap=True)
            return 1
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(
                manual_dir=options.manual_dir,
                num_shards=options.num_shards,
                beam_runner=options.runner,
                beam_options=None if options.runner is None else others,
            )
        )
    except (ValueError, OSError, EnvLoggerError, ImportError, InvalidDatasetError) as error:
        console.print(f"[red]Error:[/] {error}", soft_wrap=True, markup=True, highlight=False)
        for note in getattr(error, "__notes__", ()):
            console.print(note, soft_wrap=True, highlight=False)
        return 1
    except KeyboardInterrupt as error:
        console.print("Interrupted.", *getattr(error, "__notes__", ()), soft_wrap=True)
        return 130
    _print_summary(Console(), builder)
    return 0


def builders() -> dict[str, type[SourceBuilder]]:
    """Returns the builders of this package by the names that TFDS knows them by."""
    names = [name for name in tfds_builders.__all__ if name.startswith("Rlds")]
    found = [getattr(tfds_builders, name) for name in names]
    return {builder.name: builder for builder in found}


def _print_summary(console: Console, builder: SourceBuilder) -> None:
    console.print(f"{builder.data_path}", soft_wrap=True)
    conversion = (builder.info.metadata or {}).get(CONVERSION, {})
    for split, numbers in conversion.get("splits", {}).items():
        counted = {name: value for name, value in numbers.items() if isinstance(value, int)}
        words = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counted.items())
        console.print(f"{split}: {words}", soft_wrap=True, highlight=False)
        for episode in numbers.get("left_out", ()):
            console.print(f"  left out: {episode['key']}: {episode['why']}", soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tfds_builders",
        description="Converts raw data to an RLDS dataset that TensorFlow Datasets reads.",
        epilog="A conversion that was interrupted goes on when it is called again. With --runner, "
        "all other options are passed on to Apache Beam, such as --direct_num_workers=4 "
        "--direct_running_mode=multi_processing.",
    )
    parser.add_argument(
        "dataset",
        help=f"what the raw data is, with a config if it has some: {', '.join(builders())}",
    )
    parser.add_argument("path", nargs="?", help="the raw data; by default, in manual_dir")
    parser.add_argument("--data_dir", help="where TFDS keeps datasets")
    parser.add_argument("--manual_dir", help="where TFDS looks for raw data")
    parser.add_argument(
        "--file_format", choices=["tfrecord", "array_record"], help="default: tfrecord"
    )
    parser.add_argument("--num_shards", type=int, help="how many files each split has")
    parser.add_argument(
        "--shuffle",
        action=argparse.BooleanOptionalAction,
        help="whether episodes are stored in a random order; default: as the builder says",
    )
    parser.add_argument(
        "--skip_damaged",
        "--skip-damaged",
        action="store_true",
        help="leave out episodes that cannot be read, and say which",
    )
    parser.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read the dataset back, and compare it with what was written",
    )
    parser.add_argument("--runner", help="do it on Apache Beam with this runner, e.g. DirectRunner")
    return parser


if __name__ == "__main__":
    sys.exit(main())
