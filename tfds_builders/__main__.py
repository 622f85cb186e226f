"""`python -m tfds_builders`: converts raw data to an RLDS dataset from the command line."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import sys
import textwrap
from collections.abc import Sequence

import tensorflow_datasets as tfds

import tfds_builders
from envlogger.errors import EnvLoggerError
from rlds.sources.options import parse_options
from rlds.validation import InvalidDatasetError
from tfds_builders.builder import CONVERSION, SourceBuilder, check_name, prepared
from tfds_builders.quiet import quiet_libraries

__all__ = ["main"]

# What a shell expects of a program that was ended by Ctrl-C.
_INTERRUPTED = 130


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
    dataset, _, config = options.dataset.partition("/")
    builder_cls = builders().get(dataset)
    if builder_cls is None:
        parser.error(f"no dataset {dataset!r}; there are: {', '.join(builders())}")
    if config and config not in builder_cls.builder_configs:
        parser.error(_unknown_config(dataset, config, list(builder_cls.builder_configs)))
    try:
        source_options = parse_options(builder_cls.options(), options.option, dataset)
    except ValueError as error:
        parser.error(str(error))
    if options.name is not None:
        try:
            check_name(options.name)
        except ValueError as error:
            parser.error(f"--name: {error}")
    try:
        if arguments is None and not options.verbose:  # The process is this program's own.
            quiet_libraries()
        builder = builder_cls(
            path=options.path,
            config=config or None,
            name=options.name,
            data_dir=options.data_dir,
            file_format=options.file_format,
            shuffle=options.shuffle,
            skip_damaged=options.skip_damaged,
            verify=options.verify,
            float64=options.float64,
            tensor_encoding=options.tensor_encoding,
            **source_options,
        )
        download_config = tfds.download.DownloadConfig(
            manual_dir=options.manual_dir,
            num_shards=options.num_shards,
            beam_runner=options.runner,
            beam_options=None if options.runner is None else others,
        )
        with contextlib.redirect_stdout(sys.stderr):  # For what TFDS and Beam print.
            made = prepared(builder, download_config)
    except (ValueError, OSError, EnvLoggerError, ImportError, InvalidDatasetError) as error:
        return _failed(f"Error: {error}", error)
    except KeyError as error:  # Of a split that a dataset does not have.
        return _failed(f"Error: {error.args[0]}", error)
    except KeyboardInterrupt as error:
        _failed("Interrupted.", error)
        return _INTERRUPTED
    _print_summary(made)
    return 0


def _failed(what: str, error: BaseException | None = None) -> int:
    print(*map(_printable, [what, *getattr(error, "__notes__", ())]), sep="\n", file=sys.stderr)
    return 1


def _printable(text: str) -> str:
    """A text that may repeat what is in a file, without what would command a terminal."""
    return "".join(
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1]
        for character in text
    )


def _unknown_config(dataset: str, config: str, known: Sequence[str]) -> str:
    if not known:
        return f"{dataset} has no configs, got {config!r}"
    near = difflib.get_close_matches(config, known, n=5, cutoff=0.4) or known[:5]
    return f"{dataset} has no config {config!r}; it has {len(known)}, such as: {', '.join(near)}"


def builders() -> dict[str, type[SourceBuilder]]:
    """Returns the builders of this package by the names that TFDS knows them by."""
    public = [getattr(tfds_builders, name) for name in tfds_builders.__all__ if name[:4] == "Rlds"]
    return {found.name: found for found in public if issubclass(found, SourceBuilder)}


def _print_summary(builder: tfds.core.DatasetBuilder) -> None:
    print(builder.data_path)
    for split, numbers in builder.info.metadata[CONVERSION]["splits"].items():
        counted = {name: value for name, value in numbers.items() if isinstance(value, int)}
        words = [f"{value:,} {name.replace('_', ' ')}" for name, value in counted.items()]
        print(f"{split}: {', '.join(words)}")
        for episode in numbers.get("left_out", ()):
            print(_printable(f"  left out: {episode['key']}: {episode['why']}"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tfds_builders",
        description="Converts raw data to an RLDS dataset that TensorFlow Datasets reads.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "dataset",
        help=f"what the raw data is, with a config if it has some: {', '.join(builders())}",
    )
    parser.add_argument("path", nargs="?", help="the raw data; by default, in manual_dir")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source, see below; may be given several times",
    )
    parser.add_argument("--name", help="the name of the new dataset; default: as the builder's")
    parser.add_argument("--data_dir", help="where TFDS keeps datasets")
    parser.add_argument("--manual_dir", help="where TFDS looks for raw data")
    parser.add_argument(
        "--file_format", choices=["tfrecord", "array_record"], help="default: tfrecord"
    )
    parser.add_argument(
        "--float64",
        choices=["bytes", "float32"],
        help="float64 of steps: all bits as bytes (default), or rounded, as Octo and OpenVLA need",
    )
    parser.add_argument(
        "--tensor_encoding",
        choices=["none", "zlib"],
        help="arrays of steps: plain, or compressed; default: as the source says",
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
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show what TensorFlow and Beam say, too"
    )
    parser.add_argument("--runner", help="do it on Apache Beam with this runner, e.g. DirectRunner")
    return parser


def _epilog() -> str:
    remarks = (
        "A conversion that was interrupted goes on when it is called again. With --runner, all "
        "other options are passed on to Apache Beam, such as --direct_num_workers=4 "
        "--direct_running_mode=multi_processing."
    )
    lines = [*textwrap.wrap(remarks, 79), "", "options of the sources (text, or JSON):"]
    for name, builder in builders().items():
        options = [option for option in builder.options().values() if option.is_json]
        lines += [f"  {name}", *(f"    {option}" for option in options)] if options else []
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
