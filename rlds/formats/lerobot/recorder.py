"""The recorder of LeRobot datasets (3.0), which are complete after each episode."""

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
from rlds.formats.lerobot.feature_statistics import FeatureTotals, read_statistics
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
from rlds_ecosystem.files.replacing import FOLDER, RUNNING_PREFIX
from rlds_ecosystem.files.whole_files import can_lock, try_to_lock, write_atomically
from rlds_ecosystem.model.errors import StorageError, storage_errors
from rlds_ecosystem.model.nests import leaves_at, lookup

__all__ = ["LeRobotBackendWriter", "add_recordings", "find_recordings", "unfinished_files"]

_TABLE_FILES = (layout.TASKS, layout.STATS, layout.INFO)  # The tables in the order of writing.
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
    """A recorder of LeRobot datasets, which LeRobot can open after each episode.

        env = envlogger.EnvLogger(
            env,
            backend=LeRobotBackendWriter,
            data_directory="my_robot",
            fps=30,
            task="pick up the cup",
            video={"images/top": envlogger.Video(fps=30)},
        )

    A running episode is a log in the folder `.rlds` of the dataset; after the last step, its data
    is with the operating system. When the next episode begins, and on `flush` and `close`, a thread
    writes the rows, packets and statistics to new files, and then replaces the tables. A discarded
    episode therefore leaves no data, and a kill loses at most the end of the running episode: `rlds
    recover` adds the remaining logs to the dataset. The column `complete` of the table of episodes
    is false if the last step is missing, for example after an exception in `step`. Data without a
    column in LeRobot, such as the final observation and the metadata of episodes, is lost; to keep
    it, record a log.

    Args:
      data_directory: The local folder of the dataset. Episodes are added to an existing dataset
        with the same features.
      fps: The frame rate, in steps per second.
      task: The text of the task of episodes whose metadata has no `task`.
      robot_type: The type of the robot.
      metadata: The metadata with the specs of the environment, and its video.
      scheduler: The scheduler of recorded steps; None records all steps.

    Raises:
      StorageError: The folder cannot be used, or another recorder uses it.
      ValueError: The frame rate of the video differs from `fps`.
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
        self._logs = self._root / FOLDER
        with storage_errors(self._root):
            self._logs.mkdir(parents=True, exist_ok=True)
            self._lock = try_to_lock(self._root)
        if self._lock is None and can_lock(self._root):
            raise StorageError(
                f"another recorder or process writes {self._root}: wait until it has ended, or "
                "record to another folder, and join the two with `rlds edit --merge`"
            )
        try:
            self._finish_journal()
            if logs := find_recordings(self._root):
                warnings.warn(
                    f"{self._logs} has {len(logs)} unfinished episodes of an earlier process, such "
                    f"as {logs[0].name}: `rlds recover --in-place {self._root}` adds them to the "
                    "dataset, or remove them",
                    stacklevel=2,
                )
            self._has_complete_column = True
            self._current = self._read()  # The state of the dataset with all added episodes.
            self.reserve = DiskReserve(self._logs, _MAX_PENDING_BYTES)
        except BaseException:
            self._unlock()
            raise
        # The log of the last episode, until the next episode begins; its folder and state.
        self._log: RiegeliBackendWriter | None = None
        self._folder = self._logs
        self._num_steps, self._has_ended = 0, False
        # The log of the last added episode, and the earlier tables of the dataset.
        self._added_log: Path | None = None
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
        folder = self._logs / f"{RUNNING_PREFIX}{time.time_ns()}"
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
            # An accepted step is not lost if the new log fails.
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
        elif self._added_log is not None:
            with storage_errors(self._root):
                self.add_log(self._remove_last_episode(), task.get(_TASK, self._task))

    @override
    def _discard_episode(self) -> None:
        if self._log is not None and self.reserve.cause is not None:
            self._log.discard_episode()  # The log may have further episodes.
            return
        if self._log is not None:
            self._log.close()
            self._log, self._has_ended = None, False
            shutil.rmtree(self._folder, ignore_errors=True)
        elif self._added_log is not None:
            with storage_errors(self._root):
                shutil.rmtree(self._remove_last_episode(), ignore_errors=True)

    @override
    def flush(self) -> None:
        """Adds all ended episodes to the dataset, and syncs the running episode to disk.

        Raises:
          StorageError: Some episodes cannot be written.
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
        """Ends the running episode, and adds all episodes; further calls have no effect.

        Raises:
          StorageError: Some episodes cannot be written, and no earlier call raised the error.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._end_log()
            self._adding.result()
            self._remove_added_log()
            if not any(self._logs.iterdir()):
                self._logs.rmdir()
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
            self.close()  # Writes the accepted steps.
            self._raise()

    def _fail(self, error: BaseException) -> None:
        self.reserve.cause = self.reserve.cause or error

    def _raise(self) -> NoReturn:
        self._was_reported = True
        count = len(find_recordings(self._root))
        raise StorageError(
            f"recording to {self._root} stops here: {self.reserve.cause}; {count} logs in "
            f"{self._logs} have the last episodes. Remove the cause, then `rlds recover --in-place "
            f"{self._root}` adds them"
        ) from self.reserve.cause

    def _end_log(self) -> None:
        """Closes the log, and schedules its episode for addition in the thread."""
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
            self._remove_added_log()
            warnings.warn("an episode without a transition is not in the dataset", stacklevel=3)
            return
        if not (self._has_ended or self._has_complete_column):
            warnings.warn(
                f"{self._root}: episode {folder.name} has no last step. The dataset has no column "
                f"{COMPLETE!r} to mark it, because another program began the dataset",
                stacklevel=3,
            )
        if threading.current_thread().name == _THREAD_NAME:  # The garbage collector is calling.
            self._add(folder)
            return
        self._adding = self._thread.submit(self._add, folder)

    def _add(self, folder: Path) -> None:
        """Adds the episodes of a log, unless an earlier call failed."""
        if self.reserve.cause is not None:
            return
        try:
            self._remove_added_log()
            self.add_log(folder)
        except BaseException as error:
            self._fail(error)

    def _remove_added_log(self) -> None:
        if self._added_log is not None:
            shutil.rmtree(self._added_log, ignore_errors=True)
        self._added_log = self._old_tables = None

    # --- The dataset

    def expect(self, features: Mapping[str, Any]) -> None:
        """Declares the features of a new dataset; episodes with different features are errors."""
        if not self._current.num_episodes:
            self._current = dataclasses.replace(self._current, info={"features": features})

    def _read(self) -> DatasetState:
        """Returns the state of the dataset."""
        if not (self._root / layout.INFO).exists():
            if other_paths := [path for path in self._root.iterdir() if path.name != FOLDER]:
                problem = (
                    f"is not a LeRobot dataset, it has {other_paths[0].name}: pass an empty folder"
                )
                raise StorageError(f"{self._root} {problem}")
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
                "...: `rlds.sources.export` writes a new dataset with these numbers"
            )
        table = min(self._root.glob(f"{layout.EPISODES_FOLDER}/*/*.parquet"))
        schema = import_extra("pyarrow.parquet").read_schema(table)
        self._has_complete_column = COMPLETE in schema.names
        files = [*self._root.glob("*/*/file-*"), *self._root.glob("*/*/*/file-*")]
        positions = [(int(file.parent.name[6:]), int(file.stem[5:])) for file in files]
        per_chunk = source.info.chunks_size
        with source_errors(self._root / layout.STATS):
            return DatasetState(
                num_episodes=int(info["total_episodes"]),
                num_rows=int(info["total_frames"]),
                num_files=max((chunk * per_chunk + f + 1 for chunk, f in positions), default=0),
                tasks=[texts[index] for index in sorted(texts)],
                total=_compute_total(source, json.loads((self._root / layout.STATS).read_text())),
                info=info,
            )

    def add_log(self, folder: Path, task: str | None = None) -> tuple[int, int]:
        """Adds the episodes of a log, and renames its folder.

        Args:
          folder: The log, with a single episode unless its recorder had an error.
          task: The text of the task, instead of the text in the log.

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
                episode = dataclasses.replace(episode, metadata={**episode.metadata, _TASK: task})
            self._add_episode(folder, episodes, episode)
            lengths.append(num_rows)
        self._added_log = folder.rename(_log_path(folder, _ADDED_PREFIX))
        (self._logs / _JOURNAL_FILE).unlink(missing_ok=True)
        return len(lengths), sum(lengths)

    def _add_episode(self, folder: Path, episodes: Episodes, episode: SourceEpisode) -> None:
        info = self._current.info
        cells = {COMPLETE: episode.complete} if self._has_complete_column else {}
        rows = RldsRows(
            episodes,
            "v3.0",
            {"fps": self._fps, "robot_type": self._robot_type or info.get("robot_type")},
            task=_TASK,
        )
        draft = self._logs / "episode"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            draft.mkdir()
            with rows.files(draft, initial=self._current) as writer:
                writer.add(rows.new_episode(episode, cells))
                state = writer.finish(rows.info_entries())
            self._check_features(state.info)
            files = [file.relative_to(draft) for file in sorted(draft.rglob("*")) if file.is_file()]
            names = [os.fspath(name) for name in files if os.fspath(name) not in _TABLE_FILES]
            self._old_tables = {name: _read_if_exists(self._root / name) for name in _TABLE_FILES}
            self._write_journal(folder, state.num_episodes, names)
            # The tables are replaced last: until then, readers see the old dataset.
            for name in (*sorted(names, reverse=True), *_TABLE_FILES):
                (self._root / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(draft / name, self._root / name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self._added, self._previous, self._current = names, self._current, state

    def _write_journal(self, folder: Path, num_episodes: int, names: Sequence[str]) -> None:
        """Writes the journal of an episode: changed files, and the number of episodes."""
        log = _log_path(folder, RUNNING_PREFIX).name
        write_atomically(
            self._logs / _JOURNAL_FILE, json.dumps([num_episodes, log, *names]).encode()
        )

    def _remove_last_episode(self) -> Path:
        """Removes the last episode from the dataset; returns its log."""
        assert self._old_tables is not None
        assert self._added_log is not None
        self._write_journal(self._added_log, self._current.num_episodes, self._added)
        for name, content in reversed(self._old_tables.items()):
            if content is None:
                (self._root / name).unlink()
            else:
                write_atomically(self._root / name, content)
        log = self._added_log.rename(_log_path(self._added_log, RUNNING_PREFIX))
        for name in self._added:
            _remove(self._root, name)
        os.unlink(self._logs / _JOURNAL_FILE)
        self._old_tables, self._added_log, self._current = None, None, self._previous
        return log

    def _finish_journal(self) -> None:
        """Completes or removes the episode in the journal of a killed process (crash recovery)."""
        is_counted, log, names = _journal(self._root)
        running_log = self._logs / log
        added_log = self._logs / log.replace(RUNNING_PREFIX, _ADDED_PREFIX)
        for name in () if is_counted else names:
            _remove(self._root, name)
        if log and not is_counted and added_log.exists():
            added_log.rename(running_log)
        elif log and is_counted and running_log.exists():
            shutil.rmtree(running_log)
        (self._logs / _JOURNAL_FILE).unlink(missing_ok=True)
        for added_log in self._logs.glob(f"{_ADDED_PREFIX}*"):
            shutil.rmtree(added_log)

    def _check_features(self, info: Mapping[str, Any]) -> None:
        """Checks that an episode has the features of the dataset."""
        old = self._current.info.get("features") or info["features"]
        for name in {**old, **info["features"]}:
            feature, expected = (features.get(name, {}) for features in (info["features"], old))
            for key in ("dtype", "shape"):
                if feature.get(key) != expected.get(key):
                    raise StorageError(
                        f"{self._root}: the {key} of {name!r} is {expected.get(key)}, but "
                        f"{feature.get(key)} in the new episode: record to another folder"
                    )


def _compute_total(source: LeRobotSource, statistics: Mapping[str, Any]) -> FeatureTotals:
    """Returns the statistics of a dataset, with quantiles from all of its rows.

    Args:
      source: The dataset.
      statistics: The stored statistics of the dataset.
    """
    total = FeatureTotals(
        {name: {k: np.asarray(v) for k, v in kinds.items()} for name, kinds in statistics.items()}
    )
    paths = source.source_info.metadata[layout.METADATA_KEY]["fields"]
    fields = dict(leaves_at(source.fields.steps, None))
    paths_by_name = {
        name: path
        for name, path in paths.items()
        if path in fields and not fields[path].is_text and not fields[path].encoding
    }
    for split in source.splits:
        for index in range(source.num_episodes(split)):
            steps = reading.read_steps(source, split, index, [*paths_by_name.values()])
            rows = {name: lookup(steps, path) for name, path in paths_by_name.items()}
            total.add_quantiles(read_statistics(source.stored_row(split, index)), rows)
    return total


def find_recordings(root: Path) -> list[Path]:
    """Returns the logs of unfinished episodes of a killed process.

    Args:
      root: The folder of the dataset.
    """
    is_counted, log, _ = _journal(root)
    folders = {*(root / FOLDER).glob(f"{RUNNING_PREFIX}*")}
    if log and is_counted:
        folders -= {root / FOLDER / log}
    elif log and (added_log := root / FOLDER / log.replace(RUNNING_PREFIX, _ADDED_PREFIX)).exists():
        folders.add(added_log)
    return sorted(folders)


def unfinished_files(root: Path) -> list[str]:
    """Returns the incomplete files of an episode of a killed process, whose log exists."""
    is_counted, _, names = _journal(root)
    return [] if is_counted else names


def add_recordings(
    root: Path,
    logs: Sequence[Path],
    copies: Path,
    fps: float | None,
    features: Mapping[str, Any] | None = None,
) -> Iterator[tuple[Path, tuple[int, int], str]]:
    """Adds the episodes in logs of a killed process to a dataset.

    Args:
      root: The dataset.
      logs: The logs, which are not changed.
      copies: A folder for copies of the logs.
      fps: The frame rate, in steps per second; by default, the rate of the recorder.
      features: The required features of a new dataset.

    Yields:
      A log, its numbers of episodes and rows, and the reason if it has none.
    """
    writer, writer_arguments = None, None
    with contextlib.ExitStack() as stack:
        for log in logs:
            copy = copies / log.name
            if not any(log.rglob("*.riegeli")) or not recover(log, copy).num_steps:
                yield log, (0, 0), "it has no step"
                continue
            with Reader(copy) as reader:
                options = reader.metadata().get(_ARGUMENTS_KEY, {})
            rate = fps or options.get("fps")
            if rate is None:
                yield log, (0, 0), "its frame rate is unknown; pass fps"
                continue
            arguments = rate, options.get("task", ""), options.get("robot_type") or None
            if writer is None or arguments != writer_arguments:  # Opening a dataset is slow.
                stack.close()
                writer = stack.enter_context(LeRobotBackendWriter(root, *arguments))
                writer_arguments = arguments
                if features is not None:
                    writer.expect(features)
            counts = writer.add_log(copy)
            yield log, counts, "" if counts[0] else "it has no transition"


def _journal(root: Path) -> tuple[bool, str, list[str]]:
    """Reads the journal of an episode: True if the tables count it, its log, and its files."""
    content = _read_if_exists(root / FOLDER / _JOURNAL_FILE)
    if content is None:
        return False, "", []
    num_episodes, log, *names = json.loads(content)
    if Path(log).name != log or any(".." in Path(name).parts for name in names):
        raise StorageError(
            f"{root / FOLDER / _JOURNAL_FILE} names files outside the dataset: {log}, {names}"
        )
    info = _read_if_exists(root / layout.INFO)
    return info is not None and json.loads(info)["total_episodes"] == num_episodes, log, names


def _log_path(log: Path, kind: str) -> Path:
    """Returns the path of a log after a change of its state: running, or added."""
    return log.with_name(kind + log.name.removeprefix(RUNNING_PREFIX).removeprefix(_ADDED_PREFIX))


def _read_if_exists(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _remove(root: Path, name: str) -> None:
    (root / name).unlink(missing_ok=True)
    for folder in (root / name).parents:
        if folder == root or any(folder.iterdir()):
            return
        folder.rmdir()
