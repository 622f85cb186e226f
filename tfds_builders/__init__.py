"""Builders that turn recorded or downloaded data into RLDS datasets, written by TFDS.

Importing this package registers its builders with TensorFlow Datasets, for `tfds.load`.
TensorFlow is loaded when something is converted, not before.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rlds_ecosystem import missing_tensorflow as _missing_tensorflow

if _error := _missing_tensorflow(__name__):
    raise _error

from rlds.alignment import append_row, from_rsa, from_sars
from rlds.sources.atari_dqn_replay.source import AtariDqnReplaySource
from rlds.sources.creator import RldsCreatorSource
from rlds.sources.d4rl.pybullet import D4rlPybulletSource
from rlds.sources.d4rl.source import D4rlSource
from rlds.sources.folder import FolderSource
from rlds.sources.logs.recorded_logs import find_logs
from rlds.sources.minari.source import MinariSource
from rlds.sources.rlu.atari import RluAtariSource
from rlds.sources.rlu.atari_transitions import RluAtariTransitionsSource
from rlds.sources.rlu.bsuite import RluBsuiteSource
from rlds.sources.rlu.control_suite import RluControlSuiteSource
from rlds.sources.rlu.control_suite_windows import RluControlSuiteWindowsSource
from rlds.sources.rlu.dmlab import RluDmlabSource
from rlds.sources.rlu.locomotion import RluLocomotionSource
from rlds.sources.rlu.locomotion_windows import RluLocomotionWindowsSource
from rlds.sources.rlu.rwrl import RluRwrlSource
from rlds.sources.source import (
    DamagedEpisode,
    Origin,
    RandomAccessSource,
    Source,
    SourceEpisode,
    SourceError,
)
from rlds_ecosystem import package_attribute as _package_attribute
from tfds_builders.atari_dqn_replay import RldsAtariDqnReplay
from tfds_builders.builder import SourceBuilder, convert
from tfds_builders.creator import RldsCreator
from tfds_builders.d4rl import RldsD4rl, RldsD4rlPybullet
from tfds_builders.envlogger_builder import EnvLoggerBuilder, build_from_logs
from tfds_builders.envlogger_source import EnvLoggerSource
from tfds_builders.folder import RldsFolder
from tfds_builders.minari import RldsMinari
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

if TYPE_CHECKING:
    from tfds_builders.export.d4rl import export_d4rl, export_d4rl_pybullet
    from tfds_builders.export.minari import export_minari
    from tfds_builders.statistics import dataset_statistics
    from tfds_builders.streaming import episodes_from_logs, episodes_from_source

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
    "episodes_from_source",
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
    "episodes_from_source": "streaming",
    "export_d4rl": "export.d4rl",
    "export_d4rl_pybullet": "export.d4rl",
    "export_minari": "export.minari",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        return _package_attribute(__name__, name)
    return getattr(importlib.import_module(f"tfds_builders.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
