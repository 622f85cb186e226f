"""Exports to a full disk raise one error, and the process continues."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import raw_aloha
import raw_npz

pytest.importorskip("resource")
pytest.importorskip("h5py")

# A limit of the size of files ends writes as a full disk does, and needs no disk of its own.
LIMITED = """
    import contextlib, resource, sys

    @contextlib.contextmanager
    def limited(size):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
"""

EXPORT = """
    import os, rlds.sources

    source, target, format, options = sys.argv[1], sys.argv[2], sys.argv[3], eval(sys.argv[4])
    for size in (0, 100, 5_000, 20_000, 30_000):
        try:
            with limited(size):
                rlds.sources.export(source, format, target, **options)
        except OSError as error:
            assert error.filename == target, error
            assert "disk space" in error.__notes__[0]
        else:
            raise AssertionError(f"{size} bytes were enough")
        assert not os.listdir(os.path.dirname(target))
    rlds.sources.export(source, format, target, **options)
    print(len(rlds.sources.open(target, "all")))
"""

WRITE = """
    import h5py
    import numpy as np
    from rlds.raw_files.hdf5_writing import new_file

    def write(path, check_each):
        with new_file(path) as (file, check):
            sums = file.create_dataset("sums", (0,), "f8", maxshape=(None,), chunks=(16,))
            for index in range(40):
                group = file.create_group(f"group_{index}")
                group["values"] = np.arange(50.0) + index
                group.create_dataset("packed", data=np.arange(100) % 7, compression="gzip")
                group.attrs["text"] = "a" * index
                sums.resize(index + 1, axis=0)
                sums[index] = index
                assert file[f"group_{index // 2}/values"][3] == 3 + index // 2
                if check_each:
                    check()

    path = sys.argv[1] + "/a.hdf5"
    write(path, True)
    end = os.path.getsize(path)
    with h5py.File(path) as file:
        assert list(file["sums"]) == list(range(40))
    os.remove(path)
    for index, size in enumerate(np.linspace(0, end - 1, 40).astype(int)):
        try:
            with limited(int(size)):
                write(path, index % 2)
        except OSError as error:
            assert error.filename == path and error.strerror == "File too large", error
        else:
            raise AssertionError(f"{size} of {end} bytes were enough")
        os.remove(path)
    print("done")
"""


def run(script, *arguments):
    """Runs a script, which must not fail or print errors; returns its output."""
    script = textwrap.dedent(LIMITED) + "import os\n" + textwrap.dedent(script)
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # Bytecode would be cut as well.
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (process.returncode, process.stderr) == (0, ""), process.stderr[-2000:]
    return process.stdout.split()


def test_a_full_disk_is_an_error_at_any_byte_of_a_file(tmp_path):
    assert run(WRITE, tmp_path) == ["done"]


def make_episode(length, seed):
    return raw_npz.episode(
        length,
        seed=seed,
        observation=np.random.default_rng(seed).random((length + 1, 300)),
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    episodes = {f"{index}.npz": make_episode(20, index) for index in range(4)}
    for episode in episodes.values():
        for name in ("observation/camera", "observation/joints"):
            del episode[name]
    return {
        "npz": raw_npz.write_folder(root / "npz", episodes),
        "aloha": raw_aloha.write_folder(root / "aloha", dict.fromkeys(range(4), 200)),
    }


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("robomimic", "a.hdf5"),
        ("minari", "a-v0"),
        ("maniskill", "a"),
        ("aloha", "a"),
        ("d4rl", "a.hdf5"),
        ("d3rlpy", "a.h5"),
    ],
)
def test_exports_to_a_full_disk_leave_no_files(tmp_path, sources, format, name):
    source = sources["aloha" if format == "aloha" else "npz"]
    target = Path(tmp_path, name)
    assert run(EXPORT, source, os.fspath(target), format, {"allow_loss": True}) == ["4"]
