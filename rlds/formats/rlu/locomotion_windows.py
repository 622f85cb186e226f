"""RL Unplugged, DeepMind Locomotion: windows of 2 and of up to 40 rows (`dm_locomotion`).

For the fields, see `rlds.formats.rlu.locomotion`; for windows and the order of their rows, see
`rlds.formats.rlu.windows`. Long windows overlap; windows at the ends of episodes may be shorter.
"""

from __future__ import annotations

from rlds.formats.rlu.locomotion import TASKS, RluLocomotionSource
from rlds.formats.rlu.windows import RluWindowsSource

__all__ = ["WITH_LONG_WINDOWS", "RluLocomotionWindowsSource"]

# The tasks that need memory; the other tasks have windows of two rows only.
WITH_LONG_WINDOWS = ("humanoid_walls", "rodent_mazes", "rodent_two_touch")
SETS = [*((task, "seq2") for task in TASKS), *((task, "seq40") for task in WITH_LONG_WINDOWS)]


class RluLocomotionWindowsSource(RluWindowsSource, RluLocomotionSource):
    """Locomotion windows of RL Unplugged. `RluLocomotionSource` describes the arguments."""

    _DESCRIPTION = "Windows of episodes of DeepMind Locomotion of RL Unplugged."
    builder_name = "rlds_rlu_locomotion_windows"
