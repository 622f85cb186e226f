"""The labels of a download: the annotations of reviewers, as files of `rlds.labels`."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlds.labels import Label, Layer
from rlds.sources import Episodes, label_rows, reading
from rlds.sources import open as open_episodes
from rlds.sources.digests import digest_of
from rlds.sources.episode_fields import as_converted
from rlds_creator.exporting.recipes import Recipe
from rlds_creator.exporting.recordings import RecordedEpisode
from rlds_creator.labelling import (
    PLAY_TOOL,
    SUCCESS,
    VERDICT,
    VERDICT_STATES,
    current_labels,
    layer_name,
)
from rlds_creator.model import LabelRow

__all__ = ["write_labels"]

_LABEL_CHOICES = {VERDICT: tuple(state.value for state in VERDICT_STATES), SUCCESS: ("yes", "no")}


def write_labels(recipe: Recipe, data: Path, format: str, **options: Any) -> int:
    """Writes the annotations of reviewers next to the data, under pseudonyms.

    Notes are written if the recipe keeps them. Annotations of the player alone are in the metadata
    of the episode.

    Args:
      recipe: The recipe of the download.
      data: The written data.
      format: The format of the data.
      **options: Options of the reader.

    Returns:
      The number of labels.

    Raises:
      OSError: The labels cannot be written.
    """
    episode_rows = [_select_labels(each, recipe.keep_internal) for each in recipe.recordings]
    if not any(episode_rows):
        return 0
    dataset = open_episodes(data, "all", format=format, **options)
    dataset = Episodes(reading.with_image_files(dataset.source), dataset.split)
    labels: list[Label] = []
    for index, rows in enumerate(episode_rows):
        if rows:
            episode = as_converted(dataset.episode(index))
            key = {"episode": digest_of(episode.steps).hex(), "key": episode.key}
            labels += _create_labels(rows, recipe.recordings[index], recipe.lengths[index], key)
    if data.is_file():  # Without this folder, the labels would go to the cache of this machine.
        (data.parent / ".rlds" / "labels").mkdir(parents=True, exist_ok=True)
    folders = label_rows.folders_of(dataset.source)[:1]
    layers = {layer_name(row): row for rows in episode_rows for row in rows}
    label_rows.append(folders, labels)
    label_rows.declare(folders, [_create_layer(name, row) for name, row in layers.items()])
    return len(labels)


def _create_layer(name: str, row: LabelRow) -> Layer:
    choices = _LABEL_CHOICES.get(name, ()) if row.type == "choice" else ()
    title = row.layer if row.layer != name else ""
    return Layer(name=name, type=row.type, choices=choices, whole=row.type != "flag", title=title)


def _select_labels(recording: RecordedEpisode, keeps_notes: bool) -> list[LabelRow]:
    rows = current_labels(recording.annotations.rows())
    rows = [row for row in rows if row.type != "text" or keeps_notes]
    return rows if any(row.tool != PLAY_TOOL for row in rows) else []


def _create_labels(
    rows: list[LabelRow], recording: RecordedEpisode, num_steps: int, key: dict[str, str]
) -> Iterator[Label]:
    annotations = recording.annotations
    for row in rows:
        begin, end = row.begin, row.end
        if begin is not None and end is not None and (end := min(end, num_steps)) <= begin:
            continue
        annotator = row.annotator
        if not annotations.labels and annotator:  # Earlier releases wrote no pseudonyms.
            identity = f"{annotations.study.id} {annotator}".encode()
            annotator = hashlib.sha256(identity).hexdigest()[:32]
        yield Label(
            layer=layer_name(row),
            type=row.type,
            value=row.value,
            begin=begin,
            end=end,
            annotator=annotator or "unknown",
            at=datetime.datetime.fromtimestamp(row.at, datetime.UTC).isoformat(),
            tool=row.tool.partition(",")[0],
            **key,
        )
