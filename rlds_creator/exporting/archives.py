"""ZIP files of a directory, for a download."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

__all__ = ["write_archive"]

_BUFFER = 1 << 20


def write_archive(
    directory: Path, file: Path, folder: str, progress: Callable[[float], None]
) -> None:
    """Writes a ZIP file with all that is in a directory, and brings it to the disk.

    Files are compressed if their beginnings get smaller: most are compressed already. The order is
    that of the names.

    Args:
      directory: The directory.
      file: The ZIP file, which must not exist.
      folder: The folder in the ZIP file that everything is in.
      progress: Called with how much is done, from 0 to 1.

    Raises:
      OSError: It cannot be written.
    """
    members = sorted(path for path in directory.rglob("*") if path.is_file())
    num_bytes = sum(path.stat().st_size for path in members)
    num_written = 0
    with file.open("xb") as raw:
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
            for path in members:
                name = f"{folder}/{path.relative_to(directory).as_posix()}"
                member = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
                if _is_compressible(path):
                    member.compress_type = zipfile.ZIP_DEFLATED
                with path.open("rb") as source, archive.open(member, "w") as target:
                    while part := source.read(_BUFFER):
                        target.write(part)
                        num_written += len(part)
                        progress(num_written / num_bytes)
        raw.flush()
        os.fsync(raw.fileno())


def _is_compressible(path: Path) -> bool:
    with path.open("rb") as file:
        beginning = file.read(_BUFFER)
    return len(zlib.compress(beginning, 1)) < 0.9 * len(beginning)
