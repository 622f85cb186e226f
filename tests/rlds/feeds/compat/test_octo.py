"""The drop-in loader for Octo's scripts."""

import pickle
import sys
import types
from pathlib import Path

import arm_datasets
import numpy as np
import policies
import pytest
import raw_oxe

import rlds.feeds
import rlds.sources
import tfds_files
from rlds.feeds import Roles
from rlds.feeds.compat.chains import find_shard
from rlds.feeds.compat.octo import (
    make_interleaved_dataset,
    make_oxe_dataset_kwargs_and_weights,
    make_single_dataset,
)
from rlds.feeds.octo import OctoSamples
from rlds_ecosystem.model.nests import named_leaves

SIZES = {"primary": (6, 8), "secondary": (6, 8), "wrist": (5, 11)}
GOLDEN = {"image_obs_keys": {"primary": "exterior_image_1_left", "secondary": None}}
GOLDEN["image_obs_keys"]["wrist"] = "wrist_image_left"


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory):
    return arm_datasets.write_all(tmp_path_factory.mktemp("octo") / "data")


class Config:
    """The interface of a `ConfigDict` of ml_collections, which is no mapping."""

    def __init__(self, values):
        self.values = values

    def to_dict(self):
        return self.values


def build(directory, form="rlds", train=True, frames=None, dataset=None, **traj):
    kwargs = {**arm_datasets.loader_kwargs(form, directory), **(dataset or {})}
    kwargs.setdefault("proprio_obs_key", arm_datasets.FIELDS[form][2])
    frames = Config({"resize_size": SIZES, **(frames or {})})
    kwargs = Config(kwargs)
    return make_single_dataset(
        kwargs, train=train, traj_transform_kwargs=traj, frame_transform_kwargs=frames
    )


def collect_actions(chain):
    """Returns the actions of all items, which are unique."""
    return policies.joined(list(chain.iterator()))["action"]


def test_rows_equal_those_of_octo(directory):
    mask = {**GOLDEN, "action_normalization_mask": [True, True, True, False]}
    windows = {"window_size": 2, "action_horizon": 3, "max_action_dim": 6, "max_proprio_dim": 5}
    chain = build(directory, dataset=mask, **windows)
    policies.check_rows(directory, "octo", list(chain.as_numpy_iterator()))
    statistics = chain.dataset_statistics
    assert statistics["action"].pop("mask").tolist() == [True, True, True, False]
    plain = dict(named_leaves(statistics))
    for path, value in named_leaves(policies.read(directory, "octo")):
        np.testing.assert_allclose(plain.pop(path), value, rtol=1e-6)
    assert not plain


@pytest.mark.parametrize("form", arm_datasets.FORMATS)
def test_octo_samples_come_from_datasets_of_any_format(directory, form):
    name, camera, state, language = arm_datasets.FIELDS[form]
    chain = build(directory, form, dataset={"skip_norm": True}, window_size=2, action_horizon=3)
    split = "train" if form == "rlds" else "train[:95%]"
    samples = OctoSamples(
        rlds.feeds.open(directory / name, split, jpeg="tf"),
        Roles(
            {"primary": f"observation/{camera}", "wrist": None},
            f"observation/{state}",
            language=language,
        ),
        name,
        window_size=2,
        action_horizon=3,
        image_size=SIZES,
    )
    expected = dict(named_leaves(samples.batch(range(len(samples)))))
    actual = policies.joined(list(chain.iterator()))
    assert actual.keys() == expected.keys()
    for path, column in expected.items():
        np.testing.assert_array_equal(actual[path], column, err_msg=path)
    assert chain.cardinality().numpy() == samples.table.num_episodes
    step = next(chain.unbatch().iterator())
    assert step["action"].shape == (2, 3, samples.spec["action"][1][-1])


def test_chained_calls_shuffle_batch_and_resume_all_samples(directory):
    chain = build(directory)
    all_actions = collect_actions(chain)
    flat = chain.repeat().unbatch().shuffle(100)
    batches = flat.batch(5).iterator()
    epoch = policies.joined([next(batches) for _ in range(3)])
    np.testing.assert_array_equal(np.sort(epoch["action"], 0), np.sort(all_actions, 0))
    assert not np.array_equal(epoch["action"], all_actions)
    state, upcoming = batches.state_dict(), next(batches)
    resumed = flat.batch(5).iterator(start=state)
    np.testing.assert_array_equal(next(resumed)["action"], upcoming["action"])
    rows = flat.iterator()
    first_actions = [next(rows)["action"] for _ in range(70)]  # More than one block.
    later = flat.iterator(start=rows.state_dict())
    assert all(np.array_equal(next(rows)["action"], next(later)["action"]) for _ in range(5))
    np.testing.assert_array_equal(first_actions[:5], next(flat.batch(5).iterator())["action"])
    # Like validation.
    finite = chain.unbatch().shuffle(9).batch(4)
    assert [len(batch["action"]) for batch in finite.iterator(prefetch=0)] == [4, 4, 4, 3]
    assert finite.cardinality().numpy() == 4
    assert chain.repeat().cardinality().numpy() == -1
    episodes = chain.take(2).repeat().iterator()
    assert [len(next(episodes)["action"]) for _ in range(4)] == [5, 3, 5, 3]
    assert len(list(chain.take(2).unbatch())) == 8
    shuffled = chain.shuffle(9).repeat().iterator()
    lengths = [[len(next(shuffled)["action"]) for _ in range(4)] for _ in range(4)]
    assert all(sorted(epoch) == [1, 3, 5, 6] for epoch in lengths)
    assert len({tuple(epoch) for epoch in lengths}) > 1
    with pytest.raises(NotImplementedError, match="shuffle the samples before"):
        finite.shuffle(3)
    with pytest.raises(ValueError, match="samples already"):
        finite.unbatch()


def test_ranks_get_disjoint_samples(directory, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    chain = build(directory)
    ranks = []
    for rank in "012":
        monkeypatch.setenv("RANK", rank)
        ranks.append(list(chain.unbatch().shuffle(9).repeat().batch(5).take(1).iterator()))
        episodes = [len(episode["action"]) for episode in chain.iterator()]
        assert episodes == [[5, 6], [3], [1]][int(rank)]
    monkeypatch.undo()
    rows = np.concatenate([policies.joined(batches)["action"] for batches in ranks])
    np.testing.assert_array_equal(np.sort(rows, 0), np.sort(collect_actions(chain), 0))


@pytest.mark.parametrize(("is_old", "has_torch"), [(False, True), (True, False), (True, True)])
def test_jax_processes_determine_the_shard(monkeypatch, is_old, has_torch):
    """JAX of 2023 cannot say whether it is distributed without taking the accelerator."""
    distributed = types.SimpleNamespace()
    if not is_old:
        distributed.is_initialized = lambda: True
    jax = types.SimpleNamespace(
        distributed=distributed, process_index=lambda: 2, process_count=lambda: 4
    )
    torch = types.SimpleNamespace(distributed=types.SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "torch.utils.data", None)
    monkeypatch.setitem(sys.modules, "torch", torch if has_torch else None)
    assert find_shard() == ((0, 1) if is_old and has_torch else (2, 4))


def test_interleaved_datasets_follow_weights(directory):
    kwargs = [
        {**arm_datasets.loader_kwargs(form, directory), "standardize_fn": pad_action}
        for form in ("rlds", "lerobot")
    ]
    mixed = make_interleaved_dataset(
        kwargs,
        [3.0, 1.0],
        train=True,
        shuffle_buffer_size=1000,
        frame_transform_kwargs={"resize_size": SIZES, "num_parallel_calls": 4},
        batch_size=512,
        traj_transform_threads=4,
    )
    names = next(mixed.iterator())["dataset_name"]
    assert (names == b"arm").sum() == pytest.approx(384, abs=50)
    assert mixed.dataset_statistics.keys() == {"arm", "arm_lerobot"}
    assert mixed.sample_weights.tolist() == [0.75, 0.25]
    with pytest.raises(ValueError, match="arm is listed twice"):
        make_interleaved_dataset([kwargs[0]] * 2, train=True, shuffle_buffer_size=1)
    with pytest.raises(ValueError, match="2 sample_weights for 1 datasets"):
        make_interleaved_dataset(kwargs[:1], [1, 2], train=True, shuffle_buffer_size=1)


def pad_action(trajectory):
    """Pads the actions of all datasets to four elements."""
    action = trajectory["action"]
    padding = np.zeros((len(action), 4 - action.shape[1]), np.float32)
    return {**trajectory, "action": np.concatenate([action, padding], axis=1)}


def test_statistics_are_exact(tmp_path):
    """Also for thousands of steps."""
    values = np.random.default_rng(0).lognormal(size=(9000, 2)).astype(np.float32)
    step = {
        "action": tfds_files.Tensor(dtype=np.dtype("float32"), shape=(2,)),
        "observation": tfds_files.Features(
            features={"state": tfds_files.Tensor(dtype=np.dtype("float32"), shape=(2,))}
        ),
    }
    steps = tfds_files.Dataset(feature=tfds_files.Features(features=step))
    features = tfds_files.Features(features={"steps": steps})
    with tfds_files.append_to(tmp_path / "many" / "1.0.0", features, "many") as writer:
        for actions in np.split(values, 3):
            writer.add({"steps": {"action": actions, "observation": {"state": -actions}}})
    kwargs = {"name": "many", "data_dir": tmp_path, "proprio_obs_key": "state"}
    actual = make_single_dataset(kwargs, train=True).dataset_statistics
    for name, sign in (("action", 1), ("proprio", -1)):
        expected = {
            "mean": values.astype(np.float64).mean(0) * sign,
            "std": values.astype(np.float64).std(0),
            "p01": np.quantile(values * sign, 0.01, axis=0),
            "p99": np.quantile(values * sign, 0.99, axis=0),
        }
        for measure, value in expected.items():
            np.testing.assert_allclose(actual[name][measure], value, rtol=1e-6)
    reused = make_single_dataset({**kwargs, "dataset_statistics": actual}, train=True)
    for name, value in named_leaves(reused.dataset_statistics):
        np.testing.assert_allclose(value, dict(named_leaves(actual))[name])


def freeze_elements(trajectory):
    """Makes one element constant, and another one except in episodes of one step."""
    action = trajectory["action"].copy()
    action[:, 0], action[:, 1] = 0.25, 0.5
    if len(action) == 1:
        action[:, 1] = 0.75
    return {**trajectory, "action": action}


@pytest.mark.parametrize("kind", ["bounds", "normal"])
def test_elements_with_equal_bounds_normalize_as_in_octo(directory, kind):
    """They become -1, and larger values 1, by the formula of Octo."""
    kwargs = {"standardize_fn": freeze_elements, "action_proprio_normalization_type": kind}
    statistics = build(directory, dataset=kwargs).dataset_statistics
    statistics["action"]["p99"][1] = statistics["action"]["p01"][1]
    chain = build(directory, dataset={**kwargs, "dataset_statistics": statistics})
    for episode in chain.iterator():
        first, second = episode["action"][..., 0], episode["action"][..., 1]
        assert (first == (-1 if kind == "bounds" else 0)).all()
        if kind == "bounds":
            assert (second == (1 if len(second) == 1 else -1)).all()


def test_functions_for_trajectories_change_and_filter_episodes(directory):
    spec = {"module": __name__, "name": "pad_action", "args": (), "kwargs": {}}
    spec["module"] = "arm_datasets"
    arm_datasets.drop_first_step = drop_first_step
    spec["name"] = "drop_first_step"
    chain = build(directory, dataset={"standardize_fn": spec, "filter_functions": [is_long]})
    assert [len(episode["action"]) for episode in chain.iterator()] == [4, 5]
    del arm_datasets.drop_first_step
    # One episode has no instruction, another one has a large action.
    assert [len(e["action"]) for e in build(directory, skip_unlabeled=True).iterator()] == [
        5,
        1,
        6,
    ]
    large = np.array([np.abs(e["action"]).max() for e in build(directory).iterator()])
    kept = build(directory, max_action=float(np.sort(large)[2]))
    assert len(list(kept.iterator())) == 3


def drop_first_step(trajectory):
    return {
        "action": trajectory["action"][1:],
        "language_instruction": trajectory["language_instruction"][1:],
        "observation": {name: c[1:] for name, c in trajectory["observation"].items()},
    }


def is_long(trajectory):
    return len(trajectory["action"]) > 3


def test_subsamples_change_with_the_epoch(directory):
    chain = build(directory, subsample_length=3).repeat().unbatch().batch(10)
    batches = chain.iterator()
    epochs = [np.sort(next(batches)["observation"]["timestep"].ravel()) for _ in range(8)]
    assert all(set(epoch.tolist()) <= set(range(6)) for epoch in epochs)
    assert len({tuple(epoch.tolist()) for epoch in epochs}) > 1
    batch = next(build(directory, train=False, subsample_length=3).unbatch().batch(99).iterator())
    assert len(batch["action"]) == 4


def test_samples_have_either_a_goal_or_an_instruction(directory):
    augmentation = {
        "goal_relabeling_strategy": "uniform",
        "task_augment_strategy": "delete_task_conditioning",
        "task_augment_kwargs": {"keep_image_prob": 0.5},
    }
    chain = build(directory, **augmentation, action_horizon=2).repeat().unbatch().batch(600)
    batch = next(chain.iterator())
    task, masks = batch["task"], batch["task"]["pad_mask_dict"]
    has_text, has_image = masks["language_instruction"], masks["image_primary"]
    np.testing.assert_array_equal(has_text, ~has_image)
    np.testing.assert_array_equal(has_text, task["language_instruction"] != b"")
    np.testing.assert_array_equal(has_image, task["image_primary"].any(axis=(1, 2, 3)))
    # The episode of three steps has no instruction and keeps its images.
    assert 0.5 < has_image.mean() < 0.7
    plain = next(
        build(directory, **augmentation, train=False, action_horizon=2)
        .unbatch()
        .batch(600)
        .iterator()
    )
    assert plain["task"]["pad_mask_dict"]["image_primary"].all()
    # Without a goal, actions are real up to the end of the episode.
    last = task["timestep"] + 1
    step = batch["observation"]["timestep"][:, 0]
    real = batch["action_pad_mask"][:, 0, :, 0]
    np.testing.assert_array_equal(real[:, 1], step + 1 < last + 1)


def test_instructions_are_sometimes_replaced_by_paraphrases(directory, tmp_path):
    plain = next(build(directory).unbatch().batch(15).iterator())["task"]["language_instruction"]
    text = max(plain)
    (tmp_path / "texts.pkl").write_bytes(pickle.dumps({text.decode(): "take it. grasp it."}))
    kwargs = {"paraphrases_repo": str(tmp_path), "paraphrases_filename": "texts.pkl"}
    kwargs |= {"rephrase_prob": 0.5, "keep_image_prob": 0.5}
    options = {"task_augment_strategy": "delete_and_rephrase", "task_augment_kwargs": kwargs}
    chain = build(directory, **options).repeat().unbatch().batch(2000)
    actual = next(chain.iterator())["task"]["language_instruction"].tolist()
    shares = {text: actual.count(text) for text in {*actual}}
    assert shares.keys() == {*plain.tolist(), b"take it", b" grasp it"}
    total = shares[text] + shares[b"take it"] + shares[b" grasp it"]
    # Half of the episodes have one of the three texts.
    assert 0.12 < shares[b"take it"] / total < 0.22
    assert 0.12 < shares[b" grasp it"] / total < 0.22
    assert next(chain.iterator())["task"]["language_instruction"].tolist() == actual
    for content, error in (
        (pickle.dumps({"a": Path("b")}), r"the pickle names pathlib\..*, which is not plain data"),
        (pickle.dumps(["a"]), "AttributeError"),
        (b"\x80\x04ha\x94", "texts.pkl: cannot be read"),
    ):
        (tmp_path / "texts.pkl").write_bytes(content)
        with pytest.raises(rlds.sources.SourceError, match=error):
            build(directory, **options)


def test_images_are_augmented_at_random(directory):
    options = {"random_brightness": [0.2], "augment_order": ["random_brightness"]}
    frames = {"image_augment_kwargs": {"primary": options}}
    plain = next(build(directory, dataset=GOLDEN).unbatch().batch(15).iterator())["observation"]
    chain = build(directory, dataset=GOLDEN, frames=frames).unbatch().batch(15)
    actual, repeated = (next(chain.iterator())["observation"] for _ in range(2))
    for camera in SIZES:
        images, originals = actual[f"image_{camera}"], plain[f"image_{camera}"]
        np.testing.assert_array_equal(images, repeated[f"image_{camera}"])
        is_changed = (images != originals).any(axis=(1, 2, 3, 4))
        assert is_changed.tolist() == [camera == "primary"] * 15
    evaluated = build(directory, dataset=GOLDEN, frames=frames, train=False).unbatch()
    unaugmented = build(directory, dataset=GOLDEN, train=False).unbatch()
    images = [next(c.iterator())["observation"]["image_primary"] for c in (evaluated, unaugmented)]
    np.testing.assert_array_equal(*images)


def test_open_x_datasets_are_configured_by_name(tmp_path):
    raw_oxe.bridge_dataset(tmp_path / "bridge_dataset" / "1.0.0")
    with pytest.warns(UserWarning, match="skipped: cartpole: this dataset is not registered"):
        kwargs, weights = make_oxe_dataset_kwargs_and_weights(
            [("bridge_dataset", 2.0), ("cartpole", 1.0), ("bridge_dataset", 3.0)],
            tmp_path,
            ("primary", "wrist"),
            load_proprio=True,
        )
    assert weights == [2.0]
    mixed = make_interleaved_dataset(
        kwargs,
        weights,
        train=True,
        shuffle_buffer_size=9,
        batch_size=4,
        frame_transform_kwargs={"resize_size": (8, 8)},
    )
    batch = next(mixed.iterator())
    assert batch["observation"]["image_wrist"].shape == (4, 1, 8, 8, 3)
    assert batch["observation"]["proprio"].shape == (4, 1, 8)
    assert batch["action"].shape == (4, 1, 1, 7)
    assert mixed.dataset_statistics["bridge_dataset"]["num_transitions"] == 11
    names = [kwargs["name"] for kwargs in make_oxe_dataset_kwargs_and_weights("rtx", "x")[0]]
    assert {"bridge_dataset", "viola", "toto"} <= set(names)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"dataset": {"ignore_errors": True}}, "ignore_errors"),
        ({"dataset": {"depth_obs_keys": {"primary": "depth"}}}, "depth images"),
        ({"dataset": {"proprio_obs_key": "joint"}}, "no field 'observation/joint'; "),
        ({"dataset": {"language_key": "text"}}, "no field 'text'; "),
        ({"goal_relabeling_strategy": "last"}, "'last' is not supported, only 'uniform'"),
        ({"task_augment_strategy": "rephrase"}, "not supported, only 'delete_task_condi"),
        ({"nothing": 3}, "nothing"),
        ({"frames": {"nothing": 3}}, "nothing"),
        ({"frames": {"image_dropout_prob": 0.5}}, "image_dropout_prob"),
        ({"dataset": {"nothing": 3}}, "no argument 'nothing'"),
        ({"frames": {"image_augment_kwargs": {"primary": {"a": 1}}}}, "augment_order"),
    ],
)
def test_unsupported_octo_options_are_rejected(directory, options, error):
    kinds = (NotImplementedError, KeyError, TypeError, ValueError)
    with pytest.raises(kinds, match=error):
        next(build(directory, **options).unbatch().iterator())
