"""`rlds export`."""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rlds_creator.exporting.targets import FORMATS
from rlds_tools.command_line.printing import Command, option, prints_result, wants_progress
from rlds_tools.results import Result

if TYPE_CHECKING:
    from rlds_creator.exporting.recordings import RecordedEpisode, Reference

_EPISODE_STATES = ("completed", "cancelled", "rejected", "abandoned", "failed")


@click.command(cls=Command)
@click.argument("recordings", metavar="RECORDINGS")
@option("-o --output TEXT", "New folder, or ZIP file.", required=True)
@option(
    "--format",
    "Format of the data.",
    type=click.Choice(tuple(FORMATS)),
    default="log",
    show_default=True,
)
@option("-T --format-option options NAME=VALUE...", "Option of the format, see `rlds convert -T`.")
@option("--name TEXT", "Name of the data. Default: the name of the study.")
@option("--study NAME", "Only episodes of this study, by name or id.")
@option("--environment NAME", "Only episodes of this environment, by name or id.")
@option(
    "--state states ...",
    "Only episodes in this state. Default: completed.",
    type=click.Choice(_EPISODE_STATES),
)
@option("--end-at LABEL...", "Cut episodes at the first step with this tag.")
@option(
    "--keep-internal",
    "Keep the internal data of the web tool: pictures, inputs and times of steps, and notes on "
    "episodes.",
)
@option("--practice", "Export practice episodes too.")
@option("--zip archive", "Write a ZIP file.")
@prints_result
def command(
    recordings: str,
    output: str,
    format: str,
    options: Sequence[str],
    name: str | None,
    study: str | None,
    environment: str | None,
    states: Sequence[str],
    end_at: Sequence[str],
    keep_internal: bool,
    practice: bool,
    archive: bool,
) -> Result:
    """Export episodes that people recorded with `rlds create`.

    RECORDINGS is the folder of `rlds create`, or the folder of one episode, which is exported in
    any state. All episodes must be of one environment; they are written in the order in which they
    were played. A tag of a step becomes the field `tag:LABEL`. Tags of an episode are stored in its
    metadata `tags`.

    OUTPUT gets the data and a README.md.

    Examples:
      rlds export recordings -o drive --format tfds --study "Drive home"
      rlds export recordings -o maze.zip --zip --state completed --state cancelled --end-at done
    """
    if not os.path.isdir(recordings):
        raise NotADirectoryError(f"{recordings!r} is not a folder.")
    from rlds_creator.exporting.exports import export
    from rlds_creator.exporting.recordings import ExportError
    from rlds_ecosystem.progress import show_progress

    if archive and not output.endswith(".zip"):
        output += ".zip"
    try:
        episodes, left_out = _select_episodes(recordings, study, environment, states, practice)
        title = name or episodes[0].annotations.study.name or os.path.splitext(output)[0]
        with show_progress(wants_progress()) as bars:
            bar = bars.add_task("Exporting", total=100)
            download = export(
                [episode.directory for episode in episodes],
                output,
                format,
                name=os.path.basename(title),
                keep_internal=keep_internal,
                end_at=end_at,
                options=options,
                archive=archive,
                progress=lambda done: bars.update(bar, completed=int(100 * done)),
            )
    except ExportError as error:
        if error.details:
            error.add_note(error.details)
        raise
    return dataclasses.replace(download, left_out=left_out)


def _select_episodes(
    recordings: str,
    study: str | None,
    environment: str | None,
    states: Sequence[str],
    practice: bool,
) -> tuple[list[RecordedEpisode], dict[str, int]]:
    """Returns the episodes in the order of their start, and counts of the left-out states.

    Raises:
      ExportError: No episode is left.
    """
    from rlds_creator.exporting.recordings import (
        Annotations,
        ExportError,
        RecordedEpisode,
        find_recordings,
        is_recording,
    )

    # The log of a running episode is being written: only selected logs are opened.
    selected_logs: list[str] = []
    excluded: collections.Counter[str] = collections.Counter()
    is_single_episode = is_recording(recordings)
    for directory in find_recordings(recordings):
        annotations = Annotations.read(directory)
        if not (_fits(annotations.study, study) and _fits(annotations.environment, environment)):
            continue
        state = annotations.state or "in no state"
        if annotations.is_practice and not (practice or is_single_episode):
            excluded["practice"] += 1
        elif state in (states or ("completed",)) or (is_single_episode and not states):
            selected_logs.append(directory)
        else:
            excluded[state] += 1
    if not selected_logs:
        excluded_text = ", ".join(f"{count:,} {state}" for state, count in excluded.items())
        raise ExportError(f"no episode to export; left out: {excluded_text or 'none'}")
    episodes = [RecordedEpisode.open(directory) for directory in selected_logs]
    return sorted(episodes, key=lambda episode: (episode.started, episode.name)), dict(excluded)


def _fits(reference: Reference, id_or_name: str | None) -> bool:
    return id_or_name is None or id_or_name in (reference.id, reference.name)
