"""Returns of all steps of a table: Monte Carlo, and with the values of a critic."""

from __future__ import annotations

import numpy as np

import rlds
from rlds.feeds.samples import Transitions
from rlds.feeds.table import Table

__all__ = ["lambda_returns"]

# So many transitions are worked on at a time, about.
_BLOCK = 1 << 18


def lambda_returns(
    table: Table, *, gamma: float = 1.0, lambda_: float = 1.0, values: np.ndarray | None = None
) -> np.ndarray:
    """Computes the return of each step, for `Table.with_column`.

    The return of step t is `r + gamma * d * ((1 - lambda) * V(s') + lambda * G')`, with the stored
    discount `d`, which is 0 where the episode ends, and the return `G'` of the next step. After the
    last transition `G'` is `V(s')`: what comes after a time limit is what the values say of it.
    Without values, that is 0: these are sums of rewards to the end of the episode.

    Args:
      table: The steps, with a `reward` that is a number.
      gamma: The discount of every step, beside those that are stored.
      lambda_: 1 for sums of all rewards, 0 for one reward and the next value (Sutton and Barto,
        section 12.1).
      values: What a critic says of the observation of each step, of shape `[table.num_steps]`, in
        the order of the episodes and of their steps.

    Returns:
      float64 of shape `[table.num_steps]`. Of the last step of an episode whose final observation
      is known, it is the value.

    Raises:
      KeyError: There is no reward, or neither `is_terminal` nor `discount`.
      ValueError: A number is out of range, the reward is no number, or there are not as many values
        as steps.
    """
    if not 0.0 <= lambda_ <= 1.0:
        raise ValueError(f"lambda_ must be from 0 to 1, got {lambda_}")
    outlines = table.outlines
    known = np.zeros(table.num_steps) if values is None else np.asarray(values, np.float64)
    if known.shape != (table.num_steps,):
        raise ValueError(f"values of shape {known.shape}, for {table.num_steps} steps")
    transitions = Transitions(table.select([rlds.REWARD]), 1, gamma)
    if transitions.spec[rlds.REWARD][1]:
        raise ValueError(f"the reward has the shape {transitions.spec[rlds.REWARD][1]}")
    begins = np.cumsum(outlines.num_steps) - outlines.num_steps
    numbers = outlines.num_transitions
    firsts = np.cumsum(numbers) - numbers
    found = known.copy()
    blocks = np.cumsum(numbers) // _BLOCK
    for block in np.unique(blocks).tolist():
        chosen = np.flatnonzero((blocks == block) & (numbers > 0))
        if not len(chosen):
            continue
        first, end = int(firsts[chosen[0]]), int(firsts[chosen[-1]] + numbers[chosen[-1]])
        made = transitions.batch_columns(np.arange(first, end))
        rewards, discounts = made[rlds.REWARD].astype(np.float64), made[rlds.DISCOUNT]
        for back in range(1, int(numbers[chosen].max()) + 1):  # All episodes at once, from the end.
            chosen = chosen[numbers[chosen] >= back]
            steps = begins[chosen] + numbers[chosen] - back
            rows = firsts[chosen] + numbers[chosen] - back - first
            # A terminal observation that is not known has no step, and counts for nothing.
            last = begins[chosen] + outlines.num_steps[chosen] - 1
            after = np.minimum(steps + 1, last)
            ahead = found[after] if back > 1 else known[after]
            mixed = (1 - lambda_) * known[after] + lambda_ * ahead
            found[steps] = rewards[rows] + discounts[rows] * mixed
    return found
