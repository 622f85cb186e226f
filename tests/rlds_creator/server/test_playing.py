"""Plays over real sockets, in real workers."""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from creator_server import Served, drawn, poll

import envlogger
from rlds_creator.server.plays import Limits
from rlds_creator.server.workers import WorkerTimeouts


def log_of(served, episode):
    return served.directory / "episodes" / episode["id"]


def read_episode(served, episode):
    with envlogger.Reader(log_of(served, episode)) as reader:
        (steps,) = reader.episodes
        return list(steps), reader.episode_metadata()[0]


def wait_for_state(served, episode, state):
    """Waits until an episode is in a state; returns its row."""
    ask = partial(served.good, "GET", f"/api/episodes/{episode['id']}")
    return poll(ask, lambda row: row["state"] == state)


def test_an_episode_is_played_judged_and_listed(served) -> None:
    study = served.study(drawn(seed=7), instructions="Walk!", labels=[{"name": "fall"}])
    play = served.play(study)
    with served.player(play) as player:
        hello = player.until("hello")
        assert hello["study"] == {"id": study["id"], "name": "Walk", "instructions": "Walk!"}
        assert hello["person"]["name"] == "you"
        assert player.until("ready")["mode"] == "sync"
        assert player.until("state")["state"] == "ready"
        player.until_step(0)
        player.walk("ArrowRight", "ArrowRight", "ArrowLeft", "Space")
        assert json.loads(player.frames[-1].action) == "5"
        player.say("control", do="success", value=True)
        player.say("control", do="end")
        assert player.until("episode")["episode"]["state"] == "playing"
        ended = player.until("episode")["episode"]
        assert (ended["state"], ended["num_steps"], ended["success"]) == ("ended", 5, True)
        player.say("control", do="confirm", value="completed")
        episode = player.until("episode")["episode"]
        assert episode["state"] == "completed"
        player.until("state", state="ready")

    (row,) = served.good("GET", f"/api/episodes?study={study['id']}")["episodes"]
    assert row["id"] == episode["id"]
    assert (row["num_steps"], row["total_reward"], row["reason"]) == (5, 10.0, "user")
    assert (row["environment_name"], row["person_name"]) == ("Drawn discrete", "you")
    assert row["session"] == play

    annotations = json.loads((log_of(served, episode) / "annotations.json").read_bytes())
    assert (annotations["state"], annotations["success"], annotations["study"]["name"]) == (
        "completed",
        True,
        "Walk",
    )
    assert annotations["environment"]["id"] == study["environments"][0]["id"]
    steps, metadata = read_episode(served, episode)
    assert [step.action for step in steps[1:]] == [2, 2, 1, 5]
    assert metadata["rlds_creator:study_id"] == study["id"]
    assert metadata["seed"] == 7
    assert row["person"] not in json.dumps(metadata, default=str)


def test_reconnected_page_continues_at_the_same_step(served) -> None:
    study = served.study(drawn())
    play = served.play(study)
    with served.player(play) as player:
        player.until_step(0)
        player.walk("ArrowRight", "ArrowUp")
    assert served.play(study) == play, "loading the page anew begins nothing new"
    with served.player(play) as player:
        assert player.until("state", state="paused")["why"] == "network"
        assert player.until_step(2).picture, "the picture is there before anything is pressed"
        player.say("control", do="resume")
        player.until("state", state="running")
        player.walk("ArrowLeft")
        with served.player(play) as second_player:
            second_player.until_step(3)
            assert player.until("bye")["reason"] == "replaced"
            assert second_player.until("state", state="paused")["why"] == "network"
            second_player.say("control", do="resume")
            second_player.until("state", state="running")
            second_player.walk("ArrowDown")
            second_player.say("control", do="end")
            second_player.say("control", do="confirm", value="cancelled")
            episode = second_player.until("episode", episode__state="cancelled")["episode"]
    steps, metadata = read_episode(served, episode)
    assert [step.action for step in steps[1:]] == [2, 3, 1, 4]
    assert [step for step, _ in json.loads(metadata["gaps"])] == [2, 3]


def test_slow_page_gets_the_newest_picture(tmp_path) -> None:
    with Served(tmp_path, limits=Limits(until_pause=0.5)) as served:
        study = served.study(drawn(mode="async", fps=100))
        with served.player(served.play(study), acks=False) as player:
            player.until("state")
            player.say("control", do="resume")
            paused = player.until("state", state="paused")
            assert paused["why"] == "network"
            last = paused["episode"]["num_steps"] - 1
            assert len(player.frames) == 2, "no more than that is under way"
            assert last > 10
            player.say("ack", frame=player.frames[-1].index)
            assert player.until_step(last).index > player.frames[1].index + 5
            assert len(player.frames) == 3, "those in between were left out"
            player.say("ack", frame=player.frames[-1].index)
            player.say("control", do="resume")
            player.until("state", state="running")


def test_an_unresumed_episode_is_abandoned(tmp_path) -> None:
    with Served(tmp_path) as served:
        study = served.study(drawn())
        play = served.play(study)
        with served.player(play) as player:
            player.until_step(0)
            player.walk("ArrowRight")
            episode = player.until("episode")["episode"]
            served.creator.plays.limits = Limits(until_end=0.3)
        assert wait_for_state(served, episode, "abandoned")["num_steps"] == 2
        with served.player(play) as player:
            assert player.until("bye")["reason"] == "expired"


@pytest.mark.slow
def test_idle_play_pauses_and_expires(tmp_path) -> None:
    with Served(tmp_path, limits=Limits(until_idle=0.3, until_expired=1.0)) as served:
        study = served.study(drawn(mode="async", fps=30))
        with served.player(served.play(study)) as player:
            player.until("state")
            player.say("control", do="resume")
            assert player.until("state", state="paused")["why"] == "idle"
            assert player.until("bye")["reason"] == "expired"
            episode = player.until("episode")["episode"]
        assert wait_for_state(served, episode, "abandoned")["reason"] == "expired"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "code"),
    [("raise", "environment"), ("die", "crashed"), ("hang", "hung")],
)
def test_broken_environment_ends_only_its_play(tmp_path, trouble, code) -> None:
    timeouts = WorkerTimeouts(response=2.0, ping_interval=0.1)
    with Served(tmp_path, timeouts=timeouts) as served:
        study = served.study(drawn(trouble=trouble))  # In the third step.
        with served.player(served.play(study)) as player:
            player.until_step(0)
            player.walk("ArrowRight", "ArrowRight")
            episode = player.until("episode")["episode"]
            player.press("ArrowRight")
            error = player.until("error")
            assert (error["code"], error["fatal"]) == (code, True)
            assert "/" not in error["message"]
            assert player.until("bye")["reason"] == "failed"
        row = wait_for_state(served, episode, "failed")
        assert (row["num_steps"], row["total_reward"]) == (3, 4.0)
        assert row["error"] == error["message"]
        assert len(read_episode(served, episode)[0]) == 3, "what was shown is recorded"
        assert served.good("GET", "/api/me")["person"]


@pytest.mark.slow
def test_environment_that_cannot_be_created_reports_the_error(served) -> None:
    study = served.study(drawn(num_steps=5, size="large"), {**drawn(), "options": {"id": "nope"}})
    for environment in study["environments"]:
        play = served.play(study, environment["id"])
        with served.player(play) as player:
            error = player.until("error")
            assert error["fatal"]
            assert player.until("bye")["reason"] == "failed"
    assert "nope" in error["message"]


@pytest.mark.slow
def test_person_has_one_play_at_a_time_up_to_the_quota(tmp_path) -> None:
    with Served(tmp_path, limits=Limits(players=1)) as served:
        first = served.study(drawn(), quota=1, name="One")
        second = served.study(drawn(), name="Other")
        play = served.play(first)
        assert served.play(second) != play, "one play for each person: the other one ends"
        with served.player(play) as player:
            assert player.until("bye")["reason"] == "replaced"
        with served.player(served.play(first)) as player:
            player.until_step(0)
            player.walk("Space")
            player.say("control", do="end")
            player.say("control", do="confirm", value="completed")
            assert player.until("bye")["reason"] == "quota"
        status, answer = served.call("POST", "/api/plays", {"study": first["id"]})
        assert (status, answer["error"]["code"]) == (403, "quota")


def test_round_robin_assigns_an_environment_to_each_episode(tmp_path) -> None:
    with Served(tmp_path) as served:
        study = served.study(
            drawn(seed=5), drawn(num_steps=9, seed=7), assignment="round_robin", quota=2
        )
        first, second = (environment["id"] for environment in study["environments"])
        play = served.play(study)
        episodes = []
        with served.player(play) as player:
            for index, value in enumerate(["completed", "rejected", "completed"]):
                if index != 2:
                    environment = player.until("hello")["environment"]["id"]
                player.until("state", state="ready")
                player.until_step(0)
                player.walk("Space")
                player.frames.clear()
                player.say("control", do="end")
                player.say("control", do="confirm", value=value)
                episode = player.until("episode", episode__state=value)["episode"]
                assert episode["environment"] == environment
                episodes.append(episode)
            assert player.until("bye")["reason"] == "quota"
        # A rejected episode is repeated.
        assert [one["environment"] for one in episodes] == [first, second, second]
        assert [one["number"] for one in episodes] == [0, 1, 2]
        assert {one["session"] for one in episodes} == {play}
        assert [read_episode(served, one)[1]["seed"] for one in episodes] == [5, 7, 8]


@pytest.mark.slow
def test_seeds_continue_in_the_next_play(served) -> None:
    study = served.study(drawn(seed=5))
    noise = []
    for _ in range(2):
        play = served.play(study)
        with served.player(play) as player:
            player.until_step(0)
            player.walk("Space")
            player.say("control", do="end")
            episode = player.until("episode", episode__state="ended")["episode"]
        served.good("DELETE", f"/api/plays/{play}")
        steps, metadata = read_episode(served, wait_for_state(served, episode, "abandoned"))
        noise.append((metadata["seed"], steps[0].timestep.observation["noise"]))
    assert [seed for seed, _ in noise] == [5, 6]
    assert not np.array_equal(noise[0][1], noise[1][1])


@pytest.mark.slow
def test_play_in_a_named_interpreter_ends_all_its_processes(tmp_path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nsleep 1000 &\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    interpreters = {"other": str(python), "broken": "/bin/false"}
    with Served(tmp_path / "recordings", interpreters=interpreters) as served:
        described = served.good("GET", "/api/families?interpreter=other")
        assert described["interpreters"] == ["", "other", "broken"]
        assert described["families"]["drawn"]["identifiers"] == ["discrete", "box"]
        assert served.call("GET", "/api/families?interpreter=broken")[0] == 503
        assert served.call("GET", "/api/families?interpreter=unknown")[0] == 400
        broken = {"environment": {**drawn(), "interpreter": "broken"}}
        assert served.good("POST", "/api/environments/test", broken)["error"]
        good = {"environment": {**drawn(), "interpreter": "other"}}
        trial = served.good("POST", "/api/environments/test", good)
        assert (trial["ok"], trial["error"], len(trial["controls"])) == (True, "", 5)
        assert trial["picture"].startswith("data:image/")
        study = served.study({**drawn(), "interpreter": "other"}, {**drawn(), "interpreter": "no"})
        first, second = (environment["id"] for environment in study["environments"])
        status, answer = served.call(
            "POST", "/api/plays", {"study": study["id"], "environment": second}
        )
        assert (status, answer["error"]["code"]) == (400, "bad_request")
        play = served.play(study, first)
        with served.player(play) as player:
            player.until_step(0)
            player.walk("Space")
            (group,) = [p.worker.pid for p in served.creator.plays._plays.values()]
            assert len(processes_of(group)) == 2
        served.good("DELETE", f"/api/plays/{play}")
        poll(lambda: processes_of(group), lambda pids: not pids)


def processes_of(group):
    """Returns the running processes of a group."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(process_group) == group and state != "Z":
            pids.append(int(path.parent.name))
    return pids


@pytest.mark.slow
def test_a_study_is_edited_or_deleted_while_it_is_played(served) -> None:
    study = served.study(drawn())
    play = served.play(study)
    path = f"/api/studies/{study['id']}"
    edited = served.good("PUT", path, {**study, "description": "other"})
    assert served.play(study) == play, "what is played has not changed"
    with served.player(play) as player:
        player.until_step(0)
        player.walk("Space")
        player.until("episode")
        status, answer = served.call("DELETE", path)
        assert (status, answer["error"]["code"]) == (409, "in_use")
        player.say("control", do="end")
        player.say("control", do="confirm", value="rejected")
        player.until("episode", episode__state="rejected")
        environment = {**edited["environments"][0], "max_episode_steps": 7}
        served.good("PUT", path, {**edited, "environments": [environment]})
        new_play = served.play(study)
        assert new_play != play
        assert player.until("bye")["reason"] == "replaced"
    with served.player(new_play) as player:
        player.until_step(0)
        assert served.good("DELETE", path) == {"deleted": 1}
        assert player.until("bye")["reason"] == "closed"
    assert served.call("GET", path)[0] == 404
