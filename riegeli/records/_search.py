"""Binary search for a record: first over chunks, then over the records of one of them."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

# The comparison of a record with the target: less than 0, 0 or more than 0. None if no record of
# the chunk can be compared.
Answer = int | None


class SearchResult(NamedTuple):
    """The position at which a search ended, and the answer of the record there."""

    answer: Answer
    chunk_begin: int
    record_index: int


class Searchable(Protocol):
    """A file of chunks."""

    def chunk_between(self, low: int, high: int) -> int:
        """Returns the begin of a chunk near the middle of two positions."""

    def read_chunk(self, begin: int) -> tuple[int, int] | None:
        """The end of the chunk at a position, and its number of records; None if it is cut off."""

    def compare(self, chunk_begin: int, record_index: int) -> Answer:
        """Compares a record with the target of the search."""


def search(file: Searchable, size: int) -> SearchResult:
    """Searches a file of `size` bytes, asking about no record twice."""
    before: tuple[int, range] | None = None  # In a chunk: the records after one that is before.
    after = SearchResult(None, size, 0)

    def judge_chunk(begin: int) -> tuple[Answer, int]:
        nonlocal before, after
        chunk = file.read_chunk(begin)
        if chunk is None:
            after = SearchResult(1, begin, 0)
            return 1, size
        end, num_records = chunk
        for index in range(num_records):
            answer = file.compare(begin, index)
            if answer is None:
                continue
            if answer < 0:
                before = begin, range(index + 1, num_records)
            else:
                after = SearchResult(answer, begin, index)
            return answer, end
        return None, end

    _bisect(0, size, file.chunk_between, judge_chunk)
    if before is not None and after.answer != 0:
        begin, indices = before

        def judge_record(index: int) -> tuple[Answer, int]:
            nonlocal after
            answer = file.compare(begin, index)
            if answer is not None and answer >= 0:
                after = SearchResult(answer, begin, index)
            return answer, index + 1

        _bisect(indices.start, indices.stop, lambda low, high: (low + high) // 2, judge_record)
    if before is not None and after.answer is None:
        return SearchResult(-1, size, 0)
    return after


def _bisect(
    low: int,
    high: int,
    middle: Callable[[int, int], int],
    judge: Callable[[int], tuple[Answer, int]],
) -> None:
    """Judges positions between `low` and `high` until one is equal or all is known.

    Args:
      low: The first position.
      high: Behind the last one.
      middle: A position to judge next.
      judge: The answer for a position, and the next position.
    """
    while low < high:
        first = middle(low, high)
        answer, next_index = judge(first)
        while answer is None and next_index < high:
            answer, next_index = judge(next_index)
        if answer == 0:
            return
        if answer is not None and answer < 0:
            low = max(low + 1, next_index)
        else:
            high = first
