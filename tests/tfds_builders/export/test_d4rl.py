"""Files of D4RL that became datasets of TFDS: what they say, and files again."""

import h5py
import numpy as np
import pytest
import raw_d4rl
from raw_d4rl_pybullet import write_pybullet

from rlds.evaluation import load_policy
from rlds.formats.d4rl.pybullet import D4rlPybulletSource
from rlds.formats.d4rl.source import D4rlSource
from rlds.tfds import load
from tfds_builders.builder import convert
from tfds_builders.export.d4rl import export_d4rl, export_d4rl_pybullet, read_constants


def converted(path, directory, **options):
    return convert(D4rlSource(path, **options), name="a", data_dir=directory, verify=False)


def assert_same_values(path, expected, names):
    with h5py.File(path) as found, h5py.File(expected) as file:
        for name in names:
            np.testing.assert_array_equal(found[name][()], file[name][()], strict=True)


def test_the_rows_come_back_in_their_order_from_shuffled_shards(tmp_path):
    path = raw_d4rl.write_mujoco_like(
        tmp_path / "a.hdf5", rows=70_500, next_observations=True, episode_length=500
    )
    builder = converted(path, tmp_path)
    export_d4rl(builder, tmp_path / "again.hdf5")
    names = ("observations", "next_observations", "actions", "rewards", "terminals", "timeouts")
    assert_same_values(tmp_path / "again.hdf5", path, names)


def test_a_file_of_pybullet_comes_back(tmp_path):
    path = write_pybullet(tmp_path / "a.hdf5", [4, 3], cut=True)
    builder = convert(D4rlPybulletSource(path), name="a", data_dir=tmp_path, verify=False)
    export_d4rl_pybullet(builder, tmp_path / "again.hdf5")
    names = ("observations", "actions", "rewards", "terminals")
    assert_same_values(tmp_path / "again.hdf5", path, names)


def test_the_policy_can_be_read(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium-v2")
    constants = read_constants(converted(path, tmp_path).data_path)
    with h5py.File(path) as file:
        weight = file["metadata/policy/fc0/weight"][:]
    np.testing.assert_array_equal(constants["metadata/policy/fc0/weight"], weight, strict=True)
    assert constants["metadata/algorithm"] == b"SAC"
    assert constants["metadata/iteration"] == 2_000_000


@pytest.mark.parametrize("distribution", [b"gaussian", b"tanh_gaussian"])
def test_the_policy_explains_the_recorded_probabilities_of_actions(tmp_path, distribution):
    arrays = raw_d4rl.without(raw_d4rl.transitions((100,), 5, 2), "next_observations")
    arrays["observations"] = np.random.default_rng(0).normal(0, 20, (100, 5)).astype("f4")
    policy = raw_d4rl.policy((5, 8, 8, 2))
    policy["metadata/policy/last_fc_log_std/bias"] -= 3
    policy["metadata/policy/output_distribution"] = np.bytes_(distribution)
    path = raw_d4rl.write(
        tmp_path / "a.hdf5",
        {
            **arrays,
            **raw_d4rl.acted(policy, arrays["observations"]),
            "terminals": raw_d4rl.flags(100, 59),
            "timeouts": raw_d4rl.flags(100, 99),
            **policy,
        },
    )
    builder = converted(path, tmp_path)
    recorder = load_policy(builder.data_path)
    for episode in load(builder, "train").as_numpy_iterator():
        steps = episode["steps"]
        recorded = steps["infos"]["action_log_probs"]
        found = recorder.log_prob(steps["observation"], steps["action"])
        np.testing.assert_allclose(found, recorded, rtol=1e-6)
        # The observation of another step does not explain an action.
        other = recorder.log_prob(steps["observation"][1:], steps["action"][:-1])
        assert np.mean(other < recorded[:-1] - 1) > 0.5
