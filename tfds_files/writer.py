"""Writes datasets as TFDS stores them, without TensorFlow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from rlds_ecosystem.files import stores
from tfds_files.appending import AppendingWriter
from tfds_files.example_encoder import ExampleEncoder
from tfds_files.features import Features, check_features
from tfds_files.growing import Description, GrowingDataset
from tfds_files.summary import FEATURES_FILE, INFO_FILE, METADATA_FILE

__all__ = ["DatasetWriter"]

_NAME, _SPLIT, _VERSION = r"[a-zA-Z]\w*", r"[\w-]+", r"\d+\.\d+\.\d+"
_FILE_FORMATS = ("tfrecord", "array_record")


class DatasetWriter:
    """Writes examples of columns to a folder, for `open_folder` and `tfds.builder_from_directory`.

    A context manager. A shard is part of the dataset from the moment when it is full, and the rest
    on `close`. Where the folder has the dataset already, shards are added to it; several writers
    may do so at a time. If the process dies, the next writer adds what is left of its shard.

    Args:
      directory: The folder, or a URL; made if it is missing.
      features: What an example looks like.
      name: The name of the dataset.
      version: Its version, as `major.minor.patch`.
      file_format: "tfrecord", or "array_record", which needs the extra `array_record`.
      description: What it is, in words.
      citation: How to cite it.
      homepage: Where it comes from.
      license: Under which terms it may be used.
      metadata: What else is said about the whole, in the types of JSON.
      others: What else `dataset_info.json` is to say, by the names there, such as `configName`.
      max_examples_per_shard: How many examples a shard takes.
      max_bytes_per_shard: How many bytes a shard takes; it has one example at least.
      png_level: The effort that goes into PNG files, see `tfds_files.png.encode_png`.

    Raises:
      ValueError: An argument is wrong; or TFDS could not read what it stores of such features.
      StorageError: The folder cannot be written to, or has another dataset; says what is different.

    >>> import tempfile, numpy as np
    >>> from tfds_files import Dataset, Tensor, open_folder
    >>> steps = Dataset(feature=Features(features={"action": Tensor(dtype=np.dtype(np.int64))}))
    >>> directory = tempfile.mkdtemp()
    >>> with DatasetWriter(directory, Features(features={"steps": steps}), "mine") as writer:
    ...     writer.add({"steps": {"action": np.array([1, 2])}})
    >>> open_folder(directory)["train"][0]["steps"]["action"]
    array([1, 2])
    """

    def __init__(
        self,
        directory: epath.PathLike,
        features: Features,
        name: str,
        version: str = "1.0.0",
        *,
        file_format: str = "tfrecord",
        description: str = "",
        citation: str = "",
        homepage: str = "",
        license: str = "",
        metadata: Mapping[str, Any] | None = None,
        others: Mapping[str, Any] | None = None,
        max_examples_per_shard: int = 1000,
        max_bytes_per_shard: int | None = None,
        png_level: int | None = None,
    ) -> None:
        _check_word("name", name, _NAME)
        _check_word("version", version, _VERSION)
        if file_format not in _FILE_FORMATS:
            raise ValueError(f"file_format must be one of {_FILE_FORMATS}, got {file_format!r}")
        if max_examples_per_shard < 1:
            raise ValueError(
                f"max_examples_per_shard must be positive, got {max_examples_per_shard}"
            )
        check_features(features)
        info: dict[str, Any] = {"name": name, "version": version, "fileFormat": file_format}
        info |= {"description": description, "citation": citation}
        info |= {"location": {"urls": [homepage]}} if homepage else {}
        info |= {"redistributionInfo": {"license": license}} if license else {}
        self._info = {**(others or {}), **{key: value for key, value in info.items() if value}}
        self._features = features.to_json()
        self._metadata = dict(metadata) if metadata else None
        self._encoder = ExampleEncoder(features, png_level=png_level)
        self._splits: set[str] = set()
        self._is_closed = False
        path = stores.as_path(directory)
        path.mkdir(parents=True, exist_ok=True)
        self._dataset = GrowingDataset(
            path,
            Description(name, version, file_format, self._features, self._metadata, self._describe),
        )
        self._dataset.open([], stacklevel=3)
        self._writer = AppendingWriter(
            self._dataset, max_examples_per_shard, max_bytes=max_bytes_per_shard
        )

    def _describe(self, place: epath.Path) -> None:
        features = json.dumps(self._features, indent=4, sort_keys=True)
        (place / FEATURES_FILE).write_text(features)
        if self._metadata is not None:
            (place / METADATA_FILE).write_text(json.dumps(self._metadata))
        (place / INFO_FILE).write_text(json.dumps(self._info))

    def add(self, example: Mapping[str, Any], split: str = "train") -> None:
        """Writes an example.

        Args:
          example: Its fields; see `ExampleEncoder.encode`.
          split: The split.

        Raises:
          ValueError: It does not fit the features, and is not written; says which field. Or the
            writer is closed, or this is no name of a split.
          StorageError: It cannot be written; those before are.
        """
        self._add(self._encoder.encode(example), split)

    def add_encoded(self, example: bytes | bytearray, split: str = "train") -> None:
        """Writes an example of the same features as another dataset has it.

        Args:
          example: Its bytes.
          split: The split.

        Raises:
          ValueError: The writer is closed, or this is no name of a split.
          StorageError: It cannot be written; those before are.
        """
        self._add(bytes(example), split)

    def _add(self, data: bytes, split: str) -> None:
        if self._is_closed:
            raise ValueError("the writer is closed")
        if split not in self._splits:
            _check_word("split", split, _SPLIT)
            self._dataset.add_split(split)
            self._splits.add(split)
        self._writer.add(data, split)

    def close(self) -> None:
        """Makes all examples part of the dataset; further calls do nothing.

        Raises:
          StorageError: They cannot be written.
        """
        self._is_closed = True
        self._writer.flush()

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_word(what: str, word: str, pattern: str) -> None:
    if not re.fullmatch(pattern, word, re.ASCII):
        raise ValueError(f"{what}: got {word!r:.100}, expected a match of {pattern}")
