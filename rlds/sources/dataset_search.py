"""Search for datasets in local folders by the names of files, without opening them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rlds.raw_files.untrusted import check_link
from rlds.sources.registry import formats
from rlds_ecosystem.files import stores

__all__ = [
    "find_datasets",
    "find_logs",
    "is_hugging_face_dataset",
    "marked_format",
    "marked_formats",
    "several_datasets",
]

_MAX_SHOWN = 4


def marked_formats(directory: str) -> list[str]:
    """Returns the formats of a local dataset folder, recognized by a marker file."""
    if is_hugging_face_dataset(directory):
        return []
    return [
        name
        for name, format in formats().items()
        if format.marker and os.path.exists(os.path.join(directory, format.marker))
    ]


def marked_format(directory: str) -> str | None:
    """Returns the first of the `marked_formats`; None without one."""
    return next(iter(marked_formats(directory)), None)


def is_hugging_face_dataset(path: str) -> bool:
    """True for a folder of the library `datasets`, which also has a dataset_info.json."""
    return os.path.isfile(os.path.join(path, "state.json"))


def find_datasets(directory: str, depth: int = 6) -> Iterator[tuple[str, str]]:
    """Yields the datasets below a local folder, in arbitrary order, without opening them.

    Args:
      directory: The folder. Links are not followed.
      depth: The depth of the search, in folders.

    Yields:
      The path and the name of the format of each dataset.
    """
    format = marked_format(directory)
    if format is not None:
        yield directory, format
        return
    if not depth:
        return
    try:
        with os.scandir(directory) as entries:
            folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # The folder is not readable, or was removed.
        return
    for path in folders:
        if not os.path.basename(path).startswith((".", "incomplete.")):
            yield from find_datasets(path, depth - 1)


def find_logs(path: str | os.PathLike[str]) -> list[str]:
    """Returns the directories with EnvLogger logs at and below a directory, sorted by path.

    Backups of edits (`<name>.old` next to `<name>`) are left out.

    Raises:
      FileNotFoundError: The directory does not exist, or holds no log.
    """
    directory, mark = stores.as_path(path), formats()["envlogger"].marker
    if not directory.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)!r} is not a directory.")
    logs = []
    for root, _, files in directory.walk():
        if any(name.startswith(".") for name in root.relative_to(directory).parts):
            continue  # Hidden folders belong to the data next to them.
        for file in files:
            check_link(root / file)
        if mark in files:
            logs.append(os.fspath(root))
    logs = sorted({*logs} - {f"{log}.old" for log in logs})
    if not logs:
        raise FileNotFoundError(
            f"{os.fspath(path)!r} holds no EnvLogger log: there is no {mark} in it, nor "
            "in a directory below it."
        )
    return logs


def several_datasets(path: str, datasets: Sequence[tuple[str, str]]) -> str:
    """Returns the error about a folder with several datasets, a result of `find_datasets`."""
    names = [f"{os.path.relpath(folder, path)} ({name})" for folder, name in datasets[:_MAX_SHOWN]]
    ellipsis = ", …" if len(datasets) > _MAX_SHOWN else ""
    return (
        f"{path} holds {len(datasets)} datasets: {', '.join(names)}{ellipsis}. Choose one; "
        f"`rlds list {path}` shows them."
    )
