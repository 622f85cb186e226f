"""Files in object stores (`gs://`, `s3://`, `hf://`), and paths of local or remote files.

This package opens, lists and writes all files at URLs. An object appears in its store when it is
complete. Objects can be replaced, but not appended to. A directory is a prefix of object names.
Only commits of the Hub, `hf://`, are cached, as other processes may write to a store.

The modules: `_paths` is the interface, `_objects` has open files, `_copies` the local cache,
`_publishing` uploads of folders, `_clients` the libraries.
"""

from rlds_ecosystem.files.stores._clients import Entry as Entry
from rlds_ecosystem.files.stores._clients import PathLike as PathLike
from rlds_ecosystem.files.stores._clients import is_local as is_local
from rlds_ecosystem.files.stores._copies import ChangedObjectError as ChangedObjectError
from rlds_ecosystem.files.stores._copies import CopiedObjects as CopiedObjects
from rlds_ecosystem.files.stores._paths import StorePath as StorePath
from rlds_ecosystem.files.stores._paths import as_path as as_path
from rlds_ecosystem.files.stores._paths import copy_file as copy_file
from rlds_ecosystem.files.stores._paths import in_parallel as in_parallel
from rlds_ecosystem.files.stores._paths import list_directory as list_directory
from rlds_ecosystem.files.stores._paths import move_file as move_file
from rlds_ecosystem.files.stores._paths import on_disk as on_disk
from rlds_ecosystem.files.stores._paths import open_binary as open_binary
from rlds_ecosystem.files.stores._paths import require_bucket as require_bucket
from rlds_ecosystem.files.stores._paths import version_of as version_of
from rlds_ecosystem.files.stores._publishing import UPLOAD_MARK as UPLOAD_MARK
from rlds_ecosystem.files.stores._publishing import publish as publish

__all__ = [name for name in dir() if not name.startswith("_")]
