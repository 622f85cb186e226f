"""Video features of LeRobot exports, from the clips of episodes."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rlds.formats.lerobot.feature_plan import choose_name
from rlds.formats.lerobot.feature_statistics import Statistics, image_statistics, sample_frames
from rlds.formats.lerobot.layout import IMAGE_NAMES, depth_info
from rlds.sources.source import SourceEpisode
from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds.video.container import Clip, split_clip
from rlds.video.decoding import ClipIndex, ClipReader
from rlds.video.fields import depths_of_codes
from rlds.video.packets import VideoInfo
from rlds_ecosystem.files.daemon_threads import DaemonThreads
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at

__all__ = ["Cameras", "clip_statistics", "describe_video"]

# The time tolerance of frames in LeRobot, in seconds.
_TIME_TOLERANCE_S = 1e-4
# Limits of the frames that are decoded for the statistics of a video, as decoding is slow.
_MAX_SAMPLED_FRAMES, _MIN_KEYFRAMES = 10, 4


class Cameras:
    """The video features of the cameras of episodes with clips.

    Args:
      fields: The fields of episodes, by path.
      sidecar: The paths of cameras whose clips are in the sidecar.
      other_names: The names of further features.
      fps: The rows per second.

    Attributes:
      names: The names of features, by the path of the camera: `video/observation/top`.
      entries: The entries of `info.json`, by feature, once a clip was added.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        sidecar: Collection[str],
        other_names: Collection[str],
        fps: float,
    ) -> None:
        self._fps = fps
        self.names: dict[str, str] = {}
        self._depths: dict[str, Field] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        for path in fields:
            camera, _, name = path.rpartition("/")
            is_clip = camera.startswith(f"{VIDEO}/") and name == CLIP
            if is_clip and f"{camera}/{FRAMES}" not in fields and camera not in sidecar:
                feature = camera.removeprefix(f"{VIDEO}/").replace("/", ".")
                name = choose_name(feature, {*other_names, *self.names.values()})
                self.names[camera], self._depths[name] = name, fields[path]

    @property
    def depths(self) -> dict[str, np.ndarray | None]:
        """The lookup tables of depths, by feature; None if the pixels are no codes."""
        return {name: depths_of_codes(f.codes, f.unit) for name, f in self._depths.items()}

    @property
    def fields(self) -> dict[str, str]:
        """The paths of clips in LeRobot, `videos/<feature>/clip`, by field of the episode."""
        return {
            f"{path}/{suffix}": f"videos/{name}/{suffix}"
            for path, name in self.names.items()
            for suffix in (CLIP, FIRST)
        }

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """The preliminary entries of `info.json` for video features, before the first episode."""
        return {
            name: {"dtype": "video", "shape": [1, 1, 3], "names": IMAGE_NAMES}
            for name in self.names.values()
        }

    def clips(self, episode: SourceEpisode, num_rows: int) -> dict[str, Clip]:
        """Returns the clips of an episode, by feature.

        Raises:
          ValueError: LeRobot would not find the frames of a clip.
          SourceError: A clip is damaged.
        """
        values = dict(leaves_at(episode.metadata, None))
        clips = {}
        for path, name in self.names.items():
            data, first_frame = bytes(values[f"{path}/{CLIP}"]), int(values[f"{path}/{FIRST}"])
            clip = Clip(data, first_frame, num_rows, f"episode {episode.key}, {path}")
            self._check(clip, name)
            clips[name], _ = split_clip(clip, num_rows)  # Readers rely on the number of frames.
        return clips

    def _check(self, clip: Clip, name: str) -> None:
        assert clip.num_frames is not None
        video, label = clip.video, clip.name
        times = video.times[clip.first : clip.first + clip.num_frames]
        if len(times) < clip.num_frames:
            raise ValueError(f"{label}: {len(times)} frames for {clip.num_frames} rows")
        time_errors = np.abs(times - times[0] - np.arange(clip.num_frames) / self._fps)
        if (time_errors > _TIME_TOLERANCE_S).any():
            frame = int(np.argmax(time_errors > _TIME_TOLERANCE_S))
            raise ValueError(
                f"{label}: frame {frame} is shown after {times[frame] - times[0]:.4f} s, expected "
                f"{frame / self._fps:.4f} s at {self._fps:g} rows a second: LeRobot would not find "
                f"it. Pass fps={float(video.info.fps):g}, or to_sidecar=[{label.split(', ')[-1]!r}]"
            )
        entry = describe_video(video.info, self._depths[name])
        is_codes = entry["info"]["video.is_depth_map"]
        if name not in self.entries and video.info.dtype != np.uint8 and not is_codes:
            warnings.warn(
                f"{label}: gray video of more than 8 bits, without a quantisation of depths: "
                "LeRobot reads it as RGB of 8 bits. To export depth images, open it with "
                "video='frames'",
                stacklevel=2,
            )
        expected = self.entries.setdefault(name, entry)
        if entry["shape"] != expected["shape"]:
            raise ValueError(
                f"{label}: frames of {entry['shape']}, but {expected['shape']} in other episodes; "
                f"LeRobot needs one size. Pass to_sidecar=[{label.split(', ')[-1]!r}]"
            )


def describe_video(info: VideoInfo, clip: Field | None = None) -> dict[str, Any]:
    """Returns the entry of a video feature in `info.json`.

    Args:
      info: The properties of the video.
      clip: The field of the clip, which may have the unit and the quantisation of depths.
    """
    height, width, channels = info.shape
    is_depth = clip is not None and clip.codes is not None
    return {
        "dtype": "video",
        "shape": [height, width, channels],
        "names": IMAGE_NAMES,
        "info": {
            "video.height": height,
            "video.width": width,
            "video.codec": info.codec,
            "video.pix_fmt": info.pix_fmt,
            "video.is_depth_map": is_depth,
            "video.fps": float(info.fps),
            "video.channels": channels,
            "has_audio": info.has_audio,
            **(depth_info(clip) if clip is not None and (is_depth or clip.unit) else {}),
        },
    }


def _frames_to_sample(clip: Clip) -> list[int]:
    """Returns the frames for statistics: keyframes only, if the clip has enough of them."""
    assert clip.num_frames is not None
    _, packets = clip.video.index()
    is_key = packets.is_key[packets.frames][clip.first : clip.first + clip.num_frames]
    keys = np.flatnonzero(is_key).tolist()
    frames = keys if len(keys) >= _MIN_KEYFRAMES else sample_frames(clip.num_frames)
    return frames[:: max(1, len(frames) // _MAX_SAMPLED_FRAMES)]


def clip_statistics(
    clips: Mapping[str, Clip],
    depths: Mapping[str, np.ndarray | None],
    encoded: Collection[str] = (),
) -> dict[str, Statistics]:
    """Returns the statistics of the frames of clips, by feature.

    Args:
      clips: The clips.
      depths: The lookup tables of depths, by feature.
      encoded: Features that this export encodes, with the same number of samples as images.
    """

    def compute(name: str, clip: Clip) -> Statistics:
        assert clip.num_frames is not None
        frames = sample_frames(clip.num_frames) if name in encoded else _frames_to_sample(clip)
        with ClipReader(clip.data, name, ClipIndex.build(clip.video)) as reader:
            images = (reader.frames(clip.first + i, clip.first + i + 1)[0] for i in frames)
            return image_statistics(images, depths[name])

    # The threads of an executor would end before those of recorders.
    threads = DaemonThreads(len(clips), "rlds-statistics")
    futures = {name: threads.submit(compute, name, clip) for name, clip in clips.items()}
    return {name: future.result() for name, future in futures.items()}
