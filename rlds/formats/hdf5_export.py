"""What exports to HDF5 files have in common that have a group for each episode, or a file."""

from __future__ import annotations

import abc
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import rlds
from rlds.formats.hdf5_source import LAYOUT
from rlds.raw_files.hdf5_layout import decode_value, make_group, with_changes
from rlds.raw_files.input_files import natural_order
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.exporting import (
    PNGS,
    Export,
    Placement,
    as_converted,
    pngs_of,
    sidecar_placements,
)
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import SourceEpisode, SourceError
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import leaves_at

__all__ = ["Hdf5EpisodesExport", "padded"]


class Hdf5EpisodesExport(Export):
    """Writes groups: those again that episodes came from, or new ones.

    In new ones, images that are PNG files become the arrays that they hold.

    Args:
      episodes: The episodes.
      key: Under which name the metadata of episodes of the format is.
      derived: Fields of steps that follow from others, or from options.

    Attributes:
      said: The metadata of the format, if the episodes came from it.
      steps: The fields of steps by path, without flags.
      sidecar: The sidecar; it has nothing of episodes that came from the format.
    """

    sidecar: Sidecar

    def __init__(self, episodes: Episodes, key: str, derived: Collection[str]) -> None:
        super().__init__(episodes)
        spec = episodes.spec
        self.steps: dict[str, Any] = {
            path: field
            for path, field in leaves_at(spec[rlds.STEPS], None)
            if path not in rlds.STEP_FLAGS
        }
        self._derived = derived
        self.said: Mapping[str, Any] | None = None
        said = episodes.metadata.get(key)
        if isinstance(said, Mapping) and LAYOUT in said and LAYOUT in spec:
            arrays = {path for path, facts in said[LAYOUT].items() if "dtype" in facts}
            if {self.stored_path(path) for path in self.steps.keys() - derived} <= arrays:
                self.said = said
        self.sidecar = Sidecar.of(episodes, {})

    @abc.abstractmethod
    def stored_path(self, path: str) -> str:
        """Returns where a group has a field of the steps."""

    @abc.abstractmethod
    def field_path(self, name: str) -> str:
        """Returns the field of the steps that an array becomes."""

    def fits(self, path: str, *, files: bool = False) -> bool:
        """Whether a field of the steps has numbers of one shape, or maybe files of images."""
        field = self.steps.get(path)
        if not isinstance(field, Field):
            return False
        is_fixed = not field.is_text and not {None, 0} & {*field.shape}
        return is_fixed and (files or not field.encoding or path in pngs_of(self.steps, [path]))

    def set_places(self, places: Mapping[str, str], whole: Sequence[str] = ()) -> None:
        """Decides that new groups are written, which have these fields at these places."""
        self.said = None
        self.pngs = pngs_of(self.steps, places)
        self.sidecar = Sidecar.of(self.episodes, places, whole, arrays=self.pngs)

    def each(self, order: Iterable[int] | None = None) -> Iterator[SourceEpisode]:
        """Yields the episodes: in the order of their names if their files are made again."""
        if self.said is not None and self.order is None and order is None:
            keys = [natural_order(self._key(index)) for index in range(len(self.episodes))]
            self.order = sorted(range(len(keys)), key=keys.__getitem__)
        yield from super().each(order)

    def _key(self, index: int) -> str:
        try:
            return as_converted(self.episodes.peek(index)).key
        except SourceError:  # Reading it says so, if it is not to be left out.
            return ""

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        if self.said is None:
            return sidecar_placements(self.sidecar, dict.fromkeys(self.pngs, PNGS))
        places = {path: self.stored_path(path) for path in self.steps}
        places |= dict.fromkeys(self._derived, "")
        return [
            *(Placement(f"steps/{path}", places[path], "exact") for path in self.steps),
            *(Placement(path, path, "exact") for path in self.sidecar.episode),
        ]

    def layout(self, episode: SourceEpisode) -> dict[str, Any]:
        """Returns how the group of an episode was stored."""
        assert self.said is not None
        changes = episode.metadata[LAYOUT]
        changes = changes.decode() if isinstance(changes, bytes) else changes
        return with_changes(self.said[LAYOUT], json.loads(changes) if changes else {})

    def fill(
        self,
        group: Any,
        layout: Mapping[str, Any],
        episode: SourceEpisode,
        whole: Collection[str] = (),
    ) -> None:
        """Makes a group again.

        Args:
          group: The empty group.
          layout: How it was stored.
          episode: The episode.
          whole: The arrays that have a row for the final observation.
        """
        columns = self.sidecar.columns(episode)
        values = dict(leaves_at(episode.metadata, None))
        last = episode.num_steps - episode.final_observation_known

        def value(name: str, facts: Mapping[str, Any]) -> Any:
            path = self.field_path(name)
            if "data" in facts:
                return decode_value(facts)
            if path not in columns:
                return values[name]
            column = columns[path] if name in whole else columns[path][:last]
            if "width" in facts:
                return padded(column, facts["width"])
            is_array = isinstance(facts["dtype"], str)
            return as_values(column, self.steps[path]) if is_array else column

        make_group(group, layout, value)


def padded(files: np.ndarray, width: int) -> np.ndarray:
    """Returns files as rows of a matrix, with zeros at their ends."""
    rows = np.zeros((len(files), width), np.uint8)
    for row, data in zip(rows, files):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    return rows
