"""Episodes of any source as the HDF5 files of ACT and ALOHA."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlds
from rlds.formats.aloha.source import (
    ACTION,
    ASIDE,
    COMPRESS_LEN,
    INSTRUCTION,
    KEY,
    METADATA_KEY,
    OBSERVATIONS,
)
from rlds.formats.hdf5_export import Hdf5EpisodesExport, padded
from rlds.sources.episodes import Episodes
from rlds.sources.sidecar import SidecarWriter
from rlds.sources.source import SourceEpisode
from rlds_ecosystem import import_extra
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import root_of

__all__ = ["AlohaExport"]

_STATE, _IMAGES = f"{OBSERVATIONS}/qpos", f"{OBSERVATIONS}/images"
_COMPRESS, _SIM = "compress", "sim"


class AlohaExport(Hdf5EpisodesExport):
    """A folder of HDF5 files `episode_<i>.hdf5` for ACT, ALOHA, Mobile ALOHA and openpi.

    A file holds `action` and, in `observations`, the numbers of the observation by their names, and
    frames in `images`: of images that are files, the files, padded with zeros (`compress_len` says
    how long they are). All else, the final observation too, is in the sidecar, the folder `rlds`.

    Episodes that came from ALOHA get their files again, with every dtype, attribute and chunk.

    Args:
      episodes: The episodes.
      fields: Paths of fields of the steps, by what they are called in the files, such as
        `observations/qpos`. It has to be given if there is no `observation/qpos`. Other numbers of
        the observation, and images, go to where their names say.
      sim: What the attribute `sim` is to say: whether the robot was simulated.
    """

    format = "aloha"

    def __init__(
        self, episodes: Episodes, *, fields: Mapping[str, str] | None = None, sim: bool = False
    ) -> None:
        super().__init__(episodes, METADATA_KEY, (rlds.DISCOUNT, INSTRUCTION))
        self._sim = sim
        if self.said is None or fields:
            self._places = self._find_places(fields or {})
            places = {path: self.field_path(place) for place, path in self._places.items()}
            self.set_places(places)

    def stored_path(self, path: str) -> str:
        """See `Hdf5EpisodesExport`."""
        root, slash, rest = path.partition("/")
        return f"{OBSERVATIONS}{slash}{rest}" if root == rlds.OBSERVATION else path

    def field_path(self, name: str) -> str:
        """See `Hdf5EpisodesExport`."""
        root, slash, rest = name.partition("/")
        return f"{rlds.OBSERVATION}{slash}{rest}" if root == OBSERVATIONS else name

    def _find_places(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Returns the fields by their paths in a file."""
        for path in fields.values():
            if not self.fits(path, files=True):
                raise ValueError(f"fields: {path!r} is no field of steps with numbers or images")
        places = dict(fields)
        for path in self.steps:
            place = self.stored_path(path)
            if self._is_image(path) and not place.startswith(_IMAGES):
                place = f"{_IMAGES}/{path.rpartition('/')[2]}"
            is_ours = place == ACTION or place.startswith(f"{OBSERVATIONS}/")
            if is_ours and path not in fields.values() and self.fits(path, files=True):
                places.setdefault(place, path)
        if missing := [place for place in (_STATE, ACTION) if place not in places]:
            numbers = [path for path in self.steps if self.fits(path, files=True)]
            said = dict(fields) | {place: self._likely(place, numbers) for place in missing}
            raise ValueError(
                f"no field for {missing[0]!r}, which every file of ALOHA has. Say which it is, as "
                f"in fields={said} (-T 'fields={json.dumps(said)}' on the command line); there are "
                f"{', '.join(numbers) or 'none'}"
            )
        return places

    def _likely(self, place: str, numbers: Sequence[str]) -> str:
        """The field that is most like what a place is for: joints are no picture."""
        root = root_of(self.field_path(place))
        numbers = sorted(numbers, key=lambda path: (self._is_image(path), root_of(path) != root))
        return (numbers or ["..."])[0]

    def _is_image(self, path: str) -> bool:
        field = self.steps[path]
        if not isinstance(field, Field):
            return False
        is_frame = field.dtype == np.uint8 and len(field.shape) == 3
        return bool(field.encoding) or is_frame

    def read_options(self) -> Mapping[str, Any]:
        """Returns the options with which the files were read that are made again."""
        return {} if self.said is None else dict(self.said.get("options", {}))

    def write(self, path: Path) -> None:
        """See `Export`."""
        path.mkdir()
        if self.said is not None:
            for episode in self.each():
                self._write_again(path, episode)
            return
        (path / ASIDE).mkdir()
        with SidecarWriter(path / ASIDE, self.sidecar) as sidecar:
            for index, episode in enumerate(self.each()):
                sidecar.add(episode)
                self._write_anew(path / f"episode_{index}.hdf5", episode)

    def _write_again(self, path: Path, episode: SourceEpisode) -> None:
        if not KEY.fullmatch(episode.key):  # It could lead to anywhere.
            raise ValueError(f"episode {episode.key!r}: no name of a file of ALOHA")
        layout = self.layout(episode)
        h5py = import_extra("h5py")
        is_ordered = bool(layout.get("", {}).get("ordered"))
        with h5py.File(path / f"{episode.key}.hdf5", "x", track_order=is_ordered) as file:
            self.fill(file, layout, episode)

    def _write_anew(self, path: Path, episode: SourceEpisode) -> None:
        h5py = import_extra("h5py")
        rows = self.sidecar.rows(episode)
        lengths = []
        with h5py.File(path, "x") as file:
            file.attrs[_SIM] = self._sim
            for place, name in self._places.items():
                column = rows[name]
                if column.dtype.kind == "O":  # Files of images.
                    sizes = [len(data) for data in column]
                    lengths.append(sizes)
                    column = padded(column, max(sizes, default=1))
                is_image = column.size and self._is_image(name)
                chunks = (1, *column.shape[1:]) if is_image else None
                file.create_dataset(place, data=column, chunks=chunks)
            if lengths:
                file.attrs[_COMPRESS] = True
                file[COMPRESS_LEN] = np.array(lengths, np.float32)
