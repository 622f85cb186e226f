"""Contenders that record an environment, and read what they recorded.

They are this project or EnvLogger 1.2, whichever `envlogger` the Python that runs this has.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
from dm_env import specs
from worker import Work

EPISODE_LENGTH = 1000
RANDOM_STEPS = 200


class Environment(dm_env.Environment):
    """Yields given observations, again and again, in episodes of so many steps."""

    def __init__(self, observations: list[Any], length: int = EPISODE_LENGTH) -> None:
        self._observations, self._length = observations, length
        self._time = 0

    def _observe(self) -> Any:
        return self._observations[self._time % len(self._observations)]

    def reset(self) -> dm_env.TimeStep:
        """Begins an episode."""
        return dm_env.restart(self._observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        """Goes on to the next observation."""
        self._time += 1
        timestep = dm_env.transition(np.float32(0.5), self._observe(), np.float32(1.0))
        if self._time % self._length == 0:
            return timestep._replace(step_type=dm_env.StepType.LAST, discount=np.float32(0.0))
        return timestep

    def observation_spec(self) -> Any:
        """Fits the floats and the cameras; of other observations nobody looks at it."""
        if isinstance(seen := self._observations[0], dict) and "top" in seen:
            return {name: specs.Array(value.shape, value.dtype) for name, value in seen.items()}
        return specs.Array((17,), np.float32)

    def action_spec(self) -> Any:
        """Six joints."""
        return specs.Array((6,), np.float32)

    def reward_spec(self) -> Any:
        """A number."""
        return specs.Array((), np.float32)

    discount_spec = reward_spec


def take_steps(env: dm_env.Environment, count: int) -> None:
    """Takes so many steps with random actions; those that begin an episode count, too."""
    actions = list(np.random.default_rng(1).random((1024, 6), np.float32))
    is_last = True
    for index in range(count):
        timestep = env.reset() if is_last else env.step(actions[index % 1024])
        is_last = timestep.last()


def record(data: Path, size: int, *, kind: str) -> Work:
    """Records steps at full speed with the default options, until all are on the disk."""
    import envlogger

    seen = observations(kind)

    def work(folder: Path) -> int:
        env = envlogger.EnvLogger(Environment(seen), data_directory=str(folder))
        take_steps(env, size)
        env.close()
        return size

    return work


def write_logs(folder: Path, size: int) -> None:
    """Records steps of floats, as data for other jobs."""
    record(folder, size, kind="floats")(folder)


def _recorded(kind: str, size: int) -> Any:
    import envlogger

    directory = Path(tempfile.mkdtemp())
    record(directory, size, kind=kind)(directory)
    return envlogger.Reader(str(directory))


def read_steps(data: Path, size: int, *, kind: str) -> Work:
    """Reads step by step."""
    reader = _recorded(kind, size)
    return lambda _: sum(1 for episode in reader.episodes for _ in episode)


def read_random_steps(data: Path, size: int, *, kind: str) -> Work:
    """Reads single steps from anywhere."""
    reader = _recorded(kind, size)
    picks = np.random.default_rng(2).integers(0, size, RANDOM_STEPS).tolist()
    return lambda _: sum(1 for pick in picks if reader.steps[pick] is not None)


def read_columns(data: Path, size: int, *, kind: str) -> Work:
    """Reads whole episodes as arrays, which EnvLogger 1.2 cannot."""
    reader = _recorded(kind, size)

    def work(_: Path) -> int:
        episodes = range(len(reader.episodes))
        return sum(len(reader.columns(index)["step_type"]) for index in episodes)

    return work


# --- Observations --------------------------------------------------------------------------------


def observations(kind: str) -> list[Any]:
    """Makes observations such as environments have, that do not repeat within a chunk of a file."""
    rng = np.random.default_rng(0)
    if kind == "frames":
        return list(_game(rng, 2000))
    if kind == "camera":
        return list(_camera(rng, 100))
    if kind == "cameras":
        frames = list(_camera(rng, 60, 480, 640, noise=2))
        joints = rng.random((60, 7), np.float32)
        return [{"top": frames[n], "side": frames[n - 30], "joints": joints[n]} for n in range(60)]
    walk = np.sin(np.cumsum(rng.standard_normal((20_000, 64)) * 0.05, axis=0))
    if kind == "floats":
        return list(walk[:, :17].astype(np.float32))
    return [_robot(index, row) for index, row in enumerate(walk)]


def _game(rng: np.random.Generator, count: int) -> Iterator[np.ndarray]:
    """The last four frames of a ball and a bat."""
    frames = np.full((count + 3, 84, 84), 87, np.uint8)
    frames[:, :10] = 142
    y, x, dy, dx, bat = 40.0, 40.0, 1.7, 1.1, 40
    for frame in frames:
        dy = dy if 12 < y + dy < 80 else -dy
        dx = dx if 2 < x + dx < 80 else -dx
        y, x, bat = y + dy, x + dx, int(np.clip(bat + rng.integers(-3, 4), 8, 72))
        frame[int(y) : int(y) + 2, int(x) : int(x) + 2] = 200
        frame[76:79, bat - 6 : bat + 6] = 213
    return (np.stack(frames[t : t + 4], axis=-1) for t in range(count))


def _camera(
    rng: np.random.Generator, count: int, height: int = 224, width: int = 224, noise: float = 6
) -> Iterator[np.ndarray]:
    """A moving scene with the noise of a sensor."""
    rows, columns = np.mgrid[:height, :width]
    for t in range(count):
        scene = [np.sin((columns + 3 * t) / 40), np.cos((rows - 2 * t) / 30), np.sin(rows / 50)]
        scene = 128 + 80 * np.stack(scene, axis=-1) + rng.normal(0, noise, (height, width, 3))
        yield np.clip(scene, 0, 255).astype(np.uint8)


def _robot(index: int, row: np.ndarray) -> dict[str, Any]:
    """Returns the proprioception of a robot arm: 20 fields."""
    return {
        **{f"joint_{i}": row[3 * i : 3 * i + 3].astype(np.float32) for i in range(6)},
        **{f"pose_{i}": row[20 + 3 * i : 23 + 3 * i].copy() for i in range(4)},
        **{f"flag_{i}": bool(row[i] > 0) for i in range(4)},
        **{f"count_{i}": np.int64(index // (i + 1)) for i in range(3)},
        **{f"tactile_{i}": (row[40:48] * 100).astype(np.int8) for i in range(2)},
        "gripper": np.float32(row[50]),
    }
