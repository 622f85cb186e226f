"""Episodes of a dataset as Minari keeps them, and those that came from Minari to begin with."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds

import rlds
from rlds.sources.files.jpeg_images import jpeg_shape
from rlds.sources.minari.attributes import ATTRIBUTES, IRREGULAR, restored_episode
from rlds.sources.minari.source import COLUMNS_KEY, METADATA_KEY
from rlds.sources.minari.spaces import Spaces, merged, parse_space
from rlds.sources.minari.storage import (
    ACTIONS,
    INFOS,
    OBSERVATIONS,
    REWARDS,
    SPACES,
    Column,
    RawEpisode,
)
from rlds.sources.minari.tables import TABLES
from rlds.sources.nests import at
from rlds.tfds import load

__all__ = ["Episodes", "MinariEpisodes", "as_column", "is_jpeg", "leaves", "spaces_of"]


class Episodes(abc.ABC):
    """The episodes of a dataset, as Minari keeps them.

    Attributes:
      recorded: What metadata.json said, if there was one.
      spaces: The spaces of observations and actions.
    """

    recorded: Mapping[str, Any]
    spaces: Spaces

    @abc.abstractmethod
    def examples(self, builder: Any, split: str) -> Iterator[dict[str, Any]]:
        """Yields the examples of a split; images that stay files are not decoded."""

    @abc.abstractmethod
    def episode(self, example: Mapping[str, Any], number: int) -> tuple[int, RawEpisode]:
        """Returns an example as an episode with its index; `number` counts the examples."""

    @abc.abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Returns metadata.json, when all episodes are written."""


class MinariEpisodes(Episodes):
    """Episodes that were converted from Minari."""

    _FIELDS: ClassVar[dict[str, str]] = {
        OBSERVATIONS: rlds.OBSERVATION,
        ACTIONS: rlds.ACTION,
        REWARDS: rlds.REWARD,
    }

    def __init__(self, info: Any, num_episodes: int, data_format: str | None) -> None:
        self.recorded = dict(info.metadata[METADATA_KEY])
        # Minari cannot read tables of which some have other types than others.
        was_table = self.recorded.get("data_format", "hdf5") in TABLES
        self._same_dtypes = data_format in TABLES and not was_table
        self.spaces = spaces_of(self.recorded)
        self._keeps_indices = num_episodes == self.recorded["total_episodes"]
        features = dict(leaves(info.features[rlds.STEPS].feature))
        self._paths = {path: self._path(path) for path in info.metadata[COLUMNS_KEY]}
        self._features = {path: features[path] for path in self._paths.values()}

    def _path(self, minari_path: str) -> str:
        """The path of a column in a step."""
        group, *names = minari_path.split("/")
        return "/".join([self._FIELDS.get(group, group), *names])

    def examples(self, builder: Any, split: str) -> Iterator[dict[str, Any]]:
        """See `Episodes`."""
        decoded = [path for path, feature in self._features.items() if not is_jpeg(feature)]
        dataset = load(builder, split, decode=[*decoded, rlds.IS_FIRST])
        yield from dataset.as_numpy_iterator()

    def episode(self, example: Mapping[str, Any], number: int) -> tuple[int, RawEpisode]:
        """See `Episodes`."""
        steps, columns = example[rlds.STEPS], {}
        transitions = len(steps[rlds.IS_FIRST]) - 1
        for minari_path, path in self._paths.items():
            column = as_column(at(steps, path), self._features[path])
            if minari_path.split("/")[0] not in (OBSERVATIONS, INFOS):
                column = Column(column.kind, column.values[:transitions])
            columns[minari_path] = column
        fields = {**example, IRREGULAR: example[IRREGULAR].decode()}
        fields["options"] = example["options"].decode()
        fields[ATTRIBUTES] = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in example.get(ATTRIBUTES, {}).items()
        }
        episode = restored_episode(columns, fields, transitions, same_dtypes=self._same_dtypes)
        if self._keeps_indices:
            key = example[rlds.metadata.EPISODE_ID].decode()
            return int(key.removeprefix("episode_")), episode
        attributes = {**episode.attributes, "id": number}
        return number, dataclasses.replace(episode, attributes=attributes)

    def metadata(self) -> dict[str, Any]:
        """See `Episodes`."""
        for path, leaf in self.spaces.leaves.items():
            is_raw = leaf.is_image and not is_jpeg(self._features[self._path(path)])
            if is_raw and self.recorded.get("jpeg_encoding", True):
                return {**self.recorded, "jpeg_encoding": False}
        return dict(self.recorded)


def as_column(values: np.ndarray, feature: Any, *, is_text: bool = False) -> Column:
    """Returns a column of the dataset as one of Minari.

    Args:
      values: The values; images that stay files as they are.
      feature: The feature of one of them.
      is_text: Whether strings are text, even if the feature does not say so.

    Raises:
      ValueError: An image is not what the feature says; a text is not in UTF-8.
    """
    if values.dtype.kind != "O":
        return Column("numbers", values)
    if isinstance(feature, tfds.features.Image):
        for row, image in enumerate(values):
            shape = jpeg_shape(image)
            if shape != feature.shape[: len(shape)]:
                raise ValueError(f"step {row}: a JPEG image of shape {shape}, not {feature.shape}")
        return Column("jpeg", values)
    if isinstance(feature, tfds.features.Text) or is_text:
        texts = np.empty(len(values), object)
        texts[:] = [value.decode() for value in values]
        return Column("text", texts)
    return Column("bytes", values)


def spaces_of(metadata: Mapping[str, Any]) -> Spaces:
    """Returns the spaces that metadata.json describes."""
    return merged(
        parse_space(metadata[name], path) for path, name in SPACES.items() if name in metadata
    )


def leaves(features: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the features of single fields with their paths."""
    for name, feature in features.items():
        here = f"{path}/{name}" if path else name
        if isinstance(feature, tfds.features.FeaturesDict):
            yield from leaves(feature, here)
        else:
            yield here, feature


def is_jpeg(feature: Any) -> bool:
    """Whether the values of a feature are JPEG images."""
    return isinstance(feature, tfds.features.Image) and feature.encoding_format == "jpeg"
