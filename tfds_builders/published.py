"""Builders with a config for each published dataset, which is downloaded or read from its bucket.

The default config, `files` or `file`, is for raw data that you give by its path.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import ClassVar

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.download.checksums import load_url_infos

from rlds.formats.atari_dqn_replay import source as atari_dqn_replay
from rlds.formats.d4rl.families import DATASETS
from rlds.formats.d4rl.source import D4rlSource
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
from tfds_builders.builder import SourceBuilder
from tfds_builders.formats import RldsEnvlogger

_TABLES_FOLDER = epath.Path(__file__).parent


# --- D4RL.


@dataclasses.dataclass
class D4rlConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """The config of a dataset of D4RL.

    Attributes:
      dataset: The name of the dataset in D4RL; None to derive the name from the file name.
    """

    dataset: str | None = None


class RldsD4rl(SourceBuilder):
    """Datasets of D4RL, with all fields of their files.

    There is a config for each dataset, of its name, such as `hopper-medium-v2`. The default,
    `file`, is for any other file of this layout; it needs a `path`. Give the options of
    `D4rlSource`, such as the rule for the boundary of episodes, as arguments, and a config with a
    name of your own:
    `RldsD4rl(path=..., config=D4rlConfig(name="windows"), boundary="length", length=500)`.
    """

    BUILDER_CONFIGS: ClassVar[list[D4rlConfig]] = [
        D4rlConfig(name="file", description="A file at the `path` argument."),
        *(
            D4rlConfig(
                name=dataset.name, description=f"{dataset.name} of D4RL.", dataset=dataset.name
            )
            for dataset in DATASETS.values()
        ),
    ]
    url_infos = load_url_infos(_TABLES_FOLDER / "d4rl_checksums.tsv")
    source_class = D4rlSource

    def url(self) -> str | None:
        """Returns the URL of the published file."""
        dataset = DATASETS.get(self.builder_config.dataset)
        return None if dataset is None else dataset.url


# --- Logs of EnvLogger.


class _PublishedLogs(RldsEnvlogger, skip_registration=True):  # type: ignore[call-arg]
    """Published archives of logs, one for each config."""

    ARCHIVES: ClassVar[dict[str, str]]
    url_infos = load_url_infos(_TABLES_FOLDER / "published_logs.tsv")

    def url(self) -> str | None:
        """Returns the URL of the published archive."""
        archive = self.ARCHIVES[self.builder_config.name]
        return f"https://storage.googleapis.com/rlds_external_data_release/{archive}.tar.gz"


class RldsPickPlaceCan(_PublishedLogs):
    """A robot arm puts a can into a bin (robosuite), driven by people and by an agent (SAC).

    The datasets of the RLDS paper: 50 episodes of people, recorded with RLDS Creator, with and
    without images, and 200 of an agent, of 400 steps each. The annotation `tag:placed` marks when
    the can is at its target.
    """

    ARCHIVES: ClassVar[dict[str, str]] = {
        "human_dc29b40a": "rlds_robosuite_panda_pick_place_can_human_state_only_dc29b40a",
        "human_images_dc29b40a": "rlds_robosuite_panda_pick_place_can_human_dc29b40a",
        "synthetic_stochastic_sac_afe13968": (
            "rlds_robosuite_panda_pick_place_can_synthetic_stochastic_sac_afe13968"
        ),
    }
    BUILDER_CONFIGS: ClassVar[list[tfds.core.BuilderConfig]] = [
        tfds.core.BuilderConfig(name=name, description=f"The archive {archive}.")
        for name, archive in ARCHIVES.items()
    ]


class RldsSacLocomotion(_PublishedLogs):
    """Roll-outs of SAC agents in MuJoCo's locomotion tasks (Orsini et al., 2021)."""

    ARCHIVES: ClassVar[dict[str, str]] = {
        name: name
        for name in (
            "ant_sac_1M_single_policy_stochastic",
            "halfcheetah_sac_1M_single_policy_stochastic",
            "hopper_sac_1M_single_policy_stochastic",
            "humanoid_sac_15M_single_policy_stochastic",
            "walker2d_sac_1M_single_policy_stochastic",
        )
    }
    BUILDER_CONFIGS: ClassVar[list[tfds.core.BuilderConfig]] = [
        tfds.core.BuilderConfig(name=name, description=f"The archive {name}.") for name in ARCHIVES
    ]


# --- Public buckets of Google Cloud Storage.


@dataclasses.dataclass
class BucketConfig(tfds.core.BuilderConfig):  # type: ignore[misc]
    """The config of a dataset in a bucket: the folder of its files.

    Attributes:
      directory: The folder in the bucket.
    """

    directory: str = ""


class _BucketBuilder(SourceBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder for files in a folder of `manual_dir`, or else of a bucket.

    Attributes:
      BUCKET: The bucket.
    """

    BUCKET: ClassVar[str]

    def raw_name(self) -> str:
        """Returns the folder of the files below the `manual_dir`, as in the bucket."""
        return str(self.builder_config.directory)

    def url(self) -> str | None:
        """Returns the URL of the published files."""
        directory = self.builder_config.directory
        return f"{self.BUCKET}/{directory}" if directory else None


class RldsAtariDqnReplay(_BucketBuilder):
    """Episodes of Google's Atari DQN Replay; see `rlds.formats.atari_dqn_replay.source`.

    There is a config for each run, such as `Pong_run_1`. The default, `files`, is for any other
    folders, and needs a `path`.
    """

    BUCKET = atari_dqn_replay.BUCKET
    BUILDER_CONFIGS: ClassVar[list[BucketConfig]] = [
        BucketConfig(name="files", description="Runs at the `path` argument."),
        *(
            BucketConfig(
                name=f"{game}_run_{run}",
                description=f"Run {run} of {game}, from {atari_dqn_replay.BUCKET}/{game}/{run}/"
                f"{atari_dqn_replay.REPLAY_LOGS}.",
                directory=f"{game}/{run}",
            )
            for game in atari_dqn_replay.GAMES
            for run in range(1, 6)
        ),
    ]
    source_class = atari_dqn_replay.AtariDqnReplaySource


# --- RL Unplugged.

RLU_BUCKET = "gs://rl_unplugged"


@dataclasses.dataclass
class RluConfig(BucketConfig):
    """The config of a dataset of RL Unplugged: folder, and prefix and number of its files.

    Attributes:
      directory: The folder in the bucket.
      prefix: The prefix of the names of the files, up to `-00000-of-...`; None for all files.
      num_files: The number of published files.
    """

    prefix: str | None = None
    num_files: int | None = None


class _RluBuilder(_BucketBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A builder for a product of RL Unplugged.

    There is a config for each published dataset. The default, `files`, is for any other files of
    the product, and needs a `path`. For another order of rows, pass it with a config of
    another name: `config=RluConfig(name="shifted"), alignment="rsa"`.
    """

    BUCKET = RLU_BUCKET


def _create_published(rows: Iterable[tuple[str, str, str, int]]) -> list[RluConfig]:
    """Returns the configs of a builder: the default, and one for each row.

    Args:
      rows: For each config its name, its folder in the bucket, and the prefix and number of its
        files.
    """
    configs = [RluConfig(name="files", description="Files at the `path` argument.")]
    for name, directory, prefix, num_files in rows:
        files = f"{RLU_BUCKET}/{directory}/{prefix}-00000-of-{num_files:05d}"
        config = RluConfig(name=name, description=f"The files {files} and following.")
        config.directory, config.prefix, config.num_files = directory, prefix, num_files
        configs.append(config)
    return configs


def _train_sets(directories: Mapping[str, str]) -> list[RluConfig]:
    """Returns the configs of a builder for sets of 100 files, `train-00000-of-00100` and following.

    Args:
      directories: The folders in the bucket, by the names of the configs.
    """
    return _create_published((name, folder, "train", 100) for name, folder in directories.items())


class RldsRluAtari(_RluBuilder):
    """Episodes of Atari games of RL Unplugged; see `rlds.formats.rlu.atari`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _create_published(
        (f"{game}_run_{run}", f"atari_episodes_ordered/{game}", f"run_{run}", atari.NUM_FILES[game])
        for game in atari.GAMES
        for run in range(1, 6)
    )
    source_class = atari.RluAtariSource


class RldsRluAtariTransitions(_RluBuilder):
    """Transitions of Atari games; see `rlds.formats.rlu.atari_transitions`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _create_published(
        (f"{game}_run_{run}", f"atari/{game}", f"run_{run}", atari_transitions.NUM_FILES)
        for game in atari.GAMES
        for run in range(1, 6)
    )
    source_class = atari_transitions.RluAtariTransitionsSource


class RldsRluBsuite(_RluBuilder):
    """Windows of bsuite of RL Unplugged; see `rlds.formats.rlu.bsuite`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _create_published(
        (
            f"{level}_noise_{noise}_run_{run}_{subset}",
            f"bsuite/{level}/0_{noise}",
            f"{run}_{subset}",
            1,
        )
        for level in bsuite.LEVELS
        for noise in bsuite.NOISES
        for run in range(bsuite.NUM_RUNS)
        for subset in bsuite.SUBSETS
    )
    source_class = bsuite.RluBsuiteSource


class RldsRluControlSuite(_RluBuilder):
    """Episodes of the Control Suite of RL Unplugged; see `rlds.formats.rlu.control_suite`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _train_sets(
        {task: f"dm_control_suite_episodes/{task}" for task in control_suite.TASKS}
    )
    source_class = control_suite.RluControlSuiteSource


class RldsRluControlSuiteWindows(_RluBuilder):
    """Windows of the Control Suite; see `rlds.formats.rlu.control_suite_windows`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _train_sets(
        {task: f"dm_control_suite/{task}" for task in control_suite.TASKS}
    )
    source_class = control_suite_windows.RluControlSuiteWindowsSource


class RldsRluDmlab(_RluBuilder):
    """Episodes of DeepMind Lab of RL Unplugged; see `rlds.formats.rlu.dmlab`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _create_published(
        (f"{task}_{run}", f"dmlab/{task}/{run}", "tfrecord", dmlab.NUM_FILES)
        for task, runs in dmlab.RUNS.items()
        for run in runs
    )
    source_class = dmlab.RluDmlabSource


class RldsRluLocomotion(_RluBuilder):
    """Episodes of DeepMind Locomotion of RL Unplugged; see `rlds.formats.rlu.locomotion`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _train_sets(
        {task: f"dm_locomotion_episodes/{task}" for task in locomotion.TASKS}
    )
    source_class = locomotion.RluLocomotionSource


class RldsRluLocomotionWindows(_RluBuilder):
    """Windows of Locomotion; see `rlds.formats.rlu.locomotion_windows`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _train_sets(
        {
            f"{task}_{length}": f"dm_locomotion/{task}/{length}"
            for task, length in locomotion_windows.SETS
        }
    )
    source_class = locomotion_windows.RluLocomotionWindowsSource


class RldsRluRwrl(_RluBuilder):
    """Episodes of Real-World RL of RL Unplugged; see `rlds.formats.rlu.rwrl`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = _create_published(
        (
            f"{task.replace('/', '_')}_combined_challenge_{challenge}_{percent}_percent",
            f"rwrl/combined_challenge_{challenge}/{task}/{percent}_percent",
            "episodes.tfrecord",
            num_files,
        )
        for (challenge, task), file_counts in rwrl.NUM_FILES.items()
        for percent, num_files in zip(rwrl.PERCENT, file_counts, strict=True)
    )
    source_class = rwrl.RluRwrlSource


__all__ = [name for name in dir() if getattr(globals()[name], "__module__", "") == __name__]
__all__ = [name for name in __all__ if not name.startswith("_")]
