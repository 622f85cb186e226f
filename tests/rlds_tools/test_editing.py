"""`rlds edit` on the command line."""

import json

import hostile_sources
import pytest

import rlds.sources
from rlds_tools.command_line import commands


@pytest.fixture
def demos(tmp_path):
    """A file of three episodes."""
    hostile_sources.FORMATS["d4rl"].write(tmp_path)
    (path,) = tmp_path.glob("*.hdf5")
    return path


def run(*words):
    return commands.run(list(map(str, words)))


def test_edits_are_planned_applied_and_recorded(demos, tmp_path, capsys):
    episodes = list(rlds.sources.open(demos))
    assert run("edit", demos, "--delete", "index = 1", "--plan") == 0
    output = capsys.readouterr().out
    assert output.startswith(
        "plan; nothing was written\nd4rl: 2 of 3 episodes stay\n2 are copied unchanged"
    )
    assert len(rlds.sources.open(demos)) == 3
    words = ("--delete-episodes", "1", "--trim", "1:3", "--where", "index = 2", "--keep-old")
    assert run("edit", demos, *words, "--describe", "robot=left") == 0
    assert "2 episodes of 3 in " in capsys.readouterr().out
    edited = rlds.sources.open(demos)
    assert [len(episode) for episode in edited] == [len(episodes[0]), 2]
    assert edited.metadata["robot"] == "left"
    assert len(rlds.sources.open(f"{demos}.old", format="d4rl")) == 3
    assert run("inspect", demos, "--lineage") == 0
    assert "trim begin: 1, end: 3, where: index = 2\n" in capsys.readouterr().out
    assert run("inspect", demos, "--lineage", "--episode", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["episode"] == [[demos.name, "train", 2]]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("- {do: keep, episodes: [0]}\n- {do: rename, old: action, new: act}\n")
    assert run("edit", demos, "--recipe", recipe, "--as", "webdataset", "--to", tmp_path / "w") == 0
    assert "act" in rlds.sources.open(tmp_path / "w").spec["steps"]
    options = ("--split", "one=index = 0", "--split", "rest", "--to", tmp_path / "parts")
    assert run("edit", demos, *options) == 0
    assert sorted(path.name for path in (tmp_path / "parts").glob("[!.]*")) == [
        "one.hdf5",
        "rest.hdf5",
    ]
    assert (
        run("edit", tmp_path / "parts" / "one.hdf5", "--merge", demos, "--to", tmp_path / "m.h5")
        == 0
    )
    assert len(rlds.sources.open(tmp_path / "m.h5")) == 3


def test_episodes_of_chained_conversions_keep_their_lineage(demos, tmp_path, capsys):
    origin = rlds.sources.open(demos)[1].origin
    assert run("convert", demos, tmp_path / "w", "--to", "webdataset", "--where", "index > 0") == 0
    assert run("convert", tmp_path / "w", tmp_path / "r.hdf5", "--to", "robomimic") == 0
    assert run("convert", tmp_path / "r.hdf5", tmp_path / "data", "--name", "demos") == 0
    (tmp_path / "r.hdf5").unlink()  # The lineage needs no source.
    capsys.readouterr()
    assert run("inspect", tmp_path / "data", "--lineage") == 0
    output = capsys.readouterr().out
    assert "\n  convert format: tfds, options: {'name': 'demos'" in output
    for line in (
        "convert format: robomimic",
        "convert format: webdataset",
        "where: index > 0",
    ):
        assert f"{line}\n" in output
    assert "2 of 3 episodes, from" in output
    origins = []
    for index in "01":
        assert run("inspect", tmp_path / "data", "--lineage", "--episode", index, "--json") == 0
        origins.append(json.loads(capsys.readouterr().out)["origin"])
    assert {"file": origin.file, "begin": origin.begin, "end": origin.end} in origins
    assert run("inspect", tmp_path / "w", "--lineage", "--episode", "0") == 0
    rows = f"in {origin.file}, rows {origin.begin} to {origin.end}"
    assert f"  {demos.name}, train, 1\n  {rows}\n" in capsys.readouterr().out
    # The lineage is a recipe, too.
    recipe = tmp_path / "w" / ".rlds" / "lineage.json"
    assert run("edit", demos, "--recipe", recipe, "--to", tmp_path / "again") == 0
    (shard,) = (tmp_path / "w").glob("*.tar")
    assert (tmp_path / "again" / shard.name).read_bytes() == shard.read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "nothing to do: give an operation, such as --delete"),
        (("--set", "success"), 2, "--set: got 'success', expected NAME=VALUE"),
        (("--trim", "5"), 2, "--trim: got '5', expected BEGIN:END"),
        (("--delete-episodes", "a"), 2, "--delete-episodes: got 'a', expected numbers"),
        (("--where", "index = 1"), 2, "--where needs --set, --trim or --fix"),
        (("--delete", "nothing = 1"), 1, "nothing"),
        (
            ("--split", "a=0.5", "--split", "b=0.5"),
            1,
            "pass the path of the new dataset (to, --to)",
        ),
        (
            ("--fix", "--as", "minari"),
            1,
            "is d4rl, and the new format is minari: pass the path of the new dataset (to, --to)",
        ),
    ],
)
def test_invalid_edits_are_errors_with_an_exit_code(demos, capsys, words, code, message):
    assert run("edit", demos, *words) == code
    assert message in capsys.readouterr().err


def test_errors_name_the_recipe_and_the_episode(demos, tmp_path, capsys):
    recipe = tmp_path / "recipe.json"
    recipe.write_text("[{do")
    assert run("edit", demos, "--recipe", recipe) == 1
    assert f"{str(recipe)!r}: " in capsys.readouterr().err
    assert run("inspect", demos, "--lineage", "--episode", "99") == 1
    assert "99" in capsys.readouterr().err


def test_files_that_cannot_be_read_or_written_are_named(demos, tmp_path, capsys):
    recipe = tmp_path / "recipe.json"
    for content, message in (("{bad", "not valid JSON"), ("\udcff", "codec can't decode")):
        recipe.write_text(content, errors="surrogateescape")
        assert run("edit", demos, "--recipe", recipe) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"error: '{recipe}': ")
        assert message in error
    nowhere = tmp_path / "nowhere" / "stats.json"
    assert run("stats", demos, "--out", nowhere) == 1
    assert capsys.readouterr().err == f"error: {nowhere}: No such file or directory\n"
