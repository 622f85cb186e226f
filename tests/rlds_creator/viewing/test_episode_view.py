"""Views of episodes, compared with the columns of their datasets."""

import io
import json
import shutil

import dm_env
import numpy as np
import pytest
from PIL import Image

import envlogger
import tfds_files
from envlogger import RiegeliBackendWriter, StepData
from rlds import sources
from rlds_creator.viewing import Catalog, ViewedEpisode, episode_view, steps
from rlds_creator.viewing.values import as_json
from rlds_ecosystem.model.json_values import parsed
from rlds_ecosystem.model.nests import leaves_at
from tests.golden import test_tfds_4_9_10
from tests.support import raw_droid, raw_minari, tiny_datasets

GOLDEN = test_tfds_4_9_10.__file__.removesuffix("/test_tfds_4_9_10.py")
T = 7


def view_of(path, index=0, split=None) -> ViewedEpisode:
    catalog = Catalog([path])
    [dataset] = catalog.datasets()["datasets"]
    return catalog.view(dataset["id"], split or dataset["splits"][0]["name"], index)


def encode_image(pixels, format="JPEG", **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format, **options)
    return file.getvalue()


def decode_picture(picture) -> np.ndarray:
    data, kind = picture
    image = Image.open(io.BytesIO(data))
    assert kind == f"image/{image.format.lower()}"
    return np.asarray(image)


# --- A recording, with all that a step can hold.

RNG = np.random.default_rng(1)
PICTURES = {
    "rgb": RNG.integers(0, 256, (T, 10, 12, 3), np.uint8),
    "rgba": np.concatenate(
        [RNG.integers(0, 256, (T, 9, 8, 3), np.uint8), np.full((T, 9, 8, 1), 255, np.uint8)], -1
    ),
    "grey": RNG.integers(0, 256, (T, 32, 34), np.uint8),
    "one": RNG.integers(0, 256, (T, 8, 9, 1), np.uint8),
    "channels_first": RNG.random((T, 3, 24, 26)).astype(np.float32),
    "stack": RNG.integers(0, 256, (T, 84, 84, 4), np.uint8),
    "frames": RNG.integers(0, 256, (T, 5, 24, 25, 3), np.uint8),
    "depth": RNG.integers(300, 5000, (T, 32, 33)).astype(np.uint16),
    "mask": RNG.random((T, 24, 25)) < 0.5,
    "heat": RNG.normal(size=(T, 40, 30)),
    "large": np.add.outer(np.arange(T) * 9, np.indices((300, 301, 3)).sum(0) // 3).astype(np.uint8),
}
PICTURES["heat"][0, 0, :3] = np.nan, np.inf, -np.inf
VALUES = {
    "state": np.array([[1.5, np.nan, np.inf]] * T, np.float32),
    "count": np.arange(T) + 2**60,
    "small": np.arange(T, dtype=np.uint8),
    "matrix": RNG.normal(size=(T, 6, 6)),
    "big": RNG.normal(size=(T, 600)),
    "name": [f"Grün 🤖 {t}" for t in range(T)],
    "raw": [b"\xff\x00" * (t + 1) for t in range(T)],
}
FRAMES = [encode_image(RNG.integers(0, 256, (48, 64, 3), np.uint8)) for _ in range(T)]


def record(path):
    """Writes a recording of a play, as `rlds create` stores it."""
    writer = RiegeliBackendWriter(path, metadata={"control_frequency": 20})
    for t in range(T):
        columns = {**PICTURES, **VALUES}
        observation = {name: column[t] for name, column in columns.items()}
        observation["parts"] = ({"x": float(t)}, np.float32(t))
        kind = dm_env.StepType.MID if 0 < t < T - 1 else dm_env.StepType(0 if t == 0 else 2)
        reward = (None, None) if t == 0 else (t / 2, float(t < T - 1))
        custom = {
            "image": FRAMES[t],
            "keys": json.dumps({"ArrowUp": 1.0} if t == 3 else {}),
            "inputs": json.dumps([[t, "ArrowUp", 1, "w"]]),
            "info": '{"lives": 3, "broken": NaN}',
            "time": 1.7e9 + t * 0.05,
            "fps": 20.0,
            "camera": "side",
            "tag:good": t == 2,
        }
        timestep = dm_env.TimeStep(kind, *reward, observation)
        action = None if t == 0 else np.array([t, -t], np.float32)
        writer.record_step(StepData(timestep, action, custom), t == 0)
    writer.set_episode_metadata({"agent_id": "a", "total_reward": 10.5, "seed": 2**60})
    writer.close()


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("recordings") / "one"
    record(path)
    return path


def check_values(view, columns, *, is_recording=False):
    """Checks the values of all steps, except pictures, and that they are JSON."""
    summary = json.loads(json.dumps(view.summary(), allow_nan=False))
    kinds = {field["path"]: field["kind"] for field in summary["fields"]}
    assert set(kinds) == set(columns)
    for step in range(view.num_steps):
        answer = view.step(step)
        values = answer["values"]
        json.dumps(answer, allow_nan=False)
        assert answer["step"] == step
        is_last = step + 1 == view.num_steps
        for path, column in columns.items():
            if kinds[path] == "picture" or (is_recording and path in ("keys", "inputs")):
                continue
            if is_recording and is_last and path in ("action", "reward", "discount"):
                assert path not in values
                continue
            assert values[path] == as_json(parsed(row_of(column, step))), (path, step)
    for path, kind in kinds.items():
        if kind in ("number", "flag", "vector"):
            series = view.series(path)
            assert series["steps"] == list(range(view.num_steps))
            if not view.num_steps:
                assert all(curve == [] for curve in series["series"])
                continue
            expected = np.asarray(columns[path], np.float64).reshape(view.num_steps, -1).T
            curves = np.array(series["series"], np.float64)
            last = -1 if is_recording and path in ("action", "reward", "discount") else None
            expected = np.where(np.isfinite(expected), expected, np.nan)
            np.testing.assert_array_equal(curves[:, :last], expected[:, :last], path)
    return kinds, summary


def row_of(column, row):
    if isinstance(column, dict):
        return {name: row_of(inner, row) for name, inner in column.items()}
    return column[row]


def test_view_of_a_recording_equals_its_columns(recording):
    view = view_of(recording)
    columns = dict(leaves_at(sources.open(recording).columns(0), None))
    kinds, summary = check_values(view, columns, is_recording=True)
    pictures = {path.rpartition("/")[2] for path, kind in kinds.items() if kind == "picture"}
    assert pictures == {*PICTURES, "image"}
    assert kinds["observation/state"] == kinds["action"] == "vector"
    assert kinds["observation/big"] == kinds["observation/matrix"] == "array"
    assert kinds["observation/parts/0/x"] == kinds["reward"] == "number"
    assert kinds["observation/name"] == kinds["observation/raw"] == "text"
    assert kinds["tag:good"] == "flag"
    assert summary["rewards"] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, None]
    assert summary["times"] == pytest.approx([t * 0.05 for t in range(T)], abs=1e-3)
    assert summary["fps"] == 20
    assert summary["shown"] == "image"
    assert summary["metadata"] == {"agent_id": "a", "total_reward": 10.5, "seed": str(2**60)}
    order = [field["path"].partition("/")[0] for field in summary["fields"]]
    assert order[0] == "observation"
    assert order[-3:] == ["is_first", "is_last", "is_terminal"]


def test_inputs_are_shown_with_the_action_that_they_caused(recording):
    view = view_of(recording)
    assert view.step(2)["values"]["keys"] == {"ArrowUp": 1.0}
    assert view.step(2)["values"]["action"] == [3, -3]
    assert view.step(3)["values"]["keys"] == {}
    assert view.step(0)["values"]["inputs"] == [[1, "ArrowUp", 1, "w"]]
    assert view.step(T - 1)["values"]["keys"] is None
    assert view.step(0)["values"]["info"] == {"lives": 3, "broken": "NaN"}


def test_pictures_of_every_layout_are_shown(recording):
    view = view_of(recording)

    def pixels(name, step=1, side=None):
        return decode_picture(view.picture(step, f"observation/{name}", side))

    for name in ("rgb", "rgba", "grey"):
        np.testing.assert_array_equal(pixels(name), PICTURES[name][1])
    np.testing.assert_array_equal(pixels("one"), PICTURES["one"][1, ..., 0])
    np.testing.assert_array_equal(pixels("mask"), PICTURES["mask"][1] * np.uint8(255))
    strip = np.concatenate(list(PICTURES["stack"][1].transpose(2, 0, 1)), axis=1)
    np.testing.assert_array_equal(pixels("stack"), strip)
    strip = np.concatenate(list(PICTURES["frames"][1]), axis=1)
    np.testing.assert_array_equal(pixels("frames"), strip)
    expected = np.rint(PICTURES["channels_first"][1].transpose(1, 2, 0) * 255)
    np.testing.assert_array_equal(pixels("channels_first"), expected)
    # Without a natural range of values, the scale is the same in all steps, and reported.
    fields = {field["path"]: field for field in view.summary()["fields"]}
    low, high = fields["observation/depth"]["scaled"]
    depth = PICTURES["depth"]
    sampled = depth[[0, 2, 3, 4, 6]]
    assert (low, high) == (sampled.min(), sampled.max())
    expected = np.clip((depth[5].astype(float) - low) / (high - low) * 255, 0, 255)
    assert np.abs(pixels("depth", 5) - expected).max() <= 1
    low, high = fields["observation/heat"]["scaled"]
    assert -6 < low < high < 6
    assert pixels("heat", 0)[0, :3].tolist() == [0, 255, 0]
    assert "scaled" not in fields["observation/rgb"]
    assert fields["observation/channels_first"]["scaled"] == [0, 1]
    # Large pictures are lossy, and become smaller on demand, but never larger.
    large = view.picture(1, "observation/large")
    assert large[1] == "image/jpeg"
    assert np.abs(decode_picture(large) - PICTURES["large"][1].astype(int)).mean() < 4
    assert pixels("large", side=60).shape == (60, 60, 3)
    assert pixels("rgb", side=4).shape == (3, 4, 3)
    assert pixels("rgb", side=4000).shape == (10, 12, 3)


def test_image_files_are_served_unchanged(recording):
    view = view_of(recording)
    assert view.picture(4, "image") == (FRAMES[4], "image/jpeg")
    assert decode_picture(view.picture(4, "image", 16)).shape == (12, 16, 3)
    assert decode_picture(view.picture(4, "image", 640)).shape == (48, 64, 3)


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record", "parquet"])
def test_views_of_tfds_datasets_equal_their_columns(file_format, tmp_path):
    # A copy, because an index is written next to the files.
    path = shutil.copytree(f"{GOLDEN}/tfds_4_9_10/{file_format}", tmp_path / "golden")
    source = sources.formats()["tfds"].load()(path, decode_images=False)
    for index in range(source.num_episodes("train")):
        columns = sources.Episodes(source, "train").episode(index).steps
        # A field with nested fields has no column of its own.
        spec = dict(leaves_at(sources.Episodes(source, "train").spec["steps"], None))
        columns = {name: columns_at(columns, name) for name in spec}
        view = view_of(path, index, "train")
        kinds, _ = check_values(view, columns)
        decoded = sources.open(path, "train").columns(
            index, [name for name, kind in kinds.items() if kind == "picture"]
        )
        for name, images in leaves_at(decoded, None):
            for step, image in enumerate(images):
                if image.dtype == np.uint8 and not columns[name][step].startswith(b"\xff\xd8"):
                    pixels = decode_picture(view.picture(step, name))
                    np.testing.assert_array_equal(
                        pixels, image[..., 0] if image.shape[-1] == 1 else image
                    )
                else:
                    decode_picture(view.picture(step, name))


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_steps_without_flags_are_shown(file_format, tmp_path):
    step = tfds_files.Features(features={"reward": tfds_files.Tensor(dtype=np.dtype(np.float32))})
    features = tfds_files.Features(features={"steps": tfds_files.Dataset(feature=step)})
    with tfds_files.append_to(tmp_path, features, "bare", file_format=file_format) as writer:
        writer.add({"steps": {"reward": np.arange(5, dtype=np.float32)}})
    check_values(view_of(tmp_path), {"reward": np.arange(5)})


def columns_at(columns, path):
    for name in path.split("/"):
        columns = columns[name]
    return columns


def test_the_view_shows_the_values_of_minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    path = raw_minari.write_buffers("tiny-v0")
    episodes = sources.open(path)
    for index in (0, 1):
        view = view_of(path, index)
        columns = dict(leaves_at(episodes.columns(index, decode_images=False), None))
        kinds, summary = check_values(view, columns)
        for name, kind in kinds.items():
            if kind == "picture":
                for step in (0, view.num_steps - 1):
                    pixels = decode_picture(view.picture(step, name))
                    stored = columns[name][step]
                    if isinstance(stored, np.ndarray):
                        np.testing.assert_array_equal(pixels, stored)
        assert summary["metadata"]["attributes"]


# --- Long episodes.


@pytest.fixture(scope="module")
def long_episode(tmp_path_factory):
    """An episode of 300 steps as a log and as a dataset of TFDS."""
    path = tmp_path_factory.mktemp("long")
    content = tiny_datasets.episode(300, seed=3)
    tiny_datasets.write_dataset(path / "tfds", [content])
    columns = content["steps"]
    writer = RiegeliBackendWriter(path / "log")
    for t in range(300):
        reward = (None, None) if t == 0 else (float(columns["reward"][t - 1]), 1.0)
        observation = {name: column[t] for name, column in columns["observation"].items()}
        kind = dm_env.StepType(0 if t == 0 else 2 if t == 299 else 1)
        timestep = dm_env.TimeStep(kind, *reward, observation)
        action = None if t == 0 else columns["action"][t - 1]
        writer.record_step(StepData(timestep, action, {"time": 100 + t / 10}), t == 0)
        writer.push()
    writer.close()
    return path, columns


@pytest.mark.parametrize("kind", ["log", "tfds"])
def test_curves_have_few_evenly_spaced_points(kind, long_episode, monkeypatch):
    path, columns = long_episode
    monkeypatch.setattr(steps, "MAX_POINTS", 50)
    monkeypatch.setattr(episode_view, "_MAX_TOTAL_POINTS", 60)
    view = view_of(path / kind)
    for name, column, num_points in [
        ("reward", columns["reward"], 50 if kind == "tfds" else 20),
        ("observation/position", columns["observation"]["position"], 20),
    ]:
        series = view.series(name)
        assert len(series["steps"]) == num_points
        assert (series["steps"][0], series["steps"][-1]) == (0, 299)
        assert set(np.diff(series["steps"])) <= ({6, 7} if num_points == 50 else set(range(12, 20)))
        last = -1 if kind == "log" and name == "reward" else None
        curves = np.array(series["series"], np.float64).T[:last]
        expected = column[series["steps"]].reshape(num_points, -1)[:last]
        np.testing.assert_allclose(curves, expected, rtol=1e-6)


def test_rewards_of_a_long_log_are_read_gradually(long_episode, monkeypatch):
    path, columns = long_episode
    monkeypatch.setattr(steps, "MAX_POINTS", 50)
    view = view_of(path / "log")
    summary = view.summary(0)
    assert not summary["is_complete"]
    read_steps = [step for step, reward in enumerate(summary["rewards"]) if reward is not None]
    assert 0 < len(read_steps) < 10
    # Missing times are interpolated.
    assert summary["times"] is None or len(summary["times"]) == 300
    for _ in range(400):
        if summary["is_complete"]:
            break
        summary = view.summary(0)
    expected = columns["reward"].astype(float).tolist()[:-1]
    assert summary["rewards"] == [*expected, None]
    assert summary["times"] == pytest.approx([t / 10 for t in range(300)], abs=1e-3)


# --- Damaged, small and missing data.


def test_a_step_without_a_frame_has_no_picture(tmp_path):
    raw_droid.write_folder(tmp_path)
    view, camera = view_of(tmp_path, 2), "observation/images/wrist"
    rows = [view.step(step)["values"] for step in (4, 5)]
    assert [values[f"{camera}_known"] for values in rows] == [True, False]
    assert [values[camera] is None for values in rows] == [False, True]
    assert decode_picture(view.picture(4, camera)).any()
    with pytest.raises(KeyError, match="Step 5 has no picture"):
        view.picture(5, camera)


def test_unknown_steps_and_fields_raise_lookup_errors(recording):
    view = view_of(recording)
    for step in (-1, T, 2**63):
        with pytest.raises(IndexError, match=f"no step {step}"):
            view.step(step)
        with pytest.raises(IndexError):
            view.picture(step, "image")
    for path in ("", "nope", "observation", "../image", "image/", "x" * 10_000):
        with pytest.raises(KeyError):
            view.picture(0, path)
        with pytest.raises(KeyError):
            view.series(path)
    with pytest.raises(KeyError, match="no pictures"):
        view.picture(0, "reward")
    with pytest.raises(KeyError, match="no numbers"):
        view.series("image")


def test_custom_data_may_change_its_structure(tmp_path):
    path = tmp_path / "log"
    writer = RiegeliBackendWriter(path)
    for t, custom in enumerate(
        [{"a": 1}, {"a": (1, "x"), "b/c": {2: "two"}}, None, "text", {"z": 0}]
    ):
        writer.record_step(
            StepData(dm_env.restart({}) if t == 0 else dm_env.transition(0.0, {}), 1, custom),
            t == 0,
        )
    writer.close()
    view = view_of(path)
    view.summary()
    assert view.step(0)["values"]["a"] == 1
    assert view.step(1)["values"]["a/1"] == "x"
    assert view.step(1)["values"]["b/c/2"] == "two"
    assert view.step(4)["values"]["z"] == 0
    assert "z" not in view.step(3)["values"]
    assert view.series("a")["series"] == [[1, None, None, None, None]]


def test_damaged_episode_does_not_hide_other_episodes(tmp_path):
    path = tmp_path / "data"
    content = [tiny_datasets.episode(4, seed=seed) for seed in range(3)]
    tiny_datasets.write_dataset(path, content)
    [file] = path.glob("*tfrecord-*")
    data = bytearray(file.read_bytes())
    offset = bytes(data).index(content[1]["steps"]["observation"]["position"].tobytes())
    data[offset] ^= 1
    file.write_bytes(data)
    with pytest.raises(sources.SourceError, match="checksum"):
        view_of(path, 1)
    assert view_of(path, 2).step(3)["values"]["action"] == content[2]["steps"]["action"][3]


def test_damaged_step_of_a_log_does_not_hide_other_steps(long_episode, tmp_path):
    path, columns = long_episode
    damaged = tmp_path / "log"
    [shard] = [entry for entry in (path / "log").iterdir() if entry.is_dir()]
    (damaged / shard.name).mkdir(parents=True)
    for file in (path / "log").rglob("*.riegeli"):
        data = bytearray(file.read_bytes())
        if file.name == "steps.riegeli":
            data[len(data) // 2] ^= 1
        (damaged / file.relative_to(path / "log")).write_bytes(data)
    view = view_of(damaged)
    while not (summary := view.summary())["is_complete"]:
        pass
    rewards = summary["rewards"]
    missing_steps = [step for step, reward in enumerate(rewards) if reward is None]
    assert 1 < len(missing_steps) < 299
    with pytest.raises(envlogger.errors.EnvLoggerError, match="damaged"):
        view.step(missing_steps[0] + 1)
    intact_step = rewards.index(next(reward for reward in rewards if reward is not None))
    assert view.step(intact_step)["values"]["reward"] == columns["reward"][intact_step]


def test_file_truncated_while_open_raises_an_error(tmp_path):
    path = tmp_path / "data"
    tiny_datasets.write_dataset(path, [tiny_datasets.episode(4)])
    view = view_of(path)
    view.step(0)
    [file] = path.glob("*tfrecord-*")
    with open(file, "r+b") as handle:
        handle.truncate(10)
    with pytest.raises(sources.SourceError, match="cut"):
        view.step(1)
    with pytest.raises(sources.SourceError, match="cut"):
        view.series("reward")


def test_damaged_or_huge_pictures_are_not_decoded(tmp_path):
    path = tmp_path / "log"
    writer = RiegeliBackendWriter(path)
    good = encode_image(np.zeros((8, 8, 3), np.uint8), "PNG")
    bomb = good[:16] + (50_000).to_bytes(4, "big") * 2 + good[24:]
    for t, image in enumerate([good, good[:40], bomb, b"\xff\xd8\xff" + bytes(100), b"", b"text"]):
        kind = dm_env.StepType.FIRST if t == 0 else dm_env.StepType.MID
        timestep = dm_env.TimeStep(kind, 0.0, 1.0, {"image": image})
        writer.record_step(StepData(timestep, 0), t == 0)
    writer.close()
    view = view_of(path)
    assert view.picture(0, "observation/image") == (good, "image/png")
    for step in range(1, 6):
        with pytest.raises(ValueError, match=r"picture|pixels"):
            view.picture(step, "observation/image", side=8)
        view.step(step)
