"""Crash recovery of LeRobot datasets.

A recorder writes the rows of an episode, then the frames of each camera, then its table row, and
finally the footers of the tables. An episode is therefore complete if each camera has a frame for
each row, independent of the tables. Complete episodes are written to a new dataset.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from rlds.formats.lerobot import layout
from rlds.formats.lerobot.cameras import clip_statistics, describe_video
from rlds.formats.lerobot.columns import data_column, decode_values, image_field
from rlds.formats.lerobot.dataset_files import DATASET_FILES, PATHS, Frames, NewEpisode, Version
from rlds.formats.lerobot.feature_statistics import (
    Statistics,
    column_statistics_like,
    image_statistics,
    match_shapes,
    read_statistics,
    sample_frames,
)
from rlds.formats.lerobot.layout import Info, episode_key
from rlds.formats.lerobot.modality import find_text_tables, read_modality
from rlds.formats.lerobot.parquet_rows import ParquetRows, as_numpy
from rlds.formats.lerobot.recorder import add_recordings, find_recordings, unfinished_files
from rlds.formats.lerobot.small_files import leftovers, other_files, read_bytes, task_text, walk
from rlds.formats.lerobot.source import LeRobotSource
from rlds.formats.lerobot.tables import data_schema, tasks_table
from rlds.formats.lerobot.unfinished_parquet import finish_parquet
from rlds.raw_files.tiff_images import is_depth_tiff, tiff_pixels
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.sources.encoded_clips import pixels
from rlds.sources.sidecar import SIDECAR_FILES
from rlds.sources.text_tables import TASKS, unknown_indices
from rlds.video.container import Clip, VideoFile
from rlds.video.encoding import encoded
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.replacing import replace_dataset
from rlds_ecosystem.files.whole_files import atomic_target
from rlds_ecosystem.video_codec import Video

__all__ = ["Recovered", "is_dataset", "recover"]

_IMAGES_FOLDER = "images"


@dataclasses.dataclass(frozen=True)
class Recovered:
    """The result of `recover`: counts before and after, faults and losses.

    Attributes:
      path: The recovered dataset, or the damaged dataset if nothing was written.
      num_episodes_before: The number of episodes in `info.json`.
      num_episodes: The number of complete episodes.
      num_steps_before: The number of rows in `info.json`.
      num_steps: The number of rows of the complete episodes.
      faults: Descriptions of the faults.
      lost: Descriptions of the lost data.
    """

    path: str
    num_episodes_before: int
    num_episodes: int
    num_steps_before: int
    num_steps: int
    faults: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def is_changed(self) -> bool:
        """True if the recovery changes the dataset."""
        return bool(self.faults or self.lost)


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Returns True if a local folder has a LeRobot dataset, or remains of one."""
    root = Path(path)
    if not stores.is_local(path) or not root.is_dir():
        return False
    has_rows = any(root.glob("data/chunk-*/*.parquet"))
    return (root / layout.INFO).exists() or has_rows or bool(find_recordings(root))


def recover(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    dry_run: bool = False,
) -> Recovered:
    """Recovers a LeRobot dataset after its recorder was killed, or after files were lost.

    An episode is recovered if each camera has a frame for each row. Video packets and rows do not
    change. Table rows are read, or rebuilt from the data rows. The unfinished episode of a
    `LeRobotBackendWriter` is added from its log.

    Args:
      path: The local dataset: version 2.0 (which becomes 2.1), 2.1 or 3.0. The recorder of the
        dataset must have ended.
      to: The path of the recovered dataset: a new or an empty folder.
      in_place: True to replace the damaged dataset, which becomes `<name>.old`.
      dry_run: True to report the result without writing.

    Raises:
      ValueError: None or several of `to`, `in_place` and `dry_run` are given; or `to` is in the
        dataset.
      FileExistsError: `to` or `<name>.old` exists.
      SourceError: No episode can be recovered.
    """
    if (to is not None) + in_place + dry_run != 1:
        raise ValueError("pass either to, or in_place=True, or dry_run=True")
    root = Path(os.path.realpath(path))
    if to is not None and root in (target := Path(os.path.realpath(to)), *target.parents):
        raise ValueError(f"{target} is in the dataset {root}; pass a folder outside")
    with tempfile.TemporaryDirectory(prefix="rlds-recover-") as scratch:
        with source_errors(root):
            damaged_dataset = _DamagedDataset(root, Path(scratch))
        if dry_run:
            damaged_dataset.add_recordings(Path(scratch) / "shown", is_new=True)
        report = damaged_dataset.report(path if to is None else to)
        if dry_run or (in_place and not report.is_changed):
            return report
        with replace_dataset(root, keep_old=True) if to is None else atomic_target(to) as draft:
            draft.mkdir()
            damaged_dataset.write(draft)
            report = damaged_dataset.report(path if to is None else to)
            if not report.num_episodes:
                problem = "; ".join(["no episode can be recovered", *report.lost])
                raise SourceError(problem, file=root)
            LeRobotSource(draft)
        return report


@dataclasses.dataclass
class _Episode:
    """An episode of a damaged dataset with readable rows.

    Attributes:
      index: The `episode_index`.
      file: The readable data file.
      start: The first row in the file.
      length: The number of rows.
      row: The metadata in the tables; empty if missing or wrong.
      tasks: The indices of the tasks.
      frames: Functions that return the frames, by video feature.
    """

    index: int
    file: Path
    start: int
    length: int
    row: Mapping[str, Any]
    tasks: Sequence[int]
    frames: dict[str, Callable[[], Frames]] = dataclasses.field(default_factory=dict)


class _DamagedDataset:
    """The readable files of a damaged LeRobot dataset.

    Args:
      root: The folder of the dataset.
      scratch: A folder for copies of files.
    """

    def __init__(self, root: Path, scratch: Path) -> None:
        self._root, self._scratch = root, scratch
        self._faults: list[str] = []
        # Recorders may write a further frame, which is no fault by itself.
        self._extra_frames: list[str] = []
        self._lost: list[str] = []
        self._videos: dict[str, VideoFile | None] = {}
        self._opened: dict[str, ParquetRows] = {}
        self.recordings = find_recordings(root)
        self._unfinished_files = unfinished_files(root)
        self._tasks: dict[int, str] = {}
        # The files and rows of episodes in the table of episodes.
        self._table_rows: dict[int, tuple[str, int]] = {}
        self._num_added = [0, 0]
        self.episodes: list[_Episode] = []
        self._info = self._read_info()
        raw = self._info.raw if self._info is not None else {}
        totals = [raw.get(name) for name in ("total_episodes", "total_frames")]
        self._declared_counts = [total if type(total) is int else 0 for total in totals]
        if self._info is not None:
            self._entries = self._read_table(self._info)
            self._schema, files = self._open_data_files(self._info)
            self._task_column = {"task_index"} & {*self._schema.names}
            features = self._info.features
            self._columns = {f.name: data_column(f, features.get(f.name)) for f in self._schema}
            self._find_episodes(files, self._info)
            self._read_tasks(self._info)
            for name in self._info.videos:
                self._find_frames(self._info, name)
            self._keep_complete(self._info)
        self._find_leftovers()

    def report(self, path: str | os.PathLike[str]) -> Recovered:
        """Returns the result of the recovery so far."""
        faults = tuple(
            dict.fromkeys([*self._faults, *(self._extra_frames if self._faults else ())])
        )
        recovered = [len(self.episodes), sum(episode.length for episode in self.episodes)]
        (episodes, steps), (declared, rows) = (
            map(sum, zip(recovered, self._num_added)),
            self._declared_counts,
        )
        return Recovered(os.fspath(path), declared, episodes, rows, steps, faults, (*self._lost,))

    # --- The existing files

    def _read_info(self) -> Info | None:
        file = self._root / layout.INFO
        if not file.exists() and not any(self._root.glob("data/chunk-*/*.parquet")):
            return None
        raw: Any = None
        with self._collect_faults(layout.INFO):
            raw = json.loads(read_bytes(epath.Path(file)))
        is_v3 = not (self._root / layout.EPISODES_JSONL).exists() and not any(
            self._root.glob("data/chunk-*/episode_*.parquet")
        )
        if raw is None:
            raw = _rebuild_info(self._root, is_v3=is_v3)
            self._lost.append(f"{layout.INFO}: the robot, the names of elements, and further facts")
        return Info.from_json(raw, file, is_v3=is_v3)

    def _read_table(self, info: Info) -> dict[int, dict[str, Any]]:
        """Reads the readable rows of the tables of episodes, by `episode_index`."""
        entries: dict[int, dict[str, Any]] = {}
        if not info.is_v3:
            for raw in self._lines(layout.EPISODES_JSONL):
                entries[_read_integer(raw, "episode_index")] = raw
            for raw in self._lines(layout.EPISODES_STATS):
                row = entries.get(_read_integer(raw, "episode_index"), {})
                stats = raw.get("stats")
                for feature, kinds in stats.items() if isinstance(stats, dict) else ():
                    row |= {f"stats/{feature}/{kind}": value for kind, value in kinds.items()}
            return entries
        for file in self._files(layout.EPISODES_FOLDER):
            if (rows := self._parquet(file)) is None:
                continue
            with self._collect_faults(file):
                rows.columns = [n for n in rows.schema.names if not n.startswith("stats/")]
                for table_row, row in enumerate(rows.read(0, rows.num_rows).to_pylist()):
                    entries[_read_integer(row, "episode_index")] = row
                    self._table_rows[row["episode_index"]] = rows.path, table_row
        return entries

    def _parquet(self, name: str) -> ParquetRows | None:
        """Returns a reader of a Parquet file; None for an unreadable file, which is a fault."""
        with self._collect_faults(name):
            with open(self._root / name, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4))
                if file.read() != b"PAR1":
                    raise SourceError("no footer: its recorder was killed", file=name)
            return ParquetRows(self._root / name)
        return None

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        file = self._root / name
        for line_index, line in enumerate(file.read_bytes().splitlines() if file.exists() else ()):
            with self._collect_faults(f"{name}, line {line_index + 1}"):
                yield dict(json.loads(line))

    def _files(self, folder: str, suffix: str = ".parquet") -> list[str]:
        files = walk(epath.Path(self._root / folder), suffix)
        names = [os.path.relpath(file, self._root) for file in files]
        return [name for name in names if name not in self._unfinished_files]

    def _open_data_files(self, info: Info) -> tuple[Any, dict[str, ParquetRows]]:
        """Returns the schema and the readers of the data files, or of completed copies."""
        files = {name: self._parquet(name) for name in self._files("data")}
        schemas = [rows.schema for rows in files.values() if rows is not None]
        schema = schemas[0] if schemas else data_schema(info.raw["features"])
        return schema, {
            name: rows or self._complete_copy(name, schema, info) for name, rows in files.items()
        }

    def _complete_copy(self, name: str, schema: Any, info: Info) -> ParquetRows:
        """Completes a copy of a file without a footer; returns the reader of the copy."""
        file = self._scratch / name.replace("/", "-")
        data = (self._root / name).read_bytes()
        num_unused = len(data)
        try:
            _, num_unused = finish_parquet(data, file, schema, info.features)
        except SourceError:
            finish_parquet(b"PAR1", file, schema, info.features)
        if num_unused:
            self._lost.append(f"{name}: {num_unused} bytes at its end are no complete rows")
        return ParquetRows(file)

    def _find_episodes(self, files: Mapping[str, ParquetRows], info: Info) -> None:
        episodes: dict[int, _Episode] = {}
        entry: Mapping[str, Any]
        for name, rows in files.items():
            table = None
            with self._collect_faults(name, is_loss=True):
                names = ["episode_index", "frame_index", *self._task_column]
                table = ParquetRows(rows.path, names).read(0, rows.num_rows)
                indices, frames, *tasks = (
                    as_numpy(column.combine_chunks()) for column in table.columns
                )
            if table is None:
                continue
            start_rows = np.flatnonzero((np.diff(indices, prepend=-1) != 0) | (frames == 0))
            for start, end in zip(start_rows, [*start_rows[1:], len(indices)]):
                index, length = int(indices[start]), int(end - start)
                key = episode_key(index)
                if (frames[start:end] != np.arange(length)).any() or index in episodes:
                    self._lost.append(f"{key}: {name} has rows of it out of order")
                    continue
                entry = self._entries.get(index, {})
                if entry and entry.get("length") != length:
                    self._faults.append(
                        f"{key}: the table has {entry.get('length')} rows, but {name} has {length}"
                    )
                    entry = _correct_length(entry, length, info)
                task_indices = [np.unique(column[start:end]).tolist() for column in tasks]
                file, ids = Path(rows.path), task_indices[0] if task_indices else []
                episodes[index] = _Episode(index, file, int(start), length, entry, ids)
        self.episodes = [episodes[index] for index in sorted(episodes)]
        for index in sorted(self._entries.keys() - episodes.keys()):
            self._lost.append(f"{episode_key(index)}: the table lists it, but its rows are missing")

    def _read_tasks(self, info: Info) -> None:
        """Reads the texts of tasks, from the tables of tasks or from other tables."""
        name = layout.TASKS if info.is_v3 else layout.TASKS_JSONL
        rows: list[Any] = [] if info.is_v3 else list(self._lines(name))
        if info.is_v3 and (table := self._parquet(name)) is not None:
            with self._collect_faults(name):
                rows = table.read(0, table.num_rows).to_pylist()
        if info.is_v3 and not rows and (self._root / name).exists():
            table = self._complete_copy(name, tasks_table([""]).schema, info)
            rows = table.read(0, table.num_rows).to_pylist()
        self._tasks = {_read_integer(row, "task_index"): str(task_text(row)) for row in rows}
        for episode in self.episodes:
            for index in sorted({*episode.tasks} - {*self._tasks}):
                texts = episode.row.get("tasks") or []
                if len(texts) == 1:
                    self._tasks[index] = texts[0]
                else:
                    self._replace_text(name, index)

    # --- Frames

    def _video(self, name: str) -> VideoFile | None:
        """Returns an open video; None for an unreadable video."""
        if name not in self._videos:
            self._videos[name] = None
            with self._collect_faults(name):
                video = VideoFile(self._root / name)
                video.index()
                self._videos[name] = video
                if video.fault:
                    self._faults.append(f"{name}: {video.fault}")
        return self._videos[name]

    def _find_frames(self, info: Info, camera: str) -> None:
        """Finds the frames of a video feature in each episode."""
        chunk, file_index, from_s, _ = layout.video_columns(camera)
        end_frames: dict[str, int] = {}
        starts: list[tuple[_Episode, str, float]] = []
        episodes = {e.index: e for e in self.episodes if e.row or not info.is_v3}
        unlisted = [e for e in self.episodes if e.index not in episodes]
        rows = {
            index: self._entries[index]
            for index in self._entries.keys() - {e.index for e in unlisted}
        }
        for index, row in (rows | {e.index: e.row for e in episodes.values()}).items():
            file = info.video_file(index, camera, row.get(chunk) or 0, row.get(file_index) or 0)
            start = row.get(from_s) or 0.0
            length = episodes[index].length if index in episodes else row.get("length") or 0
            end_frames[file] = max(end_frames.get(file, 0), round(start * info.fps) + length)
            if index in episodes:
                starts.append((episodes[index], file, start))
        for episode, file, start in starts:
            if (video := self._video(file)) is None:
                continue
            num_extra = video.info.num_frames - end_frames[file]
            first_frame = int(np.searchsorted(video.times, start - 0.5 / info.fps))
            if num_extra < 0 and not video.fault:
                self._add_frame_mismatch(file, video.info.num_frames)
            elif video.info.num_frames - first_frame >= episode.length:
                episode.frames[camera] = _defer_span(video, first_frame, episode.length)
            if num_extra > 0 and not info.is_v3:
                self._extra_frames.append(f"{file}: {num_extra} more frames than rows")
        if info.is_v3:
            next_index = max(rows, default=-1) + 1
            in_order = [e for index, e in enumerate(unlisted, next_index) if e.index == index]
            self._assign_in_order(info, camera, end_frames, in_order)
        for episode in self.episodes:
            if camera in episode.frames or (info.is_v3 and episode.row):
                continue
            if (clip := self._leftover_frames(info, camera, episode)) is not None:
                episode.frames[camera] = clip

    def _add_frame_mismatch(self, file: str, num_frames: int) -> None:
        """Adds the fault that the frames of a file cannot be assigned to rows."""
        self._faults.append(
            f"{file}: {num_frames} frames do not match the rows of its episodes, so their episodes "
            "are unknown"
        )

    def _assign_in_order(
        self, info: Info, camera: str, end_frames: Mapping[str, int], unlisted: list[_Episode]
    ) -> None:
        """Assigns the frames after all listed episodes to episodes without table rows."""
        files, num_claimed = self._files(f"videos/{camera}", ".mp4"), self._declared_counts[0]
        for file in files:
            video = self._video(file)
            if video is None:
                break
            end, num_frames = end_frames.get(file, 0), video.info.num_frames
            assigned: list[tuple[_Episode, int]] = []
            while unlisted and unlisted[0].length <= num_frames - end:
                assigned.append((unlisted.pop(0), end))
                end += assigned[-1][0].length
            # The remaining episodes have separate video files, or images that are not encoded.
            copies = [self._leftover_frames(info, camera, episode) for episode in unlisted]
            leftover = zip(unlisted, copies)
            unassigned = [e for e, f in leftover if f is None and e.index < num_claimed]
            # There may be frames between episodes, for example of final observations.
            has_gap = end < num_frames and bool(assigned or unlisted)
            if (has_gap or (unassigned and file == files[-1])) and not video.fault:
                self._add_frame_mismatch(file, num_frames)
                break
            for episode, start in assigned:
                episode.frames[camera] = _defer_span(video, start, episode.length)
            if video.fault:
                break

    def _leftover_frames(
        self, info: Info, camera: str, episode: _Episode
    ) -> Callable[[], Frames] | None:
        """Returns the frames of an episode in temporary videos or images; None without these."""
        names = (f"{camera}_{episode.index:03d}", f"{camera.replace('/', '_')}_streaming")
        clips = []
        for file in sorted(self._root.glob("tmp*/*.mp4")):
            if file.stem in names:
                with contextlib.suppress(SourceError):
                    video = VideoFile(file)
                    if video.info.num_frames == episode.length and not video.fault:
                        clips.append(_defer_span(video, 0, episode.length))
        if len(clips) == 1:
            return clips[0]
        for separator in "" if clips else "-_":  # Version 2.1 uses `_`.
            folder = self._root / _IMAGES_FOLDER / camera / f"episode{separator}{episode.index:06d}"
            images = [folder / f"frame{separator}{row:06d}.png" for row in range(episode.length)]
            if all(image.exists() for image in images):
                return functools.partial(_encode_images, images, info.fps)
        return None

    def _keep_complete(self, info: Info) -> None:
        """Keeps the episodes with all frames, and adds faults for missing table rows."""
        complete = []
        for episode in self.episodes:
            missing = [name for name in info.videos if name not in episode.frames]
            if missing:
                self._lost.append(
                    f"{episode_key(episode.index)}: {episode.length} rows, but other numbers of "
                    f"frames of {', '.join(missing)}"
                )
            else:
                complete.append(episode)
        table = layout.EPISODES_FOLDER if info.is_v3 else layout.EPISODES_JSONL
        keys = [episode_key(e.index) for e in self.episodes if e.index not in self._entries]
        if keys:
            up_to = f" to {keys[-1]}" if len(keys) > 1 else ""
            self._faults.append(f"{table}: rows are missing for {keys[0]}{up_to}")
        self.episodes = complete
        for name, total in {
            "total_episodes": len(complete),
            "total_frames": sum(episode.length for episode in complete),
        }.items():
            if info.raw.get(name) != total:
                self._faults.append(
                    f"{layout.INFO}: {name} is {info.raw.get(name)}, but {total} are complete"
                )
        if info.is_v3 and (self._root / layout.STATS).exists():
            with self._collect_faults(layout.STATS):
                json.loads(read_bytes(epath.Path(self._root / layout.STATS)))

    def _find_leftovers(self) -> None:
        """Adds faults for temporary folders of a killed recorder."""
        indices = {episode.index for episode in self.episodes}
        for name in leftovers(epath.Path(self._root)):
            self._faults.append(f"{name}: left over from a killed recorder")
            is_running = name.startswith(_IMAGES_FOLDER) and int(name[-6:]) not in indices
            if is_running and (num_images := len([*(self._root / name).iterdir()])):
                self._lost.append(f"{name}: {num_images} images without rows, which are lost")

    @contextlib.contextmanager
    def _collect_faults(self, name: str, *, is_loss: bool = False) -> Iterator[None]:
        """Catches the faults of a file, and adds them."""
        try:
            with source_errors(name):
                yield
        except (SourceError, FileNotFoundError) as error:
            problem = error.problem if isinstance(error, SourceError) else "is missing"
            (self._lost if is_loss else self._faults).append(f"{name}: {problem}")

    # --- Writing

    def write(self, path: Path) -> None:
        """Writes a dataset of the complete episodes."""
        if self._info is not None and self.episodes:
            self._write(path, self._info)
        self.add_recordings(path)

    def add_recordings(self, path: Path, *, is_new: bool = False) -> None:
        """Adds the logs of a recorder to a dataset.

        Args:
          path: The dataset.
          is_new: True if the dataset does not exist, which happens only in a dry run.
        """
        fps = self._info.fps if self._info is not None else None
        features = self._info.raw.get("features") if is_new and self._info else None
        copies = self._scratch / "logs"
        for log, counts, reason in add_recordings(path, self.recordings, copies, fps, features):
            self._num_added = [sum(pair) for pair in zip(self._num_added, counts)]
            if reason:
                self._lost.append(f"{log.name}: {reason}")

    def _write(self, path: Path, info: Info) -> None:
        texts = [self._tasks[index] for index in sorted(self._tasks)]
        statistics = (self._stored_statistics(episode) for episode in self.episodes)
        sample = next(filter(None, statistics), {})
        version: Version = "v3.0" if info.is_v3 else "v2.1"
        with DATASET_FILES[version](path, info.raw, self._schema, "train", texts) as files:
            episodes, self.episodes = self.episodes, []
            for episode in episodes:
                try:
                    with source_errors(episode.file, episode=episode_key(episode.index)):
                        rows = self._rows(episode, info, sample)
                except SourceError as error:
                    self._lost.append(str(error))
                    continue
                with source_errors(episode.file, episode=episode_key(episode.index)):
                    files.add(rows)
                extras = self._root / layout.EXTRAS.format(episode_index=episode.index)
                if extras.is_dir():
                    folder = layout.EXTRAS.format(episode_index=len(self.episodes))
                    shutil.copytree(extras, path / folder)
                self.episodes.append(episode)
            files.finish({})
        small_files, left_out = other_files(epath.Path(self._root))
        for name in [*small_files, *left_out]:
            if name not in (layout.STATS, *self._unfinished_files):
                (path / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(self._root / name, path / name)
        for name in (*SIDECAR_FILES, layout.DIGEST, layout.LEGACY_SIDECAR):
            if not (self._root / name).exists():
                continue
            (path / name).parent.mkdir(exist_ok=True)
            if [episode.index for episode in self.episodes] != [*range(self._declared_counts[0])]:
                self._lost.append(f"{name}: it belongs to other episodes")
            elif (self._root / name).is_dir():
                shutil.copytree(self._root / name, path / name)
            else:
                shutil.copyfile(self._root / name, path / name)

    def _read(self, path: str, start: int, end: int) -> Any:
        """Reads rows with a cached reader, which is fast for consecutive rows."""
        rows = self._opened.pop(path, None) or ParquetRows(path)
        self._opened = {**dict([*self._opened.items()][-2:]), path: rows}
        return rows.read(start, end)

    def _stored_statistics(self, episode: _Episode) -> dict[str, Statistics]:
        """Returns the stored statistics of an episode, if its stored length is correct."""
        entry = self._entries.get(episode.index, {})
        if not episode.row or entry.get("length") != episode.length:
            return {}
        with contextlib.suppress(SourceError):  # The statistics are recomputed.
            if episode.index in self._table_rows:
                path, row = self._table_rows[episode.index]
                entry = self._read(path, row, row + 1).to_pylist()[0]
            return read_statistics(entry)
        return {}

    def _rows(
        self, episode: _Episode, info: Info, template: Mapping[str, Statistics]
    ) -> NewEpisode:
        end = episode.start + episode.length
        table = self._read(os.fspath(episode.file), episode.start, end).cast(self._schema)
        tasks = [""] * episode.length
        if self._task_column:
            tasks = [self._tasks[index] for index in table["task_index"].to_pylist()]
        frames = {name: make() for name, make in episode.frames.items()}
        if not info.is_v3:
            frames = {name: _to_clip(span, episode.length) for name, span in frames.items()}
        statistics, values = self._stored_statistics(episode), dict[str, np.ndarray]()
        for name, column in self._columns.items():
            if column.kind == "numbers":
                with contextlib.suppress(SourceError):  # A value is missing.
                    values[name] = decode_values(column, table[name], SourceError)
        if not statistics:
            files = [name for name, column in self._columns.items() if column.kind == "image"]
            images = {n: table[n].combine_chunks().field("bytes").to_pylist() for n in files}
            clips = {name: _to_clip(span, episode.length) for name, span in frames.items()}
            statistics = _statistics(values, images, clips, info, template)
        columns = dict(zip(table.schema.names, table.columns))
        cells = layout.user_cells(episode.row)
        indices = {name: values[name] for name in self._task_columns}
        for name, column_indices in indices.items():
            for index in unknown_indices(column_indices, self._tasks):
                self._replace_text(name, index)
        return NewEpisode(columns, tasks, statistics, frames, cells, indices, self._tasks, values)

    def _replace_text(self, file: str, index: int) -> None:
        """Replaces the lost text of a task."""
        text = self._tasks[index] = f"task {index}"
        self._lost.append(f"{file}: the text of task {index} is lost; {text!r} replaces it")

    @functools.cached_property
    def _task_columns(self) -> set[str]:
        """The further columns with indices of tasks."""
        assert self._info is not None
        text = read_modality(epath.Path(self._root))
        tables = find_text_tables(text, self._columns.values(), self._info.raw["features"])
        return {name for name, table in tables.items() if table == TASKS} - self._task_column


def _correct_length(row: Mapping[str, Any], length: int, info: Info) -> Mapping[str, Any]:
    """Returns the metadata of an episode with its true length; empty if its videos differ.

    Args:
      row: The metadata in the table, with a wrong length.
      length: The number of rows in the data file.
      info: The content of `info.json`.
    """
    for camera in info.videos if info.is_v3 else ():
        start, end = (row.get(name) for name in layout.video_columns(camera)[2:])
        if start is None or end is None or round((end - start) * info.fps) != length:
            return {}
    return {**row, "length": length}


def _read_integer(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name)
    if type(value) is not int:
        raise SourceError(f"got {value!r:.100}, expected a number", file=name)
    return value


def _defer_span(video: VideoFile, start: int, num_frames: int) -> Callable[[], Frames]:
    return lambda: video.span(start, start + num_frames)


def _to_clip(frames: Frames, num_frames: int) -> Clip:
    if isinstance(frames, Clip):
        return frames
    start = int(np.flatnonzero(frames.video.index()[1].frames == frames.first)[0])
    return frames.video.clip(start, start + num_frames)


def _encode_images(images: Sequence[Path], fps: float) -> Clip:
    """Encodes images to a clip, with the settings of LeRobot."""
    pictures = [import_extra("PIL.Image").open(image).convert("RGB") for image in images]
    frames = [np.asarray(picture) for picture in pictures]
    return encoded(frames, Video(codec="av1", fps=fps, gop=2, delays=True), frames[0].shape)


def _statistics(
    values: Mapping[str, np.ndarray],
    images: Mapping[str, Sequence[bytes]],
    clips: Mapping[str, Clip],
    info: Info,
    template: Mapping[str, Statistics],
) -> dict[str, Statistics]:
    """Returns the statistics of an episode without stored statistics."""
    statistics = clip_statistics(clips, info.depths)
    statistics |= {n: column_statistics_like(c, template.get(n)) for n, c in values.items()}
    for name, files in images.items():
        samples = [files[row] for row in sample_frames(len(files))]
        statistics[name] = image_statistics(
            tiff_pixels(x) if is_depth_tiff(x) else pixels(x, image_field(x)) for x in samples
        )
    return match_shapes(statistics, template)


def _rebuild_info(root: Path, *, is_v3: bool) -> dict[str, Any]:
    """Rebuilds the required entries of a damaged `info.json` from the data and the videos.

    Args:
      root: The folder of the dataset.
      is_v3: True for the files of version 3.0.

    Raises:
      SourceError: No file has the schema of the columns.
    """
    rows = None
    for data in walk(epath.Path(root / "data"), ".parquet"):
        with contextlib.suppress(SourceError):
            rows = ParquetRows(data)
            break
    if rows is None:
        raise SourceError(
            "damaged, and no data file has a footer that lists its columns. Copy the info.json of "
            "a dataset with the same features here, and recover again",
            file=root / layout.INFO,
        )
    with source_errors(rows.path):
        entries = json.loads(rows.schema.metadata[b"huggingface"])["info"]["features"]
        last_row = rows.read(rows.num_rows - 1, rows.num_rows).to_pylist()[0]
        features = {n: _infer_feature(entries.get(n), last_row[n]) for n in rows.schema.names}
        rate = round(last_row["frame_index"] / last_row["timestamp"], 3)
    for file in walk(epath.Path(root / "videos"), ".mp4"):
        name = Path(file).relative_to(root / "videos").parts[0 if is_v3 else 1]
        if name not in features:
            with contextlib.suppress(SourceError):
                features[name] = describe_video(VideoFile(file).info)
    version: Version = "v3.0" if is_v3 else "v2.1"
    paths = dict(zip(("data_path", "video_path"), PATHS[version]))
    return {"codebase_version": version, "fps": rate, **paths, "features": features}


def _infer_feature(entry: Mapping[str, Any] | None, value: Any) -> dict[str, Any]:
    """Returns the entry of a column, from the entry in the schema, and a value."""
    if entry is None:
        return {"dtype": "language", "shape": [1], "names": None}
    if entry["_type"] == "Image":
        shape = [*image_field(value["bytes"]).shape]
        return {"dtype": "image", "shape": shape, "names": layout.IMAGE_NAMES}
    shape = entry.get("shape", [entry.get("length", 1)])
    dtype = entry.get("feature", entry)["dtype"]
    return {"dtype": dtype, "shape": list(shape), "names": None}
