"""Records with LeRobot 0.6.1 in other processes, and kills them at random moments.

    ROBOTICS_PYTHON tests/support/killed_lerobot.py FOLDER --kills 40 --seed 1

Runs in a Python with LeRobot. Makes datasets `FOLDER/000` and so on, half of them with
`streaming_encoding`, with 14 episodes of 12 frames of two cameras; some are resumed. Each has a
file `000.json`: the numbers of calls of `save_episode` that had begun and returned before the kill.

Each row holds its index: in `observation.state`, and in the frames, as black and white squares.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import time

import numpy as np

NUM_EPISODES, NUM_FRAMES, FPS = 14, 12, 10
CAMERAS = ("observation.images.top", "observation.images.wrist")
SHAPE, SQUARE, BITS = (48, 96, 3), 16, 12
TASKS = ("pick the cup", "place it")


def state_of(episode, row):
    """The state of a row, which differs in every row."""
    return np.array([episode, row, episode / 7 - row / 3], np.float32)


def frame_of(camera, episode, row):
    """A frame that shows its camera, episode and row as squares."""
    code = (episode * 16 + row) * 2 + camera
    image = np.full(SHAPE, 90, np.uint8)
    for bit in range(BITS):
        y, x = divmod(bit, SHAPE[1] // SQUARE)
        area = np.s_[y * SQUARE : (y + 1) * SQUARE, x * SQUARE : (x + 1) * SQUARE]
        image[area] = 230 if code >> bit & 1 else 20
    return image


def number_in(image):
    """Camera, episode and row of a frame."""
    code = 0
    for bit in range(BITS):
        y, x = divmod(bit, SHAPE[1] // SQUARE)
        square = image[y * SQUARE + 4 : (y + 1) * SQUARE - 4, x * SQUARE + 4 : (x + 1) * SQUARE - 4]
        code |= int(square.mean() > 128) << bit
    return code % 2, code // 32, code // 2 % 16


def record(path, notes, streaming, resumed, wait):
    """Records a dataset; with `resumed`, resumes it after two episodes."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
        "action": {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]},
        "grasped": {"dtype": "bool", "shape": (1,), "names": None},
        "note": {"dtype": "string", "shape": (1,), "names": None},
        **{
            name: {"dtype": "video", "shape": SHAPE, "names": ["height", "width", "channels"]}
            for name in CAMERAS
        },
    }
    options = {"streaming_encoding": streaming, "image_writer_threads": 0 if streaming else 2}
    first = 0
    note(notes, 0, 0)
    if resumed:
        dataset = LeRobotDataset.create("me/set", FPS, features, root=path, **options)
        add(dataset, 0)
        add(dataset, 1)
        dataset.finalize()
        dataset, first = LeRobotDataset.resume("me/set", root=path, **options), 2
    else:
        dataset = LeRobotDataset.create("me/set", FPS, features, root=path, **options)
    note(notes, first, first)
    wait()
    for episode in range(first, NUM_EPISODES):
        add(dataset, episode, lambda: note(notes, episode + 1, episode))  # noqa: B023
        note(notes, episode + 1, episode + 1)
    dataset.finalize()
    note(notes, NUM_EPISODES, NUM_EPISODES, "finalized")


def add(dataset, episode, save=lambda: None):
    for row in range(NUM_FRAMES):
        frames = {name: frame_of(i, episode, row) for i, name in enumerate(CAMERAS)}
        state = state_of(episode, row)
        texts = {"note": f"nöte {row}", "task": TASKS[episode % 2]}
        arrays = {"observation.state": state, "action": -state, "grasped": np.array([row > 5])}
        dataset.add_frame({**arrays, **texts, **frames})
        time.sleep(0.002)
    save()
    dataset.save_episode()


def note(file, begun, done, message=""):
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps({"begun": begun, "done": done, "what": message}))
    os.replace(temporary, file)


def session(folder, index, streaming, resumed, moment):
    """Records, and kills the process after a fractional number of episodes."""
    path, notes = folder / f"{index:03d}", folder / f"{index:03d}.json"
    ready, started = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        try:
            record(path, notes, streaming, resumed, lambda: os.write(started, b"."))
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(1)
    os.close(started)
    os.read(ready, 1)
    os.close(ready)
    begin = time.monotonic()
    while (done := json.loads(notes.read_text())["done"]) < int(moment):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        if not done:
            begin = time.monotonic()
        time.sleep(0.002)
    # Seconds per episode, without the first one.
    seconds = (time.monotonic() - begin) / (done - 1) if done > 1 else 0.5
    time.sleep(seconds * (moment - int(moment)))
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import lerobot.datasets.lerobot_dataset  # noqa: F401

    draw = random.Random(options.seed)
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    for index in range(options.kills):
        resumed = index % 8 > 5
        moment = draw.uniform(2 * resumed, NUM_EPISODES)
        session(options.folder, index, bool(index % 2), resumed, moment)


if __name__ == "__main__":
    main()
