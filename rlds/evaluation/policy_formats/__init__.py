"""Readers of published policies: weights and metadata of Deep-OPE and D4RL.

    read_deep_ope("hopper/hopper_online_10.pkl")     # Deep-OPE for D4RL: pickles of arrays.
    read_deep_ope_index("d4rl_policies.json")        # The value of each policy.
    read_d4rl_policy("hopper_medium-v2.hdf5")        # The policy that recorded a D4RL file.
    open_saved_model("13830900_1/step_000000025001", trusted=True)  # Deep-OPE for RL Unplugged.

`rlds.evaluation.load_policy` returns them as policies for evaluation.
"""

from rlds.evaluation.policy_formats.d4rl import read_d4rl_policy
from rlds.evaluation.policy_formats.deep_ope import (
    DeepOpePolicy,
    read_deep_ope,
    read_deep_ope_index,
)
from rlds.evaluation.policy_formats.saved_models import SavedModel, open_saved_model

__all__ = [
    "DeepOpePolicy",
    "SavedModel",
    "open_saved_model",
    "read_d4rl_policy",
    "read_deep_ope",
    "read_deep_ope_index",
]
