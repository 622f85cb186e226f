"""What a damaged `info.json` said, as far as the data and the videos say it, too."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etils import epath

from rlds.formats.lerobot import layout
from rlds.formats.lerobot.cameras import described
from rlds.formats.lerobot.columns import image_field
from rlds.formats.lerobot.dataset_files import PATHS, Version
from rlds.formats.lerobot.parquet_rows import ParquetRows
from rlds.formats.lerobot.small_files import walk
from rlds.raw_files.untrusted import SourceError, source_errors
from rlds.video.container import VideoFile

__all__ = ["salvaged_info"]


def salvaged_info(root: Path, *, is_v3: bool) -> dict[str, Any]:
    """Returns what `info.json` has to say for the rows and the frames to be read.

    Args:
      root: The folder of the dataset.
      is_v3: Whether the files are those of version 3.0.

    Raises:
      SourceError: No file says what the columns are.
    """
    rows = None
    for data in walk(epath.Path(root / "data"), ".parquet"):
        with contextlib.suppress(SourceError):
            rows = ParquetRows(data)
            break
    if rows is None:
        raise SourceError(
            "damaged, and no data file has a footer that lists its columns. Copy the info.json of "
            "a dataset with the same features here, and recover again",
            file=root / layout.INFO,
        )
    with source_errors(rows.path):
        said = json.loads(rows.schema.metadata[b"huggingface"])["info"]["features"]
        last = rows.read(rows.num_rows - 1, rows.num_rows).to_pylist()[0]
        features = {name: _feature(said.get(name), last[name]) for name in rows.schema.names}
        rate = round(last["frame_index"] / last["timestamp"], 3)
    for file in walk(epath.Path(root / "videos"), ".mp4"):
        name = Path(file).relative_to(root / "videos").parts[0 if is_v3 else 1]
        if name not in features:
            with contextlib.suppress(SourceError):
                features[name] = described(VideoFile(file).info)
    version: Version = "v3.0" if is_v3 else "v2.1"
    paths = dict(zip(("data_path", "video_path"), PATHS[version]))
    return {"codebase_version": version, "fps": rate, **paths, "features": features}


def _feature(said: Mapping[str, Any] | None, value: Any) -> dict[str, Any]:
    """What a column is, by what LeRobot's library says of it in the schema, and a value."""
    if said is None:
        return {"dtype": "language", "shape": [1], "names": None}
    if said["_type"] == "Image":
        shape = [*image_field(value["bytes"]).shape]
        return {"dtype": "image", "shape": shape, "names": layout.IMAGE_NAMES}
    shape = said.get("shape", [said.get("length", 1)])
    dtype = said.get("feature", said)["dtype"]
    return {"dtype": dtype, "shape": list(shape), "names": None}
