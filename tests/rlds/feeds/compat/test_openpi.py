"""The drop-in loader for openpi's scripts."""

import itertools
import json

import arm_datasets
import numpy as np
import policies
import pytest
import raw_lerobot

from rlds.feeds.compat.openpi import (
    DroidActionSpace,
    DroidRldsDataset,
    LeRobotDatasetMetadata,
    RLDSDataset,
)

ARM = RLDSDataset("arm", "1.0.0", 1.0)


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory):
    return arm_datasets.write_all(tmp_path_factory.mktemp("openpi") / "data")


def take(dataset, count):
    return list(itertools.islice(dataset, count))


def test_rows_equal_those_of_openpi(directory):
    dataset = DroidRldsDataset(str(directory), 5, [ARM], action_chunk_size=4)
    assert len(dataset) == 15
    actual = policies.joined(take(dataset, 3))
    expected = dict(np.load(directory / "openpi.npz"))
    order, positions = np.argsort(actual["step_id"].astype(bytes)), np.argsort(expected["step_id"])
    assert actual.keys() == expected.keys()
    for path, column in expected.items():
        assert actual[path].dtype in (column.dtype, object), path
        ours = actual[path][order].astype(column.dtype)
        np.testing.assert_array_equal(ours, column[positions], err_msg=path)


def test_filter_file_selects_samples_with_joint_velocities(directory, tmp_path):
    name = "/data/recordings/{0}--/data/success/{0}.h5"
    ranges = {name.format(0): [[0, 2], [3, 9]], name.format(3): [[1, 3]]}
    path = tmp_path / "ranges.json"
    path.write_text(json.dumps(ranges))
    dataset = DroidRldsDataset(
        str(directory),
        6,
        [RLDSDataset("arm", "1.0.0", 1.0, str(path))],
        action_space=DroidActionSpace.JOINT_VELOCITY,
        shuffle=False,
    )
    assert len(dataset) == 6
    (batch,) = take(dataset, 1)
    steps = [step.decode().rpartition("--")[::2] for step in batch["step_id"]]
    assert steps == [(name.format(0), n) for n in "0134"] + [(name.format(3), n) for n in "12"]
    stored = policies.open_table(directory).read(0)["action_dict"]
    np.testing.assert_array_equal(batch["actions"][2, 0, :3], stored["joint_velocity"][3])
    np.testing.assert_array_equal(batch["actions"][0, 15, 3:], stored["gripper_position"][4])


def test_empty_filters_and_wrong_weights_are_refused(directory, tmp_path):
    path = tmp_path / "none.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="there are no samples"):
        iter(DroidRldsDataset(directory, 1, [RLDSDataset("arm", "", 1.0, path)])).__next__()
    with pytest.raises(ValueError, match=r"sum to 1\.5, expected 1"):
        DroidRldsDataset(directory, 1, [ARM, RLDSDataset("arm", "1.0.0", 0.5)])


def test_tasks_have_the_form_of_old_releases_of_lerobot(directory):
    """openpi looks up `tasks.get(task_index)`."""
    tasks = LeRobotDatasetMetadata(directory / "arm_lerobot").tasks
    assert tasks == dict(enumerate(raw_lerobot.TASKS))


def to_droid(trajectory):
    """Converts a trajectory of LeRobot to the fields of DROID."""
    action, state = trajectory["action"], trajectory["observation"]["state"]
    image = trajectory["observation"]["images"]["wrist"]
    return {
        "action_dict": {"joint_position": action[:, :2], "gripper_position": action[:, 2:]},
        "observation": {
            "exterior_image_1_left": image,
            "exterior_image_2_left": image[::-1],
            "wrist_image_left": image,
            "joint_position": state[:, :2],
            "gripper_position": state[:, 2:],
        },
        "language_instruction": trajectory["language_instruction"],
        "language_instruction_2": np.full(len(action), b"another", object),
    }


def test_random_cameras_and_instructions_are_drawn_per_episode(directory):
    dataset = DroidRldsDataset(
        directory, 18, [RLDSDataset("arm_lerobot", "", 1.0)], standardize_fn=to_droid, shuffle=False
    )
    assert len(dataset) == 18
    epochs = take(dataset, 12)
    wrist = epochs[0]["observation"]["wrist_image"]
    ends = np.cumsum([0, 7, 5, 6])
    seen = set()
    for epoch in epochs:
        for begin, end in itertools.pairwise(ends):
            image, rows = epoch["observation"]["image"][begin:end], wrist[begin:end]
            is_second = not np.array_equal(image, rows)
            np.testing.assert_array_equal(image, rows[::-1] if is_second else rows)
            is_other = epoch["prompt"][begin:end] == b"another"
            assert is_other.all() or not is_other.any()
            seen.add((begin, is_second, bool(is_other[0])))
    assert len(seen) == 12
    with pytest.raises(KeyError, match="no field 'observation/exterior_image_1_left'"):
        DroidRldsDataset(directory, 2, [RLDSDataset("arm_lerobot", "", 1.0)])


def test_ranks_share_samples_and_resume(directory, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    rows = []
    for rank in "012":
        monkeypatch.setenv("RANK", rank)
        dataset = DroidRldsDataset(directory, 5, [ARM])
        iterator = iter(dataset)
        rows += next(iterator)["step_id"].tolist()
        state, upcoming = dataset.state_dict(), next(iterator)
        dataset.load_state_dict(json.loads(json.dumps(state)))
        assert dataset.state_dict() == state
        resumed = next(iter(dataset))
        np.testing.assert_array_equal(resumed["actions"], upcoming["actions"])
    assert len(set(rows)) == 15
