import unittest

import numpy as np
from dm_env import test_utils

from envlogger.testing.catch_env import Catch


class TestCatch(test_utils.EnvironmentTestMixin, unittest.TestCase):
    """The contract of dm_env."""

    def make_object_under_test(self):
        return Catch()

    def make_action_sequence(self):
        for action in [0, 1, 2] * 12:
            yield np.int64(action)


def play(env, policy):
    timestep = env.reset()
    timesteps = [timestep]
    while not timestep.last():
        timestep = env.step(policy(timestep.observation))
        timesteps.append(timestep)
    return timesteps


def follow_the_ball(board):
    paddle = int(np.argmax(board[-1]))
    ball = int(np.argmax(board[:-1].max(axis=0)))
    return 1 + (ball > paddle) - (ball < paddle)


def test_catching_the_ball_is_rewarded_at_the_end():
    rewards = [timestep.reward for timestep in play(Catch(), follow_the_ball)]
    assert rewards == [None, *[0.0] * 8, 1.0]


def test_missing_the_ball_is_punished_at_the_end():
    def flee(board):
        return 2 - follow_the_ball(board)

    assert play(Catch(), flee)[-1].reward == -1.0


def test_the_seed_determines_the_balls():
    def first_boards(seed):
        env = Catch(seed=seed)
        return np.stack([env.reset().observation for _ in range(20)])

    np.testing.assert_array_equal(first_boards(3), first_boards(3))
    assert (first_boards(3) != first_boards(4)).any()
