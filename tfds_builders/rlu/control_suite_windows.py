"""RL Unplugged, DeepMind Control Suite: windows of two rows (`dm_control_suite`).

The fields are those of the whole episodes, see `tfds_builders.rlu.control_suite`; for what is said
of windows, and for the order of their rows, see `tfds_builders.rlu.windows`.
"""

from __future__ import annotations

from typing import ClassVar

from tfds_builders.rlu.builder import RluBuilder, RluConfig, train_sets
from tfds_builders.rlu.control_suite import TASKS, RluControlSuiteSource
from tfds_builders.rlu.windows import RluWindowsSource

__all__ = ["RldsRluControlSuiteWindows", "RluControlSuiteWindowsSource"]


class RluControlSuiteWindowsSource(RluWindowsSource, RluControlSuiteSource):
    """Windows of the Control Suite; see the module, and `RluSource` for the arguments."""

    description = "Windows of episodes of the DeepMind Control Suite of RL Unplugged."
    builder_name = "rlds_rlu_control_suite_windows"


class RldsRluControlSuiteWindows(RluBuilder):
    """Windows of the Control Suite; see `tfds_builders.rlu.control_suite_windows`."""

    BUILDER_CONFIGS: ClassVar[list[RluConfig]] = train_sets(
        {task: f"dm_control_suite/{task}" for task in TASKS}
    )
    source_class = RluControlSuiteWindowsSource
