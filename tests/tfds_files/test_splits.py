import pickle
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tfds_files
from tfds_files.splits import ranges_of

GOLDEN = Path(__file__).parents[1] / "golden" / "tfds_4_9_10" / "tfrecord"

LIMITS = st.one_of(
    st.integers(-12, 12), st.integers(-101, 101), st.floats(-110, 110).map(lambda x: f"{x:.2f}")
)
BOUNDS = st.one_of(
    st.just(""),
    st.builds(lambda n, unit: f"{n}{unit}", LIMITS, st.sampled_from(["", "%", "shard"])),
)
SLICES = st.one_of(
    st.sampled_from(["train", "test", "all", "no", "train[]", "train[1:2:3]", "", "all[:5]"]),
    st.builds(lambda name, low, high: f"{name}[{low}:{high}]", st.just("train"), BOUNDS, BOUNDS),
    st.builds(lambda low: f"train[{low}]", BOUNDS),
)


def ranges_by_tfds(name, shard_lengths):
    template = tfds.core.ShardedFileTemplate(
        data_dir=Path("nowhere"), dataset_name="it", filetype_suffix="tfrecord"
    )
    splits = {
        split: tfds.core.SplitInfo(
            name=split,
            shard_lengths=list(lengths),
            num_bytes=0,
            filename_template=template.replace(split=split),
        )
        for split, lengths in shard_lengths.items()
    }
    for absolute in tfds.core.splits.AbstractSplit.from_spec(name).to_absolute(splits):
        end = splits[absolute.splitname].num_examples if absolute.to is None else absolute.to
        yield absolute.splitname, absolute.from_ or 0, end


@settings(max_examples=8 * settings().max_examples)
@given(
    st.lists(SLICES, min_size=1, max_size=3),
    st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from(["+", " + ", "  +"]),
)
@example(["train[:50%]"], [5], "+")  # Half of an example is rounded to the even number.
@example(["train[-1shard]"], [2, 3], "+")
@example(["train[5:10%]"], [200], "+")
@example(["train[:0shard]"], [2, 3], "+")
@example(["train[1_0:]"], [20], "+")
def test_names_of_splits_have_the_meaning_of_tfds(slices, lengths, plus):
    name, shard_lengths = plus.join(slices), {"train": lengths, "test": [3]}
    try:
        expected = list(ranges_by_tfds(name, shard_lengths))
    except Exception:
        with pytest.raises((KeyError, ValueError)):
            ranges_of(name, shard_lengths)
        return
    assert ranges_of(name, shard_lengths) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["train[1:]", "train[:50%]+test", "train[-1shard] + train[:1]", "all", "test[1:2]+test[:-1]"],
)
def test_slices_have_the_examples_that_tfds_reads(name):
    split = tfds_files.open_folder(GOLDEN)[name]
    builder = tfds.builder_from_directory(GOLDEN)
    actual = tfds.as_numpy(
        builder.as_dataset(
            name, decoders=tfds.decode.PartialDecoding({"label": True, "int64": True})
        )
    )
    expected = [row["int64"].tolist() for row in actual]
    assert [example["int64"].tolist() for example in split] == expected
    assert [
        split.example(i - len(split), ["int64"])["int64"].tolist() for i in range(len(split))
    ] == expected
    assert sum(split.shard_lengths) == len(split) == len(expected)


def test_slices_of_splits_have_their_examples():
    dataset = tfds_files.open_folder(GOLDEN)
    split = dataset["train[1:]"]
    assert repr(split) == "Split('train[1:]', 2 examples in 2 shards)"
    assert split.paths == dataset["train"].paths
    assert len(dataset["train[2:1]"]) == len(list(dataset["train[:0]"])) == 0
    assert "train[1:]" not in dataset
    with pytest.raises(IndexError, match=r"train\[1:\]: example 2 of 2"):
        split[2]
    assert pickle.loads(pickle.dumps(split)).example_bytes(0) == dataset["train"].example_bytes(1)
    for name, message in (
        ("train[:9]", r"tfrecord: 'train\[:9\]': the split has only 3 examples"),
        ("train[0]", "a single number must be the number of a shard"),
        ("train[:200%]", "200% is more than 100%"),
        ("train[1.5:]", "'1.5' is not a number"),
        ("train 1", "'train 1' is not a split or a slice"),
    ):
        with pytest.raises(ValueError, match=message):
            dataset[name]
