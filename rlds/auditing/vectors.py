"""The inferred meaning of the vectors of a dataset, with the evidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rlds.auditing.checks import find_faults
from rlds.auditing.findings import MeasuredEpisodes
from rlds.auditing.forms import find_end_conventions, forms
from rlds.auditing.meaning import ElementMeaning, vote_on_meanings
from rlds.auditing.measures import Profile, learn_profile, measure
from rlds.auditing.numeric_fields import MAX_EPISODES, NumericFields
from rlds.sources.episodes import Episodes

__all__ = ["UsualValues", "VectorMeaning", "element_range", "learn_usual_values", "vector_meanings"]

# The largest relative difference of scales in one sentence.
_SCALE_TOLERANCE = 0.1
# The first attempt uses no relations; later attempts infer relations from faultless episodes.
_MAX_ATTEMPTS = 3
# The largest share of faulty episodes that are excluded.
_MAX_FAULTY_SHARE = 0.5


@dataclasses.dataclass(frozen=True)
class VectorMeaning:
    """The inferred meaning of an action, or of observation elements with a form.

    Attributes:
      field: The path of the field in steps.
      elements: The meaning of all or some elements of the field.
      indices: The index of each element in the field.
      states: The names of the state elements, whose indices are in `elements`.
      names: The declared names, or the indices, of the elements.
      num_episodes: The number of assessed episodes.
      num_rows: The number of rows of these episodes.
      end_conventions: The conventions of the first and the last rows of episodes, in sentences.
    """

    field: str
    elements: Sequence[ElementMeaning]
    indices: Sequence[int]
    states: Sequence[str]
    names: Sequence[str]
    num_episodes: int
    num_rows: int
    end_conventions: Sequence[str] = ()

    def sentences(self) -> Iterator[str]:
        """Yields the meaning and evidence of each run of equal elements, then `end_conventions`."""
        run: list[tuple[int, ElementMeaning]] = []
        for pair in zip(self.indices, self.elements):
            if run and not _continues(run, pair):
                yield self._format_sentence(run)
                run = []
            run.append(pair)
        if run:
            yield self._format_sentence(run)
        yield from (f"{self.field}: {text}" for text in self.end_conventions)

    def _format_sentence(self, run: Sequence[tuple[int, ElementMeaning]]) -> str:
        (first, meaning), (last, _) = run[0], run[-1]
        elements = f"{self.field}{element_range(first, last)}"
        if meaning.state < 0:
            count = len({element.block for _, element in run})
            kind = meaning.kind if count == 1 else f"{count} times {meaning.kind}"
            return f"{elements}: {kind}{f', {meaning.why}' if meaning.why else ''}"
        states = [self.states[element.state] for _, element in run]
        state = states[0] if len(run) == 1 else f"{states[0]} to {states[-1]}"
        moment = f" at t{meaning.lag:+d}" if meaning.lag else " at t"
        scales = [element.scale for _, element in run]
        low = min(element.interval[0] for _, element in run)
        high = max(element.interval[1] for _, element in run)
        r_squared = min(element.r_squared for _, element in run)
        scale = float(np.median(scales))
        evidence = f"R² {r_squared:.3f}"
        if meaning.kind == "gripper":
            verb = "moves" if meaning.is_relative else "sets"
            direction = "up" if meaning.scale > 0 else "down"
            return f"{elements}: gripper, {verb} {state} {direction} as it grows ({evidence})"
        if meaning.kind in ("absolute", "velocity"):
            factor = "" if abs(scale - 1) < 0.02 else f"{scale:.3g} x "
            return f"{elements}: {meaning.kind}, {factor}{state}{moment} ({evidence})"
        kind = "delta or velocity" if meaning.kind == "delta" else meaning.kind
        between = f", {low:.3g} to {high:.3g}" if np.isfinite(low) else ""
        row = " (rows hold the result of their action)" if meaning.lag < 0 else ""
        why = f", {meaning.why}" if meaning.why else ""
        relation = f"{kind} of {state}{moment}, scale {scale:.3g}"
        return f"{elements}: {relation}{between}{why}{row} ({evidence})"


def vector_meanings(
    episodes: Episodes, *, most: int = MAX_EPISODES, seconds: float | None = None
) -> list[VectorMeaning]:
    """Infers the meaning of actions, and the form of observations, from their values.

    Actions come first, then the observations with elements that have a form.

    Args:
      episodes: The episodes; up to 20,000 rows are read, without images.
      most: The largest number of episodes to read.
      seconds: The time limit for reading, if there is one.

    Raises:
      TypeError: The data has no random access.

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
    return learn_usual_values(NumericFields(episodes, most, seconds)).vectors


class UsualValues(NamedTuple):
    """The usual actions and measures of a dataset.

    Attributes:
      vectors: The meaning of its actions, and of observations with a form.
      profile: The usual values, against which episodes are measured.
    """

    vectors: list[VectorMeaning]
    profile: Profile


def learn_usual_values(fields: NumericFields) -> UsualValues:
    """Learns the usual values from a sample of a dataset, without faulty episodes.

    Args:
      fields: The numeric fields of the dataset.
    """
    sample = fields.sample
    names = [*fields.state_names, *fields.action_names]
    faultless, relations = sample, list[ElementMeaning]()
    for attempt in range(_MAX_ATTEMPTS):
        pairs = [(episode.actions, episode.states) for episode in faultless]
        if attempt:
            relations = vote_on_meanings(pairs)
        profile = learn_profile(pairs, relations)
        measured = MeasuredEpisodes(
            [measure(episode.actions, episode.states, profile) for episode in sample],
            names,
            len(fields.state_names),
            profile,
        )
        faulty = {finding.episode for finding in find_faults(measured).findings}
        previous = faultless
        if len(faulty) <= _MAX_FAULTY_SHARE * len(sample):
            faultless = [episode for index, episode in enumerate(sample) if index not in faulty]
        if attempt and [*map(id, faultless)] == [*map(id, previous)]:
            break  # A further attempt would have the same result.
    return UsualValues([*_infer_actions(fields, relations), *_infer_observations(fields)], profile)


def _infer_actions(
    fields: NumericFields, relations: Sequence[ElementMeaning]
) -> Iterator[VectorMeaning]:
    begin = 0
    for path, indices in zip(fields.actions, fields.action_indices):
        end = begin + len(indices)
        rows = [episode.actions[:, begin:end] for episode in fields.sample]
        by_form = forms(rows) if len(indices) == len(fields.names[path]) else {}
        elements = [
            by_form.get(index, meaning) if meaning.kind == "unknown" else meaning
            for index, meaning in enumerate(relations[begin:end])
        ]
        names = fields.action_names[begin:end]
        yield _create_meaning(fields, path, elements, indices, names, [*find_end_conventions(rows)])
        begin = end


def _infer_observations(fields: NumericFields) -> Iterator[VectorMeaning]:
    for path, by_index in fields.forms.items():
        names = [fields.names[path][index] for index in by_index]
        yield _create_meaning(fields, path, [*by_index.values()], [*by_index], names, [])


def _create_meaning(
    fields: NumericFields,
    path: str,
    elements: Sequence[ElementMeaning],
    indices: Sequence[int],
    names: Sequence[str],
    end_conventions: Sequence[str],
) -> VectorMeaning:
    num_rows = sum(len(episode.actions) for episode in fields.sample)
    state_names, num_episodes = fields.state_names, len(fields.sample)
    return VectorMeaning(
        path, elements, indices, state_names, names, num_episodes, num_rows, end_conventions
    )


def _continues(run: Sequence[tuple[int, ElementMeaning]], pair: tuple[int, ElementMeaning]) -> bool:
    """Whether an element continues a run of elements and of the state elements they affect."""
    (first, start), (last, _), (index, meaning) = run[0], run[-1], pair
    is_next = index == last + 1
    if start.state >= 0:
        is_next &= meaning.state - index == start.state - first
    is_same = (start.kind, start.lag, start.why) == (meaning.kind, meaning.lag, meaning.why)
    # If a scale is NaN, the comparison is false, and the element continues the run.
    return (
        is_next
        and is_same
        and not (abs(start.scale - meaning.scale) > _SCALE_TOLERANCE * abs(start.scale))
    )


def element_range(first: int, last: int) -> str:
    """Returns a range of elements as an index."""
    return f"[{first}]" if first == last else f"[{first}:{last + 1}]"
