"""Feeds for the loaders of other frameworks: an item of theirs is a batch of a feed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlds.feeds.workers import Batches, Blocks, NumberedBatches, Numbers
from rlds_ecosystem import import_extra

if TYPE_CHECKING:
    from rlds.feeds.samples import Batch

__all__ = ["grain_dataset", "torch_loader"]


def torch_loader(
    feed: NumberedBatches,
    *,
    start: int | Mapping[str, Any] = 0,
    num_workers: int = 0,
    **arguments: Any,
) -> Any:
    """Returns a `torch.utils.data.DataLoader`; see `Feed.torch`."""
    import_extra("torch")
    first = feed.start_of(start)
    data = import_extra("torch.utils.data")
    for name in ("batch_size", "batch_sampler", "sampler", "shuffle", "drop_last", "dataset"):
        if name in arguments:
            raise TypeError(f"{name}: the feed decides this; pass it to Feed instead")
    arguments = {"batch_size": None, "num_workers": num_workers, **arguments}
    if num_workers:
        blocks = Blocks(feed, arguments.pop("collate_fn", None) or data.default_convert)
        numbers = Numbers(first, feed.num_batches, blocks.max_batches, num_workers)
        arguments |= {"dataset": blocks, "sampler": numbers}
    else:
        numbers = Numbers(first, feed.num_batches)

        class Iterated(data.IterableDataset):  # type: ignore[misc,name-defined]
            """Goes through the feed in this process; a thread makes the next batches."""

            def __iter__(self) -> Iterator[Batch]:
                return feed.iterate(first)

            def __len__(self) -> int:
                return len(numbers)

        arguments |= {"dataset": Iterated()}
    next_batch = [first]

    class Loader(data.DataLoader):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[Any]:
            next_batch[0] = first
            return Batches(super().__iter__(), next_batch, num_workers)

        def __len__(self) -> int:
            return len(numbers)

        def state_dict(self) -> dict[str, Any]:
            """Returns the state to resume after the batches so far."""
            return feed.state_dict(next_batch[0])

    return Loader(**arguments)


class _Items:
    """The batches of a feed, by their numbers."""

    def __init__(self, feed: NumberedBatches) -> None:
        self._feed = feed

    def __getitem__(self, batch: int) -> Batch:
        return self._feed[batch]

    def __len__(self) -> int:
        number = self._feed.num_batches
        # Others take it as the bound of an index, and never go through it.
        return sys.maxsize if number is None else number

    def __repr__(self) -> str:
        return repr(self._feed)


def grain_dataset(feed: NumberedBatches) -> Any:
    """Returns a `grain.MapDataset`; see `Feed.grain`."""
    return import_extra("grain").MapDataset.source(_Items(feed))
