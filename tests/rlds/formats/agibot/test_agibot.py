"""AgiBot World, compared with the written arrays."""

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


def place_rows(raw, group, name, fill):
    """Returns the rows of an action at their steps, and flags of the steps that have one."""
    arrays = raw.arrays
    steps = len(arrays["timestamp"])
    stored = arrays[f"action/{group}/{name}"]
    index = arrays[f"action/{'joint' if group == 'end' else group}/index"]
    index = range(steps) if len(stored) == steps else index
    values, is_known = fill(arrays[f"state/{group}/{name}"]), [False] * steps
    for row, step in zip(stored, index, strict=bool(len(stored))):
        values[step], is_known[step] = row, True
    return values, is_known


@pytest.mark.parametrize(("fill", "make"), [("zeros", np.zeros_like), ("state", np.copy)])
def test_action_rows_are_at_their_steps_and_gaps_are_filled(folder, fill, make):
    path, raw_episodes = folder
    episodes = rlds.sources.open(path, fill=fill)
    for index, raw in enumerate(list(raw_episodes.values())[:3]):
        steps = episodes[index].steps
        for field in raw_agibot.JOINTS:
            values, is_known = place_rows(raw, *field.split("/"), make)
            np.testing.assert_array_equal(lookup(steps["action"], field), values)
            assert lookup(steps["action_known"], field).tolist() == is_known
            actual = episodes.columns(index, [f"action/{field}"], 2, 4)
            np.testing.assert_array_equal(lookup(actual["action"], field), values[2:4])


def test_all_arrays_and_metadata_are_read(folder):
    path, raw_episodes = folder
    episodes = rlds.sources.open(path)
    assert episodes.format == "agibot"
    assert episodes.metadata["agibot"]["control_frequency_hz"] == 30
    keys = [episodes[index].key for index in range(3)]
    assert keys == ["327/9", "327/10", "1000/2"]
    for index, ((task, episode_id), raw) in enumerate(list(raw_episodes.items())[:3]):
        episode = episodes[index]
        steps, metadata = episode.steps, episode.metadata
        for field in raw_agibot.JOINTS:
            values = raw.arrays[f"state/{field}"]
            np.testing.assert_array_equal(lookup(steps["observation"]["state"], field), values)
        for field in ("effector", "end", "joint"):
            values = raw.arrays[f"action/{field}/index"]
            np.testing.assert_array_equal(metadata["action"][field]["index"], values)
        np.testing.assert_array_equal(steps["timestamp"], raw.arrays["timestamp"])
        assert list(steps["observation"]["depth"]["head"]) == raw.depth
        assert metadata["state"]["effector"]["force"].shape == (0,)
        assert (episode.truncated, episode.final_observation_known) == (True, False)
        is_annotated = episode_id != 2
        text = f"Task {task}" if is_annotated else ""
        assert set(steps["language_instruction"]) == {text}
        segments = raw.segments if is_annotated else []
        for name, raw_name in [
            *(("begin", "start_frame"), ("end", "end_frame")),
            *(("text", "action_text"), ("skill", "skill")),
        ]:
            assert list(metadata["annotations"][name]) == [item[raw_name] for item in segments]
        if is_annotated:
            assert json.loads(metadata["metadata"])["init_scene_text"] == "A table."
        for name, seed in raw_agibot.CAMERAS.items():
            kind, _, camera = name.partition("/")
            kind = {"videos": "images"}.get(kind, kind)
            clip = metadata["video"]["observation"][kind][camera.removesuffix("_color")]
            assert clip["clip"] == encoded("h264", raw.frames, seed=seed + 3 * episode_id)
            missing = len(raw.depth) - raw.frames
            assert clip["frames"].tolist() == [*range(raw.frames), *[-1] * missing]
    (fault,) = episodes.source.capabilities.faults("train")
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
    def change(task, episode, **arrays):
        with h5py.File(tmp_path / f"proprio_stats/{task}/{episode}/proprio_stats.h5", "a") as file:
            for name, values in arrays.items():
                path = f"action/joint/{name}"
                del file[path]
                if values is not None:
                    file[path] = values

    short = (4, {"joint": [0, 3]}, 4)
    raw_agibot.write_folder(
        tmp_path,
        {(1, 0): (4, {}, 4), **{(1, index): short for index in range(1, 10)}, (2, 1): short},
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
    # The fields without video can be read.
    actual = episodes.columns(2, ["action"])["action"]["joint"]["position"]
    assert actual.any(axis=1).tolist() == [True, False, False, True]
    with pytest.raises(FileNotFoundError, match="has no proprio_stats/<task>/<episode>"):
        AgiBotSource(tmp_path, tasks=["3"])
    with pytest.raises(ValueError, match="fill: got 'nothing'"):
        AgiBotSource(tmp_path, fill="nothing")
