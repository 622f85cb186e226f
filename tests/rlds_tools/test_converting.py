"""`rlds convert`, with a recognized format and with the name of a builder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from unittest import mock

import conversions
import forked
import h5py
import numpy as np
import pytest
import raw_d4rl
import tensorflow_datasets as tfds
from toy_source import ToySource

import rlds.labels
import rlds.sources
import rlds_tools
import tfds_builders
from rlds import sources
from rlds.sources import SourceInfo
from rlds.sources.digests import text_of
from rlds.sources.episode_fields import as_converted
from rlds_tools import converting
from rlds_tools.command_line import commands
from rlds_tools.converting import builders
from tfds_builders import quiet

D4rlSource = rlds.sources.formats()["d4rl"].load()

NAME = "halfcheetah_medium_replay-v1"


@pytest.fixture
def raw(tmp_path):
    return raw_d4rl.write_family(tmp_path, NAME)


@pytest.fixture
def damaged_run(tmp_path):
    """An Atari run of RL Unplugged whose second file is cut; its path looks like markup."""
    raw_rlu = pytest.importorskip("raw_rlu")
    directory = tmp_path / "[red]:100:"
    _, second = raw_rlu.write_files(directory, "run_1", raw_rlu.atari_episodes(shape=(6, 4)))
    second.write_bytes(second.read_bytes()[:-200])
    return directory


def run(dataset, *arguments, data_dir):
    return commands.run(["convert", "--dataset", dataset, *map(str, arguments), str(data_dir)])


def test_help_lists_the_options_of_each_format(capsys):
    assert commands.run(["convert", "--help"]) == 0
    assert "--skip-damaged" in capsys.readouterr().out
    assert commands.run(["list", "--formats"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    for format in sources.formats().values():
        json_options = [option for option in format.options.values() if option.is_json]
        assert all(f"{format.name} {option}" in output for option in json_options)
    assert "d4rl boundary=text | [text, ...] d4rl length=integer" in output


def test_all_builders_can_be_named():
    assert {"rlds_d4rl", "rlds_minari", "rlds_rlu_rwrl", "rlds_creator", "rlds_folder"} <= set(
        builders()
    )
    assert all(name.startswith("rlds_") for name in builders())


@pytest.mark.slow
def test_conversion_applies_options_and_overwrites_nothing(raw, tmp_path, capfd):
    options = ("--num-shards=2", "--float64=float32", "--tensor-encoding=zlib")
    assert run("rlds_d4rl", raw, *options, data_dir=tmp_path) == 0
    directory, counts, _ = capfd.readouterr().out.splitlines()
    assert directory.startswith(str(tmp_path / "rlds_d4rl"))
    assert re.fullmatch(r"train: \d+ episodes, \d+ steps, .*", counts)
    assert len([name for name in os.listdir(directory) if "tfrecord" in name]) == 2
    info = tfds.builder_from_directory(directory).info
    assert info.metadata["conversion"]["float64"] == "float32"
    assert info.features["steps"]["action"].to_json_content().encoding == "zlib"
    contents = conversions.contents(directory)
    assert run("rlds_d4rl", raw, data_dir=tmp_path) == 1
    assert "exists and is not overwritten" in capfd.readouterr().err
    assert conversions.contents(directory) == contents


def test_options_equal_the_arguments_of_convert(raw, tmp_path, capsys):
    folder = tmp_path / "one"
    assert run("rlds_d4rl", raw, "--to=array_record", "--no-shuffle", data_dir=folder) == 0
    converted = tfds_builders.convert(
        D4rlSource(raw),
        name="rlds_d4rl",
        data_dir=tmp_path / "two",
        file_format="array_record",
        shuffle=False,
    )
    directory = capsys.readouterr().out.splitlines()[0]
    assert conversions.records(directory) == conversions.records(converted.data_path)


def test_name_option_names_the_dataset_and_must_be_valid(raw, tmp_path, capsys):
    assert run("rlds_d4rl", raw, "--name", "cheetah", data_dir=tmp_path / "data") == 0
    directory, *_ = capsys.readouterr().out.splitlines()
    assert directory.startswith(str(tmp_path / "data" / "cheetah"))
    assert tfds.builder_from_directory(directory).name == "cheetah"
    assert run("rlds_d4rl", raw, "--name", "Cheetah", data_dir=tmp_path / "data") == 2
    assert "--name: 'Cheetah' is not a valid dataset name" in capsys.readouterr().err


def test_a_copy_keeps_its_name_and_its_version(raw, tmp_path):
    assert run("rlds_d4rl", raw, data_dir=tmp_path / "one") == 0
    [folder] = (tmp_path / "one/rlds_d4rl/file").iterdir()
    folder = folder.rename(folder.with_name("2.0.1"))
    file = folder / "dataset_info.json"
    file.write_text(re.sub('"version": "[0-9.]+"', '"version": "2.0.1"', file.read_text()))
    assert commands.run(["convert", str(folder), str(tmp_path / "two")]) == 0
    assert (tmp_path / "two/rlds_d4rl/2.0.1/dataset_info.json").exists()
    options = ["--name", "other", "--version", "3.0.0"]
    assert commands.run(["convert", str(folder), str(tmp_path / "two"), *options]) == 0
    assert (tmp_path / "two/other/3.0.0/dataset_info.json").exists()


def test_default_name_of_a_minari_dataset_is_its_whole_identifier():
    source = ToySource("invented")
    source.source_info = SourceInfo(metadata={"minari": {"dataset_id": "D4RL/pen/human-v2"}})
    name_and_version = converting._default_name(source, "datasets/D4RL/pen/human-v2")
    assert name_and_version == ("d4rl_pen_human_v2", "1.0.0")


@pytest.mark.slow
def test_tensorflow_is_loaded_without_keras():
    """Conversions do not use Keras, which is slow to load; other code can still import it."""
    code = """
import sys
from tfds_builders import quiet
quiet.quiet_libraries()
assert "tensorflow" in sys.modules and not {"keras", "jax"} & {*sys.modules}
import tensorflow as tf
assert tf.keras.layers.Dense(3)(tf.zeros((2, 4))).shape == (2, 3)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_options_of_the_source_equal_its_arguments(raw, tmp_path, capsys):
    options = ["--option", 'boundary=["flags", "length"]', "--option=length=3"]
    assert run("rlds_d4rl", raw, *options, data_dir=tmp_path / "one") == 0
    converted = tfds_builders.convert(
        D4rlSource(raw, ["flags", "length"], length=3),
        name="rlds_d4rl",
        data_dir=tmp_path / "two",
    )
    directory = capsys.readouterr().out.splitlines()[0]
    assert directory.startswith(str(tmp_path / "one" / "rlds_d4rl" / "file"))
    assert conversions.records(directory) == conversions.records(converted.data_path)


@pytest.mark.slow
def test_config_stays_if_an_option_is_passed(raw, tmp_path, capsys):
    name = "rlds_d4rl/hopper-medium-v2"
    assert run(name, raw, "--option=length=null", data_dir=tmp_path / "one") == 0
    assert run(name, raw, data_dir=tmp_path / "two") == 0
    lines = capsys.readouterr().out.splitlines()
    with_option, without_option = [line for line in lines if line.startswith("/")]
    assert conversions.contents(with_option) == conversions.contents(without_option)
    metadata = tfds.builder_from_directory(with_option).info.metadata
    assert metadata["d4rl"]["dataset"] == "hopper-medium-v2"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Warnings of Beam.
def test_pipeline_options_do_not_change_the_dataset(raw, tmp_path, capsys):
    beam = ("--runner=DirectRunner", "--direct_running_mode", "in_memory")
    assert run("rlds_d4rl", raw, *beam, data_dir=tmp_path / "one") == 0
    assert run("rlds_d4rl", raw, data_dir=tmp_path / "two") == 0
    lines = capsys.readouterr().out.splitlines()
    with_beam, without_beam = [line for line in lines if line.startswith("/")]
    assert conversions.contents(with_beam) == conversions.contents(without_beam)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rlds_minri", "file"], "no dataset 'rlds_minri'; did you mean 'rlds_minari'"),
        (["rlds_chess", "file"], "no dataset 'rlds_chess'; there are: rlds_"),
        (
            ["rlds_d4rl/hopper-mediun-v2", "file"],
            "rlds_d4rl has no config 'hopper-mediun-v2'; 156 exist, such as: hopper-medium-v2, ",
        ),
        (["rlds_minari/pen", "file"], "rlds_minari has no configs, got 'pen'"),
        (["rlds_d4rl", "file", "--direct_num_workers=2"], "options of Beam need --runner"),
        (["rlds_d4rl", "file", "--option=length=many"], "length: got many, expected integer"),
        (["rlds_d4rl", "file", "--option=width=3"], "rlds_d4rl has no option 'width'; its options"),
        (["rlds_d4rl", "file", "other"], "expected SRC and DST, got file other"),
    ],
)
def test_invalid_arguments_exit_with_2(tmp_path, capsys, arguments, message):
    assert run(*arguments, data_dir=tmp_path) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rlds_d4rl", "{tmp}/none.hdf5"], "none.hdf5"),
        (["rlds_folder"], "the raw data is missing"),
        (
            ["rlds_d4rl", "{raw}", "--option=boundary=chess"],
            "boundary: got ['chess'], expected some of",
        ),
        (["rlds_d4rl", "{raw}", "--num-shards=1000"], "num_shards: got 1000, expected 1 to"),
    ],
)
def test_failures_are_one_line_and_exit_with_1(raw, tmp_path, capsys, arguments, message):
    arguments = [argument.format(tmp=tmp_path, raw=raw) for argument in arguments]
    assert run(*arguments, data_dir=tmp_path / "data") == 1
    output = capsys.readouterr()
    last_line = output.err.splitlines()[-1]
    assert last_line.startswith("error: ") or last_line.endswith("Remove it to start again.")
    assert message in output.err
    assert not output.out


def test_error_names_damage_and_skip_damaged_leaves_it_out(damaged_run, tmp_path, capsys):
    data_dir = tmp_path / "data"
    assert run("rlds_rlu_atari", damaged_run, data_dir=data_dir) == 1
    error, note, _ = capsys.readouterr().err.splitlines()[-3:]
    assert error.startswith("error: run_1-00001-of-00002, episode ")
    assert "resumes there" in note
    with pytest.warns(UserWarning, match="damaged and left out"):
        assert run("rlds_rlu_atari", damaged_run, "--skip-damaged", data_dir=data_dir) == 0
    _, counts, left_out, _ = capsys.readouterr().out.splitlines()
    assert counts.startswith("train: ")
    assert left_out.startswith("  left out: run_1-00001-of-00002:")
    assert run("rlds_rlu_atari", damaged_run, data_dir=data_dir) == 1


def test_hostile_raw_data_is_an_error_without_control_characters(raw, tmp_path, capsys):
    with h5py.File(raw, "a") as file:
        file["infos/\x1b[2J\nx"] = np.dtype("f4")
    assert run("rlds_d4rl", raw, data_dir=tmp_path) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {raw}, field 'infos/\\x1b[2J\\nx': a named type, expected a g")
    assert "Traceback" not in error
    with h5py.File(raw, "a") as file:
        del file["infos/\x1b[2J\nx"]
        file["secret"] = h5py.ExternalLink("/etc/passwd", "/")
    assert run("rlds_d4rl", raw, data_dir=tmp_path) == 1
    assert "pass follow_links=True" in capsys.readouterr().err


SCRIPT = """
import signal, sys, time
from rlds.formats.d4rl.source import D4rlSource
from rlds_tools.command_line.commands import run

read, indices = D4rlSource.read, []

def slow(self, split, index, *args):
    indices.append(index)
    if len(indices) == 3:
        print("two", flush=True, file=sys.__stdout__)
        time.sleep(60)
    return read(self, split, index, *args)

if sys.argv.pop() == "slow":
    D4rlSource.read = slow
sys.exit(run(sys.argv[1:]))
"""


def test_ctrl_c_while_tensorflow_loads_prints_one_line(raw, tmp_path, monkeypatch, capsys):
    arguments = ["rlds", "convert", "--dataset", "rlds_d4rl", str(raw), str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(quiet, "quiet_libraries", mock.Mock(side_effect=KeyboardInterrupt))
    assert commands.run() == 130
    assert capsys.readouterr().err.strip() == "Interrupted."


@pytest.mark.slow
def test_an_interrupted_conversion_resumes_with_the_same_result(raw, tmp_path):
    """Ctrl-C, in a process of its own, prints one line on standard error."""
    data_dir, uninterrupted_dir = tmp_path / "data", tmp_path / "whole"
    command = ["convert", "--dataset", "rlds_d4rl", raw, data_dir]
    process = forked.Process(SCRIPT, *command, "slow")
    assert process.stdout.readline() == "two\n"
    os.kill(process.pid, signal.SIGINT)
    output, errors = process.stdout.read(), process.stderr.read()
    assert process.wait() == 130
    assert errors.splitlines()[-1] == "Interrupted."
    assert "Traceback" not in errors
    assert not output
    assert run("rlds_d4rl", raw, data_dir=data_dir) == 0
    assert run("rlds_d4rl", raw, data_dir=uninterrupted_dir) == 0
    name = next((data_dir / "rlds_d4rl").glob("**/1.0.0")).relative_to(data_dir)
    assert conversions.contents(data_dir / name) == conversions.contents(uninterrupted_dir / name)


def test_a_log_is_converted_to_tfds_and_on_to_minari(log, tmp_path, capsys):
    code = commands.run(["convert", log, str(tmp_path), "--json", "--quiet"])
    assert code == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["path"] == str(tmp_path / "catch" / "1.0.0")
    assert summary["splits"]["train"]["steps"] == 30
    assert commands.run(["convert", log, str(tmp_path)]) == 1
    assert "exists and is not overwritten" in capsys.readouterr().err
    target = tmp_path / "minari" / "catch-v0"
    assert commands.run(["convert", summary["path"], str(target), "--to", "minari"]) == 0
    assert rlds_tools.inspect(target).splits[0].episodes == 3
    capsys.readouterr()
    command = ["convert", log, str(tmp_path / "x-v0"), "--to", "minari", "-T", "data_format=arrow"]
    assert commands.run([*command, "--plan"]) == 0
    assert "steps/action actions exact" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "x-v0").exists()
    assert commands.run([*command, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["episodes"], summary["steps"], summary["is_written"]) == (3, 30, True)
    assert {field["how"] for field in summary["fields"]} == {"exact"}
    differences = rlds_tools.diff(log, summary["path"])
    assert (differences.exit_code, differences.steps) == (0, 30)
    assert not (tmp_path / "downloads").exists()
    assert (
        commands.run(["convert", log, str(tmp_path / "y.h5"), "--to", "webdataset", "--plan"]) == 1
    )
    assert "webdataset writes a folder" in capsys.readouterr().err
    for options, message in (
        (["--to", "floppy"], "'floppy' is not a format that can be written; there are: tfrecord"),
        (["--to", "minari", "--name", "x"], "not available with --to minari: --name"),
        (["--plan"], "not available with --to tfrecord: --plan"),
        (["--plan", "--to", "tfds"], "not available with --to tfrecord: --plan"),
        (["--to", "minari", "-T", "x=1"], "minari has no option 'x'"),
    ):
        assert commands.run(["convert", log, str(tmp_path / "y-v0"), *options]) == 2
        assert message in capsys.readouterr().err
    assert commands.run(["convert", log]) == 2
    assert "missing DST: give a folder for the result" in capsys.readouterr().err
    assert commands.run(["convert", log, str(tmp_path), "--dataset", "rlds_chess"]) == 2
    assert "no dataset 'rlds_chess'" in capsys.readouterr().err


def test_conversion_keeps_labels_and_can_store_them_as_fields(log, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RLDS_CACHE_DIR", str(tmp_path / "cache"))
    source = str(shutil.copytree(log, tmp_path / "log"))
    labels = rlds.labels.open(source)
    for by, value in (("ann", "good"), ("bob", "bad")):
        labels.add("quality", 1, value, by=by)
    labels.add("score", 2, 0.5, by="ann")
    labels.add("slip", 1, True, 3, 6, by="ann")

    def read_rows(path):
        labels = rlds.labels.open(path)
        keys = [as_converted(labels.episodes.peek(index)).key for index in range(3)]
        return {
            key: [(row.layer, row.value, row.begin) for row in labels.of_episode(index)]
            for index, key in enumerate(keys)
        }

    command = ["convert", source, str(tmp_path / "made")]
    assert commands.run([*command, "--name", "plain", "--where", "index > 0"]) == 0
    plain = rlds.labels.open(tmp_path / "made" / "plain")
    assert sorted((row.layer, row.value, row.begin) for row in plain) == [
        ("quality", "bad", None),
        ("quality", "good", None),
        ("score", 0.5, None),
        ("slip", True, 3),
    ]
    assert commands.run([*command, "--name", "fields", "--labels", "all"]) == 0
    assert read_rows(tmp_path / "made" / "fields") == read_rows(source)
    episodes = sources.open(tmp_path / "made" / "fields")
    by_key = {as_converted(episode).key: as_converted(episode) for episode in episodes}
    label_fields = [episode.metadata["label"] for episode in by_key.values()]
    assert {text_of(values["quality"]) for values in label_fields} == {b""}  # In dispute.
    assert sorted(map(str, (values["score"] for values in label_fields))) == ["0.5", "nan", "nan"]
    slips = [episode.steps["label"]["slip"].tolist() for episode in by_key.values()]
    assert sorted(slips)[-1] == [3 <= step < 6 for step in range(10)]
    assert (
        commands.run([*command[:2], str(tmp_path / "z"), "--to", "zarr", "--labels", "slip"]) == 0
    )
    assert "label" not in sources.open(tmp_path / "z").spec
    assert list(sources.open(tmp_path / "z").spec["steps"]["label"]) == ["slip", "slip_known"]
    capsys.readouterr()
    assert commands.run([*command, "--name", "none", "--labels", "slipp"]) == 1
    assert "no layer 'slipp'; did you mean 'slip'" in capsys.readouterr().err
    assert commands.run([*command[:2], "--dataset", "rlds_d4rl", "--labels", "all"]) == 2
