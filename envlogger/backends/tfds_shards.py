"""The shards of a TFDS dataset that grows, and that a `tfds.core.DatasetInfo` describes.

How it grows, and what is saved after a crash, is in `tfds_files.growing`. Here is what needs TFDS:
its description, and whether a dataset that exists is the same.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow_datasets as tfds
from etils import epath

from envlogger.errors import StorageError
from rlds_ecosystem import stores
from rlds_ecosystem.stores import is_local
from tfds_files import TfdsFilesError, growing

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

FILE_TEMPLATE = growing.GROWING_TEMPLATES[0]


class ShardDraft:
    """A shard that is being written, see `growing.ShardDraft`.

    Args:
      info: The dataset.
      split: The name of the split that the shard belongs to.

    Raises:
      StorageError: The file cannot be made.
    """

    def __init__(self, info: tfds.core.DatasetInfo, split: str) -> None:
        with _naming(info.data_dir):
            self._draft = growing.ShardDraft(_growing(info), split)

    @property
    def num_examples(self) -> int:
        """How many examples it has."""
        return self._draft.num_examples

    def add(self, example: bytes) -> None:
        """Appends an example, which survives the death of the process from now on.

        Raises:
          StorageError: It cannot be written. What was added before is kept: call `finish`.
        """
        with _naming(self._draft.path):
            self._draft.add(example)

    def finish(self) -> None:
        """Makes the shard part of the dataset, or removes it if it is empty.

        Raises:
          StorageError: It cannot be written. The draft stays, for `recover`.
        """
        with _naming(self._draft.path):
            self._draft.finish()

    def abandon(self) -> None:
        """Leaves the draft to whoever calls `recover`; further calls do nothing."""
        self._draft.abandon()


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
        with _naming(directory):
            self._replacement = growing.Replacement(directory)
        self.directory = self._replacement.directory

    def commit(self, info: tfds.core.DatasetInfo, target: tfds.core.DatasetInfo) -> None:
        """Replaces the splits of a dataset that the new one has; its others stay.

        Args:
          info: The new dataset.
          target: The same in its final directory.

        Raises:
          StorageError: The dataset cannot be written, or has other splits that do not fit the
            new one.
        """
        new = _growing(info)

        def check() -> None:
            check_replaceable(target, list(new.splits()))

        with _naming(target.data_dir):
            self._replacement.commit(new, _growing(target), check)

    def discard(self) -> None:
        """Removes the new dataset; further calls do nothing."""
        self._replacement.discard()

    def abandon(self) -> None:
        """Leaves it to the next one in the same place; further calls do nothing."""
        self._replacement.abandon()


def _growing(info: tfds.core.DatasetInfo) -> growing.GrowingDataset:
    suffix = info.file_format.file_suffix
    return growing.GrowingDataset(info.data_dir, info.name, suffix, info.write_to_directory)


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
    if not _growing(info).exists:
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
    return _growing(info).exists and _features_json(_stored(info.data_dir)) == _features_json(info)


def open_dataset(info: tfds.core.DatasetInfo, splits: Sequence[str], *, stacklevel: int) -> None:
    """Makes a dataset and its splits, where they do not exist; else checks that they fit.

    What writers left when they died is added, with a warning.

    Args:
      info: The dataset.
      splits: The splits to be added to.
      stacklevel: Whose line a warning names, as in `warnings.warn` from here.

    Raises:
      StorageError: It cannot be read or written, or is another dataset; says what is different.
    """
    if _growing(info).exists:
        _check_fits(info, stacklevel=stacklevel + 1)
        for name, num_episodes in recover(info).items():
            warnings.warn(
                f"{info.data_dir}: added {num_episodes} episodes to the split {name!r}, from a "
                "recorder that died before it finished its shard",
                stacklevel=stacklevel,
            )
    for split in splits:
        add_split(info, split)


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
        if split.filename_template.template not in growing.GROWING_TEMPLATES:
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
    with _naming(info.data_dir):
        _growing(info).add_split(split)


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
    with _naming(info.data_dir):
        num_recovered = _growing(info).recover()
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
    return num_recovered


def _lengths(splits: tfds.core.splits.SplitDict) -> dict[str, list[int]]:
    return {split.name: split.shard_lengths for split in splits.values()}


@contextlib.contextmanager
def _naming(path: epath.PathLike) -> Iterator[None]:
    """Raises errors of files as those of this package, with the path."""
    try:
        yield
    except (OSError, TfdsFilesError) as e:
        advice = "; check the space left" if is_local(path) else ""
        raise StorageError(f"cannot write {os.fspath(path)}: {e}{advice}") from e
