"""Shards of WebDataset: tar files, in which a sample is an episode, or a step."""

from __future__ import annotations

import functools
import io
import itertools
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.alignment import derived_columns
from rlds.formats.webdataset.shards import Sample, TarShard, find_shards, first_fields, unique
from rlds.raw_files.image_files import image_field, is_image_file
from rlds.raw_files.npz_files import NpzFile, parse_npy
from rlds.raw_files.untrusted import check_is_file, is_there, source_errors
from rlds.sources.episode_fields import RESERVED
from rlds.sources.sidecar import PackedSidecar, Sidecar, StoredSidecar
from rlds.sources.source import (
    ALL_ROWS,
    Capabilities,
    Fields,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
    with_discount,
)
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import objects
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import Paths, conflicts, has, nest, root_of

__all__ = [
    "FEATURES_FILE",
    "SIDECAR_FIELD",
    "STEPS_FIELD",
    "WebdatasetSource",
    "image_path",
    "path_of",
    "recognizes",
]

# The field of a sample with the arrays of all steps.
STEPS_FIELD = "steps.npz"
# Additions of an export: a file next to the shards, and a field of samples.
FEATURES_FILE, SIDECAR_FIELD = "features.json", "rlds.bin"

_NUMBERED_KEY = re.compile(r"(.*?)[/_-]?([0-9]+)")
_FRAME_NAME = re.compile(r"(.+)\.([0-9]+)\.(png|jpg|jpeg)")
_IMAGES, _TEXTS, _INTEGERS = ("png", "jpg", "jpeg"), ("json", "txt", "text"), ("cls", "id", "index")
_STEP_FIELDS = (rlds.OBSERVATION, rlds.ACTION, rlds.REWARD, rlds.DISCOUNT, *rlds.STEP_FLAGS)


class _RawEpisode(NamedTuple):
    """An unchecked episode: its fields of steps, and of the episode, by path."""

    steps: dict[str, np.ndarray]
    episode: dict[str, Any]
    num_members: int


class WebdatasetSource(Source):
    """Shards of WebDataset, tar files in which a sample is an episode or a step.

    With `group="sample"`, a sample is an episode. The fields of steps are the arrays of its
    `steps.npz`, other NumPy arrays with as many rows, and images `<name>.<index>.png` or `.jpg`.
    All other fields belong to the episode.

    With `group="number"`, a sample is a step, and its key ends in the index of the step, as
    `ep1/003` or `run_12`. Consecutive samples with the same key before the index are an episode,
    also across shards. An episode is damaged if steps are missing between shards, or follow steps
    of other episodes. Without its first steps at the begin of a shard, it is not `complete`.

    The name of a field without its suffix is its path, with dots as separators:
    `observation.wrist.jpg` is `observation/wrist`. Images with other names belong to the
    observation. `.npy` and `.npz` are arrays, `.cls` is an integer, `.json` and `.txt` are text,
    and JPEG and PNG files stay files. All other files stay bytes: no pickle is ever read.

    Episodes have no final observation. The last step is a terminal state if `is_terminal` is set.

    Args:
      path: A folder with tar files, or one of them.
      group: The unit of a sample.
      fields: The paths of fields of samples, such as `{"jpg": "observation/camera"}`; fields with
        an empty path are left out.

    Raises:
      FileNotFoundError: There is no tar file.
      SourceError: A file is not a tar file, or no sample can be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        group: Literal["sample", "number"] = "sample",
        fields: Mapping[str, str] | None = None,
    ) -> None:
        if group not in ("sample", "number"):
            raise ValueError(f"group: got {group!r}, expected 'sample' or 'number'")
        self._group, self._names = group, dict(fields or {})
        self._directory = stores.as_path(path)
        files = find_shards(path)
        if not files:
            raise FileNotFoundError(f"{os.fspath(path)!r} has no tar files.")
        self._is_exported = self._directory.is_dir() and is_there(self._directory / FEATURES_FILE)
        self._shards = [TarShard(file) for file in files]
        self._samples = [(shard, sample) for shard in self._shards for sample in shard.samples]
        self._episodes: list[range] = []  # The samples of each episode.
        # Errors of episodes whose steps are interleaved with other episodes, by name.
        self._scattered: dict[str, SourceError] = {}
        with source_errors(files[0]):
            self._find_episodes()
            self._keys = unique([self._name_of(rows[0])[0] for rows in self._episodes])
            for key in self._keys:
                key.encode()
        self._find_fields()

    def _find_episodes(self) -> None:
        """Finds the samples of each episode."""
        last_steps: dict[str, int | None] = {}  # The last step index, by name.
        name: str | None = None
        for row, (shard, sample) in enumerate(self._samples):
            previous, (name, step) = name, self._name_of(row)
            last_step = last_steps.get(name)
            rises = last_step is not None and step is not None and step > last_step
            # Shards may restart the step indices.
            continues = name == previous and (rises or sample.position > 0)
            if self._group == "number" and continues:
                self._episodes[-1] = range(self._episodes[-1].start, row + 1)
            else:
                if rises:
                    problem = f"step {step} comes after steps of other episodes: sort the samples"
                    self._scattered[name] = SourceError(problem, file=shard.path, episode=name)
                self._episodes.append(range(row, row + 1))
            last_steps[name] = step

    def _name_of(self, row: int) -> tuple[str, int | None]:
        """Returns the key of the episode of a sample, and the index of the step."""
        key = self._samples[row][1].key
        match = _NUMBERED_KEY.fullmatch(key) if self._group == "number" else None
        return (key, None) if match is None else (match[1], int(match[2]))

    # --- Fields and metadata.

    def _find_fields(self) -> None:
        """Determines the fields from the first readable episode."""
        self._steps: dict[str, Field] = {}
        self._episode: dict[str, Field] = {}
        damage: SourceError | None = None
        for rows in self._episodes:
            try:
                self._steps, self._episode = _fields_of(self._read_raw(rows))
                break
            except SourceError as error:
                damage = damage or error
        else:
            raise damage or SourceError("no samples", file=self._shards[0].path)
        odd = [path for path in (*self._steps, *self._episode) if path[:1].isdecimal()]
        if odd and self._group == "number":
            warnings.warn(
                f"{self._shards[0].path}: a field has the name {odd[0]!r}. In WebDataset, a key "
                "ends at the first dot of a name: write keys without dots",
                stacklevel=2,
            )

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        fields = {p: field for p, field in self._steps.items() if p not in rlds.STEP_FLAGS}
        return Fields(nest(with_discount(fields)), nest(self._episode))

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        return SourceInfo(
            description="Episodes in shards of WebDataset.",
            homepage="https://github.com/webdataset/webdataset",
            options={"group": self._group, "fields": self._names},
        )

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(totals=self._totals, faults=self._find_faults, sidecar=self._sidecar)

    def _sidecar(self) -> StoredSidecar | None:
        if not self._is_exported:
            return None
        file = self._directory / FEATURES_FILE
        check_is_file(file)
        with source_errors(file):
            sidecar = Sidecar.from_json(file.read_bytes())
        return PackedSidecar(sidecar, file, self._read_packed, len(self._episodes), [file])

    def _read_packed(self, index: int) -> bytes:
        """Returns the values of an episode in the sidecar."""
        shard, sample = self.stored_sample(index)
        return shard.read(sample, [SIDECAR_FIELD])[SIDECAR_FIELD]

    def stored_sample(self, index: int) -> tuple[TarShard, Sample]:
        """Returns the shard and the sample of an episode that is a single sample."""
        return self._samples[self._episodes[index][0]]

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [shard.path for shard in self._shards]

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._episodes)

    def _totals(self, split: str) -> Mapping[str, int]:
        return {"members": sum(shard.num_fields for shard in self._shards)}

    def _find_faults(self, split: str) -> Iterator[SourceError]:
        for shard in self._shards:
            if not shard.is_complete:
                problem = "no end mark: the file was cut, or is damaged after the last sample"
                yield SourceError(problem, file=shard.path)

    @override
    def key(self, split: str, index: int) -> str:
        return self._keys[index]

    # --- One episode.

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        samples = self._episodes[index]
        (shard, start), (last_shard, end) = (self._samples[samples[row]] for row in (0, -1))
        raw = self._read_raw(samples)
        self._check(raw, shard.path)
        length = len(next(iter(raw.steps.values())))
        terminal = raw.steps.get(rlds.IS_TERMINAL)
        is_terminal = terminal is not None and bool(np.asarray(terminal)[-1])
        flags = derived_columns(length, length, terminal=is_terminal)
        if has(raw.steps, rlds.DISCOUNT):
            del flags[rlds.DISCOUNT]
        is_cut = end == last_shard.samples[-1] and not last_shard.is_complete
        begins_inside = not start.position and (self._name_of(samples[0])[1] or 0) > 1
        return SourceEpisode(
            key=self.key(split, index),
            steps=nest({**raw.steps, **flags}),
            origin=Origin(str(shard.path.name), start.position, start.position + len(samples)),
            truncated=not is_terminal,
            final_observation_known=False,
            complete=not is_cut and not begins_inside,
            metadata=nest(raw.episode),
            counts={"members": raw.num_members},
        )

    def _check(self, raw: _RawEpisode, file: epath.Path) -> None:
        """Checks that the episode has the fields of the first episode."""
        for expected_fields, fields in zip((self._steps, self._episode), _fields_of(raw)):
            for path in {**expected_fields, **fields}:
                expected, field = expected_fields.get(path), fields.get(path)
                if expected is None or field is None:
                    problem = "missing" if field is None else "no such field in the first episode"
                    raise SourceError(problem, file=file, field=path)
                # The sidecar declares the sizes.
                may_differ = self._is_exported and expected.encoding and field.encoding
                if not may_differ and (expected.dtype, expected.shape) != (
                    field.dtype,
                    field.shape,
                ):
                    problem = f"{field}, but {expected} in the first episode"
                    raise SourceError(problem, file=file, field=path)

    def _read_raw(self, rows: range) -> _RawEpisode:
        """Reads the samples of an episode."""
        (shard, sample), name = self._samples[rows[0]], self._name_of(rows[0])[0]
        if name in self._scattered:
            raise self._scattered[name]
        with source_errors(shard.path, episode=name):
            if self._group == "sample":
                return self._from_sample(shard, shard.read(sample))
            return self._from_samples(rows)

    def _from_sample(self, shard: TarShard, members: Mapping[str, bytes]) -> _RawEpisode:
        """Reads an episode that is a sample."""
        frames: dict[str, list[bytes]] = {}
        steps: dict[str, np.ndarray] = {}
        contents = {}
        for name, data in members.items():
            match = _FRAME_NAME.fullmatch(name)
            if name == STEPS_FIELD:
                steps |= _arrays(shard.path, name, data)
            elif match is None:
                contents[name] = data
            elif path := self._names.get(match[1], image_path(match[1].replace(".", "/"))):
                frames.setdefault(path, []).append(data)
        steps |= {path: objects(files) for path, files in frames.items()}
        values = self._values(shard.path, contents)
        lengths = [len(column) for column in steps.values() if column.ndim]
        actions = [value for path, value in values.items() if root_of(path) == rlds.ACTION]
        length = (lengths or [len(value) for value in actions if np.ndim(value)] or [0])[0]
        for path, value in values.items():
            has_rows = isinstance(value, np.ndarray) and value.shape[:1] == (length,)
            if path in self._steps if self._steps else has_rows:  # The first episode decides.
                steps[path] = np.asarray(value)
        for path, column in steps.items():
            if not length or column.shape[:1] != (length,):
                problem = f"shape {column.shape}, expected {length} rows"
                raise SourceError(problem, file=shard.path, field=path)
        if not steps:
            raise SourceError("no steps.npz, actions or frames", file=shard.path)
        _check_paths(shard, steps)
        episode_values = {
            path: value
            for path, value in values.items()
            if path not in steps and root_of(path) not in RESERVED
        }
        return _RawEpisode(steps, episode_values, len(members))

    def _from_samples(self, rows: range) -> _RawEpisode:
        """Reads an episode whose steps are samples."""
        self._check_indices(rows)
        columns: dict[str, list[Any]] = {}
        num_members = 0
        for shard, sample in (self._samples[row] for row in rows):
            members = shard.read(sample)
            num_members += len(members)
            for path, value in self._values(shard.path, members).items():
                columns.setdefault(path, []).append(value)
        shard, steps = self._samples[rows[0]][0], {}
        for path, values in columns.items():
            if len(values) != len(rows):
                problem = f"only in {len(values)} of {len(rows)} steps"
                raise SourceError(problem, file=shard.path, field=path)
            is_object = isinstance(values[0], str | bytes)
            with source_errors(shard.path, field=path):
                steps[path] = objects(values) if is_object else np.stack(values)
        _check_paths(shard, steps)
        return _RawEpisode(steps, {}, num_members)

    def _check_indices(self, rows: range) -> None:
        """Checks that step indices increase, without a gap between shards."""
        indices = [self._name_of(row)[1] or 0 for row in rows]
        files = [self._samples[row][0].path for row in rows]
        pairs = list(itertools.pairwise(zip(indices, files)))
        stride = max([1, *(step - last_step for (last_step, a), (step, b) in pairs if a == b)])
        for row, ((last_step, last_file), (step, file)) in enumerate(pairs, 1):
            if step <= last_step or (last_file != file and step - last_step > stride):
                problem = f"step {step} after step {last_step}"
                if last_file != file:
                    problem += (
                        f", with which {last_file.name} ends: is a shard missing between the two?"
                    )
                raise SourceError(problem, file=file, row=row)

    def _values(self, file: epath.Path, members: Mapping[str, bytes]) -> dict[str, Any]:
        """Returns the values of the fields of a sample, by path."""
        values: dict[str, Any] = {}
        for name, data in members.items():
            for path, value in self._value(file, name, data).items():
                if path in values:
                    problem = f"another field is {path!r}, too: rename one with `fields`"
                    raise SourceError(problem, file=file, field=name)
                values[path] = value
        return values

    def _value(self, file: epath.Path, name: str, data: bytes) -> dict[str, Any]:
        path, ending = self._names.get(name), name.rpartition(".")[2]
        if path == "" or name == SIDECAR_FIELD:
            return {}
        if ending == "npz":
            prefix = path or path_of(name)
            return {f"{prefix}/{p}": value for p, value in _arrays(file, name, data).items()}
        value: Any = data
        with source_errors(file, field=name):
            if ending == "npy":
                value = parse_npy(data, file)
            elif ending in _TEXTS:
                value = data.decode()
            elif ending in _INTEGERS:
                value = np.int64(int(data))
        if path is None:
            path = path_of(name)
            if ending in _IMAGES and self._group == "number":
                path = image_path(path)
        return {path: value}


def _arrays(file: epath.Path, name: str, data: bytes) -> dict[str, np.ndarray]:
    """Returns the arrays of an `.npz` file in a sample, by path."""
    with source_errors(file, field=name):
        arrays = NpzFile(file, io.BytesIO(data))
        return {path: arrays.read(path) for path in arrays.arrays}


def path_of(name: str) -> str:
    """Returns the path of a field from its name in a sample."""
    return (name.rpartition(".")[0] or name).replace(".", "/")


def image_path(path: str) -> str:
    """Returns the path of images; without a group, in the observation."""
    return path if root_of(path) in _STEP_FIELDS else f"{rlds.OBSERVATION}/{path}"


def _fields_of(raw: _RawEpisode) -> tuple[dict[str, Field], dict[str, Field]]:
    """Returns the fields of steps, and of the episode."""
    steps = {path: _field_of(column) for path, column in raw.steps.items()}
    return steps, {path: _field_of(_as_column(value)) for path, value in raw.episode.items()}


def _check_paths(shard: TarShard, steps: Mapping[str, Any]) -> None:
    seen: Paths[None] = Paths()
    for path in steps:
        if "" in path.split("/") or conflicts(seen, path):
            raise SourceError(
                "another field has this path, or one above or below it", file=shard.path, field=path
            )
        seen[path] = None


def _as_column(value: Any) -> np.ndarray:
    """Returns a value as a column of one row."""
    return objects([value]) if isinstance(value, str | bytes) else np.asarray(value)[np.newaxis]


def _field_of(column: np.ndarray) -> Field:
    if column.dtype != object:
        return Field(column.dtype, column.shape[1:])
    first_value = column.reshape(-1)[0] if column.size else ""
    if isinstance(first_value, bytes) and is_image_file(first_value):
        return image_field(first_value)
    return Field(bytes if isinstance(first_value, bytes) else str, column.shape[1:])


def recognizes(path: str | os.PathLike[str]) -> bool:
    """Whether a path has this format, judged by the names in its first sample."""
    files = find_shards(path)
    fields = first_fields(files[0]) if files else []
    return any(name == STEPS_FIELD or root_of(path_of(name)) == rlds.ACTION for name in fields)
