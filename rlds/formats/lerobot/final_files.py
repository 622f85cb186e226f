"""The files of a dataset whose episodes parts have: planned from their tables, made by workers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from rlds.formats.lerobot.dataset_files import Before, DatasetFiles, NewEpisode
from rlds.formats.lerobot.source import LeRobotSource
from rlds.sources.restored import DescribedSource, RestoredSource
from rlds.sources.source import AnySource, Place
from rlds.sources.writing import Export

__all__ = ["Rows", "are_staged", "base_of", "copied", "file_options", "write_staged"]


class Rows(Protocol):
    """Writes the rows of an export."""

    def files(self, path: Path, **options: Any) -> DatasetFiles:
        """Opens the files of a dataset."""

    def copied(self, place: Place, *, with_frames: bool = True) -> NewEpisode:
        """Returns an episode of a part."""


@dataclasses.dataclass
class _Plan:
    """The files that there are in the end.

    Attributes:
      lengths: How many rows each episode has.
      begins: How many rows come before each.
      files: The first episodes of the files of rows, at "", and of those of each video feature.
      tasks: The texts of the tasks, in order.
    """

    lengths: list[int]
    begins: list[int]
    files: dict[str, list[int]]
    tasks: list[str]


@dataclasses.dataclass(frozen=True)
class _FileWriter:
    """Writes a file; given to each worker.

    Attributes:
      export: The export, whose parts have all episodes.
      path: The folder of the dataset.
      plan: The files.
    """

    export: Any
    path: Path
    plan: _Plan

    def __call__(self, task: tuple[str, int]) -> Any:
        """Returns what the tables say of its episodes.

        Args:
          task: A video feature, or "" for rows; and which of its files.
        """
        (name, number), plan, made = task, self.plan, self.export.rows
        begin, end = [*plan.files[name], len(plan.lengths)][number : number + 2]
        before = Before(begin, plan.begins[begin], number, plan.tasks)
        told = []
        with made.files(self.path, before=before, has_tables=False) as files:
            planners = files.planners()
            with_frames = len(planners) == 1  # There are no files of frames alone.
            for index, length in zip(self.export.order[begin:end], plan.lengths[begin:end]):
                place = self.export.staged.place(index)
                if name:
                    frames = base_of(place.source).frames(place.split, place.index, name)
                    told.append(planners[name].add(frames, length, is_staged=True))
                else:
                    files.add(made.copied(place, with_frames=with_frames))
            return told if name else files.told()


def base_of(source: AnySource) -> LeRobotSource:
    """Returns the source of a dataset that was opened, without its sidecar."""
    while not isinstance(source, LeRobotSource):
        assert isinstance(source, RestoredSource | DescribedSource)
        source = source.source if isinstance(source, RestoredSource) else source.bases[0]
    return source


def file_options(export: Export) -> dict[str, Any]:
    """Returns the arguments of `DatasetFiles` that an export decides."""
    return {"workers": export.workers, "is_part": export.is_part}


def copied(place: Place, schema: Any, *, with_frames: bool) -> NewEpisode:
    """Returns an episode of a part; see `LeRobotSource.stored_episode`."""
    at = place.split, place.index
    base = base_of(place.source)
    rows = base.stored_episode(*at, schema, with_frames=with_frames, is_checked=False)
    assert rows is not None
    return dataclasses.replace(rows, is_staged=True)


def are_staged(export: Export) -> bool:
    """Whether parts have all episodes."""
    if export.staged is None or export.order is None:
        return False
    return export.staged.indices >= {*export.order}


def write_staged(export: Export, files: DatasetFiles, path: Path) -> Iterator[Place]:
    """Writes a dataset whose episodes parts have; yields the place of each first.

    Args:
      export: The export.
      files: The files of the dataset, without an episode.
      path: Its folder.
    """
    assert export.staged is not None
    plan = _Plan([], [], {name: [] for name in files.planners()}, [*files.tasks])
    source = None
    for index in export.each_staged():
        place = export.staged.place(index)
        yield place
        if place.source is not source:  # A part has its episodes in order.
            source, base, before = place.source, base_of(place.source), dict[str, Any]()
            sizes, lengths, known = base.sizes(), iter(base.lengths.tolist()), {*plan.tasks}
            plan.tasks += [text for text in base.texts.values() if text not in known]
        (size, frames), num_rows = next(sizes), next(lengths)
        for name, planner in files.planners().items():
            found = functools.partial(base.frames, place.split, place.index, name)
            size, file = frames[name] if name else (size, None)
            if planner.plan(size, num_rows, found, before.get(name) == file):
                plan.files[name].append(len(plan.lengths))
            before[name] = file
        plan.begins.append(plan.begins[-1] + plan.lengths[-1] if plan.begins else 0)
        plan.lengths.append(num_rows)
    tasks = [(name, n) for name, firsts in plan.files.items() for n in range(len(firsts))]
    told: dict[str, list[Any]] = {name: [] for name in plan.files}
    for (name, _), found in export.workers(_FileWriter(export, path, plan), tasks):
        told[name].extend(found if name else [found])
    files.take(told.pop(""), told, plan.lengths, plan.tasks)
