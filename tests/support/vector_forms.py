"""States with elements of all forms, to measure `rlds.auditing.forms` on.

Joints, rotations and angles move smoothly from one random point to the next, with noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

__all__ = ["FORMS", "NOISES", "UNKNOWABLE", "make_vectors"]

NOISES = {"none": 0.0, "usual": 0.003, "bad": 0.02}
"""Deviations of the noise, as shares of the range of an element."""

Columns = Callable[[np.random.Generator, int], np.ndarray]


def _smooth(rng: np.random.Generator, rows: int, width: int, size: float = 1.0) -> np.ndarray:
    """Values between random knots, of shape `[rows, width]`."""
    knots = rng.uniform(-size, size, (rows // 12 + 2, width))
    moments = np.arange(rows) / 12
    share = moments % 1
    share = (share**2 * (3 - 2 * share))[:, None]
    begin = moments.astype(int)
    return knots[begin] + (knots[begin + 1] - knots[begin]) * share


def _quaternions(rng: np.random.Generator, rows: int, tilt: float = 2.0) -> np.ndarray:
    """Unit quaternions, the real component first, of shape `[rows, 4]`."""
    vector = _smooth(rng, rows, 3, tilt) + np.array([0, 0, 0.3])
    angle = np.linalg.norm(vector, axis=1, keepdims=True)
    return np.concatenate([np.cos(angle / 2), vector / angle * np.sin(angle / 2)], axis=1)


def _matrices(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Rotation matrices, of shape `[rows, 3, 3]`."""
    w, x, y, z = _quaternions(rng, rows).T
    flat = [
        *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    ]
    return np.stack(flat, axis=1).reshape(-1, 3, 3)


def _poses(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Homogeneous transformations, of shape `[rows, 16]`."""
    poses = np.zeros((rows, 4, 4))
    poses[:, :3, :3], poses[:, :3, 3] = _matrices(rng, rows), _smooth(rng, rows, 3)
    poses[:, 3, 3] = 1
    return poses.reshape(rows, 16)


def _directions(rng: np.random.Generator, rows: int) -> np.ndarray:
    vectors = _smooth(rng, rows, 3) + np.array([0, 0.2, 0])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _cosines_sines(rng: np.random.Generator, rows: int, joints: int, together: bool) -> np.ndarray:
    """Cosine and sine of each joint, or all cosines before all sines."""
    angles = _smooth(rng, rows, joints, 3.0)
    both = np.stack([np.cos(angles), np.sin(angles)], axis=2 if together else 1)
    return both.reshape(rows, -1)


def _turning(rng: np.random.Generator, rows: int, low: float, turn: float) -> np.ndarray:
    """An angle that keeps turning, wrapped to one turn from `low`."""
    angle = rng.uniform(0, turn) + np.cumsum(rng.uniform(0.02, 0.1, rows)) * turn / 6
    return ((angle - low) % turn + low)[:, None]


def _planar(rng: np.random.Generator, rows: int) -> np.ndarray:
    half = _smooth(rng, rows, 1, 1.5)
    return np.concatenate([np.zeros((rows, 2)), np.sin(half), np.cos(half)], axis=1)


def _one_of(rng: np.random.Generator, rows: int, count: int) -> np.ndarray:
    return np.eye(count)[np.repeat(rng.integers(count, size=rows // 9 + 1), 9)[:rows]]


def _toggling(rng: np.random.Generator, rows: int, low: float, high: float) -> np.ndarray:
    return np.where(_one_of(rng, rows, 2)[:, :1] > 0, low, high)


FORMS: Mapping[str, tuple[str, Columns]] = {
    "quaternion, w first": ("quaternion", _quaternions),
    "quaternion, w last": ("quaternion", lambda r, n: np.roll(_quaternions(r, n), -1, axis=1)),
    "quaternion, tilted little": ("quaternion", lambda r, n: _quaternions(r, n, 0.4)),
    "rotation matrix": ("rotation matrix", lambda r, n: _matrices(r, n).reshape(n, 9)),
    "matrix by columns": (
        "rotation matrix",
        lambda r, n: _matrices(r, n).transpose(0, 2, 1).reshape(n, 9),
    ),
    "pose": ("rotation matrix", _poses),
    "two columns, one after the other": (
        "rotation in six numbers",
        lambda r, n: _matrices(r, n)[:, :, :2].transpose(0, 2, 1).reshape(n, 6),
    ),
    "two columns, by rows": (
        "rotation in six numbers",
        lambda r, n: _matrices(r, n)[:, :, :2].reshape(n, 6),
    ),
    "direction": ("direction", _directions),
    "cosine and sine": ("sine and cosine", lambda r, n: _cosines_sines(r, n, 1, True)),
    "of three joints": ("sine and cosine", lambda r, n: _cosines_sines(r, n, 3, True)),
    "all cosines first": ("sine and cosine", lambda r, n: _cosines_sines(r, n, 2, False)),
    "angle, -pi to pi": ("angle", lambda r, n: _turning(r, n, -np.pi, 2 * np.pi)),
    "angle, 0 to 2 pi": ("angle", lambda r, n: _turning(r, n, 0, 2 * np.pi)),
    "angle, -180 to 180": ("angle", lambda r, n: _turning(r, n, -180, 360)),
    "angle, 0 to 360": ("angle", lambda r, n: _turning(r, n, 0, 360)),
}
"""Columns with a recognizable form, and its kind."""

UNKNOWABLE: Mapping[str, Columns] = {
    "joints": lambda r, n: _smooth(r, n, 7, 2.0),
    "position in a room": lambda r, n: _smooth(r, n, 3, 0.6),
    "quaternion of a planar turn": _planar,
    "Euler angles": lambda r, n: _smooth(r, n, 3, 1.2),
    "one of four": lambda r, n: _one_of(r, n, 4),
    "one of two": lambda r, n: _one_of(r, n, 2),
    "shares": lambda r, n: np.exp(s := _smooth(r, n, 4, 2.0)) / np.exp(s).sum(1, keepdims=True),
    "signs": lambda r, n: np.sign(_smooth(r, n, 4)) / 2,
    "switch of 360": lambda r, n: _toggling(r, n, 0, 360),
    "switch of 2 pi": lambda r, n: _toggling(r, n, -np.pi, np.pi),
    "speeds": lambda r, n: np.diff(_smooth(r, n + 1, 6), axis=0) * 20,
    "vector of length 2": lambda r, n: 2 * _directions(r, n),
    "normalized": lambda r, n: np.tanh(_smooth(r, n, 4, 3.0)),
    "pixels": lambda r, n: _smooth(r, n, 2, 320.0) + 320,
}
"""Columns without a form, or with an ambiguous one."""


def make_vectors(
    name: str, seed: int, *, noise: str = "usual"
) -> tuple[list[np.ndarray], list[str]]:
    """Returns the states of 12 episodes, and the right kind of each element, or "".

    Args:
      name: A name of `FORMS` or `UNKNOWABLE`; other columns are added before and after.
      seed: The seed of all random values.
      noise: The name of one of `NOISES`.
    """
    rng = np.random.default_rng([seed, *name.encode()])
    before, after = rng.integers(0, 5, 2).tolist()
    kind, columns = FORMS[name] if name in FORMS else ("", UNKNOWABLE[name])
    episodes = []
    for _ in range(12):
        rows = int(rng.integers(60, 140))
        middle = columns(rng, rows)
        spread = np.ptp(middle, axis=0) if kind != "angle" else 0 * middle[0]
        middle = middle + rng.normal(size=middle.shape) * spread * NOISES[noise]
        sides = [_smooth(rng, rows, width, 1.5) for width in (before, after)]
        episodes.append(np.concatenate([sides[0], middle, sides[1]], axis=1))
    width = middle.shape[1]
    truths = [kind] * width
    if name == "pose":
        truths = ["" if index % 4 == 3 or index > 11 else kind for index in range(width)]
    return episodes, [*[""] * before, *truths, *[""] * after]
