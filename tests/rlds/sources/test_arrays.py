import threading

import numpy as np

from rlds.sources import arrays

SIZE = 81_920 + 64  # No other code allocates arrays of this size.


def test_memory_is_reused_after_all_references_are_gone():
    first_address = arrays.empty([SIZE], np.uint8).ctypes.data
    assert arrays.empty([SIZE // 4], np.float32).ctypes.data == first_address

    for holder in (
        lambda array: array,
        lambda array: array[5:6],
        lambda array: array.reshape(2, -1).T,
        memoryview,
        lambda array: np.frombuffer(memoryview(array), np.int16),
    ):
        held = holder(arrays.empty([SIZE], np.uint8))
        address = np.asarray(held).ctypes.data
        held_arrays = [arrays.empty([SIZE], np.uint8) for _ in range(40)]
        begins = [other.ctypes.data for other in held_arrays]
        assert len(set(begins)) == 40
        assert not any(begin <= address < begin + SIZE for begin in begins)
        assert all(begin % arrays.ALIGNMENT == 0 for begin in begins)


def test_threads_never_have_the_same_memory():
    clashes = []

    def fill(value):
        for _ in range(200):
            array = arrays.empty([SIZE], np.uint8)
            array[:] = value
            if (array != value).any():
                clashes.append(value)

    threads = [threading.Thread(target=fill, args=[value]) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes


def test_odd_sizes_do_not_evict_memory_in_use():
    used = arrays.empty([SIZE + 128], np.uint8).ctypes.data
    for size in range(300):
        arrays.empty([(1 << 20) + size], np.uint8)
        assert arrays.empty([SIZE + 128], np.uint8).ctypes.data == used
