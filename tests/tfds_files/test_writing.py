"""The order and the number of files of complete datasets are those of TFDS."""

from hypothesis import example, given
from hypothesis import strategies as st
from tensorflow_datasets.core.hashing import Hasher
from tensorflow_datasets.core.utils import shard_utils

from tfds_files.writing import num_shards, order_of, shard_ends


@given(st.integers(0, 1 << 40), st.integers(1, 10**6))
@example(5 << 40, 10**6)
@example(3 << 30, 1024)
def test_numbers_and_ends_of_shards_equal_those_of_tfds(num_bytes, num_examples):
    count = num_shards(num_bytes, num_examples)
    assert count == shard_utils.ShardConfig().get_number_shards(num_bytes, num_examples)
    ends = shard_ends(num_examples, count)
    assert ends == shard_utils.get_shard_boundaries(num_examples, count)


@given(st.text(), st.text())
@example("train", "a\\b")
def test_examples_have_the_order_of_tfds(split, key):
    assert int.from_bytes(order_of(split, key), "big") == Hasher(split).hash_key(key)
