"""Views of datasets over HTTP from a real server."""

import contextlib
import io
import json
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse

import camera_arm
import creator_server
import numpy as np
import pytest
import raw_bags
import raw_layout
from creator_server import fetch
from PIL import Image

import rlds
from rlds.editing import Delete
from rlds.sources import episode_table, export, label_rows, reading
from rlds_creator.server import running
from rlds_creator.server.view_app import view_app
from rlds_creator.viewing import Catalog, catalog
from rlds_creator.viewing.thumbnails import Thumbnails
from rlds_tools.command_line.commands import run
from tests.rlds_creator.viewing.test_episode_view import FRAMES, record
from tests.support import tiny_datasets

TOKEN = "a long token"


class Client:
    def __init__(self, address):
        self._address, self.headers = address, {}

    def get(self, path, *, method="GET", body=None, **headers):
        headers = {**self.headers, **headers}
        content = body.encode() if isinstance(body, str) else body
        return fetch(self._address, method, path, content, headers=headers)

    def json(self, path, **options):
        status, headers, body = self.get(path, **options)
        assert headers["content-type"] == "application/json", body
        assert "content-security-policy" in headers
        return status, json.loads(body)


@contextlib.contextmanager
def serving(app):
    with creator_server.serving(app) as server:
        yield Client(server.address)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of several datasets, of which one is damaged."""
    path = tmp_path_factory.mktemp("data") / "secret_folder"
    tiny_datasets.write_dataset(path / "tiny", [tiny_datasets.episode(5, seed=s) for s in (0, 1)])
    for name in ("one", "two"):
        record(path / "recordings" / name)
    tiny_datasets.write_dataset(path / "broken", [tiny_datasets.episode(3)])
    [file] = (path / "broken").glob("*tfrecord-*")
    file.write_bytes(file.read_bytes()[:-7])
    (path / "senseless").mkdir()
    (path / "senseless" / "dataset_info.json").write_text("{")
    (path / "senseless" / "features.json").write_text("{}")
    return path


@pytest.fixture(scope="module")
def client(folder):
    with serving(view_app(Catalog([folder]))) as client:
        yield client


@pytest.fixture(scope="module")
def datasets(client):
    status, listing = client.json("/api/datasets")
    assert status == 200
    return {dataset["name"]: dataset for dataset in listing["datasets"]}


def test_datasets_are_listed_without_their_paths(client, datasets, folder):
    assert client.json("/api/me")[1]["mode"] == "view"
    assert set(datasets) == {"tiny", "recordings", "broken", "senseless"}
    assert datasets["tiny"]["splits"] == [{"name": "train", "episodes": 2}]
    assert datasets["recordings"]["format"] == "envlogger"
    assert datasets["recordings"]["splits"] == [{"name": "train", "episodes": 2}]
    assert "error" in datasets["senseless"]
    assert str(folder) not in json.dumps(datasets)
    # The identifiers have no path, and stay the same.
    assert Catalog([folder]).datasets()["datasets"][0]["id"] in {d["id"] for d in datasets.values()}


def test_a_page_that_was_open_before_an_edit_is_told_to_reload(tmp_path):
    path = tmp_path / "tiny"
    tiny_datasets.write_dataset(path, [tiny_datasets.episode(n, seed=n) for n in (3, 5, 4)])
    with serving(view_app(Catalog([path]))) as client:
        [dataset] = client.json("/api/datasets")[1]["datasets"]
        page = f"/api/datasets/{dataset['id']}/train/1/view"
        base = client.json(page)[1]["base"]
        before = client.json(f"{base}/steps/0")[1]["values"]
        assert before == client.json(f"{page}/steps/0")[1]["values"]
        later = client.json(page.replace("/1/", "/2/"))[1]
        rlds.edit(path, Delete(episodes=[0]))
        for name in ("steps/0", "steps/1", "labels", "series/reward"):
            status, answer = client.json(f"{base}/{name}")
            assert status == 422, name
            assert "reload the page" in answer["error"]["message"], name
        status, after = client.json(page)
        assert (status, after["num_steps"]) == (200, later["num_steps"])
        assert after["base"] != base
        assert client.json(f"{after['base']}/steps/0")[0] == 200
        assert client.json(page.replace("/1/", "/2/"))[0] == 404


def wait_for_list(client, address):
    """Returns the complete list, which takes several requests on a busy machine."""
    for _ in range(50):
        answer = client.json(address)[1]
        if "making" not in answer and None not in [e["num_steps"] for e in answer["episodes"]]:
            break
    return answer


def test_the_viewer_serves_the_steps_of_an_episode(client, datasets):
    identifier = datasets["recordings"]["id"]
    listing = f"/api/datasets/{identifier}/train"
    answer = client.json(f"{listing}?offset=1&limit=5")[1]
    assert answer["total"] == 2
    [row] = answer["episodes"]
    assert (row["index"], row["num_steps"], row["labels"]) == (1, 7, [])
    for query in ("limit=-1", "limit=1e9"):
        assert client.json(f"{listing}?{query}")[0] == 400
    tiny = wait_for_list(client, f"/api/datasets/{datasets['tiny']['id']}/train")["episodes"]
    assert [episode["num_steps"] for episode in tiny] == [5, 5]

    base = f"{listing}/1/view"
    summary = client.json(base)[1]
    assert summary["num_steps"] == 7
    assert summary["previous"] == f"/datasets/{identifier}/train/0"
    assert summary["next"] is None
    assert client.json(f"{base}/steps/3")[1]["values"]["action"] == [4, -4]
    status, headers, body = client.get(f"{base}/pictures/3/image")
    assert (status, headers["content-type"], body) == (200, "image/jpeg", FRAMES[3])
    assert "immutable" in headers["cache-control"]
    status, headers, body = client.get(f"{base}/pictures/3/observation/large?side=64")
    assert (status, headers["content-type"]) == (200, "image/png")
    series = client.json(f"{base}/series/observation/state")[1]
    assert series["series"][0] == [1.5] * 7
    assert series["series"][1] == [None] * 7
    # Names of fields may have special characters.
    assert client.json(f"{base}/series/{urllib.parse.quote('tag:good')}")[1]["series"][0][2] == 1


def test_list_reports_the_progress_of_the_table_for_its_condition(tmp_path, monkeypatch):
    monkeypatch.setattr(episode_table, "_MIN_TASK_EPISODES", 1)
    monkeypatch.setattr(catalog, "_TABLE_TIMEOUT_S", 0.05)
    may_go_on, read = threading.Event(), reading.read

    def wait_and_read(source, split, index, *args):
        assert index != 2 or may_go_on.wait(600)
        return read(source, split, index, *args)

    episodes = [tiny_datasets.episode(length, seed=length) for length in (3, 5, 4, 6)]
    tiny_datasets.write_dataset(tmp_path / "tiny", episodes)
    with serving(view_app(Catalog([tmp_path]))) as client:
        dataset = client.json("/api/datasets")[1]["datasets"][0]
        address = f"/api/datasets/{dataset['id']}/train"
        listing = f"{address}?where=steps+%3E+4"
        with monkeypatch.context() as patch:
            patch.setattr(reading, "read", wait_and_read)
            answers = [client.json(listing)[1] for _ in range(40)]
            progress = {"done": 2, "total": 4}
            assert (answers[-1]["episodes"], answers[-1]["total"]) == ([], None)
            assert answers[-1]["making"] == progress
            assert client.json(f"{address}/1/view?where=steps+%3E+4")[1]["place"] is None
            may_go_on.set()
            while "making" in (answer := client.json(listing)[1]):
                pass
        assert [row["index"] for row in answer["episodes"]] == [1, 3]


def test_thumbnails_and_videos_are_served(client, datasets):
    base = f"/api/datasets/{datasets['recordings']['id']}/train/1/view"
    status, headers, body = client.get(f"{base}/thumbnail")
    assert (status, headers["content-type"]) == (200, "image/png")
    assert max(Image.open(io.BytesIO(body)).size) <= 160
    status, _, body = client.get(f"{base}/thumbnail", **{"if-none-match": headers["etag"]})
    assert (status, body) == (304, b"")
    tiny = f"/api/datasets/{datasets['tiny']['id']}/train/0/view"
    assert client.json(f"{tiny}/video")[0] == 404  # The dataset has no camera.
    broken = f"/api/datasets/{datasets['broken']['id']}/train/0/view"
    assert client.get(f"{broken}/thumbnail")[0] == 204

    av = pytest.importorskip("av")
    status, headers, body = client.get(f"{base}/video?path=image&path=observation/large")
    assert (status, headers["content-type"]) == (200, "video/mp4")
    sizes = [client.get(f"{base}/pictures/0/{path}")[2] for path in ("image", "observation/large")]
    (width, height), (width2, height2) = (Image.open(io.BytesIO(one)).size for one in sizes)
    with av.open(io.BytesIO(body)) as film:
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert len(frames) == 7
    ratio = frames[0].shape[1] / frames[0].shape[0]
    assert ratio == pytest.approx(width / height + width2 / height2, rel=0.02)
    assert np.abs(np.diff(np.stack(frames).astype(int), axis=0)).max() > 20  # It moves.
    assert client.json(f"{base}/video?path=observation/state")[0] == 404
    body = client.get(f"{base}/video?path=image&rate=2.5")[2]
    with av.open(io.BytesIO(body)) as film:
        assert film.streams.video[0].average_rate == 2.5
    for rate in ("0", "-1", "nan", "1e3", "10001", "", "٣"):
        query = urllib.parse.urlencode({"path": "image", "rate": rate})
        assert client.json(f"{base}/video?{query}")[0] == 400, rate


def test_cameras_that_are_video_are_shown(tmp_path):
    pytest.importorskip("av")
    camera_arm.record(tmp_path / "log", episodes=1)
    export(tmp_path / "log", "lerobot", tmp_path / "robot", fps=30)
    with serving(view_app(Catalog([tmp_path / "robot"]))) as client:
        [dataset] = client.json("/api/datasets")[1]["datasets"]
        base = f"/api/datasets/{dataset['id']}/train/0/view"
        assert client.json(base)[1]["fps"] == 30
        picture = client.get(f"{base}/pictures/7/observation/top")[2]
        assert client.get(f"{base}/thumbnail")[0] == 200
    expected, _ = camera_arm.Arm().frames(7)
    assert (np.asarray(Image.open(io.BytesIO(picture))) == expected).all()


def test_a_recording_of_a_robot_plays_at_the_times_of_its_steps(tmp_path):
    pytest.importorskip("mcap")
    raw_bags.write_mcap(tmp_path / "drive.mcap", raw_bags.sample())
    stamps = rlds.sources.open(tmp_path / "drive.mcap")[0].steps["timestamp"]
    with serving(view_app(Catalog([tmp_path / "drive.mcap"]))) as client:
        [dataset] = client.json("/api/datasets")[1]["datasets"]
        summary = client.json(f"/api/datasets/{dataset['id']}/train/0/view")[1]
        while (row := client.json(f"/api/datasets/{dataset['id']}/train")[1]["episodes"][0])[
            "values"
        ] is None:
            pass
    seconds = (stamps - stamps[0]) / 1e9
    assert seconds[-1] > 0
    assert summary["times"] == pytest.approx(seconds.tolist(), abs=1e-4)
    assert row["values"]["duration"] == pytest.approx(seconds[-1])


def test_thumbnails_are_kept_until_the_files_change(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    record(tmp_path / "run")

    def get_thumbnail():
        with serving(view_app(Catalog([tmp_path / "run"]))) as client:
            dataset = client.json("/api/datasets")[1]["datasets"][0]["id"]
            return client.get(f"/api/datasets/{dataset}/train/0/view/thumbnail")[2]

    first = get_thumbnail()
    [file] = (f for f in (tmp_path / "cache" / "thumbnails").rglob("*") if f.is_file())
    assert file.read_bytes() == first
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(buffer, "PNG")
    file.write_bytes(buffer.getvalue())
    assert get_thumbnail() == buffer.getvalue()
    shutil.rmtree(tmp_path / "run")
    record(tmp_path / "run")
    assert get_thumbnail() == first
    # Unused thumbnails are deleted; an unwritable cache is no error.
    thumbnails = Thumbnails(max_bytes=len(first) + 10)
    assert thumbnails.get("new", lambda: (b"x" * 20, "")) == (b"x" * 20, "")
    assert [one.stat().st_size for one in file.parent.iterdir()] == [20]
    assert thumbnails.get("none", lambda: None) is thumbnails.get("none", pytest.fail) is None
    shutil.rmtree(file.parent.parent)
    file.parent.parent.write_text("no folder")
    assert get_thumbnail() == first


def labels_address(client, name="tiny", episode=0):
    datasets = client.json("/api/datasets")[1]["datasets"]
    dataset = next(one["id"] for one in datasets if one["name"] == name)
    return f"/api/datasets/{dataset}/train/{episode}/view/labels"


def test_episodes_of_any_data_are_labelled(tmp_path):
    (tmp_path / "tiny").mkdir()
    for index, length in enumerate((3, 5, 4)):
        steps = {"observation": np.ones((length, 2)), "action": np.ones((length, 1))}
        np.savez(tmp_path / "tiny" / f"{index}.npz", **steps, reward=np.ones(length, "f4"))
    quality = {"layer": "quality", "type": "choice", "value": "good"}
    with serving(view_app(Catalog([tmp_path / "tiny"]), by="ann")) as client:
        base = labels_address(client)

        def ask(method, path="", body=None, by="ann", to=base):
            return client.json(
                f"{to}{path}?by={by}",
                method=method,
                body=None if body is None else json.dumps(body),
                **{"content-type": "application/json"},
            )

        def indices_where(where):
            query = urllib.parse.urlencode({"where": where})
            answer = client.json(f"{base.removesuffix('/0/view/labels')}?{query}")[1]
            return [row["index"] for row in answer["episodes"]]

        assert client.json("/api/me")[1]["by"] == "ann"
        # Reading labels computes no table and writes nothing.
        empty = {"layers": [], "labels": [], "adds": "layer", "may_label": True, "why_not": ""}
        assert ask("GET") == (200, empty)
        assert not (tmp_path / "tiny" / ".rlds").exists()
        layer = {"name": "quality", "type": "choice", "choices": ["good", "bad"], "whole": True}
        layer |= {"keys": ["KeyG", "KeyX"], "doc": "Would you show it?", "title": "Quality!"}
        status, answer = ask("PUT", body=layer, to=base.removesuffix("labels") + "layers")
        assert (status, answer["layers"]) == (200, [layer])
        status, label = ask("POST", body=quality)
        assert (status, label["author"], label["is_mine"]) == (200, "ann", True)
        slip = {"layer": "slip", "type": "flag", "value": True, "first": 1, "last": 2}
        assert ask("POST", body=slip)[1]["last"] == 2
        assert not list((tmp_path / "tiny").glob(".rlds/*.parquet"))
        rows = [(row.value, row.begin, row.end) for row in rlds.labels.open(tmp_path / "tiny")]
        assert rows == [("good", None, None), (True, 1, 3)]

        assert indices_where('label."quality.n" = 0') == [1, 2]
        assert indices_where("not list_contains(label.\"quality.by\", 'bob')") == [0, 1, 2]
        bad = {**quality, "value": "bad"}
        assert ask("POST", body=bad, by="bob")[0] == 200
        assert indices_where('label."quality.disagree"') == [0]
        assert indices_where("not list_contains(label.\"quality.by\", 'bob')") == [1, 2]
        labels = ask("GET", by="bob")[1]["labels"]
        assert [(one["value"], one["may_remove"]) for one in labels] == [
            ("good", False),
            ("bad", True),
            (True, False),
        ]
        # Only the annotator can retract a label; retracted labels can be restored.
        assert ask("DELETE", f"/{label['id']}", by="bob")[0] == 404
        assert ask("DELETE", f"/{label['id']}")[0] == 200
        assert indices_where('label."quality.disagree"') == []
        restored = ask("POST", f"/{label['id']}")[1]
        assert (restored["value"], restored["author"]) == ("good", "ann")
        rows = (tmp_path / "tiny" / ".rlds" / "labels" / "quality.jsonl").read_text().splitlines()
        assert len(rows) == 4
        second = base.replace("/0/", "/1/")
        assert ask("DELETE", f"/{label['id']}", to=second)[0] == 404
        assert ask("GET", to=second)[1]["labels"] == []
        [slip_layer] = [one for one in ask("GET")[1]["layers"] if one["name"] == "slip"]
        assert (slip_layer["type"], slip_layer["whole"]) == ("flag", False)

        for body, by, status in (
            ({**quality, "layer": "Not a name"}, "ann", 400),
            ({**quality, "layer": "../x"}, "ann", 400),
            ({**quality, "type": "number"}, "ann", 400),
            ({**quality, "value": 1}, "ann", 400),
            ({**slip, "last": 3}, "ann", 400),
            ({**slip, "first": -1}, "ann", 400),
            ({**slip, "value": "x" * 20_001}, "ann", 400),
            (quality, "", 400),
            (quality, "x" * 201, 400),
            ("no label", "ann", 400),
        ):
            result, answer = ask("POST", body=body, by=by)
            assert result == status, body
            assert str(tmp_path) not in json.dumps(answer)
        # Messages name the field and the expected value.
        for change, message in (
            ({"name": ""}, "name: expected text that is not empty."),
            ({"type": "words"}, "type: 'words' is not one of the choices."),
            ({"whole": 1}, "whole: expected true or false, got a whole number."),
            ({"other": 1}, "other: unknown field."),
        ):
            result = ask("PUT", body={**layer, **change}, to=base.removesuffix("labels") + "layers")
            assert (result[0], result[1]["error"]["message"]) == (400, message)
        named_layer = {**layer, "name": "品質", "title": "品質?", "keys": []}
        answer = ask("PUT", body=named_layer, to=base.removesuffix("labels") + "layers")[1]
        assert named_layer in answer["layers"]
        assert ask("POST", body={**quality, "layer": "品質"}, to=second)[0] == 200
        assert indices_where("label.品質 = 'good'") == [1]
        assert ask("DELETE", f"/{ask('GET', to=second)[1]['labels'][0]['id']}", to=second)[0] == 200
        change = {**layer, "type": "number", "choices": [], "keys": []}
        assert ask("PUT", body=change, to=base.removesuffix("labels") + "layers")[0] == 400
        assert ask("GET", to=base.replace("/0/", "/9/"))[0] == 404
        foreign = {"Origin": "http://evil.example.com", "content-type": "application/json"}
        body = json.dumps(quality)
        assert client.json(f"{base}?by=eve", method="POST", body=body, **foreign)[0] == 403
        plain_text = {"content-type": "text/plain"}
        assert client.json(f"{base}?by=eve", method="POST", body=body, **plain_text)[0] == 400
        assert len(list(rlds.labels.open(tmp_path / "tiny"))) == 3


def test_read_only_data_cannot_be_labelled(tmp_path, monkeypatch):
    tiny_datasets.write_dataset(tmp_path / "tiny", [tiny_datasets.episode(3)])
    (tmp_path / "tiny" / ".rlds").write_text("no folder")
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    label = json.dumps({"layer": "quality", "type": "choice", "value": "good"})
    kind = {"content-type": "application/json"}
    for may_label, cause in ((False, "You may not"), (True, "data and of the cache are read-only")):
        with serving(view_app(Catalog([tmp_path / "tiny"], may_label=may_label))) as client:
            base = labels_address(client)
            assert client.json(f"{base}?by=ann")[1]["may_label"] is False
            status, answer = client.json(f"{base}?by=ann", method="POST", body=label, **kind)
            assert status == 403
            assert cause in answer["error"]["message"]
    monkeypatch.setattr(label_rows, "can_be_written", lambda folders: True)
    with serving(view_app(Catalog([tmp_path / "tiny"]))) as client:
        address = f"{labels_address(client)}?by=ann"
        status, answer = client.json(address, method="POST", body=label, **kind)
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        assert "RLDS_CACHE_DIR" in answer["error"]["message"]
        assert str(tmp_path) not in answer["error"]["message"]


def test_unknown_steps_fields_and_datasets_return_404(client, datasets, folder):
    recordings = f"/api/datasets/{datasets['recordings']['id']}"
    steps = ["-1", "7", "9223372036854775808", "9" * 26, "1.0", "NaN", "%00", "٣", ""]
    paths = [f"steps/{step}" for step in steps]
    paths += ["pictures/0/observation/state", "pictures/7/image", "pictures/0/../../../etc/passwd"]
    paths += ["series/image", "series/", "series/%2e%2e/%2e%2e/etc/passwd", "series/" + "x" * 5000]
    addresses = [f"{recordings}/train/1/view/{path}" for path in paths]
    addresses += [f"{recordings}/{path}/view" for path in ("test/0", "train/2", "train/-1")]
    addresses += [f"/api/datasets/{name}/train/0/view" for name in ("nope", "..%2f..%2fetc", "%00")]
    for path in addresses:
        status, answer = client.json(urllib.parse.quote(path, safe="/%"))
        assert (status, answer["error"]["code"]) == (404, "not_found"), path
        assert str(folder) not in json.dumps(answer)
    for side in ("0", "-1", "1e3", "99999", "", "NaN"):
        assert client.json(f"{recordings}/train/1/view/pictures/0/image?side={side}")[0] == 400


def test_damaged_data_is_an_error_without_paths(client, datasets, folder):
    for name in ("broken", "senseless"):
        for path in ("train/0/view", "train/0/view/steps/0", "train"):
            status, answer = client.json(f"/api/datasets/{datasets[name]['id']}/{path}")
            if path == "train" and name == "broken":
                assert "error" in answer["episodes"][0]
            else:
                assert (status, answer["error"]["code"]) == (422, "damaged")
            assert "secret_folder" not in json.dumps(answer)
            assert "Traceback" not in json.dumps(answer)


@pytest.mark.slow
def test_concurrent_requests_get_correct_answers(client, datasets):
    base = f"/api/datasets/{datasets['tiny']['id']}/train"
    answers = []

    def ask(thread_index):
        for step in range(5):
            index = (thread_index + step) % 2
            answers.append((index, step, client.json(f"{base}/{index}/view/steps/{step}")[1]))

    threads = [threading.Thread(target=ask, args=[thread_index]) for thread_index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = [tiny_datasets.episode(5, seed=seed)["steps"] for seed in (0, 1)]
    assert len(answers) == 40
    for index, step, answer in answers:
        position = content[index]["observation"]["position"][step]
        np.testing.assert_array_equal(answer["values"]["observation/position"], position)


def test_requests_without_the_token_are_refused(folder):
    with serving(view_app(Catalog([folder / "tiny"]), token=TOKEN)) as client:
        assert client.json("/api/me")[1]["may"] == []
        status, answer = client.json("/api/datasets")
        assert (status, answer["error"]["code"]) == (401, "login")
        entry = {"method": "POST", "body": json.dumps({"token": "another", "name": ""})}
        assert client.json("/api/enter", **entry)[0] == 401
        # A form of a foreign page sends this type; a broken client sends that text.
        assert client.json("/api/enter", **entry, **{"content-type": "text/plain"})[0] == 400
        assert client.json("/api/enter", **{**entry, "body": b'"\xff'})[0] == 400
        entry["body"] = json.dumps({"token": TOKEN, "name": "Somebody"})
        status, headers, _ = client.get("/api/enter", **entry)
        assert status == 200
        cookie = headers["set-cookie"]
        name = cookie.partition("=")[0]
        for value in ("x", TOKEN):
            assert client.json("/api/datasets", Cookie=f"{name}={value}")[0] == 401
        assert "HttpOnly" in cookie
        assert "samesite=lax" in cookie.lower()
        assert TOKEN not in cookie
        client.headers["Cookie"] = cookie.partition(";")[0]
        assert client.json("/api/datasets")[0] == 200
        with serving(view_app(Catalog([folder / "tiny"]), token="another")) as second:
            _, headers, _ = second.get("/api/enter", method="POST", body='{"token": "another"}')
            assert headers["set-cookie"].partition("=")[0] != name, "one would end the other"
        assert client.json("/api/me")[1]["may"] == ["view"]
        # Requests of a foreign page in the same browser.
        assert client.json("/api/datasets", Host="evil.example.com")[0] == 400
        foreign = {"Origin": "http://evil.example.com"}
        assert client.json("/api/enter", method="POST", body="{}", **foreign)[0] == 403


def test_command_reports_errors(tmp_path, capsys, monkeypatch):
    assert run(["view", str(tmp_path / "nothing")]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert run(["view", str(tmp_path)]) == 1
    assert "an empty folder" in capsys.readouterr().err
    tiny_datasets.write_dataset(tmp_path / "tiny", [tiny_datasets.episode(3)])
    assert run(["view", str(tmp_path), "--episode", "1"]) == 1
    assert "no episode 1" in capsys.readouterr().err
    assert run(["view", str(tmp_path), "--format", "betamax"]) == 1
    assert "betamax" in capsys.readouterr().err
    assert run(["view", str(tmp_path), "--host", "999.1.2.3"]) == 1
    assert "--host 999.1.2.3" in capsys.readouterr().err
    assert run(["view"]) == 2
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert run(["view", str(tmp_path)]) == 1
    assert "rlds-ecosystem[creator]" in capsys.readouterr().err


@pytest.fixture
def served_apps(monkeypatch):
    """The applications and links of `rlds view`, which are not served."""
    served = []
    monkeypatch.setattr(running, "serve", lambda app, _, link, **__: served.append((app, link)))
    return served


def test_the_command_opens_data_with_options_as_other_commands_do(tmp_path, served_apps, capsys):
    raw_layout.write(tmp_path)
    (tmp_path / "rlds_layout.yaml").rename(layout := tmp_path / "mine.yaml")
    arguments = ["view", str(tmp_path), "--layout", str(layout), "--split", "train[1:]"]
    assert run([*arguments, "--episode", "1"]) == 0
    [(app, link)] = served_apps
    assert link.endswith("/train/0")
    with serving(app) as client:
        [dataset] = client.json("/api/datasets")[1]["datasets"]
        assert (dataset["format"], dataset["splits"][0]["episodes"]) == ("layout", 1)
        listing = client.json(f"/api/datasets/{dataset['id']}/train")[1]
        assert [row["number"] for row in listing["episodes"]] == [1]
    tiny_datasets.write_dataset(tmp_path / "tiny", [tiny_datasets.episode(3)])
    for command in ("view", "episodes"):
        assert run([command, str(tmp_path / "tiny"), "-O", "fps=1"]) == 2
        assert "Error: tfds has no option 'fps'; its options are:" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_serves_until_ctrl_c(folder):
    command = [sys.executable, "-m", "rlds_tools", "view", str(folder / "tiny"), "--no-open"]
    for host in ("127.0.0.1", "0.0.0.0"):
        arguments = [*command, "--episode", "1", "--host", host]
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            link = process.stdout.readline().split()[0]
            client = Client(f"http://127.0.0.1:{urllib.parse.urlsplit(link).port}")
            if host == "127.0.0.1":
                assert link.endswith("/train/1")
                page = urllib.parse.urlsplit(link).path
                assert client.json(f"/api{page}/view/steps/2")[0] == 200
                assert client.get(page)[0] == 200
            else:
                assert client.json("/api/datasets")[0] == 401
                body = json.dumps({"token": link.partition("#")[2], "name": ""})
                cookie = client.get("/api/enter", method="POST", body=body)[1]["set-cookie"]
                client.headers["Cookie"] = cookie.partition(";")[0]
                assert client.json("/api/datasets")[0] == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(600) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
            process.communicate()
