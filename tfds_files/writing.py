"""The order of examples, number of shards and JSON files of complete TFDS datasets."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from rlds_ecosystem.files.stores import as_path
from tfds_files.record_files import FOOTER, HEADER
from tfds_files.summary import FEATURES_FILE, INFO_FILE, METADATA_FILE

__all__ = ["check_word", "describe", "info_of", "num_shards", "order_of", "shard_ends"]

# TFDS uses multiples of this number of shards, and powers of two below it.
_SHARD_MULTIPLE = 1024


def order_of(split: str, key: str) -> bytes:
    """Returns the hash by which TFDS sorts an example, to shuffle a split."""
    salt, encoded_key = (text.replace("\\", "/").encode() for text in (split, key))
    return hashlib.md5(salt + encoded_key, usedforsecurity=False).digest()


def num_shards(
    num_bytes: int, num_examples: int, min_size: int = 64 << 20, max_size: int = 1 << 30
) -> int:
    """Returns the number of shards that TFDS writes for examples of a given size.

    Args:
      num_bytes: The size of the examples.
      num_examples: The number of examples.
      min_size: The minimum size of a shard, if possible.
      max_size: The maximum size of a shard, if possible.

    >>> num_shards(1 << 30, 500), num_shards(1 << 30, 5), num_shards(1, 5)
    (16, 4, 1)
    """
    size = num_bytes + num_examples * (HEADER.size + FOOTER.size)
    min_shards, max_shards = size // max_size, size // min_size
    if min_shards > _SHARD_MULTIPLE:
        return next(
            n
            for n in range(2 * _SHARD_MULTIPLE, min_shards + 2 * _SHARD_MULTIPLE, _SHARD_MULTIPLE)
            if min_shards <= n <= num_examples
        )
    powers = (_SHARD_MULTIPLE >> power for power in range(10))
    return next((n for n in powers if min_shards <= n <= max_shards and n <= num_examples), 1)


def shard_ends(num_examples: int, num_shards: int) -> list[int]:
    """Returns the end index of the examples of each shard, as TFDS divides them."""
    return [round(num_examples * shard / num_shards) for shard in range(1, num_shards + 1)]


def check_word(subject: str, word: str, pattern: str) -> None:
    """Raises a `ValueError` unless a word matches a pattern."""
    if not re.fullmatch(pattern, word, re.ASCII):
        raise ValueError(f"{subject}: got {word!r:.100}, expected a match of {pattern}")


def info_of(
    name: str,
    version: str,
    file_format: str,
    *,
    description: str = "",
    citation: str = "",
    homepage: str = "",
    license: str = "",
) -> dict[str, Any]:
    """Returns the content of `dataset_info.json`, apart from the splits.

    Args:
      name: The name of the dataset.
      version: The version of the dataset, as `major.minor.patch`.
      file_format: The format of the files.
      description: The description of the dataset.
      citation: The citation of the dataset.
      homepage: The URL of the home page.
      license: The license of the data.

    Raises:
      ValueError: The name or the version is not valid.
    """
    check_word("name", name, r"[a-zA-Z]\w*")
    check_word("version", version, r"\d+\.\d+\.\d+")
    info: dict[str, Any] = {"name": name, "version": version, "fileFormat": file_format}
    info |= {"description": description, "citation": citation}
    info |= {"location": {"urls": [homepage]}} if homepage else {}
    info |= {"redistributionInfo": {"license": license}} if license else {}
    return {key: value for key, value in info.items() if value}


def describe(
    directory: epath.PathLike,
    info: Mapping[str, Any],
    features: Any,
    metadata: Mapping[str, Any] | None,
) -> None:
    """Writes the JSON files of a dataset; `dataset_info.json` is last.

    Args:
      directory: The folder of the dataset.
      info: The content of `dataset_info.json`.
      features: The JSON of the features.
      metadata: The metadata of the dataset, in the types of JSON.
    """
    folder = as_path(directory)
    (folder / FEATURES_FILE).write_text(json.dumps(features, indent=4, sort_keys=True))
    if metadata is not None:
        (folder / METADATA_FILE).write_text(json.dumps(metadata))
    if license := info.get("redistributionInfo", {}).get("license"):
        (folder / "LICENSE").write_text(license)
    (folder / INFO_FILE).write_text(json.dumps(info, indent=2, sort_keys=True))
