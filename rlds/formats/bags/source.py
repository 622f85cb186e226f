"""Recordings of robots as episodes: MCAP files, bags of ROS 1 and ROS 2."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

import rlds
from rlds.formats.bags.columns import ages_of, in_windows, next_values, rows_of, stacked, values_of
from rlds.formats.bags.config import BagConfig, FieldOf
from rlds.formats.bags.kept import RECORDING_RECORD, kept_messages, parse_record
from rlds.formats.bags.messages import Flaws
from rlds.formats.bags.proposal import Overview, picked_of, propose
from rlds.formats.bags.recordings import Family, Recording, find_recordings, looks_like
from rlds.formats.bags.stored import StoredEpisodes, aside_in
from rlds.formats.bags.tracks import (
    Decoders,
    Index,
    Span,
    Track,
    make_index,
    spans_of,
    step_times,
)
from rlds.formats.bags.values import BYTES, Picked
from rlds.formats.bags.videos import clip_of, is_keyframe
from rlds.raw_files.untrusted import source_errors
from rlds.sources.aside import Aside
from rlds.sources.source import (
    Origin,
    Outline,
    RandomAccessSource,
    SourceEpisode,
    SourceError,
)
from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds_ecosystem.columns import step_flags
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import leaves_at, nest

__all__ = ["BagSource", "McapSource", "RosbagSource"]

_CLIP = {
    CLIP: Field(bytes, doc="The packets, as an mp4 file."),
    FIRST: Field(np.int64),
    FRAMES: Field(np.int64, (None,), doc="The frame of each step."),
}
TIMESTAMP, STAMPS, AGES = "timestamp", "stamps", "ages"
RECORDING, MESSAGES = "recording", "messages"


class BagSource(RandomAccessSource):
    """Recordings, from whose messages a configuration makes steps; see the classes below."""

    family: ClassVar[Family]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        bag_config: str | Mapping[str, Any] | BagConfig | None = None,
        messages: Literal["leave_out", "keep"] = "leave_out",
        damaged_chunks: Literal["error", "leave_out"] = "error",
    ) -> None:
        self._recordings = find_recordings(path, self.family)
        if not self._recordings:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no recordings ({self.family}).")
        self._keeps = messages == "keep"
        self._stored: StoredEpisodes | None = None
        self._said_of: dict[int, Mapping[str, str]] = {}
        self._spans: list[tuple[int, Span]] | None = None
        self._indexed: tuple[int, Index] | None = None
        self._digests: dict[int, str] = {}
        with source_errors(os.fspath(path)):
            aside = aside_in(self._recordings[0]) if self.family == "mcap" else None
        if aside is not None:
            self._be_stored(aside)
            return
        self._leaves_out = damaged_chunks == "leave_out"
        given = None if bag_config is None else BagConfig.of(bag_config)
        with source_errors(os.fspath(path)):
            self._overview = self._look(given)
            self._is_proposed = given is None
            found = given or propose(self._overview, self._recordings[0])
            self.config = found
            self._picked = self._pick()
        # With the joints in the order that was found.
        known = [self._picked.get(field.field) for field in found.fields]
        fields = [item.config if item else f for item, f in zip(known, found.fields)]
        self.config = dataclasses.replace(found, fields=tuple(fields))
        self.description = f"Steps of {len(self._recordings)} recordings of a robot."
        if self.config.episodes.by == "bag":
            self._spans = [(number, Span(0, 2**63 - 1)) for number in range(len(self._recordings))]

    def _be_stored(self, aside: Aside) -> None:
        """Has the episodes that were exported."""
        self._stored = StoredEpisodes(self._recordings, aside)
        for name in ("description", "homepage", "citation", "license"):
            setattr(self, name, str(aside.metadata.get(name, "")))

    def __getstate__(self) -> Mapping[str, Any]:
        return {**vars(self), "_indexed": None, "_picked": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._picked = {} if self._stored else self._pick()

    @classmethod
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        """See `Source`."""
        return looks_like(path, cls.family)

    # --- What there is

    def _look(self, config: BagConfig | None) -> Overview:
        """Looks at recordings until all that is asked for was seen."""
        found, errors = Overview(), []
        wanted = {field.field for field in config.fields if field.topic} if config else set()
        for recording in self._recordings:
            try:
                found.look(recording, config)
            except SourceError as error:
                errors.append(error)
            if found.topics and found.firsts.keys() >= wanted:
                return found
        if errors and not found.topics:
            raise errors[0]
        return found

    def _pick(self) -> dict[str, Picked]:
        """Finds out what the fields hold, from the first messages of their topics."""
        first, picked = self._recordings[0], {}
        for field in self.config.fields:
            if field.policy == "next_state":
                continue
            if field.field not in self._overview.firsts:
                what = f"field {field.field!r}: no message of {field.topic!r} has a value"
                raise self._overview.missing(what, first)
            channel, data = self._overview.firsts[field.field]
            with source_errors(first.files[0], field=field.field):
                picked[field.field] = picked_of(field, channel, data, self.config.types)
        clock = self.config.clock.topic
        if clock and clock not in self._overview.topics:
            raise self._overview.missing(f"clock: there are no messages of {clock!r}", first)
        return picked

    def step_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        if self._stored:
            return nest(self._stored.aside.steps)
        fields: dict[str, Any] = {rlds.DISCOUNT: Field(np.float32)}
        for config in self.config.fields:
            if config.field not in self._videos:
                fields[config.field] = self._field(config)
            if config.policy == "next_state":
                continue
            shape = (config.size,) if config.size else ()
            fields[f"{STAMPS}/{config.field}"] = Field(np.int64, shape, unit="ns")
            fields[f"{AGES}/{config.field}"] = Field(np.float64, shape, unit="s")
        fields[TIMESTAMP] = Field(np.int64, unit="ns", doc="The time of the step.")
        return nest(fields)

    @property
    def _videos(self) -> list[str]:
        """The fields that are packets of video: they are fields of the episode."""
        return [path for path, picked in self._picked.items() if picked.kind == "video"]

    def _field(self, config: FieldOf) -> Field:
        field = self._picked[config.source or config.field].field
        if config.size:
            return dataclasses.replace(field, shape=(config.size, *field.shape))
        return field

    def episode_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        if self._stored:
            return nest(self._stored.aside.episode)
        kept = {MESSAGES: Field(bytes, doc="The messages, as an MCAP file.")} if self._keeps else {}
        return kept | {
            **({VIDEO: nest(dict.fromkeys(self._videos, _CLIP))} if self._videos else {}),
            RECORDING: {
                "files": Field(str, doc="The names of the files."),
                "sha256": Field(str, doc="The digests of the files, one in a line."),
                "begin": Field(np.int64, unit="ns", doc="The log time of the first message."),
                "end": Field(np.int64, unit="ns", doc="The log time after the last message."),
                "dropped_steps": Field(np.int64, doc="Steps without a value of some field."),
                "metadata": Field(str, doc="What the recorder says of the episode, in JSON."),
            },
        }

    def metadata(self) -> Mapping[str, Any]:
        """See `Source`."""
        if self._stored:
            return dict(self._stored.aside.metadata.get("metadata", {}))
        return {
            self.family: {
                "config": self.config.to_json(),
                "config_is": "proposed" if self._is_proposed else "given",
                "topics": self._overview.said(),
                "recordings": [recording.name for recording in self._recordings],
            }
        }

    def inputs(self) -> Sequence[Any]:
        """Returns the files."""
        files = [file for recording in self._recordings for file in recording.files]
        return files + [found.described for found in self._recordings if found.described]

    def options(self) -> Mapping[str, Any]:
        """Returns what else decides."""
        if self._stored:
            return {}
        return {
            "bag_config": self.config.to_json(),
            "messages": "keep" if self._keeps else "leave_out",
            "damaged_chunks": "leave_out" if self._leaves_out else "error",
        }

    # --- Episodes

    def num_episodes(self, split: str) -> int:
        """See `RandomAccessSource`; reads the recordings if they have several episodes each."""
        del split
        return len(self._recordings) if self._stored else len(self._all_spans())

    def _all_spans(self) -> list[tuple[int, Span]]:
        if self._spans is None:
            spans: list[tuple[int, Span]] = []
            for number, recording in enumerate(self._recordings):
                with source_errors(recording.files[0]):
                    index = make_index(recording, self.config, {}, Decoders(self.config.types))
                    found = spans_of(index, self.config.episodes, _metadata_in(recording))
                spans += [(number, span) for span in found]
            self._spans = spans
        return self._spans

    def key(self, split: str, index: int) -> str:
        """Returns the name of the recording, and which episode of it."""
        del split
        if self._stored:
            return self._stored.key(index)
        name = self._recordings[self._all_spans()[index][0]].name
        return name if self.config.episodes.by == "bag" else f"{name}:{self._place(index)}"

    def _place(self, index: int) -> int:
        """Returns which episode of its recording an episode is."""
        spans = self._all_spans()
        number = spans[index][0]
        return index - next(i for i, (other, _) in enumerate(spans) if other == number)

    def read(self, split: str, index: int) -> SourceEpisode:
        """See `RandomAccessSource`."""
        return self._episode(split, index, None)

    def peek(self, split: str, index: int) -> SourceEpisode:
        """Reads an episode without what has to be fetched, such as images."""
        return self._episode(split, index, [])

    def outline(self, split: str, index: int) -> Outline:
        """See `RandomAccessSource`."""
        return self.peek(split, index).outline

    def read_steps(
        self, split: str, index: int, fields: Sequence[str] | None = None
    ) -> Mapping[str, Any]:
        """Reads the steps of an episode; fetches images only of the wanted fields."""
        wanted = self._step_paths(fields)
        steps = self._episode(split, index, wanted).steps
        return nest(dict(leaves_at(steps, wanted)))

    def _episode(self, split: str, index: int, wanted: Collection[str] | None) -> SourceEpisode:
        if self._stored:
            return self._stored.read(index)
        number, span = self._all_spans()[index]
        recording = self._recordings[number]
        found = self._indexed_recording(number)
        said = self._said_in(number)
        incomplete = json.loads(said.get("incomplete", "[]"))
        complete = self._check_flaws(recording, found, span)
        complete &= self._place(index) not in incomplete
        tracks = {path: track.within(span.begin, span.end) for path, track in found.fields.items()}
        # The keyframe may be before the episode.
        tracks |= {path: found.fields[path].within(0, 2**63 - 1) for path in self._videos}
        times = step_times(found, span, self.config, tracks)
        rows = {}
        is_kept = np.ones(len(times), bool)
        for path, track in tracks.items():
            config = self.config.field(path)
            rows[path] = rows_of(track, config, times)
            is_there = rows[path] >= 0
            if not is_there.all() and config.missing == "error":
                row = int(np.flatnonzero(~is_there)[0])
                what = f"there is no message of {config.topic} for it"
                raise SourceError(what, file=recording.files[0], row=row, field=path)
            if config.missing == "drop":
                is_kept &= is_there
        if not is_kept.any():
            raise SourceError(_why_empty(times, tracks), file=recording.files[0])
        kept = np.flatnonzero(is_kept)
        all_times, times = times, times[kept]
        columns: dict[str, Any] = {TIMESTAMP: times}
        fetched: dict[str, Any] = {}
        clips: dict[str, Any] = {}
        for path, track in tracks.items():
            config, of_steps = self.config.field(path), rows[path][kept]
            values: Any = None
            if config.size:
                values, stamps, ages = in_windows(track, config.size, of_steps, times)
            else:
                stamps, ages = ages_of(track, of_steps, times)
                if track.values is not None:
                    values = values_of(track, config, of_steps, times)
                elif path in self._videos:
                    clips[path] = of_steps
                elif wanted is None or path in wanted:
                    fetched[path] = of_steps
            columns |= {f"{STAMPS}/{path}": stamps, f"{AGES}/{path}": ages}
            columns |= {} if values is None else {path: values}
        columns |= self._fetch(recording, found, tracks, fetched)
        is_final = False
        for config in self.config.fields:
            if config.policy == "next_state":
                source = columns.get(config.source)
                if source is not None:
                    columns[config.field] = next_values(source)
                is_final = True
        columns[rlds.DISCOUNT] = columns.get(rlds.DISCOUNT, np.ones(len(kept), np.float32))
        if is_final:
            columns[rlds.DISCOUNT][-1:] = 0
        return SourceEpisode(
            key=self.key(split, index),
            steps={**nest(columns), **step_flags([len(kept)], [False])},
            origin=Origin(recording.name, int(times[0]), int(times[-1]) + 1),
            truncated=True,
            complete=complete,
            final_observation_known=is_final,
            metadata={
                **self._said(index, found, len(all_times) - len(kept), wanted is None),
                **self._clips(recording, found, tracks, clips if wanted is None else {}),
            },
        )

    def _indexed_recording(self, number: int) -> Index:
        if self._indexed is None or self._indexed[0] != number:
            recording = self._recordings[number]
            with source_errors(recording.files[0]):
                found = make_index(
                    recording, self.config, self._picked, Decoders(self.config.types)
                )
            self._indexed = (number, found)
        return self._indexed[1]

    def _check_flaws(self, recording: Recording, found: Index, span: Span) -> bool:
        """Returns whether all of an episode is there."""
        flaws: Flaws = found.flaws
        damages = [
            why for begin, end, why in flaws.damages if begin < span.end and end >= span.begin
        ]
        if damages and not self._leaves_out:
            raise SourceError(
                f'{damages[0]}; damaged_chunks="leave_out" reads the rest', file=recording.files[0]
            )
        is_cut = bool(flaws.cut) and span.end > found.last
        return not is_cut and not damages and span.has_end

    def _clips(
        self,
        recording: Recording,
        index: Index,
        tracks: Mapping[str, Track],
        rows: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Returns the packets of video from the keyframe before the first step to the last step."""
        made = {}
        for path, of_steps in rows.items():
            picked, first, last = self._picked[path], int(of_steps.min()), int(of_steps.max())
            codec = picked.field.doc
            with source_errors(recording.files[0], field=path):
                for begin in (first - 30, first - 300, 0):
                    begin = max(begin, 0)
                    packets = self._packets(recording, index, tracks[path], path, begin, last)
                    before = range(first - begin, -1, -1)
                    key = next((n for n in before if is_keyframe(packets[n], codec)), None)
                    if key is not None:
                        break
                else:
                    raise ValueError("no keyframe comes before the first step")
                frames = of_steps - (begin + key)
                made[path] = {
                    CLIP: clip_of(packets[key:], codec),
                    FIRST: np.int64(frames[0]),
                    FRAMES: frames.astype(np.int64),
                }
        return {VIDEO: nest(made)} if made else {}

    def _packets(
        self, recording: Recording, index: Index, track: Track, path: str, begin: int, last: int
    ) -> list[bytes]:
        rows = np.arange(begin, last + 1)
        return list(self._fetch(recording, index, {path: track}, {path: rows})[path])

    def _fetch(
        self,
        recording: Recording,
        index: Index,
        tracks: Mapping[str, Track],
        rows: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Reads values that were left in the files, each once, in the order of the files."""
        wanted: list[tuple[tuple[int, int, int, int], str, int]] = sorted(
            (tuple(tracks[path].places[row].tolist()), path, row)
            for path, steps in rows.items()
            for row in set(steps.tolist()) - {-1}
        )
        decoders = Decoders(self.config.types)
        values: dict[str, dict[int, Any]] = {path: {} for path in rows}
        fetched = recording.fetch(place[:3] for place, _, _ in wanted)
        for (place, path, row), data in zip(wanted, fetched):
            picked = self._picked[path]
            with source_errors(recording.files[place[0]], field=path):
                is_raw = picked.config.path == BYTES
                message = data if is_raw else decoders.of(index.channels[place[3]])(data)
                values[path][row] = picked.value(message)
        columns = {}
        for path, steps in rows.items():
            with source_errors(recording.files[0], field=path):
                found = [values[path].get(row) for row in steps.tolist()]
                columns[path] = stacked(found, self._picked[path].field)
        return columns

    def _said(self, index: int, found: Index, dropped: int, is_whole: bool) -> Mapping[str, Any]:
        """Returns the fields of an episode; without its messages unless all of it is wanted."""
        number, span = self._all_spans()[index]
        recording, said = self._recordings[number], self._said_in(number)
        if number not in self._digests:
            self._digests[number] = said.get("sha256") or recording.sha256()
        kept = {}
        if self._keeps and is_whole:
            # Each message of the recording is in one of its episodes.
            spans = [span for other, span in self._all_spans() if other == number]
            place = self._place(index)
            begin = span.begin if place else 0
            end = spans[place + 1].begin if place + 1 < len(spans) else 2**63
            kept = {MESSAGES: kept_messages(recording, begin, end, with_records=not place)}
        return kept | {
            RECORDING: {
                "files": said.get("files") or recording.file_names,
                "sha256": self._digests[number],
                "begin": np.int64(max(span.begin, found.first)),
                "end": np.int64(min(span.end, found.last + 1)),
                "dropped_steps": np.int64(dropped),
                "metadata": json.dumps(dict(span.metadata)),
            }
        }

    def _said_in(self, number: int) -> Mapping[str, str]:
        """Returns what an export says of the recording that a file was made of."""
        if number not in self._said_of:
            with source_errors(self._recordings[number].files[0]):
                records = dict(_metadata_in(self._recordings[number]))
            self._said_of[number] = records.get(RECORDING_RECORD, {})
        return self._said_of[number]


def _why_empty(times: Any, tracks: Mapping[str, Track]) -> str:
    """Says why no step has all it needs: the clocks of topics may be different ones."""
    spans = {path: track.stamps for path, track in tracks.items()} | {"the clock": times}
    said = [
        f"{name}: {len(stamps)} messages"
        + (f" from {stamps[0] / 1e9:.3f} s to {stamps[-1] / 1e9:.3f} s" if len(stamps) else "")
        for name, stamps in spans.items()
    ]
    hint = (
        'no step has values of all fields; if the times are of two clocks, try stamp = "log_time"'
    )
    return f"{hint}. {'; '.join(said)}"


def _metadata_in(recording: Recording) -> list[tuple[str, Mapping[str, str]]]:
    """Returns the metadata records of a recording."""
    found = [data for kind, data in recording.records() if kind == "Metadata"]
    records = [parse_record("Metadata", data) for data in found]
    return [(record.name, record.metadata) for record in records]


class McapSource(BagSource):
    """MCAP files: each is an episode, or has several.

    Steps are made of messages as a configuration says; `rlds.formats.bags.config` has all that it
    can say. Without one, a usual one is proposed: `metadata()["mcap"]["config"]` has it, and
    `source.config.to_toml()` writes it for you to edit.

    Beside its fields, a step has its `timestamp`, and for each field the stamp of the message that
    it is of (`stamps/<field>`) and its age (`ages/<field>`). An episode has the names and digests
    of its files below `recording`.

    Args:
      path: A file, or a folder of files.
      bag_config: The configuration: TOML, the path of a file with it, or a `BagConfig`.
      messages: Whether to keep all messages of an episode, in the field `messages`: an MCAP file.
        Then the export `mcap` gives the recordings back.
      damaged_chunks: Whether a damaged piece of a file is an error of the episodes that it is in,
        or is left out of them: then they are not `complete`.

    Raises:
      FileNotFoundError: There are no such files.
      SourceError: There is no message that a field could be made of.
      ValueError: The configuration is not right.
    """

    family = "mcap"
    is_general = True


class RosbagSource(BagSource):
    """Bags of ROS 1 and ROS 2: each is an episode, or has several.

    A bag of ROS 2 is a folder with `metadata.yaml`, or a file in it; a bag of ROS 1 is a file. See
    `McapSource`, which has the same arguments.
    """

    family = "rosbag"
    is_general = True
