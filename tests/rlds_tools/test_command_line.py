"""Common behaviour of all commands: help, output, errors, exit codes."""

import json
import shlex
import shutil
import subprocess
import sys
import warnings

import click
import numpy as np
import pytest
import raw_npz

from rlds_tools.command_line import main, rlds
from rlds_tools.command_line.commands import COMMANDS, run


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_documented(name):
    command = rlds.get_command(click.Context(rlds), name)
    assert command.help
    assert command.epilog.count("\n  rlds ") == 2  # Each page ends with two examples.
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, parameter.name


def test_the_output_is_data_and_nothing_else(dataset, capsys):
    assert run(["inspect", dataset]) == 0
    text = capsys.readouterr()
    assert text.out.startswith("tiny 1.0.0 · TFDS dataset")
    assert text.out.splitlines()[-1].startswith("next: rlds ")
    assert "\x1b" not in text.out
    assert not text.err
    assert run(["inspect", dataset, "--color", "always"]) == 0
    assert "\x1b[1m" in capsys.readouterr().out
    assert run(["inspect", dataset, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"][0]["episodes"] == 3
    assert run(["inspect", dataset, "--quiet"]) == 0
    assert not capsys.readouterr().out


def test_errors_are_one_line_and_a_code(tmp_path, capsys):
    assert run(["inspect", str(tmp_path / "no\x1bwhere")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert "\x1b" not in error
    assert run(["inspekt"]) == 2
    assert "Did you mean 'inspect'?" in capsys.readouterr().err
    assert run(["inspect", str(tmp_path), "--step", "1"]) == 2
    assert "--step needs --episode" in capsys.readouterr().err
    with pytest.raises(ValueError, match="an empty folder"):
        run(["inspect", str(tmp_path), "--verbose"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "--episode", "0"],
        ["inspect", "--episode", "0", "--step", "0"],
        ["inspect", "--json"],
        ["validate"],
        ["stats"],
        ["diff"],
        ["convert", "--plan", "--to", "zarr"],
    ],
    ids=" ".join,
)
def test_names_do_not_command_the_terminal(arguments, tmp_path, capsys):
    names = ["\x1b[2J\u202eevil", "\x9b2J", "long" * 15_000, "no " * 20_000 + "end"]
    files = {"a.npz": raw_npz.episode(3, **{name: np.arange(3) for name in names})}
    folder = str(raw_npz.write_folder(tmp_path / "a", files))
    command, *options = arguments
    places = {"diff": [folder, folder], "convert": [folder, str(tmp_path / "b")]}
    run([command, *places.get(command, [folder]), *options])
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert "evil" in text or command in ("validate", "diff")
    assert text.replace("\n", "").isprintable()
    assert "--json" in arguments or max(map(len, text.splitlines())) < 20_000


def test_words_for_edits_lead_to_the_options_of_edit(capsys):
    for word, command in (
        ("merge", "--merge OTHER"),
        ("split", "--split-by"),
        ("delete", "--delete"),
    ):
        assert run([word, "data"]) == 2
        assert f"Use: rlds edit PATH {command}" in capsys.readouterr().err


def test_data_of_no_format_is_refused_at_once_with_a_reason(tmp_path, capsys):
    """A clear answer at once, however large the file is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "half" / "1.0.0").mkdir(parents=True)
    (tmp_path / "half" / "1.0.0" / "features.json").write_text("{}")
    for name in ("large.bin", "large.tfrecord", "large.hdf5", "large.riegeli"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(100 << 30)
    expected = {
        "empty": "an empty folder",
        "half/1.0.0": "dataset_info.json, the last file to be written, is missing",
        "large.bin": "unknown format",
        "large.tfrecord": "no record begins at byte 0",
        "large.hdf5": "not a complete HDF5 file",
        "large.riegeli": "large.riegeli",
        "nowhere": "does not exist",
    }
    for name, words in expected.items():
        assert run(["inspect", str(tmp_path / name)]) == 1, name
        assert words in capsys.readouterr().err


def test_what_is_not_there_is_said_before_what_is_not_installed(monkeypatch, capsys):
    for module in ("starlette", "msgspec", "gymnasium"):
        monkeypatch.setitem(sys.modules, module, None)
    for call, words in (
        ("view nowhere", "'nowhere' does not exist"),
        ("export nowhere -o there", "'nowhere' is not a folder"),
        ("record cach -o logs", "no environment 'cach'; did you mean 'catch'?"),
        ("convert nowhere there --to lerobt", "did you mean 'lerobot'?"),
    ):
        assert run(call.split()) in (1, 2)
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["inspect"],
        ["inspect", "--episode", "1"],
        ["stats"],
        ["validate"],
        ["label"],
        ["card", "-o", "c.md"],
    ],
    ids=" ".join,
)
def test_commands_to_type_next_run_as_they_are_printed(words, log, tmp_path, monkeypatch, capsys):
    """Commands for a path with a space, with the options it was opened with."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(log, "a log")
    options = ["--split", "train"] if words[0] in ("inspect", "stats") else []
    options += ["--format", "envlogger", "-O", "float64=float32"]
    options += ["--where", "steps > 2"] if words == ["stats"] else []
    assert run([words[0], "a log", *words[1:], *options]) in (0, 1)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("next: rlds ")
    for command in line.removeprefix("next: ").split(" · "):
        assert command.endswith(shlex.join(options))
        following = [word for word in shlex.split(command)[1:] if word != "--open"]
        assert run(following) in (0, 1)
        assert "rror: " not in capsys.readouterr().err


def test_a_warning_is_a_line(tmp_path, monkeypatch, capsys):
    log = str(tmp_path)
    for arguments, expected in [
        ([], ""),
        (["--metadata", "x=1"], f"warning: {log}/metadata.riegeli keeps its metadata:"),
        (["--metadata", "x=1", "--quiet"], ""),
    ]:
        monkeypatch.setattr(sys, "argv", ["rlds", "record", "catch", "-o", log, *arguments])
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            assert run() == 0
        errors = capsys.readouterr().err
        assert errors.startswith(expected)
        assert errors.count("\n") == bool(expected)


def test_ctrl_c_ends_a_command_with_code_130(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("rlds_tools.inspection.inspect", interrupted)
    with pytest.raises(SystemExit) as exit:
        main(["inspect", "."])
    assert exit.value.code == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


def test_a_process_starts_without_what_it_does_not_need(dataset):
    code = (
        "import sys; from rlds_tools.command_line.commands import run; "
        f"run(['--help']); run(['inspect', {dataset!r}]); "
        "heavy = {'numpy', 'etils', 'rich', 'google', 'riegeli', 'rlds', 'envlogger'}; "
        "sys.exit(len(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    assert not subprocess.run([sys.executable, "-c", code], capture_output=True).returncode


def test_a_closed_pipe_is_no_error(dataset):
    command = f"{sys.executable} -m rlds_tools inspect {dataset} --json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout == "{\n"
    assert not done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_completion_script(shell, capsys):
    assert run(["completion", shell]) == 0
    assert "_RLDS_COMPLETE" in capsys.readouterr().out
