"""The folder of a dataset that TFDS or this project has written: what is in it, example by example.

<dataset>/<config>/<version>/
dataset_info.json    name, version, file format, and for each split the lengths of its shards
features.json        what an example looks like
metadata.json        what its author says about the whole, if anything
<name>-<split>.<format>-<number>-of-<count>    a shard; the info may name the files otherwise
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etils import epath

from rlds_ecosystem import stores
from tfds_files.errors import DamagedFileError, TfdsFilesError
from tfds_files.examples import ExampleDecoder
from tfds_files.features import Features, read_features
from tfds_files.record_files import open_record_file

__all__ = ["DatasetFolder", "Split", "open_folder"]

INFO_FILE, METADATA_FILE = "dataset_info.json", "metadata.json"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_MIN_DIGITS = 5


class Split:
    """The examples of a split, in the order of its shards, in which TFDS reads them too.

    Args:
      folder: The dataset.
      name: The name of the split.
      shard_lengths: How many examples each shard has.
      template: How the files of the shards are named.

    Attributes:
      name: The name of the split.
      shard_lengths: How many examples each shard has.
      paths: The files of the shards.
    """

    def __init__(
        self, folder: DatasetFolder, name: str, shard_lengths: Iterable[int], template: str
    ) -> None:
        self.name = name
        self.shard_lengths = tuple(shard_lengths)
        count = len(self.shard_lengths)
        self.paths = tuple(
            folder.directory / _shard_name(template, folder, name, index, count)
            for index in range(count)
        )
        self._folder = folder
        self._ends = list(itertools.accumulate(self.shard_lengths))
        self._files = [open_record_file(path, folder.file_format) for path in self.paths]
        self._decoders: dict[tuple[str, ...] | None, ExampleDecoder] = {}

    def __repr__(self) -> str:
        return f"Split({self.name!r}, {len(self)} examples in {len(self.paths)} shards)"

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.example(index) for index in range(len(self)))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.example(index)

    def example(self, index: int, fields: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns an example, such as an episode, as columns; see `ExampleDecoder`.

        Args:
          index: Which one; from the end if it is negative.
          fields: Which fields, such as `["steps/action"]`; all by default.

        Raises:
          IndexError: There is no such example.
          KeyError: There is no such field.
          DamagedFileError: It cannot be read; says which file, record and field.
        """
        shard, record = self._place_of(index)
        decoder = self._decoder(None if fields is None else tuple(fields))
        data = self._read(shard, record)
        try:
            return decoder.decode(data)
        except TfdsFilesError as e:
            raise type(e)(f"{self.paths[shard]}, record {record}: {e}") from e

    def example_bytes(self, index: int) -> bytes:
        """Returns the bytes of an example, a `tf.train.Example`.

        Raises:
          IndexError: There is no such example.
          DamagedFileError: It cannot be read.
        """
        return bytes(self._read(*self._place_of(index)))

    def _decoder(self, fields: tuple[str, ...] | None) -> ExampleDecoder:
        """The decoder of some fields, which is made once: that takes as long as a small example."""
        if fields not in self._decoders:
            self._decoders[fields] = ExampleDecoder(self._folder.features, fields)
        return self._decoders[fields]

    def _place_of(self, index: int) -> tuple[int, int]:
        """The shard of an example, and its record there."""
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"{self.name}: example {index} of {len(self)}")
        shard = bisect.bisect_right(self._ends, position)
        return shard, position - (self._ends[shard - 1] if shard else 0)

    def _read(self, shard: int, record: int) -> bytes | bytearray:
        file = self._files[shard]
        try:
            return file.read(record)
        except IndexError:
            raise DamagedFileError(
                f"{file.path}: it has {len(file)} records; dataset_info.json says "
                f"{self.shard_lengths[shard]}"
            ) from None

    def close(self) -> None:
        """Closes the files; reading opens them again."""
        for file in self._files:
            file.close()


class DatasetFolder(Mapping[str, Split]):
    """A dataset: its splits by their names, and what is said about it.

    Args:
      directory: The folder, or a URL: that of a version, or one that has but one dataset below it.

    Attributes:
      directory: Where `dataset_info.json` is.
      name: The name of the dataset.
      config_name: The name of its config, empty if it has none.
      version: Its version.
      description: What it is, in words.
      citation: How to cite it.
      file_format: The format of its shards, such as "tfrecord".
      features: What an example looks like.
      metadata: What its author says about the whole.
      info: All that `dataset_info.json` says.

    Raises:
      FileNotFoundError: There is no dataset.
      DamagedFileError: A file is not what TFDS writes.
      UnsupportedFileError: It has a form that is not read here; says which.
    """

    def __init__(self, directory: epath.PathLike) -> None:
        self.directory = _find(stores.as_path(directory))
        self.info = _read_json(self.directory / INFO_FILE)
        self.name = str(self.info.get("name", ""))
        self.config_name = str(self.info.get("configName", ""))
        self.version = str(self.info.get("version", ""))
        self.description = str(self.info.get("description", ""))
        self.citation = str(self.info.get("citation", ""))
        self.file_format = str(self.info.get("fileFormat") or "tfrecord")
        self.features: Features = read_features(self.directory)
        has_metadata = (self.directory / METADATA_FILE).exists()
        self.metadata = _read_json(self.directory / METADATA_FILE) if has_metadata else {}
        self._splits = {split.name: split for split in _splits(self)}

    def __repr__(self) -> str:
        splits = ", ".join(f"{name}: {len(split)}" for name, split in self.items())
        return f"DatasetFolder({self.name!r}, {self.version}, {splits or 'no splits'})"

    def __getitem__(self, split: str) -> Split:
        try:
            return self._splits[split]
        except KeyError:
            raise KeyError(f"no split {split!r} in {self.directory}; it has {list(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)

    def close(self) -> None:
        """Closes the files; reading opens them again."""
        for split in self.values():
            split.close()


def open_folder(directory: epath.PathLike) -> DatasetFolder:
    """Opens a dataset that TFDS or this project has written; see `DatasetFolder`."""
    return DatasetFolder(directory)


def _find(directory: epath.Path) -> epath.Path:
    """The directory below that has a dataset, if it is the only one."""
    found = directory
    while not (found / INFO_FILE).exists():
        if not found.exists():
            raise FileNotFoundError(f"{found} does not exist")
        below = [entry.name for entry in stores.list_directory(found) if entry.is_dir]
        # What TFDS makes beside datasets, and while it works.
        below = [n for n in below if n != "downloads" and not n.startswith((".", "incomplete."))]
        if len(below) != 1:
            what = f"there are {', '.join(sorted(below)[:10])}: say which" if below else "nothing"
            raise FileNotFoundError(f"{found} has no {INFO_FILE}, and below it {what}")
        found /= below[0]
    return found


def _read_json(path: epath.Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as e:
        raise DamagedFileError(f"{path}: {e}") from e
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path}: got {type(content).__name__}, expected a dict")
    return content


def _splits(folder: DatasetFolder) -> Iterator[Split]:
    path = folder.directory / INFO_FILE
    try:
        for split in folder.info.get("splits", []):
            lengths = [int(length) for length in split.get("shardLengths", [])]
            if min(lengths, default=0) < 0:
                raise ValueError("a shard of a negative length")
            template = split.get("filepathTemplate") or _TEMPLATE
            yield Split(folder, str(split["name"]), lengths, str(template))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        if isinstance(e, TfdsFilesError):
            raise
        raise DamagedFileError(f"{path}: the splits are not as TFDS writes them: {e!r}") from e


def _shard_name(template: str, folder: DatasetFolder, split: str, index: int, count: int) -> str:
    digits = max(len(str(count)), _MIN_DIGITS)
    number, total = f"{index:0{digits}d}", f"{count:0{digits}d}"
    name = template.format(
        DATASET=folder.name,
        SPLIT=split,
        FILEFORMAT=folder.file_format,
        SHARD_INDEX=number,
        NUM_SHARDS=total,
        SHARD_X_OF_Y=f"{number}-of-{total}",
    )
    if not name or "/" in name or "\\" in name or name.startswith(".."):
        raise DamagedFileError(f"{folder.directory}: a shard of the name {name!r:.100}")
    return name
