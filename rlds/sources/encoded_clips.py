"""Images of steps as video clips of the episodes, encoded on reading."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from typing_extensions import override

import rlds
import tfds_files
from rlds.sources.channel_order import RED_FIRST, RgbSource, as_rgb, is_bgr
from rlds.sources.episode_fields import IMAGE_FILE
from rlds.sources.episodes import Episodes
from rlds.sources.source import Capabilities, Fields, Source, SourceError, files_of
from rlds.sources.video_frames import FramesSource
from rlds.sources.view import RowContext, View, flat, nested
from rlds.sources.writing import Placement
from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds.video.container import Clip, VideoFile
from rlds.video.decoding import ClipReader
from rlds.video.encoding import clip_of, encoded, stream_packets
from rlds.video.fields import cameras_of, clip_fields, clip_values
from rlds_ecosystem import import_extra
from rlds_ecosystem.model.fields import Field, as_fields
from rlds_ecosystem.model.nests import is_below, leaves_at, lookup
from rlds_ecosystem.video_codec import Video

__all__ = ["ClipsSource", "encodable", "encoded_placements", "pixels", "with_clips"]

_STEPS = f"{rlds.STEPS}/"
# The number of frames of a clip to compare with the images, and limits of the mean squared error:
# PSNR 30 dB for frames of a wrong step, PSNR 20 dB for other wrong frames. Noisy images may have a
# larger error. Fast encoders repeat single frames if little changes.
_COMPARED_FRAMES, _SMALL_ERROR, _LARGE_ERROR = 5, 255**2 / 10**3, 255**2 / 10**2


def encodable(
    episodes: Episodes, skipped: Collection[str] = (), *, clips: bool = False
) -> list[str]:
    """Returns the paths of fields of steps that can become video.

    These are uint8 images with three channels, files or arrays, and clips whose frames do not match
    the steps one to one.

    Args:
      episodes: The episodes.
      skipped: Paths to exclude.
      clips: True to include all other clips of such pixels.
    """
    fields, source = episodes.source.fields.episode, episodes.source
    cameras = [camera for camera in cameras_of(fields) if camera not in skipped]
    excluded = {*skipped, *cameras_of(fields)}
    steps = leaves_at(episodes.spec[rlds.STEPS], None)
    images = [path for path, field in steps if _is_image(field) and path not in excluded]
    if not clips:
        cameras = [camera for camera in cameras if FRAMES in lookup(fields, _path(camera))]
    if not cameras or not isinstance(source, Source):
        return images
    infos = FramesSource(source, cameras).cameras
    return images + [camera for camera in cameras if infos[camera].dtype == np.uint8]


def with_clips(episodes: Episodes, video: Video, cameras: Sequence[str]) -> Episodes:
    """Returns the same episodes with video instead of images; see `ClipsSource`.

    Raises:
      ImportError: PyAV is not installed.
      TypeError: The episodes cannot be read in any order.
    """
    return episodes.through(ClipsSource, video, cameras)


class ClipsSource(View):
    """A view with one video clip per episode and camera instead of images; see `FramesSource`.

    Existing clips of the same codec keep their packets if their frames match the steps. Other clips
    are decoded and encoded again, with a frame for each step. A few frames of each new clip are
    decoded and compared with the images.

    Args:
      source: The source.
      video: The codec, quality, frame rate and keyframe interval of the clips.
      cameras: The paths of fields to encode, see `encodable`.

    Attributes:
      cameras: See above.
      bgr_cameras: Cameras with BGR images, which become RGB video.

    Raises:
      ImportError: PyAV is not installed.
    """

    shares_table = True
    uses_all_steps = True

    def __init__(self, source: Source, video: Video, cameras: Sequence[str]) -> None:
        super().__init__(source)
        self.cameras, self._encoding = cameras, video
        steps = dict(leaves_at(as_fields(source.fields.steps), None))
        self._images = {path: steps[path] for path in cameras if path in steps}
        self.bgr_cameras = [path for path, field in self._images.items() if is_bgr(field)]
        names = [root + path for path in self._images for root in ("", f"{IMAGE_FILE}/")]
        frames = (f"{_path(path)}/{FRAMES}" for path in cameras)
        self._removed = {*map(_STEPS.__add__, names), *frames}
        self._frames = FramesSource(source, [path for path in cameras if path not in steps])

    def __str__(self) -> str:
        return f"{self._encoding.codec}, quality {self._encoding.factor}"

    @property
    @override
    def fields(self) -> Fields:
        fields = super().fields
        clips = {f"{_path(n)}/{name}": f for n in self.cameras for name, f in clip_fields().items()}
        leaves = {**flat(fields.steps, fields.episode), **clips}
        remaining = {path: field for path, field in leaves.items() if path not in self._removed}
        return Fields(*nested(remaining), fields.flags)

    @property
    @override
    def capabilities(self) -> Capabilities:  # The base may have image files.
        return dataclasses.replace(super().capabilities, reads_rows=False, image_files=None)

    @override
    def needs(self, fields: Collection[str]) -> Collection[str] | None:
        return None if any(is_below(path, VIDEO) for path in fields) else fields

    @override
    def make(
        self, values: dict[str, Any], rows: RowContext, fields: Collection[str] | None
    ) -> dict[str, Any]:
        new_values = {path: value for path, value in values.items() if path not in self._removed}
        if fields is not None and self.needs(fields) is not None:
            return new_values

        def clip_of_camera(camera: str) -> Clip:
            if camera not in self._images:
                return self._reused_clip(values, rows, camera)
            column, field = values[_STEPS + camera], self._images[camera]

            def frame(step: int) -> np.ndarray:
                return as_rgb(pixels(column[step], field), field)

            return self._encode(frame, len(rows.steps), camera)

        # Encoders and decoders release the GIL.
        with ThreadPoolExecutor(min(len(self.cameras), os.cpu_count() or 1)) as pool:
            for camera, clip in zip(self.cameras, pool.map(clip_of_camera, self.cameras)):
                items = clip_values(clip).items()
                new_values |= {f"{_path(camera)}/{name}": value for name, value in items}
        return new_values

    def _reused_clip(self, values: Mapping[str, Any], rows: RowContext, camera: str) -> Clip:
        """Returns the stored clip of an episode: its packets, or its frames re-encoded.

        Only the frame of the final observation may be missing.
        """
        path, length = _path(camera), len(rows.steps)
        if f"{path}/{FRAMES}" not in values:
            data, first_frame = bytes(values[f"{path}/{CLIP}"]), int(values[f"{path}/{FIRST}"])
            info = VideoFile(data, path).info
            min_length = length - bool(values[rlds.FINAL_OBSERVATION_KNOWN])
            length = min(length, max(info.num_frames - first_frame, min_length, 1))
            with contextlib.suppress(SourceError):  # Unsuitable clips are decoded.
                if info.codec == self._encoding.codec and first_frame + length <= info.num_frames:
                    packets, is_key = stream_packets(Clip(data, first_frame, length))
                    return clip_of(packets, is_key, self._encoding.codec, self._encoding.fps)

        def frame(step: int) -> Any:
            return self._frames.rows(rows.split, int(rows.episodes[0]), camera, [step])[0]

        return self._encode(frame, length, camera)

    def _encode(self, frame: Callable[[int], np.ndarray], length: int, camera: str) -> Clip:
        shape = frame(0).shape

        def checked_frame(step: int) -> np.ndarray:
            image = frame(step)
            if image.shape != shape:
                raise SourceError(
                    f"an image of {image.shape}, expected {shape}, as in step 0: a video needs one "
                    f"size. Pass to_sidecar=[{camera!r}] to keep the images",
                    file=files_of(self.bases[0]),
                    row=step,
                    field=camera,
                )
            return image

        try:
            clip = encoded(map(checked_frame, range(length)), self._encoding, shape)
        except import_extra("av").FFmpegError as error:
            raise SourceError(
                f"frames of {shape} cannot be encoded in {self._encoding.codec}: {error}",
                file=files_of(self.bases[0]),
                field=camera,
            ) from error
        self._check_frames(clip, frame, length, camera)
        return clip

    def _check_frames(
        self, clip: Clip, frame: Callable[[int], np.ndarray], length: int, camera: str
    ) -> None:
        steps = sorted({*np.linspace(0, length - 1, _COMPARED_FRAMES).astype(int).tolist()})
        problem, late_steps = "", []
        with ClipReader(clip.data, camera) as reader:
            if len(reader) != length:
                problem, steps = f"{len(reader)} frames, expected {length}", []
            for step in steps:
                image, [decoded_image] = frame(step), reader.frames(step, step + 1)
                error = _error(decoded_image, image)
                if error > max(_LARGE_ERROR, 1.5 * float(image.var())):
                    problem = f"step {step} has a wrong frame"
                if step and error > max(_SMALL_ERROR, 2 * _error(decoded_image, frame(step - 1))):
                    late_steps.append(step)
        if len(late_steps) > 1 and len(late_steps) == len(steps) - 1:
            problem = f"the steps {late_steps} have the frames of the preceding steps"
        if problem:
            raise SourceError(
                f"the encoded video does not match the images: {problem}. Choose a better quality",
                file=files_of(self.bases[0]),
                field=camera,
            )


def encoded_placements(placements: Sequence[Placement], episodes: Episodes) -> list[Placement]:
    """Updates the placements of fields that become video or RGB images."""
    source = episodes.source
    rgb = source.bases[0] if isinstance(source, ClipsSource) else source
    bgr_cameras = [*rgb.images] if isinstance(rgb, RgbSource) else []
    if isinstance(source, ClipsSource):
        bgr_cameras += source.bgr_cameras
        placements = _clip_placements(placements, source)
    paths = {f"{rlds.STEPS}/{path}" for path in bgr_cameras}
    return [p.with_reason(RED_FIRST) if p.field in paths else p for p in placements]


def _clip_placements(placements: Sequence[Placement], source: ClipsSource) -> list[Placement]:
    cameras = {f"{_path(camera)}/{CLIP}": camera for camera in source.cameras}
    removed = {f"{_path(camera)}/{FIRST}" for camera in source.cameras}
    return [
        Placement(
            f"{rlds.STEPS}/{cameras[p.field]}",
            p.place.removesuffix(f"/{CLIP}"),
            "encoded",
            str(source),
        )
        if p.field in cameras
        else p
        for p in placements
        if p.field not in removed
    ]


def pixels(value: Any, field: Field) -> np.ndarray:
    """Returns the pixels of an image file or an image array."""
    if not isinstance(value, bytes):
        return np.asarray(value)
    feature = tfds_files.Image(shape=field.shape, dtype=field.column_dtype)
    return tfds_files.decode_image(value, feature)


def _error(one: np.ndarray, other: np.ndarray) -> float:
    return float(((one.astype(np.float32) - other) ** 2).mean())


def _path(camera: str) -> str:
    return f"{VIDEO}/{camera}"


def _is_image(field: Any) -> bool:
    if not isinstance(field, Field) or field.is_text or len(field.shape) != 3:
        return False
    has_size = bool(field.encoding) or None not in field.shape
    return has_size and field.column_dtype == np.uint8 and field.shape[2] == 3
