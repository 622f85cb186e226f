"""Contradictions between the declared meaning of vectors and their values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rlds.auditing.meaning import ElementMeaning
from rlds.auditing.numeric_fields import NumericFields
from rlds.auditing.vectors import VectorMeaning, element_range, learn_usual_values, vector_meanings
from rlds.sources.episodes import Episodes

__all__ = ["contradictions", "contradictions_in", "differences_between"]

# The ratio of the second unit of a key to the first unit.
_UNIT_RATIOS = {("deg", "rad"): math.degrees(1), ("mm", "m"): 1000.0, ("cm", "m"): 100.0}
# Datasets do not declare the factor between changes and velocities.
_COMPATIBLE_KINDS = {
    "absolute": {"absolute"},
    "delta": {"delta", "velocity"},
    "velocity": {"delta", "velocity"},
}
# Bounds of the measured over the declared scale: robots undershoot or overshoot deltas.
_SCALE_BOUNDS = {"absolute": (1 / 1.3, 1.3), "delta": (1 / 1.1, 1 / 0.3)}
# Largest ratios of the scales of two datasets that the reach of their arms may explain.
_MAX_SCALE_RATIOS = {"absolute": 1.3, "delta": 4.0, "velocity": 4.0}
# The number of episodes to read from each dataset.
_NUM_SAMPLED_EPISODES = 20
# Tolerance of the logarithm of a scale, if one unit is undeclared.
_LOG_SCALE_TOLERANCE = 0.03


def contradictions(
    vectors: Sequence[VectorMeaning], kinds: Mapping[str, str], units: Mapping[str, str]
) -> Iterator[str]:
    """Yields the runs of elements whose values contradict the declared meaning.

    Args:
      vectors: The meaning inferred from the values.
      kinds: The declared kinds of action elements by name: "absolute", "delta" or
        "velocity".
      units: The declared units of action and state elements by name.
    """
    for vector in vectors:
        texts = []
        for name, meaning in zip(vector.names, vector.elements):
            state = vector.states[meaning.state] if meaning.state >= 0 else ""
            kind, unit = kinds.get(name, ""), units.get(name, "")
            text = _check_kind(meaning, kind) or _check_angle(meaning, unit)
            texts.append(text or _check_unit(meaning, state, unit, units.get(state, "")))
        yield from _join_runs(vector.field, zip(vector.indices, texts))


def contradictions_in(episodes: Episodes) -> list[str]:
    """Returns the `contradictions` of a dataset with declared actions, from a sample."""
    fields = NumericFields(episodes, _NUM_SAMPLED_EPISODES)
    if not (fields.kinds or fields.units):
        return []
    return [*contradictions(learn_usual_values(fields).vectors, fields.kinds, fields.units)]


def differences_between(datasets: Mapping[str, Episodes]) -> Iterator[str]:
    """Yields the runs of elements whose meaning differs between datasets.

    Args:
      datasets: The episodes of each dataset, by name; a sample is read.
    """
    by_field: dict[str, dict[int, dict[str, ElementMeaning]]] = {}
    for name, episodes in datasets.items():
        for vector in vector_meanings(episodes, most=_NUM_SAMPLED_EPISODES):
            by_index = by_field.setdefault(vector.field, {})
            for index, meaning in zip(vector.indices, vector.elements):
                if meaning.kind in _COMPATIBLE_KINDS and meaning.scale > 0:
                    by_index.setdefault(index, {})[name] = meaning
    for field, by_index in by_field.items():
        texts = ((index, _describe_difference(by_index[index])) for index in sorted(by_index))
        yield from _join_runs(field, texts)


def _describe_difference(meanings: Mapping[str, ElementMeaning]) -> str:
    first, *other_meanings = meanings.values()
    if any(other.kind not in _COMPATIBLE_KINDS[first.kind] for other in other_meanings):
        text = ", ".join(f"{meaning.kind} in {name}" for name, meaning in meanings.items())
        return f"the values are {text}"
    max_log_ratio = math.log(_MAX_SCALE_RATIOS[first.kind])
    if any(abs(math.log(other.scale / first.scale)) > max_log_ratio for other in other_meanings):
        text = ", ".join(f"{meaning.scale:.3g} in {name}" for name, meaning in meanings.items())
        return f"by the values, the scale is {text}"
    return ""


def _join_runs(field: str, texts: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Joins equal texts about consecutive elements."""
    numbered = enumerate(texts)
    for (text, _), run in itertools.groupby(numbered, lambda n: (n[1][1], n[1][0] - n[0])):
        indices = [index for _, (index, _) in run]
        if text:
            yield f"{field}{element_range(indices[0], indices[-1])}: {text}"


def _check_kind(meaning: ElementMeaning, declared_kind: str) -> str:
    compatible_kinds = _COMPATIBLE_KINDS.get(meaning.kind, {declared_kind})
    if declared_kind in _COMPATIBLE_KINDS and declared_kind not in compatible_kinds:
        return f"declared as {declared_kind}, but the values are {meaning.kind}"
    return ""


def _check_angle(meaning: ElementMeaning, declared_unit: str) -> str:
    if meaning.unit and declared_unit and declared_unit != meaning.unit:
        return f"declared in {declared_unit}, but it wraps like an angle in {meaning.unit}"
    return ""


def _check_unit(meaning: ElementMeaning, state: str, unit: str, state_unit: str) -> str:
    if meaning.kind not in _SCALE_BOUNDS or not meaning.scale > 0:
        return ""
    if unit and state_unit:
        if (expected := _factor(unit, state_unit)) is None:
            return ""
        low, high = _SCALE_BOUNDS[meaning.kind]
        if low <= meaning.scale / expected <= high:
            return ""
        units = f"declared in {unit}, and the state in {state_unit}"
        return f"{units}: the scale is not {expected:.3g}, as it should be"
    if meaning.kind != "absolute":
        return ""
    for pair in _UNIT_RATIOS:
        for first, second in (pair, pair[::-1]):
            factor = _factor(first, second)
            is_near = factor and abs(math.log(meaning.scale / factor)) <= _LOG_SCALE_TOLERANCE
            if not is_near or state_unit == first:
                continue
            by_scale = f"in {first} if the state is in {second}, by its scale"
            if unit:
                return "" if unit == first else f"declared in {unit}, but {by_scale}"
            return f"{by_scale}; no unit is declared"
    return ""


def _factor(unit: str, other: str) -> float | None:
    if unit == other:
        return 1.0
    factor = _UNIT_RATIOS.get((unit, other))
    inverse = _UNIT_RATIOS.get((other, unit))
    return factor or (1 / inverse if inverse else None)
