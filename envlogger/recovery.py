"""Crash recovery of EnvLogger recordings: rebuilds the index of truncated or damaged shards."""

from __future__ import annotations

import dataclasses
import io
import os
import warnings
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from etils import epath
from google.protobuf.message import Message

import riegeli
from envlogger.backends.directories import directory_to_read
from envlogger.backends.riegeli_files import layout
from envlogger.backends.riegeli_files.shard_reader import (
    Shard,
    load_shards,
    read_metadata,
    scan_records,
)
from envlogger.backends.riegeli_files.shard_rebuilder import RebuiltShard, rebuild
from envlogger.converters import codec
from envlogger.errors import DamagedDataError, StorageError, storage_errors
from envlogger.proto.storage_pb2 import Datum
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.whole_files import sync, write_atomically

__all__ = ["RecoveryReport", "ShardReport", "recover"]

# The number of positions in a record of an index.
_POSITIONS_PER_RECORD = 1 << 16
_WRITER_OPTIONS = "zstd:3"


@dataclasses.dataclass(frozen=True)
class ShardReport:
    """The result of the crash recovery of a shard: counts before and after, and data loss.

    Attributes:
      path: The directory of the shard in the damaged recording.
      num_steps_before: The number of readable steps before the recovery.
      num_episodes_before: The number of readable episodes before the recovery.
      num_steps: The number of readable steps after the recovery.
      num_episodes: The number of readable episodes after the recovery.
      num_lost_steps: The number of indexed steps that are unreadable.
      num_lost_metadata: The number of episodes with unreadable metadata.
      lost_regions: The damaged regions of the file of steps, as text.
      is_changed: Whether the recovery changed the index files.
    """

    path: str
    num_steps_before: int
    num_episodes_before: int
    num_steps: int
    num_episodes: int
    num_lost_steps: int
    num_lost_metadata: int
    lost_regions: tuple[str, ...]
    is_changed: bool

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.num_episodes_before} -> {self.num_episodes} episodes, "
            f"{self.num_steps_before} -> {self.num_steps} steps"
        ]
        if not self.num_steps:
            lines.append("  no step is left, so the shard is removed from the index")
        if self.num_lost_steps:
            lines.append(f"  {self.num_lost_steps} indexed steps cannot be read")
        if self.num_lost_metadata:
            lines.append(f"  the metadata of {self.num_lost_metadata} episodes cannot be read")
        lines += [f"  lost in {layout.STEPS_FILE}: {region}" for region in self.lost_regions]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class RecoveryReport:
    """The result of `recover` for a recording.

    Attributes:
      path: The recovered directory.
      shards: The report of each shard.
      metadata_problem: The reason for replacing the metadata of the dataset by empty metadata; None
        if they are readable.
    """

    path: str
    shards: tuple[ShardReport, ...]
    metadata_problem: str | None

    @property
    def num_steps_before(self) -> int:
        """The number of readable steps before the recovery."""
        return sum(shard.num_steps_before for shard in self.shards)

    @property
    def num_steps(self) -> int:
        """The number of readable steps after the recovery."""
        return sum(shard.num_steps for shard in self.shards)

    @property
    def num_episodes_before(self) -> int:
        """The number of readable episodes before the recovery."""
        return sum(shard.num_episodes_before for shard in self.shards)

    @property
    def num_episodes(self) -> int:
        """The number of readable episodes after the recovery."""
        return sum(shard.num_episodes for shard in self.shards)

    @property
    def is_changed(self) -> bool:
        """Whether the recovery changed the recording."""
        return self.metadata_problem is not None or any(s.is_changed for s in self.shards)

    def __str__(self) -> str:
        lines = [
            f"{self.path}: {self.num_episodes_before} -> {self.num_episodes} episodes, "
            f"{self.num_steps_before} -> {self.num_steps} steps, {len(self.shards)} shards"
        ]
        if self.metadata_problem is not None:
            lines.append(f"the metadata and specs are lost: {self.metadata_problem}")
        lines += [str(s) for s in self.shards if s.is_changed or s.lost_regions or s.num_lost_steps]
        if not self.is_changed:
            lines.append("there is nothing to recover")
        return "\n".join(lines)


def recover(
    data_directory: str | os.PathLike[str],
    destination: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> RecoveryReport:
    """Recovers a recording after its recorder was killed, or its disk was damaged.

    Unindexed steps are split into episodes: an episode begins at a step of type FIRST and after a
    step of type LAST, unless the recorder stored other boundaries. Indexed steps keep their
    episodes, so discarded episodes stay discarded. After a damaged region, the steps up to the next
    episode form a separate episode. Recordings of this package and of the published EnvLogger are
    supported, and both can read the result. A second recovery changes nothing.

    Stop the recorder first. If the recording grows during the recovery, you get a warning, and
    later steps are not recovered. With `in_place`, later steps would be lost.

    Args:
      data_directory: The directory of the recording.
      destination: The directory of the recovered recording: an empty or new one outside of
        `data_directory`, which does not change.
      in_place: Whether to replace the index in `data_directory` instead. No byte is lost: the file
        of steps does not change, and the old index is kept as `*.damaged`.
      dry_run: Whether to write nothing, and only report what would be recovered.
      on_progress: Called with the current file, the position in it, and its length in bytes.

    Returns:
      The counts of episodes and steps before and after the recovery, and the data loss.

    Raises:
      ValueError: `destination`, `in_place` and `dry_run` are all missing or contradict each other,
        or `destination` is not empty, or is in `data_directory`.
      StorageError: There is no recording in the directory, or a file cannot be read or written.
      riegeli.UnimplementedError: An index uses a feature that cannot be read yet.
    """
    if (destination is not None) + in_place + dry_run != 1:
        raise ValueError("pass either a destination, or in_place=True, or dry_run=True")
    source = directory_to_read(data_directory)
    shards = load_shards(source)
    if not shards and not (source / layout.METADATA_FILE).exists():
        raise StorageError(f"{source} holds no recording of EnvLogger")
    target = source if destination is None else _create_directory(destination, source)
    with storage_errors(target):
        metadata_problem = _recover_metadata(source, None if dry_run else target)
        reports = tuple(
            _recover_shard(shard, None if dry_run else target, on_progress) for shard in shards
        )
    return RecoveryReport(os.fspath(target), reports, metadata_problem)


def _create_directory(path: str | os.PathLike[str], source: epath.Path) -> epath.Path:
    directory = stores.as_path(path)
    target, root = (os.path.join(os.path.realpath(path), "") for path in (directory, source))
    if target.startswith(root):
        # A search for recordings in `source` and below it would find the same steps twice.
        raise ValueError(
            f"destination {directory} is in the recording {source}, where its episodes would count "
            "twice; pass a directory outside"
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ValueError(f"destination {directory} exists and is not empty; pass another one")
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


def _recover_metadata(source: epath.Path, target: epath.Path | None) -> str | None:
    path = source / layout.METADATA_FILE
    try:
        read_metadata(source)
    except (DamagedDataError, StorageError) as e:
        if isinstance(e, StorageError) and path.exists():
            raise
        if target is not None:
            _replace(target / layout.METADATA_FILE, _encode_file([codec.encode({})]))
        return str(e)
    if target is not None and target != source:
        _copy(path, target / layout.METADATA_FILE)
    return None


def _recover_shard(
    shard: Shard, target: epath.Path | None, on_progress: Callable[[str, int, int], None] | None
) -> ShardReport:
    steps_path = shard.directory / layout.STEPS_FILE

    def report(position: int) -> None:
        if on_progress is not None:
            on_progress(os.fspath(steps_path), position, shard.steps_size)

    rebuilt = rebuild(shard, on_progress=report)
    report(shard.steps_size)
    old_metadata = _read_metadata_positions(shard)
    num_lost_metadata = 0
    for episode in rebuilt.episodes:
        if isinstance(episode.metadata, int) and episode.metadata not in old_metadata:
            num_lost_metadata += 1
            episode.metadata = layout.NO_METADATA
    is_changed = _differs(shard, rebuilt)
    if not rebuilt.positions:
        is_changed = (shard.directory / layout.STEP_OFFSETS_FILE).exists()
    if target is not None:
        _write_shard(shard, rebuilt, target / shard.directory.name, is_changed=is_changed)
    if steps_path.exists() and steps_path.stat().length > shard.steps_size:
        warnings.warn(
            f"{steps_path} grows: it is being recorded to. Recover it again when that has ended",
            stacklevel=3,
        )
    return ShardReport(
        path=os.fspath(shard.directory),
        num_steps_before=len(shard.step_offsets),
        num_episodes_before=len(shard.episode_starts),
        num_steps=len(rebuilt.positions),
        num_episodes=len(rebuilt.episodes),
        num_lost_steps=rebuilt.num_lost_steps + sum(d.num_steps or 0 for d in shard.damage),
        num_lost_metadata=num_lost_metadata,
        lost_regions=tuple(map(str, rebuilt.regions)),
        is_changed=is_changed,
    )


def _write_shard(
    shard: Shard, rebuilt: RebuiltShard, directory: epath.Path, *, is_changed: bool
) -> None:
    if not rebuilt.positions:
        if directory == shard.directory and is_changed:
            offsets = directory / layout.STEP_OFFSETS_FILE
            offsets.rename(_find_free_path(offsets))
        return
    if directory != shard.directory:
        directory.mkdir(exist_ok=not stores.is_local(directory))
        _copy(shard.directory / layout.STEPS_FILE, directory / layout.STEPS_FILE)
    if is_changed:
        _write_index(shard, rebuilt, directory)
    elif directory != shard.directory:
        for name in (
            layout.EPISODE_METADATA_FILE,
            layout.EPISODE_INDEX_FILE,
            layout.STEP_OFFSETS_FILE,
        ):
            _copy(shard.directory / name, directory / name)


def _read_metadata_positions(shard: Shard) -> set[int]:
    """Returns the positions of readable metadata, and -1 for episodes without metadata."""
    path = shard.directory / layout.EPISODE_METADATA_FILE
    positions = {layout.NO_METADATA}
    if path.exists():
        items = scan_records(path)
        positions |= {item[0] for item in items if not isinstance(item, riegeli.SkippedRegion)}
    return positions


def _differs(shard: Shard, rebuilt: RebuiltShard) -> bool:
    rows = [[episode.start, episode.metadata] for episode in rebuilt.episodes]
    return bool(
        shard.damage
        or not np.array_equal(shard.step_offsets, rebuilt.positions)
        or rows != shard.all_rows.tolist()
        or not (shard.directory / layout.EPISODE_METADATA_FILE).exists()
    )


def _write_index(shard: Shard, rebuilt: RebuiltShard, directory: epath.Path) -> None:
    """Writes the index atomically: an interruption leaves the old or the new index."""
    # New metadata are appended, so old metadata keep their positions.
    old = shard.directory / layout.EPISODE_METADATA_FILE
    content, positions = _append_records(
        old.read_bytes() if old.exists() else b"",
        [e.metadata for e in rebuilt.episodes if isinstance(e.metadata, bytes)],
    )
    new_positions = iter(positions)
    rows = [
        (e.start, e.metadata if isinstance(e.metadata, int) else next(new_positions))
        for e in rebuilt.episodes
    ]
    _replace(directory / layout.EPISODE_METADATA_FILE, content)
    _replace(directory / layout.EPISODE_INDEX_FILE, _encode_file(_encode_positions(rows)))
    offsets = _encode_positions(rebuilt.positions)
    offsets[-1].num_episodes = len(rebuilt.episodes)
    _replace(directory / layout.STEP_OFFSETS_FILE, _encode_file(offsets))


def _encode_positions(values: Sequence[int] | Sequence[tuple[int, int]]) -> list[Datum]:
    """Splits positions into records of an index."""
    starts = range(0, len(values), _POSITIONS_PER_RECORD)
    return [layout.encode_positions(values[i : i + _POSITIONS_PER_RECORD]) for i in starts]


def _encode_file(messages: Iterable[Message]) -> bytes:
    return _append_records(b"", [message.SerializeToString() for message in messages])[0]


def _append_records(content: bytes, records: list[bytes]) -> tuple[bytes, list[int]]:
    """Appends records to the content of a file, after removing a torn end.

    Returns:
      The new content, and the positions of the records.
    """
    file = io.BytesIO(content)
    for item in scan_records(io.BytesIO(content)):
        if isinstance(item, riegeli.SkippedRegion) and item.end >= len(content):
            file.truncate(item.begin)
    file.seek(0, io.SEEK_END)
    positions = []
    with riegeli.RecordWriter(file, owns_dest=False, options=_WRITER_OPTIONS) as writer:
        for record in records:
            writer.write_record(record)
            positions.append(writer.last_pos)
    return file.getvalue(), [position.numeric for position in positions]


def _replace(path: epath.Path, content: bytes) -> None:
    """Replaces a file atomically; keeps a copy of the old file."""
    if path.exists():
        if path.read_bytes() == content:
            return
        write_atomically(_find_free_path(path), path.read_bytes())
    write_atomically(path, content)


def _find_free_path(path: epath.Path) -> epath.Path:
    names = (f"{path.name}.damaged{suffix}" for suffix in ("", *map("-{}".format, range(2, 1000))))
    return next(other for name in names if not (other := path.with_name(name)).exists())


def _copy(source: epath.Path, target: epath.Path) -> None:
    stores.copy_file(source, target)
    sync(target)
