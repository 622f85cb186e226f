"""Windows of RL Unplugged: products whose records are pieces of episodes.

They were made for training: windows of a few rows, in random order, and nothing says which follow
each other. An episode of the dataset is one window. `n` transitions have `n + 1` steps, the last of
which is the observation after the last transition; it is known.

    is_window                    of the episode, true: `is_first` and `is_last` are the ends of the
                                 window, not of what was played
    step_type                    of the step, if there is one: 0 where an episode began, 2 where it
                                 ended, so these tell
    is_terminal, truncated       whether the last transition has the discount 0, or not
    complete                     whether all of an episode is in the window, from a step of type 0
                                 to one of type 2; almost never
    placeholders                 of the episode: what the last row has of action, reward, discount

The loaders that RL Unplugged was published with take the reward and the discount of a row for those
that its action brought. So the rows are in the order SAR, and there is no other.
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
    id_fields: ClassVar[Sequence[str]] = ()  # All windows of an episode have the same.
    unused_reward_is_zero = False
    are_pieces = True
