"""Records with each recorder until its disk is full: all accepted steps must be readable.

    python tests/support/full_disks.py --disks 40 --seed 1

Every step holds its index. A step counts as accepted once `step` has returned. The disks are tmpfs
of random sizes; the recorders, rates and frames are random, too.
"""

import argparse
import contextlib
import pathlib
import random
import subprocess
import tempfile
import time

import dm_env
import numpy as np
from dm_env import specs

import envlogger
import rlds.sources
from rlds.recording import LeRobotBackendWriter, recover
from rlds_ecosystem.model.errors import StorageError

KINDS = ("log", "video", "lerobot", "lerobot images", "streams")
_SHAPE = (240, 320, 3)


class CannotMount(Exception):
    """Only root of Linux can mount a small disk."""


@contextlib.contextmanager
def small_disk(folder, megabytes):
    """Mounts a small file system at a new folder.

    Raises:
      CannotMount: This process lacks the permission.
    """
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        raise CannotMount("a small disk cannot be mounted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Noise(dm_env.Environment):
    """A camera of noise, which fills a disk soon; episodes differ in length."""

    def __init__(self, rng):
        self._rng, self._index = rng, -1
        self._noise = np.random.default_rng(0).integers(0, 256, (_SHAPE[0], 2 * _SHAPE[1], 3))
        self._noise = self._noise.astype(np.uint8)

    def observation_spec(self):
        return {"cam": specs.Array(_SHAPE, np.uint8), "number": specs.Array((1,), np.float32)}

    def action_spec(self):
        return specs.Array((1,), np.float32)

    def observation(self):
        self._index += 1
        begin = self._index * 7 % _SHAPE[1]
        frame = np.ascontiguousarray(self._noise[:, begin : begin + _SHAPE[1]])
        return {"cam": frame, "number": np.array([self._index], np.float32)}

    def reset(self):
        self._num_left = self._rng.randint(1, 30)
        return dm_env.restart(self.observation())

    def step(self, action):
        self._num_left -= 1
        make = dm_env.transition if self._num_left else dm_env.termination
        return make(1.0, self.observation())


def check(kind, seed, folder):
    """Fills a disk; returns the number of accepted steps, and the error.

    Args:
      kind: One of `KINDS`.
      seed: Draws the size of the disk, the rate and the options.
      folder: A new folder, at which the disk is mounted.
    """
    rng = random.Random(f"{kind} {seed}")
    seconds = rng.choice((0, 0, 0.002, 0.01))
    with small_disk(folder, rng.randint(34, 60)) as disk:
        accepted, error = (_push if kind == "streams" else _record)(kind, rng, seconds, disk)
        expected = [*range(sum(map(len, accepted)))]
        if kind.startswith("lerobot"):  # Its rows are transitions.
            expected = [index for episode in accepted for index in episode[:-1]]
        indices = _read(kind, disk, folder.with_name(f"{folder.name}-back"))
    assert " lost" not in error, error
    assert indices == expected, (
        kind,
        seed,
        len(indices),
        len(expected),
        indices[-3:],
        expected[-3:],
    )
    return len(expected), error


def _record(kind, rng, seconds, disk):
    arguments = {"data_directory": disk / "made"}
    if kind != "log" and "images" not in kind:
        arguments["video"] = {"cam": envlogger.Video(quality=rng.choice((0, 5)))}
    if kind.startswith("lerobot"):
        arguments |= {"backend": LeRobotBackendWriter, "fps": 30, "task": "fill"}
    env, accepted = envlogger.EnvLogger(Noise(rng), **arguments), []
    try:
        while True:
            timestep = env.reset()
            accepted.append([int(timestep.observation["number"][0])])
            while not timestep.last():
                time.sleep(seconds)
                timestep = env.step(np.zeros(1, np.float32))
                accepted[-1].append(int(timestep.observation["number"][0]))
    except StorageError as error:
        env.close()  # The error was raised before.
        return accepted, str(error)


def _push(kind, rng, seconds, disk):
    index, noise = 0, Noise(rng)
    recorder = envlogger.StreamRecorder(
        disk / "made",
        video={"cam": envlogger.Video(quality=rng.choice((0, 5)))},
        max_pending_bytes=rng.choice((2, 8)) << 20,
    )
    is_pushed = False
    try:
        while True:
            observation, time_ns, is_pushed = noise.observation(), 10**9 + index * 10**7, False
            recorder.push("cam", time_ns, observation["cam"])
            is_pushed = True
            recorder.push("number", time_ns, observation["number"])
            index += 1
            time.sleep(seconds)
    except StorageError as error:
        with contextlib.suppress(StorageError):
            recorder.close()
        return [[*range(index)], [index] if is_pushed else []], str(error)


def _read(kind, disk, recovered):
    if kind == "streams":
        return _streamed(disk / "made")
    if kind.startswith("lerobot"):
        recover(disk / "made", recovered)
    else:
        recovered = disk / "made"
    read_indices = []
    for episode in rlds.sources.open(recovered, video="frames"):
        observation = episode.steps["observation"]
        indices = observation["number"].reshape(-1).astype(int).tolist()
        assert len(observation["cam"]) == len(indices)
        read_indices += indices
    return read_indices


def _streamed(folder):
    """Indices of the frames: those of the other stream, or one more."""
    from mcap.reader import make_reader

    [file] = folder.glob("*.mcap")
    times = {"/cam": [], "/number": []}
    with file.open("rb") as stream:
        for _, channel, message in make_reader(stream).iter_messages():
            times[channel.topic].append((message.log_time - 10**9) // 10**7)
    cameras, indices = (sorted(topic_times) for topic_times in times.values())
    assert indices in (cameras, cameras[:-1]), (len(indices), len(cameras))
    return cameras


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--disks", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for index in range(options.disks):
        kind, seed = KINDS[index % len(KINDS)], options.seed + index
        with tempfile.TemporaryDirectory() as folder:
            count, error = check(kind, seed, pathlib.Path(folder, "disk"))
        print(f"{kind}, seed {seed}: {count} steps accepted and read; {error[:150]}", flush=True)


if __name__ == "__main__":
    main()
