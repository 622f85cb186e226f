"""Recordings of the web tool, as `rlds create` leaves them, without playing anything."""

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


def picture(number: int) -> bytes:
    """A picture as the player saw it, a JPEG file."""
    from PIL import Image

    file = io.BytesIO()
    pixels = np.full((12, 16, 3), number % 256, np.uint8)
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def step_data(number: int, num_steps: int, *, end: str = "terminated") -> envlogger.StepData:
    """A step of an episode, with all that the tool records."""
    observation = {
        "position": np.array([number, -number / 3], np.float32),
        "level": np.int64(number % 7),
    }
    held = {"ArrowLeft": 1.0} if number % 2 else {}
    custom_data = {
        "image": picture(number),
        "keys": json.dumps(held),
        "info": "{}" if number == 0 else json.dumps({"lives": 3}),
        "inputs": json.dumps([[16.5, "ArrowLeft", 1.0, "ArrowLeft"]] if held else []),
        "time": np.float64(1.7e9 + number / 15),
        "fps": np.float64(15),
        "camera": "",
        "quality": "medium",
    }
    if number == 0:
        return envlogger.StepData(dm_env.restart(observation), None, custom_data)
    reward = np.float64(number) / 7
    is_last = number == num_steps - 1 and end in ("terminated", "truncated")
    timestep = dm_env.TimeStep(
        step_type=dm_env.StepType.LAST if is_last else dm_env.StepType.MID,
        reward=reward,
        discount=np.float64(0.0 if is_last and end == "terminated" else 1.0),
        observation=observation,
    )
    return envlogger.StepData(timestep, np.int64(number % NUM_ACTIONS), custom_data)


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
      directory: Where; its name is the identifier of the episode.
      num_steps: How many steps it has, with that of the reset.
      end: "terminated" or "truncated"; anything else leaves it without a last step.
      state: What became of it.
      tags: Labels with the first and the last step; None and None for the episode.
      success: What the player said.
      notes: What annotators wrote.
      started: When it began.
      environment_specs: Other specs than `ENVIRONMENT_SPECS`.
      steps: Other steps.
      annotations: Other annotations, or the bytes of the file.
      study: Another study.
      environment: Another environment.
      is_closed: Whether it has the metadata that is known when it is over.
    """
    study, environment = study or STUDY, environment or ENVIRONMENT
    described = {
        name: spec_codec.encode(spec)
        for name, spec in (environment_specs or ENVIRONMENT_SPECS).items()
    }
    if steps is None:
        steps = [step_data(number, num_steps, end=end) for number in range(num_steps)]
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
    with RiegeliBackendWriter(directory, metadata={"environment_specs": described}) as writer:
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
