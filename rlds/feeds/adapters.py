"""Feeds for the loaders of other frameworks: an item of theirs is a batch of a feed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlds_ecosystem import import_extra

if TYPE_CHECKING:
    from rlds.feeds.feed import Feed
    from rlds.feeds.samples import Batch

__all__ = ["grain_dataset", "torch_loader"]


def torch_loader(
    feed: Feed, *, start: int | Mapping[str, Any] = 0, num_workers: int = 0, **arguments: Any
) -> Any:
    """Returns a `torch.utils.data.DataLoader`; see `Feed.torch`."""
    import_extra("torch")
    first = feed.start_of(start)
    data = import_extra("torch.utils.data")
    for name in ("batch_size", "batch_sampler", "sampler", "shuffle", "drop_last", "dataset"):
        if name in arguments:
            raise TypeError(f"{name}: the feed has decided about it; give it to Feed")
    arguments = {"batch_size": None, "num_workers": num_workers, **arguments}
    numbers = _Numbers(first, feed.num_batches)
    if num_workers:
        # A worker makes one batch at a time, so that it is the loader that says which.
        return data.DataLoader(_Items(feed), sampler=numbers, **arguments)

    class Iterated(data.IterableDataset):  # type: ignore[misc,name-defined]
        """Goes through the feed in this process; a thread makes the next batches."""

        def __iter__(self) -> Iterator[Batch]:
            return feed.iterate(first)

        def __len__(self) -> int:
            return len(numbers)

    return data.DataLoader(Iterated(), **arguments)


class _Items:
    """The batches of a feed, by their numbers."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __getitem__(self, batch: int) -> Batch:
        return self._feed[batch]

    def __len__(self) -> int:
        number = self._feed.num_batches
        # Others take it as the bound of an index, and never go through it.
        return sys.maxsize if number is None else number

    def __repr__(self) -> str:
        return repr(self._feed)


class _Numbers:
    """The numbers of batches from one on."""

    def __init__(self, first: int, end: int | None) -> None:
        self._numbers = range(first, sys.maxsize if end is None else end)
        self._is_endless = end is None

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        if self._is_endless:
            raise TypeError("a feed without end has no length")
        return len(self._numbers)


def grain_dataset(feed: Feed) -> Any:
    """Returns a `grain.MapDataset`; see `Feed.grain`."""
    return import_extra("grain").MapDataset.source(_Items(feed))
