"""How far a conversion is: a bar with episodes, steps, bytes and the time that is left."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import rich.console
import rich.progress

from rlds_ecosystem.progress import name_column
from tfds_builders.conversion.staging import StagedPart

__all__ = ["Progress", "Reading"]

_WHOLE = 1.0


class Progress:
    """Shows how far a conversion is.

    Args:
      is_shown: Whether to show it; if None, if the standard error output is a terminal.
    """

    def __init__(self, is_shown: bool | None = None) -> None:
        self._is_shown = sys.stderr.isatty() if is_shown is None else is_shown

    @contextlib.contextmanager
    def reading(self, split: str, num_parts: int, num_episodes: int | None) -> Iterator[Reading]:
        """Shows how much of a split has been read, as long as the context lasts.

        Args:
          split: The split.
          num_parts: How many parts it has.
          num_episodes: How many episodes it has, if that is known.
        """
        with self._bar() as bar:
            task = bar.add_task(f"{split}: reading", total=_WHOLE, detail="")
            yield Reading(bar, task, num_parts, num_episodes)

    @contextlib.contextmanager
    def writing(self, split: str, num_shards: int) -> Iterator[Callable[[], None]]:
        """Shows how many files have been written; yields what to call after each of them."""
        with self._bar() as bar:
            task = bar.add_task(f"{split}: writing", total=num_shards, detail="files")
            yield lambda: bar.advance(task)

    def _bar(self) -> rich.progress.Progress:
        return rich.progress.Progress(
            name_column(),
            rich.progress.BarColumn(),
            rich.progress.TaskProgressColumn(),
            rich.progress.TextColumn("{task.fields[detail]}"),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TimeRemainingColumn(),
            console=rich.console.Console(stderr=True),
            disable=not self._is_shown,
        )


class Reading:
    """How much of a split has been read; see `Progress.reading`."""

    def __init__(
        self,
        bar: rich.progress.Progress,
        task: rich.progress.TaskID,
        num_parts: int,
        num_episodes: int | None,
    ) -> None:
        self._bar, self._task = bar, task
        self._num_parts, self._all_episodes = num_parts, num_episodes
        self._part = self._num_episodes = self._num_steps = self._num_bytes = 0

    def begin(self, part: int, staged: StagedPart) -> None:
        """Tells that a part is read, of which some was read by an earlier process."""
        self._part = part
        self._num_episodes += len(staged.examples)
        self._num_steps += staged.counts["steps"]
        self._num_bytes += staged.records_size
        self._show(_WHOLE if staged.is_complete else 0.0)

    def add(self, number: int, num_bytes: int, num_steps: int, fraction: float | None) -> None:
        """Reports that episodes were stored, and how much of their part is done, if it is known."""
        self._num_episodes += number
        self._num_steps += num_steps
        self._num_bytes += num_bytes
        self._show(fraction or 0.0)

    def _show(self, fraction: float) -> None:
        done = (self._part + fraction) / self._num_parts
        known = "" if self._all_episodes is None else f" of {self._all_episodes:,}"
        self._bar.update(
            self._task,
            completed=done,
            detail=f"{self._num_episodes:,}{known} episodes, {self._num_steps:,} steps, "
            f"{self._num_bytes / 1e6:,.0f} MB",
        )
