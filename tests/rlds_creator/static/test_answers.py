"""The types in `answers.d.ts`, which are written by hand, against answers of real servers."""

import re
from pathlib import Path

import pytest
from creator_server import Served, drawn, serving
from creator_server import call as ask

from rlds_creator.server.view_app import view_app
from rlds_creator.viewing import Catalog
from tests.support import tiny_datasets

STATIC = Path(__file__).parents[3] / "rlds_creator" / "static"
INTERFACES = {
    name: (bases or "", body)
    for file in ("answers.d.ts", "api_types.d.ts")
    for name, bases, body in re.findall(
        r"^export interface (\w+)(?:\s+extends ([^{]*?))? \{\n(.*?)^\}",
        (STATIC / file).read_text(),
        re.M | re.S,
    )
}


def fields_of(name):
    """Returns the fields of a type, and whether each is optional."""
    bases, body = INTERFACES[name]
    declared = {field: bool(mark) for field, mark in re.findall(r"^  (\w+)(\??):", body, re.M)}
    if picked := re.fullmatch(r"Pick<(\w+),(.*)>", bases, re.S):
        base_fields = fields_of(picked[1])
        return declared | {field: base_fields[field] for field in re.findall(r'"(\w+)"', picked[2])}
    for base in filter(None, bases.split(", ")):
        declared |= fields_of(base)
    return declared


def check(name, answer):
    declared = fields_of(name)
    required = {field for field, is_optional in declared.items() if not is_optional}
    assert required <= set(answer) <= set(declared), name


def test_fields_of_types_are_parsed():
    assert fields_of("DatasetEpisode") == {
        "index": False,
        "number": False,
        "num_steps": False,
        "values": False,
        "ranks": True,
        "labels": False,
        "error": True,
    }
    assert {"seed", "num_steps"} <= set(fields_of("Played"))
    assert {"op", "play", "person"} <= set(fields_of("Welcome"))
    with pytest.raises(AssertionError, match="Format"):
        check("Format", {"name": "log", "title": "Log", "installed": True, "needs": ""})


def test_answers_of_the_creator_are_as_declared(tmp_path):
    with Served(tmp_path) as served:

        def get(path):
            return served.good("GET", path)

        check("Me", get("/api/me"))
        families = get("/api/families")["families"]
        for family in families.values():
            check("Family", family)
            for option in family["options"]:
                check("Option", option)
        study = served.study(drawn())
        check("Trial", served.good("POST", "/api/environments/test", {"environment": drawn()}))
        with served.player(served.play(study)) as player:
            check("Welcome", player.until("hello"))
            offer = player.until("ready")
            check("Offer", offer)
            check("Binding", offer["controls"][0])
            player.until_step(0)
            player.walk("Space")
            player.say("control", do="end")
            state = player.until("state", state="ended")
            check("PlayState", state)
            check("Played", state["episode"])
            player.say("control", do="confirm", value="completed")
            check("EpisodeRecord", player.until("episode", episode__state="completed")["episode"])
        *_, study = get("/api/studies")["studies"]
        assert set(study) == {*fields_of("Study"), *fields_of("Counts")}
        [episode] = get("/api/episodes")["episodes"]
        check("ListedEpisode", episode)
        path = f"/api/episodes/{episode['id']}"
        check("ListedEpisode", get(path))
        for format in get("/api/formats")["formats"]:
            check("Format", format)
        check_episode(get, f"{path}/view")


def test_answers_of_the_viewer_are_as_declared(tmp_path):
    tiny_datasets.write_dataset(tmp_path / "tiny", [tiny_datasets.episode(3)])
    with serving(view_app(Catalog([tmp_path]))) as server:

        def get(path):
            status, answer = ask(server.address, "GET", path)
            assert status == 200, answer
            return answer

        check("Me", get("/api/me"))
        [dataset] = get("/api/datasets")["datasets"]
        check("Dataset", dataset)
        path = f"/api/datasets/{dataset['id']}/{dataset['splits'][0]['name']}"
        listing = get(path)
        check("Listing", listing)
        check("DatasetEpisode", listing["episodes"][0])
        check("EpisodeColumn", get(f"{path}/columns")["columns"][0])
        check_episode(get, f"{path}/0/view")


def check_episode(get, base):
    summary = get(base)
    check("EpisodeSummary", summary)
    for field in summary["fields"]:
        check("Field", field)
    path = next(field["path"] for field in summary["fields"] if field["kind"] == "number")
    check("Series", get(f"{base}/series/{path}"))
    labels = get(f"{base}/labels")
    check("EpisodeLabels", labels)
    for layer in labels["layers"]:
        check("ShownLayer", layer)
    for label in labels["labels"]:
        check("ShownLabel", label)
