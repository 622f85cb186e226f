"""Decoding of video clips on access: pixels in steps instead of clips in episodes."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
from rlds.sources import arrays, reading
from rlds.sources.episodes import Episodes
from rlds.sources.row_threads import for_all_rows
from rlds.sources.source import AnySource, Capabilities, Fields, Source, SourceError, files_of
from rlds.sources.view import RowContext, View, flat, nested
from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds.video.decoding import ClipIndex, ClipReader
from rlds.video.fields import DEPTH_CODES_DOC, cameras_of, depths_of_codes
from rlds.video.packets import VideoInfo
from rlds_ecosystem.files.caches import LruCache
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below, leaves_at, lookup, nest

__all__ = ["FramesSource", "frames_of", "with_frames"]

_READER_CACHE_BYTES, _INDEX_CACHE_BYTES = 256 << 20, 64 << 20
# The approximate memory of a decoder, in RGB frames: a 4:2:0 frame takes half the bytes of RGB.
_DECODER_FRAMES = 10


def with_frames(episodes: Episodes, cameras: Iterable[str] | None = None) -> Episodes:
    """Returns the same episodes, whose steps have the pixels of their video.

    Frames are decoded on access: `episodes.columns(3, start=40, stop=44)` decodes four frames of
    each camera, and the frames from the preceding keyframe.

    Args:
      episodes: Episodes with clips, from a robot dataset or a TFDS dataset.
      cameras: Paths of the decoded fields, such as `observation/images/top`; all by default. The
        fields of their clips are removed.

    Raises:
      KeyError: There is no such camera; the message lists the cameras.
      SourceError: No clip can be read.
      TypeError: The source has no random access.
    """
    return episodes.through(FramesSource, cameras)


def frames_of(source: AnySource) -> FramesSource | None:
    """Returns a source with decoded frames; None if it has no video, or PyAV is missing."""
    if not isinstance(source, Source) or importlib.util.find_spec("av") is None:
        return None
    return FramesSource(source) if cameras_of(source.fields.episode) else None


class FramesSource(View):
    """A source whose steps have the decoded frames of its video clips; see `with_frames`.

    The first episode determines the frame size. If frames and steps do not match one to one, a step
    may have no frame: then the mask field `<camera>_known` is False, and the pixels are zeros.
    Reading such pixels without the mask field is an error.

    Args:
      source: The source.
      cameras: See `with_frames`.

    Attributes:
      cameras: The decoded fields, by path. Depth codes become float32.
      marks: The cameras whose steps may have no frame, by the paths of their mask fields.

    Raises:
      KeyError: There is no such camera.
      SourceError: No clip can be read.
    """

    shares_table = True

    def __init__(self, source: Source, cameras: Iterable[str] | None = None) -> None:
        super().__init__(source)
        all_cameras = cameras_of(source.fields.episode)
        names = all_cameras if cameras is None else list(dict.fromkeys(cameras))
        for camera in names:
            if camera not in all_cameras:
                raise KeyError(f"no video of {camera!r}, only of {all_cameras}")
        steps = dict(leaves_at(source.fields.steps, None))
        for camera in names:
            if any(is_below(path, camera) or is_below(camera, path) for path in steps):
                raise ValueError(f"{files_of(source)}: the steps have a field {camera!r} already")
        fields = source.fields.episode
        incomplete = [name for name in names if FRAMES in lookup(fields, f"{VIDEO}/{name}")]
        marks = {known_field(name): name for name in incomplete}
        self.marks = {mark: name for mark, name in marks.items() if mark not in steps}
        self._create_caches()
        self._infos = {name: self._first_info(name) for name in names}
        clips = {name: lookup(fields, f"{VIDEO}/{name}/{CLIP}") for name in names}
        self.cameras = {name: self._pixel_field(name, clip) for name, clip in clips.items()}
        self.decodes, self.options = tuple(self.cameras), {VIDEO: list(self.cameras)}
        self.changed_paths = {_in_steps(path) for path in (*self.cameras, *self.marks)}
        self._values = {n: depths_of_codes(clip.codes, clip.unit) for n, clip in clips.items()}

    def _pixel_field(self, camera: str, clip: Field) -> Field:
        """Returns the field of the decoded frames of a clip."""
        info = self._infos[camera]
        if clip.codes is None:
            return Field(info.dtype, info.shape, unit=clip.unit)
        if info.dtype != np.uint16:
            raise SourceError(
                f"frames of {info.pix_fmt}, expected gray of more than 8 bits, as the metadata "
                "declares codes of depths. Correct the metadata, or pass video='packets'",
                file=files_of(self.bases[0]),
                field=camera,
            )
        return Field(np.float32, info.shape, unit=clip.unit, doc=DEPTH_CODES_DOC)

    def _first_info(self, camera: str) -> VideoInfo:
        """Returns the properties of the first readable video of a camera."""
        error: SourceError | None = None
        for split in self.splits:
            for index in range(self.num_episodes(split)):
                try:
                    with self._lend_clip(split, index, camera) as clip:
                        return clip.reader.info
                except SourceError as damage:
                    error = error or damage
        raise error or SourceError("no episodes", file=files_of(self.bases[0]))

    def _create_caches(self) -> None:
        # The most recently read clips, and the indexes of more clips.
        self._clips, self._indexes = LruCache(_READER_CACHE_BYTES), LruCache(_INDEX_CACHE_BYTES)

    def __getstate__(self) -> dict[str, Any]:
        return {name: v for name, v in vars(self).items() if not isinstance(v, LruCache)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._create_caches()

    @property
    @override
    def fields(self) -> Fields:
        """The fields of the source, with pixels and mask fields instead of the clips."""
        marks = dict.fromkeys(self.marks, Field(np.bool_, doc="Whether the step has a frame."))
        fields = super().fields
        stored_fields = self._without_clips(flat(fields.steps, fields.episode))
        pixel_fields = {_in_steps(path): field for path, field in (self.cameras | marks).items()}
        return Fields(*nested({**stored_fields, **pixel_fields}), fields.flags)

    @property
    @override
    def capabilities(self) -> Capabilities:  # Only requested frames are decoded.
        return dataclasses.replace(super().capabilities, reads_rows=True)

    @override
    def makes(self, fields: Collection[str] | None) -> bool:
        return True  # The view removes clips.

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        metadata = None if rows.episode_index is None or fields is not None else nest(values)
        new_values = self._without_clips(values)
        names = self.fields.step_paths(fields)
        for path in names:
            if path in self.cameras or path in self.marks:
                new_values[_in_steps(path)] = self._rows(
                    path, rows.split, rows.episodes, rows.steps, {*names, *rows.siblings}, metadata
                )
        return new_values

    def _rows(
        self,
        path: str,
        split: str,
        episodes: np.ndarray,
        steps: np.ndarray,
        requested_paths: Collection[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> np.ndarray:
        """Returns the pixels of rows; for a mask field, True in rows with a frame."""
        camera, is_mark = self.marks.get(path, path), path in self.marks
        field = Field(np.bool_) if is_mark else self.cameras[camera]
        rows = arrays.empty([len(steps), *map(int, field.shape)], field.column_dtype)  # type: ignore[arg-type]
        order = np.lexsort((steps, episodes))
        starts = np.flatnonzero(np.diff(episodes[order], prepend=-1))
        groups = [group for group in np.split(order, starts[1:]) if len(group)]

        def decode(chunk: range) -> None:
            for group in groups[chunk.start : chunk.stop]:
                with self._lend_clip(split, int(episodes[group[0]]), camera, metadata) as clip:
                    if is_mark:
                        rows[group] = clip.frames_of(steps[group]) >= 0
                    else:
                        self._decode(clip, camera, steps[group], rows, group, requested_paths)

        for_all_rows(decode, len(groups), self.threads)
        return rows

    def rows(self, split: str, index: int, path: str, steps: Sequence[int]) -> np.ndarray:
        """Returns the pixels of steps of an episode; for a mask field, True in steps with a frame.

        Args:
          split: The split.
          index: The episode.
          path: The path of a camera, or of a mask field.
          steps: The steps. A step without a frame is an error.

        Raises:
          SourceError: A frame cannot be decoded; the message has the location.
        """
        with reading.unchanged(self):
            return self._rows(path, split, np.full(len(steps), index), np.asarray(steps, np.int64))

    def _decode(
        self,
        clip: _OpenClip,
        camera: str,
        steps: np.ndarray,
        images: np.ndarray,
        rows: np.ndarray,
        requested_paths: Collection[str],
    ) -> None:
        """Decodes the frames of steps into rows of images."""
        expected, info = self._infos[camera], clip.reader.info
        if (info.shape, info.dtype) != (expected.shape, expected.dtype):
            raise SourceError(
                f"frames of {info.dtype} of shape {info.shape}, expected {expected.dtype} of shape "
                f"{expected.shape}, as in the first episode",
                file=clip.name,
            )
        frames = clip.frames_of(steps)
        unique, first_rows, indices = np.unique(frames, return_index=True, return_inverse=True)
        if len(unique) and unique[-1] >= len(clip.reader):
            row = int(np.argmax(frames))
            raise SourceError(
                f"the video has no frame {frames[row]}, only {len(clip.reader)}",
                file=clip.name,
                row=int(steps[row]),
            )
        has_frame = unique >= 0
        mark = known_field(camera)
        if not has_frame.all() and not (mark in self.marks and mark in requested_paths):
            raise SourceError(
                f'the video has no frame for this step. With video="frames", read {mark!r}, too: '
                "it is False there, and the pixels are zeros",
                file=clip.name,
                row=int(steps[frames < 0][0]),
            )
        targets = [images[row] for row in rows[first_rows[has_frame]].tolist()]
        clip.reader.read_into(unique[has_frame].tolist(), targets, self._values[camera])
        images[rows[frames < 0]] = 0
        if len(unique) < len(frames):
            copies = np.setdiff1d(np.arange(len(frames)), first_rows)
            images[rows[copies]] = images[rows[first_rows[indices.reshape(-1)[copies]]]]

    @contextlib.contextmanager
    def _lend_clip(
        self, split: str, index: int, camera: str, metadata: Mapping[str, Any] | None = None
    ) -> Iterator[_OpenClip]:
        """Opens a clip for exclusive use, or takes it from the cache."""
        key = split, index, camera
        clip: _OpenClip | None = self._clips.pop(key)
        if clip is None:
            path = f"{VIDEO}/{camera}"
            if metadata is None:
                fields = [f"{path}/{name}" for name in lookup(self.bases[0].fields.episode, path)]
                metadata = reading.read(self.bases[0], split, index, fields).metadata
            clip = _OpenClip(lookup(metadata, path), path, self._indexes.get(key))
            self._indexes.put(key, clip.reader.index, clip.reader.index.nbytes)
        try:
            yield clip
        except SourceError as error:
            error.locate(episode=self.key(split, index))
            raise
        finally:
            for evicted in self._clips.put(key, clip, clip.nbytes):
                evicted.reader.close()

    def _without_clips(self, values: Mapping[str, Any]) -> dict[str, Any]:
        clips = [f"{VIDEO}/{camera}" for camera in self.cameras]
        return {p: v for p, v in values.items() if not any(is_below(p, clip) for clip in clips)}


def _in_steps(path: str) -> str:
    return f"{rlds.STEPS}/{path}"


class _OpenClip:
    """An open clip, and the frame index of each step.

    Args:
      values: The fields of a camera.
      name: The name of the clip in errors.
      index: The index of the clip, if it was read before.
    """

    def __init__(self, values: Mapping[str, Any], name: str, index: ClipIndex | None) -> None:
        data, frames = bytes(values[CLIP]), values.get(FRAMES)
        self.reader, self.name = ClipReader(data, name, index), name
        self._first = int(values[FIRST])
        self._frames = None if frames is None else np.asarray(frames, np.int64)
        info = self.reader.info
        self.nbytes = math.prod(info.shape) * info.dtype.itemsize * _DECODER_FRAMES + len(data)

    def frames_of(self, steps: np.ndarray) -> np.ndarray:
        """Returns the frame indices of steps; -1 for a step without a frame.

        Raises:
          SourceError: The clip has fewer steps.
        """
        if self._frames is None:
            return np.asarray(self._first + steps)
        if len(steps) and steps.max() >= len(self._frames):
            raise SourceError(f"frames of only {len(self._frames)} steps", file=self.name)
        return np.asarray(self._frames[steps])
