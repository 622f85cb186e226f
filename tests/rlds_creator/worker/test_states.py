"""The states of a play."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlds_creator.worker.states import Expiry, Play, State, WrongStateError

ACTIONS = {
    "start": lambda play, now: play.start(now),
    "resume": lambda play, now: play.resume(now),
    "pause": lambda play, now: play.pause(now, "network"),
    "end": lambda play, now: play.end(now, "user"),
    "confirm": lambda play, now: play.check_confirm(),
    "retry": lambda play, now: play.check_retry(),
}

# What each action leads to from each state; what is not here is refused.
LEADS_TO = {
    State.NEW: {"start": State.READY, "pause": State.NEW},
    State.READY: {"resume": State.RUNNING, "pause": State.READY},
    State.RUNNING: {
        "resume": State.RUNNING,
        "pause": State.PAUSED,
        "end": State.ENDED,
        "retry": State.RUNNING,
    },
    State.PAUSED: {
        "resume": State.RUNNING,
        "pause": State.PAUSED,
        "end": State.ENDED,
        "retry": State.PAUSED,
    },
    State.ENDED: {
        "start": State.READY,
        "pause": State.ENDED,
        "confirm": State.ENDED,
        "retry": State.ENDED,
    },
    State.CLOSED: {"pause": State.CLOSED},
}


@given(st.lists(st.sampled_from([*ACTIONS, "expire"]), max_size=30))
def test_what_does_not_fit_the_state_has_no_effect(actions):
    play = Play(is_async=False, expiry=Expiry(paused=1e6), now=0)
    played = 0
    for now, action in enumerate(actions, 1):
        played += play.state is State.RUNNING
        state, why = play.state, play.why
        if action == "expire":
            is_alive = state not in (State.NEW, State.CLOSED)
            assert play.tick(1e9) is is_alive
            if is_alive:
                assert (play.state, play.why) == (State.CLOSED, "expired")
                return
        elif (expected := LEADS_TO[state].get(action)) is None:
            with pytest.raises(WrongStateError, match="episode"):
                ACTIONS[action](play, now)
            assert (play.state, play.why) == (state, why)
        else:
            ACTIONS[action](play, now)
            assert play.state is expected
        if action == "start" and play.state is State.READY:
            played = 0 if state in (State.NEW, State.ENDED) else played
        if play.state is not State.RUNNING:
            assert play.played_seconds == played


@pytest.mark.parametrize("is_async", [False, True])
def test_a_player_who_does_nothing_is_away(is_async):
    play = Play(is_async=is_async, expiry=Expiry(idle=30, paused=900), now=0)
    play.start(0)
    play.resume(10)
    play.touch(20, is_held=False)
    if is_async:
        assert not play.tick(49.9)
        assert play.deadline(49.9) == 50
        assert play.tick(50)
        assert (play.state, play.why) == (State.PAUSED, "idle")
        assert not play.tick(949.9)
        assert play.tick(950)
    else:  # It waits for them anyway.
        assert not play.tick(919.9)
        assert play.tick(920)
    assert (play.state, play.why) == (State.CLOSED, "expired")


def test_who_holds_a_key_is_there():
    play = Play(is_async=True, expiry=Expiry(idle=30), now=0)
    play.start(0)
    play.resume(0)
    play.touch(1, is_held=True)
    assert not any(play.tick(now) for now in range(1, 1000, 10))
    play.touch(1000, is_held=False)
    assert play.tick(1030)


def test_what_happens_in_a_pause_puts_off_the_end():
    play = Play(is_async=True, expiry=Expiry(idle=30, paused=900), now=0)
    play.start(0)
    play.touch(800, is_held=True)  # A key that got stuck does not hold it for ever.
    assert not play.tick(1699)
    assert play.tick(1700)
