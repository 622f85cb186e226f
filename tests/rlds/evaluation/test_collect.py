"""Evaluation sets are the same for all files and objects that contain the episodes."""

import feed_datasets
import h5py
import numpy as np
import pytest
import raw_d4rl

import envlogger
import rlds.feeds
from envlogger.testing.catch_env import Catch
from rlds.evaluation import EvaluationSet, collect
from rlds_ecosystem.model.nests import named_leaves


def expect(episodes, *, observation, log_prob=None, discounts=False):
    """Computes the expected evaluation set by loops over the steps; None is not compared."""
    per_episode = {"num_transitions": [], "is_terminal": [], "final_observation_known": []}
    rows = {"observations": [], "actions": [], "rewards": [], "log_probs": [], "discounts": []}
    for episode in episodes:
        steps, is_known = episode["steps"], episode["final_observation_known"]
        length = len(steps["is_last"])
        per_episode["num_transitions"].append(length - is_known)
        per_episode["is_terminal"].append(steps["is_terminal"][-1])
        per_episode["final_observation_known"].append(is_known)
        for t in range(length):
            rows["observations"].append(observation(steps, t))
            if t < length - is_known:
                rows["actions"].append(steps["action"][t])
                rows["rewards"].append(steps["reward"][t])
                rows["log_probs"].append(steps[log_prob][t] if log_prob else None)
                rows["discounts"].append(steps["discount"][t])
    rows["log_probs"] = rows["log_probs"] if log_prob else None
    rows["discounts"] = rows["discounts"] if discounts else None
    return EvaluationSet(**per_episode, **{k: v and np.array(v) for k, v in rows.items()})


def assert_same(actual, expected):
    for name in EvaluationSet.__dataclass_fields__:
        left, right = (
            dict(named_leaves({name: getattr(data, name)})) for data in (actual, expected)
        )
        assert left.keys() == right.keys()
        for path in left:
            np.testing.assert_array_equal(left[path], right[path], err_msg=path, strict=True)


@pytest.fixture(scope="module")
def episodes():
    return [e for e in feed_datasets.random_episodes(40, seed=3) if len(e["steps"]["is_last"])]


@pytest.fixture(scope="module")
def dataset(episodes, tmp_path_factory):
    return feed_datasets.write(tmp_path_factory.mktemp("tfds") / "Roboter für Ωs", episodes)


def join(steps, t):
    state, packed = (steps["observation"][name][t] for name in ("state", "packed"))
    return np.concatenate([state, packed, [steps["button"][t]]]).astype(np.float64)


JOINED = {"observation": ["observation/state", "observation/packed", "button"]}


def test_episodes_of_all_kinds_give_the_same_set(episodes, dataset):
    options = {**JOINED, "log_prob": "button", "stored_discounts": True}
    expected = expect(episodes, observation=join, log_prob="button", discounts=True)
    table = rlds.feeds.open(dataset)
    one_by_one = [
        {
            **episode,
            "steps": [
                {
                    **{
                        name: column[t]
                        for name, column in episode["steps"].items()
                        if name != "observation"
                    },
                    "observation": {k: v[t] for k, v in episode["steps"]["observation"].items()},
                }
                for t in range(len(episode["steps"]["is_last"]))
            ],
        }
        for episode in episodes
    ]
    samples = table.transitions()
    sources = [dataset, table, samples, rlds.feeds.Feed(samples, 4), episodes, one_by_one]
    for data in sources:
        assert_same(collect(data, **options), expected)
    assert_same(collect(iter(episodes), **options), expected)


def test_select_equals_a_collection_of_fewer_episodes(episodes):
    data = collect(episodes, **JOINED, stored_discounts=True)
    for chosen in ([5, 0, 5], np.arange(len(episodes)) % 3 == 0, slice(-4, None), [-1]):
        indices = np.arange(len(episodes))[chosen]
        expected = expect([episodes[i] for i in indices], observation=join, discounts=True)
        assert_same(data.select(chosen), expected)
    for t in range(len(data.rewards)):
        episode = episodes[data.episodes[t]]["steps"]
        step = int(data.times[t])
        assert data.observations[data.rows[t]].tolist() == join(episode, step).tolist()
        assert data.locate(t) == f"episode {data.episodes[t]}, step {step}"


def write_d4rl(directory):
    return raw_d4rl.mujoco_v2(directory / "hopper.hdf5"), {"log_prob": "infos/action_log_probs"}


def write_log(directory):
    """Records four episodes of a game, with log-probabilities by a `step_fn`."""
    rng = np.random.default_rng(0)

    def step_fn(timestep, action, env):
        return {"log_prob": np.log(rng.random())}

    path = directory / "log"
    with envlogger.EnvLogger(Catch(), data_directory=str(path), step_fn=step_fn) as env:
        for _ in range(4):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(int(rng.integers(3)))
    return path, {"log_prob": "log_prob", "log_prob_in_next_step": True}


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_d4rl, write_log])
def test_raw_files_and_their_dataset_give_the_same_set(write, tmp_path):
    path, options = write(tmp_path)
    collected = collect(path, **options)
    rlds.feeds.materialise(path, tmp_path / "made")
    assert_same(collect(tmp_path / "made", **options), collected)
    table = rlds.feeds.open(path)
    episodes = [
        {"steps": table.read(i), "final_observation_known": is_known}
        for i, is_known in enumerate(table.summaries.final_observation_known)
    ]
    assert_same(collect(episodes, **options), collected)
    if write is write_d4rl:
        with h5py.File(path) as file:
            arrays = {name: file[name][:] for name in ("actions", "rewards", "observations")}
            log_probs = file["infos/action_log_probs"][:]
        assert collected.num_transitions.tolist() == [4, 5, 3]
        assert collected.is_terminal.tolist() == [True, False, False]
        np.testing.assert_array_equal(collected.actions, arrays["actions"])
        np.testing.assert_array_equal(collected.rewards, arrays["rewards"])
        np.testing.assert_array_equal(collected.log_probs, log_probs)
        observations = collected.observations_at(collected.rows)
        np.testing.assert_array_equal(observations, arrays["observations"])


def steps_of(length=3, **changes):
    step = np.arange(length)
    steps = {
        "observation": {"speed": step * 1.0, "text": np.array([b"x"] * length, object)},
        "action": step % 2 == 0,
        "reward": step.astype(np.float32),
        "discount": np.ones(length),
        "is_first": step == 0,
        "is_last": step == length - 1,
        "is_terminal": np.zeros(length, bool),
    }
    return {name: column for name, column in (steps | changes).items() if column is not None}


def hot(*steps, length=3):
    return np.isin(np.arange(length), steps)


def nan_at(step):
    return np.where(hot(step), np.nan, 1.0)


@pytest.mark.parametrize(
    ("changes", "options", "error", "message"),
    [
        ({}, {"action": "acton"}, KeyError, "episode 0: no field 'acton'; did you mean 'action'"),
        ({"reward": nan_at(1)}, {}, ValueError, "episode 1, step 1, field 'reward' must be finite"),
        (
            {"observation": {"speed": nan_at(2)}},
            {"observation": ["observation/speed"]},
            ValueError,
            "episode 1, step 2, field 'observation/speed' is NaN",
        ),
        ({"is_first": hot()}, {}, ValueError, "episode 1, step 0, .* the episode has no start"),
        ({"is_last": hot(1, 2)}, {}, ValueError, "episode 1, step 1, field 'is_last' is true, but"),
        ({"is_terminal": hot(0)}, {}, ValueError, "episode 1, step 0, field 'is_terminal' is true"),
        ({"is_terminal": None, "discount": None}, {}, KeyError, "episode 1 have neither"),
        (
            {},
            {"reward": "observation/text"},
            ValueError,
            "must be a number in each step, got object",
        ),
        ({"action": np.ones((3, 2))}, {}, ValueError, r"several shapes: \[\(\), \(2,\)\]"),
        ({"action": np.ones(2, bool)}, {}, ValueError, "episode 1 differ in length: .*'action': 2"),
        ({}, {"observation": ["observation/text", "reward"]}, ValueError, "cannot be joined"),
        ({"discount": np.full(3, 2.0)}, {"stored_discounts": True}, ValueError, "between 0 and 1"),
        ({}, {"split": "train"}, TypeError, "a split and options need a path"),
    ],
)
def test_errors_name_the_location_of_wrong_values(changes, options, error, message):
    with pytest.raises(error, match=message):
        collect([{"steps": steps_of()}, {"steps": steps_of(**changes)}], **options)


def test_data_without_episodes_is_refused():
    with pytest.raises(ValueError, match="there are no episodes"):
        collect([])
    with pytest.raises(ValueError, match="episode 0 has no steps"):
        collect([{"steps": []}])
    with pytest.raises(ValueError, match="episode 0 has no steps"):
        collect([{"steps": steps_of(0)}])
    for data in ([{"step": 3}], [3], [{"steps": 3}]):
        with pytest.raises(TypeError, match="episode 0 must be a dict whose 'steps' are"):
            collect(data)


def test_filtered_mixed_or_transformed_samples_are_refused(dataset):
    samples = rlds.feeds.open(dataset).transitions()
    filtered = samples.filter(lambda batch: batch["reward"] > 0)
    mixture = rlds.feeds.Mixture([samples, samples])
    for data, message in [
        (filtered, "got FilteredSamples. Pass samples.table"),
        (rlds.feeds.Feed(filtered, 4), "got FilteredSamples"),
        (rlds.feeds.Feed(samples, 4, transform=dict), "got a feed with a transform. Pass feed.sam"),
        (rlds.feeds.Feed(mixture, 4), "collect each one separately"),
    ]:
        with pytest.raises(TypeError, match=message):
            collect(data, **JOINED)


def test_placeholders_do_not_matter():
    """The action and the reward of a final observation may be anything."""
    steps = steps_of(reward=nan_at(2), action=nan_at(2))
    assert collect([{"steps": steps}], observation="observation/speed").rewards.tolist() == [1, 1]
    with pytest.raises(ValueError, match="episode 0, step 2, field 'action' is NaN"):
        collect([{"steps": steps, "final_observation_known": False}])


def test_discounts_mark_terminal_ends_without_is_terminal():
    """The discount before the final observation counts, or the last discount without it."""
    ends = []
    for zero in range(3):
        steps = steps_of(is_terminal=None, discount=1.0 - hot(zero))
        pairs = [{"steps": steps, "final_observation_known": flag} for flag in (True, False)]
        ends.append(collect(pairs).is_terminal.tolist())
        discount = steps["discount"]
        for discounts in ({"a": discount, "b": discount}, np.stack([discount, discount], 1)):
            nested = [{**episode, "steps": {**steps, "discount": discounts}} for episode in pairs]
            assert collect(nested).is_terminal.tolist() == ends[-1]
        one_agent_continues = {**steps, "discount": {"a": discount, "b": np.ones(3)}}
        nested = [{**episode, "steps": one_agent_continues} for episode in pairs]
        assert not collect(nested).is_terminal.any()
    assert ends == [[False, False], [True, False], [False, True]]
    # An episode with only a final observation has only a placeholder.
    single = {"steps": steps_of(1, is_terminal=None, discount=np.zeros(1))}
    assert collect([single]).is_terminal.tolist() == [False]


def test_images_are_collected_only_if_named():
    images = np.arange(3 * 16, dtype=np.uint8).reshape(3, 2, 2, 4)
    steps = steps_of(observation={"speed": np.arange(3.0), "eyes": {"left": images}}, pixels=images)
    assert list(collect([{"steps": steps}]).observations) == ["speed"]
    for name in ("observation/eyes/left", "pixels"):
        observations = collect([{"steps": steps}], observation=name).observations
        assert (observations == images).all()
    both = ["observation/speed", "observation/eyes/left"]
    assert collect([{"steps": steps}], observation=both).observations.shape == (3, 17)
    with pytest.raises(ValueError, match="'observation/eyes' has only images: observation/e"):
        collect([{"steps": steps}], observation="observation/eyes")


@pytest.mark.slow
def test_datasets_of_tensorflow_give_the_same_set(episodes, dataset):
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(dataset)
    expected = expect(episodes, observation=lambda steps, t: steps["observation"]["state"][t])
    nested = builder.as_dataset("train")
    batched = builder.as_dataset("train", decoders={"steps": tfds.decode.SkipDecoding()})
    for data in (nested, batched, tfds.as_numpy(nested)):
        assert_same(collect(data, observation="observation/state"), expected)
