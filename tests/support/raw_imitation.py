"""Folders of trajectories, as `imitation.data.serialize.save` writes them."""

import json

import numpy as np
import pyarrow as pa


def trajectories(*, rewards=True, pixels=False):
    """Trajectories with all possible fields, as dicts."""
    rng = np.random.default_rng(0)
    rows = []
    for index, length in enumerate((4, 2, 6)):
        obs = rng.normal(size=(length + 1, 3)).astype(np.float32)
        if pixels:
            obs = rng.integers(0, 256, (length + 1, 2, 4, 3), np.uint8)
        row = {
            "obs": obs,
            "acts": rng.integers(0, 4, length) if pixels else rng.random((length, 2)),
            "infos": [json.dumps({"step": step, "py/object": "ü"}) for step in range(length)],
            "terminal": index == 1,
        }
        if rewards:
            row["rews"] = rng.random(length)
        rows.append(row)
    return rows


def feature(values, depth=0):
    """The feature of a value in `datasets`."""
    array = np.asarray(values)
    name = "string" if array.dtype.kind == "U" else array.dtype.name
    description = {"dtype": name, "_type": "Value"}
    for _ in range(array.ndim):
        description = {"feature": description, "_type": "List"}
    return description


def write(path, rows=None, *, batches=2):
    """Writes a folder; returns it."""
    rows = trajectories() if rows is None else rows
    path.mkdir(exist_ok=True)
    features = {name: feature(value) for name, value in rows[0].items()}
    columns = {
        name: pa.array(
            [np.asarray(row[name]).tolist() for row in rows],
            _type(np.asarray(rows[0][name])),
        )
        for name in rows[0]
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table(columns).replace_schema_metadata(metadata)
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(path / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=batches)
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    (path / "dataset_info.json").write_text(json.dumps(info))
    state = {
        "_data_files": [{"filename": name}],
        "_fingerprint": "917e9da2a2314536",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (path / "state.json").write_text(json.dumps(state))
    return path


def _type(array):
    arrow_type = pa.string() if array.dtype.kind == "U" else pa.from_numpy_dtype(array.dtype)
    for _ in range(array.ndim):
        arrow_type = pa.list_(arrow_type)
    return arrow_type
