"""Files in object stores (`gs://`, `s3://`), and paths that are files there or on this machine.

All files at URLs are opened, listed and written here. An object appears in its store when it is
complete, and is replaced as a whole: nothing can be appended to it, and there are no directories
but the names of objects. Nothing that was seen in a store is remembered: other processes write too.
Only of the Hub, `hf://`, is a commit remembered, which never changes.

The parts: `_paths` has what others use, `_objects` the files, `_copies` the parts of them that are
kept on this machine, `_clients` the libraries.
"""

from rlds_ecosystem.files.stores._clients import Entry, PathLike, is_local
from rlds_ecosystem.files.stores._copies import ChangedObjectError, CopiedObjects
from rlds_ecosystem.files.stores._paths import (
    StorePath,
    as_path,
    copy_file,
    in_parallel,
    list_directory,
    move_file,
    on_disk,
    open_binary,
    require_bucket,
    version_of,
)

__all__ = [
    "ChangedObjectError",
    "CopiedObjects",
    "Entry",
    "PathLike",
    "StorePath",
    "as_path",
    "copy_file",
    "in_parallel",
    "is_local",
    "list_directory",
    "move_file",
    "on_disk",
    "open_binary",
    "require_bucket",
    "version_of",
]
