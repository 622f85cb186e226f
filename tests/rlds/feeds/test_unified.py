"""Datasets with other fields, sizes and rates in one mixture."""

import pickle

import arm_datasets
import numpy as np
import pytest
import raw_oxe

import rlds.feeds
from rlds.feeds import Feed, Mixture, unify
from rlds.feeds.resizing import resize

LIKE = {
    "observation/primary": ("uint8", (5, 7, 3)),
    "observation/wrist": ("uint8", (5, 7, 3)),
    "observation/state": ("float32", (6,)),
    "action": ("float32", (5,)),
    "language_instruction": bytes,
}
FIELDS = {
    "rlds": {
        "observation/primary": "observation/exterior_image_1_left",
        "observation/wrist": "observation/wrist_image_left",
        "observation/state": ["observation/joint_position", None, "observation/gripper_position"],
        "action": "action",
        "language_instruction": "language_instruction",
    },
    "lerobot": {
        "observation/primary": None,
        "observation/wrist": "observation/images/wrist",
        "observation/state": "observation/state",
        "action": "action",
        "language_instruction": "language_instruction",
    },
    "log": {"observation/primary": "observation/image", "action": "action"},
}


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory):
    return arm_datasets.write_all(tmp_path_factory.mktemp("unified") / "data")


def table_of(directory, form):
    return rlds.feeds.open(directory / arm_datasets.FIELDS[form][0], "train")


@pytest.mark.parametrize("form", arm_datasets.FORMATS)
def test_fields_are_those_that_are_declared(directory, form):
    table = table_of(directory, form)
    made = unify(table, LIKE, FIELDS[form])
    assert {path: field.shape for path, field in made.fields.items()} == {
        **{path: given[1] for path, given in LIKE.items() if given is not bytes},
        "language_instruction": (),
        **dict.fromkeys(
            ("observation/primary_mask", "observation/wrist_mask", "language_instruction_mask"), ()
        ),
        "observation/state_mask": (6,),
        "action_mask": (5,),
    }
    assert made.outlines.num_steps.tolist() == table.outlines.num_steps.tolist()
    for episode in range(table.num_episodes):
        stored, actual = table.read(episode), made.read(episode)
        width = stored["action"].shape[1]
        assert actual["action"].dtype == np.float32
        np.testing.assert_array_equal(actual["action"][:, :width], stored["action"].astype("f4"))
        assert not actual["action"][:, width:].any()
        assert actual["action_mask"][0].tolist() == [n < width for n in range(5)]
        for camera in ("primary", "wrist"):
            path = FIELDS[form].get(f"observation/{camera}")
            image, mask = (actual["observation"][camera + end] for end in ("", "_mask"))
            assert mask.all() if path else not (mask.any() or image.any())
            if path:
                before = stored
                for part in path.split("/"):
                    before = before[part]
                np.testing.assert_array_equal(image, resize(before, (5, 7)))
    state = actual["observation"]["state_mask"][0].tolist()
    expected = {"rlds": [1, 1, 1, 0, 1, 0], "lerobot": [1, 1, 1, 0, 0, 0], "log": [0] * 6}
    assert state == list(map(bool, expected[form]))
    texts = actual["language_instruction"]
    assert actual["language_instruction_mask"].tolist() == [len(text) > 0 for text in texts]
    again = pickle.loads(pickle.dumps(made))
    assert again.fingerprint() == made.fingerprint()
    np.testing.assert_array_equal(again.read(0)["action"], made.read(0)["action"])


@pytest.mark.parametrize("form", ["rlds", "lerobot"])
def test_a_mask_is_read_without_its_text(directory, form):
    made = unify(table_of(directory, form), LIKE, FIELDS[form])
    name = "language_instruction_mask"
    both, alone = made.read(1), made.select([name]).read(1)
    assert alone[name].tolist() == both[name].tolist()


@pytest.mark.parametrize("to_hz", [2, 4, 5])
def test_whole_episodes_have_the_values_of_rows(directory, to_hz):
    table = table_of(directory, "rlds")
    like = {"action": ("float32", (5,)), "text": bytes}
    fields = {"action": "action", "text": "language_instruction"}
    relative = {"action": [True, True, False, False]}
    made = unify(table, like, fields, hz=10, to_hz=to_hz, relative=relative)
    view = made.storage.view
    for index in range(table.num_episodes):
        rows, whole = made.read(index), view.read(view.splits[0], index).steps
        assert whole.keys() == rows.keys() == {"action", "action_mask", "text", "text_mask"}
        for name, column in rows.items():
            np.testing.assert_array_equal(whole[name], column)


@pytest.mark.parametrize("to_hz", [2, 4, 5, 10, 25])
def test_rates_are_changed_by_time(directory, to_hz):
    """From 10 steps a second. The sum of what is relative stays the same."""
    table = table_of(directory, "rlds")
    relative = {"action": [True, True, False, False]}
    like = {"action": ("float32", (4,)), "is_last": (bool, ())}
    fields = {"action": "action", "is_last": "is_last"}
    made = unify(table, like, fields, hz=10, to_hz=to_hz, relative=relative)
    for episode, length in enumerate(table.outlines.num_steps.tolist()):
        stored, actual = table.read(episode)["action"], made.read(episode)["action"]
        times = np.arange(1000) / to_hz
        times = times[times <= (length - 1) / 10 + 1e-9]
        nearest = np.rint(times * 10).astype(int)
        assert len(actual) == len(times)
        np.testing.assert_array_equal(actual[:, 2:], stored[nearest, 2:])
        real = length - int(table.outlines.final_observation_known[episode])
        if to_hz > 10:
            expected = stored[nearest, :2] * np.float32(10 / to_hz)
        else:
            ends = np.append(nearest[1:], max(real, nearest[-1]))
            parts = zip(nearest, np.minimum(ends, real), strict=True)
            expected = [stored[begin:end, :2].sum(0) for begin, end in parts]
        if to_hz != 10:
            np.testing.assert_allclose(actual[:, :2], expected, atol=1e-5)
    assert (made.outlines.num_transitions <= made.outlines.num_steps).all()


def test_a_mixture_of_all(directory):
    parts = {
        form: unify(table_of(directory, form), LIKE, FIELDS[form]).windows(horizon=2)
        for form in arm_datasets.FORMATS
    }
    feed = Feed(Mixture(parts, {"rlds": 2, "lerobot": 1, "log": 1}), 400, number_fields=True)
    batch = feed[0]
    counts = np.bincount(batch["part_number"])
    assert counts.tolist() == pytest.approx([200, 100, 100], abs=40)
    has_camera = batch["observation"]["primary_mask"][:, 0]
    np.testing.assert_array_equal(has_camera, batch["part_number"] != 1)
    # Each is normalized by its own statistics.
    normalized = [
        samples.normalize(samples.table.compute_statistics(["action"]), fields=["action"])
        for samples in parts.values()
    ]
    assert np.isfinite(Feed(Mixture(normalized), 50)[0]["action"]).all()
    shares = {t: Mixture(parts, temperature=t).counts / 65536 for t in (1, 2, 1e9)}
    sizes = np.array([len(samples) for samples in parts.values()])
    np.testing.assert_allclose(shares[1], sizes / sizes.sum(), atol=1e-4)
    np.testing.assert_allclose(shares[2], sizes**0.5 / (sizes**0.5).sum(), atol=1e-4)
    np.testing.assert_allclose(shares[1e9], 1 / 3, atol=1e-4)
    with pytest.raises(ValueError, match=r"weights: got \['rlds'\], expected \['lerobot'"):
        Mixture(parts, {"rlds": 1})
    with pytest.raises(ValueError, match="temperature must be positive"):
        Mixture(parts, temperature=0)


def test_what_is_known_of_open_x(tmp_path):
    raw_oxe.fractal(tmp_path / "fractal20220817_data" / "0.1.0")
    table = rlds.feeds.open(tmp_path / "fractal20220817_data", "train")
    like = {**LIKE, "action": ("float32", (12,)), "observation/state": ("float32", (9,))}
    made = unify(table, like, to_hz=1)  # Of 3 steps a second.
    step = made.read(0)
    assert step["observation"]["primary_mask"].all()
    assert not step["observation"]["wrist_mask"].any()
    assert step["observation"]["state_mask"][0].sum() == 8
    assert step["action_mask"][0].sum() == 10
    lengths = (table.outlines.num_steps - 1) // 3 + 1
    assert made.outlines.num_steps.tolist() == lengths.tolist()


@pytest.mark.parametrize(
    ("fields", "options", "error"),
    [
        ({"action": "act"}, {}, "no field 'act'; there are: action, "),
        ({"action": ["action", "action"]}, {}, "'action' has 8 elements, expected 5 at most"),
        ({"observation/primary": "action"}, {}, "expected uint8 .* but action is float32"),
        (
            {"action": "action"},
            {"to_hz": 2, "hz": 4, "relative": {"action": [True]}},
            "its mask has 1",
        ),
        (None, {}, "no dataset 'arm' is registered"),
        ({"action": "action"}, {"to_hz": 2}, "no dataset 'arm' is registered"),
    ],
)
def test_fields_that_cannot_be_unified_are_refused(directory, fields, options, error):
    with pytest.raises((KeyError, ValueError), match=error):
        unify(table_of(directory, "rlds"), LIKE, fields, **options)
