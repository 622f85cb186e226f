import dataclasses

import h5py
import numpy as np
import pytest
import raw_d4rl
import tensorflow_datasets as tfds
from fast_share import one_in

from rlds.evaluation import load_policy
from rlds.formats.d4rl.export import D4rlExport
from rlds.formats.d4rl.source import D4rlSource
from rlds.tfds import load
from rlds_ecosystem.nests import leaves_at, nest
from tfds_builders.builder import convert
from tfds_builders.export.d4rl import export_d4rl, export_d4rl_pybullet, read_constants

STORAGE = ("chunks", "maxshape", "compression", "compression_opts", "shuffle", "fletcher32")


def items_of(file):
    items = {"/": file}
    file.visititems(items.__setitem__)
    return items


def bits(value):
    if isinstance(value, h5py.Empty):
        return value.dtype
    array = np.asarray(value)
    return array.tolist() if array.dtype == object else array.tobytes()


def assert_same_file(path, expected):
    with h5py.File(path) as found, h5py.File(expected) as original:
        items, expected_items = items_of(found), items_of(original)
        assert items.keys() == expected_items.keys()
        for name, item in expected_items.items():
            assert type(items[name]) is type(item)
            assert dict(items[name].attrs) == dict(item.attrs)
            if isinstance(item, h5py.Dataset):
                assert (items[name].dtype, items[name].shape) == (item.dtype, item.shape), name
                assert bits(items[name][()]) == bits(item[()]), name
                for option in STORAGE:
                    assert getattr(items[name], option) == getattr(item, option), (name, option)


def converted(path, directory, **options):
    return convert(D4rlSource(path, **options), name="a", data_dir=directory, verify=False)


@pytest.mark.parametrize("name", one_in(3, raw_d4rl.FAMILIES))
def test_files_of_all_families_come_back(tmp_path, name):
    path = raw_d4rl.write_family(tmp_path, name)
    export_d4rl(converted(path, tmp_path), tmp_path / "again.hdf5")
    assert_same_file(tmp_path / "again.hdf5", path)


@pytest.mark.parametrize("options", [{"boundary": "file"}, {"boundary": "length", "length": 5}])
def test_files_come_back_however_they_are_divided(tmp_path, options):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium_replay-v2")
    export_d4rl(converted(path, tmp_path, **options).data_path, tmp_path / "again.hdf5")
    assert_same_file(tmp_path / "again.hdf5", path)


def test_large_files_come_back_from_shuffled_shards(tmp_path):
    path = raw_d4rl.write_mujoco_like(
        tmp_path / "a.hdf5", rows=70_500, next_observations=True, episode_length=500
    )
    builder = converted(path, tmp_path)
    dataset = builder.as_dataset(split="train", decoders={"steps": tfds.decode.SkipDecoding()})
    begins = [int(episode["source"]["begin"]) for episode in dataset]
    assert begins != sorted(begins)
    export_d4rl(builder, tmp_path / "again.hdf5")
    assert_same_file(tmp_path / "again.hdf5", path)


def unusual_file(path):
    """All that h5py lets one do to a file of D4RL."""
    arrays = raw_d4rl.transitions((4, 6), 3, 2)
    arrays["next_observations"][1, 0], arrays["observations"][2, 0] = -0.0, 0.0
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file.create_dataset(name, data=value)
        file.create_dataset("terminals", data=raw_d4rl.flags(10, 3, dtype=np.uint8), shuffle=True)
        file.create_dataset(
            "timeouts",
            data=raw_d4rl.flags(10, 9, dtype=np.int64)[:, np.newaxis],
            chunks=(3, 1),
            maxshape=(None, 1),
            compression="gzip",
            compression_opts=0,
            fletcher32=True,
        )
        file["infos/big_endian"] = np.arange(10, dtype=">f8") / 3
        file["infos/nested/deeper"] = np.full((10, 2, 2), np.nan, np.float16)
        file["infos/nested/deeper"][3] = np.inf
        file["extra"] = np.arange(10, dtype=np.int16)
        file["metadata/algorithm"] = "SAC"
        file["metadata/names"] = ["höhe", "", "c"]
        file["metadata/fixed"] = np.array([b"ab", b"c\0d"])
        file["metadata/log"] = np.arange(10)  # As long as the rows, by chance.
        file["metadata/nothing"] = h5py.Empty("f4")
        file["metadata/big_endian"] = np.arange(3, dtype=">i4")
        file["version"] = 3
        file.create_group("metadata/empty")
        file["metadata"].attrs["seed"] = np.int8(5)
        file["metadata"].attrs["task"] = "hopper"
        file["metadata"].attrs["tags"] = ["a", "b"]
        file["observations"].attrs["unit"] = np.bytes_("m")
        for chunk, (begin, end) in enumerate([(0, 4), (4, 10)]):
            for name in ("observations", "actions", "rewards"):
                window = h5py.VirtualSource(file[name])[begin:end]
                layout = h5py.VirtualLayout(window.shape, file[name].dtype)
                layout[...] = window
                file.create_virtual_dataset(f"virtual/{chunk}/{name}", layout)
    return path


def test_unusual_files_come_back(tmp_path):
    path = unusual_file(tmp_path / "a.hdf5")
    builder = converted(path, tmp_path)
    export_d4rl(builder, tmp_path / "again.hdf5")
    with h5py.File(path) as file, h5py.File(tmp_path / "again.hdf5") as again:
        assert list(again["metadata"].attrs["tags"]) == list(file["metadata"].attrs["tags"])
        assert again["virtual/1/actions"].is_virtual
    for name in (path, tmp_path / "again.hdf5"):  # Attributes with several values have no ==.
        with h5py.File(name, "a") as file:
            del file["metadata"].attrs["tags"]
    assert_same_file(tmp_path / "again.hdf5", path)


def test_copies_of_rows_are_left_out_and_named(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium")
    with h5py.File(path, "a") as file:
        file["virtual/0/rewards"] = file["rewards"][:4]
    builder = converted(path, tmp_path)
    assert builder.info.metadata["hdf5"]["left_out"] == ["virtual/0/rewards"]
    export_d4rl(builder, tmp_path / "again.hdf5")


def test_the_policy_can_be_read(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium-v2")
    constants = read_constants(converted(path, tmp_path).data_path)
    with h5py.File(path) as file:
        weight = file["metadata/policy/fc0/weight"][:]
    np.testing.assert_array_equal(constants["metadata/policy/fc0/weight"], weight, strict=True)
    assert constants["metadata/algorithm"] == b"SAC"
    assert constants["metadata/iteration"] == 2_000_000


@pytest.mark.parametrize("distribution", [b"gaussian", b"tanh_gaussian"])
def test_the_policy_explains_the_recorded_probabilities_of_actions(tmp_path, distribution):
    arrays = raw_d4rl.without(raw_d4rl.transitions((100,), 5, 2), "next_observations")
    arrays["observations"] = np.random.default_rng(0).normal(0, 20, (100, 5)).astype("f4")
    policy = raw_d4rl.policy((5, 8, 8, 2))
    policy["metadata/policy/last_fc_log_std/bias"] -= 3
    policy["metadata/policy/output_distribution"] = np.bytes_(distribution)
    path = raw_d4rl.write(
        tmp_path / "a.hdf5",
        {
            **arrays,
            **raw_d4rl.acted(policy, arrays["observations"]),
            "terminals": raw_d4rl.flags(100, 59),
            "timeouts": raw_d4rl.flags(100, 99),
            **policy,
        },
    )
    builder = converted(path, tmp_path)
    recorder = load_policy(builder.data_path)
    for episode in load(builder, "train").as_numpy_iterator():
        steps = episode["steps"]
        recorded = steps["infos"]["action_log_probs"]
        found = recorder.log_prob(steps["observation"], steps["action"])
        np.testing.assert_allclose(found, recorded, rtol=1e-6)
        # The observation of another step does not explain an action.
        other = recorder.log_prob(steps["observation"][1:], steps["action"][:-1])
        assert np.mean(other < recorded[:-1] - 1) > 0.5


def test_nothing_is_overwritten(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium")
    builder, before = converted(path, tmp_path), path.read_bytes()
    with pytest.raises(FileExistsError, match=r"hopper_medium.hdf5 exists and is not overwritten"):
        export_d4rl(builder, path)
    assert path.read_bytes() == before


def test_all_episodes_have_to_be_there(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium")
    with h5py.File(path, "a") as file:
        file["observations"][5] = np.nan
    with pytest.warns(UserWarning, match="1 damaged episodes were left out"):
        builder = convert(D4rlSource(path), name="a", data_dir=tmp_path, skip_damaged=True)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(
        ValueError, match="5 of 12 rows are missing, beginning with row 4: episodes"
    ):
        export_d4rl(builder, tmp_path / "again.hdf5")
    assert sorted(tmp_path.iterdir()) == before


def test_other_datasets_are_refused(tmp_path):
    builder = converted(raw_d4rl.write_family(tmp_path, "hopper_medium"), tmp_path)
    with pytest.raises(
        ValueError, match=r"made of a file of d4rl_pybullet; it has \['conversion', "
    ):
        export_d4rl_pybullet(builder, tmp_path / "again.hdf5")
    assert not (tmp_path / "again.hdf5").exists()


def test_episodes_that_were_shortened_are_refused(tmp_path, monkeypatch):
    builder = converted(raw_d4rl.write_family(tmp_path, "hopper_medium"), tmp_path)

    whole = D4rlExport.each

    def shortened(self):
        for episode in whole(self):
            steps = {path: column[:3] for path, column in leaves_at(episode.steps, None)}
            yield dataclasses.replace(episode, steps=nest(steps))

    monkeypatch.setattr(D4rlExport, "each", shortened)
    with pytest.raises(
        ValueError, match=r"rows \d+ to \d+: their episode has \d+ bytes of actions"
    ):
        export_d4rl(builder, tmp_path / "again.hdf5")
