"""ZIP files of a directory, for a download."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

__all__ = ["write_archive"]

_BUFFER_SIZE = 1 << 20


def write_archive(root: Path, file: Path, folder: str, progress: Callable[[float], None]) -> None:
    """Writes a ZIP file with all files of a directory, sorted by name, and syncs it to the disk.

    A file is compressed if its first bytes are compressible; most files already are compressed.

    Args:
      root: The directory.
      file: The ZIP file, which must not exist.
      folder: The only top-level folder of the ZIP file.
      progress: A callback for the completed fraction, from 0 to 1.

    Raises:
      OSError: The file cannot be written.
    """
    members = sorted(path for path in root.rglob("*") if path.is_file())
    num_bytes = sum(path.stat().st_size for path in members)
    num_written = 0
    with file.open("xb") as zip_file:
        with zipfile.ZipFile(zip_file, "w", zipfile.ZIP_STORED) as archive:
            for path in members:
                name = f"{folder}/{path.relative_to(root).as_posix()}"
                member = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False)
                if _is_compressible(path):
                    member.compress_type = zipfile.ZIP_DEFLATED
                with path.open("rb") as source, archive.open(member, "w") as target:
                    while chunk := source.read(_BUFFER_SIZE):
                        target.write(chunk)
                        num_written += len(chunk)
                        progress(num_written / num_bytes)
        zip_file.flush()
        os.fsync(zip_file.fileno())


def _is_compressible(path: Path) -> bool:
    with path.open("rb") as file:
        beginning = file.read(_BUFFER_SIZE)
    return len(zlib.compress(beginning, 1)) < 0.9 * len(beginning)
