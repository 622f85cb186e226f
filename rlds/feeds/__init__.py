"""Batches for training in PyTorch, JAX and NumPy, from data in any format, without TensorFlow.

    table = rlds.feeds.open("~/tensorflow_datasets/my_robot/1.0.0", "train")
    samples = table.transitions(n=3, gamma=0.99)
    feed = rlds.feeds.Feed(samples, batch_size=256, seed=0)

    feed[1000]             # Batch 1000, at once.
    for batch in feed: ...
    loader = feed.torch()  # A DataLoader.

A feed is a sequence of batches: which samples batch k has depends on the data, the arguments of the
feed and k, and on nothing else.

    k --- order: the numbers of its samples; planning chooses the shuffle --> numbers (feed)
    numbers --- samples: transitions, windows, ... --> episodes and steps
    episodes and steps --- table: the fields to read --> a storage:
        mapped    rows that are copied out of mapped TFRecord files
        storage   whole episodes of any format, of which a cache keeps the last ones
        views     rows of views (selected, joined, renamed, ...), made of rows of the two others
    rows --- images: files to pixels --> columns --- transform --> batch k (feed)

`mixture` draws each number from one of several datasets, and `priorities` by weights that change.
`adapters` hands batches to the loaders of PyTorch (by shared memory, `workers`) and Grain.
`policy_samples` and its neighbours make the samples of Octo, OpenVLA and openpi.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
