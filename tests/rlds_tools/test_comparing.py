from tiny_datasets import episode, write_dataset

import rlds_tools
from rlds_tools.command_line.commands import run


def test_differences(dataset, tmp_path, capsys):
    episodes = [episode(length, seed=length) for length in (5, 8, 30)]
    same = write_dataset(tmp_path / "same", episodes)
    assert run(["diff", dataset, same, "--statistics"]) == 0
    assert "no differences in fields, splits, metadata, statistics" in capsys.readouterr().out
    episodes[2]["steps"]["reward"][3] += 1
    other = write_dataset(tmp_path / "other", [*episodes, episode(7)])
    assert run(["diff", dataset, other]) == 1
    found = rlds_tools.diff(dataset, other)
    assert [(d.what, d.one, d.other) for d in found.differences] == [("train: episodes", "3", "4")]
    changed = {d.what for d in rlds_tools.diff(dataset, other, statistics=True).differences}
    assert {"train: steps", "train: max return", "train: mean of reward"} <= changed
