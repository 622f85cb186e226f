"""The roles of fields in a dataset: cameras, state, action and instruction."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlds import rlds_types
from rlds.feeds.table import Table
from rlds.robotics.registry import DatasetMeaning, meaning_of
from rlds.sources.standardization import STANDARD
from rlds.statistics import Statistics, compute_statistics
from rlds_ecosystem.model.nests import lookup

__all__ = ["ACTION", "STATE", "Roles", "as_vector", "pad_vector"]

ACTION = rlds_types.ACTION
"""The name of the action vector in statistics."""
STATE = "state"
"""The name of the state vector in statistics."""


@dataclasses.dataclass(frozen=True)
class Roles:
    """The roles of fields in a dataset: cameras, state, action and instruction.

    Fields are given by their paths, such as "observation/image". Roles are the same for
    `rlds.feeds.octo`, `rlds.feeds.openvla` and `rlds.feeds.openpi`.

    Attributes:
      images: The field of each camera, by the name of the camera; None for a camera that the
        dataset lacks. A random one of several fields is used per episode and epoch.
      state: The field of the state of the robot, or several fields, which are joined to one vector.
        None stands for a zero element.
      action: The field of the action, or several fields, which are joined to one vector.
      language: The field of the instruction; of several, one is drawn for each episode and epoch.

    Raises:
      ValueError: There is no action.

    >>> roles = Roles(images={"primary": "observation/image", "wrist": None})
    >>> roles.action
    ('action',)
    """

    images: Mapping[str, str | Sequence[str] | None] = dataclasses.field(default_factory=dict)
    state: str | Sequence[str | None] = ()
    action: str | Sequence[str] = (rlds_types.ACTION,)
    language: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name in (STATE, ACTION):
            paths = getattr(self, name)
            object.__setattr__(self, name, (paths,) if isinstance(paths, str) else tuple(paths))
        images = {camera: _as_paths(paths) for camera, paths in self.images.items()}
        object.__setattr__(self, "images", images)
        object.__setattr__(self, "language", _as_paths(self.language))
        if not self.action:
            raise ValueError("Roles: action is empty, expected the path of a field.")

    @classmethod
    def of_dataset(cls, name: str | DatasetMeaning, *, standard: bool = False) -> "Roles":
        """Returns the roles of the fields of a registered robot dataset.

        Args:
          name: The name of the dataset, or the meaning of its fields: see `rlds.robotics`.
          standard: Whether to use the standard state and action of `rlds.robotics.standardized`.

        Raises:
          KeyError: The dataset is not registered.

        >>> roles = Roles.of_dataset("droid")
        >>> roles.images["wrist"], roles.action, roles.language
        ('observation/wrist_image_left', ('action',), 'language_instruction')
        """
        meaning = name if isinstance(name, DatasetMeaning) else meaning_of(name)
        state, action = meaning.state_fields, meaning.action_fields
        if standard:
            state = (f"{STANDARD}/state",) if state else ()
            action = (f"{STANDARD}/action",)
        return cls(dict(meaning.cameras), state, action, next(iter(meaning.language), None))

    @property
    def fields(self) -> list[str]:
        """The paths of all fields, without duplicates."""
        roles = [*self.images.values(), *self.state, *self.action, self.language]
        role_paths = [(paths,) if isinstance(paths, str) else paths or () for paths in roles]
        return list(dict.fromkeys(path for paths in role_paths for path in paths))

    def statistics_of(
        self,
        *tables: Table,
        masks: Mapping[str, Any] | None = None,
        include_last_action: bool = True,
    ) -> Statistics:
        """Computes the statistics of the "action" and, if there is a state, of the "state".

        Args:
          *tables: The steps. Octo and OpenVLA use all splits.
          masks: Masks of the elements to normalize, by these two names; all by default.
          include_last_action: Whether to include the action of the last step of each episode, as
            Octo and OpenVLA do. If False, final observations are excluded.

        Raises:
          KeyError: There is no such field.
          ValueError: There are no episodes, or a mask has a wrong length.
        """
        roles = {ACTION: self.action, STATE: self.state}
        role_paths = {role: paths for role, paths in roles.items() if paths}
        fields = [path for paths in role_paths.values() for path in paths if path is not None]

        def episodes() -> Iterator[dict[str, Any]]:
            for episode in itertools.chain(*(table.whole_episodes(fields) for table in tables)):
                steps = episode[rlds_types.STEPS]
                is_last = steps[rlds_types.IS_LAST]
                values = {path: lookup(steps, path) for path in fields}
                columns = {
                    role: as_vector(paths, values, is_last.shape)
                    for role, paths in role_paths.items()
                }
                yield {**episode, rlds_types.STEPS: {**columns, rlds_types.IS_LAST: is_last}}

        return compute_statistics(
            episodes(), list(role_paths), masks=masks, include_last_action=include_last_action
        )


def _as_paths(paths: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    if paths is None or isinstance(paths, str):
        return paths
    return paths[0] if len(paths) == 1 else tuple(paths)


def as_vector(
    paths: Sequence[str | None], columns: Mapping[str, np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    """Joins fields to one vector.

    Args:
      paths: The fields; None stands for a zero.
      columns: The values by path.
      shape: The leading axes of the values.

    >>> as_vector(["x", None], {"x": np.array([1.0, 2.0])}, (2,)).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    vectors = []
    for path in paths:
        column = np.zeros(shape, np.float32) if path is None else columns[path]
        vectors.append(column.reshape(*shape, math.prod(column.shape[len(shape) :])))
    return np.concatenate(vectors, axis=-1) if len(vectors) > 1 else vectors[0]


def pad_vector(vectors: np.ndarray, dim: int | None, role: str) -> np.ndarray:
    """Pads vectors with zeros at the end.

    Raises:
      ValueError: The vectors are longer than `dim`.
    """
    size = vectors.shape[-1]
    if dim is not None and dim < size:
        raise ValueError(f"the {role} has {size} elements, expected {dim} at most")
    if dim is None or dim == size:
        return vectors
    padded_vectors = np.zeros((*vectors.shape[:-1], dim), vectors.dtype)
    padded_vectors[..., :size] = vectors
    return padded_vectors
