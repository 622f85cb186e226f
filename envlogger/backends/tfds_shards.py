"""The shards of a TFDS dataset that grows: how they come to be, and what is saved after a crash.

    data_directory/
      features.json, ...                    what an example of the dataset looks like
      dataset_info.json                     the shards that the dataset has, with their lengths
      <name>-<split>.tfrecord-00000         a shard
      .<name>-<split>.tfrecord-draft-<id>   a shard that is being written

A shard is written under the name of a draft. Once it is complete it is renamed to its number, and
then listed in `dataset_info.json`, which is replaced at once. So readers only ever see complete
shards, and writers never touch one that exists. Several may add to a dataset at a time.

A writer that dies leaves its draft, of which all but the end can be read: `recover` makes a shard
of it. It knows drafts of living writers by their lock, which the system releases with the process.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

import tensorflow as tf
import tensorflow_datasets as tfds
from etils import epath

from envlogger.backends.riegeli_layout import is_local
from envlogger.errors import StorageError

try:
    import fcntl
except ImportError:  # Windows, which cannot lock a directory.
    fcntl = None  # type: ignore[assignment]

__all__ = ["FILE_TEMPLATE", "ShardDraft", "add_split", "recover"]

FILE_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_INDEX}"

_FILE_FORMAT = "tfrecord"
_INFO_DRAFT_PREFIX = ".info-draft-"


class ShardDraft:
    """A shard that is being written.

    Args:
      info: The dataset; its splits are set to what the shard is added to.
      split: The name of the split that the shard belongs to.

    Attributes:
      num_examples: How many examples it has.

    Raises:
      StorageError: The file cannot be made.
    """

    def __init__(self, info: tfds.core.DatasetInfo, split: str) -> None:
        self._info = info
        self._split = split
        self._directory = epath.Path(info.data_dir)
        self._path = self._directory / f"{_draft_prefix(info, split)}{uuid.uuid4().hex}"
        self._lock: int | None = None
        self._is_torn = False
        self._num_bytes = 0
        self.num_examples = 0
        with _naming(self._path), _locked(self._directory):  # Nobody takes it for abandoned.
            self._writer = tf.io.TFRecordWriter(os.fspath(self._path))
            self._writer.flush()
            self._lock = _lock_file(self._path)

    def add(self, example: bytes) -> None:
        """Appends an example, which survives the death of the process from now on.

        Raises:
          StorageError: It cannot be written. What was added before is kept: call `finish`.
        """
        with _naming(self._path):
            self._is_torn = True
            self._writer.write(example)
            self._writer.flush()
            self._is_torn = False
        self.num_examples += 1
        self._num_bytes += len(example)

    def finish(self) -> None:
        """Makes the shard part of the dataset, or removes it if it is empty.

        Raises:
          StorageError: It cannot be written. The draft stays, for `recover`.
        """
        with _naming(self._path):
            try:
                self._close_file()
                if self._is_torn:  # By an example that was refused.
                    os.truncate(self._path, _file_size(self.num_examples, self._num_bytes))
                _sync(self._path)
                with _locked(self._directory):
                    _adopt(self._info, self._split, self._path, self.num_examples, self._num_bytes)
            finally:
                self.abandon()

    def _close_file(self) -> None:
        try:
            self._writer.close()
        except tf.errors.OpError:
            if not self._is_torn:  # Else it was told when it happened.
                raise

    def abandon(self) -> None:
        """Leaves the draft to whoever calls `recover`; further calls do nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def add_split(info: tfds.core.DatasetInfo, split: str) -> None:
    """Adds an empty split to a dataset, which is made if it does not exist.

    Raises:
      StorageError: It cannot be written.
    """
    directory = epath.Path(info.data_dir)
    with _naming(directory), _locked(directory):
        is_new = not tfds.core.dataset_info.dataset_info_path(directory).exists()
        if not is_new:
            _read_splits(info)
            if split in info.splits:  # Another writer was faster.
                return
        template = tfds.core.ShardedFileTemplate(
            data_dir=directory,
            dataset_name=info.name,
            split=split,
            filetype_suffix=_FILE_FORMAT,
            template=FILE_TEMPLATE,
        )
        new = tfds.core.SplitInfo(
            name=split, shard_lengths=[], num_bytes=0, filename_template=template
        )
        info.set_splits(tfds.core.splits.SplitDict([*info.splits.values(), new]))
        _write_info(info, everything=is_new)


def recover(info: tfds.core.DatasetInfo) -> dict[str, int]:
    """Adds the shards that writers left when they died, as far as they can be read.

    Where one ends amid an example, that end is kept beside it, as `.<name of the file>.torn`.

    Args:
      info: The dataset; its splits are set to those that it has then.

    Returns:
      For each split that has more examples now, how many.

    Raises:
      StorageError: A file cannot be read or written.
    """
    directory = epath.Path(info.data_dir)
    num_recovered: dict[str, int] = {}
    with _naming(directory), _locked(directory):
        for path in directory.glob(f"{_INFO_DRAFT_PREFIX}*"):
            path.rmtree()
        _read_splits(info)
        for split in list(info.splits):
            num_before = info.splits[split].num_examples
            _adopt_numbered(info, split)
            for path in _drafts(info, split):
                lock = _lock_file(path)
                if lock is not None:
                    _adopt(info, split, path, *_mend(path))
                    os.close(lock)
            num_new = info.splits[split].num_examples - num_before
            if num_new:
                num_recovered[split] = num_new
    return num_recovered


def _read_splits(info: tfds.core.DatasetInfo) -> None:
    """Sets the splits of a dataset to what its directory has."""
    path = tfds.core.dataset_info.dataset_info_path(info.data_dir)
    proto = tfds.core.dataset_info.read_from_json(path)
    template = tfds.core.ShardedFileTemplate(
        data_dir=info.data_dir,
        dataset_name=info.name,
        filetype_suffix=proto.file_format or _FILE_FORMAT,
    )
    splits = tfds.core.splits.SplitDict.from_proto(proto.splits, template)
    if _lengths(splits) != _lengths(info.splits):  # Else callers keep the objects that they have.
        info.set_splits(splits)


def _lengths(splits: tfds.core.splits.SplitDict) -> dict[str, list[int]]:
    return {split.name: split.shard_lengths for split in splits.values()}


def _write_info(info: tfds.core.DatasetInfo, *, everything: bool = False) -> None:
    """Writes `dataset_info.json`, so that others see either the old one or the new one.

    Args:
      info: The dataset.
      everything: Whether to write also what does not change with the shards, before it.
    """
    directory = epath.Path(info.data_dir)
    draft = directory / f"{_INFO_DRAFT_PREFIX}{uuid.uuid4().hex}"
    draft.mkdir()
    try:
        if everything:
            info.write_to_directory(draft)
        else:
            info.write_dataset_info_json(draft)
        last = tfds.core.dataset_info.dataset_info_path(draft)
        for path in [*(path for path in draft.iterdir() if path.name != last.name), last]:
            _sync(path)
            path.replace(directory / path.name)
    finally:
        draft.rmtree()
    _sync(directory)


def _adopt(
    info: tfds.core.DatasetInfo, split: str, path: epath.Path, num_examples: int, num_bytes: int
) -> None:
    """Makes a complete file a shard of the dataset; to be called under the lock."""
    if not num_examples:
        path.unlink()
        return
    _read_splits(info)
    _adopt_numbered(info, split)
    path.replace(_next_path(info.splits[split]))
    _list_shard(info, split, num_examples, num_bytes)


def _adopt_numbered(info: tfds.core.DatasetInfo, split: str) -> None:
    """Adopts files that have the number of a shard already, but are not listed."""
    while (path := _next_path(info.splits[split])).exists():
        num_examples, num_bytes = _mend(path)
        if not num_examples:
            path.unlink()
            return
        _list_shard(info, split, num_examples, num_bytes)


def _list_shard(info: tfds.core.DatasetInfo, split: str, num_examples: int, num_bytes: int) -> None:
    old = info.splits[split]
    new = old.replace(
        shard_lengths=[*old.shard_lengths, num_examples], num_bytes=old.num_bytes + num_bytes
    )
    info.set_splits(
        tfds.core.splits.SplitDict([new if s.name == split else s for s in info.splits.values()])
    )
    _write_info(info)


def _next_path(split: tfds.core.SplitInfo) -> epath.Path:
    return epath.Path(
        split.filename_template.sharded_filepath(shard_index=split.num_shards, num_shards=None)
    )


def _mend(path: epath.Path) -> tuple[int, int]:
    """Cuts off what follows the last complete example of a file, after making a copy of it.

    Returns:
      How many examples the file has, and their bytes.
    """
    num_examples = num_bytes = 0
    with contextlib.suppress(tf.errors.DataLossError):  # Where it is torn.
        for example in tf.data.TFRecordDataset(os.fspath(path)):
            num_examples += 1
            num_bytes += len(example.numpy())
    size = _file_size(num_examples, num_bytes)
    if path.stat().length > size:
        with path.open("rb") as file:
            file.seek(size)
            path.with_name(f".{path.name.removeprefix('.')}.torn").write_bytes(file.read())
        os.truncate(path, size)
    return num_examples, num_bytes


def _file_size(num_examples: int, num_bytes: int) -> int:
    """The size of a TFRecord file: with each record go its length and two checksums."""
    return num_bytes + 16 * num_examples


def _drafts(info: tfds.core.DatasetInfo, split: str) -> list[epath.Path]:
    prefix = _draft_prefix(info, split)
    paths = (path for path in epath.Path(info.data_dir).iterdir() if path.name.startswith(prefix))
    return sorted(path for path in paths if path.suffix != ".torn")


def _draft_prefix(info: tfds.core.DatasetInfo, split: str) -> str:
    return f".{info.name}-{split}.{_FILE_FORMAT}-draft-"


@contextlib.contextmanager
def _locked(directory: epath.Path) -> Iterator[None]:
    """Holds the lock of a dataset, which is for short: while `dataset_info.json` is replaced."""
    if fcntl is None or not is_local(directory):
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock_file(path: epath.Path) -> int | None:
    """Locks a draft for as long as the process lives.

    Returns:
      The descriptor to close; None if another writer has it, or if files cannot be locked there.
    """
    if fcntl is None or not is_local(path):
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _sync(path: epath.Path) -> None:
    """Brings a file, or the names in a directory, to the disk."""
    if not is_local(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _naming(path: epath.Path) -> Iterator[None]:
    """Raises errors of files as those of this package, with the path."""
    try:
        yield
    except (OSError, tf.errors.OpError) as e:
        raise StorageError(f"cannot write {path}: {e}; check the space left") from e
