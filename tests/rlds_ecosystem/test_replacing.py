"""Something takes the place of something else: others see the old one or the new one."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from rlds_ecosystem import replacing
from rlds_ecosystem.replacing import finish_replacing, replaced


def write(folder, text):
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "a").write_text(text)
    (folder / "b").write_text(text)
    return folder


def read(folder):
    return [(folder / "below" / "a").read_text(), (folder / "b").read_text()]


@pytest.fixture(params=["exchange", "journal"])
def way(request, monkeypatch):
    if request.param == "journal":
        monkeypatch.setattr(replacing, "_exchange", lambda one, other: False)
    return request.param


def test_a_folder(tmp_path, way):
    path = write(tmp_path / "data", "old")
    with replaced(path) as draft:
        assert draft.name == "data"
        assert not draft.exists()
        write(draft, "new")
        assert read(path) == ["old", "old"]
    assert read(path) == ["new", "new"]
    assert os.listdir(tmp_path) == ["data"]
    with replaced(path, keep_old=True) as draft:
        write(draft, "newer")
    assert read(path) == ["newer", "newer"]
    assert read(tmp_path / "data.old") == ["new", "new"]
    with pytest.raises(FileExistsError, match="from an earlier edit"):
        with replaced(path, keep_old=True):
            pytest.fail("It began.")


def test_a_file_by_a_link(tmp_path, way):
    (tmp_path / "data.h5").write_text("old")
    (tmp_path / "link.h5").symlink_to("data.h5")
    with replaced(tmp_path / "link.h5") as draft:
        draft.write_text("new")
    assert (tmp_path / "data.h5").read_text() == "new"
    assert (tmp_path / "link.h5").is_symlink()


def test_what_fails_changes_nothing(tmp_path):
    path = write(tmp_path / "data", "old")
    with pytest.raises(KeyboardInterrupt), replaced(path) as draft:
        write(draft, "new")
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="changed meanwhile by somebody else"):
        with replaced(path) as draft:
            write(draft, "new")
            (path / "below" / "c").write_text("recorded now")
    with pytest.raises(RuntimeError), replaced(path):
        with pytest.raises(FileExistsError, match="another process is editing it"):
            with replaced(path):
                pytest.fail("It began.")
        raise RuntimeError
    assert read(path) == ["old", "old"]
    assert os.listdir(tmp_path) == ["data"]
    with pytest.raises(ValueError, match="write to another place"), replaced("gs://bucket/data"):
        pytest.fail("It began.")


@pytest.mark.parametrize("when", [0, 1])
def test_a_kill_between_two_names(tmp_path, monkeypatch, when):
    path = write(tmp_path / "data", "old")
    monkeypatch.setattr(replacing, "_exchange", lambda one, other: False)
    rename, calls = os.rename, []

    def killed(one, other):
        if len(calls) == when:
            os._exit(9)
        calls.append(one)
        rename(one, other)

    if (child := os.fork()) == 0:
        monkeypatch.setattr(os, "rename", killed)
        with replaced(path) as draft:
            write(draft, "new")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert path.exists() == (when == 0)
    finish_replacing(path)
    assert read(path) == [["old", "old"], ["new", "new"]][when]
    with replaced(path) as draft:
        write(draft, "newer")
    assert read(path) == ["newer", "newer"]


_EDITOR = """
import pathlib, sys
from rlds_ecosystem import replacing
if sys.argv[2] == "journal":
    replacing._exchange = lambda one, other: False
path = pathlib.Path(sys.argv[1])
for number in range(10**6):
    with replacing.replaced(path) as draft:
        (draft / "below").mkdir(parents=True)
        (draft / "below" / "a").write_text(str(number))
        (draft / "b").write_text(str(number))
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exchange", "journal"])
def test_kills_at_random_moments(tmp_path, way):
    path = write(tmp_path / "data", "0")
    for seed in range(20):
        editor = subprocess.Popen([sys.executable, "-c", _EDITOR, path, way])
        time.sleep(0.4 + random.Random(seed).random() / 2)
        editor.send_signal(signal.SIGKILL)
        editor.wait()
        finish_replacing(path)
        one, two = read(path)
        assert one == two
