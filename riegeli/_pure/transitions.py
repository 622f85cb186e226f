"""The state machine of a transposed chunk: its states and the transitions between elements.

The machine goes through the sequence of elements from its end to its begin: so "follows" here
means: stands right before.
"""

from collections.abc import Mapping, Sequence

_MAX_OFFSET = 63
_MAX_REPEATS = 3


def count_followers(sequence: Sequence[int], num_kinds: int) -> list[dict[int, int]]:
    """Counts the followers of each kind of elements, in order of first occurrence.

    Raises:
      IndexError: `sequence` has a kind that is not below `num_kinds`.
    """
    followers: list[dict[int, int]] = [{} for _ in range(num_kinds)]
    for i in range(len(sequence) - 1, 0, -1):
        counts, follower = followers[sequence[i]], sequence[i - 1]
        counts[follower] = counts.get(follower, 0) + 1
    return followers


def encode_transitions(sequence: Sequence[int], ways: Sequence[Mapping[int, bytes]]) -> bytes:
    """The transitions through a sequence of elements.

    Args:
      sequence: The kind of each element.
      ways: For each kind the ways to those that follow it: how far the states on it, the last one
        included, are from the bases of the states before; empty if none of this is to be said.

    Raises:
      LookupError: there is no way between elements that follow each other.
      ValueError: a state is too far from a base.
    """
    for way in (way for of_kind in ways for way in of_kind.values()):
        if way and max(way) > _MAX_OFFSET:
            raise ValueError(f"a state is {max(way)} states from a base, at most 63 can be")
    out = bytearray()
    for i in range(len(sequence) - 1, 0, -1):
        for offset in ways[sequence[i]][sequence[i - 1]]:
            if offset == 0 and out and out[-1] & 3 < _MAX_REPEATS:
                out[-1] += 1
            else:
                out.append(offset << 2)
    return bytes(out)
