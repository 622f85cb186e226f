"""The contenders of `bench_feeds` that are `rlds.feeds`; see `feed_peers` for what they yield."""

from collections.abc import Iterator
from typing import Any

from feed_data import GAMMA, HISTORY, HORIZON, Data
from feed_peers import batch_size

Batches = Iterator[Any]

FIELDS = ("observation", "action", "reward")


def samples(data: Data, form: str = "tfrecord") -> Any:
    """The samples that are asked for."""
    import rlds.feeds

    if data.has_images:
        table = rlds.feeds.open(data.path(form), "train", fields=FIELDS)
        return table.windows(history=HISTORY, horizon=HORIZON, only_real=True)
    options: dict[str, Any] = {"split": "train"}
    if form == "log":  # It is read anew in each epoch, as one that does not fit into memory.
        options = {"cache_bytes": 8 << 20}
    table = rlds.feeds.open(data.path(form), fields=[*FIELDS, "discount"], **options)
    return table.transitions(gamma=GAMMA)


def feed(data: Data, form: str = "tfrecord", *, size: int | None = None, **options: Any) -> Any:
    """A feed without end."""
    import rlds.feeds

    return rlds.feeds.Feed(samples(data, form), size or batch_size(data), **options)


def in_process(data: Data, form: str = "tfrecord", **options: Any) -> Batches:
    """A feed, iterated: a thread makes the next batches."""
    return iter(feed(data, form, **options))


def in_loader(data: Data, workers: int) -> Batches:
    """A feed in a DataLoader, of which an element is a batch."""
    return iter(feed(data, shuffle="global").torch(num_workers=workers))


def in_grain(data: Data) -> Batches:
    """A feed as a source of Grain, of which an element is a batch."""
    import grain.python as grain

    batches = grain.MapDataset.source(feed(data, shuffle="global", epochs=10_000).grain())
    return iter(batches.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)))


def in_order(data: Data) -> Batches:
    """Whole episodes in their order, all fields."""
    import rlds.feeds

    steps = rlds.feeds.open(data.path("tfrecord"), "train").steps()
    return iter(rlds.feeds.Feed(steps, data.steps, shuffle=None))
