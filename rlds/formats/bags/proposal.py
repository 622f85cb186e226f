"""What is in a recording, and a configuration to begin with."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

import rlds
from rlds.formats.bags.config import BagConfig, Clock, FieldOf
from rlds.formats.bags.definitions import decoder, plain_type
from rlds.formats.bags.messages import Channel, Flaws, Message
from rlds.formats.bags.recordings import Recording
from rlds.formats.bags.values import BYTES, NotThereError, Picked, pick
from rlds.formats.bags.videos import is_keyframe
from rlds.raw_files.untrusted import is_damage
from rlds.sources.source import SourceError
from rlds_ecosystem.nests import excludes

__all__ = ["Overview", "picked_of", "propose"]

# How much of recordings is looked at for a proposal.
_MAX_BYTES = 256 << 20
_ACTION_WORDS = ("action", "cmd", "command", "commands", "desired", "goal", "target", "control")
# What each message is of little use in steps: the tree of frames, logs, clocks.
_BESIDE = ("tf2_msgs/", "tf/", "rosgraph_msgs/", "rcl_interfaces/", "diagnostic_msgs/")
_JOINTS = ("position", "velocity", "effort")
# Where messages of common types have what is measured, after the stamps.
_INSIDE = ("pose", "twist", "wrench", "vector", "point", "quaternion", "transform", "accel")


@dataclasses.dataclass
class TopicSeen:
    """A topic: its channel, and what was seen of it."""

    channel: Channel
    data: bytes
    first: int
    last: int
    count: int = 1

    @property
    def rate(self) -> float:
        """How many messages there are in a second; zero if there are too few to say."""
        return (self.count - 1) * 1e9 / (self.last - self.first) if self.last > self.first else 0.0


class Overview:
    """What was seen of recordings.

    Attributes:
      topics: The topics, by name.
      firsts: The first message of each field that has a value, and its channel.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicSeen] = {}
        self.firsts: dict[str, tuple[Channel, bytes]] = {}
        self.is_whole = True

    def look(
        self, recording: Recording, config: BagConfig | None, but: Collection[str] = ()
    ) -> None:
        """Looks at a recording: until all fields were seen, or else at so many bytes.

        Args:
          recording: The recording.
          config: The configuration, if there is one.
          but: Topics that are of no interest.
        """
        left = {f.field: f for f in config.fields if f.topic} if config else {}
        left = {path: field for path, field in left.items() if path not in self.firsts}
        clock = config.clock.topic if config else ""
        num_bytes = 0
        for _, message in recording.messages(Flaws()):
            topic = message.channel.topic
            if topic in but:
                continue
            self._count(message)
            for path in [path for path, field in left.items() if field.topic == topic]:
                if self._is_there(left[path], message, config):
                    self.firsts[path] = (message.channel, bytes(message.data))
                    del left[path]
            num_bytes += len(message.data)
            is_done = not left and (not clock or clock in self.topics)
            if is_done if config else num_bytes > _MAX_BYTES:
                self.is_whole = False
                return

    def _count(self, message: Message) -> None:
        seen = self.topics.get(message.channel.topic)
        if seen is None:
            time = message.log_time
            found = TopicSeen(message.channel, bytes(message.data), time, time)
            self.topics[message.channel.topic] = found
            return
        seen.count += 1
        seen.first = min(seen.first, message.log_time)
        seen.last = max(seen.last, message.log_time)

    def _is_there(self, field: FieldOf, message: Message, config: BagConfig | None) -> bool:
        try:
            picked_of(field, message.channel, message.data, config.types if config else {})
        except NotThereError:
            return False
        return True

    def missing(self, what: str, recording: Recording) -> SourceError:
        """Returns the error that something was not seen."""
        return SourceError(
            f"{what}; there are the topics {self.in_words()}", file=recording.files[0]
        )

    def in_words(self) -> str:
        """Returns the topics with their types and rates."""
        return ", ".join(
            f"{topic} ({plain_type(seen.channel.type) or seen.channel.encoding}"
            + (f", {seen.rate:.3g} Hz)" if seen.rate else ")")
            for topic, seen in sorted(self.topics.items())
        )

    def said(self) -> dict[str, Any]:
        """Returns the types of the topics, in the types of JSON."""
        return {
            topic: {"type": seen.channel.type, "encoding": seen.channel.encoding}
            for topic, seen in sorted(self.topics.items())
        }


def picked_of(
    field: FieldOf, channel: Channel, data: bytes | memoryview, types: Mapping[str, str]
) -> Picked:
    """Finds out from the bytes of a message what a field holds; see `pick`.

    Raises:
      NotThereError: The message has no value: another one may.
      ValueError: It has none that the field can hold.
    """
    if field.path == BYTES:
        return pick(field, channel, data)
    picked = pick(field, channel, decoder(channel, types)(data))
    if field.policy in ("linear", "slerp", "window") and picked.kind != "numbers":
        raise ValueError(f"{field.field}: the policy {field.policy!r} is for numbers")
    if field.policy in ("linear", "slerp") and picked.field.column_dtype.kind != "f":
        raise ValueError(f"{field.field}: {picked.field.dtype} cannot be interpolated; set dtype")
    if picked.kind == "video":
        if field.policy not in ("hold", "nearest") or field.missing == "null":
            raise ValueError(f"{field.field}: video is for hold or nearest, without null")
        is_keyframe(b"", picked.field.doc)  # Of a codec that is known.
    if field.policy == "slerp" and picked.field.shape != (4,):
        raise ValueError(f"{field.field}: {picked.field} is no quaternion")
    return picked


def propose(overview: Overview, recording: Recording) -> BagConfig:
    """Returns a configuration that has what is usual.

    Its clock is the fastest topic of joint states, else the fastest of numbers, else of images. All
    topics that have numbers or images are fields of the observation, or of the action if their
    names say so. A field holds the last message; an action is the first one of a step, unless there
    are fewer than steps.

    Args:
      overview: What was seen of recordings.
      recording: The first one, for the error.

    Raises:
      SourceError: There is nothing that a step could have; says what there is.
    """
    fields: list[FieldOf] = []
    kinds: dict[str, str] = {}
    for topic, seen in sorted(overview.topics.items()):
        if plain_type(seen.channel.type).startswith(_BESIDE):
            continue
        for field in _fields_of(topic, seen, _short(topic, overview.topics)):
            found = _kind(field, seen)
            if found is not None and not excludes({f.field: f for f in fields}, field.field):
                fields.append(field)
                kinds.setdefault(topic, found)
                overview.firsts[field.field] = (seen.channel, seen.data)
    if not fields:
        raise overview.missing(
            "no topic has what could be proposed as a field of a step: pass a bag_config",
            recording,
        )
    actions = [field for field in fields if field.field.startswith(f"{rlds.ACTION}/")]
    if len(actions) == 1:
        only = dataclasses.replace(actions[0], field=rlds.ACTION)
        fields[fields.index(actions[0])] = only
        overview.firsts[rlds.ACTION] = overview.firsts.pop(actions[0].field)
    clock = _clock(overview, kinds)
    return BagConfig(
        Clock(clock),
        tuple(_with_policy(field, overview, overview.topics[clock]) for field in fields),
    )


def _with_policy(field: FieldOf, overview: Overview, clock: TopicSeen) -> FieldOf:
    """An action is the first command of each step, if there are enough of them."""
    rate = overview.topics[field.topic].rate
    is_often = rate >= 0.9 * clock.rate and field.field.split("/")[0] == rlds.ACTION
    return dataclasses.replace(field, policy="first") if is_often else field


def _clock(overview: Overview, kinds: Mapping[str, str]) -> str:
    def rank(topic: str) -> tuple[bool, bool, bool, float]:
        seen = overview.topics[topic]
        return (
            plain_type(seen.channel.type).endswith("/JointState"),
            not _is_action(topic),
            kinds[topic] == "numbers",
            seen.rate,
        )

    return max(sorted(kinds), key=rank)


def _kind(field: FieldOf, seen: TopicSeen) -> str | None:
    """What a proposed field holds; None if it holds nothing of use."""
    try:
        picked = picked_of(field, seen.channel, seen.data, {})
    except Exception as error:
        if not is_damage(error):
            raise
        return None
    if picked.kind == "image" or picked.kind == "video":
        return picked.kind
    is_small = (
        picked.kind == "numbers" and math.prod(size or 0 for size in picked.field.shape) <= 1024
    )
    return "numbers" if is_small else None


def _fields_of(topic: str, seen: TopicSeen, name: str) -> list[FieldOf]:
    """Returns the fields that a topic may be; some may have nothing in them."""
    root = rlds.ACTION if _is_action(topic) else rlds.OBSERVATION
    kind = plain_type(seen.channel.type).rpartition("/")[2].rpartition(".")[2]
    if "Image" in kind or "Video" in kind:
        return [FieldOf(f"{rlds.OBSERVATION}/images/{name}", topic)]
    if kind == "JointState":
        parts = [part for part in _JOINTS if _kind(FieldOf("x", topic, part), seen)]
        if root == rlds.ACTION:
            parts = parts[:1]
        return [
            FieldOf(f"{root}/{name}/{part}" if len(parts) > 1 else f"{root}/{name}", topic, part)
            for part in parts
        ]
    try:
        message = decoder(seen.channel, {})(seen.data)
    except Exception as error:
        if not is_damage(error):
            raise
        return []
    if isinstance(message, Mapping):
        inner = {
            key: value
            for key, value in message.items()
            if key not in ("header", "timestamp", "layout")
        }
        found = list(_numeric(inner, ""))
        if len(found) == 1 or (len(found) > 1 and len(inner) == 1):
            return [FieldOf(f"{root}/{name}{_tail(path, found)}", topic, path) for path in found]
        return [FieldOf(f"{root}/{name}/{_legible(path)}", topic, path) for path in found]
    return []


def _tail(path: str, found: list[str]) -> str:
    return f"/{_legible(path.rpartition('/')[2])}" if len(found) > 1 else ""


def _numeric(message: Mapping[str, Any], path: str) -> list[str]:
    """Returns the paths of vectors of numbers in a message."""
    found = []
    for name, value in message.items():
        inner = f"{path}/{name}" if path else name
        if isinstance(value, Mapping):
            numbers = [isinstance(item, np.generic | int | float) for item in value.values()]
            if numbers and all(numbers):
                found.append(inner)
            elif inner.count("/") < 4:
                found += _numeric(value, inner)
        elif isinstance(value, np.generic | int | float | np.ndarray) or (
            isinstance(value, list) and value and isinstance(value[0], int | float)
        ):
            found.append(inner)
    return found


def _is_action(topic: str) -> bool:
    return any(word in _ACTION_WORDS for word in re.split(r"[^a-z]+", topic.lower()))


def _short(topic: str, topics: Collection[str]) -> str:
    """Returns the last part of the name of a topic, or more if others end as it does."""
    parts = topic.strip("/").split("/")
    for number in range(1, len(parts) + 1):
        end = parts[-number:]
        alike = [other for other in topics if other.strip("/").split("/")[-number:] == end]
        if len(alike) == 1 and end[0] not in ("compressed", "image", "image_raw", "image_rect"):
            break
    while len(end) > 1 and end[-1] in ("compressed", "image_raw", "image_rect", "image"):
        end = end[:-1]
    return _legible("_".join(end))


def _legible(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_]+", "_", name).strip("_") or "value"
