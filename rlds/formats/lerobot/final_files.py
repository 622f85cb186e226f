"""The final files of a LeRobot export, from staged datasets: plans, and tasks of workers."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from rlds.formats.lerobot.dataset_files import DatasetFiles, DatasetState, NewEpisode
from rlds.formats.lerobot.source import LeRobotSource
from rlds.sources.restored_source import DescribedSource, RestoredSource
from rlds.sources.source import AnySource, Location
from rlds.sources.writing import Export

__all__ = ["RowSource", "are_staged", "base_source", "file_options", "read_staged", "write_staged"]


class RowSource(Protocol):
    """The writer of the rows of a LeRobot export.

    Attributes:
      task_columns: Further columns with indices of tasks.
    """

    task_columns: Sequence[str]

    def files(self, path: Path, **options: Any) -> DatasetFiles:
        """Opens the files of a dataset."""

    def read_staged(self, location: Location) -> NewEpisode:
        """Returns a staged episode."""


@dataclasses.dataclass
class _FilePlan:
    """The plan of the final files of a dataset.

    Attributes:
      lengths: The number of rows of each episode.
      start_rows: The index of the first row of each episode.
      files: The first episode of each data file, at "", and of each file of a video feature.
      tasks: The texts of the tasks, in order.
    """

    lengths: list[int]
    start_rows: list[int]
    files: dict[str, list[int]]
    tasks: list[str]


@dataclasses.dataclass(frozen=True)
class _FileWriter:
    """The task of a worker: writes one final file of the dataset.

    Attributes:
      export: The export, with all episodes staged.
      path: The folder of the dataset.
      plan: The plan of the files.
    """

    export: Any
    path: Path
    plan: _FilePlan

    def __call__(self, task: tuple[str, int]) -> Any:
        """Writes a file; returns the table rows of its episodes.

        Args:
          task: A video feature, or "" for data files; and the index of the file.
        """
        (name, file_index), plan, rows = task, self.plan, self.export.rows
        start, end = [*plan.files[name], len(plan.lengths)][file_index : file_index + 2]
        state = DatasetState(start, plan.start_rows[start], file_index, plan.tasks)
        table_rows = []
        with rows.files(self.path, initial=state, has_tables=False) as files:
            locations = map(self.export.staged.locate, self.export.order[start:end])
            if name:
                planner = files.planners()[name]
                for location, length in zip(locations, plan.lengths[start:end]):
                    frames = base_source(location.source).frames(
                        location.split, location.index, name
                    )
                    table_rows.append(planner.add(frames, length, is_staged=True))
                return table_rows
            if files.version == "v2.1":
                for location in locations:
                    files.add(rows.read_staged(location))
            else:
                for source, split, indices in _group_consecutive(locations):
                    for batch in base_source(source).stored_episodes(split, indices):
                        files.add_stored(batch, rows.task_columns)
            return files.table_rows()


def _group_consecutive(locations: Iterable[Location]) -> Iterator[tuple[AnySource, str, range]]:
    """Yields ranges of consecutive episodes of staged datasets."""

    def group_key(item: tuple[int, Location]) -> tuple[AnySource, str, int]:
        position, location = item
        return location.source, location.split, location.index - position

    for (source, split, _), group in itertools.groupby(enumerate(locations), group_key):
        indices = [location.index for _, location in group]
        yield source, split, range(indices[0], indices[-1] + 1)


def base_source(source: AnySource) -> LeRobotSource:
    """Returns the LeRobot source without its sidecar."""
    while not isinstance(source, LeRobotSource):
        assert isinstance(source, RestoredSource | DescribedSource)
        source = source.source if isinstance(source, RestoredSource) else source.bases[0]
    return source


def file_options(export: Export) -> dict[str, Any]:
    """Returns the arguments of `DatasetFiles` for an export."""
    return {"workers": export.workers, "is_part": export.is_part}


def read_staged(location: Location, schema: Any, task_columns: Sequence[str]) -> NewEpisode:
    """Returns a staged episode in its stored form; see `LeRobotSource.stored_episode`."""
    base = base_source(location.source)
    rows = base.stored_episode(location.split, location.index, schema, is_checked=False)
    assert rows is not None
    indices = {name: rows.task_indices[name] for name in task_columns}
    return dataclasses.replace(rows, task_indices=indices, is_staged=True)


def are_staged(export: Export) -> bool:
    """Returns True if all episodes are staged."""
    if export.staged is None or export.order is None:
        return False
    return export.staged.indices >= {*export.order}


def write_staged(export: Export, files: DatasetFiles, path: Path) -> Iterator[Location]:
    """Writes a dataset from staged datasets; first yields the location of each episode.

    Args:
      export: The export.
      files: The files of the dataset, without episodes.
      path: The folder of the dataset.
    """
    assert export.staged is not None
    plan = _FilePlan([], [], {name: [] for name in files.planners()}, [*files.tasks])
    source = None
    for index in export.iter_staged():
        location = export.staged.locate(index)
        yield location
        if location.source is not source:  # Staged episodes are in order.
            source, base, last_files = (
                location.source,
                base_source(location.source),
                dict[str, Any](),
            )
            sizes, lengths, known_texts = base.sizes(), iter(base.lengths.tolist()), {*plan.tasks}
            plan.tasks += [text for text in base.texts.values() if text not in known_texts]
        (size, frames), num_rows = next(sizes), next(lengths)
        for name, planner in files.planners().items():
            frames_of = functools.partial(base.frames, location.split, location.index, name)
            size, file = frames[name] if name else (size, None)
            if planner.plan(size, num_rows, frames_of, last_files.get(name) == file):
                plan.files[name].append(len(plan.lengths))
            last_files[name] = file
        plan.start_rows.append(plan.start_rows[-1] + plan.lengths[-1] if plan.start_rows else 0)
        plan.lengths.append(num_rows)
    tasks = [(name, n) for name, positions in plan.files.items() for n in range(len(positions))]
    table_rows: dict[str, list[Any]] = {name: [] for name in plan.files}
    for (name, _), result in export.workers(_FileWriter(export, path, plan), tasks):
        table_rows[name].extend(result if name else [result])
    files.add_table_rows(table_rows.pop(""), table_rows, plan.lengths, plan.tasks)
