"""Contradictions between the declared meaning of vectors and their numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rlds.auditing.meaning import ElementMeaning
from rlds.auditing.step_numbers import StepNumbers
from rlds.auditing.vectors import VectorMeaning, element_range, usual_of, vector_meanings
from rlds.sources.episodes import Episodes

__all__ = ["contradictions", "contradictions_in", "unlike"]

# The ratio of the second unit to the first one.
_UNITS = {("deg", "rad"): math.degrees(1), ("mm", "m"): 1000.0, ("cm", "m"): 100.0}
# A change and a velocity differ by a factor, which no dataset declares.
_ALIKE = {
    "absolute": {"absolute"},
    "delta": {"delta", "velocity"},
    "velocity": {"delta", "velocity"},
}
# Bounds of the ratio of the measured to the declared scale: robots undershoot or overshoot deltas.
_REACHED = {"absolute": (1 / 1.3, 1.3), "delta": (1 / 1.1, 1 / 0.3)}
# Larger factors between the scales of two datasets are not due to the reach of their arms.
_UNLIKE = {"absolute": 1.3, "delta": 4.0, "velocity": 4.0}
# The number of episodes to read from each dataset.
_SAMPLE = 20
# Tolerance of the scale to the ratio of two units, if nothing else is declared.
_NEAR = 0.03


def contradictions(
    vectors: Sequence[VectorMeaning], kinds: Mapping[str, str], units: Mapping[str, str]
) -> Iterator[str]:
    """Yields the runs of elements whose numbers contradict the declared meaning.

    Args:
      vectors: The meaning that was inferred from the numbers.
      kinds: The declared kind of elements of actions, by their names: "absolute", "delta" or
        "velocity".
      units: The declared unit of elements of actions and states, by their names.
    """
    for vector in vectors:
        texts = []
        for name, meaning in zip(vector.names, vector.elements):
            state = vector.states[meaning.state] if meaning.state >= 0 else ""
            text = _of_kind(meaning, kinds.get(name, "")) or _of_angle(meaning, units.get(name, ""))
            texts.append(
                text or _of_unit(meaning, state, units.get(name, ""), units.get(state, ""))
            )
        yield from _in_runs(vector.field, zip(vector.places, texts))


def contradictions_in(episodes: Episodes) -> list[str]:
    """Returns the `contradictions` of a dataset with declared actions, from a sample."""
    numbers = StepNumbers(episodes, _SAMPLE)
    if not (numbers.kinds or numbers.units):
        return []
    return [*contradictions(usual_of(numbers).vectors, numbers.kinds, numbers.units)]


def unlike(datasets: Mapping[str, Episodes]) -> Iterator[str]:
    """Yields the runs of elements whose numbers differ in meaning between datasets.

    Args:
      datasets: The episodes of each dataset, by its name; a sample of them is read.
    """
    by_field: dict[str, dict[int, dict[str, ElementMeaning]]] = {}
    for name, episodes in datasets.items():
        for vector in vector_meanings(episodes, most=_SAMPLE):
            by_index = by_field.setdefault(vector.field, {})
            for index, meaning in zip(vector.places, vector.elements):
                if meaning.kind in _ALIKE and meaning.scale > 0:
                    by_index.setdefault(index, {})[name] = meaning
    for field, by_index in by_field.items():
        texts = ((index, _unlike(by_index[index])) for index in sorted(by_index))
        yield from _in_runs(field, texts)


def _unlike(meanings: Mapping[str, ElementMeaning]) -> str:
    first, *other_meanings = meanings.values()
    if any(other.kind not in _ALIKE[first.kind] for other in other_meanings):
        listed = ", ".join(f"{it.kind} in {name}" for name, it in meanings.items())
        return f"the numbers are {listed}"
    max_log_ratio = math.log(_UNLIKE[first.kind])
    if any(abs(math.log(other.scale / first.scale)) > max_log_ratio for other in other_meanings):
        listed = ", ".join(f"{it.scale:.3g} in {name}" for name, it in meanings.items())
        return f"by the numbers, the scale is {listed}"
    return ""


def _in_runs(field: str, texts: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yields the statements about elements, once for consecutive ones."""
    numbered = enumerate(texts)
    for (text, _), run in itertools.groupby(numbered, lambda it: (it[1][1], it[1][0] - it[0])):
        indices = [index for _, (index, _) in run]
        if text:
            yield f"{field}{element_range(indices[0], indices[-1])}: {text}"


def _of_kind(meaning: ElementMeaning, declared: str) -> str:
    if meaning.kind in _ALIKE and declared in _ALIKE and declared not in _ALIKE[meaning.kind]:
        return f"declared as {declared}, but the numbers are {meaning.kind}"
    return ""


def _of_angle(meaning: ElementMeaning, declared: str) -> str:
    if meaning.unit and declared and declared != meaning.unit:
        return f"declared in {declared}, but it wraps as an angle in {meaning.unit} does"
    return ""


def _of_unit(meaning: ElementMeaning, state: str, unit: str, state_unit: str) -> str:
    if meaning.kind not in _REACHED or not meaning.scale > 0:
        return ""
    if unit and state_unit:
        if (expected := _factor(unit, state_unit)) is None:
            return ""
        low, high = _REACHED[meaning.kind]
        if low <= meaning.scale / expected <= high:
            return ""
        units = f"declared in {unit}, and what follows in {state_unit}"
        return f"{units}: the scale is not {expected:.3g}, as it should be"
    if meaning.kind != "absolute":
        return ""
    for pair in _UNITS:
        for first, second in (pair, pair[::-1]):
            factor = _factor(first, second)
            if not factor or abs(math.log(meaning.scale / factor)) > _NEAR or state_unit == first:
                continue
            by_scale = f"in {first} if what follows is in {second}, by its scale"
            if unit:
                return "" if unit == first else f"declared in {unit}, but {by_scale}"
            return f"{by_scale}; nothing declares it"
    return ""


def _factor(unit: str, other: str) -> float | None:
    if unit == other:
        return 1.0
    factor = _UNITS.get((unit, other))
    inverse = _UNITS.get((other, unit))
    return factor or (1 / inverse if inverse else None)
