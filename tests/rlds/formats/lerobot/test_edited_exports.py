"""Edits of LeRobot datasets exported from other formats: unchanged episodes are copied."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import raw_lerobot as raw
from filmed_robot import FilmedSource
from lerobot_layout import check_layout
from pictured_robot import PicturedRobot
from robot_source import RobotSource

import rlds.sources
from rlds.editing import Delete, Describe, Merge, Trim
from rlds.formats.lerobot import dataset_files
from rlds.formats.lerobot.rlds_rows import RldsRows
from rlds.sources import export
from rlds.sources.testing import differences
from rlds.video.container import Clip, VideoFile, packets_of
from rlds_ecosystem.model.nests import leaves_at

SOURCES = {
    "clips": (lambda path: FilmedSource(path), {}),
    "video": (lambda path: PicturedRobot((5, 3, 7)), {"codec": "h264", "fps": 10}),
    "images": (lambda path: RobotSource(), {"task": "observation/note"}),
}


def read_packets(episode):
    values = dict(leaves_at(episode.metadata, None))
    paths = [path.removesuffix("/clip") for path in values if path.endswith("/clip")]
    clips = [Clip(values[f"{path}/clip"], int(values[f"{path}/first"])) for path in paths]
    return [packets_of(clip) for clip in clips]


def read_rows(path):
    """Returns the rows of the table of episodes without positions and indices."""
    [file] = (path / "meta/episodes").rglob("*.parquet")
    prefixes = ("data/", "videos/", "dataset_", "episode_index", "stats/episode", "stats/index")
    prefixes += ("meta/", "stats/task_index")
    rows = pq.read_table(file).to_pylist()
    return [{n: v for n, v in row.items() if not n.startswith(prefixes)} for row in rows]


def assert_same(old, new, ignored=()):
    clips = {path for path, _ in leaves_at(old.metadata, None) if path.endswith("/clip")}
    assert list(differences(old, new, {*ignored, *clips})) == []
    assert read_packets(old) == read_packets(new)


@pytest.mark.parametrize("kind", ["clips", "video", "images"])
def test_unchanged_episodes_are_copied(tmp_path, monkeypatch, kind):
    source, options = SOURCES[kind]
    path = tmp_path / "made"
    export(source(tmp_path), "lerobot", path, **options)
    target = {"task": options["task"]} if "task" in options else {}
    with monkeypatch.context() as patched:  # Fails if an episode is rewritten.
        patched.delattr(RldsRows, "new_episode")
        for name, operations in (
            ("edited", [Delete(episodes=[1]), Describe("license", "MIT")]),
            ("again", [Delete(episodes=[0])]),
        ):
            input_path = path if name == "edited" else tmp_path / "edited"
            rlds.edit(input_path, *operations, to=tmp_path / name, target_options=target)
    before, after = rlds.sources.open(path), rlds.sources.open(tmp_path / "edited")
    assert (after.source.source_info.license, len(after)) == ("MIT", 2)
    for old, new in zip([before[0], before[2]], after, strict=True):
        assert_same(old, new)
    check_layout(tmp_path / "edited")
    tables = read_rows(path)
    assert read_rows(tmp_path / "edited") == [tables[0], tables[2]]
    infos = [json.loads((p / "meta/info.json").read_text()) for p in (path, tmp_path / "edited")]
    assert infos[0]["features"] == infos[1]["features"]
    [last] = rlds.sources.open(tmp_path / "again")
    assert_same(before[2], last)


@pytest.mark.parametrize("kind", ["clips", "video", "images"])
def test_changed_episodes_are_rewritten_and_unchanged_ones_copied(tmp_path, kind):
    source, options = SOURCES[kind]
    path = tmp_path / "made"
    export(source(tmp_path), "lerobot", path, **options)
    rlds.edit(path, Trim(1, 3, where="steps = 6"), to=tmp_path / "edited")
    check_layout(tmp_path / "edited")
    before, after = rlds.sources.open(path), rlds.sources.open(tmp_path / "edited")
    for old, new in zip(before, after, strict=True):
        if len(old) != 6:
            assert_same(old, new)
            continue
        columns = zip(leaves_at(old.steps, None), leaves_at(new.steps, None), strict=True)
        for (name, values), (_, trimmed) in columns:
            if name.startswith("observation/"):  # The last transition is gone.
                np.testing.assert_array_equal(values[1:3], trimmed, err_msg=name)
    assert {len(episode) for episode in after} == {2, *map(len, before)} - {6}


def test_merged_datasets_with_equal_keys_keep_all_episodes(tmp_path):
    paths = [tmp_path / "one", tmp_path / "two"]
    for path, lengths in zip(paths, [(5, 3), (40, 6)]):
        export(PicturedRobot(lengths), "lerobot", path, codec="h264", fps=10)
    rlds.edit(paths[0], Merge([paths[1]]), to=tmp_path / "both")
    check_layout(tmp_path / "both")
    assert read_rows(tmp_path / "both") == [row for path in paths for row in read_rows(path)]
    for camera in (tmp_path / "both/videos").iterdir():
        assert len([*camera.rglob("*.mp4")]) == 1
    after = rlds.sources.open(tmp_path / "both")
    before = [episode for path in paths for episode in rlds.sources.open(path)]
    for old, new in zip(before, after, strict=True):
        assert_same(old, new, ["key"])
    keys = [episode.key for episode in before]
    assert [episode.key for episode in after] == [*keys[:2], *(f"two/{key}" for key in keys[2:])]


def test_damage_is_an_error_before_anything_is_copied(tmp_path):
    path = tmp_path / "made"
    export(FilmedSource(tmp_path), "lerobot", path)
    *_, file = sorted((path / "videos").rglob("*.mp4"))
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(rlds.sources.SourceError, match=r"episode_000002"):
        rlds.edit(path, Delete(episodes=[0]), to=tmp_path / "edited")
    assert not (tmp_path / "edited").exists()


@pytest.mark.parametrize("codec", ["h264", "av1"])
def test_unchanged_video_files_are_copied(tmp_path, monkeypatch, codec):
    files = ((0, 1), (2, 3), (4, 5))
    path, lengths = tmp_path / "raw", (6, 7, 5, 6, 7, 6)
    raw.write_v3(path, lengths=lengths, files=files, codecs={raw.TOP: codec})
    old = sorted((path / "videos").rglob("*.mp4"))
    sizes = [VideoFile(file).size for file in old]
    monkeypatch.setattr(dataset_files, "_MEGABYTE", max(sizes) + 1)
    target = {"video_files_size_in_mb": 1}
    rlds.edit(path, Delete(episodes=[1]), to=tmp_path / "made", target_options=target)
    check_layout(tmp_path / "made")
    new = sorted((tmp_path / "made/videos").rglob("*.mp4"))
    assert [file.read_bytes() for file in new[1:]] == [file.read_bytes() for file in old[1:]]
    assert VideoFile(new[0]).size < sizes[0]
    before, after = (list(rlds.sources.open(p, video="frames")) for p in (path, tmp_path / "made"))
    for original, copy in zip([before[0], *before[2:]], after, strict=True):
        images = [episode.steps["observation"]["images"]["top"] for episode in (original, copy)]
        np.testing.assert_array_equal(*images)
    # Small files are joined, so that edits of recordings do not have a file for each episode.
    monkeypatch.setattr(dataset_files, "_MEGABYTE", 10 * max(sizes))
    rlds.edit(path, Delete(episodes=[1]), to=tmp_path / "joined")
    assert len([*(tmp_path / "joined/videos").rglob("*.mp4")]) == 1
