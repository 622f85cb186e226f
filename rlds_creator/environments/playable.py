"""Playable environments: an environment with a key map and rendered frames."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import importlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import dm_env
import numpy as np

__all__ = ["Control", "Family", "Inputs", "Playable", "versions_of"]


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a person since the last step, from all devices.

    Inputs have names: the physical code of a key (`KeyA`, `ArrowLeft`), `Button0`, `Axis1` of a
    gamepad, `Space0` to `Space5` for the axes of a SpaceMouse, `PointerX` and `PointerY` in parts
    of the picture, `Pointer0` for a mouse button or a finger.

    Attributes:
      held: The inputs down or away from their middle at any time since the last step, with
        their latest value other than 0: 1 for keys, 0 to 1 for buttons, -1 to 1 for axes. Those
        that were held first come first.
      pressed: The inputs that went down since the last step, in order; one that went down twice is
        there twice.
      text: The typed text.
    """

    held: Mapping[str, float] = dataclasses.field(default_factory=dict)
    pressed: Sequence[str] = ()
    text: str = ""

    def value(self, *names: str) -> float:
        """Returns the value of the first of some inputs that is held; 0 if none is."""
        return next((self.held[name] for name in names if name in self.held), 0.0)

    def is_held(self, *names: str) -> bool:
        """Whether one of some inputs is held."""
        return any(name in self.held for name in names)


@dataclasses.dataclass(frozen=True)
class Control:
    """The description of an input, for the help of the player.

    Attributes:
      inputs: The names of the inputs, any of which does it; several that are held together are
        joined by "+": `ArrowUp+Space`. Of an axis with `-` or `+` at its end only that side does.
      does: Its effect: "left", "open the gripper". For both sides of an axis, "left / right":
        first the effect of its left or upper side.
    """

    inputs: Sequence[str]
    does: str


def versions_of(distributions: Iterable[str]) -> dict[str, str]:
    """Returns the versions of those of some distributions that are installed."""
    versions = {}
    for name in distributions:
        with contextlib.suppress(metadata.PackageNotFoundError):  # It may be a mere folder.
            versions[name] = metadata.version(name)
    return versions


class Playable(abc.ABC):
    """An environment that can be played. Only the main thread of a process touches it.

    Attributes:
      environment: The environment, which is recorded.
      controls: The effects of the inputs.
      cameras: The names of the cameras; empty if there is nothing to choose.
      idle_action: The action of an environment that steps at its own rate while nothing is held;
        None if there is none: then it does not step either.
      has_draft: Whether there is a quality that draws faster, see `render`.
      repeats: Whether an environment that steps once for each input goes on while one is held.
    """

    environment: dm_env.Environment
    controls: Sequence[Control] = ()
    cameras: Sequence[str] = ()
    idle_action: Any = None
    has_draft: bool = False
    repeats: bool = False

    @abc.abstractmethod
    def action(self, inputs: Inputs) -> Any:
        """Returns the action of inputs; None for no action."""

    @abc.abstractmethod
    def render(self, camera: int = 0, *, is_draft: bool = False) -> np.ndarray:
        """Returns the picture, uint8 of shape `[height, width, 3]`.

        Args:
          camera: The camera to render.
          is_draft: Whether to leave out what takes long: shadows, reflections, smooth edges.
        """

    def seed(self, seed: int) -> None:
        """Gives the next episode a seed."""
        raise NotImplementedError(f"{type(self).__name__} cannot be seeded again")

    def info(self) -> Mapping[str, Any]:
        """Returns the info dict of the last step."""
        return {}

    def metadata(self) -> Mapping[str, Any]:
        """Returns metadata of the running episode, such as the versions of packages."""
        return {}

    def describe(self, action: Any) -> str:
        """Describes an action in words or numbers, for the player."""
        return np.array2string(np.asarray(action), precision=2, separator=" ")

    def close(self) -> None:
        """Closes the environment."""
        self.environment.close()


class Family(abc.ABC):
    """Environments that are made in the same way, such as those of a package.

    Other distributions add families by entry points of the group `rlds_creator.environments`, whose
    value is a subclass of this, `module:Class`.

    Attributes:
      title: Its name, for people.
      requires: The packages to install for it: the arguments of `pip install`.
    """

    title: str = ""
    requires: str = ""

    def package(self, module: str) -> Any:
        """Imports a module that the environments need.

        Raises:
          ImportError: It is not installed; says how to install it.
        """
        try:
            return importlib.import_module(module)
        except ImportError as error:
            install = shlex.join(self.requires.split())
            raise ImportError(f"{error}: pip install {install}") from error

    @abc.abstractmethod
    def identifiers(self) -> Sequence[str]:
        """Returns the identifiers of the allowed environments, as users on the network choose.

        Raises:
          ImportError: It is not installed.
        """

    @abc.abstractmethod
    def make(self, *args: Any, **options: Any) -> Playable:
        """Makes an environment.

        A subclass has keyword arguments only: `id`, one of `identifiers`; `keys`, a dict with what
        keys do in place of what they do by themselves, by their physical codes; and its options,
        with types and defaults: pages offer them.

        Args:
          *args: None.
          **options: `id`, `keys`, and the options of the family.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
