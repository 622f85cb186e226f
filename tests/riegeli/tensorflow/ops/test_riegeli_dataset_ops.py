"""A `tf.data.Dataset` gives the records of files in their order."""

from pathlib import Path

import pytest
import tensorflow as tf
from riegeli_internals import Chunk, ChunkType

import riegeli
from riegeli.tensorflow.ops.riegeli_dataset_ops import RiegeliDataset

RECORDS = [b"", b"with zeros \0 \0\0", "größer".encode(), b"\xff" * 1000]


@pytest.fixture
def files(tmp_path):
    """Two paths: of a file with `RECORDS`, and of a file with many."""
    paths = [str(tmp_path / "few ä"), str(tmp_path / "many")]
    for path, records in zip(paths, (RECORDS, many_records())):
        with riegeli.RecordWriter(path, options="transpose,zstd") as writer:
            writer.write_records(records)
    return paths


def many_records():
    """Yields more records than TensorFlow gets at once: first in number, then in bytes."""
    yield from (str(i).encode() for i in range(40_000))
    yield from (bytes([i]) * 300_000 for i in range(10))


def read_all(dataset):
    return list(dataset.as_numpy_iterator())


def test_a_dataset_has_all_records_in_order(files):
    dataset = RiegeliDataset(files)
    assert isinstance(dataset, tf.data.Dataset)
    assert dataset.element_spec == tf.TensorSpec([], tf.string)
    for _ in range(2):
        batches = read_all(dataset.batch(1000))
        assert [record for batch in batches for record in batch] == [*RECORDS, *many_records()]


@pytest.mark.parametrize(
    "names",
    [
        lambda name: name,
        Path,
        lambda name: [name],
        tf.constant,
        lambda name: tf.constant([[name]]),
        tf.data.Dataset.from_tensors,
    ],
    ids=["str", "path", "list", "scalar", "matrix", "dataset"],
)
def test_file_names_may_have_any_form(names, files):
    assert read_all(RiegeliDataset(names(files[0]))) == RECORDS


def test_no_files_have_no_records():
    assert read_all(RiegeliDataset([])) == []


@pytest.mark.parametrize("names", [3, tf.data.Dataset.range(3)])
def test_values_that_are_not_file_names_are_refused(names):
    with pytest.raises(TypeError):
        RiegeliDataset(names)


@pytest.mark.slow
def test_arguments_of_upstream_are_accepted(files):
    assert read_all(RiegeliDataset(files[:1], 1024, 2048)) == RECORDS
    assert read_all(RiegeliDataset(files[:1], buffer_size=tf.constant(1024, tf.int64))) == RECORDS


@pytest.mark.slow
def test_a_dataset_can_be_repeated_batched_and_left_in_the_middle(files):
    batches = read_all(RiegeliDataset(files[0]).repeat(10).batch(len(RECORDS)))
    assert [list(batch) for batch in batches] == [RECORDS] * 10
    assert read_all(RiegeliDataset(files).take(2)) == RECORDS[:2]


@pytest.mark.slow
def test_a_dataset_works_inside_a_tf_function(files):
    @tf.function
    def count():
        return RiegeliDataset(files[0]).reduce(0, lambda n, _: n + 1)

    assert count() == len(RECORDS)


def damage_last_byte(data):
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_last_byte, "data is damaged"),
        (lambda data: data[:-1], "ends in the middle of a chunk"),
        (lambda data: b"something else" * 10, "is it a Riegeli/records file?"),
    ],
    ids=["damaged", "cut off", "no records file"],
)
def test_damage_is_an_invalid_argument(damage, message, files):
    path = Path(files[0])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message) as error:
        read_all(RiegeliDataset(files[0]))
    assert files[0] in str(error.value)


def test_records_before_the_damage_come_first(tmp_path):
    path = tmp_path / "file"
    with riegeli.RecordWriter(path) as writer:
        writer.write_records([b"first", b"second"])
        writer.flush()
        writer.write_record(b"third")
    path.write_bytes(damage_last_byte(path.read_bytes()))
    records = iter(RiegeliDataset(str(path)))
    assert [next(records).numpy(), next(records).numpy()] == [b"first", b"second"]
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(records)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(tf.errors.OpError, match=r"No such file or directory: .*missing"):
        read_all(RiegeliDataset(str(tmp_path / "missing")))


def test_unknown_compression_is_unimplemented(tmp_path):
    path = tmp_path / "file"
    with riegeli.RecordWriter(path, options="uncompressed") as writer:
        writer.write_record(b"x")
    chunk = Chunk(ChunkType.SIMPLE, b"\x01\x02\x00\x00", 1, 0)
    with path.open("ab") as file:
        file.write(chunk.encode(file.tell()))
    with pytest.raises(tf.errors.UnimplementedError, match="unknown compression"):
        read_all(RiegeliDataset(str(path)))
