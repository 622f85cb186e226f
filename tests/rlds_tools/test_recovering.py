import shutil

import pytest

import envlogger
import rlds_tools
from rlds_tools.command_line.commands import run


@pytest.fixture
def cut_log(log, tmp_path):
    """A log whose index ends before its steps, as after a kill."""
    directory = tmp_path / "torn"
    shutil.copytree(log, directory)
    (index,) = directory.glob("*/step_offsets.riegeli")
    index.write_bytes(index.read_bytes()[:-5])
    return directory


def read_files(directory):
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {path.relative_to(directory): path.read_bytes() for path in files}


def test_a_log_that_was_cut_short_is_recovered_in_place_or_as_a_copy(cut_log, tmp_path, capsys):
    files = read_files(cut_log)
    assert run(["recover", str(cut_log), "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "nothing was written" in output
    assert read_files(cut_log) == files
    plan = rlds_tools.recover(cut_log, dry_run=True)
    assert (plan.num_episodes, plan.num_steps, plan.is_changed) == (3, 30, True)
    copy = rlds_tools.recover(cut_log, tmp_path / "copy")
    assert read_files(cut_log) == files
    assert (copy.num_episodes, copy.num_steps) == (3, 30)
    assert run(["recover", str(cut_log)]) == 0
    with envlogger.Reader(cut_log) as reader:
        assert len(reader.episodes) == 3
    (steps,) = (path.relative_to(cut_log) for path in cut_log.glob("*/steps.riegeli"))
    assert files[steps] in read_files(cut_log).values()
    assert "nothing to recover" in str(rlds_tools.recover(cut_log, dry_run=True))


def test_invalid_arguments_are_errors(cut_log, tmp_path, capsys):
    assert run(["recover", str(tmp_path / "nowhere")]) == 1
    assert run(["recover", str(cut_log), "--dry-run", "-o", str(tmp_path / "copy")]) == 2
    with pytest.raises(ValueError, match="does not work with a copy"):
        rlds_tools.recover(cut_log, tmp_path / "copy", dry_run=True)


def test_streams_need_no_recovery(tmp_path):
    (tmp_path / "cut.mcap").write_bytes(b"")
    with pytest.raises(ValueError, match="needs no recovery"):
        rlds_tools.recover(tmp_path)
