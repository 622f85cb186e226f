"""`rlds export` finds the episodes in the folder of `rlds create`, without its database."""

import json
import shlex

import pytest
from recorded_episodes import write_episode

import envlogger
from rlds_tools.command_line import commands

FOREST = {"id": "environment-2", "name": "Forest"}
OTHER = {"id": "study-2", "name": "Other"}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    root = tmp_path_factory.mktemp("recordings")
    folder = root / "episodes"
    write_episode(folder / "z-first", 3, started=1.0, tags=[("done", 1, 1)])
    write_episode(folder / "a-second", 4, started=2.0)
    write_episode(folder / "b", 2, state="cancelled", started=0.5)
    write_episode(folder / "c", 2, environment=FOREST, started=3.0)
    write_episode(folder / "d", 2, study=OTHER, started=4.0)
    write_episode(folder / "e", 2, state="playing")
    (folder / "e" / "metadata.riegeli").write_bytes(b"")  # As if the episode had just begun.
    write_episode(folder / "f", 2)
    (folder / "f" / "deleted").touch()
    (folder / "notes.txt").write_text("")
    return root


@pytest.fixture
def export(recordings, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(arguments, path=recordings):
        code = commands.run(["export", str(path), *shlex.split(arguments)])
        return code, *capsys.readouterr()

    return run


def read_episode_ids(path):
    with envlogger.Reader(path) as reader:
        return [metadata["episode_id"] for metadata in reader.episode_metadata()]


def test_completed_episodes_are_exported_in_the_order_in_which_they_were_played(export):
    code, out, err = export("-o out/maze --study 'Find the exit' --environment Maze --end-at done")
    assert (code, err) == (0, "")
    assert out.startswith("out/maze: 2 episodes, 6 steps · log · ")
    assert "1 episode cut at a label" in out
    assert "left out: 1 cancelled, 1 playing" in out
    assert "next: rlds inspect out/maze/find_the_exit" in out
    assert read_episode_ids("out/maze/find_the_exit") == ["z-first", "a-second"]


def test_options_select_by_state_study_and_environment(export):
    code, out, _ = export("-o x --state cancelled --state completed --json --name 'My Name'")
    assert code == 0
    assert json.loads(out) == {
        "path": "x",
        "format": "log",
        "data": "my_name",
        "episodes": 5,
        "steps": 13,
        "cut": 0,
        "bytes": json.loads(out)["bytes"],
        "left_out": {"playing": 1},
    }
    assert read_episode_ids("x/my_name") == ["b", "z-first", "a-second", "c", "d"]
    assert export("-o y --study study-2")[1].startswith("y: 1 episode, 2 steps")
    assert export("-o z.d --environment Forest --zip")[1].startswith("z.d.zip: 1 episode, 2 steps")


def test_single_episode_is_exported_in_any_state(export, recordings):
    code, out, _ = export("-o one --name one", path=recordings / "episodes" / "b")
    assert (code, out.splitlines()[0][:23]) == (0, "one: 1 episode, 2 steps")
    assert read_episode_ids("one/one") == ["b"]


def test_errors_are_reported_in_one_line(export, recordings, tmp_path):
    code, _, err = export("-o out --state rejected")
    assert code == 1
    assert err == ("error: no episode to export; left out: 4 completed, 1 cancelled, 1 playing\n")
    assert export("-o out", path=tmp_path)[2].endswith("holds no recorded episodes.\n")
    assert export("-o out", path=tmp_path / "none")[2].endswith("is not a folder.\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert "full exists and is not overwritten" in export("-o full")[2]
    assert export("-o out --format pickle")[0] == 2
    code, _, err = export("-o out", path=recordings / "episodes" / "e")
    assert code == 1
    assert err.startswith("error: the log of episode e is damaged or unreadable. Repair it")
    assert "metadata.riegeli" in err
