"""The data of an HTML report: a scan of the episodes, and the episodes to show."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import rlds
from rlds import auditing
from rlds.auditing import Audit
from rlds.sources import Episodes
from rlds.sources.cameras import Frames, VideoFrames, evenly
from rlds.sources.source import SourceEpisode, SourceError
from rlds.sources.video_frames import FramesSource, frames_of
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.names import suggest_names
from rlds_ecosystem.model.nests import named_leaves
from rlds_ecosystem.progress import show_progress
from rlds_tools import inspection
from rlds_tools.reading import declared_length, indices_at, indices_of
from rlds_tools.split_scan import SplitScan, open_splits

__all__ = ["ReportData", "ShownEpisode", "gather", "read_shown"]

# The maximum numbers of episodes and bytes to read, and the minimum number of episodes.
MAX_EPISODES, _MAX_READ_BYTES, _MIN_EPISODES = 5_000, 2_000_000_000, 50
# The maximum number of findings with a shown episode.
_MAX_SHOWN_FINDINGS = 10


@dataclasses.dataclass(frozen=True)
class ShownEpisode:
    """An episode that the report shows.

    Attributes:
      index: The index of the episode.
      stored_index: The index of the episode in the stored split.
      reason: The reason to show it, such as "highest return".
    """

    index: int
    stored_index: int
    reason: str


@dataclasses.dataclass(frozen=True)
class ReportData:
    """The data of a report.

    Attributes:
      path: The path of the data.
      inspection: The inspection of the dataset.
      scan: The survey of the episodes, with the findings of the audit.
      total: The number of episodes of the split; None if unknown.
      shown: The episodes to show.
      cameras: The cameras to show.
      video: The decoder of cameras that are stored as video; None without videos.
      audit: The meaning of actions, and scores; None without an audit.
    """

    path: str
    inspection: inspection.Inspection
    scan: SplitScan
    total: int | None
    shown: tuple[ShownEpisode, ...]
    cameras: tuple[str, ...]
    video: FramesSource | None
    audit: Audit | None

    @property
    def is_sample(self) -> bool:
        """True if only a sample of the episodes was read."""
        read = len(self.scan.table) + self.scan.num_unreadable
        return self.total is None or read < self.total

    def returns(self) -> tuple[np.ndarray, str]:
        """Returns the finite returns, and a note about infinite and NaN returns."""
        table, reward = self.scan.table.reward, self.scan.numeric_fields.get(rlds.REWARD)
        finite = table[np.isfinite(table)]
        num_not_finite = 0 if reward is None or reward.shape else len(table) - len(finite)
        return finite, f"; {num_not_finite:,} not finite, ignored" if num_not_finite else ""

    def camera_frames(self, index: int, episode: SourceEpisode) -> dict[str, Frames | VideoFrames]:
        """Returns the frames of the cameras to show that the episode has."""
        columns = dict(named_leaves(episode.steps))
        fields = self.scan.cameras
        frames: dict[str, Frames | VideoFrames] = {
            c: Frames(columns[c], fields[c]) for c in self.cameras if len(columns.get(c, ()))
        }
        if self.video is not None and episode.num_steps:
            location = self.scan.episodes.locate(index)
            for camera in filter(self.cameras.__contains__, self.video.cameras):
                frames[camera] = VideoFrames(self.video, *location, camera, episode.num_steps)
        return frames


def gather(
    path: str,
    split: str | None,
    *,
    episodes: Sequence[int],
    cameras: Sequence[str] | None,
    max_episodes: int,
    where: str | None,
    format: str | None,
    options: Mapping[str, Any] | None,
    progress: bool | None,
    jobs: int,
) -> ReportData:
    """Collects the data of a report from all episodes of a split, or from a sample.

    Args:
      path: The path of the data.
      split: The split; needed if there are several.
      episodes: The stored indices of the episodes to show; chosen automatically if empty.
      cameras: The cameras to show; all if None.
      max_episodes: The maximum number of episodes to read.
      where: A condition on episodes, in SQL; see `rlds.sources.open`.
      format: The name of the format, if it cannot be recognized.
      options: Options of the format; see `rlds.sources.open`.
      progress: Whether to show a progress bar; if None, on a terminal.
      jobs: The number of processes that read.

    Raises:
      IndexError: The split lacks an episode.
      KeyError: The dataset lacks the split or a camera, or has several splits.
      ValueError: The dataset is empty.
    """
    inspected = inspection.inspect(path, format=format, options=options)
    if not isinstance(inspected, inspection.Inspection):
        raise ValueError(f"{path} is a single file of records. Give the folder of its dataset.")
    splits = open_splits(path, split, format, options, where=where)
    if len(splits) > 1:
        names = ", ".join(result.split for result in splits)
        raise KeyError(f"{path} has the splits {names}. Choose one with --split.")
    if not splits:
        raise ValueError(f"{path} has no episodes")
    (split_episodes,) = splits
    scan = SplitScan(split_episodes)
    video = frames_of(split_episodes.source)
    camera_names = [*scan.cameras, *(video.cameras if video else ())]
    for camera in cameras or ():
        if camera not in camera_names:
            raise KeyError(f"no camera {camera!r}; {suggest_names(camera, camera_names)}")
    requested = indices_at(split_episodes, episodes)
    total = declared_length(split_episodes)
    indices = _choose_indices(split_episodes, total, max_episodes, inspected.num_bytes, requested)
    with show_progress(progress) as bars:
        expected = len(indices) if isinstance(indices, list) else total
        scan.read(bars.track(indices, total=expected, description="reading"), jobs)
    if total is None and not split_episodes.has(len(scan.table) + scan.num_unreadable):
        total = len(scan.table) + scan.num_unreadable
    if not len(scan.table):
        raise ValueError(f"{path}: no episode can be read. Run `rlds validate {path}`.")
    audit = None
    if split_episodes.has_random_access and not scan.num_unreadable and isinstance(indices, list):
        sample = split_episodes.select(indices)
        audit = auditing.audit(sample, progress=progress, jobs=jobs, keep=False)
        scan.collector.add_audit(audit, indices)
    return ReportData(
        path=path,
        inspection=inspected,
        scan=scan,
        total=total,
        shown=_choose_shown(scan, episodes),
        cameras=tuple(camera_names if cameras is None else cameras),
        video=video,
        audit=audit,
    )


def _choose_indices(
    episodes: Episodes,
    total: int | None,
    limit: int,
    num_bytes: int | None,
    requested: Sequence[int],
) -> Iterable[int]:
    if episodes.has_random_access and total is not None:
        affordable = _MAX_READ_BYTES * total // max(num_bytes or 1, 1)
        limit = min(limit, max(affordable, _MIN_EPISODES))
        return sorted({*evenly(total, limit), *requested})
    return itertools.islice(indices_of(episodes), max([limit, *(index + 1 for index in requested)]))


def _choose_shown(scan: SplitScan, requested: Sequence[int]) -> tuple[ShownEpisode, ...]:
    """Returns the episodes to show: requested episodes, or extreme and faulty episodes."""
    indices, lengths, rewards = scan.table.index, scan.table.length, scan.table.reward
    stored_indices = [*map(scan.episodes.stored_index, indices.tolist())]
    rows = {index: row for row, index in enumerate(stored_indices)}
    if requested:
        readable = [index for index in dict.fromkeys(requested) if index in rows]
        return tuple(ShownEpisode(int(indices[rows[index]]), index, "chosen") for index in readable)
    reasons: dict[int, list[str]] = {}

    def add(row: Any, reason: str) -> None:
        reasons.setdefault(int(row), []).append(reason)

    with_return = np.flatnonzero(np.isfinite(rewards))
    if len(with_return) and np.ptp(rewards[with_return]) > 0:
        order = with_return[np.argsort(rewards[with_return], kind="stable")]
        add(order[-1], "highest return")
        add(order[len(order) // 2], "median return")
        add(order[0], "lowest return")
    else:
        add(0, "first")
        add(len(indices) // 2, "middle")
    if np.ptp(lengths) > 0:
        add(np.argmin(lengths), "shortest")
        add(np.argmax(lengths), "longest")
    findings = [finding for finding in scan.findings if finding.episodes]
    for finding in findings[:_MAX_SHOWN_FINDINGS]:
        affected = [rows[index] for index in finding.episodes if index in rows]
        for row in [*(index for index in affected if index in reasons), *affected][:1]:
            add(row, finding.check)
    return tuple(
        ShownEpisode(int(indices[row]), stored_indices[row], " · ".join(dict.fromkeys(texts)))
        for row, texts in reasons.items()
    )


def read_shown(data: ReportData, index: int) -> SourceEpisode | None:
    """Reads an episode to show; returns None if it is unreadable."""
    try:
        return data.scan.episodes.episode(index)
    except SourceError:
        return None


def files_of(data: ReportData) -> list[tuple[str, int]]:
    """Returns the names and sizes of the first files."""
    files = data.scan.episodes.source.inputs()[:20]
    paths = [stores.as_path(file) for file in files]
    return [(path.name, path.stat().length) for path in paths]


def vectors_of(episode: SourceEpisode, scan: SplitScan, root: str) -> list[tuple[str, np.ndarray]]:
    """Returns the numeric fields below a root such as "action", of shape `[steps, elements]`."""
    columns = dict(named_leaves(episode.steps))
    return [
        (path, columns[path].reshape(len(columns[path]), -1).astype(np.float64))
        for path in scan.numeric_fields
        if path.split("/")[0] == root and isinstance(columns.get(path), np.ndarray)
        if columns[path].size
    ]


def states_of(scan: SplitScan) -> np.ndarray:
    """Returns sampled observations, `[steps, elements]`, without elements that never vary.

    Strides are powers of two, so all fields have samples at the steps of the largest stride.
    """
    samples = [
        field.sample
        for path, field in scan.numeric_fields.items()
        if path.split("/")[0] == rlds.OBSERVATION and field.count
    ]
    if not samples:
        return np.zeros((0, 0))
    stride = max(rows.stride for rows in samples)
    columns = [rows.all()[:: stride // rows.stride].astype(np.float64) for rows in samples]
    length = min(map(len, columns))
    states = np.concatenate([column[:length] for column in columns], axis=1)
    states = states[np.isfinite(states).all(axis=1)]
    varies = np.ptp(states, axis=0) > 0 if len(states) else slice(None)
    return np.asarray(states[:, varies])
