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


def described(form, **more):
    """The arguments for a dataset that is in no table."""
    given = arm_datasets.loader_kwargs(form, "")
    given.pop("data_dir")
    return {given.pop("name"): {**given, **more}}


def dataset_of(directory, form="rlds", kind=RLDSDataset, more=(), **options):
    name, given = arm_datasets.FIELDS[form][0], described(form, **dict(more))
    return kind(directory, name, dict, SIZE, dataset_kwargs=given, **options)


def taken(iterator, count):
    return list(itertools.islice(iterator, count))


def sorted_rows(rows):
    columns = [dict(named_leaves(row)) for row in rows]
    order = sorted(range(len(rows)), key=lambda n: columns[n]["action"].tolist())
    return [columns[index] for index in order]


def same(rows, others):
    assert len(rows) == len(others)
    for row, other in zip(sorted_rows(rows), sorted_rows(others), strict=True):
        assert row.keys() == other.keys()
        for path, value in row.items():
            if path == "action":  # Quantiles are floats of another size.
                np.testing.assert_allclose(value, other[path], rtol=1e-6, atol=1e-7)
            else:
                np.testing.assert_array_equal(value, other[path], err_msg=path)


@pytest.mark.parametrize("form", ["rlds", "lerobot"])
def test_openvla_samples_come_from_datasets_of_any_format(directory, form):
    name, camera, _, language = arm_datasets.FIELDS[form]
    dataset = dataset_of(directory, form, goals=False)
    roles = Roles({"primary": f"observation/{camera}", "wrist": None}, language=language)
    part = "train" if form == "rlds" else "train[:95%]"
    table = rlds.feeds.open(directory / name, part, jpeg="tf")
    has_text = [any(len(t) for t in table.read(e)[language]) for e in range(table.num_episodes)]
    whole = [rlds.feeds.open(directory / name, split) for split in table.episodes.splits]
    statistics = roles.statistics_of(*whole)
    samples = OpenVLASamples(
        table.filter_episodes(has_text),
        roles,
        name,
        statistics=statistics,
        kind="bounds_q99",
        image_size=SIZE,
    )
    rows = taken(dataset, len(samples))
    same(rows, list(rows_of(samples.batch(range(len(samples))))))
    # As OpenVLA's scripts decode them, whatever the format has.
    assert {type(row["task"]["language_instruction"]) for row in rows} == {bytes}
    assert len(dataset) == dataset.dataset_length == statistics.num_transitions
    actual = dataset.dataset_statistics[name]
    np.testing.assert_allclose(actual["action"]["q99"], statistics["action"].quantiles[0.99])
    assert actual["num_trajectories"] == statistics.num_trajectories


def with_text(trajectory):
    texts = np.full(len(trajectory["action"]), b"Reach", object)
    return {**trajectory, "language_instruction": texts}


def test_logs_without_instructions(directory):
    more = {"standardize_fn": with_text, "language_key": "language_instruction"}
    dataset = pickle.loads(pickle.dumps(dataset_of(directory, "log", more=more)))
    rows = taken(dataset, 17)
    assert {row["task"]["language_instruction"] for row in rows} == {b"Reach"}
    assert {row["observation"]["image_primary"].shape for row in rows} == {(1, *SIZE, 3)}
    same(taken(dataset_of(directory, "log", more=more), 17), rows)
    with pytest.raises(ValueError, match="needs a language_key"):
        dataset_of(directory, "log")


def test_rows_equal_those_of_openvla(directory):
    """The rows equal those of OpenVLA, with a goal for each; its goals are drawn otherwise."""
    more = {
        "image_obs_keys": {"primary": "exterior_image_1_left", "wrist": None},
        "state_obs_keys": ["joint_position", None, "gripper_position"],
        "absolute_action_mask": [False, False, False, True],
        "action_normalization_mask": [True, True, True, False],
        "action_proprio_normalization_type": "bounds",
    }
    dataset = dataset_of(directory, more=more)
    expected = dict(np.load(directory / "openvla_goals.npz"))
    has_text = expected["task/pad_mask_dict/language_instruction"]
    rows = taken(dataset, int(has_text.sum()))
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
            elif path.endswith("image_wrist"):  # There is none, and theirs has another size.
                assert not value.any()
            elif isinstance(value, bytes):
                assert value == theirs, path
            else:
                assert value.dtype == theirs.dtype, path
                np.testing.assert_allclose(value, theirs, rtol=1e-5, atol=1e-6, err_msg=path)


def test_episodic_datasets_give_whole_episodes(directory):
    dataset = dataset_of(directory, kind=EpisodicRLDSDataset, goals=False)
    episodes = list(dataset)
    assert [len(episode) for episode in episodes] == [5, 1, 6]
    same(
        [row for episode in episodes for row in episode],
        taken(dataset_of(directory, goals=False), 12),
    )
    assert len(dataset) == 5  # Those of all splits, as OpenVLA counts.
    validation = dataset_of(directory, train=False, goals=False, shuffle_buffer_size=6)
    assert len(list(validation)) == 6
    assert {row["task"]["language_instruction"] for row in validation} == {b"Pick up block 4"}


def test_ranks_share_samples_and_resume(directory, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    rows, states = [], []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        dataset = dataset_of(directory)
        iterator = iter(dataset)
        mine = taken(iterator, 6)
        state = json.loads(json.dumps(dataset.state_dict()))
        coming = taken(iterator, 70)
        fresh = dataset_of(directory)
        fresh.load_state_dict(state)
        assert fresh.state_dict() == state
        same(taken(fresh, 70), coming)
        rows += mine
        states.append(state)
    assert states[0]["items"] == 6
    monkeypatch.undo()
    positions = {tuple(row["action"].ravel()) for row in rows}
    assert len(positions) == 12  # Nothing came twice.
    with pytest.raises(ValueError, match="another number of processes"):
        other = dataset_of(directory)
        other.load_state_dict(states[0])
        next(iter(other))
    with pytest.raises(NotImplementedError, match="items have no index"):
        dataset[3]


def test_workers_of_pytorch_share_the_samples(directory):
    data = pytest.importorskip("torch.utils.data")
    dataset = dataset_of(directory, goals=False)
    assert isinstance(dataset, data.IterableDataset)
    loader = data.DataLoader(dataset, batch_size=3, num_workers=2, collate_fn=list)
    rows = [row for batch in taken(loader, 4) for row in batch]
    same(rows, taken(dataset_of(directory, goals=False), 12))


def test_images_are_changed_at_random(directory):
    plain, changed, again = (
        {tuple(row["action"].ravel()): row for row in taken(dataset_of(directory, **options), 12)}
        for options in ({}, {"image_aug": True}, {"image_aug": True})
    )
    assert plain.keys() == changed.keys()
    for position, row in changed.items():
        image = row["observation"]["image_primary"]
        assert (image.shape, image.dtype) == ((1, *SIZE, 3), np.uint8)
        assert (image != plain[position]["observation"]["image_primary"]).mean() > 0.5
        np.testing.assert_array_equal(image, again[position]["observation"]["image_primary"])
    val = [taken(dataset_of(directory, train=False, image_aug=aug), 4) for aug in (True, False)]
    same(*val)


def test_a_mixture_of_open_x(tmp_path):
    raw_oxe.fractal(tmp_path / "fractal20220817_data" / "0.1.0")
    raw_oxe.bridge_dataset(tmp_path / "bridge_orig" / "1.0.0")
    given = {"fractal20220817_data": 3.0, "berkeley_rpt": 1.0}
    with pytest.warns(UserWarning, match="berkeley_rpt: its actions are JOINT_POS"):
        dataset = RLDSDataset(tmp_path, given, dict, (8, 8), goals=False)
    row = next(iter(dataset))
    assert row["action"].shape == (1, 7)
    assert row["absolute_action_mask"].tolist() == [False] * 6 + [True]
    assert row["observation"]["image_primary"].shape == (1, 8, 8, 3)
    assert dataset.dataset_statistics.keys() == {"fractal20220817_data"}
    save_dataset_statistics(dataset.dataset_statistics, tmp_path)
    written = (tmp_path / "dataset_statistics.json").read_text()
    read = statistics_from_json(written, dataset_name="fractal20220817_data")
    assert read["action"].mask.tolist() == [True] * 6 + [False]
    with pytest.raises(ValueError, match=r"not registered.* dataset_kwargs"):
        RLDSDataset(tmp_path, "my_robot", dict, (8, 8))


def test_oft_samples_have_action_chunks_wrist_images_and_states(directory, monkeypatch):
    constants = types.ModuleType("prismatic.vla.constants")
    constants.NUM_ACTIONS_CHUNK = 3
    constants.ACTION_PROPRIO_NORMALIZATION_TYPE = types.SimpleNamespace(value="bounds")
    for name in ("prismatic", "prismatic.vla"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "prismatic.vla.constants", constants)
    more = {"image_obs_keys": {"primary": "exterior_image_1_left", "wrist": "wrist_image_left"}}
    more["state_obs_keys"] = ["joint_position"]
    dataset = dataset_of(directory, kind=OFTDataset, more=more)
    rows = taken(dataset, 7)  # Of 5, 3, 1 and 6 steps; that of 3 has no instruction.
    assert len({tuple(row["action"].ravel()) for row in rows}) == 7
    table = policies.open_table(directory)
    scale = dataset.dataset_statistics["arm"]["action"]
    for row in rows:
        text, step = row["task"]["language_instruction"], int(row["observation"]["timestep"][0])
        stored = table.read(int(text[-1:]))["action"][step : step + 3]
        assert (row["action"][:, 1] == 0).all()  # It never changes.
        high, low = (np.delete(scale[name], 1) for name in ("max", "min"))
        expected = 2 * (np.delete(stored, 1, axis=1) - low) / (high - low) - 1
        np.testing.assert_allclose(np.delete(row["action"], 1, axis=1), expected, atol=1e-5)
        assert row["observation"]["image_wrist"].any()
        assert row["observation"]["proprio"].shape == (1, 3)
