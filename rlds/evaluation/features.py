"""Features of observations and actions for linear Q-functions."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from rlds.evaluation.policies import (
    CategoricalPolicy,
    DeterministicPolicy,
    GaussianPolicy,
    Policy,
    as_indices,
)
from rlds_ecosystem.model.nests import leaves_at

__all__ = ["Features", "OneHot", "Quadratic", "Sampled", "as_vectors"]

# With more features, the linear equations need gigabytes and minutes.
_MAX_FEATURES = 5000


class Features(abc.ABC):
    """Features of observations and actions, and their mean under a policy.

    Attributes:
      num_samples: The number of sampled actions, if the mean has no closed form.
      seed: The seed of the sampled actions.
    """

    num_samples: int = 10
    seed: int = 0

    @abc.abstractmethod
    def __call__(self, observations: Any, actions: Any) -> np.ndarray:
        """Returns the features, `[n, d]`, float64."""

    def expected(
        self, observations: Any, policy: Policy, rng: np.random.Generator | None = None
    ) -> np.ndarray:
        """Returns the mean of the features over the actions of a policy, `[n, d]`.

        It is exact for a `CategoricalPolicy` and a `DeterministicPolicy`. For other policies, it is
        the mean over sampled actions.

        Args:
          observations: The observations of the policy.
          policy: The policy.
          rng: The random generator; by default, one with the seed of the features.
        """
        if isinstance(policy, CategoricalPolicy):
            by_action = policy.probs(observations).T
            return _sum(
                probability[:, None] * self(observations, np.full(len(probability), action))
                for action, probability in enumerate(by_action)
            )
        if isinstance(policy, DeterministicPolicy):
            return self(observations, policy.mode(observations))
        rng = rng or np.random.default_rng(self.seed)
        samples = (policy.sample(observations, rng) for _ in range(self.num_samples))
        return _sum(self(observations, actions) for actions in samples) / self.num_samples

    def name(self, column: int, observations: Any, actions: Any) -> str:
        """Returns the name of a feature for messages.

        Args:
          column: The index of the feature.
          observations: Some observations.
          actions: Some actions.
        """
        del observations, actions
        return f"feature {column}"


def _sum(arrays: Any) -> np.ndarray:
    return sum(arrays)


@dataclasses.dataclass(frozen=True)
class OneHot(Features):
    """A feature for each pair of a state and an action, which are integers from 0 on.

    Attributes:
      num_states: The number of states.
      num_actions: The number of actions.

    >>> OneHot(2, 2)(np.array([1, 0]), np.array([0, 1]))
    array([[0., 0., 1., 0.],
           [0., 1., 0., 0.]])
    """

    num_states: int
    num_actions: int

    def __post_init__(self) -> None:
        _check_num_features(self.num_states * self.num_actions, "states and actions")

    @override
    def __call__(self, observations: Any, actions: Any) -> np.ndarray:
        states = _find_indices(observations, self.num_states, "observation")
        action_indices = _find_indices(actions, self.num_actions, "action")
        features = np.zeros((len(states), self.num_states * self.num_actions))
        features[np.arange(len(states)), states * self.num_actions + action_indices] = 1
        return features

    @override
    def expected(
        self, observations: Any, policy: Policy, rng: np.random.Generator | None = None
    ) -> np.ndarray:
        if not isinstance(policy, CategoricalPolicy):
            return super().expected(observations, policy, rng)
        states = _find_indices(observations, self.num_states, "observation")
        probabilities = policy.probs(observations)
        if probabilities.shape[1] != self.num_actions:
            raise ValueError(
                f"the policy has {probabilities.shape[1]} actions, OneHot has {self.num_actions}"
            )
        features = np.zeros((len(states), self.num_states, self.num_actions))
        features[np.arange(len(states)), states] = probabilities
        return features.reshape(len(states), self.num_states * self.num_actions)

    @override
    def name(self, column: int, observations: Any, actions: Any) -> str:
        state, action = divmod(column, self.num_actions)
        return f"state {state} with action {action}"


def _find_indices(values: Any, size: int, field: Literal["observation", "action"]) -> np.ndarray:
    if isinstance(values, Mapping):
        raise ValueError(
            f"OneHot needs one integer as {field}, got a dict with {', '.join(values)}: choose a "
            f'field with collect(..., {field}="{field}/{next(iter(values))}")'
        )
    indices = np.asarray(values)
    if indices.ndim == 2 and indices.shape[1] == 1:
        indices = indices[:, 0]
    if indices.ndim != 1:
        raise ValueError(
            f"OneHot needs one integer as {field}, got shape {indices.shape[1:]}. Quadratic and "
            "Sampled take any numbers."
        )
    return as_indices(indices, size, field)


@dataclasses.dataclass(frozen=True)
class Quadratic(Features):
    """Quadratic features: 1, each element of observation and action, and each product of two.

    They are exact for linear dynamics with quadratic costs, and otherwise a baseline. The mean is
    exact under a `GaussianPolicy`. Nested observations are joined to one vector.

    Attributes:
      num_samples: The number of sampled actions, if the mean has no closed form.
      seed: The seed of the sampled actions.

    >>> Quadratic()(np.array([[2.0]]), np.array([[3.0]]))
    array([[1., 2., 3., 4., 6., 9.]])
    """

    num_samples: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        _check_samples(self.num_samples)

    @override
    def __call__(self, observations: Any, actions: Any) -> np.ndarray:
        x = np.concatenate(
            [as_vectors(observations, "observation"), as_vectors(actions, "action")], axis=1
        )
        first, second = _list_pairs(x.shape[1])
        return np.concatenate([np.ones((len(x), 1)), x, x[:, first] * x[:, second]], axis=1)

    @override
    def expected(
        self, observations: Any, policy: Policy, rng: np.random.Generator | None = None
    ) -> np.ndarray:
        if isinstance(policy, CategoricalPolicy | DeterministicPolicy):
            return super().expected(observations, policy, rng)
        # A derived class may change its actions, by tanh for example.
        if isinstance(policy, GaussianPolicy) and type(policy).sample is GaussianPolicy.sample:
            mean, log_std = policy.parameters(observations)
            covariances = np.exp(2 * log_std)[:, :, None] * np.eye(mean.shape[1])
        else:
            rng = rng or np.random.default_rng(self.seed)
            samples = [policy.sample(observations, rng) for _ in range(self.num_samples)]
            vectors = np.stack([as_vectors(actions, "action") for actions in samples])
            mean = vectors.mean(axis=0)
            covariances = np.einsum("kni,knj->nij", vectors - mean, vectors - mean) / len(vectors)
        # The mean of a product is the product of the means, and the covariance.
        features = self(observations, mean)
        size = _count_elements(features.shape[1])
        first, second = _list_pairs(size)
        action = size - mean.shape[1]
        pairs = np.flatnonzero(first >= action)
        features[:, 1 + size + pairs] += covariances[
            :, first[pairs] - action, second[pairs] - action
        ]
        return features

    @override
    def name(self, column: int, observations: Any, actions: Any) -> str:
        sizes = [as_vectors(observations, "observation").shape[1]]
        sizes.append(as_vectors(actions, "action").shape[1])
        names = [
            f"{role}[{index}]"
            for role, size in zip(("observation", "action"), sizes, strict=True)
            for index in range(size)
        ]
        pairs = zip(*_list_pairs(len(names)), strict=True)
        return ["1", *names, *(f"{names[i]} * {names[j]}" for i, j in pairs)][column]


def _list_pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    _check_num_features(1 + size + size * (size + 1) // 2, f"{size} numbers")
    return np.triu_indices(size)


def _count_elements(num_features: int) -> int:
    """Returns the size of vectors with (size + 1)(size + 2) / 2 quadratic features."""
    return (math.isqrt(8 * num_features + 1) - 3) // 2


@dataclasses.dataclass(frozen=True)
class Sampled(Features):
    """Features from a function, for example tiles, random features or a trained network.

    Attributes:
      function: A function that returns the features of observations and actions, `[n, d]`.
      num_samples: The number of sampled actions for the mean, if the policy is not categorical.
      seed: The seed of the sampled actions.

    >>> centers = np.linspace(-1, 1, 3)
    >>> bumps = Sampled(lambda observations, actions: np.exp(-((observations - centers) ** 2)))
    >>> bumps(np.array([[0.0]]), np.array([[0.0]])).round(2)
    array([[0.37, 1.  , 0.37]])
    """

    function: Callable[[Any, Any], Any]
    num_samples: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        _check_samples(self.num_samples)

    @override
    def __call__(self, observations: Any, actions: Any) -> np.ndarray:
        features = np.asarray(self.function(observations, actions), np.float64)
        if features.ndim != 2 or len(features) != len(actions):
            raise ValueError(
                f"the function must return the features of {len(actions)} actions, as an array of "
                f"shape [{len(actions)}, d]; got shape {features.shape}"
            )
        _check_num_features(features.shape[1], "the function")
        return features


def _check_samples(num_samples: int) -> None:
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")


def _check_num_features(count: int, origin: str) -> None:
    if not 0 < count <= _MAX_FEATURES:
        raise ValueError(
            f"{count} features of {origin}: there must be between 1 and {_MAX_FEATURES}. Choose "
            "fields with collect(..., observation=...), or give Sampled(function)."
        )


def as_vectors(nested: Any, role: str) -> np.ndarray:
    """Joins an array, or dicts of arrays, to one vector for each row, `[n, d]`, float64.

    Args:
      nested: Arrays with a leading axis.
      role: The argument of `collect` that named the arrays, for messages.

    Raises:
      ValueError: A field is not numeric; the message names it.
    """
    columns = []
    for path, leaf in leaves_at({role: nested}, None):
        column = np.asarray(leaf)
        if column.dtype.kind not in "biuf":
            raise ValueError(
                f"field {path!r} has {column.dtype}, not numbers: choose other fields with "
                f"collect(..., {role}=...)"
            )
        columns.append(column.reshape(len(column), int(np.prod(column.shape[1:]))))
    return np.concatenate(columns, axis=1, dtype=np.float64)
