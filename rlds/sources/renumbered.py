"""Numbers of texts as those of the joined table of several datasets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.sources.episode_fields import as_converted
from rlds.sources.source import Source
from rlds.sources.text_tables import with_new_numbers
from rlds.sources.view import Of, View

__all__ = ["Renumbered"]


class Renumbered(View):
    """Episodes whose numbers of texts are those that the texts have in a joined table.

    Args:
      base: The episodes before.
      new: The new numbers by the old ones, for the path of each column.

    Attributes:
      is_copied: Whether episodes are copied nevertheless: the export renumbers them itself.
    """

    keeps_values = True
    is_copied = False

    def __init__(self, base: Source, new: Mapping[str, Mapping[int, int]]) -> None:
        super().__init__(base)
        self._new = new

    @override
    def make(
        self, values: dict[str, Any], of: Of, fields: Collection[str] | None
    ) -> dict[str, Any]:
        try:
            return with_new_numbers(values, self._new)
        except ValueError as error:
            if of.episode is None:
                raise
            key = as_converted(of.episode).key
            raise ValueError(f"merge: episode {key!r}, {error}") from error

    @override
    def touches(self, split: str, episodes: np.ndarray) -> np.ndarray:
        return np.full(len(episodes), not self.is_copied)
