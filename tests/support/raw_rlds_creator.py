"""Small downloads of Google's RLDS Creator."""

import pickle
import sys
import types
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tensorflow as tf
from dm_env import specs

SPECS = {
    "observation_spec": {
        "position": specs.Array((2,), np.float64, name="position"),
        "lights": specs.BoundedArray((3,), np.uint8, 0, 1, name="lights"),
    },
    "action_spec": specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action"),
    "reward_spec": specs.Array((), float, name="reward"),
    "discount_spec": specs.BoundedArray((), float, 0.0, 1.0, name="discount"),
}


class StepData(NamedTuple):
    """A step of the tool, whose class has another module than that of EnvLogger."""

    timestep: Any
    action: Any
    custom_data: Any = None


StepData.__module__ = "rlds_creator.episode_storage"


def image(index: int, size: tuple[int, int] = (8, 8)) -> bytes:
    """The image that the player sees."""
    pixels = np.full((*size, 3), 40 * (index % 6), np.uint8)
    return tf.io.encode_jpeg(pixels).numpy()


def make_episode(
    index: int,
    num_transitions: int = 4,
    *,
    end: str = "termination",
    placed: int | None = None,
    tags: tuple[str, ...] = (),
    notes: str = "",
    info: bool = True,
    old_metadata: bool = False,
) -> dict[str, Any]:
    """Returns an episode of a download of the tool.

    Args:
      index: Its number.
      num_transitions: The number of transitions.
      end: "termination", "truncation", or "nothing" for a recording that just stops.
      placed: The step with the tag "placed".
      tags: The tags of the episode.
      notes: The notes of the annotator.
      info: Whether steps have infos.
      old_metadata: Whether the metadata is in the first step, as in old versions.
    """
    rng = np.random.default_rng(index)
    steps = []
    for step in range(num_transitions + 1):
        observation = {
            "position": rng.normal(size=2),
            "lights": rng.integers(0, 2, 3, np.uint8),
        }
        reward = None if step == 0 else step / 7
        if step == 0:
            timestep = dm_env.restart(observation)
        elif step < num_transitions or end == "nothing":
            timestep = dm_env.transition(reward, observation)
        else:
            timestep = getattr(dm_env, end)(reward, observation)
        action = None if step == 0 else rng.normal(size=1).astype(np.float32)
        # The size of windows and the pressed keys vary.
        keys = {} if step % 2 else {"ArrowUp": 1, f"Key{step}": 1}
        custom_data = {"keys": keys, "image": image(step, (8, 8 + index))}
        if info:
            custom_data["info"] = {"lives": np.int32(3), "distance": rng.normal()}
        custom_data["tag:placed"] = step == placed
        custom_data["tag:start"] = step == 0
        steps.append(StepData(timestep, action, custom_data))
    metadata = {
        "agent_id": "0c1d",
        "episode_id": f"e{index}",
        "rlds_creator:env_id": "can",
        "rlds_creator:study_id": "study",
        "episode_index": index,
        "num_steps": num_transitions,
        # Python's 0 for an empty sum, else a NumPy number.
        "total_reward": np.float64(sum(range(num_transitions + 1)) / 7) if index else 0,
    }
    if tags:
        metadata["tags"] = list(tags)
    if notes:
        metadata["notes"] = notes
    if old_metadata:
        steps[0].custom_data["episode_metadata"] = metadata
        metadata = None
    return {"metadata": metadata, "steps": steps, **SPECS}


def dump(episode: Any, protocol: int | None = None) -> bytes:
    """Returns the pickle of an episode, with the class names of the tool."""
    package, module = types.ModuleType("rlds_creator"), types.ModuleType("episode_storage")
    package.episode_storage = module
    module.StepData = StepData
    names = {"rlds_creator": package, "rlds_creator.episode_storage": module}
    sys.modules.update(names)
    try:
        return pickle.dumps(episode, protocol)
    finally:
        for name in names:
            del sys.modules[name]


def write_directory(directory: Path, episodes: list[Any]) -> Path:
    """Writes a download of some episodes."""
    directory.mkdir(parents=True, exist_ok=True)
    for index, episode in enumerate(episodes):
        data = episode if isinstance(episode, bytes) else dump(episode)
        (directory / f"{index}.pkl").write_bytes(data)
    return directory


def write_zip(path: Path, episodes: list[Any]) -> Path:
    """Writes a download of some episodes as a zip file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for index, episode in enumerate(episodes):
            data = episode if isinstance(episode, bytes) else dump(episode)
            archive.writestr(f"{index}.pkl", data)
    return path


def sample() -> list[dict[str, Any]]:
    """Returns episodes with all features of the format."""
    return [
        make_episode(0, placed=2, tags=("good", "fast"), notes="put it down gently"),
        make_episode(1, 3, end="truncation"),
        make_episode(2, 5, end="nothing", placed=5),
        make_episode(3, 2, placed=0),
        make_episode(4, 4, old_metadata=True, placed=4),
        *(make_episode(index, 2) for index in range(5, 12)),
    ]
