"""Demonstrations of three skills in four tasks, to measure the scores of audits on.

All of them succeed. Less skilled people tremble more, pause, correct themselves, and take detours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from audited_data import Episode

RATE = 20.0
SKILLS = {"expert": 0.0, "practised": 0.5, "beginner": 1.0}
_MAX_ROWS = 600


def _tremble(rng: np.random.Generator, clumsy: float, width: int) -> np.ndarray:
    return (0.05 + 0.3 * clumsy) * rng.normal(size=width)


def _mover(rng: np.random.Generator, clumsy: float) -> Episode:
    """A point in the plane that moves around a disc to a goal; actions are velocities."""
    position, goal = np.array([-1.0, 0]) + 0.1 * rng.normal(size=2), np.array([1.0, 0])
    side, states, actions = rng.choice([-1, 1]), [], []
    if rng.random() < 0.4 * clumsy:  # A detour on the wrong side first.
        stops = [np.array([-0.4, 1.1 * -side]), np.array([0, 0.65 * side]), goal]
    else:
        stops = [np.array([0, 0.65 * side]), goal]
    pause = 0
    while stops and len(states) < _MAX_ROWS:
        aim = stops[0] - position
        if np.linalg.norm(aim) < 0.12:
            stops.pop(0)
            pause = int(rng.integers(0, 1 + int(16 * clumsy)))
            continue
        push = 1.2 * aim / max(np.linalg.norm(aim), 0.4) + _tremble(rng, clumsy, 2)
        push = push * (pause <= 0)
        pause -= 1
        states.append(np.concatenate([position, goal]))
        actions.append(push)
        position = position + push / RATE
    return Episode(np.array(states), np.array(actions))


def _two_joints(rng: np.random.Generator, clumsy: float) -> Episode:
    """An arm of two joints whose hand goes to a point; actions are changes of joints."""
    joints = rng.uniform([-0.5, 0], [1.5, 2])
    goal = np.array([rng.uniform(0.4, 1.2), rng.uniform(0.4, 1.2)])
    states, actions = [], []
    while len(states) < _MAX_ROWS:
        a, b = joints[0], joints.sum()
        hand = np.array([np.cos(a) + np.cos(b), np.sin(a) + np.sin(b)])
        if np.linalg.norm(goal - hand) < 0.06:
            break
        jacobian = np.array([[-hand[1], -np.sin(b)], [hand[0], np.cos(b)]])
        direction = jacobian.T @ (goal - hand)
        change = 0.08 * direction / max(np.linalg.norm(direction), 0.5)
        change = change + 0.08 * _tremble(rng, clumsy, 2)
        if rng.random() < 0.08 * clumsy:
            change = -change  # A correction.
        states.append(np.concatenate([joints, goal]))
        actions.append(change)
        joints = joints + change
    return Episode(np.array(states), np.array(actions))


def _mass(rng: np.random.Generator, clumsy: float) -> Episode:
    """A mass in the plane that is brought to rest at a point; actions are forces."""
    position, velocity, side = rng.uniform(-1, 1, 2), np.zeros(2), rng.uniform(0, 2 * np.pi)
    goal = position + rng.uniform(0.4, 1.4) * np.array([np.cos(side), np.sin(side)])
    damping = 5 * (1 - 0.6 * clumsy * rng.random())  # Low damping overshoots.
    pause, states, actions = 0, [], []
    while len(states) < _MAX_ROWS:
        if np.linalg.norm(goal - position) < 0.08 and np.linalg.norm(velocity) < 0.15:
            break
        if rng.random() < 0.05 * clumsy:
            pause = int(rng.integers(1, 12))
        desired_force = 6 * (goal - position) - damping * velocity
        force = desired_force * min(1, 4 / np.linalg.norm(desired_force)) * (pause <= 0)
        force = force + 4 * _tremble(rng, clumsy, 2)
        pause -= 1
        states.append(np.concatenate([position, velocity, goal]))
        actions.append(force)
        velocity = velocity + force / RATE
        position = position + velocity / RATE
    return Episode(np.array(states), np.array(actions))


def _carry(rng: np.random.Generator, clumsy: float) -> Episode:
    """A hand that grasps an item and carries it to a destination: targets, and a gripper."""
    item, destination = rng.uniform(-0.5, 0.5, 3), rng.uniform(-0.5, 0.5, 3)
    position, closed, states, actions = rng.uniform(-0.5, 0.5, 3), 0.0, [], []
    above = np.array([0, 0, 0.2])
    aims = [(item + above, 0), (item, 0), (item, 1), (destination + above, 1), (destination, 0)]
    if rng.random() < 0.5 * clumsy:  # It misses the item first.
        aims[1:1] = [(item + 0.15 * rng.normal(size=3), 0), (item + above, 0)]
    for aim, grip in aims:
        start, wait = position, int(rng.integers(0, 1 + int(10 * clumsy)))
        length = int((14 + 10 * clumsy * rng.random()) * (0.6 + np.linalg.norm(aim - start)))
        phase = np.linspace(0, 1, max(length, 6))[:, None]
        path = start + (aim - start) * (10 * phase**3 - 15 * phase**4 + 6 * phase**5)
        for target in np.concatenate([path, np.repeat(path[-1:], wait, axis=0)]):
            command = target + 0.04 * _tremble(rng, clumsy, 3)
            states.append(np.concatenate([position, [closed], item, destination]))
            actions.append(np.concatenate([command, [grip]]))
            position = position + 0.6 * (command - position)
            closed += np.clip(grip - closed, -0.3, 0.3)
    return Episode(np.array(states), np.array(actions))


TASKS: Mapping[str, Callable[[np.random.Generator, float], Episode]] = {
    "mover": _mover,
    "two joints": _two_joints,
    "mass": _mass,
    "carry": _carry,
}


def make_demonstrations(task: str, seed: int, count: int = 20) -> dict[str, list[Episode]]:
    """Returns demonstrations of a task, by skill."""
    rng = np.random.default_rng([seed, *task.encode()])
    return {
        skill: [TASKS[task](rng, clumsy) for _ in range(count)] for skill, clumsy in SKILLS.items()
    }
