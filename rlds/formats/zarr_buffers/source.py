"""Replay buffers of Diffusion Policy and of UMI: Zarr v2, in a folder or in a `.zarr.zip` archive.

    data/<name>           the concatenated rows of all episodes, one for each step
    meta/episode_ends     the end row of each episode (exclusive)
    meta/<name>           other values of the dataset

A row holds an observation and the action taken on it. There are no rewards, flags, or final
observations.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.zarr_buffers.arrays import ZarrArray
from rlds.formats.zarr_buffers.files import ATTRIBUTES, ZarrFiles
from rlds.formats.zarr_buffers.videos import BufferVideos
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episode_fields import RESERVED
from rlds.sources.sidecar import (
    SIDECAR_BYTES,
    SIDECAR_ENDS,
    SIDECAR_TEXT,
    PackedSidecar,
    StoredSidecar,
)
from rlds.sources.source import (
    ALL_ROWS,
    DERIVED_DISCOUNT,
    Capabilities,
    Fields,
    Lengths,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
)
from rlds.video import VIDEO
from rlds.video.fields import video_fields
from rlds_ecosystem.model.columns import step_flags
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import nest

__all__ = ["CHUNKS", "METADATA_KEY", "ZarrSource", "is_constant", "path_of"]

# The metadata key for the attributes and descriptions of arrays.
METADATA_KEY = "zarr"
# The prefix of step fields with undecoded image chunks.
CHUNKS = "chunks"
DATA, META, EPISODE_ENDS = "data/", "meta/", "meta/episode_ends"
# The arrays of the columns of a sidecar.
SIDECAR_COLUMNS = "rlds/columns/"

# Arrays of UMI with one value for all steps of an episode.
_CONSTANT_ARRAYS = ("demo_start_pose", "demo_end_pose")
# The array with the recording time of each row.
_TIME_ARRAY = f"{DATA}timestamp"
# Arrays outside of the observation.
_NON_OBSERVATIONS = (rlds.ACTION, rlds.REWARD, "stage", "timestamp")


class ZarrSource(Source):
    """The episodes of a replay buffer in Zarr v2, of Diffusion Policy or UMI.

    `action`, `reward`, `timestamp` and `stage` are fields of a step; all other arrays of `data`
    belong to the observation. An array whose name ends in `demo_start_pose` or `demo_end_pose` has
    the same value in all rows of an episode, and is a field of the episode. An array of `meta` with
    a value for each episode is such a field with an unchanged path. There is no action if the
    buffer has none, as in UMI, whose loader uses the next pose.

    If each frame is a chunk in JPEG XL or JPEG 2000, the step field `chunks/<name>` has the bytes
    of that chunk, without decoding; an export writes them again. `imagecodecs.imread` decodes a
    chunk.

    Videos next to the folder, `videos/<episode>/<camera>.mp4`, stay packets: an episode has the
    field `video/observation/camera_<camera>`, see `rlds.video`. The `frames` of a video hold the
    index of the frame of each step: the first frame at or after its `timestamp`.

    A missing chunk is an error, as Zarr 2 writes all chunks. Zarr 3 omits chunks that hold only the
    `fill_value` of their array; no file tells omitted from lost chunks.

    Rows after the last end belong to an aborted episode: the last one, which is not `complete`.
    There are no final observations.

    Args:
      path: The folder, the archive, or a folder with `replay_buffer.zarr`.
      images: Whether image chunks are read as bytes, or decoded to arrays in the observation.
      per_episode: The names of arrays of `data` with a constant value in each episode; by default,
        the two poses above.
      video: Whether the frames of videos stay packets, or are decoded into the steps.
      missing_chunks: Whether a missing chunk is an error of the episodes with its rows, or holds
        the `fill_value` of its array, as in files of Zarr 3.

    Raises:
      FileNotFoundError: There is no replay buffer.
      SourceError: The description of an array is damaged.
      ValueError: `per_episode` names a missing array.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        images: Literal["chunks", "frames"] = "chunks",
        per_episode: Sequence[str] | None = None,
        video: Literal["packets", "frames"] = "packets",
        missing_chunks: Literal["error", "fill"] = "error",
    ) -> None:
        self._options = {
            "images": images,
            "per_episode": None if per_episode is None else list(per_episode),
            "video": video,
            "missing_chunks": missing_chunks,
        }
        self._video, self._keeps_files = video, images == "chunks"
        self._files = ZarrFiles(path)
        with source_errors(self._files.path):
            names = [name for name in self._files.arrays() if name.isprintable()]
            fills = missing_chunks == "fill"
            arrays = {name: ZarrArray(self._files, name, fills=fills) for name in names}
            sidecar_names = (SIDECAR_TEXT, SIDECAR_ENDS, SIDECAR_BYTES)
            self._sidecar_arrays = {
                name: arrays.pop(name)
                for name in [*arrays]
                if name in sidecar_names or name.startswith(SIDECAR_COLUMNS)
            }
            self._arrays, self._end_rows = arrays, _read_ends(arrays[EPISODE_ENDS])
            self._data = [array for name, array in arrays.items() if name.startswith(DATA)]
            if not self._data:
                raise SourceError("the group data has no arrays", file=self._files.path)
            for array in self._data:
                if not array.shape:
                    raise array.error("a scalar, expected a row for each step")
        for name in per_episode or ():
            if DATA + name not in arrays:
                names_of_data = [array.name for array in self._data]
                raise ValueError(f"per_episode: got {name!r}, expected some of {names_of_data}")
            if name in RESERVED:
                raise ValueError(f"per_episode: the name {name!r} is reserved")
        # The start rows of episodes, and the end row of the last episode, which may be aborted.
        self._num_rows = min(map(len, self._data))
        end_rows = self._end_rows.tolist()
        is_aborted = self._num_rows > max(end_rows, default=0)
        self._bounds = [0, *end_rows, *([self._num_rows] if is_aborted else [])]
        # Arrays by the paths of their fields: fields of steps, constants of episodes with a row for
        # each step, and fields of episodes with a row for each episode.
        self._steps, self._constants = {}, {}
        for array in self._data:
            name = array.name.removeprefix(DATA)
            if is_constant(name) if per_episode is None else name in per_episode:
                self._constants[name] = array
            else:
                self._steps[path_of(array.name, is_kept=self._is_kept(array))] = array
        self._episode_arrays = {
            name: array
            for name, array in arrays.items()
            if name.startswith(META) and name != EPISODE_ENDS
            if not is_aborted and array.shape[:1] == (len(end_rows),)
        }
        self._times = None if self._sidecar_arrays else arrays.get(_TIME_ARRAY)
        num_filmed = len(self._bounds) - 1 if self._times in self._steps.values() else 0
        with source_errors(self._files.path):
            self._videos = BufferVideos(self._files.path, num_filmed)

    def _is_kept(self, array: ZarrArray) -> bool:
        """Whether the values of the field of an array are its undecoded chunks."""
        return self._keeps_files and array.is_image_file

    # --- Fields in RLDS.

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        steps = {
            path: _file_field(array) if self._is_kept(array) else _field(array)
            for path, array in self._steps.items()
        }
        arrays = {**self._constants, **self._episode_arrays}
        episode_fields = {path: _field(array) for path, array in arrays.items()}
        return Fields(
            nest({rlds.DISCOUNT: DERIVED_DISCOUNT, **steps}),
            nest({**episode_fields, **video_fields(self._videos.cameras)}),
        )

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        """The metadata: attributes, values of arrays without rows, and layouts of image arrays."""
        own_arrays = {EPISODE_ENDS, *self._episode_arrays}
        metadata_arrays = [
            array
            for name, array in self._arrays.items()
            if name not in own_arrays and not name.startswith(DATA)
        ]
        kept_arrays = [array for array in self._steps.values() if self._is_kept(array)]
        metadata = {
            "attributes": self._attributes(),
            "values": {
                array.name: {"dtype": array.dtype.str, "values": _json_values(array)}
                for array in metadata_arrays
            },
            "images": {array.name.removeprefix(DATA): array.header for array in kept_arrays},
        }
        return SourceInfo(
            description="Episodes of a replay buffer in Zarr.",
            homepage="https://diffusion-policy.cs.columbia.edu",
            metadata={METADATA_KEY: metadata},
            options=self._options,
        )

    def _attributes(self) -> dict[str, Any]:
        """Returns the non-empty attributes of groups and arrays, by their paths."""
        parents = {name.rpartition("/")[0] for name in self._arrays}
        texts = {
            group: self._files.read(f"{group}/{ATTRIBUTES}" if group else ATTRIBUTES)
            for group in sorted({"", *parents})
        }
        attributes_of = {group: json.loads(text or b"{}") for group, text in texts.items()}
        attributes_of |= {name: array.attributes for name, array in self._arrays.items()}
        return {name: attributes for name, attributes in attributes_of.items() if attributes}

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            video=self._video,
            lengths=self._lengths,
            reads_rows=True,
            totals=self._totals,
            faults=self._find_faults,
            sidecar=self._sidecar,
        )

    def _sidecar(self) -> StoredSidecar | None:
        if SIDECAR_TEXT not in self._sidecar_arrays:
            return None
        path, text = self._files.path, self._sidecar_arrays[SIDECAR_TEXT].all()
        if SIDECAR_ENDS not in self._sidecar_arrays:
            return StoredSidecar.from_text(text.tobytes(), path, self._read_stream)
        arrays = self._sidecar_arrays
        end_offsets, rows = arrays[SIDECAR_ENDS].all(), arrays[SIDECAR_BYTES].read
        return PackedSidecar.in_arrays(path, text, end_offsets, rows)

    def _read_stream(self, stream: str, start: int, end: int) -> Any:
        return self._sidecar_arrays[SIDECAR_COLUMNS + stream].read(start, end).data

    @override
    def inputs(self) -> Sequence[str | os.PathLike[str]]:
        return [*self._files.inputs(), *self._videos.inputs()]

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._bounds) - 1

    def stored_rows(self, index: int) -> tuple[Mapping[str, ZarrArray], range]:
        """Returns the arrays by name, and the rows of an episode in the arrays of `data`."""
        return self._arrays, range(*self._bounds[index : index + 2])

    def _lengths(self, split: str) -> Lengths:
        return Lengths.create(np.diff(self._bounds), final_observation_known=False)

    def _totals(self, split: str) -> Mapping[str, int]:
        return {"rows": self._num_rows}

    def _find_faults(self, split: str) -> Iterator[SourceError]:
        expected = self._num_rows
        for array in self._data:
            if len(array) != expected:
                yield array.error(f"{len(array)} rows, but other arrays have {expected}", expected)

    @override
    def key(self, split: str, index: int) -> str:
        return f"episode_{index}"

    # --- One episode.

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        first_row, end_row = self._bounds[index : index + 2]
        if end_row > self._num_rows:
            problem = f"the episode ends at {end_row}, but the arrays have {self._num_rows} rows"
            raise SourceError(problem, file=self._files.path, field=EPISODE_ENDS)
        if first_row == end_row and fields is None:
            raise self._arrays[EPISODE_ENDS].error("an episode without rows", index)
        if end_row > first_row:
            self._data[0].check_row(end_row - 1)
        length = end_row - first_row
        start, end, _ = rows.indices(length)
        # In an exported buffer, an episode may have no row.
        flags = step_flags([max(length, 1)], [False])
        flags[rlds.DISCOUNT] = np.ones(length, np.float32)
        steps = {path: column[start : min(end, length)] for path, column in flags.items()}
        for path in self.fields.step_paths(fields):
            if path in self._steps:
                array = self._steps[path]
                read = array.files_of_rows if self._is_kept(array) else array.read
                steps[path] = read(first_row + start, first_row + end)
        return SourceEpisode(
            key=self.key(split, index),
            steps=nest(steps),
            origin=Origin(str(self._files.path.name), first_row, end_row),
            truncated=True,
            final_observation_known=False,
            complete=index < len(self._end_rows),
            metadata=self._values(index, first_row, end_row, self.fields.episode_paths(fields)),
            counts={"rows": length},
        )

    def _values(self, index: int, start: int, end: int, paths: Sequence[str]) -> dict[str, Any]:
        """Reads fields of an episode."""
        values: dict[str, Any] = {}
        for path in paths:
            if path in self._episode_arrays:
                values[path] = self._episode_arrays[path].read(index, index + 1)[0]
            elif path in self._constants:
                values[path] = _read_constant(self._constants[path], start, end)
        if any(path.startswith(f"{VIDEO}/") for path in paths) and self._times is not None:
            values |= self._videos.read(index, self._times.read(start, end))
        return nest(values)


def path_of(name: str, *, is_kept: bool) -> str:
    """Returns the path of the field of steps for an array of `data`.

    Args:
      name: The path of the array.
      is_kept: Whether the values of the field are its undecoded chunks.
    """
    path = name.removeprefix(DATA)
    if is_kept:
        return f"{CHUNKS}/{path}"
    return path if path.partition("/")[0] in _NON_OBSERVATIONS else f"{rlds.OBSERVATION}/{path}"


def is_constant(name: str) -> bool:
    """Whether an array of `data` is constant in each episode, by its name."""
    return name.endswith(_CONSTANT_ARRAYS)


def _field(array: ZarrArray) -> Field:
    kinds: Mapping[str, Any] = {"U": str, "O": str, "S": bytes}
    return Field(kinds.get(array.dtype.kind, array.dtype), array.row_shape)


def _json_values(array: ZarrArray) -> Any:
    values = array.all()
    if array.dtype.kind == "S":
        values = np.char.decode(values.astype(bytes), "utf-8", "backslashreplace")
    return values.tolist()


def _file_field(array: ZarrArray) -> Field:
    height, width, *_ = (*array.row_shape, 0, 0)
    file = array.codec.removeprefix("imagecodecs_")
    return Field(bytes, doc=f"An image of {height} x {width} pixels as a {file} file.")


def _read_ends(array: ZarrArray) -> np.ndarray:
    if len(array.shape) != 1 or array.dtype.kind not in "iu":
        raise array.error(f"{array.dtype} of shape {array.shape}, expected integers")
    rows = array.all().astype(np.int64)
    drops = np.flatnonzero(np.diff(rows, prepend=0) < 0)
    if len(drops):
        raise array.error(f"{rows[drops[0]]}, expected at least the previous end", int(drops[0]))
    return rows


def _read_constant(array: ZarrArray, start: int, end: int) -> Any:
    """Returns the constant value of an array in an episode."""
    rows = array.read(start, end)
    values = [row.tolist() if row.dtype == object else row.tobytes() for row in rows]
    differing = [row for row, value in enumerate(values) if value != values[0]]
    if differing:
        problem = (
            "the value differs from the first row of the episode; leave it out of per_episode "
            "to read it as a step field"
        )
        raise array.error(problem, start + differing[0])
    return rows[0]
