"""Worker processes: troubles of environments, and recovery after a kill."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_family import read_drawn
from playing import Worker

import envlogger
from rlds_creator.worker.recovery import recover_episode


def test_environments_may_print_and_fork(tmp_path: Path) -> None:
    with Worker(tmp_path, options={"trouble": "print fork", "trouble_at": 2}) as worker:
        for step in range(1, 4):
            worker.press("ArrowLeft")
            worker.release("ArrowLeft")
            worker.until_step(step)
        worker.send(op="stop")
        worker.drain()
        assert not worker.errors
    assert worker.status == 0
    assert worker.output == ""
    assert "XXXXX" in worker.printed
    (directory,) = tmp_path.iterdir()
    recovered = recover_episode(directory)
    assert recovered is not None
    assert recovered.num_steps == 4


SEEDS = [1000, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40))]


@pytest.mark.parametrize("seed", SEEDS)
def test_shown_steps_survive_a_kill(tmp_path: Path, seed: int) -> None:
    """Kills a worker at a random time, and compares its log with the shown frames."""
    rng = random.Random(seed)
    options: dict[str, Any] = {
        "id": rng.choice(["discrete", "box"]),
        "size": rng.choice([64, 320]),
    }
    options["reward"] = rng.choice(["action", "array"])
    video = rng.choice([{}, {"camera": "h264"}, {"camera": "lossless"}])
    options["camera"] = [48, 64] if video else []
    with Worker(tmp_path, mode="async", fps=120.0, options=options, video=video) as worker:
        worker.control("resume")
        worker.press("ArrowLeft")
        end = time.monotonic() + rng.choice([0.05, 0.5, 1.5]) * rng.random()
        while time.monotonic() < end:
            worker.receive()
        worker.kill()
    frames = [frame for frame in worker.frames if frame.step]
    if not frames:
        return
    (log,) = tmp_path.iterdir()
    recovered = recover_episode(log)
    assert recovered is not None
    # The worker may have recorded a step whose picture it could not send any more.
    assert recovered.num_steps - 1 - frames[-1].step in (0, 1)
    metadata = recovered.metadata
    assert (metadata["agent_id"], metadata["seed"]) == ("agent", 7)
    assert json.loads(metadata["rlds_creator:environment"])["options"] == options
    with envlogger.Reader(log) as reader:
        (steps,) = reader.episodes
        for step, frame in zip(steps, worker.frames):
            assert step.custom_data["image"] == frame.picture
            assert step.timestep.observation["step"] == frame.step
            if video:
                assert read_drawn(step.timestep.observation["camera"])[0] == frame.step
        assert recovered.total_reward == sum(np.sum(s.timestep.reward) for s in steps[1:])
        assert (recovered.start_time, recovered.end_time) == (
            steps[0].custom_data["time"],
            steps[-1].custom_data["time"],
        )
    assert recover_episode(log) == recovered
    values = (recovered.total_reward, recovered.start_time, recovered.end_time)
    assert {type(value) for value in values} == {float}  # Databases accept no NumPy types.


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["die", "hang"])
def test_log_is_recovered_if_an_environment_dies_or_hangs(tmp_path: Path, trouble: str) -> None:
    with Worker(tmp_path, options={"trouble": trouble}) as worker:
        for _ in range(3):
            worker.press("ArrowLeft")
            worker.release("ArrowLeft")
        worker.until_step(2)
        if trouble == "hang":
            worker.send(op="ping")
            worker.connection.settimeout(1)
            with pytest.raises(TimeoutError):  # The server sees the same.
                worker.sync()
            worker.connection.close()  # The worker ends with the server.
        else:
            worker.drain()
    assert worker.status == {"die": 4, "hang": 1}[trouble]
    (directory,) = tmp_path.iterdir()
    recovered = recover_episode(directory)
    assert recovered is not None
    assert recovered.num_steps == 3
