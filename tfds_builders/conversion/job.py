"""Drives a source into the files of a dataset: step by step, so that any step can be resumed.

First each part of the source is staged: its episodes are checked, encoded, and appended to a file
(`stage_part`). Then the files of the dataset are written from what is staged (`sharding`). Both
know what was done before. They give the same bytes in any process and any order: in
one process, in one that was killed and its successor, or in the workers of a pipeline (`beam`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import pickle
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import rich.progress
import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.utils import shard_utils

import rlds
import rlds_ecosystem
from rlds.raw_files.input_files import FileState, check_unchanged
from rlds.raw_files.untrusted import is_damage, source_errors
from rlds.sources import reading
from rlds.sources.source import (
    AnySource,
    DamagedEpisode,
    SourceError,
    StoredEpisode,
    files_of,
)
from rlds.tfds.features import EXACT, TensorStorage
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.processes import advance, in_processes
from rlds_ecosystem.model.errors import storage_errors
from rlds_ecosystem.progress import show_progress
from tfds_builders.conversion.encoder import EpisodeEncoder, counts_of
from tfds_builders.conversion.episode_groups import in_groups
from tfds_builders.conversion.sharding import ShardPlan, no_episodes, plan_shards, write_shard
from tfds_builders.conversion.staging import LeftOut, PartWriter, StagedPart, read_part
from tfds_builders.features import features_of
from tfds_builders.quiet import quietly_made
from tfds_files import index_files, parse_features
from tfds_files.indexing import save_index

__all__ = [
    "ConversionJob",
    "ConvertedSplit",
    "SourcePart",
    "SplitReport",
    "Work",
    "convert_job",
    "describe",
    "in_workers",
    "stage_part",
    "write_staged_shard",
]

_RAW = "raw/"
# After how many seconds other processes help: each of them has to load TensorFlow.
_LONG = 10.0
# The attributes of an episode that are counted.
_COUNTED = ("truncated", "complete", "final_observation_known")


class SourcePart(NamedTuple):
    """A part of a source.

    Attributes:
      split: The split.
      number: Its index in the split.
      name: How the source calls it.
    """

    split: str
    number: int
    name: str


@dataclasses.dataclass(frozen=True)
class ConversionJob:
    """What all steps of a conversion have to know. It can be pickled.

    Attributes:
      source: What is read.
      directory: The staging directory.
      name: The name of the dataset.
      file_format: The format of its files.
      shuffle: Whether its episodes are ordered by the hash of their keys.
      shard_config: The number of shards of each split, or their size.
      skip_damaged: Whether episodes that cannot be read are left out; otherwise they are errors.
      storage: How the numbers of steps are stored.
      inputs: What the files that are read were like before that.
    """

    source: AnySource
    directory: epath.Path
    name: str
    file_format: tfds.core.FileFormat
    shuffle: bool
    shard_config: shard_utils.ShardConfig
    skip_damaged: bool
    storage: TensorStorage = EXACT
    inputs: tuple[FileState, ...] = ()

    @property
    def shards(self) -> epath.Path:
        """Where finished files are kept until all are."""
        return self.directory / "shards"

    def parts(self, split: str) -> list[SourcePart]:
        """Returns the parts of a split."""
        return [
            SourcePart(split, number, name)
            for number, name in enumerate(reading.parts(self.source, split))
        ]

    def template(self, split: str, directory: epath.Path) -> tfds.core.ShardedFileTemplate:
        """Returns the names of the files of a split."""
        return tfds.core.ShardedFileTemplate(
            data_dir=directory,
            dataset_name=self.name,
            split=split,
            filetype_suffix=self.file_format.file_suffix,
        )

    def plan(self, split: str) -> ShardPlan:
        """Returns which episodes go to which file, when all parts are staged."""
        return plan_shards(
            self.directory,
            split,
            len(reading.parts(self.source, split)),
            shuffle=self.shuffle,
            shard_config=self.shard_config,
        )


# Stages all parts and writes all shards of a job, with or without a progress bar (None: on a
# terminal); returns the plan of each split.
Work: TypeAlias = Callable[[ConversionJob, bool | None], Mapping[str, ShardPlan]]


@dataclasses.dataclass(frozen=True)
class SplitReport:
    """What became of a split.

    Attributes:
      counts: How many episodes, steps, ... there are.
      raw_counts: What was counted in the raw data of the episodes.
      left_out: The episodes that could not be read.
    """

    counts: Mapping[str, int]
    raw_counts: Mapping[str, int]
    left_out: tuple[LeftOut, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns it in the types of JSON."""
        left_out = [dataclasses.asdict(episode) for episode in self.left_out]
        return {
            **self.counts,
            **({"raw": dict(self.raw_counts)} if self.raw_counts else {}),
            **({"left_out": left_out} if left_out else {}),
        }


class ConvertedSplit(NamedTuple):
    """A split that is converted.

    Attributes:
      info: Where it is, for TFDS.
      report: What became of the episodes.
      plan: Which episodes are in which file.
    """

    info: tfds.core.SplitInfo
    report: SplitReport
    plan: ShardPlan


def describe(job: ConversionJob) -> dict[str, Any]:
    """Returns what the result of a conversion depends on, in the types of JSON.

    A conversion that was interrupted goes on only if all of this is the same.
    """
    source = job.source
    return {
        "package": rlds_ecosystem.version(),
        "source": f"{type(source).__module__}.{type(source).__qualname__}",
        "options": dict(source.about.options),
        "inputs": [list(state) for state in job.inputs],
        "features": features_of(source, job.storage).to_json(),
        "finite_fields": list(source.about.finite),
        "name": job.name,
        "file_format": job.file_format.value,
        "shuffle": job.shuffle,
        "shards": dataclasses.asdict(job.shard_config),
        "skip_damaged": job.skip_damaged,
    }


# Called with the number of episodes that were staged, and how much of their part is done, if known.
OnEpisodes: TypeAlias = Callable[[int, float | None], None]


def stage_part(
    job: ConversionJob, part: SourcePart, on_episodes: OnEpisodes = lambda number, fraction: None
) -> None:
    """Stages what is missing of a part.

    Raises:
      SourceError: An episode is damaged, breaks a rule, or does not fit the features.
      StorageError: There is no place for what is staged.
    """
    if read_part(job.directory, part.split, part.number).is_complete:
        return
    with PartWriter(job.directory, part.split, part.number) as writer:
        if not writer.staged.is_complete:
            _Stager(job, writer, on_episodes).stage(part)
        writer.publish()


class _Stager:
    """Stages the episodes of a part, from wherever an earlier process stopped.

    Args:
      job: The conversion.
      writer: The place of the part.
      on_episodes: See `stage_part`.
    """

    def __init__(self, job: ConversionJob, writer: PartWriter, on_episodes: OnEpisodes) -> None:
        self._job, self._writer, self._on_episodes = job, writer, on_episodes
        features = features_of(job.source, job.storage)
        self._encoder = EpisodeEncoder(features, tuple(job.source.about.finite), job.storage)
        self._files = files_of(job.source)

    def stage(self, part: SourcePart) -> None:
        """Stages what is missing; see `stage_part`."""
        last_key = self._writer.staged.last_key
        with contextlib.ExitStack() as at_end:
            episodes = reading.episodes(self._job.source, part.split, part.name, last_key)
            if isinstance(episodes, Generator):  # It has files open, which an error would keep so.
                at_end.callback(episodes.close)
            for group in in_groups(episodes):
                if not self._stage_group(group):
                    return
                del group  # Episodes may be large, and the next one is read now.
        self._writer.finish()

    def _stage_group(self, group: Sequence[Any]) -> bool:
        """Stages some episodes; returns whether their part may have more."""
        last = group[-1]
        if isinstance(last, DamagedEpisode):
            self._leave_out(last.key, last.error, ends_part=last.ends_part)
            return not last.ends_part
        examples = self._encode_together(group)
        if examples is not None:
            self._add(group, examples)
            return True
        for episode in group:
            try:
                with source_errors(self._files, episode=episode.key):
                    example = self._encoder.encode(episode)
            except SourceError as error:
                self._leave_out(episode.key, error)
            else:
                self._add([episode], [example])
        return True

    def _encode_together(self, group: Sequence[Any]) -> Sequence[bytes] | None:
        """Returns examples, None if each episode has to be looked at by itself."""
        if isinstance(group[0], StoredEpisode):
            return [episode.example for episode in group]
        try:
            return self._encoder.encode_all(group) if len(group) > 1 else None
        except Exception as error:
            if not is_damage(error):
                raise
            return None

    def _add(self, group: Sequence[Any], examples: Sequence[bytes]) -> None:
        counts: Counter[str] = Counter(episodes=len(group))
        if not isinstance(group[0], StoredEpisode):
            counts = Counter(
                counts_of(
                    [episode.num_steps for episode in group],
                    [episode.steps[rlds.IS_TERMINAL][-1] for episode in group],
                    *([getattr(episode, name) for episode in group] for name in _COUNTED),
                )
            )
            for name, value in (item for episode in group for item in episode.counts.items()):
                counts[f"{_RAW}{name}"] += value
        self._writer.add([episode.key for episode in group], examples, counts)
        self._on_episodes(len(group), group[-1].fraction)

    def _leave_out(self, key: str, error: SourceError, *, ends_part: bool = False) -> None:
        if not self._job.skip_damaged:
            raise error
        self._writer.leave_out(key, error, ends_part=ends_part)


def in_workers(jobs: int) -> Work:
    """Returns what does all steps of a conversion, the long ones in several processes.

    Args:
      jobs: How many. With 1, this process does it all.
    """

    def work(job: ConversionJob, progress: bool | None) -> Mapping[str, ShardPlan]:
        plans = {}
        with show_progress(progress) as bars:
            for split in job.source.splits:
                _stage_split(job, split, bars, jobs)
                plans[split] = plan = job.plan(split)
                shards = range(plan.num_shards)
                for index in bars.track(shards, description=f"{split}: writing files"):
                    write_staged_shard(job, plan, split, index)
        return plans

    return work


def _stage_split(job: ConversionJob, split: str, bars: rich.progress.Progress, jobs: int) -> None:
    """Stages all parts of a split; the bar counts its episodes, or its parts if that is unknown."""
    parts, num_episodes = job.parts(split), reading.count(job.source, split)
    what = "parts" if num_episodes is None else "episodes"
    bar = bars.add_task(f"{split}: reading {what}", total=num_episodes or len(parts))
    work = _PartStager(job, num_episodes is not None)
    show = functools.partial(bars.advance, bar)
    collections.deque(in_processes(work, parts, jobs, after=_LONG, on_advance=show), 0)


class _PartStager:
    """Stages parts of a source, in this process or in a worker.

    Args:
      job: The conversion.
      counts: Whether episodes are counted; otherwise how much of a part is done.
    """

    def __init__(self, job: ConversionJob, counts: bool) -> None:
        self._job, self._counts = job, counts

    def __call__(self, part: SourcePart) -> None:
        done = 0.0

        def tell(number: int, fraction: float | None) -> None:
            nonlocal done
            before, done = done, max(done, fraction or 0.0)
            advance(number if self._counts else done - before)

        tell(len(read_part(self._job.directory, part.split, part.number).examples), 0.0)
        stage_part(self._job, part, tell)
        tell(0, 1.0)

    def __reduce__(self) -> Any:
        packed = pickle.dumps(self._job)
        return quietly_made, (__name__, type(self).__name__, packed, self._counts)


def write_staged_shard(job: ConversionJob, plan: ShardPlan, split: str, index: int) -> epath.Path:
    """Writes a file of the dataset to the staging directory, unless it is there."""
    template = job.template(split, job.shards)
    path = write_shard(plan, index, template, job.file_format)
    if job.file_format == tfds.core.FileFormat.TFRECORD:
        save_index(path, lambda: parse_features(features_of(job.source, job.storage).to_json()))
    return path


def convert_job(
    job: ConversionJob, work: Work, target: epath.Path, progress: bool | None
) -> dict[str, ConvertedSplit]:
    """Converts a source, from wherever an earlier run stopped.

    Args:
      job: What is done, in a staging area that this process holds.
      work: Who does it.
      target: The directory that the files go to. (It has no dataset before.)
      progress: Whether to show a progress bar; if None, on a terminal.

    Returns:
      The splits by name.

    Raises:
      SourceError: The raw data is damaged, or its totals are not those of the episodes.
      SourceChangedError: It is not what it was at the beginning. What is staged is of no use.
      StorageError: The dataset cannot be written.
    """
    for split in job.source.splits:  # Before hours are spent on the others.
        if reading.count(job.source, split) == 0 or not job.parts(split):
            raise no_episodes(split)
    plans = work(job, progress)
    check_unchanged(job.inputs, may_grow=job.source.may_grow)
    converted = {}
    for split, plan in plans.items():
        report = _report(plan.parts)
        _check_totals(job.source, split, report)
        converted[split] = ConvertedSplit(_publish(job, plan, split, target), report, plan)
    return converted


def _publish(
    job: ConversionJob, plan: ShardPlan, split: str, target: epath.Path
) -> tfds.core.SplitInfo:
    """Moves the files of a split to where they belong."""
    template = job.template(split, target)
    for index in range(plan.num_shards):
        here = job.template(split, job.shards).sharded_filepath(
            shard_index=index, num_shards=plan.num_shards
        )
        there = template.sharded_filepath(shard_index=index, num_shards=plan.num_shards)
        with storage_errors(there):
            stores.move_file(here, there)
            index_files.move(here, there)
    return tfds.core.SplitInfo(
        name=split,
        shard_lengths=plan.shard_lengths,
        num_bytes=plan.num_bytes,
        filename_template=template,
    )


def _report(parts: Sequence[StagedPart]) -> SplitReport:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.counts)
    raw = {name: count for name, count in sorted(counts.items()) if name.startswith(_RAW)}
    return SplitReport(
        counts={name: count for name, count in counts.items() if name not in raw},
        raw_counts={name.removeprefix(_RAW): count for name, count in raw.items()},
        left_out=tuple(episode for part in parts for episode in part.left_out),
    )


def _check_totals(source: AnySource, split: str, report: SplitReport) -> None:
    """Compares what was counted in the episodes with what the raw data has as a whole."""
    if report.left_out:
        return
    for name, total in (source.can.totals(split) if source.can.totals else {}).items():
        counted = report.raw_counts.get(name, 0)
        if counted != total:
            raise SourceError(
                f"the raw data of the split {split!r} has {total} {name}, but its episodes have "
                f"{counted}. If the data is sound, please report this as a bug of the builder",
                file=files_of(source),
            )
