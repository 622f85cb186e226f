"""Downloads: recorded episodes, with their tags, as a log, a dataset, or another format.

    exporting.export(["data/episodes/x1", "data/episodes/x2"], "drive", "tfds", name="drive")

Knows no server and no database: all it needs is in the directories of the episodes.
"""

from rlds_ecosystem.lazy import lazy_package as _lazy_package

__getattr__, __dir__, __all__ = _lazy_package(__name__, __file__)
