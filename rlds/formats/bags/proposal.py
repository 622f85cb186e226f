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
from rlds.formats.bags.config import BagConfig, Clock, EpisodesBy, FieldOf
from rlds.formats.bags.definitions import decoder, plain_type
from rlds.formats.bags.messages import Channel, Flaws
from rlds.formats.bags.recordings import BagRecording
from rlds.formats.bags.values import BYTES, FieldReader, NoValueError, pick
from rlds.formats.bags.videos import is_keyframe
from rlds.raw_files.untrusted import SourceError, is_damage, source_errors
from rlds_ecosystem.model.nests import conflicts

__all__ = ["Overview", "picked_of", "propose"]

# The limit of bytes of recordings that are read for a proposal.
_MAX_BYTES = 256 << 20
_ACTION_WORDS = ("action", "cmd", "command", "commands", "desired", "goal", "target", "control")
_MARKER_TOPIC = "/episode"  # See `envlogger.StreamRecorder`.
# Types of messages that are not useful in steps: transforms, logs, clocks.
_IGNORED_TYPES = ("tf2_msgs/", "tf/", "rosgraph_msgs/", "rcl_interfaces/", "diagnostic_msgs/")
# The last parts of the topics of cameras.
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
        """The number of messages per second; zero if there are too few."""
        return (self.count - 1) * 1e9 / (self.last - self.first) if self.last > self.first else 0.0


class Overview:
    """The topics and first messages of recordings.

    Attributes:
      topics: The topics, by name.
      firsts: The first message of each field that has a value, and its channel.
    """

    def __init__(self) -> None:
        self.topics: dict[str, _Topic] = {}
        self.firsts: dict[str, tuple[Channel, bytes]] = {}

    def look(self, recording: BagRecording, config: BagConfig | None) -> None:
        """Looks at a recording until all fields were seen; without a configuration, at its start.

        Raises:
          SourceError: It is damaged.
          ValueError: A message has no value that a field can hold.
        """
        left = [
            field
            for field in (config.fields if config else ())
            if field.topic and field.field not in self.firsts
        ]
        num_bytes = 0
        for message in recording.all_messages(Flaws()):
            topic, time = message.channel.topic, message.log_time
            seen = self.topics.setdefault(topic, _Topic(message.channel, message.data, time, time))
            seen.count += 1
            seen.first, seen.last = min(seen.first, time), max(seen.last, time)
            for field in [field for field in left if field.topic == topic]:
                try:
                    picked_of(field, message.channel, message.data, config)
                except NoValueError:
                    continue
                self.firsts[field.field] = message.channel, message.data
                left.remove(field)
            num_bytes += len(message.data)
            if config is None and num_bytes > _MAX_BYTES:
                return
            if config and not left and config.clock.topic in ("", *self.topics):
                return

    def check(self, config: BagConfig, recording: BagRecording) -> None:
        """Checks that all was seen that a configuration asks for.

        Raises:
          SourceError: It was not; says which topics there are.
        """
        for field in config.fields:
            if field.topic and field.field not in self.firsts:
                reason = f"field {field.field!r}: no message of {field.topic!r} has a value"
                raise self.missing(reason, recording)
        if config.clock.topic not in ("", *self.topics):
            reason = f"clock: the recording has no messages of {config.clock.topic!r}"
            raise self.missing(reason, recording)

    def missing(self, reason: str, recording: BagRecording) -> SourceError:
        """Returns the error that a topic or field is missing in the recordings."""
        topics = ", ".join(
            f"{topic} ({plain_type(seen.channel.type) or seen.channel.encoding}"
            + (f", {seen.rate:.3g} Hz)" if seen.rate else ")")
            for topic, seen in sorted(self.topics.items())
        )
        return SourceError(f"{reason}; its topics are {topics}", file=recording.files[0])


def picked_of(
    field: FieldOf, channel: Channel, data: bytes, config: BagConfig | None = None
) -> FieldReader:
    """Infers the type of a field from the bytes of a message; see `pick`.

    Raises:
      NoValueError: The message has no value: another one may.
      ValueError: It has none that the field can hold.
    """
    if field.path == BYTES:
        return pick(field, channel, data)
    picked = pick(field, channel, decoder(channel, config.types if config else {})(data))
    if field.policy in ("linear", "slerp", "window") and picked.kind != "numbers":
        raise ValueError(f"the policy {field.policy!r} needs numbers")
    if field.policy in ("linear", "slerp") and picked.field.column_dtype.kind != "f":
        raise ValueError(f"{picked.field.dtype} cannot be interpolated; set dtype to a float")
    if picked.kind == "video":
        if field.policy not in ("hold", "nearest") or field.missing == "null":
            raise ValueError(
                'video needs policy "hold" or "nearest", and missing other than "null"'
            )
        is_keyframe(b"", picked.field.doc)  # Of a codec that is known.
    if field.policy == "slerp" and picked.field.shape != (4,):
        raise ValueError(f"{picked.field} is not a quaternion of 4 values")
    return picked


def propose(overview: Overview, recording: BagRecording) -> BagConfig:
    """Proposes a usual configuration, and fills in `Overview.firsts`.

    Its clock is the fastest topic of joint states, else the fastest of numbers, else of images. All
    topics that have numbers or images are fields of the observation, or of the action if their
    names say so. Flags of the topic `/episode` say where episodes begin and end. A field holds the
    last message; an action is the first one of a step, unless there
    are fewer than steps.

    Args:
      overview: The overview of recordings.
      recording: The first one, for the error.

    Raises:
      SourceError: There is nothing that a step could have; says what there is.
    """
    picked: dict[str, FieldReader] = {}
    for topic, seen in sorted(overview.topics.items()):
        if not plain_type(seen.channel.type).startswith(_IGNORED_TYPES) and topic != _MARKER_TOPIC:
            for item in _useful(_fields_of(topic, seen), seen):
                if not conflicts(picked, item.config.field):
                    picked[item.config.field] = item
    if not picked:
        fault = "no topic could be proposed as a step field: pass a bag_config"
        raise overview.missing(fault, recording)
    actions = [path for path in picked if path.startswith(f"{rlds.ACTION}/")]
    if len(actions) == 1:
        item = picked.pop(actions[0])
        only = dataclasses.replace(item.config, field=rlds.ACTION)
        picked[rlds.ACTION] = dataclasses.replace(item, config=only)
    clock = _clock(overview, picked.values())
    fields = []
    for path, item in picked.items():
        seen = overview.topics[item.config.topic]
        overview.firsts[path] = seen.channel, seen.data
        is_often = seen.rate >= 0.9 * overview.topics[clock].rate
        is_command = is_often and path.split("/")[0] == rlds.ACTION
        fields.append(dataclasses.replace(item.config, policy="first" if is_command else "hold"))
    marks = overview.topics.get(_MARKER_TOPIC)
    is_marked = marks is not None and plain_type(marks.channel.type) == "std_msgs/msg/Bool"
    episodes = EpisodesBy("marker", _MARKER_TOPIC) if is_marked else EpisodesBy()
    return BagConfig(Clock(clock), tuple(fields), episodes)


def _clock(overview: Overview, picked: Iterable[FieldReader]) -> str:
    def rank(item: FieldReader) -> tuple[bool, bool, bool, float]:
        seen = overview.topics[item.config.topic]
        return (
            plain_type(seen.channel.type).endswith("/JointState"),
            not _is_action(item.config.topic),
            item.kind == "numbers",
            seen.rate,
        )

    return max(picked, key=rank).config.topic


def _useful(fields: Iterable[FieldOf], stats: _Topic) -> Iterator[FieldReader]:
    """Yields readers of the fields with images, video or a few numbers."""
    for field in fields:
        try:
            picked = picked_of(field, stats.channel, stats.data)
            fault = f"cannot decode images of {picked.field.doc!r}; the path 'data' has the bytes"
        except Exception as error:
            if not is_damage(error):
                raise
            picked, fault = None, str(error)
        size = math.prod(size or 0 for size in picked.field.shape) if picked else 0
        if picked and (
            picked.kind in ("image", "video") or (picked.kind == "numbers" and size <= 1024)
        ):
            yield picked
        elif _kind_of(stats).endswith(("Image", "Video")):
            fault = f"{field.topic} is left out: {fault}. Pass a bag_config to read it"
            warnings.warn(fault, stacklevel=2)


def _fields_of(topic: str, stats: _Topic) -> list[FieldOf]:
    """Returns the candidate fields of a topic; some may be empty."""
    parts = topic.strip("/").split("/")
    while len(parts) > 1 and parts[-1] in _IMAGE_TOPIC_SUFFIXES:
        parts.pop()
    name = _legible("_".join(parts))
    if any(word in _kind_of(stats) for word in ("Image", "Video")):
        return [FieldOf(f"{rlds.OBSERVATION}/images/{name}", topic)]
    root = rlds.ACTION if _is_action(topic) else rlds.OBSERVATION
    message = None
    with contextlib.suppress(SourceError), source_errors(topic):
        message = decoder(stats.channel, {})(stats.data)
    if not isinstance(message, Mapping):
        return []
    ignored = ("header", "timestamp", "layout")
    paths = list(_numeric({k: v for k, v in message.items() if k not in ignored}, ""))
    if _kind_of(stats) == "JointState" and root == rlds.ACTION:
        paths = paths[:1]
    if len(paths) == 1:
        return [FieldOf(f"{root}/{name}", topic, paths[0])]
    return [FieldOf(f"{root}/{name}/{_legible(path)}", topic, path) for path in paths]


def _kind_of(stats: _Topic) -> str:
    """Returns the name of the type of messages, without its package."""
    return plain_type(stats.channel.type).rpartition("/")[2].rpartition(".")[2]


def _numeric(message: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yields the paths of non-empty vectors of numbers in a message."""
    for name, value in message.items():
        inner = f"{path}/{name}" if path else name
        if isinstance(value, Mapping):
            if value and all(isinstance(item, np.generic | int | float) for item in value.values()):
                yield inner
            elif inner.count("/") < 4:
                yield from _numeric(value, inner)
        elif isinstance(value, np.generic | int | float):
            yield inner
        elif isinstance(value, list | np.ndarray) and len(value):
            yield from [inner] if isinstance(value[0], np.generic | int | float) else []


def _is_action(topic: str) -> bool:
    return any(word in _ACTION_WORDS for word in re.split(r"[^a-z]+", topic.lower()))


def _legible(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_]+", "_", name).strip("_") or "value"
