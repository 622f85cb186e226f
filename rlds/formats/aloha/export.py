"""Episodes of any source as the HDF5 files of ACT and ALOHA."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from typing_extensions import override

from rlds.formats.aloha.source import TABLE, AlohaSource
from rlds.formats.hdf5_export import Hdf5EpisodesExport
from rlds.formats.hdf5_sidecar import write_digest
from rlds.raw_files.hdf5_writing import new_file
from rlds.sources.episodes import Episodes
from rlds.sources.restored_source import stored_in
from rlds.sources.sidecar import SidecarWriter
from rlds.sources.source import SourceEpisode
from rlds_ecosystem.files.whole_files import link
from rlds_ecosystem.model.nests import Paths, conflicts, root_of

__all__ = ["AlohaExport"]

_STATE, _ACTION, _IMAGES = "observations/qpos", "action", "observations/images"


class AlohaExport(Hdf5EpisodesExport):
    """A folder of HDF5 files `episode_<i>.hdf5` for ACT, ALOHA, Mobile ALOHA and openpi.

    A file holds `action`, and in `observations` the numeric arrays of the observation; other
    numeric fields of the steps keep their names. Frames are in `observations/images`. Image files
    are padded with zeros; `compress_len` holds their sizes. All other values, such as the final
    observation, are in the sidecar, the folder `.rlds`.

    Args:
      episodes: The episodes.
      fields: Paths of fields of the steps, by the names of arrays in the files, such as
        `observations/qpos`. Required if there is no `observation/qpos`. By default, names are
        derived from the paths.
      sim: The attribute `sim`: whether the robot was simulated.
    """

    format = "aloha"
    copies_parts = True
    table = TABLE
    stores_image_files = True
    statistics = ("dataset_stats.pkl",)  # ACT recomputes statistics.

    def __init__(
        self, episodes: Episodes, *, fields: Mapping[str, str] | None = None, sim: bool = False
    ) -> None:
        self._fields, self._sim = fields or {}, sim
        super().__init__(episodes)

    @override
    def find_array_paths(self) -> dict[str, str]:
        for path in self._fields.values():
            if not self.holds(path):
                raise ValueError(f"fields: {path!r} is not a step field of numbers or images")
        array_paths = {path: array for array, path in self._fields.items()}
        used = Paths(dict.fromkeys(self._fields))
        for path, array in super().find_array_paths().items():
            if self._is_image(path) and not array.startswith(_IMAGES):
                array = f"{_IMAGES}/{path.rpartition('/')[2]}"
            if path not in array_paths and array not in used and not conflicts(used, array):
                array_paths[path] = array
                used[array] = None
        if missing := [array for array in (_STATE, _ACTION) if array not in used]:
            paths = [path for path in self.steps if self.holds(path)]
            fields = {
                **self._fields,
                **{array: self._likely_field(array, paths) for array in missing},
            }
            raise ValueError(
                f"no field for {missing[0]!r}, which every ALOHA file has. Pass the field, such as "
                f"fields={fields} (-T 'fields={json.dumps(fields)}' on the command line); the "
                f"steps have the fields {', '.join(paths) or 'none'}"
            )
        return array_paths

    def _likely_field(self, array: str, paths: Sequence[str]) -> str:
        """Returns the field that fits an array best: numbers before images, then its own group."""
        root = root_of(self.table.field_path(array))
        sorted_paths = sorted(paths, key=lambda path: (self._is_image(path), root_of(path) != root))
        return (sorted_paths or ["..."])[0]

    def _is_image(self, path: str) -> bool:
        field = self.steps[path]
        return bool(field.encoding) or (field.dtype == np.uint8 and len(field.shape) == 3)

    @override
    def write(self, path: Path) -> None:
        with SidecarWriter.in_folder(path, self.sidecar) as sidecar:
            for index, episode in enumerate(self.iter_items()):
                file = path / f"episode_{index}.hdf5"
                if isinstance(episode, SourceEpisode):
                    sidecar.add(episode)
                    self._write_file(file, episode)
                    continue
                part, stored_sidecar = stored_in(episode, AlohaSource)
                link(part.stored_file(episode.split, episode.index), file)
                sidecar.copy(stored_sidecar, episode.split, episode.index)

    def _write_file(self, path: Path, episode: SourceEpisode) -> None:
        lengths = []
        with new_file(path) as (file, _):
            file.attrs["sim"] = self._sim
            write_digest(file, self.sidecar)
            for name, column in self.columns(episode).items():
                if column.dtype.kind == "O":  # Images are stored as files.
                    lengths.append([len(data) for data in column])
                    column = _pad_files(column, max(lengths[-1], default=1))
                is_image = column.size and (column.ndim == 4 or name.startswith(f"{_IMAGES}/"))
                chunks = (1, *column.shape[1:]) if is_image else None
                file.create_dataset(name, data=column, chunks=chunks)
            self.write_values(file, episode)
            if lengths:
                file.attrs["compress"] = True
                file["compress_len"] = np.array(lengths, np.float32)


def _pad_files(files: np.ndarray, width: int) -> np.ndarray:
    """Returns files as rows of a matrix, with zeros at their ends."""
    rows = np.zeros((len(files), width), np.uint8)
    for row, data in zip(rows, files):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    return rows
