"""Tracks: time stamps and values of the messages of a bag, by field.

The first pass over a recording keeps numbers, and only the times of all other values, such as
images. After the steps of an episode are chosen, their images are read in a second pass. Memory
therefore holds an episode, not a recording.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlds.formats.bags.config import BagConfig, Clock, EpisodeBounds, FieldConfig
from rlds.formats.bags.definitions import make_decoder
from rlds.formats.bags.messages import LAST_TIME, BagDamage, Message
from rlds.formats.bags.recordings import BagRecording
from rlds.formats.bags.values import BYTES, FieldReader, NoValueError, header_stamp, value_at
from rlds.raw_files.untrusted import SourceError, source_errors

__all__ = ["Index", "Track", "make_index", "read_values"]


@dataclasses.dataclass
class Track:
    """The messages with a value of a field, in the order of their log times.

    Attributes:
      log_times: The log times of the messages.
      stamps: The times of the messages.
      indices: The indices of the messages among all messages of the topic, in file order.
      values: The values; None if they are read in the second pass.
    """

    log_times: Any
    stamps: Any
    indices: Any
    values: Any = None

    def select(self, rows: Any) -> Track:
        """Returns the track of some messages."""
        values = None if self.values is None else self.values[rows]
        return Track(self.log_times[rows], self.stamps[rows], self.indices[rows], values)

    def between(self, start: int, end: int) -> Track:
        """Returns the track between two log times, with one earlier message, ordered by stamps."""
        first, stop = np.searchsorted(self.log_times, [start, end], side="left")
        rows = np.arange(max(first - 1, 0), stop)
        if first and first < stop and self.stamps[first - 1] > self.stamps[first:stop].min():
            rows = rows[1:]  # The stamp belongs to another recording.
        return self.select(rows[np.argsort(self.stamps[rows], kind="stable")])


@dataclasses.dataclass
class Index:
    """The index of a recording: the messages of its clock, fields and markers.

    Attributes:
      clock: The messages of the clock, if it is a topic.
      fields: The tracks, by field path.
      markers: The log times of markers; True for the begin of an episode, False for its end.
      damage: The damage in the files.
      first: The first log time.
      last: The last log time.
    """

    clock: Track
    fields: Mapping[str, Track]
    markers: Sequence[tuple[int, bool]]
    damage: BagDamage
    first: int
    last: int


class _TrackBuilder:
    """A builder of a track; without a field, of the times of messages only."""

    def __init__(self, reader: FieldReader | None = None) -> None:
        self._reader = reader if reader is not None and reader.kind == "numbers" else None
        self._count = 0
        self._times: list[tuple[int, int, int]] = []
        self._values: list[Any] = []

    def add(self, log_time: int, stamp: int, content: Any) -> None:
        index, self._count = self._count, self._count + 1
        if self._reader is not None:
            try:
                self._values.append(np.array(self._reader.value(content)))
            except NoValueError:
                return
        self._times.append((log_time, stamp, index))

    def track(self) -> Track:
        log_times, stamps, indices = np.array(self._times, np.int64).reshape(-1, 3).T
        values = None
        if self._reader is not None:
            field = self._reader.field
            shape = (len(self._values), *map(int, field.shape))  # type: ignore[arg-type]
            values = np.array(self._values, field.dtype).reshape(shape)
        order = np.argsort(log_times, kind="stable")
        return Track(log_times, stamps, indices, values).select(order)


def make_index(
    recording: BagRecording, config: BagConfig, readers: Mapping[str, FieldReader]
) -> Index:
    """Reads a recording once.

    Args:
      recording: The recording.
      config: The configuration.
      readers: The readers of the requested fields, by path.

    Raises:
      ValueError: A message is damaged, or differs from the first message of its topic.
    """
    decoder_of = functools.cache(functools.partial(make_decoder, types=config.types))
    builders = {path: _TrackBuilder(reader) for path, reader in readers.items()}
    targets: dict[str, list[tuple[_TrackBuilder, FieldConfig]]] = {}
    for path, reader in readers.items():
        targets.setdefault(reader.config.topic, []).append((builders[path], reader.config))
    clock = _TrackBuilder()
    markers: list[tuple[int, bool]] = []
    marker_topic = config.episodes.topic if config.episodes.by == "marker" else ""
    damage, first, last = BagDamage(), LAST_TIME, 0
    for message in recording.all_messages(damage):
        log_time, topic = message.log_time, message.channel.topic
        first, last = min(first, log_time), max(last, log_time)
        fields = targets.get(topic, ())
        if not fields and topic not in (config.clock.topic, marker_topic):
            continue
        is_raw = all(field.path == BYTES and field.stamp != "header" for _, field in fields)
        content = None
        if topic in (config.clock.topic, marker_topic) or not is_raw:
            content = decoder_of(message.channel)(message.data)
        if topic == config.clock.topic:
            clock.add(log_time, _stamp(message, content, config.clock), None)
        if topic == marker_topic:
            is_begin = _is_begin(value_at(content, config.episodes.path), config.episodes)
            markers += [] if is_begin is None else [(log_time, is_begin)]
        for builder, field in fields:
            stamp = _stamp(message, content, field)
            builder.add(log_time, stamp, message.data if field.path == BYTES else content)
    tracks = {path: builder.track() for path, builder in builders.items()}
    return Index(clock.track(), tracks, sorted(markers), damage, first, last)


def _stamp(message: Message, content: Any, config: FieldConfig | Clock) -> int:
    if config.stamp == "publish_time":
        return message.publish_time
    stamp = header_stamp(content) if config.stamp == "header" else 0
    return stamp if 0 < stamp < LAST_TIME else message.log_time


def _is_begin(value: Any, config: EpisodeBounds) -> bool | None:
    """Returns True if a marker message begins an episode; None if it is no marker."""
    value = value.item() if isinstance(value, np.generic) else value
    if config.start is not None and value == config.start:
        return True
    if config.stop is not None and value == config.stop:
        return False
    if config.start is None:
        return bool(value) if config.stop is None else True
    return False if config.stop is None else None


def read_values(
    recording: BagRecording,
    config: BagConfig,
    readers: Mapping[str, FieldReader],
    tracks: Mapping[str, Track],
    indices: Mapping[str, Collection[int]],
) -> dict[str, dict[int, Any]]:
    """Reads values that are not in the index, in a second pass over the recording.

    Args:
      recording: The recording.
      config: The configuration.
      readers: The readers of the fields, by path.
      tracks: The tracks in the index.
      indices: The `Track.indices` of the messages, by the paths of fields.

    Returns:
      The values, by the path of the field and the index of the message.
    """
    times = [
        track.log_times[np.isin(track.indices, list(indices[path]))]
        for path, track in tracks.items()
        if indices.get(path)
    ]
    if not times:
        return {path: {} for path in indices}
    start, end = min(int(t.min()) for t in times), max(int(t.max()) for t in times) + 1
    values: dict[str, dict[int, Any]] = {path: {} for path in indices}
    topics: dict[str, list[str]] = {}
    for path in indices:
        topics.setdefault(readers[path].config.topic, []).append(path)
    # Message indices by topic between these times, in file order, and their log times.
    expected = {}
    for topic, paths in topics.items():
        track = tracks[paths[0]]
        inside = track.select((track.log_times >= start) & (track.log_times < end))
        expected[topic] = iter(sorted(zip(inside.indices.tolist(), inside.log_times.tolist())))
    decoder_of = functools.cache(functools.partial(make_decoder, types=config.types))
    for message in recording.messages(BagDamage(), topics, start, end):
        topic = message.channel.topic
        index, log_time = next(expected[topic], (0, None))
        if log_time != message.log_time:
            problem = f"the message of {topic} at {log_time} is now at {message.log_time}"
            raise SourceError(f"{problem}: the file changed", file=recording.files[0])
        for path in topics[topic]:
            if index in indices[path]:
                reader = readers[path]
                with source_errors(recording.files[0], field=path):
                    is_raw = reader.config.path == BYTES
                    decode = bytes if is_raw else decoder_of(message.channel)
                    values[path][index] = reader.value(decode(message.data))
    return values
