"""`rlds convert`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from rlds_ecosystem.names import what_there_is
from rlds_tools.command_line.printing import (
    format_option,
    invocation,
    parsed_options,
    prints_result,
    wants_progress,
    where_option,
)
from rlds_tools.converting import FILE_FORMATS
from rlds_tools.results import Result

EXAMPLES = """\b
Examples:
  rlds convert logs/run7 data --name run7
  rlds convert data/my_robot my_robot --to lerobot --plan
"""

# Words of the command line that nothing here knows may be options of Apache Beam.
_SETTINGS = {"ignore_unknown_options": True}


@click.command(context_settings=_SETTINGS, epilog=EXAMPLES)
@click.argument("words", nargs=-1, metavar="SRC DST [BEAM_OPTIONS]")
@click.option(
    "--to",
    default="tfrecord",
    metavar="FORMAT",
    help="The new format: tfrecord (or tfds) or array_record for a dataset of TFDS, or one that "
    "`rlds list --formats` shows as written.",
)
@click.option("--format", help="The format of SRC, if it cannot be recognized.")
@where_option
@click.option(
    "--labels",
    metavar="LAYERS",
    help="Layers of labels that become fields, separated by commas; or all.",
)
@click.option("--split", help="What to write in other formats: train, or a part: train[:10%].")
@click.option(
    "--to-option",
    "-T",
    "to_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of another format; may be given several times.",
)
@click.option("--allow-loss", is_flag=True, help="Write other formats even if fields get lost.")
@click.option("--plan", is_flag=True, help="Say what becomes of each field, and write nothing.")
@click.option(
    "--dataset",
    help="What SRC is, if a builder knows it, "
    "such as rlds_d4rl/hopper-medium-v2. Without SRC, what was published is downloaded.",
)
@click.option("--version", help="The version of the new dataset; default: that of SRC, or 1.0.0.")
@click.option("--name", help="The name of the new dataset.")
@format_option("An option of the source; may be given several times.")
@click.option(
    "--float64",
    type=click.Choice(["bytes", "float32"]),
    help="Float64 of steps: all bits as bytes (default), or rounded, as Octo and OpenVLA need.",
)
@click.option(
    "--tensor-encoding",
    type=click.Choice(["none", "zlib"]),
    help="Arrays of steps: plain, or compressed; default: as the source says.",
)
@click.option(
    "--png-level",
    type=click.IntRange(0, 9),
    help="The effort that goes into PNG files; default: 1, or 6 for images that become small.",
)
@click.option("--num-shards", type=int, help="How many files a split has.")
@click.option(
    "--shuffle/--no-shuffle",
    default=None,
    help="Store episodes in a random order, or in that of the source.",
)
@click.option(
    "--skip-damaged", is_flag=True, help="Leave out episodes that cannot be read, and say which."
)
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Read the dataset back, and compare it with what was written.",
)
@click.option("--runner", help="Do it on Apache Beam with this runner, such as DirectRunner.")
@prints_result
def command(
    words: Sequence[str],
    to: str,
    format: str | None,
    split: str | None,
    where: str | None,
    labels: str | None,
    to_options: Sequence[str],
    allow_loss: bool,
    plan: bool,
    dataset: str | None,
    version: str | None,
    **options: Any,
) -> Result:
    """Convert data in any format to a dataset, or to the format of others.

    SRC becomes a dataset of TFDS below the folder DST: DST/NAME/VERSION. In other formats, DST is
    the file or the folder to make; what they have no place for is kept beside it, and if anything
    would be lost, nothing is written. `rlds list --formats` has the formats, and their options.
    A conversion that was interrupted goes on when it is called again. Options such as
    --direct_num_workers=4 go to Beam, if there is a --runner.
    """
    places, beam_options = _split_words(words, options["runner"])
    if len(places) == 1 and dataset is None:
        raise click.UsageError(f"missing DST: where to write what {places[0]} is converted to.")
    if len(places) != 2 and not (dataset is not None and len(places) == 1):
        raise click.UsageError(f"expected SRC and DST, got {len(places)} places")
    source, directory = [None, *places][-2:]
    from rlds import sources
    from rlds_tools import converting

    to = FILE_FORMATS[0] if to == "tfds" else to
    if to not in converting.targets():
        known = what_there_is(to, converting.targets())
        raise click.UsageError(f"--to: no format {to!r} can be written; {known}")
    if dataset is not None:
        if to not in FILE_FORMATS:
            raise click.UsageError(f"--dataset goes with tfrecord and array_record, not {to}.")
        owner, known_options = dataset.partition("/")[0], _options_of_builder(dataset)
    else:
        owner = format = format or sources.format_of(str(source))
        known_options = sources.formats()[format].options if format in sources.formats() else {}
    layers = None if labels is None else [] if labels == "all" else labels.split(",")
    source_options = parsed_options(known_options, options["given"], owner)
    if to not in FILE_FORMATS:
        _check_options(to, {"--version": version, **_given(options)})
        return converting.export(
            str(source),
            str(directory),
            to=to,
            split=split,
            where=where,
            labels=layers,
            format=format,
            options=source_options,
            target_options=parsed_options(sources.exports()[to], to_options, to),
            allow_loss=allow_loss,
            plan=plan,
            skip_damaged=options["skip_damaged"],
            verify=options["verify"],
            progress=wants_progress(),
        )
    _check_options(
        to,
        {"--split": split, "--to-option": to_options, "--allow-loss": allow_loss, "--plan": plan},
    )
    if (where is not None or labels is not None) and dataset is not None:
        raise click.UsageError("--where and --labels: not with --dataset")
    if options["name"] is not None:
        _check_name(options["name"])
    called = invocation()
    names = ("float64", "tensor_encoding", "png_level", "skip_damaged")
    storage = {name: options[name] for name in names}
    if options["shuffle"] is not None:  # The default of a builder is its own.
        storage["shuffle"] = options["shuffle"]
    return converting.convert(
        source,
        directory,
        to=to,
        dataset=dataset,
        name=options["name"],
        version=version,
        format=format,
        where=where,
        labels=layers,
        options=source_options,
        num_shards=options["num_shards"],
        beam_runner=options["runner"],
        beam_options=beam_options,
        verify=options["verify"],
        progress=wants_progress(),
        quiet_process=called.owns_process and not called.verbose,
        **storage,
    )


def _options_of_builder(dataset: str) -> Mapping[str, Any]:
    from rlds_tools import converting

    try:
        builder_class, _ = converting.builder_of(dataset)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return builder_class.options()


def _check_name(name: str) -> None:
    from tfds_builders.builder import check_name

    try:
        check_name(name)
    except ValueError as error:
        raise click.UsageError(f"--name: {error}") from None


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of datasets of TFDS that were given."""
    names = ("name", "float64", "tensor_encoding", "png_level", "num_shards", "runner")
    given = {f"--{name.replace('_', '-')}": options[name] for name in names}
    return {**given, "--shuffle": options["shuffle"] is not None}


def _check_options(to: str, given: Mapping[str, Any]) -> None:
    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise click.UsageError(f"{', '.join(wrong)}: not for --to {to}")


def _split_words(words: Iterable[str], runner: str | None) -> tuple[list[str], list[str]]:
    """Returns the places that are named, and the options of Beam."""
    places: list[str] = []
    others: list[str] = []
    is_value = False  # Of the option before: `--name value` is as good as `--name=value`.
    for word in words:
        is_option = word.startswith("-")
        (others if is_option or is_value else places).append(word)
        is_value = is_option and "=" not in word
    if others and runner is None:
        raise click.UsageError(
            f"unknown options: {' '.join(others)} (options of Beam need --runner)"
        )
    return places, others
