"""Adapters of feeds to PyTorch and Grain loaders, whose items are batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlds.feeds.workers import BatchIterator, BlockDataset, BlockSampler, NumberedBatches
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
    first_batch = feed.start_of(start)
    data = import_extra("torch.utils.data")
    for name in ("batch_size", "batch_sampler", "sampler", "shuffle", "drop_last", "dataset"):
        if name in arguments:
            raise TypeError(f"{name}: the feed decides this; pass it to Feed instead")
    arguments = {"batch_size": None, "num_workers": num_workers, **arguments}
    if num_workers:
        blocks = BlockDataset(feed, arguments.pop("collate_fn", None) or data.default_convert)
        sampler = BlockSampler(first_batch, feed.num_batches, blocks.max_batches, num_workers)
        arguments |= {"dataset": blocks, "sampler": sampler}
    else:
        sampler = BlockSampler(first_batch, feed.num_batches)

        class FeedDataset(data.IterableDataset):  # type: ignore[misc,name-defined]
            """The batches of the feed, computed by a thread of this process."""

            def __iter__(self) -> Iterator[Batch]:
                return feed.iterate(first_batch)

            def __len__(self) -> int:
                return len(sampler)

        arguments |= {"dataset": FeedDataset()}
    next_batch = [first_batch]

    class FeedLoader(data.DataLoader):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[Any]:
            next_batch[0] = first_batch
            return BatchIterator(super().__iter__(), next_batch, num_workers)

        def __len__(self) -> int:
            return len(sampler)

        def state_dict(self) -> dict[str, Any]:
            """Returns the state to resume after the batches so far."""
            return feed.state_dict(next_batch[0])

    return FeedLoader(**arguments)


class _FeedSource:
    """A Grain data source of the batches of a feed."""

    def __init__(self, feed: NumberedBatches) -> None:
        self._feed = feed

    def __getitem__(self, batch: int) -> Batch:
        return self._feed[batch]

    def __len__(self) -> int:
        num_batches = self._feed.num_batches
        # Grain uses the length only as the bound of an index.
        return sys.maxsize if num_batches is None else num_batches

    def __repr__(self) -> str:
        return repr(self._feed)


def grain_dataset(feed: NumberedBatches) -> Any:
    """Returns a `grain.MapDataset`; see `Feed.grain`."""
    return import_extra("grain").MapDataset.source(_FeedSource(feed))
