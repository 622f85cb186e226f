# cython: language_level=3, wraparound=False, boundscheck=False, cdivision=True
"""The hot functions of feeds, compiled; `rlds.feeds._pure` documents them."""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

import numpy as np

from rlds.feeds import _pure

cdef extern from *:
    """
    #include <stdint.h>

    /* The increment and the multipliers of splitmix64. */
    static const uint64_t GOLDEN = 0x9E3779B97F4A7C15ULL;
    static const uint64_t FIRST = 0xBF58476D1CE4E5B9ULL;
    static const uint64_t SECOND = 0x94D049BB133111EBULL;

    static const uint8_t NO_BYTES[1] = {0};

    /* The offset of any step then fits into 64 bits. */
    static const uint64_t MAX_STEPS = 1ULL << 32;
    static const int64_t MAX_STRIDE = (1LL << 31) - 1;

    #if defined(__GNUC__)
    #define PREFETCH(address) __builtin_prefetch(address)
    #else
    #define PREFETCH(address) ((void)(address))
    #endif

    /* Reading the memory of a mapped file that was truncated, or whose disk fails, raises SIGBUS.
       Without a handler, that ends the process. */
    #if defined(_WIN32)
    #define begin_catching() ((void)0)
    #define end_catching() ((void)0)
    static const void *run_catching(void (*work)(void *), void *argument) {
        work(argument);  /* Windows does not truncate mapped files. */
        return NULL;
    }
    #else
    #include <setjmp.h>
    #include <signal.h>
    #include <stddef.h>

    static struct sigaction previous_action;
    static int num_catching = 0;
    static __thread sigjmp_buf *volatile recovery_point = NULL;
    static __thread const void *volatile unreadable;

    static void on_bus_error(int signal_number, siginfo_t *info, void *context) {
        if (recovery_point != NULL) {
            unreadable = info->si_addr;
            siglongjmp(*recovery_point, 1);
        }
        /* This thread copies no rows: the previous handler takes the signal. */
        if (previous_action.sa_flags & SA_SIGINFO) {
            previous_action.sa_sigaction(signal_number, info, context);
        } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
            previous_action.sa_handler(signal_number);
        } else {
            sigaction(SIGBUS, &previous_action, NULL);
            raise(SIGBUS);
        }
    }

    /* Both are called with the interpreter lock. The previous handler, such as that of faulthandler
       or of a PyTorch worker, is restored as soon as no thread copies rows. */
    static void begin_catching(void) {
        struct sigaction action = {0}, before;
        action.sa_sigaction = on_bus_error;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigemptyset(&action.sa_mask);
        ++num_catching;
        if (!sigaction(SIGBUS, &action, &before)
            && !(before.sa_flags & SA_SIGINFO && before.sa_sigaction == on_bus_error)) {
            previous_action = before;
        }
    }

    static void end_catching(void) {
        if (--num_catching == 0) {
            sigaction(SIGBUS, &previous_action, NULL);
        }
    }

    /* Returns the address that could not be read, or NULL if the work is complete. */
    static const void *run_catching(void (*work)(void *), void *argument) {
        sigjmp_buf env;
        if (sigsetjmp(env, 0)) {
            recovery_point = NULL;
            return unreadable;
        }
        recovery_point = &env;
        work(argument);
        recovery_point = NULL;
        return NULL;
    }
    #endif
    """
    const uint64_t GOLDEN, FIRST, SECOND
    const uint8_t NO_BYTES[1]
    const uint64_t MAX_STEPS
    const int64_t MAX_STRIDE
    void PREFETCH(const void* address) noexcept nogil
    void begin_catching() noexcept
    void end_catching() noexcept
    const void* run_catching(void (*work)(void*) noexcept nogil, void* argument) noexcept nogil

# ---------------------------------------------------------------------------
# Arrays
# ---------------------------------------------------------------------------


cdef enum:
    MAX_VIEWS = 5


cdef bint acquire(object array, Py_buffer* view, int ndim, Py_ssize_t itemsize, int flags=0):
    """Acquires the buffer of a contiguous array of signed integers; of bytes if `itemsize` is 1.

    Returns False if the array has another layout.
    """
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
cdef class _ArrayViews:
    """Buffer views of arrays, which are released with this object."""

    cdef Py_buffer views[MAX_VIEWS]
    cdef int count

    cdef bint add(
        self, object array, int ndim, Py_ssize_t itemsize, int flags=0
    ) except -1:
        if not acquire(array, &self.views[self.count], ndim, itemsize, flags):
            return False
        self.count += 1
        return True

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            PyBuffer_Release(&self.views[i])


@cython.final
cdef class _Words:
    """The 64-bit words of an array, in a buffer view that is released with this object."""

    cdef Py_buffer view
    cdef uint64_t* begin
    cdef Py_ssize_t size

    def __cinit__(self, name, array, dtypes=(np.int64,)):
        if not acquire(array, &self.view, 1, 8):
            _pure.check_integers(name, array, dtypes)
            array = np.require(array.view(np.int64), requirements=("C", "A"))
            if not acquire(array, &self.view, 1, 8):
                raise TypeError(f"{name} is not a plain array")
        self.begin = <uint64_t*>self.view.buf
        self.size = self.view.shape[0]

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


# ---------------------------------------------------------------------------
# Rows of bytes
# ---------------------------------------------------------------------------

cdef enum:
    # The number of rows to prefetch at once. Rows of `WIDE` bytes take more cache lines.
    MAX_BLOCK = 64
    MAX_WIDE_BLOCK = 32
    WIDE = 64
    # The number of rows between prefetching the offset of an episode and its use.
    AHEAD = 16


cdef struct Span:
    const uint8_t* begin
    uint64_t size


cdef struct Gather:
    const Span* spans
    uint64_t num_buffers
    const int32_t* buffer_ids
    Py_ssize_t num_rows
    const int64_t* begins  # Offsets of episodes, or of rows if there are no episodes.
    uint64_t num_episodes
    const int64_t* episodes
    const int64_t* steps
    uint64_t stride
    size_t width
    uint8_t* out
    Py_ssize_t outside


@cython.final
cdef class Buffers:
    cdef Py_buffer* views
    cdef Span* spans
    cdef Py_ssize_t count

    def __cinit__(self, buffers):
        cdef list sources = list(buffers)
        cdef Py_buffer* view
        self.views = <Py_buffer*>calloc(len(sources) + 1, sizeof(Py_buffer))
        self.spans = <Span*>calloc(len(sources) + 1, sizeof(Span))
        if self.views == NULL or self.spans == NULL:
            raise MemoryError
        for buffer in sources:
            view = &self.views[self.count]
            if not acquire(buffer, view, 1, 1):
                _pure.view_of_bytes(self.count, buffer)
                raise TypeError(f"buffer {self.count} is not a plain array")
            # An empty buffer may have no address.
            self.spans[self.count].begin = <const uint8_t*>view.buf if view.len else NO_BYTES
            self.spans[self.count].size = <uint64_t>view.len
            self.count += 1

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            PyBuffer_Release(&self.views[i])
        free(self.views)
        free(self.spans)

    def __len__(self):
        return self.count

    def gather(self, buffer_ids, offsets, Py_ssize_t width, out):
        cdef _ArrayViews arrays = _ArrayViews.__new__(_ArrayViews)
        cdef Gather rows
        if not (
            arrays.add(buffer_ids, 1, 4)
            and arrays.add(offsets, 1, 8)
            and arrays.add(out, 2, 1, PyBUF_WRITABLE)
            and arrays.views[1].shape[0] == arrays.views[0].shape[0]
            and arrays.views[2].shape[0] == arrays.views[0].shape[0]
            and arrays.views[2].shape[1] == width
        ):
            _pure.check_gather(buffer_ids, offsets, width, out)
            raise TypeError("buffer_ids, offsets and out are not plain arrays")
        rows.buffer_ids = <const int32_t*>arrays.views[0].buf
        rows.num_rows = arrays.views[0].shape[0]
        rows.begins = <const int64_t*>arrays.views[1].buf
        rows.episodes = NULL
        rows.width = <size_t>width
        rows.out = <uint8_t*>arrays.views[2].buf
        self.copy(&rows)
        if rows.outside >= 0:
            buffer_id, offset = int(buffer_ids[rows.outside]), int(offsets[rows.outside])
            _pure.refuse_row(rows.outside, buffer_id, offset, width, self.sizes())

    def gather_steps(
        self, buffer_ids, begins, episodes, steps, Py_ssize_t stride, Py_ssize_t width, out
    ):
        cdef _ArrayViews arrays = _ArrayViews.__new__(_ArrayViews)
        cdef Gather rows
        if not (
            arrays.add(buffer_ids, 1, 4)
            and arrays.add(begins, 1, 8)
            and arrays.add(episodes, 1, 8)
            and arrays.add(steps, 1, 8)
            and arrays.add(out, 2, 1, PyBUF_WRITABLE)
            and arrays.views[2].shape[0] == arrays.views[0].shape[0]
            and arrays.views[3].shape[0] == arrays.views[0].shape[0]
            and arrays.views[4].shape[0] == arrays.views[0].shape[0]
            and arrays.views[4].shape[1] == width
            and 0 <= stride <= MAX_STRIDE
        ):
            _pure.check_gather_steps(buffer_ids, begins, episodes, steps, stride, width, out)
            raise TypeError("the arguments are not plain arrays")
        rows.buffer_ids = <const int32_t*>arrays.views[0].buf
        rows.num_rows = arrays.views[0].shape[0]
        rows.begins = <const int64_t*>arrays.views[1].buf
        rows.num_episodes = <uint64_t>arrays.views[1].shape[0]
        rows.episodes = <const int64_t*>arrays.views[2].buf
        rows.steps = <const int64_t*>arrays.views[3].buf
        rows.stride = <uint64_t>stride
        rows.width = <size_t>width
        rows.out = <uint8_t*>arrays.views[4].buf
        self.copy(&rows)
        if rows.outside >= 0:
            indices = (int(array[rows.outside]) for array in (buffer_ids, episodes, steps))
            buffer_id, episode, step = indices
            _pure.refuse_step(
                rows.outside, buffer_id, begins, episode, step, stride, width, self.sizes()
            )

    cdef int copy(self, Gather* rows) except -1:
        """Copies the rows; sets `outside` to the first row outside its buffer, or to -1."""
        cdef const uint8_t* unreadable
        cdef Py_ssize_t i
        rows.spans, rows.num_buffers = self.spans, <uint64_t>self.count
        begin_catching()
        with nogil:
            unreadable = <const uint8_t*>run_catching(gather_any, rows)
        end_catching()
        if unreadable == NULL:
            return 0
        for i in range(self.count):
            if 0 <= unreadable - self.spans[i].begin < <Py_ssize_t>self.spans[i].size:
                raise _pure.UnreadableError(i, unreadable - self.spans[i].begin)
        raise MemoryError("memory outside of the buffers cannot be read or written")

    cdef list sizes(self):
        return [self.spans[i].size for i in range(self.count)]


cdef void gather_any(void* argument) noexcept nogil:
    cdef Gather* rows = <Gather*>argument
    rows.outside = gather_rows(rows) if rows.episodes == NULL else gather_rows_of_episodes(rows)


cdef Py_ssize_t gather_rows(const Gather* rows) noexcept nogil:
    """Copies the rows; returns the first row outside its buffer, or -1."""
    cdef const uint8_t* addresses[MAX_BLOCK]
    cdef Py_ssize_t max_block = block_size(rows.width)
    cdef Py_ssize_t i, length, first = 0
    cdef uint8_t* out = rows.out
    while first < rows.num_rows:
        length = min(max_block, rows.num_rows - first)
        for i in range(length):
            # Unsigned, negative values are out of range.
            addresses[i] = find_row(
                rows.spans,
                rows.num_buffers,
                <uint64_t><int64_t>rows.buffer_ids[first + i],
                <uint64_t>rows.begins[first + i],
                rows.width,
            )
            if addresses[i] == NULL:
                return first + i
        copy(addresses, length, rows.width, out)
        out += rows.width * <size_t>length
        first += length
    return -1


cdef Py_ssize_t gather_rows_of_episodes(const Gather* rows) noexcept nogil:
    """Equals `gather_rows` for steps of episodes."""
    cdef const uint8_t* addresses[MAX_BLOCK]
    cdef const int64_t* begins = rows.begins
    cdef const int64_t* episodes = rows.episodes
    cdef uint64_t num_episodes = rows.num_episodes
    cdef Py_ssize_t max_block = block_size(rows.width)
    cdef Py_ssize_t i, length, first = 0
    cdef uint64_t buffer_id, begin, episode, step
    cdef uint8_t* out = rows.out
    while first < rows.num_rows:
        length = min(max_block, rows.num_rows - first)
        for i in range(length):
            if first + i + AHEAD < rows.num_rows:
                episode = <uint64_t>episodes[first + i + AHEAD]
                if episode < num_episodes:
                    PREFETCH(&begins[episode])
            buffer_id = <uint64_t><int64_t>rows.buffer_ids[first + i]
            episode = <uint64_t>episodes[first + i]
            step = <uint64_t>rows.steps[first + i]
            if buffer_id >= rows.num_buffers or episode >= num_episodes or step >= MAX_STEPS:
                return first + i
            begin = <uint64_t>begins[episode]
            if begin > rows.spans[buffer_id].size:
                return first + i
            # The limits of `begin`, `step` and `stride` prevent an overflow.
            addresses[i] = find_row(
                rows.spans, rows.num_buffers, buffer_id, begin + step * rows.stride, rows.width
            )
            if addresses[i] == NULL:
                return first + i
        copy(addresses, length, rows.width, out)
        out += rows.width * <size_t>length
        first += length
    return -1


cdef inline Py_ssize_t block_size(size_t width) noexcept nogil:
    return MAX_BLOCK if width <= WIDE else MAX_WIDE_BLOCK


cdef inline const uint8_t* find_row(
    const Span* spans, uint64_t num_buffers, uint64_t buffer_id, uint64_t offset, size_t width
) noexcept nogil:
    """Returns the address of a row and prefetches it; NULL if it is not inside its buffer."""
    cdef const uint8_t* row
    if buffer_id >= num_buffers:
        return NULL
    if width > spans[buffer_id].size or offset > spans[buffer_id].size - width:
        return NULL
    row = spans[buffer_id].begin + offset
    PREFETCH(row)
    PREFETCH(row + width - 1)
    return row


cdef inline void copy(
    const uint8_t** rows, Py_ssize_t length, size_t width, uint8_t* out
) noexcept nogil:
    cdef Py_ssize_t i
    # Copies of constant size are compiled without a call. Two copies of a row may overlap.
    if width == 4:
        for i in range(length):
            memcpy(out + 4 * i, rows[i], 4)
    elif width == 8:
        for i in range(length):
            memcpy(out + 8 * i, rows[i], 8)
    elif width == 1:
        for i in range(length):
            out[i] = rows[i][0]
    elif 8 < width <= 16:
        for i in range(length):
            memcpy(out + width * <size_t>i, rows[i], 8)
            memcpy(out + width * <size_t>i + width - 8, rows[i] + width - 8, 8)
    elif 16 < width <= 32:
        for i in range(length):
            memcpy(out + width * <size_t>i, rows[i], 16)
            memcpy(out + width * <size_t>i + width - 16, rows[i] + width - 16, 16)
    elif width > 0:
        for i in range(length):
            memcpy(out + width * <size_t>i, rows[i], width)


# ---------------------------------------------------------------------------
# Hashes
# ---------------------------------------------------------------------------

cdef inline uint64_t scramble(uint64_t word) noexcept nogil:
    word = (word ^ word >> 30) * FIRST
    return (word ^ word >> 27) * SECOND


cdef inline uint64_t mix(uint64_t word) noexcept nogil:
    word = scramble(word)
    return word ^ word >> 31


cdef inline uint64_t derive_seed(uint64_t key) noexcept nogil:
    """Returns the initial value of the hashes with a key."""
    return mix(key + GOLDEN)


def hash_many(values, key):
    cdef uint64_t seed = derive_seed(_pure.check_key(key))
    cdef _Words words = _Words("values", values, (np.int64, np.uint64))
    out = np.empty(words.size, np.int64)
    cdef _Words hashes = _Words("out", out)
    cdef Py_ssize_t i
    with nogil:
        for i in range(words.size):
            hashes.begin[i] = mix(seed + words.begin[i] * GOLDEN)
    return out.view(np.uint64)


# ---------------------------------------------------------------------------
# Permutations
# ---------------------------------------------------------------------------

cdef enum:
    ROUNDS = 6
    # The number of positions computed at once, to hide the latency of multiplications.
    LANES = 4


cdef struct Network:
    uint64_t size
    uint64_t count  # The number of multiples of `1 << bits`.
    uint64_t mask
    int bits
    uint64_t keys[ROUNDS]


cdef Network arrange(uint64_t size, uint64_t key) noexcept nogil:
    cdef Network network
    cdef uint64_t seed = derive_seed(mix(derive_seed(key) + size * GOLDEN))
    cdef int length = 0, i
    while size - 1 >> length:
        length += 1
    network.size = size
    network.bits = length // 2
    network.mask = (<uint64_t>1 << network.bits) - 1
    network.count = size + network.mask >> network.bits
    for i in range(ROUNDS):
        network.keys[i] = mix(seed + <uint64_t>i * GOLDEN)
    return network


cdef inline void apply(const Network* network, uint64_t* words, bint is_inverse) noexcept nogil:
    """Permutes `LANES` positions without branches, which would be mispredicted half of the time."""
    cdef uint64_t high[LANES]
    cdef uint64_t low[LANES]
    cdef int i, stage
    for i in range(LANES):
        high[i] = words[i] >> network.bits
        low[i] = words[i] & network.mask
    if is_inverse:
        for stage in range(ROUNDS - 2, -2, -2):
            for i in range(LANES):
                low[i] ^= scramble(high[i] + network.keys[stage + 1]) >> 32 & network.mask
            for i in range(LANES):
                high[i] -= (scramble(low[i] + network.keys[stage]) >> 32) * network.count >> 32
                high[i] += network.count & 0 - (high[i] >> 63)
    else:
        for stage in range(0, ROUNDS, 2):
            for i in range(LANES):
                high[i] += (scramble(low[i] + network.keys[stage]) >> 32) * network.count >> 32
                high[i] -= network.count & 0 - <uint64_t>(high[i] >= network.count)
            for i in range(LANES):
                low[i] ^= scramble(high[i] + network.keys[stage + 1]) >> 32 & network.mask
    for i in range(LANES):
        words[i] = high[i] << network.bits | low[i]


cdef bint walk(
    const Network* network,
    const uint64_t* positions,
    uint64_t* out,
    Py_ssize_t length,
    bint is_inverse,
) noexcept nogil:
    """Permutes positions; returns False if a position is not below the size."""
    cdef uint64_t words[LANES]
    cdef uint64_t permuted[LANES]
    cdef Py_ssize_t i, count, first = 0
    cdef bint is_outside
    while first < length:
        count = min(<Py_ssize_t>LANES, length - first)
        for i in range(LANES):
            words[i] = positions[first + i] if i < count else 0
            if words[i] >= network.size:
                return False
        apply(network, words, is_inverse)
        while True:
            is_outside = False
            for i in range(LANES):
                is_outside |= words[i] >= network.size
            if not is_outside:
                break
            memcpy(permuted, words, sizeof(words))
            apply(network, permuted, is_inverse)
            for i in range(LANES):
                if words[i] >= network.size:
                    words[i] = permuted[i]
        for i in range(count):
            out[first + i] = words[i]
        first += count
    return True


cdef object permute_all(fallback, positions, size, key, bint is_inverse):
    cdef Network network
    cdef bint is_inside
    size = _pure.check_size(size)
    if size <= _pure.MAX_SORTED:
        return fallback(positions, size, key)
    network = arrange(size, _pure.check_key(key))
    cdef _Words inputs = _Words("positions", positions)
    out = np.empty(inputs.size, np.int64)
    cdef _Words outputs = _Words("out", out)
    with nogil:
        is_inside = walk(&network, inputs.begin, outputs.begin, inputs.size, is_inverse)
    if not is_inside:
        _pure.check_positions(positions, size)
    return out


def permute(positions, size, key):
    return permute_all(_pure.permute, positions, size, key, False)


def unpermute(positions, size, key):
    return permute_all(_pure.unpermute, positions, size, key, True)


# ---------------------------------------------------------------------------
# Episodes
# ---------------------------------------------------------------------------

cdef enum:
    # The number of binary searches at once, to hide the latency of memory.
    SEARCHES = 8


def locate(samples, ends):
    cdef _Words sample_words = _Words("samples", samples)
    cdef _Words end_words = _Words("ends", ends)
    out = np.empty(sample_words.size, np.int64)
    cdef _Words episodes = _Words("out", out)
    with nogil:
        locate_all(
            <const int64_t*>sample_words.begin,
            sample_words.size,
            <const int64_t*>end_words.begin,
            end_words.size,
            <int64_t*>episodes.begin,
        )
    return out


cdef void locate_all(
    const int64_t* samples,
    Py_ssize_t num_samples,
    const int64_t* ends,
    Py_ssize_t num_ends,
    int64_t* out,
) noexcept nogil:
    cdef int64_t values[SEARCHES]
    cdef const int64_t* begins[SEARCHES]
    cdef Py_ssize_t i, count, length, half, first = 0
    while first < num_samples:
        count = min(<Py_ssize_t>SEARCHES, num_samples - first)
        for i in range(SEARCHES):
            values[i] = samples[first + i] if i < count else 0
            begins[i] = ends
        # All searches have the same number of steps, and no step has a branch.
        length = num_ends
        while length > 0:
            half = (length + 1) // 2
            for i in range(SEARCHES):
                begins[i] += half * (begins[i][half - 1] <= values[i])
            length -= half
            if length > 0:
                for i in range(SEARCHES):
                    PREFETCH(begins[i] + (length - 1) // 2)
        for i in range(count):
            out[first + i] = begins[i] - ends
        first += count
