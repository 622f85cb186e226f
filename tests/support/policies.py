"""The golden samples of policy loaders, compared with feeds."""

import json
from pathlib import Path

import numpy as np

import rlds.feeds
from rlds.feeds import octo, openvla
from rlds.feeds.octo import OctoSamples
from rlds.feeds.openpi import OpenpiSamples
from rlds.feeds.openvla import OpenVLASamples
from rlds.feeds.roles import Roles
from rlds_ecosystem.model.nests import named_leaves

GOLDEN = Path(__file__).parents[1] / "golden" / "policies"

# The last element of the action is a gripper, which Octo and OpenVLA do not normalize.
MASKS = {"action": [True, True, True, False]}
OCTO = Roles(
    images={
        "primary": "observation/exterior_image_1_left",
        "secondary": None,
        "wrist": "observation/wrist_image_left",
    },
    state="observation/joint_position",
    language="language_instruction",
)
OPENVLA = Roles(
    images={"primary": "observation/exterior_image_1_left", "wrist": None},
    state=["observation/joint_position", None, "observation/gripper_position"],
    language="language_instruction",
)
OPENPI = Roles(
    images={
        "image": "observation/exterior_image_1_left",
        "wrist_image": "observation/wrist_image_left",
    },
    state=["observation/joint_position", "observation/gripper_position"],
    action=["action_dict/joint_position", "action_dict/gripper_position"],
    language="language_instruction",
)


def statistics_of(directory, roles, splits=("train", "val"), **options):
    """The statistics of all steps of the action and the state, as Octo and OpenVLA count them."""
    tables = [open_table(directory, split) for split in splits]
    return roles.statistics_of(*tables, **options)


def open_table(directory, split="train"):
    """Opens the golden dataset, or another dataset of its form."""
    return rlds.feeds.open(directory / "arm" / "1.0.0", split)


def samples_of(directory):
    """The samples of the golden files, by name."""
    table = open_table(directory)
    sizes = {"primary": (6, 8), "secondary": (6, 8), "wrist": (5, 11)}
    for_octo = {"statistics": statistics_of(directory, OCTO, masks=MASKS), "image_size": sizes}
    for_openvla = {
        "statistics": statistics_of(directory, OPENVLA, masks=MASKS),
        "image_size": sizes,
    }
    return {
        "octo": OctoSamples(
            table,
            OCTO,
            "arm",
            window_size=2,
            action_horizon=3,
            max_action_dim=6,
            max_proprio_dim=5,
            **for_octo,
        ),
        "octo_goals": OctoSamples(
            table,
            OCTO,
            "arm",
            window_size=3,
            action_horizon=2,
            kind="bounds_q99",
            goal_seed=1,
            **for_octo,
        ),
        "openvla": OpenVLASamples(
            table,
            OPENVLA,
            "arm",
            window_size=2,
            future_action_window_size=2,
            absolute_action_mask=[False, False, False, True],
            kind="bounds_q99",
            **for_openvla,
        ),
        "openvla_goals": OpenVLASamples(
            table,
            OPENVLA,
            "arm",
            absolute_action_mask=[False, False, False, True],
            kind="bounds",
            goal_seed=1,
            **for_openvla,
        ),
        "openpi": OpenpiSamples(table, OPENPI, action_horizon=4),
    }


def check_files(directory):
    """Compares the files of statistics of Octo and OpenVLA; returns the compared names."""
    plain = {
        "octo": octo.statistics_to_json(statistics_of(directory, OCTO)),
        "openvla": openvla.statistics_to_json(
            {"arm": statistics_of(directory, OPENVLA, masks=MASKS)}
        ),
    }
    names = [name for name in plain if (directory / f"{name}.json").exists()]
    for name in names:
        check_equal(json.loads(plain[name]), read(directory, name))
    return names


def read(directory, name):
    """A file of statistics."""
    return json.loads((directory / f"{name}.json").read_text())


def check_equal(plain, expected):
    """Compares keys, and values as float32."""
    assert plain.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            check_equal(plain[name], value)
        else:
            np.testing.assert_allclose(plain[name], value, rtol=1e-6, err_msg=name)


def check_samples(directory):
    """Compares the rows of a feed with those of the loaders; returns the compared names."""
    compared = []
    for name, samples in samples_of(directory).items():
        if not (directory / f"{name}.npz").exists():
            continue
        compared.append(name)
        expected = dict(np.load(directory / f"{name}.npz"))
        expected.pop("step_id", None)  # openpi only filters by it.
        expected_order = _order_of(expected)
        if "task/timestep" in expected:
            _draw(samples, expected["task/timestep"][expected_order])
        batches = list(rlds.feeds.Feed(samples, 4, seed=3, epochs=1))
        columns = joined(batches)
        assert set(columns) == set(expected), name
        order = _order_of(columns)
        for path, column in columns.items():
            _check_column(f"{name}: {path}", column[order], expected[path][expected_order])
    return compared


def check_rows(directory, name, batches):
    """Compares rows, in any order and without goals, with those of the loaders."""
    expected, columns = dict(np.load(directory / f"{name}.npz")), joined(batches)
    assert set(columns) == set(expected)
    order, expected_order = _order_of(columns), _order_of(expected)
    for path, column in columns.items():
        _check_column(f"{name}: {path}", column[order], expected[path][expected_order])


def joined(batches):
    """The rows of batches, by the paths of their fields."""
    rows = [dict(named_leaves(batch)) for batch in batches]
    return {path: np.concatenate([row[path] for row in rows]) for path in rows[0]}


def _order_of(columns):
    """Returns an order that does not depend on the shuffling of rows."""
    if "prompt" in columns:  # No two steps have the same joints.
        return np.argsort(columns["observation/joint_position"][:, 0])
    texts = columns["task/language_instruction"].astype(np.bytes_)
    return np.lexsort([columns["observation/timestep"][:, -1], texts])


def _draw(samples, goals):
    """Replaces the goals of samples by those of a loader, in the order of `_order_of`."""
    drawn = np.empty(len(samples), np.int64)
    drawn[_order_of(joined([samples.batch(np.arange(len(samples)))]))] = goals

    def as_the_loader(chosen, low, high):
        drawn_goals = drawn[chosen.indices]
        assert ((low <= drawn_goals) & (drawn_goals < high)).all()  # Feeds may draw them, too.
        return drawn_goals

    samples._sample_goals = as_the_loader


def _check_column(name, column, expected):
    if column.dtype == object:
        column = column.astype(np.bytes_)
    assert (column.dtype, column.shape) == (expected.dtype, expected.shape), name
    if column.dtype != np.float32:
        np.testing.assert_array_equal(column, expected, err_msg=name)
        return
    if name == "octo_goals: action":  # The one difference: Octo maps constant elements to -1.
        assert (expected[..., 1] == -1).all()
        assert (column[..., 1] == 0).all()
        column, expected = np.delete(column, 1, axis=-1), np.delete(expected, 1, axis=-1)
    np.testing.assert_allclose(column, expected, rtol=1e-5, atol=1e-6, err_msg=name)
