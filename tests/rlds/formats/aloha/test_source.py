"""Files of ACT and ALOHA, against plain loops over them."""

import h5py
import numpy as np
import pytest
import raw_aloha

import rlds.sources
from rlds.sources import SourceError

IMAGES = ("plain", "padded", "rows", "matrix")


def check_episode(episode, path, images):
    """Compares an episode with its file, row by row."""
    with h5py.File(path) as file:
        steps = episode.steps
        num_steps = len(file["action"])
        assert episode.key == path.stem
        assert episode.num_steps == num_steps
        assert not episode.final_observation_known
        assert episode.truncated
        assert episode.complete
        for row in range(num_steps):
            assert steps["is_first"][row] == (row == 0)
            assert steps["is_last"][row] == (row == num_steps - 1)
            assert not steps["is_terminal"][row]
            assert steps["discount"][row] == 1
            for name in ("action", "base_action", "base_vel"):
                assert steps[name][row].tobytes() == file[name][row].tobytes()
            for name in ("qpos", "qvel", "effort"):
                actual = steps["observation"][name]
                assert actual.dtype == np.float32
                assert actual[row].tobytes() == file["observations"][name][row].tobytes()
            for name in raw_aloha.CAMERAS:
                actual = steps["observation"]["images"][name][row]
                stored = file["observations/images"][name][row]
                if images == "plain":
                    np.testing.assert_array_equal(actual, stored)
                elif images == "rows":
                    assert actual == stored.tobytes()
                else:
                    assert actual == stored[: len(actual)].tobytes()
                    assert not stored[len(actual) :].any()
        assert {"reward", "language_instruction"} & steps.keys() == set()
        for name in file.attrs:
            assert episode.metadata[name] == file.attrs[name]


@pytest.mark.slow
@pytest.mark.parametrize("images", IMAGES)
def test_episodes_have_the_rows_of_their_files(tmp_path, images):
    raw_aloha.write_folder(tmp_path, images=images, mobile=True, attributes={"by": "ü"})
    episodes = rlds.sources.open(tmp_path)
    assert episodes.format == "aloha"
    assert [episode.key for episode in episodes] == ["episode_0", "episode_2", "episode_10"]
    for episode in episodes:
        check_episode(episode, tmp_path / f"{episode.key}.hdf5", images)
    all_steps = episodes.columns(2)
    columns = episodes.columns(2, ["observation/images/cam_low", "action"], 1, 3)
    np.testing.assert_array_equal(columns["action"], all_steps["action"][1:3])
    frames = columns["observation"]["images"]["cam_low"]
    np.testing.assert_array_equal(frames, all_steps["observation"]["images"]["cam_low"][1:3])
    assert frames.shape == (2, *raw_aloha.SHAPE)
    field = episodes.spec["steps"]["observation"]["images"]["cam_high"]
    assert field.encoding == ("" if images == "plain" else "jpeg")


def test_joints_are_named_and_options_are_in_the_metadata(tmp_path):
    raw_aloha.write_folder(tmp_path, images="rows", mobile=True)
    spec = rlds.sources.open(tmp_path).spec["steps"]
    for field in (spec["action"], spec["observation"]["qpos"]):
        assert field.names[0] == "left_waist"
        assert field.names[6:8] == ("left_gripper", "right_waist")
        assert "left arm first" in field.doc
    assert spec["observation"]["images"]["cam_low"].names is None
    assert spec["base_action"].names == ("linear_velocity", "angular_velocity")
    joints = [f"j{index}" for index in range(14)]
    options = {"colour": "bgr", "instruction": "open the lid", "joint_names": joints}
    episodes = rlds.sources.open(tmp_path, **options)
    spec = episodes.spec["steps"]
    assert spec["observation"]["images"]["cam_low"].names == ("blue", "green", "red")
    assert spec["action"].names == tuple(joints)
    assert episodes[0].steps["language_instruction"].tolist() == ["open the lid"] * 4
    metadata = episodes.metadata["aloha"]
    assert metadata["options"] == options
    assert metadata["control_frequency_hz"] == 50


def test_unknown_attributes_become_episode_metadata(tmp_path):
    raw_aloha.write_folder(tmp_path, images="padded")
    with h5py.File(tmp_path / "episode_2.hdf5", "a") as file:
        file["action"].attrs["unit"] = "rad"
    attributes = [episode.metadata["other_attributes"] for episode in rlds.sources.open(tmp_path)]
    assert attributes == ["", '{"action": {"unit": {"json": "rad"}}}', ""]


def test_a_single_file_is_an_episode(tmp_path):
    raw_aloha.write_folder(tmp_path, mobile=True)
    (episode,) = rlds.sources.open(tmp_path / "episode_10.hdf5")
    check_episode(episode, tmp_path / "episode_10.hdf5", "plain")


def replace(file, name, values):
    del file[name]
    if values is not None:
        file[name] = values


def store_smaller_image(file):
    data = raw_aloha.jpeg(np.zeros((4, 4, 3), np.uint8))
    row = np.zeros(file["observations/images/cam_low"].shape[1], np.uint8)
    row[: len(data)] = np.frombuffer(data, np.uint8)
    file["observations/images/cam_low"][1] = row


LOW = "observations/images/cam_low"
DAMAGE = {
    r"'observations/qvel': 2 rows, expected 3": lambda file: replace(
        file, "observations/qvel", file["observations/qvel"][:-1]
    ),
    r"cam_low': missing": lambda file: replace(file, LOW, None),
    r"'new': the first episode has no": lambda file: file.__setitem__("new", np.zeros((3, 6))),
    r"'sim': no such attribute": lambda file: file.attrs.__delitem__("sim"),
    r"row 2.*cam_low': a JPEG image that is cut": lambda file: file[LOW].__setitem__(
        (2, slice(300, None)), 0
    ),
    r"row 1.*cam_low'.*\(4, 4, 3\).*expected .*\(6, 8, 3\)": store_smaller_image,
}


@pytest.mark.parametrize("message", DAMAGE)
def test_a_damaged_file_is_one_damaged_episode(tmp_path, message):
    raw_aloha.write_folder(tmp_path, images="padded")
    with h5py.File(tmp_path / "episode_2.hdf5", "a") as file:
        DAMAGE[message](file)
    episodes = rlds.sources.open(tmp_path, format="aloha")
    with pytest.raises(SourceError, match=rf"episode_2\.hdf5.*{message}"):
        episodes.episode(1)
    assert [episodes.episode(index).num_steps for index in (0, 2)] == [4, 5]


def truncate_file(path):
    path.write_bytes(path.read_bytes()[:-2000])


def test_later_episodes_are_read_if_the_first_file_is_damaged(tmp_path):
    raw_aloha.write_folder(tmp_path)
    truncate_file(tmp_path / "episode_0.hdf5")
    episodes = rlds.sources.open(tmp_path, format="aloha")
    with pytest.raises(SourceError, match=r"episode_0\.hdf5"):
        episodes.episode(0)
    assert episodes.episode(1).num_steps == 3
    for index in (2, 10):
        truncate_file(tmp_path / f"episode_{index}.hdf5")
    with pytest.raises(SourceError, match=r"episode_0\.hdf5"):
        rlds.sources.open(tmp_path, format="aloha")
