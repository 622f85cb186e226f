"""Windows of RL Unplugged: products whose records are pieces of episodes.

Windows are for training: a few rows each, in random order, without the position in the episode. An
episode of the dataset is one window. `n` transitions have `n + 1` steps; the last step is the final
observation.

    is_window                    of the episode, true: `is_first` and `is_last` mark the ends of
                                 the window, not of the original episode
    step_type                    of the step, if stored: 0 at the begin of the original episode, 2
                                 at its end
    is_terminal, truncated       from the discount of the last transition: terminal if it is 0
    complete                     whether the window is a whole episode, from a step of type 0 to a
                                 step of type 2; almost never
    placeholders                 of the episode: action, reward and discount of the last row

In the published loaders of RL Unplugged, the reward and the discount of a row follow its action.
The rows are therefore always in the order SAR.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rlds.formats.rlu.records import STEP_TYPE, Alignment
from rlds.formats.rlu.source import RluSource

__all__ = ["RluWindowsSource"]


class RluWindowsSource(RluSource):
    """Partial episodes of RL Unplugged. `RluSource` describes the arguments."""

    alignments: ClassVar[Sequence[Alignment]] = ("sar",)
    row_field = STEP_TYPE
    id_fields: ClassVar[Sequence[str]] = ()  # All windows of an episode share an id.
    unused_reward_is_zero = False
    are_pieces = True
