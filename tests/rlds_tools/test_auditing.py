"""`rlds audit` in words, in JSON, and its exit code."""

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
    """Twelve episodes, of which the fifth is late."""
    folder = tmp_path / "arm"
    episodes = audited_data.make_episodes("arm", 31, 12)
    late = episodes[5].changed(state=episodes[5].state[2:], action=episodes[5].action[:-2])
    audited_data.write(folder, [*episodes[:5], late, *episodes[6:]])
    return folder


def test_the_command_says_what_to_look_at_and_what_to_type_next(arm, capsys):
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


def test_the_command_it_proposes_leaves_nothing_to_look_at(arm, capsys):
    assert run(["edit", str(arm), "--delete-episodes", "5", "--to", f"{arm}2", "--as", "tfds"]) == 0
    capsys.readouterr()
    assert run(["audit", f"{arm}2"]) == 0
    assert "nothing unusual in 11 episodes" in capsys.readouterr().out


def test_conditions_choose_what_is_compared(arm):
    found = rlds_tools.audit(arm, where="index != 5")
    assert found.exit_code == 0
    assert found.audits[0].num_episodes == 11


@pytest.mark.parametrize("chosen", [["--where", "index != 2"], ["--split", "train[10%:]"]])
def test_episodes_have_their_stored_numbers(arm, chosen, capsys):
    assert run(["audit", str(arm), *chosen]) == 1
    *_, finding, _, commands = capsys.readouterr().out.splitlines()
    assert finding.split()[:2] == ["5", "lag"]
    report, view, edit = commands.removeprefix("next: ").split(" · ")
    assert edit == f"rlds edit {arm} --delete-episodes 5 --plan"
    assert shlex.split(view)[2:5] == [str(arm), "--where", "index in (5)"]
    words = [part.strip("'") for part in report.split()]
    assert words[1:5] == ["report", str(arm), "--episodes", "5"]
    shown = rlds_tools.report(arm, "train[10%:]", episodes=[5], frames=2)
    assert shown.shown == (5,)
    assert [finding.episodes for finding in shown.findings] == [(5,)]
    with pytest.raises(IndexError, match=r"no episode 0"):
        rlds_tools.report(arm, "train[10%:]", episodes=[0])


def test_edits_count_the_episodes_of_all_splits_and_are_not_proposed_for_one(tmp_path, capsys):
    episodes = audited_data.make_episodes("arm", 31, 12)
    episodes[9] = episodes[9].changed(state=episodes[9].state * np.nan)
    audited_data.write(tmp_path / "arm", episodes)
    splits = ["--split", "train=index < 6", "--split", "test", "--as", "tfds"]
    made = str(tmp_path / "made")
    assert run(["edit", str(tmp_path / "arm"), *splits, "--to", made]) == 0
    for chosen in ([], ["--split", "test"], ["--where", "split = 'test'"]):
        capsys.readouterr()
        assert run(["audit", made, *chosen]) == 1
        line = capsys.readouterr().out.splitlines()[-1]
        command = f"next: rlds report {made} --split test --episodes 3 --open"
        report, _, view = line.partition(" · ")
        assert report.partition(" --where ")[0] == command
        assert view == f"rlds view {made} --split test --where 'index in (3)'"
    [all_splits] = rlds_tools.audit(made, split="all").audits
    assert [finding.episode for finding in all_splits.findings] == [9]
    assert rlds_tools.report(made, "all", episodes=[9], frames=2).shown == (9,)


@pytest.fixture
def opened(monkeypatch):
    """The lists of `rlds view`: numbers of the episodes that it opens, which are not served."""
    pytest.importorskip("starlette")
    from rlds_creator import viewing
    from rlds_creator.server import running

    lists = []

    class Opened(viewing.Catalog):
        def __init__(self, paths, **options):
            super().__init__(paths, **options)
            for dataset in self.datasets()["datasets"]:
                for split in dataset["splits"]:
                    rows = self.listing(dataset["id"], split["name"])["episodes"]
                    lists.append((split["name"], [row["number"] for row in rows]))

    monkeypatch.setattr(viewing, "Catalog", Opened)
    monkeypatch.setattr(running, "serve", lambda *_, **__: None)
    return lists


@pytest.fixture
def faulty(tmp_path):
    """Thirteen episodes: the fifth is late, the last one has no numbers."""
    episodes = audited_data.make_episodes("arm", 31, 13)
    episodes[5] = episodes[5].changed(state=episodes[5].state[2:], action=episodes[5].action[:-2])
    episodes[12] = episodes[12].changed(state=episodes[12].state * np.nan)
    audited_data.write(tmp_path / "arm", episodes)
    return str(tmp_path / "arm")


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ([], [5, 12]),
        (["--worst", "1"], [12]),
        (["--where", "number > 3", "-O", "action=action"], [5, 12]),
        (["--split", "train[30%:]", "--where", "number > 0"], [5, 12]),
    ],
)
def test_the_worst_episodes_are_opened_by_their_stored_numbers(
    faulty, words, numbers, opened, capsys
):
    assert run(["audit", faulty, *words, "--view"]) == 1
    assert "to look at: 2 of" in capsys.readouterr().out
    assert opened == [("train", numbers)]


def test_the_lowest_episodes_of_a_score_are_those_that_are_listed_first(faulty, opened, capsys):
    assert run(["audit", faulty, "--by", "activity", "--worst", "3", "--view"]) == 1
    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("lowest activity"))
    listed = [int(line.split()[0]) for line in lines[head + 2 : head + 5]]
    assert opened == [("train", sorted(listed))]
    view = lines[-1].removeprefix("next: ").partition(" · ")[0]
    assert view == f"rlds view {faulty} --where 'index in ({', '.join(map(str, listed))})'"
    assert run(shlex.split(view)[1:]) == 0
    assert opened[1:] == opened[:1]


def test_what_cannot_be_opened_is_said_before_anything_is_read(faulty, tmp_path, opened, capsys):
    made = str(tmp_path / "made")
    splits = ["--split", "train=index < 6", "--split", "test", "--as", "tfds"]
    assert run(["edit", faulty, *splits, "--to", made]) == 0
    capsys.readouterr()
    for chosen in ([], ["--split", "all"]):
        assert run(["audit", made, *chosen, "--view"]) == 2
        assert "has the splits train, test. Choose one with --split." in capsys.readouterr().err
    assert run(["audit", made, "--split", "test", "--view"]) == 1
    assert opened == [("test", [6])]
    assert run(["audit", faulty, "--view", "--json"]) == 2
    assert "Pass one of them." in capsys.readouterr().err
    alone = click.testing.CliRunner().invoke(audit.command, [faulty, "--view"])
    assert alone.exit_code == 2
    assert "there is no command `view` here" in alone.output


def test_nothing_is_opened_if_there_is_nothing_to_look_at(faulty, opened, capsys):
    words = ["--where", "not list_contains(audit.findings, 'lag') and index < 12", "--view"]
    assert run(["audit", faulty]) == 1
    assert run(["audit", faulty, *words]) == 0
    assert "no unusual episodes, so no page is opened" in capsys.readouterr().err
    assert opened == []


def test_json_has_the_findings_and_the_meaning_of_actions(arm, capsys):
    assert run(["audit", str(arm), "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)["audits"]
    [finding] = found["findings"]
    assert (finding["episode"], finding["check"], finding["row"]) == (5, "lag", -1)
    assert found["vectors"][0]["elements"][0]["kind"] == "absolute"
    assert len(found["tasks"]) == 12
    assert {*found["tasks"]} == {"pick", "place"}


@pytest.fixture
def in_order_only(tmp_path):
    """Three episodes of a format without an index."""
    episodes = [raw_atari_dqn_replay.episode(6, terminal=True, seed=seed) for seed in range(3)]
    rows = raw_atari_dqn_replay.record(episodes)
    raw_atari_dqn_replay.write_run(tmp_path / "Pong/1/replay_logs", rows, capacity=20)
    return [str(tmp_path / "Pong"), "--format", "atari_dqn_replay"]


@pytest.mark.parametrize("part", [(), ("--split", "train[1:3]")])
def test_data_that_can_be_read_in_order_only_is_to_be_converted_first(in_order_only, part, capsys):
    assert run(["audit", *in_order_only, *part]) == 1
    assert "no random access; convert it first (rlds convert)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["audit", "episodes", "stats", "view"])
def test_a_condition_on_data_that_can_be_read_in_order_only_is_an_error_that_says_what_to_do(
    command, in_order_only, capsys
):
    assert run([command, *in_order_only, "--where", "steps > 3"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("this format has no random access; convert it first (rlds convert)")


def test_a_part_of_data_that_can_be_read_in_order_only_is_an_error_in_the_viewer(
    in_order_only, capsys
):
    assert run(["view", *in_order_only, "--split", "train[1:3]", "--no-open"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("this format has no random access; convert it first (rlds convert)")


def inspected(path):
    return inspection.with_meanings(inspection.inspect(path), {})


def test_inspect_tells_the_meaning_by_a_sample_and_then_by_the_audit(arm, capsys):
    found = inspected(arm)
    assert found.meanings_by == "a sample of 12 episodes"
    assert found.meanings[0].startswith("action[0:6]: absolute, observation/state[0] to ")
    said = [*rlds_tools.audit(arm).audits[0].vectors[0].sentences()]
    assert run(["inspect", str(arm)]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("meaning of actions and observations, by the last audit")
    assert lines[place + 1 : place + 3] == [f"  {sentence}" for sentence in said]
    audited_data.write(arm, audited_data.make_episodes("arm", 32, 3))
    assert inspected(arm).meanings_by == "a sample of 12 episodes"


def test_inspect_of_tfds_tells_what_an_audit_has_found_and_reads_no_episode(arm, capsys):
    assert run(["convert", str(arm), f"{arm}2", "--name", "arm"]) == 0
    command = ["edit", f"{arm}2", "--set-meaning", "action=absolute,unit=rad", "--to", f"{arm}3"]
    assert run(command) == 0
    capsys.readouterr()
    assert run(["inspect", f"{arm}3"]) == 0
    said = capsys.readouterr().out
    assert "meaning of actions" not in said
    assert "stored as bytes; in rad; absolute" in said
    rlds_tools.audit(f"{arm}3")
    found = inspected(f"{arm}3")
    assert (found.meanings_by, len(found.meanings)) == ("the last audit", 2)


def test_unlike_actions_are_named_before_a_merge(arm, tmp_path, capsys):
    others = audited_data.make_episodes("arm", 33, 8)
    others = [each.changed(action=each.action - each.state) for each in others]
    audited_data.write(tmp_path / "other", others)
    command = ["edit", str(arm), "--merge", str(tmp_path / "other"), "--plan", "--as", "tfds"]
    assert run([*command, "--to", f"{arm}2"]) == 0
    said = f"warning: action[0:6]: the values are absolute in {arm}, delta in {tmp_path}/other"
    assert said in capsys.readouterr().out.splitlines()
