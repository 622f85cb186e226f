"""Q-functions: the expected return of an action if a policy acts afterwards."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rlds.evaluation.features import OneHot
from rlds.evaluation.policies import Policy

__all__ = ["QFunction", "TabularQ"]


class QFunction(Protocol):
    """The action-value function of a policy: any object with these two methods."""

    def q(self, observations: Any, actions: Any) -> np.ndarray:
        """Returns the expected return of each action if the policy acts afterwards, `[n]`."""

    def v(self, observations: Any) -> np.ndarray:
        """Returns the mean of `q` over the actions of the policy, `[n]`."""


class TabularQ:
    """A Q-function of states and actions that are integers from 0 on.

    Args:
      table: The value of each action in each state, `[S, A]`.
      policy: The policy of the Q-function.

    >>> from rlds.evaluation.policies import CategoricalPolicy
    >>> q = TabularQ([[2.0, 3.0], [5.0, 1.0]], CategoricalPolicy.from_table([[0.25, 0.75], [1, 0]]))
    >>> q.v(np.array([0, 1])).round(2).tolist()
    [2.75, 5.0]
    """

    def __init__(self, table: Any, policy: Policy) -> None:
        self.table = np.asarray(table, np.float64)
        if self.table.ndim != 2 or not np.isfinite(self.table).all():
            raise ValueError(
                f"the table must have a finite number for each state and action, [S, A]; got "
                f"shape {self.table.shape}, {(~np.isfinite(self.table)).sum()} not finite"
            )
        self.policy = policy
        self._features = OneHot(*self.table.shape)

    def q(self, observations: Any, actions: Any) -> np.ndarray:
        """See `QFunction`."""
        return self._features(observations, actions) @ self.table.ravel()

    def v(self, observations: Any) -> np.ndarray:
        """See `QFunction`."""
        return self._features.expected(observations, self.policy) @ self.table.ravel()
