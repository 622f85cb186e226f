"""After any failure, the old or the new dataset is complete, and nothing is lost."""

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rlds.sources import SourceError, format_of, open
from rlds_ecosystem.files import whole_files
from rlds_ecosystem.files.replacing import finish_replacing, replace_dataset
from rlds_ecosystem.files.whole_files import atomic_target, exchange, journal_of
from rlds_ecosystem.model.errors import StorageError

pytest.importorskip("fcntl")

# The functions of the processes that are killed.
PRELUDE = """
import itertools, os, random, signal, sys, time
from pathlib import Path
from rlds_ecosystem.files import whole_files
from rlds_ecosystem.files.replacing import finish_replacing, replace_dataset

def make(folder, version):
    (folder / "below").mkdir(parents=True)
    for name in ("a", "b", "below/c"):
        (folder / name).write_text(version)

def version_of(folder):
    (version,) = {(folder / name).read_text() for name in ("a", "b", "below/c")}
    return version

def replace(path, version, **options):
    with replace_dataset(path, **options) as draft:
        make(draft, version)

def in_child(act):
    pid = os.fork()
    if not pid:
        act()
        os._exit(0)
    return pid

path = Path(sys.argv[1], "data")
"""


def run(code, *arguments):
    script = PRELUDE + textwrap.dedent(code)
    subprocess.run([sys.executable, "-c", script, *map(str, arguments)], check=True)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "file").write_text("old")
    return folder


def write(draft, text="new"):
    draft.mkdir()
    (draft / "file").write_text(text)


def test_a_kill_at_any_file_operation_leaves_a_complete_version(tmp_path):
    """Each moment has a folder; without `exchange`, the path is missing for one moment."""
    run(
        """
        def die_at(moment):
            calls = itertools.count()
            def watch(function):
                def call(*arguments, **options):
                    if next(calls) == moment:
                        os.kill(os.getpid(), signal.SIGKILL)
                    result = function(*arguments, **options)
                    if next(calls) == moment:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return result
                return call
            for name in ("rename", "replace", "unlink", "rmdir", "fsync", "mkdir"):
                setattr(os, name, watch(getattr(os, name)))
            whole_files.exchange = watch(whole_files.exchange)

        own_exchange = whole_files.exchange
        for exchanges, keep_old in itertools.product((True, False), repeat=2):
            whole_files.exchange = own_exchange if exchanges else lambda *_: False
            outcomes = set()
            for moment in itertools.count():
                path = Path(sys.argv[1], f"{exchanges}-{keep_old}-{moment}", "data")
                make(path, "old")
                (path / ".rlds" / "labels").mkdir(parents=True)
                (path / ".rlds" / "labels" / "mine").write_text("good")
                def act():
                    die_at(moment)
                    replace(path, "new", keep_old=keep_old)
                _, status = os.waitpid(in_child(act), 0)
                has_name = path.exists()
                finish_replacing(path)
                version, old_path = version_of(path), path.with_name("data.old")
                outcomes.add((has_name, version))
                assert (path / ".rlds" / "labels" / "mine").read_text() == "good"
                assert not whole_files.journal_of(path).exists()
                if keep_old and version == "new":
                    assert version_of(old_path) == "old"
                else:
                    assert not old_path.exists()
                if status == 0:
                    assert moment > 20 and version == "new"
                    break
                replace(path, "newer")
                assert version_of(path) == "newer"
                assert {*os.listdir(path.parent)} <= {"data", "data.old"}
            expected = {(True, "old"), (True, "new")}
            assert outcomes == (expected if exchanges else expected | {(False, "new")}), outcomes
        """,
        tmp_path,
    )


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("kills", [6, pytest.param(150, marks=pytest.mark.slow)])
def test_a_killed_replacement_leaves_a_complete_version(tmp_path, kills, exchanges):
    run(
        """
        if sys.argv[3] == "False":
            whole_files.exchange = lambda *_: False
        make(path, "0")
        replacements, on_replacement = os.pipe()
        def act():
            while True:
                replace(path, str(int(version_of(path)) + 1))
                os.write(on_replacement, b".")
        versions = []
        for _ in range(int(sys.argv[2])):
            child = in_child(act)
            if not versions:
                os.read(replacements, 1)
            time.sleep(random.uniform(0.02, 0.1))
            finish_replacing(path)  # While the child replaces it.
            os.kill(child, signal.SIGKILL)
            assert os.waitpid(child, 0)[1] == signal.SIGKILL
            finish_replacing(path)
            versions.append(int(version_of(path)))
        assert versions == sorted(versions) and versions[-1] > 0, versions
        replace(path, "last")
        assert os.listdir(path.parent) == ["data"] and version_of(path) == "last"
        """,
        tmp_path,
        kills,
        exchanges,
    )


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("keep_old", [True, False])
@pytest.mark.parametrize("is_file", [True, False])
def test_the_draft_replaces_the_old_version(
    tmp_path, data, monkeypatch, exchanges, keep_old, is_file
):
    if not exchanges:
        monkeypatch.setattr(whole_files, "exchange", lambda *_: False)
    path = data / "file" if is_file else data
    path.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(path)
    with replace_dataset(link, keep_old=keep_old) as draft:
        assert (draft.name, draft.parent.parent) == (path.name, path.parent)
        if is_file:
            draft.write_text("new")
        else:
            write(draft)
        assert (data / "file").read_text() == "old"
    assert link.is_symlink()
    assert (data / "file").read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o700
    old_path = path.with_name(f"{path.name}.old")
    links = {link.name} if not is_file else set()
    assert {*os.listdir(path.parent)} == {path.name} | links | {*[old_path.name] * keep_old}
    if keep_old:
        assert (old_path if is_file else old_path / "file").read_text() == "old"
        with pytest.raises(FileExistsError, match="rename or remove"):
            with replace_dataset(path, keep_old=True):
                raise AssertionError("it is refused before anything is written")


def test_exchange_swaps_two_paths(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").write_text("2")
    assert exchange(tmp_path / "one", tmp_path / "two") == sys.platform.startswith(
        ("linux", "darwin")
    )
    assert (tmp_path / "one").read_text() == "2"
    assert not exchange(tmp_path / "one", tmp_path / "missing")


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.ENOSPC, "")]
)
@pytest.mark.parametrize("failing", ["body", "fsync", "rename"])
def test_an_error_leaves_the_old_version(data, monkeypatch, error, failing):
    def fail(*_):
        raise error

    with pytest.raises(type(error)), monkeypatch.context() as patch, replace_dataset(data) as draft:
        write(draft)
        patch.setattr(whole_files, "exchange", lambda *_: False)
        if failing == "body":
            raise error
        patch.setattr(os, failing, fail)
    assert (data / "file").read_text() == "old"
    assert os.listdir(data.parent) == ["data"]


def test_an_interrupted_replacement_is_finished_later(data, monkeypatch):
    rename = os.rename

    def interrupt_rename(source, target):
        rename(source, target)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), replace_dataset(data, keep_old=True) as draft:
        write(draft)
        with monkeypatch.context() as patch:
            patch.setattr(whole_files, "exchange", lambda *_: False)
            patch.setattr(os, "rename", interrupt_rename)
            whole_files.replace_by_draft(data, draft.parent, keep_old=True)
    assert (data / "file").read_text() == "new"
    assert (data.with_name("data.old") / "file").read_text() == "old"


def test_two_replacements_at_once_are_an_error(data):
    with replace_dataset(data) as draft:
        for _ in range(2):  # The first draft stays.
            with pytest.raises(FileExistsError, match=r"data: another process .* is writing it"):
                with replace_dataset(data):
                    raise AssertionError("it is refused")
        write(draft)
    assert (data / "file").read_text() == "new"


def test_files_added_during_a_replacement_are_not_lost(data):
    with pytest.raises(StorageError, match="data changed while"), replace_dataset(data) as draft:
        write(draft)
        (data / "added").write_text("")
    assert {*os.listdir(data)} == {"file", "added"}
    versions = iter("112")
    with replace_dataset(data, identity=lambda: next(versions)) as draft:
        write(draft)
        (data / "added").write_text("more")
    assert os.listdir(data) == ["file"]
    with (
        pytest.raises(StorageError, match="changed"),
        replace_dataset(data, identity=[2, 3].pop) as draft,
    ):
        write(draft)
    assert os.listdir(data.parent) == ["data"]


def test_labels_survive_a_replacement(data):
    labels = data / ".rlds" / "labels"
    labels.mkdir(parents=True)
    (data / ".rlds" / "episodes-train.parquet").write_text("of the old one")
    with replace_dataset(data) as draft:
        write(draft)
        (labels / "mine").write_text("good")  # During the replacement.
    assert (labels / "mine").read_text() == "good"
    assert os.listdir(data / ".rlds") == ["labels"]
    with replace_dataset(data) as draft:
        write(draft)
        shutil.copytree(labels, draft / ".rlds" / "labels")
        (draft / ".rlds" / "labels" / "mine").write_text("of the new one")
    assert (labels / "mine").read_text() == "of the new one"
    with pytest.raises(StorageError, match="changed"), replace_dataset(data) as draft:
        write(draft)
        shutil.copytree(labels, draft / ".rlds" / "labels")
        (labels / "other").write_text("too late")
    assert {*os.listdir(labels)} == {"mine", "other"}


def stop_between_renames(path, text="new"):
    """Leaves the files of a process that is killed between its two renames."""
    draft = path.with_name(f".{path.name}.draft")
    (draft / path.name).mkdir(parents=True)
    (draft / path.name / "file").write_text(text)
    journal_of(path).write_text('{"new": 0, "keep_old": false}')
    path.rename(draft / ".old")


def test_opening_or_writing_data_finishes_its_replacement(data):
    stop_between_renames(data)
    with pytest.raises(FileExistsError, match="not overwritten"), atomic_target(data):
        raise AssertionError("it is there")
    assert (data / "file").read_text() == "new"
    for read in (format_of, open, lambda path: open(path, format="tfds")):
        shutil.rmtree(data.with_name(".data.draft"), ignore_errors=True)
        stop_between_renames(data)
        with pytest.raises((SourceError, FileNotFoundError), match=r"unknown format|_info\.json"):
            read(data)
        assert (data / "file").read_text() == "new"
        assert not journal_of(data).exists()


def test_finishing_without_write_access_fails_only_if_data_is_missing(data, monkeypatch):
    def fail(*_, **__):
        raise PermissionError("read-only")

    journal_of(data).write_text('{"new": 0, "keep_old": false}')
    monkeypatch.setattr(Path, "mkdir", fail)
    finish_replacing(data)
    data.rename(data.with_name("elsewhere"))
    with pytest.raises(PermissionError):
        finish_replacing(data)


def test_stores_and_missing_data_cannot_be_replaced(tmp_path):
    with pytest.raises(ValueError, match="--to"), replace_dataset("gs://bucket/data"):
        pass
    finish_replacing("gs://bucket/data")  # No request is sent.
    with pytest.raises(FileNotFoundError, match="missing does not exist"):
        with replace_dataset(tmp_path / "missing" / "missing"):
            pass
    assert os.listdir(tmp_path) == []
    (tmp_path / "data").write_text("old")
    with pytest.raises(FileNotFoundError), replace_dataset(tmp_path / "data"):
        pass  # Nothing is written.
    assert (tmp_path / "data").read_text() == "old"
