"""`rlds record`: plays episodes in an environment, and records them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from rlds_ecosystem.progress import show_progress
from rlds_tools.results import Block, Result, Spread, count, next_commands

if TYPE_CHECKING:
    import dm_env
    from rich.progress import Progress

    from envlogger import EnvLogger, Video

__all__ = ["Recording", "record"]

_DEFAULT_EPISODES = 10
_EXIT_INTERRUPTED = 130


@dataclasses.dataclass(frozen=True)
class Recording(Result):
    """The result of `rlds record`: the log, its episodes, their returns and the speed.

    Attributes:
      path: The path of the log.
      environment: The name of the environment.
      policy: The name of the policy.
      seed: The seed of the environment and the policy.
      episodes: The number of recorded episodes.
      steps: The number of steps of all recorded episodes, one more than actions in each episode.
      seconds: The duration of the recording.
      steps_per_second: The speed of the recording.
      returns: The spread of the returns; None without episodes, or with several rewards in a step.
      episodes_before: The number of episodes that the log had before.
      video: The path of the video of the first episode.
      interrupted: Whether Ctrl-C ended the recording; the log lacks the interrupted episode.
    """

    path: str
    environment: str
    policy: str
    seed: int
    episodes: int
    steps: int
    seconds: float
    steps_per_second: float
    returns: Spread | None
    episodes_before: int = 0
    video: str | None = None
    interrupted: bool = False

    @property
    @override
    def exit_code(self) -> int:
        return _EXIT_INTERRUPTED if self.interrupted else 0

    @override
    def blocks(self) -> Iterator[Block]:
        yield (
            f"{self.path}: {count(self.episodes, 'episode')}, {count(self.steps, 'step')} of "
            f"{self.environment} · {self.seconds:.1f} s, {self.steps_per_second:,.0f} steps/s"
        )
        if self.interrupted:
            yield "interrupted: the running episode was discarded, finished episodes are kept"
        if self.episodes_before:
            yield f"appended to {count(self.episodes_before, 'earlier episode')} in the log"
        if self.returns is not None:
            low, _, mean, high = self.returns.cells()
            yield f"returns: min {low} · mean {mean} · max {high}"
        yield f"policy {self.policy} · seed {self.seed}"
        if self.video is not None:
            yield f"video of the first episode: {self.video}"
        if self.episodes + self.episodes_before:
            yield next_commands(["inspect", self.path], ["convert", self.path, "data"])


def record(
    environment: Any,
    output: str | os.PathLike[str],
    *,
    episodes: int | None = None,
    steps: int | None = None,
    policy: Any = "random",
    seed: int | None = None,
    max_episode_steps: int | None = None,
    render: bool = False,
    camera: int | str | None = None,
    size: tuple[int, int] | None = None,
    info: bool = False,
    metadata: Mapping[str, Any] | None = None,
    video: str | os.PathLike[str] | None = None,
    encode: Mapping[str, Video] | None = None,
    progress: bool | None = None,
) -> Recording:
    """Plays episodes in an environment, and records them with `envlogger.EnvLogger`.

    Ctrl-C (`KeyboardInterrupt`) ends the recording; the log keeps all finished episodes.

    Args:
      environment: A Gymnasium id such as "CartPole-v1" or "ALE/Breakout-v5",
        "dm_control:DOMAIN/TASK", "catch", or "module:function". Also a function that returns a
        dm_env or Gymnasium environment, and gets the seed if it has an argument `seed`; or an
        environment, which is closed at the end.
      output: The directory of the log. Episodes are appended to an existing log of the environment.
      episodes: The number of episodes to record; 10 by default, without `steps`.
      steps: The maximum number of steps of the log. The last episode is truncated there.
      policy: "random"; "constant:0", or "constant:0.5,-1" with a number for each element of an
        action; or "module:function". Also a function of the observation, or of the timestep if the
        argument has that name; or a class of such functions, which gets the seed if it has an
        argument `seed`.
      seed: The seed of the environment and of the policy, which each episode records; random by
        default. A dm_env environment that is passed as an object keeps its own seed.
      max_episode_steps: The number of actions after which an episode is truncated.
      render: Whether to record rendered frames as the field `render` of the observation. An
        observation that is no dict becomes the field `state`.
      camera: The index or the name of the camera of a MuJoCo environment.
      size: The width and the height of frames.
      info: Whether to record the info that Gymnasium environments return with each step.
      metadata: The metadata of the log, in addition to the name of the environment.
      video: The path for a video of the first episode (MP4).
      encode: The video encoding of fields of the observation, such as `render`, by field; see
        `envlogger.Video`.
      progress: Whether to show a progress bar; if None, on a terminal.

    Raises:
      ImportError: The message names the package that the environment or the video needs.
      ValueError: The environment or policy is unknown, or the log has another environment.
      EnvLoggerError: The environment cannot be recorded.

    >>> import tempfile
    >>> recording = record("catch", tempfile.mkdtemp(), episodes=3, policy="constant:1", seed=1)
    >>> recording.episodes, recording.steps, recording.returns
    (3, 30, Spread(min=-1.0, median=-1.0, mean=-1.0, max=-1.0))
    """
    import numpy as np

    from envlogger import EnvLogger
    from rlds_tools import environments

    _check_positive(episodes=episodes, steps=steps, max_episode_steps=max_episode_steps)
    if episodes is None and steps is None:
        episodes = _DEFAULT_EPISODES
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
    is_rendered = render or video is not None
    if not is_rendered and (camera is not None or size is not None):
        raise ValueError("camera and size need `render` or `video`")
    env, name = environments.make_environment(
        environment,
        seed=seed,
        max_episode_steps=max_episode_steps,
        is_rendered=is_rendered,
        camera=camera,
    )
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(env.close)
        if info and not hasattr(env, "info"):
            raise ValueError(
                f"{name} returns no info; only Gymnasium environments do. Leave out `info`."
            )
        if is_rendered:
            env = environments.RenderedFrames(env, camera, size, is_observed=render)
        env = environments.TimeLimit(env, max_episode_steps)
        act, policy_name = environments.make_policy(policy, env.action_spec(), seed=seed)
        episodes_before = _count_logged(output, env, name)
        session = _Session(env, act, policy=policy_name, seed=seed)
        with _open_video(video, env) as session.add_frame:
            step_fn = None
            if info:
                from envlogger.gymnasium_adapter import record_info

                step_fn = record_info()
            recorder = EnvLogger(
                env,
                step_fn,
                session.episode_metadata,
                {"environment": name, **(metadata or {})},
                video=encode,
                data_directory=output,
            )
            cleanup.pop_all()  # The recorder closes the environment from here on.
            with recorder, show_progress(progress) as bars:
                session.play(recorder, episodes, steps, bars)
    return Recording(
        path=os.fspath(output),
        environment=name,
        policy=policy_name,
        seed=seed,
        episodes=len(session.returns),
        steps=session.num_steps,
        seconds=session.seconds,
        steps_per_second=session.num_steps / session.seconds if session.seconds else 0.0,
        returns=None if np.ndim(session.returns) > 1 else Spread.from_values(session.returns),
        episodes_before=episodes_before,
        video=None if video is None else os.fspath(video),
        interrupted=session.is_interrupted,
    )


class _Session:
    """Plays episodes, and counts the recorded episodes and steps.

    Args:
      env: The environment.
      act: The policy.
      policy: The name of the policy.
      seed: The seed of the environment and the policy.

    Attributes:
      add_frame: The function to call after each step of the first episode.
      returns: The returns of the finished episodes.
      num_steps: The number of steps of the finished episodes.
      seconds: The duration of the recording.
      is_interrupted: Whether Ctrl-C ended the recording.
    """

    def __init__(self, env: Any, act: Callable[[Any], Any], *, policy: str, seed: int) -> None:
        from envlogger.callbacks import EpisodeStatistics

        self._env, self._choose_action = env, act
        self._episode_metadata = {"agent_id": policy, "seed": seed}
        self._statistics = EpisodeStatistics()
        self._latest_statistics: dict[str, Any] = {}
        self._is_running = False
        self.add_frame: Callable[[], None] = lambda: None
        self.returns: list[Any] = []
        self.num_steps = 0
        self.seconds = 0.0
        self.is_interrupted = False

    def episode_metadata(
        self, timestep: dm_env.TimeStep, action: Any, env: dm_env.Environment
    ) -> dict[str, Any] | None:
        """Returns the metadata of an episode, after its last step."""
        self._is_running = True
        statistics = self._statistics(timestep, action, env)
        if statistics is None:
            return None
        self._latest_statistics = statistics
        # Durations are left out, so that the same seed records the same values.
        return {
            **self._episode_metadata,
            "return": statistics["return"],
            "length": statistics["length"],
        }

    def play(
        self, recorder: EnvLogger, episodes: int | None, steps: int | None, bars: Progress
    ) -> None:
        """Records the given number of episodes or steps; see `record`."""
        begin = time.monotonic()
        bar = bars.add_task("Recording", total=steps if episodes is None else episodes)
        try:
            while episodes is None or len(self.returns) < episodes:
                if steps is not None:
                    # An episode has at least one action, and one step more than actions.
                    self._env.actions_left = steps - self.num_steps - 1
                    if self._env.actions_left < 1:
                        break
                self._play_episode(recorder)
                completed = self.num_steps if episodes is None else len(self.returns)
                bars.update(bar, completed=completed)
        except BaseException as error:
            if self._is_running:
                recorder.discard_episode()
            if not isinstance(error, KeyboardInterrupt):
                num_kept = count(len(self.returns), "finished episode")
                error.add_note(f"The log keeps {num_kept}; the running episode was discarded.")
                raise
            self.is_interrupted = True
        finally:
            self.seconds = time.monotonic() - begin

    def _play_episode(self, recorder: EnvLogger) -> None:
        timestep = recorder.reset()
        self.add_frame()
        while not timestep.last():
            timestep = recorder.step(self._choose_action(timestep))
            self.add_frame()
        self._is_running = False
        self.add_frame = lambda: None
        self.returns.append(self._latest_statistics["return"])
        self.num_steps += self._latest_statistics["length"] + 1


def _check_positive(**limits: int | None) -> None:
    for name, value in limits.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be positive, got {value}")


def _count_logged(output: str | os.PathLike[str], env: dm_env.Environment, name: str) -> int:
    """Returns the number of episodes of the log at a path; 0 without a log.

    Raises:
      ValueError: The log has another environment.
    """
    import envlogger
    from envlogger.backends.riegeli_files import layout
    from rlds_ecosystem.files import stores

    if not (stores.as_path(output) / layout.METADATA_FILE).exists():
        return 0
    with envlogger.Reader(output) as log:
        recorded_name = log.metadata().get("environment", name)
        if recorded_name != name:
            raise ValueError(
                f"{output} is a log of {recorded_name}. Record {name} to another directory."
            )
        for kind in ("observation_spec", "action_spec"):
            if getattr(log, kind)() != getattr(env, kind)():
                raise ValueError(
                    f"{output}: the log has another {kind}. Record to a new directory."
                )
        return len(log.episodes)


@contextlib.contextmanager
def _open_video(path: str | os.PathLike[str] | None, env: Any) -> Iterator[Callable[[], None]]:
    """Yields a function that adds a frame of the environment to a video."""
    if path is None:
        yield lambda: None
        return
    from rlds.video.encoding import BrowserVideoWriter

    rate = getattr(env, "metadata", {}).get("render_fps")
    if not rate and hasattr(env, "control_timestep"):
        rate = 1 / env.control_timestep()
    with BrowserVideoWriter(path, rate or 30) as video:
        yield lambda: video.add(env.frame)
