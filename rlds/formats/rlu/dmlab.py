"""RL Unplugged, DeepMind Lab.

    observation/pixels           `observations_pixels`: PNG files, unchanged, with channels in the
                                 order BLUE, GREEN, RED (`info.metadata["channel_order"]`)
    observation/last_action      `observations_action`: one-hot, all zeros without an action
    observation/last_reward      `observations_reward`
    action, reward, discount     `actions`, `rewards`, `discounts`
    discounted_rewards           of the step, as `reward`
    recorded_episode_id          `episode_id`, of the episode
    start_idx, episode_return    of the episode

An episode has one more row than transitions, for its final observation, and is terminal if the
discount of its last transition is 0. The order of the rows follows from the rewards: in "sar", the
observation repeats a reward one row later, in "rsa" in the same row. The first unambiguous record
decides; the default is "sar". `alignment` overrides it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from typing_extensions import override

import rlds
from rlds.formats.rlu.records import ARRIVED, Alignment, Path
from rlds.formats.rlu.source import RECORDED_ID, RluSource
from rlds.sources.source import Fields, SourceInfo
from rlds_ecosystem.model.fields import BGR
from rlds_ecosystem.model.nests import leaves_at, nest

__all__ = ["RUNS", "RluDmlabSource"]

_TRAINING_RUNS = ("training_0", "training_1", "training_2")
_SNAPSHOT_RUNS = tuple(
    f"snapshot_{index}_eps_{epsilon}"
    for epsilon in ("0.0", "0.01", "0.1", "0.25")
    for index in range(2)
)
# The recorded runs of each task.
RUNS = {
    "seekavoid_arena_01": _TRAINING_RUNS + _SNAPSHOT_RUNS,
    "explore_object_rewards_few": _TRAINING_RUNS,
    "explore_object_rewards_many": _TRAINING_RUNS,
    "rooms_select_nonmatching_object": _TRAINING_RUNS,
    "rooms_watermaze": _TRAINING_RUNS,
}
NUM_FILES = 500

_OBSERVATION_PREFIX, _PIXELS_PATH = "observations_", f"{rlds.OBSERVATION}/pixels"
_MAX_EXAMINED_RECORDS = 100


class RluDmlabSource(RluSource):
    """DeepMind Lab episodes of RL Unplugged. `RluSource` describes the arguments."""

    _DESCRIPTION = (
        "Episodes of DeepMind Lab of RL Unplugged, from agents (R2D2) in training or trained. The "
        "channels of the images are in the order blue, green, red."
    )
    builder_name = "rlds_rlu_dmlab"
    alignments = ("sar", "rsa")
    row_field = "actions"
    image_fields = ("observations_pixels",)
    id_fields = ("episode_id",)
    field_paths: ClassVar[Mapping[str, Path]] = {
        "observations_pixels": (rlds.OBSERVATION, "pixels"),
        "observations_action": (rlds.OBSERVATION, "last_action"),
        "observations_reward": (rlds.OBSERVATION, "last_reward"),
        "actions": (rlds.ACTION,),
        "rewards": (rlds.REWARD,),
        "discounted_rewards": (ARRIVED, "discounted_rewards"),
        "discounts": (rlds.DISCOUNT,),
        "episode_id": (RECORDED_ID,),
    }

    @override
    def field_path(self, name: str) -> Path:
        if name.startswith(_OBSERVATION_PREFIX) and name not in self.field_paths:
            return (rlds.OBSERVATION, name.removeprefix(_OBSERVATION_PREFIX))
        return super().field_path(name)

    def find_alignment(self) -> Alignment:
        """Returns the order of the rows; see the module."""
        for _, _, values in itertools.islice(self.records(), _MAX_EXAMINED_RECORDS):
            observed_rewards, rewards = values.get("observations_reward"), values["rewards"]
            if observed_rewards is None or len(observed_rewards) != len(rewards):
                break
            is_sar = np.array_equal(observed_rewards[1:], rewards[:-1])
            is_rsa = np.array_equal(observed_rewards[1:], rewards[1:])
            if is_sar != is_rsa:
                return "sar" if is_sar else "rsa"
        return self.alignments[0]

    @property
    @override
    def fields(self) -> Fields:
        fields = super().fields
        leaves = dict(leaves_at(fields.steps, None))
        if _PIXELS_PATH in leaves:
            leaves[_PIXELS_PATH] = dataclasses.replace(leaves[_PIXELS_PATH], names=BGR)
        return fields.replace(steps=nest(leaves))

    @property
    @override
    def source_info(self) -> SourceInfo:
        info = super().source_info
        return info.replace(metadata={**info.metadata, "channel_order": {_PIXELS_PATH: "BGR"}})
