"""Writes the types of the server's JSON for the pages: `rlds_creator/static/api_types.d.ts`.

.venv/bin/python tools/api_types.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from rlds_creator import model
from rlds_creator.exporting.jobs import ExportRequest
from rlds_creator.server import messages
from rlds_creator.store import records
from rlds_creator.viewing import labels

TARGET = Path(__file__).parents[1] / "rlds_creator" / "static" / "api_types.d.ts"

# The server writes all fields of these records.
ANSWERS: tuple[type, ...] = (
    model.Person,
    model.Study,
    model.EpisodeRecord,
    model.Consent,
    model.ExportRecord,
    records.Invite,
    records.Counts,
    records.ConsentPage,
    records.StudyStatistics,
    labels.ShownLayer,
    labels.ShownLabel,
)
# Pages may omit fields of these records that have a default.
REQUESTS: tuple[type, ...] = (
    ExportRequest,
    labels.LabelValue,
    messages.Hello,
    messages.Input,
    messages.Ack,
    messages.ControlPress,
    messages.SettingsChange,
)

_HEAD = "/** The records that the server and the pages exchange. Written by tools/api_types.py. */"
_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


def declarations() -> str:
    """Returns the content of `TARGET`."""
    by_name: dict[str, str] = {}
    for classes, is_answer in ((ANSWERS, True), (REQUESTS, False)):
        _, components = msgspec.json.schema_components(classes, ref_template="{name}")
        for name, schema in components.items():
            by_name.setdefault(name, _declaration(name, schema, is_answer))
    return "\n\n".join([_HEAD, *(by_name[name] for name in sorted(by_name))]) + "\n"


def _declaration(name: str, schema: dict[str, Any], is_answer: bool) -> str:
    doc = f"/** {schema['description'].splitlines()[0]} */\n" if "description" in schema else ""
    if "properties" not in schema:
        return f"{doc}export type {name} = {_type(schema)};"
    required = schema["properties"] if is_answer else schema.get("required", ())
    fields = [
        f"  {field}{'' if field in required else '?'}: {_type(kind)};\n"
        for field, kind in schema["properties"].items()
    ]
    return f"{doc}export interface {name} {{\n{''.join(fields)}}}"


def _type(schema: dict[str, Any]) -> str:
    """Returns the TypeScript type of a schema."""
    match schema:
        case {"$ref": name}:
            return str(name)
        case {"enum": values}:
            return " | ".join(json.dumps(value) for value in values)
        case {"const": value}:
            return json.dumps(value)
        case {"anyOf": schemas}:
            return " | ".join(dict.fromkeys(map(_type, schemas)))
        case {"type": "array", "items": items}:
            kind = _type(items) if items else "any"
            return f"({kind})[]" if re.search(r"\W", kind) else f"{kind}[]"
        case {"type": "object", "additionalProperties": values}:
            return f"Record<string, {_type(values)}>"
        case {"type": "object"}:
            return "Record<string, any>"
        case {"type": "null"}:
            return "null"
        case {"type": kind}:
            return _PLAIN[kind]
        case _:
            return "any"


if __name__ == "__main__":
    TARGET.write_text(declarations())
