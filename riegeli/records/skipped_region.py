"""A damaged region that a reader skipped."""

from dataclasses import dataclass

__all__ = ["SkippedRegion"]


@dataclass(frozen=True, slots=True)
class SkippedRegion:
    """An unreadable region of a file.

    >>> region = SkippedRegion(64, 110, "data is damaged")
    >>> str(region), region.length
    ('[64..110): data is damaged', 46)

    Attributes:
      begin: The position of the first byte; or the numeric position of the first unreadable record
        of an intact chunk.
      end: The position after the region.
      message: A description of the damage.

    Raises:
      ValueError: `begin` is after `end`.
    """

    begin: int
    end: int
    message: str

    def __post_init__(self) -> None:
        """Checks that the begin is not after the end."""
        if self.begin > self.end:
            raise ValueError(f"a region cannot begin at {self.begin} and end at {self.end}")

    @property
    def length(self) -> int:
        """The length in bytes."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"[{self.begin}..{self.end}): {self.message}"

    def __repr__(self) -> str:
        return f"SkippedRegion({self.begin}, {self.end}, {self.message!r})"
