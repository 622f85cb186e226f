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
    return [e for part in source.parts("train") for e in source.episodes("train", part)]


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
    goes_on = tf.cast(fields["step_type"][1] != 2, tf.float32)
    return {
        "observation": fields["observation"],
        "action": fields["action"][0],
        "reward": fields["reward"][0],
        "discount": fields["discount"][0] * goes_on,
    }


@pytest.mark.slow
@pytest.mark.parametrize("lacks_last", [False, True])
def test_a_window_is_the_transition_that_the_published_loader_reads(tmp_path, lacks_last):
    raw = raw_rlu.bsuite_windows(lacks_last=lacks_last)
    files = raw_rlu.write_files(tmp_path / "raw", "0_full", raw)
    builder = convert(
        RluBsuiteSource(tmp_path / "raw"), name="made", data_dir=tmp_path, shuffle=False
    )
    records = tf.data.TFRecordDataset([str(file) for file in files], "GZIP")
    episodes = load(builder).as_numpy_iterator()
    ends = 0
    for episode, record, written in zip(episodes, records, raw, strict=True):
        expected, steps = published_transition(record), episode["steps"]
        np.testing.assert_array_equal(steps["observation"], expected["observation"], strict=True)
        for name in ("action", "reward", "discount"):
            np.testing.assert_array_equal(steps[name][0], expected[name])
            assert steps[name].dtype == expected[name].dtype
        assert steps["recorded_discount"][0] == written["discount"][0] != 0
        assert steps["step_type"].tolist() == written["step_type"].tolist()
        assert episode["episodic_reward"] == written["episodic_reward"]
        assert episode["placeholders"]["action"] == written["action"][1]
        if not lacks_last:
            for name in ("reward", "discount"):
                assert episode["placeholders"][name] == written[name][1]
            assert episode["placeholders"]["recorded_discount"] == written["discount"][1]
        is_end = written["step_type"][1] == 2
        assert steps["is_terminal"].tolist() == [False, is_end]
        assert episode["truncated"] == (not is_end)
        assert (episode["is_window"], episode["complete"]) == (True, False)
        ends += is_end
    assert ends == 2


def test_a_discount_of_zero_ends_too(tmp_path):
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
def test_damaged_records_are_errors_that_say_where(tmp_path, change, message):
    raw = raw_rlu.bsuite_windows()
    changed = {**raw[1], **change}
    raw[1] = {name: values for name, values in changed.items() if values is not None}
    _, damaged, *intact = read(tmp_path, raw)
    assert message in str(damaged.error)
    assert "episode 1" in str(damaged.error)
    assert len(intact) == len(raw) - 2


def test_a_first_record_without_discount_is_an_error_of_the_source(tmp_path):
    raw = raw_rlu.bsuite_windows()
    del raw[0]["discount"]
    with pytest.raises(SourceError, match="episode 0, field 'discount': no such numbers"):
        read(tmp_path, raw)
