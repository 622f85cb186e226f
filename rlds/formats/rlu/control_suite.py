"""RL Unplugged, DeepMind Control Suite: whole episodes (`dm_control_suite_episodes`).

    observation/...              `observation/...`: all there are
    action, reward, discount     of these names
    step_type                    of the step
    recorded_episode_id          `episode_id`, of the episode
    timestamp, episodic_reward   of the episode; of the step, if there is one per row

and all other fields by their names, nested where these have a slash.

Rows are what the environment returned, one more than there are transitions: `step_type` says 0 for
the first and 2 for the last. Whether the reward and the discount of a row arrived with its
observation (`alignment="rsa"`, the default, as in `dm_env`) or came of its action (`"sar"`) is not
said anywhere. The reward that belongs to no transition has to be zero, which refutes the wrong one.

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
