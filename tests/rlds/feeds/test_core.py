"""Both implementations of the hot functions agree, and refuse reads outside their memory."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from feed_datasets import hot, pure
from hypothesis import given
from hypothesis import strategies as st

compiled = pytest.importorskip("rlds.feeds._compiled")
BOTH_CORES = pytest.mark.parametrize("core", [pure, compiled], ids=["python", "cython"])
HOT_FUNCTIONS = ["Buffers", "hash_many", "locate", "permute", "unpermute"]

keys = st.integers(0, 2**64 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def test_environment_variable_selects_implementation():
    assert os.environ.get("RIEGELI_IMPLEMENTATION", "cython") == hot.IMPLEMENTATION
    module = {"cython": compiled, "python": pure}[hot.IMPLEMENTATION]
    assert {*hot.__all__} == {*HOT_FUNCTIONS, "IMPLEMENTATION"}
    for name in HOT_FUNCTIONS:
        assert getattr(hot, name) is getattr(module, name)
        assert getattr(compiled, name) is not getattr(pure, name)


def test_compiled_core_is_built_from_sources_under_test():
    built = Path(compiled.__file__)
    source = Path(pure.__file__).with_name("_compiled.pyx")
    assert built.parent == source.parent
    assert built.stat().st_mtime >= source.stat().st_mtime, "run `make test`, which rebuilds it"


# --- Rows of bytes -------------------------------------------------------------------------------


def gather_rows(core, buffers, buffer_ids, offsets, width):
    """Returns the gathered rows, or the text of the error."""
    out = np.zeros((len(buffer_ids), width), np.uint8)
    try:
        core.Buffers(buffers).gather(
            np.array(buffer_ids, np.int32), np.array(offsets, np.int64), width, out
        )
    except IndexError as e:
        return str(e)
    return [bytes(row) for row in out]


@st.composite
def gathers(draw):
    """Draws buffers and rows; most rows lie inside their buffer."""
    sizes = draw(st.lists(st.integers(0, 150), max_size=5))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    buffers = [random.integers(0, 256, size, np.uint8) for size in sizes]
    width = draw(st.one_of(st.sampled_from([1, 4, 8, 16, 64]), st.integers(0, 150)))
    wide = [buffer_id for buffer_id, size in enumerate(sizes) if size >= width]
    count = draw(st.integers(0, 100)) if wide else 0
    buffer_ids = random.choice(wide, count).tolist() if count else []
    offsets = [int(random.integers(0, sizes[buffer_id] - width + 1)) for buffer_id in buffer_ids]
    if draw(st.booleans()):
        row = draw(st.integers(0, count))
        hostile = st.one_of(
            st.integers(-3, 160), st.integers(2**63 - 160, 2**63 - 1), st.just(-(2**63)), int64s
        )
        buffer_ids.insert(
            row, draw(st.one_of(st.integers(-2, 6), st.integers(-(2**31), 2**31 - 1)))
        )
        offsets.insert(row, draw(hostile))
    return buffers, buffer_ids, offsets, width


@given(gathers())
def test_gathered_rows_equal_plain_slices(arguments):
    buffers, buffer_ids, offsets, width = arguments
    compiled_rows = gather_rows(compiled, *arguments)
    assert gather_rows(pure, *arguments) == compiled_rows
    outside = [
        row
        for row, (buffer_id, offset) in enumerate(zip(buffer_ids, offsets))
        if not (0 <= buffer_id < len(buffers) and 0 <= offset <= len(buffers[buffer_id]) - width)
    ]
    if outside:
        assert compiled_rows.startswith(f"row {outside[0]} ")
    else:
        assert compiled_rows == [
            bytes(buffers[buffer_id][offset : offset + width])
            for buffer_id, offset in zip(buffer_ids, offsets)
        ]


@BOTH_CORES
def test_gather_refuses_rows_outside_buffers(core):
    buffers = core.Buffers([np.arange(20, dtype=np.uint8), np.zeros(0, np.uint8)])
    for width in (0, 1, 12):
        last = 20 - width
        for buffer_id, offset in (
            *((0, o) for o in (-1, last + 1, 2**63 - 1, 2**63 - width - 1, -(2**63))),
            *((1, 1), (2, 0), (-1, 0), (-(2**31), 0)),
        ):
            buffer_ids, offsets = np.zeros(50, np.int32), np.full(50, last)
            out = np.zeros((50, width), np.uint8)
            buffers.gather(buffer_ids, offsets, width, out)
            buffer_ids[40], offsets[40] = buffer_id, offset
            with pytest.raises(IndexError, match="row 40 "):
                buffers.gather(buffer_ids, offsets, width, out)
    assert gather_rows(core, [], [], [], 3) == []
    assert gather_rows(core, [np.zeros(0, np.uint8)], [0, 0], [0, 0], 0) == [b"", b""]


@BOTH_CORES
def test_gather_steps_refuses_steps_outside_buffers(core):
    buffers = core.Buffers([np.arange(100, dtype=np.uint8)])
    out = np.zeros((1, 4), np.uint8)

    def gather(buffer_id, episode, step, begin, stride=4):
        buffer_ids, begins = np.array([buffer_id], np.int32), np.array([0, begin])
        location = np.array([episode]), np.array([step])
        buffers.gather_steps(buffer_ids, begins, *location, stride, 4, out)

    gather(0, 1, 2**32 - 1, 96, stride=0)
    assert out.tolist() == [[96, 97, 98, 99]]
    for location in (
        *((0, 2, 0, 0), (0, -1, 0, 0), (1, 1, 0, 0), (0, 1, -1, 50), (0, 1, 2**32, 0)),
        *((0, 1, 2**32 - 1, 0), (0, 1, 4, -16), (0, 1, 4, 2**63 - 1), (0, 1, 4, 81)),
        (0, 1, 2**32 - 1, 0, 2**31 - 1),
    ):
        with pytest.raises(IndexError, match="row 0 "):
            gather(*location)


def make_read_only(array):
    array.flags.writeable = False
    return array


@BOTH_CORES
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"buffer_ids": np.zeros(2, np.int64)}, TypeError),
        ({"buffer_ids": [0, 0]}, TypeError),
        ({"buffer_ids": np.zeros(2, ">i4")}, TypeError),
        ({"buffer_ids": np.zeros((2, 1), np.int32)}, ValueError),
        ({"buffer_ids": np.zeros(3, np.int32)}, ValueError),
        ({"steps": np.zeros(2, np.uint64)}, TypeError),
        ({"steps": np.zeros(2)}, TypeError),
        ({"steps": np.zeros(4, np.int64)[::2]}, ValueError),
        ({"steps": np.zeros(17, np.uint8)[1:].view(np.int64)}, ValueError),
        ({"out": np.zeros((2, 4), bool)}, TypeError),
        ({"out": np.zeros((3, 4), np.uint8)}, ValueError),
        ({"out": np.zeros((2, 8), np.uint8)[:, ::2]}, ValueError),
        ({"out": make_read_only(np.zeros((2, 4), np.uint8))}, ValueError),
        ({"width": 3}, ValueError),
        ({"width": -4}, ValueError),
        ({"begins": np.zeros(2, np.uint32)}, TypeError),
        ({"episodes": [0, 0]}, TypeError),
        ({"stride": -1}, ValueError),
        ({"stride": 2**31}, ValueError),
    ],
)
def test_gather_refuses_arguments_of_wrong_type_or_shape(core, arguments, error):
    """Only memory of exactly the expected layout is read or written."""
    valid = {
        "buffer_ids": np.zeros(2, np.int32),
        "begins": np.zeros(1, np.int64),
        "episodes": np.zeros(2, np.int64),
        "steps": np.array([0, 1]),
        "stride": 4,
        "width": 4,
        "out": np.zeros((2, 4), np.uint8),
    }
    buffers = core.Buffers([np.arange(9, dtype=np.uint8)])
    for names, call in (
        (["buffer_ids", "steps", "width", "out"], buffers.gather),
        ([*valid], buffers.gather_steps),
    ):
        call(*(valid[name] for name in names))
        if arguments.keys() <= {*names}:
            with pytest.raises(error):
                call(*((valid | arguments)[name] for name in names))


@BOTH_CORES
@pytest.mark.parametrize(
    "buffer", [np.zeros(9, np.int8), np.zeros((3, 3), np.uint8), np.zeros(9, np.uint8)[::2], "text"]
)
def test_buffers_refuse_other_types(core, buffer):
    with pytest.raises(TypeError, match="buffer 1 is no"):
        core.Buffers([np.zeros(9, np.uint8), buffer])


@BOTH_CORES
def test_mapped_files_stay_open(core, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(range(100)))
    with open(file, "rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    buffers = core.Buffers([np.frombuffer(mapped, np.uint8)])
    with pytest.raises(BufferError):
        mapped.close()
    out = np.empty((2, 3), np.uint8)
    buffers.gather(np.zeros(2, np.int32), np.array([97, 1], np.int64), 3, out)
    assert out.tolist() == [[97, 98, 99], [1, 2, 3]]
    del buffers
    mapped.close()


@st.composite
def gathers_of_steps(draw):
    """Draws buffers, begins of episodes and mostly valid rows [buffer, episode, step]."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    width = draw(st.one_of(st.sampled_from([1, 4, 8, 24]), st.integers(0, 70)))
    stride = draw(st.one_of(st.just(width), st.integers(0, 90)))
    sizes = 0, 50, 400, 90
    buffers = [random.integers(0, 256, size, np.uint8) for size in sizes]
    begins, rows = [], []
    for buffer_id in draw(st.lists(st.integers(0, 3), max_size=20)):
        begins.append(int(random.integers(0, sizes[buffer_id] + 1)))
        room = sizes[buffer_id] - begins[-1] - width
        if room >= 0:
            steps = random.integers(0, room // max(stride, 1) + 1, 5)
            rows += [[buffer_id, len(begins) - 1, int(step)] for step in steps]
    draw(st.randoms(use_true_random=False)).shuffle(rows)
    hostile = st.one_of(
        st.integers(-3, 500), st.integers(2**31, 2**34), st.integers(2**63 - 500, 2**63 - 1), int64s
    )
    damaged = draw(st.sampled_from(["nothing", "begins", "rows"]))
    if damaged == "begins" and begins:
        begins[draw(st.integers(0, len(begins) - 1))] = draw(hostile)
    elif damaged == "rows":
        buffer_id = draw(st.one_of(st.integers(-1, 4), st.integers(-(2**31), 2**31 - 1)))
        episode = draw(st.one_of(st.integers(-1, 20), hostile))
        rows.insert(draw(st.integers(0, len(rows))), [buffer_id, episode, draw(hostile)])
    return buffers, begins, rows, stride, width


@given(gathers_of_steps())
def test_gathered_steps_equal_plain_slices(arguments):
    buffers, begins, rows, stride, width = arguments
    dtypes = np.int32, np.int64, np.int64
    buffer_ids, *locations = (
        np.array([row[i] for row in rows], dtype) for i, dtype in enumerate(dtypes)
    )

    def gather(core):
        out = np.zeros((len(rows), width), np.uint8)
        table = np.array(begins, np.int64)
        try:
            core.Buffers(buffers).gather_steps(buffer_ids, table, *locations, stride, width, out)
        except IndexError as e:
            return str(e)
        return [bytes(row) for row in out]

    def slice_of(buffer_id, episode, step):
        if 0 <= buffer_id < len(buffers) and 0 <= episode < len(begins) and 0 <= step < 2**32:
            size, begin = len(buffers[buffer_id]), begins[episode]
            offset = begin + step * stride
            if 0 <= begin <= size and offset <= size - width:
                return bytes(buffers[buffer_id][offset : offset + width])
        return None

    slices = [slice_of(*row) for row in rows]
    compiled_rows = gather(compiled)
    assert gather(pure) == compiled_rows
    if None in slices:
        assert compiled_rows.startswith(f"row {slices.index(None)} ")
    else:
        assert compiled_rows == slices


# --- Permutations --------------------------------------------------------------------------------

sizes = st.one_of(st.integers(1, 1000), st.integers(1, 2**62), st.just(2**62))


@given(sizes, keys, st.lists(st.integers(0, 2**62 - 1), max_size=50))
def test_unpermute_inverts_permute(size, key, positions):
    positions = np.array([position % size for position in positions], np.int64)
    moved = compiled.permute(positions, size, key)
    assert moved.dtype == np.int64
    assert ((moved >= 0) & (moved < size)).all()
    np.testing.assert_array_equal(pure.permute(positions, size, key), moved)
    for core in (compiled, pure):
        np.testing.assert_array_equal(core.unpermute(moved, size, key), positions)


def test_permutation_contains_every_position_once():
    for size in [*range(1, 301), 999, 1 << 12, (1 << 12) + 1, 100_003]:
        positions = np.arange(size)
        np.testing.assert_array_equal(np.sort(compiled.permute(positions, size, 3)), positions)


@BOTH_CORES
def test_permutations_never_change(core):
    """A run resumed with a later release keeps its order."""
    assert core.permute(np.arange(6), 6, 1).tolist() == [3, 5, 1, 4, 0, 2]
    assert core.permute(np.arange(6), 1000, 1).tolist() == [441, 0, 604, 956, 1, 930]
    positions = [1634717371748619317, 4407984424941611855, 564639277561029963]
    assert core.permute(np.arange(3), 2**62, 2**64 - 1).tolist() == positions
    hashes = [15916886550466581944, 6791897765849424158, 2275176451663356942]
    assert core.hash_many(np.array([0, 1, -1]), 1).tolist() == hashes


@BOTH_CORES
def test_permutation_accepts_any_memory_layout(core):
    all_positions = np.arange(1000)
    for positions in (all_positions[::3], all_positions[::-1], all_positions.copy()[5:900]):
        expected = core.permute(all_positions, 1000, 7)[positions]
        np.testing.assert_array_equal(core.permute(positions, 1000, 7), expected)
    all_positions.flags.writeable = False
    core.permute(all_positions, 1000, 7)
    assert all_positions.tolist() == list(range(1000))


@BOTH_CORES
@pytest.mark.parametrize("size", [10, 1000, 2**62])
def test_permutations_refuse_bad_arguments(core, size):
    positions = np.arange(3)
    for apply in (core.permute, core.unpermute):
        for position in (-1, size, 2**63 - 1, -(2**63)):
            with pytest.raises(IndexError, match=f"position {position} "):
                apply(np.array([0, position, 0]), size, 0)
        assert apply(np.zeros(0, np.int64), size, 0).tolist() == []
        for arguments in ((0, 0), (-1, 0), (2**62 + 1, 0), (size, -1), (size, 2**64)):
            with pytest.raises(ValueError, match=r"a permutation must|key must"):
                apply(positions, *arguments)
        with pytest.raises(ValueError, match="one axis"):
            apply(positions[None], size, 0)
        for values in ((positions.astype(float), size), ([1, 2], size), (positions, float(size))):
            with pytest.raises(TypeError):
                apply(*values, 0)


# --- Hashes --------------------------------------------------------------------------------------


@given(st.lists(int64s, max_size=50), keys)
def test_compiled_and_pure_hashes_agree(values, key):
    values = np.array(values, np.int64)
    results = compiled.hash_many(values, key)
    assert results.dtype == np.uint64
    np.testing.assert_array_equal(pure.hash_many(values, key), results)
    for core in (compiled, pure):
        np.testing.assert_array_equal(core.hash_many(values.view(np.uint64), key), results)
        np.testing.assert_array_equal(core.hash_many(values[::-2], key), results[::-2])


def test_each_bit_changes_half_of_a_hash():
    values = np.arange(4096, dtype=np.uint64)
    for key, other in ((0, 1), (5, 5 + 2**63)):
        hashes = hot.hash_many(values, key)
        assert len(np.unique(hashes)) == len(values)
        changed = [hot.hash_many(values ^ np.uint64(1 << bit), key) ^ hashes for bit in range(64)]
        changed.append(hot.hash_many(values, other) ^ hashes)
        bits = np.unpackbits(np.array(changed).view(np.uint8), axis=1).reshape(65, 4096, 64)
        # 5 standard deviations of 2048 coins (pairs may occur twice), for each input bit
        # and each output bit.
        assert np.abs(bits.mean(axis=1) - 0.5).max() < 5 * 0.5 / 2048**0.5


# --- Episodes ------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), max_size=40), st.lists(int64s, max_size=40))
def test_locate_returns_episodes_of_samples(lengths, samples):
    owners = np.repeat(np.arange(len(lengths)), lengths)
    ends = np.cumsum(np.array(lengths, np.int64))
    for core in (compiled, pure):
        results = core.locate(np.arange(len(owners)), ends)
        assert results.dtype == np.int64
        np.testing.assert_array_equal(results, owners)
        np.testing.assert_array_equal(core.locate(np.arange(len(owners))[::-1], ends), owners[::-1])
    outside = np.array(samples, np.int64)
    np.testing.assert_array_equal(compiled.locate(outside, ends), pure.locate(outside, ends))


@BOTH_CORES
def test_hash_many_and_locate_refuse_wrong_arguments(core):
    integers = np.arange(3)
    for array in (integers.astype(np.int32), [1], integers.astype(">i8")):
        for function, arguments in (
            (core.hash_many, (array, 0)),
            (core.locate, (array, integers)),
            (core.locate, (integers, array)),
        ):
            with pytest.raises(TypeError, match="not an array of int64"):
                function(*arguments)
    with pytest.raises(ValueError, match="one axis"):
        core.hash_many(integers[None], 0)
    with pytest.raises(ValueError, match="one axis"):
        core.locate(integers[None], integers)
    for key in (-1, 2**64):
        with pytest.raises(ValueError, match=f"got {key}"):
            core.hash_many(integers, key)
