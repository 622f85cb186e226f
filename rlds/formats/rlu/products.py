"""How to recognize the products of RL Unplugged: by a field, and by whether episodes are whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rlds.formats.rlu.records import Values
from rlds.formats.rlu.rows import FIRST, LAST, STEP_TYPE

__all__ = ["builder_for"]

# How many records are looked at: a few, as one may be damaged, or be an episode of one transition.
_NUM_EXAMINED = 3


class _Product(NamedTuple):
    """Products whose records have the same fields.

    Attributes:
      mark: A field that no other records have; if it ends with a separator, all that begin so.
      whole: The builder for whole episodes.
      pieces: The builder for pieces of episodes.
    """

    mark: str
    whole: str | None = None
    pieces: str | None = None


_PRODUCTS = (
    _Product("observations", whole="rlds_rlu_atari"),
    _Product("o_tp1", pieces="rlds_rlu_atari_transitions"),
    _Product("observations_pixels", whole="rlds_rlu_dmlab"),
    _Product("observation:", whole="rlds_rlu_rwrl"),
    _Product("observation", pieces="rlds_rlu_bsuite"),
    _Product("observation/walker/", "rlds_rlu_locomotion", "rlds_rlu_locomotion_windows"),
    _Product("observation/", "rlds_rlu_control_suite", "rlds_rlu_control_suite_windows"),
)


def builder_for(records: Iterable[Mapping[str, Values]]) -> str | None:
    """Returns the name of the builder for records, None if they do not tell.

    Args:
      records: The fields of each. No more of them are read than it takes.

    >>> import numpy as np
    >>> middle = {"observation/position": np.zeros(4), "step_type": np.array([1.0, 1.0])}
    >>> builder_for([middle])
    'rlds_rlu_control_suite_windows'
    """
    records = itertools.islice(records, _NUM_EXAMINED)
    first = next(records, {})
    product = next((product for product in _PRODUCTS if _has(first, product.mark)), None)
    if product is None:
        return None
    if None in (product.whole, product.pieces):
        return product.whole or product.pieces
    more_are_whole = sum(map(_is_whole, itertools.chain([first], records)))
    if not more_are_whole:
        return None
    return product.whole if more_are_whole > 0 else product.pieces


def _has(values: Mapping[str, Values], mark: str) -> bool:
    if mark[-1].isalnum():
        return mark in values
    return any(name.startswith(mark) for name in values)


def _is_whole(values: Mapping[str, Values]) -> int:
    """1 for a record that is an episode from its beginning to its end, -1 for another, 0 for maybe.

    That is one that was cut after its beginning: whole episodes may be, and pieces are.
    """
    step_types = values.get(STEP_TYPE, [])
    if isinstance(step_types, list) or not len(step_types):  # A list holds strings.
        return 0
    if step_types[0] != FIRST:
        return -1
    return int(step_types[-1] == LAST)
