"""Downloads: recorded episodes, with their tags, as a log, a dataset, or another format.

    exporting.export(["data/episodes/x1", "data/episodes/x2"], "drive", "tfds", name="drive")

Knows no server and no database: all it needs is in the directories of the episodes.
"""

from typing import TYPE_CHECKING

from rlds_ecosystem.lazy import lazy_package as _lazy_package

if TYPE_CHECKING:
    from rlds_creator.exporting.errors import ExportError
    from rlds_creator.exporting.exports import Exported, export
    from rlds_creator.exporting.jobs import Job, Request
    from rlds_creator.exporting.recordings import (
        Annotations,
        RecordedEpisode,
        find_recordings,
        is_recording,
    )
    from rlds_creator.exporting.targets import Format, formats

__all__ = [
    "Annotations",
    "ExportError",
    "Exported",
    "Format",
    "Job",
    "RecordedEpisode",
    "Request",
    "export",
    "find_recordings",
    "formats",
    "is_recording",
]

_HOMES = {
    "rlds_creator.exporting.errors": ["ExportError"],
    "rlds_creator.exporting.exports": ["Exported", "export"],
    "rlds_creator.exporting.targets": ["Format", "formats"],
    "rlds_creator.exporting.jobs": ["Job", "Request"],
    "rlds_creator.exporting.recordings": [
        "Annotations",
        "RecordedEpisode",
        "find_recordings",
        "is_recording",
    ],
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_package(__name__, __all__, _HOMES)
