"""Small LeRobot datasets with the oddities of the format, written with pyarrow and av alone.

`write_v3` and `write_v2` write the same three episodes. LeRobot itself reads their files,
unless an argument asks for invalid ones.
"""

import io
import itertools
import json
import os
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from rlds_ecosystem.video_codec import restore_scheduling

os.environ.setdefault("SVT_LOG", "1")  # Its encoder warns about small frames.

FPS = 10
LENGTHS = (7, 5, 6)
# The episodes of each file (3.0).
FILES = ((0, 1), (2,))
TASKS = ("pick the cup", "place it on the täble")
JOINTS = ["shoulder", "elbow", "gripper"]
STATE, TOP, DEPTH, IMAGE = (
    "observation.state",
    "observation.images.top",
    "observation.images.depth",
    "observation.images.wrist",
)

_SCALARS: dict[str, dict[str, Any]] = {
    name: {"dtype": dtype, "shape": [1], "names": None}
    for name, dtype in {
        "timestamp": "float32",
        "frame_index": "int64",
        "episode_index": "int64",
        "index": "int64",
        "task_index": "int64",
    }.items()
}
# The features of datasets by default.
FEATURES: dict[str, dict[str, Any]] = {
    "action": {"dtype": "float32", "shape": [3], "names": JOINTS},
    STATE: {"dtype": "float32", "shape": [3], "names": {"motors": JOINTS}},
    "observation.grid": {"dtype": "float64", "shape": [2, 3], "names": None},
    IMAGE: {"dtype": "image", "shape": [4, 6, 3], "names": ["height", "width", "channels"]},
    "next.reward": {"dtype": "float32", "shape": [1], "names": None},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
    "note": {"dtype": "string", "shape": [1], "names": None},
    "mode": {"dtype": "uint8", "shape": [1], "names": None},
    **_SCALARS,
}
# A video with the channels first, and a depth video.
VIDEOS: dict[str, dict[str, Any]] = {
    TOP: {
        "dtype": "video",
        "shape": [3, 32, 48],
        "names": ["channels", "height", "width"],
        "info": {"video.fps": FPS, "video.codec": "h264", "video.pix_fmt": "yuv420p"},
    },
    DEPTH: {
        "dtype": "video",
        "shape": [32, 48, 1],
        "names": ["height", "width", "channels"],
        "info": {"is_depth_map": True, "video.codec": "hevc", "video.pix_fmt": "gray12le"},
    },
}
# The modality.json of GR00T.
MODALITY = {
    "state": {"arm": {"start": 0, "end": 2}, "gripper": {"start": 2, "end": 3}},
    "action": {"arm": {"start": 0, "end": 2}, "gripper": {"start": 2, "end": 3}},
    "video": {"top": {"original_key": TOP}},
    "annotation": {"human.action.task_description": {}},
}
# The encoders of videos; episodes are encoded separately, except for "unaligned".
CODECS: dict[str, tuple[str, str, dict[str, str]]] = {
    "h264": ("libx264", "yuv420p", {"g": "3", "bf": "2", "crf": "23"}),
    "av1": ("libsvtav1", "yuv420p", {"g": "2", "crf": "30", "preset": "12"}),
    "depth": ("libx265", "gray12le", {"x265-params": "lossless=1:bframes=0:log-level=none"}),
    "unaligned": ("libx264", "yuv420p", {"g": "250", "bf": "2", "crf": "23"}),
}


def columns(index: int, length: int, *, first_row: int) -> dict[str, Any]:
    """Returns the columns of an episode; the task of the second one changes."""
    rng = np.random.default_rng(index)
    done = np.arange(length) == length - 1
    return {
        "action": rng.standard_normal((length, 3)).astype(np.float32),
        STATE: rng.standard_normal((length, 3)).astype(np.float32),
        "observation.grid": rng.standard_normal((length, 2, 3)),
        IMAGE: [_png(rng.integers(0, 256, (4, 6, 3), np.uint8)) for _ in range(length)],
        "next.reward": rng.standard_normal(length).astype(np.float32),
        "next.done": done,
        "note": [f"nöte {row}" if row % 2 else "" for row in range(length)],
        "mode": rng.integers(0, 256, length, np.uint8),
        "timestamp": (np.arange(length) / FPS).astype(np.float32),
        "frame_index": np.arange(length),
        "episode_index": np.full(length, index),
        "index": np.arange(first_row, first_row + length),
        "task_index": (np.arange(length) >= 3).astype(int)
        if index == 1
        else np.full(length, index % 2),
    }


def episodes(lengths: Any = LENGTHS) -> list[dict[str, Any]]:
    """Returns the columns of all episodes."""
    first_rows = np.cumsum([0, *lengths])
    return [columns(i, n, first_row=int(first_rows[i])) for i, n in enumerate(lengths)]


def frames(video: str, index: int, length: int) -> np.ndarray:
    """Returns the frames of an episode before they are encoded: uint8 RGB, or uint16 of 12 bits."""
    rng = np.random.default_rng([index, len(video)])
    block = rng.integers(0, 200, (4, 6, 3))
    scene = np.kron(block, np.ones((8, 8, 1), int))
    moving = np.stack([np.roll(scene, 2 * step, axis=1) + step for step in range(length)])
    if video == DEPTH:
        return (moving[..., 0] * 16).astype(np.uint16)
    return moving.astype(np.uint8)


# --- Version 3.0.


def write_v3(
    path: Path,
    *,
    lengths: Any = LENGTHS,
    files: Any = FILES,
    features: Any = None,
    codecs: Any = (),
    tasks: Any = (0, 1),
    jitter: float = 0.0,
    columns_of: Any = episodes,
    row_groups: bool = True,
    info: Any = (),
    list_type: str = "List",
) -> Path:
    """Writes a dataset of version 3.0.

    Args:
      path: The folder.
      lengths: The numbers of rows of the episodes.
      files: The episodes of each file.
      features: The features that have columns; `FEATURES` by default.
      codecs: The names of `CODECS` by video feature; none if there are no videos.
      tasks: The order of the rows with tasks.
      jitter: The difference of timestamps from `frame_index / fps`.
      columns_of: Returns the columns of all episodes.
      row_groups: Whether each episode has a row group.
      info: More fields of `info.json`.
      list_type: The name of lists in the metadata of schemas: "List" or "Sequence".
    """
    features, codecs = dict(features or FEATURES), dict(codecs)
    data = columns_of(lengths)
    for episode in data:
        episode["timestamp"] = episode["timestamp"] + np.float32(jitter)
    ends = np.cumsum([0, *lengths]).tolist()
    rows: list[dict[str, Any]] = []
    for file_index, members in enumerate(files):
        name = f"chunk-000/file-{file_index:03d}"
        groups = [table(data[index], features, list_type) for index in members]
        if not row_groups:
            groups = [pa.concat_tables(groups)]
        _write_groups(path / f"data/{name}.parquet", groups)
        spans: dict[str, list[tuple[float, float]]] = {}
        for video, codec in codecs.items():
            clips = [frames(video, index, lengths[index]) for index in members]
            spans[video] = write_video(path / f"videos/{video}/{name}.mp4", clips, codec)
        for position, index in enumerate(members):
            row = {
                "episode_index": index,
                "tasks": sorted({TASKS[task] for task in data[index]["task_index"]}),
                "length": lengths[index],
                "data/chunk_index": 0,
                "data/file_index": file_index,
                "dataset_from_index": ends[index],
                "dataset_to_index": ends[index + 1],
            }
            for video, times in spans.items():
                row |= {
                    f"videos/{video}/chunk_index": 0,
                    f"videos/{video}/file_index": file_index,
                    f"videos/{video}/from_timestamp": times[position][0],
                    f"videos/{video}/to_timestamp": times[position][1],
                }
            for feature, values in statistics(data[index]).items():
                row |= {f"stats/{feature}/{name}": value for name, value in values.items()}
            rows.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
    write_table(path / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(rows))
    write_tasks(path, tasks)
    _write_json(path / "meta/stats.json", statistics(_together(data)))
    videos = {name: feature for name, feature in VIDEOS.items() if name in codecs}
    contents = {
        "codebase_version": "v3.0",
        "robot_type": "so100",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": len(TASKS),
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": FPS,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
        if codecs
        else None,
        "features": {**features, **videos},
    }
    _write_json(path / "meta/info.json", {**contents, **dict(info)})
    return path


def say_depths(path: Path, **changes: Any) -> dict[str, Any]:
    """Adds fields of the depth video to `info.json`; returns all of its fields.

    The defaults are the codes that LeRobot writes by default.
    """
    content = json.loads((path / "meta/info.json").read_text())
    codes = {"depth_min": 0.01, "depth_max": 10.0, "shift": 3.5, "use_log": True}
    depth_info: dict[str, Any] = content["features"][DEPTH]["info"]
    depth_info |= {f"video.{name}": value for name, value in codes.items()}
    depth_info |= {"depth_unit": "mm", **changes}
    _write_json(path / "meta/info.json", content)
    return depth_info


def write_tasks(path: Path, order: Any = (0, 1)) -> None:
    """Writes tasks.parquet, as pandas writes a frame whose index is the text."""
    texts = [TASKS[task] for task in order]
    described = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": "task_index", "field_name": "task_index", "pandas_type": "int64",
             "numpy_type": "int64", "metadata": None},
            {"name": "task", "field_name": "task", "pandas_type": "unicode",
             "numpy_type": "object", "metadata": None},
        ],
    }  # fmt: skip
    tasks = pa.table({"task_index": pa.array(order, pa.int64()), "task": texts})
    tasks = tasks.replace_schema_metadata({"pandas": json.dumps(described)})
    write_table(path / "meta/tasks.parquet", tasks)


# --- Versions 2.0 and 2.1.


def write_v2(
    path: Path,
    *,
    version: str = "v2.1",
    lengths: Any = LENGTHS,
    indices: Any = None,
    features: Any = None,
    codecs: Any = (),
    tasks: Any = (0, 1),
    list_type: str = "Sequence",
    info: Any = (),
) -> Path:
    """Writes a dataset of version 2.0 or 2.1; see `write_v3`.

    Args:
      path: The folder.
      version: The version.
      lengths: The numbers of rows of the episodes.
      indices: The `episode_index` of each episode; from 0 on by default.
      features: The features that have columns.
      codecs: The names of `CODECS` by video feature.
      tasks: The order of the lines with tasks.
      list_type: The name of lists in the metadata of schemas: "List" or "Sequence".
      info: More fields of `info.json`.
    """
    features, codecs = dict(features or FEATURES), dict(codecs)
    data = episodes(lengths)
    indices = list(range(len(lengths)) if indices is None else indices)
    lines, stats = [], []
    for index, arrays in zip(indices, data):
        arrays["episode_index"] = np.full(len(arrays["index"]), index)
        name = f"chunk-{index // 1000:03d}"
        file = path / f"data/{name}/episode_{index:06d}.parquet"
        write_table(file, table(arrays, features, list_type))
        for video, codec in codecs.items():
            clips = [frames(video, index, len(arrays["index"]))]
            write_video(path / f"videos/{name}/{video}/episode_{index:06d}.mp4", clips, codec)
        texts = sorted({TASKS[task] for task in arrays["task_index"]})
        lines.append({"episode_index": index, "tasks": texts, "length": len(arrays["index"])})
        stats.append({"episode_index": index, "stats": statistics(arrays)})
    _write_lines(path / "meta/episodes.jsonl", lines)
    if version == "v2.0":
        _write_json(path / "meta/stats.json", statistics(_together(data)))
    else:
        _write_lines(path / "meta/episodes_stats.jsonl", stats)
    texts = [{"task_index": task, "task": TASKS[task]} for task in tasks]
    _write_lines(path / "meta/tasks.jsonl", texts)
    videos = {name: feature for name, feature in VIDEOS.items() if name in codecs}
    contents = {
        "codebase_version": version,
        "robot_type": "so100",
        "total_episodes": len(lengths),
        "total_frames": sum(lengths),
        "total_tasks": len(TASKS),
        "total_videos": len(lengths) * len(codecs),
        "total_chunks": max(indices) // 1000 + 1,
        "chunks_size": 1000,
        "fps": FPS,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
        if codecs
        else None,
        "features": {**features, **videos},
    }
    _write_json(path / "meta/info.json", {**contents, **dict(info)})
    return path


# --- Additional files.


def write_modality(path: Path) -> None:
    """Writes the files of GR00T: modality.json, and statistics of relative actions."""
    _write_json(path / "meta/modality.json", MODALITY)
    _write_json(path / "meta/relative_stats.json", {"action": {"mean": [0.5, 1e-3, 2]}})


def write_annotations(path: Path, texts: Any, task_indices: Any = None) -> None:
    """Adds columns of task indices, as in GR00T, to datasets without annotations.

    Args:
      path: The dataset.
      texts: For each column, the text of each episode; None stands for -1.
      task_indices: The indices of the new tasks; the next free ones by default.
    """
    version_3, info = path / "meta/tasks.parquet", path / "meta/info.json"
    contents = json.loads(info.read_text())
    new = list(dict.fromkeys(text for column in texts.values() for text in column if text))
    tasks = dict(enumerate(TASKS)) | dict(zip(task_indices or itertools.count(len(TASKS)), new))
    by_text = {None: -1} | {text: task for task, text in tasks.items()}
    for file in sorted((path / "data").rglob("*.parquet")):
        rows = pq.read_table(file)
        for name, column in texts.items():
            values = [by_text[column[index]] for index in rows["episode_index"].to_pylist()]
            rows = rows.append_column(name, pa.array(values, pa.int64()))
            contents["features"][name] = {"dtype": "int64", "shape": [1], "names": None}
        write_table(file, rows.replace_schema_metadata())
    if version_3.exists():
        write_table(version_3, pa.table({"task_index": [*tasks], "task": [*tasks.values()]}))
    else:
        lines = [{"task_index": task, "task": text} for task, text in tasks.items()]
        _write_lines(path / "meta/tasks.jsonl", lines)
        file = path / "meta/episodes_stats.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            index = line["episode_index"]
            columns = {name: np.array([by_text[it[index]]] * 2) for name, it in texts.items()}
            line["stats"] |= statistics(columns)
        _write_lines(file, lines)
    _write_json(info, {**contents, "total_tasks": len(tasks)})


def texts_of_rows(path: Path, names: Any) -> list[list[Any]]:
    """Returns the texts of the tasks in the first row of each episode."""
    if (path / "meta/tasks.parquet").exists():
        lines = pq.read_table(path / "meta/tasks.parquet").to_pylist()
    else:
        lines = [json.loads(line) for line in (path / "meta/tasks.jsonl").read_text().splitlines()]
    tasks = {line["task_index"]: line["task"] for line in lines} | {-1: None}
    rows = [pq.read_table(file).to_pylist() for file in sorted((path / "data").rglob("*.parquet"))]
    firsts = [row for row in itertools.chain(*rows) if row["frame_index"] == 0]
    return [[tasks[row[name]] for name in names] for row in firsts]


def write_extras(path: Path, lengths: Any = LENGTHS) -> None:
    """Writes the files of RoboCasa for each episode."""
    _write_json(path / "meta/embodiment.json", {"robot_type": "PandaOmron"})
    _write_json(path / "extras/dataset_meta.json", {"env_args": {"env_name": "OpenDrawer"}})
    for index, length in enumerate(lengths):
        _write_json(path / f"extras/episode_{index}/ep_meta.json", {"lang": f"öpen {index}"})
        states = io.BytesIO()
        np.savez(states, states=np.random.default_rng(index).standard_normal((length, 4)))
        (path / f"extras/episode_{index}/states.npz").write_bytes(states.getvalue())
        # The format of gzip, without a time.
        model = zlib.compress(f"<mujoco model='{index}'/>".encode(), wbits=31)
        (path / f"extras/episode_{index}/model.xml.gz").write_bytes(model)


# --- Pieces.


def table(
    columns: dict[str, Any], features: dict[str, dict[str, Any]], list_type: str = "List"
) -> pa.Table:
    """Returns the rows of an episode as LeRobot stores them."""
    arrays = {name: _array(columns[name], feature) for name, feature in features.items()}
    described = {name: _described(feature, list_type) for name, feature in features.items()}
    metadata = {"huggingface": json.dumps({"info": {"features": described}})}
    return pa.table(arrays).replace_schema_metadata(metadata)


def _array(column: Any, feature: dict[str, Any]) -> pa.Array:
    if feature["dtype"] == "image":
        rows = [{"bytes": data, "path": f"frame-{i:06d}.png"} for i, data in enumerate(column)]
        return pa.array(rows, pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    kind = pa.bool_() if feature["dtype"] == "bool" else pa.type_for_alias(feature["dtype"])
    if feature["shape"] == [1]:
        return pa.array(column, kind)
    if len(feature["shape"]) == 1:
        return pa.array(list(column), pa.list_(kind, feature["shape"][0]))
    for _ in feature["shape"]:
        kind = pa.list_(kind)
    return pa.array(np.asarray(column).tolist(), kind)


def _described(feature: dict[str, Any], list_type: str) -> dict[str, Any]:
    if feature["dtype"] == "image":
        return {"_type": "Image"}
    if len(feature["shape"]) > 1:
        shape = feature["shape"]
        return {"shape": shape, "dtype": feature["dtype"], "_type": f"Array{len(shape)}D"}
    value = {"dtype": feature["dtype"], "_type": "Value"}
    if feature["shape"] == [1]:
        return value
    return {"feature": value, "length": feature["shape"][0], "_type": list_type}


def write_table(file: Path, table: pa.Table) -> None:
    """Writes a Parquet file."""
    _write_groups(file, [table])


def _write_groups(file: Path, groups: list[pa.Table]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(file, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)


def without_footer(file: Path) -> None:
    """Removes the footer of a Parquet file, as if its recorder had crashed."""
    data = file.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little")
    file.write_bytes(data[: -8 - footer])


def statistics(columns: dict[str, Any]) -> dict[str, Any]:
    """Returns the statistics of numbers."""
    stats = {}
    for name, column in columns.items():
        values = np.asarray(column, object if name in (IMAGE, "note") else None)
        if values.dtype == object:
            continue
        flat = values.astype(float).reshape(len(values), -1)
        stats[name] = {
            "min": flat.min(0).tolist(),
            "max": flat.max(0).tolist(),
            "mean": flat.mean(0).tolist(),
            "std": flat.std(0).tolist(),
            "count": [len(values)],
        }
        if len(np.shape(values)) > 2:
            stats[name] = {
                key: np.reshape(value, values.shape[1:]).tolist() if key != "count" else value
                for key, value in stats[name].items()
            }
    return stats


def _together(data: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([episode[name] for episode in data]) for name in data[0]}


def _png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def write_video(file: Path, clips: list[np.ndarray], codec: str) -> list[tuple[float, float]]:
    """Writes clips, one for each episode, encoded separately and joined as LeRobot does.

    Returns:
      The begin and the end of each episode, in seconds.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    encoded_clips = [np.concatenate(clips)] if codec == "unaligned" else clips
    encoded = [_encoded(clip, codec) for clip in encoded_clips]
    if len(encoded) == 1:
        file.write_bytes(encoded[0])
    else:
        _join(file, encoded)
    ends = np.cumsum([0, *map(len, clips)]) / FPS
    return list(zip(ends[:-1].tolist(), ends[1:].tolist()))


@restore_scheduling()
def _encoded(clip: np.ndarray, codec: str) -> bytes:
    name, pixels, options = CODECS[codec]
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream(name, FPS, options=options)
        stream.height, stream.width = clip.shape[1:3]
        stream.pix_fmt = pixels
        kind = "rgb24" if clip.dtype == np.uint8 else "gray12le"
        for image in clip:
            frame = av.VideoFrame.from_ndarray(image, kind)
            container.mux(stream.encode(frame.reformat(format=pixels)))
        container.mux(stream.encode())
    return file.getvalue()


def _join(file: Path, encoded: list[bytes]) -> None:
    offset = Fraction(0)
    with av.open(file, "w") as container:
        joined = None
        for data in encoded:
            with av.open(io.BytesIO(data)) as clip:
                stream = clip.streams.video[0]
                joined = joined or container.add_stream_from_template(stream, opaque=True)
                joined.time_base = stream.time_base  # PyAV 15 takes another one.
                shift = round(offset / stream.time_base)
                for packet in clip.demux(stream):
                    if packet.dts is None:
                        continue
                    packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                    packet.stream = joined
                    container.mux(packet)
                offset += Fraction(stream.frames, FPS)


def _write_json(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=4))


def _write_lines(file: Path, lines: list[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
