"""`EnvLogger`, the environment wrapper that records every step."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import dm_env

from envlogger.backends.backend_type import BackendType
from envlogger.backends.backend_writer import BackendWriter
from envlogger.backends.in_memory_backend import InMemoryBackendWriter
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.converters import spec_codec
from envlogger.environment_wrapper import EnvironmentWrapper
from envlogger.errors import UsageError
from envlogger.step_data import StepData
from envlogger.validation import StepValidator
from rlds_ecosystem.video_codec import Video

__all__ = ["EnvLogger"]

_DEFAULT_BACKEND = BackendType.RIEGELI

_BACKENDS: dict[BackendType, Callable[..., BackendWriter]] = {
    BackendType.RIEGELI: RiegeliBackendWriter,
    BackendType.IN_MEMORY: InMemoryBackendWriter,
}

# The arguments of `EnvLogger` that go to the video encoder instead of the backend.
_VIDEO_ARGUMENTS = ("scheduler", "max_pending_bytes", "when_behind")

StepFn = Callable[[dm_env.TimeStep, Any, dm_env.Environment], Any]


class EnvLogger(EnvironmentWrapper):
    """An environment that records every step.

        with envlogger.EnvLogger(env, data_directory=data_directory) as env:
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(policy(timestep))

    Args:
      env: The environment, closed together with the recorder. A Gymnasium environment is wrapped in
        a `envlogger.gymnasium_adapter.GymnasiumAdapter`: `reset` and `step` return timesteps.
      step_fn: Called with the timestep, the action (None on reset) and `env` after each step; its
        result is stored as `custom_data` of the step.
      episode_fn: Called like `step_fn`, after the step was recorded. Its last result in an episode
        that is not None is stored as the metadata of the episode.
      metadata: Metadata of the whole dataset. The recorder stores it with the encoded specs of
        `env` under the key `environment_specs`; your dict does not change.
      backend: The storage of the steps: a type of backend, a function that creates a backend from
        `metadata` and `backend_kwargs`, or a backend. With a backend, `metadata` and
        `backend_kwargs` are ignored, with a warning.
      validate: Whether to check each step against the specs of `env`. A step that does not fit
        raises `InvalidStepError`, and is not recorded. Otherwise, steps are recorded unchanged,
        with one warning if a value has another dtype or shape. (Checked are the first two steps and
        the last step of an episode, and steps in which the type of a value changes.)
      video: The video encoding of camera images in the observation, by path: see `envlogger.Video`.
        The images are uint8 of shape `(height, width, 3)`; readers decode them. Needs the extra
        `video`.
      **backend_kwargs: Passed to the backend, such as `data_directory`; see `RiegeliBackendWriter`.

    Raises:
      TypeError: `env` is no environment, it has a spec of an unknown kind, `step_fn` or
        `episode_fn` is no function, or the arguments do not fit the backend.
      EnvLoggerError: The backend cannot record, see `RiegeliBackendWriter`.

    If a step was taken but not recorded, `step` raises `UsageError` until the next `reset`, because
    the episode would have a gap. This happens if the step is invalid, or if `step_fn` or the
    backend raises.

    >>> from envlogger.testing.catch_env import Catch
    >>> backend = InMemoryBackendWriter()
    >>> with EnvLogger(Catch(), backend=backend) as env:
    ...     timestep = env.reset()
    ...     timestep = env.step(1)
    >>> [step.action for step in backend.steps]
    [None, 1]
    """

    def __init__(
        self,
        env: dm_env.Environment,
        step_fn: StepFn | None = None,
        episode_fn: StepFn | None = None,
        metadata: dict[str, Any] | None = None,
        backend: BackendWriter | BackendType | Callable[..., BackendWriter] = _DEFAULT_BACKEND,
        *,
        validate: bool = False,
        video: Mapping[str, Video] | None = None,
        **backend_kwargs: Any,
    ) -> None:
        env = _as_dm_env(env)
        for name, function in {"step_fn": step_fn, "episode_fn": episode_fn}.items():
            if function is not None and not callable(function):
                raise TypeError(
                    f"{name} must be a function, got {function!r}; pass a directory by its name: "
                    "EnvLogger(env, data_directory=...)"
                )
        super().__init__(env)
        self._validator = StepValidator(env)
        self._validates = validate
        self._warns, self._types = not validate, list[type]()
        self._step_fn = step_fn
        self._episode_fn = episode_fn
        self._reset_next_step = True
        self._has_gap = False
        specs = {"environment_specs": spec_codec.encode_environment_specs(env)}
        if isinstance(backend, BackendWriter):
            if metadata is not None or backend_kwargs:
                names = [*(["metadata"] if metadata is not None else []), *backend_kwargs]
                warnings.warn(
                    f"{', '.join(names)} ignored, because the backend exists already; pass it "
                    f"to the {type(backend).__name__}, or pass a BackendType as backend",
                    stacklevel=2,
                )
            self._backend = backend
            self._store_specs(specs)
            return
        create_backend = _BACKENDS[backend] if isinstance(backend, BackendType) else backend
        metadata = {**(metadata or {}), **specs}
        if video:
            self._backend = _create_video_backend(
                env, create_backend, video, metadata, backend_kwargs
            )
        else:
            self._backend = create_backend(metadata=metadata, **backend_kwargs)
        if not isinstance(self._backend, BackendWriter):
            raise TypeError(f"backend returned {self._backend!r}, expected a BackendWriter")

    def _store_specs(self, specs: dict[str, Any]) -> None:
        if not self._backend.stores_specs:
            return
        if "environment_specs" in (self._backend.metadata() or {}):
            return
        if isinstance(self._backend, InMemoryBackendWriter):
            self._backend.update_metadata(specs)
            return
        warnings.warn(
            f"the specs of the environment are not recorded, because this "
            f"{type(self._backend).__name__} was created without them; pass it "
            "metadata={'environment_specs': spec_codec.encode_environment_specs(env)}",
            stacklevel=3,
        )

    def reset(self) -> dm_env.TimeStep:
        """Begins a new episode, and records its first step.

        Raises:
          EnvLoggerError: The step cannot be recorded, see `BackendWriter.record_step`.
        """
        timestep = self._environment.reset()
        self._reset_next_step = False
        self._has_gap = False
        self._record(timestep, None, is_new_episode=True)
        return timestep

    def step(self, action: Any) -> dm_env.TimeStep:
        """Takes a step and records it; if no episode is running, begins one like `reset`.

        Raises:
          UsageError: The previous step was not recorded: call `reset`.
          EnvLoggerError: The step cannot be recorded, see `BackendWriter.record_step`.
        """
        if self._has_gap:
            raise UsageError(
                "the last step of this episode was taken but not recorded, see the earlier error; "
                "further steps would leave a gap in the episode: call reset()"
            )
        if self._reset_next_step:
            return self.reset()
        timestep = self._environment.step(action)
        self._reset_next_step = timestep.last()
        self._record(timestep, action, is_new_episode=False)
        return timestep

    def _record(self, timestep: dm_env.TimeStep, action: Any, is_new_episode: bool) -> None:
        try:
            if self._validates:
                self._validator.validate(timestep, action)
            custom_data = None
            if self._step_fn is not None:
                custom_data = self._step_fn(timestep, action, self._environment)
            self._backend.record_step(StepData(timestep, action, custom_data), is_new_episode)
        except BaseException:
            self._has_gap = True
            raise
        if self._episode_fn is not None:
            metadata = self._episode_fn(timestep, action, self._environment)
            if metadata is not None:
                self._backend.set_episode_metadata(metadata)
        if self._warns:
            # Only some steps are compared: a comparison takes half as long as recording.
            types = [type(value) for value in (*timestep, action)]
            if types != self._types or timestep.last():
                self._warn_of_differences(timestep, action)
            self._types = types

    def _warn_of_differences(self, timestep: dm_env.TimeStep, action: Any) -> None:
        """Warns once of a step that does not match the specs."""
        differences = self._validator.differences(timestep, action)
        if not differences:
            return
        self._warns = False
        warnings.warn(
            f"{'; '.join(differences)}. Steps are recorded as they are, without further warnings. "
            "Cast the values, or correct the specs or spaces of the environment; validate=True "
            "raises an error instead. To round float64 when you read or convert the log, pass "
            "float64='float32'.",
            stacklevel=4,
        )

    def discard_episode(self) -> None:
        """Discards the running or just ended episode; the next step begins a new one.

        Raises:
          UsageError: No episode was recorded since the last discarded episode.
        """
        self._backend.discard_episode()
        self._reset_next_step = True
        self._has_gap = False

    def flush(self) -> None:
        """Writes all recorded steps to the disk, and makes finished episodes visible to readers.

        Raises:
          EnvLoggerError: A step cannot be written.
        """
        self._backend.flush()

    def close(self) -> None:
        """Closes the environment, and stores pending steps; further calls do nothing."""
        try:
            self._environment.close()
        finally:
            self._backend.close()

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "EnvLogger instances cannot be serialized/pickled, because two recorders would write "
            "the same files; create a new recorder with a copy of the environment"
        )


def _create_video_backend(
    env: dm_env.Environment,
    create_backend: Callable[..., BackendWriter],
    video: Mapping[str, Video],
    metadata: dict[str, Any],
    arguments: dict[str, Any],
) -> BackendWriter:
    from envlogger.backends.video_backend_writer import VideoBackendWriter

    video_arguments = {name: arguments.pop(name) for name in _VIDEO_ARGUMENTS if name in arguments}
    return VideoBackendWriter(
        functools.partial(create_backend, **arguments),
        video,
        env.observation_spec(),
        metadata=metadata,
        **video_arguments,
    )


def _as_dm_env(env: Any) -> dm_env.Environment:
    if hasattr(env, "observation_spec"):
        return env
    gymnasium = sys.modules.get("gymnasium")  # `env` may come from Gymnasium.
    if gymnasium is not None and isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        from envlogger.gymnasium_adapter import GymnasiumAdapter

        return GymnasiumAdapter(env)
    raise TypeError(
        f"env must be an environment of dm_env or Gymnasium, got {env!r}; the first argument is "
        "the environment: EnvLogger(env, data_directory=...)"
    )
