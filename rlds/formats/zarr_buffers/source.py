"""Replay buffers of Diffusion Policy and of UMI: Zarr v2, in a folder or in a `.zarr.zip` archive.

    data/<name>           a row for each step of all episodes, one after the other
    meta/episode_ends     the row after the last one of each episode
    meta/<name>           other values of the dataset

A row holds an observation and the action taken on it. There are no rewards, flags, or final
observations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.zarr_buffers.arrays import ZarrArray
from rlds.formats.zarr_buffers.files import ATTRIBUTES, ZarrFiles
from rlds.formats.zarr_buffers.videos import Videos
from rlds.raw_files.untrusted import source_errors
from rlds.sources.episode_fields import RESERVED
from rlds.sources.sidecar import SIDECAR_BYTES, SIDECAR_ENDS, SIDECAR_TEXT, StoredSidecar
from rlds.sources.source import ALL_ROWS, Origin, RandomAccessSource, SourceEpisode, SourceError
from rlds.video import VIDEO
from rlds_ecosystem.columns import step_flags
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import nest

__all__ = ["CHUNKS", "METADATA_KEY", "ZarrSource", "is_constant", "path_of"]

# Under this name, the metadata of a dataset holds what the JSON files say.
METADATA_KEY = "zarr"
# The step fields that hold the files of images are below this one.
CHUNKS = "chunks"
DATA, META, EPISODE_ENDS = "data/", "meta/", "meta/episode_ends"

# Rows of UMI that say the same in each step of an episode.
_CONSTANT = ("demo_start_pose", "demo_end_pose")
# When each row was recorded.
_TIMES = f"{DATA}timestamp"
# What is no observation.
_OF_STEPS = (rlds.ACTION, rlds.REWARD, "stage", "timestamp")


class ZarrSource(RandomAccessSource):
    """The episodes of a replay buffer in Zarr v2, of Diffusion Policy or UMI.

    `action`, `reward`, `timestamp` and `stage` are fields of a step; all other arrays of `data` are
    parts of the observation. An array whose name ends in `demo_start_pose` or `demo_end_pose` has
    the same value in all rows of an episode, and is a field of the episode. So is an array of
    `meta` with a value for each episode; it keeps its path. There is no action if the buffer has
    none, as that of UMI: its loader takes the next pose.

    Where each frame is a chunk in JPEG XL or JPEG 2000, the step field `chunks/<name>` has the
    bytes of that chunk: they are not decoded, so nothing is lost, and an export writes them again.
    `imagecodecs.imread` decodes one.

    Videos beside the folder, `videos/<episode>/<camera>.mp4`, stay packets: an episode has the
    field `video/observation/camera_<camera>`, see `rlds.video`. Its `frames` say which
    frame each step has, by `timestamp`: the first one that is shown then or later.

    A chunk that is missing is damage, as Zarr 2 writes them all. Zarr 3 leaves out chunks of
    nothing but the `fill_value` of their array: no file says whether one was left out or was lost.

    Rows after the last end are of an episode that was aborted. It is the last one, and not
    `complete`. No final observation is known.

    Args:
      path: The folder, the archive, or a folder with `replay_buffer.zarr`.
      images: Whether frames that are files are read as the bytes of their chunks, or are decoded
        to arrays in the observation.
      per_episode: The names of arrays of `data` with a constant value in each episode, if they are
        others than those above.
      video: Whether the frames of videos stay packets, or are decoded into the steps.
      missing_chunks: Whether a chunk that is missing is an error of the episodes that have rows of
        it, or stands for the `fill_value` of its array, as in what Zarr 3 wrote.

    Raises:
      FileNotFoundError: There is no replay buffer.
      SourceError: What describes an array is damaged.
      ValueError: There is no array of a name in `per_episode`.
    """

    description = "Episodes of a replay buffer in Zarr."
    homepage = "https://diffusion-policy.cs.columbia.edu"
    reads_rows = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        images: Literal["chunks", "frames"] = "chunks",
        per_episode: Sequence[str] | None = None,
        video: Literal["packets", "frames"] = "packets",
        missing_chunks: Literal["error", "fill"] = "error",
    ) -> None:
        self._images, self._per_episode, self.video = images, per_episode, video
        self._missing_chunks = missing_chunks
        self._files = ZarrFiles(path)
        with source_errors(self._files.path):
            names = [name for name in self._files.arrays() if name.isprintable()]
            fills = missing_chunks == "fill"
            self._arrays = {name: ZarrArray(self._files, name, fills=fills) for name in names}
            of_sidecar = (SIDECAR_TEXT, SIDECAR_ENDS, SIDECAR_BYTES)
            self._sidecar = {it: self._arrays.pop(it) for it in of_sidecar if it in self._arrays}
            self._ends = self._read_ends()
            self._data = [name for name in self._arrays if name.startswith(DATA)]
            if not self._data:
                raise SourceError("no array in the group data", file=self._files.path)
            for array in (self._arrays[name] for name in self._data):
                if not array.shape:
                    raise array.error("a scalar, expected a row for each step")
            # The arrays by the paths of the fields that they become: of steps, and of episodes, of
            # which some have a row for each step, and others one for each episode.
            constants = [name for name in self._data if self._is_constant(name)]
            self._constants = {name.removeprefix(DATA): name for name in constants}
            self._steps = {
                path_of(name, is_kept=self._is_kept(name)): name
                for name in self._data
                if name not in constants
            }
            self._of_episodes = [name for name in self._arrays if self._is_of_episodes(name)]
            has_times = _TIMES in self._steps.values() and not self._sidecar
            self._videos = Videos(self._files.path, self.num_episodes("train") if has_times else 0)
        for name in per_episode or ():
            if DATA + name not in self._data:
                raise ValueError(f"per_episode: {name!r} is none of {self._data}")
            if name in RESERVED:
                raise ValueError(f"per_episode: every episode has a field {name!r} of its own")

    @override
    @classmethod
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        return os.fspath(path).endswith(".zarr.zip") or bool(ZarrFiles(path).path)

    # --- What there is.

    def _read_ends(self) -> np.ndarray:
        array = self._arrays[EPISODE_ENDS]
        if len(array.shape) != 1 or array.dtype.kind not in "iu":
            raise array.error(f"{array.dtype} of shape {array.shape}, expected integers")
        ends = array.all().astype(np.int64)
        falls = np.flatnonzero(np.diff(ends, prepend=0) < 0)
        if len(falls):
            raise array.error(f"{ends[falls[0]]}, less than the one before", int(falls[0]))
        return ends

    @property
    def _num_rows(self) -> int:
        """How many rows all arrays have."""
        return min(len(self._arrays[name]) for name in self._data)

    @property
    def _has_aborted(self) -> bool:
        return self._num_rows > (int(self._ends[-1]) if len(self._ends) else 0)

    def _is_constant(self, name: str) -> bool:
        if self._per_episode is not None:
            return name.removeprefix(DATA) in self._per_episode
        return is_constant(name)

    def _is_of_episodes(self, name: str) -> bool:
        """Whether an array of `meta` has a value for each episode."""
        is_one = name.startswith(META) and name != EPISODE_ENDS and not self._has_aborted
        return is_one and self._arrays[name].shape[:1] == (len(self._ends),)

    def _is_kept(self, name: str) -> bool:
        return self._images == "chunks" and self._arrays[name].is_image_file

    # --- What it becomes.

    @override
    def step_fields(self) -> Mapping[str, Any]:
        fields = {path: self._field(name) for path, name in self._steps.items()}
        return nest({**fields, rlds.DISCOUNT: Field(np.float32)})

    def _field(self, name: str) -> Field:
        array = self._arrays[name]
        if self._is_kept(name) and name in self._steps.values():
            height, width, *_ = (*array.row_shape, 0, 0)
            file = array.codec.removeprefix("imagecodecs_")
            return Field(bytes, doc=f"An image of {height} x {width} pixels as a {file} file.")
        return Field(_KINDS.get(array.dtype.kind, array.dtype), array.row_shape)

    @override
    def episode_fields(self) -> Mapping[str, Any]:
        names = {**self._constants, **dict(zip(self._of_episodes, self._of_episodes))}
        fields = {path: self._field(name) for path, name in names.items()}
        videos = {VIDEO: nest(self._videos.fields())} if self._videos.cameras else {}
        return {**nest(fields), **videos}

    @override
    def metadata(self) -> Mapping[str, Any]:
        """Returns attributes, the values of other arrays, and how files of images are kept."""
        others = [
            array
            for name, array in self._arrays.items()
            if name not in (EPISODE_ENDS, *self._data, *self._of_episodes)
        ]
        kept = [name for name in self._steps.values() if self._is_kept(name)]
        return {
            METADATA_KEY: {
                "attributes": self._attributes(),
                "values": {
                    it.name: {"dtype": it.dtype.str, "values": it.all().tolist()} for it in others
                },
                "images": {name.removeprefix(DATA): self._arrays[name].described for name in kept},
            }
        }

    def _attributes(self) -> dict[str, Any]:
        """Returns the attributes of groups and arrays that have any, by their paths."""
        parents = {name.rpartition("/")[0] for name in self._arrays}
        texts = {
            group: self._files.read(f"{group}/{ATTRIBUTES}" if group else ATTRIBUTES)
            for group in sorted({"", *parents})
        }
        found = {group: json.loads(text or b"{}") for group, text in texts.items()}
        found |= {name: array.attributes for name, array in self._arrays.items()}
        return {name: attributes for name, attributes in found.items() if attributes}

    @override
    def stored_sidecar(self) -> StoredSidecar | None:
        if SIDECAR_BYTES not in self._sidecar:
            return None
        text, ends = (self._sidecar[name].all() for name in (SIDECAR_TEXT, SIDECAR_ENDS))
        rows = self._sidecar[SIDECAR_BYTES].read
        return StoredSidecar.in_arrays(self._files.path, text, ends, rows)

    @override
    def inputs(self) -> Sequence[str | os.PathLike[str]]:
        return [*self._files.inputs(), *self._videos.inputs()]

    @override
    def options(self) -> Mapping[str, Any]:
        per_episode = None if self._per_episode is None else list(self._per_episode)
        return {
            "images": self._images,
            "per_episode": per_episode,
            "video": self.video,
            "missing_chunks": self._missing_chunks,
        }

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._ends) + self._has_aborted

    @override
    def num_steps(self, split: str) -> Sequence[int]:
        rows = [self._rows(index) for index in range(self.num_episodes(split))]
        return [end - begin for begin, end in rows]

    @override
    def totals(self, split: str) -> Mapping[str, int]:
        return {"rows": self._num_rows}

    @override
    def faults(self, split: str) -> Any:
        expected = self._num_rows
        for array in (self._arrays[name] for name in self._data):
            if len(array) != expected:
                yield array.error(f"{len(array)} rows, but others have {expected}", expected)

    @override
    def key(self, split: str, index: int) -> str:
        return f"episode_{index}"

    def _rows(self, index: int) -> tuple[int, int]:
        begin = int(self._ends[index - 1]) if index else 0
        end = int(self._ends[index]) if index < len(self._ends) else self._num_rows
        return begin, end

    # --- One episode.

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        first, after = self._rows(index)
        if after > self._num_rows:
            what = f"{self._num_rows} rows, but it ends at {after}"
            raise SourceError(what, file=self._files.path, field=EPISODE_ENDS)
        if first == after and fields is None:
            raise self._arrays[EPISODE_ENDS].error("an episode without rows", index)
        if after > first:
            self._arrays[self._data[0]].check_row(after - 1)
        length = after - first
        begin, end, _ = rows.indices(length)
        others = {path: column[begin:end] for path, column in _others(length).items()}
        wanted = [path for path in self.step_paths(fields) if path in self._steps]
        steps = {path: self._column(path, first + begin, first + end) for path in wanted}
        return SourceEpisode(
            key=self.key(split, index),
            steps=nest({**steps, **others}),
            origin=Origin(str(self._files.path.name), first, after),
            truncated=True,
            final_observation_known=False,
            complete=index < len(self._ends),
            metadata=self._metadata_of(index, self.episode_paths(fields)),
            counts={"rows": length},
        )

    def _column(self, path: str, begin: int, end: int) -> np.ndarray:
        name = self._steps[path]
        array = self._arrays[name]
        return array.files_of_rows(begin, end) if self._is_kept(name) else array.read(begin, end)

    def _metadata_of(self, index: int, paths: Sequence[str]) -> Mapping[str, Any]:
        begin, end = self._rows(index)
        found: dict[str, Any] = {}
        for path in paths:
            if path in self._of_episodes:
                found[path] = self._arrays[path].read(index, index + 1)[0]
            elif path in self._constants:
                found[path] = self._constant(self._arrays[self._constants[path]], begin, end)
        if any(path.startswith(f"{VIDEO}/") for path in paths) and self._videos.cameras:
            times = self._arrays[_TIMES].read(begin, end)
            found[VIDEO] = nest(self._videos.read(index, times))
        return nest(found)

    def _constant(self, array: ZarrArray, begin: int, end: int) -> Any:
        """Returns the value that all rows of an episode have."""
        rows = array.read(begin, end)
        others = np.flatnonzero([_bits(row) != _bits(rows[0]) for row in rows])
        if len(others):
            what = (
                "another value than in the row where the episode begins; pass per_episode "
                "without it to have it as a field of steps"
            )
            raise array.error(what, begin + int(others[0]))
        return rows[0]


_NO_FLAGS = np.zeros(0, np.bool_)
_KINDS: Mapping[str, Any] = {"U": str, "O": str, "S": bytes}


def path_of(name: str, *, is_kept: bool) -> str:
    """Returns the path of the field of steps that an array of `data` becomes.

    Args:
      name: The path of the array.
      is_kept: Whether its chunks are the values of the field.
    """
    path = name.removeprefix(DATA)
    if is_kept:
        return f"{CHUNKS}/{path}"
    return path if path.partition("/")[0] in _OF_STEPS else f"{rlds.OBSERVATION}/{path}"


def is_constant(name: str) -> bool:
    """Whether an array of `data` has a name by which it is constant in each episode."""
    return name.endswith(_CONSTANT)


def _bits(row: np.ndarray) -> Any:
    return row.tolist() if row.dtype == object else row.tobytes()


def _others(length: int) -> dict[str, np.ndarray]:
    """The fields of steps that no array has."""
    flags = step_flags([length], [False]) if length else dict.fromkeys(rlds.STEP_FLAGS, _NO_FLAGS)
    return {rlds.DISCOUNT: np.ones(length, np.float32), **flags}
