# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The hot functions of the format, compiled. What they promise is written in `riegeli/_pure.py`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from riegeli._pure import RIEGELI_KEY

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static const uint64_t HH_INIT0[4] = {0xdbe6d5d5fe4cce2fULL, 0xa4093822299f31d0ULL,
                                         0x13198a2e03707344ULL, 0x243f6a8885a308d3ULL};
    static const uint64_t HH_INIT1[4] = {0x3bd39e10cb0ef593ULL, 0xc0acf169b5f18a8cULL,
                                         0xbe5466cf34e90c6cULL, 0x452821e638d01377ULL};
    """
    const uint64_t HH_INIT0[4]
    const uint64_t HH_INIT1[4]

cdef enum:
    MAX_VARINT_BYTES = 10


cdef struct HighwayState:
    uint64_t v0[4]
    uint64_t v1[4]
    uint64_t mul0[4]
    uint64_t mul1[4]


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    # Byte by byte, so that it is right on any byte order; compilers make it one load.
    return (<uint64_t>p[0] | <uint64_t>p[1] << 8 | <uint64_t>p[2] << 16 | <uint64_t>p[3] << 24
            | <uint64_t>p[4] << 32 | <uint64_t>p[5] << 40 | <uint64_t>p[6] << 48
            | <uint64_t>p[7] << 56)


cdef inline uint64_t swap_halves(uint64_t x) noexcept nogil:
    return x >> 32 | x << 32


cdef inline uint64_t rotate_halves(uint64_t x, uint32_t count) noexcept nogil:
    cdef uint32_t high = <uint32_t>(x >> 32)
    cdef uint32_t low = <uint32_t>x
    high = high << count | high >> (32 - count)
    low = low << count | low >> (32 - count)
    return <uint64_t>high << 32 | low


cdef inline uint64_t only(uint64_t x, int byte) noexcept nogil:
    return x & <uint64_t>0xff << 8 * byte


cdef inline void zipper_merge(const uint64_t* source, uint64_t* target) noexcept nogil:
    # The permutation of `riegeli._pure`, with the bytes that move equally far moved together.
    cdef int pair
    cdef uint64_t a, b
    for pair in range(0, 4, 2):
        a = source[pair]
        b = source[pair + 1]
        target[pair] += (((only(a, 3) | only(b, 4)) >> 24) | ((only(a, 5) | only(b, 6)) >> 16)
                         | only(a, 2) | only(a, 1) << 32 | only(b, 7) >> 8 | a << 56)
        target[pair + 1] += (((only(b, 3) | only(a, 4)) >> 24) | only(b, 5) >> 16
                             | only(b, 2) | only(b, 1) << 24 | only(a, 6) >> 8
                             | only(b, 0) << 48 | only(a, 7))


cdef inline void absorb_lanes(HighwayState* s, const uint64_t* lanes) noexcept nogil:
    cdef int i
    for i in range(4):
        s.v1[i] += s.mul0[i] + lanes[i]
        s.mul0[i] ^= <uint64_t>(<uint32_t>s.v1[i]) * (s.v0[i] >> 32)
        s.v0[i] += s.mul1[i]
        s.mul1[i] ^= <uint64_t>(<uint32_t>s.v0[i]) * (s.v1[i] >> 32)
    zipper_merge(s.v1, s.v0)
    zipper_merge(s.v0, s.v1)


cdef inline void absorb_packet(HighwayState* s, const uint8_t* packet) noexcept nogil:
    cdef uint64_t lanes[4]
    cdef int i
    for i in range(4):
        lanes[i] = load64(packet + 8 * i)
    absorb_lanes(s, lanes)


cdef inline void absorb_remainder(HighwayState* s, const uint8_t* tail, uint32_t size) noexcept nogil:
    cdef uint8_t packet[32]
    cdef uint32_t whole = size & ~<uint32_t>3
    cdef uint32_t rest = size & 3
    cdef int i
    for i in range(4):
        s.v0[i] += (<uint64_t>size << 32) + size
        s.v1[i] = rotate_halves(s.v1[i], size)
    memset(packet, 0, 32)
    memcpy(packet, tail, whole)
    if size >= 16:
        memcpy(packet + 28, tail + size - 4, 4)
    elif rest:
        packet[16] = tail[whole]
        packet[17] = tail[whole + rest // 2]
        packet[18] = tail[whole + rest - 1]
    absorb_packet(s, packet)


cdef uint64_t hash_bytes(HighwayState s, const uint8_t* data, size_t size) noexcept nogil:
    # The state is passed by value, so that it stays in registers: nothing else can point to it.
    cdef uint64_t lanes[4]
    cdef size_t at = 0
    cdef int i
    while size - at >= 32:
        absorb_packet(&s, data + at)
        at += 32
    if at < size:
        absorb_remainder(&s, data + at, <uint32_t>(size - at))
    for i in range(4):
        lanes[0] = swap_halves(s.v0[2])
        lanes[1] = swap_halves(s.v0[3])
        lanes[2] = swap_halves(s.v0[0])
        lanes[3] = swap_halves(s.v0[1])
        absorb_lanes(&s, lanes)
    return s.v0[0] + s.v1[0] + s.mul0[0] + s.mul1[0]


def highway_hash64(data, key=RIEGELI_KEY):
    """HighwayHash-64 of `data`, by default under the key of Riegeli/records files."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef HighwayState s
    cdef size_t size = view.shape[0]
    cdef uint64_t word, result
    cdef int i
    for i in range(4):
        word = key[i]
        s.mul0[i] = HH_INIT0[i]
        s.mul1[i] = HH_INIT1[i]
        s.v0[i] = HH_INIT0[i] ^ word
        s.v1[i] = HH_INIT1[i] ^ swap_halves(word)
    cdef const uint8_t* p = &view[0] if size else NULL
    with nogil:
        result = hash_bytes(s, p, size)
    return result


def encode_varints(values):
    """The minimal base-128 varints of `values` (0 <= value < 2**64), one after the other."""
    cdef list numbers = list(values)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, MAX_VARINT_BYTES * len(numbers))
    cdef uint8_t* begin = <uint8_t*>PyBytes_AS_STRING(out)
    cdef uint8_t* p = begin
    cdef uint64_t value
    for number in numbers:
        value = number
        while value > 0x7f:
            p[0] = <uint8_t>(value & 0x7f | 0x80)
            p += 1
            value >>= 7
        p[0] = <uint8_t>value
        p += 1
    return out[:p - begin]


cdef int read_varint(const uint8_t* p, Py_ssize_t size, uint64_t* value) noexcept nogil:
    """Reads a varint of at most `size` bytes: its length, 0 if cut off, -1 if over 64 bits."""
    cdef int count
    cdef uint64_t result = 0
    for count in range(min(size, <Py_ssize_t>MAX_VARINT_BYTES)):
        result |= <uint64_t>(p[count] & 0x7f) << (7 * count)
        if p[count] < 0x80:
            if count == MAX_VARINT_BYTES - 1 and p[count] > 1:
                return -1
            value[0] = result
            return count + 1
    return 0 if size < MAX_VARINT_BYTES else -1


def split_records(bytes sizes not None, num_records, bytes values not None):
    """Cuts `values` into records, their lengths being the varints in `sizes`."""
    if num_records > len(sizes):
        raise ValueError(f"{num_records} record sizes cannot fit in {len(sizes)} bytes")
    cdef Py_ssize_t count = num_records
    cdef Py_ssize_t index, length
    cdef Py_ssize_t at = 0, begin = 0
    cdef Py_ssize_t sizes_end = len(sizes), values_end = len(values)
    cdef const uint8_t* size_bytes = <const uint8_t*>PyBytes_AS_STRING(sizes)
    cdef const char* value_bytes = PyBytes_AS_STRING(values)
    cdef uint64_t size = 0
    cdef list records = []
    for index in range(count):
        length = read_varint(size_bytes + at, sizes_end - at, &size)
        if length == 0:
            raise ValueError(f"varint at byte {at} is cut off")
        if length < 0:
            raise ValueError(f"varint at byte {at} does not fit 64 bits")
        at += length
        if size > <uint64_t>(values_end - begin):
            raise ValueError(
                f"record {index} ends at byte {begin + int(size)} of {values_end} bytes of values")
        records.append(PyBytes_FromStringAndSize(value_bytes + begin, <Py_ssize_t>size))
        begin += <Py_ssize_t>size
    if at != sizes_end:
        raise ValueError(f"{sizes_end - at} bytes follow the {num_records} record sizes")
    if begin != values_end:
        raise ValueError(f"records take {begin} of {values_end} bytes of values")
    return records
