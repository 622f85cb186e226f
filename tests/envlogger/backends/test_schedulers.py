import datetime

import dm_env
import numpy as np
import pytest

from envlogger import StepData
from envlogger.backends import schedulers


def episode(num_steps, is_cut=False):
    """The steps of an episode, which may be cut off by a reset."""
    kinds = [dm_env.StepType.FIRST] + [dm_env.StepType.MID] * (num_steps - 1)
    if not is_cut:
        kinds[-1] = dm_env.StepType.LAST
    return [StepData(dm_env.TimeStep(kind, 0.0, 1.0, None), None) for kind in kinds]


def answers(scheduler, *episodes):
    return ["".join("x" if scheduler(step) else "." for step in steps) for steps in episodes]


def test_every_nth_step():
    scheduler = schedulers.NStepScheduler(3)
    assert [scheduler() for _ in range(7)] == [True, False, False, True, False, False, True]


def test_listed_steps():
    scheduler = schedulers.ListStepScheduler([0, 3])
    assert [scheduler(None) for _ in range(5)] == [True, False, False, True, False]


def test_listed_steps_may_be_an_array():
    scheduler = schedulers.ListStepScheduler(np.logspace(0, 2, 3).astype(np.int32) - 1)
    assert [i for i in range(200) if scheduler()] == [0, 9, 99]


def test_random_steps_follow_the_probability_and_the_seed():
    def draws(probability, seed):
        scheduler = schedulers.BernoulliStepScheduler(probability, seed=seed)
        return [scheduler() for _ in range(1000)]

    assert draws(0.5, 7) == draws(0.5, 7) != draws(0.5, 8)
    assert 400 < sum(draws(0.5, 7)) < 600
    assert sum(draws(0.0, 7)) == 0
    assert sum(draws(1.0, 7)) == 1000


def test_every_nth_episode():
    scheduler = schedulers.NEpisodeScheduler(2)
    assert answers(scheduler, episode(3), episode(4), episode(2)) == ["xxx", "....", "xx"]


def test_episodes_that_are_cut_off_by_a_reset_count():
    scheduler = schedulers.NEpisodeScheduler(2)
    cut = episode(3, is_cut=True)
    assert answers(scheduler, cut, cut, cut, cut) == ["xxx", "...", "xxx", "..."]


def test_listed_episodes():
    scheduler = schedulers.ListEpisodeScheduler([1, 2])
    cut = episode(2, is_cut=True)
    assert answers(scheduler, cut, cut, cut, episode(2)) == ["..", "xx", "xx", ".."]


def test_random_episodes_are_chosen_completely_or_not_at_all():
    scheduler = schedulers.BernoulliEpisodeScheduler(0.5, seed=3)
    given = answers(scheduler, *[episode(4) for _ in range(100)])
    assert set(given) == {"xxxx", "...."}
    again = schedulers.BernoulliEpisodeScheduler(0.5, seed=3)
    assert answers(again, *[episode(4) for _ in range(100)]) == given


def test_a_scheduler_made_in_the_middle_of_an_episode_counts_it():
    assert answers(schedulers.NEpisodeScheduler(2), episode(3)[1:], episode(2)) == ["xx", ".."]


def test_time_passes():
    now = 100.0
    scheduler = schedulers.TimeScheduler(datetime.timedelta(seconds=10), clock=lambda: now)
    assert not scheduler()
    now = 109.9
    assert not scheduler()
    now = 110.0
    assert scheduler()
    assert not scheduler()
    now = 155.0  # Late: missed intervals are not made up for.
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


@pytest.mark.parametrize("jump", [0.1, 9.9, 10.0])
def test_a_clock_that_goes_back_and_returns_changes_nothing(jump):
    now = 100.0
    scheduler = schedulers.TimeScheduler(10, clock=lambda: now)
    now = 100.0 - jump
    assert not scheduler()
    now = 109.9
    assert not scheduler()
    now = 110.0
    assert scheduler()


@pytest.mark.parametrize("interval", [0, -1, float("nan"), datetime.timedelta(0)])
def test_intervals_must_be_positive(interval):
    with pytest.raises(ValueError, match="interval must be positive, got"):
        schedulers.TimeScheduler(interval)


@pytest.mark.parametrize("make", [schedulers.NStepScheduler, schedulers.NEpisodeScheduler])
def test_numbers_must_be_positive(make):
    with pytest.raises(ValueError, match=r"_interval must be positive, got 0"):
        make(0)


@pytest.mark.parametrize(
    "make", [schedulers.BernoulliStepScheduler, schedulers.BernoulliEpisodeScheduler]
)
@pytest.mark.parametrize("probability", [-0.1, 1.01, float("nan")])
def test_probabilities_lie_between_0_and_1(make, probability):
    with pytest.raises(ValueError, match=r"keep_probability must be in \[0, 1\], got"):
        make(probability)


@pytest.mark.parametrize("make", [schedulers.ListStepScheduler, schedulers.ListEpisodeScheduler])
def test_lists_hold_integers(make):
    with pytest.raises(ValueError, match="cannot be empty"):
        make([])
    with pytest.raises(TypeError, match="must be an array of int32 or int64, got one of float32"):
        make(np.array([1, 2], np.float32))
