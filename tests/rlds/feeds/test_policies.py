"""Samples and statistics of Octo, OpenVLA and openpi equal those of their own code."""

import dataclasses
import json
import pickle
import shutil

import numpy as np
import policies
import pytest

import rlds.feeds
import tfds_files
from rlds.feeds import Roles, octo, openpi, openvla
from rlds.feeds.octo import OctoSamples
from rlds.feeds.openpi import OpenpiSamples
from rlds.feeds.openvla import OpenVLASamples
from rlds.feeds.resizing import resize
from rlds.normalization import normalize
from rlds_ecosystem.model.nests import named_leaves

LENGTHS = np.array([5, 3, 1, 6])
STEPS = np.concatenate([np.arange(length) for length in LENGTHS])
ENDS = np.repeat(LENGTHS, LENGTHS)


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory):
    """A copy of the data, because opening it writes an index."""
    return shutil.copytree(policies.GOLDEN, tmp_path_factory.mktemp("policies") / "copy")


@pytest.fixture(scope="module", name="table")
def fixture_table(directory):
    return policies.open_table(directory)


@pytest.mark.slow
def test_rows_equal_those_of_reference_loaders(directory):
    names = ["octo", "octo_goals", "openvla", "openvla_goals", "openpi"]
    assert policies.check_samples(directory) == names


@pytest.mark.slow
@pytest.mark.parametrize(("name", "first"), [("octo_goals", 0), ("openvla_goals", 1)])
def test_goals_are_drawn_from_the_rest_of_the_episode(directory, name, first):
    samples = policies.samples_of(directory)[name]
    indices = np.arange(len(samples))
    drawn = np.stack([samples.batch(indices, epoch)["task"]["timestep"] for epoch in range(60)])
    first_steps = np.minimum(STEPS + first, ENDS - 1)
    np.testing.assert_array_equal(drawn.min(axis=0), first_steps)
    np.testing.assert_array_equal(drawn.max(axis=0), ENDS - 1)
    batch = samples.batch([14, 3], epoch=7)
    assert batch["task"]["timestep"].tolist() == drawn[7, [14, 3]].tolist()
    # A goal is the observation of its step.
    begins = indices - STEPS
    plain = samples.batch(begins + drawn[0])["observation"]
    goal = samples.batch(indices)["task"]
    for key in ("image_primary", "proprio"):
        np.testing.assert_array_equal(goal[key], plain[key][:, -1])


def test_goals_stay_within_max_goal_distance(table):
    samples = OctoSamples(table, policies.OCTO, "arm", goal_seed=1, max_goal_distance=2)
    goals = samples.batch(np.arange(len(samples)))["task"]["timestep"]
    assert set((goals - STEPS).tolist()) == {0, 1}


def test_last_action_is_left_out_on_request(table):
    """Unless the data has a flag for it, the last step is the final observation."""
    options = {"include_last_action": False, "action_horizon": 3}
    samples = OctoSamples(table, policies.OCTO, "arm", **options)
    assert samples.counts().tolist() == [4, 2, 0, 5]
    stored = table.read(0, fields=["action"])["action"]
    batch = samples.batch([3])
    np.testing.assert_array_equal(batch["action"][0, 0], stored[[3, 3, 3]])
    with_last = OctoSamples(table, policies.OCTO, "arm", action_horizon=3).batch([3])
    np.testing.assert_array_equal(with_last["action"][0, 0], stored[[3, 4, 4]])


def test_samples_are_picklable_and_describe_themselves(directory):
    for name, samples in policies.samples_of(directory).items():
        unpickled = pickle.loads(pickle.dumps(samples))
        assert unpickled.describe() == samples.describe()
        for (_, ours), (_, theirs) in zip(
            named_leaves(samples.batch([2, 9])), named_leaves(unpickled.batch([2, 9])), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
    described = {samples.describe() for samples in policies.samples_of(directory).values()}
    assert len(described) == 5
    assert "window_size=2" in repr(policies.samples_of(directory)["octo"])


@pytest.mark.slow
def test_datasets_with_and_without_a_camera_are_mixed(table):
    images = {**policies.OCTO.images, "wrist": None}
    roles_without = dataclasses.replace(policies.OCTO, images=images)
    samples = [
        OctoSamples(table, roles, name, image_size=(4, 4))
        for name, roles in (("one", policies.OCTO), ("other", roles_without))
    ]
    batch = next(iter(rlds.feeds.Feed(rlds.feeds.Mixture(samples), 32, seed=0)))
    has_camera = batch["dataset_name"] == b"one"
    np.testing.assert_array_equal(
        batch["observation"]["pad_mask_dict"]["image_wrist"][:, 0], has_camera
    )
    assert 0 < has_camera.sum() < 32


def test_images_of_different_sizes_are_resized(tmp_path):
    image = tfds_files.Image(shape=(None, None, 3), dtype=np.dtype(np.uint8))
    action = tfds_files.Tensor(dtype=np.dtype(np.float32))
    step = tfds_files.Features(features={"camera": image, "action": action})
    steps = tfds_files.Features(features={"steps": tfds_files.Dataset(feature=step)})
    images = [np.full((6, 8, 3), 7, np.uint8), np.full((9, 2, 3), 8, np.uint8)]
    with tfds_files.append_to(tmp_path / "sizes", steps, "sizes") as writer:
        writer.add({"steps": {"camera": images, "action": np.array([0.25, 0.5], np.float32)}})
    table = rlds.feeds.open(tmp_path / "sizes")
    stored = OctoSamples(table, Roles({"primary": "camera"}), "arm").batch([1, 0])
    actual = [camera[0].shape for camera in stored["observation"]["image_primary"]]
    assert actual == [(9, 2, 3), (6, 8, 3)]
    assert stored["action"].tolist() == [[[[0.5]]], [[[0.25]]]]
    samples = OctoSamples(table, Roles({"primary": "camera"}), "arm", image_size=(3, 3))
    resized = samples.batch([1, 0])["observation"]["image_primary"]
    np.testing.assert_array_equal(resized[0], np.full((1, 3, 3, 3), 8, np.uint8))
    np.testing.assert_array_equal(resized[1], np.full((1, 3, 3, 3), 7, np.uint8))


def test_statistics_equal_those_of_openpi(directory):
    samples = policies.samples_of(directory)["openpi"]
    feed = rlds.feeds.Feed(samples, 4, epochs=1)
    actual = openpi.compute_statistics(feed, policies.OPENPI)
    golden = openpi.statistics_from_json((directory / "openpi.json").read_text())
    assert actual["action"].count.tolist() == [60] * 4
    for role in golden:
        np.testing.assert_allclose(actual[role].mean, golden[role].mean, rtol=1e-6)
        np.testing.assert_allclose(actual[role].std, golden[role].std, rtol=1e-5)
        # openpi rounds a quantile to a value from one of 5000 bins.
        for q, bound in ((0.01, "min"), (0.99, "max")):
            limit = 2 * (actual[role].max - actual[role].min) / 5000
            assert (np.abs(golden[role].quantiles[q] - getattr(actual[role], bound)) <= limit).all()
    with pytest.raises(ValueError, match="there are no batches"):
        openpi.compute_statistics([], policies.OPENPI)


def test_wrong_roles_and_masks_are_refused(directory, table):
    with pytest.raises(
        KeyError, match="no field 'observation/imag'; did you mean 'observation/wrist_image_left'"
    ):
        OctoSamples(table, Roles({"primary": "observation/imag"}), "arm")
    with pytest.raises(ValueError, match="window_size must be positive, got 0"):
        OctoSamples(table, policies.OCTO, "arm", window_size=0)
    with pytest.raises(ValueError, match="the action has 4 elements, expected 3 at most"):
        OctoSamples(table, policies.OCTO, "arm", max_action_dim=3)
    with pytest.raises(ValueError, match="absolute_action_mask has 2 elements, the action has 4"):
        OpenVLASamples(table, policies.OPENVLA, "arm", absolute_action_mask=[True, False])
    other_statistics = policies.statistics_of(directory, policies.OPENVLA)
    with pytest.raises(ValueError, match=r"the shape of the state is \(0, 1, 3\), but .* \(5,\)"):
        OctoSamples(table, policies.OCTO, "arm", statistics=other_statistics)
    with pytest.raises(ValueError, match="two fields of the state would have the name"):
        OpenpiSamples(table, Roles({"joint_position": None}, "observation/joint_position"))
    with pytest.raises(ValueError, match="action is empty"):
        Roles(action=())


def test_images_are_resized_without_aliasing():
    flat = np.full((2, 7, 5, 3), 200, np.uint8)
    np.testing.assert_array_equal(resize(flat, (3, 40)), 200)
    # Fine stripes become grey, not stripes of another width.
    stripes = np.tile(np.array([0, 255], np.uint8), 64)[np.newaxis, :, np.newaxis]
    small = resize(np.tile(stripes, (16, 1, 3)), (8, 40))
    assert (np.abs(small[:, 4:-4].astype(int) - 128) < 12).all()
    assert resize(small, (8, 40)) is small


@pytest.mark.slow
def test_statistics_files_equal_those_of_octo_and_openvla(directory):
    assert policies.check_files(directory) == ["octo", "openvla"]


def test_openvla_statistics_without_state_are_zero(directory):
    stateless = policies.statistics_of(directory, dataclasses.replace(policies.OPENVLA, state=()))
    proprio = json.loads(openvla.statistics_to_json(stateless))["proprio"]
    assert proprio == dict.fromkeys(("mean", "std", "max", "min", "q01", "q99"), [0.0] * 4)


@pytest.mark.parametrize(("form", "name"), [(octo, "octo"), (openvla, "openvla")])
def test_statistics_files_keep_their_values(directory, form, name):
    roles = getattr(policies, name.upper())
    expected = policies.statistics_of(directory, roles, masks=policies.MASKS)
    loaded = form.statistics_from_json((directory / f"{name}.json").read_text())
    assert list(loaded) == ["action", "state"]
    assert (loaded.num_transitions, loaded.num_trajectories) == (19, 5)
    for role in loaded:
        for measure in ("mean", "std", "min", "max"):
            ours, theirs = getattr(expected[role], measure), getattr(loaded[role], measure)
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert loaded[role].count.tolist() == expected[role].count.tolist()
        assert loaded[role].quantiles.keys() == {0.01, 0.99}
    assert loaded["action"].mask.tolist() == [True] * 3 + [name == "octo"]
    again = form.statistics_from_json(form.statistics_to_json({"arm": loaded}), dataset_name="arm")
    assert form.statistics_to_json(again) == form.statistics_to_json(loaded)


def test_statistics_of_openpi_survive_round_trip(directory):
    text = (directory / "openpi.json").read_text()
    loaded = openpi.statistics_from_json(text)
    assert list(loaded) == ["state", "action"]
    policies.check_equal(
        json.loads(openpi.statistics_to_json(loaded)), policies.read(directory, "openpi")
    )
    # A file of another writer: padded, without quantiles.
    plain = {"mean": [1.0, 2.0, 0.0], "std": [3.0, 4.0, 0.0], "q01": None, "q99": None}
    other = json.dumps({"norm_stats": {"state": plain, "actions": plain}})
    unpadded = openpi.statistics_from_json(other, dims={"state": 2})
    assert unpadded["state"].mean.tolist() == [1.0, 2.0]
    assert unpadded["action"].std.tolist() == [3.0, 4.0, 0.0]
    assert normalize(np.array([4.0, 10.0]), unpadded["state"]).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match=r"the quantiles \[\], not 0.01 and 0.99"):
        openpi.statistics_to_json(unpadded)
    with pytest.raises(ValueError, match="statistics of the action have 3 elements, expected 4"):
        openpi.statistics_from_json(other, dims={"action": 4})


def test_splits_are_added_and_placeholders_left_out(directory):
    train, val = (
        policies.statistics_of(directory, policies.OPENVLA, [split]) for split in ("train", "val")
    )
    both, added = policies.statistics_of(directory, policies.OPENVLA), train + val
    assert (added.num_transitions, added.num_trajectories) == (19, 5)
    for role in ("action", "state"):
        np.testing.assert_allclose(added[role].std, both[role].std)
        np.testing.assert_array_equal(added[role].quantiles[0.01], both[role].quantiles[0.01])
    real = policies.statistics_of(directory, policies.OPENPI, include_last_action=False)
    assert (real.num_transitions, real["state"].count[0], real["action"].count[0]) == (14, 19, 14)
