"""The audit of a dataset: the meaning of its actions, and episodes to look at, with reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds.auditing.checks import LEAST_EPISODES, find_faults
from rlds.auditing.declared import contradictions
from rlds.auditing.findings import EpisodeFinding, KnownSplit, MeasuredEpisodes, median
from rlds.auditing.measures import Measures, Profile, measure, moving
from rlds.auditing.pictures import MOST_FILMED, PAIRS, SampledCameras
from rlds.auditing.scores import SCORES, together, within_task
from rlds.auditing.step_numbers import StepNumbers
from rlds.auditing.times import times_of
from rlds.auditing.vectors import Usual, VectorMeaning, usual_of
from rlds.sources import reading
from rlds.sources.cameras import evenly
from rlds.sources.episode_table import Progress, keep_audit
from rlds.sources.episodes import Episodes
from rlds.sources.rates import rates_in
from rlds.sources.source import AnySource, SourceError, with_random_access
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.processes import default_jobs, in_processes
from rlds_ecosystem.progress import show_progress
from tfds_files import TfdsFilesError

__all__ = ["Audit", "audit", "audit_splits", "faults_of_files"]

# So many episodes are measured by one call, and others help if it all takes so many seconds.
_AT_ONCE, _LONG = 32, 5.0
# Rows of all episodes to compare with each other, and the least number of each episode.
_MOST_PICKED, _LEAST_PICKED = 200_000, 4
# Tolerance between a declared rate and that of the times; logarithms of the units of a second.
_SAME_RATE, _UNITS = 0.03, np.log([1, 1e3, 1e6, 1e9])


@dataclasses.dataclass(frozen=True)
class Audit:
    """The result of an audit: findings, scores, and facts of the dataset.

    Attributes:
      split: The split.
      num_episodes: The number of assessed episodes.
      num_rows: The number of their rows.
      unreadable: The numbers of the episodes that cannot be read.
      vectors: The meaning of the actions.
      findings: The episodes to look at, with reasons, the most serious ones first.
      facts: Findings about the whole dataset, in sentences, by the names of the checks.
      unassessed: The checks that were impossible or incomplete, with reasons, in sentences.
      scores: The scores of all episodes by name, see `SCORES`: NaN where there is none.
      ranks: Likewise, the share of the other episodes of their task with a lower score.
      is_kept: True if it is the column `audit` of the table of episodes.
    """

    split: str
    num_episodes: int
    num_rows: int
    unreadable: Sequence[int]
    vectors: Sequence[VectorMeaning]
    findings: Sequence[EpisodeFinding]
    facts: Mapping[str, Sequence[str]]
    unassessed: Sequence[str]
    scores: Mapping[str, np.ndarray]
    ranks: Mapping[str, np.ndarray]
    is_kept: bool = False

    @property
    def episodes(self) -> list[int]:
        """The numbers of the episodes with findings."""
        return sorted({finding.episode for finding in self.findings})


def audit(
    episodes: Episodes,
    *,
    progress: Progress = None,
    jobs: int | None = None,
    keep: bool = True,
    earlier: list[KnownSplit] | None = None,
) -> Audit:
    """Audits a dataset: its numbers, and some of its pictures.

    What is usual is learnt from up to 200 episodes; all of them are measured against it. Of up to
    200 episodes, 16 pairs of frames of each camera are looked at.

    Args:
      episodes: The episodes.
      progress: Whether to show a progress bar, if None on a terminal; or who is told how far it is.
      jobs: The number of processes that read episodes; one for each processor if None.
      keep: Whether the table of episodes gets the column `audit`, if these are all of a split.
      earlier: Splits whose episodes must not be here; this one is added.

    Raises:
      TypeError: The data can be read from the beginning to the end only.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import rlds.sources
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> for number in range(20):
    ...     state = rng.normal(size=(61, 2)).cumsum(0).cumsum(0)
    ...     seen = state + 100 * (number == 7) * (np.arange(61) == 30)[:, None]
    ...     np.savez(folder / f"{number:02}.npz", observation=seen, action=state[1:] - state[:-1])
    >>> [finding] = audit(rlds.sources.open(folder)).findings
    >>> finding.episode, finding.check, finding.row
    (7, 'spike', 30)
    """
    numbers = StepNumbers(episodes)
    usual = usual_of(numbers)
    number, rates = len(episodes), {*rates_in(episodes.metadata)}
    rate = rates.pop() if len(rates) == 1 else None
    num_picked = min(max(_MOST_PICKED // max(number, 1), _LEAST_PICKED), usual.profile.num_picked)
    profile = dataclasses.replace(usual.profile, rate=rate, num_picked=num_picked)
    cameras = SampledCameras(with_random_access(episodes.source))
    work = _Measuring(episodes, numbers, profile, cameras, frozenset(evenly(number, MOST_FILMED)))
    parts = [range(at, min(at + _AT_ONCE, number)) for at in range(0, number, _AT_ONCE)]
    found: list[_Measured | None] = []
    with show_progress(False if callable(progress) else progress) as bars:
        bar = bars.add_task(f"audit of {episodes.split}", total=number)
        for part, measured in in_processes(work, parts, jobs or default_jobs(), after=_LONG):
            found += measured
            bars.update(bar, completed=part.stop)
            if callable(progress):
                progress(part.stop, number)
    earlier = [] if earlier is None else earlier
    usual = usual._replace(profile=profile)
    made = _judged(episodes, numbers, cameras, usual, found, earlier)
    return dataclasses.replace(made, is_kept=keep and _keep(episodes, made))


def audit_splits(splits: Sequence[Episodes], **options: Any) -> list[Audit]:
    """Audits the splits of a dataset: each by itself, and for episodes of those before it.

    Args:
      splits: The splits.
      **options: Options of `audit`.
    """
    earlier: list[KnownSplit] = []
    return [audit(episodes, earlier=earlier, **options) for episodes in splits]


def _keep(episodes: Episodes, made: Audit) -> bool:
    """Keeps an audit as a column of the table of episodes, if it is one of a whole split."""
    try:
        import_extra("pyarrow")
    except ImportError:
        return False
    if len(episodes.ranges) != 1:
        return False
    findings: list[list[str]] = [[] for _ in range(len(episodes))]
    for one in made.findings:
        findings[one.episode].append(one.check)
    ranks = {f"{name}_rank": values for name, values in made.ranks.items()}
    [(split, begin, end)] = episodes.ranges
    numbers = {**made.scores, **ranks}
    said = [text for vector in made.vectors for text in vector.sentences()]
    return keep_audit(episodes.source, split, range(begin, end), findings, numbers, said)


class _Measured(NamedTuple):
    """The measures, task and digest of an episode."""

    measures: Measures
    task: str | None
    digest: int


@dataclasses.dataclass(frozen=True)
class _Measuring:
    """Measures episodes; given to each worker."""

    episodes: Episodes
    numbers: StepNumbers
    profile: Profile
    cameras: SampledCameras
    filmed: Collection[int]

    def __call__(self, part: range) -> list[_Measured | None]:
        """Returns the measures of episodes; None for unreadable ones."""
        return [self._measured(index) for index in part]

    def _measured(self, index: int) -> _Measured | None:
        place = self.episodes.place(index)
        try:
            found = self.numbers.read(*place)
        except SourceError:
            return None
        measures = measure(found.actions, found.states, self.profile)
        measures = dataclasses.replace(measures, times=times_of(found.times))
        if index in self.filmed:
            moves = moving(found.actions, found.states, self.profile)
            pictures = self.cameras.measure(*place, moves)
            measures = dataclasses.replace(measures, pictures=pictures)
        return _Measured(measures, found.task, found.digest)


def _judged(
    episodes: Episodes,
    numbers: StepNumbers,
    cameras: SampledCameras,
    usual: Usual,
    measured: Sequence[_Measured | None],
    earlier: list[KnownSplit],
) -> Audit:
    places = [place for place, one in enumerate(measured) if one is not None]
    known = [one for one in measured if one is not None]
    tasks = [one.task for one in known]
    given = MeasuredEpisodes(
        [one.measures for one in known],
        [*numbers.state_names, *numbers.action_names],
        len(numbers.state_names),
        usual.profile,
        tasks,
        [one.digest for one in known],
        cameras.names,
        [*earlier],
        [*map(episodes.stored_number, places)],
    )
    earlier.append(given.known(episodes.split))
    faults = find_faults(given)
    scores = _scores(given)
    return Audit(
        episodes.split,
        len(given),
        int(given.rows.sum()),
        [place for place, one in enumerate(measured) if one is None],
        usual.vectors,
        [
            dataclasses.replace(finding, episode=places[finding.episode])
            for finding in faults.findings
        ],
        _facts(episodes, numbers, faults.usual, given, usual.vectors),
        [*_unassessed(numbers, given), *_unseen(cameras, given)],
        {name: _placed(values, places, len(measured)) for name, values in scores.items()},
        {
            name: _placed(within_task(values, tasks), places, len(measured))
            for name, values in scores.items()
        },
    )


def faults_of_files(source: AnySource, splits: Iterable[str]) -> Iterator[str]:
    """Yields contradictions of files to their declarations, such as missing episodes."""
    if (faults := source.can.faults) is None:
        return
    try:
        with reading.errors_of(source):
            for split in splits:
                yield from map(str, faults(split))
    except (SourceError, TfdsFilesError) as error:
        yield str(error)


def _scores(given: MeasuredEpisodes) -> dict[str, np.ndarray]:
    if not len(given):
        return {score.name: np.empty(0) for score in SCORES}
    found = dict(zip((score.name for score in SCORES), given.of("scores").T))
    picked = [each.picked.astype(np.float64) for each in given.measures]
    return {**found, **together(picked, given.num_states, given.sketches)}


def _placed(values: np.ndarray, places: Sequence[int], number: int) -> np.ndarray:
    found = np.full(number, np.nan)
    found[[*places]] = values
    return found


def _facts(
    episodes: Episodes,
    numbers: StepNumbers,
    usual: Mapping[str, Sequence[str]],
    given: MeasuredEpisodes,
    vectors: Sequence[VectorMeaning],
) -> dict[str, Sequence[str]]:
    interval, rate = float(median(given.of_times("interval"))), given.profile.rate
    # Rows that are counted are no times.
    ratio = interval * rate if rate is not None and interval > 0 and interval != 1 else 1.0
    is_another_rate = np.abs(np.log(ratio) - _UNITS).min() > _SAME_RATE
    of_rate = [f"a row every {interval:.4g}, but {rate} rows a second are declared"]
    splits = dict.fromkeys(split for split, *_ in episodes.ranges)
    found = {
        "files": [*faults_of_files(episodes.source, splits)],
        **usual,
        "declared": [
            *contradictions(vectors, numbers.kinds, numbers.units),
            *(of_rate if is_another_rate else ()),
        ],
    }
    return {name: texts for name, texts in found.items() if texts}


def _unassessed(numbers: StepNumbers, given: MeasuredEpisodes) -> Iterator[str]:
    if len(given) < LEAST_EPISODES:
        yield f"what is usual: there are fewer than {LEAST_EPISODES} episodes"
    if not numbers.actions:
        yield "actions: there is no field of numbers with that name"
    elif not numbers.state_names:
        yield "duplicates, the meaning of actions: no number of the observation changes"
    elif not any(it.state >= 0 for it in given.profile.relations):
        yield "lags and signs: no element of the action is known to lead to one of the state"
    if given.profile.rate is None:
        yield "smoothness: how many rows a second has is not known, or not the same of all"
    if numbers.constants:
        more = f" and {len(numbers.constants) - 5} more" if len(numbers.constants) > 5 else ""
        yield f"{', '.join(numbers.constants[:5])}{more}: never changes within an episode"
    if numbers.has_more:
        looked_at = len(numbers.state_names) + len(numbers.action_names)
        yield f"all elements: {looked_at:,} of {numbers.num_elements:,} were looked at"


def _unseen(cameras: SampledCameras, given: MeasuredEpisodes) -> Iterator[str]:
    yield from cameras.why_not
    if not cameras.names:
        return
    if len(given.filmed) < len(given):
        number = f"{len(given.filmed):,} of {len(given):,} episodes"
        yield f"all pictures: of {number}, {PAIRS} pairs of frames were looked at"
    if len(given.filmed) and np.isnan(given.of_pictures("changes")).all():
        yield "frozen cameras: no number says when something moves"
