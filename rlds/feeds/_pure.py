"""The hot functions of `rlds.feeds` in NumPy: complete and readable.

`rlds.feeds._compiled` has compiled functions of the same names with identical results. This module
is the reference in its tests, and the fallback where the extension is not built.
"""

import errno
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

__all__ = [
    "MAX_SIZE",
    "MAX_SORTED",
    "MAX_STEPS",
    "MAX_STRIDE",
    "Buffers",
    "UnreadableError",
    "check_gather",
    "check_gather_steps",
    "check_integers",
    "check_key",
    "check_positions",
    "check_size",
    "hash_many",
    "locate",
    "permute",
    "refuse_row",
    "refuse_step",
    "unpermute",
    "view_of_bytes",
]

MAX_STEPS = 2**32
"""The largest number of steps of an episode."""

MAX_STRIDE = 2**31 - 1
"""The largest size of a step, in bytes. The offset of any step then fits into 64 bits."""

MAX_SIZE = 2**62
"""The largest number of positions of a permutation."""

MAX_SORTED = 256
"""The largest size of a permutation that sorts hashes: all permutations are equally likely."""

ROUNDS = 6
"""The rounds of the Feistel network. 4 rounds fail statistical tests; 6 rounds pass them."""

# The increment and the multipliers of splitmix64 (Steele, Lea and Flood, 2014).
GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB

_Integers = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

# ---------------------------------------------------------------------------
# Rows of bytes
# ---------------------------------------------------------------------------


class UnreadableError(OSError):
    """A buffer is a mapped file that was truncated, or whose disk fails.

    Only the compiled module raises it; in NumPy, the signal SIGBUS ends the process.

    Attributes:
      buffer_id: The index of the buffer.
      offset: The offset of the first unreadable byte.
    """

    def __init__(self, buffer_id: int, offset: int) -> None:
        super().__init__(errno.EIO, f"byte {offset} of buffer {buffer_id} cannot be read")
        self.buffer_id, self.offset = buffer_id, offset


class Buffers:
    """Buffers of bytes that rows are gathered from.

    >>> buffers = Buffers([np.frombuffer(b"abcdef", np.uint8), np.frombuffer(b"uvwxyz", np.uint8)])
    >>> rows = np.empty((3, 2), np.uint8)
    >>> buffers.gather(np.array([0, 1, 0], np.int32), np.array([4, 0, 1]), 2, rows)
    >>> [bytes(row) for row in rows]
    [b'ef', b'uv', b'bc']

    Args:
      buffers: Contiguous one-dimensional buffers of unsigned bytes, which may be read-only. The
        object references the buffers without a copy.
    """

    def __init__(self, buffers: Sequence[npt.NDArray[np.uint8]]) -> None:
        self._buffers = [np.asarray(view_of_bytes(i, buffer)) for i, buffer in enumerate(buffers)]
        self._sizes = np.array([buffer.size for buffer in self._buffers], np.int64)

    def __len__(self) -> int:
        return len(self._buffers)

    def gather(
        self,
        buffer_ids: npt.NDArray[np.int32],
        offsets: npt.NDArray[np.int64],
        width: int,
        out: npt.NDArray[np.uint8],
    ) -> None:
        """Copies rows of bytes from offsets in buffers.

        The compiled function releases the interpreter lock.

        Args:
          buffer_ids: The index of the buffer of each row.
          offsets: The offset of each row in its buffer.
          width: The number of bytes of a row.
          out: The output array for the rows: writable, of shape `[len(buffer_ids), width]`.

        Raises:
          IndexError: A row is not inside its buffer. `out` may be partly overwritten.
          UnreadableError: A buffer cannot be read any more.
        """
        check_gather(buffer_ids, offsets, width, out)
        is_buffer = (buffer_ids >= 0) & (buffer_ids < len(self))
        sizes = np.zeros(len(buffer_ids), np.int64)
        sizes[is_buffer] = self._sizes[buffer_ids[is_buffer]]
        # The sum of an offset and the width could overflow; this difference cannot.
        outside = ~is_buffer | (offsets < 0) | (offsets > sizes - width)
        if outside.any():
            row = int(outside.argmax())
            refuse_row(row, int(buffer_ids[row]), int(offsets[row]), width, self._sizes.tolist())
        if not out.size:
            return
        item = np.dtype((np.void, width))
        rows = out.view(item)[:, 0]
        order = buffer_ids.argsort(kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(buffer_ids[order])) + 1):
            buffer = self._buffers[buffer_ids[group[0]]]
            # An item begins at each byte, so items overlap, and their indices are byte offsets.
            items: npt.NDArray[np.void] = np.ndarray(
                (buffer.size - width + 1,), item, buffer, strides=(1,)
            )
            rows[group] = items[offsets[group]]

    def gather_steps(
        self,
        buffer_ids: npt.NDArray[np.int32],
        begins: npt.NDArray[np.int64],
        episodes: npt.NDArray[np.int64],
        steps: npt.NDArray[np.int64],
        stride: int,
        width: int,
        out: npt.NDArray[np.uint8],
    ) -> None:
        """Copies rows of bytes: one step of an episode each.

        Equals `gather` with the offsets `begins[episodes] + steps * stride`, without temporary
        arrays. The caller checks that the episode has the step: the bytes after an episode may
        belong to another one.

        >>> buffers = Buffers([np.frombuffer(b"abcdefghijkl", np.uint8)])
        >>> numbers, begins = np.zeros(3, np.int32), np.array([0, 7])
        >>> rows = np.empty((3, 2), np.uint8)
        >>> buffers.gather_steps(
        ...     numbers, begins, np.array([0, 1, 1]), np.array([2, 0, 1]), 2, 2, rows
        ... )
        >>> [bytes(row) for row in rows]
        [b'ef', b'hi', b'jk']

        Args:
          buffer_ids: The index of the buffer of each row.
          begins: The offset of the first step of each episode in its buffer.
          episodes: The episode of each row.
          steps: The step of each row in its episode, below `MAX_STEPS`.
          stride: The bytes between the starts of consecutive steps, at most `MAX_STRIDE`.
          width: The number of bytes of a row.
          out: The output array for the rows: writable, of shape `[len(buffer_ids), width]`.

        Raises:
          IndexError: There is no such episode, or the row is not inside its buffer. `out` may be
            partly overwritten.
          UnreadableError: A buffer cannot be read any more.
        """
        check_gather_steps(buffer_ids, begins, episodes, steps, stride, width, out)
        is_valid = (
            (buffer_ids >= 0)
            & (buffer_ids < len(self))
            & (episodes >= 0)
            & (episodes < len(begins))
        )
        is_valid &= (steps >= 0) & (steps < MAX_STEPS)
        begin, size, offset = (np.zeros(len(buffer_ids), np.int64) for _ in range(3))
        begin[is_valid] = begins[episodes[is_valid]]
        size[is_valid] = self._sizes[buffer_ids[is_valid]]
        inside = is_valid & (begin >= 0) & (begin <= size)
        offset[inside] = begin[inside] + steps[inside] * stride
        inside &= offset <= size - width
        if not inside.all():
            row = int(inside.argmin())
            refuse_step(
                row,
                int(buffer_ids[row]),
                begins,
                int(episodes[row]),
                int(steps[row]),
                stride,
                width,
                self._sizes.tolist(),
            )
        self.gather(buffer_ids, offset, width, out)


def view_of_bytes(buffer_id: int, buffer: Any) -> memoryview:
    """Returns a view of a buffer.

    Raises:
      TypeError: The argument is not a contiguous buffer of unsigned bytes with one axis.
    """
    try:
        view = memoryview(buffer)
    except (TypeError, ValueError, BufferError) as e:
        raise TypeError(f"buffer {buffer_id} is not a buffer of bytes: {e}") from e
    if view.format != "B" or view.ndim != 1 or not view.c_contiguous:
        raise TypeError(
            f"buffer {buffer_id} is not contiguous bytes: it has the format {view.format!r}, the "
            f"shape {view.shape} and the strides {view.strides}, not 'B', (n,) and (1,)"
        )
    return view


def check_gather(buffer_ids: Any, offsets: Any, width: int, out: Any) -> None:
    """Raises an error if an argument of `Buffers.gather` has the wrong type or shape."""
    _check_layouts(("buffer_ids", buffer_ids, np.int32, 1), ("offsets", offsets, np.int64, 1))
    if len(offsets) != len(buffer_ids):
        raise ValueError(f"got {len(buffer_ids)} buffer_ids, but {len(offsets)} offsets")
    _check_out(out, len(buffer_ids), width)


def check_gather_steps(
    buffer_ids: Any, begins: Any, episodes: Any, steps: Any, stride: int, width: int, out: Any
) -> None:
    """Raises an error if an argument of `Buffers.gather_steps` has the wrong type or shape."""
    _check_layouts(
        ("buffer_ids", buffer_ids, np.int32, 1),
        ("begins", begins, np.int64, 1),
        ("episodes", episodes, np.int64, 1),
        ("steps", steps, np.int64, 1),
    )
    if not len(buffer_ids) == len(episodes) == len(steps):
        counts = f"{len(buffer_ids)} buffer_ids, {len(episodes)} episodes and {len(steps)} steps"
        raise ValueError(f"got {counts}, expected equal lengths")
    if not 0 <= stride <= MAX_STRIDE:
        raise ValueError(f"stride must be from 0 to {MAX_STRIDE}, got {stride}")
    _check_out(out, len(buffer_ids), width)


def _check_layouts(*expected: tuple[str, Any, type, int]) -> None:
    for name, array, dtype, ndim in expected:
        _check_array(name, array, (dtype,))
        if array.ndim != ndim or not array.flags.c_contiguous or not array.flags.aligned:
            raise ValueError(
                f"{name} has the shape {array.shape} and the strides {array.strides}, and is not a "
                f"contiguous array with {ndim} {'axis' if ndim == 1 else 'axes'}"
            )


def _check_out(out: Any, num_rows: int, width: int) -> None:
    _check_layouts(("out", out, np.uint8, 2))
    if out.shape != (num_rows, width):
        raise ValueError(f"out has the shape {out.shape}, not {(num_rows, width)}")
    if not out.flags.writeable:
        raise ValueError("out is read-only")


def refuse_row(row: int, buffer_id: int, offset: int, width: int, sizes: Sequence[int]) -> NoReturn:
    """Raises the error of a row that is not inside its buffer."""
    if not 0 <= buffer_id < len(sizes):
        raise IndexError(f"row {row} is in buffer {buffer_id}, but there are {len(sizes)} buffers")
    raise IndexError(
        f"row {row} has {width} bytes from {offset} on in buffer {buffer_id}, which has "
        f"{sizes[buffer_id]}"
    )


def refuse_step(
    row: int,
    buffer_id: int,
    begins: _Integers,
    episode: int,
    step: int,
    stride: int,
    width: int,
    sizes: Sequence[int],
) -> NoReturn:
    """Raises the error of a row that is not a step of an episode, or not inside its buffer."""
    if not (0 <= episode < len(begins) and 0 <= step < MAX_STEPS):
        step_name = f"step {step} of episode {episode}: there are {len(begins)} episodes"
        raise IndexError(f"row {row} is {step_name}, of at most {MAX_STEPS} steps")
    refuse_row(row, buffer_id, int(begins[episode]) + step * stride, width, sizes)


def _check_array(name: str, array: Any, dtypes: Sequence[type]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype not in dtypes:
        kind = f"of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        expected = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        raise TypeError(f"{name} is {kind}, not an array of {expected}")


# ---------------------------------------------------------------------------
# Hashes
# ---------------------------------------------------------------------------


def hash_many(values: npt.NDArray[np.int64] | _Words, key: int) -> _Words:
    """Returns a reproducible pseudorandom hash of 64 bits for each value.

    >>> hash_many(np.array([0, 1]), key=5)
    array([12403000284399229050, 18074882946671919669], dtype=uint64)

    Args:
      values: Integers with one axis. A negative value equals the unsigned value of the same bits.
      key: The key of the hash: 64 bits. Hashes with different keys are independent.
    """
    check_integers("values", values, (np.int64, np.uint64))
    words = values.astype(np.uint64)
    words *= np.uint64(GOLDEN)
    words += np.uint64(_mix(check_key(key)))
    _scramble(words)
    words ^= words >> np.uint64(31)
    return words


def check_key(key: int) -> int:
    """Returns the key.

    Raises:
      ValueError: The key does not fit into 64 bits.
    """
    if not 0 <= operator.index(key) < 2**64:
        raise ValueError(
            f"key must be an integer of 64 bits, got {key}: see rlds.feeds.permutation.key_of"
        )
    return operator.index(key)


def check_integers(name: str, array: Any, dtypes: Sequence[type]) -> None:
    """Raises an error if an argument is not an array of one of these types with one axis."""
    _check_array(name, array, dtypes)
    if array.ndim != 1:
        raise ValueError(f"{name} has the shape {array.shape}, not one axis")


def _scramble(words: _Words) -> None:
    """Mixes the bits of words in place: the upper half then depends on all bits."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(FIRST)
    words ^= words >> np.uint64(27)
    words *= np.uint64(SECOND)


def _mix(word: int) -> int:
    word = (word + GOLDEN) % 2**64
    word = (word ^ word >> 30) * FIRST % 2**64
    word = (word ^ word >> 27) * SECOND % 2**64
    return word ^ word >> 31


# ---------------------------------------------------------------------------
# Permutations
# ---------------------------------------------------------------------------


def permute(positions: _Integers, size: int, key: int) -> _Integers:
    """Applies a pseudorandom permutation of `range(size)` to positions.

    The permutation is a Feistel network, which needs no table: a position is split in two halves,
    and a hash of one half changes the other, which is invertible.

    >>> permute(np.arange(10), 10, key=5)
    array([2, 5, 9, 0, 8, 4, 7, 3, 1, 6])

    Args:
      positions: Positions in `[0, size)`, in any order, with one axis.
      size: The size of the permutation, from 1 to `MAX_SIZE`.
      key: The key of the permutation: 64 bits.

    Raises:
      IndexError: A position is not in `[0, size)`.
    """
    size = check_size(size)
    check_positions(positions, size)
    if size <= MAX_SORTED:
        return _sort_positions(size, key)[positions]
    multiple, bits, keys = _arrange(size, key)
    count, mask = np.uint64(multiple), np.uint64((1 << bits) - 1)

    def apply(x: _Words) -> _Words:
        high, low = x >> np.uint64(bits), x & mask
        for i in range(0, ROUNDS, 2):
            high += _below(low + keys[i], count)
            np.minimum(high, high - count, out=high)  # Modulo: negative differences wrap around.
            low ^= _half(high + keys[i + 1]) & mask
        return high << np.uint64(bits) | low

    return _walk(apply, positions, size)


def unpermute(positions: _Integers, size: int, key: int) -> _Integers:
    """Applies the inverse of `permute` to positions.

    >>> unpermute(permute(np.arange(10), 10, key=5), 10, key=5)
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    size = check_size(size)
    check_positions(positions, size)
    if size <= MAX_SORTED:
        return np.argsort(_sort_positions(size, key))[positions]
    multiple, bits, keys = _arrange(size, key)
    count, mask = np.uint64(multiple), np.uint64((1 << bits) - 1)

    def apply(x: _Words) -> _Words:
        high, low = x >> np.uint64(bits), x & mask
        for i in reversed(range(0, ROUNDS, 2)):
            low ^= _half(high + keys[i + 1]) & mask
            high -= _below(low + keys[i], count)
            np.minimum(high, high + count, out=high)
        return high << np.uint64(bits) | low

    return _walk(apply, positions, size)


def check_size(size: int) -> int:
    """Returns the size.

    Raises:
      ValueError: No permutation has this size.
    """
    if not 1 <= operator.index(size) <= MAX_SIZE:
        raise ValueError(f"the size of a permutation must be from 1 to {MAX_SIZE}, got {size}")
    return operator.index(size)


def check_positions(positions: _Integers, size: int) -> None:
    """Raises an error if positions are not in `[0, size)`."""
    check_integers("positions", positions, (np.int64,))
    if positions.size and (positions.min() < 0 or positions.max() >= size):
        outside = (positions < 0) | (positions >= size)
        raise IndexError(f"position {positions[outside.argmax()]} is not in [0, {size})")


def _sort_positions(size: int, key: int) -> _Integers:
    """Returns a permutation of few positions, sorted by their hashes."""
    return np.argsort(hash_many(np.arange(size, dtype=np.int64), key), kind="stable")


def _arrange(size: int, key: int) -> tuple[int, int, _Words]:
    """Returns the parameters of the network of `permute`, for many positions.

    The halves of a position are its quotient and its remainder by a power of two. The network then
    has few positions beyond `size`.

    Returns:
      The number of quotients, the number of bits of a remainder, and the key of each round.
    """
    bits = (size - 1).bit_length() // 2
    # Permutations of different sizes with the same key are independent.
    seeded = hash_many(np.array([size], np.int64), key)
    keys = hash_many(np.arange(ROUNDS, dtype=np.int64), int(seeded[0]))
    return -(-size >> bits), bits, keys


def _walk(apply: Callable[[_Words], _Words], positions: _Integers, size: int) -> _Integers:
    """Applies a bijection of a larger range repeatedly, until all positions are below `size`.

    This is cycle walking: the result is a bijection of the positions below `size`.
    """
    words = apply(positions.view(np.uint64))
    while (outside := words >= size).any():
        words[outside] = apply(words[outside])
    return words.view(np.int64)


def _half(words: _Words) -> _Words:
    """Returns 32 bits that depend on all bits of each word; overwrites the words."""
    _scramble(words)
    words >>= np.uint64(32)
    return words


def _below(words: _Words, count: np.uint64) -> _Words:
    """Returns integers below `count` that depend on all bits of each word; overwrites the words."""
    halves = _half(words)
    halves *= count
    halves >>= np.uint64(32)
    return halves


# ---------------------------------------------------------------------------
# Episodes
# ---------------------------------------------------------------------------


def locate(samples: _Integers, ends: _Integers) -> _Integers:
    """Returns the episode of each sample.

    Episodes without samples are skipped. The result for a sample after the last end is the number
    of episodes.

    >>> locate(np.array([0, 4, 5, 9]), ends=np.array([5, 5, 9]))
    array([0, 0, 2, 3])

    Args:
      samples: Indices of samples, in any order, with one axis.
      ends: The number of samples up to the end of each episode, in ascending order.
    """
    check_integers("samples", samples, (np.int64,))
    check_integers("ends", ends, (np.int64,))
    return ends.searchsorted(samples, side="right")
