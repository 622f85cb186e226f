"""Checks of episodes, each against the usual values of the dataset.

Thresholds are in medians and median deviations over the episodes, or in units of the episode
itself. A consequence of another fault of the same episode is not reported.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rlds.auditing import camera_checks
from rlds.auditing.findings import (
    EpisodeFinding,
    Fingerprints,
    MeasuredEpisodes,
    deviations,
    first_of,
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

# If an element is constant in a larger share of the episodes, this is no fault.
_RARE = 0.2
_TINY = 1e-12
_USUAL = LAGS.index(0)
# The part of its range by which an element is smooth, whatever its second differences are.
_SMOOTH = 1e-4
# The least excess of roughness that counts as jitter, in most rows; as a logarithm.
_ROUGHER = 0.25
# The largest distance of near duplicates; the number of projections to search them in first.
_NEAR, _DIRECTIONS, _PAIRS_AT_ONCE = 0.12, 8, 1000
# Unexplained shares of the variance below this are alike: rows of slow motion hardly differ.
_LEAST_UNEXPLAINED = 1e-4


class Faults(NamedTuple):
    """The faults in the episodes of a dataset.

    Attributes:
      findings: The faults of single episodes, the most serious ones first.
      usual: The faults that more than a quarter of the episodes have, in sentences, by the names of
        the checks.
    """

    findings: list[EpisodeFinding]
    usual: Mapping[str, Sequence[str]]


def find_faults(measured: MeasuredEpisodes) -> Faults:
    """Returns the faults of episodes.

    With fewer than eight episodes, only the checks that need no other episodes run.
    """
    usual: dict[str, Sequence[str]] = {}
    findings: list[EpisodeFinding] = []
    hidden: set[tuple[str, int]] = set()
    for check in CHECKS:
        num_episodes = len(measured.filmed) if check.is_of_pictures else len(measured)
        if check.find is None or (num_episodes < LEAST_EPISODES and check.name not in _ALONE):
            continue
        by_episode: dict[int, EpisodeFinding] = {}
        for finding in check.find(measured):
            earlier = by_episode.get(finding.episode)
            if earlier is None or finding.size > earlier.size:
                by_episode[finding.episode] = finding
        if len(by_episode) > max(USUAL_PART * num_episodes, 2):
            share = f"{len(by_episode)} of {num_episodes} episodes"
            texts = {it.text for it in by_episode.values()} if check.name in _ALONE else set()
            description = texts.pop() if len(texts) == 1 else check.what
            usual[check.name] = [f"{description}, in {share}: it is usual here"]
            continue  # A usual fault does not single out an episode, and hides no other fault.
        hidden |= {(name, episode) for name in check.hides for episode in by_episode}
        shown = (it for it in by_episode.values() if (check.name, it.episode) not in hidden)
        findings += sorted(shown, key=lambda it: (-it.size, it.episode))
    return Faults(findings, usual)


# --- The checks ----------------------------------------------------------------------------------


def _not_finite(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for episode in np.flatnonzero(measured.of("not_finite")).tolist():
        rows = measured.measures[episode].not_finite
        yield EpisodeFinding(episode, "not finite", f"NaN or infinite in {_rows(rows)}")


def _lengths(
    measured: MeasuredEpisodes, name: str, sign: int, factor: float
) -> Iterator[EpisodeFinding]:
    for group in measured.groups:
        rows = measured.rows[group]
        logs = sign * np.log(np.maximum(rows, 1))
        middle, high = np.quantile(logs, (0.5, 0.9))
        sizes = (logs - high) / (factor * max(high - middle, 0.15))
        for index in np.flatnonzero(sizes > 1):
            text = f"{rows[index]:.0f} rows, usually {np.median(rows):.0f}"
            yield EpisodeFinding(int(group[index]), name, text, size=sizes[index])


def _dead(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    usual = median(measured.range)
    is_dead = (measured.range <= 1e-3 * usual) & (usual > 0)
    # Flags may rest by chance: nearly all other episodes must move them, and by more.
    alive = np.where(is_dead, np.nan, measured.range)
    has_levels = measured.has_levels
    least = np.where(has_levels, quantile(alive, 0.05), quantile(alive, 0.03))
    is_dead &= (is_dead.mean(0) < np.where(has_levels, _RARE, 0.03)) & (
        least > np.where(has_levels, 0.1, 0.3) * usual
    )
    for episode in np.flatnonzero(is_dead.any(1)).tolist():
        names = _named(measured, is_dead[episode])
        yield EpisodeFinding(episode, "dead", f"{names} never changes")


def _saturated(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    shares = measured.of("at_end")
    limit = np.maximum(0.15, 2.5 * np.quantile(shares, 0.9, axis=0))
    shares = np.where(measured.has_levels, shares, 0)
    for episode in np.flatnonzero((shares > limit).any(1)).tolist():
        element = int((shares[episode] / limit).argmax())
        share = shares[episode, element]
        text = f"{measured.names[element]} is at its end in {share:.0%} of the rows that move"
        yield EpisodeFinding(episode, "saturated", text, size=share / limit[element])


def _spike(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    jump, rough = 2 * measured.of("jump"), measured.of("rough")[:, 1]
    usual = median(jump)
    # The usual spread of the largest jumps counts, too: those of impacts are large now and then.
    spread = np.exp(3 * np.fmax(log(quantile(jump, 0.9)) - log(usual), 0.27))
    limits = np.maximum(usual * spread, 4 * rough)
    # Elements that rest in most rows, like grippers, are at their other end now and then.
    span = median(measured.range)
    rests = (median(measured.of("pace")[:, 0]) < 0.5 * usual) & (usual < 0.02 * span)
    limits = np.maximum(limits, np.where(rests, span, 0))
    sizes = np.where(measured.has_levels & (limits > 0), jump / np.maximum(limits, _TINY), 0)
    for episode in np.flatnonzero((sizes > 1).any(1)).tolist():
        element = int(sizes[episode].argmax())
        ratio = jump[episode, element] / max(usual[element], _TINY)
        text = f"{measured.names[element]} jumps and is back, {ratio:.1f} times as far as usual"
        row = int(measured.measures[episode].jump_row[element])
        yield EpisodeFinding(episode, "spike", text, row, sizes[episode, element])


def _jitter(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for name, elements in measured.parts.items():
        # Quantiles 0.5 and 0.9: one outlier raises neither, a few rows only the latter.
        rough, pace = measured.of("rough")[:, :, elements], measured.of("pace")[:, :, elements]
        least = _SMOOTH * np.nan_to_num(median(measured.range[:, elements]))
        is_known = np.isfinite(log(rough[:, 1])).mean(0) > 0.9
        if not is_known.any():
            continue
        levels = log(rough + least)[:, :, is_known]
        ratios = levels - log(pace + least)[:, :, is_known]
        shifts = mean(levels - median(levels))
        rougher = mean(ratios - median(ratios))
        sizes = np.minimum(deviations(mean(shifts), 0.12) / 3, deviations(mean(rougher), 0.04) / 4)
        for episode in np.flatnonzero((sizes > 1) & (shifts.min(1) > _ROUGHER)).tolist():
            ratio = np.exp(mean(shifts[episode]))
            text = f"the {name} is {ratio:.1f} times as rough as usual, from row to row"
            yield EpisodeFinding(episode, "jitter", text, size=sizes[episode])


def _frozen(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    runs = measured.of("frozen")
    limit = max(5.0, 2.5 * np.quantile(runs, 0.9) + 2)
    for episode in np.flatnonzero(runs >= limit).tolist():
        row = measured.measures[episode].frozen_row
        text = f"the state stays exactly for {runs[episode]:.0f} rows while the action changes"
        yield EpisodeFinding(episode, "frozen", text, row, runs[episode] / limit)


def _idle(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for end, name in enumerate(("at first", "at last")):
        rows = measured.of("idle")[:, end]
        for group in measured.groups:
            of_group = rows[group]
            middle, high = np.quantile(of_group, (0.5, 0.9))
            limit = max(10.0, high + 3 * (high - middle))
            is_idle = (of_group > limit) & (of_group > 0.15 * measured.rows[group])
            for episode in group[is_idle].tolist():
                text = f"nothing moves in {rows[episode]:.0f} rows {name}"
                row = 0 if end == 0 else int(measured.rows[episode] - rows[episode])
                yield EpisodeFinding(episode, "idle", text, row, rows[episode] / limit)


def _scale(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for name, elements in measured.parts.items():
        logs = log(measured.range[:, elements])
        varies = np.isfinite(logs).mean(0) > 0.8
        if not varies.any():
            continue
        # Another unit scales all elements alike.
        shifts = (logs - median(logs))[:, varies]
        has_levels = measured.has_levels[elements][varies]
        shifts = np.where(has_levels, shifts, np.maximum(shifts, 0))
        finite = np.where(np.isnan(shifts), 0, shifts)
        middle = median(shifts.T)
        spread = max(1.4826 * float(median(np.abs(middle))), 0.1)
        sizes = np.fmax(finite.min(1) / max(4 * spread, 0.9), middle / max(7 * spread, 1.4))
        sizes = np.fmax(sizes, -finite.max(1) / max(6 * spread, 2.0))
        for episode in np.flatnonzero(sizes > 1).tolist():
            ratio = np.exp(median(shifts[episode]))
            text = f"the {name} spans {ratio:.3g} times as much as usual: another unit?"
            yield EpisodeFinding(episode, "scale", text, size=sizes[episode])


def _gains(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes whose actions are larger or smaller than usual for their effect."""
    gains, fits = measured.of("gains"), np.abs(measured.of("fits")[:, _USUAL])
    if not gains.size:
        return
    shifts = np.where(fits > 0.8, gains - median(gains), np.nan)
    sizes = np.abs(shifts) / np.maximum(6 * 1.4826 * median(np.abs(shifts)), 0.4)
    for episode in np.flatnonzero((sizes > 1).any(1)).tolist():
        is_far = np.nan_to_num(sizes[episode]) > 1
        ratio = np.exp(median(shifts[episode][is_far]))
        name = _named(measured, np.concatenate([np.zeros(measured.num_states, bool), is_far]))
        text = f"{name} is {ratio:.3g} times as large as usual for the same motion: another unit?"
        yield EpisodeFinding(episode, "gain", text, size=float(np.nanmax(sizes[episode])))


def _offset(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    low, high = measured.of("low"), measured.of("high")
    # Quantiles, as the faulty episodes must not widen the range themselves.
    lowest, highest = quantile(low, 0.1), quantile(high, 0.9)
    reach = np.maximum(highest - lowest, _TINY)
    outside = np.maximum(low - highest, lowest - high) / reach
    # A value that is constant within each episode, such as a goal, may differ between episodes.
    is_outside = outside > np.where(median(measured.range) > 0, 0.5, 1.0)
    is_outside &= is_outside.mean(0) < _RARE
    for episode in np.flatnonzero(is_outside.any(1)).tolist():
        element = int(np.where(is_outside[episode], outside[episode], -1).argmax())
        text = f"{_named(measured, is_outside[episode])} is far from where it usually is"
        yield EpisodeFinding(episode, "offset", text, size=2 * outside[episode, element])


def _gap(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    sizes = measured.of("gap")
    limit = max(2.5, 1.5 * float(np.quantile(sizes, 0.9)))
    for episode in np.flatnonzero(sizes > limit).tolist():
        row = measured.measures[episode].gap_row
        text = f"all of the state jumps in row {row}, by {sizes[episode]:.1f} steps at once"
        yield EpisodeFinding(episode, "gap", text, row, sizes[episode] / limit)


def _repeated(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    if not measured.has_levels.any():
        return
    shares = measured.of("repeated") / np.maximum(measured.rows, 1)
    limit = max(0.03, 2 * float(np.quantile(shares, 0.9)) + 0.02)
    for episode in np.flatnonzero(shares > limit).tolist():
        text = f"{shares[episode]:.0%} of the rows are exactly the row before"
        yield EpisodeFinding(episode, "repeated", text, size=shares[episode] / limit)


def _known_relations(
    measured: MeasuredEpisodes, least: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """The elements of the action with a known relation in most episodes, and their correlations.

    Returns:
      The indices of the elements, and the correlations with the sign that makes the usual one
      positive, of shape `[episodes, LAGS, elements]`.
    """
    fits = measured.of("fits")
    usual = median(fits)[_USUAL] if fits.size else np.zeros(0)
    elements = np.flatnonzero(np.abs(np.nan_to_num(usual)) > least)
    return elements, fits[:, :, elements] * np.sign(usual[elements])


def _lags(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    elements, fits = _known_relations(measured, 0.9)
    if not len(elements):
        return
    # Logarithms, as correlations near 1 hardly differ.
    explained = np.sign(fits) * np.minimum(np.abs(fits), 1) ** 2
    unexplained = mean(log(1 + _LEAST_UNEXPLAINED - explained))
    other_lags = np.array([index for index in range(len(LAGS)) if index != _USUAL])
    gains = np.nan_to_num(unexplained[:, [_USUAL]] - unexplained[:, other_lags], nan=-9.0)
    best, gain = gains.argmax(1), gains.max(1)
    sizes = deviations(gain, 0.05) / 3
    is_late = (sizes > 1) & (gain > 0.2)
    if (gain[~is_late] > 0).mean() > _RARE:
        return  # Forces lead to motion after a delay that depends on its speed.
    for episode in np.flatnonzero(is_late).tolist():
        rows = LAGS[other_lags[best[episode]]]
        shift = f"{_rows(abs(rows))} {'later' if rows > 0 else 'earlier'}"
        text = f"the state follows the action {shift} than usual"
        yield EpisodeFinding(episode, "lag", text, size=sizes[episode])


def _signs(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    elements, fits = _known_relations(measured)
    for element, column in zip(elements.tolist(), fits[:, _USUAL].T):
        sizes = deviations(-column, 0.05) / 6
        for episode in np.flatnonzero((sizes > 1) & (column < -0.6 * median(column))).tolist():
            name = measured.names[measured.num_states + element]
            text = (
                f"{name} has the other sign: it correlates by {column[episode]:.2f} with the motion"
            )
            yield EpisodeFinding(episode, "sign", text, size=sizes[episode])


def _relations(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    elements, fits = _known_relations(measured)
    for index, element in enumerate(elements.tolist()):
        column = fits[:, _USUAL, index]
        relation = measured.profile.relations[element]
        if relation.kind == "gripper":
            continue  # A gripper that closes only for a moment correlates with little.
        sizes = deviations(-column, 0.04) / 8
        is_weak = column < 0.5 * median(column)
        for involved in (measured.num_states + element, relation.state):
            is_weak &= measured.range[:, involved] > 0.5 * median(measured.range[:, involved])
        for episode in np.flatnonzero((sizes > 1) & is_weak).tolist():
            name = measured.names[measured.num_states + element]
            text = f"{name} does not lead to what it usually leads to"
            yield EpisodeFinding(episode, "relation", text, size=sizes[episode])


def _time_order(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    stops, rows = measured.of_times("stops"), measured.of_times("stops_row")
    for episode in np.flatnonzero(stops > 0).tolist():
        text = f"the time does not grow in {_rows(int(stops[episode]))}"
        yield EpisodeFinding(episode, "time order", text, int(rows[episode]))


def _time_gap(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    gaps, rows = measured.of_times("gap"), measured.of_times("gap_row")
    limit = np.fmax(1.8, 1.5 * quantile(gaps, 0.8))
    for episode in np.flatnonzero(gaps > limit).tolist():
        text = f"{gaps[episode]:.1f} times the usual interval of time between two rows"
        yield EpisodeFinding(episode, "time gap", text, int(rows[episode]), gaps[episode] / limit)


def _rates(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    intervals = measured.of_times("interval")
    usual, shifts = median(intervals), np.abs(log(intervals) - median(log(intervals)))
    sizes = np.nan_to_num(shifts / np.fmax(6 * 1.4826 * median(shifts), 0.05))
    for episode in np.flatnonzero(sizes > 1).tolist():
        text = f"a row every {intervals[episode]:.4g}, usually {usual:.4g}"
        yield EpisodeFinding(episode, "rate", text, size=sizes[episode])


def _duplicates(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    yield from _twins("duplicate", [measured.fingerprints("")])


def _leaks(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for split in measured.earlier:
        yield from _twins("leak", [split, measured.fingerprints("")])


def _twins(check: str, splits: Sequence[Fingerprints]) -> Iterator[EpisodeFinding]:
    """Yields episodes of the last split that the first split has, too; both may be the same."""
    reference, checked = splits[0], splits[-1]
    stop, origin = len(reference.rows), f" of {reference.split}" if len(splits) > 1 else ""
    begin = stop if len(splits) > 1 else 0
    digests = np.concatenate([it.digests for it in splits])
    first, indices = originals(digests), np.arange(len(digests))
    copies = indices[(digests > 0) & (first < np.minimum(indices, stop)) & (indices >= begin)]
    for index in copies.tolist():
        text = f"the numbers are those of episode {reference.numbers[first[index]]}{origin}"
        yield EpisodeFinding(index - begin, check, text)
    if not (len(reference.rows) and len(checked.rows)) or [*reference.names] != [*checked.names]:
        return
    rows = np.concatenate([it.rows for it in splits])
    sketches = in_deviations(np.concatenate([it.sketches for it in splits]))
    distinct = np.setdiff1d(indices, copies)
    for length in np.unique(rows[distinct]) if sketches.size else ():
        alike = distinct[rows[distinct] == length]
        for original, index in (alike[[*pair]].tolist() for pair in _near_pairs(sketches[alike])):
            if original < stop and index >= begin:
                text = f"nearly the same as episode {reference.numbers[original]}{origin}"
                yield EpisodeFinding(index - begin, check, text)


def _near_pairs(points: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields pairs of points whose root mean square distance per coordinate is below `_NEAR`."""
    width = points.shape[1]
    directions = np.random.default_rng(0).normal(size=(width, min(width, _DIRECTIONS)))
    # Projections lengthen no distance, so that no near pair is missed.
    shadow = points @ np.linalg.qr(directions)[0]
    squares, limit = (shadow**2).sum(1), _NEAR**2 * width
    for begin in range(0, len(points), _PAIRS_AT_ONCE):
        part = slice(begin, begin + _PAIRS_AT_ONCE)
        distances = squares[part, None] + squares[begin:] - 2 * shadow[part] @ shadow[begin:].T
        for first, second in zip(*(axis + begin for axis in np.nonzero(distances < limit))):
            if first < second and ((points[first] - points[second]) ** 2).sum() < limit:
                yield int(first), int(second)


def _task(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for episode, task in enumerate(measured.tasks):
        if task is not None and not task.strip():
            yield EpisodeFinding(episode, "task", "the instruction is empty")


def _personal(measured: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for episode, text in enumerate(measured.personal):
        if text:
            yield EpisodeFinding(episode, "personal", text)


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _named(measured: MeasuredEpisodes, is_named: np.ndarray) -> str:
    names = [measured.names[element] for element in np.flatnonzero(is_named).tolist()]
    return first_of(names, 3)


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
        functools.partial(_lengths, name="short", sign=-1, factor=2.5),
        (*OF_ROWS, *_OF_RELATIONS, "dead", "scale", "offset"),
    ),
    DataCheck(
        "long",
        "far more rows than the episodes of its task have",
        "imitation: several tries, or a recording that was not stopped",
        "logarithms of lengths: above the 90 % quantile, by twice what that is above the median",
        functools.partial(_lengths, name="long", sign=1, factor=2),
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
        ("gap", "spike", "jitter", "lag"),
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
        " five of the others none is better",
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
        "half of the usual correlation, and 8 median deviations, where there is motion",
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
        "equal observations and actions, in an audit equal numbers; or equal lengths, and an eighth"
        " of the usual deviation at 16 moments",
        _duplicates,
    ),
    DataCheck(
        "task",
        "the instruction is empty",
        "language-conditioned policies",
        "any",
        _task,
    ),
    DataCheck(
        "personal",
        "a text of the episode or of a step has personal data",
        "people, once the data is shared",
        "e-mail addresses, telephone numbers with the code of a country, home folders: in"
        " the texts of episodes and steps",
        _personal,
    ),
)
"""All checks: one hides those after it that find what follows from what it has found."""

# Checks that compare no episodes.
_ALONE = ("not finite", "time order", "leak", "duplicate", "task", "personal")
