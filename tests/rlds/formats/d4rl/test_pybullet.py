import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_d4rl_pybullet import write_pybullet

import rlds.sources
from rlds.sources import SourceError, reading

D4rlPybulletSource = rlds.sources.formats()["d4rl_pybullet"].load()


def read_episodes(source):
    return [source.read("train", index) for index in range(source.num_episodes("train"))]


def read_arrays(path):
    with h5py.File(path) as file:
        return {name: file[name][:] for name in file}


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans())
def test_rewards_belong_to_the_actions_that_led_to_them(tmp_path_factory, lengths, cut):
    if cut and lengths == [0]:
        return  # No rows.
    path = write_pybullet(tmp_path_factory.mktemp("pybullet") / "a.hdf5", lengths, cut=cut)
    arrays, row = read_arrays(path), 0
    for episode in read_episodes(D4rlPybulletSource(path)):
        steps = episode.steps
        assert episode.origin.begin == row
        for step in range(episode.num_steps):
            np.testing.assert_array_equal(steps["observation"][step], arrays["observations"][row])
            assert steps["terminals"][step] == arrays["terminals"][row, 0]
            if step < episode.num_steps - 1:
                np.testing.assert_array_equal(steps["action"][step], arrays["actions"][row])
                assert steps["reward"][step] == arrays["rewards"][row + 1, 0]
            row += 1
        assert not steps["action"][-1].any()
        assert steps["reward"][-1] == 0
    assert row == len(arrays["rewards"])


def test_episodes_end_by_terminals_time_limits_or_the_end_of_the_file(tmp_path):
    path = write_pybullet(tmp_path / "a.hdf5", [4, 10, 3, 6], cut=True)
    terminal, ambiguous, shorter, cut = read_episodes(D4rlPybulletSource(path, time_limit=10))
    for episode in (terminal, shorter):
        assert episode.steps["is_terminal"][-1]
        assert (episode.truncated, episode.complete) == (False, True)
        assert episode.steps["discount"][-2] == 0
    assert not ambiguous.steps["is_terminal"][-1]
    assert (ambiguous.truncated, ambiguous.complete) == (True, True)
    assert ambiguous.steps["terminals"][-1] == 1
    assert ambiguous.steps["discount"][-2] == 1
    assert (cut.truncated, cut.complete, cut.num_steps) == (True, False, 6)
    assert [e.metadata["terminal_is_ambiguous"] for e in (terminal, ambiguous, cut)] == [0, 1, 0]
    assert all(episode.final_observation_known for episode in (terminal, ambiguous, shorter, cut))


def test_fields_without_damage_can_be_read(tmp_path):
    path = write_pybullet(tmp_path / "a.hdf5", [4, 3], cut=True)
    intact = read_episodes(D4rlPybulletSource(path))
    with h5py.File(path, "a") as file:
        rows = file.pop("observations")[:]
        file.create_dataset("observations", data=rows, chunks=rows.shape, fletcher32=True)
        chunk = file["observations"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset] ^= 1
    path.write_bytes(content)
    source = D4rlPybulletSource(path)
    for index, episode in enumerate(intact):
        for field in ("action", "reward", "discount", "terminals", "is_last", "is_terminal"):
            steps = reading.read_steps(source, "train", index, [field])
            assert list(steps) == [field]
            np.testing.assert_array_equal(steps[field], episode.steps[field], strict=True)
        with pytest.raises(SourceError, match="field 'observations'"):
            reading.read_steps(source, "train", index, ["observation"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": None}, "field 'actions': missing"),
        ({"rewards": np.zeros(9)}, "field 'rewards'"),
        ({"terminals": np.zeros((9, 2))}, "field 'terminals'"),
        ({"actions": np.zeros((8, 3))}, "field 'actions'"),
        ({"terminals": np.full((9, 1), 2)}, "row 0, field 'terminals': 2, expected 0 or 1"),
        ({"timeouts": np.zeros(9)}, r"the file also has the arrays \['timeouts'\]; .*=.d4rl"),
        ({"observations": np.zeros((0, 2))}, "field 'observations': there are no rows"),
    ],
    ids=str,
)
def test_malformed_files_are_refused(tmp_path, changes, message):
    path = write_pybullet(tmp_path / "a.hdf5", [4, 3])
    with h5py.File(path, "a") as file:
        for name, value in changes.items():
            file.pop(name, None)
            if value is not None:
                file[name] = value
    with pytest.raises(SourceError, match=rf"a.hdf5, .*{message}|a.hdf5: {message}"):
        D4rlPybulletSource(path)


def test_a_warning_names_the_format_whose_rewards_are_in_the_row_of_their_action(tmp_path):
    path = write_pybullet(tmp_path / "a.hdf5", [2])
    with h5py.File(path, "a") as file:
        file["rewards"][:, 0] = [1, 2, 3]
    with pytest.warns(UserWarning, match=r'a\.hdf5: read as d4rl-pybullet.*format="d4rl"'):
        rlds.sources.open(path)
    (episode,) = rlds.sources.open(path, format="d4rl", boundary="flags")
    assert episode.steps["reward"].tolist() == [1, 2, 3]


def test_time_limit_has_to_be_positive(tmp_path):
    with pytest.raises(ValueError, match="time_limit: got 0, expected 1 or more"):
        D4rlPybulletSource(write_pybullet(tmp_path / "a.hdf5", [4]), time_limit=0)
