"""Labels of episodes follow them to a dataset of TFDS, in which they have another order."""

from __future__ import annotations

from collections.abc import Iterator

from etils import epath

from rlds.sources.episode_fields import as_converted
from rlds.sources.episodes import Episodes
from rlds.sources.label_carrying import carry
from rlds.sources.label_rows import has_labels
from rlds.sources.opening import open as open_episodes
from rlds.sources.source import AnySource

__all__ = ["carry_labels"]


def carry_labels(source: AnySource, place: epath.Path, at: epath.Path) -> None:
    """Gives a new dataset the labels of its source, see `carry`; reads nothing if there are none.

    Args:
      source: What was converted.
      place: Where the dataset is.
      at: Where it gets to be.
    """
    if has_labels(source):
        episodes = Episodes(source, "+".join(source.splits))
        made = open_episodes(place, "all", format="tfds")
        carry(episodes, _pairs(episodes, made), made, place, at)


def _pairs(episodes: Episodes, made: Episodes) -> Iterator[tuple[int, int]]:
    rows = episodes.table().arrow(["split", "key"]).to_pylist()
    numbers = {(row["split"], row["key"]): number for number, row in enumerate(rows)}
    for number in range(len(made)):
        yield number, numbers[made.place(number)[0], as_converted(made.peek(number)).key]
