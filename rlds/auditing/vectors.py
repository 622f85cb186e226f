"""The meaning of the actions of a dataset, in words: each run of elements with its evidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import rlds
from rlds.auditing.meaning import ElementMeaning, meanings
from rlds.sources import reading
from rlds.sources.episodes import Episodes
from rlds.sources.source import SourceError, with_random_access
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at

__all__ = ["MOST_EPISODES", "MOST_ROWS", "VectorMeaning", "vector_meanings"]

MOST_EPISODES, MOST_ROWS = 200, 20_000
"""How much is looked at."""

# By which part scales differ that are said together.
_SAME_SCALE = 0.1
# How many elements of actions and of states are compared with each other.
_MOST_ACTIONS, _MOST_STATES = 256, 512


@dataclasses.dataclass(frozen=True)
class VectorMeaning:
    """The meaning of an action.

    Attributes:
      field: The path of a field of steps.
      elements: The meaning of each of its elements, or of some if they are many.
      places: Which elements these are.
      states: The name of each element of the state, by the numbers in `elements`.
      names: The names of the elements of the action; those that are declared, or their numbers.
      num_episodes: How many episodes were looked at.
      num_rows: How many rows they have.
    """

    field: str
    elements: Sequence[ElementMeaning]
    places: Sequence[int]
    states: Sequence[str]
    names: Sequence[str]
    num_episodes: int
    num_rows: int

    def sentences(self) -> Iterator[str]:
        """Yields what is known of each run of elements that mean the same, with the evidence."""
        run: list[tuple[int, ElementMeaning]] = []
        for pair in zip(self.places, self.elements):
            if run and not _continues(run, pair):
                yield self._said(run)
                run = []
            run.append(pair)
        if run:
            yield self._said(run)

    def _said(self, run: Sequence[tuple[int, ElementMeaning]]) -> str:
        (first, found), (last, _) = run[0], run[-1]
        where = f"{self.field}{_range(first, last)}"
        if found.state < 0:
            return f"{where}: {found.kind}{f', {found.why}' if found.why else ''}"
        states = [self.states[each.state] for _, each in run]
        state = states[0] if len(run) == 1 else f"{states[0]} to {states[-1]}"
        late = f" at t{found.lag:+d}" if found.lag else " at t"
        scales = [each.scale for _, each in run]
        low = min(each.interval[0] for _, each in run)
        high = max(each.interval[1] for _, each in run)
        explained = min(each.explained for _, each in run)
        scale = float(np.median(scales))
        evidence = f"R² {explained:.3f}"
        if found.kind == "gripper":
            way = "moves" if found.is_relative else "sets"
            turn = "up" if found.scale > 0 else "down"
            return f"{where}: gripper, {way} {state} {turn} as it grows ({evidence})"
        if found.kind in ("absolute", "velocity"):
            factor = "" if abs(scale - 1) < 0.02 else f"{scale:.3g} x "
            return f"{where}: {found.kind}, {factor}{state}{late} ({evidence})"
        what = "delta or velocity" if found.kind == "delta" else found.kind
        between = f", {low:.3g} to {high:.3g}" if np.isfinite(low) else ""
        row = " (rows hold what their action led to)" if found.lag < 0 else ""
        why = f", {found.why}" if found.why else ""
        return (
            f"{where}: {what} of {state}{late}, scale {scale:.3g}{between}{why}{row} ({evidence})"
        )


def vector_meanings(episodes: Episodes) -> list[VectorMeaning]:
    """Returns what the actions of a dataset mean, as far as numbers tell.

    Args:
      episodes: The episodes; up to `MOST_EPISODES` of them are read, and `MOST_ROWS` rows, without
        images.

    Raises:
      SourceError: The data can be read from the beginning to the end only.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import rlds.sources
    >>> folder = Path(tempfile.mkdtemp())
    >>> rng = np.random.default_rng(0)
    >>> for number in range(4):
    ...     state = rng.normal(size=(61, 2)).cumsum(0)
    ...     action = 100 * np.diff(state, axis=0)
    ...     np.savez(folder / f"{number}.npz", observation=state, action=action, terminal=True)
    >>> [found] = vector_meanings(rlds.sources.open(folder))
    >>> [*found.sentences()]  # doctest: +NORMALIZE_WHITESPACE
    ['action[0:2]: delta or velocity of observation[0] to observation[1] at t, scale 100,
      100 to 100 (R² 1.000)']
    """
    source = with_random_access(episodes.source)
    fields = {path: it for path, it in leaves_at(source.fields.steps, None) if _is_vector(it)}
    actions = [path for path in fields if path.split("/")[0] == rlds.ACTION]
    states = [path for path in fields if _is_state(path)]
    sampled = list(_sampled(episodes, [*actions, *states])) if actions else []
    columns = [_states(rows, states) for rows in sampled]
    every = [name for path in states for name in _names(path, fields[path])]
    kept = _kept_states(columns, every)
    found = []
    for path in actions:
        pairs = [(_flat(rows[path]), state[:, kept]) for rows, state in zip(sampled, columns)]
        width = pairs[0][0].shape[1] if pairs else 0
        places = np.unique(np.linspace(0, width - 1, min(width, _MOST_ACTIONS)).astype(int))
        elements = meanings([(action[:, places], state) for action, state in pairs])
        found.append(
            VectorMeaning(
                path,
                elements,
                places.tolist(),
                [every[number] for number in kept],
                _names(path, fields[path]),
                len(pairs),
                sum(len(action) for action, _ in pairs),
            )
        )
    return found


def _continues(run: Sequence[tuple[int, ElementMeaning]], pair: tuple[int, ElementMeaning]) -> bool:
    """Whether an element means the same as those before it, of the next element of the state."""
    (first, one), (last, _), (place, other) = run[0], run[-1], pair
    is_next = place == last + 1
    if one.state >= 0:
        is_next &= other.state - place == one.state - first
    is_same = (one.kind, one.lag, one.why) == (other.kind, other.lag, other.why)
    are_alike = not abs(one.scale - other.scale) > _SAME_SCALE * abs(one.scale)  # Or are unknown.
    return is_next and is_same and are_alike


def _is_vector(field: object) -> bool:
    if not isinstance(field, Field) or field.encoding or field.table:
        return False
    is_number = field.column_dtype.kind in "fiub"
    return is_number and len(field.shape) < 2 and None not in field.shape


def _is_state(path: str) -> bool:
    name = path.split("/")[-1]
    others = (rlds.REWARD, rlds.DISCOUNT, *rlds.STEP_FLAGS)
    return path.split("/")[0] != rlds.ACTION and name not in others


def _sampled(episodes: Episodes, paths: Sequence[str]) -> Iterator[Mapping[str, np.ndarray]]:
    number, rows = len(episodes), 0
    chosen = np.unique(np.linspace(0, number - 1, min(number, MOST_EPISODES)).astype(int))
    source = with_random_access(episodes.source)
    for index in np.random.default_rng(0).permutation(chosen).tolist():
        if rows >= MOST_ROWS:
            return
        try:
            steps = reading.read_steps(
                source, *episodes.place(index), paths, slice(0, MOST_ROWS - rows)
            )
        except SourceError:  # Others report it.
            continue
        columns = dict(leaves_at(steps, None))
        rows += len(columns[paths[0]])
        yield columns


def _states(rows: Mapping[str, np.ndarray], paths: Sequence[str]) -> np.ndarray:
    number = len(next(iter(rows.values())))
    return np.concatenate([np.empty((number, 0)), *(_flat(rows[path]) for path in paths)], 1)


def _flat(column: np.ndarray) -> np.ndarray:
    return np.asarray(column, np.float64).reshape(len(column), -1)


def _kept_states(columns: Sequence[np.ndarray], names: Sequence[str]) -> list[int]:
    """The elements of states that are no constants, and no counters of rows; not too many."""
    if not columns:
        return []
    moves = np.zeros(len(names), bool)
    counts = np.ones(len(names), bool)
    for column in columns:
        steps = np.diff(column, axis=0)
        moves |= (np.abs(steps) > 0).any(0)
        near = np.abs(steps - steps.mean(0)) <= 1e-3 * np.abs(steps.mean(0)) if len(steps) else 0
        counts &= np.all(near, axis=0) & (steps.mean(0) != 0) if len(steps) else True
    kept = np.flatnonzero(moves & ~counts)
    if len(kept) > _MOST_STATES:
        kept = kept[np.unique(np.linspace(0, len(kept) - 1, _MOST_STATES).astype(int))]
    return kept.tolist()


def _names(path: str, field: Field) -> list[str]:
    if not field.shape:
        return [path]
    if field.names is not None and len(field.names) == field.shape[-1]:
        return [f"{path}[{name}]" for name in field.names]
    return [f"{path}[{number}]" for number in range(field.shape[0] or 0)]


def _range(first: int, last: int) -> str:
    return f"[{first}]" if first == last else f"[{first}:{last + 1}]"
