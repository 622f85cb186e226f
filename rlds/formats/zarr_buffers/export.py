"""Episodes of any source as a replay buffer in Zarr v2."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.zarr_buffers.source import (
    CHUNKS,
    DATA,
    EPISODE_ENDS,
    META,
    METADATA_KEY,
    SIDECAR_COLUMNS,
    ZarrSource,
    is_constant,
    path_of,
)
from rlds.formats.zarr_buffers.writing import COMPRESSORS, ArrayWriter, ZarrWriter, rows_json
from rlds.sources.channel_order import as_rgb, channel_note
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.restored_source import stored_in
from rlds.sources.sidecar import SIDECAR_TEXT, Sidecar, SidecarWriter
from rlds.sources.source import Location, is_derived
from rlds.sources.writing import PNGS, Export, Placement, encoding_of, pngs_of, sidecar_placements
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at, lookup

__all__ = ["ZarrExport"]


class ZarrExport(Export):
    """A replay buffer in Zarr v2, for Diffusion Policy and UMI; `.zarr.zip` is an archive.

    `data` gets an array for each numeric field of steps with a fixed shape: `action`, and the
    fields of the observation without this prefix, such as `data/camera_wrist` for
    `observation/camera/wrist`. PNG and JPEG files are decoded to arrays; JPEG files are also kept
    in the sidecar, the group `rlds`, which `ReplayBuffer` ignores. The sidecar holds all other
    values: final observations, flags, text, fields of episodes.

    For episodes from a replay buffer, image chunks are copied, constant poses are repeated in each
    row, and fields and values of `meta` are written to `meta`.

    Args:
      episodes: The episodes.
      compressor: The compressor, as in Diffusion Policy: `default` is fast to read, `disk` is
        small.
    """

    format = "zarr"
    copies_parts = True

    def __init__(
        self, episodes: Episodes, *, compressor: Literal["default", "disk"] = "disk"
    ) -> None:
        super().__init__(episodes)
        self._compressor = COMPRESSORS[compressor]
        buffer = episodes.metadata.get(METADATA_KEY)
        self._buffer: Mapping[str, Any] = {"images": {}, "attributes": {}, "values": {}}
        self._buffer = {**self._buffer, **(buffer if isinstance(buffer, dict) else {})}
        self._steps = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        # The names of arrays by paths of fields of steps.
        self._columns: dict[str, str] = {}
        for path, field in self._steps.items():
            if path in rlds.STEP_FLAGS or is_derived(path, field):
                continue
            if _is_array(field) or self._is_chunks(path):
                self._columns[path] = self._name_of(path)
        if not self._columns:
            raise ValueError(
                "Zarr needs a step field with numbers of one shape; the steps have none"
            )
        self.pngs = pngs_of(self._steps, self._columns)
        images = [path for path in self._columns if encoding_of(self._steps[path])]
        self._copies = [path for path in images if path not in self.pngs]
        field_paths = {
            path: path_of(name, is_kept=self._is_chunks(path))
            for path, name in self._columns.items()
            if path not in self._copies
        }
        self._sidecar = Sidecar.create(episodes, field_paths, arrays=self.pngs)
        # The names of arrays by paths of fields of episodes. The sidecar also has these fields, as
        # an episode may have no row.
        self._values = {
            path: path if path.startswith(META) else f"{DATA}{path}"
            for path, field in self._sidecar.episode.items()
            if _is_array(field) and not field.encoding and path != EPISODE_ENDS
            if is_constant(path) or path.startswith(META)
            if "/" not in path.removeprefix(META)
        }

    def _is_chunks(self, path: str) -> bool:
        """Whether a field of steps holds image chunks of the original buffer."""
        root, _, name = path.partition("/")
        return root == CHUNKS and name in self._buffer["images"]

    def _name_of(self, path: str) -> str:
        """Returns an unused array name."""
        if self._is_chunks(path):
            return DATA + path.removeprefix(f"{CHUNKS}/")
        stem = path.removeprefix(f"{rlds.OBSERVATION}/").replace("/", "_")
        names = [stem, path.replace("/", "_"), *(f"{stem}_{n}" for n in range(len(self._steps)))]
        names = [f"{name}_rows" if is_constant(name) else name for name in names]
        used_names = {*self._columns.values(), *(DATA + name for name in self._buffer["images"])}
        return next(DATA + name for name in names if DATA + name not in used_names)

    @override
    def placements(self) -> Sequence[Placement]:
        reasons = {
            path: f"its pixels are in {self._columns[path]}, too{channel_note(self._steps[path])}"
            for path in self._copies
        }
        reasons |= dict.fromkeys(self.pngs, PNGS)
        held = self._columns.keys() - {*self._copies}
        names = {**self._values, **{f"{rlds.STEPS}/{path}": self._columns[path] for path in held}}
        return [
            dataclasses.replace(p, how="exact") if p.field in self._values else p
            for p in sidecar_placements(self._sidecar, reasons, names)
        ]

    @override
    def check_target(self, path: str | os.PathLike[str]) -> None:
        if not os.fspath(path).endswith(".zip"):
            super().check_target(path)

    @override
    def files_order(self) -> Sequence[int] | None:
        # TFDS shuffles episodes.
        return self.order_of_origin() if METADATA_KEY in self.episodes.metadata else None

    @override
    def write(self, path: Path) -> None:
        attributes = self._buffer["attributes"]
        with ZarrWriter(path) as writer:
            for group in ("", "data", "meta", "rlds", SIDECAR_COLUMNS.rstrip("/")):
                writer.group(group, attributes.get(group))
            for name, value in self._buffer["values"].items():
                values = np.array(value["values"], value["dtype"])
                if values.dtype.kind in "biuf":
                    writer.array(name, values, attributes.get(name))
            with self._sidecar_writer(writer) as sidecar:
                self._write_episodes(writer, sidecar)

    def _sidecar_writer(self, writer: ZarrWriter) -> SidecarWriter:
        arrays: dict[str, ArrayWriter] = {}

        def append(stream: str, data: bytes) -> None:
            if stream not in arrays:
                arrays[stream] = self._array(writer, SIDECAR_COLUMNS + stream, Field(np.uint8))
            arrays[stream].append(np.frombuffer(data, np.uint8))

        def finish(text: str) -> None:
            for array in arrays.values():
                array.finish()
            writer.array(SIDECAR_TEXT, np.frombuffer(text.encode(), np.uint8))

        return SidecarWriter(self._sidecar, append, finish)

    def _write_episodes(self, writer: ZarrWriter, sidecar_writer: SidecarWriter) -> None:
        sidecar = self._sidecar
        columns = {
            path: self._array(writer, name, self._steps[path], is_kept=self._is_chunks(path))
            for path, name in self._columns.items()
        }
        values = {
            path: self._array(writer, name, sidecar.episode[path])
            for path, name in self._values.items()
        }
        bounds = [0]
        for episode in self.iter_items():
            if isinstance(episode, Location):
                num_rows = _copy(episode, [*columns.values(), *values.values()], sidecar_writer)
                bounds.append(bounds[-1] + num_rows)
                continue
            length = episode.num_steps - episode.final_observation_known
            bounds.append(bounds[-1] + length)
            kept_columns = sidecar.columns(episode)
            for path, array in columns.items():
                rows = kept_columns[path][:length]
                if self._is_chunks(path):
                    array.append_chunks(rows)
                else:
                    if path in self._copies:
                        rows = as_rgb(as_values(rows, sidecar.steps[path]), sidecar.steps[path])
                    array.append(rows)
            for path, array in values.items():
                row = np.asarray(lookup(episode.metadata, path))[np.newaxis]
                array.append(row if path.startswith(META) else np.repeat(row, length, axis=0))
            sidecar_writer.add(episode)
        for array in (*columns.values(), *values.values()):
            array.finish()
        writer.array(EPISODE_ENDS, np.array(bounds[1:], np.int64))

    def _array(
        self, writer: ZarrWriter, name: str, field: Field, *, is_kept: bool = False
    ) -> ArrayWriter:
        if is_kept:
            header = self._buffer["images"][name.removeprefix(DATA)]
        else:
            header = rows_json(field.column_dtype, field.shape, self._compressor)
        return ArrayWriter(writer, name, header, self._buffer["attributes"].get(name))


def _copy(location: Location, arrays: Iterable[ArrayWriter], sidecar_writer: SidecarWriter) -> int:
    """Copies an episode of a staged part; returns its number of rows."""
    part, sidecar = stored_in(location, ZarrSource)
    arrays_of_part, rows = part.stored_rows(location.index)
    episode_row = range(location.index, location.index + 1)
    for array in arrays:
        array.copy(arrays_of_part[array.name], episode_row if array.name.startswith(META) else rows)
    sidecar_writer.copy(sidecar, location.split, location.index)
    return len(rows)


def _is_array(field: Any) -> bool:
    """Whether a field has numbers or images of one shape."""
    if not isinstance(field, Field) or None in field.shape or 0 in field.shape:
        return False
    return field.column_dtype.kind in "biuf" and not field.is_text
