"""A small game for examples and tests: catch a falling ball."""

from __future__ import annotations

import dm_env
import numpy as np
from dm_env import specs

__all__ = ["Catch"]

_MOVES = (-1, 0, 1)  # The moves: left, stay, right.


class Catch(dm_env.Environment):  # type: ignore[misc]  # dm_env is untyped.
    """A game: move a paddle at the bottom of a board to catch a ball that falls straight down.

    The observation is the board, a float32 array `[rows, columns]` with ones where the ball and the
    paddle are. The actions 0, 1 and 2 move the paddle left, not at all, and right. When the ball
    reaches the bottom row, the episode ends with a reward of 1 if it is caught and -1 if not; all
    other rewards are 0.

    Args:
      rows: The height of the board; also the number of steps of an episode.
      columns: The width of the board.
      seed: The seed of the columns in which the balls fall.

    >>> env = Catch(rows=3)
    >>> env.reset().observation.shape
    (3, 5)
    >>> [env.step(1).last() for _ in range(2)]
    [False, True]
    """

    def __init__(self, rows: int = 10, columns: int = 5, seed: int = 1) -> None:
        self._rows = rows
        self._columns = columns
        self._rng = np.random.RandomState(seed)
        self._ball = (0, 0)
        self._paddle = 0
        self._reset_next_step = True

    def reset(self) -> dm_env.TimeStep:
        """Puts the paddle in the middle and drops a new ball."""
        self._reset_next_step = False
        self._ball = (0, int(self._rng.randint(self._columns)))
        self._paddle = self._columns // 2
        return dm_env.restart(self._draw_board())

    def step(self, action: int) -> dm_env.TimeStep:
        """Moves the paddle and the ball; begins a new episode if the last one is over."""
        if self._reset_next_step:
            return self.reset()
        self._paddle = min(max(self._paddle + _MOVES[action], 0), self._columns - 1)
        row, column = self._ball
        self._ball = (row + 1, column)
        if row + 1 < self._rows - 1:
            return dm_env.transition(reward=0.0, observation=self._draw_board())
        self._reset_next_step = True
        reward = 1.0 if self._paddle == column else -1.0
        return dm_env.termination(reward=reward, observation=self._draw_board())

    def observation_spec(self) -> specs.BoundedArray:
        """The board."""
        return specs.BoundedArray((self._rows, self._columns), np.float32, 0, 1, name="board")

    def action_spec(self) -> specs.DiscreteArray:
        """The three moves."""
        return specs.DiscreteArray(len(_MOVES), dtype=int, name="action")

    def _draw_board(self) -> np.ndarray:
        board = np.zeros((self._rows, self._columns), dtype=np.float32)
        board[self._ball] = 1.0
        board[self._rows - 1, self._paddle] = 1.0
        return board
