"""Some of the episodes of a source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from rlds.sources.source import About, Source
from rlds.sources.view import Chosen, View

__all__ = ["SelectedSource"]


class SelectedSource(View):
    """Some of the episodes of another source, in any order.

    Args:
      source: The other source.
      chosen: For each split to have, the numbers of its episodes.
      condition: The condition that holds for them, if they were chosen by one.
      of: The split of the other source that the numbers are of; the one of the same name if None.

    Attributes:
      chosen: See above.
      condition: See above.
      of: See above.
    """

    shares_table = True

    def __init__(
        self,
        source: Source,
        chosen: Mapping[str, Sequence[int] | np.ndarray],
        condition: str | None = None,
        of: str | None = None,
    ) -> None:
        super().__init__(source)
        self.condition, self.of = condition, of
        self.chosen = {split: np.asarray(rows, np.int64) for split, rows in chosen.items()}

    @property
    @override
    def splits(self) -> Sequence[str]:  # type: ignore[override]
        return list(self.chosen)

    @property
    @override
    def about(self) -> About:
        about = super().about
        rows = {split: rows.tobytes() for split, rows in self.chosen.items()}
        digests = {split: hashlib.sha256(content).hexdigest() for split, content in rows.items()}
        return about.replace(options={**about.options, "episodes": digests})

    @override
    def num_episodes(self, split: str) -> int:
        return len(self.chosen[split])

    @override
    def where(self, split: str, episodes: np.ndarray) -> Sequence[Chosen]:
        return [Chosen(slice(None), self.bases[0], self.of or split, self.chosen[split][episodes])]
