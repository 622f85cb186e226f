import contextlib
import json
import os
import re
import shutil
from pathlib import Path

import audited_data
import numpy as np
import pytest
import raw_droid
import raw_lerobot
from tiny_datasets import episode, write_dataset

import rlds
import rlds_tools
from rlds import editing
from rlds.auditing import CHECKS
from rlds_tools.command_line.commands import run
from tfds_files import png


def validate(path, **options):
    """Returns the severity, the text and the episodes of each finding in the single split."""
    (check,) = rlds_tools.validate(path, **options).checks
    return [(finding.severity, finding.text, finding.episodes) for finding in check.findings]


@pytest.fixture(scope="session")
def faulty(tmp_path_factory):
    """A dataset with one of each fault that can be in the content of episodes."""
    episodes = [episode(length, seed=length) for length in (12, 8, 30, 11, 2, 40, 9)]
    steps = [content["steps"] for content in episodes]
    for content in steps:
        content["observation"]["position"][:, 1] = 0
        content["action"][:] = 3
        x = content["observation"]["position"][:, 0]
        x.clip(-0.3, None, out=x)
        content["is_terminal"][:] = False
    steps[0]["is_last"][:] = False
    steps[6]["is_last"][:] = False
    steps[1]["observation"]["camera"][:] = 0
    steps[2]["observation"]["camera"][:] = 77
    steps[5]["observation"]["camera"][:] = steps[5]["observation"]["camera"][0]
    steps[5]["observation"]["position"][3, 2] = np.nan
    steps[3].update({**steps[0], "is_last": np.arange(12) == 11})
    return write_dataset(tmp_path_factory.mktemp("faulty") / "faulty" / "1.0.0", episodes)


def test_sound_data_has_no_findings(dataset, log):
    assert validate(dataset) == []
    # Some squares of the board are never used, which is no fault.
    assert validate(log) == [("warning", "action is 1 in all steps", ())]


def test_each_fault_is_found_once_with_its_episodes(faulty):
    camera, position = "observation/camera", "observation/position"
    share = next(text for _, text, _ in validate(faulty) if "lowest" in text)
    assert validate(faulty) == [
        ("error", "is_last is false, but this is the last step", (0, 6)),
        ("warning", f"{camera} is black", (1,)),
        ("warning", f"{camera} shows a single color", (2,)),
        ("warning", "the episode has 2 steps", (4,)),
        ("warning", f"{camera} is frozen", (5,)),
        ("warning", f"{position}[2] is NaN", (5,)),
        ("warning", "action is 3 in all steps", ()),
        ("warning", f"{position}[1] is 0 in all steps", ()),
        ("warning", share, ()),
        ("warning", "same observations and actions as episode 0", (3,)),
        ("warning", "is_terminal is false in all steps of all episodes", ()),
    ]
    assert share.startswith(f"{position}[0] is at its lowest value in ")
    (check,) = rlds_tools.validate(faulty).checks
    assert [finding.check for finding in check.findings] == [
        *("rules", "camera blank", "camera blank", "few steps", "camera blank", "not finite"),
        *("constant", "constant", "limit", "duplicate", "terminal"),
    ]
    severities = {check.name: check.severity for check in CHECKS}
    assert all(severities[finding.check] == finding.severity for finding in check.findings)
    findings = validate(faulty, split="train[3:]")  # Episode numbers are those of the split.
    assert ("warning", "the episode has 2 steps", (4,)) in findings
    assert ("error", f"{position}: nan in 1 of 3 elements", (5,)) in validate(
        faulty, finite=["observation/position"]
    )


def test_the_command_prints_findings_and_exits_with_1_on_errors(faulty, dataset, tmp_path, capsys):
    assert run(["validate", dataset]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "0 errors, 0 warnings",
        f"next: rlds report {dataset} --open",
    ]
    assert run(["validate", dataset, faulty, "--max", "1"]) == 1
    text = capsys.readouterr().out
    assert "2 episodes, first: 0, step 11" in text
    assert "10 more findings" in text
    assert "severity  finding  what " in text
    assert "1 error, 10 warnings" in text
    assert text.splitlines()[-1] == f"next: rlds report {faulty} --episodes 0,1,2,4,5 --open"
    assert run(["validate", faulty, "--json"]) == 1
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["findings"][0]["episodes"] == [0, 6]
    assert check["findings"][0]["severity"] == "error"
    assert check["findings"][3]["texts"] == ["the episode has 2 steps"]
    (tmp_path / "x.bin").write_text("nothing")
    assert run(["validate", str(tmp_path / "x.bin")]) == 1
    assert f"error: {tmp_path / 'x.bin'}: unknown format" in capsys.readouterr().out
    assert run(["validate"]) == 2
    assert run(["validate", dataset, "--finite", "nothing"]) == 1
    assert "no field 'nothing'" in capsys.readouterr().err


def test_warnings_count_if_strict(tmp_path):
    path = write_dataset(tmp_path, [episode(5), episode(2, seed=1)])
    assert rlds_tools.validate(path).exit_code == 0
    assert rlds_tools.validate(path, strict=True).exit_code == 1


@contextlib.contextmanager
def replaced_bytes(path, old, new):
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    yield
    path.write_bytes(content)


def test_files_that_contradict_their_metadata_are_errors(tmp_path):
    path = Path(write_dataset(tmp_path, [episode(length, seed=length) for length in (5, 6)]))
    (shard,) = path.glob("*tfrecord*")
    with replaced_bytes(path / "dataset_info.json", b'"2"', b'"3"'):
        texts = [text for _, text, _ in validate(path)]
        assert "the file has 2 episodes, but dataset_info.json declares 3" in texts[0]
        assert "cannot be read" in texts[1]
    with replaced_bytes(path / "dataset_info.json", b'"2"', b'"1"'):
        assert "the file has 2 episodes, but dataset_info.json declares 1" in validate(path)[0][1]
    with replaced_bytes(shard, b"episode 6", b"episode 7"):
        ((severity, text, episodes),) = validate(path)
        assert (severity, episodes) == ("error", (1,))
        assert "checksum" in text
    (path / "metadata.json").write_text('{"conversion": {"splits": {"train": {"steps": 99}}}}')
    assert validate(path) == [("error", "the split has 11 steps, but the metadata says 99", ())]
    os.remove(shard)
    (check,) = rlds_tools.validate(path).checks
    assert "the file is missing" in check.findings[0].text
    assert rlds_tools.validate(path).exit_code == 1


def test_validation_stops_after_1000_unreadable_episodes(dataset, tmp_path):
    path = shutil.copytree(dataset, tmp_path / "endless")
    info = json.loads((path / "dataset_info.json").read_text())
    for split in info["splits"]:
        split["shardLengths"] = [str(10**12) for _ in split["shardLengths"]]
    (path / "dataset_info.json").write_text(json.dumps(info))
    (check,) = rlds_tools.validate(path).checks
    texts = [finding.text for finding in check.findings]
    assert any("dataset_info.json declares 1000000000000" in text for text in texts)
    assert "stopped at episode 1,003: the 1,000 episodes before it cannot be read" in texts


def test_images_are_decoded_only_with_checksums(tmp_path):
    content = episode(6)
    invalid_png = b"\x89PNG\r\n\x1a\n nothing"
    camera = content["steps"]["observation"]["camera"]
    frames = np.array([png.encode_png(frame) for frame in camera], object)
    frames[4] = invalid_png
    content["steps"]["observation"]["camera"] = frames
    path = write_dataset(tmp_path, [content])
    assert validate(path) == []
    ((severity, text, episodes),) = validate(path, checksums=True)
    assert (severity, episodes) == ("error", (0,))
    assert "observation/camera cannot be decoded" in text


@pytest.mark.parametrize("options", [{}, {"video": "frames"}])
def test_steps_without_a_frame_are_counted_by_camera(options, tmp_path):
    """The third episode has one video frame less than steps."""
    raw_droid.write_folder(tmp_path)
    findings = {text: episodes for _, text, episodes in validate(tmp_path, options=options)}
    for camera in ("wrist", "ext1"):
        assert findings[f"observation/images/{camera} has no frame in 1 step"] == (2,)
    assert sum("no frame" in text for text in findings) == 2
    assert "cannot be decoded" not in rlds_tools.report(tmp_path, episodes=[2]).content


def test_an_episode_without_steps_is_one_error(tmp_path):
    def without_rows(columns):
        is_nested = isinstance(columns, dict)
        return {k: without_rows(v) for k, v in columns.items()} if is_nested else columns[:0]

    empty = {**episode(5), "steps": without_rows(episode(5)["steps"])}
    path = write_dataset(tmp_path, [empty, episode(6, seed=1)])
    assert validate(path) == [("error", "no steps, expected at least one", (0,))]
    report = rlds_tools.report(path)
    assert [finding.check for finding in report.findings] == ["rules"]
    assert 0 in report.shown


def test_empty_instructions_are_warnings(tmp_path):
    for index, instruction in enumerate(("", "pick it up")):
        steps = {"observation": np.ones((3, 2)), "action": np.ones(2)}
        np.savez(tmp_path / f"{index}.npz", **steps, language_instruction=instruction)
    assert ("warning", "language_instruction is empty", (0,)) in validate(tmp_path)


def test_a_profile_checks_the_requirements_of_its_loaders(dataset, log):
    texts = [text for _, text, _ in validate(dataset, profile="octo")]
    assert any("language_instruction: no text in the steps" in text for text in texts)
    with pytest.raises(ValueError, match="works only with TFDS datasets"):
        rlds_tools.validate(log, profile="octo")
    with pytest.raises(FileNotFoundError):
        rlds_tools.validate(dataset, "/nowhere")


def test_elements_with_the_same_fault_share_a_finding(tmp_path):
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(100, 6)).clip(-0.5, 2)
    observation[:, [1, 4]], observation[:, 5] = 7, 0
    np.savez(tmp_path / "0.npz", observation=observation, action=rng.normal(size=(99, 2)))
    texts = [text for _, text, _ in validate(tmp_path)]
    assert texts[:2] == ["observation[5] is 0 in all steps", "observation[1, 4] is 7 in all steps"]
    assert re.fullmatch(r"observation\[0, 2, 3\] is at its lowest value in .* % of steps", texts[2])


def test_options_of_the_format_reach_the_source(tmp_path, capsys):
    path = str(raw_lerobot.write_v3(tmp_path / "robot"))
    for options, is_shown in (([], True), (["-O", "terminal=done"], False)):
        assert run(["validate", path, *options]) == 0
        assert ("is_terminal is false in all steps" in capsys.readouterr().out) == is_shown
    assert run(["validate", path, "-O", "unknown=1"]) == 2
    assert "lerobot has no option 'unknown'" in capsys.readouterr().err


def test_an_unreadable_dataset_does_not_hide_the_next(tmp_path, dataset):
    damaged, sound = rlds_tools.validate(tmp_path, dataset).checks
    assert damaged.findings[0].severity == "error"
    assert (damaged.episodes, sound.episodes) == (0, 3)


def test_actions_that_contradict_their_declared_meaning_are_warnings(tmp_path):
    audited_data.write(tmp_path / "arm", audited_data.make_episodes("arm", 31, 12))
    meaning = editing.SetMeaning("action", "delta"), editing.SetMeaning("action", unit="rad")
    path = str(tmp_path / "made")
    rlds.edit(tmp_path / "arm", *meaning, to=path, to_format="webdataset")
    warning = "action[0:6]: declared as delta, but the values are absolute"
    assert ("warning", warning, ()) in validate(path)
    absolute = editing.SetMeaning("action", "absolute", names=[*"abcdef", "gripper"])
    rlds.edit(path, absolute, editing.SetMeaning("observation/state", unit="rad"))
    field = rlds.sources.open(path).spec["steps"]["action"]
    assert (field.kind, field.unit, field.names) == ("absolute", "rad", (*"abcdef", "gripper"))
    assert not any("declared" in text for _, text, _ in validate(path))
    rlds.edit(path, editing.SetMeaning("observation/state", unit="deg"))
    assert any("declared in rad, and the state in deg" in text for _, text, _ in validate(path))
