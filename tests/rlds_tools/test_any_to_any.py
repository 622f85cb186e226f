"""`rlds convert`, `inspect` and `validate` of raw data of every format, intact and damaged."""

import h5py
import hostile_sources
import pytest

import rlds.sources
from rlds_tools.command_line import commands

# For each format, a file whose damage loses only some of the episodes. A name after a colon is
# the HDF5 object to delete.
DAMAGED_FILES = {
    "aloha": "episode_1.hdf5",
    "calvin": "training/episode_0000101.npz",
    "lerobot": "data/chunk-000/file-001.parquet",
    "lerobot_2": "data/chunk-000/episode_000001.parquet",
    "webdataset": "a-000001.tar",
    "robomimic_all": "demos.hdf5:data/demo_2/actions",
    "robomimic_isaac_lab": "demos.hdf5:data/demo_1/actions",
    "maniskill": "t.h5:traj_1/actions",
    "droid": "LAB/success/2023-07-07/Fri_Jul__7_09-42-0/trajectory.h5",
    "agibot": "proprio_stats/327/10/proprio_stats.h5",
    "robomind": "h5_agilex_3rgb/10_packplate_2/success_episodes/train/2/data/trajectory.hdf5",
    "d3rlpy": "a.h5:actions_1",
    "npz": "episode_2.npz",
    "minari_hdf5": "toy-v0/data/main_data.hdf5:episode_1/rewards",
    "minari_arrow": "toy-v0/data/1/part-0.arrow",
    "minari_parquet": "toy-v0/data/1/part-0.parquet",
    "creator": "1.pkl",
    "rlu_atari": "run_1-00001-of-00002",
}


def damage(raw, target):
    file, _, key = target.partition(":")
    if key:
        with h5py.File(raw / file, "a") as h5_file:
            del h5_file[key]
    else:
        content = (raw / file).read_bytes()
        (raw / file).write_bytes(content[: -max(40, len(content) // 4)])


@pytest.fixture
def run(capsys):
    """Runs a command; returns its exit code, its output and its errors."""

    def call(*arguments):
        code = commands.run([*map(str, arguments)])
        return code, *capsys.readouterr()

    return call


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGED_FILES)
def test_errors_name_damaged_episodes_and_skip_damaged_leaves_them_out(name, run, tmp_path):
    path = hostile_sources.write_raw(name, tmp_path / "raw")
    length = len(rlds.sources.open(path))
    damage(tmp_path / "raw", DAMAGED_FILES[name])
    (folder := tmp_path / "made").mkdir()
    call = ["convert", path, folder / "made", "--to", "webdataset"]
    code, output, error = run(*call)
    file = DAMAGED_FILES[name].rpartition(":")[0] or DAMAGED_FILES[name]
    assert (code, output, list(folder.iterdir())) == (1, "", [])
    assert error.startswith("error: ")
    assert file in error
    assert ", episode " in error
    with pytest.warns(UserWarning, match="1 episode is damaged and left out: "):
        code, output, error = run(*call, "--skip-damaged")
    assert (code, error) == (0, "")
    assert output.splitlines()[1].startswith(f"{length - 1} episode")
    assert f"left out: {tmp_path}" in output or f"left out: {file}" in output
    assert run("inspect", path)[0] == 0
    code, output, error = run("validate", path)
    assert (code, error) == (1, "")
    assert "cannot be read: " in output
    assert file in output
