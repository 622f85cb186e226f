"""`rlds recover`: the crash recovery of logs and LeRobot datasets."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_ecosystem.progress import show_progress
from rlds_tools.results import Block, Result, count, next_commands

if TYPE_CHECKING:
    from envlogger.recovery import RecoveryReport, ShardReport

__all__ = ["Recovery", "recover"]


@dataclasses.dataclass(frozen=True)
class Recovery(Result):
    """The result of `rlds recover`: the readable episodes before and after, and faults.

    Attributes:
      path: The recovered log or dataset.
      dry_run: Whether nothing was written.
      is_changed: Whether the recovery changes the data.
      num_episodes_before: The number of readable episodes before, or as in LeRobot's `info.json`.
      num_episodes: The number of readable episodes after the recovery.
      num_steps_before: The number of readable steps before, or as in LeRobot's `info.json`.
      num_steps: The number of readable steps after the recovery.
      metadata_problem: The reason to replace the metadata of the log with empty metadata; None if
        the metadata is kept.
      shards: The report of each directory of steps.
      faults: The faults of a LeRobot dataset.
      lost: The data loss of a LeRobot dataset.
    """

    path: str
    dry_run: bool
    is_changed: bool
    num_episodes_before: int
    num_episodes: int
    num_steps_before: int
    num_steps: int
    metadata_problem: str | None = None
    shards: tuple[ShardReport, ...] = ()
    faults: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @override
    def blocks(self) -> Iterator[Block]:
        if not self.is_changed:
            size = f"{count(self.num_episodes, 'episode')}, {count(self.num_steps, 'step')}"
            yield f"{self.path}: nothing to recover in {size}"
            yield next_commands(["inspect", self.path])
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
        yield from (f"fault: {text}" for text in self.faults)
        yield from (f"lost: {text}" for text in self.lost)
        if self.dry_run:
            yield "nothing was written"
            in_place = ["--in-place"] if self.faults or self.lost else []
            yield next_commands(
                ["recover", self.path, *in_place], ["recover", self.path, "-o", "COPY"]
            )
        else:
            yield next_commands(["inspect", self.path])


def recover(
    path: str | os.PathLike[str],
    copy: str | os.PathLike[str] | None = None,
    *,
    in_place: bool | None = None,
    dry_run: bool = False,
    progress: bool | None = None,
) -> Recovery:
    """Repairs a log or a LeRobot dataset after a crash of the recorder or damage.

    See `envlogger.recover` and `rlds.recording.recover`.

    Args:
      path: The directory of the log, or the LeRobot dataset. Its recorder must have ended.
      copy: The directory of the repaired dataset, empty or new.
      in_place: Whether to repair the original; by default, a log without a `copy` is repaired. The
        steps of a log do not change, and its old index is kept as `*.damaged`. A damaged dataset is
        kept as `<name>.old`.
      dry_run: Whether to write nothing, and only report what would be recovered.
      progress: Whether to show a progress bar; if None, on a terminal.

    Raises:
      StorageError: The directory holds no log, or a file cannot be read or written.
      SourceError: No episode of the dataset can be recovered.
      ValueError: The copy is not empty, or inside of the log; or `copy`, `in_place` and `dry_run`
        are combined in a wrong way.
    """
    import envlogger
    from rlds.formats.lerobot import recovering as lerobot

    if dry_run and copy is not None:
        raise ValueError("dry_run does not work with a copy. Leave out one of them.")
    report: RecoveryReport | lerobot.Recovered
    if lerobot.is_dataset(path):
        if copy is None and not in_place and not dry_run:
            raise ValueError(
                f"{os.fspath(path)} is a LeRobot dataset. Give a path for the repaired copy (-o), "
                "or pass in_place (--in-place), which keeps the damaged dataset as NAME.old."
            )
        report = lerobot.recover(path, copy, in_place=bool(in_place), dry_run=dry_run)
    elif any(Path(path).glob("*.mcap")):
        raise ValueError(
            f"{os.fspath(path)} is a recording of streams, which needs no recovery. It can be read "
            f"up to its last complete chunk: rlds inspect {os.fspath(path)}"
        )
    else:
        in_place = copy is None and not dry_run if in_place is None else in_place
        with _progress_bars(progress) as show:
            report = envlogger.recover(
                path, copy, in_place=in_place, dry_run=dry_run, on_progress=show
            )
    names = {field.name for field in dataclasses.fields(Recovery)} & {*dir(report)}
    return Recovery(dry_run=dry_run, **{name: getattr(report, name) for name in names})


@contextlib.contextmanager
def _progress_bars(progress: bool | None) -> Iterator[Callable[[str, int, int], None]]:
    tasks: dict[str, Any] = {}
    with show_progress(progress, of_bytes=True) as bars:

        def show(path: str, position: int, size: int) -> None:
            if path not in tasks:
                tasks[path] = bars.add_task(path, total=size)
            bars.update(tasks[path], completed=position)

        yield show
