"""`rlds audit`: the meaning of the actions of a dataset, and its unusual episodes."""

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
      audits: The audit of each split, with the stored indices of episodes in its findings.
      numbers: The stored indices of the episodes of each audit, in the order of its scores.
      stored_splits: The stored split of the episodes of each audit; None for several splits.
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
        for audit_index, (audit, indices) in enumerate(zip(self.audits, self.numbers)):
            size = f"{count(audit.num_episodes, 'episode')}, {count(audit.num_rows, 'row')}"
            yield f"{self.path} {audit.split}: {size}"
            if audit.unreadable:
                total = audit.num_episodes + len(audit.unreadable)
                first_text = f"the first is episode {audit.unreadable[0]}"
                yield f"unreadable: {len(audit.unreadable)} of {total:,} episodes, {first_text}"
            for vector in audit.vectors:
                yield from vector.sentences()
            yield from self._finding_blocks(audit)
            for check, texts in audit.facts.items():
                yield from (f"of the dataset: {check}: {text}" for text in texts[: self.most])
                if len(texts) > self.most:
                    yield f"{len(texts) - self.most} more of {check} (--max shows more)"
            yield from (f"not assessed: {text}" for text in audit.unassessed)
            if self.by is not None:
                yield from self._lowest_blocks(audit, self.by, indices)
            yield from self._next_commands(audit_index)

    def worst_episodes(self, audit_index: int) -> list[int]:
        """Returns the stored indices of the worst episodes, the worst one first.

        Args:
          audit_index: The index of the audit in `audits`.
        """
        audit, indices = self.audits[audit_index], self.numbers[audit_index]
        if self.by is not None:
            return [indices[i] for _, i in _rank_episodes(audit, self.by)[: self.worst]]
        return list(dict.fromkeys(finding.episode for finding in audit.findings))[: self.worst]

    def view_arguments(self, audit_index: int) -> list[str]:
        """Returns the arguments of `rlds view` for the worst episodes; empty without any.

        Args:
          audit_index: The index of the audit in `audits`.
        """
        indices, split = self.worst_episodes(audit_index), self.stored_splits[audit_index]
        if not indices or split is None:
            return []
        words = ["--split", split] if self.has_splits else []
        # `index` counts in the stored split, even if only a slice of the split was audited.
        return ["view", self.path, *words, "--where", f"index in ({', '.join(map(str, indices))})"]

    def _lowest_blocks(self, audit: Audit, by: str, indices: Sequence[int]) -> Iterator[Block]:
        ranking = _rank_episodes(audit, by)
        num_unrated = len(audit.ranks[by]) - len(ranking)
        yield f"lowest {by} of {count(len(ranking), 'episode')}, within their task"
        scores = {by: audit.scores[by], **audit.scores}
        rows = [
            [str(indices[i]), f"{rank:.0%}", *(_score_cell(score[i]) for score in scores.values())]
            for rank, i in ranking[: self.most]
        ]
        yield Table([">episode", ">rank", *(f">{name}" for name in scores)], rows)
        if num_unrated:
            yield f"not assessed: the {by} of {count(num_unrated, 'episode')}"

    def _finding_blocks(self, audit: Audit) -> Iterator[Block]:
        total = len(audit.episodes)
        if not total:
            yield f"nothing unusual in {count(audit.num_episodes, 'episode')}"
            return
        shown = audit.findings[: self.most]
        rows = [[str(f.episode), f.check, f.text, str(f.row) if f.row >= 0 else ""] for f in shown]
        yield f"to look at: {total} of {count(audit.num_episodes, 'episode')}"
        yield Table([">episode", "finding", "what", ">row"], rows)
        if len(shown) < len(audit.findings):
            yield f"{len(audit.findings) - len(shown)} more findings (--max shows more)"

    def _next_commands(self, audit_index: int) -> Iterator[str]:
        audit, view = self.audits[audit_index], self.view_arguments(audit_index)
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
        indices = ",".join(map(str, self.worst_episodes(audit_index)))
        split = ["--split", audit.split] if self.has_splits else []
        report = ["report", self.path, *split, "--episodes", indices, "--open"]
        # Edits count the episodes of all splits.
        edits = [["edit", self.path, "--delete-episodes", indices, "--plan"]]
        yield next_commands(report, *views, *([] if self.has_splits else edits))


def _rank_episodes(audit: Audit, by: str) -> list[tuple[float, int]]:
    """Returns the ranks of episodes by a score, and their indices, the lowest rank first."""
    ranks = audit.ranks[by].tolist()
    return sorted((rank, index) for index, rank in enumerate(ranks) if rank == rank)


def stored_split(episodes: Episodes) -> str | None:
    """Returns the stored split of all episodes; None if they are of several splits or datasets."""
    from rlds.sources.reading import roots

    splits = {split for split, begin, end in episodes.ranges if begin < end}
    return splits.pop() if len(splits) == 1 and len(roots(episodes.source)) == 1 else None


def _score_cell(value: float) -> str:
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
    """Detects the meaning of the actions of a dataset, and its unusual episodes.

    Episodes are compared with the episodes of the same dataset: by all numeric fields, and for up
    to 200 episodes by some pictures. `rlds.auditing.CHECKS` lists all checks and thresholds.

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
      jobs: The number of processes that read; the number of processors if None.
      beam_runner: The runner, or its name, if Apache Beam is to read the episodes.
      beam_options: The options of Beam: `PipelineOptions`, or a list of flags.
      draft: The folder for the results of Beam's workers, see `rlds.auditing.audit`.

    Raises:
      FileNotFoundError: There is nothing at the path.
      KeyError: The dataset lacks the split.
      SourceError: The data is damaged, or its format is unknown.
      ValueError: The score is unknown, the data allows no random access, or the draft is in an
        object store or used without Beam.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> for index in range(20):
    ...     state = rng.normal(size=(61, 2)).cumsum(0)
    ...     state = state[:8] if index == 7 else state
    ...     np.savez(folder / f"{index:02}.npz", observation=state, action=state[1:] - state[:-1])
    >>> print(audit(folder))  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
    /... train: 20 episodes, 1,147 rows
    action[0:2]: delta or velocity of observation[0] to observation[1] at t, scale 1, ...
    to look at: 1 of 20 episodes
    episode  finding  what                     row
          7  short    7 rows, usually 60
    not assessed: smoothness: the rows per second are unknown, or not the same in all episodes
    next: rlds report ...
    """
    from rlds import auditing
    from rlds.sources.source import with_random_access
    from rlds_tools.split_scan import open_splits

    path, score_names = os.fspath(path), [score.name for score in auditing.SCORES]
    if by is not None and by not in score_names:
        raise ValueError(f"by: got {by!r}, expected one of {', '.join(score_names)}")
    if not 0 < best <= 1:
        raise ValueError(f"best: got {best}, expected a share of the episodes, such as 0.5")
    # Workers may run in other folders.
    is_relative = beam_runner is not None and "://" not in path
    full_path = os.path.abspath(path) if is_relative else path
    splits = open_splits(full_path, split, format, options, where)
    for episodes in splits:
        with_random_access(episodes.source)
    nonempty = [episodes for episodes in splits if len(episodes)]
    stored_indices = tuple([*map(split.stored_index, range(len(split)))] for split in nonempty)
    audits = auditing.audit_splits(
        nonempty,
        progress=progress,
        jobs=jobs,
        beam_runner=beam_runner,
        beam_options=beam_options,
        draft=draft,
    )
    audits = [
        dataclasses.replace(
            audit,
            unreadable=[indices[i] for i in audit.unreadable],
            findings=[dataclasses.replace(f, episode=indices[f.episode]) for f in audit.findings],
        )
        for audit, indices in zip(audits, stored_indices)
    ]
    has_splits = any(len(episodes.splits) > 1 for episodes in splits)
    stored_splits = (*map(stored_split, nonempty),)
    output = has_splits, most, by, best, worst
    return AuditedDataset(path, tuple(audits), stored_indices, stored_splits, *output)
