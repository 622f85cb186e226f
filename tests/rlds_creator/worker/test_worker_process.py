"""A worker process, spoken to as the server does."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playing import Worker

import envlogger
from rlds_creator.frames import Frame
from rlds_creator.testing.drawn import read_drawn


def steps_of(directory: Path, episode: dict[str, Any]) -> list[envlogger.StepData]:
    with envlogger.Reader(directory / episode["id"]) as reader:
        (steps,) = [list(episode) for episode in reader.episodes]
    return steps


def seen(frame: Frame) -> tuple[int, list[str]]:
    return read_drawn(np.asarray(Image.open(io.BytesIO(frame.picture))))


def test_a_press_is_a_step(tmp_path: Path) -> None:
    with Worker(tmp_path, options={"num_steps": 4}) as worker:
        assert worker.states[-1]["state"] == "ready"
        assert worker.states[-1]["episode"] is None
        assert seen(worker.frames[-1]) == (0, [])
        assert worker.frames[-1].is_first
        assert not list(tmp_path.iterdir())  # Nobody has played yet.
        for i, name in enumerate(["ArrowLeft", "ArrowUp", "Space", "ArrowRight"]):
            number = worker.press(name)
            worker.release(name)
            frame = worker.until_step(i + 1)
            assert seen(frame) == (i + 1, [name])
            assert frame.applied_input == number
            assert frame.is_last is (i == 3)
        worker.until_state("ended", "terminated")
        assert [e["state"] for e in worker.episodes] == ["playing", "ended"]
        worker.control("confirm", value="completed")
        worker.until_state("ready")
        episode = worker.episodes[-1]
        assert (episode["state"], episode["num_steps"]) == ("completed", 5)
        assert episode["total_reward"] == 1 + 3 + 5 + 2
        steps = steps_of(tmp_path, episode)
        assert [step.action for step in steps] == [None, 1, 3, 5, 2]
        for step, frame in zip(steps, worker.frames):
            assert step.custom_data["image"] == frame.picture
            assert step.timestep.observation["step"] == frame.step
            assert list(json.loads(step.custom_data["keys"])) == seen(frame)[1]
        worker.send(op="stop")
        worker.drain()
    assert worker.process.returncode == 0


def test_a_clock_makes_steps(tmp_path: Path) -> None:
    with Worker(tmp_path, mode="async", max_episode_steps=30) as worker:
        worker.control("resume")
        worker.press("ArrowLeft")
        worker.release("ArrowLeft")
        worker.until_step(5)
        worker.press("ArrowRight")
        worker.until_step(15)
        worker.release("ArrowRight")
        worker.until_state("ended", "truncated")
        steps = steps_of(tmp_path, worker.episodes[-1])
        assert len(steps) == 31
        assert len(worker.frames) == 31
        for step, frame in zip(steps, worker.frames):
            assert step.custom_data["image"] == frame.picture
            assert seen(frame) == (frame.step, list(json.loads(step.custom_data["keys"])))
        actions = [step.action for step in steps]
        assert actions.count(1) == 1
        assert actions.count(2) >= 10
        assert actions[-1] == 0
        assert steps[-1].timestep.last()
        assert steps[-1].timestep.discount == 1
