"""Edits change only the data that their operations name; a failed edit changes nothing."""

import dataclasses
import functools
import json
import os
import shutil
import sys

import hostile_sources
import numpy as np
import pytest
import raw_lerobot
from export_options import options_for

import rlds
from rlds import editing
from rlds.editing import (
    Add,
    Delete,
    Describe,
    Drop,
    Fix,
    Keep,
    Merge,
    Rename,
    Set,
    SetMeaning,
    Split,
    Trim,
)
from rlds.sources import Fields, Origin, Source, SourceEpisode, SourceInfo, export
from rlds.sources.episode_fields import as_converted
from rlds.sources.lineage import file_of, trace
from rlds.sources.testing import differences
from rlds.video.container import Clip, packets_of
from rlds_ecosystem.model.errors import StorageError
from rlds_ecosystem.model.fields import Field
from rlds_ecosystem.model.nests import lookup

LENGTHS = (4, 6, 3, 8, 5)


class Robot(Source):
    """Episodes of a robot with two tasks; some succeed."""

    source_info = SourceInfo(license="MIT", metadata={"fps": 10})

    def __init__(self, dtype=np.float32, tasks=("pick", "place"), lengths=LENGTHS):
        self.dtype, self.tasks, self.lengths = dtype, tasks, lengths

    @property
    def fields(self):
        steps = {
            "observation": {"state": Field(self.dtype, (2,)), "note": Field(str)},
            "action": Field(np.float32, (1,)),
            "reward": np.float32,
            "discount": np.float32,
        }
        return Fields(steps, {"instruction": Field(str), "success": Field(np.bool_)})

    def inputs(self):
        return []

    def num_episodes(self, split):
        return len(self.lengths)

    def key(self, split, index):
        return f"episode {index}"

    def read(self, split, index, fields=None, rows=slice(None)):
        length = self.lengths[index]
        is_last = np.arange(length) == length - 1
        state = np.arange(2 * length).reshape(length, 2) + 100 * index
        steps = {
            "observation": {
                "state": state.astype(self.dtype),
                "note": np.array([f"{index}.{row}" for row in range(length)], object),
            },
            "action": np.where(is_last, 0, np.arange(length)).astype(np.float32)[:, None],
            "reward": np.where(is_last, 0, 1).astype(np.float32),
            "discount": np.where(is_last, 0, 1).astype(np.float32),
            "is_first": np.arange(length) == 0,
            "is_last": is_last,
            "is_terminal": is_last & (index % 2 == 0),
        }
        values = {
            "instruction": self.tasks[index % len(self.tasks)],
            "success": np.bool_(index % 2 == 0),
        }
        origin = Origin("raw", index, index + 1)
        return SourceEpisode(self.key(split, index), steps, origin, index % 2 == 1, metadata=values)


@pytest.fixture
def robot(tmp_path):
    export(Robot(), "webdataset", tmp_path / "robot")
    return tmp_path / "robot"


def speed(episode):
    return np.arange(len(episode), dtype=np.float32)


def halves(episode):
    indices = np.arange(len(episode))
    return indices if episode.key == "episode 0" else indices / 2


def read_all(path):
    return list(rlds.sources.open(path, "all"))


def read_relative_files(path):
    """Returns the bytes of the files below a folder by their relative paths."""
    return {file.relative_to(path): data for file, data in read_files(path).items()}


def read_files(path):
    """Returns the bytes of the files below a folder by their paths."""
    return {file: file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_operations_change_episodes_and_fields(robot, tmp_path):
    (robot / "README.md").write_text("Mine.")
    before = read_all(robot)
    output = rlds.edit(
        robot,
        Delete(where="steps < 4"),
        Keep(where="instruction in ('pick', 'place') and \"return\" > 2"),
        Trim(1, 4, where="steps > 6"),
        Set("instruction", "pick it up", where="index = 0"),
        Set("steps/reward", 2, where="index = 4"),
        Set("truncated", False, where="index = 3"),
        Describe("license", "CC-BY-4.0"),
        Describe("robot", {"arm": "left"}),
        Rename("observation/state", "observation/joints"),
        Drop("observation/note"),
        Add("steps/speed", speed),
        Add("length", len),
        Fix(),
    )
    assert (output.num_episodes, output.num_original) == (4, 5)
    after = read_all(robot)
    assert [len(episode) for episode in after] == [4, 6, 3, 5]
    assert [episode.metadata["instruction"] for episode in after] == [
        *("pick it up", "place", "place", "pick")
    ]
    assert [episode.metadata["length"] for episode in after] == [4, 6, 3, 5]
    trimmed = after[2]
    assert trimmed["observation"]["joints"].tolist() == [[302, 303], [304, 305], [306, 307]]
    assert trimmed["action"].tolist() == [[1], [2], [0]]
    assert trimmed["reward"].tolist() == [1, 1, 0]
    assert trimmed["is_last"].tolist() == [False, False, True]
    assert trimmed["is_first"].tolist() == [True, False, False]
    assert not trimmed.truncated
    assert after[3]["reward"].tolist() == [2] * 4 + [0]  # The placeholder is unchanged.
    assert after[1]["observation"].keys() == {"joints"}
    assert after[1]["speed"].tolist() == [0, 1, 2, 3, 4, 5]
    assert np.array_equal(after[1]["action"], before[1]["action"])
    source = rlds.sources.open(robot, "all").source
    assert source.source_info.license == "CC-BY-4.0"
    assert source.source_info.metadata["robot"] == {"arm": "left"}
    assert (robot / "README.md").read_text() == "Mine."
    # The recipe reproduces the same bytes.
    export(Robot(), "webdataset", tmp_path / "again")
    lineage = editing.lineage_of(robot)
    deleted = lineage["operations"][0]
    assert deleted.pop("rows").keys() == {"steps < 4"}
    assert deleted == {"do": "delete", "where": "steps < 4"}
    operations = editing.from_recipe(json.loads(json.dumps(lineage["operations"])))
    rlds.edit(tmp_path / "again", *operations, to=tmp_path / "done")
    shards = [
        {f.name: f.read_bytes() for f in path.glob("*.tar")} for path in (robot, tmp_path / "done")
    ]
    assert shards[0] == shards[1]
    # Each episode can be traced through several edits.
    rlds.edit(robot, Delete(episodes=[0]))
    lineage = editing.lineage_of(robot)
    ancestors = [("robot", "train", 2), ("robot", "train", 3), ("Robot", "train", 3)]
    assert editing.origin_of(lineage, "train", 1) == ancestors
    assert [entry["license"] for entry in lineage["from"]] == ["CC-BY-4.0"]


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (Delete(where="steps > 0"), "no episode is left"),
        (Delete(where="stepz > 0"), "stepz"),
        (Delete(), "delete: expected either a condition or numbers of episodes"),
        (Delete(episodes=[5]), "delete: no episode 5: there are 5"),
        (Delete(episodes=np.array([True, False])), "delete: got bool, expected the numbers"),
        (Delete(episodes=[1.5]), "delete: got float64, expected the numbers"),
        (Trim(9, None), "no step of episode 'episode 0' is left: it has 4, got 9:4"),
        (Trim(3, 2), "got 3:2, which has no step"),
        (Trim(-2, -2), "got -2:-2, which has no step"),
        (Trim(end=-5), "no step of episode 'episode 0' is left: it has 4, got 0:0"),
        (Set("succes", True), "no field 'succes'; did you mean 'success'"),
        (Set("success", "yes"), "success: got 'yes', expected bool"),
        (Set("observation", 1), "is a group of fields; set one of"),
        (Set("steps/reward", [1, 2]), r"reward: got \[1, 2\], expected float32"),
        (Set("steps/reward", 1e300), r"reward: got 1e\+300, expected float32 .*cannot hold it"),
        (SetMeaning("action", "deltas"), "no kind 'deltas'; did you mean 'delta'"),
        (SetMeaning("action", names=["x", "y"]), "2 names, but it is float32 of shape"),
        (SetMeaning("observation/note", unit="m"), "not a field of numbers"),
        (SetMeaning("action"), "expected a kind, a unit or names"),
        (Rename("reward", "action"), "already has a field 'steps/action'"),
        (Add("steps/speed", lambda episode: np.zeros(2)), r"of shape \(2,\), expected \(4,\)"),
        (
            Add("steps/speed", "no_module:f"),
            "'no_module:f' is not importable, expected module:function",
        ),
        (Add("steps/half", halves), r"episode 'episode 1': steps/half: .*, expected int64"),
        (Merge("other"), "merge: got 'other', expected a list of datasets"),
        (Split({"a": 0.5, "b": 0.5}), r"pass the path of the new dataset"),
        (Split({"a": 0.5}), r"do not add up to 1: name one more split, .*--split NAME"),
        (Split({"a": 0.5, "b": "success"}), "split: got 'success' and fractions"),
        (Split({"a/b": 0.5, "b": None}), "split: 'a/b' cannot name a split"),
        (Split(by="reward"), "column 'reward' has several values"),
        (Split({"a": "success"}), "2 episodes are in no split"),
        (Split(by="colour"), "no column 'colour'; there are: split, index"),
    ],
)
def test_invalid_operation_changes_nothing(robot, operation, message):
    rlds.sources.open(robot, "all").table()
    before = read_files(robot)
    with pytest.raises((ValueError, rlds.sources.SourceError), match=message):
        rlds.edit(robot, operation)
    assert read_files(robot) == before
    assert os.listdir(robot.parent) == ["robot"]


def test_edit_is_refused_if_source_changes_meanwhile(robot):
    def touch(episode):
        os.utime(next(robot.glob("*.tar")), (1, 1))
        return 0

    with pytest.raises(StorageError, match="has changed since it was opened; repeat the edit"):
        rlds.edit(robot, Add("zero", touch))
    assert "zero" not in rlds.sources.open(robot, "all").spec


def test_trim_counts_steps_from_either_end(tmp_path):
    """Lineage has the rows kept; `number` counts over all splits and datasets."""
    (tmp_path / "raw").mkdir()
    for index in range(4):
        rows = np.arange(10.0 * index, 10 * index + 5 + index)
        observation = np.append(rows, -1.0)[:, None]  # The final observation has no row.
        arrays = {"observation": observation, "action": rows[:, None], "reward": rows}
        np.savez(tmp_path / "raw" / f"{index}.npz", **arrays)
    rlds.edit(
        tmp_path / "raw",
        Trim(2),
        Trim(-5, -1, where="number = 3"),
        Trim(end=-2, where="number = 2"),
        to=tmp_path / "made",
        to_format="webdataset",
    )
    actual = [episode["action"].ravel().tolist() for episode in read_all(tmp_path / "made")]
    assert actual == [[2, 3, 4, 0], [12, 13, 14, 15, 0], [22, 23, 24, 0], [34, 35, 36, 0]]
    lineage = editing.lineage_of(tmp_path / "made")
    origins = [trace(lineage, "train", index)[1] for index in range(4)]
    assert [(each.begin, each.end) for each in origins] == [(2, 5), (2, 6), (2, 6), (4, 8)]
    split = Split({"a": "number < 3", "b": None})
    rlds.edit(tmp_path / "raw", split, to=tmp_path / "two", to_format="tfds")
    export(Robot(lengths=(2,)), "webdataset", tmp_path / "robot")
    merge = Merge([tmp_path / "raw"], duplicates="keep")
    for condition, num_episodes in (("index = 0", 5), ("number = 3", 7), ("number in (3, 4)", 6)):
        edit = editing.prepare_edit(tmp_path / "two", [merge, Delete(where=condition)])
        assert sum(edit.num_episodes.values()) == num_episodes
        assert ("`index` starts at 0 in each split" in str(edit)) == ("index" in condition)
        assert sum(edit.num_episodes.values()) == num_episodes


def test_split_assigns_episodes_by_field_condition_or_fraction(robot, tmp_path):
    output = rlds.edit(robot, Split(by="instruction"), to=tmp_path / "tasks")
    assert [os.path.basename(actual.path) for actual in output.datasets] == ["pick", "place"]
    keys = [episode.key for episode in read_all(tmp_path / "tasks" / "place")]
    assert keys == ["episode 1", "episode 3"]
    lineage = editing.lineage_of(tmp_path / "tasks" / "place")
    assert editing.origin_of(lineage, "train", 1) == [("robot", "train", 3), ("Robot", "train", 3)]
    new_instruction = Set("instruction", "Put it there!", where="instruction = 'place'")
    rlds.edit(robot, new_instruction, Split(by="instruction"), to=tmp_path / "mended")
    assert sorted(os.listdir(tmp_path / "mended")) == ["pick", "put_it_there"]
    rlds.edit(
        robot, Split({"good": "success and steps < 5", "other": None}), to=tmp_path / "quality"
    )
    assert [len(e) for e in read_all(tmp_path / "quality" / "good")] == [4, 3]
    fractions = Split({"train": 0.6, "test": 0.4}, seed=3, groups="instruction")
    rlds.edit(robot, fractions, to=tmp_path / "parts")
    tasks = [
        {episode.metadata["instruction"] for episode in read_all(tmp_path / "parts" / name)}
        for name in ("train", "test")
    ]
    assert tasks == [{"place"}, {"pick"}]
    plan = str(editing.prepare_edit(robot, [fractions]))
    assert plan.startswith(
        "webdataset: 5 of 5 episodes stay\n  train: 2\n  test: 3\n5 are copied unchanged"
    )
    edit = editing.prepare_edit(robot, [Split({"train": 0.6, "test": None, "more": 0})])
    assert edit.num_episodes == {"train": 3, "test": 2}
    assert "split: 'more' has no episode" in edit.notes


class AliasedRobot(Robot):
    """Episodes whose fields have other or several names in the table of episodes."""

    @property
    def fields(self):
        fields = {"language_instruction": Field(str), "return": np.int64, "digest": np.int64}
        return super().fields.replace(episode=fields)

    def read(self, split, index, fields=None, rows=slice(None)):
        metadata = {"language_instruction": self.tasks[index % 2]}
        metadata |= dict.fromkeys(("return", "digest"), np.int64(index))
        return dataclasses.replace(super().read(split, index), metadata=metadata)


def test_set_changes_only_columns_of_its_field(tmp_path):
    def split_names(name, column, value):
        operations = [Set(name, value), Split(by=column)]
        return [*editing.prepare_edit(tmp_path / "named", operations).num_episodes]

    export(AliasedRobot(), "webdataset", tmp_path / "named")
    assert split_names("return", "return", 7) == ["2", "3", "4", "5", "7"]
    assert split_names("return", "episode/return", 7) == ["7"]
    assert split_names("language_instruction", "language_instruction", "push") == ["push"]
    assert split_names("language_instruction", "instruction", "push") == ["push"]
    assert split_names("truncated", "truncated", True) == ["true"]
    annotated = raw_lerobot.write_v3(tmp_path / "annotated")
    texts = ["good", "bad", None]
    raw_lerobot.write_annotations(annotated, {"annotation.task_description": texts})
    rlds.edit(annotated, Set("instruction", "sort them"))  # Sets the text, not the numbers.
    actual = rlds.sources.open(annotated).table().arrow()["instruction"]
    assert actual.to_pylist() == ["sort them"] * 3
    # Equal values of a field named digest do not make episodes duplicates.
    export(AliasedRobot(lengths=(9, 2)), "webdataset", tmp_path / "other")
    merge = Merge([tmp_path / "other"], duplicates="drop")
    edit = editing.prepare_edit(tmp_path / "named", [merge, Set("digest", 1)])
    assert edit.num_episodes == {"train": 7}


def test_similar_values_get_distinct_splits(tmp_path):
    export(Robot(tasks=("pick it up", "Pick it up!", "-1", "1")), "webdataset", tmp_path / "tasks")
    edit = editing.prepare_edit(tmp_path / "tasks", [Split(by="instruction")])
    assert edit.num_episodes == {"1": 1, "1_2": 1, "pick_it_up": 2, "pick_it_up_2": 1}


class Speaker(Robot):
    """Episodes whose actions are words and numbers of varying count."""

    @property
    def fields(self):
        action = {"say": Field(str), "aim": Field(np.float32, (None,))}
        return super().fields.replace(steps={**super().fields.steps, "action": action})

    def read(self, split, index, fields=None, rows=slice(None)):
        episode = super().read(split, index)
        words = np.array([*map(str, range(len(episode) - 1)), ""], object)
        aims = np.empty(len(words), object)
        for row in range(len(words)):
            aims[row] = np.full(row % 3 + 1, row + 1 < len(words), np.float32)
        steps = {**episode.steps, "action": {"say": words, "aim": aims}}
        return dataclasses.replace(episode, steps=steps)


def test_trimmed_episodes_end_with_placeholders_of_each_type(tmp_path):
    export(Speaker(), "webdataset", tmp_path / "speaker")
    rlds.edit(tmp_path / "speaker", Trim(begin=1), Trim(0, 3, where="steps > 3"))
    after = read_all(tmp_path / "speaker")
    assert [len(episode) for episode in after] == [2, 2, 2, 2, 2]
    assert after[0]["action"]["say"].tolist() == ["1", ""]
    assert [aim.tolist() for aim in after[0]["action"]["aim"]] == [[1, 1], [0, 0, 0]]
    rlds.edit(tmp_path / "speaker", Trim(0, 1))
    assert [aim.tolist() for aim in read_all(tmp_path / "speaker")[0]["action"]["aim"]] == [[0, 0]]


def test_each_view_has_its_own_table(robot):
    views = [editing.prepare_edit(robot, [Set("steps/reward", value)]).view for value in (1, 2)]
    for view, expected in zip(views, (3, 6)):
        table = rlds.sources.Episodes(view, "train").table()
        assert table.arrow(["return"])["return"].to_pylist()[0] == expected
    original = rlds.sources.open(robot, "all").table()
    assert len(original.where("true")) == 5
    assert len(table.where("true")) == 5


def test_operations_accept_arrays_and_partial_functions(robot):
    operations = [
        Keep(episodes=np.array([0, 2])),
        Set("observation/state", np.zeros(2, np.float32)),
        Add("two", functools.partial(lambda value, episode: value, 2)),
    ]
    recipe = editing.as_recipe(operations)
    assert recipe[0] == {"do": "keep", "episodes": [0, 2]}
    assert recipe[1]["value"] == [0, 0]
    view = editing.prepare_edit(robot, operations).view
    assert view.read("train", 1).metadata["two"] == 2


def test_describe_stores_values_or_writes_nothing(robot, tmp_path):
    rlds.edit(robot, Describe("source", ("lab", 3)), Describe("homepage", 5), to=tmp_path / "said")
    source = rlds.sources.open(tmp_path / "said", "all").source
    assert (source.source_info.metadata["source"], source.source_info.homepage) == (["lab", 3], "5")
    with pytest.raises(ValueError, match="webdataset cannot hold 'lineage'"):
        rlds.edit(robot, Describe("lineage", "mine"), to=tmp_path / "lost")
    assert not (tmp_path / "lost").exists()


def test_edits_keep_conversion_counts_as_original(robot, tmp_path):
    counts = {"inputs": "0f", "splits": {"train": {"episodes": 4, "steps": 18}}}
    rlds.edit(robot, Describe("conversion", counts), to=tmp_path / "made", to_format="tfds")
    for _ in range(2):
        rlds.edit(tmp_path / "made", Delete(episodes=[0]))
    conversion = rlds.sources.open(tmp_path / "made").metadata["conversion"]
    assert conversion == {"inputs": "0f", "splits": {}, "original": counts}


def test_edit_keeps_foreign_files_and_links_in_folder(robot, tmp_path):
    (tmp_path / "notes").mkdir()
    (robot / "notes").symlink_to(tmp_path / "notes")
    (robot / "gone").symlink_to("nowhere")
    labels = robot / "other" / ".rlds" / "labels" / "good.jsonl"
    labels.parent.mkdir(parents=True)
    labels.write_text("{}")
    rlds.edit(robot, Delete(episodes=[0]))
    assert (robot / "notes").samefile(tmp_path / "notes")
    assert (robot / "gone").is_symlink()
    assert labels.exists()
    # The edit would lose the unfinished episode.
    (robot / ".rlds" / "recording-1").mkdir()
    with pytest.raises(
        StorageError, match=r"recording-1 is an unfinished recording.*`rlds recover"
    ):
        rlds.edit(robot, Delete(episodes=[0]))
    assert len(read_all(robot)) == 4


def test_files_in_one_folder_have_separate_lineages(tmp_path):
    export(Robot(), "robomimic", tmp_path / "raw.hdf5")
    shutil.rmtree(tmp_path / ".rlds")
    rlds.edit(tmp_path / "raw.hdf5", Delete(episodes=[0]), to=tmp_path / "made.hdf5")
    operations = [
        editing.lineage_of(tmp_path / name)["operations"][0]["do"]
        for name in ("raw.hdf5", "made.hdf5")
    ]
    assert operations == ["convert", "delete"]


@pytest.mark.parametrize("format", ["robomimic", "zarr"])
def test_lineage_survives_a_killed_edit(tmp_path, format):
    """The sidecar is written after the file: a killed edit leaves the old sidecar."""
    path = tmp_path / ("made.hdf5" if format == "robomimic" else "made")
    export(Robot(), format, path)
    rlds.edit(path, Delete(episodes=[0]))
    sidecar = file_of(path)
    assert origin_indices(path) == [1, 2, 3, 4]
    old_bytes = sidecar.read_bytes()
    rlds.edit(path, Trim(begin=1))
    sidecar.write_bytes(old_bytes)
    assert editing.lineage_of(path)["operations"][0]["do"] == "trim"
    rlds.edit(path, Delete(episodes=[0]))
    assert origin_indices(path) == [1, 2, 3]
    assert editing.lineage_of(path)["from"][0]["lineage"]["operations"][0]["do"] == "trim"


def origin_indices(path):
    """Returns the indices that the episodes had in the edited dataset."""
    lineage = editing.lineage_of(path)
    (split,) = lineage["episodes"]
    return [editing.origin_of(lineage, split, n)[0][2] for n in range(lineage["kept"])]


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_edit_accepts_folder_name_that_is_not_utf8(robot):
    folder = robot.rename(robot.with_name(os.fsdecode(b"caf\xe9")))
    rlds.edit(folder, Delete(where="steps < 4"))
    rlds.edit(folder, Delete(episodes=[0]))
    actual = trace(editing.lineage_of(folder), "train", 0)
    assert actual[0][0] == (folder.name, "train", 1)


def test_merge_joins_datasets(robot, tmp_path):
    other = Robot(np.float64, ("push",), (7, 2))
    other.source_info = other.source_info.replace(license="Apache-2.0")
    export(other, "maniskill", tmp_path / "other")
    converted = rlds.sources.open(tmp_path / "other", "all")
    assert converted.source.source_info.license == "Apache-2.0"
    rlds.edit(tmp_path / "other", Rename("observation/state", "observation/joints"))
    paths = [tmp_path / "other"]
    with pytest.raises(ValueError, match=r"no field 'steps/observation/state': map .*--map "):
        rlds.edit(robot, Merge(paths), to=tmp_path / "all")
    merge = Merge(paths, fields={"observation/joints": "observation/state"})
    edit = editing.prepare_edit(robot, [merge, Delete(where="steps = 2")])
    assert "licenses differ: " in str(edit)
    assert "state: float32 of shape (2,) becomes float64 of shape (2,)" in str(edit)
    rlds.edit(robot, merge, Delete(where="steps = 2"), to=tmp_path / "all")
    episodes = rlds.sources.open(tmp_path / "all", "all")
    assert [len(episode) for episode in episodes] == [*LENGTHS, 7]
    assert len({episode.key for episode in episodes}) == 6
    assert episodes.spec["steps"]["observation"]["state"].dtype == np.float64
    assert np.array_equal(
        episodes[0]["observation"]["state"], read_all(robot)[0]["observation"]["state"]
    )
    assert episodes[5].metadata["instruction"] == "push"
    lineage = editing.lineage_of(tmp_path / "all")
    assert editing.origin_of(lineage, "train", 5)[0] == ("other", "train", 0)
    check_duplicates(robot, tmp_path)
    # A field missing in one dataset is refused, filled or dropped; other types are refused.
    rlds.edit(tmp_path / "other", Drop("success"))
    with pytest.raises(ValueError, match=r"fill .*, --fill success=VALUE.*--drop-missing"):
        editing.prepare_edit(robot, [merge])
    filled = editing.prepare_edit(robot, [Merge(paths, merge.fields, {"success": True})])
    assert [filled.view.read("train", i).metadata["success"] for i in (1, 5)] == [False, True]
    dropped = editing.prepare_edit(robot, [Merge(paths, merge.fields, missing="drop")])
    assert "success" not in dropped.view.fields.episode
    rlds.edit(tmp_path / "other", Add("success", lambda episode: "yes"))
    with pytest.raises(ValueError, match=r"'success' is bool .* these do not fit into one field"):
        editing.prepare_edit(robot, [merge])
    rlds.edit(tmp_path / "other", Drop("success"), Describe("fps", 20))
    with pytest.raises(ValueError, match=r"frame rates differ: 10 in .*robot, 20 in"):
        editing.prepare_edit(robot, [merge])


def test_merged_episodes_have_unique_keys(tmp_path):
    paths = [tmp_path / name / "run" for name in "abc"]
    for index, path in enumerate(paths):
        path.parent.mkdir()
        export(Robot(lengths=(index + 2, 9 - index)), "webdataset", path)
    view = editing.prepare_edit(paths[0], [Merge([f"{paths[1]}/", paths[2]])]).view
    keys = [view.key("train", index) for index in range(6)]
    assert keys[2] == "run/episode 0"
    assert len({*keys}) == 6
    # Names of files and versions do not name datasets.
    paths = [tmp_path / "tfds" / name / "1.0.0" for name in ("a", "b", "more/b")]
    for path in paths:
        export(Robot(lengths=LENGTHS[:1]), "tfds", path)
    for file in paths[1].glob("*.tfrecord*"):
        file.rename(file.with_name(file.name.replace("tfds", "other")))
    rlds.edit(paths[0], Merge(paths[1:], duplicates="keep"), to=tmp_path / "all")
    keys = rlds.sources.open(tmp_path / "all").table().arrow(["key"])["key"].to_pylist()
    assert keys == ["episode 0", "b/episode 0", "b (2)/episode 0"]


def check_duplicates(robot, tmp_path):
    """Checks episodes that are in two datasets: in one split, or in two (a leak)."""
    export(Robot(lengths=LENGTHS[:2]), "webdataset", tmp_path / "same")
    merge = Merge([tmp_path / "same"])
    plan = str(editing.prepare_edit(robot, [merge, Delete(episodes=[0])]))
    assert "duplicate episodes in train: 1; all are kept: --duplicates drop" in plan
    plan = str(editing.prepare_edit(robot, [Merge([tmp_path / "same"], duplicates="keep")]))
    assert "in train: 2" in plan
    assert "they stay" not in plan
    for name, split in (("first", "test"), ("second", "train")):
        rlds.edit(robot, Split({split: None}), to=tmp_path / name, to_format="tfds")
    leak = Merge([tmp_path / "second"])
    with pytest.raises(ValueError, match=r"in test and train: 5, .* episode 0 of .*second:"):
        editing.prepare_edit(tmp_path / "first", [leak])
    edit = editing.prepare_edit(tmp_path / "first", [dataclasses.replace(leak, duplicates="keep")])
    assert edit.num_episodes == {"test": 5, "train": 5}
    drop = dataclasses.replace(leak, duplicates="drop")
    edit = editing.prepare_edit(tmp_path / "first", [drop])
    assert edit.num_episodes == {"test": 5}
    assert "in test and train: 5; the later duplicates are left out" in str(edit)


def test_merge_reports_license_conflicts(robot, tmp_path):
    def plan(first, second):
        for path, license in ((robot, first), (tmp_path / "other", second)):
            rlds.edit(path, Describe("license", license))
        return editing.prepare_edit(robot, [Merge([tmp_path / "other"])])

    export(Robot(lengths=(9, 2)), "webdataset", tmp_path / "other")
    assert "license: " not in str(plan("MIT", "CC-BY-4.0"))
    assert "license: " not in str(plan("MIT", "of our own"))
    edit = plan("MIT", "CC BY-NC-SA 4.0")
    assert edit.lineage["conflicts"] == [
        "other is under CC BY-NC-SA 4.0, which forbids commercial use, but the result is declared "
        "under "
        "MIT",
        "other is under CC BY-NC-SA 4.0, which the result must keep; it is declared under MIT",
    ]
    assert "license: other is under CC BY-NC-SA 4.0, which forbids commercial use" in str(edit)
    assert "forbids sharing changed copies" in str(plan("CC-BY-ND-4.0", "MIT"))
    assert "which forbids the limits that CC-BY-NC-4.0" in str(plan("GPL-3.0", "CC-BY-NC-4.0"))


def test_merge_refuses_different_environments(tmp_path):
    for name, environment in (("a", "Hopper-v5"), ("b", "Walker2d-v5")):
        spec = json.dumps({"id": environment, "max_episode_steps": len(name)})
        hostile_sources.FORMATS["minari_hdf5"].write(tmp_path / name)
        (file,) = (tmp_path / name).rglob("metadata.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "env_spec": spec}))
    with pytest.raises(
        ValueError, match=r'env_spec/id: "Hopper-v5" in .*a.toy-v0, "Walker2d-v5" in'
    ):
        merge = Merge([tmp_path / "b" / "toy-v0"])
        rlds.edit(tmp_path / "a" / "toy-v0", merge, to=tmp_path / "c-v0")


def test_minari_datasets_keep_their_identifiers(tmp_path, monkeypatch):
    """Minari names a dataset by its path below a folder, and the draft has another path."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    export(Robot(), "minari", tmp_path / "robot" / "pick-v0")
    (tmp_path / "latest").symlink_to(tmp_path / "robot" / "pick-v0")
    split = Split({"few": 0.5, "more-v2": None})
    rlds.edit(tmp_path / "robot" / "pick-v0", split, to=tmp_path / "parts")
    for path in (tmp_path / "robot" / "pick-v0", tmp_path / "latest"):
        rlds.edit(path, Delete(episodes=[0]))
    infos = [json.loads(file.read_text()) for file in sorted(tmp_path.rglob("metadata.json"))]
    assert [(each["dataset_id"], each["total_episodes"]) for each in infos] == [
        *(("parts/few-v0", 2), ("parts/more-v2", 3), ("robot/pick-v0", 3))
    ]


def test_edits_accept_field_names_of_lerobot(tmp_path):
    hostile_sources.FORMATS["lerobot"].write(tmp_path)
    top, cameras = "observation.images.top", "observation.images"
    before = {*rlds.sources.open(tmp_path).metadata["lerobot"]["info"]["features"]}

    def features(*operations):
        shutil.rmtree(tmp_path / "made", ignore_errors=True)
        rlds.edit(tmp_path, *operations, to=tmp_path / "made")
        return {*rlds.sources.open(tmp_path / "made").metadata["lerobot"]["info"]["features"]}

    assert features(Drop(top)) == before - {top}
    assert features(Drop("video/observation/images/top/clip")) == before - {top}
    assert features(Rename(top, f"{cameras}.front")) == before - {top} | {f"{cameras}.front"}
    assert features(Rename("video/observation/images/top/first", "video/x/clip")) == before - {
        top
    } | {"x"}
    assert features(Rename(cameras, "cams")) == {name.replace(cameras, "cams") for name in before}
    assert features(Rename("next.reward", "next.bonus")) ^ before == {"next.reward", "next.bonus"}
    assert features(Add("observation.speed", speed)) == before | {"observation.speed"}
    keep = Keep(where="task like 'pick%' and episode_index.min = 1 and length > 1")
    assert features(Set("task", "sort"), Set("observation.state", [1, 2, 3]), keep) == before
    texts = {episode["language_instruction"][0] for episode in rlds.sources.open(tmp_path)}
    for operation, message in (
        (Drop("observation.images.tp"), "did you mean 'observation.images.top'"),
        (Drop("steps/observation/stat"), "did you mean 'steps/observation/state'"),
        (Set("taks", "sort"), "no field 'taks'; did you mean 'task'"),
        (Split(by="taks"), "no column 'taks'; did you mean 'task'"),
        (Delete(where="lenght > 1"), "no column 'lenght'; did you mean 'length'"),
    ):
        with pytest.raises(ValueError, match=rf"{message}\?"):
            editing.prepare_edit(tmp_path, [operation])
    steps = rlds.feeds.open(tmp_path)
    for name, path in (
        ("observation.state", "observation/state"),
        ("task", "language_instruction"),
    ):
        with pytest.raises(KeyError, match=f"no field '{name}'; did you mean '{path}'"):
            steps.select([name])
    for operations, num_splits in (([], len(texts)), ([Set("task", "sort")], 1)):
        split = editing.prepare_edit(tmp_path, [*operations, Split(by="task")])
        assert len(split.num_episodes) == num_splits


def test_edits_of_an_export_accept_field_names_of_its_format(tmp_path):
    export(Robot(), "lerobot", tmp_path / "made", task="instruction")
    export(Robot(lengths=(7, 2)), "robomimic", tmp_path / "other.hdf5")
    rlds.edit(tmp_path / "other.hdf5", Rename("obs/state", "obs/joints"))
    merge = Merge([tmp_path / "other.hdf5"], fields={"obs/joints": "observation.state"})
    joined = editing.prepare_edit(tmp_path / "made", [merge])
    assert joined.view.fields.steps["observation"].keys() == {"state", "note"}
    rlds.edit(tmp_path / "made", Set("task", "sort"), Delete(where="task = 'place'"))
    output = rlds.sources.open(tmp_path / "made", "all")
    assert [episode.metadata["instruction"] for episode in output] == ["sort"] * 3
    tasks = [row["task"] for row in output.source.source.source_info.metadata["lerobot"]["tasks"]]
    assert tasks == ["sort"]


def test_edits_accept_names_of_hdf5_arrays(tmp_path):
    hostile_sources.FORMATS["robomimic_all"].write(tmp_path)
    (path,) = tmp_path.glob("*.hdf5")
    before = rlds.sources.open(path, "all")
    selected_indices = np.flatnonzero([np.max(episode["action"]) > 0.5 for episode in before])
    edit = editing.prepare_edit(
        path,
        [
            Rename("obs/robot0_eef_pos", "obs/hand"),
            Drop("obs/object"),
            Keep(where='actions.max > 0.5 and "obs/robot0_eef_pos".max < 99'),
        ],
    )
    assert sum(edit.num_episodes.values()) == len(selected_indices)
    field_names = {*before.spec["steps"]["observation"]} - {"robot0_eef_pos", "object"} | {"hand"}
    assert field_names == {*edit.view.fields.steps["observation"]}
    with pytest.raises(ValueError, match="no field 'obs/objet'; did you mean 'obs/object'"):
        editing.prepare_edit(path, [Drop("obs/objet")])
    with pytest.raises(ValueError, match="no field 'operator'; there are: "):
        editing.prepare_edit(path, [Set("operator", "hi")])


def test_plan_reports_if_recipe_selects_different_episodes(robot, tmp_path):
    rlds.edit(robot, Delete(where="steps > 5"), to=tmp_path / "made")
    recipe = editing.lineage_of(tmp_path / "made")
    assert "in the recipe, but" not in str(editing.prepare_edit(robot, editing.from_recipe(recipe)))
    rlds.edit(robot, Keep(episodes=[0, 1]))
    text = str(editing.prepare_edit(robot, editing.from_recipe(recipe)))
    assert "'steps > 5' selected 2 of 5, sha256:" in text
    assert " in the recipe, but 1 of 2, sha256:" in text
    for condition in (
        "steps > random()",
        "make_date(2020, 1, 1) < today()",
        "current_date > 1",
        "random() > 1 --",
    ):
        with pytest.raises(ValueError, match="gives another value each time"):
            editing.prepare_edit(robot, [Delete(where=condition)])


FORMATS = (
    *("aloha", "d3rlpy", "d4rl", "lerobot", "lerobot_2", "logs"),
    *(
        "folder_tfrecord",
        "folder_array_record",
        "maniskill",
        "minari_hdf5",
        "robomimic_all",
        "webdataset",
        "zarr",
    ),
)


@pytest.mark.parametrize("name", FORMATS)
def test_edits_keep_episodes_in_every_format(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    path = hostile_sources.write_raw(name, tmp_path)
    options = hostile_sources.OPTIONS.get(name, {})
    before = rlds.sources.open(path, "all", **options)
    expected = [as_converted(episode) for episode in before][1:]
    origins = (before[1].origin, as_converted(before[1]).origin)
    labels = (path if path.is_dir() else tmp_path) / ".rlds" / "labels"
    labels.mkdir(parents=True)
    (labels / "mine").write_text("good")
    rlds.edit(
        path,
        Delete(episodes=[0]),
        Add("steps/speed", speed),
        Describe("license", "CC0-1.0"),
        Describe("robot", {"arm": ["left"]}),
        SetMeaning("steps/speed", "velocity", "m/s"),
        keep_old=True,
        options=options,
        target_options=options_for(before.format, before),
    )
    assert (labels / "mine").read_text() == "good"
    declared = rlds.sources.open(path, "all").spec["steps"]["speed"]
    assert (declared.kind, declared.unit) == ("velocity", "m/s")
    assert not any(b".draft" in data for data in read_files(tmp_path).values())
    after = [as_converted(episode) for episode in rlds.sources.open(path, "all")]
    for episode, actual in zip(expected, after, strict=True):
        assert actual["speed"].tolist() == list(range(len(actual)))
        ignored = {"steps/speed", "key", "lerobot/row", "steps/index", "steps/episode_index"}
        if name == "lerobot":  # Clips are joined to one file: packets are the same.
            ignored.add("video/observation/images/top/clip")
            clips = [lookup(e.metadata, "video/observation/images/top") for e in (episode, actual)]
            old, new = (packets_of(Clip(c["clip"], int(c["first"]), len(actual))) for c in clips)
            assert old == new
        assert list(differences(episode, actual, ignored)) == []
    ancestors, origin = trace(editing.lineage_of(path), "train", 0)
    assert ancestors[0][2] == 1
    assert origin in origins
    # The data itself has the metadata and lineage, too.
    for file in tmp_path.rglob(".rlds/*lineage.json"):
        file.unlink()
    after = rlds.sources.open(path, "all")
    assert after.source.source_info.license == "CC0-1.0"
    assert after.metadata["robot"] == {"arm": ["left"]}
    assert editing.lineage_of(path)["operations"][0] == {"do": "delete", "episodes": [0]}
    lineage = rlds.sources.open(export(path, "webdataset", tmp_path / "w").path).metadata["lineage"]
    assert lineage["from"][0]["license"] == "CC0-1.0"
    assert lineage["from"][0]["lineage"]["operations"][0]["do"] == "delete"


@pytest.mark.parametrize(
    ("name", "file"),
    [("aloha", "dataset_stats.pkl"), ("folder_tfrecord", "dataset_statistics_1f.json")],
)
def test_edit_drops_foreign_statistics_of_old_episodes(name, file, tmp_path):
    hostile_sources.FORMATS[name].write(tmp_path)
    for file_name in (file, "README.md"):
        (tmp_path / file_name).write_text("Mine.")
    edit = editing.prepare_edit(tmp_path, [Describe("license", "MIT")])
    assert edit.stale_files == []
    rlds.edit(tmp_path, Describe("license", "MIT"))
    assert (tmp_path / file).exists()
    plan = str(editing.prepare_edit(tmp_path, [Delete(episodes=[0])]))
    assert f"{file} is left out: it describes old episodes" in plan
    rlds.edit(tmp_path, Delete(episodes=[0]))
    assert not (tmp_path / file).exists()
    assert (tmp_path / "README.md").read_text() == "Mine."


@pytest.mark.parametrize("name", FORMATS)
def test_changed_values_are_read_back_in_every_format(name, tmp_path):
    """Values that the format cannot store are in the sidecar after each edit."""
    path = hostile_sources.write_raw(name, tmp_path)
    options = hostile_sources.OPTIONS.get(name, {})
    operations = [Trim(0, 2, where="steps > 2")]
    if not name.startswith("lerobot"):
        operations += [Set("steps/discount", 0.5), Set("truncated", True)]
    view = editing.prepare_edit(path, operations, options=options).view
    expected = [as_converted(episode) for episode in rlds.sources.Episodes(view, "all")]
    assert {len(episode) for episode in expected} <= {1, 2}
    rlds.edit(path, *operations, options=options)
    for remaining in (expected, expected[1:]):
        actual = [as_converted(episode) for episode in rlds.sources.open(path, "all")]
        for episode, edited in zip(remaining, actual, strict=True):
            ignored = {"key", "lerobot/row", "steps/index", "steps/episode_index"}
            ignored.add("video/observation/images/top/clip")  # Clips are cut again.
            if name.startswith("d4rl"):  # They mark the new ends of episodes.
                ignored |= {"steps/timeouts", "steps/terminals"}
            assert list(differences(episode, edited, ignored)) == []
        if remaining is expected:  # The condition builds the table of episodes.
            rlds.edit(path, Delete(where="index = 0 and digest is not null"))


OUTPUT_NAMES = {
    "minari": "x-v0",
    "robomimic": "x.hdf5",
    "lerobot": "x",
    "zarr": "x.zarr",
    "tfds": "x",
}


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"do": "cut"}, "no operation cut"),
        ({"do": "trim", "begin": "a"}, "trim: begin: got 'a', expected int"),
        ({"do": "delete", "where": 5}, "delete: where: got 5, expected str"),
        ({"do": "rename", "field": "a"}, "rename: no argument 'field'; there are: rows, old, new"),
        ({"do": "delete", "wher": "a"}, "delete: no argument 'wher'; did you mean 'where'"),
    ],
)
def test_recipe_error_names_the_operation(operation, message):
    with pytest.raises(ValueError, match=f"operation 1.*{message}"):
        editing.from_recipe([{"do": "keep"}, operation])


@pytest.mark.parametrize("name", OUTPUT_NAMES)
def test_recipe_reproduces_the_same_bytes(name, robot, tmp_path):
    options = {"task": "instruction"} if name == "lerobot" else {}
    operations = (
        Drop("observation/note"),
        Delete(where="steps < 4"),
        Trim(end=3, where="index > 2"),
    )
    output, repeated, chained = (tmp_path / each / OUTPUT_NAMES[name] for each in ("a", "b", "c"))
    rlds.edit(robot, *operations, to=output, to_format=name, target_options=options)
    recipe = json.loads(file_of(output).read_text())
    rlds.edit(robot, *editing.from_recipe(recipe), to=repeated)
    assert read_relative_files(output.parent) == read_relative_files(repeated.parent)
    # So does a recipe of an edit within the format.
    rlds.edit(output, Keep(episodes=[1, 2]), Describe("license", "MIT"), to=chained)
    recipe = json.loads(file_of(chained).read_text())
    chained.parent.rename(tmp_path / "before")
    rlds.edit(output, *editing.from_recipe(recipe), to=chained)
    assert read_relative_files(tmp_path / "before") == read_relative_files(chained.parent)
