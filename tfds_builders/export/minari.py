"""Writes Minari datasets from datasets of TFDS."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, Literal

import tensorflow_datasets as tfds

from rlds.formats.minari.export import MinariExport
from rlds.formats.minari.places import new_dataset
from rlds.formats.tfds.source import FolderSource
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import write_export

__all__ = ["export_minari"]


def export_minari(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder,
    target: str | os.PathLike[str],
    *,
    data_format: str | None = None,
    split: str = "train",
    fields: Collection[str] | None = None,
    episode_fields: Collection[str] | None = None,
    unknown_final_observation: Literal["error", "drop_last_transition"] = "error",
    metadata: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Writes the episodes of an RLDS dataset as a Minari dataset.

    `rlds.formats.minari.export.MinariExport` says what becomes of them.

    Args:
      dataset: The directory of a dataset that TFDS has written, or a builder.
      target: Where to: the identifier of a dataset (a `str` such as "mujoco/hopper/medium-v0"),
        below the directory that Minari looks in; or a path (a `pathlib.Path`, or a `str` that is
        absolute or begins with "./") that ends with `<name>-v<number>`.
      data_format: "hdf5", "arrow" or "parquet"; if None, what it was, or "hdf5".
      split: The split, or a part of it, such as "train[:10]".
      fields: The fields of a step to write, as for `rlds.tfds.load`.
      episode_fields: The fields of an episode to write, likewise.
      unknown_final_observation: What to do with an episode whose final observation is not known,
        which Minari cannot hold: an error, or to leave out its last transition.
      metadata: More fields for metadata.json, or others, such as `author` or `env_spec`.

    Returns:
      The directory of the Minari dataset.

    Raises:
      FileExistsError: There is something at this place. It is left as it is.
      ImportError: The library for the format is not installed.
      ValueError: Minari cannot hold the dataset, or an argument is wrong. Nothing is left behind.
    """
    builder = dataset
    if isinstance(builder, tfds.core.DatasetBuilder):
        builder = builder.data_path
    source = FolderSource(builder, decode_images=False)
    writer = MinariExport(
        Episodes(source, split, format="tfds"),
        data_format=data_format,
        fields=None if fields is None else list(fields),
        episode_fields=None if episode_fields is None else list(episode_fields),
        unknown_final_observation=unknown_final_observation,
        metadata=metadata,
    )
    directory, writer.dataset_id = new_dataset(target, writer.recorded_id)
    write_export(writer, directory, verify=False, allow_loss=True)
    return directory
