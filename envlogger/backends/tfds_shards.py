"""The shards of a TFDS dataset that grows: how they come to be, and what is saved after a crash.

    data_directory/
      features.json, ...                    what an example of the dataset looks like
      dataset_info.json                     the shards that the dataset has, with their lengths
      <name>-<split>.tfrecord-00000         a shard
      .<name>-<split>.tfrecord-draft-<id>   a shard that is being written
    .replacement-<id>/                    a dataset that is going to replace splits of this one

A shard is written under the name of a draft. Once it is complete it is renamed to its number, and
then listed in `dataset_info.json`, which is replaced at once. So readers only ever see complete
shards, and writers never touch one that exists. Several may add to a dataset at a time.

A writer that dies leaves its draft, of which all but the end can be read: `recover` makes a shard
of it. It knows drafts of living writers by their lock, which the system releases with the process.

Drafts are TFRecord files whatever the format of the dataset, because others cannot be read before
they are complete. For those a draft is copied to a file in the format, `<name of the draft>.whole`,
and removed when that is complete.

A split is replaced when `dataset_info.json` is, too: the files of the new one have other names than
those of the old one, which are removed afterwards.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds
from etils import epath

from envlogger.errors import StorageError
from rlds_ecosystem import stores
from rlds_ecosystem.stores import is_local

try:
    import fcntl
except ImportError:  # Windows, which cannot lock a directory.
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "FILE_TEMPLATE",
    "Replacement",
    "ShardDraft",
    "add_split",
    "check_replaceable",
    "has_same_features",
    "has_to_be_replaced",
    "open_dataset",
    "recover",
]

FILE_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_INDEX}"

# The names of files take turns when a split is replaced.
_TEMPLATES = (FILE_TEMPLATE, "{DATASET}-{SPLIT}.{FILEFORMAT}-r{SHARD_INDEX}")
_DRAFT_FORMAT = tfds.core.FileFormat.TFRECORD
_INFO_DRAFT_PREFIX = ".info-draft-"
_REPLACEMENT_PREFIX = ".replacement-"
_WHOLE = ".whole"
_TORN = ".torn"


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
        self._directory = stores.as_path(info.data_dir)
        place = self._directory
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if not is_local(place):  # Each flush would write the whole file anew.
            self._temporary = tempfile.TemporaryDirectory(prefix="rlds-shard-")
            place = epath.Path(self._temporary.name)
        self._path = place / f"{_draft_prefix(info, split)}{uuid.uuid4().hex}"
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
                whole = _whole(self._info, self._path)
                with _locked(self._directory):
                    _adopt_draft(
                        self._info,
                        self._split,
                        self._path,
                        whole,
                        self.num_examples,
                        self._num_bytes,
                    )
            finally:
                self.abandon()

    def _close_file(self) -> None:
        try:
            self._writer.close()
        except tf.errors.OpError:
            if not self._is_torn:  # Else it was told when it happened.
                raise

    def abandon(self) -> None:
        """Leaves the draft to whoever calls `recover`; further calls do nothing.

        There is no draft in an object store, but only complete shards.
        """
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._temporary is not None:
            self._temporary.cleanup()


class Replacement:
    """A place beside a dataset for what is going to replace splits of it, or all of it.

    What writers that died left there is removed.

    Args:
      directory: The directory of the dataset.

    Attributes:
      directory: Where to write the new dataset, with the functions of this module.

    Raises:
      StorageError: The place cannot be made.
    """

    def __init__(self, directory: epath.Path) -> None:
        self._target = directory
        self._lock: int | None = None
        with _naming(directory), _locked(directory):
            _remove_info_drafts(directory)
            for abandoned in directory.glob(f"{_REPLACEMENT_PREFIX}*"):
                _remove_unless_locked(abandoned)
            self.directory = directory / f"{_REPLACEMENT_PREFIX}{uuid.uuid4().hex}"
            self.directory.mkdir()
            (self.directory / ".lock").write_bytes(b"")
            self._lock = _lock_file(self.directory / ".lock")

    def commit(self, info: tfds.core.DatasetInfo, target: tfds.core.DatasetInfo) -> None:
        """Replaces the splits of a dataset that the new one has; its others stay.

        Args:
          info: The new dataset.
          target: The same in its final directory; its splits are set to what it has then.

        Raises:
          StorageError: The dataset cannot be written, or has other splits that do not fit the
            new one.
        """
        with _naming(self._target), _locked(self._target):
            stored = check_replaceable(target, list(info.splits))
            old = dict(stored.splits.items()) if stored else {}
            splits = {
                **old,
                **{name: _move(new, old.get(name)) for name, new in info.splits.items()},
            }
            splits = {
                name: split.replace(
                    filename_template=split.filename_template.replace(data_dir=self._target)
                )
                for name, split in splits.items()
            }
            _sync(self._target)
            target.set_splits(tfds.core.splits.SplitDict(list(splits.values())))
            _write_info(target, everything=True)
            for name in info.splits:
                for path in _drafts(target, name):
                    lock = _lock_file(path)
                    if lock is not None:
                        path.unlink()
                        os.close(lock)
                for path in old[name].filepaths if name in old else ():
                    stores.as_path(path).unlink(missing_ok=True)
            self.discard()

    def discard(self) -> None:
        """Removes the new dataset; further calls do nothing."""
        if self.directory.exists():
            self.directory.rmtree()
        self.abandon()

    def abandon(self) -> None:
        """Leaves it to the next one in the same place; further calls do nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _move(new: tfds.core.SplitInfo, old: tfds.core.SplitInfo | None) -> tfds.core.SplitInfo:
    """Moves the files of a split out of their directory, to names that the old split has not."""
    directory = stores.as_path(new.filename_template.data_dir).parent
    taken = [path.name for path in old.filepaths] if old else []
    templates = (
        new.filename_template.replace(data_dir=directory, template=name) for name in _TEMPLATES
    )
    template = next(t for t in templates if not any(t.is_valid(name) for name in taken))
    for path in directory.iterdir():  # What is left of one that was killed here.
        if template.is_valid(path.name):
            path.unlink()
    for index, path in enumerate(new.filepaths):
        stores.move_file(path, template.sharded_filepath(shard_index=index, num_shards=None))
    return new.replace(filename_template=template)


def _remove_unless_locked(directory: epath.Path) -> None:
    lock = None
    if (directory / ".lock").exists():
        lock = _lock_file(directory / ".lock")
        if lock is None:
            return
    directory.rmtree()
    if lock is not None:
        os.close(lock)


def check_replaceable(
    info: tfds.core.DatasetInfo, splits: Sequence[str]
) -> tfds.core.DatasetInfo | None:
    """Checks that splits of the dataset in a directory can be replaced.

    Args:
      info: The dataset that is going to be there.
      splits: Its splits.

    Returns:
      The dataset that is there, or None.

    Raises:
      StorageError: It has other splits, and does not fit.
    """
    if not _exists(info):
        return None
    stored = _stored(info.data_dir)
    others = [name for name in stored.splits if name not in splits]
    difference = _difference(info, stored)
    if others and difference is not None:
        raise StorageError(f"the splits {others} would be lost: {difference}")
    return stored


def has_to_be_replaced(info: tfds.core.DatasetInfo, splits: Sequence[str]) -> bool:
    """Whether splits cannot simply be added to: they have examples, or the dataset is another.

    Raises:
      StorageError: See `check_replaceable`.
    """
    stored = check_replaceable(info, splits)
    return stored is not None and (
        any(split.num_examples for name, split in stored.splits.items() if name in splits)
        or _difference(info, stored) is not None
    )


def has_same_features(info: tfds.core.DatasetInfo) -> bool:
    """Whether there is a dataset in the directory that has these features.

    Raises:
      StorageError: There is one that cannot be read.
    """
    return _exists(info) and _features_json(_stored(info.data_dir)) == _features_json(info)


def open_dataset(info: tfds.core.DatasetInfo, splits: Sequence[str], *, stacklevel: int) -> None:
    """Makes a dataset and its splits, where they do not exist; else checks that they fit.

    What writers left when they died is added, with a warning.

    Args:
      info: The dataset; its splits are set to those that it has then.
      splits: The splits to be added to.
      stacklevel: Whose line a warning names, as in `warnings.warn` from here.

    Raises:
      StorageError: It cannot be read or written, or is another dataset; says what is different.
    """
    if _exists(info):
        _check_fits(info, stacklevel=stacklevel + 1)
        for name, num_episodes in recover(info).items():
            warnings.warn(
                f"{info.data_dir}: added {num_episodes} episodes to the split {name!r}, from a "
                "recorder that died before it finished its shard",
                stacklevel=stacklevel,
            )
    for split in splits:
        if split not in info.splits:
            add_split(info, split)


def _exists(info: tfds.core.DatasetInfo) -> bool:
    directory = stores.as_path(info.data_dir)
    exists: bool = tfds.core.dataset_info.dataset_info_path(directory).exists()
    return exists


def _stored(directory: epath.PathLike) -> tfds.core.DatasetInfo:
    try:
        return tfds.builder_from_directory(directory).info
    except Exception as e:  # Whatever TFDS raises for a file that is damaged or missing.
        raise StorageError(
            f"{directory} has a dataset that cannot be read: {e}; record to another directory"
        ) from e


def _difference(info: tfds.core.DatasetInfo, stored: tfds.core.DatasetInfo) -> str | None:
    """Says in which respect a dataset is another one; None if it is the same."""
    directory = info.data_dir
    for what, here, there in (
        ("name", info.name, stored.name),
        ("version", info.version, stored.version),
        ("file format", info.file_format, stored.file_format),
    ):
        if here != there:
            return (
                f"{directory} has a dataset of another {what}: {there}, not {here}; record to "
                "another directory"
            )
    if _features_json(stored) != _features_json(info):
        return (
            f"{directory} has a dataset with other features, or features that are stored in "
            f"another way:\n{stored.features}\nnot\n{info.features}\nrecord to another directory"
        )
    return None


def _features_json(info: tfds.core.DatasetInfo) -> Any:
    return info.features.to_json()


def _check_fits(info: tfds.core.DatasetInfo, *, stacklevel: int) -> None:
    """Checks that a dataset which exists can take what is recorded now."""
    directory = info.data_dir
    stored = _stored(directory)
    difference = _difference(info, stored)
    if difference is not None:
        raise StorageError(difference)
    for name, split in stored.splits.items():
        if split.filename_template.template not in _TEMPLATES:
            raise StorageError(
                f"{directory} has a dataset that is complete: the names of the files of its split "
                f"{name!r} say how many there are; record to another directory"
            )
    if info.metadata is not None and dict(stored.metadata or {}) != dict(info.metadata):
        warnings.warn(
            f"the metadata of the dataset in {directory} is kept as it is, although the metadata "
            "given now is different; record to another directory to store it",
            stacklevel=stacklevel,
        )


def add_split(info: tfds.core.DatasetInfo, split: str) -> None:
    """Adds an empty split to a dataset, which is made if it does not exist.

    Raises:
      StorageError: It cannot be written.
    """
    directory = stores.as_path(info.data_dir)
    with _naming(directory), _locked(directory):
        is_new = not _exists(info)
        if not is_new:
            _read_splits(info)
            if split in info.splits:  # Another writer was faster.
                return
        template = tfds.core.ShardedFileTemplate(
            data_dir=directory,
            dataset_name=info.name,
            split=split,
            filetype_suffix=info.file_format.file_suffix,
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
    directory = stores.as_path(info.data_dir)
    num_recovered: dict[str, int] = {}
    with _naming(directory), _locked(directory):
        _remove_info_drafts(directory)
        _read_splits(info)
        for split in list(info.splits):
            num_before = info.splits[split].num_examples
            _adopt_numbered(info, split)
            for path in _drafts(info, split):
                lock = _lock_file(path)
                if lock is not None:
                    size = _mend(path)
                    _adopt_draft(info, split, path, _whole(info, path), *size)
                    os.close(lock)
            for path in _wholes(info, split):
                if not _draft_of(path).exists():  # Else it is not complete.
                    _adopt(info, split, path, *_size(info, path))
            num_new = info.splits[split].num_examples - num_before
            if num_new:
                num_recovered[split] = num_new
    return num_recovered


def _read_splits(info: tfds.core.DatasetInfo) -> None:
    """Sets the splits of a dataset to what its directory has."""
    path = tfds.core.dataset_info.dataset_info_path(stores.as_path(info.data_dir))
    proto = tfds.core.dataset_info.read_from_json(path)
    template = tfds.core.ShardedFileTemplate(
        data_dir=info.data_dir,
        dataset_name=info.name,
        filetype_suffix=proto.file_format or info.file_format.file_suffix,
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
    directory = stores.as_path(info.data_dir)
    name = f"{_INFO_DRAFT_PREFIX}{uuid.uuid4().hex}"
    draft = (directory if is_local(directory) else epath.Path(tempfile.gettempdir())) / name
    draft.mkdir()
    try:
        if everything:
            info.write_to_directory(draft)
        else:
            info.write_dataset_info_json(draft)
        last = tfds.core.dataset_info.dataset_info_path(draft)
        for path in [*(path for path in draft.iterdir() if path.name != last.name), last]:
            _sync(path)
            stores.move_file(path, directory / path.name)
    finally:
        draft.rmtree()
    _sync(directory)


def _whole(info: tfds.core.DatasetInfo, draft: epath.Path) -> epath.Path:
    """Returns a file with the content of a draft in the format of the dataset, on the disk."""
    path = draft
    if info.file_format != _DRAFT_FORMAT:
        path = draft.with_name(draft.name + _WHOLE)
        examples = tf.data.TFRecordDataset(os.fspath(draft)).as_numpy_iterator()
        adapter = tfds.core.file_adapters.ADAPTER_FOR_FORMAT[info.file_format]
        adapter.write_examples(path, ((None, example) for example in examples))
    _sync(path)
    return path


def _remove_info_drafts(directory: epath.Path) -> None:
    """Removes what writers that died left; to be called under the lock."""
    for path in directory.glob(f"{_INFO_DRAFT_PREFIX}*"):
        path.rmtree()


def _adopt_draft(
    info: tfds.core.DatasetInfo,
    split: str,
    draft: epath.Path,
    whole: epath.Path,
    num_examples: int,
    num_bytes: int,
) -> None:
    if whole != draft:
        draft.unlink()
    _adopt(info, split, whole, num_examples, num_bytes)


def _adopt(
    info: tfds.core.DatasetInfo, split: str, path: epath.Path, num_examples: int, num_bytes: int
) -> None:
    """Makes a complete file a shard of the dataset; to be called under the lock."""
    if not num_examples:
        path.unlink()
        return
    _read_splits(info)
    _adopt_numbered(info, split)
    stores.move_file(path, _next_path(info.splits[split]))
    _list_shard(info, split, num_examples, num_bytes)


def _adopt_numbered(info: tfds.core.DatasetInfo, split: str) -> None:
    """Adopts files that have the number of a shard already, but are not listed."""
    while (path := _next_path(info.splits[split])).exists():
        num_examples, num_bytes = _size(info, path)
        if not num_examples:
            path.unlink(missing_ok=True)
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
    return stores.as_path(
        split.filename_template.sharded_filepath(shard_index=split.num_shards, num_shards=None)
    )


def _size(info: tfds.core.DatasetInfo, path: epath.Path) -> tuple[int, int]:
    """How many examples a file has, and their bytes; what is damaged is put aside."""
    if not is_local(path):
        with stores.on_disk(path) as copy:
            return _size(info, epath.Path(copy))
    if info.file_format == _DRAFT_FORMAT:
        return _mend(path)
    adapter = tfds.core.file_adapters.ADAPTER_FOR_FORMAT[info.file_format]
    try:
        return adapter.num_examples(path), path.stat().length
    except Exception:  # Whatever a format raises for a file that was never completed.
        path.replace(_torn(path))
        return 0, 0


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
            _torn(path).write_bytes(file.read())
        os.truncate(path, size)
    return num_examples, num_bytes


def _torn(path: epath.Path) -> epath.Path:
    return path.with_name(f".{path.name.removeprefix('.')}{_TORN}")


def _file_size(num_examples: int, num_bytes: int) -> int:
    """The size of a TFRecord file: with each record go its length and two checksums."""
    return num_bytes + 16 * num_examples


def _drafts(info: tfds.core.DatasetInfo, split: str) -> list[epath.Path]:
    paths = _files_of_drafts(info, split)
    return [path for path in paths if path.suffix not in (_TORN, _WHOLE)]


def _wholes(info: tfds.core.DatasetInfo, split: str) -> list[epath.Path]:
    return [path for path in _files_of_drafts(info, split) if path.suffix == _WHOLE]


def _files_of_drafts(info: tfds.core.DatasetInfo, split: str) -> list[epath.Path]:
    prefix = _draft_prefix(info, split)
    paths = stores.as_path(info.data_dir).iterdir()
    return sorted(path for path in paths if path.name.startswith(prefix))


def _draft_of(whole: epath.Path) -> epath.Path:
    return whole.with_name(whole.name.removesuffix(_WHOLE))


def _draft_prefix(info: tfds.core.DatasetInfo, split: str) -> str:
    return f".{info.name}-{split}.{info.file_format.file_suffix}-draft-"


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
        advice = "; check the space left" if is_local(path) else ""
        raise StorageError(f"cannot write {path}: {e}{advice}") from e
