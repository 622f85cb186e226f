"""Datasets written in parts have the same bytes as those written at once, after any kill."""

import io
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import many_episodes
import numpy as np
import pytest
from export_options import NAMES, options_for
from many_episodes import Interrupted, ManyEpisodes

import rlds
import rlds.sources
from rlds.sources import SourceChangedError, SourceError, export
from rlds.sources.testing import differences
from rlds_ecosystem.files.processes import WorkerDied

# Other layouts of formats: the format, the name and an option.
LAYOUTS = {
    "zarr.zip": ("zarr", "made.zarr.zip", {}),
    "arrow": ("minari", "made-v0", {"data_format": "arrow"}),
}
FORMATS = [*rlds.sources.exports(), *LAYOUTS]
# Formats of many files, of one file, and of a payload that is copied by chunks.
SLOW = pytest.mark.slow
QUICK = ("lerobot", "robomimic", "envlogger")


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return many_episodes.write(tmp_path_factory.mktemp("raw") / "many")


def contents(path):
    """Returns the files of a dataset, by name, with their bytes."""
    path = Path(path)
    if path.is_file():
        return {path.name: path.read_bytes()}
    # Indexes for feeds contain modification times.
    files = [file for file in path.rglob("*") if file.is_file() and ".feeds" not in file.parts]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def read_values(path):
    """Returns the files of a dataset, with values instead of the bytes of HDF5 files."""
    actual = contents(path)
    for name, data in actual.items():
        if name.endswith((".h5", ".hdf5")):
            actual[name] = read_hdf5(data)
        elif name.endswith("data/metadata.json"):  # Of Minari.
            actual[name] = {**json.loads(data), "dataset_size": 0}
    return actual


def read_hdf5(data):
    """Returns the arrays, groups and attributes of an HDF5 file, and the layout of the arrays."""
    actual = {}

    def add(name, item):
        attributes = {key: np.asarray(value) for key, value in item.attrs.items()}
        if isinstance(item, h5py.Dataset):
            attributes |= {"": np.asarray(item[()])}
            actual[name] = item.dtype, item.chunks, item.maxshape, item.compression
        for key, value in attributes.items():
            actual[f"{name}@{key}"] = value.dtype, value.tolist()

    with h5py.File(io.BytesIO(data)) as file:
        add("/", file)
        file.visititems(add)
    return actual


def write(source, format, folder, **options):
    """Exports a source; returns the path."""
    default = format, NAMES.get(format, "made"), {}
    directory, (format, name, layout) = folder / format, LAYOUTS.get(format, default)
    path = directory / name
    source_options = options_for(format, rlds.sources.Episodes(source, "train"))
    export(source, format, path, **source_options, **layout, **options)
    return path


@pytest.mark.parametrize(
    "format", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in FORMATS]
)
def test_parts_equal_an_export_at_once(format, raw, tmp_path, monkeypatch):
    parts = write(ManyEpisodes(raw), format, tmp_path / "parts", jobs=1)
    assert not [name for name in os.listdir(parts.parent) if name.endswith(".parts")]
    monkeypatch.setattr(ManyEpisodes, "knows_lengths", True)
    once = write(ManyEpisodes(raw), format, tmp_path / "once", at_once=format != "tfds")
    expected, actual = read_values(once), read_values(parts)
    assert expected.keys() == actual.keys()
    changed_names = [name for name in expected if expected[name] != actual[name]]
    assert [name for name in changed_names if not name.endswith(".riegeli")] == []
    if changed_names:  # A log has a short chunk where a part ends.
        assert "envlogger" in format
        for first, second in zip(*map(rlds.sources.open, (once, parts)), strict=True):
            assert [*differences(first, second)] == []


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_two_processes_give_the_same_bytes_as_one(format, raw, tmp_path):
    one, two = (
        contents(write(ManyEpisodes(raw), format, tmp_path / str(jobs), jobs=jobs))
        for jobs in (1, 2)
    )
    assert one == two


def edit(source, format, folder, **options):
    """Exports a source with other rewards; returns the path."""
    path = folder / format / NAMES.get(format, "made")
    episodes, change = rlds.sources.Episodes(source, "train"), rlds.editing.Set("reward", 1.0)
    rlds.edit(episodes, change, to=path, to_format=format, **options)
    return path


@pytest.mark.parametrize("make", [write, edit])
def test_interrupted_run_resumes(make, raw, tmp_path, monkeypatch):
    monkeypatch.setattr(ManyEpisodes, "stop", 40)
    with pytest.raises(Interrupted):
        make(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    assert os.listdir(tmp_path / "robomimic") == [".made.h5.parts"]
    monkeypatch.setattr(ManyEpisodes, "stop", None)
    monkeypatch.setattr(ManyEpisodes, "reads", [])
    path = make(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    assert {*ManyEpisodes.reads} - {0} == {*range(23, 70)}
    full = make(ManyEpisodes(raw), "robomimic", tmp_path / "whole", jobs=1)
    assert contents(path) == contents(full)


@pytest.mark.parametrize("last", ["rmdir", "unlink"])
def test_run_interrupted_while_it_removes_parts_is_cleaned_up(last, raw, tmp_path, monkeypatch):
    real = getattr(Path, last)

    def stop(path, *arguments, **options):
        if path.name in (".made.h5.parts", "joined") and (tmp_path / "robomimic/made.h5").exists():
            raise Interrupted
        real(path, *arguments, **options)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(Path, last, stop)
        write(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    left = {*os.listdir(tmp_path / "robomimic")}
    with pytest.raises(FileExistsError):
        write(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    assert left - {*os.listdir(tmp_path / "robomimic")} == {".made.h5.parts"}


def test_parts_of_other_data_or_options_are_not_resumed(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(ManyEpisodes, "stop", 40)
    with pytest.raises(Interrupted):
        write(ManyEpisodes(raw), "lerobot", tmp_path, jobs=1)
    monkeypatch.setattr(ManyEpisodes, "stop", None)
    parts = tmp_path / "lerobot" / ".made.parts"
    with pytest.raises(ValueError, match=r"made\.parts has parts .* other data or with other"):
        export(ManyEpisodes(raw), "lerobot", tmp_path / "lerobot" / "made", fps=20, jobs=1)
    assert (parts / "00000.json").exists()
    other = many_episodes.write(tmp_path / "other", 40)
    with pytest.raises(ValueError, match=r"made\.parts has parts .* other data or with other"):
        write(ManyEpisodes(other), "lerobot", tmp_path, jobs=1)
    write(ManyEpisodes(raw), "lerobot", tmp_path, jobs=1)
    assert not parts.exists()


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_damaged_episodes_are_left_out_of_parts(jobs, tmp_path):
    raw = many_episodes.write(tmp_path / "raw")
    for index in (5, 66):
        (raw / f"episode_{index:03d}.npz").write_bytes(b"no zip")
    with pytest.raises(SourceError, match="episode_005"):
        write(ManyEpisodes(raw), "robomimic", tmp_path, jobs=jobs)
    with pytest.warns(UserWarning, match=r"2 episodes are damaged and left out, .*episode_005"):
        path = write(ManyEpisodes(raw), "robomimic", tmp_path, jobs=jobs, skip_damaged=True)
    actual = rlds.sources.open(path)
    assert len(actual) == 68
    kept = [index for index in range(70) if index not in (5, 66)]
    notes = [str(episode.steps["note"][0]) for episode in actual]
    assert notes == [f"ü{index}" for index in kept]


def test_error_names_episodes_of_a_dead_worker_and_other_parts_are_kept(raw, tmp_path):
    with pytest.raises(WorkerDied, match="exit status 3") as caught:
        write(ManyEpisodes(raw, deadly=66), "robomimic", tmp_path, jobs=2)
    assert "at the episodes 47 to 69" in caught.value.__notes__[0]
    parts = tmp_path / "robomimic" / ".made.h5.parts"
    assert {"00000.json", "00001.json"} <= {*os.listdir(parts)}


def test_a_class_of_a_script_stays_in_its_process(raw, tmp_path):
    """Other processes cannot import it, and the script needs no `__main__` guard."""
    script = tmp_path / "script.py"
    script.write_text(
        f"""import sys
sys.path.append({str(Path(many_episodes.__file__).parent)!r})
import rlds.sources, many_episodes
class Mine(many_episodes.ManyEpisodes):
    pass
rlds.sources.export(Mine({str(raw)!r}), "robomimic", sys.argv[1], jobs=2)
print("once")
"""
    )
    call = [sys.executable, script, tmp_path / "made.h5"]
    run = subprocess.run(call, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("once\n", "")
    assert len(rlds.sources.open(tmp_path / "made.h5")) == many_episodes.NUM_EPISODES


def test_edits_of_all_episodes_are_written_in_parts(raw, tmp_path):
    original = write(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    edited = tmp_path / "edited.h5"
    rlds.edit(original, rlds.editing.Set("reward", 1.0), to=edited, jobs=1)
    for old, new in zip(rlds.sources.open(original), rlds.sources.open(edited), strict=True):
        np.testing.assert_array_equal(
            old.steps["observation"]["camera"], new.steps["observation"]["camera"]
        )
        assert new.steps["reward"][:-1].tolist() == [1.0] * (new.num_steps - 1)


def test_jobs_of_a_cluster_each_write_a_part(raw, tmp_path, monkeypatch):
    source = ManyEpisodes(raw)
    target, drafts = tmp_path / "made.h5", tmp_path / "drafts"
    for index in (3, 1):
        output = export(source, "robomimic", target, part=(index, 3), draft=drafts)
        assert (output.path, output.num_steps) == (str(drafts / ".made.h5.parts"), None)
    for part, draft, error in (((4, 3), drafts, "got 4 of 3"), ((1, 3), "gs://b", "object store")):
        with pytest.raises(ValueError, match=error):
            export(source, "robomimic", target, part=part, draft=draft)
    assert not target.exists()
    with pytest.raises(ValueError, match="other data or with other options"):
        export(source, "robomimic", target, compression="gzip", part=(1, 3), draft=drafts)
    monkeypatch.setattr(ManyEpisodes, "reads", [])
    export(source, "robomimic", target, draft=drafts, jobs=1)
    assert {*ManyEpisodes.reads} == {*range(23, 47)}  # Episodes of the second job.
    export(source, "robomimic", tmp_path / "whole" / "made.h5", jobs=1)
    assert contents(target) == contents(tmp_path / "whole" / "made.h5")
    assert os.listdir(drafts) == []


PART_SCRIPT = """
import sys
sys.path.append(sys.argv[1])
import rlds.sources, many_episodes
source = many_episodes.ManyEpisodes(sys.argv[2], deadly=int(sys.argv[5]))
rlds.sources.export(source, "lerobot", sys.argv[3], fps=10, part=(int(sys.argv[4]), 3))
"""


@pytest.mark.slow
def test_dead_job_of_a_cluster_can_be_repeated(raw, tmp_path, monkeypatch):
    support, target = Path(many_episodes.__file__).parent, tmp_path / "made"

    def start(part, deadly=-1):
        call = [sys.executable, "-c", PART_SCRIPT, support, raw, target, part, deadly]
        return subprocess.Popen(list(map(str, call)))

    jobs = [start(1), start(2, deadly=40), start(3)]
    assert [job.wait() for job in jobs] == [0, 3, 0]
    assert start(2).wait() == 0
    monkeypatch.setattr(ManyEpisodes, "reads", [])
    export(ManyEpisodes(raw), "lerobot", target, fps=10, jobs=1)
    assert ManyEpisodes.reads == []
    export(ManyEpisodes(raw), "lerobot", tmp_path / "whole", fps=10, jobs=1)
    assert contents(target) == contents(tmp_path / "whole")


class WaitingEpisodes(ManyEpisodes):
    """Waits at episode 40."""

    begun, go_on = threading.Event(), threading.Event()

    def read(self, split, index, fields=None, rows=slice(None)):
        if index == 40:
            self.begun.set()
            assert self.go_on.wait(600)
        return super().read(split, index, fields, rows)


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ({"jobs": 1}, {"jobs": 1}, r"made\.h5: another process.* is writing it"),
        ({"jobs": 1}, {"part": (1, 2)}, r"h5\.parts: another process.* is writing parts here"),
        ({"part": (2, 2)}, {"jobs": 1}, r"h5\.parts: another process.* is writing parts here"),
        ({"part": (2, 2)}, {"part": (1, 2)}, ""),
    ],
)
def test_only_parts_are_written_at_the_same_time(first, second, error, raw, tmp_path):
    target = tmp_path / "made.h5"
    WaitingEpisodes.begun.clear()
    WaitingEpisodes.go_on.clear()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(export, WaitingEpisodes(raw), "robomimic", target, **first)
        assert WaitingEpisodes.begun.wait(600)
        try:
            if error:
                with pytest.raises(FileExistsError, match=error):
                    export(WaitingEpisodes(raw), "robomimic", target, **second)
            else:
                export(WaitingEpisodes(raw), "robomimic", target, **second)
        finally:
            WaitingEpisodes.go_on.set()
        running.result()


def test_parts_of_few_episodes_are_refused(tmp_path):
    few = many_episodes.write(tmp_path / "few", 3)
    with pytest.raises(ValueError, match="too few for several parts"):
        export(ManyEpisodes(few), "robomimic", tmp_path / "made.h5", part=(1, 2))


@pytest.mark.parametrize(
    ("format", "options", "error"),
    [
        ("tfds", {}, "tfds always writes parts"),
        ("robomimic", {"jobs": 2}, "it takes one process"),
        ("robomimic", {"part": (1, 2)}, "it takes one process"),
    ],
)
def test_exports_at_once_refuse_jobs_and_parts(format, options, error, raw, tmp_path):
    with pytest.raises(ValueError, match=f"at_once: {error}"):
        write(ManyEpisodes(raw), format, tmp_path, at_once=True, **options)
    assert not [*tmp_path.iterdir()]


class EpisodesWithReplacedFile(ManyEpisodes):
    """Replaces the file of episode 1 when episode 40 is read."""

    def read(self, split, index, fields=None, rows=slice(None)):
        if index == 40 and fields is None:
            folder = Path(self.inputs()[0]).parent
            os.replace(folder.parent / "other" / "episode_000.npz", folder / "episode_001.npz")
        return super().read(split, index, fields, rows)


def test_changes_of_files_during_a_run_are_errors(tmp_path):
    raw = many_episodes.write(tmp_path / "raw")
    many_episodes.write(tmp_path / "other", 1)
    with pytest.raises(SourceChangedError, match="changed"):
        write(EpisodesWithReplacedFile(raw), "robomimic", tmp_path, jobs=1)
    assert not (tmp_path / "robomimic").exists()


def test_changes_of_files_between_runs_are_errors(tmp_path, monkeypatch):
    raw = many_episodes.write(tmp_path / "raw")
    monkeypatch.setattr(ManyEpisodes, "stop", 40)
    with pytest.raises(Interrupted):
        write(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    monkeypatch.setattr(ManyEpisodes, "stop", None)
    many_episodes.write(tmp_path / "other", 1)
    os.replace(tmp_path / "other" / "episode_000.npz", raw / "episode_001.npz")
    with pytest.raises(ValueError, match="other data or with other options"):
        write(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)


def test_parts_keep_splits_in_any_order(tmp_path):
    raw = many_episodes.write(tmp_path / "raw", 300)
    rlds.sources.export(raw, "tfds", tmp_path / "one")
    shares = {"b": 0.5, "a": 0.5}
    rlds.edit(tmp_path / "one", rlds.editing.Split(shares), to=tmp_path / "two")
    change = rlds.editing.Set("reward", 1.0)
    for name, jobs in {"direct": None, "parts": 1}.items():
        rlds.edit(tmp_path / "two", change, to=tmp_path / name, jobs=jobs, verify=False)
    assert {*rlds.sources.open(tmp_path / "parts", "all").splits} == {"a", "b"}
    assert contents(tmp_path / "parts") == contents(tmp_path / "direct")


def test_skip_damaged_does_not_hide_limits_of_the_format(tmp_path):
    raw = many_episodes.write(tmp_path / "raw")
    path = raw / "episode_050.npz"
    arrays = dict(np.load(path))
    empty = {name: array[:1] for name, array in arrays.items() if name[0] in "on"}
    np.savez(path, **empty, action=arrays["action"][:0], reward=arrays["reward"][:0])
    with pytest.raises(ValueError, match="without a transition"):
        write(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1, skip_damaged=True)
    assert not (tmp_path / "robomimic").exists()


def test_parts_of_episodes_without_files_are_refused(raw, tmp_path):
    source = ManyEpisodes(raw)
    source.inputs = lambda: ["no file"]
    with pytest.raises(ValueError, match="part: the episodes come from a function"):
        export(source, "robomimic", tmp_path / "made.h5", part=(1, 2))


def test_datasets_of_one_edit_are_published_together(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(ManyEpisodes, "reads", [])
    episodes = rlds.sources.Episodes(ManyEpisodes(raw), "train", format="npz")
    split = rlds.editing.Split({"a": 0.5, "b": 0.5})

    def run(folder):
        rlds.edit(episodes, split, to=tmp_path / folder, to_format="robomimic", jobs=1)

    run("whole")
    reads = ManyEpisodes.reads.copy()
    monkeypatch.setattr(ManyEpisodes, "stop", reads[-1])
    with pytest.raises(Interrupted):
        run("made")
    assert all(name.endswith(".parts") for name in os.listdir(tmp_path / "made"))
    monkeypatch.setattr(ManyEpisodes, "stop", None)
    ManyEpisodes.reads.clear()
    run("made")
    count = len(ManyEpisodes.reads)
    assert 0 < count < 32
    assert ManyEpisodes.reads == reads[-count:]
    assert contents(tmp_path / "made") == contents(tmp_path / "whole")
