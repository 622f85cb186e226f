"""Findings of `rlds validate` and `rlds report`: each kind of fault once, with its episodes."""

from __future__ import annotations

import dataclasses
import re
from array import array
from collections.abc import Callable, Sequence

from rlds.auditing import CHECKS, Audit
from rlds.auditing.checks import USUAL_PART
from rlds.auditing.registry import Severity
from rlds_tools.results import Table, count

__all__ = ["Finding", "FindingCollector", "table_of"]

_CHECKS = {check.name: check for check in CHECKS}

_NUMBERS_AND_NAMES = r"'[^']*'|[-+]?\d[\d,.]*|\bnan\b|-?\binf\b"
# The maximum number of episodes that a finding names.
_MAX_NAMED = 10


@dataclasses.dataclass(frozen=True)
class Finding:
    """A finding: a fault of a dataset, with the affected episodes.

    Attributes:
      check: The name of the check that found it, one of `rlds.auditing.CHECKS`.
      text: The description of the fault.
      field: The path of the field, if it is about one.
      count: The number of affected episodes; 0 if it is about the dataset as a whole.
      episodes: The first of these, by their stored numbers.
      texts: Its description in each of these.
      step: The step of the first one, if it is about a step.
      hint: The remedy, if there is one.
      severity: "error" or "warning", as the check has it.
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
        """The episodes, in words."""
        if not self.count:
            return ""
        first = f"{self.episodes[0]}" + ("" if self.step is None else f", step {self.step}")
        if self.count == 1:
            return f"episode {first}"
        return f"{count(self.count, 'episode')}, first: {first}"


def table_of(findings: Sequence[Finding]) -> Table:
    """Returns findings as a table."""
    rows = [[it.severity, it.check, it.text, it.where] for it in findings]
    return Table(["severity", "finding", "what", "where"], rows)


class FindingCollector:
    """Collects faults episode by episode.

    Args:
      number_of: Returns the stored number of an episode by its index.

    Attributes:
      episodes: The indices of episodes with faults, by the names of checks; none if the dataset
        has them.
    """

    def __init__(self, number_of: Callable[[int], int]) -> None:
        self._number_of = number_of
        self._findings: dict[tuple[str, str | None, str], Finding] = {}
        self.episodes: dict[str, array[int]] = {}

    def add(self, finding: Finding, index: int | None = None) -> None:
        """Adds a fault. Those of episodes that differ only in numbers and names are one."""
        text = finding.text
        kind = text if index is None else re.sub(_NUMBERS_AND_NAMES, "#", text)
        key = finding.check, finding.field, kind
        faulty = self.episodes.setdefault(finding.check, array("q"))
        earlier = self._findings.setdefault(key, finding)
        if index is None or earlier.episodes[-1:] == (number := self._number_of(index),):
            return
        faulty.append(index)
        episodes, texts = (
            (*earlier.episodes, number)[:_MAX_NAMED],
            (*earlier.texts, text)[:_MAX_NAMED],
        )
        self._findings[key] = dataclasses.replace(
            earlier, count=earlier.count + 1, episodes=episodes, texts=texts
        )

    def add_audit(self, audit: Audit, indices: Sequence[int]) -> None:
        """Adds the findings of an audit, without those that repeat a fault.

        Args:
          audit: The audit.
          indices: The indices of its episodes.
        """
        known: dict[str, set[int]] = {}
        for name, episodes in self.episodes.items():
            check = _CHECKS[name]
            for check_name in (name, *(check.hides if check.find is None else ())):
                known.setdefault(check_name, set()).update(episodes)
        for finding in audit.findings:
            index = indices[finding.episode]
            if index not in known.get(finding.check, ()):
                step = finding.row if finding.row >= 0 else None
                self.add(Finding(finding.check, finding.text, step=step), index)
        for name, texts in audit.facts.items():
            # A fact of most episodes is new if few episodes have the same fault.
            if name not in known or 0 < len(known[name]) <= USUAL_PART * len(indices):
                for text in texts:
                    self.add(Finding(name, text))

    def result(self) -> tuple[Finding, ...]:
        """Returns the findings, errors first."""
        return tuple(sorted(self._findings.values(), key=lambda finding: finding.severity))
