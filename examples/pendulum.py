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

__all__ = ["LIMIT", "Agent", "at_random", "make", "play", "record", "swing_up", "unsteady"]

# The largest torque that the motor has, in both directions.
LIMIT = 2.0

# Takes an observation, and returns an action: its cosine, sine and velocity, and the torque.
Agent = Callable[[np.ndarray], np.ndarray]


def make() -> gymnasium.Env:
    """The environment."""
    return gymnasium.make("Pendulum-v1", disable_env_checker=True)


def swing_up(observation: np.ndarray) -> np.ndarray:
    """The torque of a controller that swings the pendulum up and holds it."""
    cosine, sine, velocity = observation
    if cosine > 0.7 and abs(velocity) < 5.0:
        torque = -15.0 * sine - 3.0 * velocity
    else:  # Push with the motion until the energy is that of standing still at the top.
        energy = velocity**2 / 6.0 + 5.0 * cosine
        torque = (5.0 - energy) * velocity
    return np.clip([torque], -LIMIT, LIMIT).astype(np.float32)


def at_random(rng: np.random.Generator) -> Agent:
    """Somebody who does anything."""
    return lambda observation: rng.uniform(-LIMIT, LIMIT, 1).astype(np.float32)


def unsteady(rng: np.random.Generator) -> Agent:
    """The controller with an unsteady hand: 1 action out of 10 is random, the others are noisy."""
    anything = at_random(rng)

    def act(observation: np.ndarray) -> np.ndarray:
        if rng.random() < 0.1:
            return anything(observation)
        torque = swing_up(observation) + rng.normal(0.0, 0.1, 1)
        return np.clip(torque, -LIMIT, LIMIT).astype(np.float32)

    return act


def record(env: gymnasium.Env, directory: Path, agents: Sequence[Agent], seed: int) -> np.ndarray:
    """Records an episode of each agent with EnvLogger; returns their returns."""
    returns = np.zeros(len(agents))
    adapter = GymnasiumAdapter(env, seed=seed)
    with envlogger.EnvLogger(adapter, data_directory=directory) as recorder:
        for number, agent in enumerate(agents):
            timestep = recorder.reset()
            while not timestep.last():
                timestep = recorder.step(agent(timestep.observation))
                returns[number] += timestep.reward
    return returns


def play(env: gymnasium.Env, agent: Agent, seeds: Sequence[int]) -> np.ndarray:
    """The return of an episode for each seed, from which the pendulum begins elsewhere."""
    returns = np.zeros(len(seeds))
    for number, seed in enumerate(seeds):
        (observation, _), over = env.reset(seed=seed), False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(agent(observation))
            returns[number] += reward
            over = terminated or truncated
    return returns
