"""The suite of tasks of dm_control."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds_creator.environments.key_maps import KeyedPlayable, key_map
from rlds_creator.environments.mujoco_pictures import (
    MuJoCoPictures,
    actuator_names,
    draw_without_display,
)
from rlds_creator.environments.playable import Family

__all__ = ["DmControlFamily", "DmControlPlayable"]


class DmControlPlayable(KeyedPlayable):
    """A task of dm_control."""

    @override
    def seed(self, seed: int) -> None:
        # The only way to seed a task is its random generator.
        self.environment.task._random = np.random.RandomState(seed)


class DmControlFamily(Family):
    """The tasks of the control suite, `domain/task`."""

    title = "dm_control"
    requires = "dm-control"

    @override
    def identifiers(self) -> Sequence[str]:
        return [f"{domain}/{task}" for domain, task in self._suite().ALL_TASKS]

    def make(
        self,
        *,
        id: str,
        keys: Mapping[str, Any],
        time_limit: float | None = None,
        strength: float | Sequence[float] = 1.0,
        has_pointer: bool = False,
        width: int = 480,
        height: int = 480,
    ) -> DmControlPlayable:
        """See `Family`.

        Args:
          id: The domain and the task.
          keys: The actions of keys, which replace the default actions.
          time_limit: The duration of an episode in simulated seconds; by default that of the task.
          strength: The fraction of its bound by which a key moves an element of the action, from 0
            to 1; or a fraction for each element.
          has_pointer: Whether the first two elements of the action follow the mouse while its
            button is down; a single element follows it to the left and right.
          width: The width of pictures.
          height: The height of pictures.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
        if time_limit is not None and not time_limit > 0:
            raise ValueError(f"time_limit is {time_limit}, expected more than 0 seconds")
        domain, _, task = id.partition("/")
        environment = self._suite().load(
            domain, task, task_kwargs={} if time_limit is None else {"time_limit": time_limit}
        )
        spec, physics = environment.action_spec(), environment.physics
        keymap = key_map(
            spec,
            overrides=keys,
            names=actuator_names(physics.model.ptr, spec.shape),
            strength=strength,
            has_pointer=has_pointer,
        )
        pictures = MuJoCoPictures(lambda: (physics.model.ptr, physics.data.ptr), width, height)
        return DmControlPlayable(environment, keymap, ["dm-control", "mujoco"], pictures=pictures)

    def _suite(self) -> Any:
        draw_without_display()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.package("dm_control.suite")
