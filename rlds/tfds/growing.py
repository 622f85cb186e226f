"""Growing TFDS datasets: descriptions of datasets for `tfds_files.growing`."""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.rlds.rlds_base import DatasetConfig, build_info

from rlds_ecosystem.files import stores
from tfds_files.growing import Description, GrowingDataset

__all__ = ["growing_dataset", "new_info", "recover"]


def new_info(
    ds_config: DatasetConfig,
    directory: epath.PathLike,
    *,
    version: str,
    file_format: str = "tfrecord",
    metadata: Mapping[str, Any] | None = None,
) -> tfds.core.DatasetInfo:
    """Returns the `DatasetInfo` of a new dataset in a directory."""
    identity = tfds.core.dataset_info.DatasetIdentity(
        name=ds_config.name,
        version=tfds.core.Version(version),
        data_dir=os.fspath(directory),
        module_name="",
    )
    info = build_info(ds_config, identity, metadata)
    info.set_file_format(file_format)
    return info


def growing_dataset(info: tfds.core.DatasetInfo) -> GrowingDataset:
    """Returns the dataset as a `GrowingDataset`, which can add shards."""
    description = Description(
        name=info.name,
        version=str(info.version),
        file_format=info.file_format.file_suffix,
        features=info.features.to_json(),
        metadata=info.metadata,
        write=info.write_to_directory,
    )
    return GrowingDataset(info.data_dir, description)


def recover(info: tfds.core.DatasetInfo) -> None:
    """Adds the shards of killed writers, and updates the splits of the info.

    Raises:
      StorageError: A file cannot be read or written.
    """
    growing_dataset(info).recover()
    path = tfds.core.dataset_info.dataset_info_path(stores.as_path(info.data_dir))
    proto = tfds.core.dataset_info.read_from_json(path)
    template = tfds.core.ShardedFileTemplate(
        data_dir=info.data_dir,
        dataset_name=info.name,
        filetype_suffix=proto.file_format or info.file_format.file_suffix,
    )
    splits = tfds.core.splits.SplitDict.from_proto(proto.splits, template)
    # Callers keep references to the split objects.
    if _read_lengths(splits) != _read_lengths(info.splits):
        info.set_splits(splits)


def _read_lengths(splits: tfds.core.splits.SplitDict) -> dict[str, list[int]]:
    return {split.name: split.shard_lengths for split in splits.values()}
