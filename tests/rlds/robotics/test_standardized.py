"""Standard fields against plain loops that follow the published rules."""

import pickle

import numpy as np
import pytest
import raw_oxe

import rlds.robotics
import rlds.sources
from rlds.robotics import rules, standard


def binarize_in_a_loop(values):
    actual, carry = np.empty(len(values)), values[-1]
    for row in reversed(range(len(values))):
        if values[row] > 0.95 or values[row] < 0.05:
            carry = float(values[row] > 0.95)
        actual[row] = carry
    return actual


def rel2abs_in_a_loop(values):
    commands = [1 if value < -0.1 else -1 if value > 0.1 else 0 for value in values]
    first = next((command for command in commands if command), -1)
    actual, carry = [], -first
    for command in commands:
        carry = command or carry
        actual.append((carry + 1) / 2)
    return np.array(actual)


def rotation(axis, angle):
    sin, cos = np.sin(angle), np.cos(angle)
    matrix = np.eye(3)
    i, j = [index for index in range(3) if index != axis]
    sign = -1 if axis == 1 else 1
    matrix[i, i] = matrix[j, j] = cos
    matrix[i, j], matrix[j, i] = -sign * sin, sign * sin
    return matrix


def test_gripper_rules_equal_loops():
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 40):
        for _ in range(40):
            values = rng.choice([0.0, 0.02, 0.3, 0.7, 0.97, 1.0], (length, 2))
            loop = np.stack([binarize_in_a_loop(column) for column in values.T], axis=1)
            np.testing.assert_array_equal(rules.binarize(values), loop)
            values = rng.choice([0.0, 0.0, 0.0, 0.05, 1.0, -1.0], (length, 2))
            loop = np.stack([rel2abs_in_a_loop(column) for column in values.T], axis=1)
            np.testing.assert_array_equal(rules.rel2abs(values), loop)


def test_euler_angles_equal_the_rotation_of_the_quaternion():
    rng = np.random.default_rng(1)
    quaternions = rng.normal(size=(50, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    for (x, y, z, w), angles in zip(quaternions, rules.euler(quaternions)):
        actual = rotation(2, angles[2]) @ rotation(1, angles[1]) @ rotation(0, angles[0])
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        expected = np.eye(3) + 2 * w * cross + 2 * cross @ cross
        np.testing.assert_allclose(actual, expected, atol=1e-9)


def write_and_open(write, tmp_path):
    return rlds.sources.open(write(tmp_path / "data"), "train")


def test_bridge_gets_its_standard_action_and_state(tmp_path):
    episodes = write_and_open(raw_oxe.bridge_dataset, tmp_path)
    output = rlds.robotics.standardized(episodes)
    assert len(output) == len(raw_oxe.EPISODES)
    for index, length in enumerate(raw_oxe.EPISODES):
        stored, actual = episodes[index].steps, output[index].steps
        np.testing.assert_array_equal(actual["action"], stored["action"])
        assert list(actual) == [*stored, "standard"]
        state, standard = stored["observation"]["state"], actual["standard"]
        gripper = binarize_in_a_loop(stored["action"][:, 6])
        kept = [row for row in range(length) if 0 < row < length - 1]
        assert np.flatnonzero(standard["is_kept"]).tolist() == kept
        for row in kept:
            expected = [*(state[row + 1, :6] - state[row, :6]), gripper[row]]
            np.testing.assert_array_equal(standard["action"][row], np.float32(expected))
        for row in range(length):
            expected = [*state[row, :6], 0, state[row, 6]]
            np.testing.assert_array_equal(standard["state"][row], np.float32(expected))
    field = output.spec["steps"]["standard"]["action"]
    assert field.names == ("x", "y", "z", "roll", "pitch", "yaw", "gripper")


def test_image_files_of_standardized_episodes_stay_unchanged(tmp_path):
    episodes = write_and_open(raw_oxe.bridge_dataset, tmp_path)
    result = rlds.sources.export(rlds.robotics.standardized(episodes), "tfds", tmp_path / "1.0.0")
    assert "steps/observation/image_0 -> unchanged (exact)" in map(str, result.placements)
    stored, output = (
        rlds.sources.open(path, "train", decode_images=False)
        for path in (tmp_path / "data", result.path)
    )
    for before, after in zip(stored, output, strict=True):
        files = before["observation"]["image_0"].tolist()
        assert files == after["observation"]["image_0"].tolist()
        assert files[0].startswith(b"\xff\xd8")


def test_actions_in_several_fields_are_joined(tmp_path):
    episodes = write_and_open(raw_oxe.fractal, tmp_path)
    output = rlds.robotics.standardized(episodes)
    for before, after in zip(episodes, output):
        action, observation = before.steps["action"], before.steps["observation"]
        standard = after.steps["standard"]
        gripper = rel2abs_in_a_loop(action["gripper_closedness_action"][:, 0])
        assert standard["is_kept"].all()
        for row in range(before.num_steps):
            expected = [*action["world_vector"][row], *action["rotation_delta"][row], gripper[row]]
            np.testing.assert_array_equal(standard["action"][row], expected)
            pose, closed = observation["base_pose_tool_reached"], observation["gripper_closed"]
            np.testing.assert_array_equal(standard["state"][row], [*pose[row], *closed[row]])


def test_compressed_fields_and_names_with_slashes_are_standardized(tmp_path):
    episodes = write_and_open(raw_oxe.kuka, tmp_path)
    output = rlds.robotics.standardized(episodes)
    path = "observation/clip_function_input/base_pose_tool_reached"
    for index in range(len(raw_oxe.EPISODES)):
        state = output.columns(index, ["standard/state"])["standard"]["state"]
        pose = episodes.columns(index, [path])["observation"]["clip_function_input"]
        np.testing.assert_array_equal(state[:, :7], pose["base_pose_tool_reached"])
        # Without any command the gripper is open.
        assert (output[index].steps["standard"]["action"][:, 6] == 1).all()


def test_rules_clip_invert_and_cast_actions(tmp_path):
    episodes = write_and_open(raw_oxe.roboturk, tmp_path / "roboturk")
    for before, after in zip(episodes, rlds.robotics.standardized(episodes)):
        closed = before.steps["action"]["gripper_closedness_action"][:, 0]
        expected = [1 - min(max(value, 0), 1) for value in closed.tolist()]
        actual = after.steps["standard"]["action"][:, 6]
        np.testing.assert_allclose(actual, expected, atol=1e-7)
        assert "state" not in after.steps["standard"]
    episodes = write_and_open(raw_oxe.droid, tmp_path / "droid")
    for before, after in zip(episodes, rlds.robotics.standardized(episodes)):
        action, output = before.steps["action_dict"], after.steps["standard"]["action"]
        np.testing.assert_array_equal(output[:, :6], np.float32(action["cartesian_velocity"]))
        np.testing.assert_array_equal(output[:, 6:], np.float32(1 - action["gripper_position"]))
        assert output.dtype == np.float32
        assert before.steps["action"].dtype == after.steps["action"].dtype == np.float64


def test_standard_fields_are_read_for_a_range_of_steps(tmp_path):
    output = rlds.robotics.standardized(write_and_open(raw_oxe.bridge_dataset, tmp_path))
    full = output[2].steps
    actual = output.columns(2, ["standard/action", "observation/state"], start=3, stop=6)
    assert list(actual) == ["standard", "observation"]
    np.testing.assert_array_equal(actual["standard"]["action"], full["standard"]["action"][3:6])
    np.testing.assert_array_equal(actual["observation"]["state"], full["observation"]["state"][3:6])
    copy = pickle.loads(pickle.dumps(output))
    np.testing.assert_array_equal(
        copy.columns(1, ["standard"])["standard"]["state"], output[1].steps["standard"]["state"]
    )
    assert [summary.num_steps for summary in output.summaries()] == list(raw_oxe.EPISODES)
    tail = rlds.robotics.standardized(
        rlds.sources.open(output.source.bases[0].directory, "train[1:]")
    )
    assert tail.columns(0, ["standard/state"])["standard"]["state"].shape == (2, 8)
    assert output.metadata["standard"]["action"][-1] == "binarize(action[6])"


def test_unsuitable_datasets_are_refused(tmp_path):
    bridge = write_and_open(raw_oxe.bridge_dataset, tmp_path / "bridge")
    with pytest.raises(KeyError, match=r"no field 'action/world_vector'.*there are: action, "):
        rlds.robotics.standardized(bridge, "fractal20220817_data")
    with pytest.raises(ValueError, match="would have 8 elements, but EEF_POS has 7"):
        wide = rlds.robotics.DatasetMeaning(
            "wide", action_encoding="EEF_POS", standard_action=("action", "0")
        )
        rlds.robotics.standardized(bridge, wide)
    with pytest.raises(KeyError, match="no dataset 'mine' is registered"):
        rlds.robotics.standardized(bridge, "mine")
    with pytest.raises(ValueError, match="the registry has no rule"):
        rlds.robotics.standardized(write_and_open(raw_oxe.mt_opt, tmp_path / "mt_opt"))
    # An action without an encoding may have any number of elements.
    free = rlds.robotics.DatasetMeaning("free", standard_action=("action[0:2]", "1"))
    columns = rlds.robotics.standardized(bridge, free).columns(0, ["standard"])["standard"]
    assert columns["action"].shape == (6, 3)
    output = rlds.robotics.standardized(bridge)
    with pytest.raises(ValueError, match="a field 'standard' already"):
        rlds.robotics.standardized(output, "bridge_dataset")
    with pytest.warns(UserWarning, match="publications disagree.*1 is closed: inverted"):
        with pytest.raises(KeyError):
            rlds.robotics.standardized(bridge, "berkeley_mvp")


def test_field_with_too_few_elements_is_refused():
    droid = rlds.robotics.meaning_of("droid")
    shapes = {"action_dict/cartesian_velocity": (6,), "action_dict/gripper_position": (1,)}
    with pytest.raises(ValueError, match=r"cartesian_position\[0:6\]: the field has 5 elements"):
        shapes |= {"observation/cartesian_position": (5,), "observation/gripper_position": (1,)}
        standard.widths_of(droid, shapes)


def cases():
    """Yields dataset names, field sizes, and functions that compute a standard action."""
    state, deltas = "observation/state", ("action/world_vector", "action/rotation_delta")

    def clip(value):
        return min(max(value, 0), 1)

    yield (
        "taco_play",
        {"action/rel_actions_world": 7, "observation/robot_obs": 15},
        lambda row: [
            *row["action/rel_actions_world"][:6],
            clip(row["action/rel_actions_world"][6]),
        ],
    )
    yield (
        "toto",
        {deltas[0]: 3, deltas[1]: 3, "action/open_gripper": 1, state: 7},
        lambda row: [*row[deltas[0]], *row[deltas[1]], *row["action/open_gripper"]],
    )
    yield (
        "language_table",
        {"action": 2, "observation/effector_translation": 2},
        lambda row: [*row["action"], 0, 0, 0, 0, 1],
    )
    yield (
        "stanford_hydra_dataset",
        {"action": 7, state: 27},
        lambda row: [*row["action"][:6], 1 - row["action"][6]],
    )
    yield (
        "nyu_franka_play_dataset",
        {"action": 15, state: 13},
        lambda row: [*row["action"][-8:-2], clip(row["action"][-2])],
    )
    yield (
        "robo_net",
        {"action": 5, state: 5},
        lambda row: [*row["action"][:4], 0, 0, row["action"][-1]],
    )
    yield (
        "utokyo_xarm_bimanual",
        {"action": 14, "observation/pose_r": 6},
        lambda row: row["action"][7:],
    )
    yield (
        "berkeley_fanuc_manipulation",
        {"action": 6, state: 7},
        lambda row: [*row["action"], 1 - row[state][6]],
    )
    yield (
        "cmu_stretch",
        {"action": 8, state: 4},
        lambda row: row["action"][:7],
    )


@pytest.mark.parametrize(("name", "sizes", "action_of"), list(cases()), ids=lambda v: str(v)[:20])
def test_standard_columns_equal_rows_computed_by_hand(name, sizes, action_of):
    rng = np.random.default_rng(2)
    columns = {path: rng.normal(size=(5, size)) for path, size in sizes.items()}
    steps = {}
    for path, column in columns.items():
        parent, _, field = path.rpartition("/")
        (steps.setdefault(parent, {}) if parent else steps)[field] = column
    output = standard.standard_columns(steps, rlds.robotics.meaning_of(name))
    for row in range(5):
        action = action_of({path: column[row].tolist() for path, column in columns.items()})
        np.testing.assert_array_equal(output["action"][row], np.float32(action))
    assert output["state"].shape == (5, 8)


def test_every_standard_action_has_the_elements_of_its_encoding():
    extra_sizes = {"action_dict/cartesian_velocity": 6, "action_dict/gripper_position": 1}
    for name in rlds.robotics.registered_datasets():
        meaning = rlds.robotics.meaning_of(name)
        sizes = dict.fromkeys(meaning.state_fields, 14) | extra_sizes
        for dimension in meaning.action:
            element = dimension.element if dimension.element >= 0 else 8
            sizes[dimension.field] = max(sizes.get(dimension.field, 0), element + 1)
        widths = standard.widths_of(meaning, {path: (size,) for path, size in sizes.items()})
        assert ("action" in widths) == bool(meaning.standard_action)
        assert len(meaning.action_mask) == widths.get("action", 0)
