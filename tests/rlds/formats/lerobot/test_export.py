"""Exports of other formats to LeRobot."""

import dataclasses
import io
import json
import os

import foreign_readers
import numpy as np
import pytest
from lerobot_layout import check_layout
from PIL import Image
from robot_source import RobotSource, with_fields

import rlds.sources
from rlds.formats.lerobot.export import LeRobotExport
from rlds.sources.episodes import Episodes
from rlds.sources.source import Origin, SourceEpisode
from rlds_ecosystem.model.columns import step_flags
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import leaves_at

VERSIONS = ["v3.0", "v2.1"]


def write_export(path, source=None, **options):
    LeRobotExport(Episodes(source or RobotSource()), **options).write(path)
    return path


def expected_rows(source, index):
    """Returns the rows that LeRobot has to read from an episode, by feature."""
    episode = source.read("train", index)
    last = episode.num_steps - episode.final_observation_known
    rows = {path: column[:last] for path, column in leaves_at(episode.steps, None)}
    end = np.arange(last) == last - 1
    return {
        "observation.state": rows["observation/state"],
        "observation.camera": rows["observation/camera"],
        "observation.wrist": rows["observation/wrist"],
        "observation.depth": rows["observation/depth"],
        "observation.grid": rows["observation/grid"],
        "observation.note": rows["observation/note"],
        "action": rows["action"],
        "next.reward": rows["reward"],
        "discount": rows["discount"],
        "steps.timestamp": rows["timestamp"],
        "contact": rows["contact"],
        "small": rows["small"][:, 0],
        "half": rows["half"],
        "next.done": end & (index == 2),
        "next.truncated": end & (index != 2),
        "task": rows["language_instruction"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_rows_have_the_values_of_the_source(tmp_path, version):
    source = RobotSource()
    path = write_export(tmp_path / "made", version=version, robot_type="arm")
    episodes = check_layout(path)
    assert len(episodes) == 3
    for index, actual in enumerate(episodes):
        for name, column in expected_rows(source, index).items():
            rows = actual[name]
            if isinstance(rows[0], dict):
                rows = [row["bytes"] for row in rows]
                if column.dtype != object:
                    rows = [np.array(Image.open(io.BytesIO(data))) for data in rows]
            assert np.array_equal(np.reshape(rows, column.shape), column), name
        index_columns = {"timestamp", "frame_index", "episode_index", "index", "task_index"}
        assert actual.keys() - expected_rows(source, index).keys() == index_columns
    info = json.loads((path / "meta/info.json").read_text())
    assert (info["fps"], info["robot_type"], info["splits"]) == (10, "arm", {"train": "0:3"})
    features = info["features"]
    assert features["observation.state"]["names"] == ["x", "y", "z"]
    assert features["observation.wrist"]["shape"] == [4, 5, 3]
    assert features["observation.depth"]["info"] == {"is_depth_map": True, "depth_unit": "mm"}


def test_data_files_have_a_limited_size(tmp_path, monkeypatch):
    monkeypatch.setattr("rlds.formats.lerobot.tables._MEGABYTE", 4_000)
    monkeypatch.setattr("rlds.formats.lerobot.dataset_files._EPISODES_PER_WRITE", 2)
    path = write_export(tmp_path / "made", RobotSource((9,) * 5), data_files_size_in_mb=1)
    check_layout(path)
    for folder in ("data", "meta/episodes"):
        assert len(list((path / folder).rglob("*.parquet"))) > 1


def test_an_export_of_an_export_has_the_same_rate(tmp_path):
    source = RobotSource((3,), fps=None)
    path = write_export(tmp_path / "made", source, fps=5)
    copy = write_export(tmp_path / "again", rlds.sources.open(path).source)
    assert json.loads((copy / "meta/info.json").read_text())["fps"] == 5


def test_another_field_or_none_can_be_the_task(tmp_path):
    source = RobotSource((3,))
    [actual] = check_layout(write_export(tmp_path / "of_episode", source, task="operator"))
    assert actual["task"] == ["operator 0"] * 3
    assert actual["observation.note"] == ["", "row 1", ""]
    assert actual["language_instruction"] == ["pick"] * 3
    [actual] = check_layout(
        write_export(tmp_path / "none", source, to_sidecar=["language_instruction"])
    )
    assert actual["task"] == ["pick"] * 3


def test_texts_that_may_be_the_task_are_used_or_suggested(tmp_path):
    class Renamed(RobotSource):
        name = "instruction"

        @property
        def fields(self):
            changes = {"language_instruction": None, self.name: Field(str)}
            return with_fields(RobotSource.fields, changes)

        def read(self, split, index, fields=None, rows=slice(None)):
            episode = super().read(split, index)
            steps = dict(episode.steps)
            steps[self.name] = steps.pop("language_instruction")
            return dataclasses.replace(episode, steps=steps)

    [actual] = check_layout(write_export(tmp_path / "made", Renamed((3,))))
    assert actual["task"] == ["pick"] * 3
    source = Renamed((3,))
    source.name = "words"
    export = LeRobotExport(Episodes(source))
    placements = {placement.field: placement for placement in export.placements()}
    assert placements["steps/words"].why.startswith(
        "if it is the text of the task, pass task='words'"
    )
    export.write(tmp_path / "other")
    [actual] = check_layout(tmp_path / "other")
    assert (actual["task"], actual["words"]) == ([""] * 3, ["pick"] * 3)


def test_placements_name_the_column_of_each_field():
    placements = {
        placement.field: placement
        for placement in LeRobotExport(Episodes(RobotSource())).placements()
    }
    assert placements["steps/reward"].place == "next.reward"
    assert placements["steps/language_instruction"].place == "task"
    assert {placement.how for placement in placements.values()} == {"exact", "sidecar"}
    assert placements["steps/counter"].why == "LeRobot has no columns of uint64"

    class WithoutTask(RobotSource):
        fields = with_fields(
            RobotSource.fields,
            {"language_instruction": None},
            {
                "video/top/clip": Field(bytes),
                "video/top/first": np.int64,
                "raw": Field(bytes),
            },
        )

    # Texts may be the task; bytes and video may not.
    hinted = {
        placement.field
        for placement in LeRobotExport(Episodes(WithoutTask())).placements()
        if "pass task=" in placement.why
    }
    assert hinted == {"operator", "steps/observation/note"}
    assert placements["steps/observation/blob"].why == "LeRobot has no columns of bytes"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "fps: LeRobot needs the number of steps in a second, and the data has none"),
        ({"fps": 0.0}, "fps: got 0.0, expected a positive number"),
        ({"fps": 12.5, "version": "v2.1"}, "whole numbers only"),
        ({"fps": 5.0, "task": "seed"}, "task: got 'seed', expected a text field"),
        ({"fps": 5.0, "to_sidecar": ["goal"]}, "to_sidecar: got 'goal', expected one of"),
        ({"fps": 5.0, "data_files_size_in_mb": 0}, "got 0, expected a positive number"),
    ],
)
def test_options_that_contradict_the_data_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LeRobotExport(Episodes(RobotSource(fps=None)), **options)


def test_images_of_several_sizes_are_refused_or_kept_in_the_sidecar(tmp_path):
    class Sizes(RobotSource):
        def read(self, split, index, fields=None, rows=slice(None)):
            episode = super().read(split, index)
            if index:
                episode.steps["observation"]["wrist"][0] = _png(np.zeros((2, 2, 3), np.uint8))
            return episode

    with pytest.raises(ValueError, match=r"robot 1, observation/wrist: .*to_sidecar="):
        write_export(tmp_path / "made", Sizes())
    path = write_export(tmp_path / "kept", Sizes(), to_sidecar=["observation/wrist"])
    assert "observation.wrist" not in check_layout(path)[0]


def test_an_episode_without_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="robot 0: LeRobot cannot hold an episode without"):
        write_export(tmp_path / "made", RobotSource((0, 2)))


def test_long_episodes_warn_of_times_that_old_readers_refuse(tmp_path):
    class Long(RobotSource):
        fields = RobotSource.fields.replace(steps={"action": np.int64})

        def read(self, split, index, fields=None, rows=slice(None)):
            steps = {"action": np.zeros(15_600, np.int64), **step_flags([15_600], [False])}
            origin = Origin("synthetic", 0, 15_600)
            metadata = {"seed": np.int64(0), "operator": ""}
            return SourceEpisode("a", steps, origin, True, False, metadata=metadata)

    with pytest.warns(UserWarning, match=r"episode a lasts 1040 seconds: .* LeRobot 0\.3"):
        write_export(tmp_path / "made", Long((15_600,)), fps=15.0, version="v2.1")


def _png(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


_READ_30 = """
import json, sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
dataset = LeRobotDataset("a/b", root=sys.argv[1], video_backend="pyav")
rows = [dataset[row] for row in range(len(dataset))]
columns = {}
for name in rows[0]:
    values = [row[name] for row in rows]
    is_text = isinstance(values[0], str)
    columns[name.replace("/", "|")] = np.array(values if is_text else [v.numpy() for v in values])
np.savez(sys.argv[2], **columns)
print(json.dumps({"fps": dataset.fps, "stats": sorted(dataset.meta.stats)}))
"""


def check_by_lerobot(source, path, tmp_path, script=_READ_30, *arguments):
    foreign_readers.run("lerobot", script, path, tmp_path / "read.npz", *arguments)
    actual = np.load(tmp_path / "read.npz")
    episodes = [expected_rows(source, index) for index in range(len(source.lengths))]
    for name in episodes[0]:
        columns = [episode[name] for episode in episodes]
        if name == "observation.wrist":
            columns = [
                np.array([np.array(Image.open(io.BytesIO(data))) for data in column])
                for column in columns
            ]
        expected_column = np.concatenate(columns)
        if name in ("observation.camera", "observation.wrist"):
            expected_column = (expected_column.astype(np.float32) / 255).transpose(0, 3, 1, 2)
        elif name == "observation.depth":
            expected_column = expected_column.transpose(0, 3, 1, 2)
        elif expected_column.dtype == object:
            expected_column = expected_column.astype(str)
        elif expected_column.dtype == np.float64:
            expected_column = expected_column.astype(np.float32)  # As torch converts numbers.
        assert np.array_equal(actual[name], expected_column), name


@pytest.mark.slow
def test_lerobot_reads_version_3(tmp_path):
    source = RobotSource()
    check_by_lerobot(source, write_export(tmp_path / "made", source), tmp_path)


_CONVERT = """
import json, sys
from lerobot.scripts.convert_dataset_v21_to_v30 import convert_dataset
convert_dataset("a/b", root=sys.argv[1], push_to_hub=False)
print()
print(json.dumps(None))
"""


@pytest.mark.slow
def test_lerobot_converts_version_2(tmp_path):
    source = RobotSource()
    path = write_export(tmp_path / "made", source, version="v2.1")
    foreign_readers.run("lerobot", _CONVERT, path)
    check_by_lerobot(source, path, tmp_path)


# LeRobot 0.3 needs other versions of libraries than 0.6: they are in a folder of their own.
_READ_21 = (
    """
import sys
sys.path.insert(0, sys.argv[3])
import datasets, lerobot
assert datasets.__version__ < "4" and lerobot.__version__ < "0.4", lerobot.__version__
"""
    + _READ_30
)


@pytest.mark.slow
def test_old_lerobot_reads_version_2(tmp_path):
    folder = os.environ.get("LEROBOT_0_3")
    if not folder:
        pytest.skip("LEROBOT_0_3 names no folder with lerobot 0.3.3 and datasets 3.6")
    source = RobotSource()
    path = write_export(tmp_path / "made", source, version="v2.1")
    check_by_lerobot(source, path, tmp_path, _READ_21, folder)
