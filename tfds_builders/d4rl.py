"""The builders of D4RL and d4rl-pybullet."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.download.checksums import load_url_infos

from rlds.formats.d4rl.families import DATASETS
from rlds.formats.d4rl.pybullet import D4rlPybulletSource
from rlds.formats.d4rl.source import D4rlSource
from tfds_builders.builder import SourceBuilder

__all__ = ["D4rlConfig", "RldsD4rl", "RldsD4rlPybullet"]


@dataclasses.dataclass
class D4rlConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """Which dataset is converted.

    Attributes:
      dataset: Its name in D4RL; None to take it from the name of the file.
    """

    dataset: str | None = None


class RldsD4rl(SourceBuilder):
    """Datasets of D4RL, with all that their files have.

    There is a config for each dataset, of its name, such as `hopper-medium-v2`. The default,
    `file`, is for any other file of this layout; it needs a `path`. Give the options of
    `D4rlSource`, such as the rule for the boundary of episodes, as arguments, and a config with a
    name of your own:
    `RldsD4rl(path=..., config=D4rlConfig(name="windows"), boundary="length", length=500)`.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    BUILDER_CONFIGS: ClassVar[list[D4rlConfig]] = [
        D4rlConfig(name="file", description="A file that is given by its path."),
        *(
            D4rlConfig(
                name=dataset.name, description=f"{dataset.name} of D4RL.", dataset=dataset.name
            )
            for dataset in DATASETS.values()
        ),
    ]
    url_infos = load_url_infos(epath.Path(__file__).parent / "d4rl_checksums.tsv")
    source_class = D4rlSource

    def url(self) -> str | None:
        """Returns where the file was published."""
        dataset = DATASETS.get(self.builder_config.dataset)
        return None if dataset is None else dataset.url


class RldsD4rlPybullet(SourceBuilder):
    """Datasets of d4rl-pybullet, from a file that is given by its path."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar[dict[str, str]] = {"1.0.0": "Initial release."}
    source_class = D4rlPybulletSource
