"""Inputs between two steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlds_creator.worker.inputs import InputQueue
from rlds_creator.worker.states import RefusedError

KEYS = ["KeyA", "KeyB", "Button0"]


def event(name, value, key="", t=0.0):
    return {"t": t, "name": name, "value": value, "key": key}


def feed(queue, *events):
    return [queue.add(event(*e)) for e in events]


steps_of_events = st.lists(
    st.lists(
        st.tuples(st.sampled_from([*KEYS, "*"]), st.sampled_from([0.0, 0.5, 1.0])), max_size=8
    ),
    max_size=6,
)


@given(steps_of_events)
def test_no_press_is_lost_and_no_key_is_stuck(steps):
    queue = InputQueue()
    down: dict[str, float] = {}
    for events in steps:
        held, pressed = dict(down), []
        for name, value in events:
            if name == "*":
                down.clear()
            elif not value:
                down.pop(name, None)
            else:
                if name not in down:
                    pressed.append(name)
                down[name] = held[name] = value
        assert feed(queue, *events).count(True) == len(pressed)
        assert queue.is_held is bool(down)
        inputs = queue.take()
        assert inputs.held == held
        assert list(inputs.pressed) == pressed
        assert queue.take_events() == [[0.0, name, value, ""] for name, value in events]
    feed(queue, ("*", 0))
    assert queue.take().held == down
    assert not queue.take().held
    assert not queue.is_held


def test_step_of_a_press_omits_released_keys():
    queue = InputQueue()
    feed(queue, ("KeyA", 1), ("KeyC", 1))
    assert queue.take_now().held == {"KeyA": 1, "KeyC": 1}
    feed(queue, ("KeyA", 0), ("KeyB", 1), ("KeyB", 0), ("KeyB", 1), ("KeyB", 0))
    inputs = queue.take_now()
    assert inputs.held == {"KeyB": 1, "KeyC": 1}
    assert inputs.pressed == ("KeyB", "KeyB")


@given(st.lists(st.floats(-2, 2), max_size=30))
def test_an_axis_rests_near_its_middle(values):
    queue = InputQueue()
    was_out = 0.0
    for value in values:
        is_press = queue.add(event("Axis0", value))
        value = max(-1.0, min(value, 1.0))
        is_out = abs(value) >= (0.08 if was_out else 0.1)
        assert queue.is_held is is_out
        # A press is leaving the middle, or going to the other side.
        assert is_press is (is_out and not was_out * value > 0)
        was_out = value if is_out else 0.0
        queue.clear()
        assert queue.take().held == ({"Axis0": value} if is_out else {})


def test_pointer_position_is_no_press():
    queue = InputQueue()
    assert feed(queue, ("PointerX", 0.5), ("PointerY", 0.0)) == [False, False]
    assert not queue.is_held
    assert feed(queue, ("Pointer0", 1)) == [True]
    assert queue.take_now().held == {"PointerX": 0.5, "PointerY": 0.0, "Pointer0": 1}


def test_text_has_only_typed_characters():
    queue = InputQueue()
    feed(queue, ("ShiftLeft", 1, "Shift"), ("KeyA", 1, "A"), ("KeyA", 0, "A"), ("Digit1", 1, "é"))
    feed(queue, ("Enter", 1, "Enter"), ("Digit1", 1, "é"))
    assert queue.take().text == "Aé"
    assert queue.take().text == ""


def test_clear_forgets_inputs_of_a_pause():
    queue = InputQueue()
    feed(queue, ("KeyA", 1, "a"), ("KeyB", 1, "b"), ("KeyB", 0))
    queue.clear()
    inputs = queue.take()
    assert (inputs.held, inputs.pressed, inputs.text) == ({"KeyA": 1}, (), "")
    assert queue.take_events() == []


def test_too_many_keys_and_events_are_refused():
    queue = InputQueue()
    feed(queue, *((f"Key{i}", 1) for i in range(64)))
    with pytest.raises(RefusedError, match="held"):
        feed(queue, ("one too many", 1))
    queue = InputQueue()
    feed(queue, *(("KeyA", i % 2 == 0) for i in range(2000)))
    with pytest.raises(RefusedError, match="events in one step"):
        feed(queue, ("KeyA", 1))
    feed(queue, ("KeyA", 0))  # A release is always accepted.
    inputs = queue.take()
    assert (len(inputs.pressed), len(queue.take_events())) == (1000, 1000)
    assert queue.take().held == {}
