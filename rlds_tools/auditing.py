"""`rlds audit`: what the actions of a dataset mean, and which episodes to look at, and why."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_tools.results import Block, Result, Table, count, next_commands

if TYPE_CHECKING:
    from rlds.auditing import Audit
    from rlds.sources import Episodes

__all__ = ["AuditedDataset", "audit", "stored_split"]


@dataclasses.dataclass(frozen=True)
class AuditedDataset(Result):
    """The result of `rlds audit`: the audits of the splits of a dataset.

    Attributes:
      path: The path of the data.
      audits: The audit of each split, with the stored numbers of episodes in its findings.
      numbers: For each audit, the stored numbers of all of its episodes, in the order of scores.
      stored_splits: For each audit, the stored split of its episodes; None if they are of several.
      has_splits: Whether the dataset has several splits.
      most: The maximum number of printed findings, or episodes, of a split.
      by: The score whose lowest episodes are printed.
      best: The share of the episodes of each task that the printed command keeps.
      worst: The maximum number of episodes in the printed commands.
    """

    path: str
    audits: tuple[Audit, ...]
    numbers: tuple[Sequence[int], ...]
    stored_splits: tuple[str | None, ...]
    has_splits: bool = False
    most: int = 20
    by: str | None = None
    best: float = 0.5
    worst: int = 6

    @property
    def exit_code(self) -> int:
        """1 if episodes have findings or cannot be read."""
        return int(any(audit.findings or audit.unreadable for audit in self.audits))

    @override
    def blocks(self) -> Iterator[Block]:
        for audit_index, (audit, numbers) in enumerate(zip(self.audits, self.numbers)):
            read = f"{count(audit.num_episodes, 'episode')}, {count(audit.num_rows, 'row')}"
            yield f"{self.path} {audit.split}: {read}"
            if audit.unreadable:
                total = audit.num_episodes + len(audit.unreadable)
                first = f"the first is episode {audit.unreadable[0]}"
                yield f"unreadable: {len(audit.unreadable)} of {total:,} episodes, {first}"
            for vector in audit.vectors:
                yield from vector.sentences()
            yield from self._findings(audit)
            for check, texts in audit.facts.items():
                yield from (f"of the dataset: {check}: {text}" for text in texts[: self.most])
                if len(texts) > self.most:
                    yield f"{len(texts) - self.most} more of {check} (--max shows more)"
            yield from (f"not assessed: {text}" for text in audit.unassessed)
            if self.by is not None:
                yield from self._lowest(audit, self.by, numbers)
            yield from self._next(audit_index)

    def worst_episodes(self, audit_index: int) -> list[int]:
        """Returns the stored numbers of the worst episodes, the worst one first.

        Args:
          audit_index: The index of the audit in `audits`.
        """
        audit, numbers = self.audits[audit_index], self.numbers[audit_index]
        if self.by is not None:
            return [numbers[index] for _, index in _ranked(audit, self.by)[: self.worst]]
        return list(dict.fromkeys(one.episode for one in audit.findings))[: self.worst]

    def viewing(self, audit_index: int) -> list[str]:
        """Returns the arguments of `rlds view` for the worst episodes; empty without any.

        Args:
          audit_index: The index of the audit in `audits`.
        """
        chosen, split = self.worst_episodes(audit_index), self.stored_splits[audit_index]
        if not chosen or split is None:
            return []
        words = ["--split", split] if self.has_splits else []
        # `index` is the number in the stored split, whichever part and condition chose the episode.
        return ["view", self.path, *words, "--where", f"index in ({', '.join(map(str, chosen))})"]

    def _lowest(self, audit: Audit, by: str, numbers: Sequence[int]) -> Iterator[Block]:
        rated = _ranked(audit, by)
        num_unrated = len(audit.ranks[by]) - len(rated)
        yield f"lowest {by} of {count(len(rated), 'episode')}, within their task"
        names = [by, *(name for name in audit.scores if name != by)]
        rows = [
            [str(numbers[i]), f"{rank:.0%}", *(_number(audit.scores[name][i]) for name in names)]
            for rank, i in rated[: self.most]
        ]
        yield Table([">episode", ">rank", *(f">{name}" for name in names)], rows)
        if num_unrated:
            yield f"not assessed: the {by} of {count(num_unrated, 'episode')}"

    def _findings(self, audit: Audit) -> Iterator[Block]:
        total = len(audit.episodes)
        if not total:
            yield f"nothing unusual in {count(audit.num_episodes, 'episode')}"
            return
        shown = audit.findings[: self.most]
        rows = [
            [str(one.episode), one.check, one.text, str(one.row) if one.row >= 0 else ""]
            for one in shown
        ]
        yield f"to look at: {total} of {count(audit.num_episodes, 'episode')}"
        yield Table([">episode", "finding", "what", ">row"], rows)
        if len(shown) < len(audit.findings):
            yield f"{len(audit.findings) - len(shown)} more findings (--max shows more)"

    def _next(self, audit_index: int) -> Iterator[str]:
        audit, view = self.audits[audit_index], self.viewing(audit_index)
        views = [view] if view else []
        if self.by is not None:
            condition = f"audit.{self.by}_rank >= {round(1 - self.best, 6):g}"
            selections = [
                ["episodes", self.path, "--where", condition],
                ["edit", self.path, "--keep", condition, "--plan"],
            ]
            if commands := [*views, *(selections if audit.is_kept else [])]:
                yield next_commands(*commands)
            return
        if not audit.episodes:
            return
        chosen = ",".join(map(str, self.worst_episodes(audit_index)))
        split = ["--split", audit.split] if self.has_splits else []
        report = ["report", self.path, *split, "--episodes", chosen, "--open"]
        # Edits count the episodes of all splits.
        edits = [["edit", self.path, "--delete-episodes", chosen, "--plan"]]
        yield next_commands(report, *views, *([] if self.has_splits else edits))


def _ranked(audit: Audit, by: str) -> list[tuple[float, int]]:
    """The rank and the index of the episodes with a rank by a score, the lowest first."""
    ranks = audit.ranks[by].tolist()
    return sorted((rank, index) for index, rank in enumerate(ranks) if rank == rank)


def stored_split(episodes: Episodes) -> str | None:
    """Returns the stored split of all episodes; None if they are of several splits or datasets."""
    from rlds.sources.reading import bases

    splits = {split for split, begin, end in episodes.ranges if begin < end}
    return splits.pop() if len(splits) == 1 and len(bases(episodes.source)) == 1 else None


def _number(value: float) -> str:
    return "" if value != value else f"{value:.3g}"


def audit(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    where: str | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    most: int = 20,
    by: str | None = None,
    best: float = 0.5,
    worst: int = 6,
    progress: bool | None = None,
    jobs: int | None = None,
    beam_runner: Any = None,
    beam_options: Any = None,
    draft: str | os.PathLike[str] | None = None,
) -> AuditedDataset:
    """Tells what the actions of a dataset mean, and which of its episodes are unlike the others.

    Episodes are compared with those of the same dataset, by their numbers, and up to 200 of them by
    some of their pictures. `rlds.auditing.CHECKS` has all checks, with their thresholds.

    Args:
      path: A folder or a file, here or in an object store.
      split: The name of the split; all splits if None.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format, as `rlds.sources.open` takes them.
      most: The maximum number of printed findings, or episodes, of a split.
      by: The score whose lowest episodes are printed, see `rlds.auditing.SCORES`.
      best: The share of the episodes of each task that the printed command keeps.
      worst: The maximum number of episodes in the printed commands.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that read; that of the processors if None.
      beam_runner: Has Apache Beam read the episodes, with this runner or the one of this name.
      beam_options: Options for it: `PipelineOptions`, or a list of flags.
      draft: The folder for the results of its workers, see `rlds.auditing.audit`.

    Raises:
      FileNotFoundError: There is nothing at the path.
      KeyError: There is no such split.
      SourceError: The data is damaged, or of no known format.
      ValueError: There is no such score, the data can be read from the beginning to the end only,
        or the draft is in an object store or for no pipeline.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> for number in range(20):
    ...     state = rng.normal(size=(61, 2)).cumsum(0)
    ...     state = state[:8] if number == 7 else state
    ...     np.savez(folder / f"{number:02}.npz", observation=state, action=state[1:] - state[:-1])
    >>> print(audit(folder))  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
    /... train: 20 episodes, 1,147 rows
    action[0:2]: delta or velocity of observation[0] to observation[1] at t, scale 1, ...
    to look at: 1 of 20 episodes
    episode  finding  what                     row
          7  short    7 rows, usually 60
    not assessed: smoothness: how many rows a second has is not known, or not the same of all
    next: rlds report ...
    """
    from rlds import auditing
    from rlds.sources.source import with_random_access
    from rlds_tools.split_scan import open_splits

    path, score_names = os.fspath(path), [score.name for score in auditing.SCORES]
    if by is not None and by not in score_names:
        raise ValueError(f"by: got {by!r}, expected one of {', '.join(score_names)}")
    if not 0 < best <= 1:
        raise ValueError(f"best: got {best}, expected a part of the episodes, such as 0.5")
    # Workers may run in other folders.
    is_relative = beam_runner is not None and "://" not in path
    opened = os.path.abspath(path) if is_relative else path
    splits = open_splits(opened, split, format, options, where)
    for one in splits:
        with_random_access(one.source)
    filled = [one for one in splits if len(one)]
    numbers = tuple([*map(one.stored_index, range(len(one)))] for one in filled)
    found_in_splits = auditing.audit_splits(
        filled,
        progress=progress,
        jobs=jobs,
        beam_runner=beam_runner,
        beam_options=beam_options,
        draft=draft,
    )
    audits = [
        dataclasses.replace(
            each,
            unreadable=[of[position] for position in each.unreadable],
            findings=[dataclasses.replace(it, episode=of[it.episode]) for it in each.findings],
        )
        for each, of in zip(found_in_splits, numbers)
    ]
    has_splits = any(len(one.splits) > 1 for one in splits)
    stored = (*map(stored_split, filled),)
    return AuditedDataset(path, tuple(audits), numbers, stored, has_splits, most, by, best, worst)
