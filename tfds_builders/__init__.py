"""Builders that turn recorded or downloaded data into RLDS datasets, written by TFDS.

Importing this package registers its builders with TensorFlow Datasets, for `tfds.load`.
TensorFlow is loaded when something is converted, not before.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rlds.alignment import append_row, from_rsa, from_sars
from rlds_ecosystem import package_attribute as _package_attribute
from tfds_builders.atari_dqn_replay.source import AtariDqnReplaySource, RldsAtariDqnReplay
from tfds_builders.builder import SourceBuilder, convert
from tfds_builders.d4rl.pybullet import D4rlPybulletSource, RldsD4rlPybullet
from tfds_builders.d4rl.source import D4rlSource, RldsD4rl
from tfds_builders.envlogger_builder import EnvLoggerBuilder, build_from_logs
from tfds_builders.envlogger_source import EnvLoggerSource
from tfds_builders.minari.source import MinariSource, RldsMinari
from tfds_builders.published_logs import RldsEnvlogger, RldsPickPlaceCan, RldsSacLocomotion
from tfds_builders.recorded_logs import find_logs
from tfds_builders.rlds_creator import RldsCreator, RldsCreatorSource
from tfds_builders.rlds_folder import FolderSource, RldsFolder
from tfds_builders.rlu.atari import RldsRluAtari, RluAtariSource
from tfds_builders.rlu.atari_transitions import (
    RldsRluAtariTransitions,
    RluAtariTransitionsSource,
)
from tfds_builders.rlu.bsuite import RldsRluBsuite, RluBsuiteSource
from tfds_builders.rlu.control_suite import RldsRluControlSuite, RluControlSuiteSource
from tfds_builders.rlu.control_suite_windows import (
    RldsRluControlSuiteWindows,
    RluControlSuiteWindowsSource,
)
from tfds_builders.rlu.dmlab import RldsRluDmlab, RluDmlabSource
from tfds_builders.rlu.locomotion import RldsRluLocomotion, RluLocomotionSource
from tfds_builders.rlu.locomotion_windows import (
    RldsRluLocomotionWindows,
    RluLocomotionWindowsSource,
)
from tfds_builders.rlu.rwrl import RldsRluRwrl, RluRwrlSource
from tfds_builders.source import (
    DamagedEpisode,
    Origin,
    RandomAccessSource,
    Source,
    SourceEpisode,
    SourceError,
)

if TYPE_CHECKING:
    from tfds_builders.d4rl.export import export_d4rl, export_d4rl_pybullet
    from tfds_builders.minari.export import export_minari
    from tfds_builders.statistics import dataset_statistics
    from tfds_builders.streaming import episodes_from_logs

__all__ = [
    "AtariDqnReplaySource",
    "D4rlPybulletSource",
    "D4rlSource",
    "DamagedEpisode",
    "EnvLoggerBuilder",
    "EnvLoggerSource",
    "FolderSource",
    "MinariSource",
    "Origin",
    "RandomAccessSource",
    "RldsAtariDqnReplay",
    "RldsCreator",
    "RldsCreatorSource",
    "RldsD4rl",
    "RldsD4rlPybullet",
    "RldsEnvlogger",
    "RldsFolder",
    "RldsMinari",
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
    "RldsSacLocomotion",
    "RluAtariSource",
    "RluAtariTransitionsSource",
    "RluBsuiteSource",
    "RluControlSuiteSource",
    "RluControlSuiteWindowsSource",
    "RluDmlabSource",
    "RluLocomotionSource",
    "RluLocomotionWindowsSource",
    "RluRwrlSource",
    "Source",
    "SourceBuilder",
    "SourceEpisode",
    "SourceError",
    "append_row",
    "build_from_logs",
    "convert",
    "dataset_statistics",
    "episodes_from_logs",
    "export_d4rl",
    "export_d4rl_pybullet",
    "export_minari",
    "find_logs",
    "from_rsa",
    "from_sars",
]

__version__: str

# What needs TensorFlow is imported when it is asked for.
_MODULES = {
    "dataset_statistics": "statistics",
    "episodes_from_logs": "streaming",
    "export_d4rl": "d4rl.export",
    "export_d4rl_pybullet": "d4rl.export",
    "export_minari": "minari.export",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        return _package_attribute(__name__, name)
    return getattr(importlib.import_module(f"tfds_builders.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
