"""Exports have the recorded steps and metadata, and the labels of annotators."""

import json
import zipfile

import dm_env
import h5py
import numpy as np
import pytest
import tree
from dm_env import specs
from recorded_episodes import ENVIRONMENT_SPECS, NUM_ACTIONS, STUDY, step_data, write_episode

import envlogger
import rlds.labels
import rlds.sources
import tfds_files
from envlogger.converters.rlds_episode import to_rlds_episode
from rlds_creator.exporting.exports import export
from rlds_creator.exporting.recordings import ExportError
from rlds_creator.exporting.targets import FORMATS

INTERNAL = {"image", "keys", "info", "inputs", "time", "fps", "camera", "quality"}


def read_log(path):
    with envlogger.Reader(path) as reader:
        return [list(episode) for episode in reader.episodes], list(reader.episode_metadata())


def assert_same(actual, expected):
    """Checks values and types."""
    tree.assert_same_structure(actual, expected)
    for left, right in zip(tree.flatten(actual), tree.flatten(expected), strict=True):
        assert type(left) is type(right)
        assert getattr(left, "dtype", None) == getattr(right, "dtype", None)
        np.testing.assert_array_equal(left, right)


def test_a_log_equals_the_recordings_step_by_step(tmp_path):
    recordings = [
        write_episode(
            tmp_path / "episodes" / "b", 6, tags=[("placed", 2, 3), ("good", None, None)]
        ),
        write_episode(tmp_path / "a", 3, success=None, state="cancelled"),
    ]
    progress = []
    download = export(recordings, tmp_path / "out", name="Pick it up!", progress=progress.append)

    assert (download.episodes, download.steps, download.cut) == (2, 9, 0)
    assert download.data == "pick_it_up"
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    episodes, metadata = read_log(tmp_path / "out" / "pick_it_up")
    for directory, steps, placed in zip(recordings, episodes, ([2, 3], []), strict=True):
        [before], _ = read_log(directory)
        assert_same([step[:2] for step in steps], [step[:2] for step in before])
        for index, step in enumerate(steps):
            assert_same(step.custom_data, {"tag:placed": index in placed})
    with envlogger.Reader(tmp_path / "out" / "pick_it_up") as reader:
        assert reader.action_spec().num_values == NUM_ACTIONS
        assert reader.observation_spec() == ENVIRONMENT_SPECS["observation_spec"]
    assert [row["episode_id"] for row in metadata] == ["b", "a"]
    assert metadata[1] == {
        **read_log(recordings[1])[1][0],
        "episode_index": 1,
        "num_steps": 3,
        "total_reward": 1 / 7 + 2 / 7,
        "state": "cancelled",
        "reason": "terminated",
        "tags": "[]",
    }
    assert metadata[0]["success"]
    assert metadata[0]["tags"] == '["good"]'
    assert json.loads((tmp_path / "out" / "metadata.json").read_text())["step_tags"] == [
        "tag:placed"
    ]
    assert "2 episodes · 9 steps" in (tmp_path / "out" / "README.md").read_text()


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Recordings with pictures, and with all kinds of ends."""
    root = tmp_path_factory.mktemp("recordings")
    environment_specs = {
        **ENVIRONMENT_SPECS,
        "observation_spec": {
            **ENVIRONMENT_SPECS["observation_spec"],
            "picture": specs.Array((20, 30, 3), np.uint8, "picture"),
        },
    }

    def record(name, num_steps, end, **options):
        steps = [step_data(index, num_steps, end=end) for index in range(num_steps)]
        for index, step in enumerate(steps):
            step.timestep.observation["picture"] = rng.integers(index, 9, (20, 30, 3), np.uint8)
        return write_episode(
            root / name, end=end, steps=steps, environment_specs=environment_specs, **options
        )

    rng = np.random.default_rng(0)
    return [
        record(
            "a", 6, "terminated", tags=[("placed", 2, 3), ("on/off", 0, 0), ("good", None, None)]
        ),
        record("b", 4, "truncated", success=None, notes="ü"),
        record("c", 3, "user", state="abandoned"),
    ]


def as_exported(recording, index, fields):
    """Returns the expected episode of a dataset, from the recording."""
    [steps], _ = read_log(recording)
    data = [{name: step.custom_data[name] for name in fields} for step in steps]
    last = steps[-1].timestep._replace(step_type=dm_env.StepType.LAST)
    steps = [step._replace(custom_data=custom) for step, custom in zip(steps, data, strict=True)]
    steps[-1] = steps[-1]._replace(timestep=last)
    columns = to_rlds_episode(steps)
    for label, tagged in {"placed": (2, 3), "on%2Foff": (0,)}.items():
        columns[f"tag:{label}"] = np.isin(np.arange(len(steps)), tagged) & (index == 0)
    return columns


@pytest.mark.parametrize("keep_internal", [False, True])
def test_a_dataset_equals_the_recordings_step_by_step(keep_internal, recordings, tmp_path):
    progress = []
    download = export(
        recordings,
        tmp_path / "out",
        "tfds",
        name="with pictures",
        keep_internal=keep_internal,
        progress=progress.append,
    )
    assert download.data == "with_pictures/1.0.0"
    assert progress == sorted(progress)
    dataset = rlds.sources.open(tmp_path / "out" / download.data)
    assert len(dataset) == 3
    steps = tfds_files.open_folder(tmp_path / "out" / download.data).features["steps"].feature
    assert steps["observation"]["picture"].encoding_format == "png"
    for index, (recording, episode) in enumerate(zip(recordings, dataset, strict=True)):
        expected = as_exported(recording, index, INTERNAL if keep_internal else ())
        columns = dataset.columns(index)
        tree.assert_same_structure(columns, expected)
        for path, column in tree.flatten_with_path(columns):
            expected_column = expected
            for key in path:
                expected_column = expected_column[key]
            np.testing.assert_array_equal(column, expected_column, err_msg=str(path))
            assert column.dtype == object or column.dtype == expected_column.dtype
        assert episode.metadata["episode_id"] == recording.name.encode()
        assert episode.metadata["tags"] == ("[]" if index else '["good"]')
        assert episode.truncated == (index > 0)
        assert episode.metadata["success_known"] == (index != 1)
        assert ("notes" in episode.metadata) is keep_internal


@pytest.mark.slow
def test_tfds_and_minari_load_exported_datasets(recordings, tmp_path):
    import minari
    import tensorflow_datasets as tfds

    export(recordings, tmp_path / "tfds", "tfds", name="x")
    dataset = tfds.builder_from_directory(tmp_path / "tfds" / "x" / "1.0.0").as_dataset("train")
    for loaded in (dataset, tfds.load("x", data_dir=tmp_path / "tfds", split="train")):
        episodes = list(tfds.as_numpy(loaded))
        assert [episode["state"] for episode in episodes] == [b"completed"] * 2 + [b"abandoned"]
        for index, episode in enumerate(episodes):
            steps = list(episode["steps"])
            expected = as_exported(recordings[index], index, ())
            for path, column in tree.flatten_with_path(expected):
                for step, value in zip(steps, column, strict=True):
                    for key in path:
                        step = step[key]
                    np.testing.assert_array_equal(step, value, err_msg=str(path))

    download = export(recordings, tmp_path / "minari", "minari", name="x")
    data = tmp_path / "minari" / download.data
    with h5py.File(data / "data" / "main_data.hdf5") as file:
        pictures = file["episode_0/observations/picture"]
        assert (pictures.compression, pictures.id.get_storage_size() < pictures.nbytes) == (
            "gzip",
            True,
        )
    for episode, recording in zip(minari.MinariDataset(data / "data"), recordings, strict=True):
        expected = as_exported(recording, episode.id, ())
        picture = expected["observation"]["picture"]
        np.testing.assert_array_equal(episode.observations["picture"], picture)
        np.testing.assert_array_equal(episode.rewards, expected["reward"][:-1])
    source_episodes = rlds.sources.open(data)
    assert len(source_episodes) == 3
    for index, recording in enumerate(recordings):
        columns, expected = source_episodes.columns(index), as_exported(recording, index, ())
        np.testing.assert_array_equal(
            columns["observation"]["picture"], expected["observation"]["picture"]
        )
        np.testing.assert_array_equal(columns["action"][:-1], expected["action"][:-1])
        np.testing.assert_array_equal(columns["reward"][:-1], expected["reward"][:-1])


# Options that formats need for observations with several fields.
OPTIONS = {
    "lerobot": ["fps=15"],
    "aloha": ['fields={"observations/qpos": "observation/level"}'],
    "d4rl": ["observation=observation/level"],
}


def test_downloads_have_every_writable_format(tmp_path):
    assert {*FORMATS} - {"log"} == {*rlds.sources.exports()} - {"envlogger"}
    recordings = [write_episode(tmp_path / name, 6) for name in ("a", "b")]
    [steps], _ = read_log(recordings[0])
    for name in FORMATS:
        options = OPTIONS.get(name, [])
        download = export(recordings, tmp_path / f"out_{name}", name, name="x", options=options)
        data = tmp_path / f"out_{name}" / download.data
        dataset = rlds.sources.open(data, format="envlogger" if name == "log" else name)
        assert len(dataset) == 2, name
        rewards = dataset.columns(0)["reward"][: len(steps) - 1]
        expected = [step.timestep.reward for step in steps[1:]]
        np.testing.assert_allclose(rewards, expected, rtol=1e-6, err_msg=name)
    # Fields that other readers do not find are reported.
    for name, has_all in (("robomimic", True), ("d4rl", False)):
        folder = tmp_path / f"out_{name}"
        metadata = json.loads((folder / "metadata.json").read_text())
        assert metadata["changed"] == []
        assert ("steps/discount" in metadata["sidecar"]) is not has_all
        readme = (folder / "README.md").read_text()
        assert ("Only in `rlds.sources.open`: `steps/discount`, `agent_id`" in readme) != has_all
    with pytest.raises(ExportError, match="LeRobot needs the number of steps in a second"):
        export(recordings, tmp_path / "none", "lerobot", name="x")
    with pytest.raises(ExportError, match="no option 'speed'"):
        export(recordings, tmp_path / "none", "lerobot", name="x", options=["speed=1"])


def test_zip_file_compresses_only_uncompressed_files(recordings, tmp_path):
    sizes = {}
    for name in ("log", "minari"):
        download = export(recordings, tmp_path / f"{name}.zip", name, name="x", archive=True)
        with zipfile.ZipFile(download.path) as archive:
            assert archive.testzip() is None
            for member in archive.infolist():
                sizes[member.filename.rpartition("/")[2]] = (member.compress_size, member.file_size)
    compressed, size = sizes["README.md"]
    assert compressed < 0.8 * size
    assert sizes["steps.riegeli"][0] == sizes["steps.riegeli"][1]


def test_episodes_end_at_tags_or_where_players_left(tmp_path):
    """The last step has only recorded values."""
    recordings = [
        write_episode(tmp_path / "cut", 6, tags=[("done", 3, 4), ("won", 4, 5)]),
        write_episode(tmp_path / "at once", 4, tags=[("won", 0, 0)]),
        write_episode(tmp_path / "at the end", 4, tags=[("done", 3, 3)]),
        write_episode(tmp_path / "left", 3, end="user", state="abandoned"),
        write_episode(tmp_path / "never begun", 1, end="user", state="abandoned"),
    ]
    download = export(recordings, tmp_path / "out", name="x", end_at=["won", "done", "unused"])

    assert download.cut == 2
    episodes, metadata = read_log(tmp_path / "out" / "x")
    assert [len(steps) for steps in episodes] == [4, 1, 4, 3, 1]
    assert [row["num_steps"] for row in metadata] == [4, 1, 4, 3, 1]
    reasons = ["tag", "tag", "terminated", "user", "user"]
    assert [row["reason"] for row in metadata] == reasons
    last = episodes[0][-1]
    assert last.timestep == step_data(3, 6).timestep._replace(
        step_type=dm_env.StepType.LAST, observation=last.timestep.observation
    )
    assert metadata[0]["total_reward"] == pytest.approx((1 + 2 + 3) / 7)
    assert metadata[1]["total_reward"] == 0
    dataset = rlds.sources.open(tmp_path / "out" / "x")
    assert [episode.truncated for episode in dataset] == [True, True, False, True, True]
    assert [len(episode.steps["is_last"]) for episode in dataset] == [4, 1, 4, 3, 1]
    for episode in dataset:
        assert episode.steps["is_last"].tolist() == [False] * (episode.num_steps - 1) + [True]
        assert episode.steps["is_terminal"][-1] == (episode.key == "2")


def test_episodes_of_different_environments_are_refused(tmp_path):
    other = {**ENVIRONMENT_SPECS, "action_spec": specs.DiscreteArray(5, np.int64, "action")}
    recordings = [
        write_episode(tmp_path / "a"),
        write_episode(
            tmp_path / "b", environment_specs=other, environment={"id": "e2", "name": "Forest"}
        ),
        write_episode(tmp_path / "c"),
    ]
    with pytest.raises(
        ExportError,
        match=r"of 2 environments, whose action differ: 2 of 'Maze', such as a; 1 of 'Forest', "
        r"such as b\. Export",
    ) as raised:
        export(recordings, tmp_path / "out")
    assert "num_values=5" in raised.value.details
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format", ["log", "tfds"])
def test_truncated_recording_has_its_own_counts(format, tmp_path):
    """It is exported with a complete one, and has less metadata and other fields."""
    steps = [step_data(index, 9, end="user") for index in range(3)]
    steps = [
        step._replace(custom_data={k: v for k, v in step.custom_data.items() if k != "camera"})
        for step in steps
    ]
    short = write_episode(tmp_path / "cut", steps=steps, state="abandoned", is_closed=False)
    for recordings in ([write_episode(tmp_path / "whole", 5), short], [short, tmp_path / "whole"]):
        out = tmp_path / f"{recordings[0].name} first"
        download = export(recordings, out, format, name="x")
        episodes = {e.metadata["state"]: e for e in rlds.sources.open(out / download.data)}
        assert [episodes["completed"].metadata["num_steps"], len(episodes["completed"])] == [5, 5]
        metadata = episodes["abandoned"].metadata
        assert (metadata["num_steps"], metadata["total_reward"]) == (3, pytest.approx(3 / 7))
        assert "num_steps_known" not in metadata


def test_labels_may_be_any_text(tmp_path):
    labels = ["a/b", "../../up", "<b>", "new\nline", "nul\0", "\u202eleft", "x" * 200, "%s{0}"]
    tags = [(label, 1, 2**62) for label in labels]
    recordings = [write_episode(tmp_path / "episodes" / "a", 3, tags=tags)]
    download = export(recordings, tmp_path / "out.zip", name="../../up\0", archive=True)

    assert {path.name for path in tmp_path.iterdir()} == {"episodes", "out.zip"}
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        names = archive.namelist()
        assert names == sorted(names)
        archive.extractall(tmp_path / "unpacked")
    fields = [f"tag:{label.replace('/', '%2F')}" for label in labels]
    dataset = rlds.sources.open(tmp_path / "unpacked" / "up" / download.data)
    columns = dataset.columns(0, fields)
    assert [columns[field].tolist() for field in fields] == [[False, True, True]] * len(labels)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"state": "perfect"}',
        b'{"tags": [{"label": "", "first": 0}]}',
        b'{"tags": [{"label": "\\ud800", "first": 0}]}',
        b'{"tags": [{"label": "x", "first": -1}]}',
        b'{"tags": [{"label": "x", "first": 1e400}]}',
    ],
)
def test_invalid_annotations_are_refused(content, tmp_path):
    recording = write_episode(tmp_path / "a", 2, annotations=content)
    with pytest.raises(ExportError, match="of episode a cannot be read") as error:
        export([recording], tmp_path / "out")
    assert str(tmp_path) not in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {"a"}


@pytest.mark.parametrize("format", ["log", "tfds", "robomimic"])
def test_annotations_are_exported_as_labels(format, tmp_path):
    """Annotators have pseudonyms, also in recordings of earlier releases; notes are internal."""
    earlier = {
        "state": "rejected",
        "verdicts": [
            {"state": "completed", "author": "ann", "created": 10.0},
            {"state": "rejected", "author": "bob", "created": 20.0},
        ],
        "tags": [{"label": "Grip/slip", "first": 1, "last": 9, "author": "bob", "created": 1.0}],
        "study": STUDY,
    }
    common = {"type": "choice", "annotator": "f" * 32, "at": 30.5}
    rows = [
        {**common, "id": "a", "layer": "verdict", "value": "cancelled", "tool": "rlds create"},
        {**common, "id": "b", "layer": "note", "type": "text", "value": "odd"},
        {**common, "id": "c", "layer": "fall", "type": "flag", "value": True, "begin": 1, "end": 3},
    ]
    recordings = [
        write_episode(tmp_path / "a", 4, annotations=json.dumps(earlier).encode()),
        write_episode(tmp_path / "b", 4, annotations=json.dumps({"labels": rows}).encode()),
        write_episode(tmp_path / "c", 4),
    ]
    download = export(recordings, tmp_path / "out", format, name="x", end_at=["fall"])
    data = tmp_path / "out" / download.data
    selection = rlds.sources.open(data, where="label.verdict = 'cancelled'")
    assert [len(episode) for episode in selection] == [2]
    labels = rlds.labels.open(data)
    values = {(row.layer, row.value, row.begin, row.end) for row in labels}
    (grip,) = (layer.name for layer in labels.all_layers() if layer.title == "Grip/slip")
    assert values == {
        ("verdict", "completed", None, None),
        ("verdict", "rejected", None, None),
        (grip, True, 1, 4),
        ("verdict", "cancelled", None, None),
        ("fall", True, 1, 2),
    }
    assert {row.annotator for row in labels.of_episode(1)} == {"f" * 32}
    assert {len(row.annotator) for row in labels} == {32}
    assert labels.of_episode(2) == []
    if format == "log":
        export(recordings, tmp_path / "all", name="x", keep_internal=True)
        notes = [
            row.value for row in rlds.labels.open(tmp_path / "all" / "x") if row.layer == "note"
        ]
        assert notes == ["odd"]


def test_tags_outside_the_episode_are_dropped(tmp_path):
    tags = [("late", 4, 9), ("backwards", 3, 1), ("one", 2, None)]
    recording = write_episode(tmp_path / "a", 4, tags=tags)
    export([recording], tmp_path / "out", name="x", end_at=["late", "backwards"])
    [steps], _ = read_log(tmp_path / "out" / "x")
    assert [step.custom_data for step in steps] == [{"tag:one": i == 2} for i in range(4)]


def test_damaged_log_is_named_without_its_path(tmp_path):
    recordings = [write_episode(tmp_path / "good"), write_episode(tmp_path / "bad", 50)]
    [steps] = recordings[1].glob("*/steps.riegeli")
    content = bytearray(steps.read_bytes())
    content[len(content) // 2] ^= 255
    steps.write_bytes(content)
    with pytest.raises(ExportError, match="log of episode bad") as error:
        export(recordings, tmp_path / "out")
    assert str(tmp_path) not in str(error.value)
    assert str(steps) in error.value.details
    assert {path.name for path in tmp_path.iterdir()} == {"good", "bad"}


def test_existing_outputs_are_not_overwritten(tmp_path):
    recording = write_episode(tmp_path / "a")
    (tmp_path / "out").mkdir()
    export([recording], tmp_path / "out", name="x")
    for archive in (False, True):
        with pytest.raises(FileExistsError):
            export([recording], tmp_path / "out", archive=archive)
    with pytest.raises(ExportError, match="no episodes"):
        export([], tmp_path / "other")
    with pytest.raises(ExportError, match="no format 'zip'; there are: log"):
        export([recording], tmp_path / "other", "zip")
    assert not (tmp_path / "other").exists()


def test_an_export_that_is_interrupted_leaves_nothing(tmp_path):
    recording = write_episode(tmp_path / "a", 200)

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export([recording], tmp_path / "out.zip", archive=True, progress=interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {"a"}
