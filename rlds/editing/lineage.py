"""Where the episodes of an edited dataset come from, and what was done with them.

The lineage of a dataset is JSON: the operations, the datasets that they were done with, each with
its own lineage, and for each episode which of them has it. It is kept in `.rlds/lineage.json` of a
folder, or in `.rlds` beside a file; without the part about episodes also in the metadata of the
dataset, where the format has any.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rlds
from rlds.editing.edited import EditedSource, Part, source_of
from rlds.sources.episodes import Episodes
from rlds.sources.exporting import LINEAGE
from rlds.sources.opening import open as open_episodes
from rlds_ecosystem import stores
from rlds_ecosystem.replacing import FOLDER
from rlds_ecosystem.whole_files import write_at_once

__all__ = [
    "digest_of_episodes",
    "lineage_of",
    "made",
    "origin_of",
    "origins",
    "write_lineage",
]

_EPISODES = "episodes"
_VERSION = 1


def made(
    recipe: Sequence[Mapping[str, Any]],
    parts: Mapping[str, Part],
    *,
    kept: int,
    known: Mapping[str, str],
) -> dict[str, Any]:
    """Returns what is said of a new dataset.

    Args:
      recipe: The operations.
      parts: The datasets that they were done with.
      kept: How many episodes are left.
      known: Digests of the episodes of datasets, of which their tables were at hand.
    """
    return {
        "version": _VERSION,
        "by": f"rlds-ecosystem {rlds.__version__}",
        "operations": [dict(each) for each in recipe],
        "kept": kept,
        "of": sum(len(part.episodes) for part in parts.values()),
        "from": [_about(name, part, known.get(name)) for name, part in parts.items()],
    }


def _about(name: str, part: Part, digest: str | None) -> dict[str, Any]:
    source = source_of(part.episodes)
    return {
        "name": os.path.basename(os.path.normpath(name)) if stores.is_local(name) else name,
        "format": part.episodes.format,
        "digest": digest or _digest_of_files(source.inputs()),
        "license": source.license,
        LINEAGE: lineage_of(name, part.episodes),
    }


def digest_of_episodes(episodes: Episodes) -> str:
    """Returns a digest of all episodes, of those in their table."""
    digests = episodes.table().arrow(["digest"])["digest"].to_pylist()
    found = hashlib.sha256(b"".join(digest or b"damaged" for digest in digests))
    return f"episodes:sha256:{found.hexdigest()}"


def _digest_of_files(inputs: Sequence[Any]) -> str:
    """A digest of the names and the sizes of files, where reading all of them would take long."""
    files = [stores.as_path(path) for path in inputs]
    facts = sorted((file.name, file.stat().length) for file in files)
    return f"files:sha256:{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}"


def origins(source: EditedSource, split: str) -> list[list[Any]]:
    """Returns where episodes come from, as runs: number of the part, split, first index, length."""
    runs: list[list[Any]] = []
    for index in range(source.num_episodes(split)):
        part, name, number = source.origin_of(split, index)
        if runs and runs[-1][:2] == [part, name] and runs[-1][2] + runs[-1][3] == number:
            runs[-1][3] += 1
        else:
            runs.append([part, name, number, 1])
    return runs


def write_lineage(
    path: str | os.PathLike[str], lineage: Mapping[str, Any], episodes: Mapping[str, Any]
) -> None:
    """Writes the lineage of a new dataset beside it.

    Args:
      path: The folder, or the file.
      lineage: What `made` returns.
      episodes: The `origins` of each split.
    """
    file = _file_of(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps({**lineage, _EPISODES: episodes}, ensure_ascii=False, indent=1)
    write_at_once(file, content.encode())


def lineage_of(
    path: str | os.PathLike[str], episodes: Episodes | None = None
) -> dict[str, Any] | None:
    """Returns the lineage of a dataset; None if nothing is known of it.

    Args:
      path: The dataset.
      episodes: Its episodes, if it is open.
    """
    file = _file_of(path)
    if not file.exists():  # A folder may have one file, which is the dataset.
        others = [*file.parent.glob("*.lineage.json")] if file.parent.is_dir() else []
        file = others[0] if len(others) == 1 else file
    if file.exists():
        found = json.loads(file.read_text())
    else:
        found = (episodes or open_episodes(path, "all")).metadata.get(LINEAGE)
        found = json.loads(found) if isinstance(found, str) else found
    return dict(found) if isinstance(found, Mapping) else None


def origin_of(lineage: Mapping[str, Any], split: str, index: int) -> list[tuple[str, str, int]]:
    """Returns where an episode comes from: datasets by name, the nearest first.

    Args:
      lineage: That of the dataset which has it.
      split: Its split.
      index: Its number in the split.

    Returns:
      The name of each dataset, the split in it, and the number in that.

    Raises:
      IndexError: There is no such episode.
      KeyError: There is no such split.

    >>> first = {"name": "raw", "lineage": None}
    >>> origin_of({"from": [first], "episodes": {"train": [[0, "train", 7, 3]]}}, "train", 2)
    [('raw', 'train', 9)]
    """
    if split not in lineage[_EPISODES]:
        raise KeyError(f"no split {split!r}, only {[*lineage[_EPISODES]]}")
    if not 0 <= index < sum(number for *_, number in lineage[_EPISODES][split]):
        raise IndexError(f"no episode {index} in the split {split!r}")
    found = []
    known: Mapping[str, Any] | None = lineage
    while known is not None and split in known.get(_EPISODES, {}):
        for part, name, first, number in known[_EPISODES][split]:
            if index < number:
                origin = known["from"][part]
                split, index = name, first + index
                break
            index -= number
        else:
            break
        found.append((str(origin["name"]), split, index))
        known = origin[LINEAGE]
    return found


def _file_of(path: str | os.PathLike[str]) -> Any:
    place: Any = Path(path) if stores.is_local(path) else stores.as_path(path)
    if place.is_dir() or not place.suffix:
        return place / FOLDER / "lineage.json"
    return place.parent / FOLDER / f"{place.name}.lineage.json"
