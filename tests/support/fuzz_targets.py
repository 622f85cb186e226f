"""Fuzz targets: each makes hostile input from any bytes, and expects its rejection.

A target raises on undocumented errors, on records that contradict the header of the chunk, and on
differing twins. `make fuzz` calls them for a long time, the suite briefly and with known failures.
"""

import io
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from unittest import mock

from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError
from riegeli_internals import (
    BLOCK_SIZE,
    SIGNATURE,
    Chunk,
    ChunkHeader,
    CompressionType,
    Compressor,
    compiled_core,
    core,
    encode_block_header,
    has_buffer,
    has_subtype,
    parse_options,
    pure,
    remaining_in_block,
    transposed_chunk,
    transposed_encoder,
)
from transposed_parts import Sections, compressed, sections_of

import riegeli
from riegeli.base.riegeli_error import ResourceExhaustedError
from riegeli.records import decode_file

T = TypeVar("T")

MAX_SIZE = 1 << 22
"""A replacement for the limit of 4 GiB, so that few bytes reach it."""

_COMPRESSORS = (
    Compressor(CompressionType.NONE),
    Compressor(CompressionType.ZSTD, 1),
    Compressor(CompressionType.BROTLI, 1),
    Compressor(CompressionType.SNAPPY),
)
_CHUNK_TYPES = b"rrrttttmpsx"
_SECTIONS = (
    *("tags", "nexts", "indices", "buffer_sizes", "buckets", "transitions", "subtypes"),
    *("buckets", "transitions", "first", "bucket_sizes", "behind_header"),
)
_PROJECTIONS: tuple[Any, ...] = (None, [[]], [], [[1]], [[1, 0]], [[2, 1]], [[1, 2, 0], [3]], [[2]])


class Choices:
    """Makes choices from bytes; at their end, always the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def left(self) -> int:
        """The number of unused bytes."""
        return len(self._data) - self._offset

    def below(self, count: int) -> int:
        """A number from 0 to `count - 1`."""
        return int.from_bytes(self.take((count.bit_length() + 7) // 8), "little") % count

    def take(self, size: int) -> bytes:
        """The next bytes, or fewer at their end."""
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def pick(self, items: Sequence[Any]) -> Any:
        """One of the items."""
        return items[self.below(len(items))]

    def some_bytes(self) -> bytes:
        """A few bytes, or many equal ones."""
        kind = self.below(8)
        if kind == 7:
            return self.take(1) * (1 << self.below(20))
        return self.take(self.below(6 if kind else 200))

    def uint64(self) -> int:
        """An integer of at most 64 bits: small, or around a power of two."""
        form = self.below(4)
        if form < 2:
            return self.below(16)
        if form == 2:
            return self.below(1 << 16)
        return max(0, min((1 << self.below(65)) + self.below(5) - 2, 2**64 - 1))

    def times(self, limit: int) -> Iterator[None]:
        """Yields at most `limit` times."""
        for _ in range(self.below(limit + 1)):
            yield


@contextmanager
def low_limits() -> Iterator[None]:
    """Lowers the limits of reading in the context, as the targets require."""
    with (
        mock.patch("riegeli._format.compression.MAX_DECOMPRESSED_SIZE", MAX_SIZE),
        mock.patch("riegeli._format.transposed_chunk.MAX_DECOMPRESSED_SIZE", MAX_SIZE),
        mock.patch("riegeli.records.record_reader.MAX_DECOMPRESSED_SIZE", MAX_SIZE),
        mock.patch("riegeli._format.transposed_chunk.MAX_HEADER_SIZE", MAX_SIZE),
        mock.patch("riegeli._format.transposed_chunk.MAX_STATES", MAX_SIZE >> 4),
        mock.patch("riegeli._format.transposed_chunk.MAX_BUFFERS", MAX_SIZE >> 4),
        mock.patch("riegeli._format.transposed_chunk.MAX_TRANSITIONS", MAX_SIZE >> 2),
    ):
        yield


# ---------------------------------------------------------------------------
# Records, chunks and files
# ---------------------------------------------------------------------------


def _message(choices: Choices, depth: int = 0) -> bytes:
    """A proto message, mostly valid."""
    fields = []
    for _ in choices.times(6):
        field = choices.pick((1, 2, 3, 1, 2, 17, 1 << 20))
        kind = choices.below(8)
        if kind < 2:
            fields.append(_field(field, 0, core.encode_varints((choices.uint64(),))))
        elif kind == 2:
            fields.append(_field(field, 5, choices.take(4).ljust(4, b"\1")))
        elif kind == 3:
            fields.append(_field(field, 1, choices.take(8).ljust(8, b"\1")))
        elif kind == 4 or depth == 4:
            fields.append(_field(field, 2, _with_length(choices.take(choices.below(20)))))
        elif kind == 5:
            inside = _message(choices, depth + 1)
            fields.append(_field(field, 3, inside) + _field(field, 4, b""))
        elif kind == 6:
            fields.append(_field(field, 2, _with_length(_message(choices, depth + 1))))
        else:
            fields.append(choices.take(choices.below(5)))
    return b"".join(fields)


def _field(field: int, wire_type: int, content: bytes) -> bytes:
    return core.encode_varints((field << 3 | wire_type,)) + content


def _with_length(content: bytes) -> bytes:
    return core.encode_varints((len(content),)) + content


def _records(choices: Choices) -> list[bytes]:
    records = []
    for _ in choices.times(8):
        record = choices.some_bytes()[:5000] if choices.below(6) == 0 else _message(choices)
        records += [record] * (1 + choices.pick((0, 0, 0, 1, 12)))
    return records


def _damaged(sections: Sections, choices: Choices) -> Sections:
    """Returns a valid transposed chunk with some damage that no hash reveals."""
    for _ in choices.times(4):
        kind = choices.below(3)
        if kind == 1:
            sections = _with_other_state(sections, choices)
            continue
        if kind == 2:
            sections = _with_other_buffer(sections, choices)
            continue
        name = choices.pick(_SECTIONS)
        if name == "first":
            sections = sections.replace(first=choices.uint64())
        elif name in ("subtypes", "transitions", "behind_header"):
            sections = sections.replace(**{name: _changed_bytes(getattr(sections, name), choices)})
        elif name == "buckets":
            changed = _changed_items(sections.buckets, choices, _changed_bytes, Choices.some_bytes)
            sections = sections.replace(buckets=changed)
        else:
            sizes = getattr(sections, name) or [len(bucket) for bucket in sections.buckets]
            changed = _changed_items(sizes, choices, _changed_integer, Choices.uint64)
            sections = sections.replace(**{name: changed})
    return sections


def _with_other_state(sections: Sections, choices: Choices) -> Sections:
    """Returns the sections with another meaning of one state, and consistent indices."""
    subtypes, indices = iter(sections.subtypes), iter(sections.indices)
    states = []
    for tag in sections.tags:
        subtype = next(subtypes, 0) if has_subtype(tag) else 0
        states.append((tag, subtype, next(indices, 0) if has_buffer(tag, subtype) else 0))
    state_index = choices.below(len(states)) if states else 0
    tag = choices.pick((0, 1, 2, 3, *range(8, 15), *range(16, 23), 1 << 20, choices.below(1 << 32)))
    index = choices.below(len(sections.buffer_sizes) + 1)
    states[state_index : state_index + 1] = [(tag, choices.below(140), index)]
    nexts = list(sections.nexts)
    nexts[state_index : state_index + 1] = [choices.below(2 * len(states))]
    return sections.replace(
        tags=[tag for tag, _, _ in states],
        nexts=nexts,
        subtypes=bytes(subtype for tag, subtype, _ in states if has_subtype(tag)),
        indices=[index for tag, subtype, index in states if has_buffer(tag, subtype)],
    )


def _with_other_buffer(sections: Sections, choices: Choices) -> Sections:
    """Returns the sections with other values in a buffer, and matching sizes."""
    values = b"".join(sections.buckets)
    index = choices.below(len(sections.buffer_sizes) + 1)
    sizes = list(sections.buffer_sizes)
    begin = sum(sizes[:index])
    buffer = values[begin : begin + sum(sizes[index : index + 1])]
    if choices.below(2):
        buffer = buffer[choices.below(2) : len(buffer) - choices.below(3)]
    else:
        buffer = _changed_bytes(buffer, choices)
    behind = values[begin + sum(sizes[index : index + 1]) :]
    sizes[index : index + 1] = [len(buffer)]
    return sections.replace(buckets=[values[:begin] + buffer + behind], buffer_sizes=sizes)


def _changed_bytes(data: bytes, choices: Choices) -> bytes:
    offset = choices.below(len(data) + 1)
    return data[:offset] + choices.some_bytes() + data[offset + choices.below(3) :]


def _changed_integer(value: int, choices: Choices) -> int:
    if choices.below(2):
        return choices.uint64()
    return min(max(0, value + choices.pick((1, -1, 2, -2))), 2**64 - 1)


def _changed_items(
    items: Sequence[T],
    choices: Choices,
    change: Callable[[T, Choices], T],
    make: Callable[[Choices], T],
) -> list[T]:
    changed = list(items)
    index = choices.below(len(changed) + 1)
    kind = choices.below(6)
    if index == len(changed) or kind == 0:
        changed.insert(index, make(choices))
    elif kind == 1:
        del changed[index]
    elif kind == 2:
        changed[index:index] = changed[index : index + 1] * choices.below(300)
    else:
        changed[index] = change(changed[index], choices)
    return changed


def _transposed_sections(choices: Choices) -> tuple[Sections, int, int]:
    """A transposed chunk with some damage, and the number and size of its records."""
    records = _records(choices)
    sections = _damaged(sections_of(records, choices.pick((None, 1, 10))), choices)
    num_records, size = len(records), sum(map(len, records))
    for _ in choices.times(1):
        num_records = choices.pick((num_records + 1, choices.uint64() >> 8, 0))
        size = choices.pick((size + 1, choices.uint64(), max(0, size - 1)))
    return sections, num_records, size


def _chunk(choices: Choices) -> Chunk:
    kind = choices.below(4)
    compressor = choices.pick(_COMPRESSORS)
    if kind < 2:
        sections, num_records, size = _transposed_sections(choices)
        data = sections.data(compressor)
        if kind == 1:
            data = _changed_bytes(data, choices)
        return Chunk(choices.pick(b"tttm"), data, num_records % (1 << 56), size)
    if kind == 2:
        records = _records(choices)
        size, sizes = sum(map(len, records)), list(map(len, records))
        if choices.below(2):
            sizes = _changed_items(sizes, choices, _changed_integer, Choices.uint64)
        stored = compressed(core.encode_varints(sizes), compressor)
        data = bytes([compressor.compression_type]) + _with_length(stored)
        data += compressed(b"".join(records), compressor)
        if choices.below(3) == 0:
            data = _changed_bytes(data, choices)
        return Chunk(ord("r"), data, len(records) + choices.pick((0, 0, 1)), size)
    data = bytes([choices.pick((0, 0x62, 0x7A, 0x73, 1))]) + choices.some_bytes()
    return Chunk(
        choices.pick(_CHUNK_TYPES), data, choices.uint64() >> 8, choices.pick((0, choices.uint64()))
    )


def _file(choices: Choices) -> bytes:
    """A file of hostile chunks with matching hashes, or arbitrary bytes."""
    if choices.below(8) == 7:
        return choices.take(choices.left() // 2)
    data = bytearray(SIGNATURE.encode(0))
    for _ in choices.times(6):
        if choices.below(5) == 4:  # To the end of the block.
            size = max(0, remaining_in_block(len(data)) - 40 - choices.below(60))
            chunk = Chunk(ord("p"), bytes(size))
        else:
            chunk = _chunk(choices)
        header = chunk.header()
        if choices.below(8) == 7:
            header = ChunkHeader(
                choices.uint64(), header.data_hash, header.chunk_type, header.num_records, 1
            )
        if header.end(len(data)) - len(data) > 1 << 22:  # The header claims data that are missing.
            data += header.encode() + chunk.data
        else:
            data += Chunk.encode(chunk, len(data))
    for _ in choices.times(3):
        if choices.below(2):
            block = choices.below(len(data) // BLOCK_SIZE + 1) * BLOCK_SIZE
            data[block : block + 24] = encode_block_header(choices.uint64(), choices.uint64())
        else:
            offset = choices.below(len(data))
            data[offset] ^= 1 << choices.below(8)
    return bytes(data[: len(data) - choices.pick((0, 0, 0, choices.below(1 << 16)))])


class _Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


# ---------------------------------------------------------------------------
# Targets
# ---------------------------------------------------------------------------


def read_files(data: bytes) -> None:
    """Reads a hostile file in many ways."""
    choices = Choices(data)
    file = _file(choices)
    _compare_small_file(file)
    regions: list[riegeli.SkippedRegion] = []

    def note(region: riegeli.SkippedRegion) -> None:
        regions.append(region)
        assert len(regions) <= 1000 + len(file), "recovery does not end"
        if choices.below(8) == 7:
            raise StopIteration

    reader = riegeli.RecordReader(
        choices.pick((io.BytesIO, io.BytesIO, _Pipe))(file),
        field_projection=choices.pick(_PROJECTIONS),
        recovery=choices.pick((None, note)),
    )
    actions: Sequence[Callable[[], object]] = (
        lambda: list(reader.read_records()),
        reader.read_record,
        reader.read_metadata,
        reader.check_file_format,
        reader.seek_back,
        lambda: reader.read_message(FieldDescriptorProto),
        lambda: reader.seek_numeric(choices.below(len(file) + 10)),
        lambda: reader.seek(
            riegeli.RecordPosition(choices.below(len(file) + 10), choices.uint64() >> 1)
        ),
        lambda: reader.search_for_record(lambda record: choices.below(3) - 1),
        lambda: reader.search_for_record(lambda record: (record > b"\x08\7") - (record < b"\x08")),
        lambda: reader.search_for_message(
            FieldDescriptorProto, lambda message: choices.pick((-1, 0, 1, None))
        ),
        lambda: reader.set_field_projection(choices.pick(_PROJECTIONS)),
        lambda: (reader.pos, reader.last_pos),
        reader.size,
    )
    for _ in choices.times(12):
        with suppress(riegeli.RiegeliError, DecodeError):
            choices.pick(actions)()
    with suppress(riegeli.RiegeliError):
        list(reader.read_records())
    with suppress(riegeli.RiegeliError):
        reader.close()


def _compare_small_file(file: bytes) -> None:
    """The fast path for small files returns the records of the reader, or None."""
    records = decode_file._decode_small_file(file)
    if records is not None:
        with riegeli.RecordReader(io.BytesIO(file)) as reader:
            assert records == list(reader.read_records())


def decode_chunks(data: bytes) -> None:
    """Decodes a hostile transposed chunk: the records must agree with its header."""
    choices = Choices(data)
    sections, num_records, size = _transposed_sections(choices)
    if num_records > MAX_SIZE:  # A file would have to be that long.
        return
    try:
        chunk = sections.chunk(num_records, size, choices.pick(_COMPRESSORS))
    except ResourceExhaustedError:  # Its sections are too long for any writer.
        return
    records = None
    with suppress(riegeli.RiegeliError):
        records = transposed_chunk.decode_transposed_chunk(chunk, num_records)
    scope: Any = choices.pick(({}, {1: True}, {1: None, 2: {1: True}}))
    try:
        projected = transposed_chunk.decode_transposed_chunk(chunk, num_records, scope)
    except riegeli.RiegeliError:
        # A projection skips checks of excluded fields, and adds none: states run in both cases.
        assert records is None, "valid without a projection, but not with one"
        return
    assert len(projected) == num_records
    if records is not None:
        assert len(records) == num_records
        assert sum(map(len, records)) == size
        assert sum(map(len, projected)) <= size


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (ValueError, LookupError) as e:
        return type(e), str(e)


def _exact_array(data: bytes | memoryview) -> "array[int]":
    """The bytes in an array of their exact size, without the zero that Python adds to bytes."""
    return array("B", data)


def compare_twins(data: bytes) -> None:
    """Compares the compiled core with plain Python."""
    _compiled = compiled_core()

    choices = Choices(data)
    sections, num_records, size = _transposed_sections(choices)
    arguments: list[Any] = []

    def run_machine(*args: Any) -> list[bytes]:
        arguments.extend(args)
        return []

    with (
        mock.patch.object(transposed_chunk, "run_machine", run_machine),
        suppress(riegeli.RiegeliError),
    ):
        transposed_chunk.decode_transposed_chunk(sections.chunk(num_records, size), num_records)
    if arguments and size <= MAX_SIZE:
        states, first, buffers, transitions = arguments[:4]
        scope = choices.pick((True, True, {}, {1: True}))
        claims = (num_records, size, scope)
        actual = _outcome(
            _compiled.run_machine,
            *(states, first, list(map(_exact_array, buffers)), _exact_array(transitions), *claims),
        )
        expected = _outcome(pure.run_machine, states, first, buffers, transitions, *claims)
        assert actual == expected, (actual, expected)
    count = choices.below(20)
    remaining = choices.take(choices.left())
    for name, args in (
        ("highway_hash64", (remaining,)),
        ("read_varint", (remaining, len(remaining) // 2)),
        ("read_varints", (memoryview(remaining), len(remaining) // 2, count)),
        (
            "split_records",
            (remaining[: len(remaining) // 4], count, remaining[len(remaining) // 4 :]),
        ),
        ("split_fields", ([remaining, *_records(Choices(remaining))],)),
    ):
        exact = [_exact_array(arg) if isinstance(arg, bytes | memoryview) else arg for arg in args]
        actual = _outcome(getattr(_compiled, name), *exact)
        assert actual == _outcome(getattr(pure, name), *args), name
    _compare_block_headers(Choices(remaining))


def _compare_block_headers(choices: Choices) -> None:
    _compiled = compiled_core()

    begin = choices.pick((0, 1, 64, 65511, BLOCK_SIZE - choices.below(50)))
    pieces = [choices.some_bytes(), memoryview(choices.some_bytes()), choices.take(50)]
    assert _compiled.join(pieces) == b"".join(pieces)
    end = begin + sum(map(len, pieces)) + choices.below(200)
    interleaved = _outcome(_compiled.interleave_block_headers, pieces, begin, end)
    assert interleaved == _outcome(pure.interleave_block_headers, pieces, begin, end)
    if not isinstance(interleaved, bytes):
        return
    damaged = bytearray(interleaved)
    if choices.below(2) and damaged:
        damaged[choices.below(len(damaged))] ^= 1
    offset = choices.below(len(damaged) + 1)
    stored = memoryview(damaged)[offset : offset + choices.pick((1 << 20, choices.below(1 << 17)))]
    args = (stored, begin + offset, begin + choices.pick((0, 0, 0, 1)), end)
    actual = _outcome(_compiled.strip_block_headers, *args)
    assert actual == _outcome(pure.strip_block_headers, *args)


def _options(choices: Choices) -> str:
    options = [choices.pick(("transpose", "transpose", "", "transpose:false"))]
    options.append(
        choices.pick(("uncompressed", "zstd:1", "brotli:1", "snappy", "zstd:1,window_log:10"))
    )
    options.append(f"chunk_size:{choices.pick((1, 20, 300, 5000, 1 << 20))}")
    options.append(f"bucket_fraction:{choices.pick(('0', '0.1', '1'))}")
    options.append(choices.pick(("", "", "padding:1000", "padding", "final_padding:70000")))
    options.append(choices.pick(("", "", "", "parallelism:2")))
    return ",".join(options)


def round_trips(data: bytes) -> None:
    """Writes any records with any options, and reads them back."""
    choices = Choices(data)
    text = choices.take(choices.below(30)).decode("latin-1")
    with suppress(riegeli.InvalidArgumentError, riegeli.UnimplementedError):
        parse_options(text)
    options, records = _options(choices), _records(choices)
    file = io.BytesIO()
    positions = []
    flushes = choices.below(3)
    with riegeli.RecordWriter(file, owns_dest=False, options=options) as writer:
        for index, record in enumerate(records):
            writer.write_record(record)
            positions.append(writer.last_pos)
            if flushes and index % 3 == flushes:
                writer.flush()
    with riegeli.RecordReader(io.BytesIO(file.getvalue())) as reader:
        assert list(reader.read_records()) == records
        for record, position in zip(records, positions, strict=True):
            reader.seek(position)
            assert reader.read_record() == record
            reader.seek_numeric(position.numeric)
            assert reader.read_record() == record
        for record in reversed(records[1:]):
            assert reader.seek_back()
            assert reader.read_record() == record
            assert reader.seek_back()
        reader.set_field_projection([[1], [2, 1]])
        reader.seek_numeric(0)
        assert len(list(reader.read_records())) == len(records)
    chunk = transposed_encoder.encode_transposed_chunk(records, _COMPRESSORS[0])
    with (
        mock.patch.object(transposed_encoder, "split_fields", pure.split_fields),
        mock.patch.object(transposed_encoder, "count_followers", pure.count_followers),
        mock.patch.object(transposed_encoder, "encode_transitions", pure.encode_transitions),
    ):
        assert transposed_encoder.encode_transposed_chunk(records, _COMPRESSORS[0]) == chunk


TARGETS: dict[str, Callable[[bytes], None]] = {
    "files": read_files,
    "chunks": decode_chunks,
    "twins": compare_twins,
    "round_trips": round_trips,
}
