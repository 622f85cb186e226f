"""Datasets of MuJoCo in the form of `audited_data`, not used to develop the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import gymnasium
import numpy as np
from audited_data import Episode

__all__ = ["DATASETS", "NO_RELATION", "make_episodes"]

NO_RELATION = "the effect of a torque depends on the state"


def _run(env: gymnasium.Env, policy: Callable[[int, np.ndarray], np.ndarray], seed: int, rows: int):
    """Returns the observations and actions of an episode."""
    state, _ = env.reset(seed=seed)
    states, actions = [], []
    for row in range(rows):
        action = np.clip(policy(row, state), env.action_space.low, env.action_space.high)
        states.append(state)
        actions.append(action)
        state, _, ends, _, _ = env.step(action)
        if ends:
            break
    return Episode(np.array(states, float), np.array(actions, float))


def _reacher(rng: np.random.Generator, env: gymnasium.Env) -> Episode:
    """An arm of two joints that springs pull to a point, for 50 to 90 rows."""
    pull, damp = rng.uniform(0.8, 1.2, 2)

    def policy(row: int, state: np.ndarray) -> np.ndarray:
        cos, sin, speed, apart = state[:2], state[2:4], state[6:8], state[8:10]
        angles = np.arctan2(sin, cos)
        reach = angles[0] + np.array([0, angles[1]])
        along = np.stack([-np.sin(reach), np.cos(reach)])
        torque = -8 * pull * along.T @ apart * 0.3 - 0.05 * damp * speed
        return torque + 0.02 * rng.normal(size=2)

    return _run(env, policy, int(rng.integers(1 << 30)), int(rng.integers(50, 90)))


def _cheetah(rng: np.random.Generator, env: gymnasium.Env) -> Episode:
    """Legs that swing by a rhythm, with noise."""
    phases, rate = rng.uniform(0, 6.3, 6), rng.uniform(0.3, 0.5)
    sizes = rng.uniform(0.4, 0.9, 6)

    def policy(row: int, state: np.ndarray) -> np.ndarray:
        return sizes * np.sin(rate * row + phases) + 0.1 * rng.normal(size=6)

    return _run(env, policy, int(rng.integers(1 << 30)), int(rng.integers(120, 220)))


def _swimmer(rng: np.random.Generator, env: gymnasium.Env) -> Episode:
    """Two joints that wind."""
    rate, shift = rng.uniform(0.08, 0.12), rng.uniform(1, 2)

    def policy(row: int, state: np.ndarray) -> np.ndarray:
        wave = np.array([np.sin(rate * row), np.sin(rate * row + shift)])
        return 0.8 * wave + 0.05 * rng.normal(size=2)

    return _run(env, policy, int(rng.integers(1 << 30)), int(rng.integers(150, 300)))


def _pusher(rng: np.random.Generator, env: gymnasium.Env) -> Episode:
    """Seven joints that torques lead along smooth random paths."""
    knots = rng.uniform(-0.6, 0.6, (6, 7))
    rows = int(rng.integers(80, 100))
    paths = np.stack([np.interp(np.arange(rows), np.linspace(0, rows, 6), it) for it in knots.T], 1)

    def policy(row: int, state: np.ndarray) -> np.ndarray:
        return 3 * (paths[row] - state[:7]) - 0.4 * state[7:14] + 0.05 * rng.normal(size=7)

    return _run(env, policy, int(rng.integers(1 << 30)), rows)


DATASETS: Mapping[str, tuple[str, Callable[[np.random.Generator, gymnasium.Env], Episode]]] = {
    "Reacher": ("Reacher-v5", _reacher),
    "HalfCheetah": ("HalfCheetah-v5", _cheetah),
    "Swimmer": ("Swimmer-v5", _swimmer),
    "Pusher": ("Pusher-v5", _pusher),
}


def make_episodes(name: str, seed: int, episodes: int = 80) -> list[Episode]:
    """Returns episodes of a clean dataset."""
    env_id, policy = DATASETS[name]
    rng, env = np.random.default_rng([seed, *name.encode()]), gymnasium.make(env_id).unwrapped
    generated = [policy(rng, env) for _ in range(episodes)]
    env.close()
    return generated
