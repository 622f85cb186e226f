"""RL Unplugged, DeepMind Control Suite: windows of two rows (`dm_control_suite`).

For the fields, see `rlds.formats.rlu.control_suite`; for windows and the order of their rows, see
`rlds.formats.rlu.windows`.
"""

from __future__ import annotations

from rlds.formats.rlu.control_suite import RluControlSuiteSource
from rlds.formats.rlu.windows import RluWindowsSource

__all__ = ["RluControlSuiteWindowsSource"]


class RluControlSuiteWindowsSource(RluWindowsSource, RluControlSuiteSource):
    """Control Suite windows of RL Unplugged. `RluSource` describes the arguments."""

    _DESCRIPTION = "Windows of episodes of the DeepMind Control Suite of RL Unplugged."
    builder_name = "rlds_rlu_control_suite_windows"
