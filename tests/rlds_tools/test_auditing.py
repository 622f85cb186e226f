"""`rlds audit` in words, in JSON, and its exit code."""

import json

import audited_data
import numpy as np
import pytest
import raw_atari_dqn_replay

import rlds_tools
from rlds_tools import inspection
from rlds_tools.command_line.commands import run


@pytest.fixture
def arm(tmp_path):
    """Twelve episodes, of which the fifth is late."""
    folder = tmp_path / "arm"
    episodes = audited_data.made("arm", 31, 12)
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
        f"next: rlds report {arm} --episodes 5 --open · rlds edit {arm} --delete-episodes 5 --plan"
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
    report, edit = commands.removeprefix("next: ").split(" · ")
    assert edit == f"rlds edit {arm} --delete-episodes 5 --plan"
    words = [part.strip("'") for part in report.split()]
    assert words[1:5] == ["report", str(arm), "--episodes", "5"]
    shown = rlds_tools.report(arm, "train[10%:]", episodes=[5], frames=2)
    assert shown.shown == (5,)
    assert [finding.episodes for finding in shown.findings] == [(5,)]
    with pytest.raises(IndexError, match=r"no episode 0"):
        rlds_tools.report(arm, "train[10%:]", episodes=[0])


def test_edits_count_the_episodes_of_all_splits_and_are_not_proposed_for_one(tmp_path, capsys):
    episodes = audited_data.made("arm", 31, 12)
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
        assert line.partition(" --where ")[0] == command
    [all_splits] = rlds_tools.audit(made, split="all").audits
    assert [finding.episode for finding in all_splits.findings] == [9]
    assert rlds_tools.report(made, "all", episodes=[9], frames=2).shown == (9,)


def test_json_has_the_findings_and_the_meaning_of_actions(arm, capsys):
    assert run(["audit", str(arm), "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)["audits"]
    [finding] = found["findings"]
    assert (finding["episode"], finding["check"], finding["row"]) == (5, "lag", -1)
    assert found["vectors"][0]["elements"][0]["kind"] == "absolute"


def test_data_that_can_be_read_in_order_only_is_to_be_converted_first(tmp_path, capsys):
    episodes = [raw_atari_dqn_replay.episode(6, terminal=True, seed=seed) for seed in range(3)]
    rows = raw_atari_dqn_replay.record(episodes)
    raw_atari_dqn_replay.write_run(tmp_path / "Pong/1/replay_logs", rows, capacity=20)
    assert run(["audit", str(tmp_path / "Pong"), "--format", "atari_dqn_replay"]) == 1
    assert "convert it first (rlds convert), and audit the result" in capsys.readouterr().err


def inspected(path):
    return inspection.with_meanings(inspection.inspect(path), {})


def test_inspect_tells_the_meaning_by_a_sample_and_then_by_the_audit(arm, capsys):
    found = inspected(arm)
    assert found.meanings_by == "a sample of 12 episodes"
    assert found.meanings[0].startswith("action[0:6]: absolute, observation/state[0] to ")
    said = [*rlds_tools.audit(arm).audits[0].vectors[0].sentences()]
    assert run(["inspect", str(arm)]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("meaning of the actions, by the last audit")
    assert lines[place + 1 : place + 3] == [f"  {sentence}" for sentence in said]
    audited_data.write(arm, audited_data.made("arm", 32, 3))
    assert inspected(arm).meanings_by == "a sample of 12 episodes"


def test_inspect_of_tfds_tells_what_an_audit_has_found_and_reads_no_episode(arm, capsys):
    assert run(["convert", str(arm), f"{arm}2", "--name", "arm"]) == 0
    command = ["edit", f"{arm}2", "--set-meaning", "action=absolute,unit=rad", "--to", f"{arm}3"]
    assert run(command) == 0
    capsys.readouterr()
    assert run(["inspect", f"{arm}3"]) == 0
    said = capsys.readouterr().out
    assert "meaning of the actions" not in said
    assert "stored as bytes; in rad; absolute" in said
    rlds_tools.audit(f"{arm}3")
    found = inspected(f"{arm}3")
    assert (found.meanings_by, len(found.meanings)) == ("the last audit", 2)


def test_unlike_actions_are_named_before_a_merge(arm, tmp_path, capsys):
    others = audited_data.made("arm", 33, 8)
    others = [each.changed(action=each.action - each.state) for each in others]
    audited_data.write(tmp_path / "other", others)
    command = ["edit", str(arm), "--merge", str(tmp_path / "other"), "--plan", "--as", "tfds"]
    assert run([*command, "--to", f"{arm}2"]) == 0
    said = f"warning: action[0:6]: the numbers are absolute in {arm}, delta in {tmp_path}/other"
    assert said in capsys.readouterr().out.splitlines()
