"""Fuzz targets: each makes hostile input of any bytes, and expects its rejection.

A target raises if something is wrong: an error that is none of those documented, records that are
not those that were announced, twins that differ. `make fuzz` calls them for a long time, the suite
for a short one, and with what was found before.
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
from transposed_parts import Parts, compressed, parts_of

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
_PARTS = (
    *("tags", "nexts", "indices", "buffer_sizes", "buckets", "transitions", "subtypes"),
    *("buckets", "transitions", "first", "bucket_sizes", "behind_header"),
)
_PROJECTIONS: tuple[Any, ...] = (None, [[]], [], [[1]], [[1, 0]], [[2, 1]], [[1, 2, 0], [3]], [[2]])


class Choices:
    """Makes choices from bytes; when they have run out, the first one always."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        """The number of unused bytes."""
        return len(self._data) - self._at

    def below(self, count: int) -> int:
        """A number from 0 to `count - 1`."""
        return int.from_bytes(self.take((count.bit_length() + 7) // 8), "little") % count

    def take(self, size: int) -> bytes:
        """The next bytes, or fewer where they run out."""
        self._at += size
        return self._data[self._at - size : self._at]

    def pick(self, items: Sequence[Any]) -> Any:
        """One of several."""
        return items[self.below(len(items))]

    def some_bytes(self) -> bytes:
        """A few bytes, or many that are the same."""
        kind = self.below(8)
        if kind == 7:
            return self.take(1) * (1 << self.below(20))
        return self.take(self.below(6 if kind else 200))

    def number(self) -> int:
        """A number of at most 64 bits: small, or around a power of two."""
        kind = self.below(4)
        if kind < 2:
            return self.below(16)
        if kind == 2:
            return self.below(1 << 16)
        return max(0, min((1 << self.below(65)) + self.below(5) - 2, 2**64 - 1))

    def times(self, limit: int) -> Iterator[None]:
        """Yields `most` times, or fewer."""
        for _ in range(self.below(limit + 1)):
            yield


@contextmanager
def low_limits() -> Iterator[None]:
    """Within, the limits of reading are low: the targets take that for granted."""
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
# Making records, chunks and files
# ---------------------------------------------------------------------------


def _message(choices: Choices, depth: int = 0) -> bytes:
    """A proto message, mostly."""
    fields = []
    for _ in choices.times(6):
        number = choices.pick((1, 2, 3, 1, 2, 17, 1 << 20))
        kind = choices.below(8)
        if kind < 2:
            fields.append(_field(number, 0, core.encode_varints((choices.number(),))))
        elif kind == 2:
            fields.append(_field(number, 5, choices.take(4).ljust(4, b"\1")))
        elif kind == 3:
            fields.append(_field(number, 1, choices.take(8).ljust(8, b"\1")))
        elif kind == 4 or depth == 4:
            fields.append(_field(number, 2, _with_length(choices.take(choices.below(20)))))
        elif kind == 5:
            inside = _message(choices, depth + 1)
            fields.append(_field(number, 3, inside) + _field(number, 4, b""))
        elif kind == 6:
            fields.append(_field(number, 2, _with_length(_message(choices, depth + 1))))
        else:
            fields.append(choices.take(choices.below(5)))
    return b"".join(fields)


def _field(number: int, wire_type: int, content: bytes) -> bytes:
    return core.encode_varints((number << 3 | wire_type,)) + content


def _with_length(content: bytes) -> bytes:
    return core.encode_varints((len(content),)) + content


def _records(choices: Choices) -> list[bytes]:
    records = []
    for _ in choices.times(8):
        record = choices.some_bytes()[:5000] if choices.below(6) == 0 else _message(choices)
        records += [record] * (1 + choices.pick((0, 0, 0, 1, 12)))
    return records


def _damaged(parts: Parts, choices: Choices) -> Parts:
    """A sound transposed chunk with some damage, which no hash gives away."""
    for _ in choices.times(4):
        kind = choices.below(3)
        if kind == 1:
            parts = _with_other_state(parts, choices)
            continue
        if kind == 2:
            parts = _with_other_buffer(parts, choices)
            continue
        name = choices.pick(_PARTS)
        if name == "first":
            parts = parts.but(first=choices.number())
        elif name in ("subtypes", "transitions", "behind_header"):
            parts = parts.but(**{name: _changed_bytes(getattr(parts, name), choices)})
        elif name == "buckets":
            changed = _changed_items(parts.buckets, choices, _changed_bytes, Choices.some_bytes)
            parts = parts.but(buckets=changed)
        else:
            numbers = getattr(parts, name) or [len(bucket) for bucket in parts.buckets]
            changed = _changed_items(numbers, choices, _changed_number, Choices.number)
            parts = parts.but(**{name: changed})
    return parts


def _with_other_state(parts: Parts, choices: Choices) -> Parts:
    """The same with a state that stands for something else, described as it should be."""
    subtypes, indices = iter(parts.subtypes), iter(parts.indices)
    states = []
    for tag in parts.tags:
        subtype = next(subtypes, 0) if has_subtype(tag) else 0
        states.append((tag, subtype, next(indices, 0) if has_buffer(tag, subtype) else 0))
    at = choices.below(len(states)) if states else 0
    tag = choices.pick((0, 1, 2, 3, *range(8, 15), *range(16, 23), 1 << 20, choices.below(1 << 32)))
    index = choices.below(len(parts.buffer_sizes) + 1)
    states[at : at + 1] = [(tag, choices.below(140), index)]
    nexts = list(parts.nexts)
    nexts[at : at + 1] = [choices.below(2 * len(states))]
    return parts.but(
        tags=[tag for tag, _, _ in states],
        nexts=nexts,
        subtypes=bytes(subtype for tag, subtype, _ in states if has_subtype(tag)),
        indices=[index for tag, subtype, index in states if has_buffer(tag, subtype)],
    )


def _with_other_buffer(parts: Parts, choices: Choices) -> Parts:
    """The same with other values in a buffer, and right sizes."""
    values = b"".join(parts.buckets)
    at = choices.below(len(parts.buffer_sizes) + 1)
    sizes = list(parts.buffer_sizes)
    begin = sum(sizes[:at])
    buffer = values[begin : begin + sum(sizes[at : at + 1])]
    if choices.below(2):
        buffer = buffer[choices.below(2) : len(buffer) - choices.below(3)]
    else:
        buffer = _changed_bytes(buffer, choices)
    behind = values[begin + sum(sizes[at : at + 1]) :]
    sizes[at : at + 1] = [len(buffer)]
    return parts.but(buckets=[values[:begin] + buffer + behind], buffer_sizes=sizes)


def _changed_bytes(data: bytes, choices: Choices) -> bytes:
    at = choices.below(len(data) + 1)
    return data[:at] + choices.some_bytes() + data[at + choices.below(3) :]


def _changed_number(number: int, choices: Choices) -> int:
    if choices.below(2):
        return choices.number()
    return min(max(0, number + choices.pick((1, -1, 2, -2))), 2**64 - 1)


def _changed_items(
    items: Sequence[T],
    choices: Choices,
    change: Callable[[T, Choices], T],
    make: Callable[[Choices], T],
) -> list[T]:
    changed = list(items)
    at = choices.below(len(changed) + 1)
    kind = choices.below(6)
    if at == len(changed) or kind == 0:
        changed.insert(at, make(choices))
    elif kind == 1:
        del changed[at]
    elif kind == 2:
        changed[at:at] = changed[at : at + 1] * choices.below(300)
    else:
        changed[at] = change(changed[at], choices)
    return changed


def _transposed_parts(choices: Choices) -> tuple[Parts, int, int]:
    """A transposed chunk with some damage; and how many records of which size it should have."""
    records = _records(choices)
    parts = _damaged(parts_of(records, choices.pick((None, 1, 10))), choices)
    num_records, size = len(records), sum(map(len, records))
    for _ in choices.times(1):
        num_records = choices.pick((num_records + 1, choices.number() >> 8, 0))
        size = choices.pick((size + 1, choices.number(), max(0, size - 1)))
    return parts, num_records, size


def _chunk(choices: Choices) -> Chunk:
    kind = choices.below(4)
    compressor = choices.pick(_COMPRESSORS)
    if kind < 2:
        parts, num_records, size = _transposed_parts(choices)
        data = parts.data(compressor)
        if kind == 1:
            data = _changed_bytes(data, choices)
        return Chunk(choices.pick(b"tttm"), data, num_records % (1 << 56), size)
    if kind == 2:
        records = _records(choices)
        size, sizes = sum(map(len, records)), list(map(len, records))
        if choices.below(2):
            sizes = _changed_items(sizes, choices, _changed_number, Choices.number)
        stored = compressed(core.encode_varints(sizes), compressor)
        data = bytes([compressor.compression_type]) + _with_length(stored)
        data += compressed(b"".join(records), compressor)
        if choices.below(3) == 0:
            data = _changed_bytes(data, choices)
        return Chunk(ord("r"), data, len(records) + choices.pick((0, 0, 1)), size)
    data = bytes([choices.pick((0, 0x62, 0x7A, 0x73, 1))]) + choices.some_bytes()
    return Chunk(
        choices.pick(_CHUNK_TYPES), data, choices.number() >> 8, choices.pick((0, choices.number()))
    )


def _file(choices: Choices) -> bytes:
    """A file of hostile chunks under right hashes; or bytes as they come."""
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
                choices.number(), header.data_hash, header.chunk_type, header.num_records, 1
            )
        if header.end(len(data)) - len(data) > 1 << 22:  # What is claimed, but not there.
            data += header.encode() + chunk.data
        else:
            data += Chunk.encode(chunk, len(data))
    for _ in choices.times(3):
        if choices.below(2):
            block = choices.below(len(data) // BLOCK_SIZE + 1) * BLOCK_SIZE
            data[block : block + 24] = encode_block_header(choices.number(), choices.number())
        else:
            at = choices.below(len(data))
            data[at] ^= 1 << choices.below(8)
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
        assert len(regions) <= 1000 + len(file), "recovery does not come to an end"
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
            riegeli.RecordPosition(choices.below(len(file) + 10), choices.number() >> 1)
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
    """The short way to read a small file gives what the long way gives, or nothing."""
    records = decode_file._decode_small_file(file)
    if records is not None:
        with riegeli.RecordReader(io.BytesIO(file)) as reader:
            assert records == list(reader.read_records())


def decode_chunks(data: bytes) -> None:
    """Decodes a hostile transposed chunk: what comes out must be what was announced."""
    choices = Choices(data)
    parts, num_records, size = _transposed_parts(choices)
    if num_records > MAX_SIZE:  # A file would have to be that long.
        return
    try:
        chunk = parts.chunk(num_records, size, choices.pick(_COMPRESSORS))
    except ResourceExhaustedError:  # No writer would make it, so long are its parts.
        return
    records = None
    with suppress(riegeli.RiegeliError):
        records = transposed_chunk.decode_transposed_chunk(chunk, num_records)
    scope: Any = choices.pick(({}, {1: True}, {1: None, 2: {1: True}}))
    try:
        part = transposed_chunk.decode_transposed_chunk(chunk, num_records, scope)
    except riegeli.RiegeliError:
        # What is not in the scope is no longer there to be looked at, but states still run.
        assert records is None, "sound as a whole, but not in part"
        return
    assert len(part) == num_records
    if records is not None:
        assert len(records) == num_records
        assert sum(map(len, records)) == size
        assert sum(map(len, part)) <= size


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (ValueError, LookupError) as e:
        return type(e), str(e)


def _exactly(data: bytes | memoryview) -> "array[int]":
    """The same bytes in memory of that size, without the zero that Python puts behind bytes."""
    return array("B", data)


def compare_twins(data: bytes) -> None:
    """Does the same in the compiled core and in plain Python."""
    _compiled = compiled_core()

    choices = Choices(data)
    parts, num_records, size = _transposed_parts(choices)
    arguments: list[Any] = []

    def run_machine(*args: Any) -> list[bytes]:
        arguments.extend(args)
        return []

    with (
        mock.patch.object(transposed_chunk, "run_machine", run_machine),
        suppress(riegeli.RiegeliError),
    ):
        transposed_chunk.decode_transposed_chunk(parts.chunk(num_records, size), num_records)
    if arguments and size <= MAX_SIZE:
        states, first, buffers, transitions = arguments[:4]
        scope = choices.pick((True, True, {}, {1: True}))
        announced = (num_records, size, scope)
        actual = _outcome(
            _compiled.run_machine,
            *(states, first, list(map(_exactly, buffers)), _exactly(transitions), *announced),
        )
        expected = _outcome(pure.run_machine, states, first, buffers, transitions, *announced)
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
        exact = [_exactly(arg) if isinstance(arg, bytes | memoryview) else arg for arg in args]
        actual = _outcome(getattr(_compiled, name), *exact)
        assert actual == _outcome(getattr(pure, name), *args), name
    _compare_block_headers(Choices(remaining))


def _compare_block_headers(choices: Choices) -> None:
    _compiled = compiled_core()

    begin = choices.pick((0, 1, 64, 65511, BLOCK_SIZE - choices.below(50)))
    pieces = [choices.some_bytes(), memoryview(choices.some_bytes()), choices.take(50)]
    assert _compiled.join(pieces) == b"".join(pieces)
    end = begin + sum(map(len, pieces)) + choices.below(200)
    laid_out = _outcome(_compiled.interleave_block_headers, pieces, begin, end)
    assert laid_out == _outcome(pure.interleave_block_headers, pieces, begin, end)
    if not isinstance(laid_out, bytes):
        return
    damaged = bytearray(laid_out)
    if choices.below(2) and damaged:
        damaged[choices.below(len(damaged))] ^= 1
    at = choices.below(len(damaged) + 1)
    stored = memoryview(damaged)[at : at + choices.pick((1 << 20, choices.below(1 << 17)))]
    args = (stored, begin + at, begin + choices.pick((0, 0, 0, 1)), end)
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
