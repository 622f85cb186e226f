"""Alignment of raw rows to the order of RLDS: observation, action, reward and discount of a step.

Raw formats hold the `T` transitions of an episode in one of these orders:

=====  ======================================================  =============  ================
order  row t                                                   rows           last observation
=====  ======================================================  =============  ================
SARS   o_t, a_t, and the reward and discount that a_t brought  T              if it is stored
T/T+1  as SARS, in arrays of different lengths                 T; T + 1 of o  yes
RSA    o_t, and the reward and discount that arrived with it   T + 1          yes
=====  ======================================================  =============  ================

RLDS has the order of SARS, with a separate step for the final observation. The action, reward and
discount of this step are placeholders: zeros in all builders, also for truncated episodes. If the
raw data does not have the final observation, the episode has `T` steps, the last step has a valid
action and reward, and `final_observation_known` is False.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlds import rlds_types
from rlds_ecosystem.model.columns import map_columns, step_flags, with_placeholder
from rlds_ecosystem.model.nests import is_below, named_leaves

__all__ = ["append_row", "derived_columns", "discounts_of", "from_rsa", "from_sars", "num_rows"]


def discounts_of(
    rewards: Mapping[str, Sequence[int | None]], discounts: Mapping[str, Sequence[int | None]]
) -> dict[str, str]:
    """Returns the path of the discount of each reward, by the path of the reward.

    A step may have several rewards or discounts (of agents, or of objectives), nested or in arrays.
    A discount applies to the reward at the same path and to all nested rewards, so a single
    discount applies to all.

    Args:
      rewards: The shapes of the rewards of a step, by path.
      discounts: The shapes of the discounts of a step, by path.

    Raises:
      ValueError: A reward has no matching discount.

    >>> discounts_of({"reward/a": (), "reward/b": ()}, {"discount/a": (), "discount/b": ()})
    {'reward/a': 'discount/a', 'reward/b': 'discount/b'}
    >>> discounts_of({"reward/a": (2,), "reward/b": ()}, {"discount": ()})
    {'reward/a': 'discount', 'reward/b': 'discount'}
    """
    matches: dict[str, str] = {}
    for reward, shape in rewards.items():
        same_path = reward.replace(rlds_types.REWARD, rlds_types.DISCOUNT, 1)
        for discount, sizes in discounts.items():
            pairs = zip(sizes, shape)
            fits = all(size in (1, None, other) or other is None for size, other in pairs)
            if is_below(same_path, discount) and fits and len(sizes) <= len(shape):
                matches[reward] = discount
        if reward not in matches:
            fields = ", ".join(f"{path!r} of shape {(*s,)}" for path, s in discounts.items())
            raise ValueError(
                f"no discount fits the field {reward!r} of shape {(*shape,)}, only {fields}. "
                "Give both the same structure, or do not sum rewards with discounts: pass n=1, or "
                "stored_discounts=False."
            )
    return matches


def from_sars(
    *,
    observation: Any,
    action: Any,
    reward: Any = None,
    terminal: bool,
    discount: Any = None,
    transition_metadata: Mapping[str, Any] | None = None,
    observation_metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the steps of an episode whose transitions are rows.

    Args:
      observation: Columns (nested in dicts) of `T + 1` rows, or of `T` if the final observation is
        unknown.
      action: Columns of `T` rows.
      reward: Columns of `T` rows; None for a dataset without rewards.
      terminal: Whether the last transition led to a terminal state.
      discount: A column of `T` rows. If None, float32 ones, with a zero for the transition into the
        terminal state.
      transition_metadata: Columns of `T` rows about the transitions. These columns get a row of
        zeros (or of empty strings) for the final observation.
      observation_metadata: Columns about the observations, with the same number of rows.

    Returns:
      The columns of `T + 1` steps, or of `T` if the final observation is unknown.

    Raises:
      ValueError: There are no rows, the columns differ in length, or two fields have the same name.

    >>> steps = from_sars(
    ...     observation=np.array([7, 8, 9]), action=np.array([1, 2]), reward=np.array([0.5, 1.5]),
    ...     terminal=True,
    ... )
    >>> steps["action"], steps["reward"], steps["discount"], steps["is_terminal"]
    (array([1, 2, 0]), array([0.5, 1.5, 0. ]), array([1., 0., 0.], dtype=float32), \
array([False, False,  True]))
    """
    num_transitions, num_steps = num_rows(action, "action"), num_rows(observation, "observation")
    if num_steps not in (num_transitions, num_transitions + 1) or not num_steps:
        raise ValueError(
            f"{num_steps} observations and {num_transitions} actions, expected as many actions as "
            "observations, or one less with a final observation"
        )
    if discount is None:
        discount = np.ones(num_transitions, np.float32)
        discount[num_transitions - 1 :] = 0.0 if terminal else 1.0
    transitions = {
        rlds_types.ACTION: action,
        **({} if reward is None else {rlds_types.REWARD: reward}),
        rlds_types.DISCOUNT: discount,
    }
    return _assemble(
        num_steps,
        terminal,
        observation,
        _with_placeholders(transitions, num_transitions, num_steps),
        _with_placeholders(transition_metadata or {}, num_transitions, num_steps),
        observation_metadata or {},
    )


def derived_columns(
    num_steps: int, num_transitions: int, *, terminal: bool
) -> dict[str, np.ndarray]:
    """Returns derived flags and discounts of steps; see `from_sars`.

    >>> derived_columns(3, 2, terminal=True)["discount"]
    array([1., 0., 0.], dtype=float32)
    """
    observation, action = np.empty((num_steps, 0)), np.empty((num_transitions, 0))
    steps = from_sars(observation=observation, action=action, terminal=terminal)
    return {name: steps[name] for name in (*rlds_types.STEP_FLAGS, rlds_types.DISCOUNT)}


def from_rsa(
    *,
    observation: Any,
    action: Any,
    reward: Any,
    discount: Any,
    terminal: bool,
    action_led_here: bool,
    transition_metadata: Mapping[str, Any] | None = None,
    observation_metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the steps of an episode; its rows hold an observation and the reward before it.

    Args:
      observation: Columns (nested in dicts) of `T + 1` rows.
      action: Columns of `T + 1` rows; the first or the last row is ignored.
      reward: A column of `T + 1` rows, whose first row is ignored; None for a dataset without
        rewards.
      discount: A column of `T + 1` rows, whose first row is ignored; if None, see `from_sars`.
      terminal: Whether the last observation is a terminal state.
      action_led_here: True if the action of a row led to its observation (the first row is
        ignored), False if it was taken on it (the last row is ignored).
      transition_metadata: Columns of `T + 1` rows that arrived with the reward.
      observation_metadata: Columns of `T + 1` rows about the observations.

    Returns:
      The columns of `T + 1` steps.

    Raises:
      ValueError: See `from_sars`.
    """
    rows = num_rows(observation, "observation")
    arrived = {} if reward is None else {rlds_types.REWARD: reward}
    arrived |= transition_metadata or {}
    if discount is not None:
        arrived[rlds_types.DISCOUNT] = discount
    for name, columns in {rlds_types.ACTION: action, **arrived}.items():
        if num_rows(columns, name) != rows:
            raise ValueError(f"{name}: {num_rows(columns, name)} rows, but {rows} observations")
    arrived = map_columns(lambda column: column[1:], arrived)
    return from_sars(
        observation=observation,
        action=map_columns(lambda column: column[1:] if action_led_here else column[:-1], action),
        reward=arrived.pop(rlds_types.REWARD, None),
        discount=arrived.pop(rlds_types.DISCOUNT, None),
        terminal=terminal,
        transition_metadata=arrived,
        observation_metadata=observation_metadata,
    )


def append_row(columns: Any, row: Any) -> Any:
    """Appends a row to columns (nested in dicts), for example the final observation."""
    if isinstance(columns, Mapping):
        return {name: append_row(child, row[name]) for name, child in columns.items()}
    return np.concatenate([columns, np.asarray(row, columns.dtype)[np.newaxis]])


def num_rows(columns: Any, name: str) -> int:
    """Returns the number of rows of columns (nested in dicts).

    Raises:
      ValueError: The columns differ in length, or there is no column.
    """
    if isinstance(columns, np.ndarray):
        return len(columns)
    lengths = {len(leaf) for _, leaf in named_leaves(columns)}
    if not lengths:
        raise ValueError(f"{name}: no columns")
    if len(lengths) > 1:
        raise ValueError(f"{name}: the columns differ in length: {sorted(lengths)}")
    return lengths.pop()


def _assemble(
    num_steps: int, terminal: bool, observation: Any, *field_groups: Mapping[str, Any]
) -> dict[str, Any]:
    steps = {rlds_types.OBSERVATION: observation, **step_flags([num_steps], [terminal])}
    for fields in field_groups:
        for name, columns in fields.items():
            if name in steps:
                raise ValueError(f"{name}: another field has this name")
            if num_rows(columns, name) != num_steps:
                raise ValueError(f"{name}: {num_rows(columns, name)} rows, expected {num_steps}")
            steps[name] = columns
    return steps


def _with_placeholders(fields: Mapping[str, Any], length: int, num_steps: int) -> dict[str, Any]:
    """Returns columns of transitions, with a placeholder if there is a final step."""
    for name, columns in fields.items():
        if num_rows(columns, name) != length:
            raise ValueError(f"{name}: {num_rows(columns, name)} rows, expected {length}")
    return dict(fields if num_steps == length else with_placeholder(fields))
