"""Roll-outs of random agents in real environments. Each function imports its library.

A roll-out holds the values of the environment with their dtypes. Tests write it in a raw layout,
and compare the converted dataset with it.
"""

import dataclasses
import os
from typing import Any

import numpy as np

# Before the import of a simulator: without rendering, MuJoCo needs no OpenGL.
os.environ.setdefault("MUJOCO_GL", "disabled")

FRAME_SKIP = 4
FRAME_SHAPE = (84, 84)


@dataclasses.dataclass
class Rollout:
    """An episode of T transitions.

    Attributes:
      observations: The T + 1 observations.
      actions: The actions.
      rewards: The rewards.
      terminated: Whether the last state is terminal.
      states: The states of MuJoCo: `qpos` and `qvel` for each observation.
    """

    observations: list[Any]
    actions: list[Any]
    rewards: list[Any]
    terminated: bool = False
    states: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.actions)


def of_gymnasium(env: Any, count: int = 1, *, seed: int = 0) -> list[Rollout]:
    """Plays episodes of an environment of Gymnasium, up to its time limit."""
    env.action_space.seed(seed)
    episodes = []
    for index in range(count):
        observation, _ = env.reset(seed=seed + index)
        episode = Rollout([observation], [], [], states=[_state(env)])
        truncated = False
        while not (episode.terminated or truncated):
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            episode.observations.append(observation)
            episode.actions.append(action)
            episode.rewards.append(reward)
            episode.states.append(_state(env))
            episode.terminated = bool(terminated)
        episodes.append(episode)
    return episodes


def _state(env: Any) -> dict[str, np.ndarray]:
    data = getattr(env.unwrapped, "data", None)
    return {} if data is None else {"qpos": data.qpos.copy(), "qvel": data.qvel.copy()}


def simulator(num_steps: int, *, seed: int) -> Any:
    """A dm_env environment in MuJoCo, with a time limit, that observes `position` and `velocity`.

    It is dm_control's cartpole; where dm_control does not install, Gymnasium's Reacher.
    """
    try:
        from dm_control import suite
    except ImportError:
        return _reacher(num_steps, seed)
    return suite.load("cartpole", "swingup", {"random": seed, "time_limit": num_steps * 0.01})


def _reacher(num_steps: int, seed: int) -> Any:
    import gymnasium

    from envlogger.gymnasium_adapter import GymnasiumAdapter

    def split(values: np.ndarray) -> dict[str, np.ndarray]:
        return {"position": values[:6], "velocity": values[6:]}

    env = gymnasium.make("Reacher-v5", max_episode_steps=num_steps)
    box = env.observation_space
    space = gymnasium.spaces.Dict(
        {
            name: gymnasium.spaces.Box(low, high, dtype=box.dtype)
            for (name, low), high in zip(split(box.low).items(), split(box.high).values())
        }
    )
    return GymnasiumAdapter(gymnasium.wrappers.TransformObservation(env, split, space), seed=seed)


def of_dm_env(env: Any, max_steps: int, *, seed: int = 0) -> tuple[list[Any], list[np.ndarray]]:
    """Plays an episode of a dm_env environment; returns its time steps, and the actions between."""
    spec, rng = env.action_spec(), np.random.default_rng(seed)
    timesteps, actions = [env.reset()], []
    while not timesteps[-1].last() and len(actions) < max_steps:
        actions.append(rng.uniform(spec.minimum, spec.maximum, spec.shape).astype(spec.dtype))
        timesteps.append(env.step(actions[-1]))
    return timesteps, actions


def of_atari(game: str, count: int = 1, *, max_steps: int, seed: int = 0) -> list[Rollout]:
    """Plays a game of Atari as DQN agents did.

    Actions are sticky and repeated; an observation is the maximum of the last two screens, in
    grey and downscaled.
    """
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.25)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    legal_actions, rng = ale.getMinimalActionSet(), np.random.default_rng(seed)
    episodes = []
    for _ in range(count):
        ale.reset_game()
        episode = Rollout([_small(ale.getScreenGrayscale())], [], [])
        while not episode.terminated and len(episode) < max_steps:
            action = np.int32(rng.integers(len(legal_actions)))
            reward, screens = 0, []
            for _ in range(FRAME_SKIP):
                reward += ale.act(legal_actions[action])
                screens.append(ale.getScreenGrayscale())
            episode.observations.append(_small(np.maximum(*screens[-2:])))
            episode.actions.append(action)
            episode.rewards.append(np.float32(reward))
            episode.terminated = bool(ale.game_over())
        episodes.append(episode)
    return episodes


def _small(screen: np.ndarray) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.fromarray(screen).resize(FRAME_SHAPE[::-1], Image.Resampling.BOX))
