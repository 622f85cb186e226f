"""Creates the environments and policies of `rlds record` from their names."""

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

__all__ = ["Policy", "RenderedFrames", "TimeLimit", "make_environment", "make_policy"]

Policy = Callable[[dm_env.TimeStep], Any]

_EXPECTED_NAMES = "Expected a Gymnasium id, dm_control:DOMAIN/TASK, catch, or module:function"
_CATCH, _DM_CONTROL_PREFIX, _ATARI_PREFIX = "catch", "dm_control:", "ALE/"
_CONSTANT_PREFIX = "constant:"
# An identifier of Gymnasium may begin with the module that registers it.
_GYMNASIUM_ID = re.compile(r"([\w.]+:)?([\w-]+/)?[\w-]+-v\d+")
# The name of a task of dm_control in other libraries.
_DM_CONTROL_TASK = re.compile(r"(?:dm_control/)?([a-z_]+)[/-]([a-z_]+)(?:-v\d+)?")
_DEFAULT_PICTURE_SIZE = (320, 240)


# --- Environments.


def make_environment(
    environment: Any,
    *,
    seed: int,
    max_episode_steps: int | None = None,
    is_rendered: bool = False,
    camera: int | str | None = None,
) -> tuple[dm_env.Environment, str]:
    """Creates an environment.

    Args:
      environment: The name, see `rlds_tools.record`; a function that creates the environment, which
        may take `seed`; or the environment.
      seed: The seed of the environment.
      max_episode_steps: The number of steps after which an episode of a created environment ends.
      is_rendered: Whether frames are recorded.
      camera: The camera of the frames, of a Gymnasium environment that is given by its name.

    Returns:
      The environment and its name.

    Raises:
      ImportError: The package of the environment is not installed.
      ValueError: The environment is unknown.
    """
    if is_rendered and sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # EGL renders without a window.
        if "WAYLAND_DISPLAY" not in os.environ:
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # The dummy driver needs no window.
    if not isinstance(environment, str):
        name = getattr(environment, "__name__", None) or _environment_name(environment)
        return _as_dm_env(_call_factory(environment, name, seed), seed), name
    if environment == _CATCH:
        from envlogger.testing.catch_env import Catch

        return Catch(seed=seed), environment
    if environment.startswith(_DM_CONTROL_PREFIX):
        return _make_dm_control(environment.removeprefix(_DM_CONTROL_PREFIX), seed), environment
    if ":" in environment and not _GYMNASIUM_ID.fullmatch(environment):
        env = _call_factory(_import_object(environment), environment, seed)
        return _as_dm_env(env, seed), environment
    if difflib.get_close_matches(environment, [_CATCH]):
        raise ValueError(
            f"no environment {environment!r}; did you mean {_CATCH!r}? {_EXPECTED_NAMES}"
        )
    env = _make_gymnasium(environment, max_episode_steps, is_rendered, camera)
    return _as_dm_env(env, seed), environment


def _environment_name(environment: Any) -> str:
    spec = getattr(environment, "spec", None)
    return getattr(spec, "id", None) or type(environment).__name__


def _make_dm_control(name: str, seed: int) -> dm_env.Environment:
    domain, slash, task = name.partition("/")
    if not slash:
        raise ValueError(
            f"{_DM_CONTROL_PREFIX}{name} has no task; expected dm_control:DOMAIN/TASK, such as "
            "dm_control:cartpole/swingup"
        )
    if sys.version_info >= (3, 13) and importlib.util.find_spec("dm_control") is None:
        raise ImportError(
            f"{_DM_CONTROL_PREFIX}{name}: dm_control needs labmaze, which has no wheels for Python "
            "3.13 and later. Use Python 3.11 or 3.12"
        )
    with _one_line_errors(f"{_DM_CONTROL_PREFIX}{name}", install_command("dm_control")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # dm_control warns without a window.
            suite = import_extra("dm_control.suite")
        return suite.load(domain, task, task_kwargs={"random": seed})


@contextlib.contextmanager
def _one_line_errors(name: str, command: str) -> Iterator[None]:
    """Turns the errors of the libraries of an environment into one line.

    Args:
      name: The name of the environment.
      command: The shell command that installs compatible releases.
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
            f"{name} cannot be created: {type(error).__name__}: {error}. To install compatible "
            f"releases of its libraries: {command}"
        ) from error


def _make_gymnasium(
    name: str, max_episode_steps: int | None, is_rendered: bool, camera: int | str | None
) -> Any:
    gymnasium = import_extra("gymnasium")
    if name.startswith(_ATARI_PREFIX):
        _register_atari(gymnasium)
    options: dict[str, Any] = {"render_mode": "rgb_array"} if is_rendered else {}
    if camera is not None:
        options["camera_id" if isinstance(camera, int) else "camera_name"] = camera
    if max_episode_steps is not None:
        options["max_episode_steps"] = max_episode_steps
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _one_line_errors(name, _install_command_of(gymnasium, name)):
            try:
                env = gymnasium.make(name, **options)
            except gymnasium.error.Error as error:
                task = _DM_CONTROL_TASK.fullmatch(name)
                hint = task.expand(r" Did you mean 'dm_control:\1/\2'?") if task else ""
                raise ValueError(f"{error}{hint} {_EXPECTED_NAMES}") from error
            except TypeError as error:  # The constructor lacks the argument `camera_id`.
                if camera is None:
                    raise
                raise ValueError(f"no cameras to choose, leave out --camera: {error}") from error
    for warning in caught:  # After an error, warnings would be confusing.
        warnings.warn(warning.message, warning.category, stacklevel=2)
    if camera is not None:
        _check_camera(name, camera, env.unwrapped.model)
    return env


def _install_command_of(gymnasium: Any, name: str) -> str:
    """Returns the shell command that installs the requirements of a Gymnasium environment."""
    spec = gymnasium.registry.get(name)
    group = re.match(r"gymnasium\.envs\.(\w+)", str(spec and spec.entry_point))
    extra_name = group[1].replace("_", "-") if group else "all"
    return f"pip install 'gymnasium[{extra_name}]'"


def _check_camera(name: str, camera: int | str, model: Any) -> None:
    """Checks a camera: MuJoCo aborts for a wrong index, and ignores a wrong name."""
    names = [model.camera(index).name for index in range(model.ncam)]
    if camera not in names and camera not in range(-1, len(names)):
        cameras = ", ".join(f"{index} {name!r}" for index, name in enumerate(names))
        valid_cameras = f"-1 and {cameras}" if cameras else "-1"
        raise ValueError(f"{name} has no camera {camera!r}; expected {valid_cameras}")


def _register_atari(gymnasium: Any) -> None:
    try:
        ale_py = importlib.import_module("ale_py")
    except ImportError as error:
        raise ImportError("Atari games need ale-py: pip install ale-py") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


def _import_object(name: str) -> Any:
    module, _, attributes = name.rpartition(":")
    try:
        value: Any = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{name}: cannot import {module!r}: {error}") from error
    for attribute in attributes.split("."):
        if not hasattr(value, attribute):
            raise ValueError(f"{name}: the module {module!r} has no {attribute!r}")
        value = getattr(value, attribute)
    return value


def _call_factory(factory: Any, name: str, seed: int) -> Any:
    """Calls a function or a class to create an object; returns other objects unchanged."""
    if not callable(factory) or (hasattr(factory, "step") and not inspect.isclass(factory)):
        return factory
    signature = inspect.signature(factory)
    arguments = {"seed": seed} if "seed" in signature.parameters else {}
    _check_arguments(name, signature, **arguments)
    return factory(**arguments)


def _check_arguments(name: str, signature: inspect.Signature, *args: Any, **kwargs: Any) -> None:
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


class TimeLimit(EnvironmentWrapper):
    """An environment whose episodes are truncated, as by a time limit.

    Args:
      environment: The environment.
      max_episode_steps: The number of steps after which an episode is truncated; None for never.

    Attributes:
      actions_left: The number of actions until truncation, over all episodes; None for no limit.
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


class RenderedFrames(EnvironmentWrapper):
    """An environment whose observations include rendered frames.

    Args:
      environment: The environment.
      camera: The index or the name of the camera, for environments of dm_control.
      size: The width and the height of a frame; by default the size of the environment.
      is_observed: Whether observations include frames as `render`. An observation that is no dict
        becomes `state`.

    Raises:
      ValueError: The environment cannot be rendered.
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
        # The spec needs the shape of a frame, and some environments render only after a reset.
        self._first_timestep: dm_env.TimeStep | None = environment.reset()
        self._shape = self.frame.shape

    @property
    def frame(self) -> np.ndarray:
        """The rendered frame of the current state: uint8 `[height, width, 3]`."""
        if self._frame is None:
            self._frame = self._render()
        return self._frame

    @override
    def reset(self) -> dm_env.TimeStep:
        timestep, self._first_timestep = self._first_timestep, None
        if timestep is None:
            timestep, self._frame = self._environment.reset(), None
        return self._add_to_timestep(timestep)

    @override
    def step(self, action: Any) -> dm_env.TimeStep:
        timestep, self._frame = self._environment.step(action), None
        return self._add_to_timestep(timestep)

    @override
    def observation_spec(self) -> Any:
        spec = self._environment.observation_spec()
        if not self._is_observed:
            return spec
        return self._add_frame(spec, specs.BoundedArray(self._shape, np.uint8, 0, 255, "render"))

    def _add_to_timestep(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if not self._is_observed:
            return timestep
        return timestep._replace(observation=self._add_frame(timestep.observation, self.frame))

    def _add_frame(self, observation: Any, frame: Any) -> dict[str, Any]:
        fields = observation if isinstance(observation, Mapping) else {"state": observation}
        return {**fields, "render": frame}

    def _render(self) -> np.ndarray:
        env = self._environment
        try:
            if hasattr(env, "physics"):
                width, height = self._size or _DEFAULT_PICTURE_SIZE
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
        return frame if self._size is None else _resize(frame, self._size)


def _resize(frame: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    from PIL import Image

    return np.array(Image.fromarray(frame).resize(size, Image.Resampling.BOX))


# --- Policies.


def make_policy(policy: Any, action_spec: Any, *, seed: int) -> tuple[Policy, str]:
    """Creates a policy.

    Args:
      policy: The name, see `rlds_tools.record`, or a function, or a class of policies.
      action_spec: The spec of the actions.
      seed: The seed of the policy.

    Returns:
      A function of a timestep, and its name. The function raises a `ValueError` if the policy
      chooses an action that does not match the spec.

    Raises:
      ValueError: The policy is unknown.
    """
    if policy == "random":
        choose = _random_sampler(action_spec, np.random.default_rng(seed))
        return lambda timestep: choose(), policy
    if isinstance(policy, str) and policy.startswith(_CONSTANT_PREFIX):
        action = _parse_constant(policy, action_spec)
        return lambda timestep: action, policy
    if isinstance(policy, str):
        if ":" not in policy:
            raise ValueError(
                f"no policy {policy!r}; expected random, constant:ACTION, or module:function"
            )
        name, policy = policy, _import_object(policy)
    else:
        name = getattr(policy, "__name__", None) or type(policy).__name__
    if inspect.isclass(policy):
        policy = _call_factory(policy, name, seed)
    signature = inspect.signature(policy)
    _check_arguments(name, signature, None)
    if next(iter(signature.parameters)) == "timestep":
        return lambda timestep: _as_action(policy(timestep), action_spec, name), name
    return lambda timestep: _as_action(policy(timestep.observation), action_spec, name), name


def _random_sampler(spec: Any, rng: np.random.Generator) -> Callable[[], Any]:
    """Returns a sampler of values that fit a spec: uniform within bounds, normal without."""
    if isinstance(spec, Mapping):
        samplers = {name: _random_sampler(child, rng) for name, child in spec.items()}
        return lambda: {name: sample() for name, sample in samplers.items()}
    if isinstance(spec, list | tuple):
        elements = [_random_sampler(child, rng) for child in spec]
        return lambda: tuple(sample() for sample in elements)
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


def _parse_constant(policy: str, spec: Any) -> Any:
    text = policy.removeprefix(_CONSTANT_PREFIX)
    try:
        values = json.loads(f"[{text}]")
    except ValueError:
        raise ValueError(f"{policy}: got {text!r}, expected numbers separated by commas") from None
    value: Any = values[0] if len(values) == 1 else values
    if isinstance(spec, specs.Array) and np.ndim(value) == 0:
        value = np.full(spec.shape, value)[()]  # All elements have the value.
    return _as_action(value, spec, policy)


def _as_action(action: Any, spec: Any, policy: str) -> Any:
    """Converts an action to the dtypes of its spec."""
    try:
        return _cast(action, spec)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"the policy {policy} chose {action!r:.100}, which does not match the environment: "
            f"{error}"
        ) from error


def _cast(action: Any, spec: Any) -> Any:
    if isinstance(spec, Mapping):
        return {name: _cast(action[name], child) for name, child in spec.items()}
    if isinstance(spec, list | tuple):
        return tuple(_cast(value, child) for value, child in zip(action, spec, strict=True))
    if spec.dtype.kind not in "biuf":
        return spec.validate(action)
    array = np.asarray(action)
    value = array.astype(spec.dtype)
    if spec.dtype.kind != "f" and not np.array_equal(value, array):
        raise ValueError(f"expected {spec.dtype}")
    return spec.validate(value)[()]  # Scalars can be keys of dicts.
