"""Builders that turn recorded or downloaded data into RLDS datasets, written by TFDS.

Importing this package registers its builders with TensorFlow Datasets, for `tfds.load`.
TensorFlow is loaded when something is converted, not before.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

from rlds.alignment import append_row, from_rsa, from_sars
from rlds.formats.agibot.source import AgiBotSource
from rlds.formats.aloha.source import AlohaSource
from rlds.formats.atari_dqn_replay.source import AtariDqnReplaySource
from rlds.formats.bags.source import McapSource, RosbagSource
from rlds.formats.calvin.source import CalvinSource
from rlds.formats.creator.source import RldsCreatorSource
from rlds.formats.d3rlpy.source import D3rlpySource
from rlds.formats.d4rl.pybullet import D4rlPybulletSource
from rlds.formats.d4rl.source import D4rlSource
from rlds.formats.droid.source import DroidSource
from rlds.formats.imitation.source import ImitationSource
from rlds.formats.lerobot.source import LeRobotSource
from rlds.formats.logs.recorded_logs import find_logs
from rlds.formats.maniskill.source import ManiSkillSource
from rlds.formats.minari.source import MinariSource
from rlds.formats.ogbench.source import OGBenchSource
from rlds.formats.rlu.atari import RluAtariSource
from rlds.formats.rlu.atari_transitions import RluAtariTransitionsSource
from rlds.formats.rlu.bsuite import RluBsuiteSource
from rlds.formats.rlu.control_suite import RluControlSuiteSource
from rlds.formats.rlu.control_suite_windows import RluControlSuiteWindowsSource
from rlds.formats.rlu.dmlab import RluDmlabSource
from rlds.formats.rlu.locomotion import RluLocomotionSource
from rlds.formats.rlu.locomotion_windows import RluLocomotionWindowsSource
from rlds.formats.rlu.rwrl import RluRwrlSource
from rlds.formats.robomimic.source import RobomimicSource
from rlds.formats.robomind.source import RoboMindSource
from rlds.formats.sb3.source import Sb3Source
from rlds.formats.tfds.source import FolderSource
from rlds.formats.webdataset.source import WebdatasetSource
from rlds.formats.zarr_buffers.source import ZarrSource
from rlds.sources.source import (
    DamagedEpisode,
    Origin,
    RandomAccessSource,
    Source,
    SourceEpisode,
    SourceError,
)
from rlds_ecosystem.lazy import lazy_package as _lazy_package
from tfds_builders.agibot import RldsAgibot
from tfds_builders.aloha import RldsAloha
from tfds_builders.atari_dqn_replay import RldsAtariDqnReplay
from tfds_builders.bags import RldsMcap, RldsRosbag
from tfds_builders.builder import SourceBuilder, convert
from tfds_builders.calvin import RldsCalvin
from tfds_builders.creator import RldsCreator
from tfds_builders.d3rlpy import RldsD3rlpy
from tfds_builders.d4rl import RldsD4rl, RldsD4rlPybullet
from tfds_builders.droid import RldsDroid
from tfds_builders.envlogger_builder import EnvLoggerBuilder, build_from_logs
from tfds_builders.envlogger_source import EnvLoggerSource
from tfds_builders.folder import RldsFolder
from tfds_builders.imitation import RldsImitation
from tfds_builders.lerobot import RldsLerobot
from tfds_builders.maniskill import RldsManiskill
from tfds_builders.minari import RldsMinari
from tfds_builders.ogbench import RldsOgbench
from tfds_builders.published_logs import RldsEnvlogger, RldsPickPlaceCan, RldsSacLocomotion
from tfds_builders.rlu import (
    RldsRluAtari,
    RldsRluAtariTransitions,
    RldsRluBsuite,
    RldsRluControlSuite,
    RldsRluControlSuiteWindows,
    RldsRluDmlab,
    RldsRluLocomotion,
    RldsRluLocomotionWindows,
    RldsRluRwrl,
)
from tfds_builders.robomimic import RldsRobomimic
from tfds_builders.robomind import RldsRobomind
from tfds_builders.sb3 import RldsSb3
from tfds_builders.webdataset import RldsWebdataset
from tfds_builders.zarr import RldsZarr

if TYPE_CHECKING:
    from tfds_builders.export.d4rl import export_d4rl, export_d4rl_pybullet
    from tfds_builders.export.minari import export_minari
    from tfds_builders.statistics import dataset_statistics
    from tfds_builders.streaming import episodes_from_logs, episodes_from_source

__all__ = [
    "AgiBotSource",
    "AlohaSource",
    "AtariDqnReplaySource",
    "CalvinSource",
    "D3rlpySource",
    "D4rlPybulletSource",
    "D4rlSource",
    "DamagedEpisode",
    "DroidSource",
    "EnvLoggerBuilder",
    "EnvLoggerSource",
    "FolderSource",
    "ImitationSource",
    "LeRobotSource",
    "ManiSkillSource",
    "McapSource",
    "MinariSource",
    "OGBenchSource",
    "Origin",
    "RandomAccessSource",
    "RldsAgibot",
    "RldsAloha",
    "RldsAtariDqnReplay",
    "RldsCalvin",
    "RldsCreator",
    "RldsCreatorSource",
    "RldsD3rlpy",
    "RldsD4rl",
    "RldsD4rlPybullet",
    "RldsDroid",
    "RldsEnvlogger",
    "RldsFolder",
    "RldsImitation",
    "RldsLerobot",
    "RldsManiskill",
    "RldsMcap",
    "RldsMinari",
    "RldsOgbench",
    "RldsPickPlaceCan",
    "RldsRluAtari",
    "RldsRluAtariTransitions",
    "RldsRluBsuite",
    "RldsRluControlSuite",
    "RldsRluControlSuiteWindows",
    "RldsRluDmlab",
    "RldsRluLocomotion",
    "RldsRluLocomotionWindows",
    "RldsRluRwrl",
    "RldsRobomimic",
    "RldsRobomind",
    "RldsRosbag",
    "RldsSacLocomotion",
    "RldsSb3",
    "RldsWebdataset",
    "RldsZarr",
    "RluAtariSource",
    "RluAtariTransitionsSource",
    "RluBsuiteSource",
    "RluControlSuiteSource",
    "RluControlSuiteWindowsSource",
    "RluDmlabSource",
    "RluLocomotionSource",
    "RluLocomotionWindowsSource",
    "RluRwrlSource",
    "RoboMindSource",
    "RobomimicSource",
    "RosbagSource",
    "Sb3Source",
    "Source",
    "SourceBuilder",
    "SourceEpisode",
    "SourceError",
    "WebdatasetSource",
    "ZarrSource",
    "append_row",
    "build_from_logs",
    "convert",
    "dataset_statistics",
    "episodes_from_logs",
    "episodes_from_source",
    "export_d4rl",
    "export_d4rl_pybullet",
    "export_minari",
    "find_logs",
    "from_rsa",
    "from_sars",
]

__version__: str

# What needs TensorFlow is imported when it is used.
_HOMES = {
    "tfds_builders.export.d4rl": ["export_d4rl", "export_d4rl_pybullet"],
    "tfds_builders.export.minari": ["export_minari"],
    "tfds_builders.statistics": ["dataset_statistics"],
    "tfds_builders.streaming": ["episodes_from_logs", "episodes_from_source"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
