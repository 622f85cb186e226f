"""Findings of a validation: each kind of fault once, with the episodes that have it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal

from rlds_tools.results import Table, count

__all__ = ["Finding", "Severity", "Tally", "table_of"]

Severity = Literal["error", "warning"]

_NUMBERS_AND_NAMES = r"'[^']*'|[-+]?\d[\d,.]*|\bnan\b|-?\binf\b"
# The most episodes that are named, of those that have a fault.
_NAMED = 10


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fault.

    Attributes:
      severity: "error" for a broken rule of the format, "warning" for what is probably a mistake.
      text: The description of the fault.
      field: The path of the field, if it is about one.
      count: The number of affected episodes; 0 if it is about the dataset as a whole.
      episodes: The first of these.
      step: The step of the first one, if it is about a step.
      hint: The remedy, if there is one.
    """

    severity: Severity
    text: str
    field: str | None = None
    count: int = 0
    episodes: tuple[int, ...] = ()
    step: int | None = None
    hint: str = ""

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
    rows = [[finding.severity, finding.text, finding.where] for finding in findings]
    return Table(["severity", "finding", "where"], rows)


class Tally:
    """Collects faults episode by episode."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str | None, str], Finding] = {}

    def add(
        self,
        severity: Severity,
        text: str,
        *,
        field: str | None = None,
        episode: int | None = None,
        step: int | None = None,
        hint: str = "",
    ) -> None:
        """Adds a fault. Those of episodes that differ only in numbers and names are one."""
        kind = text if episode is None else re.sub(_NUMBERS_AND_NAMES, "#", text)
        key = severity, field, kind
        finding = self._findings.get(key)
        if finding is None:
            finding = Finding(severity, text, field, step=step, hint=hint)
        elif finding.episodes[-1:] == (episode,) or episode is None:
            return
        if episode is not None:
            named = (*finding.episodes, episode)[:_NAMED]
            finding = dataclasses.replace(finding, count=finding.count + 1, episodes=named)
        self._findings[key] = finding

    def result(self) -> tuple[Finding, ...]:
        """Returns the findings, errors first."""
        return tuple(sorted(self._findings.values(), key=lambda finding: finding.severity))
