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


def test_standard_output_holds_only_data(dataset, capsys):
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


def test_errors_are_one_line_and_an_exit_code(tmp_path, capsys):
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
def test_field_names_send_no_control_characters_to_the_terminal(arguments, tmp_path, capsys):
    names = ["\x1b[2J\u202eevil", "\x9b2J", "long" * 15_000, "no " * 20_000 + "end"]
    files = {"a.npz": raw_npz.episode(3, **{name: np.arange(3) for name in names})}
    folder = str(raw_npz.write_folder(tmp_path / "a", files))
    command, *options = arguments
    paths = {"diff": [folder, folder], "convert": [folder, str(tmp_path / "b")]}
    run([command, *paths.get(command, [folder]), *options])
    output = capsys.readouterr()
    text = output.out + output.err
    assert "evil" in text or command in ("validate", "diff")
    assert text.replace("\n", "").isprintable()
    assert "--json" in arguments or max(map(len, text.splitlines())) < 20_000


def test_unknown_commands_for_edits_suggest_options_of_edit(capsys):
    for name, option in (
        ("merge", "--merge OTHER"),
        ("split", "--split-by"),
        ("delete", "--delete"),
    ):
        assert run([name, "data"]) == 2
        assert f"Use: rlds edit PATH {option}" in capsys.readouterr().err


def test_data_of_unknown_format_is_refused_with_a_reason(tmp_path, capsys):
    """The answer comes at once, however large the file is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "half" / "1.0.0").mkdir(parents=True)
    (tmp_path / "half" / "1.0.0" / "features.json").write_text("{}")
    for name in ("large.bin", "large.tfrecord", "large.hdf5", "large.riegeli"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(100 << 30)
    messages = {
        "empty": "an empty folder",
        "half/1.0.0": "dataset_info.json, the last file to be written, is missing",
        "large.bin": "unknown format",
        "large.tfrecord": "no record begins at byte 0",
        "large.hdf5": "not a complete HDF5 file",
        "large.riegeli": "large.riegeli",
        "nowhere": "does not exist",
    }
    for name, message in messages.items():
        assert run(["inspect", str(tmp_path / name)]) == 1, name
        assert message in capsys.readouterr().err


def test_missing_inputs_are_reported_before_missing_packages(monkeypatch, capsys):
    for module in ("starlette", "msgspec", "gymnasium"):
        monkeypatch.setitem(sys.modules, module, None)
    for call, message in (
        ("view nowhere", "'nowhere' does not exist"),
        ("export nowhere -o there", "'nowhere' is not a folder"),
        ("record cach -o logs", "no environment 'cach'; did you mean 'catch'?"),
        ("convert nowhere there --to lerobt", "did you mean 'lerobot'?"),
    ):
        assert run(call.split()) in (1, 2)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
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
def test_printed_next_commands_run(arguments, log, tmp_path, monkeypatch, capsys):
    """The path has a space; the commands repeat the options."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(log, "a log")
    options = ["--split", "train"] if arguments[0] in ("inspect", "stats") else []
    options += ["--format", "envlogger", "-O", "float64=float32"]
    options += ["--where", "steps > 2"] if arguments == ["stats"] else []
    assert run([arguments[0], "a log", *arguments[1:], *options]) in (0, 1)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("next: rlds ")
    for command in line.removeprefix("next: ").split(" · "):
        assert command.endswith(shlex.join(options))
        next_arguments = [word for word in shlex.split(command)[1:] if word != "--open"]
        assert run(next_arguments) in (0, 1)
        assert "rror: " not in capsys.readouterr().err


def test_a_warning_is_one_line(tmp_path, monkeypatch, capsys):
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
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("rlds_tools.inspection.inspect", interrupt)
    with pytest.raises(SystemExit) as exit:
        main(["inspect", "."])
    assert exit.value.code == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


def test_help_and_inspect_load_no_heavy_modules(dataset):
    code = (
        "import sys; from rlds_tools.command_line.commands import run; "
        f"run(['--help']); run(['inspect', {dataset!r}]); "
        "heavy = {'numpy', 'etils', 'rich', 'google', 'riegeli', 'rlds', 'envlogger'}; "
        "sys.exit(len(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    assert not subprocess.run([sys.executable, "-c", code], capture_output=True).returncode


def test_a_closed_pipe_prints_no_error(dataset):
    command = f"{sys.executable} -m rlds_tools inspect {dataset} --json | head -1"
    process = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert process.stdout == "{\n"
    assert not process.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_completion_script(shell, capsys):
    assert run(["completion", shell]) == 0
    assert "_RLDS_COMPLETE" in capsys.readouterr().out
