"""Checks of episodes, each against the usual values of the dataset.

Thresholds are in medians and median deviations over the episodes, or in units of the episode
itself. What follows from another fault of an episode is not reported beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlds.auditing import camera_checks
from rlds.auditing.findings import (
    EpisodeFinding,
    KnownSplit,
    MeasuredEpisodes,
    deviations,
    in_deviations,
    log,
    mean,
    median,
    originals,
    quantile,
)
from rlds.auditing.measures import LAGS
from rlds.auditing.registry import OF_ROWS, OF_THUMBNAILS, ONE_PASS, DataCheck

__all__ = [
    "CHECKS",
    "LEAST_EPISODES",
    "USUAL_PART",
    "Faults",
    "find_faults",
]

LEAST_EPISODES = 8
"""Of fewer episodes nothing is usual."""

USUAL_PART = 0.25
"""A finding of more than this share of the episodes is no fault of a single one."""

# An element that is dead in more than this part of the episodes may be so.
_RARE = 0.2
_TINY = 1e-12
_USUAL = LAGS.index(0)
# The part of its range by which an element is smooth, whatever its second differences are.
_SMOOTH = 1e-4
# The least excess of roughness, in most rows, that is jitter; as a logarithm.
_ROUGHER = 0.25
# The largest distance of near duplicates; the number of projections to search them in first.
_NEAR, _DIRECTIONS, _PAIRS_AT_ONCE = 0.05, 8, 1000
# Correlations of 1 leave this to explain: less is noise.
_NEARLY = 1.005


class Faults(NamedTuple):
    """The faults in the episodes of a dataset.

    Attributes:
      findings: The faults of single episodes, the most serious ones first.
      usual: The faults that more than a quarter of the episodes have, in sentences, by the names of
        the checks.
    """

    findings: list[EpisodeFinding]
    usual: Mapping[str, Sequence[str]]


def find_faults(given: MeasuredEpisodes) -> Faults:
    """Returns the faults of episodes.

    Nothing is said of fewer than eight episodes, but for those checks that need no others.
    """
    usual: dict[str, Sequence[str]] = {}
    kept: list[EpisodeFinding] = []
    hidden: set[tuple[str, int]] = set()
    for check in CHECKS:
        number = len(given.filmed) if check.is_of_pictures else len(given)
        if check.find is None or (number < LEAST_EPISODES and check.name not in _ALONE):
            continue
        found: dict[int, EpisodeFinding] = {}
        for finding in check.find(given):
            before = found.get(finding.episode)
            if before is None or finding.size > before.size:
                found[finding.episode] = finding
        if len(found) > max(USUAL_PART * number, 2):
            part = f"{len(found)} of {number} episodes"
            usual[check.name] = [f"{check.what}, in {part}: it is usual here"]
            continue  # It says nothing of an episode, and explains nothing in it.
        hidden |= {(name, episode) for name in check.hides for episode in found}
        shown = (it for it in found.values() if (check.name, it.episode) not in hidden)
        kept += sorted(shown, key=lambda it: (-it.size, it.episode))
    return Faults(kept, usual)


# --- The checks ----------------------------------------------------------------------------------


def _not_finite(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for number in np.flatnonzero(given.of("not_finite")).tolist():
        rows = given.measures[number].not_finite
        yield EpisodeFinding(number, "not finite", f"NaN or infinite in {_rows(rows)}")


def _lengths(
    given: MeasuredEpisodes, name: str, sign: int, times: float
) -> Iterator[EpisodeFinding]:
    for group in given.groups:
        rows = given.rows[group]
        logs = sign * np.log(np.maximum(rows, 1))
        middle, high = np.quantile(logs, (0.5, 0.9))
        far = (logs - high) / (times * max(high - middle, 0.15))
        for place in np.flatnonzero(far > 1):
            usual = f"{rows[place]:.0f} rows, usually {np.median(rows):.0f}"
            yield EpisodeFinding(int(group[place]), name, usual, size=far[place])


def _dead(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    usual = median(given.range)
    is_dead = (given.range <= 1e-3 * usual) & (usual > 0)
    # All others move: those of a few values, nearly each of them, and well.
    others = np.where(is_dead, np.nan, given.range)
    has_levels = given.has_levels
    least = np.where(has_levels, quantile(others, 0.05), quantile(others, 0.03))
    is_dead &= (is_dead.mean(0) < np.where(has_levels, _RARE, 0.03)) & (
        least > np.where(has_levels, 0.1, 0.3) * usual
    )
    for number in np.flatnonzero(is_dead.any(1)).tolist():
        names = _named(given, is_dead[number])
        yield EpisodeFinding(number, "dead", f"{names} never changes")


def _saturated(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    shares = given.of("at_end")
    limit = np.maximum(0.15, 2.5 * np.quantile(shares, 0.9, axis=0))
    shares = np.where(given.has_levels, shares, 0)
    for number in np.flatnonzero((shares > limit).any(1)).tolist():
        element = int((shares[number] / limit).argmax())
        share = shares[number, element]
        text = f"{given.names[element]} is at its end in {share:.0%} of the rows that move"
        yield EpisodeFinding(number, "saturated", text, size=share / limit[element])


def _spike(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    jump, own = 2 * given.of("jump"), given.of("rough")[:, 1]
    usual = median(jump)
    # The usual spread of the largest jumps counts, too: those of impacts are large now and then.
    spread = np.exp(3 * np.fmax(log(quantile(jump, 0.9)) - log(usual), 0.27))
    limits = np.maximum(usual * spread, 4 * own)
    # Elements that rest in most rows, like grippers, are at their other end now and then.
    span = median(given.range)
    rests = (median(given.of("pace")[:, 0]) < 0.5 * usual) & (usual < 0.02 * span)
    limits = np.maximum(limits, np.where(rests, span, 0))
    sizes = np.where(given.has_levels & (limits > 0), jump / np.maximum(limits, _TINY), 0)
    for number in np.flatnonzero((sizes > 1).any(1)).tolist():
        element = int(sizes[number].argmax())
        times = jump[number, element] / max(usual[element], _TINY)
        text = f"{given.names[element]} jumps and is back, {times:.1f} times as far as usual"
        row = int(given.measures[number].jump_row[element])
        yield EpisodeFinding(number, "spike", text, row, sizes[number, element])


def _jitter(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for name, part in given.parts.items():
        # Their quantiles 0.5 and 0.9: one row makes none larger, a few rows the latter alone.
        rough, pace = given.of("rough")[:, :, part], given.of("pace")[:, :, part]
        least = _SMOOTH * np.nan_to_num(median(given.range[:, part]))
        kept = np.isfinite(log(rough[:, 1])).mean(0) > 0.9
        if not kept.any():
            continue
        levels = log(rough + least)[:, :, kept]
        ratios = levels - log(pace + least)[:, :, kept]
        moved = mean(levels - median(levels))
        rougher = mean(ratios - median(ratios))
        far = np.minimum(deviations(mean(moved), 0.12) / 3, deviations(mean(rougher), 0.04) / 4)
        for number in np.flatnonzero((far > 1) & (moved.min(1) > _ROUGHER)).tolist():
            times = np.exp(mean(moved[number]))
            text = f"the {name} is {times:.1f} times as rough as usual, from row to row"
            yield EpisodeFinding(number, "jitter", text, size=far[number])


def _frozen(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    runs = given.of("frozen")
    limit = max(5.0, 2.5 * np.quantile(runs, 0.9) + 2)
    for number in np.flatnonzero(runs >= limit).tolist():
        row = given.measures[number].frozen_row
        text = f"the state stays exactly for {runs[number]:.0f} rows while the action changes"
        yield EpisodeFinding(number, "frozen", text, row, runs[number] / limit)


def _idle(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for place, name in enumerate(("at first", "at last")):
        rows = given.of("idle")[:, place]
        for group in given.groups:
            inner = rows[group]
            middle, high = np.quantile(inner, (0.5, 0.9))
            limit = max(10.0, high + 3 * (high - middle))
            bad = (inner > limit) & (inner > 0.15 * given.rows[group])
            for number in group[bad].tolist():
                text = f"nothing moves in {rows[number]:.0f} rows {name}"
                row = 0 if place == 0 else int(given.rows[number] - rows[number])
                yield EpisodeFinding(number, "idle", text, row, rows[number] / limit)


def _scale(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for name, part in given.parts.items():
        logs = log(given.range[:, part])
        kept = np.isfinite(logs).mean(0) > 0.8
        if not kept.any():
            continue
        # All elements are larger, or all are smaller.
        moved = (logs - median(logs))[:, kept]
        has_levels = given.has_levels[part][kept]
        moved = np.where(has_levels, moved, np.maximum(moved, 0))
        least = np.where(np.isnan(moved), 0, moved)
        middle = median(moved.T)
        spread = max(1.4826 * float(median(np.abs(middle))), 0.1)
        far = np.fmax(least.min(1) / max(4 * spread, 0.9), middle / max(7 * spread, 1.4))
        far = np.fmax(far, -least.max(1) / max(6 * spread, 2.0))
        for number in np.flatnonzero(far > 1).tolist():
            times = np.exp(median(moved[number]))
            text = f"the {name} spans {times:.3g} times as much as usual: another unit?"
            yield EpisodeFinding(number, "scale", text, size=far[number])


def _gains(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes whose actions are larger or smaller than usual for their effect."""
    gains, fits = given.of("gains"), np.abs(given.of("fits")[:, _USUAL])
    if not gains.size:
        return
    moved = np.where(fits > 0.8, gains - median(gains), np.nan)
    far = np.abs(moved) / np.maximum(6 * 1.4826 * median(np.abs(moved)), 0.4)
    for number in np.flatnonzero((far > 1).any(1)).tolist():
        chosen = np.nan_to_num(far[number]) > 1
        times = np.exp(median(moved[number][chosen]))
        name = _named(given, np.concatenate([np.zeros(given.num_states, bool), chosen]))
        text = f"{name} is {times:.3g} times as large as usual for the same motion: another unit?"
        yield EpisodeFinding(number, "gain", text, size=float(np.nanmax(far[number])))


def _offset(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    low, high = given.of("low"), given.of("high")
    # The range in which nearly all episodes are.
    least, most = quantile(low, 0.1), quantile(high, 0.9)
    reach = np.maximum(most - least, _TINY)
    outside = np.maximum(low - most, least - high) / reach
    # What stays in each episode, like the place of a goal, is where somebody put it.
    bad = outside > np.where(median(given.range) > 0, 0.5, 1.0)
    bad &= bad.mean(0) < _RARE
    for number in np.flatnonzero(bad.any(1)).tolist():
        element = int(np.where(bad[number], outside[number], -1).argmax())
        text = f"{_named(given, bad[number])} is far from where it usually is"
        yield EpisodeFinding(number, "offset", text, size=2 * outside[number, element])


def _gap(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    sizes = given.of("gap")
    limit = max(2.5, 1.5 * float(np.quantile(sizes, 0.9)))
    for number in np.flatnonzero(sizes > limit).tolist():
        row = given.measures[number].gap_row
        text = f"all of the state jumps in row {row}, by {sizes[number]:.1f} steps at once"
        yield EpisodeFinding(number, "gap", text, row, sizes[number] / limit)


def _repeated(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    if not given.has_levels.any():
        return
    shares = given.of("repeated") / np.maximum(given.rows, 1)
    limit = max(0.03, 2 * float(np.quantile(shares, 0.9)) + 0.02)
    for number in np.flatnonzero(shares > limit).tolist():
        text = f"{shares[number]:.0%} of the rows are exactly the row before"
        yield EpisodeFinding(number, "repeated", text, size=shares[number] / limit)


def _known_relations(given: MeasuredEpisodes, least: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """The elements whose relation is known in most episodes, and the correlations, then positive.

    Returns:
      The numbers of the elements, and the correlations, of shape `[episodes, LAGS, elements]`.
    """
    fits = given.of("fits")
    usual = median(fits)[_USUAL] if fits.size else np.zeros(0)
    known = np.flatnonzero(np.abs(np.nan_to_num(usual)) > least)
    return known, fits[:, :, known] * np.sign(usual[known])


def _lags(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    known, fits = _known_relations(given, 0.9)
    if not len(known):
        return
    # The unexplained share at each lag, as a logarithm: the mean over elements.
    left = mean(log(_NEARLY - np.sign(fits) * np.minimum(np.abs(fits), 1) ** 2))
    others = np.array([place for place in range(len(LAGS)) if place != _USUAL])
    gains = np.nan_to_num(left[:, [_USUAL]] - left[:, others], nan=-9.0)
    best, gain = gains.argmax(1), gains.max(1)
    if (gain > 0).mean() > _RARE:
        return  # Forces lead to motion sooner or later, as it is fast or slow.
    far = deviations(gain, 0.05) / 3
    for number in np.flatnonzero((far > 1) & (gain > 0.2)).tolist():
        rows = LAGS[others[best[number]]]
        how = f"{_rows(abs(rows))} {'later' if rows > 0 else 'earlier'}"
        text = f"the state follows the action {how} than usual"
        yield EpisodeFinding(number, "lag", text, size=far[number])


def _signs(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    known, fits = _known_relations(given)
    for element, column in zip(known.tolist(), fits[:, _USUAL].T):
        far = deviations(-column, 0.05) / 6
        for number in np.flatnonzero((far > 1) & (column < -0.6 * median(column))).tolist():
            name = given.names[given.num_states + element]
            text = (
                f"{name} has the other sign: it correlates by {column[number]:.2f} with the motion"
            )
            yield EpisodeFinding(number, "sign", text, size=far[number])


def _relations(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    known, fits = _known_relations(given)
    for place, element in enumerate(known.tolist()):
        column = fits[:, _USUAL, place]
        relation = given.profile.relations[element]
        if relation.kind == "gripper":
            continue  # One that closes for a moment correlates with little.
        far = deviations(-column, 0.04) / 8
        lost = column < 0.35 * median(column)
        for of in (given.num_states + element, relation.state):
            lost &= given.range[:, of] > 0.5 * median(given.range[:, of])
        for number in np.flatnonzero((far > 1) & lost).tolist():
            name = given.names[given.num_states + element]
            text = f"{name} does not lead to what it usually leads to"
            yield EpisodeFinding(number, "relation", text, size=far[number])


def _time_order(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    stops, rows = given.of_times("stops"), given.of_times("stops_row")
    for number in np.flatnonzero(stops > 0).tolist():
        text = f"the time does not grow in {_rows(int(stops[number]))}"
        yield EpisodeFinding(number, "time order", text, int(rows[number]))


def _time_gap(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    gaps, rows = given.of_times("gap"), given.of_times("gap_row")
    limit = np.fmax(1.8, 1.5 * quantile(gaps, 0.8))
    for number in np.flatnonzero(gaps > limit).tolist():
        text = f"{gaps[number]:.1f} times the usual interval of time between two rows"
        yield EpisodeFinding(number, "time gap", text, int(rows[number]), gaps[number] / limit)


def _rates(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    intervals = given.of_times("interval")
    usual, moved = median(intervals), np.abs(log(intervals) - median(log(intervals)))
    far = np.nan_to_num(moved / np.fmax(6 * 1.4826 * median(moved), 0.05))
    for number in np.flatnonzero(far > 1).tolist():
        text = f"a row every {intervals[number]:.4g}, usually {usual:.4g}"
        yield EpisodeFinding(number, "rate", text, size=far[number])


def _duplicates(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    yield from _twins("duplicate", [given.known("")])


def _leaks(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for other in given.earlier:
        yield from _twins("leak", [other, given.known("")])


def _twins(check: str, splits: Sequence[KnownSplit]) -> Iterator[EpisodeFinding]:
    """Yields episodes of the last split that are in the first one, which may be the same."""
    one, other = splits[0], splits[-1]
    stop, where = len(one.rows), f" of {one.split}" if len(splits) > 1 else ""
    begin = stop if len(splits) > 1 else 0
    digests = np.concatenate([it.digests for it in splits])
    first, places = originals(digests), np.arange(len(digests))
    same = places[(digests > 0) & (first < np.minimum(places, stop)) & (places >= begin)]
    for place in same.tolist():
        text = f"the numbers are those of episode {one.numbers[first[place]]}{where}"
        yield EpisodeFinding(place - begin, check, text)
    if not (len(one.rows) and len(other.rows)) or [*one.names] != [*other.names]:
        return
    rows = np.concatenate([it.rows for it in splits])
    sketches = in_deviations(np.concatenate([it.sketches for it in splits]))
    kept = np.setdiff1d(places, same)
    for length in np.unique(rows[kept]) if sketches.size else ():
        alike = kept[rows[kept] == length]
        for near, place in (alike[[*pair]].tolist() for pair in _near_pairs(sketches[alike])):
            if near < stop and place >= begin:
                text = f"nearly the same as episode {one.numbers[near]}{where}"
                yield EpisodeFinding(place - begin, check, text)


def _near_pairs(points: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields pairs of points whose coordinates differ by 5 % of their spread, in the mean."""
    width = points.shape[1]
    directions = np.random.default_rng(0).normal(size=(width, min(width, _DIRECTIONS)))
    # Distances are no larger from some direction than they are.
    shadow = points @ np.linalg.qr(directions)[0]
    squares, limit = (shadow**2).sum(1), _NEAR**2 * width
    for begin in range(0, len(points), _PAIRS_AT_ONCE):
        part = slice(begin, begin + _PAIRS_AT_ONCE)
        apart = squares[part, None] + squares[begin:] - 2 * shadow[part] @ shadow[begin:].T
        for one, other in zip(*(found + begin for found in np.nonzero(apart < limit))):
            if one < other and ((points[one] - points[other]) ** 2).sum() < limit:
                yield int(one), int(other)


def _task(given: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for number, task in enumerate(given.tasks):
        if task is not None and not task.strip():
            yield EpisodeFinding(number, "task", "the instruction is empty")


def _rows(number: int) -> str:
    return f"{number} row" if number == 1 else f"{number} rows"


def _named(given: MeasuredEpisodes, chosen: np.ndarray) -> str:
    names = [given.names[element] for element in np.flatnonzero(chosen).tolist()]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


_OF_RELATIONS = ("gain", "lag", "sign", "relation")
_BETTER = "mean pictures fit 1.6 times better so, by 3 median deviations, where most others do not"
CHECKS: Sequence[DataCheck] = (
    *ONE_PASS,
    DataCheck(
        "not finite",
        "numbers that are NaN or infinite",
        "training: one of them makes every weight NaN",
        "any",
        _not_finite,
        (*OF_ROWS, *_OF_RELATIONS, "dead"),
    ),
    DataCheck(
        "short",
        "far fewer rows than the episodes of its task have",
        "imitation: it was stopped by accident, or shows no whole task",
        "logarithms of lengths: below the 10 % quantile, by 2.5 times what this is below the"
        " median",
        functools.partial(_lengths, name="short", sign=-1, times=2.5),
        (*OF_ROWS, *_OF_RELATIONS, "dead", "scale", "offset"),
    ),
    DataCheck(
        "long",
        "far more rows than the episodes of its task have",
        "imitation: several tries, or a recording that was not stopped",
        "logarithms of lengths: above the 90 % quantile, by twice what that is above the median",
        functools.partial(_lengths, name="long", sign=1, times=2),
        ("gap",),
    ),
    DataCheck(
        "time order",
        "times that do not grow from row to row",
        "all: rows are in another order, or written twice",
        "any",
        _time_order,
        ("time gap", "rate"),
    ),
    DataCheck(
        "time gap",
        "an interval of time that is far longer than the others",
        "world models and chunks of actions: rows were dropped",
        "1.8 times the median interval, and 1.5 times the 80 % quantile of the other episodes",
        _time_gap,
        ("gap",),
    ),
    DataCheck(
        "rate",
        "more or less time from row to row than in other episodes",
        "training: speeds and changes are of another size",
        "medians of intervals: 5 %, and 6 median deviations of their logarithms",
        _rates,
    ),
    DataCheck(
        "scale",
        "the state or the action spans far more or less than usual",
        "training: it is in another unit, and shifts every normalization",
        "logarithms of ranges: all elements 2.5 times, or the median one 4 times; of less, 7 times",
        _scale,
        (*OF_ROWS, *_OF_RELATIONS, "offset"),
    ),
    DataCheck(
        "dead",
        "an element never changes, and does in other episodes",
        "training: a sensor or a motor was off",
        "a thousandth of the median range, where 19 of 20 others have a tenth of it",
        _dead,
        (*OF_ROWS, *_OF_RELATIONS),
    ),
    DataCheck(
        "frozen",
        "the state stays exactly while the action changes",
        "imitation: what was seen is old; a driver hung",
        "5 rows, and 2.5 times the 90 % quantile of the other episodes",
        _frozen,
        ("gap", "spike", "jitter", "repeated", "saturated", *_OF_RELATIONS),
    ),
    DataCheck(
        "idle",
        "nothing moves for long at first or at last",
        "imitation: a policy learns to wait; cut these rows",
        "10 rows, 15 % of the episode, and beyond the 90 % quantile of its task by three times what"
        " that is above the median",
        _idle,
        ("saturated", "repeated", "jitter", "spike", *_OF_RELATIONS),
    ),
    DataCheck(
        "repeated",
        "rows that are exactly the row before",
        "world models: frames were written twice",
        "3 % of the rows, and twice the 90 % quantile of the other episodes",
        _repeated,
        ("gap", "spike", "jitter"),
    ),
    DataCheck(
        "gap",
        "all of the state jumps at once",
        "world models and chunks of actions: rows were dropped",
        "2.5 times the steps beside it, and 1.5 times the 90 % quantile of the other episodes",
        _gap,
        ("spike", *_OF_RELATIONS),
    ),
    DataCheck(
        "spike",
        "an element jumps in one row, and is back in the next one",
        "training: a number that was transmitted wrong, or an impact",
        "2.2 times the largest that is usual, and the cube of the ratio of the 90 % quantile to"
        " that; twice the 90 % quantile of the second differences of the episode; half the range of"
        " what mostly rests",
        _spike,
        _OF_RELATIONS,
    ),
    DataCheck(
        "jitter",
        "rougher from row to row than other episodes",
        "imitation: a loose sensor, or another controller",
        "second differences, and their ratio to the first ones: 3 and 4 median deviations",
        _jitter,
        _OF_RELATIONS,
    ),
    DataCheck(
        "saturated",
        "an element stays at its own limit while others move",
        "training: what goes beyond was cut",
        "15 % of the rows that move, and 2.5 times the 90 % quantile of the other episodes",
        _saturated,
        _OF_RELATIONS,
    ),
    DataCheck(
        "offset",
        "an element is far from where it is in all other episodes",
        "training: a joint was calibrated anew",
        "half of the range of the others beyond it; all of it for what stays in each episode",
        _offset,
    ),
    DataCheck(
        "gain",
        "an action is larger or smaller than usual for the motion that it leads to",
        "training: it is in another unit, or was normalized",
        "6 median deviations, and 1.5 times, where it explains two thirds of the motion",
        _gains,
        ("lag", "sign", "relation"),
    ),
    DataCheck(
        "lag",
        "the state follows the action earlier or later than usual",
        "imitation: columns of different moments were put together",
        "another lag leaves 20 % less unexplained, 3 median deviations more than usual; in four of"
        " five episodes none does",
        _lags,
        ("sign", "relation"),
    ),
    DataCheck(
        "sign",
        "an action moves the state in the opposite direction",
        "all: a motor or an axis was turned round",
        "a correlation of 0.6 times the usual one, with the other sign",
        _signs,
        ("relation",),
    ),
    DataCheck(
        "relation",
        "an action does not lead to what it leads to in other episodes",
        "all: elements are in another order, or one is not what it was",
        "a third of the usual correlation, and 8 median deviations, where there is motion",
        _relations,
    ),
    DataCheck(
        "camera black",
        "pictures that are black, or of one colour",
        "policies that see: there is nothing to learn",
        "a tenth of the usual contrast, in a fifth of the pictures and twice as many as usual",
        camera_checks.black,
        ("camera blurred", "camera frozen", *OF_THUMBNAILS),
        is_of_pictures=True,
    ),
    DataCheck(
        "cameras swapped",
        "two cameras that show what the other one usually shows",
        "policies that see: cables or numbers of devices were exchanged",
        _BETTER,
        camera_checks.swapped,
        ("camera blurred", "camera frozen", "camera turned", "camera colours"),
        is_of_pictures=True,
    ),
    DataCheck(
        "camera blurred",
        "a camera that is less sharp than in other episodes",
        "policies that see: it was out of focus, or dirty",
        "differences over 2 pixels against those over 4: 4.5 median deviations",
        camera_checks.blurred,
        ("camera frozen",),
        is_of_pictures=True,
    ),
    DataCheck(
        "camera frozen",
        "pictures that stay while something moves",
        "policies that see: what was seen is old; a driver hung",
        "half of the least change that is usual, one grey level, in a quarter of the pictures and"
        " twice as many as usual",
        camera_checks.frozen,
        is_of_pictures=True,
    ),
    DataCheck(
        "camera turned",
        "a camera that is upside down or mirrored",
        "policies that see: it was mounted anew",
        _BETTER,
        camera_checks.turned,
        ("camera colours",),
        is_of_pictures=True,
    ),
    DataCheck(
        "camera colours",
        "red and blue are exchanged",
        "policies that see: BGR was taken for RGB",
        _BETTER,
        camera_checks.colours,
        is_of_pictures=True,
    ),
    DataCheck(
        "leak",
        "the same as an episode of an earlier split, or nearly",
        "evaluation: it was trained on",
        "as `duplicate`",
        _leaks,
        ("duplicate",),
    ),
    DataCheck(
        "duplicate",
        "the same as another episode, or nearly",
        "evaluation: it may be trained on, and tested",
        "equal observations and actions, in an audit equal numbers; or equal lengths, and 5 % of "
        "the usual distance at 16 moments",
        _duplicates,
    ),
    DataCheck(
        "task",
        "the instruction is empty",
        "language-conditioned policies",
        "any",
        _task,
    ),
)
"""All checks: one hides those after it that find what follows from what it has found."""

# Checks of single episodes, without a comparison.
_ALONE = ("not finite", "time order", "leak", "duplicate", "task")
