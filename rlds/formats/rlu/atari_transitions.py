"""RL Unplugged, Atari: transitions in random order (`atari`).

    observation/frame_0..3       `o_t` and `o_tp1`, stacks of four frames: PNG files, unchanged, in
                                 the order of the record
    action, reward, discount     `a_t`, `r_t`, `d_t`
    placeholders/action          `a_tp1`, the action after the transition
    recorded_episode_id          `episode_id`, with all 64 bits for an unsigned number
    episode_return               of the episode of the transition; the sum of clipped rewards

and all other fields by their names.

An episode of the dataset is one transition with two steps: the second step is the observation after
it. For the fields of such pieces (`is_window`), see `rlds.formats.rlu.windows`. The position of a
transition in its episode is not stored. Whole episodes are another product, see
`rlds.formats.rlu.atari`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

import rlds
from rlds.formats.rlu.records import FieldError, Path, Values
from rlds.formats.rlu.source import RECORDED_ID
from rlds.formats.rlu.windows import RluWindowsSource
from rlds.raw_files.image_files import is_png

__all__ = ["NUM_FRAMES", "RluAtariTransitionsSource"]

NUM_FRAMES = 4
NUM_FILES = 100

# Names of the fields after concatenating the two rows of a record.
_ACTIONS_FIELD = "a_t, a_tp1"
_FRAME_FIELDS = tuple(f"o_t[{index}], o_tp1[{index}]" for index in range(NUM_FRAMES))

# The dtype of the values of each field (None for strings), and their count in a record.
_EXPECTED_FIELDS: dict[str, tuple[np.dtype | None, int]] = {
    **dict.fromkeys(("o_t", "o_tp1"), (None, NUM_FRAMES)),
    **dict.fromkeys(("a_t", "a_tp1", "episode_id"), (np.dtype(np.int64), 1)),
    **dict.fromkeys(("r_t", "d_t"), (np.dtype(np.float32), 1)),
}


class RluAtariTransitionsSource(RluWindowsSource):
    """Atari transitions of RL Unplugged. `RluSource` describes the arguments."""

    _DESCRIPTION = (
        "Transitions of Atari games of RL Unplugged, in random order, from the replay data of "
        "agents (DQN) in training."
    )
    builder_name = "rlds_rlu_atari_transitions"
    row_field = _ACTIONS_FIELD
    field_paths: ClassVar[Mapping[str, Path]] = {
        _ACTIONS_FIELD: (rlds.ACTION,),
        "r_t": (rlds.REWARD,),
        "d_t": (rlds.DISCOUNT,),
        "episode_id": (RECORDED_ID,),
        **{name: (rlds.OBSERVATION, f"frame_{index}") for index, name in enumerate(_FRAME_FIELDS)},
    }

    def prepare(self, values: dict[str, Values]) -> dict[str, Values]:
        """Returns the fields with both rows concatenated: actions, and frames by position."""
        fields = dict(values)
        for name, (dtype, count) in _EXPECTED_FIELDS.items():
            _check(name, values, dtype, count)
        observation, next_observation = fields.pop("o_t"), fields.pop("o_tp1")
        for name, *frames in zip(_FRAME_FIELDS, observation, next_observation, strict=True):
            fields[name] = frames
        fields[_ACTIONS_FIELD] = np.concatenate([fields.pop("a_t"), fields.pop("a_tp1")])
        fields["episode_id"] = np.asarray(values["episode_id"]).view(np.uint64)
        return fields


def _check(name: str, values: Mapping[str, Values], dtype: np.dtype | None, count: int) -> None:
    if name not in values:
        raise FieldError(name, f"no such field; the record has {sorted(values)}")
    column = values[name]
    actual_dtype = column.dtype if isinstance(column, np.ndarray) else None
    if actual_dtype != dtype or len(column) != count:
        problem = f"{len(column)} {_describe(actual_dtype)}, expected {count} {_describe(dtype)}"
        raise FieldError(name, problem)
    if isinstance(column, np.ndarray):
        return
    for index, frame in enumerate(column):
        if not is_png(frame):
            raise FieldError(
                name, f"string {index} is not a PNG image: it begins with {frame[:8]!r}"
            )


def _describe(dtype: np.dtype | None) -> str:
    return "strings" if dtype is None else f"{dtype} numbers"
