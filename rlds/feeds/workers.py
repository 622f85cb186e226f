"""Transfer of batches from the workers of a PyTorch loader in reusable shared memory.

PyTorch creates a file of shared memory for each tensor of each batch, copies the tensor there, and
never reuses the file: for numeric batches, this dominates the time. Here a worker sends a block of
batches in one shared buffer, and reuses the buffer when no references to it are left.
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

__all__ = ["BatchIterator", "BlockDataset", "BlockSampler", "NumberedBatches"]

# The header of a shared buffer: its first byte is 1 while the receiver uses the buffer.
_HEADER_BYTES = arrays.ALIGNMENT
# The number of buffers that a worker reuses, and that the receiver keeps mapped for each worker.
_MAX_BUFFERS = 8
# The limit of a block of small batches: containers may have little shared memory.
_MAX_BLOCK_BYTES = 1 << 20


class NumberedBatches(Protocol):
    """The protocol of a feed with batches by index, see `rlds.feeds.Feed`."""

    @property
    def num_batches(self) -> int | None:
        """The number of batches; None for an endless feed."""

    @property
    def block_size(self) -> int:
        """The preferred number of batches in a block."""

    @property
    def batch_bytes(self) -> int:
        """The approximate size of a batch."""

    def __getitem__(self, batch: int, /) -> Any:
        """Returns a batch."""

    def block(self, first_batch: int, count: int, begun: int = 0) -> list[Any]:
        """Returns consecutive batches."""

    def iterate(self, start: int = 0) -> Iterator[Any]:
        """Iterates over the batches."""

    def read_ahead(self, batch: int, begun: int = 0) -> int:
        """Prefetches the data of later batches."""

    def start_of(self, start: int | Mapping[str, Any]) -> int:
        """Returns the batch at which a state resumes."""

    def state_dict(self, batch: int) -> dict[str, Any]:
        """Returns the state before a batch."""


class BlockSampler:
    """A sampler of blocks of batches for a PyTorch loader: (first batch, number of batches).

    The first blocks are small, so they come soon; the last blocks too, so all workers end together.

    Args:
      first: The first batch.
      end: The batch after the last one; None for an endless feed.
      max_batches: The largest number of batches in a block.
      workers: The number of workers.

    >>> [*BlockSampler(3, 10, max_batches=4, workers=1)]
    [(3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1)]
    """

    def __init__(self, first: int, end: int | None, max_batches: int = 1, workers: int = 1) -> None:
        self._first_batch, self._end_batch = first, end
        self._max_batches, self._workers = max_batches, workers

    def __iter__(self) -> Iterator[tuple[int, int]]:
        batch = self._first_batch
        while self._end_batch is None or batch < self._end_batch:
            num_left = batch if self._end_batch is None else self._end_batch - batch
            max_count = min(batch - self._first_batch, num_left) // (2 * self._workers)
            count = min(max(max_count, 1), self._max_batches)
            yield batch, count
            batch += count

    def __len__(self) -> int:
        """Returns the number of batches, which is the length of the loader."""
        if self._end_batch is None:
            raise TypeError("an endless feed has no length")
        return max(self._end_batch - self._first_batch, 0)


class BlockDataset:
    """A map-style dataset of blocks of batches of a feed, which a worker computes and sends.

    Args:
      feed: The feed.
      convert: A function that converts each batch.
    """

    def __init__(self, feed: NumberedBatches, convert: Callable[[Any], Any]) -> None:
        self._feed, self._convert = feed, convert
        self._buffers: list[_Buffer] = []
        self._size = self._prefetch_end = 0

    @property
    def max_batches(self) -> int:
        """The largest number of batches in a block."""
        return max(min(self._feed.block_size, _MAX_BLOCK_BYTES // self._feed.batch_bytes), 1)

    def __getitem__(self, item: tuple[int, int]) -> _SentBlock:
        shared = self._free_buffer(self._size)
        with arrays.allocate_in(memory := shared.memory()) as size:
            message = self._message(shared, memory, self._batches(*item), size)
        self._prefetch_end = self._feed.read_ahead(sum(item), self._prefetch_end)
        return message

    def _batches(self, first_batch: int, count: int) -> list[Any]:
        """Returns converted batches; after an error, the preceding batches and the error."""
        try:
            return [*map(self._convert, self._feed.block(first_batch, count, self._prefetch_end))]
        except Exception:
            if count == 1:
                raise
        batches = []
        for batch in range(first_batch, first_batch + count):
            try:
                batches.append(self._convert(self._feed[batch]))
            except Exception:
                location = f"in the worker of batch {batch}"
                return [*batches, _utils().ExceptionWrapper(where=location)]
        return batches

    def _message(
        self, shared: _Buffer, memory: np.ndarray, batches: list[Any], used_size: Callable[[], int]
    ) -> _SentBlock:
        """Returns the message of a block; copies arrays into shared memory where necessary."""
        pickled = io.BytesIO()
        buffers: list[pickle.PickleBuffer] = []
        _Pickler(pickled, 5, buffer_callback=buffers.append).dump(batches)
        payloads = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        begin, end = _address(memory), used_size()
        spans, to_copy = [], []
        for payload in payloads:
            offset = _address(payload) - begin
            if not 0 <= offset <= len(memory) - len(payload):
                offset = end
                end += arrays.aligned_size(len(payload))
                to_copy.append((offset, payload))
            spans.append((_HEADER_BYTES + offset, len(payload)))
        self._size = end
        if end > len(memory):  # Copy all arrays to a larger buffer.
            offsets = np.cumsum([0, *map(arrays.aligned_size, map(len, payloads))]).tolist()
            self._size = max(end, offsets[-1])  # Copies are aligned, so they may need more space.
            shared = self._free_buffer(self._size)
            memory = shared.memory()
            to_copy = list(zip(offsets, payloads))
            spans = [(_HEADER_BYTES + offset, len(payload)) for offset, payload in to_copy]
        for offset, payload in to_copy:
            memory[offset : offset + len(payload)] = payload
        shared.mark_in_use()
        return _SentBlock(shared.tensor, pickled.getvalue(), spans)

    def _free_buffer(self, size: int) -> _Buffer:
        """Returns an unused shared buffer, or a new one."""
        unused = next((shared for shared in self._buffers if shared.is_free), None)
        if unused is not None and unused.size >= size:
            return unused
        new = _Buffer(size + size // 8)
        if unused is not None:
            self._buffers.remove(unused)
        if len(self._buffers) < _MAX_BUFFERS:
            self._buffers.append(new)
        return new


class _Buffer:
    """A buffer in shared memory, which a worker reuses.

    Attributes:
      size: The size in bytes, without the header.
      tensor: The memory, including the header.
    """

    def __init__(self, size: int) -> None:
        torch = import_extra("torch")
        self.size = size
        self.tensor = torch.zeros(_HEADER_BYTES + size, dtype=torch.uint8).share_memory_()
        self._header = self.tensor.numpy()[:1]
        self._owner: Callable[[], Any] = lambda: None

    def memory(self) -> np.ndarray:
        """Returns the memory without the header; arrays in it keep the buffer in use."""
        owner = self.tensor.numpy()
        self._owner = weakref.ref(owner)
        return owner[_HEADER_BYTES:]

    def mark_in_use(self) -> None:
        self._header[0] = 1

    @property
    def is_free(self) -> bool:
        """True if neither a receiver nor a transform still uses the memory."""
        return not self._header[0] and self._owner() is None


class _Pickler(pickle.Pickler):
    """A pickler that passes the contents of tensors and arrays as out-of-band buffers."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and not value.dtype.hasobject and value.flags.c_contiguous:
            memory = arrays.as_bytes(value).data
            return _restore_array, (pickle.PickleBuffer(memory), value.dtype, value.shape)
        torch = import_extra("torch")
        if type(value) is not torch.Tensor or value.device.type != "cpu":
            return NotImplemented
        if value.layout != torch.strided or value.requires_grad or value.is_quantized:
            return NotImplemented
        contiguous = value.resolve_conj().resolve_neg().contiguous()
        memory = contiguous.reshape(-1).view(torch.uint8).numpy().data
        return _restore_array, (pickle.PickleBuffer(memory), value.dtype, tuple(value.shape))


def _restore_array(memory: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Returns the array or tensor in a range of shared (or pinned) memory."""
    torch = import_extra("torch")
    if isinstance(dtype, np.dtype):
        memory = memory.numpy() if isinstance(memory, torch.Tensor) else memory
        return np.frombuffer(memory, dtype).reshape(shape)
    if not len(memory):
        return torch.empty(shape, dtype=dtype)
    if not isinstance(memory, torch.Tensor):  # Each tensor has its own storage, for `torch.save`.
        return torch.frombuffer(memory, dtype=dtype).view(shape)
    return memory.view(dtype).view(shape)


class _SentBlock:
    """A block of batches, as sent by a worker."""

    def __init__(self, tensor: Any, content: bytes, byte_ranges: list[tuple[int, int]]) -> None:
        self._arguments = tensor, content, byte_ranges

    def __reduce__(self) -> Any:
        return _ReceivedBlock, self._arguments


class _ReceivedBlock:
    """A block of batches, as received by the training process.

    Attributes:
      tensor: The shared memory of the block.
    """

    def __init__(self, tensor: Any, content: bytes, byte_ranges: list[tuple[int, int]]) -> None:
        self.tensor, self._content, self._byte_ranges = tensor, content, byte_ranges
        owner = tensor.numpy()
        # Each batch in this memory keeps a reference to `shared_bytes`.
        shared_bytes = (ctypes.c_ubyte * len(owner)).from_buffer(owner)
        weakref.finalize(shared_bytes, _release, owner, os.getpid()).atexit = False
        self._memory: Any = memoryview(shared_bytes)

    def pin_memory(self) -> _ReceivedBlock:
        """Copies the block to pinned memory; called by the loader."""
        self._memory = self.tensor.pin_memory()
        return self

    def batches(self) -> list[Any]:
        """Returns the batches of the block; the last item may be an error."""
        buffers = [self._memory[begin : begin + size] for begin, size in self._byte_ranges]
        batches: list[Any] = pickle.loads(self._content, buffers=buffers)
        return batches


def _release(owner: np.ndarray, process: int) -> None:
    """Releases the memory of a block for reuse by the worker."""
    if os.getpid() == process:  # A forked process must not free the memory.
        owner[0] = 0


def _address(memory: np.ndarray) -> int:
    return int(memory.__array_interface__["data"][0])


def _utils() -> Any:
    return import_extra("torch.utils.data")._utils


class BatchIterator(Iterator[Any]):
    """An iterator over the batches of a PyTorch loader.

    Args:
      items: The iterator of the loader: over batches, or with workers over blocks of batches.
      next_batch: A list with the index of the next batch, which is updated.
      workers: The number of workers.
    """

    def __init__(self, items: Iterator[Any], next_batch: list[int], workers: int) -> None:
        self._items, self._next_batch = items, next_batch
        self._ready_batches: collections.deque[Any] = collections.deque()
        # Keeping memory mapped is faster than mapping it again.
        self._mapped: collections.deque[Any] = collections.deque(maxlen=workers * _MAX_BUFFERS)

    def __next__(self) -> Any:
        while not self._ready_batches:
            item = next(self._items)
            if isinstance(item, _ReceivedBlock):
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
