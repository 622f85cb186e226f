"""`rlds convert`, `inspect` and `validate` of raw data of every format, sound and damaged."""

import h5py
import hostile_sources
import pytest

import rlds.sources
from rlds_tools.command_line import commands

# Of each format, a file that can be cut, so that some episodes are lost and others are not. Names
# with a colon are those of what is taken out of a file.
SPOILT = {
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


def spoil(raw, what):
    file, _, inner = what.partition(":")
    if inner:
        with h5py.File(raw / file, "a") as opened:
            del opened[inner]
    else:
        content = (raw / file).read_bytes()
        (raw / file).write_bytes(content[: -max(40, len(content) // 4)])


@pytest.fixture
def run(capsys):
    """Runs a command; returns its exit code, and what it prints to both outputs."""

    def call(*arguments):
        code = commands.run([*map(str, arguments)])
        return code, *capsys.readouterr()

    return call


@pytest.mark.slow
@pytest.mark.parametrize("name", SPOILT)
def test_damaged_episodes_are_named_and_can_be_left_out(name, run, tmp_path):
    path = hostile_sources.written(name, tmp_path / "raw")
    length = len(rlds.sources.open(path))
    spoil(tmp_path / "raw", SPOILT[name])
    (folder := tmp_path / "made").mkdir()
    call = ["convert", path, folder / "made", "--to", "webdataset"]
    code, output, error = run(*call)
    file = SPOILT[name].rpartition(":")[0] or SPOILT[name]
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
