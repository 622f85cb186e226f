"""The rules of LeRobot datasets that readers rely on without a check.

LeRobot 0.6.1 (version 3.0) and 0.3.3 (version 2.1) follow these rules. If a dataset breaks one,
they read wrong values or fail.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ALWAYS = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


def check_layout(root: Path) -> list[dict[str, Any]]:
    """Checks the files of a dataset.

    Returns:
      The rows of each episode: columns as lists, and the text of the task as `task`.
    """
    info = json.loads((root / "meta/info.json").read_text())
    features = info["features"]
    assert info["fps"] > 0
    assert info["splits"]
    columns = {name: feature for name, feature in features.items() if feature["dtype"] != "video"}
    assert (
        columns.items()
        >= {
            name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in ALWAYS.items()
        }.items()
    )
    for name, feature in features.items():
        assert "/" not in name
        assert feature.keys() >= {"dtype", "shape", "names"}
        assert 1 <= len(feature["shape"]) <= 5
        assert all(type(size) is int and size > 0 for size in feature["shape"])
    read = _read_30 if info["codebase_version"] == "v3.0" else _read_21
    episodes, tasks = read(root, info, columns)
    row = 0
    for index, rows in enumerate(episodes):
        length = len(rows["index"])
        assert length
        assert rows["index"] == list(range(row, row + length))
        assert rows["frame_index"] == list(range(length))
        assert rows["episode_index"] == [index] * length
        times = (np.arange(length) / info["fps"]).astype(np.float32)
        assert np.array_equal(np.array(rows["timestamp"], np.float32), times)
        rows["task"] = [tasks[task] for task in rows["task_index"]]
        row += length
    assert (info["total_frames"], info["total_episodes"]) == (row, len(episodes))
    assert info["total_tasks"] == len(tasks)
    return episodes


def _read_30(root: Path, info: dict[str, Any], columns: dict[str, Any]) -> Any:
    stored = pq.read_table(root / "meta/tasks.parquet")
    assert json.loads(stored.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    # The text is looked up by its row in the table.
    assert stored["task_index"].to_pylist() == list(range(len(stored)))
    files = sorted((root / "data").glob("*/*.parquet"))
    tables = {}
    for file in files:
        table = pq.read_table(file)
        _check_schema(table.schema, columns)
        starts = np.flatnonzero(np.diff(table["episode_index"].to_numpy(), prepend=-1))
        metadata = pq.read_metadata(file)
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        assert {*np.cumsum([0, *groups[:-1]]).tolist()} <= {*starts.tolist()}
        assert max(groups) < 500 + max(np.diff([*starts, len(table)]))
        tables[file.relative_to(root).as_posix()] = table
    all_rows = pa.concat_tables(tables.values())
    rows = []
    for file in sorted((root / "meta/episodes").glob("*/*.parquet")):
        assert (root / "meta/episodes").is_dir()
        for row in pq.read_table(file).to_pylist():
            chunk_and_file = row["meta/episodes/chunk_index"], row["meta/episodes/file_index"]
            assert file.as_posix().endswith(
                "chunk-{:03d}/file-{:03d}.parquet".format(*chunk_and_file)
            )
            rows.append(row)
    begin, episodes = 0, []
    for index, row in enumerate(rows):
        end = begin + row["length"]
        assert row["episode_index"] == index
        assert (row["dataset_from_index"], row["dataset_to_index"]) == (begin, end)
        name = info["data_path"].format(
            chunk_index=row["data/chunk_index"], file_index=row["data/file_index"]
        )
        assert index in tables[name]["episode_index"].to_pylist()
        _check_statistics(row, columns)
        episodes.append(all_rows.slice(begin, end - begin).to_pydict())
        texts = stored["task"].to_pylist()
        assert {*row["tasks"]} == {texts[task] for task in episodes[-1]["task_index"]}
        for video in [
            key for key, feature in info["features"].items() if feature["dtype"] == "video"
        ]:
            assert row[f"videos/{video}/to_timestamp"] > row[f"videos/{video}/from_timestamp"]
            assert (
                root
                / info["video_path"].format(
                    video_key=video,
                    chunk_index=row[f"videos/{video}/chunk_index"],
                    file_index=row[f"videos/{video}/file_index"],
                )
            ).exists()
        begin = end
    stats = json.loads((root / "meta/stats.json").read_text())
    assert {*stats} == {key.split("/")[1] for row in rows for key in row if key[:6] == "stats/"}
    return episodes, stored["task"].to_pylist()


def _read_21(root: Path, info: dict[str, Any], columns: dict[str, Any]) -> Any:
    assert type(info["fps"]) is int
    tasks = _lines(root / "meta/tasks.jsonl")
    assert [row["task_index"] for row in tasks] == list(range(len(tasks)))
    rows, stats = _lines(root / "meta/episodes.jsonl"), _lines(root / "meta/episodes_stats.jsonl")
    videos = [name for name, feature in info["features"].items() if feature["dtype"] == "video"]
    assert info["total_videos"] == len(rows) * len(videos)
    assert info["total_chunks"] == -(-len(rows) // info["chunks_size"])
    episodes = []
    for index, (row, episode_stats) in enumerate(zip(rows, stats, strict=True)):
        assert row["episode_index"] == episode_stats["episode_index"] == index
        template_fields = {"episode_chunk": index // info["chunks_size"], "episode_index": index}
        table = pq.read_table(root / info["data_path"].format(**template_fields))
        assert len(table) == row["length"]
        # Readers of this version take the types of columns from the files.
        assert b"huggingface" in table.schema.metadata
        _check_schema(table.schema, columns)
        flat_stats = {
            f"stats/{a}/{b}": v
            for a, kinds in episode_stats["stats"].items()
            for b, v in kinds.items()
        }
        _check_statistics(flat_stats, columns)
        for video in videos:
            assert (root / info["video_path"].format(video_key=video, **template_fields)).exists()
        episodes.append(table.to_pydict())
    return episodes, [row["task"] for row in tasks]


def _check_schema(schema: Any, columns: dict[str, Any]) -> None:
    """Undeclared columns are errors for readers; missing columns are read as None."""
    assert schema.names == list(columns)
    declared = json.loads((schema.metadata or {}).get(b"huggingface", "{}"))
    described = declared.get("info", {}).get("features", {})
    # `datasets` before version 4 cannot read "List".
    assert '"List"' not in json.dumps(described)
    for name, feature in columns.items():
        shape, kind = feature["shape"], schema.field(name).type
        if feature["dtype"] == "image":
            assert kind == pa.struct({"bytes": pa.binary(), "path": pa.string()})
            assert described.get(name, {"_type": "Image"}) == {"_type": "Image"}
            continue
        for size in [] if shape == [1] else shape:
            assert kind.value_type
            assert getattr(kind, "list_size", size) == size
            kind = kind.value_type
        names = {"string": "string", "bool": "bool", "float64": "double", "float32": "float"}
        assert str(kind) == {**names, "float16": "halffloat"}.get(
            feature["dtype"], feature["dtype"]
        )


def _check_statistics(row: dict[str, Any], columns: dict[str, Any]) -> None:
    for name, feature in columns.items():
        if f"stats/{name}/mean" not in row:
            assert feature["dtype"] in ("string", "image"), name
            continue
        shape = {np.shape(row[f"stats/{name}/{kind}"]) for kind in ("min", "max", "mean", "std")}
        is_image = feature["dtype"] == "image"
        # Statistics of each element (version 2.1), or of the last dimension (3.0).
        shapes = {tuple(feature["shape"]), (feature["shape"][-1],)}
        assert shape <= ({(1, 1, 1), (3, 1, 1)} if is_image else shapes)
        assert np.shape(row[f"stats/{name}/count"]) == (1,)


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]
