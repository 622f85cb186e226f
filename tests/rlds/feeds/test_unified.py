"""Datasets with different fields, sizes and rates in one mixture."""

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


def open_table(directory, form):
    return rlds.feeds.open(directory / arm_datasets.FIELDS[form][0], "train")


@pytest.mark.parametrize("form", arm_datasets.FORMATS)
def test_unified_fields_have_declared_shapes(directory, form):
    table = open_table(directory, form)
    unified = unify(table, LIKE, FIELDS[form])
    assert {path: field.shape for path, field in unified.fields.items()} == {
        **{path: spec[1] for path, spec in LIKE.items() if spec is not bytes},
        "language_instruction": (),
        **dict.fromkeys(
            ("observation/primary_mask", "observation/wrist_mask", "language_instruction_mask"), ()
        ),
        "observation/state_mask": (6,),
        "action_mask": (5,),
    }
    assert unified.summaries.num_steps.tolist() == table.summaries.num_steps.tolist()
    for episode in range(table.num_episodes):
        stored, actual = table.read(episode), unified.read(episode)
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
                source = stored
                for key in path.split("/"):
                    source = source[key]
                np.testing.assert_array_equal(image, resize(source, (5, 7)))
    state = actual["observation"]["state_mask"][0].tolist()
    expected = {"rlds": [1, 1, 1, 0, 1, 0], "lerobot": [1, 1, 1, 0, 0, 0], "log": [0] * 6}
    assert state == list(map(bool, expected[form]))
    texts = actual["language_instruction"]
    assert actual["language_instruction_mask"].tolist() == [len(text) > 0 for text in texts]
    unpickled = pickle.loads(pickle.dumps(unified))
    assert unpickled.fingerprint() == unified.fingerprint()
    np.testing.assert_array_equal(unpickled.read(0)["action"], unified.read(0)["action"])


@pytest.mark.parametrize("form", ["rlds", "lerobot"])
def test_mask_of_text_is_readable_without_text(directory, form):
    unified = unify(open_table(directory, form), LIKE, FIELDS[form])
    name = "language_instruction_mask"
    both, alone = unified.read(1), unified.select([name]).read(1)
    assert alone[name].tolist() == both[name].tolist()


@pytest.mark.parametrize("to_hz", [2, 4, 5])
def test_episodes_of_view_equal_rows(directory, to_hz):
    table = open_table(directory, "rlds")
    like = {"action": ("float32", (5,)), "text": bytes}
    fields = {"action": "action", "text": "language_instruction"}
    relative = {"action": [True, True, False, False]}
    unified = unify(table, like, fields, hz=10, to_hz=to_hz, relative=relative)
    view = unified.storage.view
    for index in range(table.num_episodes):
        rows, episode = unified.read(index), view.read(view.splits[0], index).steps
        assert episode.keys() == rows.keys() == {"action", "action_mask", "text", "text_mask"}
        for name, column in rows.items():
            np.testing.assert_array_equal(episode[name], column)


@pytest.mark.parametrize("to_hz", [2, 4, 5, 10, 25])
def test_resampling_picks_nearest_step_and_sums_relative_actions(directory, to_hz):
    """The source has 10 steps per second."""
    table = open_table(directory, "rlds")
    relative = {"action": [True, True, False, False]}
    like = {"action": ("float32", (4,)), "is_last": (bool, ())}
    fields = {"action": "action", "is_last": "is_last"}
    unified = unify(table, like, fields, hz=10, to_hz=to_hz, relative=relative)
    for episode, length in enumerate(table.summaries.num_steps.tolist()):
        stored, actual = table.read(episode)["action"], unified.read(episode)["action"]
        times = np.arange(1000) / to_hz
        times = times[times <= (length - 1) / 10 + 1e-9]
        nearest = np.rint(times * 10).astype(int)
        assert len(actual) == len(times)
        np.testing.assert_array_equal(actual[:, 2:], stored[nearest, 2:])
        real = length - int(table.summaries.final_observation_known[episode])
        if to_hz > 10:
            expected = stored[nearest, :2] * np.float32(10 / to_hz)
        else:
            ends = np.append(nearest[1:], max(real, nearest[-1]))
            ranges = zip(nearest, np.minimum(ends, real), strict=True)
            expected = [stored[begin:end, :2].sum(0) for begin, end in ranges]
        if to_hz != 10:
            np.testing.assert_allclose(actual[:, :2], expected, atol=1e-5)
    assert (unified.summaries.num_transitions <= unified.summaries.num_steps).all()


def test_mixture_follows_weights_and_temperature(directory):
    samples = {
        form: unify(open_table(directory, form), LIKE, FIELDS[form]).windows(horizon=2)
        for form in arm_datasets.FORMATS
    }
    feed = Feed(Mixture(samples, {"rlds": 2, "lerobot": 1, "log": 1}), 400, number_fields=True)
    batch = feed[0]
    counts = np.bincount(batch["part_number"])
    assert counts.tolist() == pytest.approx([200, 100, 100], abs=40)
    has_camera = batch["observation"]["primary_mask"][:, 0]
    np.testing.assert_array_equal(has_camera, batch["part_number"] != 1)
    # Each dataset is normalized by its own statistics.
    normalized = [
        windows.normalize(windows.table.compute_statistics(["action"]), fields=["action"])
        for windows in samples.values()
    ]
    assert np.isfinite(Feed(Mixture(normalized), 50)[0]["action"]).all()
    shares = {t: Mixture(samples, temperature=t).counts / 65536 for t in (1, 2, 1e9)}
    sizes = np.array([len(windows) for windows in samples.values()])
    np.testing.assert_allclose(shares[1], sizes / sizes.sum(), atol=1e-4)
    np.testing.assert_allclose(shares[2], sizes**0.5 / (sizes**0.5).sum(), atol=1e-4)
    np.testing.assert_allclose(shares[1e9], 1 / 3, atol=1e-4)
    with pytest.raises(ValueError, match=r"weights: got \['rlds'\], expected \['lerobot'"):
        Mixture(samples, {"rlds": 1})
    with pytest.raises(ValueError, match="temperature must be positive"):
        Mixture(samples, temperature=0)


def test_fields_of_open_x_datasets_are_registered(tmp_path):
    raw_oxe.fractal(tmp_path / "fractal20220817_data" / "0.1.0")
    table = rlds.feeds.open(tmp_path / "fractal20220817_data", "train")
    like = {**LIKE, "action": ("float32", (12,)), "observation/state": ("float32", (9,))}
    unified = unify(table, like, to_hz=1)  # From 3 steps per second.
    step = unified.read(0)
    assert step["observation"]["primary_mask"].all()
    assert not step["observation"]["wrist_mask"].any()
    assert step["observation"]["state_mask"][0].sum() == 8
    assert step["action_mask"][0].sum() == 10
    lengths = (table.summaries.num_steps - 1) // 3 + 1
    assert unified.summaries.num_steps.tolist() == lengths.tolist()


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
def test_unify_refuses_mismatched_fields(directory, fields, options, error):
    with pytest.raises((KeyError, ValueError), match=error):
        unify(open_table(directory, "rlds"), LIKE, fields, **options)
