import re
import sys
from typing import ClassVar

import gymnasium
import numpy as np
import pytest

from rlds_creator import Inputs, environments


def play(name, options, names, seed=7):
    """Plays some steps; returns the environment, its timesteps and pictures."""
    playable = environments.make(name, options)
    try:
        playable.seed(seed)
        timesteps, pictures = [playable.environment.reset()], [playable.render()]
        for held in names:
            action = playable.action(Inputs(dict.fromkeys(held, 1.0), held))
            if action is None:
                action = playable.idle_action
            if action is None:
                action = playable.environment.action_spec().generate_value()
            timesteps.append(playable.environment.step(action))
            pictures.append(playable.render())
        return playable, timesteps, pictures
    finally:
        playable.close()


TAXI = max(id for id in gymnasium.registry if id.startswith("Taxi-v"))
GAMES = {
    "gymnasium CartPole-v1": (400, 600),
    "gymnasium LunarLander-v3": (400, 600),
    "gymnasium CarRacing-v3": (400, 600),
    f"gymnasium {TAXI}": {"Taxi-v3": (350, 550)}.get(TAXI, (456, 536)),
    "atari ALE/Breakout-v5": (210, 160),
    "minigrid MiniGrid-DoorKey-5x5-v0": (None, 160),
    "minigrid BabyAI-GoToObj-v0": (None, 256),
}


@pytest.mark.parametrize("game", GAMES)
def test_same_inputs_give_the_same_observations(game):
    name, id = game.split()
    keys = [["ArrowLeft"], ["ArrowRight"], ["ArrowLeft"], ["ArrowRight", "ArrowLeft"]]
    options = {"id": id, **({"sticky_actions": False} if name == "atari" else {})}
    playable, timesteps, pictures = play(name, options, keys)
    height, width = GAMES[game]
    for picture in pictures:
        assert picture.dtype == np.uint8
        assert picture.shape[1:] == (width, 3)
        assert height in (None, picture.shape[0])
        assert np.ptp(picture)
    assert any((picture != pictures[0]).any() for picture in pictures)
    _, repeated, _ = play(name, options, keys)
    for left, right in zip(timesteps, repeated):
        np.testing.assert_equal(left, right)
    assert playable.metadata()["versions"]["gymnasium"]
    assert all(control.does for control in playable.controls)
    assert isinstance(playable.info(), dict)


@pytest.mark.slow
def test_all_listed_environments_can_be_created_and_drawn():
    for name in ("gymnasium", "minigrid", "atari"):
        for id in environments.family(name).identifiers():
            playable, _, (first, second) = play(name, {"id": id}, [["ArrowRight"]])
            assert first.dtype == second.dtype == np.uint8
            assert playable.controls


def test_all_actions_of_an_atari_game_have_keys():
    playable = environments.make("atari", {"id": "ALE/Pong-v5", "full_action_space": True})
    inputs = {control.does: control.inputs for control in playable.controls}
    assert len(inputs) == 18
    keys = ["ArrowUp", "ArrowLeft", "Space"]
    action = playable.action(Inputs(dict.fromkeys(keys, 1.0)))
    assert playable.describe(action) == "up, left, fire"
    assert inputs["nothing"] == ["Period"]
    playable.close()


def test_the_mission_is_below_a_grid_world():
    playable, timesteps, (picture, *_) = play("minigrid", {"id": "BabyAI-GoToObj-v0"}, [])
    assert playable.environment.observation_spec()["mission"].dtype == object
    assert timesteps[0].observation["mission"].startswith("go to")
    strip = picture[256:]
    assert len(strip) > 12
    assert np.ptp(strip) > 200


def test_continuous_and_discrete_variants_have_their_own_keys():
    cases = [
        ("CarRacing-v3", {"continuous": False}, "ArrowUp", 3),
        ("LunarLander-v3", {"continuous": True}, "ArrowUp", [1, 0]),
        ("LunarLanderContinuous-v3", {}, "ArrowRight", [0, 1]),
    ]
    for id, arguments, key, expected in cases:
        playable = environments.make("gymnasium", {"id": id, "arguments": arguments})
        assert np.array_equal(playable.action(Inputs({key: 1.0}, [key])), expected)
        playable.close()


def test_key_table_of_an_environment_is_used():
    import gymnasium
    from gymnasium import spaces

    class Dial(gymnasium.Env):
        metadata: ClassVar = {"render_modes": ["rgb_array"]}
        action_space = spaces.Discrete(4)
        observation_space = spaces.Discrete(1)

        def __init__(self, render_mode=None):
            self.render_mode = render_mode

        def get_keys_to_action(self):
            return {(): 0, (ord("a"),): 1, "d": 2, (1073741903, ord(" ")): 3}

        def get_action_meanings(self):
            return ["Stay", "Back", "On", "Jump"]

    gymnasium.register("rlds_test/Dial-v0", Dial)
    try:
        spec = gymnasium.spec("rlds_test/Dial-v0")
        assert spec.id not in environments.family("gymnasium").identifiers()  # It has no module.
        playable = environments.family("gymnasium").make(id=spec.id, keys={"KeyX": "jump"})
        assert playable.idle_action == 0
        for held, word in [("KeyA", "back"), ("KeyD", "on"), ("ArrowRight Space", "jump")]:
            action = playable.action(Inputs(dict.fromkeys(held.split(), 1.0)))
            assert playable.describe(action) == word
        assert playable.describe(playable.action(Inputs({"KeyX": 1.0}))) == "jump"
    finally:
        del gymnasium.registry["rlds_test/Dial-v0"]


@pytest.mark.parametrize(
    ("name", "options", "keys", "message"),
    [
        (
            "gymnasium",
            {"id": "os:CartPole-v1"},
            {},
            "has no environment 'os:CartPole-v1' on this server",
        ),
        ("gymnasium", {"id": ["CartPole-v1"]}, {}, "has no environment"),
        (
            "gymnasium",
            {"id": "CartPole-v1", "seed": 1},
            {},
            "no option 'seed'; there are: arguments",
        ),
        ("gymnasium", {"id": "CartPole-v1", "arguments": {"x": 1}}, {}, "unexpected keyword"),
        (
            "gymnasium",
            {"id": "CartPole-v1", "arguments": {"render_mode": "human"}},
            {},
            "cannot be set",
        ),
        (
            "gymnasium",
            {"id": "FrozenLake-v1", "arguments": {"map_name": "/etc/passwd"}},
            {},
            "expected a number or a word",
        ),
        ("gymnasium", {"id": "CartPole-v1"}, {"KeyA": 7}, "cannot do 7"),
        ("atari", {"id": "ALE/Pong-v5", "frameskip": 0}, {}, "frameskip is 0"),
        ("minigrid", {"id": "MiniGrid-DoorKey-5x5-v0", "tile_size": 9999}, {}, "tile_size"),
        ("nothing", {"id": "x"}, {}, "no family 'nothing'; there are: gymnasium"),
    ],
)
def test_invalid_options_are_reported(name, options, keys, message):
    with pytest.raises(ValueError, match=message):
        environments.make(name, options, keys)


@pytest.mark.parametrize(
    ("name", "module", "requires"),
    [
        ("gymnasium", "gymnasium", "'gymnasium[box2d,classic-control]'"),
        ("atari", "ale_py", "ale-py"),
        ("minigrid", "minigrid", "minigrid"),
        ("mujoco", "mujoco", "'gymnasium[mujoco]'"),
        ("dm_control", "dm_control", "dm-control"),
        ("nethack", "nle", "nle"),
        ("procgen", "procgen", "procgen-mirror 'numpy<2'"),
        ("vizdoom", "vizdoom", "vizdoom"),
        ("robosuite", "robosuite", "robosuite 'mujoco<3.10'"),
        ("robodesk", "robodesk", "robodesk 'pillow<10'"),
        ("crafter", "crafter", "crafter"),
    ],
)
def test_missing_package_is_named(name, module, requires, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")  # Nothing is drawn here.
    monkeypatch.setitem(sys.modules, module, None)
    family = environments.family(name)
    with pytest.raises(ImportError, match=f": pip install {re.escape(requires)}$"):
        family.identifiers()


def test_options_of_all_families_can_be_described():
    for name in environments.families():
        family = environments.family(name)
        assert family.title
        for option in environments.options_of(family).values():
            assert option.is_json, option
