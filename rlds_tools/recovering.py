"""`rlds recover`: repairs a log that was cut short or damaged."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_ecosystem.progress import show_progress
from rlds_tools.results import Block, Result, count

if TYPE_CHECKING:
    from envlogger.recovery import ShardReport

__all__ = ["Recovery", "recover"]


@dataclasses.dataclass(frozen=True)
class Recovery(Result):
    """What was recovered, or would be.

    Attributes:
      path: The recovered log.
      dry_run: Whether nothing was written.
      is_changed: Whether there was anything to recover.
      num_episodes_before: How many episodes a reader saw.
      num_episodes: How many episodes a reader sees now.
      num_steps_before: How many steps a reader saw.
      num_steps: How many steps a reader sees now.
      metadata_problem: Why the metadata of the log is replaced by empty metadata; None if it is
        kept.
      shards: What was found in each directory of steps.
    """

    path: str
    dry_run: bool
    is_changed: bool
    num_episodes_before: int
    num_episodes: int
    num_steps_before: int
    num_steps: int
    metadata_problem: str | None
    shards: tuple[ShardReport, ...]

    @override
    def blocks(self) -> Iterator[Block]:
        if not self.is_changed:
            yield f"{self.path}: nothing to recover in {self._found()}"
            yield f"next: rlds inspect {self.path}"
            return
        yield (
            f"{self.path}: {self.num_episodes_before:,} -> {count(self.num_episodes, 'episode')}, "
            f"{self.num_steps_before:,} -> {count(self.num_steps, 'step')}"
        )
        if self.metadata_problem is not None:
            yield f"the metadata and the specs are lost: {self.metadata_problem}"
        for shard in self.shards:
            if shard.is_changed or shard.lost_regions or shard.num_lost_steps:
                yield from str(shard).split("\n")
        if self.dry_run:
            yield "nothing was written"
            yield f"next: rlds recover {self.path} · rlds recover {self.path} -o COPY"
        else:
            yield f"next: rlds inspect {self.path}"

    def _found(self) -> str:
        return f"{count(self.num_episodes, 'episode')}, {count(self.num_steps, 'step')}"


def recover(
    log: str | os.PathLike[str],
    copy: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = False,
    progress: bool | None = None,
) -> Recovery:
    """Repairs a log whose recorder was killed, or whose disk was damaged; see `envlogger.recover`.

    Args:
      log: The directory of the log. Its recorder must have ended.
      copy: Where to write the repaired log: an empty or new directory. If None, the log is repaired
        in place: its steps do not change, and the old index is kept as `*.damaged`.
      dry_run: Whether to write nothing, and only report what would be recovered.
      progress: Whether to show a progress bar; if None, on a terminal.

    Raises:
      StorageError: There is no log in the directory, or a file cannot be read or written.
      ValueError: The copy is not empty, or in the log.
    """
    import envlogger

    if dry_run and copy is not None:
        raise ValueError("a dry run writes no copy: leave out one of them")
    with _bars(progress) as show:
        found = envlogger.recover(
            log, copy, in_place=copy is None and not dry_run, dry_run=dry_run, on_progress=show
        )
    names = [field.name for field in dataclasses.fields(Recovery) if field.name != "dry_run"]
    return Recovery(dry_run=dry_run, **{name: getattr(found, name) for name in names})


@contextlib.contextmanager
def _bars(progress: bool | None) -> Iterator[Callable[[str, int, int], None]]:
    tasks: dict[str, Any] = {}
    with show_progress(progress, of_bytes=True) as bars:

        def show(path: str, position: int, size: int) -> None:
            if path not in tasks:
                tasks[path] = bars.add_task(path, total=size)
            bars.update(tasks[path], completed=position)

        yield show
