"""The task of some examples: swing a pendulum up, and hold it there. And somebody who can do it.

An episode of Gymnasium's `Pendulum-v1` has 200 steps, after which it is truncated: the pendulum
could swing on. The motor is too weak to lift the pendulum at once. Returns are about -1300 for who
does not know what to do, and -150 for the best.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import gymnasium
import numpy as np

import envlogger
from envlogger.gymnasium_adapter import GymnasiumAdapter

__all__ = ["LIMIT", "TESTS", "Agent", "at_random", "make", "play", "record", "swing_up", "unsteady"]

# The largest torque that the motor has, in both directions.
LIMIT = 2.0

# The seeds of episodes in which agents are tested.
TESTS = range(1_000_000, 1_000_050)

# Takes an observation (cosine and sine of the angle, velocity), and returns an action: the torque.
Agent = Callable[[np.ndarray], np.ndarray]


def make() -> gymnasium.Env:
    """The environment."""
    return gymnasium.make("Pendulum-v1", disable_env_checker=True)


def swing_up(observation: np.ndarray) -> np.ndarray:
    """The torque of a controller that swings the pendulum up and holds it."""
    cosine, sine, velocity = np.moveaxis(observation, -1, 0)
    hold = -15.0 * sine - 3.0 * velocity
    # Push with the motion until the energy is that of standing still at the top.
    energy = velocity**2 / 6.0 + 5.0 * cosine
    push = (5.0 - energy) * velocity
    torque = np.where((cosine > 0.7) & (np.abs(velocity) < 5.0), hold, push)
    return np.clip(torque[..., None], -LIMIT, LIMIT).astype(np.float32)


def at_random(rng: np.random.Generator) -> Agent:
    """Somebody who does anything."""
    return lambda observation: rng.uniform(-LIMIT, LIMIT, 1).astype(np.float32)


def unsteady(rng: np.random.Generator) -> Agent:
    """The controller with an unsteady hand: 1 action out of 10 is random, the rest is noisy."""
    anything = at_random(rng)

    def act(observation: np.ndarray) -> np.ndarray:
        if rng.random() < 0.1:
            return anything(observation)
        torque = swing_up(observation) + rng.normal(0.0, 0.1, 1)
        return np.clip(torque, -LIMIT, LIMIT).astype(np.float32)

    return act


def record(
    env: gymnasium.Env, directory: Path, agents: Sequence[Agent], seeds: Sequence[int]
) -> np.ndarray:
    """Records an episode of each agent with EnvLogger; returns their returns.

    The seeds decide where the episodes begin, as in `play`.
    """
    returns = np.zeros(len(agents))
    adapter = GymnasiumAdapter(env)
    with envlogger.EnvLogger(adapter, data_directory=directory) as recorder:
        for index, (agent, seed) in enumerate(zip(agents, seeds, strict=True)):
            adapter.prepare_reset(seed=seed)
            timestep = recorder.reset()
            while not timestep.last():
                timestep = recorder.step(agent(timestep.observation))
                returns[index] += timestep.reward
    return returns


def play(env: gymnasium.Env, agent: Agent, seeds: Sequence[int], gamma: float = 1.0) -> np.ndarray:
    """The discounted return of an episode for each seed, which decides where it begins."""
    returns = np.zeros(len(seeds))
    for index, seed in enumerate(seeds):
        (observation, _), over, factor = env.reset(seed=seed), False, 1.0
        while not over:
            observation, reward, terminated, truncated, _ = env.step(agent(observation))
            returns[index] += factor * reward
            factor *= gamma
            over = terminated or truncated
    return returns
