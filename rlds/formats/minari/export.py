"""Exports to Minari datasets."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import numpy as np
from typing_extensions import override

import rlds
import tfds_files
from rlds.formats.hdf5_export import copy_row
from rlds.formats.minari.attributes import IRREGULAR, absent_infos, decode, decode_attributes
from rlds.formats.minari.dataset_paths import find_identifier, is_versioned, make_namespaces
from rlds.formats.minari.hdf5_files import hdf5_writer
from rlds.formats.minari.source import METADATA_KEY, MinariSource, field_path
from rlds.formats.minari.spaces import LeafSpace, Spaces, box, is_like_images, tuple_name
from rlds.formats.minari.storage import (
    ACTIONS,
    FORMATS,
    INFOS,
    OBSERVATIONS,
    REWARDS,
    SPACES,
    TERMINATIONS,
    TRUNCATIONS,
    RawEpisode,
    StoredColumn,
    Writer,
)
from rlds.formats.minari.tables import copy_table, write_table
from rlds.raw_files.image_files import jpeg_shape
from rlds.sources.conventions import check_option
from rlds.sources.episode_fields import fields_of
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.reading import read
from rlds.sources.restored_source import stored_in
from rlds.sources.sidecar import SIDECAR_KEY, Sidecar, SidecarWriter
from rlds.sources.source import AnySource, EpisodeSummary, Location, SourceEpisode, is_derived
from rlds.sources.texts import as_texts
from rlds.sources.view import stored_paths
from rlds.sources.writing import Export, Placement, sidecar_placements, transition_needed
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import is_below, leaves_at, lookup, nest, put, root_of

__all__ = ["MinariExport"]

_COMPUTED_KEYS = ("total_episodes", "total_steps", "data_format", "dataset_id", "dataset_size")
# The metadata keys that this export writes for episodes from other formats.
_WRITTEN_KEYS = (
    *_COMPUTED_KEYS,
    *SPACES.values(),
    "jpeg_encoding",
    "minari_version",
    "description",
    "rlds",
    SIDECAR_KEY,
)
# The first version of Minari that records if images are JPEG.
_MINARI_VERSION = "0.5.4"
_EXAMPLE_KEY = "rlds"
# The limit of an attribute in HDF5 is 64 KiB, with its header.
_ATTRIBUTE_BYTES = 60_000


class MinariExport(Export):
    """Writes a Minari dataset.

    The spaces are derived from the fields: a `Box` with the bounds of the dtype, `Discrete` for a
    class label, `Text`, and a `Dict` for a dict. If all image observations and actions are JPEG
    files, they stay JPEG files; otherwise they become arrays. The discount and further fields of
    steps become infos; episode metadata becomes attributes below `rlds`. Fields that Minari cannot
    hold are in the sidecar.

    Episodes from Minari keep their spaces, flags and attributes, and the fields of metadata.json.

    Args:
      episodes: The episodes.
      data_format: "hdf5", "arrow" or "parquet"; by default, the format of the source, or "hdf5".
      unknown_final_observation: The treatment of episodes without a final observation, which Minari
        cannot hold: raise an error, or move their last transition to the sidecar.
      metadata: New or changed fields of metadata.json, such as `author` or `env_spec`.
      compression: The compression of arrays in HDF5 files; Minari does not compress them. Arrow
        and Parquet files have their own compression.

    Raises:
      ValueError: Minari cannot hold the episodes, or an argument is invalid.
    """

    format = "minari"
    copies_parts = True
    _GROUPS: ClassVar[dict[str, str]] = {rlds.OBSERVATION: OBSERVATIONS, rlds.ACTION: ACTIONS}

    def __init__(
        self,
        episodes: Episodes,
        *,
        data_format: str | None = None,
        unknown_final_observation: Literal["error", "drop_last_transition"] = "error",
        metadata: Mapping[str, Any] | None = None,
        compression: Literal["gzip", "lzf"] | None = None,
    ) -> None:
        super().__init__(episodes)
        self._compression = compression
        check_option("data_format", data_format, FORMATS)
        choices = ("error", "drop_last_transition")
        check_option("unknown_final_observation", unknown_final_observation, choices)
        self._new_metadata = dict(metadata or {})
        for name in sorted(self._new_metadata.keys() & {*_COMPUTED_KEYS, *SPACES.values()}):
            raise ValueError(f"metadata: {name!r} comes from the dataset; leave it out")
        spec = episodes.spec
        # The metadata.json of a source in Minari's format, or of an export to this format.
        old = episodes.metadata.get(METADATA_KEY, {})
        self._old_metadata: Mapping[str, Any] = old if IRREGULAR in spec else {}
        if not self._old_metadata and isinstance(old, Mapping):
            self._new_metadata = {
                name: value for name, value in old.items() if name not in _WRITTEN_KEYS
            } | self._new_metadata
        self._data_format = data_format or self._old_metadata.get("data_format", "hdf5")
        self._dataset_id = ""
        self._source = episodes.source
        self._drops_last = unknown_final_observation == "drop_last_transition"
        steps = spec.pop(rlds.STEPS)
        # A dataset may store a subset of its fields.
        if examples := self._source.capabilities.examples:
            stored_features = examples.folder.features
            spec = {name: field for name, field in spec.items() if name in stored_features}
        self._steps, self._fields = dict(leaves_at(steps, None)), dict(leaves_at(spec, None))
        features = _step_features(episodes.source)
        self._classes = {path: f.num_classes for path, f in features.items() if f.num_classes}
        # Strings without a feature `Text` are bytes.
        self._text_paths = {p for p, f in features.items() if f.class_name.endswith(".Text")}
        self._texts: dict[str, _TextColumn] = {}
        self._check_fields()
        self._paths = self._minari_paths()
        self._jpeg_paths = self._kept_jpegs()
        self._spaces = _parse_spaces(self._spaces_in_json())
        # Values are read back from Minari, which has no row for final actions.
        paths = {path: field_path(column) for path, column in self._paths.items()}
        finals = [path for path, column in self._paths.items() if _has_final_row(column)]
        self._sidecar = Sidecar.create(episodes, paths, finals, drops_final_row=self._drops_last)

    @override
    def placements(self) -> Sequence[Placement]:
        targets = {f"{rlds.STEPS}/{path}": column for path, column in self._paths.items()}
        attributes = f"attributes of the episode, {_EXAMPLE_KEY}"
        targets |= {path: attributes for path in self._fields if self._is_attribute(path)}
        reasons = {path: f"Minari cannot hold {field}" for path, field in self._unsupported.items()}
        if self._drops_last:
            reason = "if the final observation is unknown, the sidecar has the last transition"
            reasons |= {
                path: reason
                for path in self._sidecar.paths
                if path not in self._sidecar.final_row_paths
            }
        placements = sidecar_placements(self._sidecar, reasons, targets)
        if rlds.REWARD not in self._steps:
            no_reward = "there are no rewards; Minari gets zeros"
            path = f"{rlds.STEPS}/{rlds.REWARD}"
            placements.append(Placement(path, REWARDS, "sidecar", no_reward))
        return placements

    def _is_attribute(self, path: str) -> bool:
        """Returns True if a field of an episode is an attribute, unlike images and text lists."""
        field = self._fields[path]
        return not field.encoding and (not field.is_text or field.shape == ())

    def _check_fields(self) -> None:
        self._unsupported = {p: field for p, field in self._steps.items() if not _fits(p, field)}
        self._steps = {p: field for p, field in self._steps.items() if p not in self._unsupported}
        for name in self._GROUPS:
            if not any(is_below(path, name) for path in self._steps):
                for path in (path for path in self._unsupported if is_below(path, name)):
                    raise ValueError(f"steps/{path}: Minari cannot hold {self._unsupported[path]}")
                raise ValueError(f"the steps have no {name!r}, which Minari needs")
        reward = self._steps.get(rlds.REWARD)
        if any(is_below(path, rlds.REWARD) for path in self._steps) and (
            reward is None or reward.shape != ()
        ):
            raise ValueError(
                f"the reward is {reward or 'nested'}, expected a number. If you rename it (rlds "
                "edit --rename reward=rewards), Minari gets zeros"
            )

    def _minari_paths(self) -> dict[str, str]:
        """Returns the paths of columns of Minari, by the fields of steps."""
        recorded_flags = (TERMINATIONS, TRUNCATIONS) if self._old_metadata else ()
        is_left_out = is_derived(rlds.DISCOUNT, self._steps.get(rlds.DISCOUNT))
        paths = {}
        for path in self._steps:
            field, *names = path.split("/")
            if field in self._GROUPS:
                paths[path] = "/".join([self._GROUPS[field], *names])
            elif (field == INFOS and names) or path in recorded_flags:  # Files of D4RL have infos.
                paths[path] = path
            elif path == rlds.REWARD:
                paths[path] = REWARDS
            elif path == rlds.DISCOUNT and (self._old_metadata or is_left_out):
                continue
            elif path not in rlds.STEP_FLAGS:
                paths[path] = f"{INFOS}/{path}"
        repeated = sorted(path for path in paths.values() if list(paths.values()).count(path) > 1)
        if repeated:
            raise ValueError(f"two step fields become {repeated[0]!r}; rename one (rlds edit)")
        return paths

    def _kept_jpegs(self) -> set[str]:
        """Returns the image fields that stay JPEG: all of them, or none."""
        images = {
            path: field
            for path, field in self._steps.items()
            if root_of(path) in self._GROUPS and is_like_images(field)
        }
        are_kept = all(
            field.encoding == "jpeg" and (self._old_metadata or field.shape[2:] == (3,))
            for field in images.values()
        )
        return {*images} if are_kept else set()

    def _spaces_in_json(self) -> dict[str, str]:
        """Returns the spaces of observations and actions in JSON, recorded or derived."""
        old = self._old_metadata
        spaces = {name: old[name] for name in SPACES.values() if name in old}
        leaves = _parse_spaces(spaces).leaves
        paths = {column: path for path, column in self._paths.items() if root_of(column) in SPACES}
        self._leaves, is_same = leaves, leaves.keys() == paths.keys() != set()
        if is_same and all(_holds(leaf, self._steps[paths[p]]) for p, leaf in leaves.items()):
            return spaces
        steps = nest(self._steps)  # Names of spaces have no slashes.
        return {f"{g}_space": json.dumps(self._space(steps[g], g)) for g in self._GROUPS}

    def _space(self, field: Any, path: str) -> dict[str, Any]:
        if isinstance(field, Mapping):
            children = {name: self._space(node, f"{path}/{name}") for name, node in field.items()}
            names = [tuple_name(index) for index in range(len(children))]
            if names and sorted(children) == sorted(names):
                return {"type": "Tuple", "subspaces": [children[name] for name in names]}
            return {"type": "Dict", "subspaces": children}
        if path in self._classes:
            return {"type": "Discrete", "dtype": "int64", "start": 0, "n": self._classes[path]}
        leaf = self._recorded_leaf(path)
        if leaf is not None and leaf.kind != "Text" and _holds(leaf, field):
            return dict(leaf.space)
        if field.is_text and not field.encoding and field.shape == ():
            return self._texts.setdefault(path, _TextColumn()).space()
        return box(field.column_dtype, field.shape)

    def _recorded_leaf(self, path: str) -> LeafSpace | None:
        """Returns the recorded space of a field, by its name before an edit."""
        names = stored_paths(self._source)
        field = f"{rlds.STEPS}/{path}"
        root, *suffix = names.get(field, field).split("/")[1:]
        return self._leaves.get("/".join([self._GROUPS.get(root, root), *suffix]))

    @classmethod
    @override
    def part_name(cls, name: str) -> str:
        return name if is_versioned(name) else f"{name}-v0"

    @override
    def check_target(self, path: str | os.PathLike[str]) -> None:
        super().check_target(path)
        self._dataset_id = find_identifier(path, str(self._old_metadata.get("dataset_id", "")))

    @override
    def why_unsupported(self, summary: EpisodeSummary) -> str:
        if not summary.final_observation_known and not self._drops_last:
            return (
                "the final observation is unknown, but Minari needs it. Leave out the last "
                "transition of such episodes with unknown_final_observation='drop_last_transition' "
                "(--to-option on the command line)"
            )
        return transition_needed(summary.num_steps - 1, "Minari")

    @override
    def write(self, path: pathlib.Path) -> None:
        data = path / "data"
        data.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            sidecar = stack.enter_context(SidecarWriter.in_folder(path, self._sidecar))
            write: Writer = functools.partial(self._write_table, data)
            if self._data_format == "hdf5":
                write = stack.enter_context(hdf5_writer(data, self._compression))
            totals = self._write_episodes(write, sidecar)
            spaces = self._spaces_in_json()
            if self._old_metadata or self._new_metadata:  # The length of texts is final now.
                sidecar.sidecar = self._updated_sidecar(spaces if self._old_metadata else {})
        content = {
            **self._metadata_json(spaces),
            **totals,
            SIDECAR_KEY: sidecar.sidecar.digest,
            "data_format": self._data_format,
            "dataset_id": self._dataset_id or path.name,
            **self._new_metadata,
        }
        size = sum(file.stat().st_size for file in data.rglob("*"))
        content["dataset_size"] = round(size / 1_000_000, 1)  # Minari counts megabytes.
        (data / "metadata.json").write_text(json.dumps(content))

    def _write_table(self, data: pathlib.Path, index: int, episode: RawEpisode | Location) -> None:
        """See `Writer`."""
        if isinstance(episode, Location):
            source, _ = stored_in(episode, MinariSource)
            copy_table(source.stored_file(episode.index).parent, data, index)
        else:
            write_table(data, self._spaces, self._data_format, index, episode)

    def _updated_sidecar(self, spaces: Mapping[str, str]) -> Sidecar:
        """Returns the sidecar with the written spaces and the new metadata."""
        sidecar_metadata = self._sidecar.metadata
        metadata = {METADATA_KEY: {**self._old_metadata, **spaces, **self._new_metadata}}
        content = {**sidecar_metadata, "metadata": {**sidecar_metadata["metadata"], **metadata}}
        return dataclasses.replace(self._sidecar, metadata=content)

    @override
    def files_order(self) -> Sequence[int] | None:
        return self.order_of_origin() if self._old_metadata else None

    def _write_episodes(self, write: Writer, sidecar: SidecarWriter) -> dict[str, int]:
        index = total_steps = 0
        for item in self.iter_items():
            row = item if isinstance(item, Location) else self._episode(item, index)
            try:
                write(index, row)
            except ValueError as error:
                raise ValueError(f"episode {index}: {error}") from error
            if isinstance(item, Location):
                episode = copy_row(item, sidecar)
                steps = read(*item, [f"{rlds.STEPS}/{path}" for path in self._texts]).steps
            else:
                sidecar.add(episode := item)
                steps = episode.steps
            for path, texts in self._texts.items():
                end = None if _has_final_row(self._paths[path]) else -1
                texts.add(as_texts(lookup(steps, path))[:end])
            total_steps += episode.num_steps - 1
            index += 1
        return {"total_episodes": index, "total_steps": total_steps}

    @override
    def finish(self, path: str | os.PathLike[str]) -> None:
        make_namespaces(path)

    def _metadata_json(self, spaces: Mapping[str, str]) -> dict[str, Any]:
        """Returns the content of metadata.json, after all episodes are written."""
        content = {"jpeg_encoding": bool(self._jpeg_paths), "minari_version": _MINARI_VERSION}
        if self._old_metadata:
            # Without images, the image format has no effect.
            has_images = any(leaf.is_image for leaf in self._spaces.leaves.values())
            if not has_images:
                content = {name: self._old_metadata.get(name, old) for name, old in content.items()}
            return {**self._old_metadata, **spaces, **content}
        content |= {**spaces, "description": self._source.source_info.description}
        if metadata := self.episodes.metadata:
            content[_EXAMPLE_KEY] = dict(metadata)
        return content

    # --- One episode.

    def _episode(self, episode: SourceEpisode, index: int) -> RawEpisode:
        """Converts an episode to Minari's columns and attributes."""
        steps, transitions = episode.steps, episode.num_steps - 1
        columns = self._flags(episode, transitions)
        absent = absent_infos(episode.metadata) if self._old_metadata else []
        for path, minari_path in self._paths.items():
            if minari_path in absent:
                continue
            try:
                column = _as_column(
                    lookup(steps, path),
                    self._steps[path],
                    is_text=path in self._texts or path in self._text_paths,
                    keeps_jpeg=path in self._jpeg_paths,
                )
            except ValueError as error:
                raise ValueError(f"episode {index}, steps/{path}: {error}") from error
            if not _has_final_row(minari_path):
                column = StoredColumn(column.field, column.values[:transitions])
            columns[minari_path] = column
        columns.setdefault(REWARDS, _number_column(np.zeros(transitions, np.float32)))
        metadata = self._old_metadata
        attributes = decode_attributes(episode.metadata) if metadata else self._attributes(episode)
        return RawEpisode(columns, {**attributes, "id": index, "total_steps": transitions})

    def _flags(self, episode: SourceEpisode, transitions: int) -> dict[str, StoredColumn]:
        terminations = np.array(episode.steps[rlds.IS_TERMINAL][1:])
        terminations[-1] &= episode.final_observation_known
        truncations = np.zeros(transitions, bool)
        truncations[-1] = not terminations[-1]
        flags = {TERMINATIONS: terminations, TRUNCATIONS: truncations}
        return {name: _number_column(values) for name, values in flags.items()}

    def _attributes(self, episode: SourceEpisode) -> dict[str, Any]:
        fields, attributes = fields_of(episode), dict[str, Any]()
        for path in filter(self._is_attribute, self._fields):
            value = lookup(fields, path)
            with contextlib.suppress(UnicodeDecodeError):
                value = decode(value)
                if np.asarray(value).nbytes <= _ATTRIBUTE_BYTES:
                    put(attributes, path, value)
        return {_EXAMPLE_KEY: attributes} if attributes else {}


def _as_column(
    values: np.ndarray, field: Field, *, is_text: bool, keeps_jpeg: bool
) -> StoredColumn:
    """Converts a column of an episode to Minari's form.

    Args:
      values: The values.
      field: The type of a value.
      is_text: True if strings are text, even if the field has the dtype bytes.
      keeps_jpeg: True if JPEG images stay files. All other images become arrays.

    Raises:
      ValueError: An image does not fit the field; a text is not in UTF-8.
    """
    if values.dtype.kind == "O" and keeps_jpeg:
        for row, image in enumerate(values):
            shape = jpeg_shape(image)
            if shape != field.shape[: len(shape)]:
                raise ValueError(f"step {row}: a JPEG of shape {shape}, expected {field.shape}")
        return StoredColumn(field, values)
    if field.encoding or not field.is_text:
        return _number_column(as_values(values, field))
    if field.dtype == str or is_text:
        return StoredColumn(Field(str, field.shape), as_texts(values))
    return StoredColumn(Field(bytes, field.shape), values)


def _number_column(values: np.ndarray) -> StoredColumn:
    return StoredColumn(Field(values.dtype, values.shape[1:]), values)


def _has_final_row(minari_path: str) -> bool:
    """Returns True if a column of Minari has a row for the final observation."""
    return root_of(minari_path) in (OBSERVATIONS, INFOS)


def _holds(leaf: LeafSpace, field: Field) -> bool:
    """Returns True if a space has the dtype and shape of a field."""
    if leaf.kind == "Text" or field.is_text:
        return leaf.field.is_text == field.is_text
    shape = leaf.jpeg_field.shape if leaf.is_image and field.encoding else leaf.shape
    return (leaf.field.dtype, shape) == (field.column_dtype, field.shape)


def _parse_spaces(metadata: Mapping[str, Any]) -> Spaces:
    """Returns the spaces in metadata.json."""
    spaces = Spaces()
    for path, name in SPACES.items():
        if name in metadata:
            spaces.add(metadata[name], path)
    return spaces


def _step_features(source: AnySource) -> dict[str, tfds_files.Tensor]:
    """Returns the features of the steps of a TFDS dataset, which are more detailed than fields."""
    if (examples := source.capabilities.examples) is None:
        return {}
    steps = examples.folder.features[rlds.STEPS]
    assert isinstance(steps, tfds_files.Dataset)
    leaves = leaves_at(cast(Mapping[str, Any], steps.feature), None)
    return {path: feature for path, feature in leaves if isinstance(feature, tfds_files.Tensor)}


class _TextColumn:
    """The alphabet and the greatest length of the texts of a field."""

    def __init__(self) -> None:
        self._characters: set[str] = set()
        self._longest = 1

    def add(self, texts: np.ndarray) -> None:
        for text in texts:
            self._characters.update(text)
            self._longest = max(self._longest, len(text))

    def space(self) -> dict[str, Any]:
        """Returns the space of all added texts."""
        return {
            "type": "Text",
            "max_length": self._longest,
            "min_length": 0,
            "charset": "".join(sorted(self._characters)) or string.ascii_letters,
        }


def _fits(path: str, field: Any) -> bool:
    """Returns True if Minari can hold a field of steps; a space holds numbers, or a text."""
    if not isinstance(field, Field) or None in field.shape:
        return False
    in_space = root_of(path) in (rlds.OBSERVATION, rlds.ACTION)
    is_text = field.is_text and not field.encoding
    return not in_space or (field.shape == () if is_text else field.column_dtype.kind in "biuf")
