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

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
