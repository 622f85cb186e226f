"""Datasets in folders of this machine, recognized by the names of files, without opening them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rlds.raw_files.untrusted import check_link
from rlds.sources.registry import formats
from rlds_ecosystem.files import stores

__all__ = [
    "find_datasets",
    "find_logs",
    "is_of_datasets",
    "marked_format",
    "marked_formats",
    "several_datasets",
]

_MAX_LISTED = 4


def marked_formats(directory: str) -> list[str]:
    """Returns the formats of datasets of this machine that have a file of theirs in a folder."""
    if is_of_datasets(directory):
        return []
    return [
        name
        for name, format in formats().items()
        if format.mark and os.path.exists(os.path.join(directory, format.mark))
    ]


def marked_format(directory: str) -> str | None:
    """Returns the format of a dataset of this machine that is recognized by a file in it."""
    return next(iter(marked_formats(directory)), None)


def is_of_datasets(path: str) -> bool:
    """Whether the library `datasets` has saved it, which has a dataset_info.json, too."""
    return os.path.isfile(os.path.join(path, "state.json"))


def find_datasets(directory: str, depth: int = 6) -> Iterator[tuple[str, str]]:
    """Yields the datasets below a folder of this machine, in no order, without opening them.

    Args:
      directory: The folder. Links are not followed.
      depth: The depth of the search, in folders.

    Yields:
      The path of each, and the name of its format.
    """
    format = marked_format(directory)
    if format is not None:
        yield directory, format
        return
    if not depth:
        return
    try:
        with os.scandir(directory) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # It may not be read, or is gone already.
        return
    for path in below:
        if not os.path.basename(path).startswith((".", "incomplete.")):
            yield from find_datasets(path, depth - 1)


def find_logs(path: str | os.PathLike[str]) -> list[str]:
    """Returns the directories with EnvLogger logs at and below a directory, sorted by path.

    Logs that an edit has kept, `<name>.old` beside `<name>`, are not among them.

    Raises:
      FileNotFoundError: If the directory does not exist, or holds no log.
    """
    directory, mark = stores.as_path(path), formats()["envlogger"].mark
    if not directory.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)!r} is not a directory.")
    logs = []
    for root, _, files in directory.walk():
        if any(name.startswith(".") for name in root.relative_to(directory).parts):
            continue  # Hidden folders belong to the data beside them.
        for file in files:
            check_link(root / file)
        if mark in files:
            logs.append(os.fspath(root))
    logs = sorted(
        log for log in logs if not (log.endswith(".old") and log.removesuffix(".old") in logs)
    )
    if not logs:
        raise FileNotFoundError(
            f"{os.fspath(path)!r} holds no EnvLogger log: there is no {mark} in it, nor "
            "in a directory below it."
        )
    return logs


def several_datasets(path: str, datasets: Sequence[tuple[str, str]]) -> str:
    """Returns the error about a folder of several datasets, which `find_datasets` has found."""
    shown = [f"{os.path.relpath(folder, path)} ({name})" for folder, name in datasets[:_MAX_LISTED]]
    more = ", …" if len(datasets) > _MAX_LISTED else ""
    return (
        f"{path} holds {len(datasets)} datasets: {', '.join(shown)}{more}. Choose one; "
        f"`rlds list {path}` shows them."
    )
