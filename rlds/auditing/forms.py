"""Recognition of rotations, angles and padding in the values of vectors.

A block of elements has a form if its squares sum to one, and no smaller or overlapping block fits
as well. Euler angles and joint angles look alike; angles are recognized by their wraps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlds.auditing.meaning import MIN_EPISODES, MIN_ROWS, ElementMeaning, Kind
from rlds.auditing.relations import TURNS

__all__ = ["find_end_conventions", "forms"]

# The number of evenly spaced rows whose norms are computed.
_NUM_ROWS = 4000
# Largest root mean square errors of a norm, and of the products of unit vectors.
_NORM_ERROR, _PRODUCT_ERROR = 0.012, 0.03
# The largest distance of class indices from integers.
_INTEGER_ERROR = 0.05
# The largest variance of a sum of squares, relative to the squares; the least error of rivals,
# relative to that of a block.
_MAX_SUM_VARIANCE, _RIVAL_RATIO = 0.05, 3.0
_QUATERNION_SIZE, _DIRECTION_SIZE, _SINE_COSINE_SIZE = 4, 3, 2
# Layouts of rotations: the number of unit vectors, the stride of vectors, and the stride of the
# elements of a vector. The second layout is a pose, whose rows end with a translation.
_ROTATION_LAYOUTS = ((3, 3, 1), (3, 4, 1), (2, 3, 1), (2, 1, 2))
# The tolerance of a wrap and the largest other step, in turns; the least number of wraps.
_WRAP_ERROR, _MAX_SMOOTH_STEP, _MIN_WRAPS = 0.15, 0.25, 2
# Least share of the episodes with a convention; largest share of inner rows that look like it.
_MIN_COMMON_SHARE, _MAX_RARE_SHARE = 0.9, 0.1


class _Block(NamedTuple):
    """Elements whose squares sum to one."""

    indices: tuple[int, ...]
    error: float


def forms(episodes: Sequence[np.ndarray]) -> dict[int, ElementMeaning]:
    """Returns the meaning of the elements of a vector with a clear form, by index.

    Args:
      episodes: The vector in each row of some episodes, each of shape `[rows, elements]`.

    >>> angles = [np.linspace(0, 9 + index, 60) for index in range(4)]
    >>> vectors = [np.stack([np.cos(x), np.sin(x), x % 6.2832, 0 * x], 1) for x in angles]
    >>> for index, meaning in forms(vectors).items():
    ...     print(index, meaning.kind, meaning.why)
    0 sine and cosine of one angle, unit norm within 1e-06
    1 sine and cosine of one angle, unit norm within 1e-06
    2 angle in rad, by 4 wraps
    3 constant always 0 at the end of the vector, like padding
    """
    rows = np.concatenate(episodes) if episodes else np.empty((0, 0))
    rows = rows[np.isfinite(rows).all(1)]
    if len(episodes) < MIN_EPISODES or len(rows) < MIN_ROWS:
        return {}
    meanings = {**_find_angles(episodes, rows), **_find_padding(rows)}
    rows = rows[np.linspace(0, len(rows) - 1, min(_NUM_ROWS, len(rows))).astype(int)]
    matrices = _find_matrices(rows)
    in_matrices = {index for _, block, _ in matrices for index in block}
    for kind, block, why in (*matrices, *_find_units(rows, in_matrices)):
        meaning = ElementMeaning(kind, why=why, block=block[0])
        meanings |= dict.fromkeys(block, meaning)
    return dict(sorted(meanings.items()))


def find_end_conventions(episodes: Sequence[np.ndarray]) -> Iterator[str]:
    """Yields the conventions of first and last rows, if most episodes follow them.

    Args:
      episodes: The actions of some episodes, each of shape `[rows, elements]`.
    """
    episodes = [actions for actions in episodes if len(actions) > 2 and actions.shape[1]]
    if len(episodes) < MIN_EPISODES:
        return
    masks_by_convention = {
        "zero": [(actions == 0).all(1) for actions in episodes],
        "not finite": [~np.isfinite(actions).all(1) for actions in episodes],
        "the row before": [np.r_[False, (a[1:] == a[:-1]).all(1)] for a in episodes],
    }
    for (convention, masks), (row, position) in itertools.product(
        masks_by_convention.items(), [(0, "first"), (-1, "last")]
    ):
        inside = np.concatenate([mask[1:-1] for mask in masks]).mean()
        share = np.mean([mask[row] for mask in masks])
        if share >= _MIN_COMMON_SHARE and inside <= _MAX_RARE_SHARE:
            yield f"the {position} row is {convention} in {share:.0%} of the episodes"


def _find_padding(rows: np.ndarray) -> Mapping[int, ElementMeaning]:
    used = np.flatnonzero((rows != 0).any(0))
    if not len(used):
        return {}
    padding = ElementMeaning("constant", why="always 0 at the end of the vector, like padding")
    return dict.fromkeys(range(int(used[-1]) + 1, rows.shape[1]), padding)


def _find_angles(episodes: Sequence[np.ndarray], rows: np.ndarray) -> Mapping[int, ElementMeaning]:
    """Returns the elements whose only jumps are wraps of a full turn."""
    with np.errstate(invalid="ignore"):
        steps = np.abs(np.concatenate([np.diff(actions, axis=0) for actions in episodes]))
    angles = {}
    for unit, turn in TURNS.items():
        wraps, smooth = steps > turn * (1 - _WRAP_ERROR), steps < turn * _MAX_SMOOTH_STEP
        is_turn = np.abs(np.ptp(rows, axis=0) / turn - 1) < _WRAP_ERROR
        is_angle = is_turn & (wraps | smooth | np.isnan(steps)).all(0)
        is_angle &= (wraps.sum(0) >= _MIN_WRAPS) & (wraps.mean(0) < _MAX_RARE_SHARE)
        for index in np.flatnonzero(is_angle).tolist():
            # A switch has two values; an angle takes all values of its range.
            counts = np.histogram(rows[:, index], bins=8)[0]
            if (counts > 0).all() and len(np.unique(rows[:, index])) > len(counts) ** 2:
                why = f"in {unit}, by {int(wraps[:, index].sum())} wraps"
                angles[index] = ElementMeaning("angle", why=why, unit=unit)
    return angles


def _find_matrices(rows: np.ndarray) -> list[tuple[Kind, tuple[int, ...], str]]:
    """Returns the blocks of rotation matrices: three orthogonal unit vectors, or the first two."""
    matrices: list[tuple[Kind, tuple[int, ...], str]] = []
    used: set[int] = set()
    for count, between, within in _ROTATION_LAYOUTS:
        offsets = (np.arange(count)[:, None] * between + np.arange(3) * within).ravel()
        for element in range(rows.shape[1] - int(offsets[-1])):
            block = tuple((element + offsets).tolist())
            vectors = rows[:, block].reshape(-1, count, 3)
            if used & {*block} or (np.ptp(vectors, axis=0) > 0).sum() < 4:
                continue
            error = np.sqrt(((vectors @ vectors.transpose(0, 2, 1) - np.eye(count)) ** 2).mean())
            if error > _PRODUCT_ERROR or (count == 3 and np.linalg.det(vectors).mean() < 0):
                continue
            used |= {*block}
            if count == 3:
                why = "orthogonal, determinant 1; by rows or by columns"
                matrices.append(("rotation matrix", block, f"{why} (within {error:.1g})"))
            else:
                why = "one after the other" if between == 3 else "element by element"
                why = f"two orthogonal unit vectors, {why} (within {error:.1g})"
                matrices.append(("rotation in six numbers", block, why))
    return matrices


def _find_units(rows: np.ndarray, used: set[int]) -> Iterator[tuple[Kind, tuple[int, ...], str]]:
    """Yields unused blocks of unit norm, if no overlapping block fits as well."""
    squares, is_free = rows**2, np.ptp(rows, axis=0) > 0
    is_free &= ~np.array([index in used for index in range(rows.shape[1])], bool)
    # One-hot vectors have unit norm, too.
    is_free &= (np.abs(rows - np.round(rows)) < _INTEGER_ERROR).mean(0) < _MIN_COMMON_SHARE
    windows = [
        tuple(range(first, first + size))
        for size in (_QUATERNION_SIZE, _DIRECTION_SIZE)
        for first in range(rows.shape[1] - size + 1)
        if is_free[first : first + size].all()
    ]
    blocks = [*_find_blocks(squares, windows), *_find_pairs(squares, is_free)]
    zeros = {*np.flatnonzero((rows == 0).all(0)).tolist()}
    kinds: dict[int, tuple[Kind, str]] = {
        _QUATERNION_SIZE: ("quaternion", "the index of its real element is unknown"),
        _DIRECTION_SIZE: ("direction", "a vector of length 1"),
        _SINE_COSINE_SIZE: ("sine and cosine", "of one angle"),
    }
    for block in blocks:
        rivals = (b for b in blocks if b != block and {*b.indices} & {*block.indices})
        if min((rival.error for rival in rivals), default=1.0) < _RIVAL_RATIO * block.error + 1e-9:
            continue
        if _may_be_quaternion(block.indices, zeros):
            continue
        kind, why = kinds[len(block.indices)]
        why = f"{why}, unit norm within {max(block.error, 1e-6):.1g}"
        if block.indices[-1] - block.indices[0] >= len(block.indices):
            why = f"{why}, elements {block.indices[0]} and {block.indices[-1]}"
        yield kind, block.indices, why


def _find_blocks(squares: np.ndarray, blocks: Sequence[tuple[int, ...]]) -> list[_Block]:
    """Returns the blocks of unit norm whose squares cancel each other."""
    fitting = []
    for block in blocks:
        total = squares[:, block].sum(1)
        cancels = total.var() < _MAX_SUM_VARIANCE * squares[:, block].var(0).max()
        error = float(np.sqrt(((total - 1) ** 2).mean()) / 2)
        if cancels and error < _NORM_ERROR:
            fitting.append(_Block(block, error))
    return fitting


def _find_pairs(squares: np.ndarray, is_free: np.ndarray) -> list[_Block]:
    """Returns the pairs of unit norm, anywhere in the vector."""
    with np.errstate(divide="ignore", invalid="ignore"):
        related = np.corrcoef(squares, rowvar=False) if squares.shape[1] > 1 else np.zeros((1, 1))
    pairs = np.argwhere(np.triu(related < _MAX_SUM_VARIANCE - 1, 1) & is_free & is_free[:, None])
    return _find_blocks(squares, [tuple(pair) for pair in pairs.tolist()])


def _may_be_quaternion(block: Sequence[int], zeros: set[int]) -> bool:
    """Whether a block may belong to a quaternion whose remaining elements are zero."""
    if block[-1] - block[0] >= len(block) or len(block) == _QUATERNION_SIZE:
        return False
    windows = (range(n - _QUATERNION_SIZE + 1, n + 1) for n in range(block[-1], block[0] + 4))
    return any({*window} - {*block} <= zeros for window in windows)
