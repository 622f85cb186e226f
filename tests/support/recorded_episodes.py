"""Recordings of the web tool in the form of `rlds create`, written without a player."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

import envlogger
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.converters import spec_codec

ENVIRONMENT_SPECS = {
    "observation_spec": {
        "position": specs.Array((2,), np.float32, "position"),
        "level": specs.BoundedArray((), np.int64, 0, 100, "level"),
    },
    "action_spec": specs.DiscreteArray(4, np.int64, "action"),
    "reward_spec": specs.Array((), np.float64, "reward"),
    "discount_spec": specs.BoundedArray((), np.float64, 0.0, 1.0, "discount"),
}
NUM_ACTIONS = 4
STUDY = {"id": "study-1", "name": "Find the exit"}
ENVIRONMENT = {"id": "environment-1", "name": "Maze"}


def picture(index: int) -> bytes:
    """A picture of the player, a JPEG file."""
    from PIL import Image

    file = io.BytesIO()
    pixels = np.full((12, 16, 3), index % 256, np.uint8)
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def step_data(index: int, num_steps: int, *, end: str = "terminated") -> envlogger.StepData:
    """A step of an episode, with all fields of the tool."""
    observation = {
        "position": np.array([index, -index / 3], np.float32),
        "level": np.int64(index % 7),
    }
    keys = {"ArrowLeft": 1.0} if index % 2 else {}
    custom_data = {
        "image": picture(index),
        "keys": json.dumps(keys),
        "info": "{}" if index == 0 else json.dumps({"lives": 3}),
        "inputs": json.dumps([[16.5, "ArrowLeft", 1.0, "ArrowLeft"]] if keys else []),
        "time": np.float64(1.7e9 + index / 15),
        "fps": np.float64(15),
        "camera": "",
        "quality": "medium",
    }
    if index == 0:
        return envlogger.StepData(dm_env.restart(observation), None, custom_data)
    reward = np.float64(index) / 7
    is_last = index == num_steps - 1 and end in ("terminated", "truncated")
    timestep = dm_env.TimeStep(
        step_type=dm_env.StepType.LAST if is_last else dm_env.StepType.MID,
        reward=reward,
        discount=np.float64(0.0 if is_last and end == "terminated" else 1.0),
        observation=observation,
    )
    return envlogger.StepData(timestep, np.int64(index % NUM_ACTIONS), custom_data)


def write_episode(
    directory: Path,
    num_steps: int = 6,
    *,
    end: str = "terminated",
    state: str = "completed",
    tags: Sequence[tuple[str, int | None, int | None]] = (),
    success: bool | None = True,
    notes: str = "",
    started: float = 1.7e9,
    environment_specs: dict[str, Any] | None = None,
    steps: Sequence[envlogger.StepData] | None = None,
    annotations: dict[str, Any] | bytes | None = None,
    study: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    is_closed: bool = True,
) -> Path:
    """Writes the directory of an episode: its log, and `annotations.json`.

    Args:
      directory: The directory; its name is the identifier of the episode.
      num_steps: The number of steps, with the one of the reset.
      end: "terminated" or "truncated"; anything else leaves it without a last step.
      state: The state of the episode.
      tags: Labels with the first and the last step; None and None for the episode.
      success: The judgement of the player.
      notes: The notes of annotators.
      started: The time of its begin.
      environment_specs: The specs; `ENVIRONMENT_SPECS` by default.
      steps: The steps; those of `step_data` by default.
      annotations: The annotations, or the bytes of the file.
      study: The study; `STUDY` by default.
      environment: The environment; `ENVIRONMENT` by default.
      is_closed: Whether it has the metadata of its end.
    """
    study, environment = study or STUDY, environment or ENVIRONMENT
    specs_json = {
        name: spec_codec.encode(spec)
        for name, spec in (environment_specs or ENVIRONMENT_SPECS).items()
    }
    if steps is None:
        steps = [step_data(index, num_steps, end=end) for index in range(num_steps)]
    rewards = [step.timestep.reward for step in steps if step.timestep.reward is not None]
    metadata = {
        "agent_id": "0" * 32,
        "episode_id": directory.name,
        "rlds_creator:study_id": study["id"],
        "rlds_creator:env_id": environment["id"],
        "rlds_creator:environment": json.dumps(environment),
        "rlds_creator:versions": json.dumps({"numpy": np.__version__}),
        "rlds_creator:controller": "",
        "seed": 7,
        "num_steps": len(steps),
        "total_reward": float(np.sum(rewards)),
        "reason": end,
        "started": started,
        "gaps": "[]",
    }
    if not is_closed:
        for name in ("num_steps", "total_reward", "reason", "gaps"):
            del metadata[name]
    with RiegeliBackendWriter(directory, metadata={"environment_specs": specs_json}) as writer:
        with writer.episode(metadata) as record_step:
            for step in steps:
                record_step(step)
    if annotations is None:
        annotations = {
            "state": state,
            "reason": end,
            "success": success,
            "notes": notes,
            "tags": [
                {"label": label, "first": first, "last": last, "author": "ada", "created": 1.7e9}
                for label, first, last in tags
            ],
            "study": study,
            "environment": environment,
        }
    if not isinstance(annotations, bytes):
        annotations = json.dumps(annotations).encode()
    (directory / "annotations.json").write_bytes(annotations)
    return directory
