"""Simulated environments in the interface of dm_env."""

import dm_env

from rlds_creator import Inputs
from rlds_creator.environments.key_maps import key_map
from rlds_creator.environments.simulation import Simulated, SimulatedPlayable


class Countdown(Simulated):
    def begin(self):
        self.left, self.info = 2 + (self.next_seed or 0), {"is_new": True}
        return self.left

    def advance(self, action):
        self.left -= 1
        self.info = {}
        return self.left, action, float(self.left > 0), self.left == 0


class CountdownPlayable(SimulatedPlayable):
    def render(self, camera=0, *, is_draft=False):
        raise NotImplementedError


def test_episodes_begin_end_and_begin_again() -> None:
    spec = dm_env.specs.DiscreteArray(3)
    game = CountdownPlayable(Countdown("the spec", spec), key_map(spec))
    assert game.environment.observation_spec() == "the spec"
    game.seed(1)
    first = game.environment.step(0)  # In dm_env, this is a reset.
    assert (first.step_type, first.observation, game.info()) == (
        dm_env.StepType.FIRST,
        3,
        {"is_new": True},
    )
    action = game.action(Inputs({"Digit3": 1.0}, ["Digit3"]))
    steps = [game.environment.step(action) for _ in range(4)]
    assert [step.step_type.value for step in steps] == [1, 1, 2, 0]
    assert [step.reward for step in steps] == [2.0, 2.0, 2.0, None]
    assert [step.discount for step in steps] == [1.0, 1.0, 0.0, None]
