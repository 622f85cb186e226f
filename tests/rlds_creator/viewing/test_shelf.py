"""Which datasets there are at the paths that are given, and how many files stay open."""

import os
import urllib.parse

import dm_env
import numpy as np
import pytest

import rlds
import rlds.labels
from envlogger.backends.riegeli_backend_writer import RiegeliBackendWriter
from envlogger.errors import EnvLoggerError
from envlogger.step_data import StepData
from rlds import sources
from rlds.editing import Delete
from rlds_creator.viewing import Shelf
from rlds_creator.viewing.cache import Cache
from rlds_creator.viewing.labels import Said
from tests.support import tiny_datasets


def write_log(path, number=0):
    writer = RiegeliBackendWriter(path, sync=False)
    writer.record_step(StepData(dm_env.restart(np.int64(number)), None), True)
    writer.close()


def found(*paths, **options):
    datasets = Shelf(paths, **options).datasets()["datasets"]
    return {dataset["name"]: dataset["format"] for dataset in datasets}


def test_what_is_at_paths(tmp_path):
    for name in ("recordings/a", "recordings/b", "other/deep/c"):
        write_log(tmp_path / name)
    tiny_datasets.write_dataset(tmp_path / "tfds" / "1.0.0", [tiny_datasets.episode(3)])
    assert found(tmp_path) == {"recordings": "envlogger", "c": "envlogger", "tfds/1.0.0": "tfds"}
    assert found(tmp_path / "recordings") == {"recordings": "envlogger"}
    assert found(tmp_path / "recordings" / "a") == {"a": "envlogger"}
    assert found(tmp_path / "other", tmp_path / "tfds", tmp_path / "other") == {
        "c": "envlogger",
        "tfds/1.0.0": "tfds",
    }
    assert found(tmp_path / "tfds", format="tfds") == {"tfds": "tfds"}
    with pytest.raises(FileNotFoundError):
        Shelf([tmp_path / "nothing"])
    with pytest.raises(sources.SourceError, match="no known format"):
        Shelf([tmp_path / "tfds" / "1.0.0" / "features.json"])


def edited_data(path, format):
    """Three episodes with their number as the observation, and the same without the first one."""
    writer = RiegeliBackendWriter(path, sync=False)
    for number in range(3):
        writer.record_step(StepData(dm_env.restart(np.int64(number)), np.int64(0)), True)
        writer.record_step(StepData(dm_env.termination(1.0, np.int64(number)), np.int64(0)), False)
    writer.close()
    if format != "envlogger":
        log, path = path, path.with_name(f"data.{format}")
        sources.export(log, format, path, allow_loss=True)
    yield path
    rlds.edit(path, Delete(episodes=[0]))
    yield path


@pytest.mark.parametrize("format", ["envlogger", "zarr", "tfds"])
def test_after_an_edit_in_place_a_shelf_opens_the_dataset_again(tmp_path, format):
    edit = edited_data(tmp_path / "log", format)
    shelf = Shelf([next(edit)])
    [dataset] = shelf.datasets()["datasets"]
    split = dataset["splits"][0]["name"]
    shown = shelf.view(dataset["id"], split, 1)
    assert shown.step(0)["values"]["observation"] == 1
    assert len(shelf.listing(dataset["id"], split, where="steps > 1")["episodes"]) == 3
    old = urllib.parse.unquote(shown.base).split("/")[3]
    old_labels = shelf.labels(old, split, 1, "ann")
    path = next(edit)

    # A page of before keeps to the old episode, or gets an error; nothing is labelled by it.
    assert shown.step(0)["values"]["observation"] == 1
    said = Said(layer="slip", type="flag", value=True)
    with pytest.raises(sources.SourceChangedError):
        old_labels.add(said)
    for ask in (shelf.view, shelf.beside, lambda *place: shelf.labels(*place, "ann")):
        with pytest.raises(sources.SourceChangedError, match="reload the page"):
            ask(old, split, 1)
    assert not rlds.labels.open(path).rows()

    # A page that is loaded now shows what is there now.
    [found] = shelf.datasets()["datasets"]
    assert found == {**dataset, "splits": [{"name": split, "episodes": 2}]}
    assert shelf.listing(dataset["id"], split)["total"] == 2
    assert len(shelf.listing(dataset["id"], split, where="steps > 1")["episodes"]) == 2
    shown = shelf.view(dataset["id"], split, 1)
    assert shown.step(0)["values"]["observation"] == 2
    now = urllib.parse.unquote(shown.base).split("/")[3]
    shelf.labels(now, split, 1, "ann").add(said)
    [label] = rlds.labels.open(path).rows()
    assert label.episode == rlds.labels.open(path).digest(1)


def test_many_logs_do_not_stay_open(tmp_path):
    for number in range(40):
        write_log(tmp_path / f"{number:02}", number)
    shelf = Shelf([tmp_path])
    [dataset] = shelf.datasets()["datasets"]
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert len(shelf.listing(dataset["id"], "train")["episodes"]) == 40
    for index in range(40):
        view = shelf.view(dataset["id"], "train", index)
        assert view.step(0)["values"]["observation"] == index
    after = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    assert after - before <= 2 * 34


def test_a_damaged_log_does_not_hide_the_others(tmp_path):
    for number in range(3):
        write_log(tmp_path / str(number), number)
    metadata = tmp_path / "1" / "metadata.riegeli"
    metadata.write_bytes(metadata.read_bytes()[:20])
    for shard in (tmp_path / "1").glob("*/"):
        for file in shard.iterdir():
            file.unlink()
        shard.rmdir()
    shelf = Shelf([tmp_path])
    [dataset] = shelf.datasets()["datasets"]
    assert "1 of 3 logs cannot be read" in dataset["description"]
    values = [shelf.view(dataset["id"], "train", i).step(0)["values"] for i in range(2)]
    assert [value["observation"] for value in values] == [0, 2]
    with pytest.raises(EnvLoggerError):
        Shelf([tmp_path / "1"])


def test_a_cache_keeps_what_was_asked_for_last():
    cache, made = Cache(900), []

    def ask(key, size):
        return cache.get(key, lambda: made.append(key) or bytes(size))

    for key in "abcab":
        assert len(ask(key, 200)) == 200
    assert made == ["a", "b", "c"]
    ask("d", 200)  # There is no room for "c" any more.
    ask("a", 200)
    ask("c", 200)
    assert made == ["a", "b", "c", "d", "c"]
    ask("large", 600)
    ask("large", 600)
    assert made[-2:] == ["large", "large"]
    assert cache.num_bytes <= 900
