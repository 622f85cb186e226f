"""Batches for training in PyTorch, JAX and NumPy, from data in any format, without TensorFlow.

    table = rlds.feeds.open("~/tensorflow_datasets/my_robot/1.0.0", "train")
    samples = table.transitions(n=3, gamma=0.99)
    feed = rlds.feeds.Feed(samples, batch_size=256, seed=0)

    feed[1000]             # Batch 1000, at once.
    for batch in feed: ...
    loader = feed.torch()  # A DataLoader.

A feed is a sequence of batches. The samples of batch k depend only on the data, the arguments of
the feed, and k.

    k --- order: the indices of its samples; planning chooses the shuffle --> indices (feed)
    indices --- samples: transitions, windows, ... --> episodes and steps
    episodes and steps --- table: the fields to read --> a storage:
        mapped    rows copied out of memory-mapped TFRecord files
        storage   whole episodes of any format, with a cache of recent episodes
        views     rows of views (selected, joined, renamed, ...), computed from other storages
    rows --- images: files to pixels --> columns --- transform --> batch k (feed)

`mixture` draws samples from several datasets, and `priorities` by weights that change in training.
`adapters` passes batches to the loaders of PyTorch (by shared memory, `workers`) and Grain.
`policy_samples`, `octo`, `openvla` and `openpi` have the samples of robot policies.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
