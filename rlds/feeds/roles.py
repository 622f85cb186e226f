"""Which fields of a dataset are the cameras, the state, the action and the instruction."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from rlds import rlds_types
from rlds.statistics import FieldStatistics, Statistics

__all__ = ["ACTION", "STATE", "Roles"]

ACTION = rlds_types.ACTION
"""What the statistics of the action are called, whatever its fields are."""
STATE = "state"
"""Likewise, those of the state."""


@dataclasses.dataclass(frozen=True)
class Roles:
    """Which fields of a dataset are the cameras, the state, the action and the instruction.

    Fields are named by their paths, such as "observation/image". What is said here once serves
    `rlds.feeds.octo`, `rlds.feeds.openvla` and `rlds.feeds.openpi`.

    Attributes:
      images: The field of each camera, by the name of the camera. None for a camera that this
        dataset does not have, but others that are mixed with it do.
      depths: Likewise, of cameras that see depth.
      state: The field of the state of the robot, or several that are joined to one vector. None
        among them is an element that is zero.
      action: The field of the action, or several that are joined to one vector.
      language: The field of the instruction.

    >>> roles = Roles(images={"primary": "observation/image", "wrist": None})
    >>> roles.action
    ('action',)
    """

    images: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    depths: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    state: str | Sequence[str | None] = ()
    action: str | Sequence[str] = (rlds_types.ACTION,)
    language: str | None = None

    def __post_init__(self) -> None:
        for name in (STATE, ACTION):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        if not self.action:
            raise ValueError("Roles: there is no action.")

    @property
    def fields(self) -> list[str]:
        """The paths of all fields, each once."""
        paths = [*self.images.values(), *self.depths.values(), *self.state, *self.action]
        return list(dict.fromkeys(path for path in [*paths, self.language] if path is not None))

    @property
    def vectors(self) -> list[str]:
        """The paths of the fields of the action and the state, to compute statistics of."""
        paths = [*self.action, *self.state]
        return list(dict.fromkeys(path for path in paths if path is not None))

    def join(self, statistics: Statistics) -> Statistics:
        """Returns the statistics of the "action" and, if there is one, of the "state".

        Args:
          statistics: Those of the fields: `compute_statistics(..., roles.vectors)`.

        Raises:
          KeyError: There are none of one of the fields.
          ValueError: The fields of one vector have different divisors (ddof).

        >>> steps = {"x": np.eye(2), "grip": np.arange(2), "is_last": np.array([False, True])}
        >>> from rlds.statistics import compute_statistics
        >>> roles = Roles(action=["x", "grip"])
        >>> statistics = compute_statistics([{"steps": steps}], roles.vectors)
        >>> roles.join(statistics)["action"].mean.tolist()
        [0.5, 0.5, 0.5]
        """
        vectors = {ACTION: self.action, STATE: self.state}
        fields = {
            role: _joined([None if path is None else statistics[path] for path in paths])
            for role, paths in vectors.items()
            if any(path is not None for path in paths)
        }
        return dataclasses.replace(statistics, fields=fields)


def _joined(parts: Sequence[FieldStatistics | None]) -> FieldStatistics:
    """The statistics of vectors that are joined; None is an element that is zero."""
    known = [part for part in parts if part is not None]
    ddof = known[0].ddof
    if any(part.ddof != ddof for part in known):
        raise ValueError("Fields whose statistics differ in ddof cannot be joined.")
    shared = [q for q in known[0].quantiles if all(q in part.quantiles for part in known)]
    count = max(int(np.max(part.count, initial=0)) for part in known)
    zero = constant(0.0, 1, count=count, ddof=ddof, quantiles=shared)
    full = [zero if part is None else part for part in parts]

    def join(name: str) -> np.ndarray:
        return np.concatenate([np.ravel(getattr(part, name)) for part in full])

    return FieldStatistics(
        count=join("count"),
        mean=join("mean"),
        squares=join("squares"),
        min=join("min"),
        max=join("max"),
        mask=join("mask"),
        quantiles={
            q: np.concatenate([np.ravel(part.quantiles[q]) for part in full]) for q in shared
        },
        quantile_error=max(part.quantile_error for part in full),
        ddof=ddof,
    )


def constant(
    value: float, size: int, *, count: int, ddof: int = 0, quantiles: Sequence[float] = (0.01, 0.99)
) -> FieldStatistics:
    """The statistics of a vector whose elements have only one value."""
    values = np.full(size, value)
    return FieldStatistics(
        count=np.full(size, count),
        mean=values,
        squares=np.zeros(size),
        min=values,
        max=values,
        mask=np.ones(size, np.bool_),
        quantiles=dict.fromkeys(quantiles, values),
        ddof=ddof,
    )
