"""The datasets at given paths, and the number of open files."""

import io
import os
import urllib.parse

import dm_env
import numpy as np
import pytest
from PIL import Image

import rlds
import rlds.labels
from envlogger import RiegeliBackendWriter, StepData
from envlogger.errors import EnvLoggerError
from rlds import sources
from rlds.editing import Delete, Split
from rlds.sources.episode_table import store_audit
from rlds_creator.viewing import Catalog
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.labels import LabelValue
from tests.support import tiny_datasets


def write_log(path, index=0):
    writer = RiegeliBackendWriter(path, sync=False)
    writer.record_step(StepData(dm_env.restart(np.int64(index)), None), True)
    writer.close()


def formats(*paths, **options):
    datasets = Catalog(paths, **options).datasets()["datasets"]
    return {dataset["name"]: dataset["format"] for dataset in datasets}


def test_a_catalog_finds_the_datasets_at_its_paths(tmp_path):
    for name in ("recordings/a", "recordings/b", "other/deep/c"):
        write_log(tmp_path / name)
    tiny_datasets.write_dataset(tmp_path / "tfds" / "1.0.0", [tiny_datasets.episode(3)])
    assert formats(tmp_path) == {"recordings": "envlogger", "c": "envlogger", "tfds/1.0.0": "tfds"}
    assert formats(tmp_path / "recordings") == {"recordings": "envlogger"}
    assert formats(tmp_path / "recordings" / "a") == {"a": "envlogger"}
    assert formats(tmp_path / "other", tmp_path / "tfds", tmp_path / "other") == {
        "c": "envlogger",
        "tfds/1.0.0": "tfds",
    }
    assert formats(tmp_path / "tfds", format="tfds") == {"tfds": "tfds"}
    with pytest.raises(FileNotFoundError):
        Catalog([tmp_path / "nothing"])
    with pytest.raises(sources.SourceError, match="unknown format"):
        Catalog([tmp_path / "tfds" / "1.0.0" / "features.json"])


def write_and_edit(path, format):
    """Yields the path of three episodes, then of the same data without the first one."""
    writer = RiegeliBackendWriter(path, sync=False)
    for index in range(3):
        writer.record_step(StepData(dm_env.restart(np.int64(index)), np.int64(0)), True)
        writer.record_step(StepData(dm_env.termination(1.0, np.int64(index)), np.int64(0)), False)
    writer.close()
    if format != "envlogger":
        log, path = path, path.with_name(f"data.{format}")
        sources.export(log, format, path, allow_loss=True)
    yield path
    rlds.edit(path, Delete(episodes=[0]))
    yield path


def count_episodes(catalog, dataset, split, where):
    """Returns the number of episodes that match a condition, after the table is computed."""
    while "making" in (listing := catalog.listing(dataset, split, where=where)):
        pass
    return len(listing["episodes"])


@pytest.mark.parametrize("format", ["envlogger", "zarr", "tfds"])
def test_catalog_reopens_the_dataset_after_an_edit_in_place(tmp_path, format):
    edit = write_and_edit(tmp_path / "log", format)
    catalog = Catalog([next(edit)])
    [dataset] = catalog.datasets()["datasets"]
    split = dataset["splits"][0]["name"]
    view = catalog.view(dataset["id"], split, 1)
    assert view.step(0)["values"]["observation"] == 1
    assert count_episodes(catalog, dataset["id"], split, "steps > 1") == 3
    old_id = urllib.parse.unquote(view.base_url).split("/")[3]
    old_labels = catalog.labels(old_id, split, 1, "ann")
    path = next(edit)

    # An old page shows the old episode or an error, and cannot label the new one.
    assert view.step(0)["values"]["observation"] == 1
    label = LabelValue(layer="slip", type="flag", value=True)
    with pytest.raises(sources.SourceChangedError):
        old_labels.add(label)
    for ask in (
        catalog.view,
        catalog.find_neighbours,
        lambda *address: catalog.labels(*address, "ann"),
    ):
        with pytest.raises(sources.SourceChangedError, match="reload the page"):
            ask(old_id, split, 1)
    assert not rlds.labels.open(path).rows()

    # A new page shows the new data.
    [reopened] = catalog.datasets()["datasets"]
    assert reopened == {**dataset, "splits": [{"name": split, "episodes": 2}]}
    assert catalog.listing(dataset["id"], split)["total"] == 2
    assert count_episodes(catalog, dataset["id"], split, "steps > 1") == 2
    view = catalog.view(dataset["id"], split, 1)
    assert view.step(0)["values"]["observation"] == 2
    new_id = urllib.parse.unquote(view.base_url).split("/")[3]
    catalog.labels(new_id, split, 1, "ann").add(label)
    [label] = rlds.labels.open(path).rows()
    assert label.episode == rlds.labels.open(path).digest(1)


def test_options_of_the_format_hold_before_and_after_an_edit(tmp_path):
    edit = write_and_edit(tmp_path / "log", "envlogger")
    with pytest.raises(TypeError, match="nothing"):
        Catalog([next(edit)], options={"nothing": 1})
    catalog = Catalog([tmp_path / "log"], options={"leave_out": ["reward"]})
    [dataset] = catalog.datasets()["datasets"]
    assert "reward" not in catalog.view(dataset["id"], "train", 0).step(0)["values"]
    next(edit)
    [reopened] = catalog.datasets()["datasets"]
    assert reopened == {**dataset, "splits": [{"name": "train", "episodes": 2}]}
    assert "reward" not in catalog.view(dataset["id"], "train", 0).step(0)["values"]


@pytest.mark.parametrize("format", ["envlogger", "zarr"])
@pytest.mark.parametrize(
    "options",
    [{"split": "train[1:]"}, {"where": "index > 0"}, {"split": "all", "where": "index>0"}],
)
def test_selected_episodes_have_their_stored_numbers(tmp_path, format, options):
    catalog = Catalog([next(write_and_edit(tmp_path / "log", format))], **options)
    [dataset] = catalog.datasets()["datasets"]
    address = dataset["id"], "train"
    assert dataset["splits"] == [{"name": "train", "episodes": 2}]
    rows = catalog.listing(*address)["episodes"]
    assert [(row["index"], row["number"]) for row in rows] == [(0, 1), (1, 2)]
    view = catalog.view(*address, 1)
    assert view.step(0)["values"]["observation"] == 2
    assert view.title.endswith(", train 2")
    assert catalog.page_of(2).endswith("/train/1")
    with pytest.raises(IndexError, match="no episode 0"):
        catalog.page_of(0)


def test_only_the_selected_split_is_shown(tmp_path):
    path = next(write_and_edit(tmp_path / "log", "tfds"))
    splits = Split({"train": "index = 0", "test": None})
    rlds.edit(path, splits, to=tmp_path / "two")
    catalog = Catalog([tmp_path / "two"], split="test")
    [dataset] = catalog.datasets()["datasets"]
    assert dataset["splits"] == [{"name": "test", "episodes": 2}]
    assert catalog.page_of(0).endswith("/test/0")
    with pytest.raises(KeyError, match="no split"):
        catalog.listing(dataset["id"], "train")
    with pytest.raises(KeyError, match="nothing"):
        Catalog([tmp_path / "two"], split="nothing")


def write_episodes(path):
    """Writes three episodes: a failure, a success, and one without metadata."""
    all_metadata = [{"success": False, "task": "open"}, {"success": True, "task": "shut"}, {}]
    writer = RiegeliBackendWriter(path, sync=False, metadata={"fps": 2})
    for index, metadata in enumerate(all_metadata):
        for step in range(index + 2):
            picture = np.full((40, 80, 3), 60 * step, np.uint8)
            is_last = step == index + 1
            make = dm_env.termination if is_last else dm_env.transition
            timestep = make(float(index), picture) if step else dm_env.restart(picture)
            writer.record_step(StepData(timestep, np.int64(step)), step == 0)
        writer.set_episode_metadata(metadata)
    writer.close()


def sort_indices(path, sort, where=""):
    """Returns the sorted indices of episodes, after the table is computed."""
    catalog = Catalog([path])
    address = catalog.datasets()["datasets"][0]["id"], "train"
    while "making" in (listing := catalog.listing(*address, sort=sort, where=where)):
        pass
    return [row["index"] for row in listing["episodes"]]


def test_episodes_are_sorted_by_the_scores_of_an_audit(tmp_path):
    write_episodes(tmp_path / "log")
    sources.open(tmp_path / "log").table()
    catalog = Catalog([tmp_path / "log"])
    address = catalog.datasets()["datasets"][0]["id"], "train"
    assert not [c for c in catalog.columns(*address)["columns"] if c["name"].startswith("audit.")]
    store_audit(
        sources.open(tmp_path / "log").source,
        "train",
        range(3),
        [[], ["short"], []],
        {"steadiness": np.array([0.5, 2.0, np.nan])},
        [],
    )
    assert sort_indices(tmp_path / "log", "-audit.steadiness") == [1, 0, 2]
    assert sort_indices(tmp_path / "log", "index", "list_contains(audit.findings, 'short')") == [1]
    catalog = Catalog([tmp_path / "log"])
    address = catalog.datasets()["datasets"][0]["id"], "train"
    rows = catalog.listing(*address, columns=["audit.steadiness"])["episodes"]
    assert [row["values"]["audit.steadiness"] for row in rows] == [0.5, 2.0, None]


@pytest.mark.parametrize("has_table", [False, True])
@pytest.mark.parametrize("where", [None, "index > 0"])
def test_scores_of_a_new_audit_are_shown_with_ranks(tmp_path, has_table, where):
    write_episodes(tmp_path / "log")
    if has_table:
        sources.open(tmp_path / "log").table()
    catalog = Catalog([tmp_path / "log"], where=where)
    address = catalog.datasets()["datasets"][0]["id"], "train"
    names = ["steps", "audit.steadiness", "audit.steadiness_rank"]
    for scores in (None, np.array([0.5, 2.0, np.nan]), np.array([0.5, 1.0, 7.0])):
        if scores is not None:
            columns = {"steadiness": scores, "steadiness_rank": scores / 8}
            source = sources.open(tmp_path / "log").source
            assert store_audit(source, "train", range(3), [[]] * 3, columns, [])
        while not (listing := catalog.listing(*address, columns=names))["is_complete"]:
            pass
        for row in listing["episodes"]:
            score = None if scores is None else scores[row["number"]]
            score = None if score is None or np.isnan(score) else score
            rank = None if score is None else score / 8
            assert [*row["values"].values()][1:] == ([] if scores is None else [score, rank])
            assert row["ranks"] == ({} if scores is None else dict.fromkeys(names[1:], rank))
        if scores is not None:
            order = np.argsort(-np.nan_to_num(scores, nan=-1))
            while "making" in (listing := catalog.listing(*address, sort="-audit.steadiness")):
                pass
            indices = [row["number"] for row in listing["episodes"]]
            assert indices == [n for n in order if where is None or n > 0]


@pytest.mark.parametrize("has_table", [False, True])
def test_episodes_are_listed_with_values_and_labels(tmp_path, has_table):
    write_episodes(tmp_path / "log")
    labels = rlds.labels.open(tmp_path / "log")
    assert sort_indices(tmp_path / "log", "-labels") == [0, 1, 2]
    labels.declare(rlds.labels.Layer(name="quality", type="choice", title="Quality!"))
    labels.add("quality", 1, "good", by="ann")
    labels.add("quality", 2, "good", by="ann")
    labels.add("quality", 2, "bad", by="bob")
    if has_table:
        sources.open(tmp_path / "log").table()
    catalog = Catalog([tmp_path / "log"])
    address = catalog.datasets()["datasets"][0]["id"], "train"
    while not (listing := catalog.listing(*address))["is_complete"]:
        pass
    assert listing["columns"] == ["steps", "duration", "return", "success", "instruction"]
    rows = listing["episodes"]
    assert [[*row["values"].values()] for row in rows] == [
        [2, 1.0, 0.0, False, "open"],
        [3, 1.5, 2.0, True, "shut"],
        [4, 2.0, 6.0, None, None],
    ]
    assert [row["labels"] for row in rows] == [
        [],
        [{"layer": "quality", "value": "good", "disagree": False}],
        [{"layer": "quality", "value": None, "disagree": True}],
    ]
    description = catalog.columns(*address)
    assert description["layers"] == {"quality": "Quality!"}
    columns = {column.pop("name"): column for column in description["columns"]}
    assert columns["steps"] == {"title": "steps", "kind": "number", "examples": [2, 4]}
    assert columns["task"]["examples"] == ["open", "shut"]
    assert columns["reward.max"]["kind"] == "number"
    assert columns["label.quality"]["kind"] == "text"
    # Each name is valid as a column and in conditions.
    names = [*columns]
    page = catalog.listing(*address, columns=names, limit=1)
    assert page["columns"] == names
    for name in names:
        assert (
            "making" in (r := catalog.listing(*address, where=f"{name} is null")) or r["total"] < 4
        )

    assert sort_indices(tmp_path / "log", "-return") == [2, 1, 0]
    assert sort_indices(tmp_path / "log", "success") == [
        0,
        1,
        2,
    ]  # Unknown values are last in both directions.
    assert sort_indices(tmp_path / "log", "-success") == [1, 0, 2]
    assert sort_indices(tmp_path / "log", "-return", "steps < 4") == [1, 0]
    assert sort_indices(tmp_path / "log", "label.quality") == [1, 0, 2]
    assert sort_indices(tmp_path / "log", "labels") == [
        1,
        2,
        0,
    ]  # A disagreement comes after values, no label at all last.
    assert sort_indices(tmp_path / "log", "-labels") == [2, 1, 0]
    neighbours = catalog.find_neighbours(*address, 1, sort="-success")
    assert (neighbours["previous"], neighbours["place"]) == (None, 0)
    assert neighbours["next"] == f"/datasets/{address[0]}/train/0?sort=-success"
    with pytest.raises(KeyError, match="no column nothing"):
        catalog.listing(*address, sort="nothing")


def test_film_has_pictures_from_start_to_end(tmp_path):
    write_episodes(tmp_path / "log")
    catalog = Catalog([tmp_path / "log"])
    address = catalog.datasets()["datasets"][0]["id"], "train"
    data, kind = catalog.thumbnail(*address, 2, 3)
    assert kind == "image/png"
    film = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert film.shape == (72, 3 * 144, 3)
    assert [film[36, 144 * frame + 72, 0] for frame in range(3)] == [0, 120, 180]
    assert catalog.thumbnail(*address, 2) != (data, kind)


@pytest.mark.parametrize("format", ["envlogger", "tfds"])
def test_thumbnails_show_the_new_data_after_an_edit_in_place(tmp_path, format):
    path = tmp_path / "log"
    write_episodes(path)
    if format != "envlogger":
        sources.export(path, format, tmp_path / "data", allow_loss=True)
        path = tmp_path / "data"
    catalog = Catalog([path])
    dataset = catalog.datasets()["datasets"][0]["id"]
    split = catalog.datasets()["datasets"][0]["splits"][0]["name"]

    def shade(identifier, frames=1):
        image = Image.open(io.BytesIO(catalog.thumbnail(identifier, split, 0, frames)[0])).convert(
            "RGB"
        )
        return image.getpixel((image.width - 1, 20))[0]

    old_id = catalog.listing(dataset, split)["id"]
    assert [shade(old_id), shade(old_id, 2)] == [60, 60]  # Of two steps.
    rlds.edit(path, Delete(episodes=[0, 1]))
    new_id = catalog.listing(dataset, split)["id"]
    assert new_id != old_id  # Browsers request the thumbnail again.
    assert [shade(new_id), shade(new_id, 2)] == [120, 180]  # Of four steps.
    with pytest.raises(sources.SourceChangedError, match="reload the page"):
        shade(old_id)


def test_many_logs_do_not_stay_open(tmp_path):
    for index in range(40):
        write_log(tmp_path / f"{index:02}", index)
    catalog = Catalog([tmp_path])
    [dataset] = catalog.datasets()["datasets"]
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert len(catalog.listing(dataset["id"], "train")["episodes"]) == 40
    for index in range(40):
        view = catalog.view(dataset["id"], "train", index)
        assert view.step(0)["values"]["observation"] == index
    after = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert after - before <= 2 * 34


def test_damaged_log_does_not_hide_other_logs(tmp_path):
    for index in range(3):
        write_log(tmp_path / str(index), index)
    metadata = tmp_path / "1" / "metadata.riegeli"
    metadata.write_bytes(metadata.read_bytes()[:20])
    for shard in (tmp_path / "1").glob("*/"):
        for file in shard.iterdir():
            file.unlink()
        shard.rmdir()
    catalog = Catalog([tmp_path])
    [dataset] = catalog.datasets()["datasets"]
    assert "1 of 3 logs cannot be read" in dataset["description"]
    values = [catalog.view(dataset["id"], "train", i).step(0)["values"] for i in range(2)]
    assert [value["observation"] for value in values] == [0, 2]
    with pytest.raises(EnvLoggerError):
        Catalog([tmp_path / "1"])


def test_cache_keeps_the_values_used_last():
    cache, computed = Cache(900), []

    def ask(key, size):
        return cache.get(key, lambda: computed.append(key) or bytes(size))

    for key in "abcab":
        assert len(ask(key, 200)) == 200
    assert computed == ["a", "b", "c"]
    ask("d", 200)  # There is no room for "c" any more.
    ask("a", 200)
    ask("c", 200)
    assert computed == ["a", "b", "c", "d", "c"]
    ask("large", 600)
    ask("large", 600)
    assert computed[-2:] == ["large", "large"]
    assert cache.num_bytes <= 900
