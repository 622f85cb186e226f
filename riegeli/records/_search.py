"""Binary search in a Riegeli/records file: over chunks, then over the records of one chunk."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

# The comparison of a record with the target: less than 0, 0 or more than 0; None if the record does
# not count, or no record of the chunk does.
Comparison = int | None


class SearchResult(NamedTuple):
    """The position of the record that a search ended at, and the comparison of this record."""

    comparison: Comparison
    chunk_begin: int
    record_index: int


class Searchable(Protocol):
    """A file of chunks that can be searched."""

    def chunk_between(self, low: int, high: int) -> int:
        """Returns the begin of a chunk near the middle of two positions."""

    def read_chunk(self, begin: int) -> tuple[int, int] | None:
        """Returns the end and the number of records of a chunk; None if it is truncated."""

    def compare(self, chunk_begin: int, record_index: int) -> Comparison:
        """Compares a record with the target of the search."""


def search(file: Searchable, size: int) -> SearchResult:
    """Searches a file of `size` bytes; compares each record at most once."""
    candidates: tuple[int, range] | None = None  # The records of a chunk after a smaller record.
    best = SearchResult(None, size, 0)

    def compare_chunk(begin: int) -> tuple[Comparison, int]:
        nonlocal candidates, best
        chunk = file.read_chunk(begin)
        if chunk is None:
            best = SearchResult(1, begin, 0)
            return 1, size
        end, num_records = chunk
        for index in range(num_records):
            comparison = file.compare(begin, index)
            if comparison is None:
                continue
            if comparison < 0:
                candidates = begin, range(index + 1, num_records)
            else:
                best = SearchResult(comparison, begin, index)
            return comparison, end
        return None, end

    _bisect(0, size, file.chunk_between, compare_chunk)
    if candidates is not None and best.comparison != 0:
        begin, indices = candidates

        def compare_record(index: int) -> tuple[Comparison, int]:
            nonlocal best
            comparison = file.compare(begin, index)
            if comparison is not None and comparison >= 0:
                best = SearchResult(comparison, begin, index)
            return comparison, index + 1

        _bisect(indices.start, indices.stop, lambda low, high: (low + high) // 2, compare_record)
    if candidates is not None and best.comparison is None:
        return SearchResult(-1, size, 0)
    return best


def _bisect(
    low: int,
    high: int,
    middle: Callable[[int, int], int],
    compare: Callable[[int], tuple[Comparison, int]],
) -> None:
    """Bisects the positions between `low` and `high`.

    Args:
      low: The first position.
      high: The position after the last position.
      middle: A function that returns the next position to compare.
      compare: A function that returns the comparison at a position, and the next position.
    """
    while low < high:
        begin = middle(low, high)
        comparison, next_index = compare(begin)
        while comparison is None and next_index < high:
            comparison, next_index = compare(next_index)
        if comparison == 0:
            return
        if comparison is not None and comparison < 0:
            low = max(low + 1, next_index)
        else:
            high = begin
