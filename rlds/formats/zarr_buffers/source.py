"""Replay buffers of Diffusion Policy and of UMI: Zarr v2, in a folder or in a `.zarr.zip` archive.

    data/<name>           a row for each step of all episodes, one after the other
    meta/episode_ends     the row after the last one of each episode
    meta/<name>           what else is said of the dataset

A row holds an observation and the action taken on it. There are no rewards, flags, or final
observations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

import rlds
from rlds.formats.zarr_buffers.arrays import ZarrArray
from rlds.formats.zarr_buffers.files import ATTRIBUTES, CONSOLIDATED, GROUP, ZarrFiles
from rlds.formats.zarr_buffers.videos import Videos
from rlds.raw_files.untrusted import source_errors
from rlds.sources.aside import ASIDE_BYTES, ASIDE_ENDS, ASIDE_TEXT, AsideRows, KeptAside
from rlds.sources.episode_fields import RESERVED
from rlds.sources.source import Origin, Outline, RandomAccessSource, SourceEpisode, SourceError
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
      SourceError: What is said of an array is damaged.
      ValueError: There is no array of a name in `per_episode`.
    """

    description = "Episodes of a replay buffer in Zarr."
    homepage = "https://diffusion-policy.cs.columbia.edu"
    reads_spans = True

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
            arrays = {name: ZarrArray(self._files, name, fills=fills) for name in names}
            of_aside = (ASIDE_TEXT, ASIDE_ENDS, ASIDE_BYTES)
            self._kept = {name: arrays.pop(name) for name in of_aside if name in arrays}
            self._arrays = arrays
            self._ends = self._read_ends()
            self._data = [name for name in arrays if name.startswith(DATA)]
            if not self._data:
                raise SourceError("no array in the group data", file=self._files.path)
            self._check_shapes()
            self._steps = self._step_columns()
            self._constants, self._of_episodes = self._episode_columns()
            has_times = _TIMES in self._steps.values() and not self._kept
            self._videos = Videos(self._files.path, self.num_episodes("train") if has_times else 0)
        for name in per_episode or ():
            if DATA + name not in self._data:
                raise ValueError(f"per_episode: {name!r} is none of {self._data}")
            if name in RESERVED:
                raise ValueError(f"per_episode: every episode has a field {name!r} of its own")

    @classmethod
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        """See `Source`."""
        return os.fspath(path).endswith(".zarr.zip") or bool(ZarrFiles(path).path)

    # --- What there is.

    def _read_ends(self) -> np.ndarray:
        array = self._arrays[EPISODE_ENDS]
        if len(array.spec.shape) != 1 or array.spec.dtype.kind not in "iu":
            raise array.error(f"{array.spec.dtype} of shape {array.spec.shape}, expected integers")
        ends = array.all().astype(np.int64)
        falls = np.flatnonzero(np.diff(ends, prepend=0) < 0)
        if len(falls):
            raise array.error(f"{ends[falls[0]]}, less than the one before", int(falls[0]))
        return ends

    def _check_shapes(self) -> None:
        for name in self._data:
            if not self._arrays[name].spec.shape:
                raise self._arrays[name].error("a scalar, expected a row for each step")

    @property
    def _num_rows(self) -> int:
        """How many rows all arrays have."""
        return min(len(self._arrays[name]) for name in self._data)

    @property
    def _has_aborted(self) -> bool:
        return self._num_rows > self._last_end

    @property
    def _last_end(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def _step_columns(self) -> dict[str, str]:
        """The arrays of `data`, by the paths of the fields that they become."""
        return {
            path_of(name, is_kept=self._is_kept(name)): name
            for name in self._data
            if not self._is_constant(name)
        }

    def _episode_columns(self) -> tuple[dict[str, str], dict[str, str]]:
        """Arrays by the paths of fields of episodes: with a row for each step, and for each one."""
        constants = {
            name.removeprefix(DATA): name for name in self._data if self._is_constant(name)
        }
        found = {
            name: name
            for name, array in self._arrays.items()
            if name.startswith(META) and name != EPISODE_ENDS and self._has_row_of_each(array)
        }
        return constants, found

    def _has_row_of_each(self, array: ZarrArray) -> bool:
        return array.spec.shape[:1] == (len(self._ends),) and not self._has_aborted

    def _is_constant(self, name: str) -> bool:
        if self._per_episode is not None:
            return name.removeprefix(DATA) in self._per_episode
        return is_constant(name)

    def _is_kept(self, name: str) -> bool:
        return self._images == "chunks" and self._arrays[name].spec.is_image_file

    # --- What it becomes.

    def step_fields(self) -> Mapping[str, Any]:
        """See the class."""
        fields = {path: self._field(name) for path, name in self._steps.items()}
        return nest({**fields, rlds.DISCOUNT: Field(np.float32)})

    def _field(self, name: str) -> Field:
        spec = self._arrays[name].spec
        if self._is_kept(name) and name in self._steps.values():
            height, width, *_ = (*spec.row_shape, 0, 0)
            file = spec.codec.removeprefix("imagecodecs_")
            return Field(bytes, doc=f"An image of {height} x {width} pixels as a {file} file.")
        return Field(_KINDS.get(spec.dtype.kind, spec.dtype), spec.row_shape)

    def episode_fields(self) -> Mapping[str, Any]:
        """See the class."""
        names = {**self._constants, **self._of_episodes}
        fields = {path: self._field(name) for path, name in names.items()}
        videos = {VIDEO: nest(self._videos.fields())} if self._videos.cameras else {}
        return {**nest(fields), **videos}

    def metadata(self) -> Mapping[str, Any]:
        """Returns the JSON files of groups and arrays, and the values of arrays of `meta`."""
        values = {
            name: array.all().tolist()
            for name, array in self._arrays.items()
            if name != EPISODE_ENDS and name not in (*self._data, *self._of_episodes)
        }
        return {
            METADATA_KEY: {
                "arrays": {name: array.spec.described for name, array in self._arrays.items()},
                "attributes": {**self._group_attributes(), **self._array_attributes()},
                "values": values,
                "is_consolidated": self._files.has(CONSOLIDATED),
            }
        }

    def kept_aside(self) -> KeptAside | None:
        """See `Source`."""
        if ASIDE_BYTES not in self._kept:
            return None
        text, ends = (self._kept[name].all() for name in (ASIDE_TEXT, ASIDE_ENDS))
        return AsideRows(self._files.path, text, ends, self._kept[ASIDE_BYTES].read)

    def _group_attributes(self) -> dict[str, Any]:
        """The attributes of groups; None for those that have no such file."""
        parents = {name.rpartition("/")[0] for name in self._arrays}
        found = {}
        for group in sorted({"", *parents}):
            prefix = f"{group}/" if group else ""
            if self._files.has(f"{prefix}{GROUP}"):
                text = self._files.read(f"{prefix}{ATTRIBUTES}")
                found[group] = None if text is None else json.loads(text)
        return found

    def _array_attributes(self) -> dict[str, Any]:
        return {name: array.attributes for name, array in self._arrays.items()}

    def inputs(self) -> Sequence[str | os.PathLike[str]]:
        """Returns all files of the folder, or the archive."""
        return [*self._files.inputs(), *self._videos.inputs()]

    def options(self) -> Mapping[str, Any]:
        """Returns the arguments."""
        per_episode = None if self._per_episode is None else list(self._per_episode)
        return {
            "images": self._images,
            "per_episode": per_episode,
            "video": self.video,
            "missing_chunks": self._missing_chunks,
        }

    def num_episodes(self, split: str) -> int:
        """See `Source`."""
        del split
        return len(self._ends) + self._has_aborted

    def num_steps(self, split: str) -> Sequence[int]:
        """See `Source`."""
        rows = [self._rows(index) for index in range(self.num_episodes(split))]
        return [end - begin for begin, end in rows]

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns how many rows the arrays have."""
        del split
        return {"rows": self._num_rows}

    def faults(self, split: str) -> Any:
        """Yields which arrays have other rows than the others."""
        del split
        expected = self._num_rows
        for array in (self._arrays[name] for name in self._data):
            if len(array) != expected:
                yield array.error(f"{len(array)} rows, but others have {expected}", expected)

    def key(self, split: str, index: int) -> str:
        """Returns the number of an episode: "episode_0", ...."""
        del split
        return f"episode_{index}"

    def _rows(self, index: int) -> tuple[int, int]:
        begin = int(self._ends[index - 1]) if index else 0
        end = int(self._ends[index]) if index < len(self._ends) else self._num_rows
        return begin, end

    # --- One episode.

    def outline(self, split: str, index: int) -> Outline:
        """See `RandomAccessSource`."""
        begin, end = self._checked_rows(split, index)
        return Outline(end - begin, max(end - begin - 1, 0), final_observation_known=False)

    def peek(self, split: str, index: int) -> SourceEpisode:
        """Reads no fields of steps."""
        return self._episode(split, index, [])

    def read(self, split: str, index: int) -> SourceEpisode:
        """Reads an episode; see `RandomAccessSource`."""
        return self._episode(split, index, None)

    def read_steps(
        self, split: str, index: int, fields: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        """Reads the rows of the wanted arrays."""
        begin, end = self._rows(index)
        return self.read_span(split, index, fields, 0, end - begin)

    def read_span(
        self, split: str, index: int, fields: Sequence[str] | None, begin: int, end: int
    ) -> Mapping[str, Any]:
        """Reads consecutive rows of the wanted arrays."""
        first, last = self._checked_rows(split, index)
        length = last - first
        begin, end = min(begin, length), min(end, length)
        flags = _others(length)
        return nest(
            {
                path: self._column(path, first + begin, first + end)
                if path in self._steps
                else flags[path][begin:end]
                for path in self._step_paths(fields)
            }
        )

    def _checked_rows(self, split: str, index: int) -> tuple[int, int]:
        begin, end = self._rows(index)
        if end > self._num_rows:
            what = f"{self._num_rows} rows, but it ends at {end}"
            raise SourceError(
                what, file=self._files.path, episode=self.key(split, index), field=EPISODE_ENDS
            )
        return begin, end

    def _episode(self, split: str, index: int, wanted: Iterable[str] | None) -> SourceEpisode:
        begin, end = self._checked_rows(split, index)
        if begin == end:
            raise self._arrays[EPISODE_ENDS].error("an episode without rows", index)
        paths = [path for path in self._steps if wanted is None or path in wanted]
        steps = {path: self._column(path, begin, end) for path in paths}
        videos = {}
        if self._videos.cameras:
            times = self._arrays[_TIMES].read(begin, end)
            videos[VIDEO] = nest(self._videos.read(index, times))
        return SourceEpisode(
            key=self.key(split, index),
            steps=nest({**steps, **_others(end - begin)}),
            origin=Origin(str(self._files.path.name), begin, end),
            truncated=True,
            final_observation_known=False,
            complete=index < len(self._ends),
            metadata={**nest(self._metadata_of(index, begin, end)), **videos},
            counts={"rows": end - begin},
        )

    def _column(self, path: str, begin: int, end: int) -> np.ndarray:
        name = self._steps[path]
        array = self._arrays[name]
        if self._is_kept(name):
            return array.files_of_rows(begin, end)
        return array.read(begin, end)

    def _metadata_of(self, index: int, begin: int, end: int) -> dict[str, Any]:
        found = {}
        for path, name in self._of_episodes.items():
            found[path] = self._arrays[name].read(index, index + 1)[0]
        for path, name in self._constants.items():
            rows = self._arrays[name].read(begin, end)
            others = np.flatnonzero([_bits(row) != _bits(rows[0]) for row in rows])
            if len(others):
                raise self._arrays[name].error(
                    "another value than in the row where the episode begins; pass per_episode "
                    "without it to have it as a field of steps",
                    begin + int(others[0]),
                )
            found[path] = rows[0]
        return found


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
