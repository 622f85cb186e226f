"""Datasets of dm_control and of Atari games, held out when `rlds.auditing` was developed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import audited_data
import camera_data
import numpy as np

__all__ = ["DM_CONTROL", "GAMES", "make_episodes", "make_films"]

Policy = Callable[[int, np.ndarray], np.ndarray]


# --- dm_control ----------------------------------------------------------------------------------


def _cartpole(rng: np.random.Generator) -> Policy:
    """Pumps energy into a pole until it is up, and holds it there."""
    gain, noise = rng.uniform(0.8, 1.2), 0.05

    def policy(row: int, observation: np.ndarray) -> np.ndarray:
        position, up, side, speed, turn = observation
        if up > 0.9:
            force = 0.1 * position + 0.2 * speed + 1.5 * gain * side + 0.3 * turn
        else:
            force = -gain * np.sign(turn * up) * (0.6 if turn * turn / 2 + 10 * up < 10 else -0.2)
            force -= 0.3 * position
        return np.array([force + noise * rng.normal()])

    return policy


def _point_mass(rng: np.random.Generator) -> Policy:
    """Drives a mass to the middle as by a spring, along axes that the task mixes."""
    pull, damp = rng.uniform(0.8, 1.2, 2)

    def policy(row: int, state: np.ndarray) -> np.ndarray:
        return -3 * pull * state[:2] - 1.5 * damp * state[2:] + 0.05 * rng.normal(size=2)

    return policy


def _walker(rng: np.random.Generator) -> Policy:
    """Swings legs by a rhythm; it may fall."""
    phases, rate = rng.uniform(0, 6.3, 6), rng.uniform(0.2, 0.3)

    def policy(row: int, observation: np.ndarray) -> np.ndarray:
        return 0.6 * np.sin(rate * row + phases) + 0.1 * rng.normal(size=6)

    return policy


def _finger(rng: np.random.Generator) -> Policy:
    """Strokes a body that turns, again and again."""
    rate, shift = rng.uniform(0.1, 0.15), rng.uniform(1, 2)

    def policy(row: int, observation: np.ndarray) -> np.ndarray:
        wave = np.array([np.sin(rate * row), np.sin(rate * row + shift)])
        return 0.7 * wave + 0.05 * rng.normal(size=2)

    return policy


class Task(NamedTuple):
    """A task of dm_control.

    Attributes:
      domain: Its domain.
      task: Its name there.
      policy: Makes a policy for an episode.
      rows: The least and the largest number of rows.
      repeats: The steps of the environment for each row.
    """

    domain: str
    task: str
    policy: Callable[[np.random.Generator], Policy]
    rows: tuple[int, int]
    repeats: int


DM_CONTROL: Mapping[str, Task] = {
    "cart-pole": Task("cartpole", "swingup", _cartpole, (100, 200), 4),
    "point mass": Task("point_mass", "easy", _point_mass, (60, 120), 4),
    "walker": Task("walker", "walk", _walker, (120, 200), 1),
    "finger": Task("finger", "spin", _finger, (120, 200), 1),
}


def make_episodes(name: str, seed: int, episodes: int = 80) -> list[audited_data.Episode]:
    """Returns episodes of a clean dataset of dm_control."""
    from dm_control import suite

    task = DM_CONTROL[name]
    rng = np.random.default_rng([seed, *name.encode()])
    env = suite.load(task.domain, task.task, task_kwargs={"random": int(rng.integers(1 << 30))})
    limits = env.action_spec()
    generated = []
    for _ in range(episodes):
        policy, observation = task.policy(rng), _flat(env.reset().observation)
        states, actions = [], []
        for row in range(int(rng.integers(*task.rows))):
            action = np.clip(policy(row, observation), limits.minimum, limits.maximum)
            states.append(observation)
            actions.append(action)
            for _ in range(task.repeats):
                observation = _flat(env.step(action).observation)
        generated.append(audited_data.Episode(np.array(states), np.array(actions)))
    return generated


def _flat(observation: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(each) for each in observation.values()])


# --- Atari ---------------------------------------------------------------------------------------

# The environment; the addresses of the ball and the paddles in the memory; the moves.
GAMES: Mapping[str, tuple[str, list[int], list[int]]] = {
    "Pong": ("ALE/Pong-v5", [49, 54, 50, 51], [2, 3]),
    "Breakout": ("ALE/Breakout-v5", [99, 101, 72], [2, 3]),
}
_ROWS, _NOOP, _FIRE = 60, 0, 1


def make_films(name: str, seed: int, episodes: int = 40) -> list[camera_data.Filmed]:
    """Returns episodes of a game, of 60 rows: every second pixel of the screen."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    id_of_game, addresses, moves = GAMES[name]
    rng, env = np.random.default_rng([seed, *name.encode()]), gymnasium.make(id_of_game)
    films = []
    for _ in range(episodes):
        screen, _ = env.reset(seed=int(rng.integers(1 << 30)))
        for _ in range(int(rng.integers(20, 60))):
            screen, *_ = env.step(_FIRE)
        states, actions, screens, action = [], [], [], _NOOP
        for row in range(_ROWS):
            memory = env.unwrapped.ale.getRAM()
            if row % 4 == 0:
                action = int(rng.choice([_FIRE, *moves]))
            states.append(memory[addresses].astype(float))
            actions.append([float(action)])
            screens.append(screen[::2, ::2])
            screen, *_ = env.step(action)
        episode = audited_data.Episode(np.array(states), np.array(actions))
        films.append(camera_data.Filmed(episode, {"screen": np.stack(screens)}))
    env.close()
    return films
