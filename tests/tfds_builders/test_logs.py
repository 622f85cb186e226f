import json

import dm_env
import forked
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from dm_env import specs
from tensorflow_datasets.rlds import rlds_base

import envlogger
from envlogger.backends.in_memory_backend import InMemoryBackendReader, InMemoryBackendWriter
from envlogger.converters import spec_codec
from envlogger.converters.rlds_episode import to_rlds_episode
from envlogger.testing.catch_env import Catch
from tfds_builders import build_from_logs

tfds.disable_progress_bar()

FLOAT = specs.Array((), np.float64)
INT = specs.Array((), np.int64)


# --- Helpers -------------------------------------------------------------------------------------


def make_steps(*observations, actions=None, rewards=None, custom_data=None):
    """Returns a recorded episode that ends in a terminal state."""
    count = len(observations)
    actions = actions or [1] * (count - 1)
    rewards = rewards or [0.5] * (count - 1)
    custom_data = custom_data or [None] * count
    steps = [envlogger.StepData(dm_env.restart(observations[0]), None, custom_data[0])]
    for i in range(1, count):
        make = dm_env.termination if i == count - 1 else dm_env.transition
        timestep = make(reward=rewards[i - 1], observation=observations[i])
        steps.append(envlogger.StepData(timestep, actions[i - 1], custom_data[i]))
    return steps


def make_log(*episodes, episode_metadata=(), metadata=None, **env_specs):
    """Returns a reader of episodes in memory; `env_specs` are `observation=spec`, ...."""
    metadata = dict(metadata or {})
    if env_specs:
        metadata["environment_specs"] = {
            f"{field}_spec": spec_codec.encode(spec) for field, spec in env_specs.items()
        }
    writer = InMemoryBackendWriter(metadata=metadata)
    for index, steps in enumerate(episodes):
        for step in steps:
            writer.record_step(step, is_new_episode=step is steps[0])
        if index < len(episode_metadata) and episode_metadata[index] is not None:
            writer.set_episode_metadata(episode_metadata[index])
    return envlogger.Reader(backend=InMemoryBackendReader(writer))


def log_values(*values, **kwargs):
    """Returns a reader whose n-th episode observes only the n-th value."""
    env_specs = {"observation": INT, "action": INT, "reward": FLOAT, "discount": FLOAT}
    return make_log(*(make_steps(value, value) for value in values), **env_specs, **kwargs)


def record(directory, episodes=2, seed=1, **kwargs):
    directory.mkdir(parents=True)
    with envlogger.EnvLogger(Catch(seed=seed), data_directory=str(directory), **kwargs) as env:
        for _ in range(episodes):
            timestep = env.reset()
            while not timestep.last():
                timestep = env.step(np.int64(2))
    return str(directory)


def read(builder, split="train", **kwargs):
    """Returns the episodes of a split, with steps as columns of NumPy arrays."""
    result = []
    for example in builder.as_dataset(split=split, **kwargs):
        steps = [tf.nest.map_structure(lambda x: x.numpy(), step) for step in example.pop("steps")]
        example = tf.nest.map_structure(lambda x: x.numpy(), example)
        example["steps"] = tf.nest.map_structure(lambda *rows: stack(rows), *steps)
        result.append(example)
    return result


def read_metadata(builder):
    """Returns the metadata of the log."""
    added = ("conversion", "lineage")
    return {k: v for k, v in builder.info.metadata.items() if k not in added}


def stack(rows):
    if isinstance(rows[0], bytes):
        rows = [object_scalar(row) for row in rows]
    return np.stack(rows)


def object_scalar(value):
    array = np.empty((), object)
    array[()] = value
    return array


def assert_same_bits(actual, expected):
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            assert_same_bits(actual[key], expected[key])
    else:
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.dtype == object:
            encoded = [x.encode() if isinstance(x, str) else x for x in expected.flat]
            assert list(actual.flat) == encoded
        else:
            assert actual.tobytes() == expected.tobytes()


# --- Conversion ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_log_becomes_a_dataset(tmp_path):
    log = record(
        tmp_path / "log",
        episodes=3,
        metadata={"agent": "down"},
        step_fn=lambda timestep, action, env: {"height": np.float32(0.5)},
        episode_fn=lambda timestep, action, env: {"won": timestep.last() and timestep.reward > 0},
    )
    builder = build_from_logs(log, name="catch", data_dir=tmp_path / "data")
    assert builder.info.full_name == "catch/1.0.0"
    assert read_metadata(builder) == {"agent": "down"}
    examples = read(builder)
    with envlogger.Reader(log) as recorded:
        assert len(examples) == len(recorded.episodes)
        for index, example in enumerate(examples):
            assert int(example["episode_id"]) == index
            assert example["final_observation_known"]
            assert example["complete"]
            origin = {"file": b"log", "begin": 10 * index, "end": 10 * index + 10}
            assert example["source"] == origin
            assert not example["truncated"]
            assert example["won"] == recorded.episode_metadata()[index]["won"]
            assert_same_bits(example["steps"], to_rlds_episode(recorded.episodes[index]))


@pytest.mark.slow
def test_the_dataset_loads_without_this_package(tmp_path):
    builder = build_from_logs(log_values(7, 8), name="numbers", data_dir=tmp_path)
    code = """
import json, sys
import tensorflow_datasets as tfds
directory, data_dir = sys.argv[1:]
values = []
for dataset in (
    tfds.builder_from_directory(directory).as_dataset(split="train"),
    tfds.load("numbers", data_dir=data_dir, split="train"),
):
    steps = [next(iter(episode["steps"])) for episode in dataset]
    values.append([int(step["observation"]) for step in steps])
ours = {"rlds", "envlogger", "riegeli", "tfds_builders"} & set(sys.modules)
print(json.dumps([values, sorted(ours)]))
"""
    result = forked.run(code, builder.data_path, tmp_path, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [[[7, 8], [7, 8]], []]


# --- Values --------------------------------------------------------------------------------------


def extremes(dtype, shape):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        values = [True, False]
    elif dtype.kind in "iu":
        values = [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1]
    else:
        info = ml_dtypes.finfo(dtype)
        values = [np.nan, -np.inf, info.max, info.min, info.smallest_subnormal, -0.0, 1 / 3]
    return [np.resize(np.roll(np.array(values, dtype), i), shape) for i in range(4)]


DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]
SHAPES = [(), (2, 3), (2, 0)]
FIELDS = {
    f"{dtype}{shape}".replace(" ", ""): extremes(dtype, shape)
    for dtype in [*DTYPES, ml_dtypes.bfloat16]
    for shape in SHAPES
    if (dtype, 0 in shape) != ("uint32", True)
}
# All but one array of each dtype. Their conversion does not depend on the field.
SHAPED = {name for name in FIELDS if not name.endswith("(2,3)")}
FIELDS |= {
    "float": [0.1, float("nan"), 1e308, -0.0],
    "int": [-(2**63), 2**63 - 1, 0, 1],
    "bool": [True, False, True, False],
    "str": ["", "é\0", "日本", "a" * 100],
    "bytes": [b"", b"a\0\0", b"\xff\xfe", b"\0"],
    "strs": [np.array([["a", "é\0"]], object), *[np.array([["", "longer"]], object)] * 3],
    "bytess": [np.array([b"a\0", b"\xff"], object)] * 4,
    "image1": [np.full((2, 3, 1), i, np.uint8) for i in range(4)],
    "image3": [np.arange(i, i + 90, dtype=np.uint8).reshape(5, 6, 3) for i in range(4)],
    "image4": [np.arange(i, i + 8, dtype=np.uint8).reshape(1, 2, 4) for i in range(4)],
}


@pytest.mark.slow
def test_values_keep_every_bit(tmp_path):
    """All kinds of values as observation and episode metadata, some as action and custom data."""
    rows = [{name: values[i] for name, values in FIELDS.items()} for i in range(4)]
    some = [{name: row[name] for name in FIELDS if name not in SHAPED} for row in rows]
    steps = make_steps(*rows, actions=some[1:], custom_data=[{"custom": row} for row in some])
    log = make_log(steps, episode_metadata=[{"metadata": rows[0]}])
    [example] = read(build_from_logs(log, name="types", data_dir=tmp_path))
    expected = to_rlds_episode(steps)
    for field in ("observation", "action", "custom"):
        assert_same_bits(example["steps"][field], expected[field])
    for name in FIELDS:
        assert_same_bits(stack([example["metadata"][name]]), expected["observation"][name][:1])


@pytest.mark.slow
def test_empty_arrays_that_logs_store_as_none_are_restored_from_the_spec(tmp_path):
    observation = {"x": specs.Array((0, 2), np.float32), "y": INT, "z": specs.Array((0,), bool)}
    steps = make_steps({"x": None, "y": 1, "z": None}, {"x": None, "y": 2, "z": None})
    log = make_log(steps, observation=observation, action=INT, reward=FLOAT, discount=FLOAT)
    builder = build_from_logs(log, name="empty", data_dir=tmp_path)
    recorded = read(builder)[0]["steps"]["observation"]
    assert_same_bits(recorded["x"], np.zeros((2, 0, 2), np.float32))
    assert_same_bits(recorded["z"], np.zeros((2, 0), bool))


# --- Episodes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_order_is_kept_over_shards(tmp_path):
    builder = build_from_logs(
        log_values(*range(20)),
        name="numbers",
        data_dir=tmp_path,
        download_config=tfds.download.DownloadConfig(num_shards=4),
    )
    assert builder.info.splits["train"].num_shards == 4
    in_order = {"read_config": tfds.ReadConfig(interleave_cycle_length=1)}
    dataset = builder.as_dataset(split="train", **in_order)
    assert [int(episode["episode_id"].numpy()) for episode in dataset] == list(range(20))
    for episode in dataset:
        first = next(iter(episode["steps"]))
        assert first["observation"].numpy() == int(episode["episode_id"].numpy())


@pytest.mark.slow
def test_ids_count_over_all_logs_and_splits(tmp_path):
    logs = {"train": [log_values(1, 2), log_values(3)], "test": log_values(4, 5)}
    builder = build_from_logs(logs, name="numbers", data_dir=tmp_path)
    actual = {
        split: [(e["episode_id"], e["steps"]["observation"][0]) for e in read(builder, split)]
        for split in logs
    }
    assert actual == {
        "train": [(b"0", 1), (b"1", 2), (b"2", 3)],
        "test": [(b"3", 4), (b"4", 5)],
    }


def test_an_episode_of_one_step_takes_zeros_from_the_specs(tmp_path):
    log = make_log(
        [envlogger.StepData(dm_env.restart(1), None)],
        observation=INT,
        action={"a": specs.Array((2,), np.float16), "s": specs.StringArray(())},
        reward=FLOAT,
        discount=FLOAT,
    )
    (example,) = read(build_from_logs(log, name="one", data_dir=tmp_path))
    assert_same_bits(example["steps"]["action"]["a"], np.zeros((1, 2), np.float16))
    assert example["steps"]["action"]["s"].tolist() == [b""]


def test_without_specs_a_longer_episode_determines_the_action(tmp_path):
    log = make_log([envlogger.StepData(dm_env.restart(1), None)], make_steps(2, 3))
    first, second = read(build_from_logs(log, name="one", data_dir=tmp_path))
    assert first["steps"]["action"].tolist() == [0]
    assert second["steps"]["action"].tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"reader 0 .* no specs .* no episode with an action"):
        build_from_logs(make_log([envlogger.StepData(dm_env.restart(1), None)]), name="x")


# --- Metadata ------------------------------------------------------------------------------------


def test_metadata_becomes_json(tmp_path):
    metadata = {
        "array": np.arange(4, dtype=np.uint8).reshape(2, 2),
        "scalar": np.float32(0.5),
        "big": 2**70,
        "text": "é",
        "bytes": "é".encode(),
        "nested": {"tuple": (1, None), 3: [True]},
    }
    builder = build_from_logs(log_values(1, metadata=metadata), name="numbers", data_dir=tmp_path)
    assert read_metadata(builder) == {
        "array": [[0, 1], [2, 3]],
        "scalar": 0.5,
        "big": 2**70,
        "text": "é",
        "bytes": "é",
        "nested": {"tuple": [1, None], "3": [True]},
    }


def test_metadata_that_json_cannot_hold_is_refused_or_replaced(tmp_path):
    log = log_values(1, metadata={"deep": [1j]})
    with pytest.raises(ValueError, match=r"reader 0 .*, metadata/deep/0: JSON cannot hold .*Pass"):
        build_from_logs(log, name="numbers", data_dir=tmp_path)
    builder = build_from_logs(log, name="numbers", data_dir=tmp_path, metadata={"seed": 3})
    assert read_metadata(builder) == {"seed": 3}


def test_metadata_that_some_episodes_lack_is_marked(tmp_path):
    full = {"score": 1.5, "who": "me", "options": {"level": 3, "map": np.zeros(2, "i4")}}
    partial = [None, {"score": 2.5, "late": True}, {"options": {"level": 4}}]  # None: it was cut.
    log = log_values(1, 2, 3, 4, episode_metadata=[full, *partial])
    build_from_logs(log, name="numbers", data_dir=tmp_path)
    # TFDS alone reads it, in batches too.
    dataset = tfds.builder_from_directory(tmp_path / "numbers/1.0.0").as_dataset(
        split="train", decoders={"steps": tfds.decode.SkipDecoding()}
    )
    batch = next(iter(dataset.batch(4).as_numpy_iterator()))
    assert batch["score_known"].tolist() == [True, False, True, False]
    np.testing.assert_array_equal(batch["score"], [1.5, np.nan, 2.5, np.nan])
    assert batch["who_known"].tolist() == [True, False, False, False]
    assert batch["who"].tolist() == [b"me", b"", b"", b""]
    assert batch["late_known"].tolist() == [False, False, True, False]
    assert batch["options_known"].tolist() == [True, False, False, True]
    options = batch["options"]
    assert set(options) == {"level", "map", "map_known"}  # All options have a level.
    assert options["level"].tolist() == [3, 0, 0, 4]
    assert options["map_known"].tolist() == [True, False, False, False]
    assert options["map"].tolist() == [[0, 0]] * 4


@pytest.mark.slow
def test_a_known_flag_in_the_config_is_always_stored(tmp_path):
    config = rlds_base.DatasetConfig(
        name="marked", episode_metadata_info={"score": np.float32, "score_known": np.bool_}
    )
    for name, metadata in (("full", {"score": 2.5}), ("cut", None)):
        log = log_values(1, 2, episode_metadata=[{"score": 1.5}, metadata])
        _, second = read(build_from_logs(log, name=name, data_dir=tmp_path, config=config))
        assert second["score_known"] == (metadata is not None)


def test_a_known_flag_whose_name_is_in_use_is_refused():
    log = log_values(1, 2, episode_metadata=[{"seed": 1, "seed_known": 2}, {"seed_known": 3}])
    with pytest.raises(ValueError, match=r"'seed' is missing in some episodes, .*'seed_known'"):
        build_from_logs(log, name="numbers")


@pytest.mark.slow
def test_defaults_replace_missing_metadata(tmp_path):
    log = log_values(1, 2, episode_metadata=[{"score": 1.5, "who": "me"}, None])
    defaults = {"score": -1.0, "who": "nobody"}
    builder = build_from_logs(
        log, name="numbers", data_dir=tmp_path, episode_metadata_defaults=defaults
    )
    first, second = read(builder)
    assert (first["score"], first["who"]) == (1.5, b"me")
    assert (second["score"], second["who"]) == (-1.0, b"nobody")
    assert "score_known" not in builder.info.features


@pytest.mark.slow
def test_custom_data_that_some_steps_lack_is_marked(tmp_path):
    def info(speed, **more):
        return {"info": {"x": 1, "speed": speed, **more}, "on": True}

    gaps = make_steps(1, 2, 3, custom_data=[{"info": {"x": 0}, "on": True}, info(0.5), info(1.5)])
    full = make_steps(1, 2, custom_data=[info(2.5), info(3.5)])  # Nothing is missing.
    specs = {"observation": INT, "action": INT, "reward": FLOAT, "discount": FLOAT}
    log = make_log(gaps, full, **specs)
    first, second = read(build_from_logs(log, name="numbers", data_dir=tmp_path))
    np.testing.assert_array_equal(first["steps"]["info"]["speed"], [np.nan, 0.5, 1.5])
    assert first["steps"]["info"]["speed_known"].tolist() == [False, True, True]
    assert first["steps"]["info"]["x"].tolist() == [0, 1, 1]
    assert second["steps"]["info"]["speed_known"].tolist() == [True, True]

    custom_data = [None, {"x": 1}, {"x": 2}]
    log = make_log(make_steps(1, 2, 3, custom_data=custom_data), make_steps(1), **specs)
    first, second = read(build_from_logs(log, name="nothing", data_dir=tmp_path))
    assert first["steps"]["x_known"].tolist() == [False, True, True]
    assert second["steps"]["x_known"].tolist() == [False]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            {"x": 1},
            r"field 'x': got int64 of shape \(\), expected float32 of shape \(2,\)",
        ),
        ({"x": {"y": 1}}, r"field 'x': got the fields \['y'\], expected float32"),
        ({"x": {1}}, r": x: .* holds set"),
    ],
)
def test_episode_metadata_that_changes_is_refused(second, message):
    log = log_values(1, 2, episode_metadata=[{"x": np.zeros(2, "f")}, second])
    with pytest.raises(ValueError, match=rf"^reader 0 of split 'train', episode 1(, )?{message}"):
        build_from_logs(log, name="numbers")


@pytest.mark.slow
def test_episode_metadata_with_reserved_names_is_renamed(tmp_path):
    log = log_values(1, 2, episode_metadata=[{"episode_id": "x"}, {"episode_id": "x"}])
    first, second = read(build_from_logs(log, name="numbers", data_dir=tmp_path))
    assert (first["episode_id"], second["episode_id"]) == (b"0", b"1")
    assert (first["recorded_episode_id"], second["recorded_episode_id"]) == (b"x", b"x")

    reserved = {"steps": 1, "truncated": 2, "complete": 3, "source": 4}
    log = log_values(1, episode_metadata=[reserved])
    (first,) = read(build_from_logs(log, name="taken", data_dir=tmp_path))
    assert {name: first[f"recorded_{name}"] for name in reserved} == reserved

    metadata = {"episode_id": 1, "recorded_episode_id": 2}
    with pytest.raises(ValueError, match="both 'episode_id' and 'recorded_episode_id'"):
        build_from_logs(log_values(1, episode_metadata=[metadata]), name="numbers")


def test_episode_metadata_that_is_no_dict_is_kept(tmp_path):
    log = log_values(1, episode_metadata=["note"])
    (example,) = read(build_from_logs(log, name="numbers", data_dir=tmp_path))
    assert example["episode_metadata"] == b"note"


# --- Configs -------------------------------------------------------------------------------------


def test_a_config_takes_precedence_over_the_log(tmp_path):
    config = rlds_base.DatasetConfig(
        name="small",
        description="What the config is about.",
        overall_description="What the dataset is about.",
        homepage="https://example.org",
        citation="@misc{example}",
        version="2.1.0",
        observation_info=tfds.features.Tensor(shape=(None,), dtype=np.float64, encoding="bytes"),
        step_metadata_info={"label": tfds.features.ClassLabel(num_classes=3)},
        episode_metadata_info={"who": tfds.features.Text()},
    )
    observations = [np.array([0.1, 0.2]), np.array([0.3, 0.4])]
    steps = make_steps(*observations, custom_data=[{"label": 1}, {"label": 2}])
    log = make_log(steps, episode_metadata=[{"who": "me"}])
    builder = build_from_logs(log, name="numbers", data_dir=tmp_path, config=config)
    assert builder.info.full_name == "numbers/small/2.1.0"
    assert builder.info.description == "What the dataset is about."
    assert builder.info.homepage == "https://example.org"
    assert builder.info.citation == "@misc{example}"
    features = builder.info.features
    assert features["steps"]["observation"].shape == (None,)
    assert features["steps"]["label"].num_classes == 3
    assert features["steps"]["reward"].np_dtype == np.float64
    (example,) = tfds.load("numbers/small", data_dir=tmp_path, split="train")
    steps = list(example["steps"])
    assert [step["label"].numpy() for step in steps] == [1, 2]
    assert_same_bits(np.stack([step["observation"] for step in steps]), np.stack(observations))


@pytest.mark.slow
def test_float64_is_stored_as_float32_for_loaders_that_do_not_decode(tmp_path):
    rows = [{"x": np.array([1 / 3, value])} for value in range(3)]
    spec = {"x": specs.Array((2,), np.float64)}
    log = make_log(make_steps(*rows), observation=spec, action=INT, reward=FLOAT, discount=FLOAT)
    decoders = {"steps": tfds.decode.SkipDecoding()}
    expected = np.stack([observation["x"] for observation in rows]).astype(np.float32)
    float32 = {"x": tfds.features.Tensor(shape=(2,), dtype=np.float32)}
    zlib = {"x": tfds.features.Tensor(shape=(2,), dtype=np.float64, encoding="zlib")}
    configs = [
        None,
        *(rlds_base.DatasetConfig(name="c", observation_info=x) for x in (float32, zlib)),
    ]
    for index, config in enumerate(configs):
        options = {"data_dir": tmp_path / str(index), "config": config, "float64": "float32"}
        builder = build_from_logs(log, name="numbers", **options)
        ((stored),) = builder.as_dataset("train", decoders=decoders).as_numpy_iterator()
        assert_same_bits(stored["steps"]["observation"]["x"], expected)
        assert stored["steps"]["reward"].dtype == stored["steps"]["discount"].dtype == np.float32
    with pytest.raises(ValueError, match=r"'observation/x': got float64.*Pass float64='float32'"):
        build_from_logs(log, name="numbers", data_dir=tmp_path, config=configs[1])
    plain = rlds_base.DatasetConfig(name="c", reward_info=np.float64)
    with pytest.warns(UserWarning, match="config: .* float64 of reward_info .* float64='bytes'"):
        build_from_logs(log, name="numbers", data_dir=tmp_path, config=plain)


def test_data_that_does_not_fit_the_config_is_refused(tmp_path):
    config = rlds_base.DatasetConfig(name="small", reward_info=np.int64)
    message = r"field 'reward': got float64 .*, expected int64 .* declare this feature"
    with pytest.raises(ValueError, match=message):
        build_from_logs(log_values(1), name="numbers", data_dir=tmp_path, config=config)
    config = rlds_base.DatasetConfig(name="small", step_metadata_info={})
    log = make_log(make_steps(1, 2, custom_data=[{"x": 1}, {"x": 2}]))
    with pytest.raises(ValueError, match="field 'x': got a field, expected only the fields"):
        build_from_logs(log, name="numbers", data_dir=tmp_path, config=config)


# --- Data that does not fit ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"x": np.zeros(2)}, "got float64, .* hold float32. Open .* float64='float32' "),
        ({"x": np.zeros(3, "f")}, r"got float32 of shape \(3,\), expected float32 of shape \(2,\)"),
        ({}, r"got nothing, expected float32 of shape \(2,\)"),
    ],
)
def test_data_that_does_not_fit_its_spec_is_refused(tmp_path, observation, message):
    good = {"x": np.zeros(2, "f")}
    log = make_log(
        make_steps(good, good),
        make_steps(observation, observation),
        make_steps(good, good),
        observation={"x": specs.Array((2,), np.float32)},
        action=INT,
        reward=FLOAT,
        discount=FLOAT,
    )
    prefix = "reader 0 of split 'train', episode 1, field 'observation/x': "
    with pytest.raises(ValueError, match=f"^{prefix}{message}"):
        build_from_logs(log, name="bad", data_dir=tmp_path)
    assert not (tmp_path / "bad" / "1.0.0").exists()
    assert build_from_logs(log_values(1), name="bad", data_dir=tmp_path).info.name == "bad"


def test_errors_name_the_path_of_the_log(tmp_path):
    path = record(tmp_path / "log", step_fn=lambda timestep, *_: {"x": timestep.reward or ""})
    with pytest.raises(ValueError, match=rf"^{path}, episode 0: custom_data/x: step 9 holds float"):
        build_from_logs(path, name="catch")


def test_logs_with_different_specs_are_refused():
    env_specs = {"action": INT, "reward": FLOAT, "discount": FLOAT}
    other = make_log(make_steps(1.0, 2.0), observation=FLOAT, **env_specs)
    with pytest.raises(
        ValueError, match=r"^reader 1 .*, field 'observation': .*float64.*int64.* one by one"
    ):
        build_from_logs([log_values(1), other], name="bad")


# --- Wrong arguments -----------------------------------------------------------------------------


def test_missing_and_empty_logs_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"'.*nowhere' is not a directory"):
        build_from_logs(tmp_path / "nowhere", name="x")
    with pytest.raises(FileNotFoundError, match=r"holds no EnvLogger log: .* metadata\.riegeli"):
        build_from_logs(str(tmp_path), name="x")
    with pytest.raises(ValueError, match=r"reader 1 .* holds no episodes"):
        build_from_logs([log_values(1), make_log()], name="x")
    for logs in ({}, [], {"train": []}):
        with pytest.raises(ValueError, match="logs: expected at least one log"):
            build_from_logs(logs, name="x")


@pytest.mark.parametrize("name", ["", "Catch", "1st", "a/b", "é"])
def test_names_that_tfds_cannot_load_are_refused(name):
    with pytest.raises(ValueError, match="not a valid dataset name; use lower-case"):
        build_from_logs(log_values(1), name=name)


@pytest.mark.parametrize("split", ["all", "", "train[:1]"])
def test_names_of_splits_that_tfds_cannot_load_are_refused(split):
    with pytest.raises(ValueError, match="not a valid split name"):
        build_from_logs({split: log_values(1)}, name="numbers")
