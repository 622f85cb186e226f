import numpy as np
import pytest
import raw_rlu
import tensorflow as tf

import rlds.sources
from tfds_builders import convert

RluControlSuiteWindowsSource = rlds.sources.formats()["rlu_control_suite_windows"].load()


def published_transition(record):
    """Reads a transition in the manner of the loader that RL Unplugged was published with."""
    shapes = {
        "observation/position": (3,),
        "observation/height": (1,),
        "action": (2,),
        **dict.fromkeys(("reward", "discount", "step_type", "episodic_reward"), ()),
    }
    fields = tf.io.parse_single_example(
        record,
        {
            name: tf.io.FixedLenSequenceFeature(shape, tf.float32, allow_missing=True)
            for name, shape in shapes.items()
        },
    )
    return {
        "position": (fields["observation/position"][0], fields["observation/position"][1]),
        "height": (fields["observation/height"][0], fields["observation/height"][1]),
        "action": fields["action"][0],
        "reward": fields["reward"][0],
        "discount": fields["discount"][0],
        "next_action": fields["action"][1],
    }


@pytest.mark.slow
def test_windows_equal_the_transitions_of_the_published_loader(tmp_path):
    files = raw_rlu.write_files(tmp_path / "raw", "train", raw_rlu.control_suite_windows())
    source = RluControlSuiteWindowsSource(tmp_path / "raw")
    builder = convert(source, name="made", data_dir=tmp_path, shuffle=False)
    records = tf.data.TFRecordDataset([str(file) for file in files], "GZIP")
    episodes = list(builder.as_dataset("train"))
    for episode, record in zip(episodes, records, strict=True):
        expected = published_transition(record)
        first, last = episode["steps"]
        for name in ("position", "height"):
            for step, value in zip((first, last), expected[name], strict=True):
                np.testing.assert_array_equal(step["observation"][name], value)
        for name in ("action", "reward", "discount"):
            np.testing.assert_array_equal(first[name], expected[name])
        np.testing.assert_array_equal(episode["placeholders"]["action"], expected["next_action"])


def test_step_types_mark_the_first_and_last_windows_of_episodes(tmp_path):
    raw_rlu.write_files(tmp_path, "train", raw_rlu.control_suite_windows((5, 4)))
    source = RluControlSuiteWindowsSource(tmp_path)
    episodes = [e for file in source.parts("train") for e in source.episodes("train", file)]
    first_windows = [e for e in episodes if e.steps["step_type"][0] == 0]
    last_windows = [e for e in episodes if e.steps["step_type"][-1] == 2]
    assert (len(episodes), len(first_windows), len(last_windows)) == (7, 2, 2)
    # The first episode is terminal, the second one was truncated.
    assert sorted(e.truncated for e in last_windows) == [False, True]
    assert all(e.truncated for e in episodes if e.steps["step_type"][-1] != 2)
    assert not any(e.complete for e in episodes)
