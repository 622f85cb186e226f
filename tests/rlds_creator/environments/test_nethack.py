"""NetHack: typing in a terminal, and drawing it."""

import numpy as np
import pytest
from dm_env import specs

from rlds_creator import Inputs
from rlds_creator.environments.nethack import TypedKeys, draw_terminal

# More, west, east, far west, wait, kick with Control, pray with Alt.
CODES = [13, ord("h"), ord("l"), ord("H"), ord("."), 4, 128 + ord("p")]
MEANINGS = ["more", "west", "east", "far west", "wait", "kick", "pray"]


@pytest.fixture
def keys():
    return TypedKeys(specs.DiscreteArray(len(CODES)), CODES, MEANINGS, {"KeyX": "pray"})


def press(*names, text="", held=()):
    return Inputs(dict.fromkeys([*held, *names], 1.0), names, text)


def test_fast_typing_acts_step_by_step(keys):
    keys.action(press("KeyH", text="hl?Hh"))
    actions = [keys.action(press()) for _ in range(4)]
    assert [keys.describe(action) for action in actions[:3]] == ["east", "far west", "west"]
    assert actions[3] is None
    keys.action(press("KeyH", text="hh"))
    keys.clear_queue()
    assert keys.action(press()) is None


def test_keys_without_a_character_have_actions_once_per_press(keys):
    expected = {"ArrowLeft": "west", "Enter": "more", "Space": "more", "KeyX": "pray"}
    for name, word in expected.items():
        assert keys.describe(keys.action(press(name))) == word
        assert keys.action(press(held=[name])) is None
    # A held key does not act in between.
    assert keys.describe(keys.action(press("KeyL", text="l", held=["ArrowLeft"]))) == "east"
    assert keys.describe(keys.action(press("KeyD", text="d", held=["ControlLeft"]))) == "kick"
    assert keys.describe(keys.action(press("KeyP", text="h", held=["AltLeft"]))) == "pray"
    assert keys.action(press()) is None
    assert keys.idle is None


def test_controls_list_the_action_of_each_character(keys):
    assert {control.does for control in keys.controls} == set(MEANINGS)
    assert ["H"] in [list(control.inputs) for control in keys.controls]


def test_terminal_is_drawn_with_its_colors_and_cursor():
    characters = np.full((2, 3), ord(" "), np.uint8)
    characters[0, 1] = ord("@")
    colors = np.full((2, 3), 9, np.int8)
    picture = draw_terminal(characters, colors, np.array([1, 2], np.uint8))
    height, width, _ = picture.shape
    cells = picture.reshape(2, height // 2, 3, width // 3, 3).swapaxes(1, 2)
    for row, column in np.ndindex(2, 3):
        cell_colors = {tuple(color) for color in cells[row, column].reshape(-1, 3)}
        red, black = (255, 110, 100), (0, 0, 0)
        expected = {(0, 1): {red, black}, (1, 2): {red}}.get((row, column), {black})
        assert cell_colors == expected
    assert (draw_terminal(characters, colors, np.array([9, 9])) != picture).any()
