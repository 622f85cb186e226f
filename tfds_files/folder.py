"""Random access to the examples of a dataset folder written by TFDS or this project.

<dataset>/<config>/<version>/
dataset_info.json    name, version, file format, and the shard lengths of each split
features.json        features of an example
metadata.json        metadata by the author of the dataset, optional
<name>-<split>.<format>-<number>-of-<count>    a shard; the info may have another template
"""

from __future__ import annotations

import bisect
import contextlib
import copy
import functools
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from etils import epath

from rlds_ecosystem.files import stores
from tfds_files.errors import DamagedFileError, TfdsFilesError, UnsupportedFileError
from tfds_files.examples import ExampleDecoder
from tfds_files.features import Features, images_as_bytes, read_features
from tfds_files.record_files import RecordFile, open_record_file
from tfds_files.splits import ranges_of
from tfds_files.summary import INFO_FILE, METADATA_FILE, find, read_json

__all__ = ["DatasetFolder", "RecordRange", "Split", "find_folder", "open_folder", "shard_name"]

TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_MIN_SHARD_DIGITS = 5
_MAX_SEARCHED_SHARDS = 10_000


class RecordRange(NamedTuple):
    """A range of records in a file.

    Attributes:
      path: The file.
      file: The records of the file.
      begin: The index of the first record.
      end: The index after the last record.
    """

    path: epath.Path
    file: RecordFile
    begin: int
    end: int


class Split:
    """The examples of a split, or of a slice of it, in the order of TFDS.

    Args:
      name: The name of the split.
      shards: The ranges of records of the examples.
      folder: The dataset of the split.

    Attributes:
      name: The name of the split.
      folder: The dataset of the split.
      shard_lengths: The number of examples in each file.
      paths: The files.
    """

    def __init__(self, name: str, shards: Iterable[RecordRange], folder: DatasetFolder) -> None:
        self.name, self.folder = name, folder
        self._shards = tuple(shards)
        self.shard_lengths = tuple(shard.end - shard.begin for shard in self._shards)
        self.paths = tuple(shard.path for shard in self._shards)
        self._end_indices = list(itertools.accumulate(self.shard_lengths))

    def __repr__(self) -> str:
        return f"Split({self.name!r}, {len(self)} examples in {len(self.paths)} shards)"

    def __len__(self) -> int:
        return self._end_indices[-1] if self._end_indices else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.example(index) for index in range(len(self)))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.example(index)

    def example(self, index: int, fields: Iterable[str] | None = None) -> dict[str, Any]:
        """Returns an example, such as an episode, as columns; see `ExampleDecoder`.

        Args:
          index: The index of the example; from the end if it is negative.
          fields: The fields to decode, such as `["steps/action"]`; all by default.

        Raises:
          IndexError: There is no such example.
          KeyError: There is no such field.
          DamagedFileError: The example cannot be read; the error names the file, record and field.
        """
        shard, record = self._locate(index)
        decoder = self.folder.decoder(None if fields is None else tuple(fields))
        data = _read_record(shard, record)
        try:
            return decoder.decode(data)
        except TfdsFilesError as e:
            raise type(e)(f"{shard.path}, record {record}: {e}") from e

    def example_bytes(self, index: int) -> bytes:
        """Returns the bytes of an example, a `tf.train.Example`.

        Raises:
          IndexError: There is no such example.
          DamagedFileError: The example cannot be read.
        """
        return bytes(_read_record(*self._locate(index)))

    def record_ranges(self, begin: int, end: int) -> Iterator[RecordRange]:
        """Yields the ranges of records of a range of examples."""
        for shard, shard_end in zip(self._shards, self._end_indices):
            start = shard_end - (shard.end - shard.begin)
            low, high = max(begin, start) - start, min(end, shard_end) - start
            if low < high:
                yield shard._replace(begin=shard.begin + low, end=shard.begin + high)

    def stored_lengths(self) -> list[int]:
        """Returns the numbers of examples in the files, which may differ from `dataset_info.json`.

        Raises:
          DamagedFileError: A file cannot be read.
        """
        return [len(shard.file) for shard in self._shards]

    def close(self) -> None:
        """Closes the files; reading opens them again."""
        for shard in self._shards:
            shard.file.close()

    def location_of(self, index: int) -> tuple[epath.Path, int]:
        """Returns the path of the file of an example, and its record index.

        Raises:
          IndexError: There is no such example.
        """
        shard, record = self._locate(index)
        return shard.path, record

    def record(self, index: int) -> tuple[RecordFile, int]:
        """Returns the open record file of an example, and its record index.

        Raises:
          IndexError: There is no such example.
        """
        shard, record = self._locate(index)
        return shard.file, record

    def _locate(self, index: int) -> tuple[RecordRange, int]:
        """Returns the shard of an example, and its record index."""
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"{self.name}: example {index} of {len(self)}")
        shard_index = bisect.bisect_right(self._end_indices, position)
        shard = self._shards[shard_index]
        return shard, shard.end - (self._end_indices[shard_index] - position)


class DatasetFolder(Mapping[str, Split]):
    """A dataset folder: the splits by name, and the description of the dataset.

    Slices of splits have the names of TFDS: `dataset["train[:10%]"]`, `dataset["train[5:20]"]`,
    `dataset["train+test"]`, `dataset["train[2shard]"]`, `dataset["all"]`.

    Args:
      directory: The path or URL of a version of a dataset, or of a folder above a single dataset.
      decode_images: Whether images are arrays; otherwise images are the bytes of their files, which
        is much faster.

    Attributes:
      directory: The folder of `dataset_info.json`.
      name: The name of the dataset.
      config_name: The name of the config, empty for a dataset without configs.
      version: The version of the dataset.
      description: The description of the dataset.
      citation: The citation of the dataset.
      file_format: The format of the shards, such as "tfrecord".
      metadata: The metadata of the dataset.
      info: The content of `dataset_info.json`.

    Raises:
      FileNotFoundError: There is no dataset.
      DamagedFileError: A file was not written by TFDS.
      UnsupportedFileError: A file has an unsupported form; the error says why.
    """

    def __init__(self, directory: epath.PathLike, *, decode_images: bool = True) -> None:
        self.directory, self.info = _find_dataset(directory)
        self._decode_images = decode_images
        self.name = str(self.info.get("name", ""))
        self.config_name = str(self.info.get("configName", ""))
        self.version = str(self.info.get("version", ""))
        self.description = str(self.info.get("description", ""))
        self.citation = str(self.info.get("citation", ""))
        self.file_format = str(self.info.get("fileFormat") or "tfrecord")
        self.metadata: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError):
            self.metadata = read_json(self.directory / METADATA_FILE)
        self._open_splits()

    def _open_splits(self) -> None:
        self._decoders: dict[tuple[str, ...] | None, ExampleDecoder] = {}
        self._splits = {split.name: split for split in _read_splits(self)}

    def with_image_files(self) -> DatasetFolder:
        """Returns the same dataset with image files instead of arrays; reads no metadata again."""
        folder = copy.copy(self)
        folder._decode_images = False
        folder._open_splits()
        return folder

    @functools.cached_property
    def features(self) -> Features:
        """The features of an example."""
        return read_features(self.directory)

    def __repr__(self) -> str:
        splits = ", ".join(f"{name}: {len(split)}" for name, split in self.items())
        return f"DatasetFolder({self.name!r}, {self.version}, {splits or 'no splits'})"

    def __getitem__(self, split: str) -> Split:
        if split in self._splits:
            return self._splits[split]
        lengths = {name: self._splits[name].shard_lengths for name in self._splits}
        try:
            ranges = ranges_of(split, lengths)
        except KeyError as e:
            raise KeyError(f"{self.directory}: {e.args[0]}") from None
        except ValueError as e:
            raise ValueError(f"{self.directory}: {e}") from None
        shards = (self._splits[name].record_ranges(begin, end) for name, begin, end in ranges)
        return Split(split, itertools.chain.from_iterable(shards), self)

    def __contains__(self, split: object) -> bool:
        return split in self._splits

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)

    def decoder(self, fields: tuple[str, ...] | None = None) -> ExampleDecoder:
        """Returns the cached decoder of some fields; building it takes as long as a small example.

        Raises:
          KeyError: There is no such field.
        """
        if fields not in self._decoders:
            features = self.features if self._decode_images else images_as_bytes(self.features)
            self._decoders[fields] = ExampleDecoder(features, fields)
        return self._decoders[fields]

    def close(self) -> None:
        """Closes the files; reading opens them again."""
        for split in self.values():
            split.close()


def _read_record(shard: RecordRange, record: int) -> bytes | bytearray:
    try:
        return shard.file.read(record)
    except IndexError:
        raise DamagedFileError(
            f"{shard.path}: {len(shard.file)} records, but dataset_info.json declares a record "
            f"{record}"
        ) from None


def open_folder(directory: epath.PathLike, *, decode_images: bool = True) -> DatasetFolder:
    """Opens a dataset that TFDS or this project has written; see `DatasetFolder`."""
    return DatasetFolder(directory, decode_images=decode_images)


def _find_dataset(directory: epath.PathLike) -> tuple[epath.Path, dict[str, Any]]:
    """Returns the directory of a dataset, and the content of its `INFO_FILE`."""
    folder = stores.as_path(directory)
    try:  # The file is opened without a check, which would cost a request to an object store.
        return folder, read_json(folder / INFO_FILE)
    except (FileNotFoundError, NotADirectoryError):
        folder = find_folder(folder)
        return folder, read_json(folder / INFO_FILE)


def find_folder(directory: epath.PathLike) -> epath.Path:
    """Returns the directory of a dataset: `directory`, or the only dataset below it.

    Raises:
      FileNotFoundError: There is no dataset, or there are several.
    """
    return find(
        stores.as_path(directory),
        lambda folder: [entry.name for entry in stores.list_directory(folder) if entry.is_dir],
    )


def _read_splits(folder: DatasetFolder) -> Iterator[Split]:
    path = folder.directory / INFO_FILE
    try:
        for split in folder.info.get("splits", []):
            lengths = [int(length) for length in split.get("shardLengths", [])]
            if min(lengths, default=0) < 0 or sum(lengths) > sys.maxsize:
                raise ValueError("the lengths of shards are negative or too large")
            if len(lengths) > _MAX_SEARCHED_SHARDS:  # The search for a missing file is slow.
                num_files = len(stores.list_directory(folder.directory))
                if num_files < len(lengths):
                    raise ValueError(f"{len(lengths):,} shards, but only {num_files:,} files")
            template = split.get("filepathTemplate") or TEMPLATE
            name, shards = str(split["name"]), []
            for index, length in enumerate(lengths):
                file = folder.directory / shard_name(
                    str(template), folder.name, name, folder.file_format, index, len(lengths)
                )
                shards.append(
                    RecordRange(file, open_record_file(file, folder.file_format), 0, length)
                )
            yield Split(name, shards, folder)
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        if isinstance(e, UnsupportedFileError):
            raise
        raise DamagedFileError(f"{path}: the splits are malformed: {e!r}") from e


def shard_name(
    template: str, name: str, split: str, file_format: str, index: int, count: int
) -> str:
    """Returns the name of the file of a shard.

    Args:
      template: The template of file names, with the fields of TFDS in braces.
      name: The name of the dataset.
      split: The name of the split.
      file_format: The format of the files.
      index: The index of the shard.
      count: The number of shards.

    Raises:
      DamagedFileError: The name is not valid for a file in the same folder.

    >>> shard_name("{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}", "a", "train", "tfrecord", 1, 2)
    'a-train.tfrecord-00001-of-00002'
    """
    digits = max(len(str(count)), _MIN_SHARD_DIGITS)
    shard, total = f"{index:0{digits}d}", f"{count:0{digits}d}"
    fields = {
        "DATASET": name,
        "SPLIT": split,
        "FILEFORMAT": file_format,
        "SHARD_INDEX": shard,
        "NUM_SHARDS": total,
        "SHARD_X_OF_Y": f"{shard}-of-{total}",
    }
    # `str.format` is unsafe here: a file could request huge field widths.
    file_name = re.sub(r"\{(\w+)\}", lambda match: fields[match[1]], template)
    if not file_name or "/" in file_name or "\\" in file_name or file_name.startswith(".."):
        raise DamagedFileError(f"{file_name!r:.100} is not a valid name of a shard")
    return file_name
