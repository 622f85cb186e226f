"""RL Unplugged, Atari: whole episodes (`atari_episodes_ordered`).

    observation                  `observations`: PNG files, unchanged
    action, reward, discount     `actions`, `unclipped_rewards`, `discounts`
    clipped_rewards              of the step, next to `reward`
    recorded_episode_id          `episode_idx`, of the episode; unique only with `checkpoint_idx`
    checkpoint_idx, episode_return, clipped_episode_return
                                 of the episode

The order of values in a row is undocumented. With `alignment="sar"`, a row is a transition, as in
the original replay data, and there is no final observation (`final_observation_known` is false).
With `alignment="rsa"`, the reward and the discount of a row arrived with its observation, and the
last row holds the final observation; an episode whose first row has a reward contradicts this.

The other product, `atari/<Game>`, has transitions in random order, not episodes: see
`rlds.formats.rlu.atari_transitions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import rlds
from rlds.formats.atari_games import RLU_GAMES as GAMES
from rlds.formats.rlu.records import ARRIVED, Path
from rlds.formats.rlu.source import RECORDED_ID, RluSource

__all__ = ["GAMES", "RluAtariSource"]

NUM_FILES = {game: 49 if game in ("Carnival", "Gravitar", "StarGunner") else 50 for game in GAMES}


class RluAtariSource(RluSource):
    """Atari games of RL Unplugged. `RluSource` describes the arguments."""

    _DESCRIPTION = (
        "Episodes of Atari games of RL Unplugged, from the replay data of agents (DQN) in training."
    )
    builder_name = "rlds_rlu_atari"
    alignments = ("sar", "rsa")
    row_field = "actions"
    image_fields = ("observations",)
    id_fields = ("checkpoint_idx", "episode_idx")
    ends_with_observation = False
    unused_reward_is_zero = True
    field_paths: ClassVar[Mapping[str, Path]] = {
        "observations": (rlds.OBSERVATION,),
        "actions": (rlds.ACTION,),
        "unclipped_rewards": (rlds.REWARD,),
        "clipped_rewards": (ARRIVED, "clipped_rewards"),
        "discounts": (rlds.DISCOUNT,),
        "episode_idx": (RECORDED_ID,),
    }
