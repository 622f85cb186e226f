"""Partial episodes, by the simplest example: windows of the control suite."""

import numpy as np
import pytest
import raw_rlu
from hypothesis import given, settings
from hypothesis import strategies as st

import rlds.sources
from rlds.sources import DamagedEpisode, SourceError

RluControlSuiteWindowsSource = rlds.sources.formats()["rlu_control_suite_windows"].load()


def read(directory, raw, **kwargs):
    raw_rlu.write_files(directory, "train", raw)
    source = RluControlSuiteWindowsSource(directory, **kwargs)
    return [e for file in source.parts("train") for e in source.episodes("train", file)]


def make_window(step_types, **changes):
    """Returns a window of a synthetic episode."""
    rows = len(step_types)
    return {
        "observation/position": np.arange(3 * rows, dtype=np.float32),
        "action": np.arange(2 * rows, dtype=np.float32),
        "reward": np.arange(1, rows + 1, dtype=np.float32),
        "discount": np.ones(rows, np.float32),
        "step_type": np.array(step_types, np.float32),
        **changes,
    }


PLAIN = make_window([1, 1])


@given(st.lists(st.integers(2, 6), min_size=1, max_size=3).map(tuple), st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_raw_rows_can_be_restored(tmp_path_factory, lengths, rows):
    raw = [PLAIN, *raw_rlu.windows(raw_rlu.control_suite_episodes(lengths, order="sar"), rows)]
    for expected in raw[1:]:
        del expected["observation/height"], expected["episodic_reward"]
    episodes = read(tmp_path_factory.mktemp("raw"), raw)
    for episode, expected in zip(episodes, raw, strict=True):
        assert episode.final_observation_known
        assert episode.num_steps == len(expected["step_type"])
        assert episode.metadata["is_window"]
        for name in ("action", "reward", "discount"):
            column = [*episode.steps[name][:-1], episode.metadata["placeholders"][name]]
            assert np.ravel(column).tolist() == expected[name].ravel().tolist()
            assert not np.any(episode.steps[name][-1])
        position = episode.steps["observation"]["position"]
        assert position.ravel().tolist() == expected["observation/position"].ravel().tolist()
        assert episode.steps["step_type"].tolist() == expected["step_type"].tolist()


@pytest.mark.parametrize(
    ("step_types", "complete"),
    [
        ([0, 1], False),
        ([1, 1, 1], False),
        ([1, 2], False),
        ([0, 1, 2], True),
        ([0, 2], True),
        ([0], False),
        ([1], False),
        ([2], False),
    ],
)
def test_a_window_is_complete_if_it_is_an_entire_episode(tmp_path, step_types, complete):
    _, _, _, episode = read(tmp_path, [PLAIN, PLAIN, PLAIN, make_window(step_types)])
    assert episode.complete == complete
    assert episode.steps["is_first"].tolist() == [True, *[False] * (len(step_types) - 1)]
    assert episode.steps["is_last"].tolist() == [*[False] * (len(step_types) - 1), True]


@pytest.mark.parametrize(
    ("discounts", "is_terminal"), [([0, 1], True), ([1, 0], False), ([0.5, 0], False)]
)
def test_a_window_is_terminal_if_its_last_discount_is_zero(tmp_path, discounts, is_terminal):
    raw = make_window([1, 2], discount=np.array(discounts, np.float32))
    _, episode = read(tmp_path, [PLAIN, raw])
    assert episode.steps["is_terminal"].tolist() == [False, is_terminal]
    assert episode.truncated == (not is_terminal)
    assert episode.steps["discount"].tolist() == [discounts[0], 0]
    assert episode.metadata["placeholders"]["discount"] == discounts[1]


@pytest.mark.parametrize("names", [("reward",), ("reward", "discount")])
def test_the_last_row_may_have_no_reward(tmp_path, names):
    raw = [
        make_window(types, **{name: np.full(len(types) - 1, 0.25, np.float32) for name in names})
        for types in ([1, 1], [1, 1, 2], [2])
    ]
    first, second, third = read(tmp_path, raw)
    assert first.steps["reward"].tolist() == [0.25, 0]
    assert second.steps["reward"].tolist() == [0.25, 0.25, 0]
    assert third.steps["reward"].tolist() == [0]
    for episode in (first, second, third):
        assert episode.metadata["placeholders"].keys() == {"action", "reward", "discount"} - {
            *names
        }


@pytest.mark.parametrize(
    ("step_types", "message"),
    [
        ([1, 0], "row 1, field 'step_type': 0, expected 1, or 0 in the first row, or 2 in the"),
        ([2, 0], "row 0, field 'step_type': 2, expected 1"),
        ([0, 2, 1], "row 1, field 'step_type': 2, expected 1"),
        ([1, 3], "row 1, field 'step_type': 3, expected 1"),
        ([np.nan, 1], "row 0, field 'step_type': nan, expected 1"),
    ],
    ids=str,
)
def test_a_window_across_episodes_is_damage(tmp_path, step_types, message):
    first, damaged, third = read(tmp_path, [PLAIN, make_window(step_types), PLAIN])
    assert isinstance(damaged, DamagedEpisode)
    assert message in str(damaged.error)
    assert first.num_steps == third.num_steps == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.ones(3, np.float32)}, "'reward': 3 values, expected 1 for each of 2 rows"),
        ({"reward": np.ones(1, np.float32)}, "'reward': 1 values, expected 1 for each of 2 rows"),
        ({"action": np.ones(5, np.float32)}, "'action': 5 values, expected 2 for each of 2 rows"),
        ({"step_type": np.ones(0, np.float32)}, "'step_type': no such field, or it is"),
        ({"reward": np.array([np.inf, 1], np.float32)}, "row 0, field 'reward': inf, expected a"),
        ({"observation/position": [b"x"]}, "'observation/position': strings, but float32 number"),
    ],
    ids=str,
)
def test_a_window_that_differs_from_the_first_is_damaged(tmp_path, changes, message):
    _, damaged, third = read(tmp_path, [PLAIN, make_window([1, 1], **changes), PLAIN])
    assert message in str(damaged.error)
    assert third.num_steps == 2


def test_a_missing_field_is_damage(tmp_path):
    raw = {name: values for name, values in PLAIN.items() if name != "step_type"}
    with pytest.raises(SourceError, match="field 'step_type': no such field"):
        read(tmp_path, [raw])
    _, damaged, _ = read(tmp_path, [PLAIN, raw, PLAIN])
    assert "episode 1, field 'step_type'" in str(damaged.error)


def test_a_truncated_file_of_windows_ends_with_damage(tmp_path):
    (file,) = raw_rlu.write_files(tmp_path, "train", raw_rlu.control_suite_windows(), num_files=1)
    file.write_bytes(file.read_bytes()[:-60])
    source = RluControlSuiteWindowsSource(tmp_path)
    *intact, damaged = source.episodes("train", file.name)
    assert intact
    assert damaged.ends_part
    assert "the file ends" in str(damaged.error) or "gzip" in str(damaged.error)


def test_any_other_alignment_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"got 'rsa', expected one of \('sar',\)"):
        read(tmp_path, [PLAIN], alignment="rsa")
