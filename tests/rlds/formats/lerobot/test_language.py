"""Language of steps: LeRobot's columns as texts, and labels as these columns."""

import json

import foreign_readers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import raw_lerobot as raw
from clip_source import ClipSource

import rlds
import rlds.labels
import rlds.sources
from rlds.editing import Delete, Drop, Merge, Set, Trim
from rlds.formats.lerobot.language import STYLES, SUBTASKS
from rlds.labels import labelled
from rlds.sources import Episodes, SourceError, export

LeRobotSource = rlds.sources.formats()["lerobot"].load()

# As `lerobot-annotate` writes them; times are those of rows 0, 2 and 5.
TEXTS = [
    ("user", "fetch it", "task_aug", 0.0),
    ("user", "bring it here", "task_aug", 0.0),
    ("assistant", "1. reach\n2. grasp", "plan", 0.0),
    ("assistant", "reach", "subtask", 0.2),
    ("assistant", "grasp", "subtask", 0.5),
    ("assistant", "it is red", "memory", 0.5),
]
CALL = {"type": "function", "function": {"name": "say", "arguments": {"text": "here"}}}
EVENTS = {
    1: [("user", "what is it?", "vqa", raw.TOP), ("assistant", '{"label": "cup"}', "vqa", raw.TOP)],
    3: [("user", "faster", "interjection", None), ("assistant", None, None, None)],
}


def text_rows():
    names = ("role", "content", "style", "timestamp")
    return [{**dict(zip(names, row)), "camera": None, "tool_calls": None} for row in TEXTS]


def event_rows(row):
    names = ("role", "content", "style", "camera")
    lines = [dict(zip(names, event)) for event in EVENTS.get(row, ())]
    return [{**each, "tool_calls": None if each["style"] else [CALL]} for each in lines]


def rewrite(path, change):
    """Changes the table of each data file by a function; declares its columns."""
    info = path / "meta/info.json"
    contents = json.loads(info.read_text())
    for file in sorted((path / "data").rglob("*.parquet")):
        table = change(pq.read_table(file))
        pq.write_table(table.replace_schema_metadata(), file)
    for name in {*table.column_names} - {*contents["features"]}:
        dtype = "language" if name.startswith("language") else "int64"
        contents["features"][name] = {"dtype": dtype, "shape": [1], "names": None}
    info.write_text(json.dumps(contents))
    return path


def write_annotated(path):
    frames = pa.array([event_rows(row) for row in range(9)])  # One type for all files.

    def change(table):
        rows = table["frame_index"].to_pylist()
        table = table.append_column("language_persistent", pa.array([text_rows()] * len(rows)))
        column = pa.array([event_rows(row) for row in rows], frames.type)
        return table.append_column("language_events", column)

    return rewrite(raw.write_v3(path, codecs={raw.TOP: "h264"}), change)


def latest_texts(style, time):
    """Returns the latest texts of a style at a time, by a plain loop."""
    lines = [row for row in TEXTS if row[2] == style and row[3] <= time + 1e-6]
    last = max((row[3] for row in lines), default=None)
    return "\n".join(row[1] for row in lines if row[3] == last)


def test_columns_of_language_are_texts_of_steps(tmp_path):
    episodes = rlds.sources.open(write_annotated(tmp_path / "raw"))
    assert episodes.spec["steps"]["language"].keys() > {"subtask", "vqa", "tool_calls"}
    for episode in episodes:
        texts, times = episode.steps["language"], episode.steps["timestamp"]
        for style in STYLES:
            assert texts[style].tolist() == [latest_texts(style, time) for time in times], style
        assert texts["vqa"].tolist()[:3] == ["", 'what is it?\n{"label": "cup"}', ""]
        assert texts["interjection"].tolist()[2:4] == ["", "faster"]
        assert json.loads(texts["tool_calls"][3]) == [CALL]
        assert json.loads(episode.steps["language_persistent"][0]) == text_rows()
        assert not any(texts["trace"])


def test_edits_keep_the_language_of_each_step(tmp_path):
    """Times of trimmed episodes begin at the first step that stays."""
    path = write_annotated(tmp_path / "raw")
    before = list(rlds.sources.open(path))
    set_plan = Set("steps/language/plan", "just do it", where="index = 1")
    rlds.edit(
        path, Delete(episodes=[0]), Trim(3, 6, where="index = 2"), set_plan, to=tmp_path / "made"
    )
    for old, new, rows in zip(before[1:], rlds.sources.open(tmp_path / "made"), [(0, 5), (3, 6)]):
        assert len(new) == rows[1] - rows[0]
        for style, texts in old.steps["language"].items():
            if style == "plan" and rows == (0, 5):
                texts = np.array(["just do it"] * 5)
            assert new.steps["language"][style].tolist() == texts[slice(*rows)].tolist()
    lines = json.loads(new.steps["language_persistent"][0])
    actual = [(row["style"], round(row["timestamp"], 6)) for row in lines]
    styles = ["task_aug", "task_aug", "plan", "subtask"]
    assert actual == [*((style, 0.0) for style in styles), ("subtask", 0.2), ("memory", 0.2)]


def write_subtasks(path, names=("reach", "grasp")):
    """Writes a dataset of an older LeRobot, which numbers subtasks."""
    table = pa.table({"subtask_index": [0, 1], "subtask": names})

    def change(table):
        rows = np.array(table["frame_index"]) > 2
        return table.append_column("subtask_index", pa.array(rows.astype(np.int64)))

    rewrite(raw.write_v3(path), change)
    pq.write_table(table, path / "meta/subtasks.parquet")
    return path


def test_subtask_numbers_are_read_as_texts(tmp_path):
    path = write_subtasks(tmp_path / "raw")
    rlds.edit(path, Delete(episodes=[1]), to=tmp_path / "made")
    for folder in (path, tmp_path / "made"):
        texts = rlds.sources.open(folder)[0].steps["language"]["subtask"]
        assert texts.tolist() == [["reach", "grasp"][row > 2] for row in range(len(texts))]
    other = write_subtasks(tmp_path / "other", ("lift", "reach"))
    rlds.edit(tmp_path / "made", Merge([other]), Delete(episodes=[3]))
    actual = pq.read_table(tmp_path / "made/meta/subtasks.parquet").to_pylist()
    assert [row["subtask"] for row in actual] == ["reach", "grasp", "lift"]
    for position, episode in enumerate(rlds.sources.open(tmp_path / "made")):
        texts, indices = episode.steps["language"]["subtask"], episode.steps["subtask_index"]
        assert texts.tolist() == [actual[index]["subtask"] for index in indices]  # As LeRobot does.
        assert texts[[0, 3]].tolist() == (["reach", "grasp"] if position < 2 else ["lift", "reach"])
    rlds.edit(path, Merge([other]), Drop("steps/subtask_index"), Drop("steps/language"))
    assert len(rlds.sources.open(path)) == 6


def test_an_unknown_subtask_number_is_an_error(tmp_path):
    path = write_subtasks(tmp_path)
    pq.write_table(pa.table({"subtask_index": [0], "subtask": ["reach"]}), path / SUBTASKS)
    with pytest.raises(SourceError, match=r"row 3, field .*: the dataset has no subtask 1"):
        rlds.sources.open(path)[0]


def add_labels(path):
    labels = rlds.labels.open(path)
    labels.add("subtask", 0, "lift", 1, 3, by="ann", type="text")
    labels.add("subtask", 0, "drop", 3, 5, by="ann")
    labels.add("task_aug", 1, "up\nand away", 0, 4, by="ann", type="text")
    labels.add("slip", 1, True, 2, 3, by="ann")
    return labelled(rlds.sources.open(path))


@pytest.mark.parametrize("write", [write_annotated, write_subtasks, raw.write_v3])
def test_labels_become_a_column_of_language(tmp_path, write):
    """The data came from LeRobot. Texts of other styles are kept."""
    before = add_labels(write(tmp_path / "raw"))
    exported = export(before, "lerobot", tmp_path / "made")
    placements = {placement.field: placement.place for placement in exported.placements}
    assert placements["steps/label/subtask"] == "language_persistent"
    assert placements["steps/label/slip"] == "label.slip"
    assert not (tmp_path / "made/.rlds/columns").exists()
    for old, new in zip(before, rlds.sources.open(tmp_path / "made"), strict=True):
        texts = new.steps["language"]
        assert texts["subtask"].tolist() == old.steps["label"]["subtask"].tolist()
        assert texts["task_aug"].tolist() == old.steps["label"]["task_aug"].tolist()
        for style in {*old.steps.get("language", ())} - {"subtask", "task_aug"}:
            assert texts[style].tolist() == old.steps["language"][style].tolist()
    info = json.loads((tmp_path / "made/meta/info.json").read_text())
    assert info["features"]["language_persistent"]["dtype"] == "language"


def test_labels_of_other_data_become_a_column_of_language(tmp_path):
    export(ClipSource(), "zarr", tmp_path / "raw", allow_loss=True)
    before = add_labels(tmp_path / "raw")
    export(before, "lerobot", tmp_path / "made", fps=30)
    assert pq.read_schema(next((tmp_path / "made/data").rglob("*.parquet"))).field(
        "language_persistent"
    )
    for old, new in zip(before, rlds.sources.open(tmp_path / "made"), strict=True):
        for layer, column in old.steps["label"].items():
            assert np.array_equal(new.steps["label"][layer], column)


_ACTIVE = """
import json, sys
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.datasets.language_render import active_at
dataset = LeRobotDataset("a/b", root=sys.argv[1], video_backend="pyav")
assert dataset.meta.has_language_columns
texts = []
for row in range(len(dataset)):
    frame = dataset[row]
    rows = frame["language_persistent"]
    active = active_at(float(frame["timestamp"]), persistent=rows, style="subtask")
    texts.append((active or {}).get("content") or "")
print()
print(json.dumps(texts))
"""


@pytest.mark.slow
def test_lerobot_reads_the_same_subtasks(tmp_path):
    path = write_annotated(tmp_path / "raw")
    export(add_labels(path), "lerobot", tmp_path / "labelled")
    rlds.edit(path, Trim(3, 6, where="index = 2"), to=tmp_path / "cut")
    export(ClipSource(), "zarr", tmp_path / "zarr", allow_loss=True)
    export(add_labels(tmp_path / "zarr"), "lerobot", tmp_path / "other", fps=30)
    for folder in (path, *(tmp_path / name for name in ("labelled", "cut", "other"))):
        episodes = Episodes(LeRobotSource(folder))
        texts = [episode.steps["language"]["subtask"] for episode in episodes]
        actual = foreign_readers.run("lerobot", _ACTIVE, folder)
        assert actual == np.concatenate(texts).tolist()
