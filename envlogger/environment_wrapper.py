"""The base class of environment wrappers."""

from __future__ import annotations

from typing import Any

import dm_env
from typing_extensions import override

__all__ = ["EnvironmentWrapper"]


class EnvironmentWrapper(dm_env.Environment):  # type: ignore[misc]  # dm_env is untyped.
    """Delegates to another environment; subclasses override methods.

    Missing attributes are looked up in the wrapped environment, which is `_environment` for
    subclasses.

    Args:
      environment: The environment to wrap.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        self._environment = environment

    def __getattr__(self, name: str) -> Any:
        if name == "_environment":  # The attribute is missing during copying and construction.
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r} yet")
        return getattr(self._environment, name)

    @override
    def step(self, action: Any) -> dm_env.TimeStep:
        return self._environment.step(action)

    @override
    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    @override
    def observation_spec(self) -> Any:
        return self._environment.observation_spec()

    @override
    def action_spec(self) -> Any:
        return self._environment.action_spec()

    @override
    def reward_spec(self) -> Any:
        return self._environment.reward_spec()

    @override
    def discount_spec(self) -> Any:
        return self._environment.discount_spec()

    def close(self) -> None:
        """Closes the wrapped environment."""
        self._environment.close()
