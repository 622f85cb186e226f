"""Recordings of robots, written by the libraries of mcap and rosbags."""

import functools
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from mcap.writer import CompressionType, Writer
from PIL import Image
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Ros2Writer
from rosbags.typesys import Stores, get_typestore

SECOND = 10**9
# The size of times in real recordings.
BEGIN = 1_700_000_000 * SECOND
JOINTS, COMMANDS, CAMERA, MARKERS = "/joint_states", "/arm/command", "/camera/compressed", "/marker"
CONFIG = {
    "clock": {"topic": JOINTS},
    "fields": [
        {"field": "observation/joints", "topic": JOINTS, "path": "position"},
        {"field": "observation/image", "topic": CAMERA},
        {"field": "action", "topic": COMMANDS, "path": "data", "policy": "first"},
    ],
}


@functools.cache
def store(ros1: bool = False) -> Any:
    return get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.ROS2_HUMBLE)


def message(kind: str, ros1: bool = False, **values: Any) -> Any:
    return store(ros1).types[f"{kind.replace('/', '/msg/')}"](**values)


def header(stamp: int, frame: str = "base", *, ros1: bool = False) -> Any:
    time = message("builtin_interfaces/Time", ros1, sec=stamp // SECOND, nanosec=stamp % SECOND)
    more = {"seq": 0} if ros1 else {}
    return message("std_msgs/Header", ros1, stamp=time, frame_id=frame, **more)


def joints(stamp: int, names: Any, values: Any, *, ros1: bool = False) -> Any:
    empty = np.zeros(0)
    return message(
        "sensor_msgs/JointState",
        ros1,
        header=header(stamp, ros1=ros1),
        name=list(names),
        position=np.array(values, np.float64),
        velocity=empty,
        effort=empty,
    )


def command(values: Any, *, ros1: bool = False) -> Any:
    layout = message("std_msgs/MultiArrayLayout", ros1, dim=[], data_offset=0)
    data = np.array(values, np.float64)
    return message("std_msgs/Float64MultiArray", ros1, layout=layout, data=data)


def compressed(stamp: int, data: bytes, name: str = "png", *, ros1: bool = False) -> Any:
    return message(
        "sensor_msgs/CompressedImage",
        ros1,
        header=header(stamp, ros1=ros1),
        format=name,
        data=np.frombuffer(data, np.uint8),
    )


def image(stamp: int, pixels: np.ndarray, encoding: str, *, ros1: bool = False) -> Any:
    return message(
        "sensor_msgs/Image",
        ros1,
        header=header(stamp, ros1=ros1),
        height=pixels.shape[0],
        width=pixels.shape[1],
        encoding=encoding,
        is_bigendian=0,
        step=pixels[0].nbytes,
        data=pixels.reshape(-1).view(np.uint8),
    )


def text(value: str, *, ros1: bool = False) -> Any:
    return message("std_msgs/String", ros1, data=value)


def png(value: int, size: tuple[int, int] = (4, 6)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size[::-1], (value, 0, 255 - value)).save(file, "PNG")
    return file.getvalue()


# A message: its topic, its log time, its content.
Row = tuple[str, int, Any]


def sample(length: int = 6, *, begin: int = BEGIN, ros1: bool = False, seed: int = 0) -> list[Row]:
    """Joints at 10 Hz, whose order changes; commands in between; a camera at 5 Hz."""
    rows: list[Row] = []
    for step in range(length):
        time = begin + step * SECOND // 10
        names = ["a", "b", "c"]
        values = [seed + step + 0.1, seed + step + 0.2, seed + step + 0.3]
        if step % 2:
            names, values = ["c", "x", "a", "b"], [values[2], 99.0, values[0], values[1]]
        rows.append((JOINTS, time + 1_000_000, joints(time, names, values, ros1=ros1)))
        action = command([seed + step, -step], ros1=ros1)
        rows.append((COMMANDS, time + 30_000_000, action))
        if step % 2 == 0:
            picture = compressed(time - 5_000_000, png(10 * step + seed), ros1=ros1)
            rows.append((CAMERA, time - 1_000_000, picture))
    rows.sort(key=lambda row: row[1])
    return rows


def write_mcap(
    path: Path,
    rows: list[Row],
    *,
    ros1: bool = False,
    metadata: Iterable[tuple[str, dict[str, str]]] = (),
    **options: Any,
) -> Path:
    """Writes rows in their order to an MCAP file."""
    types = store(ros1)
    options = {"chunk_size": 1000, "compression": CompressionType.ZSTD, **options}
    with path.open("wb") as file:
        writer = Writer(file, **options)
        writer.start(profile="ros1" if ros1 else "ros2", library="tests")
        channels: dict[str, int] = {}
        for index, (topic, time, it) in enumerate(rows):
            if topic not in channels:
                kind = it.__msgtype__
                definition, _ = types.generate_msgdef(kind, ros_version=1 if ros1 else 2)
                name = kind.replace("/msg/", "/") if ros1 else kind
                encoding = "ros1msg" if ros1 else "ros2msg"
                schema = writer.register_schema(name, encoding, definition.encode())
                coding = "ros1" if ros1 else "cdr"
                channels[topic] = writer.register_channel(topic, coding, schema, {"made": "here"})
            serialize = types.serialize_ros1 if ros1 else types.serialize_cdr
            data = bytes(serialize(it, it.__msgtype__))
            writer.add_message(channels[topic], time, data, time - 500, index)
        for name, values in metadata:
            writer.add_metadata(name, values)
        writer.finish()
    return path


def write_plain_mcap(path: Path, rows: list[tuple[str, str, Any, str, int, bytes]]) -> Path:
    """Writes encoded messages: topic, schema name and content, encoding, time, data."""
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channels: dict[str, int] = {}
        for topic, name, (schema_encoding, schema), encoding, time, data in rows:
            if topic not in channels:
                schema_id = writer.register_schema(name, schema_encoding, schema) if name else 0
                channels[topic] = writer.register_channel(topic, encoding, schema_id)
            writer.add_message(channels[topic], time, data, time)
        writer.finish()
    return path


def write_json_mcap(path: Path, rows: list[tuple[str, int, Any]]) -> Path:
    schema = ("jsonschema", b'{"type": "object"}')
    return write_plain_mcap(
        path, [(t, "thing", schema, "json", time, json.dumps(it).encode()) for t, time, it in rows]
    )


def write_ros1(path: Path, rows: list[Row], compression: str = "none") -> Path:
    """Writes rows, created with `ros1=True`, to a bag of ROS 1."""
    writer = Ros1Writer(path)
    if compression != "none":
        writer.set_compression(Ros1Writer.CompressionFormat[compression.upper()])
    writer.chunk_threshold = 1000
    with writer:
        connections: dict[str, Any] = {}
        for topic, time, it in rows:
            if topic not in connections:
                kind = it.__msgtype__
                connections[topic] = writer.add_connection(topic, kind, typestore=store(True))
            data = store(True).serialize_ros1(it, it.__msgtype__)
            writer.write(connections[topic], time, data)
    return path


def write_ros2(
    path: Path, rows: list[Row], storage: str = "sqlite3", compression: str = "none"
) -> Path:
    """Writes rows to a bag of ROS 2, a folder."""
    writer = Ros2Writer(path, version=9, storage_plugin=StoragePlugin[storage.upper()])
    if compression != "none":
        writer.set_compression(CompressionMode[compression.upper()], CompressionFormat.ZSTD)
    with writer:
        connections: dict[str, Any] = {}
        for topic, time, it in rows:
            if topic not in connections:
                kind = it.__msgtype__
                connections[topic] = writer.add_connection(topic, kind, typestore=store())
            writer.write(connections[topic], time, store().serialize_cdr(it, it.__msgtype__))
    return path
