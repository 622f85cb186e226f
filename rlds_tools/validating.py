"""`rlds validate`: checks datasets, and lists errors and warnings."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_ecosystem.progress import show_progress
from rlds_tools.findings import Finding, findings_table
from rlds_tools.results import Block, Result, count, next_commands

if TYPE_CHECKING:
    from rlds.sources import Episodes
    from rlds_tools.split_scan import SplitScan

__all__ = ["Check", "Validation", "validate"]


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of the validation of a split.

    Attributes:
      path: The path of the data.
      split: The split; empty if the data cannot be opened.
      episodes: The number of episodes that were read.
      steps: The number of steps of these episodes.
      seconds: The duration of the validation.
      findings: The faults, errors first.
    """

    path: str
    split: str
    episodes: int
    steps: int
    seconds: float
    findings: tuple[Finding, ...]

    def num_findings(self, severity: str) -> int:
        """Returns the number of findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)


@dataclasses.dataclass(frozen=True)
class Validation(Result):
    """The result of `rlds validate`: the checks of the splits of datasets.

    Attributes:
      checks: The check of each split of each dataset.
      strict: Whether warnings count as errors.
      most: The maximum number of printed findings of a split.
    """

    checks: tuple[Check, ...]
    strict: bool = False
    most: int = 20

    @property
    def is_valid(self) -> bool:
        """True if there are no errors and, if `strict`, no warnings."""
        return not any(
            check.num_findings("error") or (self.strict and check.findings) for check in self.checks
        )

    @property
    def exit_code(self) -> int:
        """1 if a dataset is not valid."""
        return 0 if self.is_valid else 1

    @override
    def blocks(self) -> Iterator[Block]:
        paths = {check.path for check in self.checks}
        for check in self.checks:
            name = check.split if len(paths) == 1 else f"{check.path} {check.split}".rstrip()
            counts = f"{count(check.episodes, 'episode')}, {count(check.steps, 'step')}"
            yield f"{name or check.path}: {counts}, {check.seconds:.1f} s"
            if not check.split:  # The dataset cannot be opened.
                yield from (f"{finding.severity}: {finding.text}" for finding in check.findings)
                yield from dict.fromkeys(f"hint: {f.hint}" for f in check.findings if f.hint)
                continue
            findings = check.findings[: self.most]
            if findings:
                yield findings_table(findings)
            if len(findings) < len(check.findings):
                yield f"{len(check.findings) - len(findings)} more findings (--max shows more)"
            yield from dict.fromkeys(f"hint: {f.hint}" for f in findings if f.hint)
        num_errors = sum(check.num_findings("error") for check in self.checks)
        num_warnings = sum(check.num_findings("warning") for check in self.checks)
        yield f"{count(num_errors, 'error')}, {count(num_warnings, 'warning')}"
        yield from self._next_commands()

    def _next_commands(self) -> Iterator[str]:
        readable = [check for check in self.checks if check.episodes]
        if not readable:
            return
        worst = next((check for check in readable if check.findings), readable[0])
        faulty = [finding.episodes[0] for finding in worst.findings if finding.episodes]
        indices = ",".join(map(str, dict.fromkeys(faulty[:6])))
        split = ["--split", worst.split] if len({check.split for check in readable}) > 1 else []
        episodes = ["--episodes", indices] if indices else []
        yield next_commands(["report", worst.path, *split, *episodes, "--open"])


def validate(
    *paths: str | os.PathLike[str],
    split: str | None = None,
    finite: Sequence[str] = (),
    profile: str | None = None,
    strict: bool = False,
    checksums: bool = False,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    most: int = 20,
    progress: bool | None = None,
    jobs: int = 1,
) -> Validation:
    """Checks datasets in any format, without TensorFlow.

    Errors are broken rules of RLDS (`rlds.validation.validate` lists them), and unreadable data.
    Warnings are probable mistakes: cameras that are black, of one color or frozen; elements of
    observations and actions that never change or are at a limit in 10 % of the steps; NaN;
    duplicate episodes, and episodes of two steps at most; empty instructions; `is_terminal` that is
    never true; and actions that contradict their declared meaning.

    Args:
      *paths: Folders or files, here or in an object store.
      split: The name of the split; all splits if None.
      finite: Paths of fields in which NaN and infinity are errors.
      profile: "octo" to check also the requirements of the loaders of Octo and OpenVLA.
      strict: Whether warnings count as errors.
      checksums: Whether to decode all images. Checksums of records are always verified.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format, as `rlds.sources.open` takes them.
      most: The maximum number of printed findings of a split.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that read, if there are thousands of small episodes. With more
        than one, a script needs `if __name__ == "__main__":`, as for `multiprocessing`.

    Raises:
      FileNotFoundError: A path does not exist.
      KeyError: A dataset lacks the split or a field.
      ValueError: The profile is unknown, or does not support the format.

    >>> import tempfile
    >>> import envlogger
    >>> from envlogger.testing.catch_env import Catch
    >>> directory = tempfile.mkdtemp()
    >>> with envlogger.EnvLogger(Catch(), data_directory=directory) as env:
    ...     timestep = env.reset()
    ...     while not timestep.last():
    ...         timestep = env.step(1)
    >>> validate(directory).is_valid
    True
    """
    from rlds_tools.split_scan import SplitScan

    if not paths:
        raise ValueError("validate: got no path, expected at least one.")
    # All paths are opened first, to report a missing path before hours of reading.
    datasets = [(os.fspath(path), _open(os.fspath(path), split, format, options)) for path in paths]
    checks: list[Check] = []
    for path, splits in datasets:
        for item in splits:
            if not isinstance(item, Check):
                scan = SplitScan(item, finite=finite, profile=profile, decode_all=checksums)
                item = _check(path, scan, progress, jobs)
            checks.append(item)
    return Validation(tuple(checks), strict, most)


def _open(
    path: str, split: str | None, format: str | None, options: Mapping[str, Any] | None
) -> Sequence[Episodes | Check]:
    """Opens the splits at a path; an error of opening becomes a finished check."""
    from rlds.sources.source import SourceError
    from rlds_tools.split_scan import open_splits

    findings: tuple[Finding, ...] = (Finding("unreadable", "the dataset has no episodes"),)
    try:
        splits = open_splits(path, split, format, options)
    except (SourceError, FileNotFoundError) as error:
        splits, findings = [], (Finding("unreadable", str(error)),)
        recoverable = _faults_after_crash(path)
        if not recoverable and isinstance(error, FileNotFoundError):
            raise
        findings += recoverable
    return splits or [Check(path, "", 0, 0, 0.0, findings)]


def _faults_after_crash(path: str) -> tuple[Finding, ...]:
    """Returns the faults of a LeRobot dataset that `rlds recover` repairs after a crash."""
    from rlds.formats.lerobot import recovering
    from rlds.sources.source import SourceError

    if not recovering.is_dataset(path):
        return ()
    hint = f"run `rlds recover {path} -o COPY`"
    try:
        repair = recovering.recover(path, dry_run=True)
    except SourceError as error:
        return (Finding("unreadable", str(error)),)
    return tuple(Finding("files", text, hint=hint) for text in [*repair.faults, *repair.lost])


def _check(path: str, scan: SplitScan, progress: bool | None, jobs: int) -> Check:
    from rlds.auditing.declared import contradictions_in
    from rlds_tools.reading import declared_length, indices_of

    begin, episodes = time.monotonic(), scan.episodes
    with show_progress(progress) as bars:
        indices, total = indices_of(episodes), declared_length(episodes)
        scan.read(bars.track(indices, total=total, description=episodes.split), jobs)
    hint = "`rlds audit` shows the meaning of actions"
    for text in contradictions_in(episodes) if episodes.has_random_access else ():
        scan.collector.add(Finding("declaration", text, hint=hint))
    findings = scan.findings
    if episodes.format == "lerobot" and any(finding.severity == "error" for finding in findings):
        findings = (*findings, *_faults_after_crash(path))
    seconds = time.monotonic() - begin
    return Check(path, episodes.split, len(scan.table), scan.num_steps, seconds, findings)
