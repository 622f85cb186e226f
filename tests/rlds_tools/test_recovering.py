import shutil
from pathlib import Path

import pytest

import envlogger
import rlds_tools
from rlds_tools.command_line.commands import run


@pytest.fixture
def torn(log, tmp_path):
    """A log whose index ends before its steps, as after a kill."""
    directory = tmp_path / "torn"
    shutil.copytree(log, directory)
    (index,) = directory.glob("*/step_offsets.riegeli")
    index.write_bytes(index.read_bytes()[:-5])
    return directory


def contents(directory):
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory): path.read_bytes() for path in files}


def test_a_log_that_was_cut_short_is_recovered_in_place_or_as_a_copy(torn, tmp_path, capsys):
    before = contents(torn)
    assert run(["recover", str(torn), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "nothing was written" in shown
    assert contents(torn) == before
    planned = rlds_tools.recover(torn, dry_run=True)
    assert (planned.num_episodes, planned.num_steps, planned.is_changed) == (3, 30, True)
    copy = rlds_tools.recover(torn, tmp_path / "copy")
    assert contents(torn) == before
    assert (copy.num_episodes, copy.num_steps) == (3, 30)
    assert run(["recover", str(torn)]) == 0
    with envlogger.Reader(torn) as reader:
        assert len(reader.episodes) == 3
    kept = {path.name: content for path, content in contents(torn).items()}
    assert before[Path(next(iter(torn.glob("*/steps.riegeli"))).relative_to(torn))] in kept.values()
    assert "nothing to recover" in str(rlds_tools.recover(torn, dry_run=True))


def test_wrong_arguments_are_errors(torn, tmp_path, capsys):
    assert run(["recover", str(tmp_path / "nowhere")]) == 1
    assert run(["recover", str(torn), "--dry-run", "-o", str(tmp_path / "copy")]) == 2
    with pytest.raises(ValueError, match="does not work with a copy"):
        rlds_tools.recover(torn, tmp_path / "copy", dry_run=True)


def test_streams_need_no_recovery(tmp_path):
    (tmp_path / "cut.mcap").write_bytes(b"")
    with pytest.raises(ValueError, match="needs no recovery"):
        rlds_tools.recover(tmp_path)
