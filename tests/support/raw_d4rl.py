"""Writes small files in the layouts of D4RL with their oddities, and large ones for speed tests.

`FAMILIES` has a writer for every layout, by the name of a file. Episodes have few rows; shapes of
observations and actions, keys and dtypes are those of published files.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Arrays = dict[str, Any]


def write(path: Any, arrays: Mapping[str, Any], **options: Any) -> Path:
    """Writes a file as D4RL does: arrays compressed by gzip, scalars as they are."""
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            if np.ndim(value) and not name.startswith("metadata"):
                file.create_dataset(name, data=value, **{"compression": "gzip", **options})
            else:
                file[name] = value
    return Path(path)


def transitions(
    lengths: Sequence[int],
    observation_size: int,
    action_size: int,
    *,
    dtype: Any = np.float32,
    seed: int = 0,
) -> Arrays:
    """Returns the rows of random walks from random positions."""
    rng = np.random.default_rng(seed)
    walks = []
    for length in lengths:
        steps = rng.normal(0.0, 0.1, (length + 1, observation_size))
        steps[0] = rng.uniform(-20.0, 20.0, observation_size)
        walks.append(np.cumsum(steps, axis=0).astype(dtype))
    rows = sum(lengths)
    return {
        "observations": np.concatenate([walk[:-1] for walk in walks]),
        "next_observations": np.concatenate([walk[1:] for walk in walks]),
        "actions": rng.uniform(-1.0, 1.0, (rows, action_size)).astype(dtype),
        "rewards": rng.normal(size=rows).astype(dtype),
    }


def flags(rows: int, *marked: int, dtype: Any = bool) -> np.ndarray:
    """Returns flags that are true in the marked rows."""
    column = np.zeros(rows, dtype)
    column[list(marked)] = 1
    return column


def without(arrays: Arrays, *names: str) -> Arrays:
    """Returns the arrays without some."""
    return {name: value for name, value in arrays.items() if name not in names}


def state(rows: int, *, dtype: Any = np.float32, **sizes: int) -> Arrays:
    """Returns `infos/<name>` of the given sizes."""
    rng = np.random.default_rng(rows)
    return {
        f"infos/{name}": rng.normal(size=(rows, size)).astype(dtype) for name, size in sizes.items()
    }


def policy(
    sizes: Sequence[int], *, with_log_std: bool = True, seed: int = 7, **metadata: Any
) -> Arrays:
    """Returns the metadata of a file whose recorder was a policy."""
    rng = np.random.default_rng(seed)
    names = ["fc0", "fc1", "last_fc"]
    shapes = list(zip(sizes[1:], sizes))
    if with_log_std:
        names, shapes = [*names, "last_fc_log_std"], [*shapes, shapes[-1]]
    weights: Arrays = {}
    for name, (outputs, inputs) in zip(names, shapes):
        # Small: after the tanh, actions are not all -1 or 1.
        weight, bias = rng.normal(0, 0.1, (outputs, inputs)), rng.normal(0, 0.1, outputs)
        weights[f"metadata/policy/{name}/weight"] = weight.astype("f4")
        weights[f"metadata/policy/{name}/bias"] = bias.astype("f4")
    return {
        **{f"metadata/{name}": value for name, value in metadata.items()},
        "metadata/policy/nonlinearity": np.bytes_("relu"),
        "metadata/policy/output_distribution": np.bytes_("tanh_gaussian"),
        **weights,
    }


def act(policy: Arrays, observations: np.ndarray, *, seed: int = 0) -> Arrays:
    """Returns actions of a policy, and their log-probabilities, as D4RL recorded them."""

    def layer(name: str, values: np.ndarray) -> np.ndarray:
        weight = policy[f"metadata/policy/{name}/weight"].astype("f8")
        return values @ weight.T + policy[f"metadata/policy/{name}/bias"]

    hidden = np.maximum(layer("fc1", np.maximum(layer("fc0", observations), 0)), 0)
    mean, log_std = layer("last_fc", hidden), layer("last_fc_log_std", hidden)
    is_squashed = policy["metadata/policy/output_distribution"] == b"tanh_gaussian"
    log_std = np.clip(log_std, -20, 2) if is_squashed else log_std
    drawn = mean + np.exp(log_std) * np.random.default_rng(seed).normal(size=mean.shape)
    actions = (np.tanh(drawn) if is_squashed else drawn).astype("f4")
    z, log_slope = actions.astype("f8"), 0.0
    if is_squashed:  # From the stored action, as D4RL.
        inside = np.clip(z, -0.999999, 0.999999)
        z, log_slope = np.arctanh(inside), np.log(1 - inside**2)
    log_density = -0.5 * ((z - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    log_probs = (log_density - log_slope).sum(axis=1)
    return {"actions": actions, "infos/action_log_probs": log_probs}


# --- Files ---------------------------------------------------------------------------------------


def mujoco_v0(path: Any) -> Path:
    """A terminal, a timeout, and an episode cut by the end; no next observations, no infos."""
    arrays = without(transitions((4, 5, 3), 11, 3), "next_observations")
    return write(path, {**arrays, "terminals": flags(12, 3), "timeouts": flags(12, 8)})


def mujoco_v1_replay(path: Any) -> Path:
    """All in float64, and rewards of shape (N, 1)."""
    arrays = without(transitions((4, 5, 3), 17, 6, dtype=np.float64), "next_observations")
    arrays["rewards"] = arrays["rewards"][:, np.newaxis]
    return write(
        path,
        {
            **arrays,
            "terminals": flags(12, 3),
            "timeouts": flags(12, 8),
            **state(12, dtype=np.float64, qpos=9, qvel=9),
            "infos/action_log_probs": np.linspace(-3, 0, 12),
            "metadata/algorithm": np.bytes_("SAC"),
            "metadata/iteration": np.int32(1000),
        },
    )


def mujoco_v2(path: Any) -> Path:
    """Next observations, and the policy that recorded the data."""
    rows = transitions((4, 5, 3), 11, 3)
    recorder = policy((11, 8, 8, 3), algorithm=np.bytes_("SAC"), iteration=np.int32(2_000_000))
    return write(
        path,
        {
            **rows,
            "terminals": flags(12, 3),
            "timeouts": flags(12, 8),
            **state(12, dtype=np.float64, qpos=6, qvel=6),
            **act(recorder, rows["observations"]),
            **recorder,
        },
    )


def mujoco_v2_replay(path: Any) -> Path:
    """A reset in row 6 without a flag."""
    return write(
        path,
        {
            **transitions((4, 3, 2, 3), 11, 3),
            "terminals": flags(12, 3),
            "timeouts": flags(12, 8),
            **state(12, dtype=np.float64, qpos=6, qvel=6),
            "metadata/algorithm": np.bytes_("SAC"),
            "metadata/iteration": np.int32(300),
        },
    )


def adroit_human_v0(path: Any) -> Path:
    """A timeout at the end of each demonstration."""
    arrays = without(transitions((4, 6), 45, 24), "next_observations")
    ends = {"terminals": flags(10), "timeouts": flags(10, 3, 9)}
    return write(path, {**arrays, **ends, **state(10, qpos=30, qvel=30)})


def adroit_cloned_v0(path: Any) -> Path:
    """All in float64."""
    arrays = without(transitions((4, 6), 39, 28, dtype=np.float64), "next_observations")
    ends = {"terminals": flags(10), "timeouts": flags(10, 3, 9)}
    return write(path, {**arrays, **ends, **state(10, dtype=np.float64, qpos=30, qvel=30)})


def adroit_expert_v1(path: Any) -> Path:
    """More of the simulator's state, the distribution of the actions, and a duplicated head."""
    arrays = without(transitions((4, 6), 46, 26), "next_observations")
    recorder = policy((46, 8, 8, 26), algorithm=np.bytes_("DAPG"))
    for array_name in ("weight", "bias"):
        array = recorder[f"metadata/policy/last_fc/{array_name}"]
        recorder[f"metadata/policy/last_fc_log_std/{array_name}"] = array
    return write(
        path,
        {
            **arrays,
            "terminals": flags(10),
            "timeouts": flags(10, 3, 9),
            **state(10, qpos=33, qvel=33, board_pos=3, target_pos=3, action_mean=26),
            **state(10, action_log_std=26),
            **recorder,
        },
    )


def antmaze_v0(path: Any) -> Path:
    """Runs of terminals, a timeout that is two rows late, a reset without a flag."""
    arrays = without(transitions((6, 8, 5), 29, 8), "next_observations")
    arrays["rewards"] = flags(19, 3, 4, 5, 10, 11, dtype=np.float64)
    arrays["terminals"] = arrays["rewards"].copy()
    arrays["timeouts"] = flags(19, 15)
    return write(path, {**arrays, **state(19, qpos=15, qvel=14, goal=2)})


def antmaze_v2(path: Any) -> Path:
    """Runs of terminals amid the episodes; timeouts where the ant is reset."""
    arrays = without(transitions((6, 8, 5), 29, 8), "next_observations")
    arrays["rewards"] = flags(19, 3, 4, 5, 10, 11, dtype=np.float32)
    arrays["terminals"] = arrays["rewards"].copy()
    arrays["timeouts"] = flags(19, 5, 13)
    return write(path, {**arrays, **state(19, qpos=15, qvel=14, goal=2)})


def kitchen(path: Any) -> Path:
    """An array as `infos`: the index of the demonstration, which restarts for each task."""
    arrays = without(transitions((4, 5, 3, 4), 60, 9), "next_observations")
    arrays["rewards"] = np.array([0, 1, 1, 2, 0, 0, 1, 2, 3, 0, 0, 4, 0, 0, 1, 1], np.float32)
    arrays["terminals"] = flags(16, 3, 8, 11, 15, dtype=np.float32)
    arrays["infos"] = np.repeat([0, 1, 0, 0], (4, 5, 3, 4))
    return write(path, arrays)


def maze2d(path: Any) -> Path:
    """One trajectory, as generated: no timeouts, a terminal at the goal."""
    arrays = without(transitions((14,), 4, 2), "next_observations")
    arrays["rewards"] = flags(14, 6, dtype=np.float32)
    arrays["terminals"] = flags(14, 6, dtype=np.float32)
    return write(path, {**arrays, **state(14, goal=2, qpos=2, qvel=2)})


def maze2d_with_timeouts(path: Any) -> Path:
    """One trajectory, with a timeout at each change of the goal."""
    arrays = without(transitions((14,), 4, 2), "next_observations")
    ends = {"terminals": flags(14), "timeouts": flags(14, 6)}
    return write(path, {**arrays, **ends, **state(14, goal=2, qpos=2, qvel=2)})


def minigrid(path: Any) -> Path:
    """Observations in the form of images, and discrete actions."""
    rng = np.random.default_rng(3)
    return write(
        path,
        {
            "observations": rng.integers(0, 10, (9, 7, 7, 3)).astype(np.float32),
            "actions": rng.integers(0, 3, 9).astype(np.float32),
            "rewards": np.zeros(9, np.float32),
            "terminals": flags(9, 4),
            **state(9, goal=2, pos=2),
            "infos/orientation": rng.integers(0, 4, 9).astype(np.float32),
        },
    )


def flow(path: Any) -> Path:
    """Nothing but timeouts."""
    arrays = without(transitions((5, 5), 44, 1), "next_observations")
    return write(path, {**arrays, "terminals": flags(10), "timeouts": flags(10, 4, 9)})


def carla(path: Any) -> Path:
    """Flattened images; a chunk of the file has a few columns."""
    rng = np.random.default_rng(5)
    return write(
        path,
        {
            "observations": rng.uniform(0, 1, (9, 48 * 48 * 3)).astype(np.float32),
            "actions": rng.uniform(-1, 1, (9, 2)).astype(np.float32),
            "rewards": rng.uniform(0, 1, 9).astype(np.float32),
            "terminals": flags(9, 3),
            "timeouts": flags(9, 8),
        },
    )


def bullet(path: Any) -> Path:
    """No timeouts, terminals of shape (N, 1)."""
    arrays = without(transitions((4, 6), 15, 3), "next_observations")
    return write(path, {**arrays, "terminals": flags(10, 3, 9)[:, np.newaxis]})


FAMILIES: dict[str, Callable[[Any], Path]] = {
    "hopper_medium": mujoco_v0,
    "halfcheetah_medium_replay-v1": mujoco_v1_replay,
    "hopper_medium-v2": mujoco_v2,
    "hopper_medium_replay-v2": mujoco_v2_replay,
    "pen-v0_demos_clipped": adroit_human_v0,
    "door-demos-v0-bc-combined": adroit_cloned_v0,
    "hammer-expert-v1": adroit_expert_v1,
    "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse": antmaze_v0,
    "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse_fixed": antmaze_v2,
    "mini_kitchen_microwave_kettle_light_slider-v0": kitchen,
    "maze2d-umaze-sparse-v1": maze2d,
    "maze2d-large-dense-v1": maze2d_with_timeouts,
    "minigrid4rooms": minigrid,
    "flow-ring-v0-idm": flow,
    "carla_lane_follow_flat-v0": carla,
    "bullet-hopper_medium": bullet,
}


def write_family(directory: Any, name: str) -> Path:
    """Writes a file of `FAMILIES` to a directory, under its name."""
    return FAMILIES[name](Path(directory) / f"{name}.hdf5")


def write_mujoco_like(
    path: Any,
    *,
    rows: int = 1_000_000,
    observation_size: int = 17,
    action_size: int = 6,
    episode_length: int = 1000,
    next_observations: bool = False,
    infos: bool = False,
    compression: str | None = "gzip",
    seed: int = 0,
) -> Path:
    """Writes a file of the size of a published one, in seconds.

    Episodes end in turn in a terminal state and by a timeout; the last one may be cut.

    Args:
      path: The file.
      rows: The number of transitions.
      observation_size: The length of an observation.
      action_size: The length of an action.
      episode_length: The length of an episode.
      next_observations: Whether the file has next observations, as in v2.
      infos: Whether the file has `qpos`, `qvel` and `action_log_probs`.
      compression: The compression of `h5py`.
      seed: The seed of the values.
    """
    rng = np.random.default_rng(seed)
    ends = np.arange(episode_length - 1, rows, episode_length)
    with h5py.File(path, "w") as file:

        def random(name: str, *shape: int, dtype: Any = np.float32) -> np.ndarray:
            values = rng.standard_normal((rows, *shape), dtype)
            file.create_dataset(name, data=values, compression=compression)
            return values

        observations = random("observations", observation_size)
        if next_observations:
            following = np.roll(observations, -1, axis=0)
            following[ends] += 1
            file.create_dataset("next_observations", data=following, compression=compression)
        random("actions", action_size)
        random("rewards")
        if infos:
            random("infos/qpos", 9, dtype=np.float64)
            random("infos/qvel", 9, dtype=np.float64)
            random("infos/action_log_probs", dtype=np.float64)
        for name, marked in (("terminals", ends[::2]), ("timeouts", ends[1::2])):
            file.create_dataset(name, data=flags(rows, *marked), compression=compression)
    return Path(path)


def write_rollouts(
    path: Any, env_name: str, *, rows: int, max_length: int = 1000, seed: int = 0, **options: Any
) -> Path:
    """Writes roll-outs of random actions in an environment of MuJoCo, as a file of v2.

    Args:
      path: The file.
      env_name: The environment, such as "Hopper-v5".
      rows: The number of transitions; the last trajectory is cut there.
      max_length: The steps after which a trajectory ends with a timeout.
      seed: The seed of the environment and the actions.
      **options: Options of the environment.
    """
    os.environ.setdefault("MUJOCO_GL", "disabled")
    import gymnasium

    env = gymnasium.make(env_name, max_episode_steps=max_length, **options)
    env.action_space.seed(seed)
    columns: dict[str, list[Any]] = {}
    observation = env.reset(seed=seed)[0]
    for _ in range(rows):
        action = env.action_space.sample()
        data = env.unwrapped.data
        row = {
            "observations": observation,
            "actions": action,
            "infos/qpos": data.qpos.copy(),
            "infos/qvel": data.qvel.copy(),
        }
        following, reward, terminal, timeout, _ = env.step(action)
        row |= {"next_observations": following, "rewards": reward}
        row |= {"terminals": terminal, "timeouts": timeout and not terminal}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
        observation = following
        if terminal or timeout:
            observation = env.reset()[0]
    env.close()
    dtypes = {"terminals": bool, "timeouts": bool, "infos/qpos": "f8", "infos/qvel": "f8"}
    return write(
        path, {name: np.array(rows, dtypes.get(name, "f4")) for name, rows in columns.items()}
    )
