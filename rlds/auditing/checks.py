"""Checks of episodes, each against the usual values of the dataset.

Thresholds are medians and median deviations over the episodes, or relative to the episode itself.
Consequences of another fault of the same episode are not reported.
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
    first_equal,
    log,
    mean,
    median,
    quantile,
    shorten,
    to_deviations,
)
from rlds.auditing.measures import LAGS
from rlds.auditing.registry import OF_ROWS, OF_THUMBNAILS, ONE_PASS, DataCheck

__all__ = ["CHECKS", "MIN_EPISODES", "USUAL_SHARE", "Faults", "find_faults"]

MIN_EPISODES = 8
"""The least number of episodes for usual values."""

USUAL_SHARE = 0.25
"""The largest share of faulty episodes; more findings are a fact of the dataset."""

# The largest share of the episodes with an unusual element; in more episodes it is not a fault.
_MAX_UNUSUAL_SHARE = 0.2
_EPSILON = 1e-12
_LAG_0_INDEX = LAGS.index(0)
# Second differences below this share of the range count as smooth.
_MAX_SMOOTH_SHARE = 1e-4
# The least excess of the log roughness of most rows that counts as jitter.
_MIN_JITTER_EXCESS = 0.25
# Near duplicates: their largest distance, the number of projections, the rows per batch.
_MAX_DUPLICATE_DISTANCE, _NUM_PROJECTIONS, _ROWS_PER_BATCH = 0.12, 8, 1000
# Floor of unexplained shares of the variance: rows of slow motion hardly differ.
_MIN_UNEXPLAINED = 1e-4


class Faults(NamedTuple):
    """The faults in the episodes of a dataset.

    Attributes:
      findings: The faults of single episodes, the most serious ones first.
      usual_faults: Faults of over a quarter of the episodes: sentences, by the name of the check.
    """

    findings: list[EpisodeFinding]
    usual_faults: Mapping[str, Sequence[str]]


def find_faults(episodes: MeasuredEpisodes) -> Faults:
    """Returns the faults of episodes.

    With fewer than eight episodes, only the checks in `_STANDALONE` run.
    """
    usual_faults: dict[str, Sequence[str]] = {}
    findings: list[EpisodeFinding] = []
    hidden: set[tuple[str, int]] = set()
    for check in CHECKS:
        num_episodes = len(episodes.filmed) if check.is_of_pictures else len(episodes)
        if check.find is None or (num_episodes < MIN_EPISODES and check.name not in _STANDALONE):
            continue
        by_episode: dict[int, EpisodeFinding] = {}
        for finding in check.find(episodes):
            earlier = by_episode.get(finding.episode)
            if earlier is None or finding.size > earlier.size:
                by_episode[finding.episode] = finding
        if len(by_episode) > max(USUAL_SHARE * num_episodes, 2):
            share = f"{len(by_episode)} of {num_episodes} episodes"
            texts = {finding.text for finding in by_episode.values()}
            is_alone = check.name in _STANDALONE and len(texts) == 1
            description = texts.pop() if is_alone else check.fault
            usual_faults[check.name] = [f"{description}, in {share}: this is usual here"]
            continue  # A usual fault does not hide other faults.
        hidden |= {(name, episode) for name in check.hides for episode in by_episode}
        visible = [by_episode[e] for e in by_episode if (check.name, e) not in hidden]
        findings += sorted(visible, key=lambda finding: (-finding.size, finding.episode))
    return Faults(findings, usual_faults)


# --- The checks ----------------------------------------------------------------------------------


def _find_not_finite(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for episode in np.flatnonzero(episodes.array("not_finite")).tolist():
        rows = episodes.measures[episode].not_finite
        yield EpisodeFinding(episode, "not finite", f"NaN or infinite in {_count_rows(rows)}")


def _find_lengths(
    episodes: MeasuredEpisodes, name: str, sign: int, factor: float
) -> Iterator[EpisodeFinding]:
    for group in episodes.groups:
        rows = episodes.rows[group]
        logs = sign * np.log(np.maximum(rows, 1))
        middle, high = np.quantile(logs, (0.5, 0.9))
        sizes = (logs - high) / (factor * max(high - middle, 0.15))
        for index in np.flatnonzero(sizes > 1):
            text = f"{rows[index]:.0f} rows, usually {np.median(rows):.0f}"
            yield EpisodeFinding(int(group[index]), name, text, size=sizes[index])


def _find_dead(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    usual_range = median(episodes.range)
    is_dead = (episodes.range <= 1e-3 * usual_range) & (usual_range > 0)
    # Flags may be constant by chance: nearly all other episodes must change them.
    varying = np.where(is_dead, np.nan, episodes.range)
    has_levels = episodes.has_levels
    low_range = np.where(has_levels, quantile(varying, 0.05), quantile(varying, 0.03))
    is_dead &= (is_dead.mean(0) < np.where(has_levels, _MAX_UNUSUAL_SHARE, 0.03)) & (
        low_range > np.where(has_levels, 0.1, 0.3) * usual_range
    )
    for episode in np.flatnonzero(is_dead.any(1)).tolist():
        names = _name_elements(episodes, is_dead[episode])
        yield EpisodeFinding(episode, "dead", f"{names} never changes")


def _find_saturated(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    shares = episodes.array("at_end")
    limit = np.maximum(0.15, 2.5 * np.quantile(shares, 0.9, axis=0))
    shares = np.where(episodes.has_levels, shares, 0)
    for episode in np.flatnonzero((shares > limit).any(1)).tolist():
        element = int((shares[episode] / limit).argmax())
        share = shares[episode, element]
        text = f"{episodes.names[element]} is at its limit in {share:.0%} of the rows with motion"
        yield EpisodeFinding(episode, "saturated", text, size=share / limit[element])


def _find_spikes(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    jump, rough = 2 * episodes.array("jump"), episodes.array("rough")[:, 1]
    usual_jump = median(jump)
    # The limit depends on the spread of the largest jumps: impacts are rare but usual.
    spread = np.exp(3 * np.fmax(log(quantile(jump, 0.9)) - log(usual_jump), 0.27))
    limits = np.maximum(usual_jump * spread, 4 * rough)
    # Elements that rest in most rows, like grippers, may jump to their other limit.
    span = median(episodes.range)
    is_slow = median(episodes.array("pace")[:, 0]) < 0.5 * usual_jump
    is_resting = is_slow & (usual_jump < 0.02 * span)
    limits = np.maximum(limits, np.where(is_resting, span, 0))
    sizes = np.where(episodes.has_levels & (limits > 0), jump / np.maximum(limits, _EPSILON), 0)
    for episode in np.flatnonzero((sizes > 1).any(1)).tolist():
        element = int(sizes[episode].argmax())
        ratio = jump[episode, element] / max(usual_jump[element], _EPSILON)
        text = f"{episodes.names[element]} jumps and returns, by {ratio:.1f} usual jumps"
        row = int(episodes.measures[episode].jump_row[element])
        yield EpisodeFinding(episode, "spike", text, row, sizes[episode, element])


def _find_jitter(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for vector, elements in episodes.vectors.items():
        # Quantiles 0.5 and 0.9: one outlier raises no quantile, and a few rows raise only 0.9.
        rough, pace = (episodes.array(name)[:, :, elements] for name in ("rough", "pace"))
        epsilon = _MAX_SMOOTH_SHARE * np.nan_to_num(median(episodes.range[:, elements]))
        is_finite = np.isfinite(log(rough[:, 1])).mean(0) > 0.9
        if not is_finite.any():
            continue
        levels = log(rough + epsilon)[:, :, is_finite]
        ratios = levels - log(pace + epsilon)[:, :, is_finite]
        shifts = mean(levels - median(levels))
        rougher = mean(ratios - median(ratios))
        sizes = np.minimum(deviations(mean(shifts), 0.12) / 3, deviations(mean(rougher), 0.04) / 4)
        for episode in np.flatnonzero((sizes > 1) & (shifts.min(1) > _MIN_JITTER_EXCESS)).tolist():
            ratio = np.exp(mean(shifts[episode]))
            text = f"the {vector} is {ratio:.1f} times as rough as usual, from row to row"
            yield EpisodeFinding(episode, "jitter", text, size=sizes[episode])


def _find_frozen(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    runs = episodes.array("frozen")
    limit = max(5.0, 2.5 * np.quantile(runs, 0.9) + 2)
    for episode in np.flatnonzero(runs >= limit).tolist():
        row = episodes.measures[episode].frozen_row
        text = f"the state is constant for {runs[episode]:.0f} rows while the action changes"
        yield EpisodeFinding(episode, "frozen", text, row, runs[episode] / limit)


def _find_idle(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for side, name in enumerate(("at the start", "at the end")):
        rows = episodes.array("idle")[:, side]
        for group in episodes.groups:
            counts = rows[group]
            middle, high = np.quantile(counts, (0.5, 0.9))
            limit = max(10.0, high + 3 * (high - middle))
            is_idle = (counts > limit) & (counts > 0.15 * episodes.rows[group])
            for episode in group[is_idle].tolist():
                text = f"nothing moves in {rows[episode]:.0f} rows {name}"
                row = 0 if side == 0 else int(episodes.rows[episode] - rows[episode])
                yield EpisodeFinding(episode, "idle", text, row, rows[episode] / limit)


def _find_scales(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for name, elements in episodes.vectors.items():
        logs = log(episodes.range[:, elements])
        varies = np.isfinite(logs).mean(0) > 0.8
        if not varies.any():
            continue
        # Another unit scales all elements alike.
        shifts = (logs - median(logs))[:, varies]
        has_levels = episodes.has_levels[elements][varies]
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


def _find_gains(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    """Yields episodes whose actions are larger or smaller than usual for their effect."""
    gains, fits = episodes.array("gains"), np.abs(episodes.array("fits")[:, _LAG_0_INDEX])
    if not gains.size:
        return
    shifts = np.where(fits > 0.8, gains - median(gains), np.nan)
    sizes = np.abs(shifts) / np.maximum(6 * 1.4826 * median(np.abs(shifts)), 0.4)
    for episode in np.flatnonzero((sizes > 1).any(1)).tolist():
        is_far = np.nan_to_num(sizes[episode]) > 1
        ratio = np.exp(median(shifts[episode][is_far]))
        name = _name_elements(episodes, np.r_[np.zeros(episodes.num_states, bool), is_far])
        text = f"{name} is {ratio:.3g} times as large as usual for the same motion: another unit?"
        yield EpisodeFinding(episode, "gain", text, size=float(np.nanmax(sizes[episode])))


def _find_offsets(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    low, high = episodes.array("low"), episodes.array("high")
    # Quantiles are used because faulty episodes must not widen the range.
    lowest, highest = quantile(low, 0.1), quantile(high, 0.9)
    reach = np.maximum(highest - lowest, _EPSILON)
    excess = np.maximum(low - highest, lowest - high) / reach
    # A value that is constant within each episode, such as a goal, may differ between episodes.
    is_outside = excess > np.where(median(episodes.range) > 0, 0.5, 1.0)
    is_outside &= is_outside.mean(0) < _MAX_UNUSUAL_SHARE
    for episode in np.flatnonzero(is_outside.any(1)).tolist():
        element = int(np.where(is_outside[episode], excess[episode], -1).argmax())
        text = f"{_name_elements(episodes, is_outside[episode])} is far from its usual values"
        yield EpisodeFinding(episode, "offset", text, size=2 * excess[episode, element])


def _find_gaps(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    sizes = episodes.array("gap")
    limit = max(2.5, 1.5 * float(np.quantile(sizes, 0.9)))
    for episode in np.flatnonzero(sizes > limit).tolist():
        row = episodes.measures[episode].gap_row
        text = f"the entire state jumps in row {row}, by {sizes[episode]:.1f} usual steps"
        yield EpisodeFinding(episode, "gap", text, row, sizes[episode] / limit)


def _find_repeated(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    if not episodes.has_levels.any():
        return
    shares = episodes.array("repeated") / np.maximum(episodes.rows, 1)
    limit = max(0.03, 2 * float(np.quantile(shares, 0.9)) + 0.02)
    for episode in np.flatnonzero(shares > limit).tolist():
        text = f"{shares[episode]:.0%} of the rows equal the row before"
        yield EpisodeFinding(episode, "repeated", text, size=shares[episode] / limit)


def _select_clear_relations(
    episodes: MeasuredEpisodes, min_fit: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the action elements that usually correlate with the state, and the correlations.

    Returns:
      The indices of the elements, and the correlations of shape `[episodes, LAGS, elements]`; usual
      correlations are positive.
    """
    fits = episodes.array("fits")
    usual_fits = median(fits)[_LAG_0_INDEX] if fits.size else np.zeros(0)
    elements = np.flatnonzero(np.abs(np.nan_to_num(usual_fits)) > min_fit)
    return elements, fits[:, :, elements] * np.sign(usual_fits[elements])


def _find_lags(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    elements, fits = _select_clear_relations(episodes, 0.9)
    if not len(elements):
        return
    # Logarithms are compared because correlations near 1 hardly differ.
    explained_shares = np.sign(fits) * np.minimum(np.abs(fits), 1) ** 2
    unexplained = mean(log(1 + _MIN_UNEXPLAINED - explained_shares))
    other_lags = np.array([index for index in range(len(LAGS)) if index != _LAG_0_INDEX])
    gains = np.nan_to_num(unexplained[:, [_LAG_0_INDEX]] - unexplained[:, other_lags], nan=-9.0)
    best_lags, best_gains = gains.argmax(1), gains.max(1)
    sizes = deviations(best_gains, 0.05) / 3
    is_late = (sizes > 1) & (best_gains > 0.2)
    if (best_gains[~is_late] > 0).mean() > _MAX_UNUSUAL_SHARE:
        return  # The delay of forces depends on the speed.
    for episode in np.flatnonzero(is_late).tolist():
        rows = LAGS[other_lags[best_lags[episode]]]
        shift = f"{_count_rows(abs(rows))} {'later' if rows > 0 else 'earlier'}"
        text = f"the state follows the action {shift} than usual"
        yield EpisodeFinding(episode, "lag", text, size=sizes[episode])


def _find_signs(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    elements, fits = _select_clear_relations(episodes)
    for element, column in zip(elements.tolist(), fits[:, _LAG_0_INDEX].T):
        sizes = deviations(-column, 0.05) / 6
        for episode in np.flatnonzero((sizes > 1) & (column < -0.6 * median(column))).tolist():
            name = episodes.names[episodes.num_states + element]
            text = f"{name} has the other sign: it correlates by {column[episode]:.2f}"
            yield EpisodeFinding(episode, "sign", text, size=sizes[episode])


def _find_weak_relations(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    elements, fits = _select_clear_relations(episodes)
    for index, element in enumerate(elements.tolist()):
        column = fits[:, _LAG_0_INDEX, index]
        relation = episodes.profile.relations[element]
        if relation.kind == "gripper":
            continue  # A gripper that closes for a moment has a low correlation.
        sizes = deviations(-column, 0.04) / 8
        is_weak = column < 0.5 * median(column)
        for involved in (episodes.num_states + element, relation.state):
            is_weak &= episodes.range[:, involved] > 0.5 * median(episodes.range[:, involved])
        for episode in np.flatnonzero((sizes > 1) & is_weak).tolist():
            name = episodes.names[episodes.num_states + element]
            text = f"{name} does not have its usual effect"
            yield EpisodeFinding(episode, "relation", text, size=sizes[episode])


def _find_time_order(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    stops, rows = episodes.time_array("stops"), episodes.time_array("stops_row")
    for episode in np.flatnonzero(stops > 0).tolist():
        text = f"the time does not increase in {_count_rows(int(stops[episode]))}"
        yield EpisodeFinding(episode, "time order", text, int(rows[episode]))


def _find_time_gaps(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    gaps, rows = episodes.time_array("gap"), episodes.time_array("gap_row")
    limit = np.fmax(1.8, 1.5 * quantile(gaps, 0.8))
    for episode in np.flatnonzero(gaps > limit).tolist():
        text = f"{gaps[episode]:.1f} times the usual interval of time between two rows"
        yield EpisodeFinding(episode, "time gap", text, int(rows[episode]), gaps[episode] / limit)


def _find_rates(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    intervals = episodes.time_array("interval")
    usual_interval, shifts = median(intervals), np.abs(log(intervals) - median(log(intervals)))
    sizes = np.nan_to_num(shifts / np.fmax(6 * 1.4826 * median(shifts), 0.05))
    for episode in np.flatnonzero(sizes > 1).tolist():
        text = f"a row every {intervals[episode]:.4g}, usually {usual_interval:.4g}"
        yield EpisodeFinding(episode, "rate", text, size=sizes[episode])


def _find_duplicates(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    yield from _find_copies("duplicate", [episodes.fingerprints("")])


def _find_leaks(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for split in episodes.earlier:
        yield from _find_copies("leak", [split, episodes.fingerprints("")])


def _find_copies(check: str, splits: Sequence[Fingerprints]) -> Iterator[EpisodeFinding]:
    """Yields episodes of the last split that copy one of the first split, which may be the same."""
    reference, audited = splits[0], splits[-1]
    stop, origin = len(reference.rows), f" of {reference.split}" if len(splits) > 1 else ""
    begin = stop if len(splits) > 1 else 0
    digests = np.concatenate([split.digests for split in splits])
    first, indices = first_equal(digests), np.arange(len(digests))
    copies = indices[(digests > 0) & (first < np.minimum(indices, stop)) & (indices >= begin)]
    for index in copies.tolist():
        text = f"the values are those of episode {reference.stored_indices[first[index]]}{origin}"
        yield EpisodeFinding(index - begin, check, text)
    if not (len(reference.rows) and len(audited.rows)) or [*reference.names] != [*audited.names]:
        return
    rows = np.concatenate([split.rows for split in splits])
    sketches = to_deviations(np.concatenate([split.sketches for split in splits]))
    distinct = np.setdiff1d(indices, copies)
    for length in np.unique(rows[distinct]) if sketches.size else ():
        alike = distinct[rows[distinct] == length]
        pairs = _find_near_pairs(sketches[alike])
        for original, index in (alike[[*pair]].tolist() for pair in pairs):
            if original < stop and index >= begin:
                text = f"nearly the same as episode {reference.stored_indices[original]}{origin}"
                yield EpisodeFinding(index - begin, check, text)


def _find_near_pairs(points: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields pairs of points with a root mean square difference below `_MAX_DUPLICATE_DISTANCE`."""
    width = points.shape[1]
    directions = np.random.default_rng(0).normal(size=(width, min(width, _NUM_PROJECTIONS)))
    # Projections do not increase distances, so the search finds every near pair.
    projections = points @ np.linalg.qr(directions)[0]
    squares, limit = (projections**2).sum(1), _MAX_DUPLICATE_DISTANCE**2 * width
    for begin in range(0, len(points), _ROWS_PER_BATCH):
        batch = slice(begin, begin + _ROWS_PER_BATCH)
        products = projections[batch] @ projections[begin:].T
        distances = squares[batch, None] + squares[begin:] - 2 * products
        for first, second in zip(*(axis + begin for axis in np.nonzero(distances < limit))):
            if first < second and ((points[first] - points[second]) ** 2).sum() < limit:
                yield int(first), int(second)


def _find_empty_tasks(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for episode, task in enumerate(episodes.tasks):
        if task is not None and not task.strip():
            yield EpisodeFinding(episode, "task", "the instruction is empty")


def _find_personal(episodes: MeasuredEpisodes) -> Iterator[EpisodeFinding]:
    for episode, text in enumerate(episodes.personal):
        if text:
            yield EpisodeFinding(episode, "personal", text)


def _count_rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _name_elements(episodes: MeasuredEpisodes, is_named: np.ndarray) -> str:
    names = [episodes.names[element] for element in np.flatnonzero(is_named).tolist()]
    return shorten(names, 3)


_RELATION_CHECKS = ("gain", "lag", "sign", "relation")
_TRANSFORMED_CRITERION = (
    "transformed mean pictures fit 1.6 times better, by 3 median deviations, unlike those of most"
    " episodes"
)
CHECKS: Sequence[DataCheck] = (
    *ONE_PASS,
    DataCheck(
        "not finite",
        "values that are NaN or infinite",
        "training: one of them makes every weight NaN",
        "any",
        _find_not_finite,
        (*OF_ROWS, *_RELATION_CHECKS, "dead"),
    ),
    DataCheck(
        "short",
        "far fewer rows than usual for the task",
        "imitation: it was stopped by accident, or the task is incomplete",
        "logarithms of lengths: below the 10 % quantile, by 2.5 times what this is below the"
        " median",
        functools.partial(_find_lengths, name="short", sign=-1, factor=2.5),
        (*OF_ROWS, *_RELATION_CHECKS, "dead", "scale", "offset"),
    ),
    DataCheck(
        "long",
        "far more rows than usual for the task",
        "imitation: several tries, or a recording that was not stopped",
        "logarithms of lengths: above the 90 % quantile, by twice what that is above the median",
        functools.partial(_find_lengths, name="long", sign=1, factor=2),
        ("gap",),
    ),
    DataCheck(
        "time order",
        "times that do not increase from row to row",
        "all: rows are in another order, or written twice",
        "any",
        _find_time_order,
        ("time gap", "rate"),
    ),
    DataCheck(
        "time gap",
        "an unusually long interval between two rows",
        "world models and chunks of actions: rows were dropped",
        "1.8 times the median interval, and 1.5 times the 80 % quantile of the other episodes",
        _find_time_gaps,
        ("gap",),
    ),
    DataCheck(
        "rate",
        "more or less time from row to row than in other episodes",
        "training: speeds and changes are of another size",
        "medians of intervals: 5 %, and 6 median deviations of their logarithms",
        _find_rates,
    ),
    DataCheck(
        "scale",
        "the state or the action spans far more or less than usual",
        "training: it is in another unit, and shifts every normalization",
        "logarithms of ranges: all elements 2.5 times, or the median one 4 times; of less, 7 times",
        _find_scales,
        (*OF_ROWS, *_RELATION_CHECKS, "offset"),
    ),
    DataCheck(
        "dead",
        "an element that is constant, unlike in other episodes",
        "training: a sensor or a motor was off",
        "a thousandth of the median range, if 19 of 20 episodes have at least a tenth of it",
        _find_dead,
        (*OF_ROWS, *_RELATION_CHECKS),
    ),
    DataCheck(
        "frozen",
        "the state is constant while the action changes",
        "imitation: observations are outdated; a driver hung",
        "5 rows, and 2.5 times the 90 % quantile of the other episodes",
        _find_frozen,
        ("gap", "spike", "jitter", "repeated", "saturated", *_RELATION_CHECKS),
    ),
    DataCheck(
        "idle",
        "nothing moves for long at the start or the end",
        "imitation: a policy learns to wait; cut these rows",
        "10 rows, 15 % of the episode, and beyond the 90 % quantile of its task by three times"
        " what that is above the median",
        _find_idle,
        ("saturated", "repeated", "jitter", "spike", *_RELATION_CHECKS),
    ),
    DataCheck(
        "repeated",
        "rows that equal the row before",
        "world models: frames were written twice",
        "3 % of the rows, and twice the 90 % quantile of the other episodes",
        _find_repeated,
        ("gap", "spike", "jitter", "lag"),
    ),
    DataCheck(
        "gap",
        "the entire state jumps",
        "world models and chunks of actions: rows were dropped",
        "2.5 times the steps next to it, and 1.5 times the 90 % quantile of the other episodes",
        _find_gaps,
        ("spike", *_RELATION_CHECKS),
    ),
    DataCheck(
        "spike",
        "an element jumps in one row, and returns in the next one",
        "training: a transmission error, or an impact",
        "2.2 times the largest that is usual, and the cube of the ratio of the 90 % quantile to"
        " that; twice the 90 % quantile of the second differences of the episode; half the range of"
        " elements that mostly rest",
        _find_spikes,
        _RELATION_CHECKS,
    ),
    DataCheck(
        "jitter",
        "rougher from row to row than other episodes",
        "imitation: a loose sensor, or another controller",
        "second differences, and their ratio to the first ones: 3 and 4 median deviations",
        _find_jitter,
        _RELATION_CHECKS,
    ),
    DataCheck(
        "saturated",
        "an element stays at its limit while other elements move",
        "training: values beyond the limit were cut",
        "15 % of the rows that move, and 2.5 times the 90 % quantile of the other episodes",
        _find_saturated,
        _RELATION_CHECKS,
    ),
    DataCheck(
        "offset",
        "an element is far from its values in all other episodes",
        "training: a joint was recalibrated",
        "half of the range of the other episodes beyond it; the entire range for elements"
        " constant in each episode",
        _find_offsets,
    ),
    DataCheck(
        "gain",
        "an action is larger or smaller than usual for the resulting motion",
        "training: it is in another unit, or was normalized",
        "6 median deviations, and 1.5 times, if it explains two thirds of the motion",
        _find_gains,
        ("lag", "sign", "relation"),
    ),
    DataCheck(
        "lag",
        "the state follows the action earlier or later than usual",
        "imitation: columns of different moments were joined",
        "another lag leaves 20 % less unexplained, 3 median deviations more than usual, but none"
        " does in four of five other episodes",
        _find_lags,
        ("sign", "relation"),
    ),
    DataCheck(
        "sign",
        "an action moves the state in the opposite direction",
        "all: a motor or an axis was turned round",
        "a correlation of 0.6 times the usual one, with the other sign",
        _find_signs,
        ("relation",),
    ),
    DataCheck(
        "relation",
        "an action has another effect than in other episodes",
        "all: the order or the meaning of elements differs",
        "half of the usual correlation, and 8 median deviations, if there is motion",
        _find_weak_relations,
    ),
    DataCheck(
        "camera black",
        "pictures that are black, or of one colour",
        "policies that see: there is nothing to learn",
        "a tenth of the usual contrast, in a fifth of the pictures and twice as many as usual",
        camera_checks.find_black,
        ("camera blurred", "camera frozen", *OF_THUMBNAILS),
        is_of_pictures=True,
    ),
    DataCheck(
        "cameras swapped",
        "two cameras that are exchanged",
        "policies that see: cables or device numbers were exchanged",
        _TRANSFORMED_CRITERION,
        camera_checks.find_swapped,
        ("camera blurred", "camera frozen", "camera turned", "camera colours"),
        is_of_pictures=True,
    ),
    DataCheck(
        "camera blurred",
        "a camera that is less sharp than in other episodes",
        "policies that see: it was out of focus, or dirty",
        "differences over 2 pixels against those over 4: 4.5 median deviations",
        camera_checks.find_blurred,
        ("camera frozen",),
        is_of_pictures=True,
    ),
    DataCheck(
        "camera frozen",
        "pictures that do not change while something moves",
        "policies that see: images are outdated; a driver hung",
        "half of the least usual change, one grey level, in a quarter of the pictures and twice"
        " as many as usual",
        camera_checks.find_frozen,
        is_of_pictures=True,
    ),
    DataCheck(
        "camera turned",
        "a camera that is upside down or mirrored",
        "policies that see: it was mounted differently",
        _TRANSFORMED_CRITERION,
        camera_checks.find_turned,
        ("camera colours",),
        is_of_pictures=True,
    ),
    DataCheck(
        "camera colours",
        "red and blue are exchanged",
        "policies that see: BGR was taken for RGB",
        _TRANSFORMED_CRITERION,
        camera_checks.find_colours,
        is_of_pictures=True,
    ),
    DataCheck(
        "leak",
        "the same as an episode of an earlier split, or nearly",
        "evaluation: training data is tested",
        "as `duplicate`",
        _find_leaks,
        ("duplicate",),
    ),
    DataCheck(
        "duplicate",
        "the same as another episode, or nearly",
        "evaluation: it may be in training and test data",
        "equal observations and actions, in an audit equal values; or equal lengths, and an"
        " eighth of the usual deviation at 16 moments",
        _find_duplicates,
    ),
    DataCheck(
        "task",
        "the instruction is empty",
        "language-conditioned policies",
        "any",
        _find_empty_tasks,
    ),
    DataCheck(
        "personal",
        "a text of the episode or of a step has personal data",
        "people, once the data is shared",
        "e-mail addresses, telephone numbers with a country code, home folders: in the texts of"
        " episodes and steps",
        _find_personal,
    ),
)
"""All checks; causes come before their consequences, which they hide."""

# Checks that do not need usual values.
_STANDALONE = ("not finite", "time order", "leak", "duplicate", "task", "personal")
