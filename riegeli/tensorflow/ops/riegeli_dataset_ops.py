"""Records of Riegeli/records files as a `tf.data.Dataset`."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from riegeli.base.riegeli_error import InvalidArgumentError, UnimplementedError
from riegeli.records.record_reader import RecordReader

__all__ = ("RiegeliDataset",)

# Records are passed to TensorFlow in blocks: single records take a hundred times as long.
_BLOCK_BYTES = 1 << 20
_BLOCK_RECORDS = 1 << 14


class RiegeliDataset(tf.data.Dataset):  # type: ignore[misc]
    """The records of one or more Riegeli/records files, as scalar `tf.string` tensors.

    The order is the order of the files and of the records in each file. Files are read in the
    background, one or two megabytes ahead. As with `tf.data.Dataset.from_generator`, this process
    reads the files: the dataset cannot be saved with a graph or sent to another process.

    After the last readable record, iteration raises `tf.errors.OpError`: `InvalidArgumentError` for
    damaged or truncated files, `UnimplementedError` for an unknown compression, and `UnknownError`
    for other errors such as a missing file.

    Example:
      >>> import tempfile
      >>> import riegeli
      >>> path = tempfile.mkdtemp() + "/greetings"
      >>> with riegeli.RecordWriter(path) as writer:
      ...     writer.write_records([b"hello", b"bonjour"])
      >>> [record.decode() for record in RiegeliDataset(path).as_numpy_iterator()]
      ['hello', 'bonjour']

    Args:
      filenames: The file names: a single name, a list, a `tf.string` tensor of any shape, or a
        dataset of scalars.
      min_buffer_size: Ignored; accepted for compatibility.
      max_buffer_size: Ignored; accepted for compatibility.
      buffer_size: Ignored; accepted for compatibility.
    """

    def __init__(
        self,
        filenames: "str | os.PathLike[str] | Sequence[str] | tf.Tensor | tf.data.Dataset",
        min_buffer_size: "int | tf.Tensor | None" = None,
        max_buffer_size: "int | tf.Tensor | None" = None,
        buffer_size: "int | tf.Tensor | None" = None,
    ) -> None:
        del min_buffer_size, max_buffer_size, buffer_size
        self._records = (
            _create_file_dataset(filenames).flat_map(_create_block_dataset).prefetch(1).unbatch()
        )
        super().__init__(self._records._variant_tensor)

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._records]

    @property
    def element_spec(self) -> tf.TensorSpec:
        """A scalar string."""
        return tf.TensorSpec([], tf.string)


def _create_file_dataset(filenames: Any) -> tf.data.Dataset:
    if isinstance(filenames, tf.data.Dataset):
        spec = filenames.element_spec
        if not tf.TensorSpec([], tf.string).is_compatible_with(spec):
            raise TypeError(f"filenames must be a dataset of scalar strings, not of {spec}")
        return filenames
    if isinstance(filenames, os.PathLike):
        filenames = os.fspath(filenames)
    filenames = tf.convert_to_tensor(filenames, tf.string, name="filenames")
    return tf.data.Dataset.from_tensor_slices(tf.reshape(filenames, [-1]))


def _create_block_dataset(filename: tf.Tensor) -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(
        _read_blocks, output_signature=tf.TensorSpec([None], tf.string), args=(filename,)
    )


def _read_blocks(filename: bytes) -> Iterator[list[bytes]]:
    """Yields the records of a file, in lists of about the same size."""
    block: list[bytes] = []
    size = 0
    failure: Exception | None = None
    try:
        with RecordReader(os.fsdecode(filename)) as reader:
            for record in reader.read_records():
                block.append(record)
                size += len(record)
                if size >= _BLOCK_BYTES or len(block) >= _BLOCK_RECORDS:
                    yield block
                    block, size = [], 0
    # TensorFlow has error codes of its own for these exceptions.
    except InvalidArgumentError as e:
        failure = ValueError(str(e))
    except UnimplementedError as e:
        failure = NotImplementedError(str(e))
    if block:
        yield block
    if failure is not None:
        raise failure
