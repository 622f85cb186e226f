"""Tables of texts of several datasets as one, and the numbers that their columns hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from rlds.editing.changes import Change, fields_of
from rlds.sources.episode_fields import as_converted
from rlds.sources.source import Source
from rlds.sources.text_tables import join_tables, with_new_numbers
from rlds.sources.view import Of
from rlds_ecosystem.fields import Field

__all__ = ["Renumbered", "with_joined_tables"]


class Renumbered(Change):
    """Columns of numbers of texts have those that the texts have in a joined table.

    Args:
      base: The episodes before.
      new: The new numbers by the old ones, for the path of each column.

    Attributes:
      is_copied: Whether episodes are copied nevertheless: the export renumbers them itself.
    """

    is_copied = False

    def __init__(self, base: Source, new: Mapping[str, Mapping[int, int]]) -> None:
        super().__init__(base, fields_of(base))
        self._new = new

    @override
    def make(
        self, values: dict[str, Any], of: Of, fields: Collection[str] | None
    ) -> dict[str, Any]:
        try:
            return with_new_numbers(values, self._new)
        except ValueError as error:
            where = "" if of.episode is None else as_converted(of.episode).key
            raise ValueError(f"merge: episode {where!r}, {error}") from error

    @override
    def touches(self, split: str, episodes: np.ndarray) -> np.ndarray:
        return np.full(len(episodes), not self.is_copied)


def with_joined_tables(
    metadata: Mapping[str, Any],
    datasets: Sequence[Mapping[str, Any]],
    fields: Sequence[Mapping[str, Any]],
    after: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Mapping[str, Mapping[int, int]]]]:
    """Returns the metadata of a merged dataset with the tables of all, and the new numbers of each.

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
    return join_tables(metadata, datasets, columns)
