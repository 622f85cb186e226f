# cython: language_level=3, wraparound=False, cdivision=True
"""The hot functions of the format, compiled; `riegeli._pure` documents them."""

from array import array

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from riegeli import _pure
from riegeli._pure import RIEGELI_KEY
from riegeli._pure.elements import Elements
from riegeli._pure.elements import Node as NodeOfElements

# ---------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------


cdef int reserve(void** items, size_t* capacity, size_t count, size_t item_size) except -1 nogil:
    """Extends an array to a capacity of at least `count` items; doubles it at least."""
    cdef size_t new_capacity
    cdef void* new_items
    if count > capacity[0]:
        new_capacity = max(count, 2 * capacity[0], <size_t>64)
        new_items = realloc(items[0], new_capacity * item_size)
        if new_items == NULL:
            return raise_memory_error()
        items[0] = new_items
        capacity[0] = new_capacity
    return 0


cdef int raise_memory_error() except -1 with gil:
    raise MemoryError


cdef int raise_value_error(const char* message, long long a=0, long long b=0) except -1 with gil:
    raise ValueError(message.decode().format(a, b))


@cython.final
cdef class _View:
    """The bytes of a buffer during the lifetime of this object."""

    cdef Py_buffer buffer
    cdef const uint8_t* begin
    cdef Py_ssize_t size

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.buffer, PyBUF_SIMPLE)
        # The address of an empty buffer may be NULL.
        self.begin = <const uint8_t*>self.buffer.buf if self.buffer.len else <const uint8_t*>b""
        self.size = self.buffer.len

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)


# ---------------------------------------------------------------------------
# HighwayHash
# ---------------------------------------------------------------------------

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    static const uint64_t HH_INIT0[4] = {0xdbe6d5d5fe4cce2fULL, 0xa4093822299f31d0ULL,
                                         0x13198a2e03707344ULL, 0x243f6a8885a308d3ULL};
    static const uint64_t HH_INIT1[4] = {0x3bd39e10cb0ef593ULL, 0xc0acf169b5f18a8cULL,
                                         0xbe5466cf34e90c6cULL, 0x452821e638d01377ULL};

    /* All four lanes at once, ten times as fast, on processors with AVX2. */
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>

    static int hh_has_lanes(void) { return __builtin_cpu_supports("avx2"); }

    __attribute__((target("avx2"))) static void hh_absorb_packets(
        uint64_t* v0_lanes, uint64_t* v1_lanes, uint64_t* mul0_lanes, uint64_t* mul1_lanes,
        const uint8_t* packets, size_t count) {
      const __m256i permutation = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7));
      __m256i v0 = _mm256_loadu_si256((const __m256i*)v0_lanes);
      __m256i v1 = _mm256_loadu_si256((const __m256i*)v1_lanes);
      __m256i mul0 = _mm256_loadu_si256((const __m256i*)mul0_lanes);
      __m256i mul1 = _mm256_loadu_si256((const __m256i*)mul1_lanes);
      for (; count > 0; --count, packets += 32) {
        const __m256i packet = _mm256_loadu_si256((const __m256i*)packets);
        v1 = _mm256_add_epi64(v1, _mm256_add_epi64(mul0, packet));
        mul0 = _mm256_xor_si256(mul0, _mm256_mul_epu32(v1, _mm256_srli_epi64(v0, 32)));
        v0 = _mm256_add_epi64(v0, mul1);
        mul1 = _mm256_xor_si256(mul1, _mm256_mul_epu32(v0, _mm256_srli_epi64(v1, 32)));
        v0 = _mm256_add_epi64(v0, _mm256_shuffle_epi8(v1, permutation));
        v1 = _mm256_add_epi64(v1, _mm256_shuffle_epi8(v0, permutation));
      }
      _mm256_storeu_si256((__m256i*)v0_lanes, v0);
      _mm256_storeu_si256((__m256i*)v1_lanes, v1);
      _mm256_storeu_si256((__m256i*)mul0_lanes, mul0);
      _mm256_storeu_si256((__m256i*)mul1_lanes, mul1);
    }
    #else
    static int hh_has_lanes(void) { return 0; }

    static void hh_absorb_packets(uint64_t* v0, uint64_t* v1, uint64_t* mul0, uint64_t* mul1,
                                  const uint8_t* packets, size_t count) {}
    #endif
    """
    const uint64_t HH_INIT0[4]
    const uint64_t HH_INIT1[4]
    bint hh_has_lanes() nogil
    void hh_absorb_packets(uint64_t* v0, uint64_t* v1, uint64_t* mul0, uint64_t* mul1,
                           const uint8_t* packets, size_t count) nogil

cdef enum:
    # The hash of fewer bytes takes less time than acquiring the GIL again.
    MIN_SIZE_WITHOUT_GIL = 1 << 14


cdef struct HighwayState:
    uint64_t v0[4]
    uint64_t v1[4]
    uint64_t mul0[4]
    uint64_t mul1[4]


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    # The result is independent of the byte order; compilers emit a single load.
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


cdef inline uint64_t mask_byte(uint64_t x, int byte) noexcept nogil:
    return x & <uint64_t>0xff << 8 * byte


cdef inline void zipper_merge(const uint64_t* source, uint64_t* target) noexcept nogil:
    # The permutation of `riegeli._pure`; bytes with equal shifts are moved together.
    cdef int pair
    cdef uint64_t a, b
    for pair in range(0, 4, 2):
        a = source[pair]
        b = source[pair + 1]
        target[pair] += (((mask_byte(a, 3) | mask_byte(b, 4)) >> 24) | ((mask_byte(a, 5) | mask_byte(b, 6)) >> 16)
                         | mask_byte(a, 2) | mask_byte(a, 1) << 32 | mask_byte(b, 7) >> 8 | a << 56)
        target[pair + 1] += (((mask_byte(b, 3) | mask_byte(a, 4)) >> 24) | mask_byte(b, 5) >> 16
                             | mask_byte(b, 2) | mask_byte(b, 1) << 24 | mask_byte(a, 6) >> 8
                             | mask_byte(b, 0) << 48 | mask_byte(a, 7))


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


cdef inline void absorb_remainder(
    HighwayState* s, const uint8_t* tail, uint32_t size
) noexcept nogil:
    cdef uint8_t packet[32]
    cdef uint32_t num_aligned = size & ~<uint32_t>3
    cdef uint32_t num_trailing = size & 3
    cdef int i
    for i in range(4):
        s.v0[i] += (<uint64_t>size << 32) + size
        s.v1[i] = rotate_halves(s.v1[i], size)
    memset(packet, 0, 32)
    memcpy(packet, tail, num_aligned)
    if size >= 16:
        memcpy(packet + 28, tail + size - 4, 4)
    elif num_trailing:
        packet[16] = tail[num_aligned]
        packet[17] = tail[num_aligned + num_trailing // 2]
        packet[18] = tail[num_aligned + num_trailing - 1]
    absorb_packet(s, packet)


cdef uint64_t hash_bytes(
    HighwayState s, const uint8_t* data, size_t size, bint use_lanes
) noexcept nogil:
    # The state is passed by value, without other pointers to it, so that it stays in registers.
    cdef uint64_t lanes[4]
    cdef size_t offset = 0
    cdef int i
    if use_lanes:
        offset = size - size % 32
        hh_absorb_packets(s.v0, s.v1, s.mul0, s.mul1, data, offset // 32)
    while size - offset >= 32:
        absorb_packet(&s, data + offset)
        offset += 32
    if offset < size:
        absorb_remainder(&s, data + offset, <uint32_t>(size - offset))
    for i in range(4):
        lanes[0] = swap_halves(s.v0[2])
        lanes[1] = swap_halves(s.v0[3])
        lanes[2] = swap_halves(s.v0[0])
        lanes[3] = swap_halves(s.v0[1])
        absorb_lanes(&s, lanes)
    return s.v0[0] + s.v1[0] + s.mul0[0] + s.mul1[0]


cdef HighwayState initial_state(key):
    cdef HighwayState s
    cdef uint64_t word
    cdef int i
    for i in range(4):
        word = key[i]
        s.mul0[i] = HH_INIT0[i]
        s.mul1[i] = HH_INIT1[i]
        s.v0[i] = HH_INIT0[i] ^ word
        s.v1[i] = HH_INIT1[i] ^ swap_halves(word)
    return s


cdef HighwayState RIEGELI_STATE = initial_state(RIEGELI_KEY)


def highway_hash64(data, key=RIEGELI_KEY, *, bint use_lanes=hh_has_lanes()):
    """Returns HighwayHash-64 of `data`, by default with the key of Riegeli/records files."""
    cdef _View view = _View(data)
    cdef HighwayState s = RIEGELI_STATE if key is RIEGELI_KEY else initial_state(key)
    cdef uint64_t result
    use_lanes = use_lanes and hh_has_lanes()
    if view.size < MIN_SIZE_WITHOUT_GIL:
        return hash_bytes(s, view.begin, view.size, use_lanes)
    with nogil:
        result = hash_bytes(s, view.begin, view.size, use_lanes)
    return result


# ---------------------------------------------------------------------------
# Pieces, and the block headers between them
# ---------------------------------------------------------------------------


cdef struct Span:
    const uint8_t* begin
    size_t size


@cython.final
cdef class _Pieces:
    """The addresses and sizes of buffers. This object keeps the buffers alive."""

    cdef list owners
    cdef Span* spans
    cdef Py_ssize_t count
    cdef size_t size  # The total size.

    def __cinit__(self, pieces):
        cdef _View view
        cdef Span* span
        self.owners = list(pieces)
        self.spans = <Span*>malloc((len(self.owners) + 1) * sizeof(Span))
        if self.spans == NULL:
            raise MemoryError
        for piece in self.owners:
            span = &self.spans[self.count]
            if type(piece) is bytes:
                span[0] = Span(begin=<uint8_t*>PyBytes_AsString(piece), size=len(<bytes>piece))
            else:
                view = _View(piece)
                self.owners[self.count] = view
                span[0] = Span(begin=view.begin, size=view.size)
            self.size += span.size
            self.count += 1

    def __dealloc__(self):
        free(self.spans)

    cdef void copy(self, uint8_t* out) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.count):
            memcpy(out, self.spans[i].begin, self.spans[i].size)
            out += self.spans[i].size


def join(pieces, /):
    """Joins pieces of bytes; a single piece is returned unchanged."""
    if len(pieces) == 1:
        return pieces[0]
    cdef _Pieces sources = _Pieces(pieces)
    cdef bytes content = PyBytes_FromStringAndSize(NULL, sources.size)
    cdef uint8_t* out = <uint8_t*>PyBytes_AsString(content)
    if sources.size < MIN_SIZE_WITHOUT_GIL:
        sources.copy(out)
    else:
        with nogil:
            sources.copy(out)
    return content


cdef enum:
    BLOCK_SIZE = 1 << 16
    BLOCK_HEADER_SIZE = 24

cdef uint64_t MAX_POS = 0xffffffffffffffff


cdef inline void store64(uint8_t* p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <uint8_t>(value >> 8 * i)


cdef void store_block_header(uint8_t* p, uint64_t to_begin, uint64_t to_end) noexcept nogil:
    store64(p + 8, to_begin)
    store64(p + 16, to_end)
    store64(p, hash_bytes(RIEGELI_STATE, p + 8, 16, False))


cdef bint write_chunk(_Pieces pieces, uint8_t* out, uint64_t begin, uint64_t end) noexcept nogil:
    """Writes a chunk with block headers and padding; returns False if it does not fit."""
    cdef uint64_t pos = begin, block_end
    cdef size_t count, used = 0
    cdef Py_ssize_t piece = 0
    while pos < end:
        if pos % BLOCK_SIZE == 0:
            if end - pos < BLOCK_HEADER_SIZE:
                return False
            store_block_header(out + (pos - begin), pos - begin, end - pos)
            pos += BLOCK_HEADER_SIZE
        block_end = min(end, (pos // BLOCK_SIZE + 1) * BLOCK_SIZE)
        while pos < block_end and piece < pieces.count:
            count = min(<size_t>(block_end - pos), pieces.spans[piece].size - used)
            memcpy(out + (pos - begin), pieces.spans[piece].begin + used, count)
            pos += count
            used += count
            if used == pieces.spans[piece].size:
                piece += 1
                used = 0
        memset(out + (pos - begin), 0, <size_t>(block_end - pos))
        pos = block_end
    while piece < pieces.count and pieces.spans[piece].size == 0:
        piece += 1
    return piece == pieces.count and begin <= end


def interleave_block_headers(pieces, begin, end, /):
    """Returns the bytes of a chunk in the file, with block headers and padding."""
    cdef _Pieces sources = _Pieces(pieces)
    cdef uint64_t chunk_begin = begin, chunk_end = end
    cdef bytes content = PyBytes_FromStringAndSize(NULL, max(end - begin, 0))
    cdef uint8_t* out = <uint8_t*>PyBytes_AsString(content)
    cdef bint fits
    with nogil:
        fits = write_chunk(sources, out, chunk_begin, chunk_end)
    if not fits:
        raise ValueError(f"{sources.size} bytes do not fit between bytes {begin} and {end}")
    return content


cdef Py_ssize_t count_block_headers(
    const uint8_t* stored, Py_ssize_t size, uint64_t pos, uint64_t begin, uint64_t end
) noexcept nogil:
    """Returns the number of block headers in file bytes; -1 if they declare another chunk."""
    cdef uint8_t expected[BLOCK_HEADER_SIZE]
    cdef Py_ssize_t count = 0, offset = <Py_ssize_t>((0 - pos) % BLOCK_SIZE)
    while size - offset >= BLOCK_HEADER_SIZE:
        store_block_header(expected, pos + offset - begin, end - (pos + offset))
        if memcmp(stored + offset, expected, BLOCK_HEADER_SIZE) != 0:
            return -1
        count += 1
        offset += BLOCK_SIZE
    return count


cdef void copy_between_block_headers(
    uint8_t* out, const uint8_t* stored, Py_ssize_t size, uint64_t pos
) noexcept nogil:
    cdef Py_ssize_t begin = 0, end = <Py_ssize_t>((0 - pos) % BLOCK_SIZE)
    while begin < size:
        end = min(end, size)
        memcpy(out, stored + begin, end - begin)
        out += end - begin
        begin = end + BLOCK_HEADER_SIZE
        end += BLOCK_SIZE


def strip_block_headers(stored, pos, begin, end, /):
    """Removes the block headers from file bytes of a chunk."""
    cdef _View view = _View(stored)
    cdef uint64_t first = pos, chunk_begin = begin, chunk_end = min(end, MAX_POS)
    cdef Py_ssize_t size = view.size, count, to_block = <Py_ssize_t>(-first % BLOCK_SIZE)
    if size <= to_block:
        return memoryview(stored)
    with nogil:
        count = count_block_headers(view.begin, size, first, chunk_begin, chunk_end)
    if count < 0 or (count and end > MAX_POS):
        return None
    # A partial block header at the end is removed, too.
    if (size - to_block) % BLOCK_SIZE < BLOCK_HEADER_SIZE:
        size -= (size - to_block) % BLOCK_SIZE
    cdef bytes content = PyBytes_FromStringAndSize(NULL, size - count * BLOCK_HEADER_SIZE)
    cdef uint8_t* out = <uint8_t*>PyBytes_AsString(content)
    with nogil:
        copy_between_block_headers(out, view.begin, size, first)
    return content


# ---------------------------------------------------------------------------
# Varints
# ---------------------------------------------------------------------------

cdef enum:
    MAX_VARINT_BYTES = 10


cdef inline int write_varint(uint8_t* p, uint64_t value) noexcept nogil:
    """Writes a varint, and returns its size."""
    cdef int size = 0
    while value > 0x7f:
        p[size] = <uint8_t>(value & 0x7f | 0x80)
        size += 1
        value >>= 7
    p[size] = <uint8_t>value
    return size + 1


cdef inline Py_ssize_t find_varint(
    const uint8_t* begin, Py_ssize_t offset, Py_ssize_t end, uint64_t* value
) except -1 nogil:
    """Reads the varint at an offset, and returns the offset after it."""
    cdef int count
    cdef uint64_t result = 0
    cdef uint8_t byte
    if offset < end and begin[offset] < 0x80:
        value[0] = begin[offset]
        return offset + 1
    for count in range(MAX_VARINT_BYTES):
        if offset + count >= end:
            return raise_value_error(b"varint at byte {0} is cut off", offset)
        byte = begin[offset + count]
        result |= <uint64_t>(byte & 0x7f) << (7 * count)
        if byte < 0x80:
            if count == MAX_VARINT_BYTES - 1 and byte > 1:
                break
            value[0] = result
            return offset + count + 1
    return raise_value_error(b"varint at byte {0} does not fit 64 bits", offset)


def encode_varints(values):
    """Encodes `values` (0 <= value < 2**64) as minimal base-128 varints."""
    cdef list items = list(values)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, MAX_VARINT_BYTES * len(items))
    cdef uint8_t* begin = <uint8_t*>PyBytes_AsString(out)
    cdef uint8_t* p = begin
    for value in items:
        p += write_varint(p, value)
    return out[:p - begin]


def read_varint(data, Py_ssize_t begin):
    """Reads one varint; returns its value and the offset after it."""
    cdef _View view = _View(data)
    cdef uint64_t value = 0
    if begin < 0:
        raise ValueError(f"no varint can be at byte {begin}")
    begin = find_varint(view.begin, begin, view.size, &value)
    return value, begin


def read_varints(data, Py_ssize_t begin, count):
    """Reads `count` varints; returns their values and the offset after them."""
    cdef _View view = _View(data)
    cdef uint64_t value = 0
    cdef list values = []
    if begin < 0:
        raise ValueError(f"no varint can be at byte {begin}")
    for _ in range(count):
        begin = find_varint(view.begin, begin, view.size, &value)
        values.append(value)
    return values, begin


def split_records(sizes, num_records, values):
    """Splits `values` into records, whose lengths are the varints in `sizes`."""
    cdef _View size_view = _View(sizes)
    cdef _View value_view = _View(values)
    if num_records > size_view.size:
        raise ValueError(f"{num_records} record sizes cannot fit in {size_view.size} bytes")
    cdef Py_ssize_t index, count = num_records
    cdef Py_ssize_t offset = 0, begin = 0
    cdef uint64_t size = 0
    cdef list records = []
    for index in range(count):
        offset = find_varint(size_view.begin, offset, size_view.size, &size)
        if size > <uint64_t>(value_view.size - begin):
            raise ValueError(
                f"record {index} ends at byte {begin + int(size)} of {value_view.size} bytes "
                "of values")
        records.append(
            PyBytes_FromStringAndSize(<const char*>value_view.begin + begin, <Py_ssize_t>size))
        begin += <Py_ssize_t>size
    if offset != size_view.size:
        raise ValueError(f"{size_view.size - offset} bytes follow the {num_records} record sizes")
    if begin != value_view.size:
        raise ValueError(f"records take {begin} of {value_view.size} bytes of values")
    return records


# ---------------------------------------------------------------------------
# The machine of a transposed chunk
# ---------------------------------------------------------------------------

cdef enum:
    # The bytes of one memory write; the buffer has as much free space in front of the output.
    WORD = 8

    VARINT = 0
    FIXED64 = 1
    LENGTH = 2
    GROUP_BEGIN = 3
    GROUP_END = 4
    FIXED32 = 5
    SUBMESSAGE_END = 6

    INLINE_VARINT = 10
    MAX_SUBTYPE = 137

    MAX_NESTING = 1 << 16

    FREE_STEPS = 1 << 20
    STEPS_FOR_EACH = 16

cdef enum Action:
    # The first four are also tags of states.
    DO_NOTHING
    WRITE_WHOLE_RECORD
    BEGIN_SUBMESSAGE
    BEGIN_RECORD
    END_SUBMESSAGE
    WRITE_FIELD
    WRITE_VARINT
    WRITE_FIXED
    WRITE_WITH_LENGTH

cdef extern from *:
    """
    #define MAX_SIZE ((size_t)(PY_SSIZE_T_MAX / 4))
    """
    const size_t MAX_SIZE

cdef int64_t MAX_UINT32 = 0xffffffff


cdef struct State:
    uint8_t field[WORD]  # The constant output of the state, in the last `field_size` bytes.
    uint8_t field_size
    uint8_t value_size
    uint8_t action
    uint8_t implicit
    uint32_t base
    uint32_t buffer


cdef struct Buffer:
    const uint8_t* begin
    Py_ssize_t used
    Py_ssize_t size


cdef struct OpenSubmessage:
    size_t end  # The number of bytes after the end of the message.
    const State* state


cdef bint init_state(State* s, int64_t tag, int64_t subtype) noexcept nogil:
    """Sets the action of a state; returns False if the state is invalid."""
    cdef int64_t wire_type = tag & 7
    if 0 <= tag <= BEGIN_RECORD:
        s.action = <uint8_t>tag
        return True
    if not 8 <= tag <= MAX_UINT32:
        return False
    if wire_type == VARINT:
        if not 0 <= subtype <= MAX_SUBTYPE:
            return False
        s.action = WRITE_VARINT if subtype < INLINE_VARINT else WRITE_FIELD
        s.value_size = <uint8_t>(subtype + 1)
    elif wire_type == FIXED64 or wire_type == FIXED32:
        s.action = WRITE_FIXED
        s.value_size = 8 if wire_type == FIXED64 else 4
    elif wire_type == LENGTH:
        s.action = WRITE_WITH_LENGTH
    elif wire_type == GROUP_BEGIN or wire_type == GROUP_END:
        s.action = WRITE_FIELD
    elif wire_type == SUBMESSAGE_END:
        s.action = END_SUBMESSAGE
        tag += LENGTH - SUBMESSAGE_END
    else:
        return False
    cdef uint8_t field[WORD]
    s.field_size = <uint8_t>write_varint(field, <uint64_t>tag)
    if wire_type == VARINT and subtype >= INLINE_VARINT:
        field[s.field_size] = <uint8_t>(subtype - INLINE_VARINT)
        s.field_size += 1
    memcpy(s.field + WORD - s.field_size, field, s.field_size)
    return True


cdef inline bint has_buffer(const State* s) noexcept nogil:
    return (s.action == WRITE_WHOLE_RECORD or s.action == WRITE_VARINT
            or s.action == WRITE_FIXED or s.action == WRITE_WITH_LENGTH)


cdef inline const uint8_t* take(
    Buffer* buffer, uint64_t count, Py_ssize_t index
) except NULL nogil:
    """Returns the next `count` bytes of a buffer."""
    cdef const uint8_t* value = buffer.begin + buffer.used
    if count > <uint64_t>(buffer.size - buffer.used):
        raise_value_error(b"buffer {0} ends before its last value", index)
        return NULL
    buffer.used += <Py_ssize_t>count
    return value


cdef inline Py_ssize_t find_length(
    const Buffer* buffer, Py_ssize_t index, uint64_t* length
) except -1 nogil:
    """Reads the next length in a buffer, and returns the offset after it."""
    cdef Py_ssize_t end = find_varint(buffer.begin, buffer.used, buffer.size, length)
    if length[0] > <uint64_t>MAX_UINT32:
        return raise_length_error(index, length[0])
    return end


cdef int raise_length_error(Py_ssize_t index, uint64_t length) except -1 with gil:
    raise ValueError(f"buffer {index} has a value of {length} bytes")


cdef int raise_transition_error(
    Py_ssize_t offset, Py_ssize_t state, Py_ssize_t num_states
) except -1 with gil:
    raise ValueError(f"transition {offset} leads to state {state} of {num_states}")


@cython.final
cdef class _Run:
    """The states and buffers of a machine, and its output: the last bytes before `end`."""

    cdef State* states
    cdef Py_ssize_t num_states
    cdef list views
    cdef Buffer* buffers
    cdef Py_ssize_t num_buffers

    cdef uint8_t* memory
    cdef uint8_t* floor  # The limit of writing; in front of it, a word is free.
    cdef uint8_t* front
    cdef uint8_t* end
    cdef size_t size
    cdef size_t available  # Four times the number of input bytes.

    cdef size_t* record_begins  # Counted in bytes from the end of the chunk.
    cdef size_t num_begun
    cdef size_t begins_capacity
    cdef size_t num_records

    cdef OpenSubmessage* submessages
    cdef size_t submessages_capacity

    def __dealloc__(self):
        free(self.states)
        free(self.buffers)
        free(self.memory)
        free(self.record_begins)
        free(self.submessages)

    cdef int set_buffers(self, buffers) except -1:
        cdef Py_ssize_t index
        cdef _View view
        self.views = [_View(buffer) for buffer in buffers]
        self.num_buffers = len(self.views)
        self.buffers = <Buffer*>calloc(self.num_buffers + 1, sizeof(Buffer))
        if self.buffers == NULL:
            raise MemoryError
        for index in range(self.num_buffers):
            view = self.views[index]
            self.buffers[index] = Buffer(begin=view.begin, used=0, size=view.size)
            self.available += 4 * <size_t>view.size
        return 0

    cdef int set_states(self, states, first) except -1:
        tags, bases, implicit, subtypes, buffer_of = states
        cdef Py_ssize_t index
        cdef int64_t tag, base, subtype, buffer
        cdef State* s
        self.num_states = len(tags)
        if self.num_states > MAX_UINT32:
            raise ValueError(f"{self.num_states} states are too many")
        if not len(bases) == len(implicit) == len(subtypes) == len(buffer_of) == self.num_states:
            raise ValueError("some states are not complete")
        if not 0 <= first < self.num_states:
            raise ValueError(f"the first state is {first} of {self.num_states}")
        self.states = <State*>calloc(self.num_states + 1, sizeof(State))
        if self.states == NULL:
            raise MemoryError
        for index in range(self.num_states):
            tag, base = tags[index], bases[index]
            subtype, buffer = subtypes[index], buffer_of[index]
            s = &self.states[index]
            if not (
                init_state(s, tag, subtype)
                and (not has_buffer(s) or 0 <= buffer < self.num_buffers)
                and 0 <= base < self.num_states
            ):
                raise ValueError(
                    f"state {index} cannot be: tag {tag}, subtype {subtype}, buffer {buffer} of "
                    f"{self.num_buffers}, base {base} of {self.num_states}")
            s.base = <uint32_t>base
            s.implicit = bool(implicit[index])
            s.buffer = <uint32_t>buffer if has_buffer(s) else 0
        self.check_no_implicit_cycle()
        return 0

    cdef int check_no_implicit_cycle(self) except -1:
        """Checks that implicit states form no cycle."""
        cdef Py_ssize_t start, state
        cdef uint32_t* seen_from = <uint32_t*>calloc(self.num_states + 1, sizeof(uint32_t))
        if seen_from == NULL:
            raise MemoryError
        try:
            for start in range(self.num_states):
                state = start
                while self.states[state].implicit and not seen_from[state]:
                    seen_from[state] = <uint32_t>(start + 1)
                    state = self.states[state].base
                if self.states[state].implicit and seen_from[state] == <uint32_t>(start + 1):
                    raise ValueError(f"state {state} leads back to itself for ever")
        finally:
            free(seen_from)
        return 0

    cdef uint8_t* make_room(self, uint8_t* front, size_t count) except NULL nogil:
        """Moves the output from `front` on, so that `count` bytes fit in front of it.

        The memory is limited to twice the output or four times the input, because the size that the
        chunk declares may be wrong.
        """
        cdef size_t written = self.end - front
        cdef size_t capacity = 2 * <size_t>(self.end - self.floor)
        cdef uint8_t* memory
        if count > self.size - written:
            raise_value_error(b"the records have more than {0} bytes", <long long>self.size)
            return NULL
        capacity = min(self.size, max(capacity, max(written + count, self.available)))
        memory = <uint8_t*>malloc(WORD + capacity)
        if memory == NULL:
            raise_memory_error()
            return NULL
        if written:
            memcpy(memory + WORD + capacity - written, front, written)
        free(self.memory)
        self.memory = memory
        self.floor = memory + WORD
        self.end = self.floor + capacity
        return self.end - written

    cdef inline uint8_t* ensure_room(self, uint8_t* front, size_t count) except NULL nogil:
        if <size_t>(front - self.floor) < count:
            return self.make_room(front, count)
        return front

    cdef inline int begin_record(self, const uint8_t* front, size_t depth) except -1 nogil:
        if depth:
            return raise_value_error(b"a record begins inside a submessage")
        if self.num_begun == self.num_records:
            return raise_value_error(b"there are more than {0} records", <long long>self.num_records)
        reserve(<void**>&self.record_begins, &self.begins_capacity, self.num_begun + 1,
                sizeof(size_t))
        self.record_begins[self.num_begun] = self.end - front
        self.num_begun += 1
        return 0

    cdef int run(
        self, Py_ssize_t state, const uint8_t* transitions, Py_ssize_t num_transitions
    ) except -1 nogil:
        """Runs the machine until the transitions end."""
        cdef uint64_t steps = 0, max_steps = 0
        cdef Buffer* last_buffer = &self.buffers[max(self.num_buffers - 1, <Py_ssize_t>0)]
        cdef Buffer* buffer
        cdef const State* s
        cdef const State* written
        cdef const uint8_t* value
        cdef Py_ssize_t offset = 0, length_end
        cdef int repeats = 0, i
        cdef uint64_t length = 0
        cdef size_t count, depth = 0
        cdef uint8_t varint[MAX_VARINT_BYTES]
        cdef uint8_t* front = self.make_room(NULL, 0)
        while True:
            if steps > max_steps:
                max_steps = FREE_STEPS + STEPS_FOR_EACH * (
                    <size_t>self.num_states + <size_t>(self.end - front) + self.num_begun)
                if steps > max_steps:
                    return raise_value_error(b"the machine runs on without writing anything")
            steps += 1
            s = written = &self.states[state]
            buffer = &self.buffers[s.buffer]
            if s.action == WRITE_VARINT:
                count = s.value_size
                value = take(buffer, count, s.buffer)
                front = self.ensure_room(front, count + s.field_size) - count
                for i in range(s.value_size - 1):
                    front[i] = value[i] | 0x80
                front[count - 1] = value[count - 1]
            elif s.action == WRITE_FIXED:
                count = s.value_size
                value = take(buffer, count, s.buffer)
                front = self.ensure_room(front, count + s.field_size) - count
                if count == 4:
                    memcpy(front, value, 4)
                else:
                    memcpy(front, value, 8)
            elif s.action == WRITE_WITH_LENGTH:
                length_end = find_length(buffer, s.buffer, &length)
                value = take(buffer, length_end - buffer.used, s.buffer)
                take(buffer, length, s.buffer)
                count = buffer.begin + buffer.used - value
                front = self.ensure_room(front, count + s.field_size) - count
                memcpy(front, value, count)
            elif s.action == BEGIN_SUBMESSAGE:
                if depth == 0:
                    return raise_value_error(b"a submessage has a begin, but no end")
                depth -= 1
                length = <size_t>(self.end - front) - self.submessages[depth].end
                if length > <uint64_t>MAX_UINT32:
                    return raise_value_error(b"a submessage has {0} bytes", <long long>length)
                written = self.submessages[depth].state
                count = write_varint(varint, length)
                front = self.ensure_room(front, count + written.field_size) - count
                memcpy(front, varint, count)
            elif s.action == END_SUBMESSAGE:
                if depth == MAX_NESTING:
                    return raise_value_error(b"there are more than {0} messages inside each other", depth)
                reserve(<void**>&self.submessages, &self.submessages_capacity, depth + 1,
                        sizeof(OpenSubmessage))
                self.submessages[depth] = OpenSubmessage(end=self.end - front, state=s)
                depth += 1
            elif s.action == BEGIN_RECORD:
                self.begin_record(front, depth)
            elif s.action == WRITE_FIELD:
                front = self.ensure_room(front, s.field_size)
            elif s.action == WRITE_WHOLE_RECORD:
                length_end = find_length(last_buffer, self.num_buffers - 1, &length)
                last_buffer.used = length_end
                value = take(buffer, length, s.buffer)
                front = self.ensure_room(front, <size_t>length) - length
                memcpy(front, value, <size_t>length)
                self.begin_record(front, depth)

            if s.action != END_SUBMESSAGE:
                memcpy(front - WORD, written.field, WORD)
                front -= written.field_size
            if s.implicit:
                state = s.base
            elif repeats:
                repeats -= 1
                state = s.base
            elif offset == num_transitions:
                break
            else:
                state = s.base + (transitions[offset] >> 2)
                repeats = transitions[offset] & 3
                offset += 1
                if state >= self.num_states:
                    return raise_transition_error(offset - 1, state, self.num_states)
        if depth:
            return raise_value_error(b"a submessage has an end, but no begin")
        self.front = front
        return 0

    cdef list records(self, num_records, size):
        """Returns the records, after the end of the machine."""
        cdef size_t written = self.end - self.front
        cdef size_t end = 0, begin
        cdef Py_ssize_t index = self.num_begun
        if self.num_begun != num_records:
            raise ValueError(f"the machine ends after {self.num_begun} of {num_records} records")
        if written != (self.record_begins[self.num_begun - 1] if self.num_begun else 0):
            raise ValueError("something is written before the first record")
        if written != size:
            raise ValueError(f"the records have {written} bytes, not {size}")
        cdef list records = [None] * index
        for begin in self.record_begins[:self.num_begun]:
            index -= 1
            records[index] = PyBytes_FromStringAndSize(<char*>self.end - begin, begin - end)
            end = begin
        return records


def run_machine(states, first, buffers, transitions, num_records, size, scope=True):
    """Restores the records of a transposed chunk backwards, from the end of the last record."""
    if scope is not True:
        return _pure.run_machine(states, first, buffers, transitions, num_records, size, scope)
    cdef _Run run = _Run()
    cdef _View view = _View(transitions)
    if num_records < 0 or size < 0:
        raise ValueError(f"there cannot be {num_records} records of {size} bytes")
    # Records with larger values would not fit in memory.
    run.num_records = min(num_records, MAX_SIZE)
    run.size = min(size, MAX_SIZE)
    run.available = 4 * <size_t>view.size
    run.set_buffers(buffers)
    run.set_states(states, first)
    cdef Py_ssize_t first_state = first
    with nogil:
        run.run(first_state, view.begin, view.size)
    return run.records(num_records, size)


# ---------------------------------------------------------------------------
# Splitting records
# ---------------------------------------------------------------------------


cdef uint64_t HASH_FACTOR = 0x9e3779b97f4a7c15ULL


@cython.final
cdef class _Pairs:
    """Distinct pairs of 32-bit integers, indexed in the order of their first occurrence."""

    cdef uint64_t* pairs
    cdef size_t capacity
    cdef Py_ssize_t count
    cdef uint32_t* slots  # Open addressing: the index of a pair plus 1; 0 for an empty slot.
    cdef size_t num_slots  # A power of 2.

    def __dealloc__(self):
        free(self.pairs)
        free(self.slots)

    cdef inline size_t find_slot(self, uint64_t pair) noexcept nogil:
        """Returns the slot of a pair, or the empty slot for a new pair."""
        cdef size_t slot = ((pair ^ pair >> 32) * HASH_FACTOR >> 32) & (self.num_slots - 1)
        while self.slots[slot] and self.pairs[self.slots[slot] - 1] != pair:
            slot = (slot + 1) & (self.num_slots - 1)
        return slot

    cdef inline Py_ssize_t find(self, uint32_t first, uint32_t second) noexcept nogil:
        """Returns the index of a pair; -1 if it is new."""
        if self.count == 0:
            return -1
        return <Py_ssize_t>self.slots[self.find_slot(<uint64_t>first << 32 | second)] - 1

    cdef inline Py_ssize_t find_or_add(self, uint32_t first, uint32_t second) except -1 nogil:
        """Returns the index of a pair; appends a new pair."""
        cdef Py_ssize_t index = self.find(first, second)
        return index if index >= 0 else self.add(<uint64_t>first << 32 | second)

    cdef Py_ssize_t add(self, uint64_t pair) except -1 nogil:
        if <size_t>self.count >= self.num_slots // 2:
            self.grow()
        reserve(<void**>&self.pairs, &self.capacity, self.count + 1, sizeof(uint64_t))
        self.pairs[self.count] = pair
        self.slots[self.find_slot(pair)] = <uint32_t>(self.count + 1)
        self.count += 1
        return self.count - 1

    cdef int grow(self) except -1 nogil:
        cdef Py_ssize_t index
        free(self.slots)
        self.num_slots = max(4 * self.num_slots, <size_t>256)
        self.slots = <uint32_t*>calloc(self.num_slots, sizeof(uint32_t))
        if self.slots == NULL:
            self.count = 0
            return raise_memory_error()
        for index in range(self.count):
            self.slots[self.find_slot(self.pairs[index])] = <uint32_t>(index + 1)
        return 0


cdef enum:
    MAX_DEPTH = 100
    MAX_INLINED_VALUE = 3

    # IDs of messages.
    WHOLE_RECORDS = 1
    RECORDS = 3
    ROOT = 4
    FIRST_MESSAGE = 5

    # The kinds of elements of a field: subtypes of varints, or the kinds below.
    MAX_FIELD_KINDS = 14
    ONLY_KIND = 0
    BEGIN_KIND = 1
    END_KIND = 2


cdef struct Node:
    uint32_t tag
    int32_t kinds[MAX_FIELD_KINDS]  # The index in the elements plus 1, by field kind; 0 if unseen.
    size_t size  # The size of the buffer.
    uint8_t* front


cdef struct Kind:
    uint32_t node
    uint32_t tag
    uint32_t subtype


cdef struct Value:
    const uint8_t* begin
    size_t size
    size_t node


cdef inline const uint8_t* skip_minimal_varint(
    const uint8_t* p, const uint8_t* end, uint64_t* value
) noexcept nogil:
    """Reads a varint, and returns its end; NULL if it is damaged or not minimal."""
    cdef uint64_t result = 0
    cdef int count
    if p < end and p[0] < 0x80:
        value[0] = p[0]
        return p + 1
    for count in range(MAX_VARINT_BYTES):
        if p + count == end:
            return NULL
        result |= <uint64_t>(p[count] & 0x7f) << (7 * count)
        if p[count] < 0x80:
            if p[count] == 0 or (count == MAX_VARINT_BYTES - 1 and p[count] > 1):
                return NULL
            value[0] = result
            return p + count + 1
    return NULL


@cython.final
cdef class _Splitter:
    """The nodes, elements and values of the records up to now."""

    cdef _Pairs pairs  # The parents and tags of nodes.
    cdef Node* nodes
    cdef size_t nodes_capacity

    cdef Kind* kinds
    cdef size_t num_kinds, kinds_capacity

    cdef uint32_t* sequence
    cdef size_t num_elements, sequence_capacity

    cdef Value* values
    cdef size_t num_values, values_capacity

    # A stack: the parents of the open groups, and on top of them, while `has_fields` checks a
    # message, the field numbers of its open groups.
    cdef uint32_t* groups
    cdef size_t num_groups, groups_capacity

    def __cinit__(self):
        self.pairs = _Pairs()

    def __dealloc__(self):
        free(self.nodes)
        free(self.kinds)
        free(self.sequence)
        free(self.values)
        free(self.groups)

    cdef int add_record(self, Span record) except -1 nogil:
        cdef size_t node
        if self.is_message(record.begin, record.begin + record.size):
            self.add_element(self.node(RECORDS, 0), ONLY_KIND, BEGIN_RECORD, 0)
            self.add_fields(record.begin, record.begin + record.size, ROOT, 0)
        else:
            node = self.node(WHOLE_RECORDS, 0)
            self.add_element(node, ONLY_KIND, WRITE_WHOLE_RECORD, 0)
            self.add_value(node, record.begin, record.size)
        return 0

    cdef bint is_message(self, const uint8_t* p, const uint8_t* end) except -1 nogil:
        """Returns whether bytes are a minimally encoded proto message."""
        cdef size_t outer_groups = self.num_groups
        cdef bint is_message = self.has_fields(p, end)
        is_message = is_message and self.num_groups == outer_groups
        self.num_groups = outer_groups
        return is_message

    cdef bint has_fields(self, const uint8_t* p, const uint8_t* end) except -1 nogil:
        cdef size_t outer_groups = self.num_groups
        cdef uint64_t tag = 0, value = 0
        cdef uint32_t wire_type
        while p < end:
            p = skip_minimal_varint(p, end, &tag)
            if p == NULL or tag < 8 or tag >> 32:
                return False
            wire_type = tag & 7
            value = 0
            if wire_type == VARINT:
                p = skip_minimal_varint(p, end, &value)
                if p == NULL:
                    return False
                continue
            elif wire_type == LENGTH:
                p = skip_minimal_varint(p, end, &value)
                if p == NULL or value >> 32:
                    return False
            elif wire_type == FIXED32:
                value = 4
            elif wire_type == FIXED64:
                value = 8
            elif wire_type == GROUP_BEGIN:
                self.push_group(tag >> 3)
            elif wire_type == GROUP_END:
                if self.num_groups == outer_groups or self.pop_group() != tag >> 3:
                    return False
            else:
                return False
            if value > <size_t>(end - p):
                return False
            p += value
        return True

    cdef int add_fields(
        self, const uint8_t* p, const uint8_t* end, uint32_t parent, uint32_t depth
    ) except -1 nogil:
        """Splits a message into fields, recursively up to a depth of `MAX_DEPTH`."""
        cdef uint64_t tag = 0, value = 0
        cdef uint32_t wire_type
        cdef size_t node
        cdef const uint8_t* begin
        while p < end:
            p = begin = skip_minimal_varint(p, end, &tag)
            wire_type = tag & 7
            node = <size_t>self.node(parent, <uint32_t>tag)
            if wire_type == VARINT:
                p = skip_minimal_varint(p, end, &value)
                if value <= MAX_INLINED_VALUE:
                    value += INLINE_VARINT
                    self.add_element(node, <uint32_t>value, <uint32_t>tag, <uint32_t>value)
                    continue
                value = p - begin - 1
                self.add_element(node, <uint32_t>value, <uint32_t>tag, <uint32_t>value)
            elif wire_type == LENGTH:
                p = skip_minimal_varint(p, end, &value)
                p += value
                if value and depth < MAX_DEPTH and self.is_message(p - value, p):
                    # The kind of the end comes right after the kind of the begin.
                    self.add_element(node, BEGIN_KIND, BEGIN_SUBMESSAGE, 0)
                    self.kind(node, END_KIND, <uint32_t>tag + SUBMESSAGE_END - LENGTH, 0)
                    self.add_fields(p - value, p, FIRST_MESSAGE + <uint32_t>node, depth + 1)
                    self.add_element(node, END_KIND, <uint32_t>tag + SUBMESSAGE_END - LENGTH, 0)
                    continue
                self.add_element(node, ONLY_KIND, <uint32_t>tag, 0)
            elif wire_type == GROUP_BEGIN:
                self.add_element(node, ONLY_KIND, <uint32_t>tag, 0)
                self.push_group(parent)
                parent = FIRST_MESSAGE + <uint32_t>node
                depth += 1
                continue
            elif wire_type == GROUP_END:
                self.add_element(node, ONLY_KIND, <uint32_t>tag, 0)
                parent = self.pop_group()
                depth -= 1
                continue
            else:
                self.add_element(node, ONLY_KIND, <uint32_t>tag, 0)
                p += 8 if wire_type == FIXED64 else 4
            self.add_value(node, begin, p - begin)
        return 0

    cdef inline int push_group(self, uint64_t group) except -1 nogil:
        reserve(<void**>&self.groups, &self.groups_capacity, self.num_groups + 1, sizeof(uint32_t))
        self.groups[self.num_groups] = <uint32_t>group
        self.num_groups += 1
        return 0

    cdef inline uint32_t pop_group(self) noexcept nogil:
        self.num_groups -= 1
        return self.groups[self.num_groups]

    cdef inline Py_ssize_t node(self, uint32_t parent, uint32_t tag) except -1 nogil:
        cdef Py_ssize_t index = self.pairs.find(parent, tag)
        if index < 0:
            index = self.pairs.find_or_add(parent, tag)
            reserve(<void**>&self.nodes, &self.nodes_capacity, index + 1, sizeof(Node))
            memset(&self.nodes[index], 0, sizeof(Node))
            self.nodes[index].tag = tag
        return index

    cdef inline int32_t kind(
        self, size_t node, uint32_t kind_in_field, uint32_t tag, uint32_t subtype
    ) except -1 nogil:
        cdef int32_t index = self.nodes[node].kinds[kind_in_field]
        if index == 0:
            reserve(<void**>&self.kinds, &self.kinds_capacity, self.num_kinds + 1, sizeof(Kind))
            self.kinds[self.num_kinds] = Kind(node=<uint32_t>node, tag=tag, subtype=subtype)
            self.num_kinds += 1
            index = <int32_t>self.num_kinds
            self.nodes[node].kinds[kind_in_field] = index
        return index - 1

    cdef inline int add_element(
        self, size_t node, uint32_t kind_in_field, uint32_t tag, uint32_t subtype
    ) except -1 nogil:
        cdef uint32_t kind = <uint32_t>self.kind(node, kind_in_field, tag, subtype)
        reserve(<void**>&self.sequence, &self.sequence_capacity, self.num_elements + 1,
                sizeof(uint32_t))
        self.sequence[self.num_elements] = kind
        self.num_elements += 1
        return 0

    cdef inline int add_value(self, size_t node, const uint8_t* begin, size_t size) except -1 nogil:
        reserve(<void**>&self.values, &self.values_capacity, self.num_values + 1, sizeof(Value))
        self.values[self.num_values] = Value(begin=begin, size=size, node=node)
        self.num_values += 1
        self.nodes[node].size += size
        return 0

    cdef void fill_buffers(self) noexcept nogil:
        """Writes the values to the buffers of their fields, backwards from the ends."""
        cdef Value* value
        cdef Node* node
        cdef size_t index, i
        for index in range(self.num_values):
            value = &self.values[index]
            node = &self.nodes[value.node]
            node.front -= value.size
            if node.tag >= 8 and node.tag & 7 == VARINT:
                for i in range(value.size):
                    node.front[i] = value.begin[i] & 0x7f
            elif value.size == 4:
                memcpy(node.front, value.begin, 4)
            else:
                memcpy(node.front, value.begin, value.size)

    cdef object elements(self):
        """Returns the elements of all records, and fills the buffers of fields."""
        cdef Py_ssize_t index
        cdef size_t i
        cdef bytes buffer
        cdef list nodes = [], kinds = [], record_sizes = []
        for index in range(self.pairs.count):
            buffer = PyBytes_FromStringAndSize(NULL, self.nodes[index].size)
            self.nodes[index].front = (
                <uint8_t*>PyBytes_AsString(buffer) + self.nodes[index].size)
            parent = self.pairs.pairs[index] >> 32
            nodes.append(
                NodeOfElements(parent, self.nodes[index].tag, FIRST_MESSAGE + index, buffer))
        with nogil:
            self.fill_buffers()
        for i in range(self.num_kinds):
            kinds.append((self.kinds[i].node, self.kinds[i].tag, self.kinds[i].subtype))
        for i in range(self.num_values):
            if self.nodes[self.values[i].node].tag == 0:
                record_sizes.append(self.values[i].size)
        sequence = array("I")
        sequence.frombytes(PyBytes_FromStringAndSize(
            <char*>self.sequence, self.num_elements * sizeof(uint32_t)))
        return Elements(nodes, kinds, sequence, record_sizes)


def split_fields(records):
    """Splits records that are proto messages into fields; stores other records whole."""
    cdef tuple owners = tuple(records)
    cdef Py_ssize_t index, count = len(owners)
    cdef bytes record
    cdef _Splitter splitter = _Splitter()
    cdef Span* spans = <Span*>malloc((count + 1) * sizeof(Span))
    if spans == NULL:
        raise MemoryError
    try:
        for index in range(count):
            record = owners[index]
            spans[index] = Span(begin=<uint8_t*>PyBytes_AsString(record), size=len(record))
        with nogil:
            for index in range(count):
                splitter.add_record(spans[index])
    finally:
        free(spans)
    return splitter.elements()


# ---------------------------------------------------------------------------
# Transitions
# ---------------------------------------------------------------------------


cdef object as_array(sequence):
    if isinstance(sequence, array) and sequence.typecode == "I":
        return sequence
    return array("I", sequence)


def count_followers(sequence, Py_ssize_t num_kinds):
    """Counts the followers of each kind of elements, in order of first occurrence."""
    cdef _View view = _View(as_array(sequence))
    cdef const uint32_t* kinds = <const uint32_t*>view.begin
    cdef _Pairs pairs = _Pairs()
    cdef size_t* counts = NULL
    cdef size_t capacity = 0
    cdef Py_ssize_t i, pair, num_elements = view.size // <Py_ssize_t>sizeof(uint32_t)
    cdef list followers = [{} for _ in range(num_kinds)]
    try:
        with nogil:
            for i in range(num_elements - 1, 0, -1):
                pair = pairs.find(kinds[i], kinds[i - 1])
                if pair < 0:
                    pair = pairs.find_or_add(kinds[i], kinds[i - 1])
                    reserve(<void**>&counts, &capacity, pair + 1, sizeof(size_t))
                    counts[pair] = 0
                counts[pair] += 1
        for pair in range(pairs.count):
            followers[pairs.pairs[pair] >> 32][<uint32_t>pairs.pairs[pair]] = counts[pair]
    finally:
        free(counts)
    return followers


cdef enum:
    MAX_OFFSET = 63
    MAX_REPEATS = 3


def encode_transitions(sequence, paths):
    """Encodes the transitions of a sequence of elements."""
    cdef _View view = _View(as_array(sequence))
    cdef const uint32_t* kinds = <const uint32_t*>view.begin
    cdef Py_ssize_t num_elements = view.size // <Py_ssize_t>sizeof(uint32_t)
    cdef _Pairs pairs = _Pairs()
    cdef list owners = []
    cdef bytes path
    cdef Py_ssize_t i, pair = 0
    cdef Span* spans = NULL
    cdef uint8_t* out = NULL
    cdef size_t spans_capacity = 0, out_capacity = 0, out_size = 0, position
    cdef uint8_t offset
    cdef uint32_t kind
    try:
        for kind, followers in enumerate(paths):
            for follower, path in followers.items():
                if path and max(path) > MAX_OFFSET:
                    raise ValueError(
                        f"a state is {max(path)} states from a base, at most 63 can be")
                owners.append(path)
                pair = pairs.find_or_add(kind, follower)
                reserve(<void**>&spans, &spans_capacity, pair + 1, sizeof(Span))
                spans[pair] = Span(begin=<uint8_t*>PyBytes_AsString(path), size=len(path))
        with nogil:
            for i in range(num_elements - 1, 0, -1):
                pair = pairs.find(kinds[i], kinds[i - 1])
                if pair < 0:
                    break
                for position in range(spans[pair].size):
                    offset = spans[pair].begin[position]
                    if offset == 0 and out_size and out[out_size - 1] & 3 < MAX_REPEATS:
                        out[out_size - 1] += 1
                        continue
                    reserve(<void**>&out, &out_capacity, out_size + 1, 1)
                    out[out_size] = <uint8_t>(offset << 2)
                    out_size += 1
        if pair < 0:
            raise LookupError("there is no path from an element to its follower")
        return PyBytes_FromStringAndSize(<char*>out, out_size)
    finally:
        free(spans)
        free(out)
