"""robomimic and its dialects, compared with plain loops over the files."""

import json
import pickle

import h5py
import numpy as np
import pytest
import raw_robomimic as raw

import rlds.sources
from rlds.sources import SourceError
from rlds_ecosystem.model.nests import leaves_at

RobomimicSource = rlds.sources.formats()["robomimic"].load()


def read_demos(path):
    """Returns the demonstrations of a file: arrays and attributes by path."""
    demos = {}
    with h5py.File(path) as file:
        for name in sorted(file["data"], key=lambda name: int(name[5:])):
            arrays = {}
            file["data"][name].visititems(
                lambda path, item, arrays=arrays: (
                    arrays.update({path: item[()]}) if isinstance(item, h5py.Dataset) else None
                )
            )
            demos[name] = arrays, dict(file["data"][name].attrs)
    return demos


def look_up(steps, path):
    for name in path.split("/"):
        steps = steps[name]
    return steps


def check(actual, expected):
    assert actual.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(actual, expected)


def test_the_final_observation_comes_from_next_obs(tmp_path):
    path = raw.robomimic(tmp_path / "a.hdf5")
    episodes = rlds.sources.open(path)
    assert episodes.format == "robomimic"
    raws = read_demos(path)
    assert [episode.key for episode in episodes] == list(raws) == ["demo_0", "demo_2", "demo_10"]
    for episode, (arrays, attributes) in zip(episodes, raws.values()):
        length = attributes["num_samples"]
        assert episode.final_observation_known
        assert episode.num_steps == length + 1
        for key in ("object", "robot0_eef_quat", "agentview_image"):
            check(episode.steps["observation"][key][:-1], arrays[f"obs/{key}"])
            check(episode.steps["observation"][key][1:], arrays[f"next_obs/{key}"])
            assert len(episode.metadata["next_obs"][key]) == 0
        fields = {"actions": "action", "rewards": "reward"}
        for key in ("actions", "actions_abs", "action_dict/rel_pos", "states", "rewards", "dones"):
            column = look_up(episode.steps, fields.get(key, key))
            check(column[:-1], arrays[key])
            assert not column[-1].any()
        succeeded = arrays["rewards"][-1] == 1
        assert episode.truncated is not succeeded
        assert episode.steps["is_terminal"].tolist() == [False] * length + [succeeded]
        assert episode.steps["discount"].tolist() == [1] * (length - 1) + [not succeeded, 0]
        lang = json.loads(attributes["ep_meta"])["lang"]
        assert set(episode.steps["language_instruction"]) == {lang}
        actual = episode.metadata["attributes"]
        assert {name: actual[name] for name in attributes} == attributes
    assert [set(episode.metadata["masks"]) for episode in episodes] == [
        {"train", "20_percent"},
        {"train"},
        {"valid"},
    ]
    metadata = episodes.metadata["robomimic"]
    assert json.loads(metadata["files"]["a.hdf5"]["attributes"]["env_args"]) == raw.ENV_ARGS
    assert metadata["files"]["a.hdf5"]["masks"]["20_percent"] == ["demo_99", "demo_0"]
    action = episodes.spec["steps"]["action"]
    assert action.names == ("x", "y", "z", "ax", "ay", "az", "gripper")
    assert "x, y, z, w" in episodes.spec["steps"]["observation"]["robot0_eef_quat"].doc


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dones", "terminal", "expected"),
    [
        ("both", "success", [True, False, True]),
        ("success", "success", [True, False, True]),
        ("end", "success", [True, False, True]),
        ("end", "dones", [True, True, True]),
        ("both", "never", [False, False, False]),
    ],
)
def test_the_terminal_option_chooses_the_terminal_state(tmp_path, dones, terminal, expected):
    path = raw.robomimic(tmp_path / "a.hdf5", dones=dones)
    episodes = rlds.sources.open(path, terminal=terminal)
    assert [bool(episode.steps["is_terminal"][-1]) for episode in episodes] == expected


def test_next_observations_that_differ_from_observations_are_kept(tmp_path):
    path = raw.robomimic(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        file["data/demo_2/next_obs/object"][1, 3] += 1e-9
        file["data/demo_10/next_obs/object"][-1] = 5  # It has the final observation.
    first, second, third = rlds.sources.open(path)
    expected = read_demos(path)["demo_2"][0]["next_obs/object"]
    check(second.metadata["next_obs"]["object"], expected)
    assert len(second.metadata["next_obs"]["robot0_eef_pos"]) == 0
    assert len(first.metadata["next_obs"]["object"]) == 0
    assert third.steps["observation"]["object"][-1].tolist() == [5] * 10


def test_without_next_obs_the_final_observation_is_unknown(tmp_path):
    path = raw.robomimic(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/next_obs"]
        del file["data/demo_2/next_obs/object"]
    first, second, third = rlds.sources.open(path)
    assert [e.final_observation_known for e in (first, second, third)] == [False, False, True]
    assert [e.num_steps for e in (first, second, third)] == [3, 5, 5]
    arrays = read_demos(path)["demo_2"][0]
    check(second.metadata["next_obs"]["robot0_eef_pos"], arrays["next_obs/robot0_eef_pos"])
    assert first.steps["is_terminal"][-1]
    assert first.steps["discount"].tolist() == [1, 1, 0]


def test_libero_is_read_as_stored_or_shifted(tmp_path):
    path = raw.libero(tmp_path / "libero.hdf5")
    stored, shifted = (rlds.sources.open(path, alignment=a) for a in ("as_stored", "shift"))
    assert stored.metadata["robomimic"]["dialect"] == "libero"
    assert "after the action" in stored.spec["steps"]["observation"]["ee_pos"].doc
    assert "after the action" not in shifted.spec["steps"]["observation"]["ee_pos"].doc
    assert "Upside down" in shifted.spec["steps"]["observation"]["agentview_rgb"].doc
    for episode in stored:  # An action of time t with the observation at t + 1.
        time = np.arange(episode.num_steps)
        assert not episode.final_observation_known
        assert (episode.steps["action"][:, 0] == time).all()
        assert (episode.steps["observation"]["ee_pos"][:, 0] == time + 1).all()
    for episode in shifted:
        time = np.arange(episode.num_steps)
        assert episode.final_observation_known
        for key, column in episode.steps["observation"].items():
            assert (column.reshape(len(column), -1)[:, 0] == time + 1).all(), key
        assert (episode.steps["robot_states"][:, 0] == time + 1).all()
        for key in ("action", "states"):
            assert (episode.steps[key][:-1, 0] == time[:-1] + 1).all()
            assert not episode.steps[key][-1].any()
        assert episode.metadata["first_rows"]["actions"].tolist() == [[0] * 7]
        assert episode.metadata["first_rows"]["states"].tolist() == [[0] * 9]
        assert episode.steps["is_terminal"][-1]
        assert episode.steps["reward"][-2:].tolist() == [1, 0]
        assert set(episode.steps["language_instruction"]) == {"open the drawer"}


def test_states_of_isaac_lab_are_moved_before_their_action(tmp_path):
    path = raw.isaac_lab(tmp_path / "a.hdf5")
    episodes = rlds.sources.open(path)
    assert "does not say which" in str(episodes.spec["steps"]["states"])
    for episode, (arrays, attributes) in zip(episodes, read_demos(path).values()):
        name = "articulation/robot/root_pose"
        states = look_up(episode.steps["states"], name)
        check(states[:1], arrays[f"initial_state/{name}"])
        check(states[1:], arrays[f"states/{name}"][:-1])
        check(look_up(episode.metadata, f"last_rows/states/{name}"), arrays[f"states/{name}"][-1:])
        check(episode.steps["observation"]["rgb_camera"]["table"], arrays["obs/rgb_camera/table"])
        assert episode.metadata["attributes"] == attributes
        assert (episode.truncated, episode.num_steps) == (True, attributes["num_samples"])


@pytest.mark.slow
@pytest.mark.parametrize("name", raw.DIALECTS)
def test_every_array_of_the_file_is_read(tmp_path, name):
    path = raw.DIALECTS[name](tmp_path / f"{name}.hdf5")
    episodes = pickle.loads(pickle.dumps(rlds.sources.open(path)))
    dialect = episodes.metadata["robomimic"]["dialect"]
    assert dialect == name.replace("robocasa", "robomimic")
    fields = {"actions": "action", "rewards": "reward", "obs": "observation"}
    for episode, (arrays, _) in zip(episodes, read_demos(path).values()):
        for key, expected in arrays.items():
            root, slash, subpath = key.partition("/")
            if root == "next_obs" or (name, root) == ("isaac_lab", "states"):
                continue
            try:
                column = look_up(episode.steps, fields.get(root, root) + slash + subpath)
            except KeyError:
                column = look_up(episode.metadata, key)
            expected = np.asarray(expected)
            column = column[: len(expected)] if expected.ndim else column
            if expected.dtype.kind in "SO":
                texts = [as_bytes(item) for item in np.ravel(column)]
                assert texts == [as_bytes(item) for item in np.ravel(expected)]
            else:
                check(np.asarray(column), expected)


def as_bytes(text):
    return text.encode() if isinstance(text, str) else text


@pytest.mark.slow
def test_values_of_any_storage_are_read(tmp_path):
    """Contiguous or in chunks, in any byte order and type."""
    path, odd = raw.robomimic(tmp_path / "a.hdf5"), h5py.h5t.IEEE_F32LE.copy()
    odd.set_fields(31, 20, 11, 0, 20)  # NumPy has no such type: eleven of 32 bits are the exponent.
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            length = len(demo["actions"])
            values = np.random.default_rng(length).normal(size=(length, 2, 3))
            for dtype in ("<f8", ">f8", "<f2", "<i2", ">u4", "<c16", "?"):
                demo[f"odd/{dtype[-2:]}{dtype[0] == '>'}"] = values.astype(dtype)
            demo.create_dataset("odd/chunks", data=values, chunks=(2, 2, 2), compression="gzip")
            demo.create_dataset("odd/nowhere", (length, 2), "f4")
            demo.create_dataset("odd/filled", (length, 2), "f4", fillvalue=0.5)
            demo["alone"] = 7.5
            demo.create_dataset("none", (0, 3), "f4")
            space = h5py.h5s.create_simple((length,))
            h5py.h5d.create(demo["odd"].id, b"bits", odd, space).write(
                h5py.h5s.ALL, h5py.h5s.ALL, values[:, 0, 0].copy()
            )
    block_path = tmp_path / "b.hdf5"
    with h5py.File(path) as file, h5py.File(block_path, "w", userblock_size=1024) as copy:
        for name in file:
            file.copy(name, copy)
    for each in (path, block_path):
        episodes = rlds.sources.open(each)
        for episode, (arrays, _) in zip(episodes, read_demos(each).values()):
            for name in [name for name in arrays if name.startswith("odd/")]:
                check(look_up(episode.steps, name)[:-1], arrays[name])
            assert episode.metadata["alone"] == 7.5
            assert episode.metadata["none"].shape == (0, 3)


def test_arrays_that_some_demonstrations_lack_are_marked(tmp_path):
    episodes = rlds.sources.open(raw.mimicgen(tmp_path / "a.hdf5"))
    for episode in episodes:
        info, is_present = episode.steps["datagen_info"], episode.key != "demo_2"
        assert set(info["eef_pose_known"]) == {is_present}
        assert np.isnan(info["eef_pose"]).any() != is_present
        assert info["eef_pose"].shape == (episode.num_steps, 4, 4)


def test_a_folder_is_one_dataset(tmp_path):
    folder = raw.libero_folder(tmp_path / "libero")
    episodes = rlds.sources.open(folder)
    names = ["KITCHEN_SCENE2_close_the_drawer_demo", "KITCHEN_SCENE10_open_the_drawer_demo"]
    assert [episode.key for episode in episodes] == [
        f"{name}.hdf5/demo_{index}" for name in names for index in (0, 1)
    ]
    assert [episode.steps["states"].shape[1] for episode in episodes] == [11, 11, 9, 9]
    assert episodes.spec["steps"]["states"].shape == (None,)
    assert episodes[0].metadata["attributes"]["init_state"].shape == (11,)


def test_instructions_are_read_from_file_names(tmp_path):
    raw.libero_regenerated(tmp_path / "KITCHEN_SCENE10_close_the_top_drawer_demo.hdf5")
    raw.libero_regenerated(tmp_path / "pick_up_the_bowl_demo.hdf5")
    episodes = rlds.sources.open(tmp_path)
    assert episodes.metadata["robomimic"]["dialect"] == "libero_regenerated"
    texts = {str(episode.steps["language_instruction"][0]) for episode in episodes}
    assert texts == {"close the top drawer", "pick up the bowl"}


@pytest.mark.slow
def test_ranges_of_rows_are_slices_of_episodes(tmp_path):
    for name, alignment in (
        ("robomimic", "as_stored"),
        ("libero", "shift"),
        ("isaac_lab", "shift"),
    ):
        path = raw.DIALECTS[name](tmp_path / f"{name}.hdf5")
        episodes = rlds.sources.open(path, alignment=alignment)
        for index in range(len(episodes)):
            all_steps = episodes.columns(index)
            for begin, end in ((0, 1), (0, 3), (1, 9), (1, 2)):
                section = episodes.columns(index, start=begin, stop=end)
                for (key, actual), (_, expected) in zip(
                    leaves_at(section, None),
                    leaves_at(all_steps, None),
                ):
                    np.testing.assert_array_equal(actual, expected[begin:end], err_msg=key)


# --- Damage --------------------------------------------------------------------------------------


def test_a_truncated_file_is_refused_and_other_files_are_read(tmp_path):
    folder = raw.libero_folder(tmp_path / "libero")
    file = folder / "KITCHEN_SCENE10_open_the_drawer_demo.hdf5"
    file.write_bytes(file.read_bytes()[:-2000])
    with pytest.raises(SourceError, match=r"SCENE10.*not a complete HDF5 file.*truncated"):
        rlds.sources.open(file, format="robomimic")
    episodes = rlds.sources.open(folder)
    assert len(episodes) == 3
    assert episodes[1].key.startswith("KITCHEN_SCENE2")
    with pytest.raises(SourceError, match=r"SCENE10.*not a complete HDF5 file"):
        episodes.episode(2)


DAMAGE = {
    "actions": (lambda demo: demo.pop("actions"), "field 'actions': missing"),
    "num_samples": (lambda demo: demo.attrs.update(num_samples=7), "7, but there are 5 actions"),
    "a link": (lambda demo: put(demo, "states", h5py.ExternalLink("/etc/passwd", "/")), "a link"),
    "text": (lambda demo: put(demo, "states", ["a"] * 5), "text, but numbers in earlier"),
    "a shape": (lambda demo: put(demo, "states", np.zeros((5, 2, 2))), "shape"),
    "a group": (
        lambda demo: put(demo, "states/x", np.zeros(5)),
        "an array here and a group in earlier",
    ),
    "no values": (lambda demo: put(demo, "states", h5py.Empty("f8")), "an array without values"),
    "a record": (lambda demo: put(demo, "states", np.zeros(5, "i4,f4")), "are not supported"),
    "an attribute": (lambda demo: demo.attrs.update(model_file=1), "numbers, but text"),
    **{
        f"a row less of {name}": (
            lambda demo, name=name: put(demo, name, demo[name][:-1]),
            f"field '{name}': 4 rows, but there are 5 actions",
        )
        for name in ("obs/robot0_eef_pos", "next_obs/robot0_eef_pos", "states")
    },
}


@pytest.mark.parametrize("case", DAMAGE)
def test_intact_demonstrations_are_read_if_one_is_damaged(tmp_path, case):
    path, (damage, message) = raw.robomimic(tmp_path / "a.hdf5"), DAMAGE[case]
    spec = rlds.sources.open(path).spec
    with h5py.File(path, "a") as file:
        damage(file["data/demo_2"])
    episodes = rlds.sources.open(path)
    assert episodes.spec == spec
    assert [episodes[index].num_steps for index in (0, 2)] == [4, 5]
    with pytest.raises(SourceError, match=rf"a\.hdf5, episode demo_2, .*{message}"):
        episodes.episode(1)


def put(demo, name, value):
    """Replaces an array by another object."""
    del demo[name if name in demo else name.partition("/")[0]]
    demo[name] = value


def test_files_of_other_formats_are_refused(tmp_path):
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        file["data/0/positions"] = np.zeros(3)
    assert not rlds.sources.formats()["robomimic"].recognizes(path)
    with pytest.raises(SourceError, match="field 'actions': missing"):
        RobomimicSource(path)
    with pytest.raises(ValueError, match="expected 'isaac_lab' or"):
        RobomimicSource(path, dialect="robonet")
    with h5py.File(path, "w") as file:
        file.create_group("data")
    with pytest.raises(SourceError, match="no demonstrations"):
        RobomimicSource(path)


def test_arrays_of_the_episode_can_be_declared_with_per_episode(tmp_path):
    path = raw.robosuite(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            demo["corners"] = np.zeros((len(demo["actions"]), 2))
    assert "corners" in rlds.sources.open(path).spec["steps"]
    assert "corners" in rlds.sources.open(path, per_episode=["corners"]).spec


# --- Conversion ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_differences_from_the_tfds_builder_are_as_documented(tmp_path):
    """The rows of docs/differences.md."""
    import tensorflow_datasets as tfds

    path = raw.lift(tmp_path / "low_dim.hdf5", [4, 3])
    theirs = {
        item["episode_id"].decode(): {**item, "steps": list(item["steps"])}
        for item in tfds.as_numpy(raw.by_tfds(path, tmp_path / "tfds").as_dataset(split="train"))
    }
    for ours in rlds.sources.open(path):
        actual = theirs.pop(ours.key)
        steps = actual["steps"]
        assert len(steps) == ours.num_steps
        for key, column in ours.steps["observation"].items():
            check(column, np.stack([step["observation"][key] for step in steps]))
        check(ours.steps["action"], np.stack([step["action"] for step in steps]))
        check(ours.steps["states"], np.stack([step["states"] for step in steps]))
        terminal = [bool(step["is_terminal"]) for step in steps]
        assert ours.steps["is_terminal"].tolist() == [False] * (len(steps) - 1) + [True]
        assert terminal[-2:] == [ours.key == "demo_0", True]  # A terminal state with a step after.
        assert [int(step["discount"]) for step in steps] == [1] * (len(steps) - 1) + [0]
        assert ours.steps["discount"][-2:].tolist() == [0, 0]
        assert set(actual) == {"steps", "horizon", "episode_id", *raw.LIFT_MASKS}
    assert not theirs
    with h5py.File(path, "a") as file:
        del file["data/demo_0/next_obs"]
    with pytest.raises(KeyError, match="next_obs"):
        raw.by_tfds(path, tmp_path / "without")
