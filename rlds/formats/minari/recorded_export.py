"""Episodes of a dataset as Minari keeps them, and those that came from Minari to begin with."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np

import rlds
import tfds_files
from rlds.formats.minari.attributes import ATTRIBUTES, IRREGULAR, restored_episode
from rlds.formats.minari.source import COLUMNS_KEY, METADATA_KEY
from rlds.formats.minari.spaces import Spaces, merged, parse_space
from rlds.formats.minari.storage import (
    ACTIONS,
    INFOS,
    OBSERVATIONS,
    REWARDS,
    SPACES,
    Column,
    RawEpisode,
)
from rlds.formats.minari.tables import TABLES
from rlds.formats.tfds.source import FolderSource
from rlds.raw_files.jpeg_images import jpeg_shape
from rlds.sources.aside import Aside
from rlds.sources.episodes import Episodes, as_values
from rlds.sources.exporting import Placement
from rlds.sources.source import Outline, Source, SourceEpisode
from rlds_ecosystem.fields import Field
from rlds_ecosystem.nests import at, leaves_at

__all__ = [
    "MinariEpisodes",
    "RecordedEpisodes",
    "as_column",
    "features_of",
    "is_text",
    "spaces_of",
]


class MinariEpisodes(abc.ABC):
    """The episodes of a dataset, as Minari keeps them.

    Attributes:
      recorded: What metadata.json said, if there was one.
      spaces: The spaces of observations and actions.
      aside: What Minari has no place for; None if it has a place for all that is to be written.
      is_exact: See `Export`.
    """

    recorded: Mapping[str, Any]
    spaces: Spaces
    aside: Aside | None = None
    is_exact: bool = False

    @abc.abstractmethod
    def placements(self) -> Sequence[Placement]:
        """See `Export`."""

    def objection(self, outline: Outline) -> str:
        """See `Export`."""
        del outline
        return ""

    @abc.abstractmethod
    def episode(self, episode: SourceEpisode, number: int) -> tuple[int, RawEpisode]:
        """Returns an episode with its index; `number` counts the episodes."""

    @abc.abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Returns metadata.json, when all episodes are written."""


class RecordedEpisodes(MinariEpisodes):
    """Episodes that were converted from Minari."""

    _FIELDS: ClassVar[dict[str, str]] = {
        OBSERVATIONS: rlds.OBSERVATION,
        ACTIONS: rlds.ACTION,
        REWARDS: rlds.REWARD,
    }

    def __init__(self, episodes: Episodes, data_format: str | None) -> None:
        self.recorded = dict(episodes.metadata[METADATA_KEY])
        # Minari cannot read tables of which some have other types than others.
        was_table = self.recorded.get("data_format", "hdf5") in TABLES
        self._same_dtypes = data_format in TABLES and not was_table
        self.spaces = spaces_of(self.recorded)
        self._keeps_indices = len(episodes) == self.recorded["total_episodes"]
        self.is_exact = self._keeps_indices and not self._same_dtypes
        self._spec = dict(leaves_at(episodes.spec, None))
        self._features = features_of(episodes.source)
        self._paths = {path: self._path(path) for path in episodes.metadata[COLUMNS_KEY]}
        self._fields = {path: self._spec[f"{rlds.STEPS}/{path}"] for path in self._paths.values()}

    def _path(self, minari_path: str) -> str:
        """The path of a column in a step."""
        group, *names = minari_path.split("/")
        return "/".join([self._FIELDS.get(group, group), *names])

    def placements(self) -> Sequence[Placement]:
        """All fields are what Minari had."""
        return [Placement(path, "as it was", "exact") for path in self._spec]

    def episode(self, episode: SourceEpisode, number: int) -> tuple[int, RawEpisode]:
        """See `MinariEpisodes`."""
        columns = {}
        transitions = episode.num_steps - 1
        for minari_path, path in self._paths.items():
            column = as_column(
                at(episode.steps, path),
                self._fields[path],
                is_text=path in self._features and is_text(self._features[path]),
            )
            if minari_path.split("/")[0] not in (OBSERVATIONS, INFOS):
                column = Column(column.kind, column.values[:transitions])
            columns[minari_path] = column
        fields = {
            **episode.metadata,
            IRREGULAR: _text(episode.metadata[IRREGULAR]),
            "options": _text(episode.metadata["options"]),
        }
        attributes = episode.metadata.get(ATTRIBUTES, {})
        fields[ATTRIBUTES] = {name: _text(value) for name, value in attributes.items()}
        made = restored_episode(columns, fields, transitions, same_dtypes=self._same_dtypes)
        if self._keeps_indices:
            return int(episode.key.removeprefix("episode_")), made
        return number, dataclasses.replace(made, attributes={**made.attributes, "id": number})

    def metadata(self) -> dict[str, Any]:
        """See `MinariEpisodes`."""
        for path, leaf in self.spaces.leaves.items():
            is_raw = leaf.is_image and self._fields[self._path(path)].encoding != "jpeg"
            if is_raw and self.recorded.get("jpeg_encoding", True):
                return {**self.recorded, "jpeg_encoding": False}
        return dict(self.recorded)


def as_column(
    values: np.ndarray, field: Field, *, is_text: bool = False, keeps_jpeg: bool = True
) -> Column:
    """Returns a column of an episode as one of Minari.

    Args:
      values: The values.
      field: What one of them is.
      is_text: Whether strings are text, even if the field does not say so.
      keeps_jpeg: Whether JPEG images stay files. All other images become arrays.

    Raises:
      ValueError: An image is not what the field says; a text is not in UTF-8.
    """
    if values.dtype.kind == "O" and field.encoding == "jpeg" and keeps_jpeg:
        for row, image in enumerate(values):
            shape = jpeg_shape(image)
            if shape != field.shape[: len(shape)]:
                raise ValueError(f"step {row}: a JPEG image of shape {shape}, not {field.shape}")
        return Column("jpeg", values)
    if field.encoding or not field.is_text:
        return Column("numbers", as_values(values, field))
    if field.dtype == str or is_text:
        texts = np.empty(len(values), object)
        texts[:] = [_text(value) for value in values]
        return Column("text", texts)
    return Column("bytes", values)


def spaces_of(metadata: Mapping[str, Any]) -> Spaces:
    """Returns the spaces that metadata.json describes."""
    return merged(
        parse_space(metadata[name], path) for path, name in SPACES.items() if name in metadata
    )


def features_of(source: Source) -> dict[str, tfds_files.Tensor]:
    """Returns the features of the steps of a dataset of TFDS, which say more than fields do."""
    if not isinstance(source, FolderSource):
        return {}
    steps = source.folder.features[rlds.STEPS]
    assert isinstance(steps, tfds_files.Dataset)
    leaves = leaves_at(cast(Mapping[str, Any], steps.feature), None)
    return {path: found for path, found in leaves if isinstance(found, tfds_files.Tensor)}


def is_text(feature: tfds_files.Tensor) -> bool:
    """Whether strings are text, and not just bytes."""
    return feature.class_name.rpartition(".")[2] == "Text"


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
