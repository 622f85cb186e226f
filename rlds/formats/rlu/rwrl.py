"""RL Unplugged, the combined challenge of Real-World RL.

    observation/...              `observation:...`
    action, reward, discount     of these names
    step_type                    of the step

and all other fields by their names, nested at colons. All are float32.

A row has the action, the reward and the discount that led to its observation. An episode is
terminal if the discount of its last row is 0; the discount of the first row has no meaning.
"""

from __future__ import annotations

from rlds.formats.rlu.source import RluSource

__all__ = ["NUM_FILES", "RluRwrlSource"]

PERCENT = (1, 5, 20, 40, 100)
# The number of files by challenge and task, for each percentage of the data.
NUM_FILES = {
    ("none", "cartpole/swingup"): (3, 3, 6, 6, 7),
    ("none", "quadruped/walk"): (3, 3, 4, 7, 10),
    ("none", "walker/walk"): (3, 6, 14, 48, 94),
    ("none", "humanoid/walk"): (9, 123, 125, 344, 391),
    ("easy", "cartpole/swingup"): (2, 3, 8, 8, 14),
    ("easy", "quadruped/walk"): (3, 3, 9, 10, 15),
    ("easy", "walker/walk"): (11, 17, 78, 137, 371),
    ("easy", "humanoid/walk"): (18, 98, 244, 410, 769),
}


class RluRwrlSource(RluSource):
    """Real-World RL episodes of RL Unplugged. `RluSource` describes the arguments."""

    _DESCRIPTION = "Episodes of the Real-World RL suite of RL Unplugged, from agents in training."
    builder_name = "rlds_rlu_rwrl"
    alignments = ("rsa",)
    row_field = "reward"
    action_led_here = True
    has_vectors = True
    separator = ":"
