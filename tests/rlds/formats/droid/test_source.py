"""Raw DROID, compared with the written arrays."""

import json

import h5py
import numpy as np
import pytest
import raw_droid
from videos import decoded, encoded

import rlds.sources
from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem.model.nests import leaves_at, lookup

DroidSource = rlds.sources.formats()["droid"].load()

# Failures come first: their folder does.
ORDER = (1, 0, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("droid")
    return path, raw_droid.write_folder(path)


def test_all_arrays_and_metadata_are_read(folder):
    path, arrays = folder
    episodes = rlds.sources.open(path)
    assert episodes.format == "droid"
    assert episodes.metadata == {
        "droid": {"control_frequency_hz": 15, "cameras": ["wrist", "ext1"]}
    }
    for index, recording in enumerate(ORDER):
        episode = episodes[index]
        actual = dict(leaves_at(episode.steps, None))
        for name, values in arrays[index].items():
            np.testing.assert_array_equal(actual.pop(name), values)
        assert actual.keys() == {
            *("is_first", "is_last", "is_terminal"),
            *("discount", "language_instruction"),
        }
        assert set(actual["language_instruction"]) == {f"Put {recording} in the bowl ü"}
        assert not actual["is_terminal"].any()
        assert (episode.truncated, episode.final_observation_known) == (True, False)
        assert episode.key == f"LAB+000{recording}+2023-07-07"
        assert episode.metadata["success"] == (recording % 2 == 0)
        assert json.loads(episode.metadata["metadata"])["uuid"] == episode.key
        attributes = {"success": True, "user": f"user {recording}"}
        assert json.loads(episode.metadata["attributes"]) == attributes
        for position, camera in enumerate(("wrist", "ext1")):
            length = episode.num_steps
            frames = length - (recording == 2)
            clip = lookup(episode.metadata, f"video/observation/images/{camera}")
            assert clip["clip"] == encoded("h264", frames, seed=2 * recording + position, fps=15)
            assert clip["frames"].tolist() == [*range(frames), *[-1] * (length - frames)]
    field = episodes.spec["steps"]["action"]["cartesian_position"]
    assert field.names == ("x", "y", "z", "roll", "pitch", "yaw")


def test_images_are_the_frames_of_the_video(folder):
    path, _ = folder
    episodes = rlds.sources.open(path, video="frames")
    expected = decoded(encoded("h264", 5, seed=4, fps=15))
    images = episodes.columns(2, ["observation/images"])["observation"]["images"]
    np.testing.assert_array_equal(images["wrist"][:5], expected)
    assert not images["wrist"][5].any()
    assert images["wrist_known"].tolist() == [True] * 5 + [False]
    with pytest.raises(SourceError, match=r"row 5: the video has no frame .*wrist_known'"):
        episodes.columns(2, ["observation/images/wrist"])
    actual = episodes.columns(2, ["observation/images/wrist", "action/gripper_position"], 2, 4)
    np.testing.assert_array_equal(actual["observation"]["images"]["wrist"], expected[2:4])


def test_a_missing_row_is_an_error_of_its_episode(tmp_path):
    raw_droid.write_folder(tmp_path)
    expected = rlds.sources.open(tmp_path)
    spec, file = expected.spec, tmp_path / expected[0].origin.file
    with h5py.File(file, "a") as opened:
        name = "observation/robot_state/joint_positions"
        rows = opened[name][:-1]
        del opened[name]
        opened[name] = rows
    episodes = rlds.sources.open(tmp_path)
    assert episodes.spec == spec
    with pytest.raises(SourceError, match=rf"field '{name}': {len(rows)} rows, expected"):
        episodes[0]
    assert episodes[1].num_steps == 5


def test_missing_files_are_errors_of_their_episode(tmp_path):
    raw_droid.write_folder(tmp_path, (4,) * 6)
    folders = sorted(tmp_path.glob("LAB/*/*/*"))
    (folders[1] / "trajectory.h5").unlink()
    next(folders[2].glob("metadata_*")).unlink()
    next(folders[3].glob("recordings/MP4/1*.mp4")).unlink()
    video = next(folders[4].glob("recordings/MP4/1*.mp4"))
    video.write_bytes(video.read_bytes()[:1000])
    next(folders[5].glob("metadata_*")).write_text("[1")
    episodes = rlds.sources.open(tmp_path)
    assert episodes[0].num_steps == 4
    messages = [
        "trajectory.h5.*does not exist, but the episode needs it",
        r"metadata_<uuid>\.json is missing",
        r"observation/images/wrist': no such video",
        r"\d+\.mp4.*cannot be read",
        r"metadata_.*json.*not valid JSON",
    ]
    for index, message in enumerate(messages, 1):
        with pytest.raises(SourceError, match=message):
            _ = episodes[index]
    # The fields without video can be read.
    assert episodes.columns(3, ["action"])["action"]["joint_velocity"].shape == (4, 7)
    with pytest.raises(FileNotFoundError, match=r"no trajectory\.h5 below it"):
        DroidSource(tmp_path / "LAB" / "nothing")
