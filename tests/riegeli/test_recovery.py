"""Reading around damage: skipped regions, remaining records, calls of the recovery function."""

import io
import random
from bisect import bisect_right
from itertools import pairwise

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from riegeli_internals import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    CHUNK_HEADER_SIZE,
    SIGNATURE,
    Chunk,
    ChunkHeader,
    ChunkType,
    blocks,
    encode_block_header,
)

import riegeli
from riegeli import RecordPosition, RecordReader, RecordsMetadata, RecordWriter, SkippedRegion


class Pipe:
    """A source that only goes forward, a few bytes at a time."""

    def __init__(self, data):
        self._file = io.BytesIO(data)

    def read(self, size):
        return self._file.read(min(size, 5000))

    def close(self):
        pass


class LongFile:
    """A file of many chunks over ten blocks, with the positions of its records."""

    def __init__(self):
        generator = random.Random(7)
        self.records = [generator.randbytes(generator.randrange(6000)) for _ in range(200)]
        file = io.BytesIO()
        self.positions = []
        with RecordWriter(file, owns_dest=False, options="uncompressed,chunk_size:15K") as writer:
            for record in self.records:
                writer.write_record(record)
                self.positions.append(writer.last_pos)
        self.data = file.getvalue()
        self.begins = [0, *sorted({position.chunk_begin for position in self.positions})]
        self.numerics = [position.numeric for position in self.positions]

    def chunk_at(self, offset):
        """Returns the begin and the end of the chunk that has a byte."""
        index = bisect_right(self.begins, offset)
        end = self.begins[index] if index < len(self.begins) else len(self.data)
        return self.begins[index - 1], end

    def first_chunk_after_block(self, pos):
        """Returns the begin of the first chunk that the next block header points to."""
        block = pos + blocks.remaining_in_block(pos)
        if block >= len(self.data) or block in self.begins:
            return min(block, len(self.data))
        return self.chunk_at(block)[1]

    def damage(self, offset):
        """Returns the region that a damaged byte costs: a chunk, or the bytes up to one."""
        begin, end = self.chunk_at(offset)
        header_end = blocks.advance(begin, CHUNK_HEADER_SIZE)
        if offset % BLOCK_SIZE < BLOCK_HEADER_SIZE:
            in_block = offset - offset % BLOCK_SIZE
            return begin, self.first_chunk_after_block(in_block + BLOCK_HEADER_SIZE)
        if offset < header_end:
            return begin, self.first_chunk_after_block(header_end)
        return begin, end


@pytest.fixture(scope="module")
def sample():
    return LongFile()


def recover(source):
    """Returns the readable content of a source: records, numeric positions, skipped regions."""
    regions, records, numerics = [], [], []
    with RecordReader(source, recovery=regions.append) as reader:
        while (record := reader.read_record()) is not None:
            records.append(record)
            numerics.append(reader.last_pos.numeric)
    return records, numerics, regions


def test_the_long_file_is_intact_and_has_many_chunks(sample):
    assert recover(io.BytesIO(sample.data)) == (sample.records, sample.numerics, [])
    assert len(sample.data) > 8 * BLOCK_SIZE
    assert len(sample.begins) > 40


@given(data=st.data(), source=st.sampled_from([io.BytesIO, Pipe]))
def test_a_damaged_byte_costs_a_chunk_or_a_block(sample, data, source):
    # Headers are few of the bytes, so they are damaged more often.
    headers = [*sample.begins, *range(0, len(sample.data), BLOCK_SIZE), None]
    if (header := data.draw(st.sampled_from(headers))) is None:
        offset = data.draw(st.integers(0, len(sample.data) - 1))
    else:
        offset = min(header + data.draw(st.integers(0, 100)), len(sample.data) - 1)
    damaged = bytearray(sample.data)
    damaged[offset] ^= 1 << data.draw(st.integers(0, 7))
    records, numerics, regions = recover(source(bytes(damaged)))
    begin, end = sample.damage(offset)
    assert [(region.begin, region.end) for region in regions] == [(begin, end)]
    remaining = [i for i, numeric in enumerate(sample.numerics) if not begin <= numeric < end]
    assert records == [sample.records[i] for i in remaining]
    assert numerics == [sample.numerics[i] for i in remaining]


damage = st.tuples(st.sampled_from(["flip", "zero", "cut", "repeat"]), st.floats(0, 1), st.binary())


@given(damages=st.lists(damage, min_size=1, max_size=6), source=st.sampled_from([io.BytesIO, Pipe]))
def test_damage_gives_no_wrong_record_and_hides_no_lost_one(sample, damages, source):
    data = bytearray(sample.data)
    is_in_place = True
    for kind, fraction, noise in damages:
        offset = int(fraction * (len(data) - 1)) if data else 0
        size = 50 * len(noise)
        if kind == "flip":
            data[offset : offset + len(noise)] = noise[: len(data) - offset]
        elif kind == "zero":
            data[offset : offset + size] = bytes(min(size, len(data) - offset))
        elif kind == "cut":
            del data[offset:]
        else:
            data[offset:offset] = data[offset : offset + size]
            is_in_place = is_in_place and size == 0
    records, numerics, regions = recover(source(bytes(data)))
    assert set(records) <= set(sample.records)
    for region, next_region in pairwise(regions):
        assert region.end <= next_region.begin
    assert all(region.end <= len(data) for region in regions)
    if is_in_place:
        actual = dict(zip(sample.numerics, sample.records))
        assert all(actual[numeric] == record for numeric, record in zip(numerics, records))
        lost_numerics = [n for n in sample.numerics if n < len(data) and n not in numerics]
        assert all(any(region.begin <= n < region.end for region in regions) for n in lost_numerics)


def test_the_recovery_function_gets_the_region_and_the_reason(sample):
    begin, end = sample.chunk_at(200_000)
    damaged = bytearray(sample.data)
    damaged[end - 1] ^= 1
    _, _, (region,) = recover(io.BytesIO(bytes(damaged)))
    assert (region.begin, region.end, region.length) == (begin, end, end - begin)
    assert "data is damaged: its hash is" in region.message
    assert f"reading the chunk at byte {begin} of <BytesIO>" in region.message
    assert str(region) == f"[{begin}..{end}): {region.message}"


def test_regions_cannot_end_before_they_begin():
    with pytest.raises(ValueError, match="cannot begin at 2 and end at 1"):
        SkippedRegion(2, 1, "")
    assert repr(SkippedRegion(1, 2, "why")) == "SkippedRegion(1, 2, 'why')"


def damaged_file():
    """Returns a file of three records, the chunk of the second damaged; its begin and end."""
    file = io.BytesIO()
    with RecordWriter(file, owns_dest=False, options="uncompressed,chunk_size:1") as writer:
        positions = []
        for record in (b"first", b"second", b"third"):
            writer.write_record(record)
            positions.append(writer.last_pos.chunk_begin)
    data = bytearray(file.getvalue())
    data[positions[2] - 1] ^= 1
    return io.BytesIO(bytes(data)), positions[1], positions[2]


def test_stop_iteration_ends_the_call_like_the_end_of_the_file():
    def stop(region):
        raise StopIteration

    file, _, end = damaged_file()
    with RecordReader(file, recovery=stop) as reader:
        assert list(reader.read_records()) == [b"first"]
        assert reader.pos == RecordPosition(end, 0)
        assert reader.read_record() == b"third"
        assert reader.read_record() is None


def test_reading_goes_on_after_an_exception_of_the_recovery_function():
    def interrupt(region):
        raise KeyboardInterrupt

    file, _, _ = damaged_file()
    with RecordReader(file, recovery=interrupt) as reader:
        assert reader.read_record() == b"first"
        with pytest.raises(KeyboardInterrupt):
            reader.read_record()
        assert reader.read_record() == b"third"


def test_the_return_value_of_the_recovery_function_is_ignored():
    file, _, _ = damaged_file()
    with RecordReader(file, recovery=lambda region: False) as reader:
        assert list(reader.read_records()) == [b"first", b"third"]


def test_errors_of_the_file_object_are_no_damage():
    class BrokenFile(io.BytesIO):
        def readinto1(self, buffer):
            raise OSError("the cable fell out")

    regions = []
    with pytest.raises(OSError, match="the cable"):
        with RecordReader(BrokenFile(), recovery=regions.append) as reader:
            reader.read_record()
    assert regions == []


def test_the_format_check_calls_no_recovery_function():
    regions = []
    reader = RecordReader(io.BytesIO(bytes(100)), recovery=regions.append)
    with pytest.raises(riegeli.InvalidArgumentError, match="is it a Riegeli/records file"):
        reader.check_file_format()
    assert regions == []


@pytest.mark.parametrize("source", [io.BytesIO, Pipe])
def test_a_cut_off_file_is_reported_on_closing(sample, source):
    begin, end = sample.chunk_at(300_000)
    regions = []
    reader = RecordReader(source(sample.data[: end - 10]), recovery=regions.append)
    assert len(list(reader.read_records())) == sum(n < begin for n in sample.numerics)
    assert regions == []
    reader.close()
    (region,) = regions
    assert (region.begin, region.end) == (begin, end - 10)
    assert "ends in the middle of a chunk" in region.message


def test_seeking_into_damage_leads_to_the_next_chunk():
    file, begin, end = damaged_file()
    regions = []
    reader = RecordReader(file, recovery=regions.append)
    reader.seek(RecordPosition(begin, 1))
    assert reader.read_record() == b"third"
    reader.seek(RecordPosition(end + 1, 1))  # Inside of a chunk.
    assert reader.read_record() is None
    size = len(file.getvalue())
    assert [(r.begin, r.end) for r in regions] == [(begin, end), (end + 1, size)]


def test_seeking_back_leads_over_damage():
    file, begin, end = damaged_file()
    regions = []
    reader = RecordReader(file, recovery=regions.append)
    reader.seek(RecordPosition(end, 0))
    assert reader.seek_back()
    assert reader.read_record() == b"first"
    assert [(region.begin, region.end) for region in regions] == [(begin, end)]
    assert reader.seek_back()
    assert not reader.seek_back()


def test_seeking_to_a_position_where_no_chunk_can_begin_leads_to_the_next_chunk():
    data = SIGNATURE.encode(0) + Chunk(ChunkType.PADDING, bytes(70_000)).encode(64)
    position = RecordPosition(BLOCK_SIZE + 3, 0)
    with pytest.raises(riegeli.InvalidArgumentError, match="no chunk can begin here"):
        RecordReader(io.BytesIO(data)).seek(position)
    regions = []
    reader = RecordReader(io.BytesIO(data), recovery=regions.append)
    reader.seek(position)
    assert [(region.begin, region.end) for region in regions] == [(BLOCK_SIZE + 3, len(data))]
    assert reader.read_record() is None


def test_chunks_that_cannot_be_decoded_are_left_out():
    damaged = Chunk(ChunkType.SIMPLE, bytes.fromhex("00020102616263"), 2, 4)
    unknown = Chunk(ord("x"), b"", 7)
    intact = Chunk(ChunkType.SIMPLE, bytes.fromhex("00010161"), 1, 1)
    data, begins = b"", []
    for chunk in (SIGNATURE, damaged, unknown, intact):
        begins.append(len(data))
        data += chunk.encode(len(data))
    records, _, regions = recover(io.BytesIO(data))
    assert records == [b"a"]
    assert [(region.begin, region.end) for region in regions] == [
        (begins[1], begins[2]),
        (begins[2], begins[3]),
    ]


@pytest.mark.parametrize("options", ["uncompressed", "transpose"])
def test_records_that_are_no_messages_are_left_out(options):
    file = io.BytesIO()
    message = RecordsMetadata(num_records=7).SerializeToString()
    with RecordWriter(file, owns_dest=False, options=options) as writer:
        numerics = []
        for record in (message, b"\xff", message, b"\xff"):
            writer.write_record(record)
            numerics.append(writer.last_pos.numeric)
    file.seek(0)
    regions = []
    with RecordReader(file, owns_src=False, recovery=regions.append) as reader:
        messages = list(reader.read_messages(RecordsMetadata))
    assert [message.num_records for message in messages] == [7, 7]
    assert [(region.begin, region.end) for region in regions] == [
        (numerics[1], numerics[2]),
        (numerics[3], len(file.getvalue())),
    ]


def make_file(serialized, damage=False):
    file = io.BytesIO()
    with RecordWriter(file, owns_dest=False, serialized_metadata=serialized) as writer:
        writer.write_record(b"record")
        begin = writer.last_pos.chunk_begin
    data = bytearray(file.getvalue())
    data[begin - 1] ^= damage
    return io.BytesIO(bytes(data)), begin


@pytest.mark.parametrize(
    ("serialized", "damage"), [(b"\xff" * 100, False), (b"", True), (b"a", True)]
)
def test_damaged_metadata_counts_as_empty(serialized, damage):
    if not serialized:
        serialized = RecordsMetadata(file_comment="x").SerializeToString()
    file, begin = make_file(serialized, damage)
    with pytest.raises((DecodeError, riegeli.InvalidArgumentError)):
        RecordReader(file, owns_src=False).read_metadata()
    file.seek(0)
    regions = []
    with RecordReader(file, owns_src=False, recovery=regions.append) as reader:
        assert reader.read_metadata() == RecordsMetadata()
        assert reader.read_record() == b"record"
    assert [(region.begin, region.end) for region in regions] == [(64, begin)]

    def stop(region):
        raise StopIteration

    file.seek(0)
    with RecordReader(file, recovery=stop) as reader:
        assert reader.read_metadata() is None
        assert reader.read_record() == b"record"


def block_header(to_begin, to_end):
    return encode_block_header(to_begin, to_end)


# Wrong positions in a block header with a valid hash, and where reading goes on.
@pytest.mark.parametrize(
    ("to_begin", "to_end", "resumed_at"),
    [
        (3, 100, "there"),  # A wrong begin: the end is used.
        (3, BLOCK_SIZE + 100, "next"),  # A wrong begin, and an end that is too far.
        (None, 100, "next"),  # A wrong end.
        (3, 10, "next"),  # Inside the header, where no chunk can begin.
        (3, 0, "next"),
        (None, 1 << 63, "next"),
        ((1 << 64) - 1, (1 << 64) - 1, "next"),
    ],
)
def test_block_headers_with_wrong_positions_do_not_hide_the_next_chunk(
    to_begin, to_end, resumed_at
):
    # A chunk over three blocks, and two more: at the wrong end, and at the true end.
    chunk = Chunk(ChunkType.SIMPLE, b"\0\4" + bytes.fromhex("808008") + bytes(131072), 1, 131072)
    data = bytearray(SIGNATURE.encode(0) + chunk.encode(64))
    intact = Chunk(ChunkType.SIMPLE, bytes.fromhex("00010161"), 1, 1)
    end = len(data)
    data += intact.encode(end)
    header = block_header(BLOCK_SIZE - 64 if to_begin is None else to_begin, to_end)
    data[BLOCK_SIZE : BLOCK_SIZE + BLOCK_HEADER_SIZE] = header
    wrong_end = BLOCK_SIZE + 100
    data[wrong_end : wrong_end + len(intact.encode(wrong_end))] = intact.encode(wrong_end)
    records, numerics, regions = recover(io.BytesIO(bytes(data)))
    expected = wrong_end if resumed_at == "there" else end
    assert numerics[0] == expected
    assert (regions[0].begin, regions[0].end) == (64, expected)
    assert set(records) == {b"a"}


def test_a_chain_of_failures_is_one_region_with_the_last_message():
    chunk = Chunk(ChunkType.PADDING, bytes(3 * BLOCK_SIZE))
    data = bytearray(SIGNATURE.encode(0) + chunk.encode(64))
    data += SIGNATURE.encode(len(data))
    data[70] ^= 1  # The chunk header, and the next two block headers.
    data[BLOCK_SIZE] ^= 1
    data[2 * BLOCK_SIZE] ^= 1
    _, _, (region,) = recover(io.BytesIO(bytes(data)))
    assert (region.begin, region.end) == (64, 64 + len(chunk.encode(64)))
    assert region.message.startswith(f"block header at byte {2 * BLOCK_SIZE} is damaged")


def test_a_block_header_that_claims_an_end_behind_the_file_leads_to_its_end():
    chunk = Chunk(ChunkType.PADDING, bytes(BLOCK_SIZE))
    data = bytearray(SIGNATURE.encode(0) + chunk.encode(64))
    data[70] ^= 1
    data[BLOCK_SIZE : BLOCK_SIZE + BLOCK_HEADER_SIZE] = block_header(10, (1 << 64) - 1)
    regions = []
    for source in (io.BytesIO, Pipe):
        with RecordReader(source(bytes(data)), recovery=regions.append) as reader:
            assert reader.read_record() is None
            assert str(reader.pos)  # The position is defined.
        region = regions.pop()
        assert (region.begin, region.end) == (64, len(data))


def test_a_claimed_size_is_not_read_past_a_block_header_that_contradicts_it():
    header = ChunkHeader(1 << 40, 0, ChunkType.SIMPLE, 0, 0)
    tail = BLOCK_SIZE - 64 - CHUNK_HEADER_SIZE
    data = SIGNATURE.encode(0) + header.encode() + bytes(tail) + block_header(BLOCK_SIZE - 64, 99)

    class Endless(io.BytesIO):
        def readinto1(self, buffer):
            buffer[:] = data[self.tell() : self.tell() + len(buffer)].ljust(len(buffer), b"\0")
            self.seek(self.tell() + len(buffer))
            assert self.tell() < 1 << 24
            return len(buffer)

    with pytest.raises(riegeli.InvalidArgumentError, match="says that the chunk ends at byte"):
        RecordReader(Endless(), assumed_pos=0).read_record()
