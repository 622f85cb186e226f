"""`rlds audit`: text, JSON and exit code."""

import json
import shlex

import audited_data
import click.testing
import numpy as np
import pytest
import raw_atari_dqn_replay

import rlds_tools
from rlds_tools import inspection
from rlds_tools.command_line import audit
from rlds_tools.command_line.commands import run


@pytest.fixture
def arm(tmp_path):
    """Twelve episodes; the actions of episode 5 are two rows late."""
    folder = tmp_path / "arm"
    episodes = audited_data.make_episodes("arm", 31, 12)
    late = episodes[5].changed(state=episodes[5].state[2:], action=episodes[5].action[:-2])
    audited_data.write(folder, [*episodes[:5], late, *episodes[6:]])
    return folder


def test_audit_prints_findings_and_next_commands(arm, capsys):
    assert run(["audit", str(arm)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("action[0:6]: absolute, observation/state[0] to ")
    assert lines[2].startswith("action[6]: gripper, sets observation/state[6] up as it grows")
    assert lines[3:6] == [
        "to look at: 1 of 12 episodes",
        "episode  finding  what                                                    row",
        "      5  lag      the state follows the action 2 rows earlier than usual",
    ]
    assert lines[-1] == (
        f"next: rlds report {arm} --episodes 5 --open · rlds view {arm} --where 'index in (5)' · "
        f"rlds edit {arm} --delete-episodes 5 --plan"
    )


def test_the_proposed_edit_removes_all_findings(arm, capsys):
    assert run(["edit", str(arm), "--delete-episodes", "5", "--to", f"{arm}2", "--as", "tfds"]) == 0
    capsys.readouterr()
    assert run(["audit", f"{arm}2"]) == 0
    assert "nothing unusual in 11 episodes" in capsys.readouterr().out


def test_where_selects_the_compared_episodes(arm):
    result = rlds_tools.audit(arm, where="index != 5")
    assert result.exit_code == 0
    assert result.audits[0].num_episodes == 11


@pytest.mark.parametrize("selection", [["--where", "index != 2"], ["--split", "train[10%:]"]])
def test_findings_of_a_selection_have_stored_episode_numbers(arm, selection, capsys):
    assert run(["audit", str(arm), *selection]) == 1
    *_, finding, _, commands = capsys.readouterr().out.splitlines()
    assert finding.split()[:2] == ["5", "lag"]
    report, view, edit = commands.removeprefix("next: ").split(" · ")
    assert edit == f"rlds edit {arm} --delete-episodes 5 --plan"
    assert shlex.split(view)[2:5] == [str(arm), "--where", "index in (5)"]
    words = [word.strip("'") for word in report.split()]
    assert words[1:5] == ["report", str(arm), "--episodes", "5"]
    page = rlds_tools.report(arm, "train[10%:]", episodes=[5], frames=2)
    assert page.shown == (5,)
    assert [finding.episodes for finding in page.findings] == [(5,)]
    with pytest.raises(IndexError, match=r"no episode 0"):
        rlds_tools.report(arm, "train[10%:]", episodes=[0])


def test_audit_of_one_split_proposes_no_edit(tmp_path, capsys):
    episodes = audited_data.make_episodes("arm", 31, 12)
    episodes[9] = episodes[9].changed(state=episodes[9].state * np.nan)
    audited_data.write(tmp_path / "arm", episodes)
    splits = ["--split", "train=index < 6", "--split", "test", "--as", "tfds"]
    data = str(tmp_path / "made")
    assert run(["edit", str(tmp_path / "arm"), *splits, "--to", data]) == 0
    for selection in ([], ["--split", "test"], ["--where", "split = 'test'"]):
        capsys.readouterr()
        assert run(["audit", data, *selection]) == 1
        line = capsys.readouterr().out.splitlines()[-1]
        command = f"next: rlds report {data} --split test --episodes 3 --open"
        report, _, view = line.partition(" · ")
        assert report.partition(" --where ")[0] == command
        assert view == f"rlds view {data} --split test --where 'index in (3)'"
    [all_splits] = rlds_tools.audit(data, split="all").audits
    assert [finding.episode for finding in all_splits.findings] == [9]
    assert rlds_tools.report(data, "all", episodes=[9], frames=2).shown == (9,)


@pytest.fixture
def opened_episodes(monkeypatch):
    """The split and the episode numbers of each list that `rlds view` opens; serves nothing."""
    pytest.importorskip("starlette")
    from rlds_creator import viewing
    from rlds_creator.server import running

    lists = []

    class ListingCatalog(viewing.Catalog):
        def __init__(self, paths, **options):
            super().__init__(paths, **options)
            for dataset in self.datasets()["datasets"]:
                for split in dataset["splits"]:
                    rows = self.listing(dataset["id"], split["name"])["episodes"]
                    lists.append((split["name"], [row["number"] for row in rows]))

    monkeypatch.setattr(viewing, "Catalog", ListingCatalog)
    monkeypatch.setattr(running, "serve", lambda *_, **__: None)
    return lists


@pytest.fixture
def faulty(tmp_path):
    """Thirteen episodes: the actions of episode 5 are late, the states of episode 12 are NaN."""
    episodes = audited_data.make_episodes("arm", 31, 13)
    episodes[5] = episodes[5].changed(state=episodes[5].state[2:], action=episodes[5].action[:-2])
    episodes[12] = episodes[12].changed(state=episodes[12].state * np.nan)
    audited_data.write(tmp_path / "arm", episodes)
    return str(tmp_path / "arm")


@pytest.mark.parametrize(
    ("options", "episodes"),
    [
        ([], [5, 12]),
        (["--worst", "1"], [12]),
        (["--where", "number > 3", "-O", "action=action"], [5, 12]),
        (["--split", "train[30%:]", "--where", "number > 0"], [5, 12]),
    ],
)
def test_view_opens_the_worst_episodes_by_stored_number(
    faulty, options, episodes, opened_episodes, capsys
):
    assert run(["audit", faulty, *options, "--view"]) == 1
    assert "to look at: 2 of" in capsys.readouterr().out
    assert opened_episodes == [("train", episodes)]


def test_view_by_a_score_opens_its_lowest_episodes(faulty, opened_episodes, capsys):
    assert run(["audit", faulty, "--by", "activity", "--worst", "3", "--view"]) == 1
    lines = capsys.readouterr().out.splitlines()
    heading = next(index for index, line in enumerate(lines) if line.startswith("lowest activity"))
    lowest = [int(line.split()[0]) for line in lines[heading + 2 : heading + 5]]
    assert opened_episodes == [("train", sorted(lowest))]
    view = lines[-1].removeprefix("next: ").partition(" · ")[0]
    assert view == f"rlds view {faulty} --where 'index in ({', '.join(map(str, lowest))})'"
    assert run(shlex.split(view)[1:]) == 0
    assert opened_episodes[1:] == opened_episodes[:1]


def test_view_of_several_splits_or_with_json_is_an_error(faulty, tmp_path, opened_episodes, capsys):
    data = str(tmp_path / "made")
    splits = ["--split", "train=index < 6", "--split", "test", "--as", "tfds"]
    assert run(["edit", faulty, *splits, "--to", data]) == 0
    capsys.readouterr()
    for selection in ([], ["--split", "all"]):
        assert run(["audit", data, *selection, "--view"]) == 2
        assert "has the splits train, test. Choose one with --split." in capsys.readouterr().err
    assert run(["audit", data, "--split", "test", "--view"]) == 1
    assert opened_episodes == [("test", [6])]
    assert run(["audit", faulty, "--view", "--json"]) == 2
    assert "Pass one of them." in capsys.readouterr().err
    result = click.testing.CliRunner().invoke(audit.command, [faulty, "--view"])
    assert result.exit_code == 2
    assert "there is no command `view` here" in result.output


def test_view_opens_no_page_without_unusual_episodes(faulty, opened_episodes, capsys):
    options = ["--where", "not list_contains(audit.findings, 'lag') and index < 12", "--view"]
    assert run(["audit", faulty]) == 1
    assert run(["audit", faulty, *options]) == 0
    assert "no unusual episodes, so no page is opened" in capsys.readouterr().err
    assert opened_episodes == []


def test_json_has_the_findings_and_the_meaning_of_actions(arm, capsys):
    assert run(["audit", str(arm), "--json"]) == 1
    [result] = json.loads(capsys.readouterr().out)["audits"]
    [finding] = result["findings"]
    assert (finding["episode"], finding["check"], finding["row"]) == (5, "lag", -1)
    assert result["vectors"][0]["elements"][0]["kind"] == "absolute"
    assert len(result["tasks"]) == 12
    assert {*result["tasks"]} == {"pick", "place"}


@pytest.fixture
def sequential_data(tmp_path):
    """Three episodes of a format without random access."""
    episodes = [raw_atari_dqn_replay.episode(6, terminal=True, seed=seed) for seed in range(3)]
    rows = raw_atari_dqn_replay.record(episodes)
    raw_atari_dqn_replay.write_run(tmp_path / "Pong/1/replay_logs", rows, capacity=20)
    return [str(tmp_path / "Pong"), "--format", "atari_dqn_replay"]


@pytest.mark.parametrize("selection", [(), ("--split", "train[1:3]")])
def test_audit_without_random_access_suggests_conversion(sequential_data, selection, capsys):
    assert run(["audit", *sequential_data, *selection]) == 1
    assert "no random access; convert it first (rlds convert)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["audit", "episodes", "stats", "view"])
def test_where_without_random_access_suggests_conversion(command, sequential_data, capsys):
    assert run([command, *sequential_data, "--where", "steps > 3"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("this format has no random access; convert it first (rlds convert)")


def test_view_of_a_slice_without_random_access_suggests_conversion(sequential_data, capsys):
    assert run(["view", *sequential_data, "--split", "train[1:3]", "--no-open"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("this format has no random access; convert it first (rlds convert)")


def inspect_with_meanings(path):
    return inspection.with_meanings(inspection.inspect(path), {})


def test_inspect_derives_meanings_from_a_sample_until_an_audit_exists(arm, capsys):
    result = inspect_with_meanings(arm)
    assert result.meanings_by == "a sample of 12 episodes"
    assert result.meanings[0].startswith("action[0:6]: absolute, observation/state[0] to ")
    sentences = [*rlds_tools.audit(arm).audits[0].vectors[0].sentences()]
    assert run(["inspect", str(arm)]) == 0
    lines = capsys.readouterr().out.splitlines()
    heading = lines.index("meaning of actions and observations, by the last audit")
    assert lines[heading + 1 : heading + 3] == [f"  {sentence}" for sentence in sentences]
    audited_data.write(arm, audited_data.make_episodes("arm", 32, 3))
    assert inspect_with_meanings(arm).meanings_by == "a sample of 12 episodes"


def test_inspect_of_tfds_shows_meanings_only_after_an_audit(arm, capsys):
    assert run(["convert", str(arm), f"{arm}2", "--name", "arm"]) == 0
    command = ["edit", f"{arm}2", "--set-meaning", "action=absolute,unit=rad", "--to", f"{arm}3"]
    assert run(command) == 0
    capsys.readouterr()
    assert run(["inspect", f"{arm}3"]) == 0
    output = capsys.readouterr().out
    assert "meaning of actions" not in output
    assert "stored as bytes; in rad; absolute" in output
    rlds_tools.audit(f"{arm}3")
    result = inspect_with_meanings(f"{arm}3")
    assert (result.meanings_by, len(result.meanings)) == ("the last audit", 2)


def test_plan_of_a_merge_warns_of_unlike_actions(arm, tmp_path, capsys):
    episodes = audited_data.make_episodes("arm", 33, 8)
    episodes = [each.changed(action=each.action - each.state) for each in episodes]
    audited_data.write(tmp_path / "other", episodes)
    command = ["edit", str(arm), "--merge", str(tmp_path / "other"), "--plan", "--as", "tfds"]
    assert run([*command, "--to", f"{arm}2"]) == 0
    warning = f"warning: action[0:6]: the values are absolute in {arm}, delta in {tmp_path}/other"
    assert warning in capsys.readouterr().out.splitlines()
