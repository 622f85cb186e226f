"""`--where` chooses episodes, for each command that reads them."""

import json
import os
import re
import shlex
import shutil

import pytest

import rlds.sources
import rlds_tools
from rlds_tools.command_line import commands

pytest.importorskip("duckdb")


@pytest.fixture(params=["dataset", "log"])
def data(request):
    """Episodes of 5, 8 and 30 steps in a dataset of TFDS; of 10 steps each in a log."""
    return request.getfixturevalue(request.param)


def run(*words):
    return commands.run(list(map(str, words)))


def run_json(capsys, *words):
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_stats_count_the_chosen_episodes(dataset, log, capsys):
    result = run_json(capsys, "stats", dataset, "--where", "steps > 5")
    assert (result["episodes"], result["steps"]) == (2, 38)
    result = run_json(capsys, "stats", log, "--where", "index = 1")
    assert (result["episodes"], result["steps"]) == (1, 10)
    assert run("stats", dataset, "--where", "steps > 100") == 1
    assert "none of the 3 episodes fulfils" in capsys.readouterr().err
    assert run("stats", dataset, "--where", "stepps > 5") == 1
    assert "stepps" in capsys.readouterr().err


def test_inspect_numbers_chosen_episodes_as_the_dataset_does(dataset, log, capsys):
    result = run_json(capsys, "inspect", dataset, "--where", "steps > 5")
    assert [(s["episodes"], s["steps"], s["lengths"]) for s in result["splits"]] == [
        (2, 38, [8, 19, 30])
    ]
    result = run_json(capsys, "inspect", log, "--where", "steps > 10")
    assert [(split["episodes"], split["steps"]) for split in result["splits"]] == [(0, 0)]
    assert run("inspect", log, "--where", "steps > 10", "--lineage") == 2
    words = ("inspect", dataset, "--where", "steps > 5", "--episode", "0")
    assert run_json(capsys, *words)["num_steps"] == 8
    episodes = rlds.sources.open(dataset)
    result = run_json(capsys, *words, "--step", "3")
    assert result["episode"] == 1  # Its number in the dataset, which edits take.
    assert run(*words) == 0
    assert f"next: rlds inspect {dataset} --episode 1 --step 0" in capsys.readouterr().out
    assert run(*words[:4]) == 0
    assert f"next: rlds episodes {dataset} --where 'steps > 5'" in capsys.readouterr().out
    assert result["fields"]["action"] == episodes[1]["action"][3]


def test_the_table_of_episodes_has_the_chosen_episodes(dataset, log, tmp_path, capsys):
    words = ("episodes", dataset, "--where", "steps > 5")
    result = run_json(capsys, *words)
    assert result["columns"][:3] == ["index", "key", "steps"]
    assert [episode[0::2][:2] for episode in result["episodes"]] == [[1, 8], [2, 30]]
    assert run(*words, "--columns", "index,steps", "--csv") == 0
    assert capsys.readouterr().out == "index,steps\n1,8\n2,30\n"
    assert "observation/position" in run_json(capsys, *words, "--columns", "all")["columns"]
    assert run(*words, "--columns", "colour") == 1
    assert "no column 'colour'; there are: split, index" in capsys.readouterr().err
    splits = tmp_path / "several"
    assert (
        run("edit", dataset, "--split", "short=steps < 6", "--split", "long", "--to", splits) == 0
    )
    capsys.readouterr()
    words = ("episodes", splits, "--columns", "split,index,steps")
    assert run_json(capsys, *words, "--where", "steps > 9")["episodes"] == [["long", 1, 30]]
    assert len(run_json(capsys, *words)["episodes"]) == 3
    digests = run_json(capsys, "episodes", log, "--columns", "digest")["episodes"]
    assert all(re.fullmatch("[0-9a-f]{32}", digest) for (digest,) in digests)
    assert run("episodes", log) == 0
    assert "3 episodes\nindex" in capsys.readouterr().out


def test_list_counts_the_matching_episodes_of_each_dataset(dataset, log, tmp_path, capsys):
    for data in (dataset, log):
        shutil.copytree(data, tmp_path / "data" / os.path.basename(data))
    (tmp_path / "data" / "damaged").mkdir()
    (tmp_path / "data" / "damaged" / "dataset_info.json").write_text("{")
    result = run_json(capsys, "list", tmp_path / "data", "--where", "steps > 9")["datasets"]
    counts = {
        each["format"]: [each[name] for name in ("episodes", "matching", "matching_steps", "error")]
        for each in result
        if not each["path"].endswith("damaged")
    }
    assert counts == {"tfds": [3, 1, 30, None], "envlogger": [3, 3, 30, None]}
    # A row names the column that its dataset lacks; the other datasets are listed.
    name = min(
        rlds.sources.open(dataset).table().columns.keys()
        - rlds.sources.open(log).table().columns.keys()
    )
    assert run("list", tmp_path / "data", "--where", f'"{name}" is not null') == 0
    lines = capsys.readouterr().out.splitlines()
    assert "there is no column 'observation/position'" in next(
        line for line in lines if "envlogger" in line
    )
    assert sum("  matching  matching steps" in line for line in lines) == 1
    assert run("list", "--formats", "--where", "steps > 9") == 2


def test_a_report_shows_the_chosen_episodes_and_its_condition(dataset, log, tmp_path, capsys):
    condition = "steps > 5 and index <> 7"
    result = run_json(capsys, "report", dataset, "-o", tmp_path / "r.html", "--where", condition)
    assert (result["episodes"], result["total"], result["steps"]) == (2, 2, 38)
    titles = re.findall(r"<h3>(Episode \d+)", (tmp_path / "r.html").read_text())
    assert sorted(titles) == ["Episode 1", "Episode 2"]  # Their numbers in the dataset.
    assert (
        shlex.quote(condition).replace("'", "&#x27;").replace(">", "&gt;").replace("<", "&lt;")
        in (tmp_path / "r.html").read_text()
    )
    result = run_json(capsys, "report", log, "-o", tmp_path / "l.html", "--where", "index = 2")
    assert (result["episodes"], result["steps"]) == (1, 10)


def test_the_viewer_lists_the_chosen_episodes(dataset, log):
    pytest.importorskip("starlette")
    from rlds_creator.viewing import Catalog

    catalog = Catalog([dataset, log], where="index >= 1")
    datasets = catalog.datasets()["datasets"]
    assert [each["splits"] for each in datasets] == [[{"name": "train", "episodes": 2}]] * 2
    listings = [catalog.listing(each["id"], "train")["episodes"] for each in datasets]
    assert [[row["num_steps"] for row in rows] for rows in listings] == [[8, 30], [10, 10]]
    assert catalog.view(datasets[0]["id"], "train", 1).num_steps == 30


def test_an_export_has_the_chosen_episodes(data, tmp_path, capsys):
    words = ("convert", data, tmp_path / "x.h5", "--to", "robomimic", "--where", "index <> 1")
    assert run(*words, "--plan") == 0
    assert not (tmp_path / "x.h5").exists()
    assert run(*words) == 0
    episodes, result = rlds.sources.open(data), rlds.sources.open(tmp_path / "x.h5")
    assert len(result) == 2
    for episode, index in zip(result, (0, 2)):
        assert (episode["action"][:-1] == episodes[index]["action"][:-1]).all()


def test_a_converted_dataset_has_the_chosen_episodes(data, tmp_path, capsys):
    assert run("convert", data, tmp_path, "--where", "index <> 1", "--name", "some", "-q") == 0
    path = tmp_path / "some" / "1.0.0"
    episodes, result = rlds.sources.open(data), rlds.sources.open(path)
    assert sorted(map(len, result)) == [len(episodes[0]), len(episodes[2])]
    # A selection is not checked against the counts of the metadata.
    counts = result.metadata["conversion"]["splits"]["train"]
    assert counts["episodes"] == 2  # The metadata of a copy has no count of steps.
    assert counts.get("steps", sum(map(len, result))) == sum(map(len, result))
    findings = rlds_tools.report(path, where="index = 0").findings
    assert not [finding for finding in findings if "the metadata says" in finding.text]
    assert run("convert", "--dataset", "rlds_d4rl/x", data, tmp_path, "--where", "index = 1") == 2
