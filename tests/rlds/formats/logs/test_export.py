"""Exports of logs, from other formats and from logs, whose episodes are copied as stored."""

import json

import dm_env
import numpy as np
import pytest
import raw_npz
from recorded_episodes import write_episode
from robot_source import RobotSource

import envlogger
import riegeli
import rlds
from envlogger import RiegeliBackendWriter
from envlogger.backends.riegeli_files.assembler import LogAssembler
from envlogger.errors import EnvLoggerError
from rlds.editing import Add, Delete, Drop, Merge, Set, Trim
from rlds.sources import export
from rlds.sources.testing import differences

FIRST, MID, LAST = dm_env.StepType


def make_steps(index, length, *, first=FIRST, last=LAST):
    """Yields steps with values that only logs have: tuples, None, texts and custom data."""
    for row in range(length):
        is_last = row == length - 1
        kind = first if row == 0 else last if is_last else MID
        discount = None if row == 0 else float(not (is_last and index % 2))
        observation = {
            "image": np.full((30, 30), index + row, np.uint8),
            "pose": (np.float32([row, index]), f"{index}.{row}"),
        }
        timestep = dm_env.TimeStep(kind, None if row == 0 else 1.0, discount, observation)
        yield envlogger.StepData(timestep, None if row == 0 else np.int32([row]), {"row": row})


@pytest.fixture
def log(tmp_path):
    """Ten episodes; some begin or end in the middle, and chunks have steps of several episodes."""
    path = tmp_path / "log"
    with RiegeliBackendWriter(
        path, 4, "zstd,chunk_size:5000", metadata={"who": "Ada"}, flush_interval=None
    ) as writer:
        for index in range(10):
            kinds = {"first": MID} if index == 4 else {"last": MID} if index == 5 else {}
            metadata = {"seed": index, "note": "x" * index}
            with writer.episode(metadata if index != 7 else None) as record:
                for step in make_steps(index, 3 + index, **kinds):
                    record(step)
    return path


def read(path):
    with envlogger.Reader(path) as reader:
        metadata = list(reader.episode_metadata())
        return [list(map(to_text, episode)) for episode in reader.episodes], metadata


def to_text(step):
    """Returns a step as text, with fields in one order."""
    observation = sorted(step.timestep.observation.items())
    return repr(step._replace(timestep=step.timestep._replace(observation=observation)))


def test_episodes_are_copied(log, tmp_path):
    episodes, metadata = read(log)
    rlds.edit(log, Delete(episodes=[0, 3]), to=tmp_path / "less")
    remaining = [index for index in range(10) if index not in (0, 3)]
    expected = (
        [episodes[index] for index in remaining],
        [metadata[index] for index in remaining],
    )
    assert read(tmp_path / "less") == expected
    rlds.edit(log, Delete(episodes=[0, 3]), to=tmp_path / "again")
    files = [
        {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*.riegeli")}
        for path in (tmp_path / "less", tmp_path / "again")
    ]
    assert files[0] == files[1]
    with envlogger.Reader(tmp_path / "less") as reader:
        assert reader.metadata()["who"] == "Ada"
        assert json.loads(reader.metadata()["lineage"])["kept"] == 8
        assert not reader.damage()
    # The index can be rebuilt from the first steps of episodes.
    for name in ("episode_index", "step_offsets"):
        for file in (tmp_path / "less").glob(f"*/{name}.riegeli"):
            file.unlink()
    envlogger.recover(tmp_path / "less", in_place=True)
    assert read(tmp_path / "less")[0] == expected[0]


def test_only_changed_episodes_are_recorded_again(log, tmp_path):
    episodes, _ = read(log)
    before = list(rlds.sources.open(log))
    rlds.edit(log, Set("note", "mended", where="index = 2"), Trim(1, 3, where="index = 6"))
    new_episodes, metadata = read(log)
    assert metadata[2] == {"seed": 2, "note": "mended"}
    indices = [index for index in range(10) if index not in (2, 6)]
    assert [new_episodes[index] for index in indices] == [episodes[index] for index in indices]
    opened = rlds.sources.open(log)
    assert [len(episode) for episode in opened] == [3, 4, 5, 6, 7, 8, 2, 10, 11, 12]
    assert list(differences(before[2], opened[2], {"note"})) == []
    assert opened[6]["observation"]["pose"]["0"].tolist() == [[1, 6], [2, 6]]
    assert "('pose', (array(" in new_episodes[2][0]


def test_custom_data_fields_change_and_the_environment_stays_as_recorded(tmp_path):
    write_episode(tmp_path / "log", 4)
    tags = [False, True, False, False]
    changes = Drop("image"), Add("steps/tag:b", lambda _: tags)
    rlds.edit(tmp_path / "log", *changes, to=tmp_path / "x")
    with envlogger.Reader(tmp_path / "log") as reader, envlogger.Reader(tmp_path / "x") as edited:
        assert edited.observation_spec() == reader.observation_spec()
        assert edited.action_spec().num_values == 4
        assert edited.episode_metadata()[0] == reader.episode_metadata()[0]
        for before, after, tag in zip(reader.episodes[0], edited.episodes[0], tags, strict=True):
            assert repr(after[:2]) == repr(before[:2])
            custom_data = {
                name: each for name, each in before.custom_data.items() if name != "image"
            }
            assert after.custom_data == {**custom_data, "tag:b": tag}


def test_exported_logs_are_copied_when_they_are_merged(tmp_path):
    for name, seed in (("a", 0), ("b", 9)):
        files = {f"{name}{n}.npz": raw_npz.episode(4, seed=seed + n) for n in range(3)}
        raw_npz.write_folder(tmp_path / f"raw_{name}", files)
        export(tmp_path / f"raw_{name}", "envlogger", tmp_path / name)
    rlds.edit(tmp_path / "a", Delete(episodes=[1]), Merge([tmp_path / "b"]), to=tmp_path / "both")
    before = [*rlds.sources.open(tmp_path / "a"), *rlds.sources.open(tmp_path / "b")]
    merged = rlds.sources.open(tmp_path / "both")
    assert len(merged) == 5
    for original, copy in zip([before[0], *before[2:]], merged, strict=True):
        assert list(differences(original, copy)) == []
    chunks = [_read_chunks(tmp_path / name) for name in ("a", "b", "both")]
    assert list(map(len, chunks)) == [1, 1, 2]
    assert chunks[2][1] == chunks[1][0]


def _read_chunks(log):
    """Returns the chunks of the steps of a log."""
    (file,) = log.glob("*/steps.riegeli")
    with riegeli.RecordReader(file) as reader:
        offsets = {reader.last_pos.chunk_begin for _ in reader.read_records()}
        return [reader.read_chunk(offset).content for offset in sorted(offsets)]


def test_values_that_a_log_cannot_hold_are_kept_in_the_sidecar(log, tmp_path):
    export(log, "webdataset", tmp_path / "shards")
    exported = export(tmp_path / "shards", "envlogger", tmp_path / "made")
    assert {placement.how for placement in exported.placements} == {"exact"}
    before, after = rlds.sources.open(log), rlds.sources.open(tmp_path / "made")
    for episode, copy in zip(before, after, strict=True):
        assert list(differences(episode, copy)) == []
    with envlogger.Reader(tmp_path / "made") as reader:  # EnvLogger reads the steps, too.
        assert reader.episodes[1][3].timestep.reward == 1
        assert reader.episodes[1][1].action.tolist() == [1]
        assert reader.observation_spec()["image"].shape == (30, 30)
        assert reader.episode_metadata()[3]["seed"] == 3


def test_image_files_are_stored_in_the_log(tmp_path):
    exported = export(RobotSource(), "envlogger", tmp_path / "log")
    placements = {placement.field: placement.how for placement in exported.placements}
    assert placements["steps/observation/wrist"] == "exact"
    files = RobotSource().read("train", 0)["observation"]["wrist"].tolist()
    assert files[0][:4] == b"\x89PNG"
    with envlogger.Reader(tmp_path / "log") as reader:
        assert [step.timestep.observation["wrist"] for step in reader.episodes[0]] == files
        assert reader.observation_spec()["wrist"].string_type is bytes
    episodes = rlds.sources.open(tmp_path / "log")
    assert episodes.spec["steps"]["observation"]["wrist"].encoding == "png"
    assert episodes[0]["observation"]["wrist"].tolist() == files


def test_edits_of_damaged_logs_are_refused_or_skip_damaged_episodes(log, monkeypatch):
    episodes, metadata = read(log)
    [*_, file] = sorted(log.glob("*/steps.riegeli"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    names = sorted(log.parent.rglob("*"))
    with pytest.raises((EnvLoggerError, rlds.sources.SourceError), match="damaged"):
        rlds.edit(log, Delete(episodes=[1]))
    assert sorted(log.parent.rglob("*")) == names
    assert file.read_bytes() == content
    # Intact episodes are copied as stored: none is recorded again.
    monkeypatch.setattr(LogAssembler, "add", None)
    with pytest.warns(UserWarning, match="damaged and left out, the first: "):
        edited = rlds.edit(log, Delete(episodes=[1]), skip_damaged=True)
    assert 5 <= edited.num_episodes < 9
    remaining, metadata_kept = read(log)
    indices = [index for index in range(10) if episodes[index] in remaining]
    assert len(indices) == edited.num_episodes
    assert remaining == [episodes[index] for index in indices]
    assert metadata_kept == [metadata[index] for index in indices]


def test_the_old_log_that_an_edit_keeps_is_not_read_with_the_new_log(log, tmp_path):
    rlds.edit(log, Delete("index = 1"), keep_old=True)
    assert len(rlds.sources.open(f"{log}.old")) == len(rlds.sources.open(log)) + 1
    assert len(rlds.sources.open(tmp_path)) == len(rlds.sources.open(log))
