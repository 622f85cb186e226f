"""Exports to EnvLogger logs; episodes from logs are copied."""

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
from rlds.sources.restored_source import stored_in
from rlds.sources.sidecar import Sidecar, SidecarWriter
from rlds.sources.source import TRANSITION_FIELDS, Location, SourceEpisode
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

_SPECS_KEY = "environment_specs"
_SPEC_FIELDS = (rlds.OBSERVATION, *TRANSITION_FIELDS)


class EnvLoggerExport(Export):
    """An EnvLogger log, with steps in the order of the environment.

    Observations, actions, rewards and discounts become time steps, and all further fields of steps
    custom data; fields of episodes become their metadata. JPEG files, and PNG files of several
    sizes, are bytes. All other data is in the folder `.rlds` of the log: arrays of varying size,
    the encodings of images, the flags of other formats, the last action of an episode without a
    final observation. Unchanged episodes of logs are copied; if only custom data or metadata
    changed, the specs of the environment and the packets of video are kept.

    Args:
      episodes: The episodes.
    """

    format = "envlogger"
    copies_parts = True

    def __init__(self, episodes: Episodes) -> None:
        super().__init__(episodes)
        self._fields = dict(leaves_at(episodes.spec[rlds.STEPS], None))
        self._sidecar: Sidecar | None = None
        self._log = _common_log(episodes)
        if self._log is not None:
            fields = leaves_at(episodes.source.fields.episode, None)
            # Copies renumber keys, and may cut video packets and clips at different frames.
            self.unchecked = {"key", *(path for path, _ in fields if root_of(path) == VIDEO)}
            return
        steps = [path for path in self._fields if path not in rlds.STEP_FLAGS]
        fixed = [p for p in steps if None not in getattr(self._fields[p], "shape", (None,))]
        self.pngs = pngs_of(self._fields, fixed)
        field_paths = {path: path for path in steps if _can_hold(self._fields[path])}
        episode_paths = {
            path: path
            for path, field in leaves_at(episodes.source.fields.episode, None)
            if _can_hold(field) and root_of(path) != VIDEO
        }
        final_paths = [path for path in field_paths if root_of(path) not in TRANSITION_FIELDS]
        self._sidecar = Sidecar.create(
            episodes,
            field_paths,
            final_paths,
            arrays=self.pngs,
            drops_final_row=True,
            episode_paths=episode_paths,
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
            for episode in self.iter_items(self._can_copy):
                if isinstance(episode, Location):
                    log_source, stored_sidecar = stored_in(episode, EnvLoggerSource)
                    log.copy(log_source.stored_episode(episode.split, episode.index))
                    if sidecar is not None:
                        sidecar.copy(stored_sidecar, episode.split, episode.index)
                    continue
                metadata = self._episode_metadata(episode)
                steps = list(map(encode, self._steps(episode)))
                log.add(steps, None if metadata is None else codec.encode_to_bytes(metadata))
                if sidecar is not None:
                    sidecar.add(episode)
            log.close()

    def _can_copy(self, location: Location) -> bool:
        if isinstance(location.source, EnvLoggerSource):
            return self._log is not None and location.source.is_copied(location.split)
        if self._sidecar is None or not self._is_own(location.source):
            return False
        log_source, sidecar = stored_in(location, EnvLoggerSource)
        is_alike = sidecar is not None and sidecar.sidecar.layout == self._sidecar.layout
        return is_alike and log_source.is_unchanged and log_source.is_copied(location.split)

    @override
    def stored_digest(self, location: Location) -> int:
        log_source, sidecar = stored_in(location, EnvLoggerSource)
        digest, sidecar_row = log_source.stored_digest(location.split, location.index), b""
        if sidecar is not None:
            sidecar_row = sidecar.sidecar.pack_row(sidecar.read(location.split, location.index))
        return int(google_crc32c.extend(digest, sidecar_row))

    def _metadata(self) -> dict[str, Any]:
        """Returns the metadata of the log, with the recorded specs, or specs of the fields."""
        metadata = dict(self.episodes.metadata)
        if lineage.KEY in metadata:  # The nesting of values in logs is limited.
            metadata[lineage.KEY] = json.dumps(metadata[lineage.KEY], ensure_ascii=False)
        if self._log is None:
            return {**_with_tuples(metadata), _SPECS_KEY: self._specs()}
        previous = self._log.source_info.metadata
        new = {name: value for name, value in metadata.items() if previous.get(name) != value}
        return {**self._log.recorded_metadata(), **_with_tuples(new)}

    def _specs(self) -> dict[str, Any]:
        """Returns the specs of an environment with the fields of steps."""
        assert self._sidecar is not None
        nested = nest({path: _make_spec(self._sidecar.steps[path]) for path in self._sidecar.paths})
        known_specs = {name: nested[name] for name in _SPEC_FIELDS if name in nested}
        known_specs.setdefault(rlds.DISCOUNT, specs.Array((), np.float32))
        return {f"{name}_spec": spec_codec.encode(spec) for name, spec in known_specs.items()}

    def _episode_metadata(self, episode: SourceEpisode) -> Any:
        values = dict(leaves_at(episode.metadata, None))
        if self._sidecar is not None:
            values = {path: values[path] for path in self._sidecar.episode_paths}
        else:  # The packets of clips are in the steps.
            values = {
                _original_name(path): value
                for path, value in values.items()
                if root_of(path) != VIDEO
            }
        return self._to_recorded(nest(values), "episode_metadata")

    def _steps(self, episode: SourceEpisode) -> Iterator[StepData]:
        """Yields the steps of an episode in the order of an environment, with previous rewards."""
        num_steps, terminal = episode.num_steps, bool(episode.steps[rlds.IS_TERMINAL][-1])
        columns = dict(leaves_at(episode.steps, None))
        if self._sidecar is not None:
            sidecar_columns = self._sidecar.columns(episode)
            columns = {path: sidecar_columns[path] for path in self._sidecar.paths}
        columns = {path: c for path, c in columns.items() if path not in rlds.STEP_FLAGS}
        if self._log is not None:
            columns |= self._log.packet_columns(episode)
        specs = self._log.specs.items() if self._log is not None else ()
        tuples = [(name, spec) for name, spec in specs if _has_tuples(spec)]
        has_first, has_last = episode.complete or not terminal, episode.complete or terminal
        previous: dict[str, Any] = {}  # Reward, discount and action of the previous step.
        for row in range(num_steps):
            fields = nest({path: column[row] for path, column in columns.items()})
            fields |= {n: _to_tuples(spec, fields[n]) for n, spec in tuples if n in fields}
            is_last, is_first = row == num_steps - 1, row == 0
            kind = dm_env.StepType.MID
            if is_first and has_first and not (is_last and has_last and num_steps > 1):
                kind = dm_env.StepType.FIRST
            elif is_last and has_last:
                kind = dm_env.StepType.LAST
            received: dict[str, Any] = {}
            if not is_first:
                received = {rlds.DISCOUNT: np.float32(not (is_last and terminal)), **previous}
            previous = {name: fields.pop(name) for name in TRANSITION_FIELDS if name in fields}
            timestep = dm_env.TimeStep(
                kind,
                received.get(rlds.REWARD),
                received.get(rlds.DISCOUNT),
                fields.pop(rlds.OBSERVATION, None),
            )
            custom_data = self._to_recorded(fields, "custom_data")
            yield StepData(timestep, received.get(rlds.ACTION), custom_data)

    def _to_recorded(self, fields: dict[str, Any], name: str) -> Any:
        """Returns fields as recorded: a dict; the value, if `name` is the only field; or None."""
        if self._sidecar is None:
            fields = _drop_masks(fields)
            if fields.keys() == {name}:
                return fields[name]
        return fields or None


def _common_log(episodes: Episodes) -> EnvLoggerSource | None:
    """Returns the first log, if the specs of its environment fit all episodes."""
    source = episodes.source
    for log in reading.roots(source):
        if isinstance(log, EnvLoggerSource):
            is_same = _match_log(source.fields.steps, log.fields.steps, _SPEC_FIELDS)
            is_same = is_same and _match_log(source.fields.episode, log.fields.episode, (VIDEO,))
            return log if is_same and log.is_unchanged else None
    return None


def _match_log(spec: Any, log_spec: Any, fixed: Sequence[str]) -> bool:
    """Returns True if fields fit a log, and its fixed fields are unchanged."""
    fields, old = (dict(leaves_at(as_fields(item), None)) for item in (spec, log_spec))
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


def _to_tuples(spec: Any, value: Any) -> Any:
    """Converts dicts of a dataset to the tuples of a spec."""
    if isinstance(spec, Mapping) and isinstance(value, Mapping):
        return {name: _to_tuples(spec.get(name), child) for name, child in value.items()}
    if isinstance(spec, list | tuple) and isinstance(value, Mapping):
        children = enumerate(spec)
        return tuple(_to_tuples(child, value.get(str(index))) for index, child in children)
    return value


def _original_name(path: str) -> str:
    """Returns the name of metadata in a log, before a reserved name was changed."""
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
    """Returns True if a log can hold a field without changes, or as the bytes of image files."""
    if not isinstance(field, Field) or (not field.encoding and {None, 0} & {*field.shape}):
        return False
    if field.encoding:
        return True
    dtype = field.column_dtype
    return not field.shape if field.is_text else f"{dtype.kind}{dtype.itemsize}" in ARRAYS


def _make_spec(field: Field) -> specs.Array:
    if field.is_text or field.encoding:
        return specs.StringArray((), str if field.dtype == str else bytes)
    return specs.Array(field.shape, field.column_dtype)


def _drop_masks(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields without placeholders, and without the masks of placeholders."""
    masks = {known_field(name): name for name in fields if known_field(name) in fields}
    missing = {name for mask, name in masks.items() if not fields[mask]}
    return {
        name: _drop_masks(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if name not in masks and name not in missing
    }
