"""LeRobot datasets as episodes, compared with the written values."""

import io
import json
import os
import subprocess
import sys

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import raw_lerobot as raw
from fast_share import one_in
from PIL import Image

import rlds.editing
import rlds.feeds
import rlds.sources
from rlds.formats.lerobot.layout import episode_key, step_paths
from rlds.sources import DamagedEpisode, SourceError, reading
from rlds.sources.encoded_frames import with_video
from rlds.sources.testing import check_source
from rlds.video.decoding import ClipReader
from rlds_ecosystem.model.nests import leaves_at

LeRobotSource = rlds.sources.formats()["lerobot"].load()

# The source ignores the types of lists in the metadata of schemas: `Sequence` and `List`.
VERSIONS = {
    "3.0": raw.write_v3,
    "3.0, one row group": lambda path: raw.write_v3(path, row_groups=False),
    "2.1": raw.write_v2,
    "2.1, List": lambda path: raw.write_v2(path, list_type="List"),
    "2.0": lambda path: raw.write_v2(path, version="v2.0"),
}


def expected_steps(columns, features=raw.FEATURES):
    """Returns the steps of an episode, by plain loops over the written columns."""
    steps = {}
    for name, path in step_paths(features).items():
        values = columns[name]
        if features[name]["dtype"] in ("image", "string"):
            values = np.array([*values, None], object)[:-1]
        steps[path] = np.asarray(values)
    num_rows = len(columns["index"])
    steps["image_file/observation/images/wrist"] = np.array(
        [f"frame-{row:06d}.png" for row in range(num_rows)], object
    )
    texts = [raw.TASKS[task] for task in columns["task_index"]]
    steps["language_instruction"] = np.array([*texts, None], object)[:-1]
    steps["discount"] = np.ones(num_rows, np.float32)
    steps["is_first"] = np.arange(num_rows) == 0
    steps["is_last"] = np.arange(num_rows) == num_rows - 1
    steps["is_terminal"] = np.zeros(num_rows, bool)
    return steps


def check_steps(actual, expected):
    actual = dict(leaves_at(actual, None))
    assert actual.keys() == expected.keys()
    for path, column in expected.items():
        assert actual[path].dtype == column.dtype, path
        assert actual[path].tolist() == column.tolist(), path


@pytest.mark.parametrize("version", VERSIONS)
def test_all_columns_and_frames_are_read(tmp_path, version):
    VERSIONS[version](tmp_path)
    source = LeRobotSource(tmp_path)
    data = raw.episodes()
    assert rlds.sources.format_of(tmp_path) == "lerobot"
    assert reading.lengths(source, "train").num_steps.tolist() == list(raw.LENGTHS)
    assert source.capabilities.totals("train") == {"rows": sum(raw.LENGTHS)}
    assert list(source.capabilities.faults("train")) == []
    for index in [*range(3), 0, 2, 1]:  # In order, and in no order.
        episode = source.read("train", index)
        check_steps(episode.steps, expected_steps(data[index]))
        assert episode.key == source.key("train", index) == episode_key(index)
        assert episode.truncated
        assert episode.complete
        assert not episode.final_observation_known
        assert episode.summary == reading.summary(source, "train", index)
        row = json.loads(episode.metadata["lerobot"]["row"])
        assert (row["episode_index"], row["length"]) == (index, raw.LENGTHS[index])
        assert sorted(row["tasks"]) == sorted({*episode.steps["language_instruction"]})
        stats = {name: row.get(f"stats/action/{name}") for name in ("min", "max", "count")}
        if version != "2.0":
            assert (
                np.array(stats["min"]).astype("f4").tolist()
                == data[index]["action"].min(0).tolist()
            )
    assert source.fields.steps["observation"]["state"].names == tuple(raw.JOINTS)
    metadata = source.source_info.metadata["lerobot"]
    assert metadata["info"] == json.loads((tmp_path / "meta/info.json").read_text())
    assert [row["task"] for row in metadata["tasks"]] == list(raw.TASKS)
    stats = tmp_path / "meta/stats.json"
    assert metadata["files"] == (
        {"meta/stats.json": {"text": stats.read_text()}} if stats.exists() else {}
    )


def test_no_more_than_the_requested_rows_are_read(tmp_path):
    check_source(LeRobotSource(raw.write_v3(tmp_path, row_groups=False)))


@pytest.mark.slow
def test_pandas_is_not_loaded(tmp_path):
    """It takes longer to load than to read a small dataset."""
    raw.write_v3(tmp_path)
    code = (
        "import sys, rlds.sources as s; s.open(sys.argv[1])[0]; assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)


def test_the_terminal_column_ends_episodes(tmp_path):
    raw.write_v3(tmp_path)
    source = LeRobotSource(tmp_path, terminal="done")
    for index in range(3):
        episode = source.read("train", index)
        assert not episode.truncated
        assert episode.steps["is_terminal"].tolist() == episode.steps["is_last"].tolist()
        assert episode.steps["discount"].tolist() == [1.0] * (raw.LENGTHS[index] - 1) + [0.0]
        assert episode.summary == reading.summary(source, "train", index)
    with pytest.raises(ValueError, match=r"'success', but the data has no column 'next.success'"):
        LeRobotSource(tmp_path, terminal="success")

    def truncated_episodes(lengths):
        return [{**data, "next.truncated": data["next.done"]} for data in raw.episodes(lengths)]

    flag = {"dtype": "bool", "shape": [1], "names": None}
    features = {**raw.FEATURES, "next.truncated": flag}
    raw.write_v3(tmp_path / "cut", features=features, columns_of=truncated_episodes)
    assert LeRobotSource(tmp_path / "cut", terminal="done").read("train", 0).truncated


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["h264", "av1", "unaligned"])
def test_clips_have_the_frames_of_their_file(tmp_path, codec):
    raw.write_v3(tmp_path, codecs={raw.TOP: codec})
    source = LeRobotSource(tmp_path)
    assert "top" not in source.fields.steps["observation"]["images"]
    frames = _decode(tmp_path / f"videos/{raw.TOP}/chunk-000/file-000.mp4")
    frames = [
        frames[:7],
        frames[7:],
        _decode(tmp_path / f"videos/{raw.TOP}/chunk-000/file-001.mp4"),
    ]
    for index in (0, 1, 2):
        metadata = source.read("train", index).metadata
        actual = metadata["video"]["observation"]["images"]["top"]
        with ClipReader(actual["clip"]) as reader:
            first = int(actual["first"])
            decoded = reader.frames(first, first + raw.LENGTHS[index])
        assert decoded.tolist() == frames[index].tolist()
    # The last one is alone in its file, which is its clip.
    file = tmp_path / f"videos/{raw.TOP}/chunk-000/file-001.mp4"
    assert actual["clip"] == file.read_bytes()

    source = with_video(LeRobotSource(tmp_path, video="frames"))
    assert "video" not in source.fields.episode
    assert source.fields.steps["observation"]["images"]["top"].shape == (32, 48, 3)
    steps = source.read("train", 1).steps
    assert steps["observation"]["images"]["top"].tolist() == frames[1].tolist()
    top = "observation/images/top"
    span = reading.read_steps(source, "train", 1, [top], slice(1, 3))["observation"]["images"][
        "top"
    ]
    assert span.tolist() == frames[1][1:3].tolist()


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_frames_can_be_read_as_png_and_jpeg_files(tmp_path, kind):
    raw.write_v3(tmp_path, codecs={raw.TOP: "h264", raw.DEPTH: "depth"})
    exact = rlds.sources.open(tmp_path, video="frames")[1].steps["observation"]["images"]["top"]
    options = {"video": kind, "flat_cameras": True}
    opened = rlds.sources.open(tmp_path, **options, **({"quality": 100} if kind == "jpeg" else {}))
    field = opened.source.fields.steps["observation"]["top"]
    assert (field.encoding, field.shape, field.dtype) == (kind, (32, 48, 3), np.uint8)
    assert opened.source.fields.steps["observation"]["depth"].dtype == np.uint16
    assert opened.source.fields.steps["observation"]["wrist"].encoding == "png"
    assert "video" not in opened.source.fields.episode
    files = opened[1].steps["observation"]["top"]
    assert files[0].startswith(b"\x89PNG" if kind == "png" else b"\xff\xd8")
    span = reading.read_steps(opened.source, "train", 1, ["observation/top"], slice(2, 4))
    assert span["observation"]["top"].tolist() == files[2:4].tolist()
    pixels = opened.columns(1, ["observation/top"])["observation"]["top"].astype(int)
    assert abs(pixels - exact).mean() <= (0 if kind == "png" else 8)
    with pytest.raises(ValueError, match="quality: got 0"):
        rlds.sources.open(tmp_path, video="jpeg", quality=0)


def test_videos_of_single_episodes_and_depths_are_read(tmp_path):
    raw.write_v2(tmp_path / "2", codecs={raw.TOP: "h264"}, indices=[0, 1, 1000])
    source = LeRobotSource(tmp_path / "2")
    assert [source.key("train", index) for index in range(3)][-1] == "episode_001000"
    clip = reading.read(source, "train", 2).metadata["video"]["observation"]["images"]["top"][
        "clip"
    ]
    file = tmp_path / f"2/videos/chunk-001/{raw.TOP}/episode_001000.mp4"
    assert clip == file.read_bytes()
    raw.write_v3(tmp_path / "3", codecs={raw.DEPTH: "depth"})
    source = with_video(LeRobotSource(tmp_path / "3", video="frames"))
    field = source.fields.steps["observation"]["images"]["depth"]
    assert (field.dtype, field.shape) == (np.uint16, (32, 48, 1))
    depth = source.read("train", 1).steps["observation"]["images"]["depth"]
    assert (depth[..., 0] == raw.frames(raw.DEPTH, 1, 5)).all()  # The codec loses nothing.


@pytest.mark.parametrize("unit", one_in(2, ["mm", "m"]))
def test_depth_codes_become_depths(tmp_path, unit):
    """The formula is that of LeRobot: equal steps of the logarithm of the depth and the shift."""
    raw.write_v3(tmp_path / "set", codecs={raw.DEPTH: "depth", raw.TOP: "h264"})
    written_info = raw.say_depths(tmp_path / "set", depth_unit=unit)
    codes = raw.frames(raw.DEPTH, 1, 5)[..., None]
    low, high = np.log(0.01 + 3.5), np.log(10 + 3.5)
    depths = np.exp(low + codes / 4095 * (high - low)) - 3.5
    depths *= 1000 if unit == "mm" else 1
    episodes = rlds.sources.open(tmp_path / "set", video="frames")
    field = episodes.spec["steps"]["observation"]["images"]["depth"]
    assert (field.dtype, field.shape, field.unit, field.codes) == ("f4", (32, 48, 1), unit, None)
    actual = episodes.columns(1, ["observation/images/depth"])["observation"]["images"]["depth"]
    np.testing.assert_allclose(actual, depths, rtol=1e-6)
    batch = rlds.feeds.open(tmp_path / "set", video="frames").steps().batch([7, 8])
    np.testing.assert_array_equal(batch["observation"]["images"]["depth"], actual[:2])
    # Packets stay codes, and their description is exported.
    for options in ({}, {"codec": "h264"}):
        out = tmp_path / f"out{len(options)}"
        assert rlds.sources.export(tmp_path / "set", "lerobot", out, **options)
        depth_info = json.loads((out / "meta/info.json").read_text())["features"][raw.DEPTH]["info"]
        assert written_info.items() - {("video.is_depth_map", True)} <= depth_info.items()
        clip = rlds.sources.open(out).spec["video"]["observation"]["images"]["depth"]["clip"]
        assert (clip.unit, clip.codes.low, clip.codes.is_log) == (unit, 0.01, True)
    copy = rlds.sources.open(out, video="frames").columns(1, ["observation/images/depth"])
    np.testing.assert_array_equal(copy["observation"]["images"]["depth"], actual)
    statistics = json.loads((out / "meta/stats.json").read_text())[raw.DEPTH]
    assert np.ravel(statistics["max"]) <= 10 * (1000 if unit == "mm" else 1)
    np.testing.assert_allclose(np.ravel(statistics["mean"]), depths.mean(), rtol=0.2)
    exported = rlds.sources.export(
        tmp_path / "set", "zarr", tmp_path / "z", source_options={"video": "frames"}
    )
    placements = {placement.field: placement.how for placement in exported.placements}
    assert placements["steps/observation/images/depth"] == "decoded"
    stored = rlds.sources.open(tmp_path / "z")
    assert stored.spec["steps"]["observation"]["images"]["depth"].unit == unit
    np.testing.assert_array_equal(stored.columns(1)["observation"]["images"]["depth"], actual)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"video.shift": None}, "expected numbers, use_log"),
        ({"video.use_log": "yes"}, "expected numbers, use_log"),
        ({"is_depth_map": False}, "expected numbers, use_log"),
        ({"video.depth_min": -9.0}, "low < high"),
        ({"depth_unit": "inch"}, "expected one of .*'mm'"),
    ],
)
def test_malformed_depth_descriptions_are_refused(tmp_path, changes, message):
    raw.write_v3(tmp_path, codecs={raw.DEPTH: "depth"})
    raw.say_depths(tmp_path, **changes)
    with pytest.raises(SourceError, match=rf"info\.json.*{raw.DEPTH}.*{message}"):
        rlds.sources.open(tmp_path)


def test_depth_codes_in_coloured_video_are_refused(tmp_path):
    raw.write_v3(tmp_path, codecs={raw.DEPTH: "h264"})
    raw.say_depths(tmp_path)
    with pytest.raises(SourceError, match="yuv420p, expected gray"):
        rlds.sources.open(tmp_path, video="frames")


@pytest.mark.parametrize(
    "other", one_in(3, [{"video.depth_max": 3.0}, {"video.use_log": False}, {"depth_unit": "m"}])
)
def test_merges_of_different_depth_codes_are_refused(tmp_path, other):
    for name, changes in {"one": {}, "same": {}, "other": other}.items():
        raw.write_v3(tmp_path / name, codecs={raw.DEPTH: "depth"}, lengths=(2, 3), files=((0, 1),))
        raw.say_depths(tmp_path / name, **changes)
    merge = rlds.editing.Merge([tmp_path / "other"], metadata="first")
    with pytest.raises(ValueError, match=r"depth/clip.*(codes|unit) differs"):
        rlds.editing.prepare_edit(tmp_path / "one", [merge])
    merge = rlds.editing.Merge([tmp_path / "same"], duplicates="keep")
    rlds.edit(tmp_path / "one", merge, to=tmp_path / "out")
    assert len(rlds.sources.open(tmp_path / "out", video="frames")) == 4


@pytest.mark.parametrize(("dtype", "unit"), [("uint16", "mm"), ("float32", "m")])
def test_depths_in_tiff_files_are_read(tmp_path, dtype, unit):
    """Depth images as LeRobot writes them."""
    raw.write_v3(tmp_path / "set", lengths=(2, 3), files=((0, 1),))
    truth = np.arange(5 * 24).reshape(5, 4, 6, 1).astype(dtype)
    truth = truth / np.float32(7) if unit == "m" else truth * np.uint16(500)
    files = []
    for image in truth:
        buffer = io.BytesIO()
        Image.fromarray(image[..., 0]).save(buffer, "TIFF")
        files.append({"bytes": buffer.getvalue(), "path": f"frame-{len(files):06d}.tiff"})
    data = tmp_path / "set/data/chunk-000/file-000.parquet"

    def write(files):
        table = pq.read_table(data)
        column_index = table.schema.get_field_index(raw.IMAGE)
        column = pa.array(files, table.schema.field(column_index).type)
        pq.write_table(
            table.set_column(column_index, table.schema.field(column_index), column), data
        )

    write(files)
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    depth_info = {"is_depth_map": True, "depth_unit": unit}
    info["features"][raw.IMAGE] |= {"shape": [4, 6, 1], "info": depth_info}
    (tmp_path / "set/meta/info.json").write_text(json.dumps(info))
    rlds.edit(tmp_path / "set", rlds.editing.Trim(begin=1), to=tmp_path / "cut")
    for name, begins in {"set": (0, 2), "cut": (1, 3)}.items():
        episodes = rlds.sources.open(tmp_path / name)
        field = episodes.spec["steps"]["observation"]["images"]["wrist"]
        assert (str(field.dtype), field.shape, field.unit) == (dtype, (4, 6, 1), unit)
        for index, begin in enumerate(begins):
            actual = episodes.columns(index)["observation"]["images"]["wrist"]
            np.testing.assert_array_equal(actual, truth[begin : (2, 5)[index]])
    cut, huge = files[1]["bytes"][:40], bytearray(files[1]["bytes"])
    huge[20] = huge[32] = 1  # More than 65,536 pixels wide and high.
    for damaged in (cut, bytes(huge)):
        files[1]["bytes"] = damaged
        write(files)
        with pytest.raises(SourceError, match=r"file-000\.parquet.*row 1.*wrist.*TIFF"):
            rlds.sources.open(tmp_path / "set").columns(0)
    # Colour images in TIFF files stay files.
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 6, 3), 7, np.uint8)).save(buffer, "TIFF")
    write([{"bytes": buffer.getvalue(), "path": file["path"]} for file in files])
    pictures = rlds.sources.open(tmp_path / "set").columns(0)["observation"]["images"]["wrist"]
    assert pictures.tolist() == [buffer.getvalue()] * 2


def _decode(file):
    with ClipReader(file) as reader:
        return reader.frames(0, reader.info.num_frames)


def test_frames_are_matched_by_time(tmp_path):
    """The rows were removed, but not their frames."""
    lengths, frame_numbers = (6, 4), [0, 1, 4, 5]
    raw.write_v2(tmp_path, lengths=lengths, codecs={raw.TOP: "h264"})
    file = tmp_path / "data/chunk-000/episode_000000.parquet"
    table = pq.read_table(file).take(frame_numbers)
    indices = {"frame_index": pa.array(range(4)), "index": pa.array(range(4))}
    for name, column in indices.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, file)
    lines = (tmp_path / "meta/episodes.jsonl").read_text().replace('"length": 6', '"length": 4')
    (tmp_path / "meta/episodes.jsonl").write_text(lines)
    with pytest.raises(
        SourceError, match=r"6 frames for 4 rows.* at 0.4.*row 2.* match='timestamp'"
    ):
        LeRobotSource(tmp_path).read("train", 0)
    source = LeRobotSource(tmp_path, match="timestamp")
    video = source.read("train", 0).metadata["video"]["observation"]["images"]["top"]
    assert (video["frames"].tolist(), video["frames"].dtype) == (frame_numbers, np.int64)
    assert source.read("train", 1).metadata["video"]["observation"]["images"]["top"][
        "frames"
    ].tolist() == [0, 1, 2, 3]
    steps = (
        with_video(LeRobotSource(tmp_path, match="timestamp", video="frames"))
        .read("train", 0)
        .steps
    )
    frames = _decode(tmp_path / f"videos/chunk-000/{raw.TOP}/episode_000000.mp4")
    assert steps["observation"]["images"]["top"].tolist() == frames[frame_numbers].tolist()


def test_frames_at_half_the_rate_of_the_rows_are_refused(tmp_path):
    raw.write_v2(tmp_path, codecs={raw.TOP: "h264"})
    file = tmp_path / f"videos/chunk-000/{raw.TOP}/episode_000000.mp4"
    with av.open(file) as video, av.open(tmp_path / "slow.mp4", "w") as slow:
        stream = video.streams.video[0]
        slow_stream = slow.add_stream_from_template(stream)
        for packet in video.demux(stream):
            if packet.dts is not None:
                packet.pts, packet.dts, packet.stream = 2 * packet.pts, 2 * packet.dts, slow_stream
                slow.mux(packet)
    (tmp_path / "slow.mp4").replace(file)
    with pytest.raises(
        SourceError, match=r"episode_000000.*7 frames for 7 rows, .* at 0\.1.*row 1"
    ):
        LeRobotSource(tmp_path).read("train", 0)
    LeRobotSource(tmp_path).read("train", 1)


def test_more_frames_than_rows_are_ignored(tmp_path):
    """The recorder stopped the camera last."""
    raw.write_v2(tmp_path, codecs={raw.TOP: "h264"})
    frames = [raw.frames(raw.TOP, 0, 9)]
    file = tmp_path / f"videos/chunk-000/{raw.TOP}/episode_000000.mp4"
    raw.write_video(file, frames, "h264")
    video = LeRobotSource(tmp_path).read("train", 0).metadata["video"]["observation"]["images"]
    assert video["top"]["first"] == 0
    steps = with_video(LeRobotSource(tmp_path, video="frames")).read("train", 0).steps
    assert steps["observation"]["images"]["top"].tolist() == _decode(file)[:7].tolist()


def test_a_text_that_is_not_utf_8_is_refused(tmp_path):
    raw.write_v3(tmp_path)
    no_text = pa.array([b"a", b"\xff"]).cast(pa.string(), safe=False)
    _rewrite(tmp_path, _replace("task", lambda column: no_text), "meta/tasks.parquet")
    with pytest.raises(SourceError, match=r"tasks\.parquet: cannot be read: not valid UTF-8"):
        LeRobotSource(tmp_path)


def test_files_of_gr00t_and_robocasa_are_kept(tmp_path):
    raw.write_v2(tmp_path)
    raw.write_modality(tmp_path)
    raw.write_extras(tmp_path)
    (tmp_path / "README.md").write_text("Cüps")
    (tmp_path / "meta/picture.bin").write_bytes(b"\xff\x00")
    source = LeRobotSource(tmp_path)
    files = source.source_info.metadata["lerobot"]["files"]
    assert json.loads(files["meta/modality.json"]["text"]) == raw.MODALITY
    assert files["README.md"] == {"text": "Cüps"}
    assert files["meta/picture.bin"] == {"base64": "/wA="}
    assert {"meta/embodiment.json", "meta/relative_stats.json", "extras/dataset_meta.json"} < {
        *files
    }
    for index in range(3):
        extras = source.read("train", index).metadata["extras"]
        assert extras.keys() == {"ep_meta.json", "model.xml.gz", "states.npz"}
        for name, data in extras.items():
            assert data == (tmp_path / f"extras/episode_{index}/{name}").read_bytes()
    (tmp_path / "extras/episode_1/states.npz").unlink()
    assert source.read("train", 1).metadata["extras"]["states.npz"] == b""


def test_pipes_are_refused(tmp_path):
    raw.write_v2(tmp_path)
    os.mkfifo(tmp_path / "meta/pipe.json")
    source = LeRobotSource(tmp_path)
    with pytest.raises(SourceError, match=r"pipe\.json: not a regular file"):
        source.source_info  # noqa: B018


def test_columns_of_all_kinds_are_read(tmp_path):
    """Columns missing in `info.json`, and columns without a dtype."""
    kinds = {
        "events": pa.array([[{"role": "user", "content": "ü"}], [], None], None),
        "ragged": pa.array([[1.0], [2.0, 3.0], []]),
        "undeclared": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2)),
        "blob": pa.array([b"a", b"", b"\0"]),
        "half": pa.array(np.array([1, 2, 3], np.float16)),
        "flat": pa.array(np.arange(12.0).reshape(3, 4).tolist(), pa.list_(pa.float64(), 4)),
    }
    features = {"flat": {"dtype": "float64", "shape": [2, 2]}}
    raw.write_v3(
        tmp_path, lengths=(3,), files=((0,),), info={"features": {**raw.FEATURES, **features}}
    )
    file = tmp_path / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    for name, column in kinds.items():
        table = table.append_column(name, column)
    pq.write_table(table, file)
    source = LeRobotSource(tmp_path)
    steps = source.read("train", 0).steps
    assert [json.loads(text) for text in steps["events"]] == kinds["events"].to_pylist()
    assert [json.loads(text) for text in steps["ragged"]] == [[1.0], [2.0, 3.0], []]
    assert (steps["undeclared"].tolist(), steps["undeclared"].dtype) == (
        [[1, 2], [3, 4], [5, 6]],
        np.int16,
    )
    assert steps["blob"].tolist() == [b"a", b"", b"\0"]
    assert steps["half"].dtype == np.float16
    assert steps["flat"].tolist() == np.arange(12.0).reshape(3, 2, 2).tolist()
    assert {error.field for error in source.capabilities.faults("train")} == {
        f"features/{name}" for name in kinds if name != "flat"
    }


def test_splits_of_info_are_kept_if_they_are_valid(tmp_path):
    raw.write_v3(tmp_path, info={"splits": {"val": "2:3", "train": "0:2"}})
    source = LeRobotSource(tmp_path)
    assert list(source.splits) == ["val", "train"]
    assert source.key("val", 0) == "episode_000002"
    assert reading.lengths(source, "train").num_steps.tolist() == [7, 5]
    for splits in ({"train": "0:2"}, {"a": "0:2", "b": "1:3"}, {"a": "0:999999999"}, [3], {"a": 1}):
        raw.write_v3(tmp_path / "other", info={"splits": splits})
        source = LeRobotSource(tmp_path / "other")
        assert list(source.splits) == ["train"]
        assert source.num_episodes("train") == 3
        assert [error.field for error in source.capabilities.faults("train")] == ["splits"]


# --- What goes wrong.


def read_episodes(source):
    return {
        episode.key: episode.error if isinstance(episode, DamagedEpisode) else episode
        for section in reading.parts(source, "train")
        for episode in reading.episodes(source, "train", section)
    }


def test_a_data_file_without_footer_damages_its_episodes_only(tmp_path):
    raw.write_v3(tmp_path)
    raw.without_footer(tmp_path / "data/chunk-000/file-000.parquet")
    episodes = read_episodes(LeRobotSource(tmp_path))
    for key in ("episode_000000", "episode_000001"):
        assert isinstance(episodes[key], SourceError)
        assert episodes[key].episode == key
        assert episodes[key].file.endswith("data/chunk-000/file-000.parquet")
        assert "Parquet magic bytes not found in footer" in str(episodes[key])
    check_steps(episodes["episode_000002"].steps, expected_steps(raw.episodes()[2]))


def test_an_episode_table_without_footer_damages_its_episodes_only(tmp_path):
    raw.write_v3(tmp_path)
    file = tmp_path / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.read_table(file)
    pq.write_table(rows.slice(0, 2), file)
    lost = tmp_path / "meta/episodes/chunk-000/file-001.parquet"
    pq.write_table(rows.slice(2), lost)
    raw.without_footer(lost)
    episodes = read_episodes(LeRobotSource(tmp_path))
    assert [isinstance(episode, SourceError) for episode in episodes.values()] == [
        False,
        False,
        True,
    ]
    assert "file-001.parquet" in str(episodes["episode_000002"])
    raw.without_footer(file)
    with pytest.raises(SourceError, match=r"file-000\.parquet.*footer"):
        LeRobotSource(tmp_path)


@pytest.mark.parametrize("version", ["3", "3, in a file that is not complete", "2"])
def test_a_stopped_recording_keeps_listed_episodes_and_reports_unlisted_ones(tmp_path, version):
    """Rows are written before the table of episodes lists them."""
    table = tmp_path / "meta/episodes.jsonl"
    files = ((0, 1, 2),) if version == "3" else raw.FILES
    splits = {"splits": {"train": "0:1", "test": "1:2"}}
    if version == "2":
        raw.write_v2(tmp_path, info=splits)
        table.write_text("".join(table.read_text().splitlines(keepends=True)[:2]))
    else:
        raw.write_v3(tmp_path, files=files, info=splits)
        _rewrite(
            tmp_path, lambda rows: rows.slice(0, 2), "meta/episodes/chunk-000/file-000.parquet"
        )
    name = f"file-{len(files) - 1:03d}.parquet" if version != "2" else "episode_000002.parquet"
    message = "the data files have its rows, but meta/episodes.* does not list it"
    if "not complete" in version:
        raw.without_footer(tmp_path / "data/chunk-000" / name)
        message = "does not name the file, and .*footer"
    source = LeRobotSource(tmp_path)
    assert list(source.splits) == ["train", "test"]
    check_steps(source.read("test", 0).steps, expected_steps(raw.episodes()[1]))
    for read in (reading.read, reading.summary):
        with pytest.raises(SourceError, match=rf"{name}, episode episode_000002: .*{message}"):
            read(source, "test", 1)
    episodes = reading.episodes(source, "test", "0-2")
    assert [type(episode) is DamagedEpisode for episode in episodes] == [False, True]
    with pytest.raises(SourceError, match="episode_000002"):
        rlds.sources.export(source, "zarr", tmp_path / "made")
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        exported = rlds.sources.export(source, "zarr", tmp_path / "made", skip_damaged=True)
    assert (exported.num_episodes, len(exported.left_out)) == (2, 1)


def test_an_episode_recorded_again_under_the_same_number_is_an_error(tmp_path):
    raw.write_v3(tmp_path, files=((0, 1, 2),))
    data = tmp_path / "data/chunk-000"
    pq.write_table(pq.read_table(data / "file-000.parquet").slice(0, 3), data / "file-001.parquet")
    episodes = read_episodes(LeRobotSource(tmp_path))
    assert [isinstance(episode, SourceError) for episode in episodes.values()] == [False] * 3 + [
        True
    ]
    assert episodes["episode_000003"].file.endswith("file-001.parquet")


def test_tasks_in_another_order_keep_their_texts_and_are_reported(tmp_path):
    raw.write_v3(tmp_path / "3", tasks=(1, 0))
    raw.write_v2(tmp_path / "2", tasks=(1, 0))
    for version in "32":
        source = LeRobotSource(tmp_path / version)
        for index, data in enumerate(raw.episodes()):
            check_steps(source.read("train", index).steps, expected_steps(data))
        faults = [str(error) for error in source.capabilities.faults("train")]
        assert len(faults) == (version == "3")
    assert "expected 0, 1, ...: LeRobot reads wrong tasks" in str(
        next(LeRobotSource(tmp_path / "3").capabilities.faults("train"))
    )


def _rewrite(path, change, file="data/chunk-000/file-000.parquet"):
    table = change(pq.read_table(path / file))
    pq.write_table(table, path / file)


def _replace(name, values):
    def change(table):
        field = table.schema.field(name)
        return table.set_column(table.schema.get_field_index(name), field.name, values(table[name]))

    return change


def _set_value(row, value):
    """Returns a function that sets the value of a row."""

    def values(column):
        rows = column.to_pylist()
        rows[row] = value
        return pa.array(rows, column.type)

    return values


@pytest.mark.parametrize(
    ("change", "episode", "row", "field", "message"),
    [
        (lambda table: table.drop_columns(["action"]), 0, None, "action", "no such column"),
        (_replace("action", _set_value(8, [1.0, None, 2.0])), 1, 8, "action", "no value"),
        (_replace("task_index", _set_value(2, 9)), 0, 2, "task_index", "task 9"),
        (
            _replace("frame_index", _set_value(8, 4)),
            1,
            8,
            "frame_index",
            "expected 1: rows are shifted",
        ),
        (_replace("episode_index", _set_value(6, 0)), 0, 6, "episode_index", "0, expected 1"),
        (_replace("note", _set_value(1, None)), 0, 1, "note", "no value"),
        (
            _replace(raw.IMAGE, _set_value(7, {"bytes": None, "path": "x.png"})),
            *(1, 7, raw.IMAGE, "no value"),
        ),
        (
            _replace("mode", lambda column: column.cast(pa.float64())),
            *(None, None, "mode", ""),  # The same values.
        ),
        (
            _replace("mode", lambda column: pa.array([0.5] * len(column))),
            *(0, 0, "mode", "float64 .*0.5.* does not fit uint8, the dtype of the first file"),
        ),
        (
            _replace("observation.grid", _set_value(9, [[1.0, 2.0], [3.0, 4.0]])),
            *(1, 9, "observation.grid", "2 values, expected 3"),
        ),
        (
            _replace("note", lambda column: pa.array([1] * len(column))),
            *(0, None, "note", "int64, but string of shape .* in the first file"),
        ),
        (
            lambda table: table.slice(0, 9),
            1,
            None,
            None,
            "the episode has rows 7 to 12, but the file 9",
        ),
        (lambda table: table.slice(1), 0, 0, "frame_index", None),
    ],
)
def test_malformed_rows_damage_their_episode_only(tmp_path, change, episode, row, field, message):
    """The first file decides the types of columns; the second has more episodes."""
    raw.write_v3(tmp_path, lengths=(4, 7, 5), files=((0,), (1, 2)))
    file = "data/chunk-000/file-001.parquet"
    if field == "frame_index" and message is None:  # From the second row on.
        _rewrite(tmp_path, change, file)
        message, episode, row = "row", None, None
        errors = [
            e for e in read_episodes(LeRobotSource(tmp_path)).values() if isinstance(e, SourceError)
        ]
        assert [error.field for error in errors] == ["episode_index", None]
        assert [error.row for error in errors] == [6, None]
        return
    _rewrite(tmp_path, change, file)
    episodes = read_episodes(LeRobotSource(tmp_path))
    errors = [error for error in episodes.values() if isinstance(error, SourceError)]
    if episode is None:
        assert errors == []
        return
    error = errors[0]
    assert error.episode == episode_key(episode + 1)
    assert (error.row, error.field) == (row, field)
    assert error.file.endswith(file)
    with pytest.raises(SourceError, match=message):
        raise error
    assert not isinstance(episodes["episode_000000"], SourceError)


def test_wrong_row_offsets_damage_their_episode(tmp_path):
    raw.write_v3(tmp_path)
    table = "meta/episodes/chunk-000/file-000.parquet"
    _rewrite(tmp_path, _replace("dataset_from_index", _set_value(1, 6)), table)
    episodes = read_episodes(LeRobotSource(tmp_path))
    assert "dataset_to_index: 12, but dataset_from_index is 6" in str(episodes["episode_000001"])
    _rewrite(tmp_path, _replace("dataset_to_index", _set_value(1, 11)), table)
    error = read_episodes(LeRobotSource(tmp_path))["episode_000001"]
    assert (error.row, error.field) == (6, "episode_index")
    assert "0, expected 1: rows are shifted or missing" in str(error)


def test_wrong_counts_in_info_json_are_reported(tmp_path):
    counts = {"codebase_version": "v2.1", "total_frames": 17, "total_episodes": 4}
    raw.write_v3(
        tmp_path, info={**counts, "features": {**raw.FEATURES, "gone": raw.FEATURES["mode"]}}
    )
    source = LeRobotSource(tmp_path)
    assert [error.field for error in source.capabilities.faults("train")] == [
        "codebase_version",
        "total_episodes",
        "total_frames",
        "features/gone",
    ]
    assert source.num_episodes("train") == 3
    check_steps(source.read("train", 2).steps, expected_steps(raw.episodes()[2]))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("action", {"dtype": "float64"}, r"float64 of shape \(3,\), but the data have float32"),
        ("mode", {"shape": [2]}, r"uint8 of shape \(2,\), but the data have uint8 of shape \(\)"),
        ("note", {"dtype": "int64"}, r"int64 of .* have string"),
        ("observation.grid", {"shape": [6]}, r"\(6,\), but the data have values of several shapes"),
        (raw.IMAGE, {"shape": [6, 4, 3]}, r"\(6, 4, 3\), .* have image files of shape \(4, 6, 3\)"),
    ],
)
def test_columns_that_differ_from_info_json_are_reported(tmp_path, name, changes, message):
    features = {**raw.FEATURES, name: {**raw.FEATURES[name], **changes}}
    raw.write_v3(tmp_path, info={"features": features})
    [error] = LeRobotSource(tmp_path).capabilities.faults("train")
    assert error.field == f"features/{name}"
    with pytest.raises(SourceError, match=message):
        raise error


def test_times_that_jitter_are_kept_and_matched_with_frames(tmp_path):
    raw.write_v3(tmp_path, jitter=0.005, codecs={raw.TOP: "h264"})
    episode = LeRobotSource(tmp_path).read("train", 1)
    assert episode.steps["timestamp"][0] == np.float32(0.005)
    source = LeRobotSource(tmp_path, match="timestamp")
    video = source.read("train", 1).metadata["video"]["observation"]["images"]["top"]
    assert (video["frames"] - video["first"]).tolist() == [0, 1, 2, 3, 4]


def test_nan_values_are_kept(tmp_path):
    def columns(lengths):
        data = raw.episodes(lengths)
        data[1]["action"][2, 1] = np.nan
        return data

    raw.write_v3(tmp_path, columns_of=columns)
    action = LeRobotSource(tmp_path).read("train", 1).steps["action"]
    assert np.isnan(action).nonzero() == ([2], [1])


@pytest.mark.slow
def test_texts_much_larger_than_their_file_are_refused(tmp_path):
    path = raw.write_v3(tmp_path / "dataset")
    file = path / "meta/tasks.parquet"
    table = pq.read_table(file)
    texts = ["a" * (1 << 27), *table["task"].to_pylist()[1:]]
    tasks = table.set_column(table.schema.get_field_index("task"), "task", pa.array(texts))
    pq.write_table(tasks, file, compression="zstd")
    with pytest.raises(SourceError, match=r"tasks.parquet: 134,.* bytes are declared in "):
        rlds.sources.open(path)


def test_damaged_videos_damage_their_episodes_only(tmp_path):
    raw.write_v3(tmp_path, codecs={raw.TOP: "h264"}, files=((0,), (1,), (2,)))
    folder = tmp_path / f"videos/{raw.TOP}/chunk-000"
    (folder / "file-000.mp4").write_bytes(b"not a video at all")
    (folder / "file-002.mp4").unlink()
    source = LeRobotSource(tmp_path)
    with pytest.raises(SourceError, match=r"file-000\.mp4.*episode_000000") as raised:
        source.read("train", 0)
    assert raised.value.episode == "episode_000000"
    source.read("train", 1)
    with pytest.raises(
        SourceError, match=r"file-002\.mp4, episode .*2, field .*: the file does not"
    ):
        source.read("train", 2)
    assert len(reading.read_steps(source, "train", 0, ["action"])["action"]) == 7

    table = "meta/episodes/chunk-000/file-000.parquet"
    raw.write_v3(tmp_path / "late", codecs={raw.TOP: "h264"})
    _rewrite(
        tmp_path / "late", _replace(f"videos/{raw.TOP}/from_timestamp", _set_value(1, 0.8)), table
    )
    with pytest.raises(SourceError, match="4 frames for 5 rows") as raised:
        LeRobotSource(tmp_path / "late").read("train", 1)
    assert (raised.value.episode, raised.value.field) == ("episode_000001", raw.TOP)


def test_missing_files_damage_their_episodes_only(tmp_path):
    raw.write_v3(tmp_path / "3")
    (tmp_path / "3/data/chunk-000/file-000.parquet").unlink()
    episodes = read_episodes(LeRobotSource(tmp_path / "3"))
    for key in ("episode_000000", "episode_000001"):
        expected = (
            rf"file-000\.parquet, episode {key}: the file does not exist, but the episode needs it"
        )
        with pytest.raises(SourceError, match=expected):
            raise episodes[key]
    check_steps(episodes["episode_000002"].steps, expected_steps(raw.episodes()[2]))
    (tmp_path / "3/meta/tasks.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"tasks\.parquet"):
        LeRobotSource(tmp_path / "3")
    raw.write_v2(tmp_path / "2")
    (tmp_path / "2/meta/episodes.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"episodes\.jsonl"):
        LeRobotSource(tmp_path / "2")
    with pytest.raises(FileNotFoundError, match=r"no meta/info\.json"):
        LeRobotSource(tmp_path)


@pytest.mark.parametrize("line", ['{"episode_index": 1, "length": 5}', "{", "[]", '{"length": 5}'])
def test_malformed_lines_of_the_episode_table_are_refused(tmp_path, line):
    raw.write_v2(tmp_path)
    with (tmp_path / "meta/episodes.jsonl").open("a") as file:
        file.write(line)
    with pytest.raises(SourceError) as raised:
        LeRobotSource(tmp_path)
    assert raised.value.row == 3
    assert raised.value.file.endswith("episodes.jsonl")
