"""Faults of robot datasets, in small copies of Open X-Embodiment."""

import json
import shutil

import numpy as np
import pytest
import raw_oxe

import rlds_tools
from rlds_tools.command_line.commands import run

SHORT = ("warning", "the episode has 2 steps")
ZERO = "a placeholder, or actions are one step late"


def list_findings(path):
    (check,) = rlds_tools.validate(path).checks
    return [(finding.severity, finding.text) for finding in check.findings]


def list_hints(path):
    (check,) = rlds_tools.validate(path).checks
    return {finding.text: finding.hint for finding in check.findings if finding.hint}


def test_zero_first_actions_are_a_known_defect_of_bridge(tmp_path):
    path = raw_oxe.bridge_dataset(tmp_path / "bridge_dataset" / "1.0.0", lengths=(6, 2, 9, 5))
    text = f"the first action is zero in 3 of 3 episodes: {ZERO}"
    assert list_findings(path) == [
        ("warning", "language_instruction is empty"),
        SHORT,
        ("warning", text),
    ]
    hint = "known defect of bridge_dataset: the first action of each episode is zero"
    assert list_hints(path) == {text: hint}


def test_last_flags_that_are_never_true_are_errors(tmp_path):
    path = raw_oxe.roboturk(tmp_path / "roboturk" / "1.0.0")
    text = "is_last is false, but this is the last step"
    assert ("error", text) in list_findings(path)
    assert "the episodes of the files are the boundaries" in list_hints(path)[text]


def test_folders_must_have_the_names_of_their_datasets(tmp_path):
    path = tmp_path / "bridge_orig" / "1.0.0"
    raw_oxe.bridge_dataset(path)
    text = (
        "the folder is named 'bridge_orig', but dataset_info.json has the name 'bridge_dataset': "
    )
    assert list_findings(path)[0] == (
        "warning",
        f"{text}tfds.load('bridge_orig') does not find the dataset",
    )
    # Neither a config between the names nor a name without a registry entry is a finding.
    path = tmp_path / "mt_opt" / "rlds" / "1.0.0"
    raw_oxe.mt_opt(path)
    assert not [text for _, text in list_findings(path) if "folder" in text]
    path = tmp_path / "mine" / "1.0.0"
    raw_oxe.bridge_dataset(path, "other")
    assert not [text for _, text in list_findings(path) if "folder" in text]
    path = tmp_path / "fractal_2022" / "1.0.0"
    raw_oxe.fractal(path, "fractal20220817data")
    text = "the name 'fractal20220817data' resembles the known dataset 'fractal20220817_data'"
    assert ("warning", f"{text}, check it") in list_findings(path)


def test_fields_that_differ_from_the_registry_are_warnings(tmp_path):
    path = tmp_path / "fractal20220817_data" / "1.0.0"
    raw_oxe.bridge_dataset(path, "fractal20220817_data")
    text = "action/world_vector is missing, but fractal20220817_data has this field"
    assert ("warning", text) in list_findings(path)
    (path / "metadata.json").write_text(
        json.dumps({"rlds_robotics": {"action": {"action[0:8]": "joint_delta"}}})
    )
    text = "action has 7 elements, expected 8 as in fractal20220817_data"
    assert ("warning", text) in list_findings(path)
    (path / "metadata.json").write_text('{"rlds_robotics": {"action": {"action": "arm"}}}')
    assert any("action is 'arm', expected one of" in text for _, text in list_findings(path))
    assert rlds_tools.inspect(path).robotics is None


def test_missing_and_surplus_files_are_errors(tmp_path):
    path = tmp_path / "fractal20220817_data" / "1.0.0"
    raw_oxe.fractal(path, lengths=(3, 4, 5, 6), max_examples_per_shard=2)
    first, last = sorted(path.glob("*tfrecord*"))
    shutil.copy(first, path / "fractal20220817_data-train.tfrecord-00004")
    errors = [text for severity, text in list_findings(path) if severity == "error"]
    assert len(errors) == 1
    assert "dataset_info.json lists 2 files of the split 'train', but not" in errors[0]
    last.unlink()
    (severity, text), *more = list_findings(path)
    assert (severity, more) == ("error", [])
    assert text.startswith(str(last))
    assert "dataset_info.json declares 2" in text


def test_inspect_and_stats_name_the_elements_of_known_robots(tmp_path, capsys):
    path = raw_oxe.fractal(tmp_path / "fractal20220817_data" / "0.1.0")
    text = str(rlds_tools.inspect(path))
    assert "known dataset fractal20220817_data: Google Robot · 3 Hz · gripper: +1 closes" in text
    row = r"  6     gripper      action/gripper_closedness_action[0]"
    assert any(line.startswith(row) and "-1 to 1" in line for line in text.splitlines())
    assert "m, assumed" in text
    assert run(["inspect", path, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)["robotics"]
    assert content["action"][6]["high"] == 1
    assert content["disagreements"][0]["about"] == "gripper"
    # Statistics have the same names.
    rows = rlds_tools.stats(path, fields=["action/world_vector"]).text()
    assert "action/world_vector[2] z" in rows
    names = rlds_tools.stats(path, fields=["action/world_vector", "reward"]).to_dict()["names"]
    assert names == {"action/world_vector": ["x", "y", "z"]}
    # Datasets without an entry have no robotics.
    path = raw_oxe.bridge_dataset(tmp_path / "other" / "1.0.0", "other")
    assert rlds_tools.inspect(path).robotics is None
    (tmp_path / "other" / "1.0.0" / "metadata.json").write_text(
        '{"rlds_robotics": {"robot": "mine", "action": {"action[0:3]": "position_delta"}}}'
    )
    assert "known dataset other: mine" in str(rlds_tools.inspect(path))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_actions_that_are_sometimes_zero_are_no_fault(tmp_path, shape):
    rng = np.random.default_rng(0)
    for index in range(4):
        action = rng.normal(size=(9, *shape)) * rng.integers(0, 2, (9, *[1] * len(shape)))
        action[0] = 0
        observation = rng.normal(size=(10, 2))
        np.savez(tmp_path / f"{index}.npz", observation=observation, action=action)
    assert not [text for _, text in list_findings(tmp_path) if "first action" in text]
