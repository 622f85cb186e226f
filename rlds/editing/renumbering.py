"""Tables of texts of several datasets as one, and the numbers that their columns hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.editing.changes import Change
from rlds.sources.source import SourceEpisode
from rlds.sources.text_tables import join_tables, with_new_numbers
from rlds_ecosystem.model.fields import Field

__all__ = ["Renumbered", "with_joined_tables"]


class Renumbered(Change):
    """Columns of numbers of texts have those that the texts have in a joined table.

    Args:
      fields: The fields before it.
      new: The new numbers by the old ones, for the path of each column.

    Attributes:
      is_copied: Whether episodes are copied nevertheless: the export renumbers them itself.
    """

    is_copied = False

    def __init__(self, fields: Mapping[str, Any], new: Mapping[str, Mapping[int, int]]) -> None:
        self.fields, self._new = fields, new

    @override
    def values(self, values: dict[str, Any], row: int, episode: SourceEpisode) -> dict[str, Any]:
        try:
            return with_new_numbers(values, self._new)
        except ValueError as error:
            raise ValueError(f"merge: episode {episode.key!r}, {error}") from error

    @override
    def touches(self, rows: np.ndarray) -> np.ndarray:
        return np.full(len(rows), not self.is_copied)


def with_joined_tables(
    metadata: Mapping[str, Any],
    datasets: Sequence[Mapping[str, Any]],
    fields: Sequence[Mapping[str, Any]],
    after: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Renumbered | None]]:
    """Returns the metadata of a merged dataset with the tables of all, and changes of numbers.

    Args:
      metadata: The metadata of the merged dataset.
      datasets: The metadata of each dataset.
      fields: The fields of each.
      after: The fields of the merged dataset.

    Raises:
      ValueError: A dataset has numbers of a table, and not the table.
    """
    tables = {p: it.table for p, it in after.items() if isinstance(it, Field) and it.table}
    columns = [{p: name for p, name in tables.items() if p in found} for found in fields]
    joined, numbers = join_tables(metadata, datasets, columns)
    return joined, [Renumbered(after, new) if new else None for new in numbers]
