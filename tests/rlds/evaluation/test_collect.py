"""Episodes for off-policy evaluation are the same, whatever files or objects they come from."""

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


def oracle(episodes, *, observation, log_prob=None, discounts=False):
    """The expected evaluation set, by loops over the steps; None is not compared."""
    found = {"num_transitions": [], "is_terminal": [], "final_observation_known": []}
    rows = {"observations": [], "actions": [], "rewards": [], "log_probs": [], "discounts": []}
    for episode in episodes:
        steps, known = episode["steps"], episode["final_observation_known"]
        length = len(steps["is_last"])
        found["num_transitions"].append(length - known)
        found["is_terminal"].append(steps["is_terminal"][-1])
        found["final_observation_known"].append(known)
        for t in range(length):
            rows["observations"].append(observation(steps, t))
            if t < length - known:
                rows["actions"].append(steps["action"][t])
                rows["rewards"].append(steps["reward"][t])
                rows["log_probs"].append(steps[log_prob][t] if log_prob else None)
                rows["discounts"].append(steps["discount"][t])
    rows["log_probs"] = rows["log_probs"] if log_prob else None
    rows["discounts"] = rows["discounts"] if discounts else None
    return EvaluationSet(**found, **{k: v and np.array(v) for k, v in rows.items()})


def assert_same(found, expected):
    for name in EvaluationSet.__dataclass_fields__:
        left, right = (
            dict(named_leaves({name: getattr(data, name)})) for data in (found, expected)
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


def joined(steps, t):
    state, packed = (steps["observation"][name][t] for name in ("state", "packed"))
    return np.concatenate([state, packed, [steps["button"][t]]]).astype(np.float64)


JOINED = {"observation": ["observation/state", "observation/packed", "button"]}


def test_same_from_everything_that_has_the_episodes(episodes, dataset):
    options = {**JOINED, "log_prob": "button", "stored_discounts": True}
    expected = oracle(episodes, observation=joined, log_prob="button", discounts=True)
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


def test_select_is_the_same_as_collecting_fewer(episodes):
    data = collect(episodes, **JOINED, stored_discounts=True)
    for chosen in ([5, 0, 5], np.arange(len(episodes)) % 3 == 0, slice(-4, None), [-1]):
        numbers = np.arange(len(episodes))[chosen]
        expected = oracle([episodes[i] for i in numbers], observation=joined, discounts=True)
        assert_same(data.select(chosen), expected)
    for t in range(len(data.rewards)):
        episode = episodes[data.episodes[t]]["steps"]
        place = int(data.times[t])
        assert data.observations[data.rows[t]].tolist() == joined(episode, place).tolist()
        assert data.locate(t) == f"episode {data.episodes[t]}, step {place}"


def d4rl(directory):
    return raw_d4rl.mujoco_v2(directory / "hopper.hdf5"), {"log_prob": "infos/action_log_probs"}


def log(directory):
    """Four episodes of a game, with log-probabilities that a `step_fn` records."""
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
@pytest.mark.parametrize("write", [d4rl, log])
def test_same_from_raw_files_and_from_a_dataset(write, tmp_path):
    path, options = write(tmp_path)
    found = collect(path, **options)
    rlds.feeds.materialise(path, tmp_path / "made")
    assert_same(collect(tmp_path / "made", **options), found)
    table = rlds.feeds.open(path)
    episodes = [
        {"steps": table.read(i), "final_observation_known": known}
        for i, known in enumerate(table.outlines.final_observation_known)
    ]
    assert_same(collect(episodes, **options), found)
    if write is d4rl:
        with h5py.File(path) as file:
            arrays = {name: file[name][:] for name in ("actions", "rewards", "observations")}
            log_probs = file["infos/action_log_probs"][:]
        assert found.num_transitions.tolist() == [4, 5, 3]
        assert found.is_terminal.tolist() == [True, False, False]
        np.testing.assert_array_equal(found.actions, arrays["actions"])
        np.testing.assert_array_equal(found.rewards, arrays["rewards"])
        np.testing.assert_array_equal(found.log_probs, log_probs)
        before = found.observations_at(found.rows)
        np.testing.assert_array_equal(before, arrays["observations"])


def steps_of(length=3, **changed):
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
    return {name: column for name, column in (steps | changed).items() if column is not None}


def at(*places, length=3):
    return np.isin(np.arange(length), places)


def nan_at(place):
    return np.where(at(place), np.nan, 1.0)


@pytest.mark.parametrize(
    ("changed", "options", "error", "message"),
    [
        ({}, {"action": "acton"}, KeyError, "episode 0: no field 'acton'; did you mean 'action'"),
        ({"reward": nan_at(1)}, {}, ValueError, "episode 1, step 1, field 'reward' must be finite"),
        (
            {"observation": {"speed": nan_at(2)}},
            {"observation": ["observation/speed"]},
            ValueError,
            "episode 1, step 2, field 'observation/speed' is NaN",
        ),
        ({"is_first": at()}, {}, ValueError, "episode 1, step 0, .* the episode has no start"),
        ({"is_last": at(1, 2)}, {}, ValueError, "episode 1, step 1, field 'is_last' is true, but"),
        ({"is_terminal": at(0)}, {}, ValueError, "episode 1, step 0, field 'is_terminal' is true"),
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
def test_what_is_wrong_is_said_with_its_place(changed, options, error, message):
    with pytest.raises(error, match=message):
        collect([{"steps": steps_of()}, {"steps": steps_of(**changed)}], **options)


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


def test_samples_that_are_changed_are_refused(dataset):
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


def test_discounts_say_what_ended_where_nothing_else_does():
    """The discount of the step before the final observation, or of the last one without it."""
    ends = []
    for zero in range(3):
        steps = steps_of(is_terminal=None, discount=1.0 - at(zero))
        found = [{"steps": steps, "final_observation_known": known} for known in (True, False)]
        ends.append(collect(found).is_terminal.tolist())
        discount = steps["discount"]
        for several in ({"a": discount, "b": discount}, np.stack([discount, discount], 1)):
            same = [{**episode, "steps": {**steps, "discount": several}} for episode in found]
            assert collect(same).is_terminal.tolist() == ends[-1]
        one_goes_on = {**steps, "discount": {"a": discount, "b": np.ones(3)}}
        same = [{**episode, "steps": one_goes_on} for episode in found]
        assert not collect(same).is_terminal.any()
    assert ends == [[False, False], [True, False], [False, True]]
    # An episode of nothing but its final observation has a placeholder only.
    alone = {"steps": steps_of(1, is_terminal=None, discount=np.zeros(1))}
    assert collect([alone]).is_terminal.tolist() == [False]


def test_images_are_there_if_they_are_named():
    images = np.arange(3 * 16, dtype=np.uint8).reshape(3, 2, 2, 4)
    steps = steps_of(observation={"speed": np.arange(3.0), "eyes": {"left": images}}, pixels=images)
    assert list(collect([{"steps": steps}]).observations) == ["speed"]
    for named in ("observation/eyes/left", "pixels"):
        found = collect([{"steps": steps}], observation=named).observations
        assert (found == images).all()
    both = ["observation/speed", "observation/eyes/left"]
    assert collect([{"steps": steps}], observation=both).observations.shape == (3, 17)
    with pytest.raises(ValueError, match="'observation/eyes' has only images: observation/e"):
        collect([{"steps": steps}], observation="observation/eyes")


@pytest.mark.slow
def test_same_from_datasets_of_tensorflow(episodes, dataset):
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(dataset)
    expected = oracle(episodes, observation=lambda steps, t: steps["observation"]["state"][t])
    nested = builder.as_dataset("train")
    batched = builder.as_dataset("train", decoders={"steps": tfds.decode.SkipDecoding()})
    for data in (nested, batched, tfds.as_numpy(nested)):
        assert_same(collect(data, observation="observation/state"), expected)
