"""RL Unplugged, bsuite: windows of two rows, that is, single transitions.

    observation, action, reward  of these names
    discount                     `discount`, and 0 for a transition into the end of an episode
    recorded_discount            `discount` as it is in the file, of the step
    step_type                    of the step
    episodic_reward              of the episode; of the step, if there is one per row

and all other fields by their names. For the other fields and the row order of windows,
see `rlds.formats.rlu.windows`.

An observation is a vector; its original shape is not in the file (in bsuite, the shape of `catch`
is `(10, 5)`).

An episode ends at a step of type 2, with any discount of the transition into it: the published
loader of RL Unplugged uses 0. The step is therefore `is_terminal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

import rlds
from rlds.formats.rlu.records import ARRIVED, LAST, STEP_TYPE, FieldError, Path, Values
from rlds.formats.rlu.windows import RluWindowsSource

__all__ = ["LEVELS", "NOISES", "RluBsuiteSource"]

LEVELS = ("cartpole", "catch", "mountain_car")
# The probabilities of replacing the action of the agent.
NOISES = ("0.0", "0.1", "0.2", "0.3", "0.4", "0.5")
NUM_RUNS = 5
# The complete run, and its training and validation sets.
SUBSETS = ("full", "full_train", "full_valid")

_RECORDED_DISCOUNT = "recorded_discount"


class RluBsuiteSource(RluWindowsSource):
    """Windows of bsuite from RL Unplugged. `RluSource` describes the arguments."""

    _DESCRIPTION = (
        "Transitions of bsuite of RL Unplugged, from agents (DQN) in training, whose actions were "
        "replaced at random with a certain probability."
    )
    builder_name = "rlds_rlu_bsuite"
    has_vectors = True
    field_paths: ClassVar[Mapping[str, Path]] = {_RECORDED_DISCOUNT: (ARRIVED, _RECORDED_DISCOUNT)}

    def prepare(self, values: dict[str, Values]) -> dict[str, Values]:
        """Returns the fields with the recorded discount and the discount of the transition."""
        discounts, step_types = (
            _numeric_values(values, rlds.DISCOUNT),
            _numeric_values(values, STEP_TYPE),
        )
        leads_to_end = (step_types[1:] == LAST)[: len(discounts)]
        masked = discounts.copy()
        masked[: len(leads_to_end)][leads_to_end] = 0.0
        return {**values, rlds.DISCOUNT: masked, _RECORDED_DISCOUNT: discounts}


def _numeric_values(values: Mapping[str, Values], name: str) -> np.ndarray:
    column = values.get(name)
    if not isinstance(column, np.ndarray):
        raise FieldError(name, f"no such numbers; the record has {sorted(values)}")
    return column
