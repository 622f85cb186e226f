"""Exports episodes as a log of EnvLogger; recorded episodes are copied."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dm_env
import google_crc32c
import numpy as np
from dm_env import specs
from typing_extensions import override

import rlds
from envlogger.backends.riegeli_backend_writer import DEFAULT_WRITER_OPTIONS
from envlogger.backends.riegeli_files.assembler import LogAssembler
from envlogger.converters import codec, spec_codec
from envlogger.converters.step_encoder import StepEncoder
from envlogger.converters.stored_types import ARRAYS
from envlogger.step_data import StepData
from rlds.formats.logs.source import EnvLoggerSource
from rlds.sources import lineage, reading
from rlds.sources.episode_fields import RESERVED
from rlds.sources.episodes import Episodes
from rlds.sources.restored import stored_in
from rlds.sources.sidecar import Sidecar, SidecarWriter
from rlds.sources.source import TRANSITION_FIELDS, Place, SourceEpisode
from rlds.sources.writing import (
    PNGS,
    Export,
    Placement,
    pngs_of,
    sidecar_placements,
    unchanged_placements,
)
from rlds.video import VIDEO
from rlds_ecosystem.model.columns import known_field
from rlds_ecosystem.model.fields import Field, as_fields
from rlds_ecosystem.model.nests import leaves_at, nest, root_of

__all__ = ["EnvLoggerExport"]

_SPECS = "environment_specs"
_SPEC_FIELDS = (rlds.OBSERVATION, *TRANSITION_FIELDS)


class EnvLoggerExport(Export):
    """A log of EnvLogger, in the order of the environment.

    Fields of steps that are neither observation, action, reward nor discount become custom data,
    those of episodes their metadata. JPEG files, and PNG files of several sizes, are bytes in it.
    What a log cannot hold is in the folder `.rlds`, beside it: arrays of varying size, which bytes
    are images, the flags of other formats, the last action of an episode whose final observation is
    not known. Episodes of logs are copied as they are recorded; where only custom data or metadata
    became others, the specs of the environment and the packets of video stay.

    Args:
      episodes: The episodes.
    """

    format = "envlogger"
    copies_parts = True

    def __init__(self, episodes: Episodes) -> None:
        super().__init__(episodes)
        self._fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._sidecar: Sidecar | None = None
        self._log = _log_of(episodes)
        if self._log is not None:
            fields = leaves_at(episodes.source.fields.episode, None)
            # The key counts the episodes; and video is cut at another place than a trimmed clip.
            self.unchecked = {"key", *(path for path, _ in fields if root_of(path) == VIDEO)}
            return
        steps = [path for path in self._fields if path not in rlds.STEP_FLAGS]
        even = [p for p in steps if None not in getattr(self._fields[p], "shape", (None,))]
        self.pngs = pngs_of(self._fields, even)
        field_paths = {path: path for path in steps if _can_hold(self._fields[path])}
        of_episode = {
            path: path
            for path, field in leaves_at(episodes.source.fields.episode, None)
            if _can_hold(field) and root_of(path) != VIDEO
        }
        whole_paths = [path for path in field_paths if root_of(path) not in TRANSITION_FIELDS]
        self._sidecar = Sidecar.of(
            episodes,
            field_paths,
            whole_paths,
            arrays=self.pngs,
            drops_final_row=True,
            episode_places=of_episode,
        )

    @override
    def placements(self) -> Sequence[Placement]:
        if self._sidecar is None:
            return unchanged_placements(self.episodes)
        return sidecar_placements(self._sidecar, dict.fromkeys(self.pngs, PNGS))

    @override
    def write(self, path: Path) -> None:
        log = LogAssembler(path, self._metadata(), DEFAULT_WRITER_OPTIONS)
        encode = StepEncoder().encode
        with contextlib.ExitStack() as stack:
            stack.callback(log.abandon)
            sidecar = None
            if self._sidecar is None:
                SidecarWriter.in_folder(path, Sidecar.metadata_only(self.episodes)).close()
            else:
                sidecar = stack.enter_context(SidecarWriter.in_folder(path, self._sidecar))
            for episode in self.each_or_stored(self._copies):
                if isinstance(episode, Place):
                    stored, stored_sidecar = stored_in(episode, EnvLoggerSource)
                    log.copy(stored.stored_episode(episode.split, episode.index))
                    if sidecar is not None:
                        sidecar.copy(stored_sidecar, episode.split, episode.index)
                    continue
                metadata = self._episode_metadata(episode)
                steps = list(map(encode, self._steps(episode)))
                log.add(steps, None if metadata is None else codec.encode_to_bytes(metadata))
                if sidecar is not None:
                    sidecar.add(episode)
            log.close()

    def _copies(self, location: Place) -> bool:
        if isinstance(location.source, EnvLoggerSource):
            return self._log is not None and location.source.is_copied(location.split)
        if self._sidecar is None or not self._is_own(location.source):
            return False
        log, stored = stored_in(location, EnvLoggerSource)
        is_alike = stored is not None and stored.sidecar.layout == self._sidecar.layout
        return is_alike and log.is_as_recorded and log.is_copied(location.split)

    @override
    def stored_digest(self, location: Place) -> int:
        log, stored = stored_in(location, EnvLoggerSource)
        digest, beside = log.stored_digest(location.split, location.index), b""
        if stored is not None:
            beside = stored.sidecar.packed(stored.read(location.split, location.index))
        return int(google_crc32c.extend(digest, beside))

    def _metadata(self) -> dict[str, Any]:
        """Returns the metadata of the log: the recorded metadata, or specs of the fields."""
        metadata = dict(self.episodes.metadata)
        if lineage.KEY in metadata:  # Values in logs are not nested as deep.
            metadata[lineage.KEY] = json.dumps(metadata[lineage.KEY], ensure_ascii=False)
        if self._log is None:
            return {**_with_tuples(metadata), _SPECS: self._specs()}
        before = self._log.about.metadata
        new = {name: value for name, value in metadata.items() if before.get(name) != value}
        return {**self._log.recorded_metadata(), **_with_tuples(new)}

    def _specs(self) -> dict[str, Any]:
        """The specs of an environment whose steps have the fields."""
        assert self._sidecar is not None
        nested = nest({path: _spec_of(self._sidecar.steps[path]) for path in self._sidecar.places})
        known_specs = {name: nested[name] for name in _SPEC_FIELDS if name in nested}
        known_specs.setdefault(rlds.DISCOUNT, specs.Array((), np.float32))
        return {f"{name}_spec": spec_codec.encode(spec) for name, spec in known_specs.items()}

    def _episode_metadata(self, episode: SourceEpisode) -> Any:
        values = dict(leaves_at(episode.metadata, None))
        if self._sidecar is not None:
            values = {path: values[path] for path in self._sidecar.episode_places}
        else:  # The packets of clips are in the steps.
            values = {
                _recorded_name(path): value
                for path, value in values.items()
                if root_of(path) != VIDEO
            }
        return self._as_recorded(nest(values), "episode_metadata")

    def _steps(self, episode: SourceEpisode) -> Iterator[StepData]:
        """Yields the steps of an episode as an environment emits them: rewards follow actions."""
        num_steps, terminal = episode.num_steps, bool(episode.steps[rlds.IS_TERMINAL][-1])
        columns = dict(leaves_at(episode.steps, None))
        if self._sidecar is not None:
            sidecar_columns = self._sidecar.columns(episode)
            columns = {path: sidecar_columns[path] for path in self._sidecar.places}
        columns = {path: c for path, c in columns.items() if path not in rlds.STEP_FLAGS}
        if self._log is not None:
            columns |= self._log.packet_columns(episode)
        recorded = self._log.specs.items() if self._log is not None else ()
        tuples = [(name, spec) for name, spec in recorded if _has_tuples(spec)]
        begins, ends = episode.complete or not terminal, episode.complete or terminal
        before: dict[str, Any] = {}  # Reward, discount and action of the step before.
        for row in range(num_steps):
            now = nest({path: column[row] for path, column in columns.items()})
            now |= {name: _with_tuples_of(spec, now[name]) for name, spec in tuples if name in now}
            is_last, is_first = row == num_steps - 1, row == 0
            kind = dm_env.StepType.MID
            if is_first and begins and not (is_last and ends and num_steps > 1):
                kind = dm_env.StepType.FIRST
            elif is_last and ends:
                kind = dm_env.StepType.LAST
            arrived: dict[str, Any] = {}
            if not is_first:
                arrived = {rlds.DISCOUNT: np.float32(not (is_last and terminal)), **before}
            before = {name: now.pop(name) for name in TRANSITION_FIELDS if name in now}
            timestep = dm_env.TimeStep(
                kind,
                arrived.get(rlds.REWARD),
                arrived.get(rlds.DISCOUNT),
                now.pop(rlds.OBSERVATION, None),
            )
            custom_data = self._as_recorded(now, "custom_data")
            yield StepData(timestep, arrived.get(rlds.ACTION), custom_data)

    def _as_recorded(self, fields: dict[str, Any], name: str) -> Any:
        """Returns the value to record: a dict of fields, the value of a single `name`, or None."""
        if self._sidecar is None:
            fields = _without_marks(fields)
            if fields.keys() == {name}:
                return fields[name]
        return fields or None


def _log_of(episodes: Episodes) -> EnvLoggerSource | None:
    """Returns the first log, if all episodes have the specs of its environment."""
    source = episodes.source
    for log in reading.bases(source):
        if isinstance(log, EnvLoggerSource):
            same = _are_recorded(source.fields.steps, log.fields.steps, _SPEC_FIELDS)
            same = same and _are_recorded(source.fields.episode, log.fields.episode, (VIDEO,))
            return log if same and log.is_as_recorded else None
    return None


def _are_recorded(now: Any, recorded: Any, fixed: Sequence[str]) -> bool:
    """Whether fields equal those of a log, except custom data or metadata that a log can hold."""
    fields, old = (dict(leaves_at(as_fields(each), None)) for each in (now, recorded))
    if any(fields.get(path) != old[path] for path in old if root_of(path) in fixed):
        return False
    return all(
        field == old.get(path)
        or (root_of(path) not in fixed and _can_hold(field) and not field.meaning)
        for path, field in fields.items()
    )


def _has_tuples(spec: Any) -> bool:
    if isinstance(spec, Mapping):
        return any(map(_has_tuples, spec.values()))
    return isinstance(spec, list | tuple)


def _with_tuples_of(spec: Any, value: Any) -> Any:
    """Converts dicts of a dataset to the tuples of a spec."""
    if isinstance(spec, Mapping) and isinstance(value, Mapping):
        return {name: _with_tuples_of(spec.get(name), child) for name, child in value.items()}
    if isinstance(spec, list | tuple) and isinstance(value, Mapping):
        children = enumerate(spec)
        return tuple(_with_tuples_of(child, value.get(str(number))) for number, child in children)
    return value


def _recorded_name(path: str) -> str:
    """The name that metadata had in a log, whose name a dataset has for itself."""
    name = path.removeprefix("recorded_")
    return name if name in RESERVED else path


def _with_tuples(content: Any) -> Any:
    """Converts mixed lists of JSON to tuples: lists in a log have items of one type."""
    if isinstance(content, Mapping):
        return {name: _with_tuples(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return tuple(map(_with_tuples, content))
    return content


def _can_hold(field: Any) -> bool:
    """Whether a log can hold values of a field unchanged; image files are bytes."""
    if not isinstance(field, Field) or (not field.encoding and {None, 0} & {*field.shape}):
        return False
    if field.encoding:
        return True
    dtype = field.column_dtype
    return not field.shape if field.is_text else f"{dtype.kind}{dtype.itemsize}" in ARRAYS


def _spec_of(field: Field) -> specs.Array:
    if field.is_text or field.encoding:
        return specs.StringArray((), str if field.dtype == str else bytes)
    return specs.Array(field.shape, field.column_dtype)


def _without_marks(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields without the masks of known values, and without unknown values."""
    marks = {known_field(name): name for name in fields if known_field(name) in fields}
    missing = {name for mark, name in marks.items() if not fields[mark]}
    return {
        name: _without_marks(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if name not in marks and name not in missing
    }
