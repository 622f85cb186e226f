"""The shard index: byte offsets of the fields of examples, for random access to single steps.

    <dataset>/.feeds/<name of the shard>.index

An index holds byte offsets: of the records of a TFRecord file, and of the lists in them whose
elements are direct. Element `t` of a direct field is at

    offsets[example] + starts[example, field] + t * (sizes[example, field] // num_elements[example])

and has `layouts[field].width` bytes. An element is read without parsing. Fields with other storage,
such as compressed arrays, have the start `NOT_DIRECT`: decode their examples.

One scan of a file builds its index. The index is saved next to the file, or in a cache if the
folder is not writable, and used until the file changes. `tfds_files.indexing` builds indexes, and
`tfds_files.index_files` stores them.
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
    "last_bytes": ("|u1", True),
}
"""The arrays of a `ShardIndex`: their dtypes, and whether they have an axis for the fields."""


@dataclasses.dataclass(frozen=True)
class ShardIndex:
    """The byte offsets of the fields of `E` examples of a shard with `F` fields.

    A slice of an index is the index of some of its examples.

    Attributes:
      path: The shard.
      file_size: The size of the shard in bytes.
      modified_ns: The time of modification of the shard, see `os.stat`.
      checksum: The CRC-32C of the checksums in the shard, which identifies its content.
      is_verified: Whether the data of all records was compared with the checksums.
      sequence: The name of the field whose elements are counted, such as "steps".
      layouts: The storage of the elements of each field.
      offsets: The byte offset of the data of each record; int64[E].
      lengths: The number of bytes of the data of each record; int64[E].
      num_elements: The number of elements of the sequence; uint32[E].
      starts: The offset in the data of the first element of a field; for strings, of their list;
        or `NOT_DIRECT`; uint32[E, F].
      sizes: The number of bytes of all elements, with the heads between them; uint32[E, F].
      last_bytes: The last value of each list of integers of one byte, such as flags; 255 for other
        fields; uint8[E, F].
      string_ends: For each field of strings `(rows, ends)`: the strings of example `e` end at
        `ends[rows[e] : rows[e + 1]]`, from its start; int64[E + 1] and uint32[...].
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
    last_bytes: np.ndarray
    string_ends: dict[str, tuple[np.ndarray, np.ndarray]]

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(layout.name for layout in self.layouts)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, examples: slice) -> ShardIndex:
        start, end, step = examples.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice of examples needs step 1, got {step}")
        rows = slice(start, max(start, end))
        return dataclasses.replace(
            self,
            **{name: getattr(self, name)[rows] for name in ARRAYS},
            string_ends={
                name: (string_rows[rows.start : rows.stop + 1], ends)
                for name, (string_rows, ends) in self.string_ends.items()
            },
        )

    def find_strings(
        self, field: str, examples: np.ndarray, elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the byte ranges of texts or image files in the shard.

        Args:
          field: The name of the field.
          examples: The indices of the examples, whose field must be direct.
          elements: The indices of the elements in the examples, which must exist.

        Returns:
          The starts and the ends; int64.
        """
        string_rows, ends = self.string_ends[field]
        column = self.fields.index(field)
        strings = string_rows[examples] + elements
        end = ends[strings].astype(np.int64)
        start = np.where(elements > 0, ends[np.maximum(strings - 1, 0)], 0).astype(np.int64)
        base = self.offsets[examples] + self.starts[examples, column]
        return base + start + head_sizes(end - start), base + end


def stored_checksum(data: np.ndarray, ends: np.ndarray) -> int:
    """Returns the CRC-32C of the checksums that are stored after records."""
    checksums = data[ends[:, np.newaxis] + np.arange(FOOTER.size)]
    return int(google_crc32c.value(checksums.tobytes()))
