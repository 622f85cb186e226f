"""The states of a play."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlds_creator.worker.states import Expiry, PlayStates, RefusedError, State

ACTIONS = {
    "start": lambda play, now: play.start(now),
    "resume": lambda play, now: play.resume(now),
    "pause": lambda play, now: play.pause(now, "network"),
    "end": lambda play, now: play.end(now, "user"),
    "confirm": lambda play, now: play.check_confirm(),
    "retry": lambda play, now: play.check_retry(),
}

# The next state for each state and action; other actions are refused.
NEXT_STATES = {
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
def test_actions_that_a_state_refuses_have_no_effect(actions):
    play = PlayStates(is_async=False, expiry=Expiry(paused=1e6), now=0)
    played = 0
    for now, action in enumerate(actions, 1):
        played += play.state is State.RUNNING
        state, reason = play.state, play.reason
        if action == "expire":
            is_alive = state not in (State.NEW, State.CLOSED)
            assert play.tick(1e9) is is_alive
            if is_alive:
                assert (play.state, play.reason) == (State.CLOSED, "expired")
                return
        elif (expected := NEXT_STATES[state].get(action)) is None:
            with pytest.raises(RefusedError, match="episode"):
                ACTIONS[action](play, now)
            assert (play.state, play.reason) == (state, reason)
        else:
            ACTIONS[action](play, now)
            assert play.state is expected
        if action == "start" and play.state is State.READY:
            played = 0 if state in (State.NEW, State.ENDED) else played
        if play.state is not State.RUNNING:
            assert play.played_seconds == played
