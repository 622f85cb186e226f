"""People play: over real sockets, in real workers."""

import json

from creator_server import drawn

import envlogger


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
        assert (
            player.until(
                "episode",
            )["episode"]["state"]
            == "playing"
        )
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

    directory = served.creator.recordings._data.episode(episode["id"])
    said = json.loads((directory / "annotations.json").read_bytes())
    assert (said["state"], said["success"], said["study"]["name"]) == ("completed", True, "Walk")
    assert said["environment"]["id"] == study["environments"][0]["id"]
    with envlogger.Reader(directory) as reader:
        (steps,) = reader.episodes
        assert [step.action for step in steps[1:]] == [2, 2, 1, 5]
        metadata = reader.episode_metadata()[0]
        assert metadata["rlds_creator:study_id"] == study["id"]
        assert metadata["seed"] == 7
        assert "you" not in json.dumps(metadata, default=str)
