"""RL Unplugged, DeepMind Control Suite: whole episodes (`dm_control_suite_episodes`).

    observation/...              all `observation/...`
    action, reward, discount     of these names
    step_type                    of the step
    recorded_episode_id          `episode_id`, of the episode
    timestamp, episodic_reward   of the episode; of the step, if there is one per row

and all other fields by their names, nested at slashes.

Rows are the time steps of the environment, one more than there are transitions: `step_type` is 0 in
the first row and 2 in the last. No documentation says if the reward and the discount of a row
arrived with its observation (`alignment="rsa"`, the default, as in `dm_env`) or followed its action
(`"sar"`). The reward outside of all transitions must be zero; otherwise the alignment is wrong.

The other product, `dm_control_suite`, has windows of episodes: see
`rlds.formats.rlu.control_suite_windows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rlds.formats.rlu.records import Alignment, Path
from rlds.formats.rlu.source import RECORDED_ID, RluSource

__all__ = ["TASKS", "RluControlSuiteSource"]

TASKS = (
    "cartpole_swingup",
    "cheetah_run",
    "finger_turn_hard",
    "fish_swim",
    "humanoid_run",
    "manipulator_insert_ball",
    "manipulator_insert_peg",
    "walker_stand",
    "walker_walk",
)


class RluControlSuiteSource(RluSource):
    """Control Suite episodes of RL Unplugged. `RluSource` describes the arguments."""

    _DESCRIPTION = "Episodes of the DeepMind Control Suite of RL Unplugged."
    builder_name = "rlds_rlu_control_suite"
    alignments: ClassVar[Sequence[Alignment]] = ("rsa", "sar")
    row_field = "reward"
    id_fields: ClassVar[Sequence[str]] = ("episode_id",)
    has_vectors = True
    unused_reward_is_zero = True
    field_paths: ClassVar[Mapping[str, Path]] = {"episode_id": (RECORDED_ID,)}
