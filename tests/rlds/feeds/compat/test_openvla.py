"""The drop-in loader for OpenVLA's scripts."""

import itertools
import json
import pickle
import sys
import types

import arm_datasets
import numpy as np
import policies
import pytest
import raw_oxe

import rlds.feeds
from rlds.feeds import Roles
from rlds.feeds.compat.openvla import (
    EpisodicRLDSDataset,
    OFTDataset,
    RLDSDataset,
    save_dataset_statistics,
)
from rlds.feeds.openvla import OpenVLASamples, rows_of, statistics_from_json
from rlds_ecosystem.model.nests import named_leaves

SIZE = (6, 8)


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory):
    return arm_datasets.write_all(tmp_path_factory.mktemp("openvla") / "data")


def make_kwargs(form, **changes):
    """Returns the arguments of an unregistered dataset."""
    kwargs = arm_datasets.loader_kwargs(form, "")
    kwargs.pop("data_dir")
    return {kwargs.pop("name"): {**kwargs, **changes}}


def open_dataset(directory, form="rlds", kind=RLDSDataset, changes=(), **options):
    name, kwargs = arm_datasets.FIELDS[form][0], make_kwargs(form, **dict(changes))
    return kind(directory, name, dict, SIZE, dataset_kwargs=kwargs, **options)


def take(iterator, count):
    return list(itertools.islice(iterator, count))


def sort_rows(rows):
    columns = [dict(named_leaves(row)) for row in rows]
    order = sorted(range(len(rows)), key=lambda n: columns[n]["action"].tolist())
    return [columns[index] for index in order]


def assert_same_rows(rows, expected):
    assert len(rows) == len(expected)
    for row, other in zip(sort_rows(rows), sort_rows(expected), strict=True):
        assert row.keys() == other.keys()
        for path, value in row.items():
            if path == "action":  # Quantiles have another float dtype.
                np.testing.assert_allclose(value, other[path], rtol=1e-6, atol=1e-7)
            else:
                np.testing.assert_array_equal(value, other[path], err_msg=path)


@pytest.mark.parametrize("form", ["rlds", "lerobot"])
def test_openvla_samples_come_from_datasets_of_any_format(directory, form):
    name, camera, _, language = arm_datasets.FIELDS[form]
    dataset = open_dataset(directory, form, goals=False)
    roles = Roles({"primary": f"observation/{camera}", "wrist": None}, language=language)
    split = "train" if form == "rlds" else "train[:95%]"
    table = rlds.feeds.open(directory / name, split, jpeg="tf")
    has_text = [any(len(t) for t in table.read(e)[language]) for e in range(table.num_episodes)]
    tables = [rlds.feeds.open(directory / name, split) for split in table.episodes.splits]
    statistics = roles.statistics_of(*tables)
    samples = OpenVLASamples(
        table.filter_episodes(has_text),
        roles,
        name,
        statistics=statistics,
        kind="bounds_q99",
        image_size=SIZE,
    )
    rows = take(dataset, len(samples))
    assert_same_rows(rows, list(rows_of(samples.batch(range(len(samples))))))
    # OpenVLA's scripts decode bytes.
    assert {type(row["task"]["language_instruction"]) for row in rows} == {bytes}
    assert len(dataset) == dataset.dataset_length == statistics.num_transitions
    actual = dataset.dataset_statistics[name]
    np.testing.assert_allclose(actual["action"]["q99"], statistics["action"].quantiles[0.99])
    assert actual["num_trajectories"] == statistics.num_trajectories


def add_text(trajectory):
    texts = np.full(len(trajectory["action"]), b"Reach", object)
    return {**trajectory, "language_instruction": texts}


def test_function_adds_instructions_to_logs(directory):
    changes = {"standardize_fn": add_text, "language_key": "language_instruction"}
    dataset = pickle.loads(pickle.dumps(open_dataset(directory, "log", changes=changes)))
    rows = take(dataset, 17)
    assert {row["task"]["language_instruction"] for row in rows} == {b"Reach"}
    assert {row["observation"]["image_primary"].shape for row in rows} == {(1, *SIZE, 3)}
    assert_same_rows(take(open_dataset(directory, "log", changes=changes), 17), rows)
    with pytest.raises(ValueError, match="needs a language_key"):
        open_dataset(directory, "log")


def test_rows_equal_those_of_openvla(directory):
    """Goals are not compared, because OpenVLA draws different ones."""
    changes = {
        "image_obs_keys": {"primary": "exterior_image_1_left", "wrist": None},
        "state_obs_keys": ["joint_position", None, "gripper_position"],
        "absolute_action_mask": [False, False, False, True],
        "action_normalization_mask": [True, True, True, False],
        "action_proprio_normalization_type": "bounds",
    }
    dataset = open_dataset(directory, changes=changes)
    expected = dict(np.load(directory / "openvla_goals.npz"))
    has_text = expected["task/pad_mask_dict/language_instruction"]
    rows = take(dataset, int(has_text.sum()))
    columns = [dict(named_leaves(row)) for row in rows]
    assert set(columns[0]) == set(expected)
    position = {
        tuple(row): index for index, row in enumerate(expected["observation/proprio"][:, 0])
    }
    for row in columns:
        nearest = min(
            position,
            key=lambda state, row=row: np.abs(state - row["observation/proprio"][0]).sum(),
        )
        for path, value in row.items():
            theirs = expected[path][position[nearest]]
            if path in ("task/timestep", "task/image_primary", "task/proprio"):
                assert np.shape(value) == theirs.shape, path
            elif path.endswith("image_wrist"):  # OpenVLA pads this missing camera to another size.
                assert not value.any()
            elif isinstance(value, bytes):
                assert value == theirs, path
            else:
                assert value.dtype == theirs.dtype, path
                np.testing.assert_allclose(value, theirs, rtol=1e-5, atol=1e-6, err_msg=path)


def test_episodic_datasets_give_whole_episodes(directory):
    dataset = open_dataset(directory, kind=EpisodicRLDSDataset, goals=False)
    episodes = list(dataset)
    assert [len(episode) for episode in episodes] == [5, 1, 6]
    assert_same_rows(
        [row for episode in episodes for row in episode],
        take(open_dataset(directory, goals=False), 12),
    )
    assert len(dataset) == 5  # Like OpenVLA, counts all splits.
    validation = open_dataset(directory, train=False, goals=False, shuffle_buffer_size=6)
    assert len(list(validation)) == 6
    assert {row["task"]["language_instruction"] for row in validation} == {b"Pick up block 4"}


def test_ranks_share_samples_and_resume(directory, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    rows, states = [], []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        dataset = open_dataset(directory)
        iterator = iter(dataset)
        own_rows = take(iterator, 6)
        state = json.loads(json.dumps(dataset.state_dict()))
        upcoming = take(iterator, 70)
        resumed = open_dataset(directory)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert_same_rows(take(resumed, 70), upcoming)
        rows += own_rows
        states.append(state)
    assert states[0]["items"] == 6
    monkeypatch.undo()
    positions = {tuple(row["action"].ravel()) for row in rows}
    assert len(positions) == 12  # No sample repeats.
    with pytest.raises(ValueError, match="another number of processes"):
        other = open_dataset(directory)
        other.load_state_dict(states[0])
        next(iter(other))
    with pytest.raises(NotImplementedError, match="items have no index"):
        dataset[3]


def test_workers_of_pytorch_share_the_samples(directory):
    data = pytest.importorskip("torch.utils.data")
    dataset = open_dataset(directory, goals=False)
    assert isinstance(dataset, data.IterableDataset)
    loader = data.DataLoader(dataset, batch_size=3, num_workers=2, collate_fn=list)
    rows = [row for batch in take(loader, 4) for row in batch]
    assert_same_rows(rows, take(open_dataset(directory, goals=False), 12))


def test_images_are_augmented_at_random(directory):
    plain, augmented, repeated = (
        {tuple(row["action"].ravel()): row for row in take(open_dataset(directory, **options), 12)}
        for options in ({}, {"image_aug": True}, {"image_aug": True})
    )
    assert plain.keys() == augmented.keys()
    for position, row in augmented.items():
        image = row["observation"]["image_primary"]
        assert (image.shape, image.dtype) == ((1, *SIZE, 3), np.uint8)
        assert (image != plain[position]["observation"]["image_primary"]).mean() > 0.5
        np.testing.assert_array_equal(image, repeated[position]["observation"]["image_primary"])
    val = [take(open_dataset(directory, train=False, image_aug=aug), 4) for aug in (True, False)]
    assert_same_rows(*val)


def test_mixtures_of_open_x_are_configured_by_name(tmp_path):
    raw_oxe.fractal(tmp_path / "fractal20220817_data" / "0.1.0")
    raw_oxe.bridge_dataset(tmp_path / "bridge_orig" / "1.0.0")
    weights = {"fractal20220817_data": 3.0, "berkeley_rpt": 1.0}
    with pytest.warns(UserWarning, match="berkeley_rpt: its actions are JOINT_POS"):
        dataset = RLDSDataset(tmp_path, weights, dict, (8, 8), goals=False)
    row = next(iter(dataset))
    assert row["action"].shape == (1, 7)
    assert row["absolute_action_mask"].tolist() == [False] * 6 + [True]
    assert row["observation"]["image_primary"].shape == (1, 8, 8, 3)
    assert dataset.dataset_statistics.keys() == {"fractal20220817_data"}
    save_dataset_statistics(dataset.dataset_statistics, tmp_path)
    text = (tmp_path / "dataset_statistics.json").read_text()
    statistics = statistics_from_json(text, dataset_name="fractal20220817_data")
    assert statistics["action"].mask.tolist() == [True] * 6 + [False]
    with pytest.raises(ValueError, match=r"not registered.* dataset_kwargs"):
        RLDSDataset(tmp_path, "my_robot", dict, (8, 8))


def test_oft_samples_have_action_chunks_wrist_images_and_states(directory, monkeypatch):
    constants = types.ModuleType("prismatic.vla.constants")
    constants.NUM_ACTIONS_CHUNK = 3
    constants.ACTION_PROPRIO_NORMALIZATION_TYPE = types.SimpleNamespace(value="bounds")
    for name in ("prismatic", "prismatic.vla"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "prismatic.vla.constants", constants)
    changes = {"image_obs_keys": {"primary": "exterior_image_1_left", "wrist": "wrist_image_left"}}
    changes["state_obs_keys"] = ["joint_position"]
    dataset = open_dataset(directory, kind=OFTDataset, changes=changes)
    rows = take(dataset, 7)  # Episodes have 5, 3, 1 and 6 steps; the second has no instruction.
    assert len({tuple(row["action"].ravel()) for row in rows}) == 7
    table = policies.open_table(directory)
    scale = dataset.dataset_statistics["arm"]["action"]
    for row in rows:
        text, step = row["task"]["language_instruction"], int(row["observation"]["timestep"][0])
        stored = table.read(int(text[-1:]))["action"][step : step + 3]
        assert (row["action"][:, 1] == 0).all()  # This element is constant.
        high, low = (np.delete(scale[name], 1) for name in ("max", "min"))
        expected = 2 * (np.delete(stored, 1, axis=1) - low) / (high - low) - 1
        np.testing.assert_allclose(np.delete(row["action"], 1, axis=1), expected, atol=1e-5)
        assert row["observation"]["image_wrist"].any()
        assert row["observation"]["proprio"].shape == (1, 3)
