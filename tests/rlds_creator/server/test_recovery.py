"""Crash recovery of a server, killed at any moment."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from creator_server import Player, Served, call, drawn
from websockets.exceptions import ConnectionClosed

import envlogger
from rlds_creator.identifiers import new_identifier
from rlds_creator.model import EpisodeRecord, EpisodeState

LIVE = ("playing", "ended")


def num_steps_of(directory):
    with envlogger.Reader(directory) as reader:
        (steps,) = reader.episodes
        return len(steps)


@pytest.fixture
def stopped_server(tmp_path):
    """The directory of a stopped server, with a completed and an unfinished episode."""
    with Served(tmp_path) as served:
        study = served.study(drawn())
        with served.player(served.play(study)) as player:
            player.until_step(0)
            player.walk("Space", "Space")
            player.say("control", do="end")
            player.say("control", do="confirm", value="completed")
            completed = player.until("episode", episode__state="completed")["episode"]
            player.until_step(0)
            player.walk("Space")
            playing = player.until("episode", episode__state="playing")["episode"]
    return tmp_path, completed["id"], playing["id"]


def test_second_ctrl_c_ends_a_server_during_a_play(tmp_path) -> None:
    with Served(tmp_path) as served:
        with served.player(served.play(served.study(drawn()))) as player:
            player.until_step(0)
            player.walk("Space")
            identifier = player.until("episode", episode__state="playing")["episode"]["id"]
            assert served.end_at_once(20)
    with Served(tmp_path) as served:
        assert served.creator.store.episode(identifier).state is EpisodeState.ABANDONED


def test_the_store_and_the_logs_agree_after_a_restart(stopped_server) -> None:
    directory, completed, live = stopped_server
    with Served(directory) as served:
        store = served.creator.store
        assert store.episode(live).state is EpisodeState.ABANDONED, "a server ends cleanly"
        # As if the server had been killed before it stored any step.
        store.save_episode(
            EpisodeRecord(
                **{
                    **{f: getattr(store.episode(live), f) for f in EpisodeRecord.__struct_fields__},
                    "state": EpisodeState.PLAYING,
                    "num_steps": 1,
                    "total_reward": 0.0,
                    "seconds": 0.0,
                }
            )
        )
        # The database is restored from a copy without an episode and its labels.
        store.set_notes(completed, "Look at the end.", 0)
        store.add_label(completed, "fine", by=store.people()[0].id)
        store.add_label(completed, "jump", begin=1, end=3)
        store.add_label(completed, "verdict", "rejected")
        rows = store.labels(completed, history=True)
        served.creator.recordings.annotate(completed)
        store.delete_episodes([completed])
        # A deletion that has just begun, and one that is almost complete.
        (directory / "episodes" / live / "deleted").touch()
        deleted = directory / "episodes" / new_identifier()
        deleted.mkdir()
        (deleted / "deleted").touch()
        # An episode killed before its first step, a damaged one, and a foreign folder.
        stepless = directory / "episodes" / new_identifier()
        stepless.mkdir()
        (stepless / ".metadata.riegeli.0").write_bytes(b"half a fi")
        damaged = directory / "episodes" / new_identifier()
        damaged.mkdir()
        (damaged / "steps.riegeli").write_bytes(b"no file of Riegeli")
        (directory / "episodes" / "not an episode").mkdir()
    with Served(directory) as served:
        assert {one.id for one in served.creator.recovered} == {completed, live}
        row = served.good("GET", f"/api/episodes/{live}")
        assert (row["state"], row["num_steps"], row["total_reward"]) == ("abandoned", 2, 5.0)
        assert row["seconds"] > 0
        row = served.good("GET", f"/api/episodes/{completed}")
        assert (row["state"], row["num_steps"], row["person_name"]) == ("rejected", 3, "you")
        assert (row["notes"], row["labels"]) == ("Look at the end.", ["fine", "jump"])
        labels = served.creator.store.labels(completed, history=True)
        assert labels == rows
        assert [label.annotator for label in labels] == [row["person"], "", row["person"], "", ""]
        annotations = json.loads(
            (directory / "episodes" / completed / "annotations.json").read_bytes()
        )
        assert (annotations["notes"], len(annotations["labels"])) == ("Look at the end.", len(rows))
        # Annotations of an earlier release are restored, too.
        annotations = {
            "state": "completed",
            "notes": "old",
            "tags": [{"label": "jump", "first": 1}],
        }
        file = directory / "episodes" / completed / "annotations.json"
        store = served.creator.store
        store.delete_episodes([completed])
        file.write_text(json.dumps(annotations))
        assert [one.id for one in served.creator.recordings.recover()] == [completed]
        labels = [(row.layer, row.value, row.annotator) for row in store.labels(completed)]
        player = store.episode(completed).person
        expected = {("verdict", "completed", player), ("note", "old", ""), ("jump", True, "")}
        assert {*labels} == expected
        assert not deleted.exists()
        assert not stepless.exists()
        assert damaged.exists()
        assert not (directory / "episodes" / live / "deleted").exists()
        assert (directory / "episodes" / "not an episode").exists()
        with pytest.raises(RuntimeError, match="in use"), Served(directory):
            pass
    with Served(directory) as served:
        assert served.creator.recovered == []


class Process:
    """`rlds create` in its own process, which can be killed."""

    def __init__(self, directory):
        command = [sys.executable, "-m", "rlds_tools", "create", directory]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--no-open", "-q"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        line = self.process.stdout.readline()
        self.address = re.search(r"http://\S+", line)[0]

    def good(self, *args):
        status, answer = call(self.address, *args)
        assert status == 200, answer
        return answer

    def workers(self):
        """Returns the processes of environments."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path) as file:
            return [int(pid) for pid in file.read().split()]

    def kill(self, *, with_workers):
        workers = self.workers() if with_workers else []
        self.process.kill()
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.slow
def test_kills_at_random_moments_lose_no_shown_step(tmp_path) -> None:
    """The environment variable KILLS sets the number of kills."""
    rng = random.Random(20)
    server = Process(tmp_path)
    study = server.good(
        "POST",
        "/api/studies",
        {"name": "Walk", "state": "enabled", "environments": [drawn(num_steps=40)]},
    )
    completed, shown = {}, {}
    for _ in range(int(os.environ.get("KILLS", "8"))):
        stop = time.monotonic() + rng.uniform(0, 1.5)
        _play(server, study["id"], stop, completed, shown)
        server.kill(with_workers=rng.random() < 0.5)
        server = Process(tmp_path)
        episodes = server.good("GET", "/api/episodes?limit=1000")["episodes"]
        rows = {row["id"]: row for row in episodes}
        assert rows.keys() >= {*completed, *shown}
        assert not [row for row in episodes if row["state"] in LIVE]
        for identifier, num_steps in completed.items():
            assert (rows[identifier]["state"], rows[identifier]["num_steps"]) == (
                "completed",
                num_steps,
            )
        for identifier, num_steps in shown.items():
            assert rows[identifier]["num_steps"] >= num_steps
        for identifier, row in rows.items():
            directory = tmp_path / "episodes" / identifier
            assert num_steps_of(directory) == row["num_steps"]
            annotations = json.loads((directory / "annotations.json").read_bytes())
            assert annotations["state"] == row["state"]
        assert {path.name for path in (tmp_path / "episodes").iterdir()} == rows.keys()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(600) == 0
    server.process.stdout.close()


def _play(server, study, stop, completed, shown):
    """Plays until `stop`; stores the step counts of completed and of shown episodes."""
    play = server.good("POST", "/api/plays", {"study": study})["play"]
    address = f"{server.address.replace('http', 'ws')}/api/plays/{play}"
    with contextlib.suppress(ConnectionClosed), Player(address) as player:
        player.until_step(0)
        identifier = None
        while time.monotonic() < stop:
            player.tap("ArrowRight")
            frame = player.until_frame()
            if frame.step == 1:
                episode = player.until("episode", episode__state="playing")["episode"]
                identifier = episode["id"]
            shown[identifier] = frame.step + 1
            if frame.is_last:
                player.say("control", do="confirm", value="completed")
                episode = player.until("episode", episode__state="completed")["episode"]
                completed[episode["id"]] = episode["num_steps"]
                player.until_step(0)
        # These keys are on their way when the server dies.
        for _ in range(5):
            player.tap("ArrowLeft")
