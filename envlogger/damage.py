"""Damage of a recording: corrupt, missing or unindexed records."""

from __future__ import annotations

import dataclasses

__all__ = ["Damage"]


@dataclasses.dataclass(frozen=True)
class Damage:
    """Damaged, lost or unindexed data in a recording.

    >>> print(Damage("data/metadata.riegeli", "is missing", advice="the metadata is lost"))
    data/metadata.riegeli is missing: the metadata is lost
    >>> print(Damage("steps.riegeli", "was cut off", num_steps=3, num_bytes=1200))
    steps.riegeli was cut off (3 steps, 1200 bytes)

    Attributes:
      path: The affected file or directory.
      problem: A description of the damage.
      num_steps: The number of affected steps; None if unknown.
      num_bytes: The number of affected bytes of the file; None if unknown.
      advice: The consequence, and the remedy.
    """

    path: str
    problem: str
    num_steps: int | None = None
    num_bytes: int | None = None
    advice: str = ""

    def __str__(self) -> str:
        counts = [
            f"{count} {noun if count != 1 else noun.removesuffix('s')}"
            for count, noun in ((self.num_steps, "steps"), (self.num_bytes, "bytes"))
            if count is not None
        ]
        text = f"{self.path} {self.problem}"
        if counts:
            text += f" ({', '.join(counts)})"
        return f"{text}: {self.advice}" if self.advice else text
