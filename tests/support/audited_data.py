"""Clean datasets of different character, and faults planted in their episodes.

They measure the detected faults and the false alarms of `rlds.auditing`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True)
class Episode:
    """Rows of an episode.

    Attributes:
      state: float64 of shape `[rows, elements]`.
      action: Likewise; row by row, the action that follows the state.
      task: The instruction.
      time: The time of each row, in seconds; None if it is not recorded.
    """

    state: np.ndarray
    action: np.ndarray
    task: str = "do it"
    time: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.state)

    def cut(self, rows: object) -> Episode:
        """Returns the episode with the selected rows only."""
        return dataclasses.replace(self, state=self.state[rows], action=self.action[rows])

    def changed(self, **columns: np.ndarray) -> Episode:
        """Returns the episode with replaced columns."""
        return dataclasses.replace(self, **columns)


def write(folder: Path, episodes: Sequence[Episode]) -> None:
    """Writes episodes to a file each."""
    folder.mkdir(exist_ok=True)
    for index, each in enumerate(episodes):
        arrays = {"observation/state": each.state, "action": each.action}
        arrays |= {} if each.time is None else {"timestamp": each.time}
        task = np.array(each.task)
        np.savez(folder / f"{index:04}.npz", **arrays, language_instruction=task)


# --- Clean data ----------------------------------------------------------------------------------


def _smooth(length: int) -> np.ndarray:
    """From 0 to 1 with the least jerk."""
    phase = np.linspace(0, 1, length)[:, None]
    return 10 * phase**3 - 15 * phase**4 + 6 * phase**5


def _reaches(
    rng: np.random.Generator, width: int, moves: int, pause: tuple[int, int]
) -> np.ndarray:
    position, pieces = rng.uniform(-1, 1, width), []
    for _ in range(moves):
        aim = rng.uniform(-1, 1, width)
        pieces.append(position + (aim - position) * _smooth(int(rng.integers(12, 28))))
        pieces.append(np.repeat(aim[None], rng.integers(*pause), axis=0))
        position = aim
    return np.concatenate(pieces)


def _follow(targets: np.ndarray, tracking: float) -> np.ndarray:
    state = np.empty_like(targets)
    state[0] = targets[0]
    for row in range(1, len(targets)):
        state[row] = state[row - 1] + tracking * (targets[row - 1] - state[row - 1])
    return state


def _grips(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """A command of 0 and 1 with two changes, and the width that follows."""
    first = int(rng.integers(rows // 6, rows // 2))
    second = int(rng.integers(first + 4, max(rows - rows // 8, first + 5)))
    command = np.zeros(rows)
    command[first:second] = 1
    width = np.zeros(rows)
    for row in range(1, rows):
        width[row] = width[row - 1] + np.clip(command[row - 1] - width[row - 1], -0.3, 0.3)
    return command[:, None], 0.08 * width[:, None]


def _arm(rng: np.random.Generator) -> Episode:
    """Absolute targets of joints, with pauses, and a gripper."""
    targets = _reaches(rng, 6, int(rng.integers(3, 6)), (0, 8))
    command, width = _grips(rng, len(targets))
    state = np.hstack([_follow(targets, 0.7), width])
    noise = 0.003 * state.std(0) * rng.normal(size=state.shape)
    noisy = targets + 0.01 * rng.normal(size=targets.shape)
    return Episode(state + noise, np.hstack([noisy, command]), str(rng.choice(["pick", "place"])))


def _teleoperation(rng: np.random.Generator) -> Episode:
    """A hand that trembles, and rests before and after; encoders have steps."""
    targets = _reaches(rng, 6, int(rng.integers(3, 7)), (3, 20))
    tremble = np.zeros_like(targets)
    for row in range(1, len(targets)):
        tremble[row] = 0.8 * tremble[row - 1] + 0.004 * rng.normal(size=6)
    targets = targets + tremble
    before, after = rng.integers(2, 25, 2)
    targets = np.concatenate([np.repeat(targets[:1], before, 0), targets])
    targets = np.concatenate([targets, np.repeat(targets[-1:], after, 0)])
    command, width = _grips(rng, len(targets))
    state = np.hstack([_follow(targets, 0.5), width])
    state = state + 0.002 * state.std(0) * rng.normal(size=state.shape)
    return Episode(np.round(state / 0.0015) * 0.0015, np.hstack([targets, command]))


def _gait(rng: np.random.Generator) -> Episode:
    """Legs that swing; actions are torques at their limits now and then."""
    rows = int(rng.integers(150, 250))
    phase = rng.uniform(0, 6.3) + np.cumsum(rng.uniform(0.25, 0.4) + 0.02 * rng.normal(size=rows))
    shift, size = np.arange(6), 0.4 + 0.3 * rng.random(6)
    angles = size * np.sin(phase[:, None] + shift) + 0.1 * np.sin(2 * phase[:, None] + 2 * shift)
    angles += 0.01 * rng.normal(size=angles.shape)
    speeds = np.gradient(angles, axis=0)
    torques = np.clip(3 * np.roll(speeds, -2, axis=0) + 0.15 * rng.normal(size=angles.shape), -1, 1)
    return Episode(np.hstack([angles, speeds]), torques)


def _noisy_expert(rng: np.random.Generator) -> Episode:
    """Changes of a hand with much noise, cut at their limits."""
    state, action, position = [], [], rng.uniform(-1, 1, 3)
    for _ in range(int(rng.integers(2, 5))):
        aim = rng.uniform(-1, 1, 3)
        while np.linalg.norm(aim - position) > 0.08:
            push = np.clip(1.5 * (aim - position) / 0.4 + 0.4 * rng.normal(size=3), -1, 1)
            state.append(position + 0.001 * rng.normal(size=3))
            action.append(push)
            position = position + 0.05 * push
    rows, (command, width) = len(state), _grips(rng, len(state))
    assert rows
    return Episode(np.hstack([state, width]), np.hstack([action, command]))


def _buttons(rng: np.random.Generator) -> Episode:
    """A game with six buttons: a figure is at a limit, or rests, now and then."""
    rows = int(rng.integers(120, 400))
    moves = np.array([[0, 0], [0, 1], [1, 0], [-1, 0], [0, -1], [0, 0]])
    button = np.repeat(rng.integers(0, 6, rows // 4 + 1), 4)[:rows]
    position, score, state = np.array([20.0, 20.0]), 0, []
    for row in range(rows):
        state.append([*position, score, (row // 8) % 4])
        position = np.clip(position + moves[button[row]], 0, 40)
        score += int(rng.random() < 0.05)
    return Episode(np.array(state, float), button[:, None].astype(float))


def _table(rng: np.random.Generator) -> Episode:
    """A walk on a grid of 8 x 8 to a corner."""
    moves, position = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]]), rng.integers(0, 8, 2)
    state, action = [], []
    while position.sum() < 14:
        state.append(position)
        action.append(rng.choice(4, p=[0.4, 0.4, 0.1, 0.1]))
        position = np.clip(position + moves[action[-1]], 0, 7)
    if len(state) < 6:
        return _table(rng)
    return Episode(np.array(state, float), np.array(action, float)[:, None])


def _base(rng: np.random.Generator) -> Episode:
    """Velocities of a base; its heading wraps."""
    rows = int(rng.integers(80, 200))
    knots = rng.normal(size=(rows // 10 + 3, 2)) * [0.25, 0.3] + [0.4, 0]
    times = np.arange(rows) / 10
    command = np.stack([np.interp(times, np.arange(len(knots)), knot) for knot in knots.T], 1)
    pose, state = np.array([0.0, 0.0, rng.uniform(-3, 3)]), []
    for speed, turn in command:
        state.append([pose[0], pose[1], (pose[2] + np.pi) % (2 * np.pi) - np.pi])
        pose = pose + 0.1 * np.array([speed * np.cos(pose[2]), speed * np.sin(pose[2]), 3 * turn])
    noisy = np.array(state) + [0.002, 0.002, 0.003] * rng.normal(size=(rows, 3))
    return Episode(noisy, command + 0.01 * rng.normal(size=command.shape))


def _insertion(rng: np.random.Generator) -> Episode:
    """Small changes, long contacts in which little moves, and a force that is felt."""
    path = _reaches(rng, 3, int(rng.integers(2, 4)), (10, 30)) * 0.1
    path = path + np.cumsum(0.0002 * rng.normal(size=path.shape), axis=0)
    change = np.diff(path, axis=0)
    force = np.convolve(np.abs(rng.normal(size=len(path))), np.ones(5) / 5, "same")
    state = np.hstack([np.round(path / 0.0005) * 0.0005, force[:, None]])
    return Episode(state[:-1], 50 * change + 0.02 * rng.normal(size=change.shape))


DATASETS: Mapping[str, Callable[[np.random.Generator], Episode]] = {
    "arm": _arm,
    "teleoperation": _teleoperation,
    "gait": _gait,
    "noisy expert": _noisy_expert,
    "buttons": _buttons,
    "table": _table,
    "base": _base,
    "insertion": _insertion,
}


def make_episodes(name: str, seed: int, episodes: int = 60) -> list[Episode]:
    """Returns episodes of a clean dataset."""
    rng = np.random.default_rng([seed, *name.encode()])
    return [DATASETS[name](rng) for _ in range(episodes)]


# --- Faults --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault to plant in an episode.

    Attributes:
      plant: Returns the faulty episode, from the episode and all intact ones of the dataset.
      checks: The names of the checks that name this cause.
      exceptions: The datasets in which the change is no fault, with the reasons.
    """

    plant: Callable[[Episode, list[Episode], np.random.Generator], Episode]
    checks: tuple[str, ...]
    exceptions: Mapping[str, str] = dataclasses.field(default_factory=dict)


_DISCRETE = dict.fromkeys(("buttons", "table"), "values are indices of buttons and cells")
_NO_RELATION = {
    **_DISCRETE,
    "gait": "the effect of a torque depends on the state",
    "base": "positions depend on the heading, too",
}


def _usual_step(intact: list[Episode]) -> np.ndarray:
    """The median over episodes of the largest second difference of each element of the state."""
    return np.median([np.abs(np.diff(it.state, 2, axis=0)).max(0) for it in intact], axis=0)


def _roughness(intact: list[Episode]) -> np.ndarray:
    """The median over episodes of the mean second difference of each element of the state."""
    return np.median([np.abs(np.diff(it.state, 2, axis=0)).mean(0) for it in intact], axis=0)


def _noise(intact: list[Episode]) -> np.ndarray:
    """The deviation of the noise of each element, from the smallest second differences."""
    second = np.concatenate([np.abs(np.diff(it.state, 2, axis=0)) for it in intact])
    steps = np.concatenate([np.abs(np.diff(it.state, axis=0)) for it in intact])
    least = [min(column[column > 0], default=0) for column in steps.T]
    return np.maximum(np.quantile(second, 0.1, axis=0) / 0.31, 0.3 * np.array(least))


def _moving(episode: Episode, rng: np.random.Generator, rows: int = 1) -> int:
    """A row in the middle after which the state moves more than usual."""
    speed = np.abs(np.diff(episode.state, axis=0)) / (np.ptp(episode.state, axis=0) + 1e-9)
    total = np.convolve(speed.sum(1), np.ones(rows), "valid")
    inner = np.arange(2, max(len(total) - 2, 3))
    best = inner[np.argsort(total[inner])[len(inner) // 2 :]]
    return int(rng.choice(best))


def _widest(episode: Episode) -> int:
    return int(np.argmax(np.ptp(episode.state, axis=0) > 0.3 * np.ptp(episode.state, axis=0).max()))


def _not_finite(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    state = it.state.copy()
    state[rng.integers(len(it)), rng.integers(state.shape[1])] = np.nan
    return it.changed(state=state)


def _short(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return it.cut(slice(max(3, int(np.quantile([len(each) for each in intact], 0.02) / 4))))


def _long(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    longest = max(len(each) for each in intact)
    while len(it) < 3 * longest:
        addition = intact[rng.integers(len(intact))]
        state, action = (
            np.concatenate(c) for c in ((it.state, addition.state), (it.action, addition.action))
        )
        it = it.changed(state=state, action=action)
    return it


def _zero_actions(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return it.changed(action=np.zeros_like(it.action))


def _dead(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    state = it.state.copy()
    state[:, 0] = state[0, 0]
    return it.changed(state=state)


def _inert_gripper(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    state, action = it.state.copy(), it.action.copy()
    state[:, -1], action[:, -1] = state[0, -1], action[0, -1]
    return it.changed(state=state, action=action)


def _saturated(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    state = it.state.copy()
    state[:, 0] = np.minimum(state[:, 0], np.quantile(state[:, 0], 0.7))
    return it.changed(state=state)


def _spike(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    state, row = it.state.copy(), int(rng.integers(2, len(it) - 2))
    state[row, 0] += 4 * _usual_step(intact)[0] * rng.choice([-1, 1])
    return it.changed(state=state)


def _jitter(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return it.changed(state=it.state + 2 * _roughness(intact) * rng.normal(size=it.state.shape))


def _frozen(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    state, row = it.state.copy(), _moving(it, rng, 8)
    state[row : row + 8] = state[row]
    return it.changed(state=state)


def _idle(it: Episode, rng: np.random.Generator, intact: list[Episode], noise: float) -> Episode:
    num_rows = max(40, int(0.4 * np.median([len(each) for each in intact])))
    still = np.repeat(it.state[:1], num_rows, axis=0)
    still = still + noise * _noise(intact) * rng.normal(size=still.shape)
    action = np.repeat(it.action[:1], num_rows, axis=0)
    return it.changed(
        state=np.concatenate([still, it.state]), action=np.concatenate([action, it.action])
    )


def _idle_exact(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return _idle(it, rng, intact, 0)


def _idle_noisy(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return _idle(it, rng, intact, 1.0)


def _idle_end(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    turned = it.cut(slice(None, None, -1))
    return _idle(turned, rng, intact, 1.0).cut(slice(None, None, -1))


def _lag(rows: int) -> Callable[..., Episode]:
    def plant(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
        return it.changed(state=it.state[rows:], action=it.action[:-rows])

    return plant


def _reversed(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    action = it.action.copy()
    action[:, 0] *= -1
    return it.changed(action=action)


def _degrees(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return it.changed(state=np.rad2deg(it.state))


def _scaled_action(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return it.changed(action=it.action * 10)


def _swapped(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    action = it.action.copy()
    action[:, [0, 1]] = action[:, [1, 0]]
    return it.changed(action=action)


def _dropped(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    row = _moving(it, rng, 10)
    return it.cut(np.r_[:row, min(row + 10, len(it) - 2) : len(it)])


def _repeated(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    rows = np.sort(np.r_[: len(it), rng.choice(len(it), len(it) // 8 + 1, replace=False)])
    return it.cut(rows)


def _duplicate(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return next(each for each in intact if each is not it)


def _near_duplicate(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    copy = next(each for each in intact if each is not it)
    return copy.changed(state=copy.state + 0.5 * _noise(intact) * rng.normal(size=copy.state.shape))


def _offset(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    state = it.state.copy()
    state[:, 0] += 2 * np.ptp(np.concatenate([each.state[:, 0] for each in intact]))
    return it.changed(state=state)


def _no_task(it: Episode, intact: list[Episode], rng: np.random.Generator) -> Episode:
    return dataclasses.replace(it, task="")


_NO_GRIPPER = dict.fromkeys(("gait", "buttons", "table", "base", "insertion"), "it has no gripper")
_SHORT_ROWS = {"table": "an episode has some 20 rows"}
FAULTS: Mapping[str, Fault] = {
    "not finite": Fault(_not_finite, ("not finite",)),
    "short": Fault(_short, ("short",), {"table": "a walk may be as short"}),
    "long": Fault(_long, ("long",)),
    "no actions": Fault(_zero_actions, ("dead",)),
    "dead state": Fault(_dead, ("dead",), {"table": "a walk may be along an edge"}),
    "inert gripper": Fault(_inert_gripper, ("dead",), _NO_GRIPPER),
    "saturated": Fault(_saturated, ("saturated",), _DISCRETE),
    "spike": Fault(_spike, ("spike",), _DISCRETE),
    "jitter": Fault(_jitter, ("jitter",), _DISCRETE),
    "frozen": Fault(_frozen, ("frozen",), _DISCRETE),
    "idle at first": Fault(_idle_exact, ("idle",), _SHORT_ROWS),
    "idle, with noise": Fault(_idle_noisy, ("idle",), _DISCRETE),
    "idle at last": Fault(_idle_end, ("idle",), _DISCRETE),
    "one row late": Fault(_lag(1), ("lag",), _NO_RELATION),
    "two rows late": Fault(_lag(2), ("lag",), _NO_RELATION),
    "three rows late": Fault(_lag(3), ("lag",), _NO_RELATION),
    "sign": Fault(_reversed, ("sign",), _NO_RELATION),
    "degrees": Fault(_degrees, ("scale",)),
    "action scaled": Fault(_scaled_action, ("scale", "gain"), _DISCRETE),
    "actions swapped": Fault(_swapped, ("relation", "sign"), _NO_RELATION),
    "rows dropped": Fault(_dropped, ("gap", "spike"), {**_DISCRETE, "gait": "steps are as large"}),
    "rows repeated": Fault(_repeated, ("repeated",), _DISCRETE),
    "duplicate": Fault(_duplicate, ("duplicate",)),
    "near duplicate": Fault(_near_duplicate, ("duplicate",), _DISCRETE),
    "offset": Fault(_offset, ("offset",)),
    "no task": Fault(_no_task, ("task",)),
}


@dataclasses.dataclass(frozen=True)
class Planted:
    """A dataset in which some episodes are bad.

    Attributes:
      episodes: All episodes.
      faults: The names of the faults, by the indices of episodes.
    """

    episodes: list[Episode]
    faults: Mapping[int, str]


def with_times(episodes: list[Episode], seed: int) -> list[Episode]:
    """Episodes with the times of their rows, 20 a second, which vary a little."""
    rng = np.random.default_rng([seed, 3])
    steps = (0.05 + 0.002 * rng.normal(size=len(it)) for it in episodes)
    return [it.changed(time=1.7e9 + each.cumsum()) for it, each in zip(episodes, steps)]


def _time(it: Episode, share: float, seconds: float) -> Episode:
    """Returns the episode with a gap of time at a share of its rows."""
    return it.changed(time=it.time + seconds * (np.arange(len(it)) >= share * len(it)))


TIME_FAULTS: Mapping[str, Fault] = {
    "clock set back": Fault(lambda it, intact, rng: _time(it, 0.6, -0.5), ("time order",)),
    "times twice": Fault(
        lambda it, intact, rng: it.changed(time=it.time[np.arange(len(it)) // 2 * 2]),
        ("time order",),
    ),
    "0.15 s without rows": Fault(lambda it, intact, rng: _time(it, 0.4, 0.15), ("time gap",)),
    "10 % slower": Fault(
        lambda it, intact, rng: it.changed(time=it.time[0] + 1.1 * (it.time - it.time[0])),
        ("rate",),
    ),
}


def plant_each(name: str, seed: int, episodes: int = 80) -> Planted:
    """Returns a dataset with each fault once, in at most a third of its episodes."""
    kinds = [kind for kind, fault in FAULTS.items() if name not in fault.exceptions]
    return plant(make_episodes(name, seed, episodes), kinds, seed)


def plant(
    clean: list[Episode], kinds: list[str], seed: int, faults: Mapping[str, Fault] = FAULTS
) -> Planted:
    """Plants each fault in one of the clean episodes."""
    rng = np.random.default_rng([seed, 1])
    indices = rng.choice(np.arange(1, len(clean)), len(kinds), replace=False)
    intact = [each for index, each in enumerate(clean) if index not in indices]
    planted = list(clean)
    for index, kind in zip(indices.tolist(), kinds):
        planted[index] = faults[kind].plant(clean[index], intact, rng)
    return Planted(planted, dict(zip(indices.tolist(), kinds)))
