"""Exports to MCAP files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.bags.source import McapSource
from rlds.formats.bags.stored import EPISODE_ATTACHMENT, RATE, RLDS_RECORD
from rlds.sources.encoded_clips import encodable, encoded_placements, with_clips
from rlds.sources.episodes import Episodes
from rlds.sources.rates import rate_in, with_rate
from rlds.sources.restored_source import stored_in
from rlds.sources.sidecar import Sidecar
from rlds.sources.source import Location, SourceEpisode, is_derived
from rlds.sources.texts import as_text
from rlds.sources.writing import Export, Placement, sidecar_placements
from rlds.video import CLIP, FIRST, VIDEO
from rlds.video.container import Clip
from rlds.video.encoding import stream_packets
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.whole_files import link
from rlds_ecosystem.model.fields import BGR, Field
from rlds_ecosystem.model.nests import leaves_at, root_of
from rlds_ecosystem.video_codec import Video

__all__ = ["McapExport"]

# The types of `std_msgs` by dtype; all types except the first have array types.
_BOOL_TYPE = "Bool"
_TYPES_BY_DTYPE = {
    **{"bool": _BOOL_TYPE, "float32": "Float32", "float64": "Float64"},
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
}


_VIDEO_TYPE = "foxglove_msgs/msg/CompressedVideo"
_VIDEO_MESSAGE = """\
builtin_interfaces/Time timestamp
string frame_id
uint8[] data
string format
"""


class McapExport(Export):
    """A folder of MCAP files for tools of ROS and Foxglove, with a file for each episode.

    Each field of a step with numbers, text or an image is a topic with a type of ROS 2:
    `observation/joints` is `/observation/joints`, a `std_msgs/Float64MultiArray`. Encoded images
    are `sensor_msgs/CompressedImage`, and arrays `sensor_msgs/Image`. All other data is in a
    metadata record and an attachment of each file.

    Args:
      episodes: The episodes.
      rate: The steps per second, if steps have no `timestamp` in nanoseconds; by default, the rate
        in the metadata, or 10.
      codec: "h264" encodes images of uint8 with three channels, and clips, as video: a
        `foxglove_msgs/CompressedVideo` for each step. Packets of H.264 clips are copied if they are
        in the order of the steps.
      quality: The constant rate factor of the video: lower is better, and larger; by default 23.
      gop: The length of a group of pictures, in frames: the last frame depends on the first.
    """

    format = "mcap"
    copies_parts = True

    def __init__(
        self,
        episodes: Episodes,
        *,
        rate: float | None = None,
        codec: Literal["h264"] | None = None,
        quality: int | None = None,
        gop: int = 30,
    ) -> None:
        is_given = rate is not None
        rate = (rate_in(episodes.metadata) or 10.0) if rate is None else rate
        if not rate > 0:
            raise ValueError(f"rate: got {rate}, expected steps per second")
        encodable_cameras = [] if codec is None else encodable(episodes, clips=True)
        if codec is not None and encodable_cameras:
            video = Video(codec, quality, fps=rate, gop=gop, delays=True)
            episodes = with_clips(episodes, video, encodable_cameras)
        super().__init__(episodes)
        self._rate = rate
        steps = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        all_types = {path: _message_type(f) for path, f in steps.items() if not is_derived(path, f)}
        self._types = {
            path: kind for path, kind in all_types.items() if kind and path not in rlds.STEP_FLAGS
        }
        topics = {path: f"/{path}" for path in self._types}
        observations = [path for path in topics if root_of(path) == rlds.OBSERVATION]
        self._cameras = [path for path in encodable_cameras if path not in topics]
        clips = {f"{VIDEO}/{p}/{name}": f"/{p}" for p in self._cameras for name in (CLIP, FIRST)}
        self._sidecar = Sidecar.create(episodes, topics, observations, episode_paths=clips)
        if is_given and "timestamp" not in steps:
            metadata = {**self._sidecar.metadata, "metadata": with_rate(episodes.metadata, rate)}
            self._sidecar = dataclasses.replace(self._sidecar, metadata=metadata)

    @override
    def placements(self) -> Sequence[Placement]:
        return encoded_placements(sidecar_placements(self._sidecar), self.episodes)

    @override
    def write(self, path: Path) -> None:
        path.mkdir()
        for index, episode in enumerate(self.iter_items()):
            name = path / f"episode_{index:06}.mcap"
            if isinstance(episode, Location):
                link(stored_in(episode, McapSource)[0].stored_file(episode.index), name)
                continue
            with name.open("wb") as file:
                writer = import_extra("mcap.writer").Writer(file)
                writer.start(profile="ros2", library="rlds")
                self._write_episode(writer, episode)
                writer.finish()

    def _write_episode(self, writer: Any, episode: SourceEpisode) -> None:
        columns = self._sidecar.columns(episode)
        num_transitions = episode.num_steps - episode.final_observation_known
        topics = {path: _Topic(writer, path, self._sidecar.steps[path]) for path in self._types}
        metadata = dict(leaves_at(episode.metadata, None))
        videos = {
            path: (
                _Topic(writer, path, None),
                stream_packets(Clip(bytes(metadata[f"{VIDEO}/{path}/{CLIP}"]), 0))[0],
            )
            for path in self._cameras
        }
        for row, time in enumerate(self._times(columns, episode.num_steps)):
            for path, topic in topics.items():
                if row < num_transitions or path in self._sidecar.final_row_paths:
                    topic.write(columns[path][row], time, row)
            for topic, packets in videos.values():
                if row < len(packets):
                    topic.write(packets[row], time, row)
        content = {"key": episode.key, "sidecar": self._sidecar.to_json(), RATE: str(self._rate)}
        writer.add_metadata(RLDS_RECORD, content)
        data = self._sidecar.pack(episode)
        writer.add_attachment(0, 0, EPISODE_ATTACHMENT, "application/octet-stream", data)

    def _times(self, columns: Mapping[str, Any], num_steps: int) -> list[int]:
        times = columns.get("timestamp")
        if times is None or times.dtype != np.int64 or times.ndim != 1:
            times = np.full(num_steps, -1)
        if times.min(initial=0) >= 0 and (np.diff(times) >= 0).all():
            return [int(time) for time in times]
        return [round(step * 1e9 / self._rate) for step in range(num_steps)]


def _message_type(field: Any) -> str:
    """Returns the type of the messages of a field; empty for an unsupported field."""
    if not isinstance(field, Field) or None in field.shape:
        return ""
    if field.encoding:
        return "sensor_msgs/msg/CompressedImage"
    if field.is_text:
        return "std_msgs/msg/String" if field.dtype == str and not field.shape else ""
    kind = _TYPES_BY_DTYPE.get(field.column_dtype.name, "")
    channels = {"uint8": (1, 3, 4), "uint16": (1,)}.get(field.column_dtype.name, ())
    if len(field.shape) == 3 and field.shape[2] in channels:
        return "sensor_msgs/msg/Image"
    if not kind or (kind == _BOOL_TYPE and field.shape):
        return ""
    return f"std_msgs/msg/{kind}{'MultiArray' if field.shape else ''}"


class _Topic:
    """A writer of the messages of a field.

    Args:
      writer: The writer of the file.
      path: The path of the field.
      field: The field; None for video packets.
    """

    def __init__(self, writer: Any, path: str, field: Field | None) -> None:
        typesys = import_extra("rosbags.typesys")
        self._store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
        if field is None:
            self._store.register(typesys.get_types_from_msg(_VIDEO_MESSAGE, _VIDEO_TYPE))
        self._writer, self._path, self._field = writer, path, field
        self._channels: dict[str, int] = {}

    def write(self, value: Any, time: int, row: int) -> None:
        """Writes a value as a message."""
        message = self._message(value, time)
        kind = message.__msgtype__
        if kind not in self._channels:
            definition, _ = self._store.generate_msgdef(kind, ros_version=2)
            schema = self._writer.register_schema(kind, "ros2msg", definition.encode())
            self._channels[kind] = self._writer.register_channel(f"/{self._path}", "cdr", schema)
        data = bytes(self._store.serialize_cdr(message, kind))
        self._writer.add_message(self._channels[kind], time, data, time, row)

    def _message(self, value: Any, time: int) -> Any:
        field, all_types, kind = self._field, self._store.types, _message_type(self._field)
        stamp = all_types["builtin_interfaces/msg/Time"](time // 10**9 % 2**31, time % 10**9)
        if field is None:
            data = np.frombuffer(value, np.uint8)
            return all_types[_VIDEO_TYPE](stamp, self._path, data, "h264")
        if kind.startswith("sensor_msgs/"):
            header = all_types["std_msgs/msg/Header"](stamp, self._path)
            if isinstance(value, bytes):
                data = np.frombuffer(value, np.uint8)
                return all_types["sensor_msgs/msg/CompressedImage"](header, field.encoding, data)
            name = {1: "mono8", 3: "rgb8", 4: "rgba8"}[value.shape[2]]
            if value.dtype == np.uint16:  # REP 118 of ROS has an encoding for depth in millimetres.
                name = "16UC1" if field.unit == "mm" else "mono16"
            elif field.names == BGR:
                name = "bgr8"
            height, width = value.shape[:2]
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            return all_types["sensor_msgs/msg/Image"](
                header, height, width, name, 0, value[0].nbytes, data
            )
        if kind.endswith("MultiArray"):
            dims, stride = [], int(np.prod(value.shape))
            for size in value.shape:
                dims.append(all_types["std_msgs/msg/MultiArrayDimension"]("", size, stride))
                stride //= max(size, 1)
            layout = all_types["std_msgs/msg/MultiArrayLayout"](dims, 0)
            return all_types[kind](layout, np.ascontiguousarray(value).reshape(-1))
        return all_types[kind](value.item() if isinstance(value, np.generic) else as_text(value))
