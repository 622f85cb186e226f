"""Published policies: pickles, files of D4RL, SavedModels and indices."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import raw_d4rl
import raw_deep_ope
import stores_of_tests

import rlds_tools
from rlds.evaluation import (
    DeterministicPolicy,
    TanhGaussianPolicy,
    collect,
    load_policy,
    mlp_policy,
)
from rlds.evaluation.policy_formats import (
    open_saved_model,
    read_d4rl_policy,
    read_deep_ope,
    read_deep_ope_index,
)
from rlds.sources import SourceError
from rlds_ecosystem.files import stores

SIZES = (11, 8, 8, 3)
OBSERVATIONS = np.random.default_rng(0).normal(0, 5, (6, 11))


# --- Pickles -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_pickled_weights_become_a_policy(tmp_path, protocol):
    path = raw_deep_ope.write_policy(tmp_path / "a.pkl", SIZES, protocol=protocol)
    if protocol == 2:  # Like a file of NumPy 1.
        path.write_bytes(path.read_bytes().replace(b"numpy._core.", b"numpy.core."))
        assert b"numpy.core.multiarray" in path.read_bytes()
    expected = raw_deep_ope.weights(SIZES)
    arrays = read_deep_ope(path)
    assert arrays.keys() == expected.keys()
    np.testing.assert_array_equal(arrays["fc1/weight"], expected["fc1/weight"], strict=True)
    policy = load_policy(path)
    assert isinstance(policy, TanhGaussianPolicy)
    assert policy.mode(OBSERVATIONS).tolist() == mlp_policy(expected).mode(OBSERVATIONS).tolist()
    certain = load_policy(path, deterministic=True)
    assert isinstance(certain, DeterministicPolicy)
    assert certain.mode(OBSERVATIONS).tolist() == policy.mode(OBSERVATIONS).tolist()


class CallOnLoad:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


def make_memo_bomb():
    """Returns deeply nested lists that share their inner lists."""
    nested = [0]
    for _ in range(60):
        nested = [nested] * 10
    return nested


HOSTILE = {
    "calls": (
        lambda: pickle.dumps({"fc0/weight": CallOnLoad(os.system, "touch PWNED")}),
        "names posix.system, which is not plain data",
    ),
    "evaluates": (lambda: pickle.dumps(CallOnLoad(eval, "1")), "names builtins.eval"),
    "large": (
        lambda: pickle.dumps({"fc0/weight": np.zeros((2, 2))}).replace(
            b"K\x02K\x02\x86", b"M\xff\xffM\xff\xff\x86"
        ),
        "the data of an array of float64 does not fit",
    ),
    "memo": (lambda: pickle.dumps(make_memo_bomb()), "too many references"),
    "cut": (lambda: pickle.dumps(raw_deep_ope.weights(SIZES))[:-200], "damaged"),
    "nothing": (lambda: b"", "damaged"),
    "no_dict": (lambda: pickle.dumps([1, 2]), "a pickle of list, expected a dict"),
    "objects": (
        lambda: pickle.dumps({"fc0/weight": np.array([1, "a"], object)}),
        "field 'fc0/weight': ndarray, expected an array of numbers, or a text",
    ),
    "keys": (lambda: pickle.dumps({7: np.zeros(2)}), "field '7': ndarray, expected an array"),
    "misfit": (
        lambda: pickle.dumps(raw_deep_ope.weights(SIZES, **{"fc1/bias": np.zeros(3)})),
        "fc1 has 8 rows of weights and 3 biases",
    ),
    "lost": (
        lambda: pickle.dumps({"fc0/weight": np.zeros((2, 2))}),
        "no array 'output_distribution'; there are: fc0/weight",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused_without_running_code(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    make, message = HOSTILE[name]
    (tmp_path / "a.pkl").write_bytes(make())
    with pytest.raises(SourceError, match=message) as caught:
        load_policy(tmp_path / "a.pkl")
    assert os.fspath(caught.value.file) == str(tmp_path / "a.pkl")
    assert os.listdir(tmp_path) == ["a.pkl"]


def test_missing_pickles_are_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_policy(tmp_path / "a.pkl")
    with pytest.raises(SourceError):
        load_policy(tmp_path)


# --- Files of D4RL -------------------------------------------------------------------------------


def test_policy_of_a_file_reproduces_recorded_log_probs(tmp_path):
    recorder = raw_d4rl.policy((5, 8, 8, 2))
    recorder["metadata/policy/last_fc/bias"][1] = 8.0  # Some actions are 1 in float32.
    rows = raw_d4rl.without(raw_d4rl.transitions((60, 40), 5, 2), "next_observations")
    ends = {"terminals": raw_d4rl.flags(100, 59), "timeouts": raw_d4rl.flags(100, 99)}
    rows |= raw_d4rl.act(recorder, rows["observations"])
    path = raw_d4rl.write(tmp_path / "a.hdf5", {**rows, **ends, **recorder})
    data = collect(path, log_prob="infos/action_log_probs")
    observations = data.observations_at(data.rows)
    policy, exact = load_policy(path), load_policy(path, clamp=1 - 2**-24)
    np.testing.assert_allclose(policy.log_prob(observations, data.actions), data.log_probs)
    # Actions that D4RL clamped have other densities without its clamp.
    is_clamped = (np.abs(data.actions) > 0.999999).any(axis=1)
    assert 10 < is_clamped.sum() < 90
    differs = np.abs(exact.log_prob(observations, data.actions) - data.log_probs)
    assert differs[is_clamped].min() > 0.01
    assert differs[~is_clamped].max() < 1e-9


@pytest.mark.slow
def test_policy_of_a_file_is_kept_by_conversion(tmp_path):
    path = raw_d4rl.mujoco_v2(tmp_path / "hopper.hdf5")
    rlds_tools.convert(path, tmp_path / "dataset")
    actual, expected = read_d4rl_policy(tmp_path / "dataset"), read_d4rl_policy(path)
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)


def test_the_adroit_expert_needs_deterministic_actions(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hammer-expert-v1")
    with pytest.raises(SourceError, match=r"last_fc_log_std is a copy of last_fc.*deterministic"):
        load_policy(path)
    observations = collect(path).observations
    actions = load_policy(path, deterministic=True).mode(observations)
    assert actions.shape == (len(observations), 26)


def test_files_without_a_policy_are_refused(tmp_path):
    path = raw_d4rl.write_family(tmp_path, "hopper_medium")
    with pytest.raises(SourceError, match="field 'metadata/policy': the file has no policy"):
        load_policy(path)
    path = raw_d4rl.write_family(tmp_path, "halfcheetah_medium_replay-v1")
    with pytest.raises(SourceError, match="the file has no policy"):
        load_policy(path)


def test_malicious_hdf5_weights_are_rejected(tmp_path):
    h5py = pytest.importorskip("h5py")
    arrays = raw_d4rl.policy(SIZES)
    changes = {
        "link": lambda group: group.__setitem__("fc0/more", h5py.ExternalLink("a.hdf5", "/x")),
        "huge": lambda group: group.create_dataset(
            "fc0/more", (1 << 20, 1 << 20), chunks=(1, 1 << 10), dtype="f8"
        ),
        "empty": lambda group: group.__setitem__("fc0/more", h5py.Empty("f8")),
        "group": lambda group: (group.pop("fc0/bias"), group.create_group("fc0/bias")),
    }
    messages = [
        "a link to another file",
        "bytes are declared",
        "has no values",
        "no array 'fc0/bias'",
    ]
    for (name, change), message in zip(changes.items(), messages, strict=True):
        with h5py.File(raw_d4rl.write(tmp_path / f"{name}.hdf5", arrays), "a") as file:
            change(file["metadata/policy"])
        with pytest.raises(SourceError, match=message):
            load_policy(tmp_path / f"{name}.hdf5")
    (tmp_path / "cut.hdf5").write_bytes((tmp_path / "empty.hdf5").read_bytes()[:900])
    with pytest.raises(SourceError, match="not a complete HDF5 file"):
        read_d4rl_policy(tmp_path / "cut.hdf5")


# --- Indices -------------------------------------------------------------------------------------


def test_policy_indices_list_names_tasks_and_returns(tmp_path):
    records = [raw_deep_ope.d4rl_record("hopper/hopper_online_0", -61.5)]
    raw_deep_ope.write_policy(tmp_path / "hopper/hopper_online_0.pkl", SIZES)
    (entry,) = read_deep_ope_index(raw_deep_ope.write_index(tmp_path / "d4rl.json", records))
    assert (entry.name, entry.agent) == ("hopper/hopper_online_0", "SAC")
    assert entry.tasks == ("hopper-medium-v0", "hopper-random-v0")
    assert (entry.return_mean, entry.return_std, entry.settings) == (-61.5, 118.8, {})
    assert load_policy(entry).mode(OBSERVATIONS).shape == (6, 3)

    records = [raw_deep_ope.rlu_record("13830900_1/step_000000025001", 29.4)]
    path = raw_deep_ope.write_index(tmp_path / "rlu.json", records)
    assert "NaN" in path.read_text()
    (entry,) = read_deep_ope_index(path, "gs://gresearch/deep-ope/rlunplugged")
    assert entry.path == "gs://gresearch/deep-ope/rlunplugged/13830900_1/step_000000025001"
    assert (entry.tasks, entry.return_std) == (("cartpole_swingup",), 0.16)
    assert entry.settings["is_recurrent"] is True
    assert None not in entry.settings.values()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_policies_in_a_store_are_loaded(tmp_path):
    (tmp_path / "server").mkdir()
    raw_deep_ope.write_policy(tmp_path / "a.pkl", SIZES)
    raw_deep_ope.write_index(tmp_path / "d4rl.json", [raw_deep_ope.d4rl_record("a", 1.0)])
    raw_d4rl.mujoco_v2(tmp_path / "b.hdf5")
    with stores_of_tests.running("gcsfs", tmp_path / "server") as store:
        for name in ("a.pkl", "d4rl.json", "b.hdf5"):
            stores.copy_file(tmp_path / name, f"{store.url}/{name}")
        (entry,) = read_deep_ope_index(f"{store.url}/d4rl.json")
        for path in (entry, f"{store.url}/b.hdf5"):
            assert load_policy(path).mode(OBSERVATIONS).shape == (6, 3)
        with pytest.raises(FileNotFoundError, match=r"c\.pkl' does not exist"):
            load_policy(f"{store.url}/c.pkl")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy_path": "../../home/me/key"}, "policy_path .* a path below the folder"),
        ({"policy_path": "/etc/passwd"}, "policy_path .* a path below the folder"),
        ({"policy_path": ""}, "policy_path"),
        ({"return_mean": np.nan}, "return_mean"),
        ({"return_mean": True}, "return_mean"),
        ({"return_std:": "1"}, "return_std:"),
        ({"task.task_names": [3]}, "task.task_names"),
        ({"agent_name": None}, "agent_name"),
    ],
)
def test_wrong_rows_of_policy_indices_are_rejected(tmp_path, changes, message):
    good = raw_deep_ope.d4rl_record("a", 1.0)
    path = raw_deep_ope.write_index(tmp_path / "a.json", [good, {**good, **changes}])
    with pytest.raises(SourceError, match=rf"a\.json, row 1: .*{message}"):
        read_deep_ope_index(path)


def test_files_that_are_no_indices_are_refused(tmp_path):
    path = tmp_path / "a.json"
    for content, message in (
        ("{}", "dict, expected a list of policies"),
        ("[3]", "row 0: got a int, expected a dict"),
        ("[{}]", "row 0: .*policy_path is missing"),
        ("[" * 100_000, "cannot be read"),
    ):
        path.write_text(content)
        with pytest.raises(SourceError, match=message):
            read_deep_ope_index(path)


# --- SavedModels ---------------------------------------------------------------------------------

_MAKE_MODELS = """
import sys
import tensorflow as tf

OBSERVATIONS = {"position": tf.TensorSpec([None, 2]), "velocity": tf.TensorSpec([None, 1])}


class Plain(tf.Module):
    def __init__(self):
        super().__init__()
        self.gain = tf.Variable([[1.0], [2.0]])

    def act(self, observations):
        return tf.tanh(observations["position"] @ self.gain + observations["velocity"])

    @tf.function(input_signature=[OBSERVATIONS])
    def __call__(self, observations):
        return self.act(observations)


class WithState(Plain):
    @tf.function(input_signature=[OBSERVATIONS, ((),)])
    def __call__(self, observations, state):
        return self.act(observations), state

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def initial_state(self, batch_size):
        return ((),)


class Drawing(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def __call__(self, observations):
        return observations + tf.random.normal(tf.shape(observations))


for kind in (Plain, WithState, Drawing):
    tf.saved_model.save(kind(), f"{sys.argv[1]}/{kind.__name__}")
tf.saved_model.save(tf.Module(), f"{sys.argv[1]}/Nothing")
"""


@pytest.mark.slow  # TensorFlow traces models, in a separate process.
def test_saved_models_sample_actions_without_probabilities(tmp_path):
    subprocess.run([sys.executable, "-c", _MAKE_MODELS, str(tmp_path)], check=True)
    rng = np.random.default_rng(0)
    position = rng.normal(size=(5000, 2)).astype(np.float32)  # Several blocks.
    velocity = rng.normal(size=(5000, 1)).astype(np.float32)
    observations = {"position": position, "velocity": velocity}
    expected = np.tanh(position @ [[1], [2]] + velocity)
    record = raw_deep_ope.rlu_record("WithState", 1.0, is_recurrent=False)
    (entry,) = read_deep_ope_index(raw_deep_ope.write_index(tmp_path / "a.json", [record]))
    for path in (tmp_path / "Plain", entry):
        policy = load_policy(path, trusted=True)
        np.testing.assert_allclose(policy.sample(observations, rng), expected, atol=1e-6)
        with pytest.raises(TypeError, match="no probabilities of actions"):
            policy.log_prob(observations, expected)
    drawn = load_policy(tmp_path / "Drawing", trusted=True).sample(position, rng) - position
    np.testing.assert_allclose([drawn.mean(), drawn.std()], [0, 1], atol=0.05)
    for invalid in (observations["position"], {**observations, "position": position[:, :1]}):
        with pytest.raises(ValueError, match="Plain: the policy does not accept these"):
            load_policy(tmp_path / "Plain", trusted=True).sample(invalid, rng)
    with pytest.raises(SourceError, match="cannot be called"):
        open_saved_model(tmp_path / "Nothing", trusted=True)
    with pytest.raises(TypeError, match="a SavedModel, which takes no option 'clamp'"):
        load_policy(tmp_path / "Plain", trusted=True, clamp=0.5)
    (tmp_path / "Plain/saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(SourceError, match="TensorFlow cannot load it"):
        load_policy(tmp_path / "Plain", trusted=True)


def test_saved_models_run_only_if_they_are_trusted(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(PermissionError, match="a program that may read and write all your files"):
        load_policy(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no saved_model\.pb"):
        open_saved_model(tmp_path / "elsewhere", trusted=True)
