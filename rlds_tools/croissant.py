"""Croissant metadata of a dataset: JSON-LD with the vocabulary of Croissant 1.1."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rlds_tools.editing import describe_operation

if TYPE_CHECKING:
    from etils import epath

    from rlds_tools.inspection import InspectedField, InspectedSplit

__all__ = ["File", "checksum", "describe", "provenance"]

# The vocabulary of the format, which each document repeats.
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{
        name: f"cr:{name}"
        for name in (
            *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract"),
            *("field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray"),
            *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
            *("references", "regex", "repeated", "replace", "samplingRate", "separator", "source"),
            *("subField", "transform"),
        )
    },
}
_DATA_TYPES = {
    **{f"float{bits}": f"cr:Float{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"cr:Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"cr:UInt{bits}" for bits in (8, 16, 32, 64)},
    "bool": "sc:Boolean",
    "string": "sc:Text",
}
_MEDIA_TYPES = {
    ".json": "application/json",
    ".hdf5": "application/x-hdf5",
    ".h5": "application/x-hdf5",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.file",
    ".npz": "application/x-npz",
    ".gz": "application/gzip",
    ".tfrecord": "application/x-tfrecord",
    ".array_record": "application/x-array-record",
    ".riegeli": "application/x-riegeli",
}
_SPLITS, _EPISODES, _STEPS, _FILES, _DATA = "splits", "episodes", "steps", "files", "data"


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a dataset.

    Attributes:
      name: The path relative to the folder of the dataset.
      url: The public URL.
      num_bytes: The size in bytes.
      sha256: The checksum of the content.
      has_episodes: Whether the file holds episodes, not only metadata.
    """

    name: str
    url: str
    num_bytes: int
    sha256: str
    has_episodes: bool


def checksum(path: epath.Path, on_read: Callable[[int], None]) -> tuple[int, str]:
    """Reads a file; returns its size in bytes, and its SHA-256.

    Args:
      path: The file.
      on_read: The function to call with the number of bytes of each read.
    """
    digest, num_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            num_bytes += len(block)
            on_read(len(block))
    return num_bytes, digest.hexdigest()


def describe(
    properties: Mapping[str, Any],
    splits: Sequence[InspectedSplit],
    episode_fields: Sequence[InspectedField],
    step_fields: Sequence[InspectedField],
    files: Sequence[File],
) -> dict[str, Any]:
    """Returns the Croissant document of a dataset.

    The document has three sets of records: splits, episodes and steps. It holds the values of the
    splits; the fields of episodes and steps name columns of the files. Fields whose dtype the
    vocabulary lacks, such as complex numbers, are left out.

    Args:
      properties: The facts about the dataset, by the names of schema.org. Empty facts are left out.
      splits: The splits.
      episode_fields: The fields of an episode except the steps.
      step_fields: The fields of a step.
      files: The files.
    """
    data = [file for file in files if file.has_episodes]
    records = [
        _record_set(_EPISODES, "One record for each episode.", episode_fields, ""),
        _record_set(_STEPS, "One record for each step.", step_fields, f"{_STEPS}/"),
    ]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        **{name: value for name, value in properties.items() if value},
        "distribution": [*map(_file_object, files), _file_set(data)],
        "recordSet": [_splits(splits), *(records if data else [])],
    }


def provenance(lineage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the provenance of a dataset in terms of PROV: operations, origins, software.

    Args:
      lineage: The result of `rlds.editing.lineage_of`.
    """
    if lineage is None:
        return {}
    agent = {"@type": "prov:SoftwareAgent", "prov:label": lineage["by"]}
    return {
        "prov:wasGeneratedBy": [
            {
                "@type": "prov:Activity",
                "prov:label": describe_operation(operation),
                "prov:wasAssociatedWith": agent,
            }
            for operation in lineage["operations"]
        ],
        "prov:wasDerivedFrom": [
            {
                "@type": "prov:Entity",
                "prov:label": origin["name"],
                "identifier": origin["digest"],
                **({"license": origin["license"]} if origin["license"] else {}),
                **provenance(origin["lineage"]),
            }
            for origin in lineage["from"]
        ],
    }


def _file_object(file: File) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": _id(_FILES, file.name),
        "name": file.name,
        "contentUrl": file.url,
        "contentSize": f"{file.num_bytes} B",
        "encodingFormat": _encoding(file.name),
        "sha256": file.sha256,
    }


def _file_set(files: Sequence[File]) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": _DATA,
        "name": _DATA,
        "description": "Files of the episodes.",
        "containedIn": [{"@id": _id(_FILES, file.name)} for file in files],
        "encodingFormat": sorted({_encoding(file.name) for file in files}),
        "includes": [file.name for file in files],
    }


def _encoding(name: str) -> str:
    encodings = [encoding for suffix, encoding in _MEDIA_TYPES.items() if suffix in name]
    return encodings[0] if encodings else "application/octet-stream"


def _splits(splits: Sequence[InspectedSplit]) -> dict[str, Any]:
    kinds = {"name": "sc:Text", "episodes": "cr:Int64", "steps": "cr:Int64"}
    return {
        "@type": "cr:RecordSet",
        "@id": _SPLITS,
        "name": _SPLITS,
        "description": "One record for each split, with its numbers of episodes and steps.",
        "dataType": "cr:Split",
        "key": {"@id": f"{_SPLITS}/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"{_SPLITS}/{name}", "name": name, "dataType": kind}
            for name, kind in kinds.items()
        ],
        "data": [{f"{_SPLITS}/{name}": getattr(split, name) for name in kinds} for split in splits],
    }


def _record_set(
    name: str, description: str, fields: Sequence[InspectedField], prefix: str
) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": description,
        "field": [_field(name, field, prefix) for field in fields if field.dtype in _DATA_TYPES],
    }


def _field(record_set: str, field: InspectedField, prefix: str) -> dict[str, Any]:
    shape = ",".join("-1" if size is None else str(size) for size in field.shape)
    return {
        "@type": "cr:Field",
        "@id": _id(record_set, field.name),
        "name": field.name,
        **({"description": field.notes} if field.notes else {}),
        "dataType": _DATA_TYPES[field.dtype],
        **({"isArray": True, "arrayShape": shape} if shape else {}),
        "source": {"fileSet": {"@id": _DATA}, "extract": {"column": f"{prefix}{field.name}"}},
    }


def _id(*path: str) -> str:
    return quote("/".join(path))
