"""The builders of RL Unplugged: a config for each published dataset, and one for any files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import ClassVar

import tensorflow_datasets as tfds

from tfds_builders.builder import SourceBuilder
from tfds_builders.rlu.rows import Alignment
from tfds_builders.rlu.source import RluSource

__all__ = ["BUCKET", "RluBuilder", "RluConfig", "published", "train_sets"]

# Where all is published, for everybody to read.
BUCKET = "gs://rl_unplugged"


@dataclasses.dataclass
class RluConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """Which files are converted, and how.

    Attributes:
      directory: Their folder in the bucket that RL Unplugged is published in.
      prefix: What their names begin with, up to `-00000-of-...`; None for all files.
      num_files: How many were published.
      alignment: The order of their rows; None for that of the product.
    """

    directory: str = ""
    prefix: str | None = None
    num_files: int | None = None
    alignment: Alignment | None = None


class RluBuilder(SourceBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder for a product of RL Unplugged.

    There is a config for each published dataset. The default, `files`, is for any other files of
    the product, and needs a `path`. Another order of rows is asked for with a config of one's own,
    such as `config=RluConfig(name="shifted", alignment="rsa")`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class: ClassVar[type[RluSource]]

    def raw_name(self) -> str:
        """Returns the folder of the files below the `manual_dir`, as in the bucket."""
        return str(self.builder_config.directory)

    def url(self) -> str | None:
        """Returns where the files were published."""
        directory = self.builder_config.directory
        return f"{BUCKET}/{directory}" if directory else None


def published(configs: Iterable[RluConfig]) -> list[RluConfig]:
    """Returns the configs of a builder: these, and the default."""
    made = [RluConfig(name="files", description="Files that are given by their path.")]
    for config in configs:
        name = f"{config.prefix}-00000-of-{config.num_files:05d}"
        config.description = f"The files {BUCKET}/{config.directory}/{name} and following."
        made.append(config)
    return made


def train_sets(directories: Mapping[str, str]) -> list[RluConfig]:
    """Returns the configs of a builder for sets of 100 files, `train-00000-of-00100` and following.

    Args:
      directories: Their folders in the bucket, by the names of the configs.
    """
    return published(
        RluConfig(name=name, directory=directory, prefix="train", num_files=100)
        for name, directory in directories.items()
    )
