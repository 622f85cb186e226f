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
    gamepad, `Space0` to `Space5` for the axes of a SpaceMouse, `PointerX` and `PointerY` as
    fractions of the picture, `Pointer0` for a mouse button or a finger.

    Attributes:
      held: The inputs held at any time since the last step, the earliest first, with their latest
        value other than 0: 1 for keys, 0 to 1 for buttons, -1 to 1 for axes.
      pressed: The inputs pressed since the last step, in order; repeated presses are repeated.
      text: The typed text.
    """

    held: Mapping[str, float] = dataclasses.field(default_factory=dict)
    pressed: Sequence[str] = ()
    text: str = ""

    def value(self, *names: str) -> float:
        """Returns the value of the first held input among names; 0 if none is held."""
        return next((self.held[name] for name in names if name in self.held), 0.0)

    def is_held(self, *names: str) -> bool:
        """True if any of the named inputs is held."""
        return any(name in self.held for name in names)


@dataclasses.dataclass(frozen=True)
class Control:
    """The description of an input, for the help of the player.

    Attributes:
      inputs: The names of alternative inputs; a combination of held inputs is joined by "+":
        `ArrowUp+Space`. An axis with a final `-` or `+` means only the lower or the upper side.
      does: The effect: "left", "open the gripper". For both sides of an axis, "left / right": the
        effect of its left or upper side comes first.
    """

    inputs: Sequence[str]
    does: str


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Returns the versions of distributions; missing ones are left out."""
    versions = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):  # A plain folder has no version.
            versions[name] = metadata.version(name)
    return versions


class Playable(abc.ABC):
    """An environment with a key map and a renderer. Only the main thread of a process uses it.

    Attributes:
      environment: The environment, which is recorded.
      controls: The effects of the inputs.
      cameras: The names of the cameras; empty if there is no choice.
      idle_action: The action of a real-time environment while no input is held; None pauses the
        environment.
      has_draft: Whether there is a draft quality that renders faster, see `render`.
      repeats: Whether a held input repeats steps in an environment with a step for each input.
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
          is_draft: Whether to leave out slow effects: shadows, reflections, smooth edges.
        """

    def seed(self, seed: int) -> None:
        """Sets the seed of the next episode."""
        raise NotImplementedError(f"{type(self).__name__} cannot be seeded again")

    def info(self) -> Mapping[str, Any]:
        """Returns the info dict of the last step."""
        return {}

    def metadata(self) -> Mapping[str, Any]:
        """Returns metadata of the running episode, such as the versions of packages."""
        return {}

    def describe(self, action: Any) -> str:
        """Describes an action for the player, as text or numbers."""
        return np.array2string(np.asarray(action), precision=2, separator=" ")

    def close(self) -> None:
        """Closes the environment."""
        self.environment.close()


class Family(abc.ABC):
    """A kind of environments, such as those of one package.

    Other distributions add families by entry points of the group `rlds_creator.environments`; the
    value is a subclass, `module:Class`.

    Attributes:
      title: The displayed name.
      requires: The required packages: the arguments of `pip install`.
    """

    title: str = ""
    requires: str = ""

    def package(self, module: str) -> Any:
        """Imports a module that the environments need.

        Raises:
          ImportError: The module is not installed; the message has the command to install it.
        """
        try:
            return importlib.import_module(module)
        except ImportError as error:
            install = shlex.join(self.requires.split())
            raise ImportError(f"{error}: pip install {install}") from error

    @abc.abstractmethod
    def identifiers(self) -> Sequence[str]:
        """Returns the identifiers of the environments that users on the network can choose.

        Raises:
          ImportError: The package is not installed.
        """

    @abc.abstractmethod
    def make(self, *args: Any, **options: Any) -> Playable:
        """Creates an environment.

        A subclass has keyword arguments only: `id`, one of `identifiers`; `keys`, the actions of
        keys instead of the default ones, by their physical codes; and its options, with types and
        defaults: pages offer them.

        Args:
          *args: Unused.
          **options: `id`, `keys`, and the options of the family.

        Raises:
          ValueError: An option, or the action of a key, is wrong; the message names it.
        """
