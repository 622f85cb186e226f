"""Monte Carlo returns and lambda returns of the steps of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlds
from rlds.alignment import discounts_of
from rlds.feeds.samples import Transitions, match_rank
from rlds.feeds.table import Table
from rlds_ecosystem.model.nests import is_below, leaves_at, nest

__all__ = ["lambda_returns"]

# The approximate number of transitions in a block.
_BLOCK_TRANSITIONS = 1 << 18


def lambda_returns(
    table: Table, *, gamma: float = 1.0, lambda_: float = 1.0, values: Any = None
) -> Any:
    """Computes the return of each step, for `Table.with_column`.

    The return of step t is `r + gamma * d * ((1 - lambda) * V(s') + lambda * G')`, with the stored
    discount `d`, which is 0 at a terminal state, and the return `G'` of the next step. After the
    last transition `G'` is `V(s')`, which estimates the return after a time limit. Without values,
    `V` is 0, so returns are sums of rewards to the end of the episode.

    Args:
      table: The steps, with a `reward`: a number, an array, or nested.
      gamma: The discount of every step, in addition to stored discounts.
      lambda_: 1 for sums of all rewards, 0 for one reward and the next value (Sutton and Barto,
        section 12.1).
      values: The values of the observations by a critic, of shape `[table.num_steps]`, in
        the order of the episodes and of their steps. For rewards that are arrays or nested, the
        values have the shape and the nesting of the rewards.

    Returns:
      The returns, float64 of shape `[table.num_steps]`, or in the shape and the nesting of the
      rewards. The return of a final observation is its value.

    Raises:
      KeyError: There is no reward, or neither `is_terminal` nor `discount`.
      TypeError: A reward is not numeric.
      ValueError: An argument is out of range, the values do not have the shapes of the rewards, or
        no discount fits a reward, see `rlds.transformations.transitions`.
    """
    if not 0.0 <= lambda_ <= 1.0:
        raise ValueError(f"lambda_ must be from 0 to 1, got {lambda_}")
    summaries = table.summaries
    transitions = Transitions(table.select([rlds.REWARD]), 1, gamma)
    rewards, discounts = (
        {path: shape for path, (_, shape) in transitions.spec.items() if is_below(path, name)}
        for name in (rlds.REWARD, rlds.DISCOUNT)
    )
    discount_of = discounts_of(rewards, discounts)
    shapes = {path: (table.num_steps, *shape) for path, shape in rewards.items()}
    step_values = {path: np.zeros(shape) for path, shape in shapes.items()}
    if values is not None:
        nested = {rlds.REWARD: values}
        nested = nested if rlds.REWARD in rewards else dict(leaves_at(nested, None))
        step_values = {path: np.asarray(leaf, np.float64) for path, leaf in nested.items()}
    actual = {path: leaf.shape for path, leaf in step_values.items()}
    if actual != shapes:
        raise ValueError(f"values: got the shape {actual}, expected {shapes}")
    step_offsets = np.cumsum(summaries.num_steps) - summaries.num_steps
    counts = summaries.num_transitions
    sample_offsets = np.cumsum(counts) - counts
    all_returns = {path: column.copy() for path, column in step_values.items()}
    blocks = np.cumsum(counts) // _BLOCK_TRANSITIONS
    for block in np.unique(blocks).tolist():
        episodes = np.flatnonzero((blocks == block) & (counts > 0))
        if not len(episodes):
            continue
        first_sample = int(sample_offsets[episodes[0]])
        end_sample = int(sample_offsets[episodes[-1]] + counts[episodes[-1]])
        transition_fields = transitions.batch_columns(np.arange(first_sample, end_sample))
        for back in range(1, int(counts[episodes].max()) + 1):  # Loops from the last steps back.
            episodes = episodes[counts[episodes] >= back]
            steps = step_offsets[episodes] + counts[episodes] - back
            rows = sample_offsets[episodes] + counts[episodes] - back - first_sample
            # The discount of an unknown terminal observation, which has no step, is 0.
            last_steps = step_offsets[episodes] + summaries.num_steps[episodes] - 1
            next_steps = np.minimum(steps + 1, last_steps)
            for path, returns in all_returns.items():
                next_returns = returns[next_steps] if back > 1 else step_values[path][next_steps]
                targets = (1 - lambda_) * step_values[path][next_steps] + lambda_ * next_returns
                discount = match_rank(targets, transition_fields[discount_of[path]][rows])
                returns[steps] = transition_fields[path][rows] + discount * targets
    return nest(all_returns)[rlds.REWARD]
