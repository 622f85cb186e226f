"""Batches that come from the workers of a PyTorch loader in shared memory.

PyTorch makes a file of shared memory for each tensor of each batch, copies the tensor there, and
never uses it again: for batches of numbers, that takes longer than all the rest. Here a worker
sends a block of batches in one piece of memory, in which they were made, and uses the piece again
when nobody has any of them any more.
"""

from __future__ import annotations

import collections
import ctypes
import io
import os
import pickle
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from rlds.sources import arrays
from rlds_ecosystem import import_extra

__all__ = ["Batches", "Blocks", "NumberedBatches", "Numbers"]

# The head of a piece of shared memory: its first byte is 1 while the receiver uses the piece.
_HEAD = arrays.ALIGNMENT
# The pieces that a worker reuses, and the pieces of each worker that stay mapped in the receiver.
_MOST_PIECES = 8
# A block of small batches takes no more: containers may have little shared memory.
_BLOCK_BYTES = 1 << 20


class NumberedBatches(Protocol):
    """The batches of a feed by their numbers, see `rlds.feeds.Feed`."""

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None if there is no end."""

    @property
    def block_size(self) -> int:
        """The number of batches that are best made at once."""

    @property
    def batch_bytes(self) -> int:
        """The size of a batch, about."""

    def __getitem__(self, batch: int, /) -> Any:
        """Returns a batch."""

    def block(self, first: int, count: int, begun: int = 0) -> list[Any]:
        """Returns consecutive batches."""

    def iterate(self, start: int = 0) -> Iterator[Any]:
        """Iterates over the batches."""

    def read_ahead(self, batch: int, begun: int = 0) -> int:
        """Prefetches the data of later batches."""

    def start_of(self, start: int | Mapping[str, Any]) -> int:
        """Returns the batch at which a state goes on."""

    def state_dict(self, batch: int) -> dict[str, Any]:
        """Returns the state before a batch."""


class Numbers:
    """The items of a loader, as batch numbers: the first batch of each item, and a count.

    The first items are small, so that they come soon, and so are the last, so that all workers end
    together.

    Args:
      first: The first batch.
      end: The batch after the last one; None for an endless feed.
      max_batches: The largest number of batches in an item.
      workers: The number of workers.

    >>> [*Numbers(3, 10, max_batches=4, workers=1)]
    [(3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1)]
    """

    def __init__(self, first: int, end: int | None, max_batches: int = 1, workers: int = 1) -> None:
        self._first, self._end, self._max_batches, self._workers = first, end, max_batches, workers

    def __iter__(self) -> Iterator[tuple[int, int]]:
        batch = self._first
        while self._end is None or batch < self._end:
            left = batch if self._end is None else self._end - batch
            near = min(batch - self._first, left) // (2 * self._workers)
            count = min(max(near, 1), self._max_batches)
            yield batch, count
            batch += count

    def __len__(self) -> int:
        """The number of batches, by which the length of a loader is counted."""
        if self._end is None:
            raise TypeError("an endless feed has no length")
        return max(self._end - self._first, 0)


class Blocks:
    """Blocks of the batches of a feed, which a worker makes and sends.

    Args:
      feed: The feed.
      convert: Takes each batch; you get what it returns.
    """

    def __init__(self, feed: NumberedBatches, convert: Callable[[Any], Any]) -> None:
        self._feed, self._convert = feed, convert
        self._pieces: list[_Piece] = []
        self._size = self._ahead = 0

    @property
    def max_batches(self) -> int:
        """The number of batches to send at once, for speed."""
        return max(min(self._feed.block_size, _BLOCK_BYTES // self._feed.batch_bytes), 1)

    def __getitem__(self, item: tuple[int, int]) -> _Sent:
        piece = self._piece(self._size)
        with arrays.taken_from(memory := piece.memory()) as size:
            sent = self._sent(piece, memory, self._batches(*item), size)
        self._ahead = self._feed.read_ahead(sum(item), self._ahead)
        return sent

    def _batches(self, first: int, count: int) -> list[Any]:
        """Returns batches; if one of them cannot be made, those before it, and then the error."""
        try:
            return [*map(self._convert, self._feed.block(first, count, self._ahead))]
        except Exception:
            if count == 1:
                raise
        batches = []
        for batch in range(first, first + count):
            try:
                batches.append(self._convert(self._feed[batch]))
            except Exception:
                where = f"in a worker that made batch {batch}"
                return [*batches, _utils().ExceptionWrapper(where=where)]
        return batches

    def _sent(
        self, piece: _Piece, memory: np.ndarray, batches: list[Any], taken: Callable[[], int]
    ) -> _Sent:
        """Returns the message for batches; copies their other arrays to the shared memory."""
        pickled = io.BytesIO()
        buffers: list[pickle.PickleBuffer] = []
        _Pickler(pickled, 5, buffer_callback=buffers.append).dump(batches)
        payloads = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        begin, end = _address(memory), taken()
        spans, to_copy = [], []
        for payload in payloads:
            offset = _address(payload) - begin
            if not 0 <= offset <= len(memory) - len(payload):
                offset = end
                end += arrays.aligned(len(payload))
                to_copy.append((offset, payload))
            spans.append((_HEAD + offset, len(payload)))
        self._size = end
        if end > len(memory):  # So have all parts copied there.
            ends = np.cumsum([0, *(arrays.aligned(len(payload)) for payload in payloads)]).tolist()
            self._size = max(end, ends[-1])  # Parts of one array that was there are aligned, too.
            piece = self._piece(self._size)
            memory = piece.memory()
            to_copy = list(zip(ends, payloads))
            spans = [(_HEAD + offset, len(payload)) for offset, payload in to_copy]
        for offset, payload in to_copy:
            memory[offset : offset + len(payload)] = payload
        piece.give_away()
        return _Sent(piece.tensor, pickled.getvalue(), spans)

    def _piece(self, size: int) -> _Piece:
        """Returns memory that nobody has: some of before, or new memory."""
        free = next((piece for piece in self._pieces if piece.is_free), None)
        if free is not None and free.size >= size:
            return free
        new = _Piece(size + size // 8)
        if free is not None:
            self._pieces.remove(free)
        if len(self._pieces) < _MOST_PIECES:
            self._pieces.append(new)
        return new


class _Piece:
    """Shared memory of a worker.

    Attributes:
      size: The size in bytes.
      tensor: All of it, with its head.
    """

    def __init__(self, size: int) -> None:
        torch = import_extra("torch")
        self.size = size
        self.tensor = torch.zeros(_HEAD + size, dtype=torch.uint8).share_memory_()
        self._head = self.tensor.numpy()[:1]
        self._last: Callable[[], Any] = lambda: None

    def memory(self) -> np.ndarray:
        """Returns the memory, for arrays that refer to it."""
        owner = self.tensor.numpy()
        self._last = weakref.ref(owner)
        return owner[_HEAD:]

    def give_away(self) -> None:
        self._head[0] = 1

    @property
    def is_free(self) -> bool:
        """True if neither a receiver nor a transform still uses the memory."""
        return not self._head[0] and self._last() is None


class _Pickler(pickle.Pickler):
    """Leaves out the contents of tensors and arrays."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and not value.dtype.hasobject and value.flags.c_contiguous:
            memory = arrays.as_bytes(value).data
            return _restored, (pickle.PickleBuffer(memory), value.dtype, value.shape)
        torch = import_extra("torch")
        if type(value) is not torch.Tensor or value.device.type != "cpu":
            return NotImplemented
        if value.layout != torch.strided or value.requires_grad or value.is_quantized:
            return NotImplemented
        plain = value.resolve_conj().resolve_neg().contiguous()
        memory = plain.reshape(-1).view(torch.uint8).numpy().data
        return _restored, (pickle.PickleBuffer(memory), value.dtype, tuple(value.shape))


def _restored(part: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """The array or tensor that is in a part of memory: in a tensor, if that is pinned."""
    torch = import_extra("torch")
    if isinstance(dtype, np.dtype):
        part = part.numpy() if isinstance(part, torch.Tensor) else part
        return np.frombuffer(part, dtype).reshape(shape)
    if not len(part):
        return torch.empty(shape, dtype=dtype)
    if not isinstance(part, torch.Tensor):  # Each gets a storage of its own, which may be saved.
        return torch.frombuffer(part, dtype=dtype).view(shape)
    return part.view(dtype).view(shape)


class _Sent:
    """A block of batches, in the worker."""

    def __init__(self, tensor: Any, content: bytes, byte_ranges: list[tuple[int, int]]) -> None:
        self._arguments = tensor, content, byte_ranges

    def __reduce__(self) -> Any:
        return _Received, self._arguments


class _Received:
    """A block of batches, where it is used.

    Attributes:
      tensor: The memory that it came in.
    """

    def __init__(self, tensor: Any, content: bytes, byte_ranges: list[tuple[int, int]]) -> None:
        self.tensor, self._content, self._byte_ranges = tensor, content, byte_ranges
        owner = tensor.numpy()
        # Each batch in the memory keeps a reference to this object.
        shared_bytes = (ctypes.c_ubyte * len(owner)).from_buffer(owner)
        weakref.finalize(shared_bytes, _give_back, owner, os.getpid()).atexit = False
        self._memory: Any = memoryview(shared_bytes)

    def pin_memory(self) -> _Received:
        """Copies the memory to where a device can get it; called by the loader."""
        self._memory = self.tensor.pin_memory()
        return self

    def batches(self) -> list[Any]:
        """Returns the batches, and perhaps an error after them."""
        parts = [self._memory[begin : begin + size] for begin, size in self._byte_ranges]
        batches: list[Any] = pickle.loads(self._content, buffers=parts)
        return batches


def _give_back(owner: np.ndarray, process: int) -> None:
    """Lets the worker reuse the memory of a block."""
    if os.getpid() == process:  # A forked process must not free the memory.
        owner[0] = 0


def _address(memory: np.ndarray) -> int:
    return int(memory.__array_interface__["data"][0])


def _utils() -> Any:
    return import_extra("torch.utils.data")._utils


class Batches(Iterator[Any]):
    """The batches of a loader.

    Args:
      items: The iterator of the loader itself: over batches, or with workers over blocks of them.
      next_batch: Has the number of the next batch, and is kept up to date.
      workers: The number of workers.
    """

    def __init__(self, items: Iterator[Any], next_batch: list[int], workers: int) -> None:
        self._items, self._next_batch = items, next_batch
        self._ready_batches: collections.deque[Any] = collections.deque()
        # Mapping memory again takes longer than reusing mapped memory.
        self._mapped: collections.deque[Any] = collections.deque(maxlen=workers * _MOST_PIECES)

    def __next__(self) -> Any:
        while not self._ready_batches:
            item = next(self._items)
            if isinstance(item, _Received):
                self._ready_batches.extend(item.batches())
                self._mapped.append(item.tensor)
            else:
                self._ready_batches.append(item)
            del item
        batch = self._ready_batches.popleft()
        if isinstance(batch, _utils().ExceptionWrapper):
            batch.reraise()
        self._next_batch[0] += 1
        return batch
