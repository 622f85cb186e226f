"""Episodes of any source as MCAP files, and the messages of recordings that were kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlds
from rlds.formats.bags.kept import RECORDING_RECORD, MessageWriter, merge
from rlds.formats.bags.messages import Channel, Message
from rlds.formats.bags.source import MESSAGES, RECORDING
from rlds.formats.bags.stored import EPISODE_ATTACHMENT, RLDS_RECORD
from rlds.sources.aside import Aside
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import Export, Placement, kept_aside
from rlds.sources.source import SourceEpisode
from rlds.sources.texts import as_text
from rlds_ecosystem import import_extra
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import leaves_at, root_of

__all__ = ["McapExport"]

_FAMILIES = ("mcap", "rosbag")
# The types of `std_msgs` by dtype; there are arrays of all but the first.
_BOOL = "Bool"
_TYPES = {
    **{"bool": _BOOL, "float32": "Float32", "float64": "Float64"},
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
}
_PLACE = (-1, -1)


class McapExport(Export):
    """A folder of MCAP files, one for each episode, that tools of ROS and Foxglove read.

    Each field of a step that has numbers, text or an image is a topic, in the types of ROS 2:
    `observation/joints` is `/observation/joints`, a `std_msgs/Float64MultiArray`. Images are
    `sensor_msgs/CompressedImage`, or `sensor_msgs/Image` where they are arrays. All else is in a
    metadata record and an attachment of each file.

    Episodes whose messages were kept (`messages="keep"`) become the recordings that they came
    from: the same messages, attachments and metadata records, in one MCAP file for each.

    Args:
      episodes: The episodes.
      rate: How many steps there are in a second, if steps have no `timestamp` in nanoseconds.
    """

    format = "mcap"

    def __init__(self, episodes: Episodes, *, rate: float = 10.0) -> None:
        super().__init__(episodes)
        if not rate > 0:
            raise ValueError(f"rate: got {rate}, expected steps in a second")
        self._rate = rate
        family = next((name for name in _FAMILIES if name in episodes.metadata), "")
        self._said: Mapping[str, Any] = episodes.metadata[family] if family else {}
        self._is_kept = bool(family) and MESSAGES in episodes.spec
        steps = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        kinds = {path: _type_of(field) for path, field in steps.items()}
        self._kinds = {
            path: kind for path, kind in kinds.items() if kind and path not in rlds.STEP_FLAGS
        }
        places = {path: f"/{path}" for path in self._kinds}
        whole = [path for path in places if root_of(path) == rlds.OBSERVATION]
        self._aside = Aside.of(episodes, places, whole)

    def placements(self) -> Sequence[Placement]:
        """See `Export`."""
        if not self._is_kept:
            return kept_aside(self._aside)
        steps = [f"steps/{path}" for path in self._aside.steps]
        return [Placement(path, "messages", "exact") for path in (*steps, *self._aside.episode)]

    def read_options(self) -> Mapping[str, Any]:
        """See `Export`."""
        return {"bag_config": self._said["config"], "messages": "keep"} if self._is_kept else {}

    def write(self, path: Path) -> None:
        """See `Export`."""
        path.mkdir()
        if self._is_kept:
            self._write_kept(path)
            return
        for number, episode in enumerate(self.each()):
            with (path / f"episode_{number:06}.mcap").open("wb") as file:
                writer = MessageWriter(file, "ros2")
                self._write_episode(writer, episode)
                writer.finish()

    # --- What was kept

    def _write_kept(self, path: Path) -> None:
        done: set[str] = set()
        group: list[SourceEpisode] = []
        for episode in self.each():
            if group and group[0].origin.file != episode.origin.file:
                _write_recording(path, group, done)
                group = []
            group.append(episode)
        if group:
            _write_recording(path, group, done)

    # --- Any episodes

    def _write_episode(self, writer: MessageWriter, episode: SourceEpisode) -> None:
        columns = self._aside.columns(episode)
        times = self._times(columns, episode.num_steps)
        last = episode.num_steps - episode.final_observation_known
        rows = {
            path: episode.num_steps if path in self._aside.whole else last for path in self._kinds
        }
        messages = {path: _Messages(path, self._aside.steps[path]) for path in self._kinds}
        for row, time in enumerate(times):
            for path in self._kinds:
                if row < rows[path]:
                    writer.add(messages[path].of(columns[path][row], time, row))
        writer.add_metadata(RLDS_RECORD, {"key": episode.key, "aside": self._aside.to_json()})
        data = self._aside.pack(episode)
        writer.add_attachment(EPISODE_ATTACHMENT, "application/octet-stream", data, (0, 0))

    def _times(self, columns: Mapping[str, Any], number: int) -> list[int]:
        times = columns.get("timestamp")
        if times is None or times.dtype != np.int64 or times.ndim != 1:
            times = np.full(number, -1)
        if times.min(initial=0) >= 0 and (np.diff(times) >= 0).all():
            return [int(time) for time in times]
        return [round(step * 1e9 / self._rate) for step in range(number)]


def _write_recording(path: Path, episodes: Sequence[SourceEpisode], done: set[str]) -> None:
    said = episodes[0].metadata[RECORDING]
    name = episodes[0].origin.file
    if name in done:
        raise ValueError(f"the episodes of {name!r} do not follow one another: export all in order")
    done.add(name)
    with (path / f"{name}.mcap").open("wb") as file:
        writer = MessageWriter(file)
        merge((bytes(episode.metadata[MESSAGES]) for episode in episodes), writer)
        incomplete = [number for number, episode in enumerate(episodes) if not episode.complete]
        record = {
            "files": as_text(said["files"]),
            "sha256": as_text(said["sha256"]),
            "incomplete": json.dumps(incomplete),
        }
        writer.add_metadata(RECORDING_RECORD, record)
        writer.finish()


def _type_of(field: Any) -> str:
    """Returns the type of the messages of a field; empty if there is none that holds it."""
    if not isinstance(field, Field) or None in field.shape:
        return ""
    if field.encoding:
        return "sensor_msgs/msg/CompressedImage"
    if field.is_text:
        return "std_msgs/msg/String" if field.dtype == str and not field.shape else ""
    kind = _TYPES.get(field.column_dtype.name, "")
    if field.column_dtype == np.uint8 and len(field.shape) == 3 and field.shape[2] in (1, 3, 4):
        return "sensor_msgs/msg/Image"
    if not kind or (kind == _BOOL and field.shape):
        return ""
    return f"std_msgs/msg/{kind}{'MultiArray' if field.shape else ''}"


class _Messages:
    """Makes the messages of a field."""

    def __init__(self, path: str, field: Field) -> None:
        typesys = import_extra("rosbags.typesys")
        self._store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
        self._path, self._field = path, field
        self._channels: dict[str, Channel] = {}

    def of(self, value: Any, time: int, row: int) -> Message:
        """Returns the message with a value."""
        made = self._made(value, time)
        kind = made.__msgtype__
        if kind not in self._channels:
            definition, _ = self._store.generate_msgdef(kind, ros_version=2)
            self._channels[kind] = Channel(
                f"/{self._path}", kind, "cdr", definition.encode(), "ros2msg"
            )
        data = bytes(self._store.serialize_cdr(made, kind))
        return Message(self._channels[kind], time, time, row, data, _PLACE)

    def _made(self, value: Any, time: int) -> Any:
        field, types = self._field, self._store.types
        kind = _type_of(field)
        if kind.startswith("sensor_msgs/"):
            stamp = types["builtin_interfaces/msg/Time"](time // 10**9 % 2**31, time % 10**9)
            header = types["std_msgs/msg/Header"](stamp, self._path)
            if isinstance(value, bytes):
                data = np.frombuffer(value, np.uint8)
                return types["sensor_msgs/msg/CompressedImage"](header, field.encoding, data)
            name = {1: "mono8", 3: "rgb8", 4: "rgba8"}.get(value.shape[2], "")
            if value.dtype == np.uint16 and value.shape[2] == 1:
                name = "mono16"
            if not name or value.dtype not in (np.uint8, np.uint16):
                raise ValueError(f"{self._path}: an image of {value.dtype} {value.shape}")
            height, width = value.shape[:2]
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            return types["sensor_msgs/msg/Image"](
                header, height, width, name, 0, value[0].nbytes, data
            )
        if kind.endswith("MultiArray"):
            dims, stride = [], int(np.prod(value.shape))
            for size in value.shape:
                dims.append(types["std_msgs/msg/MultiArrayDimension"]("", size, stride))
                stride //= max(size, 1)
            layout = types["std_msgs/msg/MultiArrayLayout"](dims, 0)
            return types[kind](layout, np.ascontiguousarray(value).reshape(-1))
        return types[kind](value.item() if isinstance(value, np.generic) else as_text(value))
