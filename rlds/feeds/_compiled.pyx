# cython: language_level=3, wraparound=False, boundscheck=False, cdivision=True
"""The hot functions of feeds, compiled. What they promise is written in `rlds.feeds._pure`."""

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

    static const uint8_t NOTHING[1] = {0};

    /* Where a step begins then fits into 64 bits. */
    static const uint64_t MAX_STEPS = 1ULL << 32;
    static const int64_t MAX_STRIDE = (1LL << 31) - 1;

    #if defined(__GNUC__)
    #define FETCH_SOON(address) __builtin_prefetch(address)
    #else
    #define FETCH_SOON(address) ((void)(address))
    #endif

    /* A mapped file that was cut, or whose disk fails, has memory that cannot be read. Reading it
       raises SIGBUS, which ends the process unless somebody catches it. */
    #if defined(_WIN32)
    #define begin_catching() ((void)0)
    #define end_catching() ((void)0)
    static const void *catching(void (*work)(void *), void *argument) {
        work(argument);  /* Files that are mapped cannot be cut there. */
        return NULL;
    }
    #else
    #include <setjmp.h>
    #include <signal.h>
    #include <stddef.h>

    static struct sigaction others_action;
    static int num_catching = 0;
    static __thread sigjmp_buf *volatile landing = NULL;
    static __thread const void *volatile unreadable;

    static void on_bus_error(int number, siginfo_t *info, void *context) {
        if (landing != NULL) {
            unreadable = info->si_addr;
            siglongjmp(*landing, 1);
        }
        /* Another thread has an error of its own. */
        if (others_action.sa_flags & SA_SIGINFO) {
            others_action.sa_sigaction(number, info, context);
        } else if (others_action.sa_handler != SIG_DFL && others_action.sa_handler != SIG_IGN) {
            others_action.sa_handler(number);
        } else {
            sigaction(SIGBUS, &others_action, NULL);
            raise(SIGBUS);
        }
    }

    /* Both are called with the interpreter lock. Handlers of others, such as those of faulthandler
       and of workers of PyTorch, are there again as soon as no thread copies rows. */
    static void begin_catching(void) {
        struct sigaction action = {0}, before;
        action.sa_sigaction = on_bus_error;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigemptyset(&action.sa_mask);
        ++num_catching;
        if (!sigaction(SIGBUS, &action, &before)
            && !(before.sa_flags & SA_SIGINFO && before.sa_sigaction == on_bus_error)) {
            others_action = before;
        }
    }

    static void end_catching(void) {
        if (--num_catching == 0) {
            sigaction(SIGBUS, &others_action, NULL);
        }
    }

    /* Returns the address that could not be read, or NULL if the work was done. */
    static const void *catching(void (*work)(void *), void *argument) {
        sigjmp_buf here;
        if (sigsetjmp(here, 0)) {
            landing = NULL;
            return unreadable;
        }
        landing = &here;
        work(argument);
        landing = NULL;
        return NULL;
    }
    #endif
    """
    const uint64_t GOLDEN, FIRST, SECOND
    const uint8_t NOTHING[1]
    const uint64_t MAX_STEPS
    const int64_t MAX_STRIDE
    void FETCH_SOON(const void* address) noexcept nogil
    void begin_catching() noexcept
    void end_catching() noexcept
    const void* catching(void (*work)(void*) noexcept nogil, void* argument) noexcept nogil

# ---------------------------------------------------------------------------
# Arrays
# ---------------------------------------------------------------------------


cdef enum:
    MAX_HELD = 5


cdef bint hold(object array, Py_buffer* view, int ndim, Py_ssize_t itemsize, int flags=0):
    """Takes hold of a contiguous array of signed integers, or of bytes if `itemsize` is 1.

    Returns whether it is one.
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
cdef class _Held:
    """Holds on to arrays for as long as this object lives."""

    cdef Py_buffer views[MAX_HELD]
    cdef int count

    cdef bint take(
        self, object array, int ndim, Py_ssize_t itemsize, int flags=0
    ) except -1:
        if not hold(array, &self.views[self.count], ndim, itemsize, flags):
            return False
        self.count += 1
        return True

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            PyBuffer_Release(&self.views[i])


@cython.final
cdef class _Words:
    """The numbers of an array of 64 bits each, for as long as this object lives."""

    cdef Py_buffer view
    cdef uint64_t* begin
    cdef Py_ssize_t size

    def __cinit__(self, name, array, dtypes=(np.int64,)):
        if not hold(array, &self.view, 1, 8):
            _pure.check_integers(name, array, dtypes)
            array = np.require(array.view(np.int64), requirements=("C", "A"))
            if not hold(array, &self.view, 1, 8):
                raise TypeError(f"{name} is not a plain array")
        self.begin = <uint64_t*>self.view.buf
        self.size = self.view.shape[0]

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


# ---------------------------------------------------------------------------
# Rows of bytes
# ---------------------------------------------------------------------------

cdef enum:
    # So many rows are on their way from memory at a time: wide ones take more of what there is.
    MAX_BLOCK = 64
    MAX_BLOCK_OF_WIDE = 32
    WIDE = 64
    # So many rows before it is needed, the place where an episode begins is on its way.
    AHEAD = 16


cdef struct Span:
    const uint8_t* begin
    uint64_t size


cdef struct Gather:
    const Span* spans
    uint64_t count
    const int32_t* numbers
    Py_ssize_t num_rows
    const int64_t* begins  # Of rows, or if there are episodes, of these.
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
        cdef list listed = list(buffers)
        cdef Py_buffer* view
        self.views = <Py_buffer*>calloc(len(listed) + 1, sizeof(Py_buffer))
        self.spans = <Span*>calloc(len(listed) + 1, sizeof(Span))
        if self.views == NULL or self.spans == NULL:
            raise MemoryError
        for buffer in listed:
            view = &self.views[self.count]
            if not hold(buffer, view, 1, 1):
                _pure.view_of_bytes(self.count, buffer)
                raise TypeError(f"buffer {self.count} is no plain array")
            # Where there are no bytes, there may be no address.
            self.spans[self.count].begin = <const uint8_t*>view.buf if view.len else NOTHING
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

    def gather(self, numbers, offsets, Py_ssize_t width, out):
        cdef _Held held = _Held.__new__(_Held)
        cdef Gather rows
        if not (
            held.take(numbers, 1, 4)
            and held.take(offsets, 1, 8)
            and held.take(out, 2, 1, PyBUF_WRITABLE)
            and held.views[1].shape[0] == held.views[0].shape[0]
            and held.views[2].shape[0] == held.views[0].shape[0]
            and held.views[2].shape[1] == width
        ):
            _pure.check_gather(numbers, offsets, width, out)
            raise TypeError("numbers, offsets and out are not plain arrays")
        rows.numbers = <const int32_t*>held.views[0].buf
        rows.num_rows = held.views[0].shape[0]
        rows.begins = <const int64_t*>held.views[1].buf
        rows.episodes = NULL
        rows.width = <size_t>width
        rows.out = <uint8_t*>held.views[2].buf
        self.copy(&rows)
        if rows.outside >= 0:
            place = int(numbers[rows.outside]), int(offsets[rows.outside])
            _pure.refuse_row(rows.outside, *place, width, self.sizes())

    def gather_steps(
        self, numbers, begins, episodes, steps, Py_ssize_t stride, Py_ssize_t width, out
    ):
        cdef _Held held = _Held.__new__(_Held)
        cdef Gather rows
        if not (
            held.take(numbers, 1, 4)
            and held.take(begins, 1, 8)
            and held.take(episodes, 1, 8)
            and held.take(steps, 1, 8)
            and held.take(out, 2, 1, PyBUF_WRITABLE)
            and held.views[2].shape[0] == held.views[0].shape[0]
            and held.views[3].shape[0] == held.views[0].shape[0]
            and held.views[4].shape[0] == held.views[0].shape[0]
            and held.views[4].shape[1] == width
            and 0 <= stride <= MAX_STRIDE
        ):
            _pure.check_gather_steps(numbers, begins, episodes, steps, stride, width, out)
            raise TypeError("the arguments are not plain arrays")
        rows.numbers = <const int32_t*>held.views[0].buf
        rows.num_rows = held.views[0].shape[0]
        rows.begins = <const int64_t*>held.views[1].buf
        rows.num_episodes = <uint64_t>held.views[1].shape[0]
        rows.episodes = <const int64_t*>held.views[2].buf
        rows.steps = <const int64_t*>held.views[3].buf
        rows.stride = <uint64_t>stride
        rows.width = <size_t>width
        rows.out = <uint8_t*>held.views[4].buf
        self.copy(&rows)
        if rows.outside >= 0:
            place = (int(array[rows.outside]) for array in (numbers, episodes, steps))
            number, episode, step = place
            _pure.refuse_step(
                rows.outside, number, begins, episode, step, stride, width, self.sizes()
            )

    cdef int copy(self, Gather* rows) except -1:
        """Copies the rows; `outside` is then the first one that is not inside its buffer, or -1."""
        cdef const uint8_t* unreadable
        cdef Py_ssize_t i
        rows.spans, rows.count = self.spans, <uint64_t>self.count
        begin_catching()
        with nogil:
            unreadable = <const uint8_t*>catching(gather_any, rows)
        end_catching()
        if unreadable == NULL:
            return 0
        for i in range(self.count):
            if 0 <= unreadable - self.spans[i].begin < <Py_ssize_t>self.spans[i].size:
                raise _pure.UnreadableError(i, unreadable - self.spans[i].begin)
        raise MemoryError("memory that is not of a buffer cannot be read or written")

    cdef list sizes(self):
        return [self.spans[i].size for i in range(self.count)]


cdef void gather_any(void* argument) noexcept nogil:
    cdef Gather* rows = <Gather*>argument
    rows.outside = gather_rows(rows) if rows.episodes == NULL else gather_rows_of_episodes(rows)


cdef Py_ssize_t gather_rows(const Gather* rows) noexcept nogil:
    """Copies the rows; returns the first one that is not inside its buffer, or -1."""
    cdef const uint8_t* found[MAX_BLOCK]
    cdef Py_ssize_t max_block = block_of(rows.width)
    cdef Py_ssize_t i, length, first = 0
    cdef uint8_t* out = rows.out
    while first < rows.num_rows:
        length = min(max_block, rows.num_rows - first)
        for i in range(length):
            # Negative ones become larger than all that there are.
            found[i] = find(
                rows.spans,
                rows.count,
                <uint64_t><int64_t>rows.numbers[first + i],
                <uint64_t>rows.begins[first + i],
                rows.width,
            )
            if found[i] == NULL:
                return first + i
        copy(found, length, rows.width, out)
        out += rows.width * <size_t>length
        first += length
    return -1


cdef Py_ssize_t gather_rows_of_episodes(const Gather* rows) noexcept nogil:
    """Does what `gather_rows` does, for steps of episodes."""
    cdef const uint8_t* found[MAX_BLOCK]
    cdef const int64_t* begins = rows.begins
    cdef const int64_t* episodes = rows.episodes
    cdef uint64_t num_episodes = rows.num_episodes
    cdef Py_ssize_t max_block = block_of(rows.width)
    cdef Py_ssize_t i, length, first = 0
    cdef uint64_t number, begin, episode, step
    cdef uint8_t* out = rows.out
    while first < rows.num_rows:
        length = min(max_block, rows.num_rows - first)
        for i in range(length):
            if first + i + AHEAD < rows.num_rows:
                episode = <uint64_t>episodes[first + i + AHEAD]
                if episode < num_episodes:
                    FETCH_SOON(&begins[episode])
            number = <uint64_t><int64_t>rows.numbers[first + i]
            episode = <uint64_t>episodes[first + i]
            step = <uint64_t>rows.steps[first + i]
            if number >= rows.count or episode >= num_episodes or step >= MAX_STEPS:
                return first + i
            begin = <uint64_t>begins[episode]
            if begin > rows.spans[number].size:
                return first + i
            # The limits of all three leave no room for an overflow.
            found[i] = find(
                rows.spans, rows.count, number, begin + step * rows.stride, rows.width
            )
            if found[i] == NULL:
                return first + i
        copy(found, length, rows.width, out)
        out += rows.width * <size_t>length
        first += length
    return -1


cdef inline Py_ssize_t block_of(size_t width) noexcept nogil:
    return MAX_BLOCK if width <= WIDE else MAX_BLOCK_OF_WIDE


cdef inline const uint8_t* find(
    const Span* spans, uint64_t count, uint64_t number, uint64_t offset, size_t width
) noexcept nogil:
    """Returns where a row is, and lets the processor get it; NULL if it is not inside its buffer."""
    cdef const uint8_t* row
    if number >= count or width > spans[number].size or offset > spans[number].size - width:
        return NULL
    row = spans[number].begin + offset
    FETCH_SOON(row)
    FETCH_SOON(row + width - 1)
    return row


cdef inline void copy(
    const uint8_t** rows, Py_ssize_t length, size_t width, uint8_t* out
) noexcept nogil:
    cdef Py_ssize_t i
    # Copying so many bytes as the compiler knows takes no call. Two copies may overlap.
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


cdef inline uint64_t start_of(uint64_t key) noexcept nogil:
    """Returns what hashes with a key begin with."""
    return mix(key + GOLDEN)


def hash_many(values, key):
    cdef uint64_t start = start_of(_pure.check_key(key))
    cdef _Words words = _Words("values", values, (np.int64, np.uint64))
    out = np.empty(words.size, np.int64)
    cdef _Words hashes = _Words("out", out)
    cdef Py_ssize_t i
    with nogil:
        for i in range(words.size):
            hashes.begin[i] = mix(start + words.begin[i] * GOLDEN)
    return out.view(np.uint64)


# ---------------------------------------------------------------------------
# Permutations
# ---------------------------------------------------------------------------

cdef enum:
    ROUNDS = 6
    # Positions that are computed side by side, as each waits for its own multiplications.
    LANES = 4


cdef struct Network:
    uint64_t size
    uint64_t count  # How many multiples of `1 << bits` there are.
    uint64_t mask
    int bits
    uint64_t keys[ROUNDS]


cdef Network arrange(uint64_t size, uint64_t key) noexcept nogil:
    cdef Network network
    cdef uint64_t start = start_of(mix(start_of(key) + size * GOLDEN))
    cdef int length = 0, i
    while size - 1 >> length:
        length += 1
    network.size = size
    network.bits = length // 2
    network.mask = (<uint64_t>1 << network.bits) - 1
    network.count = size + network.mask >> network.bits
    for i in range(ROUNDS):
        network.keys[i] = mix(start + <uint64_t>i * GOLDEN)
    return network


cdef inline void apply(const Network* network, uint64_t* words, bint is_inverse) noexcept nogil:
    """Moves `LANES` positions, without branches: half of the guesses would be wrong."""
    cdef uint64_t high[LANES]
    cdef uint64_t low[LANES]
    cdef int i, at
    for i in range(LANES):
        high[i] = words[i] >> network.bits
        low[i] = words[i] & network.mask
    if is_inverse:
        for at in range(ROUNDS - 2, -2, -2):
            for i in range(LANES):
                low[i] ^= scramble(high[i] + network.keys[at + 1]) >> 32 & network.mask
            for i in range(LANES):
                high[i] -= (scramble(low[i] + network.keys[at]) >> 32) * network.count >> 32
                high[i] += network.count & 0 - (high[i] >> 63)
    else:
        for at in range(0, ROUNDS, 2):
            for i in range(LANES):
                high[i] += (scramble(low[i] + network.keys[at]) >> 32) * network.count >> 32
                high[i] -= network.count & 0 - <uint64_t>(high[i] >= network.count)
            for i in range(LANES):
                low[i] ^= scramble(high[i] + network.keys[at + 1]) >> 32 & network.mask
    for i in range(LANES):
        words[i] = high[i] << network.bits | low[i]


cdef bint walk(
    const Network* network,
    const uint64_t* positions,
    uint64_t* out,
    Py_ssize_t length,
    bint is_inverse,
) noexcept nogil:
    """Moves positions; returns whether all of them are below the size."""
    cdef uint64_t words[LANES]
    cdef uint64_t moved[LANES]
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
            memcpy(moved, words, sizeof(words))
            apply(network, moved, is_inverse)
            for i in range(LANES):
                if words[i] >= network.size:
                    words[i] = moved[i]
        for i in range(count):
            out[first + i] = words[i]
        first += count
    return True


cdef object move(object twin, object positions, object size, object key, bint is_inverse):
    cdef Network network
    cdef bint is_inside
    size = _pure.check_size(size)
    if size <= _pure.MAX_SORTED:
        return twin(positions, size, key)
    network = arrange(size, _pure.check_key(key))
    cdef _Words before = _Words("positions", positions)
    out = np.empty(before.size, np.int64)
    cdef _Words after = _Words("out", out)
    with nogil:
        is_inside = walk(&network, before.begin, after.begin, before.size, is_inverse)
    if not is_inside:
        _pure.check_positions(positions, size)
    return out


def permute(positions, size, key):
    return move(_pure.permute, positions, size, key, False)


def unpermute(positions, size, key):
    return move(_pure.unpermute, positions, size, key, True)


# ---------------------------------------------------------------------------
# Episodes
# ---------------------------------------------------------------------------

cdef enum:
    # Searches side by side: each waits for memory.
    SEARCHES = 8


def locate(samples, ends):
    cdef _Words wanted = _Words("samples", samples)
    cdef _Words limits = _Words("ends", ends)
    out = np.empty(wanted.size, np.int64)
    cdef _Words found = _Words("out", out)
    with nogil:
        locate_all(
            <const int64_t*>wanted.begin,
            wanted.size,
            <const int64_t*>limits.begin,
            limits.size,
            <int64_t*>found.begin,
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
        # The number of steps is the same for all, and no step is a branch.
        length = num_ends
        while length > 0:
            half = (length + 1) // 2
            for i in range(SEARCHES):
                begins[i] += half * (begins[i][half - 1] <= values[i])
            length -= half
            if length > 0:
                for i in range(SEARCHES):
                    FETCH_SOON(begins[i] + (length - 1) // 2)
        for i in range(count):
            out[first + i] = begins[i] - ends
        first += count
