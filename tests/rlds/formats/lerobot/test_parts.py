"""Staged exports to LeRobot: the bytes are the same as without stages, in files of any size."""

import many_episodes
import numpy as np
import pytest
import raw_lerobot as raw
from lerobot_layout import check_layout
from many_episodes import ManyEpisodes

import rlds
from rlds.conversion import parts
from rlds.editing import Delete, Rename, Trim
from rlds.formats.lerobot import dataset_files, tables
from rlds.sources import export

TOP = "steps/observation/images/top"
LENGTHS = (3, 4, 5, 6, 3, 4, 5, 6)


def read_files(path):
    files = [file for file in path.rglob("*") if file.is_file()]
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def assert_same_files(make, tmp_path, monkeypatch, episodes_per_part):
    files = {}
    for folder, max_episodes in (("once", 1000), ("parts", episodes_per_part)):
        monkeypatch.setattr(parts, "_MAX_EPISODES", max_episodes)
        monkeypatch.setattr(parts, "_MAX_UNKNOWN_EPISODES", max_episodes)
        make(tmp_path / folder)
        check_layout(tmp_path / folder)
        files[folder] = read_files(tmp_path / folder)
    assert files["once"].keys() == files["parts"].keys()
    assert [name for name, data in files["once"].items() if data != files["parts"][name]] == []
    return files["parts"]


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 4_000),
        ({"codec": "h264"}, 3_000),
        pytest.param({"codec": "av1"}, 1_500, marks=pytest.mark.slow),
        ({"codec": "h264", "version": "v2.1"}, 1),
    ],
)
def test_parallel_exports_write_the_same_files(options, size, tmp_path, monkeypatch):
    source = ManyEpisodes(many_episodes.write(tmp_path / "raw", 20))
    for module in (dataset_files, tables):  # Files span stages, and stages span files.
        monkeypatch.setattr(module, "_MEGABYTE", size)
    sizes = {"data_files_size_in_mb": 1, "video_files_size_in_mb": 1}

    def make(path):
        export(source, "lerobot", path, fps=10, jobs=1, **sizes, **options)

    actual = assert_same_files(make, tmp_path, monkeypatch, 6)
    assert 1 < len([name for name in actual if name.startswith("data/")]) <= 20
    if "codec" in options:
        assert 1 < len([name for name in actual if name.startswith("videos/")]) <= 20


@pytest.mark.parametrize("write", [raw.write_v3, raw.write_v2])
def test_parallel_edits_write_the_same_files(write, tmp_path, monkeypatch):
    path = write(tmp_path / "raw", lengths=LENGTHS, codecs={raw.TOP: "h264"})
    changes = [Trim(0, 3, where="steps > 4"), Delete(episodes=[1])]
    changes.append(Rename(TOP, TOP.replace("top", "front")))
    assert_same_files(lambda to: rlds.edit(path, *changes, to=to, jobs=1), tmp_path, monkeypatch, 2)


@pytest.mark.parametrize("write", [raw.write_v3, raw.write_v2])
def test_parallel_edits_write_the_same_task_numbers(write, tmp_path, monkeypatch):
    path, words = write(tmp_path / "raw"), ["one", "two", "one"]
    raw.write_annotations(path, {"annotation.human.action.task_description": words})
    assert_same_files(
        lambda to: rlds.edit(path, Trim(0, 2), to=to, jobs=1), tmp_path, monkeypatch, 1
    )


def test_parallel_exports_keep_tasks_that_change_within_an_episode(tmp_path, monkeypatch):
    rng, words = np.random.default_rng(0), np.array(["push", "pull", "turn", "lift", "wait"])
    (tmp_path / "raw").mkdir()
    for index in range(12):
        length = 20 + index
        arrays = {
            "observation": rng.random((length + 1, 3)).astype(np.float32),
            "action": rng.random((length, 2)),
            "instruction": words[rng.integers(0, 1 + index % 5, length + 1)],
        }
        np.savez(tmp_path / "raw" / f"{index:02}.npz", **arrays, terminal=True)
    assert_same_files(
        lambda to: export(tmp_path / "raw", "lerobot", to, fps=10, jobs=1),
        *(tmp_path, monkeypatch, 2),
    )
