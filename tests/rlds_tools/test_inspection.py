import json
import re
from pathlib import Path

import numpy as np
import pytest
import raw_imitation
import raw_lerobot

import rlds_tools
import tfds_files
from rlds_tools.command_line.commands import run
from rlds_tools.inspection import InspectedField, InspectedSplit


def test_a_dataset_is_described_without_being_read(dataset, tmp_path, capsys):
    result = rlds_tools.inspect(dataset)
    assert (result.format, result.name, result.version) == ("tfds", "tiny", "1.0.0")
    (split,) = result.splits
    assert (split.name, split.episodes, split.files) == ("train", 3, 1)
    assert rlds_tools.inspect(dataset, split="train").splits == result.splits
    assert run(["inspect", dataset, "--split", "test"]) == 1
    assert "no split 'test'; there are: train" in capsys.readouterr().err
    assert InspectedField("observation/camera", "uint8", (8, 8, 3), "PNG") in result.step_fields
    assert InspectedField("action", "int64", (), "Which way to go.") in result.step_fields
    assert [field.name for field in result.step_fields[-3:]] == [
        "is_first",
        "is_last",
        "is_terminal",
    ]
    assert result.episode_fields == (InspectedField("episode_id", "string", ()),)
    # A folder above gives the same, and so do the features that decode the steps.
    assert rlds_tools.inspect(Path(dataset).parent).step_fields == result.step_fields
    decoded = {
        leaf.name: leaf.feature
        for leaf in tfds_files.features.leaves_of(tfds_files.open_folder(dataset).features)
    }
    for field in result.step_fields:
        feature = decoded[f"steps/{field.name}"]
        assert (field.dtype, field.shape) == (feature.dtype.name, feature.shape)


def test_a_log_is_described_with_the_lengths_of_its_episodes(log):
    result = rlds_tools.inspect(log)
    assert (result.format, result.name) == ("envlogger", "catch")
    assert result.splits == (InspectedSplit("train", 3, 30, lengths=(10, 10.0, 10)),)
    assert InspectedField("observation", "float32", (10, 5)) in result.step_fields
    assert "10  10  10" in str(result)


def test_an_episode_and_a_step_show_their_values(dataset):
    view = rlds_tools.inspect_episode(dataset, -1)
    assert (view.episode, view.num_steps, len(view.steps)) == (2, 30, 20)
    steps = tfds_files.open_folder(dataset)["train"][2]["steps"]
    assert view.total_reward == pytest.approx(steps["reward"][:-1].sum())
    assert "showing 20 of 30 steps" in str(view)
    assert view.steps[-1]["flags"] == "last terminal"
    step = rlds_tools.inspect_step(dataset, 2, -1)
    np.testing.assert_array_equal(
        step.fields["observation/position"], steps["observation"]["position"][-1]
    )
    assert step.fields["observation/camera"].shape == (8, 8, 3)
    assert json.loads(json.dumps(step.to_dict()))["fields"]["action"] == steps["action"][-1]
    with pytest.raises(IndexError, match="no step 30; episode 2 has 30 steps"):
        rlds_tools.inspect_step(dataset, 2, 30)


def test_a_folder_of_imitation_is_not_taken_for_tfds(tmp_path):
    """Both formats have a dataset_info.json."""
    result = rlds_tools.inspect(raw_imitation.write(tmp_path))
    assert (result.format, result.splits[0].episodes) == (
        "imitation",
        len(raw_imitation.trajectories()),
    )


def test_records_of_a_single_file_are_counted(dataset, log, tmp_path):
    (shard,) = Path(dataset).glob("*tfrecord*")
    (copy := tmp_path / "some.tfrecord").write_bytes(shard.read_bytes())
    assert rlds_tools.inspect(copy).records == 3
    (steps,) = Path(log).glob("*/steps.riegeli")
    assert rlds_tools.inspect(steps).records == 30


def test_unreadable_paths_are_errors_with_a_reason(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        rlds_tools.inspect(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="an empty folder"):
        rlds_tools.inspect(tmp_path)
    (tmp_path / "dataset_info.json").write_text("[1]")
    with pytest.raises(tfds_files.DamagedFileError, match="expected a dict"):
        rlds_tools.inspect(tmp_path)
    (tmp_path / "dataset_info.json").write_text('{"splits": 7}')
    with pytest.raises(tfds_files.DamagedFileError, match="the metadata is malformed"):
        rlds_tools.inspect(tmp_path)


def test_recordings_of_robots_show_cameras_and_tasks(tmp_path):
    path = raw_lerobot.write_v3(tmp_path / "robot", codecs={"observation.images.top": "h264"})
    text = str(rlds_tools.inspect(path))
    assert "recorded: so100 · 10 frames per second · 0.0 minutes" in text
    assert re.search(r"observation\.images\.top +\d+ x \d+ +video h264", text)
    assert re.search(r"observation\.images\.wrist +4 x 6 +image", text)
    tasks = "2 tasks: pick the cup (3 episodes); place it on the täble (1 episode)"
    assert tasks in text
    # One episode has both. For chosen episodes the counts are unknown.
    assert tasks in str(rlds_tools.inspect(raw_lerobot.write_v2(tmp_path / "older")))
    text = str(rlds_tools.inspect(path, where="steps > 3"))
    assert "2 tasks: pick the cup; place it on the täble" in text
    step = rlds_tools.inspect_step(path, 1, 2)
    assert step.fields["observation/images/top"].ndim == 3


def test_options_of_the_format_reach_each_command(tmp_path, capsys):
    arrays = {"state": np.zeros((5, 2)), "act": np.arange(4.0)}
    np.savez(tmp_path / "a.npz", **arrays)
    words = ["inspect", str(tmp_path), "--format", "npz", "-O", "observation=state"]
    assert run(words) == 1
    assert "-O action=NAME" in capsys.readouterr().err
    words += ["-O", "action=act"]
    assert run(words) == 0
    assert "observation" in capsys.readouterr().out
    assert run([*words, "--where", "steps = 5"]) == 0
    assert run([*words, "--episode", "0", "--step", "3"]) == 0
    assert "action" in capsys.readouterr().out
    # Commands other than inspect take the same options.
    flags = words[2:]
    assert run(["card", str(tmp_path), *flags]) == 0
    assert "| `action` | float64 |" in capsys.readouterr().out
    assert run(["label", "add", str(tmp_path), "quality", "0", "good", "--by", "ann", *flags]) == 0
    assert run(["label", str(tmp_path), *flags, "-q"]) == 0
    assert run(["label", "export", str(tmp_path), str(tmp_path / "labels.csv"), *flags]) == 0
    assert "1 label" in capsys.readouterr().out
    assert run(["label", str(tmp_path), "-O", "no=1", "--format", "npz"]) == 2
    assert run([*words, "-O", "colour=red"]) == 2
