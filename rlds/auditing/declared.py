"""Contradictions between the declared meaning of actions and their numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rlds.auditing.meaning import ElementMeaning
from rlds.auditing.step_numbers import StepNumbers
from rlds.auditing.vectors import VectorMeaning, element_range, usual_of, vector_meanings
from rlds.sources.episodes import Episodes

__all__ = ["contradictions", "contradictions_in", "unlike"]

# The ratio of the second unit to the first.
_UNITS = {("deg", "rad"): math.degrees(1), ("mm", "m"): 1000.0, ("cm", "m"): 100.0}
# A change and a velocity differ by a factor, which nothing declares.
_ALIKE = {
    "absolute": {"absolute"},
    "delta": {"delta", "velocity"},
    "velocity": {"delta", "velocity"},
}
# Between which parts of a declared scale one is that was reached, as nothing overshoots.
_REACHED = {"absolute": (1 / 1.3, 1.3), "delta": (1 / 1.1, 1 / 0.3)}
# By which factor the scales of two datasets differ, if that is not how far their arms get.
_UNLIKE = {"absolute": 1.3, "delta": 4.0, "velocity": 4.0}
# The number of episodes to read of a dataset.
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
        for name, found in zip(vector.names, vector.elements):
            state = vector.states[found.state] if found.state >= 0 else ""
            text = _of_kind(found, kinds.get(name, ""))
            texts.append(text or _of_unit(found, state, units.get(name, ""), units.get(state, "")))
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
      datasets: Their episodes, by their names; some of each are read.
    """
    by_place: dict[str, dict[int, dict[str, ElementMeaning]]] = {}
    for name, episodes in datasets.items():
        for vector in vector_meanings(episodes, most=_SAMPLE):
            places = by_place.setdefault(vector.field, {})
            for place, found in zip(vector.places, vector.elements):
                if found.kind in _ALIKE and found.scale > 0:
                    places.setdefault(place, {})[name] = found
    for field, places in by_place.items():
        yield from _in_runs(field, ((place, _unlike(places[place])) for place in sorted(places)))


def _unlike(found: Mapping[str, ElementMeaning]) -> str:
    first, *others = found.values()
    if any(other.kind not in _ALIKE[first.kind] for other in others):
        said = ", ".join(f"{it.kind} in {name}" for name, it in found.items())
        return f"the numbers are {said}"
    most = math.log(_UNLIKE[first.kind])
    if any(abs(math.log(other.scale / first.scale)) > most for other in others):
        said = ", ".join(f"{it.scale:.3g} in {name}" for name, it in found.items())
        return f"by the numbers, the scale is {said}"
    return ""


def _in_runs(field: str, texts: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yields the statements about elements, once for consecutive ones."""
    numbered = enumerate(texts)
    for (text, _), run in itertools.groupby(numbered, lambda it: (it[1][1], it[1][0] - it[0])):
        places = [place for _, (place, _) in run]
        if text:
            yield f"{field}{element_range(places[0], places[-1])}: {text}"


def _of_kind(found: ElementMeaning, declared: str) -> str:
    if found.kind in _ALIKE and declared in _ALIKE and declared not in _ALIKE[found.kind]:
        return f"declared as {declared}, but the numbers are {found.kind}"
    return ""


def _of_unit(found: ElementMeaning, state: str, unit: str, of_state: str) -> str:
    if found.kind not in _REACHED or not found.scale > 0:
        return ""
    if unit and of_state:
        if (expected := _factor(unit, of_state)) is None:
            return ""
        low, high = _REACHED[found.kind]
        if low <= found.scale / expected <= high:
            return ""
        units = f"declared in {unit}, and what follows in {of_state}"
        return f"{units}: the scale is not {expected:.3g}, as it should be"
    if found.kind != "absolute":
        return ""
    for pair in _UNITS:
        for first, second in (pair, pair[::-1]):
            factor = _factor(first, second)
            if not factor or abs(math.log(found.scale / factor)) > _NEAR or of_state == first:
                continue
            by_scale = f"in {first} if what follows is in {second}, by its scale"
            if unit:
                return "" if unit == first else f"declared in {unit}, but {by_scale}"
            return f"{by_scale}; nothing declares it"
    return ""


def _factor(unit: str, other: str) -> float | None:
    if unit == other:
        return 1.0
    found = _UNITS.get((unit, other))
    turned = _UNITS.get((other, unit))
    return found or (1 / turned if turned else None)
