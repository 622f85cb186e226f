"""LeRobot datasets (https://github.com/huggingface/lerobot) as RLDS, read without LeRobot.

A row of a LeRobot dataset has an observation and the next action. There is no row for the
observation after the last action, and no record of terminal states. `T` rows therefore become `T`
steps with `final_observation_known=False`, and episodes are truncated unless a flag of the rows is
selected with the option `terminal`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import google_crc32c
import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.lerobot import layout
from rlds.formats.lerobot.columns import decode_values, find_contradiction
from rlds.formats.lerobot.data_files import PATH, DataFiles
from rlds.formats.lerobot.dataset_files import EpisodeBatch, NewEpisode
from rlds.formats.lerobot.episode_table import EpisodeMetadata, EpisodeRow
from rlds.formats.lerobot.feature_statistics import read_statistics
from rlds.formats.lerobot.language import (
    EVENTS,
    LANGUAGE,
    PERSISTENT,
    SUBTASK_INDEX,
    SUBTASKS_TABLE,
    decode_texts,
    find_styles,
)
from rlds.formats.lerobot.modality import find_text_tables, read_modality
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.small_files import (
    decode_schema,
    leftovers,
    other_files,
    read_bytes,
    read_info,
    read_subtasks,
    read_tasks,
    task_text,
    walk,
)
from rlds.formats.lerobot.tables import flatten_column
from rlds.formats.lerobot.videos import Videos
from rlds.raw_files.untrusted import source_errors
from rlds.sources.digests import iter_content
from rlds.sources.episode_fields import IMAGE_FILE
from rlds.sources.rates import with_rate
from rlds.sources.sidecar import SIDECAR_KEY, LostSidecarError, Sidecar, StoredSidecar
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
    with_discount,
)
from rlds.sources.text_tables import TASKS as OF_TASKS
from rlds.sources.text_tables import unknown_indices
from rlds.video import CLIP, FIRST, VIDEO
from rlds.video.container import Span
from rlds.video.fields import clip_fields
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.columns import objects, step_flags
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import nest, root_of

__all__ = ["EXTRA_FILES", "ROW", "LeRobotSource"]

# The fields of an episode apart from `video`: its row of the table of episodes with statistics, in
# JSON, and the extra files of RoboCasa.
ROW, EXTRA_FILES = "lerobot/row", "extras"

_TASK_INDEX, _TIMESTAMP, _TRUNCATED = "task_index", "timestamp", "next.truncated"
_REWARD = "next.reward"
# The size of rows to copy at once, in bytes.
_COPY_BYTES = 4 << 20


class _StoredEpisode(NamedTuple):
    """An undecoded episode: position in the table, rows, tasks, frames, extra files."""

    position: int
    table: Any
    columns: Mapping[str, np.ndarray]
    tasks: Sequence[str]
    frames: Mapping[str, Span]
    extras: Mapping[str, bytes]


class LeRobotSource(Source):
    """The episodes of a LeRobot dataset of version 2.0, 2.1 or 3.0.

    A feature is a field of the steps: `observation.images.top` is `observation/images/top`,
    `next.reward` is `reward`; see `layout.step_paths`. All columns keep the dtypes of the files.
    The text of the task of each row is `language_instruction`; `language` has the texts of the
    language columns by style, such as `language/subtask`. Image files are not decoded; their names
    are in `image_file/...`. A column without a dtype, such as lists of objects, is JSON text.

    Videos stay packets: for each video feature, an episode has a field `video/<path>`, see
    `rlds.video`. Further fields of an episode are:

    * `lerobot/row`: its row of the table of episodes with statistics, as JSON of version 3.0;
    * `extras`: the additional files of RoboCasa.

    Columns with indices of tasks have the `Field.table` "tasks", so that edits renumber them:
    `task_index`, and the GR00T annotations in `modality.json`, or all `annotation.*` without it.

    The metadata has info.json, the tasks, and the small files in `meta`. Episodes of other formats
    that `rlds.sources.export` wrote to LeRobot are restored.

    Args:
      path: The folder, with `meta/info.json`.
      video: "packets", or the form of decoded frames of steps in `rlds.sources.open`: "frames" for
        arrays, or "png" or "jpeg" files, as loaders of RLDS datasets expect.
      quality: The quality of JPEG files, 1 to 100.
      flat_cameras: True to name `observation.images.top` `observation/top`: loaders of Octo and
        OpenVLA expect cameras directly below `observation`.
      match: The match of frames and rows: by "order", or by the "timestamp" of each row, for data
        with removed rows; then steps have the indices of their frames.
      terminal: The flag of the last row that marks a terminal state: `next.done` or
        `next.success`, unless `next.truncated` is set. If None, no episode is terminal.
      task_columns: The columns with indices of tasks in addition to `task_index`, such as
        `task_index_high_level`. If None, the GR00T annotations.

    Attributes:
      info: The content of info.json.
      texts: The texts of the tasks by their indices.
      task_columns: Further columns with indices of tasks.
      subtasks: The texts of the subtasks by their indices.

    Raises:
      FileNotFoundError: There is no dataset.
      SourceError: info.json or a table is damaged, or no data file can be read.
      ValueError: A flag or column does not exist.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        video: Literal["packets", "frames", "png", "jpeg"] = "packets",
        quality: int = 95,
        flat_cameras: bool = False,
        match: Literal["order", "timestamp"] = "order",
        terminal: Literal["done", "success"] | None = None,
        task_columns: Sequence[str] | None = None,
    ) -> None:
        self._root = stores.as_path(path)
        self._video, self._quality = video, quality
        self._options: dict[str, Any] = {"video": video, "match": match, "terminal": terminal}
        # Default options are left out, so that earlier conversions can resume.
        self._options |= {"quality": quality} if video == "jpeg" else {}
        self._options |= {"flat_cameras": True} if flat_cameras else {}
        self._options |= {} if task_columns is None else {"task_columns": [*task_columns]}
        if not (self._root / layout.INFO).exists():
            raise FileNotFoundError(f"{os.fspath(path)!r} has no {layout.INFO}.")
        self.info = self._info = read_info(self._root)
        self._table = EpisodeMetadata(self._root, self._info)
        self._tasks = read_tasks(self._root, self._info)
        self.texts = {row["task_index"]: task_text(row) for row in self._tasks}
        # The splits of info.json, if they cover all episodes.
        self._splits = self._read_splits() or {"train": range(len(self._table.indices))}
        self.splits = list(self._splits)
        self._data = DataFiles(self._root, self._info.features, self._table)
        self._columns = self._data.columns
        tables = self._tables(task_columns)
        for name, table in tables.items():
            field = dataclasses.replace(self._columns[name].field, table=table)
            self._columns[name] = dataclasses.replace(self._columns[name], field=field)
        of_tasks = (name for name, table in tables.items() if table == OF_TASKS)
        self.task_columns = [name for name in of_tasks if name != _TASK_INDEX]
        self._videos = Videos(self._root, self._info.fps, by_time=match == "timestamp")
        self._paths = layout.step_paths(
            [*self._columns, *self._info.videos], flat_cameras=flat_cameras
        )
        self._task_path = layout.task_path(self._paths)
        self._styles = self._find_language_styles()
        self.subtasks: Mapping[int, str]
        self.subtasks = read_subtasks(self._root) if SUBTASK_INDEX in self._columns else {}
        flag = f"next.{terminal}"
        if terminal is not None and flag not in self._columns:
            raise ValueError(f"terminal: got {terminal!r}, but the data has no column {flag!r}")
        self._flag = None if terminal is None else flag
        self._extras = self._extra_names()
        self._last_episode: _StoredEpisode | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name != "source_info"}
        return {**state, "_last_episode": None}  # Files in `source_info` may be large.

    # --- Fields and metadata.

    def _tables(self, task_columns: Sequence[str] | None) -> dict[str, str]:
        """Returns the names of text tables for columns of indices, by column."""
        text, features = read_modality(self._root), self._info.raw["features"]
        tables = find_text_tables(text, self._columns.values(), features)
        if task_columns is None:
            return tables
        for name in {*task_columns, *tables} - {_TASK_INDEX, SUBTASK_INDEX}:
            if name not in features or name not in self._columns:
                column_names = ", ".join(self._columns)
                raise ValueError(f"task_columns: got {name!r}, expected some of {column_names}")
            # Exports keep the name of the table.
            features[name][layout.TABLE] = OF_TASKS if name in task_columns else ""
        return find_text_tables(text, self._columns.values(), features)

    def _find_language_styles(self) -> list[str]:
        """Returns the styles of language texts; empty if a feature is named `language`."""
        is_used = any(root_of(path) == LANGUAGE for path in self._paths.values())
        lists = {name for name in (PERSISTENT, EVENTS) if self._is_list(name)}
        return [] if is_used else find_styles(lists or {SUBTASK_INDEX} & self._columns.keys())

    def _is_list(self, name: str) -> bool:
        return name in self._columns and self._columns[name].kind == "json"

    def _extra_names(self) -> list[str]:
        """Returns the names of the additional files of the first episode."""
        folder = self._root / "extras"
        if not folder.exists() or not len(self._table.indices):
            return []
        first_folder = self._root / layout.EXTRAS.format(episode_index=int(self._table.indices[0]))
        return [file.name for file in walk(first_folder)]

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            video=self._video,
            quality=self._quality,
            lengths=self._lengths,
            reads_rows=True,
            totals=self._totals,
            faults=self._find_faults,
            origin=self._origin,
            sidecar=self._sidecar,
        )

    def _sidecar(self) -> StoredSidecar | None:
        file, digest = self._root / layout.DIGEST, None
        if file.exists():
            with source_errors(file):
                digest = json.loads(read_bytes(file))[SIDECAR_KEY]
        stored_sidecar = StoredSidecar.in_folder(self._root, layout.LEGACY_SIDECAR, digest)
        if stored_sidecar is None or stored_sidecar.sidecar.is_metadata_only:
            return stored_sidecar
        sidecar = stored_sidecar.sidecar
        with source_errors(stored_sidecar.path):
            metadata = dict(sidecar.metadata["metadata"])
        resolved = self.resolve_sidecar(sidecar)
        stored_sidecar.check_count(len(self._table.indices))
        if resolved is None:
            names = ", ".join([*sidecar.paths.values(), *sidecar.episode_paths.values()])
            problem = f"it belongs to other data: some of these fields were removed: {names}"
            raise LostSidecarError(problem, file=stored_sidecar.path)
        metadata = {**sidecar.metadata, "metadata": with_rate(metadata, self._info.fps)}
        stored_sidecar.sidecar = dataclasses.replace(resolved, metadata=metadata)
        stored_sidecar.splits = self._splits
        return stored_sidecar

    def resolve_sidecar(self, sidecar: Sidecar) -> Sidecar | None:
        """Returns a sidecar with field paths instead of feature names; None if one is missing."""
        fields = {layout.TASK: self._task_path, **self._paths}
        fields |= {f"{PERSISTENT}/{style}": f"{LANGUAGE}/{style}" for style in self._styles}
        for name in self._info.videos:
            for suffix in (CLIP, FIRST):
                fields[f"videos/{name}/{suffix}"] = f"{VIDEO}/{self._paths[name]}/{suffix}"
        steps, episode = sidecar.paths, sidecar.episode_paths
        if not {*steps.values(), *episode.values()} <= fields.keys():
            return None
        return dataclasses.replace(
            sidecar,
            paths={path: fields[target] for path, target in steps.items()},
            episode_paths={path: fields[target] for path, target in episode.items()},
        )

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        fields = {self._paths[name]: column.field for name, column in self._columns.items()}
        for name, column in self._columns.items():
            if column.kind == "image":
                fields[f"{IMAGE_FILE}/{self._paths[name]}"] = Field(str)
        if _TASK_INDEX in self._columns:
            fields[self._task_path] = Field(str, doc="The text of the task.")
        fields |= {f"{LANGUAGE}/{style}": Field(str) for style in self._styles}
        episode: dict[str, Any] = {ROW: Field(str)}
        for name in self._info.videos:
            by_time, feature = self._options["match"] == "timestamp", self._info.features[name]
            episode[f"{VIDEO}/{self._paths[name]}"] = clip_fields(
                has_frames=by_time, unit=feature.unit, codes=feature.codes
            )
        episode |= {f"{EXTRA_FILES}/{name}": Field(bytes) for name in self._extras}
        return Fields(nest(with_discount(fields)), nest(episode))

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        """The description, metadata and options of the dataset.

        The metadata `lerobot` has `info`; `tasks` in the order of their table; `subtasks`, if any;
        Arrow `schemas` in base64; small `files` by path, as `text` or `base64`; the names of large
        files in `left_out`; and in `fields` the paths of features in steps.
        """
        files, left_out = other_files(self._root)
        schemas = {"data": self._data.schema, "episodes": self._table.schema}
        subtasks = [{SUBTASK_INDEX: n, "subtask": text} for n, text in self.subtasks.items()]
        metadata = {
            "info": self._info.raw,
            "tasks": self._tasks,
            **({SUBTASKS_TABLE: subtasks} if subtasks else {}),
            "schemas": schemas,
            "files": files,
            "left_out": left_out,
            "fields": self._paths,
        }
        paths = {_REWARD: rlds.REWARD, layout.TASK: self._task_path, **self._paths}
        aliases = {name: f"{rlds.STEPS}/{path}" for name, path in paths.items()}
        return SourceInfo(
            description="Episodes of a LeRobot dataset.",
            homepage="https://github.com/huggingface/lerobot",
            metadata={layout.METADATA_KEY: metadata},
            options=self._options,
            aliases={"length": rlds.STEPS, **aliases},
        )

    def inputs(self) -> Sequence[epath.Path]:
        """Returns all files of the tables, the data and the videos."""
        folders = [self._root / name for name in ("meta", "data", "videos", "extras")]
        return [file for folder in folders for file in walk(folder)]

    @override
    def num_episodes(self, split: str) -> int:
        return len(self._splits[split])

    def key(self, split: str, index: int) -> str:
        """Returns the key with the `episode_index`, such as `episode_000012`."""
        return layout.episode_key(int(self._table.indices[self._splits[split][index]]))

    def _totals(self, split: str) -> Mapping[str, int]:
        """Returns the number of rows of the data files."""
        del split
        if len(self._splits) > 1:
            return {}
        files = walk(self._root / "data", ".parquet")
        return {"rows": sum(ParquetRows(file).num_rows for file in files)}

    def _find_faults(self, split: str) -> Iterator[SourceError]:
        """Yields contradictions between info.json and the files."""
        del split
        raw, file = self._info.raw, self._root / layout.INFO
        version = str(raw.get("codebase_version"))
        if version.lstrip("v").startswith("3") != self._info.is_v3:
            fault = f"{version}, but the files have version {'3.0' if self._info.is_v3 else '2.x'}"
            yield SourceError(fault, file=file, field="codebase_version")
        lengths = self._table.lengths
        for name, actual in {
            "total_episodes": len(lengths),
            "total_frames": int(lengths.sum()),
            "total_tasks": len(self._tasks),
        }.items():
            if name in raw and raw[name] != actual and not self._table.errors:
                yield SourceError(
                    f"{raw[name]!r:.100}, but there are {actual}", file=file, field=name
                )
        for name, feature in self._info.features.items():
            if name not in self._columns and not feature.is_video:
                fault = "declared, but the data files have no such column"
                yield SourceError(fault, file=file, field=f"features/{name}")
        for name, column in self._columns.items():
            fault = "not declared, but the data files have such a column"
            if name in self._info.features:
                fault = find_contradiction(column, self._info.features[name])
            if fault:
                yield SourceError(fault, file=file, field=f"features/{name}")
        for folder in leftovers(self._root):
            fault = "left by an interrupted recording: `rlds recover` reports what can be recovered"
            yield SourceError(fault, file=self._root / folder)
        order = [row["task_index"] for row in self._tasks]
        if self._info.is_v3 and order != list(range(len(order))):
            fault = f"the order {order[:10]}, expected 0, 1, ...: LeRobot reads wrong tasks"
            yield SourceError(fault, file=self._root / layout.TASKS, field=_TASK_INDEX)
        if "splits" in raw and not self._read_splits():
            fault = f"{raw['splits']!r:.100}, expected ranges of the {len(lengths)} episodes"
            yield SourceError(fault, file=file, field="splits")
        gaps = np.setdiff1d(np.arange(len(self._table.indices)), self._table.indices)
        if len(gaps):
            fault = f"episode {gaps[0]} is missing: LeRobot counts episodes, and reads wrong rows"
            table = layout.EPISODES_FOLDER if self._info.is_v3 else layout.EPISODES_JSONL
            yield SourceError(fault, file=self._root / table, field="episode_index")
        yield from self._unknown_tasks()

    def _unknown_tasks(self) -> Iterator[SourceError]:
        """Yields columns with unknown tasks, except `task_index`, which reading checks."""
        errors: dict[str, SourceError] = {}
        for file in walk(self._root / "data", ".parquet") if self.task_columns else ():
            error = functools.partial(SourceError, file=file)
            with contextlib.suppress(SourceError, KeyError):  # Reading episodes raises the error.
                rows = ParquetRows(file, self.task_columns)
                table = rows.read(0, rows.num_rows)
                for name in self.task_columns:
                    indices = decode_values(self._columns[name], table[name], error)
                    if name not in errors and (missing := unknown_indices(indices, self.texts)):
                        problem = f"the dataset has no task {missing[0]}"
                        errors[name] = SourceError(problem, file=file, field=name)
        yield from errors.values()

    def _read_splits(self) -> dict[str, range]:
        """Reads the splits in info.json; returns none unless they cover all episodes."""
        raw = self._info.raw.get("splits")
        num_episodes, num_lost = len(self._table.indices), len(self._table.errors)
        splits: dict[str, range] = {}
        for name, text in raw.items() if isinstance(raw, Mapping) else ():
            bounds = re.fullmatch(r"([0-9]{1,18}):([0-9]{1,18})", str(text))
            if not name or bounds is None:
                return {}
            splits[str(name)] = range(int(bounds[1]), int(bounds[2]))
        names = sorted(splits, key=lambda name: (splits[name].start, splits[name].stop))
        starts = [0, *(splits[name].stop for name in names)]
        if not names or [splits[name].start for name in names] != starts[:-1]:
            return {}
        if sorted(starts) != starts or not num_episodes - num_lost <= starts[-1] <= num_episodes:
            return {}
        # The last split has the episodes without table rows.
        return {**splits, names[-1]: range(splits[names[-1]].start, num_episodes)}

    # --- One episode.

    def _origin(self, split: str, index: int) -> Origin:
        row = self._table.row(self._splits[split][index])
        return Origin(row.file, row.start, row.start + row.length)

    def _lengths(self, split: str) -> Lengths | None:
        if self._table.errors:
            return None
        positions = self._splits[split]
        # If `is_all` is false, only reading finds terminal states and damage.
        is_all = self._flag is None and self._table.is_valid
        lengths = self._table.lengths[positions.start : positions.stop]
        return Lengths.create(lengths, final_observation_known=False if is_all else None)

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        position = self._splits[split][index]
        row = self._table.row(position)
        with source_errors(self._root / row.file, episode=row.key):
            return SourceEpisode(
                key=row.key,
                steps=nest(
                    self._steps(row, self.fields.step_paths(fields), range(row.length)[rows])
                ),
                origin=Origin(row.file, row.start, row.start + row.length),
                truncated=not self._is_terminal(row),
                final_observation_known=False,
                complete=row.is_complete,
                metadata=nest(
                    self._read_metadata(position, row, self.fields.episode_paths(fields))
                ),
                counts={"rows": row.length},
            )

    @property
    def lengths(self) -> np.ndarray:
        """The number of rows of each episode."""
        return self._table.lengths

    @property
    def features(self) -> list[tuple[str, str]]:
        """The features, as pairs of the field path and the name."""
        videos = {name: f"{VIDEO}/{self._paths[name]}/{CLIP}" for name in self._info.videos}
        columns = {name: f"{rlds.STEPS}/{self._paths[name]}" for name in self._columns}
        return [(path, name) for name, path in {**columns, **videos}.items()]

    def sizes(self) -> Iterator[tuple[int, dict[str, tuple[int, tuple[int, int]]]]]:
        """Yields the sizes of the rows of each episode, and the sizes and files of its frames.

        They are in bytes, by video feature, for staged datasets. In version 2.1, they are zero.
        """
        videos = self._info.videos
        if not self._info.is_v3:
            yield from itertools.repeat((0, {}), len(self.lengths))
            return
        names = [(layout.video_bytes(name), *layout.video_columns(name)[:2]) for name in videos]
        columns = [map(self._table.column, video_sizes) for video_sizes in names]
        frames = [[*zip(size, zip(chunk, file))] for size, chunk, file in columns]
        for rows, *video_sizes in zip(self._table.column(layout.DATA_BYTES).tolist(), *frames):
            yield rows, dict(zip(videos, video_sizes))

    def frames(self, split: str, index: int, name: str) -> Span:
        """Returns the location of the frames of a video feature, for copies."""
        row = self._table.row(self._splits[split][index])
        return self._videos.span(row, name, functools.partial(self._timestamps, row))

    def can_be_copied(
        self, schema: Any, version: str, paths: Mapping[str, str] | None = None
    ) -> bool:
        """Returns True if stored episodes can be copied to a new dataset.

        Args:
          schema: The Arrow schema of the rows of the new dataset.
          version: The version of the new dataset.
          paths: The paths of features in steps of the new dataset, by name; None if they are equal.
        """
        own_schema, is_same = decode_schema(self._data.schema), paths in (None, self._paths)
        is_ordered = self._options["match"] == "order"
        is_same &= self._info.is_v3 == (version == "v3.0")
        return is_ordered and is_same and bool(own_schema.equals(schema))

    def stored_episode(
        self, split: str, index: int, schema: Any, *, is_checked: bool = True
    ) -> NewEpisode | None:
        """Returns a stored episode; None if it cannot be copied.

        Args:
          split: The split.
          index: The index of the episode.
          schema: The Arrow schema of the new dataset. Files of a dataset may have several schemas.
          is_checked: True to decode and check all values, not only numbers.

        Raises:
          SourceError: The episode is damaged.
        """
        position, numeric_names = self._splits[split][index], self._numeric_columns
        values = self._columns if is_checked else numeric_names
        episode = self._read_stored(position, values, self._info.videos)
        row = self.stored_row(split, index)
        statistics = read_statistics(row)
        if not statistics or not episode.table.schema.equals(schema):
            return None
        return NewEpisode(
            dict(zip(episode.table.column_names, episode.table.columns)),
            episode.tasks,
            statistics,
            episode.frames,
            layout.user_cells(row),
            {name: episode.columns[name] for name in self.task_columns},
            self.texts,
            {name: episode.columns[name] for name in numeric_names},
            {name: data for name, data in episode.extras.items() if data},
        )

    def stored_episodes(self, split: str, indices: range) -> Iterator[EpisodeBatch]:
        """Yields batches of stored episodes of a staged dataset (3.0).

        Args:
          split: The split.
          indices: The indices of the episodes.

        Raises:
          SourceError: An episode is damaged.
        """
        span = self._splits[split][indices.start : indices.stop]
        for positions, table in self._table.rows_by_file(span):
            lengths, sizes = (flatten_column(table[name]) for name in ("length", layout.DATA_BYTES))
            batch = np.cumsum(sizes) // _COPY_BYTES
            end_positions = [*(np.flatnonzero(np.diff(batch)) + 1).tolist(), len(positions)]
            for start, end in zip([0, *end_positions], end_positions):
                with_files = map(self._table.row, positions[start:end] if self._extras else ())
                files = map(self._extra_files, with_files)
                extras = [{name: data for name, data in f.items() if data} for f in files]
                first_row = self._table.row(positions[start])
                rows = self._data.read_stored_rows(first_row, lengths[start:end])
                yield EpisodeBatch(rows, table.slice(start, end - start), self.texts, extras)

    @property
    def _numeric_columns(self) -> list[str]:
        return [name for name, column in self._columns.items() if column.kind == "numbers"]

    def _read_stored(
        self, position: int, values: Collection[str], videos: Collection[str]
    ) -> _StoredEpisode:
        episode = self._last_episode  # Copies also compute the digest.
        episode = episode if episode is not None and episode.position == position else None
        if episode is None or not {*values, *videos} <= {*episode.columns, *episode.frames}:
            row = self._table.row(position)
            with source_errors(self._root / row.file, episode=row.key):
                table, columns = self._data.read_stored(row, self._columns, values)
                times = functools.partial(self._timestamps, row)
                frames = {n: self._videos.span(row, n, times) for n in videos}
                tasks = [""] * row.length
                if _TASK_INDEX in columns:
                    span = range(row.length)
                    tasks = self._instructions(row, columns[_TASK_INDEX], span).tolist()
                extras = self._extra_files(row)
            episode = _StoredEpisode(position, table, columns, tasks, frames, extras)
            self._last_episode = episode
        return episode

    def stored_row(self, split: str, index: int) -> Mapping[str, Any]:
        """Returns the content of `lerobot/row` of an episode, with statistics as arrays.

        Raises:
          SourceError: The row is damaged.
        """
        return self._table.full_row(self._splits[split][index])

    def stored_digest(self, split: str, index: int) -> int:
        """Returns a digest of the rows of an episode, its tasks, packets and further files.

        The digest does not depend on indices in the dataset, so copies have the same digest.

        Raises:
          SourceError: The episode is damaged.
        """
        position = self._splits[split][index]
        episode = self._read_stored(position, self._columns, self._info.videos)
        row, content = self._table.row(position), dict[str, Any](episode.columns)
        with source_errors(self._root / row.file, episode=row.key):
            for name in layout.INDEX_COLUMNS:
                content.pop(name, None)
            for name in self.task_columns:
                indices = episode.columns[name].ravel().tolist()
                content[name] = objects([str(self.texts.get(n, n)) for n in indices])
            runs = [f"{len([*rows])} {text}" for text, rows in itertools.groupby(episode.tasks)]
            content |= {layout.TASK: objects(runs), **episode.extras}
            crc = 0
            for chunk in iter_content(content):
                crc = google_crc32c.extend(crc, bytes(chunk))
            for frames in episode.frames.values():
                crc = google_crc32c.extend(crc, b"%d" % frames.digest())
            return int(crc)

    def _read_metadata(
        self, position: int, row: EpisodeRow, paths: Collection[str]
    ) -> dict[str, Any]:
        """Returns the requested fields of an episode by path."""
        metadata: dict[str, Any] = {}
        if ROW in paths:
            metadata[ROW] = json.dumps(
                self._table.full_row(position),
                ensure_ascii=False,
                default=lambda value: value.tolist(),
            )
        for name in self._info.videos:
            camera = f"{VIDEO}/{self._paths[name]}"
            if any(path.startswith(f"{camera}/") for path in paths):
                metadata[camera] = self._videos.read(row, name, lambda: self._timestamps(row))
        if any(path.startswith(f"{EXTRA_FILES}/") for path in paths):
            metadata[EXTRA_FILES] = self._extra_files(row)
        return metadata

    def _extra_files(self, row: EpisodeRow) -> dict[str, bytes]:
        folder = self._root / layout.EXTRAS.format(episode_index=row.index)
        files = {name: folder / name for name in self._extras}
        return {name: read_bytes(f) if f.exists() else b"" for name, f in files.items()}

    def _timestamps(self, row: EpisodeRow) -> np.ndarray:
        return self._data.read(row, [_TIMESTAMP])[_TIMESTAMP]

    def _steps(self, row: EpisodeRow, paths: Collection[str], span: range) -> dict[str, Any]:
        """Returns the requested columns of steps by path, and the flags."""
        if not row.length:
            raise SourceError("no rows", file=self._root / row.file)
        files = {name for name, column in self._columns.items() if column.kind == "image"}
        requested_names = {name for name, path in self._paths.items() if path in paths}
        requested_names |= {name for name in files if f"{IMAGE_FILE}/{self._paths[name]}" in paths}
        requested_names |= {_TASK_INDEX} if self._task_path in paths else set()
        names = [name for name in self._columns if name in requested_names]
        columns = self._data.read(row, names, span)
        steps = {self._paths[name]: columns[name] for name in names}
        for name in files.intersection(names):
            steps[f"{IMAGE_FILE}/{self._paths[name]}"] = columns[name + PATH]
        if self._task_path in paths:
            steps[self._task_path] = self._instructions(row, columns[_TASK_INDEX], span)
        if styles := [style for style in self._styles if f"{LANGUAGE}/{style}" in paths]:
            texts = self._read_language(row, span)
            steps |= {f"{LANGUAGE}/{style}": texts[style] for style in styles}
        flags = step_flags([row.length], [self._is_terminal(row)])
        if rlds.DISCOUNT in paths and rlds.DISCOUNT not in steps:
            flags[rlds.DISCOUNT] = 1 - flags[rlds.IS_TERMINAL].astype(np.float32)
        return {**steps, **{name: column[span.start : span.stop] for name, column in flags.items()}}

    def _read_language(self, row: EpisodeRow, span: range) -> dict[str, np.ndarray]:
        """Returns the language texts of each row, by style."""
        names = [name for name in (PERSISTENT, EVENTS) if self._is_list(name)]
        columns = self._data.read(row, [*names, _TIMESTAMP] if names else [SUBTASK_INDEX], span)
        if names:
            return decode_texts({name: columns[name] for name in names}, columns[_TIMESTAMP])
        indices = columns[SUBTASK_INDEX]
        if self.subtasks and (unknown := unknown_indices(indices, self.subtasks)):
            offset = int(np.argmax(indices == unknown[0]))
            raise self._missing_text(row, span, offset, SUBTASK_INDEX, f"subtask {unknown[0]}")
        texts = [self.subtasks.get(offset, "") for offset in indices.ravel().tolist()]
        return {"subtask": objects(texts)}

    def _is_terminal(self, row: EpisodeRow) -> bool:
        """Returns True if the flag of the last row marks a terminal state."""
        if self._flag is None:
            return False
        names = [name for name in (self._flag, _TRUNCATED) if name in self._columns]
        last_row = self._data.read(row, names, range(row.length)[-1:])
        flags = [bool(np.any(last_row[name])) for name in names]
        return flags[0] and not any(flags[1:])

    def _instructions(self, row: EpisodeRow, tasks: np.ndarray, span: range) -> np.ndarray:
        texts = [self.texts.get(int(task)) for task in tasks]
        if None in texts:
            offset = texts.index(None)
            raise self._missing_text(row, span, offset, _TASK_INDEX, f"task {tasks[offset]}")
        return objects(texts)

    def _missing_text(
        self, row: EpisodeRow, span: range, offset: int, field: str, missing: str
    ) -> SourceError:
        missing, position = f"the dataset has no {missing}", row.start + span.start + offset
        file = self._root / row.file
        return SourceError(missing, file=file, episode=row.key, row=position, field=field)
