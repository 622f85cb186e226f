"""`rlds label`: shows layers; adds, exports, imports and compares labels."""

import json
import shutil

import pytest

import rlds.labels
from rlds_tools.command_line import commands


@pytest.fixture
def data(log, tmp_path, monkeypatch):
    """Three episodes of ten steps."""
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    return str(shutil.copytree(log, tmp_path / "log"))


def run(*words):
    return commands.run(["label", *map(str, words)])


def run_json(capsys, *words):
    capsys.readouterr()
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_labels_are_added_shown_and_compared(data, capsys):
    assert run_json(capsys, data) == {"path": data, "episodes": 3, "layers": []}
    assert run_json(capsys, "add", data, "quality", "0,1:3", "good", "--by", "ann")["labels"] == 3
    assert run("add", data, "quality", 1, "bad", "--by", "bob") == 0
    assert run("add", data, "score", 0, "4", "--by", "ann") == 0
    assert run("add", data, "score", 1, "5.5", "--by", "ann") == 0
    assert run("add", data, "slip", 2, "true", "--steps", "7:", "--by", "ann") == 0
    assert run("add", data, "note", 2, "7", "--by", "ann", "--type", "text") == 0
    labels = rlds.labels.open(data)
    assert labels.layers() == {
        **{"note": "text", "quality": "choice", "score": "number", "slip": "flag"}
    }
    assert [(row.begin, row.end, row.tool) for row in labels if row.layer == "slip"] == [
        (7, 10, "rlds label")
    ]
    layers = {layer["name"]: layer for layer in run_json(capsys, data)["layers"]}
    assert layers["quality"] == {
        **{"name": "quality", "type": "choice", "labels": 4, "values": {"good": 3, "bad": 1}},
        **{"annotators": {"ann": 3, "bob": 1}},
        **{"episodes": 3, "unlabelled": 0, "disagree": 1},
    }
    values = {"min": 4.0, "mean": 4.75, "max": 5.5}
    assert (layers["score"]["values"], layers["score"]["unlabelled"]) == (values, 1)
    assert run(data) == 0
    output = capsys.readouterr().out
    assert "quality  choice       4         3           0         1  good 3, bad 1" in output
    result = {each["layer"]: each for each in run_json(capsys, "agreement", data)["compared"]}
    assert result["quality"]["annotators"] == ["ann", "bob"]
    assert (result["quality"]["equal"], result["slip"]["alpha"]) == (0.0, None)
    assert run("agreement", data, "--layer", "quality") == 0
    assert "quality  ann, bob    0.000     0%         1" in capsys.readouterr().out
    assert run("agreement", data) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("-: not defined")


def test_exported_labels_are_imported_into_a_copy(data, tmp_path, capsys):
    assert run("agreement", data) == 1
    assert "no labels to compare" in capsys.readouterr().err
    assert run("add", data, "quality", "0:2", "good", "--by", "ann") == 0
    assert run_json(capsys, "export", data, tmp_path / "x.csv")["labels"] == 2
    copy = shutil.copytree(data, tmp_path / "copy", ignore=lambda *_: [".rlds"])
    assert run_json(capsys, "import", copy, tmp_path / "x.csv")["labels"] == 2
    assert run_json(capsys, "import", copy, tmp_path / "x.csv")["labels"] == 0
    assert list(rlds.labels.open(copy)) == list(rlds.labels.open(data))
    with open(tmp_path / "x.csv", "a") as file:
        file.write("quality,choice,good,nowhere,10,,,ann,,,,\n")
    other = shutil.copytree(data, tmp_path / "other", ignore=lambda *_: [".rlds"])
    assert run("import", other, tmp_path / "x.csv") == 1
    error = capsys.readouterr().err
    assert "x.csv: no episode of this dataset matches 1 rows, so no row was added: row 3: " in error
    assert list(rlds.labels.open(other)) == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["add", "DATA", "quality", "3", "good", "--by", "ann"], 1, "no episode 3;"),
        (["add", "DATA", "quality", "1", "good"], 2, "--by"),
        (["add", "DATA", "quality", "x", "good", "--by", "a"], 1, "EPISODES: got 'x', expected n"),
        (["add", "DATA", "q", "0:3", "a", "--by", "a", "--steps", "5"], 1, "--steps: got '5'"),
        (["add", "DATA", "q", "0:3", "a", "--by", "a", "--steps", "5:11"], 1, "has 10 steps"),
        (["export", "DATA", "labels.txt"], 1, "expected a name with .csv"),
        (["DATA", "more"], 2, "unexpected extra argument"),
        (["nowhere"], 1, "'nowhere' does not exist"),
    ],
)
def test_invalid_commands_are_errors_and_add_nothing(data, words, code, message, capsys):
    assert run(*[data if word == "DATA" else word for word in words]) == code
    assert message in capsys.readouterr().err
    assert list(rlds.labels.open(data)) == []
