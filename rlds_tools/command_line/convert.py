"""`rlds convert`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from rlds_ecosystem.model.names import suggest_names
from rlds_tools.command_line.printing import (
    BEAM_SETTINGS,
    Command,
    format_option,
    invocation,
    option,
    parse_options,
    prints_result,
    split_words,
    wants_progress,
    where_option,
    writers_option,
)
from rlds_tools.converting import FILE_FORMATS
from rlds_tools.results import Result


@click.command(cls=Command, context_settings=BEAM_SETTINGS)
@click.argument("words", nargs=-1, metavar="SRC DST [BEAM_OPTIONS]")
@option(
    "--to FORMAT",
    "Format of the new dataset: tfrecord (or tfds) or array_record for TFDS, or a format that "
    "`rlds list --formats` shows as written.",
    default="tfrecord",
)
@option("--format TEXT", "Format of SRC, if it is not recognized.")
@where_option
@option("--labels LAYERS", "Layers of labels to store as fields, separated by commas; or all.")
@option(
    "--action-as",
    "Kind of the new actions: changes of the state, or its targets. Exact both ways.",
    type=click.Choice(["delta", "absolute"]),
)
@option("--split TEXT", "Split to write, or a slice of one, such as train[:10%]. Not for TFDS.")
@option("--to-option -T to_options NAME=VALUE...", "Option of the new format. Not for TFDS.")
@option("--allow-loss", "Write the dataset even if the new format loses fields. Not for TFDS.")
@option("--plan", "Show the result for each field; write nothing. Not for TFDS.")
@option(
    "--dataset TEXT",
    "Builder of a published dataset, such as rlds_d4rl/hopper-medium-v2. Without SRC, download "
    "the published data.",
)
@option(
    "--version TEXT",
    "Version of the new dataset. Default: the version of SRC, or 1.0.0. TFDS only.",
)
@option("--name TEXT", "Name of the new dataset. TFDS only.")
@format_option("Option of the format of SRC.")
@option(
    "--float64",
    "Storage of float64 fields of steps: all bits as bytes (default), or rounded to float32, as "
    "Octo and OpenVLA need. TFDS only.",
    type=click.Choice(["bytes", "float32"]),
)
@option(
    "--tensor-encoding",
    "Compression of the arrays of steps. Default: as in the source. TFDS only.",
    type=click.Choice(["none", "zlib"]),
)
@option(
    "--png-level",
    "Compression level of PNG files. Default: 1, or 6 for images that become small. TFDS only.",
    type=click.IntRange(0, 9),
)
@option("--num-shards", "Number of files per split. TFDS only.", type=int)
@option(
    "--shuffle/--no-shuffle",
    "Store episodes in random order, or in the order of the source. TFDS only.",
    default=None,
)
@option("--skip-damaged", "Skip unreadable episodes, and list them.")
@option("--verify/--no-verify", "Read the new dataset back, and check its values.", default=True)
@writers_option
@option(
    "--part N/M",
    "Do the Nth of M equal shares of the work: one for each job of a cluster. Repeat the command "
    "without it when all are done. Not for TFDS.",
)
@option(
    "--at-once",
    "Write all at once, in one process: less time for a large HDF5 file on few processors, but no "
    "resume after a crash. Not for TFDS.",
)
@option("--draft DIR", "Folder for unfinished work. Default: the folder of DST. Not for TFDS.")
@option("--runner TEXT", "Convert with Apache Beam on this runner, such as DirectRunner.")
@prints_result
def command(
    words: Sequence[str],
    to: str,
    format: str | None,
    split: str | None,
    where: str | None,
    labels: str | None,
    action_as: str | None,
    to_options: Sequence[str],
    allow_loss: bool,
    plan: bool,
    part: str | None,
    at_once: bool,
    draft: str | None,
    dataset: str | None,
    version: str | None,
    **options: Any,
) -> Result:
    """Convert a dataset to TFDS, LeRobot or another format.

    SRC becomes a TFDS dataset in the folder DST/NAME/VERSION. With --to, DST is the new file or
    folder. Fields that the format cannot store go to a sidecar file next to the data. If data would
    be lost, nothing is written. `rlds list --formats` shows the formats and their options. To
    resume an interrupted conversion, repeat the command. With --runner, other options such as
    --direct_num_workers=4 go to Beam.

    Examples:
      rlds convert logs/run7 data --name run7
      rlds convert data/my_robot my_robot --to lerobot --plan
    """
    paths, beam_options = split_words(words, options["runner"])
    if len(paths) == 1 and dataset is None:
        raise click.UsageError(
            f"missing DST: give a folder for the result, as in `rlds convert {paths[0]} DST`."
        )
    if len(paths) != 2 and not (dataset is not None and len(paths) == 1):
        raise click.UsageError(f"expected SRC and DST, got {' '.join(paths) or 'neither'}")
    source, directory = [None, *paths][-2:]
    from rlds import sources
    from rlds_tools import converting

    to = FILE_FORMATS[0] if to == "tfds" else to
    if to not in converting.targets():
        choices = suggest_names(to, converting.targets())
        raise click.UsageError(f"--to: {to!r} is not a format that can be written; {choices}")
    if dataset is not None:
        if to not in FILE_FORMATS:
            raise click.UsageError(f"--dataset works with --to tfrecord or array_record, not {to}.")
        owner, accepted = dataset.partition("/")[0], _options_of_builder(dataset)
    else:
        owner = format = format or sources.format_of(str(source))
        accepted = sources.formats()[format].options if format in sources.formats() else {}
    layers = None if labels is None else [] if labels == "all" else labels.split(",")
    common_options: dict[str, Any] = {
        **{"to": to, "format": format, "where": where, "labels": layers, "action_as": action_as},
        **{name: options[name] for name in ("skip_damaged", "verify", "jobs")},
        "options": parse_options(accepted, options["pairs"], owner),
        "progress": wants_progress(),
    }
    if to not in FILE_FORMATS:
        _check_unused(to, {"--version": version, **_tfds_options(options)})
        return converting.export(
            str(source),
            str(directory),
            split=split,
            target_options=parse_options(sources.exports()[to], to_options, to),
            allow_loss=allow_loss,
            plan=plan,
            part=_parse_share(part),
            at_once=at_once,
            draft=draft,
            beam_runner=options["runner"],
            beam_options=beam_options or None,
            **common_options,
        )
    _check_unused(
        to,
        {
            **{"--split": split, "--to-option": to_options, "--allow-loss": allow_loss},
            **{"--plan": plan, "--part": part, "--at-once": at_once, "--draft": draft},
        },
    )
    if (where, labels, action_as) != (None, None, None) and dataset is not None:
        raise click.UsageError("--where, --labels and --action-as do not work with --dataset.")
    if options["name"] is not None:
        _check_name(options["name"])
    call = invocation()
    names = ("name", "num_shards", "float64", "tensor_encoding", "png_level")
    common_options |= {name: options[name] for name in names}
    if options["shuffle"] is not None:  # None keeps the default of the builder.
        common_options["shuffle"] = options["shuffle"]
    return converting.convert(
        source,
        directory,
        dataset=dataset,
        version=version,
        beam_runner=options["runner"],
        beam_options=beam_options,
        quiet_process=call.owns_process and not call.verbose,
        **common_options,
    )


def _parse_share(part: str | None) -> tuple[int, int] | None:
    if part is None:
        return None
    share, _, num_shares = part.partition("/")
    if not (share.isdecimal() and num_shares.isdecimal()):
        raise click.UsageError(f"--part: got {part!r}, expected a share such as 3/64.")
    return int(share), int(num_shares)


def _options_of_builder(dataset: str) -> Mapping[str, Any]:
    from rlds_tools import converting

    try:
        builder_class, _ = converting.find_builder(dataset)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return builder_class.options()


def _check_name(name: str) -> None:
    from rlds.formats.tfds.export import check_name

    try:
        check_name(name)
    except ValueError as error:
        raise click.UsageError(f"--name: {error}") from None


def _tfds_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of options that only TFDS datasets support."""
    names = ("name", "float64", "tensor_encoding", "png_level", "num_shards")
    values = {f"--{name.replace('_', '-')}": options[name] for name in names}
    return {**values, "--shuffle": options["shuffle"] is not None}


def _check_unused(to: str, options: Mapping[str, Any]) -> None:
    unsupported = [name for name, value in options.items() if value]
    if unsupported:
        raise click.UsageError(f"not available with --to {to}: {', '.join(unsupported)}")
