"""The steps of an episode, read as they are requested, whatever they are stored as.

An episode may be longer than memory, so that a step is read without the others: of a log its two
records (`log_steps`), of a TFRecord file what an index says. Other formats are read by columns
(`source_steps`).
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlds.sources.cameras import evenly
from rlds_ecosystem.model.fields import Field

__all__ = ["MOST_POINTS", "EpisodeSteps", "num_curves"]

MOST_POINTS = 5_000
"""The maximum number of points of a curve."""

# A vector with more elements has no curves, as they would be unreadable.
_MAX_CURVES = 512


def num_curves(field: Any) -> int:
    """Returns the number of curves of a field; 0 if it is no number, flag or vector."""
    if not isinstance(field, Field) or field.column_dtype.kind not in "biuf":
        return 0
    size = math.prod(size or 0 for size in field.shape)
    return size if len(field.shape) <= 1 and size <= _MAX_CURVES else 0


class EpisodeSteps(abc.ABC):
    """The steps of an episode, in RLDS order.

    Attributes:
      num_steps: The number of steps.
      fields: The fields of a step, by their paths.
      metadata: The fields of the episode.
      has_last_action: Whether the last step has an action and a reward of its own.
      is_slow: Whether each point of a curve takes its time.
    """

    num_steps: int
    fields: Mapping[str, Any]
    metadata: Mapping[str, Any]
    has_last_action: bool = False
    is_slow: bool = False

    @property
    def most_points(self) -> int:
        """The maximum number of points of a curve."""
        is_long = self.is_slow and self.num_steps > MOST_POINTS
        return MOST_POINTS * 2 // 5 if is_long else MOST_POINTS

    @abc.abstractmethod
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        """Returns the values of the given fields in a step, without missing ones."""

    @abc.abstractmethod
    def numbers(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        """Returns the numbers of a field in all steps; NaN for steps not read within a time limit.

        Returns:
          float64, NaN where there is none, or none yet; and whether all of them have been read.
        """

    @abc.abstractmethod
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        """Returns the values of a field, that has curves, in evenly chosen steps.

        Returns:
          float64 `[steps, elements]`, NaN where there is none.
        """

    def samples(self, path: str, number: int) -> list[Any]:
        """Returns the values of a field in evenly spaced steps."""
        values = [self.step(step, [path]).get(path) for step in evenly(self.num_steps, number)]
        return [value for value in values if value is not None]
