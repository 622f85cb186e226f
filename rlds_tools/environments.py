"""Environments and policies by their names, as `rlds record` takes them."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from typing_extensions import override

from envlogger.environment_wrapper import EnvironmentWrapper
from rlds_ecosystem import import_extra, install_command

__all__ = ["Limited", "Policy", "Rendered", "make_environment", "make_policy"]

Policy = Callable[[dm_env.TimeStep], Any]

_ENVIRONMENTS = "Expected a Gymnasium id, dm_control:DOMAIN/TASK, catch, or module:function"
_CATCH, _DM_CONTROL, _ATARI = "catch", "dm_control:", "ALE/"
_CONSTANT = "constant:"
# An identifier of Gymnasium may begin with the module that registers it.
_GYMNASIUM_ID = re.compile(r"([\w.]+:)?([\w-]+/)?[\w-]+-v\d+")
# A task of dm_control as other libraries call it.
_DM_CONTROL_TASK = re.compile(r"(?:dm_control/)?([a-z_]+)[/-]([a-z_]+)(?:-v\d+)?")
_DEFAULT_SIZE = (320, 240)


# --- Environments.


def make_environment(
    environment: Any,
    *,
    seed: int,
    max_episode_steps: int | None = None,
    is_rendered: bool = False,
    camera: int | str | None = None,
) -> tuple[dm_env.Environment, str]:
    """Makes an environment.

    Args:
      environment: Its name, see `rlds_tools.record`; a function that makes it, with an argument
        `seed` if it has one; or the environment.
      seed: Its seed.
      max_episode_steps: The number of steps after which an episode ends, for names of Gymnasium.
      is_rendered: Whether its frames are recorded.
      camera: The camera of the frames, for names of Gymnasium.

    Returns:
      The environment and its name.

    Raises:
      ImportError: The package of the environment is not installed.
      ValueError: There is no such environment.
    """
    if is_rendered and sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # MuJoCo would look for a window.
        if "WAYLAND_DISPLAY" not in os.environ:
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # As would Pygame.
    if not isinstance(environment, str):
        name = getattr(environment, "__name__", None) or _name_of(environment)
        return _as_dm_env(_instance(environment, name, seed), seed), name
    if environment == _CATCH:
        from envlogger.testing.catch_env import Catch

        return Catch(seed=seed), environment
    if environment.startswith(_DM_CONTROL):
        return _dm_control(environment.removeprefix(_DM_CONTROL), seed), environment
    if ":" in environment and not _GYMNASIUM_ID.fullmatch(environment):
        env = _instance(_named(environment), environment, seed)
        return _as_dm_env(env, seed), environment
    if difflib.get_close_matches(environment, [_CATCH]):
        raise ValueError(
            f"no environment {environment!r}; did you mean {_CATCH!r}? {_ENVIRONMENTS}"
        )
    env = _gymnasium(environment, max_episode_steps, is_rendered, camera)
    return _as_dm_env(env, seed), environment


def _name_of(environment: Any) -> str:
    spec = getattr(environment, "spec", None)
    return getattr(spec, "id", None) or type(environment).__name__


def _dm_control(name: str, seed: int) -> dm_env.Environment:
    domain, slash, task = name.partition("/")
    if not slash:
        raise ValueError(
            f"{_DM_CONTROL}{name} has no task; expected dm_control:DOMAIN/TASK, such as "
            "dm_control:cartpole/swingup"
        )
    if sys.version_info >= (3, 13) and importlib.util.find_spec("dm_control") is None:
        raise ImportError(
            f"{_DM_CONTROL}{name}: dm_control needs labmaze, which has no wheels for Python 3.13 "
            "and later. Use Python 3.11 or 3.12"
        )
    with _failures_named(f"{_DM_CONTROL}{name}", install_command("dm_control")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It warns if there is no window.
            suite = import_extra("dm_control.suite")
        return suite.load(domain, task, task_kwargs={"random": seed})


@contextlib.contextmanager
def _failures_named(name: str, command: str) -> Iterator[None]:
    """Turns whatever the libraries of an environment raise into one line.

    Args:
      name: The environment.
      command: The shell command that installs releases that work together.
    """
    try:
        yield
    except ValueError as error:  # The name is wrong.
        raise ValueError(f"{name}: {error}") from error
    except Exception as error:
        if str(error).endswith(command):
            raise
        kind = ImportError if isinstance(error, ImportError) else ValueError
        raise kind(
            f"{name} cannot be made: {type(error).__name__}: {error}. To install releases of its "
            f"libraries that work together: {command}"
        ) from error


def _gymnasium(
    name: str, max_episode_steps: int | None, is_rendered: bool, camera: int | str | None
) -> Any:
    gymnasium = import_extra("gymnasium")
    if name.startswith(_ATARI):
        _register_atari(gymnasium)
    options: dict[str, Any] = {"render_mode": "rgb_array"} if is_rendered else {}
    if camera is not None:
        options["camera_id" if isinstance(camera, int) else "camera_name"] = camera
    if max_episode_steps is not None:
        options["max_episode_steps"] = max_episode_steps
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _failures_named(name, _command_for(gymnasium, name)):
            try:
                env = gymnasium.make(name, **options)
            except gymnasium.error.Error as error:
                task = _DM_CONTROL_TASK.fullmatch(name)
                hint = task.expand(r" Did you mean 'dm_control:\1/\2'?") if task else ""
                raise ValueError(f"{error}{hint} {_ENVIRONMENTS}") from error
            except TypeError as error:  # Its constructor has no such argument.
                if camera is None:
                    raise
                raise ValueError(f"no cameras to choose, leave out --camera: {error}") from error
    for warning in caught:  # Not after an error, which they would contradict.
        warnings.warn(warning.message, warning.category, stacklevel=2)
    if camera is not None:
        _check_camera(name, camera, env.unwrapped.model)
    return env


def _command_for(gymnasium: Any, name: str) -> str:
    """The shell command that installs the requirements of an environment of Gymnasium."""
    spec = gymnasium.registry.get(name)
    group = re.match(r"gymnasium\.envs\.(\w+)", str(spec and spec.entry_point))
    extra = group[1].replace("_", "-") if group else "all"
    return f"pip install 'gymnasium[{extra}]'"


def _check_camera(name: str, camera: int | str, model: Any) -> None:
    """MuJoCo itself would end the process for a wrong number, and take another for a wrong name."""
    names = [model.camera(index).name for index in range(model.ncam)]
    if camera not in names and camera not in range(-1, len(names)):
        cameras = ", ".join(f"{index} {name!r}" for index, name in enumerate(names))
        raise ValueError(f"{name} has no camera {camera!r}, only -1 and {cameras or 'no others'}")


def _register_atari(gymnasium: Any) -> None:
    try:
        ale_py = importlib.import_module("ale_py")
    except ImportError as error:
        raise ImportError("Atari games need ale-py: pip install ale-py") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


def _named(name: str) -> Any:
    module, _, attributes = name.rpartition(":")
    try:
        named: Any = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{name}: cannot import {module!r}: {error}") from error
    for attribute in attributes.split("."):
        if not hasattr(named, attribute):
            raise ValueError(f"{name}: the module {module!r} has no {attribute!r}")
        named = getattr(named, attribute)
    return named


def _instance(factory: Any, name: str, seed: int) -> Any:
    """Calls a function or a class to make an instance; returns anything else as it is."""
    if not callable(factory) or (hasattr(factory, "step") and not inspect.isclass(factory)):
        return factory
    signature = inspect.signature(factory)
    arguments = {"seed": seed} if "seed" in signature.parameters else {}
    _check_takes(name, signature, **arguments)
    return factory(**arguments)


def _check_takes(name: str, signature: inspect.Signature, *args: Any, **kwargs: Any) -> None:
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ValueError(f"{name}{signature} has the wrong arguments: {error}") from error


def _as_dm_env(environment: Any, seed: int) -> dm_env.Environment:
    if hasattr(environment, "observation_spec") and hasattr(environment, "action_spec"):
        return environment
    if hasattr(environment, "observation_space") and hasattr(environment, "action_space"):
        from envlogger.gymnasium_adapter import GymnasiumAdapter

        return GymnasiumAdapter(environment, seed=seed)
    raise ValueError(
        f"got a {type(environment).__name__}, expected a dm_env or Gymnasium environment"
    )


class Limited(EnvironmentWrapper):
    """An environment whose episodes are truncated, as by a time limit.

    Args:
      environment: The environment.
      max_episode_steps: After how many steps of an episode; None for never.

    Attributes:
      actions_left: After how many more actions an episode is truncated in any case; None for never.
    """

    def __init__(self, environment: dm_env.Environment, max_episode_steps: int | None) -> None:
        super().__init__(environment)
        self._limit = max_episode_steps
        self.actions_left: int | None = None
        self._length = 0
        self._is_truncated = False

    @property
    def truncated(self) -> bool:
        """True if the time limit ended the episode, here or in the wrapped environment."""
        return self._is_truncated or bool(getattr(self._environment, "truncated", False))

    @override
    def reset(self) -> dm_env.TimeStep:
        self._length, self._is_truncated = 0, False
        return self._environment.reset()

    @override
    def step(self, action: Any) -> dm_env.TimeStep:
        timestep = self._environment.step(action)
        self._length += 1
        if self.actions_left is not None:
            self.actions_left -= 1
        if not timestep.last() and (self._length == self._limit or self.actions_left == 0):
            self._is_truncated = True
            return timestep._replace(step_type=dm_env.StepType.LAST)
        return timestep


class Rendered(EnvironmentWrapper):
    """An environment that is drawn.

    Args:
      environment: The environment.
      camera: The number or the name of the camera, where dm_control draws it.
      size: The width and the height of a frame; by default those of the environment.
      is_observed: Whether frames are part of the observations, under the name `render`. An
        observation that is no dict is `state` beside it.

    Raises:
      ValueError: The environment cannot be drawn.
    """

    def __init__(
        self,
        environment: dm_env.Environment,
        camera: int | str | None = None,
        size: tuple[int, int] | None = None,
        *,
        is_observed: bool = True,
    ) -> None:
        super().__init__(environment)
        self._camera, self._size, self._is_observed = camera, size, is_observed
        self._frame: np.ndarray | None = None
        # Some draw nothing before they are reset, and the shape of a frame is part of the spec.
        self._first: dm_env.TimeStep | None = environment.reset()
        self._shape = self.frame.shape

    @property
    def frame(self) -> np.ndarray:
        """The rendered frame of the current state: uint8 `[height, width, 3]`."""
        if self._frame is None:
            self._frame = self._draw()
        return self._frame

    @override
    def reset(self) -> dm_env.TimeStep:
        timestep, self._first = self._first, None
        if timestep is None:
            timestep, self._frame = self._environment.reset(), None
        return self._with_frame(timestep)

    @override
    def step(self, action: Any) -> dm_env.TimeStep:
        timestep, self._frame = self._environment.step(action), None
        return self._with_frame(timestep)

    @override
    def observation_spec(self) -> Any:
        spec = self._environment.observation_spec()
        if not self._is_observed:
            return spec
        return self._beside(spec, specs.BoundedArray(self._shape, np.uint8, 0, 255, "render"))

    def _with_frame(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if not self._is_observed:
            return timestep
        return timestep._replace(observation=self._beside(timestep.observation, self.frame))

    def _beside(self, observation: Any, frame: Any) -> dict[str, Any]:
        parts = observation if isinstance(observation, Mapping) else {"state": observation}
        return {**parts, "render": frame}

    def _draw(self) -> np.ndarray:
        env = self._environment
        try:
            if hasattr(env, "physics"):
                width, height = self._size or _DEFAULT_SIZE
                camera = 0 if self._camera is None else self._camera
                return np.array(env.physics.render(height, width, camera_id=camera))
            frame = env.render() if hasattr(env, "render") else None
        except Exception as error:
            raise ValueError(f"the environment cannot be rendered: {error}") from error
        frame = np.array(() if frame is None else frame)
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
            raise ValueError(
                "the environment cannot be rendered: `render` must return a uint8 array of shape "
                "(height, width, 3). Make a Gymnasium environment with render_mode='rgb_array'."
            )
        return frame if self._size is None else _resized(frame, self._size)


def _resized(frame: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    from PIL import Image

    return np.array(Image.fromarray(frame).resize(size, Image.Resampling.BOX))


# --- Policies.


def make_policy(policy: Any, action_spec: Any, *, seed: int) -> tuple[Policy, str]:
    """Makes a policy.

    Args:
      policy: Its name, see `rlds_tools.record`, or a function, or a class that makes one.
      action_spec: The spec of the actions.
      seed: Its seed.

    Returns:
      A function of a timestep, and what to call it. It raises a `ValueError` if the policy chooses
      what does not fit the spec.

    Raises:
      ValueError: There is no such policy.
    """
    if policy == "random":
        choose = _random(action_spec, np.random.default_rng(seed))
        return lambda timestep: choose(), policy
    if isinstance(policy, str) and policy.startswith(_CONSTANT):
        action = _constant(policy, action_spec)
        return lambda timestep: action, policy
    if isinstance(policy, str):
        if ":" not in policy:
            raise ValueError(
                f"no policy {policy!r}; expected random, constant:ACTION, or module:function"
            )
        name, policy = policy, _named(policy)
    else:
        name = getattr(policy, "__name__", None) or type(policy).__name__
    if inspect.isclass(policy):
        policy = _instance(policy, name, seed)
    signature = inspect.signature(policy)
    _check_takes(name, signature, None)
    if next(iter(signature.parameters)) == "timestep":
        return lambda timestep: _checked(policy(timestep), action_spec, name), name
    return lambda timestep: _checked(policy(timestep.observation), action_spec, name), name


def _random(spec: Any, rng: np.random.Generator) -> Callable[[], Any]:
    """Returns a sampler of values that fit a spec: uniform within bounds, normal without."""
    if isinstance(spec, Mapping):
        named = {name: _random(part, rng) for name, part in spec.items()}
        return lambda: {name: choose() for name, choose in named.items()}
    if isinstance(spec, list | tuple):
        parts = [_random(part, rng) for part in spec]
        return lambda: tuple(choose() for choose in parts)
    low, high = _bounds(spec)
    dtype, shape = spec.dtype.type, spec.shape
    if spec.dtype.kind != "f":
        if not shape:
            return lambda: dtype(rng.integers(low, high, endpoint=True))
        return lambda: rng.integers(low, high, shape, endpoint=True).astype(dtype)
    low, high = np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    is_bounded = np.isfinite(low) & np.isfinite(high)
    uniform_low, uniform_high = np.where(is_bounded, low, 0), np.where(is_bounded, high, 1)

    def choose_float() -> Any:
        value = rng.uniform(uniform_low, uniform_high)
        if not is_bounded.all():
            value = np.where(is_bounded, value, np.clip(rng.normal(size=shape), low, high))
        return np.asarray(value).astype(dtype)[()]

    return choose_float


def _bounds(spec: specs.Array) -> tuple[Any, Any]:
    kind = spec.dtype.kind
    if kind not in "biuf":
        raise ValueError(f"policy random: cannot choose actions like {spec}. Pass another policy.")
    if isinstance(spec, specs.BoundedArray):
        as_type = np.float64 if kind == "f" else np.int64
        return np.asarray(spec.minimum, as_type), np.asarray(spec.maximum, as_type)
    if kind == "b":
        return 0, 1
    if kind == "f":
        return -np.inf, np.inf
    raise ValueError(
        f"--policy random cannot choose an action without bounds: {spec}. Pass another policy."
    )


def _constant(policy: str, spec: Any) -> Any:
    text = policy.removeprefix(_CONSTANT)
    try:
        values = json.loads(f"[{text}]")
    except ValueError:
        raise ValueError(f"{policy}: got {text!r}, expected numbers separated by commas") from None
    value: Any = values[0] if len(values) == 1 else values
    if isinstance(spec, specs.Array) and np.ndim(value) == 0:
        value = np.full(spec.shape, value)[()]  # The same for all that there are.
    return _checked(value, spec, policy)


def _checked(action: Any, spec: Any, policy: str) -> Any:
    """An action in the dtypes of its spec."""
    try:
        return _fit(action, spec)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"the policy {policy} chose {action!r:.100}, which does not fit the environment: "
            f"{error}"
        ) from error


def _fit(action: Any, spec: Any) -> Any:
    if isinstance(spec, Mapping):
        return {name: _fit(action[name], part) for name, part in spec.items()}
    if isinstance(spec, list | tuple):
        return tuple(_fit(value, part) for value, part in zip(action, spec, strict=True))
    if spec.dtype.kind not in "biuf":
        return spec.validate(action)
    given = np.asarray(action)
    value = given.astype(spec.dtype)
    if spec.dtype.kind != "f" and not np.array_equal(value, given):
        raise ValueError(f"expected {spec.dtype}")
    return spec.validate(value)[()]  # Scalars, which some environments use as keys.
