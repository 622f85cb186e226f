"""Counts and encodes the transitions between the elements of a transposed chunk.

The state machine reads the elements from the last to the first: the follower of an element is the
previous element of the sequence.
"""

from collections.abc import Mapping, Sequence

_MAX_OFFSET = 63
_MAX_REPEATS = 3


def count_followers(sequence: Sequence[int], num_kinds: int) -> list[dict[int, int]]:
    """Counts the followers of each kind of elements, in order of first occurrence.

    Raises:
      IndexError: a kind in `sequence` is not below `num_kinds`.
    """
    followers: list[dict[int, int]] = [{} for _ in range(num_kinds)]
    for i in range(len(sequence) - 1, 0, -1):
        counts, follower = followers[sequence[i]], sequence[i - 1]
        counts[follower] = counts.get(follower, 0) + 1
    return followers


def encode_transitions(sequence: Sequence[int], paths: Sequence[Mapping[int, bytes]]) -> bytes:
    """Encodes the transitions of a sequence of elements.

    Args:
      sequence: The index of the kind of each element.
      paths: For each kind, the path to each follower: the offset of each state on the path from the
        base of the previous state; empty for implicit transitions.

    Raises:
      LookupError: there is no path from an element to its follower.
      ValueError: a state is too far from a base.
    """
    for offsets in (offsets for followers in paths for offsets in followers.values()):
        if offsets and max(offsets) > _MAX_OFFSET:
            raise ValueError(f"a state is {max(offsets)} states from a base, at most 63 can be")
    out = bytearray()
    for i in range(len(sequence) - 1, 0, -1):
        for offset in paths[sequence[i]][sequence[i - 1]]:
            if offset == 0 and out and out[-1] & 3 < _MAX_REPEATS:
                out[-1] += 1
            else:
                out.append(offset << 2)
    return bytes(out)
