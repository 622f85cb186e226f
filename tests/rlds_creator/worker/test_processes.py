"""Worker processes: what environments do to them, and what is left when they are killed."""

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


def test_environments_print_and_fork_as_they_like(tmp_path: Path) -> None:
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
def test_what_was_shown_survives_a_kill(tmp_path: Path, seed: int) -> None:
    """Kills a worker at some time, and compares what is left with what it has shown."""
    chance = random.Random(seed)
    options: dict[str, Any] = {
        "id": chance.choice(["discrete", "box"]),
        "size": chance.choice([64, 320]),
    }
    options["reward"] = chance.choice(["action", "array"])
    video = chance.choice([{}, {"camera": "h264"}, {"camera": "lossless"}])
    options["camera"] = [48, 64] if video else []
    with Worker(tmp_path, mode="async", fps=120.0, options=options, video=video) as worker:
        worker.control("resume")
        worker.press("ArrowLeft")
        end = time.monotonic() + chance.choice([0.05, 0.5, 1.5]) * chance.random()
        while time.monotonic() < end:
            worker.receive()
        worker.kill()
    shown = [frame for frame in worker.frames if frame.step]
    if not shown:
        return
    (log,) = tmp_path.iterdir()
    recovered = recover_episode(log)
    assert recovered is not None
    # It may have recorded one whose picture it could not send any more.
    assert recovered.num_steps - 1 - shown[-1].step in (0, 1)
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
        assert (recovered.started, recovered.ended) == (
            steps[0].custom_data["time"],
            steps[-1].custom_data["time"],
        )
    assert recover_episode(log) == recovered
    values = (recovered.total_reward, recovered.started, recovered.ended)
    assert {type(value) for value in values} == {float}  # That is what databases take.


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["die", "hang"])
def test_environments_may_end_in_any_way(tmp_path: Path, trouble: str) -> None:
    with Worker(tmp_path, options={"trouble": trouble}) as worker:
        for _ in range(3):
            worker.press("ArrowLeft")
            worker.release("ArrowLeft")
        worker.until_step(2)
        if trouble == "hang":
            worker.send(op="ping")
            worker.connection.settimeout(1)
            with pytest.raises(TimeoutError):  # That is how the server sees it.
                worker.sync()
            worker.connection.close()  # The server goes: so does the worker.
        else:
            worker.drain()
    assert worker.status == {"die": 4, "hang": 1}[trouble]
    (directory,) = tmp_path.iterdir()
    recovered = recover_episode(directory)
    assert recovered is not None
    assert recovered.num_steps == 3
