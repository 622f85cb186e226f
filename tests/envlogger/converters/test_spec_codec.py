import dm_env
import numpy as np
import pytest
from dm_env import specs

from envlogger import Data
from envlogger.converters import codec, spec_codec


def store_and_read(spec):
    """Encodes, stores and reads a spec."""
    data = codec.encode(spec_codec.encode(spec)).SerializeToString()
    return codec.decode(Data.FromString(data))


def round_trip(spec):
    return spec_codec.decode(store_and_read(spec))


def read_by_old_version(encoded):
    """EnvLogger up to 1.3 reads arrays without elements as None."""
    if isinstance(encoded, np.ndarray) and encoded.size == 0:
        return None
    if isinstance(encoded, dict):
        return {key: read_by_old_version(item) for key, item in encoded.items()}
    return encoded


SPECS = [
    specs.Array((), np.float32),
    specs.Array((2, 3), np.uint8, name="camera"),
    specs.Array((0, 3), np.int64, name=""),
    specs.Array((1,), np.float16),
    specs.Array((1,), "<U3"),
    specs.Array((1,), ">f4"),
    specs.Array((1,), object),
    specs.BoundedArray((), np.int32, -5, 7, name="θ"),
    specs.BoundedArray((2,), np.float32, [-1, -np.inf], [1, np.inf]),
    specs.BoundedArray((2, 2), np.float64, [0, 1], 2),
    specs.BoundedArray((), bool, False, True),
    specs.BoundedArray((3,), np.int64, np.iinfo(np.int64).min, np.iinfo(np.int64).max),
    specs.BoundedArray((0,), np.int32, np.zeros(0), np.zeros(0)),
    specs.DiscreteArray(5),
    specs.DiscreteArray(2, dtype=np.int8, name="button"),
    specs.StringArray((2,), name="words"),
    specs.StringArray((), string_type=bytes),
]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_specs_survive_encoding(spec):
    actual = round_trip(spec)
    assert type(actual) is type(spec)
    assert actual == spec
    assert actual.name == spec.name
    if isinstance(spec, specs.BoundedArray):
        assert actual.minimum.shape == spec.minimum.shape
        np.testing.assert_array_equal(actual.maximum, spec.maximum)
    if isinstance(spec, specs.StringArray):
        assert actual.string_type is spec.string_type


@pytest.mark.parametrize(
    "spec",
    [
        {},
        [],
        (),
        {"a": {}, "b": [()], "c": SPECS[1]},
        ([SPECS[0], SPECS[1]], (SPECS[2],)),
        {0: SPECS[0], 1: SPECS[1]},
        # Dicts that resemble an encoded array.
        {"shape": SPECS[0], "dtype": SPECS[1]},
        {"shape": (), "dtype": [], "name": {}},
        {"minimum": SPECS[0], "maximum": SPECS[0]},
    ],
    ids=repr,
)
def test_structures_of_specs_survive_encoding(spec):
    assert round_trip(spec) == spec


def test_an_array_spec_is_encoded_as_a_dict_of_its_attributes():
    encoded = spec_codec.encode(specs.BoundedArray((2, 3), np.int16, 0, 9, name="x"))
    assert list(encoded) == ["shape", "dtype", "name", "minimum", "maximum"]
    assert encoded["shape"].dtype == np.int64
    assert encoded["shape"].tolist() == [2, 3]
    assert (encoded["dtype"], encoded["name"]) == ("int16", "x")
    assert encoded["minimum"].dtype == np.int16
    assert spec_codec.encode(specs.DiscreteArray(4))["num_values"] == 4


@pytest.mark.parametrize("spec", [s for s in SPECS if s != specs.StringArray((2,))], ids=repr)
def test_recordings_of_other_versions_are_read(spec):
    old = read_by_old_version(store_and_read(spec))
    assert spec_codec.decode(old) == spec


@pytest.mark.parametrize(
    ("encoded", "spec"),
    [
        ({"shape": None, "dtype": "float32", "name": "x"}, specs.Array((), np.float32, "x")),
        ({"shape": (), "dtype": None, "name": None}, specs.Array((), np.float64)),
        ({"shape": np.array([3]), "dtype": "int8"}, specs.Array((3,), np.int8)),
    ],
)
def test_missing_attributes_have_defaults(encoded, spec):
    assert spec_codec.decode(encoded) == spec


@pytest.mark.parametrize("spec", [123, 3.14, None, object(), np.abs, {"a": np}])
def test_values_that_are_not_specs_are_refused(spec):
    with pytest.raises(TypeError, match=r"expected a dm_env\.specs\.Array, or a list, tuple or"):
        spec_codec.encode(spec)


@pytest.mark.parametrize("encoded", [123, 3.14, object(), "x", {"a": 1}])
def test_values_that_are_not_encoded_specs_are_refused(encoded):
    with pytest.raises(TypeError, match="expected a dict, list or tuple, got"):
        spec_codec.decode(encoded)


def test_structured_dtypes_are_refused():
    with pytest.raises(TypeError, match="structured dtypes are not supported, use a dict of specs"):
        spec_codec.encode(specs.Array((2,), [("x", "f4"), ("y", "f4")]))


class Environment(dm_env.Environment):
    def __init__(self, observation_spec):
        self._observation_spec = observation_spec

    def observation_spec(self):
        return self._observation_spec

    def action_spec(self):
        return {}

    def reset(self):
        raise NotImplementedError

    def step(self, action):
        raise NotImplementedError

    def __len__(self):
        return 0  # An environment may be falsy.


def test_the_four_specs_of_an_environment_are_read_back():
    env = Environment(SPECS[1])
    decoded = spec_codec.decode_environment_specs(spec_codec.encode_environment_specs(env))
    assert decoded == {
        "observation_spec": SPECS[1],
        "action_spec": {},
        "reward_spec": env.reward_spec(),
        "discount_spec": env.discount_spec(),
    }


def test_without_an_environment_there_are_no_specs():
    assert spec_codec.encode_environment_specs(None) == {}
    no_specs = dict.fromkeys(["observation_spec", "action_spec", "reward_spec", "discount_spec"])
    assert spec_codec.decode_environment_specs({}) == no_specs
    assert spec_codec.decode_environment_specs(None) == no_specs


def test_empty_structures_of_other_versions_do_not_prevent_reading():
    encoded = {"observation_spec": {"a": None, "b": {"shape": None, "dtype": "int8"}}}
    decoded = spec_codec.decode_environment_specs({**encoded, "action_spec": None})
    assert decoded["observation_spec"] == {"a": None, "b": specs.Array((), np.int8)}
    assert decoded["action_spec"] is None


def test_a_spec_that_cannot_be_stored_is_named():
    with pytest.raises(TypeError, match="cannot store the observation_spec of Environment: exp"):
        spec_codec.encode_environment_specs(Environment("nothing"))
