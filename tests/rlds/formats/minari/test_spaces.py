import numpy as np
import pytest
from gymnasium import spaces
from minari.dataset.minari_storage import is_image_space
from minari.serialization import deserialize_space, serialize_space

from rlds.formats.minari.spaces import Spaces, box
from rlds_ecosystem.model.fields import Field


def parse_space(space, path):
    parsed = Spaces()
    parsed.add(space, path)
    return parsed


LEAVES = [
    spaces.Box(-1, 1, (2, 3), np.float32),
    spaces.Box(0, 1, (), bool),
    spaces.Box(0, 255, (32, 40), np.uint8),
    spaces.Box(0, 255, (32, 40, 3), np.uint8),
    spaces.Box(0, 255, (4, 84, 84), np.uint8),
    spaces.Box(0, 254, (32, 40, 3), np.uint8),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary((2, 3)),
]


@pytest.mark.parametrize("space", LEAVES, ids=str)
def test_spaces_have_the_type_and_shape_that_minari_gives_them(space):
    leaf = parse_space(serialize_space(space), "x").leaves["x"]
    assert leaf.kind == type(space).__name__
    assert leaf.field == Field(space.dtype, space.shape)
    assert leaf.is_image == is_image_space(space)


def test_nested_spaces_have_the_paths_of_hdf5_files():
    space = spaces.Dict(
        {"a": spaces.Tuple((spaces.Text(3), spaces.Dict({"b": spaces.Discrete(2)})))}
    )
    parsed = parse_space(serialize_space(space), "observations")
    assert list(parsed.leaves) == ["observations/a/_index_0", "observations/a/_index_1/b"]
    assert parsed.leaves["observations/a/_index_0"].field == Field(str)
    assert parsed.tuples == {"observations/a"}


@pytest.mark.parametrize("dtype", list("?bBhHiIlLefd"))
def test_a_box_holds_all_values_of_a_dtype(dtype):
    dtype = np.dtype(dtype)
    space = deserialize_space(box(dtype, (2,)))
    assert space.dtype == dtype
    lowest, highest = {"b": (False, True), "f": (-np.inf, np.inf)}.get(dtype.kind) or (
        np.iinfo(dtype).min,
        np.iinfo(dtype).max,
    )
    assert space.contains(np.array([lowest, highest], dtype))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ('{"type": "Graph"}', "x: 'Graph' is not a space that Minari writes"),
        ('{"type": "Box", "shape": [2]}', "x: not a Minari space .KeyError.'dtype'"),
        ("[1]", "x: not a Minari space"),
        ('{"type": "Dict", "subspaces": {"a/b": {}}}', "x: 'a/b' is not a valid field name"),
    ],
)
def test_malformed_spaces_are_refused(space, message):
    with pytest.raises(ValueError, match=message):
        parse_space(space, "x")
