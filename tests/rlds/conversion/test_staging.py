"""Datasets that are written in parts: the same bytes as at once, by anyone, after any kill."""

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
# One of many files, one of one file, and one whose payload is copied by chunks.
SLOW = pytest.mark.slow
QUICK = ("lerobot", "robomimic", "envlogger")


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return many_episodes.write(tmp_path_factory.mktemp("raw") / "many")


def contents(path):
    """The files of a dataset, by name, with what is in them."""
    path = Path(path)
    if path.is_file():
        return {path.name: path.read_bytes()}
    # What was noted of files for feeds tells when these were written.
    files = [file for file in path.rglob("*") if file.is_file() and ".feeds" not in file.parts]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def values(path):
    """The same, but for the bytes of HDF5: they tell how something came into a file."""
    actual = contents(path)
    for name, data in actual.items():
        if name.endswith((".h5", ".hdf5")):
            actual[name] = in_hdf5(data)
        elif name.endswith("data/metadata.json"):  # Of Minari.
            actual[name] = {**json.loads(data), "dataset_size": 0}
    return actual


def in_hdf5(data):
    """The arrays, groups and attributes of a file, with how their values are stored."""
    actual = {}

    def add(name, item):
        of_item = {key: np.asarray(value) for key, value in item.attrs.items()}
        if isinstance(item, h5py.Dataset):
            of_item |= {"": np.asarray(item[()])}
            actual[name] = item.dtype, item.chunks, item.maxshape, item.compression
        for key, value in of_item.items():
            actual[f"{name}@{key}"] = value.dtype, value.tolist()

    with h5py.File(io.BytesIO(data)) as file:
        add("/", file)
        file.visititems(add)
    return actual


def written(source, format, folder, **options):
    """Exports all that a source has; returns the path."""
    usual = format, NAMES.get(format, "made"), {}
    place, (format, name, layout) = folder / format, LAYOUTS.get(format, usual)
    path = place / name
    given = options_for(format, rlds.sources.Episodes(source, "train"))
    export(source, format, path, **given, **layout, **options)
    return path


@pytest.mark.parametrize(
    "format", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in FORMATS]
)
def test_parts_give_the_same_as_one_go(format, raw, tmp_path, monkeypatch):
    parts = written(ManyEpisodes(raw), format, tmp_path / "parts", jobs=1)
    assert not [name for name in os.listdir(parts.parent) if name.endswith(".parts")]
    monkeypatch.setattr(ManyEpisodes, "knows_lengths", True)
    once = written(ManyEpisodes(raw), format, tmp_path / "once", at_once=format != "tfds")
    one, two = values(once), values(parts)
    assert one.keys() == two.keys()
    changed = [name for name in one if one[name] != two[name]]
    assert [name for name in changed if not name.endswith(".riegeli")] == []
    if changed:  # A log has a short chunk where a part ends.
        assert "envlogger" in format
        for first, second in zip(*map(rlds.sources.open, (once, parts)), strict=True):
            assert [*differences(first, second)] == []


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_processes_give_the_same_bytes_as_one(format, raw, tmp_path):
    one, two = (
        contents(written(ManyEpisodes(raw), format, tmp_path / str(jobs), jobs=jobs))
        for jobs in (1, 2)
    )
    assert one == two


def edited(source, format, folder, **options):
    """Likewise, with other rewards."""
    path = folder / format / NAMES.get(format, "made")
    episodes, change = rlds.sources.Episodes(source, "train"), rlds.editing.Set("reward", 1.0)
    rlds.edit(episodes, change, to=path, to_format=format, **options)
    return path


@pytest.mark.parametrize("make", [written, edited])
def test_a_run_that_was_interrupted_goes_on(make, raw, tmp_path, monkeypatch):
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
def test_nothing_is_left_of_a_run_that_ended_as_it_removed_its_parts(
    last, raw, tmp_path, monkeypatch
):
    real = getattr(Path, last)

    def stop(path, *arguments, **options):
        if path.name in (".made.h5.parts", "joined") and (tmp_path / "robomimic/made.h5").exists():
            raise Interrupted
        real(path, *arguments, **options)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(Path, last, stop)
        written(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    left = {*os.listdir(tmp_path / "robomimic")}
    with pytest.raises(FileExistsError):
        written(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    assert left - {*os.listdir(tmp_path / "robomimic")} == {".made.h5.parts"}


def test_parts_of_something_else_are_not_gone_on_with(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(ManyEpisodes, "stop", 40)
    with pytest.raises(Interrupted):
        written(ManyEpisodes(raw), "lerobot", tmp_path, jobs=1)
    monkeypatch.setattr(ManyEpisodes, "stop", None)
    parts = tmp_path / "lerobot" / ".made.parts"
    with pytest.raises(ValueError, match=r"made\.parts has parts .* other data or with other"):
        export(ManyEpisodes(raw), "lerobot", tmp_path / "lerobot" / "made", fps=20, jobs=1)
    assert (parts / "00000.json").exists()
    other = many_episodes.write(tmp_path / "other", 40)
    with pytest.raises(ValueError, match=r"made\.parts has parts .* other data or with other"):
        written(ManyEpisodes(other), "lerobot", tmp_path, jobs=1)
    written(ManyEpisodes(raw), "lerobot", tmp_path, jobs=1)
    assert not parts.exists()


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_damaged_episodes_are_those_of_one_go(jobs, tmp_path):
    raw = many_episodes.write(tmp_path / "raw")
    for number in (5, 66):
        (raw / f"episode_{number:03d}.npz").write_bytes(b"no zip")
    with pytest.raises(SourceError, match="episode_005"):
        written(ManyEpisodes(raw), "robomimic", tmp_path, jobs=jobs)
    with pytest.warns(UserWarning, match=r"2 episodes are damaged and left out, .*episode_005"):
        path = written(ManyEpisodes(raw), "robomimic", tmp_path, jobs=jobs, skip_damaged=True)
    actual = rlds.sources.open(path)
    assert len(actual) == 68
    kept = [index for index in range(70) if index not in (5, 66)]
    notes = [str(episode.steps["note"][0]) for episode in actual]
    assert notes == [f"ü{index}" for index in kept]


def test_a_worker_that_dies_twice_is_named_and_the_rest_is_kept(raw, tmp_path):
    with pytest.raises(WorkerDied, match="exit status 3") as caught:
        written(ManyEpisodes(raw, deadly=66), "robomimic", tmp_path, jobs=2)
    assert "at the episodes 47 to 69" in caught.value.__notes__[0]
    parts = tmp_path / "robomimic" / ".made.h5.parts"
    assert {"00000.json", "00001.json"} <= {*os.listdir(parts)}


def test_a_class_of_a_script_stays_in_its_process(raw, tmp_path):
    """Other processes could not import it; nor does the script need a guard."""
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
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("once\n", "")
    assert len(rlds.sources.open(tmp_path / "made.h5")) == many_episodes.NUM_EPISODES


def test_edits_that_change_all_are_written_in_parts(raw, tmp_path):
    opened = written(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    edited = tmp_path / "edited.h5"
    rlds.edit(opened, rlds.editing.Set("reward", 1.0), to=edited, jobs=1)
    for one, two in zip(rlds.sources.open(opened), rlds.sources.open(edited), strict=True):
        np.testing.assert_array_equal(
            one.steps["observation"]["camera"], two.steps["observation"]["camera"]
        )
        assert two.steps["reward"][:-1].tolist() == [1.0] * (two.num_steps - 1)


def test_jobs_of_a_cluster_each_write_a_share(raw, tmp_path, monkeypatch):
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
    assert {*ManyEpisodes.reads} == {*range(23, 47)}  # Those of the second job.
    export(source, "robomimic", tmp_path / "whole" / "made.h5", jobs=1)
    assert contents(target) == contents(tmp_path / "whole" / "made.h5")
    assert os.listdir(drafts) == []


SHARE = """
import sys
sys.path.append(sys.argv[1])
import rlds.sources, many_episodes
source = many_episodes.ManyEpisodes(sys.argv[2], deadly=int(sys.argv[5]))
rlds.sources.export(source, "lerobot", sys.argv[3], fps=10, part=(int(sys.argv[4]), 3))
"""


@pytest.mark.slow
def test_a_job_that_died_is_repeated_beside_others(raw, tmp_path, monkeypatch):
    support, target = Path(many_episodes.__file__).parent, tmp_path / "made"

    def begun(number, deadly=-1):
        call = [sys.executable, "-c", SHARE, support, raw, target, number, deadly]
        return subprocess.Popen(list(map(str, call)))

    jobs = [begun(1), begun(2, deadly=40), begun(3)]
    assert [job.wait() for job in jobs] == [0, 3, 0]
    assert begun(2).wait() == 0
    monkeypatch.setattr(ManyEpisodes, "reads", [])
    export(ManyEpisodes(raw), "lerobot", target, fps=10, jobs=1)
    assert ManyEpisodes.reads == []
    export(ManyEpisodes(raw), "lerobot", tmp_path / "whole", fps=10, jobs=1)
    assert contents(target) == contents(tmp_path / "whole")


class Waiting(ManyEpisodes):
    """Waits in the middle."""

    begun, go_on = threading.Event(), threading.Event()

    def read(self, split, index, fields=None, rows=slice(None)):
        if index == 40:
            self.begun.set()
            assert self.go_on.wait(60)
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
def test_only_shares_of_one_dataset_are_written_at_once(first, second, error, raw, tmp_path):
    target = tmp_path / "made.h5"
    Waiting.begun.clear()
    Waiting.go_on.clear()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(export, Waiting(raw), "robomimic", target, **first)
        assert Waiting.begun.wait(60)
        try:
            if error:
                with pytest.raises(FileExistsError, match=error):
                    export(Waiting(raw), "robomimic", target, **second)
            else:
                export(Waiting(raw), "robomimic", target, **second)
        finally:
            Waiting.go_on.set()
        running.result()


def test_a_few_episodes_have_no_shares(tmp_path):
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
def test_what_is_written_at_once_has_no_parts(format, options, error, raw, tmp_path):
    with pytest.raises(ValueError, match=f"at_once: {error}"):
        written(ManyEpisodes(raw), format, tmp_path, at_once=True, **options)
    assert not [*tmp_path.iterdir()]


class Meddled(ManyEpisodes):
    """Has another episode for its second one once it is asked for the one at 40."""

    def read(self, split, index, fields=None, rows=slice(None)):
        if index == 40 and fields is None:
            folder = Path(self.inputs()[0]).parent
            os.replace(folder.parent / "other" / "episode_000.npz", folder / "episode_001.npz")
        return super().read(split, index, fields, rows)


def test_files_that_change_while_parts_are_written_are_told(tmp_path):
    raw = many_episodes.write(tmp_path / "raw")
    many_episodes.write(tmp_path / "other", 1)
    with pytest.raises(SourceChangedError, match="changed"):
        written(Meddled(raw), "robomimic", tmp_path, jobs=1)
    assert not (tmp_path / "robomimic").exists()


def test_files_that_change_between_two_runs_are_told(tmp_path, monkeypatch):
    raw = many_episodes.write(tmp_path / "raw")
    monkeypatch.setattr(ManyEpisodes, "stop", 40)
    with pytest.raises(Interrupted):
        written(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)
    monkeypatch.setattr(ManyEpisodes, "stop", None)
    many_episodes.write(tmp_path / "other", 1)
    os.replace(tmp_path / "other" / "episode_000.npz", raw / "episode_001.npz")
    with pytest.raises(ValueError, match="other data or with other options"):
        written(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1)


def test_parts_keep_splits_in_any_order(tmp_path):
    raw = many_episodes.write(tmp_path / "raw", 300)
    rlds.sources.export(raw, "tfds", tmp_path / "one")
    parts = {"b": 0.5, "a": 0.5}
    rlds.edit(tmp_path / "one", rlds.editing.Split(parts), to=tmp_path / "two")
    change = rlds.editing.Set("reward", 1.0)
    for name, jobs in {"direct": None, "parts": 1}.items():
        rlds.edit(tmp_path / "two", change, to=tmp_path / name, jobs=jobs, verify=False)
    assert {*rlds.sources.open(tmp_path / "parts", "all").splits} == {"a", "b"}
    assert contents(tmp_path / "parts") == contents(tmp_path / "direct")


def test_what_the_format_cannot_hold_is_an_error_that_skipping_damage_does_not_hide(tmp_path):
    raw = many_episodes.write(tmp_path / "raw")
    path = raw / "episode_050.npz"
    arrays = dict(np.load(path))
    none = {name: it[:1] for name, it in arrays.items() if name[0] in "on"}
    np.savez(path, **none, action=arrays["action"][:0], reward=arrays["reward"][:0])
    with pytest.raises(ValueError, match="without a transition"):
        written(ManyEpisodes(raw), "robomimic", tmp_path, jobs=1, skip_damaged=True)
    assert not (tmp_path / "robomimic").exists()


def test_episodes_that_are_of_no_files_have_no_shares(raw, tmp_path):
    source = ManyEpisodes(raw)
    source.inputs = lambda: ["made up"]
    with pytest.raises(ValueError, match="part: the episodes come from a function"):
        export(source, "robomimic", tmp_path / "made.h5", part=(1, 2))


def test_datasets_of_one_edit_get_their_names_together(raw, tmp_path, monkeypatch):
    monkeypatch.setattr(ManyEpisodes, "reads", [])
    episodes = rlds.sources.Episodes(ManyEpisodes(raw), "train", format="npz")
    parts = rlds.editing.Split({"a": 0.5, "b": 0.5})

    def made(folder):
        rlds.edit(episodes, parts, to=tmp_path / folder, to_format="robomimic", jobs=1)

    made("whole")
    reads = ManyEpisodes.reads.copy()
    monkeypatch.setattr(ManyEpisodes, "stop", reads[-1])
    with pytest.raises(Interrupted):
        made("made")
    assert all(name.endswith(".parts") for name in os.listdir(tmp_path / "made"))
    monkeypatch.setattr(ManyEpisodes, "stop", None)
    ManyEpisodes.reads.clear()
    made("made")
    count = len(ManyEpisodes.reads)
    assert 0 < count < 32
    assert ManyEpisodes.reads == reads[-count:]
    assert contents(tmp_path / "made") == contents(tmp_path / "whole")
