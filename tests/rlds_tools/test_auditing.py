"""`rlds audit` in words, in JSON, and its exit code."""

import json

import audited_data
import pytest
import raw_atari_dqn_replay

import rlds_tools
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


def test_json(arm, capsys):
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
