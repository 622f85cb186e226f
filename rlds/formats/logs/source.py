"""EnvLogger logs as a source of RLDS episodes.

The fields come from the recorded environment specs and, for custom data and episode metadata,
which have no specs, from the first recorded values. All later values are checked against them.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import json
import operator
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import dm_env
import google_crc32c
import numpy as np
from etils import epath
from typing_extensions import override

import envlogger
import rlds
from envlogger.backends.riegeli_backend_reader import RiegeliBackendReader
from envlogger.backends.riegeli_files.assembler import EpisodePositions
from envlogger.converters.rlds_episode import to_rlds_episode, to_rlds_episodes
from envlogger.converters.video_fields import KEY as VIDEO_KEY
from envlogger.converters.video_fields import PACKET, SINCE_KEY, VideoFields, drop_value, get_value
from envlogger.step_data import StepData
from rlds.formats.logs.recorded_logs import IdleReaders, Log, Logs, logs_by_split
from rlds.formats.logs.recorded_types import match_declared, widen_spec
from rlds.raw_files.untrusted import check_is_file, source_errors
from rlds.sources.dataset_folders import file_versions
from rlds.sources.episode_fields import RESERVED
from rlds.sources.sidecar import StoredSidecar
from rlds.sources.source import (
    ALL_ROWS,
    Capabilities,
    Fields,
    Lengths,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
)
from rlds.sources.specs import fields_from_spec, merged_specs, specs_from_columns
from rlds.video import CLIP, FIRST, VIDEO
from rlds.video.container import Clip
from rlds.video.encoding import clip_of, packets_for_steps
from rlds.video.fields import clip_fields, clip_values
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.caches import cache_folder
from rlds_ecosystem.files.whole_files import write_atomically
from rlds_ecosystem.model.columns import (
    dtype_and_shape,
    first_row,
    known_field,
    map_columns,
    objects,
    stack_values,
    step_flags,
)
from rlds_ecosystem.model.errors import EnvLoggerError, StorageError
from rlds_ecosystem.model.fields import Field, MismatchError, fields_text, match_columns
from rlds_ecosystem.model.json_values import to_json
from rlds_ecosystem.model.nests import lookup, map_named_leaves, nest, root_of

__all__ = ["EnvLoggerSource"]

# The smallest number of episodes of a log that caches the types of their metadata.
_MIN_CACHED_EPISODES = 10_000
_FIELDS_WITH_SPEC = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT)


class _VideoDiffersError(SourceError):
    """The logs of a dataset differ in their video fields or codecs."""


class _Recorded(NamedTuple):
    """The metadata of an episode, as columns with a single row."""

    columns: Any
    log: Log
    episode: int


class EnvLoggerSource(Source):
    """EnvLogger logs of one environment, with any metadata.

    If some episodes lack a field of the metadata (or have None), they have a placeholder (zero, NaN
    or an empty string), and the mask field `<name>_known` is False. The same applies to custom data
    of the first episode that other steps lack.

    The key of an episode is its index, counted over all logs in the given order. `truncated` is
    True if the last state is not terminal. `complete` is True if the episode begins with a FIRST
    step and ends with a LAST step. Episode metadata that is no dict is in the field
    `episode_metadata`; recorded names that are reserved (`episode_id`, `truncated`) become
    `recorded_<name>`.

    Values do not change. A field has the dtype and shape of its spec, or the wider dtype of
    recorded floats, or the recorded shape. (Integers get the dtype of the spec, axes of length 1
    are ignored, and a list of numbers is an array.) None and empty containers have no field.

    Args:
      logs: A directory, an open reader, a list of these, or a dict of these by the name of the
        split; without names, the split is `train`. A directory includes all logs at and below it
        (see `find_logs`). Open readers stay open. Later episodes of a growing log are not read.
      metadata: Metadata that replaces the recorded metadata of the logs.
      episode_metadata_defaults: Values for fields that are missing (or None) in the metadata of
        some episodes, by name; such fields have no mask field.
      video: "packets" to keep recorded video as a clip of the episode, see `rlds.video`; "frames",
        "png" or "jpeg" for decoded arrays or image files of steps in `rlds.sources.open`.
      quality: The quality of JPEG files, from 1 to 100.
      leave_out: Names of custom data that is not read, which logs may lack.
      float64: "bytes" to keep float64 of steps, as in `tfds_builders.convert`; "float32" to round,
        for logs with float64 in only some episodes.

    Raises:
      FileNotFoundError: A directory does not exist, or holds no log.
      SourceError: A log has no episodes; logs differ in their specs; metadata is not valid JSON, or
        differs from the first episode. The message has the location.
      ValueError: A name of a split is not valid.

    Attributes:
      specs: The specs of the fields of a step, with dicts and tuples as recorded.
    """

    may_grow = True

    def __init__(
        self,
        logs: Logs,
        *,
        metadata: Mapping[str, Any] | None = None,
        episode_metadata_defaults: Mapping[str, Any] | None = None,
        video: Literal["packets", "frames", "png", "jpeg"] = "packets",
        quality: int = 95,
        float64: Literal["bytes", "float32"] = "bytes",
        leave_out: Sequence[str] = (),
    ) -> None:
        self._video_mode, self._quality = video, quality
        self._rounds, self._ignored = float64 == "float32", {*leave_out}
        self._defaults = dict(episode_metadata_defaults or {})
        self._logs = logs_by_split(logs)
        self.splits = list(self._logs)
        self._idle_readers = IdleReaders()
        self._metadata: Any = None if metadata is None else to_json(metadata, "metadata")
        self._video = VideoFields({})
        examples: dict[Any, _Recorded] = {}
        samples: list[Mapping[str, Any]] = []
        self.specs: dict[str, Any] = {}
        try:
            specs_of_logs = [self._scan(log, examples, samples) for log in self._all_logs()]
        except _VideoDiffersError:  # Frames can be read from all logs.
            for log in self._all_logs():
                log.video = "frames"
            self._idle_readers, examples, samples = IdleReaders(), {}, []
            specs_of_logs = [self._scan(log, examples, samples) for log in self._all_logs()]
        for sample in samples:
            self.specs = {k: widen_spec(spec, sample.get(k)) for k, spec in self.specs.items()}
        self._step_fields = self._find_step_fields(self.specs)
        flags = dict.fromkeys(rlds.STEP_FLAGS, Field(np.bool_))
        self._expected_steps = {**self._expect_columns(self._step_fields), **flags}
        columns = [specs_from_columns(example.columns) for example in examples.values()]
        self._episode_fields = self._find_episode_fields(merged_specs(columns))
        self._expected_metadata = self._expect_columns(self._episode_fields)
        for example in examples.values():
            self._match_metadata(*example)
        if self._metadata is None:
            kinds = {json.dumps(data, sort_keys=True) for data in specs_of_logs}
            self._metadata = specs_of_logs[0] if len(kinds) == 1 else {"logs": specs_of_logs}
        self._stops = {
            split: np.cumsum([log.num_episodes for log in split_logs]).tolist()
            for split, split_logs in self._logs.items()
        }

    def _all_logs(self) -> list[Log]:
        return [log for logs in self._logs.values() for log in logs]

    # --- Fields and metadata ---------------------------------------------------------------------

    def _scan(
        self, log: Log, examples: dict[Any, _Recorded], samples: list[Mapping[str, Any]]
    ) -> Any:
        """Checks the beginning of a log; returns its metadata.

        Args:
          log: The log.
          examples: Receives an example of each type of episode metadata.
          samples: Receives columns of the first steps of some episodes.
        """
        for file in _list_files(log):
            check_is_file(file)
        with source_errors(log.path), self._idle_readers.borrow(log) as reader:
            backend = reader.backend
            if isinstance(backend, RiegeliBackendReader):
                lengths = backend.episode_lengths()
            else:
                lengths = np.array([len(episode) for episode in reader.episodes], np.int64)
            if not len(lengths):
                raise SourceError("the log holds no episodes", file=log.path)
            log.start_rows = np.append(0, np.cumsum(lengths))
            video = _video_in(reader)
            if log is self._all_logs()[0]:
                self._video = video
            if _find_codecs(video) != _find_codecs(self._video):
                problem = "its video differs from that of the first log; convert it alone"
                raise _VideoDiffersError(problem, file=log.path)
            log.reads_together = not video
            specs = {name: getattr(reader, f"{name}_spec")() for name in _FIELDS_WITH_SPEC}
            for path in video.cameras:
                specs = drop_value(specs, (rlds.OBSERVATION, *path))
            if log is self._all_logs()[0]:
                self.specs = _step_specs(reader, specs, log.path)
            self._check_specs(specs, log)
            samples += _first_steps(reader, lengths, self.specs)
            cache = _KindsCache(log, self._defaults) if type(self) is EnvLoggerSource else None
            indices = None if cache is None else cache.read()
            kinds: dict[Any, int] = {}
            for index, metadata in _read_metadata(reader, indices):
                columns = self._episode_columns(metadata, log, index)
                kind = _metadata_type(columns)
                kinds.setdefault(kind, index)
                examples.setdefault(kind, _Recorded(columns, log, index))
            if cache is not None and indices is None:
                cache.write([*kinds.values()])
            if self._metadata is not None:
                return None
            metadata = dict(reader.metadata())
            metadata.pop("environment_specs", None)
            try:
                return to_json(metadata, f"{log.path}, metadata")
            except (TypeError, ValueError) as error:
                raise ValueError(f"{error}. Pass `metadata` to replace the metadata.") from error

    def _find_step_fields(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of steps, from specs."""
        ignored = (*rlds.STEP_FLAGS, *self._ignored)
        fields: Any = fields_from_spec({k: v for k, v in specs.items() if k not in ignored}) or {}
        return map_named_leaves(self._round, fields) if self._rounds else fields

    def _round(self, name: str, field: Field) -> Field:
        del name
        is_wide = field.dtype == np.float64
        return dataclasses.replace(field, dtype=np.float32) if is_wide else field

    def _find_episode_fields(self, specs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of episodes, from specs of the metadata."""
        fields: Any = fields_from_spec(specs) or {}
        return fields

    def _expect_columns(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Returns the expected types of the columns of fields."""
        return fields

    def _is_declared(self, name: str) -> bool:
        """Returns True if a field of steps is declared, and needs no spec."""
        del name
        return False

    def _check_specs(self, specs: Mapping[str, Any], log: Log) -> None:
        for name, spec in specs.items():
            if spec is None or self._is_declared(name):
                continue
            fields = fields_from_spec(spec, name)
            first = fields_from_spec(self.specs[name], name)
            if fields != first:
                raise SourceError(
                    f"the spec describes {fields_text(fields)}, that of {self._all_logs()[0].path} "
                    f"{fields_text(first)}. Open these logs one by one; `rlds list` lists them",
                    file=log.path,
                    field=name,
                )

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        if not self._video:
            return Fields(self._step_fields, self._episode_fields)
        clips = nest(dict.fromkeys(map(_video_path, self._video.cameras), clip_fields()))
        return Fields(self._step_fields, {**self._episode_fields, VIDEO: clips})

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        """The recorded metadata of the logs, or a list of it in `logs` if they differ."""
        return SourceInfo(
            description="Episodes recorded with EnvLogger.",
            metadata=self._metadata,
            options={
                "episode_metadata_defaults": repr(self._defaults),
                **({"float64": "float32"} if self._rounds else {}),
                **({"leave_out": sorted(self._ignored)} if self._ignored else {}),
                "num_episodes": {split: ends[-1] for split, ends in self._stops.items()},
            },
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            video=self._video_mode,
            quality=self._quality,
            lengths=self._lengths,
            totals=self._totals,
            origin=self._origin,
            run=self._read_many,
            sidecar=self._sidecar,
        )

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [file for log in self._all_logs() for file in _list_files(log)]

    def _totals(self, split: str) -> Mapping[str, int]:
        return {"steps": sum(int(log.start_rows[-1]) for log in self._logs[split])}

    @override
    def num_episodes(self, split: str) -> int:
        return int(self._stops[split][-1])

    # --- Episodes --------------------------------------------------------------------------------

    def key(self, split: str, index: int) -> str:
        """Returns the index of an episode, counted over all logs of all splits."""
        names = list(self._logs)
        return str(sum(self._stops[s][-1] for s in names[: names.index(split)]) + index)

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        log, position = self._location(split, index)
        with self._idle_readers.borrow(log) as reader, _locate_errors(log, position):
            episode = reader.episodes[position]
            has_first = episode[0].timestep.first()  # Readers cache a chunk: step 0 is read first.
            wants_video = bool(self._video) and (fields is None or VIDEO in map(root_of, fields))
            packets: dict[tuple[str, ...], Any] = {}
            if not wants_video and set(self.fields.step_paths(fields)) <= set(rlds.STEP_FLAGS):
                steps = self._read_flags(episode)
            else:
                steps, packets = self._read_steps(log, reader, position)
            clips = self._clips(packets) if wants_video else {}
            has_last = bool(steps[rlds.IS_TERMINAL][-1]) or episode[-1].timestep.last()
            metadata = reader.episode_metadata()[position]
        key = self.key(split, index)
        is_complete = has_first and has_last
        episode_read = self._episode(log, position, key, steps, metadata, is_complete=is_complete)
        return dataclasses.replace(episode_read, metadata={**episode_read.metadata, **clips})

    def _clips(self, packets: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
        """Returns the clips of an episode from its packets."""
        clips = {}
        for path, columns in packets.items():
            video = self._video.cameras[path]
            is_key = np.asarray(columns[SINCE_KEY]) == 0
            clip = clip_of(list(columns[PACKET]), is_key, str(video["codec"]), float(video["fps"]))
            clips[_video_path(path)] = clip_values(clip)
        return {VIDEO: nest(clips)}

    def packet_columns(self, episode: SourceEpisode) -> dict[str, Any]:
        """Returns the packet columns of the clips of an episode in a log, by their paths.

        A clip that does not begin with a keyframe is encoded again.

        Raises:
          SourceError: A clip is damaged, or has fewer frames than there are steps.
        """
        columns: dict[str, Any] = {}
        for path, video in self._video.cameras.items():
            values = lookup(episode.metadata, f"{VIDEO}/{_video_path(path)}")
            clip = Clip(bytes(values[CLIP]), int(values[FIRST]), episode.num_steps)
            packets, is_key = packets_for_steps(clip, video)
            rows = np.arange(len(packets))
            keys = np.maximum.accumulate(np.where(is_key, rows, 0))
            columns |= {
                f"{_video_path(path)}/{PACKET}": objects(packets),
                f"{_video_path(path)}/{SINCE_KEY}": rows - keys,
            }
        return columns

    @property
    def is_unchanged(self) -> bool:
        """True if all logs are files, and no option changes the recorded values."""
        are_files = all(isinstance(log.source, str) for log in self._all_logs())
        is_changed = bool(self._defaults) or self._rounds
        return type(self) is EnvLoggerSource and are_files and not is_changed

    def stored_episode(self, split: str, index: int) -> EpisodePositions:
        """Returns the location of a stored episode, for copies.

        Raises:
          SourceError: The episode is damaged.
        """
        log, position = self._location(split, index)
        with self._idle_readers.borrow(log) as reader, _locate_errors(log, position):
            return _backend_files(reader).stored_episode(position)

    def _origin(self, split: str, index: int) -> Origin:
        log, position = self._location(split, index)
        return Origin(log.name, int(log.start_rows[position]), int(log.start_rows[position + 1]))

    def stored_digest(self, split: str, index: int) -> int:
        """Returns a digest of the records of an episode, except the marker of its begin.

        Raises:
          SourceError: The episode is damaged.
        """
        log, position = self._location(split, index)
        with self._idle_readers.borrow(log) as reader, _locate_errors(log, position):
            files = _backend_files(reader)
            crc = google_crc32c.value(files.stored_episode(position).metadata or b"")
            is_first = True
            for steps in files.stored_steps(position):
                crc = google_crc32c.extend(crc, b"".join(steps[is_first:]))
                is_first = False
        return int(crc)

    def is_copied(self, split: str) -> bool:
        """Returns True if episodes can be copied: all fields are read, and no video is decoded."""
        return not self._ignored and all(log.video != "frames" for log in self._logs[split])

    def recorded_metadata(self) -> dict[str, Any]:
        """Returns the recorded metadata of the first log, with its specs."""
        with self._idle_readers.borrow(self._all_logs()[0]) as reader:
            metadata = dict(reader.metadata())
        return metadata if self._video else {k: v for k, v in metadata.items() if k != VIDEO_KEY}

    def _sidecar(self) -> StoredSidecar | None:
        sources = [log.source for log in self._all_logs()]
        if len(sources) != 1 or not isinstance(sources[0], str):
            return None
        return StoredSidecar.in_folder(sources[0])

    def _lengths(self, split: str) -> Lengths:
        lengths = np.concatenate([np.diff(log.start_rows) for log in self._logs[split]])
        return Lengths.create(lengths, final_observation_known=True)

    def _read_flags(self, episode: Sequence[StepData]) -> dict[str, Any]:
        """Reads the flags of an episode from its last step alone."""
        is_terminal = _step_columns([episode[-1]], self.specs)[rlds.IS_TERMINAL]
        return step_flags([len(episode)], is_terminal)

    def _location(self, split: str, index: int) -> tuple[Log, int]:
        """Returns the log of an episode, and the index of the episode in the log."""
        log_index = bisect.bisect_right(self._stops[split], index)
        return self._logs[split][log_index], index - self._first_index(split, log_index)

    def _first_index(self, split: str, log_index: int) -> int:
        """Returns the index of the first episode of a log in its split."""
        return int(self._stops[split][log_index] - self._logs[split][log_index].num_episodes)

    def _read_many(self, split: str, start: int, end: int) -> list[SourceEpisode]:
        """Reads consecutive episodes together, which is faster than one by one.

        Returns:
          The episodes from `start` on, up to the end of the log, or to an episode that cannot be
          read together with its neighbours. The steps of these episodes share memory.
        """
        log_index = bisect.bisect_right(self._stops[split], start)
        log, first_index = self._logs[split][log_index], self._first_index(split, log_index)
        end = min(end, self._stops[split][log_index])
        keys = [self.key(split, index) for index in range(start, end)]
        episodes: list[SourceEpisode] = []
        with contextlib.suppress(Exception), self._idle_readers.borrow(log) as reader:
            for episode in self._read_together(log, reader, start - first_index, keys):
                episodes.append(episode)
        return episodes

    def _read_together(
        self, log: Log, reader: envlogger.Reader, start: int, keys: Sequence[str]
    ) -> Iterator[SourceEpisode]:
        if not log.reads_together:
            return
        end = start + len(keys)
        bounds = (log.start_rows[start : end + 1] - log.start_rows[start]).tolist()
        try:
            columns = reader.recorded_columns(start, end)
            steps = self._match_steps(
                to_rlds_episodes(columns, np.diff(bounds).tolist()), bounds[-1]
            )
        except (MismatchError, TypeError, ValueError):
            log.reads_together = False
            raise
        types = columns["step_type"]
        for index, key, first, stop in zip(range(start, end), keys, bounds, bounds[1:]):
            yield self._episode(
                log,
                index,
                key,
                map_columns(operator.itemgetter(slice(first, stop)), steps),
                reader.episode_metadata()[index],
                is_complete=bool(types[first] == dm_env.StepType.FIRST)
                and bool(types[stop - 1] == dm_env.StepType.LAST),
            )

    def _read_steps(
        self, log: Log, reader: envlogger.Reader, index: int
    ) -> tuple[dict[str, Any], dict[tuple[str, ...], Any]]:
        """Reads the steps of an episode without video, and the packets of the video."""
        num_steps = int(log.start_rows[index + 1] - log.start_rows[index])
        if num_steps == 1:  # The missing action, reward and discount may have no spec.
            steps = _step_columns(list(reader.episodes[index]), self.specs)
        else:
            steps = reader.columns(index, rlds=True)
        packets = {path: get_value(steps[rlds.OBSERVATION], path) for path in self._video.cameras}
        for path in packets:
            steps = drop_value(steps, (rlds.OBSERVATION, *path))
        return self._match_steps(steps, num_steps), packets

    def _match_steps(self, steps: Mapping[str, Any], rows: int) -> dict[str, Any]:
        """Converts the columns of steps to the types of their fields."""
        steps = {name: column for name, column in steps.items() if name not in self._ignored}
        undeclared = {name: column for name, column in steps.items() if not self._is_declared(name)}
        columns = {**steps, **match_declared(undeclared, self._expected_steps, rounds=self._rounds)}
        matched_steps: dict[str, Any] = match_columns(
            columns, self._expected_steps, rows=rows, where="", rounds=self._rounds
        )
        return matched_steps

    def _episode(
        self,
        log: Log,
        index: int,
        key: str,
        steps: dict[str, Any],
        metadata: Any,
        *,
        is_complete: bool,
    ) -> SourceEpisode:
        is_terminal, start = steps[rlds.IS_TERMINAL], int(log.start_rows[index])
        return SourceEpisode(
            key=key,
            steps=steps,
            origin=Origin(log.name, start, start + len(is_terminal)),
            truncated=not is_terminal[-1],
            # Without an end, the environment was reset early, or the recording stopped.
            complete=is_complete,
            metadata=self._match_metadata(self._episode_columns(metadata, log, index), log, index),
            counts={"steps": len(is_terminal)},
        )

    def _match_metadata(self, columns: Any, log: Log, index: int) -> dict[str, Any]:
        """Returns the metadata of an episode, after matching it with the declared fields."""
        try:
            columns = match_columns(columns, self._expected_metadata, rows=1, where="")
        except MismatchError as error:
            raise SourceError(
                f"{error.problem} All episodes need the same metadata. If some lack a field, add "
                f"the bool `{known_field(error.path)}` to the config, or pass a value in "
                "`episode_metadata_defaults`.",
                file=log.path,
                episode=index,
                field=error.path,
            ) from error
        fields: dict[str, Any] = first_row(columns)
        return fields

    def _episode_columns(self, metadata: Any, log: Log, index: int) -> Any:
        """Returns the metadata of an episode as columns with a single row."""
        if metadata is None:
            metadata = {}
        if not isinstance(metadata, Mapping):
            metadata = {"episode_metadata": metadata}
        metadata = {field: value for field, value in metadata.items() if value is not None}
        for reserved in RESERVED:
            if reserved not in metadata:
                continue
            new_name = f"recorded_{reserved}"
            if new_name in metadata:
                raise SourceError(
                    f"the metadata has both {reserved!r} and {new_name!r}; the dataset calls a "
                    f"recorded {reserved!r} {new_name!r}. Pass `metadata` to replace them",
                    file=log.path,
                    episode=index,
                )
            metadata[new_name] = metadata.pop(reserved)
        try:
            return stack_values([{**self._defaults, **metadata}], "")
        except (TypeError, ValueError) as error:
            raise SourceError(str(error), file=log.path, episode=index) from error


@contextlib.contextmanager
def _locate_errors(log: Log, index: int) -> Iterator[None]:
    """Adds the log and the episode to errors."""
    try:
        yield
    except MismatchError as error:
        raise SourceError(error.problem, file=log.path, episode=index, field=error.path) from error
    except StorageError:  # The error may be one of the operating system.
        raise
    except (EnvLoggerError, TypeError, ValueError) as error:
        raise SourceError(str(error), file=log.path, episode=index) from error


def _video_in(reader: envlogger.Reader) -> VideoFields:
    """Returns the video fields that a reader reads as packets."""
    backend = reader.backend
    gives_packets = isinstance(backend, RiegeliBackendReader) and backend.gives_packets
    return backend.video if gives_packets else VideoFields({})  # type: ignore[attr-defined]


def _find_codecs(video: VideoFields) -> dict[Any, Any]:
    """Returns the codec and the frame rate of each video field."""
    return {path: (entry["codec"], entry["fps"]) for path, entry in video.cameras.items()}


def _video_path(path: Sequence[str]) -> str:
    return "/".join((rlds.OBSERVATION, *path))


def _backend_files(reader: envlogger.Reader) -> RiegeliBackendReader:
    assert isinstance(reader.backend, RiegeliBackendReader)
    return reader.backend


def _list_files(log: Log) -> list[epath.Path]:
    if not isinstance(log.source, str):
        return []
    directory = stores.as_path(log.source)
    return [file for p in ("*.riegeli", "*/*.riegeli") for file in sorted(directory.glob(p))]


class _KindsCache:
    """A cache of episode indices: an example of each type of metadata in a log.

    Reading the metadata of a million episodes takes half a minute.

    Args:
      log: The log.
      defaults: Defaults for missing metadata.
    """

    def __init__(self, log: Log, defaults: Mapping[str, Any]) -> None:
        folder = None
        if (
            log.num_episodes >= _MIN_CACHED_EPISODES
            and isinstance(log.source, str)
            and stores.is_local(log.path)
        ):
            folder = cache_folder("logs", os.path.realpath(log.path))
        self._file = None if folder is None else folder / "kinds.json"
        files = [] if folder is None else file_versions(_list_files(log), log.path)
        self._key = [1, repr(dict(defaults)), [list(version) for version in files]]

    def read(self) -> list[int] | None:
        """Returns the cached indices; None if there are none."""
        with contextlib.suppress(OSError, ValueError):
            if self._file is not None:
                content = json.loads(self._file.read_bytes())
                if content["key"] == self._key:
                    return [int(index) for index in content["episodes"]]
        return None

    def write(self, episodes: Sequence[int]) -> None:
        """Caches the indices, if there is a cache."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                content = json.dumps({"key": self._key, "episodes": episodes}).encode()
                write_atomically(self._file, content, durable=False)


def _read_metadata(
    reader: envlogger.Reader, episodes: Sequence[int] | None
) -> Iterator[tuple[int, Any]]:
    """Yields the metadata of episodes, except damaged metadata, whose read raises an error."""
    metadata = reader.episode_metadata()
    for index in range(len(metadata)) if episodes is None else episodes:
        try:
            value = metadata[index]
        except EnvLoggerError:
            continue
        yield index, value


def _metadata_type(columns: Any) -> Any:
    """Returns the types in the metadata of an episode; equal types fit the same features."""
    if isinstance(columns, Mapping):
        return tuple((name, _metadata_type(child)) for name, child in columns.items())
    if isinstance(columns, (list, tuple)):
        return tuple(map(_metadata_type, columns))
    return dtype_and_shape(columns)


def _step_specs(reader: envlogger.Reader, specs: dict[str, Any], log: str) -> dict[str, Any]:
    """Returns specs of all step fields: recorded specs, or specs of recorded values."""
    known_specs = {field: spec for field, spec in specs.items() if spec is not None}
    files = reader.backend if len(known_specs) == len(specs) else None
    for index, episode in enumerate(reader.episodes):
        if len(known_specs) == len(specs) or len(episode) > 1:
            try:
                if isinstance(files, RiegeliBackendReader) and not files.has_custom_data(index):
                    return known_specs
                if len(episode) > 1:
                    columns = reader.columns(index, rlds=True)
                else:
                    columns = _step_columns(list(episode), known_specs)
                for path in _video_in(reader).cameras:
                    columns = drop_value(columns, (rlds.OBSERVATION, *path))
            except (EnvLoggerError, TypeError, ValueError) as error:
                raise SourceError(str(error), file=log, episode=index) from error
            return {**specs_from_columns(columns), **known_specs}
    missing = [field for field in specs if field not in known_specs]
    raise SourceError(
        "the log has no specs of the environment, and no episode with an action from which to "
        f"infer the fields {missing}",
        file=log,
    )


def _first_steps(
    reader: envlogger.Reader, lengths: np.ndarray, specs: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yields columns of the first steps of the first and the last episode with actions."""
    candidates = np.flatnonzero(lengths >= min(2, lengths.max()))
    for index in {int(candidates[0]), int(candidates[-1])}:
        episode = reader.episodes[index]
        with contextlib.suppress(EnvLoggerError, TypeError, ValueError):  # `read` raises the error.
            yield _step_columns([episode[step] for step in range(min(2, len(episode)))], specs)


def _step_columns(steps: list[StepData], specs: Mapping[str, Any]) -> dict[str, Any]:
    recorded_specs = {f"{name}_spec": specs.get(name) for name in _FIELDS_WITH_SPEC[1:]}
    return to_rlds_episode(steps, **recorded_specs)
