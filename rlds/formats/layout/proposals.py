"""Proposals of layouts for files of an unknown format, with questions for the user."""

from __future__ import annotations

import collections
import json
import os
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

import rlds
from rlds.formats.layout.arrays import KINDS, Arrays, is_image, list_groups, open_arrays
from rlds.formats.layout.layouts import QUESTIONS, UNKNOWN
from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import conflicts, root_of

__all__ = ["propose_layout"]

# Common names of arrays, and the paths of their fields.
_FIELD_PATTERNS = (
    (re.compile(r"(rew|rews|rewards?)\Z"), rlds.REWARD),
    (re.compile(r"(act|acts|actions?|controls?|cmd|commands?)\b"), rlds.ACTION),
    (
        re.compile(r"(obs|observations?|states?|images?|rgb\w*|depth\w*|qpos|qvel|joint\w*)\b"),
        rlds.OBSERVATION,
    ),
)
_FLAG_NAME = re.compile(
    r"\w*(done|dones|terminal|terminals|terminated|timeouts?|truncated|truncations?|ends?)\Z"
)
_EPISODE_NAME = re.compile(r"\w*(episode|traj|demo)\w*")
_PLAIN_SCALAR = re.compile(
    r"(?!(true|false|yes|no|on|off|null)\Z)[A-Za-z_][\w./-]*\Z", re.IGNORECASE
)
_RESERVED_NAMES = (*rlds.STEP_FLAGS, "leftover", "source", "episode_id")
_MAX_FIELDS, _MAX_ROWS = 200, 1 << 24


class _FolderContent(NamedTuple):
    """The arrays at a path.

    Attributes:
      arrays: The arrays of the first episode, or of all episodes.
      lines: Lines of the layout with the patterns of files and groups.
      one_per: "file", "folder" or "group"; empty if the arrays may hold several episodes.
    """

    arrays: Arrays
    lines: tuple[str, ...] = ()
    one_per: str = ""


def propose_layout(path: str | os.PathLike[str]) -> str:
    """Returns a layout in YAML with `???` in lines that the files do not determine.

    Args:
      path: A file or a folder.

    Raises:
      SourceError: A file is damaged, or there are no supported files.
    """
    path = os.fspath(path)
    content = None
    if stores.as_path(path).is_dir():
        content = _scan_folder(path)
    elif os.path.splitext(path)[1] in KINDS:
        content = _scan_file(path)
    if not (content and content.arrays):
        raise SourceError(f"no arrays, expected files of {', '.join(KINDS)}, or images", file=path)
    name = _quote(os.path.basename(path.rstrip("/")))
    first = f"# A proposal for {name}: check each line, and replace each {UNKNOWN}."
    return "\n".join([first, "layout: 1", *content.lines, *_Proposal(content).lines()]) + "\n"


def _scan_file(path: str, lines: tuple[str, ...] = (), one_per: str = "") -> _FolderContent:
    for pattern in ("*", "*/*") if path.endswith((".h5", ".hdf5")) else ():
        names = list_groups(path, pattern)
        kinds = collections.Counter(re.sub(r"\d+", "*", name) for name in names)
        ((most_common, count),) = kinds.most_common(1) or [("", 0)]
        if count > 1:
            first = next(name for name in names if re.sub(r"\d+", "*", name) == most_common)
            line = f"groups: {json.dumps(most_common)}  # {count:,} groups"
            return _FolderContent(open_arrays(path, first), (*lines, line), "group")
    return _FolderContent(open_arrays(path), lines, one_per)


def _scan_folder(path: str) -> _FolderContent | None:
    entries = [e for e in stores.list_directory(stores.as_path(path)) if e.name[:1] != "."]
    files = [entry.name for entry in entries if not entry.is_dir]
    if any(map(is_image, files)):
        return _FolderContent(open_arrays(path))
    kinds = collections.Counter(os.path.splitext(name)[1] for name in files)
    counts = [(count, kind) for kind, count in kinds.items() if kind in KINDS]
    if counts:
        count, kind = max(counts)
        first = next(name for name in files if name.endswith(kind))
        line = f'files: "*{kind}"  # {count:,} files'
        return _scan_file(os.path.join(path, first), (line,), "file" if count > 1 else "")
    folders = (open_arrays(os.path.join(path, entry.name)) for entry in entries if entry.is_dir)
    return next((_FolderContent(arrays, (), "folder") for arrays in folders if arrays), None)


class _Proposal:
    """The lines of a layout, by the names, dtypes and shapes of arrays."""

    def __init__(self, content: _FolderContent) -> None:
        self._content, self._arrays = content, content.arrays
        self._fields: dict[str, Field] = {}
        self._unreadable: list[str] = []
        for name in [*self._arrays][:_MAX_FIELDS]:
            try:
                self._fields[name] = self._arrays[name].field()
            except SourceError:
                self._unreadable.append(name)
        lengths = [self._arrays[name].length for name in self._fields]
        counts = collections.Counter(n for n in lengths if n is not None)
        # Observations may have one more row than actions.
        self._rows = max(counts, key=lambda n: (counts[n] + counts[n + 1], n), default=0)

    def lines(self) -> Iterator[str]:
        step_names = [
            name
            for name in self._fields
            if self._arrays[name].length in (self._rows, self._rows + 1)
        ]
        flags = {name: note for name in step_names if (note := self._flag(name))}
        boundary, end_arrays = self._propose_boundary()
        yield from _ask("episodes", boundary)
        yield from _ask("order")
        yield "# Only with order: sar."
        yield from _ask("final_observation")
        yield from (f"# {_quote(name)}: {note}" for name, note in flags.items())
        yield from _ask("terminal")
        ignored = [*flags, *end_arrays, *self._unreadable]
        names: dict[str, str] = {}
        yield "steps:"
        for name in step_names:
            if name not in ignored:
                names[path := _field_path(name, names)] = name
                yield from self._step(path, name)
        used_names = {*names.values(), *ignored}
        per_episode = [name for name in self._fields if name not in used_names]
        yield from ["episode:"] if per_episode else []
        for name in per_episode:
            names[path := _unused_path(name, names)] = name
            yield f"  {_quote(path)}: {_quote(name)}  # {self._describe(name)}"
        if ignored:
            yield f"leave_out: [{', '.join(map(_quote, ignored))}]"

    def _propose_boundary(self) -> tuple[str, Collection[str]]:
        """Returns a proposal for the key `episodes`, and its arrays."""
        if self._content.one_per:
            return f"{{one_per: {self._content.one_per}}}", ()
        rows = self._rows
        for name, field in self._fields.items():
            length = self._arrays[name].length
            is_integer = not field.shape and field.column_dtype.kind in "iu"
            if not is_integer or not length or length > min(rows, _MAX_ROWS):
                continue
            values = self._arrays[name].rows(0, length).astype(np.int64)
            key = ""
            is_sorted = np.all(np.diff(values) >= 0)
            if length == rows and _EPISODE_NAME.match(_basename(name)) and is_sorted:
                key = "number"
            elif length < rows and values[-1] == rows and np.all(np.diff(values, prepend=0) > 0):
                key = "end_rows"
            elif length < rows and values.sum() == rows and np.all(values > 0):
                key = "lengths"
            if key:
                return f"{{{key}: {_quote(name)}}}", [name]
        return UNKNOWN, ()

    def _flag(self, name: str) -> str:
        """Returns a description of an array of flags; empty for all other arrays."""
        field, length = self._fields[name], self._arrays[name].length or 0
        is_scalar = field.shape in ((), (1,)) and field.column_dtype.kind in "biuf"
        if not is_scalar or not _FLAG_NAME.match(_basename(name)) or length > _MAX_ROWS:
            return ""
        values = self._arrays[name].rows(0, length)
        if not np.all((values == 0) | (values == 1)):
            return ""
        return f"{field.column_dtype.name}, set in {np.count_nonzero(values):,} of {length:,} rows"

    def _step(self, path: str, name: str) -> Iterator[str]:
        field, note = self._fields[name], self._describe(name)
        if field.encoding or field.column_dtype.kind != "f" or path == rlds.REWARD:
            yield f"  {_quote(path)}: {_quote(name)}  # {note}"
        else:
            yield f"  {_quote(path)}:  # {note}"
            yield f"    from: {_quote(name)}"
            yield f"    unit: {UNKNOWN}"

    def _describe(self, name: str) -> str:
        field, length = self._fields[name], self._arrays[name].length
        kind = "text" if field.is_text else field.column_dtype.name
        kind = f"{field.encoding} image" if field.encoding else kind
        rows = "one value" if length is None else f"{length:,} rows"
        return f"{kind}, {rows}" + (f" of {field.shape}" if field.shape else "")


def _ask(key: str, value: str = UNKNOWN) -> Iterator[str]:
    yield from (f"# {line}" for line in QUESTIONS[key].split("; "))
    yield f"{key}: {value}"


def _basename(name: str) -> str:
    return name.rpartition("/")[2]


def _field_path(name: str, names: dict[str, str]) -> str:
    """Returns the field path for the name of an array."""
    stem = re.sub(r"/?\*?\.[A-Za-z]\w*(?=/|\Z)", "", name).strip("/") or "image"
    root, _, suffix = stem.partition("/")
    for pattern, path in _FIELD_PATTERNS:
        if pattern.match(root.lower()) and suffix:
            return _unused_path(f"{path}/{suffix}", names)
        if pattern.match(_basename(stem).lower()):
            is_observation = path == rlds.OBSERVATION
            return _unused_path(f"{path}/{_basename(stem)}" if is_observation else path, names)
    return _unused_path(stem, names)


def _unused_path(path: str, names: dict[str, str]) -> str:
    """Returns an unused field path."""
    count, name = 1, path
    while name in names or conflicts(names, name) or root_of(name) in _RESERVED_NAMES:
        count, name = count + 1, f"{path}_{count}"
    return name


def _quote(name: str) -> str:
    return name if _PLAIN_SCALAR.match(name) else json.dumps(name)
