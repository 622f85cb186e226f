import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import raw_npz

import rlds.labels
import rlds.sources
from rlds import editing
from rlds.labels import Layer
from rlds.labels.agreements import alpha_of
from rlds.sources import SourceError, label_copying
from rlds_ecosystem.model.errors import StorageError
from tests.support import tiny_datasets


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def dataset(tmp_path):
    """Five episodes of 3, 4, … steps."""
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(5):
        steps = index + 3
        np.savez(
            folder / f"{index}.npz",
            observation=rng.random((steps, 2)),
            action=rng.random((steps, 1)),
            reward=np.full(steps, index, np.float32),
        )
    return folder


def read_files(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and ".rlds" not in path.parts]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def add_labels(folder):
    labels = rlds.labels.open(folder)
    labels.add("quality", 0, "good", by="ann")
    labels.add("quality", 0, "good", by="bob")
    labels.add("quality", 1, "good", by="ann")
    labels.add("quality", 1, "bad", by="bob")
    labels.add("slip", 2, True, 1, 3, by="ann")
    labels.add("score", 2, 4, by="ann")
    return labels


def test_latest_label_applies_and_data_stays_unchanged(dataset):
    before = read_files(dataset)
    labels = add_labels(dataset)
    assert labels.layers() == {"quality": "choice", "score": "number", "slip": "flag"}
    labels.add("quality", 1, "good", by="bob")
    assert [(row.annotator, row.value) for row in labels.of_episode(1)] == [
        ("ann", "good"),
        ("bob", "good"),
    ]
    labels.retract("quality", 1, by="ann")
    reopened = rlds.labels.open(dataset)
    assert [(row.annotator, row.value) for row in reopened.of_episode(1)] == [("bob", "good")]
    labels.add("quality", 1, "poor", by="ann")
    assert {row.value for row in reopened.of_episode(1)} == {"good", "poor"}  # Seen at once.
    lines = (dataset / ".rlds" / "labels" / "quality.jsonl").read_text().splitlines()
    assert len(lines) == 7
    assert json.loads(lines[5])["retracts"] == json.loads(lines[2])["id"]
    assert read_files(dataset) == before
    assert len(rlds.sources.open(dataset)) == 5


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("quality", 0, True), {}, ValueError, "value: got True, expected a choice"),
        (("Quality", 0, "good"), {}, ValueError, "layer: got 'Quality'"),
        (("../x", 0, "good"), {}, ValueError, "layer: got '../x'"),
        (("quality", 9, "good"), {}, IndexError, "out of range"),
        (("quality", 0, "good", 1, 4), {}, ValueError, "episode .* has 3 steps"),
        (("quality", 0, "good", 2, 2), {}, ValueError, "end: got 2"),
        (("quality", 0, "good", 2), {}, ValueError, "end: got None"),
        (("quality", 0, "good"), {"type": "text"}, ValueError, "type choice"),
        (("score", 0, float("nan")), {}, ValueError, "value: got nan"),
    ],
)
def test_invalid_labels_are_refused(dataset, arguments, options, error, message):
    labels = add_labels(dataset)
    before = list(labels)
    with pytest.raises(error, match=message):
        labels.add(*arguments, by="ann", **options)
    with pytest.raises(KeyError, match="no label slip 0:2 by ann"):
        labels.retract("slip", 2, 0, 2, by="ann")
    assert list(labels) == before


def test_queries_use_current_labels_without_reading_episodes_again(dataset):
    episodes = rlds.sources.open(dataset)
    table = episodes.table()
    with pytest.raises(ValueError, match="label"):
        table.where("label.quality = 'good'")
    modified = (dataset / ".rlds" / "episodes-train.parquet").stat().st_mtime_ns
    labels = add_labels(dataset)

    def where(condition):
        return table.where(condition).tolist()

    assert where("label.quality = 'good' and steps < 9") == [0]
    assert where('label."quality.disagree"') == [1]
    assert where('label."quality.n" = 2') == [0, 1]
    assert where('label."slip.n" > 0 or label.score > 5') == [2]
    assert where('label."score.n" = 0') == [0, 1, 3, 4]
    assert where("label.quality is null") == [1, 2, 3, 4]
    labels.add("quality", 1, "good", by="bob")
    assert where("label.quality = 'good'") == [0, 1]
    rows = table.arrow(["index", "label"]).to_pylist()
    assert rows[2]["label"]["score"] == 4.0
    assert list(rows[2]) == ["index", "label"]
    assert table.columns["label"].startswith("struct<quality: string, quality.n: int32")
    chosen = rlds.sources.open(dataset, where="label.quality = 'good'").select([1])
    assert [row["label"]["quality.n"] for row in chosen.table().arrow().to_pylist()] == [2]
    assert (dataset / ".rlds" / "episodes-train.parquet").stat().st_mtime_ns == modified


@pytest.mark.parametrize(("format", "name"), [("zarr", "made"), ("robomimic", "made.hdf5")])
def test_labels_survive_edits_merges_and_conversions(dataset, tmp_path, format, name):
    before = [(row.layer, row.value, row.id) for row in add_labels(dataset)]
    other = tmp_path / "other.npz"
    np.savez(other, observation=np.ones((4, 2)), action=np.ones((4, 1)), reward=np.ones(4, "f4"))
    rlds.labels.open(other).add("quality", 0, "fair", by="ann")
    assert not list(tmp_path.glob(".rlds"))
    output = tmp_path / name
    rlds.sources.export(rlds.sources.open(dataset), format, output)
    assert [(row.layer, row.value, row.id) for row in rlds.labels.open(output)] == before
    rlds.edit(output, editing.Delete(where="label.quality = 'good'"))
    assert [row.value for row in rlds.labels.open(output)] == ["good", "bad", 4.0, True]
    merged = tmp_path / "merged"
    operations = editing.Merge([str(other)]), editing.Set("reward", 0.0, where="steps = 99")
    rlds.edit(dataset, *operations, to=merged, to_format="mcap")
    labels = rlds.labels.open(merged)
    assert [row.value for row in labels.of_episode(5)] == ["fair"]
    assert len(list(labels)) == len(before) + 1


def values_by_episode(labels):
    return [
        [
            (row.layer, row.value, row.begin, row.end, row.annotator)
            for row in labels.of_episode(index)
        ]
        for index in range(len(labels.digests))
    ]


@pytest.mark.parametrize(("format", "name"), [("zarr", "made"), ("robomimic", "made.hdf5")])
def test_labels_are_carried_to_changed_episodes(dataset, tmp_path, format, name):
    np.savez(dataset / "5.npz", **np.load(dataset / "2.npz"))  # The same steps twice.
    labels = add_labels(dataset)
    labels.add("slip", 2, True, 0, 2, by="bob")
    labels.add("slip", 2, True, 4, 5, by="bob")
    labels.add("score", 3, 1, by="ann")
    labels.retract("score", 3, by="ann")
    labels.add("score", 3, 2, by="bob")
    rlds.sources.export(dataset, format, tmp_path / name)
    output = rlds.labels.open(tmp_path / name)
    before = values_by_episode(labels)
    assert values_by_episode(output) == before
    assert before[2] == before[5]
    rlds.edit(tmp_path / name, editing.Trim(2, 4, where="index in (2, 3)"))
    output = rlds.labels.open(tmp_path / name)
    after = values_by_episode(output)
    assert after[:2] + after[4:] == before[:2] + before[4:]
    assert after[2] == [("score", 4.0, None, None, "ann"), ("slip", True, 0, 1, "ann")]
    assert after[3] == [("score", 2.0, None, None, "bob")]
    old, new = labels.of_episode(2)[0], output.of_episode(2)[0]
    assert (new.at, new.tool) == (old.at, f"carried from {old.id}")
    first_copy = tmp_path / f"again-{name}"
    for target in (first_copy, tmp_path / f"third-{name}"):
        rename = editing.Rename("observation", "state"), editing.Keep("index in (1, 2, 3)")
        rlds.edit(tmp_path / name, *rename, to=target, allow_loss=True)
        assert values_by_episode(rlds.labels.open(target)) == after[1:4]
    ids = [[row.id for row in rlds.labels.open(path)] for path in (first_copy, target)]
    assert ids[0] == ids[1]  # A merge keeps each label once.


def test_only_changed_episodes_with_labels_are_read_to_carry_labels(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 255, (2, 4, 8, 8, 3), np.uint8)
    for index, image in enumerate(images):
        np.savez(folder / f"{index}.npz", observation=image, action=np.ones((4, 1)))
    rlds.sources.export(folder, "tfds", tmp_path / "first")
    assert [path.name for path in tmp_path.rglob(".rlds/*")] == ["lineage.json"]
    assert not (tmp_path / "cache").exists()
    labels = rlds.labels.open(folder)
    labels.add("slip", 1, True, 1, 3, by="ann")
    rlds.sources.export(folder, "tfds", tmp_path / "made")  # As PNG.
    output = rlds.labels.open(tmp_path / "made")
    assert values_by_episode(output) == values_by_episode(labels)
    assert output.digests[1] != labels.digests[1]
    digested: list[object] = []  # Episodes copied as stored are not read for labels.
    monkeypatch.setattr(label_copying, "digest_of", digested.append)
    rlds.edit(tmp_path / "made", editing.Delete(episodes=[0]))
    assert values_by_episode(rlds.labels.open(tmp_path / "made")) == values_by_episode(labels)[1:]
    assert digested == []


def test_declared_layers_stay_with_the_data(dataset, tmp_path):
    labels = add_labels(dataset)
    assert not labels.declared_layers()
    layers = {layer.name: (layer.type, layer.choices, layer.whole) for layer in labels.all_layers()}
    assert layers["quality"] == ("choice", ("good", "bad"), True)
    assert layers["slip"] == ("flag", (), False)
    phase = Layer(name="phase", type="choice", choices=("reach", "grasp"), keys=("KeyR", "KeyG"))
    labels.declare(phase)
    labels.declare(Layer(name="quality", type="choice", choices=("good", "bad", "odd"), doc="How?"))
    assert labels.layers()["phase"] == "choice"
    table = rlds.sources.open(dataset).table()
    assert table.where('label."phase.n" = 0 and label.phase is null').tolist() == [0, 1, 2, 3, 4]
    assert table.where("list_contains(label.\"quality.by\", 'bob')").tolist() == [0, 1]
    with pytest.raises(ValueError, match="labels of type choice"):
        labels.declare(Layer(name="quality", type="text"))
    with pytest.raises(ValueError, match="has the type choice"):
        labels.add("phase", 0, 1.0, type="number", by="ann")
    for arguments in (
        {"name": "Phase", "type": "flag"},
        {"name": "phase", "type": "colour"},
        {"name": "phase", "type": "flag", "choices": ("a",)},
        {"name": "phase", "type": "choice", "choices": ("a", "a")},
    ):
        with pytest.raises(ValueError, match=r"got .*, expected"):
            Layer(**arguments)
    rlds.sources.export(rlds.sources.open(dataset), "zarr", tmp_path / "copy")
    assert rlds.labels.open(tmp_path / "copy").declared_layers() == labels.declared_layers()
    labels.add("quality", 0, "bad", by="ann")
    [old] = [row for row in labels.history(0) if (row.value, row.annotator) == ("good", "ann")]
    assert old.id not in {row.id for row in labels.of_episode(0)}
    file = dataset / ".rlds" / "labels" / "layers.json"
    for damaged in ("{", "[1]", '[{"name": "x"}]', "[" * 100_000):
        file.write_text(damaged)
        with pytest.raises(SourceError, match="not a list of label layers"):
            labels.layers()


def test_an_episode_is_labelled_without_a_table(dataset):
    labels = rlds.labels.open(dataset)
    labels.add("quality", 3, "good", by="ann")
    assert [row.value for row in labels.of_episode(3)] == ["good"]
    assert labels.of_episode(2) == []
    assert not list(dataset.glob(".rlds/*.parquet"))
    assert labels.digest(3) == rlds.labels.open(dataset).digests[3]
    with pytest.raises(IndexError):
        labels.add("quality", 5, "good", by="ann")


def test_labels_are_readable_as_fields(dataset):
    labels = add_labels(dataset)
    labels.add("slip", 2, True, 2, 4, by="bob")
    labels.add("slip", 2, False, 0, 1, by="bob")
    labels.add("phase", 2, "reach", 0, 2, by="ann")
    episodes = rlds.labels.labelled(rlds.sources.open(dataset))
    episode = episodes[2]
    assert dict(episode.metadata["label"].items()) == {
        "quality": "",
        "score": 4.0,
    }
    assert episodes[1].metadata["label"]["quality"] == ""  # The annotators disagree.
    assert episodes[0].metadata["label"]["quality"] == "good"
    assert np.isnan(episodes[0].metadata["label"]["score"])
    columns = episodes.columns(2, ["label"])["label"]
    assert columns["slip"].tolist() == [False, True, True, True, False]
    assert columns["slip_known"].tolist() == [True, True, True, True, False]
    assert columns["phase"].tolist() == ["reach", "reach", "", "", ""]
    segment = episodes.columns(2, ["label/slip"], start=1, stop=3)
    assert segment["label"]["slip"].tolist() == [True, True]
    assert episodes.columns(0, ["label"])["label"]["slip_known"].tolist() == [False] * 3
    labels.add("slip", 2, False, 2, 3, by="bob")
    changed = rlds.labels.labelled(rlds.sources.open(dataset).select([2]), ["slip"])
    columns = changed.columns(0)["label"]
    assert list(columns) == ["slip", "slip_known"]
    assert columns["slip_known"].tolist() == [True, True, False, True, False]
    assert changed.where('label."slip.n" = 2')[0].num_steps == 5
    with pytest.raises(KeyError, match="did you mean 'slip'"):
        rlds.labels.labelled(episodes, ["slipp"])


def test_labels_of_a_file_or_unwritable_folder_are_in_the_cache(dataset, tmp_path):
    file = dataset / "0.npz"
    rlds.labels.open(file).add("quality", 0, "good", by="ann")
    assert not (dataset / ".rlds").exists()
    assert list((tmp_path / "cache" / "labels").rglob("quality.jsonl"))
    assert rlds.sources.open(file, where="label.quality = 'good'")
    (dataset / ".rlds").write_text("no folder")
    add_labels(dataset)
    assert [row.value for row in rlds.labels.open(dataset).of_episode(0)] == ["good", "good"]


def test_labels_of_a_dataset_with_one_data_file_are_in_its_folder(tmp_path):
    folder = tmp_path / "tiny"
    tiny_datasets.write_dataset(folder, [tiny_datasets.episode(length) for length in (3, 4)])
    rlds.labels.open(folder).add("quality", 1, "good", by="ann")
    assert (folder / ".rlds" / "labels" / "quality.jsonl").exists()
    chosen = rlds.sources.open(folder, where="label.quality = 'good'")
    assert [episode.num_steps for episode in chosen] == [4]
    assert (folder / ".rlds" / "episodes-train.parquet").exists()
    assert [row.value for row in rlds.labels.open(chosen).of_episode(0)] == ["good"]


def test_torn_line_is_skipped_and_damaged_line_is_named(dataset):
    labels = add_labels(dataset)
    file = dataset / ".rlds" / "labels" / "quality.jsonl"
    full = file.read_bytes()
    for size in (1, 40, len(full.splitlines()[0])):
        file.write_bytes(full + full[:size])
        assert len(labels.of_episode(1)) == 2
        labels.add("quality", 3, "good", by=f"eve{size}")
        assert file.read_bytes().startswith(full)
        assert len(labels.of_episode(1)) == 2
        assert [row.annotator for row in labels.of_episode(3)] == [f"eve{size}"]
    file.write_bytes(b'{"layer": "quality"}\n' + full)
    with pytest.raises(SourceError, match=r"quality\.jsonl.*line 1: not a label"):
        list(labels)


@pytest.mark.parametrize(
    "damaged",
    [b"{}", b"[1]", b"\x00\xff", b"[" * 100_000, b'{"layer": "quality", "type": "colour"}'],
    ids=["empty", "list", "bytes", "deep", "type"],
)
def test_damaged_line_stops_only_operations_that_read_it(dataset, tmp_path, damaged):
    path = tmp_path / "data.zarr"
    rlds.sources.export(dataset, "zarr", path)
    labels = add_labels(path)
    file = path / ".rlds" / "labels" / "quality.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], damaged + b"\n", *lines[2:]]))
    content = file.read_bytes()
    assert len(rlds.sources.open(path, where="steps > 5")) == 2
    error = r"quality\.jsonl.*line 3: not a label.*(Correct or delete)"
    with pytest.raises(SourceError, match=error):
        rlds.sources.open(path, where="label.quality = 'good'")
    with pytest.raises(SourceError, match=error):
        labels.of_episode(0)
    with pytest.raises(SourceError, match=error):
        labels.add("quality", 3, "good", by="ann")
    assert file.read_bytes() == content
    labels.add("slip", 3, True, by="ann")  # Of another layer.
    rlds.edit(path, editing.Delete(where="steps = 7"))
    assert file.read_bytes() == content
    with pytest.raises(SourceError, match=error):  # Trimmed episodes get new rows.
        rlds.edit(path, editing.Trim(begin=1))
    assert file.read_bytes() == content
    file.write_bytes(b"".join(lines))
    assert len(rlds.labels.open(path).of_episode(0)) == 2


def test_minari_datasets_with_labels_are_edited_in_place(tmp_path):
    path, episodes = tmp_path / "arm-v0", {"a.npz": raw_npz.episode(5), "b.npz": raw_npz.episode(4)}
    rlds.sources.export(raw_npz.write_folder(tmp_path / "raw", episodes), "minari", path)
    rlds.labels.open(path).add("quality", 0, "good", by="ann")
    rlds.edit(path, editing.Set("seed", 5))  # Makes the table of episodes meanwhile.
    labels = rlds.labels.open(path)
    assert [label.value for label in labels.of_episode(0)] == ["good"]


@pytest.mark.parametrize("is_labelled", [False, True])
@pytest.mark.parametrize("format", ["minari", "robomimic", "zarr"])
def test_edit_fails_if_labels_are_added_meanwhile(tmp_path, monkeypatch, format, is_labelled):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    raw = raw_npz.write_folder(
        tmp_path / "raw", {"a.npz": raw_npz.episode(5), "b.npz": raw_npz.episode(4)}
    )
    path = tmp_path / {"minari": "arm-v0", "robomimic": "arm.hdf5", "zarr": "arm.zarr"}[format]
    rlds.sources.export(raw, format, path, allow_loss=True)
    labels, new_labels = rlds.labels.open(path), []
    if is_labelled:
        labels.add("quality", 0, "good", by="ann")

    def add(episode):
        if (tmp_path / f".{path.name}.draft").exists() and not new_labels:
            new_labels.append(labels.add("slip", 1, True, by="bob"))
        return 1

    with pytest.raises(StorageError, match="changed while"):
        rlds.edit(path, editing.Add("speed", add))
    assert rlds.labels.open(path).of_episode(1) == new_labels
    link = tmp_path / "links" / path.name
    link.parent.mkdir()
    link.symlink_to(path)
    rlds.edit(link, editing.Add("speed", add))
    with pytest.raises(SourceError, match="open it again"):  # The labels name the old episodes.
        labels.add("slip", 0, True, by="bob")
    actual = [rlds.labels.open(path).of_episode(index) for index in range(2)]
    assert [[row.layer for row in rows] for rows in actual] == [["quality"] * is_labelled, ["slip"]]


def test_unknown_keys_of_newer_releases_are_kept(dataset):
    labels = add_labels(dataset)
    score = dataset / ".rlds" / "labels" / "score.jsonl"
    row = json.loads(score.read_text())
    newer = {**row, "value": 3, "id": "a" * 32, "certainty": {"low": 1}, "annotator": "bob"}
    score.write_text(json.dumps(row) + "\n" + json.dumps(newer) + "\n")
    actual = {
        label.annotator: label.value for label in labels.of_episode(2) if label.layer == "score"
    }
    assert actual == {"ann": 4.0, "bob": 3.0}
    layers = dataset / ".rlds" / "labels" / "layers.json"
    layers.write_text('[{"name": "x", "type": "flag", "colour": "red"}]')
    assert labels.layers()["x"] == "flag"
    labels.declare(Layer(name="y", type="flag"))
    assert json.loads(layers.read_text())[0]["colour"] == "red"


def test_label_with_invalid_unicode_is_refused(dataset):
    labels = add_labels(dataset)
    before = labels.rows()
    with pytest.raises(ValueError, match="surrogates not allowed"):
        labels.add("note", 0, "\ud800", by="ann")
    assert labels.rows() == before


def test_a_full_disk_adds_no_label(dataset):
    labels = add_labels(dataset)
    before = labels.rows()
    add = (
        "import resource, signal, sys, rlds.labels\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "labels = rlds.labels.open(sys.argv[1])\n"
        "rows = [('score', 'number', 1.0), *[('quality', 'choice', 'good')] * 100]\n"
        "names = {'episode': labels.digests[0], 'annotator': 'cy'}\n"
        "new = [rlds.labels.Label(layer=l, type=t, value=v, **names) for l, t, v in rows]\n"
        "labels.add_rows(new)"
    )
    output = subprocess.run([sys.executable, "-c", add, dataset], capture_output=True, text=True)
    assert "cannot write labels to any of" in output.stderr
    assert "File too large" in output.stderr
    assert labels.rows() == before


def test_several_processes_add_labels_at_the_same_time(dataset):
    rlds.sources.open(dataset).table()
    code = (
        "import rlds.labels, sys\n"
        "labels = rlds.labels.open(sys.argv[1])\n"
        "for n in range(60):\n"
        "    labels.add('note', n % 5, 'x' * 5000, 0, n % 3 + 1, by=sys.argv[2] + str(n))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(dataset), name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(list(rlds.labels.open(dataset))) == 180


SUFFIXES = [".csv", ".jsonl", ".parquet", ".json"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_label_files_keep_every_label(dataset, tmp_path, suffix):
    labels = add_labels(dataset)
    labels.add("note", 3, 'à "quoted",\nlong one', 0, 4, by="b", type="text")
    labels.add("note", 4, "true", by="b")
    labels.add("note", 4, "", by="c")
    labels.add("ok", 0, False, by="b")
    labels.add("quality", 0, "fair", by="bob")
    before = values_by_episode(labels)
    file = tmp_path / f"labels{suffix}"
    assert rlds.labels.write(labels, file) == sum(map(len, before))
    assert rlds.labels.read(file, labels) == []  # The labels exist already.
    # A copy without labels, and one with a renamed field, whose episodes are matched by key.
    renamed = tmp_path / "renamed"
    rlds.edit(dataset, editing.Rename("observation", "state"), to=renamed, to_format="zarr")
    copy = shutil.copytree(dataset, tmp_path / "copy", ignore=lambda *_: [".rlds"])
    shutil.rmtree(renamed / ".rlds")
    for folder, is_same in (copy, True), (renamed, False):
        other = rlds.labels.open(folder)
        actual = rlds.labels.read(file, other)
        other.add_rows(actual)
        assert [*map(sorted, values_by_episode(other))] == [*map(sorted, before)]
        assert ({row.id for row in actual} == {row.id for row in labels}) is is_same
        assert {row.at for row in actual} == {row.at for row in labels}
        assert rlds.labels.read(file, other) == []
    # A changed value is a new label; labels of missing episodes are reported.
    if suffix != ".parquet":
        text = file.read_text()
        assert text.count("fair") == 1
        file.write_text(text.replace("fair", "poor"))
        (changed,) = rlds.labels.read(file, labels)
        assert (changed.value, changed.annotator) == ("poor", "bob")
        labels.add_rows([changed])
        assert {row.value for row in labels.of_episode(0)} == {"good", "poor", False}
    operations = editing.Trim(1, where="index = 2"), editing.Delete(episodes=[4])
    rlds.edit(dataset, *operations, to=tmp_path / "cut", to_format="zarr")
    shutil.rmtree(tmp_path / "cut" / ".rlds")
    other = rlds.labels.open(tmp_path / "cut")
    message = r"(?=.*'4.npz' is not in this dataset).*4 rows.*'2.npz' has 4 steps in this dataset"
    with pytest.raises(ValueError, match=message):
        rlds.labels.read(file, other)
    assert list(other) == []
    # Labels carried by the edit exist already, although the episode has changed.
    rlds.edit(dataset, *operations, to=tmp_path / "kept", to_format="zarr")
    assert rlds.labels.read(file, rlds.labels.open(tmp_path / "kept")) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "", r"x.txt': expected a name with \.csv"),
        ("x.json", "{", "x.json.*not readable as .* file of labels"),
        (
            "x.json",
            '[{"data": {}, "annotations": [{"result": [{"id": "a"}]}]}]',
            "not readable as .* file of labels",
        ),
        ("x.jsonl", "[]\n", "not readable as .* file of labels"),
        ("x.parquet", "PAR1", "not readable as .* file of labels"),
        (
            "x.csv",
            "layer,key,value,annotator\nquality,0.npz,good,\n",
            "row 1: annotator is missing",
        ),
        ("x.csv", "layer;value\n", r"x\.csv: got the columns 'layer;value', expected layer, val"),
        ("x.csv", "layer,value,annotator\n", "expected layer, value, annotator, and episode or k"),
        ("x.csv", "", "got the columns none, expected"),
        (
            "x.csv",
            "layer,key,value,annotator\nscore,0.npz,x,a\n",
            "row 1: value: got 'x', expected a n",
        ),
        ("x.csv", "layer,key,value,annotator,begin,end\nnew,0.npz,1,a,1.5,2\n", "row 1: got '1.5'"),
        (
            "x.csv",
            "layer,key,value,annotator\nnew,0,1,a\n",
            "row 1: episode '0' is not in this dataset",
        ),
        (
            "x.jsonl",
            json.dumps(
                {
                    **{"layer": "new", "key": "0.npz", "value": 1, "annotator": "a"},
                    **{"episode": "0" * 32, "begin": 1, "end": 9},
                }
            ),
            "'0.npz' has 3 steps in this dataset",
        ),
        ("x.csv", "layer,key,value,annotator,begin,end\nnew,0.npz,1,a,1,9\n", "has 3 steps"),
    ],
)
def test_invalid_label_files_are_refused(dataset, tmp_path, name, content, message):
    labels = add_labels(dataset)
    before = list(labels)
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises((ValueError, SourceError), match=message):
        labels.add_rows(rlds.labels.read(file, labels))
    assert list(labels) == before


def test_foreign_tables_and_label_studio_regions_are_read(dataset, tmp_path):
    labels = rlds.labels.open(dataset)
    (tmp_path / "x.csv").write_text(
        "\ufeffkey,layer,value,annotator,begin,end\n"
        "0.npz,grade,1,ann,,\n1.npz,grade,2.5,ann,,\n2.npz,slip,True,ann,1.0,3.0\n"
    )
    labels.add_rows(rlds.labels.read(tmp_path / "x.csv", labels))
    region = {
        "id": "r1",
        "type": "timelinelabels",
        "from_name": "phase",
        "to_name": "video",
        "value": {"ranges": [{"start": 1, "end": 2}], "timelinelabels": ["reach", "left"]},
    }
    task = {
        "data": {"video": "2.mp4", "key": "2.npz"},
        "annotations": [
            {"completed_by": {"id": 7, "email": "eve@lab"}, "result": [region]},
            {"completed_by": 8, "was_cancelled": True, "result": [region]},
        ],
    }
    (tmp_path / "x.json").write_text(json.dumps([task]))
    labels.add_rows(rlds.labels.read(tmp_path / "x.json", labels))
    assert values_by_episode(labels)[:3] == [
        [("grade", 1.0, None, None, "ann")],
        [("grade", 2.5, None, None, "ann")],
        [("phase", "left", 0, 2, "eve@lab"), ("slip", True, 1, 3, "ann")],
    ]


def test_alpha_equals_the_published_example():
    nan = np.nan
    values = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, nan, nan, nan],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, nan, 3],
            [nan, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, nan],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, nan],
        ]
    )[:, :11]
    assert alpha_of(values, is_number=False) == pytest.approx(0.743, abs=5e-4)
    assert alpha_of(values, is_number=True) == pytest.approx(0.849, abs=5e-4)


def test_agreement_is_computed_for_all_and_each_pair(dataset):
    labels = add_labels(dataset)
    labels.add("quality", 2, "good", by="bob")  # One annotator alone does not count.
    labels.add("quality", 3, "bad", by="ann")
    labels.add("quality", 3, "bad", by="bob")
    labels.add("quality", 3, "good", by="eve")
    actual, *pairs = rlds.labels.agreement(labels, "quality")
    assert actual.alpha == pytest.approx(0.0, abs=1e-12)
    assert (actual.units, actual.equal) == (3, pytest.approx(1 / 3))
    names = [each.annotators for each in (actual, *pairs)]
    assert names == [("ann", "bob", "eve"), ("ann", "bob"), ("ann", "eve"), ("bob", "eve")]
    assert (pairs[0].units, pairs[0].equal) == (3, pytest.approx(2 / 3))
    # Steps 1, 2 and 2, 3 of five: an unlabelled step counts as a value.
    labels.add("slip", 2, True, 2, 4, by="bob")
    (actual,) = rlds.labels.agreement(labels, "slip")
    assert actual.alpha == pytest.approx(1 / 4)
    assert (actual.units, actual.equal) == (5, 0.6)
    (actual,) = rlds.labels.agreement(labels, "score")
    assert actual == rlds.labels.Agreement("score", ("ann",), None, None, 0)
    for episode, (ann, bob) in enumerate([(1, 1), (2, 3), (9, 8)]):
        labels.add("score", episode, ann, by="ann")
        labels.add("score", episode, bob, by="bob")
    assert rlds.labels.agreement(labels, "score")[0].alpha == pytest.approx(187 / 192)
    for by in ("ann", "bob"):
        labels.add("seen", 0, True, by=by)
    (actual,) = rlds.labels.agreement(labels, "seen")
    assert (actual.alpha, actual.equal, actual.units) == (None, 1.0, 1)
    with pytest.raises(KeyError, match="did you mean 'score'"):
        rlds.labels.agreement(labels, "scores")
