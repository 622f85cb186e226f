"""Exports of LeRobot datasets to LeRobot: the rows and packets are the same."""

import io
import itertools
import json
import re

import av
import foreign_readers
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import raw_lerobot as raw
from lerobot_layout import check_layout

import rlds
import rlds.sources
from rlds.conversion.exporting import prepare, write_export
from rlds.editing import Add, Delete, Drop, Merge, Rename, Trim
from rlds.formats.lerobot.dataset_files import DatasetFiles
from rlds.sources import SourceError, export
from rlds.video.container import Clip, packets_of
from rlds.video.decoding import ClipReader
from rlds_ecosystem.model.nests import leaves_at, lookup

LeRobotSource = rlds.sources.formats()["lerobot"].load()

VIDEOS = {raw.TOP: "h264", raw.DEPTH: "depth"}


def demux(clip):
    with av.open(io.BytesIO(clip)) as container:
        return [bytes(packet) for packet in container.demux(video=0) if packet.size]


def decode(image):
    return np.asarray(PIL.Image.open(io.BytesIO(image)))


def read_stats(metadata):
    row = json.loads(metadata["lerobot/row"])
    return {name: value for name, value in row.items() if name.startswith("stats/")}


def assert_same(path, copy):
    """Checks that rows, packets, statistics, tasks, info.json and small files are equal."""
    episodes = [list(rlds.sources.open(folder, "all")) for folder in (path, copy)]
    for old, new in zip(*episodes, strict=True):
        for name, column in leaves_at(old.steps, None):
            assert np.array_equal(column, lookup(new.steps, name)), name
            assert column.dtype == lookup(new.steps, name).dtype
        before, after = (dict(leaves_at(each.metadata, None)) for each in (old, new))
        assert before.keys() == after.keys()
        for name, value in before.items():
            if name.endswith("/clip"):
                assert demux(value) == demux(after[name])
            elif name != "lerobot/row":
                assert np.array_equal(value, after[name]), name
        stats, new_stats = read_stats(before), read_stats(after)
        assert stats == {name: new_stats[name] for name in stats}
    metadata = [rlds.sources.open(each, "all").metadata["lerobot"] for each in (path, copy)]
    assert metadata[0]["fields"] == metadata[1]["fields"]
    tasks = [sorted((row["task_index"], row["task"]) for row in each["tasks"]) for each in metadata]
    assert tasks[0] == tasks[1]
    for info in (each["info"] for each in metadata):
        assert info.pop("codebase_version")
        assert info.pop("data_path")
        info.pop("video_path")
    assert metadata[0]["info"].items() <= metadata[1]["info"].items()
    check_layout(copy)


def write_all(path):
    """Writes a dataset of version 3.0 with videos and the files of GR00T and RoboCasa."""
    raw.write_v3(path, codecs=VIDEOS)
    raw.write_modality(path)
    raw.write_extras(path)
    (path / "README.md").write_bytes(b"\xff no text")
    return path


@pytest.mark.slow
def test_datasets_of_version_3_are_exported_unchanged(tmp_path):
    path = write_all(tmp_path / "raw")
    exported = export(path, "lerobot", tmp_path / "made")
    assert_same(path, tmp_path / "made")
    assert {placement.how for placement in exported.placements} == {"exact", "renumbered"}
    for name in ("meta/modality.json", "extras/episode_2/states.npz", "README.md"):
        assert (tmp_path / "made" / name).read_bytes() == (path / name).read_bytes()
    [placement] = [
        placement for placement in exported.placements if placement.field.endswith("top/clip")
    ]
    assert placement.place == f"videos/{raw.TOP}"


def test_cameras_with_other_paths_are_exported_unchanged(tmp_path):
    path = write_all(tmp_path / "raw")
    source = rlds.sources.open(path, flat_cameras=True).source
    assert "top" in source.fields.episode["video"]["observation"]
    export(source, "lerobot", tmp_path / "made")
    assert_same(path, tmp_path / "made")


@pytest.mark.slow
def test_video_cut_between_keyframes_is_exported_to_version_3_only(tmp_path):
    path = raw.write_v3(tmp_path / "raw", codecs={raw.TOP: "unaligned"}, row_groups=False)
    export(path, "lerobot", tmp_path / "made")
    assert_same(path, tmp_path / "made")
    with pytest.raises(ValueError, match=r"episode_000001\.mp4, .* Only version 3\.0 can"):
        export(path, "lerobot", tmp_path / "cut", version="v2.1")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v2.1", "v2.0"])
def test_datasets_of_version_2_are_exported_unchanged(tmp_path, version):
    path = raw.write_v2(tmp_path / "raw", version=version, codecs={raw.TOP: "h264"}, tasks=(1, 0))
    export(path, "lerobot", tmp_path / "made")
    assert_same(path, tmp_path / "made")


def rows_and_frames(path, count=None):
    """Returns the rows of each episode with the task, and the frames of its videos."""
    rows = []
    for episode in itertools.islice(rlds.sources.open(path), count):
        steps = {**episode.steps}
        clips = episode.metadata.get("video", {"observation": {"images": {}}})
        frames = {}
        for name, clip in clips["observation"]["images"].items():
            with ClipReader(clip["clip"]) as reader:
                first = int(clip["first"])
                frames[name] = reader.frames(first, first + episode.num_steps)
        rows.append((steps, frames))
    return rows


def assert_same_rows(expected, actual, *, ignored=()):
    for (steps, frames), (new_steps, new_frames) in zip(expected, actual, strict=True):
        for name, column in leaves_at(steps, None):
            if name not in ignored:
                assert np.array_equal(column, lookup(new_steps, name)), name
        assert frames.keys() == new_frames.keys()
        for name in frames:
            assert np.array_equal(frames[name], new_frames[name])


@pytest.mark.slow
def test_rows_and_frames_survive_both_versions(tmp_path):
    path = write_all(tmp_path / "raw")
    old = export(path, "lerobot", tmp_path / "old", version="v2.1")
    fields = {"steps/episode_index", "steps/index", "steps/task_index"}
    assert {placement.field for placement in old.placements if placement.how != "exact"} == fields
    check_layout(tmp_path / "old")
    export(old.path, "lerobot", tmp_path / "new", version="v3.0")
    check_layout(tmp_path / "new")
    rows = rows_and_frames(path)
    assert_same_rows(rows, rows_and_frames(tmp_path / "old"))
    assert_same_rows(rows, rows_and_frames(tmp_path / "new"))
    tasks = (pq.read_table(root / "meta/tasks.parquet") for root in (path, tmp_path / "new"))
    assert len({str(table.to_pydict()) for table in tasks}) == 1
    for name in ("meta/modality.json", "extras/episode_2/states.npz", "README.md"):
        assert (tmp_path / "new" / name).read_bytes() == (path / name).read_bytes()
    stats = json.loads((tmp_path / "new/meta/stats.json").read_text())
    expected = json.loads((path / "meta/stats.json").read_text())
    assert stats.keys() == expected.keys()
    for feature, kinds in expected.items():
        for kind in ("min", "max", "mean", "std", "count"):
            np.testing.assert_allclose(stats[feature][kind], kinds[kind], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_selection_of_episodes_is_renumbered(tmp_path):
    path = write_all(tmp_path / "raw")
    export(path, "lerobot", tmp_path / "made", split="train[1:]")
    assert [len(rows["index"]) for rows in check_layout(tmp_path / "made")] == [5, 6]
    ignored = ("episode_index", "index")
    assert_same_rows(rows_and_frames(path)[1:], rows_and_frames(tmp_path / "made"), ignored=ignored)


@pytest.mark.slow
def test_additional_entries_of_info_and_episodes_are_kept(tmp_path):
    """Users add entries to info.json, and to the table of episodes."""
    path = raw.write_v2(tmp_path / "raw", info={"site": "lab 3"})
    file = path / "meta/episodes.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    entries = [{"operator": None}, {"operator": "Ada", "grade": 0.5}, {}]
    lines = [{**line, **added} for line, added in zip(lines, entries)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    export(path, "lerobot", tmp_path / "new", version="v3.0")
    export(tmp_path / "new", "lerobot", tmp_path / "some", version="v3.0", split="train[1:]")
    export(tmp_path / "some", "lerobot", tmp_path / "old", version="v2.1")
    text = (tmp_path / "old/meta/episodes.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["operator"], line["grade"]) for line in lines] == [("Ada", 0.5), (None, None)]
    info = json.loads((tmp_path / "old/meta/info.json").read_text())
    assert (info["site"], info["total_episodes"]) == ("lab 3", 2)
    assert "data_files_size_in_mb" not in info


def test_lists_have_a_name_that_old_readers_know(tmp_path):
    path = raw.write_v3(tmp_path / "raw", list_type="List")
    export(path, "lerobot", tmp_path / "made", version="v2.1")
    check_layout(tmp_path / "made")


@pytest.mark.slow
def test_damaged_episodes_are_refused_or_left_out(tmp_path):
    path = raw.write_v3(tmp_path / "raw")
    raw.without_footer(path / "data/chunk-000/file-001.parquet")
    with pytest.raises(SourceError, match=r"file-001\.parquet, episode episode_000002"):
        export(path, "lerobot", tmp_path / "made")
    with pytest.warns(UserWarning, match="1 episode is damaged and left out"):
        exported = export(path, "lerobot", tmp_path / "made", skip_damaged=True)
    assert (exported.num_episodes, len(exported.left_out)) == (2, 1)
    assert len(check_layout(tmp_path / "made")) == 2
    assert_same_rows(rows_and_frames(path, 2), rows_and_frames(tmp_path / "made"))


def drop_last_value(file, name):
    """Removes the last value of a column; returns its row."""
    table = pq.read_table(file)
    position, row = table.column_names.index(name), table.num_rows - 1
    null = pa.nulls(1, table.schema.field(position).type)
    column = pa.chunked_array([*table[name].slice(0, row).chunks, null])
    pq.write_table(table.set_column(position, table.schema.field(position), column), file)
    return row


@pytest.mark.parametrize("name", ["next.reward", "task_index"])
def test_damaged_rows_behind_copied_rows_are_an_error(tmp_path, name):
    """All rows are in one file, of which many rows are decoded together."""
    raw.write_v3(tmp_path / "data", files=((*range(len(raw.LENGTHS)),),), codecs=VIDEOS)
    [file] = (tmp_path / "data/data").rglob("*.parquet")
    row, last = drop_last_value(file, name), len(raw.LENGTHS) - 1
    edited = rlds.edit(tmp_path / "data", Delete(episodes=[last]), to=tmp_path / "made")
    assert edited.num_episodes == last
    message = f"episode_{last:06}, row {row}, field '{name}': no value"
    with pytest.raises(SourceError, match=message):
        rlds.edit(tmp_path / "data", Delete(episodes=[0]), to=tmp_path / "again")


def test_options_that_contradict_the_dataset_are_refused(tmp_path):
    path = raw.write_v3(tmp_path / "raw", info={"fps": 12.5})
    with pytest.raises(ValueError, match="the episodes came from LeRobot, and keep theirs"):
        prepare(path, "lerobot", fps=10.0)
    with pytest.raises(ValueError, match=r"12\.5, but readers of version 2.1 take whole numbers"):
        prepare(path, "lerobot", version="v2.1")


@pytest.mark.parametrize("name", ["../evil", "/evil", "meta/../../evil", "meta\\evil"])
def test_metadata_that_names_files_outside_the_dataset_is_refused(tmp_path, monkeypatch, name):
    path = raw.write_v3(tmp_path / "raw")
    source = rlds.sources.open(path).source
    metadata = json.loads(json.dumps(source.source_info.metadata))
    metadata["lerobot"]["files"][name] = {"text": "x"}
    monkeypatch.setattr(source, "source_info", source.source_info.replace(metadata=metadata))
    with pytest.raises(SourceError, match="is not the name of a file below"):
        export(source, "lerobot", tmp_path / "made")
    del metadata["lerobot"]["files"][name], metadata["lerobot"]["schemas"]
    with pytest.raises(SourceError, match=r"metadata of .*schemas"):
        export(source, "lerobot", tmp_path / "made")


@pytest.mark.slow
def test_a_tfds_dataset_of_lerobot_is_exported_unchanged(tmp_path):
    import tfds_builders

    path = write_all(tmp_path / "raw")
    source = rlds.sources.open(path).source
    builder = tfds_builders.convert(source, name="robots", data_dir=str(tmp_path / "tfds"))
    export(builder.data_path, "lerobot", tmp_path / "made")
    assert_same(path, tmp_path / "made")


_COMPARE = """
import json, sys
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.scripts.convert_dataset_v21_to_v30 import convert_dataset
original, old, new = sys.argv[1:]
convert_dataset("a/old", root=old, push_to_hub=False)
datasets = [LeRobotDataset("a/b", root=root, video_backend="pyav") for root in (original, old, new)]
for row in range(len(datasets[0])):
    first, *copies = (dataset[row] for dataset in datasets)
    for copy in copies:
        assert first.keys() == copy.keys()
        for name, value in first.items():
            copied = copy[name]
            same = torch.equal(value, copied) if hasattr(value, "shape") else value == copied
            assert same, (row, name)
print()
print(json.dumps([len(dataset) for dataset in datasets]))
"""


@pytest.mark.slow
def test_lerobot_reads_the_same_from_both_versions(tmp_path):
    path = raw.write_v3(tmp_path / "raw", codecs={raw.TOP: "h264"})
    export(path, "lerobot", tmp_path / "old", version="v2.1")
    export(tmp_path / "old", "lerobot", tmp_path / "new", version="v3.0")
    roots = (path, tmp_path / "old", tmp_path / "new")
    assert foreign_readers.run("lerobot", _COMPARE, *roots) == [18, 18, 18]


def video_files(path, video=raw.TOP):
    return sorted((path / "videos" / video).rglob("*.mp4"))


def read_spans(path, video=raw.TOP):
    rows = pq.read_table(path / "meta/episodes").to_pylist()
    names = [f"videos/{video}/{name}" for name in ("file_index", "from_timestamp", "to_timestamp")]
    return [tuple(row[name] for name in names) for row in rows]


def test_an_edit_keeps_packets_statistics_and_files(tmp_path, monkeypatch):
    path = write_all(tmp_path / "raw")
    episodes = rlds.sources.open(path).select([2, 0])
    prepared = prepare(episodes, "lerobot")
    with monkeypatch.context() as patched:  # Episodes are copied: none is read as values.
        patched.delattr(LeRobotSource, "_steps")
        assert write_export(prepared, tmp_path / "made").num_steps == 13
    check_layout(tmp_path / "made")
    before, after = (list(rlds.sources.open(folder)) for folder in (path, tmp_path / "made"))
    for old, new in zip([before[2], before[0]], after, strict=True):
        for camera in ("top", "depth"):
            clips = [e.metadata["video"]["observation"]["images"][camera] for e in (old, new)]
            packets = [packets_of(Clip(c["clip"], int(c["first"]), len(old))) for c in clips]
            assert packets[0] == packets[1]
        old_statistics, new_statistics = (
            read_stats(dict(leaves_at(episode.metadata, None))) for episode in (old, new)
        )
        for name, value in old_statistics.items():
            if name.split("/")[1] not in ("episode_index", "index", "task_index"):
                assert new_statistics[name] == value, name
    assert np.allclose(read_spans(tmp_path / "made"), [(0, 0.0, 0.6), (0, 0.6, 1.3)], atol=1e-12)
    assert len(video_files(tmp_path / "made")) == 1
    assert json.loads(after[0].metadata["lerobot"]["row"])["stats/index/max"] == [5]
    tasks = pq.read_table(tmp_path / "made/meta/tasks.parquet").to_pylist()
    assert tasks == [{"task_index": 0, "task": raw.TASKS[0]}]
    for name in ("meta/modality.json", "README.md"):
        assert (tmp_path / "made" / name).read_bytes() == (path / name).read_bytes()
    total = json.loads((tmp_path / "made/meta/stats.json").read_text())
    rows = np.concatenate([episode.steps["action"] for episode in after]).astype(float)
    expected = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
    for kind, value in {**expected, "count": [13]}.items():
        np.testing.assert_allclose(total["action"][kind], value, rtol=1e-9)


def test_trimmed_episodes_have_the_rows_and_frames_of_their_steps(tmp_path):
    """Their clips, times and statistics are those of the steps that stay."""
    path = raw.write_v3(tmp_path / "raw", codecs={raw.TOP: "unaligned"})
    rlds.edit(path, Trim(2, 5, where="steps > 5"), to=tmp_path / "made")
    check_layout(tmp_path / "made")
    before, after = rows_and_frames(path), rows_and_frames(tmp_path / "made")
    for index, rows in enumerate([slice(2, 5), slice(None), slice(2, 5)]):
        [(old, frames), (new, new_frames)] = before[index], after[index]
        assert np.array_equal(frames["top"][rows], new_frames["top"])
        assert np.array_equal(old["action"][rows], new["action"])
        np.testing.assert_array_equal(new["frame_index"], np.arange(len(new["action"])))
        np.testing.assert_allclose(new["timestamp"], np.arange(len(new["action"])) / raw.FPS)
    row = json.loads(rlds.sources.open(tmp_path / "made")[0].metadata["lerobot"]["row"])
    assert row["stats/action/min"] == before[0][0]["action"][2:5].min(0).tolist()
    total = json.loads((tmp_path / "made/meta/stats.json").read_text())
    rows = np.concatenate([steps["observation"]["grid"] for steps, _ in after])
    np.testing.assert_allclose(total["observation.grid"]["std"], rows.std(0))


def test_videos_of_different_codecs_are_merged_into_separate_files(tmp_path):
    path = raw.write_v3(tmp_path / "one", codecs={raw.TOP: "h264"})
    raw.write_v3(tmp_path / "other", codecs={raw.TOP: "av1"}, lengths=(4, 4, 4))
    rlds.edit(path, Merge([tmp_path / "other"]), to=tmp_path / "made")
    actual = read_spans(tmp_path / "made")
    assert [file for file, _, _ in actual] == [0, 0, 0, 1, 1, 1]
    expected = rows_and_frames(path) + rows_and_frames(tmp_path / "other")
    ignored = ("episode_index", "index")
    assert_same_rows(expected, rows_and_frames(tmp_path / "made"), ignored=ignored)


def test_a_damaged_packet_in_the_export_is_an_error(tmp_path, monkeypatch):
    path = raw.write_v3(tmp_path / "raw", codecs={raw.TOP: "h264"})
    finish = DatasetFiles.finish

    def damage(self, features):
        finish(self, features)
        for file in video_files(self._directory):
            data = bytearray(file.read_bytes())
            [first, *_] = demux(bytes(data))
            data[data.index(first) + len(first) - 1] ^= 1
            file.write_bytes(data)

    monkeypatch.setattr(DatasetFiles, "finish", damage)
    with pytest.raises(ValueError, match=r"episode 0: the data on disk differs"):
        export(path, "lerobot", tmp_path / "made")
    message = r"episode 0 \(.*: video/observation/images/top/clip: "
    with pytest.raises(ValueError, match=message):  # Computed from the values, not copied.
        rlds.edit(path, Trim(0, 3, where="steps > 3"), to=tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_tables_of_other_types_or_without_statistics_are_merged(tmp_path):
    """Rows that cannot be copied unchanged are copied by value."""
    path = raw.write_v3(tmp_path / "one")
    file = path / "data/chunk-000/file-001.parquet"
    table = pq.read_table(file)
    column_index = table.schema.get_field_index("next.reward")
    wide = table.set_column(column_index, "next.reward", table["next.reward"].cast("float64"))
    pq.write_table(wide, file)
    other = raw.write_v3(tmp_path / "other")
    for file in (other / "meta/episodes").rglob("*.parquet"):
        table = pq.read_table(file)
        names = [name for name in table.column_names if not name.startswith("stats/")]
        pq.write_table(table.select(names), file)
    before = rows_and_frames(path) + rows_and_frames(other)
    rlds.edit(path, Merge([other]), to=tmp_path / "made")
    check_layout(tmp_path / "made")
    after = rows_and_frames(tmp_path / "made")
    assert_same_rows(before, after, ignored=("episode_index", "index", "task_index"))
    rewards = np.concatenate([steps["reward"] for steps, _ in before])
    total = json.loads((tmp_path / "made/meta/stats.json").read_text())
    np.testing.assert_allclose(total["next.reward"]["mean"], [rewards.mean(dtype=float)])


def test_edits_rename_drop_and_add_fields_and_keep_other_fields(tmp_path):
    """All other features, rows, packets, statistics and small files are unchanged."""
    path = write_all(tmp_path / "raw")
    rlds.edit(
        path,
        Rename("steps/observation/images/top", "observation/images/front"),
        Rename("observation/images/wrist", "observation/images/hand"),
        Rename("steps/mode", "steps/gear"),
        Drop("steps/note"),
        Drop(f"steps/{raw.DEPTH.replace('.', '/')}"),
        Add("steps/speed", lambda episode: episode.steps["action"][:, 0] * 2),
        to=tmp_path / "made",
    )
    edited = tmp_path / "made"
    check_layout(edited)
    front, hand = "observation.images.front", "observation.images.hand"
    names = {raw.TOP: front, "observation.images.wrist": hand, "mode": "gear"}
    before, after = (json.loads((p / "meta/info.json").read_text()) for p in (path, edited))
    expected = {
        names.get(name, name): feature_info
        for name, feature_info in before["features"].items()
        if name not in ("note", raw.DEPTH)
    }
    expected["speed"] = {"dtype": "float32", "shape": [1], "names": None}
    assert after["features"] == expected
    assert not (edited / ".rlds/columns").exists()
    assert sorted(folder.name for folder in (edited / "videos").iterdir()) == [front]
    for old, new in zip(rlds.sources.open(path), rlds.sources.open(edited), strict=True):
        columns, new_columns = (dict(leaves_at(episode.steps, None)) for episode in (old, new))
        assert "note" not in new_columns
        np.testing.assert_array_equal(new_columns.pop("speed"), old.steps["action"][:, 0] * 2)
        for name, column in new_columns.items():
            old_name = name.replace("gear", "mode").replace("/hand", "/wrist")
            np.testing.assert_array_equal(column, columns[old_name], err_msg=name)
        clips = [
            episode.metadata["video"]["observation"]["images"][camera]
            for episode, camera in ((old, "top"), (new, "front"))
        ]
        packets = [packets_of(Clip(c["clip"], int(c["first"]), len(old))) for c in clips]
        assert packets[0] == packets[1]
        old_statistics, new_statistics = (
            read_stats(dict(leaves_at(e.metadata, None))) for e in (old, new)
        )
        for name, value in old_statistics.items():
            _, feature, kind = name.split("/")
            if feature in ("note", raw.DEPTH, "task_index"):
                assert name not in new_statistics or feature == "task_index"
            else:
                assert new_statistics[f"stats/{names.get(feature, feature)}/{kind}"] == value
        assert new_statistics["stats/speed/max"] == [new_columns["action"][:, 0].max() * 2]
    table = pq.read_schema(next((edited / "data").rglob("*.parquet")))
    assert json.loads(table.metadata[b"huggingface"])["info"]["features"].keys() == {*table.names}


def test_fields_that_lerobot_cannot_store_do_not_change_its_columns(tmp_path):
    """The sidecar then has these fields, and the indices that LeRobot renumbers."""
    path = raw.write_v3(tmp_path / "raw", codecs={raw.TOP: "h264"}, info={"robot_type": "arm"})
    rlds.edit(path, Add("grade", lambda episode: 3), to=tmp_path / "made")
    edited = rlds.sources.open(tmp_path / "made")
    assert [int(episode.metadata["grade"]) for episode in edited] == [3, 3, 3]
    infos = [
        json.loads((folder / "meta/info.json").read_text()) for folder in (path, tmp_path / "made")
    ]
    assert infos[0]["features"].keys() == infos[1]["features"].keys()
    assert infos[1]["robot_type"] == "arm"
    done = [
        [
            pq.read_table(file)["next.done"].to_pylist()
            for file in sorted(folder.glob("data/**/*.parquet"))
        ]
        for folder in (path, tmp_path / "made")
    ]
    assert [*itertools.chain(*done[0])] == [*itertools.chain(*done[1])]
    assert_same_rows(rows_and_frames(path), rows_and_frames(tmp_path / "made"))
    rlds.edit(tmp_path / "made", Drop("grade"), Delete(episodes=[0]))
    assert not (tmp_path / "made/.rlds/columns").exists()  # LeRobot can store all fields again.
    ignored = ("episode_index", "index")
    assert_same_rows(rows_and_frames(path)[1:], rows_and_frames(tmp_path / "made"), ignored=ignored)


_PAIRS = """
import json, sys
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
old, new = (LeRobotDataset("a/b", root=root, video_backend="pyav") for root in sys.argv[1:3])
pairs, names = map(json.loads, sys.argv[3:])
for index, new_index in pairs:
    row, new_row = old[index], new[new_index]
    for name in row.keys() - {"episode_index", "index", "task_index", "timestamp", "frame_index"}:
        value, copied = row[name], new_row[names.get(name, name)]
        assert torch.equal(value, copied) if hasattr(value, "shape") else value == copied, name
print()
print(json.dumps([len(new), len(pairs)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["h264", "av1", "unaligned"])
def test_lerobot_reads_edited_datasets(tmp_path, codec):
    path = raw.write_v3(tmp_path / "raw", codecs={raw.TOP: codec}, files=((0, 1, 2),))
    rename = Rename("steps/observation/images/top", "steps/observation/images/front")
    operations = [Trim(2, 5, where="steps > 6"), Delete(episodes=[1]), rename]
    rlds.edit(path, *operations, to=tmp_path / "made")
    pairs = [(2, 0), (3, 1), (4, 2), *((12 + row, 3 + row) for row in range(6))]
    arguments = json.dumps(pairs), json.dumps({raw.TOP: "observation.images.front"})
    actual = foreign_readers.run("lerobot", _PAIRS, path, tmp_path / "made", *arguments)
    assert actual == [9, 9]


TASK, TEXT, VALID = (
    "task_index",
    "annotation.human.action.task_description",
    "annotation.human.validity",
)


def write_annotated(path, write, word, indices=None):
    """Writes a dataset of GR00T: an annotation differs by episode, another is partly missing."""
    texts = {TEXT: [f"{word} {index}" for index in range(3)], VALID: ["valid", None, "valid"]}
    raw.write_annotations(write(path), texts, indices)
    return path, raw.texts_of_rows(path, [TASK, TEXT, VALID])


@pytest.mark.parametrize("write", [raw.write_v3, raw.write_v2])
def test_task_numbers_lead_to_the_same_texts_after_edits(tmp_path, write):
    """Also if the numbers of tasks have gaps."""
    path, texts = write_annotated(tmp_path / "a", write, "pick")
    other, other_texts = write_annotated(tmp_path / "b", write, "place")
    gaps, gap_texts = write_annotated(tmp_path / "gaps", write, "lift", [9, 7, 5, 4])
    names = [TASK, TEXT, VALID]

    rlds.edit(path, Merge([other, gaps]), to=tmp_path / "all")
    assert raw.texts_of_rows(tmp_path / "all", names) == texts + other_texts + gap_texts
    rlds.edit(path, Merge([other]), Trim(begin=1), Delete(episodes=[0, 1, 2]), to=tmp_path / "cut")
    trimmed = [[row_texts[1:] for row_texts in each] for each in (other_texts, texts)]
    assert raw.texts_of_rows(tmp_path / "cut", names[1:]) == trimmed[0]
    exported = export(path, "lerobot", tmp_path / "part", split="train[1:]")
    assert raw.texts_of_rows(tmp_path / "part", names) == texts[1:]
    assert {p.how for p in exported.placements if "annotation" in p.field} == {"renumbered"}
    export(gaps, "lerobot", tmp_path / "whole")
    assert raw.texts_of_rows(tmp_path / "whole", names) == gap_texts
    last = LeRobotSource(tmp_path / "all").read("train", 8)
    indices = last.steps["annotation"]["human"]["validity"]
    assert read_stats({"lerobot/row": last.metadata["lerobot"]["row"]})[f"stats/{VALID}/max"] == [
        indices.max()
    ]

    exported = [export(each, "tfds", tmp_path / f"tfds/{each.name}").path for each in (path, other)]
    rlds.edit(exported[0], Merge(exported[1:]), to=tmp_path / "merged")
    tasks = rlds.sources.open(tmp_path / "merged").metadata["lerobot"]["tasks"]
    assert tasks[-1]["task"].startswith("place")
    export(tmp_path / "merged", "lerobot", tmp_path / "back")
    row_texts = raw.texts_of_rows(tmp_path / "back", names)
    assert sorted(map(str, row_texts)) == sorted(map(str, texts + other_texts))
    # Datasets that older releases converted do not mark these columns.
    file = tmp_path / "tfds/a/metadata.json"
    file.write_text(re.sub(r'"table": *"tasks"', '"table": ""', file.read_text()))
    assert not rlds.sources.open(file.parent).source.fields.steps["task_index"].table
    rlds.edit(
        file.parent,
        Delete(where="key = 'episode_000000'"),
        to_format="lerobot",
        to=tmp_path / "old",
    )
    assert raw.texts_of_rows(tmp_path / "old", names) == texts[1:]
    # With images as video, it is a new dataset, which has the same table.
    export(path, "lerobot", tmp_path / "video", codec="h264")
    assert raw.texts_of_rows(tmp_path / "video", names[1:]) == trimmed[1]
    exported = export(gaps, "lerobot", tmp_path / "gap_video", codec="h264")
    assert {p.how for p in exported.placements if "annotation" in p.field} == {"sidecar"}


@pytest.mark.parametrize("is_first", [False, True])
def test_a_merge_with_a_dataset_of_less_metadata_keeps_all_texts(tmp_path, is_first):
    """Its modality.json names no annotations, or its episodes have no statistics."""
    paths, texts = [], []
    for name in ("silent", "stated", "bare"):
        path, row_texts = write_annotated(tmp_path / name, raw.write_v3, name)
        paths.append(path)
        texts.append(row_texts)
    (paths[0] / "meta/modality.json").write_text('{"annotation": {}}')
    file = paths[2] / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.read_table(file)
    raw.write_table(file, rows.drop([n for n in rows.column_names if n.startswith("stats/")]))
    order = [0, 1, 2] if is_first else [1, 0, 2]
    rlds.edit(paths[order[0]], Merge([paths[n] for n in order[1:]]), to=tmp_path / "made")
    merged = raw.texts_of_rows(tmp_path / "made", [TASK, TEXT, VALID])
    assert merged == [row_texts for n in order for row_texts in texts[n]]
    assert LeRobotSource(tmp_path / "made").task_columns == [TEXT, VALID]


def test_task_columns_are_declared_with_an_option(tmp_path):
    name, path = "task_index_high_level", raw.write_v3(tmp_path / "raw")
    raw.write_annotations(path, {name: ["tidy up", "lay the table", None], TEXT: ["a", "b", "c"]})
    with pytest.raises(ValueError, match="task_columns: got 'other', expected some of action"):
        LeRobotSource(path, task_columns=["other"])
    columns = {"task_columns": [name, TEXT]}
    rename = Rename("steps/annotation/human/action/task_description", "text")
    rlds.edit(path, Delete(episodes=[0]), rename, to=tmp_path / "made", options=columns)
    actual = raw.texts_of_rows(tmp_path / "made", [name, "text"])
    assert actual == [["lay the table", "b"], [None, "c"]]
    assert LeRobotSource(tmp_path / "made").task_columns == [name, "text"]
    raw.write_tasks(path)  # The numbers then have no texts.
    [fault] = [f for f in LeRobotSource(path).capabilities.faults("train") if f.field == TEXT]
    assert fault.problem == "the dataset has no task 4"
    with pytest.raises(ValueError, match=rf"episode 0, {TEXT}: 5 has no text .* task_columns=\[\]"):
        rlds.edit(path, Delete(episodes=[0]))
    rlds.edit(path, Delete(episodes=[0]), options={"task_columns": []})
    annotations = rlds.sources.open(path)[0].steps["annotation"]["human"]["action"]
    assert {*annotations["task_description"].tolist()} == {5}
    assert not LeRobotSource(path).task_columns
    drop_last_value(max((path / "data").rglob("*.parquet")), TEXT)
    source = LeRobotSource(path, task_columns=[TEXT])
    assert not [*source.capabilities.faults("train")]  # Reading the episode reports it.
    with pytest.raises(SourceError, match="no value"):
        source.read("train", 1)


@pytest.mark.parametrize(("format_name", "suffix"), [("zarr", ".zarr"), ("robomimic", ".hdf5")])
def test_task_texts_survive_other_formats(tmp_path, format_name, suffix):
    texts, files = [], [tmp_path / f"{word}{suffix}" for word in ("pick", "place", "all")]
    for word, file in zip(("pick", "place"), files):
        path, actual = write_annotated(tmp_path / word, raw.write_v3, word)
        export(path, format_name, file)
        texts += actual
    rlds.edit(files[0], Merge([files[1]]), to=files[2])
    export(files[2], "lerobot", tmp_path / "back")
    actual = raw.texts_of_rows(tmp_path / "back", [TASK, TEXT, VALID])
    assert sorted(map(str, actual)) == sorted(map(str, texts))
    before, after = (rlds.sources.open(tmp_path / name)[0] for name in ("pick", "back"))
    images = [decode(each.steps["observation"]["images"]["wrist"][0]) for each in (before, after)]
    np.testing.assert_array_equal(*images)
    # Episodes that are copied get the numbers that their texts have in the merged table.
    drops = [Drop("lerobot/row"), Drop("steps/task_index")]
    for file, name in zip(files, ("first", "second")):
        rlds.edit(file, *drops, to=tmp_path / f"{name}{suffix}")
        export(tmp_path / f"{name}{suffix}", "lerobot", tmp_path / name)
        assert (tmp_path / name / ".rlds/columns").exists()
    merge = Merge([tmp_path / "second"])
    rlds.edit(tmp_path / "first", merge, Delete(episodes=[0]), to=tmp_path / "merged")
    actual = raw.texts_of_rows(tmp_path / "merged", [TASK, TEXT, VALID])
    expected = [raw.texts_of_rows(tmp_path / n, [TASK, TEXT, VALID]) for n in ("first", "second")]
    assert actual == [*expected[0][1:], *expected[1]]
