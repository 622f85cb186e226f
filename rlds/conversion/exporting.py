"""Conversion of the episodes of any source to any format with a writer.

An `Export` of `rlds.sources.writing` writes a format. This module creates and runs it: the new
dataset appears atomically, after it was read back and compared with the source.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlds.conversion.staging import Staging
from rlds.conversion.watching import Digests, Notes, ReadBack
from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources import lineage, reading
from rlds.sources.episodes import Episodes
from rlds.sources.label_copying import copy_labels
from rlds.sources.opening import open as open_episodes
from rlds.sources.options import Option, options_of
from rlds.sources.registry import Format, formats
from rlds.sources.source import INFO_TEXTS, AnySource, SourceError
from rlds.sources.writing import Export, Placement
from rlds_ecosystem.files.processes import Workers, default_jobs
from rlds_ecosystem.files.whole_files import atomic_target
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.progress import show_progress

__all__ = [
    "Exported",
    "advice",
    "draft_export",
    "export",
    "export_class",
    "exports",
    "prepare",
    "write_export",
]

# Error codes of a full disk, an exceeded quota, and a file that is too large.
_FULL_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Limit of episodes that one call of a worker compares, and the number of calls below the limit.
_MAX_EPISODES_PER_CALL, _NUM_CALLS = 64, 16
# Seconds that this process compares alone: sending a large source to workers takes as long.
_SERIAL_SECONDS = 0.2
# Placements of fields (`Placement.how`) whose values are not compared.
_INEXACT_PLACEMENTS = ("changed", "lost", "renumbered")


@dataclasses.dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
      path: The path of the dataset.
      format: The format of the dataset.
      num_episodes: The number of episodes.
      num_steps: The number of steps; None if they were copied, and not counted.
      placements: The placement of each field in the format.
      left_out: The errors of the damaged episodes that were left out.
    """

    path: str
    format: str
    num_episodes: int
    num_steps: int | None
    placements: tuple[Placement, ...]
    left_out: tuple[str, ...] = ()


def exports() -> dict[str, Mapping[str, Option]]:
    """Returns the options of `export` for each format that can be written."""
    return {name: options_of(format.load_export()) for name, format in _find_writers().items()}


def export_class(format: str) -> type[Export]:
    """Returns the class that writes a format.

    Raises:
      ValueError: The format cannot be written; the message lists the formats with a writer.
    """
    writable_formats = _find_writers()
    if format not in writable_formats:
        names = ", ".join(writable_formats)
        raise ValueError(f"format: got {format!r}, which has no writer; expected one of {names}")
    loaded: type[Export] = writable_formats[format].load_export()
    return loaded


def _find_writers() -> dict[str, Format]:
    return {name: format for name, format in formats().items() if format.export}


def export(
    source: str | os.PathLike[str] | Episodes | AnySource,
    format: str,
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    source_format: str | None = None,
    source_options: Mapping[str, Any] | None = None,
    allow_loss: bool = False,
    skip_damaged: bool = False,
    verify: bool = True,
    progress: bool | None = False,
    jobs: int | None = None,
    part: tuple[int, int] | None = None,
    at_once: bool = False,
    draft: str | os.PathLike[str] | None = None,
    beam_runner: Any = None,
    beam_options: Any = None,
    **options: Any,
) -> Exported:
    """Writes episodes of any source in another format.

    Fields that the format cannot hold are stored in a sidecar next to the data, which other readers
    ignore; `rlds.sources.open` restores the same episodes. The file or the folder appears when it
    is complete.

    Args:
      source: A path, episodes, or a source.
      format: The format to write, one of `exports()`.
      path: The new file or folder, on this machine or in an object store.
      split: The split, or an expression such as `train[:10%]`; needed if there are several splits.
      source_format: The format of the source, if it cannot be recognized.
      source_options: Options of the source.
      allow_loss: True to allow changed or lost fields; False to raise an error before writing.
      skip_damaged: Whether to leave out episodes that cannot be read, with a warning.
      verify: Whether to read back and compare the written data.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that write large data; if None, as many as the processors and
        the memory allow. The result is the same. If this process is killed, the same call resumes
        from the finished parts, in the folder `.<name>.parts` next to the path.
      part: The share of the work of this job, such as `(3, 64)` (3 of 64), for the jobs of a
        cluster. After all jobs, the same call without `part` writes the dataset to the path.
      at_once: Whether this process writes the dataset directly, without parts. Direct writing is
        faster for large uncompressed HDF5 files on few processors, but a killed run cannot resume.
        Not for TFDS.
      draft: The parent folder of `.<name>.parts`, by default the parent of the path. All machines
        must share it. The folder also holds uploads to an object store until they are complete; by
        default, the cache (`RLDS_CACHE_DIR`).
      beam_runner: The Apache Beam runner that writes the parts, or its name.
      beam_options: The options of the runner: `PipelineOptions`, or a list of flags.
      **options: Options of the format, see `exports`.

    Raises:
      FileExistsError: The path exists; it is not changed.
      SourceError: An episode is damaged; the message has its location. The path stays absent.
      TypeError: The format has no such option.
      ValueError: The format cannot hold the episodes unchanged; the message lists the fields. The
        format is unknown, or two arguments contradict each other.
      OSError: The dataset cannot be written.
    """
    writer = prepare(
        source,
        format,
        split=split,
        source_format=source_format,
        source_options=source_options,
        **options,
    )
    return write_export(
        writer,
        path,
        allow_loss=allow_loss,
        skip_damaged=skip_damaged,
        verify=verify,
        progress=progress,
        jobs=jobs,
        part=part,
        at_once=at_once,
        drafts=draft,
        pipeline=None if beam_runner is beam_options is None else (beam_runner, beam_options),
    )


def write_export(
    writer: Export,
    path: str | os.PathLike[str],
    *,
    skip_damaged: bool = False,
    final_path: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Exported:
    """Writes an export with a writer of `prepare`; see `draft_export`."""
    draft = draft_export(writer, path, skip_damaged=skip_damaged, final_path=final_path, **settings)
    with advice(skip_damaged, final_path or path), draft as exported:
        return exported


@contextlib.contextmanager
def draft_export(
    writer: Export,
    path: str | os.PathLike[str],
    *,
    allow_loss: bool = False,
    skip_damaged: bool = False,
    verify: bool = True,
    progress: bool | None = False,
    jobs: int | None = None,
    part: tuple[int, int] | None = None,
    at_once: bool = False,
    drafts: str | os.PathLike[str] | None = None,
    pipeline: tuple[Any, Any] | None = None,
    final_path: str | os.PathLike[str] | None = None,
    description_changes: Mapping[str, Any] | None = None,
    workers: Workers | None = None,
) -> Iterator[Exported]:
    """Writes a draft of an export; if this context ends without an error, moves it to its path.

    Args:
      writer: The writer that `prepare` returns.
      path: See `export`.
      allow_loss: See `export`.
      skip_damaged: See `export`.
      verify: See `export`.
      progress: See `export`.
      jobs: See `export`.
      part: See `export`.
      at_once: See `export`.
      drafts: See `draft` of `export`.
      pipeline: `beam_runner` and `beam_options` of `export`.
      final_path: The final path, if it is not `path`.
      description_changes: Changes to the facts and the metadata of the dataset, by name.
      workers: The workers that write large data; if None, new workers.
    """
    format = writer.format
    final_path = final_path or path
    writer.check(final_path)
    placements = tuple(writer.placements())
    losses = [str(placement) for placement in placements if placement.how in ("changed", "lost")]
    if losses and not allow_loss:
        raise ValueError(
            f"{format} cannot hold these fields unchanged: {'; '.join(losses)}. Pass "
            "allow_loss=True (--allow-loss on the command line) to write them anyway"
        )
    uncompared_fields = {p.field for p in placements if p.how in _INEXACT_PLACEMENTS}
    uncompared_fields |= {*writer.unchecked}
    is_checked = verify and writer.is_exact
    # With skip_damaged, computing the digests detects damaged episodes.
    digests = Digests(writer, uncompared_fields) if is_checked or skip_damaged else None
    has_parallel_options = not (jobs is None and part is None and pipeline is None)
    if at_once and (has_parallel_options or writer.from_parts):
        reason = f"{format} always writes parts" if writer.from_parts else "it takes one process"
        raise ValueError(f"at_once: {reason}; leave it out, or jobs, part and Beam")
    staging = Staging(
        writer,
        final_path,
        digests,
        skip_damaged=skip_damaged,
        in_parts=not at_once
        and (writer.from_parts or writer.copies_parts or (has_parallel_options and not losses)),
        even_small=has_parallel_options,
        draft=drafts,
    )
    if part is not None:
        yield _write_share(staging, part, jobs or 1, placements, progress)
        return
    if not staging.parts or os.path.lexists(path):
        is_same = staging.remove_joined()
        if is_same and os.path.lexists(path):
            count = len(open_episodes(path, "all", format=format, **writer.read_options()))
            yield Exported(os.fspath(path), format, count, None, placements)
            return
    with (
        contextlib.closing(staging),
        atomic_target(path, last_patterns=formats()[format].first_read, drafts=drafts) as draft,
        staging,
        contextlib.ExitStack() as stack,
    ):
        bars = stack.enter_context(show_progress(progress))
        if workers is None or staging.is_small:
            num_workers = jobs or (1 if staging.is_small else default_jobs())
            # Starting a process takes longer than reading a part: one worker per part is enough.
            workers = stack.enter_context(Workers(min(num_workers, max(len(staging.parts), 1))))
        if staging.parts:
            on_advance = _open_bar(bars, "episodes to parts", staging.num_episodes)
            staging.run(workers, on_advance, pipeline=pipeline)
        total = len(writer.episodes) if writer.episodes.has_random_access else None
        on_advance = _open_bar(bars, f"episodes to {format}", total)
        notes = staging.join(draft, workers, on_advance, pipeline=pipeline)
        notes.warn()
        read_back = open_episodes(draft, "all", format=format, **writer.read_options())
        if not allow_loss:
            _check_description(read_back, description_changes or {})
        if is_checked and digests is not None:
            on_advance = _open_bar(bars, "episodes read back", len(notes.written))
            comparison = ReadBack.create(notes, read_back, digests)
            counts = _compare_written(comparison, workers, on_advance)
        elif writer.num_steps is None:
            counts = _count_written(read_back, notes)
        else:
            counts = len(notes.written), None
        renumbers = any(placement.how == "renumbered" for placement in placements)
        pairs = enumerate(notes.written)
        indices_to_label = (pair for pair in pairs if renumbers or pair[1] not in notes.copied)
        copy_labels(writer.episodes, indices_to_label, read_back, draft, final_path)
        traces = {split or read_back.splits[0]: trace for split, trace in notes.traces().items()}
        if writer.lineage is not None:
            lineage.write_lineage(draft, writer.lineage, traces)
        stack.close()
        writer.finish(path)
        left_out = tuple(map(str, notes.left_out.values()))
        num_episodes, num_steps = counts
        num_steps = num_steps if writer.num_steps is None else writer.num_steps
        yield Exported(os.fspath(path), format, num_episodes, num_steps, placements, left_out)
        staging.finish()
    staging.remove()


def _write_share(
    staging: Staging,
    part: tuple[int, int],
    jobs: int,
    placements: tuple[Placement, ...],
    progress: bool | None,
) -> Exported:
    """Writes this process's share of the parts; other processes write the remaining shares."""
    indices = staging.share(part)
    with contextlib.closing(staging), Workers(jobs) as workers, show_progress(progress) as bars:
        on_advance = _open_bar(bars, "episodes to parts", staging.count(indices))
        staging.run(workers, on_advance, indices=indices)
    num_written = staging.num_written(indices)
    return Exported(os.fspath(staging.folder), staging.format, num_written, None, placements)


def _open_bar(bars: Any, name: str, total: int | None) -> Callable[[float], None]:
    """Adds a progress bar; returns the function that advances it."""
    task = bars.add_task(name, total=total)
    return lambda count: bars.advance(task, count)


def _compare_written(
    comparison: ReadBack, workers: Workers, on_advance: Callable[[float], None]
) -> tuple[int, int | None]:
    """Compares the written dataset in several processes; counts its episodes and steps.

    Raises:
      ValueError: An episode differs; the message has the location.
    """
    episodes, count = comparison.read_back, len(comparison.written)
    size = min(count // _NUM_CALLS + 1, _MAX_EPISODES_PER_CALL)
    ranges = [range(n, min(n + size, count)) for n in range(0, count, size)]
    results = workers.run(comparison, ranges, delay=_SERIAL_SECONDS, on_advance=on_advance)
    num_steps = sum(steps for _, steps in results)
    if episodes.has(count):
        raise ValueError(f"{episodes.format}: the files hold more than {count} written episodes")
    has_copies = any(is_copied for *_, is_copied in comparison.written)
    return count, _count_steps(episodes) if has_copies else num_steps


def _count_written(episodes: Episodes, notes: Notes) -> tuple[int, int | None]:
    """Counts the episodes and steps of the written dataset."""
    if notes.copied:
        return len(episodes), _count_steps(episodes)
    steps = [summary.num_steps for summary in episodes.summaries()]
    return len(steps), sum(steps)


@contextlib.contextmanager
def advice(skip_damaged: bool, path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds advice to errors of an export; if the disk is full, names the dataset, not its draft."""
    try:
        yield
    except SourceError as error:
        if not (skip_damaged or isinstance(error, SourceChangedError)):
            options = "skip_damaged=True (--skip-damaged on the command line)"
            error.add_note(f"Nothing was written. To skip unreadable episodes, pass {options}.")
        raise
    except (OSError, StorageError) as error:
        code = _full_disk_errno(error)
        if code is None:
            raise
        full_disk = OSError(code, os.strerror(code), os.fspath(path))
        full_disk.add_note(
            "Nothing was changed. The new data needs disk space in addition to the old data. "
            "Free disk space, or write to another disk (--to on the command line)."
        )
        raise full_disk from error


def _full_disk_errno(error: BaseException | None) -> int | None:
    """Returns the error code if a full disk caused an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL_DISK_ERRNOS:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def prepare(
    source: str | os.PathLike[str] | Episodes | AnySource,
    format: str,
    *,
    split: str | None = None,
    source_format: str | None = None,
    source_options: Mapping[str, Any] | None = None,
    lineage_record: Mapping[str, Any] | None = None,
    **options: Any,
) -> Export:
    """Returns the `Export` that writes episodes in a format, before it is run; see `export`.

    `lineage_record` is the lineage of the new dataset; by default, the lineage of a conversion.
    """
    kind = export_class(format)
    option_names = options_of(kind)
    if unknown := options.keys() - option_names.keys():
        names = ", ".join(map(str, option_names.values())) or "none"
        problem = f"the format {format} has no option {min(unknown)!r}"
        raise TypeError(f"{problem}; its options are: {names}")
    name = ""
    if isinstance(source, Episodes):
        split, source_format = split or source.split, source.format
        source = source.source
    elif isinstance(source, AnySource):
        split = split or "all"
    else:
        dataset = open_episodes(source, split, format=source_format, **(source_options or {}))
        name = os.fspath(source)
        split, source_format, source = dataset.split, dataset.format, dataset.source
    source, source_format = reading.with_image_files(source), source_format or ""
    if lineage_record is None:
        lineage_record = lineage.conversion_lineage(
            source, format, options, name=name, source_format=source_format, split=split
        )
    lineage_metadata = {lineage.KEY: lineage.without_episodes(lineage_record)}
    episodes = Episodes(source, split, format=source_format, declared=lineage_metadata)
    writer = kind(episodes, **options)
    writer.lineage, writer.arguments = lineage_record, (episodes, options)
    return writer


def _count_steps(episodes: Episodes) -> int | None:
    """Returns the number of steps; None if the format does not store it."""
    lengths = episodes.lengths()
    return None if lengths is None else int(lengths.num_steps.sum())


def _check_description(episodes: Episodes, description_changes: Mapping[str, Any]) -> None:
    source_info, metadata = episodes.source.source_info, episodes.metadata
    for name, value in description_changes.items():
        if (getattr(source_info, name) if name in INFO_TEXTS else metadata.get(name)) != value:
            raise ValueError(
                f"describe: {episodes.format} cannot hold {name!r}. Leave it out, or allow the "
                "loss (allow_loss=True, --allow-loss on the command line)"
            )
