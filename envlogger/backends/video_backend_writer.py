"""Records cameras as video: threads encode the frames, another backend records the packets."""

from __future__ import annotations

import contextlib
import copy
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, TypeAlias

import dm_env.specs
import numpy as np
from typing_extensions import override

from envlogger.backends.backend_writer import BackendWriter, QueueingBackendWriter
from envlogger.backends.frame_threads import FrameQueue, FrameThread, Packet
from envlogger.backends.schedulers import Scheduler
from envlogger.converters.step_encoder import StepEncoder
from envlogger.converters.video_fields import (
    KEY,
    OBSERVATION,
    PACKET,
    SINCE_KEY,
    get_value,
    replace_value,
)
from envlogger.errors import StorageError, UnsupportedValueError
from envlogger.step_data import StepData
from rlds_ecosystem.model.columns import map_columns
from rlds_ecosystem.video_codec import Video

__all__ = ["VideoBackendWriter", "find_cameras"]

_Job: TypeAlias = Callable[[], None]

# The queue of frames to encode: one second of two cameras of 640 x 480 at 30 frames per second.
_MAX_PENDING_BYTES = 64 << 20
# The minimum size of a chunk of the log; it ends before the next keyframe.
_MIN_CHUNK_BYTES = 256 << 10


class VideoBackendWriter(BackendWriter):
    """Records fields of observations as video, in any backend.

    `record_step` copies the frames and returns. One thread passes the frames to the encoder thread
    of each camera, and another thread passes the steps to the backend, in order. No step is
    dropped: if the encoders are too slow, frames wait in memory, and then `when_behind` applies.

    Args:
      create_backend: Creates the backend from the argument `metadata`.
      video: The video encoding of fields, by path in the observation, such as `camera` or
        `robot/wrist`; `observation` is the whole observation.
      observation_spec: The spec of the observation. The fields are uint8 of shape
        `(height, width, 3)`, RGB.
      metadata: The metadata of the dataset; an entry about the video is added.
      scheduler: Chooses the steps to record; None records all.
      max_pending_bytes: The size of the queue of frames in memory.
      when_behind: The handling of frames beyond that size: "disk" stores them in a temporary file;
        "quality" lowers the quality of the next groups of pictures, and `record_step` waits.

    Raises:
      ImportError: PyAV is not installed; install the extra `video`.
      ValueError: A camera is missing in the spec, or an argument is invalid.

    After a failure, the next call raises the error of the backend or the encoder. A step is
    accepted if the disk has space for it. Accepted steps are written even if the disk is full;
    then the next call waits for them, and raises the error. Calls with the first step of a
    recording return when the backend has the step; so do calls with the last step of an episode, if
    the backend `keeps_ended_episodes`.
    """

    def __init__(
        self,
        create_backend: Callable[..., BackendWriter],
        video: Mapping[str, Video],
        observation_spec: Any,
        *,
        metadata: dict[str, Any] | None = None,
        scheduler: Scheduler | None = None,
        max_pending_bytes: int = _MAX_PENDING_BYTES,
        when_behind: Literal["disk", "quality"] = "disk",
    ) -> None:
        if when_behind not in ("disk", "quality"):
            raise ValueError(f"when_behind: got {when_behind!r}, expected 'disk' or 'quality'")
        cameras = find_cameras(observation_spec, video)
        descriptions = {
            "/".join((OBSERVATION, *path)): settings.describe(shape)
            for path, (settings, shape) in cameras.items()
        }
        metadata = {**(metadata or {}), KEY: descriptions}
        frame_queue = FrameQueue(max_pending_bytes, when_behind == "disk")
        self._cameras: list[_Camera] = []
        self._queue = frame_queue
        try:
            for path, (settings, shape) in cameras.items():
                self._cameras.append(_Camera(path, settings, shape, frame_queue))
            self._backend = create_backend(metadata=metadata)
        except BaseException:
            self._close_cameras()
            raise
        self._keeps_ended_episodes = False
        if isinstance(self._backend, QueueingBackendWriter):
            self._queue.reserve = self._backend.reserve
            self._backend.reserve.ends_recording = False
            self._keeps_ended_episodes = self._backend.keeps_ended_episodes
        self.stores_specs = self._backend.stores_specs
        self._encode_step = StepEncoder().encode
        self._num_accepted = self._num_passed_on = 0
        self._num_chunk_bytes = 0
        self._failure: BaseException | None = None
        self._was_reported = False
        self._start_queue: queue.SimpleQueue[Callable[[], _Job] | None] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._start_thread = threading.Thread(
            target=self._run_starts, name="envlogger-starter", daemon=True
        )
        self._thread = threading.Thread(target=self._run, name="envlogger-video", daemon=True)
        self._start_thread.start()
        self._thread.start()
        super().__init__(metadata=metadata, scheduler=scheduler)

    @override
    def _record_step(self, data: StepData, is_new_episode: bool) -> None:
        self._check_failure()
        frames = [camera.get_frame(data) for camera in self._cameras]
        step = data
        for camera in self._cameras:
            step = camera.put(step, b"")
        # Encoding raises errors of unsupported values before the step is accepted.
        num_bytes = len(self._encode_step(step)) + sum(frame.nbytes for frame in frames)
        if not self._queue.admit(num_bytes):
            self._check_failure()
            raise StorageError(
                f"this step is not recorded: the disk has no space for {num_bytes} bytes; all "
                "steps before it are readable. Free some space"
            )
        step = map_columns(copy.copy, step)  # Takes half the time of a deep copy.
        handles = [camera.keep(frame) for camera, frame in zip(self._cameras, frames)]
        # Last: encoders may use all cores. Waking encoders is slow, so another thread does it.
        self._start_queue.put(
            lambda: self._start_encoding(step, handles, is_new_episode, num_bytes)
        )
        # The first step reveals most errors; the last step completes an episode.
        if not self._num_accepted or (self._keeps_ended_episodes and step.timestep.last()):
            self._finish(lambda: None)
        self._num_accepted += 1

    def _start_encoding(
        self, step: StepData, handles: Sequence[int | np.ndarray], is_new: bool, num_bytes: int
    ) -> _Job:
        """Starts encoding the frames of a step; returns the job that passes it to the backend."""
        cameras = zip(self._cameras, handles)
        packets = [camera.encode(frame, is_start=is_new) for camera, frame in cameras]
        return lambda: self._pass_on(step, packets, is_new, num_bytes)

    def _pass_on(
        self, step: StepData, packets: Sequence[Future[Packet]], is_new: bool, num_bytes: int
    ) -> None:
        results = [packet.result() for packet in packets]
        for camera, (packet, since_key) in zip(self._cameras, results):
            step = camera.put(step, {PACKET: packet, SINCE_KEY: since_key})
        # Chunks that begin with keyframes limit damage, and the read of a frame.
        if self._num_chunk_bytes > _MIN_CHUNK_BYTES and any(not since for _, since in results):
            self._backend.push()
            self._num_chunk_bytes = 0
        self._num_chunk_bytes += sum(len(packet) for packet, _ in results)
        self._backend.record_step(step, is_new)
        self._num_passed_on += 1
        self._queue.release_disk(num_bytes)

    @override
    def _set_episode_metadata(self, data: Any) -> None:
        self._check_failure()
        metadata = copy.deepcopy(data)
        self._finish(lambda: self._backend.set_episode_metadata(metadata))

    @override
    def _discard_episode(self) -> None:
        self._start_queue.put(lambda: self._backend.discard_episode)

    @override
    def flush(self) -> None:
        """Encodes and writes all steps, and makes finished episodes visible.

        Raises:
          StorageError: A step could not be written.
        """
        super().flush()
        self._check_failure()
        self._finish(self._backend.flush)

    @override
    def push(self) -> None:
        """Encodes all steps, and passes them to the operating system.

        Raises:
          StorageError: A step could not be written.
        """
        super().push()
        self._check_failure()
        self._finish(self._backend.push)

    @override
    def close(self) -> None:
        """Encodes and writes waiting steps, and ends the recording; further calls do nothing.

        Raises:
          StorageError: A step could not be written, and no earlier call raised the error.
        """
        if self._closed:
            return
        self._closed = True
        if self._is_inherited:
            return
        self._start_queue.put(None)
        self._start_thread.join()
        self._thread.join()
        self._close_cameras()
        try:
            self._backend.close()
        finally:
            if self._failure is not None and not self._was_reported:
                self._raise_failure()

    def _close_cameras(self) -> None:
        for camera in self._cameras:
            camera.close()
        self._queue.close()

    def _finish(self, job: Callable[[], None]) -> None:
        """Runs a job after all queued jobs, waits for it, and raises its error."""
        completion: Future[None] = Future()

        def run_last() -> None:
            try:
                job()
            except BaseException as error:
                completion.set_exception(error)
                raise
            completion.set_result(None)

        self._start_queue.put(lambda: run_last)
        while not completion.done() and self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                completion.exception(0.1)
        if completion.done() and self._failure is None:
            completion.result()
        self._raise_failure()

    def _check_failure(self) -> None:
        """Raises the failure; on a full disk, writes all accepted steps first."""
        self._raise_failure()
        if self._queue.reserve is not None and self._queue.reserve.cause is not None:
            self._finish(self._backend.close)

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        self._was_reported = True
        num_lost = max(self._num_accepted - self._num_passed_on, 0)
        if isinstance(self._failure, StorageError | ImportError) and not num_lost:
            raise self._failure
        lost = f"the last {num_lost} steps, which waited for the encoder, are lost, too"
        raise StorageError(
            f"recording video stops here: {self._failure}; "
            + (lost if num_lost else "all steps that were recorded are readable")
        ) from self._failure

    def _run_starts(self) -> None:
        for start in iter(self._start_queue.get, None):
            self._jobs.put(start())
        self._jobs.put(None)

    def _run(self) -> None:
        for job in iter(self._jobs.get, None):
            try:
                job()
            except BaseException as error:
                self._failure = error
                self._queue.fail()
                return


def find_cameras(
    observation_spec: Any, video: Mapping[str, Video]
) -> dict[tuple[str, ...], tuple[Video, tuple[int, ...]]]:
    """Returns the video settings and frame shapes of camera fields, by path.

    The arguments are those of `VideoBackendWriter`.

    Raises:
      ValueError: A camera is missing in the spec.
    """
    cameras = {}
    for name, settings in video.items():
        path = tuple(filter(None, name.split("/")))
        path = path[path[:1] == (OBSERVATION,) :]
        spec = get_value(observation_spec, path)
        if not isinstance(spec, dm_env.specs.Array) or spec.dtype != np.uint8:
            raise ValueError(f"video: the observation has no camera {name!r}, only {spec!r} there")
        cameras[path] = settings, tuple(spec.shape)
    return cameras


class _Camera(FrameThread):
    """A camera: a field of observations, and the thread that encodes it."""

    def __init__(
        self, path: tuple[str, ...], video: Video, shape: tuple[int, ...], frame_queue: FrameQueue
    ) -> None:
        self._path = path
        super().__init__(video, shape, frame_queue, f"envlogger-{'-'.join(path) or OBSERVATION}")

    def get_frame(self, data: StepData) -> np.ndarray:
        """Returns the frame of a step.

        Raises:
          UnsupportedValueError: The frame is missing, or its shape or dtype differs.
        """
        frame = get_value(data.timestep.observation, self._path)
        if (
            not isinstance(frame, np.ndarray)
            or frame.shape != self.shape
            or frame.dtype != np.uint8
        ):
            text = f"{frame.dtype} of shape {frame.shape}" if hasattr(frame, "shape") else frame
            raise UnsupportedValueError(
                f"observation {'/'.join(self._path)}: got {text!r}, expected a frame of uint8 of "
                f"shape {self.shape}; if a camera has no new frame, repeat its last frame"
            )
        return frame

    def put(self, step: StepData, value: Any) -> StepData:
        """Replaces the frame of a step by another value, such as a packet."""
        observation = replace_value(step.timestep.observation, self._path, value)
        return step._replace(timestep=step.timestep._replace(observation=observation))
