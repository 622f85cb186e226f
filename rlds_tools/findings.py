"""Findings of `rlds validate` and `rlds report`, one for each kind of fault."""

from __future__ import annotations

import dataclasses
import re
from array import array
from collections.abc import Callable, Sequence

from rlds.auditing import CHECKS, Audit
from rlds.auditing.checks import USUAL_SHARE
from rlds.auditing.registry import Severity
from rlds_tools.results import Table, count

__all__ = ["Finding", "FindingCollector", "findings_table"]

_CHECKS = {check.name: check for check in CHECKS}

_NUMBERS_AND_NAMES = r"'[^']*'|[-+]?\d[\d,.]*|\bnan\b|-?\binf\b"
# The maximum number of episodes that a finding names.
_MAX_NAMED_EPISODES = 10


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fault of a dataset, with the affected episodes.

    Attributes:
      check: The name of the check that detected it, one of `rlds.auditing.CHECKS`.
      text: The description of the fault.
      field: The path of the faulty field; None for other faults.
      count: The number of affected episodes; 0 for a fault of the dataset.
      episodes: The stored indices of the first affected episodes.
      texts: The description of the fault in each of `episodes`.
      step: The faulty step of the first episode; None if no single step is faulty.
      hint: The remedy; empty if there is none.
      severity: "error" or "warning".
    """

    check: str
    text: str
    field: str | None = None
    count: int = 0
    episodes: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    step: int | None = None
    hint: str = ""
    severity: Severity = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", _CHECKS[self.check].severity)

    @property
    def where(self) -> str:
        """The text that names the affected episodes."""
        if not self.count:
            return ""
        first_episode = f"{self.episodes[0]}" + ("" if self.step is None else f", step {self.step}")
        if self.count == 1:
            return f"episode {first_episode}"
        return f"{count(self.count, 'episode')}, first: {first_episode}"


def findings_table(findings: Sequence[Finding]) -> Table:
    """Returns findings as a table."""
    rows = [[finding.severity, finding.check, finding.text, finding.where] for finding in findings]
    return Table(["severity", "finding", "what", "where"], rows)


class FindingCollector:
    """A collector of faults, which merges equal faults of several episodes.

    Args:
      stored_index: Returns the stored index of an episode by its index.

    Attributes:
      episodes: The indices of faulty episodes, by the names of checks.
    """

    def __init__(self, stored_index: Callable[[int], int]) -> None:
        self._stored_index = stored_index
        self._findings: dict[tuple[str, str | None, str], Finding] = {}
        self.episodes: dict[str, array[int]] = {}

    def add(self, finding: Finding, index: int | None = None) -> None:
        """Adds a fault. Faults of episodes that differ only in numbers and names are merged."""
        text = finding.text
        kind = text if index is None else re.sub(_NUMBERS_AND_NAMES, "#", text)
        key = finding.check, finding.field, kind
        faulty = self.episodes.setdefault(finding.check, array("q"))
        earlier_finding = self._findings.setdefault(key, finding)
        if index is None or earlier_finding.episodes[-1:] == (stored := self._stored_index(index),):
            return
        faulty.append(index)
        episodes = (*earlier_finding.episodes, stored)[:_MAX_NAMED_EPISODES]
        texts = (*earlier_finding.texts, text)[:_MAX_NAMED_EPISODES]
        self._findings[key] = dataclasses.replace(
            earlier_finding, count=earlier_finding.count + 1, episodes=episodes, texts=texts
        )

    def add_audit(self, audit: Audit, indices: Sequence[int]) -> None:
        """Adds the findings of an audit that repeat no fault.

        Args:
          audit: The audit.
          indices: The indices of the audited episodes.
        """
        reported: dict[str, set[int]] = {}
        for name, episodes in self.episodes.items():
            check = _CHECKS[name]
            for check_name in (name, *(check.hides if check.find is None else ())):
                reported.setdefault(check_name, set()).update(episodes)
        for finding in audit.findings:
            index = indices[finding.episode]
            if index not in reported.get(finding.check, ()):
                step = finding.row if finding.row >= 0 else None
                self.add(Finding(finding.check, finding.text, step=step), index)
        for name, texts in audit.facts.items():
            # A finding about most episodes is new if the same fault has few episodes.
            if name not in reported or 0 < len(reported[name]) <= USUAL_SHARE * len(indices):
                for text in texts:
                    self.add(Finding(name, text))

    def result(self) -> tuple[Finding, ...]:
        """Returns the findings, errors first."""
        return tuple(sorted(self._findings.values(), key=lambda finding: finding.severity))
