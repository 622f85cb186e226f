"""Detection of the products of RL Unplugged, by a field and the completeness of episodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from rlds.formats.rlu.records import FIRST, LAST, STEP_TYPE, Values

__all__ = ["builder_for"]

# The number of records to examine: a single one may be damaged, or an episode of one transition.
_NUM_EXAMINED_RECORDS = 3


# A field of the product (a prefix of fields, if it ends with a separator), the builder for whole
# episodes, and the builder for pieces of episodes.
_PRODUCT_SIGNS = (
    ("observations", "rlds_rlu_atari", None),
    ("o_tp1", None, "rlds_rlu_atari_transitions"),
    ("observations_pixels", "rlds_rlu_dmlab", None),
    ("observation:", "rlds_rlu_rwrl", None),
    ("observation", None, "rlds_rlu_bsuite"),
    ("observation/walker/", "rlds_rlu_locomotion", "rlds_rlu_locomotion_windows"),
    ("observation/", "rlds_rlu_control_suite", "rlds_rlu_control_suite_windows"),
)


def builder_for(records: Iterable[Mapping[str, Values]]) -> str | None:
    """Returns the name of the builder for records; None if undecided.

    Args:
      records: The fields of each record. Reading stops after the first few.

    >>> import numpy as np
    >>> middle = {"observation/position": np.zeros(4), "step_type": np.array([1.0, 1.0])}
    >>> builder_for([middle])
    'rlds_rlu_control_suite_windows'
    """
    records = itertools.islice(records, _NUM_EXAMINED_RECORDS)
    first = next(records, {})
    builders = (
        (episodes, pieces) for mark, episodes, pieces in _PRODUCT_SIGNS if _has_field(first, mark)
    )
    episodes, pieces = next(builders, (None, None))
    if episodes is None or pieces is None:
        return episodes or pieces
    balance = sum(map(_completeness, itertools.chain([first], records)))
    if not balance:
        return None
    return episodes if balance > 0 else pieces


def _has_field(values: Mapping[str, Values], mark: str) -> bool:
    if mark[-1].isalnum():
        return mark in values
    return any(name.startswith(mark) for name in values)


def _completeness(values: Mapping[str, Values]) -> int:
    """Returns 1 for a whole episode, -1 for a piece of an episode, and 0 if undecided.

    A record that begins an episode, but does not end it, may be either.
    """
    step_types = values.get(STEP_TYPE, [])
    if isinstance(step_types, list) or not len(step_types):  # A list holds strings.
        return 0
    if step_types[0] != FIRST:
        return -1
    return int(step_types[-1] == LAST)
