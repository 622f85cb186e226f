"""Small replay buffers in the layout of Google's Atari DQN Replay: gzipped arrays.

`record` returns the rows of episodes in a buffer, with rows of zeros between episodes; `write_run`
writes them as checkpoints of a ring buffer.
"""

import dataclasses
import gzip
import io
from pathlib import Path

import numpy as np

PADDING = 3  # Rows of zeros before an episode, for a stack of four frames.


@dataclasses.dataclass
class Recorded:
    """The episode of an agent; `terminal` is false if a time limit ended it."""

    frames: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminal: bool


Rows = dict[str, np.ndarray]


def episode(
    steps: int, *, terminal: bool, shape: tuple[int, int] = (7, 5), black: int = 0, seed: int = 0
) -> Recorded:
    """An episode; its first `black` steps have only zeros."""
    rng = np.random.default_rng(seed)
    frames = rng.integers(1, 256, (steps, *shape), np.uint8)
    actions = rng.integers(0, 18, steps, np.int32)
    rewards = rng.choice(np.array([0, 0, 1, -7, 400], np.float32), steps)
    frames[:black], actions[:black], rewards[:black] = 0, 0, 0.0
    return Recorded(frames, actions, rewards, terminal)


def record(episodes: list[Recorded], *, padding: int = PADDING) -> Rows:
    """The rows of episodes in a buffer of unlimited capacity."""
    chunks: dict[str, list[np.ndarray]] = {
        name: [] for name in ("observation", "action", "reward", "terminal")
    }
    for recorded in episodes:
        steps = len(recorded.actions)
        terminal = np.zeros(steps, np.uint8)
        terminal[-1] = recorded.terminal
        columns = (recorded.frames, recorded.actions, recorded.rewards, terminal)
        for name, column in zip(chunks, columns):
            chunks[name] += [np.zeros((padding, *column.shape[1:]), column.dtype), column]
    return {name: np.concatenate(columns) for name, columns in chunks.items()}


def write_run(
    directory: Path,
    rows: Rows,
    *,
    capacity: int,
    every: int | None = None,
    offset: int = 0,
    with_add_count: bool = True,
) -> None:
    """Writes checkpoints of a buffer.

    Args:
      directory: The folder, such as `Pong/1/replay_logs`.
      rows: The rows added to the buffer over time.
      capacity: The rows of the buffer.
      every: The rows from one checkpoint to the next; the capacity by default. The last checkpoint
        is at the end.
      offset: The rows by which the first checkpoint is later.
      with_add_count: Whether there are files with the position of the oldest row.
    """
    directory.mkdir(parents=True)
    total = len(rows["action"])
    every = every or capacity
    ends = [*range(every + offset, total, every), total]
    for checkpoint, end in enumerate(ends):
        recorded = np.arange(max(end - capacity, 0), end)
        for name, column in rows.items():
            buffer = np.zeros((capacity, *column.shape[1:]), column.dtype)
            buffer[recorded % capacity] = column[recorded]
            write_array(directory / f"$store$_{name}_ckpt.{checkpoint}.gz", buffer)
        if with_add_count:
            write_array(directory / f"add_count_ckpt.{checkpoint}.gz", np.array(end))
            invalid = (end % capacity - 1 + np.arange(PADDING + 2)) % capacity
            write_array(directory / f"invalid_range_ckpt.{checkpoint}.gz", invalid)


def write_array(file: Path, array: np.ndarray) -> None:
    """Writes a gzipped `.npy` file."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=array.dtype == object)
    file.write_bytes(gzip.compress(stream.getvalue(), compresslevel=1, mtime=0))
