"""Downloads and views of recorded episodes."""

import io
import json
import zipfile

import numpy as np
import pytest
from creator_server import Served, drawn, poll

import envlogger
from rlds_creator.model import ExportState


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A server with two completed episodes."""
    with Served(tmp_path_factory.mktemp("recordings")) as served:
        study = served.study(drawn(), name="Walk home")
        with served.player(served.play(study)) as player:
            ids = []
            for names in (["Space", "ArrowUp", "ArrowLeft"], ["ArrowRight", "ArrowDown"]):
                player.until_step(0)
                player.walk(*names)
                player.say("control", do="end")
                player.say("control", do="confirm", value="completed")
                ids.append(player.until("episode", episode__state="completed")["episode"]["id"])
        yield served, study, ids


@pytest.mark.slow
def test_download_has_the_played_steps(recordings) -> None:
    served, study, ids = recordings
    path = f"/api/episodes/{ids[0]}/view/labels"
    tag = {"layer": "fall", "type": "flag", "value": True}
    served.good("POST", path, {**tag, "first": 1, "last": 2})
    request = {"filter": {"study": study["id"], "state": "completed", "sort": "started"}}
    export = served.good("POST", "/api/exports", {**request, "format": "log", "name": "Walk home!"})
    export = poll(
        lambda: served.good("GET", f"/api/exports/{export['id']}"),
        lambda export: export["state"] not in ("queued", "running"),
    )
    assert (export["state"], export["error"]) == ("done", "")
    path = f"/api/exports/{export['id']}/file"
    status, headers, content = served.fetch("GET", path)
    assert (status, len(content)) == (200, export["num_bytes"])
    assert headers["content-disposition"].endswith('.zip"')
    status, headers, chunk = served.fetch("GET", path, headers={"range": "bytes=100-199"})
    assert (status, chunk) == (206, content[100:200])

    unpacked = served.directory / "unpacked"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert not any(".." in name or name.startswith("/") for name in archive.namelist())
        archive.extractall(unpacked)
    (log,) = {file.parent for file in unpacked.rglob("metadata.riegeli")}
    with envlogger.Reader(log) as exported:
        assert len(exported.episodes) == 2
        for index, identifier in enumerate(ids):
            with envlogger.Reader(served.directory / "episodes" / identifier) as recorded:
                for copy, step in zip(exported.episodes[index], recorded.episodes[0], strict=True):
                    np.testing.assert_equal(copy.timestep[1:], step.timestep[1:])
                    assert copy.action == step.action
        tags = [step.custom_data["tag:fall"] for step in exported.episodes[0]]
        assert tags == [False, True, True, False]

    assert served.good("DELETE", f"/api/exports/{export['id']}") == {}
    assert served.call("GET", path)[0] == 404
    assert not (served.directory / "exports" / export["id"]).exists()


def test_invalid_downloads_are_refused(recordings) -> None:
    served, _, ids = recordings
    for request, status in (
        ({"episodes": ids, "filter": {}}, 400),
        ({}, 400),
        ({"episodes": []}, 400),
        ({"episodes": [*ids, "unknown"]}, 404),
        ({"episodes": ids, "format": "pickle"}, 400),
        ({"filter": {"sort": "salt"}}, 400),
        ({"filter": {"study": "unknown"}}, 400),
    ):
        assert served.call("POST", "/api/exports", request)[0] == status, request


@pytest.mark.slow
def test_a_download_can_be_cancelled(recordings) -> None:
    served, _, ids = recordings
    export = served.good("POST", "/api/exports", {"episodes": ids})
    assert served.call("GET", f"/api/exports/{export['id']}/file")[0] == 409
    assert served.good("DELETE", f"/api/exports/{export['id']}")["state"] == "cancelled"
    assert not list((served.directory / "exports").glob(f"{export['id']}/*"))


def test_episode_is_viewed_labelled_and_deleted(recordings) -> None:
    served, study, ids = recordings
    path = f"/api/episodes/{ids[1]}"
    summary = served.good("GET", f"{path}/view")
    assert summary["num_steps"] == 3
    assert (summary["previous"], summary["next"]) == (f"/replay/{ids[0]}", None)
    values = served.good("GET", f"{path}/view/steps/1")["values"]
    assert values["observation/position"] == [1.0, 0.0]
    picture = next(f["path"] for f in summary["fields"] if f["kind"] == "picture")
    status, headers, _ = served.fetch("GET", f"{path}/view/pictures/1/{picture}")
    assert status == 200
    assert headers["content-type"].startswith("image/")

    labels = f"{path}/view/labels"
    door = {"layer": "door", "type": "flag", "value": True, "first": 1}
    tag = served.good("POST", labels, door)
    assert (tag["layer"], tag["first"], tag["last"], tag["author"]) == ("door", 1, 1, "you")
    served.good("PUT", f"{path}/notes", {"notes": "slow", "version": 0})
    sidecar = served.directory / "episodes" / ids[1] / "annotations.json"

    def annotations():
        return json.loads(sidecar.read_bytes())

    assert annotations()["notes"] == "slow"
    assert [row["layer"] for row in annotations()["labels"]] == ["verdict", "door", "note"]
    assert "you" not in {row["annotator"] for row in annotations()["labels"]}
    assert [one["layer"] for one in served.good("GET", labels)["labels"]] == ["verdict", "door"]
    served.good("DELETE", f"{labels}/{tag['id']}")
    assert annotations()["labels"][-1]["retracts"] == tag["id"]
    restored = served.good("POST", f"{labels}/{tag['id']}")
    assert restored == {**tag, "id": restored["id"], "created": restored["created"]}
    assert annotations()["labels"][-1]["begin"] == 1
    row = served.good("GET", f"/api/episodes?label=door&study={study['id']}")["episodes"]
    assert [one["labels"] for one in row] == [["door"]]

    for changes in ({"layer": " "}, {"value": False}, {"value": "yes"}, {"first": 9}, {"by": 1}):
        assert served.call("POST", labels, {**door, **changes})[0] == 400

    def listed_ids(queue):
        address = f"/api/episodes?study={study['id']}&queue={queue}"
        return {row["id"] for row in served.good("GET", address)["episodes"]}

    assert listed_ids("unreviewed") == {*ids}
    assert ids[1] not in listed_ids("unlabelled")
    assert ids[1] in listed_ids("unlabelled&label=fall")
    verdict = {"layer": "verdict", "type": "choice", "value": "cancelled"}
    label = served.good("POST", labels, verdict)
    assert (label["value"], label["author"], label["is_mine"]) == ("cancelled", "you", True)
    success_label = served.good("POST", labels, {**verdict, "layer": "success", "value": "no"})
    assert (annotations()["state"], annotations()["success"]) == ("cancelled", False)
    values = [row["value"] for row in annotations()["labels"] if row["type"] == "choice"]
    assert values == ["completed", "cancelled", "no"]
    served.good("DELETE", f"{labels}/{success_label['id']}")
    assert served.good("GET", path)["success"] is None
    assert served.good("POST", f"{labels}/{success_label['id']}")["value"] == "no"
    assert listed_ids("unreviewed") == {ids[0]}
    for state in ("playing", "failed", "good", True):
        assert served.call("POST", labels, {**verdict, "value": state})[0] == 400
    assert served.call("DELETE", f"{labels}/{label['id']}")[0] == 400
    layer = {"name": "mine", "type": "flag"}
    assert served.call("PUT", f"{path}/view/layers", layer)[0] == 400

    # The next episode is that of the filtered list.
    query = f"study={study['id']}&sort=-started"
    summary = served.good("GET", f"{path}/view?{query}&wait=1")
    assert (summary["previous"], summary["next"]) == (None, f"/replay/{ids[0]}?{query}")
    summary = served.good("GET", f"{path}/view?state=cancelled")
    assert (summary["previous"], summary["next"]) == (None, None)

    assert served.good("POST", "/api/episodes/delete", {"ids": [ids[1]]}) == {"deleted": 1}
    assert not sidecar.parent.exists()
    assert served.call("GET", f"{path}/view")[0] == 404


def test_unfinished_downloads_fail_after_a_restart(tmp_path) -> None:
    with Served(tmp_path) as served:
        store = served.creator.store
        export = store.add_export(store.people()[0].id, {"episodes": ["x"]})
        (tmp_path / "exports" / export.id).mkdir()
        (tmp_path / "exports" / "unknown").mkdir()
    with Served(tmp_path) as served:
        assert served.creator.store.export(export.id).state is ExportState.FAILED
        assert not list((tmp_path / "exports").iterdir())
