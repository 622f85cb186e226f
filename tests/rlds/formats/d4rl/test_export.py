import h5py
import numpy as np
import pytest
import raw_d4rl
from fast_share import one_in
from raw_d4rl_pybullet import write_pybullet

import rlds.sources
from rlds.editing import Trim
from rlds.sources.testing import differences

# Some families have no timeouts; see the tests of the source.
pytestmark = pytest.mark.filterwarnings("ignore:.*there are no timeouts")


def read_values(path):
    """Returns all arrays and attributes of a file except for those of this library."""
    values = {}

    def add(name, item):
        if not name.startswith("rlds"):
            values.update({f"{name}@{key}": value for key, value in item.attrs.items()})
            if isinstance(item, h5py.Dataset):
                values[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(add)
    return values


def assert_same_values(path, expected):
    actual, expected = read_values(path), read_values(expected)
    if "next_observations" not in expected:
        actual.pop("next_observations", None)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, strict=True, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, raw_d4rl.FAMILIES))
def test_all_values_of_a_family_are_exported(tmp_path, name):
    path = raw_d4rl.write_family(tmp_path, name)
    exported = rlds.sources.export(path, "d4rl", tmp_path / "made.hdf5").path
    assert_same_values(exported, path)
    for original, copy in zip(rlds.sources.open(path), rlds.sources.open(exported), strict=True):
        assert not [*differences(original, copy)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"boundary": "file"}, {"boundary": "length", "length": 5}])
def test_exports_do_not_depend_on_the_boundaries_of_episodes(tmp_path, options):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium_replay-v2")
    episodes = rlds.sources.open(path, **options)
    exported = rlds.sources.export(episodes, "d4rl", tmp_path / "made.hdf5").path
    assert_same_values(exported, path)
    assert len(rlds.sources.open(exported)) == len(episodes)
    assert len(rlds.sources.open(exported, format="d4rl", boundary="flags")) == 3


def test_unusual_values_are_exported(tmp_path):
    arrays = raw_d4rl.transitions((4, 6), 3, 2)
    arrays["next_observations"][1, 0], arrays["observations"][2, 0] = -0.0, 0.0
    with h5py.File(path := tmp_path / "a.hdf5", "w") as file:
        for name, value in arrays.items():
            file.create_dataset(name, data=value)
        file["terminals"] = raw_d4rl.flags(10, 3, dtype=np.uint8)
        file["timeouts"] = raw_d4rl.flags(10, 9, dtype=np.int64)[:, np.newaxis]
        file["infos/nested/deeper"] = np.full((10, 2, 2), np.nan, np.float16)
        file["extra"] = np.arange(10, dtype=np.int16)
        file["metadata/algorithm"] = "SAC"
        file["metadata/names"] = ["höhe", "", "c"]
        file["metadata/fixed"] = np.array([b"ab", b"c\0d"])
        file["metadata/log"] = np.arange(10)  # As long as the rows, by chance.
        file["metadata/big_endian"] = np.arange(3, dtype=">i4")
        file["version"] = 3
        file["metadata"].attrs["seed"] = np.int8(5)
        file["metadata"].attrs["tags"] = ["a", "b"]
        file["observations"].attrs["unit"] = np.bytes_("m")
    exported = rlds.sources.export(path, "d4rl", tmp_path / "made.hdf5").path
    assert_same_values(exported, path)


def test_all_exported_arrays_have_the_same_number_of_rows(tmp_path):
    """As `get_dataset` and `sequence_dataset` of D4RL require."""
    arrays = {
        **raw_d4rl.transitions((4, 5), 3, 2),
        "terminals": raw_d4rl.flags(9, 3),
        "timeouts": raw_d4rl.flags(9, 8),
    }
    plain = raw_d4rl.write(tmp_path / "hopper.hdf5", arrays)
    (folder := tmp_path / "npz").mkdir()
    for index in range(3):  # Its other fields fill more than one block.
        steps = {"observation": np.eye(4)[:3], "action": np.ones((2, 1)), "notes": np.eye(100)}
        np.savez(folder / f"{index}.npz", **steps, first=np.full(20_000, index))
    for path, length in ((plain, 9), (folder, 6)):
        exported = rlds.sources.export(path, "d4rl", tmp_path / f"{path.name}.made.hdf5").path
        actual = {}
        with h5py.File(exported) as file:
            file.visititems(
                lambda name, item, actual=actual: (
                    actual.update({name: item[:]}) if isinstance(item, h5py.Dataset) else None
                )
            )
        rows = [{name: values[row] for name, values in actual.items()} for row in range(length)]
        assert {len(values) for values in actual.values()} == {length}
        assert all(np.shape(row["rewards"]) == () for row in rows)
        for old, new in zip(rlds.sources.open(path), rlds.sources.open(exported), strict=True):
            assert not [*differences(old, new)]


@pytest.mark.slow
def test_exported_episodes_are_read_by_the_qlearning_dataset_of_d4rl(tmp_path):
    """The rows are divided as by `qlearning_dataset` of D4RL."""
    path = write_pybullet(tmp_path / "a.hdf5", [3, 5], cut=True)
    episodes = [*rlds.sources.open(path)]
    exported = rlds.sources.export(path, "d4rl", tmp_path / "made.hdf5").path
    with h5py.File(exported) as file:
        ends = [int(end) for end in np.flatnonzero(file["terminals"][:] | file["timeouts"][:]) + 1]
        assert len(ends) == len(episodes)
        for episode, begin, end in zip(episodes, [0, *ends], ends):
            steps = episode.steps
            np.testing.assert_array_equal(
                file["observations"][begin:end], steps["observation"][:-1]
            )
            np.testing.assert_array_equal(
                file["next_observations"][begin:end], steps["observation"][1:]
            )
            np.testing.assert_array_equal(file["rewards"][begin:end], steps["reward"][:-1])
            assert file["terminals"][end - 1] == steps["is_terminal"][-1]


@pytest.mark.slow
def test_trimmed_episodes_end_with_a_timeout(tmp_path):
    arrays = {
        **raw_d4rl.transitions((4, 5, 3), 3, 2),
        "terminals": raw_d4rl.flags(12, 3),
        "timeouts": raw_d4rl.flags(12, 8, 11),
    }
    path = raw_d4rl.write(tmp_path / "hopper.hdf5", arrays)
    rlds.edit(path, Trim(0, 2, where="index < 2"))
    with h5py.File(path) as file:
        assert np.flatnonzero(file["timeouts"]).tolist() == [0, 1, 4]
        assert not file["terminals"][:].any()
