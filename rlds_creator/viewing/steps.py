"""The steps of an episode, read on demand, independent of their storage.

An episode may be larger than memory. Therefore single steps are read: from the records of a log
(`log_steps`), or at the offsets of an index of TFRecord files. Other formats are read by columns
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

__all__ = ["MAX_POINTS", "EpisodeSteps", "num_curves"]

MAX_POINTS = 5_000
"""The maximum number of points of a curve."""

# A vector with more elements has no curves, because they are unreadable.
_MAX_CURVES = 512


def num_curves(field: Any) -> int:
    """Returns the number of curves of a field; 0 if it is not a number, a flag or a vector."""
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
      is_slow: Whether reading a point of a curve is slow.
    """

    num_steps: int
    fields: Mapping[str, Any]
    metadata: Mapping[str, Any]
    has_last_action: bool = False
    is_slow: bool = False

    @property
    def max_points(self) -> int:
        """The maximum number of points of a curve."""
        is_long = self.is_slow and self.num_steps > MAX_POINTS
        return MAX_POINTS * 2 // 5 if is_long else MAX_POINTS

    @abc.abstractmethod
    def step(self, step: int, paths: Iterable[str]) -> dict[str, Any]:
        """Returns the values of fields in a step, without missing values."""

    @abc.abstractmethod
    def scalars(self, path: str, seconds: float) -> tuple[np.ndarray, bool]:
        """Returns the values of a numeric field in all steps, read up to a time limit.

        Returns:
          A float64 array, with NaN for missing or unread values; and True if all are read.
        """

    @abc.abstractmethod
    def curves(self, path: str, steps: Sequence[int]) -> np.ndarray:
        """Returns the values of a field with curves in evenly spaced steps.

        Returns:
          A float64 array `[steps, elements]`, with NaN for missing values.
        """

    def samples(self, path: str, count: int) -> list[Any]:
        """Returns the values of a field in evenly spaced steps."""
        values = [self.step(step, [path]).get(path) for step in evenly(self.num_steps, count)]
        return [value for value in values if value is not None]
