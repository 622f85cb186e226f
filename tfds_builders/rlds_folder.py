"""Datasets that TFDS stored, copied to other files: the examples stay the same to the last byte.

For another number of files, another order, or another file format. Nothing is decoded, so images
are not compressed a second time, and features of any kind are kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow_datasets as tfds
from etils import epath

import rlds
from rlds_ecosystem import stores
from tfds_builders.builder import SourceBuilder
from tfds_builders.example_files import read_examples
from tfds_builders.source import (
    DamagedEpisode,
    SourceError,
    StoredEpisode,
    StoredSource,
    require_files,
)
from tfds_builders.untrusted import check_is_file, source_errors

__all__ = ["FolderSource", "RldsFolder"]

# Where features.json says which class a feature is of, in newer and in older files.
_CLASS_KEYS = {"pythonClassName", "python_class_name", "type"}
_FEATURES = "tensorflow_datasets.core.features."


class FolderSource(StoredSource):
    """A directory in which TFDS stored an RLDS dataset, in any of its file formats.

    The parts are its files; the key of an episode is the name of its file and its index in it.

    Args:
      path: The directory, with `dataset_info.json` and `features.json`.
      splits: Which splits to copy; all if None.

    Raises:
      FileNotFoundError: There is no dataset.
      KeyError: It has no such split.
      SourceError: It has no nested `steps`, or files are missing.
    """

    def __init__(self, path: str | os.PathLike[str], splits: Sequence[str] | None = None) -> None:
        self._path = stores.as_path(path)
        require_files(self._path / "dataset_info.json", self._path / "features.json")
        with source_errors(self._path):
            for file in self._path.iterdir():
                if not file.is_dir():
                    check_is_file(file)
            _check_classes(self._path / "features.json")
            info = tfds.builder_from_directory(self._path).info
            self.description = info.description
            self.homepage = next(iter(info.as_proto.location.urls), "")
            self.citation = info.citation
            self.license = info.redistribution_info.license
            self.name, self.version = info.name, str(info.version)
            self._features, self._file_format = info.features, info.file_format
            self._metadata = dict(info.metadata or {})
            lengths = {
                name: {file.name: length for file, length in zip(it.filepaths, it.shard_lengths)}
                for name, it in info.splits.items()
            }
        for split in splits or ():
            if split not in lengths:
                raise KeyError(f"{path} has no split {split!r}, only {sorted(lengths)}")
        self._lengths = {name: lengths[name] for name in lengths if name in (splits or lengths)}
        with source_errors(self._path):
            self._check()

    def _check(self) -> None:
        steps = dict(self._features.items()).get(rlds.STEPS)
        if not isinstance(steps, tfds.features.Dataset):
            raise SourceError(
                f"no nested dataset {rlds.STEPS!r} among the features {list(self._features)}",
                file=self._path,
            )
        for files in self._lengths.values():
            for name in files:
                if not (self._path / name).exists():
                    raise SourceError("the file is missing", file=self._path / name)

    @property
    def splits(self) -> Sequence[str]:
        """The names of the splits that have episodes."""
        return [name for name, files in self._lengths.items() if sum(files.values())]

    def features(self) -> Any:
        """See `StoredSource`."""
        return self._features

    def metadata(self) -> Mapping[str, Any]:
        """Returns the metadata of the dataset."""
        return self._metadata

    def inputs(self) -> Sequence[epath.Path]:
        """See `Source`."""
        return [self._path / name for files in self._lengths.values() for name in files]

    def parts(self, split: str) -> Sequence[str]:
        """Returns the names of the files."""
        return list(self._lengths[split])

    def num_episodes(self, split: str) -> int:
        """See `Source`."""
        return sum(self._lengths[split].values())

    def episodes(  # type: ignore[override]
        self, split: str, part: str, after: str | None = None
    ) -> Iterator[StoredEpisode | DamagedEpisode]:
        """Yields the episodes of a file; see `Source`."""
        length = self._lengths[split][part]
        first = 0 if after is None else int(after.rpartition(":")[2]) + 1
        number = 0
        try:
            for example in read_examples(self._path / part, self._file_format):
                if number >= first:
                    yield StoredEpisode(
                        f"{part}:{number}", example, min(1, (number + 1) / max(1, length))
                    )
                number += 1
            if number != length:
                what = f"{number} episodes are there, dataset_info.json says {length}"
                raise SourceError(what, file=self._path / part)
        except SourceError as error:
            yield DamagedEpisode(f"{part}:{number}", error, ends_part=True)


def _check_classes(file: epath.Path) -> None:
    """Checks that features are of classes of TFDS, or of modules that are there already.

    TFDS imports whatever module a file names.
    """
    nodes = [json.loads(file.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            for key in _CLASS_KEYS & node.keys():
                _check_class(node[key], file)
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
        elif isinstance(node, str) and node.lstrip().startswith(("{", "[")):  # JSON in JSON.
            with contextlib.suppress(ValueError):
                nodes.append(json.loads(node))


def _check_class(name: Any, file: epath.Path) -> None:
    if not isinstance(name, str) or name.startswith(_FEATURES):  # A field may be called "type".
        return
    if name.rpartition(".")[0] not in sys.modules:
        raise SourceError(
            f"{name!r} is not a feature of TFDS; import its module first, if you trust it",
            file=file,
        )


class RldsFolder(SourceBuilder):
    """An RLDS dataset that TFDS stored, in other files.

    The `path` is its directory.
    """

    VERSION = tfds.core.Version("1.0.0")
    SHUFFLE = False
    source_class = FolderSource
