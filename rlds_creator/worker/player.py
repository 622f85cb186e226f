"""The game loop of a worker: inputs, steps of the environment, recording and pictures."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import errno
import json
import math
import platform
import secrets
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from envlogger.backends.video_backend_writer import find_cameras
from envlogger.converters import spec_codec
from rlds_creator import recorded
from rlds_creator.environments import Inputs, Playable, make
from rlds_creator.environments.playable import versions_of
from rlds_creator.frames import Frame
from rlds_creator.worker.inputs import InputQueue
from rlds_creator.worker.link import Link
from rlds_creator.worker.pictures import DRAFT, QUALITIES, as_rgb, encode_picture
from rlds_creator.worker.recording import EpisodeLog, as_finite, as_json, sum_reward
from rlds_creator.worker.states import Expiry, PlayStates, RefusedError, State
from rlds_ecosystem.model.errors import EnvLoggerError
from rlds_ecosystem.video_codec import FrameEncoder, Video

__all__ = ["Player", "serve"]

_NUM_SEEDS = 2**31

# A held key repeats its step after this delay; a tap makes one step.
_REPEAT_DELAY_S = 0.25

# The maximum number of messages handled between two steps.
_MAX_MESSAGES_PER_STEP = 100

_MAX_MESSAGE_WAIT_S = 60.0
_MAX_ACTIONS = 256  # Recordings hold the names of at most so many discrete actions.
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class _FailedError(Exception):
    """The play failed; the message is for the player, the details are for the server's log."""

    def __init__(self, message: str, cause: BaseException) -> None:
        super().__init__(message)
        self.details = "".join(traceback.format_exception(cause))[-10_000:]


@contextlib.contextmanager
def _convert_environment_errors() -> Iterator[None]:
    """Converts any exception of the environment's code, also `SystemExit`, to a `_FailedError`."""
    try:
        yield
    except _FailedError:
        raise
    except BaseException as e:
        message = f"the environment stopped with an error ({type(e).__name__})"
        raise _FailedError(message, e) from e


@dataclasses.dataclass
class _Episode:
    """The current episode, from the reset on.

    Attributes:
      index: The index of the episode in the session.
      seed: The seed of the environment; None if it takes no seed.
      reset_step: The step of the reset with its custom data; it is recorded with the second step.
      recording: The log of the episode; None before the second step.
      num_steps: The number of recorded steps, including the reset.
      started: The time of the first step.
      reason: The reason of the end.
      success: The success in the judgment of the player.
      pauses: The pauses of the player: the index of the step before, and the duration in seconds.
    """

    index: int
    seed: int | None
    reset_step: tuple[dm_env.TimeStep, dict[str, Any]]
    recording: EpisodeLog | None = None
    started: float = 0.0
    reason: str = ""
    success: bool | None = None
    pauses: list[tuple[int, float]] = dataclasses.field(default_factory=list)

    @property
    def num_steps(self) -> int:
        return self.recording.num_steps if self.recording is not None else 0


def serve(link: Link, clock: Callable[[], float] = time.monotonic) -> int:
    """Runs a play until the server stops it or disconnects; returns the exit status.

    Args:
      link: The link to the server, which is closed at the end.
      clock: A monotonic clock, in seconds.
    """
    try:
        start = _await_start(link)
        if start is not None:
            with contextlib.closing(Player(link, start, clock)) as player:
                player.play()
    except EOFError:
        return 0
    except _FailedError as e:
        with contextlib.suppress(EOFError):
            link.send({"op": "error", "message": str(e), "fatal": True, "details": e.details})
        return 1
    finally:
        link.close()
    return 0


def _await_start(link: Link) -> dict[str, Any] | None:
    """Returns the message with the environment to play; None if the server ends the worker."""
    while True:
        message = link.receive()
        assert message is not None  # `receive` has no timeout.
        if message["op"] == "start":
            return message
        if message["op"] == "describe":
            from rlds_creator.worker.describing import describe

            link.send({"op": "described", "families": describe()})
        if message["op"] in ("describe", "stop"):
            return None
        if message["op"] == "ping":
            link.send({"op": "pong"})


class Player:
    """The game loop of one person.

    Only the thread that creates it may call it, because it uses the environment. Methods raise
    `EOFError` if the connection to the server is lost.

    Args:
      link: The link to the server.
      start: The start message of the server.
      clock: A monotonic clock, in seconds.
    """

    _episode: _Episode
    _frame: Frame

    def __init__(self, link: Link, start: Mapping[str, Any], clock: Callable[[], float]) -> None:
        self._link = link
        self._clock = clock
        self._environment: dict[str, Any] = start["environment"]
        self._directory: str = start["directory"]
        self._metadata = {
            "agent_id": start["agent_id"],
            recorded.STUDY_ID: start["study_id"],
            recorded.ENVIRONMENT_ID: start["env_id"],
            recorded.ENVIRONMENT: json.dumps(self._environment),
        }
        seed = start.get("next_seed")
        self._next_seed: int | None = self._environment.get("seed") if seed is None else seed
        self._is_async = self._environment.get("mode") == "async"
        self._fps = float(self._environment.get("fps") or 15.0)
        self._max_steps = self._environment.get("max_episode_steps") or math.inf
        self._inputs = InputQueue()
        self._applied_input = 0
        self._num_frames = 0
        self._next_step_time = math.inf  # When to step without a new input.
        self._paused_at: float | None = None
        self._quality, self._camera, self._controller = "medium", 0, ""
        self._is_reported = True  # Whether the server has the outcome.

        expiry = Expiry(**(start.get("expiry") or {}))
        self._play = PlayStates(is_async=self._is_async, expiry=expiry, now=clock())
        self._playable = self._create_playable()
        with _convert_environment_errors():
            self._specs = spec_codec.encode_environment_specs(self._playable.environment)
            self._observation_spec = self._playable.environment.observation_spec()
            self._details = {**action_names(self._playable), **self._playable.metadata()}
        self._video = self._parse_video()
        self._begin_episode(start.get("number", 0))

    def _create_playable(self) -> Playable:
        name, options = self._environment["family"], self._environment.get("options") or {}
        with _convert_environment_errors():
            try:
                return make(name, options, self._environment.get("keys"))
            except ImportError as e:
                raise _FailedError(f"{name} is not installed here: {e.msg}", e) from e
            except ValueError as e:  # The message has the option.
                raise _FailedError(str(e), e) from e

    def _parse_video(self) -> dict[str, Video]:
        """Returns the video encoding of fields, checked before the first step."""
        formats = (self._environment.get("video") or {}).items()
        try:
            video = {name: Video.from_name(format, self._fps) for name, format in formats}
            for encoding, shape in find_cameras(self._observation_spec, video).values():
                FrameEncoder(encoding, shape).close()
        except (ImportError, ValueError) as error:
            raise _FailedError(str(error), error) from error
        return video

    def play(self) -> None:
        """Plays until the server stops the worker, or the player is inactive for too long."""
        try:
            while self._play.state is not State.CLOSED:
                if not self._handle_messages():
                    return
                if self._play.tick(self._clock()):
                    self._handle_inactivity()
                if self._clock() >= self._next_step_time:
                    self._take_due_step()
        except _FailedError as e:
            self._report_failure(e)
            raise

    def close(self) -> None:
        """Ends the log, and closes the environment."""
        try:
            with contextlib.suppress(EOFError):
                self._report_outcome("abandoned")
        finally:
            with contextlib.suppress(_FailedError), _convert_environment_errors():
                self._playable.close()

    # --- Messages of the server.

    def _handle_messages(self) -> bool:
        """Handles messages until the time of the next step; returns False after a stop message."""
        now = self._clock()
        seconds = min(self._next_step_time, self._play.deadline(now)) - now
        for _ in range(_MAX_MESSAGES_PER_STEP):
            message = self._link.receive(max(0.0, min(seconds, _MAX_MESSAGE_WAIT_S)))
            if message is None:
                break
            if message["op"] == "stop":
                return False
            self._handle_message(message)
            seconds = 0.0
        return True

    def _handle_message(self, message: Mapping[str, Any]) -> None:
        try:
            match message["op"]:
                case "input":
                    self._take_input(message)
                case "control":
                    self._control(message)
                case "set":
                    self._change_settings(message)
                case "ping":
                    self._link.send({"op": "pong"})
        except RefusedError as e:
            self._link.send({"op": "error", "message": str(e), "fatal": False, "details": ""})

    def _take_input(self, message: Mapping[str, Any]) -> None:
        self._applied_input = message["seq"]
        has_stepped = False
        refusal = None
        for event in message["events"]:
            try:
                is_press = self._inputs.add(event)
            except RefusedError as e:  # Later events may release keys.
                refusal = e
                continue
            if is_press and not self._is_async:
                has_stepped = self._step_by_press() or has_stepped
            if self._play.state is not State.RUNNING:
                self._inputs.clear()
        now = self._clock()
        self._play.touch(now, is_held=self._inputs.is_held)
        if not self._is_async:
            self._schedule_repeat(now, has_stepped)
        if refusal is not None:
            raise refusal

    def _schedule_repeat(self, now: float, has_stepped: bool) -> None:
        is_running = self._play.state is State.RUNNING
        if not (self._playable.repeats and self._inputs.is_held and is_running):
            self._next_step_time = math.inf
        elif has_stepped:
            self._next_step_time = now + max(_REPEAT_DELAY_S, 1 / self._fps)

    def _control(self, message: Mapping[str, Any]) -> None:
        now = self._clock()
        self._play.touch(now, is_held=self._inputs.is_held)
        value = message.get("value")
        match message.get("do"):
            case "resume":
                if self._play.resume(now):
                    self._on_resume(now)
            case "pause":
                reason = "network" if message.get("why") == "network" else "user"
                if reason == "network":  # Releases of keys would not arrive.
                    self._inputs.release()
                if self._play.pause(now, reason):
                    self._on_pause(now)
            case "end":
                self._check_steps()
                self._end_episode("user")
            case "retry":
                self._play.check_retry()
                self._start_next_episode("rejected")
            case "success":
                self._check_steps()
                if isinstance(value, str):
                    raise RefusedError("success: expected true, false or null")
                self._episode.success = value
                self._send_state()
            case "confirm":
                self._play.check_confirm()
                if value not in ("completed", "cancelled", "rejected"):
                    raise RefusedError("state: expected completed, cancelled or rejected")
                self._start_next_episode(value)

    def _start_next_episode(self, state: str) -> None:
        self._report_outcome(state)
        self._begin_episode(self._episode.index + 1)

    def _check_steps(self) -> None:
        if not self._episode.num_steps:
            raise RefusedError("this episode has no step yet. Play first.")

    def _on_pause(self, now: float) -> None:
        self._paused_at = now
        self._next_step_time = math.inf
        self._send_state()

    def _on_resume(self, now: float) -> None:
        if self._paused_at is not None:
            last_step = max(self._episode.num_steps - 1, 0)
            self._episode.pauses.append((last_step, round(now - self._paused_at, 3)))
            self._paused_at = None
        self._inputs.clear()
        self._next_step_time = now if self._is_async else math.inf
        self._send_state()

    def _handle_inactivity(self) -> None:
        if self._play.state is State.PAUSED:
            self._on_pause(self._clock())
        else:
            self._episode.reason = self._episode.reason or "expired"
            self._report_outcome("abandoned")
            self._send_state()

    def _change_settings(self, message: Mapping[str, Any]) -> None:
        if "fps" in message:
            self._fps = float(message["fps"])
            if self._next_step_time < math.inf:
                self._next_step_time = min(self._next_step_time, self._clock() + 1 / self._fps)
        quality, camera = message.get("quality", self._quality), message.get("camera", self._camera)
        if quality not in self._list_qualities():
            raise RefusedError(f"quality: expected one of {', '.join(self._list_qualities())}")
        if "camera" in message and camera not in range(len(self._playable.cameras)):
            raise RefusedError("unknown camera")
        self._controller = message.get("controller", self._controller)
        if {"quality", "camera"} & message.keys():
            self._quality, self._camera = quality, camera
            picture, codec = self._draw()
            frame = dataclasses.replace(self._frame, picture=picture, codec=codec, is_redrawn=True)
            self._send_frame(dataclasses.replace(frame, time=time.time()))
        self._send_state()

    def _list_qualities(self) -> list[str]:
        return [q for q in QUALITIES if q != DRAFT or self._playable.has_draft]

    # --- Episodes and their steps.

    def _begin_episode(self, index: int) -> None:
        seed: int | None = self._next_seed
        if seed is None:
            seed = secrets.randbelow(_NUM_SEEDS)
        else:
            self._next_seed = (seed + 1) % _NUM_SEEDS
        with _convert_environment_errors():
            try:
                self._playable.seed(seed)
            except NotImplementedError:
                seed = None
            # A copy: the step is recorded after the next step, which may reuse the arrays.
            timestep = copy.deepcopy(self._playable.environment.reset())
        picture, codec = self._draw()
        now = time.time()
        reset_step = timestep, self._create_custom_data(picture, now, {}, [])
        self._episode = _Episode(index, seed, reset_step)
        self._is_reported = False
        self._paused_at = None
        self._inputs.clear()
        self._play.start(self._clock())
        if not self._num_frames:
            self._send_ready()
        self._send_frame(Frame(0, 0, picture, codec, time=now, is_first=True))
        self._send_state()

    def _step_by_press(self) -> bool:
        """Steps the environment after a key press; the first press also starts the episode."""
        if self._play.state not in (State.READY, State.RUNNING):
            return False
        inputs = self._inputs.take_now()
        with _convert_environment_errors():
            action = self._playable.action(inputs)
        if action is None:
            return False
        if self._play.resume(self._clock()):
            self._send_state()
        self._step(inputs, action)
        return True

    def _take_due_step(self) -> None:
        inputs = self._inputs.take() if self._is_async else self._inputs.take_now()
        with _convert_environment_errors():
            action = self._playable.action(inputs)
            if action is None and self._is_async:
                action = self._playable.idle_action
        now, period = self._clock(), 1 / self._fps
        self._next_step_time += period
        if self._next_step_time <= now:  # Late steps are skipped.
            self._next_step_time = now + period
        if action is not None:
            self._step(inputs, action)

    def _step(self, inputs: Inputs, action: Any) -> None:
        with _convert_environment_errors():
            timestep = self._playable.environment.step(action)
            description = json.dumps(self._playable.describe(action))
        if self._episode.num_steps >= self._max_steps and not timestep.last():
            discount = 1.0 if timestep.discount is None else timestep.discount
            timestep = timestep._replace(step_type=dm_env.StepType.LAST, discount=discount)
        picture, codec = self._draw()
        now, events = time.time(), self._inputs.take_events()
        custom_data = self._create_custom_data(picture, now, inputs.held, events)
        recording = self._record(timestep, action, custom_data, now)
        self._send_frame(
            Frame(
                index=0,
                step=recording.num_steps - 1,
                picture=picture,
                codec=codec,
                action=description,
                reward=_clip_to_float32(timestep.reward),
                total_reward=_clip_to_float32(recording.total_reward),
                applied_input=self._applied_input,
                time=now,
                is_last=timestep.last(),
            )
        )
        if timestep.last():
            # A last step with a discount other than 0 means truncation.
            is_terminal = timestep.discount is not None and not np.any(timestep.discount)
            self._end_episode("terminated" if is_terminal else "truncated")

    def _record(
        self, timestep: dm_env.TimeStep, action: Any, custom_data: dict[str, Any], now: float
    ) -> EpisodeLog:
        episode = self._episode
        with _convert_recording_errors():
            if episode.recording is None:
                episode.started = now
                start = self._directory, self._specs, self._create_metadata(episode)
                episode.recording = EpisodeLog(*start, self._video, self._observation_spec)
                episode.recording.add(episode.reset_step[0], None, episode.reset_step[1])
            episode.recording.add(timestep, action, custom_data)
            if episode.recording.num_steps == 2:
                self._send_episode("playing")
        return episode.recording

    def _create_metadata(self, episode: _Episode) -> dict[str, Any]:
        details = dict(self._details)
        versions = {"python": platform.python_version()}
        versions |= versions_of(("rlds-ecosystem", "numpy")) | details.pop("versions", {})
        return {
            **self._metadata,
            **({} if episode.seed is None else {"seed": episode.seed}),
            "started": episode.started,
            "rlds_creator:versions": json.dumps(versions),
            "rlds_creator:details": as_json(details),
            "rlds_creator:controller": self._controller,
        }

    def _create_custom_data(
        self, picture: bytes, now: float, held: Mapping[str, float], events: list[Any]
    ) -> dict[str, Any]:
        with _convert_environment_errors():
            info = as_json(self._playable.info())
        cameras = self._playable.cameras
        return {
            recorded.IMAGE: picture,
            recorded.KEYS: json.dumps(held),
            recorded.INFO: info,
            recorded.INPUTS: json.dumps(events),
            recorded.TIME: now,
            recorded.FPS: self._fps if self._is_async else 0.0,
            recorded.CAMERA: cameras[self._camera] if cameras else "",
            recorded.QUALITY: self._quality,
        }

    def _draw(self) -> tuple[bytes, str]:
        with _convert_environment_errors():
            picture = self._playable.render(self._camera, is_draft=self._quality == DRAFT)
            self._picture = as_rgb(picture)
        return encode_picture(self._picture, self._quality)

    def _end_episode(self, reason: str) -> None:
        """Ends the episode; the verdict of the player follows."""
        self._play.end(self._clock(), reason)
        self._next_step_time = math.inf
        self._episode.reason = reason
        self._close_log()
        self._send_episode("ended")
        self._send_state()

    def _report_outcome(self, state: str, error: str = "") -> None:
        """Closes the log, and reports the outcome of the episode, at most once."""
        if self._is_reported:
            return
        self._is_reported = True
        self._next_step_time = math.inf
        if self._play.state in (State.RUNNING, State.PAUSED):
            self._play.end(self._clock(), self._episode.reason or "user")
        try:
            self._close_log()
        finally:
            if self._episode.num_steps:
                self._send_episode(state, error)

    def _close_log(self) -> None:
        episode = self._episode
        if episode.recording is not None:
            with _convert_recording_errors():
                episode.recording.close(
                    reason=episode.reason,
                    gaps=json.dumps(episode.pauses),
                    **{"rlds_creator:controller": self._controller},
                )

    def _report_failure(self, error: _FailedError) -> None:
        self._episode.reason = self._episode.reason or "failed"
        with contextlib.suppress(_FailedError):
            self._report_outcome("failed", str(error))
        self._send_state("ended", "failed")

    # --- Messages to the server.

    def _send_ready(self) -> None:
        controls = [*map(dataclasses.asdict, self._playable.controls)]
        height, width, _ = self._picture.shape
        self._link.send(
            {
                "op": "ready",
                "controls": controls,
                "cameras": list(self._playable.cameras),
                "qualities": self._list_qualities(),
                "fps": self._fps,
                "mode": "async" if self._is_async else "sync",
                "size": [width, height],
                "has_pointer": any("Pointer" in name for c in controls for name in c["inputs"]),
            }
        )

    def _send_frame(self, frame: Frame) -> None:
        self._num_frames += 1
        self._frame = dataclasses.replace(frame, index=self._num_frames)
        self._link.send(self._frame.encode())

    def _send_state(self, state: str = "", reason: str = "") -> None:
        is_closed = self._play.state is State.CLOSED
        self._link.send(
            {
                "op": "state",
                "state": state or ("ended" if is_closed else self._play.state),
                "why": reason or self._play.reason,
                "episode": self._describe_episode() if self._episode.recording else None,
                "fps": self._fps,
                "quality": self._quality,
                "camera": self._camera,
            }
        )

    def _send_episode(self, state: str, error: str = "") -> None:
        description = {**self._describe_episode(), "state": state, "error": error}
        self._link.send({"op": "episode", "episode": description})

    def _describe_episode(self) -> dict[str, Any]:
        episode, recording = self._episode, self._episode.recording
        assert recording is not None
        return {
            "id": recording.id,
            "number": episode.index,
            "reason": episode.reason,
            "success": episode.success,
            "num_steps": recording.num_steps,
            "total_reward": as_finite(recording.total_reward),
            "started": episode.started,
            "seconds": self._play.played_seconds,
            "seed": episode.seed,
        }


@contextlib.contextmanager
def _convert_recording_errors() -> Iterator[None]:
    try:
        yield
    except EnvLoggerError as e:
        failure, cause = "the recording failed", e.__cause__
        while cause is not None:
            if isinstance(cause, OSError) and cause.errno in _DISK_FULL_ERRORS:
                failure = "the disk of the server is full"
            cause = cause.__cause__
        raise _FailedError(f"{failure}; the steps until then are kept", e) from e


def action_names(playable: Playable) -> dict[str, Any]:
    """Returns the names of discrete actions, for the metadata of the recording."""
    spec = playable.environment.action_spec()
    is_named = type(playable).describe is not Playable.describe
    if not (isinstance(spec, specs.DiscreteArray) and is_named and spec.num_values <= _MAX_ACTIONS):
        return {}
    return {"actions": [playable.describe(spec.dtype.type(n)) for n in range(spec.num_values)]}


def _clip_to_float32(reward: Any) -> float:
    """Clips a reward, or a sum of rewards, to float32."""
    value = sum_reward(reward)
    return value if not abs(value) > _FLOAT32_MAX else math.copysign(_FLOAT32_MAX, value)
