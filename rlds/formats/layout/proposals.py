"""Proposes a layout for files of an unknown format: what can be seen, and what has to be asked."""

from __future__ import annotations

import collections
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

import rlds
from rlds.formats.layout.arrays import IMAGES, KINDS, Arrays, FolderArrays, groups_in, open_arrays
from rlds.formats.layout.layouts import QUESTIONS, UNKNOWN
from rlds.raw_files.untrusted import SourceError
from rlds_ecosystem.files import stores
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import conflicts

__all__ = ["propose_layout"]

# Names of arrays that have a role, in many formats.
_OBSERVATIONS = re.compile(
    r"(obs|observations?|states?|images?|rgb\w*|depth\w*|qpos|qvel|joint\w*)\b"
)
_ACTIONS = re.compile(r"(act|acts|actions?|controls?|cmd|commands?)\b")
_REWARDS = re.compile(r"(rew|rews|rewards?)\Z")
_FLAGS = re.compile(
    r"\w*(done|dones|terminal|terminals|terminated|timeouts?|truncated|truncations?|ends?)\Z"
)
_EPISODE = re.compile(r"\w*(episode|traj|demo)\w*")
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*\Z")
_MOST_FIELDS, _MOST_ROWS = 200, 1 << 24


class _Seen(NamedTuple):
    """What there is at a path.

    Attributes:
      arrays: The arrays of the first episode, or of all.
      lines: Lines of the layout that say which files and groups are meant.
      one_per: "file", "folder" or "group"; empty if the arrays may hold several episodes.
    """

    arrays: Arrays
    lines: tuple[str, ...] = ()
    one_per: str = ""


def propose_layout(path: str | os.PathLike[str]) -> str:
    """Returns a layout in YAML with `???` in each line that the files cannot answer.

    Args:
      path: A file or a folder.

    Raises:
      SourceError: A file is damaged, or there are none that a layout can describe.
    """
    seen = _look(os.fspath(path))
    if seen is None or not seen.arrays.lengths():
        what = f"no arrays, expected files of {', '.join(KINDS)}, or images"
        raise SourceError(what, file=path)
    return "\n".join(_lines(os.fspath(path), seen)) + "\n"


def _look(path: str) -> _Seen | None:
    place = stores.as_path(path)
    if place.is_dir():
        return _look_in_folder(path)
    if os.path.splitext(path)[1] not in KINDS:
        return None
    return _look_in_file(path, ())


def _look_in_file(path: str, lines: tuple[str, ...], *, is_one_of_many: bool = False) -> _Seen:
    if path.endswith((".h5", ".hdf5")):
        for pattern in ("*", "*/*"):
            names = groups_in(path, pattern)
            kinds = collections.Counter(re.sub(r"\d+", "*", name) for name in names)
            most, count = kinds.most_common(1)[0] if kinds else ("", 0)
            if count > 1:
                first = next(name for name in names if re.sub(r"\d+", "*", name) == most)
                lines = (
                    *lines,
                    f"groups: {json.dumps(most)}  # {count:,} groups",
                )
                return _Seen(open_arrays(path, first), lines, "group")
    return _Seen(open_arrays(path), lines, "file" if is_one_of_many else "")


def _look_in_folder(path: str) -> _Seen | None:
    entries = [
        it for it in stores.list_directory(stores.as_path(path)) if not it.name.startswith(".")
    ]
    files = sorted(it.name for it in entries if not it.is_dir)
    kinds = collections.Counter(os.path.splitext(name)[1] for name in files)
    found = [(count, kind) for kind, count in kinds.items() if kind in KINDS]
    has_images = any(name.lower().endswith(IMAGES) for name in files)
    if found and not has_images:
        count, kind = max(found)
        first = next(name for name in files if name.endswith(kind))
        line = f'files: "*{kind}"  # {count:,} files'
        return _look_in_file(os.path.join(path, first), (line,), is_one_of_many=count > 1)
    if not has_images:
        for entry in sorted(it.name for it in entries if it.is_dir):
            below = FolderArrays(os.path.join(path, entry))
            if below.lengths():
                return _Seen(below, (), "folder")
    return _Seen(FolderArrays(path)) if files else None


def _lines(path: str, seen: _Seen) -> Iterator[str]:
    arrays = seen.arrays
    fields, unreadable = _fields(arrays)
    lengths = {name: arrays.lengths()[name] for name in fields}
    counts = collections.Counter(n for n in lengths.values() if n is not None)
    rows = max(counts, key=lambda n: (counts[n] + counts[n + 1], n)) if counts else 0
    of_steps = [name for name, n in lengths.items() if n is not None and n in (rows, rows + 1)]
    flags = {name: note for name in of_steps if (note := _flag(arrays, name, fields[name], rows))}
    name = _quoted(os.path.basename(path.rstrip("/")))
    yield f"# A proposal for {name}: check each line, and replace each {UNKNOWN}."
    yield "layout: 1"
    yield from seen.lines
    ends, places = _episodes(seen, fields, lengths, flags, rows)
    yield from _asked("episodes", ends)
    yield from _asked("order", UNKNOWN)
    yield "# Only with order: sar."
    yield from _asked("final_observation", UNKNOWN)
    yield from (f"# {_quoted(name)}: {note}" for name, note in flags.items())
    yield from _asked("terminal", UNKNOWN)
    used: dict[str, str] = {}
    yield "steps:"
    for name in of_steps:
        if name not in flags and name not in places:
            used[_path_of(name, used)] = name
            yield from _step([*used][-1], name, fields[name], lengths[name])
    others = [name for name in fields if name not in {*used.values(), *flags, *places}]
    if others:
        yield "episode:"
        for name in others:
            note = _described(fields[name], lengths[name])
            yield f"  {_quoted(_free(name, used))}: {_quoted(name)}  # {note}"
            used[name] = name
    if flags or places or unreadable:
        yield f"leave_out: [{', '.join(map(_quoted, [*flags, *places, *unreadable]))}]"


def _fields(arrays: Arrays) -> tuple[dict[str, Field], list[str]]:
    """Returns the fields of arrays, and the names of those that cannot be read."""
    fields, unreadable = {}, []
    for name in [*arrays.lengths()][:_MOST_FIELDS]:
        try:
            fields[name] = arrays.field(name)
        except SourceError:
            unreadable.append(name)
    return fields, unreadable


def _asked(key: str, value: str) -> Iterator[str]:
    yield from (f"# {line}" for line in QUESTIONS[key].split("; "))
    yield f"{key}: {value}"


def _episodes(
    seen: _Seen,
    fields: Mapping[str, Field],
    lengths: Mapping[str, int | None],
    flags: Collection[str],
    rows: int,
) -> tuple[str, list[str]]:
    """Returns the value of `episodes`, and the arrays that it uses."""
    if seen.one_per:
        return f"{{one_per: {seen.one_per}}}", []
    for name, length in lengths.items():
        if fields[name].shape or fields[name].column_dtype.kind not in "iu" or not length:
            continue
        if length > _MOST_ROWS:
            continue
        values = np.asarray(seen.arrays.rows(name, 0, length)).astype(np.int64)
        if length < rows and values[-1] == rows and np.all(np.diff(values, prepend=0) > 0):
            return f"{{end_rows: {_quoted(name)}}}", [name]
        if length < rows and values.sum() == rows and np.all(values > 0):
            return f"{{lengths: {_quoted(name)}}}", [name]
        is_number = length == rows and _EPISODE.match(name.rpartition("/")[2])
        if is_number and np.all(np.diff(values) >= 0):
            return f"{{number: {_quoted(name)}}}", [name]
    return UNKNOWN, []


def _flag(arrays: Arrays, name: str, field: Field, rows: int) -> str:
    """Returns a description of an array of flags; nothing if it is none."""
    is_scalar = field.shape in ((), (1,)) and field.column_dtype.kind in "biuf"
    if not is_scalar or not _FLAGS.match(name.rpartition("/")[2]) or rows > _MOST_ROWS:
        return ""
    values = arrays.rows(name, 0, int(arrays.lengths()[name] or 0))
    if not np.all((values == 0) | (values == 1)):
        return ""
    return f"{field.column_dtype.name}, set in {np.count_nonzero(values):,} of {len(values):,} rows"


def _step(path: str, name: str, field: Field, length: int | None) -> Iterator[str]:
    if not field.encoding and field.column_dtype.kind == "f" and path != rlds.REWARD:
        yield f"  {_quoted(path)}:  # {_described(field, length)}"
        yield f"    from: {_quoted(name)}"
        yield f"    unit: {UNKNOWN}"
    else:
        yield f"  {_quoted(path)}: {_quoted(name)}  # {_described(field, length)}"


def _described(field: Field, length: int | None) -> str:
    kind = f"{field.encoding} image" if field.encoding else str(field.column_dtype.name)
    kind = "text" if field.column_dtype.kind == "O" and not field.encoding else kind
    rows = "one value" if length is None else f"{length:,} rows"
    return f"{kind}, {rows}" + (f" of {field.shape}" if field.shape else "")


def _path_of(name: str, used: Mapping[str, Any]) -> str:
    """Returns the path of a field for an array, by its name."""
    stem = re.sub(r"/?\*?\.[A-Za-z]\w*(?=/|\Z)", "", name).strip("/") or "image"
    root, _, rest = stem.partition("/")
    last = stem.rpartition("/")[2]
    for pattern, path in (
        (_REWARDS, rlds.REWARD),
        (_ACTIONS, rlds.ACTION),
        (_OBSERVATIONS, rlds.OBSERVATION),
    ):
        if pattern.match(root.lower()) and rest:
            return _free(f"{path}/{rest}", used)
        if pattern.match(last.lower()):
            return _free(path if path != rlds.OBSERVATION else f"{path}/{last}", used)
    return _free(stem, used)


def _free(path: str, used: Mapping[str, Any]) -> str:
    """Returns a path that no other field has."""
    number, found = 1, path
    while found in used or conflicts(dict(used), found) or found.partition("/")[0] in _RESERVED:
        number, found = number + 1, f"{path}_{number}"
    return found


_RESERVED: Iterable[str] = (*rlds.STEP_FLAGS, "leftover", "source", "episode_id")


def _quoted(name: str) -> str:
    is_plain = _PLAIN.match(name) and name.lower() not in (
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "null",
    )
    return name if is_plain else json.dumps(name)
