"""Recording straight into a LeRobot dataset: it is whole after each episode, whatever happens."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import camera_arm
import foreign_readers
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from camera_arm import Arm

import envlogger
import rlds.sources
from envlogger import Video
from rlds.recording import LeRobotBackendWriter, recover
from rlds.recording.lerobot import recordings_in
from rlds_ecosystem.errors import StorageError

pytest.importorskip("av")

VIDEO = {"top": Video(quality=5, gop=10), "robot/wrist": Video(quality=5, gop=10)}


def recorder(path, **arguments):
    given = {"fps": 30, "task": "pick", "video": VIDEO, **arguments}
    return envlogger.EnvLogger(Arm(), backend=LeRobotBackendWriter, data_directory=path, **given)


def play(env, number):
    timestep = env.reset()
    while not timestep.last():
        timestep = env.step(np.full(2, number, np.float32))


def files(path):
    return {
        os.path.relpath(os.path.join(folder, name), path): os.path.getsize(
            os.path.join(folder, name)
        )
        for folder, _, names in os.walk(path)
        for name in names
        if "/.rlds" not in folder
    }


def check(path, numbers, tasks):
    """Checks all that is in a dataset."""
    episodes = rlds.sources.open(path, video="frames")
    assert len(episodes) == len(numbers)
    for index, (number, task) in enumerate(zip(numbers, tasks)):
        steps = episodes.columns(index)
        assert steps["action"].tolist() == [[number, number]] * 39
        assert set(steps["language_instruction"].tolist()) == {task}
        for row in (0, 20, 38):
            frame = steps["observation"]["top"][row].astype(int)
            assert np.abs(frame - Arm().frames(row)[0]).mean() < 12
    info = json.loads((path / "meta/info.json").read_text())
    assert (info["total_episodes"], info["total_frames"]) == (len(numbers), 39 * len(numbers))
    assert info["total_tasks"] == len(set(tasks))
    found = json.loads((path / "meta/stats.json").read_text())["action"]
    np.testing.assert_allclose(found["mean"], [np.mean(numbers)] * 2)
    np.testing.assert_allclose(found["std"], [np.std(numbers)] * 2, atol=1e-9)
    for name, share in {"q01": 0.01, "q50": 0.5, "q99": 0.99}.items():
        expected = np.quantile(np.repeat(numbers, 39), share)
        np.testing.assert_allclose(found[name], [expected] * 2)


def test_it_is_whole_after_each_episode(tmp_path):
    path = tmp_path / "robot"
    with recorder(path) as env:
        play(env, 1)
        env.flush()
        check(path, [1], ["pick"])
        one = files(path)
        play(env, 2)
        env.flush()
        check(path, [1, 2], ["pick"] * 2)
        env.discard_episode()  # That which has ended.
        env.flush()
        assert files(path) == one
        env.reset()
        env.step(np.zeros(2, np.float32))
        env.discard_episode()  # One that is running.
        env.flush()
        assert files(path) == one
    assert not (path / ".rlds").exists()
    with recorder(path, task="place") as env:
        play(env, 3)
    with recorder(path, episode_fn=lambda *_: {"task": "push"}) as env:
        play(env, 5)
    check(path, [1, 3, 5], ["pick", "place", "push"])
    before = files(path)
    for arguments, message in (
        ({"fps": 10, "video": {name: Video(fps=10) for name in VIDEO}}, "of version v3.0 at 30"),
        ({"video": {"top": Video()}}, "of 'observation.robot.wrist' is"),
    ):
        with pytest.raises(StorageError, match=message), recorder(path, **arguments) as env:
            play(env, 7)
        assert files(path) == before
        for left in (path / ".rlds").glob("recording-*"):
            [episode] = rlds.sources.open(left, format="envlogger")
            assert episode.num_steps == 40  # Nothing that was recorded is lost.
            shutil.rmtree(path / ".rlds")
    with pytest.raises(ValueError, match="30 frames a second, not 20"):
        recorder(path, fps=20)
    pq.write_table(
        pa.table({"task_index": [0, 2], "task": ["a", "b"]}), path / "meta/tasks.parquet"
    )
    with pytest.raises(StorageError, match=r"has the numbers \[0, 2\], expected 0, 1, "):
        recorder(path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(StorageError, match="is no LeRobot dataset"):
        recorder(tmp_path / "other")


_READ = """
import json, sys
from lerobot.datasets.lerobot_dataset import LeRobotDataset
data = LeRobotDataset("a/b", root=sys.argv[1], video_backend="pyav")
item = data[len(data) - 1]
shapes = [list(item[name].shape) for name in ("observation.top", "action")]
print(json.dumps([data.num_episodes, len(data), item["task"], item["action"].tolist(), *shapes]))
"""


@pytest.mark.slow
def test_lerobot_reads_it_while_it_is_recorded(tmp_path):
    path = tmp_path / "robot"
    with recorder(path) as env:
        for number in (1, 2):
            play(env, number)
            env.flush()
            read = foreign_readers.run("lerobot", _READ, path)
            assert read == [number, 39 * number, "pick", [number] * 2, [3, 48, 64], [2]]


_SCRIPT = """
    import sys
    sys.path.insert(0, {support!r})
    sys.path.insert(0, {folder!r})
    from test_lerobot import play, recorder
    with recorder({path!r}) as env:
        for number in range(1000):
            play(env, number)
            env.flush()
            print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("wait", [1, 2, 4])
def test_a_kill_costs_the_running_episode(tmp_path, wait):
    path = tmp_path / "robot"
    names = {
        "support": os.path.dirname(camera_arm.__file__),
        "folder": os.path.dirname(__file__),
        "path": os.fspath(path),
    }
    script = textwrap.dedent(_SCRIPT.format(**names))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        for _ in range(wait):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    info = json.loads((path / "meta/info.json").read_text())
    number = info["total_episodes"]
    assert number >= wait
    check(path, [*range(number)], ["pick"] * number)
    done = recover(path, tmp_path / "mended")
    assert number <= done.num_episodes <= number + 1
    is_left = bool(recordings_in(path))
    with (
        pytest.warns(UserWarning, match="was being recorded")
        if is_left
        else contextlib.nullcontext(),
        recorder(path) as env,
    ):
        play(env, number)
    check(path, [*range(number + 1)], ["pick"] * (number + 1))
