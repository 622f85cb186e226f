"""A worker of a play, which gets messages as from the server; it runs in a thread here."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from drawn_family import MOVES, read_drawn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from playing import Clock, Player

import envlogger
from rlds_creator import export
from rlds_creator.environments import make
from rlds_creator.frames import Frame
from rlds_creator.server.errors import BadRequestError
from rlds_creator.server.messages import decode
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.log_steps import LogSteps
from rlds_creator.worker.player import action_names
from rlds_creator.worker.recovery import recover_episode


def read_steps(directory: Path, episode: dict[str, Any]) -> list[envlogger.StepData]:
    with envlogger.Reader(directory / episode["id"]) as reader:
        (steps,) = [list(episode) for episode in reader.episodes]
    return steps


def read_metadata(directory: Path, episode: dict[str, Any]) -> dict[str, Any]:
    with envlogger.Reader(directory / episode["id"]) as reader:
        (metadata,) = reader.episode_metadata()
    return metadata


def read_frame(frame: Frame) -> tuple[int, list[str]]:
    return read_drawn(np.asarray(Image.open(io.BytesIO(frame.picture))))


def check_record(directory: Path, episode: dict[str, Any], frames: list[Frame]) -> None:
    """Checks that each shown step is recorded and can be replayed."""
    steps = read_steps(directory, episode)
    metadata = read_metadata(directory, episode)
    assert len(steps) == len(frames) == episode["num_steps"] == metadata["num_steps"]
    environment = json.loads(metadata["rlds_creator:environment"])
    playable = make(environment["family"], environment["options"])
    playable.seed(metadata["seed"])
    total = 0.0
    for index, (step, frame) in enumerate(zip(steps, frames)):
        if index:
            expected = playable.environment.step(step.action)
            total += step.timestep.reward
        else:
            expected = playable.environment.reset()
            assert step.action is None
        np.testing.assert_equal(step.timestep.observation, expected.observation)
        assert step.timestep.reward == expected.reward
        assert step.timestep.first() is frame.is_first is (index == 0)
        assert step.timestep.last() is frame.is_last
        assert step.custom_data["image"] == frame.picture
        assert step.custom_data["time"] == frame.time
        assert frame.step == index
        assert frame.total_reward == np.float32(total)
        keys = json.loads(step.custom_data["keys"])
        assert read_frame(frame) == (index, [name for name in MOVES if name in keys])
        assert json.loads(step.custom_data["info"])["held"] == sorted(keys)
    assert metadata["total_reward"] == episode["total_reward"] == total


def test_each_press_is_a_step(tmp_path: Path) -> None:
    with Player(tmp_path, clock=Clock(), options={"num_steps": 5}) as player:
        assert player.ready["mode"] == "sync"
        assert player.ready["size"] == [160, 160]
        assert player.ready["cameras"] == ["near", "far"]
        assert player.ready["qualities"] == ["draft", "low", "medium", "high"]
        assert {"inputs": ["Space"], "does": "jump"} in player.ready["controls"]
        assert not player.ready["has_pointer"]
        state = player.states[-1]
        assert (state["state"], state["why"], state["episode"]) == ("ready", "start", None)
        assert read_frame(player.frames[-1]) == (0, [])
        player.press("KeyQ")  # An unused key is no step, and begins no episode.
        player.release("KeyQ")
        player.sync()
        assert len(player.frames) == 1
        assert not list(tmp_path.iterdir())
        for i, name in enumerate(["ArrowLeft", "ArrowUp", "Space"], 1):
            index = player.press(name)
            player.release(name)  # A release is no step.
            frame = player.until_step(i)
            assert read_frame(frame) == (i, [name])
            assert frame.applied_input == index
            assert json.loads(frame.action) == str([1, 3, 5][i - 1])
        player.press("ArrowRight", "ArrowDown")  # Two presses in one message are two steps.
        player.until_state("ended", "terminated")
        assert [read_frame(frame)[1] for frame in player.frames[-2:]] == [
            ["ArrowRight"],
            ["ArrowRight", "ArrowDown"],
        ]
        assert [e["state"] for e in player.episodes] == ["playing", "ended"]
        player.press("ArrowLeft")
        player.release("*")
        player.control("success", value=True)
        player.control("confirm", value="completed")
        player.until_state("ready")
        episode = player.episodes[-1]
        assert (episode["state"], episode["reason"]) == ("completed", "terminated")
        assert (episode["success"], episode["number"], episode["seed"]) == (True, 0, 7)
        assert not player.errors
        player.press("ArrowLeft")
        player.until_step(1)
        player.control("end")
        player.until_state("ended", "user")
        check_record(tmp_path, episode, player.frames[:6])
        second = player.episodes[-1]
        assert (second["number"], second["seed"], second["num_steps"]) == (1, 8, 2)
        check_record(tmp_path, second, player.frames[6:])
        events = json.loads(read_steps(tmp_path, episode)[2].custom_data["inputs"])
        assert [event[1:3] for event in events] == [["ArrowLeft", 0], ["ArrowUp", 1]]
        metadata = read_metadata(tmp_path, episode)
        assert metadata["episode_id"] == episode["id"]
        assert metadata["agent_id"] == "agent"
        assert metadata["rlds_creator:study_id"] == "study"
        assert metadata["reason"] == "terminated"
        versions = json.loads(metadata["rlds_creator:versions"])
        assert {"python", "numpy", "drawn"} <= set(versions)
        player.send(op="stop")
        player.drain()
        assert player.episodes[-1]["state"] == "abandoned"  # It has no verdict.
    assert player.status == 0


def test_cameras_are_recorded_as_video(tmp_path: Path) -> None:
    pytest.importorskip("av")
    logs = []
    for video in ({"camera": "lossless"}, {"camera": "lossless"}, {}):
        options = {"num_steps": 40, "camera": [32, 48]}
        with Player(
            tmp_path / "logs", mode="async", fps=120.0, video=video, options=options
        ) as player:
            player.press("ArrowLeft")
            player.control("resume")
            player.until_state("ended", "terminated")
            check_record(tmp_path / "logs", player.episodes[-1], player.frames)
            logs.append(tmp_path / "logs" / player.episodes[-1]["id"])
    steps = LogSteps(envlogger.Reader(logs[0]), 0, Cache(1 << 20))
    assert read_drawn(steps.step(37, ["observation/camera"])["observation/camera"])[0] == 37
    for directories, is_video in ((logs[:2], True), (logs, False)):
        download = export(directories, tmp_path / f"{is_video}", name="log")
        with envlogger.Reader(tmp_path / f"{is_video}" / download.data) as log:
            assert ("video" in log.metadata()) is is_video
            frames = log.columns(1)["observation"]["camera"]
        assert [read_drawn(frame)[0] for frame in frames] == [*range(41)]


def test_async_play_steps_by_its_clock(tmp_path: Path) -> None:
    with Player(
        tmp_path, mode="async", max_episode_steps=25, options={"id": "box", "size": 320}
    ) as player:
        player.press("ArrowLeft")  # Before the game runs.
        player.release("ArrowLeft")
        player.press("ArrowRight")
        player.control("resume")
        player.until_step(3)
        tap = [{"t": 0, "name": "ArrowUp", "value": value} for value in (1, 0)]
        player.events(*tap, {"t": 0, "name": "ArrowRight", "value": 0})  # Between two steps.
        player.events({"t": 1, "name": "Axis0", "value": -0.5})
        player.until_step(9)
        player.events({"t": 2, "name": "*", "value": 0})
        player.until_state("ended", "truncated")
        check_record(tmp_path, player.episodes[-1], player.frames)
        steps = read_steps(tmp_path, player.episodes[-1])
        assert len(steps) == 26
        assert steps[-1].timestep.last()
        assert steps[-1].timestep.discount == 1
        actions = [tuple(step.action.tolist()) for step in steps[1:]]
        assert actions[0] == (1, 0)
        assert [action[1] for action in actions].count(-1) == 1
        assert (-0.5, 0) in actions
        assert actions[-1] == (0, 0)
        assert {step.custom_data["fps"] for step in steps} == {60.0}


def test_redrawn_pictures_are_not_recorded_as_steps(tmp_path: Path) -> None:
    with Player(tmp_path, options={"size": 320}) as player:
        player.press("ArrowLeft")
        before = player.until_step(1)
        player.send(op="set", quality="high", camera=1, controller="Pad 1")
        after = player.until(lambda: player.frames[-1] is not before and player.frames[-1])
        assert after.is_redrawn
        assert (after.step, after.action) == (1, before.action)
        assert after.index == before.index + 1
        assert after.picture != before.picture
        for setting in (
            {"quality": "perfect"},
            {"camera": 2},
            {"camera": -1},
        ):
            player.send(op="set", **setting)
        player.until(lambda: len(player.errors) == 3)
        assert not any(error["fatal"] for error in player.errors)
        state = player.states[-1]
        assert (state["quality"], state["camera"], state["fps"]) == ("high", 1, 60)
        player.press("ArrowUp")
        player.until_step(2)
        player.send(op="set", quality="draft")
        player.press("ArrowDown")
        player.until_step(3)
        player.control("end")
        player.until_state("ended", "user")
        frames = [frame for frame in player.frames if not frame.is_redrawn]
        check_record(tmp_path, player.episodes[-1], frames)
        steps = read_steps(tmp_path, player.episodes[-1])
        assert [(s.custom_data["quality"], s.custom_data["camera"]) for s in steps] == [
            ("medium", "near"),
            ("medium", "near"),
            ("high", "far"),
            ("draft", "far"),
        ]
        metadata = read_metadata(tmp_path, player.episodes[-1])
        assert metadata["rlds_creator:controller"] == "Pad 1"


def test_idle_player_pauses_the_play_until_it_expires(tmp_path: Path) -> None:
    clock = Clock()
    with Player(
        tmp_path, clock=clock, mode="async", start={"expiry": {"idle": 30.0, "paused": 900.0}}
    ) as player:

        def wait(seconds: float) -> None:
            """Advances the clock between two messages that the worker answers."""
            player.sync()
            clock.now += seconds
            player.sync()

        player.control("resume")
        player.until_step(1)
        player.press("ArrowLeft")
        wait(29)
        player.until_step(2)
        wait(29)
        player.until_step(3)  # One step: missed steps are skipped.
        player.release("ArrowLeft")
        wait(29)
        player.until_step(4)
        wait(1)
        player.until_state("paused", "idle")
        num_steps = player.frames[-1].step
        wait(100)
        player.press("Space")  # A press in a pause is not meant for the game.
        player.release("Space")
        player.control("resume")
        player.until_state("running")
        frame = player.until_step(num_steps + 1)
        assert read_frame(frame)[1] == []
        player.press("ArrowUp")
        player.control("pause", why="network")  # The release of the key is lost.
        player.until_state("paused", "network")
        num_steps = player.frames[-1].step
        player.control("resume")
        assert read_frame(player.until_step(num_steps + 1))[1] == []
        player.control("pause")
        wait(899)
        assert player.states[-1]["state"] == "paused"
        clock.now += 1
        with contextlib.suppress(OSError):  # The worker may have ended already.
            player.send(op="ping")
        player.drain()
        assert player.states[-1]["state"] == "ended"
        assert player.states[-1]["why"] == "expired"
        episode = player.episodes[-1]
        assert (episode["state"], episode["reason"]) == ("abandoned", "expired")
        check_record(tmp_path, episode, player.frames)
        gaps = json.loads(read_metadata(tmp_path, episode)["gaps"])
        assert gaps == [[4, 100.0], [num_steps, 0.0]]
        assert episode["seconds"] == 88.0
    assert player.status == 0


def test_late_steps_do_not_slow_the_game_down(tmp_path: Path) -> None:
    clock = Clock()
    with Player(tmp_path, clock=clock, mode="async", fps=8.0) as player:
        player.control("resume")
        player.until_step(1)
        # In sixty-fourths of a second, 8 on average: a step each time.
        for step, delay in enumerate((9, 7, 10, 6, 15, 1, 8, 8), 2):
            clock.now += delay / 64
            player.sync()
            player.until_step(step)
        clock.now += 1.0  # After a hang, missed steps are skipped.
        player.sync()
        player.until_step(10)
        for _ in range(3):
            player.sync()
        assert player.frames[-1].step == 10
        player.send(op="set", fps=1.0)
        player.sync()
        clock.now += 0.99
        player.sync()
        player.send(op="set", fps=100.0)  # The next step need not wait for a second.
        player.sync()
        clock.now += 0.01
        player.sync()
        player.until_step(11)


def test_held_key_repeats_steps(tmp_path: Path) -> None:
    with Player(tmp_path, fps=120.0, options={"repeats": True}) as player:
        player.press("ArrowLeft")
        player.until_step(4)
        player.release("ArrowLeft")
        player.sync()
        num_steps = player.frames[-1].step
        player.press("ArrowRight")
        player.release("ArrowRight")  # A tap.
        player.press("Space")
        player.release("Space")
        player.until_step(num_steps + 2)
        keys = [read_frame(frame)[1] for frame in player.frames[1:]]
        assert keys == [["ArrowLeft"]] * num_steps + [["ArrowRight"], ["Space"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trouble": "raise"}, "RuntimeError"),
        ({"trouble": "exit"}, "SystemExit"),
        ({"picture": "none"}, "PictureError"),
    ],
)
def test_a_broken_environment_ends_the_play(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with Player(tmp_path, options=options) as player:
        for _ in range(3):
            player.press("ArrowLeft")
            player.release("ArrowLeft")
        player.drain()
        (error,) = player.errors
        assert error["fatal"]
        assert message in error["message"]
        assert "/a/cliff" not in error["message"]
        assert "Traceback" in error["details"]
        assert (player.states[-1]["state"], player.states[-1]["why"]) == ("ended", "failed")
        episode = player.episodes[-1]
        assert (episode["state"], episode["reason"]) == ("failed", "failed")
        assert episode["error"] == error["message"]
        assert len(read_steps(tmp_path, episode)) == player.frames[-1].step + 1 == 3
    assert player.status == 1


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"family": "none"}, "no family 'none'"),
        ({"options": {"id": "round"}}, "no environment 'round'"),
        ({"options": {"num_steps": "many"}}, "num_steps"),
        ({"options": {"speed": 1}}, "no option 'speed'"),
        ({"video": {"position": "h264"}}, "no camera 'position'"),
        ({"video": {"camera": "h266"}, "options": {"camera": [32, 48]}}, "'h266'"),
        ({"options": {"picture": "none", "trouble_at": 0}}, "PictureError"),
    ],
)
def test_unplayable_environment_reports_the_error(
    tmp_path: Path, environment: dict[str, Any], message: str
) -> None:
    with Player(tmp_path, wait=False, **environment) as player:
        player.drain()
        (error,) = player.errors
        assert error["fatal"]
        assert message in error["message"]
    assert player.status == 1


junk = st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=3)
junk |= st.lists(junk, max_size=2) | st.dictionaries(st.text(max_size=3), junk, max_size=2)
events = st.fixed_dictionaries(
    {
        "t": st.integers(0, 9),
        "name": st.sampled_from([*MOVES, "Axis0", "PointerX", "*", "KeyQ"]),
        "value": st.sampled_from([0, 1, -1, 0.05]),
    }
)
messages = st.one_of(
    st.fixed_dictionaries({"op": st.just("input"), "seq": st.integers()})
    .flatmap(lambda m: st.lists(events | junk, max_size=4).map(lambda e: {**m, "events": e}))
    .map(dict),
    st.fixed_dictionaries(
        {
            "op": st.just("control"),
            "do": st.sampled_from(["resume", "pause", "end", "retry", "success", "confirm"]) | junk,
            "value": st.sampled_from(["completed", "rejected", True, False]) | junk,
        }
    ),
    st.fixed_dictionaries(
        {"op": st.just("set")},
        optional={
            "fps": st.sampled_from([10, 120]) | junk,
            "quality": st.sampled_from(["draft", "high"]) | junk,
            "camera": st.integers(-1, 2) | junk,
            "controller": junk,
        },
    ),
    st.fixed_dictionaries({"op": st.text(max_size=5)}),
)


@pytest.mark.parametrize("mode", ["sync", "async"])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(messages, max_size=25))
def test_no_message_breaks_a_play(
    tmp_path: Path, mode: str, messages: list[dict[str, Any]]
) -> None:
    with Player(tmp_path, mode=mode, fps=120.0, max_episode_steps=5) as player:
        for message in messages:
            with contextlib.suppress(BadRequestError):  # The server drops invalid messages.
                decoded = msgspec.to_builtins(decode(json.dumps(message)))
                player.send(**{"why": "user", **decoded})
        player.sync()
        assert not any(error["fatal"] for error in player.errors)
        player.send(op="stop")
        player.drain()
    assert player.status == 0
    # Each episode was started, ended and reported once, and the log agrees with the report.
    for id in {episode["id"] for episode in player.episodes}:
        reports = [episode for episode in player.episodes if episode["id"] == id]
        states = [report["state"] for report in reports]
        assert states[0] == "playing"
        assert states[1:-1] in ([], ["ended"])
        assert states[-1] in ("completed", "cancelled", "rejected", "abandoned")
        assert reports[-1]["success"] in (None, True, False)
        assert len(read_steps(tmp_path, reports[-1])) == reports[-1]["num_steps"] <= 6


@pytest.mark.parametrize("is_full", [False, True])
def test_play_ends_if_it_cannot_be_recorded(
    tmp_path: Path, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    directory = tmp_path / "directory"
    if is_full:
        monkeypatch.setattr(os, "posix_fallocate", fail)
    else:
        directory.touch()
    with Player(directory) as player:
        player.press("ArrowLeft")
        player.drain()
        (error,) = player.errors
        assert ("disk of the server is full" in error["message"]) is is_full
        assert str(tmp_path) not in error["message"]
        assert (player.states[-1]["state"], player.states[-1]["why"]) == ("ended", "failed")
        assert len(player.frames) == 1  # A step that is not recorded is not shown.
        assert not player.episodes
    assert player.status == 1


def test_discrete_actions_are_recorded_with_their_names() -> None:
    names = [
        action_names(make(family, {"id": id}))
        for family, id in (("gymnasium", "CartPole-v1"), ("gymnasium", "Pendulum-v1"))
    ]
    assert names == [{"actions": ["push left", "push right"]}, {}]
    assert action_names(make("drawn", {"id": "discrete"})) == {}


def test_worker_completes_the_log_if_the_server_is_gone(tmp_path: Path) -> None:
    with Player(tmp_path) as player:
        player.press("ArrowLeft")
        player.until_step(1)
    assert player.status == 0
    (directory,) = tmp_path.iterdir()
    with envlogger.Reader(directory) as reader:
        assert len(reader.steps) == 2
        assert reader.episode_metadata()[0]["num_steps"] == 2
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    recovered = recover_episode(directory)
    assert recovered is not None
    assert (recovered.num_steps, recovered.total_reward) == (2, 1)
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reward", "shown_reward", "total"),
    [
        ("none", 0.0, 0.0),
        ("nan", np.nan, 0.0),
        ("huge", np.finfo(np.float32).max, 1.7976931348623157e308),
        ("array", 3.0, 6.0),
    ],
)
def test_rewards_of_all_kinds_are_summed(
    tmp_path: Path, reward: str, shown_reward: float, total: float
) -> None:
    with Player(tmp_path, options={"reward": reward, "num_steps": 2}) as player:
        player.press("ArrowLeft", "ArrowRight")
        player.until_state("ended", "terminated")
        np.testing.assert_equal(player.frames[1].reward, shown_reward)
        assert player.episodes[-1]["total_reward"] == total
