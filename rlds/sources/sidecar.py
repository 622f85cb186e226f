"""The sidecar of a dataset: values that its format cannot hold, stored next to its data.

Formats of demonstrations hold an observation and an action in each of `T` rows, and little else: no
final observation, no flags, no metadata of episodes, no text of any length. An export writes these
values to a sidecar: JSON for the dataset, and columns of values for its episodes
(`rlds.sources.sidecar_columns`). The sidecar is in the folder `.rlds` of the data, or in the file
itself, where other readers ignore it. With it, reading the export restores the episodes unchanged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
import tfds_files
from rlds.raw_files.untrusted import check_is_file, check_link, is_there, source_errors
from rlds.sources.digests import as_array
from rlds.sources.episode_fields import EPISODE_FIELDS
from rlds.sources.episodes import Episodes
from rlds.sources.legacy_sidecars import LegacyRows
from rlds.sources.sidecar_columns import (
    EPISODE,
    EPISODES,
    FILE,
    FINAL,
    FLAGS,
    KEY,
    STEPS,
    Columns,
    ColumnsWriter,
    Row,
    pack,
    unpack,
)
from rlds.sources.source import (
    INFO_TEXTS,
    Lengths,
    Origin,
    SourceEpisode,
    SourceError,
    is_derived,
    require_files,
)
from rlds.sources.texts import as_text, as_texts
from rlds.video import CLIP, FIRST
from rlds.video.container import Clip, split_clip, whole_clip
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.caches import cache_folder
from rlds_ecosystem.files.mapping import map_file
from rlds_ecosystem.files.replacing import FOLDER
from rlds_ecosystem.files.whole_files import write_atomically
from rlds_ecosystem.model.columns import stack_values, step_flags
from rlds_ecosystem.model.fields import DepthCodes, Field, match_columns
from rlds_ecosystem.model.nests import leaves_at, nest
from tfds_files.columns import RaggedColumn
from tfds_files.features import Image

__all__ = [
    "FIELDS",
    "SIDECAR_BYTES",
    "SIDECAR_ENDS",
    "SIDECAR_FILES",
    "SIDECAR_KEY",
    "SIDECAR_TEXT",
    "LostSidecarError",
    "PackedSidecar",
    "Sidecar",
    "SidecarWriter",
    "StoredSidecar",
    "field_from_json",
    "field_json",
]

SIDECAR_KEY = "rlds_sidecar"
"""The key in the metadata of the data under which the digest of a sidecar file is stored."""

SIDECAR_TEXT = "rlds/json"
"""The array with the JSON of a sidecar, in a file of arrays."""

SIDECAR_ENDS, SIDECAR_BYTES = "rlds/ends", "rlds/episodes"
"""The arrays of sidecars of earlier releases, see `PackedSidecar.in_arrays`."""

# The JSON file and the folder of columns in the folder `.rlds`, and the files of earlier releases.
_TEXT_FILE, _COLUMNS_FOLDER = "about.json", "columns"
SIDECAR_FILES = f"{FOLDER}/{_TEXT_FILE}", f"{FOLDER}/{_COLUMNS_FOLDER}"
"""The file and the folder of a sidecar, below the folder of a dataset."""

_LEGACY_TEXT, _LEGACY_EPISODES = "rlds.json", "rlds.tfrecord"

FIELDS = "fields"
"""The key of the meaning of fields in the metadata of a sidecar of a dataset."""

_VERSION, _SIZES_KEY = 2, "sizes"
# The smallest number of episodes for which a legacy sidecar caches keys and lengths.
_MIN_CACHED_EPISODES = 1000
# The number of episodes that are copied at a time; their values may be large.
_MAX_COPY_EPISODES = 32


@dataclasses.dataclass(frozen=True)
class Sidecar:
    """The layout of a sidecar: its fields, and the fields in the format itself.

    Attributes:
      steps: All fields of a step, by path, without flags.
      episode: The fields of episodes that the source declares, by path.
      paths: The names of step fields in the format, by path. Other step fields are in the sidecar.
      episode_paths: The same for episode fields.
      final_row_paths: The step fields in the format with a row for the final observation. For the
        other `paths`, the sidecar has this row.
      metadata: The metadata of the dataset: attributes of `Source`, by name.
      drops_final_row: True if the format always treats the last observation as the final one, and
        has no other values in its row. In this case, the sidecar has these values.
      is_metadata_only: True if the sidecar holds only metadata of the dataset, none of episodes.
      clips: Cameras of `episode_paths` whose clips in the format end with the last row. Later
        frames are in the sidecar.

    >>> sidecar = Sidecar({"x": Field(np.float32)}, {}, {"x": "data/x"})
    >>> steps = {"x": np.array([1, 2, 3], "f4"), **step_flags([3], [True])}
    >>> episode = SourceEpisode("a", steps, Origin("a.npz", 0, 3), truncated=False)
    >>> data = sidecar.pack(episode)
    >>> sidecar = Sidecar.from_json(sidecar.to_json())
    >>> sidecar.unpack(data, {"x": steps["x"][:2]}).steps["x"]
    array([1., 2., 3.], dtype=float32)
    """

    steps: Mapping[str, Field]
    episode: Mapping[str, Field]
    paths: Mapping[str, str]
    final_row_paths: Collection[str] = ()
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    drops_final_row: bool = False
    episode_paths: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_metadata_only: bool = False
    clips: Collection[str] = ()

    @classmethod
    def create(
        cls,
        episodes: Episodes,
        paths: Mapping[str, str],
        final_row_paths: Collection[str] = (),
        *,
        arrays: Collection[str] = (),
        **layout: Any,
    ) -> Sidecar:
        """Returns the sidecar for episodes.

        Args:
          episodes: The episodes.
          paths: See the class.
          final_row_paths: See the class.
          arrays: The fields of steps whose image files become arrays.
          **layout: Other arguments of the class: `drops_final_row`, `episode_paths`, `clips`.

        Raises:
          ValueError: A field of the episodes cannot be stored.
        """
        spec = episodes.spec
        steps = dict(leaves_at(spec.pop(rlds.STEPS), None))
        episode_spec = {name: field for name, field in spec.items() if name not in EPISODE_FIELDS}
        fields = {**steps, **(episode := dict(leaves_at(episode_spec, None)))}
        for path, field in fields.items():
            if not isinstance(field, Field):
                raise ValueError(f"{path}: {field} cannot be exported")
        steps = {path: field for path, field in steps.items() if path not in rlds.STEP_FLAGS}
        steps |= {path: dataclasses.replace(steps[path], encoding="") for path in arrays}
        metadata = {k: v for k, v in cls.metadata_only(episodes).metadata.items() if k != FIELDS}
        return cls(steps, episode, dict(paths), tuple(final_row_paths), metadata, **layout)

    @classmethod
    def metadata_only(cls, episodes: Episodes, skipped: str = "") -> Sidecar:
        """Returns the sidecar of a format that holds complete episodes: only metadata.

        Args:
          episodes: The episodes.
          skipped: The key of metadata that the format itself holds.
        """
        source = episodes.source
        metadata = {
            "metadata": {name: v for name, v in episodes.metadata.items() if name != skipped},
            **{name: getattr(source.source_info, name) for name in INFO_TEXTS},
        }
        leaves = leaves_at(episodes.spec, None)
        fields = {path: f for path, f in leaves if isinstance(f, Field) and f.meaning}
        metadata |= {FIELDS: {p: field_json(f) for p, f in fields.items()}} if fields else {}
        return cls({}, {}, {}, (), metadata, is_metadata_only=True)

    def to_json(self, columns: ColumnsWriter | None = None) -> str:
        """Returns the JSON of a sidecar; with the number of episodes and sizes of `columns`."""
        return json.dumps(
            {
                "version": _VERSION,
                **(
                    {
                        EPISODES: columns.num_episodes,
                        _SIZES_KEY: dict(sorted(columns.sizes.items())),
                    }
                    if columns
                    else {}
                ),
                "steps": {path: field_json(field) for path, field in self.steps.items()},
                "episode": {path: field_json(field) for path, field in self.episode.items()},
                "places": dict(self.paths),
                "episode_places": dict(self.episode_paths),
                "whole": list(self.final_row_paths),
                "cuts_last": self.drops_final_row,
                **({"about": True} if self.is_metadata_only else {}),
                **({"clips": list(self.clips)} if self.clips else {}),
                "metadata": self.metadata,
            },
            indent=1,
        )

    @property
    def layout(self) -> Any:
        """The layout of the sidecar without metadata, in the types of JSON."""
        return json.loads(dataclasses.replace(self, metadata={}).to_json())

    @property
    def digest(self) -> str:
        """The digest of the sidecar in the metadata of its dataset."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:32]

    @classmethod
    def from_json(cls, text: str | bytes) -> Sidecar:
        """Reads the JSON of `to_json`.

        Raises:
          ValueError: The JSON is no sidecar, or of a later version.
        """
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("version") not in (1, _VERSION):
            raise ValueError(f"expected version {_VERSION} of a sidecar; update rlds")
        try:
            steps, episode = (
                {str(path): field_from_json(field) for path, field in content[name].items()}
                for name in ("steps", "episode")
            )
            paths, episode_paths = (
                {str(path): str(other) for path, other in content.get(name, {}).items()}
                for name in ("places", "episode_places")
            )
            final_row_paths = [str(path) for path in content["whole"]]
            metadata = dict(content["metadata"])
            drops_final_row = bool(content["cuts_last"])
            clips = [str(camera) for camera in content.get("clips", ())]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a sidecar: {error}") from error
        is_metadata_only = content.get("about") is True
        arguments = final_row_paths, metadata, drops_final_row, episode_paths, is_metadata_only
        sidecar = cls(steps, episode, paths, *arguments, clips)
        in_format = episode_paths.keys()
        is_declared = paths.keys() | {*final_row_paths} <= steps.keys()
        is_declared &= in_format <= episode.keys()
        if not is_declared or not sidecar._clip_fields <= in_format:
            raise ValueError("not a sidecar: it has undeclared fields")
        return sidecar

    def row(self, episode: SourceEpisode) -> Row:
        """Returns the values of an episode in the sidecar.

        Raises:
          ValueError: The episode lacks the declared fields.
        """
        num_steps, is_known = episode.num_steps, episode.final_observation_known
        columns, num_rows = self.columns(episode), self._num_rows(num_steps, is_known)
        is_terminal = bool(episode.steps[rlds.IS_TERMINAL][-1])
        derived_flags = self.derived_flags(num_steps, is_known, is_terminal)
        flags = {name: episode.steps[name] for name in rlds.STEP_FLAGS if name in episode.steps}
        values = {**derived_flags, **columns, **flags}
        stored_flags = {
            name: column[:0] if np.array_equal(values[name], column) else np.asarray(values[name])
            for name, column in derived_flags.items()
        }
        final = {path: columns[path][num_rows:] for path in self._final_paths}
        origin = episode.origin
        bounds = num_steps, num_steps - num_rows, origin.begin, origin.end
        return {
            EPISODES: (*bounds, is_known, is_terminal, episode.truncated, episode.complete),
            KEY: [episode.key],
            FILE: [origin.file],
            **{FLAGS + name: column[np.newaxis] for name, column in stored_flags.items()},
            **{EPISODE + path: column for path, column in self._metadata_of(episode).items()},
            **{FINAL + path: column for path, column in final.items()},
            **{STEPS + path: columns[path] for path in self._stored_steps},
        }

    def pack(self, episode: SourceEpisode) -> bytes:
        """Packs the sidecar values of an episode in one record.

        Raises:
          ValueError: The episode lacks the declared fields.
        """
        return self.pack_row(self.row(episode))

    def pack_row(self, row: Row) -> bytes:
        """Returns a sidecar row as one record of bytes."""
        return pack(self.stored_fields, [row])

    def parse_row(self, data: bytes) -> Row:
        """Reads the bytes of `pack`, also of earlier releases.

        Raises:
          ValueError: The record is damaged.
        """
        is_legacy = data[:1] != b"{"
        return self._legacy_rows.row(data) if is_legacy else unpack(data, self.stored_fields).row(0)

    def columns(self, episode: SourceEpisode) -> dict[str, np.ndarray]:
        """Returns the columns of an episode by path, in the types of their fields.

        Raises:
          ValueError: The columns do not match the fields.
        """
        location = f"episode {episode.key}"
        # Columns are listed by path because names may contain slashes.
        columns = {
            path: as_array(column) if isinstance(column, RaggedColumn) else column
            for path, column in leaves_at(episode.steps, None)
            if path not in rlds.STEP_FLAGS
        }
        fields = dict(self.steps)
        ragged = {path: columns.pop(path) for path in self._ragged_paths(columns)}
        for path in ragged:
            if fields.pop(path).is_text:
                raise ValueError(f"{location}, {path}: texts in lists of several lengths")
        matched_columns = match_columns(columns, fields, rows=episode.num_steps, where=location)
        return {**matched_columns, **ragged}

    def _ragged_paths(self, columns: Mapping[str, Any]) -> list[str]:
        """Returns the paths of ragged columns: arrays of arrays, for fields of variable shape."""
        return [
            path
            for path, field in self.steps.items()
            if None in field.shape and not field.encoding
            if isinstance(column := columns.get(path), np.ndarray) and column.dtype == object
            if all(isinstance(value, np.ndarray) for value in column)
        ]

    def rows(self, episode: SourceEpisode) -> dict[str, np.ndarray]:
        """Returns the columns in the format, by path: without the row of the final observation.

        The columns of `final_row_paths` include that row.

        Raises:
          ValueError: The columns do not match the fields.
        """
        num_rows = self._num_rows(episode.num_steps, episode.final_observation_known)
        columns = self.columns(episode)
        return {
            path: columns[path] if path in self.final_row_paths else columns[path][:num_rows]
            for path in self.paths
        }

    def unpack(
        self,
        packed_or_row: Row | bytes,
        columns: Mapping[str, np.ndarray],
        fields: Iterable[str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> SourceEpisode:
        """Restores an episode from its values in the sidecar and in the format.

        Args:
          packed_or_row: The values in the sidecar, packed as bytes or as a row of its table.
          columns: The columns in the format, by `paths`; the last step may be a placeholder. Arrays
            may be encoded as image files.
          fields: Paths of fields to return; all by default. Only these fields need `columns`.
          values: The values in the format of some or all `episode_paths`.

        Raises:
          ValueError: The values do not match, or are damaged.
        """
        row = self.parse_row(packed_or_row) if isinstance(packed_or_row, bytes) else packed_or_row
        num_steps, _, start, end, final_known, is_terminal, truncated, complete = row[EPISODES]
        paths = self.steps if fields is None else list(fields)
        derived_flags = self.derived_flags(int(num_steps), bool(final_known), bool(is_terminal))
        for name, column in derived_flags.items():
            if len(flags := row[FLAGS + name][0]) not in (0, num_steps):
                raise ValueError(f"{name}: {len(flags)} values, expected {num_steps}")
            derived_flags[name] = flags if len(flags) else column
        steps = {
            path: derived_flags[path] if path in derived_flags else self._column(path, columns, row)
            for path in paths
            if path in self.steps
        }
        return SourceEpisode(
            key=as_text(row[KEY][0]),
            steps={**nest(steps), **{name: derived_flags[name] for name in rlds.STEP_FLAGS}},
            origin=Origin(as_text(row[FILE][0]), int(start), int(end)),
            truncated=bool(truncated),
            complete=bool(complete),
            final_observation_known=bool(final_known),
            metadata=nest(self._episode_values(row, values or {})),
        )

    def derived_flags(
        self, num_steps: int, is_known: bool, is_terminal: bool
    ) -> dict[str, np.ndarray]:
        """Derives the flags and discounts of an episode from its end.

        The sidecar stores only flags that differ from them.
        """
        derived_flags: dict[str, np.ndarray] = step_flags([num_steps], [is_terminal])
        if self._derives_discount:
            discount = np.ones(num_steps, np.float32)
            discount[num_steps - is_known :] = 0
            if is_terminal:
                discount[max(num_steps - is_known - 1, 0) :] = 0
            derived_flags[rlds.DISCOUNT] = discount
        return derived_flags

    def _num_rows(self, num_steps: int, is_known: bool) -> int:
        """Returns the number of rows in the format of fields outside `final_row_paths`."""
        return num_steps - (is_known or self.drops_final_row)

    def _value(self, path: str, row: Row) -> Any:
        value = row[EPISODE + path][0]
        if self.episode[path].dtype != str:
            return value
        return value.decode() if isinstance(value, bytes) else as_texts(value)

    def _episode_values(self, row: Row, in_format: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the metadata of an episode, from the sidecar and from the format."""
        values = {path: self._value(path, row) for path in self.stored_metadata}
        merged = {**values, **in_format}
        for clip, first in map(_clip_paths, self.clips):
            if clip in in_format and values[clip]:
                merged[clip] = whole_clip(in_format[clip], Clip(values[clip], int(values[first])))
        missing = self._clip_fields - in_format.keys()
        return {path: value for path, value in merged.items() if path not in missing}

    def _metadata_of(self, episode: SourceEpisode) -> dict[str, np.ndarray]:
        if not self.stored_metadata:
            return {}
        metadata = dict(leaves_at(episode.metadata, None))
        values = {path: value for path, value in metadata.items() if path not in self.episode_paths}
        num_rows = self._num_rows(episode.num_steps, episode.final_observation_known)
        for clip, first in map(_clip_paths, self.clips):
            _, tail = split_clip(Clip(bytes(metadata[clip]), int(metadata[first])), num_rows)
            values |= {clip: b"" if tail is None else tail.data}
            values |= {first: np.int64(0 if tail is None else tail.first)}
        columns = dict(leaves_at(stack_values([nest(values)]), None))
        return dict(match_columns(columns, self.stored_metadata, rows=1, where=episode.key))

    def _column(self, path: str, columns: Mapping[str, np.ndarray], row: Row) -> np.ndarray:
        """Returns the column of a field for all steps."""
        field, num_steps = self.steps[path], int(row[EPISODES][0])
        if path not in self.paths:
            column, num_rows = row[STEPS + path], num_steps
        else:
            column = columns[path]
            num_rows = num_steps - (0 if path in self.final_row_paths else int(row[EPISODES][1]))
            if column.dtype.kind == "O" and not (field.is_text or field.encoding):
                column = _decode_images(column, field)
            if num_rows < num_steps == len(column):  # The last row is a placeholder.
                column = column[:num_rows]
        if column.dtype.kind != "O" and None not in field.shape:
            # Some formats store vectors of one element as scalars.
            column = column.reshape(len(column), *field.shape)
        if len(column) != num_rows:
            raise ValueError(f"{path}: {len(column)} rows, expected {num_rows}")
        if num_rows < num_steps:
            column = np.concatenate([column, row[FINAL + path]])
        return as_texts(column) if field.dtype == str else np.asarray(column)

    @property
    def _final_paths(self) -> list[str]:
        return [path for path in self.paths if path not in self.final_row_paths]

    @property
    def _stored_steps(self) -> list[str]:
        derived_flags = {rlds.DISCOUNT} if self._derives_discount else set()
        return [path for path in self.steps if path not in self.paths.keys() | derived_flags]

    @property
    def _derives_discount(self) -> bool:
        """True if the discount is derived from the flags."""
        field = self.steps.get(rlds.DISCOUNT)
        return rlds.DISCOUNT not in self.paths and is_derived(rlds.DISCOUNT, field)

    @property
    def _clip_fields(self) -> set[str]:
        """The fields of `clips`."""
        return {path for camera in self.clips for path in _clip_paths(camera)}

    @property
    def stored_metadata(self) -> dict[str, Field]:
        """The fields of episodes that are in the sidecar."""
        in_format = self.episode_paths.keys() - self._clip_fields
        return {path: field for path, field in self.episode.items() if path not in in_format}

    @functools.cached_property
    def stored_fields(self) -> dict[str, Field]:
        """The types of the values in a row of the sidecar, by the names of its columns."""
        derived_flags = dict.fromkeys(rlds.STEP_FLAGS, Field(np.bool_, (None,)))
        if self._derives_discount:
            derived_flags[rlds.DISCOUNT] = Field(np.float32, (None,))
        return {
            KEY: Field(str),
            FILE: Field(str),
            **{FLAGS + name: field for name, field in derived_flags.items()},
            **{EPISODE + path: field for path, field in self.stored_metadata.items()},
            **{FINAL + path: self.steps[path] for path in self._final_paths},
            **{STEPS + path: self.steps[path] for path in self._stored_steps},
        }

    @functools.cached_property
    def _legacy_rows(self) -> LegacyRows:
        final = {path: self.steps[path] for path in self._final_paths}
        steps = {path: field for path, field in self.steps.items() if path not in self.paths}
        return LegacyRows(steps, final, self.stored_metadata, self.derived_flags)


class LostSidecarError(SourceError):
    """The sidecar of an export is missing, or belongs to other data."""


class SidecarWriter:
    """Writes the sidecar of an export.

    Args:
      sidecar: The layout.
      append: Adds bytes to a stream of a column.
      finish: Writes the JSON after all columns.
      block: See `ColumnsWriter`.

    Attributes:
      sidecar: See above.
    """

    def __init__(
        self,
        sidecar: Sidecar,
        append: Callable[[str, bytes], object],
        finish: Callable[[str], object],
        **block: int,
    ) -> None:
        self.sidecar, self._finish = sidecar, finish
        self._pending_copy: tuple[StoredSidecar, range] | None = None
        self._columns = None
        if not sidecar.is_metadata_only:
            self._columns = ColumnsWriter(sidecar.stored_fields, append, **block)

    @classmethod
    def in_folder(cls, directory: Path, sidecar: Sidecar) -> SidecarWriter:
        """Returns the writer of a sidecar to the folder of a dataset, on this machine."""
        columns = directory / FOLDER / _COLUMNS_FOLDER
        (columns.parent if sidecar.is_metadata_only else columns).mkdir(parents=True, exist_ok=True)

        def append(stream: str, data: bytes) -> None:
            with open(columns / stream, "ab") as file:
                file.write(data)

        return cls(sidecar, append, (directory / FOLDER / _TEXT_FILE).write_text)

    def add(self, episode: SourceEpisode) -> None:
        """Writes the sidecar values of the next episode.

        Raises:
          ValueError: The episode lacks the declared fields.
        """
        self.add_row(self.sidecar.row(episode))

    def add_row(self, row: Row) -> None:
        """Writes the row of the next episode from another sidecar of the same fields."""
        self._flush_copy()
        assert self._columns is not None
        self._columns.add(row)

    def copy(self, source: StoredSidecar | None, split: str, index: int) -> None:
        """Copies the stored row of the next episode from another sidecar of the same fields."""
        assert source is not None
        row = source.row(split, index)
        if (
            self._pending_copy is None
            or self._pending_copy[0] is not source
            or self._pending_copy[1].stop != row
        ):
            self._flush_copy()
            self._pending_copy = source, range(row, row)
        self._pending_copy = source, range(self._pending_copy[1].start, row + 1)
        if len(self._pending_copy[1]) == _MAX_COPY_EPISODES:
            self._flush_copy()

    def _flush_copy(self) -> None:
        """Copies the pending rows of another sidecar."""
        if self._pending_copy is not None and self._columns is not None:
            source, rows = self._pending_copy
            source.add_to(self._columns, rows)
        self._pending_copy = None

    def close(self) -> None:
        """Writes the remaining rows."""
        self._flush_copy()
        columns = self._columns
        if columns is not None:
            columns.close()
        self._finish(self.sidecar.to_json(columns))

    def __enter__(self) -> SidecarWriter:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:
            self.close()


class StoredSidecar:
    """Reads the sidecar of a dataset; can be pickled.

    Args:
      sidecar: The layout.
      path: The name of the sidecar in errors.
      columns: The columns; None if the sidecar has only metadata.
      files: The files of the sidecar, for `Source.inputs`.

    Attributes:
      splits: The rows of each split, by its name; None if the data has a single split.
    """

    splits: Mapping[str, range] | None = None
    _columns: Columns

    def __init__(
        self,
        sidecar: Sidecar,
        path: str | os.PathLike[str],
        columns: Columns | None,
        files: Sequence[epath.Path] = (),
    ) -> None:
        self.sidecar, self.path, self.files = sidecar, os.fspath(path), files
        if columns is not None:
            self._columns = columns

    @classmethod
    def from_text(
        cls,
        text: bytes,
        path: str | os.PathLike[str],
        read: Callable[[str, int, int], Any],
        files: Sequence[epath.Path] = (),
    ) -> StoredSidecar:
        """Reads the JSON of a `SidecarWriter`; returns the sidecar.

        Args:
          text: The JSON.
          path: See the class.
          read: Returns a range of bytes of a stream.
          files: See the class.

        Raises:
          SourceError: The text is damaged.
        """
        with source_errors(path):
            sidecar, columns = Sidecar.from_json(text), None
            if not sidecar.is_metadata_only:
                content = json.loads(text)
                sizes = {str(name): int(size) for name, size in content[_SIZES_KEY].items()}
                columns = Columns(sidecar.stored_fields, read, int(content[EPISODES]), sizes)
        return cls(sidecar, path, columns, files)

    @classmethod
    def in_folder(
        cls, directory: str | os.PathLike[str], legacy_folder: str = "", digest: Any = None
    ) -> StoredSidecar | None:
        """Returns the sidecar in the folder of a dataset; None if there is none.

        Args:
          directory: The folder of the dataset.
          legacy_folder: The subfolder of sidecars of earlier releases.
          digest: The digest of the sidecar in the metadata of the data; None without one.

        Raises:
          LostSidecarError: The sidecar is missing, or has another digest.
          SourceError: The sidecar is damaged.
        """
        check_link(directory)
        folder = stores.as_path(directory) / FOLDER
        if not is_there(folder / _TEXT_FILE):
            return _legacy_in(stores.as_path(directory) / legacy_folder, folder, digest)
        (file,) = require_files(folder / _TEXT_FILE)
        streams = _FolderStreams(folder / _COLUMNS_FOLDER)
        stored_sidecar = cls.from_text(file.read_bytes(), file, streams, [file])
        if digest is not None and stored_sidecar.sidecar.digest != digest:
            problem = f"it belongs to other data: its digest is {stored_sidecar.sidecar.digest}"
            raise _lost_sidecar(file, problem, digest)
        return stored_sidecar

    def __len__(self) -> int:
        return len(self._columns)

    def check_count(self, num_episodes: int) -> None:
        """Checks the number of episodes of the sidecar, as other programs may append to the data.

        Raises:
          LostSidecarError: The data has another number of episodes.
        """
        if not self.sidecar.is_metadata_only and len(self) != num_episodes:
            problem = f"it has {len(self)} episodes, and the data {num_episodes}"
            raise _lost_sidecar(self.path, f"it belongs to other data: {problem}")

    def row(self, split: str, index: int) -> int:
        """Returns the row of an episode of a split."""
        return index if self.splits is None else self.splits[split][index]

    def key(self, split: str, index: int) -> str:
        """Returns the key of an episode of a split.

        Raises:
          SourceError: The key is damaged.
        """
        with source_errors(self.path):
            return self._columns.keys[self.row(split, index)]

    def summaries(self, split: str) -> Lengths:
        """Returns the numbers of steps and transitions of each episode of a split.

        Raises:
          SourceError: The lengths are damaged.
        """
        rows = slice(None)
        if self.splits is not None:
            rows = slice(self.splits[split].start, self.splits[split].stop)
        with source_errors(self.path):
            return Lengths(*(column[rows] for column in self._columns.summaries))

    def add_to(self, columns: ColumnsWriter, rows: range) -> None:
        """Adds rows to the columns of another sidecar of the same fields.

        Raises:
          SourceError: The rows are damaged.
        """
        with source_errors(self.path):
            columns.extend(self._columns, rows.start, rows.stop)

    def read(self, split: str, index: int) -> Row:
        """Returns the row of an episode of a split, for `Sidecar.unpack`.

        Raises:
          SourceError: The row is damaged.
        """
        return self._columns.row(self.row(split, index))


class PackedSidecar(StoredSidecar):
    """A sidecar with one packed record for each episode, as in earlier releases.

    Args:
      sidecar: The layout.
      path: The name of the sidecar in errors.
      read: Returns the record of an episode; raises errors of the library that reads the file.
      length: The number of records.
      files: The files of the sidecar, for `Source.inputs`.

    Attributes:
      is_legacy: True for sidecars of earlier releases, whose keys and lengths are cached.
    """

    is_legacy = False

    def __init__(
        self,
        sidecar: Sidecar,
        path: str | os.PathLike[str],
        read: Callable[[int], bytes | bytearray],
        length: int,
        files: Sequence[epath.Path] = (),
    ) -> None:
        super().__init__(sidecar, path, None, files)
        self._packed, self._length = read, length

    @classmethod
    def in_arrays(
        cls,
        path: str | os.PathLike[str],
        text: np.ndarray,
        end_offsets: np.ndarray,
        rows: Callable[[int, int], np.ndarray],
    ) -> StoredSidecar:
        """Returns the sidecar that earlier releases wrote to arrays of a file.

        Args:
          path: The name of the file in errors.
          text: The JSON, as bytes.
          end_offsets: The end offset of the record of each episode.
          rows: Returns a range of bytes of all records.

        Raises:
          SourceError: The sidecar is damaged.
        """
        with source_errors(path):
            sidecar = Sidecar.from_json(np.asarray(text, np.uint8).tobytes())
            bounds = np.concatenate([[0], np.asarray(end_offsets, np.int64).reshape(-1)])
        read = functools.partial(_record_bytes, bounds, rows)
        sidecar_file = cls(sidecar, path, read, len(bounds) - 1)
        sidecar_file.is_legacy = True
        return sidecar_file

    @override
    def __len__(self) -> int:
        return self._length

    @override
    def add_to(self, columns: ColumnsWriter, rows: range) -> None:
        for row in rows:
            columns.add(self._row(row))

    @override
    def read(self, split: str, index: int) -> Row:
        return self._row(self.row(split, index))

    def _row(self, row: int) -> Row:
        with source_errors(self.path, row=row):
            return self.sidecar.parse_row(bytes(self._packed(row)))

    @functools.cached_property
    def _columns(self) -> Columns:  # type: ignore[override]
        """The keys and the lengths of all episodes."""
        fields = {KEY: Field(str)}
        file = None if self._length < _MIN_CACHED_EPISODES else self._cache_file
        if file is not None and file.exists():
            with contextlib.suppress(OSError, ValueError):
                return unpack(file.read_bytes(), fields)
        rows_file = pack(fields, map(self._row, range(self._length)))
        if file is not None:
            with contextlib.suppress(OSError):
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(file, rows_file, durable=False)
        return unpack(rows_file, fields)

    @property
    def _cache_file(self) -> Path | None:
        """The cache file of the keys and lengths in a legacy sidecar."""
        if not self.is_legacy or not os.path.isfile(self.path):
            return None
        state = os.stat(self.path)
        version = [os.path.realpath(self.path), state.st_size, state.st_mtime_ns]
        folder = cache_folder("sidecars", json.dumps(version))
        return folder and folder / "outlines"


class _FolderStreams:
    """Reads the streams of sidecar columns from the files of a folder; can be pickled."""

    def __init__(self, folder: epath.Path) -> None:
        self._folder = folder
        self._opened: dict[str, Any] = {}

    def __call__(self, stream: str, start: int, end: int) -> Any:
        if stream not in self._opened:
            file = self._folder / stream
            check_is_file(file)
            is_local = stores.is_local(file)
            self._opened[stream] = map_file(file)[0] if is_local else stores.open_binary(file)
        content = self._opened[stream]
        if isinstance(content, memoryview):
            return content[start:end]
        content.seek(start)
        return content.read(end - start)

    def __reduce__(self) -> Any:
        return type(self), (self._folder,)


def _legacy_in(directory: epath.Path, folder: epath.Path, digest: Any) -> StoredSidecar | None:
    """Returns the sidecar of a dataset folder from an earlier release; None without one."""
    check_link(directory)
    if digest is not None:
        raise _lost_sidecar(folder, "it is missing", digest)
    if not is_there(directory / _LEGACY_TEXT):
        return None
    files = require_files(directory / _LEGACY_TEXT)
    with source_errors(files[0]):
        sidecar = Sidecar.from_json(files[0].read_bytes())
    if sidecar.is_metadata_only:
        return StoredSidecar(sidecar, files[0], None, files)
    files += require_files(directory / _LEGACY_EPISODES)
    with source_errors(files[1]):
        records = tfds_files.open_record_file(files[1], "tfrecord")
        sidecar_file = PackedSidecar(sidecar, files[1], records.read, len(records), files)
    sidecar_file.is_legacy = True
    return sidecar_file


def _lost_sidecar(
    file: str | os.PathLike[str], reason: str, digest: Any = None
) -> LostSidecarError:
    """Returns the error for a sidecar that does not belong to the data."""
    suffix = f" of digest {digest}" if digest is not None else ""
    return LostSidecarError(
        f"{reason}. The data has a sidecar{suffix} with values that its format cannot hold, such "
        f"as final observations and texts. Copy {FOLDER} together with the data",
        file=file,
    )


def _clip_paths(camera: str) -> tuple[str, str]:
    """Returns the paths of the clip of a camera, and of its first frame."""
    return f"{camera}/{CLIP}", f"{camera}/{FIRST}"


def _record_bytes(bounds: np.ndarray, rows: Callable[[int, int], np.ndarray], index: int) -> bytes:
    start, end = bounds[index : index + 2].tolist()
    if not 0 <= start <= end:
        raise ValueError(f"{SIDECAR_ENDS}: ends before it begins")
    return rows(start, end).tobytes()


def _decode_images(column: np.ndarray, field: Field) -> np.ndarray:
    image = Image(shape=field.shape, dtype=field.column_dtype)
    images = [tfds_files.decode_image(data, image) for data in column]
    return np.stack(images) if images else np.zeros((0, *map(int, field.shape)), field.dtype)  # type: ignore[arg-type]


def field_json(field: Field) -> dict[str, Any]:
    """Returns a field in the types of JSON."""
    dtype = "str" if field.dtype == str else "bytes" if field.is_text else str(field.column_dtype)
    entries = {"encoding": field.encoding, **field.meaning, "doc": field.doc}
    if field.codes is not None:
        entries["codes"] = field.codes.to_json()
    return {"dtype": dtype, "shape": field.shape, **{k: v for k, v in entries.items() if v}}


def field_from_json(content: Mapping[str, Any]) -> Field:
    """Parses the JSON of `field_json`."""
    kinds: Mapping[str, Any] = {"str": str, "bytes": bytes}
    names, codes = content.get("names"), content.get("codes")
    return Field(
        kinds.get(content["dtype"], content["dtype"]),
        tuple(None if size is None else int(size) for size in content["shape"]),
        encoding=str(content.get("encoding", "")),
        names=None if names is None else tuple(map(str, names)),
        unit=content.get("unit"),
        doc=str(content.get("doc", "")),
        codes=None if codes is None else DepthCodes.from_json(codes),
        table=str(content.get("table", "")),
        kind=str(content.get("kind", "")),
    )
