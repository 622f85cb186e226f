"""Statistics of stored datasets; for those of Beam, see test_beam.py."""

import numpy as np
import pytest

import rlds.tfds
from tfds_builders import dataset_statistics


def test_unmarked_last_actions_are_reported_once_for_all_files(tmp_path):
    rng = np.random.default_rng(0)
    steps = {
        "action": rng.normal(size=(4, 2)).astype(np.float32),
        "is_first": np.arange(4) == 0,
        "is_last": np.arange(4) == 3,
        "is_terminal": np.zeros(4, bool),
    }
    config = rlds.tfds.generate_config_from_spec({"steps": steps}, name="real")
    with rlds.tfds.EpisodeWriter(tmp_path, config, max_episodes_per_file=1) as writer:
        for _ in range(3):
            writer.add_episode({"steps": steps})
    with pytest.warns(UserWarning, match="in 3 of 3 episodes the last action") as warned:
        without_last = dataset_statistics(tmp_path)
    assert [w.filename for w in warned if w.category is UserWarning] == [__file__]
    assert without_last.num_transitions == 9
    with_last = dataset_statistics(tmp_path, include_last_action=True)
    assert with_last.num_transitions == 12
    np.testing.assert_allclose(with_last["action"].mean, steps["action"].mean(0), rtol=1e-6)
