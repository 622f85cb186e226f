"""The builders of RL Unplugged: a config for each published dataset, and one for any files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import ClassVar

import tensorflow_datasets as tfds

from rlds.formats.rlu import (
    atari,
    atari_transitions,
    bsuite,
    control_suite,
    control_suite_windows,
    dmlab,
    locomotion,
    locomotion_windows,
    rwrl,
)
from rlds.formats.rlu.source import RluSource
from tfds_builders.builder import SourceBuilder

__all__ = [
    "BUCKET",
    "RldsRluAtari",
    "RldsRluAtariTransitions",
    "RldsRluBsuite",
    "RldsRluControlSuite",
    "RldsRluControlSuiteWindows",
    "RldsRluDmlab",
    "RldsRluLocomotion",
    "RldsRluLocomotionWindows",
    "RldsRluRwrl",
    "RluBuilder",
    "RluConfig",
]

# Where all is published, for everybody to read.
BUCKET = "gs://rl_unplugged"


@dataclasses.dataclass
class RluConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """Which files are converted.

    Attributes:
      directory: Their folder in the bucket that RL Unplugged is published in.
      prefix: What their names begin with, up to `-00000-of-...`; None for all files.
      num_files: How many were published.
    """

    directory: str = ""
    prefix: str | None = None
    num_files: int | None = None


class RluBuilder(SourceBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder for a product of RL Unplugged.

    There is a config for each published dataset. The default, `files`, is for any other files of
    the product, and needs a `path`. Give another order of rows as an argument, and a config
    with a name of your own: `config=RluConfig(name="shifted"), alignment="rsa"`.
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


class RldsRluAtari(RluBuilder):
    """Episodes of Atari games of RL Unplugged; see `rlds.formats.rlu.atari` and `RluBuilder`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = published(
        RluConfig(
            name=f"{game}_run_{run}",
            directory=f"atari_episodes_ordered/{game}",
            prefix=f"run_{run}",
            num_files=atari.NUM_FILES[game],
        )
        for game in atari.GAMES
        for run in range(1, 6)
    )
    source_class = atari.RluAtariSource


class RldsRluAtariTransitions(RluBuilder):
    """Transitions of Atari games; see `rlds.formats.rlu.atari_transitions`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = published(
        RluConfig(
            name=f"{game}_run_{run}",
            directory=f"atari/{game}",
            prefix=f"run_{run}",
            num_files=atari_transitions.NUM_FILES,
        )
        for game in atari.GAMES
        for run in range(1, 6)
    )
    source_class = atari_transitions.RluAtariTransitionsSource


class RldsRluBsuite(RluBuilder):
    """Windows of bsuite of RL Unplugged; see `rlds.formats.rlu.bsuite`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = published(
        RluConfig(
            name=f"{level}_noise_{noise}_run_{run}_{subset}",
            directory=f"bsuite/{level}/0_{noise}",
            prefix=f"{run}_{subset}",
            num_files=1,
        )
        for level in bsuite.LEVELS
        for noise in bsuite.NOISES
        for run in range(bsuite.NUM_RUNS)
        for subset in bsuite.SUBSETS
    )
    source_class = bsuite.RluBsuiteSource


class RldsRluControlSuite(RluBuilder):
    """Episodes of the Control Suite of RL Unplugged; see `rlds.formats.rlu.control_suite`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = train_sets(
        {task: f"dm_control_suite_episodes/{task}" for task in control_suite.TASKS}
    )
    source_class = control_suite.RluControlSuiteSource


class RldsRluControlSuiteWindows(RluBuilder):
    """Windows of the Control Suite; see `rlds.formats.rlu.control_suite_windows`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = train_sets(
        {task: f"dm_control_suite/{task}" for task in control_suite.TASKS}
    )
    source_class = control_suite_windows.RluControlSuiteWindowsSource


class RldsRluDmlab(RluBuilder):
    """Episodes of DeepMind Lab of RL Unplugged; see `rlds.formats.rlu.dmlab` and `RluBuilder`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = published(
        RluConfig(
            name=f"{task}_{run}",
            directory=f"dmlab/{task}/{run}",
            prefix="tfrecord",
            num_files=dmlab.NUM_FILES,
        )
        for task, runs in dmlab.RUNS.items()
        for run in runs
    )
    source_class = dmlab.RluDmlabSource


class RldsRluLocomotion(RluBuilder):
    """Episodes of DeepMind Locomotion of RL Unplugged; see `rlds.formats.rlu.locomotion`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = train_sets(
        {task: f"dm_locomotion_episodes/{task}" for task in locomotion.TASKS}
    )
    source_class = locomotion.RluLocomotionSource


class RldsRluLocomotionWindows(RluBuilder):
    """Windows of Locomotion; see `rlds.formats.rlu.locomotion_windows`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = train_sets(
        {
            f"{task}_{length}": f"dm_locomotion/{task}/{length}"
            for task, length in locomotion_windows.SETS
        }
    )
    source_class = locomotion_windows.RluLocomotionWindowsSource


class RldsRluRwrl(RluBuilder):
    """Episodes of Real-World RL of RL Unplugged; see `rlds.formats.rlu.rwrl` and `RluBuilder`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = published(
        RluConfig(
            name=f"{task.replace('/', '_')}_combined_challenge_{challenge}_{percent}_percent",
            directory=f"rwrl/combined_challenge_{challenge}/{task}/{percent}_percent",
            prefix="episodes.tfrecord",
            num_files=num_files,
        )
        for (challenge, task), numbers in rwrl.NUM_FILES.items()
        for percent, num_files in zip(rwrl.PERCENT, numbers, strict=True)
    )
    source_class = rwrl.RluRwrlSource
