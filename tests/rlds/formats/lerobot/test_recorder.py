"""Recording into a LeRobot dataset, which is complete after each episode."""

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
from rlds.editing import Delete
from rlds.formats.lerobot.recorder import find_recordings
from rlds.recording import LeRobotBackendWriter, recover
from rlds_ecosystem.model.errors import StorageError, UnsupportedTypeError

pytest.importorskip("av")

VIDEO = {"top": Video(quality=5, gop=10), "robot/wrist": Video(quality=5, gop=10)}


def open_recorder(path, **arguments):
    options = {"fps": 30, "task": "pick", "video": VIDEO, **arguments}
    return envlogger.EnvLogger(Arm(), backend=LeRobotBackendWriter, data_directory=path, **options)


def play(env, index):
    timestep = env.reset()
    while not timestep.last():
        timestep = env.step(np.full(2, index, np.float32))


def file_sizes(path):
    return {
        os.path.relpath(os.path.join(folder, name), path): os.path.getsize(
            os.path.join(folder, name)
        )
        for folder, _, names in os.walk(path)
        for name in names
        if "/.rlds" not in folder
    }


def check(path, indices, tasks):
    """Checks the episodes, info.json and stats.json of a dataset."""
    episodes = rlds.sources.open(path, video="frames")
    assert len(episodes) == len(indices)
    for index, (value, task) in enumerate(zip(indices, tasks)):
        steps = episodes.columns(index)
        assert steps["action"].tolist() == [[value, value]] * 39
        assert set(steps["language_instruction"].tolist()) == {task}
        for row in (0, 20, 38):
            frame = steps["observation"]["top"][row].astype(int)
            assert np.abs(frame - Arm().frames(row)[0]).mean() < 12
    info = json.loads((path / "meta/info.json").read_text())
    assert (info["total_episodes"], info["total_frames"]) == (len(indices), 39 * len(indices))
    assert info["total_tasks"] == len(set(tasks))
    actual = json.loads((path / "meta/stats.json").read_text())["action"]
    np.testing.assert_allclose(actual["mean"], [np.mean(indices)] * 2)
    np.testing.assert_allclose(actual["std"], [np.std(indices)] * 2, atol=1e-9)
    for name, share in {"q01": 0.01, "q50": 0.5, "q99": 0.99}.items():
        expected = np.quantile(np.repeat(indices, 39), share)
        np.testing.assert_allclose(actual[name], [expected] * 2)


def test_the_dataset_is_complete_after_each_episode(tmp_path):
    path = tmp_path / "robot"
    with open_recorder(path) as env:
        play(env, 1)
        env.flush()
        check(path, [1], ["pick"])
        sizes = file_sizes(path)
        play(env, 2)
        env.flush()
        check(path, [1, 2], ["pick"] * 2)
        env.discard_episode()  # The ended one.
        env.flush()
        assert file_sizes(path) == sizes
        env.reset()
        env.step(np.zeros(2, np.float32))
        env.discard_episode()  # The running one.
        env.flush()
        assert file_sizes(path) == sizes
    assert not (path / ".rlds").exists()
    with open_recorder(path, task="place") as env:
        play(env, 3)
    with open_recorder(path, episode_fn=lambda *_: {"task": "push"}) as env:
        play(env, 5)
    check(path, [1, 3, 5], ["pick", "place", "push"])
    before = file_sizes(path)
    for arguments, message in (
        (
            {"fps": 10, "video": {name: Video(fps=10) for name in VIDEO}},
            "has version v3.0 and 30 fps",
        ),
        ({"video": {"top": Video()}}, "of 'observation.robot.wrist' is"),
    ):
        with pytest.raises(StorageError, match=message), open_recorder(path, **arguments) as env:
            play(env, 7)
        assert file_sizes(path) == before
        for log in (path / ".rlds").glob("recording-*"):
            [episode] = rlds.sources.open(log, format="envlogger")
            assert episode.num_steps == 40  # The log has all recorded steps.
            shutil.rmtree(path / ".rlds")
    with pytest.raises(ValueError, match="30 frames a second, not 20"):
        open_recorder(path, fps=20)
    pq.write_table(
        pa.table({"task_index": [0, 2], "task": ["a", "b"]}), path / "meta/tasks.parquet"
    )
    with pytest.raises(StorageError, match=r"has the numbers \[0, 2\], expected 0, 1, "):
        open_recorder(path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(StorageError, match="is not a LeRobot dataset"):
        open_recorder(tmp_path / "other")


_ENDED = """
import os, sys
import numpy as np
sys.path.insert(0, {folder!r})
from test_recorder import play, open_recorder
env = open_recorder({path!r})
for index in range(3):
    play(env, index)
    env._backend.set_episode_metadata({{"task": f"task {{index}}"}})
print("ended", flush=True)
sys.stdin.readline()
"""


def test_a_second_recorder_is_refused_and_ended_episodes_survive_a_kill(tmp_path):
    path = tmp_path / "robot"
    names = {"folder": os.path.dirname(__file__), "path": os.fspath(path)}
    script = _ENDED.format(**names)
    support = {**os.environ, "PYTHONPATH": os.path.dirname(camera_arm.__file__)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], env=support, **pipes) as process:
        assert process.stdout.readline() == b"ended\n"
        with pytest.raises(StorageError, match=r"another recorder .* writes .*robot: wait"):
            open_recorder(path)
        process.kill()
    assert recover(path, tmp_path / "mended").num_episodes == 3
    check(tmp_path / "mended", [0, 1, 2], [f"task {index}" for index in range(3)])
    with open_recorder(tmp_path / "other"):
        with pytest.raises(StorageError, match="another recorder"):
            open_recorder(tmp_path / "other", video=None)
    open_recorder(tmp_path / "other").close()


_NOT_CLOSED = """
import sys
import numpy as np
sys.path.insert(0, {folder!r})
from test_recorder import play, open_recorder
env = open_recorder({path!r})
for index in range(3):
    play(env, index)
env.reset()
for _ in range(20):
    env.step(np.zeros(2, np.float32))
"""


def test_a_recorder_that_is_never_closed_keeps_its_episodes(tmp_path):
    path = tmp_path / "robot"
    script = _NOT_CLOSED.format(folder=os.path.dirname(__file__), path=os.fspath(path))
    support = {**os.environ, "PYTHONPATH": os.path.dirname(camera_arm.__file__)}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, env=support, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    actual = [(episode.num_steps, episode.complete) for episode in rlds.sources.open(path)]
    assert actual == [(39, True)] * 3 + [(20, False)]
    assert not (path / ".rlds").exists()


class BrokenArm(Arm):
    """An arm whose third episode ends with an error, and the fifth with a wrong frame."""

    episode = -1

    def reset(self):
        self.episode += 1
        return super().reset()

    def step(self, action):
        timestep = super().step(action)
        if self.episode == 2 and self._row == 10:
            raise ValueError("the camera is gone")
        if self.episode == 4 and self._row == 10:
            timestep.observation["top"] = timestep.observation["top"][1:]
        return timestep


def test_an_episode_without_an_end_is_incomplete(tmp_path):
    path, errors = tmp_path / "robot", 0

    def record(env, count):
        nonlocal errors
        for _ in range(count):
            try:
                play(env, 1)
            except ValueError:
                errors += 1

    options = {"backend": LeRobotBackendWriter, "fps": 30, "task": "pick", "video": VIDEO}
    with envlogger.EnvLogger(BrokenArm(), data_directory=path, **options) as env:
        record(env, 6)
    assert errors == 2
    episodes = rlds.sources.open(path)
    assert [episode.complete for episode in episodes] == [True, True, False, True, False, True]
    assert [len(episodes[index].steps["action"]) for index in range(6)] == [39, 39, 9, 39, 9, 39]
    # LeRobot's own datasets have no such column.
    for file in path.glob("meta/episodes/*/*"):
        pq.write_table(pq.read_table(file).drop_columns("complete"), file)
    with (
        pytest.warns(UserWarning, match="has no last step. The dataset has no column"),
        envlogger.EnvLogger(BrokenArm(), data_directory=path, **options) as env,
    ):
        record(env, 4)
    assert [episode.complete for episode in rlds.sources.open(path)] == [True] * 10


def test_a_refused_first_step_leaves_no_files(tmp_path):
    path, arm = tmp_path / "robot", Arm()
    with envlogger.EnvLogger(arm, backend=LeRobotBackendWriter, data_directory=path, fps=30) as env:
        play(env, 1)
        reset = arm.reset
        arm.reset = lambda: reset()._replace(observation={"top": np.zeros(2, np.complex64)})
        with pytest.raises(UnsupportedTypeError, match="complex64"):
            env.reset()
        arm.reset = reset
        play(env, 2)
    assert [len(episode.steps["action"]) for episode in rlds.sources.open(path)] == [39, 39]
    assert not (path / ".rlds").exists()


def test_edits_in_place_wait_until_the_recorder_is_closed(tmp_path):
    path = tmp_path / "robot"
    with open_recorder(path) as env:
        for index in range(3):
            play(env, index)
        env.flush()
        before = file_sizes(path)
        with pytest.raises(StorageError, match="robot is being written"):
            rlds.edit(path, Delete(episodes=[0]))
        env.reset()
        with pytest.raises(StorageError, match=r"recording-.* is an unfinished recording"):
            rlds.edit(path, Delete(episodes=[0]))
        env.discard_episode()
        assert file_sizes(path) == before
        play(env, 3)
    rlds.edit(path, Delete(episodes=[0]))
    check(path, [1, 2, 3], ["pick"] * 3)


def test_logs_that_cannot_be_added_are_kept(tmp_path):
    path = tmp_path / "robot"
    with open_recorder(path) as env:
        play(env, 1)
    env = open_recorder(path)
    play(env, 2)
    (path / "meta/info.json").unlink()
    (path / "meta/info.json").mkdir()
    (path / "meta/info.json/file").touch()
    message = r"stops here: .*; 1 logs in .* have the last episodes. Remove .* `rlds recover"
    with pytest.raises(StorageError, match=message):
        env.flush()
    with pytest.raises(StorageError, match=message):  # As in every later call.
        play(env, 3)
    env.close()
    [log] = (path / ".rlds").glob("recording-*")
    assert [episode.num_steps for episode in rlds.sources.open(log)] == [40]


_READ = """
import json, sys
from lerobot.datasets.lerobot_dataset import LeRobotDataset
data = LeRobotDataset("a/b", root=sys.argv[1], video_backend="pyav")
item = data[len(data) - 1]
shapes = [list(item[name].shape) for name in ("observation.top", "action")]
print(json.dumps([data.num_episodes, len(data), item["task"], item["action"].tolist(), *shapes]))
"""


@pytest.mark.slow
def test_lerobot_reads_a_dataset_during_its_recording(tmp_path):
    path = tmp_path / "robot"
    with open_recorder(path) as env:
        for index in (1, 2):
            play(env, index)
            env.flush()
            actual = foreign_readers.run("lerobot", _READ, path)
            assert actual == [index, 39 * index, "pick", [index] * 2, [3, 48, 64], [2]]


_SCRIPT = """
    import sys
    sys.path.insert(0, {support!r})
    sys.path.insert(0, {folder!r})
    from test_recorder import play, open_recorder
    with open_recorder({path!r}) as env:
        for index in range(1000):
            play(env, index)
            env.flush()
            print(index, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("wait", [1, 2, 4])
def test_a_kill_costs_at_most_the_running_episode(tmp_path, wait):
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
    count = info["total_episodes"]
    assert count >= wait
    check(path, [*range(count)], ["pick"] * count)
    done = recover(path, tmp_path / "mended")
    assert count <= done.num_episodes <= count + 1
    is_left = bool(find_recordings(path))
    with (
        pytest.warns(UserWarning, match="unfinished episodes of an earlier process")
        if is_left
        else contextlib.nullcontext(),
        open_recorder(path) as env,
    ):
        play(env, count)
    check(path, [*range(count + 1)], ["pick"] * (count + 1))
