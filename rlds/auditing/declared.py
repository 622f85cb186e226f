"""What the data declares of its actions, against what the numbers say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rlds.auditing.meaning import ElementMeaning
from rlds.auditing.vectors import VectorMeaning, element_range

__all__ = ["contradictions"]

# How many of the first unit are one of the second.
_UNITS = {("deg", "rad"): math.degrees(1), ("mm", "m"): 1000.0, ("cm", "m"): 100.0}
# A change and a velocity differ by a factor, which nothing declares.
_ALIKE = {
    "absolute": {"absolute"},
    "delta": {"delta", "velocity"},
    "velocity": {"delta", "velocity"},
}
# Between which parts of a declared scale one is that was reached, as nothing overshoots.
_REACHED = {"absolute": (1 / 1.3, 1.3), "delta": (1 / 1.1, 1 / 0.3)}
# How near the scale is to that of two units, if nothing else is declared.
_NEAR = 0.03


def contradictions(
    vectors: Sequence[VectorMeaning], kinds: Mapping[str, str], units: Mapping[str, str]
) -> Iterator[str]:
    """Yields in which runs of elements the numbers say something else than the data.

    Args:
      vectors: What the numbers say.
      kinds: The declared kind of elements of actions, by their names: "absolute", "delta" or
        "velocity".
      units: The declared unit of elements of actions and states, by their names.
    """
    for vector in vectors:
        run: list[tuple[int, str]] = []
        for place, name, found in zip(vector.places, vector.names, vector.elements):
            state = vector.states[found.state] if found.state >= 0 else ""
            text = _of_kind(found, kinds.get(name, ""))
            text = text or _of_unit(found, state, units.get(name, ""), units.get(state, ""))
            if run and (run[-1][0] + 1 != place or run[-1][1] != text):
                yield from _said(vector.field, run)
                run = []
            run.append((place, text))
        yield from _said(vector.field, run)


def _said(field: str, run: Sequence[tuple[int, str]]) -> Iterator[str]:
    if run and run[0][1]:
        yield f"{field}{element_range(run[0][0], run[-1][0])}: {run[0][1]}"


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
