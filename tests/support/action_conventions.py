"""Trajectories with actions of all conventions, to measure `rlds.auditing.meaning` on.

An arm follows smooth reaches with pauses. The seed draws its response (a share of each command,
some rows later), the noise of states and actions, and the order of state and action in a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

DEGREES = 180 / np.pi


@dataclasses.dataclass(frozen=True)
class Truth:
    """The true meaning of an element of an action.

    Attributes:
      kinds: The right answers; with "unknown" among them, the data do not tell the meaning.
      states: The right elements of the state.
      scale: The commanded scale; None if every scale is right.
    """

    kinds: tuple[str, ...]
    states: tuple[int, ...] = ()
    scale: float | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """Episodes of one convention.

    Attributes:
      name: The convention.
      episodes: Actions and states.
      truths: The meaning of each element.
    """

    name: str
    episodes: Sequence[tuple[np.ndarray, np.ndarray]]
    truths: Sequence[Truth]


UNKNOWN = Truth(("unknown", "binary", "constant"))


@dataclasses.dataclass
class _World:
    """The parameters that vary with the seed."""

    rng: np.random.Generator
    state_noise: float
    action_noise: float

    def __post_init__(self) -> None:
        rng = self.rng
        self.tracking = float(rng.choice([1.0, 0.7, 0.4]))
        self.delay = int(rng.integers(0, 3))
        self.rate = float(rng.choice([5, 10, 20, 30]))
        self.leads = bool(rng.random() < 0.5)  # Whether rows begin with the action.
        self.first_is_zero = bool(rng.random() < 0.3)
        self.last = str(rng.choice(["as is", "zero", "repeated"]))

    def reaches(self, rows: int, width: int, size: float = 1.0) -> np.ndarray:
        """Smooth targets from one point to the next, with pauses: `[rows, width]`."""
        rng = self.rng
        points, row = [rng.uniform(-size, size, width)], 0
        out = np.empty((rows, width))
        while row < rows:
            aim = rng.uniform(-size, size, width)
            length = int(rng.integers(8, 22))
            phase = np.linspace(0, 1, length)[:, None]
            smooth = 10 * phase**3 - 15 * phase**4 + 6 * phase**5
            piece = points[-1] + (aim - points[-1]) * smooth
            pause = np.repeat(piece[-1:], int(rng.integers(0, 6)), axis=0)
            piece = np.concatenate([piece, pause])[: rows - row]
            out[row : row + len(piece)] = piece
            row += len(piece)
            points.append(aim)
        return out

    def follow(self, targets: np.ndarray) -> np.ndarray:
        """The positions of an arm with a target in each row: one row more than targets."""
        position = np.empty((len(targets) + 1, targets.shape[1]))
        position[0] = targets[0]
        for row in range(len(targets)):
            target = targets[max(row - self.delay, 0)]
            position[row + 1] = position[row] + self.tracking * (target - position[row])
        return position

    def move(self, start: np.ndarray, changes: np.ndarray) -> np.ndarray:
        """The positions of an arm with a change in each row: one row more than changes."""
        done = np.zeros_like(changes)
        done[self.delay :] = changes[: len(changes) - self.delay]
        return np.concatenate([start[None], start + np.cumsum(self.tracking * done, axis=0)])

    def commanded_changes(self, targets: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
        """Changes that bring an arm to targets, and its positions; each corrects the last error."""
        position = np.empty((len(targets) + 1, targets.shape[1]))
        position[0] = targets[0]
        changes = np.zeros_like(targets)
        for row, target in enumerate(targets):
            changes[row] = np.clip(0.8 * (target - position[row]), -limit, limit)
            command = changes[row - self.delay] if row >= self.delay else 0.0
            position[row + 1] = position[row] + self.tracking * command
        return changes, position

    def rows(self, actions: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of actions and states, with noise; `states` has one row more than `actions`."""
        rng = self.rng
        spread = actions.std(0)
        actions = actions + self.action_noise * spread * rng.normal(size=actions.shape)
        states = states + self.state_noise * states.std(0) * rng.normal(size=states.shape)
        states = states[:-1] if self.leads else states[1:]
        actions = actions.copy()
        if self.first_is_zero:
            actions[0] = 0
        if self.last != "as is":
            actions[-1] = 0 if self.last == "zero" else actions[-2]
        return actions, states

    def gripper(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Commands of 0 and 1, and the width that follows: `[rows]` and `[rows + 1]`."""
        rng = self.rng
        command = np.zeros(rows)
        begin, value = 0, float(rng.integers(0, 2))
        while begin < rows:
            length = int(rng.integers(8, 20))
            command[begin : begin + length] = value
            begin, value = begin + length, 1 - value
        width = np.empty(rows + 1)
        width[0] = command[0]
        for row in range(rows):
            width[row + 1] = width[row] + np.clip(command[row] - width[row], -0.4, 0.4)
        return command, 0.08 * width


def _episodes(world: _World, make: Callable[[int], tuple[np.ndarray, np.ndarray]], count: int):
    return [world.rows(*make(int(world.rng.integers(40, 90)))) for _ in range(count)]


def _joints(width: int, form: Callable[[np.ndarray], np.ndarray], scale: float, kind: str):
    def convention(world: _World, count: int) -> Case:
        def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
            targets = world.reaches(rows, width)
            return form(targets), world.follow(targets)

        truths = [Truth((kind,), (element,), scale) for element in range(width)]
        return Case("", _episodes(world, make, count), truths)

    return convention


def _deltas(width: int, factor: float, limit: float = 1.0, size: float = 1.0):
    def convention(world: _World, count: int) -> Case:
        def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
            changes, position = world.commanded_changes(world.reaches(rows, width, size), limit)
            return changes * factor, position

        truths = [Truth(("delta",), (element,), factor) for element in range(width)]
        return Case("", _episodes(world, make, count), truths)

    return convention


def _velocities(with_rates: bool):
    def convention(world: _World, count: int) -> Case:
        width = 6

        def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
            changes, position = world.commanded_changes(world.reaches(rows, width), 1.0)
            if not with_rates:
                return changes * world.rate, position
            moved = np.diff(position, axis=0, prepend=position[:1]) * world.rate
            return changes * world.rate, np.concatenate([position, moved], axis=1)

        truths = [
            # A change and a velocity differ by a factor.
            Truth(("velocity", "delta"), (it + width, it))
            if with_rates
            else Truth(("delta",), (it,))
            for it in range(width)
        ]
        return Case("", _episodes(world, make, count), truths)

    return convention


def _rotation_vector(quaternion: np.ndarray) -> np.ndarray:
    quaternion = quaternion * np.where(quaternion[..., :1] < 0, -1, 1)
    norm = np.linalg.norm(quaternion[..., 1:], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(norm, quaternion[..., :1])
    return quaternion[..., 1:] * np.where(norm > 1e-9, angle / np.maximum(norm, 1e-9), 2.0)


def _quaternion(vector: np.ndarray) -> np.ndarray:
    angle = np.linalg.norm(vector, axis=-1, keepdims=True)
    axis = vector / np.maximum(angle, 1e-9)
    return np.concatenate([np.cos(angle / 2), axis * np.sin(angle / 2)], axis=-1)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    a, b, c, d = np.moveaxis(left, -1, 0)
    e, f, g, h = np.moveaxis(right, -1, 0)
    return np.stack(
        [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ],
        axis=-1,
    )


def _poses(order: str, frame: str):
    """Deltas of a position, and rotation vectors; the state has a quaternion."""

    def convention(world: _World, count: int) -> Case:
        def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
            changes, position = world.commanded_changes(world.reaches(rows, 3, 0.3), 0.05)
            turns, _ = world.commanded_changes(world.reaches(rows, 3, 0.8), 0.15)
            delayed_turns = np.zeros_like(turns)
            delayed_turns[world.delay :] = turns[: rows - world.delay]
            rotation = _quaternion(world.rng.normal(size=3))
            rotations = [rotation]
            for turn in world.tracking * delayed_turns:
                step = _quaternion(turn)
                rotation = _product(step, rotation) if frame == "base" else _product(rotation, step)
                rotations.append(rotation)
            quaternions = np.array(rotations)
            if order == "xyzw":
                quaternions = quaternions[:, [1, 2, 3, 0]]
            return np.concatenate([changes, turns], 1), np.concatenate([position, quaternions], 1)

        truths = [Truth(("delta",), (it,), 1.0) for it in range(3)]
        truths += [Truth(("delta",), (3, 4, 5, 6), 1.0)] * 3
        return Case("", _episodes(world, make, count), truths)

    return convention


def _absolute_quaternion(world: _World, count: int) -> Case:
    def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
        targets = world.reaches(rows, 3, 0.4)
        turned = _quaternion(world.reaches(rows, 3, 0.8))
        state = np.concatenate([turned[:1], turned])
        return np.concatenate([targets, turned], 1), np.concatenate(
            [world.follow(targets), state], 1
        )

    return Case(
        "", _episodes(world, make, count), [Truth(("absolute",), (it,), 1.0) for it in range(7)]
    )


def _waypoints(world: _World, count: int) -> Case:
    def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
        targets = world.reaches(rows + 4, 6)
        return targets[4:], world.follow(targets)[: rows + 1]

    return Case(
        "", _episodes(world, make, count), [Truth(("absolute",), (it,), 1.0) for it in range(6)]
    )


def _bimanual(world: _World, count: int) -> Case:
    def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
        targets = world.reaches(rows, 12)
        return targets, world.follow(targets)[:, :6]

    truths = [Truth(("absolute",), (it,), 1.0) for it in range(6)] + [UNKNOWN] * 6
    return Case("", _episodes(world, make, count), truths)


def _hand_of_moved_joints(world: _World, count: int) -> Case:
    def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
        targets = world.reaches(rows, 6)
        arm = world.follow(targets)
        angles = 1.5 * arm.cumsum(1)
        hand = np.stack([np.cos(angles).sum(1), np.sin(angles).sum(1)], 1)
        return targets, hand

    return Case("", _episodes(world, make, count), [UNKNOWN] * 6)


def _torques(damping: float):
    def convention(world: _World, count: int) -> Case:
        width, dt = 4, 0.05
        truth = Truth(("force", "unknown"))
        if damping > 20:
            truth = Truth(("force", "unknown", "delta", "velocity"))

        def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
            targets = world.reaches(rows, width)
            position, speed = targets[0].copy(), np.zeros(width)
            torques, states = [], [np.concatenate([position, speed])]
            for target in targets:
                torque = 60 * (target - position) - 8 * speed
                torques.append(torque)
                for _ in range(10):
                    speed = speed + dt / 10 * (torque - damping * speed)
                    position = position + dt / 10 * speed
                states.append(np.concatenate([position, speed]))
            observed = np.array(states)
            return np.array(torques), observed if world.rate > 10 else observed[:, :width]

        return Case("", _episodes(world, make, count), [truth] * width)

    return convention


def _random(world: _World, count: int) -> Case:
    def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
        return world.rng.uniform(-1, 1, (rows, 4)), world.reaches(rows + 1, 5)

    return Case("", _episodes(world, make, count), [UNKNOWN] * 4)


def _unrelated(world: _World, count: int) -> Case:
    def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
        return world.reaches(rows, 4), world.reaches(rows + 1, 5)

    return Case("", _episodes(world, make, count), [UNKNOWN] * 4)


def _goals(world: _World, count: int) -> Case:
    def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
        goal = world.rng.uniform(-1, 1, 3)
        return np.repeat(goal[None], rows, 0), world.reaches(rows + 1, 3)

    return Case("", _episodes(world, make, count), [UNKNOWN] * 3)


def _grippers(form: str):
    """Joint targets and a gripper with a code."""

    def convention(world: _World, count: int) -> Case:
        def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
            targets = world.reaches(rows, 3)
            command, width = world.gripper(rows)
            codes = {
                "one": command,
                "signed": 2 * command - 1,
                "inverted": 1 - command,
                "metres": 0.08 * command,
                "relative": np.sign(np.diff(command, prepend=command[:1])),
                "percent": 100 * command,
            }
            action = np.concatenate([targets, codes[form][:, None]], 1)
            return action, np.concatenate([world.follow(targets), width[:, None]], 1)

        truths = [Truth(("absolute",), (it,), 1.0) for it in range(3)]
        truths.append(
            Truth(
                ("gripper", "absolute") if form != "relative" else ("gripper", "unknown", "binary"),
                (3,),
            )
        )
        case = Case("", _episodes(world, make, count), truths)
        # Codes have no noise.
        for actions, _ in case.episodes:
            values = actions[:, 3]
            steps = {"metres": 0.08, "percent": 100.0}.get(form, 1.0)
            actions[:, 3] = np.round(values / steps) * steps
        return case

    return convention


def _with_flag(world: _World, count: int) -> Case:
    case = _deltas(3, 1.0, 0.1, 0.4)(world, count)
    episodes = []
    for actions, states in case.episodes:
        flag = np.zeros((len(actions), 1))
        flag[-1] = 1
        episodes.append((np.concatenate([actions, flag], 1), states))
    return Case("", episodes, [*case.truths, UNKNOWN])


def _base_and_arm(world: _World, count: int) -> Case:
    def make(rows: int) -> tuple[np.ndarray, np.ndarray]:
        targets = world.reaches(rows, 4)
        return np.concatenate([targets, world.reaches(rows, 2)], 1), world.follow(targets)

    truths = [Truth(("absolute",), (it,), 1.0) for it in range(4)] + [UNKNOWN] * 2
    return Case("", _episodes(world, make, count), truths)


CONVENTIONS: dict[str, Callable[[_World, int], Case]] = {
    "joint targets": _joints(7, lambda it: it, 1.0, "absolute"),
    "joint targets of [-1, 1]": _joints(6, lambda it: it / 1.6, 1 / 1.6, "absolute"),
    "joint targets in degrees": _joints(6, lambda it: it * DEGREES, DEGREES, "absolute"),
    "poses": _joints(6, lambda it: it, 1.0, "absolute"),
    "waypoints": _waypoints,
    "poses with quaternions": _absolute_quaternion,
    "joint changes": _deltas(7, 1.0),
    "hand changes": _deltas(6, 1.0, 0.05, 0.4),
    "hand changes of [-1, 1]": _deltas(6, 20.0, 0.05, 0.4),
    "planar changes": _deltas(2, 1.0, 0.1),
    "position and yaw changes": _deltas(4, 1.0, 0.1),
    "velocities": _velocities(False),
    "velocities, measured": _velocities(True),
    "turns in the base, x y z w": _poses("xyzw", "base"),
    "turns in the base, w x y z": _poses("wxyz", "base"),
    "turns in the hand, x y z w": _poses("xyzw", "body"),
    "turns in the hand, w x y z": _poses("wxyz", "body"),
    "two arms, one measured": _bimanual,
    "joints, hand measured": _hand_of_moved_joints,
    "torques": _torques(0.5),
    "torques, damped": _torques(5.0),
    "torques, overdamped": _torques(40.0),
    "random": _random,
    "unrelated": _unrelated,
    "goals": _goals,
    "gripper 0, 1": _grippers("one"),
    "gripper -1, 1": _grippers("signed"),
    "gripper inverted": _grippers("inverted"),
    "gripper in metres": _grippers("metres"),
    "gripper in percent": _grippers("percent"),
    "gripper relative": _grippers("relative"),
    "terminate": _with_flag,
    "base and arm": _base_and_arm,
}
"""The conventions by name."""

NOISE = {"usual": (0.003, 0.05), "bad": (0.02, 0.3), "awful": (0.05, 1.0)}


def make_case(name: str, seed: int, *, noise: str = "usual", episodes: int = 20) -> Case:
    """Returns episodes of a convention."""
    world = _World(np.random.default_rng([seed, len(name), sum(map(ord, name))]), *NOISE[noise])
    return dataclasses.replace(CONVENTIONS[name](world, episodes), name=name)


def is_right(truth: Truth, relation) -> bool:
    """Whether an answer is right, which "unknown" is if the data do not tell the meaning."""
    if relation.kind not in truth.kinds:
        return False
    if relation.kind in ("unknown", "binary", "constant"):
        return True
    if truth.states and relation.state not in truth.states:
        return False
    return truth.scale is None or 0.9 < relation.scale / truth.scale < 4


def is_wrong(truth: Truth, relation) -> bool:
    """Whether an answer is confident, and wrong."""
    return relation.kind != "unknown" and not is_right(truth, relation)
