"""Minari datasets (https://minari.farama.org) as RLDS, read without Minari.

An episode of Minari has `T + 1` observations and infos, and `T` actions, rewards, terminations and
truncations, so nothing is missing in RLDS. The spaces do not describe the files completely: the
dtypes of rewards and infos may differ between episodes (a reward of `0` is an integer, one of `0.5`
is not), some episodes may have no infos, and images are JPEG files since Minari 0.5.3, but raw
arrays in earlier versions.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.alignment import derived_columns
from rlds.formats.minari.attributes import (
    IRREGULAR,
    TOTAL_STEPS,
    common_attributes,
    encode_attributes,
    episode_fields,
)
from rlds.formats.minari.dataset_paths import LEGACY_SIDECAR, dataset_directory
from rlds.formats.minari.hdf5_files import Hdf5Storage
from rlds.formats.minari.spaces import LeafSpace, Spaces
from rlds.formats.minari.storage import (
    ACTIONS,
    FORMATS,
    INFOS,
    OBSERVATIONS,
    REWARDS,
    SCALARS,
    SPACES,
    TERMINATIONS,
    TRUNCATIONS,
    EpisodeStorage,
    StoredColumn,
)
from rlds.formats.minari.tables import TableStorage
from rlds.raw_files.image_files import black_jpeg, jpeg_shape
from rlds.raw_files.input_files import Files
from rlds.raw_files.untrusted import SourceChangedError, check_is_file, source_errors
from rlds.sources.sidecar import SIDECAR_KEY, StoredSidecar
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
from rlds_ecosystem.model.columns import cast_exact, with_placeholder
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import Paths, conflicts, has, nest, root_of

__all__ = ["METADATA_KEY", "MinariSource", "field_path", "recognizes"]

# The metadata key for the content of Minari's metadata.json.
METADATA_KEY = "minari"

_FLAG_COLUMNS = (TERMINATIONS, TRUNCATIONS)
_OBSERVATION_COLUMNS = (OBSERVATIONS, INFOS)
# The new names of columns in steps.
_FIELD_OF_COLUMN = {OBSERVATIONS: rlds.OBSERVATION, ACTIONS: rlds.ACTION, REWARDS: rlds.REWARD}


class MinariSource(Source):
    """The episodes of a Minari dataset in any of its formats: HDF5, Arrow, Parquet.

    Observations and actions have the structure of their spaces; a `Tuple` becomes a dict with the
    names `_index_0`, `_index_1`, .... The bytes of JPEG images do not change. In addition to the
    fields of RLDS, a step has the recorded `terminations` and `truncations`, and `infos` if the
    dataset has them. In addition to the fields of all builders, an episode has:

    * `recorded_episode_id`: the attribute `id`;
    * `seed` and `seed_known`, `options` (in JSON) and `options_known`;
    * `attributes`: further attributes of all episodes, such as `rewards_sum`;
    * `irregular`: attributes that some episodes lack, and the names of missing infos, in JSON.
      Missing infos are zeros in the steps.

    Args:
      path: See `dataset_directory`.
      follow_links: True to read data outside of the HDF5 file: links, external storage and virtual
        datasets. By default they are errors, as they may lead to any file of this machine. The
        linked files count as `inputs`.

    Raises:
      FileNotFoundError: There is no dataset.
      SourceError: The metadata cannot be read, or contradicts the files; no episode can be read.
    """

    def __init__(self, path: str | os.PathLike[str], *, follow_links: bool = False) -> None:
        self._directory = dataset_directory(path)
        self.opened_files = Files(self._directory)
        self._follow_links = follow_links
        self._metadata = _read_metadata(self._metadata_file)
        self._sidecar = self._metadata.pop(SIDECAR_KEY, None)
        self._spaces = self._read_spaces()
        self._storage = self._open()
        with source_errors(self._directory), self._storage.hold_open():
            self._indices = self._check_indices()
            self._columns, self._attributes = self._scan()

    @property
    def _metadata_file(self) -> Any:
        return self._directory / "data" / "metadata.json"

    def _read_spaces(self) -> Spaces:
        spaces = Spaces()
        for path, name in SPACES.items():
            if name not in self._metadata:  # Minari takes the space from the environment.
                continue
            with source_errors(self._metadata_file, field=name):
                try:
                    spaces.add(self._metadata[name], path)
                except ValueError as error:
                    raise SourceError(str(error), file=self._metadata_file, field=name) from error
        return spaces

    def _open(self) -> EpisodeStorage:
        data_format = self._metadata.get("data_format", "hdf5")
        if data_format not in FORMATS:
            raise SourceError(
                f"{data_format!r}, expected one of {FORMATS}",
                file=self._metadata_file,
                field="data_format",
            )
        data = self._directory / "data"
        if data_format == "hdf5":
            return Hdf5Storage(data, self._spaces, follow_links=self._follow_links)
        return TableStorage(data, self._spaces, data_format)

    def stored_file(self, index: int) -> epath.Path:
        """Returns the file of an episode."""
        return stores.as_path(self._directory) / self._storage.path(index)

    def _check_indices(self) -> range:
        total = self._metadata["total_episodes"]
        indices = self._storage.indices()
        if len(indices) != total or indices != list(range(total)):
            indices_of_files = set(indices)
            # The first missing index is in this range.
            first = range(min(total, len(indices) + 1))
            missing = [index for index in first if index not in indices_of_files]
            held = f"the files hold {len(indices)}"
            problem = f"episode {missing[0]} is missing" if missing else held
            raise SourceError(
                f"{total} episodes, but {problem}", file=self._metadata_file, field="total_episodes"
            )
        if not total:
            raise SourceError("there is no episode", file=self._metadata_file)
        return range(total)

    # --- Fields of all episodes.

    def _scan(self) -> tuple[dict[str, Field], dict[str, np.ndarray]]:
        """Returns the fields of all columns, and the common attributes of all episodes.

        Skips damaged episodes; the read of such an episode raises its error.
        """
        all_fields: Paths[Field] = Paths()
        attributes: dict[str, np.ndarray] | None = None
        damage: SourceError | None = None
        for index in self._indices:
            try:
                fields, attributes_here = self._storage.structure(index)
            except SourceChangedError:
                raise
            except SourceError as error:
                damage = damage or error
                continue
            for path, field in fields.items():
                if self._explain_mismatch(path, field) is None and not conflicts(all_fields, path):
                    if path in _FLAG_COLUMNS:  # Some writers store flags as integers.
                        all_fields[path] = Field(np.bool_)
                    else:
                        all_fields[path] = _merge(all_fields.get(path), field)
            attributes = common_attributes(attributes, attributes_here)
        missing = [path for path in self._required_columns() if not has(all_fields, path)]
        if missing:
            raise damage or self._storage.error("missing in all episodes", 0, missing[0])
        return all_fields, attributes or {}

    def _required_columns(self) -> Iterator[str]:
        """Yields the paths of the required columns."""
        yield from SCALARS
        for group, name in SPACES.items():
            if name not in self._metadata:
                yield group
        yield from self._spaces.leaves

    def _explain_mismatch(self, path: str, field: Field) -> str | None:
        """Returns the fault of a field of an episode; None for a valid field."""
        group = root_of(path)
        if group in SCALARS:
            kinds = "bfiu" if group == REWARDS else "biu"
            if field.column_dtype.kind in kinds and not {*field.shape} - {1}:
                return None
            kind = "number" if group == REWARDS else "bool, or 0 or 1,"
            return f"{field}, expected a {kind} for each step"
        if group == INFOS:
            return "an array, expected a group" if path == INFOS else None
        if group not in SPACES:
            return "unknown to Minari"
        leaf = self._spaces.leaves.get(path)
        if leaf is None:
            has_no_space = SPACES[group] not in self._metadata
            return None if has_no_space else f"missing in the {SPACES[group]}"
        return _mismatch(leaf, field)

    # --- Fields in RLDS.

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            reads_rows=True,
            totals=self._totals,
            hold_open=self._storage.hold_open,
            sidecar=lambda: StoredSidecar.in_folder(self._directory, LEGACY_SIDECAR, self._sidecar),
        )

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        steps = {
            field_path(path): dataclasses.replace(field, shape=()) if path in SCALARS else field
            for path, field in self._columns.items()
        }
        return Fields(nest(with_discount(steps)), episode_fields(self._attributes))

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        """The content of metadata.json."""
        return SourceInfo(
            description="Episodes of a Minari dataset.",
            homepage="https://minari.farama.org",
            metadata={METADATA_KEY: self._metadata},
            options={"follow_links": self._follow_links},
        )

    def inputs(self) -> Sequence[epath.Path]:
        """Returns metadata.json and all files with episodes."""
        return [stores.as_path(file) for file in (self._metadata_file, *self._storage.files())]

    def num_episodes(self, split: str) -> int:
        """Returns the number of episodes."""
        return len(self._indices)

    def _totals(self, split: str) -> Mapping[str, int]:
        """Returns the totals in metadata.json."""
        return {name: int(self._metadata[name]) for name in ("total_episodes", "total_steps")}

    def key(self, split: str, index: int) -> str:
        """Returns the name of an episode in HDF5 files: "episode_0", "episode_1", ...."""
        return f"episode_{index}"

    # --- One episode.

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        step_paths, metadata = self.fields.step_paths(fields), self.fields.episode_paths(fields)
        paths = [path for path in self._columns if field_path(path) in step_paths]
        with self._storage.hold_open():
            raw = self._storage.read(index, None if fields is None else {*paths, *SCALARS}, rows)
            absent = self._absent_infos(index, raw.columns) if IRREGULAR in metadata else []
        columns = {
            path: self._fit(path, column, index, 0 if path in SCALARS else rows.start or 0)
            for path, column in raw.columns.items()
        }
        count = self._check_lengths(columns, index, rows)
        total_steps = raw.attributes.get(TOTAL_STEPS, count)
        if not np.array_equal(total_steps, count):
            problem = f"{total_steps!r}, but there are {count} rewards"
            raise self._storage.error(problem, index, TOTAL_STEPS)
        terminated = bool(columns[TERMINATIONS][-1:].any())
        truncated = bool(columns[TRUNCATIONS][-1:].any())
        steps = self._steps(index, columns, paths, rows)
        flags = derived_columns(count + 1, count, terminal=terminated)
        steps |= {name: column[rows] for name, column in flags.items() if name in step_paths}
        return SourceEpisode(
            key=self.key(split, index),
            steps=nest(steps),
            origin=Origin(self._storage.path(index), 0, count + 1),
            truncated=not terminated,
            complete=terminated or truncated,
            metadata=encode_attributes(raw.attributes, self._attributes, absent, index)
            if metadata
            else {},
            counts={"total_episodes": 1, "total_steps": count},
        )

    def _absent_infos(self, index: int, read: Collection[str]) -> list[str]:
        """Returns the infos that an episode lacks, given its columns."""
        unread = [path for path in self._columns if root_of(path) == INFOS and path not in read]
        columns = self._storage.read(index, unread, slice(0)).columns if unread else {}
        return [path for path in unread if path not in columns]

    def _steps(
        self, index: int, columns: Mapping[str, np.ndarray], paths: Collection[str], rows: slice
    ) -> dict[str, Any]:
        """Returns the requested columns, by field path."""
        num_steps = len(range(*rows.indices(len(columns[REWARDS]) + 1)))
        steps = {}
        for path in paths:
            if path in columns:
                column = columns[path][rows] if path in SCALARS else columns[path]
            elif root_of(path) == INFOS:
                field = self._columns[path]
                empty = ("" if field.dtype == str else b"") if field.is_text else 0
                column = np.full((num_steps, *field.shape), empty, field.column_dtype)  # type: ignore[arg-type]
            else:
                raise self._storage.error("missing", index, path)
            if len(column) < num_steps:
                column = with_placeholder(column)
                if self._columns[path].encoding:  # An empty file cannot be decoded.
                    column[-1] = black_jpeg(self._spaces.leaves[path].shape)
            steps[field_path(path)] = column
        return steps

    def _fit(self, path: str, column: StoredColumn, index: int, first_row: int) -> np.ndarray:
        """Converts a column to the dtype and shape of its field."""
        fault = self._explain_mismatch(path, column.field)
        if fault is not None:
            raise self._storage.error(fault, index, path)
        values, expected = column.values, self._columns.get(path)
        if expected is None:
            earlier_paths = [other for other in self._columns if root_of(other) == root_of(path)]
            raise self._storage.error(
                f"missing in earlier episodes, which have {earlier_paths}", index, path
            )
        if path in SCALARS:
            values = values.reshape(len(values))
        elif not _are_alike(column.field, expected):
            fault = f"{column.field}, but {expected} in earlier episodes"
            raise self._storage.error(fault, index, path)
        if expected.encoding:
            self._check_images(values, index, path, first_row)
            return values
        dtype = expected.column_dtype
        if (cast_values := cast_exact(values, dtype)) is None:
            row = next(row for row in range(len(values)) if cast_exact(values[row], dtype) is None)
            fault = f"{values.dtype} {values[row]} does not fit {dtype}, the dtype of all episodes"
            raise self._storage.error(fault, index, path, first_row + row)
        return np.asarray(cast_values)

    def _check_images(self, images: np.ndarray, index: int, path: str, first_row: int) -> None:
        expected = self._spaces.leaves[path].shape
        for row, image in enumerate(images):
            try:
                shape = jpeg_shape(image)
                if shape != expected:
                    raise ValueError(f"an image of shape {shape}, expected {expected}")
            except ValueError as error:
                raise self._storage.error(str(error), index, path, first_row + row) from error

    def _check_lengths(self, columns: Mapping[str, np.ndarray], index: int, rows: slice) -> int:
        """Checks the lengths of columns; returns the number of transitions."""
        for path in SCALARS:
            if path not in columns:
                raise self._storage.error("missing", index, path)
        count = len(columns[REWARDS])
        for path, values in columns.items():
            expected = count + (root_of(path) in _OBSERVATION_COLUMNS)
            if path not in SCALARS:
                expected = len(range(*rows.indices(expected)))
            if len(values) != expected:
                problem = f"{len(values)} rows, expected {expected}: there are {count} rewards"
                raise self._storage.error(problem, index, path)
        return count


def _read_metadata(file: Any) -> dict[str, Any]:
    check_is_file(file)
    with source_errors(file):
        metadata = json.loads(file.read_text())
    for name in ("total_episodes", "total_steps"):
        value = metadata.get(name) if isinstance(metadata, dict) else None
        if not isinstance(value, int) or value < 0:
            raise SourceError(f"{value!r}, expected a number", file=file, field=name)
    return dict(metadata)


def field_path(path: str) -> str:
    """Returns the path of a column in steps."""
    root = root_of(path)
    return _FIELD_OF_COLUMN.get(root, root) + path.removeprefix(root)


def _mismatch(leaf: LeafSpace, field: Field) -> str | None:
    """Returns the difference between a field and its space; None without a difference."""
    if field.encoding:
        return None
    expected = leaf.field
    if expected.is_text or field.is_text:
        is_match = field.dtype == expected.dtype
    elif leaf.kind == "Box":  # Minari itself warns of a different precision.
        is_match = np.can_cast(field.column_dtype, expected.column_dtype, "same_kind")
    else:
        is_match = field.column_dtype.kind in "biu"
    if is_match and field.shape == expected.shape:
        return None
    return f"{field}, expected {expected}: the space is a {leaf.kind}"


def _holds_numbers(field: Field) -> bool:
    return not (field.is_text or field.encoding)


def _are_alike(field: Field, expected: Field) -> bool:
    """Returns True if two fields are equal, apart from the dtype of numbers."""
    if _holds_numbers(field) and _holds_numbers(expected):
        return field.shape == expected.shape
    return field == expected


def _merge(earlier: Field | None, field: Field) -> Field:
    """Returns a field for the values of two fields."""
    if earlier is None or earlier == field:
        return field
    if not (_holds_numbers(field) and _holds_numbers(earlier)):
        return earlier
    dtype = np.result_type(earlier.column_dtype, field.column_dtype)
    return dataclasses.replace(earlier, dtype=dtype)


def recognizes(path: str | os.PathLike[str]) -> bool:
    """Returns True if a path seems to have this format, without a full check."""
    # A TFDS dataset in a folder called `data` has a metadata.json, too.
    return not (dataset_directory(path) / "data" / "features.json").exists()
