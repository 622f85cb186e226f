"""Folders of RoboMIND, compared with plain loops over the files."""

import io

import h5py
import numpy as np
import PIL.Image
import pytest
import raw_robomind

import rlds.sources
from rlds.sources import SourceError


def file_of(root, split, name, task=raw_robomind.TASK):
    return root / task / "success_episodes" / split / name / "data" / "trajectory.hdf5"


def check_episode(episode, path):
    """Compares an episode with its file, row by row."""
    with h5py.File(path) as file:
        steps = episode.steps
        num_steps = len(file["master/joint_position_left"])
        assert episode.num_steps == num_steps
        assert not episode.final_observation_known
        assert episode.truncated
        assert episode.metadata["task"] == raw_robomind.TASK
        assert episode.metadata["embodiment"] == raw_robomind.EMBODIMENT
        for row in range(num_steps):
            assert steps["is_last"][row] == (row == num_steps - 1)
            for group, field in (("puppet", "observation"), ("master", "action")):
                for name, values in file[group].items():
                    assert steps[field][name].dtype == np.float64
                    assert steps[field][name][row].tobytes() == values[row].tobytes()
            for group in ("rgb_images", "depth_images"):
                actual = steps["observation"][group]["camera_front"][row]
                assert actual == file["observations"][group]["camera_front"][row].tobytes()


@pytest.mark.slow
def test_episodes_have_the_rows_of_their_files(tmp_path):
    root = raw_robomind.write_folder(tmp_path)
    episodes = rlds.sources.open(root, "train")
    assert episodes.format == "robomind"
    assert list(episodes.splits) == ["train", "val"]
    assert [episode.key for episode in episodes] == [
        f"{raw_robomind.TASK}/{n}" for n in ("9_1", "1014_2")
    ]
    for episode, name in zip(episodes, ("9_1", "1014_2")):
        check_episode(episode, file_of(root, "train", name))
    depth = episodes.columns(0)["observation"]["depth_images"]["camera_front"]
    assert depth.dtype == np.uint16
    (last,) = rlds.sources.open(root, "val")
    check_episode(last, file_of(root, "val", "7_0"))
    # From any folder, or from the file.
    task = root / raw_robomind.TASK
    for path, key in (
        (tmp_path, f"{raw_robomind.EMBODIMENT}/{raw_robomind.TASK}/7_0"),
        (task, "7_0"),
        (task / "success_episodes", "7_0"),
        (task / "success_episodes" / "val", "7_0"),
        (file_of(root, "val", "7_0").parents[1], "7_0"),
        (file_of(root, "val", "7_0"), "7_0"),
    ):
        (episode,) = rlds.sources.open(path, "val")
        assert episode.key == key
        check_episode(episode, file_of(root, "val", "7_0"))


def test_raw_frames_become_png_files(tmp_path):
    root = raw_robomind.write_folder(tmp_path, {"train/1": 3}, raw=True)
    episodes = rlds.sources.open(root, colour="bgr")
    with h5py.File(file_of(root, "train", "1")) as file:
        rows = file["observations/rgb_images/camera_top"][:]
    files = episodes[0].steps["observation"]["rgb_images"]["camera_top"]
    assert files[0] == rows[0].tobytes()
    frame = np.asarray(PIL.Image.open(io.BytesIO(files[1])))
    assert frame.tobytes() == rows[1].tobytes()
    field = episodes.spec["steps"]["observation"]["rgb_images"]["camera_top"]
    assert (field.shape, field.encoding) == ((480, 640, 3), "jpeg")
    assert field.names == ("blue", "green", "red")


def test_instructions_come_from_the_option_or_the_file(tmp_path):
    root = raw_robomind.write_folder(tmp_path, {"train/1": 2})
    raw_robomind.write_folder(tmp_path, {"train/1": 2}, task="other")
    episodes = rlds.sources.open(root, instructions={"other": "wipe the table"})
    texts = {e.metadata["task"]: e.steps["language_instruction"].tolist() for e in episodes}
    assert texts == {raw_robomind.TASK: [""] * 2, "other": ["wipe the table"] * 2}
    root = raw_robomind.write_folder(tmp_path / "b", {"train/1": 2}, text="pack the plate")
    (episode,) = rlds.sources.open(root)
    assert episode.steps["language_instruction"].tolist() == ["pack the plate"] * 2
    assert episode.metadata["language_raw"].tolist() == ["pack the plate"]


def test_a_missing_file_is_a_damaged_episode(tmp_path):
    root = raw_robomind.write_folder(tmp_path / "raw")
    missing = file_of(root, "train", "9_1")
    missing.unlink()
    missing.symlink_to("nowhere")
    for format in ("robomind", None):
        episodes = rlds.sources.open(root, "train", format=format)
        with pytest.raises(SourceError, match=r"9_1.*the episode needs it"):
            episodes[0]
        check_episode(episodes[1], file_of(root, "train", "1014_2"))
    with pytest.raises(FileNotFoundError, match="has no files success_episodes/"):
        rlds.sources.open(tmp_path / "nothing", format="robomind")
