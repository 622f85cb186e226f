"""Tracks: time stamps and values of the messages of a bag, by field.

A recording is read once: numbers are kept, of all else (images) the times only. What an episode
needs of that is read again when it is known which steps it has. So memory holds an episode, not a
recording.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rlds.formats.bags.config import BagConfig, Clock, EpisodesBy, FieldOf
from rlds.formats.bags.definitions import decoder
from rlds.formats.bags.messages import LAST_TIME, Flaws, Message
from rlds.formats.bags.recordings import BagRecording
from rlds.formats.bags.values import BYTES, FieldReader, NoValueError, at_path, header_stamp
from rlds.raw_files.untrusted import SourceError, source_errors

__all__ = ["Index", "Track", "make_index", "read_values"]


@dataclasses.dataclass
class Track:
    """The messages of a topic that have a value of a field, in the order of their log times.

    Attributes:
      logged: Their log times.
      stamps: Their times.
      numbers: The numbers of these messages of the topic, in the order in which files are read.
      values: The values; None if they are read again for the steps that need them.
    """

    logged: Any
    stamps: Any
    numbers: Any
    values: Any = None

    def at(self, rows: Any) -> Track:
        """Returns some of the messages."""
        values = None if self.values is None else self.values[rows]
        return Track(self.logged[rows], self.stamps[rows], self.numbers[rows], values)

    def within(self, begin: int, end: int) -> Track:
        """Returns the track between two log times, with the message before, ordered by stamps."""
        first, after = np.searchsorted(self.logged, [begin, end], side="left")
        rows = np.arange(max(first - 1, 0), after)
        if first and first < after and self.stamps[first - 1] > self.stamps[first:after].min():
            rows = rows[1:]  # The stamp is of another run.
        return self.at(rows[np.argsort(self.stamps[rows], kind="stable")])


@dataclasses.dataclass
class Index:
    """The index of a recording: the messages of its clock, fields and markers.

    Attributes:
      clock: The messages of the clock, if it is a topic.
      fields: The track of each field, by its path.
      markers: The messages of the topic of markers: their log times, and whether each begins an
        episode (None if neither that nor the end of one).
      flaws: The damage in the files.
      first: The first log time.
      last: The last log time.
    """

    clock: Track
    fields: Mapping[str, Track]
    markers: Sequence[tuple[int, bool]]
    flaws: Flaws
    first: int
    last: int


class _Rows:
    """Collects a track; without a field, the times of messages only."""

    def __init__(self, picked: FieldReader | None = None) -> None:
        self._picked = picked if picked is not None and picked.kind == "numbers" else None
        self._count = 0
        self._times: list[tuple[int, int, int]] = []
        self._values: list[Any] = []

    def add(self, logged: int, stamp: int, decoded: Any) -> None:
        number, self._count = self._count, self._count + 1
        if self._picked is not None:
            try:
                self._values.append(np.array(self._picked.value(decoded)))
            except NoValueError:
                return
        self._times.append((logged, stamp, number))

    def track(self) -> Track:
        logged, stamps, numbers = np.array(self._times, np.int64).reshape(-1, 3).T
        values = None
        if self._picked is not None:
            field = self._picked.field
            shape = (len(self._values), *map(int, field.shape))  # type: ignore[arg-type]
            values = np.array(self._values, field.dtype).reshape(shape)
        return Track(logged, stamps, numbers, values).at(np.argsort(logged, kind="stable"))


def make_index(
    recording: BagRecording, config: BagConfig, picked: Mapping[str, FieldReader]
) -> Index:
    """Reads a recording once.

    Args:
      recording: The recording.
      config: The configuration.
      picked: The fields that are wanted, by path.

    Raises:
      ValueError: A message is damaged, or not what others of its topic are.
    """
    decoder_of = functools.cache(functools.partial(decoder, types=config.types))
    rows = {path: _Rows(item) for path, item in picked.items()}
    by_topic: dict[str, list[tuple[_Rows, FieldOf]]] = {}
    for path, item in picked.items():
        by_topic.setdefault(item.config.topic, []).append((rows[path], item.config))
    clock = _Rows()
    markers: list[tuple[int, bool]] = []
    marks = config.episodes.topic if config.episodes.by == "marker" else ""
    flaws, first, last = Flaws(), LAST_TIME, 0
    for message in recording.all_messages(flaws):
        logged, topic = message.log_time, message.channel.topic
        first, last = min(first, logged), max(last, logged)
        fields = by_topic.get(topic, ())
        if not fields and topic not in (config.clock.topic, marks):
            continue
        is_raw = all(field.path == BYTES and field.stamp != "header" for _, field in fields)
        decoded = None
        if topic in (config.clock.topic, marks) or not is_raw:
            decoded = decoder_of(message.channel)(message.data)
        if topic == config.clock.topic:
            clock.add(logged, _stamp(message, decoded, config.clock), None)
        if topic == marks:
            begins = _begins(at_path(decoded, config.episodes.path), config.episodes)
            markers += [] if begins is None else [(logged, begins)]
        for of_field, field in fields:
            stamp = _stamp(message, decoded, field)
            of_field.add(logged, stamp, message.data if field.path == BYTES else decoded)
    tracks = {path: of_field.track() for path, of_field in rows.items()}
    return Index(clock.track(), tracks, sorted(markers), flaws, first, last)


def _stamp(message: Message, decoded: Any, config: FieldOf | Clock) -> int:
    if config.stamp == "publish_time":
        return message.publish_time
    stamp = header_stamp(decoded) if config.stamp == "header" else 0
    return stamp if 0 < stamp < LAST_TIME else message.log_time


def _begins(value: Any, config: EpisodesBy) -> bool | None:
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
    picked: Mapping[str, FieldReader],
    tracks: Mapping[str, Track],
    numbers: Mapping[str, Collection[int]],
) -> dict[str, dict[int, Any]]:
    """Reads messages again whose values are not in the index, each once.

    Args:
      recording: The recording.
      config: The configuration.
      picked: Its fields, by path.
      tracks: The tracks in the index.
      numbers: The `Track.numbers` of the messages, by the paths of fields.

    Returns:
      The values by the path of the field and the number of the message.
    """
    times = [
        track.logged[np.isin(track.numbers, list(numbers[path]))]
        for path, track in tracks.items()
        if numbers.get(path)
    ]
    if not times:
        return {path: {} for path in numbers}
    begin, end = min(int(it.min()) for it in times), max(int(it.max()) for it in times) + 1
    values: dict[str, dict[int, Any]] = {path: {} for path in numbers}
    topics: dict[str, list[str]] = {}
    for path in numbers:
        topics.setdefault(picked[path].config.topic, []).append(path)
    # Message numbers by topic between these times, in file order, and their log times.
    expected = {}
    for topic, paths in topics.items():
        track = tracks[paths[0]]
        inside = track.at((track.logged >= begin) & (track.logged < end))
        expected[topic] = iter(sorted(zip(inside.numbers.tolist(), inside.logged.tolist())))
    decoder_of = functools.cache(functools.partial(decoder, types=config.types))
    for message in recording.messages(Flaws(), topics, begin, end):
        topic = message.channel.topic
        number, logged = next(expected[topic], (0, None))
        if logged != message.log_time:
            fault = f"the message of {topic} at {logged} is now at {message.log_time}"
            raise SourceError(f"{fault}: the file changed", file=recording.files[0])
        for path in topics[topic]:
            if number in numbers[path]:
                item = picked[path]
                with source_errors(recording.files[0], field=path):
                    is_raw = item.config.path == BYTES
                    decode = bytes if is_raw else decoder_of(message.channel)
                    values[path][number] = item.value(decode(message.data))
    return values
