"""Exports to HDF5 files with a group for each episode.

Staged episodes are copied into the final file without decoding their chunks. Only the names of
their groups and the attributes with counts change.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.hdf5_source import ATTRIBUTE_NAMES, OTHER_ATTRIBUTES, Hdf5Table
from rlds.raw_files.hdf5_access import Hdf5File
from rlds.raw_files.hdf5_values import write_attributes
from rlds.sources.episodes import Episodes
from rlds.sources.restored_source import RestoredSource
from rlds.sources.sidecar import Sidecar, SidecarWriter
from rlds.sources.source import Location, Source, SourceEpisode
from rlds.sources.texts import as_texts, json_in
from rlds.sources.writing import PNGS, Export, Placement, encoding_of, pngs_of, sidecar_placements
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, root_of

__all__ = ["Hdf5EpisodesExport", "StagedFiles", "copy_row"]

# Fields of steps that are derived on reading.
_DERIVED_FIELDS = (*rlds.STEP_FLAGS, rlds.DISCOUNT)


class StagedFiles(contextlib.ExitStack):
    """The HDF5 files of staged datasets; one is open at a time."""

    _source: Source | None = None

    def open(self, source: Source) -> Hdf5File:
        """Returns the open file of a staged dataset."""
        if source is not self._source:
            self.close()
            paths = [os.fspath(path) for path in source.inputs()]
            file = next(path for path in paths if path.endswith((".h5", ".hdf5")))
            self._source, self._file = source, self.enter_context(Hdf5File(file))
        return self._file

    def copy(self, source: Source, names: Mapping[str, str], to: Any) -> None:
        """Copies groups or arrays of a staged dataset to an `h5py.File`.

        Args:
          source: The staged dataset.
          names: The new names, by the names in the staged dataset.
          to: The target file.
        """
        h5py = import_extra("h5py")
        with self.open(source).read() as file:
            for name, new in names.items():
                h5py.h5o.copy(file.id, name.encode(), to.id, new.encode())


def copy_row(location: Location, sidecar: SidecarWriter) -> SourceEpisode:
    """Copies the sidecar row of a staged episode; returns the episode.

    The returned steps have only their flags.
    """
    assert isinstance(location.source, RestoredSource)
    stored_sidecar = location.source.stored_sidecar
    sidecar.copy(stored_sidecar, location.split, location.index)
    row = stored_sidecar.read(location.split, location.index)
    return stored_sidecar.sidecar.unpack(row, {}, ())


class Hdf5EpisodesExport(Export):
    """Writes numeric and image fields of steps to HDF5, and all other fields to the sidecar.

    PNG images become arrays. For other readers, attributes of episodes that came from the format
    are written, too.

    Attributes:
      table: The layout of the groups.
      stores_image_files: True if the format can hold image files.
      steps: The fields of steps by path, without flags.
      metadata: The metadata of the dataset, if its episodes came from the format.
      array_paths: The paths of the arrays of fields of steps, by field.
      sidecar: The sidecar.
      names: The target names in the placements of fields; see `sidecar_placements`.
      reasons: The reasons why fields of steps are in the sidecar, by path.
    """

    table: ClassVar[Hdf5Table]
    stores_image_files: ClassVar[bool] = False
    names: Mapping[str, str] | None = None
    reasons: Mapping[str, str] = {}

    def __init__(self, episodes: Episodes) -> None:
        super().__init__(episodes)
        spec = episodes.spec
        self.steps = {
            path: field
            for path, field in leaves_at(spec[rlds.STEPS], None)
            if path not in rlds.STEP_FLAGS
        }
        metadata = episodes.metadata.get(self.format)
        self.metadata: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else {}
        self.array_paths = self.find_array_paths()
        self.pngs = pngs_of(self.steps, self.array_paths)
        # Field paths when the export is read back.
        read = {path: self.table.field_path(array) for path, array in self.array_paths.items()}
        finals = self.table.with_final_row
        with_final_row = [p for p, array in self.array_paths.items() if root_of(array) in finals]
        self.sidecar = Sidecar.create(episodes, read, with_final_row, arrays=self.pngs)

    def find_array_paths(self) -> dict[str, str]:
        """Returns the paths of arrays, by the fields of steps that the format can hold."""
        array_paths = {path: self.table.array_path(path) for path in self.steps if self.holds(path)}
        return {
            path: array
            for path, array in array_paths.items()
            if self.table.field_path(array) == path and array not in self.table.derived
        }

    def holds(self, path: str) -> bool:
        """Returns True if a field of steps has numbers or images of a fixed shape."""
        field = self.steps.get(path)
        if (
            not isinstance(field, Field)
            or root_of(path) in _DERIVED_FIELDS
            or {"", ".", ".."} & {*path.split("/")}
        ):
            return False
        is_fixed = not field.is_text and not {None, 0} & {*field.shape}
        return is_fixed and (self.stores_image_files or encoding_of(field) in ("", "png"))

    @override
    def placements(self) -> Sequence[Placement]:
        reasons = {**dict.fromkeys(self.pngs, PNGS), **self.reasons}
        return sidecar_placements(self.sidecar, reasons, self.names)

    @override
    def files_order(self) -> Sequence[int] | None:
        return self.order_of_origin() if self.metadata else None

    def columns(self, episode: SourceEpisode) -> dict[str, np.ndarray]:
        """Returns the columns of the steps to write, by the paths of arrays."""
        rows = self.sidecar.rows(episode)
        return {array: rows[path] for path, array in self.array_paths.items()}

    def write_values(self, group: Any, episode: SourceEpisode) -> None:
        """Writes attributes and per-episode arrays, which are in the sidecar, too, to a group."""
        values = dict(leaves_at(episode.metadata, None))
        for name in self.metadata.get(ATTRIBUTE_NAMES, ()):
            if name in values:
                value = values[name]
                if self.sidecar.episode[name].dtype == str:  # h5py takes lists of texts.
                    value = as_texts(np.asarray(value, object)).tolist()
                group.attrs[name] = value
        for path in self.table.episode if self.metadata else ():
            if path in values:
                group[path] = values[path]
        text = values.get(OTHER_ATTRIBUTES, "") if self.metadata else ""
        for path, attributes in json_in(text, OTHER_ATTRIBUTES).items():
            if not path or path in group:
                write_attributes(group[path] if path else group, attributes)
