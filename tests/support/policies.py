"""The golden dataset that the loaders of policies read."""

from pathlib import Path

import tfds_files
from rlds.feeds.roles import Roles
from rlds.statistics import compute_statistics

GOLDEN = Path(__file__).parents[1] / "golden" / "policies"
DATASET = GOLDEN / "arm" / "1.0.0"

# The last element of the action is a gripper, which Octo and OpenVLA do not normalize.
MASKS = {"action": [True, True, True, False]}
OCTO = Roles(
    images={
        "primary": "observation/exterior_image_1_left",
        "secondary": None,
        "wrist": "observation/wrist_image_left",
    },
    state="observation/joint_position",
    language="language_instruction",
)
OPENVLA = Roles(
    images={"primary": "observation/exterior_image_1_left", "wrist": None},
    state=["observation/joint_position", None, "observation/gripper_position"],
    language="language_instruction",
)
OPENPI = Roles(
    images={
        "image": "observation/exterior_image_1_left",
        "wrist_image": "observation/wrist_image_left",
    },
    state=["observation/joint_position", "observation/gripper_position"],
    action=["action_dict/joint_position", "action_dict/gripper_position"],
    language="language_instruction",
)


def statistics_of(roles, splits=("train", "val"), **options):
    """The statistics of all steps of the action and the state, as Octo and OpenVLA count them."""
    folder = tfds_files.open_folder(DATASET)
    episodes = [episode for split in splits for episode in folder[split]]
    statistics = compute_statistics(episodes, roles.vectors, include_last_action=True, **options)
    return roles.join(statistics)
