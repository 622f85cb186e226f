"""The shard index: byte offsets of the fields of examples, for random access to single steps.

    <dataset>/.feeds/<name of the shard>.index

An index has no data, but positions: those of the records of a TFRecord file, and in them those of
the lists whose elements are direct. Element `t` of such a field is at

    offsets[example] + starts[example, field] + t * (sizes[example, field] // num_elements[example])

and has `layouts[field].width` bytes. Nothing is parsed to read it. Fields that are stored in other
ways, such as compressed arrays and strings, have the start `NOT_DIRECT`: decode their examples.

An index is made of a file by scanning it once. It is saved beside the file, or in a cache if that
cannot be written to, and used as long as the file does not change. See `tfds_files.indexing`
for how it is made, and `tfds_files.index_files` for what is in its file.
"""

from __future__ import annotations

import dataclasses

import google_crc32c
import numpy as np

from tfds_files.example_scan import NOT_DIRECT, FieldLayout, head_sizes
from tfds_files.record_files import FOOTER

__all__ = ["ARRAYS", "NOT_DIRECT", "FieldLayout", "ShardIndex", "stored_checksum"]


ARRAYS = {
    "offsets": ("<i8", False),
    "lengths": ("<i8", False),
    "num_elements": ("<u4", False),
    "starts": ("<u4", True),
    "sizes": ("<u4", True),
    "last": ("|u1", True),
}
"""The arrays of a `ShardIndex`: their dtypes, and whether they have an axis for the fields."""


@dataclasses.dataclass(frozen=True)
class ShardIndex:
    """The byte offsets of the fields of the examples of a shard, or of a part of it.

    Of `E` examples with `F` fields. Slices of it are indexes of some of the examples.

    Attributes:
      path: The shard.
      file_size: Its size in bytes.
      modified_ns: When it was changed, as `os.stat` says.
      checksum: The CRC-32C of the checksums that the shard stores with its records: it differs
        where the contents do.
      is_verified: Whether the data of all records had their checksums.
      sequence: The name of the field whose elements are counted, such as "steps".
      layouts: The storage of the elements of each field.
      offsets: The byte offset of the data of each record; int64[E].
      lengths: The number of bytes of that data; int64[E].
      num_elements: The number of elements of the sequence; uint32[E].
      starts: The offset in the data of the first element of a field; or, for strings, of their
        list; or `NOT_DIRECT`; uint32[E, F].
      sizes: The number of bytes of all elements, with the heads between them; uint32[E, F].
      last: The last value of each list of integers of one byte, such as flags; 255 where there is
        none; uint8[E, F].
      entries: For each field of strings `(begins, ends)`: the strings of example `e` end at
        `ends[begins[e] : begins[e + 1]]`, from its start; int64[E + 1] and uint32[...].
    """

    path: str
    file_size: int
    modified_ns: int
    checksum: int
    is_verified: bool
    sequence: str
    layouts: tuple[FieldLayout, ...]
    offsets: np.ndarray
    lengths: np.ndarray
    num_elements: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    last: np.ndarray
    entries: dict[str, tuple[np.ndarray, np.ndarray]]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(layout.name for layout in self.layouts)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, examples: slice) -> ShardIndex:
        begin, end, step = examples.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice of examples needs step 1, got {step}")
        rows = slice(begin, max(begin, end))
        return dataclasses.replace(
            self,
            **{name: getattr(self, name)[rows] for name in ARRAYS},
            entries={
                name: (begins[rows.start : rows.stop + 1], ends)
                for name, (begins, ends) in self.entries.items()
            },
        )

    def find_strings(
        self, field: str, examples: np.ndarray, elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the byte ranges of texts or image files in the shard.

        Args:
          field: The name of the field.
          examples: The examples that they are in, of which the field is direct.
          elements: Their numbers in these, which must be there.

        Returns:
          Where each begins, and where it ends; int64.
        """
        begins, ends = self.entries[field]
        column = self.fields.index(field)
        number = begins[examples] + elements
        after = ends[number].astype(np.int64)
        before = np.where(elements > 0, ends[np.maximum(number - 1, 0)], 0).astype(np.int64)
        base = self.offsets[examples] + self.starts[examples, column]
        return base + before + head_sizes(after - before), base + after


def stored_checksum(data: np.ndarray, ends: np.ndarray) -> int:
    """The CRC-32C of the checksums that are stored after records."""
    stored = data[ends[:, np.newaxis] + np.arange(FOOTER.size)]
    return int(google_crc32c.value(stored.tobytes()))
