"""Writes files of D4RL and d4rl-pybullet from datasets of TFDS."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from rlds.formats.d4rl.export import D4rlExport, D4rlPybulletExport
from rlds.formats.d4rl.rows import METADATA_KEY
from rlds.formats.tfds.source import FolderSource
from rlds.raw_files.hdf5_values import decode_value
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import write_export

__all__ = ["export_d4rl", "export_d4rl_pybullet", "read_constants"]


def export_d4rl(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder, path: str | os.PathLike[str]
) -> None:
    """Writes a dataset as a file of D4RL; see `rlds.formats.d4rl.export.D4rlExport`.

    Args:
      dataset: The directory of the dataset, or a builder that reads it.
      path: The file to make, on a local disk.

    Raises:
      FileExistsError: There is a file of this name.
      ValueError: D4RL cannot hold the episodes.
    """
    _export(D4rlExport, dataset, path)


def export_d4rl_pybullet(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder, path: str | os.PathLike[str]
) -> None:
    """Writes a dataset as a file of d4rl-pybullet; see `export_d4rl`.

    Args:
      dataset: As for `export_d4rl`.
      path: As for `export_d4rl`.

    Raises:
      FileExistsError: There is a file of this name.
      ValueError: d4rl-pybullet cannot hold the episodes.
    """
    _export(D4rlPybulletExport, dataset, path)


def read_constants(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder,
) -> dict[str, np.ndarray | bytes]:
    """Returns what the file of a dataset has beside rows, such as the weights of the policy.

    Args:
      dataset: As for `export_d4rl`.

    Returns:
      The values by their paths in the file, such as `metadata/policy/fc0/weight`.

    Raises:
      ValueError: The dataset was converted from something else.
    """
    metadata = _builder(dataset).info.metadata or {}
    if METADATA_KEY not in metadata:
        raise ValueError(f"the dataset is not of a file of D4RL; its metadata has {[*metadata]}")
    constants = metadata[METADATA_KEY]["constants"]
    return {name: decode_value(value) for name, value in constants.items()}


def _export(
    written_by: type[D4rlExport],
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder,
    path: str | os.PathLike[str],
) -> None:
    source = FolderSource(_builder(dataset).data_path, decode_images=False)
    write_export(written_by(Episodes(source, "all", format="tfds")), path, verify=False)


def _builder(dataset: Any) -> tfds.core.DatasetBuilder:
    if isinstance(dataset, tfds.core.DatasetBuilder):
        return dataset
    return tfds.builder_from_directory(dataset)
