"""Storage of labels (annotations) of episodes and steps next to their unchanged data.

A layer of labels is an append-only file of JSON lines. The last row of an annotator for the same
steps of an episode is valid; a retraction is also a row. Labels refer to episodes by the digests of
their steps, so they are valid for all copies.

The values and the keyboard shortcuts of a layer may be declared in `layers.json`.

This module is not in `rlds.labels`, because the table of episodes has a column of labels.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import os
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rlds.sources import reading
from rlds.sources.dataset_folders import cache_folder_of, folder_of, root_of
from rlds.sources.source import AnySource, SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.files.caches import cache_folder
from rlds_ecosystem.files.replacing import FOLDER, finish_replacing
from rlds_ecosystem.files.whole_files import lock_directory, write_atomically

__all__ = [
    "COLUMN",
    "TYPES",
    "Label",
    "Layer",
    "append",
    "can_be_written",
    "copy_lines",
    "declare",
    "declared_layers",
    "folders_of",
    "has_labels",
    "label_column",
    "layer_types",
    "new_folders",
    "now",
    "readable_rows",
    "rows",
    "state_of",
    "type_of",
    "valid_labels",
]

T = TypeVar("T")

COLUMN = "label"
"""The column of the table of episodes, a struct with fields for each layer."""

TYPES: Mapping[str, type] = {"flag": bool, "choice": str, "text": str, "number": float}
"""The types of labels, each with the Python type of its values."""


def type_of(value: Any) -> str:
    """Returns the default type of a layer, from its first value."""
    return {bool: "flag", str: "choice"}.get(value.__class__, "number")


_LABELS_FOLDER, _LAYERS_FILE = "labels", "layers.json"
_LAYER_NAME_RULE = (
    "a lower-case letter, then lower-case letters, digits or _, at most 64 characters"
)
_DIGEST = re.compile("[0-9a-f]{32}")


def _is_layer_name(name: Any) -> bool:
    """Returns True if a name is valid for a layer: as a file name, and as a field in SQL."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and not name.startswith("_")
        and name == unicodedata.normalize("NFKC", name.lower())
        and len(name) <= 64
        and len(name.encode()) <= 200
    )


def now() -> str:
    """Returns the current time in ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Label:
    """A label of an episode, or of some of its steps, by an annotator.

    Attributes:
      layer: The name of the layer: small letters of any script, digits and `_`.
      type: The type of the value: flag, choice, text or number.
      episode: The digest of the steps of the episode, in hexadecimal digits.
      key: The key of the episode when it was labelled.
      begin: The first step; None for the whole episode.
      end: The step after the last one.
      value: The value; None in a retraction.
      annotator: The name of the annotator.
      at: The time, in the form of ISO 8601.
      tool: The program that wrote the label.
      retracts: The `id` of the retracted label; None for a label.
      id: The unique identifier of the row.

    Raises:
      ValueError: An attribute is not valid.
    """

    layer: str
    type: str
    episode: str
    key: str = ""
    begin: int | None = None
    end: int | None = None
    value: bool | float | str | None
    annotator: str
    at: str = dataclasses.field(default_factory=now)
    tool: str = ""
    retracts: str | None = None
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        steps, value_type = (self.begin, self.end), TYPES.get(self.type)
        are_steps = all(type(step) is int for step in steps)
        is_range = are_steps and 0 <= (self.begin or 0) < (self.end or 0)
        is_valid_end = is_range or steps == (None, None)
        is_text = {type(self.id), type(self.key), type(self.at)} == {str}
        # NaN, which does not equal itself, is not allowed.
        is_valid_value = type(self.value) is value_type and self.value == self.value
        _check(
            self,
            ("layer", _is_layer_name(self.layer), _LAYER_NAME_RULE),
            ("type", value_type, f"one of {', '.join(TYPES)}"),
            ("episode", _DIGEST.fullmatch(self.episode), "32 hexadecimal digits"),
            ("annotator", self.annotator and isinstance(self.annotator, str), "a name"),
            ("id", is_text, "text, like key and at"),
            ("end", is_valid_end, f"a step after begin ({self.begin}), or None for both"),
            ("value", self.retracts or is_valid_value, f"a {self.type}"),
        )

    @property
    def target(self) -> tuple[Any, ...]:
        """The annotator, layer, episode and steps: the last row with the same target is valid."""
        return self.annotator, self.layer, self.episode, self.begin, self.end


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of labels: the type and the choices of its values.

    Attributes:
      name: The name in files and conditions: small letters of any script, digits and `_`.
      type: The type of the values: flag, choice, text or number.
      choices: The usual values of a choice; other values are allowed.
      keys: The keyboard keys of the choices, in order, as browsers name their positions: `KeyG`;
        for the other types one key. Empty for no key.
      whole: True if a label is of an episode, not of some of its steps.
      doc: Instructions for annotators.
      title: The name that annotators see, if it differs from `name`.

    Raises:
      ValueError: An attribute is not valid.
    """

    name: str
    type: str
    choices: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    whole: bool = False
    doc: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        texts = (*self.choices, *self.keys)
        are_choices_allowed = self.type == "choice" or not self.choices
        _check(
            self,
            ("name", _is_layer_name(self.name), _LAYER_NAME_RULE),
            ("type", self.type in TYPES, f"one of {', '.join(TYPES)}"),
            ("choices", are_choices_allowed, f"no choices for the type {self.type}"),
            ("choices", len({*self.choices}) == len(self.choices), "no choice twice"),
            ("keys", {*map(type, texts)} <= {str} and "" not in self.choices, "texts"),
            ("title", isinstance(self.title, str), "a text"),
        )


def _check(row: Label | Layer, *rules: tuple[str, object, str]) -> None:
    """Checks attributes; a rule is a name, its validity, and a description of valid values."""
    for name, is_valid, expected in rules:
        if not is_valid:
            raise ValueError(f"{name}: got {getattr(row, name)!r}, expected {expected}")


def folders_of(source: AnySource) -> tuple[Path, ...]:
    """Returns the label folders of a source: next to the data, and in the cache.

    For a dataset of one file: the existing folder next to the file, or the cache.
    """
    folders = [folder / _LABELS_FOLDER for folder in folder_of(source)]
    if not folders and (shared := Path(root_of(source)).parent / FOLDER / _LABELS_FOLDER).is_dir():
        folders = [shared]
    return (*folders, *cache_folder_of(source, "labels"))


def has_labels(source: AnySource) -> bool:
    """Returns True if a base of a source has label layers."""
    return any(layer_types(folders_of(base)) for base in reading.roots(source))


def new_folders(
    source: AnySource, draft: str | os.PathLike[str], target: str | os.PathLike[str]
) -> tuple[Path, ...]:
    """Returns the label folders of a new dataset, whose draft will be renamed.

    Args:
      source: The source of the new dataset.
      draft: The current path.
      target: The final path.
    """
    if folders := [folder / _LABELS_FOLDER for folder in folder_of(source)]:
        return tuple(folders)
    file, draft = Path(root_of(source)), os.path.abspath(draft)
    if file.parent == Path(draft):
        return (file.parent / FOLDER / _LABELS_FOLDER,)
    cache = cache_folder("labels", os.path.realpath(Path(target, os.path.relpath(file, draft))))
    return (cache,) if cache else ()


def rows(folders: Iterable[Path]) -> tuple[Label, ...]:
    """Returns all rows, in order.

    Raises:
      SourceError: A line is damaged. An incomplete last line of a killed writer is ignored.
    """
    return _rows(state_of(folders))


def layer_types(folders: Iterable[Path]) -> dict[str, str]:
    """Returns the types of the layers, by name; reads the first row of each layer."""
    folders = tuple(folders)
    kinds = {name: layer.type for name, layer in declared_layers(folders).items()}
    for file in _files(folders):
        with open(file, "rb") as stream:
            row = next(filter(None, map(_label_if_readable, stream)), None)
        if row is not None:
            kinds.setdefault(row.layer, row.type)
    return kinds


def declared_layers(folders: Iterable[Path]) -> dict[str, Layer]:
    """Returns the declared layers, by name.

    Raises:
      SourceError: The file of layers is damaged.
    """
    layers: dict[str, Layer] = {}
    for file in (folder / _LAYERS_FILE for folder in folders):
        try:
            for layer in json.loads(file.read_bytes()) if file.is_file() else []:
                lists = {name: tuple(layer.get(name, ())) for name in ("choices", "keys")}
                layers.setdefault(layer["name"], _from_json(Layer, {**layer, **lists}))
        except (*_INVALID_ROW_ERRORS, LookupError, AttributeError) as error:
            problem = f"not a list of label layers: {error}. Correct the file, or delete it"
            raise SourceError(problem, file=file) from error
    return layers


def declare(folders: Sequence[Path], layers: Iterable[Layer]) -> None:
    """Declares label layers; replaces layers of the same names.

    Raises:
      OSError: No folder for labels is writable.
      ValueError: A layer has labels of another type.
    """
    new = {layer.name: layer for layer in layers}
    for name, kind in layer_types(folders).items():
        if name in new and kind != new[name].type and _files(folders, name):
            raise ValueError(
                f"type: got {new[name].type}, but the layer {name!r} has labels of type {kind}"
            )

    def write(folder: Path) -> None:
        file = folder / _LAYERS_FILE
        layers = json.loads(file.read_bytes()) if file.is_file() else []
        content = {layer["name"]: layer for layer in layers}  # Newer releases may add keys.
        for name, layer in new.items():
            content[name] = dataclasses.asdict(layer)
            if not layer.title:  # Earlier releases lack this field.
                del content[name]["title"]
        write_atomically(file, json.dumps([*content.values()], indent=1).encode() + b"\n")

    _write_to_first(folders, write)


def state_of(folders: Iterable[Path], layers: Iterable[str] = "*") -> tuple[Any, ...]:
    """Returns a cache key that changes with each new label of some or all layers."""
    files = [file for layer in layers for file in _files(folders, layer)]
    return tuple((f, f.stat().st_size, f.stat().st_mtime_ns) for f in files)


def can_be_written(folders: Iterable[Path]) -> bool:
    """Returns True if the permissions of a folder allow to store labels; writes nothing."""
    existing = (next((f for f in (d, *d.parents) if f.exists()), None) for d in folders)
    return any(f is not None and f.is_dir() and os.access(f, os.W_OK) for f in existing)


def _files(folders: Iterable[Path], layer: str = "*") -> list[Path]:
    return [file for folder in folders for file in sorted(folder.glob(f"{layer}.jsonl"))]


@functools.lru_cache(maxsize=8)
def _rows(state: tuple[tuple[Path, int, int], ...]) -> tuple[Label, ...]:
    labels: dict[str, Label] = {}
    for file, _, _ in state:
        for row in _parse_lines(file, file.read_bytes().split(b"\n")):
            labels.setdefault(row.id, row)
    return tuple(labels.values())


def _parse_lines(file: Path, lines: Sequence[bytes]) -> Iterator[Label]:
    for line_number, line in enumerate(lines, 1):
        try:
            if line.strip():
                yield _parse_label(line)
        except _INVALID_ROW_ERRORS as error:
            if line_number < len(lines):
                raise SourceError(
                    f"line {line_number}: not a label: {error}. Correct or delete this line, or "
                    "install the newer release that wrote it. Conditions and edits without labels "
                    "work",
                    file=file,
                ) from error


# `RecursionError` is raised for deeply nested lists.
_INVALID_ROW_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)


def _parse_label(line: bytes) -> Label:
    """Returns the label of a line.

    Raises:
      OverflowError, RecursionError, TypeError, ValueError: The line is not a label.
    """
    if not isinstance(row := json.loads(line), dict):
        raise ValueError("expected a JSON object")
    if row.get("type") == "number" and type(row.get("value")) is int:
        row["value"] = float(row["value"])
    return _from_json(Label, row)


def _from_json(kind: type[T], values: Mapping[str, Any]) -> T:
    """Creates a label or a layer; ignores fields of newer releases."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    arguments = {field.name: values[field.name] for field in fields if field.name in values}
    # If a field has no default, both attributes are `MISSING`.
    required_names = {field.name for field in fields if field.default is field.default_factory}
    if missing := sorted(required_names - arguments.keys()):
        raise ValueError(f"missing: {', '.join(missing)}")
    return kind(**arguments)


def _label_if_readable(line: bytes) -> Label | None:
    with contextlib.suppress(*_INVALID_ROW_ERRORS):
        return _parse_label(line)
    return None


def copy_lines(folders: Iterable[Path], target: Sequence[Path]) -> None:
    """Appends label lines, including damaged lines, to the labels of another dataset.

    Existing lines are not repeated.

    Raises:
      OSError: No folder for labels is writable.
    """
    folders = tuple(folders)
    lines: dict[str, dict[bytes, None]] = {}
    for file in _files(folders):
        *complete, last_line = file.read_bytes().split(b"\n")
        if _label_if_readable(last_line):  # A killed writer leaves an incomplete line.
            complete.append(last_line)
        lines.setdefault(file.name, {}).update(dict.fromkeys(complete))
    layers = next((f for f in (folder / _LAYERS_FILE for folder in folders) if f.is_file()), None)

    def write(folder: Path) -> None:
        for name, new_lines in lines.items():
            files = [file for folder in target if (file := folder / name).exists()]
            existing_lines = {line for file in files for line in file.read_bytes().split(b"\n")}
            if new := b"".join(line + b"\n" for line in new_lines if line not in existing_lines):
                _append_lines(folder / name, new)
        if layers and not any((folder / _LAYERS_FILE).exists() for folder in target):
            write_atomically(folder / _LAYERS_FILE, layers.read_bytes())

    if (lines or layers) and target:
        _write_to_first(target, write)


def readable_rows(folders: Iterable[Path]) -> list[Label]:
    """Returns all rows except damaged rows."""
    lines = (line for file in _files(folders) for line in file.read_bytes().split(b"\n"))
    return [*filter(None, map(_label_if_readable, lines))]


def valid_labels(folders: Iterable[Path]) -> list[Label]:
    """Returns the valid labels: the last rows of their targets, without retractions."""
    last_labels: dict[tuple[Any, ...], Label] = {}
    for row in rows(folders):
        last_labels.pop(row.target, None)
        last_labels[row.target] = row
    return [row for row in last_labels.values() if row.retracts is None]


def append(
    folders: Sequence[Path], new: Sequence[Label], check: Callable[[], None] | None = None
) -> None:
    """Appends either all or none of the rows to the layers in the first writable folder.

    Args:
      folders: The folders, see `folders_of`.
      new: The rows.
      check: Raises an error if the episodes were replaced; called under the lock.

    Raises:
      OSError: No folder is writable.
      SourceError: A layer has a damaged line, after which no row would be readable.
      ValueError: A text is not valid Unicode.
    """
    layers = {row.layer: b"" for row in new}
    for row in new:
        text = json.dumps(dataclasses.asdict(row), ensure_ascii=False)
        layers[row.layer] += text.encode() + b"\n"
    _rows(state_of(folders, layers))

    def add(folder: Path) -> None:
        if check is not None:
            check()
        sizes: dict[Path, int] = {}
        try:
            for layer, lines in layers.items():
                file = folder / f"{layer}.jsonl"
                sizes[file] = file.stat().st_size if file.exists() else 0
                _append_lines(file, lines)
        except OSError:  # For example, the disk is full.
            for file, end in sizes.items():
                if file.exists():
                    os.truncate(file, min(end, file.stat().st_size))
            raise

    _write_to_first(folders, add)


def _write_to_first(folders: Sequence[Path], write: Callable[[Path], None]) -> None:
    """Writes to the first writable folder."""
    failure: OSError | None = None
    for folder in folders:
        try:
            _write_locked(folder, write)
            return
        except OSError as error:
            failure = error
    raise OSError(
        f"cannot write labels to any of {', '.join(map(str, folders))}: {failure}. Set "
        "RLDS_CACHE_DIR to a folder that can be written"
    ) from failure


def _write_locked(folder: Path, write: Callable[[Path], None]) -> None:
    """Writes to a label folder under a lock: another process may replace its dataset."""
    while True:
        finish_replacing(folder.parent.parent)  # `mkdir` would hide an unfinished replacement.
        with contextlib.ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock_directory(folder))
            except FileNotFoundError:
                continue
            write(folder)
            return


def _append_lines(file: Path, lines: bytes) -> None:
    with open(file, "a+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(end - 1, 0))
        if stream.read(1) not in (b"", b"\n"):
            stream.seek(0)
            torn = stream.read().rpartition(b"\n")[2]
            if _label_if_readable(torn):
                lines = b"\n" + lines
            else:  # A killed writer left an incomplete, unacknowledged line.
                stream.truncate(end - len(torn))
        stream.write(lines)
        stream.flush()
        os.fsync(stream.fileno())


def summary(folders: Sequence[Path]) -> Any:
    """Returns the labels of each episode, as a `pyarrow.Table`; None without layers.

    Its columns are `digest` and `label`, a struct with fields for each layer: `<layer>`, the value
    of the episode if all annotators agree; `<layer>.n` and `<layer>.by`, the number and the names
    of the annotators of the episode or its steps; and `<layer>.disagree`. The last row holds the
    values of episodes without labels.
    """
    labels, layers = valid_labels(folders), layer_types(folders)
    if not layers:
        return None
    arrow = import_extra("pyarrow")
    episodes = [*dict.fromkeys(row.episode for row in labels), ""]
    arrow_types = {bool: arrow.bool_(), str: arrow.string(), float: arrow.float64()}
    fields: dict[str, Any] = {}
    for layer in sorted(layers):
        rows_of: dict[str, list[Label]] = {episode: [] for episode in episodes}
        for row in labels:
            if row.layer == layer:
                rows_of[row.episode].append(row)
        kinds = {type(row.value) for rows in rows_of.values() for row in rows}
        kind: Any = kinds.pop() if len(kinds) == 1 else str if kinds else TYPES[layers[layer]]
        values = [{kind(row.value) for row in rows if row.end is None} for rows in rows_of.values()]
        fields[layer] = arrow.array(
            [next(iter(texts)) if len(texts) == 1 else None for texts in values], arrow_types[kind]
        )
        annotators = [sorted({row.annotator for row in rows}) for rows in rows_of.values()]
        fields[f"{layer}.n"] = arrow.array(map(len, annotators), arrow.int32())
        fields[f"{layer}.by"] = arrow.array(annotators, arrow.list_(arrow.string()))
        fields[f"{layer}.disagree"] = arrow.array([len(texts) > 1 for texts in values])
    digests = arrow.array([bytes.fromhex(digest) or None for digest in episodes], arrow.binary())
    struct = arrow.StructArray.from_arrays(list(fields.values()), list(fields))
    return arrow.table({"digest": digests, COLUMN: struct})


def label_column(digests: Any, labels: Any) -> Any:
    """Selects the labels of episodes from a `summary`, in the order of their digests."""
    compute = import_extra("pyarrow.compute")
    indices = compute.index_in(digests, value_set=labels["digest"].combine_chunks())
    return labels[COLUMN].take(compute.fill_null(indices, len(labels) - 1))
