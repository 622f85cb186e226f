"""The lineage of a dataset: the origin of its episodes, and the operations on them.

The lineage is JSON: the operations, the source datasets, each with its own lineage, and for each
episode its dataset and its raw file. The lineage is stored in `.rlds/lineage.json` of a folder, or
in `.rlds` next to a file; the metadata of the dataset has a copy without entries of episodes. A
lineage has no times: repeating the operations gives the same lineage.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import rlds_ecosystem
from rlds.sources import reading
from rlds.sources.dataset_folders import root_of
from rlds.sources.episodes import Episodes
from rlds.sources.licenses import conflicts
from rlds.sources.opening import open as open_episodes
from rlds.sources.registry import formats
from rlds.sources.source import AnySource, Origin, Source
from rlds.sources.view import SelectedSource, View
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.replacing import FOLDER
from rlds_ecosystem.files.whole_files import write_atomically

__all__ = [
    "CONVERT",
    "KEY",
    "Trace",
    "as_json",
    "conversion_lineage",
    "digest_of_episodes",
    "digest_of_rows",
    "file_of",
    "free_name",
    "is_outside",
    "lineage_of",
    "new_lineage",
    "origin_of",
    "trace",
    "without_episodes",
    "write_lineage",
]

KEY = "lineage"
"""The key of the lineage in the metadata of a dataset."""

CONVERT = "convert"
"""The name of an export to another format in a recipe."""

# Files of Zarr stores: libraries expect no other files in these folders.
_ZARR_MARKERS = (".zgroup", "zarr.json")
_EPISODES, _FILES, _FROM = "episodes", "files", "from"
_VERSION = 1
# The maximum depth of recorded ancestors, and the key that marks a truncated lineage.
_MAX_DEPTH, _TRUNCATED_KEY = 50, "earlier_left_out"


def new_lineage(
    operations: Sequence[Mapping[str, Any]],
    datasets: Mapping[str, Episodes],
    *,
    num_kept: int | None,
    num_all: int | None,
    license: str = "",
    digests: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the lineage of a new dataset.

    Args:
      operations: The operations.
      datasets: The source datasets, by their names.
      num_kept: The number of episodes in the new dataset; None if unknown.
      num_all: The number of episodes of the source datasets; None if unknown.
      license: The declared license of the new dataset.
      digests: Digests of the episodes of source datasets, by name, if available.
    """
    sources = {name: episodes.source for name, episodes in datasets.items()}
    terms = {_shorten(name): source.source_info.license for name, source in sources.items()}
    sentences = conflicts(terms, license)
    return {
        "version": _VERSION,
        "by": f"{rlds_ecosystem.DISTRIBUTION} {rlds_ecosystem.version()}",
        "operations": [dict(operation) for operation in operations],
        **{name: n for name, n in (("kept", num_kept), ("of", num_all)) if n is not None},
        **({"conflicts": sentences} if sentences else {}),
        _FROM: [
            {
                "name": _shorten(name),
                "format": episodes.format or _format_of(sources[name]),
                "digest": (digests or {}).get(name) or _digest_of_files(sources[name].inputs()),
                "license": sources[name].source_info.license,
                KEY: _without_oldest(lineage_of(name, episodes)),
            }
            for name, episodes in datasets.items()
        ],
    }


def _without_oldest(
    lineage: Mapping[str, Any] | None, depth: int = _MAX_DEPTH
) -> dict[str, Any] | None:
    """Returns a lineage with a mark instead of the oldest ancestors."""
    if lineage is None:
        return None
    parents = []
    for parent in lineage.get(_FROM, ()):
        latest = _without_oldest(parent[KEY], depth - 1) if depth else None
        is_cut = parent[KEY] is not None and latest is None
        parents.append({**parent, KEY: latest, **({_TRUNCATED_KEY: True} if is_cut else {})})
    return {**lineage, _FROM: parents}


def conversion_lineage(
    source: AnySource,
    format: str,
    options: Mapping[str, Any],
    *,
    name: str = "",
    source_format: str = "",
    split: str = "all",
) -> dict[str, Any]:
    """Returns the lineage of a converted dataset.

    Args:
      source: The source of the conversion.
      format: The written format.
      options: The options of the written format.
      name: The name of the source; derived from its files if empty.
      source_format: The format of the source.
      split: The split, or a split expression.
    """
    bases = reading.roots(source)
    full_splits = {*("+".join(base.splits) for base in bases)}
    split = "+".join(source.splits) if split == "all" else split
    convert: dict[str, Any] = {"do": CONVERT, "format": format}
    if split not in full_splits:
        convert["split"] = split
    if values := {name: as_json(value) for name, value in options.items() if value is not None}:
        convert["options"] = values
    num_kept = num_all = None
    if isinstance(source, Source):
        num_kept = len(Episodes(source, split))
        num_all = sum(reading.count(base, split) or 0 for base in bases for split in base.splits)
    datasets: dict[str, Episodes] = {}
    for base in bases if len(bases) > 1 else [source]:
        dataset_name = (len(bases) == 1 and name) or root_of(base) or type(base).__name__
        datasets[free_name(dataset_name, datasets)] = Episodes(
            base, next(iter(base.splits)), format=source_format
        )
    operations = [*_selections(source), convert]
    return new_lineage(
        operations, datasets, num_kept=num_kept, num_all=num_all, license=source.source_info.license
    )


def _format_of(source: AnySource) -> str:
    """Returns the name of the format of a source; without one, the name of its class."""
    while isinstance(source, View):
        source = source.bases[0]
    source = getattr(source, "source", source)  # The source of a format in a `RestoredSource`.
    kind = f"{type(source).__module__}:{type(source).__qualname__}"
    names = [name for name, format in formats().items() if format.target == kind]
    return names[0] if names else type(source).__name__


def _selections(source: AnySource) -> list[dict[str, Any]]:
    """Returns the operations of the views that selected the episodes, in order."""
    if isinstance(source, View) and (kind := source.options.get("action_as")):
        return [*_selections(source.bases[0]), {"do": "action_as", "kind": kind}]
    if not isinstance(source, SelectedSource):
        return []
    rows, total = np.zeros(0, np.int64), 0
    [base] = source.bases
    for split in base.splits:
        rows = np.append(rows, total + source.indices.get(split, rows[:0]))
        total += base.num_episodes(split)
    keep: dict[str, Any] = {"do": "keep", "episodes": rows.tolist()}
    if source.condition is not None:
        rows_of = {source.condition: digest_of_rows(rows, total)}
        keep = {"do": "keep", "where": source.condition, "rows": rows_of}
    return [*_selections(base), keep]


def as_json(value: Any) -> Any:
    """Converts an argument of an operation to JSON types: functions become their names."""
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple | range):
        return [as_json(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value
    if callable(value):
        return f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    return value


def digest_of_rows(rows: Any, num_all: int) -> str:
    """Returns the number and a digest of the indices of selected episodes."""
    indices = np.asarray(rows, "<i8")
    digest = hashlib.sha256(indices.tobytes()).hexdigest()
    return f"{len(indices)} of {num_all}, sha256:{digest[:16]}"


def digest_of_episodes(episodes: Episodes) -> str:
    """Returns a digest of all episodes, from the digests in their table."""
    digests = episodes.table().arrow(["digest"])["digest"].to_pylist()
    content = b"".join(digest or b"damaged" for digest in digests)
    return f"episodes:sha256:{hashlib.sha256(content).hexdigest()}"


def _digest_of_files(inputs: Sequence[Any]) -> str:
    """Returns a digest of the names and sizes of files, without reading their content."""
    sizes = stores.in_parallel(_size_of, inputs, inputs[0]) if inputs else []
    sizes.sort()
    return f"files:sha256:{hashlib.sha256(json.dumps(sizes).encode()).hexdigest()}"


def _size_of(path: Any) -> tuple[str, int]:
    file = stores.as_path(path)
    try:
        return file.name, int(file.stat().length)
    except FileNotFoundError:  # The input is not a file.
        return file.name, -1


class Trace:
    """Records the origins of the written episodes of a split, run-length encoded.

    Args:
      lineage: The result of `new_lineage`.
      sources: The sources of the datasets of the lineage.
    """

    def __init__(self, lineage: Mapping[str, Any], sources: Sequence[AnySource]) -> None:
        self._positions = {id(source): position for position, source in enumerate(sources)}
        # True for raw datasets, whose lineage does not have the origin of their episodes.
        self._are_raw = [not (parent[KEY] or {}).get(_EPISODES) for parent in lineage[_FROM]]
        # Runs: position of the dataset, split, first index, length; file, first row, lengths.
        self.episodes: list[list[Any]] = []
        self.files: list[list[Any]] = []
        self._end = -1

    def add(self, source: AnySource, split: str, index: int, origin: Origin | None) -> None:
        """Records the next episode: its dataset, split and index, and its raw file if given."""
        dataset, runs = self._positions[id(source)], self.episodes
        run = runs[-1] if runs else []
        if run[:2] == [dataset, split] and run[2] + run[3] == index:
            run[3] += 1
        else:
            runs.append([dataset, split, index, 1])
        file, start, end = "", 0, 0
        if origin is not None and self._are_raw[dataset]:
            file, start, end = origin.file, origin.begin, origin.end
        if not self.files or self.files[-1][0] != file or self._end != start:
            self.files.append([file, start, []])
        self.files[-1][2].append(end - start)
        self._end = end


def write_lineage(
    path: str | os.PathLike[str], lineage: Mapping[str, Any], traces: Mapping[str, Trace]
) -> None:
    """Writes the lineage file of a new dataset next to it.

    Args:
      path: The dataset: a folder or a file.
      lineage: The result of `new_lineage`.
      traces: The origins of the episodes of each split.
    """
    file = file_of(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    episodes = {split: trace.episodes for split, trace in traces.items()}
    files = {split: trace.files for split, trace in traces.items()}
    if not any(name for runs in files.values() for name, *_ in runs):
        files = {}
    content = {**lineage, "kept": sum(n for runs in episodes.values() for *_, n in runs)}
    content |= {_EPISODES: episodes, **({_FILES: files} if files else {})}
    # One entry a line, for human readers.
    lines = [f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in content.items()]
    # Lone surrogates, from file names that are not UTF-8, become JSON escapes.
    write_atomically(file, ("{" + ",\n".join(lines) + "}\n").encode(errors="backslashreplace"))


def without_episodes(lineage: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a lineage without the entries of single episodes, which may be long."""
    parents = [{**s, KEY: s[KEY] and without_episodes(s[KEY])} for s in lineage.get(_FROM, [])]
    short = {name: value for name, value in lineage.items() if name not in (_EPISODES, _FILES)}
    return {**short, _FROM: parents}


def lineage_of(
    path: str | os.PathLike[str], episodes: Episodes | None = None
) -> dict[str, Any] | None:
    """Returns the recorded lineage of a dataset; None if it has none.

    Args:
      path: The dataset.
      episodes: The episodes of the dataset, if it is open.
    """
    file, outside = file_of(path), is_outside(path)
    if not file.exists():  # A folder may have one file, which is the dataset.
        episodes = open_episodes(path, "all") if episodes is None else episodes
        if root := root_of(episodes.source):
            file, outside = file_of(root), is_outside(root)
    lineage = json.loads(file.read_text()) if file.exists() else None
    if lineage is None or outside:
        episodes = open_episodes(path, "all") if episodes is None else episodes
        embedded = episodes.metadata.get(KEY)
        embedded = json.loads(embedded) if isinstance(embedded, str) else embedded
        # A killed process may have left the lineage file of an older dataset.
        if isinstance(embedded, Mapping) and (
            lineage is None or not _is_same_dataset(lineage, embedded)
        ):
            lineage = embedded
    return dict(lineage) if isinstance(lineage, Mapping) else None


def _is_same_dataset(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two lineages are of the same dataset; only one of them lists its episodes."""
    ours, theirs = ({**without_episodes(entry), "kept": None} for entry in (one, other))
    return json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


def origin_of(lineage: Mapping[str, Any], split: str, index: int) -> list[tuple[str, str, int]]:
    """Traces an episode through its ancestors: name, split and index, the nearest first.

    Args:
      lineage: The lineage of the dataset of the episode.
      split: The split of the episode.
      index: The index of the episode in the split.

    Returns:
      For each ancestor the name of the dataset, the split, and the index in the split.

    Raises:
      IndexError: There is no such episode.
      KeyError: There is no such split.

    >>> first = {"name": "raw", "lineage": None}
    >>> origin_of({"from": [first], "episodes": {"train": [[0, "train", 7, 3]]}}, "train", 2)
    [('raw', 'train', 9)]
    """
    return trace(lineage, split, index)[0]


def trace(
    lineage: Mapping[str, Any], split: str, index: int
) -> tuple[list[tuple[str, str, int]], Origin | None]:
    """Returns the result of `origin_of`, and the origin in raw files, if recorded.

    Raises:
      IndexError: There is no such episode.
      KeyError: There is no such split.
    """
    if split not in lineage.get(_EPISODES, {}):
        raise KeyError(f"no split {split!r}, only {[*lineage.get(_EPISODES, {})]}")
    if not 0 <= index < sum(length for *_, length in lineage[_EPISODES][split]):
        raise IndexError(f"no episode {index} in the split {split!r}")
    ancestors, raw = [], None
    ancestor: Mapping[str, Any] | None = lineage
    while ancestor is not None and split in ancestor.get(_EPISODES, {}):
        raw = _raw_origin(ancestor.get(_FILES, {}).get(split, ()), index)
        for dataset, name, first, length in ancestor[_EPISODES][split]:
            if index < length:
                parent = ancestor[_FROM][dataset]
                split, index = name, first + index
                break
            index -= length
        else:
            break
        ancestors.append((str(parent["name"]), split, index))
        ancestor = parent[KEY]
    return ancestors, raw


def _raw_origin(runs: Iterable[Sequence[Any]], index: int) -> Origin | None:
    """Returns the raw file and rows of an episode, from runs of files; None if unknown."""
    for file, start, lengths in runs:
        if index < len(lengths):
            start += sum(lengths[:index])
            return Origin(file, start, start + lengths[index]) if file else None
        index -= len(lengths)
    return None


def free_name(name: str, used: Collection[str], form: str = "{} ({})") -> str:
    """Returns the name; adds a number if the name is already used."""
    numbered_names = (form.format(name, count) for count in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered_names) if free not in used)


def _shorten(name: str) -> str:
    """Returns the last name of a path; for a version, with the name of its parent folder."""
    if not stores.is_local(name):
        return name
    parent, tail = os.path.split(os.path.normpath(name))
    return f"{os.path.basename(parent)}/{tail}" if re.fullmatch(r"\d+(\.\d+)+", tail) else tail


def file_of(path: str | os.PathLike[str]) -> Any:
    """Returns the path of the lineage file of a dataset, which is a folder or a file."""
    root: Any = Path(path) if stores.is_local(path) else stores.as_path(path)
    if is_outside(path):
        return root.parent / FOLDER / f"{root.name}.lineage.json"
    return root / FOLDER / "lineage.json"


def is_outside(path: str | os.PathLike[str]) -> bool:
    """Whether the lineage file lies outside of the dataset: next to a file or a Zarr store."""
    root: Any = Path(path) if stores.is_local(path) else stores.as_path(path)
    if root.is_dir():
        return any((root / name).exists() for name in _ZARR_MARKERS)
    return bool(root.suffix)
