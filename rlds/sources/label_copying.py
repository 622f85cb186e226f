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
    declare,
    declared_layers,
    folders_of,
    new_folders,
    readable_rows,
    rows,
    valid_labels,
)
from rlds.sources.source import AnySource, Source, SourceError
from rlds.sources.view import trace
from rlds_ecosystem.files import stores

__all__ = ["added_label_ids", "copy_label", "copy_labels"]

# The prefix of the tool of a label that was copied from another episode.
_COPY_TOOL_PREFIX = "carried from "


def copy_labels(
    episodes: Episodes,
    origins: Iterable[tuple[int, int]],
    copy: Episodes,
    draft: str | os.PathLike[str],
    path: str | os.PathLike[str],
) -> None:
    """Copies the labels of the source datasets to a new dataset on this machine.

    An edited episode (trimmed, or with another field) has another digest: its labels are rewritten
    with this digest, and with the new offsets of the labelled steps. Only labelled episodes of the
    new dataset are read.

    Args:
      episodes: The source episodes.
      origins: The indices of new episodes and of their source episodes. Unchanged copies may be
        missing.
      copy: The episodes of the new dataset.
      draft: The current path of the new dataset, such as a draft.
      path: The final path of the new dataset.

    Raises:
      OSError: No folder for labels is writable.
      SourceError: A row of labels is damaged, and the steps of labelled episodes have changed.
    """
    folders = [folder for base in reading.roots(episodes.source) for folder in folders_of(base)]
    if not any(folder.is_dir() for folder in folders) or not stores.is_local(path):
        return
    target = new_folders(copy.source, draft, path)
    copy_lines(folders, target)
    if not target:
        return
    try:
        labels = valid_labels(folders)
        layers, target_layers = declared_layers(folders), declared_layers(target)
    except SourceError:
        # Damaged labels are an error only if labels of changed steps must be moved.
        if any(_copy_labels(readable_rows(folders), episodes, origins, copy)):
            raise
        return
    old_ids = {row.id for row in rows(target)}
    copies = _copy_labels(labels, episodes, origins, copy)
    new = {row.id: row for row in copies if row.id not in old_ids}
    if new:
        append(target, [*new.values()])
    if new_layers := [layer for name, layer in layers.items() if name not in target_layers]:
        declare(target, new_layers)


def _copy_labels(
    labels: Iterable[Label], episodes: Episodes, origins: Iterable[tuple[int, int]], copy: Episodes
) -> Iterator[Label]:
    by_digest: dict[str, list[Label]] = {}
    for row in labels:
        by_digest.setdefault(row.episode, []).append(row)

    @functools.cache
    def digests(source: AnySource, split: str) -> list[bytes | None]:
        column: list[Any] = Episodes(source, split).table().arrow(["digest"])["digest"].to_pylist()
        return column

    copy = Episodes(reading.with_image_files(copy.source), copy.split)
    for new_index, old_index in origins if by_digest else ():
        source, (split, row_index), first_step = episodes.source, episodes.locate(old_index), 0
        if isinstance(source, Source):
            (source, split, row_index), first_step = trace(source, split, row_index)
        if episode_labels := by_digest.get((digests(source, split)[row_index] or b"").hex()):
            episode = as_converted(copy.episode(new_index))
            digest = digest_of(episode.steps).hex()
            if digest != episode_labels[0].episode:
                for label in episode_labels:
                    yield from copy_label(label, digest, episode.key, episode.num_steps, first_step)


def copy_label(label: Label, digest: str, key: str, steps: int, first: int = 0) -> Iterator[Label]:
    """Yields a label moved to another episode, unless the episode lacks the labelled steps.

    Args:
      label: The label.
      digest: The digest of the other episode.
      key: The key of the other episode.
      steps: The number of steps of the other episode.
      first: The step of the labelled episode that is step 0 of the other episode.
    """
    begin, end = label.begin, label.end
    if begin is not None and end is not None:
        begin, end = max(begin - first, 0), min(end - first, steps)
        if begin >= end:
            return
    # The name is a hash, so repeating the copy gives the same identifier.
    name = hashlib.sha256(f"{label.id} {digest} {begin} {end}".encode()).hexdigest()[:32]
    target: dict[str, Any] = {"episode": digest, "key": key, "begin": begin, "end": end}
    yield dataclasses.replace(label, **target, id=name, tool=_COPY_TOOL_PREFIX + label.id)


def added_label_ids(folders: Iterable[Path]) -> set[str]:
    """Returns the identifiers of all labels except copies."""
    return {row.id for row in readable_rows(folders) if not row.tool.startswith(_COPY_TOOL_PREFIX)}
