"""Crash recovery of LeRobot datasets: all complete episodes, and only these."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import textwrap

import camera_arm
import foreign_readers
import killed_lerobot
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import raw_lerobot as raw
from PIL import Image

import rlds.sources
from rlds.formats.lerobot import unfinished_parquet
from rlds.formats.lerobot.recovering import recover
from rlds.sources import SourceError
from rlds_tools.command_line.commands import run

DATA = "data/chunk-000/file-{:03d}.parquet"
TABLE = "meta/episodes/chunk-000/file-000.parquet"
VIDEO = "videos/{}/chunk-000/file-{:03d}.mp4"
VIDEO_2 = "videos/chunk-000/{}/episode_{:06d}.mp4"
DATA_2 = "data/chunk-000/episode_{:06d}.parquet"


# In LeRobot's own sets, an episode has one task.
def episodes_with_one_task(lengths):
    data = raw.episodes(lengths)
    for arrays in data:
        arrays["task_index"] = np.full_like(arrays["task_index"], arrays["episode_index"][0] % 2)
    return data


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """A dataset of each version: three episodes, two cameras."""
    path = tmp_path_factory.mktemp("lerobot")
    codecs = {raw.TOP: "h264", raw.DEPTH: "depth"}
    raw.write_v3(path / "v3", codecs=codecs, columns_of=episodes_with_one_task)
    raw.write_v2(path / "v2", codecs=codecs)
    return {name: (path / name, read_values(path / name)) for name in ("v3", "v2")}


def read_values(path):
    """Returns the columns of each episode except for its indices."""
    episodes = rlds.sources.open(path, video="frames")
    by_episode = []
    for index in range(len(episodes)):
        columns = dict(rlds_leaves(episodes.columns(index)))
        for name in ("episode_index", "index", "task_index"):
            columns.pop(name)
        by_episode.append(columns)
    return by_episode


def rlds_leaves(tree, path=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from rlds_leaves(value, f"{path}{name}/")
        else:
            yield f"{path}{name}", value


def read_files(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def cut_file(path, name, size=None):
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: len(data) // 2 if size is None else size])


def remove_footers(path, *names):
    for name in names:
        raw.without_footer(path / name)


def change_json(path, name, **values):
    contents = json.loads((path / name).read_text())
    (path / name).write_text(json.dumps({**contents, **values}))


def change_table(path, function):
    rows = pq.read_table(path / TABLE).to_pylist()
    pq.write_table(pa.Table.from_pylist(function(rows)), path / TABLE)


def rewrite_video(path, name, episodes, dropped=0, more=()):
    """Writes a video again, with frames dropped or added."""
    frames = [raw.frames(raw.TOP, index, raw.LENGTHS[index]) for index in episodes]
    frames[0] = np.delete(frames[0], [*range(dropped)], axis=0)
    raw.write_video(path / name, [*frames, *more], "h264")


def write_images(path, index, skip=()):
    for row, image in enumerate(raw.frames(raw.TOP, index, raw.LENGTHS[index])):
        if row not in skip:
            file = path / f"images/{raw.TOP}/episode-{index:06d}/frame-{row:06d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)


def keep_lines(path, name, count):
    text = (path / name).read_text().splitlines(keepends=True)
    (path / name).write_text("".join(text[:count]))


def remove_table(path):
    shutil.rmtree(path / "meta/episodes")


# --- Kinds of damage, with the recovered episodes and the messages.


def data_without_footers(path):
    remove_footers(path, DATA.format(0), DATA.format(1))


def table_without_footer(path):
    remove_footers(path, TABLE)


def killed_after_some(path):  # State B.
    data_without_footers(path)
    remove_table(path)
    (path / "tmpabc").mkdir()


def killed_in_tables(path):  # State E: rows and frames are complete, but not counted.
    remove_footers(path, DATA.format(1))
    change_table(path, lambda rows: rows[:2])
    change_json(path, "meta/info.json", total_episodes=2, total_frames=12, splits={"train": "0:2"})


def killed_between_cameras(path):  # State D.
    killed_in_tables(path)
    (path / VIDEO.format(raw.TOP, 1)).unlink()


def killed_before_video(path):  # State F.
    killed_in_tables(path)
    for camera in (raw.TOP, raw.DEPTH):
        (path / VIDEO.format(camera, 1)).unlink()


def killed_in_rows(path):
    remove_table(path)
    remove_footers(path, DATA.format(1))
    cut_file(path, DATA.format(1), (path / DATA.format(1)).stat().st_size - 100)


def surplus_frames(path):
    remove_table(path)
    (path / DATA.format(1)).unlink()
    rewrite_video(path, VIDEO.format(raw.TOP, 0), (0, 1), more=[raw.frames(raw.TOP, 2, 6)])
    shutil.rmtree(path / "videos" / raw.DEPTH / "chunk-000/file-001.mp4", ignore_errors=True)


def surplus_frames_that_the_table_knows(path):
    data_without_footers(path)
    rewrite_video(path, VIDEO.format(raw.TOP, 0), (0, 1), more=[raw.frames(raw.TOP, 2, 6)])


def images_left(path):
    killed_between_cameras(path)
    write_images(path, 2)


def some_images_left(path):
    killed_between_cameras(path)
    write_images(path, 2, skip=[3])


def encoded_left(path):
    killed_in_tables(path)
    for camera in (raw.TOP, raw.DEPTH):
        folder = path / f"tmp{camera[-5:]}"
        folder.mkdir()
        os.rename(path / VIDEO.format(camera, 1), folder / f"{camera}_streaming.mp4")


def half_encoded_left(path):
    encoded_left(path)
    [file] = path.glob(f"tmp*/{raw.TOP}_streaming.mp4")
    cut_file(path, file.relative_to(path))


def dropped_frame(path):
    killed_after_some(path)
    rewrite_video(path, VIDEO.format(raw.TOP, 0), (0, 1), dropped=1)


def dropped_frame_that_the_table_hides(path):
    rewrite_video(path, VIDEO.format(raw.TOP, 0), (0, 1), dropped=1)


def cut_video(path):
    cut_file(path, VIDEO.format(raw.TOP, 0))


def lost_video(path):
    (path / VIDEO.format(raw.DEPTH, 1)).unlink()


def lost_rows(path):
    (path / DATA.format(0)).unlink()


def lost_rows_and_no_table(path):
    lost_rows(path)
    remove_table(path)


def contradicted_row(path):
    change_table(path, lambda rows: [{**rows[0], "length": 9}, *rows[1:]])


def shifted_rows(path):
    table = pq.read_table(path / DATA.format(1))
    column_index = table.schema.get_field_index("frame_index")
    table = table.set_column(
        column_index, table.schema.field(column_index), pa.array([0, 1, 3, 4, 5, 6])
    )
    pq.write_table(table, path / DATA.format(1))


def empty_info(path):
    (path / "meta/info.json").write_text("")


def half_info(path):
    cut_file(path, "meta/info.json")


def no_info(path):
    (path / "meta/info.json").unlink()


def other_counts(path):
    change_json(path, "meta/info.json", total_episodes=7, total_frames=1)


def other_lengths(path):
    def change(rows):
        return [{**row, "length": row["length"] + (row["episode_index"] == 2)} for row in rows]

    change_table(path, change)


def tasks_without_footer(path):
    remove_footers(path, "meta/tasks.parquet")


def no_tasks(path):
    (path / "meta/tasks.parquet").unlink()


def no_tasks_and_no_table(path):
    no_tasks(path)
    killed_after_some(path)


def half_statistics(path):
    cut_file(path, "meta/stats.json")


def half_a_line(path):
    cut_file(path, "meta/episodes.jsonl", (path / "meta/episodes.jsonl").stat().st_size - 9)


def no_lines(path):
    keep_lines(path, "meta/episodes.jsonl", 2)
    keep_lines(path, "meta/episodes_stats.jsonl", 1)


def cut_video_2(path):
    no_lines(path)
    cut_file(path, VIDEO_2.format(raw.TOP, 2))


def data_without_footer_2(path):
    no_lines(path)
    remove_footers(path, DATA_2.format(2))


def half_info_2(path):
    half_info(path)


def surplus_frames_2(path):
    no_lines(path)
    file = VIDEO_2.format(raw.TOP, 2)
    rewrite_video(path, file, (2,), more=[raw.frames(raw.TOP, 1, 3)])


ALL = [0, 1, 2]
DAMAGE = {
    data_without_footers: (ALL, "file-000.parquet: no footer"),
    table_without_footer: (ALL, "rows are missing for episode_000000 to episode_000002"),
    killed_after_some: (ALL, "tmpabc: left over from a killed recorder"),
    killed_in_tables: (ALL, "total_frames is 12, but 18 are complete"),
    killed_between_cameras: ([0, 1], "other numbers of frames of observation.images.top"),
    killed_before_video: ([0, 1], "of observation.images.top, observation.images.depth"),
    killed_in_rows: ([0, 1], "bytes at its end are no complete rows"),
    surplus_frames: ([], "so their episodes are unknown"),
    surplus_frames_that_the_table_knows: (ALL, "file-000.parquet: no footer"),
    images_left: (ALL, "episode-000002: left over from a killed recorder"),
    some_images_left: ([0, 1], "other numbers of frames of observation.images.top"),
    encoded_left: (ALL, "s.top: left over from a killed recorder"),
    half_encoded_left: ([0, 1], "other numbers of frames of observation.images.top"),
    dropped_frame: ([], "so their episodes are unknown"),
    dropped_frame_that_the_table_hides: ([2], "so their episodes are unknown"),
    cut_video: ([2], "other numbers of frames of observation.images.top"),
    lost_video: ([0, 1], "file-001.mp4: is missing"),
    lost_rows: ([2], "the table lists it, but its rows are missing"),
    lost_rows_and_no_table: ([], "other numbers of frames"),
    contradicted_row: (ALL, "the table has 9 rows"),
    shifted_rows: ([0, 1], "has rows of it out of order"),
    empty_info: (ALL, "meta/info.json: "),
    half_info: (ALL, "meta/info.json: "),
    no_info: (ALL, "meta/info.json: is missing"),
    other_counts: (ALL, "total_episodes is 7, but 3 are complete"),
    other_lengths: (ALL, "the table has 7 rows"),
    tasks_without_footer: (ALL, "meta/tasks.parquet: "),
    no_tasks: (ALL, "meta/tasks.parquet: is missing"),
    no_tasks_and_no_table: (ALL, "the text of task 1 is lost; 'task 1' replaces it"),
    half_statistics: (ALL, "meta/stats.json: "),
    half_a_line: (ALL, "meta/episodes.jsonl, line 3: "),
    no_lines: (ALL, "rows are missing for episode_000002"),
    cut_video_2: ([0, 1], "other numbers of frames of observation.images.top"),
    data_without_footer_2: (ALL, "episode_000002.parquet: "),
    half_info_2: (ALL, "meta/info.json: "),
    surplus_frames_2: (ALL, "3 more frames than rows"),
}
IN_V2 = {half_a_line, no_lines, cut_video_2, data_without_footer_2, half_info_2, surplus_frames_2}
# Fields that differ: frames that are encoded again, and texts that are lost.
DIFFER = {
    **dict.fromkeys([images_left, surplus_frames_that_the_table_knows], "observation/images/top"),
    surplus_frames_2: "observation/images/top",
    no_tasks_and_no_table: "language_instruction",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_all_readable_episodes_are_recovered(datasets, tmp_path, damage):
    intact, expected = datasets["v2" if damage in IN_V2 else "v3"]
    path = shutil.copytree(intact, tmp_path / "set")
    damage(path)
    before = read_files(path)
    remaining, message = DAMAGE[damage]
    planned = recover(path, dry_run=True)
    assert planned.is_changed
    assert planned.num_episodes == len(remaining), planned
    assert message in "; ".join([*planned.faults, *planned.lost])
    if not remaining:
        with pytest.raises(SourceError, match="no episode can be recovered"):
            recover(path, tmp_path / "mended")
        assert not (tmp_path / "mended").exists()
        assert read_files(path) == before
        return
    done = recover(path, tmp_path / "mended")
    assert (done.num_episodes, done.num_steps) == (planned.num_episodes, planned.num_steps)
    assert read_files(path) == before
    actual = read_values(tmp_path / "mended")
    assert len(actual) == len(remaining)
    for index, columns in zip(remaining, actual):
        assert columns.keys() == expected[index].keys()
        for name, column in columns.items():
            if name == DIFFER.get(damage):
                continue
            assert np.array_equal(column, expected[index][name]), (index, name)
            assert column.dtype == expected[index][name].dtype
    if damage is images_left:
        difference = actual[2]["observation/images/top"].astype(int)
        difference -= raw.frames(raw.TOP, 2, 6)
        assert np.abs(difference).mean() < 12
    assert not recover(tmp_path / "mended", dry_run=True).is_changed
    assert run(["validate", str(tmp_path / "mended")]) == 0


def test_task_numbers_lead_to_the_same_texts_after_recovery(tmp_path):
    path, names = raw.write_v3(tmp_path / "set"), ["task_index", "annotation.human.validity"]
    raw.write_annotations(path, {names[1]: ["good", "bad", None]}, [9, 4])
    texts = raw.texts_of_rows(path, names)
    (path / "meta/episodes/chunk-000/file-000.parquet").write_bytes(b"")
    recover(path, tmp_path / "mended")
    assert raw.texts_of_rows(tmp_path / "mended", names) == texts
    raw.write_tasks(path)
    assert "annotation.human.validity: the text of task 4" in str(recover(path, tmp_path / "lost"))
    actual = raw.texts_of_rows(tmp_path / "lost", names[1:])
    assert actual == [["task 9"], ["task 4"], [None]]


def test_recovery_in_place_reports_its_changes(datasets, tmp_path, capsys):
    path = shutil.copytree(datasets["v3"][0], tmp_path / "set")
    raw.write_modality(path)
    raw.write_extras(path)
    assert run(["recover", str(path), "--dry-run"]) == 0
    assert "nothing to recover in 3 episodes, 18 steps" in capsys.readouterr().out
    killed_between_cameras(path)
    lost_rows(path)
    before = read_files(path)
    assert run(["validate", str(path)]) == 1
    output = capsys.readouterr().out
    assert "other numbers of frames of observation.images.top" in output
    assert f"hint: run `rlds recover {path} -o COPY`" in output
    assert run(["recover", str(path)]) == 1
    assert "--in-place" in capsys.readouterr().err
    assert run(["recover", str(path), "--in-place", "--dry-run"]) == 2
    with pytest.raises(SourceError, match="no episode can be recovered"):
        recover(path, in_place=True)
    assert read_files(path) == before
    shutil.copy(datasets["v3"][0] / DATA.format(0), path / DATA.format(0))
    before = read_files(path)
    capsys.readouterr()
    assert run(["recover", str(path), "--in-place"]) == 0
    assert "lost: episode_000002" in capsys.readouterr().out
    assert read_files(tmp_path / "set.old") == before
    assert len(read_values(path)) == 2
    assert json.loads((path / "meta/modality.json").read_text()) == raw.MODALITY
    assert (path / "extras/episode_1/ep_meta.json").exists()
    assert not (path / "extras/episode_2").exists()
    for arguments in ({}, {"in_place": True, "dry_run": True}):
        with pytest.raises(ValueError, match="pass either"):
            recover(path, **arguments)
    with pytest.raises(ValueError, match="is in the dataset"):
        recover(path, path / "copy")


def test_a_damaged_image_loses_only_its_episode(datasets, tmp_path):
    path = shutil.copytree(datasets["v3"][0], tmp_path / "set")
    remove_table(path)
    table = pq.read_table(path / DATA.format(0))
    rows = table.to_pylist()
    rows[8][raw.IMAGE]["bytes"] = rows[8][raw.IMAGE]["bytes"][:60]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path / DATA.format(0))
    assert recover(path, dry_run=True).num_episodes == 3
    done = recover(path, tmp_path / "mended")
    assert done.num_episodes == len(read_values(tmp_path / "mended")) == 2
    assert "episode_000001" in done.lost[-1]


def test_statistics_are_kept_or_computed_again(datasets, tmp_path):
    intact, _ = datasets["v3"]
    path = shutil.copytree(intact, tmp_path / "set")
    killed_after_some(path)
    recover(path, tmp_path / "mended")
    old, new = (pq.read_table(p / TABLE).to_pylist() for p in (intact, tmp_path / "mended"))
    for name in ("mean", "std", "min", "max"):
        assert np.allclose(old[1][f"stats/action/{name}"], new[1][f"stats/action/{name}"])
    assert np.shape(new[0][f"stats/{raw.TOP}/mean"]) == (3, 1, 1)
    assert np.shape(new[0][f"stats/{raw.IMAGE}/mean"]) == (3, 1, 1)


def test_missing_footers_and_info_are_an_error_with_advice(datasets, tmp_path):
    path = shutil.copytree(datasets["v3"][0], tmp_path / "set")
    data_without_footers(path)
    empty_info(path)
    with pytest.raises(SourceError, match="Copy the info"):
        recover(path, dry_run=True)
    shutil.copy(datasets["v3"][0] / "meta/info.json", path / "meta/info.json")
    assert recover(path, dry_run=True).num_episodes == 3


# --- Rows without a footer


def test_large_row_groups_of_several_pages_are_recovered(tmp_path):
    rng = np.random.default_rng(0)
    num_rows = 90_000
    schema = pa.schema(
        [
            ("a", pa.list_(pa.float32(), 3)),
            ("b", pa.bool_()),
            ("c", pa.bool_()),
            ("s", pa.string()),
            ("i", pa.int64()),
        ]
    )
    values = rng.standard_normal(3 * num_rows).astype(np.float32)
    table = pa.table(
        {
            "a": pa.FixedSizeListArray.from_arrays(pa.array(values), 3),
            "b": rng.integers(0, 2, num_rows).astype(bool),
            "c": rng.integers(0, 2, num_rows).astype(bool),
            "s": [f"text {row}" for row in range(num_rows)],
            "i": np.arange(num_rows),
        },
        schema=schema,
    )
    file = tmp_path / "whole.parquet"
    with pq.ParquetWriter(file, schema) as writer:
        for begin, end in ((0, 60_000), (60_000, 60_007), (60_007, num_rows)):
            writer.write_table(table.slice(begin, end - begin))
    raw.without_footer(file)
    data = file.read_bytes()
    for size, rows in ((len(data), num_rows), (len(data) - 1, 60_007), (len(data) // 3, 0)):
        target = tmp_path / "made.parquet"
        actual, num_left = unfinished_parquet.finish_parquet(data[:size], target, schema, {})
        assert actual == rows
        assert (num_left == 0) == (size == len(data))
        assert pq.read_table(target).equals(table.slice(0, rows))


def test_any_cut_keeps_complete_row_groups_and_hostile_bytes_do_no_harm(datasets, tmp_path):
    file = datasets["v3"][0] / DATA.format(0)
    table, data = pq.read_table(file), file.read_bytes()
    features = {
        name: unfinished_parquet.LeRobotFeature.from_json(name, feature_info)
        for name, feature_info in raw.FEATURES.items()
    }
    target, row_counts = tmp_path / "made.parquet", set()
    for size in range(4, len(data), 41):
        rows, _ = unfinished_parquet.finish_parquet(data[:size], target, table.schema, features)
        row_counts.add(rows)
        assert rows in (0, 7, 12)
        assert pq.read_table(target).equals(table.slice(0, rows))
    assert row_counts == {0, 7, 12}
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(data)
        for offset in rng.integers(4, len(data), 3):
            damaged[offset] = rng.integers(256)
        unfinished_parquet.finish_parquet(bytes(damaged), target, table.schema, features)
    with pytest.raises(SourceError, match="not a Parquet file"):
        unfinished_parquet.finish_parquet(b"", target, table.schema, features)


# --- Recordings of our own recorder

_RECORDER = """
import os, sys
sys.path.insert(0, {support!r})
import numpy as np
from camera_arm import Arm
import envlogger
from envlogger import Video
from rlds.recording import LeRobotBackendWriter

env = envlogger.EnvLogger(
    Arm(), backend=LeRobotBackendWriter, data_directory={path!r}, fps=30, task="pick",
    video={{"top": Video(quality=5, gop=5)}},
)
for index in range({finished}):
    timestep = env.reset()
    while not timestep.last():
        timestep = env.step(np.full(2, index, np.float32))
if {steps}:
    env.reset()
    for _ in range({steps}):
        env.step(np.full(2, 9, np.float32))
env.flush()
os._exit(1)
"""


def record_and_die(path, finished, steps):
    support = os.path.dirname(camera_arm.__file__)
    values = {"support": support, "path": os.fspath(path), "finished": finished, "steps": steps}
    script = textwrap.dedent(_RECORDER.format(**values))
    assert subprocess.run([sys.executable, "-c", script]).returncode == 1


@pytest.mark.parametrize(("finished", "steps"), [(1, 11), (0, 11), (1, 0)])
def test_the_running_episode_of_our_recorder_is_added(tmp_path, finished, steps):
    path = tmp_path / "robot"
    record_and_die(path, finished, steps)
    actual = recover(path, dry_run=True)
    assert actual.is_changed == bool(steps)
    before = read_files(path)
    done = recover(path, tmp_path / "mended")
    assert dataclasses.replace(actual, path=done.path) == done
    assert read_files(path) == before
    count = finished + bool(steps)
    assert (done.num_episodes, done.lost) == (count, ())
    episodes = rlds.sources.open(tmp_path / "mended", video="frames")
    assert len(episodes) == count
    if steps:
        last = episodes.columns(count - 1)
        # The camera is flushed at its keys.
        assert 5 < len(last["action"]) <= 11
        assert last["action"].tolist() == [[9, 9]] * len(last["action"])
        assert {*last["language_instruction"].tolist()} == {"pick"}
        frame = last["observation"]["top"][4].astype(int)
        assert np.abs(frame - camera_arm.Arm().frames(4)[0]).mean() < 12
    assert not recover(tmp_path / "mended", dry_run=True).is_changed


def test_an_empty_log_is_no_episode(tmp_path):
    path = tmp_path / "robot"
    record_and_die(path, 1, 0)
    (path / ".rlds/recording-1").mkdir(exist_ok=True, parents=True)
    done = recover(path, tmp_path / "mended")
    assert (done.num_episodes, done.lost) == (1, ("recording-1: it has no step",))


# --- Recordings of a killed LeRobot

_READ = """
import sys
sys.path.insert(0, sys.argv[1])
import killed_lerobot as killed
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

dataset = LeRobotDataset("me/set", root=sys.argv[2])
for index in range(len(dataset)):
    row = dataset[index]
    episode, frame = int(row["episode_index"]), int(row["frame_index"])
    assert np.array_equal(row["observation.state"].numpy(), killed.state_of(episode, frame))
    assert row["task"] == killed.TASKS[episode % 2]
    for camera, name in enumerate(killed.CAMERAS):
        image = row[name].numpy().transpose(1, 2, 0) * 255
        assert killed.number_in(image) == (camera, episode, frame)
print(dataset.num_episodes)
"""


@pytest.mark.slow
def test_recordings_of_a_killed_lerobot_are_recovered(tmp_path):
    foreign_readers.run("lerobot", "print(1)")
    command = [foreign_readers.PYTHON, killed_lerobot.__file__, tmp_path / "sets"]
    subprocess.run([*command, "--kills", "8", "--seed", str(os.getpid())], check=True, timeout=300)
    for notes in sorted((tmp_path / "sets").glob("*.json")):
        note, mended = json.loads(notes.read_text()), tmp_path / notes.stem
        if not note["done"]:
            continue
        done = recover(notes.with_suffix(""), mended)
        assert note["done"] <= done.num_episodes <= note["begun"], done
        check_killed(mended, done.num_episodes)
        support = os.path.dirname(killed_lerobot.__file__)
        assert foreign_readers.run("lerobot", _READ, support, mended) == done.num_episodes


def check_killed(path, count):
    episodes = rlds.sources.open(path, video="frames")
    assert len(episodes) == count
    for index in range(count):
        columns = episodes.columns(index)
        assert len(columns["action"]) == killed_lerobot.NUM_FRAMES
        for row in range(killed_lerobot.NUM_FRAMES):
            state = columns["observation"]["state"][row]
            assert np.array_equal(state, killed_lerobot.state_of(index, row))
            for camera, name in enumerate(("top", "wrist")):
                image = columns["observation"]["images"][name][row]
                assert killed_lerobot.number_in(image) == (camera, index, row)
