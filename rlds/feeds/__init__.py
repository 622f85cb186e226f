"""Batches for training in PyTorch, JAX and NumPy, from data in any format, without TensorFlow.

    table = rlds.feeds.open("~/tensorflow_datasets/my_robot/1.0.0", "train")
    samples = table.transitions(n=3, gamma=0.99)
    feed = rlds.feeds.Feed(samples, batch_size=256, seed=0)

    feed[1000]             # Batch 1000, at once.
    for batch in feed: ...
    loader = feed.torch()  # A DataLoader.

A feed is a sequence of batches: which samples batch k has depends on the data, the seed and k, and
on nothing else.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from rlds.feeds.feed import Feed, FeedIterator
    from rlds.feeds.materialising import materialise
    from rlds.feeds.mixture import Mixture
    from rlds.feeds.order import SegmentShuffle
    from rlds.feeds.permutation import RowRandom
    from rlds.feeds.roles import Roles
    from rlds.feeds.samples import Samples
    from rlds.feeds.table import Table, open

__all__ = [
    "Feed",
    "FeedIterator",
    "Mixture",
    "Roles",
    "RowRandom",
    "Samples",
    "SegmentShuffle",
    "Table",
    "materialise",
    "open",
]

# Its names are loaded when they are used: some of its modules are of use alone.
_HOMES = {
    "rlds.feeds.feed": ["Feed", "FeedIterator"],
    "rlds.feeds.mixture": ["Mixture"],
    "rlds.feeds.materialising": ["materialise"],
    "rlds.feeds.order": ["SegmentShuffle"],
    "rlds.feeds.permutation": ["RowRandom"],
    "rlds.feeds.roles": ["Roles"],
    "rlds.feeds.samples": ["Samples"],
    "rlds.feeds.table": ["Table", "open"],
}

if not TYPE_CHECKING:  # A type checker would believe that every name is there.
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
