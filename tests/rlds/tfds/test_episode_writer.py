"""Episodes written as a TFDS dataset are read back, also after a crash."""

import dataclasses
import textwrap
import warnings

import forked
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tensorflow_datasets import features as tf_features

import rlds
import rlds.editing
import tfds_files
from envlogger.errors import StorageError
from rlds.tfds import (
    DatasetConfig,
    EpisodeWriter,
    generate_config_from_spec,
    load,
)
from rlds.tfds.growing import new_info
from tfds_files import NOT_DIRECT, Tensor, growing, index_files, indexing, open_folder
from tfds_files.example_scan import layouts_of

CONFIG = DatasetConfig(
    name="counting",
    observation_info={
        "count": np.int64,
        "exact": tf_features.Tensor(shape=(), dtype=np.float64, encoding="bytes"),
    },
    action_info=tf_features.Tensor(shape=(2,), dtype=np.float32),
    reward_info=np.float32,
    episode_metadata_info={"id": np.int64},
)


def columns(begin, num_steps=3):
    index = np.arange(num_steps)
    return {
        "observation": {"count": begin + index, "exact": (begin + index) / 3},
        "action": np.stack([index, index + 0.5], axis=1).astype(np.float32),
        "reward": (index / 2).astype(np.float32),
        "is_first": index == 0,
        "is_last": index == num_steps - 1,
        "is_terminal": np.zeros(num_steps, bool),
    }


def episode(begin, num_steps=3):
    return {"steps": columns(begin, num_steps), "id": begin}


def to_rows(steps):
    num_steps = len(steps["is_first"])
    return [step_of(steps, index) for index in range(num_steps)]


def step_of(steps, index):
    return tf.nest.map_structure(lambda column: column[index], steps)


def write(directory, begins, **options):
    with EpisodeWriter(directory, CONFIG, **options) as writer:
        for begin in begins:
            writer.add_episode(episode(begin))


def read_ids(directory, split="train"):
    if not sum(shard_lengths(directory, split)):
        return []
    return [int(example["id"]) for example in load(directory, split)]


def shard_lengths(directory, split="train"):
    return tfds.builder_from_directory(directory).info.splits[split].shard_lengths


def list_files(directory):
    return sorted(path.name for path in directory.iterdir())


def assert_equal(actual, expected):
    tf.nest.map_structure(np.testing.assert_array_equal, actual, expected)


def test_steps_in_any_layout_are_stored(tmp_path):
    layouts = [
        lambda steps: steps,
        lambda steps: tf.nest.map_structure(tf.constant, steps),
        lambda steps: tf.nest.map_structure(list, steps),
        to_rows,
        lambda steps: iter(to_rows(steps)),
        tf.data.Dataset.from_tensor_slices,
    ]
    with EpisodeWriter(tmp_path, CONFIG) as writer:
        for layout in layouts:
            writer.add_episode({"steps": layout(columns(10)), "id": 7})
    episodes = list(tfds.builder_from_directory(tmp_path).as_dataset(split="train"))
    assert len(episodes) == len(layouts)
    for stored in episodes:
        assert int(stored["id"]) == 7
        for step, expected in zip(stored["steps"], to_rows(columns(10)), strict=True):
            assert_equal(step, expected)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["batched", "nested"])
def test_loaded_episodes_are_written_back_unchanged(tmp_path, layout):
    write(tmp_path / "old", [0, 10])
    with EpisodeWriter(tmp_path / "new", CONFIG) as writer:
        for example in load(tmp_path / "old", layout=layout):
            writer.add_episode(example)
    shards = [tmp_path / name / "counting-train.tfrecord-00000" for name in ("old", "new")]
    assert shards[0].read_bytes() == shards[1].read_bytes()


def test_values_that_are_not_episodes_are_refused(tmp_path):
    empty_dataset = {"steps": tf.data.Dataset.from_tensor_slices(columns(3)).take(0), "id": 3}
    tail = {
        "steps": {name: column[1:] for name, column in columns(3).items() if name != "observation"}
    }
    tail["steps"]["observation"] = {name: [1, 2] for name in CONFIG.observation_info}
    with EpisodeWriter(tmp_path, CONFIG) as writer:
        for empty in ({"steps": [], "id": 1}, episode(2, num_steps=0), empty_dataset):
            with pytest.raises(ValueError, match="episode 0 has no steps; leave it out"):
                writer.add_episode(empty)
        with pytest.raises(ValueError, match="step 0, steps/is_first: got False, expected True"):
            writer.add_episode({**tail, "id": 4})
        writer.add_episode(episode(5))
    assert read_ids(tmp_path) == [5]


def test_finished_shards_can_be_read_before_close(tmp_path):
    writer = EpisodeWriter(tmp_path, CONFIG, max_episodes_per_file=2)
    for begin in range(3):
        writer.add_episode(episode(begin))
    assert read_ids(tmp_path) == [0, 1]
    writer.close()
    writer.close()
    assert read_ids(tmp_path) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_appended_episodes_follow_the_old_ones(tmp_path, file_format):
    for begin in (0, 10, 20):
        write(tmp_path, [begin, begin + 1], overwrite=False, file_format=file_format)
    assert read_ids(tmp_path) == [0, 1, 10, 11, 20, 21]
    assert shard_lengths(tmp_path) == [2, 2, 2]


def test_episodes_are_appended_to_an_edited_dataset(tmp_path):
    write(tmp_path, range(5))
    rlds.edit(tmp_path, rlds.editing.Delete(episodes=[1, 3]))
    write(tmp_path, [5], overwrite=False)
    assert read_ids(tmp_path) == [0, 2, 4, 5]


@pytest.mark.slow
def test_several_writers_append_at_the_same_time(tmp_path):
    with (
        EpisodeWriter(tmp_path, CONFIG, overwrite=False) as first,
        EpisodeWriter(tmp_path, CONFIG, overwrite=False) as second,
    ):
        first.add_episode(episode(1))
        second.add_episode(episode(2))
    assert sorted(read_ids(tmp_path)) == [1, 2]


@pytest.mark.slow
def test_overwriting_leaves_no_old_files(tmp_path):
    for begin in (0, 10, 20):
        write(tmp_path, range(begin, begin + 3), max_episodes_per_file=2)
        assert read_ids(tmp_path) == [begin, begin + 1, begin + 2]
        assert len(list_files(tmp_path)) == 4  # No old file is left.
    write(tmp_path, [30], overwrite=False)
    assert read_ids(tmp_path) == [20, 21, 22, 30]


def are_indexed(directory):
    """Returns whether exactly the TFRecord files have usable indexes."""
    folder = open_folder(directory)
    indexes = {path.name for path in (directory / ".feeds").glob("*")}
    paths = [path for path in folder["train"].paths if folder.file_format == "tfrecord"]
    return indexes == {f"{path.name}.index" for path in paths} and all(
        index_files.load(str(path), *layouts_of(folder.features)) for path in paths
    )


def test_indexes_of_shards_follow_their_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "_MIN_INDEXED_BYTES", 0)
    for begin in (0, 10, 20):
        write(tmp_path, range(begin, begin + 3), max_episodes_per_file=2)
        assert are_indexed(tmp_path)
    write(tmp_path, [30], overwrite=False)
    assert are_indexed(tmp_path)
    assert len(list((tmp_path / ".feeds").iterdir())) == 3
    write(tmp_path, [40], file_format="array_record")
    assert not (tmp_path / ".feeds").exists()


def test_numbers_of_the_direct_layout_are_read_without_decoding(tmp_path):
    """The index knows the offset of each number, and TFDS reads the values back."""
    rng = np.random.default_rng(0)
    dtypes = ["bool", "float32", "float64", "float16", "uint8", "int16", "int64", "uint64", "int32"]
    arrays = {name: (rng.normal(size=(7, 2, 3)) * 100).astype(name) for name in dtypes}
    values = {f"{name}_scalar": array[:, 0, 0] for name, array in arrays.items()}
    observation = {**arrays, **values}
    config = DatasetConfig(
        name="direct",
        observation_info={
            name: tf_features.Tensor(
                shape=column.shape[1:], dtype=column.dtype, encoding=("zlib", "none")["s" in name]
            )
            for name, column in observation.items()
        },
        step_metadata_info={"tags": tf_features.Sequence(np.int64)},
    )
    flags = {name: np.arange(7) == position for name, position in (("is_first", 0), ("is_last", 6))}
    steps = {**flags, "is_terminal": flags["is_last"], "observation": observation}
    steps["tags"] = [np.arange(i) for i in range(7)]
    with EpisodeWriter(tmp_path, config, layout="direct") as writer:
        writer.add_episode({"steps": steps})
    (decoded,) = tfds.builder_from_directory(tmp_path).as_dataset(split="train")
    decoded = [tf.nest.map_structure(lambda x: x.numpy(), step) for step in decoded["steps"]]
    for name, column in observation.items():
        stored = np.stack([step["observation"][name] for step in decoded])
        assert (stored.dtype, stored.tobytes()) == (column.dtype, column.tobytes())
    (index,) = tfds_files.open_indexes(open_folder(tmp_path)["train"])
    direct = [name for name, start in zip(index.fields, index.starts[0]) if start != NOT_DIRECT]
    assert sorted({*index.fields} - {*direct}) == ["steps/tags"]
    with pytest.raises(ValueError, match="layout: got 'fast', expected one of"):
        EpisodeWriter(tmp_path, config, layout="fast")
    with pytest.raises(ValueError, match="layout and tensor_encoding decide the same"):
        EpisodeWriter(tmp_path, config, layout="direct", tensor_encoding="zlib")


def test_the_old_split_stays_until_the_new_one_is_complete(tmp_path):
    write(tmp_path, [0, 1])
    old_files = list_files(tmp_path)
    writer = EpisodeWriter(tmp_path, CONFIG, max_episodes_per_file=1)
    writer.add_episode(episode(10))
    assert read_ids(tmp_path) == [0, 1]
    with pytest.raises(ZeroDivisionError), EpisodeWriter(tmp_path, CONFIG) as failing:
        failing.add_episode(episode(20))
        1 / 0  # noqa: B018
    assert read_ids(tmp_path) == [0, 1]
    writer.close()
    assert read_ids(tmp_path) == [10]
    write(tmp_path, [0, 1])
    assert list_files(tmp_path) == old_files


@pytest.mark.slow
def test_exception_keeps_the_episodes_of_a_new_split(tmp_path):
    with pytest.raises(ZeroDivisionError), EpisodeWriter(tmp_path, CONFIG) as writer:
        writer.add_episode(episode(20))
        1 / 0  # noqa: B018
    assert read_ids(tmp_path) == [20]


def test_overwriting_may_change_the_description(tmp_path):
    write(tmp_path, [0, 1])
    config = DatasetConfig(name="other", observation_info=np.int64)
    flags = {name: [True] for name in ("is_first", "is_last", "is_terminal")}
    with EpisodeWriter(tmp_path, config, version="2.0.0", file_format="array_record") as writer:
        writer.add_episode({"steps": {"observation": [5], **flags}})
    builder = tfds.builder_from_directory(tmp_path)
    assert (builder.name, builder.info.splits["train"].num_examples) == ("other", 1)
    assert list_files(tmp_path) == [
        "dataset_info.json",
        "features.json",
        "other-train.array_record-00000",
    ]
    with pytest.raises(
        StorageError, match=r"the splits \['train'\] would be lost: .* another name"
    ):
        EpisodeWriter(tmp_path, CONFIG, split_name="val")


def test_episodes_are_written_to_the_named_split(tmp_path):
    with EpisodeWriter(tmp_path, CONFIG, split_name=["train", "val"]) as writer:
        for begin in range(4):
            writer.add_episode_to_split(episode(begin), "val" if begin == 3 else "train")
        with pytest.raises(KeyError, match=r"no split 'test', it has \['train', 'val'\]"):
            writer.add_episode_to_split(episode(0), "test")
        with pytest.raises(ValueError, match="choose one with add_episode_to_split"):
            writer.add_episode(episode(0))
    assert (read_ids(tmp_path), read_ids(tmp_path, "val")) == ([0, 1, 2], [3])
    write(tmp_path, [10], split_name="val")
    write(tmp_path, [20], split_name="test", overwrite=False)
    assert (read_ids(tmp_path), read_ids(tmp_path, "val")) == ([0, 1, 2], [10])
    assert read_ids(tmp_path, "test") == [20]


@pytest.mark.slow
def test_a_split_without_a_name_is_called_train(tmp_path):
    write(tmp_path, [0], split_name=None)
    assert read_ids(tmp_path, "train") == [0]


def alter(**fields):
    steps = columns(0)
    for name, value in fields.items():
        steps[name] = value
    return {"steps": steps, "id": 0}


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        (
            alter(observation={"count": [0, 1.7, 2], "exact": [0.0] * 3}),
            r"episode 1, step 1, steps/observation/count: got 1.7 \(float\), expected int64",
        ),
        (alter(action=np.zeros((3, 4))), r"steps/action: got float64 of shape \(4,\)"),
        (alter(reward=[0, 1e300, 0]), r"step 1, steps/reward: got 1e\+300 .* expected float32"),
        (alter(reward=[0, "a", 0]), "step 1, steps/reward: got str 'a', expected float32"),
        (alter(reward=np.zeros(2)), "episode 1: the columns of steps need equal lengths"),
        (alter(extra=np.zeros(3)), r"steps: got unknown fields \['extra'\]"),
        (
            {"steps": [*to_rows(columns(0)), {"reward": 1.0}], "id": 1},
            r"step 3, steps: got missing fields \['action', ",
        ),
        ({"steps": [1, 2], "id": 1}, "step 0, steps: got int 1, expected the fields"),
        ({"steps": columns(0)}, r"got \['steps'\], expected the fields \['id', 'steps'\]"),
        ({"steps": columns(0), "id": 1.5}, r"episode 1, id: got 1.5 \(float\), expected int64"),
        ({"steps": to_rows(columns(0))[0], "id": 1}, "need equal lengths"),
    ],
)
def test_episodes_that_do_not_match_the_features_are_refused(tmp_path, invalid, message):
    with EpisodeWriter(tmp_path, CONFIG) as writer:
        writer.add_episode(episode(10))
        with pytest.raises(ValueError, match=message):
            writer.add_episode(invalid)
        writer.add_episode(episode(20))
    assert read_ids(tmp_path) == [10, 20]


@pytest.mark.slow
def test_numbers_are_converted_if_they_keep_their_value(tmp_path):
    with EpisodeWriter(tmp_path, CONFIG) as writer:
        writer.add_episode(
            alter(
                observation={"count": np.array([0, 1, 2], np.uint8), "exact": [0, 1, 0.1]},
                reward=[0, 0.1, 1],
                is_first=[1, 0, 0],
            )
        )
    (example,) = load(tmp_path)
    steps = example["steps"]
    assert steps["observation"]["exact"].numpy().tolist() == [0, 1, 0.1]
    np.testing.assert_array_equal(steps["reward"], np.array([0, 0.1, 1], np.float32))
    assert steps["is_first"].numpy().tolist() == [True, False, False]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_conversion_keeps_values_or_fails(data):
    from rlds.tfds.columns import fit_value

    dtypes = st.sampled_from(["bool", "int8", "uint8", "int64", "uint64", "float32", "float64"])
    value = data.draw(npst.arrays(data.draw(dtypes), (), fill=st.nothing()))
    dtype = np.dtype(data.draw(dtypes))
    try:
        fitted = fit_value(value, Tensor(dtype=dtype), "x", "here")
    except ValueError:
        fits = dtype.kind == "f" and value.dtype.kind == "f" and not np.isfinite(value)
        assert not fits
        if dtype.kind in "iu" and value.dtype.kind in "iub":
            limits = np.iinfo(dtype)
            assert not limits.min <= int(value) <= limits.max
    else:
        assert fitted.dtype == dtype
        if dtype.kind == "f" and value.dtype.kind == "f":
            np.testing.assert_allclose(fitted, value, rtol=1e-6, atol=1e-45)
        else:
            assert fitted.item() == value.item()


# --- Storage of numbers --------------------------------------------------------------------------

PLAIN = dataclasses.replace(CONFIG, observation_info={"count": np.int64, "exact": np.float64})
THIRDS = [1 / 3, 2 / 3, 1]


def read_undecoded(directory):
    """Reads the undecoded steps of the first episode, like dlimp, Octo and OpenVLA."""
    builder = tfds.builder_from_directory(directory)
    decoders = {"steps": tfds.decode.SkipDecoding()}
    return next(builder.as_dataset("train", decoders=decoders).as_numpy_iterator())["steps"]


def test_float64_is_kept_or_rounded_but_never_silently(tmp_path):
    with pytest.warns(
        UserWarning, match="observation_info/exact to float32.*float64='float32'"
    ) as warned:
        EpisodeWriter(tmp_path / "warned", PLAIN).close()
    assert warned[0].filename == __file__
    for choice in ("bytes", "float32"):
        with EpisodeWriter(tmp_path / choice, PLAIN, float64=choice) as writer:
            writer.add_episode(episode(1))
    exact = next(iter(load(tmp_path / "bytes")))["steps"]["observation"]["exact"]
    assert exact.numpy().tolist() == THIRDS
    rounded = read_undecoded(tmp_path / "float32")["observation"]["exact"]
    assert rounded.dtype == np.float32
    assert rounded.tolist() == np.float32(THIRDS).tolist()
    with (
        EpisodeWriter(tmp_path / "float32", PLAIN, float64="float32") as writer,
        pytest.raises(ValueError, match="step 0, steps/observation/exact: got 1e\\+300"),
    ):
        writer.add_episode(alter(observation={"count": np.arange(3), "exact": [1e300, 0, 0]}))


def test_a_dataset_of_another_program_keeps_its_features(tmp_path):
    new_info(PLAIN, tmp_path, version="0.0.1").write_to_directory(tmp_path)
    with EpisodeWriter(tmp_path, PLAIN, overwrite=False) as writer:
        writer.add_episode(episode(1))
    exact = next(iter(load(tmp_path)))["steps"]["observation"]["exact"].numpy()
    assert exact.tolist() == np.float32(THIRDS).tolist()
    with pytest.raises(StorageError, match="other features"):
        EpisodeWriter(tmp_path, PLAIN, overwrite=False, float64="bytes")


@pytest.mark.slow
def test_two_arguments_make_any_numbers_readable_without_decoding(tmp_path):
    num_steps = 3
    kinds = ["bool", "int8", "uint8", "int32", "int64", "uint16", "uint32", "uint64"]
    kinds += ["float16", "float32", "float64"]
    arrays = {
        f"{name}_{rank}": (np.arange(num_steps * 2**rank).reshape(num_steps, *[2] * rank)).astype(
            name
        )
        for name in kinds
        for rank in (0, 1, 2)
    }
    steps = {
        "observation": {**arrays, "camera": np.full((num_steps, 4, 5, 3), 7, np.uint8)},
        "language_instruction": ["näh es"] * num_steps,
        **{flag: columns(0)[flag] for flag in ("is_first", "is_last", "is_terminal")},
    }
    data = {"steps": steps, "stamp": 1.7e9 + 1 / 3}
    config = generate_config_from_spec(data)  # Compressed, as in the published package.
    with EpisodeWriter(tmp_path, config, float64="float32", tensor_encoding="none") as writer:
        writer.add_episode(data)
    stored = read_undecoded(tmp_path)
    for name, column in arrays.items():
        expected = column.astype(np.float32) if column.dtype == np.float64 else column
        assert stored["observation"][name].dtype == expected.dtype, name
        np.testing.assert_array_equal(stored["observation"][name], expected)
    assert stored["language_instruction"][1].decode() == "näh es"
    image = tf.io.decode_image(stored["observation"]["camera"][2])
    np.testing.assert_array_equal(image, steps["observation"]["camera"][2])
    # Fields of episodes are always decoded, and keep their bits.
    assert next(iter(load(tmp_path)))["stamp"].numpy() == 1.7e9 + 1 / 3


def test_plain_arrays_of_unknown_size_are_refused(tmp_path):
    for dtype, options in (
        (np.float32, {"tensor_encoding": "none"}),
        (np.float64, {"float64": "float32"}),
    ):
        cloud = tf_features.Tensor(shape=(None, 3), dtype=dtype, encoding="zlib")
        config = DatasetConfig(name=np.dtype(dtype).name, observation_info={"cloud": cloud})
        EpisodeWriter(tmp_path / config.name, config).close()
        message = (
            r"ds_config, steps/observation/cloud: .* unknown size, \(None, 3\), in steps; give"
        )
        with pytest.raises(ValueError, match=message):
            EpisodeWriter(tmp_path / config.name, config, **options)


def test_the_writer_stores_every_kind_of_tfds_feature(tmp_path):
    config = DatasetConfig(
        name="kinds",
        observation_info={
            "frame": tf_features.Image(shape=(None, None, 3)),
            "label": tf_features.ClassLabel(names=["no", "yes"]),
            "words": tf_features.Sequence(tf_features.Text()),
            "boxes": tf_features.Sequence({"box": tf_features.BBoxFeature(), "size": np.float64}),
            "tree": tf_features.Sequence(tf_features.Sequence(np.int64)),
            "cloud": tf_features.Tensor(shape=(None, 3), dtype=np.float32, encoding="zlib"),
            "text": tf_features.Text(),
        },
        episode_metadata_info={
            "tags": tf_features.Sequence(tf_features.Text()),
            "episode_metadata": {"who": tf_features.Text()},
        },
    )
    box = tf_features.BBox(0.0, 0.0, 1.0, 1.0)
    flags = {"is_first": True, "is_last": False, "is_terminal": False}
    steps = [
        {
            "observation": {
                "frame": np.full((2, 2 + i, 3), i, np.uint8),
                "label": ["no", "yes"][i],
                "words": ["ü", "b"][:i],
                "boxes": {"box": [box] * i, "size": [1 / 3] * i},
                "tree": [[1, 2], []][: i + 1],
                "cloud": np.ones((i, 3)),
                "text": "a\0",
            },
            **flags,
        }
        for i in range(2)
    ]
    with EpisodeWriter(tmp_path, config, float64="bytes") as writer:
        writer.add_episode({"steps": steps, "tags": ["x", "y"], "episode_metadata": {"who": "me"}})
        steps[1]["observation"]["label"] = "perhaps"
        with pytest.raises(
            ValueError, match="episode 1, steps/observation/label, step 1: 'perhaps'"
        ):
            writer.add_episode({"steps": steps, "tags": [], "episode_metadata": {"who": "me"}})
        steps[1]["observation"]["label"] = "yes"
        steps[1]["observation"]["words"] = "ab"
        with pytest.raises(ValueError, match="step 1, steps/observation/words: got str 'ab'"):
            writer.add_episode({"steps": steps, "tags": [], "episode_metadata": {"who": "me"}})
    (example,) = load(tmp_path, layout="nested")
    assert example["tags"].numpy().tolist() == [b"x", b"y"]
    assert example["episode_metadata"]["who"] == b"me"
    actual = [step["observation"] for step in example["steps"]]
    assert [step["frame"].shape for step in actual] == [(2, 2, 3), (2, 3, 3)]
    assert [int(step["label"]) for step in actual] == [0, 1]
    assert [step["words"].numpy().tolist() for step in actual] == [[], ["ü".encode()]]
    assert actual[1]["boxes"]["size"].numpy().tolist() == [1 / 3]
    assert [step["tree"].to_list() for step in actual] == [[[1, 2]], [[1, 2], []]]
    assert [step["cloud"].shape for step in actual] == [(0, 3), (1, 3)]
    assert [step["text"].numpy() for step in actual] == [b"a\0"] * 2


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_episodes_per_file": 0}, ValueError, "must be positive, got 0"),
        ({"split_name": []}, ValueError, r"different names; got \[\]"),
        ({"split_name": ["a", "a"]}, ValueError, "different names"),
        ({"file_format": "riegeli"}, ValueError, "must be one of .* got 'riegeli'"),
        ({"float64": "float16"}, ValueError, "float64: got 'float16', expected one of"),
        ({"tensor_encoding": "bytes"}, ValueError, "tensor_encoding: got 'bytes', expected"),
    ],
)
def test_wrong_arguments_write_no_files(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        EpisodeWriter(tmp_path, CONFIG, **options)
    assert not list_files(tmp_path)


def test_sequences_of_a_fixed_length_are_refused(tmp_path):
    config = DatasetConfig(name="x", observation_info=tf_features.Sequence(np.int64, length=2))
    with pytest.raises(
        ValueError, match="steps/observation: TFDS cannot read sequences of a fixed"
    ):
        EpisodeWriter(tmp_path, config)


def test_a_closed_writer_takes_no_episodes(tmp_path):
    writer = EpisodeWriter(tmp_path, CONFIG)
    writer.close()
    with pytest.raises(ValueError, match="the writer is closed"):
        writer.add_episode(episode(0))
    with pytest.raises(ValueError, match=r"load: the split 'train' of .* has no episodes"):
        load(tmp_path)


def fail(*args, **options):
    raise OSError("the power is gone")


def test_a_kill_while_a_shard_gets_its_format_loses_no_episode(tmp_path, monkeypatch):
    options = {"file_format": "array_record", "overwrite": False}
    writer = EpisodeWriter(tmp_path, CONFIG, **options)
    writer.add_episode(episode(0))
    with monkeypatch.context() as patch:
        patch.setattr(growing.GrowingDataset, "_publish_numbered", fail)
        with pytest.raises(StorageError, match="the power is gone"):
            writer.close()
    assert [name for name in list_files(tmp_path) if name.endswith(".whole")]
    writer = EpisodeWriter(tmp_path / "other", CONFIG, **options)
    writer.add_episode(episode(0))
    with monkeypatch.context() as patch:
        patch.setattr(growing.GrowingDataset, "_publish", fail)
        with pytest.raises(StorageError, match="the power is gone"):
            writer.close()
    for directory in (tmp_path, tmp_path / "other"):
        with pytest.warns(UserWarning, match="added 1 episodes to the split 'train'") as warned:
            write(directory, [1], **options)
        # protobuf 6 warns, too, because TFDS uses the label of a field.
        (warning,) = (w for w in warned if w.category is UserWarning)
        assert warning.filename == __file__
        assert read_ids(directory) == [0, 1]
        assert not [name for name in list_files(directory) if name.startswith(".")]


@pytest.mark.parametrize("step", ["sync", "GrowingDataset._write"])
def test_a_kill_while_a_split_is_replaced_keeps_one_complete_split(tmp_path, monkeypatch, step):
    write(tmp_path, range(3), max_episodes_per_file=1)
    writer = EpisodeWriter(tmp_path, CONFIG)
    for begin in (10, 20):
        writer.add_episode(episode(begin))
    writer._writer.flush()
    with monkeypatch.context() as patch:
        patch.setattr(f"tfds_files.growing.{step}", fail)
        with pytest.raises(StorageError, match="the power is gone"):
            writer.close()
    assert read_ids(tmp_path) == [0, 1, 2]
    write(tmp_path, [30])
    assert read_ids(tmp_path) == [30]
    assert len(list_files(tmp_path)) == 3


# Writes in one child process at a time, which the kernel kills at a random moment.
KILL_SCRIPT = """
    import os, random, signal, sys
    import numpy as np
    from rlds.tfds import DatasetConfig, EpisodeWriter

    config = DatasetConfig(
        name="counting", observation_info=np.int64, episode_metadata_info={"id": np.int64}
    )
    flags = {name: [True] * 4 for name in ("is_first", "is_last", "is_terminal")}

    def write(writer, index):
        writer.add_episode({"steps": {"observation": [index] * 4, **flags}, "id": index})

    def append(directory, note):
        file_format = "array_record" if directory.endswith("1") else "tfrecord"
        writer = EpisodeWriter(
            directory, config, max_episodes_per_file=3, overwrite=False, file_format=file_format
        )
        for index in range(10**9):
            write(writer, index)
            os.pwrite(note, b"%d" % (index + 1), 0)
            if not index:
                die_soon()

    def replace(directory, note):
        for generation in range(10**9):
            with EpisodeWriter(directory, config, max_episodes_per_file=3) as writer:
                for index in range(7):
                    write(writer, 10 * generation + index)
            os.pwrite(note, b"%d" % (generation + 1), 0)
            if not generation:
                die_soon()

    def die_soon():
        signal.setitimer(signal.ITIMER_REAL, delay)

    rng = random.Random(int(sys.argv[2]))
    for run in range(int(sys.argv[3])):
        for task in (append, replace):
            directory = f"{sys.argv[1]}/{task.__name__}{run}"
            note = os.open(directory + ".note", os.O_CREAT | os.O_RDWR)
            delay = 1e-6 + 0.7 * rng.random()
            child = os.fork()
            if not child:
                task(directory, note)
            _, status = os.waitpid(child, 0)
            assert os.WTERMSIG(status) == signal.SIGALRM, status
"""


@pytest.mark.slow  # Two fast tests above cover the critical moments.
def test_a_kill_at_any_moment_loses_no_finished_episode(tmp_path):
    num_kills = 20
    run = forked.run(textwrap.dedent(KILL_SCRIPT), tmp_path, 1, num_kills)
    assert run.returncode == 0, run.stderr
    for index in range(num_kills):
        directory = tmp_path / f"append{index}"
        num_accepted = int((tmp_path / f"append{index}.note").read_text() or 0)
        finished = read_ids(directory)
        assert finished == list(range(len(finished)))
        assert len(finished) >= num_accepted // 3 * 3 - 3
        config = DatasetConfig(
            name="counting", observation_info=np.int64, episode_metadata_info={"id": np.int64}
        )
        file_format = "array_record" if index % 10 == 1 else "tfrecord"
        with warnings.catch_warnings(action="ignore"):  # About recovered episodes.
            EpisodeWriter(directory, config, overwrite=False, file_format=file_format).close()
        recovered = read_ids(directory)
        assert recovered == list(range(len(recovered)))
        assert num_accepted <= len(recovered) <= num_accepted + 1

        directory = tmp_path / f"replace{index}"
        num_complete = int((tmp_path / f"replace{index}.note").read_text() or 0)
        actual = read_ids(directory)
        assert actual in [
            [10 * generation + i for i in range(7)]
            for generation in (num_complete - 1, num_complete)
        ]
        with EpisodeWriter(directory, config) as writer:
            steps = {name: [True] for name in ("is_first", "is_last", "is_terminal")}
            writer.add_episode({"steps": {"observation": [1], **steps}, "id": 1})
        assert list_files(directory) == [
            next(name for name in list_files(directory) if "train" in name),
            "dataset_info.json",
            "features.json",
        ]


@pytest.mark.slow
def test_a_filtered_copy_has_the_features_and_the_metadata_of_the_original(tmp_path):
    metadata = {"robot": "arm", "rates": np.array([10, 20])}
    config = dataclasses.replace(CONFIG, overall_description="of an arm", homepage="https://a.b/c")
    with EpisodeWriter(tmp_path / "a", config, metadata=metadata) as writer:
        for begin in (0, 3, 6):
            writer.add_episode(episode(begin))
    original = tfds.builder_from_directory(tmp_path / "a").info
    assert dict(original.metadata) == {"robot": "arm", "rates": [10, 20]}

    with EpisodeWriter(tmp_path / "b", original) as writer:
        for example in load(tmp_path / "a").filter(lambda e: e["id"] != 3):
            writer.add_episode(example)
    copy = tfds.builder_from_directory(tmp_path / "b").info
    assert (copy.name, copy.features.to_json()) == (original.name, original.features.to_json())
    assert dict(copy.metadata) == dict(original.metadata)
    assert (copy.description, copy.homepage) == (original.description, original.homepage)
    assert read_ids(tmp_path / "b") == [0, 6]

    with EpisodeWriter(tmp_path / "b", original, metadata={"chosen": "even"}) as writer:
        writer.add_episode(episode(0))
    assert dict(tfds.builder_from_directory(tmp_path / "b").info.metadata) == {"chosen": "even"}
