"""An overview of the topics in recordings, and a proposal for their configuration."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

import rlds
from rlds.formats.bags.config import BagConfig, Clock, EpisodeBounds, FieldConfig
from rlds.formats.bags.definitions import make_decoder, ros2_type
from rlds.formats.bags.messages import BagDamage, Channel
from rlds.formats.bags.recordings import BagRecording
from rlds.formats.bags.values import BYTES, FieldReader, NoValueError, make_reader
from rlds.formats.bags.videos import is_keyframe
from rlds.raw_files.untrusted import SourceError, is_damage, source_errors
from rlds_ecosystem.model.nests import conflicts

__all__ = ["RecordingOverview", "infer_reader", "propose"]

# The limit of bytes of recordings that are read for a proposal.
_MAX_EXAMINED_BYTES = 256 << 20
_ACTION_WORDS = ("action", "cmd", "command", "commands", "desired", "goal", "target", "control")
_MARKER_TOPIC = "/episode"  # The topic that `envlogger.StreamRecorder` writes.
# Types of messages that are not useful in steps: transforms, logs, clocks.
_IGNORED_TYPES = ("tf2_msgs/", "tf/", "rosgraph_msgs/", "rcl_interfaces/", "diagnostic_msgs/")
# The last names in the topics of cameras.
_IMAGE_TOPIC_SUFFIXES = ("compressed", "image", "image_raw", "image_rect")


@dataclasses.dataclass
class _Topic:
    """A topic: its channel, its first message, and counts of its messages."""

    channel: Channel
    data: bytes
    first: int
    last: int
    count: int = 0

    @property
    def rate(self) -> float:
        """The number of messages per second; zero for a single message."""
        return (self.count - 1) * 1e9 / (self.last - self.first) if self.last > self.first else 0.0


class RecordingOverview:
    """The topics and first messages of recordings.

    Attributes:
      topics: The topics, by name.
      first_messages: The channel and the first message with a value, by field.
    """

    def __init__(self) -> None:
        self.topics: dict[str, _Topic] = {}
        self.first_messages: dict[str, tuple[Channel, bytes]] = {}

    def scan(self, recording: BagRecording, config: BagConfig | None) -> None:
        """Scans a recording until all fields have a message; without a configuration, its start.

        Raises:
          SourceError: The recording is damaged.
          ValueError: A field cannot hold the value in a message.
        """
        missing_fields = [
            field
            for field in (config.fields if config else ())
            if field.topic and field.field not in self.first_messages
        ]
        num_bytes = 0
        for message in recording.all_messages(BagDamage()):
            topic, time = message.channel.topic, message.log_time
            stats = self.topics.setdefault(topic, _Topic(message.channel, message.data, time, time))
            stats.count += 1
            stats.first, stats.last = min(stats.first, time), max(stats.last, time)
            for field in [field for field in missing_fields if field.topic == topic]:
                try:
                    infer_reader(field, message.channel, message.data, config)
                except NoValueError:
                    continue
                self.first_messages[field.field] = message.channel, message.data
                missing_fields.remove(field)
            num_bytes += len(message.data)
            if config is None and num_bytes > _MAX_EXAMINED_BYTES:
                return
            if config and not missing_fields and config.clock.topic in ("", *self.topics):
                return

    def check(self, config: BagConfig, recording: BagRecording) -> None:
        """Checks that all topics and fields of a configuration have messages.

        Raises:
          SourceError: A topic or field has no message; the error lists the topics.
        """
        for field in config.fields:
            if field.topic and field.field not in self.first_messages:
                reason = f"field {field.field!r}: no message of {field.topic!r} has a value"
                raise self.missing(reason, recording)
        if config.clock.topic not in ("", *self.topics):
            reason = f"clock: the recording has no messages of {config.clock.topic!r}"
            raise self.missing(reason, recording)

    def missing(self, reason: str, recording: BagRecording) -> SourceError:
        """Returns the error for a missing topic or field, with a list of the topics."""
        topics = ", ".join(
            f"{topic} ({ros2_type(stats.channel.type) or stats.channel.encoding}"
            + (f", {stats.rate:.3g} Hz)" if stats.rate else ")")
            for topic, stats in sorted(self.topics.items())
        )
        return SourceError(f"{reason}; its topics are {topics}", file=recording.files[0])


def infer_reader(
    field: FieldConfig, channel: Channel, data: bytes, config: BagConfig | None = None
) -> FieldReader:
    """Infers the type of a field from the bytes of a message; see `make_reader`.

    Raises:
      NoValueError: The message has no value; other messages may have one.
      ValueError: The field cannot hold the value.
    """
    if field.path == BYTES:
        return make_reader(field, channel, data)
    decode = make_decoder(channel, config.types if config else {})
    reader = make_reader(field, channel, decode(data))
    if field.policy in ("linear", "slerp", "window") and reader.kind != "numbers":
        raise ValueError(f"the policy {field.policy!r} needs numbers")
    if field.policy in ("linear", "slerp") and reader.field.column_dtype.kind != "f":
        raise ValueError(f"{reader.field.dtype} cannot be interpolated; set dtype to a float")
    if reader.kind == "video":
        if field.policy not in ("hold", "nearest") or field.missing == "null":
            raise ValueError('video needs policy "hold" or "nearest"; missing other than "null"')
        is_keyframe(b"", reader.field.doc)  # Raises an error for an unsupported codec.
    if field.policy == "slerp" and reader.field.shape != (4,):
        raise ValueError(f"{reader.field} is not a quaternion of 4 values")
    return reader


def propose(overview: RecordingOverview, recording: BagRecording) -> BagConfig:
    """Proposes a configuration, and sets `RecordingOverview.first_messages`.

    The clock is the fastest topic of joint states; without joint states, of numbers; without
    numbers, of images. All topics with numbers or images are fields of the observation, or of the
    action if their names contain a word for commands. Flags of the topic `/episode` mark episodes.
    A field holds the last message; an action is the first message of a step, if commands are as
    frequent as steps.

    Args:
      overview: The overview of recordings.
      recording: The first recording, for the error.

    Raises:
      SourceError: No topic can be a field; the error lists the topics.
    """
    readers: dict[str, FieldReader] = {}
    for topic, stats in sorted(overview.topics.items()):
        if not ros2_type(stats.channel.type).startswith(_IGNORED_TYPES) and topic != _MARKER_TOPIC:
            for reader in _make_readers(_propose_fields(topic, stats), stats):
                if not conflicts(readers, reader.config.field):
                    readers[reader.config.field] = reader
    if not readers:
        problem = "no topic could be proposed as a step field: pass a bag_config"
        raise overview.missing(problem, recording)
    actions = [path for path in readers if path.startswith(f"{rlds.ACTION}/")]
    if len(actions) == 1:
        reader = readers.pop(actions[0])
        config = dataclasses.replace(reader.config, field=rlds.ACTION)
        readers[rlds.ACTION] = dataclasses.replace(reader, config=config)
    clock = _clock(overview, readers.values())
    fields = []
    for path, reader in readers.items():
        stats = overview.topics[reader.config.topic]
        overview.first_messages[path] = stats.channel, stats.data
        is_fast = stats.rate >= 0.9 * overview.topics[clock].rate
        is_command = is_fast and path.split("/")[0] == rlds.ACTION
        fields.append(dataclasses.replace(reader.config, policy="first" if is_command else "hold"))
    markers = overview.topics.get(_MARKER_TOPIC)
    has_markers = markers is not None and ros2_type(markers.channel.type) == "std_msgs/msg/Bool"
    episodes = EpisodeBounds("marker", _MARKER_TOPIC) if has_markers else EpisodeBounds()
    return BagConfig(Clock(clock), tuple(fields), episodes)


def _clock(overview: RecordingOverview, readers: Iterable[FieldReader]) -> str:
    def rank(reader: FieldReader) -> tuple[bool, bool, bool, float]:
        stats = overview.topics[reader.config.topic]
        return (
            ros2_type(stats.channel.type).endswith("/JointState"),
            not _is_action(reader.config.topic),
            reader.kind == "numbers",
            stats.rate,
        )

    return max(readers, key=rank).config.topic


def _make_readers(fields: Iterable[FieldConfig], stats: _Topic) -> Iterator[FieldReader]:
    """Yields readers of the fields with images, video or a few numbers."""
    for field in fields:
        try:
            reader = infer_reader(field, stats.channel, stats.data)
            problem = f"cannot decode images of {reader.field.doc!r}; the path 'data' has the bytes"
        except Exception as error:
            if not is_damage(error):
                raise
            reader, problem = None, str(error)
        size = math.prod(size or 0 for size in reader.field.shape) if reader else 0
        if reader and (
            reader.kind in ("image", "video") or (reader.kind == "numbers" and size <= 1024)
        ):
            yield reader
        elif _short_type(stats).endswith(("Image", "Video")):
            problem = f"{field.topic} is left out: {problem}. Pass a bag_config to read it"
            warnings.warn(problem, stacklevel=2)


def _propose_fields(topic: str, stats: _Topic) -> list[FieldConfig]:
    """Returns the candidate fields of a topic; some may be empty."""
    names = topic.strip("/").split("/")
    while len(names) > 1 and names[-1] in _IMAGE_TOPIC_SUFFIXES:
        names.pop()
    name = _to_identifier("_".join(names))
    if any(word in _short_type(stats) for word in ("Image", "Video")):
        return [FieldConfig(f"{rlds.OBSERVATION}/images/{name}", topic)]
    root = rlds.ACTION if _is_action(topic) else rlds.OBSERVATION
    message = None
    with contextlib.suppress(SourceError), source_errors(topic):
        message = make_decoder(stats.channel, {})(stats.data)
    if not isinstance(message, Mapping):
        return []
    ignored = ("header", "timestamp", "layout")
    content = {key: value for key, value in message.items() if key not in ignored}
    paths = list(_numeric_paths(content, ""))
    if _short_type(stats) == "JointState" and root == rlds.ACTION:
        paths = paths[:1]
    if len(paths) == 1:
        return [FieldConfig(f"{root}/{name}", topic, paths[0])]
    return [FieldConfig(f"{root}/{name}/{_to_identifier(path)}", topic, path) for path in paths]


def _short_type(stats: _Topic) -> str:
    """Returns the name of the type of messages, without its package."""
    return ros2_type(stats.channel.type).rpartition("/")[2].rpartition(".")[2]


def _numeric_paths(message: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yields the paths of non-empty vectors of numbers in a message."""
    for name, value in message.items():
        child_path = f"{path}/{name}" if path else name
        if isinstance(value, Mapping):
            if value and all(isinstance(item, np.generic | int | float) for item in value.values()):
                yield child_path
            elif child_path.count("/") < 4:
                yield from _numeric_paths(value, child_path)
        elif isinstance(value, np.generic | int | float):
            yield child_path
        elif isinstance(value, list | np.ndarray) and len(value):
            yield from [child_path] if isinstance(value[0], np.generic | int | float) else []


def _is_action(topic: str) -> bool:
    return any(word in _ACTION_WORDS for word in re.split(r"[^a-z]+", topic.lower()))


def _to_identifier(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_]+", "_", name).strip("_") or "value"
