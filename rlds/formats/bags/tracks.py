"""The messages of a recording by topic, and which of them belong to the steps of an episode.

A recording is read once: numbers are kept, of all else (images) the places only. What an episode
needs of that is fetched when it is known which steps it has. So memory holds an episode, not a
recording.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlds.formats.bags.config import BagConfig, Clock, EpisodesBy, FieldOf
from rlds.formats.bags.definitions import Decoder, decoder
from rlds.formats.bags.messages import Channel, Flaws, Message
from rlds.formats.bags.recordings import Recording
from rlds.formats.bags.values import BYTES, NotThereError, Picked, at_path, header_stamp

__all__ = [
    "Decoders",
    "Index",
    "Span",
    "Track",
    "make_index",
    "spans_of",
    "step_times",
    "typical_step",
]

_END = 2**63 - 1
# Stamps of a topic that go back by more, in the order in which they were logged, are of two runs.
_MAX_BACK = 10**9
_MAX_STEPS = 10_000_000


class Decoders:
    """The decoders of channels, made when they are needed.

    Args:
      types: See `BagConfig`.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types, self._made = types, dict[Channel, Decoder]()

    def of(self, channel: Channel) -> Decoder:
        """Returns the decoder of a channel."""
        if channel not in self._made:
            self._made[channel] = decoder(channel, self._types)
        return self._made[channel]


@dataclasses.dataclass
class Track:
    """The messages of a topic that have a value of a field, in the order of their log times.

    Attributes:
      logged: Their log times.
      stamps: Their times.
      places: Where they are, if the values are fetched later: file, place in it, and channel.
      values: The values, otherwise.
    """

    logged: Any
    stamps: Any
    places: Any = None
    values: Any = None

    def within(self, begin: int, end: int) -> Track:
        """Returns the part between two log times, and the message before it, ordered by stamps."""
        first, after = np.searchsorted(self.logged, [begin, end], side="left")
        rows = np.arange(max(first - 1, 0), after)
        if first and first < after and self.stamps[first - 1] > self.stamps[first:after].min():
            rows = rows[1:]  # It is of another run.
        rows = rows[np.argsort(self.stamps[rows], kind="stable")]
        return Track(
            *(
                None if column is None else column[rows]
                for column in (self.logged, self.stamps, self.places, self.values)
            )
        )


@dataclasses.dataclass(frozen=True)
class Span:
    """An episode: the log times between which it is, and what is said of it."""

    begin: int
    end: int
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_end: bool = True


@dataclasses.dataclass
class Index:
    """What was found in a recording.

    Attributes:
      clock: The messages of the clock, if it is a topic.
      fields: The track of each field, by its path.
      markers: The messages of the topic of markers: their log times, and whether each begins an
        episode (None if neither that nor the end of one).
      channels: The channels of fields, by the numbers that places have.
      flaws: What is wrong with the files.
      first: The first log time.
      last: The last log time.
    """

    clock: Track
    fields: Mapping[str, Track]
    markers: Sequence[tuple[int, bool]]
    channels: Sequence[Channel]
    flaws: Flaws
    first: int
    last: int


class _Rows:
    """Collects a track."""

    def __init__(self, picked: Picked | None) -> None:
        self._picked = picked
        self._keeps = picked is not None and picked.kind == "numbers"
        self._times: list[tuple[int, int]] = []
        self._places: list[tuple[int, int, int, int]] = []
        self._values: list[np.ndarray] = []

    def add(self, place: tuple[int, int, int, int], logged: int, stamp: int, decoded: Any) -> None:
        if self._keeps and self._picked is not None:
            try:
                self._values.append(np.array(self._picked.value(decoded)))
            except NotThereError:
                return
        else:
            self._places.append(place)
        self._times.append((logged, stamp))

    def track(self) -> Track:
        times = np.array(self._times, np.int64).reshape(-1, 2)
        order = np.argsort(times[:, 0], kind="stable")
        values = None
        if self._keeps and self._picked is not None:
            field = self._picked.field
            shape = (len(self._values), *map(int, field.shape))  # type: ignore[arg-type]
            values = np.zeros(shape, field.dtype)
            for row, value in enumerate(self._values):
                values[row] = value
            values = values[order]
        places = None if self._keeps else np.array(self._places, np.int64).reshape(-1, 4)[order]
        return Track(times[order, 0], times[order, 1], places, values)


def make_index(
    recording: Recording, config: BagConfig, picked: Mapping[str, Picked], decoders: Decoders
) -> Index:
    """Reads a recording once.

    Args:
      recording: The recording.
      config: The configuration.
      picked: The fields that are wanted, by path.
      decoders: The decoders.

    Raises:
      ValueError: A message is damaged, or not what others of its topic are.
    """
    rows = {path: _Rows(item) for path, item in picked.items()}
    by_topic: dict[str, list[tuple[str, FieldOf]]] = {}
    for path, item in picked.items():
        by_topic.setdefault(item.config.topic, []).append((path, item.config))
    clock = _Rows(None)
    channels: dict[Channel, int] = {}
    markers: list[tuple[int, bool]] = []
    marks = config.episodes.topic if config.episodes.by == "marker" else ""
    flaws, begin, last = Flaws(), _END, 0
    for file, message in recording.messages(flaws):
        if message.log_time >= 2**63 or message.publish_time >= 2**63:
            raise ValueError(f"a log time of {message.log_time}")
        begin, last = min(begin, message.log_time), max(last, message.log_time)
        topic = message.channel.topic
        fields = by_topic.get(topic, ())
        is_clock = topic == config.clock.topic
        if not fields and not is_clock and topic != marks:
            continue
        decoded = None
        if any(_is_decoded(field) for _, field in fields) or topic == marks or is_clock:
            decoded = decoders.of(message.channel)(message.data)
        logged = message.log_time
        place = (file, *message.place, channels.setdefault(message.channel, len(channels)))
        if is_clock:
            clock.add(place, logged, _stamp(message, decoded, config.clock), None)
        if topic == marks:
            begins = _begins(at_path(decoded, config.episodes.path), config.episodes)
            markers += [] if begins is None else [(logged, begins)]
        for path, field in fields:
            stamp = _stamp(message, decoded, field)
            rows[path].add(place, logged, stamp, message.data if field.path == BYTES else decoded)
    tracks = {path: found.track() for path, found in rows.items()}
    markers.sort(key=lambda marker: marker[0])
    return Index(clock.track(), tracks, markers, list(channels), flaws, begin, last)


def _is_decoded(field: FieldOf) -> bool:
    return field.path != BYTES or field.stamp == "header"


def _stamp(message: Message, decoded: Any, config: FieldOf | Clock) -> int:
    if config.stamp == "publish_time":
        return message.publish_time
    stamp = header_stamp(decoded) if config.stamp == "header" else 0
    return stamp if 0 < stamp < _END else message.log_time


def _begins(value: Any, config: EpisodesBy) -> bool | None:
    """Whether an episode begins with a marker; None if it is none."""
    value = value.item() if isinstance(value, np.generic) else value
    if config.start is not None and value == config.start:
        return True
    if config.stop is not None and value == config.stop:
        return False
    if config.start is None:
        return bool(value) if config.stop is None else True
    return False if config.stop is None else None


def spans_of(
    index: Index, config: EpisodesBy, records: Sequence[tuple[str, Mapping[str, str]]]
) -> list[Span]:
    """Returns the episodes of a recording, in order.

    Args:
      index: What was found in it.
      config: Where episodes begin and end.
      records: Its metadata records: their names, and what they say.

    Raises:
      ValueError: A record says no times.
    """
    if config.by == "bag":
        return [Span(0, _END)]
    if config.by == "marker":
        spans, begin = [], None
        for time, begins in index.markers:
            if begin is not None:
                spans.append(Span(begin, time))
            begin = time if begins else None
        return spans if begin is None else [*spans, Span(begin, _END, has_end=False)]
    if config.by == "metadata":
        spans = []
        for name, said in records:
            if name == config.name:
                if not {config.begin_key, config.end_key} <= said.keys():
                    raise ValueError(
                        f"a metadata record {name!r} with {list(said)}, expected "
                        f"{config.begin_key!r} and {config.end_key!r}"
                    )
                begin, end = int(said[config.begin_key]), int(said[config.end_key])
                spans.append(Span(begin, end, said))
        return sorted(spans, key=lambda span: span.begin)
    logged, stamps = index.clock.logged, index.clock.stamps
    steps = np.diff(stamps)
    cuts = np.flatnonzero((steps > config.seconds * 1e9) | (steps < -_MAX_BACK)) + 1
    edges = [0, *logged[cuts].tolist(), _END]
    return [Span(begin, end) for begin, end in itertools.pairwise(edges)] if len(logged) else []


def step_times(index: Index, span: Span, config: BagConfig, tracks: Mapping[str, Track]) -> Any:
    """Returns the times of the steps of an episode.

    Raises:
      ValueError: There are none, or stamps jump.
    """
    if config.clock.topic:
        first, after = np.searchsorted(index.clock.logged, [span.begin, span.end], side="left")
        stamps = index.clock.stamps[first:after]
        _check_runs(stamps, config.clock.topic)
        return np.sort(stamps, kind="stable")
    # What was logged before the episode only stands in for what did not change since.
    found = [track.stamps[track.logged >= span.begin] for track in tracks.values()]
    found = [stamps for stamps in found if len(stamps)]
    if not found:
        raise ValueError("there are no messages of the fields")
    first = max(int(stamps[0]) for stamps in found)
    last = min((int(stamps[-1]) for stamps in found if len(stamps) > 1), default=first)
    number = int((last - first) * config.clock.rate / 1e9) + 1 if last >= first else 0
    if number > _MAX_STEPS:
        raise ValueError(
            f"{number:,} steps at {config.clock.rate} Hz: stamps seem to jump; try "
            'stamp = "log_time"'
        )
    return first + np.round(np.arange(number) * 1e9 / config.clock.rate).astype(np.int64)


def _check_runs(stamps: Any, topic: str) -> None:
    if len(stamps) > 1 and (back := int(np.diff(stamps).min())) < -_MAX_BACK:
        raise ValueError(
            f"the stamps of {topic} go back by {-back / 1e9:.3f} s: the clock was set, or a "
            'simulation began anew. Split there with episodes.by = "gap", or use '
            'stamp = "log_time"'
        )


def typical_step(times: Any) -> int:
    """Returns the time between two steps, in nanoseconds."""
    return int(np.median(np.diff(times))) if len(times) > 1 else 10**8
