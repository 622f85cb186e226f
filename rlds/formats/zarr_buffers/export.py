"""Episodes of any source as a replay buffer in Zarr v2."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import rlds
from rlds.formats.zarr_buffers.arrays import IMAGE_CODECS, ZarrSpec
from rlds.formats.zarr_buffers.source import (
    CHUNKS,
    DATA,
    EPISODE_ENDS,
    META,
    METADATA_KEY,
    is_constant,
    path_of,
)
from rlds.formats.zarr_buffers.writing import ArrayWriter, ZarrWriter, array_json
from rlds.sources.aside import ASIDE_BYTES, ASIDE_ENDS, ASIDE_TEXT, Aside
from rlds.sources.episode_fields import EPISODE_FIELDS
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.exporting import (
    PNGS,
    Export,
    Placement,
    encoding_of,
    kept_aside,
    pngs_of,
    with_arrays,
)
from rlds.sources.source import SourceEpisode
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import leaves_at

__all__ = ["ZarrExport"]

# What Diffusion Policy calls "default" and "disk".
_COMPRESSORS: Mapping[str, Any] = {
    "default": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 0, "blocksize": 0},
    "disk": {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 2, "blocksize": 0},
}
_CHUNK_BYTES = 2_000_000


class ZarrExport(Export):
    """A replay buffer in Zarr v2, for Diffusion Policy and UMI; `.zarr.zip` is an archive.

    `data` gets an array for each field of steps that has numbers of one shape: `action`, and parts
    of the observation without that word, as `observation/camera/wrist` in `data/camera_wrist`. PNG
    files become the arrays that they hold, and JPEG files too, which are kept aside as well. All
    else is kept aside in the group `rlds`, which `ReplayBuffer` does not look into: final
    observations, flags, text, fields of episodes.

    Episodes that came from a replay buffer get its arrays again, with their dtypes, chunks, codecs
    and attributes, and the bytes of chunks that are images.

    Args:
      episodes: The episodes.
      compressor: How arrays are compressed that are new, by Diffusion Policy's names: `default` is
        fast to read, `disk` is small.
    """

    format = "zarr"

    def __init__(
        self, episodes: Episodes, *, compressor: Literal["default", "disk"] = "disk"
    ) -> None:
        super().__init__(episodes)
        self._compressor = _COMPRESSORS[compressor]
        spec = episodes.spec
        steps = dict(leaves_at(spec[rlds.STEPS], None))
        self._said = _said_of(episodes.metadata)
        # What is where: `.zarray` by the names of arrays.
        self._arrays: dict[str, dict[str, Any]] = {}
        self._columns: dict[str, str] = {}  # The arrays by the paths of fields of steps.
        self._constants: dict[str, str] = {}  # And of fields of episodes: in each row,
        self._of_episodes: dict[str, str] = {}  # or in one for each episode.
        self._place_again(steps, dict(leaves_at(spec, None)))
        known = {rlds.STEPS, *EPISODE_FIELDS}
        others = dict(
            leaves_at({name: field for name, field in spec.items() if name not in known}, None)
        )
        self._is_native = (
            {*steps} == {*self._columns, rlds.DISCOUNT, *rlds.STEP_FLAGS}
            and steps[rlds.DISCOUNT] == Field(np.float32)
            and {*others} == {*self._constants, *self._of_episodes}
        )
        for path, field in steps.items():
            if path not in self._columns and (path != rlds.DISCOUNT or not self._is_native):
                self._place_anew(path, field)
        if not self._columns:
            raise ValueError("no field of steps has numbers of one shape, which Zarr could hold")
        self._pngs = pngs_of(steps, self._columns)
        self._copies = [
            path for path in self._columns if encoding_of(steps[path]) and path not in self._pngs
        ]
        places = {
            path: path_of(name, is_kept=self._is_kept(path))
            for path, name in self._columns.items()
            if path not in self._copies
        }
        self._aside = Aside.of(episodes, places, arrays=self._pngs)

    def _place_again(self, steps: Mapping[str, Any], episode: Mapping[str, Any]) -> None:
        """Finds the fields that the arrays became, of which the episodes were read."""
        for name, described in self._said["arrays"].items():
            spec, path = ZarrSpec(described), name.removeprefix(DATA)
            if not name.startswith(DATA):
                if name.startswith(META) and name in episode:
                    self._of_episodes[name] = name
                    self._arrays[name] = described
                continue
            if f"{CHUNKS}/{path}" in steps and spec.is_image_file:
                self._columns[f"{CHUNKS}/{path}"] = name
            elif path in episode:
                self._constants[path] = name
            else:
                path = path if path in steps else f"{rlds.OBSERVATION}/{path}"
                if path not in steps or not _fits(steps[path], spec):
                    continue
                self._columns[path] = name
                if spec.codec in IMAGE_CODECS:  # They were decoded.
                    described = {**described, "compressor": _COMPRESSORS["disk"]}
            self._arrays[name] = described

    def _place_anew(self, path: str, field: Any) -> None:
        if path in rlds.STEP_FLAGS or not isinstance(field, Field):
            return
        dtype, shape = field.column_dtype, field.shape
        if dtype.kind not in "biuf" or None in shape or 0 in shape:
            return
        sizes = tuple(int(size) for size in shape if size is not None)
        short = path.removeprefix(f"{rlds.OBSERVATION}/").replace("/", "_")
        names = [short, path.replace("/", "_"), *(f"{short}_{n}" for n in range(len(self._arrays)))]
        names = [f"{name}_rows" if is_constant(name) else name for name in names]
        name = next(DATA + name for name in names if DATA + name not in self._arrays)
        row = math.prod(sizes) * dtype.itemsize
        is_image = len(sizes) >= 2 and row >= 10_000
        rows = 1 if is_image else max(1, _CHUNK_BYTES // row)
        self._arrays[name] = array_json(dtype, sizes, rows, self._compressor)
        self._columns[path] = name

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        why = {path: f"its pixels are in {self._columns[path]}, too" for path in self._copies}
        why |= dict.fromkeys(self._pngs, PNGS)
        names = {f"steps/{path}": name for path, name in self._columns.items()}
        again = {**self._constants, **self._of_episodes}
        return [
            dataclasses.replace(place, place=again[place.field], how="exact")
            if place.field in again
            else dataclasses.replace(place, place=names[place.field] if place.place else "")
            for place in kept_aside(self._aside, why)
        ]

    def _is_kept(self, path: str) -> bool:
        """Whether a field of steps has the files of chunks."""
        return (
            path.startswith(f"{CHUNKS}/")
            and ZarrSpec(self._arrays[self._columns[path]]).codec in IMAGE_CODECS
        )

    def each(self, order: Iterable[int] | None = None) -> Iterator[SourceEpisode]:
        """Yields the episodes, with arrays for PNG files."""
        yield from (with_arrays(episode, self._pngs) for episode in super().each(order))

    def check_target(self, path: str | os.PathLike[str]) -> None:
        """An archive is a file."""
        if not os.fspath(path).endswith(".zip"):
            super().check_target(path)

    def read_options(self) -> Mapping[str, Any]:
        """Says which arrays are fields of episodes."""
        return {"per_episode": [name.removeprefix(DATA) for name in self._constants.values()]}

    def write(self, path: Path) -> None:
        """See `Export`."""
        if self._is_native:  # A dataset has them in another order.
            self.order = self.order_of_origin()
        with ZarrWriter(path) as writer:
            said = self._said["attributes"]
            groups = {"": None, "data": None, "meta": None}
            arrays = self._said["arrays"]
            groups |= {name: said[name] for name in said if name not in arrays}
            for group, attributes in groups.items():
                writer.group(group, attributes)
            made = {
                name: writer.array(name, described, said.get(name))
                for name, described in self._arrays.items()
            }
            ends = self._write_episodes(writer, made)
            self._write_values(writer, ends)
            writer.finish(consolidated=self._said["is_consolidated"])

    def _write_episodes(self, writer: ZarrWriter, made: Mapping[str, ArrayWriter]) -> list[int]:
        ends: list[int] = []
        asides: list[bytes] = []
        kept = None if self._is_native else _AsideWriter(writer, self._aside)
        is_plain = self._is_native
        for index, episode in enumerate(self.each()):
            last = episode.num_steps - episode.final_observation_known
            columns = self._aside.columns(episode)
            for path, name in self._columns.items():
                self._append(made[name], path, columns[path][:last])
            values = dict(leaves_at(episode.metadata, None))
            for path, name in self._constants.items():
                array = made[name]
                value = np.asarray(values[path], array.spec.dtype)
                array.append(np.broadcast_to(value, (last, *value.shape)))
            for path, name in self._of_episodes.items():
                array = made[name]
                array.append(_as_rows(np.asarray(values[path])[np.newaxis], array.spec))
            ends.append((ends[-1] if ends else 0) + last)
            data = self._aside.pack(episode)
            if kept is not None:
                kept.add(data)
                continue
            asides.append(data)
            is_plain = is_plain and _is_plain(episode, index)
        if not is_plain and kept is None:
            kept = _AsideWriter(writer, self._aside)
            for data in asides:
                kept.add(data)
        return ends

    def _append(self, array: ArrayWriter, path: str, rows: np.ndarray) -> None:
        if self._is_kept(path):
            array.append_files(rows)
        elif path in self._copies:
            array.append(as_values(rows, self._aside.steps[path]))
        else:
            array.append(_as_rows(rows, array.spec))

    def _write_values(self, writer: ZarrWriter, ends: list[int]) -> None:
        described = self._said["arrays"].get(EPISODE_ENDS)
        if described is None:
            described = array_json(np.dtype(np.int64), (), max(1, len(ends)), None)
        values = {EPISODE_ENDS: (described, np.array(ends, np.int64))}
        for name, value in self._said["values"].items():
            described = self._said["arrays"][name]
            spec = ZarrSpec(described)
            dtype = object if spec.dtype.kind in "USO" else spec.dtype
            values[name] = described, np.array(value, dtype).reshape(spec.shape)
        for name, (described, value) in values.items():
            array = writer.array(name, described, self._said["attributes"].get(name))
            if array.spec.shape:
                array.append(_as_rows(value, array.spec))
            else:
                array.put_scalar(value)


class _AsideWriter:
    """The group that other readers do not look into."""

    def __init__(self, writer: ZarrWriter, aside: Aside) -> None:
        writer.group(ASIDE_BYTES.partition("/")[0])
        compressor, byte = _COMPRESSORS["disk"], np.dtype(np.uint8)
        text = np.frombuffer(aside.to_json().encode(), np.uint8)
        writer.array(ASIDE_TEXT, array_json(byte, (), len(text), compressor)).append(text)
        self._bytes = writer.array(ASIDE_BYTES, array_json(byte, (), _CHUNK_BYTES, compressor))
        self._ends = writer.array(ASIDE_ENDS, array_json(np.dtype(np.int64), (), 1 << 16, None))

    def add(self, data: bytes) -> None:
        self._bytes.append(np.frombuffer(data, np.uint8))
        self._ends.append(np.array([self._bytes.num_rows], np.int64))


def _said_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of the arrays that the episodes were read of, if they were."""
    nothing: dict[str, Any] = {
        "arrays": {},
        "attributes": {},
        "values": {},
        "is_consolidated": False,
    }
    found = metadata.get(METADATA_KEY)
    return {**nothing, **found} if isinstance(found, dict) else nothing


def _fits(field: Any, spec: ZarrSpec) -> bool:
    if not isinstance(field, Field) or (field.encoding and not pngs_of({"": field}, [""])):
        return False
    if field.is_text:
        return spec.dtype.kind in "USO" and field.shape == spec.row_shape
    return (field.dtype, field.shape) == (spec.dtype.newbyteorder("="), spec.row_shape)


def _as_rows(values: np.ndarray, spec: ZarrSpec) -> np.ndarray:
    """Values as an array has them: text is text, in arrays of text, and bytes in others."""
    if spec.dtype.kind not in "USO":
        return values.astype(spec.dtype, copy=False)
    to_bytes = spec.dtype.kind == "S"
    texts = [_text(value, to_bytes) for value in values.reshape(-1)]
    return np.array([*texts, None], object)[:-1].reshape(values.shape)


def _text(value: Any, to_bytes: bool) -> Any:
    if isinstance(value, str) and to_bytes:
        return value.encode()
    return value.decode() if isinstance(value, bytes) and not to_bytes else value


def _is_plain(episode: SourceEpisode, index: int) -> bool:
    """Whether reading the arrays alone gives the same episode."""
    steps = episode.steps
    return (
        not episode.final_observation_known
        and episode.truncated
        and episode.complete
        and bool(re.fullmatch(f"episode_{index}", episode.key))
        and not steps[rlds.IS_TERMINAL].any()
        and [int(row) for row in np.flatnonzero(steps[rlds.IS_FIRST])] == [0]
        and [int(row) for row in np.flatnonzero(steps[rlds.IS_LAST])] == [episode.num_steps - 1]
        and bool((np.asarray(steps.get(rlds.DISCOUNT, 1)) == 1).all())
    )
