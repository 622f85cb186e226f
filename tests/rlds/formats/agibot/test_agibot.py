"""AgiBot World, against the arrays that were written."""

import json

import h5py
import numpy as np
import pytest
import raw_agibot
from videos import decoded, encoded

import rlds.sources
from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem.model.nests import lookup

AgiBotSource = rlds.sources.formats()["agibot"].load()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("agibot")
    return path, raw_agibot.write_folder(path)


def in_place(written, part, name, fill):
    """The rows of an action, one by one, and which steps have one."""
    arrays = written.arrays
    steps = len(arrays["timestamp"])
    stored = arrays[f"action/{part}/{name}"]
    index = arrays[f"action/{'joint' if part == 'end' else part}/index"]
    index = range(steps) if len(stored) == steps else index
    values, is_known = fill(arrays[f"state/{part}/{name}"]), [False] * steps
    for row, step in zip(stored, index, strict=bool(len(stored))):
        values[step], is_known[step] = row, True
    return values, is_known


@pytest.mark.parametrize(("fill", "make"), [("zeros", np.zeros_like), ("state", np.copy)])
def test_rows_are_where_they_belong(folder, fill, make):
    path, written = folder
    episodes = rlds.sources.open(path, fill=fill)
    for index, episode in enumerate(list(written.values())[:3]):
        steps = episodes[index].steps
        for part in raw_agibot.JOINTS:
            values, is_known = in_place(episode, *part.split("/"), make)
            np.testing.assert_array_equal(lookup(steps["action"], part), values)
            assert lookup(steps["action_known"], part).tolist() == is_known
            actual = episodes.columns(index, [f"action/{part}"], 2, 4)
            np.testing.assert_array_equal(lookup(actual["action"], part), values[2:4])


def test_all_arrays_and_metadata_are_read(folder):
    path, written = folder
    episodes = rlds.sources.open(path)
    assert episodes.format == "agibot"
    assert episodes.metadata["agibot"]["control_frequency_hz"] == 30
    keys = [episodes[index].key for index in range(3)]
    assert keys == ["327/9", "327/10", "1000/2"]
    for index, ((task, number), raw) in enumerate(list(written.items())[:3]):
        episode = episodes[index]
        steps, metadata = episode.steps, episode.metadata
        for part in raw_agibot.JOINTS:
            values = raw.arrays[f"state/{part}"]
            np.testing.assert_array_equal(lookup(steps["observation"]["state"], part), values)
        for part in ("effector", "end", "joint"):
            values = raw.arrays[f"action/{part}/index"]
            np.testing.assert_array_equal(metadata["action"][part]["index"], values)
        np.testing.assert_array_equal(steps["timestamp"], raw.arrays["timestamp"])
        assert list(steps["observation"]["depth"]["head"]) == raw.depth
        assert metadata["state"]["effector"]["force"].shape == (0,)
        assert (episode.truncated, episode.final_observation_known) == (True, False)
        is_said = number != 2
        text = f"Task {task}" if is_said else ""
        assert set(steps["language_instruction"]) == {text}
        segments = raw.segments if is_said else []
        for name, raw_name in [
            *(("begin", "start_frame"), ("end", "end_frame")),
            *(("text", "action_text"), ("skill", "skill")),
        ]:
            assert list(metadata["annotations"][name]) == [item[raw_name] for item in segments]
        if is_said:
            assert json.loads(metadata["metadata"])["init_scene_text"] == "A table."
        for name, seed in raw_agibot.CAMERAS.items():
            kind, _, camera = name.partition("/")
            kind = {"videos": "images"}.get(kind, kind)
            clip = metadata["video"]["observation"][kind][camera.removesuffix("_color")]
            assert clip["clip"] == encoded("h264", raw.frames, seed=seed + 3 * number)
            missing = len(raw.depth) - raw.frames
            assert clip["frames"].tolist() == [*range(raw.frames), *[-1] * missing]
    (fault,) = episodes.source.can.faults("train")
    assert "task_1000.json, episode 1000/2: the file has no entry" in str(fault)
    joints = episodes.spec["steps"]["action"]["joint"]["position"]
    assert joints.names[:2] == ("left_joint_1", "left_joint_2")


def test_pixels_and_selected_tasks_are_read(folder):
    path, _ = folder
    episodes = rlds.sources.open(path, video="frames", tasks=["1000"])
    # The first episode has no actions of joints: their shape is that of the state.
    assert episodes[0].key == "1000/2"
    assert episodes[0].steps["action"]["joint"]["position"].shape == (4, 14)
    field = "observation/tactile/left_sensor_1"
    pixels = lookup(episodes.columns(0, [field]), field)
    np.testing.assert_array_equal(pixels, decoded(encoded("h264", 4, seed=8)))


def test_damage_is_an_error_of_its_episode(tmp_path):
    def change(task, number, **arrays):
        with h5py.File(tmp_path / f"proprio_stats/{task}/{number}/proprio_stats.h5", "a") as file:
            for name, values in arrays.items():
                path = f"action/joint/{name}"
                del file[path]
                if values is not None:
                    file[path] = values

    short = (4, {"joint": [0, 3]}, 4)
    numbers = range(1, 10)
    raw_agibot.write_folder(
        tmp_path,
        {(1, 0): (4, {}, 4), **{(1, number): short for number in numbers}, (2, 1): short},
    )
    (tmp_path / "proprio_stats/1/1/proprio_stats.h5").unlink()
    (tmp_path / "observations/1/2/videos/head_color.mp4").unlink()
    video = tmp_path / "observations/1/3/videos/head_color.mp4"
    video.write_bytes(video.read_bytes()[:1000])
    change(1, 4, position=np.zeros((5, 14)))
    change(1, 5, index=np.array([0, 4]))
    change(1, 6, index=np.array([3, 0]))
    change(1, 7, index=None)
    (tmp_path / "observations/1/8/depth/head_depth_000002.png").unlink()
    image = tmp_path / "observations/1/9/depth/head_depth_000002.png"
    image.write_bytes(image.read_bytes()[:-5])
    (tmp_path / "task_info/task_2.json").write_text("[{")
    episodes = rlds.sources.open(tmp_path)
    assert episodes[0].num_steps == 4
    messages = [
        r"1/1/proprio_stats\.h5.*does not exist, but the episode needs it",
        r"1/2.*'observation/images/head': no such video",
        r"1/3/videos/head_color\.mp4.*cannot be read",
        "5 rows, but there are 4 steps",
        "expected increasing numbers below 4",
        "expected increasing numbers below 4",
        "'action/joint/index': missing",
        "'depth/head': 3 rows, expected 4",
        r"head_depth_000002\.png.*cut off",
        r"task_2\.json.*not valid JSON",
    ]
    for index, message in enumerate(messages, 1):
        with pytest.raises(SourceError, match=message):
            _ = episodes[index]
    # Without its videos, what else there is can be read.
    actual = episodes.columns(2, ["action"])["action"]["joint"]["position"]
    assert actual.any(axis=1).tolist() == [True, False, False, True]
    with pytest.raises(FileNotFoundError, match="has no proprio_stats/<task>/<episode>"):
        AgiBotSource(tmp_path, tasks=["3"])
    with pytest.raises(ValueError, match="fill: got 'nothing'"):
        AgiBotSource(tmp_path, fill="nothing")
