"""Splits the values of a simple chunk into records, and joins pieces of bytes."""

from collections.abc import Sequence

from riegeli._pure.varints import read_varint


def join(pieces: Sequence[bytes | memoryview], /) -> bytes | memoryview:
    """Joins pieces of bytes; a single piece is returned unchanged."""
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def split_records(
    sizes: bytes | memoryview, num_records: int, values: bytes | memoryview
) -> list[bytes]:
    """Splits `values` into records, whose lengths are the varints in `sizes`.

    Raises:
      ValueError: the number of varints is not `num_records`, or their sum is not `len(values)`.
    """
    if num_records > len(sizes):
        raise ValueError(f"{num_records} record sizes cannot fit in {len(sizes)} bytes")
    records = []
    offset = begin = 0
    for index in range(num_records):
        size, offset = read_varint(sizes, offset)
        end = begin + size
        if end > len(values):
            raise ValueError(f"record {index} ends at byte {end} of {len(values)} bytes of values")
        records.append(bytes(values[begin:end]))
        begin = end
    if offset != len(sizes):
        raise ValueError(f"{len(sizes) - offset} bytes follow the {num_records} record sizes")
    if begin != len(values):
        raise ValueError(f"records take {begin} of {len(values)} bytes of values")
    return records
