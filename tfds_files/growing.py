"""Appending to a TFDS dataset: drafts of shards, publication, and crash recovery.

    directory/
      features.json, ...                    features of an example, and other metadata
      dataset_info.json                     list of the shards, with their lengths
      <name>-<split>.tfrecord-00000         a shard
      .<name>-<split>.tfrecord-draft-<id>   an unfinished shard
      .feeds/                               the indexes of shards; see `tfds_files.shard_index`
    .replacement-<id>/                    a dataset whose splits will replace those of this one

A shard is written as a draft file. A complete draft is renamed to its number, and then listed
in `dataset_info.json`, which is replaced atomically. Readers see only complete shards, and writers
never change an existing shard. Several writers may append to a dataset at a time.

A killed writer leaves its draft. `recover` moves the incomplete end to `<name of the draft>.torn`,
and publishes the rest as a shard. Drafts of running writers are locked until their process ends.

Drafts are always TFRecord files, because incomplete files of other formats cannot be read. For
these formats, a draft is converted to a file `<name of the draft>.whole`, and then removed.

Replacing `dataset_info.json` replaces a split: the new files have other names than the old ones,
which are removed afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from etils import epath

from rlds_ecosystem.files import stores
from rlds_ecosystem.files.stores import is_local
from rlds_ecosystem.files.whole_files import lock_directory, sync, try_to_lock
from rlds_ecosystem.model.errors import StorageError
from tfds_files import index_files
from tfds_files.errors import DamagedFileError, TfdsFilesError
from tfds_files.example_encoder import ExampleEncoder
from tfds_files.features import Features, check_features, leaves_of, parse_features, read_features
from tfds_files.folder import TEMPLATE, shard_name
from tfds_files.indexing import save_index
from tfds_files.record_files import (
    FOOTER,
    HEADER,
    TFRecordWriter,
    open_record_file,
    valid_records,
    write_records,
)
from tfds_files.summary import FEATURES_FILE, INFO_FILE, METADATA_FILE, read_json
from tfds_files.writing import check_word, describe, info_of

__all__ = [
    "GROWING_TEMPLATES",
    "Appender",
    "Description",
    "GrowingDataset",
    "Replacement",
    "ShardDraft",
    "append_to",
]

GROWING_TEMPLATES = (
    "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_INDEX}",
    "{DATASET}-{SPLIT}.{FILEFORMAT}-r{SHARD_INDEX}",
)
"""The names of shards, without their total number; a replacement uses the other template."""

_DRAFT_FORMAT = "tfrecord"
_FILE_FORMATS = ("tfrecord", "array_record")
_INFO_DRAFT_PREFIX = ".info-draft-"
_REPLACEMENT_PREFIX = ".replacement-"
_CONVERTED_SUFFIX = ".whole"  # A copy of a draft in the file format of the dataset.
_PARTIAL_SUFFIX = ".torn"  # The incomplete end of the draft of a killed writer.


@dataclasses.dataclass(frozen=True)
class Description:
    """The identity of a dataset, apart from its examples: name, version, format and features.

    Attributes:
      name: The name of the dataset.
      version: The version of the dataset.
      file_format: The format of the shards, such as "tfrecord".
      features: The JSON of the features.
      metadata: The metadata of the dataset, in the types of JSON; None without metadata.
      write: Writes `dataset_info.json`, without splits, and the other metadata files to a folder.
        The function is called when the dataset is created or replaced.
    """

    name: str
    version: str
    file_format: str
    features: Any
    metadata: Mapping[str, Any] | None
    write: Callable[[epath.Path], Any]


class _ShardSize(NamedTuple):
    """The size of a shard.

    Attributes:
      num_examples: The number of examples.
      num_bytes: The total size of the examples.
    """

    num_examples: int
    num_bytes: int

    @property
    def file_size(self) -> int:
        """The size of the TFRecord file of these examples."""
        return self.num_bytes + (HEADER.size + FOOTER.size) * self.num_examples


class GrowingDataset:
    """A dataset to which shards are added.

    Args:
      directory: The folder, or a URL.
      description: The identity of the dataset.

    All methods raise a `StorageError` if a file cannot be read or written, or was not written by
    TFDS.
    """

    def __init__(self, directory: epath.PathLike, description: Description) -> None:
        self.directory = stores.as_path(directory)
        self._description = description
        self._name, self._file_format = description.name, description.file_format

    @property
    def exists(self) -> bool:
        """Whether the dataset exists."""
        return bool((self.directory / INFO_FILE).exists())

    def splits(self) -> dict[str, list[int]]:
        """Returns the lengths of the shards of each split, in examples."""
        return {split["name"]: _shard_lengths(split) for split in self._read_existing()["splits"]}

    def open(self, splits: Iterable[str], *, stacklevel: int = 2) -> None:
        """Creates the dataset and its splits if missing; otherwise checks that they match.

        The drafts of killed writers are added, with a warning.

        Args:
          splits: The splits to append to.
          stacklevel: See `warnings.warn`.

        Raises:
          StorageError: The folder has another dataset; the error names the difference.
        """
        if self.exists:
            self._check_fits(stacklevel + 1)
            for name, num_added in self.recover().items():
                warnings.warn(
                    f"{self.directory}: added {num_added} episodes to the split {name!r}, from a "
                    "recorder that was killed before it finished its shard",
                    stacklevel=stacklevel,
                )
        for split in splits:
            self.add_split(split)

    def has_same_features(self) -> bool:
        """Whether the dataset exists with the features of the description."""
        return self.exists and self._find_different_features() is None

    def check_replaceable(self, splits: Container[str]) -> None:
        """Checks that splits can be replaced by those of a dataset of this description.

        Raises:
          StorageError: Splits that would remain do not fit the description.
        """
        kept_splits = [name for name in self.splits() if name not in splits] if self.exists else []
        difference = self._describe_difference() if kept_splits else None
        if difference is not None:
            raise StorageError(f"the splits {kept_splits} would be lost: {difference}")

    def needs_replacement(self, splits: Container[str]) -> bool:
        """Whether splits must be replaced: they have examples, or the existing dataset differs.

        Raises:
          StorageError: See `check_replaceable`.
        """
        self.check_replaceable(splits)
        return self.exists and (
            any(sum(lengths) for name, lengths in self.splits().items() if name in splits)
            or self._describe_difference() is not None
        )

    def _check_fits(self, stacklevel: int) -> None:
        difference = self._describe_difference()
        if difference is not None:
            raise StorageError(difference)
        for split in self._read_existing()["splits"]:
            if split.get("filepathTemplate") not in GROWING_TEMPLATES:
                raise StorageError(
                    f"{self.directory} has a complete dataset: the file names of its split "
                    f"{split['name']!r} fix the number of files. Write to another directory"
                )
        metadata = self._description.metadata
        if metadata is not None and dict(metadata) != self._read_existing_json(METADATA_FILE):
            warnings.warn(
                f"{self.directory}: the dataset keeps its metadata; the metadata passed now "
                "differs, and is not stored. To store it, write to another directory",
                stacklevel=stacklevel + 1,
            )

    def _describe_difference(self) -> str | None:
        """Describes a difference to the existing dataset; None if they match."""
        stored = self._read_existing()
        for key, new, existing in (
            ("name", self._name, stored.get("name")),
            ("version", self._description.version, stored.get("version")),
            ("file format", self._file_format, stored.get("fileFormat") or _DRAFT_FORMAT),
        ):
            if new != existing:
                return (
                    f"{self.directory} has a dataset with another {key}: {existing}, not {new}; "
                    "write to another directory"
                )
        feature_names = self._find_different_features()
        if feature_names is not None:
            return (
                f"{self.directory} has a dataset with other features or encodings: "
                f"{', '.join(feature_names)}; write to another directory"
            )
        return None

    def _find_different_features(self) -> list[str] | None:
        """Returns the fields that differ from the existing dataset; None if all are equal."""
        new, stored = self._description.features, self._read_existing_json(FEATURES_FILE)
        try:
            parsed = [parse_features(features) for features in (new, stored)]
        except TfdsFilesError:  # The features are unsupported, so their fields are unknown.
            return None if new == stored else []
        if parsed[0].to_json() == parsed[1].to_json():
            return None
        left, right = ({leaf.name: leaf for leaf in leaves_of(features)} for features in parsed)
        return sorted(name for name in {**left, **right} if left.get(name) != right.get(name))

    def _read_existing(self) -> dict[str, Any]:
        with _storage_errors(self.directory, "has a dataset that cannot be read"):
            return self._read()

    def _read_existing_json(self, name: str) -> Any:
        with _storage_errors(self.directory, "has a dataset that cannot be read"):
            path = self.directory / name
            return read_json(path) if path.exists() else {}

    def add_split(self, split: str) -> None:
        """Adds an empty split, and creates the dataset if it does not exist."""
        with _storage_errors(self.directory), lock_directory(self.directory):
            info = self._read() if self.exists else {"splits": []}
            if _find_split(info, split) is None:  # Another writer may have added it.
                info["splits"].append({"filepathTemplate": GROWING_TEMPLATES[0], "name": split})
                self._write(info, describe=not self.exists)

    def recover(self) -> dict[str, int]:
        """Publishes the drafts of killed writers, up to their first damaged example.

        A truncated example at the end is kept in a file `.<name of the file>.torn`.

        Returns:
          The number of added examples, by changed split.
        """
        recovered: dict[str, int] = {}
        with _storage_errors(self.directory), lock_directory(self.directory):
            _remove_info_drafts(self.directory)
            info = self._read()
            for split in info["splits"]:
                num_before = sum(_shard_lengths(split))
                self._publish_numbered(info, split)
                for path in self._drafts(split["name"]):
                    lock = try_to_lock(path)
                    if lock is not None:
                        size = _truncate_to_complete(path)
                        self._publish(info, split, self._convert_draft(path), size, path)
                        os.close(lock)
                for path in self._draft_files(split["name"]):
                    # Drafts are removed after copying, so a file without a draft is complete.
                    if path.suffix == _CONVERTED_SUFFIX and not _draft_of(path).exists():
                        self._publish(info, split, path, self._size(path))
                num_new = sum(_shard_lengths(split)) - num_before
                if num_new:
                    recovered[split["name"]] = num_new
        return recovered

    def _add_shard(self, split: str, draft: epath.Path, file: epath.Path, size: _ShardSize) -> None:
        """Publishes a complete draft as a shard, and saves its index."""
        with lock_directory(self.directory):
            info = self._read()
            stored = _find_split(info, split)
            if stored is None:
                raise KeyError(f"{self.directory} no longer has a split {split!r}")
            shard = self._publish(info, stored, file, size, draft)
        if shard is not None and self._file_format == "tfrecord":
            save_index(shard, lambda: read_features(self.directory))

    def _read(self) -> dict[str, Any]:
        """Reads and checks `dataset_info.json`."""
        path = self.directory / INFO_FILE
        info = read_json(path)
        try:
            info["splits"] = [
                {**split, "name": str(split["name"])} for split in info.get("splits", [])
            ]
            for split in info["splits"]:
                _shard_lengths(split), int(split.get("numBytes", 0))
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise DamagedFileError(f"{path}: the splits are malformed: {e!r}") from e
        return info

    def _write(self, info: dict[str, Any], *, describe: bool = False) -> None:
        """Replaces `dataset_info.json` atomically.

        Args:
          info: The new content.
          describe: True to use only its splits, and to write all metadata files again.
        """
        name = f"{_INFO_DRAFT_PREFIX}{uuid.uuid4().hex}"
        temporary = epath.Path(tempfile.gettempdir())
        draft = (self.directory if is_local(self.directory) else temporary) / name
        draft.mkdir()
        try:
            info_file = draft / INFO_FILE
            if describe:
                self._description.write(draft)
                info = {**read_json(info_file), "splits": info["splits"]}
            info_file.write_text(json.dumps(info, indent=2, sort_keys=True))
            for path in [*(path for path in draft.iterdir() if path.name != INFO_FILE), info_file]:
                sync(path)
                stores.move_file(path, self.directory / path.name)
        finally:
            draft.rmtree()
        sync(self.directory)

    def _convert_draft(self, draft: epath.Path) -> epath.Path:
        """Returns a file with the content of a draft in the format of the dataset, synced."""
        path = draft
        if self._file_format != _DRAFT_FORMAT:
            path = draft.with_name(draft.name + _CONVERTED_SUFFIX)
            write_records(path, self._file_format, valid_records(draft))
        sync(path)
        return path

    # The following methods are called under the lock, and change and write `info`.

    def _publish(
        self,
        info: dict[str, Any],
        split: dict[str, Any],
        path: epath.Path,
        size: _ShardSize,
        draft: epath.Path | None = None,
    ) -> epath.Path | None:
        """Publishes a complete file as a shard, if it has examples; returns the shard.

        Args:
          info: The content of `dataset_info.json`.
          split: The split in it.
          path: The file.
          size: The size of the file.
          draft: The source draft of a converted file, which is removed; None for other files.
        """
        if draft not in (None, path):
            draft.unlink()
        if not size.num_examples:
            path.unlink()
            return None
        self._publish_numbered(info, split)
        shard = _path_of(self.directory, info, split, len(_shard_lengths(split)))
        stores.move_file(path, shard)
        self._list_shard(info, split, size)
        return shard

    def _publish_numbered(self, info: dict[str, Any], split: dict[str, Any]) -> None:
        """Publishes files that have the name of a shard, but are missing in `dataset_info.json`."""
        while (path := _path_of(self.directory, info, split, len(_shard_lengths(split)))).exists():
            size = self._size(path)
            if not size.num_examples:
                path.unlink(missing_ok=True)
                return
            self._list_shard(info, split, size)

    def _list_shard(self, info: dict[str, Any], split: dict[str, Any], size: _ShardSize) -> None:
        split["shardLengths"] = list(map(str, [*_shard_lengths(split), size.num_examples]))
        split["numBytes"] = str(int(split.get("numBytes", 0)) + size.num_bytes)
        self._write(info)

    def _size(self, path: epath.Path) -> _ShardSize:
        """Returns the size of a draft; damaged files are renamed."""
        if not is_local(path):
            with stores.on_disk(path) as copy:
                return self._size(epath.Path(copy))
        if self._file_format == _DRAFT_FORMAT:
            return _truncate_to_complete(path)
        try:
            with contextlib.closing(open_record_file(path, self._file_format)) as file:
                return _ShardSize(len(file), path.stat().length)
        except TfdsFilesError:  # The size of a damaged draft is unknown.
            path.replace(_partial_path(path))
            return _ShardSize(0, 0)

    def _drafts(self, split: str) -> list[epath.Path]:
        paths = self._draft_files(split)
        return [path for path in paths if path.suffix not in (_PARTIAL_SUFFIX, _CONVERTED_SUFFIX)]

    def _draft_files(self, split: str) -> list[epath.Path]:
        prefix = self._draft_prefix(split)
        return sorted(path for path in self.directory.iterdir() if path.name.startswith(prefix))

    def _draft_prefix(self, split: str) -> str:
        return f".{self._name}-{split}.{self._file_format}-draft-"


class ShardDraft:
    """An unfinished shard.

    Args:
      dataset: The dataset.
      split: The name of the split of the shard.

    Attributes:
      path: The file.
      num_examples: The number of examples.

    Raises:
      StorageError: The file cannot be created.
    """

    def __init__(self, dataset: GrowingDataset, split: str) -> None:
        self._dataset = dataset
        self._split = split
        folder = dataset.directory
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if not is_local(folder):  # In an object store, each flush would rewrite the file.
            self._temporary = tempfile.TemporaryDirectory(prefix="rlds-shard-")
            folder = epath.Path(self._temporary.name)
        self.path = folder / f"{dataset._draft_prefix(split)}{uuid.uuid4().hex}"
        self._lock: int | None = None
        self._is_truncated = False
        self._num_bytes = 0
        self.num_examples = 0
        # Recovery waits for the lock of the directory, so it meets only locked drafts.
        with _storage_errors(self.path), lock_directory(dataset.directory):
            self._writer = TFRecordWriter(self.path)
            self._lock = try_to_lock(self.path)

    def add(self, example: bytes) -> None:
        """Appends an example; the stored example survives a killed process.

        Raises:
          StorageError: The example cannot be written. Call `finish` to publish earlier examples.
        """
        self._is_truncated = True
        with _storage_errors(self.path):
            self._writer.write(example)
        self._is_truncated = False
        self.num_examples += 1
        self._num_bytes += len(example)

    def finish(self) -> None:
        """Publishes the shard, or removes it if it is empty.

        Raises:
          StorageError: The shard cannot be written. The draft stays, for `recover`.
        """
        try:
            with _storage_errors(self.path):
                self._writer.close()
                size = _ShardSize(self.num_examples, self._num_bytes)
                if self._is_truncated:  # A failed write left a truncated example at the end.
                    os.truncate(self.path, size.file_size)
                file = self._dataset._convert_draft(self.path)
                self._dataset._add_shard(self._split, self.path, file, size)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leaves the draft for `recover`; further calls do nothing.

        In an object store there is no draft to leave.
        """
        self._writer.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self._temporary is not None:
            self._temporary.cleanup()


class Appender:
    """Appends examples to the splits of a dataset, in shards.

    A context manager. A shard is published when it is full, after `flush_interval`, or on `close`.
    Several appenders may write to a dataset at a time. If the process is killed, the next appender
    publishes its shards.

    Args:
      dataset: The opened dataset.
      max_examples_per_shard: The maximum number of examples per shard.
      flush_interval: Seconds after which the next example ends its shard; None for never.
      encoder: The encoder of examples; new splits are added. None if examples are bytes, and the
        dataset has all splits.
    """

    def __init__(
        self,
        dataset: GrowingDataset,
        max_examples_per_shard: int = 1000,
        flush_interval: float | None = None,
        *,
        encoder: ExampleEncoder | None = None,
    ) -> None:
        if max_examples_per_shard < 1:
            raise ValueError(
                f"max_examples_per_shard must be positive, got {max_examples_per_shard}"
            )
        self._dataset, self._encoder = dataset, encoder
        self._max_examples, self._max_seconds = max_examples_per_shard, flush_interval
        self._shards: dict[str, tuple[ShardDraft, float]] = {}
        self._splits: set[str] = set()
        self._is_closed = False

    def add(
        self,
        example: bytes | bytearray | Mapping[str, Any],
        split: str = "train",
        label: str = "the example",
    ) -> None:
        """Appends an example, which survives the death of the process from now on.

        Args:
          example: The fields, or the encoded bytes; see `ExampleEncoder.encode`.
          split: The split.
          label: The name of the example in errors.

        Raises:
          ValueError: The example does not fit the features, and is not written; the error names the
            field. Or the appender is closed, or the split has an invalid name.
          StorageError: The example cannot be written; earlier examples are kept.
        """
        if self._is_closed:
            raise ValueError("the writer is closed")
        if isinstance(example, Mapping):
            assert self._encoder is not None
            example = self._encoder.encode(example)
        if self._encoder is not None and split not in self._splits:
            check_word("split", split, r"[\w-]+")
            self._dataset.add_split(split)
            self._splits.add(split)
        try:
            if split not in self._shards:
                self._shards[split] = ShardDraft(self._dataset, split), time.monotonic()
            shard, started = self._shards[split]
            shard.add(bytes(example))
        except StorageError as e:
            with contextlib.suppress(StorageError):  # The caller gets the first error.
                self._finish(split)
            raise StorageError(f"{label} is not stored, but all before it are: {e}") from e
        is_late = self._max_seconds is not None and time.monotonic() - started >= self._max_seconds
        if is_late or shard.num_examples >= self._max_examples:
            self._finish(split)

    def _finish(self, split: str) -> None:
        if split in self._shards:
            self._shards.pop(split)[0].finish()

    def flush(self) -> None:
        """Publishes all examples in the dataset.

        Raises:
          StorageError: An example cannot be written.
        """
        try:
            for split in list(self._shards):
                self._finish(split)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Leaves unpublished examples for recovery."""
        while self._shards:
            self._shards.popitem()[1][0].abandon()

    def close(self) -> None:
        """Publishes all examples in the dataset; further calls do nothing.

        Raises:
          StorageError: An example cannot be written.
        """
        self._is_closed = True
        self.flush()

    def __enter__(self) -> Appender:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def append_to(
    directory: epath.PathLike,
    features: Features,
    name: str,
    version: str = "1.0.0",
    *,
    file_format: str = "tfrecord",
    metadata: Mapping[str, Any] | None = None,
    max_examples_per_shard: int = 1000,
    png_level: int | None = None,
    **info_options: str,
) -> Appender:
    """Returns an `Appender` of examples of columns to a dataset.

    Args:
      directory: The folder, or a URL; created if missing.
      features: The features of an example.
      name: The name of the dataset.
      version: The version of the dataset, as `major.minor.patch`.
      file_format: "tfrecord", or "array_record", which needs the extra `array_record`.
      metadata: The metadata of the dataset, in the types of JSON.
      max_examples_per_shard: The maximum number of examples per shard.
      png_level: The compression level of PNG files, see `tfds_files.png.encode_png`.
      **info_options: `description`, `citation`, `homepage` and `license`, see `writing.info_of`.

    Raises:
      ValueError: An argument is wrong; or TFDS could not read the stored features.
      StorageError: The folder cannot be written, or has another dataset; names the difference.

    >>> import tempfile, numpy as np
    >>> from tfds_files import Dataset, Features, Tensor, open_folder
    >>> steps = Dataset(feature=Features(features={"action": Tensor(dtype=np.dtype(np.int64))}))
    >>> directory = tempfile.mkdtemp()
    >>> with append_to(directory, Features(features={"steps": steps}), "mine") as appender:
    ...     appender.add({"steps": {"action": np.array([1, 2])}})
    >>> open_folder(directory)["train"][0]["steps"]["action"]
    array([1, 2])
    """
    if file_format not in _FILE_FORMATS:
        raise ValueError(f"file_format must be one of {_FILE_FORMATS}, got {file_format!r}")
    info = info_of(name, version, file_format, **info_options)
    check_features(features)
    encoder, features_json = ExampleEncoder(features, png_level=png_level), features.to_json()
    dataset_metadata = dict(metadata) if metadata else None
    description = Description(
        *(name, version, file_format, features_json, dataset_metadata),
        lambda folder: describe(folder, info, features_json, dataset_metadata),
    )
    dataset = GrowingDataset(directory, description)
    appender = Appender(dataset, max_examples_per_shard, encoder=encoder)
    dataset.directory.mkdir(parents=True, exist_ok=True)
    dataset.open([], stacklevel=3)
    return appender


class Replacement:
    """A folder next to a dataset for new data that replaces some or all of its splits.

    Folders of killed processes are removed.

    Args:
      directory: The directory of the dataset.

    Attributes:
      directory: The folder of the new dataset.

    Raises:
      StorageError: The folder cannot be created.
    """

    def __init__(self, directory: epath.PathLike) -> None:
        directory = stores.as_path(directory)
        self._lock: int | None = None
        with _storage_errors(directory), lock_directory(directory):
            _remove_info_drafts(directory)
            for folder in directory.glob(f"{_REPLACEMENT_PREFIX}*"):
                _remove_unless_locked(folder)
            self.directory = directory / f"{_REPLACEMENT_PREFIX}{uuid.uuid4().hex}"
            self.directory.mkdir()
            (self.directory / ".lock").write_bytes(b"")
            self._lock = try_to_lock(self.directory / ".lock")

    def commit(self, new: GrowingDataset, target: GrowingDataset) -> None:
        """Replaces the splits of a dataset with the splits of the new dataset; other splits stay.

        Args:
          new: The new dataset.
          target: The dataset in its final directory.

        Raises:
          StorageError: The dataset cannot be written, or its other splits do not fit. The dataset
            is then unchanged.
        """
        with _storage_errors(target.directory), lock_directory(target.directory):
            target.check_replaceable(new.splits())
            info, stored = new._read(), target._read() if target.exists else {"splits": []}
            obsolete = [
                _path_of(target.directory, stored, split, index)
                for split in stored["splits"]
                if _find_split(info, split["name"]) is not None
                for index in range(len(_shard_lengths(split)))
            ]
            moved = {
                split["name"]: _move_split(info, split, new.directory, target.directory, obsolete)
                for split in info["splits"]
            }
            sync(target.directory)
            old = {split["name"]: split for split in stored["splits"]}
            target._write({"splits": list({**old, **moved}.values())}, describe=True)
            for name in moved:
                for path in target._drafts(name):
                    lock = try_to_lock(path)
                    if lock is not None:
                        path.unlink()
                        os.close(lock)
            for path in obsolete:
                _remove_shard(path)
            self.discard()

    def discard(self) -> None:
        """Removes the new dataset; further calls do nothing."""
        if self.directory.exists():
            self.directory.rmtree()
        self.abandon()

    def abandon(self) -> None:
        """Leaves the new dataset for a later replacement; further calls do nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _move_split(
    info: dict[str, Any],
    split: dict[str, Any],
    source: epath.Path,
    target: epath.Path,
    obsolete: list[epath.Path],
) -> dict[str, Any]:
    """Moves the files of a split to the final directory, under names that no old shard has."""

    def is_name(template: str, name: str) -> bool:
        shard = _path_of(target, info, {**split, "filepathTemplate": template}, 0).name
        return re.fullmatch(re.escape(shard.removesuffix("00000")) + r"\d{5,}", name) is not None

    template = next(
        template
        for template in GROWING_TEMPLATES
        if not any(is_name(template, path.name) for path in obsolete)
    )
    for path in target.iterdir():  # Files of a killed process would block the new names.
        if is_name(template, path.name):
            _remove_shard(path)
    moved_split = {**split, "filepathTemplate": template}
    for index in range(len(_shard_lengths(split))):
        old, new = _path_of(source, info, split, index), _path_of(target, info, moved_split, index)
        stores.move_file(old, new)
        index_files.move(old, new)
    return moved_split


@contextlib.contextmanager
def _storage_errors(path: epath.PathLike, failure: str = "") -> Iterator[None]:
    """Adds the path and a remedy to file errors."""
    try:
        yield
    except (OSError, TfdsFilesError) as e:
        if failure:
            raise StorageError(f"{path} {failure}: {e}; write to another directory") from e
        advice = "; check the space left" if is_local(path) else ""
        raise StorageError(f"cannot write {os.fspath(path)}: {e}{advice}") from e


def _remove_shard(path: epath.Path) -> None:
    path.unlink(missing_ok=True)
    index_files.remove(path)


def _remove_unless_locked(directory: epath.Path) -> None:
    lock = None
    if (directory / ".lock").exists():
        lock = try_to_lock(directory / ".lock")
        if lock is None:
            return
    directory.rmtree()
    if lock is not None:
        os.close(lock)


def _remove_info_drafts(directory: epath.Path) -> None:
    """Removes drafts of killed writers; the caller holds the lock."""
    for path in directory.glob(f"{_INFO_DRAFT_PREFIX}*"):
        path.rmtree()


def _find_split(info: dict[str, Any], split: str) -> dict[str, Any] | None:
    """Returns the entry of a split in `dataset_info.json`; None if there is none."""
    return next((entry for entry in info["splits"] if entry["name"] == split), None)


def _path_of(
    directory: epath.Path, info: dict[str, Any], split: dict[str, Any], index: int
) -> epath.Path:
    """Returns the path of a shard, or of the next new shard."""
    return directory / shard_name(
        split.get("filepathTemplate") or TEMPLATE,
        str(info.get("name", "")),
        split["name"],
        str(info.get("fileFormat") or _DRAFT_FORMAT),
        index,
        len(_shard_lengths(split)),
    )


def _shard_lengths(split: dict[str, Any]) -> list[int]:
    return [int(length) for length in split.get("shardLengths", [])]


def _truncate_to_complete(path: epath.Path) -> _ShardSize:
    """Truncates a file after its last complete example; keeps a copy of the rest."""
    lengths = [len(record) for record in valid_records(path)]
    size = _ShardSize(len(lengths), sum(lengths))
    if path.stat().length > size.file_size:
        with path.open("rb") as file:
            file.seek(size.file_size)
            _partial_path(path).write_bytes(file.read())
        os.truncate(path, size.file_size)
    return size


def _partial_path(path: epath.Path) -> epath.Path:
    return path.with_name(f".{path.name.removeprefix('.')}{_PARTIAL_SUFFIX}")


def _draft_of(file: epath.Path) -> epath.Path:
    return file.with_name(file.name.removesuffix(_CONVERTED_SUFFIX))
