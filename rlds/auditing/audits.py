"""Audits of datasets: the meaning of actions, and suspicious episodes with reasons."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds.auditing.checks import LEAST_EPISODES, find_faults
from rlds.auditing.declared import contradictions
from rlds.auditing.findings import EpisodeFinding, Fingerprints, MeasuredEpisodes, first_of, median
from rlds.auditing.measures import Measures, Profile, measure, moving
from rlds.auditing.pictures import MOST_FILMED, PAIRS, SampledCameras
from rlds.auditing.pipelines import done_in_pipeline
from rlds.auditing.scores import SCORES, together, within_task
from rlds.auditing.step_numbers import StepNumbers
from rlds.auditing.times import times_of
from rlds.auditing.vectors import Usual, VectorMeaning, usual_of
from rlds.sources import reading
from rlds.sources.cameras import evenly
from rlds.sources.episode_table import Progress, store_audit
from rlds.sources.episodes import Episodes
from rlds.sources.rates import rates_in
from rlds.sources.source import AnySource, SourceError, with_random_access
from rlds.sources.text_tables import TASKS, table_in
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.processes import default_jobs, in_processes
from rlds_ecosystem.progress import show_progress
from tfds_files import TfdsFilesError

__all__ = ["Audit", "audit", "audit_splits", "faults_of_files"]

# Episodes that one call measures; seconds after which further processes help.
_AT_ONCE, _LONG = 32, 5.0
# Rows of all episodes to compare with each other, and the least number of each episode.
_MOST_PICKED, _LEAST_PICKED = 200_000, 4
# Tolerance between a declared rate and that of the times; logarithms of the units of a second.
_SAME_RATE, _UNITS = 0.03, np.log([1, 1e3, 1e6, 1e9])


@dataclasses.dataclass(frozen=True)
class Audit:
    """The result of an audit: findings, scores, and facts of the dataset.

    Attributes:
      split: The audited split.
      num_episodes: The number of assessed episodes.
      num_rows: The number of their rows.
      unreadable: The numbers of the episodes that cannot be read.
      vectors: The meaning of the actions, and of observations with a form.
      findings: Findings about single episodes, the most serious ones first.
      facts: Findings about the whole dataset, in sentences, by the names of the checks.
      unassessed: The checks that were impossible or incomplete, with reasons, in sentences.
      scores: The scores of all episodes by name, see `SCORES`: NaN where there is none.
      ranks: Likewise, the share of the other episodes of their task with a lower score.
      is_kept: True if the audit is the column `audit` of the table of episodes.
      tasks: The instructions of all episodes; None where there is none.
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
    tasks: Sequence[str | None] = ()

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
    earlier: list[Fingerprints] | None = None,
    beam_runner: Any = None,
    beam_options: Any = None,
    draft: str | os.PathLike[str] | None = None,
) -> Audit:
    """Audits the numbers of a dataset, and a sample of its images.

    Usual values are learnt from up to 200 episodes, and all episodes are measured against them. For
    up to 200 episodes, 16 pairs of frames of each camera are measured.

    Args:
      episodes: The episodes.
      progress: Whether to show a progress bar, if None on a terminal; or a callback for progress.
      jobs: The number of processes that read episodes; one for each processor if None.
      keep: Whether to store the audit as a column of the table of episodes. Only a whole split is.
      earlier: Splits whose episodes must not be in this one; the audited split is appended.
      beam_runner: The Apache Beam runner that reads the episodes, or its name.
      beam_options: Options of the runner: `PipelineOptions`, or a list of flags.
      draft: The folder for results of Beam workers, which all machines need to see; the folder for
        temporary files if None.

    Raises:
      TypeError: The data can be read from the beginning to the end only.
      ValueError: The draft is in an object store, or for no pipeline.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import rlds.sources
    >>> folder, rng = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    >>> for index in range(20):
    ...     state = rng.normal(size=(61, 2)).cumsum(0).cumsum(0)
    ...     seen = state + 100 * (index == 7) * (np.arange(61) == 30)[:, None]
    ...     np.savez(folder / f"{index:02}.npz", observation=seen, action=state[1:] - state[:-1])
    >>> [finding] = audit(rlds.sources.open(folder)).findings
    >>> finding.episode, finding.check, finding.row
    (7, 'spike', 30)
    """
    pipeline = None if beam_runner is beam_options is None else (beam_runner, beam_options)
    if draft is not None and pipeline is None:
        raise ValueError("draft: only an audit with a beam_runner (--runner) has one")
    numbers = StepNumbers(episodes)
    usual = usual_of(numbers)
    total, rates = len(episodes), {*rates_in(episodes.metadata)}
    rate = rates.pop() if len(rates) == 1 else None
    num_picked = min(max(_MOST_PICKED // max(total, 1), _LEAST_PICKED), usual.profile.num_picked)
    profile = dataclasses.replace(usual.profile, rate=rate, num_picked=num_picked)
    cameras = SampledCameras(with_random_access(episodes.source))
    work = _Measuring(episodes, numbers, profile, cameras, frozenset(evenly(total, MOST_FILMED)))
    batches = [range(begin, min(begin + _AT_ONCE, total)) for begin in range(0, total, _AT_ONCE)]
    measured: list[_Measured | None] = []
    jobs = jobs or default_jobs()
    with contextlib.ExitStack() as stack:
        bars = stack.enter_context(show_progress(False if callable(progress) else progress))
        bar = bars.add_task(f"audit of {episodes.split}", total=total)
        done: Callable[[range], list[_Measured | None]] = work
        if pipeline is not None:
            done = stack.enter_context(done_in_pipeline(work, batches, pipeline, draft))
        for indices, results in in_processes(done, batches, jobs, after=_LONG):
            measured += results
            bars.update(bar, completed=indices.stop)
            if callable(progress):
                progress(indices.stop, total)
    earlier = [] if earlier is None else earlier
    usual = usual._replace(profile=profile)
    result = _judged(episodes, numbers, cameras, usual, measured, earlier)
    return dataclasses.replace(result, is_kept=keep and _keep(episodes, result))


def audit_splits(splits: Sequence[Episodes], **options: Any) -> list[Audit]:
    """Audits the splits of a dataset: each by itself, and for episodes of earlier splits.

    Args:
      splits: The splits.
      **options: Options of `audit`.
    """
    earlier: list[Fingerprints] = []
    return [audit(episodes, earlier=earlier, **options) for episodes in splits]


def _keep(episodes: Episodes, result: Audit) -> bool:
    """Stores an audit as a column of the table of episodes, if it covers a whole split."""
    try:
        import_extra("pyarrow")
    except ImportError:
        return False
    if len(episodes.ranges) != 1:
        return False
    findings: list[list[str]] = [[] for _ in range(len(episodes))]
    for finding in result.findings:
        findings[finding.episode].append(finding.check)
    ranks = {f"{name}_rank": values for name, values in result.ranks.items()}
    [(split, begin, end)] = episodes.ranges
    columns = {**result.scores, **ranks}
    sentences = [text for vector in result.vectors for text in vector.sentences()]
    return store_audit(episodes.source, split, range(begin, end), findings, columns, sentences)


class _Measured(NamedTuple):
    """The measures of an episode, and the attributes of `EpisodeNumbers` that an audit needs."""

    measures: Measures
    task: str | None
    digest: int
    personal: str
    task_numbers: frozenset[int]


@dataclasses.dataclass(frozen=True)
class _Measuring:
    """Measures episodes; given to each worker."""

    episodes: Episodes
    numbers: StepNumbers
    profile: Profile
    cameras: SampledCameras
    filmed: Collection[int]

    def __call__(self, indices: range) -> list[_Measured | None]:
        """Returns the measures of episodes; None for unreadable ones."""
        return [self._measured(index) for index in indices]

    def _measured(self, index: int) -> _Measured | None:
        split_and_index = self.episodes.locate(index)
        try:
            numbers = self.numbers.read(*split_and_index)
        except SourceError:
            return None
        measures = measure(numbers.actions, numbers.states, self.profile)
        measures = dataclasses.replace(measures, times=times_of(numbers.times))
        if index in self.filmed:
            moves = moving(numbers.actions, numbers.states, self.profile)
            pictures = self.cameras.measure(*split_and_index, moves)
            measures = dataclasses.replace(measures, pictures=pictures)
        return _Measured(
            measures, numbers.task, numbers.digest, numbers.personal, numbers.task_numbers
        )


def _judged(
    episodes: Episodes,
    numbers: StepNumbers,
    cameras: SampledCameras,
    usual: Usual,
    results: Sequence[_Measured | None],
    earlier: list[Fingerprints],
) -> Audit:
    indices = [index for index, each in enumerate(results) if each is not None]
    readable = [each for each in results if each is not None]
    tasks = [each.task for each in readable]
    measured = MeasuredEpisodes(
        [each.measures for each in readable],
        [*numbers.state_names, *numbers.action_names],
        len(numbers.state_names),
        usual.profile,
        tasks,
        [each.digest for each in readable],
        cameras.names,
        [*earlier],
        [*map(episodes.stored_index, indices)],
        [each.personal for each in readable],
    )
    earlier.append(measured.fingerprints(episodes.split))
    faults = find_faults(measured)
    scores = _scores(measured)
    return Audit(
        episodes.split,
        len(measured),
        int(measured.rows.sum()),
        [index for index, each in enumerate(results) if each is None],
        usual.vectors,
        [
            dataclasses.replace(finding, episode=indices[finding.episode])
            for finding in faults.findings
        ],
        {
            **_facts(episodes, numbers, faults.usual, measured, usual.vectors),
            **_unused(episodes, numbers, results),
        },
        [*_unassessed(numbers, measured), *_unseen(cameras, measured)],
        {name: _scattered(values, indices, len(results)) for name, values in scores.items()},
        {
            name: _scattered(within_task(values, tasks), indices, len(results))
            for name, values in scores.items()
        },
        tasks=[None if each is None else each.task for each in results],
    )


def faults_of_files(source: AnySource, splits: Iterable[str]) -> Iterator[str]:
    """Yields contradictions between files and their declarations, such as missing episodes."""
    if (faults := source.can.faults) is None:
        return
    try:
        with reading.errors_of(source):
            for split in splits:
                yield from map(str, faults(split))
    except (SourceError, TfdsFilesError) as error:
        yield str(error)


def _scores(measured: MeasuredEpisodes) -> dict[str, np.ndarray]:
    if not len(measured):
        return {score.name: np.empty(0) for score in SCORES}
    scores = dict(zip((score.name for score in SCORES), measured.of("scores").T))
    picked = [each.picked.astype(np.float64) for each in measured.measures]
    return {**scores, **together(picked, measured.num_states, measured.sketches)}


def _scattered(values: np.ndarray, indices: Sequence[int], num_episodes: int) -> np.ndarray:
    scattered = np.full(num_episodes, np.nan)
    scattered[[*indices]] = values
    return scattered


def _facts(
    episodes: Episodes,
    numbers: StepNumbers,
    usual: Mapping[str, Sequence[str]],
    measured: MeasuredEpisodes,
    vectors: Sequence[VectorMeaning],
) -> dict[str, Sequence[str]]:
    interval, rate = float(median(measured.of_times("interval"))), measured.profile.rate
    # Row numbers have an interval of 1; they contradict no rate.
    ratio = interval * rate if rate is not None and interval > 0 and interval != 1 else 1.0
    is_another_rate = np.abs(np.log(ratio) - _UNITS).min() > _SAME_RATE
    of_rate = [f"a row every {interval:.4g}, but {rate} rows a second are declared"]
    splits = dict.fromkeys(split for split, *_ in episodes.ranges)
    facts = {
        "files": [*faults_of_files(episodes.source, splits)],
        **usual,
        "declaration": [
            *contradictions(vectors, numbers.kinds, numbers.units),
            *(of_rate if is_another_rate else ()),
        ],
    }
    return {name: texts for name, texts in facts.items() if texts}


def _unused(
    episodes: Episodes, numbers: StepNumbers, results: Sequence[_Measured | None]
) -> dict[str, Sequence[str]]:
    """The declared tasks without an episode, if these are all episodes of the dataset."""
    source = episodes.source
    counts = (reading.count(base, split) for base in reading.bases(source) for split in base.splits)
    is_whole = len(episodes) == sum(count or 0 for count in counts)
    if not (numbers.task_columns and is_whole and None not in results):
        return {}
    declared = table_in(source.about.metadata, TASKS)
    used = {number for each in results if each is not None for number in each.task_numbers}
    unused = [text for number, text in declared.items() if number not in used]
    listed = first_of([*map(repr, unused)], 3)
    text = f"{len(unused)} of {len(declared)} declared tasks have no episode: {listed}"
    return {"unused task": [text]} if unused else {}


def _unassessed(numbers: StepNumbers, measured: MeasuredEpisodes) -> Iterator[str]:
    if len(measured) < LEAST_EPISODES:
        yield f"what is usual: there are fewer than {LEAST_EPISODES} episodes"
    if not numbers.actions:
        yield "actions: there is no field of numbers with that name"
    elif not numbers.state_names:
        yield "duplicates, the meaning of actions: no number of the observation changes"
    elif not any(it.state >= 0 for it in measured.profile.relations):
        yield "lags and signs: no element of the action is known to lead to one of the state"
    if measured.profile.rate is None:
        yield "smoothness: how many rows a second has is not known, or not the same of all"
    if numbers.constants:
        yield f"{first_of(numbers.constants, 5)}: never changes within an episode"
    if numbers.has_more:
        looked_at = len(numbers.state_names) + len(numbers.action_names)
        yield f"all elements: {looked_at:,} of {numbers.num_elements:,} were looked at"


def _unseen(cameras: SampledCameras, measured: MeasuredEpisodes) -> Iterator[str]:
    yield from cameras.why_not
    if not cameras.names:
        return
    if len(measured.filmed) < len(measured):
        share = f"{len(measured.filmed):,} of {len(measured):,} episodes"
        yield f"all pictures: of {share}, {PAIRS} pairs of frames were looked at"
    if len(measured.filmed) and np.isnan(measured.of_pictures("changes")).all():
        yield "frozen cameras: no number says when something moves"
