"""Records straight into a LeRobot dataset, version 3.0, which is whole after each episode."""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from envlogger.backends.backend_writer import BackendWriter
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.backends.schedulers import Scheduler
from envlogger.converters.video_fields import KEY as VIDEO_KEY
from envlogger.reader import Reader
from envlogger.recovery import recover
from envlogger.step_data import StepData
from rlds.formats.lerobot import layout
from rlds.formats.lerobot.dataset_files import Before
from rlds.formats.lerobot.feature_statistics import Total, statistics_in
from rlds.formats.lerobot.rlds_rows import RldsRows
from rlds.formats.lerobot.source import LeRobotSource
from rlds.formats.logs.source import EnvLoggerSource
from rlds.sources import reading
from rlds.sources.episodes import Episodes
from rlds_ecosystem import import_extra
from rlds_ecosystem.errors import StorageError, storage_errors
from rlds_ecosystem.nests import at, leaves_at
from rlds_ecosystem.replacing import FOLDER, RUNNING
from rlds_ecosystem.whole_files import write_at_once

__all__ = ["LeRobotBackendWriter", "add_recording", "recordings_in", "undone_files"]

_TABLES = (layout.TASKS, layout.STATS, layout.INFO)  # In the order in which they are written.
_JOURNAL = "appending.json"
_TASK = "task"
# What the name of the log begins with, once its episode is in the dataset.
_ADDED = "added-"
# In the metadata of such a log: with which arguments it was recorded.
_ARGUMENTS = "recording"


class LeRobotBackendWriter(BackendWriter):
    """Records to a LeRobot dataset: after each episode, LeRobot opens it.

        env = envlogger.EnvLogger(
            env,
            backend=LeRobotBackendWriter,
            data_directory="my_robot",
            fps=30,
            task="pick up the cup",
            video={"images/top": envlogger.Video(fps=30)},
        )

    The running episode is a log in the folder `.rlds` of the dataset. When it has ended, its rows,
    packets and statistics are written under names of their own, and then the tables that count
    them. So a discarded episode leaves nothing, and a killed process at most the running episode,
    as a log, which `rlds recover` adds to the dataset. What LeRobot has no column for, such as
    the final observation and the metadata of episodes, is not kept: record a log to keep all.

    Args:
      data_directory: The folder of the dataset, on this machine. If there is one, of the same
        features, the episodes are added to it.
      fps: How many steps a second has.
      task: The text of the task of episodes whose metadata has no `task`.
      robot_type: What robot it is.
      metadata: With the specs of the environment, and its video.
      scheduler: Says which steps are recorded; None records all.

    Raises:
      StorageError: The folder cannot be used; says why.
      ValueError: The rate of the video is another.
    """

    def __init__(
        self,
        data_directory: str | os.PathLike[str],
        fps: float,
        task: str = "",
        robot_type: str | None = None,
        metadata: dict[str, Any] | None = None,
        scheduler: Scheduler | None = None,
    ) -> None:
        for name, video in ((metadata or {}).get(VIDEO_KEY) or {}).items():
            if video["fps"] != fps:
                raise ValueError(f"video of {name!r}: {video['fps']} frames a second, not {fps}")
        import_extra("pyarrow.parquet")
        self._root, self._fps = Path(data_directory), float(fps)
        self._robot_type, self.task = robot_type, task
        self._own = self._root / FOLDER
        with storage_errors(self._root):
            self._own.mkdir(parents=True, exist_ok=True)
        self._undo()
        for left in recordings_in(self._root):
            warnings.warn(
                f"{left} is an episode that was being recorded when a process ended: `rlds recover "
                f"--in-place {self._root}` adds it to the dataset, or remove it",
                stacklevel=2,
            )
        self._before = self._read()
        self._log: RiegeliBackendWriter | None = None
        self._folder: Path | None = None  # Of the log of the last episode.
        self._kept: dict[str, bytes | None] | None = None  # The tables without that episode.
        self._episode_metadata: dict[str, Any] = {}
        self._rows: RldsRows | None = None
        super().__init__(metadata=metadata, scheduler=scheduler)

    @override
    def _record_step(self, data: StepData, is_new_episode: bool) -> None:
        if is_new_episode:
            self._end_episode()
            self._forget_log()
            self._episode_metadata = {}
            self._folder = self._own / f"{RUNNING}{time.time_ns()}"
            said = {"fps": self._fps, "task": self.task, "robot_type": self._robot_type or ""}
            self._log = RiegeliBackendWriter(
                self._folder,
                metadata={**(self._metadata or {}), _ARGUMENTS: said},
                max_pending_bytes=1 << 22,
                sync=False,
            )
        assert self._log is not None
        self._log.record_step(data, is_new_episode)
        if data.timestep.last():
            self._end_episode()

    @override
    def _set_episode_metadata(self, data: Any) -> None:
        self._episode_metadata = dict(data) if isinstance(data, Mapping) else {}
        if self._kept is not None:  # The episode has ended.
            self._take_back()
            self.add_log()

    @override
    def _discard_episode(self) -> None:
        if self._kept is not None:
            self._take_back()
        elif self._log is not None:
            self._log.close()
            self._log = None
        self._forget_log()

    @override
    def flush(self) -> None:
        """Brings the steps of the running episode to the disk."""
        super().flush()
        if self._log is not None:
            self._log.flush()

    @override
    def close(self) -> None:
        """Ends the running episode; further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        if self._is_of_parent:
            return
        self._end_episode()
        self._forget_log()
        if not any(self._own.iterdir()):
            self._own.rmdir()

    def _end_episode(self) -> None:
        if self._log is None:
            return
        self._log.close()
        self._log = None
        if not self.add_log():
            warnings.warn("an episode without a transition is not in the dataset", stacklevel=3)

    def _forget_log(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = self._kept = None

    # --- The dataset

    def _read(self) -> Before:
        """Returns what the dataset has."""
        if not (self._root / layout.INFO).exists():
            if others := [path for path in self._root.iterdir() if path.name != FOLDER]:
                raise StorageError(f"{self._root} is no LeRobot dataset: it has {others[0].name}")
            return Before()
        info = json.loads((self._root / layout.INFO).read_text())
        if info.get("codebase_version") != "v3.0" or info.get("fps") != self._fps:
            raise StorageError(
                f"{self._root} is of version {info.get('codebase_version')} at {info.get('fps')} "
                f"rows a second, and episodes of v3.0 at {self._fps:g} are to be added"
            )
        parquet = import_extra("pyarrow.parquet")
        tasks = parquet.read_table(self._root / layout.TASKS).to_pylist()
        texts = {
            row["task_index"]: next(v for k, v in row.items() if k != "task_index") for row in tasks
        }
        if sorted(texts) != [*range(len(texts))]:
            raise StorageError(
                f"{self._root / layout.TASKS} has the numbers {sorted(texts)[:10]}, expected 0, 1, "
                "...: `rlds.sources.export` writes the dataset with such numbers"
            )
        files = [*self._root.glob("*/*/file-*"), *self._root.glob("*/*/*/file-*")]
        places = [(int(file.parent.name[6:]), int(file.stem[5:])) for file in files]
        per_chunk = int(info.get("chunks_size", 1000))
        statistics = json.loads((self._root / layout.STATS).read_text())
        return Before(
            num_episodes=int(info["total_episodes"]),
            num_rows=int(info["total_frames"]),
            num_files=max((c * per_chunk + f + 1 for c, f in places), default=0),
            tasks=[texts[number] for number in sorted(texts)],
            total=_total_of(self._root, statistics),
            info=info,
        )

    def add_log(self, folder: Path | None = None) -> int:
        """Adds the episode of a log; returns how many rows it has.

        Args:
          folder: The log, by default that of the last episode. It gets another name.
        """
        self._folder = folder or self._folder
        assert self._folder is not None
        source = EnvLoggerSource(
            os.fspath(self._folder),
            metadata={},
            episode_metadata_defaults={_TASK: str(self._episode_metadata.get(_TASK, self.task))},
        )
        episodes = Episodes(source, "train")
        episode = episodes.episode(0)
        num_rows = episode.num_steps - episode.final_observation_known
        if num_rows < 1:
            return 0
        rows = RldsRows(
            episodes,
            "v3.0",
            self._fps,
            robot_type=self._robot_type or self._before.info.get("robot_type"),
            task=_TASK,
            to_sidecar=(),
        )
        draft = self._own / "episode"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        with storage_errors(self._root):
            after = rows.write_one(draft, episode, self._before)
            self._check(after.info)
            files = [file.relative_to(draft) for file in sorted(draft.rglob("*")) if file.is_file()]
            names = [os.fspath(name) for name in files if os.fspath(name) not in _TABLES]
            kept = {name: _content(self._root / name) for name in _TABLES}
            self._begin(after.num_episodes, names)
            # What counts comes last: until then, the dataset is the one before.
            for name in (*sorted(names, reverse=True), *_TABLES):
                (self._root / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(draft / name, self._root / name)
            self._rename_log(RUNNING, _ADDED)
            os.unlink(self._own / _JOURNAL)
        shutil.rmtree(draft)
        self._kept, self._added = kept, names
        self._last, self._before = self._before, after
        return int(num_rows)

    def _begin(self, number: int, names: Sequence[str]) -> None:
        """Notes which files come or go with an episode: it is there if the tables count so many."""
        assert self._folder is not None
        log = self._folder.name.replace(_ADDED, RUNNING)
        write_at_once(self._own / _JOURNAL, json.dumps([number, log, *names]).encode())

    def _rename_log(self, old: str, new: str) -> None:
        assert self._folder is not None
        self._folder = self._folder.rename(
            self._folder.with_name(self._folder.name.replace(old, new))
        )

    def _take_back(self) -> None:
        """Takes the last episode out of the dataset again."""
        assert self._kept is not None
        self._begin(self._before.num_episodes, self._added)
        for name, content in reversed(self._kept.items()):
            if content is None:
                (self._root / name).unlink()
            else:
                write_at_once(self._root / name, content)
        self._rename_log(_ADDED, RUNNING)
        for name in self._added:
            _remove(self._root, name)
        os.unlink(self._own / _JOURNAL)
        self._kept, self._before = None, self._last

    def _undo(self) -> None:
        """Finishes what a killed process began: adds an episode, or takes it out."""
        is_counted, log, names = _journal(self._root)
        running, added = (self._own / log.replace(RUNNING, kind) for kind in (RUNNING, _ADDED))
        for name in () if is_counted else names:
            _remove(self._root, name)
        if log and not is_counted and added.exists():
            added.rename(running)
        elif log and is_counted and running.exists():
            shutil.rmtree(running)
        (self._own / _JOURNAL).unlink(missing_ok=True)
        for done in self._own.glob(f"{_ADDED}*"):
            shutil.rmtree(done)

    def _check(self, info: Mapping[str, Any]) -> None:
        """Checks that an episode has the features of those before."""
        known = self._before.info.get("features") or info["features"]
        for name in {**known, **info["features"]}:
            ours, theirs = (said.get(name, {}) for said in (info["features"], known))
            for fact in ("dtype", "shape"):
                if ours.get(fact) != theirs.get(fact):
                    raise StorageError(
                        f"{self._root}: the {fact} of {name!r} is {theirs.get(fact)} there, and "
                        f"{ours.get(fact)} in the new episode: record to another folder"
                    )


def _total_of(root: Path, said: Mapping[str, Any]) -> Total:
    """The statistics of a dataset, whose rows are read for the quantiles of all.

    Args:
      root: The folder.
      said: What the dataset says they are.
    """
    total = Total(
        {name: {k: np.asarray(v) for k, v in found.items()} for name, found in said.items()}
    )
    source = LeRobotSource(root)
    paths = source.metadata()[layout.METADATA_KEY]["fields"]
    fields = dict(leaves_at(source.step_fields(), None))
    numbers = {
        name: path
        for name, path in paths.items()
        if path in fields and not fields[path].is_text and not fields[path].encoding
    }
    for split in source.splits:
        for index in range(source.num_episodes(split)):
            steps = reading.read_steps(source, split, index, [*numbers.values()])
            rows = {name: at(steps, path) for name, path in numbers.items()}
            total.add_quantiles(statistics_in(source.stored_row(split, index)), rows)
    return total


def recordings_in(root: Path) -> list[Path]:
    """Returns the logs of episodes that were running when a process ended, and are not added.

    Args:
      root: The folder of the dataset.
    """
    is_counted, log, _ = _journal(root)
    found = {*(root / FOLDER).glob(f"{RUNNING}*")}
    if log and is_counted:
        found -= {root / FOLDER / log}
    elif log and (added := root / FOLDER / log.replace(RUNNING, _ADDED)).exists():
        found.add(added)
    return sorted(found)


def undone_files(root: Path) -> list[str]:
    """Returns the files of an episode that was not added when a process ended: its log is there."""
    is_counted, _, names = _journal(root)
    return [] if is_counted else names


def add_recording(root: Path, log: Path, copy: Path, fps: float | None) -> tuple[int, str]:
    """Adds the episode of a log that a killed process left.

    Args:
      root: The dataset that it is added to.
      log: The log, which stays as it is.
      copy: A folder for a copy of it.
      fps: How many steps a second has; if None, as its recorder was told.

    Returns:
      How many rows it has, and why none if so.
    """
    if not any(log.rglob("*.riegeli")) or not recover(log, copy).num_steps:
        return 0, "it has no step"
    with Reader(copy) as reader:
        said = reader.metadata().get(_ARGUMENTS, {})
    if fps is None and "fps" not in said:
        return 0, "it does not say how many steps a second has"
    writer = LeRobotBackendWriter(
        root, fps or said["fps"], said.get("task", ""), said.get("robot_type") or None
    )
    number = writer.add_log(copy)
    writer.close()
    return number, "" if number else "it has no transition"


def _journal(root: Path) -> tuple[bool, str, list[str]]:
    """What was begun with an episode: whether the tables count it, its log, its files."""
    said = _content(root / FOLDER / _JOURNAL)
    if said is None:
        return False, "", []
    number, log, *names = json.loads(said)
    if Path(log).name != log or any(".." in Path(name).parts for name in names):
        raise StorageError(f"{root / FOLDER / _JOURNAL} names files elsewhere: {log}, {names}")
    info = _content(root / layout.INFO)
    return info is not None and json.loads(info)["total_episodes"] == number, log, names


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _remove(root: Path, name: str) -> None:
    (root / name).unlink(missing_ok=True)
    for folder in (root / name).parents:
        if folder == root or any(folder.iterdir()):
            return
        folder.rmdir()
