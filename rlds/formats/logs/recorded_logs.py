"""The logs of a dataset: their names, and their readers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

import envlogger
from rlds.sources.dataset_search import find_logs
from rlds_ecosystem.files.forking import reset_in_forks

__all__ = ["IdleReaders", "Log", "LogSource", "Logs", "find_logs", "logs_by_split"]

# The number of logs to keep open. Each has two open files at most.
_MAX_OPEN_LOGS = 16

LogSource: TypeAlias = str | os.PathLike[str] | envlogger.Reader
Logs: TypeAlias = LogSource | Sequence[LogSource] | Mapping[str, LogSource | Sequence[LogSource]]


@dataclasses.dataclass(eq=False)
class Log:
    """A log of EnvLogger, which is opened on reading.

    Attributes:
      path: The directory, or a description of the reader.
      source: The directory, or a reader.
      name: The name in the dataset.
      start_rows: The index of the first step of each episode, and the number of steps.
      reads_together: False after a joint read of episodes failed.
      video: The reading mode of the video of a directory.
    """

    path: str
    source: str | envlogger.Reader
    name: str = ""
    start_rows: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(1, np.int64))
    reads_together: bool = True
    video: Literal["packets", "frames"] = "packets"

    @property
    def num_episodes(self) -> int:
        """The number of episodes in the log when it was first read."""
        return len(self.start_rows) - 1

    def __post_init__(self) -> None:
        self.name = self.path
        if isinstance(self.source, envlogger.Reader):  # The owner may close its reader.
            self.source = self.source.copy()

    def open(self) -> envlogger.Reader:
        """Opens the log; the caller closes the reader."""
        if isinstance(self.source, str):
            return envlogger.Reader(self.source, video=self.video)
        return self.source.copy()


def _set_names(logs: Sequence[Log]) -> None:
    paths = [os.path.abspath(log.source) for log in logs if isinstance(log.source, str)]
    parent = os.path.dirname(os.path.commonpath(paths)) if paths else ""
    for log in logs:
        if isinstance(log.source, str):
            log.name = os.path.relpath(os.path.abspath(log.source), parent)


class IdleReaders:
    """A pool of open, unused readers of logs.

    Each concurrent thread gets its own reader. Copies of the pool in other processes are empty.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: list[tuple[Log, envlogger.Reader]] = []
        reset_in_forks(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return IdleReaders, ()

    @contextlib.contextmanager
    def borrow(self, log: Log) -> Iterator[envlogger.Reader]:
        """Yields a reader of a log, and takes it back."""
        reader = self._take(log) or log.open()
        try:
            yield reader
        except BaseException:  # The traceback refers to the reader, which would stay open.
            reader.close()
            raise
        self._release(log, reader)

    def _release(self, log: Log, reader: envlogger.Reader) -> None:
        with self._lock:
            self._readers.append((log, reader))
            surplus = self._readers[:-_MAX_OPEN_LOGS]
            del self._readers[:-_MAX_OPEN_LOGS]
        for _, unused in surplus:
            unused.close()

    def _take(self, log: Log) -> envlogger.Reader | None:
        with self._lock:
            indices = [index for index, (other, _) in enumerate(self._readers) if other is log]
            return self._readers.pop(indices[0])[1] if indices else None


def logs_by_split(logs: Logs) -> dict[str, list[Log]]:
    """Returns the logs of each split.

    Their names are relative to the common directory of all logs, so equal on every machine.

    Raises:
      FileNotFoundError: A directory does not exist, or holds no log.
      ValueError: There are no logs, or a name of a split is not valid.
    """
    splits = logs if isinstance(logs, Mapping) else {"train": logs}
    if not splits:
        raise ValueError("logs: expected at least one log.")
    by_split = {split: _split_logs(split, sources) for split, sources in splits.items()}
    _set_names([log for split_logs in by_split.values() for log in split_logs])
    return by_split


def _split_logs(split: str, sources: LogSource | Sequence[LogSource]) -> list[Log]:
    if not re.fullmatch(r"\w+", split) or split == "all":
        raise ValueError(
            f"{split!r} is not a valid split name; use letters, digits and '_' ('all' means all "
            "splits to TFDS)."
        )
    if isinstance(sources, (str, os.PathLike)) or not isinstance(sources, Sequence):
        sources = [sources]
    logs = []
    for index, source in enumerate(sources):
        if isinstance(source, (str, os.PathLike)):
            logs += [Log(path, path) for path in find_logs(source)]
        else:
            logs.append(Log(f"reader {index} of split {split!r}", source))
    if not logs:
        raise ValueError(f"logs: expected at least one log for the split {split!r}.")
    return logs
