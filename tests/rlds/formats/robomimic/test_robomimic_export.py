"""Exports to robomimic, from its own files and from other formats."""

import json

import foreign_readers
import h5py
import numpy as np
import pytest
import raw_npz
import raw_robomimic as raw

import rlds.sources
from rlds.conversion.exporting import prepare
from rlds.editing import Set
from rlds.raw_files.input_files import natural_order
from rlds.sources import export
from rlds.sources.testing import differences

RobomimicSource = rlds.sources.formats()["robomimic"].load()

DAMAGED = "demo_2"


def check_export(path, exported, **options):
    before = rlds.sources.open(path, **options)
    for original, copy in zip(before, rlds.sources.open(exported), strict=True):
        assert not [*differences(original, copy)]
    metadata = dict(rlds.sources.open(exported).metadata)
    assert metadata.pop("lineage")["from"][0]["format"] == "robomimic"
    assert metadata == before.metadata


def test_exports_have_the_layout_of_robomimic(tmp_path):
    path = raw.robomimic(tmp_path / "a.hdf5")
    exported = export(path, "robomimic", tmp_path / "made.hdf5").path
    with h5py.File(path) as file, h5py.File(exported) as actual:
        assert json.loads(actual["data"].attrs["env_args"]) == raw.ENV_ARGS
        assert actual["data"].attrs["total"] == file["data"].attrs["total"]
        assert actual["mask/train"][()].tolist() == [b"demo_0", b"demo_1"]
        for index, name in enumerate(raw.LENGTHS):
            before, demo = file["data"][name], actual[f"data/demo_{index}"]
            arrays = []
            before.visit(lambda path, arrays=arrays: arrays.append(path))
            for array in arrays:
                if isinstance(before[array], h5py.Dataset):
                    np.testing.assert_array_equal(demo[array][()], before[array][()])
            assert dict(demo.attrs) == dict(before.attrs)
            assert demo["obs"].attrs["note"] == "upright"


def read_contents(path):
    """Returns all arrays and attributes except for the sidecar, by demonstration."""
    contents = {}

    def to_plain(value):
        value = np.array(value).tolist()
        return value.decode() if isinstance(value, bytes) else value

    def add(name, item):
        demo, is_observation, observation = name.partition("/obs/")
        name = demo + is_observation + observation.replace("/", ".")
        if isinstance(item, h5py.Dataset):
            contents[name] = f"{item.dtype.newbyteorder('=')}: {np.array(item[()]).tolist()}"
        contents.update({f"{name}@{key}": to_plain(value) for key, value in item.attrs.items()})

    with h5py.File(path) as file:
        add("", file)
        for group in file.keys() - {"rlds", "data"}:
            file[group].visititems(lambda name, item, group=group: add(f"{group}/{name}", item))
        add("data", file["data"])
        for index, demo in enumerate(sorted(file["data"], key=natural_order)):
            add(f"{index}", file["data"][demo])
            file["data"][demo].visititems(lambda name, item, n=index: add(f"{n}/{name}", item))
    return contents


# The states of Isaac Lab follow the action; an export has them before it.
@pytest.mark.parametrize("name", [name for name in raw.DIALECTS if name != "isaac_lab"])
def test_exports_have_only_the_arrays_and_attributes_of_the_file(tmp_path, name):
    path = raw.DIALECTS[name](tmp_path / f"{name}.hdf5")
    with h5py.File(path, "a") as file:
        data = file["data"]
        demos = [demo for demo in data.values() if isinstance(demo, h5py.Group)]
        file["extra/notes"] = ["ü", ""]
        data.attrs["level"], data.attrs["num_demos"] = 3, len(demos)
        data.attrs["total"] = sum(len(demo["actions"]) for demo in demos)
        for demo in demos:
            demo.attrs["num_samples"] = len(demo["actions"])
            if "src_demo_inds" in demo:  # It lacks rows for some actions.
                del demo["src_demo_inds"]
        for group in {"mask"} & file.keys():
            del file[group]
    exported = export(path, "robomimic", tmp_path / "made.hdf5").path
    before, after = read_contents(path), read_contents(exported)
    assert {key: value for key, value in after.items() if before.get(key) != value} == {}
    assert {key for key in before if "@" in key} <= after.keys()


def test_arrays_that_every_demonstration_lacks_are_exported_as_missing(tmp_path):
    path = raw.mimicgen(tmp_path / "a.hdf5")
    episodes = rlds.sources.open(path, "train[1:2]")
    exported = export(episodes, "robomimic", tmp_path / "made.hdf5").path
    for original, copy in zip(episodes, rlds.sources.open(exported), strict=True):
        assert not original.steps["datagen_info"]["eef_pose_known"].any()
        assert not [*differences(original, copy)]


def test_edited_instructions_are_stored_as_robomimic_stores_them(tmp_path):
    path = raw.libero(tmp_path / "libero.hdf5")
    text = "close the drawer"
    rlds.edit(path, Set("language_instruction", text, where="index < 1"))
    with h5py.File(path) as file:
        first, second = file["data"].values()
        assert json.loads(first.attrs["ep_meta"]) == {"lang": text}
        assert "ep_meta" not in second.attrs
    path = raw.robomimic(tmp_path / "robomimic.hdf5")
    rlds.edit(path, Set("language_instruction", text))
    with h5py.File(path) as file:
        expected = {"lang": text, "layout_id": 1}
        assert json.loads(file["data/demo_1"].attrs["ep_meta"]) == expected


def test_irregular_arrays_and_attributes_are_read_back(tmp_path):
    path = raw.robomimic(tmp_path / "a.hdf5", compression="gzip", shuffle=True, chunks=True)
    with h5py.File(path, "a") as file:
        file["data/demo_2/next_obs/object"][1, 3] += 1e-9
        del file["data/demo_10/next_obs/object"]
        del file["data/demo_0/actions_abs"]
        file["data/demo_2/states"].attrs["odd"] = [1, 2]
        file["data/demo_0"].attrs["only here"] = np.float32(np.nan)
        del file["data/demo_0"].attrs["camera_info"]
        file["data/demo_10/wide"] = np.arange(5)  # One row more than actions.
        file["data/demo_2/wide"] = np.arange(5, dtype=np.uint8)
        file["data"].attrs["version"] = "1.5"
        file["extra/notes"] = ["ü", ""]
        file.attrs["written by"] = "somebody"
    exported = export(path, "robomimic", tmp_path / "made.hdf5").path
    check_export(path, exported)
    first, second, _ = rlds.sources.open(exported)
    assert first.metadata["attributes"]["camera_info_known"] == np.False_
    assert second.metadata["attributes"]["states"]["odd"].tolist() == [1, 2]
    with h5py.File(exported) as file:
        assert "camera_info" not in file["data/demo_0"].attrs
        assert np.isnan(file["data/demo_0"].attrs["only here"])


def test_an_export_skips_damaged_demonstrations_on_request(tmp_path):
    path = raw.robomimic(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        del file[f"data/{DAMAGED}/actions"]
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        export(path, "robomimic", tmp_path / "made.hdf5", skip_damaged=True)
    with h5py.File(tmp_path / "made.hdf5") as file:
        assert file["data"].attrs["total"] == 7
        assert file["mask/train"][()].tolist() == [b"demo_0"]
        assert file["mask/valid"][()].tolist() == [b"demo_1"]


@pytest.mark.slow
def test_episodes_of_other_formats_are_exported_and_read_back(tmp_path):
    files = raw_npz.sample()
    path = raw_npz.write_folder(tmp_path / "raw", files)
    exported = export(
        path, "robomimic", tmp_path / "made.hdf5", env_args={"env_name": "Lift", "type": 1}
    )
    assert {
        placement.field: placement.place
        for placement in exported.placements
        if placement.how == "exact"
    } == {
        "steps/observation/camera": "obs/camera",
        "steps/observation/joints": "obs/joints",
        "steps/action": "actions",
        "steps/reward": "rewards",
        "steps/discount": "discount",
        "steps/info/qpos": "info/qpos",
        "steps/info/contact": "info/contact",
    }
    episodes = rlds.sources.open(exported.path)
    assert episodes.format == "robomimic"
    for original, copy in zip(rlds.sources.open(path), episodes, strict=True):
        assert list(differences(original, copy)) == []
    np.testing.assert_array_equal(
        episodes.columns(1, ["observation/joints"], 2, 5)["observation"]["joints"],
        files["episode_2.npz"]["observation/joints"][2:5],
    )
    with h5py.File(exported.path) as file:
        raws = list(files.values())
        assert sorted(file["data"]) == ["demo_0", "demo_1", "demo_2"]
        for index, arrays in enumerate(raws):
            demo, length = file[f"data/demo_{index}"], len(arrays["action"])
            assert demo.attrs["num_samples"] == length
            camera = arrays["observation/camera"]
            np.testing.assert_array_equal(demo["obs/camera"], camera[:-1])
            np.testing.assert_array_equal(demo["next_obs/camera"], camera[1:])
            assert demo["dones"][()].tolist() == [0] * (length - 1) + [int(index == 0)]
        assert file["data"].attrs["total"] == 12
        assert json.loads(file["data"].attrs["env_args"]) == {"env_name": "Lift", "type": 1}
        assert file["mask/train"][()].tolist() == [b"demo_0", b"demo_1", b"demo_2"]


def test_action_groups_and_scalars_are_exported_without_final_observations(tmp_path):
    arrays = {
        "observation": np.arange(5.0),
        "action/arm": np.arange(10.0).reshape(5, 2),
        "action/gripper": np.arange(5),
    }
    path = raw_npz.write_folder(tmp_path / "raw", {"a.npz": arrays})
    exported = export(path, "robomimic", tmp_path / "made.h5", compression="gzip")
    with h5py.File(exported.path) as file:
        demo = file["data/demo_0"]
        assert demo["actions"][3].tolist() == [6, 7, 3]
        assert demo["action_dict/gripper"].shape == (5, 1)
        assert demo["obs/observation"].shape == (5, 1)
        assert "next_obs" not in demo
    (original,), (copy,) = rlds.sources.open(path), rlds.sources.open(exported.path)
    assert list(differences(original, copy)) == []


def test_actions_and_file_names_that_robomimic_cannot_hold_are_refused(tmp_path):
    path = raw_npz.write_folder(
        tmp_path / "raw", {"a.npz": {"observation": np.arange(3.0), "action": np.array(["a"] * 3)}}
    )
    with pytest.raises(ValueError, match="needs actions that are numbers"):
        prepare(path, "robomimic")
    file = raw.robosuite(tmp_path / "a.hdf5")
    with pytest.raises(ValueError, match=r"must end with \.hdf5 or \.h5"):
        export(file, "robomimic", tmp_path / "made")


# --- Through TFDS, and for other readers ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", raw.DIALECTS)
def test_a_tfds_dataset_is_exported_like_its_source(tmp_path, name):
    import tfds_builders

    path = raw.DIALECTS[name](tmp_path / f"{name}.hdf5")
    source = RobomimicSource(path, alignment="shift")
    builder = tfds_builders.convert(source, name="dataset", data_dir=tmp_path)
    exported = export(builder.data_path, "robomimic", tmp_path / "made.hdf5").path
    assert read_contents(exported) == read_contents(
        export(source, "robomimic", tmp_path / "a.hdf5").path
    )
    for old, new in zip(rlds.sources.Episodes(source), rlds.sources.open(exported), strict=True):
        assert not [*differences(old, new)]


@pytest.mark.slow
def test_robomimic_reads_an_exported_file(tmp_path):
    files = raw_npz.sample()
    path = raw_npz.write_folder(tmp_path / "raw", files)
    export(path, "robomimic", tmp_path / "made.hdf5")
    script = """
import contextlib, io, json, sys
import numpy as np
with contextlib.redirect_stdout(io.StringIO()):
    import robomimic.utils.obs_utils as ObsUtils
    from robomimic.utils.dataset import SequenceDataset
    ObsUtils.initialize_obs_utils_with_obs_specs(
        {"obs": {"low_dim": ["joints"], "rgb": ["camera"]}}
    )
    def read(mask, cache):
        dataset = SequenceDataset(
            sys.argv[1], obs_keys=["joints", "camera"],
            dataset_keys=["actions", "rewards", "dones"], seq_length=2,
            hdf5_cache_mode=cache, filter_by_attribute=mask, hdf5_use_swmr=False)
        return dataset, [dataset[index] for index in range(len(dataset))]
    dataset, items = read(None, "all")
    masked, _ = read("train", None)
print(json.dumps({
    "demos": dataset.demos, "masked": masked.demos,
    **{key: [np.asarray(item[key])[0].tolist() for item in items]
       for key in ("actions", "rewards", "dones")},
    **{f"{group}/{key}": [np.asarray(item[group][key])[0].tolist() for item in items]
       for group in ("obs", "next_obs") for key in ("joints", "camera")},
}))
"""
    actual = foreign_readers.run("robomimic", script, tmp_path / "made.hdf5")
    assert actual["demos"] == actual["masked"] == ["demo_0", "demo_1", "demo_2"]
    raws = list(files.values())
    for key, arrays in (
        ("actions", [a["action"].astype("f4") for a in raws]),
        ("rewards", [a["reward"] for a in raws]),
        ("obs/joints", [a["observation/joints"][:-1] for a in raws]),
        ("next_obs/joints", [a["observation/joints"][1:] for a in raws]),
        ("next_obs/camera", [a["observation/camera"][1:] for a in raws]),
    ):
        np.testing.assert_array_equal(np.array(actual[key], "f4"), np.concatenate(arrays))
    assert np.flatnonzero(actual["dones"]).tolist() == [2]
