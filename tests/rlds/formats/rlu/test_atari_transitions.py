import numpy as np
import pytest
import raw_rlu
import tensorflow as tf

import rlds.sources
from rlds.sources import SourceError
from rlds.tfds import load
from tfds_builders import convert

RluAtariTransitionsSource = rlds.sources.formats()["rlu_atari_transitions"].load()

SHAPE = (6, 4)


@pytest.fixture
def raw():
    return raw_rlu.atari_transitions(shape=SHAPE)


def read(directory, raw):
    raw_rlu.write_files(directory, "run_1", raw, num_files=1)
    source = RluAtariTransitionsSource(directory)
    return [e for file in source.parts("train") for e in source.episodes("train", file)]


def stack(step):
    """Returns the four frames of a step as the published loader does."""
    return tf.concat([step["observation"][f"frame_{index}"] for index in range(4)], axis=-1)


def published_transition(record):
    """Reads a transition in the manner of the loader that RL Unplugged was published with."""
    fields = tf.io.parse_single_example(
        record,
        {
            **dict.fromkeys(("o_t", "o_tp1"), tf.io.FixedLenFeature([4], tf.string)),
            **dict.fromkeys(("a_t", "a_tp1", "episode_id"), tf.io.FixedLenFeature([], tf.int64)),
            **dict.fromkeys(
                ("r_t", "d_t", "episode_return"), tf.io.FixedLenFeature([], tf.float32)
            ),
        },
    )
    for name in ("o_t", "o_tp1"):
        frames = [tf.io.decode_png(frame, channels=1) for frame in fields[name]]
        fields[name] = tf.concat(frames, axis=-1)
    return {**fields, "episode_id": tf.bitcast(fields["episode_id"], tf.uint64)}


@pytest.mark.slow
def test_transitions_equal_those_of_the_published_loader(tmp_path, raw):
    files = raw_rlu.write_files(tmp_path / "raw", "run_1", raw)
    source = RluAtariTransitionsSource(tmp_path / "raw")
    builder = convert(source, name="made", data_dir=tmp_path, shuffle=False)
    records = tf.data.TFRecordDataset([str(file) for file in files], "GZIP")
    for episode, record in zip(list(builder.as_dataset("train")), records, strict=True):
        expected = published_transition(record)
        first, last = episode["steps"]
        np.testing.assert_array_equal(stack(first), expected["o_t"], strict=True)
        np.testing.assert_array_equal(stack(last), expected["o_tp1"], strict=True)
        for name, raw_name in (("action", "a_t"), ("reward", "r_t"), ("discount", "d_t")):
            np.testing.assert_array_equal(first[name], expected[raw_name], strict=True)
            assert not np.any(last[name])
        assert episode["placeholders"].keys() == {"action"}
        assert episode["placeholders"]["action"] == expected["a_tp1"]
        assert episode["recorded_episode_id"] == expected["episode_id"]
        assert episode["recorded_episode_id"].dtype == tf.uint64
        assert episode["episode_return"] == expected["episode_return"]
        assert bool(last["is_terminal"]) == (expected["d_t"] == 0) == (not episode["truncated"])
        assert episode["is_window"]
        assert episode["final_observation_known"]
        assert not episode["complete"]
    ids = {int(episode["recorded_episode_id"]) for episode in builder.as_dataset("train")}
    assert ids == {0, 2**64 - 1}


@pytest.mark.slow
def test_published_images_are_stored_unchanged(tmp_path, raw):
    raw_rlu.write_files(tmp_path / "raw", "run_1", raw)
    source = RluAtariTransitionsSource(tmp_path / "raw")
    builder = convert(source, name="made", data_dir=tmp_path, shuffle=False)
    stored = load(builder, decode=["reward"]).as_numpy_iterator()
    for episode, expected in zip(stored, raw, strict=True):
        for index in range(4):
            frames = episode["steps"]["observation"][f"frame_{index}"].tolist()
            assert frames == [expected["o_t"][index], expected["o_tp1"][index]]


@pytest.mark.slow
def test_batches_of_stacks_can_be_read_at_once(tmp_path, raw):
    raw_rlu.write_files(tmp_path / "raw", "run_1", raw)
    source = RluAtariTransitionsSource(tmp_path / "raw")
    builder = convert(source, name="made", data_dir=tmp_path)
    (batch,) = (
        load(builder, fields=["observation"]).map(lambda e: stack(e["steps"])).batch(len(raw))
    )
    assert batch.shape == (len(raw), 2, *SHAPE, 4)


def png(height, width):
    return tf.io.encode_png(np.zeros((height, width, 1), np.uint8)).numpy()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"o_t": [png(*SHAPE)] * 3}, "field 'o_t': 3 strings, expected 4 strings"),
        ({"o_tp1": [png(*SHAPE)] * 5}, "field 'o_tp1': 5 strings, expected 4 strings"),
        ({"o_tp1": []}, "field 'o_tp1': 0 strings, expected 4 strings"),
        ({"o_tp1": None}, "field 'o_tp1': no such field; the record has ['a_t', "),
        ({"a_tp1": None}, "field 'a_tp1': no such field"),
        ({"a_t": np.array([1, 2])}, "field 'a_t': 2 int64 numbers, expected 1 int64 numbers"),
        ({"r_t": np.array([1])}, "field 'r_t': 1 int64 numbers, expected 1 float32 numbers"),
        ({"o_t": np.arange(4)}, "field 'o_t': 4 int64 numbers, expected 4 strings"),
        ({"episode_return": None}, "field 'episode_return': no such field, but the first"),
        (
            {"o_t": [b"GIF89a"] * 4},
            "field 'o_t': string 0 is not a PNG image: it begins with b'GIF89",
        ),
        ({"r_t": np.array([np.nan], np.float32)}, "row 0, field 'reward': nan, expected a finite"),
    ],
    ids=str,
)
def test_errors_of_damaged_records_name_the_record(tmp_path, raw, change, message):
    fields = {**raw[1], **change}
    raw[1] = {name: values for name, values in fields.items() if values is not None}
    _, damaged, *intact = read(tmp_path, raw)
    assert message in str(damaged.error)
    assert "run_1-00000-of-00001, episode 1" in str(damaged.error)
    assert len(intact) == len(raw) - 2


@pytest.mark.parametrize(
    ("name", "row", "frame", "message"),
    [
        ("o_t", 0, png(*SHAPE)[:-1], "the PNG image is cut off"),
        ("o_tp1", 1, png(4, 6), "expected a PNG image of shape (6, 4, 1)"),
    ],
)
def test_errors_of_damaged_frames_name_the_row(tmp_path, raw, name, row, frame, message):
    raw[1][name] = [*raw[1][name][:2], frame, raw[1][name][3]]
    _, damaged, *_ = read(tmp_path, raw)
    assert f"row {row}, field 'o_t[2], o_tp1[2]': {message}" in str(damaged.error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"o_tp1": [png(*SHAPE)] * 3}, "'o_tp1': 3 strings, expected 4 strings"),
        ({"d_t": None}, "'d_t': no such field"),
    ],
    ids=["frames", "discount"],
)
def test_a_malformed_first_record_is_an_error_of_the_source(tmp_path, raw, change, message):
    raw = [
        {name: values for name, values in {**record, **change}.items() if values is not None}
        for record in raw
    ]
    with pytest.raises(SourceError, match=f"episode 0, field {message}"):
        read(tmp_path, raw)
