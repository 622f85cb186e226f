"""A summary of a dataset from its JSON files, read fast and without other libraries.

NumPy and the clients of object stores take longer to load than these files to read. This module
imports neither, for commands that only describe a dataset. `DatasetFolder` reads the data.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tfds_files.errors import DamagedFileError

__all__ = [
    "FEATURES_FILE",
    "INFO_FILE",
    "METADATA_FILE",
    "FieldSummary",
    "FolderSummary",
    "SplitSummary",
    "find",
    "read_json",
    "summarize",
]

INFO_FILE, FEATURES_FILE, METADATA_FILE = "dataset_info.json", "features.json", "metadata.json"
Folder = TypeVar("Folder", bound=pathlib.PurePath)

_MAX_DEPTH = 50


@dataclasses.dataclass(frozen=True)
class FieldSummary:
    """A field of an example.

    Attributes:
      path: The names of the features around the field, and its own name.
      dtype: The dtype, such as "float32"; "string" for strings and "" without a dtype.
      shape: The shape within a step or an episode; None for sizes that are not fixed.
      encoding: The storage, such as "PNG", "bytes" or "zlib"; empty for plain values.
      kind: The kind of feature, if it is neither a tensor nor an image.
      doc: The description by the author.
    """

    path: tuple[str, ...]
    dtype: str
    shape: tuple[int | None, ...]
    encoding: str = ""
    kind: str = ""
    doc: str = ""


@dataclasses.dataclass(frozen=True)
class SplitSummary:
    """A split.

    Attributes:
      name: The name of the split.
      shard_lengths: The number of examples in each file.
      num_bytes: The declared size of the files.
    """

    name: str
    shard_lengths: tuple[int, ...]
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class FolderSummary:
    """A dataset.

    Attributes:
      directory: The folder of `dataset_info.json`.
      name: The name of the dataset.
      config_name: The name of the config, empty for a dataset without configs.
      version: The version of the dataset.
      description: The description of the dataset.
      file_format: The format of the files, such as "tfrecord".
      splits: The splits.
      fields: The fields of examples; the fields of a step have a path that begins with "steps".
      metadata: The metadata of the dataset.
    """

    directory: str
    name: str
    config_name: str
    version: str
    description: str
    file_format: str
    splits: tuple[SplitSummary, ...]
    fields: tuple[FieldSummary, ...]
    metadata: Mapping[str, Any]


def summarize(directory: str | os.PathLike[str]) -> FolderSummary:
    """Summarizes a dataset from its JSON files.

    Args:
      directory: A folder of this machine: that of a version, or one with a single dataset below
        it. Elsewhere: the folder of a version, with the methods of `pathlib.Path`.

    Raises:
      FileNotFoundError: There is no dataset, or there are several.
      DamagedFileError: A file was not written by TFDS.
    """
    folder: Any = directory if hasattr(directory, "read_bytes") else pathlib.Path(directory)
    root = find(folder, _list_folders)
    info = read_json(root / INFO_FILE)
    try:
        return FolderSummary(
            directory=str(root),
            name=str(info.get("name", "")),
            config_name=str(info.get("configName", "")),
            version=str(info.get("version", "")),
            description=str(info.get("description", "")),
            file_format=str(info.get("fileFormat") or "tfrecord"),
            splits=tuple(map(_read_split, info.get("splits", []))),
            fields=tuple(_read_fields(_read_if_present(root / FEATURES_FILE), (), (), 0)),
            metadata=_read_if_present(root / METADATA_FILE),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, DamagedFileError):
            raise
        raise DamagedFileError(f"{root}: the metadata is malformed: {error!r}") from error


def find(directory: Folder, folders_in: Callable[[Folder], Iterable[str]]) -> Folder:
    """Returns the directory of a dataset: `directory`, or the only dataset below it.

    Args:
      directory: The folder to search, with the methods of `pathlib.Path`.
      folders_in: Lists the names of the folders in a directory.

    Raises:
      FileNotFoundError: There is no dataset, or there are several.
    """
    root: Any = directory
    while not (root / INFO_FILE).exists():
        if not root.exists():
            raise FileNotFoundError(f"{root} does not exist")
        # TFDS keeps downloads and unfinished datasets next to datasets.
        names = [
            name
            for name in folders_in(root)
            if name != "downloads" and not name.startswith((".", "incomplete."))
        ]
        if len(names) != 1:
            several = f"several folders: {', '.join(sorted(names)[:10])}. Pass one of them"
            problem = several if names else "no folder with a dataset"
            raise FileNotFoundError(f"{root} has no {INFO_FILE}, and below it {problem}")
        root /= names[0]
    return root


def _list_folders(directory: pathlib.Path) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir()]


def read_json(path: Any) -> dict[str, Any]:
    """Returns the content of a JSON file with a dict.

    Args:
      path: The file, with the methods of `pathlib.Path`.

    Raises:
      DamagedFileError: The file is not JSON, or not a dict.
      OSError: The file cannot be read.
    """
    try:
        content = json.loads(path.read_bytes().decode())
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path}: got {type(content).__name__}, expected a dict")
    return content


def _read_if_present(path: pathlib.Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _read_split(split: Mapping[str, Any]) -> SplitSummary:
    lengths = tuple(int(length) for length in split.get("shardLengths", ()))
    return SplitSummary(str(split["name"]), lengths, int(split.get("numBytes", 0)))


def _read_fields(
    node: Mapping[str, Any], path: tuple[str, ...], shape: tuple[int | None, ...], depth: int
) -> Iterator[FieldSummary]:
    if depth > _MAX_DEPTH:
        raise DamagedFileError(f"{'/'.join(path)}: more than {_MAX_DEPTH} features are nested")
    if "featuresDict" in node:
        for name, child in sorted(node["featuresDict"].get("features", {}).items()):
            yield from _read_fields(child, (*path, name), shape, depth + 1)
    elif "dataset" in node or "sequence" in node:
        content = node.get("dataset") or node.get("sequence") or {}
        # The time axis is implied by the steps.
        is_dataset = "dataset" in node or str(node.get("pythonClassName", "")).endswith(".Dataset")
        inner_shape = shape if is_dataset else (*shape, _size(content.get("length", 0)))
        yield from _read_fields(content.get("feature", {}), path, inner_shape, depth + 1)
    elif node:
        yield _leaf(node, path, shape)


def _leaf(
    node: Mapping[str, Any], path: tuple[str, ...], outer: Sequence[int | None]
) -> FieldSummary:
    kinds = [name for name in node if isinstance(node[name], dict) and name != "description"]
    kind = kinds[0] if kinds else ""
    content = node.get(kind, {})
    doc = node.get("description", "")
    doc = str(doc.get("text", "") if isinstance(doc, dict) else doc)
    encoding = str(content.get("encoding") or content.get("encodingFormat") or "").lower()
    dtype = {"text": "string", "classLabel": "int64"}.get(kind, str(content.get("dtype", "")))
    if kind == "image":
        encoding, dtype = (encoding or "image file").upper(), dtype or "uint8"
    return FieldSummary(
        path,
        dtype,
        (*outer, *map(_size, content.get("shape", {}).get("dimensions", ()))),
        "" if encoding == "none" else encoding,
        "" if kind in ("tensor", "image", "text") else kind or str(node.get("type", "")),
        doc,
    )


def _size(size: Any) -> int | None:
    return int(size) if int(size) > 0 or str(size) == "0" else None
