"""Import and export of labels as CSV, JSON, Parquet or Label Studio files."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlds.labels.labels import Labels
from rlds.sources.label_copying import copy_label
from rlds.sources.label_rows import Label, now, type_of
from rlds.sources.rates import rate_in
from rlds.sources.source import SourceError
from rlds_ecosystem import import_extra
from rlds_ecosystem.files import stores
from rlds_ecosystem.files.whole_files import write_atomically

__all__ = ["as_labels", "as_text", "read", "write"]

_COLUMNS = ("layer", "type", "value", "key", "steps", "begin", "end", "annotator", "at", "tool")
_ALL_COLUMNS = (*_COLUMNS, "id", "episode")
# Required columns of a table from another tool, in addition to `episode` or `key`.
_REQUIRED_COLUMNS = ("layer", "value", "annotator")
_UNKNOWN_DIGEST = "0" * 32
_MAX_SHOWN_MESSAGES = 5


def write(labels: Labels, path: str | os.PathLike[str]) -> int:
    """Writes the valid labels to a file; returns the number of labels.

    Args:
      labels: The labels.
      path: The file: .csv, .jsonl (JSON lines) or .parquet, with a row for each label; or .json,
        with a Label Studio task for each episode.

    Raises:
      ValueError: The file has another suffix.
    """
    kind, content = _suffix_of(path), io.BytesIO()
    lengths = dict(zip(labels.digests, labels.lengths))
    entries = [{**vars(row), "steps": lengths[row.episode]} for row in labels]
    rows = [{name: row[name] for name in _ALL_COLUMNS} for row in entries]
    if kind == ".jsonl":
        content.write("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode())
    elif kind == ".json":
        content.write(json.dumps(_create_tasks(labels), ensure_ascii=False, indent=1).encode())
    else:
        texts = [{**row, "value": as_text(row["value"])} for row in rows]
        if kind == ".parquet":
            table = import_extra("pyarrow").table({n: [t[n] for t in texts] for n in _ALL_COLUMNS})
            import_extra("pyarrow.parquet").write_table(table, content)
        else:
            stream = io.TextIOWrapper(content, "utf-8", newline="", write_through=True)
            writer = csv.DictWriter(stream, _ALL_COLUMNS)
            writer.writeheader()
            writer.writerows(texts)
            stream.detach()
    write_atomically(path, content.getvalue())
    return len(rows)


def read(path: str | os.PathLike[str], labels: Labels) -> list[Label]:
    """Reads new labels from a file in a format of `write`, for `labels.add_rows`.

    Only `layer`, `value`, `annotator`, and `episode` or `key` are required.

    Args:
      path: The file.
      labels: The labels of the dataset.

    Raises:
      SourceError: The file is damaged, or lacks required columns.
      ValueError: The file has another suffix, or a row is not valid or of an unknown episode; the
        message has its number.
    """
    kind, content = _suffix_of(path), stores.as_path(path).read_bytes()
    columns: Sequence[str] | None = None
    rows: Any
    try:
        if kind == ".parquet":
            table = import_extra("pyarrow.parquet").read_table(io.BytesIO(content))
            rows, columns = table.to_pylist(), table.column_names
        elif kind == ".csv":
            rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
            columns = rows.fieldnames or ()
        elif kind == ".jsonl":
            rows = [json.loads(line) for line in content.splitlines() if line.strip()]
        else:
            rows = list(_parse_regions(json.loads(content)))
        rows = [{**row} for row in rows]
    except (ValueError, TypeError, LookupError, AttributeError, csv.Error) as error:
        raise SourceError(f"not readable as {kind} file of labels ({error})", file=path) from error
    if columns is not None and not (
        {*_REQUIRED_COLUMNS} <= {*columns} and {"episode", "key"} & {*columns}
    ):
        raise SourceError(
            f"got the columns {', '.join(map(repr, columns)) or 'none'}, expected "
            f"{', '.join(_REQUIRED_COLUMNS)}, and episode or key",
            file=path,
        )
    return as_labels(rows, labels, prefix=f"{os.fspath(path)}: ", is_text=kind != ".jsonl")


def as_labels(
    rows: Iterable[Mapping[str, Any]], labels: Labels, *, prefix: str = "", is_text: bool = True
) -> list[Label]:
    """Converts rows of a file to labels; skips labels that are already stored. See `read`.

    A row refers to an episode by its digest (`episode`), or by a unique `key` and the number of
    `steps`. Changed rows are new labels.

    Args:
      rows: The rows.
      labels: The labels of the dataset.
      prefix: The prefix of errors.
      is_text: True if all values are texts; values of a new layer without a `type` are parsed as
        numbers or flags.

    Raises:
      ValueError: A row is not valid, or of an unknown episode; the message has its number.
    """
    layers, labels_by_id = labels.layers(), {row.id: row for row in labels.rows()}
    identities = {_identify(row) for row in labels}
    digests, keys, lengths = labels.digests, labels.keys, labels.lengths
    by_digest = {digest: episode for episode, digest in enumerate(digests) if digest}
    by_key: dict[str, list[int]] = {}
    for episode in by_digest.values():
        by_key.setdefault(keys[episode], []).append(episode)
    new: list[Label] = []
    missing: list[str] = []
    for row_number, row in enumerate(rows, 1):
        values = {n: v for n, v in row.items() if v is not None and (v != "" or n == "value")}
        digest, key = str(values.get("episode", "")), str(values.get("key", ""))
        try:
            steps = _step(values.get("steps"))
            label = _parse(values, layers, digest or _UNKNOWN_DIGEST, is_text=is_text)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{prefix}row {row_number}: {error}") from None
        old = labels_by_id.get(label.id)
        # A stored label is skipped, even if its episode was changed since.
        if old is not None and _identify(old)[1:] == _identify(label)[1:]:
            continue
        matches = by_key.get(key, [])
        episode = by_digest.get(digest, matches[0] if len(matches) == 1 else -1)
        is_match = digest in by_digest or steps == lengths[episode] or not (digest or steps)
        if episode < 0 or not is_match:
            why = "is not in this dataset"
            if episode >= 0:
                why = f"has {lengths[episode]} steps in this dataset"
            missing.append(f"row {row_number}: episode {key or digest!r} {why}")
            continue
        label = dataclasses.replace(label, key=keys[episode])
        if not digest:
            label = dataclasses.replace(label, episode=digests[episode])
        elif digest not in by_digest:
            target = digests[episode], keys[episode], lengths[episode]
            label = next(copy_label(label, *target), label)
        if _identify(label) in identities:
            continue
        if label.id in labels_by_id:
            label = dataclasses.replace(label, id=uuid.uuid4().hex, at=now())
        labels_by_id[label.id] = label
        identities.add(_identify(label))
        new.append(label)
    if missing:
        num_more = len(missing) - _MAX_SHOWN_MESSAGES
        ellipsis = f"; and {num_more} more" if num_more > 0 else ""
        raise ValueError(
            f"{prefix}no episode of this dataset matches {len(missing)} rows, so no row was added: "
            f"{'; '.join(missing[:_MAX_SHOWN_MESSAGES])}{ellipsis}"
        )
    return new


def _identify(label: Label) -> tuple[Any, ...]:
    """Returns the values by which labels are compared."""
    return label.episode, label.layer, label.value, label.begin, label.end, label.annotator


def _parse(row: Mapping[str, Any], layers: dict[str, str], episode: str, *, is_text: bool) -> Label:
    for name in _REQUIRED_COLUMNS:
        if name not in row:
            raise ValueError(f"{name} is missing")
    layer, value = str(row["layer"]), row["value"]
    guess = _parse_value(value) if is_text and isinstance(value, str) else value
    kind = layers.setdefault(layer, str(row.get("type") or type_of(guess)))
    if kind in ("flag", "number") and isinstance(value, str):
        value = _parse_value(value)
    options = {name: str(row[name]) for name in ("at", "tool", "id", "key") if name in row}
    return Label(
        layer=layer,
        type=kind,
        episode=episode,
        begin=_step(row.get("begin")),
        end=_step(row.get("end")),
        value=float(value) if type(value) is int else value,
        annotator=str(row["annotator"]),
        **options,
    )


def _suffix_of(path: str | os.PathLike[str]) -> str:
    name, kind = os.fspath(path), os.path.splitext(path)[1]
    if kind not in (".csv", ".jsonl", ".parquet", ".json"):
        raise ValueError(f"{name!r}: expected a name with .csv, .jsonl, .parquet or .json")
    return str(kind)


def _step(value: Any) -> int | None:
    """Parses the index of a step; other programs may write it as 3.0."""
    if value is None or value != value:
        return None
    try:
        step = int(float(value))
    except (TypeError, ValueError, OverflowError):
        step = None
    if step is None or float(value) != step:
        raise ValueError(f"got {value!r}, expected the number of a step")
    return step


def _parse_value(text: str) -> bool | int | float | str:
    """Parses a text as a flag or a number; returns any other text."""
    try:
        value = json.loads(text.lower())
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text


def as_text(value: Any) -> str:
    """Returns the value of a label as text."""
    return value if isinstance(value, str) else json.dumps(value)


# --- Label Studio: a task for each episode; frames count from 1, and ranges include their end.

# The key of the values of a region, by the type of label. Labels of steps are timelinelabels.
_REGION_KEYS = {"flag": "choices", "choice": "choices", "number": "number", "text": "text"}
_META_COLUMNS = ("type", "annotator", "at", "tool")


def _create_tasks(labels: Labels) -> list[Any]:
    rate = rate_in(labels.episodes.metadata)
    by_episode: dict[str, dict[str, list[Label]]] = {digest: {} for digest in labels.digests}
    for row in labels:
        by_episode[row.episode].setdefault(row.annotator, []).append(row)
    return [
        {
            "data": {"key": key, "digest": digest, "steps": steps, "fps": rate},
            "annotations": [
                {"created_at": rows[-1].at, "result": [_create_region(row) for row in rows]}
                for rows in by_episode[digest].values()
            ],
        }
        for digest, key, steps in zip(labels.digests, labels.keys, labels.lengths)
        if digest
    ]


def _create_region(row: Label) -> dict[str, Any]:
    name = _REGION_KEYS[row.type]
    value: Any = {name: row.value if row.type == "number" else [as_text(row.value)]}
    if row.begin is not None:
        name = "timelinelabels"
        value = {"ranges": [{"start": row.begin + 1, "end": row.end}], name: [as_text(row.value)]}
    return {
        "id": row.id,
        "type": "textarea" if name == "text" else name,
        "from_name": row.layer,
        "to_name": "video",
        "value": value,
        "meta": {name: getattr(row, name) for name in _META_COLUMNS},
    }


def _parse_regions(tasks: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the regions of Label Studio tasks."""
    for task in tasks:
        data = task["data"]
        episode = {n: data.get(n) for n in ("key", "steps")} | {"episode": data.get("digest")}
        for annotation in task["annotations"]:
            user = annotation.get("completed_by") or ""
            user = user.get("email") or user.get("id") if isinstance(user, Mapping) else user
            for region in () if annotation.get("was_cancelled") else annotation["result"]:
                columns = {"annotator": str(user), "at": annotation.get("created_at")}
                columns |= {n: v for n, v in region.get("meta", {}).items() if n in _META_COLUMNS}
                row = {**episode, **columns, "layer": region["from_name"], "id": region["id"]}
                value = region["value"]
                keys = ("timelinelabels", *_REGION_KEYS.values())
                name = next((key for key in keys if key in value), "")
                if not name:
                    raise ValueError(f"regions of type {region.get('type')!r} are not supported")
                values = value[name] if isinstance(value[name], list) else [value[name]]
                for span in value.get("ranges", [None]):
                    steps = {"begin": span["start"] - 1, "end": span["end"]} if span else {}
                    yield from ({**row, **steps, "value": as_text(text)} for text in values)
