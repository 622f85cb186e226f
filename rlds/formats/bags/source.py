"""Reading of robot recordings: MCAP files, bags of ROS 1 and ROS 2."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.bags.config import BagConfig, Clock
from rlds.formats.bags.proposal import RecordingOverview, infer_reader, propose
from rlds.formats.bags.recordings import BagRecording, Family, find_recordings
from rlds.formats.bags.steps import (
    EpisodeSpan,
    find_spans,
    match_rows,
    sample_values,
    shift_values,
    stack_values,
    stamps_and_ages,
    step_times,
    window_rows,
)
from rlds.formats.bags.stored import StoredEpisodes, sidecar_in
from rlds.formats.bags.tracks import Index, Track, make_index, read_values
from rlds.formats.bags.values import FieldReader
from rlds.formats.bags.videos import is_keyframe, mux_clip
from rlds.raw_files.input_files import Files
from rlds.raw_files.untrusted import source_errors
from rlds.sources.source import (
    ALL_ROWS,
    DERIVED_DISCOUNT,
    INFO_TEXTS,
    Capabilities,
    Fields,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
)
from rlds.video import CLIP, FIRST, FRAMES
from rlds.video.fields import video_fields
from rlds_ecosystem.model.columns import step_flags
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import nest, root_of

__all__ = ["BagSource", "McapSource", "RosbagSource"]

TIMESTAMP, STAMPS, AGES, RECORDING = "timestamp", "stamps", "ages", "recording"
# The limit of folders that are checked for changes after each read.
_MAX_COMPARED_FOLDERS = 64
# The numbers of messages before the first step to search for a keyframe.
_KEYFRAME_SEARCH_MESSAGES = (30, 300, 1 << 40)


@dataclasses.dataclass(frozen=True)
class _StepMessages:
    """The steps of an episode.

    Attributes:
      recording: The recording.
      index: The index of the recording.
      tracks: The messages of the episode, by field.
      times: The times of the steps.
      messages: The rows of the tracks for each step, by field.
      num_dropped: The number of dropped steps, which lack the value of a field.
      why_empty: The reason for an episode without steps.
    """

    recording: BagRecording
    index: Index
    tracks: Mapping[str, Track]
    times: Any
    messages: Mapping[str, Any]
    num_dropped: int
    why_empty: str


class BagSource(Source):
    """Robot recordings (MCAP, ROS bags), resampled to steps by a configuration."""

    family: ClassVar[Family]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        bag_config: str | Mapping[str, Any] | BagConfig | None = None,
        damaged_chunks: Literal["error", "leave_out"] = "error",
        rate: float | None = None,
        policy: Literal["hold", "nearest", "linear"] | None = None,
        max_age: float | None = None,
        video: Literal["packets", "frames", "png", "jpeg"] = "packets",
        quality: int = 95,
    ) -> None:
        self._video, self._quality = video, quality
        self._recordings = find_recordings(path, self.family)
        folders = {os.path.dirname(file) for r in self._recordings for file in r.files}
        self.opened_files = Files(path, *sorted(folders)[:_MAX_COMPARED_FOLDERS], may_grow=True)
        if not self._recordings:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no recordings ({self.family}).")
        self._leaves_out = damaged_chunks == "leave_out"
        self._stored_episodes: StoredEpisodes | None = None
        self._spans: list[tuple[int, EpisodeSpan]] | None = None
        self._cached_index: tuple[int, Index] | None = None
        self._digests: dict[int, str] = {}
        self._readers: dict[str, FieldReader] = {}
        with source_errors(os.fspath(path)):
            sidecar = sidecar_in(self._recordings[0]) if self.family == "mcap" else None
            if sidecar is not None:
                self._stored_episodes = StoredEpisodes(self._recordings, sidecar)
                return
        self._is_proposed = bag_config is None
        user_config = None if bag_config is None else BagConfig.load(bag_config)
        with source_errors(os.fspath(path)):
            self._overview = self._scan(user_config)
            self.config = user_config or propose(self._overview, self._recordings[0])
            self.config = self._adjust(self.config, rate, policy, max_age)
            self._overview.check(self.config, self._recordings[0])
            self._readers = self._make_readers()
        # Joint names in the order of the recording.
        configs = {path: item.config for path, item in self._readers.items()}
        fields = [configs.get(field.field, field) for field in self.config.fields]
        self.config = dataclasses.replace(self.config, fields=tuple(fields))
        if self.config.episodes.by == "bag":
            self._spans = [(n, EpisodeSpan()) for n in range(len(self._recordings))]

    def __getstate__(self) -> Mapping[str, Any]:
        return {**vars(self), "_cached_index": None, "_readers": {}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        if self._stored_episodes is None:
            self._readers = self._make_readers()

    # --- Topics and episodes

    def _scan(self, config: BagConfig | None) -> RecordingOverview:
        """Scans recordings until each requested field has a message."""
        overview = RecordingOverview()
        fields = {field.field for field in config.fields if field.topic} if config else set()
        for recording in self._recordings:
            try:
                overview.scan(recording, config)
            except SourceError:
                if not overview.topics and recording is self._recordings[-1]:
                    raise
            if overview.topics and overview.first_messages.keys() >= fields:
                break
        return overview

    def _adjust(
        self, config: BagConfig, rate: float | None, policy: Any, max_age: float | None
    ) -> BagConfig:
        """Applies the options `rate`, `policy` and `max_age` to a configuration."""
        for name, value in (("rate", rate), ("max_age", max_age)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if policy not in (None, "hold", "nearest", "linear"):
            raise ValueError(f"policy: got {policy!r}, expected hold, nearest or linear")
        fields = []
        for field in config.fields:
            changes: dict[str, Any] = {} if max_age is None else {"max_age": max_age}
            is_action = root_of(field.field) == rlds.ACTION
            if is_action and rate and field.policy == "hold":
                is_fast = self._overview.topics[field.topic].rate >= 0.9 * rate
                changes |= {"policy": "first"} if is_fast else {}
            elif policy is not None and field.policy == "hold" and not is_action:
                reader = infer_reader(field, *self._overview.first_messages[field.field], config)
                is_float = reader.kind == "numbers" and reader.field.column_dtype.kind == "f"
                changes |= {"policy": policy} if policy != "linear" or is_float else {}
            fields.append(dataclasses.replace(field, **changes))
        clock = config.clock if rate is None else Clock(rate=rate)
        return dataclasses.replace(config, clock=clock, fields=tuple(fields))

    def _make_readers(self) -> dict[str, FieldReader]:
        """Infers the types of fields from the first messages of their topics."""
        messages, config = self._overview.first_messages, self.config
        return {
            field.field: infer_reader(field, *messages[field.field], config)
            for field in config.fields
            if field.topic
        }

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        if self._stored_episodes:
            sidecar = self._stored_episodes.sidecar
            return Fields(nest(sidecar.steps), nest(sidecar.episode))
        fields: dict[str, Any] = {rlds.DISCOUNT: DERIVED_DISCOUNT}
        for config in self.config.fields:
            path, shape = config.field, (config.size,) if config.size else ()
            if path not in self._videos:
                field = self._readers[config.source or path].field
                fields[path] = dataclasses.replace(field, shape=(*shape, *field.shape))
            if config.topic:
                fields[f"{STAMPS}/{path}"] = Field(np.int64, shape, unit="ns")
                fields[f"{AGES}/{path}"] = Field(np.float64, shape, unit="s")
        fields[TIMESTAMP] = Field(np.int64, unit="ns", doc="The time of the step.")
        return Fields(nest(fields), self._episode_fields())

    @property
    def _videos(self) -> list[str]:
        """The camera fields with video packets, which are fields of the episode."""
        return [path for path, reader in self._readers.items() if reader.kind == "video"]

    def _episode_fields(self) -> Mapping[str, Any]:
        return {
            **nest(video_fields(self._videos)),
            RECORDING: {
                "files": Field(str, doc="The names of the files."),
                "sha256": Field(str, doc="The digests of the files, with a line for each file."),
                "begin": Field(np.int64, unit="ns", doc="The log time of the first message."),
                "end": Field(np.int64, unit="ns", doc="The log time after the last message."),
                "dropped_steps": Field(np.int64, doc="The number of steps without a value."),
                "metadata": Field(str, doc="The recorder's metadata of the episode, in JSON."),
            },
        }

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(video=self._video, quality=self._quality)

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        if self._stored_episodes:
            content = self._stored_episodes.sidecar.metadata
            texts: dict[str, Any] = {name: str(content.get(name, "")) for name in INFO_TEXTS}
            return SourceInfo(**texts, metadata=dict(content.get("metadata", {})))
        topics = {
            topic: {"type": stats.channel.type, "encoding": stats.channel.encoding}
            for topic, stats in sorted(self._overview.topics.items())
        }
        names, config = [recording.name for recording in self._recordings], self.config.to_json()
        metadata = {
            "config": config,
            "config_is": "proposed" if self._is_proposed else "given",
            "topics": topics,
            "recordings": names,
            **({"fps": rate} if (rate := self.config.clock.rate) else {}),
        }
        subject = "a recording" if len(names) == 1 else f"{len(names)} recordings"
        damaged = "leave_out" if self._leaves_out else "error"
        return SourceInfo(
            description=f"Steps of {subject} of a robot.",
            metadata={self.family: metadata},
            options={"bag_config": config, "damaged_chunks": damaged},
        )

    @override
    def inputs(self) -> Sequence[Any]:
        files = [file for recording in self._recordings for file in recording.files]
        return files + [r.metadata_file for r in self._recordings if r.metadata_file]

    # --- Episodes

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._recordings) if self._stored_episodes else len(self._all_spans())

    def stored_file(self, index: int) -> epath.Path:
        """Returns the file of an exported episode."""
        return self._recordings[index].files[0]

    def _all_spans(self) -> list[tuple[int, EpisodeSpan]]:
        """Returns the spans of all episodes, with the indices of their recordings."""
        if self._spans is None:
            spans: list[tuple[int, EpisodeSpan]] = []
            for recording_index, recording in enumerate(self._recordings):
                with source_errors(recording.files[0]):
                    index = make_index(recording, self.config, {})
                    new_spans = find_spans(index, self.config.episodes, recording.metadata())
                    # After a crash, the last episode may have no steps.
                    if len(new_spans) > 1 and not new_spans[-1].has_end:
                        times = self._find_steps(recording_index, new_spans[-1]).times
                        new_spans = new_spans if len(times) else new_spans[:-1]
                spans += [(recording_index, span) for span in new_spans]
            self._spans = spans
        return self._spans

    @override
    def key(self, split: str, index: int) -> str:
        if self._stored_episodes:
            return self._stored_episodes.key(index)
        spans = self._all_spans()
        recording_index = spans[index][0]
        name = self._recordings[recording_index].name
        if self.config.episodes.by == "bag":
            return name
        first_index = next(i for i, (other, _) in enumerate(spans) if other == recording_index)
        return f"{name}:{index - first_index}"

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        if self._stored_episodes:
            return self._stored_episodes.read(
                index, self.fields.step_paths(fields), self.fields.episode_paths(fields)
            )
        recording_index, span = self._all_spans()[index]
        is_complete = self._is_complete(recording_index, span)
        steps = self._find_steps(recording_index, span)
        times = steps.times
        if not len(times):
            raise SourceError(steps.why_empty, file=steps.recording.files[0])
        columns = self._columns(steps)
        paths = [path for path in self.fields.step_paths(fields) if path in steps.messages]
        columns |= self._fetch_columns(steps, {path: steps.messages[path] for path in paths})
        is_final = self._add_next_states(columns)
        columns[rlds.DISCOUNT] = columns.get(rlds.DISCOUNT, np.ones(len(times), np.float32))
        if is_final:
            columns[rlds.DISCOUNT][-1:] = 0
        metadata: dict[str, Any] = {}
        for root in {root_of(path) for path in self.fields.episode_paths(fields)}:
            if root == RECORDING:
                metadata[root] = self._read_metadata(recording_index, span, steps)
            else:
                metadata[root] = nest({path: self._clip(steps, path) for path in self._videos})
        return SourceEpisode(
            key=self.key(split, index),
            steps={**nest(columns), **step_flags([len(times)], [False])},
            origin=Origin(steps.recording.name, int(times[0]), int(times[-1]) + 1),
            truncated=True,
            complete=is_complete,
            final_observation_known=is_final,
            metadata=metadata,
        )

    def _find_steps(self, recording_index: int, span: EpisodeSpan) -> _StepMessages:
        """Returns the steps of an episode that have a message for all required fields.

        Raises:
          SourceError: A step has no value, and the policy `missing` is "error".
        """
        recording, index = self._recordings[recording_index], self._load_index(recording_index)
        tracks = {path: track.between(span.start, span.end) for path, track in index.fields.items()}
        # The keyframe may be before the episode.
        tracks |= {path: index.fields[path].between(0, 2**63 - 1) for path in self._videos}
        times = step_times(index, span, self.config, tracks)
        fields = {path: self.config.field(path) for path in tracks}
        messages = {p: match_rows(track, fields[p], times) for p, track in tracks.items()}
        is_kept = np.ones(len(times), bool)
        for path, rows in messages.items():
            config, is_present = fields[path], rows >= 0
            if not is_present.all() and config.missing == "error":
                row = int(np.flatnonzero(~is_present)[0])
                problem = f"{config.topic} has no message for this step"
                raise SourceError(problem, file=recording.files[0], row=row, field=path)
            if config.missing == "drop":
                is_kept &= is_present
        return _StepMessages(
            recording,
            index,
            tracks,
            times[is_kept],
            {path: rows[is_kept] for path, rows in messages.items()},
            int((~is_kept).sum()),
            "" if is_kept.any() else _why_empty(times, tracks),
        )

    def _load_index(self, recording_index: int) -> Index:
        if self._cached_index is None or self._cached_index[0] != recording_index:
            recording = self._recordings[recording_index]
            with source_errors(recording.files[0]):
                index = make_index(recording, self.config, self._readers)
                self._cached_index = recording_index, index
        return self._cached_index[1]

    def _is_complete(self, recording_index: int, span: EpisodeSpan) -> bool:
        """Returns True if an episode is not truncated, not damaged, and has an end."""
        index = self._load_index(recording_index)
        damage = index.damage
        reasons = [r for start, end, r in damage.gaps if start < span.end and end >= span.start]
        if reasons and not self._leaves_out:
            problem = f'{reasons[0]}. Pass damaged_chunks="leave_out" to read the rest'
            raise SourceError(problem, file=self._recordings[recording_index].files[0])
        is_cut = bool(damage.cut) and span.end > index.last
        return not is_cut and not reasons and span.has_end

    def _columns(self, steps: _StepMessages) -> dict[str, Any]:
        """Returns the columns of numbers, stamps and ages, which are in the index."""
        columns: dict[str, Any] = {TIMESTAMP: steps.times}
        for path, track in steps.tracks.items():
            config, rows, times = self.config.field(path), steps.messages[path], steps.times
            if config.size:
                rows, times = window_rows(rows, config.size), times[:, None]
            stamps, ages = stamps_and_ages(track, rows, times)
            columns |= {f"{STAMPS}/{path}": stamps, f"{AGES}/{path}": ages}
            if track.values is not None:
                columns[path] = sample_values(track, config, rows, times)
        return columns

    def _add_next_states(self, columns: dict[str, Any]) -> bool:
        """Adds actions that are the next state; returns True if there are such actions."""
        configs = [config for config in self.config.fields if config.policy == "next_state"]
        for config in configs:
            if config.source in columns:
                columns[config.field] = shift_values(columns[config.source])
        return bool(configs)

    def _fetch_columns(self, steps: _StepMessages, messages: Mapping[str, Any]) -> dict[str, Any]:
        """Reads the columns of values that are not in the index, such as images.

        Args:
          steps: The steps of the episode.
          messages: The requested rows of tracks, by field.
        """
        tracks, file = steps.tracks, steps.recording.files[0]
        indices = {
            path: [int(tracks[path].indices[row]) if row >= 0 else -1 for row in rows]
            for path, rows in messages.items()
            if tracks[path].values is None
        }
        unique = {path: {*rows} - {-1} for path, rows in indices.items()}
        readers, columns = self._readers, {}
        values = read_values(steps.recording, self.config, readers, steps.index.fields, unique)
        for path, rows in indices.items():
            with source_errors(file, field=path):
                row_values = [values[path].get(index) for index in rows]
                columns[path] = stack_values(row_values, readers[path].field)
        return columns

    def _clip(self, steps: _StepMessages, path: str) -> Mapping[str, Any]:
        """Returns the video packets from the keyframe before the first step to the last step."""
        rows, file = steps.messages[path], steps.recording.files[0]
        first_message, last_message = int(rows.min()), int(rows.max())
        codec = self._readers[path].field.doc
        for num_messages in _KEYFRAME_SEARCH_MESSAGES:
            start = max(first_message - num_messages, 0)
            packets = self._fetch_columns(steps, {path: np.arange(start, last_message + 1)})[path]
            with source_errors(file, field=path):
                candidates = range(first_message - start, -1, -1)
                keyframe = next((i for i in candidates if is_keyframe(packets[i], codec)), None)
                if keyframe is not None:
                    frames = (rows - (start + keyframe)).astype(np.int64)
                    clip = mux_clip(list(packets[keyframe:]), codec)
                    return {CLIP: clip, FIRST: np.int64(frames[0]), FRAMES: frames}
        raise SourceError("no keyframe comes before the first step", file=file, field=path)

    def _read_metadata(self, index: int, span: EpisodeSpan, steps: _StepMessages) -> dict[str, Any]:
        """Returns the metadata of the recording of an episode."""
        if index not in self._digests:
            self._digests[index] = steps.recording.sha256()
        return {
            "files": ", ".join(file.name for file in steps.recording.files),
            "sha256": self._digests[index],
            "begin": np.int64(max(span.start, steps.index.first)),
            "end": np.int64(min(span.end, steps.index.last + 1)),
            "dropped_steps": np.int64(steps.num_dropped),
            "metadata": json.dumps(dict(span.metadata)),
        }


def _why_empty(times: Any, tracks: Mapping[str, Track]) -> str:
    """Returns a message for an episode without steps: topics may use different clocks."""
    spans = {path: track.stamps for path, track in tracks.items()} | {"the clock": times}
    ranges = [
        f"{name}: {len(stamps)} messages"
        + (f" from {stamps[0] / 1e9:.3f} s to {stamps[-1] / 1e9:.3f} s" if len(stamps) else "")
        for name, stamps in spans.items()
    ]
    hint = 'no step has values of all fields; if the topics use two clocks, try stamp = "log_time"'
    return f"{hint}. {'; '.join(ranges)}"


class McapSource(BagSource):
    """MCAP files with one or more episodes each.

    A configuration describes the conversion of messages to steps; see `rlds.formats.bags.config`.
    By default, a configuration is proposed; it is in `source_info.metadata["mcap"]["config"]`, and
    `source.config.to_toml()` returns it for edits.

    In addition to its fields, a step has a `timestamp`, and for each field the stamp of its message
    (`stamps/<field>`) and its age (`ages/<field>`). An episode has the names and digests of its
    files below `recording`.

    Args:
      path: A file, or a folder of files.
      bag_config: The configuration: TOML, the path of a TOML file, or a `BagConfig`.
      damaged_chunks: The treatment of damaged chunks of an MCAP file: "error" raises an error for
        their episodes; "leave_out" skips the chunks, and the episodes are not `complete`.
      rate: The steps per second, instead of the rate in the configuration.
      policy: The policy of fields of observations, instead of "hold": "nearest", or, for floats,
        "linear".
      max_age: The largest distance of a message from its step, in seconds, for all fields.
      video: The form of video: "packets", in a clip of the episode, see `rlds.video`; or images of
        the steps as arrays ("frames"), "png" or "jpeg" files.
      quality: The quality of these JPEG files, from 1 to 100.

    Raises:
      FileNotFoundError: There are no such files.
      SourceError: A field has no message.
      ValueError: The configuration is invalid.
    """

    family = "mcap"


class RosbagSource(BagSource):
    """Bags of ROS 1 and ROS 2 with one or more episodes each.

    A bag of ROS 2 is a folder with `metadata.yaml`, or a file in it; a bag of ROS 1 is a file. The
    arguments are the same as of `McapSource`.
    """

    family = "rosbag"
