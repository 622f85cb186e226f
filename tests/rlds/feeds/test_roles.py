"""Roles of the fields of registered robot datasets."""

import numpy as np
import pytest
import raw_oxe

import rlds.feeds
import rlds.robotics
import rlds.sources
from rlds.feeds import Roles
from rlds.feeds.octo import OctoSamples
from rlds.feeds.openvla import OpenVLASamples


def test_roles_of_registered_datasets_name_stored_fields(tmp_path):
    roles = Roles.of_dataset("fractal20220817_data")
    assert roles.images == {"primary": "observation/image"}
    state = ("observation/base_pose_tool_reached", "observation/gripper_closed")
    assert roles.state == state
    assert "action/terminate_episode" not in roles.action
    table = rlds.feeds.open(raw_oxe.fractal(tmp_path), "train")
    batch = OctoSamples(table, roles, "fractal", image_size=(8, 8)).batch([0, 5])
    assert batch["observation"]["proprio"].shape == (2, 1, 8)
    assert batch["action"].shape == (2, 1, 1, 10)
    with pytest.raises(KeyError, match="no dataset 'cartpole' is registered"):
        Roles.of_dataset("cartpole")


def test_standard_roles_use_action_masks(tmp_path):
    # Images stay files until a batch needs them.
    stored = rlds.sources.open(raw_oxe.bridge_dataset(tmp_path), "train", decode_images=False)
    episodes = rlds.robotics.standardized(stored)
    meaning = rlds.robotics.meaning_of("bridge_dataset")
    roles = Roles.of_dataset(meaning, standard=True)
    roles.images.pop("secondary")  # There is one camera here.
    table = rlds.feeds.open(episodes, fields=[*roles.fields, "standard/is_kept"])
    statistics = roles.statistics_of(table, masks={"action": meaning.action_mask})
    assert statistics["action"].mask.tolist() == [True] * 6 + [False]
    samples = OpenVLASamples(
        table,
        roles,
        "bridge_dataset",
        statistics=statistics,
        absolute_action_mask=meaning.absolute_action_mask,
        image_size=(8, 8),
    )
    batch = samples.batch(np.arange(6))
    first = episodes[0].steps["standard"]
    np.testing.assert_array_equal(batch["action"][:, 0, 6], first["action"][:, 6])
    assert batch["observation"]["proprio"].shape == (6, 1, 8)
    assert batch["observation"]["image_primary"].shape == (6, 1, 8, 8, 3)
    assert batch["observation"]["image_primary"].any(axis=(1, 2, 3, 4)).all()
    assert batch["task"]["language_instruction"].tolist() == [b""] * 6
