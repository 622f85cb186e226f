"""Copying labels to derived datasets, also where edits change the steps of episodes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rlds.sources import reading
from rlds.sources.digests import digest_of
from rlds.sources.episode_fields import as_converted
from rlds.sources.episodes import Episodes
from rlds.sources.label_rows import (
    Label,
    append,
    copy_lines,
    current,
    declare,
    declared,
    folders_of,
    new_folders,
    readable,
    rows,
)
from rlds.sources.source import AnySource, Source, SourceError
from rlds.sources.view import traced
from rlds_ecosystem.files import stores

__all__ = ["added_label_ids", "copied_label", "copy_labels"]

# The prefix of the tool of a label that was copied from another episode.
_COPY_TOOL = "carried from "


def copy_labels(
    episodes: Episodes,
    origins: Iterable[tuple[int, int]],
    copy: Episodes,
    draft: str | os.PathLike[str],
    path: str | os.PathLike[str],
) -> None:
    """Copies the labels of the source datasets to a new dataset on this machine.

    An edited episode (trimmed, or with another field) has another digest: its labels are rewritten
    with this digest, and with the new offsets of the labelled steps. Nothing is read if there are
    no labels; of the new dataset, only labelled episodes are read.

    Args:
      episodes: The source episodes.
      origins: Pairs of the number of a new episode and that of its source episode. Unchanged copies
        may be missing.
      copy: The episodes of the new dataset.
      draft: The current path of the new dataset, such as that of a draft.
      path: Its final path.

    Raises:
      OSError: No folder for labels is writable.
      SourceError: A row of labels is damaged, and the steps of labelled episodes have changed.
    """
    folders = [folder for base in reading.bases(episodes.source) for folder in folders_of(base)]
    if not any(folder.is_dir() for folder in folders) or not stores.is_local(path):
        return
    target = new_folders(copy.source, draft, path)
    copy_lines(folders, target)
    if not target:
        return
    try:
        labels = current(folders)
        layers, target_layers = declared(folders), declared(target)
    except SourceError:
        # The lines were copied, but labels of changed steps cannot be moved.
        if any(_copied_labels(readable(folders), episodes, origins, copy)):
            raise
        return
    old_ids = {row.id for row in rows(target)}
    new = {
        row.id: row
        for row in _copied_labels(labels, episodes, origins, copy)
        if row.id not in old_ids
    }
    if new:
        append(target, [*new.values()])
    if other := [one for name, one in layers.items() if name not in target_layers]:
        declare(target, other)


def _copied_labels(
    labels: Iterable[Label], episodes: Episodes, origins: Iterable[tuple[int, int]], copy: Episodes
) -> Iterator[Label]:
    labels_of: dict[str, list[Label]] = {}
    for row in labels:
        labels_of.setdefault(row.episode, []).append(row)

    @functools.cache
    def digests(source: AnySource, split: str) -> list[bytes | None]:
        column: list[Any] = Episodes(source, split).table().arrow(["digest"])["digest"].to_pylist()
        return column

    copy = Episodes(reading.with_image_files(copy.source), copy.split)
    for number, index in origins if labels_of else ():
        source, (split, at), first = episodes.source, episodes.place(index), 0
        if isinstance(source, Source):
            (source, split, at), first = traced(source, split, at)
        if episode_labels := labels_of.get((digests(source, split)[at] or b"").hex()):
            episode = as_converted(copy.episode(number))
            digest = digest_of(episode.steps).hex()
            if digest != episode_labels[0].episode:
                for label in episode_labels:
                    yield from copied_label(label, digest, episode.key, episode.num_steps, first)


def copied_label(
    label: Label, digest: str, key: str, steps: int, first: int = 0
) -> Iterator[Label]:
    """Yields a label moved to another episode, unless that episode lacks the labelled steps.

    Args:
      label: The label.
      digest: The digest of the other episode.
      key: Its key.
      steps: The number of its steps.
      first: The step of the labelled episode that is step 0 of the other one.
    """
    begin, end = label.begin, label.end
    if begin is not None and end is not None:
        begin, end = max(begin - first, 0), min(end - first, steps)
        if begin >= end:
            return
    # Deterministic: repeating the copy gives the same identifier.
    name = hashlib.sha256(f"{label.id} {digest} {begin} {end}".encode()).hexdigest()[:32]
    where: dict[str, Any] = {"episode": digest, "key": key, "begin": begin, "end": end}
    yield dataclasses.replace(label, **where, id=name, tool=_COPY_TOOL + label.id)


def added_label_ids(folders: Iterable[Path]) -> set[str]:
    """Returns the identifiers of all labels that are no copies."""
    return {row.id for row in readable(folders) if not row.tool.startswith(_COPY_TOOL)}
