"""RLDS: datasets of episodes of sequential decision making.

The names of a step and of an episode, the helpers that build them, and the transformations that
feed them to an algorithm. Importing this package is cheap: TensorFlow is loaded when
`rlds.transformations` or `rlds.tfds` is first touched.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

_INSTEAD = {
    "load": "rlds.sources.open(path), or rlds.tfds.load(path) for a tf.data.Dataset",
    "open": "rlds.sources.open(path), or rlds.feeds.open(path) for batches",
}

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__, _INSTEAD)
