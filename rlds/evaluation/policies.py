"""Policies: what action they take, and how probable it was."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CategoricalPolicy", "GaussianPolicy", "Policy"]


class Policy(abc.ABC):
    """A policy, for many observations at once.

    Observations are what `EvaluationSet.observations` has: an array with a leading axis, or dicts
    of such arrays. Probabilities are computed in float64.
    """

    @abc.abstractmethod
    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        """Returns an action for each observation, drawn at random."""

    @abc.abstractmethod
    def mode(self, observations: Any) -> np.ndarray:
        """Returns the action for each observation that is taken without noise."""

    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        """Returns the logarithm of the probability of each action, or of its density.

        Args:
          observations: What was observed.
          actions: What was done, an action for each observation.

        Returns:
          An array of shape `[n]`, float64; -inf for an action that the policy never takes.

        Raises:
          TypeError: The policy is deterministic, so that there is no density.
        """
        del observations, actions
        raise TypeError(
            f"{type(self).__name__} has no probabilities of actions: it can be evaluated with a "
            "fitted Q-function, not with importance sampling."
        )

    def log_ratio(self, behaviour: Policy, observations: Any, actions: np.ndarray) -> np.ndarray:
        """Returns how much more probable the actions are than under another policy, as logarithms.

        A policy whose log-probabilities share a term with those of another overrides it.
        """
        mine = self.log_prob(observations, actions)
        found: np.ndarray = mine - behaviour.log_prob(observations, actions)
        return found


class CategoricalPolicy(Policy):
    """Takes one of A actions, which are the integers from 0 on.

    Args:
      log_probs: What returns the logarithms of the probabilities for observations, `[n, A]`. They
        need not be normalized.

    >>> policy = CategoricalPolicy.from_table([[0.75, 0.25], [0.5, 0.5]])
    >>> np.exp(policy.log_prob(np.array([0, 1]), np.array([1, 1]))).tolist()
    [0.25, 0.5]
    """

    def __init__(self, log_probs: Callable[[Any], np.ndarray]) -> None:
        self._log_probs = log_probs

    @classmethod
    def from_table(cls, probabilities: Any) -> CategoricalPolicy:
        """Returns a policy for observations that are integers from 0 on.

        Args:
          probabilities: Of each action for each observation, `[S, A]`.
        """
        with np.errstate(divide="ignore"):
            table = np.log(np.asarray(probabilities, np.float64))
        return cls(lambda observations: table[np.asarray(observations)])

    def log_probs(self, observations: Any) -> np.ndarray:
        """Returns the logarithms of the probabilities of all actions, `[n, A]`, float64."""
        logits = np.asarray(self._log_probs(observations), np.float64)
        logits = logits - logits.max(axis=-1, keepdims=True)
        found: np.ndarray = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return found

    def probs(self, observations: Any) -> np.ndarray:
        """Returns the probabilities of all actions, `[n, A]`, float64."""
        found: np.ndarray = np.exp(self.log_probs(observations))
        return found

    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        """See `Policy`."""
        bounds = np.cumsum(self.probs(observations), axis=-1)
        drawn = rng.random((len(bounds), 1)) * bounds[:, -1:]
        found: np.ndarray = (drawn >= bounds).sum(axis=-1)
        return found

    def mode(self, observations: Any) -> np.ndarray:
        """See `Policy`."""
        found: np.ndarray = self.log_probs(observations).argmax(axis=-1)
        return found

    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        """See `Policy`."""
        chosen = np.asarray(actions)[:, None]
        return np.take_along_axis(self.log_probs(observations), chosen, axis=-1)[:, 0]


class GaussianPolicy(Policy):
    """Takes vectors of independent normal numbers.

    Args:
      parameters: What returns the means for observations, `[n, A]`, and the logarithms of the
        standard deviations, in a shape that fits.

    >>> policy = GaussianPolicy(lambda observations: (-0.3 * observations, np.log(0.5)))
    >>> policy.mode(np.array([[1.0]])).tolist()
    [[-0.3]]
    """

    def __init__(self, parameters: Callable[[Any], tuple[Any, Any]]) -> None:
        self._parameters = parameters

    def parameters(self, observations: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the means, and the logarithms of the standard deviations, `[n, A]`, float64."""
        mean, log_std = self._parameters(observations)
        mean = np.asarray(mean, np.float64)
        return mean, np.broadcast_to(np.asarray(log_std, np.float64), mean.shape)

    def sample(self, observations: Any, rng: np.random.Generator) -> np.ndarray:
        """See `Policy`."""
        mean, log_std = self.parameters(observations)
        found: np.ndarray = mean + np.exp(log_std) * rng.standard_normal(mean.shape)
        return found

    def mode(self, observations: Any) -> np.ndarray:
        """See `Policy`."""
        return self.parameters(observations)[0]

    def log_prob(self, observations: Any, actions: np.ndarray) -> np.ndarray:
        """See `Policy`."""
        mean, log_std = self.parameters(observations)
        scaled = (np.asarray(actions, np.float64) - mean) / np.exp(log_std)
        found: np.ndarray = (-0.5 * scaled**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=-1)
        return found
