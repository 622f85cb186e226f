"""Recorder of LeRobot datasets, version 3.0, which are complete after each episode."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from typing_extensions import override

from envlogger.backends import lifetime
from envlogger.backends.backend_writer import QueueingBackendWriter
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.backends.riegeli_files.disk_reserve import DiskReserve
from envlogger.backends.schedulers import Scheduler
from envlogger.converters.video_fields import KEY as VIDEO_KEY
from envlogger.reader import Reader
from envlogger.recovery import recover
from envlogger.step_data import StepData
from rlds.formats.lerobot import layout
from rlds.formats.lerobot.dataset_files import DatasetState
from rlds.formats.lerobot.feature_statistics import Total, statistics_in
from rlds.formats.lerobot.rlds_rows import RldsRows
from rlds.formats.lerobot.source import LeRobotSource
from rlds.formats.logs.source import EnvLoggerSource
from rlds.raw_files.untrusted import source_errors
from rlds.sources import reading
from rlds.sources.episode_fields import COMPLETE
from rlds.sources.episodes import Episodes
from rlds.sources.source import SourceEpisode
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.daemon_threads import DaemonThreads
from rlds_ecosystem.files.replacing import FOLDER, RUNNING
from rlds_ecosystem.files.whole_files import can_lock, try_to_lock, write_atomically
from rlds_ecosystem.model.errors import StorageError, storage_errors
from rlds_ecosystem.model.nests import at, leaves_at

__all__ = ["LeRobotBackendWriter", "add_recordings", "recordings_in", "undone_files"]

_TABLES = (layout.TASKS, layout.STATS, layout.INFO)  # In the order in which they are written.
_JOURNAL_FILE = "appending.json"
_TASK = "task"
_THREAD_NAME = "envlogger-lerobot"
# The prefix of the name of a log whose episode is in the dataset.
_ADDED_PREFIX = "added-"
# A log has one episode, so its chunks may be small.
_FLUSH_INTERVAL, _MAX_PENDING_BYTES = 0.5, 1 << 22
# The metadata key of a log for the arguments of its recorder.
_ARGUMENTS_KEY = "recording"


class LeRobotBackendWriter(QueueingBackendWriter):
    """Records to a LeRobot dataset: after each episode, LeRobot opens it.

        env = envlogger.EnvLogger(
            env,
            backend=LeRobotBackendWriter,
            data_directory="my_robot",
            fps=30,
            task="pick up the cup",
            video={"images/top": envlogger.Video(fps=30)},
        )

    An episode is a log in the folder `.rlds` of the dataset, which is with the system when its last
    step returns. When the next one begins, and when you call `flush` or `close`, a thread writes
    its rows, packets and statistics under names of their own, and then the tables that count them.
    So a discarded episode leaves nothing, and a kill costs at most the end of the running episode:
    `rlds recover` adds the logs that are left to the dataset. The column `complete` of the table of
    episodes is false where the last step is missing, for example as `step` has raised. What LeRobot
    has no column for, such as the final observation and the metadata of episodes, is not kept:
    record a log to keep all.

    Args:
      data_directory: The folder of the dataset, on this machine. If there is one, of the same
        features, the episodes are added to it.
      fps: The frame rate, in steps per second.
      task: The text of the task of episodes whose metadata has no `task`.
      robot_type: The type of the robot.
      metadata: With the specs of the environment, and its video.
      scheduler: Says which steps are recorded; None records all.

    Raises:
      StorageError: The folder cannot be used, or another recorder uses it; says why.
      ValueError: The rate of the video is another.
    """

    keeps_ended_episodes = True

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
        self._robot_type, self._task = robot_type, task
        self._own = self._root / FOLDER
        with storage_errors(self._root):
            self._own.mkdir(parents=True, exist_ok=True)
            self._lock = try_to_lock(self._root)
        if self._lock is None and can_lock(self._root):
            raise StorageError(
                f"another recorder or process writes {self._root}: wait until it has ended, or "
                "record to another folder, and join the two with `rlds edit --merge`"
            )
        try:
            self._undo()
            if left := recordings_in(self._root):
                warnings.warn(
                    f"{self._own} has {len(left)} unfinished episodes of an earlier process, such "
                    f"as {left[0].name}: `rlds recover --in-place {self._root}` adds them to the "
                    "dataset, or remove them",
                    stacklevel=2,
                )
            self._has_marks = True
            self._current = self._read()  # The dataset with all episodes so far.
            self.reserve = DiskReserve(self._own, _MAX_PENDING_BYTES)
        except BaseException:
            self._unlock()
            raise
        self._log: RiegeliBackendWriter | None = None  # Until the episode after it begins.
        self._folder = self._own  # Of that log.
        self._num_steps, self._has_ended = 0, False  # Of its last episode.
        # Of the episode added last: its log, and the dataset tables before it.
        self._done: Path | None = None
        self._old_tables: dict[str, bytes | None] | None = None
        self._was_reported = False
        self._thread = DaemonThreads(1, _THREAD_NAME)
        self._adding: Future[None] = self._thread.submit(lambda: None)
        super().__init__(metadata=metadata, scheduler=scheduler)

    @override
    def _record_step(self, data: StepData, is_new_episode: bool) -> None:
        if self.reserve.ends_recording:
            self._check()
        if is_new_episode:
            self._begin_episode(data)
        else:
            assert self._log is not None
            self._log.record_step(data, False)
        self._num_steps = 1 if is_new_episode else self._num_steps + 1
        self._has_ended = data.timestep.last()
        if self._has_ended and self._log is not None:
            self._log.push()

    def _begin_episode(self, data: StepData) -> None:
        """Writes a step to a new log, and then adds the previous log to the dataset."""
        folder = self._own / f"{RUNNING}{time.time_ns()}"
        arguments = {"fps": self._fps, "task": self._task, "robot_type": self._robot_type or ""}
        log = None
        try:
            log = RiegeliBackendWriter(
                folder,
                metadata={**(self._metadata or {}), _ARGUMENTS_KEY: arguments},
                flush_interval=_FLUSH_INTERVAL,
                max_pending_bytes=_MAX_PENDING_BYTES,
                sync=False,
                reserve=self.reserve,
            )
            lifetime.leave_to_wrapper(log)
            log.record_step(data, True)
        except BaseException as error:
            if log is not None:
                with contextlib.suppress(StorageError):
                    log.close()
            shutil.rmtree(folder, ignore_errors=True)
            if self._log is None or not isinstance(error, StorageError):
                raise
            # The step was accepted, and is not lost if the new log fails.
            self._fail(error.__cause__ or error)
            self._log.record_step(data, True)
            return
        self._end_log()
        self._log, self._folder = log, folder

    @override
    def _set_episode_metadata(self, data: Any) -> None:
        task = {_TASK: str(data[_TASK])} if isinstance(data, Mapping) and _TASK in data else {}
        if self._log is not None:
            self._log.set_episode_metadata(task)
            if self._has_ended:
                self._log.push()
        elif self._done is not None:
            with storage_errors(self._root):
                self.add_log(self._take_back(), task.get(_TASK, self._task))

    @override
    def _discard_episode(self) -> None:
        if self._log is not None and self.reserve.cause is not None:
            self._log.discard_episode()  # There may be others in its log.
            return
        if self._log is not None:
            self._log.close()
            self._log, self._has_ended = None, False
            shutil.rmtree(self._folder, ignore_errors=True)
        elif self._done is not None:
            with storage_errors(self._root):
                shutil.rmtree(self._take_back(), ignore_errors=True)

    @override
    def flush(self) -> None:
        """Adds all ended episodes to the dataset, and syncs the running episode to disk.

        Raises:
          StorageError: Not all can be written.
        """
        super().flush()
        if self._has_ended and self._log is not None:
            self._end_log()
        elif self._log is not None:
            self._log.flush()
        self._adding.result()
        self._check()

    @override
    def disown(self) -> None:
        super().disown()
        if self._log is not None:
            self._log.disown()
        self._unlock()

    @override
    def close(self) -> None:
        """Ends the running episode, and adds all to the dataset; further calls do nothing.

        Raises:
          StorageError: Not all can be written, and no call has said so; says where it is.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._end_log()
            self._adding.result()
            self._forget_done()
            if not any(self._own.iterdir()):
                self._own.rmdir()
        except OSError as error:
            self._fail(error)
        finally:
            self.reserve.close()
            self._unlock()
        if self.reserve.cause is not None and not self._was_reported:
            self._raise()

    def _unlock(self) -> None:
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def _check(self) -> None:
        if self.reserve.cause is not None:
            self.close()  # Writes the accepted steps, and adds them if possible.
            self._raise()

    def _fail(self, error: BaseException) -> None:
        self.reserve.cause = self.reserve.cause or error

    def _raise(self) -> NoReturn:
        self._was_reported = True
        left = len(recordings_in(self._root))
        raise StorageError(
            f"recording to {self._root} stops here: {self.reserve.cause}; {left} logs in "
            f"{self._own} have the last episodes. Remove the cause, then `rlds recover --in-place "
            f"{self._root}` adds them"
        ) from self.reserve.cause

    def _end_log(self) -> None:
        """Closes the log, and has its episode added in the thread."""
        log, self._log, folder = self._log, None, self._folder
        if log is None:
            return
        try:
            log.close()
        except StorageError as error:
            self._fail(error)
        if self._num_steps < 2 and self.reserve.cause is None:
            shutil.rmtree(folder, ignore_errors=True)
            self._adding.result()
            self._forget_done()
            warnings.warn(
                "an episode without a transition was left out of the dataset", stacklevel=3
            )
            return
        if not (self._has_ended or self._has_marks):
            warnings.warn(
                f"{self._root}: episode {folder.name} has no last step. The dataset has no column "
                f"{COMPLETE!r} to mark it, because another program began the dataset",
                stacklevel=3,
            )
        if threading.current_thread().name == _THREAD_NAME:  # The garbage collector closes it here.
            self._add(folder)
            return
        self._adding = self._thread.submit(self._add, folder)

    def _add(self, folder: Path) -> None:
        """Adds the episodes of a log, unless something went wrong before."""
        if self.reserve.cause is not None:
            return
        try:
            self._forget_done()
            self.add_log(folder)
        except BaseException as error:
            self._fail(error)

    def _forget_done(self) -> None:
        if self._done is not None:
            shutil.rmtree(self._done, ignore_errors=True)
        self._done = self._old_tables = None

    # --- The dataset

    def expect(self, features: Mapping[str, Any]) -> None:
        """Declares the features of a new dataset; other episodes are refused."""
        if not self._current.num_episodes:
            self._current = dataclasses.replace(self._current, info={"features": features})

    def _read(self) -> DatasetState:
        """Returns the content of the dataset."""
        if not (self._root / layout.INFO).exists():
            if foreign := [path for path in self._root.iterdir() if path.name != FOLDER]:
                fault = f"is not a LeRobot dataset, it has {foreign[0].name}: pass an empty folder"
                raise StorageError(f"{self._root} {fault}")
            return DatasetState()
        source = LeRobotSource(self._root)
        info, texts = source.info.raw, source.texts
        if info["codebase_version"] != "v3.0" or info["fps"] != self._fps:
            raise StorageError(
                f"{self._root} has version {info['codebase_version']} and {info['fps']} fps, but "
                f"the new episodes have v3.0 and {self._fps:g} fps: record to another folder"
            )
        if sorted(texts) != [*range(len(texts))]:
            raise StorageError(
                f"{self._root / layout.TASKS} has the numbers {sorted(texts)[:10]}, expected 0, 1, "
                "...: `rlds.sources.export` writes the dataset anew with these numbers"
            )
        table = min(self._root.glob(f"{layout.EPISODES_FOLDER}/*/*.parquet"))
        schema = import_extra("pyarrow.parquet").read_schema(table)
        self._has_marks = COMPLETE in schema.names
        files = [*self._root.glob("*/*/file-*"), *self._root.glob("*/*/*/file-*")]
        positions = [(int(file.parent.name[6:]), int(file.stem[5:])) for file in files]
        per_chunk = source.info.chunks_size
        with source_errors(self._root / layout.STATS):
            return DatasetState(
                num_episodes=int(info["total_episodes"]),
                num_rows=int(info["total_frames"]),
                num_files=max((c * per_chunk + f + 1 for c, f in positions), default=0),
                tasks=[texts[number] for number in sorted(texts)],
                total=_total_of(source, json.loads((self._root / layout.STATS).read_text())),
                info=info,
            )

    def add_log(self, folder: Path, task: str | None = None) -> tuple[int, int]:
        """Adds the episodes of a log, and renames its folder.

        Args:
          folder: The log; of a recorder that has no trouble, it has one episode.
          task: The text of their task, in place of that in the log.

        Returns:
          The numbers of new episodes and rows.
        """
        source = EnvLoggerSource(
            os.fspath(folder), metadata={}, episode_metadata_defaults={_TASK: self._task}
        )
        episodes, lengths = Episodes(source, "train"), []
        for episode in map(episodes.episode, range(len(episodes))):
            num_rows = int(episode.num_steps - episode.final_observation_known)
            if num_rows < 1:
                continue
            if task is not None:
                metadata = {**episode.metadata, _TASK: task}
                episode = dataclasses.replace(episode, metadata=metadata)
            self._add_episode(folder, episodes, episode)
            lengths.append(num_rows)
        self._done = folder.rename(_with_kind(folder, _ADDED_PREFIX))
        (self._own / _JOURNAL_FILE).unlink(missing_ok=True)
        return len(lengths), sum(lengths)

    def _add_episode(self, folder: Path, episodes: Episodes, episode: SourceEpisode) -> None:
        info, marks = self._current.info, {COMPLETE: episode.complete} if self._has_marks else {}
        rows = RldsRows(
            episodes,
            "v3.0",
            {"fps": self._fps, "robot_type": self._robot_type or info.get("robot_type")},
            task=_TASK,
        )
        draft = self._own / "episode"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir()
            with rows.files(draft, before=self._current) as written:
                written.add(rows.new_episode(episode, marks))
                after = written.finish(rows.described())
            self._check_features(after.info)
            files = [file.relative_to(draft) for file in sorted(draft.rglob("*")) if file.is_file()]
            names = [os.fspath(name) for name in files if os.fspath(name) not in _TABLES]
            self._old_tables = {name: _content(self._root / name) for name in _TABLES}
            self._begin(folder, after.num_episodes, names)
            # The tables are replaced last: until then, readers see the old dataset.
            for name in (*sorted(names, reverse=True), *_TABLES):
                (self._root / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(draft / name, self._root / name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self._added, self._previous, self._current = names, self._current, after

    def _begin(self, folder: Path, num_episodes: int, names: Sequence[str]) -> None:
        """Writes the journal of an episode: files that come or go, and the count of episodes."""
        log = _with_kind(folder, RUNNING).name
        write_atomically(
            self._own / _JOURNAL_FILE, json.dumps([num_episodes, log, *names]).encode()
        )

    def _take_back(self) -> Path:
        """Takes the last episode out of the dataset again; returns its log."""
        assert self._old_tables is not None
        assert self._done is not None
        self._begin(self._done, self._current.num_episodes, self._added)
        for name, content in reversed(self._old_tables.items()):
            if content is None:
                (self._root / name).unlink()
            else:
                write_atomically(self._root / name, content)
        log = self._done.rename(_with_kind(self._done, RUNNING))
        for name in self._added:
            _remove(self._root, name)
        os.unlink(self._own / _JOURNAL_FILE)
        self._old_tables, self._done, self._current = None, None, self._previous
        return log

    def _undo(self) -> None:
        """Completes the episode of a killed process, or removes it (crash recovery)."""
        is_counted, log, names = _journal(self._root)
        running, added = (
            self._own / log.replace(RUNNING, kind) for kind in (RUNNING, _ADDED_PREFIX)
        )
        for name in () if is_counted else names:
            _remove(self._root, name)
        if log and not is_counted and added.exists():
            added.rename(running)
        elif log and is_counted and running.exists():
            shutil.rmtree(running)
        (self._own / _JOURNAL_FILE).unlink(missing_ok=True)
        for done in self._own.glob(f"{_ADDED_PREFIX}*"):
            shutil.rmtree(done)

    def _check_features(self, info: Mapping[str, Any]) -> None:
        """Checks that an episode has the features of the dataset."""
        earlier = self._current.info.get("features") or info["features"]
        for name in {**earlier, **info["features"]}:
            recorded, stored = (features.get(name, {}) for features in (info["features"], earlier))
            for fact in ("dtype", "shape"):
                if recorded.get(fact) != stored.get(fact):
                    raise StorageError(
                        f"{self._root}: the {fact} of {name!r} is {stored.get(fact)}, but "
                        f"{recorded.get(fact)} in the new episode: record to another folder"
                    )


def _total_of(source: LeRobotSource, statistics: Mapping[str, Any]) -> Total:
    """The statistics of a dataset, whose rows are read for the quantiles of all.

    Args:
      source: The dataset.
      statistics: The stored statistics of the dataset.
    """
    total = Total(
        {name: {k: np.asarray(v) for k, v in kinds.items()} for name, kinds in statistics.items()}
    )
    paths = source.about.metadata[layout.METADATA_KEY]["fields"]
    fields = dict(leaves_at(source.fields.steps, None))
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
    folders = {*(root / FOLDER).glob(f"{RUNNING}*")}
    if log and is_counted:
        folders -= {root / FOLDER / log}
    elif log and (added := root / FOLDER / log.replace(RUNNING, _ADDED_PREFIX)).exists():
        folders.add(added)
    return sorted(folders)


def undone_files(root: Path) -> list[str]:
    """Returns the files of an episode that a killed process has not added; its log exists."""
    is_counted, _, names = _journal(root)
    return [] if is_counted else names


def add_recordings(
    root: Path,
    logs: Sequence[Path],
    copies: Path,
    fps: float | None,
    features: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Path, tuple[int, int], str]]:
    """Adds the episodes of logs that a killed process left.

    Args:
      root: The dataset that they are added to.
      logs: The logs, which stay as they are.
      copies: A folder for copies of them.
      fps: The frame rate, in steps per second; if None, that of their recorder.
      features: The required features, if the dataset is new.

    Yields:
      Each log, how many episodes and rows it has, and why none if so.
    """
    writer, its_arguments = None, None
    with contextlib.ExitStack() as stack:
        for log in logs:
            copy = copies / log.name
            if not any(log.rglob("*.riegeli")) or not recover(log, copy).num_steps:
                yield log, (0, 0), "it has no step"
                continue
            with Reader(copy) as reader:
                stored = reader.metadata().get(_ARGUMENTS_KEY, {})
            rate = fps or stored.get("fps")
            if rate is None:
                yield log, (0, 0), "its frame rate is unknown; pass fps"
                continue
            arguments = rate, stored.get("task", ""), stored.get("robot_type") or None
            if writer is None or arguments != its_arguments:  # To open a dataset takes long.
                stack.close()
                writer = stack.enter_context(LeRobotBackendWriter(root, *arguments))
                its_arguments = arguments
                if features is not None:
                    writer.expect(features)
            counts = writer.add_log(copy)
            yield log, counts, "" if counts[0] else "it has no transition"


def _journal(root: Path) -> tuple[bool, str, list[str]]:
    """Reads the journal of an episode: whether the tables count the episode, its log, its files."""
    content = _content(root / FOLDER / _JOURNAL_FILE)
    if content is None:
        return False, "", []
    num_episodes, log, *names = json.loads(content)
    if Path(log).name != log or any(".." in Path(name).parts for name in names):
        raise StorageError(
            f"{root / FOLDER / _JOURNAL_FILE} names files outside the dataset: {log}, {names}"
        )
    info = _content(root / layout.INFO)
    return info is not None and json.loads(info)["total_episodes"] == num_episodes, log, names


def _with_kind(folder: Path, kind: str) -> Path:
    """Returns the name of the folder of a log in a state: running, or added."""
    return folder.with_name(kind + folder.name.removeprefix(RUNNING).removeprefix(_ADDED_PREFIX))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _remove(root: Path, name: str) -> None:
    (root / name).unlink(missing_ok=True)
    for folder in (root / name).parents:
        if folder == root or any(folder.iterdir()):
            return
        folder.rmdir()
