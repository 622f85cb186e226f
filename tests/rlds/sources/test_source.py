import numpy as np
import pytest

import rlds
from rlds.sources import Origin, SourceEpisode
from rlds.sources.source import summary_of


@pytest.mark.parametrize(
    ("reward", "is_final_known", "total"),
    [
        (np.array([1.5, 2, 9], np.float32), True, 3.5),
        (np.array([1.5, 2, 9], np.float32), False, 12.5),
        (np.array([250, 250, 1], np.uint8), True, 500),
        (np.ones((3, 2)), True, None),
        (None, True, None),
    ],
)
def test_total_reward_excludes_the_placeholder(reward, is_final_known, total):
    steps = {} if reward is None else {"reward": reward}
    episode = SourceEpisode(
        "0", steps, Origin("file", 0, 3), False, final_observation_known=is_final_known
    )
    assert episode.total_reward == total


@pytest.mark.parametrize(
    ("last", "transitions"), [((0, 0), 3), ((0, 0.5), 2), (None, 2)], ids=["ends", "cut", "nothing"]
)
def test_episode_without_flags_is_terminal_if_all_discounts_are_zero(last, transitions):
    steps = {"action": np.arange(3)}
    flat, array = steps, steps
    if last is not None:
        columns = np.array([[1, 1], [0, 1], last])
        steps = {**steps, "discount": {"a": columns[:, 0], "b": {"c": columns[:, 1]}}}
        flat = {"action": np.arange(3), "discount/a": columns[:, 0], "discount/b/c": columns[:, 1]}
        array = {"action": np.arange(3), "discount": columns}
    for discounts in (steps, flat, array):
        assert summary_of(discounts, False).num_transitions == transitions


def test_episode_has_a_text_and_a_table():
    steps = {"observation": {"<camera>": np.zeros((900, 4, 4, 3), np.uint8)}, "action": [b""] * 900}
    metadata = {"task": "<b>" + "long" * 99, "goal": np.zeros(9000)}
    episode = SourceEpisode("7", steps, Origin("file", 0, 900), True, metadata=metadata)
    assert repr(episode) == "<SourceEpisode '7', 900 steps of ['observation', 'action']>"
    table = episode._repr_html_()
    assert "<td>observation/&lt;camera&gt;</td><td>uint8</td><td>(900, 4, 4, 3)</td>" in table
    assert "&lt;b&gt;" in table
    assert "<b>" not in table
    assert len(table) < 1000


def test_episode_returns_columns_by_name():
    steps = {"action": np.arange(3)}
    episode = SourceEpisode("0", steps, Origin("", 0, 3), True, metadata={"task": "push"})
    assert len(episode) == 3
    assert episode["steps"] is steps
    assert episode["action"] is steps["action"]
    assert episode["task"] == "push"
    for name in ("reward", 0):
        with pytest.raises(KeyError, match=f"no field {name!r}; there are: task, action, steps"):
            episode[name]


def test_errors_of_missing_names_suggest_existing_names():
    with pytest.raises(AttributeError, match=r"no attribute 'load': use rlds\.sources\.open"):
        rlds.load  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'open': use rlds\.sources\.open"):
        rlds.open  # noqa: B018
