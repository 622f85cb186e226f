import datetime

import dm_env
import numpy as np
import pytest

from envlogger import StepData
from envlogger.backends import schedulers


def episode(num_steps, is_cut=False):
    """Returns the steps of an episode, which may be cut off by a reset."""
    kinds = [dm_env.StepType.FIRST] + [dm_env.StepType.MID] * (num_steps - 1)
    if not is_cut:
        kinds[-1] = dm_env.StepType.LAST
    return [StepData(dm_env.TimeStep(kind, 0.0, 1.0, None), None) for kind in kinds]


def choose(scheduler, *episodes):
    return ["".join("x" if scheduler(step) else "." for step in steps) for steps in episodes]


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        (schedulers.NStepScheduler(3), [0, 3, 6, 9]),
        (schedulers.ListStepScheduler([0, 3]), [0, 3]),
        (schedulers.ListStepScheduler(np.logspace(0, 2, 3).astype(np.int32) - 1), [0, 9]),
    ],
)
def test_schedulers_choose_the_expected_steps(scheduler, expected):
    assert [i for i in range(12) if scheduler()] == expected


def test_random_steps_follow_the_probability_and_the_seed():
    def draws(probability, seed):
        scheduler = schedulers.BernoulliStepScheduler(probability, seed=seed)
        return [scheduler() for _ in range(1000)]

    assert draws(0.5, 7) == draws(0.5, 7) != draws(0.5, 8)
    assert 400 < sum(draws(0.5, 7)) < 600
    assert sum(draws(0.0, 7)) == 0
    assert sum(draws(1.0, 7)) == 1000


def test_episodes_cut_by_a_reset_count_for_schedulers():
    """An episode whose first steps are dropped counts, too."""
    cut_episode = episode(3, is_cut=True)
    scheduler = schedulers.NEpisodeScheduler(2)
    actual = choose(scheduler, episode(3)[1:], episode(4), cut_episode, cut_episode)
    assert actual == ["xx", "....", "xxx", "..."]
    scheduler = schedulers.ListEpisodeScheduler([1, 2])
    assert choose(scheduler, *[cut_episode] * 3, episode(2)) == ["...", "xxx", "xxx", ".."]


def test_random_episodes_are_chosen_completely_or_not_at_all():
    scheduler = schedulers.BernoulliEpisodeScheduler(0.5, seed=3)
    choices = choose(scheduler, *[episode(4) for _ in range(100)])
    assert set(choices) == {"xxxx", "...."}
    same_scheduler = schedulers.BernoulliEpisodeScheduler(0.5, seed=3)
    assert choose(same_scheduler, *[episode(4) for _ in range(100)]) == choices


def test_missed_intervals_are_skipped():
    now = 100.0
    scheduler = schedulers.TimeScheduler(datetime.timedelta(seconds=10), clock=lambda: now)
    assert not scheduler()
    now = 109.9
    assert not scheduler()
    now = 110.0
    assert scheduler()
    assert not scheduler()
    now = 155.0  # Late: missed intervals are skipped.
    assert scheduler()
    now = 164.0
    assert not scheduler()
    now = 165.0
    assert scheduler()


def test_the_clock_may_be_set_back():
    now = 100.0
    scheduler = schedulers.TimeScheduler(10, clock=lambda: now)
    now = 50.0
    assert not scheduler()
    now = 60.0
    assert scheduler()

    now = 69.0
    assert not scheduler()
    now = 60.1  # By less than the interval, which goes on.
    assert not scheduler()
    now = 70.0
    assert scheduler()


@pytest.mark.parametrize(
    ("make", "argument", "error", "message"),
    [
        (schedulers.TimeScheduler, 0, ValueError, "interval must be positive"),
        (schedulers.TimeScheduler, float("nan"), ValueError, "interval must be positive"),
        (schedulers.TimeScheduler, datetime.timedelta(0), ValueError, "interval must be positive"),
        (schedulers.NStepScheduler, 0, ValueError, "step_interval must be positive"),
        (schedulers.NEpisodeScheduler, 0, ValueError, "episode_interval must be positive"),
        (schedulers.BernoulliStepScheduler, 1.01, ValueError, "keep_probability"),
        (schedulers.BernoulliEpisodeScheduler, float("nan"), ValueError, "keep_probability"),
        (schedulers.ListStepScheduler, [], ValueError, "cannot be empty"),
        (schedulers.ListEpisodeScheduler, np.zeros(2, np.float32), TypeError, "of int32 or int64"),
    ],
)
def test_invalid_arguments_of_schedulers_are_refused(make, argument, error, message):
    with pytest.raises(error, match=message):
        make(argument)
