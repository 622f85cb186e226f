"""The meaning of the vectors of a dataset: each run of elements with its evidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rlds.auditing.checks import find_faults
from rlds.auditing.findings import MeasuredEpisodes
from rlds.auditing.forms import end_rows, forms
from rlds.auditing.meaning import ElementMeaning, agreed_meanings
from rlds.auditing.measures import Profile, measure, profile_of
from rlds.auditing.step_numbers import MOST_EPISODES, StepNumbers
from rlds.sources.episodes import Episodes

__all__ = ["Usual", "VectorMeaning", "element_range", "usual_of", "vector_meanings"]

# The relative difference of scales that one sentence covers.
_SAME_SCALE = 0.1
# The first try has no relations; later tries take relations from episodes without faults.
_TRIES = 3
# A fault of a larger share of the episodes is usual, and excludes none.
_MOST_BAD = 0.5


@dataclasses.dataclass(frozen=True)
class VectorMeaning:
    """The inferred meaning of an action, or of the elements of an observation that have a form.

    Attributes:
      field: The path of the field in steps.
      elements: The meaning of all or some elements of the field.
      places: The index in the field of each meaning in `elements`.
      states: The name of each element of the state, by the numbers in `elements`.
      names: The declared names of the elements, or their indices.
      num_episodes: The number of assessed episodes.
      num_rows: The number of rows of these episodes.
      end_rows: The conventions of the first and the last rows of episodes, in sentences.
    """

    field: str
    elements: Sequence[ElementMeaning]
    places: Sequence[int]
    states: Sequence[str]
    names: Sequence[str]
    num_episodes: int
    num_rows: int
    end_rows: Sequence[str] = ()

    def sentences(self) -> Iterator[str]:
        """Yields the meaning of each run of equal elements, with the evidence; then `end_rows`."""
        run: list[tuple[int, ElementMeaning]] = []
        for pair in zip(self.places, self.elements):
            if run and not _continues(run, pair):
                yield self._sentence(run)
                run = []
            run.append(pair)
        if run:
            yield self._sentence(run)
        yield from (f"{self.field}: {text}" for text in self.end_rows)

    def _sentence(self, run: Sequence[tuple[int, ElementMeaning]]) -> str:
        (first, meaning), (last, _) = run[0], run[-1]
        elements = f"{self.field}{element_range(first, last)}"
        if meaning.state < 0:
            count = len({each.block for _, each in run})
            kind = meaning.kind if count == 1 else f"{count} times {meaning.kind}"
            return f"{elements}: {kind}{f', {meaning.why}' if meaning.why else ''}"
        states = [self.states[each.state] for _, each in run]
        state = states[0] if len(run) == 1 else f"{states[0]} to {states[-1]}"
        moment = f" at t{meaning.lag:+d}" if meaning.lag else " at t"
        scales = [each.scale for _, each in run]
        low = min(each.interval[0] for _, each in run)
        high = max(each.interval[1] for _, each in run)
        explained = min(each.explained for _, each in run)
        scale = float(np.median(scales))
        evidence = f"R² {explained:.3f}"
        if meaning.kind == "gripper":
            verb = "moves" if meaning.is_relative else "sets"
            direction = "up" if meaning.scale > 0 else "down"
            return f"{elements}: gripper, {verb} {state} {direction} as it grows ({evidence})"
        if meaning.kind in ("absolute", "velocity"):
            factor = "" if abs(scale - 1) < 0.02 else f"{scale:.3g} x "
            return f"{elements}: {meaning.kind}, {factor}{state}{moment} ({evidence})"
        kind = "delta or velocity" if meaning.kind == "delta" else meaning.kind
        between = f", {low:.3g} to {high:.3g}" if np.isfinite(low) else ""
        row = " (rows hold what their action led to)" if meaning.lag < 0 else ""
        why = f", {meaning.why}" if meaning.why else ""
        relation = f"{kind} of {state}{moment}, scale {scale:.3g}"
        return f"{elements}: {relation}{between}{why}{row} ({evidence})"


def vector_meanings(
    episodes: Episodes, *, most: int = MOST_EPISODES, seconds: float | None = None
) -> list[VectorMeaning]:
    """Infers the meaning of actions, and the form of observations, from their numbers.

    Actions come first, then the observations with elements that have a form.

    Args:
      episodes: The episodes; up to 20,000 rows are read, without images.
      most: The largest number of episodes to read.
      seconds: The time limit for reading, if there is one.

    Raises:
      TypeError: The data can be read from the beginning to the end only.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import rlds.sources
    >>> folder = Path(tempfile.mkdtemp())
    >>> rng = np.random.default_rng(0)
    >>> for index in range(4):
    ...     state = rng.normal(size=(61, 2)).cumsum(0)
    ...     action = 100 * np.diff(state, axis=0)
    ...     np.savez(folder / f"{index}.npz", observation=state, action=action, terminal=True)
    >>> [meaning] = vector_meanings(rlds.sources.open(folder))
    >>> [*meaning.sentences()]  # doctest: +NORMALIZE_WHITESPACE
    ['action[0:2]: delta or velocity of observation[0] to observation[1] at t, scale 100,
      100 to 100 (R² 1.000)']
    """
    return usual_of(StepNumbers(episodes, most, seconds)).vectors


class Usual(NamedTuple):
    """The usual actions and measures of a dataset.

    Attributes:
      vectors: The meaning of its actions, and of observations with a form.
      profile: The usual values, against which episodes are measured.
    """

    vectors: list[VectorMeaning]
    profile: Profile


def usual_of(numbers: StepNumbers) -> Usual:
    """Learns the usual values from a sample of a dataset, without faulty episodes.

    Args:
      numbers: The numbers of the dataset.
    """
    sample = numbers.sample
    names = [*numbers.state_names, *numbers.action_names]
    sound, relations = sample, list[ElementMeaning]()
    for attempt in range(_TRIES):
        if attempt:
            relations = agreed_meanings([(each.actions, each.states) for each in sound])
        profile = profile_of([(each.actions, each.states) for each in sound], relations)
        measured = MeasuredEpisodes(
            [measure(each.actions, each.states, profile) for each in sample],
            names,
            len(numbers.state_names),
            profile,
        )
        bad = {finding.episode for finding in find_faults(measured).findings}
        before = sound
        if len(bad) <= _MOST_BAD * len(sample):
            sound = [each for index, each in enumerate(sample) if index not in bad]
        if attempt and [*map(id, sound)] == [*map(id, before)]:
            break  # Another try would give the same result.
    return Usual([*_actions(numbers, relations), *_observations(numbers)], profile)


def _actions(numbers: StepNumbers, relations: Sequence[ElementMeaning]) -> Iterator[VectorMeaning]:
    begin = 0
    for path, indices in zip(numbers.actions, numbers.action_indices):
        end = begin + len(indices)
        rows = [each.actions[:, begin:end] for each in numbers.sample]
        by_form = forms(rows) if len(indices) == len(numbers.names[path]) else {}
        elements = [
            by_form.get(index, it) if it.kind == "unknown" else it
            for index, it in enumerate(relations[begin:end])
        ]
        names = numbers.action_names[begin:end]
        yield _vector(numbers, path, elements, indices, names, [*end_rows(rows)])
        begin = end


def _observations(numbers: StepNumbers) -> Iterator[VectorMeaning]:
    for path, by_index in numbers.forms.items():
        names = [numbers.names[path][index] for index in by_index]
        yield _vector(numbers, path, [*by_index.values()], [*by_index], names, [])


def _vector(
    numbers: StepNumbers,
    path: str,
    elements: Sequence[ElementMeaning],
    indices: Sequence[int],
    names: Sequence[str],
    ends: Sequence[str],
) -> VectorMeaning:
    sample = numbers.sample
    counts = len(sample), sum(len(each.actions) for each in sample)
    return VectorMeaning(path, elements, indices, numbers.state_names, names, *counts, ends)


def _continues(run: Sequence[tuple[int, ElementMeaning]], pair: tuple[int, ElementMeaning]) -> bool:
    """Whether an element continues the run before it, with the next element of the state."""
    (first, one), (last, _), (index, other) = run[0], run[-1], pair
    is_next = index == last + 1
    if one.state >= 0:
        is_next &= other.state - index == one.state - first
    is_same = (one.kind, one.lag, one.why) == (other.kind, other.lag, other.why)
    are_alike = not abs(one.scale - other.scale) > _SAME_SCALE * abs(one.scale)  # Or NaN.
    return is_next and is_same and are_alike


def element_range(first: int, last: int) -> str:
    """Returns the elements from one to another one, as an index."""
    return f"[{first}]" if first == last else f"[{first}:{last + 1}]"
