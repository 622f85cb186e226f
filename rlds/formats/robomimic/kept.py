"""Files that hold episodes of other formats: what robomimic has no place for is kept beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import rlds
from rlds.formats.robomimic.files import KEPT, DemoFile, OpenDemo
from rlds.sources.aside import Aside
from rlds.sources.source import Outline, SourceEpisode
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import leaves_at, nest

__all__ = ["KEY", "KeptEpisodes"]

# The attribute with the key of an episode.
KEY = "key"


class KeptEpisodes:
    """The episodes that `RobomimicExport` wrote to a file; can be pickled.

    Args:
      file: The file.

    Attributes:
      step_fields: The fields of a step, by path.
      episode_fields: The fields of an episode, by path.
      keys: The keys of the episodes, in order.

    Raises:
      ValueError: What is kept is damaged.
    """

    def __init__(self, file: DemoFile) -> None:
        self._file = file
        self._aside = Aside.from_json(file.kept or "")
        self.step_fields: Mapping[str, Field] = self._aside.steps
        self.episode_fields: Mapping[str, Field] = self._aside.episode
        with file.hdf5.read() as opened:
            kept = file.hdf5.member(opened, KEPT, KEPT)
            self.keys = [
                str(file.hdf5.member(kept, demo.name, KEPT).attrs[KEY]) for demo in file.demos
            ]

    @property
    def description(self) -> str:
        """What was said of the data in words."""
        return str(self._aside.metadata["description"])

    def metadata(self) -> dict[str, Any]:
        """Returns what was said of the episodes before they were exported."""
        return dict(self._aside.metadata.get("metadata", {}))

    def read(self, index: int, key: str) -> SourceEpisode:
        """Reads an episode."""
        del key
        return self._read(index, None)

    peek = read

    def outline(self, index: int) -> Outline:
        """Returns how long an episode is."""
        return self._read(index, [rlds.IS_TERMINAL]).outline

    def columns(
        self, index: int, paths: Sequence[str], begin: int = 0, end: int | None = None
    ) -> dict[str, Any]:
        """Reads some fields of some steps, with the flags."""
        steps = self._read(index, paths).steps
        return nest({path: column[begin:end] for path, column in leaves_at(steps, None)})

    def _read(self, index: int, paths: Sequence[str] | None) -> SourceEpisode:
        demo = self._file.demos[index]
        if demo.damage is not None:
            raise demo.damage
        hdf5 = self._file.hdf5
        with hdf5.read(demo.name) as opened:
            kept = hdf5.array(opened, f"{KEPT}/{demo.name}")
            hdf5.budget().take(kept.nbytes, KEPT)
            data = kept[()].tobytes()
            columns = {}
            values = OpenDemo(self._file, opened, demo)
            for path, place in self._aside.places.items():
                if paths is None or path in paths:
                    columns[path] = self._column(values, path, place)
        return self._aside.unpack(data, columns, paths)

    def _column(self, opened: OpenDemo, path: str, place: str) -> np.ndarray:
        column = opened.array(place)
        following = place.replace("obs/", "next_obs/", 1)
        if path in self._aside.whole and following in opened.demo.structure.arrays:
            last = slice(opened.demo.length - 1, None)
            column = np.concatenate([column, opened.array(following, last)])
        field = self._aside.steps[path]
        return column.reshape(len(column), *(size or 0 for size in field.shape))
