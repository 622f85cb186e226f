# cython: language_level=3, wraparound=False, boundscheck=False, cdivision=True
"""The hot functions of feeds, compiled. What they promise is written in `rlds.feeds._pure`."""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

import numpy as np

from rlds.feeds import _pure

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define FETCH_SOON(address) __builtin_prefetch(address)
    #else
    #define FETCH_SOON(address) ((void)(address))
    #endif
    """
    void FETCH_SOON(const void* address) noexcept nogil

# ---------------------------------------------------------------------------
# Rows of bytes
# ---------------------------------------------------------------------------

cdef enum:
    # So many rows are on their way from memory at a time.
    BLOCK = 32


cdef struct Span:
    const uint8_t* begin
    uint64_t size


cdef bint hold(object array, Py_buffer* view, int ndim, Py_ssize_t itemsize, int flags):
    """Takes hold of a contiguous array of signed integers, or of bytes if `itemsize` is 1."""
    cdef const char* kind
    try:
        PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_ND | flags)
    except (BufferError, TypeError, ValueError):
        return False
    kind = view.format
    if (
        view.ndim == ndim
        and view.itemsize == itemsize
        and kind != NULL
        and kind[0] != 0
        and kind[1] == 0
        and (kind[0] == b"B" if itemsize == 1 else kind[0] in (b"i", b"l", b"q"))
        and <uintptr_t>view.buf % <uintptr_t>itemsize == 0
    ):
        return True
    PyBuffer_Release(view)
    return False


@cython.final
cdef class Buffers:
    cdef Py_buffer* views
    cdef Span* spans
    cdef Py_ssize_t count

    def __cinit__(self, buffers):
        cdef list held = [_pure.view_of_bytes(i, buffer) for i, buffer in enumerate(buffers)]
        cdef Py_ssize_t i
        self.views = <Py_buffer*>calloc(len(held) + 1, sizeof(Py_buffer))
        self.spans = <Span*>calloc(len(held) + 1, sizeof(Span))
        if self.views == NULL or self.spans == NULL:
            raise MemoryError
        for i in range(len(held)):
            PyObject_GetBuffer(held[i], &self.views[i], PyBUF_ND)
            self.count += 1
            self.spans[i].begin = <const uint8_t*>self.views[i].buf
            self.spans[i].size = <uint64_t>self.views[i].len

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            PyBuffer_Release(&self.views[i])
        free(self.views)
        free(self.spans)

    def __len__(self):
        return self.count

    def gather(self, numbers, offsets, Py_ssize_t width, out):
        cdef Py_buffer view_of_numbers, view_of_offsets, view_of_out
        cdef int held = 0
        cdef Py_ssize_t outside = 0
        try:
            if hold(numbers, &view_of_numbers, 1, 4, 0):
                held = 1
                if hold(offsets, &view_of_offsets, 1, 8, 0):
                    held = 2
                    if hold(out, &view_of_out, 2, 1, PyBUF_WRITABLE):
                        held = 3
            if (
                held < 3
                or view_of_offsets.shape[0] != view_of_numbers.shape[0]
                or view_of_out.shape[0] != view_of_numbers.shape[0]
                or view_of_out.shape[1] != width
            ):
                _pure.check_gather(numbers, offsets, width, out)
                raise TypeError("numbers, offsets and out are not plain arrays")
            with nogil:
                outside = gather_rows(
                    self.spans,
                    <uint64_t>self.count,
                    <const int32_t*>view_of_numbers.buf,
                    <const int64_t*>view_of_offsets.buf,
                    view_of_numbers.shape[0],
                    <size_t>width,
                    <uint8_t*>view_of_out.buf,
                )
        finally:
            if held > 0:
                PyBuffer_Release(&view_of_numbers)
            if held > 1:
                PyBuffer_Release(&view_of_offsets)
            if held > 2:
                PyBuffer_Release(&view_of_out)
        if outside >= 0:
            sizes = [self.spans[i].size for i in range(self.count)]
            _pure.refuse_row(outside, int(numbers[outside]), int(offsets[outside]), width, sizes)


cdef Py_ssize_t gather_rows(
    const Span* spans,
    uint64_t count,
    const int32_t* numbers,
    const int64_t* offsets,
    Py_ssize_t num_rows,
    size_t width,
    uint8_t* out,
) noexcept nogil:
    """Copies the rows; returns the first one that is not inside its buffer, or -1."""
    cdef const uint8_t* rows[BLOCK]
    cdef Py_ssize_t i, length, first = 0
    cdef uint64_t number, offset, size
    while first < num_rows:
        length = min(<Py_ssize_t>BLOCK, num_rows - first)
        for i in range(length):
            # Negative ones become larger than all that there are.
            number = <uint64_t><int64_t>numbers[first + i]
            offset = <uint64_t>offsets[first + i]
            if number >= count:
                return first + i
            size = spans[number].size
            if width > size or offset > size - width:
                return first + i
            rows[i] = spans[number].begin + offset
            FETCH_SOON(rows[i])
        if width == 4:
            for i in range(length):
                memcpy(out + 4 * i, rows[i], 4)
        elif width == 8:
            for i in range(length):
                memcpy(out + 8 * i, rows[i], 8)
        elif width == 1:
            for i in range(length):
                out[i] = rows[i][0]
        elif width:
            for i in range(length):
                memcpy(out + width * <size_t>i, rows[i], width)
        out += width * <size_t>length
        first += length
    return -1


# ---------------------------------------------------------------------------
# Permutations
# ---------------------------------------------------------------------------

cdef enum:
    ROUNDS = 6


cdef struct Network:
    uint64_t size
    uint64_t count  # How many multiples of `1 << bits` there are.
    uint64_t mask
    uint32_t bits
    uint64_t keys[ROUNDS]


cdef inline uint64_t scramble(uint64_t word) noexcept nogil:
    word = (word ^ word >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    word = (word ^ word >> 27) * <uint64_t>0x94D049BB133111EB
    return word >> 32


cdef inline uint64_t forward(const Network* network, uint64_t word) noexcept nogil:
    cdef uint64_t high = word >> network.bits
    cdef uint64_t low = word & network.mask
    cdef int i
    for i in range(0, ROUNDS, 2):
        high += scramble(low + network.keys[i]) * network.count >> 32
        high = min(high, high - network.count)
        low ^= scramble(high + network.keys[i + 1]) & network.mask
    return high << network.bits | low


cdef inline uint64_t backward(const Network* network, uint64_t word) noexcept nogil:
    cdef uint64_t high = word >> network.bits
    cdef uint64_t low = word & network.mask
    cdef int i
    for i in range(ROUNDS - 2, -2, -2):
        low ^= scramble(high + network.keys[i + 1]) & network.mask
        high -= scramble(low + network.keys[i]) * network.count >> 32
        high = min(high, high + network.count)
    return high << network.bits | low


def permute(positions, size, key):
    return walk(_pure.permute, positions, size, key, False)


def unpermute(positions, size, key):
    return walk(_pure.unpermute, positions, size, key, True)


cdef object walk(object twin, object positions, object size, object key, bint is_inverse):
    cdef Network network
    cdef Py_buffer view_of_positions, view_of_out
    cdef bint inside
    _pure.check_size(size)
    if size <= _pure.MAX_SORTED:
        return twin(positions, size, key)
    network.count, network.bits, keys = _pure.arrange(size, key)
    network.size = size
    network.mask = (<uint64_t>1 << network.bits) - 1
    for i in range(ROUNDS):
        network.keys[i] = keys[i]
    _pure.check_integers("positions", positions, (np.int64,))
    positions = np.require(positions, requirements=("C", "A"))
    out = np.empty(len(positions), np.int64)
    PyObject_GetBuffer(positions, &view_of_positions, PyBUF_ND)
    try:
        PyObject_GetBuffer(out, &view_of_out, PyBUF_ND | PyBUF_WRITABLE)
        with nogil:
            inside = walk_all(
                &network,
                <const uint64_t*>view_of_positions.buf,
                <uint64_t*>view_of_out.buf,
                view_of_positions.shape[0],
                is_inverse,
            )
        PyBuffer_Release(&view_of_out)
    finally:
        PyBuffer_Release(&view_of_positions)
    if not inside:
        _pure.check_positions(positions, size)
    return out


cdef bint walk_all(
    const Network* network,
    const uint64_t* positions,
    uint64_t* out,
    Py_ssize_t length,
    bint is_inverse,
) noexcept nogil:
    """Returns whether all positions are below the size."""
    cdef uint64_t word
    cdef Py_ssize_t i
    for i in range(length):
        word = positions[i]
        if word >= network.size:
            return False
        if is_inverse:
            word = backward(network, word)
            while word >= network.size:
                word = backward(network, word)
        else:
            word = forward(network, word)
            while word >= network.size:
                word = forward(network, word)
        out[i] = word
    return True


# ---------------------------------------------------------------------------
# Hashes
# ---------------------------------------------------------------------------


cdef inline uint64_t mix(uint64_t word) noexcept nogil:
    word = (word ^ word >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    word = (word ^ word >> 27) * <uint64_t>0x94D049BB133111EB
    return word ^ word >> 31


def hash_many(values, key):
    cdef Py_buffer view_of_values, view_of_out
    cdef const uint64_t* words
    cdef uint64_t* hashes
    cdef uint64_t start = mix(<uint64_t>_pure.check_key(key) + <uint64_t>0x9E3779B97F4A7C15)
    cdef Py_ssize_t i, length
    _pure.check_integers("values", values, (np.int64, np.uint64))
    values = np.require(values, requirements=("C", "A"))
    out = np.empty(len(values), np.uint64)
    PyObject_GetBuffer(values, &view_of_values, PyBUF_ND)
    try:
        PyObject_GetBuffer(out, &view_of_out, PyBUF_ND | PyBUF_WRITABLE)
        words = <const uint64_t*>view_of_values.buf
        hashes = <uint64_t*>view_of_out.buf
        length = view_of_values.shape[0]
        with nogil:
            for i in range(length):
                hashes[i] = mix(start + words[i] * <uint64_t>0x9E3779B97F4A7C15)
        PyBuffer_Release(&view_of_out)
    finally:
        PyBuffer_Release(&view_of_values)
    return out
