import copy

import pytest

from envlogger.environment_wrapper import EnvironmentWrapper
from envlogger.testing.catch_env import Catch


class NamedCatch(Catch):
    name = "catch"
    is_closed = False

    def close(self):
        self.is_closed = True


def test_a_wrapper_behaves_like_its_environment():
    wrapped, plain = EnvironmentWrapper(Catch()), Catch()
    assert wrapped.observation_spec() == plain.observation_spec()
    assert wrapped.action_spec() == plain.action_spec()
    assert wrapped.reward_spec() == plain.reward_spec()
    assert wrapped.discount_spec() == plain.discount_spec()
    assert wrapped.reset().observation.tolist() == plain.reset().observation.tolist()
    assert wrapped.step(2).observation.tolist() == plain.step(2).observation.tolist()


def test_other_attributes_are_those_of_the_wrapped_environment():
    env = EnvironmentWrapper(EnvironmentWrapper(NamedCatch()))
    assert env.name == "catch"
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = env.nothing_like_it


def test_closing_closes_the_wrapped_environment():
    environment = NamedCatch()
    with EnvironmentWrapper(environment):
        assert not environment.is_closed
    assert environment.is_closed


def test_a_wrapper_can_be_copied():
    env = EnvironmentWrapper(Catch())
    env.reset()
    clone = copy.deepcopy(env)
    assert type(clone) is EnvironmentWrapper
    assert clone.step(0).observation.tolist() == env.step(0).observation.tolist()
