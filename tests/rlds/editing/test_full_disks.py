"""Edits and labels on a disk that fills: accepted changes stay, and no process crashes."""

import os
import random
import shutil
import subprocess
import sys
import textwrap

import pytest
import raw_npz

import rlds.labels
import rlds.sources
from rlds.sources.digests import digest_of

# Adds labels or edits until the disk is full, and prints a line for each accepted one.
_SCRIPT = """
    import sys
    import rlds, rlds.labels
    from rlds.editing import Set

    path = sys.argv[1]

    def label():
        labels = rlds.labels.open(path)
        for index in range(10_000):
            labels.add("note", index % 4, "word " * 40 + str(index), by="ann", type="text")
            print("label", index, flush=True)

    def edit():
        for index in range(3):
            rlds.edit(path, Set("seed", 100 + index))
            print("edit", index, flush=True)

    try:
        {act}()
    except (OSError, RuntimeError) as error:
        assert "No space left" in str(error) or "No space left" in str(error.__cause__), error
        assert path in str(error) or "labels" in str(error), error
        print("full")
"""


@pytest.fixture
def disk(tmp_path):
    """Function that mounts a file system of a size in bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size):
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this user cannot mount file systems")
        return folder

    yield mount
    subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)


def episodes_of(path):
    return [digest_of(episode.steps).hex() for episode in rlds.sources.open(path, "all")]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["tfds", "lerobot", "robomimic", "minari", "zarr", "envlogger"])
@pytest.mark.parametrize("act", ["edit", "label"])
def test_full_disk_loses_no_accepted_change(tmp_path, disk, monkeypatch, format, act):
    monkeypatch.setenv("RLDS_CACHE_DIR", os.fspath(tmp_path / "disk" / "cache"))
    rng = random.Random(f"{format} {act}")
    raw = raw_npz.write_folder(
        tmp_path / "raw", {f"{index}.npz": raw_npz.episode(50, seed=index) for index in range(4)}
    )
    name = {"robomimic": "data.hdf5", "minari": "data-v0"}.get(format, "data")
    options = {"lerobot": {"fps": 10}}.get(format, {})
    output = tmp_path / "made" / name
    output.parent.mkdir()
    rlds.sources.export(raw, format, output, allow_loss=True, **options)
    rlds.labels.open(output).add("quality", 0, "good", by="eve")
    size = sum(file.stat().st_size for file in output.parent.rglob("*"))
    for _ in range(4):
        folder = disk(int(size * rng.uniform(1.6, 4)) + (1 << 17))
        path = folder / name
        shutil.copytree(output.parent, folder, dirs_exist_ok=True)
        before = episodes_of(path)
        command = [sys.executable, "-c", textwrap.dedent(_SCRIPT).format(act=act), os.fspath(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr[-3000:]
        accepted = [line.split() for line in result.stdout.splitlines() if line != "full"]
        assert episodes_of(path) == before
        labels = [label for label in rlds.labels.open(path).rows() if label.layer == "note"]
        notes = [label.value.split()[-1] for label in labels]
        assert notes[: len(accepted)] == [index for kind, index in accepted if kind == "label"]
        seeds = [int(episode.metadata["seed"]) for episode in rlds.sources.open(path, "all")]
        edits = [100 + int(index) for kind, *_, index in accepted if kind == "edit"]
        assert seeds == ([edits[-1]] * 4 if edits else [0, 1, 2, 3])
        subprocess.run(["umount", "--lazy", folder], check=True)
