"""LeRobot datasets (https://github.com/huggingface/lerobot) as RLDS, read without LeRobot.

A row of a LeRobot dataset is an observation with the action that was taken on it. There is no row
for the observation after the last action, and nothing says whether that was a terminal state. So
`T` rows become `T` steps with `final_observation_known=False`, and an episode counts as truncated
unless you say which flag of the rows is to be believed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
from rlds.formats.lerobot.columns import (
    Column,
    column_of,
    contradiction,
    image_field,
    objects,
    values_of,
)
from rlds.formats.lerobot.dataset_tables import (
    encoded_schema,
    episode_table,
    named_by_tables,
    other_files,
    read_info,
    read_tasks,
    task_text,
    walk,
)
from rlds.formats.lerobot.layout import (
    ASIDE,
    EXTRAS,
    INFO,
    METADATA_KEY,
    TASK,
    EpisodeRow,
    episode_key,
    step_paths,
    task_path,
)
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.videos import EpisodeVideo, Videos
from rlds.raw_files.untrusted import check_is_file, source_errors
from rlds.sources.sidecar import StoredSidecar
from rlds.sources.source import (
    ALL_ROWS,
    Origin,
    Outline,
    RandomAccessSource,
    SourceEpisode,
    SourceError,
)
from rlds.video import CLIP, FIRST, FRAMES, VIDEO
from rlds_ecosystem import stores
from rlds_ecosystem.columns import step_flags
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import nest

__all__ = ["EXTRA_FILES", "IMAGE_FILE", "ROW", "STATS", "LeRobotSource"]

# The fields of an episode, beside `video`: what its row of the tables says, in JSON; its
# statistics, if they are apart; the files that RoboCasa has of it.
ROW, STATS, EXTRA_FILES = "lerobot/row", "lerobot/stats", "extras"
# The names of image files, which are beside their bytes.
IMAGE_FILE = "image_file"

_EPISODE_INDEX, _FRAME_INDEX, _TASK_INDEX, _TIMESTAMP = (
    "episode_index",
    "frame_index",
    "task_index",
    "timestamp",
)
_TRUNCATED = "next.truncated"
_MAX_EXTRA = 1 << 28


class LeRobotSource(RandomAccessSource):
    """The episodes of a LeRobot dataset of version 2.0, 2.1 or 3.0.

    A feature is a field of the steps: `observation.images.top` is `observation/images/top`,
    `next.reward` is `reward`; `layout.step_paths` has the rules. All columns are kept, in the
    dtypes of the files. The text of the task of each row is `language_instruction`. Files of images
    stay the same bytes; their names are in `image_file/...`. A column that has no dtype, a list of
    objects, say, is text in JSON.

    The frames of videos stay packets: an episode has, for each video feature, a field
    `video/<path of its field>`, see `rlds.video`. Other fields of an episode are:

    * `lerobot/row`: in JSON, all that the episode table says of it, with its statistics;
    * `lerobot/stats`: in JSON, its line of episodes_stats.jsonl (2.1);
    * `extras`: the files that RoboCasa keeps of the episode.

    The metadata has what else there is: info.json, the tasks, other files in `meta`. A dataset that
    `rlds.sources.export` made of other data gives that data again.

    Args:
      path: The folder, which has `meta/info.json`.
      video: Whether `rlds.sources.open` decodes frames into the steps: as "frames", which are
        arrays, or as "png" or "jpeg" files, as loaders of RLDS datasets have them.
      quality: The quality of the JPEG files, 1 to 100.
      flat_cameras: Whether `observation.images.top` is `observation/top`: loaders of Octo and
        OpenVLA look for cameras right below `observation`.
      match: How frames belong to rows: one after the other, or by the `timestamp` of each row. The
        latter is for data from which rows were taken out; steps then say which frame is theirs.
      terminal: Which flag of the last row says that the episode ended in a terminal state:
        `next.done` or `next.success`, unless `next.truncated` is set. If None, no episode did.

    Raises:
      FileNotFoundError: There is no dataset.
      SourceError: info.json or a table is damaged, or no data file can be read.
      ValueError: There is no such flag.
    """

    description = "Episodes of a LeRobot dataset."
    homepage = "https://github.com/huggingface/lerobot"
    reads_rows = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        video: Literal["packets", "frames", "png", "jpeg"] = "packets",
        quality: int = 95,
        flat_cameras: bool = False,
        match: Literal["order", "timestamp"] = "order",
        terminal: Literal["done", "success"] | None = None,
    ) -> None:
        self._root = stores.as_path(path)
        self.video, self.quality = video, quality
        self._options: dict[str, Any] = {"video": video, "match": match, "terminal": terminal}
        # Of what is not chosen, nothing is said: conversions that were begun earlier go on.
        self._options |= {"quality": quality} if video == "jpeg" else {}
        self._options |= {"flat_cameras": True} if flat_cameras else {}
        if not (self._root / INFO).exists():
            raise FileNotFoundError(f"{os.fspath(path)!r} has no {INFO}.")
        self._info = read_info(self._root)
        self._table = episode_table(self._root, self._info)
        self._tasks = read_tasks(self._root, self._info)
        self._texts = {row["task_index"]: task_text(row) for row in self._tasks}
        self._videos = Videos(self._root, self._info, self._table)
        self._rows: dict[tuple[str, ...], ParquetRows] = {}
        number, num_lost = len(self._table.indices), len(self._table.lost)
        splits = _splits(self._info.raw.get("splits"), number, num_lost)
        self._splits = splits or {"train": range(number)}
        self._columns, self._schema = self._look_at_columns()
        names = [*self._columns, *self._info.videos]
        paths = step_paths(names, flat_cameras=flat_cameras)
        self._paths = paths
        self._task_path = task_path(paths)
        flag = f"next.{terminal}"
        if terminal is not None and flag not in self._columns:
            raise ValueError(f"terminal: {terminal!r}, but there is no column {flag!r}")
        self._flag = None if terminal is None else flag
        self._extras = self._extra_names()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": {}}  # They are open.

    @classmethod
    def recognizes(cls, path: str | os.PathLike[str]) -> bool:
        """See `Source`."""
        file = stores.as_path(path) / INFO
        if not file.exists():
            return False
        check_is_file(file)
        with stores.open_binary(file) as opened:
            raw = json.loads(opened.read(1 << 24))
        return isinstance(raw, dict) and {"codebase_version", "features"} <= raw.keys()

    # --- What there is.

    def _look_at_columns(self) -> tuple[dict[str, Column], str | None]:
        """Returns the columns of the first data file that can be read, and its schema."""
        damage: Exception | None = None
        tried: set[str] = set()
        for place in range(len(self._table.indices)):
            try:
                row = self._table.row(place)
                file = self._info.data_file(row)
                if file in tried:
                    continue
                tried.add(file)
                with named_by_tables(self._root / file):
                    rows = ParquetRows(self._root / file)
                return self._columns_of(rows), encoded_schema(rows.schema)
            except SourceError as error:
                damage = damage or error
        if damage is not None:
            raise damage
        raise SourceError("there is no episode", file=self._root / INFO)

    def _columns_of(self, rows: ParquetRows) -> dict[str, Column]:
        columns = {}
        for field in rows.schema:
            if field.name in columns:
                raise SourceError("two columns have one name", file=rows.path, field=field.name)
            column = column_of(field, self._info.features.get(field.name))
            if column.kind == "image" and rows.num_rows:
                first = ParquetRows(rows.path, [field.name]).read(0, 1)[field.name]
                data = first.combine_chunks().field("bytes")[0].as_py()
                with source_errors(rows.path, row=0, field=field.name):
                    column = Column(field.name, "image", image_field(data or b""))
            columns[field.name] = column
        for name in (_EPISODE_INDEX, _FRAME_INDEX):
            if name not in columns:
                raise SourceError("no such column", file=rows.path, field=name)
        return columns

    def _extra_names(self) -> list[str]:
        """The names of the files that the first episode with such files has."""
        folder = self._root / "extras"
        if not folder.exists() or not len(self._table.indices):
            return []
        first = self._root / EXTRAS.format(episode_index=int(self._table.indices[0]))
        return [file.name for file in walk(first)]

    @override
    def stored_sidecar(self) -> StoredSidecar | None:
        stored = StoredSidecar.in_folder(self._root / ASIDE)
        if stored is None:
            return None
        names, paths = stored.sidecar.places, {TASK: self._task_path, **self._paths}
        if len(stored) != len(self._table.indices) or not {*names.values()} <= paths.keys():
            return None  # Others added episodes to those that were exported, or took fields away.
        clips: dict[str, str] = {}
        for camera, name in stored.sidecar.metadata.get(VIDEO, {}).items():
            if name not in self._info.videos:
                raise SourceError(f"no videos of {name!r:.100}", file=stored.files[0])
            for part in (CLIP, FIRST):
                clips[f"{camera}/{part}"] = f"{VIDEO}/{paths[name]}/{part}"
        fields = {path: Field(np.int64 if path.endswith(FIRST) else bytes) for path in clips}
        stored.sidecar = dataclasses.replace(
            stored.sidecar,
            places={path: paths[name] for path, name in names.items()},
            episode={**stored.sidecar.episode, **fields},
            episode_places=clips,
        )
        return stored

    def step_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        fields = {self._paths[name]: column.field for name, column in self._columns.items()}
        for name, column in self._columns.items():
            if column.kind == "image":
                fields[f"{IMAGE_FILE}/{self._paths[name]}"] = Field(str)
        if _TASK_INDEX in self._columns:
            fields[self._task_path] = Field(str, doc="The text of the task.")
        fields.setdefault(rlds.DISCOUNT, Field(np.float32))
        return nest(fields)

    def episode_fields(self) -> Mapping[str, Any]:
        """See `Source`."""
        fields: dict[str, Any] = {ROW: Field(str), STATS: Field(str)}
        for name in self._info.videos:
            path = self._paths[name]
            fields[f"{VIDEO}/{path}/{CLIP}"] = Field(bytes)
            fields[f"{VIDEO}/{path}/{FIRST}"] = Field(np.int64)
            if self._options["match"] == "timestamp":
                fields[f"{VIDEO}/{path}/{FRAMES}"] = Field(np.int64, (None,))
        fields |= {f"{EXTRA_FILES}/{name}": Field(bytes) for name in self._extras}
        return nest(fields)

    def metadata(self) -> Mapping[str, Any]:
        """Returns what is said of the data as a whole.

        Under `lerobot`: `info`; `tasks` in the order of their table; `schemas` of Arrow, in base64;
        other `files` by path, as `text` or `base64`, and those that were `left_out`, as they are
        large; the path in a step of each feature in `fields`.
        """
        files, left_out = other_files(self._root)
        schemas = {"data": self._schema, "episodes": self._table.schema}
        return {
            METADATA_KEY: {
                "info": self._info.raw,
                "tasks": self._tasks,
                "schemas": schemas,
                "files": files,
                "left_out": left_out,
                "fields": self._paths,
            }
        }

    def inputs(self) -> Sequence[epath.Path]:
        """Returns all files of the tables, the data and the videos."""
        folders = [self._root / name for name in ("meta", "data", "videos", "extras")]
        return [file for folder in folders for file in walk(folder)]

    def options(self) -> Mapping[str, Any]:
        """Returns the options."""
        return dict(self._options)

    @property
    def splits(self) -> Sequence[str]:
        """Those of info.json; one, `train`, if they are not of all episodes."""
        return list(self._splits)

    def num_episodes(self, split: str) -> int:
        """See `Source`."""
        return len(self._splits[split])

    def num_steps(self, split: str) -> Sequence[int] | None:
        """See `Source`."""
        if self._table.lost:
            return None
        places = self._splits[split]
        return [int(n) for n in self._table.lengths[places.start : places.stop]]

    def key(self, split: str, index: int) -> str:
        """Returns `episode_000012`, by `episode_index`."""
        place = self._splits[split][index]
        return episode_key(int(self._table.indices[place]))

    def totals(self, split: str) -> Mapping[str, int]:
        """Returns how many rows the data files have."""
        del split
        if len(self._splits) > 1:
            return {}
        files = walk(self._root / "data", ".parquet")
        return {"rows": sum(ParquetRows(file).num_rows for file in files)}

    def faults(self, split: str) -> Iterator[SourceError]:
        """Yields where info.json is not what the files are."""
        del split
        raw, file = self._info.raw, self._root / INFO
        version = str(raw.get("codebase_version"))
        if version.lstrip("v").startswith("3") != self._info.is_v3:
            what = f"{version}, but the files are those of {'3.0' if self._info.is_v3 else '2.x'}"
            yield SourceError(what, file=file, field="codebase_version")
        lengths = self._table.lengths
        for name, found in {
            "total_episodes": len(lengths),
            "total_frames": int(lengths.sum()),
            "total_tasks": len(self._tasks),
        }.items():
            if name in raw and raw[name] != found and not self._table.lost:
                yield SourceError(
                    f"{raw[name]!r:.100}, but there are {found}", file=file, field=name
                )
        for name, feature in self._info.features.items():
            if name not in self._columns and not feature.is_video:
                what = "declared, but the data files have no such column"
                yield SourceError(what, file=file, field=f"features/{name}")
        for name, column in self._columns.items():
            what = "not declared, but the data files have such a column"
            if name in self._info.features:
                what = contradiction(column, self._info.features[name])
            if what:
                yield SourceError(what, file=file, field=f"features/{name}")
        order = [row["task_index"] for row in self._tasks]
        if self._info.is_v3 and order != list(range(len(order))):
            what = f"the rows are in the order {order[:10]}, by which LeRobot takes wrong tasks"
            yield SourceError(what, file=self._root / "meta/tasks.parquet", field=_TASK_INDEX)
        if "splits" in raw and not _splits(raw["splits"], len(lengths), len(self._table.lost)):
            what = f"{raw['splits']!r:.100}, expected ranges of the {len(lengths)} episodes"
            yield SourceError(what, file=file, field="splits")

    # --- One episode.

    @override
    def outline(self, split: str, index: int) -> Outline:
        place = self._splits[split][index]
        row = self._table.row(place)
        terminal = self._ending(row) if self._flag else False
        return Outline(row.length, max(row.length - 1 + terminal, 0), False)

    @override
    def read(
        self,
        split: str,
        index: int,
        fields: Collection[str] | None = None,
        rows: slice = ALL_ROWS,
    ) -> SourceEpisode:
        place = self._splits[split][index]
        row = self._table.row(place)
        with self._located(row):
            first = self._table.first_row(row)
            return SourceEpisode(
                key=episode_key(row.index),
                steps=nest(self._steps(row, self.step_paths(fields), range(row.length)[rows])),
                origin=Origin(self._info.data_file(row), first, first + row.length),
                truncated=not (self._flag and self._ending(row)),
                final_observation_known=False,
                metadata=nest(self._about(place, row, self.episode_paths(fields))),
                counts={"rows": row.length},
            )

    def _located(self, row: EpisodeRow) -> Any:
        return source_errors(self._root / self._info.data_file(row), episode=episode_key(row.index))

    def _about(self, place: int, row: EpisodeRow, wanted: Collection[str]) -> dict[str, Any]:
        """The wanted fields of an episode by path."""
        about: dict[str, Any] = {}
        if ROW in wanted or STATS in wanted:
            whole, stats = self._table.whole(place)
            about[ROW] = json.dumps(whole, ensure_ascii=False)
            about[STATS] = "" if stats is None else json.dumps(stats, ensure_ascii=False)
        for name in self._info.videos:
            camera = f"{VIDEO}/{self._paths[name]}"
            if not any(path.startswith(f"{camera}/") for path in wanted):
                continue
            found = self._video(row, name)
            about[f"{camera}/{CLIP}"] = found.clip
            about[f"{camera}/{FIRST}"] = np.int64(found.first)
            if self._options["match"] == "timestamp":
                about[f"{camera}/{FRAMES}"] = found.frames
        for name in self._extras:
            if f"{EXTRA_FILES}/{name}" in wanted:
                about[f"{EXTRA_FILES}/{name}"] = self._extra(row, name)
        return about

    def _video(self, row: EpisodeRow, name: str) -> EpisodeVideo:
        times = None
        if self._options["match"] == "timestamp" or not self._videos.has_one_for_each(row, name):
            times = self._read_columns(row, [_TIMESTAMP])[_TIMESTAMP]
        return self._videos.read(row, name, times, by_time=self._options["match"] == "timestamp")

    def _extra(self, row: EpisodeRow, name: str) -> bytes:
        file = self._root / EXTRAS.format(episode_index=row.index) / name
        if not file.exists():
            return b""
        check_is_file(file)
        with stores.open_binary(file) as opened:
            data = opened.read(_MAX_EXTRA + 1)
        if len(data) > _MAX_EXTRA:
            raise SourceError("too large", file=file)
        return data

    def _steps(self, row: EpisodeRow, wanted: Collection[str], span: range) -> dict[str, Any]:
        """Returns the wanted columns of the steps by path, and the flags."""
        if not row.length:
            raise SourceError(
                "no rows", file=self._info.data_file(row), episode=episode_key(row.index)
            )
        names = [
            name
            for name, column in self._columns.items()
            if self._paths[name] in wanted
            or (column.kind == "image" and f"{IMAGE_FILE}/{self._paths[name]}" in wanted)
            or (name == _TASK_INDEX and self._task_path in wanted)
        ]
        table = self._read_columns(row, names, span)
        steps = {self._paths[name]: table[name] for name in names}
        for name in names:
            if name + _PATH in table:
                steps[f"{IMAGE_FILE}/{self._paths[name]}"] = table[name + _PATH]
        if self._task_path in wanted:
            steps[self._task_path] = self._instructions(row, table[_TASK_INDEX], span)
        terminal = self._ending(row) if self._flag else False
        if rlds.DISCOUNT in wanted and rlds.DISCOUNT not in steps:
            discount = np.ones(row.length, np.float32)
            discount[-1] = 0.0 if terminal else 1.0
            steps[rlds.DISCOUNT] = discount[span.start : span.stop]
        flags = step_flags([row.length], [terminal])
        return {**steps, **{name: flag[span.start : span.stop] for name, flag in flags.items()}}

    def _ending(self, row: EpisodeRow) -> bool:
        """Whether the flag of the last row says that the episode ended in a terminal state."""
        assert self._flag is not None
        names = [name for name in (self._flag, _TRUNCATED) if name in self._columns]
        last = self._read_columns(row, names, range(row.length)[-1:])
        found = [bool(np.any(last[name])) for name in names]
        return found[0] and not any(found[1:])

    def _instructions(self, row: EpisodeRow, tasks: np.ndarray, span: range) -> np.ndarray:
        texts = [self._texts.get(int(task)) for task in tasks]
        if None in texts:
            number = texts.index(None)
            raise SourceError(
                f"task {tasks[number]}, which is no task of the dataset",
                file=self._root / self._info.data_file(row),
                episode=episode_key(row.index),
                row=self._table.first_row(row) + span.start + number,
                field=_TASK_INDEX,
            )
        return objects(texts)

    def _read_columns(
        self, row: EpisodeRow, names: Collection[str], span: range | None = None
    ) -> dict[str, np.ndarray]:
        """Returns columns of the rows of an episode, which are checked to be its rows."""
        span = range(row.length) if span is None else span
        name = self._info.data_file(row)
        file = os.fspath(self._root / name)
        first, episode = self._table.first_row(row), episode_key(row.index)
        wanted = [*dict.fromkeys([_EPISODE_INDEX, _FRAME_INDEX, *names])]
        with self._data_file(file, wanted) as rows:
            if not self._info.is_v3 and rows.num_rows != row.length:
                what = f"{rows.num_rows} rows, but episodes.jsonl says {row.length}"
                raise SourceError(what, file=file, episode=episode)
            try:
                table = rows.read(first + span.start, first + span.stop)
            except SourceError as error:
                error.locate(episode=episode)
                raise
        found: dict[str, np.ndarray] = {}
        for column in wanted:
            try:
                found[column] = values_of(self._columns[column], table[column], file, episode)
                if self._columns[column].kind == "image":
                    found[column + _PATH] = _image_paths(table[column])
            except SourceError as error:
                if error.row is not None:
                    row_in_file = first + span.start + error.row
                    raise SourceError(
                        error.what, file=file, episode=episode, row=row_in_file, field=column
                    ) from error
                raise
        numbers = {_EPISODE_INDEX: np.full(len(span), row.index)}
        frames = found[_FRAME_INDEX]
        numbers[_FRAME_INDEX] = frames[:1] + np.arange(len(span))
        for column, expected in numbers.items():
            wrong = np.flatnonzero(found[column] != expected)
            if len(wrong):
                at = int(wrong[0])
                what = f"{found[column][at]}, expected {expected[at]}: rows are shifted or missing"
                raise SourceError(
                    what, file=file, episode=episode, row=first + span.start + at, field=column
                )
        return found

    @contextlib.contextmanager
    def _data_file(self, file: str, columns: Sequence[str]) -> Iterator[ParquetRows]:
        """Yields a data file that goes on where it was read last."""
        key = tuple(columns)
        rows = self._rows.pop(key, None)  # Another thread has its own.
        if rows is None or rows.path != file:
            with named_by_tables(file):
                rows = ParquetRows(file, columns)
            missing = [name for name in self._columns if name not in rows.schema.names]
            others = [name for name in rows.schema.names if name not in self._columns]
            for name in missing:
                raise SourceError("no such column, but others have one", file=file, field=name)
            for name in others:
                raise SourceError("a column that others do not have", file=file, field=name)
        yield rows
        while len(self._rows) > 7:
            self._rows.pop(next(iter(self._rows)), None)
        self._rows[key] = rows


def _image_paths(column: Any) -> np.ndarray:
    return objects([path or "" for path in column.combine_chunks().field("path").to_pylist()])


# Ends the name of what a column of images has beside their bytes.
_PATH = "/path"


def _splits(raw: Any, number: int, num_lost: int) -> dict[str, range]:
    """Returns the ranges of splits; none, if they are not all episodes without gaps.

    Args:
      raw: What info.json says.
      number: How many episodes there are.
      num_lost: How many of them the tables may not name; the last split has these.
    """
    found: dict[str, range] = {}
    for name, text in raw.items() if isinstance(raw, Mapping) else ():
        begin, colon, end = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not (name and colon and begin.isdecimal() and end.isdecimal()):
            found = {}
            break
        found[str(name)] = range(int(begin), int(end))
    covered, last = 0, ""
    for name, part in sorted(found.items(), key=lambda item: item[1].start):
        covered = part.stop if part.start == covered and part.stop >= part.start else -1
        if covered < 0:
            break
        last = name
    if not found or not number - num_lost <= covered <= number:
        return {}
    return {**found, last: range(found[last].start, number)}
