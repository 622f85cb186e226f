import numpy as np
import pytest
import raw_rlu
import tensorflow as tf

import rlds.sources
from rlds.sources import SourceError
from rlds.tfds import load
from tfds_builders import convert

RluBsuiteSource = rlds.sources.formats()["rlu_bsuite"].load()


def read(directory, raw):
    raw_rlu.write_files(directory, "0_full", raw, num_files=1)
    source = RluBsuiteSource(directory)
    return [e for file in source.parts("train") for e in source.episodes("train", file)]


def published_transition(record):
    """Reads a transition in the manner of the loader that RL Unplugged was published with."""

    def sequence(dtype, shape=()):
        return tf.io.FixedLenSequenceFeature(shape, dtype, allow_missing=True)

    fields = tf.io.parse_single_example(
        record,
        {
            "observation": sequence(tf.float32, (6,)),
            "action": sequence(tf.int64),
            "step_type": sequence(tf.int64),
            **{name: sequence(tf.float32) for name in ("reward", "discount", "episodic_reward")},
        },
    )
    continues = tf.cast(fields["step_type"][1] != 2, tf.float32)
    return {
        "observation": fields["observation"],
        "action": fields["action"][0],
        "reward": fields["reward"][0],
        "discount": fields["discount"][0] * continues,
    }


@pytest.mark.slow
@pytest.mark.parametrize("lacks_last", [False, True])
def test_windows_equal_the_transitions_of_the_published_loader(tmp_path, lacks_last):
    raw = raw_rlu.bsuite_windows(lacks_last=lacks_last)
    files = raw_rlu.write_files(tmp_path / "raw", "0_full", raw)
    builder = convert(
        RluBsuiteSource(tmp_path / "raw"), name="made", data_dir=tmp_path, shuffle=False
    )
    records = tf.data.TFRecordDataset([str(file) for file in files], "GZIP")
    episodes = load(builder).as_numpy_iterator()
    num_ends = 0
    for episode, record, raw_window in zip(episodes, records, raw, strict=True):
        expected, steps = published_transition(record), episode["steps"]
        np.testing.assert_array_equal(steps["observation"], expected["observation"], strict=True)
        for name in ("action", "reward", "discount"):
            np.testing.assert_array_equal(steps[name][0], expected[name])
            assert steps[name].dtype == expected[name].dtype
        assert steps["recorded_discount"][0] == raw_window["discount"][0] != 0
        assert steps["step_type"].tolist() == raw_window["step_type"].tolist()
        assert episode["episodic_reward"] == raw_window["episodic_reward"]
        assert episode["placeholders"]["action"] == raw_window["action"][1]
        if not lacks_last:
            for name in ("reward", "discount"):
                assert episode["placeholders"][name] == raw_window[name][1]
            assert episode["placeholders"]["recorded_discount"] == raw_window["discount"][1]
        is_end = raw_window["step_type"][1] == 2
        assert steps["is_terminal"].tolist() == [False, is_end]
        assert episode["truncated"] == (not is_end)
        assert (episode["is_window"], episode["complete"]) == (True, False)
        num_ends += is_end
    assert num_ends == 2


def test_a_discount_of_zero_ends_the_episode(tmp_path):
    raw = raw_rlu.bsuite_windows((4,))
    (index,) = (i for i, window in enumerate(raw) if window["step_type"].tolist() == [1, 1])
    raw[index]["discount"] = np.array([0, 1], np.float32)
    episode = read(tmp_path, raw)[index]
    assert episode.steps["is_terminal"].tolist() == [False, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discount": None}, "field 'discount': no such numbers"),
        ({"discount": [b"1"]}, "field 'discount': no such numbers"),
        ({"step_type": None}, "field 'step_type': no such numbers; the record has ["),
        ({"step_type": [b"1", b"2"]}, "field 'step_type': no such numbers"),
        ({"action": None}, "field 'action': no such field, but the first record has it"),
        ({"discount": np.ones(3, np.float32)}, "field 'discount': 3 values, expected 1 for each"),
        ({"observation": np.ones(11, np.float32)}, "'observation': 11 values, expected 6 for each"),
        ({"action": np.ones(2, np.float32)}, "'action': float32 numbers, but int64 numbers in th"),
        ({"step_type": np.array([2, 0])}, "row 0, field 'step_type': 2, expected 1"),
    ],
    ids=str,
)
def test_errors_of_damaged_records_name_the_record(tmp_path, change, message):
    raw = raw_rlu.bsuite_windows()
    fields = {**raw[1], **change}
    raw[1] = {name: values for name, values in fields.items() if values is not None}
    _, damaged, *intact = read(tmp_path, raw)
    assert message in str(damaged.error)
    assert "episode 1" in str(damaged.error)
    assert len(intact) == len(raw) - 2


def test_a_first_record_without_discount_is_an_error_of_the_source(tmp_path):
    raw = raw_rlu.bsuite_windows()
    del raw[0]["discount"]
    with pytest.raises(SourceError, match="episode 0, field 'discount': no such numbers"):
        read(tmp_path, raw)
