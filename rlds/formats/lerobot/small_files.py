"""Reading of the small files of LeRobot datasets: info.json, tasks, and additional files."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from etils import epath

from rlds.formats.lerobot import layout
from rlds.formats.lerobot.language import SUBTASKS
from rlds.formats.lerobot.layout import Info
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.raw_files.untrusted import check_is_file, source_errors
from rlds.sources.source import SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.replacing import FOLDER, RUNNING_PREFIX

__all__ = [
    "decode_schema",
    "encode_schema",
    "leftovers",
    "other_files",
    "read_bytes",
    "read_info",
    "read_lines",
    "read_subtasks",
    "read_tasks",
    "task_text",
    "walk",
]

_MAX_FILE_BYTES = 1 << 28
# The size limit of all additional files in the metadata.
_MAX_OTHER_BYTES = 1 << 25


def read_info(root: epath.Path) -> Info:
    """Reads info.json; the version is detected from the files."""
    file = root / layout.INFO
    with source_errors(file):
        raw = json.loads(read_bytes(file))
    is_old = (root / layout.EPISODES_JSONL).exists()
    is_v3 = not is_old if is_old or (root / layout.EPISODES_FOLDER).exists() else None
    return Info.from_json(raw, file, is_v3=is_v3)


def read_tasks(root: epath.Path, info: Info) -> list[Mapping[str, Any]]:
    """Reads the tasks.

    Returns:
      The rows in the order of the file, with `task_index` and a text.

    Raises:
      SourceError: The table is damaged.
      FileNotFoundError: There is no table.
    """
    file = root / (layout.TASKS if info.is_v3 else layout.TASKS_JSONL)
    if info.is_v3:
        table = ParquetRows(file)
        with source_errors(file):
            rows: list[Mapping[str, Any]] = table.read(0, table.num_rows).to_pylist()
    else:
        rows = [raw for _, raw in read_lines(file)]
    indices: set[int] = set()
    for row_index, row in enumerate(rows):
        index, text = row.get("task_index"), task_text(row)
        if not isinstance(index, int) or not isinstance(text, str) or index in indices:
            problem = f"{row!r:.200}, expected a unique task_index, and the text of the task"
            raise SourceError(problem, file=file, row=row_index)
        indices.add(index)
    return rows


def read_subtasks(root: epath.Path) -> dict[int, str]:
    """Reads the texts of subtasks by their indices; empty if there is no such table."""
    file = root / SUBTASKS
    if not file.exists():
        return {}
    table = ParquetRows(file)
    with source_errors(file):
        rows = table.read(0, table.num_rows).to_pylist()
        return {int(row["subtask_index"]): str(row.get("subtask", task_text(row))) for row in rows}


def task_text(row: Mapping[str, Any]) -> Any:
    """Returns the text of a task, also in tables of pandas with an unnamed index."""
    return row.get("task", row.get("__index_level_0__"))


def other_files(root: epath.Path) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Reads the additional small files of a dataset.

    Returns:
      The contents by path, as `text` or `base64`; and the paths of files that are too large.
    """
    remaining_bytes = _MAX_OTHER_BYTES
    contents: dict[str, dict[str, str]] = {}
    left_out = []
    for folder in ("", "meta/", "extras/"):
        path = root / folder if folder else root
        for entry in sorted(stores.list_directory(path)) if path.exists() else ():
            name = folder + entry.name
            if entry.is_dir or entry.name.startswith(".") or _is_table(name):
                continue
            check_is_file(root / name)
            with stores.open_binary(root / name) as file:
                data = file.read(remaining_bytes + 1)
            if len(data) > remaining_bytes:
                left_out.append(name)
                continue
            remaining_bytes -= len(data)
            try:
                contents[name] = {"text": data.decode()}
            except UnicodeDecodeError:
                contents[name] = {"base64": base64.b64encode(data).decode()}
    return contents, left_out


def leftovers(root: epath.Path) -> list[str]:
    """Returns the temporary folders of a killed recorder, such as images."""
    if not stores.is_local(root):
        return []
    patterns = ("tmp*/", "images/*/episode*/", f"{FOLDER}/{RUNNING_PREFIX}*/")
    folders = (folder for pattern in patterns for folder in sorted(Path(root).glob(pattern)))
    return [folder.relative_to(root).as_posix() for folder in folders]


def _is_table(name: str) -> bool:
    tables = (layout.TASKS, layout.TASKS_JSONL, layout.EPISODES_JSONL, layout.EPISODES_STATS)
    return name in (layout.INFO, *tables) or name.startswith(layout.LEGACY_SIDECAR)


def read_bytes(file: epath.Path) -> bytes:
    """Reads a small file.

    Raises:
      SourceError: The file is too large, or no regular file.
    """
    check_is_file(file)
    with stores.open_binary(file) as stream:
        data = stream.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise SourceError("too large", file=file)
    return data


def read_lines(file: epath.Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the objects of a JSON Lines file, with their byte offsets."""
    check_is_file(file)
    offset = 0
    with stores.open_binary(file) as stream:
        for line_index, line in enumerate(stream):
            start, offset = offset, offset + len(line)
            if not line.strip():
                continue
            with source_errors(file, row=line_index):
                raw = json.loads(line)
                if not isinstance(raw, dict):
                    raise SourceError("expected a JSON object", file=file, row=line_index)
            yield start, raw


def encode_schema(schema: Any) -> str:
    """Encodes an Arrow schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


@functools.cache
def decode_schema(text: str) -> Any:
    """Decodes the result of `encode_schema`."""
    arrow = import_extra("pyarrow")
    return import_extra("pyarrow.ipc").read_schema(arrow.py_buffer(base64.b64decode(text)))


def walk(folder: epath.Path, suffix: str = "") -> Iterator[epath.Path]:
    """Yields the files in a folder and its subfolders."""
    if not folder.exists():
        return
    for entry in sorted(stores.list_directory(folder), key=lambda entry: entry.name):
        if entry.is_dir:
            yield from walk(folder / entry.name, suffix)
        elif entry.name.endswith(suffix) and not entry.name.startswith("."):
            yield folder / entry.name
