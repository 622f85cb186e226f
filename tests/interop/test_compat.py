"""`rlds.feeds.compat` compared with Octo, OpenVLA, openpi and LeRobot, and used by their code.

Runs if LOADERS_PYTHON and ROBOTICS_PYTHON name a Python with some of them.
"""

import json
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import arm_datasets
import numpy as np
import pytest
import raw_lerobot
import raw_oxe

from rlds.feeds.compat.lerobot import LeRobotDataset

HERE = Path(__file__).parent
LOADERS, ROBOTICS = (os.environ.get(name, "") for name in ("LOADERS_PYTHON", "ROBOTICS_PYTHON"))

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not LOADERS, reason="LOADERS_PYTHON names no Python with them")
def test_octo_openvla_and_openpi_read_the_same_batches(tmp_path):
    tmp_path = arm_datasets.write_all(tmp_path / "data")
    raw_oxe.fractal(tmp_path / "fractal20220817_data" / "0.1.0")
    raw_oxe.bridge_dataset(tmp_path / "bridge_dataset" / "1.0.0")
    # OpenVLA has another name for it.
    copy = Path(shutil.copytree(tmp_path / "bridge_dataset", tmp_path / "bridge_orig")) / "1.0.0"
    info = copy / "dataset_info.json"
    info.write_text(info.read_text().replace("bridge_dataset", "bridge_orig"))
    for file in copy.glob("bridge_dataset*"):
        file.rename(copy / file.name.replace("bridge_dataset", "bridge_orig"))
    paths = [HERE.parents[1], HERE.parent / "support"]
    result = subprocess.run(
        [LOADERS, HERE / "compat_with_loaders.py", tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "checked: " in result.stdout


@pytest.mark.skipif(not ROBOTICS, reason="ROBOTICS_PYTHON names no Python with LeRobot")
def test_items_equal_those_of_lerobot(tmp_path):
    pytest.importorskip("torch")
    path = raw_lerobot.write_v3(tmp_path / "set", codecs={raw_lerobot.TOP: "h264"})
    windows = {
        "action": [0, 0.1, 0.2],
        raw_lerobot.STATE: [-0.1, 0],
        raw_lerobot.TOP: [-0.1, 0],
        raw_lerobot.IMAGE: [0],
    }
    cases = [
        {},
        {"delta_timestamps": windows},
        {"delta_timestamps": {raw_lerobot.TOP: [0]}, "episodes": [0, 2]},
        {"return_uint8": True},
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = [ROBOTICS, HERE / "lerobot_items.py", path, json.dumps(cases), tmp_path / "items"]
    subprocess.run(script, env=environment, check=True)
    for case, (items, meta) in zip(
        cases, pickle.loads((tmp_path / "items").read_bytes()), strict=True
    ):
        ours = LeRobotDataset("me/set", root=path, **case)
        for name in ("num_episodes", "num_frames", "fps", "absolute_to_relative_idx"):
            assert getattr(ours, name) == meta[name], name
        assert sorted(ours.meta.camera_keys) == meta["cameras"]
        assert ours.meta.episodes["dataset_from_index"] == meta["begins"]
        assert ours.meta.episodes["tasks"] == meta["tasks"]
        assert ours.meta.shapes == meta["shapes"]
        for item, expected in zip(ours[:], items, strict=True):
            assert item.keys() == expected.keys()
            for key, value in expected.items():
                check_value(key, item[key], value)


def test_lerobot_trains_with_one_import_changed(tmp_path):
    """In its own environment, with the releases of NumPy, PyAV and pyarrow that it asks for."""
    imports = "import accelerate, lerobot, rlds.feeds"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    if not ROBOTICS or subprocess.run([ROBOTICS, "-c", imports], env=environment).returncode:
        pytest.skip("ROBOTICS_PYTHON names no Python with lerobot[training] and these imports")
    result = subprocess.run(
        [ROBOTICS, HERE / "train_with_lerobot.py", tmp_path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "trained: images, videos" in result.stdout


def check_value(key, ours, theirs):
    if isinstance(theirs, str):
        assert ours == theirs, key
        return
    dtype, values = theirs
    assert (str(ours.dtype), tuple(ours.shape)) == (dtype, values.shape), key
    atol = 0
    if key == raw_lerobot.TOP:  # Decoded by another release of FFmpeg.
        atol = 5 if dtype == "torch.uint8" else 0.02
    actual = ours.numpy().astype(float)
    np.testing.assert_allclose(actual, values, atol=atol, rtol=1e-6, err_msg=key)
