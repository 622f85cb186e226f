"""What a damaged `info.json` said: from its beginning, and from the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etils import epath

from rlds.formats.lerobot import layout
from rlds.formats.lerobot.cameras import described
from rlds.formats.lerobot.columns import image_field
from rlds.formats.lerobot.dataset_files import PATHS
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.small_files import walk
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.video.container import VideoFile

__all__ = ["salvaged_info"]


def salvaged_info(root: Path, *, is_v3: bool) -> dict[str, Any]:
    """Returns what `info.json` says, as far as it is known.

    Args:
      root: The folder of the dataset.
      is_v3: Whether the files are those of version 3.0.

    Raises:
      SourceError: No file says what the columns are.
    """
    file = root / layout.INFO
    begun = _begun(file.read_text(errors="replace")) if file.exists() else {}
    for data in walk(epath.Path(root / "data"), ".parquet"):
        try:
            rows = ParquetRows(data)
        except SourceError:
            continue
        with source_errors(data):
            features = _features_of(rows)
            times = rows.read(0, min(rows.num_rows, 2))["timestamp"].to_pylist()
        break
    else:
        raise SourceError(
            "damaged, and no data file has a footer that says what its columns are: put a copy of "
            "the info.json of a dataset that was recorded in the same way here, and recover again",
            file=file,
        )
    data_path, video_path = PATHS["v3.0" if is_v3 else "v2.1"]
    features |= _videos_in(root, is_v3=is_v3)
    known = begun.get("features")
    known = known if isinstance(known, Mapping) else {}
    return {
        "fps": round(1 / (times[1] - times[0])) if len(times) > 1 else 0,
        "data_path": data_path,
        "video_path": video_path,
        **begun,
        "codebase_version": "v3.0" if is_v3 else "v2.1",
        "features": {name: known.get(name, feature) for name, feature in features.items()},
    }


def _begun(text: str) -> dict[str, Any]:
    """What the beginning of an object of JSON says, without the member that is not whole."""
    closing: list[str] = []
    ends: list[tuple[int, str]] = []
    is_text = is_escaped = False
    for place, character in enumerate(text):
        if is_text:
            is_text = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
        elif character == '"':
            is_text = True
        elif character in "{[":
            closing.append("}" if character == "{" else "]")
        elif character in "}]" and closing:
            closing.pop()
        elif character == "," and len(closing) <= 2:
            ends.append((place, "".join(reversed(closing))))
    for place, rest in reversed(ends):
        try:
            found = json.loads(text[:place] + rest)
        except ValueError:
            continue
        return found if isinstance(found, dict) else {}
    return {}


def _features_of(rows: ParquetRows) -> dict[str, Any]:
    """The features of the columns, as LeRobot's library says them in the schema."""
    said = json.loads((rows.schema.metadata or {})[b"huggingface"])["info"]["features"]
    found: dict[str, Any] = {}
    for name in rows.schema.names:
        kind = said.get(name, {}).get("_type")
        if kind is None:
            found[name] = {"dtype": "language", "shape": [1], "names": None}
            continue
        if kind == "Image":
            data = ParquetRows(rows.path, [name]).read(0, 1)[name].to_pylist()[0]["bytes"]
            shape = [*image_field(data).shape]
            found[name] = {"dtype": "image", "shape": shape, "names": layout.IMAGE_NAMES}
            continue
        value = said[name].get("feature", said[name])
        length = said[name].get("length")
        shape = said[name].get("shape", [1] if length is None else [length])
        found[name] = {"dtype": value["dtype"], "shape": list(shape), "names": None}
    return found


def _videos_in(root: Path, *, is_v3: bool) -> dict[str, Any]:
    """The features of videos, by what the first of each is."""
    found: dict[str, Any] = {}
    for file in walk(epath.Path(root / "videos"), ".mp4"):
        name = Path(file).relative_to(root / "videos").parts[0 if is_v3 else 1]
        if name not in found:
            try:
                found[name] = described(VideoFile(file).info)
            except SourceError:
                continue
    return found
