"""Source of TFDS dataset folders, written by TFDS or this project.

Episodes can be read, or copied to other files: for another number of files, order or file format.
Copies are not decoded, so images are not compressed a second time, and features of any kind are
kept.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from etils import epath
from typing_extensions import override

import rlds
import tfds_files
from rlds.raw_files.input_files import Files
from rlds.raw_files.untrusted import check_is_file, source_errors
from rlds.robotics.registry import DatasetMeaning, find_meaning
from rlds.sources.episode_fields import COMPLETE, EPISODE_FIELDS, ORIGIN, RESERVED, TRUNCATED
from rlds.sources.sidecar import field_from_json
from rlds.sources.source import (
    ALL_ROWS,
    Capabilities,
    Examples,
    Fields,
    Origin,
    Source,
    SourceEpisode,
    SourceError,
    SourceInfo,
    require_files,
)
from rlds.sources.texts import as_text, as_texts
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field, Opaque
from rlds_ecosystem.model.nests import leaves_at, map_named_leaves

__all__ = ["FIELDS", "FolderSource", "recognizes"]

FIELDS = "rlds_fields"
"""The metadata key of the meaning of fields that features cannot express."""

# Metadata fields that are attributes of `SourceEpisode`.
_EPISODE_FLAGS = (rlds.FINAL_OBSERVATION_KNOWN, TRUNCATED, COMPLETE)


class FolderSource(Source):
    """Folder of an RLDS dataset of TFDS, in any of its file formats.

    The key of an episode is the name of its file and its index in it. Episodes keep all fields of
    the dataset. By default, they are complete, truncated if their last step is not terminal, and
    have a final observation.

    Args:
      path: The directory with `dataset_info.json` and `features.json`, or a folder above it with no
        other dataset.
      splits: The splits to read; all if None.
      decode_images: Whether images in steps are arrays; otherwise they are the bytes of their
        files, which is much faster. `Episodes.columns` always decodes them.
      video: Whether the steps have the frames of the clips of the episodes, see
        `rlds.sources.video_frames`.

    Raises:
      FileNotFoundError: There is no dataset.
      KeyError: The dataset has no such split.
      SourceError: The dataset has no nested `steps`, or files are missing.

    Attributes:
      folder: The files.
      splits: The names of the splits with episodes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        splits: Sequence[str] | None = None,
        *,
        decode_images: bool = True,
        video: Literal["packets", "frames"] = "packets",
    ) -> None:
        self._video = video
        self.directory = tfds_files.find_folder(path)
        self.opened_files = Files(self.directory, may_grow=True)
        require_files(self.directory / "dataset_info.json", self.directory / "features.json")
        with source_errors(self.directory):
            for file in self.directory.iterdir() if stores.is_local(self.directory) else ():
                if not file.is_dir():
                    check_is_file(file)
            folder = tfds_files.open_folder(self.directory, decode_images=decode_images)
            info = folder.info
            self._texts: dict[str, Any] = {
                "description": folder.description,
                "homepage": str(next(iter(info.get("location", {}).get("urls", [])), "")),
                "citation": folder.citation,
                "license": str(info.get("redistributionInfo", {}).get("license", "")),
            }
            self.name, self.version = folder.name, folder.version
        for split in splits or ():
            if split not in folder:
                raise KeyError(f"{path} has no split {split!r}, only {sorted(folder)}")
        self.folder, self._decode_images = folder, decode_images
        self._splits = [name for name in folder if name in (splits or folder)]
        self.splits = [name for name in self._splits if len(folder[name])]
        with source_errors(self.directory):
            self._check()

    def _with_image_files(self) -> FolderSource:
        source = copy.copy(self)
        for name, value in vars(FolderSource).items():
            if isinstance(value, functools.cached_property):
                vars(source).pop(name, None)
        source.folder, source._decode_images = self.folder.with_image_files(), False
        source._video = "packets"
        return source

    def _check(self) -> None:
        try:
            features = self.folder.features
        except tfds_files.UnsupportedFileError:
            pass  # The folder cannot be read, but can be copied.
        else:
            if not isinstance(features.get(rlds.STEPS), tfds_files.Dataset):
                raise SourceError(
                    f"no nested dataset {rlds.STEPS!r} among the features {list(features)}",
                    file=self.directory,
                )
        files = self.inputs()
        are_there = stores.in_parallel(lambda file: file.exists(), files, self.directory)
        missing = [file for file, is_there in zip(files, are_there) if not is_there]
        if missing:
            suffix = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            problem = f"the file is missing{suffix}; dataset_info.json declares {len(files)} files"
            raise SourceError(problem, file=missing[0])

    @functools.cached_property
    @override
    def fields(self) -> Fields:
        """The fields of the dataset, and its flags."""
        steps = {name: f for name, f in self._steps.items() if name not in rlds.STEP_FLAGS}
        fields = _fields_of(self.folder.features, image_files=not self._decode_images)
        episode_fields = {name: field for name, field in fields.items() if name not in RESERVED}
        flags = [name for name in rlds.STEP_FLAGS if name in self._steps]
        return Fields(steps, map_named_leaves(self._with_meaning, episode_fields), flags)

    @functools.cached_property
    def _steps(self) -> dict[str, Any]:
        steps = self.folder.features[rlds.STEPS]
        assert isinstance(steps, tfds_files.Dataset)
        fields = _fields_of(steps.feature, image_files=not self._decode_images)
        if self._meaning is not None:
            fields = map_named_leaves(
                functools.partial(_with_registered_meaning, self._meaning), fields
            )
        described: dict[str, Any] = map_named_leaves(self._with_meaning, fields, rlds.STEPS)
        return described

    @functools.cached_property
    def _meanings(self) -> dict[str, Field]:
        """The fields with meaning that features cannot express, by path, from the metadata."""
        with source_errors(self.directory / "metadata.json", field=FIELDS):
            entries = self.folder.metadata.get(FIELDS, {}).items()
            return {str(path): field_from_json(content) for path, content in entries}

    def _with_meaning(self, path: str, field: Any) -> Any:
        """Returns a field with element names and unit; text fields as text."""
        entry = self._meanings.get(path)
        if entry is None or not isinstance(field, Field):
            return field
        if entry.encoding and field.is_text:
            return entry  # The field holds an image file, which TFDS stores as bytes.
        names = entry.names if len(entry.names or ()) == (*field.shape, None)[-2:][0] else None
        is_text = field.is_text and entry.dtype == str
        return dataclasses.replace(
            field,
            dtype=str if is_text else field.dtype,
            **{**entry.meaning, "names": names or field.names, "unit": entry.unit or field.unit},
        )

    def _as_texts(self, path: str, value: Any) -> Any:
        """Decodes the UTF-8 bytes of a text field; other values stay unchanged."""
        entry = self._meanings.get(path)
        if entry is None or entry.dtype != str:
            return value
        if isinstance(value, tfds_files.RaggedColumn):
            return tfds_files.RaggedColumn(as_texts(value.values), value.lengths)
        return as_texts(value) if isinstance(value, np.ndarray) else as_text(value)

    @functools.cached_property
    def _meaning(self) -> DatasetMeaning | None:
        """The meaning of the fields from the registry of datasets; None if not registered."""
        with contextlib.suppress(ValueError):  # `rlds validate` reports the error.
            return find_meaning(self.name, self.folder.metadata)
        return None

    @functools.cached_property
    @override
    def source_info(self) -> SourceInfo:
        """The description of the dataset, without the metadata of fields."""
        metadata = {name: value for name, value in self.folder.metadata.items() if name != FIELDS}
        return SourceInfo(**self._texts, metadata=metadata, name=self.name, version=self.version)

    @override
    def inputs(self) -> Sequence[epath.Path]:
        return [file for name in self._splits for file in self.folder[name].paths]

    @override
    def num_episodes(self, split: str) -> int:
        return len(self.folder[split])

    @property
    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(
            video=self._video,
            faults=self._find_faults,
            origin=self._origin,
            shards=lambda split: self.folder[split].shard_lengths,
            image_files=self._with_image_files if self._decode_images else None,
            keeps_keys=True,
            examples=Examples(self.folder),
        )

    def _find_faults(self, split: str) -> Iterator[SourceError]:
        """Yields errors of files with a wrong number of episodes, and of unlisted files."""
        lengths = self.folder[split].shard_lengths, self.folder[split].stored_lengths()
        for file, expected, length in zip(self.folder[split].paths, *lengths):
            if length != expected:
                fault = f"the file has {length} episodes, but dataset_info.json declares {expected}"
                yield SourceError(fault, file=file)
        declared_files = {file.name for file in self.folder[split].paths}
        infix = f"-{split}.{self.folder.file_format}-"
        names = sorted(file.name for file in self.directory.iterdir() if infix in file.name)
        if unlisted_files := [name for name in names if name not in declared_files]:
            fault = (
                f"dataset_info.json lists {len(declared_files)} files of the split {split!r}, but"
            )
            yield SourceError(f"{fault} not {', '.join(unlisted_files[:3])}", file=self.directory)

    def key(self, split: str, index: int) -> str:
        """Returns the name of the file of an episode, and its index in it."""
        file, record = self.folder[split].location_of(index)
        return f"{file.name}:{record}"

    @override
    def read(
        self, split: str, index: int, fields: Collection[str] | None = None, rows: slice = ALL_ROWS
    ) -> SourceEpisode:
        paths = None
        if fields is not None:
            paths = [path for path in self._paths if path in fields or _is_episode_attribute(path)]
        values = self.folder[split].example(index, paths)
        if self._meanings:
            values = map_named_leaves(self._as_texts, values)
        steps = values.pop(rlds.STEPS, {})
        flags = {name: values.pop(name, None) for name in _EPISODE_FLAGS}
        is_terminal = bool(np.any(steps.get(rlds.IS_TERMINAL, ())[-1:]))
        file, record = self.folder[split].location_of(index)
        return SourceEpisode(
            key=self.key(split, index),
            steps=steps,
            origin=Origin(file.name, record, record + 1),
            truncated=_or_default(flags[TRUNCATED], not is_terminal),
            final_observation_known=_or_default(flags[rlds.FINAL_OBSERVATION_KNOWN], True),
            complete=_or_default(flags[COMPLETE], True),
            metadata=values,
        )

    def _origin(self, split: str, index: int) -> Origin | None:
        if ORIGIN in self.folder.features:  # Each episode stores its own origin.
            return None
        file, record = self.folder[split].location_of(index)
        return Origin(file.name, record, record + 1)

    @functools.cached_property
    def _paths(self) -> list[str]:
        """The paths of all fields, as arguments of `read`."""
        fields = {**_fields_of(self.folder.features), rlds.STEPS: self._steps}
        return [path for path, _ in leaves_at(fields, None)]


def _is_episode_attribute(path: str) -> bool:
    """Whether a field holds attributes of any episode, such as its key and its flags."""
    return path.partition("/")[0] in EPISODE_FIELDS or path == f"{rlds.STEPS}/{rlds.IS_TERMINAL}"


def _or_default(value: Any, default: bool) -> bool:
    return default if value is None else bool(value)


def _with_registered_meaning(meaning: DatasetMeaning, path: str, field: Any) -> Any:
    """Returns a field with the registered names, unit and kind of its elements."""
    if not isinstance(field, Field) or len(field.shape) != 1 or not field.shape[0]:
        return field
    names, unit = meaning.names_of(path, field.shape[0]), meaning.unit_of(path)
    if names:
        field = dataclasses.replace(field, names=names, unit=unit or None)
    return dataclasses.replace(field, kind=meaning.kind_of(path))


def _fields_of(features: tfds_files.Feature, image_files: bool = False) -> dict[str, Any]:
    assert isinstance(features, tfds_files.Features)
    return {name: _field_of(feature, image_files) for name, feature in features.items()}


def _field_of(feature: tfds_files.Feature, image_files: bool = False) -> Any:
    if isinstance(feature, tfds_files.Features):
        return _fields_of(feature, image_files)
    if isinstance(feature, tfds_files.Tensor | tfds_files.Image):
        dtype = bytes if feature.dtype.kind == "O" else feature.dtype
        encoding = ""
        if image_files and isinstance(feature, tfds_files.Image):
            encoding = feature.encoding_format or "png"
        return Field(dtype, feature.shape, encoding=encoding, doc=feature.doc)
    if isinstance(feature, tfds_files.Sequence):
        return _in_sequence(_field_of(feature.feature), feature)
    return Opaque(f"a {type(feature).__name__}")


def _in_sequence(field: Any, sequence: tfds_files.Sequence) -> Any:
    """Returns the field of a sequence of values of a field; for a dict, of each value."""
    if isinstance(field, Mapping):
        return {name: _in_sequence(child, sequence) for name, child in field.items()}
    if not isinstance(field, Field):
        return field
    return Field(field.dtype, (sequence.length, *field.shape), doc=sequence.doc or field.doc)


def recognizes(path: str | os.PathLike[str]) -> bool:
    """Whether a path has this format, judged by the existence of its features."""
    return bool((tfds_files.find_folder(path) / "features.json").exists())
