import numpy as np
import pytest

from rlds.sources import Origin, SourceEpisode


@pytest.mark.parametrize(
    ("reward", "known", "total"),
    [
        (np.array([1.5, 2, 9], np.float32), True, 3.5),
        (np.array([1.5, 2, 9], np.float32), False, 12.5),
        (np.array([250, 250, 1], np.uint8), True, 500),
        (np.ones((3, 2)), True, None),
        (None, True, None),
    ],
)
def test_the_total_reward_has_no_placeholder(reward, known, total):
    steps = {} if reward is None else {"reward": reward}
    episode = SourceEpisode("0", steps, Origin("file", 0, 3), False, final_observation_known=known)
    assert episode.total_reward == total
