"""Episodes from any format, as columns of NumPy.

    episodes = rlds.sources.open("~/tensorflow_datasets/my_robot/1.0.0", "train")
    len(episodes), episodes.spec
    episodes.columns(7, ["action", "observation/camera"], start=10, stop=20)
    print(episodes.explain())

    rlds.sources.export(episodes, "lerobot", "my_robot")  # In the formats of others.

A source knows a format, and nothing of what becomes of its episodes. It loads no TensorFlow.
"""

from rlds.raw_files.untrusted import SourceChangedError
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import Exported, export, exports
from rlds.sources.opening import UnknownFormatError, format_of, open
from rlds.sources.registry import Format, formats
from rlds.sources.source import (
    DamagedEpisode,
    Origin,
    RandomAccessSource,
    Source,
    SourceEpisode,
    SourceError,
)
from rlds.sources.writing import Export, Placement
from rlds_ecosystem.model.fields import Field

__all__ = [
    "DamagedEpisode",
    "Episodes",
    "Export",
    "Exported",
    "Field",
    "Format",
    "Origin",
    "Placement",
    "RandomAccessSource",
    "Source",
    "SourceChangedError",
    "SourceEpisode",
    "SourceError",
    "UnknownFormatError",
    "export",
    "exports",
    "format_of",
    "formats",
    "open",
]
