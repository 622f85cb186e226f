import shutil
from pathlib import Path

import pytest
import raw_lerobot

import rlds.sources
import rlds_tools


def test_datasets_below_a_folder_are_listed_with_damaged_ones(dataset, log, tmp_path):
    shutil.copytree(dataset, tmp_path / "data" / "tiny" / "1.0.0")
    shutil.copytree(log, tmp_path / "logs" / "catch")
    raw_lerobot.write_v3(tmp_path / "logs" / "robot")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "dataset_info.json").write_text("{")
    (tmp_path / "loop").symlink_to(tmp_path)
    result = rlds_tools.list_datasets(tmp_path)
    assert [(Path(d.path).name, d.format, d.episodes) for d in result.datasets] == [
        ("damaged", "tfds", None),
        ("1.0.0", "tfds", 3),
        ("catch", "envlogger", 3),
        ("robot", "lerobot", 3),
    ]
    assert "dataset_info.json" in result.datasets[0].error
    assert "data/tiny/1.0.0" in str(result)
    assert not rlds_tools.list_datasets(tmp_path, depth=1).datasets[1:]
    with pytest.raises(FileNotFoundError, match="not a folder"):
        rlds_tools.list_datasets(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="rlds list searches only local folders"):
        rlds_tools.list_datasets("s3://bucket")
    for name in "ab":
        shutil.copytree(tmp_path / "logs" / "robot", tmp_path / "robots" / name)
    with pytest.raises(ValueError, match=r"robots holds 2 datasets: a \(.*Choose one; `rlds list"):
        rlds_tools.inspect(tmp_path / "robots")
    # A folder with a log and a dataset is ambiguous, too.
    (tmp_path / "both").mkdir()
    shutil.copytree(tmp_path / "logs" / "catch", tmp_path / "both" / "log")
    shutil.copytree(tmp_path / "data", tmp_path / "both" / "data")
    message = r"both holds 2 datasets: data/tiny/1.0.0 \(tfds\), log \(envlogger\)\. Choose one"
    for function in (rlds_tools.inspect, rlds_tools.validate, rlds.sources.open):
        with pytest.raises(ValueError, match=message):
            function(tmp_path / "both")
    shutil.copytree(log, tmp_path / "data/tiny/1.0.0", dirs_exist_ok=True)
    with pytest.raises(ValueError, match="could be envlogger or tfds: pass the right one"):
        rlds_tools.inspect(tmp_path / "data/tiny/1.0.0")


def test_formats_are_listed_with_their_options():
    result = rlds_tools.list_formats()
    assert {"tfds", "minari", "d4rl"} <= {format["name"] for format in result.formats}
    assert "length=integer" in str(result)
    export_options = {
        format["name"]: format["export_options"]
        for format in result.formats
        if format["is_written"]
    }
    assert "tfds" in export_options
    assert any(option.startswith("data_format=") for option in export_options["minari"])
