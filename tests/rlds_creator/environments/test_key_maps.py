import re

import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from envlogger.gymnasium_adapter import spec_of_space
from rlds_creator import Inputs
from rlds_creator.environments.key_maps import WAIT_KEY, Choices, key_map

TINY = spaces.Box(-1, 1, (2,))


def press(*names, value=1.0):
    return Inputs(dict.fromkeys(names, value), names)


def hold(*names):
    return Inputs(dict.fromkeys(names, 1.0))


def map_of(space, **options):
    return key_map(spec_of_space(space), **options)


def input_names(maps):
    """Returns the names of all inputs that do something."""
    return {
        name for control in maps.controls for names in control.inputs for name in names.split("+")
    }


def boxes():
    bounds = st.tuples(
        st.sampled_from([-np.inf, -3e38, -2.0, -1.0, 0.0]),
        st.sampled_from([0.5, 1.0, 3e38, np.inf]),
    )
    floats = st.builds(
        lambda limits, dtype: spaces.Box(*np.array(limits, dtype).T.copy(), dtype=dtype),
        st.lists(bounds, min_size=1, max_size=7),
        st.sampled_from([np.float32, np.float64]),
    )
    integers = st.sampled_from(
        [
            spaces.Box(0, 255, (2,), np.uint8),
            spaces.Box(-128, 127, (1, 2), np.int8),
            spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
            spaces.Box(-3, 3, (2,), np.int32),
            spaces.Box(5.0, 10.0, (2, 2)),
        ]
    )
    return floats | integers


def choices():
    return st.builds(spaces.Discrete, st.integers(1, 50), start=st.integers(-3, 3))


def arrays():
    return st.one_of(
        choices(),
        boxes(),
        st.builds(spaces.MultiBinary, st.integers(1, 6)),
        st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 5), min_size=1, max_size=4)),
        st.just(spaces.MultiDiscrete([[2, 3], [4, 2]])),
        st.just(spaces.MultiDiscrete([500, 3])),
    )


def all_spaces():
    return st.recursive(
        arrays(),
        lambda children: st.one_of(
            st.dictionaries(st.sampled_from("abc"), children, min_size=1).map(spaces.Dict),
            st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
        ),
        max_leaves=4,
    )


def is_equal(left, right):
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_equal(left[key], right[key]) for key in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(is_equal, left, right))
    return np.array_equal(left, right)


@settings(max_examples=50, deadline=None)
@given(all_spaces(), st.data())
def test_any_inputs_give_an_action_of_the_space(space, data):
    maps = map_of(space)
    names = sorted(input_names(maps) | {"Button0", "Axis0", "Axis1", "Space2", "KeyP"})
    held = data.draw(
        st.dictionaries(st.sampled_from(names), st.sampled_from([1.0, -1.0, 0.3, -0.7]), max_size=6)
    )
    pressed = data.draw(st.lists(st.sampled_from(names), max_size=3))
    action = maps.action(Inputs({**held, **dict.fromkeys(pressed, 1.0)}, pressed))
    assert action is None or space.contains(action)
    assert maps.idle is None or space.contains(maps.idle)
    assert maps.action(Inputs()) is None
    if action is not None:
        assert maps.describe(action)
    if maps.idle is not None:
        assert is_equal(maps.action(press(WAIT_KEY)), maps.idle)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(all_spaces())
def test_each_control_does_something_and_no_key_is_in_two_controls(space):
    maps = map_of(space)
    inputs = [name for control in maps.controls for name in control.inputs]
    assert len(inputs) == len(set(inputs))
    for control in maps.controls:
        assert control.does
        for names in control.inputs:
            held = {
                name.rstrip("+-"): -1.0 if name.endswith("-") else 1.0
                for name in re.split(r"\+(?=[A-Z])", names)
            }
            assert maps.action(Inputs(held, list(held))) is not None, names


def test_no_tap_is_lost_while_other_keys_are_held():
    spec = spec_of_space(spaces.Discrete(4))
    table = {"ArrowUp": 0, "ArrowLeft": 1, "ArrowUp+ArrowLeft": 2, "Space": 3}
    maps = Choices(spec, table)
    assert maps.action(hold("ArrowLeft", "ArrowUp")) == 2
    tap = Inputs({"ArrowLeft": 1.0, "ArrowUp": 1.0, "Space": 1.0}, ["Space"])
    assert maps.action(tap) == 3
    assert maps.action(hold("ArrowLeft", "Space")) == 3  # The last held key acts.
    assert maps.action(hold("Space", "ArrowLeft")) == 1
    assert maps.action(Inputs({"ArrowLeft": 1.0, "Space": 1.0}, ["Space", "ArrowLeft"])) == 1


def test_gamepads_act_as_keys_unless_they_have_their_own_actions():
    spec = spec_of_space(spaces.Discrete(4))
    maps = Choices(spec, {"ArrowLeft": 0, "Space": 1, "Button1": 2}, overrides={"Button14": 3})
    assert maps.action(press("Axis0", value=-0.6)) == 0
    assert maps.action(press("Axis0", value=-0.4)) is None
    assert maps.action(press("Axis0", value=0.9)) is None
    assert maps.action(press("Button0")) == 1
    assert maps.action(press("Button14")) == 3
    (left,) = (control for control in maps.controls if "ArrowLeft" in control.inputs)
    assert left.inputs == ["ArrowLeft", "Axis0-"]


def test_keys_sticks_and_a_mouse_move_numbers_and_add_up():
    space = spaces.Box(np.array([-2, -1, 0], np.float32), np.array([2, 1, 1], np.float32))
    maps = map_of(space, strength=[0.5, 1, 0.25], has_pointer=True)
    assert maps.action(hold("ArrowRight", "ArrowUp")).tolist() == [1, 1, 0]
    assert maps.action(hold("ArrowRight", "ArrowLeft")).tolist() == [0, 0, 0]
    assert maps.action(Inputs({"Axis0": 0.5, "Axis1": -0.5})).tolist() == [1, 0.5, 0]
    assert maps.action(Inputs({"Axis0": 1.0, "ArrowRight": 1.0})).tolist() == [2, 0, 0]
    assert maps.action(Inputs({"Space2": 0.5, "KeyD": 1.0})).tolist() == [0, 0, 0.75]
    assert "KeyA" not in input_names(maps)  # It would only lower a number at its minimum.
    pointer = Inputs({"Pointer0": 1.0, "PointerX": 0.25, "PointerY": 1.0})
    assert maps.action(pointer).tolist() == [-1, -1, 0]
    assert maps.action(Inputs({"PointerX": 0.25})) is None


def test_mouse_moves_a_single_number_but_no_choices():
    maps = map_of(spaces.Box(np.float32([-2]), np.float32([2])), has_pointer=True)
    for x, expected in ((0, -2), (0.25, -1), (1, 2)):
        pointer = Inputs({"Pointer0": 1.0, "PointerX": x, "PointerY": 0.9})
        assert maps.action(pointer).tolist() == [expected]
    (control,) = (control for control in maps.controls if "Pointer0" in control.inputs)
    assert control.does == "number 1 by left and right"
    for space in (spaces.Discrete(3), spaces.Dict({"a": spaces.Discrete(2)})):
        with pytest.raises(ValueError, match=r"has_pointer: .* an array of numbers"):
            map_of(space, has_pointer=True)


def test_nested_actions_have_their_own_keys():
    space = spaces.Dict(
        {"jump": spaces.Discrete(2), "move": TINY, "look": spaces.Tuple([spaces.Discrete(3), TINY])}
    )
    maps = map_of(space)
    inputs = {control.does: list(control.inputs) for control in maps.controls}
    assert inputs["jump"] == ["Digit1"]
    assert inputs["move 1 \N{MINUS SIGN}"] == ["ArrowLeft", "Axis0"][:1]
    action = maps.action(press(inputs["jump"][0], inputs["move 1 +"][0]))
    assert (action["jump"], action["move"].tolist()) == (1, [1, 0])
    assert (action["look"][0], action["look"][1].tolist()) == (0, [0, 0])
    assert maps.describe(action).startswith("jump, ")

    switches = map_of(spaces.MultiBinary(3))
    assert [control.does for control in switches.controls[:2]] == ["component 0", "component 1"]
    assert switches.action(press("Digit1", "Digit3")).tolist() == [1, 0, 1]


def test_nested_actions_accept_names_and_a_table():
    buttons = spaces.MultiBinary(3)
    space = spaces.Dict({"buttons": buttons, "turn": spaces.Box(-np.inf, np.inf, (1,))})
    maps = map_of(
        space,
        table={"Space": {"buttons": {"fire": 1}}, "Axis0": {"turn": [2]}},
        names={"buttons": ["fire", "jump", "run"], "turn": ["turn"]},
        overrides={"KeyJ": {"buttons": {"jump": 1}}},
    )
    inputs = {control.does: list(control.inputs) for control in maps.controls}
    assert inputs["fire"] == ["Space", "Button0"]
    assert inputs["jump"] == ["KeyJ"]
    assert inputs["turn \N{MINUS SIGN} / turn +"] == ["Axis0"]
    assert not any(name.startswith("Digit") for name in input_names(maps))
    action = maps.action(Inputs({"Space": 1.0, "Axis0": -0.5, "KeyJ": 1.0}))
    assert action["buttons"].tolist() == [1, 1, 0]
    assert action["turn"].tolist() == [-1]
    with pytest.raises(ValueError, match="with the components fire, jump, run"):
        map_of(buttons, names=["fire", "jump", "run"], overrides={"KeyJ": {"0": 1}})


@pytest.mark.parametrize(
    ("space", "options", "key", "override", "expected"),
    [
        (spaces.Discrete(3), {"meanings": ["wait", "go", "fire"]}, "KeyF", "Fire", 2),
        (spaces.Discrete(3), {}, "Axis1-", 2, 2),
        (spaces.Discrete(3), {}, "KeyF+KeyG", 1, 1),
        (TINY, {}, "KeyF", [0.5, -0.5], [0.5, -0.5]),
        (TINY, {}, "KeyF", {"1": 0.25}, [0, 0.25]),
        (TINY, {"names": ["x", "y"]}, "Axis0+", {"x": 0.25}, [0.25, 0]),
        (spaces.Dict({"a": TINY, "b": spaces.Discrete(3)}), {}, "KeyA", {"b": 2}, {"b": 2}),
        (spaces.MultiDiscrete([3, 3]), {}, "Digit1", {"1": 2}, [0, 2]),
    ],
)
def test_overrides_replace_actions_of_keys(space, options, key, override, expected):
    maps = map_of(space, overrides={key: override}, **options)
    names = key.split("+") if key.startswith("Key") else [key.rstrip("+-")]
    action = maps.action(press(*names, value=-1.0 if key.endswith("-") else 1.0))
    if isinstance(expected, dict):
        assert (action["b"], action["a"].tolist()) == (2, [0, 0])
    else:
        assert np.array_equal(action, expected)


def test_override_of_none_removes_a_key():
    for space, key in [(spaces.Discrete(3), "Digit1"), (TINY, "ArrowLeft")]:
        assert key in input_names(map_of(space))
        maps = map_of(space, overrides={key: None})
        assert key not in input_names(maps)
        assert maps.action(press(key)) is None


@pytest.mark.parametrize(
    ("space", "overrides", "message"),
    [
        (spaces.Discrete(3), {"arrowleft": 1}, "'arrowleft' is not an input"),
        (spaces.Discrete(3), {"KeyA": 3}, "'KeyA' cannot do 3, only 0 to 2"),
        (spaces.Discrete(3), {"KeyA": "fire"}, "cannot do 'fire', only 0 to 2"),
        (TINY, {"KeyA": [1]}, r"'KeyA' cannot do \[1\], only 2 numbers"),
        (TINY, {"KeyA": [1e300, 0]}, "only 2 numbers"),
        (TINY, {"KeyA": {"z": 1}}, "'KeyA' cannot move 'z', only 0, 1, number 1, number 2"),
        (TINY, {"KeyA+KeyB": [1, 0]}, "only single keys"),
        (spaces.Dict({"a": TINY}), {"KeyA": {"b": 3}}, "with the components a"),
    ],
)
def test_invalid_overrides_are_refused(space, overrides, message):
    with pytest.raises(ValueError, match=message):
        map_of(space, overrides=overrides)


def test_actions_without_keys_are_refused():
    with pytest.raises(ValueError, match="keys cannot play actions like StringArray"):
        map_of(spaces.Text(3))
    for strength in (0, 2, [1, 1, 1], float("nan")):
        with pytest.raises(ValueError, match="strength"):
            map_of(TINY, strength=strength)


def test_numbers_have_the_names_of_the_spec():
    spec = specs.BoundedArray((2,), np.float64, -1, 1, name="hip\tknee")
    assert key_map(spec).controls[0].does == "hip \N{MINUS SIGN}"
