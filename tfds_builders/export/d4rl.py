"""Makes the HDF5 files of D4RL and d4rl-pybullet again, from the datasets that they became."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from rlds.formats.d4rl.export import D4rlExport, D4rlPybulletExport, description_of
from rlds.formats.d4rl.hdf5 import decode_value
from rlds.formats.tfds.source import FolderSource
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import write_export

__all__ = ["export_d4rl", "export_d4rl_pybullet", "read_constants"]


def export_d4rl(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder, path: str | os.PathLike[str]
) -> None:
    """Makes the file of D4RL again that a dataset was converted from.

    The episodes may be in any order. The file appears under its name when it is complete. What is
    not in memory is kept beside it in the meantime: as much as all arrays have without compression.

    Args:
      dataset: The directory of the dataset, or a builder that reads it.
      path: The file to make, on a local disk.

    Raises:
      FileExistsError: There is a file of this name.
      ValueError: The dataset was not converted by `D4rlSource`, or does not have all episodes.
    """
    _export(D4rlExport, dataset, path)


def export_d4rl_pybullet(
    dataset: str | os.PathLike[str] | tfds.core.DatasetBuilder, path: str | os.PathLike[str]
) -> None:
    """Makes the file of d4rl-pybullet again that a dataset was converted from.

    Args:
      dataset: As for `export_d4rl`.
      path: As for `export_d4rl`.

    Raises:
      FileExistsError: There is a file of this name.
      ValueError: The dataset was not converted by `D4rlPybulletSource`, or does not have all
        episodes.
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
    builder = _builder(dataset)
    constants = description_of(builder.info.metadata or {}, str(builder.data_path))["constants"]
    return {
        name: decode_value(facts) for name, facts in constants.items() if facts["shape"] is not None
    }


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
