"""Audits of datasets: the meaning of actions, and suspicious episodes with reasons."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlds.auditing.checks import MIN_EPISODES, find_faults
from rlds.auditing.declared import contradictions
from rlds.auditing.findings import EpisodeFinding, Fingerprints, MeasuredEpisodes, median, shorten
from rlds.auditing.measures import Measures, Profile, find_motion, measure
from rlds.auditing.numeric_fields import NumericFields
from rlds.auditing.pictures import MAX_FILMED, PAIRS, CameraSample
from rlds.auditing.pipelines import compute_in_pipeline
from rlds.auditing.scores import SCORES, compare_episodes, rank_within_task
from rlds.auditing.times import measure_times
from rlds.auditing.vectors import UsualValues, VectorMeaning, learn_usual_values
from rlds.sources import reading
from rlds.sources.cameras import evenly
from rlds.sources.episode_table import Progress, store_audit
from rlds.sources.episodes import Episodes
from rlds.sources.rates import rates_in
from rlds.sources.source import AnySource, SourceError, with_random_access
from rlds.sources.text_tables import TASKS, table_in
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.processes import default_jobs, run_tasks
from rlds_ecosystem.progress import show_progress
from tfds_files import TfdsFilesError

__all__ = ["Audit", "audit", "audit_splits", "find_file_faults"]

# Episodes per batch of work; seconds after which further processes are started.
_EPISODES_PER_BATCH, _SERIAL_SECONDS = 32, 5.0
# Compared rows: the limit for all episodes together, and the minimum per episode.
_MAX_COMPARED_ROWS, _MIN_COMPARED = 200_000, 4
# Tolerance of the logarithm of a rate; logarithms of the time units per second.
_RATE_TOLERANCE, _LOG_UNITS_PER_SECOND = 0.03, np.log([1, 1e3, 1e6, 1e9])


@dataclasses.dataclass(frozen=True)
class Audit:
    """The result of an audit: findings, scores, and facts of the dataset.

    Attributes:
      split: The audited split.
      num_episodes: The number of assessed episodes.
      num_rows: The number of rows of these episodes.
      unreadable: The indices of unreadable episodes.
      vectors: The meaning of the actions, and of observations with a form.
      findings: Findings about single episodes, the most serious ones first.
      facts: Findings about the whole dataset, in sentences, by the name of the check.
      unassessed: The checks that were impossible or incomplete, with reasons, in sentences.
      scores: The scores of all episodes by name, see `SCORES`; NaN if undefined.
      ranks: By score, the share of the other episodes of the same task with a lower score.
      is_kept: True if the audit is stored in the column `audit` of the table of episodes.
      tasks: The instruction of each episode; None if it has none.
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
        """The indices of the episodes with findings."""
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
    """Audits the numeric values of a dataset, and a sample of its images.

    Usual values are learnt from up to 200 episodes, and all episodes are measured against them. For
    up to 200 episodes, 16 pairs of frames of each camera are measured.

    Args:
      episodes: The episodes.
      progress: True to show a progress bar; None for terminals only; or a callback.
      jobs: The number of processes that read episodes; one per processor if None.
      keep: True to store the audit of a full split as a column of the table of episodes.
      earlier: Earlier splits to search for copies; the audited split is appended.
      beam_runner: The Apache Beam runner that reads the episodes, or its name.
      beam_options: Options of the runner: `PipelineOptions`, or a list of flags.
      draft: The folder for results of Beam workers, which all machines need to see; the folder for
        temporary files if None.

    Raises:
      TypeError: The data has no random access.
      ValueError: The draft is in an object store, or there is no beam_runner.

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
    fields = NumericFields(episodes)
    usual_values = learn_usual_values(fields)
    total, rates = len(episodes), {*rates_in(episodes.metadata)}
    rate = rates.pop() if len(rates) == 1 else None
    profile = usual_values.profile
    num_picked = min(max(_MAX_COMPARED_ROWS // max(total, 1), _MIN_COMPARED), profile.num_picked)
    profile = dataclasses.replace(profile, rate=rate, num_picked=num_picked)
    cameras = CameraSample(with_random_access(episodes.source))
    work = _Measurer(episodes, fields, profile, cameras, frozenset(evenly(total, MAX_FILMED)))
    begins = range(0, total, _EPISODES_PER_BATCH)
    batches = [range(begin, min(begin + _EPISODES_PER_BATCH, total)) for begin in begins]
    measured_episodes: list[_MeasuredEpisode | None] = []
    jobs = jobs or default_jobs()
    with contextlib.ExitStack() as stack:
        bars = stack.enter_context(show_progress(False if callable(progress) else progress))
        bar = bars.add_task(f"audit of {episodes.split}", total=total)
        measure_batch: Callable[[range], list[_MeasuredEpisode | None]] = work
        if pipeline is not None:
            measure_batch = stack.enter_context(compute_in_pipeline(work, batches, pipeline, draft))
        for indices, results in run_tasks(measure_batch, batches, jobs, delay=_SERIAL_SECONDS):
            measured_episodes += results
            bars.update(bar, completed=indices.stop)
            if callable(progress):
                progress(indices.stop, total)
    earlier = [] if earlier is None else earlier
    usual_values = usual_values._replace(profile=profile)
    result = _assess(episodes, fields, cameras, usual_values, measured_episodes, earlier)
    return dataclasses.replace(result, is_kept=keep and _store(episodes, result))


def audit_splits(splits: Sequence[Episodes], **options: Any) -> list[Audit]:
    """Audits the splits of a dataset, and searches each for copies of episodes of earlier splits.

    Args:
      splits: The splits.
      **options: Options of `audit`.
    """
    earlier: list[Fingerprints] = []
    return [audit(episodes, earlier=earlier, **options) for episodes in splits]


def _store(episodes: Episodes, result: Audit) -> bool:
    """Stores an audit as a column of the table of episodes, if it covers a full split."""
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


class _MeasuredEpisode(NamedTuple):
    """The measures of an episode, and the attributes of `EpisodeValues` that an audit needs."""

    measures: Measures
    task: str | None
    digest: int
    personal: str
    task_numbers: frozenset[int]


@dataclasses.dataclass(frozen=True)
class _Measurer:
    """Measures episodes in worker processes."""

    episodes: Episodes
    fields: NumericFields
    profile: Profile
    cameras: CameraSample
    filmed: Collection[int]

    def __call__(self, indices: range) -> list[_MeasuredEpisode | None]:
        """Returns the measures of episodes; None for unreadable ones."""
        return [self._measure(index) for index in indices]

    def _measure(self, index: int) -> _MeasuredEpisode | None:
        split_and_index = self.episodes.locate(index)
        try:
            episode = self.fields.read(*split_and_index)
        except SourceError:
            return None
        measures = measure(episode.actions, episode.states, self.profile)
        measures = dataclasses.replace(measures, times=measure_times(episode.times))
        if index in self.filmed:
            moves = find_motion(episode.actions, episode.states, self.profile)
            pictures = self.cameras.measure(*split_and_index, moves)
            measures = dataclasses.replace(measures, pictures=pictures)
        return _MeasuredEpisode(
            measures, episode.task, episode.digest, episode.personal, episode.task_numbers
        )


def _assess(
    episodes: Episodes,
    fields: NumericFields,
    cameras: CameraSample,
    usual_values: UsualValues,
    results: Sequence[_MeasuredEpisode | None],
    earlier: list[Fingerprints],
) -> Audit:
    indices = [index for index, result in enumerate(results) if result is not None]
    readable = [result for result in results if result is not None]
    tasks = [result.task for result in readable]
    measures = MeasuredEpisodes(
        [result.measures for result in readable],
        [*fields.state_names, *fields.action_names],
        len(fields.state_names),
        usual_values.profile,
        tasks,
        [result.digest for result in readable],
        cameras.names,
        [*earlier],
        [*map(episodes.stored_index, indices)],
        [result.personal for result in readable],
    )
    earlier.append(measures.fingerprints(episodes.split))
    faults = find_faults(measures)
    scores = _compute_scores(measures)
    return Audit(
        episodes.split,
        len(measures),
        int(measures.rows.sum()),
        [index for index, result in enumerate(results) if result is None],
        usual_values.vectors,
        [
            dataclasses.replace(finding, episode=indices[finding.episode])
            for finding in faults.findings
        ],
        {
            **_find_faults(episodes, fields, faults.usual_faults, measures, usual_values.vectors),
            **_find_unused_tasks(episodes, fields, results),
        },
        [*_list_unassessed(fields, measures), *_list_unassessed_cameras(cameras, measures)],
        {name: _scatter(values, indices, len(results)) for name, values in scores.items()},
        {
            name: _scatter(rank_within_task(values, tasks), indices, len(results))
            for name, values in scores.items()
        },
        tasks=[None if result is None else result.task for result in results],
    )


def find_file_faults(source: AnySource, splits: Iterable[str]) -> Iterator[str]:
    """Yields contradictions between files and their declarations, such as missing episodes."""
    if (faults := source.capabilities.faults) is None:
        return
    try:
        with reading.errors_of(source):
            for split in splits:
                yield from map(str, faults(split))
    except (SourceError, TfdsFilesError) as error:
        yield str(error)


def _compute_scores(measures: MeasuredEpisodes) -> dict[str, np.ndarray]:
    if not len(measures):
        return {score.name: np.empty(0) for score in SCORES}
    scores = dict(zip((score.name for score in SCORES), measures.array("scores").T))
    picked = [episode.picked.astype(np.float64) for episode in measures.measures]
    return {**scores, **compare_episodes(picked, measures.num_states, measures.sketches)}


def _scatter(values: np.ndarray, indices: Sequence[int], num_episodes: int) -> np.ndarray:
    all_values = np.full(num_episodes, np.nan)
    all_values[[*indices]] = values
    return all_values


def _find_faults(
    episodes: Episodes,
    fields: NumericFields,
    usual_faults: Mapping[str, Sequence[str]],
    measures: MeasuredEpisodes,
    vectors: Sequence[VectorMeaning],
) -> dict[str, Sequence[str]]:
    interval, rate = float(median(measures.time_array("interval"))), measures.profile.rate
    # Row indices have an interval of 1; they contradict no rate.
    ratio = interval * rate if rate is not None and interval > 0 and interval != 1 else 1.0
    is_contradiction = np.abs(np.log(ratio) - _LOG_UNITS_PER_SECOND).min() > _RATE_TOLERANCE
    rate_texts = [f"a row every {interval:.4g}, but {rate} rows a second are declared"]
    splits = dict.fromkeys(split for split, *_ in episodes.ranges)
    findings = {
        "files": [*find_file_faults(episodes.source, splits)],
        **usual_faults,
        "declaration": [
            *contradictions(vectors, fields.kinds, fields.units),
            *(rate_texts if is_contradiction else ()),
        ],
    }
    return {name: texts for name, texts in findings.items() if texts}


def _find_unused_tasks(
    episodes: Episodes, fields: NumericFields, results: Sequence[_MeasuredEpisode | None]
) -> dict[str, Sequence[str]]:
    """Returns the declared tasks without an episode, if the audit covers the full dataset."""
    source = episodes.source
    counts = (reading.count(base, split) for base in reading.roots(source) for split in base.splits)
    is_complete = len(episodes) == sum(count or 0 for count in counts)
    if not (fields.task_columns and is_complete and None not in results):
        return {}
    task_texts = table_in(source.source_info.metadata, TASKS)
    used_keys = {key for result in results if result is not None for key in result.task_numbers}
    unused_texts = [text for key, text in task_texts.items() if key not in used_keys]
    names = shorten([*map(repr, unused_texts)], 3)
    text = f"{len(unused_texts)} of {len(task_texts)} declared tasks have no episode: {names}"
    return {"unused task": [text]} if unused_texts else {}


def _list_unassessed(fields: NumericFields, measured: MeasuredEpisodes) -> Iterator[str]:
    if len(measured) < MIN_EPISODES:
        yield f"usual values: there are fewer than {MIN_EPISODES} episodes"
    if not fields.actions:
        yield "actions: no numeric field has that name"
    elif not fields.state_names:
        yield "duplicates, the meaning of actions: no value of the observation changes"
    elif not any(relation.state >= 0 for relation in measured.profile.relations):
        yield "lags and signs: no element of the action leads to one of the state"
    if measured.profile.rate is None:
        yield "smoothness: the rows per second are unknown, or not the same in all episodes"
    if fields.constants:
        yield f"{shorten(fields.constants, 5)}: never changes within an episode"
    if fields.has_more:
        num_assessed = len(fields.state_names) + len(fields.action_names)
        yield f"all elements: {num_assessed:,} of {fields.num_elements:,} were assessed"


def _list_unassessed_cameras(cameras: CameraSample, measured: MeasuredEpisodes) -> Iterator[str]:
    yield from cameras.why_not
    if not cameras.names:
        return
    if len(measured.filmed) < len(measured):
        share = f"{len(measured.filmed):,} of {len(measured):,} episodes"
        yield f"all pictures: of {share}, {PAIRS} pairs of frames were compared"
    if len(measured.filmed) and np.isnan(measured.picture_array("changes")).all():
        yield "frozen cameras: no numeric field shows when something moves"
